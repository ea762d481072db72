"""`ralph session` through the real command line, with an agent that plays every role."""

import json
import random
import re
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from test_loop import Done, Project, eventually, project  # noqa: F401 - the fixture

pytestmark = pytest.mark.slow
"""Each plays a whole session with many turns."""

AGENT = Path(__file__).with_name("session_agent.py")


def write_script(project: Project, **script: Any) -> None:  # noqa: F811
    path = project.home / "script.json"
    path.write_text(json.dumps(script))
    project.extra["SCRIPT"] = str(path)


def begin(project: Project, *args: str, **script: Any) -> Done:  # noqa: F811
    write_script(project, **script)
    command = shlex.join([sys.executable, "-I", str(AGENT)])
    return project.ralph("session", "new", "Build the files", "--agent-command", command, "--yes", *args)


def home(project: Project) -> Path:  # noqa: F811
    [only] = [path for path in (project.root / ".ralph-sessions").iterdir() if path.is_dir()]
    return only


def shown(project: Project) -> dict[str, Any]:  # noqa: F811
    return project.ralph("session", "show", "--json").json


def test_failed_task_waits_for_feedback_and_is_planned_again(project: Project) -> None:  # noqa: F811
    done = begin(project, "--land", "branch", never=["task-3"])
    assert done.code == 7, done.said
    assert "failed: task-3" in done.out and "blocked: task-4 (by task-3)" in done.out
    assert shown(project)["status"] == "awaiting_feedback"
    (project.home / "script.json").write_text("{}")
    notes = project.home / "notes.md"
    notes.write_text("---\niteration: 2\n---\n# Feedback\n\n## Critical Issues\n- [ ] **ISS-001**: c.txt is missing\n")
    log = project.home / "app.log"
    log.write_text("boom\n")
    (project.home / "other").mkdir()
    other = project.home / "other" / "app.log"
    other.write_text("bang\n")
    twice = project.ralph("session", "feedback", "--from", str(notes), "--attach", str(log), "--attach", str(other))
    assert (twice.code, "app.log would overwrite another file" in twice.err) == (2, True)
    given = project.ralph("session", "feedback", "--from", str(notes), "--attach", str(log))
    assert given.code == 0, given.said
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    assert (home(project) / "plan.iteration-1.md").exists()
    assert (home(project) / "iterations" / "2" / "replanning" / "delta.md").exists()
    assert list((home(project) / "iterations" / "2" / "feedbacks").glob("*/app.log"))
    told = shown(project)
    assert (told["iteration"], told["tasks_summary"]["completed"]) == (2, 5)
    [analysed] = [e for e in project.journal("turn.ended") if e["key"].startswith("plan:plan-rebrainstorm")]
    assert analysed["result"]["answer"]["critical_findings"] == ["boom\n"], "what is attached is in the inbox"
    text = (home(project) / "progress.md").read_text()
    assert all(f"plan-{step} (completed" in text for step in ("rebrainstorm", "reresearch", "update", "rebreakdown"))


def test_an_aborted_session_resumes_in_the_background_with_guidance_of_the_user(
    project: Project,  # noqa: F811
) -> None:
    assert begin(project, "--land", "branch", never=["task-3"]).code == 7
    assert project.ralph("abort").code == 0
    refused = project.ralph("session", "resume", "--detach")
    assert (refused.code, "was aborted" in refused.err) == (2, True), refused.said
    (project.home / "script.json").write_text("{}")
    assert project.ralph("session", "update", project.run.name, "Make e.txt").code == 0
    begun = project.real("session", "resume", "--detach")
    assert begun.code == 0, begun.said
    eventually(lambda: len(project.journal("run.ended")) == 3)
    assert project.journal("run.ended")[-1]["outcome"] == "success"


def test_feedback_that_waited_does_not_continue_an_aborted_session(project: Project) -> None:  # noqa: F811
    assert begin(project, "--land", "branch", never=["task-3"]).code == 7
    assert project.ralph("session", "update", project.run.name, "Make e.txt").code == 0
    assert project.ralph("abort").code == 0
    turns = len(project.journal("turn.started"))
    refused = project.ralph("session", "resume")
    assert (refused.code, "was aborted" in refused.err) == (2, True), refused.said
    assert len(project.journal("turn.started")) == turns, "an abort is final: no further turn is paid for"
    assert shown(project)["status"] == "aborted"


