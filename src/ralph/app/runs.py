"""The runs of a project: find one, list what it lost, and remove old runs with their worktrees.

Git is imported by the functions that use it, because `ralph status` and `ralph steer` have to start fast.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.core.errors import RalphError, UsageError
from ralph.core.values import copy_with, value
from ralph.documents.run_record import RunRecord
from ralph.store.runs import Project, RunDir, make_several_runs_error

if TYPE_CHECKING:
    from ralph.git.worktree import Removal, Worktree


def refuse_inside_a_turn(
    what: str = "an agent cannot start or resume a run", todo: str = "do the work yourself"
) -> None:
    """Refuse what agents may not do. A loop inside a loop, for example, would escape its limits."""
    if turn := os.environ.get("RALPH_TURN"):
        raise UsageError(what, where=f"RALPH_TURN={turn}", todo=todo)
    from ralph.supervisor.processes import find_surrounding_turn  # commands that only read do not need it

    if place := find_surrounding_turn():
        raise UsageError(what, where=place, todo=todo)


def record_action(project: Project, run: RunDir, action: str, result: str, by: str = "") -> str:
    """Record in the journal what the user did with a run that is not running. Returns the id by which the view shows it.

    The id is empty if the journal cannot be written: what was done is done, so that is no error.
    """
    from ralph.core.entries import ActionDone
    from ralph.core.speakers import COMMAND_LINE, name_user
    from ralph.store.documents import Documents

    id = f"{action}-{os.urandom(3).hex()}"
    try:
        documents, _ = Documents.open(project.root, run.path)
        documents.commit(
            time.time(), ActionDone(id=id, action=action, result=result, by=by or name_user(COMMAND_LINE)), {}
        )
    except (RalphError, OSError):
        return ""
    return id


def list_feedback(project: Project, run: RunDir) -> list[Path]:
    """The files with the user's feedback to a session, in any order."""
    home = project.root / ".ralph-sessions" / run.id
    return [*home.glob("iterations/*/feedbacks/*/feedbacks.md"), *home.glob("plan.update*.md")]


def find_feedback_time(project: Project, run: RunDir) -> float:
    """When the user last gave feedback to a session; 0 if there is none."""
    latest = 0.0
    for path in list_feedback(project, run):
        with contextlib.suppress(OSError):
            latest = max(latest, path.stat().st_mtime)
    return latest


def find_latest_run(project: Project, wanted: str | None) -> RunDir:
    """The named run, the one in whose worktree the user stands, or the latest."""
    if wanted := wanted or project.inside:
        return project.run(wanted)
    runs = project.runs()
    if not runs:
        raise UsageError("there is no run yet", where=str(project.root), todo="start one with `ralph loop`")
    return runs[-1]


def find_live_run(project: Project, wanted: str | None, verb: str, by: str = "") -> RunDir:
    """The named run, the one that is alive, or, if none is, the only one that can be resumed.

    `by` is the option that names a run, if it is not an argument.
    """
    if wanted := wanted or project.inside:
        return project.run(wanted)
    open_runs = project.open_runs()
    found = [run for run in open_runs if run.alive] or open_runs
    if len(found) == 1:
        return found[0]
    if found:
        what = "several runs are live" if found[0].alive else "no run is live, and several can be resumed"
        raise make_several_runs_error(f"{what}: name the one to {verb}", found, by)
    raise UsageError(f"there is no run to {verb}", where=str(project.root), todo="`ralph status --all` lists all runs")


def find_stopped_run(project: Project, wanted: str | None) -> RunDir | None:
    """The named run, or the one that stopped last, or the only one that is alive; None if all runs are over."""
    if wanted := wanted or project.inside:
        return project.run(wanted)
    open_runs = project.open_runs()
    stopped = [run for run in open_runs if not run.alive]
    if stopped:
        return max(stopped, key=lambda run: run.read_tail_summary().at)
    if len(open_runs) > 1:
        raise make_several_runs_error("no run has stopped, and several are live", open_runs)
    return open_runs[0] if open_runs else None


def find_still_missing(
    project: Project, run: RunDir, missing: tuple[str, ...], places: tuple[str, ...]
) -> tuple[str, ...]:
    """What was missing after the last turn of a run and is missing still, a sentence each.

    Only the places that were missing then are checked again: what the user deleted since is not reported.
    """
    refs = run.read_recorded_refs() if missing else None
    if not refs:
        return missing
    import shutil

    from ralph.git.command import find_repository
    from ralph.git.history import UserRefs

    if not shutil.which("git"):
        return missing
    try:
        place = find_repository(project.tree(run.record()))
        findings = UserRefs(place, run.id, refs).findings() if place else []
    except RalphError:
        return missing
    return tuple(finding.sentence for finding in findings if finding.path in places)


@value
class Cleaned:
    """Runs that were removed, or would be."""

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    """What of them stays, and why."""
    action: str = ""
    """The id of the removal. If you look for one of the runs later, Ralph says who removed it, and names this id."""
    recent: int = 0
    """How many ended runs stay because they are among the latest, or recent."""
    resumable: int = 0
    """How many more runs `stopped` removes, which can be resumed."""


