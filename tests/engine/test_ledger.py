"""The folds over the journal: counters, money, agents that cannot be used, and the signals of the user."""

from typing import Any

import pytest

from ralph.core.checks import HistoryChange
from ralph.core.entries import (
    AgentsChanged,
    HistoryChanged,
    LimitExtended,
    Record,
    RefsRecorded,
    RunStarted,
    SignalReceived,
    SignalRefused,
    SnapshotTaken,
)
from ralph.core.events import RunEnded, SignalAccepted, TurnEnded, TurnStarted
from ralph.core.limits import Limits, Spent, Usage
from ralph.core.outcomes import Outcome
from ralph.core.prompt import Prompt
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.engine.follow_up import AgentChain, PendingWork, find_unavailable_until
from ralph.engine.ledger import Ledger, SignalLog, find_records_to_replay

STEER, INFO, PAUSE = SignalType.STEER, SignalType.INFO, SignalType.PAUSE


def pick_agent(
    chain: AgentChain, role: str, failures: int, unavailable: dict[str, float], now: float
) -> tuple[str, float]:
    request = TurnRequest("key", role, Prompt(), turns_without_progress=failures)
    return chain.pick(request, PendingWork(), unavailable, now)


def record(entry: Any, at: float = 0.0, **documents: str) -> Record:
    return Record(1, at, entry, documents)


def started(turn: int, key: str = "a", **more: Any) -> TurnStarted:
    return TurnStarted(turn=turn, key=key, attempt=1, **{"role": "executor", "agent": "claude", **more})


def ended(turn: int, key: str = "a", end: TurnEnd = TurnEnd.FINISHED, **more: Any) -> TurnEnded:
    facts = {name: more.pop(name) for name in list(more) if name in ("usage", "received", "answer", "resets_at")}
    return TurnEnded(key, turn, more.pop("role", "executor"), 1, TurnResult(end, 0.0, 1.0, **facts), **more)


def fold(*entries: Any, at: float = 0.0) -> Ledger:
    return Ledger.of(Limits(), [record(entry, at) for entry in entries])


def run_started() -> RunStarted:
    return RunStarted(1, "0", "run", {})


def test_hand_overs_are_remembered_until_the_agent_works_again() -> None:
    def taken(turn: int, role: str = "executor") -> TurnStarted:
        return started(turn, role=role, agent="codex", took_over_from="claude", took_over_because="overloaded")

    ledger = fold(started(1), taken(2), taken(3, "reviewer"), started(4, agent="claude"), taken(5), ended(5))
    assert [(one.turn, one.agent, one.took_over_from, one.returned_in) for one in ledger.hand_overs] == [
        (2, "codex", "claude", 4),
        (5, "codex", "claude", 0),
    ]
    text = "turn 2: codex took over from claude (overloaded); claude worked again in turn 4"
    assert ledger.hand_overs[0].text == text


class TestMoney:
    def test_the_next_turn_of_a_role_is_expected_to_cost_what_its_last_five_did(self) -> None:
        costs = (100.0, 1.0, 2.0, 3.0, 4.0, 5.0)
        ledger = fold(*(ended(n, usage=Usage(1, 0, cost)) for n, cost in enumerate(costs)))
        assert ledger.estimate("executor") == 3.0
        assert ledger.estimate("reviewer") == 0.0

    def test_money_is_reserved_for_turns_that_are_in_progress_alone(self) -> None:
        ledger = fold(started(1, "a", reserved=0.5), started(2, "b", reserved=0.25))
        assert ledger.reserved == 0.75
        ledger.apply(record(ended(1, "a")))
        assert ledger.reserved == 0.25

    def test_active_time_is_added_in_milliseconds(self) -> None:
        ledger = Ledger(Limits(), spent=Spent(active_seconds=1.0, turns=3))
        assert ledger.with_activity(0.12345) == Spent(active_seconds=1.123, turns=3)

    def test_only_a_run_that_reached_a_limit_gets_its_allowance_again(self) -> None:
        created = Limits(iterations=5)
        extended = record(LimitExtended(Limits(iterations=10), ""))
        reached = record(RunEnded(Outcome.LIMIT_ITERATIONS, "", Spent(iterations=10), Limits(iterations=10)))
        blocked = record(RunEnded(Outcome.BLOCKED, "", Spent(iterations=10), Limits(iterations=10)))
        assert Ledger.of(created, [extended, reached]).extend_limits().iterations == 15
        assert Ledger.of(created, [extended, blocked]).extend_limits().iterations == 10
        assert Ledger.of(created, []).extend_limits() == created


