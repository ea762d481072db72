"""What a run changed: show it, undo it, restore an earlier state, or revert all of it."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ralph.app.runs import record_action, refuse_inside_a_turn
from ralph.app.views import read_facts, read_turns
from ralph.core.errors import LockedError, StateError, UsageError
from ralph.core.events import MergeResult
from ralph.core.ids import WorkKey, WorkKind, name_wave_worktree
from ralph.core.text import count
from ralph.documents.run_record import RunRecord
from ralph.git.command import Git, printable
from ralph.git.commits import RemovedCommits, TurnSpan, remove_commits
from ralph.git.history import HEADS
from ralph.git.snapshots import STOPPED, Restored, Snapshots, Undone, format_diff, read_file
from ralph.store.files import read_limited
from ralph.store.runs import Project, RunDir
from ralph.view.work import name_task
from ralph.workflows.loop import HOME

if TYPE_CHECKING:
    from ralph.app.run_engine import TreeLock

__all__ = [
    "Diff",
    "Restored",
    "RestoredIteration",
    "Reverted",
    "describe_written",
    "diff_run",
    "name_files",
    "open_file_reader",
    "open_snapshots",
    "refuse_revert",
    "restore_iteration",
    "revert_run",
    "undo_turn",
]
LISTED = 20
"""How many files or iterations are listed."""


@dataclass(frozen=True)
class Diff:
    """What changed between two commits or snapshots."""

    old: str
    new: str
    text: str
    mixed: tuple[str, ...] = ()
    """Files that have changes of the user, too, in the same lines. The text shows the changes of both."""


@dataclass(frozen=True)
class RestoredIteration:
    """An iteration whose files are back; 0 is before the run."""

    number: int
    snapshot: str
    restored: Restored
    action: str
    """The id by which the view shows it."""


@dataclass(frozen=True)
class Reverted:
    """What was reverted of a run."""

    files: Restored
    history: RemovedCommits
    submodules: tuple[str, ...] = ()
    """The changed submodules whose files are not in the snapshots: those that were added or checked out during the run."""
    action: str = ""
    """The id by which the view shows it."""


def diff_run(
    project: Project,
    run: RunDir,
    turn: int | None = None,
    *,
    task: str = "",
    stat: bool = False,
    ignores_space: bool = False,
) -> Diff:
    """Compare the state before a run with the state after it. The same for one of its turns, or one of its tasks."""
    form = {"stat": stat, "ignores_space": ignores_space}
    git = Git(project.root)
    if run.record().on_branch:
        old, new = _find_on_branch(project, run, turn, task)
        return Diff(old, new, format_diff(git, old, new, **form))
    worktree, commit = _find_merge_of(project, run, turn) if turn is not None else ("", "")
    if commit:
        return Diff(f"{commit}~", commit, format_diff(git, f"{commit}~", commit, **form))
    snapshots = open_snapshots(project, run)
    if turn is None and not task:
        old, new = _find_snapshots_of_run(snapshots)
        return Diff(old, new, snapshots.diff(old, new, **form), snapshots.list_mixed_files())
    turns = _list_turns_of_task(project, run, task) if turn is None else [turn]
    old, _ = _find_snapshots_of_turn(snapshots, run, turns[0], worktree)
    _, new = _find_snapshots_of_turn(snapshots, run, turns[-1], worktree)
    return Diff(old, new, snapshots.diff(old, new, **form))


def open_file_reader(project: Project, run: RunDir) -> Callable[[str, str], bytes | None]:
    """A function that reads a file as it was in a commit or snapshot of a run; it returns None if the file is not there."""
    if run.record().on_branch:
        return partial(read_file, Git(project.root))
    return open_snapshots(project, run).read_file


@dataclass(frozen=True)
class UndoneTurn:
    """A turn that was undone."""

    undone: Undone
    action: str
    """The id by which the view shows it."""


def undo_turn(project: Project, run: RunDir, *, force: bool = False, by: str = "") -> UndoneTurn:
    """Undo what the last turn of a run changed. The tree is recorded first.

    `by` is who did it, if another interface than the command line did: the journal records that.
    """
    refuse_inside_a_turn("an agent cannot undo turns", "change the files yourself")
    with _open_idle_tree(project, run) as snapshots:
        undone = snapshots.undo(force=force, by_user=not run.was_killed_in_a_turn)
        result = f"undid {undone.undone.label}: {describe_written(undone.restored)}"
        return UndoneTurn(undone, record_action(project, run, "undo", result, by))


def restore_iteration(
    project: Project, run: RunDir, which: str, *, force: bool = False, by: str = ""
) -> RestoredIteration:
    """Restore the files as an iteration left them: its number, `best`, or `base` for before the run.

    What the user changed while the run was stopped stays. With `force`, these files are restored, too.
    """
    refuse_inside_a_turn("an agent cannot restore iterations", "change the files yourself")
    with _open_idle_tree(project, run) as snapshots:
        number, snapshot = _find_iteration(which, project, run, snapshots)
        label = f"restore iteration {number}" if number else "restore before the run"
        by_user = not run.was_killed_in_a_turn
        restored = snapshots.restore(snapshot, label, force=force, by_user=by_user)
        state = f"iteration {number} left them" if number else "they were before the run"
        result = f"restored the files as {state}: {describe_written(restored)}"
        action = record_action(project, run, "restore", result, by)
        return RestoredIteration(number, snapshot, restored, action)


def refuse_revert(run: RunDir) -> None:
    """Refuse to revert a run that cannot be reverted, before anything is done."""
    _refuse_on_branch(run)
    if not run.record().snapshots:
        todo = f"it was started with --no-snapshots; `ralph abort {run.id}` ends it and leaves the files"
        raise UsageError(f"run {run.id} has no snapshots to go back to", where=str(run.path), todo=todo)


def revert_run(project: Project, run: RunDir, *, force: bool = False) -> Reverted:
    """Take back what the run changed, then the branch if only the run committed to it. `force` as in `restore_iteration`."""
    from ralph.app.reports import note_revert  # it reads views, which `ralph diff` does not need

    if run.alive:
        todo = f"try again when it is over: `ralph abort {run.id} --revert`"
        raise UsageError(f"run {run.id} is still ending its turn; nothing was reverted", todo=todo)
    with _open_idle_tree(project, run) as snapshots:
        base = snapshots.base() or ""
        files = snapshots.restore(base, "revert", force=force, by_user=not run.was_killed_in_a_turn)
        changed = _find_changed_submodules(Git(snapshots.repository.top), base)
        submodules = tuple(path for path in changed if path not in snapshots.submodules)
        turns = read_turns(project, run).turns
        spans = [TurnSpan(turn.number, turn.head_before, turn.head_after) for turn in turns]
        reverted = Reverted(files, remove_commits(snapshots, run.id, spans), submodules)
        note_revert(project, run, _describe_revert(run, reverted))
        result = f"reverted what the run changed: {describe_written(files)}"
        return replace(reverted, action=record_action(project, run, "revert", result))


def _describe_revert(run: RunDir, reverted: Reverted) -> str:
    """What the report of a run says after the run was reverted."""
    files, commits = reverted.files, reverted.history.commits
    except_later = ", except those that were changed later" if files.shared or files.kept else ""
    # In the past tense: the user may undo the revert.
    lines = [
        "The run is closed. `ralph abort --revert` reverted it: all files that git does not ignore went back to their state"
        f" before the run{except_later}."
    ]
    if reverted.submodules:
        lines.append(f"Not restored: {', '.join(f'the submodule {path}' for path in reverted.submodules)}.")
    back = [f"`ralph undo {run.id}`"] if files.files else []
    back += [f"`git reset {commits[0][:12]}`"] if commits else []
    if back:
        lines.append(f"Undo the revert with {' and '.join(back)}.")
    return " ".join(lines)


def _find_changed_submodules(git: Git, base: str) -> Iterator[str]:
    """The submodules with uncommitted changes, or at another commit than in a snapshot."""
    from ralph.git.worktree import list_submodules

    for _, path in list_submodules(git):
        own = Git(git.cwd / path)
        if not (own.cwd / ".git").exists():
            continue
        recorded = git.run("rev-parse", "--verify", "--quiet", f"{base}:{path}", ok=(0, 1)).text
        if own.run("status", "--porcelain").out or own.resolve_commit() != recorded:
            yield path


def describe_written(restored: Restored) -> str:
    """How many files were written, and how many deleted."""
    deleted = len(restored.deleted)
    written = len(restored.files) - deleted
    if not deleted:
        return f"{count(written, 'file')} written"
    if not written:
        return f"{count(deleted, 'file')} deleted"
    return f"{count(written, 'file')} written, {deleted} deleted"


def name_files(files: Sequence[str]) -> list[str]:
    """The names of some files as they can be printed, and how many more there are."""
    names = [printable(path) for path in files[:LISTED]]
    if len(files) > LISTED:
        names.append(f"and {len(files) - LISTED} more")
    return names


@contextmanager
def _open_idle_tree(project: Project, run: RunDir) -> Iterator[Snapshots]:
    """The snapshots of a run that is not running. Its tree stays locked for other runs meanwhile."""
    from ralph.app.run_engine import TreeLock  # it takes long to import, and `ralph diff` does not need it

    if run.alive:
        raise UsageError(f"run {run.id} is running", todo=f"`ralph abort {run.id}` first")
    _refuse_on_branch(run)
    tree = TreeLock(project, run.id, project.tree(run.record()) / ".ralph" / "tree.lock")
    lock = run.lock()
    try:
        _take(tree, run)
        yield open_snapshots(project, run)
    finally:
        if tree.lock:
            tree.release()
        lock.release()


def _refuse_on_branch(run: RunDir) -> None:
    """Refuse a run on a branch of its own: it never wrote to the user's tree, so there is nothing to undo."""
    if (record := run.record()).on_branch:
        todo = f"`ralph diff {run.id}` shows its work; `git revert` undoes what was landed"
        raise UsageError(f"run {run.id} works on the branch {record.branch}, not in your tree", todo=todo)


