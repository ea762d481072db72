"""What follows a turn: the one place that decides it.

`decide_follow_up` says what follows: is the work settled, and if not, who continues it, when and why. `PendingWork` counts
what has come of the work so far. The policies that they need are beside them. How a turn ended is decided before, by
`classify_end` in `core/turns.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ralph.core.events import Stop, TurnEnded, TurnStarted
from ralph.core.limits import Usage
from ralph.core.outcomes import Outcome
from ralph.core.text import shorten
from ralph.core.turns import EarlierTurn, Turn, TurnEnd, TurnRequest, TurnResult, add_changes

NEVER = math.inf
"""When an agent is available again if only the user can repair it: it is not signed in, or not installed."""
RETRY_WAITS = (0.0, 30.0, 60.0, 60.0)
"""Seconds before the second, third, fourth and fifth attempt."""
OVERLOAD_WAITS = (5.0, 15.0, 45.0, 120.0, 300.0, 300.0, 300.0, 300.0)
"""Seconds to wait while the provider or the network is overloaded, give or take a quarter."""
MAX_AGENT_OVERLOADS = 2
"""After this number of overloaded turns in a row, another agent takes over if there is one."""
OVERLOAD_COOL_DOWN = 300.0
"""Seconds for which an agent is then passed over."""
LIMIT_WAIT = 300.0
"""Seconds to wait for a provider's limit if the agent did not say when it ends."""
MAX_INTERRUPTIONS = 5
"""How often interrupted work is continued before an interruption counts as a failed attempt."""
MAX_STEER_CONTINUATIONS = 2
"""How often finished work is continued because the user steered it before it ended."""
_MAX_ERROR = 300
"""How much of the error of a failed turn is in the prompt of the next one."""
_SPREAD_STEP = 0.618
"""Spreads the waits of turns that were overloaded at the same time."""


# How far has the work come?


@dataclass
class PendingWork:
    """How far the work behind one key has come."""

    attempt: int = 1
    interruptions: int = 0
    overloads: int = 0
    agent_overloads: int = 0
    """How many turns of the last agent ended as overloaded."""
    agent: str = ""
    """The agent of the last turn."""
    is_iteration: bool = False
    """Whether it is an iteration."""
    open_turn: TurnStarted | None = None
    """A turn that was started and has not ended."""
    opened_at: float = 0.0
    last_ended: TurnEnded | None = None
    """The last turn that ended without settling the work."""
    turn_to_repair: TurnEnded | None = None
    """The turn whose answer is being repaired."""
    rejected_turn: TurnEnded | None = None
    """The turn that could not repair its answer. The next prompt lists everything that is wrong with it."""
    used: dict[str, Usage] = field(default_factory=dict)
    """What each conversation has used."""
    messages: tuple[str, ...] = ()
    """The messages of the user that its turns have so far, by id. A new conversation gets them again."""
    missed_messages: tuple[str, ...] = ()
    """The messages that the last turn did not get."""
    steer_continuations: int = 0
    """How often the work was continued because a turn ended before it got a STEER."""
    to_pause: bool = False
    """Whether the turn in progress was asked to pause."""
    earlier: tuple[EarlierTurn, ...] = ()
    """The turns that did some of the work so far."""

    def note_turn_started(self, started: TurnStarted, at: float) -> None:
        """Record that a turn starts."""
        self.open_turn, self.opened_at = started, at
        if started.agent != self.agent:
            self.agent_overloads = 0
        self.is_iteration, self.agent = started.is_iteration, started.agent
        self.messages, self.missed_messages, self.to_pause = _join_once(self.messages, started.messages), (), False

    def note_turn_ended(self, ended: TurnEnded) -> None:
        """Record that a turn ended without settling the work."""
        result = ended.result
        self.open_turn, self.last_ended = None, ended
        self.messages, self.missed_messages = _join_once(self.messages, result.received), ended.missed_messages
        error = shorten(" ".join(result.error.split()), _MAX_ERROR) if result.end is TurnEnd.FAILED else ""
        if result.end is TurnEnd.STEERED or error or (result.change and result.change.files):
            self.earlier = (*self.earlier, EarlierTurn(ended.turn, result.end, result.change, error))
        if result.agent_session:
            self.used[result.agent_session] = self.used.get(result.agent_session, Usage()) + result.usage
        if ended.repair_follows:
            self.turn_to_repair = ended
        elif result.end is TurnEnd.INTERRUPTED and self.interruptions < MAX_INTERRUPTIONS:
            self.interruptions += 1
        elif result.end is TurnEnd.OVERLOADED:
            self.overloads += 1
            self.agent_overloads += 1
        elif result.end is TurnEnd.STEERED:
            # An interruption was the user's wish. Only work that would have counted can continue too often.
            if ended.missed_messages and result.is_own_end:
                self.steer_continuations += 1
            self.turn_to_repair = None
        elif result.end not in (TurnEnd.LIMITED, TurnEnd.UNAVAILABLE):
            self.attempt += 1
            if result.answer_errors:
                self.rejected_turn = ended if self.turn_to_repair else self.rejected_turn
                self.turn_to_repair = None

    @property
    def agent_session(self) -> str:
        """The conversation that the next turn continues: to repair its answer, or after it was interrupted or steered."""
        if self.last_ended is None:
            return ""
        continues = self.last_ended is self.turn_to_repair or self.last_ended.result.end in (
            TurnEnd.INTERRUPTED,
            TurnEnd.STEERED,
        )
        return self.last_ended.result.agent_session if continues else ""


