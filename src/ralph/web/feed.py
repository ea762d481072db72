"""What happens in a run, passed on to every page that watches it.

One feed reads the journal of a run and the output of its running turns, and puts each new event into a bounded queue per
viewer. A viewer that does not keep up is dropped. It comes back with the id of the last event that it saw, and gets what
follows from the latest events that the feed keeps, or a `gap` that tells it to fetch the whole view again.

Files are only read here: ending the server at any moment changes nothing for a run.
"""

import asyncio
import contextlib
import json
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ralph.core.errors import RalphError
from ralph.core.text import show_directions
from ralph.store.journal import read_last_lines, read_raw
from ralph.view.labels import describe_means

QUEUE_LIMIT = 4000
KEPT = 2000
"""How many of the latest events a feed keeps for viewers that come back."""
POLL_SECONDS = 0.1
QUIET_SECONDS = 15.0
"""After this time without an event, a comment keeps the connection open."""
_TAIL_BYTES = 512 * 1024
_TEXT_CHARS = 8000
_TURN = re.compile(r"([0-9]{5,9})-")
_RUNNING_TURNS = 50


@dataclass(frozen=True)
class StreamPosition:
    """How far a viewer has seen: the last journal line, and the events of each running turn."""

    seq: int = 0
    turns: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "StreamPosition | None":
        """A position from its text `SEQ;TURN:COUNT;...`; None if it is none."""
        if not re.fullmatch(r"[0-9]{1,12}(;[0-9]{1,9}:[0-9]{1,9}){0,60}", text):
            return None
        seq, *turns = text.split(";")
        pairs = (one.split(":") for one in turns)
        return cls(int(seq), tuple((int(turn), int(seen)) for turn, seen in pairs))

    def __str__(self) -> str:
        return ";".join([str(self.seq), *(f"{turn}:{seen}" for turn, seen in self.turns)])


@dataclass(frozen=True)
class FeedEvent:
    """One event, encoded once for all viewers."""

    data: bytes
    """A frame of the stream, whole."""
    seq: int
    turn: int = 0
    index: int = 0
    """The number of the event in its turn, from 1; 0 for a journal line."""


