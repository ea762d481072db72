"""The one way to write a file, and the one way to read what others may have written.

Every function that changes the disk does it through `_syscall`, one named step at a time: this is where the tests cut the power.
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
def storage(path: Path) -> Iterator[None]:
    """Map the errors of a disk that is full, read-only or closed to us, once."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            room = "make room (`ralph clean` removes old runs), then `ralph resume`"
            todo = "make the disk writable, then `ralph resume`" if error.errno == errno.EROFS else room
            raise StorageError(f"cannot write: {error.strerror}", where=str(path), todo=todo) from error
        if isinstance(error, PermissionError):
            raise StorageError(
                "cannot write: permission denied",
                where=str(path),
                todo=f"make it writable for you, e.g. `chmod u+w {path.parent}`",
            ) from error
        if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError | FileNotFoundError):
            what = f"something is in the way or gone: {error.strerror}"
            raise StateError(what, where=str(error.filename or path)) from error
        raise


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace a file in one step: after a crash it holds the old bytes or the new, and never a part.

    What is not durable is not waited for: after a power cut it may be older, or gone.
    """
    temporary = path.with_name(f".{os.urandom(6).hex()}.tmp")
    with storage(path):
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
    """Write every byte."""
    view = memoryview(data)
    while view:
        view = view[_syscall(os.write, descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Make renames and new names in a directory last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _syscall(os.fsync, descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    with storage(path):
        try:
            _syscall(os.unlink, path)
        except FileNotFoundError:
            return


def open_regular(path: Path, flags: int, *, follow: bool = False) -> int:
    """A descriptor of a regular file; a link, a pipe or a directory in its place is refused by name."""
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
    """A file's bytes; one that is not regular or over the limit is refused by name."""
    with os.fdopen(open_regular(path, os.O_RDONLY, follow=follow), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise StateError(f"the file is larger than the {limit // 1024} KiB that are read of it", where=str(path))
    return data


def read_text(path: Path, limit: int, what: str, todo: str) -> str:
    """The text of a file that a person named; where it cannot be had, they are told."""
    try:
        return read_limited(path, limit, follow=True).decode()
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}", where=str(path), todo=todo) from error
    except StateError as error:
        raise UsageError(f"{what} cannot be read: {error.what}", where=error.where, todo=todo) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8 text ({error})", where=str(path), todo="save it as UTF-8") from error


_NAME_A_FILE = "give the path of a file, in a directory that is there and may be written to"


def refuse_unwritable(path: Path) -> None:
    """An error where a file that a person named cannot be written, before there is anything to write."""
    if path.is_dir():
        raise UsageError("this is a directory", where=str(path), todo=_NAME_A_FILE)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError("nothing can be written there", where=str(path), todo=_NAME_A_FILE)


def write_text(path: Path, text: str) -> None:
    """Write a file that a person named; where it cannot be, they are told."""
    refuse_unwritable(path)
    try:
        write_atomic(path, to_bytes(text))
    except (StateError, StorageError) as error:
        raise UsageError(error.what, where=str(path), todo=_NAME_A_FILE) from error


def signature(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever a file is written or replaced: inode, size and time; None where it is not there."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def to_bytes(text: str) -> bytes:
    """Text as it is stored; names that are not UTF-8 come through unharmed."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def to_text(data: bytes) -> str:
    """The reverse of `to_bytes`."""
    return data.decode(errors="surrogateescape")
