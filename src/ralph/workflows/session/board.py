"""The board: where every task of a session stands, followed step by step.

What a look at it costs does not grow with the number of tasks; following a whole session is linear in tasks and edges.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum, auto

from ralph.core.graphs import heights, natural, waves
from ralph.documents.session.markers import Marker
from ralph.documents.session.tasks import Task


class Condition(Enum):
    """What a task is to the others."""

    WAITS = auto()
    """It may start when all that it depends on is met."""
    ACTIVE = auto()
    DONE = auto()
    SPLIT = auto()
    """Others took its place: it is met when they are."""
    DEAD = auto()
    """It will not be done in this iteration."""


class Board:
    """Tasks in the order in which they may start."""

    def __init__(self, tasks: Mapping[str, Task], replaced: Mapping[str, tuple[str, ...]]) -> None:
        """An error that names it where tasks wait for each other, or for one that does not exist."""
        needs = {name: task.needs for name, task in tasks.items()}
        self.tasks = tasks
        self._replaced = {old: new for old, new in replaced.items() if new and tasks.keys() >= {*new}}
        in_order = {name: self._instead(needed) for name, needed in needs.items()}
        self.waves = waves(in_order, "tasks/")
        self._level = {name: number for number, names in enumerate(self.waves) for name in names}
        high = heights(tuple(in_order.items()))
        self._order = sorted(tasks, key=lambda name: (-high[name], natural(name)))
        self._rank = {name: rank for rank, name in enumerate(self._order)}
        self._above: dict[str, list[str]] = {name: [] for name in tasks}
        for name, needed in needs.items():
            for one in needed:
                self._above[one].append(name)
        self._parents = {child: parent for parent, children in self._replaced.items() for child in children}
        self._unmet = {name: len(needed) for name, needed in needs.items()}
        self._seen: dict[str, tuple[Marker, Condition]] = {}
        self._open: list[int] = []
        self._met: set[str] = set()
        self._dead: set[str] = set()
        self._over: set[str] = set()
        self._left = [len(names) for names in self.waves]
        self._wave = 0
        self.blocked: dict[str, str] = {}
        """The dead task that keeps another from ever starting."""
        self.active: set[str] = set()
        self.markers: Counter[Marker] = Counter()

    def _instead(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        """What stands for what is needed: the tasks into which one was split take its place."""
        return tuple(dict.fromkeys(one for name in needed for one in self._replaced.get(name, (name,))))

    def put(self, name: str, marker: Marker, condition: Condition) -> bool:
        """Note where a task stands now; False where what was over is not, and all must be looked at anew."""
        if name not in self.tasks or self._seen.get(name) == (marker, condition):
            return True
        if name in self._seen:
            self.markers[self._seen[name][0]] -= 1
        self.markers[marker] += 1
        self._seen[name] = (marker, condition)
        (self.active.add if condition is Condition.ACTIVE else self.active.discard)(name)
        self._place(name)
        return self._settle(name)

    def startable(self) -> Iterator[str]:
        """The tasks that wait for nothing: first those on which most others stand, else in natural order."""
        return (self._order[rank] for rank in self._open)

    def is_in_wave(self, name: str) -> bool:
        """Whether a task is in the lowest wave that is not over."""
        return self._level[name] == self._wave

    @property
    def wave(self) -> int | None:
        """The number of the lowest wave with a task that is not over."""
        while self._wave < len(self._left) and not self._left[self._wave]:
            self._wave += 1
        return self._wave + 1 if self._wave < len(self._left) else None

    def _settle(self, name: str) -> bool:
        """What follows for others from where a task stands."""
        condition = self._seen[name][1]
        children = self._replaced.get(name, ()) if condition is Condition.SPLIT else ()
        met = condition is Condition.DONE or (bool(children) and self._met.issuperset(children))
        dead = condition is Condition.DEAD or not self._dead.isdisjoint(children)
        if (name in self._met and not met) or (name in self._dead and not dead):
            return False
        if children:
            self._finish(name)
        if met and name not in self._met:
            self._met.add(name)
            self._finish(name)
            for other in self._above[name]:
                self._unmet[other] -= 1
                self._place(other)
        if dead and name not in self._dead:
            self._dead.add(name)
            self._finish(name)
            self._block(name)
        parent = self._parents.get(name)
        return self._settle(parent) if parent in self._seen and (met or dead) else True

    def _block(self, dead: str) -> None:
        """Whatever stands on a dead task is blocked by it."""
        ahead = self._standing_on(dead)
        while ahead:
            name = ahead.pop()
            if name not in self.blocked:
                self.blocked[name] = dead
                self._finish(name)
                self._place(name)
                ahead += self._standing_on(name)

    def _standing_on(self, name: str) -> list[str]:
        """The tasks that wait for one, or for the one that it was split from."""
        return [*self._above[name], *self._above.get(self._parents.get(name, ""), ())]

    def _finish(self, name: str) -> None:
        if name not in self._over:
            self._over.add(name)
            self._left[self._level[name]] -= 1

    def _place(self, name: str) -> None:
        """Whether a task is among those that can start."""
        waits = name in self._seen and self._seen[name][1] is Condition.WAITS
        can = waits and not self._unmet[name] and name not in self.blocked
        rank = self._rank[name]
        at = bisect_left(self._open, rank)
        there = at < len(self._open) and self._open[at] == rank
        if can and not there:
            insort(self._open, rank)
        elif there and not can:
            del self._open[at]