def frame(kind: str, data: object, id: str = "") -> bytes:
    """One frame of a stream of server-sent events."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data, ensure_ascii=True)}\n\n".encode()


@dataclass(eq=False)
class Viewer:
    """One page that watches a run."""

    queue: "asyncio.Queue[FeedEvent | None]" = field(default_factory=lambda: asyncio.Queue(QUEUE_LIMIT))
    is_dropped: bool = False

    def offer(self, event: FeedEvent | None) -> None:
        """Put an event into the queue. If it is full, the viewer is dropped."""
        if self.is_dropped:
            return
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            self.is_dropped = True

    def end(self) -> None:
        """End the stream of the viewer. Its page comes back by itself if a server answers again."""
        self.offer(FeedEvent(b"", 0))
        self.is_dropped = True

    async def take(self) -> "list[FeedEvent | None]":
        """All events that wait, None at the end if the run is gone; nothing after a while without an event."""
        try:
            events = [await asyncio.wait_for(self.queue.get(), QUIET_SECONDS)]
        except TimeoutError:
            return []
        while events[-1] is not None and not self.queue.empty():
            events.append(self.queue.get_nowait())
        return events


@dataclass
class _TurnTail:
    """How far the events of a running turn were read."""

    path: Path
    offset: int = 0
    count: int = 0


class RunFeed:
    """The events of one run. It polls while there are viewers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.viewers: set[Viewer] = set()
        self.seq = 0
        self._journal = path / "journal.jsonl"
        self._offset = 0
        self._turns: dict[int, _TurnTail] = {}
        self._running: set[int] = set()
        self._ended: dict[int, int] = {}
        """The turns whose end was read, and the line that ended each."""
        self._kept: deque[FeedEvent] = deque(maxlen=KEPT)
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Read the end of the journal and the running turns, so that only what follows is new."""
        lines = read_last_lines(self._journal, _TAIL_BYTES)
        with contextlib.suppress(OSError):
            self._offset = _last_line_end(self._journal)
        for line in lines:
            if event := self._take_line(line):
                self._kept.append(event)
        self._find_turns()
        for event in self._read_turns():
            self._kept.append(event)

    @property
    def position(self) -> StreamPosition:
        """Where the feed is."""
        return StreamPosition(self.seq, tuple((turn, tail.count) for turn, tail in sorted(self._turns.items())))

    async def watch(self, seen: StreamPosition | None) -> AsyncGenerator[bytes, None]:
        """The frames for one viewer: where it starts, what it missed, then what happens."""
        viewer = Viewer()
        self.viewers.add(viewer)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            # No await between these lines: the queue begins exactly where the kept events end.
            missed, is_gap = self._find_missed(seen) if seen else ([], False)
            start = str(self.position)
            yield frame("start", {"seq": self.seq, "gap": is_gap}, start if not missed else "")
            for event in missed:
                yield event.data
            while not viewer.is_dropped:
                events = await viewer.take()
                if not events:
                    yield b": still here\n\n"
                    continue
                # One write for all: with many viewers, the server spends most of its time in writes.
                end = frame("bye", {"reason": "the run was removed"}) if events[-1] is None else b""
                yield b"".join(event.data for event in events if event) + end
                if end:
                    return
        finally:
            self.viewers.discard(viewer)

    def _find_missed(self, seen: StreamPosition) -> tuple[list[FeedEvent], bool]:
        """The kept events that a viewer has not seen, and whether it missed others, too."""
        counts = dict(seen.turns)
        missed = [event for event in self._kept if self._is_missed(event, seen.seq, counts)]
        first = min((event.seq for event in missed if not event.index), default=self.seq + 1)
        is_gap = seen.seq > self.seq or first > seen.seq + 1
        for turn, tail in self._turns.items():
            known = min((event.index for event in missed if event.turn == turn and event.index), default=tail.count + 1)
            is_gap = is_gap or known > counts.get(turn, 0) + 1
        rest = self._read_ended_turns(seen, missed)
        return ([], True) if is_gap or len(rest) > KEPT else ([*rest, *missed], False)

    def _is_missed(self, event: FeedEvent, seq: int, counts: dict[int, int]) -> bool:
        if not event.index:
            return event.seq > seq
        # A position names only the turns that run. Who saw the end of a turn saw all of its output.
        has_seen_end = self._ended.get(event.turn, seq + 1) <= seq
        return not has_seen_end and event.index > counts.get(event.turn, 0)

    def _read_ended_turns(self, seen: StreamPosition, missed: list[FeedEvent]) -> list[FeedEvent]:
        """What a viewer has not seen of turns that have ended since, and that this feed did not follow."""
        counts = dict(seen.turns)
        found: list[FeedEvent] = []
        for turn, ended_at in self._ended.items():
            if ended_at <= seen.seq or turn in self._turns:
                continue
            # The feed may have kept the last events of the turn. Only those before them are in the file alone.
            kept = [event.index for event in missed if event.turn == turn and event.index]
            end = min(kept) if kept else None
            for index, line in _read_turn(self.path, turn, start=counts.get(turn, 0) + 1, end=end):
                counts[turn] = index
                position = StreamPosition(seen.seq, tuple(counts.items()))
                found.append(_make_output(turn, index, line, position))
                if len(found) > KEPT:
                    return found
        return found

    async def _poll(self) -> None:
        while self.viewers:
            try:
                events, is_gone = list(self._read()), not self.path.is_dir()
            except (OSError, RalphError):
                events, is_gone = [], not self.path.is_dir()
            for event in events:
                self._kept.append(event)
                for viewer in tuple(self.viewers):
                    viewer.offer(event)
            if is_gone:
                for viewer in tuple(self.viewers):
                    viewer.offer(None)
                return
            await asyncio.sleep(POLL_SECONDS)

    def _read(self) -> Iterator[FeedEvent]:
        """What is new in the journal and in the output of the running turns."""
        if not self.path.is_dir():
            return
        size = self._journal.stat().st_size if self._journal.exists() else 0
        if size < self._offset:
            # The journal starts over, or was cut: pages fetch the view again.
            self._offset, self.seq = 0, 0
            self._kept.clear()
            yield FeedEvent(frame("gap", {"reason": "the journal was replaced"}), 0)
        if size > self._offset:
            # The output of a turn comes before the line that ends it.
            yield from self._read_turns()
            for end, line in read_raw(self._journal, self._offset):
                self._offset = end
                if event := self._take_line(line):
                    yield event
            self._find_turns()
        yield from self._read_turns()

    def _take_line(self, line: dict[str, Any]) -> FeedEvent | None:
        seq, kind, turn = line.get("seq"), line.get("type"), line.get("turn")
        if not isinstance(seq, int) or not isinstance(kind, str) or seq <= self.seq:
            return None
        self.seq = seq
        if isinstance(turn, int) and kind == "turn.started":
            self._running.add(turn)
        elif isinstance(turn, int) and kind == "turn.ended":
            self._running.discard(turn)
            self._ended[turn] = seq
        elif kind == "run.ended":
            self._running.clear()
        facts = {"seq": seq, "at": line.get("at"), "type": kind}
        facts |= {name: line[name] for name in ("turn", "key", "role") if isinstance(line.get(name), str | int)}
        return FeedEvent(frame("entry", facts, str(self.position)), seq)

    def _find_turns(self) -> None:
        """Follow the directories of the running turns, and forget those of turns that ended."""
        for turn in self._turns.keys() - self._running:
            del self._turns[turn]
        for turn in sorted(self._running - self._turns.keys())[:_RUNNING_TURNS]:
            if directory := find_turn(self.path, turn):
                self._turns[turn] = _TurnTail(directory / "events.jsonl")

    def _read_turns(self) -> Iterator[FeedEvent]:
        if self._running - self._turns.keys():
            self._find_turns()
        for turn, tail in self._turns.items():
            try:
                size = tail.path.stat().st_size
            except OSError:
                continue
            if size < tail.offset:
                tail.offset = tail.count = 0  # another engine took the turn over, and logs it from its beginning
            if size == tail.offset:
                continue
            for end, line in read_raw(tail.path, tail.offset):
                tail.offset, tail.count = end, tail.count + 1
                yield _make_output(turn, tail.count, line, self.position)


def _make_output(turn: int, index: int, line: dict[str, Any], position: StreamPosition) -> FeedEvent:
    """An event of an agent, with where the viewer is after it."""
    data = {"turn": turn, "index": index, **shorten_event(line)}
    return FeedEvent(frame("output", data, str(position)), position.seq, turn, index)


def _read_turn(run: Path, turn: int, *, start: int, end: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a turn with their numbers, from `start` up to `end`, which is left out; None for all that follow."""
    directory = find_turn(run, turn)
    path = directory / "events.jsonl" if directory else None
    if path is None or not path.exists():
        return
    lines = islice(read_raw(path), start - 1, None if end is None else end - 1)
    for index, (_, line) in enumerate(lines, start):
        yield index, line


