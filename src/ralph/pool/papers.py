"""The papers of a turn: what it finds beside its inbox, and what it hands over in its outbox."""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ralph.core.errors import StateError
from ralph.core.turns import TurnRequest
from ralph.store.files import read_limited, to_bytes, to_text

_PAPER_LIMIT, _MOST_PAPERS = 1024 * 1024, 500
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
    """The documents that a turn hands over, and the drafts that it changed though they are not its own."""
    papers = read(outbox, request.hands_over)
    left = []
    roots = {name.partition("/")[0] for name in request.drafts}
    for name, text in read(outbox, tuple(f"{root}/**/*" for root in sorted(roots))).items():
        if request.drafts.get(name) == text:
            continue
        pattern, target = next((one for one in request.takes if PurePosixPath(name).match(one[0])), ("", ""))
        if not pattern:
            left.append(name)
            continue
        kept = sum("*" in part for part in pattern.split("/"))
        papers.setdefault(target + "/".join(name.split("/")[-kept:]) if target.endswith("/") else target, text)
    return papers, tuple(left)


def read(outbox: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """The documents in the outbox that are asked for, as text; links, and what is too large and has no lines, are passed over."""
    found = {}
    for path in sorted({path for pattern in patterns for path in outbox.glob(pattern)})[:_MOST_PAPERS]:
        if path.is_file() and path.resolve().is_relative_to(outbox.resolve()):
            try:
                found[path.relative_to(outbox).as_posix()] = to_text(_read(path))
            except (StateError, OSError):
                continue
    return found


def _read(path: Path) -> bytes:
    """A document; of lines that are too many, as many as there may be, and one that says so."""
    if path.suffix != ".jsonl" or path.stat().st_size <= _PAPER_LIMIT:
        return read_limited(path, _PAPER_LIMIT)
    with path.open("rb") as file:
        data = file.read(_PAPER_LIMIT)
    left = path.stat().st_size - _PAPER_LIMIT
    return data[: data.rfind(b"\n") + 1] + f"the file is too large: {left} bytes of it were not read\n".encode()
