"""Where the tools work: the project, the run, and its files, which many processes read and change at once."""

import fcntl
import os
import time
from collections.abc import Callable

from ralph.tools.arguments import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCK_SECONDS = 60.0
READ_LIMIT = 32 * 1024 * 1024
_SIGNS = (".ralph", "ralph.yml", ".git")


def root(given: "dict[str, Any]") -> str:
    """The project: the one that is named, the one of the run, or the nearest with `.ralph/`, `ralph.yml` or `.git`."""
    named = given.get("root") or os.environ.get("RALPH_WORKSPACE_ROOT")
    if named:
        if not os.path.isdir(named):
            raise ToolError("the project is not there", "name a directory with --root", where=named)
        return os.path.abspath(named)
    here = place = os.getcwd()
    while not any(os.path.lexists(os.path.join(place, sign)) for sign in _SIGNS):
        if place == (place := os.path.dirname(place)):
            return here
    return place


def shared(given: "dict[str, Any]", name: str) -> str:
    """A file that the agents of a project share; where it is a link, what it leads to."""
    return os.path.realpath(os.path.join(root(given), ".ralph", "agent", name))


def run_id(given: "dict[str, Any]") -> str:
    """The run that the caller belongs to, or the one that is under way; empty outside of any."""
    if run := os.environ.get("RALPH_RUN", "").strip():
        return run
    return read(os.path.join(root(given), ".ralph", "current-loop-id")).decode(errors="replace").strip()


def read(path: str) -> bytes:
    """A file's bytes; none where there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with open(descriptor, "rb", buffering=0) as file:
        data = file.read(READ_LIMIT + 1)
    if data is None or len(data) > READ_LIMIT:
        raise ToolError("this file cannot be read, or is too large", "see what is in it", where=path)
    return data


class FileLock:
    """The right to change a file, of one process at a time; it ends with the process."""

    def __init__(self, path: str) -> None:
        self.path = f"{path}.lock"

    def __enter__(self) -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self.descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise self._refusal() from None
                time.sleep(0.002)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, str(os.getpid()).encode(), 0)

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def _refusal(self) -> ToolError:
        holder = os.pread(self.descriptor, 20, 0).decode(errors="replace") or "another one"
        what = f"process {holder} has held the lock for more than {LOCK_SECONDS:g} seconds; nothing was changed"
        return ToolError(what, "try again; if that process hangs, end it", where=self.path, code=10)


def change(path: str, by: Callable[[bytes], bytes]) -> None:
    """Replace what is in a file by what is made of it, with no other change between; `by` may be asked again.

    The file is a whole one at every instant. Who writes to it without the lock is seen, and built upon.
    """
    with FileLock(path):
        while True:
            seen = _look(path)
            before = read(path)
            after = by(before)
            if after == before:
                return
            new = f"{path}.new"
            descriptor = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            with open(descriptor, "wb") as file:
                file.write(after)
                file.flush()
                os.fsync(descriptor)
            if _look(path) == seen:
                os.rename(new, path)
                return


def append(path: str, line: bytes) -> None:
    """Add a whole line to a file in one write; after a part of a line that somebody could not finish, on a new one."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(descriptor, line) != len(line):
            raise ToolError("the disk is full: only a part of the line was written", "make room", where=path, code=7)
    finally:
        os.close(descriptor)


def now() -> str:
    """The moment, as it is written in all these files."""
    at = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at * 1e6) % 1_000_000:06d}+00:00"


def day(ago: int = 0) -> str:
    """Today, or so many days before."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago * 86400))


def new_id(kind: str) -> str:
    """An id that tells its time: `task-1763283600-a1b2`."""
    return f"{kind}-{int(time.time())}-{os.urandom(2).hex()}"


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        seen = os.stat(path)
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
