"""Classic sessions through the real command line, with an agent that plays every role; and the sessions of others."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from test_loop import Done, Project, eventually, project  # noqa: F401 - the fixture

AGENT = shlex.join([sys.executable, "-I", str(Path(__file__).with_name("classic_agent.py"))])


def script(project: Project, **what: Any) -> None:  # noqa: F811
    path = project.home / "script.json"
    path.write_text(json.dumps(what))
    project.extra["SCRIPT"] = str(path)


def begin(project: Project, *args: str, **what: Any) -> Done:  # noqa: F811
    script(project, **what)
    return project.ralph("session", "new", "--classic", "Build", "--agent-command", AGENT, "--yes", *args)


def home(project: Project) -> Path:  # noqa: F811
    [only] = [path for path in (project.root / ".ralph-sessions").iterdir() if path.is_dir()]
    return only


def shown(project: Project, *words: str) -> dict[str, Any]:  # noqa: F811
    return project.ralph("session", "show", *words, "--json").json


@pytest.mark.slow
def test_a_classic_session_with_a_rework_an_inheritance_and_a_gap(project: Project) -> None:  # noqa: F811
    done = begin(project, "--check", "`test -s c.txt` passes", once=["reject-task-1", "lazy-task-2", "gap"])
    assert done.code == 0, done.said
    files = {path.name: path.read_text() for path in home(project).iterdir() if path.is_file()}
    assert set(files) == {
        *("plan.md", "plan.questions.md", "tasks.md", "progress.md", "progress.review1.md", "progress.review2.md"),
        *("tasks.task-1-report.md", "tasks.task-1-report-r2.md", "tasks.task-2-report.md"),
        *("tasks.task-2-report-r2.md", "tasks.task-3-report.md"),
    }
    assert "**Status**: Failed" in files["tasks.task-1-report.md"]
    assert "no reviewer was started" in files["tasks.task-2-report.md"]
    assert 'assessment: "Gaps Identified"' in files["progress.review1.md"]
    assert "    gap: ISS-M-001: nothing sums up the files\n" in done.out, "the gaps of the review are on the screen"
    assert (project.root / "b.txt").read_text() == "w12 task-2\n", "the word is from the report that was qualified"
    assert (project.root / "c.txt").read_text() == "w22 task-3\n"
    told = shown(project)
    assert {key: told[key] for key in ("status", "current_state", "summary")} == {
        "status": "completed",
        "current_state": "COMPLETE",
        "summary": "3 of 3 tasks are done, 2 reviews of the whole session",
    }
    assert told["last_action"] == "the whole session was reviewed: progress.review2.md"
    assert told["session_id"] == home(project).name and "session update" in told["next_action"]
    keys = [entry["key"] for entry in project.journal("turn.started")]
    assert keys == [
        *("plan:plan-init", "plan:plan-brainstorm.1", "plan:plan-research.1", "plan:plan-breakdown"),
        *("execute:task-1-1", "review:task-1-1", "execute:task-1-2", "review:task-1-2"),
        *("execute:task-2-1", "execute:task-2-2", "review:task-2-2", "review:session-1"),
        *("execute:task-3-1", "review:task-3-1", "review:session-2"),
    ]
    assert project.ralph("session", "list").out.split()[1:3] == ["completed", "COMPLETE"]
    assert "[x] task-3  Make c.txt · inherits from task-2" in project.ralph("session", "show").out


@pytest.mark.slow
def test_update_adds_tasks_and_retries_failed_ones(project: Project) -> None:  # noqa: F811
    done = begin(project, never=["task-1"])
    assert (done.code, "failed: task-1; blocked: task-2 (by task-1)" in done.out) == (7, True), done.said
    told = shown(project)
    assert (told["status"], told["current_state"]) == ("blocked", "EXECUTING")
    assert "- [F] task-1 (Failed, Attempt 3 failed: " in (home(project) / "progress.md").read_text()
    script(project)
    assert f"ralph session feedback {told['session_id']}" in project.ralph("status").out
    given = project.ralph("session", "update", told["session_id"], "and a fourth file")
    assert (given.code, "plan.update1.md" in given.out) == (0, True), given.said
    for words in ((), (told["session_id"],)):
        status = project.ralph("status", *words).out
        assert f"ralph session resume {told['session_id']}" in status and "session feedback" not in status, status
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    assert (home(project) / "tasks.task-1-report-r4.md").exists()
    assert "and a fourth file" in (home(project) / "plan.md").read_text()
    assert "Two files" in (home(project) / "plan.iteration-1.md").read_text()
    assert (project.root / "d.txt").read_text() == "w14 w21 task-4\n", "a range names all in it"
    assert shown(project)["tasks_summary"] == {"total": 3, "completed": 3, "failed": 0, "pending": 0, "cancelled": 0}
    stored = (home(project) / "plan.update1.md").read_text()
    assert re.match(
        r"---\nupdate: 1\ntimestamp: .*\n---\n\n# Update 1\n\n- and a fourth file\n\n## Artifacts Index\n", stored
    )
    log = project.home / "app.log"
    log.write_text("boom\n")
    assert project.ralph("session", "feedback", "It crashes.", "--attach", str(log)).code == 0
    stored = (home(project) / "plan.update2.md").read_text()
    assert "# Update 2\n\nIt crashes.\n\n## Artifacts Index\n" in stored and "| app.log |" in stored
    assert (home(project) / "plan.update2" / "app.log").read_text() == "boom\n"


def test_an_agent_that_writes_the_markers_itself_wins_nothing(project: Project) -> None:  # noqa: F811
    done = begin(project, once=["scribble-task-1"])
    assert done.code == 0, done.said
    assert "progress.md was changed while the session is running; Ralph reverted the change" in done.out
    assert (project.root / "b.txt").exists(), "task-2 was done all the same"
    kept = [path.read_text() for path in (project.root / ".ralph" / "runs").glob("*/edited/*")]
    assert "- [x] task-1 (Completed)\n- [x] task-2 (Completed)\n" in kept and len(kept) == 2
    assert "covers: " in (home(project) / "progress.review1.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("lost", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_interrupted_session_continues_from_its_files(project: Project, lost: bool) -> None:  # noqa: F811
    script(project, slow=2)
    engine = project.start("session", "new", "--classic", "Build", "--agent-command", AGENT, "--yes")
    eventually(lambda: any(e["role"] == "executor" for e in project.journal("turn.started")))
    if lost:
        engine.terminate()
    else:
        engine.kill()
    engine.communicate()
    script(project)
    if lost:
        shutil.rmtree(project.root / ".ralph")
        assert shown(project)["current_state"] == "EXECUTING"
        assert "continues it from its files" in project.ralph("session", "show").out
        done = project.real("session", "resume", home(project).name, "--agent-command", AGENT, "--yes")
    else:
        done = project.real("session", "resume")
    assert done.code == 0, done.said
    keys = [entry["key"] for entry in project.journal("turn.started")]
    assert len(keys) == len(set(keys)), "no turn was started twice"
    assert keys[0] == ("execute:task-1-1" if lost else "plan:plan-init")
    assert shown(project)["status"] == "completed"


@pytest.mark.slow
def test_a_steer_reaches_every_later_turn_and_is_noted(project: Project) -> None:  # noqa: F811
    script(project, slow=1)
    engine = project.start("session", "new", "--classic", "Build", "--agent-command", AGENT, "--yes")
    eventually(lambda: any(e["role"] == "executor" for e in project.journal("turn.started")))
    project.ralph("steer", "Use httpx")
    assert engine.wait(timeout=120) == 0
    [taken] = project.journal("signal.accepted")
    later = [entry["turn"] for entry in project.journal("turn.started") if entry["at"] > taken["at"]]
    prompts = [(project.turn(number) / "prompt.md").read_text() for number in later]
    assert len(prompts) > 1 and all(": Use httpx\n" in prompt for prompt in prompts)
    notes = (home(project) / "notes.md").read_text()
    assert re.search(r"^## STEER, \d{4}-\d\d-\d\dT\S+\n\nUse httpx\n\Z", notes, re.MULTILINE)


def test_classic_session_in_a_worktree_lands_its_work(project: Project) -> None:  # noqa: F811
    done = begin(project, "--worktree", "--check", "`test -s b.txt` passes")
    assert done.code == 0, done.said
    assert (project.root / "b.txt").exists() and project.git("status", "--porcelain") == ""


def test_the_example_goes_as_the_page_about_it_says(project: Project) -> None:  # noqa: F811
    example = Path(__file__).parents[2] / "examples" / "classic" / "scenario.yml"
    request, check = "A script that tells how long a file is", "`sh count.sh sample.txt` passes"
    options = ("--check", check, "--scenario", str(example), "--yes")
    done = project.ralph("session", "new", "--classic", request, *options)
    assert done.code == 0, done.said
    page = (Path(__file__).parents[2] / "docs" / "classic.md").read_text()
    shown_there = page.split("$ ralph session show\n")[1].split("```")[0].splitlines()[1:]
    assert project.ralph("session", "show").out.splitlines()[1 : len(shown_there) + 1] == shown_there
    lines = page.split("in `tasks.md`:\n\n```\n")[1].split("    ...\n")[0]
    assert lines in (home(project) / "tasks.md").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--classic", "--parallel", "2"), "one task at a time"),
        (("--classic", "--land", "ff"), "--worktree"),
        (("--worktree",), "its own worktree"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(project: Project, options: tuple[str, ...], told: str) -> None:  # noqa: F811
    done = project.ralph("session", "new", "Build", "--agent-command", AGENT, "--yes", *options)
    assert (done.code, told in done.err) == (2, True), done.said
    assert not (project.root / ".ralph-sessions").exists()


@pytest.mark.slow
def test_a_task_whose_definition_is_missing_fails_and_is_not_reviewed(project: Project) -> None:  # noqa: F811
    assert begin(project, once=["block-task-2"]).code == 9
    place = home(project) / "tasks.md"
    text = place.read_text()
    assert "[P] task-2" in (home(project) / "progress.md").read_text()
    place.write_text(text.partition("- task-2")[0])
    done = project.ralph("session", "resume")
    assert (done.code, "failed: task-2" in done.out) == (7, True), done.said
    assert "task-2 has no definition: restore it in " in done.out
    assert "- [F] task-2 (Failed, Task definition missing)" in (home(project) / "progress.md").read_text()
    assert shown(project)["tasks_summary"] == {"total": 2, "completed": 1, "failed": 1, "pending": 0, "cancelled": 0}
    place.write_text(text)
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    assert shown(project)["tasks_summary"]["completed"] == 2


@pytest.mark.parametrize("needs", ["None", "task-1"])
@pytest.mark.slow
def test_removed_paused_task_fails_and_blocks_only_its_dependents(project: Project, needs: str) -> None:  # noqa: F811
    script(project, slow=2.0)
    engine = project.start("session", "new", "--classic", "Build", "--agent-command", AGENT, "--yes")
    eventually(lambda: any(entry["role"] == "executor" for entry in project.journal("turn.started")))
    project.ralph("signal", "pause")
    engine.communicate()
    script(project)
    place = home(project) / "tasks.md"
    text = place.read_text()
    second = text[text.index("- task-2") :].replace("**Inherits From**: task-1", f"**Inherits From**: {needs}")
    place.write_text(text.partition("- task-1")[0] + second)
    done = project.ralph("session", "resume")
    assert (done.code, "failed: task-1" in done.out) == (7, True), done.said
    progress = (home(project) / "progress.md").read_text()
    assert "- [F] task-1 (Failed, Task definition missing)" in progress
    assert ("- [x] task-2 (Completed" in progress) == (needs == "None")


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("gate_of", ["until_review", "until_session_review"])
@pytest.mark.slow
def test_review_during_which_the_engine_is_killed_is_paid_once(
    project: Project,  # noqa: F811
    gate_of: str,
    has_begun: bool,
) -> None:
    gate = project.home / "gate"
    script(project, **{gate_of: str(gate)})
    check = ("--check", "`test -s b.txt` passes")
    engine = project.start("session", "new", "--classic", "Build", "--agent-command", AGENT, "--yes", *check)
    reviewed = "review:task-1-1" if gate_of == "until_review" else "review:session-1"
    eventually(lambda: any(entry["key"] == reviewed for entry in project.journal("turn.started")))
    [number] = [entry["turn"] for entry in project.journal("turn.started") if entry["key"] == reviewed]
    eventually(lambda: list((project.run / "turns").glob(f"{number:05d}-*/stdout")))
    engine.kill()
    engine.communicate()
    if not has_begun:
        # As if the engine had died between the line in the journal and the start of the agent.
        turn = project.turn(number)
        gate.touch()
        eventually(lambda: (turn / "exit").exists())
        shutil.rmtree(turn)
    engine = project.start("session", "resume")
    eventually(lambda: len(project.journal("run.started")) == 2)
    gate.touch()
    said, _ = engine.communicate(timeout=300)
    assert (engine.returncode, "blocked" in said) == (0, False), said
    place = project.root / ".ralph" / "runs"
    prompts = [path.read_text() for path in place.glob("*/turns/*/prompt.md")]
    assert all("MODE: " in text or "TASK_ID: " in text for text in prompts), "no agent starts without its prompt"
    assert shown(project)["tasks_summary"]["completed"] == 2
    keys = [entry["key"] for entry in project.journal("turn.started")]
    assert len(keys) == len(set(keys)), "Ralph pays for no turn twice"
    checks = [entry["key"] for entry in project.journal("checks.started")]
    again = "check:task-1-1" if gate_of == "until_review" else "session-1"
    assert checks.count(again) == 2, "the tree may have changed, so the checks ran again"


@pytest.mark.slow
def test_task_that_a_planner_changes_with_an_update_is_named(project: Project) -> None:  # noqa: F811
    assert begin(project, once=["block-task-1"]).code == 9
    assert project.ralph("session", "update", "d.txt please").code == 0
    script(project, also="task-2")
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    assert "task-2 Make b.txt (changed by the planner)" in done.out, done.out
