"""The list of runs: its filter, its rows, and its changes for every page. A filter: `state:stuck agent:codex cost>2 words`."""

import asyncio
import contextlib
import difflib
import json
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from ralph.core.errors import RalphError, UsageError
from ralph.view import labels
from ralph.view.json_form import to_json
from ralph.view.model import RunRow, Tier
from ralph.web.feed import QUEUE_LIMIT, QUIET_SECONDS, frame
from ralph.web.runs import FoundRun, RunIndex, Snoozes

POLL_SECONDS = 1.0
KEPT = 2000
_TERM = re.compile(r"(?P<name>[a-z]+)(?P<sign>[:<>])(?P<value>.+)", re.IGNORECASE)
_NUMBERS: dict[str, Callable[[RunRow], float]] = {
    "cost": lambda row: row.spent.cost,
    "iteration": lambda row: float(row.iteration),
    "turns": lambda row: float(row.spent.turns),
}
_TEXTS: dict[str, Callable[[RunRow, str], tuple[str, ...]]] = {
    "state": lambda row, project: (row.state, row.group),
    "agent": lambda row, project: (row.agent,),
    "project": lambda row, project: (project, row.project),
    "workflow": lambda row, project: (row.workflow,),
    "branch": lambda row, project: (row.branch,),
    "run": lambda row, project: (row.id,),
}


@dataclass(frozen=True)
class Filter:
    """The terms of a filter. All of them must hold."""

    terms: tuple[Callable[[RunRow, str], bool], ...]

    def accepts(self, row: RunRow, project: str) -> bool:
        """Whether a row is shown."""
        return all(term(row, project) for term in self.terms)


def parse_filter(text: str) -> Filter:
    """The filter that the user typed, or an error that names the word that is wrong."""
    return Filter(tuple(_parse_term(word) for word in text[:500].split()))


def _parse_term(word: str) -> Callable[[RunRow, str], bool]:
    match = _TERM.fullmatch(word)
    if not match:
        wanted = word.lower()
        return lambda row, project: wanted in f"{row.task} {row.headline} {row.id} {row.branch} {project}".lower()
    name, sign, value = match["name"].lower(), match["sign"], match["value"]
    if name in _NUMBERS and sign in "<>":
        try:
            limit = float(value.lstrip("$"))
        except ValueError:
            raise UsageError(f"{value[:40]!r} is not a number", where=word[:80], todo=f"write {name}>2") from None
        number = _NUMBERS[name]
        if sign == ">":
            return lambda row, project: number(row) > limit
        return lambda row, project: number(row) < limit
    if name in _TEXTS and sign == ":":
        read, wanted_any = _TEXTS[name], tuple(one.lower() for one in value.split(",") if one)
        return lambda row, project: any(wanted in text.lower() for text in read(row, project) for wanted in wanted_any)
    near = difflib.get_close_matches(name, (*_TEXTS, *_NUMBERS), 1)
    todo = f"did you mean {near[0]}?" if near else f"use {', '.join((*_TEXTS, *_NUMBERS))}"
    raise UsageError(f"unknown word {name!r} in the filter", where=word[:80], todo=todo)


def show_row(found: FoundRun, row: RunRow, snoozed: dict[str, float]) -> dict[str, Any]:
    """A row as the page shows it. A question or an approval wakes a run that the user put aside."""
    until = snoozed.get(found.key) if row.attention is not Tier.ASKS else None
    return {
        **to_json(row),
        **labels.describe_row(row, found.key, found.project.root.name),
        "snoozed_until": until,
    }


class RowsFeed:
    """Looks at all runs once a second while a page shows the list, and sends the rows that changed."""

    def __init__(self, index: RunIndex, snoozes: Snoozes) -> None:
        self._index, self._snoozes = index, snoozes
        self._start = secrets.token_hex(4)
        """Versions of another server are not comparable with ours."""
        self._number = 0
        self._rows: dict[str, str] = {}
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._queues: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def version(self) -> str:
        """The version of the list, for `Last-Event-ID`."""
        return f"{self._start}-{self._number}"

    async def watch(self, seen: str) -> AsyncIterator[bytes]:
        """The frames for one page."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_LIMIT)
        if self._task is None or self._task.done():
            await self._look()
            self._task = asyncio.create_task(self._poll())
        self._queues.add(queue)
        try:
            missed = self._find_missed(seen)
            yield frame("start", {"version": self.version, "gap": missed is None}, self.version)
            for data in missed or ():
                yield data
            while queue in self._queues:
                try:
                    yield await asyncio.wait_for(queue.get(), QUIET_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._queues.discard(queue)

    def _find_missed(self, seen: str) -> list[bytes] | None:
        """What changed since a version; None if that is not known."""
        start, _, number = seen.partition("-")
        if start != self._start or not number.isdigit() or int(number) > self._number:
            return None
        missed = [data for at, data in self._kept if at > int(number)]
        return missed if len(missed) == self._number - int(number) else None

    async def _poll(self) -> None:
        while self._queues:
            await asyncio.sleep(POLL_SECONDS)
            await self._look()

    async def _look(self) -> None:
        try:
            rows = await asyncio.to_thread(self._read)
        except (RalphError, OSError):
            return
        changed = [(key, text) for key, text in rows.items() if self._rows.get(key) != text]
        gone = self._rows.keys() - rows.keys()
        is_first = not self._rows
        self._rows = rows
        if is_first:
            return
        for key, text in changed:
            self._send("row", {"key": key, "row": json.loads(text)})
        for key in gone:
            self._send("gone", {"key": key})

    def _read(self) -> dict[str, str]:
        snoozed = self._snoozes.read()
        found: dict[str, str] = {}
        for one, row in self._index.rows():
            found[one.key] = json.dumps(show_row(one, row, snoozed))
        return found

    def end(self) -> None:
        """End all streams. Their pages come back by themselves if a server answers again."""
        for queue in tuple(self._queues):
            self._queues.discard(queue)
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(b"")

    def _send(self, kind: str, data: object) -> None:
        self._number += 1
        encoded = frame(kind, data, self.version)
        self._kept.append((self._number, encoded))
        for queue in tuple(self._queues):
            try:
                queue.put_nowait(encoded)
            except asyncio.QueueFull:
                self._queues.discard(queue)
