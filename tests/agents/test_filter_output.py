"""The sieve before an agent that repeats itself: real processes, what comes through, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SIEVE = (sys.executable, "-P", "-m", "ralph.agents.filter_output")


def sifted(script: str, *unwanted: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    words = [*SIEVE, *unwanted, "--", "sh", "-c", script]
    return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def test_lines_are_kept_back_by_how_they_begin() -> None:
    done = sifted(
        "echo '{\"type\":\"update\"}'; echo 'no update'; echo oh >&2; cat", '{"type":"update"', stdin="said\n"
    )
    assert (done.stdout, done.stderr) == ('no update\nsaid\n{"type": "exit", "code": 0}\n', "oh\n")
    assert done.returncode == 0


def test_it_ends_as_the_program_did() -> None:
    assert sifted("exit 7").returncode == 7
    done = sifted("printf half; kill -9 $$")
    assert (done.returncode, done.stdout) == (137, 'half\n{"type": "exit", "code": 137}\n')


def test_a_program_that_is_not_there() -> None:
    done = subprocess.run([*SIEVE, "--", "/nowhere/pi"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (127, "") and "/nowhere/pi cannot be started" in done.stderr


def test_the_program_has_time_to_end_itself(tmp_path: Path) -> None:
    script = "trap 'sleep 0.3; echo last; exit 5' TERM; touch ready; while :; do sleep 0.05; done"
    words = [*SIEVE, "--", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path, start_new_session=True) as process:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 5 and out.splitlines()[0] == b"last"
    assert json.loads(out.splitlines()[-1]) == {"type": "exit", "code": 5}
