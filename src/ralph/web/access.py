"""Who may use the web page: tokens with a role, and the passphrase for what an agent must not do by itself.

Agents run as the same user. Without a sandbox they can read the token file, so a token alone neither approves, accepts,
lands nor undoes anything: that needs the passphrase, which is in no file. A correct passphrase gives a proof that only the
page holds, for 15 minutes.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ralph.core.errors import RalphError, StateError, UsageError
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.store.projects import ensure_web_directory, web_directory

OWNER = "owner"
"""The name of the token that `ralph web` prints."""
PROOF_SECONDS = 15 * 60
MIN_CHARACTERS = 8
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_COST = {"n": 2**14, "r": 8, "p": 1}
"""scrypt as RFC 7914 suggests for interactive use: 16 MB, below a tenth of a second."""


class Role(StrEnum):
    """What a token may do."""

    VIEW = "view"
    """See everything, change nothing."""
    ADMIN = "admin"
    """See and do everything; some of it only with the passphrase."""


@dataclass(frozen=True)
class AccessToken:
    """One token. The file holds the hash of its secret."""

    name: str
    role: Role
    hash: str
    expires: float | None = None
    """When it ends; None for never."""

    def is_expired(self, now: float) -> bool:
        """Whether its time is over."""
        return self.expires is not None and now >= self.expires


def owner_token() -> str:
    """The secret of the user's own token, made on first use. It is in a file that only the user can read."""
    path = web_directory() / "token"
    try:
        secret = to_text(read_limited(path, 1024)).strip()
    except (OSError, StateError):
        secret = ""
    if len(secret) < 40:
        secret = secrets.token_urlsafe(32)
        ensure_web_directory()
        write_atomic(path, to_bytes(secret + "\n"), mode=0o600)
    return secret


def add_token(name: str, role: Role, days: float | None) -> str:
    """Make a named token. Its secret is returned once and stored nowhere."""
    if not _NAME.fullmatch(name) or name == OWNER:
        todo = f"use up to 40 of a-z, 0-9, dot, dash and underscore, and not {OWNER!r}"
        raise UsageError(f"{name!r} cannot be the name of a token", todo=todo)
    tokens = read_tokens()
    if any(token.name == name for token in tokens):
        raise UsageError(f"there is a token {name!r} already", todo=f"`ralph web token remove {name}` first")
    secret = secrets.token_urlsafe(32)
    expires = None if days is None else time.time() + days * 86400
    _write_tokens([*tokens, AccessToken(name, role, _hash(secret), expires)])
    return secret


def remove_token(name: str) -> None:
    """Remove a token. Open pages that use it lose access at once. Removing the owner's token makes a new one."""
    if name == OWNER:
        (web_directory() / "token").unlink(missing_ok=True)
        return
    tokens = read_tokens()
    if all(token.name != name for token in tokens):
        raise UsageError(f"there is no token {name!r}", todo="`ralph web token list` lists them")
    _write_tokens([token for token in tokens if token.name != name])


def read_tokens() -> list[AccessToken]:
    """The named tokens. The owner's token is not among them."""
    try:
        data = json.loads(to_text(read_limited(_tokens_path())))
        return [
            AccessToken(
                name=str(one["name"]),
                role=Role(one["role"]),
                hash=str(one["hash"]),
                expires=None if one["expires"] is None else float(one["expires"]),
            )
            for one in data["tokens"]
        ]
    except FileNotFoundError:
        return []
    except (OSError, StateError, ValueError, KeyError, TypeError, RecursionError) as error:
        todo = f"remove it, and create the tokens again: rm {_tokens_path()}"
        raise StateError("the list of tokens cannot be read", where=str(_tokens_path()), todo=todo) from error


def _write_tokens(tokens: list[AccessToken]) -> None:
    ensure_web_directory()
    data = {"schema": 1, "tokens": [asdict(token) for token in tokens]}
    write_atomic(_tokens_path(), to_bytes(json.dumps(data, indent=1) + "\n"), mode=0o600)


def _tokens_path() -> Path:
    return web_directory() / "tokens.json"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def set_passphrase(new: str, old: str | None) -> None:
    """Set the passphrase. The one before it has to be known."""
    if has_passphrase() and (old is None or not is_passphrase(old)):
        raise UsageError("that is not the passphrase", todo="type the current passphrase first")
    if len(new) < MIN_CHARACTERS:
        raise UsageError(f"a passphrase has at least {MIN_CHARACTERS} characters", todo="choose a longer one")
    salt = os.urandom(16)
    data = {"schema": 1, "salt": salt.hex(), "hash": _scrypt(new, salt).hex(), **_COST}
    ensure_web_directory()
    write_atomic(_passphrase_path(), to_bytes(json.dumps(data) + "\n"), mode=0o600)


