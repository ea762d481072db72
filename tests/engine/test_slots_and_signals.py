"""What running turns are sent and what they hold: only messages and pauses reach them, and each gives its slot back."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from simulation import Play, Simulation, works

from ralph.core.entries import Notice
from ralph.core.outcomes import Outcome
from ralph.core.signals import SignalType


@pytest.mark.parametrize("kind", [SignalType.RESUME, SignalType.INFO])
def test_a_signal_without_a_message_is_not_sent_to_the_agent(tmp_path: Path, kind: SignalType) -> None:
    sim = Simulation(tmp_path, [Play(works, seconds=100.0, hears=True)])
    sim.after(20.0, lambda: sim.mailbox.post(kind))
    assert sim.run().outcome is Outcome.SUCCESS
    assert sim.processes[1].offered == []


def test_a_pause_without_a_message_is_sent_to_the_agent(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(works, seconds=100.0, hears=True)])
    sim.after(20.0, lambda: sim.mailbox.post(SignalType.PAUSE))
    assert sim.run().outcome is Outcome.PAUSED
    assert sim.processes[1].offered == ["signal.001.yaml"]


@dataclass
class OneSlot:
    """A machine on which one turn runs at a time."""

    why_full: str = "one turn at a time"
    held: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def take(self, key: str, agent: str, *, is_running: bool, needs_worktree: bool) -> bool:
        if self.held and not is_running:
            return False
        self.held.append(key)
        self.log.append(f"{agent} takes it for {key}")
        return True

    def release(self, key: str) -> None:
        self.held.remove(key)
        self.log.append(f"{key} gives it back")


def test_a_turn_gives_its_slot_back_when_it_is_over(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(seconds=1.0), Play(works, seconds=1.0)])
    sim.slots = OneSlot()
    assert sim.run().outcome is Outcome.SUCCESS
    assert sim.slots.held == []
    assert sim.slots.log == [
        line for n in (1, 2) for line in (f"simulated takes it for iteration-{n}", f"iteration-{n} gives it back")
    ]
    assert not [notice for notice in sim.entries(Notice) if "waiting for a slot" in notice.text]


def test_a_turn_that_waits_for_a_slot_says_so_once_and_starts_when_there_is_one(tmp_path: Path) -> None:
    sim = Simulation(tmp_path, [Play(works, seconds=1.0)])
    sim.slots = OneSlot(held=["of another run"])
    sim.after(60.0, lambda: sim.slots.held.clear())
    assert sim.run().outcome is Outcome.SUCCESS
    [said] = [notice.text for notice in sim.entries(Notice) if "waiting for a slot" in notice.text]
    assert said == "waiting for a slot: one turn at a time"
    assert sim.starts[0] >= 60.0
