"""What follows from the end of a turn for the work behind it: settled, mended, or tried again, by whom and when."""

from collections.abc import Mapping
from dataclasses import replace

from ralph.core.events import TurnEnded
from ralph.core.turns import Turn, TurnEnd, TurnRequest, TurnResult
from ralph.engine.ledger import Pending, rests_until
from ralph.engine.retry import retry_after
from ralph.engine.roster import NEVER, Roster

MOST_STEERED = 2
"""How often work that was finished is asked for again because a person steered it in the meantime."""
_GOLDEN = 0.618
"""Spreads the waits of turns that were overloaded at the same time."""


def what_follows(
    ended: TurnEnded, turn: Turn, work: Pending, roster: Roster, resting: Mapping[str, float], now: float
) -> TurnEnded:
    """The end of a turn with what follows: no `retry_at` where it was the last for its work."""
    result = ended.result
    if result.end is TurnEnd.STEERED:
        return replace(ended, retry_at=now, retry_reason="it goes on with what a person said")
    broken = bool(result.answer_errors) and result.end is TurnEnd.FINISHED
    if broken and not turn.repair:
        why = f"the answer is not as it was asked for: {result.answer_errors[0][:200]}"
        return replace(ended, retry_at=now, retry_reason=why, repair=True)
    if broken and turn.request.answer_required:
        result = replace(result, end=TurnEnd.FAILED, error="; ".join(result.answer_errors))
    ended = replace(ended, result=result)
    if until := rests_until(result, now):
        return _handed_on(ended, turn, work, roster, {**resting, turn.agent: until}, now)
    if turn.request.settles and result.end in (TurnEnd.FAILED, TurnEnd.IDLE) and any(result.papers.values()):
        return ended
    retry = retry_after(
        result,
        attempt=work.attempt,
        interruptions=work.interruptions,
        overloads=work.overloads,
        chance=turn.number * _GOLDEN % 1,
        now=now,
        most=turn.request.retries,
    )
    return replace(ended, retry_at=retry.at, retry_reason=retry.reason) if retry else ended


def _handed_on(
    ended: TurnEnded, turn: Turn, work: Pending, roster: Roster, resting: Mapping[str, float], now: float
) -> TurnEnded:
    """Where an agent cannot be used for a while, another takes over, or it is waited for."""
    agent, at = pick(turn.request, work, roster, resting, now)
    if at == NEVER:
        return ended
    waits = "waiting for the provider's limit" if agent == turn.agent else f"{agent} takes over from {turn.agent}"
    return replace(ended, retry_at=at, retry_reason=waits)


def pick(
    request: TurnRequest, work: Pending, roster: Roster, resting: Mapping[str, float], now: float
) -> tuple[str, float]:
    """Who does the next turn for some work, and when."""
    return roster.pick(request.role, max(request.failures, work.attempt - 1), resting, now)


def session_of(work: Pending) -> str:
    """The conversation that the next turn goes on with: to mend its answer, or after it was interrupted or steered."""
    last = work.last
    goes_on = last is not None and (last is work.broken or last.result.end in (TurnEnd.INTERRUPTED, TurnEnd.STEERED))
    return last.result.session if last and goes_on else ""


def unsettled(event: TurnEnded) -> bool:
    """Whether the work behind a turn goes on in another one, now or after a resume."""
    return event.retry_at is not None or event.result.end is TurnEnd.STOPPED


def steered(result: TurnResult, work: Pending, unheard: tuple[str, ...]) -> TurnResult:
    """The end of a turn, where it answered before it heard how it was to be steered, or stopped for a pause.

    What a turn that nobody steered says of steering does not count.
    """
    if result.answer and result.answer.get("steering") and not (work.words or result.heard):
        result = replace(result, answer={**result.answer, "steering": None})
    again = bool(unheard) and work.steered < MOST_STEERED
    paused = work.to_pause and (result.answer or {}).get("status") == "paused"
    if result.end is TurnEnd.FINISHED and (again or paused):
        return replace(result, end=TurnEnd.STEERED)
    return result


def mended(first: TurnResult, repair: TurnResult) -> TurnResult:
    """The first turn's work with the answer that its repair turn gave."""
    moved = repair.change if repair.change and repair.change.files else first.change
    return replace(repair, text=first.text or repair.text, change=moved)
