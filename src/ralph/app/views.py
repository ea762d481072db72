"""Views of runs: list them, open one, and follow it while an engine works on it.

A list is read without the fold, which is imported by the functions that use it, because `ralph status` has to start fast.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ralph.app.runs import find_feedback_time, read_change_time
from ralph.core.codec import from_plain, to_plain
from ralph.core.errors import RalphError, UsageError
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.limits import Spent
from ralph.core.outcomes import Outcome
from ralph.core.text import count
from ralph.core.values import value
from ralph.store.runs import Project, RunDir
from ralph.store.view_cache import RowCache, stamp_of
from ralph.view.rows import FORM, GROUPS, RunRow, Tier, order_key

if TYPE_CHECKING:
    from ralph.app.run_watch import Update
    from ralph.view.model import RunTurns, RunView

POLL_SECONDS = 1.0
"""How often a run is read if no event of the file system says that it changed."""
_OVER = frozenset(outcome.value for outcome in Outcome if not outcome.resumable)
"""The states of runs that no engine works on any more."""


def open_view(project: Project, run: str | RunDir, *, at: int | None = None) -> "RunView":
    """The view of a run as it is now, or as it was after line `at` of its journal."""
    from ralph.app.run_watch import RunWatch

    watch = RunWatch(project, project.run(run) if isinstance(run, str) else run)
    if at is None:
        watch.catch_up()
        return watch.view
    if isinstance(at, bool) or not isinstance(at, int) or at < 0:
        raise UsageError(f"{at!r} is not a line of a journal", todo="give a number; lines are counted from 1")
    watch.catch_up(at)
    if watch.seq < at:
        what = f"the journal of run {watch.run.id} has {count(watch.seq, 'line')}, so there is no line {at}"
        raise UsageError(what, todo=f"choose a line from 1 to {watch.seq}" if watch.seq else "the run has not started")
    return watch.view_back_then()


def read_facts(project: Project, run: RunDir) -> "RunView":
    """What the journal of a run says so far, for an interface that folds what follows itself."""
    from ralph.app.run_watch import RunWatch

    watch = RunWatch(project, run)
    watch.catch_up()
    return watch.facts


def read_turns(project: Project, run: RunDir) -> "RunTurns":
    """All turns and merges of a run, also those that its view does not list any more."""
    from ralph.app.run_watch import RunWatch
    from ralph.view.model import MOST, RunTurns

    facts = read_facts(project, run)
    if not facts.more_turns:
        return RunTurns(facts.turns, facts.merges)
    turns, merges = {}, {}
    watch = RunWatch(project, run)
    # A turn takes more than one line of the journal, so no turn is dropped between two of these steps.
    for seq in range(MOST, facts.seq + MOST, MOST):
        watch.catch_up(seq)
        turns.update({turn.number: turn for turn in watch.facts.turns})
        merges.update({(merge.key, merge.started_at): merge for merge in watch.facts.merges})
    return RunTurns(tuple(turns.values()), tuple(merges.values()))


def find_changes_of_others(project: Project, run: RunDir, *, since_last_turn: bool = False) -> dict[str, str]:
    """The files that other runs changed in the same tree since a run started, or since its last turn, each with the run's id."""
    workspace = run.record().workspace
    facts = read_facts(project, run)
    since = facts.started_at
    if since_last_turn:
        since = max((turn.ended_at or 0.0 for turn in facts.turns), default=0.0)
    found: dict[str, str] = {}
    for other in project.runs():
        if other.id == run.id or read_change_time(other.path) < since:
            continue
        # What cannot be read, or what Ralph may not have written, says nothing about who changed a file.
        with contextlib.suppress(RalphError, OSError):
            view = open_view(project, other)
            if view.run.workspace == workspace and view.changed_at > since and not view.doubt:
                found |= dict.fromkeys(view.changed_files, other.id)
    return found


def follow(project: Project, run: str | RunDir, from_seq: int | str = 0) -> "Iterator[Update]":
    """Everything that happens in a run after a line of its journal or a position, until no engine works on it.

    Blocks until something happens. File events wake it up; it also looks once a second.
    """
    from ralph.app.run_watch import ChangeWaiter, RunWatch

    watch = RunWatch(project, project.run(run) if isinstance(run, str) else run)
    seq, offsets = _parse_position(from_seq)
    watch.catch_up(seq)
    for turn, offset in offsets.items():
        watch.skip_events(turn, offset)
    with ChangeWaiter(watch.run) as waiter:
        while True:
            is_over = not watch.run.alive
            yield from watch.read_updates()
            if is_over:
                return
            waiter.wait(POLL_SECONDS)


