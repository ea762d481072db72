"""The live view, on a real pseudo-terminal."""

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

from test_loop import RALPH, Project, project  # noqa: F401 - the fixture


def on_a_terminal(place: Project, arguments: list[str]) -> tuple[int, str]:
    """Run the command on a terminal; its exit code, and everything that the terminal was sent."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(RALPH), *arguments],
        cwd=place.root,
        env={**place.environment, "TERM": "xterm", "COLUMNS": "160"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                chunk = os.read(ours, 65536)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
    code = process.wait(timeout=120)
    os.close(ours)
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))


def test_it_shows_what_is_tried_the_check_that_runs_time_and_money(project: Project, tmp_path: Path) -> None:  # noqa: F811
    scenario = tmp_path / "scenario.yml"
    scenario.write_text(
        "turns:\n  - steps:\n      - say: I try it\n      - usage: {input_tokens: 5, output_tokens: 1, cost: 0.25}\n"
        "      - sleep: 1.5\n      - write: {path: done.txt, content: x}\n"
    )
    check = "`sleep 1.5; test -f done.txt` passes"
    arguments = ["loop", "the task", "--until", check, "--scenario", str(scenario), "--yes", "--max-cost", "3"]
    code, seen = on_a_terminal(project, arguments)
    assert code == 0, seen
    assert "iterations 0/10" in seen
    assert "implementer at work" in seen
    assert "I try it" in seen
    assert "checking `sleep 1.5; test -f done.txt` passes" in seen
    assert "$0.2500" in seen
    assert "COMPLETE" in seen


def test_consent_is_asked_for_once_on_a_terminal(project: Project) -> None:  # noqa: F811
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    arguments = [str(RALPH), "loop", "t", "--until", "`true`", "--agent-command", "true"]
    done = subprocess.run(arguments, cwd=project.root, env=project.environment, stdin=theirs, capture_output=True)
    assert done.returncode == 130
    assert b"run any program" in done.stderr
    os.write(ours, b"y\n")
    assert subprocess.run(arguments, cwd=project.root, env=project.environment, stdin=theirs).returncode == 0
    again = subprocess.run(arguments, cwd=project.root, env=project.environment, stdin=subprocess.DEVNULL)
    assert again.returncode == 0, "it was agreed to before"
    os.close(ours)
    os.close(theirs)
