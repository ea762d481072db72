"""The graph of a session's tasks: which can start, which are blocked, and which wave is in progress.

A graph is a value: `update` returns another one. What only depends on the definitions of the tasks is shared between
them, so following a whole session costs little more than its tasks and edges.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from enum import Enum, auto

from ralph.documents.session.progress import Marker
from ralph.documents.session.tasks import Task, compute_longest_chains, make_natural_key, order_waves


class Condition(Enum):
    """Whether a task can start, and whether tasks that depend on it can."""

    WAITS = auto()
    """It starts when all tasks that it depends on are done."""
    ACTIVE = auto()
    DONE = auto()
    SPLIT = auto()
    """Other tasks replaced it. It is done when they are."""
    DEAD = auto()
    """It will not be done in this iteration."""


class TaskGraph:
    """The tasks of a session in the order in which they may start, with the condition of each."""

    def __init__(self, tasks: Mapping[str, Task], replaced: Mapping[str, tuple[str, ...]]) -> None:
        """Raise an error that names the tasks if they wait for each other, or for one that does not exist."""
        self.tasks = tasks
        self._replaced = {old: new for old, new in replaced.items() if new and tasks.keys() >= {*new}}
        in_order = {name: self._expand(task.needs) for name, task in tasks.items()}
        self.waves = order_waves(in_order, "tasks/")
        self._level = {name: number for number, names in enumerate(self.waves) for name in names}
        height = compute_longest_chains(tuple(in_order.items()))
        self._order = sorted(tasks, key=lambda name: (-height[name], make_natural_key(name)))
        self._rank = {name: rank for rank, name in enumerate(self._order)}
        self._dependents: dict[str, list[str]] = {name: [] for name in tasks}
        for name, task in tasks.items():
            for needed in task.needs:
                self._dependents[needed].append(name)
        self._parents = {child: parent for parent, children in self._replaced.items() for child in children}

        # The attributes below change during the session; `update` copies all of them.
        self._unsatisfied_needs = {name: len(task.needs) for name, task in tasks.items()}
        self._conditions: dict[str, tuple[Marker, Condition]] = {}
        self._startable_ranks: list[int] = []
        """The ranks of the tasks that can start, in order."""
        self._satisfied: set[str] = set()
        self._dead: set[str] = set()
        self._finished: set[str] = set()
        self._unfinished_per_wave = [len(names) for names in self.waves]
        """The number of tasks of each wave that are not finished."""
        self._wave = 0
        self.blocked: dict[str, str] = {}
        """The dead task that keeps another from ever starting."""
        self.active: set[str] = set()
        self.markers: Counter[Marker] = Counter()

    def _expand(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        """What is needed, with the parts of a task that was split in its place."""
        found: dict[str, None] = {}
        for name in needed:
            found |= dict.fromkeys(self._replaced.get(name, (name,)))
        return tuple(found)

    def update(self, changes: Mapping[str, tuple[Marker, Condition]]) -> "TaskGraph | None":
        """The graph with these tasks changed; None if a finished task is open again, so that the graph must be rebuilt."""
        after = copy(self)
        after._unsatisfied_needs = self._unsatisfied_needs.copy()
        after._conditions = self._conditions.copy()
        after._startable_ranks = self._startable_ranks.copy()
        after._satisfied, after._dead, after._finished = (
            self._satisfied.copy(),
            self._dead.copy(),
            self._finished.copy(),
        )
        after._unfinished_per_wave = self._unfinished_per_wave.copy()
        after.blocked, after.active, after.markers = self.blocked.copy(), self.active.copy(), self.markers.copy()
        for name, (marker, condition) in changes.items():
            if name in self.tasks and not after._set_condition(name, marker, condition):
                return None
        while after._wave < len(after._unfinished_per_wave) and not after._unfinished_per_wave[after._wave]:
            after._wave += 1
        return after

    def startable(self) -> Iterator[str]:
        """The tasks that can start. Those with the longest chain of dependents come first, then in natural order."""
        return (self._order[rank] for rank in self._startable_ranks)

    def is_in_wave(self, name: str) -> bool:
        """Whether a task is in the lowest wave that is not finished."""
        return self._level[name] == self._wave

    @property
    def wave(self) -> int | None:
        """The number of the lowest wave with a task that is not finished."""
        return self._wave + 1 if self._wave < len(self._unfinished_per_wave) else None

    def _set_condition(self, name: str, marker: Marker, condition: Condition) -> bool:
        """Store the condition of a task; False if it was finished and is open again."""
        if self._conditions.get(name) == (marker, condition):
            return True
        if name in self._conditions:
            self.markers[self._conditions[name][0]] -= 1
        self.markers[marker] += 1
        self._conditions[name] = (marker, condition)
        if condition is Condition.ACTIVE:
            self.active.add(name)
        else:
            self.active.discard(name)
        self._update_startable(name)
        return self._propagate(name)

    def _propagate(self, name: str) -> bool:
        """Update the tasks that depend on a task; False if it was finished and is open again."""
        condition = self._conditions[name][1]
        children = self._replaced.get(name, ()) if condition is Condition.SPLIT else ()
        is_satisfied = condition is Condition.DONE or (bool(children) and self._satisfied.issuperset(children))
        is_dead = condition is Condition.DEAD or not self._dead.isdisjoint(children)
        if (name in self._satisfied and not is_satisfied) or (name in self._dead and not is_dead):
            return False
        if children:
            self._finish(name)
        if is_satisfied and name not in self._satisfied:
            self._satisfied.add(name)
            self._finish(name)
            for other in self._dependents[name]:
                self._unsatisfied_needs[other] -= 1
                self._update_startable(other)
        if is_dead and name not in self._dead:
            self._dead.add(name)
            self._finish(name)
            self._block(name)
        parent = self._parents.get(name)
        if parent in self._conditions and (is_satisfied or is_dead):
            return self._propagate(parent)
        return True

    def _block(self, dead: str) -> None:
        """Store which tasks a dead task blocks."""
        pending = self._list_dependents(dead)
        while pending:
            name = pending.pop()
            if name not in self.blocked:
                self.blocked[name] = dead
                self._finish(name)
                self._update_startable(name)
                pending += self._list_dependents(name)

    def _list_dependents(self, name: str) -> list[str]:
        """The tasks that wait for one, or for the one that it was split from."""
        return [*self._dependents[name], *self._dependents.get(self._parents.get(name, ""), ())]

    def _finish(self, name: str) -> None:
        if name not in self._finished:
            self._finished.add(name)
            self._unfinished_per_wave[self._level[name]] -= 1

    def _update_startable(self, name: str) -> None:
        """Add a task to those that can start, or remove it from them."""
        waits = name in self._conditions and self._conditions[name][1] is Condition.WAITS
        can_start = waits and not self._unsatisfied_needs[name] and name not in self.blocked
        rank = self._rank[name]
        index = bisect_left(self._startable_ranks, rank)
        is_listed = index < len(self._startable_ranks) and self._startable_ranks[index] == rank
        if can_start and not is_listed:
            insort(self._startable_ranks, rank)
        elif is_listed and not can_start:
            del self._startable_ranks[index]
