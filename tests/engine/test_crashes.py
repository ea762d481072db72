"""The power goes at every system call of the store, one after the other: the result of a run is always the same."""

import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from simulation import Cut, Disk, Play, PowerCut, Simulation, later, works

from ralph.core.checks import CheckStatus
from ralph.core.entries import SnapshotTaken
from ralph.core.events import RunEnded, SignalAccepted, TurnEnded, TurnStarted
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd
from ralph.store.documents import Documents
from ralph.store.mailbox import Mailbox
from ralph.workflows.loop import HOME
from ralph.workflows.loop.state import read_state

FAILS = Play(end=TurnEnd.FAILED, error="exit code 1", seconds=2.0)
SHARDS = 4
QUICKLY = [0, 2, later(1), later(3)]
"""Every other system call at once, the others later."""


@pytest.fixture(autouse=True, scope="module")
def coarse_polling() -> Iterator[None]:
    """Look at the mailbox less often than in earnest: it is most of the time that a run takes here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ralph.engine.jobs.POLL_SECONDS", 0.7)
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory, where there is one: hundreds of runs are made here, and files in memory are files too."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def said(sim: Simulation, *signals: str) -> Callable[[], None]:
    """A person drops signal files."""

    def drop() -> None:
        inputs = sim.run_dir / "signals" / "inputs"
        inputs.mkdir(parents=True, exist_ok=True)
        for name in signals:
            (inputs / f"{name}.yaml").write_text(f"type: {name.split('-')[1]}\n")

    return drop


def task_edited(sim: Simulation) -> None:
    """A person edits the task."""
    state = json.loads(sim.state_path.read_text())
    sim.state_path.write_text(json.dumps({**state, "task": "make it work well", "mine": [1, 2]}))


@dataclass(frozen=True)
class Script:
    """A run that goes the same way every time, unless the engine lets a crash make a difference."""

    plays: tuple[Play, ...]
    outcomes: tuple[Outcome, ...]
    """How it ends, and how again after every resume."""
    limits: Limits = field(default_factory=Limits)
    signals: tuple[tuple[float, tuple[str, ...]], ...] = ()
    edited_at: float | None = None
    unrunnable: bool = False

    def staged(self, root: Path) -> Simulation:
        sim = Simulation(root, self.plays, limits=self.limits, snapshots=True)
        for moment, names in self.signals:
            sim.after(moment, said(sim, *names))
        if self.edited_at is not None:
            sim.after(self.edited_at, lambda: task_edited(sim))
        if self.unrunnable:
            sim.broken_checks["works"] = CheckStatus.COULD_NOT_RUN
        return sim


SCRIPTS = {
    "whole": Script(
        (
            FAILS,
            Play(answer={"summary": "first", "learned": "one"}, seconds=2.0),
            Play(errors=("result.json: the field `summary` is missing",), seconds=2.0),
            Play(answer={"summary": "second"}, seconds=2.0),
            Play(works, seconds=2.0),
        ),
        (Outcome.SUCCESS,),
        signals=((7.1, ("1-PAUSE", "2-RESUME")),),
        edited_at=11.6,
    ),
    "aborted": Script((Play(seconds=2.0), Play(seconds=50.0)), (Outcome.ABORTED,), signals=((6.0, ("1-ABORT",)),)),
    "limited": Script(
        (Play(seconds=2.0), Play(works, seconds=2.0)),
        (Outcome.LIMIT_ITERATIONS, Outcome.SUCCESS),
        limits=Limits(iterations=1),
    ),
    "cut": Script(
        (Play(seconds=2.0), Play(seconds=4.0, cost=4.0), Play(works, seconds=2.0)),
        (Outcome.LIMIT_COST, Outcome.SUCCESS),
        limits=Limits(cost=2.0),
    ),
    "waiting": Script(
        (
            Play(seconds=2.0, errors=("result.json: the field `summary` is missing",)),
            Play(seconds=2.0, end=TurnEnd.LIMITED, resets_in=10.0),
            Play(seconds=2.0, end=TurnEnd.INTERRUPTED),
            Play(works, seconds=2.0),
        ),
        (Outcome.SUCCESS,),
    ),
    "failed": Script((FAILS,) * 5, (Outcome.FAILED,)),
    "unverifiable": Script((Play(seconds=2.0),) * 3, (Outcome.UNVERIFIABLE,), unrunnable=True),
}


def lived(sim: Simulation, disks: Iterable[Disk], ends: int, downtime: float) -> None:
    """Be one engine after the other, each on its disk, until the run has ended so often."""
    for disk in chain(disks, (Disk() for _ in range(20))):
        sim.mailbox = Mailbox(sim.run_dir / "signals")
        try:
            if (sim.run_dir / "commit.json").exists():
                with disk.installed():
                    Documents.open(sim.root, sim.run_dir)
            if sim.run_dir.joinpath("journal.jsonl").exists() and len(sim.entries(RunEnded)) == ends:
                return
            sim.run(disk)
        except PowerCut:
            sim.clock.pass_by(downtime)
    raise AssertionError("the run does not end")


@dataclass(frozen=True)
class Legacy:
    """What a run leaves, as far as a crash must not change it."""

    outcomes: tuple[Outcome, ...]
    iterations: int
    turns: int
    cost: float
    tokens: int
    processes: int
    state: dict[str, Any]
    files: tuple[str, ...]
    reports: int
    signals: tuple[str, ...]


def legacy(sim: Simulation) -> Legacy:
    state = json.loads(sim.state_path.read_text())
    for iteration in state["iterations"]:
        iteration.pop("snapshot", None)  # a snapshot that was taken twice has another name
    return Legacy(
        tuple(entry.outcome for entry in sim.entries(RunEnded)),
        sim.spent.iterations,
        sim.spent.turns,
        sim.spent.cost,
        sim.spent.tokens,
        len(sim.processes),
        {key: state[key] for key in ("task", "phase", "iteration", "iterations", "outcome", "active") if key in state},
        tuple(sorted(path for path in files(sim) if "completion-" not in path)),
        sum("completion-" in path for path in files(sim)),
        tuple(sorted(entry.signal.name for entry in sim.entries(SignalAccepted))),
    )


def is_aside(path: Path) -> bool:
    """What nothing rests on is not waited for: a power cut may take the latest of it."""
    return "reflections" in path.parts or path.name == "iterations.jsonl"


def without_aside(expected: Legacy, sim: Simulation) -> Legacy:
    if not sim.power_was_lost:
        return expected
    return replace(expected, files=tuple(path for path in expected.files if not is_aside(Path(path))))


def files(sim: Simulation) -> list[str]:
    """Every file, without what a crash may leave: temporary files, torn lines, copies of edits."""
    found = [path for path in sim.root.rglob("*") if path.is_file()]
    kept = [path for path in found if not path.name.endswith((".tmp", ".torn")) and path.parent.name != "edited"]
    kept = [path for path in kept if not (sim.power_was_lost and is_aside(path))]
    assert all(path.name.startswith(".") for path in found if path.name.endswith(".tmp"))
    return [str(path.relative_to(sim.root)) for path in kept]


def assert_sound(sim: Simulation) -> None:
    """What holds after every run, whatever happened to its engines."""
    started = [entry.turn for entry in sim.entries(TurnStarted)]
    assert started == list(range(1, len(started) + 1)), "a turn was started twice"
    assert sorted(entry.turn for entry in sim.entries(TurnEnded)) == started, "a turn ended twice or never"
    assert started == sorted(sim.processes)
    names = [entry.signal.name for entry in sim.entries(SignalAccepted)]
    assert len(names) == len(set(names)), "a signal was handled twice"
    inputs = sim.run_dir / "signals" / "inputs"
    assert [path.name for path in inputs.glob("[!.]*")] == [], "a signal was left behind"
    assert not (sim.run_dir / "commit.json").exists()
    read_state(sim.state_path.read_text(), "state.json", sim.loop.settings)
    json.loads((sim.root / HOME / "current-loop.json").read_text())
    documents, _ = Documents.open(sim.root, sim.run_dir)
    assert list(documents.find_edits()) == []


def undisturbed(script: Script, root: Path) -> tuple[Legacy, list[str]]:
    """The result of a run when nothing happens to it, and the system calls that it makes."""
    sim, disks = script.staged(root), [Disk() for _ in script.outcomes]
    lived(sim, disks, len(script.outcomes), 0.0)
    assert_sound(sim)
    return legacy(sim), [call for disk in disks for call in disk.calls]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_go_as_they_say(place: Path, name: str) -> None:
    left, calls = undisturbed(SCRIPTS[name], place)
    assert left.outcomes == SCRIPTS[name].outcomes
    assert left.turns == left.processes == len(SCRIPTS[name].plays)
    assert len(calls) > 50


def test_the_whole_script_has_everything_in_it(place: Path) -> None:
    left, _ = undisturbed(SCRIPTS["whole"], place)
    assert (left.iterations, left.turns, left.cost) == (3, 5, 1.25)
    assert [iteration["action"] for iteration in left.state["iterations"]][:2] == ["first", "second"]
    assert left.state["task"] == "make it work well"
    assert left.signals == ("1-PAUSE.yaml", "2-RESUME.yaml")


EVERYWHERE = [
    ("whole", Cut.LOST),
    *(later("whole", how) for how in Cut if how is not Cut.LOST),
    *(later(name, Cut.BEFORE) for name in SCRIPTS if name != "whole"),
]
"""In one script all ways to lose the power; how a write is cut does not depend on what is written."""


def is_worth_it(name: str, how: Cut, call: str) -> bool:
    """Whether a cut there leaves the disk in another state than the cut at the call before or after it does."""
    if how is Cut.HALF:
        return call == "write"
    return (name == "whole" and how is not Cut.AFTER) or call not in ("open", "fsync")


@pytest.mark.parametrize("shard", QUICKLY)
@pytest.mark.parametrize(("name", "how"), EVERYWHERE)
def test_a_power_cut_at_any_system_call_makes_no_difference(place: Path, name: str, how: Cut, shard: int) -> None:
    script = SCRIPTS[name]
    expected, calls = undisturbed(script, place / "undisturbed")
    for cut in range(shard + 1, len(calls) + 1, SHARDS):
        if not is_worth_it(name, how, calls[cut - 1]):
            continue
        sim = script.staged(place / str(cut))
        lived(sim, cut_at(cut, how), len(script.outcomes), downtime=0.0)
        assert_sound(sim)
        sim.power_was_lost = how is Cut.LOST
        assert legacy(sim) == without_aside(expected, sim), f"cut {how.value} call {cut}, {calls[cut - 1]}"


def cut_at(number: int, how: Cut) -> Iterator[Disk]:
    """Disks of which the one that meets the call with that number fails at it, counted over all of them."""
    before = 0
    for _ in range(20):
        disk = Disk(number - before if number > before else None, how)
        yield disk
        before += len(disk.calls)


@pytest.mark.more_are_slow(2)
@pytest.mark.parametrize("downtime", [1.0, 100.0])
@pytest.mark.parametrize("name", ["whole", "limited"])
def test_agents_that_continue_while_no_engine_is_there_make_no_difference(
    place: Path, name: str, downtime: float
) -> None:
    script = replace(SCRIPTS[name], signals=(), edited_at=None)
    expected, calls = undisturbed(script, place / "undisturbed")
    for cut in range(3, len(calls) + 1, 11):
        sim = script.staged(place / str(cut))
        lived(sim, cut_at(cut, Cut.BEFORE), len(script.outcomes), downtime)
        assert_sound(sim)
        assert legacy(sim) == expected, f"cut before call {cut}, {calls[cut - 1]}"


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("seed", QUICKLY)
def test_a_second_power_cut_during_the_recovery_makes_no_difference(place: Path, seed: int) -> None:
    script, chance = SCRIPTS["whole"], random.Random(seed)
    expected, calls = undisturbed(script, place / "undisturbed")
    for number in range(10):
        first, second = chance.randint(1, len(calls)), chance.randint(1, 30)
        hows = chance.choice(list(Cut)), chance.choice(list(Cut))
        sim = script.staged(place / str(number))
        lived(sim, [Disk(first, hows[0]), Disk(second, hows[1])], 1, downtime=0.0)
        assert_sound(sim)
        sim.power_was_lost = Cut.LOST in hows
        assert legacy(sim) == without_aside(expected, sim), f"cuts at {first} and {second}, {hows}"


@pytest.mark.parametrize("cut", range(1, 7))
def test_the_snapshot_before_the_run_is_there_whenever_the_power_went(place: Path, cut: int) -> None:
    sim = SCRIPTS["whole"].staged(place)
    lived(sim, cut_at(cut, Cut.BEFORE), 1, downtime=0.0)
    assert [entry.label for entry in sim.entries(SnapshotTaken)] == ["before the run"]
