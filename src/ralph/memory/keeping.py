"""Keeping the memory of a loop in order while it works: the index after its reflections, the patterns at its end."""

import time
from dataclasses import dataclass
from pathlib import Path

from ralph.core.entries import Record
from ralph.core.errors import RalphError
from ralph.core.events import ChecksEnded, RunEnded, TurnEnded
from ralph.core.stream import AgentEvent
from ralph.core.turns import Turn
from ralph.memory.index import entry_of, update_entry
from ralph.memory.patterns import learn

EVERY = 1.0
"""Seconds between two updates of the index: a loop of quick turns does not spend its time on it."""


@dataclass
class LoopMemory:
    """Looks on, and files what was learned. What goes wrong here is never a reason for a run to fail."""

    root: Path
    loop: str
    updated: float = 0.0

    def recorded(self, record: Record) -> None:
        """Something was journaled."""
        match record.entry:
            case RunEnded(outcome=outcome):
                self._update(outcome)
                self._learn()
            case ChecksEnded() | TurnEnded() if time.monotonic() - self.updated > EVERY:
                self._update("running")

    def told(self, turn: Turn, event: AgentEvent) -> None:
        """The agent of a running turn told something: nothing to learn from yet."""

    def _update(self, outcome: str) -> None:
        try:
            if entry := entry_of(self.root, self.loop, outcome):
                update_entry(self.root, entry)
        except (RalphError, OSError):
            return
        self.updated = time.monotonic()

    def _learn(self) -> None:
        try:
            learn(self.root, self.loop)
        except (RalphError, OSError):
            return
