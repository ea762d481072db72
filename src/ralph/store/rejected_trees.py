"""Trees that the guards rejected, and runs whose changes no verdict covers yet.

Without these records, starting again on a gamed tree would compare that tree with itself and find nothing.
They are in the user's state directory, where no agent writes, by the path of the project. A note beside them identifies
the repository, so that a copy of the project at another path is recognized. If the state directory cannot be written, the
records are in the project.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from ralph.core.checks import Finding, Verdict
from ralph.core.codec import from_json, to_json
from ralph.core.errors import RalphError, StorageError
from ralph.store.files import read_limited, storage_errors, write_atomic
from ralph.store.user_state import ensure_state_directory

T = TypeVar("T")
MAX_TREES = 50
"""How many trees of a project are remembered."""
MAX_UNJUDGED = 10
"""How many runs of a project are remembered whose changes no verdict covers."""
_SIZE_LIMIT = 4 * 1024 * 1024
_NOTE = "project"
"""The file beside the records that says which project they are of. It has no suffix, so that it is not read as one."""


@dataclass(frozen=True)
class RejectedTree:
    """One such tree."""

    run: str
    base: str
    """The snapshot that the tree was compared with."""
    findings: tuple[Finding, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """The files that the findings are about, with a hash of what each holds; empty if it is absent."""
    baseline: Verdict | None = None
    """What the checks said before the run."""
    is_unjudged: bool = False
    """Whether no guard has looked at it yet: the run ended before its checks passed."""

    @property
    def name(self) -> str:
        """The hash of what the guards found in the tree."""
        return hash_content(to_json(self.files).encode())


@dataclass(frozen=True)
class UnjudgedRun:
    """A run that has started turns in a tree, and whose changes no verdict covers yet."""

    run: str
    base: str
    """The snapshot that the run is compared with."""
    workspace: str
    """The tree in which its turns work."""
    baseline: Verdict | None = None
    """What the checks said before the run."""

    def move(self, old: Path, new: Path) -> "UnjudgedRun":
        """The same after the project was moved from one path to another."""
        workspace = Path(self.workspace)
        if not workspace.is_relative_to(old):
            return self
        return replace(self, workspace=str(new / workspace.relative_to(old)))


@dataclass(frozen=True)
class _ProjectNote:
    """Which project the records of a directory are of."""

    path: str
    repository: str
    """What the repository and its copies have in common; empty if it has no commit yet."""


@dataclass(frozen=True)
class RejectedTrees:
    """The trees of one project."""

    directory: Path
    root: Path
    """The project."""
    has_siblings: bool = True
    """Whether the directories beside are those of other projects."""

    def remember(self, rejected: RejectedTree, identify: Callable[[], str]) -> None:
        """Add a tree. The first record of it stays: a later run may have been compared with less."""
        path = self._path(rejected)
        if not path.exists():
            _write(path, to_json(rejected), MAX_TREES)
        self._note_project(identify)

    def all(self) -> Iterator[RejectedTree]:
        """Every tree, the newest first."""
        return _read_all(RejectedTree, self.directory)

    def find_copies(self, identify: Callable[[], str]) -> Iterator["RejectedTrees"]:
        """The records of the same repository at other paths: those from which it was moved, copied or cloned.

        `identify` returns what a repository and its copies have in common. It may be slow, and is not called in vain.
        """
        directories = sorted(self.directory.parent.glob(f"*/{_NOTE}")) if self.has_siblings else []
        others = [note.parent for note in directories if note.parent != self.directory]
        repository = identify() if others else ""
        for directory in others:
            note = _read_note(directory)
            if note and repository and note.repository == repository:
                yield RejectedTrees(directory, Path(note.path))

    def _note_project(self, identify: Callable[[], str]) -> None:
        """Note which project the records are of, once."""
        note = _read_note(self.directory)
        if note is None or not note.repository:
            new = _ProjectNote(str(self.root), identify())
            write_atomic(self.directory / _NOTE, to_json(new).encode(), mode=0o600)

    def note_unjudged(self, unjudged: UnjudgedRun, identify: Callable[[], str]) -> None:
        """Remember before the first turn of a run that nothing covers its changes."""
        _write(self._unjudged / f"{unjudged.run}.json", to_json(unjudged), MAX_UNJUDGED)
        self._note_project(identify)

    def list_unjudged(self) -> Iterator[UnjudgedRun]:
        """Every run whose changes no verdict covers, the newest first."""
        return _read_all(UnjudgedRun, self._unjudged)

    def forget_unjudged(self, run: str) -> None:
        """Drop a run whose changes are judged now."""
        (self._unjudged / f"{run}.json").unlink(missing_ok=True)

    @property
    def _unjudged(self) -> Path:
        return self.directory / "unjudged"

    def forget(self, rejected: RejectedTree) -> None:
        """Forget a tree that is no longer rejected."""
        self._path(rejected).unlink(missing_ok=True)

    def _path(self, rejected: RejectedTree) -> Path:
        return self.directory / f"{rejected.name}.json"


def _read_note(directory: Path) -> _ProjectNote | None:
    path = directory / _NOTE
    try:
        return from_json(_ProjectNote, read_limited(path, _SIZE_LIMIT).decode(errors="replace"), str(path))
    except (OSError, RalphError):
        return None


def _write(path: Path, text: str, most: int) -> None:
    """Write a record, and remove the oldest of those beside it if there are too many."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, text.encode(), mode=0o600)
    for old in _list_newest_first(path.parent)[most:]:
        old.unlink(missing_ok=True)


def _read_all(kind: type[T], directory: Path) -> Iterator[T]:
    """Every record of a directory, the newest first. One that cannot be read counts as absent."""
    for path in _list_newest_first(directory):
        try:
            yield from_json(kind, read_limited(path, _SIZE_LIMIT).decode(errors="replace"), str(path))
        except (OSError, RalphError):
            continue


def _list_newest_first(directory: Path) -> list[Path]:
    found = [(path.stat().st_mtime_ns, path) for path in directory.glob("*.json")]
    return [path for _, path in sorted(found, reverse=True)]


def open_rejected_trees(root: Path) -> RejectedTrees:
    """The rejected trees of the project at a path."""
    root = root.resolve()
    in_project = RejectedTrees(root / ".ralph" / "held", root, has_siblings=False)
    try:
        home = ensure_state_directory()
    except StorageError:
        return in_project
    if not os.access(home, os.W_OK):
        return in_project
    return RejectedTrees(home / "held" / hashlib.sha256(os.fsencode(root)).hexdigest()[:24], root)


def hash_content(data: bytes | None) -> str:
    """What a file holds, in short; empty if it is absent."""
    return "" if data is None else hashlib.sha256(data).hexdigest()[:32]
