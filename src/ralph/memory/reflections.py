"""The reflections on disk: `.aiwg/ralph/reflections/loops/<loop>/iteration-<n>.yaml`."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ralph.core.errors import StateError
from ralph.core.ids import is_run_id, valid_run_id
from ralph.documents.reflection import HOME, Reflection, parse
from ralph.documents.session.yaml_lines import SIZE_LIMIT
from ralph.memory.yaml_store import alone
from ralph.store.files import read_limited, storage, sync_directory

_NAME = re.compile(r"iteration-(0|[1-9][0-9]{0,8})\.yaml")


class Reflections:
    """All reflections of a project; a file that cannot be read is skipped, and told of in `faults`."""

    def __init__(self, root: Path) -> None:
        self._loops = root / HOME / "loops"
        self.faults: list[str] = []

    def loops(self) -> list[str]:
        """The loops that have reflections, the newest first: their ids begin with the time."""
        names = [name for name in self._names(self._loops) if is_run_id(name)]
        return sorted((name for name in names if not (self._loops / name).is_symlink()), reverse=True)

    def iterations(self, loop: str) -> list[int]:
        """The iterations of a loop that have one, in order."""
        names = self._names(self._loops / valid_run_id(loop))
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))

    def of(self, loop: str, last: int | None = None) -> list[Reflection]:
        """The reflections of a loop in their order, or only the last so many."""
        return [found for path in self._paths(loop, last) if (found := self._parsed(path, self._text(path)))]

    def latest(self) -> Reflection | None:
        """The last reflection of the newest loop that has a readable one."""
        return next((found[-1] for loop in self.loops() if (found := self.of(loop, 1))), None)

    def newest(
        self, most: int, per_loop: int, wanted: Callable[[str], bool] = lambda text: True
    ) -> Iterator[list[Reflection]]:
        """Loop after loop, the newest first, until so many files were looked at: the reflections whose text is wanted,
        and, where there are any, the last of the loop, which tells how it went.
        """
        for loop in self.loops():
            paths = self._paths(loop, min(most, per_loop))
            texts = [self._text(path) for path in paths]
            chosen = [number for number, text in enumerate(texts) if text and wanted(text)]
            if chosen and chosen[-1] != len(paths) - 1:
                chosen.append(len(paths) - 1)
            yield [found for number in chosen if (found := self._parsed(paths[number], texts[number]))]
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

    def _parsed(self, path: Path, text: str) -> Reflection | None:
        """The reflection in a text that was read; the directory says whose it is."""
        try:
            return replace(parse(text, str(path)), loop=path.parent.name) if text else None
        except StateError as error:
            self.faults.append(f"{error.where}: {error.what}")
            return None


def archive(root: Path, stamp: str) -> Path | None:
    """Move loops and patterns out of use, the index excepted; where to, or None where there was nothing."""
    home = root / HOME
    target = home / "archive" / stamp
    if not home.exists():
        return None
    with alone(root):
        present = [home / name for name in ("loops", "patterns") if (home / name).exists()]
        if not present:
            return None
        with storage(target):
            target.mkdir(parents=True)
            for path in present:
                os.rename(path, target / path.name)
            sync_directory(target)
            sync_directory(home)
    return target
