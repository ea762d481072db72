"""Trees for which a run was held up: what the guards found, and what the tree was compared with.

Without this record, starting the same command again on the gamed tree would compare that tree with itself and find nothing.
The record is in the user's state directory, which agents have no business in. If that cannot be written, it is in the project.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.core.checks import Verdict
from ralph.core.codec import from_json, to_json
from ralph.core.errors import RalphError, StorageError
from ralph.core.findings import Finding
from ralph.store.files import read_limited, storage, write_atomic
from ralph.store.user_state import ensure_state_directory

KEPT = 50
"""How many trees of a project are remembered."""
LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True)
class HeldTree:
    """One such tree."""

    run: str
    base: str
    """The snapshot that the tree was compared with."""
    findings: tuple[Finding, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """The files that the findings are about, with a hash of what each holds; empty if it is absent."""
    baseline: Verdict | None = None
    """What the checks said before the run."""

    @property
    def name(self) -> str:
        """The hash of what the tree was held up for."""
        return content_hash(to_json(self.files).encode())


@dataclass(frozen=True)
class HeldTrees:
    """The trees of one project."""

    directory: Path

    def remember(self, held: HeldTree) -> None:
        """Keep a tree. The first record of it stays: a later run may have been compared with less."""
        path = self._path(held)
        if path.exists():
            return
        with storage(path):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, to_json(held).encode(), mode=0o600)
        for old in self._paths()[KEPT:]:
            old.unlink(missing_ok=True)

    def all(self) -> Iterator[HeldTree]:
        """Every record, the newest first. One that cannot be read counts as absent."""
        for path in self._paths():
            try:
                yield from_json(HeldTree, read_limited(path, LARGEST).decode(errors="replace"), str(path))
            except (OSError, RalphError):
                continue

    def forget(self, held: HeldTree) -> None:
        """Drop a tree that is held up no longer."""
        self._path(held).unlink(missing_ok=True)

    def _path(self, held: HeldTree) -> Path:
        return self.directory / f"{held.name}.json"

    def _paths(self) -> list[Path]:
        """The records, the newest first."""
        found = [(path.stat().st_mtime_ns, path) for path in self.directory.glob("*.json")]
        return [path for _, path in sorted(found, reverse=True)]


def held_trees(root: Path) -> HeldTrees:
    """The held-up trees of the project at a path."""
    try:
        home = ensure_state_directory()
    except StorageError:
        return HeldTrees(root / ".ralph" / "held")
    if not os.access(home, os.W_OK):
        return HeldTrees(root / ".ralph" / "held")
    return HeldTrees(home / "held" / hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24])


def content_hash(data: bytes | None) -> str:
    """What a file holds, in short; empty if it is absent."""
    return "" if data is None else hashlib.sha256(data).hexdigest()[:32]
