"""On to the next turn: whose it is, and what has to come before it."""

from dataclasses import replace

from ralph.core.outcomes import Outcome
from ralph.documents.hats.definition import COORDINATOR
from ralph.workflows.hats.intake import Said
from ralph.workflows.hats.queueing import add, done, resume
from ralph.workflows.hats.state import HatsState, Phase
from ralph.workflows.hats.terms import Terms
from ralph.workflows.hats.waves import formed


def onward(terms: Terms, state: HatsState, now: float) -> HatsState:
    """On to the next turn or wave; claims and commits that are due come first, and a run that is stuck ends.

    One that is over stays so, and one that rests does until there is something to do.
    """
    if state.outcome or (not state.queue and state.rests):
        return state
    if state.claims:
        return committing(terms, replace(state, phase=Phase.VERIFY))
    if silent := _silent_hat(terms, state):
        return done(state, Outcome.AWAITING_GUIDANCE, silent)
    state = state if state.queue else resume(terms, state, "nobody has anything to do: see what is left")
    state = _relieved(terms, _fronted(terms, state))
    if state.still >= terms.patience:
        return done(state, Outcome.STUCK, f"nothing changed in {state.still} turns: no file, no task, no memory")
    if state.still * 2 >= terms.patience:
        told = f"Nothing has changed in the last {state.still} turns. Do something about it, or say what blocks you."
        state = replace(state, notes=(*state.notes, told))
    return committing(terms, formed(terms, state, now) or replace(state, phase=Phase.ACT))


def _silent_hat(terms: Terms, state: HatsState) -> str:
    """Why the user is asked: a hat ended in its default event too many times in a row, whatever others did meanwhile."""
    most = terms.settings.max_default_events
    for id, count in state.defaults.items():
        hat = terms.settings.hat(id)
        if hat and most and count >= most:
            default = f"`{hat.default_publishes}` by default"
            return f"{id} ended its last {count} turns without an event of its own ({default}): what should it do?"
    return ""


def committing(terms: Terms, state: HatsState, *, always: bool = False) -> HatsState:
    """The same state, reached by way of a commit where one is due."""
    every = terms.settings.checkpoint
    due = every and (always or (state.iteration - 1) // every > state.checkpoint // every)
    if not due or not state.snapshot or state.snapshot == state.committed or state.phase is Phase.COMMIT:
        return state
    return replace(state, phase=Phase.COMMIT, ahead=(state.phase,))


def _fronted(terms: Terms, state: HatsState) -> HatsState:
    """The events of the next turn come first: what a hat gathers waits until the rest of its wave has come to it."""
    gathering = {hat.id for hat in terms.settings.hats if hat.gathers}
    if not gathering:
        return state
    takers = {event.number: terms.taker(state, event) for event in state.queue}
    unready = {event.wave for event in state.queue if event.wave and takers[event.number] not in gathering}
    first = next(e for e in state.queue if takers[e.number] not in gathering or e.wave not in unready)
    who = takers[first.number]
    alike = [e for e in state.queue if takers[e.number] == who and e.wave == first.wave]
    chosen = alike if who in gathering else [first]
    rest = [event for event in state.queue if event not in chosen]
    return replace(state, queue=(*chosen, *rest), taken=len(chosen))


def _relieved(terms: Terms, state: HatsState) -> HatsState:
    """A hat that has had all its turns is told of once; what it would take goes to others."""
    while (hat := terms.settings.hat(terms.taker(state, state.event))) and hat.max_activations is not None:
        if state.activations.get(hat.id, 0) < hat.max_activations:
            break
        state = replace(state, exhausted=(*state.exhausted, hat.id))
        told = f"{hat.id} has had its {hat.max_activations} turns; `{state.event.topic}` waits for somebody else"
        state = add(terms, state, Said(f"{hat.id}.exhausted", told), COORDINATOR, default=True)
        state = _fronted(terms, replace(state, taken=1))
    return state