def clean_runs(
    project: Project,
    wanted: str | None = None,
    *,
    keep: int | None = None,
    days: float | None = None,
    stopped: bool = False,
    dry_run: bool = False,
    by: str = "",
) -> Cleaned:
    """Remove one run, or the ended runs beyond those to keep, and the processes that they left behind."""
    from ralph.supervisor.processes import TURN_MARK, end_marked

    if wanted:
        chosen, found = [project.run(wanted)], Cleaned(removed=(), kept=())
        if chosen[0].alive:
            raise UsageError(f"run {chosen[0].id} is running", todo=f"`ralph abort {chosen[0].id}` first")
    else:
        chosen, found = _find_expired_runs(project, keep, days, stopped=stopped)
    found = copy_with(found, removed=tuple(run.id for run in chosen))
    if dry_run:
        return found
    if not wanted:
        _remove_old_caches(project)
    if not chosen:
        return found
    kept = []
    action = f"clean-{os.urandom(3).hex()}"
    for run in chosen:
        end_marked(TURN_MARK, f"{run.id}/")
        kept += _remove_run(project, run)
        project.record_removal(run.id, action, by)
    return copy_with(found, kept=tuple(kept), action=action)


def _remove_old_caches(project: Project) -> None:
    """Remove the caches of runs that have ended. Runs of older versions kept them, and so does a run that was killed."""
    from ralph.workspace.isolation import remove_caches

    for run in project.runs():
        outcome = run.outcome(claimed=True)
        if outcome and not run.alive:
            remove_caches(run.path, is_over=not outcome.resumable)


def _find_expired_runs(
    project: Project, keep: int | None, days: float | None, *, stopped: bool
) -> tuple[list[RunDir], Cleaned]:
    """Ended runs that are neither among the latest nor recent, and how many stay. With `stopped`, also resumable ones."""
    from ralph.store.settings import load_config

    retention = load_config(project.settings_dir).retention
    keep = retention.runs if keep is None else keep
    days = retention.days if days is None else days
    old = time.time() - days * 86400

    def choose(runs: list[RunDir]) -> list[RunDir]:
        return [run for run in runs[: max(0, len(runs) - keep)] if read_change_time(run.path) < old]

    outcomes = [(run, run.outcome(claimed=True)) for run in project.runs()]
    every = [run for run, outcome in outcomes if outcome]
    over = [run for run, outcome in outcomes if outcome and not outcome.resumable]
    candidates = every if stopped else over
    chosen = choose(candidates)
    resumable = 0 if stopped else len(choose(every)) - len(chosen)
    return chosen, Cleaned((), (), recent=len(candidates) - len(chosen), resumable=max(0, resumable))


def read_change_time(path: Path) -> float:
    journal = path / "journal.jsonl"
    return (journal if journal.exists() else path).stat().st_mtime


def _remove_run(project: Project, run: RunDir) -> list[str]:
    """Remove a run with its snapshots; a worktree with work that is not merged stays, and is named."""
    import shutil

    from ralph.git import worktree
    from ralph.git.snapshots import Snapshots
    from ralph.workflows.loop import HOME
    from ralph.workspace.worktree_setup import WorktreeSetup

    kept = []
    try:
        record = run.record()
        if record.snapshots and (project.root / record.workspace).is_dir():
            Snapshots.open(project.root, project.tree(record), run.id, run.path).drop()
        for tree in worktree.find_worktrees(project.root):
            into = (record.branch,) if tree.branch != record.branch else ()
            out = WorktreeSetup(tree.root, record.tree_settings).paths(tree)
            if tree.run == run.id and not (removal := worktree.remove(tree, *into, leaving_out=out)):
                kept.append(f"{tree.path.relative_to(project.root)} on {tree.branch}: {removal.why_not}")
        kept += worktree.delete_run_refs(project.root, run.id)
    except RalphError as error:
        kept.append(f"the snapshots of {run.id}: {error.what}")
    project.remove(run)
    shutil.rmtree(project.root / HOME / "loops" / run.id, ignore_errors=True)
    (project.root / ".ralph" / f"events-{run.id}.jsonl").unlink(missing_ok=True)
    return kept


@value
class RunWorktree:
    """A worktree of a run, and its state."""

    run: str
    what: str
    branch: str
    path: str
    state: str
    """`in use`, `kept`, `merged` or `removed`."""
    why: str


def list_worktrees(project: Project, *, prune: bool = False) -> list[RunWorktree]:
    """The worktrees of runs. With `prune`, those whose work is merged are removed."""
    from ralph.git import worktree

    return [_look_at_worktree(project, tree, prune=prune) for tree in worktree.find_worktrees(project.root)]


def count_worktrees(project: Project, record: RunRecord) -> int:
    """How many worktrees a run has left."""
    from ralph.git import worktree

    if not record.branch:
        return 0
    return sum(tree.run == record.id for tree in worktree.find_worktrees(project.root))


def _look_at_worktree(project: Project, tree: "Worktree", *, prune: bool) -> RunWorktree:
    run = RunDir(project.runs_dir / tree.run)
    what = {"": "the run", "merge": "merges"}.get(tree.name, tree.name)
    state, why = "in use", ""
    if not run.alive:
        removal = _remove_worktree(run, tree, really=prune)
        state, why = "kept", removal.why_not
        if removal:
            state = "removed" if prune else "merged"
    path = str(tree.path.relative_to(project.root))
    return RunWorktree(run=tree.run, what=what, branch=tree.branch, path=path, state=state, why=why)


def _remove_worktree(run: RunDir, tree: "Worktree", *, really: bool) -> "Removal":
    from ralph.git import worktree
    from ralph.workspace.worktree_setup import WorktreeSetup

    try:
        record = run.record()
        out = WorktreeSetup(tree.root, record.tree_settings).paths(tree)
        into = (record.branch,) if record.branch and tree.branch != record.branch else ()
    except (RalphError, OSError):
        out, into = (), ()
    if really:
        return worktree.remove(tree, *into, leaving_out=out)
    return worktree.check_removable(tree, *into, leaving_out=out)
