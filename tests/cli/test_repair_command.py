"""`ralph session repair`, and what a resumed session says about changes that the user made by hand, in both layouts."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import test_classic as classic
import test_session as standard
from test_loop import Project, project  # noqa: F401 - the fixture

pytestmark = pytest.mark.slow
"""Each plays a whole session with many turns."""

KEPT = "\n## Notes\nKeep this sentence.\n"


def stopped(project: Project, layout: str) -> Path:  # noqa: F811
    """The directory of a session that stopped before its first review."""
    if layout == "classic":
        assert classic.begin(project, once=["block-task-1"]).code == 9
        return classic.home(project)
    quick = standard.QUICK.format("")
    done = standard.begin(project, "--land", "branch", blocked=["TASK_REVIEW"], instructions=quick)
    assert done.code == 9, done.said
    return standard.home(project)


def resume(project: Project, layout: str, **script: Any) -> Any:  # noqa: F811
    (classic.script if layout == "classic" else standard.write_script)(project, **script)
    return project.ralph("session", "resume")


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_repair_removes_stray_lines_and_names_each(project: Project, layout: str) -> None:  # noqa: F811
    session = stopped(project, layout)
    place = session / "progress.md"
    before = place.read_text()
    [line] = [line for line in before.splitlines(keepends=True) if "] task-2" in line]
    damaged = (
        f"{line}<<<<<<< HEAD\nsome words\n- [ ] remember the milk\n{line}    about task-2\n=======\n>>>>>>> other\n"
    )
    place.write_text(before.replace(line, damaged) + KEPT)

    damaged = place.read_text()
    done = project.ralph("session", "repair", session.name, "--json").json["done"]
    assert place.read_text() == before.replace(line, f"{line}    about task-2\n") + KEPT
    first = damaged.splitlines().index(line.rstrip()) + 1
    assert f'progress.md: removed line {first}, because a later line is about task-2 too: "{line.strip()}"' in done
    assert f'progress.md: removed line {first + 1}, which is the mark of a merge conflict: "<<<<<<< HEAD"' in done
    assert f'progress.md: removed line {first + 2}, which is about no step and no task: "some words"' in done
    assert any("remember the milk" in one for one in done) and len(done) == 6
    [copy] = session.glob("progress.md.*.bak")
    assert copy.read_text() == damaged
    assert project.ralph("session", "repair", session.name).out == "Nothing was wrong.\n"
    assert resume(project, layout).code == 0
    assert KEPT in place.read_text()


def test_repair_keeps_the_values_of_metadata_with_a_stray_line(project: Project) -> None:  # noqa: F811
    session = stopped(project, "standard")
    texts = {}
    for name in ("metadata.yaml", "iterations/1/metadata.yaml"):
        place = session / name
        texts[name] = place.read_text()
        place.write_text(texts[name].replace("iteration: 1\n", "iteration: 1\n>>>>>>> ours\nwhat is this\n"))
    said = project.ralph("session", "repair", session.name).out
    for name, text in texts.items():
        assert (session / name).read_text() == text
        number = text.splitlines().index("iteration: 1") + 2
        assert f'{name}: removed line {number}, which is not YAML: ">>>>>>> ours"' in said
        assert f'{name}: removed line {number + 1}, which is not YAML: "what is this"' in said


def test_repair_removes_merge_marks_from_the_tasks_of_a_classic_session(project: Project) -> None:  # noqa: F811
    session = stopped(project, "classic")
    place = session / "tasks.md"
    before = place.read_text()
    place.write_text(before.replace("- task-2", "<<<<<<< HEAD\n- task-2"))
    assert "tasks.md: removed line " in project.ralph("session", "repair", session.name).out
    assert place.read_text() == before


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_task_that_the_user_cancels_by_hand_is_confirmed_in_words(project: Project, layout: str) -> None:  # noqa: F811
    session = stopped(project, layout)
    place, last = session / "progress.md", "task-2" if layout == "classic" else "task-4"
    place.write_text(place.read_text().replace(f"- [ ] {last}", f"- [C] {last}"))
    done = resume(project, layout)
    assert done.code == 0, done.said
    assert f"note: {last} is cancelled, because you marked it [C] in progress.md\n" in done.out
    assert f"{last} was not done: you cancelled it" in done.out.rpartition("══")[0].rpartition("Session")[2]
    note = "Cancelled, by the user" if layout == "classic" else "cancelled by the user"
    assert f"- [C] {last} ({note})" in place.read_text()
    view = project.ralph("status", session.name, "--json").json["view"]
    assert {task["id"]: task["state"] for task in view["tasks"]}[last] == "cancelled"
    again = project.ralph("session", "resume")
    assert "because you marked it" not in again.out, "it is said once"
    assert project.ralph("session", "show", "--json").json["tasks_summary"]["cancelled"] == 1


def test_tasks_that_need_a_cancelled_one_are_named(project: Project) -> None:  # noqa: F811
    session = stopped(project, "standard")
    place = session / "progress.md"
    place.write_text(place.read_text().replace("- [ ] task-3", "- [C] task-3"))
    done = resume(project, "standard")
    assert (done.code, "blocked: task-4 (by task-3)" in done.out) == (7, True), done.said
    assert "task-3 is cancelled, because you marked it [C] in progress.md; task-4 needs it and cannot start" in done.out
    assert "task-3 was not done: you cancelled it" in done.out
    assert "[C] task-3  Make c.txt · cancelled by the user" in project.ralph("session", "show").out


@pytest.mark.parametrize("forged", ["", "nonsense", '{"finished": ["task-1", "task-2", "task-3", "task-4"]}'])
@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_forged_state_of_the_engine_makes_no_task_done(project: Project, layout: str, forged: str) -> None:  # noqa: F811
    session = stopped(project, layout)
    state, place = project.run / "flow.json", session / "progress.md"
    state.unlink()
    if forged:
        state.write_text(forged)
    place.write_text(re.sub(r"- \[.\] task-", "- [x] task-", place.read_text()))
    done = resume(project, layout)
    assert done.code == 0, done.said
    notice = "something other than Ralph changed or deleted its flow.json; Ralph rebuilt it from the journal"
    assert done.out.count(notice) == 1
    assert "progress.md marks task-2 as done, but Ralph has not" in done.out
    executed = {entry["key"] for entry in project.journal("turn.started") if entry["role"] == "executor"}
    assert {key.partition(":")[2].rpartition("-")[0] for key in executed} >= {"task-1", "task-2"}
    assert project.ralph("session", "repair").out == "Nothing was wrong.\n"


def test_report_that_ralph_did_not_accept_is_reviewed_in_a_classic_session(project: Project) -> None:  # noqa: F811
    """An agent that forges the report and the marker of a task must not get past the checks and the reviewer."""
    session = stopped(project, "classic")
    review = "## PART 2: REVIEW REPORT\n\n### Recommendation\n**Status**: Qualified\n"
    (session / "tasks.task-2-report.md").write_text(
        f"# Task Report: task-2\n\n## PART 1: IMPLEMENTATION REPORT\n\nDone.\n\n---\n{review}"
    )
    place = session / "progress.md"
    place.write_text(re.sub(r"- \[.\] task-2", "- [x] task-2", place.read_text()))
    done = resume(project, "classic")
    assert done.code == 0, done.said
    assert "but Ralph has not accepted it: it has a report, so Ralph checks and reviews it." in done.out
    turns = [(entry["role"], entry["key"]) for entry in project.journal("turn.started")]
    assert any(role == "reviewer" and "task-2" in key for role, key in turns), turns


def test_session_that_only_its_metadata_calls_complete_is_reviewed(project: Project) -> None:  # noqa: F811
    quick = standard.QUICK.format("")
    assert standard.begin(project, "--land", "branch", blocked=["SESSION_REVIEW"], instructions=quick).code == 9
    place = standard.home(project) / "metadata.yaml"
    text = re.sub("(?m)^status: .*", "status: completed", place.read_text())
    place.write_text(text.replace("state: SESSION_REVIEW", "state: COMPLETE"))
    done = resume(project, "standard")
    assert done.code == 0, done.said
    assert "metadata.yaml says that the session is complete, but no reviewer accepted it: it is reviewed" in done.out
    assert "review of the whole session: Complete" in done.out


def test_tasks_that_are_left_come_before_the_review_of_a_forged_end(project: Project) -> None:  # noqa: F811
    quick = standard.QUICK.format("")
    assert standard.begin(project, "--land", "branch", blocked=["TASK_REVIEW"], instructions=quick).code == 9
    place = standard.home(project) / "metadata.yaml"
    text = re.sub("(?m)^status: .*", "status: completed", place.read_text())
    place.write_text(re.sub(r"state: \w+_BATCH", "state: COMPLETE", text, count=1))
    done = resume(project, "standard")
    assert done.code == 0, done.said
    keys = [entry["key"] for entry in project.journal("turn.started")]
    assert [key.startswith("review:session") for key in keys].count(True) == 1, keys
    assert keys.index(next(key for key in keys if key.startswith("review:session"))) > keys.index("review:task-4-1")


def test_feedback_for_an_iteration_that_is_over_is_planned(
    project: Project,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The metadata is lost meanwhile, and the user is in another time zone."""
    project.extra["TZ"] = "Asia/Bangkok"
    assert standard.begin(project, "--land", "branch", instructions=standard.QUICK.format("")).code == 0
    session = standard.home(project)
    created = re.findall("(?m)^created_at: (.*)", (session / "metadata.yaml").read_text())[0]
    before = standard.shown(project)
    (session / "metadata.yaml").unlink()
    project.extra["TZ"] = "UTC"
    given = session / "iterations" / "1" / "feedbacks" / "20261117-010101"
    given.mkdir(parents=True)
    (given / "feedbacks.md").write_text("# Feedback\n\n## New Requirements\n- Make e.txt too\n")
    (given / "app.log").write_text("boom\n")

    shown = standard.shown(project)
    assert shown["tasks_summary"] == before["tasks_summary"] and shown["status"] == "completed"
    assert "plans again with your feedback" in shown["next_action"]
    [listed] = project.ralph("session", "list", "--json").json["sessions"]
    assert (listed["status"], listed["request"]) == ("completed", "Build the files")
    done = resume(project, "standard")
    assert done.code == 0, done.said
    assert "that iteration is over, so your feedback was moved to" in done.out
    assert (session / "iterations" / "2" / "feedbacks" / given.name / "app.log").is_file()
    assert standard.shown(project)["iteration"] == 2 and (session / "iterations" / "2" / "review.md").is_file()
    rebuilt = re.findall("(?m)^created_at: (.*)", (session / "metadata.yaml").read_text())[0]
    assert datetime.fromisoformat(rebuilt) == datetime.fromisoformat(created)


def test_lost_progress_of_a_classic_session_pays_no_update_again(project: Project) -> None:  # noqa: F811
    assert classic.begin(project).code == 0
    assert project.ralph("session", "update", "d.txt please").code == 0
    assert resume(project, "classic").code == 0
    session = classic.home(project)
    (session / "progress.md").unlink()
    done = resume(project, "classic")
    modes = [entry["key"] for entry in project.journal("turn.started") if entry["role"] == "planner"]
    assert [key for key in modes if "update" in key] == ["plan:plan-update-1"], (done.said, modes)
    assert "- [x] plan-update-1" in (session / "progress.md").read_text()
