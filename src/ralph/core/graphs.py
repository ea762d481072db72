"""Graphs of tasks: their order, their waves, and what is wrong with one."""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from ralph.core.errors import UsageError

_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which `task-2` comes before `task-10`."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in _DIGITS.split(name) if part]


@lru_cache(maxsize=16)
def heights(edges: tuple[tuple[str, tuple[str, ...]], ...]) -> Mapping[str, int]:
    """How many tasks stand on each at most, one upon the other; `edges` are the tasks with what they depend on."""
    above: dict[str, list[str]] = {name: [] for name, _ in edges}
    for name, needed in edges:
        for one in needed:
            above.setdefault(one, []).append(name)
    found: dict[str, int] = {}
    for name in TopologicalSorter(above).static_order():
        found[name] = 1 + max((found[one] for one in above[name]), default=0)
    return found


def waves(depends_on: Mapping[str, Collection[str]], where: str = "") -> list[list[str]]:
    """The tasks level by level, each after all that it depends on; in natural order within a level.

    An unknown id or a cycle is an error that names it.
    """
    for name, needed in depends_on.items():
        if missing := sorted(set(needed) - depends_on.keys(), key=natural):
            raise UsageError(
                f"{name} depends on {', '.join(missing)}, which does not exist",
                where=where,
                todo="correct `depends_on`, or add the task",
            )
    sorter = TopologicalSorter(depends_on)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " -> ".join(str(name) for name in reversed(error.args[1]))
        raise UsageError(
            f"the tasks wait for each other: {cycle}", where=where, todo="take one of these dependencies out"
        ) from None
    levels = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=natural)
        levels.append(ready)
        sorter.done(*ready)
    return levels