class TestTurns:
    def test_the_highest_number_counts(self) -> None:
        assert fold(started(3), started(2, "b")).last_turn_number == 3

    def test_iterations_in_progress_are_counted_except_one(self) -> None:
        ledger = fold(started(1, "a", is_iteration=True), started(2, "b", is_iteration=True), started(3, "c"))
        assert (ledger.count_iterations_in_progress("a"), ledger.count_iterations_in_progress("x")) == (1, 2)

    def test_work_is_pending_until_a_turn_settles_it(self) -> None:
        ledger = fold(started(1), ended(1, end=TurnEnd.FAILED, retry_at=5.0))
        assert ledger.pending["a"].attempt == 2
        ledger.apply(record(ended(2)))
        assert ledger.pending == {}

    def test_the_first_start_counts_and_a_start_ends_the_end(self) -> None:
        first = RunStarted(1, "0", "run", {"task": "abc"})
        ledger = fold(first, RunEnded(Outcome.PAUSED, "", Spent(turns=2), Limits()))
        assert ledger.ended is not None and ledger.spent == Spent(turns=2)
        ledger.apply(record(run_started()))
        assert (ledger.ended, ledger.started) == (None, first)

    def test_limits_agents_snapshots_and_refs_are_the_last_ones(self) -> None:
        ledger = fold(
            LimitExtended(Limits(iterations=20), "resumed"),
            AgentsChanged(agents="{}", label="claude"),
            SnapshotTaken("before the run", "s1"),
            RefsRecorded({"refs/heads/main": "abc"}),
            HistoryChanged(1, HistoryChange(missing=("a",))),
            HistoryChanged(2, HistoryChange(missing=("b",))),
        )
        assert (ledger.limits.iterations, ledger.agents_json, ledger.snapshots) == (20, "{}", 1)
        assert (ledger.refs, ledger.missing) == ({"refs/heads/main": "abc"}, ("b",))


class TestAgents:
    def test_an_agent_that_is_free_from_now_on_is_picked(self) -> None:
        chain = AgentChain(("a", "b"))
        assert pick_agent(chain, "role", 0, {"a": 10.0}, 10.0) == ("a", 10.0)
        assert pick_agent(chain, "role", 0, {"a": 10.1}, 10.0) == ("b", 10.0)
        assert pick_agent(chain, "role", 0, {"a": 30.0, "b": 20.0}, 10.0) == ("b", 20.0)

    def test_the_strong_agent_takes_over_after_two_failures(self) -> None:
        chain = AgentChain(("a",), escalation="strong")
        assert [pick_agent(chain, "role", failures, {}, 0.0)[0] for failures in (0, 1, 2, 3)] == [
            "a",
            "a",
            "strong",
            "strong",
        ]

    def test_a_limit_is_remembered_over_a_start_and_a_missing_login_is_not(self) -> None:
        ledger = fold(
            started(1, "a", agent="limited"),
            ended(1, "a", TurnEnd.LIMITED, resets_at=50.0, retry_at=50.0),
            started(2, "b", agent="signed out"),
            ended(2, "b", TurnEnd.UNAVAILABLE),
            at=10.0,
        )
        assert ledger.unavailable == {"limited": 50.0, "signed out": float("inf")}
        ledger.apply(record(run_started(), 20.0))
        assert ledger.unavailable == {"limited": 50.0}

    @pytest.mark.parametrize(
        ("end", "overloads", "resets_at", "until"),
        [
            (TurnEnd.OVERLOADED, 0, None, None),
            (TurnEnd.OVERLOADED, 1, None, 400.0),
            (TurnEnd.LIMITED, 0, 150.0, 150.0),
            (TurnEnd.LIMITED, 0, 100.0, 400.0),
            (TurnEnd.LIMITED, 0, None, 400.0),
            (TurnEnd.UNAVAILABLE, 0, None, float("inf")),
            (TurnEnd.FAILED, 5, None, None),
        ],
    )
    def test_how_long_an_agent_is_passed_over(
        self, end: TurnEnd, overloads: int, resets_at: float | None, until: float | None
    ) -> None:
        result = TurnResult(end, 0.0, 1.0, resets_at=resets_at)
        assert find_unavailable_until(result, PendingWork(agent_overloads=overloads), 100.0) == until


