"""Text of agents, checks, files and tasks cannot command the terminal of the user, whichever command shows it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_live_view import on_a_color_terminal
from test_loop import Project, make_project

TITLE = "\x1b]0;OWNED\x07"
CLEAR = "\x1b[2J\x1b[H"
C1 = "\x9b31m\x9d0;OWNED\x9c"
BACKWARDS = "\u202eexe.txt\u202c"
HOSTILE = f"see {TITLE}{CLEAR}{C1}{BACKWARDS}\b\b it"
NAME = f"evil{TITLE}{BACKWARDS}.txt"
CHECK = r"`printf 'app.py:3: error: \033]0;OWNED\007\033[2J bad\n'; test -f done.txt` passes"
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
RICH = re.compile(r"\x1b\[(?:[0-9;]*m|2K|1A|J|\?25[lh])|\r")
"""What our own live view and the terminal send."""
SCENARIO = f"""
turns:
  - steps:
      - say: {json.dumps(HOSTILE)}
      - run: {json.dumps(f"printf '%s' {HOSTILE!r}; exit 3")}
      - write: {{path: {json.dumps(NAME)}, content: {json.dumps(f"{HOSTILE}{chr(10)}")}}}
      - usage: {{input_tokens: 5, output_tokens: 1, cost: 0.25}}
      - answer: {{summary: {json.dumps(HOSTILE)}, learned: {json.dumps(HOSTILE)}, next: {json.dumps(HOSTILE)}}}
"""
COMMANDS = (
    "status",
    "status --all",
    "status RUN",
    "logs",
    "logs --tools",
    "logs --output",
    "logs --events",
    "report",
    "report --list",
    "diff",
    "diff --stat",
    "diff RUN 1",
    "prompt --text",
    "prompt",
    "cost",
    "signals",
    "reflect",
    "reflect patterns",
    "worktrees",
    "trust --show",
    "doctor",
    "resume --max-iterations 2",
    "resume NOT\x1b]0;OWNED\x07A-RUN",
    "undo",
    "restore 1",
    "abort --revert --yes",
    "clean",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    place: Path = tmp_path_factory.mktemp("hostile")
    for project in make_project(place):
        begun = project.ralph(*project.playing(SCENARIO, "--max-iterations", "1", until=CHECK, task=HOSTILE))
        assert begun.code == 3, begun.said
        assert not FORBIDDEN.search(begun.said)
        assert project.ralph("steer", HOSTILE).code == 0
        yield project


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: re.sub(r"\W+", "-", one))
def test_no_command_prints_control_characters(hostile: Project, command: str) -> None:
    words = [hostile.run.name if word == "RUN" else word for word in command.split(" ")]
    for arguments in (words, [*words, "--json"]):
        found = FORBIDDEN.search(hostile.ralph(*arguments).said)
        assert not found, (arguments, found)
    if words[0] in ("undo", "restore", "abort", "resume"):
        return
    _, seen = on_a_color_terminal(hostile, words, COLUMNS="80")
    assert not FORBIDDEN.search(RICH.sub("", seen)), seen


def test_live_view_prints_only_its_own_control_sequences(tmp_path: Path) -> None:
    for project in make_project(tmp_path):
        arguments = project.playing(SCENARIO, "--max-iterations", "1", until=CHECK, task=HOSTILE)
        _, seen = on_a_color_terminal(project, list(arguments), COLUMNS="100")
        assert "LIMIT REACHED" in seen
        assert not FORBIDDEN.search(RICH.sub("", seen)), RICH.sub("", seen)


def test_json_has_the_text_unchanged(tmp_path: Path) -> None:
    for project in make_project(tmp_path):
        project.play(SCENARIO, "--max-iterations", "1", until=CHECK)
        assert f"+{HOSTILE}\n" in json.loads(project.ralph("diff", "--json").out)["diff"]
        assert (project.root / NAME).read_text() == f"{HOSTILE}\n"
        assert "control characters are left out" in project.ralph("diff").err
