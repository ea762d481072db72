"""Finding and ending what is left of a turn whose keeper is gone, by the mark in its environment."""

import os
import signal
import time
from pathlib import Path

TURN_MARK = "RALPH_TURN"
CHECK_MARK = "RALPH_CHECK"


def marked(mark: str, prefix: str) -> list[int]:
    """The living processes whose environment has `mark` with a value that begins with the prefix."""
    wanted = f"{mark}={prefix}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if any(item.startswith(wanted) for item in environment.split(b"\0")) and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def end_marked(mark: str, prefix: str, grace: float = 2.0) -> int:
    """End those processes: TERM, grace, KILL; how many there were."""
    first = marked(mark, prefix)
    _signal(first, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := marked(mark, prefix)) and time.monotonic() < deadline:
        time.sleep(0.02)
    while left and time.monotonic() < deadline + grace:
        _signal(left, signal.SIGKILL)
        time.sleep(0.02)
        left = marked(mark, prefix)
    return len(first)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
