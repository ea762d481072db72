"""What a session writes for its users, through the real command line."""

import io
import json
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from test_classic import AGENT as CLASSIC_AGENT
from test_classic import home as classic_home
from test_classic import script
from test_loop import Project, eventually, project  # noqa: F401 - the fixture
from test_session import AGENT, QUICK, begin, home, shown, write_script

pytestmark = pytest.mark.slow
"""Each plays a whole session with many turns."""

CONTRACT = {"status", "session_id", "iteration", "current_state", "current_wave", "tasks_summary", "next_action"}


def rows(progress: Path) -> list[list[str]]:
    table = progress.read_text().partition("## Iterations")[2]
    found = [line.strip("|").split("|") for line in table.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in cells] for cells in found]


@pytest.fixture
def bangkok(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local time that is not UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Bangkok")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("bangkok")
def test_a_failed_session_leaves_a_contract_a_report_and_current_files(project: Project) -> None:  # noqa: F811
    done = begin(project, "--land", "branch", "--json", never=["task-3"])
    assert done.code == 7, done.said
    told = done.json
    assert told.keys() >= CONTRACT
    assert (told["status"], told["iteration"], told["current_state"]) == ("awaiting_feedback", 1, "COMPLETE")
    assert isinstance(told["current_wave"], int)
    assert set(told["tasks_summary"]) == {"total", "completed", "failed", "pending", "cancelled"}
    assert told == told | {key: shown(project)[key] for key in CONTRACT}

    progress = home(project) / "progress.md"
    assert rows(progress) == [["1", "Awaiting feedback", "2/4", "N/A"]]
    assert "started:" not in progress.read_text(), "no task is in progress"
    [planned] = re.findall(r"plan-init \(completed: (.+)\)", progress.read_text())
    assert datetime.fromisoformat(planned).utcoffset().total_seconds() == 7 * 3600  # type: ignore[union-attr]
    snapshot = home(project) / "plan.iteration-1.md"
    assert snapshot.read_text() == (home(project) / "plan.md").read_text()
    instructions = home(project).with_name(f"{told['session_id']}.instructions.md").read_text()
    assert f"applyTo: .ralph-sessions/{told['session_id']}/**" in instructions.replace('"', "").replace("'", "")
    report = project.ralph("report").out
    assert "# Session" in report and "| task-3 | Make c.txt | Failed | 3 |" in report


def test_a_classic_session_has_a_report_and_instructions(project: Project) -> None:  # noqa: F811
    script(project)
    done = project.ralph("session", "new", "--classic", "Build", "--agent-command", CLASSIC_AGENT, "--yes")
    assert done.code == 0, done.said
    session = classic_home(project)
    assert session.with_name(f"{session.name}.instructions.md").exists()
    assert "# Session" in project.ralph("report").out


def test_tasks_that_wait_for_a_slot_are_not_in_progress(project: Project) -> None:  # noqa: F811
    gate = project.home / "gate"
    path = project.home / "script.json"
    path.write_text(json.dumps({"until": str(gate), "instructions": QUICK.format("")}))
    project.extra["SCRIPT"] = str(path)
    command = shlex.join([sys.executable, "-I", str(AGENT)])
    engine = project.start("session", "new", "Build", "--agent-command", command, "--yes", "--parallel", "1")
    eventually(lambda: any(entry["role"] == "executor" for entry in project.journal("turn.started")))
    eventually(lambda: "[/] task-" in (home(project) / "progress.md").read_text())
    text = (home(project) / "progress.md").read_text()
    assert (text.count("[/] task-"), text.count("[ ] task-")) == (1, 3), text
    assert rows(home(project) / "progress.md") == [["1", "Executing", "0/4", "N/A"]]
    gate.touch()
    engine.communicate(timeout=300)
    assert engine.returncode == 0
    attempts = {entry["key"] for entry in project.journal("turn.started") if entry["role"] == "executor"}
    assert attempts == {f"execute:task-{number}-1" for number in (1, 2, 3, 4)}


@pytest.mark.parametrize("id", ["today", "../x", "2611-1"])
def test_a_wrong_session_id_is_refused_with_the_form_of_one(project: Project, id: str) -> None:  # noqa: F811
    refused = project.ralph("session", "show", id)
    assert (refused.code, "is not a session id" in refused.err) == (2, True), refused.said
    assert "<YYMMDD>-<hhmmss>" in refused.err and "ralph session list" in refused.err


def feedback_text(project: Project) -> str:  # noqa: F811
    [batch] = (home(project) / "iterations" / "2" / "feedbacks").glob("*/feedbacks.md")
    text = batch.read_text()
    for path in (batch, *batch.parent.iterdir()):
        path.unlink(missing_ok=True)
    batch.parent.rmdir()
    return text


def test_feedback_of_every_form_is_stored_as_a_batch(
    project: Project,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert begin(project, "--land", "branch", never=["task-3"], instructions=QUICK.format("")).code == 7
    session = home(project).name
    log = project.home / "app.log"
    log.write_text("boom\n")
    notes = project.home / "notes.md"
    notes.write_text("## Quality Issues\n- [ ] **Q-001**: It is slow\n")
    for words in (
        ("The totals are wrong", "--attach", str(log)),
        (session, "The totals are wrong", "--attach", str(log)),
        ("--from", str(notes), "--attach", str(log)),
    ):
        given = project.ralph("session", "feedback", *words)
        assert given.code == 0, given.said
        text = feedback_text(project)
        assert text.startswith("---\niteration: 2\ntimestamp: ") and "previous_iteration: 1\n---\n" in text
        assert "# Feedback Batch: " in text and "## Artifacts Index" in text and "| app.log |" in text
        assert "**Q-001**: It is slow" in text or "- [ ] **ISS-001**: The totals are wrong" in text
    copied = project.home / "copied.md"
    copied.write_text("---\niteration: 9\nauthor: me\n---\nIt is slow\n")
    assert project.ralph("session", "feedback", "--from", str(copied)).code == 0
    assert "iteration: 2\nauthor: me\n" in feedback_text(project), "the directory says which iteration it is for"
    assert "the feedback is empty" in project.ralph("session", "feedback", " ").err
    monkeypatch.setattr("sys.stdin", io.StringIO("Name the columns\n"))
    piped = project.ralph("session", "feedback", "--from", "-")
    assert piped.code == 0, piped.said
    assert "- [ ] **ISS-001**: Name the columns" in feedback_text(project)
    refused = project.ralph("session", "feedback", "two", "words")
    assert (refused.code, "put it in quotes" in refused.err) == (2, True)

    unread = home(project) / "iterations" / "2" / "feedbacks" / "mine"
    unread.mkdir(parents=True)
    (unread / "app.log").write_text("boom\n")
    for command in ("show", "resume"):
        said = project.ralph("session", command).out
        assert "iterations/2/feedbacks/mine/ has no feedbacks.md, so Ralph does not read it" in said


def test_issue_ids_of_feedback_are_unique_in_a_session(project: Project) -> None:  # noqa: F811
    assert begin(project, "--land", "branch", never=["task-3"], instructions=QUICK.format("")).code == 7
    notes = project.home / "notes.md"
    notes.write_text(
        "# Mine\n\n- [ ] **ISS-001**: Name the columns\n  - Suggested Fix: ISS-001 is one line\n- **Q-001**: slow\n"
    )
    for words in (
        (
            "--",
            "- The totals are wrong\n- So is the date",
        ),
        ("--from", str(notes)),
        ("--", "- It is slow\n- It is large"),
    ):
        assert project.ralph("session", "feedback", *words).code == 0
    place = home(project) / "iterations" / "2" / "feedbacks"
    by_hand = place / "20991231-235959" / "feedbacks.md"
    by_hand.parent.mkdir()
    by_hand.write_text("# By hand\n\n- [ ] **ISS-002**: The help is empty\n- [ ] **ISS-009**: No license\n")
    texts = [path.read_text() for path in sorted(place.glob("*/feedbacks.md"))]
    assert len(texts) == 4, "feedback of the same second replaces none"
    assert "**ISS-001**: The totals are wrong\n- [ ] **ISS-002**: So is the date" in texts[0]
    assert "**ISS-003**: Name the columns\n  - Suggested Fix: ISS-003 is one line\n- **Q-001**: slow" in texts[1]
    assert "**ISS-004**: It is slow\n- [ ] **ISS-005**: It is large" in texts[2]

    said = project.ralph("session", "repair").out
    assert "feedbacks.md: ISS-002 is ISS-010 now, because earlier feedback has an issue of that id" in said
    assert "**ISS-010**: The help is empty\n- [ ] **ISS-009**: No license" in by_hand.read_text()
    assert project.ralph("session", "repair").out == "Nothing was wrong.\n"


def lose_documents(project: Project) -> None:  # noqa: F811
    """Delete what says how far the session is, and Ralph's own copies of it."""
    shutil.rmtree(project.run / "copies")
    for name in ("metadata.yaml", "progress.md"):
        (home(project) / name).unlink()


def test_rebuilt_metadata_keeps_the_request_and_the_attempts(project: Project) -> None:  # noqa: F811
    done = begin(project, "--land", "branch", blocked=["TASK_REVIEW"], instructions=QUICK.format(""))
    assert done.code == 9, done.said
    lose_documents(project)
    (project.home / "script.json").write_text("{}")
    repaired = project.ralph("session", "repair", home(project).name)
    assert "metadata.yaml: rebuilt" in repaired.out and "progress.md: " in repaired.out
    assert 'request: "Build the files"' in (home(project) / "metadata.yaml").read_text()
    assert rows(home(project) / "progress.md") == [["1", "Reviewing", "0/4", "N/A"]]
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    progress = (home(project) / "progress.md").read_text()
    assert all(f"- [x] task-{number} (Attempt 1," in progress for number in (1, 2, 3, 4)), progress


def test_request_is_read_from_the_instructions_if_nothing_else_is_left(project: Project) -> None:  # noqa: F811
    done = begin(project, "--land", "branch", blocked=["TASK_REVIEW"], instructions=QUICK.format(""))
    assert done.code == 9, done.said
    session = home(project).name
    lose_documents(project)
    (project.run / "run.json").unlink()
    assert "\nBuild the files\n" in project.ralph("session", "show").out, "not the goal of the plan, `Three files`"
    damaged = project.ralph("session", "resume", "--agent-command", f"python3 -I {AGENT}", "--yes")
    assert (damaged.code, f"`ralph clean {session}`" in damaged.err) == (2, True), damaged.said
    shutil.rmtree(project.root / ".ralph" / "runs")
    (project.home / "script.json").write_text("{}")
    done = project.ralph("session", "resume", "--agent-command", f"python3 -I {AGENT}", "--yes")
    assert done.code == 0, done.said
    assert (
        f"the request comes from .ralph-sessions/{session}.instructions.md, because Ralph has no run of this"
        in done.out
    )
    assert 'request: "Build the files"' in (home(project) / "metadata.yaml").read_text()


def test_rebuilt_progress_keeps_what_ralph_has_merged(project: Project) -> None:  # noqa: F811
    assert begin(project, "--land", "branch", never=["task-3"], instructions=QUICK.format("")).code == 7
    lose_documents(project)
    write_script(project)
    assert project.ralph("session", "repair").code == 0
    progress = (home(project) / "progress.md").read_text()
    assert "- [x] task-1 (Attempt 1, recovered)" in progress and "- [F] task-3 " in progress, progress
    project.ralph("session", "resume")
    reviews = [entry["key"] for entry in project.journal("turn.started") if entry["key"].startswith("review:task-")]
    assert (reviews.count("review:task-1-1"), reviews.count("review:task-2-1")) == (1, 1), "nothing is paid for twice"


def test_approval_in_words_keeps_only_what_the_user_names(project: Project) -> None:  # noqa: F811
    asked = QUICK.format("knowledge:\n  approval: signal\n")
    assert begin(project, instructions=asked, learned=["api", "style"]).code == 7
    both = project.ralph("session", "approve", "--item", "api", "--message", "only the api")
    assert (both.code, "use only one of them" in both.err) == (2, True)
    done = project.ralph("session", "approve", "--message", "Promote only the api reference")
    assert done.code == 0, done.said
    kept = sorted(
        path.relative_to(project.root / ".docs").as_posix() for path in (project.root / ".docs").rglob("*.md")
    )
    assert kept == ["reference/api.md"]
    [turn] = [entry for entry in project.journal("turn.started") if entry["key"] == "curate:1"]
    prompt = next((project.run / "turns").glob(f"{turn['turn']:05d}-*/prompt.md")).read_text()
    assert "MODE: PROMOTE" in prompt and "approval.md" in prompt


@pytest.mark.parametrize("moment", ["asked", "early"])
@pytest.mark.parametrize("command", ["approve", "skip"])
def test_running_session_takes_the_decision_about_its_knowledge(
    project: Project,  # noqa: F811
    command: str,
    moment: str,
) -> None:
    waits = "knowledge:\n  approval: signal\n  approval_timeout_minutes: 60\n"
    write_script(project, instructions=QUICK.format(waits))
    agent = shlex.join([sys.executable, "-I", str(AGENT)])
    begins = {"asked": "note: what the session learned (1 file", "early": "turn 2: "}[moment]
    with project.start("session", "new", "Build the files", "--agent-command", agent, "--yes") as engine:
        assert engine.stdout
        next(line for line in engine.stdout if line.startswith(begins))
        decided = project.ralph("session", command)
        assert (decided.code, decided.out.startswith("Sent. Session ")) == (0, True), decided.said
        assert ("has not asked yet" in decided.out) is (moment == "early")
        if moment == "early":
            waiting = project.ralph("signals").out
            assert "waits until the session asks whether to keep what it learned in iteration 1" in waiting
        out, err = engine.communicate(timeout=120)
    assert (engine.returncode, f"received {command.upper()}" in out) == (0, True), out + err
    assert (project.root / ".docs").exists() is (command == "approve")
    late = project.ralph("session", command)
    assert (late.code, "will not ask in this iteration" in late.err) == (2, True), late.said


def test_answer_that_names_nothing_replaces_no_earlier_one(project: Project) -> None:  # noqa: F811
    asked = QUICK.format("knowledge:\n  approval: signal\n")
    assert begin(project, instructions=asked, blocked=["TASK_REVIEW"], learned=["api", "style"]).code == 9
    id = home(project).name
    assert project.ralph("session", "approve", id, "Keep only the api", "--item", "api").code == 2
    assert project.ralph("session", "approve", "--item", "api").code == 0
    assert project.ralph("session", "approve", "--item", "nonsense").code == 0, "nobody knows yet what will be learned"
    write_script(project, learned=["api", "style"])
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    reason = "no learned item is called nonsense; choose from .docs/"
    assert reason in done.out and reason in project.ralph("signals").out
    assert [path.name for path in (project.root / ".docs").rglob("*.md")] == ["api.md"]


def test_approval_takes_a_message_without_an_option_and_refuses_unknown_items(project: Project) -> None:  # noqa: F811
    asked = QUICK.format("knowledge:\n  approval: signal\n")
    assert begin(project, instructions=asked, learned=["api", "style"]).code == 7
    id = home(project).name
    refused = project.ralph("session", "approve", id, "--item", "api", "--item", "how")
    assert (refused.code, "no learned item is called how" in refused.err) == (2, True), refused.said
    assert ".docs/reference/api.md" in refused.err
    unquoted = project.ralph("session", "approve", id, "Keep", "only", "the", "api")
    assert (unquoted.code, "put it in quotes" in unquoted.err) == (2, True), unquoted.said
    done = project.ralph("session", "approve", id, "Keep only the api")
    assert done.code == 0, done.said
    assert [path.name for path in (project.root / ".docs").rglob("*.md")] == ["api.md"]


def test_early_decision_waits_for_the_question_of_its_iteration_only(project: Project) -> None:  # noqa: F811
    asked = QUICK.format("knowledge:\n  approval: signal\n")
    assert begin(project, instructions=asked, blocked=["TASK_REVIEW"]).code == 9
    project.ralph("session", "skip")
    early = project.ralph("session", "approve")
    assert (early.code, f"Next:   ralph session resume {home(project).name}" in early.out) == (0, True), early.said
    rules = home(project).with_name(f"{home(project).name}.instructions.md")
    rules.write_text(rules.read_text().replace("approval: signal", "approval: skip"))
    write_script(project)
    assert project.ralph("session", "resume").code == 0, "the session asks nothing"
    rules.write_text(rules.read_text().replace("approval: skip", "approval: signal"))
    project.ralph("session", "feedback", "More")
    done = project.ralph("session", "resume")
    assert (done.code, "awaiting approval" in done.out) == (7, True), done.said
    told = project.ralph("signals").out
    assert told.count("expired: it was for iteration 1, and this is iteration 2") == 2
    project.ralph("signal", "approve")
    assert project.ralph("session", "skip").code == 0
    assert "a later answer replaced it" in project.ralph("signals").out
    assert not (project.root / ".docs").exists(), "the last answer counts"


def test_decision_about_knowledge_is_refused_if_the_session_will_not_ask(project: Project) -> None:  # noqa: F811
    assert begin(project, instructions=QUICK.format(""), blocked=["TASK_REVIEW"]).code == 9
    refused = project.ralph("session", "skip")
    assert (refused.code, "keeps what it learns without asking" in refused.err) == (2, True), refused.said
    assert "write `knowledge.approval: signal` as a bullet into" in refused.err


NOT_IN_TIME = QUICK.format("knowledge:\n  approval: signal\n  approval_timeout_minutes: 0.001\n")


def test_knowledge_not_approved_in_time_goes_to_the_next_iteration(project: Project) -> None:  # noqa: F811
    done = begin(project, instructions=NOT_IN_TIME)
    assert done.code == 0, done.said
    assert "nobody approved what was learned within 0.001 minutes" in done.out
    assert not (project.root / ".docs").exists()
    assert "state: COMPLETE\n" in (home(project) / "metadata.yaml").read_text()
    assert shown(project)["current_state"] == "COMPLETE"
    assert "`ralph session approve" in shown(project)["next_action"]
    assert project.ralph("session", "feedback", "More").code == 0
    project.ralph("session", "resume")
    carried = home(project) / "iterations" / "2" / "knowledge" / "how-to" / "make-files.md"
    assert "carried_from: 1" in carried.read_text(), "also after the librarian wrote it again"


@pytest.mark.parametrize(("command", "is_kept"), [("approve", True), ("skip", False)])
def test_knowledge_can_be_decided_after_the_time_is_over(project: Project, command: str, is_kept: bool) -> None:  # noqa: F811
    assert begin(project, instructions=NOT_IN_TIME).code == 0
    decided = project.ralph("session", command)
    assert decided.code == 0, decided.said
    assert (project.root / ".docs" / "how-to" / "make-files.md").exists() is is_kept
    assert shown(project)["current_state"] == "COMPLETE"
    again = project.ralph("session", command)
    assert (again.code, "does not wait for approval" in again.err) == (2, True), again.said


@pytest.mark.parametrize("text", ["", "just words\n"])
def test_task_without_a_readable_definition_is_never_worked_on(project: Project, text: str) -> None:  # noqa: F811
    assert begin(project, "--land", "branch", blocked=["TASK_REVIEW"], instructions=QUICK.format("")).code == 9
    write_script(project)
    place = home(project) / "tasks" / "task-3.md"
    place.write_bytes(b"\xff\xfe garbage")
    refused = project.ralph("session", "resume")
    assert (refused.code, "the task is not text in UTF-8" in refused.err) == (2, True), refused.said
    place.write_text(text)
    done = project.ralph("session", "resume")
    assert (done.code, "task-3 has no definition: restore it in" in done.out) == (7, True), done.said
    assert "- [F] task-3 (Task definition missing)" in (home(project) / "progress.md").read_text()
    assert not [entry for entry in project.journal("turn.started") if "task-3" in entry["key"]]


def test_feedback_that_is_no_text_is_refused(project: Project) -> None:  # noqa: F811
    assert begin(project, "--land", "branch", never=["task-3"], instructions=QUICK.format("")).code == 7
    picture = project.home / "picture.png"
    picture.write_bytes(b"\x89PNG\xff\x00")
    refused = project.ralph("session", "feedback", "--from", str(picture))
    assert (refused.code, "is not text in UTF-8" in refused.err, "--attach FILE" in refused.err) == (2, True, True)
    assert not list(home(project).glob("iterations/2/feedbacks/*"))
