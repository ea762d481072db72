"""Who does a turn: chains of agents, limits, agents that are not there, escalation, and conversations that go on."""

from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import EPOCH, Play, PowerCut, Simulation, works

from ralph.core.events import TurnEnded
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.prompt import Prompt
from ralph.core.turns import Turn, TurnEnd, TurnRequest
from ralph.engine.follow_up import NEVER, AgentChain, PendingWork

# Written out: a test that imports what it checks cannot fail.
LIMIT_WAIT = 300.0
OVERLOAD_WAITS = (5.0, 15.0, 45.0, 120.0, 300.0, 300.0, 300.0, 300.0)

BOTH = AgentChain(("first", "second"))
LIMITED = Play(seconds=2.0, end=TurnEnd.LIMITED, resets_in=100.0, error="limit reached")
AWAY = Play(seconds=2.0, end=TurnEnd.UNAVAILABLE, error="not signed in")


def pick_agent(
    chain: AgentChain, role: str, failures: int, unavailable: dict[str, float], now: float
) -> tuple[str, float]:
    request = TurnRequest("key", role, Prompt(), turns_without_progress=failures)
    return chain.pick(request, PendingWork(), unavailable, now)


def by_agent(**plays: Play) -> Callable[[Turn], Play]:
    return lambda turn: plays[turn.agent]


def agents(sim: Simulation) -> list[str]:
    return [sim.processes[number].turn.agent for number in sorted(sim.processes)]


class TestPicking:
    def test_the_first_that_is_free_in_the_order_of_the_role(self) -> None:
        roster = AgentChain(("a", "b"), {"debugger": ("c", "a")}, escalation="d", escalate_after=2)
        assert pick_agent(roster, "implementer", 0, {}, 10.0) == ("a", 10.0)
        assert pick_agent(roster, "implementer", 0, {"a": 11.0}, 10.0) == ("b", 10.0)
        assert pick_agent(roster, "debugger", 1, {}, 10.0) == ("c", 10.0)
        assert pick_agent(roster, "debugger", 2, {}, 10.0) == ("d", 10.0)
        assert pick_agent(roster, "implementer", 2, {"d": 99.0}, 10.0) == ("a", 10.0)

    @settings(max_examples=100)
    @given(st.dictionaries(st.sampled_from("abc"), st.one_of(st.floats(0, 50), st.just(NEVER))), st.floats(0, 50))
    def test_no_process_waits_longer_than_it_must(self, resting: dict[str, float], now: float) -> None:
        label, at = pick_agent(AgentChain(("a", "b", "c")), "x", 0, resting, now)
        assert at == max(now, resting.get(label, 0.0))
        assert all(at <= max(now, resting.get(other, 0.0)) for other in "abc")


