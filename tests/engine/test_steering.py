"""What a person says reaches the turns that it is meant for: once, durably, and with an account of it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from simulation import EPOCH, Play, PowerCut, Simulation, works

from ralph.core.entries import Notice, Record, SignalReceived, SignalRefused
from ralph.core.events import Decision, Do, Event, RunEnded, SignalAccepted, Stop, Transition, TurnEnded, TurnStarted
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.prompt import Prompt
from ralph.core.signals import Signal, SignalType, Stage
from ralph.core.turns import TurnEnd, TurnRequest
from ralph.documents.signals import GUIDANCE_FILE
from ralph.store.mailbox import Mailbox
from ralph.workflows.loop.state import OnStuck

# Written out: a test that imports what it checks cannot fail.
IN_FORCE_BUDGET = 12000
MESSAGE_BUDGET = 4000
NEW_BUDGET = 20000

STEER, INFO = SignalType.STEER, SignalType.INFO


def steer_at(
    sim: Simulation, seconds: float, message: str = "use httpx", kind: SignalType = STEER, **more: Any
) -> None:
    sim.after(seconds, lambda: sim.mailbox.post(kind, message, **more))


def words(sim: Simulation) -> list[str]:
    """What each turn was told by its prompt."""
    return [process.turn.guidance for process in sim.processes.values()]


def told(kind: str, message: str, text: str) -> bool:
    """Whether a prompt has a message with its type and time."""
    return (
        re.search(rf"^- {kind}, \d{{4}}-\d\d-\d\d \d\d:\d\d UTC: {re.escape(message)}$", text, re.MULTILINE) is not None
    )


class TestWhileATurnRuns:
    def test_agent_with_a_channel_gets_the_message_at_once_and_the_journal_says_how(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0, hears=True)])
        steer_at(sim, 50.0)
        assert sim.run().outcome is Outcome.SUCCESS
        [heard] = sim.entries(SignalReceived)
        assert (heard.id, heard.turn, heard.role, heard.means) == ("signal.001.yaml", 1, "implementer", "hook")
        assert "use httpx" in sim.processes[1].messages["signal.001.yaml"]
        assert "scope change" in sim.processes[1].messages["signal.001.yaml"], "the ways to answer are told with it"
        assert sim.mailbox.acks["signal.001.yaml", "implementer"]["means"] == "hook"
        assert sim.mailbox.waiting == []

    def test_turn_that_missed_a_message_is_continued_with_it(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0, session="s1"), Play(works)])
        steer_at(sim, 50.0)
        assert sim.run().outcome is Outcome.SUCCESS
        first, second = sim.entries(TurnEnded)
        assert (first.result.end, first.missed_messages) == (TurnEnd.STEERED, ("signal.001.yaml",))
        assert (second.key, second.attempt) == (first.key, 1), "neither another piece of work nor a failure"
        assert sim.spent.iterations == 1
        assert told("STEER", "use httpx", words(sim)[1])
        assert sim.processes[2].turn.agent_session == "s1", "the same conversation goes on"
        assert sim.entries(TurnStarted)[1].messages == ("signal.001.yaml",)
        assert sim.mailbox.acks["signal.001.yaml", "implementer"]["means"] == "prompt"

    def test_finished_work_is_asked_for_again_twice_at_most(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0)] * 4)
        for seconds in (50.0, 150.0, 250.0, 350.0):
            steer_at(sim, seconds)
        assert sim.run().outcome is Outcome.SUCCESS
        assert len(sim.processes) == 3
        assert any("was already continued 2 times" in entry.text for entry in sim.entries(Notice))

    @pytest.mark.parametrize("kind", [INFO, SignalType.RESUME])
    def test_information_and_resume_never_restart_anything(self, tmp_path: Path, kind: SignalType) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0), Play(works)])
        steer_at(sim, 50.0, "the target is Azure", kind, now=True)
        assert sim.run().outcome is Outcome.SUCCESS
        assert [entry.result.end for entry in sim.entries(TurnEnded)] == [TurnEnd.FINISHED] * 2
        assert told(kind, "the target is Azure", words(sim)[1])

    def test_now_interrupts_the_turn_and_continues_with_the_same_conversation(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=1000.0, session="s1", hears=True), Play(works)])
        steer_at(sim, 50.0, now=True)
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.processes[1].stopped == "steered"
        assert sim.clock.now() - EPOCH < 70.0
        assert (sim.processes[2].turn.agent_session, sim.processes[2].turn.attempt) == ("s1", 1)
        assert "use httpx" in words(sim)[1]
        assert (sim.spent.turns, sim.spent.iterations) == (2, 1)

    def test_adopted_turn_receives_messages_that_came_without_an_engine(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0, hears=True)])
        sim.after(40.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        sim.mailbox.post(STEER, "use httpx")
        assert sim.run().outcome is Outcome.SUCCESS
        assert len(sim.entries(SignalReceived)) == 1

    def test_next_engine_does_not_repeat_received_messages(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0, hears=True)])
        steer_at(sim, 20.0)
        sim.after(60.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        assert sim.run().outcome is Outcome.SUCCESS
        assert len(sim.entries(SignalReceived)) == 1
        assert sim.processes[1].heard == ["signal.001.yaml"]
        assert sim.processes[1].offered == ["signal.001.yaml"], "the second engine knows from the journal"

    def test_next_engine_does_not_repeat_a_received_pause(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0, hears=True)])
        sim.after(20.0, lambda: sim.mailbox.post(SignalType.PAUSE, "lunch"))
        sim.after(60.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        sim.resumes = False
        assert sim.run().outcome is Outcome.PAUSED
        assert sim.processes[1].offered == ["signal.001.yaml"]

    def test_next_engine_sends_unreceived_messages_again(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=100.0, hears=True)])
        steer_at(sim, 50.0)
        sim.after(51.0, sim.kill_engine)
        with pytest.raises(PowerCut):
            sim.run()
        assert sim.processes[1].heard == []
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.processes[1].offered == ["signal.001.yaml"] * 2
        assert len(sim.entries(SignalReceived)) == 1


class TestTheNextTurn:
    @pytest.mark.parametrize("target", ["", "implementer", "executor", "actor"])
    def test_words_wait_for_the_next_turn_of_the_role(self, tmp_path: Path, target: str) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.mailbox.post(STEER, "use httpx", target=target)
        assert sim.run().outcome is Outcome.SUCCESS
        assert told("STEER", "use httpx", words(sim)[0])
        assert sim.mailbox.waiting == []

    def test_message_for_another_role_waits_and_says_so(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.mailbox.post(STEER, "look harder", target="reviewer")
        assert sim.run().outcome is Outcome.SUCCESS
        assert words(sim) == [""]
        assert sim.mailbox.actions["signal.001.yaml"] == "waits for the next reviewer"
        assert any("signal.001.yaml" in entry.text for entry in sim.entries(Notice))

    def test_a_steer_is_new_once_and_stays_in_force(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(), Play(works)])
        sim.mailbox.post(STEER, "use httpx")
        sim.run()
        first, second, third = words(sim)
        assert "# New messages from the user" in first and "# Guidance from the user" not in first
        assert "# New messages" not in second and "# Guidance from the user" in second
        assert told("STEER", "use httpx", second)
        assert third == second
        assert [entry.messages for entry in sim.entries(TurnStarted)] == [("signal.001.yaml",), (), ()]

    def test_a_steer_reaches_every_later_turn_however_many_infos_follow(self, tmp_path: Path) -> None:
        plays = [*[Play()] * 12, Play(works)]
        sim = Simulation(tmp_path, plays, limits=Limits(iterations=20), on_stuck=OnStuck.CONTINUE)
        sim.mailbox.post(STEER, "use httpx")
        for number in range(10):
            sim.after(5.0 * number + 6.0, lambda number=number: sim.mailbox.post(INFO, f"fact {number}"))
        assert sim.run().outcome is Outcome.SUCCESS
        assert [told("STEER", "use httpx", text) for text in words(sim)] == [True] * len(sim.processes)
        assert "fact 0" not in words(sim)[-1], "only the latest facts are repeated"
        assert told("INFO", "fact 9", words(sim)[-1])

    def test_guidance_of_a_resume_stays_in_force(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0), Play(), Play(works)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        assert sim.run().outcome is Outcome.PAUSED
        sim.mailbox.post(SignalType.RESUME, "use httpx")
        assert sim.run().outcome is Outcome.SUCCESS
        assert [told("RESUME", "use httpx", text) for text in words(sim)] == [False, True, True]

    def test_a_steer_for_one_iteration_holds_for_that_one_alone(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(end=TurnEnd.FAILED), Play(), Play(works)])
        sim.mailbox.post(STEER, "use httpx", iteration=2)
        assert sim.run().outcome is Outcome.SUCCESS
        assert ["use httpx" in text for text in words(sim)] == [False, True, True, False]

    def test_continued_conversation_gets_the_guidance_in_force_again(self, tmp_path: Path) -> None:
        plays = [Play(), Play(end=TurnEnd.INTERRUPTED, session="s1"), Play(works)]
        sim = Simulation(tmp_path, plays)
        sim.mailbox.post(STEER, "use httpx")
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.processes[3].turn.agent_session == "s1"
        assert told("STEER", "use httpx", words(sim)[2])

    def test_repair_turn_gets_the_guidance_in_force(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, errors=("no summary",)), Play()])
        sim.mailbox.post(STEER, "write in French")
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.processes[2].turn.errors_to_repair == ("no summary",)
        assert told("STEER", "write in French", words(sim)[1])

    def test_a_try_that_failed_gives_them_to_the_next(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(end=TurnEnd.FAILED), Play(works)])
        sim.mailbox.post(STEER, "use httpx")
        assert sim.run().outcome is Outcome.SUCCESS
        assert all(told("STEER", "use httpx", text) for text in words(sim))

    def test_a_turn_that_was_journaled_and_not_started_still_has_them(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.mailbox.post(STEER, "use httpx")
        sim.onlooker.on_record = lambda record: (  # type: ignore[method-assign]
            sim.kill_engine() if isinstance(record.entry, TurnStarted) else None
        )
        with pytest.raises(PowerCut):
            sim.run()
        assert not sim.processes
        assert sim.run().outcome is Outcome.SUCCESS
        assert told("STEER", "use httpx", words(sim)[0])
        assert len(sim.entries(TurnStarted)) == 1

    def test_new_messages_that_do_not_fit_are_in_a_file_of_the_inbox(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.mailbox.post(STEER, "use httpx")
        for number in range(30):
            sim.mailbox.post(INFO, f"{number:02d}" * (MESSAGE_BUDGET // 2))
        assert sim.run().outcome is Outcome.SUCCESS
        [text] = words(sim)
        assert len(text) < NEW_BUDGET + 2000
        assert told("STEER", "use httpx", text), "facts do not displace guidance"
        assert "26 messages are not shown here. Read `.ralph/turn/inbox/guidance.md` first" in text
        file = sim.processes[1].turn.request.inbox[GUIDANCE_FILE]
        assert all(f"{number:02d}" * (MESSAGE_BUDGET // 2) in file for number in range(30))
        assert len(sim.entries(TurnStarted)[0].messages) == 31, "all of them were told"

    def test_steers_in_force_that_do_not_fit_are_in_a_file_of_the_inbox(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)])
        for number in range(900):
            sim.mailbox.post(STEER, f"rule {number:04d}")
        assert sim.run().outcome is Outcome.SUCCESS
        text, file = words(sim)[1], sim.processes[2].turn.request.inbox[GUIDANCE_FILE]
        shown = [number for number in range(900) if f"rule {number:04d}" in text]
        assert shown == list(range(900 - len(shown), 900)), "the latest are shown"
        assert f"{900 - len(shown)} messages are not shown here" in text
        assert len(text) < IN_FORCE_BUDGET + 1000
        assert all(f"rule {number:04d}" in file for number in range(900))

    def test_only_a_steer_asks_for_a_response(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play(works)])
        sim.mailbox.post(INFO, "the target is Azure")
        sim.after(2.0, lambda: sim.mailbox.post(STEER, "use httpx"))
        sim.run()
        first, second = words(sim)[:2]
        assert told("INFO", "the target is Azure", first) and "need no action" in first
        assert "scope change" not in first and "scope change" in second

    def test_a_long_message_is_cut_in_the_prompt_and_whole_in_the_inbox(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.mailbox.post(STEER, "x" * 60_000 + " the end")
        sim.run()
        assert "cut here; the whole message is in `.ralph/turn/inbox/guidance.md`" in words(sim)[0]
        assert len(words(sim)[0]) < MESSAGE_BUDGET + 2000
        assert "the end" in sim.processes[1].turn.request.inbox[GUIDANCE_FILE]

    def test_two_signals_in_files_of_the_same_name_are_two(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=50.0), Play(works)])
        sim.mailbox.post(INFO, "one", name="note.yaml")
        sim.after(20.0, lambda: sim.mailbox.post(INFO, "two", name="note.yaml"))
        sim.run()
        assert told("INFO", "one", words(sim)[0]) and told("INFO", "two", words(sim)[1])


class TestPause:
    def test_pause_lasts_over_restarts_until_the_user_resumes(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0), Play(works)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.PAUSE, "until the API is reviewed"))
        stop = sim.run()
        assert (stop.outcome, stop.reason) == (Outcome.PAUSED, "you paused it: until the API is reviewed")
        sim.resumes = False
        assert [sim.run().outcome for _ in range(2)] == [Outcome.PAUSED] * 2
        assert len(sim.processes) == 1
        sim.resumes = True
        assert sim.run().outcome is Outcome.SUCCESS
        assert told("PAUSE", "until the API is reviewed", words(sim)[1]), "its message is passed on"

    def test_message_is_offered_to_a_running_turn_and_the_work_continues(self, tmp_path: Path) -> None:
        paused = {"status": "paused"}
        sim = Simulation(tmp_path, [Play(seconds=100.0, hears=True, answer=paused, session="s1"), Play(works)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.PAUSE, "lunch"))
        assert sim.run().outcome is Outcome.PAUSED
        assert "asks for a pause (lunch)" in sim.processes[1].messages["signal.001.yaml"]
        assert sim.spent.iterations == 0
        assert sim.run().outcome is Outcome.SUCCESS
        assert (sim.processes[2].turn.agent_session, sim.processes[2].turn.attempt) == ("s1", 1)
        assert told("PAUSE", "lunch", words(sim)[1])

    def test_agent_cannot_pause_the_run_by_itself(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, answer={"status": "paused"})])
        assert sim.run().outcome is Outcome.SUCCESS

    def test_now_does_not_wait_for_the_turn(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=1000.0, session="s1"), Play(works)])
        sim.after(50.0, lambda: sim.mailbox.post(SignalType.PAUSE, now=True))
        assert sim.run().outcome is Outcome.PAUSED
        assert sim.clock.now() - EPOCH < 60.0
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.processes[2].turn.agent_session == "s1"


class TestIterations:
    def test_a_signal_for_a_later_one_waits_and_for_an_earlier_one_is_expired(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=50.0), Play(seconds=50.0), Play(works, seconds=50.0)])
        sim.mailbox.post(INFO, "for the second", iteration=2)
        sim.after(120.0, lambda: sim.mailbox.post(INFO, "too late", iteration=1))
        sim.run()
        assert ["for the second" in text.partition("New messages")[2] for text in words(sim)] == [False, True, False]
        [refused] = sim.entries(SignalRefused)
        assert refused.name == "signal.002.yaml" and refused.reason.startswith("expired")
        assert sim.mailbox.waiting == []
        assert sim.mailbox.actions["signal.002.yaml"].startswith("expired")
        assert not any("too late" in text for text in words(sim))

    def test_expired_signal_is_not_archived_as_accepted_after_a_crash(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=50.0), Play(seconds=50.0), Play(works, seconds=50.0)])
        sim.after(70.0, lambda: sim.mailbox.post(INFO, "too late", iteration=1))
        sim.onlooker.on_record = lambda record: (  # type: ignore[method-assign]
            sim.kill_engine() if isinstance(record.entry, SignalRefused) else None
        )
        with pytest.raises(PowerCut):
            sim.run()
        assert [signal.message for signal in sim.mailbox.waiting] == ["too late"]
        sim.onlooker.on_record = lambda record: None  # type: ignore[method-assign]
        sim.run()
        assert sim.mailbox.actions["signal.001.yaml"].startswith("expired")


def test_invalid_file_is_refused_once_if_the_engine_dies_before_it_moves_the_file(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(works, seconds=50.0)], mailbox=Mailbox(tmp_path / "signals"))
    bad = tmp_path / "signals/inputs/bad.yaml"
    bad.parent.mkdir(parents=True)
    bad.write_text("type: DANCE\n")
    os.utime(bad, (1, 1))

    def kill_at_refusal(record: Record) -> None:
        if isinstance(record.entry, SignalRefused):
            assert bad.exists(), "the journal comes first"
            sim.kill_engine()

    sim.onlooker.on_record = kill_at_refusal  # type: ignore[method-assign]
    with pytest.raises(PowerCut):
        sim.run()
    sim.onlooker.on_record = lambda record: None  # type: ignore[method-assign]
    assert sim.run().outcome is Outcome.SUCCESS
    assert [refused.name for refused in sim.entries(SignalRefused)] == ["bad.yaml"]
    assert not bad.exists()
    assert "DANCE" in (tmp_path / "signals/rejected/bad.yaml.reason").read_text()


class Gate:
    """A workflow that works, then waits for an approval, with roles of its own."""

    def __init__(self, roles: tuple[str, ...], waits: bool = False) -> None:
        self.roles, self.waits = roles, waits

    def load(self, documents: Mapping[str, str]) -> tuple[int, bool]:
        return 0, False

    def decide(self, state: tuple[int, bool], now: float) -> Decision:
        done, approved = state
        if done < len(self.roles):
            return Do((TurnRequest(f"work-{done}", self.roles[done], Prompt.of("do it")),), Stage(1))
        if self.waits and not approved:
            return Stop(Outcome.AWAITING_APPROVAL, "approve it", Stage(1, frozenset((SignalType.APPROVE,))))
        return Stop(Outcome.SUCCESS, "done", Stage(1))

    def accept(self, state: tuple[int, bool], event: Event, now: float) -> Transition[tuple[int, bool]]:
        done, approved = state
        match event:
            case TurnEnded():
                return Transition((done + 1, approved))
            case SignalAccepted(signal=signal) if signal.type is SignalType.APPROVE:
                return Transition((done, True))
            case _:
                return Transition(state)


class TestStates:
    def test_an_approval_that_comes_early_waits_and_does_not_block_the_others(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(), Play()], workflow=Gate(("planner", "executor"), waits=True))
        sim.mailbox.post(SignalType.APPROVE)
        sim.mailbox.post(INFO, "hello")
        assert sim.run().outcome is Outcome.SUCCESS
        taken = [entry.signal.type for entry in sim.entries(SignalAccepted)]
        assert taken == [INFO, SignalType.APPROVE]
        assert sim.mailbox.waiting == []

    def test_approval_that_is_not_asked_for_stays_in_the_mailbox(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.mailbox.post(SignalType.SKIP)
        assert sim.run().outcome is Outcome.SUCCESS
        assert [signal.type for signal in sim.mailbox.waiting] == [SignalType.SKIP]


class TestBroadcasts:
    REQUIRED_ROLES = ("planner", "executor", "reviewer")

    def sim(self, tmp_path: Path, *roles: str) -> Simulation:
        sim = Simulation(tmp_path, lambda turn: Play(), workflow=Gate(roles))
        build = sim.build

        def with_required_roles() -> Any:
            kernel = build()
            kernel.ledger.signals.required_roles = self.REQUIRED_ROLES
            return kernel

        sim.build = with_required_roles  # type: ignore[method-assign]
        sim.mailbox.post(INFO, "tabs, not spaces")
        return sim

    def test_every_role_gets_it_once_and_it_is_filed_when_all_have_it(self, tmp_path: Path) -> None:
        sim = self.sim(tmp_path, "planner", "executor", "executor", "reviewer", "librarian")
        assert sim.run().outcome is Outcome.SUCCESS
        given = [bool(entry.messages) for entry in sim.entries(TurnStarted)]
        assert given == [True, True, False, True, False]
        assert sim.mailbox.missed["signal.001.yaml"] == ()
        assert [role for _, role in sim.mailbox.acks] == ["planner", "executor", "reviewer"]

    def test_at_the_end_it_is_filed_with_those_whom_it_did_not_reach(self, tmp_path: Path) -> None:
        sim = self.sim(tmp_path, "planner", "executor")
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.mailbox.missed["signal.001.yaml"] == ("reviewer",)
        assert sim.mailbox.waiting == []

    def test_broadcast_of_a_paused_run_waits_for_the_remaining_roles(self, tmp_path: Path) -> None:
        sim = self.sim(tmp_path, "planner", "executor", "reviewer")
        sim.after(6.0, lambda: sim.mailbox.post(SignalType.PAUSE))
        assert sim.run().outcome is Outcome.PAUSED
        assert len(sim.mailbox.waiting) == 1
        assert sim.run().outcome is Outcome.SUCCESS
        assert sim.mailbox.missed["signal.001.yaml"] == ()


class TestWhatTheAgentMakesOfIt:
    def run_with(self, tmp_path: Path, answer: Mapping[str, Any], *, steered: bool = True) -> Simulation:
        sim = Simulation(tmp_path, [Play(works, answer=answer), Play(works)])
        if steered:
            sim.mailbox.post(STEER, "build B instead")
        sim.run()
        return sim

    @pytest.mark.parametrize("response", ["restarted", "adjusted"])
    def test_the_ack_says_what(self, tmp_path: Path, response: str) -> None:
        sim = self.run_with(tmp_path, {"summary": "s", "steering": {"response": response, "note": "httpx it is"}})
        ack = sim.mailbox.acks["signal.001.yaml", "implementer"]
        assert (ack["response"], ack["note"], ack["turn"]) == (response, "httpx it is", 1)

    def test_change_of_scope_asks_the_user_even_if_the_checks_pass(self, tmp_path: Path) -> None:
        sim = self.run_with(tmp_path, {"summary": "s", "steering": {"response": "scope-change", "note": "B, not A"}})
        assert sim.ended is not None
        assert (sim.ended.outcome, sim.ended.outcome.exit_code) == (Outcome.AWAITING_GUIDANCE, 7)
        assert "STEER scope change: B, not A" in sim.ended.reason
        sim.mailbox.post(SignalType.RESUME, "go on with A")
        assert sim.run().outcome is Outcome.SUCCESS
        assert told("RESUME", "go on with A", words(sim)[1])

    def test_agent_without_a_steer_cannot_claim_one(self, tmp_path: Path) -> None:
        answer = {"summary": "s", "steering": {"response": "scope-change", "note": "I would rather not"}}
        sim = self.run_with(tmp_path, answer, steered=False)
        assert sim.ended is not None and sim.ended.outcome is Outcome.SUCCESS


@pytest.mark.parametrize("moment", [SignalAccepted, TurnStarted, TurnEnded, SignalReceived, RunEnded])
def test_every_signal_is_accepted_once_wherever_the_engine_dies(tmp_path: Path, moment: type) -> None:
    sim = Simulation(tmp_path, [Play(seconds=30.0, hears=True), Play(seconds=30.0), Play(works, seconds=30.0)] * 9)
    for number in range(12):
        steer_at(sim, 5.0 + 7 * number, f"word-{number}", INFO, target="" if number % 2 else "implementer")
    die_at(sim, moment)
    outcome = None
    for _ in range(60):
        try:
            outcome = sim.run().outcome
            break
        except PowerCut:
            continue
    assert outcome is Outcome.SUCCESS
    taken = [entry.signal.name for entry in sim.entries(SignalAccepted)]
    assert len(taken) == len(set(taken))
    said = [one for entry in sim.entries(TurnStarted) for one in entry.messages]
    heard = [entry.id for entry in sim.entries(SignalReceived)]
    assert len(said + heard) == len({*said, *heard}), "no path delivers twice"
    assert set(taken) >= {*said, *heard}
    assert sim.mailbox.waiting == [] or {signal.name for signal in sim.mailbox.waiting}.isdisjoint(taken)


def die_at(sim: Simulation, moment: type) -> None:
    """Have the engine die at each record of a kind, but for the last of them."""
    left = 1 if moment is RunEnded else 40

    def on_record(record: Any) -> None:
        nonlocal left
        if isinstance(record.entry, moment) and left:
            left -= 1
            sim.kill_engine()

    sim.onlooker.on_record = on_record  # type: ignore[method-assign]


def test_a_signal_of_an_engine_that_was_asked_directly_has_an_id(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(works, seconds=50.0)])
    sim.after(10.0, lambda: sim.kernel.post_directly(Signal("x" * 300, INFO, "hello")))  # type: ignore[union-attr]
    assert sim.run().outcome is Outcome.SUCCESS
    [taken] = sim.entries(SignalAccepted)
    assert len(taken.signal.id) <= 150


class TestUnknownRoles:
    def test_a_message_to_a_role_that_is_not_there_is_refused_with_the_roles_that_are(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.roles = ("implementer", "reviewer")
        sim.mailbox.post(STEER, "use httpx", target="ghost")
        assert sim.run().outcome is Outcome.SUCCESS
        assert (
            sim.mailbox.actions["signal.001.yaml"]
            == "rejected: there is no role 'ghost' here; the roles are implementer, reviewer"
        )
        assert "use httpx" not in words(sim)[0]

    def test_an_abort_counts_whomever_it_is_for(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=60.0)])
        sim.roles = ("implementer",)
        sim.after(10.0, lambda: sim.mailbox.post(SignalType.ABORT, target="ghost"))
        assert sim.run().outcome is Outcome.ABORTED


class TestTheEnd:
    def test_a_message_for_a_later_iteration_stays_in_the_mailbox(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works)])
        sim.mailbox.post(STEER, "use httpx", iteration=9)
        assert sim.run().outcome is Outcome.SUCCESS
        assert [signal.name for signal in sim.mailbox.waiting] == ["signal.001.yaml"]

    def test_a_message_that_came_too_late_is_named(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(works, seconds=10.0)])
        sim.after(10.5, lambda: sim.mailbox.post(INFO, "too late"))
        assert sim.run().outcome is Outcome.SUCCESS
        assert "the run was over before a turn could receive signal.001.yaml" in [
            notice.text for notice in sim.entries(Notice)
        ]
        assert sim.mailbox.actions["signal.001.yaml"] == "the run was over before a turn could receive it"

    def test_a_continued_conversation_finds_the_documents_of_the_turn_before(self, tmp_path: Path) -> None:
        sim = Simulation(tmp_path, [Play(seconds=100.0, session="s1"), Play(works)])
        steer_at(sim, 50.0, now=True)
        sim.run()
        second = sim.processes[2].turn
        assert (second.agent_session, second.continued_turn) == ("s1", 1)
