"""Finding and ending processes: the descendants of one of ours, or those with the mark of a turn in their environment."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ralph.supervisor.sandbox import CHECK_FILE, TURN_FILE

TURN_MARK = "RALPH_TURN"
CHECK_MARK = "RALPH_CHECK"
_KEEPER_MODULE = b"ralph.supervisor.keeper"
_ATTEMPTS, _PAUSE = 10, 0.005
"""How often, and after how many seconds, to look again at a process with an empty environment."""


def become_subreaper() -> None:
    """Make orphans of our descendants our children. Only Linux can; elsewhere the process group must do."""
    if sys.platform == "linux":
        pr_set_child_subreaper = 36
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def find_surrounding_turn() -> str:
    """The turn that this process belongs to, whatever its environment says; empty if there is none.

    A check counts if it is of the project in which this process stands: checks run code that agents wrote.
    """
    if TURN_FILE.exists():
        return str(TURN_FILE)
    with contextlib.suppress(OSError):
        if Path.cwd().is_relative_to(os.fsdecode(CHECK_FILE.read_bytes())):
            return str(CHECK_FILE)
    if _hides_processes():
        return "/proc, which does not show this process"
    for place in _list_surrounding_jobs():
        kind = place.parent.name
        root = next((above.parent for above in place.parents if above.name == ".ralph"), None)
        if kind == "turns" or (kind == "checks" and root is not None and Path.cwd().is_relative_to(root)):
            return str(place)
    return ""


def _hides_processes() -> bool:
    """Whether `/proc` cannot say who started this process: it is covered, or belongs to other processes."""
    if sys.platform != "linux":
        return False
    try:
        return os.readlink("/proc/self") != str(os.getpid())
    except OSError:
        return True


def _list_surrounding_jobs() -> Iterator[Path]:
    """The directories of the jobs that this process belongs to.

    Every process of a job is a descendant of its job keeper, whose current directory is that of the job.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                is_keeper = _KEEPER_MODULE in file.read().split(b"\0")
            where = os.readlink(f"/proc/{pid}/cwd") if is_keeper else ""
            pid = parent_of(pid)
        except OSError:
            return
        if where:
            yield Path(where)


def parent_of(pid: int) -> int:
    """The parent of a process. Raises OSError if the process is gone."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def is_descendant(pid: int, ancestor: int) -> bool:
    """Whether a process was started, directly or not, by another."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = parent_of(pid)
        except OSError:
            return False
    return False


def signal_processes(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes, except those that are gone or now belong to another user."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def signal_all(number: signal.Signals, spare: int = 0) -> int:
    """Signal every living descendant of this process, except the process `spare`. Returns their number."""
    found = descendants(os.getpid())
    signal_processes((pid for pid in found if pid != spare), number)
    return len(found)


def descendants(root: int, skip: Iterable[int] = ()) -> list[int]:
    """All living descendants of a process, without those in `skip` and below them."""
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


def find_marked(mark: str, prefix: str) -> list[int]:
    """The living processes whose environment has `mark` with a value that begins with the prefix."""
    wanted, found = b"\0" + f"{mark}={prefix}".encode(), set[int]()
    unclear = _pids() if os.path.isdir("/proc/self") else []
    for _ in range(_ATTEMPTS):
        environments = {pid: _read_environment(pid) for pid in unclear if pid != os.getpid()}
        unclear = []
        for pid, environment in environments.items():
            if environment and wanted in b"\0" + environment:
                found.add(pid)
            elif environment == b"":
                # During exec, a process has an empty environment for a moment.
                unclear.append(pid)
        if not unclear:
            break
        time.sleep(_PAUSE)
    return sorted(found)


def _read_environment(pid: int) -> bytes | None:
    """The environment of a process; None if this user cannot read it, or if it is a kernel thread."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        if not environment:
            os.readlink(f"/proc/{pid}/exe")  # fails for a kernel thread, which has no program
        return environment
    except OSError:
        return None


def end_marked(mark: str, prefix: str, grace: float = 2.0) -> int:
    """End those processes: SIGTERM, grace, SIGKILL. Returns their number."""
    first = find_marked(mark, prefix)
    signal_processes(first, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := find_marked(mark, prefix)) and time.monotonic() < deadline:
        time.sleep(0.02)
    while left and time.monotonic() < deadline + grace:
        signal_processes(left, signal.SIGKILL)
        time.sleep(0.02)
        left = find_marked(mark, prefix)
    return len(first)
