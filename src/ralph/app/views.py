"""Views of runs: list them, open one, and follow it while an engine works on it."""

import contextlib
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ralph.core.codec import from_plain
from ralph.core.entries import Record
from ralph.core.errors import RalphError, StateError, UsageError
from ralph.core.limits import Spent
from ralph.core.signals import Signal, named_time
from ralph.core.turns import AgentEvent
from ralph.documents.run_record import RunRecord
from ralph.store.journal import read_raw
from ralph.store.journal_reader import JournalReader
from ralph.store.mailbox import open_watch
from ralph.store.runs import Project, RunDir
from ralph.view.attention import Present, assess, order_rows, row_of
from ralph.view.fold import fold, fold_event, new_view
from ralph.view.graph import draw_hats
from ralph.view.model import GROUPS, RunGraph, RunRow, RunView, SignalView, Tier

POLL_SECONDS = 1.0
"""How often a run is read if no event of the file system says that it changed."""


@dataclass(frozen=True)
class Update:
    """Something that happened in a run, and the view after it."""

    view: RunView
    record: Record | None = None
    """The journal record, or None."""
    turn: int = 0
    """The turn of the agent's event."""
    event: AgentEvent | None = None
    """What an agent reported, or None."""


class RunWatch:
    """Reads one run again and again, each journal record and each event of an agent once.

    It never writes, never blocks, and does not depend on the engine: that may be killed at any byte.
    """

    def __init__(self, project: Project, run: RunDir) -> None:
        self._project, self.run = project, run
        self._record = run.record()
        self._hats = _hats_of(self._record)
        self._restart()

    def _restart(self) -> None:
        self._reader = JournalReader(self.run.path / "journal.jsonl")
        self._facts = new_view(self._record, str(self._project.root))
        self._offsets: dict[Path, int] = {}

    @property
    def view(self) -> RunView:
        """The view of what was read so far, as of now."""
        return assess(self._facts, self._look())

    def refresh(self) -> list[Update]:
        """What is new since the last call."""
        is_alive = self.run.alive
        try:
            records = self._reader.read()
        except StateError:
            # The journal was replaced: `ralph resume --adopt` moved lines away.
            self._restart()
            records = self._reader.read()
        updates: list[Update] = []
        for record in records:
            self._facts = fold(self._facts, record)
            updates.append(Update(self._look_back(), record=record))
        for turn, event, at in self._read_events():
            self._facts = fold_event(self._facts, turn, event, at)
            updates.append(Update(self._look_back(), turn=turn, event=event))
        if updates:
            # What is true now is known for the last one only.
            updates[-1] = replace(updates[-1], view=assess(self._facts, self._look(is_alive=is_alive)))
        return updates

    def read_until(self, seq: int) -> RunView:
        """The view as it was after a line of the journal."""
        while self._facts.seq < seq:
            records = self._reader.read(min(1000, seq - self._facts.seq))
            if not records:
                break
            for record in records:
                self._facts = fold(self._facts, record)
        return self._look_back()

    def _look_back(self) -> RunView:
        """The view as it was when its last line was written. Until a run ended, an engine worked on it."""
        is_alive = self._facts.seq > 0 and self._facts.ended is None
        return assess(self._facts, Present(now=self._facts.at, alive=is_alive, hats=self._hats))

    def _look(self, *, is_alive: bool | None = None) -> Present:
        return Present(
            now=time.time(),
            alive=self.run.alive if is_alive is None else is_alive,
            doubt=self._reader.doubt or self.run.find_record_doubt(),
            waiting=tuple(map(_show_waiting, self.run.mailbox.list_waiting())),
            hats=self._hats,
        )

    def _read_events(self) -> Iterator[tuple[int, AgentEvent, float]]:
        """The new events of the turns in progress, with the time at which they were written."""
        for turn in self._facts.running_turns:
            for path in (self.run.path / "turns").glob(f"{turn.number:05d}-*/events.jsonl"):
                with contextlib.suppress(OSError, StateError):
                    at = path.stat().st_mtime
                    for behind, line in read_raw(path, self._offsets.get(path, 0)):
                        self._offsets[path] = behind
                        with contextlib.suppress(StateError):
                            yield turn.number, from_plain(AgentEvent, line), at


