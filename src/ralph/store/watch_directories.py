"""Watching directories for new and written files, by the events of the system (inotify).

If the system has no such events, or none to spare, the caller has to look by itself.
"""

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ralph.store.files import storage

_CLOSE_WRITE, _MOVED_TO, _CREATE = 0x8, 0x80, 0x100
_ENOUGH = 64 * 1024


@contextlib.contextmanager
def watch(notify: Callable[[], object], *directories: Path) -> Iterator[bool]:
    """Call `notify` whenever a file in these directories appears or is written; yields whether that is possible."""
    descriptor = _open_watch(directories)
    if descriptor < 0:
        yield False
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, lambda: (os.read(descriptor, _ENOUGH), notify()))
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _open_watch(directories: tuple[Path, ...]) -> int:
    """The descriptor from which their events can be read; below 0 if there is none."""
    system = ctypes.CDLL(None, use_errno=True)
    if not hasattr(system, "inotify_init1"):
        return -1
    descriptor: int = system.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    for directory in directories if descriptor >= 0 else ():
        with storage(directory):
            directory.mkdir(parents=True, exist_ok=True)
        if system.inotify_add_watch(descriptor, os.fsencode(directory), _CLOSE_WRITE | _MOVED_TO | _CREATE) < 0:
            os.close(descriptor)
            return -1
    return descriptor
