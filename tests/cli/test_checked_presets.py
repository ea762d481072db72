"""`ralph hats check` and `graph` through the command line, and what `ralph run` makes of it."""

import re
from pathlib import Path

import pytest
from test_hats import words
from test_loop import Project, project  # noqa: F401 - the fixture

from ralph.workflows import hats

ROOT = Path(__file__).parents[2]
BROKEN = ROOT / "tests" / "workflows" / "presets" / "broken"
LOST = """\
event_loop:
  starting_event: work.start
hats:
  builder:
    import: shared/builder.yml
    triggers: [work.start]
  critic:
    description: Reviews.
    triggers: [review.ready]
    publishes: [LOOP_COMPLETE]
"""
BUILDER = "description: Builds.\npublishes:\n  - review.redy\n"


@pytest.fixture
def lost(project: Project) -> Project:  # noqa: F811
    """A project whose builder, which is in another file, speaks of a topic that the critic does not know."""
    (project.root / "ralph.yml").write_text(LOST)
    (project.root / "shared").mkdir()
    (project.root / "shared" / "builder.yml").write_text(BUILDER)
    return project


def test_a_preset_by_its_name(project: Project) -> None:  # noqa: F811
    done = project.ralph("hats", "check", "code-assist", "--strict")
    assert done.code == 0, done.said
    assert "4 hats, no problems; the shortest path to the end takes 4 turns: planner -> builder" in done.out


def test_the_preset_of_the_project_with_files_and_lines(lost: Project) -> None:
    done = lost.ralph("hats", "check")
    assert done.code == 2
    places = re.findall(r"^(\S+): (\w+): .*\[([\w-]+)\]$", done.out, re.MULTILINE)
    assert places == [
        ("ralph.yml:10", "error", "no-path"),
        ("ralph.yml:7", "warning", "unreachable-hat"),
        ("shared/builder.yml:3", "warning", "unhandled-topic"),
    ]
    assert "did you mean `review.ready`?" in done.out
    told = lost.ralph("hats", "check", "--json").json
    assert (told["schema"], told["command"], told["hats"]) == (1, "hats check", ["builder", "critic"])
    assert [(one["code"], one["line"]) for one in told["findings"]] == [
        ("no-path", 10),
        ("unreachable-hat", 7),
        ("unhandled-topic", 3),
    ]


def test_warnings_alone_are_not_a_failure_unless_strict(project: Project) -> None:  # noqa: F811
    path = str(BROKEN / "starves.yml")
    assert project.ralph("hats", "check", path).code == 0
    assert project.ralph("hats", "check", path, "--strict").code == 2


def test_warning_about_a_limit_names_the_option_that_set_it(project: Project) -> None:  # noqa: F811
    done = project.ralph("hats", "check", "code-assist", "-c", "event_loop.max_iterations=2")
    assert done.code == 2
    assert "-c event_loop.max_iterations=2: error: 2 turns: the shortest path takes 4 turns" in done.out


