"""The kernel, under a simulated clock, with simulated agents and the real store and loop."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from simulation import EPOCH, RUN, Disk, Play, PowerCut, Simulation, VirtualClock, VirtualLoop, breaks, works

from ralph.core.checks import CheckStatus
from ralph.core.entries import LimitExtended, Notice, Record, RunStarted, SnapshotTaken
from ralph.core.errors import StateError, UsageError
from ralph.core.events import (
    ChecksEnded,
    Decision,
    Do,
    DocumentEdited,
    Event,
    RunEnded,
    SignalAccepted,
    Stop,
    Transition,
    TurnEnded,
    TurnStarted,
)
from ralph.core.limits import Limits, Quota
from ralph.core.outcomes import Outcome
from ralph.core.prompt import Prompt
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import CHECKED, Turn, TurnEnd, TurnRequest
from ralph.workflows.loop import HOME

# Written out: a test that imports what it checks cannot fail.
LIMIT_WAIT = 300.0
MAX_INTERRUPTIONS = 5
REMEMBERED = 10

FAILS = Play(end=TurnEnd.FAILED, error="exit code 1")
UNLIMITED = Limits(iterations=None, active_seconds=None)


def forever(play: Play) -> Callable[[Turn], Play]:
    return lambda turn: play


def killed_after(sim: Simulation, seconds: float) -> None:
    """Run an engine and kill it so many seconds after the beginning of the world."""
    sim.after(seconds, sim.kill_engine)
    with pytest.raises(PowerCut):
        sim.run()


def edited(sim: Simulation, **values: Any) -> None:
    """Edit `state.json` by hand."""
    state = json.loads(sim.state_path.read_text())
    sim.state_path.write_text(json.dumps({**state, **values}))


class TestTheLoop:
    def test_a_met_criterion_ends_the_run_before_any_turn(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path)
        sim.tree.add("works")
        assert sim.run().outcome is Outcome.NOTHING_TO_DO
        assert sim.spent.turns == 0

    def test_verified_work_is_success(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)])
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.verdicts == [("baseline", False), ("iteration-1", False), ("iteration-2", True)]
        assert (sim.spent.iterations, sim.spent.turns, sim.spent.cost) == (2, 2, 0.5)

    def test_work_that_a_later_check_finds_broken_is_not_a_success(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works), Play(works)], checks=("works", "tested"), limits=Limits(iterations=2))
        assert sim.run().outcome is Outcome.LIMIT_ITERATIONS

    def test_the_next_prompt_quotes_what_failed_and_what_was_learned(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(answer={"summary": "tried A", "learned": "A is not enough"}), Play(works)])
        sim.run()
        prompt = sim.processes[2].turn.request.prompt.text
        assert "output of works" in prompt
        assert "A is not enough" in prompt

    def test_success_survives_a_crash_before_the_run_ended(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.onlooker.on_record = lambda record: (  # type: ignore[method-assign]
            sim.kill_engine() if isinstance(record.entry, ChecksEnded) and record.entry.verdict.passed else None
        )
        with pytest.raises(PowerCut):
            sim.run()
        sim.onlooker.on_record = lambda record: None  # type: ignore[method-assign]
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.turns == 1

    def test_every_end_of_a_run_leaves_a_report(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.run()
        (report,) = (tmp_path / HOME).glob("completion-*.md")
        assert report.read_text().startswith("# Ralph loop: success")

    def test_a_snapshot_is_taken_before_the_run_and_after_every_turn(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)], snapshots=True)
        sim.run()
        assert sim.snapshots is not None
        assert sim.snapshots.labels == ["before the run", CHECKED, "turn 1 (implementer)", "turn 2 (implementer)"]
        assert [ended.result.change.snapshot for ended in sim.entries(TurnEnded) if ended.result.change] == [
            "snapshot-3",
            "snapshot-4",
        ]

    def test_missing_first_snapshot_is_taken_after_an_early_crash(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)], snapshots=True)
        sim.onlooker.on_record = lambda record: (  # type: ignore[method-assign]
            sim.kill_engine() if isinstance(record.entry, RunStarted) and not record.entry.resumed else None
        )
        with pytest.raises(PowerCut):
            sim.run()
        sim.run()
        assert [entry.label for entry in sim.entries(SnapshotTaken)] == ["before the run"]

    def test_the_memory_of_the_engine_stays_flat(self, tmp_path: Path) -> None:
        widest = 0

        def look(sim: Simulation) -> None:
            nonlocal widest
            assert sim.kernel
            widest = max(widest, len(sim.kernel.ledger.pending), *(len(c) for c in sim.kernel.ledger.costs.values()), 0)

        sim = Simulation(tmp_path, forever(Play(look, seconds=1.0)), limits=Limits(iterations=40))
        sim.run()
        assert sim.spent.turns == 40
        assert widest <= 5
        assert sim.ledger().pending == {}
        assert len(json.loads(sim.state_path.read_text())["iterations"]) == REMEMBERED

    def test_the_journal_has_a_line_for_every_step_and_none_for_waiting(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=300.0)])
        sim.run()
        kinds = [type(record.entry).__name__ for record in sim.records()]
        assert kinds == [
            "RunStarted",
            "ChecksStarted",
            "ChecksEnded",
            "TurnStarted",
            "TurnEnded",
            "ChecksStarted",
            "ChecksEnded",
            "RunEnded",
        ]

    def test_the_ledger_of_the_journal_is_the_one_of_the_living_engine(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [FAILS, Play(errors=("no summary",)), Play(), Play(works)])
        live = []
        sim.onlooker.on_record = lambda record: live.append(replace(sim.kernel.ledger))  # type: ignore
        sim.run()
        rebuilt = sim.ledger()
        assert (live[-1].spent, live[-1].last_turn_number, live[-1].pending) == (
            rebuilt.spent,
            rebuilt.last_turn_number,
            rebuilt.pending,
        )

    def test_notices_are_journaled(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.notices = ("took the tree over",)
        sim.run()
        assert sim.entries(Notice) == [Notice("took the tree over")]


class TestVerification:
    def test_a_check_that_is_not_installed_at_the_baseline_is_unverifiable(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path)
        sim.broken_checks["works"] = CheckStatus.NOT_FOUND
        stop = sim.run()
        assert (stop.outcome, stop.outcome.exit_code) == (Outcome.UNVERIFIABLE, 5)
        assert sim.spent.turns == 0

    def test_a_resume_after_unverifiable_runs_the_baseline_again(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.broken_checks["works"] = CheckStatus.NOT_FOUND
        sim.run()
        sim.broken_checks.clear()
        assert sim.run().outcome is Outcome.SUCCESS
        assert [key for key, _ in sim.verdicts] == ["baseline", "baseline", "iteration-1"]

    def test_checks_that_cannot_be_run_three_times_in_a_row_end_the_run(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, forever(Play()))
        sim.broken_checks["works"] = CheckStatus.COULD_NOT_RUN
        assert sim.run().outcome is Outcome.UNVERIFIABLE
        assert sim.spent.iterations == 3

    def test_an_agent_that_cannot_be_started_ends_the_run(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.UNAVAILABLE, seconds=0.0, tells=0, error="no such program")])
        stop = sim.run()
        assert (stop.outcome, stop.outcome.exit_code) == (Outcome.AGENT_UNAVAILABLE, 6)
        assert stop.reason == "no such program"

    def test_an_agent_that_could_not_be_started_has_used_no_iteration(self, tmp_path: Path) -> None:
        missing = Play(end=TurnEnd.UNAVAILABLE, seconds=0.0, tells=0, cost=None)
        sim = Simulation(tmp_path, [missing, Play(works)], limits=Limits(iterations=1))
        sim.run()
        assert sim.spent.iterations == 0
        assert sim.run().outcome is Outcome.SUCCESS


class TestLimits:
    def test_success_on_the_last_allowed_iteration_is_success(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(), Play(works)], limits=Limits(iterations=3))
        assert sim.run().outcome is Outcome.SUCCESS

    def test_iterations(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, forever(Play()), limits=Limits(iterations=3))
        stop = sim.run()
        assert (stop.outcome, stop.outcome.exit_code) == (Outcome.LIMIT_ITERATIONS, 3)
        assert (sim.spent.iterations, len(sim.processes)) == (3, 3)
        assert sim.verdicts[-1] == ("iteration-3", False)

    def test_active_time_cuts_the_turn_that_crosses_it(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0)], limits=Limits(active_seconds=30.0))
        assert sim.run().outcome is Outcome.LIMIT_TIME
        (ended,) = sim.entries(TurnEnded)
        assert ended.result.end is TurnEnd.CUT
        assert 29.0 <= ended.result.seconds <= 30.0
        assert sim.verdicts == [("baseline", False), ("iteration-1", False)]

    def test_the_deadline_cuts_the_turn_that_crosses_it(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0)], limits=Limits(deadline=EPOCH + 50.0))
        assert sim.run().outcome is Outcome.LIMIT_DEADLINE
        assert sim.entries(TurnEnded)[0].result.end is TurnEnd.CUT
        assert EPOCH + 50.0 <= sim.clock.now() <= EPOCH + 52.0

    @pytest.mark.parametrize(
        ("limits", "outcome"),
        [
            (Limits(iterations=1, cost=0.25), Outcome.LIMIT_COST),
            (Limits(iterations=1, tokens=100), Outcome.LIMIT_TOKENS),
            (Limits(cost=0.25, tokens=100), Outcome.LIMIT_COST),
        ],
    )
    def test_of_two_limits_reached_by_the_same_turn_one_is_always_named(
        self, tmp_path: Path, limits: Limits, outcome: Outcome
    ) -> None:
        sim = Simulation(tmp_path, [Play(cost=0.25, tokens=100, tells=1)], limits=limits)
        assert sim.run().outcome is outcome

    @pytest.mark.parametrize(
        ("limits", "outcome"),
        [(Limits(cost=1.0), Outcome.LIMIT_COST), (Limits(tokens=1000), Outcome.LIMIT_TOKENS)],
    )
    def test_money_and_tokens_cut_the_turn_that_crosses_them(
        self, tmp_path: Path, limits: Limits, outcome: Outcome
    ) -> None:
        sim = Simulation(tmp_path, forever(Play(cost=0.75, tokens=750, tells=3, seconds=30.0)), limits=limits)
        stop = sim.run()
        assert (stop.outcome, stop.outcome.exit_code) == (outcome, 3)
        assert [ended.result.end for ended in sim.entries(TurnEnded)] == [TurnEnd.FINISHED, TurnEnd.CUT]
        assert (sim.spent.cost, sim.spent.tokens) == (1.0, 1000)
        assert sim.verdicts[-1] == ("iteration-2", False)

    def test_a_cut_turn_is_verified_and_may_have_been_enough(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(meanwhile=works, cost=4.0)], limits=Limits(cost=3.0))
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.entries(TurnEnded)[0].result.end is TurnEnd.CUT

    def test_an_overshoot_is_visible_in_what_was_spent(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(cost=5.0, tells=1)], limits=Limits(cost=1.0))
        assert sim.run().outcome is Outcome.LIMIT_COST
        assert sim.spent.cost == 5.0
        assert sim.entries(RunEnded)[-1].spent.cost == 5.0

    def test_overshoot_reported_at_the_end_is_verified_once_and_ends_the_run(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(cost=5.0, tells=0)], limits=Limits(cost=1.0))
        assert sim.run().outcome is Outcome.LIMIT_COST
        assert [key for key, _ in sim.verdicts] == ["baseline", "iteration-1"]

    def test_a_failed_turn_that_used_up_the_money_is_not_tried_again_but_verified(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [replace(FAILS, cost=5.0, tells=0)], limits=Limits(cost=1.0))
        assert sim.run().outcome is Outcome.LIMIT_COST
        assert [key for key, _ in sim.verdicts] == ["baseline", "iteration-1"]

    def test_a_broken_answer_is_not_repaired_with_money_that_is_not_there(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(cost=5.0, tells=0, errors=("no summary",))], limits=Limits(cost=1.0))
        assert sim.run().outcome is Outcome.LIMIT_COST

    def test_turn_gets_the_remaining_budget(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)], limits=Limits(cost=1.0))
        sim.run()
        assert [process.turn.budget for process in sim.processes.values()] == [1.0, 0.75]

    def test_agent_without_reported_cost_counts_as_unpriced(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, cost=None)], limits=Limits(cost=1.0))
        assert sim.run().outcome is Outcome.SUCCESS
        assert (sim.spent.cost, sim.spent.unpriced_turns) == (0.0, 1)

    @pytest.mark.parametrize(
        ("limits", "outcome", "extended"),
        [
            (Limits(iterations=2), Outcome.LIMIT_ITERATIONS, Limits(iterations=4)),
            (Limits(cost=0.5), Outcome.LIMIT_COST, Limits(cost=1.0)),
            (Limits(tokens=200), Outcome.LIMIT_TOKENS, Limits(tokens=400)),
            (Limits(active_seconds=12.0), Outcome.LIMIT_TIME, Limits(active_seconds=24.0)),
        ],
    )
    def test_a_resume_grants_the_allowance_once_more(
        self, tmp_path: Path, limits: Limits, outcome: Outcome, extended: Limits
    ) -> None:
        sim = Simulation(tmp_path, forever(Play()), limits=limits)
        assert sim.run().outcome is outcome
        turns = sim.spent.turns
        assert sim.run().outcome is outcome
        (entry,) = sim.entries(LimitExtended)
        assert entry.limits == replace(extended, active_seconds=entry.limits.active_seconds)
        if outcome is Outcome.LIMIT_TIME:
            assert entry.limits.active_seconds == pytest.approx(extended.active_seconds, abs=2.0)
        assert " more" in entry.reason and " in all" in entry.reason
        assert sim.spent.turns == 2 * turns
        assert sim.ledger().limits == entry.limits

    def test_a_resume_after_the_deadline_starts_nothing(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, forever(Play(seconds=30.0)), limits=Limits(deadline=EPOCH + 40.0))
        sim.run()
        turns = len(sim.processes)
        assert sim.run().outcome is Outcome.LIMIT_DEADLINE
        assert len(sim.processes) == turns
        assert sim.entries(LimitExtended) == []

    def test_a_resume_after_another_end_grants_nothing(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)], limits=Limits(iterations=2))
        sim.after(2.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        assert sim.run().outcome is Outcome.PAUSED
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.entries(LimitExtended) == []


class TestRetries:
    def test_the_ladder_waits_0_30_60_and_60_seconds_and_the_tree_is_verified_at_its_end(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [FAILS] * 5)
        stop = sim.run()
        assert (stop.outcome, stop.outcome.exit_code) == (Outcome.FAILED, 9)
        assert "exit code 1" in stop.reason
        ends = [process.result.ended_at - EPOCH for process in sim.processes.values() if process.result]
        waits = [start - end for start, end in zip(sim.starts[1:], ends, strict=False)]
        assert waits == pytest.approx([0.0, 30.0, 60.0, 60.0])
        assert [key for key, _ in sim.verdicts] == ["baseline", "iteration-1"]
        assert (sim.spent.iterations, sim.spent.turns) == (1, 5)
        assert [started.attempt for started in sim.entries(TurnStarted)] == [1, 2, 3, 4, 5]

    def test_work_that_was_done_by_an_agent_that_failed_to_the_end_is_success(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [*[FAILS] * 4, replace(FAILS, does=works)])
        assert sim.run().outcome is Outcome.SUCCESS

    def test_a_retry_that_finishes_ends_the_ladder(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [FAILS, FAILS, Play(), FAILS, Play(works)])
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.iterations == 2
        assert sim.starts[4] - sim.starts[3] == pytest.approx(4.0)

    def test_a_resume_after_failed_begins_a_new_iteration(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [*[FAILS] * 5, Play(works)])
        assert sim.run().outcome is Outcome.FAILED
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.processes[6].turn.request.key == "iteration-2"
        assert sim.spent.iterations == 2

    def test_wait_before_a_retry_continues_after_a_crash(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [FAILS, FAILS, Play(works)])
        killed_after(sim, 20.0)
        sim.clock.pass_by(5.0)
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.starts[2] == pytest.approx(39.0)

    def test_the_waits_for_a_retry_are_not_active_time(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [FAILS, FAILS, Play(works)], limits=Limits(active_seconds=20.0))
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.active_seconds == pytest.approx(12.0 + 2.0)

    def test_the_deadline_ends_the_wait_for_a_retry(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, forever(FAILS), limits=Limits(deadline=EPOCH + 20.0))
        assert sim.run().outcome is Outcome.LIMIT_DEADLINE
        assert sim.clock.now() - EPOCH <= 22.0

    def test_an_idle_turn_is_tried_again_and_a_long_one_is_not(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.IDLE), Play(end=TurnEnd.WALL), Play(works)])
        assert sim.run().outcome is Outcome.SUCCESS
        keys = [process.turn.request.key for process in sim.processes.values()]
        assert keys == ["iteration-1", "iteration-1", "iteration-2"]


class TestProviderLimits:
    def test_the_next_try_comes_when_the_limit_is_over_and_costs_no_iteration(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.LIMITED, resets_in=600.0), Play(works)])
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.starts == pytest.approx([1.0, 605.0])
        assert (sim.spent.iterations, sim.spent.turns) == (1, 2)
        assert [started.attempt for started in sim.entries(TurnStarted)] == [1, 1]

    def test_waiting_for_it_is_not_active_time(self, tmp_path: Path) -> None:
        limited = Play(end=TurnEnd.LIMITED, resets_in=600.0)
        sim = Simulation(tmp_path, [limited, limited, Play(works)], limits=Limits(active_seconds=60.0))
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.active_seconds == pytest.approx(14.0)

    def test_an_agent_that_does_not_say_when_is_tried_again_later(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.LIMITED), Play(works)])
        sim.run()
        assert sim.starts[1] - sim.starts[0] == pytest.approx(4.0 + LIMIT_WAIT)

    def test_limit_with_a_reset_in_the_past_still_waits_before_a_retry(self, tmp_path: Path) -> None:
        limited = Play(end=TurnEnd.LIMITED, resets_in=-10.0, seconds=0.5)
        sim = Simulation(tmp_path, forever(limited), limits=Limits(deadline=EPOCH + 60.0), most_turns=200)
        sim.run()
        assert len(sim.processes) <= 10

    def test_a_pause_ends_the_wait_promptly(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.LIMITED, resets_in=36_000.0), Play(works)])
        sim.after(100.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        assert sim.run().outcome is Outcome.PAUSED
        assert sim.clock.now() - EPOCH <= 101.0
        sim.clock.pass_by(36_000.0)
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.turns == 2

    def test_a_resume_before_the_limit_is_over_waits_for_the_rest(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.LIMITED, resets_in=200.0), Play(works)])
        sim.after(100.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        sim.run()
        sim.clock.pass_by(50.0)
        sim.run()
        assert sim.starts[1] == pytest.approx(205.0)

    def test_the_deadline_ends_the_wait(self, tmp_path: Path) -> None:
        limits = Limits(deadline=EPOCH + 100.0)
        sim = Simulation(tmp_path, [Play(end=TurnEnd.LIMITED, resets_in=36_000.0)], limits=limits)
        assert sim.run().outcome is Outcome.LIMIT_DEADLINE
        assert sim.clock.now() - EPOCH <= 101.0

    def test_an_abort_ends_the_wait(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.LIMITED, resets_in=36_000.0)])
        sim.after(100.0, lambda: sim.mailbox.post(SignalType.ABORT))
        assert sim.run().outcome is Outcome.ABORTED
        assert sim.clock.now() - EPOCH <= 101.0


class TestInterruptions:
    def test_interrupted_turn_is_retried_at_once_and_does_not_count_as_an_iteration(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.INTERRUPTED), Play(works)])
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.starts == pytest.approx([1.0, 5.0])
        assert (sim.spent.iterations, sim.spent.turns) == (1, 2)

    def test_interruptions_without_end_end_the_run(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, forever(Play(end=TurnEnd.INTERRUPTED)), limits=UNLIMITED)
        assert sim.run().outcome is Outcome.FAILED
        assert MAX_INTERRUPTIONS < len(sim.processes) <= MAX_INTERRUPTIONS + 6

    def test_an_engine_that_is_asked_to_leave_ends_the_turn_and_can_be_resumed(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0), Play(works)])
        sim.after(50.0, lambda: sim.kernel.shut_down("SIGTERM"))  # type: ignore[union-attr]
        stop = sim.run()
        assert (stop.outcome, stop.outcome.exit_code) == (Outcome.INTERRUPTED, 143)
        assert sim.processes[1].stopped == "interrupted"
        assert sim.run().outcome is Outcome.SUCCESS
        assert (sim.spent.iterations, sim.spent.turns) == (1, 2)

    def test_a_turn_that_died_with_the_machine_was_not_active_while_the_machine_was_off(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=1e9), Play(works)], limits=Limits(active_seconds=600.0))
        killed_after(sim, 50.0)
        sim.clock.pass_by(36_000.0)
        sim.end(sim.processes[1], TurnEnd.INTERRUPTED)  # as the pool does for a turn whose keeper is gone
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.active_seconds < 600.0


class TestAdoption:
    def test_running_turn_is_adopted(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0)])
        killed_after(sim, 50.0)
        sim.clock.pass_by(20.0)
        assert sim.run().outcome is Outcome.SUCCESS
        assert len(sim.processes) == 1
        assert len(sim.entries(TurnStarted)) == 1

    def test_turn_that_ended_without_an_engine_counts(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0)])
        killed_after(sim, 50.0)
        sim.clock.pass_by(1000.0)
        assert sim.run().outcome is Outcome.SUCCESS
        assert (sim.spent.turns, sim.spent.cost) == (1, 0.25)

    def test_work_of_an_agent_without_an_engine_is_active_time(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0)])
        killed_after(sim, 50.0)
        sim.clock.pass_by(1000.0)
        sim.run()
        assert sim.spent.active_seconds == pytest.approx(100.0 + 2.0, abs=0.1)

    def test_limits_hold_for_an_adopted_turn(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0, cost=4.0)], limits=Limits(cost=3.0))
        killed_after(sim, 60.0)
        assert sim.run().outcome is Outcome.LIMIT_COST
        assert sim.entries(TurnEnded)[0].result.end is TurnEnd.CUT

    def test_repair_turn_is_adopted_as_a_repair_turn(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(errors=("no summary",)), Play(works, seconds=100.0)])
        killed_after(sim, 50.0)
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.turns == 2

    def test_an_abort_that_waits_ends_the_turn_that_a_dead_engine_left_running(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=1000.0)])
        killed_after(sim, 50.0)
        sim.mailbox.post(SignalType.ABORT)
        assert sim.run().outcome is Outcome.ABORTED
        assert sim.processes[1].stopped == "stopped"
        assert sim.spent.turns == 1


class TestRepair:
    ERRORS = ("result.json: the field `summary` is missing", "result.json: `learned`: it must be a text, not `7`")

    def test_a_broken_answer_gets_one_repair_turn_that_quotes_the_errors(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, errors=self.ERRORS), Play(answer={"summary": "did it"})])
        assert sim.run().outcome is Outcome.SUCCESS
        assert [process.turn.errors_to_repair for process in sim.processes.values()] == [(), self.ERRORS]
        assert [started.is_repair for started in sim.entries(TurnStarted)] == [False, True]
        assert (sim.spent.iterations, sim.spent.turns) == (1, 2)
        assert json.loads(sim.state_path.read_text())["iterations"][0]["action"] == "did it"

    def test_there_is_only_one(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(errors=self.ERRORS), Play(errors=("worse",)), Play(works)])
        assert sim.run().outcome is Outcome.SUCCESS
        keys = [process.turn.request.key for process in sim.processes.values()]
        assert keys == ["iteration-1", "iteration-1", "iteration-2"]
        assert sim.processes[3].turn.errors_to_repair == ()

    def test_the_words_of_the_first_turn_are_kept(self, tmp_path: Path) -> None:
        sim = Simulation(
            tmp_path, [Play(errors=self.ERRORS, text="I did the work"), Play(errors=self.ERRORS, text="sorry"), FAILS]
        )
        sim.limits = Limits(iterations=1)
        sim.run()
        assert json.loads(sim.state_path.read_text())["iterations"][0]["action"] == "I did the work"

    @pytest.mark.parametrize("end", [TurnEnd.LIMITED, TurnEnd.INTERRUPTED])
    def test_a_repair_that_could_not_take_place_is_not_replaced_by_the_whole_work(
        self, tmp_path: Path, end: TurnEnd
    ) -> None:
        plays = [Play(works, errors=self.ERRORS), Play(end=end, resets_in=10.0), Play(answer={"summary": "did it"})]
        sim = Simulation(tmp_path, plays)
        assert sim.run().outcome is Outcome.SUCCESS
        assert [bool(process.turn.errors_to_repair) for process in sim.processes.values()] == [False, True, True]


def test_while_nothing_happens_nothing_is_decided_anew(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(seconds=1000.0), Play(works)])
    decide, asked = sim.workflow.decide, []
    sim.workflow = SimpleNamespace(
        load=sim.workflow.load, accept=sim.workflow.accept, decide=lambda *args: asked.append(args) or decide(*args)
    )
    assert sim.run().outcome is Outcome.SUCCESS
    assert len(asked) < 20, "the prompt of a turn that runs is not made again at every look into the mailbox"


class TestSignals:
    def test_a_pause_lets_the_turn_finish_and_ends_the_run(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        stop = sim.run()
        assert (stop.outcome, stop.outcome.exit_code) == (Outcome.PAUSED, 7)
        assert sim.entries(TurnEnded)[0].result.end is TurnEnd.FINISHED
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.turns == 1

    def test_a_resume_takes_a_pause_back(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0), Play(works)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        sim.after(60.0, lambda: sim.mailbox.post(SignalType.RESUME))
        assert sim.run().outcome is Outcome.SUCCESS
        assert [entry.signal.type for entry in sim.entries(SignalAccepted)] == [SignalType.PAUSE, SignalType.RESUME]

    @pytest.mark.parametrize(
        "first",
        [
            FAILS,
            Play(end=TurnEnd.INTERRUPTED),
            Play(errors=("no summary",)),
            Play(end=TurnEnd.LIMITED, resets_in=0.0),
        ],
        ids=["failed", "interrupted", "broken answer", "limited"],
    )
    def test_a_paused_run_starts_no_other_try(self, tmp_path: Path, first: Play) -> None:
        sim = Simulation(tmp_path, [replace(first, seconds=100.0), Play(works)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        assert sim.run().outcome is Outcome.PAUSED
        assert len(sim.processes) == 1
        assert sim.run().outcome is Outcome.SUCCESS

    def test_a_pause_while_the_last_checks_run_does_not_hide_the_success(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.check_seconds = 10.0
        sim.after(20.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.verdicts[-1] == ("iteration-1", True)

    def test_a_pause_while_the_last_checks_run_costs_no_further_turn(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.check_seconds = 10.0
        sim.after(20.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        if sim.run().outcome is Outcome.PAUSED:
            sim.run()
        assert len(sim.processes) == 1

    def test_a_pause_before_the_baseline_is_over_starts_no_turn(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.mailbox.post(SignalType.PAUSE)
        assert sim.run().outcome is Outcome.PAUSED
        assert sim.run().outcome is Outcome.SUCCESS

    def test_an_abort_ends_the_turn_and_the_run_and_accounts_for_both(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0)])
        sim.after(55.0, lambda: sim.mailbox.post(SignalType.ABORT, "wrong task"))
        stop = sim.run()
        assert (stop.outcome, stop.outcome.exit_code, stop.reason) == (Outcome.ABORTED, 8, "wrong task")
        assert sim.clock.now() - EPOCH < 56.0
        assert sim.processes[1].stopped == "stopped"
        assert (sim.spent.turns, sim.spent.iterations, sim.spent.cost) == (1, 0, 0.125)

    def test_an_abort_comes_before_the_others(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0)])

        def post() -> None:
            for kind in (SignalType.PAUSE, SignalType.RESUME, SignalType.ABORT):
                sim.mailbox.post(kind)

        sim.after(50.0, post)
        assert sim.run().outcome is Outcome.ABORTED
        taken = [entry.signal.type for entry in sim.entries(SignalAccepted)]
        assert taken == [SignalType.ABORT, SignalType.PAUSE, SignalType.RESUME]
        assert sim.mailbox.waiting == []

    def test_accepted_abort_holds_after_the_engine_died(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.ABORT))
        sim.onlooker.on_record = lambda record: (  # type: ignore[method-assign]
            sim.kill_engine() if isinstance(record.entry, SignalAccepted) else None
        )
        with pytest.raises(PowerCut):
            sim.run()
        assert sim.run().outcome is Outcome.ABORTED

    def test_unfinished_abort_is_not_cancelled_by_another_signal(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0)])

        def post() -> None:
            for kind in (SignalType.ABORT, SignalType.RESUME):
                sim.mailbox.post(kind)

        sim.after(50.0, post)

        def on_record(record: Record) -> None:
            if isinstance(record.entry, SignalAccepted) and record.entry.signal.type is SignalType.RESUME:
                sim.kill_engine()

        sim.onlooker.on_record = on_record  # type: ignore[method-assign]
        with pytest.raises(PowerCut):
            sim.run()
        assert sim.run().outcome is Outcome.ABORTED

    def test_an_abort_reaches_an_agent_that_wrote_into_the_journal(self, tmp_path: Path) -> None:
        def forge(sim: Simulation) -> None:
            with (sim.run_dir / "journal.jsonl").open("a") as file:
                file.write("forged\n")

        sim = Simulation(tmp_path, [Play(seconds=100.0, meanwhile=forge)])
        sim.after(70.0, lambda: sim.mailbox.post(SignalType.ABORT))
        with pytest.raises(StateError, match="something other than Ralph"):
            sim.run()
        assert sim.processes[1].stopped == "stopped", "nobody can stop it any more"

    def test_aborted_run_does_not_continue(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.ABORT))
        sim.run()
        assert sim.run().outcome is Outcome.ABORTED
        assert sim.spent.turns == 1

    def test_next_engine_only_archives_an_accepted_signal(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0), Play(works)])
        archive = sim.mailbox.archive
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.RESUME))
        sim.mailbox.archive = lambda signal, action, missed=None: sim.kill_engine()
        with pytest.raises(PowerCut):
            sim.run()
        sim.mailbox.archive = archive
        assert sim.run().outcome is Outcome.SUCCESS
        assert len(sim.entries(SignalAccepted)) == 1
        assert sim.mailbox.waiting == []

    def test_a_second_signal_in_a_file_of_the_same_name_counts_too(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=50.0), Play(seconds=50.0), Play(works)])
        sim.after(20.0, lambda: sim.mailbox.post(SignalType.PAUSE, name="pause.yaml"))
        assert sim.run().outcome is Outcome.PAUSED
        sim.after(70.0, lambda: sim.mailbox.post(SignalType.PAUSE, name="pause.yaml"))
        assert sim.run().outcome is Outcome.PAUSED

    def test_ctrl_c_reaches_the_run_without_the_mailbox(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0)])
        sim.after(50.0, lambda: sim.kernel.post_directly(Signal("ctrl-c.1", SignalType.PAUSE)))  # type: ignore[union-attr]
        sim.after(60.0, lambda: sim.kernel.post_directly(Signal("ctrl-c.2", SignalType.ABORT)))  # type: ignore[union-attr]
        assert sim.run().outcome is Outcome.ABORTED
        assert sim.clock.now() - EPOCH < 61.0


class TestEdits:
    def paused(self, tmp_path: Path, *plays: Play) -> Simulation:
        """A run that was paused after its first iteration."""
        first = Play(answer={"summary": "tried", "learned": "nothing"})
        sim = Simulation(tmp_path, [first, *plays])
        sim.after(5.5, lambda: sim.mailbox.post(SignalType.PAUSE))
        assert sim.run().outcome is Outcome.PAUSED
        return sim

    def test_the_task_and_the_notes_of_the_user_are_accepted(self, tmp_path: Path) -> None:
        sim = self.paused(tmp_path, Play(works))
        state = json.loads(sim.state_path.read_text())
        state["iterations"][0]["learnings"] = "look at pager.py"
        edited(sim, task="make it work well", iterations=state["iterations"], mine="kept")
        assert sim.run().outcome is Outcome.SUCCESS
        prompt = sim.processes[2].turn.request.prompt.text
        assert "make it work well" in prompt
        assert "look at pager.py" in prompt
        assert sim.edits == [sim.loop.state_path]
        after = json.loads(sim.state_path.read_text())
        assert (after["task"], after["mine"]) == ("make it work well", "kept")

    def test_edit_during_the_run_is_accepted(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)])
        sim.after(3.0, lambda: edited(sim, task="make it work well"))
        sim.run()
        assert "make it work well" in sim.processes[2].turn.request.prompt.text

    @pytest.mark.parametrize("phase", ["done", "verify", "act"])
    def test_verdict_written_into_the_state_file_is_ignored(self, tmp_path: Path, phase: str) -> None:
        sim = self.paused(tmp_path, Play(), Play(works))
        state = json.loads(sim.state_path.read_text())
        state["iterations"][0]["passed"] = True
        edited(sim, phase=phase, outcome="success", reason="all checks pass", iterations=state["iterations"])
        assert sim.run().outcome is Outcome.SUCCESS
        assert "works" in sim.tree

    def test_a_verdict_that_an_agent_wrote_while_the_engine_was_dead_is_not_believed(self, tmp_path: Path) -> None:
        lie = Play(lambda sim: edited(sim, phase="done", outcome="success"), seconds=100.0)
        sim = Simulation(tmp_path, [lie, Play(works)])
        killed_after(sim, 50.0)
        sim.clock.pass_by(100.0)
        sim.run()
        assert "works" in sim.tree

    def test_state_that_is_not_json_is_refused_and_nothing_is_lost(self, tmp_path: Path) -> None:
        sim = self.paused(tmp_path, Play(works))
        before = sim.state_path.read_text()
        sim.state_path.write_text(before[: len(before) // 2])
        with pytest.raises(StateError, match="not readable as JSON") as caught:
            sim.run()
        assert str(sim.loop.state_path) in caught.value.where
        assert sim.state_path.read_text() == before[: len(before) // 2]
        sim.state_path.write_text(before)
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.spent.turns == 2

    @pytest.mark.parametrize(
        ("values", "said"),
        [
            ({"schema": 99}, "schema version 99"),
            ({"phase": "dreaming"}, "dreaming"),
            ({"iteration": "three"}, "three"),
            ({"iterations": [{"number": 1}]}, "action"),
            ({"iterations": 7}, "a list"),
        ],
    )
    def test_a_state_with_wrong_values_is_refused_by_name(
        self, tmp_path: Path, values: dict[str, Any], said: str
    ) -> None:
        sim = self.paused(tmp_path, Play(works))
        edited(sim, **values)
        with pytest.raises(StateError, match=said):
            sim.run()

    def test_a_copy_that_was_edited_is_written_again(self, tmp_path: Path) -> None:
        sim = self.paused(tmp_path, Play(works))
        copy = tmp_path / HOME / "current-loop.json"
        copy.write_text("{}")
        assert sim.run().outcome is Outcome.SUCCESS
        assert json.loads(copy.read_text())["task"] == "make it work"

    def test_notes_in_an_old_report_are_imported_once(self, tmp_path: Path) -> None:
        sim = self.paused(tmp_path, Play(works, seconds=60.0))
        (report,) = (tmp_path / HOME).glob("completion-*.md")
        report.write_text(report.read_text() + "\nmy own notes\n")
        assert sim.run().outcome is Outcome.SUCCESS
        assert len(sim.edits) <= 1
        assert "my own notes" in report.read_text()

    def test_a_note_in_an_old_report_does_not_make_the_engine_forget_a_finished_turn(self, tmp_path: Path) -> None:
        sim = self.paused(tmp_path, Play(works, seconds=10.0))
        (report,) = (tmp_path / HOME).glob("completion-*.md")
        sim.check_seconds = 30.0
        began = sim.clock.now()
        sim.clock.plan(began + 20.0, lambda: report.write_text("my own notes\n") and None)
        sim.clock.plan(began + 30.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        assert sim.edits != []
        assert sim.run().outcome is Outcome.SUCCESS
        assert len(sim.processes) == 2

    def test_a_huge_edit_does_not_make_the_journal_unreadable(self, tmp_path: Path) -> None:
        sim = self.paused(tmp_path, Play(works))
        (tmp_path / HOME / "current-loop.json").write_text('"' + "x" * (5 * 1024 * 1024) + '"')
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.ended is not None

    def test_two_runs_in_one_project_do_not_take_each_other_for_editors(self, tmp_path: Path) -> None:
        clock = VirtualClock()
        first = Simulation(tmp_path, [Play(works, seconds=10.0)], clock=clock)
        second = Simulation(tmp_path, [Play(works, seconds=10.0)], clock=clock, loop_id="261115-093000-aaaa", task="b")

        async def both() -> list[Stop]:
            return await asyncio.gather(first.drive(), second.drive())

        with Disk().installed(), asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
            stops = runner.run(both())
        assert [stop.outcome for stop in stops] == [Outcome.SUCCESS] * 2
        assert len(first.edits) + len(second.edits) <= 10


@dataclass(frozen=True)
class TwoAtOnce:
    """A workflow that asks for turns side by side, and ends when all of them have ended."""

    wanted: tuple[str, ...] = ("a", "b")
    is_iteration: bool = False

    def load(self, documents: Any) -> frozenset[str]:
        return frozenset(self.wanted)

    def decide(self, state: frozenset[str], now: float) -> Decision:
        if not state:
            return Stop(Outcome.SUCCESS, "all turns ended")
        return Do(
            tuple(
                TurnRequest(key, "executor", Prompt.of("do it"), is_iteration=self.is_iteration)
                for key in sorted(state)
            )
        )

    def accept(self, state: frozenset[str], event: Event, now: float) -> Transition[frozenset[str]]:
        return Transition(state - {event.key} if isinstance(event, TurnEnded) else state)


class TestTurnsSideBySide:
    def test_parallel_turns_count_their_time_once(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=60.0), Play(seconds=90.0)], workflow=TwoAtOnce())
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.starts == [0.0, 0.0]
        assert sim.spent.active_seconds == pytest.approx(90.0)

    def test_turns_that_end_at_the_same_moment_are_both_accounted_for(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=60.0), Play(seconds=60.0)], workflow=TwoAtOnce())
        sim.run()
        assert (sim.spent.turns, sim.spent.cost, sim.spent.input_tokens) == (2, 0.5, 200)

    def test_the_money_of_all_running_turns_is_held_against_the_limit(self, tmp_path: Path) -> None:
        plays = [Play(seconds=100.0, cost=1.0)] * 2
        sim = Simulation(tmp_path, plays, workflow=TwoAtOnce(), limits=Limits(cost=1.0))
        sim.run()
        assert [process.result.end for process in sim.processes.values() if process.result] == [TurnEnd.CUT] * 2
        assert sim.clock.now() - EPOCH == pytest.approx(50.0, abs=1.0)
        assert sim.spent.cost == 1.0

    def test_only_a_turn_whose_agent_is_over_its_share_of_a_quota_is_cut(self, tmp_path: Path) -> None:
        plays = [Play(seconds=100.0, quota=Quota(0.8)), Play(seconds=100.0, quota=Quota(0.7))]
        sim = Simulation(tmp_path, plays, workflow=TwoAtOnce(), limits=Limits(quota=0.75))
        sim.run()
        ends = [process.result.end for process in sim.processes.values() if process.result]
        assert ends == [TurnEnd.CUT, TurnEnd.FINISHED]
        assert sim.processes[1].told == 1, "the first report is enough"

    def test_turn_waits_if_the_money_left_is_reserved_for_others(self, tmp_path: Path) -> None:
        sim = Simulation(
            tmp_path, [Play(cost=0.5)] * 3, workflow=TwoAtOnce(("a",)), limits=Limits(iterations=None, cost=1.2)
        )
        sim.run()
        sim.workflow = TwoAtOnce(("b", "c"))
        sim.clock.pass_by(100.0)
        sim.run()
        started = [entry.reserved for entry in sim.entries(TurnStarted)]
        assert started == [0.0, 0.5, 0.5]
        assert sim.starts[2] >= sim.starts[1] + 4.0, "0.5 spent, 0.5 reserved: another 0.5 do not fit into 1.2"

    def test_no_more_turns_are_started_than_iterations_are_left(self, tmp_path: Path) -> None:
        sim = Simulation(
            tmp_path, [Play()] * 3, workflow=TwoAtOnce(("a", "b", "c"), is_iteration=True), limits=Limits(iterations=2)
        )
        assert sim.run().outcome is Outcome.LIMIT_ITERATIONS
        assert sim.spent.iterations == 2

    def test_an_unavailable_agent_does_not_lose_what_others_did_at_the_same_moment(self, tmp_path: Path) -> None:
        plays = [Play(end=TurnEnd.UNAVAILABLE, cost=None), Play()]
        sim = Simulation(tmp_path, plays, workflow=TwoAtOnce())
        assert sim.run().outcome is Outcome.AGENT_UNAVAILABLE
        assert sorted(ended.turn for ended in sim.entries(TurnEnded)) == [1, 2]

    def test_parallel_turns_are_adopted_after_a_crash(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=60.0), Play(seconds=90.0)], workflow=TwoAtOnce())
        killed_after(sim, 30.0)
        assert sim.run().outcome is Outcome.SUCCESS
        assert (sim.spent.turns, len(sim.processes)) == (2, 2)


def test_a_template_with_an_unknown_variable_is_refused_before_any_turn(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(works)])
    sim.workflow = replace(sim.loop, prompts={**sim.loop.prompts, "loop-actor": "{{tusk}}"})
    with pytest.raises(UsageError, match="tusk"):
        sim.run()
    assert sim.processes == {}
    assert RUN in str(sim.run_dir)


def test_work_that_is_broken_again_by_the_next_turn_is_not_seen_as_done(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(meanwhile=works, does=breaks), Play(works)])
    assert sim.run().outcome is Outcome.SUCCESS
    assert sim.spent.iterations == 2
    assert sim.entries(DocumentEdited) == []
