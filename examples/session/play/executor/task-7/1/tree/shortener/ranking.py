"""The links that are used most."""

from collections.abc import Mapping


def ranking(visits: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """The codes with the most visits, the busiest first; of equal ones, the first by code."""
    used = [(code, count) for code, count in visits.items() if count]
    return sorted(used, key=lambda one: (-one[1], one[0]))[:most]
