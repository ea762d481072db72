"""Keeping the memory of a loop in order while it works: the index after its reflections, the patterns at its end."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ralph.core.entries import Record
from ralph.core.errors import RalphError
from ralph.core.events import ChecksEnded, RunEnded, TurnEnded
from ralph.engine.ports import Observer
from ralph.memory.index import entry_of, update_entry
from ralph.memory.patterns import learn

EVERY = 1.0
"""Seconds between two updates of the index: a loop of quick turns does not spend its time on it."""


@dataclass
class LoopMemory(Observer):
    """Looks on, and files what was learned. What goes wrong here is never a reason for a run to fail."""

    root: Path
    loop: str
    updated: float = 0.0

    def recorded(self, record: Record) -> None:
        match record.entry:
            case RunEnded(outcome=outcome):
                self._update(outcome)
                with suppress(RalphError, OSError):
                    learn(self.root, self.loop)
            case ChecksEnded() | TurnEnded() if time.monotonic() - self.updated > EVERY:
                self._update("running")

    def _update(self, outcome: str) -> None:
        with suppress(RalphError, OSError):
            if entry := entry_of(self.root, self.loop, outcome):
                update_entry(self.root, entry)
            self.updated = time.monotonic()