def test_without_hats_there_is_nothing_to_check_or_draw(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text("event_loop:\n  max_iterations: 3\n")
    done = project.ralph("hats", "check")
    assert (done.code, "no hats" in done.out) == (0, True)
    assert "no hats to draw" in project.ralph("hats", "graph").err


def test_keys_that_are_none_and_hats_of_other_files_are_noted(project: Project) -> None:  # noqa: F811
    project.ralph("init", "--preset", "code-assist")
    (project.root / "mine.yml").write_text("event_loop:\n  max_iteratons: 30\n")
    done = project.ralph("hats", "check", "mine.yml")
    assert "note: mine.yml, line 2: `event_loop.max_iteratons` is not a setting; did you mean" in done.out
    assert "note: mine.yml has no hats" in done.out
    assert len(project.ralph("hats", "check", "mine.yml", "--json").json["notes"]) == 2


def test_a_run_is_refused_before_anything_is_spent(lost: Project) -> None:
    done = lost.ralph("run", "-p", "Build it", *words(lost, mute=["builder", "critic"]))
    assert done.code == 2
    assert "ralph.yml:10: error: no path leads to the end" in done.err and "--unchecked" in done.err
    assert not list((lost.root / ".ralph").glob("runs/*"))
    done = lost.ralph("run", "-p", "Build it", "--unchecked", *words(lost, mute=["builder", "critic", "ralph"]))
    assert done.code == 4, done.said


def test_run_prints_the_warnings_of_the_check(project: Project) -> None:  # noqa: F811
    done = project.ralph("run", "-H", str(BROKEN / "starves.yml"), "-p", "x", "--dry-run", *words(project))
    assert done.code == 0, done.said
    assert "starves.yml:9: warning: once builder has had its turns" in done.said


def test_the_picture_in_all_its_forms(lost: Project) -> None:
    assert lost.ralph("hats", "graph").out.startswith("flowchart TD\n")
    shown = lost.ralph("hats", "graph", "--format", "text").out
    assert "│ ✗ no-path" in shown and "[unhandled-topic]" in shown
    assert lost.ralph("hats", "graph", "-o", "flow.txt").out == "Wrote flow.txt\n"
    assert "│ ✗ no-path" in (lost.root / "flow.txt").read_text()
    refused = lost.ralph("hats", "graph", "-o", ".")
    assert (refused.code, "name a file in a directory that exists" in refused.err) == (2, True), refused.said
    assert "is not a known format" in lost.ralph("hats", "graph", "-o", "flow.svg").err
    assert not (lost.root / "flow.svg").exists()
    assert lost.ralph("hats", "graph", "-o", "-").out == lost.ralph("hats", "graph").out
    lost.ralph("hats", "graph", "-o", "flow.mmd", "code-assist")
    assert '|"tasks.ready"|' in (lost.root / "flow.mmd").read_text()


def test_every_finding_is_explained_and_has_a_preset_that_shows_it() -> None:
    source = "".join(path.read_text() for path in Path(hats.__file__).parent.glob("preset_*.py"))
    found = set(re.findall(r'\bmake_(error|warning)\(\s*"([a-z-]+)"', source))
    page = (ROOT / "docs" / "hats-check.md").read_text()
    told = re.findall(r"^\| `([\w-]+)` \| (\w+) \|", page, re.MULTILINE)
    assert sorted(told) == sorted((code, kind) for kind, code in found)
    marks = re.findall(r"# <- (.*)", "\n".join(path.read_text() for path in BROKEN.glob("*.yml")))
    assert {code for mark in marks for code in mark.split(", ")} == {code for _, code in found}


def test_all_structural_errors_come_at_once_with_their_lines(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text(
        "event_loop: {starting_hat: nobody}\n"
        "hooks: {enabled: true}\n"
        "hats:\n"
        "  one:\n"
        "    triggers: [task.start]\n"
        "  two:\n"
        "    concurrency: 2\n"
        "    aggregate: {}\n"
        "    trigger: [go.on]\n"
    )
    refused = project.ralph("hats", "check")
    assert refused.code == 2
    assert "ralph.yml, line 9: `hats.two.trigger` is not a setting; did you mean `triggers`?" in refused.err
    for line in ("ralph.yml:1: `event_loop.starting_hat`", "ralph.yml:2: `hooks.enabled`"):
        assert line in refused.err, refused.said
    assert "ralph.yml:5: `hats.one.triggers.task.start`" in refused.err
    assert "ralph.yml:8: `hats.two.aggregate`" in refused.err


def test_one_hat_is_counted_in_the_singular(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text(
        "event_loop: {starting_event: go.on}\nhats: {one: {triggers: [go.on], publishes: [LOOP_COMPLETE], instructions: Go.}}\n"
    )
    assert (
        "ralph.yml: 1 hat, no problems; the shortest path to the end takes 1 turn: one"
        in project.ralph("hats", "check").out
    )