def _take(tree: "TreeLock", run: RunDir) -> None:
    """Claim the tree. Wait for a keeper that is about to exit, but not for one with a live agent."""
    deadline = time.monotonic() + 3.0
    while tree.acquire() == -1:
        if time.monotonic() > deadline:
            raise LockedError(
                f"an agent of run {run.id} is still working, but its engine is gone",
                where=str(tree.path),
                todo=f"`ralph abort {run.id}` ends it",
            )
        time.sleep(0.02)


def _find_iteration(which: str, project: Project, run: RunDir, snapshots: Snapshots) -> tuple[int, str]:
    """The iteration that is meant, 0 for before the run, and the snapshot that it left."""
    if which == "base":
        return 0, snapshots.base() or ""
    known = {entry.sha for entry in snapshots.log()}
    iterations = {number: sha for number, sha in _list_snapshots_by_iteration(project, run).items() if sha in known}
    if which == "best":
        best = _find_best(project, run)
        number, sha = best.get("number"), best.get("snapshot")
        if number == 0:
            return 0, snapshots.base() or ""
        if isinstance(number, int) and (sha in known or number in iterations):
            return number, str(sha) if sha in known else iterations[number]
        raise UsageError(f"run {run.id} has no best iteration yet", todo=_list_choices(iterations))
    number = int(which) if which.isascii() and which.isdigit() and len(which) < 10 else 0
    if number in iterations:
        return number, iterations[number]
    raise UsageError(f"run {run.id} has no iteration {which[:40]!r}", todo=_list_choices(iterations))


