"""The retry ladder: when a turn that failed is tried again, and when no more."""

from dataclasses import dataclass

from ralph.core.turns import TurnEnd, TurnResult

LADDER = (0.0, 30.0, 60.0, 60.0)
"""Seconds before the second, third, fourth and fifth try."""
OVERLOADS = (5.0, 15.0, 45.0, 120.0, 300.0, 300.0, 300.0, 300.0)
"""Seconds to wait while the provider or the network is overloaded, give or take a quarter."""
LIMIT_WAIT = 300.0
"""Seconds until the next try where an agent ran into its provider's limit and did not say when it is over."""
MOST_INTERRUPTIONS = 5


@dataclass(frozen=True)
class Retry:
    """Another try."""

    at: float
    reason: str


def retry_after(
    result: TurnResult,
    *,
    attempt: int,
    interruptions: int,
    overloads: int,
    chance: float,
    now: float,
    most: int | None = None,
) -> Retry | None:
    """The next try after such an end, or None when what came of the turn has to do; `chance` is between 0 and 1.

    `most` is how often a turn that failed is tried again at all.
    """
    rungs = len(LADDER) if most is None else min(most, len(LADDER))
    match result.end:
        case TurnEnd.LIMITED:
            known = result.resets_at is not None and result.resets_at > now
            return Retry(result.resets_at or 0.0 if known else now + LIMIT_WAIT, "waiting for the provider's limit")
        case TurnEnd.OVERLOADED if overloads < len(OVERLOADS):
            wait = OVERLOADS[overloads] * (0.75 + chance / 2)
            return Retry(now + wait, result.error or "the provider is overloaded")
        case TurnEnd.INTERRUPTED if interruptions < MOST_INTERRUPTIONS:
            return Retry(now, "the turn was interrupted")
        case TurnEnd.FAILED | TurnEnd.IDLE | TurnEnd.INTERRUPTED if attempt <= rungs:
            return Retry(now + LADDER[attempt - 1], result.error or f"the turn ended as {result.end}")
        case _:
            return None
