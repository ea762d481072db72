"""Documents that change together: one commit with a write-ahead record that recovery rolls forward.

A commit is an entry in the journal and the documents that follow from it. The order is: write-ahead record, journal
line, documents, record removed. If the engine dies at any point, opening again either finds no trace of the commit
or finishes it. A document that the user edited in between is left as it is.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralph.core.entries import Entry, Record
from ralph.core.errors import StateError
from ralph.core.events import DocumentEdited, SideFiles
from ralph.store.files import (
    open_regular,
    read_limited,
    remove,
    stat_signature,
    storage_errors,
    to_bytes,
    to_text,
    write_all,
    write_atomic,
)
from ralph.store.journal import Journal, read_raw

_ABSENT, _UNREADABLE = "", "unreadable"


@dataclass
class Documents:
    """The journal of a run together with the documents that it accounts for."""

    root: Path
    journal: Journal
    commit_path: Path
    hashes: dict[str, str] = field(default_factory=dict)
    """The hash of what the engine last wrote to each document."""
    watched: tuple[str, ...] = ()
    """Patterns of files that the user or an agent may add. When they appear, they become documents."""
    sees_deletions: bool = False
    """Whether a document that was deleted counts as edited."""
    signatures: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Inode, size and time of each document as the engine wrote it. If they match, the document is not read again."""

    def __post_init__(self) -> None:
        self._real_root = os.path.realpath(self.root)

    @classmethod
    def open(cls, root: Path, run_dir: Path) -> tuple["Documents", list[Record]]:
        """Open the journal of a run, and finish a commit that a crash interrupted."""
        commit_path = run_dir / "commit.json"
        journal, records = Journal.open(run_dir / "journal.jsonl")
        documents = cls(root, journal, commit_path)
        if commit_path.is_symlink() or commit_path.exists():
            documents._roll_forward()
            journal, records = Journal.open(run_dir / "journal.jsonl")
            documents.journal = journal
        documents.hashes.update(hash_documents(records))
        return documents, records

    def commit(
        self, at: float, entry: Entry, changes: Mapping[str, str], side_files: SideFiles | None = None
    ) -> Record:
        """Journal an entry and write the documents that follow from it, all or nothing.

        The side files are written only together with documents.
        """
        side_files = side_files or SideFiles()
        if not changes:
            return self.journal.append(at, entry, seen=self._note_unwritten_edit(entry, changes))
        contents = {path: to_bytes(text) for path, text in changes.items()}
        after = {path: digest(data) for path, data in contents.items()}
        before = {path: self._hash_on_disk(path) for path in changes}
        seen = self._note_unwritten_edit(entry, changes)
        line, record = self.journal.encode(at, entry, after, seen, hash_lines(side_files))
        commit = {
            "schema": 1,
            "seq": record.seq,
            "lines": [*self.journal.unsynced, line.decode()],
            "documents": {
                path: {"before": before[path], "after": after[path], "content": text} for path, text in changes.items()
            },
            "side_files": {"copies": dict(side_files.copies), "lines": dict(side_files.lines)},
        }
        write_atomic(self.commit_path, json.dumps(commit).encode())
        self.journal.append_line(line)
        for path, data in contents.items():
            self._write(path, data)
        self._write_side_files(side_files)
        remove(self.commit_path)
        self.hashes.update(after)
        return record

    def read(self) -> dict[str, str]:
        """The documents as they are on disk now, by path. Deleted ones are left out."""
        found = {}
        for path in [*self.hashes, *self._find_new()]:
            text = self._read_text(path)
            if text is not None:
                found[path] = text
        return found

    def find_edits(self) -> Iterator[tuple[str, str]]:
        """The documents that changed since the engine wrote them, with their text now. A deleted one has none."""
        touched = [path for path in self.hashes if self._was_touched(path)]
        for path in [*touched, *self._find_new()]:
            if path in self.hashes and self._hash_on_disk(path) == self.hashes[path]:
                self._remember(path)
                continue
            try:
                text = self._read_text(path)
            except StateError:
                text = ""
            if text is not None or self.sees_deletions:
                yield path, text or ""

    def replace_state(self, at: float, path: str, text: str) -> None:
        """Write what the engine's own state is instead. What was there moves to the directory `edited` of the run.

        The hash is journaled as seen, because no event led to this content.
        """
        self._write(path, to_bytes(text))
        self.journal.append(at, DocumentEdited(path, ""), seen={path: digest(to_bytes(text))})
        self.hashes[path] = digest(to_bytes(text))

    def rebuild_changed_state(self, at: float, rebuilt: Mapping[str, str]) -> tuple[str, ...]:
        """Replace the engine's own state that something else changed by what is rebuilt. Returns what was done."""
        changed = find_changed_state(self.root, self.hashes)
        for path in changed:
            self.replace_state(at, path, rebuilt[path])
        return tuple(f"{describe_changed_state(path)}; Ralph rebuilt it from the journal" for path in changed)

    def _find_new(self) -> list[str]:
        """The files that match `watched` and are not documents yet."""
        found: list[Path] = []
        try:
            for pattern in self.watched:
                found += self.root.glob(pattern)
        except FileNotFoundError:
            # Another process is removing a directory while it is listed. The next call lists the rest.
            return []
        names = sorted(path.relative_to(self.root).as_posix() for path in found if path.is_file())
        return [name for name in names if name not in self.hashes]

    def _move_to_edited(self, path: str, target: Path) -> None:
        """Move what is at the path of a document, and not Ralph's, into the directory `edited` of the run."""
        aside = self.commit_path.parent / "edited" / f"{self.journal.seq:05d}-{os.urandom(2).hex()}-{target.name}"
        with storage_errors(aside):
            aside.parent.mkdir(exist_ok=True)
            os.rename(target, aside)

    def _read_text(self, path: str) -> str | None:
        try:
            return to_text(read_limited(self._resolve(path)))
        except FileNotFoundError:
            return None

    def _was_touched(self, path: str) -> bool:
        """Whether a document was written or replaced since the engine last saw it. Its content may be the same."""
        return stat_signature(self.root / path) != self.signatures.get(path)

    def _remember(self, path: str) -> None:
        seen = stat_signature(self.root / path)
        if seen:
            self.signatures[path] = seen
        else:
            self.signatures.pop(path, None)

    def _note_unwritten_edit(self, entry: Entry, changes: Mapping[str, str]) -> dict[str, str]:
        """Remember the state of an edited document that this commit does not write. Returns its hash."""
        if not isinstance(entry, DocumentEdited) or entry.path in changes:
            return {}
        self.hashes[entry.path] = self._hash_on_disk(entry.path)
        self._remember(entry.path)
        return {entry.path: self.hashes[entry.path]}

    def _write_side_files(self, side_files: SideFiles, *, again: bool = False) -> None:
        """Write the side files. With `again`, after a crash, some of them may be written already."""
        for path, text in side_files.copies.items():
            target = self._prepare(path)
            if target.is_dir():
                self._move_to_edited(path, target)
            write_atomic(target, to_bytes(text), durable=False)
        for path, line in side_files.lines.items():
            target, data = self._prepare(path), to_bytes(line)
            with storage_errors(target):
                descriptor = open_regular(target, os.O_RDWR | os.O_APPEND | os.O_CREAT)
                try:
                    written = _count_written(descriptor, data) if again else 0
                    write_all(descriptor, data[written:])
                finally:
                    os.close(descriptor)

    def _prepare(self, path: str) -> Path:
        """The path of a side file, in a directory that exists."""
        target = self._resolve(path)
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _read_commit(self) -> dict[str, Any]:
        try:
            commit: dict[str, Any] = json.loads(read_limited(self.commit_path, 64 * 1024 * 1024))
            _ = int(commit["seq"]), [line.encode() for line in commit["lines"]]
            for path, change in commit["documents"].items():
                self._resolve(path)
                _ = change["before"], change["after"], to_bytes(change["content"])
            former = commit.pop("aside", {"copies": {}, "lines": {}})
            side_files = commit.setdefault("side_files", former)
            for path, text in (*side_files["copies"].items(), *side_files["lines"].items()):
                self._resolve(path)
                _ = to_bytes(text)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
            raise StateError(
                f"the write-ahead record is corrupt ({error})",
                where=str(self.commit_path),
                todo="remove it: the run then continues from its last complete commit",
            ) from error
        return commit

    def _roll_forward(self) -> None:
        commit = self._read_commit()
        missing = int(commit["seq"]) - self.journal.seq
        if missing < 0:
            # The commit is complete. A power cut brought its record back, because the removal was not synced.
            remove(self.commit_path)
            return
        for line in commit["lines"][-missing:] if missing else ():
            self._refuse_forged(is_ours=self.journal.chain.accepts(line))
            self.journal.append_line(line.encode())
        self._refuse_forged(is_ours=self.journal.last == (commit["lines"] or [""])[-1])
        signed = json.loads(self.journal.last)
        contents = {path: to_bytes(change["content"]) for path, change in commit["documents"].items()}
        hashes = {path: digest(data) for path, data in contents.items()}
        self._refuse_forged(is_ours=signed.get("documents", {}) == hashes)
        for path, data in contents.items():
            if self._hash_on_disk(path) in (commit["documents"][path]["before"], _ABSENT):
                self._write(path, data)
        self._write_side_files(SideFiles(**commit["side_files"]), again=True)
        remove(self.commit_path)

    def _refuse_forged(self, *, is_ours: bool) -> None:
        """Refuse a write-ahead record that does not match the signed line in the journal."""
        if not is_ours:
            raise StateError(
                "the write-ahead record was not written by Ralph for this journal",
                where=str(self.commit_path),
                todo="remove it: the run then continues from its last complete commit",
            )

    def _write(self, path: str, data: bytes) -> None:
        target = self._resolve(path)
        if not target.parent.exists():
            with storage_errors(target):
                target.parent.mkdir(parents=True, exist_ok=True)
        if self._hash_on_disk(path) not in (_ABSENT, self.hashes.get(path, _ABSENT), digest(data)):
            self._move_to_edited(path, target)
        write_atomic(target, data)
        self._remember(path)

    def _hash_on_disk(self, path: str) -> str:
        if path in self.hashes and not self._was_touched(path):
            return self.hashes[path]
        target = self._resolve(path)
        try:
            return digest(read_limited(target))
        except FileNotFoundError:
            return _ABSENT
        except StateError:
            return _UNREADABLE

    def _resolve(self, path: str) -> Path:
        """The path of a document. A link that leads out of the root is refused."""
        target = self.root / path
        real = os.path.realpath(target.parent)
        if real != self._real_root and not real.startswith(self._real_root + os.sep):
            raise StateError("a symbolic link leads out of the project", where=str(target), todo="remove it")
        return target


