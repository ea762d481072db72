"""The journal of a run: append-only JSON Lines. Each line ends with a code that proves that Ralph wrote it at this position.

The code is computed with the user's key (`user_state`) from the run, the code of the line before, and the line itself.
Without the key, nothing can add, change or move a line, or copy one from another run. A line with a valid code is Ralph's
whatever is before it, so the end of a journal can be verified without the rest.

Lines that are missing at the end leave no trace in the file, so the user's state directory records the last line of each
journal: its head. The head is written after the line is synced, and not synced itself: after a power cut it may be behind,
never ahead. Without a sandbox, an agent that runs as the user can read the key and write the head. The codes protect against
accidents and against agents that stay in the project.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from ralph.core.codec import dump, format_time, from_plain, parse_json_object, parse_time, to_plain
from ralph.core.entries import ENTRY_TYPES, NAMES, ChecksStarted, Entry, Notice, Record, SnapshotTaken
from ralph.core.errors import StateError
from ralph.core.events import TaskChanged
from ralph.core.values import value
from ralph.store.files import _syscall, open_regular, storage_errors, write_all
from ralph.store.user_state import Key, ensure_key, ensure_state_directory, find_key, state_directory

LINE_LIMIT = 4 * 1024 * 1024
_NAME_OF = {kind: name for name, kind in NAMES.items()}
_MARK = ', "mac": "'
_UNSIGNED_MARK = ', "hash": "'
"""The end of lines that older versions wrote. Their hash needs no key, so any program can write such a line."""
_INFORMATIVE = (ChecksStarted, Notice, SnapshotTaken, TaskChanged)
"""Entries that nothing depends on. They are not synced: a power cut may lose them until the next entry is synced."""
_TAIL = 65536
NO_KEY = Key(os.urandom(32))
"""Used if the user has no key yet. No line is signed with it."""

FOREIGN = "this machine did not write its journal"
UNSIGNED = "an older version of Ralph wrote its journal, without signatures"
CHANGED = "something other than Ralph changed its journal"
CUT = "lines are missing at the end of its journal"


@dataclass
class Chain:
    """The codes of a run's lines, each computed from the one before."""

    run: str
    key: Key
    code: str = ""
    """The code of the last line."""

    def sign(self, text: str) -> str:
        """The next line: a text with its code. The code depends on the run, so that a line of another run is not accepted."""
        return f'{text[:-1]}{_MARK}{self._next(text)}"}}\n'

    def accepts(self, line: str) -> bool:
        """Whether Ralph wrote this line, as the next one."""
        head, _, rest = line.rpartition(_MARK)
        return rest == f'{self._next(head + "}")}"}}\n'

    def follow(self, line: str) -> None:
        """Make a line the last one."""
        self.code = line.rpartition(_MARK)[2].removesuffix('"}\n')

    def _next(self, text: str) -> str:
        return self.key.code(f"{self.run}\n{self.code}\n{text}")


