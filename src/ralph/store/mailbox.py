"""The mailbox of a run: `signals/inputs/`, where people drop files, and where those go when they were taken.

The journal is the ledger of what was acted on, and is written before a file moves; here files are only read and moved.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from ralph.core.errors import StateError
from ralph.core.signals import Refused, Signal, SignalType, named_time
from ralph.core.stream import clean_text
from ralph.store.files import read_limited, storage, to_bytes, write_atomic

_TICK = 100_000_000
"""Nanoseconds after which a change of a directory has another time than the one before, on any file system."""
_FRESH = 1.0
"""Seconds for which a file that ends in the middle of a line, or cannot be read, may still be being written."""
_Signature = tuple[int, int, int]


class Mailbox:
    """The signals of one run."""

    def __init__(self, directory: Path) -> None:
        self.inputs = directory / "inputs"
        self._processed = directory / "processed"
        self._rejected = directory / "rejected"
        self._acks = directory / "acks"
        self._seen_at = 0
        """The time of the directory when it was found empty; as long as that stays, it is."""
        self._known: dict[str, tuple[_Signature, Signal]] = {}
        self._suspects: dict[str, _Signature] = {}
        """Files that could not be read at the last look: they may be half-written, and get one more look."""

    def post(self, signal: Signal) -> Path:
        """Leave a signal; names never collide and sort by time."""
        stamp = datetime.now(UTC).strftime("%y%m%d-%H%M%SZ-%f")
        path = self.inputs / f"signal.{stamp}-{os.urandom(2).hex()}.yaml"
        with storage(path):
            self.inputs.mkdir(parents=True, exist_ok=True)
        write_atomic(path, _codec().render(signal).encode())
        return path

    def peek(self) -> Sequence[Signal | Refused]:
        """The signals that wait, ABORT first, then by time and name; and the files that were set aside for good."""
        if self._is_empty():
            return ()
        found = [(name, self._read(name)) for name in self._names()]
        self._known = {name: self._known[name] for name, one in found if isinstance(one, Signal)}
        self._suspects = {name: seen for name, seen in self._suspects.items() if (name, None) in found}
        signals = sorted((one for _, one in found if isinstance(one, Signal)), key=self._order)
        return [*signals, *(one for _, one in found if isinstance(one, Refused))]

    def look(self) -> list[Signal]:
        """The signals that wait, for those who only look: nothing is set aside."""
        found = []
        for name in self._names():
            try:
                found.append(self._parsed(name))
            except (StateError, UnicodeError, OSError):
                continue
        return sorted(found, key=self._order)

    def settle(self, signal: Signal, action: str, missed: tuple[str, ...] | None = None) -> None:
        """File a signal that was taken, with what was done about it and whom it did not reach."""
        source, target = self.inputs / signal.name, self._processed / signal.name
        try:
            text = read_limited(source, _codec().SIZE_LIMIT).decode(errors="replace")
        except (FileNotFoundError, StateError):
            return
        with storage(target):
            self._processed.mkdir(exist_ok=True)
        if os.path.lexists(target) and not _begins(target, text):
            target = self._processed / f"{signal.stamp}-{signal.name[-200:]}"
        handled = _codec().with_handling(text, action=action, at=datetime.now(UTC), missed=missed)
        write_atomic(target, handled.encode())
        source.unlink(missing_ok=True)

    def acknowledge(self, signal: Signal, role: str, facts: Mapping[str, object]) -> None:
        """Note that a role has taken a signal in; nothing rests on it, for the journal says so too."""
        path = self._acks / Path(signal.id).stem / f"{role}.yaml"
        with storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        text = _codec().acknowledgement(signal, role, datetime.now(UTC), facts)
        write_atomic(path, text.encode(), durable=False)

    def _is_empty(self) -> bool:
        """Whether nothing can have come since the mailbox was last found empty: one system call."""
        try:
            changed = os.stat(self.inputs).st_mtime_ns
        except OSError:
            return True
        if changed == self._seen_at:
            return True
        if not self._names():
            self._seen_at = changed if time.time_ns() - changed > _TICK else 0
            return True
        return False

    def _names(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self.inputs) if not entry.name.startswith(".")]
        except OSError:
            return []

    def _order(self, signal: Signal) -> tuple[bool, float, str]:
        at = named_time(signal.name)
        if at is None:
            at = int(signal.stamp.partition("-")[2] or 0) / 1e9
        return signal.type is not SignalType.ABORT, at, signal.name

    def _read(self, name: str) -> Signal | Refused | None:
        path = self.inputs / name
        try:
            seen = _signature(path)
            if name in self._known and self._known[name][0] == seen:
                return self._known[name][1]
            self._known[name] = (seen, self._parsed(name))
            return self._known[name][1]
        except (FileNotFoundError, BlockingIOError):
            return None
        except (StateError, UnicodeError, OSError) as error:
            return self._suspect(path, str(error).splitlines()[0])

    def _parsed(self, name: str) -> Signal:
        path = self.inputs / name
        name.encode()
        seen, data = _signature(path), read_limited(path, _codec().SIZE_LIMIT)
        if not data.endswith(b"\n") and _is_fresh(seen):
            raise BlockingIOError("it may still be being written")
        signal: Signal = _codec().parse(name, data.decode())
        return replace(signal, stamp=f"{seen[0]}-{seen[2]}")

    def _suspect(self, path: Path, reason: str) -> Refused | None:
        """Reject a file that is as broken as it was at the last look."""
        try:
            seen = _signature(path)
        except FileNotFoundError:
            return None
        if self._suspects.get(path.name) != seen or (path.is_file() and not path.is_symlink() and _is_fresh(seen)):
            self._suspects[path.name] = seen
            return None
        with storage(path):
            self._rejected.mkdir(exist_ok=True)
            place = self._rejected / path.name
            if os.path.lexists(place):
                place = self._rejected / f"{os.urandom(3).hex()}-{path.name[:200]}"
        write_atomic(self._rejected / f"{place.name[:240]}.reason", to_bytes(f"{reason}\n"))
        with storage(path):
            os.rename(path, place)
        return Refused(clean_text(path.name), clean_text(reason))


def _signature(path: Path) -> _Signature:
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _is_fresh(seen: _Signature) -> bool:
    return 0 <= time.time() - seen[2] / 1e9 < _FRESH


def _begins(path: Path, text: str) -> bool:
    """Whether a file holds that signal already: the engine went between filing it and taking the original away."""
    try:
        return read_limited(path).decode(errors="replace").startswith(text)
    except (StateError, OSError):
        return False


def _codec() -> ModuleType:
    """The YAML codec, imported when the first signal is seen: most runs never see one."""
    from ralph.documents import signals

    return signals
