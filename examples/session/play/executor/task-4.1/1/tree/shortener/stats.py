"""What the visits of a link tell."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime


@dataclass(frozen=True)
class Stats:
    """The visits of one link."""

    visits: int
    last: date | None
    by_day: tuple[tuple[date, int], ...]
    """The days with visits, the first day first."""


def stats_of(visits: Sequence[datetime]) -> Stats:
    """The visits counted, in all and by day."""
    days = Counter(at.date() for at in visits)
    return Stats(len(visits), max(days, default=None), tuple(sorted(days.items())))
