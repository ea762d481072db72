"""Reading a turn's output as it grows: from the file that its keeper writes, in events."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.agent import Reader
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

_CHUNK = 1 << 20
LINE_LIMIT = 1 << 20
"""A longer line is read in pieces: no agent's event is as long, and garbage may be."""
TEXT_KEPT, DENIALS_KEPT = 4000, 20


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
                self.text = event.text or self.text
                self.error = event.text if event.is_error and not self.error else self.error
                self.failure = event.failure or self.failure
            case Kind.SESSION:
                self.session = event.session
            case Kind.DENIED:
                self.denied = [*self.denied, event.text][-DENIALS_KEPT:]
            case Kind.TOOL | Kind.TOOL_RESULT | Kind.RETRY:
                pass


class Tail:
    """Follows a stream file and hands on what it tells, each line once."""

    def __init__(self, path: Path, reader: Reader, watch: Callable[[AgentEvent], None]) -> None:
        self._path = path
        self._reader = reader
        self._watch = watch
        self._offset = 0
        self._rest = b""
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

    def finish(self) -> Account:
        """Read to the end, a last line without its newline included."""
        self.poll()
        if self._rest:
            self._line(self._rest)
            self._rest = b""
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
            self.account.take(event)
            self._watch(event)
