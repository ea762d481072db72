"""Slots: never more than the limits say, fair between runs, and nothing is lost with an engine that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import StateError
from ralph.documents.run_record import SlotLimits
from ralph.store import locks
from ralph.workspace import slots as module
from ralph.workspace.slots import Slots, count_machine_slots, slots_path

ENGINE = """
import sys, time
from pathlib import Path
from ralph.documents.run_record import SlotLimits
from ralph.workspace.slots import Slots
from ralph.store import locks

place, run, limit, machine, turns, seconds = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6]), float(sys.argv[6])
lock = locks.acquire(place / run, {"run": run})
assert isinstance(lock, locks.Lock)
slots = Slots(run, place / run, SlotLimits(limit, machine), place / "slots.json")
slots.release_all()
ends, started = {}, 0
while started < turns or ends:
    for key in [key for key, end in ends.items() if end < time.time()]:
        print("-", time.time(), key, flush=True)
        slots.release(key)
        del ends[key]
    if started < turns and slots.take(f"{run}-{started}", "agent"):
        print("+", time.time(), f"{run}-{started}", flush=True)
        ends[f"{run}-{started}"] = time.time() + seconds
        started += 1
    else:
        time.sleep(0.01)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "slots.json"


@pytest.fixture
def run(tmp_path: Path, place: Path) -> Iterator[Callable[..., Slots]]:
    """A run whose engine lives, and its slots."""
    held = []

    def make(name: str, limit: int = 8, machine: int | None = 4, **agents: int) -> Slots:
        lock = locks.acquire(tmp_path / name, {"run": name})
        assert isinstance(lock, locks.Lock)
        held.append(lock)
        return Slots(name, tmp_path / name, SlotLimits(limit, machine, agents), place, {"claude (opus)": "claude"})

    yield make
    for lock in held:
        lock.release()


def in_use(place: Path) -> dict[str, int]:
    uses = json.loads(place.read_bytes()).get("uses", [])
    return {run: sum(use["run"] == run for use in uses) for run in {use["run"] for use in uses}}


def test_a_run_an_agent_and_the_machine_have_their_limits(run: Callable[..., Slots], place: Path) -> None:
    a = run("a", limit=2)
    assert [a.take(f"k{number}", "x") for number in range(3)] == [True, True, False]
    assert a.why_full == "2 of 2 turns of this run are running"
    assert a.take("k1", "x"), "asked again, it has the one it has"
    assert a.take("k9", "x", is_running=True), "what runs already has its own"
    b = run("b", claude=1)
    assert b.take("k1", "claude (opus)")
    assert not b.take("k2", "claude (opus)")
    assert b.why_full == "all slots of claude are in use: 1"
    assert not b.take("k3", "codex")
    assert b.why_full == "all slots of this machine are in use: 4, by a, b"
    a.release("k1")
    assert b.take("k3", "codex")
    assert in_use(place) == {"a": 2, "b": 2}
    b.release_all()
    assert in_use(place) == {"a": 2}
    a.release("never taken")


def test_room_is_asked_for_last_and_blocks_no_other_run(run: Callable[..., Slots]) -> None:
    a, b = run("a"), run("b")
    a.room = lambda: "the disk is full"
    assert not a.take("1", "x", needs_worktree=True)
    assert a.why_full == "the disk is full"
    assert [b.take(str(number), "x") for number in range(5)] == [True] * 4 + [False]


def test_a_free_slot_goes_to_the_run_with_the_fewest_then_to_the_longest_waiting(run: Callable[..., Slots]) -> None:
    a, b, c = run("a"), run("b"), run("c")
    assert [a.take(str(number), "x") for number in range(4)] == [True] * 4
    assert not b.take("1", "x")
    assert not c.take("1", "x")
    a.release("0")
    assert not a.take("4", "x", needs_worktree=True), "it has three, and others have none"
    assert a.why_full == "run b has waited longer and uses fewer slots"
    assert not c.take("1", "x")
    assert c.why_full == "run b has waited longer and uses fewer slots"
    assert b.take("1", "x")
    a.release("1")
    assert not b.take("2", "x"), "now it has one"
    assert c.take("1", "x")
    a.release("2")
    assert not b.take("2", "x"), "both have one, and a has waited longer"
    assert b.why_full == "run a has waited longer and uses fewer slots"
    assert a.take("4", "x")


def test_a_slot_of_an_agent_goes_round_as_well(run: Callable[..., Slots]) -> None:
    """Though the machine has slots left: else the run that just gave it back would always be the first to ask."""
    a, b = run("a", claude=1), run("b", claude=1)
    assert a.take("1", "claude")
    assert not b.take("1", "claude")
    a.release("1")
    assert not a.take("2", "claude")
    assert a.take("3", "codex"), "of another agent it may"
    assert b.take("1", "claude")


def test_run_at_its_own_limit_does_not_block_others(run: Callable[..., Slots]) -> None:
    a, b = run("a", limit=1), run("b", limit=8, machine=4)
    assert a.take("1", "x")
    assert b.take("1", "x")
    assert b.take("2", "x")
    assert not a.take("2", "x"), "its own limit"
    assert b.take("3", "x"), "the last one is nobody else's"


