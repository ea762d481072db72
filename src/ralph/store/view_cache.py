"""Cached views: snapshots of the fold beside the journal, and the rows of `ralph status` in the user's state directory.

Nothing depends on them. A snapshot that is missing, damaged, from another version or not from this user is ignored, and
the journal is folded from an earlier snapshot or from its beginning.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.core.codec import dump, from_plain, parse_json_object, to_plain
from ralph.core.errors import RalphError
from ralph.core.values import value
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.store.journal_reader import Position
from ralph.store.user_state import ensure_state_directory, find_key, state_directory

STRIDE = 5000
"""After how many journal lines a snapshot is kept for good, so that any moment of a long run can be shown quickly."""
_LARGEST = 32 * 1024 * 1024
_LATEST = "latest.json"


@value
class ViewSnapshot:
    """The facts of a view after a line of the journal."""

    position: Position
    facts: Mapping[str, Any]
    """The view as plain values."""


class ViewSnapshots:
    """The snapshots of one run, in `views/` beside its journal."""

    def __init__(self, run: Path, form: str) -> None:
        self._directory = run / "views"
        self._form = f"{__version__} {form}"
        """The version that wrote a snapshot. A snapshot of another version is not read."""

    def load(self, most: int | None = None) -> Iterator[ViewSnapshot]:
        """The snapshots up to a line, the newest first. Those that cannot be trusted are left out."""
        try:
            names = sorted((one.name for one in os.scandir(self._directory)), reverse=True)
        except OSError:
            return
        numbered = [name for name in names if name[:-5].isdigit() and name.endswith(".json")]
        for name in ([_LATEST] if most is None else []) + numbered:
            if most is None or int(name[:-5]) <= most:
                snapshot = self._read(self._directory / name)
                if snapshot:
                    yield snapshot

    def save(self, snapshot: ViewSnapshot, *, keep: bool = False) -> None:
        """Write the latest snapshot, or one to keep. If that is not possible, there is none."""
        key = find_key()
        if key is None:
            return
        name = f"{snapshot.position.seq:09d}.json" if keep else _LATEST
        body = dump({"form": self._form, "position": to_plain(snapshot.position), "facts": snapshot.facts})
        with contextlib.suppress(OSError, RalphError):
            self._directory.mkdir(exist_ok=True, mode=0o700)
            text = f"{key.code(self._name_of(name) + body)}\n{body}\n"
            write_atomic(self._directory / name, to_bytes(text), mode=0o600, durable=False)

    def _read(self, path: Path) -> ViewSnapshot | None:
        key = find_key()
        try:
            code, _, body = to_text(read_limited(path, _LARGEST)).removesuffix("\n").partition("\n")
        except (OSError, RalphError):
            return None
        if key is None or code != key.code(self._name_of(path.name) + body):
            return None
        found = parse_json_object(body)
        if found.get("form") != self._form:
            return None
        try:
            return ViewSnapshot(from_plain(Position, found["position"]), found["facts"])
        except (RalphError, KeyError):
            return None

    def _name_of(self, name: str) -> str:
        """The place of a snapshot, which its code depends on: one of another run is not accepted."""
        return f"{os.path.realpath(self._directory)}/{name}\n"


def stamp_of(run: Path) -> list[Any]:
    """What changes if a run does: inode, size and time of its files. It is read for every run of a list."""
    found: list[Any] = []
    for name in ("journal.jsonl", "run.json", "run.mac"):
        try:
            status = os.lstat(f"{run}/{name}")
            found.append([status.st_ino, status.st_size, status.st_mtime_ns])
        except OSError:
            found.append([])
    return found


class RowCache:
    """The rows of a project's runs, each with the stamp of the run when the row was made."""

    def __init__(self, root: Path, form: str) -> None:
        name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:32]
        self._path = state_directory() / "rows" / f"{name}.json"
        self._form = f"{__version__} {form}"
        self._rows = self._load()
        self._is_changed = False

    def _load(self) -> dict[str, Any]:
        try:
            found = parse_json_object(read_limited(self._path, _LARGEST))
        except (OSError, RalphError):
            return {}
        rows = found.get("rows")
        return rows if found.get("form") == self._form and isinstance(rows, dict) else {}

    def get(self, run: Path) -> dict[str, Any] | None:
        """The row of a run that has not changed since; None if there is none."""
        cached = self._rows.get(run.name)
        if not isinstance(cached, list) or len(cached) != 2 or cached[0] != stamp_of(run):
            return None
        return cached[1] if isinstance(cached[1], dict) else None

    def put(self, run: Path, stamp: list[Any], row: Mapping[str, Any]) -> None:
        """Remember the row of a run. The stamp is from before the run was read, so a later change is noticed."""
        self._rows[run.name] = [stamp, row]
        self._is_changed = True

    def save(self, known: set[str]) -> None:
        """Write the rows of the runs that still exist, if some are new. Of two processes that write, the last one wins."""
        gone = self._rows.keys() - known
        if not self._is_changed and not gone:
            return
        rows = {name: row for name, row in self._rows.items() if name in known}
        with contextlib.suppress(OSError, RalphError):
            ensure_state_directory()
            self._path.parent.mkdir(exist_ok=True, mode=0o700)
            text = json.dumps({"form": self._form, "rows": rows})
            write_atomic(self._path, text.encode(), mode=0o600, durable=False)
