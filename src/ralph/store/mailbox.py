"""The mailbox of a run: `signals/inputs/`, where the user puts signals, and the directories for those that were handled.

The engine journals what it does with a signal before it archives or rejects the file. Reading moves nothing.
`watch_directories` reports new files by the events of the system (inotify).
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from ralph.core.errors import StateError
from ralph.core.signals import InvalidSignalFile, Signal, SignalType, parse_time_in_name
from ralph.core.speakers import COMMAND_LINE, FROM_FILE, name_user
from ralph.core.text import clean_text
from ralph.store.files import read_limited, storage_errors, to_bytes, write_atomic

_TICK = 100_000_000
"""Nanoseconds after which two changes of a directory have different times. The coarsest kernel tick is 10 ms; this is ten."""
_FRESH = 1.0
"""Seconds for which a file without a last line break may still be incomplete."""
_Signature = tuple[int, int, int]


class Mailbox:
    """The signals of one run."""

    def __init__(self, directory: Path) -> None:
        self.inputs = directory / "inputs"
        self._processed = directory / "processed"
        self._rejected = directory / "rejected"
        self._acks = directory / "acks"
        self._seen_at = 0
        """The time of the directory when it was last found empty. While the time is the same, it is still empty."""
        self._known: dict[str, tuple[_Signature, Signal]] = {}
        self._suspects: dict[str, _Signature] = {}
        """Files that could not be parsed last time. They may be incomplete, and are read once more."""

    def post(self, signal: Signal) -> Path:
        """Write a signal, and who sends it. Names are unique and sort by time."""
        signal = replace(signal, by=signal.by or name_user(COMMAND_LINE))
        stamp = datetime.now(UTC).strftime("%y%m%d-%H%M%SZ-%f")
        path = self.inputs / f"signal.{stamp}-{os.urandom(2).hex()}.yaml"
        with storage_errors(path):
            self.inputs.mkdir(parents=True, exist_ok=True)
        write_atomic(path, _import_signal_files().render_signal(signal).encode())
        return path

    def read_inputs(self) -> Sequence[Signal | InvalidSignalFile]:
        """The waiting signals, ABORT first, then by time and name; and the files that the engine has to reject."""
        if self._is_empty():
            return ()
        found = [(name, self._read(name)) for name in self._list_names()]
        self._known = {name: self._known[name] for name, one in found if isinstance(one, Signal)}
        self._suspects = {name: seen for name, seen in self._suspects.items() if (name, None) in found}
        signals = [one for _, one in found if isinstance(one, Signal)]
        invalid = [one for _, one in found if isinstance(one, InvalidSignalFile)]
        return [*sorted(signals, key=self._sort_key), *invalid]

    def list_waiting(self) -> list[Signal]:
        """The waiting signals, without rejecting any file."""
        found = []
        for name in self._list_names():
            try:
                found.append(self._parse(name))
            except (StateError, UnicodeError, OSError):
                continue
        return sorted(found, key=self._sort_key)

    def archive(self, signal: Signal, action: str, missed: tuple[str, ...] | None = None) -> None:
        """Move a handled signal to `processed/`, with its result and the roles that it did not reach."""
        source, target = self.inputs / signal.name, self._processed / signal.name
        try:
            text = read_limited(source, _import_signal_files().SIZE_LIMIT).decode(errors="replace")
        except (FileNotFoundError, StateError):
            return
        with storage_errors(target):
            self._processed.mkdir(exist_ok=True)
        if os.path.lexists(target) and not _holds_signal(target, text):
            target = self._processed / f"{signal.stamp}-{signal.name[-200:]}"
        handled = _import_signal_files().record_handling(text, action=action, at=datetime.now(UTC), missed=missed)
        write_atomic(target, handled.encode())
        source.unlink(missing_ok=True)

    def reject(self, signal: Signal | InvalidSignalFile, reason: str) -> None:
        """Move a file that no turn will ever take to `rejected/`, with the reason."""
        source = self.inputs / signal.name
        if not os.path.lexists(source):
            return
        with storage_errors(source):
            self._rejected.mkdir(exist_ok=True)
            target = self._rejected / source.name
            if os.path.lexists(target):
                target = self._rejected / f"{os.urandom(3).hex()}-{source.name[:200]}"
        write_atomic(self._rejected / f"{target.name[:240]}.reason", to_bytes(f"{reason}\n"))
        with storage_errors(source):
            os.rename(source, target)

    def record_receipt(self, signal: Signal, action: str, at: float) -> None:
        """Note in the processed file of a signal to one role when that role received it."""
        names = (f"{signal.stamp}-{signal.name[-200:]}", signal.name)
        path = next((path for name in names if (path := self._processed / name).is_file()), None)
        if path is None:
            return
        text = read_limited(path).decode(errors="replace")
        noted = _import_signal_files().record_receipt(text, action=action, at=datetime.fromtimestamp(at, UTC))
        if noted != text:
            write_atomic(path, noted.encode(), durable=False)

    def acknowledge(self, signal: Signal, role: str, facts: Mapping[str, object]) -> None:
        """Write an acknowledgement of a role for the user. Nothing depends on it: the journal has it too."""
        path = self._acks / Path(signal.id).stem / f"{role}.yaml"
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        text = _import_signal_files().render_ack(signal, role, datetime.now(UTC), facts)
        write_atomic(path, text.encode(), durable=False)

    def _is_empty(self) -> bool:
        """Whether the mailbox is empty. If it was empty and has not changed since, that takes one system call."""
        try:
            changed = os.stat(self.inputs).st_mtime_ns
        except OSError:
            return True
        if changed == self._seen_at:
            return True
        if not self._list_names():
            self._seen_at = changed if time.time_ns() - changed > _TICK else 0
            return True
        return False

    def _list_names(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self.inputs) if not entry.name.startswith(".")]
        except OSError:
            return []

    def _sort_key(self, signal: Signal) -> tuple[bool, float, str]:
        at = parse_time_in_name(signal.name)
        if at is None:
            at = int(signal.stamp.partition("-")[2] or 0) / 1e9
        return signal.type is not SignalType.ABORT, at, signal.name

    def _read(self, name: str) -> Signal | InvalidSignalFile | None:
        path = self.inputs / name
        try:
            seen = _read_signature(path)
            if name in self._known and self._known[name][0] == seen:
                return self._known[name][1]
            self._known[name] = (seen, self._parse(name))
            return self._known[name][1]
        except (FileNotFoundError, BlockingIOError):
            return None
        except (StateError, UnicodeError, OSError) as error:
            return self._find_invalid(path, str(error).splitlines()[0])

    def _parse(self, name: str) -> Signal:
        path = self.inputs / name
        name.encode()
        seen, data = _read_signature(path), read_limited(path, _import_signal_files().SIZE_LIMIT)
        if not data.endswith(b"\n") and _is_fresh(seen):
            raise BlockingIOError("it may not be complete yet")
        if _read_signature(path) != seen:
            # The stamp would not be that of the content, and another engine would take the file for another signal.
            raise BlockingIOError("it is just being written")
        signal: Signal = _import_signal_files().parse_signal(name, data.decode())
        return replace(signal, stamp=_make_stamp(seen), by=signal.by or FROM_FILE)

    def _find_invalid(self, path: Path, reason: str) -> InvalidSignalFile | None:
        """A file that cannot be parsed, if it has not changed since the last time. Otherwise, it may be incomplete."""
        try:
            seen = _read_signature(path)
        except FileNotFoundError:
            return None
        if self._suspects.get(path.name) != seen or (path.is_file() and not path.is_symlink() and _is_fresh(seen)):
            self._suspects[path.name] = seen
            return None
        return InvalidSignalFile(path.name, clean_text(reason), _make_stamp(seen))


def _read_signature(path: Path) -> _Signature:
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _make_stamp(seen: _Signature) -> str:
    return f"{seen[0]}-{seen[2]}"


def _is_fresh(seen: _Signature) -> bool:
    return 0 <= time.time() - seen[2] / 1e9 < _FRESH


def _holds_signal(path: Path, text: str) -> bool:
    """Whether a file holds that signal: the engine was killed after it archived it and before it removed the original."""
    try:
        return read_limited(path).decode(errors="replace").startswith(text)
    except (StateError, OSError):
        return False


def _import_signal_files() -> ModuleType:
    """The format of signal files, imported when the first signal is seen: most runs never see one."""
    from ralph.documents import signals

    return signals


# From <sys/inotify.h>.
_CLOSE_WRITE, _MOVED_TO, _CREATE = 0x8, 0x80, 0x100
_EVENT_BYTES = 64 * 1024


@contextlib.contextmanager
def watch_directories(notify: Callable[[], object], *directories: Path) -> Iterator[bool]:
    """Call `notify` when a file in these directories appears or is written.

    Yields False if the system has no such events, or none to spare: the caller then has to poll.
    """
    descriptor = open_watch(directories)
    if descriptor < 0:
        yield False
        return
    import asyncio

    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, lambda: (os.read(descriptor, _EVENT_BYTES), notify()))
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def open_watch(directories: tuple[Path, ...]) -> int:
    """The descriptor from which their events can be read; below 0 if there is none."""
    import ctypes

    system = ctypes.CDLL(None, use_errno=True)
    if not hasattr(system, "inotify_init1"):
        return -1
    descriptor: int = system.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    for directory in directories if descriptor >= 0 else ():
        with storage_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
        if system.inotify_add_watch(descriptor, os.fsencode(directory), _CLOSE_WRITE | _MOVED_TO | _CREATE) < 0:
            os.close(descriptor)
            return -1
    return descriptor
