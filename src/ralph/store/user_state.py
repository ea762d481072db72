"""The user's own state, outside of every project: the key of the journals, and what the user agreed to in each project.

It is in `$XDG_STATE_HOME/ralph`, or `~/.local/state/ralph`. Only the user can read it (0700, files 0600). No agent is given
the path. A repository cannot bring its own consent along: nothing in the project is read here.
"""

import contextlib
import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ralph.core.codec import dump
from ralph.core.errors import StateError, StorageError
from ralph.core.values import value
from ralph.store.files import read_limited, remove, to_bytes, to_text, write_atomic

_KEY_BYTES = 32
_MAC_DIGITS = 32
_MAKE_WRITABLE = "make it writable for you, or set XDG_STATE_HOME to a directory that is"


def state_directory() -> Path:
    """The directory of the user's state. It may not exist yet."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "ralph"


def ensure_state_directory() -> Path:
    """Create the user's state directory if it is missing, closed to others."""
    directory = state_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if directory.stat().st_mode & 0o077:
            directory.chmod(0o700)
    except OSError as error:
        what = f"Ralph cannot use its state directory: {error.strerror}"
        raise StorageError(what, where=str(directory), todo=_MAKE_WRITABLE) from error
    return directory


class Key:
    """The user's secret key. A code that it makes shows that this user's Ralph wrote a text."""

    def __init__(self, secret: bytes) -> None:
        self._hmac = hmac.new(secret, digestmod="sha256")

    def code(self, text: str) -> str:
        """The authentication code of a text."""
        digest = self._hmac.copy()
        digest.update(text.encode(errors="surrogateescape"))
        return digest.hexdigest()[:_MAC_DIGITS]


def find_key() -> Key | None:
    """The user's key; None if there is none yet, or it cannot be used."""
    try:
        secret = bytes.fromhex(read_limited(_key_path(), 1024).decode())
    except (OSError, StateError, ValueError):
        return None
    return Key(secret) if len(secret) == _KEY_BYTES else None


def ensure_key() -> Key:
    """The user's key, made on first use. If two processes make one at the same time, both get the first."""
    if key := find_key():
        return key
    path = _key_path()
    directory = ensure_state_directory()
    temporary = directory / f".{os.urandom(6).hex()}.key"
    write_atomic(temporary, os.urandom(_KEY_BYTES).hex().encode(), mode=0o600)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if key := find_key():
        return key
    raise StateError(
        "the key of the journals cannot be read",
        where=str(path),
        todo="restore it from a backup; or remove it, then earlier runs continue only with `ralph resume RUN --adopt`",
    )


def _key_path() -> Path:
    return state_directory() / "journal.key"


_TRUST_LIMIT = 16 * 1024 * 1024


@value
class Item:
    """Something that Ralph reads and that can start a program, or selects one."""

    name: str
    """For example `agent claude`, `ralph.yml: notify` or `.ralph/prompts/loop.md`."""
    text: str
    """The text that the user sees."""
    value: str = ""
    """What must stay the same, if that is less than the text: for example, the text without comments."""

    @property
    def digest(self) -> str:
        """The hash that identifies it."""
        return hashlib.sha256(to_bytes(self.value or self.text)).hexdigest()


@value
class Agreed:
    """What the user agreed to."""

    digest: str
    text: str
    """The text of that time without secrets, to show what has changed since."""


def read_trust(root: Path) -> dict[str, Agreed]:
    """What the user agreed to in a project, by name; nothing if the record cannot be read."""
    try:
        data = json.loads(to_text(read_limited(_trust_path(root), _TRUST_LIMIT)))
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
    from ralph.core.redaction import Redactor, find_secrets

    redactor = Redactor(find_secrets(os.environ))
    new = {item.name: Agreed(item.digest, redactor.text(item.text)) for item in items}
    _write_trust(root, {**read_trust(root), **new})


def revoke_trust(root: Path) -> bool:
    """Forget what the user agreed to in a project; False if there was nothing."""
    was_there = bool(read_trust(root))
    remove(_trust_path(root))
    return was_there


def _write_trust(root: Path, agreed: Mapping[str, Agreed]) -> None:
    directory = ensure_state_directory() / "trust"
    directory.mkdir(exist_ok=True, mode=0o700)
    plain = {name: {"digest": one.digest, "text": one.text} for name, one in agreed.items()}
    write_atomic(_trust_path(root), to_bytes(dump({"schema": 1, "path": str(root), "agreed": plain})), mode=0o600)


def _trust_path(root: Path) -> Path:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
    return state_directory() / "trust" / f"{name}.json"