def test_run_that_stops_asking_loses_its_place(run: Callable[..., Slots], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = run("a"), run("b")
    assert [a.take(str(number), "x") for number in range(4)] == [True] * 4
    assert not b.take("1", "x")
    a.release("0")
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + module.PATIENCE + 1)
    assert a.take("4", "x")
    assert not b.take("1", "x")
    a.release("1")
    monkeypatch.setattr(module.time, "time", lambda: now - 3600.0)
    assert a.take("5", "x"), "a clock that was set back makes nobody wait for ever"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe\0",
        b"[]",
        b"null",
        b"3",
        b'{"uses": 1}',
        b'{"uses": [{"run": "x"}]}',
        b'{"uses": [{"run": "x", "key": "k", "agent": "a", "lock": "\\u0000"}]}',
        b'{"uses": [{"run": "\\ud800", "key": "k", "agent": "a", "lock": "\\ud800"}]}',
        b'{"waits": [{"run": "x", "agent": "a", "since": 0, "asked": 1' + b"0" * 400 + b"}]}",
        b'{"waits": [{"run": "x", "agent": "x", "since": NaN, "asked": Infinity}]}',
        b"[" * 100_000,
        b'{"uses": [{"run": "x", "key": "k", "agent": "a", "lock": "/nowhere"}' + b" " * 9999,
    ],
)
def test_a_broken_file_is_built_anew(run: Callable[..., Slots], place: Path, data: bytes) -> None:
    place.write_bytes(data)
    a = run("a")
    assert [a.take(str(number), "x") for number in range(5)] == [True] * 4 + [False]
    assert in_use(place) == {"a": 4}


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, 2000), damage=st.binary(max_size=30))
def test_no_damage_to_the_file_stops_a_run(tmp_path: Path, at: int, damage: bytes) -> None:
    file = tmp_path / "slots.json"
    whole = json.dumps({"uses": [{"run": "x", "key": "k", "agent": "a", "lock": "/x"}] * 3, "waits": []}).encode()
    file.write_bytes(whole[:at] + damage + whole[at:])
    slots = Slots("a", tmp_path / "lock", SlotLimits(8, 4), file)
    assert slots.take("1", "x")
    slots.release_all()


def test_the_file_is_whole_at_every_moment(
    run: Callable[..., Slots], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shrinks by blanks, never in a second step that a kill could leave out."""
    a = run("a")
    for number in range(4):
        a.take(f"a long name of some work {number}", "x")

    def cut(*args: object) -> None:
        raise AssertionError("the file is changed twice")

    monkeypatch.setattr(os, "ftruncate", cut)
    a.release_all()
    assert json.loads(place.read_bytes()) == {}


def test_path_that_is_not_a_file_is_refused_by_name(run: Callable[..., Slots], place: Path, tmp_path: Path) -> None:
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="not a regular file"):
        run("a").take("1", "x")


def test_the_usual_place_and_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert slots_path() == tmp_path / "ralph" / "slots.json"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert slots_path() == Path("/home/ada/.local/state/ralph/slots.json")
    assert count_machine_slots() >= 4


def engine(place: Path, run: str, limit: int, machine: int, turns: int, seconds: float) -> "subprocess.Popen[str]":
    words = [str(word) for word in (place, run, limit, machine, turns, seconds)]
    return subprocess.Popen([sys.executable, "-c", ENGINE, *words], stdout=subprocess.PIPE, text=True)


def test_several_engines_share_and_none_goes_short(tmp_path: Path) -> None:
    engines = {name: engine(tmp_path, name, 8, 3, 20, 0.1) for name in ("a", "b", "c")}
    told = {name: process.communicate(timeout=120)[0].splitlines() for name, process in engines.items()}
    lines = [line.split() for said in told.values() for line in said]
    events = sorted((float(at), sign, key) for sign, at, key in lines)
    now, most = set(), 0
    for _, sign, key in events:
        now = now | {key} if sign == "+" else now - {key}
        most = max(most, len(now))
    assert len(events) == 120
    assert most == 3, "never more than the machine has, and all of them used"
    started = {name: [float(line.split()[1]) for line in said if line[0] == "+"] for name, said in told.items()}
    begin, end = max(times[0] for times in started.values()), min(times[-1] for times in started.values())
    shares = [sum(begin <= at <= end for at in times) for times in started.values()]
    assert max(shares) <= min(shares) + 10, shares


def test_a_killed_engine_keeps_the_slots_of_agents_that_still_work_and_no_others(
    run: Callable[..., Slots], tmp_path: Path, place: Path
) -> None:
    killed = engine(tmp_path, "killed", 8, 4, 4, 300)
    assert killed.stdout
    for _ in range(4):
        killed.stdout.readline()
    agent = subprocess.Popen(["sleep", "300"], env={**os.environ, "RALPH_TURN": "killed/00001"})
    a = run("a")
    try:
        assert not a.take("1", "x")
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert not a.take("1", "x"), "its agent is at work"
        assert in_use(place) == {"killed": 4}
    finally:
        agent.kill()
        agent.wait()
    assert [a.take(str(number), "x") for number in range(5)] == [True] * 4 + [False]
