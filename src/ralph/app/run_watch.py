"""Watching one run: reads its journal and the events of its agents, each once, and keeps the view of it up to date."""

import contextlib
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ralph.app.runs import find_feedback_time, find_still_missing, list_feedback
from ralph.core.codec import from_plain, to_plain
from ralph.core.entries import Record
from ralph.core.errors import RalphError, StateError
from ralph.core.events import RunEnded, TurnEnded
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.signals import Signal, parse_time_in_name
from ralph.core.turns import AgentEvent
from ralph.engine.ports import Observer
from ralph.store.files import read_limited, to_text
from ralph.store.journal import read_last_lines, read_raw
from ralph.store.journal_reader import JournalReader, Position
from ralph.store.mailbox import open_watch
from ralph.store.runs import Project, RunDir
from ralph.store.view_cache import STRIDE, ViewSnapshot, ViewSnapshots
from ralph.view.attention import Present, assess
from ralph.view.comments import list_comments
from ralph.view.fold import fold, fold_event, new_view
from ralph.view.graph import draw_hats
from ralph.view.model import CommentView, RunView, SignalView
from ralph.view.rows import FORM

_BATCH = 1000
_WORTH_SAVING = 200
"""A snapshot is written if opening a run took more journal lines than this."""


@dataclass(frozen=True)
class Update:
    """Something that happened in a run, and the view after it."""

    facts: RunView
    present: Present
    record: Record | None = None
    """The journal record, or None."""
    turn: int = 0
    """The turn of the agent's event."""
    event: AgentEvent | None = None
    """What an agent reported, or None."""
    position: str = ""
    """The journal line, and how far the events of the turns in progress were read: `12` or `12:3@4096`."""

    @property
    def view(self) -> RunView:
        """The view after it. It is computed each time, because most updates of a long run are never shown."""
        return assess(self.facts, self.present)


