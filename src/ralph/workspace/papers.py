"""The papers of a turn: what it finds beside its inbox, and what it hands over in its outbox."""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ralph.core.errors import StateError
from ralph.core.turns import TurnRequest
from ralph.store.files import read_limited, to_bytes, to_text

_PAPER_LIMIT, _MOST_PAPERS, _MOST_TEXT = 1024 * 1024, 20_000, 64 * 1024 * 1024
_MOST_NAMES = 200
"""How many are named of what is not taken."""
LENT_LIMIT = 20 * 1024 * 1024
"""Bytes of a file that is copied into an inbox."""


def lend(root: Path, inbox: Path, lends: Mapping[str, str]) -> None:
    """Copy the files of directories into the inbox; links and what is too large stay where they are."""
    for name, place in lends.items():
        for path in sorted((root / place).glob("*")):
            target = inbox / name / path.name
            if path.is_file() and not path.is_symlink() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.stat().st_size <= LENT_LIMIT:
                    shutil.copyfile(path, target)


def lay(outbox: Path, texts: Mapping[str, str]) -> None:
    """Lay documents into the outbox, to be worked on."""
    for name, text in texts.items():
        (outbox / name).parent.mkdir(parents=True, exist_ok=True)
        (outbox / name).write_bytes(to_bytes(text))


def handed_over(outbox: Path, request: TurnRequest) -> tuple[dict[str, str], tuple[str, ...]]:
    """The documents that a turn hands over, and what is not taken: drafts that are not its own, and what is too much."""
    papers, left = _found(outbox, request.hands_over)
    roots = {name.partition("/")[0] for name in request.drafts}
    drafts, too_much = _found(outbox, tuple(f"{root}/**/*" for root in sorted(roots)))
    left += too_much
    for name, text in drafts.items():
        if request.drafts.get(name) == text:
            continue
        pattern, target = next((one for one in request.takes if PurePosixPath(name).match(one[0])), ("", ""))
        if not pattern:
            left.append(name)
            continue
        kept = sum("*" in part for part in pattern.split("/"))
        papers.setdefault(target + "/".join(name.split("/")[-kept:]) if target.endswith("/") else target, text)
    return papers, tuple(left[:_MOST_NAMES])


def read(outbox: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """The documents in the outbox that are asked for, as text."""
    return _found(outbox, patterns)[0]


def _found(outbox: Path, patterns: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Those documents; and the names of links, and of what is too large or too many, which are passed over."""
    found: dict[str, str] = {}
    left, room = [], _MOST_TEXT
    for path in sorted({path for pattern in patterns for path in outbox.glob(pattern) if not path.is_dir()}):
        name = path.relative_to(outbox).as_posix()
        text = _text(path, outbox) if len(found) < _MOST_PAPERS else None
        if text is None or len(text) > room:
            left.append(name)
        else:
            found[name] = text
            room -= len(text)
    return found, left


def _text(path: Path, outbox: Path) -> str | None:
    try:
        return to_text(_read(path)) if path.resolve().is_relative_to(outbox.resolve()) else None
    except (StateError, OSError):
        return None


def _read(path: Path) -> bytes:
    """A document; of lines that are too many, as many as there may be, and one that says so."""
    if path.suffix != ".jsonl" or path.stat().st_size <= _PAPER_LIMIT:
        return read_limited(path, _PAPER_LIMIT)
    with path.open("rb") as file:
        data = file.read(_PAPER_LIMIT)
    left = path.stat().st_size - _PAPER_LIMIT
    return data[: data.rfind(b"\n") + 1] + f"the file is too large: {left} bytes of it were not read\n".encode()