# Which agent does the next turn?


@dataclass(frozen=True)
class AgentChain:
    """The labels of the agents of a run, in the order in which they are preferred."""

    chain: tuple[str, ...]
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    escalation: str = ""
    """The agent for work that failed `escalate_after` times."""
    escalate_after: int = 2

    def pick(
        self, request: TurnRequest, pending: PendingWork, unavailable: Mapping[str, float], now: float
    ) -> tuple[str, float]:
        """The agent for the next turn of some work, and when it may start."""
        order = self.list_order(request, pending)
        for label in order:
            if unavailable.get(label, 0.0) <= now:
                return label, now
        first = min(order, key=lambda label: unavailable[label])
        return first, unavailable[first]

    def list_order(self, request: TurnRequest, pending: PendingWork) -> tuple[str, ...]:
        """The agents for the next turn of some work, the preferred one first."""
        order = self.roles.get(request.role) or self.chain
        failures = max(request.turns_without_progress, pending.attempt - 1)
        if self.escalation and failures >= self.escalate_after:
            return (self.escalation, *order)
        return order


def find_unavailable_until(result: TurnResult, pending: PendingWork, now: float) -> float | None:
    """Until when the agent of such a turn cannot be used; None if it can. `pending` is as it was before the turn ended."""
    match result.end:
        case TurnEnd.OVERLOADED if pending.agent_overloads + 1 >= MAX_AGENT_OVERLOADS:
            return now + OVERLOAD_COOL_DOWN
        case TurnEnd.LIMITED if result.resets_at and result.resets_at > now:
            return result.resets_at
        case TurnEnd.LIMITED:
            return now + LIMIT_WAIT
        case TurnEnd.UNAVAILABLE if not result.lacks_worktree:
            return NEVER
        case _:
            return None


# What follows?


class NextStep(StrEnum):
    """What happens to the work after a turn."""

    SETTLED = "settled"
    """The workflow gets the result, whatever it is."""
    LATER = "later"
    """The user stopped the turn: the work continues when the run is resumed."""
    CONTINUE = "continue"
    """Another turn continues with what the user said."""
    REPAIR = "repair"
    """Another turn only repairs the answer."""
    RETRY = "retry"
    """Another turn tries again."""
    WAIT = "wait"
    """The same agent tries again when its provider's limit ends."""
    HAND_OVER = "hand over"
    """Another agent takes over."""


@dataclass(frozen=True)
class ReturnedTurn:
    """A turn that is over, and the work that it was for."""

    turn: Turn
    result: TurnResult
    pending: PendingWork
    missed_messages: tuple[str, ...]
    """The messages with which the user steered the turn while it ran and that it did not get, by id."""


@dataclass(frozen=True)
class Situation:
    """The state of the run when a turn is over, as far as the decision depends on it."""

    agents: AgentChain
    unavailable: Mapping[str, float]
    """Until when agents cannot be used."""
    is_over_limit: bool
    """Whether the run has used up an allowance."""
    is_ending: bool
    """Whether the run ends anyway: then a limit does not end the work."""
    now: float


