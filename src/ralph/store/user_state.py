"""What Ralph keeps for the user outside every project: the key of the journals, and what the user agreed to.

It is in `$XDG_STATE_HOME/ralph`, or `~/.local/state/ralph`. Only the user can read it (0700, files 0600). The place is
computed where it is needed and never handed to an agent.
"""

import contextlib
import hmac
import os
import secrets
from pathlib import Path

from ralph.core.errors import StateError, StorageError
from ralph.store.files import read_limited, write_atomic

_KEY_BYTES = 32
_MAC_DIGITS = 32
_ELSEWHERE = "make it writable for you, or set XDG_STATE_HOME to a directory that is"


def state_directory() -> Path:
    """Where the user's state is; it may not exist yet."""
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
        raise StorageError(what, where=str(directory), todo=_ELSEWHERE) from error
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
    """The user's key, made on first use. Of two processes that make one at the same time, both get the first."""
    if key := find_key():
        return key
    path = _key_path()
    directory = ensure_state_directory()
    temporary = directory / f".{secrets.token_hex(6)}.key"
    write_atomic(temporary, secrets.token_hex(_KEY_BYTES).encode(), mode=0o600)
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
        todo="restore it from a backup; or remove it, then earlier runs go on only with `ralph resume RUN --adopt`",
    )


def _key_path() -> Path:
    return state_directory() / "journal.key"