@dataclass
class RunWatch:
    """Reads one run again and again, each journal record and each event of an agent once.

    It writes only snapshots of the view, never blocks, and does not depend on the engine: that may be killed at any byte.
    """

    project: Project
    run: RunDir
    _saved: int = 0
    """The last line that a snapshot contains."""
    _offsets: dict[Path, int] = field(default_factory=dict)
    """How far the events of each turn were read."""

    def __post_init__(self) -> None:
        record = self.run.record()
        self._hats = draw_hats(record.hats) if record.hats else None
        self._snapshots = ViewSnapshots(self.run.path, FORM)
        self._new = new_view(record, str(self.project.root))
        self._set(self._new, Position())

    def _set(self, facts: RunView, position: Position) -> None:
        self._facts = facts
        self._reader = JournalReader(self.run.path / "journal.jsonl", position)
        self._saved = position.seq
        self._offsets.clear()

    @property
    def view(self) -> RunView:
        """The view of what was read so far, as of now."""
        return assess(self._facts, self._look(is_alive=self.run.alive))

    @property
    def facts(self) -> RunView:
        """The view of what was read so far, without what depends on the present."""
        return self._facts

    @property
    def seq(self) -> int:
        """The last journal line that was read."""
        return self._facts.seq

    def refresh(self) -> list[Update]:
        """What is new since the last call."""
        return list(self.read_updates())

    def read_updates(self) -> Iterator[Update]:
        """What is new since the last call, one after the other. The events of a turn come before its end."""
        is_alive = self.run.alive
        last = None
        for update in self._read_new():
            if last:
                yield last
            last = update
        if last:
            # What is true now is known for the last update only.
            yield replace(last, present=self._look(is_alive=is_alive))

    def skip_events(self, turn: int, offset: int) -> None:
        """Read the events of a turn in progress up to an offset of their file. Nothing is reported."""
        for path in self._find_event_files(turn):
            with contextlib.suppress(OSError, StateError):
                for _, event, at in self._read_events_of(turn, path, offset):
                    self._facts = fold_event(self._facts, turn, event, at)

    def _read_new(self) -> Iterator[Update]:
        for record in self._read_records():
            if isinstance(record.entry, TurnEnded):
                yield from self._report_events(record.entry.turn)
            self._facts = fold(self._facts, record)
            yield Update(self._facts, self._look_back(), record=record, position=self._show_position())
        yield from self._report_events()

    def _report_events(self, only: int | None = None) -> Iterator[Update]:
        for turn, event, at in self._read_events(only):
            self._facts = fold_event(self._facts, turn, event, at)
            position = self._show_position()
            yield Update(self._facts, self._look_back(), turn=turn, event=event, position=position)

    def _show_position(self) -> str:
        running = {turn.number for turn in self._facts.running_turns}
        read = {int(path.parent.name.partition("-")[0]): offset for path, offset in self._offsets.items()}
        parts = [f"{turn}@{offset}" for turn, offset in sorted(read.items()) if turn in running]
        return f"{self._facts.seq}:{','.join(parts)}" if parts else str(self._facts.seq)

    def catch_up(self, seq: int | None = None) -> None:
        """Read up to a line of the journal, or everything, from the nearest snapshot on. Nothing is reported."""
        self._start_from_snapshot(seq)
        for record in self._fold_new(seq):
            if record.seq % STRIDE == 0:
                self._save(keep=True)
        if seq is not None:
            return
        if self._facts.seq - self._saved >= _WORTH_SAVING:
            self._save()
        for turn, event, at in self._read_events():
            self._facts = fold_event(self._facts, turn, event, at)

    def view_back_then(self) -> RunView:
        """The view as it was when the last line that was read was written."""
        return assess(self._facts, self._look_back())

    def save(self) -> None:
        """Write a snapshot of what was read so far."""
        if self._facts.seq > self._saved:
            self._save()

    def _save(self, *, keep: bool = False) -> None:
        if self._reader.doubt or self._reader.position.seq != self._facts.seq:
            return
        self._snapshots.save(ViewSnapshot(self._reader.position, to_plain(self._facts)), keep=keep)
        self._saved = self._facts.seq

    def _start_from_snapshot(self, seq: int | None) -> None:
        if self._facts.seq:
            return
        for snapshot in self._snapshots.load(seq):
            try:
                facts = from_plain(RunView, snapshot.facts)
            except StateError:
                continue
            reader = JournalReader(self.run.path / "journal.jsonl", snapshot.position)
            if facts.seq == snapshot.position.seq and reader.is_in_place():
                self._set(facts, snapshot.position)
                return

    def _fold_new(self, seq: int | None = None) -> Iterator[Record]:
        """Fold the new records, one after the other, up to a line of the journal if one is given."""
        for record in self._read_records(seq):
            self._facts = fold(self._facts, record)
            yield record

    def _read_records(self, seq: int | None = None) -> Iterator[Record]:
        """The new records. The caller folds each before it asks for the next."""
        while seq is None or self._facts.seq < seq:
            most = _BATCH if seq is None else min(_BATCH, seq - self._facts.seq)
            # A snapshot is saved at the position of the reader, so a batch must end where one is due.
            most = min(most, STRIDE - self._facts.seq % STRIDE)
            try:
                records = self._reader.read(most)
            except StateError:
                # Something replaced the journal: `ralph resume --adopt` moves lines away.
                self._set(self._new, Position())
                records = self._reader.read(most)
            yield from records
            if not records:
                return

    def _look(self, *, is_alive: bool) -> Present:
        waiting = tuple(map(_show_waiting, self.run.mailbox.list_waiting()))
        is_session = self._facts.workflow in SESSION_WORKFLOWS
        return Present(
            now=time.time(),
            alive=is_alive,
            doubt=self._reader.doubt or self.run.find_record_doubt(),
            waiting=waiting,
            comments=self._find_comments(waiting),
            asks_for_approval=is_alive and is_session and self._asks_for_approval(),
            feedback_at=find_feedback_time(self.project, self.run) if is_session else 0.0,
            hats=self._hats,
            missing=self._find_missing(is_alive=is_alive),
            progress=self._read_progress() if is_alive else {},
        )

    def _find_comments(self, waiting: tuple[SignalView, ...]) -> tuple[CommentView, ...]:
        """The comments on lines of the diff, with the turns that changed these lines."""
        feedback = _read_feedback(self.project, self.run) if self._facts.workflow in SESSION_WORKFLOWS else ()
        known = {one.name for one in self._facts.signals}
        unread = tuple(one for one in waiting if one.name not in known)
        facts = replace(self._facts, signals=(*self._facts.signals, *unread))
        comments = list_comments(facts, feedback)
        if not any(comment.receipts for comment in comments):
            return comments
        from ralph.app.comments import find_changed_places  # it imports git, and most runs have no comments

        return find_changed_places(self.project, self.run, facts, comments)

    def _find_missing(self, *, is_alive: bool) -> tuple[str, ...]:
        """What of the user's refs is missing still. While an engine works, it looks after every turn itself."""
        facts = self._facts
        if not facts.missing or is_alive:
            return facts.missing
        return find_still_missing(self.project, self.run, facts.missing, facts.missing_places)

    def _asks_for_approval(self) -> bool:
        """Whether a session waits for the user to say whether what it learned is kept."""
        from ralph.documents.session.metadata import State, parse_metadata  # only sessions that are running need it

        path = self.project.root / ".ralph-sessions" / self.run.id / "metadata.yaml"
        with contextlib.suppress(OSError, RalphError):
            return parse_metadata(to_text(read_limited(path)), str(path)).state is State.KNOWLEDGE_APPROVAL
        return False

    def _read_progress(self) -> dict[int, str]:
        """What the agents of running turns reported about their progress, by turn."""
        found = {}
        for line in read_last_lines(self.run.path / "progress.jsonl"):
            if isinstance(line.get("turn"), int):
                found[line["turn"]] = str(line.get("message", ""))
        return found

    def _look_back(self) -> Present:
        """The present of an earlier time. Until a run ended, an engine worked on it."""
        is_alive = self._facts.seq > 0 and self._facts.ended is None
        facts = self._facts
        return Present(
            now=facts.at,
            alive=is_alive,
            doubt=self._reader.doubt,
            hats=self._hats,
            missing=facts.missing,
            comments=list_comments(facts),
        )

    def _read_events(self, only: int | None = None) -> Iterator[tuple[int, AgentEvent, float]]:
        """The new events of the turns in progress, or of one of them, with the time at which they were written."""
        for turn in self._facts.running_turns:
            if only not in (None, turn.number):
                continue
            for path in self._find_event_files(turn.number):
                with contextlib.suppress(OSError, StateError):
                    yield from self._read_events_of(turn.number, path)

    def _find_event_files(self, turn: int) -> Iterator[Path]:
        return (self.run.path / "turns").glob(f"{turn:05d}-*/events.jsonl")

    def _read_events_of(
        self, turn: int, path: Path, until: int | None = None
    ) -> Iterator[tuple[int, AgentEvent, float]]:
        status = path.stat()
        if status.st_size < self._offsets.get(path, 0):
            # Another engine took the turn over, and writes its events again from the beginning.
            self._offsets[path] = 0
        for behind, line in read_raw(path, self._offsets.get(path, 0)):
            if until is not None and behind > until:
                return
            self._offsets[path] = behind
            with contextlib.suppress(StateError):
                yield turn, from_plain(AgentEvent, line), status.st_mtime