@value
class Head:
    """The last line of a journal, as recorded outside of the project."""

    seq: int
    code: str
    """The code of the line with that number."""

    @classmethod
    def read(cls, path: Path) -> "Head | None":
        """The head of a journal; None if there is none, or a crash has damaged it."""
        try:
            seq, code = _head_path(path).read_text().split()
            return cls(int(seq), code)
        except (OSError, ValueError):
            return None

    def write(self, path: Path) -> None:
        """Write it in place, in one call. If that fails, the old head stays, which is allowed to be behind."""
        with contextlib.suppress(OSError):
            descriptor = os.open(_head_path(path), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                _syscall(os.pwrite, descriptor, f"{self.seq:012d} {self.code}\n".encode(), 0)
            finally:
                os.close(descriptor)


def forget_head(path: Path) -> None:
    """Delete the head of a journal that is removed or starts over."""
    with contextlib.suppress(OSError):
        _head_path(path).unlink(missing_ok=True)


def _head_path(path: Path) -> Path:
    directory = os.path.realpath(path.parent)
    return state_directory() / "heads" / hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]


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
    """Lines that are not synced: a power cut may lose them."""

    @classmethod
    def open(cls, path: Path) -> tuple["Journal", list[Record]]:
        """Open or create a journal. A last line that a crash left incomplete is moved to another file.

        A line that Ralph did not write is an error, and so are lines that are missing at the end.
        """
        journal = cls(path, Chain(path.parent.name, ensure_key()))
        with storage_errors(path):
            (ensure_state_directory() / "heads").mkdir(exist_ok=True, mode=0o700)
        head, code = Head.read(path), ""
        records, torn = [], b""
        for line in _read_lines_from(path):
            if _is_torn(line):
                torn = line
                break
            records.append(journal._take(line))
            if head and head.seq == journal.seq:
                code = journal.chain.code
        if head and head.code != code:
            doubt = CUT if head.seq > journal.seq else CHANGED
            raise journal._refusal(f"the run cannot be trusted: {doubt}")
        if torn:
            with storage_errors(path):
                path.with_suffix(".torn").write_bytes(torn)
                _syscall(os.truncate, path, journal.size)
        return journal, records

    def append(
        self, at: float, entry: Entry, documents: Mapping[str, str] | None = None, seen: Mapping[str, str] | None = None
    ) -> Record:
        """Append and sync one line. If the disk is full, nothing of the line stays."""
        line, record = self.encode(at, entry, documents or {}, seen)
        self.append_line(line, durable=not isinstance(entry, _INFORMATIVE))
        return record

    def encode(
        self,
        at: float,
        entry: Entry,
        documents: Mapping[str, str],
        seen: Mapping[str, str] | None = None,
        lines: Mapping[str, tuple[str, ...]] | None = None,
    ) -> tuple[bytes, Record]:
        """The next line, without writing it."""
        body: dict[str, Any] = {
            "seq": self.seq + 1,
            "at": format_time(at),
            "type": _NAME_OF[type(entry)],
            **to_plain(entry),
        }
        if documents:
            body["documents"] = documents
        if seen:
            body["seen"] = seen
        if lines:
            body["lines"] = {path: list(hashes) for path, hashes in lines.items()}
        line = self.chain.sign(dump(body)).encode()
        return line, Record(
            seq=self.seq + 1, at=at, entry=entry, documents=documents, seen=seen or {}, lines=lines or {}
        )

    def append_line(self, line: bytes, *, durable: bool = True) -> None:
        """Write a line made by `encode`."""
        if len(line) > LINE_LIMIT:
            raise StateError(f"a journal line cannot be longer than {LINE_LIMIT} bytes", where=str(self.path))
        with storage_errors(self.path):
            descriptor = open_regular(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            try:
                if os.fstat(descriptor).st_size != self.size:
                    raise StateError(
                        "something other than Ralph changed the journal during the run",
                        where=str(self.path),
                        todo=advise_to_adopt(self.path.parent.name),
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
        if durable:
            Head(self.seq, self.chain.code).write(self.path)

    def _take(self, line: bytes) -> Record:
        """Verify and read the next line of the file."""
        text = line.decode(errors="surrogateescape")
        if len(line) > LINE_LIMIT or not self.chain.accepts(text):
            what = (
                f"{CHANGED}: this line does not follow from the one before"
                if self.seq
                else explain_untrusted_line(text)
            )
            raise self._refusal(f"the run cannot be trusted: {what}")
        record = read_line(text, f"{self.path}, line {self.seq + 1}")
        if record.seq != self.seq + 1:
            raise self._refusal("the journal has a line with a wrong number")
        self._advance(line, text)
        return record

    def _refusal(self, what: str) -> StateError:
        where = f"{self.path}, line {self.seq + 1}"
        return StateError(what, where=where, todo=advise_to_adopt(self.path.parent.name))

    def _advance(self, line: bytes, text: str) -> None:
        self.seq += 1
        self.last = text
        self.chain.follow(text)
        self.size += len(line)


def read_records(path: Path) -> list[Record]:
    """Read and verify all records of a journal. Nothing is changed."""
    journal, records = Journal(path, Chain(path.parent.name, find_key() or NO_KEY)), []
    for line in _read_lines_from(path):
        if _is_torn(line):
            break
        records.append(journal._take(line))
    return records


def find_doubt(path: Path) -> str:
    """Why Ralph may not have written the whole journal; empty if it has. Parses nothing."""
    trusted = _verify(path)
    line = next(_read_lines_from(path, trusted.size), b"")
    if not _is_torn(line):
        return CHANGED if trusted.size else explain_untrusted_line(line.decode(errors="replace"))
    if trusted.has_head:
        return ""
    return CHANGED if trusted.lines >= trusted.expected else CUT


def find_untrusted_line(path: Path) -> str:
    """The file and number of the first line that Ralph may not have written."""
    return f"{path}, line {_verify(path).lines + 1}"


def cut_claimed(path: Path, aside: Path) -> bool:
    """Move the lines that Ralph did not write to another file; False if not even the first line is Ralph's."""
    size = _verify(path).size
    if size:
        with storage_errors(path), os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file:
            file.seek(size)
            aside.write_bytes(file.read())
            file.truncate(size)
            os.fsync(file.fileno())
    return size > 0


@value
class _Trusted:
    """The lines that Ralph wrote, one after the other from the first."""

    size: int
    lines: int
    expected: int
    """The number of lines when the head was written; 0 if there is no head."""
    has_head: bool
    """Whether the line that the head records is among them."""


def _verify(path: Path) -> _Trusted:
    """Find out how much of a journal Ralph wrote. Parses nothing."""
    chain, head = Chain(path.parent.name, find_key() or NO_KEY), Head.read(path)
    size = lines = 0
    has_head = head is None
    for line in _read_lines_from(path):
        text = line.decode(errors="surrogateescape")
        if not chain.accepts(text):
            break
        chain.follow(text)
        size += len(line)
        lines += 1
        has_head = has_head or (head is not None and lines == head.seq and chain.code == head.code)
    return _Trusted(size=size, lines=lines, expected=head.seq if head else 0, has_head=has_head)


@value
class Tail:
    """The last lines of a journal."""

    lines: tuple[dict[str, Any], ...] = ()
    doubt: str = ""
    """Why Ralph may not have written them; empty if it has."""


def read_tail(path: Path) -> Tail:
    """The last lines of a journal, verified, at a cost that does not grow with the journal."""
    # The head is written after its line. If it were read after the lines, a live engine could have written both meanwhile.
    head = Head.read(path)
    raw, is_whole = _read_last_whole_lines(path, _TAIL)
    texts = [line.decode(errors="surrogateescape") for line in raw]
    chain, ours = Chain(path.parent.name, find_key() or NO_KEY), []
    if not is_whole:
        # The first of the last lines cannot be verified without the line before it. It only provides the code for the next.
        chain.follow(texts.pop(0))
    codes: dict[int, str] = {}
    lines = []
    for text in texts:
        ours.append(chain.accepts(text))
        chain.follow(text)
        if found := parse_json_object(text):
            lines.append(found)
            codes[_read_seq(found)] = chain.code
    if all(ours):
        return Tail(tuple(lines), _explain_wrong_head(head, codes))
    return Tail(tuple(lines), CHANGED if any(ours) else explain_untrusted_line(texts[-1]))


def _explain_wrong_head(head: Head | None, codes: Mapping[int, str]) -> str:
    """Why the last lines, by number and code, are not the last that Ralph wrote; empty if they are.

    A head that is before these lines cannot be compared, and need not be: lines are missing only if the head is after them.
    """
    if head is None:
        return ""
    if head.seq > max(codes, default=0):
        return CUT
    return "" if codes.get(head.seq, head.code) == head.code else CHANGED


def _read_seq(line: Mapping[str, Any]) -> int:
    seq = line.get("seq")
    return seq if isinstance(seq, int) else 0


def read_raw(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Complete lines from an offset on, unverified, each with the offset after it."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            if found := parse_json_object(line):
                yield offset, found


def find_last_of_type(path: Path, kind: str) -> dict[str, Any] | None:
    """The last line of one type, unverified. Searches bytes and parses one line, so that a long journal is cheap."""
    try:
        with (
            os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file,
            mmap(file.fileno(), 0, access=ACCESS_READ) as data,
        ):
            at = data.rfind(f'"type": "{kind}"'.encode())
            end = data.find(b"\n", at)
            return parse_json_object(data[data.rfind(b"\n", 0, at) + 1 : end]) if 0 <= at < end else None
    except (OSError, ValueError, StateError):
        return None


def read_last_lines(path: Path, size: int = _TAIL) -> list[dict[str, Any]]:
    """The last lines of any JSON Lines file, unverified, at a cost that does not grow with the file."""
    found = (parse_json_object(line) for line in _read_last_whole_lines(path, size)[0])
    return [line for line in found if line]


def advise_to_adopt(run: str) -> str:
    """What to type if Ralph may not have written a run."""
    return f"`ralph resume {run} --adopt` shows what it would start and asks; `ralph clean {run}` removes it"


def explain_untrusted_line(line: str) -> str:
    """Why a journal with this line in it is not Ralph's."""
    return UNSIGNED if _UNSIGNED_MARK in line[-60:] else FOREIGN


def _read_lines_from(path: Path, offset: int = 0) -> Iterator[bytes]:
    """The lines of a file from an offset on; none if there is no file. The last one may be incomplete."""
    if not path.is_symlink() and not path.exists():
        return
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        yield from iter(lambda: file.readline(LINE_LIMIT + 1), b"")


def _is_torn(line: bytes) -> bool:
    """Whether a line is empty, or a crash left it incomplete."""
    return not line.endswith(b"\n") and len(line) <= LINE_LIMIT


def _read_last_whole_lines(path: Path, size: int) -> tuple[list[bytes], bool]:
    """The complete lines in the last `size` bytes of a file, or in more if a line is longer; and whether these are all."""
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


def read_line(text: str, where: str) -> Record:
    """The record in a line, without verifying it."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _make_line_error(error, where) from None
    return build_record(body, where)


def build_record(body: Any, where: str) -> Record:
    """The record in the JSON of a line, without verifying it."""
    try:
        seq, at, kind = body["seq"], parse_time(body["at"]), ENTRY_TYPES[body["type"]]
        lines = {path: tuple(hashes) for path, hashes in body.get("lines", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _make_line_error(error, where) from None
    return Record(
        seq=seq,
        at=at,
        entry=from_plain(kind, body, where),
        documents=body.get("documents", {}),
        seen=body.get("seen", {}),
        lines=lines,
    )


def _make_line_error(error: Exception, where: str) -> StateError:
    return StateError(f"the journal has a line that is not Ralph's ({error})", where=where)