class TestSignalsOfTheRun:
    def test_a_pause_holds_until_a_resume_and_marks_the_work_in_progress(self) -> None:
        ledger = fold(started(1), SignalAccepted(Signal("p", PAUSE)))
        assert ledger.paused and ledger.pending["a"].to_pause
        ledger.apply(record(SignalAccepted(Signal("s", STEER, "x"))))
        assert ledger.paused
        ledger.apply(record(SignalAccepted(Signal("r", SignalType.RESUME))))
        assert not ledger.paused

    def test_abort_is_cancelled_only_after_the_run_has_ended(self) -> None:
        abort, resume = SignalAccepted(Signal("a", SignalType.ABORT)), SignalAccepted(Signal("r", SignalType.RESUME))
        ledger = fold(abort, resume)
        assert ledger.aborted == abort.signal and not ledger.abort_completed
        ledger.apply(record(RunEnded(Outcome.ABORTED, "", Spent(), Limits())))
        assert ledger.abort_completed
        ledger.apply(record(resume))
        assert ledger.aborted is None


def log(*entries: Any, required_roles: tuple[str, ...] = ()) -> SignalLog:
    found = SignalLog(required_roles=required_roles)
    for number, entry in enumerate(entries):
        found.apply(record(entry, float(number)))
    return found


def taken(name: str, kind: SignalType = STEER, message: str = "x", **more: Any) -> SignalAccepted:
    return SignalAccepted(Signal(name, kind, message, stamp=name, **more))