def test_a_killed_engine_loses_and_repeats_nothing(project: Project) -> None:  # noqa: F811
    path = project.home / "script.json"
    path.write_text(json.dumps({"slow": 1.0}))
    project.extra["SCRIPT"] = str(path)
    command = shlex.join([sys.executable, "-I", str(AGENT)])
    engine = project.start("session", "new", "Build the files", "--agent-command", command, "--yes")
    eventually(lambda: any(e["role"] == "executor" for e in project.journal("turn.started")))
    engine.kill()
    engine.communicate()
    path.write_text("{}")
    done = project.real("session", "resume")
    assert done.code == 0, done.said
    keys = [entry["key"] for entry in project.journal("turn.started")]
    assert len(keys) == len(set(keys)), "no turn was started twice"
    assert shown(project)["tasks_summary"]["completed"] == 4


def test_resume_retries_what_a_role_could_not_do(project: Project) -> None:  # noqa: F811
    done = begin(project, "--land", "branch", blocked=["TASK_BREAKDOWN"], instructions=QUICK.format(""))
    assert (done.code, "there is no database" in done.out) == (9, True), done.said
    assert shown(project)["status"] == "blocked"
    assert "there is no database" in shown(project)["next_action"]
    (project.home / "script.json").write_text("{}")
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said


def test_executor_edits_only_a_copy_of_the_session(project: Project) -> None:  # noqa: F811
    place = project.root / ".ralph" / "roles" / "Ralph-v2-Executor.agent.md"
    place.parent.mkdir(parents=True)
    place.write_text("---\nname: Ralph-v2-Executor\n---\n# Executor\nEdit the files in SESSION_PATH.\n")
    done = begin(project, "--land", "branch", instructions=QUICK.format(""), rejected=["task-1"])
    assert done.code == 0, done.said
    report = (home(project) / "reports" / "task-1-report.md").read_text()
    assert "By hand." in report and "**Status**: Failed" in report, "a reviewer decides, not the marker in the copy"
    assert "ignored (the turn cannot write it, or it is too large): session/progress.md" in done.out


def test_a_session_that_was_damaged_while_it_was_stopped_is_repaired_and_continues(project: Project) -> None:  # noqa: F811
    done = begin(project, "--land", "branch", blocked=["SESSION_REVIEW"], instructions=QUICK.format(""))
    assert done.code == 9, done.said
    (project.home / "script.json").write_text("{}")
    (home(project) / "metadata.yaml").write_text("version: [broken\n")
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    assert "note: metadata.yaml: rebuilt from the files" in done.out
    [kept] = home(project).glob("metadata.yaml.*.bak")
    assert kept.read_text() == "version: [broken\n"
    assert shown(project)["tasks_summary"]["completed"] == 4


QUICK = "---\nplanning:\n  max_cycles: 1\n  categories: [technical]\n{0}---\n# Instructions\n"


@pytest.mark.parametrize(("word", "kept"), [("approve", True), pytest.param("skip", False, marks=pytest.mark.slow)])
def test_learned_knowledge_waits_for_the_user(project: Project, word: str, kept: bool) -> None:  # noqa: F811
    done = begin(project, instructions=QUICK.format("knowledge:\n  approval: signal\n"))
    assert done.code == 7, done.said
    told = shown(project)
    assert told["current_state"] == "KNOWLEDGE_APPROVAL"
    assert f"ralph session approve {told['session_id']}" in done.out
    assert not (project.root / ".docs").exists()
    empty = project.ralph("session", "approve", told["session_id"], "")
    assert (empty.code, "the message is empty" in empty.err) == (2, True), "it does not keep everything"
    done = project.ralph("session", word, told["session_id"])
    assert done.code == 0, done.said
    assert (project.root / ".docs" / "how-to" / "make-files.md").exists() is kept
    again = project.ralph("session", word, told["session_id"])
    assert (again.code, "does not wait for approval" in again.err) == (2, True)