def list_runs(project: Project) -> list[RunRow]:
    """All runs of a project, those that need the user first."""
    rows = [_row_of(project, run) for run in project.runs()]
    return order_rows(_mark_done(rows))


def open_view(project: Project, run: str | RunDir, *, at: int | None = None) -> RunView:
    """The view of a run as it is now, or as it was after line `at` of its journal."""
    watch = RunWatch(project, project.run(run) if isinstance(run, str) else run)
    if at is not None:
        if at < 0:
            raise UsageError(f"there is no line {at} in a journal", todo="lines are counted from 1")
        return watch.read_until(at)
    watch.refresh()
    return watch.view


def follow(project: Project, run: str | RunDir, from_seq: int = 0) -> Iterator[Update]:
    """Everything that happens in a run after a line of its journal, until no engine works on it.

    Blocks until something happens. File events wake it up; it also looks once a second.
    """
    watch = RunWatch(project, project.run(run) if isinstance(run, str) else run)
    with watch_run(watch.run) as wait:
        while True:
            is_over = not watch.run.alive
            for update in watch.refresh():
                if update.record is None or update.record.seq > from_seq:
                    yield update
            if is_over:
                return
            wait(POLL_SECONDS)


@contextlib.contextmanager
def watch_run(run: RunDir) -> "Iterator[_Wait]":
    """Wait for changes of a run: yields a function that returns when a file changed, or after that many seconds."""
    wait = _Wait(run.path)
    try:
        yield wait
    finally:
        wait.close()


class _Wait:
    """Waits for events of the file system in the directory of a run and in those of its latest turns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor, self._turn = -1, ""

    def __call__(self, seconds: float) -> None:
        """Return when something in the run has changed, or after that many seconds."""
        self._renew()
        if self._descriptor < 0:
            time.sleep(min(seconds, 0.2))
            return
        if select.select([self._descriptor], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                os.read(self._descriptor, 64 * 1024)

    def _renew(self) -> None:
        """Watch the latest turn too, because agents write there."""
        turns = self._path / "turns"
        latest = max((entry.name for entry in os.scandir(turns)), default="") if turns.is_dir() else ""
        if self._descriptor >= 0 and latest == self._turn:
            return
        self.close()
        directories = [self._path, turns, turns / latest] if latest else [self._path]
        self._turn = latest
        self._descriptor = open_watch(tuple(one for one in directories if one.is_dir()))

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _row_of(project: Project, run: RunDir) -> RunRow:
    try:
        return row_of(open_view(project, run))
    except (RalphError, OSError) as error:
        return _unreadable_row(project, run, str(error))


def _unreadable_row(project: Project, run: RunDir, problem: str) -> RunRow:
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


def _mark_done(rows: list[RunRow]) -> list[RunRow]:
    """Mark stopped runs whose task a later run did: they do not need the user any more. `rows` has the oldest first."""
    done: dict[tuple[str, str], str] = {}
    marked = []
    for row in reversed(rows):
        key = (row.workflow, row.task)
        if row.state in ("success", "nothing-to-do"):
            done.setdefault(key, row.id)
        elif key in done and not row.alive and not row.problem and row.state != "aborted":
            row = replace(row, done_by=done[key], attention=Tier.DONE, group=GROUPS[Tier.DONE])
        marked.append(row)
    return marked[::-1]


def _hats_of(record: RunRecord) -> RunGraph | None:
    return draw_hats(record.hats) if record.hats else None


def _show_waiting(signal: Signal) -> SignalView:
    return SignalView(
        id=signal.id,
        name=signal.name,
        type=signal.type,
        state="waiting",
        at=named_time(signal.name) or time.time(),
        message=signal.message,
        target=signal.target,
        now=signal.now,
        has_words=signal.has_words,
    )