@dataclass(frozen=True)
class FollowUp:
    """What follows a turn."""

    next: NextStep
    result: TurnResult
    """The result of the turn, as it is journaled."""
    at: float | None = None
    """When the next turn for this work may start; None if there is none."""
    reason: str = ""
    """Why there is another turn."""
    notice: str = ""
    """What the user should know."""

    @property
    def settles_work(self) -> bool:
        """Whether the workflow gets the result."""
        return self.next is NextStep.SETTLED

    @property
    def stop(self) -> Stop | None:
        """Why the run ends with this turn."""
        if not self.settles_work or self.result.end is not TurnEnd.UNAVAILABLE:
            return None
        outcome = Outcome.BLOCKED if self.result.lacks_worktree else Outcome.AGENT_UNAVAILABLE
        return Stop(outcome, self.result.error)

    def completes_iteration(self, request: TurnRequest) -> bool:
        """Whether the turn completes an iteration. One whose agent could not even start does not."""
        return request.is_iteration and self.settles_work and self.result.end is not TurnEnd.UNAVAILABLE


def decide_follow_up(returned: ReturnedTurn, situation: Situation) -> FollowUp:
    """Decide what follows a turn."""
    pending, result = returned.pending, returned.result
    if pending.turn_to_repair:
        result = keep_first_text(result, first=pending.turn_to_repair.result)
    result = _drop_unasked_response(result, pending)

    # Did it end with the run? Then nothing is decided before the run is resumed.
    if result.end is TurnEnd.STOPPED:
        return FollowUp(NextStep.LATER, result)

    if result.lacks_worktree:
        return _retry_setup(result, pending, situation.now)
    follow_up = _decide_next(returned, result, situation)
    # A turn that missed messages and still counts as finished was not continued with them: that was done too often.
    is_out_of_continuations = bool(returned.missed_messages) and follow_up.result.end is TurnEnd.FINISHED
    if is_out_of_continuations:
        late = ", ".join(returned.missed_messages)
        notice = (
            f"Turn {returned.turn.number} was already continued {MAX_STEER_CONTINUATIONS} times for your messages;"
            f" the next turn receives {late}."
        )
        follow_up = replace(follow_up, notice=notice)

    # Is there anything left for another turn? If not, this was the last one. An interrupted turn is not judged by
    # limits: its work was not done, and a resume continues it.
    needs_turn = follow_up.at is not None and follow_up.result.end is not TurnEnd.INTERRUPTED
    if needs_turn and situation.is_over_limit and not situation.is_ending:
        return _settle_over_limit(follow_up)
    return follow_up


def _decide_next(returned: ReturnedTurn, result: TurnResult, situation: Situation) -> FollowUp:
    turn, pending, now = returned.turn, returned.pending, situation.now

    # Was it steered? Interrupted for a message, finished before it got one, or paused as the user asked.
    if continues_with_message(result, pending, returned.missed_messages):
        steered = replace(result, end=TurnEnd.STEERED, is_own_end=result.end is TurnEnd.FINISHED)
        is_pause = pending.to_pause and not returned.missed_messages
        why = "the user paused it" if is_pause else "it continues with the message from the user"
        return FollowUp(NextStep.CONTINUE, steered, now, why)

    # Is the answer broken? One turn may repair it. After that it counts as a failure if the answer is required. The next
    # turn gets the faults, and does not wait: time does not make a document better.
    retries_at_once = False
    if result.end is TurnEnd.FINISHED and result.answer_errors:
        if not turn.errors_to_repair:
            why = f"the answer does not match its schema: {result.answer_errors[0][:200]}"
            return FollowUp(NextStep.REPAIR, result, now, why)
        if turn.request.answer_required:
            retries_at_once = True
            result = replace(result, end=TurnEnd.FAILED, error="; ".join(result.answer_errors))

    # Is the agent unavailable? Another one takes over, or the work waits for it. If only the user can help, it ends.
    # An overloaded agent without anybody to take over is tried again below, ever later.
    unavailable = _follow_unavailable(returned, result, situation)
    if unavailable:
        return unavailable

    # Does what it handed over count although it failed?
    has_failed = result.end in (TurnEnd.FAILED, TurnEnd.IDLE)
    if has_failed and turn.request.accepts_failed_documents and any(result.documents.values()):
        return FollowUp(NextStep.SETTLED, result)
    if has_failed and _is_worth_verifying(turn, pending, result):
        return FollowUp(NextStep.SETTLED, result)

    # Is it tried again?
    retry = _retry(result, turn, pending, now)
    if retry:
        at, why = retry
        return FollowUp(NextStep.RETRY, result, now if retries_at_once else at, why)
    return FollowUp(NextStep.SETTLED, _give_up_overloaded(result))


