"""Statistics as a person reads them."""

from shortener.stats import Stats

WIDTH = 30


def chart(stats: Stats) -> str:
    """The visits in all, and a bar for each day that had some."""
    head = f"{stats.visits} visit{'' if stats.visits == 1 else 's'}"
    most = max((count for _, count in stats.by_day), default=1)
    bars = [f"{day}  {'#' * max(1, round(WIDTH * count / most))} {count}" for day, count in stats.by_day]
    return "\n".join([head, *bars])