class TestTheChain:
    def test_the_next_takes_over_at_once_and_the_preferred_comes_back(self, tmp_path: Path) -> None:
        turns = iter([LIMITED, Play(seconds=60.0), Play(seconds=60.0), Play(works, seconds=1.0)])
        sim = Simulation(tmp_path, lambda turn: next(turns), roster=BOTH)
        assert sim.run().outcome is Outcome.SUCCESS
        assert agents(sim) == ["first", "second", "second", "first"]
        assert sim.starts[1] - sim.starts[0] < 4
        assert sim.spent.iterations == 3, "a turn that ran into a limit is no iteration"

    def test_loop_waits_for_the_agent_that_is_free_first(self, tmp_path: Path) -> None:
        soon = Play(seconds=2.0, end=TurnEnd.LIMITED, resets_in=30.0)
        turns = iter([LIMITED, soon, Play(works, seconds=1.0)])
        sim = Simulation(tmp_path, lambda turn: next(turns), roster=BOTH, limits=Limits(active_seconds=60.0))
        assert sim.run().outcome is Outcome.SUCCESS
        assert agents(sim) == ["first", "second", "second"]
        assert sim.starts[2] - sim.starts[1] >= 30

    def test_the_wait_survives_a_killed_engine(self, tmp_path: Path) -> None:
        turns = iter([LIMITED, Play(works, seconds=1.0)])
        sim = Simulation(tmp_path, lambda turn: next(turns))
        sim.after(40.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.starts[1] - sim.starts[0] >= 100

    def test_an_agent_at_its_limit_is_passed_over_by_later_engines_until_it_ends(self, tmp_path: Path) -> None:
        limited = Play(seconds=1.0, end=TurnEnd.LIMITED, resets_in=500.0)
        plays = {"first": iter([limited, Play(works, seconds=1.0)]), "second": repeat(Play(seconds=100.0))}
        sim = Simulation(tmp_path, lambda turn: next(plays[turn.agent]), roster=BOTH)
        sim.after(150.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        sim.after(100.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        assert sim.run().outcome is Outcome.SUCCESS
        used = agents(sim)
        assert (used[0], used[-1], set(used[1:-1])) == ("first", "first", {"second"})
        assert sim.starts[-1] - sim.starts[0] >= 500

    def test_an_agent_that_only_the_user_can_repair_is_passed_over_until_the_next_start(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, by_agent(first=AWAY, second=Play(seconds=100.0)), roster=BOTH)
        sim.after(250.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        assert agents(sim) == ["first", "second", "second", "second"]
        sim.script = by_agent(first=Play(works, seconds=1.0), second=Play(seconds=100.0))
        assert sim.run().outcome is Outcome.SUCCESS
        assert agents(sim)[-1] == "first"

    def test_limit_without_a_known_end_is_retried_later(self, tmp_path: Path) -> None:
        turns = iter([Play(seconds=1.0, end=TurnEnd.LIMITED), Play(works, seconds=1.0)])
        sim = Simulation(tmp_path, lambda turn: next(turns))
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.starts[1] - sim.starts[0] >= LIMIT_WAIT

    def test_agent_that_is_not_signed_in_is_skipped(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, by_agent(first=AWAY, second=Play(works, seconds=1.0)), roster=BOTH)
        assert sim.run().outcome is Outcome.SUCCESS
        assert agents(sim) == ["first", "second"]

    def test_run_without_an_available_agent_stops_and_a_resume_tries_again(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, by_agent(first=AWAY, second=AWAY), roster=BOTH)
        stop = sim.run()
        assert (stop.outcome, stop.reason) == (Outcome.AGENT_UNAVAILABLE, "not signed in")
        assert agents(sim) == ["first", "second"]
        sim.script = by_agent(first=Play(works, seconds=1.0), second=AWAY)
        assert sim.run().outcome is Outcome.SUCCESS
        assert agents(sim) == ["first", "second", "first"]

    def test_overload_is_waited_out_longer_each_time(self, tmp_path: Path) -> None:
        busy = Play(seconds=1.0, end=TurnEnd.OVERLOADED, error="529")
        turns = iter([busy, busy, busy, Play(works, seconds=1.0)])
        sim = Simulation(tmp_path, lambda turn: next(turns))
        assert sim.run().outcome is Outcome.SUCCESS
        waits = [later - earlier - 1.0 for earlier, later in zip(sim.starts, sim.starts[1:], strict=False)]
        assert all(0.7 * want <= wait <= 1.4 * want for wait, want in zip(waits, OVERLOAD_WAITS, strict=False))
        assert sim.spent.iterations == 1

    def test_after_two_overloaded_tries_the_next_takes_over_and_the_first_comes_back(self, tmp_path: Path) -> None:
        busy = Play(seconds=1.0, end=TurnEnd.OVERLOADED, error="529")
        plays = {"first": iter([busy, busy, Play(works, seconds=1.0)]), "second": repeat(Play(seconds=400.0))}
        sim = Simulation(tmp_path, lambda turn: next(plays[turn.agent]), roster=BOTH)
        assert sim.run().outcome is Outcome.SUCCESS
        assert agents(sim) == ["first", "first", "second", "first"]
        assert sim.starts[2] - sim.starts[0] < 30, "nobody waits for an overloaded agent while another one is free"

    def test_work_is_given_up_if_all_agents_stay_overloaded(self, tmp_path: Path) -> None:
        busy = Play(seconds=1.0, end=TurnEnd.OVERLOADED, error="529")
        sim = Simulation(tmp_path, by_agent(first=busy, second=busy), roster=BOTH)
        assert sim.run().outcome is not Outcome.SUCCESS
        assert set(agents(sim)) == {"first", "second"}
        assert len(sim.processes) <= 40

    @pytest.mark.slow
    def test_overload_that_does_not_end_is_given_up(self, tmp_path: Path) -> None:
        busy = Play(seconds=1.0, end=TurnEnd.OVERLOADED, error="529")
        sim = Simulation(tmp_path, lambda turn: busy)
        stop = sim.run()
        assert (stop.outcome, stop.reason) == (Outcome.AGENT_UNAVAILABLE, "the provider stays overloaded (529)")
        assert len(sim.processes) <= 30


class TestRoles:
    def test_stronger_agent_takes_over_if_there_is_no_progress(self, tmp_path: Path) -> None:
        roster = AgentChain(("small",), escalation="large", escalate_after=2)
        sim = Simulation(tmp_path, by_agent(small=Play(seconds=1.0), large=Play(works, seconds=1.0)), roster=roster)
        assert sim.run().outcome is Outcome.SUCCESS
        assert agents(sim) == ["small", "small", "large"]


class TestConversations:
    def test_a_repair_continues_with_the_same_conversation(self, tmp_path: Path) -> None:
        broken = Play(seconds=1.0, errors=("summary: missing",), session="s-1")
        turns = iter([broken, Play(works, seconds=1.0, session="s-1")])
        sim = Simulation(tmp_path, lambda turn: next(turns))
        sim.run()
        assert [sim.processes[number].turn.agent_session for number in (1, 2)] == ["", "s-1"]

    def test_an_interrupted_turn_is_gone_on_with_and_a_failed_one_is_not(self, tmp_path: Path) -> None:
        lost = Play(seconds=1.0, end=TurnEnd.INTERRUPTED, session="s-1")
        failed = Play(seconds=1.0, end=TurnEnd.FAILED, session="s-2")
        turns = iter([lost, failed, Play(works, seconds=1.0)])
        sim = Simulation(tmp_path, lambda turn: next(turns))
        sim.run()
        assert [sim.processes[number].turn.agent_session for number in (1, 2, 3)] == ["", "s-1", ""]

    def test_another_agent_does_not_get_it(self, tmp_path: Path) -> None:
        broken = Play(seconds=1.0, errors=("summary: missing",), session="s-1")
        turns = iter([broken, LIMITED, Play(works, seconds=1.0)])
        sim = Simulation(tmp_path, lambda turn: next(turns), roster=BOTH)
        sim.run()
        assert [(sim.processes[n].turn.agent, sim.processes[n].turn.agent_session) for n in (1, 2, 3)] == [
            ("first", ""),
            ("first", "s-1"),
            ("second", ""),
        ]
        assert sim.entries(TurnEnded)[0].result.agent_session == "s-1"
        assert sim.clock.now() > EPOCH
