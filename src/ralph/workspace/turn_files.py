"""The files of a turn: inbox and outbox in the workspace, because agents refuse paths outside of it.

Directories that nobody touched are left for the next turn: a quick turn would spend most of its time on making and
removing them.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ralph.core.errors import StateError
from ralph.core.redaction import Redactor
from ralph.core.turns import INBOX, OUTBOX, TurnRequest
from ralph.store.files import read_limited, storage, to_bytes, to_text

LENT_LIMIT = 20 * 1024 * 1024
"""Bytes of a file that is copied into an inbox."""
_REDACTED_LIMIT = 64 * 1024 * 1024
_DOCUMENT_LIMIT, _MOST_DOCUMENTS, _MOST_TEXT = 1024 * 1024, 20_000, 64 * 1024 * 1024
_MOST_NAMES = 200
"""How many documents that are not taken are named."""


class TurnFiles:
    """Where the turns of one workspace find their inbox and leave their outbox."""

    def __init__(self, workspace: Path, secrets: tuple[str, ...]) -> None:
        self.inbox, self.outbox = workspace / INBOX, workspace / OUTBOX
        self._home = self.inbox.parent
        self._secrets = secrets
        self._laid: Mapping[str, str] | None = None
        """What the inbox was filled with."""
        self._seen: object = None

    def fill_inbox(self, texts: Mapping[str, str], aside: Path) -> None:
        """Write the inbox of a turn and clear the outbox; what somebody else left there is moved aside."""
        if self._laid == texts and self._seen == _list_entries(self.inbox) and self._is_clean():
            return
        with storage(self._home):
            self.remove(aside)
            self.inbox.mkdir(parents=True)
            self.outbox.mkdir()
            for name, text in texts.items():
                (self.inbox / name).parent.mkdir(parents=True, exist_ok=True)
                (self.inbox / name).write_bytes(to_bytes(text))
        self._laid, self._seen = texts, _list_entries(self.inbox)

    def collect_outbox(self, directory: Path) -> None:
        """Move what a turn left in the outbox into its directory, without secrets; links are not followed."""
        if self._is_clean():
            return
        with storage(directory):
            if _list_entries(self.outbox) and not self._home.is_symlink() and not (directory / "outbox").exists():
                shutil.move(self.outbox, directory / "outbox")
                self._redact(directory / "outbox")
                self.outbox.mkdir()
            if not self._is_clean():
                self.remove(directory)

    def remove(self, aside: Path) -> None:
        """Remove inbox and outbox; anything else that is there is moved aside."""
        self._laid = None
        if self._home.is_symlink():
            self._home.unlink()
        elif self._is_clean():
            shutil.rmtree(self._home)
        elif os.path.lexists(self._home):
            kept = aside / f"left-in-turn-files-{os.urandom(2).hex()}"
            shutil.move(self._home, kept)
            self._redact(kept)

    def _is_clean(self) -> bool:
        """Whether there is nothing but the inbox and an empty outbox."""
        names = [entry[0] for entry in _list_entries(self._home) or ()]
        return names == ["inbox", "outbox"] and _list_entries(self.outbox) == []

    def _redact(self, place: Path) -> None:
        """Remove secrets from what an agent left; links are left alone."""
        redactor = Redactor(self._secrets)
        paths = [place] if place.is_file() else [Path(top, name) for top, _, names in os.walk(place) for name in names]
        for path in paths:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _REDACTED_LIMIT:
                continue
            data = path.read_bytes()
            if (clean := redactor.data(data)) != data:
                path.write_bytes(clean)


def copy_lent_files(root: Path, inbox: Path, lends: Mapping[str, str]) -> None:
    """Copy the files of directories into the inbox; links and large files are left out."""
    for name, place in lends.items():
        for path in sorted((root / place).glob("*")):
            target = inbox / name / path.name
            if path.is_file() and not path.is_symlink() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.stat().st_size <= LENT_LIMIT:
                    shutil.copyfile(path, target)


def write_drafts(outbox: Path, texts: Mapping[str, str]) -> None:
    """Write documents into the outbox for the turn to work on."""
    for name, text in texts.items():
        (outbox / name).parent.mkdir(parents=True, exist_ok=True)
        (outbox / name).write_bytes(to_bytes(text))


def read_handed_over(outbox: Path, request: TurnRequest) -> tuple[dict[str, str], tuple[str, ...]]:
    """The documents that a turn hands over, and the names of those that are not taken.

    Not taken are drafts that are not the turn's own, links, and what is too large or too many.
    """
    documents, left = _read_matching(outbox, request.hands_over)
    roots = {name.partition("/")[0] for name in request.drafts}
    drafts, too_much = _read_matching(outbox, tuple(f"{root}/**/*" for root in sorted(roots)))
    left += too_much
    for name, text in drafts.items():
        if request.drafts.get(name) == text:
            continue
        pattern, target = next((one for one in request.takes if PurePosixPath(name).match(one[0])), ("", ""))
        if not pattern:
            left.append(name)
            continue
        if target.endswith("/"):
            kept = sum("*" in part for part in pattern.split("/"))
            target += "/".join(name.split("/")[-kept:])
        documents.setdefault(target, text)
    return documents, tuple(left[:_MOST_NAMES])


def read_documents(outbox: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """The documents in an outbox that match, as text."""
    return _read_matching(outbox, patterns)[0]


def _read_matching(outbox: Path, patterns: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Those documents; and the names of links, and of what is too large or too many, which are left out."""
    found: dict[str, str] = {}
    left, room = [], _MOST_TEXT
    for path in sorted({path for pattern in patterns for path in outbox.glob(pattern) if not path.is_dir()}):
        name = path.relative_to(outbox).as_posix()
        text = _read_inside(path, outbox) if len(found) < _MOST_DOCUMENTS else None
        if text is None or len(text) > room:
            left.append(name)
        else:
            found[name] = text
            room -= len(text)
    return found, left


def _read_inside(path: Path, outbox: Path) -> str | None:
    try:
        return to_text(_read_bytes(path)) if path.resolve().is_relative_to(outbox.resolve()) else None
    except (StateError, OSError):
        return None


def _read_bytes(path: Path) -> bytes:
    """A document; of JSON Lines that are too many, as many as there may be, and one line that says so."""
    if path.suffix != ".jsonl" or path.stat().st_size <= _DOCUMENT_LIMIT:
        return read_limited(path, _DOCUMENT_LIMIT)
    with path.open("rb") as file:
        data = file.read(_DOCUMENT_LIMIT)
    left = path.stat().st_size - _DOCUMENT_LIMIT
    return data[: data.rfind(b"\n") + 1] + f"the file is too large: {left} bytes of it were not read\n".encode()


def _list_entries(directory: Path) -> list[tuple[str, int, int, int]] | None:
    """The entries of a directory by name, inode, size and time; None if it is none, or a link."""
    if directory.is_symlink():
        return None
    try:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    return sorted((name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found)
