"""What the user agreed to let Ralph start, project by project: records in the user's state directory.

A repository cannot bring its own consent along: nothing in it is read here.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.core.codec import dump
from ralph.core.errors import StateError
from ralph.core.redaction import Redactor, secrets_in
from ralph.store.files import read_limited, remove, to_bytes, to_text, write_atomic
from ralph.store.user_state import ensure_state_directory, state_directory

_SIZE_LIMIT = 16 * 1024 * 1024


@dataclass(frozen=True)
class Item:
    """One thing that Ralph reads and that can start a program, or says which."""

    name: str
    """What it is, e.g. `agent claude`, `ralph.yml: notify` or `.ralph/prompts/loop.md`."""
    text: str
    """What the user is shown of it."""
    value: str = ""
    """What must stay the same, if that is less than the text: without comments, for example."""

    @property
    def digest(self) -> str:
        """What it is known by."""
        return hashlib.sha256(to_bytes(self.value or self.text)).hexdigest()


@dataclass(frozen=True)
class Agreed:
    """What the user agreed to."""

    digest: str
    text: str
    """As it was then, without secrets, to show what has changed since."""


def read_trust(root: Path) -> dict[str, Agreed]:
    """What the user agreed to in a project, by name; nothing if the record cannot be read."""
    try:
        data = json.loads(to_text(read_limited(_path(root), _SIZE_LIMIT)))
        if data["path"] != str(root):
            return {}
        items = data["agreed"].items()
        return {str(name): Agreed(str(one["digest"]), str(one["text"])) for name, one in items}
    except (OSError, ValueError, StateError, RecursionError, KeyError, TypeError, AttributeError):
        return {}


def find_new(root: Path, items: Iterable[Item]) -> list[tuple[Item, str | None]]:
    """What the user has not agreed to, each with the text that they agreed to before, if any."""
    agreed = read_trust(root)
    found: list[tuple[Item, str | None]] = []
    for item in items:
        known = agreed.get(item.name)
        if known is None or known.digest != item.digest:
            found.append((item, known.text if known else None))
    return found


def record_trust(root: Path, items: Iterable[Item]) -> None:
    """Remember that the user agreed to these, beside what they agreed to before."""
    redactor = Redactor(secrets_in(os.environ))
    new = {item.name: Agreed(item.digest, redactor.text(item.text)) for item in items}
    _write(root, {**read_trust(root), **new})


def revoke_trust(root: Path) -> bool:
    """Forget what the user agreed to in a project; False if there was nothing."""
    was_there = bool(read_trust(root))
    remove(_path(root))
    return was_there


def _write(root: Path, agreed: Mapping[str, Agreed]) -> None:
    directory = ensure_state_directory() / "trust"
    directory.mkdir(exist_ok=True, mode=0o700)
    plain = {name: {"digest": one.digest, "text": one.text} for name, one in agreed.items()}
    write_atomic(_path(root), to_bytes(dump({"schema": 1, "path": str(root), "agreed": plain})), mode=0o600)


def _path(root: Path) -> Path:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return state_directory() / "trust" / f"{name}.json"
