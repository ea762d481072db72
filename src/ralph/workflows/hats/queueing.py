"""The queue of events: what joins it, what stands in where nothing was published, and what goes back to its hat."""

from collections.abc import Mapping
from dataclasses import replace

from ralph.core.outcomes import Outcome
from ralph.documents.hats.definition import COORDINATOR, Hat
from ralph.workflows.hats.gates import Gate, record_word
from ralph.workflows.hats.intake import Said
from ralph.workflows.hats.state import RESUME, HatsState, Phase, Published
from ralph.workflows.hats.terms import PATIENCE, Terms


def add(
    terms: Terms,
    state: HatsState,
    said: Said,
    source: str,
    *,
    default: bool = False,
    claim: bool = False,
    turn: int | None = None,
    wave: int = 0,
) -> HatsState:
    """One more event, at the end of the queue, or among those that wait for the checks."""
    of = state.turn if turn is None else turn
    event = Published(state.number + 1, said.topic, said.payload, source, of, said.target, default, wave)
    state = replace(state, number=event.number, recent=(*state.recent, event))
    if claim:
        return replace(state, claims=(*state.claims, event))
    return enqueue(terms, state, event)


def enqueue(terms: Terms, state: HatsState, event: Published) -> HatsState:
    """An event joins the queue, and is the last word on what it is about."""
    gates = with_word(terms, state.gates, event)
    return replace(state, queue=(*state.queue, event), gates=gates)


def with_word(terms: Terms, gates: Mapping[str, Gate], event: Published) -> Mapping[str, Gate]:
    """The gates after an event."""
    settings, payload = terms.settings, event.payload
    return record_word(settings, gates, event.topic, payload, source=event.source, default=event.default)


def granted(terms: Terms, state: HatsState, claim: Published) -> HatsState:
    """A claim goes into the queue: the checks bear it out."""
    return replace(enqueue(terms, state, claim), refusals=0)


def resume(terms: Terms, state: HatsState, why: str, wave: int = 0) -> HatsState:
    """The coordinator sees to it."""
    return add(terms, state, Said(RESUME, why), COORDINATOR, default=True, wave=wave)


def done(state: HatsState, outcome: Outcome, reason: str) -> HatsState:
    """The end of the run."""
    return replace(state, phase=Phase.DONE, ahead=(), outcome=outcome, reason=reason)


def cancelled(state: HatsState, who: str, said: Said) -> HatsState:
    """A hat says that it is not to be gone on with."""
    return done(state, Outcome.ABORTED, f"cancelled by {who}" + (f": {said.payload[:300]}" if said.payload else ""))


def lineage(events: tuple[Published, ...], hat: Hat | None) -> int:
    """The wave that belongs to what a turn publishes: a hat that gathers ends it."""
    return 0 if hat and hat.gathers else events[0].wave


def refused(
    terms: Terms,
    state: HatsState,
    events: tuple[Published, ...],
    why: list[str],
    hat: Hat | None = None,
    told: str = "",
) -> HatsState:
    """The hat is told and has its events again; where that does not help, others go on."""
    state = replace(state, notes=tuple(dict.fromkeys((*state.notes, *why))), refusals=state.refusals + 1)
    if state.refusals <= PATIENCE:
        return replace(state, queue=(*events, *state.queue))
    state = replace(state, refusals=0)
    if hat:
        return by_default(terms, state, events, hat)
    return resume(terms, state, told or "\n".join(why), lineage(events, hat))


def by_default(terms: Terms, state: HatsState, events: tuple[Published, ...], hat: Hat | None) -> HatsState:
    """Where a hat published nothing, its default, or the coordinator."""
    wave = lineage(events, hat)
    if hat and (topic := terms.default_of(hat)):
        said = Said(topic, payload_of(events))
        state = state.with_default_of(hat.id)
        return add(terms, state, said, hat.id, default=True, claim=terms.claims(topic), wave=wave)
    return resume(terms, state, unanswered(events, hat), wave)


def unanswered(events: tuple[Published, ...], hat: Hat | None) -> str:
    """What the coordinator is told where a hat published nothing."""
    if events[0].topic == RESUME:
        return events[0].payload
    who, payload = hat.id if hat else COORDINATOR, payload_of(events)
    return f"{who} took `{events[0].topic}` and published nothing. It was about:\n{payload}"


def payload_of(events: tuple[Published, ...]) -> str:
    """What events say together."""
    return "\n\n".join(event.payload for event in events)


def not_done(terms: Terms, state: HatsState, reasons: list[str]) -> HatsState:
    """The hat that claimed completion has its events again, or the coordinator sees to it."""
    events, state = state.events, replace(state, queue=state.queue[state.taken :])
    promise = f"`{terms.settings.completion}`"
    # Gates are told of as they are when the coordinator has its turn.
    told = f"{promise} was refused again and again: see what is in the way" if terms.gates(state) else ""
    return refused(terms, state, events, [f"{promise} was refused: {one}" for one in reasons], told=told)
