"""The desk: inbox and outbox of the turn under way, in the workspace, because agents refuse paths outside of it.

A desk that nobody touched is left standing for the next turn: making and removing directories is what a quick turn would
spend most of its time on.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ralph.core.redaction import Redactor
from ralph.store.files import storage, to_bytes

_REDACTED_LIMIT = 64 * 1024 * 1024


class Desk:
    """Where one workspace's turns find their papers and leave their answers."""

    def __init__(self, workspace: Path, hidden: tuple[str, ...]) -> None:
        self.path = workspace / ".ralph" / "turn"
        self.inbox = self.path / "inbox"
        self.outbox = self.path / "outbox"
        self._hidden = hidden
        self._papers: Mapping[str, str] | None = None
        self._seen: object = None

    def lay(self, papers: Mapping[str, str], aside: Path) -> None:
        """Put the papers of a turn into the inbox, and clear the outbox; what others left there goes aside."""
        if self._papers == papers and self._seen == _look(self.inbox) and self._is_tidy():
            return
        with storage(self.path):
            self.take_away(aside)
            self.path.mkdir(parents=True)
            self.inbox.mkdir()
            self.outbox.mkdir()
            for name, text in papers.items():
                (self.inbox / name).parent.mkdir(parents=True, exist_ok=True)
                (self.inbox / name).write_bytes(to_bytes(text))
        self._papers, self._seen = papers, _look(self.inbox)

    def file(self, directory: Path) -> None:
        """Move what a turn left in the outbox into its directory, without secrets; links are not followed."""
        if self._is_tidy():
            return
        with storage(directory):
            if _look(self.outbox) and not self.path.is_symlink() and not (directory / "outbox").exists():
                shutil.move(self.outbox, directory / "outbox")
                self._redact(directory / "outbox")
                self.outbox.mkdir()
            if not self._is_tidy():
                self.take_away(directory)

    def _is_tidy(self) -> bool:
        """Whether nothing is on it but the inbox and an empty outbox."""
        return [entry[0] for entry in _look(self.path) or ()] == ["inbox", "outbox"] and _look(self.outbox) == []

    def take_away(self, aside: Path) -> None:
        """Take the desk away; where there is anything on it that is not ours, it is kept aside."""
        self._papers = None
        if self.path.is_symlink():
            self.path.unlink()
        elif self._is_tidy():
            shutil.rmtree(self.path)
        elif os.path.lexists(self.path):
            self._keep(aside)

    def _keep(self, aside: Path) -> None:
        kept = aside / f"found-on-the-desk-{os.urandom(2).hex()}"
        shutil.move(self.path, kept)
        self._redact(kept)

    def _redact(self, place: Path) -> None:
        """Take secrets out of what an agent handed over; links are left alone."""
        redactor = Redactor(self._hidden)
        paths = [place] if place.is_file() else [Path(top, name) for top, _, names in os.walk(place) for name in names]
        for path in paths:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _REDACTED_LIMIT:
                continue
            data = path.read_bytes()
            if (clean := redactor.data(data)) != data:
                path.write_bytes(clean)


def _look(directory: Path) -> list[tuple[str, int, int, int]] | None:
    """What is in a directory, by name, inode, size and time; None where it is none, or a link."""
    if directory.is_symlink():
        return None
    try:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    return sorted((name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found)
