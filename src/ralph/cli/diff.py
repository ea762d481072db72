"""`ralph diff`: what a run changed."""

import sys

import click

from ralph.cli.console import here, json_option, latest_run, tell
from ralph.core.errors import UsageError
from ralph.documents.run_record import RunRecord
from ralph.git.command import Git
from ralph.git.history import HEADS
from ralph.git.snapshots import Snapshots, diff_of
from ralph.store.runs import Project, RunDir


@click.command("diff")
@click.argument("run", required=False)
@click.argument("turn", required=False, type=int)
@click.option("--stat", is_flag=True, help="Show only files and counts.")
@json_option
def command(run: str | None, turn: int | None, stat: bool, as_json: bool) -> int:
    """Show what RUN changed, or only one TURN of it. Default: the latest run."""
    project = here()
    if run and run.isascii() and run.isdigit() and len(run) < 6:
        turn, run = int(run), None
    chosen = latest_run(project, run)
    record, color = chosen.record(), not as_json and sys.stdout.isatty()
    if record.on_branch:
        old, new = _on_branch(project, record, turn)
        text = diff_of(Git(project.root), old, new, stat=stat, color=color)
    else:
        snapshots = open_snapshots(project, chosen)
        old, new = _snapshots_of(snapshots, chosen, turn)
        text = snapshots.diff(old, new, stat=stat, color=color)
    lines = [text.removesuffix("\n") if text else f"Run {chosen.id} changed nothing."]
    return tell(as_json, lines, command="diff", run=chosen.id, old=old, new=new, diff=text)


def _on_branch(project: Project, record: RunRecord, turn: int | None) -> tuple[str, str]:
    """Where the branch of a run began whose tasks have worktrees of their own, and where it stands."""
    tip = Git(project.root).commit(HEADS + record.branch)
    if turn is not None or not tip:
        what = "its tasks have worktrees of their own" if tip else f"the branch {record.branch} is gone"
        todo = f"`git log --stat {record.branch if tip else 'HEAD'}` shows what was merged of it"
        raise UsageError(f"run {record.id}: {what}", todo=todo)
    return record.base, tip


def _snapshots_of(snapshots: Snapshots, run: RunDir, turn: int | None) -> tuple[str, str]:
    """The snapshots before and after a turn, or the whole run."""
    entries = snapshots.log()
    if turn is None:
        return entries[0].sha, entries[-1].sha
    at = next((i for i, e in enumerate(entries) if e.label.startswith(f"turn {turn} ")), None)
    if not at:
        known = ", ".join(e.label for e in entries[1:]) or "none"
        raise UsageError(f"turn {turn} of run {run.id} changed nothing", todo=f"turns that did: {known}")
    return entries[at - 1].sha, entries[at].sha


def open_snapshots(project: Project, run: RunDir) -> Snapshots:
    """The snapshots of a run, or an error that says why it has none."""
    record = run.record()
    if record.snapshots:
        # They are in the repository: to be looked at, they do not need the worktree that they are of.
        removed = record.branch and not (project.root / record.workspace).is_dir()
        place = project.root if removed else project.workspace(record)
        snapshots = Snapshots.open(project.root, place, run.id, run.path)
        if snapshots.log():
            return snapshots
    raise UsageError(
        f"run {run.id} has no snapshots", where=str(run.path), todo="it was started with --no-snapshots, or never began"
    )