class TestSignalLog:
    def test_a_message_waits_until_a_turn_of_its_role_has_it(self) -> None:
        found = log(taken("a"), taken("b", target="reviewer"))
        assert [one.id for one in found.list_owed_to("executor", is_actor=True)] == ["a"]
        assert [one.id for one in found.list_owed_to("reviewer", is_actor=False)] == ["a", "b"]
        found.apply(record(started(1, messages=("a",))))
        assert found.list_owed_to("executor", is_actor=True) == []
        assert [one.id for one in found.list_owed_to("reviewer", is_actor=False)] == ["b"]

    def test_the_roles_that_a_message_to_all_did_not_reach_are_known(self) -> None:
        found = log(taken("a"), taken("b", target="planner"), required_roles=("planner", "executor"))
        assert found.list_roles_without_receipt(found.accepted["a"]) == ("planner", "executor")
        assert found.list_roles_without_receipt(found.accepted["b"]) == ("planner",)
        found.apply(record(started(1, messages=("a", "b"))))
        assert found.list_roles_without_receipt(found.accepted["a"]) == ("planner",)
        assert found.list_roles_without_receipt(found.accepted["b"]) == ()
        alone = log(taken("a"))
        assert alone.list_roles_without_receipt(alone.accepted["a"]) == ()
        assert not alone.is_received_by_all(alone.accepted["a"])
        alone.apply(record(started(1, messages=("a",))))
        assert alone.is_received_by_all(alone.accepted["a"])

    def test_a_turn_has_a_signal_once_however_it_got_it(self) -> None:
        found = log(
            taken("a"),
            started(1, messages=("a",)),
            SignalReceived("a", 1, "executor", "hook"),
            ended(1, received=("a",)),
        )
        assert [(one.turn, one.means) for one in found.accepted["a"].receipts] == [(1, "prompt")]
        assert not found.is_new_to_turn("a", 1) and found.is_new_to_turn("a", 2) and not found.is_new_to_turn("zzz", 2)
        assert found.accepted["a"].describe_receipts() == "executor (turn 1, prompt)"

    def test_response_to_a_steer_is_stored_in_the_receipt_of_its_turn(self) -> None:
        answer = {"steering": {"response": "adjusted", "note": "done"}}
        found = log(
            taken("a"),
            taken("i", INFO),
            started(1, messages=("a", "i")),
            started(2, messages=("a",)),
            ended(2, answer=answer),
        )
        assert [(one.turn, one.response, one.note) for one in found.accepted["a"].receipts] == [
            (1, "", ""),
            (2, "adjusted", "done"),
        ]
        assert found.accepted["i"].receipts[0].response == ""
        assert [one.signal.id for one in found.list_steers_received_in(1)] == ["a"]

    def test_pause_received_during_a_turn_still_reaches_the_next_prompt(self) -> None:
        found = log(taken("p", PAUSE), SignalReceived("p", 1, "executor", "hook"))
        assert found.accepted["p"].receipts_by_role == {}
        found.apply(record(started(2, messages=("p",))))
        assert list(found.accepted["p"].receipts_by_role) == ["executor"]

    def test_steers_sent_during_a_turn_that_did_not_reach_it_are_missed(self) -> None:
        found = log(
            taken("early"),
            taken("info", INFO),
            taken("empty", message=""),
            taken("other", target="reviewer"),
            taken("late"),
        )
        assert found.list_steers_missed_by(1.0, "executor", is_actor=True, received=()) == ("late",)
        assert found.list_steers_missed_by(0.0, "executor", is_actor=True, received=()) == ("early", "late")
        assert found.list_steers_missed_by(0.0, "executor", is_actor=True, received=("late",)) == ("early",)

    def test_refused_files_are_known_by_name_and_stamp(self) -> None:
        found = log(SignalRefused("bad.yaml", "no such role", "7"), taken("a"))
        assert found.ids == {("bad.yaml", "7"): "", ("a", "a"): "a"}
        assert [(one.name, one.reason, one.at) for one in found.refused] == [("bad.yaml", "no such role", 0.0)]

    def test_a_fresh_agent_is_reminded_of_guidance_and_of_the_last_three_facts(self) -> None:
        facts = [taken(f"fact-{n}", INFO) for n in range(5)]
        found = log(
            taken("rule"),
            taken("later", iteration=9),
            *facts,
            started(1, messages=tuple(f"fact-{n}" for n in range(4))),
        )
        messages = found.select_messages(
            "executor", is_actor=True, new=("rule", "rule", "zzz"), iteration=1, reminds=True
        )
        assert [one.signal.id for one in messages.new] == ["rule"]
        assert [one.signal.id for one in messages.in_force] == []
        assert [one.signal.id for one in messages.facts] == ["fact-1", "fact-2", "fact-3"], (
            "nobody has the last one yet"
        )
        messages = found.select_messages("executor", is_actor=True, new=(), iteration=9, reminds=False)
        assert [one.signal.id for one in messages.in_force] == ["rule", "later"]
        assert (messages.new, messages.facts) == ([], ())


def test_records_after_the_last_that_wrote_documents() -> None:
    plain, writes = record(run_started()), record(run_started(), **{"state.json": "abc"})
    assert find_records_to_replay([plain, plain]) == (plain, plain)
    assert find_records_to_replay([plain, writes, plain]) == (plain,)
    assert find_records_to_replay([writes]) == ()