def _parse_position(position: int | str) -> tuple[int, dict[int, int]]:
    """The journal line of a position, and for each turn in progress how far its events were read."""
    line, _, turns = str(position).partition(":")
    try:
        pairs = [part.split("@") for part in turns.split(",") if part]
        return int(line), {int(turn): int(offset) for turn, offset in pairs}
    except ValueError:
        todo = "give the `position` or `seq` of a change"
        raise UsageError(f"{position!r} is not a position in a run", todo=todo) from None


@value
class RunList:
    """The runs of a project, those that need the user first. Rows are decoded when they are asked for."""

    rows: tuple[Mapping[str, Any], ...]
    """The rows as plain values."""

    def decode(self) -> list[RunRow]:
        """All rows."""
        return [_decode(row) for row in self.rows]


def list_runs(project: Project) -> list[RunRow]:
    """All runs of a project, those that need the user first."""
    return read_run_list(project).decode()


def read_run_list(project: Project) -> RunList:
    """All runs of a project. Of runs that did not change since the last time, no journal is read."""
    cache, runs = RowCache(project.root, FORM), project.runs()
    rows = [_read_row(project, run, cache) for run in runs]
    cache.save({run.id for run in runs})
    return RunList(tuple(sorted(_mark_done(rows), key=order_key)))


def remember_row(project: Project, run: RunDir) -> None:
    """Keep the row of a run that has just ended, so that the next list need not read it. It is only a cache."""
    with contextlib.suppress(RalphError, OSError):
        cache = RowCache(project.root, FORM)
        _read_row(project, run, cache)
        cache.save({one.id for one in project.runs()})


def _read_row(project: Project, run: RunDir, cache: RowCache) -> Mapping[str, Any]:
    cached = cache.get(run.path)
    # The user may have restored what was missing, which changes no file of the run.
    is_current = cached and not cached.get("missing") and not _has_new_feedback(project, run, cached)
    if cached and is_current and (cached["state"] in _OVER or not run.alive):
        return cached
    from ralph.view.attention import row_of

    stamp = stamp_of(run.path)
    try:
        view = open_view(project, run)
    except (RalphError, OSError) as error:
        unreadable: dict[str, Any] = to_plain(_build_unreadable_row(project, run, str(error)))
        return unreadable
    row: dict[str, Any] = to_plain(row_of(view))
    if not view.alive and not view.has_feedback:
        cache.put(run.path, stamp, row)
    return row


def _has_new_feedback(project: Project, run: RunDir, row: Mapping[str, Any]) -> bool:
    """Whether the user gave feedback to a session since its row was made. That changes no file of the run."""
    return row["workflow"] in SESSION_WORKFLOWS and find_feedback_time(project, run) > row["at"]


def _decode(row: Mapping[str, Any]) -> RunRow:
    return from_plain(RunRow, row, "the row of a run")


def _mark_done(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Mark stopped runs whose task a later run did: they do not need the user any more. `rows` has the oldest first."""
    done: dict[tuple[str, str], str] = {}
    marked = []
    for row in reversed(rows):
        key = (row["workflow"], row["task"])
        if row["state"] in ("success", "nothing-to-do"):
            done.setdefault(key, row["id"])
        elif key in done and not row["alive"] and not row.get("problem") and row["state"] != "aborted":
            row = {**row, "done_by": done[key], "attention": int(Tier.DONE), "group": GROUPS[Tier.DONE]}
        marked.append(row)
    return marked[::-1]


def _build_unreadable_row(project: Project, run: RunDir, problem: str) -> RunRow:
    return RunRow(
        id=run.id,
        project=str(project.root),
        workflow="",
        task="",
        criterion="",
        state="unreadable",
        alive=False,
        attention=Tier.FAILED,
        group=GROUPS[Tier.FAILED],
        headline=f"unreadable: {problem}",
        since=0.0,
        seq=0,
        at=0.0,
        created_at=0.0,
        agent="",
        workspace="",
        branch="",
        iteration=0,
        max_iterations=None,
        checks_passed=0,
        checks_total=0,
        spent=Spent(),
        cost_limit=None,
        problem=problem,
        next=f"ralph clean {run.id}",
    )
