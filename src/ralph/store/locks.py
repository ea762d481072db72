"""Locks that die with their holder: one per run, one per work tree."""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.core.codec import parse_json_object
from ralph.core.errors import StateError
from ralph.store.files import open_regular, storage_errors


@dataclass
class Lock:
    """A lock that is held until it is released or the last process that has its descriptor is gone."""

    path: Path
    descriptor: int
    before: Mapping[str, object]
    """What the previous holder wrote, if it ended without releasing the lock."""

    def release(self) -> None:
        """Release the lock, and erase the holder: there is nothing to take over."""
        os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)


_CHILD_SECONDS = 1.0
"""How long to wait for a lock whose holder is dead. A child that it had just forked shares the lock until its `exec`."""


def acquire(path: Path, holder: Mapping[str, object]) -> Lock | Mapping[str, object]:
    """The lock, or what its holder wrote into it."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_regular(path, os.O_CREAT | os.O_RDWR)
    deadline = time.monotonic() + _CHILD_SECONDS
    while not _acquire(descriptor):
        if _holder_lives(descriptor) or time.monotonic() > deadline:
            other = _read_holder(descriptor)
            os.close(descriptor)
            return other
    before = _read_holder(descriptor)
    try:
        with storage_errors(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return Lock(path, descriptor, before)


def _acquire(descriptor: int) -> bool:
    """Try to take the lock. `is_held` shares it for a moment, so a shared lock is waited for."""
    for _ in range(10):
        while not _try_flock(descriptor, fcntl.LOCK_EX):
            time.sleep(0.01)
            if not _try_flock(descriptor, fcntl.LOCK_SH):
                break
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        else:
            return True
    return False


def _try_flock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Whether some living process holds the lock."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except (OSError, StateError):
        return False
    deadline = time.monotonic() + _CHILD_SECONDS
    try:
        while not _try_flock(descriptor, fcntl.LOCK_SH):
            if _holder_lives(descriptor) or time.monotonic() > deadline:
                return True
            time.sleep(0.01)
        return False
    finally:
        os.close(descriptor)


def _holder_lives(descriptor: int) -> bool:
    """Whether the process that took the lock is alive. If the lock does not say which it was, it may be."""
    pid = _read_holder(descriptor).get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def read_holder(path: Path) -> Mapping[str, object]:
    """What the holder wrote into a lock; empty if it cannot be read."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except (OSError, StateError):
        return {}
    try:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)


def _read_holder(descriptor: int) -> Mapping[str, object]:
    return parse_json_object(os.pread(descriptor, 4096, 0))
