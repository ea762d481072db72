"""The memory on disk: reflections in `.aiwg/ralph/reflections/loops/<loop>/iteration-<n>.yaml`, and YAML files beside them.

The YAML files have one writer at a time and are replaced in one step. A broken one is renamed.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ralph.core.errors import LockedError, StateError
from ralph.core.ids import is_run_id, parse_run_id
from ralph.documents.reflection import HOME, Reflection, load, parse
from ralph.documents.yaml_codec import SIZE_LIMIT, dump
from ralph.store import locks
from ralph.store.files import read_limited, storage_errors, sync_directory, to_bytes, write_atomic

FILE_LIMIT = 4 * 1024 * 1024
LOCK_SECONDS = 60.0
"""Seconds that a writer waits for the lock. Others hold it for milliseconds."""
_NAME = re.compile(r"iteration-(0|[1-9][0-9]{0,8})\.yaml")


class Reflections:
    """All reflections of a project. A file that cannot be read is skipped and named in `faults`."""

    def __init__(self, root: Path) -> None:
        self._loops = root / HOME / "loops"
        self.faults: list[str] = []

    def loops(self) -> list[str]:
        """The loops that have reflections, the newest first. Their ids begin with the time."""
        names = [name for name in self._names(self._loops) if is_run_id(name)]
        return sorted((name for name in names if not (self._loops / name).is_symlink()), reverse=True)

    def iterations(self, loop: str) -> list[int]:
        """The iterations of a loop that have a reflection, in order."""
        names = self._names(self._loops / parse_run_id(loop))
        matches = (_NAME.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in matches if match)

    def of(self, loop: str, last: int | None = None) -> list[Reflection]:
        """The reflections of a loop in their order, or only the last ones."""
        found = (self._parse(path, self._text(path)) for path in self._paths(loop, last))
        return [reflection for reflection in found if reflection]

    def latest(self) -> Reflection | None:
        """The last reflection of the newest loop that has a readable one."""
        for loop in self.loops():
            if found := self.of(loop, 1):
                return found[-1]
        return None

    def newest(
        self, most: int, per_loop: int, wanted: Callable[[str], bool] = lambda text: True, *, exclude: str = ""
    ) -> Iterator[list[Reflection]]:
        """The wanted reflections of each other loop, the newest loop first, until `most` files are read.

        If a loop has wanted ones, its last reflection is added, which has the outcome.
        """
        for loop in self.loops():
            if loop == exclude:
                continue
            paths = self._paths(loop, min(most, per_loop))
            texts = [self._text(path) for path in paths]
            chosen = [number for number, text in enumerate(texts) if text and wanted(text)]
            if chosen and chosen[-1] != len(paths) - 1:
                chosen.append(len(paths) - 1)
            found = (self._parse(paths[number], texts[number]) for number in chosen)
            yield [reflection for reflection in found if reflection]
            most -= len(paths)
            if most <= 0:
                return

    def _names(self, directory: Path) -> list[str]:
        try:
            return os.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.faults.append(f"{directory}: {error.strerror}")
            return []

    def _paths(self, loop: str, last: int | None) -> list[Path]:
        numbers = self.iterations(loop)
        first = 0 if last is None else max(0, len(numbers) - last)
        return [self._loops / loop / f"iteration-{number}.yaml" for number in numbers[first:]]

    def _text(self, path: Path) -> str:
        try:
            return read_limited(path, SIZE_LIMIT).decode(errors="replace")
        except StateError as error:
            self.faults.append(f"{path}: {error.what}")
        except OSError as error:
            self.faults.append(f"{path}: {error.strerror}")
        return ""

    def _parse(self, path: Path, text: str) -> Reflection | None:
        """The reflection in a text. The name of the directory is its loop."""
        try:
            return replace(parse(text, str(path)), loop=path.parent.name) if text else None
        except StateError as error:
            self.faults.append(f"{error.where}: {error.what}")
            return None


def archive(root: Path, stamp: str) -> Path | None:
    """Move loops and patterns to an archive directory, and return it; None if there was nothing. The index stays."""
    home = root / HOME
    target = home / "archive" / stamp
    if not home.exists():
        return None
    with lock_memory(root):
        present = [home / name for name in ("loops", "patterns") if (home / name).exists()]
        if not present:
            return None
        with storage_errors(target):
            target.mkdir(parents=True)
            for path in present:
                os.rename(path, target / path.name)
            sync_directory(target)
            sync_directory(home)
    return target


@contextmanager
def lock_memory(root: Path) -> Iterator[None]:
    """Be the only writer of this project's memory."""
    path = root / HOME / ".lock"
    deadline = time.monotonic() + LOCK_SECONDS
    while not isinstance(taken := locks.acquire(path, {"pid": os.getpid()}), locks.Lock):
        if time.monotonic() > deadline:
            what = f"process {taken.get('pid', '?')} holds the lock of the memory"
            raise LockedError(what, where=str(path), todo="end that process, then try again")
    try:
        yield
    finally:
        taken.release()


def read_yaml(path: Path) -> dict[str, Any]:
    """The content of a file; empty if it does not exist. A file that Ralph did not write is a StateError."""
    try:
        text = read_limited(path, FILE_LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StateError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return load(text, str(path), FILE_LIMIT)


def write_yaml(path: Path, data: Mapping[str, object]) -> None:
    """Replace a file in one step."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_bytes(dump(data)))


def set_aside(path: Path) -> None:
    """Rename a file that cannot be read, so that another can be written."""
    with storage_errors(path):
        os.replace(path, path.with_name(f"{path.name}.broken"))
        sync_directory(path.parent)