@pytest.mark.slow
def test_a_task_that_is_too_large_is_split(project: Project) -> None:  # noqa: F811
    quick = QUICK.format("timeouts:\n  task_wip_minutes: 0.03\n")
    done = begin(project, instructions=quick, slow=30, large=["task-2"])
    assert done.code == 0, done.said
    text = (home(project) / "progress.md").read_text()
    assert "- [C] task-2 (split due to timeouts: task-2.1, task-2.2)" in text
    assert "- [x] task-2.1 (" in text and "- [x] task-3 (" in text, "what depended on it goes on"
    assert {"part-1.txt", "part-2.txt", "c.txt"} <= {path.name for path in project.root.iterdir()}


def test_turn_timeout_limits_executors_and_their_task_is_split(project: Project) -> None:  # noqa: F811
    done = begin(project, "--turn-timeout", "0.06", instructions=QUICK.format(""), hang=["task-2"])
    assert done.code == 0, done.said
    text = (home(project) / "progress.md").read_text()
    assert "- [C] task-2 (split due to timeouts: task-2.1, task-2.2)" in text
    assert "it ran out of time (0.06 minutes)" in done.out


def test_turn_timeout_limits_reviewers_and_librarians_who_are_tried_again(project: Project) -> None:  # noqa: F811
    hangs = ["TASK_REVIEW task-1", "EXTRACT"]
    once = QUICK.format("retries:\n  max_subagent_retries: 1\n")
    done = begin(project, "--turn-timeout", "0.06", instructions=once, hang_once=hangs[:1], hang=hangs[1:])
    assert done.code == 0, done.said
    ends = [one["result"]["end"] for one in project.journal("turn.ended") if one["key"].startswith("review:task-1")]
    assert ends == ["wall", "finished"]
    assert "note: the librarian wrote down nothing that was learned: it reached its time limit" in done.out


def test_task_whose_reviewer_always_runs_out_of_time_is_split(project: Project) -> None:  # noqa: F811
    once = QUICK.format("retries:\n  max_subagent_retries: 1\n")
    done = begin(project, "--turn-timeout", "0.06", instructions=once, hang=["TASK_REVIEW task-2"], large=["task-2"])
    assert done.code == 0, done.said
    ends = [one["result"]["end"] for one in project.journal("turn.ended") if one["key"] == "review:task-2-1"]
    assert ends == ["wall", "wall"], "the ladder first"
    text = (home(project) / "progress.md").read_text()
    assert "- [C] task-2 (split because its review ran out of time in every try: task-2.1, task-2.2)" in text
    assert "- [x] task-2.1 (" in text and "- [x] task-3 (" in text, "what depended on it goes on"
    assert "its review ran out of time in every try" in done.out
    report = next(home(project).rglob("task-2-report.md")).read_text()
    assert "Nobody reviewed the work: its review ran out of time in every try" in report


def test_task_whose_reviewer_always_crashes_is_split(project: Project) -> None:  # noqa: F811
    once = QUICK.format("retries:\n  max_subagent_retries: 1\n")
    done = begin(project, instructions=once, crash=["TASK_REVIEW task-2"], large=["task-2"])
    assert done.code == 0, done.said
    text = (home(project) / "progress.md").read_text()
    assert "- [C] task-2 (split because its reviewer failed in every try: task-2.1, task-2.2)" in text
    assert "- [x] task-3 (" in text, "what depended on it goes on"
    report = next(home(project).rglob("task-2-report.md")).read_text()
    assert "Nobody reviewed the work: its reviewer failed in every try: exit code 1: I crashed" in report


def test_planning_turn_that_hangs_is_tried_again_before_the_user_is_asked(project: Project) -> None:  # noqa: F811
    once = QUICK.format("retries:\n  max_subagent_retries: 1\n")
    done = begin(project, "--turn-timeout", "0.06", instructions=once, hang=["brainstorm"])
    assert done.code == 9, done.said
    asked = [one for one in project.journal("turn.ended") if one["key"].startswith("plan:plan-brainstorm")]
    assert [one["result"]["end"] for one in asked] == ["wall", "wall"]
    assert "reduce the scope" in done.out
    session = home(project).name
    assert f'Next:   ralph session resume {session}   (--guidance "Only ..." reduces the scope)' in done.out
    report = project.ralph("report", session).out
    assert f'`ralph session resume {session} --guidance "Only ..."`' in report
    write_script(project)
    done = project.ralph("session", "resume", session, "--guidance", "Only what was asked for")
    assert done.code == 0, done.said


