"""What follows a turn: a decision table over every combination of what the decision depends on."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from ralph.core.events import Stop, TurnEnded, TurnStarted
from ralph.core.limits import Usage
from ralph.core.outcomes import Outcome
from ralph.core.prompt import Prompt
from ralph.core.turns import Change, Failure, FileStat, Turn, TurnEnd, TurnRequest, TurnResult, classify_end
from ralph.engine.follow_up import (
    AgentChain,
    FollowUp,
    NextStep,
    PendingWork,
    ReturnedTurn,
    Situation,
    decide_follow_up,
)

# Written out: a test that imports what it checks cannot fail.
LIMIT_WAIT = 300.0
MAX_INTERRUPTIONS = 5
MAX_STEER_CONTINUATIONS = 2
MAX_AGENT_OVERLOADS = 2
MAX_OVERLOADS = 8
MAX_RETRIES = 4

NOW = 1000.0


@dataclass(frozen=True)
class Case:
    """One combination, by what a reader would ask."""

    end: TurnEnd = TurnEnd.FINISHED
    broken: bool = False
    """Whether the answer does not have the required form."""
    repair: bool = False
    """Whether the turn was to repair an answer."""
    required: bool = False
    late: str = "no"
    """Whether the user steered it too late: no, yes, or so often that it is not continued any more."""
    paused: bool = False
    """Whether the user asked for a pause and the answer says that it paused."""
    counts_though_failed: str = "no"
    """Whether the work counts although the turn failed: no, by the documents handed over, or by the changed files."""
    tries: str = "left"
    """Whether there are tries of its kind: left, or used up."""
    second: bool = False
    """Whether there is a second agent."""
    over_limit: bool = False
    ending: bool = False
    killed: bool = False
    """Whether the process was ended, so that it has no exit code."""


EVERY = {
    "end": tuple(TurnEnd),
    "broken": (False, True),
    "repair": (False, True),
    "required": (False, True),
    "late": ("no", "yes", "too often"),
    "paused": (False, True),
    "counts_though_failed": ("no", "documents", "files"),
    "tries": ("left", "one left", "used up"),
    "second": (False, True),
    "over_limit": (False, True),
    "ending": (False, True),
    "killed": (False, True),
}

FINISHED, FAILED = TurnEnd.FINISHED, TurnEnd.FAILED
Row = tuple[dict[str, Any], NextStep, TurnEnd | None]
"""What has to be so, what follows, and the end that is journaled (None: the one that there was)."""
BROKEN_TWICE = {"end": FINISHED, "broken": True, "repair": True, "required": True}
TABLE: tuple[Row, ...] = (
    # stopped by the user
    ({"end": TurnEnd.STOPPED}, NextStep.LATER, None),
    # steered
    ({"end": TurnEnd.STEERED}, NextStep.CONTINUE, None),
    ({"end": FINISHED, "paused": True}, NextStep.CONTINUE, TurnEnd.STEERED),
    ({"end": FINISHED, "late": "yes"}, NextStep.CONTINUE, TurnEnd.STEERED),
    # a broken answer
    ({"end": FINISHED, "broken": True, "repair": False}, NextStep.REPAIR, None),
    ({**BROKEN_TWICE, "counts_though_failed": ("documents", "files")}, NextStep.SETTLED, FAILED),
    ({**BROKEN_TWICE, "tries": ("left", "one left")}, NextStep.RETRY, FAILED),
    ({**BROKEN_TWICE}, NextStep.SETTLED, FAILED),
    ({"end": FINISHED}, NextStep.SETTLED, None),
    # an agent that cannot be used
    ({"end": (TurnEnd.LIMITED, TurnEnd.UNAVAILABLE), "second": True}, NextStep.HAND_OVER, None),
    ({"end": TurnEnd.LIMITED, "counts_though_failed": "files"}, NextStep.SETTLED, None),
    ({"end": TurnEnd.LIMITED}, NextStep.WAIT, None),
    ({"end": TurnEnd.UNAVAILABLE}, NextStep.SETTLED, None),
    ({"end": TurnEnd.OVERLOADED, "second": True, "tries": "one left"}, NextStep.HAND_OVER, None),
    ({"end": TurnEnd.OVERLOADED, "tries": "one left"}, NextStep.RETRY, None),
    # another try
    ({"end": (FAILED, TurnEnd.IDLE), "counts_though_failed": ("documents", "files")}, NextStep.SETTLED, None),
    (
        {"end": (FAILED, TurnEnd.IDLE, TurnEnd.OVERLOADED, TurnEnd.INTERRUPTED), "tries": ("left", "one left")},
        NextStep.RETRY,
        None,
    ),
    ({"end": TurnEnd.OVERLOADED}, NextStep.SETTLED, TurnEnd.UNAVAILABLE),
    ({}, NextStep.SETTLED, None),
)


@cache
def every_case() -> tuple[Case, ...]:
    return tuple(Case(**dict(zip(EVERY, values, strict=True))) for values in product(*EVERY.values()))


def fits(case: Case, row: Row) -> bool:
    wanted = ((getattr(case, name), value) for name, value in row[0].items())
    return all(found in value if isinstance(value, tuple) else found == value for found, value in wanted)


def expected(case: Case) -> tuple[NextStep, TurnEnd]:
    _, following, end = next(row for row in TABLE if fits(case, row))
    end = end or case.end
    needs_turn = following not in (NextStep.SETTLED, NextStep.LATER) and end is not TurnEnd.INTERRUPTED
    if needs_turn and case.over_limit and not case.ending:
        was_finished = following is NextStep.REPAIR or (following is NextStep.CONTINUE and not case.killed)
        return NextStep.SETTLED, FINISHED if was_finished else TurnEnd.CUT
    return following, end


def decide(case: Case, **changes: Any) -> FollowUp:
    request = TurnRequest(
        "key",
        "role",
        Prompt.of("do it"),
        is_iteration=True,
        answer_required=case.required,
        accepts_failed_documents=case.counts_though_failed == "documents",
        verifies_failed_changes=case.counts_though_failed == "files",
    )
    turn = Turn(7, 1, request, errors_to_repair=("no summary",) if case.repair else (), agent="first")
    result = TurnResult(
        case.end,
        NOW - 10,
        NOW,
        code=None if case.killed else 0,
        answer={"status": "paused"} if case.paused else None,
        answer_errors=("no summary", "no status") if case.broken else (),
        documents={"report.md": "text"} if case.counts_though_failed == "documents" else {},
        change=Change("commit", files=1 if case.counts_though_failed == "files" else 0),
    )
    used_up = case.tries == "used up"
    work = PendingWork(
        attempt=MAX_RETRIES + 1 if used_up else 1,
        interruptions=MAX_INTERRUPTIONS if used_up else 0,
        overloads=MAX_OVERLOADS if used_up else 0,
        agent_overloads=0 if case.tries == "left" else MAX_AGENT_OVERLOADS - 1,
        to_pause=case.paused,
        steer_continuations=MAX_STEER_CONTINUATIONS if case.late == "too often" else 0,
    )
    missed_messages = () if case.late == "no" else ("signal.yaml",)
    situation = Situation(
        agents=AgentChain(("first", "second") if case.second else ("first",)),
        unavailable={},
        is_over_limit=case.over_limit,
        is_ending=case.ending,
        now=NOW,
    )
    returned = ReturnedTurn(turn, replace(result, **changes), work, missed_messages)
    return decide_follow_up(returned, situation)


@cache
def every_follow_up() -> tuple[tuple[Case, FollowUp], ...]:
    return tuple((case, decide(case)) for case in every_case())


class TestEveryCombination:
    @pytest.mark.parametrize("end", TurnEnd)
    def test_the_table_says_what_follows(self, end: TurnEnd) -> None:
        cases = [(case, follow_up) for case, follow_up in every_follow_up() if case.end is end]
        assert cases
        for case, follow_up in cases:
            assert (follow_up.next, follow_up.result.end) == expected(case), case

    @pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[1]}: {row[0]}")
    def test_no_row_is_without_effect(self, row: Row) -> None:
        earlier = TABLE[: TABLE.index(row)]
        assert any(fits(case, row) and not any(fits(case, one) for one in earlier) for case in every_case())

    def test_rules_hold_for_every_combination(self) -> None:
        request = TurnRequest("key", "role", Prompt.of("do it"), is_iteration=True)
        for case, follow_up in every_follow_up():
            has_next = follow_up.next not in (NextStep.SETTLED, NextStep.LATER)
            assert (follow_up.at is not None, bool(follow_up.reason)) == (has_next, has_next), case
            assert follow_up.at is None or follow_up.at >= NOW
            is_available = follow_up.result.end is not TurnEnd.UNAVAILABLE
            assert follow_up.completes_iteration(request) == (follow_up.next is NextStep.SETTLED and is_available), case
            assert (follow_up.stop is not None) == (follow_up.next is NextStep.SETTLED and not is_available), case
            assert not follow_up.completes_iteration(replace(request, is_iteration=False))


class TestReasons:
    def test_a_broken_answer_that_is_required_fails_with_all_its_errors(self) -> None:
        follow_up = decide(Case(broken=True, repair=True, required=True))
        assert (follow_up.result.error, follow_up.reason) == ("no summary; no status", "no summary; no status")

    def test_rejected_documents_are_retried_without_a_wait_and_remembered(self) -> None:
        turn = Turn(
            7,
            3,
            TurnRequest("key", "role", Prompt.of("do it"), answer_required=True),
            errors_to_repair=("x",),
            agent="a",
        )
        first = TurnEnded(
            "key", 6, "role", 3, TurnResult(FINISHED, 0, 1, answer_errors=("no id",)), repair_follows=True
        )
        work = PendingWork(attempt=3, turn_to_repair=first)
        result = TurnResult(FINISHED, 2, 3, answer_errors=("no id", "no files"))
        follow_up = decide_follow_up(ReturnedTurn(turn, result, work, ()), situation())
        assert (follow_up.next, follow_up.at) == (NextStep.RETRY, situation().now)
        work.note_turn_ended(TurnEnded("key", 7, "role", 3, follow_up.result, retry_at=follow_up.at))
        assert work.turn_to_repair is None and work.rejected_turn is not None
        assert work.rejected_turn.result.answer_errors == ("no id", "no files")

    def test_a_repair_says_what_is_wrong(self) -> None:
        assert decide(Case(broken=True)).reason == "the answer does not match its schema: no summary"

    @pytest.mark.parametrize(
        ("end", "error", "reason"),
        [
            (FAILED, "exit code 3: no space left", "exit code 3: no space left"),
            (FAILED, "", "the turn ended as failed"),
            (TurnEnd.IDLE, "", "the turn ended as idle"),
            (TurnEnd.OVERLOADED, "", "the provider is overloaded"),
            (TurnEnd.OVERLOADED, "529 overloaded", "529 overloaded"),
            (TurnEnd.INTERRUPTED, "its keeper died", "the turn was interrupted"),
        ],
    )
    def test_a_retry_says_why(self, end: TurnEnd, error: str, reason: str) -> None:
        assert decide(Case(end), error=error).reason == reason

    def test_a_run_without_a_usable_agent_ends_with_its_error(self) -> None:
        follow_up = decide(Case(TurnEnd.UNAVAILABLE), error="not signed in; run `claude login`")
        assert follow_up.stop == Stop(Outcome.AGENT_UNAVAILABLE, "not signed in; run `claude login`")

    def test_another_agent_takes_over(self) -> None:
        assert decide(Case(TurnEnd.LIMITED, second=True)).reason == "second takes over from first"

    def test_notice_says_that_a_message_waits_for_the_next_turn(self) -> None:
        follow_up = decide(Case(late="too often"))
        assert follow_up.notice == (
            "Turn 7 was already continued 2 times for your messages; the next turn receives signal.yaml."
        )
        assert decide(Case(late="yes")).notice == ""


class TestWaits:
    def test_a_limit_ends_when_the_agent_says_or_after_a_while(self) -> None:
        assert decide(Case(TurnEnd.LIMITED), resets_at=NOW + 77).at == NOW + 77
        assert decide(Case(TurnEnd.LIMITED), resets_at=NOW - 1).at == NOW + LIMIT_WAIT
        assert decide(Case(TurnEnd.LIMITED)).at == NOW + LIMIT_WAIT

    @pytest.mark.parametrize(
        ("overloads", "number", "seconds"), [(0, 1, 5.295), (1, 1, 15.885), (1, 2, 13.02), (7, 5, 238.5), (8, 1, None)]
    )
    def test_overload_is_waited_out_longer_each_time_give_or_take_a_quarter(
        self, overloads: int, number: int, seconds: float | None
    ) -> None:
        turn = Turn(number, 1, TurnRequest("key", "role", Prompt.of("do it")), agent="a")
        result = TurnResult(TurnEnd.OVERLOADED, 0, 1)
        follow_up = decide_follow_up(ReturnedTurn(turn, result, PendingWork(overloads=overloads), ()), situation())
        assert follow_up.at == (None if seconds is None else pytest.approx(NOW + seconds))

    @pytest.mark.parametrize("attempt", range(1, 6))
    def test_failures_wait_longer_each_time_and_then_no_more(self, attempt: int) -> None:
        request = TurnRequest("key", "role", Prompt.of("do it"))
        returned = ReturnedTurn(
            Turn(1, attempt, request, agent="a"), TurnResult(FAILED, 0, 1), PendingWork(attempt=attempt), ()
        )
        waits = {1: NOW, 2: NOW + 30, 3: NOW + 60, 4: NOW + 60, 5: None}
        assert decide_follow_up(returned, situation()).at == waits[attempt]
        late = replace(returned, result=TurnResult(TurnEnd.WALL, 0, 1))
        assert decide_follow_up(late, situation()).next is NextStep.SETTLED
        retried = Turn(1, attempt, replace(request, retries_timeouts=True), agent="a")
        assert decide_follow_up(replace(late, turn=retried), situation()).at == waits[attempt]
        no_retries = replace(returned, turn=Turn(1, attempt, replace(request, retries=0), agent="a"))
        assert decide_follow_up(no_retries, situation()).next is NextStep.SETTLED


def situation() -> Situation:
    return Situation(agents=AgentChain(("a",)), unavailable={}, is_over_limit=False, is_ending=False, now=NOW)


class TestRepairs:
    def test_the_repaired_answer_goes_with_the_work_of_the_first_turn(self) -> None:
        first = TurnResult(FINISHED, 0, 1, text="I did it", change=Change("s1", files=3), answer_errors=("no summary",))
        broken = TurnEnded("key", 1, "role", 1, first, repair_follows=True)
        repair = TurnResult(FINISHED, 2, 3, text="fixed", change=Change("s2", files=0), answer={"summary": "s"})
        turn = Turn(2, 1, TurnRequest("key", "role", Prompt.of("do it")), errors_to_repair=("no summary",), agent="a")
        work = PendingWork()
        work.note_turn_ended(broken)
        result = decide_follow_up(ReturnedTurn(turn, repair, work, ()), situation()).result
        assert (result.text, result.change, result.answer) == ("I did it", Change("s2", files=0), {"summary": "s"})
        ended = TurnEnded("key", 2, "role", 1, result, earlier=work.earlier)
        assert ended.change == Change("s2", files=3)

    def test_the_changes_of_all_turns_for_the_same_work_are_added_up(self) -> None:
        first = Change("s1", 2, 5, 1, stats=(FileStat("a", 3, 1), FileStat("b", 2)))
        second = Change("s2", 1, 4, 0, stats=(FileStat("a", 4),))
        work = PendingWork()
        work.note_turn_ended(TurnEnded("key", 1, "role", 1, TurnResult(TurnEnd.STEERED, 0, 1, change=first)))
        assert [(one.turn, one.end) for one in work.earlier] == [(1, TurnEnd.STEERED)]
        ended = TurnEnded("key", 2, "role", 1, TurnResult(FINISHED, 2, 3, change=second), earlier=work.earlier)
        assert ended.change == Change("s2", 2, 9, 1, stats=(FileStat("b", 2), FileStat("a", 7, 1)))


class TestResponses:
    def test_reason_to_continue_names_a_message_only_if_there_is_one(self) -> None:
        with_message = "it continues with the message from the user"
        assert decide(Case(paused=True)).reason == "the user paused it"
        assert decide(Case(late="yes")).reason == with_message
        assert decide(Case(late="yes", paused=True)).reason == with_message

    def test_a_response_to_steering_counts_only_if_the_user_steered(self) -> None:
        answer = {"summary": "s", "steering": {"response": "adjusted"}}
        turn = Turn(1, 1, TurnRequest("key", "role", Prompt.of("do it")), agent="a")
        result = TurnResult(FINISHED, 0, 1, answer=answer)
        for work, heard, kept in (
            (PendingWork(), (), None),
            (PendingWork(messages=("one",)), (), answer["steering"]),
            (PendingWork(), ("one",), answer["steering"]),
        ):
            follow_up = decide_follow_up(ReturnedTurn(turn, replace(result, received=heard), work, ()), situation())
            assert follow_up.result.answer == {"summary": "s", "steering": kept}


class TestHowATurnEnded:
    @pytest.mark.parametrize(
        ("facts", "end"),
        [
            ({}, FINISHED),
            ({"announces_end": True}, FAILED),
            ({"announces_end": True, "said_finished": True}, FINISHED),
            ({"announces_end": True, "said_finished": True, "code": 1}, FAILED),
            ({"code": 1}, FAILED),
            ({"code": None}, FAILED),
            ({"failure": Failure.LIMIT}, TurnEnd.LIMITED),
            ({"failure": Failure.LIMIT, "said_finished": True}, FINISHED),
            ({"failure": Failure.OVERLOAD, "code": 1}, TurnEnd.OVERLOADED),
            ({"failure": Failure.ACCESS, "code": 1}, TurnEnd.UNAVAILABLE),
            ({"failure": Failure.AGENT, "code": 1}, FAILED),
            ({"reason": "idle", "said_finished": True}, TurnEnd.IDLE),
            ({"reason": "wall"}, TurnEnd.WALL),
            ({"reason": "cut"}, TurnEnd.CUT),
            ({"reason": "stopped"}, TurnEnd.STOPPED),
            ({"reason": "interrupted"}, TurnEnd.INTERRUPTED),
            ({"reason": "steered"}, TurnEnd.STEERED),
            ({"reason": "exec", "code": None}, TurnEnd.UNAVAILABLE),
        ],
    )
    def test_the_agent_and_its_exit_have_to_agree(self, facts: dict[str, Any], end: TurnEnd) -> None:
        usual: dict[str, Any] = {
            "reason": "exit",
            "code": 0,
            "said_finished": False,
            "announces_end": False,
            "failure": None,
        }
        assert classify_end(**{**usual, **facts}) is end


class TestCounters:
    @pytest.mark.parametrize(
        ("end", "more", "counters"),
        [
            (FAILED, {}, (2, 0, 0, 0)),
            (TurnEnd.IDLE, {}, (2, 0, 0, 0)),
            (TurnEnd.INTERRUPTED, {}, (1, 1, 0, 0)),
            (TurnEnd.OVERLOADED, {}, (1, 0, 1, 0)),
            (TurnEnd.STEERED, {}, (1, 0, 0, 0)),
            (TurnEnd.STEERED, {"missed_messages": ("one",)}, (1, 0, 0, 0)),
            (TurnEnd.LIMITED, {}, (1, 0, 0, 0)),
            (TurnEnd.UNAVAILABLE, {}, (1, 0, 0, 0)),
            (FINISHED, {"repair_follows": True}, (1, 0, 0, 0)),
        ],
    )
    def test_each_end_has_its_own_counter(self, end: TurnEnd, more: dict[str, Any], counters: tuple[int, ...]) -> None:
        work = PendingWork()
        work.note_turn_ended(TurnEnded("key", 1, "role", 1, TurnResult(end, 0, 1), retry_at=2.0, **more))
        assert (work.attempt, work.interruptions, work.overloads, work.steer_continuations) == counters

    def test_only_a_turn_that_ended_by_itself_counts_as_continued_for_a_message(self) -> None:
        work = PendingWork()
        result = TurnResult(TurnEnd.STEERED, 0, 1, is_own_end=True)
        work.note_turn_ended(TurnEnded("key", 1, "role", 1, result, retry_at=2.0, missed_messages=("one",)))
        assert work.steer_continuations == 1

    def test_another_agent_begins_with_no_overloads_of_its_own(self) -> None:
        work = PendingWork(
            agent="a", agent_overloads=3, overloads=4, messages=("one",), missed_messages=("two",), to_pause=True
        )
        work.note_turn_started(
            TurnStarted(turn=2, key="key", role="role", attempt=1, agent="a", messages=("two", "one")), 5.0
        )
        assert (work.agent_overloads, work.overloads, work.opened_at) == (3, 4, 5.0)
        assert (work.messages, work.missed_messages, work.to_pause) == (("one", "two"), (), False)
        work.note_turn_started(
            TurnStarted(turn=3, key="key", role="role", attempt=1, agent="b", is_iteration=True), 6.0
        )
        assert (work.agent_overloads, work.overloads, work.agent, work.is_iteration) == (0, 4, "b", True)

    def test_messages_stay_in_the_order_in_which_they_came(self) -> None:
        work = PendingWork(messages=("one",))
        result = TurnResult(FAILED, 0, 1, received=("two", "one"))
        work.note_turn_ended(TurnEnded("key", 1, "role", 1, result, retry_at=2.0, missed_messages=("three",)))
        assert (work.messages, work.missed_messages) == (("one", "two"), ("three",))

    def test_work_without_a_turn_continues_no_conversation(self) -> None:
        assert PendingWork().agent_session == ""

    def test_a_rejected_repair_is_remembered_and_only_then(self) -> None:
        broken = TurnEnded(
            "key", 1, "role", 1, TurnResult(FINISHED, 0, 1, answer_errors=("e",)), repair_follows=True, retry_at=1.0
        )
        again = TurnEnded("key", 2, "role", 1, TurnResult(FAILED, 0, 1, answer_errors=("e",)), retry_at=2.0)
        work = PendingWork()
        work.note_turn_ended(again)
        assert (work.rejected_turn, work.attempt) == (None, 2)
        work.note_turn_ended(broken)
        assert work.turn_to_repair is broken
        work.note_turn_ended(again)
        assert (work.rejected_turn, work.turn_to_repair, work.attempt) == (again, None, 3)

    def test_interruptions_beyond_the_most_are_attempts(self) -> None:
        work = PendingWork(interruptions=MAX_INTERRUPTIONS)
        work.note_turn_ended(TurnEnded("key", 1, "role", 1, TurnResult(TurnEnd.INTERRUPTED, 0, 1), retry_at=2.0))
        assert (work.attempt, work.interruptions) == (2, MAX_INTERRUPTIONS)

    def test_a_conversation_continues_after_a_repair_an_interruption_or_steering_alone(self) -> None:
        for end, repair, session in (
            (TurnEnd.INTERRUPTED, False, "s1"),
            (TurnEnd.STEERED, False, "s1"),
            (FINISHED, True, "s1"),
            (FAILED, False, ""),
            (TurnEnd.OVERLOADED, False, ""),
        ):
            work = PendingWork()
            result = TurnResult(end, 0, 1, agent_session="s1", usage=Usage(5, 0))
            work.note_turn_ended(TurnEnded("key", 1, "role", 1, result, retry_at=2.0, repair_follows=repair))
            assert work.agent_session == session
            assert work.used == {"s1": Usage(5, 0)}
