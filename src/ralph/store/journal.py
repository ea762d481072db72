"""The journal of a run: append-only JSON Lines. Each line ends with a code that shows that Ralph wrote it, in this place.

The code is computed with the user's key (`user_state`) from the run, the code of the line before, and the line itself.
Whoever has no key can neither add a line nor change, move or take over one from another run. A line whose code is right
is Ralph's whatever is before it, so the end of a journal can be verified without the rest.
"""

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from ralph.core.codec import dump, from_plain, json_object, to_plain
from ralph.core.entries import NAMES, ChecksStarted, Entry, Notice, Record, SnapshotTaken
from ralph.core.errors import StateError
from ralph.store.files import _syscall, open_regular, storage, write_all
from ralph.store.user_state import Key, ensure_key, find_key

LINE_LIMIT = 4 * 1024 * 1024
_NAME_OF = {kind: name for name, kind in NAMES.items()}
_MARK = ', "mac": "'
_UNSIGNED_MARK = ', "hash": "'
"""How lines end that older versions wrote. Their hash needs no key, so anybody can write such a line."""
_INFORMATIVE = (ChecksStarted, Notice, SnapshotTaken)
"""Entries that nothing rests on: a power cut may take them, and the next entry makes them last."""
_TAIL = 65536
_NO_KEY = Key(secrets.token_bytes(32))
"""Stands in for the user's key before there is one: no line has been signed with it."""

FOREIGN = "this machine did not write its journal"
UNSIGNED = "an older version of Ralph wrote its journal, without signatures"
CHANGED = "its journal was changed by somebody else"


@dataclass
class Chain:
    """The codes of a run's lines, each computed from the one before."""

    run: str
    key: Key
    code: str = ""
    """The code of the last line."""

    def sign(self, text: str) -> str:
        """The next line: a text with its code. The run is in it, so that a line of another run is not one of this run."""
        return f'{text[:-1]}{_MARK}{self._next(text)}"}}\n'

    def accepts(self, line: str) -> bool:
        """Whether Ralph wrote this line to come next."""
        head, _, rest = line.rpartition(_MARK)
        return rest == f'{self._next(head + "}")}"}}\n'

    def follow(self, line: str) -> None:
        """Go on behind a line."""
        self.code = line.rpartition(_MARK)[2].removesuffix('"}\n')

    def _next(self, text: str) -> str:
        return self.key.code(f"{self.run}\n{self.code}\n{text}")