def _list_snapshots_by_iteration(project: Project, run: RunDir) -> dict[int, str]:
    """The snapshot that each iteration of a run left."""
    found: dict[int, str] = {}
    for turn in read_turns(project, run).turns:
        work = WorkKey.parse(turn.key)
        if work and work.kind is WorkKind.ITERATION and turn.snapshot:
            found[work.number] = turn.snapshot
    return found


def _find_best(project: Project, run: RunDir) -> dict[str, Any]:
    path = project.root / HOME / "loops" / run.id / "state.json"
    try:
        best = json.loads(read_limited(path)).get("best")
    except (OSError, StateError, ValueError, AttributeError, RecursionError):
        return {}
    return best if isinstance(best, dict) else {}


def _list_choices(iterations: dict[int, str]) -> str:
    numbers = sorted(iterations)
    if not numbers:
        return "there are no recorded iterations; `ralph restore base` restores the files before the run"
    listed = ", ".join(map(str, numbers[-LISTED:]))
    earlier = f"{numbers[0]} to " if len(numbers) > LISTED else ""
    return f"choose from {earlier}{listed}, or `base` for the files before the run"


def _find_on_branch(project: Project, run: RunDir, turn: int | None, task: str) -> tuple[str, str]:
    """What to compare for a turn, a task or the whole of a run whose tasks have worktrees of their own."""
    if turn is not None:
        return _find_turn_on_branch(project, run, turn)
    if not task:
        return _find_ends_of_branch(project, run.record())
    if commit := _find_merge_of_task(project, run, task):
        return f"{commit}~", commit
    turns = _list_turns_of_task(project, run, task)
    return _find_turn_on_branch(project, run, turns[0])[0], _find_turn_on_branch(project, run, turns[-1])[1]


def _find_merge_of_task(project: Project, run: RunDir, task: str) -> str:
    """The commit that merged a task; empty if it is not merged."""
    facts = read_facts(project, run)
    merges = [merge for merge in facts.merges if name_task(merge.workspace, facts.tasks) == task]
    return next((merge.commit for merge in reversed(merges) if merge.end is MergeResult.MERGED), "")