@pytest.mark.slow
def test_damaged_documents_are_reported_and_repaired(project: Project) -> None:  # noqa: F811
    done = begin(project, "--land", "branch", instructions=QUICK.format(""), never=["task-3"])
    assert done.code == 7
    session = home(project).name
    chance = random.Random(7)
    files = [path for path in home(project).rglob("*") if path.is_file()]
    for _ in range(25):
        path = chance.choice(files)
        before = path.read_bytes()
        spoilt = chance.choice(
            (b"", b"\xff\xfe", b"{[", before[: len(before) // 2], before.replace(b":", b""), before * 2)
        )
        path.write_bytes(spoilt)
        for words in (("show", session), ("list",), ("repair", session), ("show", session)):
            told = project.ralph("session", *words)
            assert told.code in (0, 2, 9), (path, spoilt[:40], told.said)
            assert told.code == 0 or "next:" in told.err, told.said
        path.write_bytes(before)
    for path in home(project).rglob("*.bak"):
        path.unlink()
    assert shown(project)["status"] == "awaiting_feedback"


@pytest.mark.parametrize("words", [("show",), ("resume",), ("feedback",)])
def test_without_a_session_the_error_says_how_to_begin_one(project: Project, words: tuple[str, ...]) -> None:  # noqa: F811
    done = project.ralph("session", *words)
    assert (done.code, "ralph session new" in done.err) == (2, True)
    assert project.ralph("session", "list").code == 0


@pytest.mark.parametrize(
    ("lost", "reason", "marked"),
    [
        ("task-4", "failed: task-4", {"x": 3, "F": 1}),
        ("task-3", "failed: task-3; blocked: task-4 (by task-3)", {"x": 2, "F": 1, " ": 1}),
    ],
)
def test_a_task_whose_file_is_missing_fails_and_is_planned_again(
    project: Project,  # noqa: F811
    lost: str,
    reason: str,
    marked: dict[str, int],
) -> None:
    assert begin(project, "--land", "branch", blocked=["TASK_REVIEW"]).code == 9
    file = home(project) / "tasks" / f"{lost}.md"
    text = file.read_text()
    file.unlink()
    (project.home / "script.json").write_text("{}")
    done = project.ralph("session", "resume")
    assert (done.code, reason in done.out) == (7, True), done.said
    assert f"restore it in .ralph-sessions/{home(project).name}/tasks/{lost}.md and resume" in done.out
    progress = (home(project) / "progress.md").read_text()
    assert f"- [F] {lost} (Task definition missing)" in progress
    assert {mark: len(re.findall(rf"^- \[{mark}\] task-", progress, re.MULTILINE)) for mark in marked} == marked
    told = shown(project)
    assert told["status"] == "awaiting_feedback"
    counted = {" ": "pending", "x": "completed", "F": "failed"}
    assert {counted[mark]: count for mark, count in marked.items()}.items() <= told["tasks_summary"].items()
    assert told["tasks_summary"]["total"] == 4
    assert f"[F] {lost}  no definition" in project.ralph("session", "show").out
    file.write_text(text)
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    assert shown(project)["tasks_summary"]["completed"] == 4


def test_new_task_may_depend_on_a_done_task_whose_file_is_lost(project: Project) -> None:  # noqa: F811
    assert begin(project, "--land", "branch", never=["task-3"]).code == 7
    (home(project) / "tasks" / "task-1.md").unlink()
    write_script(project, needs={"task-5": "task-1"})
    assert project.ralph("session", "feedback", "Make e.txt too").code == 0
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    told = shown(project)
    assert (told["iteration"], told["tasks_summary"]["completed"]) == (2, 5)
    planned = [one for one in project.journal("turn.ended") if one["key"].startswith("plan:plan-rebreakdown")]
    assert len(planned) == 1, "the planner is not asked again"


def test_task_that_is_deleted_in_the_middle_of_its_turn_holds_up_only_its_dependents(
    project: Project,  # noqa: F811
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"slow": 600}))
    project.extra["SCRIPT"] = str(script)
    command = shlex.join([sys.executable, "-I", str(AGENT)])
    options = ("--agent-command", command, "--parallel", "1", "--land", "branch", "--yes")
    engine = project.start("session", "new", "Build the files", *options)
    eventually(lambda: any(entry["role"] == "executor" for entry in project.journal("turn.started")))
    assert project.ralph("pause", "--now").code == 0
    engine.communicate()
    (home(project) / "tasks" / "task-1.md").unlink()
    script.write_text("{}")
    done = project.ralph("session", "resume")
    assert done.code == 7, done.said
    assert "failed: task-1; blocked: task-3 (by task-1), task-4 (by task-1)" in done.out
    progress = (home(project) / "progress.md").read_text()
    assert "- [F] task-1 (Task definition missing)" in progress
    assert "- [x] task-2 " in progress, "it does not depend on the task that is gone"