@dataclass
class Journal:
    """A run's journal, open for appending by the one engine that holds the run's lock."""

    path: Path
    chain: Chain
    seq: int = 0
    last: str = ""
    """The last line."""
    size: int = 0
    unsynced: list[str] = field(default_factory=list)
    """Lines that a power cut may still take."""

    @classmethod
    def open(cls, path: Path) -> tuple["Journal", list[Record]]:
        """Open or create. A line torn off by a crash is moved aside; a line that Ralph did not write is an error."""
        journal = cls(path, Chain(path.parent.name, ensure_key()))
        records, torn = [], b""
        for line in _lines_from(path):
            if _is_torn(line):
                torn = line
                break
            records.append(journal._take(line))
        if torn:
            with storage(path):
                path.with_suffix(".torn").write_bytes(torn)
                _syscall(os.truncate, path, journal.size)
        return journal, records

    def append(
        self, at: float, entry: Entry, documents: Mapping[str, str] | None = None, seen: Mapping[str, str] | None = None
    ) -> Record:
        """Add one line and make it last; a line that does not fit on the disk leaves no trace."""
        line, record = self.encode(at, entry, documents or {}, seen)
        self.append_line(line, durable=not isinstance(entry, _INFORMATIVE))
        return record

    def encode(
        self, at: float, entry: Entry, documents: Mapping[str, str], seen: Mapping[str, str] | None = None
    ) -> tuple[bytes, Record]:
        """The next line, without writing it."""
        body: dict[str, Any] = {
            "seq": self.seq + 1,
            "at": timestamp(at),
            "type": _NAME_OF[type(entry)],
            **to_plain(entry),
        }
        if documents:
            body["documents"] = documents
        if seen:
            body["seen"] = seen
        line = self.chain.sign(dump(body)).encode()
        return line, Record(seq=self.seq + 1, at=at, entry=entry, documents=documents, seen=seen or {})

    def append_line(self, line: bytes, *, durable: bool = True) -> None:
        """Write a line made by `encode`."""
        if len(line) > LINE_LIMIT:
            raise StateError("what is to be journaled is too long for a line", where=str(self.path))
        with storage(self.path):
            descriptor = open_regular(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            try:
                if os.fstat(descriptor).st_size != self.size:
                    raise StateError(
                        "the journal was changed by somebody else while the run was under way",
                        where=str(self.path),
                        todo=adopt_advice(self.path.parent.name),
                    )
                try:
                    write_all(descriptor, line)
                    if durable:
                        _syscall(os.fsync, descriptor)
                except OSError:
                    os.ftruncate(descriptor, self.size)
                    raise
                self.unsynced = [] if durable else [*self.unsynced, line.decode()]
            finally:
                os.close(descriptor)
        self._advance(line, line.decode())

    def _take(self, line: bytes) -> Record:
        """Verify and read the next line of the file."""
        text = line.decode(errors="surrogateescape")
        if len(line) > LINE_LIMIT or not self.chain.accepts(text):
            what = f"{CHANGED}: this line does not follow from the one before" if self.seq else _doubt_of(text)
            raise self._refusal(f"the run cannot be trusted: {what}")
        record = _read_line(text, f"{self.path}, line {self.seq + 1}")
        if record.seq != self.seq + 1:
            raise self._refusal("the journal has a line with a wrong number")
        self._advance(line, text)
        return record

    def _refusal(self, what: str) -> StateError:
        where = f"{self.path}, line {self.seq + 1}"
        return StateError(what, where=where, todo=adopt_advice(self.path.parent.name))

    def _advance(self, line: bytes, text: str) -> None:
        self.seq += 1
        self.last = text
        self.chain.follow(text)
        self.size += len(line)


def read_records(path: Path) -> list[Record]:
    """All records of a journal, verified; nothing is changed."""
    journal, records = Journal(path, Chain(path.parent.name, find_key() or _NO_KEY)), []
    for line in _lines_from(path):
        if _is_torn(line):
            break
        records.append(journal._take(line))
    return records


def read_claimed(path: Path) -> list[Record]:
    """All records of a journal whoever wrote it, for those who only look; lines that cannot be read are left out."""
    records = []
    for line in _lines_from(path):
        try:
            records.append(_read_line(line.decode(), str(path)))
        except (StateError, UnicodeDecodeError):
            continue
    return records


def find_doubt(path: Path) -> str:
    """Why a journal is not known to be Ralph's from its first line to its last; empty if it is. Parses nothing."""
    size = _trusted_size(path)
    line = next(_lines_from(path, size), b"")
    if _is_torn(line):
        return ""
    return CHANGED if size else _doubt_of(line.decode(errors="replace"))


def untrusted_line(path: Path) -> str:
    """The place of the first line that is not known to be Ralph's."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        number = file.read(_trusted_size(path)).count(b"\n") + 1
    return f"{path}, line {number}"


def cut_claimed(path: Path, aside: Path) -> bool:
    """Move the lines that Ralph did not write to another file; False if not even the first line is Ralph's."""
    size = _trusted_size(path)
    if size:
        with storage(path), os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file:
            file.seek(size)
            aside.write_bytes(file.read())
            file.truncate(size)
            os.fsync(file.fileno())
    return size > 0


def _trusted_size(path: Path) -> int:
    """How many bytes of a journal are whole lines that Ralph wrote, one after the other from the first."""
    chain, size = Chain(path.parent.name, find_key() or _NO_KEY), 0
    for line in _lines_from(path):
        text = line.decode(errors="surrogateescape")
        if not chain.accepts(text):
            break
        chain.follow(text)
        size += len(line)
    return size


@dataclass(frozen=True)
class Tail:
    """The last lines of a journal."""

    lines: tuple[dict[str, Any], ...] = ()
    doubt: str = ""
    """Why they are not known to be Ralph's; empty if they are."""


def read_tail(path: Path) -> Tail:
    """The last lines of a journal with whether they are Ralph's, at a cost that does not grow with the journal."""
    raw, is_whole = _last_whole_lines(path, _TAIL)
    texts = [line.decode(errors="surrogateescape") for line in raw]
    chain, ours = Chain(path.parent.name, find_key() or _NO_KEY), []
    if not is_whole:
        # The first of some last lines cannot be verified: it only shows what the next one has to follow.
        chain.follow(texts.pop(0))
    for text in texts:
        ours.append(chain.accepts(text))
        chain.follow(text)
    doubt = ""
    if not all(ours):
        doubt = CHANGED if any(ours) else _doubt_of(texts[-1])
    return Tail(tuple(found for text in texts if (found := json_object(text))), doubt)


def read_raw(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whole lines from an offset on, unverified, each with the offset behind it."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            if found := json_object(line):
                yield offset, found


def last_of_type(path: Path, kind: str) -> dict[str, Any] | None:
    """The last line of one type, unverified. Searches bytes and parses one line, so that a long journal costs little."""
    try:
        with (
            os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file,
            mmap(file.fileno(), 0, access=ACCESS_READ) as data,
        ):
            at = data.rfind(f'"type": "{kind}"'.encode())
            end = data.find(b"\n", at)
            return json_object(data[data.rfind(b"\n", 0, at) + 1 : end]) if 0 <= at < end else None
    except (OSError, ValueError, StateError):
        return None


def last_lines(path: Path, size: int = _TAIL) -> list[dict[str, Any]]:
    """The last lines of any file of JSON Lines, unverified, at a cost that does not grow with it."""
    return [found for line in _last_whole_lines(path, size)[0] if (found := json_object(line))]


def timestamp(at: float) -> str:
    """A moment as people and tools read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> float:
    """The moment that a timestamp names."""
    return datetime.fromisoformat(text).timestamp()


def adopt_advice(run: str) -> str:
    """What to type if a run is not known to be Ralph's own."""
    return f"`ralph resume {run} --adopt` shows what it would start and asks; `ralph clean {run}` removes it"


def _doubt_of(line: str) -> str:
    """Why a journal with this line in it is not Ralph's."""
    return UNSIGNED if _UNSIGNED_MARK in line[-60:] else FOREIGN


def _lines_from(path: Path, offset: int = 0) -> Iterator[bytes]:
    """The lines of a file from an offset on; the last one may be torn. None if there is no file."""
    if not path.is_symlink() and not path.exists():
        return
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        yield from iter(lambda: file.readline(LINE_LIMIT + 1), b"")


def _is_torn(line: bytes) -> bool:
    """Whether a crash cut this line off, or there is none."""
    return not line.endswith(b"\n") and len(line) <= LINE_LIMIT


def _last_whole_lines(path: Path, size: int) -> tuple[list[bytes], bool]:
    """The lines in the last `size` bytes of a file, or more if a line is that long; and whether these are all lines."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            end = os.fstat(file.fileno()).st_size
            while True:
                start = max(0, end - size)
                file.seek(start)
                lines = file.read(end - start).split(b"\n")
                whole = [line + b"\n" for line in lines[1 if start else 0 : -1]]
                if len(whole) > 1 or start == 0:
                    return whole, start == 0
                size *= 4
    except (OSError, StateError):
        return [], True


def _read_line(text: str, where: str) -> Record:
    try:
        body = json.loads(text)
        seq, at, kind = body["seq"], moment(body["at"]), NAMES[body["type"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"the journal has a line that is not Ralph's ({error})", where=where) from None
    return Record(
        seq=seq,
        at=at,
        entry=from_plain(kind, body, where),
        documents=body.get("documents", {}),
        seen=body.get("seen", {}),
    )
