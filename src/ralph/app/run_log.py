"""What happened in a run, line by line: its journal, the progress that its agents report, and what they say and do.

Lines are plain values, because a log also shows lines that Ralph did not write.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralph.store.journal import read_raw
from ralph.store.runs import RunDir

POLL_SECONDS = 0.1
"""How often a run that is followed is read."""


def follow_lines(run: RunDir, *, follow: bool) -> Iterator[list[dict[str, Any]]]:
    """The lines of the journal and of the progress reports; when following, those to come as well, until the run has ended."""
    read = {run.path / "journal.jsonl": 0, run.path / "progress.jsonl": 0}
    while True:
        ending = follow and not run.alive
        lines: list[dict[str, Any]] = []
        for path, offset in read.items():
            if path.exists():
                for behind, line in read_raw(path, offset):
                    read[path] = behind
                    lines.append(line)
        yield sorted(lines, key=lambda line: str(line.get("at", ""))[:23])
        if not follow or ending:
            return
        time.sleep(POLL_SECONDS)


@dataclass
class AgentLog:
    """What the agents of a run say and do, each event once."""

    run: RunDir
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read_turn(self, turn: object) -> Iterator[tuple[int, dict[str, Any]]]:
        """The new events of one turn, each with the number of the turn."""
        paths = (self.run.path / "turns").glob(f"{turn:05d}-*/events.jsonl") if isinstance(turn, int) else ()
        for path in paths:
            yield from self._read(path)

    def read_all(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The new events of all turns."""
        for path in sorted((self.run.path / "turns").glob("*/events.jsonl")):
            yield from self._read(path)

    def _read(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        turn = int(path.parent.name.partition("-")[0])
        for behind, event in read_raw(path, self._offsets.get(path, 0)):
            self._offsets[path] = behind
            yield turn, event
