"""Documents that change together: one commit with a write-ahead record that recovery rolls forward.

A commit is an entry in the journal and the documents that follow from it. The order is: write-ahead record, journal
line, documents, record removed. Whatever instant the engine dies at, opening again either finds no trace of the commit
or finishes it. A document that somebody edited in between is left as they wrote it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.core.entries import Entry, Record
from ralph.core.errors import StateError
from ralph.store.files import read_limited, remove, storage, write_atomic
from ralph.store.journal import Journal

_ABSENT = ""


@dataclass
class Documents:
    """The journal of a run together with the documents that it accounts for."""

    root: Path
    journal: Journal
    record_path: Path
    hashes: dict[str, str] = field(default_factory=dict)
    """What the engine last wrote to each document."""

    @classmethod
    def open(cls, root: Path, run_dir: Path) -> tuple["Documents", list[Record]]:
        """Open the journal of a run, finishing a commit that was cut off."""
        record_path = run_dir / "commit.json"
        journal, records = Journal.open(run_dir / "journal.jsonl")
        documents = cls(root, journal, record_path)
        if record_path.exists():
            documents._roll_forward(json.loads(read_limited(record_path, 64 * 1024 * 1024)))
            journal, records = Journal.open(run_dir / "journal.jsonl")
            documents.journal = journal
        for record in records:
            documents.hashes.update(record.documents)
        return documents, records

    def commit(self, at: float, entry: Entry, changes: Mapping[str, str]) -> Record:
        """Journal an entry and write what follows from it, all or nothing."""
        if not changes:
            return self.journal.append(at, entry)
        contents = {path: text.encode() for path, text in changes.items()}
        after = {path: digest(data) for path, data in contents.items()}
        line, record, line_hash = self.journal.encode(at, entry, after)
        ahead = {
            "schema": 1,
            "seq": record.seq,
            "line": line.decode(),
            "line_hash": line_hash,
            "documents": {
                path: {"before": self._on_disk(path), "after": after[path], "content": text}
                for path, text in changes.items()
            },
        }
        write_atomic(self.record_path, json.dumps(ahead).encode())
        self.journal.append_line(line, line_hash)
        for path, data in contents.items():
            self._write(path, data)
        remove(self.record_path)
        self.hashes.update(after)
        return record

    def read(self) -> dict[str, str]:
        """The documents as they are on the disk now, by path; those that are gone are left out."""
        found = {}
        for path in self.hashes:
            try:
                found[path] = read_limited(self._inside(path)).decode()
            except FileNotFoundError:
                continue
            except UnicodeDecodeError as error:
                raise StateError(f"the document is not UTF-8 text ({error})", where=str(self.root / path)) from error
        return found

    def edited(self) -> Iterator[tuple[str, str]]:
        """Documents that somebody else changed since the engine wrote them, with what is in them now."""
        for path, text in self.read().items():
            if digest(text.encode()) != self.hashes[path]:
                yield path, text

    def _roll_forward(self, ahead: dict[str, object]) -> None:
        if self.journal.seq < int(str(ahead["seq"])):
            self.journal.append_line(str(ahead["line"]).encode(), str(ahead["line_hash"]))
        documents = ahead["documents"]
        if not isinstance(documents, dict):
            raise StateError("the write-ahead record is corrupt", where=str(self.record_path))
        for path, change in documents.items():
            current = self._on_disk(path)
            if current == change["before"] and current != change["after"]:
                self._write(path, change["content"].encode())
        remove(self.record_path)

    def _write(self, path: str, data: bytes) -> None:
        target = self._inside(path)
        with storage(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, data)

    def _on_disk(self, path: str) -> str:
        try:
            return digest(read_limited(self._inside(path)))
        except FileNotFoundError:
            return _ABSENT

    def _inside(self, path: str) -> Path:
        """The place of a document; a link on the way that leads out of the root is not followed."""
        target = self.root / path
        if not target.parent.resolve().is_relative_to(self.root.resolve()):
            raise StateError("a symbolic link leads out of the project", where=str(target), todo="remove it")
        return target


def digest(data: bytes) -> str:
    """What a document's content is known by."""
    return hashlib.sha256(data).hexdigest()[:16]
