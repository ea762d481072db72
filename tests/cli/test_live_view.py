"""The live view, on a real pseudo-terminal."""

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import pytest
from test_loop import RALPH, SUCCEEDS, Project, project  # noqa: F401 - the fixture


def on_a_terminal(place: Project, arguments: list[str], **environment: str) -> tuple[int, str]:
    """Run the command on a terminal; its exit code, and everything that the terminal was sent, without colors."""
    code, seen = on_a_color_terminal(place, arguments, **environment)
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)


def on_a_color_terminal(place: Project, arguments: list[str], **environment: str) -> tuple[int, str]:
    """The same with colors and control sequences."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(RALPH), *arguments],
        cwd=place.root,
        env={**place.environment, "TERM": "xterm", "COLUMNS": "160", **environment},
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
    return code, seen.decode(errors="replace")


@pytest.mark.slow
def test_live_line_shows_tool_check_time_and_cost(project: Project, tmp_path: Path) -> None:  # noqa: F811
    scenario = tmp_path / "scenario.yml"
    scenario.write_text(
        "turns:\n  - steps:\n      - say: I try it\n      - usage: {input_tokens: 5, output_tokens: 1, cost: 0.25}\n"
        "      - sleep: 1.5\n      - write: {path: done.txt, content: x}\n"
    )
    check = "`sleep 1.5; test -f done.txt` passes"
    arguments = ["loop", "the task", "--until", check, "--scenario", str(scenario), "--yes", "--max-cost", "3"]
    code, seen = on_a_terminal(project, arguments)
    assert code == 0, seen
    assert "iteration 1/10" in seen
    assert "implementer at work" in seen
    assert "I try it" in seen
    assert "checking `sleep 1.5; test -f done.txt` passes" in seen
    assert "$0.25 of $3" in seen
    assert "limit $3" in seen and "$0.00" not in seen, "nothing is known before the first report"
    assert "COMPLETE" in seen


@pytest.mark.slow
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


def arguments_of_a_quick_loop(place: Project) -> list[str]:
    return ["loop", "t", "--until", "`test -f done.txt` passes", "--scenario", place.scenario(SUCCEEDS), "--yes"]


def test_verdicts_are_colored_on_a_terminal(project: Project) -> None:  # noqa: F811
    _, seen = on_a_color_terminal(project, arguments_of_a_quick_loop(project))
    assert "\x1b[32m  PASS" in seen
    assert "\x1b[31m  FAIL" in seen


@pytest.mark.slow
def test_no_color_is_honored(project: Project) -> None:  # noqa: F811
    _, seen = on_a_color_terminal(project, arguments_of_a_quick_loop(project), NO_COLOR="1")
    assert "\x1b[32m" not in seen
    assert "\x1b[31m" not in seen
    assert "  PASS" in seen


def test_status_line_leaves_nothing_behind_in_a_smaller_window(project: Project) -> None:  # noqa: F811
    """A terminal that wraps the line keeps the cursor at its beginning, so all its rows are erased."""
    _, seen = on_a_color_terminal(project, arguments_of_a_quick_loop(project))
    drawn = re.findall(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] [^\r\n]+(.{0,4})", seen, re.DOTALL)
    assert drawn
    assert set(drawn) <= {"\r\r\x1b[", "\r\x1b[?"}, (
        "back to the beginning, and then erased, or the cursor is shown again"
    )
    assert seen.count("\r\x1b[J") >= len(drawn)


@pytest.mark.slow
def test_long_lines_wrap_at_words(project: Project) -> None:  # noqa: F811
    words = " ".join(f"word{number}" for number in range(40))
    text = f"turns:\n  - steps:\n      - say: {words}\n      - write: {{path: done.txt, content: x}}\n"
    arguments = ["loop", "t", "--until", "`test -f done.txt` passes", "--scenario", project.scenario(text), "--yes"]
    _, seen = on_a_terminal(project, arguments, COLUMNS="80")
    assert all(f"word{number}" in seen for number in range(40)), "no word is cut"


def test_status_fits_a_narrow_terminal(project: Project) -> None:  # noqa: F811
    assert (
        project.play(SUCCEEDS, until="`test -f done.txt` passes AND `test -n 'a rather long condition'` passes").code
        == 0
    )
    code, seen = on_a_terminal(project, ["status"], COLUMNS="80")
    assert code == 0, seen
    lines = seen.replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80, seen
    assert "                    the task" in lines
