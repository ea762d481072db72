"""Reading a turn's output as it grows: from the file that its keeper writes, in events."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ralph.agents import hook
from ralph.agents.agent import Reader
from ralph.core.codec import dump, to_plain
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind
from ralph.documents.agent.program import NOT_FOUND

_CHUNK = 1 << 20
LINE_LIMIT = 1 << 20
"""A longer line is read in pieces: no agent's event is as long, and garbage may be."""
LOG_LIMIT, LOGGED_TEXT = 4 << 20, 2000
TEXT_KEPT, DENIALS_KEPT = 4000, 20
WORDS = "words"
"""The directory of a turn in which words of a person wait for its agent."""


@dataclass
class Account:
    """What an agent told in all."""

    usage: Usage = field(default_factory=Usage)
    text: str = ""
    error: str = ""
    resets_at: float | None = None
    limited: bool = False
    finished: bool = False
    """Whether it said that it had finished without an error."""
    session: str = ""
    failure: Failure | None = None
    """Why it failed, as far as it told."""
    denied: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    missed_command: bool = False
    """Whether its shell did not find `ralph`."""

    def take(self, event: AgentEvent) -> None:
        """Add one event."""
        match event.kind:
            case Kind.USAGE:
                self.usage += event.usage
            case Kind.TEXT:
                self.text = f"{self.text}\n{event.text}"[-TEXT_KEPT:].lstrip()
            case Kind.LIMIT:
                self.limited, self.resets_at, self.error = True, event.resets_at or self.resets_at, event.text
                self.failure = Failure.LIMIT
            case Kind.ERROR:
                self.error, self.failure = event.text, event.failure or self.failure
            case Kind.RESULT:
                self.finished = not event.is_error
                if self.usage.tokens and self.usage.cost is None and self.usage.unpriced is None:
                    self.usage = replace(self.usage, unpriced="")
                self.text = event.text or self.text
                self.error = event.text if event.is_error and not self.error else self.error
                self.failure = event.failure or self.failure
            case Kind.SESSION:
                self.session = event.session
            case Kind.DENIED:
                self.denied = [*self.denied, event.text][-DENIALS_KEPT:]
            case Kind.WARNING if event.text not in self.warnings:
                self.warnings = [*self.warnings, event.text][-DENIALS_KEPT:]
            case Kind.TOOL_RESULT:
                self.missed_command = self.missed_command or bool(NOT_FOUND.search(event.text))
            case Kind.TOOL | Kind.RETRY | Kind.HEARD | Kind.THINKING | Kind.WARNING:
                pass


class EventLog:
    """The normalised events of a turn beside its raw output, for whoever looks at it later; capped, and never waited for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[str] = []
        self._room = LOG_LIMIT
        self._begun = False

    def note(self, event: AgentEvent) -> None:
        """Keep an event, as long as there is room."""
        if self._room <= 0:
            return
        plain = to_plain(replace(event, text=event.text[:LOGGED_TEXT]))
        line = dump(plain) + "\n"
        self._room -= len(line)
        self._lines.append(line if self._room > 0 else '{"kind": "error", "text": "more events than are kept"}\n')
        if len(self._lines) >= 100:
            self.flush()

    def flush(self) -> None:
        """Write what was kept since the last time; a turn that is taken over is read from its beginning again."""
        if not self._lines:
            return
        with contextlib.suppress(OSError), self._path.open("a" if self._begun else "w", errors="replace") as file:
            file.writelines(self._lines)
        self._lines, self._begun = [], True


class Tail:
    """Follows a stream file and hands on what it tells, each line once."""

    def __init__(self, directory: Path, reader: Reader, watch: Callable[[AgentEvent], None]) -> None:
        self._path = directory / "stdout"
        self._words = str(directory / WORDS)
        self._reader = reader
        self._watch = watch
        self._offset = 0
        self._rest = b""
        self._log = EventLog(directory / "events.jsonl")
        self._heard: list[str] = []
        self.account = Account()

    def poll(self) -> None:
        """Read what was added since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(_CHUNK):
                    self._offset += len(chunk)
                    self._feed(chunk)
        except FileNotFoundError:
            return
        self.heard()

    def heard(self) -> tuple[str, ...]:
        """Look what of a person's words was taken in, and hand on what is new of it."""
        for name, means in hook.heard(self._words):
            if name not in self._heard:
                self._heard.append(name)
                self._tell(AgentEvent(Kind.HEARD, name, tool=means))
        return tuple(self._heard)

    def finish(self) -> Account:
        """Read to the end, a last line without its newline included."""
        self.poll()
        if self._rest:
            self._line(self._rest)
            self._rest = b""
        self._log.flush()
        return self.account

    def _feed(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._line(line)
        while len(self._rest) > LINE_LIMIT:
            self._line(self._rest[:LINE_LIMIT])
            self._rest = self._rest[LINE_LIMIT:]

    def _line(self, line: bytes) -> None:
        for event in self._reader.read(line):
            self._tell(event)

    def _tell(self, event: AgentEvent) -> None:
        self.account.take(event)
        self._log.note(event)
        self._watch(event)
