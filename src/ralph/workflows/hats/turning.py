"""What follows from a turn: what it published is taken in, refused, or stood in for."""

from dataclasses import replace

from ralph.core.events import TurnEnded
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd
from ralph.documents.hats.definition import COORDINATOR, USER, Hat
from ralph.workflows.hats.intake import EVENTS, Intake, take_in
from ralph.workflows.hats.judging import complete
from ralph.workflows.hats.onward import onward
from ralph.workflows.hats.queueing import add, by_default, cancelled, done, lineage, not_done, refused
from ralph.workflows.hats.state import HatsState
from ralph.workflows.hats.terms import Terms

UNCHARGED = (TurnEnd.CUT, TurnEnd.UNAVAILABLE)
"""Ends that are nobody's failure."""


def turned(terms: Terms, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
    """After a turn: what it published is taken in, and what changed is noted."""
    result, id = ended.result, terms.taker(state, state.event)
    hat = terms.settings.hat(id)
    taken = take_in(terms.settings, id, result.papers.get(EVENTS, ""), result.text)
    change = result.change
    moved = state.moved or bool(change and change.files) or (change is None and bool(taken.events))
    state = replace(
        state.after_turn(ended, acknowledged=taken.acknowledged),
        still=0 if moved else state.still + 1,
        moved=False,
        notes=taken.refused,
        snapshot=change.snapshot if change else state.snapshot,
        not_before=now + terms.settings.cooldown,
    )
    if result.end is not TurnEnd.FINISHED and not taken.published:
        return _failed(terms, state, ended, now)
    state = replace(state.with_turn_of(id), failures=0)
    if taken.cancels:
        return cancelled(state, id, taken.cancels)
    return onward(terms, _published(terms, state, hat, taken), now)


def from_outside(terms: Terms, state: HatsState, text: str) -> tuple[HatsState, tuple[str, ...]]:
    """What people published joins the queue, and what they published in vain; only hats keep promises."""
    whole = text[: text.rfind("\n") + 1]
    taken = take_in(terms.settings, USER, whole[state.outside :], "")
    for said in taken.events:
        state = add(terms, state, said, USER)
    return replace(state, outside=len(whole)), tuple(f"not taken: {why}" for why in taken.refused)


def _failed(terms: Terms, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
    """A turn that came to nothing: its event stays the next one, until it is too often."""
    result = ended.result
    failures = state.failures + (0 if result.end in UNCHARGED else ended.attempt)
    why = result.error or f"the turn ended as {result.end}"
    state = replace(state, failures=failures, notes=(*state.notes, f"the turn before this one failed: {why}"))
    if failures >= terms.settings.max_failures:
        return done(state, Outcome.FAILED, f"the agent failed {failures} times in a row: {why}")
    return onward(terms, state, now)


def _published(terms: Terms, state: HatsState, hat: Hat | None, taken: Intake) -> HatsState:
    """The events of a turn that ended well go into the queue; claims wait for the gates and the checks."""
    source = hat.id if hat else COORDINATOR
    events, state = state.events, replace(state, queue=state.queue[state.taken :])
    if taken.events or taken.completes:
        state = state.with_word_of(source)
    for said in taken.events:
        state = add(terms, state, said, source, claim=terms.claims(said.topic), wave=lineage(events, hat))
    if taken.completes:
        state = replace(state, queue=(*events, *state.queue))
        if reasons := terms.gates(state):
            return not_done(terms, state, reasons)
        state = add(terms, state, taken.completes, source, claim=True)
        return state if terms.checks else complete(terms, state)
    state = replace(state, taken=1)
    if taken.events:
        # The next turn is another's: it must not take what was refused for its own.
        return replace(state, refusals=0, notes=tuple(f"{source} published in vain: {why}" for why in taken.refused))
    if taken.refused:
        return refused(terms, state, events, list(taken.refused), hat)
    return by_default(terms, state, events, hat)
