"""Finding and ending processes: all below one of ours, or what is left of a turn by the mark in its environment."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable

TURN_MARK = "RALPH_TURN"
CHECK_MARK = "RALPH_CHECK"
_LOOKS, _PAUSE = 10, 0.005
"""How often a process is looked at that shows no environment, and the seconds in between."""


def become_subreaper() -> None:
    """Have orphans of our descendants become our children (Linux); elsewhere the process group must do."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes, those that are not gone or somebody else's by now."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def signal_all(number: signal.Signals) -> int:
    """Signal every living descendant of this process; how many there were."""
    found = descendants(os.getpid())
    send(found, number)
    return len(found)


def descendants(root: int, skip: Iterable[int] = ()) -> list[int]:
    """All living processes below one, except those below `skip`."""
    children: dict[int, list[int]] = {}
    for pid, parent in _process_table():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    unseen = [root]
    while unseen:
        new = [child for child in children.get(unseen.pop(), ()) if child not in skip]
        found += new
        unseen += new
    return found


def _process_table() -> list[tuple[int, int]]:
    """Every process that is not a zombie, with its parent."""
    if not os.path.isdir("/proc/self"):
        lines = os.popen("ps -axo pid=,ppid=,stat=").read().splitlines()  # noqa: S605 - a constant
        rows = [line.split() for line in lines]
        return [(int(row[0]), int(row[1])) for row in rows if len(row) > 2 and not row[2].startswith("Z")]
    table = []
    for pid in _pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                table.append((pid, int(parent)))
    return table


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(mark: str, prefix: str) -> list[int]:
    """The living processes whose environment has `mark` with a value that begins with the prefix."""
    wanted, found = b"\0" + f"{mark}={prefix}".encode(), set[int]()
    unsure = _pids() if os.path.isdir("/proc/self") else []
    for _ in range(_LOOKS):
        seen = {pid: _environment(pid) for pid in unsure if pid != os.getpid()}
        found.update(pid for pid, environment in seen.items() if environment and wanted in b"\0" + environment)
        # One that is just becoming another program has none for a moment.
        unsure = [pid for pid, environment in seen.items() if environment == b""]
        if not unsure:
            break
        time.sleep(_PAUSE)
    return sorted(found)


def _environment(pid: int) -> bytes | None:
    """The environment of a process; None where it is not ours to read, and where it can have none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        if not environment:
            os.readlink(f"/proc/{pid}/exe")  # the system's own have no program either
        return environment
    except OSError:
        return None


def end_marked(mark: str, prefix: str, grace: float = 2.0) -> int:
    """End those processes: TERM, grace, KILL; how many there were."""
    first = marked(mark, prefix)
    send(first, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := marked(mark, prefix)) and time.monotonic() < deadline:
        time.sleep(0.02)
    while left and time.monotonic() < deadline + grace:
        send(left, signal.SIGKILL)
        time.sleep(0.02)
        left = marked(mark, prefix)
    return len(first)
