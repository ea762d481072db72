"""`ralph abort`: end a run for good, and take its changes back where that is asked for."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from ralph.cli.choose_run import live_run
from ralph.cli.console import here, json_option, latest_run, tell
from ralph.cli.restore import at_rest, refuse_on_branch, written
from ralph.core.errors import UsageError
from ralph.core.signals import Signal, SignalType
from ralph.engine.ports import Observer
from ralph.git.commits import TakenOff, take_off
from ralph.git.snapshots import Restored
from ralph.store.runs import Project, RunDir

Reverted = tuple[Restored, TakenOff]
"""What was taken back of a run: its files, and its commits."""


@click.command("abort")
@click.argument("run", required=False)
@click.option("--message", default="", help="The reason, for the journal.")
@click.option(
    "--revert/--keep-changes",
    help="Restore every file as it was before the run, even if the run is over. Default: keep the changes.",
)
@click.option("--yes", is_flag=True, help="Revert without asking.")
@json_option
def command(run: str | None, message: str, revert: bool, yes: bool, as_json: bool) -> int:
    """End RUN for good. Default: the run that is alive. If none is, the only one that can be resumed.

    The turn under way is ended with all its processes; files stay as they are. With --revert they go back to what they were
    before the run, and so does the branch if only the run committed to it. If all runs are over, --revert takes back the
    latest.
    """
    project = here()
    over = revert and not run and not project.open_runs()
    chosen = latest_run(project, None) if over else live_run(project, run, "abort")
    outcome = chosen.outcome()
    over = outcome is not None and not outcome.resumable
    if over and not revert:
        todo = f"there is nothing to abort; `ralph abort {chosen.id} --revert` takes its changes back"
        raise UsageError(f"run {chosen.id} is over: {outcome}", todo=todo)
    if revert:
        _ask(chosen, yes=yes)
    if not over:
        end(project, chosen, message or "aborted by `ralph abort`")
    reverted = _revert(project, chosen) if revert else None
    facts: dict[str, Any] = {"outcome": chosen.outcome(), "alive": chosen.alive, "reverted": reverted is not None}
    if reverted:
        files, history = reverted
        facts |= {"before": files.before, "files": files.files, "commits": history.commits}
        facts["notices"] = (*files.notices, *history.notices)
    return tell(as_json, _lines(chosen, reverted), command="abort", run=chosen.id, **facts)


def _ask(run: RunDir, *, yes: bool) -> None:
    """Have a person agree, before anything is done."""
    refuse_on_branch(run)
    if not run.record().snapshots:
        todo = f"it was started with --no-snapshots; `ralph abort {run.id}` ends it and leaves the files"
        raise UsageError(f"run {run.id} has no snapshots to go back to", where=str(run.path), todo=todo)
    if yes:
        return
    what = f"Every file goes back to what it was before run {run.id}, also where you changed it yourself since."
    if not sys.stdin.isatty():
        todo = f"give --yes; `ralph diff {run.id}` shows what would be taken back"
        raise UsageError("nobody is here to agree", where=what, todo=todo)
    if not click.confirm(f"{what}\nGo ahead?", err=True):
        raise click.Abort


def end(project: Project, run: RunDir, message: str) -> None:
    """End a run, by its engine where it has one."""
    if run.alive:
        run.mailbox.post(Signal("", SignalType.ABORT, message))
        _wait_until_over(run)
    else:
        from ralph.app.engine import abort_on_disk

        abort_on_disk(project, run, Observer(), message)


def _wait_until_over(run: RunDir) -> None:
    """Wait as long as an engine may need to end its turn: grace, kill, and the report."""
    deadline = time.monotonic() + 60
    while run.alive and time.monotonic() < deadline:
        time.sleep(0.05)


def _revert(project: Project, run: RunDir) -> Reverted:
    """Make the tree what it was before the run: the files, then the branch where only the run committed to it."""
    if run.alive:
        todo = f"once it is over: `ralph abort {run.id} --revert`"
        raise UsageError(f"run {run.id} is still ending its turn; nothing was taken back", todo=todo)
    with at_rest(project, run) as snapshots:
        files = snapshots.restore(snapshots.base() or "", "revert")
        return files, take_off(snapshots, run.id)


def _lines(run: RunDir, reverted: Reverted | None) -> Iterator[str]:
    outcome = run.outcome() or "still ending its turn"
    if run.record().on_branch:
        yield f"Run {run.id}: {outcome}. What was merged of it is on the branch {run.record().branch}."
        yield f"Next:   ralph diff {run.id}   ralph worktrees"
        return
    if reverted is None:
        yield f"Run {run.id}: {outcome}. The files are as the last turn left them."
        yield f"Next:   ralph diff {run.id}   ralph undo {run.id}   ralph abort {run.id} --revert"
        return
    files, history = reverted
    yield f"Run {run.id}: {outcome}. The files are as before the run: {len(files.files)} written."
    yield from written(files)
    yield from (f"note: {notice}" for notice in history.notices)
    back = [f"ralph undo {run.id}"] if files.files else []
    if commits := history.commits:
        yield f"{len(commits)} commits of the run were taken off the branch; the last was {commits[0]}."
        back.append(f"git reset {commits[0][:12]}")
    if back:
        yield f"Next:   {'   '.join(back)} (takes this back)"