def _follow_unavailable(returned: ReturnedTurn, result: TurnResult, situation: Situation) -> FollowUp | None:
    """What follows if the agent cannot be used now; None if it can be tried again."""
    turn, pending, now = returned.turn, returned.pending, situation.now
    until = find_unavailable_until(result, pending, now)
    if until is None:
        return None
    unavailable = {**situation.unavailable, turn.agent: until}
    agent, at = situation.agents.pick(turn.request, pending, unavailable, now)
    is_overload = result.end is TurnEnd.OVERLOADED
    may_hand_over = agent != turn.agent and not (is_overload and pending.overloads >= len(OVERLOAD_WAITS))
    if at == NEVER:
        return FollowUp(NextStep.SETTLED, result)
    if may_hand_over:
        return FollowUp(NextStep.HAND_OVER, result, at, f"{agent} takes over from {turn.agent}")
    if is_overload:
        return None
    if _is_worth_verifying(turn, pending, result):
        # The work may be done, and the limit may last for hours. If it is not done, the next turn waits.
        return FollowUp(NextStep.SETTLED, result)
    return FollowUp(NextStep.WAIT, result, at, "waiting for the provider's limit")


def _is_worth_verifying(turn: Turn, pending: PendingWork, result: TurnResult) -> bool:
    """Whether the checks should judge what turns changed that did not finish."""
    change = add_changes([*(one.change for one in pending.earlier), result.change])
    return turn.request.verifies_failed_changes and change is not None and change.files > 0


def _retry_setup(result: TurnResult, pending: PendingWork, now: float) -> FollowUp:
    """Try once more, at once: waiting does not make a setup command better. After that, only the user can help."""
    if pending.attempt == 1:
        return FollowUp(NextStep.RETRY, result, now, result.error)
    return FollowUp(NextStep.SETTLED, replace(result, end=TurnEnd.UNAVAILABLE))


def _give_up_overloaded(result: TurnResult) -> TurnResult:
    """The last result of an agent. If its provider is still overloaded, the user decides how much longer to wait."""
    if result.end is not TurnEnd.OVERLOADED:
        return result
    what = "the provider stays overloaded"
    return replace(result, end=TurnEnd.UNAVAILABLE, error=f"{what} ({result.error})" if result.error else what)


def continues_with_message(result: TurnResult, pending: PendingWork, missed_messages: tuple[str, ...]) -> bool:
    """Whether the work continues because of what the user said."""
    if result.end is TurnEnd.STEERED:
        return True
    if result.end is not TurnEnd.FINISHED:
        return False
    is_paused = pending.to_pause and (result.answer or {}).get("status") == "paused"
    return is_paused or (bool(missed_messages) and pending.steer_continuations < MAX_STEER_CONTINUATIONS)


def keep_first_text(repair: TurnResult, *, first: TurnResult) -> TurnResult:
    """The result of a turn that repaired an answer, with the message of the turn that did the work."""
    return replace(repair, text=first.text or repair.text)


def _drop_unasked_response(result: TurnResult, pending: PendingWork) -> TurnResult:
    """Drop what an agent says about steering if the user did not steer it."""
    if not (result.answer and result.answer.get("steering")) or pending.messages or result.received:
        return result
    return replace(result, answer={**result.answer, "steering": None})


def _retry(result: TurnResult, turn: Turn, pending: PendingWork, now: float) -> tuple[float, str] | None:
    """When and why the work is tried again; None if the result is final."""
    most = turn.request.retries
    retries = len(RETRY_WAITS) if most is None else min(most, len(RETRY_WAITS))
    match result.end:
        case TurnEnd.OVERLOADED if pending.overloads < len(OVERLOAD_WAITS):
            spread = 0.75 + turn.number * _SPREAD_STEP % 1 / 2
            return now + OVERLOAD_WAITS[pending.overloads] * spread, result.error or "the provider is overloaded"
        case TurnEnd.INTERRUPTED if pending.interruptions < MAX_INTERRUPTIONS:
            return now, "the turn was interrupted"
        case TurnEnd.WALL if not turn.request.retries_timeouts:
            return None
        case TurnEnd.FAILED | TurnEnd.IDLE | TurnEnd.WALL | TurnEnd.INTERRUPTED if pending.attempt <= retries:
            return now + RETRY_WAITS[pending.attempt - 1], result.error or f"the turn ended as {result.end}"
        case _:
            return None


def _settle_over_limit(follow_up: FollowUp) -> FollowUp:
    """What follows a turn after which no other may start: what it finished counts, the rest was cut."""
    was_finished = follow_up.next is NextStep.REPAIR or (
        follow_up.next is NextStep.CONTINUE and follow_up.result.code == 0
    )
    end = TurnEnd.FINISHED if was_finished else TurnEnd.CUT
    return FollowUp(NextStep.SETTLED, replace(follow_up.result, end=end))


def _join_once(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*some, *others)))
