"""`ralph diff`: what a run changed."""

import sys

import click

from ralph.cli.console import here, json_option, latest_run, tell
from ralph.core.errors import UsageError
from ralph.git.snapshots import Snapshots
from ralph.store.runs import Project, RunDir


@click.command("diff")
@click.argument("run", required=False)
@click.argument("turn", required=False, type=int)
@click.option("--stat", is_flag=True, help="Only files and counts.")
@json_option
def command(run: str | None, turn: int | None, stat: bool, as_json: bool) -> int:
    """Show what RUN (the latest) changed in all, or what one TURN of it changed."""
    project = here()
    if run and run.isascii() and run.isdigit() and len(run) < 6:
        turn, run = int(run), None
    chosen = latest_run(project, run)
    snapshots = open_snapshots(project, chosen)
    entries = snapshots.log()
    if turn is None:
        old, new = entries[0].sha, entries[-1].sha
    else:
        at = next((i for i, e in enumerate(entries) if e.label.startswith(f"turn {turn} ")), None)
        if not at:
            known = ", ".join(e.label for e in entries[1:]) or "none"
            raise UsageError(f"turn {turn} of run {chosen.id} changed nothing", todo=f"turns that did: {known}")
        old, new = entries[at - 1].sha, entries[at].sha
    text = snapshots.diff(old, new, stat=stat, color=not as_json and sys.stdout.isatty())
    lines = [text.removesuffix("\n") if text else f"Run {chosen.id} changed nothing."]
    return tell(as_json, lines, command="diff", run=chosen.id, old=old, new=new, diff=text)


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
