"""`ralph comment`: comments on lines reach the agents, and the view shows who received them and which turn changed the lines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_loop import Project, eventually, make_project
from test_session import begin as begin_session

CHANGES = """
turns:
  - when: {turn: 1}
    steps:
      - write: {path: value.txt, content: "one\\nTWO\\nthree\\nfour\\nfive\\n"}
      - answer: {status: partial, summary: Changed a line.}
  - when: {turn: 2}
    steps:
      - run: touch started; while [ ! -e go ]; do sleep 0.05; done
      - write: {path: other.txt, content: "x\\n"}
      - answer: {status: partial, summary: Something else.}
  - when: {turn: 3}
    steps:
      - write: {path: value.txt, content: "zero\\none\\nTwo\\nthree\\nfour\\nfive\\n"}
      - answer: {status: partial, summary: Title case.}
  - steps:
      - write: {path: done.txt, content: x}
      - answer: {status: done, summary: Done.}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield from make_project(tmp_path)


def begin(project: Project) -> str:
    """A loop in its second turn, which waits for the file `go`."""
    (project.root / "value.txt").write_text("one\ntwo\nthree\n")
    project.git("add", "value.txt")
    project.git("commit", "-q", "-m", "a value")
    scenario = project.scenario(CHANGES)
    until = ("--until", "`test -f done.txt`")
    started = project.ralph("loop", "Make it", *until, "--scenario", scenario, "--yes", "--detach", "--json")
    assert started.code == 0, started.err
    eventually(lambda: (project.root / "started").exists())
    run: str = started.json["run"]
    return run


def comments(project: Project, run: str) -> dict[str, dict[str, Any]]:
    view = project.ralph("status", run, "--json").json["view"]
    return {f"{one['path']}:{one['line']}": one for one in view["comments"]}


def test_comments_show_who_received_them_and_which_turn_changed_the_lines(project: Project) -> None:
    run = begin(project)
    one = project.ralph("comment", run, "value.txt:2", "Why upper case?")
    assert (one.code, "Sent 1 comment" in one.out, "as one STEER" in one.out) == (0, True, True)
    (project.root / "mine.txt").write_text("value.txt:4-5: Say why.\n  It matters.\nvalue.txt:1: Fine.\n")
    several = project.ralph("comment", run, "--from", "mine.txt", "--json").json
    assert (several["comments"], several["alive"]) == (2, True)
    removed = project.ralph("comment", run, "--removed", "value.txt:2", "Keep this.")
    assert removed.code == 0, removed.err
    assert "no turn has received it yet" in project.ralph("signals", run).out
    (project.root / "go").touch()
    eventually(lambda: project.ralph("status", run, "--json").json["runs"][0]["state"] == "success")

    shown = comments(project, run)
    assert (shown["value.txt:4"]["last_line"], shown["value.txt:4"]["text"]) == (5, "Say why.\nIt matters.")
    assert {one["receipts"][0]["turn"] for one in shown.values()} == {2}
    view = project.ralph("status", run, "--json").json["view"]
    changed = [(one["side"], one["line"], one["changed_by"], one["file_changed_by"]) for one in view["comments"]]
    # Turn 3 added a line above, so all numbers moved. Of these lines, it changed only the second.
    assert changed == [("new", 2, 3, 3), ("new", 4, 0, 3), ("new", 1, 0, 3), ("old", 2, 0, 3)]
    [prompt] = project.root.glob(f".ralph/runs/{run}/turns/00003-*/prompt.md")
    text = prompt.read_text()
    for words in (
        "`value.txt`, line 2",
        ">>+TWO",
        ">  three",
        "Why upper case?",
        "lines 4 to 5",
        "removed line 2",
        ">>-two",
    ):
        assert words in text
    screen = project.ralph("signals", "--run", run).out
    assert "value.txt:2  Why upper case?  (implementer received it in turn 2; turn 3 changed these lines)" in screen
    assert "turn 3 changed the file, but not these lines" in screen
    late = project.ralph("comment", run, "value.txt:2", "Too late.")
    assert (late.code, f"run {run} is over: success" in late.err) == (2, True)


def test_wrong_comments_are_refused_with_what_to_do(project: Project) -> None:
    run = begin(project)
    try:
        for arguments, what, todo in (
            ((run, "value.txt:9", "x"), "value.txt has 5 lines, so there is no line 9", "ralph diff"),
            ((run, "value.txt:0", "x"), "value.txt has no lines 0 to 0", "path:line"),
            ((run, "value.txt:3-2", "x"), "value.txt has no lines 3 to 2", "path:line"),
            ((run, "--removed", "value.txt:4", "x"), "value.txt has 3 lines", "ralph diff"),
            ((run, "nothing.txt:1", "x"), "there is no file 'nothing.txt'", "the run changed value.txt"),
            ((run, "../outside.txt:1", "x"), "there is no file '../outside.txt'", "the run changed value.txt"),
            ((run, "value.txt", "x"), "'value.txt' is not a place in a file", "path:line"),
            ((run, "value.txt:2", "  "), "the comment is empty", "in quotes"),
            ((run, "value.txt:2"), "the comment has no text", "in quotes"),
            ((run, "value.txt:2", "two", "words"), "more than one argument", "in quotes"),
            ((), "there is no comment", "--from FILE"),
            (("--from", "/dev/null"), "there is no comment in the file", "path:line: text"),
            ((run, "value.txt:2", "x", "--from", "/dev/null"), "and --from", "into the file"),
            ((run, "value.txt:2", "x", "--to", "nobody"), "no role 'nobody'", "implementer"),
        ):
            refused = project.ralph("comment", *arguments)
            assert (refused.code, refused.out) == (2, ""), arguments
            assert what in refused.err and todo in refused.err, refused.err
        inside = project.ralph("comment", run, "value.txt:2", "x", RALPH_TURN="1")
        assert (inside.code, "an agent cannot comment" in inside.err) == (2, True)
        assert comments(project, run) == {}
    finally:
        (project.root / "go").touch()


@pytest.mark.slow
def test_comments_on_a_stopped_session_are_one_round_of_feedback(project: Project) -> None:
    stopped = begin_session(project, "--land", "branch", never=["task-3"])
    assert stopped.code == 7, stopped.said
    run = project.run.name
    changed = project.ralph("diff", run, "--json").json["diff"]
    path = next(line.removeprefix("+++ b/") for line in changed.splitlines() if line.startswith("+++ b/"))
    sent = project.ralph("comment", run, f"{path}:1", "Begin with a title.", "--json").json
    assert (sent["comments"], sent["name"]) == (1, "")
    assert "Begin with a title." in (project.root / sent["feedback"]).read_text()
    [waiting] = comments(project, run).values()
    assert (waiting["feedback"], waiting["receipts"]) == (sent["feedback"], [])
    assert "waits for `ralph session resume`" in project.ralph("signals", "--run", run).out
    (project.home / "script.json").write_text("{}")
    resumed = project.ralph("session", "resume", run)
    assert resumed.code == 0, resumed.said
    [received] = comments(project, run).values()
    [receipt] = received["receipts"]
    assert receipt["means"] == "feedback"
    [prompt] = project.root.glob(f".ralph/runs/{run}/turns/{receipt['turn']:05d}-*/prompt.md")
    assert "feedbacks/" in prompt.read_text()
    assert receipt["role"] == "questioner"