@pytest.mark.parametrize(("never", "code"), [((), 0), (("task-3",), 7)], ids=["complete", "not complete"])
def test_done_task_without_its_file_stays_done_with_a_notice(
    project: Project,  # noqa: F811
    never: tuple[str, ...],
    code: int,
) -> None:
    assert begin(project, "--land", "branch", blocked=["SESSION_REVIEW"], never=[*never]).code == 9
    assert "- [x] task-1 " in (home(project) / "progress.md").read_text()
    (home(project) / "tasks" / "task-1.md").unlink()
    (project.home / "script.json").write_text(json.dumps({"never": never}))
    done = project.ralph("session", "resume")
    assert done.code == code, done.said
    assert (
        "task-1 stays done, though its definition was deleted" in done.out.rpartition("══")[0].rpartition("Session")[2]
    )
    assert "- [x] task-1 " in (home(project) / "progress.md").read_text()


def test_deleted_task_is_named_at_the_end(project: Project) -> None:  # noqa: F811
    assert begin(project, "--land", "branch", blocked=["TASK_REVIEW"]).code == 9
    (home(project) / "tasks" / "task-4.md").unlink()
    progress = home(project) / "progress.md"
    lines = progress.read_text().splitlines(keepends=True)
    progress.write_text("".join(line for line in lines if "] task-4" not in line))
    (project.home / "script.json").write_text("{}")
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    banner = done.out.rpartition("══")[0].rpartition("Session")[2]
    assert (
        "the session is complete: 3 tasks; task-4 was not done: it was deleted while the session was stopped" in banner
    )
    assert "- [C] task-4 (deleted by the user)" in progress.read_text()
    assert shown(project)["tasks_summary"]["cancelled"] == 1


def test_lost_stash_is_named_in_the_outcome_of_a_session(project: Project) -> None:  # noqa: F811
    (project.root / "README").write_text("before\n")
    project.git("add", "README")
    project.git("commit", "-qm", "README")
    (project.root / "README").write_text("stashed\n")
    project.git("stash", "-q")
    assert begin(project, "--land", "branch", blocked=["SESSION_REVIEW"]).code == 9
    project.git("stash", "drop", "-q")
    (project.home / "script.json").write_text("{}")
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    assert ": success, but work of yours is missing from the repository\n" in done.out
    assert "CHANGED: " in done.out.rpartition("══")[2], "the last lines say what"


def test_resume_takes_new_limits(project: Project) -> None:  # noqa: F811
    assert begin(project, "--timeout", "0.0001").code == 3
    moment = "2099-01-02T07:30"
    done = project.ralph("session", "resume", "--timeout", "90", "--deadline", moment)
    assert done.code == 0, done.said
    limits = project.journal("run.ended")[-1]["limits"]
    assert (limits["active_seconds"], limits["deadline"]) == (5400, datetime.fromisoformat(moment).timestamp())


def test_resume_refuses_options_of_new_sessions(project: Project) -> None:  # noqa: F811
    assert begin(project, "--timeout", "0.0001").code == 3
    refused = project.ralph("session", "resume", "--waves", "--check-timeout", "5")
    assert refused.code == 2
    assert "--check-timeout, --waves cannot be changed" in refused.err
