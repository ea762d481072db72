"""`ralph session repair`, and what a resumed session says about changes that the user made by hand, in both layouts."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import test_classic as classic
import test_session as standard
from test_loop import RALPH, Done, Project, project  # noqa: F401 - the fixture

pytestmark = pytest.mark.slow
"""Each plays a whole session with many turns."""

REBUILT = "something other than Ralph changed or deleted its flow.json; Ralph rebuilt it from the journal"
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


KILLED_DURING_A_COMMIT = """
import os, signal, sys
from ralph.cli.main import main
from ralph.store.documents import Documents

write = Documents._write


def write_or_die(self, path, data):
    if path.endswith("/flow.json") and '"type": "merge.ended"' in self.journal.last:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, path, data)


Documents._write = write_or_die
sys.argv[0] = {ralph!r}
main()
"""


def repair_when_unlocked(owner: Project) -> Done:
    """Repair the session. The keeper of a killed engine holds its lock until the turns that still ran have ended."""
    for _ in range(120):
        done = owner.ralph("session", "repair")
        if done.code != 10:
            return done
        time.sleep(0.5)
    return done


def test_repair_finishes_the_commit_of_a_killed_engine(project: Project) -> None:  # noqa: F811
    standard.write_script(project, instructions=standard.QUICK.format(""))
    agent = shlex.join([sys.executable, "-I", str(standard.AGENT)])
    words = ("session", "new", "Build the files", "--agent-command", agent, "--yes", "--land", "branch")
    program = KILLED_DURING_A_COMMIT.format(ralph=str(RALPH))
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=project.root, env=project.environment)
    assert done.returncode == -signal.SIGKILL
    [merged] = [entry["key"] for entry in project.journal("merge.ended")]

    repaired = repair_when_unlocked(project)
    assert repaired.out == "Nothing was wrong.\n", repaired.said
    done = resume(project, "standard", instructions=standard.QUICK.format(""))
    assert done.code == 0, done.said
    assert "something other than Ralph" not in done.out and "Ralph has not merged" not in done.out
    turns = Counter(entry["key"] for entry in project.journal("turn.started"))
    assert set(turns.values()) == {1}, turns
    assert [entry["key"] for entry in project.journal("merge.ended")].count(merged) == 1
    view = project.ralph("status", project.run.name, "--json").json["view"]
    assert {task["state"] for task in view["tasks"]} == {"done"}, "also the one that was merged when the engine died"


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


def test_repair_removes_a_line_about_a_task_that_was_never_planned(project: Project) -> None:  # noqa: F811
    place = stopped(project, "standard") / "progress.md"
    before = place.read_text()
    [line] = [line for line in before.splitlines(keepends=True) if "] task-2" in line]
    place.write_text(before.replace(line, f"{line}- [x] task-99 (made up)\n"))
    done = project.ralph("session", "repair", place.parent.name, "--json").json["done"]
    assert [one for one in done if "which is about no step and no task" in one and "task-99" in one]
    assert place.read_text() == before
    ended = resume(project, "standard")
    assert ended.code == 0, ended.said
    assert "task-99" not in place.read_text()


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
    assert "because you marked it" not in again.out and f"{last} Make" not in again.out, "it is said once"
    assert project.ralph("session", "show", "--json").json["tasks_summary"]["cancelled"] == 1


def test_repair_counts_the_tasks_as_the_list_does(project: Project) -> None:  # noqa: F811
    session = stopped(project, "standard")
    place = session / "progress.md"
    place.write_text(place.read_text().replace("- [ ] task-4", "- [C] task-4"))
    done = project.ralph("session", "repair")
    assert "metadata.yaml: the numbers of tasks are those of progress.md" in done.out, done.said
    metadata = (session / "metadata.yaml").read_text()
    assert "cancelled: 1" in metadata
    assert project.ralph("session", "repair").out == "Nothing was wrong.\n"
    assert resume(project, "standard").code == 0


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
    assert done.out.count(REBUILT) == 1
    assert "progress.md marks task-2 as done, but Ralph has not" in done.out
    executed = {entry["key"] for entry in project.journal("turn.started") if entry["role"] == "executor"}
    assert {key.partition(":")[2].rpartition("-")[0] for key in executed} >= {"task-1", "task-2"}
    assert project.ralph("session", "repair").out == "Nothing was wrong.\n"


def test_state_that_a_repair_rebuilt_is_not_blamed_on_anyone_later(project: Project) -> None:  # noqa: F811
    stopped(project, "standard")
    (project.run / "flow.json").unlink()
    assert project.ralph("session", "repair").out.splitlines() == [REBUILT]
    done = resume(project, "standard")
    assert (done.code, REBUILT in done.out) == (0, False), done.said


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
    assert (
        "metadata.yaml says that the session is complete, but no reviewer accepted it: a reviewer reviews it now"
        in done.out
    )
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


def begin_with_failure(project: Project, layout: str) -> Path:  # noqa: F811
    """The directory of a session that waits for feedback, because a task failed that another one needs."""
    if layout == "classic":
        assert classic.begin(project, never=["task-1"]).code == 7
        return classic.home(project)
    quick = standard.QUICK.format("knowledge:\n  approval: auto\n")
    assert standard.begin(project, "--land", "branch", never=["task-3"], instructions=quick).code == 7
    return standard.home(project)


def list_roles(project: Project) -> list[str]:  # noqa: F811
    return [entry["role"] for entry in project.journal("turn.started")]


def test_cancelled_task_is_not_called_blocked_when_its_need_fails(project: Project) -> None:  # noqa: F811
    session = stopped(project, "standard")
    place = session / "progress.md"
    place.write_text(place.read_text().replace("- [ ] task-4", "- [C] task-4"))
    done = resume(project, "standard", never=["task-3"])
    assert done.code == 7, done.said
    assert "failed: task-3" in done.out and "blocked" not in done.out
    assert "task-4 was not done: you cancelled it" in done.out


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_session_ends_without_the_tasks_that_the_user_cancels(project: Project, layout: str) -> None:  # noqa: F811
    session = begin_with_failure(project, layout)
    failed, blocked = ("task-1", "task-2") if layout == "classic" else ("task-3", "task-4")
    roles, place = list_roles(project), session / "progress.md"
    place.write_text(place.read_text().replace(f"- [F] {failed}", f"- [C] {failed}"))
    done = resume(project, layout)
    todo = f"to end the session without {blocked}, mark it [C] in progress.md too"
    assert (done.code, todo in done.out) == (7, True), done.said
    assert list_roles(project) == roles, "nothing is paid while a task is blocked"

    place.write_text(place.read_text().replace(f"- [ ] {blocked}", f"- [C] {blocked}"))
    assert "the review of the whole session" in project.ralph("session", "show").out
    done = resume(project, layout)
    assert done.code == 0, done.said
    assert f"{failed} was not done: you cancelled it; {blocked} was not done: you cancelled it" in done.out
    assert list_roles(project) == [*roles, "reviewer"], "only the whole is reviewed again"


def test_completed_that_the_user_wrote_is_repaired_without_a_turn(project: Project) -> None:  # noqa: F811
    session = begin_with_failure(project, "standard")
    roles, place = list_roles(project), session / "metadata.yaml"
    place.write_text(re.sub("(?m)^status: .*", "status: completed", place.read_text()))
    done = resume(project, "standard")
    assert (done.code, "its review did not accept it: it waits for feedback" in done.out) == (7, True), done.said
    assert "status: awaiting_feedback" in place.read_text()
    assert "its review did not accept it" not in project.ralph("session", "resume").out, "it is said once"
    assert list_roles(project) == roles


def test_deleted_documents_of_a_session_are_restored_as_they_were(project: Project) -> None:  # noqa: F811
    session = begin_with_failure(project, "standard")
    assert project.ralph("session", "feedback", "Make e.txt too").code == 0
    roles = list_roles(project)
    (session / "metadata.yaml").unlink()
    assert standard.shown(project)["status"] == "awaiting_feedback"
    done = resume(project, "standard", never=["task-3"], blocked=["TASK_REVIEW"])
    assert done.code == 9, done.said
    assert "metadata.yaml: it was deleted, so Ralph restored its own copy" in done.out
    assert list_roles(project)[len(roles)] == "questioner", "the feedback is planned before anything else is paid"

    names = ("metadata.yaml", "progress.md", "iterations/2/metadata.yaml")
    before, told = {name: (session / name).read_text() for name in names}, standard.shown(project)
    assert "| 1 | Complete | 2/4 |" in before["progress.md"]
    for name in names:
        (session / name).unlink()
    assert standard.shown(project) == told
    assert len(project.ralph("session", "repair").out.splitlines()) == len(names)
    assert {name: (session / name).read_text() for name in names} == before


def test_instructions_of_the_planner_count_after_the_metadata_was_lost(project: Project) -> None:  # noqa: F811
    quick = standard.QUICK.format("")
    assert standard.begin(project, "--land", "branch", blocked=["INITIALIZE"]).code == 9
    session = standard.home(project)
    (session / "metadata.yaml").unlink()
    shutil.rmtree(project.run / "copies")
    done = resume(project, "standard", instructions=quick, blocked=["TASK_BREAKDOWN"])
    assert done.code == 9, done.said
    assert session.with_name(f"{session.name}.instructions.md").read_text().startswith(quick)
