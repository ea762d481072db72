"""The project, the run and the files that the tools share. Many processes read and change them at once."""

import fcntl
import os
import time
from collections.abc import Callable

from ralph.documents.agent.events import load_json
from ralph.tools.arguments import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCK_SECONDS = 60.0
READ_LIMIT = 32 * 1024 * 1024
_SIGNS = ((".git",), (".ralph", "ralph.yml"))
"""What is in the root of a project: git's directory; without git, the others."""


def root(args: "dict[str, Any]") -> str:
    """The project that `--root` names, that of the run, or the one around this directory, as `Project.around` finds it."""
    named = args.get("root") or os.environ.get("RALPH_WORKSPACE_ROOT")
    if named:
        if not os.path.isdir(named):
            raise ToolError("there is no such project directory", "give another with --root", where=named)
        return os.path.abspath(named)
    return _find_parent(_SIGNS[0]) or _find_parent(_SIGNS[1]) or os.getcwd()


def _find_parent(signs: "tuple[str, ...]") -> str:
    """The nearest directory from here up that has one of these entries; empty if there is none."""
    directory = os.getcwd()
    while not any(os.path.lexists(os.path.join(directory, sign)) for sign in signs):
        parent = os.path.dirname(directory)
        if parent == directory:
            return ""
        directory = parent
    return directory


def restore_turn_variables() -> None:
    """Set the variables of a turn that the shell of its agent dropped, as they were when the turn started."""
    mark = os.environ.get("RALPH_TURN", "")
    if not mark or "RALPH_EVENTS_FILE" in os.environ:
        return
    run, _, turn = mark.rpartition("/")
    program = os.environ.get("RALPH_BIN", "")
    own = os.path.dirname(os.path.dirname(program)) if program else os.path.join(root({}), ".ralph", "runs", run)
    turns = os.path.join(own, "turns")
    names = os.listdir(turns) if os.path.basename(own) == run and os.path.isdir(turns) else []
    for name in names:
        if name.startswith(f"{turn}-"):
            variables = read_value(os.path.join(turns, name, "turn.json"), "environment")
            if isinstance(variables, dict):
                os.environ.update(variables)
                return


def find_shared_path(args: "dict[str, Any]", name: str) -> str:
    """A file that the agents of a project share. A link is followed."""
    return os.path.realpath(os.path.join(root(args), ".ralph", "agent", name))


def run_id(args: "dict[str, Any]") -> str:
    """The run of the caller, or the latest run of hats; empty if there is none."""
    if run := os.environ.get("RALPH_RUN", "").strip():
        return run
    return read(os.path.join(root(args), ".ralph", "current-loop-id")).decode(errors="replace").strip()


def read(path: str) -> bytes:
    """A file's bytes; none if there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with open(descriptor, "rb", buffering=0) as file:
        data = file.read(READ_LIMIT + 1)
    if data is None or len(data) > READ_LIMIT:
        raise ToolError("the file cannot be read, or is too large", "look at the file", where=path)
    return data


def read_value(path: str, key: str) -> object:
    """The value of a key in a JSON document; None if there is none."""
    try:
        data = load_json(read(path).decode(errors="replace"))
    except ValueError:
        return None
    return data.get(key) if isinstance(data, dict) else None


class FileLock:
    """A lock on a file for one process at a time. It ends with the process."""

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
        holder = os.pread(self.descriptor, 20, 0).decode(errors="replace") or "unknown"
        what = f"process {holder} has held the lock for more than {LOCK_SECONDS:g} seconds; nothing was changed"
        return ToolError(what, "try again; if that process hangs, end it", where=self.path, code=10)


def change(path: str, by: Callable[[bytes], bytes]) -> None:
    """Replace the content of a file with the result of `by`, which may be called again.

    Readers never see a half-written file. If another program writes without the lock meanwhile, `by` gets its content.
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
    """Append a line to a file in one write. If the last line is incomplete, the new one starts on a line of its own."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(descriptor, line) != len(line):
            raise ToolError(
                "the disk is full: Ralph wrote only a part of the line", "free some space", where=path, code=7
            )
    finally:
        os.close(descriptor)


def now() -> str:
    """The current time, as all these files have it."""
    at = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at * 1e6) % 1_000_000:06d}+00:00"


def day(ago: int = 0) -> str:
    """The date of today, or of a number of days ago."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago * 86400))


def make_id(kind: str) -> str:
    """A new id with the current time: `task-1763283600-a1b2`."""
    return f"{kind}-{int(time.time())}-{os.urandom(2).hex()}"


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        seen = os.stat(path)
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
