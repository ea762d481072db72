"""Reading a journal that another process is writing: each complete line once, verified, from any line on.

The writer may be killed at any byte. A line without its line break is left alone until it is complete or gone.
"""

import os
from pathlib import Path

from ralph.core.entries import Record
from ralph.core.errors import StateError
from ralph.core.values import value
from ralph.store.files import open_regular
from ralph.store.journal import CHANGED, CUT, LINE_LIMIT, NO_KEY, Chain, Head, explain_untrusted_line, read_line
from ralph.store.user_state import find_key

_ENDING = 64
"""Characters of a line that contain its code."""


@value
class Position:
    """A place between two lines of a journal, with what is needed to verify the next line."""

    offset: int = 0
    seq: int = 0
    """The number of the line before it."""
    ending: str = ""
    """How the line before it ends, with its code."""


class JournalReader:
    """Reads the journal of a run from a position on."""

    def __init__(self, path: Path, position: Position | None = None) -> None:
        self._path = path
        self._chain = Chain(path.parent.name, find_key() or NO_KEY)
        self._position = position or Position()
        self._chain.follow(self._position.ending)
        self.doubt = ""
        """Why Ralph may not have written what was read so far; empty if it has."""

    @property
    def position(self) -> Position:
        """Where the next line begins."""
        return self._position

    def read(self, most: int | None = None) -> list[Record]:
        """The complete lines that are new, `most` at a time. Lines that cannot be read are skipped.

        Raises `StateError` if the lines before the position are not there any more: the run was adopted, or is another one.
        """
        head = Head.read(self._path)
        try:
            descriptor = open_regular(self._path, os.O_RDONLY)
        except FileNotFoundError:
            if self._position.offset:
                raise _make_replaced_error(self._path) from None
            self.doubt = CUT if head else ""
            return []
        records: list[Record] = []
        is_at_end = False
        with os.fdopen(descriptor, "rb") as file:
            if not self._follows(file.fileno()):
                raise _make_replaced_error(self._path)
            file.seek(self._position.offset)
            while not is_at_end and (most is None or len(records) < most):
                line = file.readline(LINE_LIMIT + 1)
                is_at_end = not line.endswith(b"\n")
                if not is_at_end:
                    records += self._take(line)
        # The head is written after its line, and was read before the lines. So its line must be among them.
        if is_at_end and head and head.seq > self._position.seq and not self.doubt:
            self.doubt = CUT
        return records

    def is_in_place(self) -> bool:
        """Whether the line before the position is in the journal, and still the same."""
        try:
            descriptor = open_regular(self._path, os.O_RDONLY)
        except (OSError, StateError):
            return not self._position.offset
        try:
            return self._follows(descriptor)
        finally:
            os.close(descriptor)

    def _follows(self, descriptor: int) -> bool:
        if not self._position.offset:
            return True
        end = self._position.ending.encode(errors="surrogateescape")
        start = self._position.offset - len(end)
        return start >= 0 and os.pread(descriptor, len(end), start) == end

    def _take(self, line: bytes) -> list[Record]:
        text = line.decode(errors="surrogateescape")
        if not self.doubt and not self._chain.accepts(text):
            self.doubt = CHANGED if self._position.seq else explain_untrusted_line(text)
        self._chain.follow(text)
        record = _read_record(text, str(self._path))
        seq = record.seq if record else self._position.seq
        self._position = Position(self._position.offset + len(line), seq, text[-_ENDING:])
        return [record] if record else []


def _read_record(text: str, where: str) -> Record | None:
    try:
        record = read_line(text, where)
    except StateError:
        return None
    return record if isinstance(record.seq, int) else None


def _make_replaced_error(path: Path) -> StateError:
    return StateError("this is not the journal that Ralph read before", where=str(path), todo="read it again")