def has_passphrase() -> bool:
    """Whether a passphrase is set."""
    return _passphrase_path().exists()


def is_passphrase(text: str) -> bool:
    """Whether this is the passphrase. False if none is set."""
    try:
        data: dict[str, Any] = json.loads(to_text(read_limited(_passphrase_path(), 4096)))
        salt, known = bytes.fromhex(data["salt"]), bytes.fromhex(data["hash"])
    except (OSError, RalphError, ValueError, KeyError, TypeError):
        return False
    return hmac.compare_digest(_scrypt(text, salt), known)


def _scrypt(text: str, salt: bytes) -> bytes:
    return hashlib.scrypt(text.encode(), salt=salt, maxmem=64 * 1024 * 1024, dklen=32, **_COST)


def _passphrase_path() -> Path:
    return web_directory() / "passphrase.json"


@dataclass
class LockOut:
    """Counts failures by client. After five, the client has to wait for 15 minutes."""

    most: int = 5
    seconds: float = 15 * 60
    clock: Callable[[], float] = time.monotonic
    _failures: dict[str, list[float]] = field(default_factory=dict)

    def is_locked(self, client: str) -> bool:
        """Whether a client has failed too often."""
        return len(self._recent(client)) >= self.most

    def fail(self, client: str) -> None:
        """Count a failure."""
        if len(self._failures) > 10_000:
            self._failures.clear()
        self._failures[client] = [*self._recent(client), self.clock()][-self.most :]

    def forgive(self, client: str) -> None:
        """Forget the failures of a client that succeeded."""
        self._failures.pop(client, None)

    def _recent(self, client: str) -> list[float]:
        since = self.clock() - self.seconds
        return [at for at in self._failures.get(client, ()) if at > since]


@dataclass(frozen=True)
class User:
    """Who sends a request."""

    token: str
    """The name of the token."""
    role: Role
    login: str = ""
    """The name that a proxy gives, if there is one."""

    @property
    def by(self) -> str:
        """The name for the journal."""
        return f"web:{self.login or self.token}"


class AccessControl:
    """Decides who a request is from, and whether the passphrase was given."""

    def __init__(self, *, read_only: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._read_only, self._clock = read_only, clock
        self.token_failures = LockOut(clock=clock)
        self.passphrase_failures = LockOut(clock=clock)
        self._used: set[str] = set()
        """The tokens that were used since the start. They keep working while their client is locked out, so that a
        program on this machine cannot lock the user's open page out."""
        self._proofs: dict[str, tuple[str, float]] = {}

    def identify(self, client: str, secret: str, login: str = "") -> User | str:
        """The user of a token, or why there is none: `locked` or `unknown`."""
        digest = _hash(secret)
        if self.token_failures.is_locked(client) and digest not in self._used:
            return "locked"
        token = self._find(digest)
        if token is None:
            self.token_failures.fail(client)
            return "unknown"
        self._used.add(digest)
        return User(token.name, Role.VIEW if self._read_only else token.role, login)

    def _find(self, digest: str) -> AccessToken | None:
        now = time.time()
        known = [AccessToken(OWNER, Role.ADMIN, _hash(owner_token())), *read_tokens()]
        found = [token for token in known if hmac.compare_digest(token.hash, digest)]
        return found[0] if found and not found[0].is_expired(now) else None

    def unlock(self, user: User, client: str, passphrase: str) -> str:
        """A proof that the user knows the passphrase; empty if it is wrong, or the client is locked out."""
        if self.passphrase_failures.is_locked(client):
            return ""
        if not is_passphrase(passphrase):
            self.passphrase_failures.fail(client)
            return ""
        self.passphrase_failures.forgive(client)
        now = self._clock()
        self._proofs = {proof: one for proof, one in self._proofs.items() if one[1] > now}
        proof = secrets.token_urlsafe(32)
        self._proofs[proof] = (user.token, now + PROOF_SECONDS)
        return proof

    def has_proof(self, user: User, proof: str) -> bool:
        """Whether the passphrase was given for this token in the last 15 minutes."""
        token, until = self._proofs.get(proof, ("", 0.0))
        return token == user.token and self._clock() < until
