"""Journal lines for those who only look: raw, unverified, and quick to get at."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def read_raw(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whole lines from an offset on, unverified, each with the offset behind it."""
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                yield offset, json.loads(line)
            except ValueError:
                continue


def last_lines(path: Path, size: int = 65536) -> list[dict[str, Any]]:
    """The last lines of a journal, at a cost that does not grow with it."""
    try:
        start = max(0, path.stat().st_size - size)
    except FileNotFoundError:
        return []
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read().splitlines(keepends=True)
    found = []
    for line in lines[1 if start else 0 :]:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def timestamp(at: float) -> str:
    """A moment as people and tools read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> float:
    """The moment that a timestamp names."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
