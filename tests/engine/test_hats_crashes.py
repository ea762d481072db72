"""Hats on the real kernel and store: the power goes at every system call, and no event is lost or taken twice."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from simulation import EPOCH, RUN, Cut, Disk, Play, PowerCut, Simulation, later, works

from ralph.core.checks import Check
from ralph.core.events import Merge, MergeEnded, MergeResult, RunEnded, TurnStarted
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.turns import Turn, TurnEnd
from ralph.documents.hats.definition import Hat, HatsSettings
from ralph.store.documents import Documents
from ralph.workflows.hats.routing import HatsContext
from ralph.workflows.hats.rules import Hats

CREW = (
    Hat("planner", triggers=("build.start",), publishes=("tasks.ready",)),
    Hat(
        "builder",
        triggers=("tasks.ready", "review.rejected"),
        publishes=("review.ready",),
        default_publishes="review.ready",
    ),
    Hat("critic", triggers=("review.ready",), publishes=("review.passed", "review.rejected", "LOOP_COMPLETE")),
)
SETTINGS = HatsSettings(CREW, starting_event="build.start", checkpoint=2)
TASK = '{"id": "task-1", "title": "it", "status": "%s", "priority": 3, "blocked_by": [], "loop_id": "' + RUN + '"}\n'


@pytest.fixture(autouse=True, scope="module")
def coarse_polling() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ralph.engine.jobs.POLL_SECONDS", 0.7)
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def said(*topics: str) -> dict[str, str]:
    return {
        "events.jsonl": "".join(
            json.dumps({"topic": topic, "payload": f"of {topic}", "ts": "t"}) + "\n" for topic in topics
        )
    }


def tasks(status: str, then: object = None) -> object:
    def deed(sim: Simulation) -> None:
        path = sim.root / ".ralph" / "agent" / "tasks.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TASK % status)
        if callable(then):
            then(sim)

    return deed


PLAYS = (
    Play(tasks("open"), documents=said("tasks.ready"), seconds=2.0),  # type: ignore[arg-type]
    Play(end=TurnEnd.FAILED, error="exit code 1", seconds=2.0),
    Play(seconds=2.0),
    Play(documents=said("review.rejected", "nobody.takes"), seconds=2.0),
    Play(documents=said("nobody.takes"), seconds=2.0),
    Play(tasks("open", works), documents=said("review.ready"), seconds=2.0),  # type: ignore[arg-type]
    Play(documents=said("queue.empty"), seconds=2.0),
    Play(documents=said("LOOP_COMPLETE"), seconds=2.0),
    Play(tasks("closed"), documents=said("LOOP_COMPLETE"), seconds=2.0),  # type: ignore[arg-type]
)
"""A failed try, a mute hat, a rejection, orphans, a completion that is refused, and one that holds."""


def staged(root: Path, **limits: int) -> Simulation:
    rules = Hats(HatsContext(RUN, "make it work", SETTINGS, (Check("works"),), "Frame."))
    allowed = Limits(**{"iterations": 30, **limits})
    return Simulation(
        root, PLAYS, workflow=rules, watched=(".ralph/agent/tasks.jsonl",), snapshots=True, limits=allowed, checks=()
    )


def lived(sim: Simulation, first: Disk | None = None) -> None:
    """Be one engine after the other until the run has succeeded."""
    for disk in (first or Disk(), *(Disk() for _ in range(20))):
        try:
            if (sim.run_dir / "commit.json").exists():
                with disk.installed():
                    Documents.open(sim.root, sim.run_dir)
            if (sim.run_dir / "journal.jsonl").exists() and sim.ended and sim.ended.outcome is Outcome.SUCCESS:
                return
            sim.run(disk)
        except PowerCut:
            continue
    raise AssertionError("the run does not end")


def legacy(sim: Simulation) -> tuple[object, ...]:
    """What a crash must not change: who had which turn, what was published, and the counters."""
    state = json.loads((sim.run_dir / "hats.json").read_text())
    events = [json.loads(line) for line in (sim.root / ".ralph" / f"events-{RUN}.jsonl").read_text().splitlines()]
    for kept in ("snapshot", "committed", "ends"):
        state.pop(kept, None)
    # A crash may leave one more snapshot, so that those of the hats have other names.
    state["trees"] = sorted(state.get("trees", {}))
    return (
        [(entry.turn, entry.key, entry.role, entry.attempt) for entry in sim.entries(TurnStarted)],
        [(event["topic"], event["payload"], event["hat"], event["turn"]) for event in events],
        state,
        (sim.spent.iterations, sim.spent.turns, sim.spent.cost),
    )


def test_a_run_at_rest_ends_at_its_deadline(place: Path) -> None:
    rules = Hats(HatsContext(RUN, "make it work", replace(SETTINGS, persistent=True), (), "Frame."))
    plays = [Play(documents=said(topic), seconds=2.0) for topic in ("tasks.ready", "review.ready", "LOOP_COMPLETE")]
    stop = Simulation(place, plays, workflow=rules, limits=Limits(deadline=EPOCH + 60.0), checks=()).run()
    assert stop.outcome is Outcome.LIMIT_DEADLINE
    assert json.loads((place / ".ralph" / "runs" / RUN / "hats.json").read_text())["phase"] == "rest"


def test_the_whole_story(place: Path) -> None:
    sim = staged(place)
    lived(sim)
    roles = [entry.role for entry in sim.entries(TurnStarted)]
    assert roles == ["planner", "builder", "builder", "critic", "builder", "ralph", "ralph", "critic", "critic"]
    assert sim.entries(RunEnded)[-1].outcome is Outcome.SUCCESS
    documents, _ = Documents.open(sim.root, sim.run_dir)
    assert list(documents.find_edits()) == []


@pytest.mark.parametrize("how", [Cut.LOST, *(later(how) for how in Cut if how is not Cut.LOST)])
def test_a_power_cut_at_any_system_call_makes_no_difference(place: Path, how: Cut) -> None:
    undisturbed, disk = staged(place / "undisturbed"), Disk()
    lived(undisturbed, disk)
    expected, calls = legacy(undisturbed), disk.calls
    assert len(calls) > 100
    step = 1 if how in (Cut.BEFORE, Cut.HALF) else 4
    for cut in range(1, len(calls) + 1, step):
        if how is Cut.HALF and calls[cut - 1] != "write":
            continue
        sim = staged(place / str(cut))
        lived(sim, Disk(cut, how))
        found = legacy(sim)
        if how is Cut.LOST:  # the file that people read may lose its last line to a power cut; the queue does not
            assert found[0] == expected[0] and found[2:] == expected[2:], f"cut {how.value} call {cut}"
        else:
            assert found == expected, f"cut {how.value} call {cut}, {calls[cut - 1]}"


def test_a_run_that_ended_on_a_limit_continues_with_its_queue_and_counters(place: Path) -> None:
    sim = staged(place, iterations=3)
    assert sim.run().outcome is Outcome.LIMIT_ITERATIONS
    lived(sim)
    whole = staged(place / "whole")
    lived(whole)
    assert legacy(sim) == legacy(whole)


class Merger:
    """Merges at once, once: asked again, it finds what it did. The second piece conflicts as long as nobody resolved it."""

    def __init__(self) -> None:
        self.merged: list[str] = []

    async def merge(self, work: Merge) -> MergeEnded:
        await asyncio.sleep(1.0)
        if work.worktree == "builder-3/1" and work.key.endswith("-1-1"):
            return MergeEnded(work.key, work.worktree, MergeResult.CONFLICT, files=("shared.txt",))
        if work.worktree not in self.merged:
            self.merged.append(work.worktree)
        return MergeEnded(work.key, work.worktree, MergeResult.MERGED, snapshot=f"with {len(self.merged)}")


SIDE_BY_SIDE = HatsSettings(
    (
        Hat("planner", triggers=("build.start",), publishes=("piece.ready",)),
        Hat("builder", triggers=("piece.ready",), publishes=("piece.done",), concurrency=2),
        Hat("gatherer", triggers=("piece.done",), publishes=("LOOP_COMPLETE",), gathers=True, gathers_within=600.0),
    ),
    starting_event="build.start",
    max_failures=2,
)


def pieces(turn: Turn) -> Play:
    """Three pieces: the first fails once, the second conflicts, the third is refused at first."""
    key, role = turn.request.key, turn.request.role
    if role == "planner":
        rows = [json.dumps({"topic": "piece.ready", "payload": f"piece {n}", "ts": "t"}) for n in (1, 2, 3)]
        return Play(documents={"events.jsonl": "\n".join(rows) + "\n"}, seconds=2.0)
    if key == "wave-2-1" and turn.attempt == 1:
        return Play(end=TurnEnd.FAILED, error="exit code 1", seconds=3.0)
    if key == "wave-4-1":
        return Play(documents=said("LOOP_COMPLETE"), seconds=1.0)
    if role == "builder":
        return Play(documents=said("piece.done"), seconds=5.0)
    return Play(works, documents=said("LOOP_COMPLETE") if role == "gatherer" else {}, seconds=2.0)


def waving(root: Path) -> Simulation:
    rules = Hats(
        HatsContext(
            RUN,
            "make it work",
            SIDE_BY_SIDE,
            (Check("works"),),
            "Frame.",
            "{{why}}{{task}}{{inbox}}{{details}}{{checks}}",
        )
    )
    limits = Limits(iterations=30)
    return Simulation(root, pieces, workflow=rules, snapshots=True, limits=limits, checks=(), merger=Merger())


def of_waves(sim: Simulation) -> tuple[object, ...]:
    """What a crash must not change in a wave: what was asked for, what was published, merged and counted."""
    turns, events, state, spent = legacy(sim)
    assert isinstance(turns, list) and isinstance(events, list) and isinstance(state, dict)
    for kept in ("turn", "recent", "claims", "queue", "not_before", "last_turns", "changed"):
        state.pop(kept, None)
    asked = sorted((key, role, attempt) for _, key, role, attempt in turns)
    return asked, [event[:3] for event in events], state, spent, sorted(sim.merger.merged)


def test_a_wave_goes_through_failures_conflicts_and_refusals(place: Path) -> None:
    sim = waving(place)
    lived(sim)
    asked, events, _, _, merged = of_waves(sim)
    assert merged == ["builder-2/1", "builder-3/1", "builder-4/1"]
    assert [topic for topic, _, _ in events].count("piece.done") == 3  # type: ignore[attr-defined]
    keys = [key for key, _, _ in asked]  # type: ignore[attr-defined]
    assert keys.count("wave-2-1") == 2 and "wave-4-2" in keys and "resolve-builder-3-1-1" in keys


@pytest.mark.parametrize("how", [later(Cut.BEFORE), later(Cut.AFTER), Cut.LOST])
def test_a_power_cut_at_any_system_call_of_a_wave_makes_no_difference(place: Path, how: Cut) -> None:
    undisturbed, disk = waving(place / "undisturbed"), Disk()
    lived(undisturbed, disk)
    expected = of_waves(undisturbed)
    for cut in range(1, len(disk.calls) + 1, 3 if how is Cut.BEFORE else 7):
        sim = waving(place / str(cut))
        lived(sim, Disk(cut, how))
        found = of_waves(sim)
        lasts = [0, 2, 3, 4] if how is Cut.LOST else [0, 1, 2, 3, 4]
        for part in lasts:
            assert found[part] == expected[part], f"cut {how.value} call {cut}, {disk.calls[cut - 1]}"
