"""`ralph restore`: bring the files back as an iteration left them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ralph.cli.console import here, json_option, latest_run, tell
from ralph.cli.diff import open_snapshots
from ralph.core.errors import LockedError, StateError, UsageError
from ralph.git.repository import shown
from ralph.git.snapshots import Restored, Snapshots
from ralph.store.files import read_limited
from ralph.store.journal import read_raw
from ralph.store.runs import Project, RunDir
from ralph.workflows.loop import HOME

if TYPE_CHECKING:
    from ralph.app.tree_lock import TreeLock

LISTED = 20
"""How many files are named."""


@click.command("restore")
@click.argument("which", metavar="best|N|base")
@click.argument("run", required=False)
@json_option
def command(which: str, run: str | None, as_json: bool) -> int:
    """Bring the files back as iteration N of RUN (the latest) left them, the best one, or as they were before the run.

    The tree is recorded first, and only files that differ are written.
    """
    project = here()
    chosen = latest_run(project, run)
    with at_rest(project, chosen) as snapshots:
        number, snapshot = target_of(which, project, chosen, snapshots)
        restored = snapshots.restore(snapshot, f"restore iteration {number}" if number else "restore before the run")
    state = f"iteration {number} left them" if number else "they were before the run"
    lines = [f"Nothing was written: the files are already as {state}.", *written(restored)]
    if restored.files:
        lines[0] = f"The files are as {state} (run {chosen.id}): {len(restored.files)} written."
        lines.append(f"Next:   ralph diff {chosen.id}   ralph undo {chosen.id} (takes this back)")
    facts = {"iteration": number, "snapshot": snapshot, "before": restored.before}
    facts |= {"files": restored.files, "notices": restored.notices}
    return tell(as_json, lines, command="restore", run=chosen.id, **facts)


@contextmanager
def at_rest(project: Project, run: RunDir) -> Iterator[Snapshots]:
    """The snapshots of a run that nobody works on, with its tree kept from other runs meanwhile."""
    from ralph.app.tree_lock import TreeLock

    if run.alive:
        raise UsageError(f"run {run.id} is under way", todo=f"`ralph abort {run.id}` first")
    refuse_on_branch(run)
    tree = TreeLock(project, run.id, project.workspace(run.record()) / ".ralph" / "tree.lock")
    lock = run.lock()
    try:
        _take(tree, run)
        yield open_snapshots(project, run)
    finally:
        if tree.held:
            tree.release()
        lock.release()


def refuse_on_branch(run: RunDir) -> None:
    """A tree that a run never wrote to is the user's own: nothing is taken back there."""
    if (record := run.record()).on_branch:
        todo = f"`ralph diff {run.id}` shows what it did; what of it was landed, `git revert` takes back"
        raise UsageError(f"run {run.id} works on the branch {record.branch}, not in your tree", todo=todo)


def _take(tree: "TreeLock", run: RunDir) -> None:
    """Claim the tree; a keeper that is about to go is waited for, one with a living agent is not."""
    deadline = time.monotonic() + 3.0
    while tree.take() == -1:
        if time.monotonic() > deadline:
            raise LockedError(
                f"an agent of run {run.id} is still at work, without an engine",
                where=str(tree.path),
                todo=f"`ralph abort {run.id}` ends it",
            )
        time.sleep(0.02)


def target_of(which: str, project: Project, run: RunDir, snapshots: Snapshots) -> tuple[int, str]:
    """The iteration that is meant, 0 for before the run, and the snapshot that it left."""
    if which == "base":
        return 0, snapshots.base() or ""
    known = {entry.sha for entry in snapshots.log()}
    iterations = {number: sha for number, sha in iterations_of(run).items() if sha in known}
    if which == "best":
        best = _best(project, run)
        number, sha = best.get("number"), best.get("snapshot")
        if isinstance(number, int) and (sha in known or number in iterations):
            return number, str(sha) if sha in known else iterations[number]
        raise UsageError(f"run {run.id} has no best iteration yet", todo=_choices(iterations))
    number = int(which) if which.isascii() and which.isdigit() and len(which) < 10 else 0
    if number in iterations:
        return number, iterations[number]
    raise UsageError(f"run {run.id} has no iteration {which[:40]!r}", todo=_choices(iterations))


def iterations_of(run: RunDir) -> dict[int, str]:
    """The snapshot that each iteration of a run left, as the journal has it."""
    found: dict[int, str] = {}
    for _, line in read_raw(run.path / "journal.jsonl"):
        name, _, number = str(line.get("key")).rpartition("-")
        if line.get("type") == "turn.ended" and name == "iteration" and number.isdigit():
            result = line.get("result")
            change = result.get("change") if isinstance(result, dict) else None
            if isinstance(change, dict) and isinstance(change.get("snapshot"), str):
                found[int(number)] = change["snapshot"]
    return found


def _best(project: Project, run: RunDir) -> dict[str, Any]:
    path = project.root / HOME / "loops" / run.id / "state.json"
    try:
        best = json.loads(read_limited(path)).get("best")
    except (OSError, StateError, ValueError, AttributeError, RecursionError):
        return {}
    return best if isinstance(best, dict) else {}


def _choices(iterations: dict[int, str]) -> str:
    numbers = sorted(iterations)
    if not numbers:
        return "no iteration has been recorded; `ralph restore base` goes back to before the run"
    listed = ", ".join(map(str, numbers[-LISTED:]))
    earlier = f"{numbers[0]} to " if len(numbers) > LISTED else ""
    return f"there are {earlier}{listed}, and `base`, which is before the run"


def written(restored: Restored) -> Iterator[str]:
    """Which files were written, and where the tree as it was can be found."""
    yield from (f"  {shown(path)}" for path in restored.files[:LISTED])
    if len(restored.files) > LISTED:
        yield f"  and {len(restored.files) - LISTED} more"
    yield from (f"note: {notice}" for notice in restored.notices)
    if restored.files:
        yield f"Nothing is lost: the tree as it was is recorded as {restored.before[:12]}."
