"""Programs that take their standard input from a pipe only."""

import subprocess
import sys
from pathlib import Path

import pytest

WORDS = [sys.executable, "-P", "-m", "ralph.agents.pipe_prompt"]
TELL = "import os, stat, sys; print(stat.S_ISFIFO(os.fstat(0).st_mode), len(sys.stdin.read())); sys.exit(7)"


@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_a_file_comes_through_a_pipe(tmp_path: Path, size: int) -> None:
    (tmp_path / "prompt.md").write_text("x" * size)
    with (tmp_path / "prompt.md").open() as prompt:
        done = subprocess.run([*WORDS, sys.executable, "-c", TELL], stdin=prompt, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(), done.stderr) == (7, ["True", str(size)], "")


def test_who_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("x" * 3_000_000)
    with (tmp_path / "prompt.md").open() as prompt:
        done = subprocess.run([*WORDS, "true"], stdin=prompt, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_program_that_is_not_there() -> None:
    done = subprocess.run([*WORDS, "/no/such/program"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 127 and "/no/such/program cannot be started" in done.stderr
