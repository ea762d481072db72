"""What follows from the engine's own checks: a claim holds, or is answered with what they said."""

from collections.abc import Mapping
from dataclasses import replace

from ralph.core.checks import Verdict, red_in
from ralph.core.outcomes import Outcome
from ralph.documents.hats.definition import COORDINATOR, Topic
from ralph.workflows.hats.gates import Gate
from ralph.workflows.hats.intake import Said
from ralph.workflows.hats.onward import committing, onward
from ralph.workflows.hats.queueing import add, done, granted, not_done, with_word
from ralph.workflows.hats.state import RESUME, HatsState, Phase
from ralph.workflows.hats.terms import PATIENCE, Terms
from ralph.workflows.loop.verdicts import failure_text, verdict_summary, verification_text


def judged(terms: Terms, state: HatsState, verdict: Verdict, now: float) -> HatsState:
    """After the checks: what was claimed holds, or is answered."""
    if state.phase is not Phase.VERIFY:
        return state
    completion = terms.settings.completion
    state = replace(state, verification=verification_text(verdict, ()))
    completes = any(claim.topic == completion for claim in state.claims)
    reasons = terms.gates(state) if completes else []
    if completes and verdict.passed and not reasons:
        return onward(terms, complete(terms, state), now)
    told = failure_text(verdict, (), ())
    claims, state = state.claims, replace(state, claims=())
    for claim in (c for c in claims if c.topic != completion):
        rule = terms.settings.topics[claim.topic]
        if _borne_out(rule, verdict):
            state = replace(granted(terms, state, claim), red=red_in(verdict) if rule.red else None)
            continue
        saw = "pass, so nothing shows yet what is missing" if rule.red and verdict.passed else f"do not pass:\n{told}"
        payload = f"{claim.payload}\n\nThe engine ran the checks, and they {saw}".strip()
        answer = Said(rule.otherwise or RESUME, payload)
        state = add(terms, state, answer, claim.source, default=True, turn=claim.turn, wave=claim.wave)
    if completes and verdict.unrunnable and state.refusals >= PATIENCE:
        return done(state, Outcome.UNVERIFIABLE, verdict_summary(verdict))
    if completes and not verdict.passed:
        reasons = [f"the engine ran the checks, and they do not pass:\n{told}"]
    return onward(terms, not_done(terms, state, reasons) if completes else state, now)


def _borne_out(rule: Topic, verdict: Verdict) -> bool:
    """Whether the checks say what a topic claims: that they pass, or that they fail."""
    return verdict.passed if not rule.red else bool(verdict.failed) and not verdict.unrunnable


def complete(terms: Terms, state: HatsState) -> HatsState:
    """All gates are passed: the run is over, or rests until there is more to do."""
    completion = terms.settings.completion
    if terms.settings.persistent:
        queue = state.queue[state.taken :]
        # What is required is required of the next piece of work as well.
        gates: Mapping[str, Gate] = {}
        for event in queue:
            gates = with_word(terms, gates, event)
        state = replace(state, queue=queue, taken=1, claims=(), gates=gates, refusals=0, still=0)
        return state if state.queue else committing(terms, replace(state, phase=Phase.REST), always=True)
    who = next((claim.source for claim in state.claims if claim.topic == completion), COORDINATOR)
    checked = "all checks pass" if terms.checks else "no checks were given, so the engine verified nothing"
    return committing(terms, done(state, Outcome.SUCCESS, f"{completion} by {who}; {checked}"), always=True)
