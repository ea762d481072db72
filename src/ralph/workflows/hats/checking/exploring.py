"""Playing a preset through, turn by turn, in every way that matters: the shortest way to its end, and dead ends."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from ralph.documents.hats.definition import COORDINATOR
from ralph.workflows.hats.checking.model import Model
from ralph.workflows.hats.state import RESUME

STATES = 20_000
"""States that are looked at before it is left open."""
QUEUE = 6
"""Events that wait at most."""
ENOUGH = 4
"""Turns of a hat with a limit that tell all that more would."""


@dataclass(frozen=True)
class Turn:
    """One turn of a way: who had it, on which topic, and what was published; nothing leaves it to the default."""

    who: str
    topic: str
    said: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """What decides how a run goes on, and nothing else."""

    queue: tuple[str, ...]
    seen: frozenset[str] = frozenset()
    turns: tuple[tuple[str, int], ...] = ()
    """The turns of hats that may have only so many."""
    exhausted: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Play:
    """The moves of a preset. `limited` is whether hats run out of turns, `wide` how many topics a turn publishes at most."""

    model: Model
    limited: bool = True
    wide: int = 1
    most: int | None = None
    """Turns that a limited hat has at most, whatever its limit."""

    def begin(self) -> State:
        """The state that a run begins with."""
        return State((self.model.start,))

    def ways(self, state: State) -> Iterator[tuple[Turn, State | None]]:
        """Every turn that can be next, with the state after it; None where the run is over."""
        model, topic = self.model, state.queue[0]
        who = model.taker(topic, state.exhausted)
        said = model.says(who, topic)
        topics = [one for one in said if one not in model.promises]
        for size in (*range(1, self.wide + 1), 0):
            for chosen in permutations(topics, size):
                claimed = {one for one in chosen if model.refused(one)}
                seen = state.seen | (set(chosen) & set(model.settings.required))
                if model.settings.completion in said and set(model.settings.required) <= seen - claimed:
                    yield Turn(who, topic, (*chosen, model.settings.completion)), None
                if not chosen and model.settings.cancellation in said:
                    yield Turn(who, topic, (model.settings.cancellation,)), None
                added = chosen or (model.default(who),)
                if len(state.queue) + len(added) <= QUEUE + 1:
                    yield Turn(who, topic, chosen), self._after(state, who, added, frozenset(seen))

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


def shortest(model: Model, *, limited: bool = True) -> list[Turn] | None:
    """The least turns in which the run can complete; None where none was found."""
    for wide in (1, 2, 3):
        if way := _shortest(Play(model, limited, wide)):
            return way
    return None


def _shortest(play: Play) -> list[Turn] | None:
    begin = play.begin()
    came: dict[State, tuple[State, Turn] | None] = {begin: None}
    left = deque([begin])
    while left and len(came) < STATES:
        state = left.popleft()
        for turn, after in play.ways(state):
            if after is None and turn.said[-1] == play.model.settings.completion:
                return [*_way(came, state), turn]
            if after and after not in came:
                came[after] = (state, turn)
                left.append(after)
    return None


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
        if len(before) > STATES:
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
    return [model.taker(one) for one in way[way.index(topic) :]]
