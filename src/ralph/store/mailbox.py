"""The mailbox of a run: `signals/inputs/`, where people drop files, and where those go when they were taken.

The journal is the ledger of what was acted on, and is written before a file moves; here files are only read and moved.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from ralph.core.errors import StateError
from ralph.core.signals import Signal, SignalType
from ralph.store.files import read_limited, storage, to_bytes, write_atomic


class Mailbox:
    """The signals of one run."""

    def __init__(self, directory: Path) -> None:
        self._inputs = directory / "inputs"
        self._processed = directory / "processed"
        self._rejected = directory / "rejected"
        self._suspects: dict[str, tuple[int, int]] = {}
        """Files that could not be read at the last look: they may be half-written, and get one more look."""

    def post(self, kind: SignalType, message: str = "") -> Path:
        """Leave a signal; names never collide and sort by time."""
        stamp = datetime.now(UTC).strftime("%y%m%d-%H%M%S-%f")
        path = self._inputs / f"signal.{stamp}-{os.urandom(2).hex()}.yaml"
        with storage(path):
            self._inputs.mkdir(parents=True, exist_ok=True)
        write_atomic(path, _codec().render(kind, message).encode())
        return path

    def peek(self) -> Sequence[Signal]:
        """The signals that wait: ABORT first, then by name, which is by time."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._inputs) if not entry.name.startswith("."))
        except OSError:
            return ()
        found = [signal for name in names if (signal := self._read(name))]
        return sorted(found, key=lambda signal: signal.type is not SignalType.ABORT)

    def settle(self, signal: Signal, action: str) -> None:
        """File a signal that was taken, with what was done about it."""
        source, target = self._inputs / signal.name, self._processed / signal.name
        try:
            text = read_limited(source, _codec().SIZE_LIMIT).decode(errors="replace")
        except FileNotFoundError:
            return
        with storage(target):
            self._processed.mkdir(exist_ok=True)
        write_atomic(target, _codec().with_handling(text, action=action, at=datetime.now(UTC)).encode())
        source.unlink(missing_ok=True)

    def _read(self, name: str) -> Signal | None:
        path = self._inputs / name
        try:
            name.encode()
            data = read_limited(path, _codec().SIZE_LIMIT)
            signal: Signal = _codec().parse(name, data.decode())
            signal = replace(signal, stamp=_stamp(path))
        except FileNotFoundError:
            return None
        except (StateError, UnicodeError, OSError) as error:
            self._suspect(path, str(error).splitlines()[0])
            return None
        return signal

    def _suspect(self, path: Path, reason: str) -> None:
        """Reject a file that is as broken as it was at the last look."""
        status = path.lstat()
        seen = (status.st_size, status.st_mtime_ns)
        if self._suspects.get(path.name) != seen:
            self._suspects[path.name] = seen
            return
        del self._suspects[path.name]
        with storage(path):
            self._rejected.mkdir(exist_ok=True)
            place = self._rejected / path.name
            if os.path.lexists(place):
                place = self._rejected / f"{os.urandom(3).hex()}-{path.name[:200]}"
        write_atomic(self._rejected / f"{place.name[:240]}.reason", to_bytes(f"{reason}\n"))
        with storage(path):
            os.rename(path, place)


def _stamp(path: Path) -> str:
    status = path.lstat()
    return f"{status.st_ino}-{status.st_mtime_ns}"


def _codec() -> ModuleType:
    """The YAML codec, imported when the first signal is seen: most runs never see one."""
    from ralph.documents import signals

    return signals
