"""Tokens, the passphrase and the lock-out, with a clock of the test."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralph.core.errors import UsageError
from ralph.store.projects import web_directory
from ralph.web.access import (
    AccessControl,
    LockOut,
    Role,
    User,
    add_token,
    is_passphrase,
    owner_token,
    read_tokens,
    remove_token,
    set_passphrase,
)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_secrets_are_readable_by_the_user_only_and_tokens_are_stored_as_hashes() -> None:
    secret = add_token("phone", Role.VIEW, 30)
    owner_token()
    set_passphrase("a long passphrase", None)
    files = [path for path in web_directory().iterdir() if path.is_file()]
    assert len(files) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert web_directory().stat().st_mode & 0o077 == 0
    assert all(secret not in path.read_text() and "a long passphrase" not in path.read_text() for path in files)


def test_an_expired_token_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, secret = AccessControl(), add_token("phone", Role.VIEW, 1)
    assert gate.identify("here", secret) == User("phone", Role.VIEW)
    later = time.time() + 86_401
    monkeypatch.setattr("ralph.web.access.time.time", lambda: later)
    assert gate.identify("here", secret) == "unknown"


@pytest.mark.parametrize("name", ["", "owner", "Phone", "../x", "a" * 41, "a b"])
def test_a_wrong_name_of_a_token_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        add_token(name, Role.VIEW, 1)
    assert read_tokens() == []


def test_removing_the_owners_token_makes_a_new_one() -> None:
    before = owner_token()
    remove_token("owner")
    assert owner_token() != before
    assert AccessControl().identify("here", before) == "unknown"


def test_the_passphrase_changes_only_for_those_who_know_it() -> None:
    set_passphrase("a long passphrase", None)
    with pytest.raises(UsageError):
        set_passphrase("another passphrase", None)
    with pytest.raises(UsageError):
        set_passphrase("another passphrase", "a wrong one")
    with pytest.raises(UsageError):
        set_passphrase("short", "a long passphrase")
    assert is_passphrase("a long passphrase")
    set_passphrase("another passphrase", "a long passphrase")
    assert is_passphrase("another passphrase") and not is_passphrase("a long passphrase")


def test_a_proof_holds_for_its_token_and_fifteen_minutes() -> None:
    clock = Clock()
    gate, me, other = AccessControl(clock=clock), User("owner", Role.ADMIN), User("phone", Role.ADMIN)
    set_passphrase("a long passphrase", None)
    proof = gate.unlock(me, "here", "a long passphrase")
    assert gate.has_proof(me, proof)
    assert not gate.has_proof(other, proof) and not gate.has_proof(me, "") and not gate.has_proof(me, proof + "x")
    clock.now += 15 * 60
    assert not gate.has_proof(me, proof)


def test_five_wrong_passphrases_lock_out_even_the_right_one() -> None:
    clock = Clock()
    gate, me = AccessControl(clock=clock), User("owner", Role.ADMIN)
    set_passphrase("a long passphrase", None)
    for _ in range(5):
        assert gate.unlock(me, "here", "wrong") == ""
    assert gate.unlock(me, "here", "a long passphrase") == ""
    assert gate.unlock(me, "elsewhere", "a long passphrase")
    clock.now += 15 * 60 + 1
    assert gate.unlock(me, "here", "a long passphrase")


def test_old_failures_are_forgotten() -> None:
    clock = Clock()
    lock = LockOut(clock=clock)
    for _ in range(4):
        lock.fail("here")
    clock.now += 15 * 60 + 1
    lock.fail("here")
    assert not lock.is_locked("here")
