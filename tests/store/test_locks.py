"""Locks die with their holder, and are taken over; two engines are refused."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ralph.core.errors import LockedError, StorageError
from ralph.core.outcomes import Outcome
from ralph.store import locks
from ralph.store.locks import Lock, acquire, is_held
from ralph.store.runs import Project, RunDir

HOLDER = """
import sys, time
from pathlib import Path
from ralph.store.locks import Lock, acquire
lock = acquire(Path(sys.argv[1]), {"pid": 1234, "run": "theirs"})
print(isinstance(lock, Lock), flush=True)
time.sleep(60)
"""


@contextmanager
def held_by_another(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A living process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"True\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_lock_is_acquired_and_released(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "deep" / "lock", {"pid": 1})
    assert isinstance(lock, Lock)
    assert lock.before == {}
    assert is_held(lock.path)
    lock.release()
    assert not is_held(lock.path)
    assert lock.path.read_bytes() == b""


def test_a_second_engine_is_refused_and_the_error_names_the_holder(tmp_path: Path) -> None:
    first = acquire(tmp_path / "lock", {"pid": 1, "run": "ours"})
    assert isinstance(first, Lock)
    assert acquire(tmp_path / "lock", {"pid": 2}) == {"pid": 1, "run": "ours"}
    assert json.loads((tmp_path / "lock").read_text())["pid"] == 1
    first.release()
    second = acquire(tmp_path / "lock", {"pid": 2})
    assert isinstance(second, Lock)
    second.release()


def test_a_lock_of_another_process_is_refused(tmp_path: Path) -> None:
    with held_by_another(tmp_path / "lock"):
        assert is_held(tmp_path / "lock")
        assert acquire(tmp_path / "lock", {"pid": 2}) == {"pid": 1234, "run": "theirs"}


def test_lock_of_a_dead_process_is_taken_over_with_a_notice(tmp_path: Path) -> None:
    with held_by_another(tmp_path / "lock") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not is_held(tmp_path / "lock")
        lock = acquire(tmp_path / "lock", {"pid": 2, "run": "ours"})
    assert isinstance(lock, Lock)
    assert lock.before == {"pid": 1234, "run": "theirs"}
    assert json.loads(lock.path.read_text()) == {"pid": 2, "run": "ours"}
    lock.release()


def test_a_lock_lives_as_long_as_a_child_that_inherited_it(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock", {"pid": 1})
    assert isinstance(lock, Lock)
    child = subprocess.Popen(["sleep", "60"], pass_fds=[lock.descriptor])
    os.close(lock.descriptor)
    assert is_held(tmp_path / "lock")
    child.kill()
    child.wait()
    assert not is_held(tmp_path / "lock")


def test_a_lock_is_not_inherited_by_accident(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock", {"pid": 1})
    assert isinstance(lock, Lock)
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    lock.release()
    assert not is_held(tmp_path / "lock")
    child.kill()
    child.wait()


@pytest.mark.parametrize(
    "left",
    [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 4096, b"x" * 100_000],
    ids=["empty", "half", "list", "number", "bytes", "deep", "long"],
)
def test_lock_can_be_acquired_whatever_a_dead_holder_left_in_it(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "lock").write_bytes(left)
    lock = acquire(tmp_path / "lock", {"pid": 2})
    assert isinstance(lock, Lock)
    assert lock.before == {}
    assert json.loads(lock.path.read_text()) == {"pid": 2}
    lock.release()


def test_looking_at_a_lock_never_gets_in_the_way_of_taking_it(tmp_path: Path) -> None:
    looker = "import sys\nfrom pathlib import Path\nfrom ralph.store.locks import is_held\n"
    looker += "print('x', flush=True)\nwhile True: is_held(Path(sys.argv[1]))\n"
    lock = acquire(tmp_path / "lock", {})
    assert isinstance(lock, Lock)
    lock.release()
    process = subprocess.Popen([sys.executable, "-c", looker, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    try:
        deadline, refused = time.monotonic() + 0.3, 0
        while time.monotonic() < deadline:
            taken = acquire(tmp_path / "lock", {})
            refused += not isinstance(taken, Lock)
            if isinstance(taken, Lock):
                taken.release()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert refused == 0


def test_acquiring_waits_for_a_process_that_only_looks_at_the_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        threading.Timer(0.5, fcntl.flock, (looker, fcntl.LOCK_UN)).start()
        lock = acquire(tmp_path / "lock", {})
    assert isinstance(lock, Lock)
    lock.release()


def test_a_lock_that_cannot_be_written_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(locks.os, "open", refuse)
    with pytest.raises(StorageError):
        acquire(tmp_path / "lock", {"pid": 2})


def test_missing_lock_is_not_held(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "nothing")


def test_a_run_has_one_engine(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "261115-093000-k3x9")
    lock = run.lock()
    assert run.alive
    with pytest.raises(LockedError, match=str(os.getpid())) as caught:
        run.lock()
    assert caught.value.outcome is Outcome.LOCKED
    assert run.id in caught.value.todo
    lock.release()
    assert not run.alive


def test_run_whose_engine_was_killed_can_be_adopted(tmp_path: Path) -> None:
    run = RunDir(Project(tmp_path).runs_dir / "261115-093000-k3x9")
    with held_by_another(run.path / "lock") as process:
        assert run.alive
        with pytest.raises(LockedError, match="1234"):
            run.lock()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not run.alive
        run.lock().release()


FORKS_AND_WAITS = """
import os, sys, time
from pathlib import Path
from ralph.store.locks import acquire

lock = acquire(Path(sys.argv[1]), {"pid": os.getpid(), "run": "theirs"})
if os.fork() == 0:
    os.close(1)
    time.sleep(0.3)
    os._exit(0)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("asks", ["is_held", "acquire"])
def test_child_of_a_killed_holder_that_still_shares_the_lock_is_waited_for(tmp_path: Path, asks: str) -> None:
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", FORKS_AND_WAITS, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    assert is_held(path)
    process.kill()
    process.communicate()
    if asks == "is_held":
        assert not is_held(path)
    else:
        assert isinstance(acquire(path, {"pid": 2}), Lock)