def _list_turns_of_task(project: Project, run: RunDir, task: str) -> list[int]:
    """The turns of the last attempt at a task that changed files."""
    turns = [one for one in read_turns(project, run).turns if one.task and one.files]
    of_task = [one for one in turns if one.task == task]
    if not of_task:
        known = ", ".join(dict.fromkeys(one.task for one in turns)) or "none"
        what = f"run {run.id} has no task {task[:40]!r} that changed files"
        raise UsageError(what, todo=f"these tasks did: {known}; or give the number of a turn")
    return [one.number for one in of_task if one.key == of_task[-1].key]


def _find_ends_of_branch(project: Project, record: RunRecord) -> tuple[str, str]:
    """The first and the last commit of the branch of a run."""
    tip = Git(project.root).resolve_commit(HEADS + record.branch)
    if not tip:
        todo = "`git log --stat HEAD` shows what was merged from it"
        raise UsageError(f"run {record.id}: the branch {record.branch} is gone", todo=todo)
    return record.base, tip


def _find_turn_on_branch(project: Project, run: RunDir, turn: int) -> tuple[str, str]:
    """The snapshots before and after a turn that worked in the worktree of its task, merged or not."""
    taken = {one.number: one for one in read_turns(project, run).turns if one.files}
    if turn not in taken:
        listed = ", ".join(f"{one.number} ({one.key})" for one in list(taken.values())[-LISTED:])
        raise UsageError(f"turn {turn} of run {run.id} changed nothing", todo=f"these turns did: {listed or 'none'}")
    snapshot = taken[turn].snapshot
    git = Git(project.root)
    before = git.resolve_commit(f"{snapshot}~")
    if not before:
        record = run.record()
        what = f"the snapshot of turn {turn} of run {run.id} is gone"
        raise UsageError(what, todo=f"`git log -p {record.branch}` shows what was merged from it")
    return before, snapshot


def _find_merge_of(project: Project, run: RunDir, turn: int) -> tuple[str, str]:
    """The worktree of a turn with its own copy of the tree, and the commit that merged it; empty if there is none."""
    known = read_turns(project, run)
    one = next((one for one in known.turns if one.number == turn), None)
    work = WorkKey.parse(one.key) if one else None
    if one is None or work is None or work.kind is not WorkKind.WAVE:
        return "", ""
    worktree = name_wave_worktree(one.role, work.number)
    merged = [merge for merge in known.merges if merge.workspace == worktree and merge.end is MergeResult.MERGED]
    return worktree, merged[-1].commit if merged else ""


def _find_snapshots_of_run(snapshots: Snapshots) -> tuple[str, str]:
    """The snapshots before and after a run."""
    entries = snapshots.log()
    last = entries[-2] if entries[-1].label == STOPPED and len(entries) > 1 else entries[-1]
    return snapshots.base_with_user_changes(), last.sha


def _find_snapshots_of_turn(snapshots: Snapshots, run: RunDir, turn: int, worktree: str) -> tuple[str, str]:
    """The snapshots before and after a turn. `worktree` is that of the turn, if it has its own."""
    entries = snapshots.log()
    at = next((i for i, e in enumerate(entries) if e.label.startswith(f"turn {turn} ")), None)
    if not at and worktree:
        what = f"turn {turn} of run {run.id} worked in its own copy of the tree, and none of it was merged"
        raise UsageError(what, todo=f"if it changed something, `git log -p ralph/{run.id}/{worktree}` shows it")
    if not at:
        known = ", ".join(e.label for e in entries[1:]) or "none"
        raise UsageError(f"turn {turn} of run {run.id} changed nothing", todo=f"these did: {known}")
    return entries[at - 1].sha, entries[at].sha


def open_snapshots(project: Project, run: RunDir) -> Snapshots:
    """The snapshots of a run, or an error that says why it has none."""
    record = run.record()
    what = f"run {run.id} cannot be compared or undone"
    if not record.snapshots:
        todo = "`git diff` shows uncommitted changes; next time, start it without --no-snapshots"
        raise UsageError(f"{what}: it was started without snapshots", where=str(run.path), todo=todo)
    # Snapshots are in the repository, so they can be read even if their worktree is gone.
    removed = record.branch and not (project.root / record.workspace).is_dir()
    place = project.root if removed else project.tree(record)
    snapshots = Snapshots.open(project.root, place, run.id, run.path)
    if snapshots.log():
        return snapshots
    if not (run.path / "journal.jsonl").exists():
        raise UsageError(f"{what}: it has not started", where=str(run.path), todo=f"`ralph resume {run.id}` starts it")
    raise UsageError(
        f"{what}: its snapshots are not in this repository (refs/ralph/{run.id})",
        where=str(run.path),
        todo="look at it in the project in which it ran; a clone or a copy has no snapshots",
    )
