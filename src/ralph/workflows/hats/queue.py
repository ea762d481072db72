"""The queue of events: what joins it, what is published for a hat that published nothing, and what goes back to its hat."""

from collections.abc import Mapping
from dataclasses import replace

from ralph.core.outcomes import Outcome
from ralph.documents.hats.definition import COORDINATOR, Hat
from ralph.workflows.hats.context import PATIENCE, HatsContext
from ralph.workflows.hats.events import NewEvent
from ralph.workflows.hats.gates import Gate, record_word
from ralph.workflows.hats.state import RESUME, HatsState, Phase, QueuedEvent


def publish(
    context: HatsContext,
    state: HatsState,
    said: NewEvent,
    source: str,
    *,
    default: bool = False,
    claim: bool = False,
    turn: int | None = None,
    wave: int = 0,
) -> HatsState:
    """One more event, at the end of the queue, or among those that wait for the checks."""
    of = state.turn if turn is None else turn
    event = QueuedEvent(state.number + 1, said.topic, said.payload, source, of, said.target, default, wave)
    state = replace(state, number=event.number, recent=(*state.recent, event))
    if claim:
        return replace(state, claims=(*state.claims, event))
    return _enqueue(context, state, event)


def _enqueue(context: HatsContext, state: HatsState, event: QueuedEvent) -> HatsState:
    """An event joins the queue, and is the last word on what it is about."""
    gates = gates_after(context, state.gates, event)
    return replace(state, queue=(*state.queue, event), gates=gates)


def gates_after(context: HatsContext, gates: Mapping[str, Gate], event: QueuedEvent) -> Mapping[str, Gate]:
    """The gates after an event."""
    settings, payload = context.settings, event.payload
    return record_word(settings, gates, event.topic, payload, source=event.source, default=event.default)


def grant_claim(context: HatsContext, state: HatsState, claim: QueuedEvent) -> HatsState:
    """A claim goes into the queue: the checks bear it out."""
    return replace(_enqueue(context, state, claim), refusals=0)


def ask_coordinator(context: HatsContext, state: HatsState, why: str, wave: int = 0) -> HatsState:
    """The coordinator sees to it."""
    return publish(context, state, NewEvent(RESUME, why), COORDINATOR, default=True, wave=wave)


def end_run(state: HatsState, outcome: Outcome, reason: str) -> HatsState:
    """The end of the run."""
    return replace(state, phase=Phase.DONE, ahead=(), outcome=outcome, reason=reason)


def cancel_run(state: HatsState, who: str, said: NewEvent) -> HatsState:
    """A hat says that it is not to be gone on with."""
    return end_run(state, Outcome.ABORTED, f"cancelled by {who}" + (f": {said.payload[:300]}" if said.payload else ""))


def wave_after(events: tuple[QueuedEvent, ...], hat: Hat | None) -> int:
    """The wave that belongs to what a turn publishes: a hat that gathers ends it."""
    return 0 if hat and hat.gathers else events[0].wave


def send_back(
    context: HatsContext,
    state: HatsState,
    events: tuple[QueuedEvent, ...],
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
        return publish_default(context, state, events, hat)
    return ask_coordinator(context, state, told or "\n".join(why), wave_after(events, hat))


def publish_default(
    context: HatsContext, state: HatsState, events: tuple[QueuedEvent, ...], hat: Hat | None
) -> HatsState:
    """Where a hat published nothing, its default, or the coordinator."""
    wave = wave_after(events, hat)
    if hat and (topic := context.default_of(hat)):
        said = NewEvent(topic, join_payloads(events))
        state = state.with_default_of(hat.id)
        return publish(context, state, said, hat.id, default=True, claim=context.claims(topic), wave=wave)
    return ask_coordinator(context, state, describe_silence(events, hat), wave)


def describe_silence(events: tuple[QueuedEvent, ...], hat: Hat | None) -> str:
    """What the coordinator is told where a hat published nothing."""
    if events[0].topic == RESUME:
        return events[0].payload
    who, payload = hat.id if hat else COORDINATOR, join_payloads(events)
    return f"{who} took `{events[0].topic}` and published nothing. It was about:\n{payload}"


def join_payloads(events: tuple[QueuedEvent, ...]) -> str:
    """What events say together."""
    return "\n\n".join(event.payload for event in events)


def refuse_completion(context: HatsContext, state: HatsState, reasons: list[str]) -> HatsState:
    """The hat that claimed completion has its events again, or the coordinator sees to it."""
    events, state = state.events, replace(state, queue=state.queue[state.taken :])
    promise = f"`{context.settings.completion}`"
    # Gates are told of as they are when the coordinator has its turn.
    told = f"{promise} was refused again and again: see what is in the way" if context.gates(state) else ""
    return send_back(context, state, events, [f"{promise} was refused: {one}" for one in reasons], told=told)
