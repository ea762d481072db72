"""Whether a run can be done: the shortest route to the end, the promise, the gates before it, and limits below that route."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import NamedTuple

from ralph.core.limits import Limits
from ralph.core.prompt import count_tokens
from ralph.core.text import count
from ralph.documents.agent.events import find_topic_fault, topic_matches
from ralph.documents.hats.definition import COORDINATOR
from ralph.documents.hats.reading import Path
from ralph.workflows.hats.preset_model import Model, PresetFinding, make_error, make_warning, suggest
from ralph.workflows.hats.state import TASK_RESUME

MOST = 15_000
"""Turns that are looked at before it is left open."""
WIDTHS = (1, 2, 3)
"""How many topics a turn publishes, at most."""
QUEUE = 6
"""Events that wait at most."""
ENOUGH = 4
"""Turns of a hat with a limit that tell all that more would."""


class SearchTurn(NamedTuple):
    """One turn of a route: who had it, on which topic, and what was published; nothing leaves it to the default."""

    who: str
    topic: str
    said: tuple[str, ...]


class SearchState(NamedTuple):
    """What decides how a run continues, and nothing else."""

    queue: tuple[str, ...]
    seen: frozenset[str] = frozenset()
    turns: tuple[tuple[str, int], ...] = ()
    """The turns of hats whose number of turns is limited."""
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

    def begin(self) -> SearchState:
        """The state that a run begins with."""
        return SearchState((self.model.start,))

    def list_next_states(self, state: SearchState) -> Iterator[tuple[SearchTurn, SearchState | None]]:
        """Every turn that can be next, with the state after it; None if the run is over."""
        model, topic = self.model, state.queue[0]
        who = model.find_receiver(topic, state.exhausted)
        said, required = model.says(who, topic), frozenset(model.settings.required)
        topics = [one for one in said if one not in model.promises and (one in model.useful or not self.keen)]
        for size in (*range(1, self.wide + 1), 0):
            for chosen in permutations(topics, size):
                # What waits for the checks comes after the rest, and not in time for a promise of the same turn.
                sure = tuple(one for one in chosen if not model.substitute_for(one))
                may_promise = model.settings.completion in said and not model.contradicts_promise(who, chosen)
                if may_promise and required <= model.find_passed(state.seen, who, sure):
                    yield SearchTurn(who, topic, (*chosen, model.settings.completion)), None
                if not chosen and model.settings.cancellation in said:
                    yield SearchTurn(who, topic, (model.settings.cancellation,)), None
                added = (*sure, *(one for one in chosen if one not in sure)) or (model.default(who),)
                seen = model.find_passed(state.seen, who, added, by_engine=not chosen)
                if len(state.queue) + len(added) <= QUEUE + 1:
                    yield SearchTurn(who, topic, chosen), self._after(state, who, added, seen)

    def _after(self, state: SearchState, who: str, added: tuple[str, ...], seen: frozenset[str]) -> SearchState:
        """The state after a turn, with hats that have had all their turns relieved."""
        queue, turns, exhausted = (*state.queue[1:], *added), dict(state.turns), state.exhausted
        hat = self.model.settings.hat(who)
        if self.limited and hat and hat.max_activations:
            turns[who] = turns.get(who, 0) + 1
        while self.limited and (hat := self.model.settings.hat(self.model.find_receiver(queue[0], exhausted))):
            limit = min(hat.max_activations or 0, self.most or hat.max_activations or 0)
            if not limit or turns.get(hat.id, 0) < limit:
                break
            exhausted |= {hat.id}
            queue = (*queue, f"{hat.id}.exhausted")
        return SearchState(queue, seen, tuple(sorted(turns.items())), exhausted)


@dataclass(frozen=True)
class Search:
    """The result of looking for the shortest route."""

    route: tuple[SearchTurn, ...] = ()
    """Empty if none was found."""
    least: int = 0
    """No route has fewer turns than this."""
    open: bool = False
    """Whether there was more to look at than there was time for."""


def find_shortest_route(model: Model, *, limited: bool = True) -> Search:
    """The least turns in which the run can complete."""
    best = Search()
    for wide in WIDTHS if model.completes else ():
        found = _search(Play(model, limited, wide, keen=True), len(best.route) or None)
        route = found.route or best.route
        least = len(route)
        if route and found.open and found.least:
            least = min(least, found.least)
        best = Search(route, min(least, best.least) if best.open else least, best.open or found.open)
    # Hats that gather take several events in one turn, which is left out here: there may be a shorter route.
    return replace(best, least=0, open=True) if any(hat.gathers for hat in model.settings.hats) else best


def _search(play: Play, below: int | None) -> Search:
    """The shortest route with fewer turns than that, by looking at all shorter ones first."""
    begin = play.begin()
    came: dict[SearchState, tuple[SearchState, SearchTurn] | None] = {begin: None}
    left, looked = deque([(begin, 1)]), 0
    while left:
        state, depth = left.popleft()
        if below is not None and depth >= below:
            break
        for turn, after in play.list_next_states(state):
            if after is None and turn.said[-1] == play.model.settings.completion:
                return Search((*_trace_route(came, state), turn), depth)
            if (looked := looked + 1) > MOST:
                return Search((), depth, open=True)
            if after and after not in came:
                came[after] = (state, turn)
                left.append((after, depth + 1))
    return Search()


def _trace_route(
    came: dict[SearchState, tuple[SearchState, SearchTurn] | None], state: SearchState
) -> list[SearchTurn]:
    turns = []
    while step := came[state]:
        state = step[0]
        turns.append(step[1])
    return turns[::-1]


def find_starved_hats(model: Model) -> frozenset[str]:
    """Hats after whose last turn the run can no longer end, though it could before."""
    play = Play(model, most=ENOUGH)
    before: dict[SearchState, set[SearchState]] = {play.begin(): set()}
    left, alive = [play.begin()], []
    while left:
        state = left.pop()
        for _, after in play.list_next_states(state):
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


def find_default_cycle(model: Model) -> list[str]:
    """The hats that repeat forever if no hat publishes anything; empty if it comes to the coordinator."""
    route: list[str] = []
    topic = model.start
    while topic not in route:
        route.append(topic)
        who = model.find_receiver(topic)
        if who == COORDINATOR or model.default(who) == TASK_RESUME:
            return []
        topic = model.default(who)
    circle = [model.find_receiver(one) for one in route[route.index(topic) :]]
    first = next(circle.index(hat.id) for hat in model.settings.hats if hat.id in circle)
    return circle[first:] + circle[:first]


_ENDS = {"completion": "completion_promise", "cancellation": "cancellation_promise"}


def check_completion(model: Model, limits: Limits) -> Iterator[PresetFinding]:
    """What keeps a run from being done; limits are only looked at if nothing else does."""
    found = [*_check_promises(model), *_check_required(model), *_check_evidence(model)]
    yield from found
    completes = model.settings.completion in model.earnest
    if not any(one.severity == "error" for one in found) and model.settings.hats:
        yield from _check_limits(model, limits) if completes else _check_path(model)


def _key(model: Model, end: str) -> Path:
    older = end == "completion" and model.preset.completion_promise
    return ("completion_promise",) if older else ("event_loop", _ENDS[end])


def _check_promises(model: Model) -> Iterator[PresetFinding]:
    completion, cancellation = model.settings.completion, model.settings.cancellation
    path = _key(model, "completion")
    if completion == cancellation:
        what = f"`{completion}` both completes and cancels: Ralph always treats it as completion"
        yield make_error("same-promise", path, what, "use another topic for `cancellation_promise`")
    if model.unsayable:
        what = f"`{completion.strip()}` cannot be a promise: {model.unsayable}"
        yield make_error("promise-impossible", path, what, "use a word like `LOOP_COMPLETE`")
        return
    if fault := find_topic_fault(completion):
        what = f"it can only be the last line of a message, and cannot be published: {fault}"
        yield make_warning("promise-no-topic", path, what, "use a word like `LOOP_COMPLETE`")
    for end in _ENDS:
        topic = getattr(model.settings, end)
        if topic and model.settings.hats and not model.settings.find_owners(topic):
            listed = [one for hat in model.settings.hats for one in hat.publishes if "*" not in one]
            only = end == "completion" or model.settings.enforce_scope
            everybody = "only the coordinator" if only else "any hat, or the coordinator,"
            what = f"no hat lists `{topic}` in `publishes`: {everybody} may publish it, but no hat is told to"
            todo = suggest(topic, listed, "add it to the `publishes` of the hat that decides")
            yield make_warning("promise-unlisted", _key(model, end), what, todo)


def _check_required(model: Model) -> Iterator[PresetFinding]:
    hats = model.settings.hats
    for topic in model.settings.required:
        path = ("event_loop", "required_events", topic)
        listing = [hat.id for hat in hats if any(topic_matches(one, topic) for one in hat.publishes)]
        default = [hat.id for hat in hats if hat.default_publishes == topic]
        if topic in model.promises or topic.startswith("human.") or "*" in topic:
            why = "a promise ends the run before it counts" if topic in model.promises else "no hat can publish it"
            what = f"`{topic}` can never take effect: {why}"
            yield make_error("required-impossible", path, what, "name a topic that a hat publishes")
        elif not hats or (topic in model.earnest and not (default and not listing)):
            continue
        elif not listing and default:
            what = f"`{topic}` is published only as the default of {default[0]}, and defaults satisfy no gate"
            yield make_error(
                "required-by-default", path, what, f"add it to the `publishes` of {default[0]}", default[0]
            )
        elif not listing:
            known = {one for hat in hats for one in hat.publishes}
            what = f"no hat publishes `{topic}`, which must have been published before the run is done"
            yield make_error("required-unpublished", path, what, suggest(topic, known, "add it to a hat's `publishes`"))
        elif topic not in model.earnest and model.settings.completion in model.earnest:
            what = f"`{topic}` must be published first, and {', '.join(listing)} never has a turn"
            todo = "add an event that leads there, or remove it"
            yield make_error("required-unreachable", path, what, todo, listing[0])


def _check_evidence(model: Model) -> Iterator[PresetFinding]:
    for topic, rule in model.preset.events.items():
        path = ("events", topic, "otherwise")
        gated = rule.evidence if rule.evidence is not None else model.settings.topics[topic].otherwise != rule.otherwise
        if rule.otherwise == topic:
            what = f"if the checks fail, `{topic}` is published anyway, so the gate has no effect"
            yield make_error("otherwise-same", path, what, "name a topic that says that the work is not finished")
        elif rule.otherwise in model.promises:
            what = f"`{rule.otherwise}` is a promise, and a default cannot make one"
            yield make_warning("otherwise-promise", path, what, "name a topic that a hat receives")
        if rule.otherwise and not rule.evidence and not gated and topic not in _CLAIMS:
            what = f"`otherwise` does nothing: `{topic}` needs no evidence"
            yield make_warning("otherwise-idle", path, what, "add `evidence: true`, or remove it")
        if rule.evidence and not model.settings.topics[topic].evidence:
            what = f"`{topic}` needs evidence, but the run has no checks"
            yield make_warning(
                "no-checks", ("events", topic, "evidence"), what, "add `event_loop.checks`, or pass --check"
            )
    for hat in model.settings.hats:
        if hat.default_publishes in model.promises:
            what = f"`{hat.default_publishes}` is a promise, and a default cannot make one: the coordinator decides"
            todo = f"remove it, or use a topic that leads back to {hat.id}"
            yield make_warning("default-promise", ("hats", hat.id, "default_publishes"), what, todo, hat.id)
        elif hat.default_publishes in model.settings.required:
            what = f"`{hat.default_publishes}` is required, but does not count if Ralph publishes it as a default"
            todo = "use a topic that says that the work is not finished"
            yield make_warning("default-required", ("hats", hat.id, "default_publishes"), what, todo, hat.id)


_CLAIMS = ("build.done", "review.done", "verify.passed")
"""Topics that need evidence without being told to."""


def _check_path(model: Model) -> Iterator[PresetFinding]:
    completion = model.settings.completion
    hat = next((hat for hat in model.settings.hats if completion in hat.publishes), None)
    path = ("hats", hat.id, "publishes", completion) if hat else _key(model, "completion")
    what = (
        f"only {hat.id} can publish `{completion}`, and only the coordinator could give it a turn"
        if hat
        else f"no hat can publish `{completion}`"
    )
    triggers = ", ".join(f"`{one}`" for one in hat.triggers) if hat else ""
    todo = (
        f"let a hat that gets a turn publish {triggers}"
        if triggers
        else "list the promise in `publishes` of a hat that gets a turn"
    )
    yield make_error("no-path", path, f"no path leads to the end: {what}", todo, hat.id if hat else "")


def _check_limits(model: Model, limits: Limits) -> Iterator[PresetFinding]:
    found = find_shortest_route(model, limited=False)
    route = found.route
    if not route and not found.open:
        yield _check_stale_gates(model)
        return
    route_text = f"the shortest path takes {count(len(route), 'turn')} ({' -> '.join(turn.who for turn in route)})"
    if limits.iterations is not None and found.least > limits.iterations:
        todo = f"allow {len(route)} or more"
        yield make_error(
            "limit-iterations", _limit(model, "iterations"), f"{count(limits.iterations, 'turn')}: {route_text}", todo
        )
    least = sum(count_tokens(hat.instructions) for turn in route if (hat := model.settings.hat(turn.who)))
    if limits.tokens is not None and not found.open and least >= limits.tokens:
        what = f"{count(limits.tokens, 'token')}: the instructions on the shortest path alone need {least}"
        yield make_error("limit-tokens", ("limits", "tokens"), what, "allow more")
    if any(hat.max_activations for hat in model.settings.hats):
        bounded = find_shortest_route(model)
        if route and not bounded.route and not bounded.open:
            yield from _check_activations(model, route, route_text)
    for hat in model.settings.hats:
        if hat.wall and limits.active_seconds and hat.wall > limits.active_seconds:
            what = f"a turn of {hat.id} may take {hat.wall:g} s, but the whole run only {limits.active_seconds:g} s"
            yield make_warning(
                "timeout-idle", ("hats", hat.id, "timeout"), what, "shorten it, or allow the run more", hat.id
            )


def _check_stale_gates(model: Model) -> PresetFinding:
    """The required topics are published, but never all hold when the promise can be made."""
    topics = ", ".join(f"`{topic}`" for topic in model.settings.required)
    path = ("event_loop", "required_events")
    what = f"no path leads to the end: whenever the run could complete, a later event of the same family has made {topics} stale"
    return make_error(
        "required-stale", path, what, "rename the later topic, so that the part before its last dot differs"
    )


def _check_activations(model: Model, route: Sequence[SearchTurn], route_text: str) -> Iterator[PresetFinding]:
    """The hats that the shortest route needs more often than they may act."""
    for id, needed in Counter(turn.who for turn in route).items():
        hat = model.settings.hat(id)
        if hat and hat.max_activations and needed > hat.max_activations:
            what = f"{id} can have {count(hat.max_activations, 'turn')}, but needs {needed}: {route_text}"
            path = ("hats", id, "max_activations")
            yield make_error("limit-activations", path, what, f"allow {needed} or more", id)


def _limit(model: Model, name: str) -> Path:
    """The key that a limit comes from."""
    if model.preset.max_iterations:
        return ("max_iterations",)
    if "max_iterations" in model.preset.event_loop.model_fields_set:
        return ("event_loop", "max_iterations")
    return ("limits", name)
