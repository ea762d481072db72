"""Journal lines for those who only look: raw, unverified, and quick to get at."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ralph.core.codec import json_object
from ralph.core.errors import StateError
from ralph.store.files import open_regular


def read_raw(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whole lines from an offset on, unverified, each with the offset behind it."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            if found := json_object(line):
                yield offset, found


def last_lines(path: Path, size: int = 65536) -> list[dict[str, Any]]:
    """The last lines of a journal, at a cost that does not grow with it; none where it cannot be read."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - size)
            file.seek(start)
            lines = file.read().splitlines(keepends=True)
    except (OSError, StateError):
        return []
    return [found for line in lines[1 if start else 0 :] if (found := json_object(line))]


def timestamp(at: float) -> str:
    """A moment as people and tools read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> float:
    """The moment that a timestamp names."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
