"""The one way to write a file, and the one way to read a file that others may have written.

Every change to the disk goes through `_syscall`, one step at a time, so that tests can cut the power at each step.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from ralph.core.errors import StateError, StorageError, UsageError

P = ParamSpec("P")
R = TypeVar("R")

READ_LIMIT = 8 * 1024 * 1024
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def _syscall(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return function(*args, **kwargs)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Map errors of the file system to errors with advice: a disk that is full or read-only, or a missing permission."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            todo = "free some disk space (`ralph clean` removes old runs), then `ralph resume`"
            if error.errno == errno.EROFS:
                todo = "make the disk writable, then `ralph resume`"
            raise StorageError(f"cannot write: {error.strerror}", where=str(path), todo=todo) from error
        if isinstance(error, PermissionError):
            raise StorageError(
                "cannot write: permission denied",
                where=str(path),
                todo=f"make it writable for you, for example `chmod u+w {path.parent}`",
            ) from error
        if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError | FileNotFoundError):
            what = f"this path is blocked or missing: {error.strerror}"
            raise StateError(what, where=str(error.filename or path)) from error
        raise


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace a file in one step: after a crash it holds the old bytes or the new, and never a part.

    If it is not durable, the write is not synced: after a power cut, the file may be older or missing.
    """
    temporary = path.with_name(f".{os.urandom(6).hex()}.tmp")
    with storage_errors(path):
        descriptor = _syscall(os.open, temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
        try:
            try:
                write_all(descriptor, data)
                if durable:
                    _syscall(os.fsync, descriptor)
            finally:
                os.close(descriptor)
            _syscall(os.rename, temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync_directory(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes. One call of `os.write` may write only a part of them."""
    view = memoryview(data)
    while view:
        view = view[_syscall(os.write, descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Make renames and new files in a directory last: on Linux, syncing a file does not sync its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _syscall(os.fsync, descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    with storage_errors(path):
        try:
            _syscall(os.unlink, path)
        except FileNotFoundError:
            return


def open_regular(path: Path, flags: int, *, follow: bool = False) -> int:
    """A descriptor of a regular file. A link, a pipe or a directory is refused.

    `O_NONBLOCK` keeps the open of a pipe from waiting for a writer.
    """
    try:
        nofollow = 0 if follow else os.O_NOFOLLOW
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | nofollow, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENOTDIR):
            raise StateError("this is not a regular file", where=str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StateError("this is not a regular file", where=str(path))
    return descriptor


def read_limited(path: Path, limit: int = READ_LIMIT, *, follow: bool = False) -> bytes:
    """The bytes of a file. One that is not regular, or larger than the limit, is refused."""
    with os.fdopen(open_regular(path, os.O_RDONLY, follow=follow), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise StateError(f"the file is larger than {limit // 1024} KiB, the limit for this file", where=str(path))
    return data


def is_inside(path: Path, root: Path) -> bool:
    """Whether a path of a project stays in it if links are followed, and out of the private files of its runs."""
    place, top = path.resolve(), root.resolve()
    return place.is_relative_to(top) and not place.is_relative_to(top / ".ralph" / "runs")


def read_text(path: Path, limit: int, what: str, todo: str) -> str:
    """The text of a file that the user named. If it cannot be read, that is an error of usage."""
    try:
        return read_limited(path, limit, follow=True).decode()
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}", where=str(path), todo=todo) from error
    except StateError as error:
        raise UsageError(f"{what} cannot be read: {error.what}", where=error.where, todo=todo) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8 text ({error})", where=str(path), todo="save it as UTF-8") from error


_NAME_A_FILE = "name a file in a directory that exists and that you can write to"


def refuse_unwritable(path: Path) -> None:
    """Refuse a file that the user named and that cannot be written, before the work for it begins."""
    if path.is_dir():
        raise UsageError("this is a directory", where=str(path), todo=_NAME_A_FILE)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError("you cannot write to this directory", where=str(path), todo=_NAME_A_FILE)


def write_text(path: Path, text: str) -> None:
    """Write a file that the user named. If that is not possible, it is an error of usage."""
    refuse_unwritable(path)
    try:
        write_atomic(path, to_bytes(text))
    except (StateError, StorageError) as error:
        raise UsageError(error.what, where=str(path), todo=_NAME_A_FILE) from error


def stat_signature(path: Path) -> tuple[int, int, int] | None:
    """Inode, size and time, which change when a file is written or replaced; None if there is no file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def to_bytes(text: str) -> bytes:
    """Text as bytes. File names that are not UTF-8 are preserved (`surrogateescape`)."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def to_text(data: bytes) -> str:
    """The reverse of `to_bytes`."""
    return data.decode(errors="surrogateescape")
