"""The YAML files that the memory keeps beside the reflections: one writer at a time, replaced whole, set aside when broken."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ralph.core.errors import LockedError, StateError
from ralph.documents.plain_yaml import dump
from ralph.documents.reflection import HOME, load
from ralph.store import locks
from ralph.store.files import read_limited, storage, sync_directory, to_bytes, write_atomic

SIZE_LIMIT = 4 * 1024 * 1024
PATIENCE = 60.0
"""Seconds that a writer waits for its turn; others hold the lock for milliseconds."""


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Be the only writer of this project's memory."""
    path = root / HOME / ".lock"
    deadline = time.monotonic() + PATIENCE
    while not isinstance(taken := locks.take(path, {"pid": os.getpid()}), locks.Lock):
        if time.monotonic() > deadline:
            what = f"process {taken.get('pid', '?')} does not let go of the memory"
            raise LockedError(what, where=str(path), todo="end that process, then try again")
    try:
        yield
    finally:
        taken.release()


def read(path: Path) -> dict[str, Any]:
    """What a file holds: nothing where it is not there, a StateError where it is not Ralph's."""
    try:
        text = read_limited(path, SIZE_LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StateError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return load(text, str(path), SIZE_LIMIT)


def write(path: Path, data: Mapping[str, object]) -> None:
    """Replace a file."""
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_bytes(dump(data)))


def set_aside(path: Path) -> None:
    """Keep a file that cannot be read beside the one that takes its place."""
    with storage(path):
        os.replace(path, path.with_name(f"{path.name}.broken"))
        sync_directory(path.parent)
