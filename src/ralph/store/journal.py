"""The journal: append-only JSON Lines, each line chained to the one before by its hash."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralph.core.codec import dump, from_plain, to_plain
from ralph.core.entries import NAMES, ChecksStarted, Entry, Notice, Record, SnapshotTaken
from ralph.core.errors import StateError
from ralph.store.files import _syscall, open_regular, storage, write_all
from ralph.store.lines import moment, timestamp

LINE_LIMIT = 4 * 1024 * 1024
_NAME_OF = {kind: name for name, kind in NAMES.items()}
_START = "0" * 16
_INFORMATIVE = (ChecksStarted, Notice, SnapshotTaken)
"""Entries that nothing rests on: a power cut may take them, and the next entry makes them last."""


@dataclass
class Journal:
    """A run's journal, open for appending by the one engine that holds the run's lock."""

    path: Path
    seq: int
    hash: str
    size: int
    unsynced: list[str] = field(default_factory=list)
    """Lines that a power cut may still take."""

    @classmethod
    def open(cls, path: Path) -> tuple["Journal", list[Record]]:
        """Open or create; a line torn off by a crash is moved aside, a broken chain is an error."""
        records, size, last_hash, torn = _verified(path)
        if torn:
            with storage(path):
                path.with_suffix(".torn").write_bytes(torn)
                _syscall(os.truncate, path, size)
        return cls(path, len(records), last_hash, size), records

    def append(
        self, at: float, entry: Entry, documents: Mapping[str, str] | None = None, seen: Mapping[str, str] | None = None
    ) -> Record:
        """Add one line and make it last; a line that does not fit on the disk leaves no trace."""
        line, record, line_hash = self.encode(at, entry, documents or {}, seen)
        self.append_line(line, line_hash, durable=not isinstance(entry, _INFORMATIVE))
        return record

    def encode(
        self, at: float, entry: Entry, documents: Mapping[str, str], seen: Mapping[str, str] | None = None
    ) -> tuple[bytes, Record, str]:
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
        text = dump(body)
        line_hash = chained(self.hash, text)
        line = f'{text[:-1]}, "hash": "{line_hash}"}}\n'.encode()
        return line, Record(self.seq + 1, at, entry, documents, seen or {}), line_hash

    def append_line(self, line: bytes, line_hash: str, *, durable: bool = True) -> None:
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
                        todo="an agent may have done it: look at the end of that file; nothing of it is trusted",
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
        self.seq += 1
        self.hash = line_hash
        self.size += len(line)


def read_records(path: Path) -> list[Record]:
    """All records of a journal; for those who only look."""
    return _verified(path)[0]


def hash_in(line: str) -> str:
    """The hash that a line ends with."""
    return line.rpartition(', "hash": "')[2][:16]


def chained(previous: str, text: str) -> str:
    """The hash of a line: of its text, and of all that came before it."""
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()[:16]


def _verified(path: Path) -> tuple[list[Record], int, str, bytes]:
    records: list[Record] = []
    size, last_hash = 0, _START
    if not path.is_symlink() and not path.exists():
        return records, size, last_hash, b""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_LIMIT + 1), b""), 1):
            where = f"{path}, line {number}"
            if len(line) > LINE_LIMIT:
                raise StateError("the line is too long to be Ralph's", where=where)
            if not line.endswith(b"\n"):
                return records, size, last_hash, line
            record, last_hash = _read_line(line, last_hash, number, where)
            records.append(record)
            size += len(line)
    return records, size, last_hash, b""


def _read_line(line: bytes, previous: str, number: int, where: str) -> tuple[Record, str]:
    try:
        text = line.decode()
        body = json.loads(text)
        head, mark, _ = text.rpartition(', "hash": "')
        claimed = hash_in(text)
        seq, at, kind = body["seq"], moment(body["at"]), NAMES[body["type"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"the journal has a line that is not Ralph's ({error})", where=where) from None
    if text != f'{head}{mark}{claimed}"}}\n' or chained(previous, head + "}") != claimed or seq != number:
        raise StateError(
            "the journal was changed: this line does not follow from the one before",
            where=where,
            todo="the run cannot be trusted from here on; start a new one (`ralph diff` still shows its work)",
        )
    entry = from_plain(kind, body, where)
    return Record(seq, at, entry, body.get("documents", {}), body.get("seen", {})), claimed
