"""`ralph clean`: remove old runs."""

import shutil
import time
from pathlib import Path

import click

from ralph.cli.console import here, json_option, tell
from ralph.core.errors import RalphError, UsageError
from ralph.git import worktree
from ralph.git.snapshots import Snapshots
from ralph.store.runs import Project, RunDir
from ralph.store.settings import load_config
from ralph.supervisor.processes import TURN_MARK, end_marked
from ralph.workflows.loop import HOME
from ralph.workspace.worktree_setup import WorktreeSetup


@click.command("clean")
@click.argument("run", required=False)
@click.option("--keep", type=click.IntRange(min=0), help="Ended runs to keep. Default: 20.")
@click.option("--older-than", type=click.FloatRange(min=0), help="Days for which every ended run is kept. Default: 30.")
@click.option("--stopped", is_flag=True, help="Also remove runs that stopped and could be resumed.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def command(
    run: str | None, keep: int | None, older_than: float | None, stopped: bool, dry_run: bool, as_json: bool
) -> int:
    """Remove ended runs beyond those to keep, or one RUN; and whatever processes dead runs left behind.

    A run that is under way stays. One that stopped and could be resumed stays, unless it is named or --stopped is given.
    """
    project = here()
    if run:
        chosen = [project.run(run)]
        if chosen[0].alive:
            raise UsageError(f"run {chosen[0].id} is under way", todo=f"`ralph abort {chosen[0].id}` first")
    else:
        retention = load_config(project.root).retention
        most = retention.runs if keep is None else keep
        days = retention.days if older_than is None else older_than
        chosen = _expired(project, most, days, stopped=stopped)
    orphans = 0
    kept: list[str] = []
    for one in chosen:
        if not dry_run:
            orphans += end_marked(TURN_MARK, f"{one.id}/")
            kept += _remove(project, one)
    removed = [one.id for one in chosen]
    lines = [f"{'Would remove' if dry_run else 'Removed'} {len(removed)} runs. {' '.join(removed)}".rstrip()]
    lines += [f"Kept: {line}" for line in kept]
    facts = {"removed": removed, "dry_run": dry_run, "processes_ended": orphans, "kept": kept}
    return tell(as_json, lines, command="clean", **facts)


def _expired(project: Project, keep: int, days: float, *, stopped: bool) -> list[RunDir]:
    """Ended runs that are neither among the latest nor young; if asked for, also those that could be resumed."""
    found = [(run, run.outcome(claimed=True)) for run in project.runs()]
    ended = [run for run, outcome in found if outcome and (stopped or not outcome.resumable)]
    old = time.time() - days * 86400
    return [run for run in ended[: max(0, len(ended) - keep)] if _touched(run.path) < old]


def _touched(path: Path) -> float:
    return (path / "journal.jsonl").stat().st_mtime if (path / "journal.jsonl").exists() else path.stat().st_mtime


def _remove(project: Project, run: RunDir) -> list[str]:
    """Remove a run with its snapshots; a worktree with work that is not merged stays, and is named."""
    kept = []
    try:
        record = run.record()
        if record.snapshots and (project.root / record.workspace).is_dir():
            Snapshots.open(project.root, project.workspace(record), run.id, run.path).drop()
        for tree in worktree.find_worktrees(project.root):
            into = (record.branch,) if tree.branch != record.branch else ()
            out = WorktreeSetup(tree.root, record.trees).paths(tree)
            if tree.run == run.id and not (removal := worktree.remove(tree, *into, leaving_out=out)):
                kept.append(f"{tree.path.relative_to(project.root)} on {tree.branch}: {removal.why_not}")
        kept += worktree.forget(project.root, run.id)
    except RalphError as error:
        kept.append(f"the snapshots of {run.id}: {error.what}")
    project.remove(run)
    shutil.rmtree(project.root / HOME / "loops" / run.id, ignore_errors=True)
    (project.root / ".ralph" / f"events-{run.id}.jsonl").unlink(missing_ok=True)
    return kept