class ViewRecorder(Observer):
    """Keeps snapshots of the view while an engine works, so that a long run can be opened quickly."""

    def __init__(self, project: Project, run: RunDir) -> None:
        self._watch = RunWatch(project, run)

    def on_record(self, record: Record) -> None:
        """Write a snapshot now and then, and when the run has ended."""
        if record.seq % _BATCH == 0 or (isinstance(record.entry, RunEnded) and record.seq > _WORTH_SAVING):
            with contextlib.suppress(OSError, RalphError):
                self._watch.catch_up()
                self._watch.save()


class ChangeWaiter:
    """Waits for events of the file system in the directory of a run and in that of its latest turn."""

    def __init__(self, run: RunDir) -> None:
        self._path = run.path
        self._descriptor, self._turn = -1, ""

    def __enter__(self) -> "ChangeWaiter":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def wait(self, seconds: float) -> None:
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
        latest = ""
        if turns.is_dir():
            latest = max((entry.name for entry in os.scandir(turns)), default="")
        if self._descriptor >= 0 and latest == self._turn:
            return
        self._close()
        directories = [self._path, turns, turns / latest] if latest else [self._path]
        self._turn = latest
        self._descriptor = open_watch(tuple(one for one in directories if one.is_dir()))

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read_feedback(project: Project, run: RunDir) -> list[tuple[str, str, float]]:
    """The files of feedback to a session: path, text and time of each, the oldest first."""
    found = []
    for path in list_feedback(project, run):
        with contextlib.suppress(OSError, StateError):
            text = to_text(read_limited(path))
            found.append((path.relative_to(project.root).as_posix(), text, path.stat().st_mtime))
    return sorted(found, key=lambda one: one[2])


def _show_waiting(signal: Signal) -> SignalView:
    return SignalView(
        id=signal.id,
        name=signal.name,
        type=signal.type,
        state="waiting",
        at=parse_time_in_name(signal.name) or time.time(),
        message=signal.message,
        target=signal.target,
        now=signal.now,
        iteration=signal.iteration,
        is_message=signal.has_message_for_agents,
        by=signal.by,
    )