def hash_documents(records: Iterable[Record]) -> dict[str, str]:
    """The hash that each document had when Ralph last wrote or read it, by path."""
    hashes: dict[str, str] = {}
    for record in records:
        hashes |= {**record.documents, **record.seen}
    return hashes


def find_changed_state(root: Path, hashes: Mapping[str, str]) -> list[str]:
    """The documents with the engine's own state that something else changed or deleted.

    Only the engine may ever write these: the JSON files in the run directory. The user may edit all other documents.
    """
    changed = []
    for path, expected in hashes.items():
        if not (path.startswith(".ralph/runs/") and path.endswith(".json")):
            continue
        try:
            found = digest(read_limited(root / path))
        except (OSError, StateError):
            found = _ABSENT
        if found != expected:
            changed.append(path)
    return changed


def find_state_doubt(run_dir: Path) -> str:
    """Which document with the engine's own state something else changed; empty if none.

    A commit that a crash interrupted may have written some of them. It is finished when the run continues.
    """
    hashes: dict[str, str] = {}
    if (run_dir / "commit.json").exists():
        return ""
    for _, line in read_raw(run_dir / "journal.jsonl"):
        for part in (line.get("documents"), line.get("seen")):
            hashes.update(part if isinstance(part, dict) else {})
    changed = find_changed_state(run_dir.parents[2], hashes)
    return describe_changed_state(changed[0]) if changed else ""


def describe_changed_state(path: str) -> str:
    """Why a run is in doubt if its own state differs from what the journal says."""
    return f"something other than Ralph changed or deleted its {path.rpartition('/')[2]}"


def hash_lines(side_files: SideFiles) -> dict[str, tuple[str, ...]]:
    """The hash of each line that goes into a log for the user, by path."""
    return {
        path: tuple(digest(to_bytes(line)) for line in text.splitlines(keepends=True))
        for path, text in side_files.lines.items()
    }


def _count_written(descriptor: int, data: bytes) -> int:
    """How many of these bytes are already at the end of a file: all, none, or the part that an interrupted write left."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, len(data), max(0, size - len(data)))
    return next((length for length in range(len(tail), 0, -1) if tail.endswith(data[:length])), 0)


def digest(data: bytes) -> str:
    """The hash that identifies the content of a document."""
    return hashlib.sha256(data).hexdigest()[:16]
