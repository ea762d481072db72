"""`index.yaml`: one entry for each loop that left reflections, the newest first."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ralph.core.codec import from_plain
from ralph.core.errors import StateError
from ralph.documents.reflection import HOME, SCHEMA, iso, lesson
from ralph.memory import yaml_store
from ralph.memory.reflections import Reflections

MOST = 500


@dataclass(frozen=True)
class Entry:
    """What a loop came to, at a glance."""

    loop_id: str
    task: str = ""
    task_type: str = ""
    outcome: str = ""
    iterations: int = 0
    reflections: int = 0
    last_lesson: str = ""
    updated: str = ""
    """UTC, as `iso` writes it."""


def read_index(root: Path) -> list[Entry]:
    """The entries, the newest first; a StateError where the file is broken or another's."""
    path = _path(root)
    data = yaml_store.read(path)
    found = from_plain(tuple[Entry, ...], data.get("loops") or [], f"{path}: loops")
    return list(found)


def update_entry(root: Path, entry: Entry) -> None:
    """Put a loop's entry into the index; one that is missing, broken or another's is made anew from the reflections."""
    path = _path(root)
    with yaml_store.alone(root):
        try:
            entries = read_index(root) if path.exists() else rebuilt(root)
        except StateError:
            yaml_store.set_aside(path)
            entries = rebuilt(root)
        kept = _newest([entry, *(other for other in entries if other.loop_id != entry.loop_id)])
        loops = [dict(vars(one)) for one in kept]
        yaml_store.write(path, {"schema": SCHEMA, "updated": iso(time.time()), "loops": loops})


def entry_of(root: Path, loop: str, outcome: str = "") -> Entry | None:
    """The entry that a loop's own files give; the outcome is that of its last iteration, unless the run's is known."""
    reflections = Reflections(root)
    found = reflections.of(loop, 1)
    if not found:
        return None
    last, count = found[-1], len(reflections.iterations(loop))
    ended = outcome or last.outcome
    return Entry(loop, last.task[:200], last.task_type, ended, last.iteration, count, lesson(last, 300), iso(last.at))


def rebuilt(root: Path) -> list[Entry]:
    """The entries as the reflection files give them."""
    loops = Reflections(root).loops()[:MOST]
    return _newest(entry for loop in loops if (entry := entry_of(root, loop)))


def _newest(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.updated, reverse=True)[:MOST]


def _path(root: Path) -> Path:
    return root / HOME / "index.yaml"
