"""Which agent does a turn: the first in its order that is not resting, and another where the usual ones failed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

NEVER = math.inf
"""Until when an agent rests that only a person can wake: it is not signed in, or not there."""


@dataclass(frozen=True)
class Roster:
    """The labels of the agents of a run, in the order in which they are preferred."""

    chain: tuple[str, ...]
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    escalation: str = ""
    escalate_after: int = 2

    def pick(self, role: str, failures: int, resting: Mapping[str, float], now: float) -> tuple[str, float]:
        """The agent for the next turn of a role, and when it may begin."""
        order = self.roles.get(role) or self.chain
        if self.escalation and failures >= self.escalate_after:
            order = (self.escalation, *order)
        free = next((label for label in order if resting.get(label, 0.0) <= now), None)
        if free is not None:
            return free, now
        first = min(order, key=lambda label: resting[label])
        return first, resting[first]
