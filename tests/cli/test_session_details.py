"""Small promises of sessions, each at the level where the user meets it, in both layouts if both make it."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_classic as classic
import test_session as standard
from test_loop import Done, Project, eventually, project  # noqa: F401 - the fixture
from test_repair_command import stopped
from test_session_files import CONTRACT, bangkok  # noqa: F401 - the fixture
from test_signals import yaml

from ralph.cli.render.session import about

pytestmark = pytest.mark.slow
"""Each plays a whole session with many turns."""

CLASSIC_CONTRACT = {"status", "session_id", "current_state", "last_action", "next_action", "summary"}
NO_RETRY = "---\nplanning:\n  max_cycles: 0\nretries:\n  max_subagent_retries: 0\n---\n# Instructions\n"


@pytest.fixture(params=["standard", "classic"])
def layout(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


@pytest.mark.usefixtures("bangkok")
def test_signals_are_rejected_or_delivered_with_reason_and_local_time(project: Project, layout: str) -> None:  # noqa: F811
    session = stopped(project, layout)
    signals = session / "signals"
    (signals / "inputs").mkdir(parents=True, exist_ok=True)
    (signals / "inputs" / "typeless.yaml").write_text("message: hello\n")
    (signals / "inputs" / "painter.yaml").write_text("type: STEER\ntarget: Painter\nmessage: use red\n")
    (signals / "inputs" / "reviewer.yaml").write_text("type: INFO\ntarget: Reviewer\nmessage: be kind\n")
    gate = project.home / "gate"
    (classic.script if layout == "classic" else standard.write_script)(project, until=str(gate))
    engine = project.start("session", "resume")
    # A file without a type may still be written, so Ralph looks at it twice.
    eventually(lambda: len(list((signals / "rejected").glob("*.yaml.reason"))) == 2)
    gate.touch()
    said, _ = engine.communicate(timeout=300)
    assert engine.returncode == 0, said

    missing = "the signal has no `type:`; add one of STEER, INFO, PAUSE, RESUME, ABORT, APPROVE, SKIP"
    unknown = "there is no role 'painter' here; the roles are planner, questioner, executor, reviewer"
    for name, reason in (("typeless", missing), ("painter", unknown)):
        assert f"signal {name}.yaml was rejected: {reason}" in said
        assert reason in (signals / "rejected" / f"{name}.yaml.reason").read_text()
        assert reason in project.ralph("signals").out
    assert not list((signals / "inputs").iterdir())
    handling = yaml(signals / "processed" / "reviewer.yaml")["handling_metadata"]
    assert handling["action_taken"].startswith("received by reviewer (turn ")
    assert str(handling["delivered_at"]).endswith("+07:00") and handling["delivered_at"] >= handling["handled_at"]
    assert "+07:00)" in (session / "progress.md").read_text()


def test_pause_message_is_shown_on_every_screen(project: Project, layout: str) -> None:  # noqa: F811
    gate = project.home / "gate"
    if layout == "classic":
        classic.script(project, until=str(gate))
        words, command = ("--classic",), classic.AGENT
    else:
        standard.write_script(project, until=str(gate), instructions=standard.QUICK.format(""))
        words, command = (), shlex.join([sys.executable, "-I", str(standard.AGENT)])
    engine = project.start("session", "new", "Build the files", *words, "--agent-command", command, "--yes")
    eventually(lambda: any(entry["role"] == "executor" for entry in project.journal("turn.started")))
    sent = project.ralph("pause", project.run.name, "until Jane has looked")
    assert (sent.code, '  "until Jane has looked"\n' in sent.out) == (0, True), sent.said
    eventually(lambda: project.journal("signal.accepted"))
    gate.touch()
    said, _ = engine.communicate(timeout=300)
    assert (engine.returncode, "you paused it: until Jane has looked" in said) == (7, True), said
    shown = project.ralph("session", "show").out
    assert "Next:   you paused it: until Jane has looked; `ralph session resume " in shown
    assert "until Jane has looked" in project.ralph("status").out
    assert project.ralph("session", "resume").code == 0


def test_task_that_the_user_marks_as_done_is_done_all_the_same(project: Project, layout: str) -> None:  # noqa: F811
    gate = project.home / "gate"
    if layout == "classic":
        classic.script(project, until=str(gate))
        words, command, task, file = ("--classic",), classic.AGENT, "task-2", "b.txt"
    else:
        standard.write_script(project, until=str(gate), instructions=standard.QUICK.format(""))
        words, command = ("--land", "branch"), shlex.join([sys.executable, "-I", str(standard.AGENT)])
        task, file = "task-4", ""
    engine = project.start("session", "new", "Build the files", *words, "--agent-command", command, "--yes")
    eventually(lambda: executing(project, "task-1"))
    assert project.ralph("signal", "pause").code == 0
    eventually(lambda: project.journal("signal.accepted"))
    gate.touch()
    engine.communicate(timeout=300)
    place = standard.home(project) / "progress.md"
    assert f"- [ ] {task}" in place.read_text()
    place.write_text(place.read_text().replace(f"- [ ] {task}", f"- [x] {task}"))
    done = project.ralph("session", "resume")
    verb = "accepted" if layout == "classic" else "merged"
    why = f"progress.md marks {task} as done, but Ralph has not {verb} it: it still has to be done. Mark it [C] to leave it out."
    assert (done.code, why in done.out) == (0, True), done.said
    assert executing(project, task) and f"- [x] {task} (" in place.read_text()
    assert not file or (project.root / file).exists()


def test_task_marked_as_done_after_the_engine_was_killed_continues(project: Project, layout: str) -> None:  # noqa: F811
    gate = project.home / "gate"
    if layout == "classic":
        classic.script(project, until=str(gate))
        words, command = ("--classic",), classic.AGENT
    else:
        standard.write_script(project, until=str(gate), instructions=standard.QUICK.format(""))
        words, command = ("--land", "branch"), shlex.join([sys.executable, "-I", str(standard.AGENT)])
    engine = project.start("session", "new", "Build the files", *words, "--agent-command", command, "--yes")
    eventually(lambda: executing(project, "task-1"))
    place = standard.home(project) / "progress.md"
    eventually(lambda: "- [/] task-1" in place.read_text())
    engine.kill()
    engine.communicate()
    place.write_text(re.sub(r"- \[.\] task-", "- [x] task-", place.read_text()))
    gate.touch()
    done = project.ralph("session", "resume")
    assert (done.code, "progress.md marks task-1 as done, but Ralph has not " in done.out) == (0, True), done.said
    started = {entry["key"] for entry in project.journal("turn.started")}
    assert {"execute:task-1-1", "execute:task-2-1"} <= started
    if layout == "standard":
        merged = {entry["key"] for entry in project.journal("merge.ended")}
        assert len(merged) >= 4, merged


def test_abort_of_a_complete_session_changes_nothing(project: Project, layout: str) -> None:  # noqa: F811
    if layout == "classic":
        done = classic.begin(project)
    else:
        done = standard.begin(project, "--land", "branch", instructions=standard.QUICK.format(""))
    assert done.code == 0, done.said
    session = standard.home(project)
    before = {path: path.read_text() for path in session.rglob("*.md")}
    told = standard.shown(project)
    for words in (("abort", session.name), ("signal", "abort", "--run", session.name)):
        refused = project.ralph(*words)
        assert (refused.code, "is over: success" in refused.err) == (2, True), refused.said
    inputs = session / "signals" / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    (inputs / "late.yaml").write_text("type: ABORT\n")
    done = project.ralph("session", "resume")
    assert (done.code, "everything is done already, so there is nothing to abort" in done.out) == (0, True), done.said
    assert {path: path.read_text() for path in session.rglob("*.md")} == before
    assert standard.shown(project) == told


def test_resuming_a_complete_session_changes_nothing(project: Project, layout: str) -> None:  # noqa: F811
    if layout == "classic":
        done = classic.begin(project)
    else:
        done = standard.begin(project, "--land", "branch", instructions=standard.QUICK.format(""))
    assert done.code == 0, done.said
    session = standard.home(project)

    def read_all() -> dict[Path, bytes]:
        files = (*session.parent.rglob("*"), *project.run.rglob("*"))
        return {path: path.read_bytes() for path in files if path.is_file()}

    before = read_all()
    for words in ((), (session.name,), ("--json",)):
        done = project.ralph("session", "resume", *words)
        assert done.code == 0, done.said
    assert done.json["status"] == "completed"
    told = project.ralph("session", "resume").out
    assert f"Session {session.name} is complete. There is nothing to do." in told
    assert f'ralph session feedback {session.name} "..."' in told
    assert read_all() == before

    (session / "progress.md").unlink()
    done = project.ralph("session", "resume")
    assert (done.code, "There is nothing to do" in done.out) == (0, False), "a damaged session is repaired"
    assert (session / "progress.md").exists()


def test_failed_task_that_the_planner_left_as_it_was_is_not_called_planned_again(project: Project) -> None:  # noqa: F811
    assert standard.begin(project, "--land", "branch", never=["task-2"]).code == 7
    standard.write_script(project)
    project.ralph("session", "feedback", "try once more")
    done = project.ralph("session", "resume")
    assert done.code == 0, done.said
    assert "task-2 Make b.txt (to be tried again, as it was defined)" in done.out
    assert "planned again" not in done.out


@pytest.mark.parametrize(
    ("options", "grade"),
    [
        ((), "unverified. The session has no checks."),
        (("--check", "`test -f a.txt` passes"), "proven. The checks also pass in a clean checkout."),
        (("--no-clean-room", "--check", "`test -f a.txt` passes"), "accepted. You switched the clean room off."),
        (("--classic", "--check", "`test -f a.txt` passes"), "proven. The checks also pass in a clean checkout."),
        (("--classic", "--no-clean-room", "--check", "`test -f a.txt` passes"), "accepted. You switched the clean"),
    ],
)
def test_end_screen_and_report_of_a_session_say_what_supports_it(
    project: Project,  # noqa: F811
    options: tuple[str, ...],
    grade: str,
) -> None:
    if "--classic" in options:
        done = classic.begin(project, *(word for word in options if word != "--classic"))
    else:
        done = standard.begin(project, *options, instructions=standard.QUICK.format(""))
    assert done.code == 0, done.said
    assert f"Evidence: {grade}" in done.out
    assert "A reviewer that did none of the tasks accepted the whole session." in done.out
    assert f"- Evidence: {grade}" in project.ralph("report").out
    assert ("the session has no checks (--check)" in done.out) is (not options)


def test_session_refuses_options_that_cannot_change_its_verdict(project: Project) -> None:  # noqa: F811
    for options, why in (
        (("--require", "proven"), "--require proven has no effect on a session without checks"),
        (("--require", "judged"), "--require judged has no effect on a session without checks"),
        (("--judge", "claude"), "the judge of a session is its reviewer"),
    ):
        refused = standard.begin(project, *options)
        assert (refused.code, why in refused.err) == (2, True), refused.said


CHECK = ("--check", "`sh check.sh` passes")
GUTS_CHECK = {"task-1": "echo 'test -f a.txt' > check.sh"}
"""An executor that removes a condition from the check of the session."""


def begin_with_script_as_check(project: Project, *options: str, classic_layout: bool, accept: bool) -> Done:  # noqa: F811
    """A session whose check is a script of the project, which an executor makes easier to pass."""
    (project.root / "check.sh").write_text("test -f a.txt && test -f never.txt\n")
    project.git("add", "check.sh")
    project.git("commit", "-qm", "A check")
    files = [{"path": "check.sh", "accept": accept, "why": "It no longer looks for never.txt."}]
    if classic_layout:
        return classic.begin(project, *CHECK, *options, do=GUTS_CHECK, files=files)
    return standard.begin(project, *CHECK, *options, do=GUTS_CHECK, files=files, instructions=standard.QUICK.format(""))


def count_reviews(project: Project) -> int:  # noqa: F811
    return len([one for one in project.journal("turn.started") if one["role"] == "reviewer"])


@pytest.mark.parametrize("classic_layout", [False, True])
def test_changed_check_of_a_session_counts_only_if_its_reviewer_accepts_it(
    project: Project,  # noqa: F811
    classic_layout: bool,
) -> None:
    done = begin_with_script_as_check(project, classic_layout=classic_layout, accept=True)
    assert done.code == 0, done.said
    assert "Not proven so far: Tests and settings as they were before the run do not confirm the work" in done.out
    assert "Evidence: judged. The checks also pass in a clean checkout." in done.out
    assert "The reviewer of the session read and accepted 1 changed test or settings file." in done.out
    [review] = [one for one in project.journal("turn.started") if one["key"].startswith("review:session-")]
    prompt = project.ralph("prompt", "--turn", str(review["turn"]), "--json").json["prompt"]
    assert "- `judge-files.md`: the tests and settings that the session changed" in prompt


@pytest.mark.parametrize("classic_layout", [False, True])
def test_changed_check_that_the_reviewer_rejects_is_a_gap(project: Project, classic_layout: bool) -> None:  # noqa: F811
    done = begin_with_script_as_check(project, classic_layout=classic_layout, accept=False)
    assert done.code == 7, done.said
    assert "rejected: check.sh: It no longer looks for never.txt." in done.out
    assert "check.sh: It no longer looks for never.txt. Undo this change, and do the work instead." in done.out
    assert "Evidence:" not in done.out


@pytest.mark.parametrize("classic_layout", [False, True])
def test_session_that_needs_a_proof_ends_unproven_until_the_user_accepts_the_work(
    project: Project,  # noqa: F811
    classic_layout: bool,
) -> None:
    done = begin_with_script_as_check(project, "--require", "proven", classic_layout=classic_layout, accept=True)
    assert done.code == 7, done.said
    assert "all checks pass, but the work is not proven: Tests and settings as they were" in done.out
    accept = f'ralph accept {project.run.name} --because "..."'
    assert f"Next:   ralph diff {project.run.name}, then {accept}" in done.out
    assert f"accept them: `{accept}`" in project.ralph("report").out
    turns = count_reviews(project)
    accepted = project.ralph("accept", project.run.name, "--because", "I read check.sh", "--yes")
    assert (accepted.code, "Evidence: accepted. By " in accepted.out) == (0, True), accepted.said
    assert count_reviews(project) == turns, "the reviewer has accepted the whole before"


def test_turn_without_a_task_that_fails_in_every_try_asks_to_reduce_the_scope(project: Project) -> None:  # noqa: F811
    done = standard.begin(project, crash=["TASK_BREAKDOWN"], instructions=NO_RETRY)
    assert done.code == 9, done.said
    session = standard.home(project).name
    asks = f'fix it and resume, or reduce the scope: ralph resume {session} --guidance "Only ..."'
    assert f"exit code 1: I crashed; `ralph logs --output` shows why; {asks}" in done.out
    assert asks in standard.shown(project)["next_action"]
    standard.write_script(project)
    done = project.ralph("resume", session, "--guidance", "Only the first file")
    assert done.code == 0, done.said
    [turn] = [entry for entry in project.journal("turn.started") if entry["key"].startswith("plan:plan-breakdown")][1:]
    prompt = next((project.run / "turns").glob(f"{turn['turn']:05d}-*/prompt.md")).read_text()
    assert "Only the first file" in prompt


def test_split_names_its_real_cause_and_blocked_tasks_are_in_order(project: Project) -> None:  # noqa: F811
    done = standard.begin(project, "--land", "branch", crash=["task-1", "task-1.1"], many=True, instructions=NO_RETRY)
    assert done.code == 7, done.said
    progress = (standard.home(project) / "progress.md").read_text()
    assert "- [C] task-1 (split because the agent failed in every try: task-1.1, task-1.2)" in progress
    blocked = ", ".join(f"task-{number} (by task-1.1)" for number in range(2, 12))
    assert f"failed: task-1.1; blocked: {blocked}" in done.out
    assert "merged task-1.2 as " in done.out
    live = re.findall(r"^✗ (task-\d+) .*: blocked by task-1.1$", done.out, re.MULTILINE)
    assert live == [f"task-{number}" for number in range(2, 12)]


def test_ralph_attempt_is_the_attempt_at_the_task(project: Project) -> None:  # noqa: F811
    quick = standard.QUICK.format("")
    done = standard.begin(project, lazy=["task-1/1"], rejected=["task-2"], instructions=quick)
    assert done.code == 0, done.said
    attempts = [line.split() for line in Path(f"{project.extra['SCRIPT']}.attempts").read_text().splitlines()]
    assert all(task == variable and number == attempt for task, variable, number, attempt in attempts)
    assert [line[3] for line in attempts if line[0] in ("task-1", "task-2")].count("2") == 2


@pytest.mark.usefixtures("bangkok")
def test_classic_session_prints_its_contract_and_uses_local_time(project: Project) -> None:  # noqa: F811
    done = classic.begin(project, "--json", once=["lazy-task-1"])
    assert done.code == 0, done.said
    told = done.json
    assert told.keys() >= CLASSIC_CONTRACT
    assert (told["status"], told["current_state"]) == ("completed", "COMPLETE")
    assert told == told | {key: classic.shown(project)[key] for key in CLASSIC_CONTRACT}
    attempts = [line.split() for line in Path(f"{project.extra['SCRIPT']}.attempts").read_text().splitlines()]
    assert attempts == [["task-1", "task-1", "1", "1"], ["task-1", "task-1", "2", "2"], ["task-2", "task-2", "1", "1"]]
    session = classic.home(project)
    assert session.name[:6] == told["session_id"][:6] and "+07:00)" in (session / "progress.md").read_text()
    instructions = session.with_name(f"{session.name}.instructions.md").read_text()
    assert "max_attempts: 3" in instructions and "task_wip_minutes: 60" in instructions
    assert "concurrency" not in instructions and "knowledge" not in instructions, "they mean nothing here"


def test_background_start_prints_the_contract_too(project: Project) -> None:  # noqa: F811
    standard.write_script(project, instructions=standard.QUICK.format(""))
    command = shlex.join([sys.executable, "-I", str(standard.AGENT)])
    done = project.ralph("session", "new", "Build", "--agent-command", command, "--yes", "--detach", "--json")
    assert done.code == 0, done.said
    assert done.json.keys() >= CONTRACT and isinstance(done.json["current_wave"], int)
    eventually(lambda: project.journal("run.ended"))
    assert yaml(standard.home(project) / "metadata.yaml")["orchestrator"]["current_wave"] == 3


def test_current_wave_is_a_number_before_there_are_tasks(project: Project) -> None:  # noqa: F811
    done = standard.begin(project, "--json", blocked=["TASK_BREAKDOWN"])
    assert (done.code, done.json["current_wave"]) == (9, 0), done.said
    place = standard.home(project) / "metadata.yaml"
    assert yaml(place)["orchestrator"]["current_wave"] == 0
    place.unlink()
    project.ralph("session", "repair", standard.home(project).name)
    assert yaml(place)["orchestrator"]["current_wave"] == 0


@pytest.mark.parametrize("id", ["today", "../x"])
def test_wrong_ids_are_refused_by_every_command_with_an_example(project: Project, id: str) -> None:  # noqa: F811
    for words in (("resume", id), ("repair", id), ("tree", id)):
        refused = project.ralph("session", *words)
        assert (refused.code, "is not a session id" in refused.err) == (2, True), refused.said
        assert "<YYMMDD>-<hhmmss>" in refused.err and "for example 2" in refused.err, refused.err
    # `update` takes words that are no id for the text.
    refused = project.ralph("session", "update", id, "More")
    assert (refused.code, "put it in quotes" in refused.err) == (2, True), refused.said
    # `approve` takes them for what to keep, and there is no session that asks.
    refused = project.ralph("session", "approve", id)
    assert (refused.code, "there is no session here" in refused.err) == (2, True), refused.said


def executing(project: Project, task: str) -> bool:  # noqa: F811
    return any(entry["key"] == f"execute:{task}-1" for entry in project.journal("turn.started"))


def start_held_at_gate(project: Project, *words: str) -> Any:  # noqa: F811
    """A session whose executors wait until the file `gate` exists."""
    gate = str(project.home / "gate")
    standard.write_script(project, until=gate, instructions=standard.QUICK.format(""))
    command = shlex.join([sys.executable, "-I", str(standard.AGENT)])
    request = ("session", "new", "Build the files", "--agent-command", command, "--yes", "--land", "branch")
    return project.start(*request, *words)


def test_independent_task_starts_after_a_pause_in_a_task_that_is_deleted(project: Project) -> None:  # noqa: F811
    engine = start_held_at_gate(project, "--parallel", "1")
    eventually(lambda: executing(project, "task-1"))
    assert project.ralph("signal", "pause").code == 0
    eventually(lambda: project.journal("signal.accepted"))
    (project.home / "gate").touch()
    engine.communicate(timeout=300)
    assert engine.returncode == 7
    (standard.home(project) / "tasks" / "task-1.md").unlink()
    done = project.ralph("session", "resume")
    assert (done.code, "failed: task-1; blocked: task-3 (by task-1), task-4 (by task-1)" in done.out) == (7, True)
    progress = (standard.home(project) / "progress.md").read_text()
    assert "- [F] task-1 (Task definition missing)" in progress and "- [x] task-2 (" in progress


def test_task_file_deleted_during_the_run_fails_only_a_task_that_has_not_started(project: Project) -> None:  # noqa: F811
    engine = start_held_at_gate(project)
    eventually(lambda: executing(project, "task-1") and executing(project, "task-2"))
    tasks = standard.home(project) / "tasks"
    started = (tasks / "task-1.md").read_text()
    for name in ("task-1.md", "task-4.md"):
        (tasks / name).unlink()
    eventually(lambda: len(project.journal("document.edited")) == 2)
    (project.home / "gate").touch()
    said, _ = engine.communicate(timeout=300)
    assert (engine.returncode, "failed: task-4; task-4 has no definition: restore it in " in said) == (7, True), said
    assert "tasks/task-4.md was deleted, so task-4 fails: its definition is missing" in said
    assert "tasks/task-1.md was deleted or emptied while the session is running; Ralph reverted the change" in said
    assert (tasks / "task-1.md").read_text() == started and not (tasks / "task-4.md").exists()
    progress = (standard.home(project) / "progress.md").read_text()
    assert "- [F] task-4 (Task definition missing)" in progress and "- [x] task-3 (" in progress


def test_task_file_that_is_restored_during_the_run_is_done(project: Project) -> None:  # noqa: F811
    engine = start_held_at_gate(project)
    eventually(lambda: executing(project, "task-1") and executing(project, "task-2"))
    place = standard.home(project) / "tasks" / "task-4.md"
    text = place.read_text()
    place.unlink()
    eventually(lambda: "[F] task-4" in (standard.home(project) / "progress.md").read_text())
    place.write_text(text)
    eventually(lambda: "[ ] task-4" in (standard.home(project) / "progress.md").read_text())
    (project.home / "gate").touch()
    said, _ = engine.communicate(timeout=300)
    assert engine.returncode == 0, said
    assert standard.shown(project)["tasks_summary"]["completed"] == 4


def test_scope_change_during_a_review_has_a_planner_change_the_task(project: Project) -> None:  # noqa: F811
    gate = project.home / "gate"
    standard.write_script(
        project, scope="task-1", scope_in="reviewer", until_review=str(gate), instructions=standard.QUICK.format("")
    )
    command = shlex.join([sys.executable, "-I", str(standard.AGENT)])
    engine = project.start("session", "new", "Build the files", "--agent-command", command, "--yes")
    eventually(lambda: any(entry["key"] == "review:task-1-1" for entry in project.journal("turn.started")))
    project.ralph("steer", "do not make a.txt, make z.txt", "--to", "reviewer")
    eventually(lambda: project.journal("signal.accepted"))
    gate.touch()
    said, _ = engine.communicate(timeout=300)
    assert engine.returncode == 0, said
    keys = [entry["key"] for entry in project.journal("turn.started") if "task-1-" in entry["key"]]
    assert list(dict.fromkeys(keys)) == [
        *("execute:task-1-1", "review:task-1-1", "replan:task-1-1", "execute:task-1-2", "review:task-1-2")
    ]
    assert "do not make a.txt, make z.txt" in (standard.home(project) / "tasks" / "task-1.md").read_text()
    assert (project.root / "z.txt").exists()


def test_scope_change_during_the_session_review_has_a_planner_add_tasks(project: Project, layout: str) -> None:  # noqa: F811
    gate = project.home / "gate"
    if layout == "classic":
        classic.script(project, until_session_review=str(gate), once=["scope"])
        words, command = ("--classic",), classic.AGENT
    else:
        standard.write_script(project, until_session_review=str(gate), instructions=standard.QUICK.format(""))
        words, command = (), shlex.join([sys.executable, "-I", str(standard.AGENT)])
    engine = project.start("session", "new", "Build the files", *words, "--agent-command", command, "--yes")
    eventually(lambda: any(entry["key"].startswith("review:session") for entry in project.journal("turn.started")))
    assert project.ralph("steer", "one more file, please", "--to", "reviewer").code == 0
    eventually(lambda: project.journal("signal.accepted"))
    gate.touch()
    said, _ = engine.communicate(timeout=300)
    assert (engine.returncode, "a planner plans again with what you said" in said) == (0, True), said
    keys = list(dict.fromkeys(entry["key"] for entry in project.journal("turn.started")))
    planned = keys.index("plan:plan-update-1" if layout == "classic" else "critique:1.1")
    assert keys[planned - 1].startswith("review:session") and keys[planned + 1].startswith("execute:")
    received = "plan.update1.md" if layout == "classic" else "tasks/task-5.md"
    words_of_user = (standard.home(project) / received).read_text()
    assert "one more file, please" in words_of_user and "STEER scope change: make " in words_of_user
    assert (project.root / ("d.txt" if layout == "classic" else "e.txt")).exists()


def test_session_resume_gives_guidance_to_the_next_turns(project: Project, layout: str) -> None:  # noqa: F811
    session = stopped(project, layout)
    (classic.script if layout == "classic" else standard.write_script)(project)
    done = project.ralph("session", "resume", "--guidance", "Use only ASCII")
    assert done.code == 0, done.said
    last = max(entry["turn"] for entry in project.journal("turn.started"))
    assert ": Use only ASCII\n" in (project.turn(last) / "prompt.md").read_text()
    assert "Use only ASCII" in (session / "notes.md").read_text()
    for command in (("session", "resume", session.name), ("resume", session.name)):
        late = project.ralph(*command, "--guidance", "And French")
        assert late.code == 2, late.said
    late = project.ralph("session", "resume", "--guidance", "And French")
    assert "no turn of session" in late.err and f"ralph session feedback {session.name}" in late.err
    assert len(project.journal("signal.accepted")) == 1


def test_turns_that_resolve_a_conflict_name_the_task() -> None:
    assert about("resolve-task-2_1-1-1") == "the merge of task-2.1"
    assert about("resolve-task-2-3-1") == "the merge of task-2, attempt 3"
