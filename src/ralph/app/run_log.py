"""What happened in a run, line by line: its journal, the progress that its agents report, and what they say and do.

Lines are plain values, because a log also shows lines that Ralph did not write.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralph.documents.agent.events import EventLine, parse_events
from ralph.store.documents import digest
from ralph.store.files import open_regular
from ralph.store.journal import read_raw
from ralph.store.journal_reader import JournalReader
from ralph.store.runs import Project, RunDir

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


class RoutedEvents:
    """The events of a run of hats. Its log also contains what others write into it; only what the journal knows counts."""

    def __init__(self, project: Project, run: RunDir) -> None:
        self.path = project.root / ".ralph" / f"events-{run.id}.jsonl"
        self._name = self.path.relative_to(project.root).as_posix()
        self._journal = JournalReader(run.path / "journal.jsonl")
        self._known: Counter[str] = Counter()
        """The hashes of lines that Ralph wrote and that were not read yet."""
        self._offset = 0

    def read(self) -> tuple[list[EventLine], int]:
        """The events that are new, and how many new lines the journal does not know."""
        new = self._read_lines()
        # Ralph journals a line before it writes it, so the journal is read second.
        records = self._journal.read()
        if not self._journal.doubt:
            for record in records:
                self._known.update(record.lines.get(self._name, ()))
        own = []
        for line in new:
            name = digest(line)
            if self._known[name]:
                self._known[name] -= 1
                own.append(line)
        return parse_events(b"".join(own))[0], len(new) - len(own)

    def _read_lines(self) -> list[bytes]:
        try:
            descriptor = open_regular(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return []
        with os.fdopen(descriptor, "rb") as file:
            file.seek(self._offset)
            lines = [line for line in file if line.endswith(b"\n")]
        self._offset += sum(map(len, lines))
        return [line for line in lines if line.strip()]


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