def shorten_event(line: dict[str, Any]) -> dict[str, Any]:
    """An agent's event as a page shows it, with a text that is not too long."""
    shown: dict[str, Any] = {name: line[name] for name in ("kind", "at", "is_error", "is_sub_agent") if name in line}
    # Earlier versions of Ralph wrote `tool`.
    if means := line.get("means") or line.get("tool"):
        shown["means"] = describe_means(str(means))
    text = show_directions(str(line.get("text", "")))
    shown["text"] = text[:_TEXT_CHARS]
    if len(text) > _TEXT_CHARS:
        shown["more"] = len(text) - _TEXT_CHARS
    return shown


def find_turn(run: Path, turn: int) -> Path | None:
    """The directory of a turn; None if it is not there yet."""
    with contextlib.suppress(OSError):
        for name in os.listdir(run / "turns"):
            found = _TURN.match(name)
            path = run / "turns" / name
            if found and int(found[1]) == turn and path.is_dir() and not path.is_symlink():
                return path
    return None


def _last_line_end(path: Path) -> int:
    """The offset after the last complete line."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        start = max(0, end - 4 * _TAIL_BYTES)
        file.seek(start)
        data = file.read(end - start)
    return start + data.rfind(b"\n") + 1


class Feeds:
    """The feeds of all runs that are watched."""

    def __init__(self) -> None:
        self._feeds: dict[Path, RunFeed] = {}

    def get(self, path: Path) -> RunFeed:
        """The feed of a run, opened if nobody watches it yet."""
        feed = self._feeds.get(path)
        if feed is None or not feed.viewers:
            for known in [one for one, other in self._feeds.items() if not other.viewers]:
                del self._feeds[known]
            feed = RunFeed(path)
            feed.open()
            self._feeds[path] = feed
        return feed

    def end(self) -> None:
        """End all streams."""
        for feed in self._feeds.values():
            for viewer in tuple(feed.viewers):
                viewer.end()
