"""The use cases as another interface calls them: values come back, errors are raised, and nothing is printed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.app.changes import diff_run, restore_iteration, revert_run, undo_turn
from ralph.app.loop import LoopRequest, plan_loop
from ralph.app.reports import list_reports, read_receipt, read_report
from ralph.app.resume import ResumeOptions, plan_resume, prepare_resume
from ralph.app.run_engine import run_engine
from ralph.app.run_options import RunOptions
from ralph.app.runs import clean_runs, find_latest_run, list_worktrees
from ralph.app.start import NewRun, open_new_run, preview_run
from ralph.app.steer import end_run, find_run_to_abort, list_signals, post_signal
from ralph.app.views import open_view
from ralph.core.errors import UsageError
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.speakers import COMMAND_LINE, name_user
from ralph.engine.ports import Observer
from ralph.store.runs import Project, RunDir
from ralph.store.settings import user_settings_path

AGENT = """
n=$(cat count 2>/dev/null || echo 0); n=$((n + 1)); echo $n > count
echo "turn $n" > work.txt
if [ $n -ge 2 ]; then touch done.txt; fi
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Project]:
    root = tmp_path / "project"
    root.mkdir()
    (root / "agent.sh").write_text(AGENT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(root)
    yield Project(root)
    out, err = capfd.readouterr()
    assert (out, err) == ("", ""), "a use case printed something"


def plan(project: Project, **options: int) -> NewRun:
    request = LoopRequest("Make done.txt", "`test -f done.txt` passes", on_stuck="continue")
    return plan_loop(project, request, RunOptions(agent_command="sh agent.sh", **options))


def work(project: Project, new: NewRun) -> tuple[RunDir, Outcome]:
    new.find_consent().give()
    with open_new_run(new) as (run, notices):
        return run, asyncio.run(run_engine(project, run, Observer(), notices)).outcome


def test_run_is_planned_previewed_started_and_read(project: Project) -> None:
    new = plan(project)
    shown = preview_run(new)
    assert "Make done.txt" in shown.prompt
    assert list(shown.agents.values()) == ["sh agent.sh"]
    assert project.runs() == [], "planning writes nothing"
    run, outcome = work(project, new)
    assert outcome is Outcome.SUCCESS
    assert find_latest_run(project, None) == run
    assert [row["turn"] for row in read_receipt(project, [run]).turns] == [1, 2]
    assert [report.outcome for report in list_reports(project)] == ["success"]
    text = read_report(project)
    assert (text.report.run, text.is_changed, text.doubt) == (run.id, False, "")


def test_changes_are_compared_undone_restored_and_reverted(project: Project) -> None:
    run, _ = work(project, plan(project))
    assert "+turn 2" in diff_run(project, run).text
    assert "-turn 1" in diff_run(project, run, 2).text
    undone = undo_turn(project, run, by="web:phone")
    assert set(undone.undone.restored.files) == {"count", "done.txt", "work.txt"}
    restored = restore_iteration(project, run, "2")
    assert restored.number == 2
    assert (project.root / "done.txt").exists()
    reverted = revert_run(project, run)
    assert "done.txt" in reverted.files.files
    assert not (project.root / "work.txt").exists()
    shown = [(one.id, one.by, one.result) for one in open_view(project, run).actions]
    assert shown == [
        (undone.action, "web:phone", "undid turn 2 (implementer): 2 files written, 1 deleted"),
        (restored.action, name_user(COMMAND_LINE), "restored the files as iteration 2 left them: 3 files written"),
        (reverted.action, name_user(COMMAND_LINE), "reverted what the run changed: 3 files deleted"),
    ]


def test_stopped_run_is_signalled_resumed_and_ended(project: Project) -> None:
    run, outcome = work(project, plan(project, max_iterations=1))
    assert outcome is Outcome.LIMIT_ITERATIONS
    sent = post_signal(project, Signal("", SignalType.STEER, "use tabs"), "", None)
    assert sent.run == run
    assert [(row.type, row.state) for row in list_signals(project, run)] == [("STEER", "waiting")]
    with pytest.raises(UsageError, match="is too low"):
        plan_resume(project, run, ResumeOptions(max_iterations=1))
    planned = plan_resume(project, run, ResumeOptions(max_iterations=5, deadline="2099-01-01T00:00"))
    assert planned.limits.iterations == 5
    prepare_resume(planned)
    stop = asyncio.run(run_engine(project, run, Observer(), planned.notices, granted=planned.limits, resumes=True))
    assert stop.outcome is Outcome.SUCCESS
    with pytest.raises(UsageError, match="there is no run to abort"):
        find_run_to_abort(project, None, revert=False)


def test_run_that_is_aborted_can_be_cleaned(project: Project) -> None:
    run, _ = work(project, plan(project, max_iterations=1))
    end_run(project, find_run_to_abort(project, None, revert=False), "enough")
    assert run.outcome() is Outcome.ABORTED
    assert list_worktrees(project) == []
    cleaned = clean_runs(project, keep=0, days=0, by="web:phone")
    assert cleaned.removed == (run.id,) and project.runs() == []
    with pytest.raises(UsageError, match=rf"run {run.id} was removed on .* by web:phone \({cleaned.action}\)"):
        project.run(run.id)


def test_nothing_starts_before_the_user_agreed(project: Project) -> None:
    new = plan(project)
    consent = new.find_consent()
    assert [item.name for item, _ in consent.new] == ["agent sh agent.sh", "agent.sh"]
    with pytest.raises(UsageError, match=r"not agreed to this yet: agent sh agent.sh, agent.sh"), open_new_run(new):
        pytest.fail("the run was created")
    assert project.runs() == []
    consent.give()
    assert not new.find_consent().new


def test_nothing_continues_with_what_the_user_has_not_agreed_to(project: Project) -> None:
    run, _ = work(project, plan(project, max_iterations=1))
    (project.root / "agent.sh").write_text(f"{AGENT}\ntouch evil\n")
    planned = plan_resume(project, run, ResumeOptions(max_iterations=5))
    with pytest.raises(UsageError, match=r"not agreed to this yet: agent.sh"):
        prepare_resume(planned)
    other = plan_resume(project, run, ResumeOptions(max_iterations=5, agent_command="sh other.sh"))
    again, anew = other.find_consents()
    assert not again.new
    assert "agent sh other.sh" in [item.name for item, _ in anew.new]


def test_settings_of_the_user_can_agree_to_everything(project: Project) -> None:
    settings = user_settings_path()
    settings.parent.mkdir(parents=True)
    settings.write_text("permissions: full-auto\n")
    with open_new_run(plan(project)) as (run, _):
        assert run.path.is_dir()


def test_run_that_cannot_begin_leaves_nothing(project: Project) -> None:
    new = plan(project)
    new.find_consent().give()
    (project.root / ".ralph").mkdir(exist_ok=True)
    with pytest.raises(UsageError, match="for a reason"), open_new_run(new) as (run, _):
        assert run.path.is_dir()
        raise UsageError("for a reason")
    assert project.runs() == []
