"""Playing a preset through, turn by turn, in every way that matters: the shortest way to its end, and dead ends."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import NamedTuple

from ralph.documents.hats.definition import COORDINATOR
from ralph.workflows.hats.checking.model import Model
from ralph.workflows.hats.state import RESUME

MOST = 15_000
"""Turns that are looked at before it is left open."""
WIDTHS = (1, 2, 3)
"""How many topics a turn publishes, at most."""
QUEUE = 6
"""Events that wait at most."""
ENOUGH = 4
"""Turns of a hat with a limit that tell all that more would."""


class Turn(NamedTuple):
    """One turn of a way: who had it, on which topic, and what was published; nothing leaves it to the default."""

    who: str
    topic: str
    said: tuple[str, ...]


class State(NamedTuple):
    """What decides how a run goes on, and nothing else."""

    queue: tuple[str, ...]
    seen: frozenset[str] = frozenset()
    turns: tuple[tuple[str, int], ...] = ()
    """The turns of hats that may have only so many."""
    exhausted: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Play:
    """The moves of a preset. `limited` is whether hats run out of turns, `wide` how many topics a turn publishes at most,
    `keen` whether only those that lead on.
    """

    model: Model
    limited: bool = True
    wide: int = 1
    keen: bool = False
    most: int | None = None
    """Turns that a limited hat has at most, whatever its limit."""

    def begin(self) -> State:
        """The state that a run begins with."""
        return State((self.model.start,))

    def ways(self, state: State) -> Iterator[tuple[Turn, State | None]]:
        """Every turn that can be next, with the state after it; None where the run is over."""
        model, topic = self.model, state.queue[0]
        who = model.taker(topic, state.exhausted)
        said, required = model.says(who, topic), frozenset(model.settings.required)
        topics = [one for one in said if one not in model.promises and (one in model.useful or not self.keen)]
        for size in (*range(1, self.wide + 1), 0):
            for chosen in permutations(topics, size):
                # What waits for the checks comes after the rest, and not in time for a promise of the same turn.
                sure = tuple(one for one in chosen if not model.refused(one))
                if model.settings.completion in said and required <= model.passed(state.seen, who, sure):
                    yield Turn(who, topic, (*chosen, model.settings.completion)), None
                if not chosen and model.settings.cancellation in said:
                    yield Turn(who, topic, (model.settings.cancellation,)), None
                added = (*sure, *(one for one in chosen if one not in sure)) or (model.default(who),)
                seen = model.passed(state.seen, who, added, default=not chosen)
                if len(state.queue) + len(added) <= QUEUE + 1:
                    yield Turn(who, topic, chosen), self._after(state, who, added, seen)

    def _after(self, state: State, who: str, added: tuple[str, ...], seen: frozenset[str]) -> State:
        """The state after a turn, with hats that have had all their turns relieved."""
        queue, turns, exhausted = (*state.queue[1:], *added), dict(state.turns), state.exhausted
        hat = self.model.settings.hat(who)
        if self.limited and hat and hat.max_activations:
            turns[who] = turns.get(who, 0) + 1
        while self.limited and (hat := self.model.settings.hat(self.model.taker(queue[0], exhausted))):
            limit = min(hat.max_activations or 0, self.most or hat.max_activations or 0)
            if not limit or turns.get(hat.id, 0) < limit:
                break
            exhausted |= {hat.id}
            queue = (*queue, f"{hat.id}.exhausted")
        return State(queue, seen, tuple(sorted(turns.items())), exhausted)


@dataclass(frozen=True)
class Search:
    """What came of looking for the shortest way."""

    way: tuple[Turn, ...] = ()
    """Empty where none was found."""
    least: int = 0
    """No way has fewer turns than this."""
    open: bool = False
    """Whether there was more to look at than there was time for."""


def shortest(model: Model, *, limited: bool = True) -> Search:
    """The least turns in which the run can complete."""
    best = Search()
    for wide in WIDTHS if model.completes else ():
        found = _search(Play(model, limited, wide, keen=True), len(best.way) or None)
        way = found.way or best.way
        least = min(one for one in (len(way), found.least if found.open else len(way)) if one) if way else 0
        best = Search(way, min(least, best.least) if best.open else least, best.open or found.open)
    # Hats that gather take several events in one turn, which is left out here: there may be a shorter way.
    return replace(best, least=0, open=True) if any(hat.gathers for hat in model.settings.hats) else best


def _search(play: Play, below: int | None) -> Search:
    """The shortest way with fewer turns than that, by looking at all shorter ones first."""
    begin = play.begin()
    came: dict[State, tuple[State, Turn] | None] = {begin: None}
    left, looked = deque([(begin, 1)]), 0
    while left:
        state, depth = left.popleft()
        if below is not None and depth >= below:
            break
        for turn, after in play.ways(state):
            if after is None and turn.said[-1] == play.model.settings.completion:
                return Search((*_way(came, state), turn), depth)
            if (looked := looked + 1) > MOST:
                return Search((), depth, open=True)
            if after and after not in came:
                came[after] = (state, turn)
                left.append((after, depth + 1))
    return Search()


def _way(came: dict[State, tuple[State, Turn] | None], state: State) -> list[Turn]:
    turns = []
    while step := came[state]:
        state = step[0]
        turns.append(step[1])
    return turns[::-1]


def starved(model: Model) -> frozenset[str]:
    """Hats after whose last turn the run can no longer end, though it could before."""
    play = Play(model, most=ENOUGH)
    before: dict[State, set[State]] = {play.begin(): set()}
    left, alive = [play.begin()], []
    while left:
        state = left.pop()
        for _, after in play.ways(state):
            if after is None:
                alive.append(state)
                continue
            if after not in before:
                left.append(after)
            before.setdefault(after, set()).add(state)
        if len(before) > MOST // 3:
            return frozenset()
    living = set(alive)
    while alive:
        for one in before[alive.pop()] - living:
            living.add(one)
            alive.append(one)
    dead = [state for state in before if len(state.exhausted) == 1 and state not in living]
    return frozenset(hat for state in dead if set(state.queue) & model.hopeful for hat in state.exhausted)


def by_defaults(model: Model) -> list[str]:
    """The hats that go round for ever where nobody publishes anything; empty where it comes to the coordinator."""
    way: list[str] = []
    topic = model.start
    while topic not in way:
        way.append(topic)
        who = model.taker(topic)
        if who == COORDINATOR or model.default(who) == RESUME:
            return []
        topic = model.default(who)
    circle = [model.taker(one) for one in way[way.index(topic) :]]
    first = next(circle.index(hat.id) for hat in model.settings.hats if hat.id in circle)
    return circle[first:] + circle[:first]
