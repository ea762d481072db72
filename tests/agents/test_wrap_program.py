"""Agent programs whose output is filtered or whose prompt comes through a pipe: real processes and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FILTER = (sys.executable, "-P", "-m", "ralph.agents.wrap_program", "filter-output")
PIPE = [sys.executable, "-P", "-m", "ralph.agents.wrap_program", "pipe-prompt"]
TELL = "import os, stat, sys; print(stat.S_ISFIFO(os.fstat(0).st_mode), len(sys.stdin.read())); sys.exit(7)"


def run_filtered(script: str, *unwanted: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    words = [*FILTER, *unwanted, "--", "sh", "-c", script]
    return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def test_lines_with_an_unwanted_beginning_are_dropped() -> None:
    done = run_filtered(
        "echo '{\"type\":\"update\"}'; echo 'no update'; echo oh >&2; cat", '{"type":"update"', stdin="said\n"
    )
    assert (done.stdout, done.stderr) == ('no update\nsaid\n{"type": "exit", "code": 0}\n', "oh\n")
    assert done.returncode == 0


def test_the_exit_code_is_that_of_the_program() -> None:
    assert run_filtered("exit 7").returncode == 7
    done = run_filtered("printf half; kill -9 $$")
    assert (done.returncode, done.stdout) == (137, 'half\n{"type": "exit", "code": 137}\n')


def test_filter_output_reports_a_missing_program() -> None:
    done = subprocess.run([*FILTER, "--", "/nowhere/pi"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (127, "") and "/nowhere/pi cannot be started" in done.stderr


def test_the_program_has_time_to_end_after_sigterm(tmp_path: Path) -> None:
    script = "trap 'sleep 0.3; echo last; exit 5' TERM; touch ready; while :; do sleep 0.05; done"
    words = [*FILTER, "--", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path, start_new_session=True) as process:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 5 and out.splitlines()[0] == b"last"
    assert json.loads(out.splitlines()[-1]) == {"type": "exit", "code": 5}


@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_a_prompt_file_comes_through_a_pipe(tmp_path: Path, size: int) -> None:
    (tmp_path / "prompt.md").write_text("x" * size)
    with (tmp_path / "prompt.md").open() as prompt:
        done = subprocess.run([*PIPE, sys.executable, "-c", TELL], stdin=prompt, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(), done.stderr) == (7, ["True", str(size)], "")


def test_a_program_that_does_not_read_its_prompt_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("x" * 3_000_000)
    with (tmp_path / "prompt.md").open() as prompt:
        done = subprocess.run([*PIPE, "true"], stdin=prompt, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


def test_pipe_prompt_reports_a_missing_program() -> None:
    done = subprocess.run([*PIPE, "/no/such/program"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 127 and "/no/such/program cannot be started" in done.stderr
