"""Waves: hats that take several events side by side, one by one and by random agents."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from playing_hats import CHECK, Stage, Turned, hat, lines, stage
from test_session_rules import seeds

from ralph.core.events import Do, DocumentEdited, MergeResult, RunEnded, TurnEnded
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.documents.hats.definition import COORDINATOR, HatsSettings, Topic
from ralph.workflows.hats.events import EVENTS
from ralph.workflows.hats.state import DECISIONS, HatsPhase

HATS = (
    hat("planner", "build.start", "piece.ready", default_publishes="piece.ready"),
    hat("builder", "piece.ready", "piece.done", concurrency=2),
    hat("gatherer", "piece.done", "LOOP_COMPLETE piece.ready", gathers=True),
)
SETTINGS = HatsSettings(HATS, starting_event="build.start", max_failures=2)


def pieces(count: int) -> tuple[tuple[str, object], ...]:
    return tuple(("piece.ready", f"piece {number}") for number in range(1, count + 1))


def agent(world: Stage, hat: str) -> Turned:
    match hat:
        case "planner":
            return Turned(pieces(4))
        case "builder":
            return Turned((("piece.done", _piece(world)),), files=1)
        case _:
            return Turned((("LOOP_COMPLETE", "all there"),))


def _piece(world: Stage) -> str:
    return next(line for line in world.page.splitlines() if line.startswith("piece "))


def rows(world: Stage, topic: str) -> list[str]:
    found = [json.loads(line) for line in world.log.splitlines()]
    return [row["payload"] for row in found if row["topic"] == topic]


def test_events_are_handled_in_parallel_and_gathered_in_their_order() -> None:
    world = stage(SETTINGS)
    world.pick = lambda count: count - 1
    stop = world.play(agent)
    assert stop and stop.outcome is Outcome.SUCCESS
    assert world.most == 2, "as many at once as the hat takes"
    assert [who for who, _ in world.turns] == ["planner", *["builder"] * 4, "gatherer"]
    assert rows(world, "piece.done") == [f"piece {number}" for number in (1, 2, 3, 4)], "whoever was faster"
    assert "4 events, all of them yours now" in world.page
    assert world.state.activations == {"planner": 1, "builder": 4, "gatherer": 1}


def test_worker_that_ends_while_another_cancels_is_counted() -> None:
    hats = tuple(replace(one, publishes=(*one.publishes, "LOOP_CANCEL")) for one in HATS)
    world = stage(replace(SETTINGS, hats=hats, cancellation="LOOP_CANCEL"))
    world.play(agent, 1)
    decision = world.rules.decide(world.state, world.now)
    assert isinstance(decision, Do)
    for work, event in zip(decision.work, (("LOOP_CANCEL", "no"), ("piece.done", "piece 2")), strict=True):
        result = TurnResult(TurnEnd.FINISHED, world.now, world.now, documents={EVENTS: lines(event)})
        world.tell(TurnEnded(work.key, 2, "builder", 1, result, is_iteration=True))
    assert world.state.outcome is Outcome.ABORTED
    world.tell(RunEnded(Outcome.ABORTED, "cancelled", Spent(), Limits()))
    again = world.rules.load(world.documents)
    assert again.wave and [job.step for job in again.wave.workers] == ["turn", "merge", "turn", "turn"]


def test_one_event_alone_needs_no_wave() -> None:
    world = stage(SETTINGS)
    world.play(lambda world, hat: Turned(pieces(1)) if hat == "planner" else agent(world, hat), 2)
    assert world.most == 1 and world.state.snapshot == "snapshot-2"


def test_one_that_fails_does_not_stop_the_others() -> None:
    def clumsy(world: Stage, hat: str) -> Turned:
        if hat == "builder" and "piece 2" in world.page.partition("<event-for-you>")[2]:
            return Turned(end=TurnEnd.FAILED)
        return agent(world, hat)

    world = stage(SETTINGS)
    stop = world.play(clumsy)
    assert stop and stop.outcome is Outcome.SUCCESS
    assert rows(world, "piece.done") == ["piece 1", "piece 3", "piece 4"]
    assert "it broke" in world.page and "piece 2" in world.page, "who gathers is told"
    assert world.turns[-1] == ("gatherer", "piece.done")


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (MergeResult.CONFLICT, "it changes the same lines as work that is already merged"),
        (MergeResult.REVERTS, "it would revert work that is already merged"),
        (MergeResult.CHECKS_FAILED, "the checks fail together with the work that is already merged"),
    ],
)
def test_work_that_cannot_be_merged_is_resolved_or_left_on_its_branch(end: MergeResult, why: str) -> None:
    world = stage(SETTINGS)
    tried: Counter[str] = Counter()

    def merges(workspace: str) -> MergeResult:
        tried[workspace] += 1
        hopeless = workspace == "builder-4/1"
        return end if hopeless or tried[workspace] == 1 else MergeResult.MERGED

    world.merges = merges
    stop = world.play(agent)
    assert stop and stop.outcome is Outcome.SUCCESS
    assert world.resolved == 5, "one for each, and another for the one that is hopeless"
    assert len(rows(world, "piece.done")) == 3
    [told] = rows(world, "wave.worker.failed")
    assert f"its work could not be merged, because {why}" in told
    assert "stays on the branch ralph/" in told and "builder-4/1" in told


def test_run_whose_workers_all_fail_can_resume_the_same_wave() -> None:
    world = stage(SETTINGS)
    stop = world.play(lambda world, hat: Turned(end=TurnEnd.FAILED) if hat == "builder" else agent(world, hat))
    assert stop and stop.outcome is Outcome.FAILED and "all workers of a wave failed (4 workers)" in stop.reason
    ended = json.dumps({**json.loads(world.documents[world.rules.context.state_path]), "ended": True})
    world.state = world.rules.load({world.rules.context.state_path: ended})
    assert world.state.phase is HatsPhase.WAVE
    stop = world.play(agent)
    assert stop and stop.outcome is Outcome.SUCCESS
    assert rows(world, "piece.done") == [f"piece {number}" for number in (1, 2, 3, 4)]


def test_a_wave_has_only_the_time_that_its_gatherer_waits() -> None:
    hats = (*HATS[:2], replace(HATS[2], gathers_within=15.0))
    world = stage(SETTINGS, hats=hats)
    stop = world.play(agent)
    assert stop and stop.outcome is Outcome.SUCCESS
    assert rows(world, "piece.done") == ["piece 1", "piece 2", "piece 3"], "10 seconds each, two at once"
    assert ["used up the time" in told for told in rows(world, "wave.worker.failed")] == [True]


def test_hat_with_refused_events_gets_the_reason_and_another_turn() -> None:
    def rash(world: Stage, hat: str) -> Turned:
        if hat == "builder" and "`LOOP_COMPLETE` counts only from" not in world.page:
            return Turned((("LOOP_COMPLETE", ""),))
        return agent(world, hat)

    world = stage(SETTINGS, hats=(*HATS[:2], replace(HATS[2], publishes=("piece.ready",))))
    stop = world.play(rash)
    assert stop and stop.outcome is Outcome.SUCCESS
    assert [who for who, _ in world.turns].count("builder") == 8


def test_a_gatherer_waits_for_the_rest_of_the_wave_on_its_way_through_others() -> None:
    """The critic takes one at a time; what it passes waits until it has had all of them."""
    hats = (
        *HATS[:2],
        hat("critic", "piece.done", "piece.passed"),
        hat("gatherer", "piece.passed", "LOOP_COMPLETE", gathers=True),
    )
    world = stage(SETTINGS, hats=hats)
    stop = world.play(
        lambda world, hat: Turned((("piece.passed", ""),)) if hat == "critic" else agent(world, hat),
    )
    assert stop and stop.outcome is Outcome.SUCCESS
    assert [who for who, _ in world.turns][5:] == [*["critic"] * 4, "gatherer"]


def test_claims_of_a_wave_are_checked_on_the_merged_tree_and_then_as_a_whole() -> None:
    evident = {"piece.done": Topic(evidence=True, otherwise="piece.ready")}
    world = stage(SETTINGS, checks=CHECK, works=True, topics=evident)
    stop = world.play(agent)
    assert stop and stop.outcome is Outcome.SUCCESS
    assert world.checked == 2, "for all claims together, and for the promise"


def test_a_hat_has_no_more_turns_in_a_wave_than_it_may_have() -> None:
    world = stage(SETTINGS, hats=(HATS[0], replace(HATS[1], max_activations=3), HATS[2]))
    world.play(agent, 8)
    assert world.state.activations["builder"] == 3
    assert "builder.exhausted" in world.topics and (COORDINATOR, "piece.ready") in world.turns


def test_decisions_that_got_the_same_number_get_their_own() -> None:
    twice = "# Decisions\n\n## DEC-001: a\n\n- Confidence: 60\n\n## DEC-001: b\n\n- Confidence: 70\n"

    def deciding(world: Stage, hat: str) -> Turned:
        if hat == "builder":
            world.tell(DocumentEdited(DECISIONS, twice))
        return agent(world, hat)

    world = stage(SETTINGS)
    world.play(deciding)
    assert "## DEC-002: b" in world.documents[DECISIONS] and "## DEC-001: a" in world.documents[DECISIONS]


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("seed", seeds(12, 2))
def test_random_waves_lose_and_repeat_nothing(seed: int) -> None:
    """Whoever is faster, fails, is cut off or conflicts: every event is taken, told of, or still waits; once."""
    for number in range(15):
        chance = random.Random(f"{seed}/{number}")
        hats = tuple(replace(one, concurrency=chance.choice([2, 3, 9]) if one.concurrency > 1 else 1) for one in HATS)
        if chance.random() < 0.3:
            hats = (*hats[:2], replace(hats[2], gathers_within=chance.choice([5.0, 30.0])))
        settings = replace(SETTINGS, hats=hats, max_failures=chance.choice([1, 4]), checkpoint=chance.choice([0, 3]))
        world = stage(settings, checks=CHECK if chance.random() < 0.5 else (), works=True)
        world.pick = chance.randrange
        ends = [
            MergeResult.MERGED,
            MergeResult.MERGED,
            MergeResult.NOTHING,
            MergeResult.CONFLICT,
            MergeResult.CHECKS_FAILED,
        ]
        world.merges = lambda workspace, chance=chance, ends=ends: chance.choice(ends)  # type: ignore[misc]

        def any_agent(world: Stage, hat: str, chance: random.Random = chance) -> Turned:
            if chance.random() < 0.1:
                world.says("a word")
            end = chance.choice([TurnEnd.FINISHED] * 8 + [TurnEnd.FAILED, TurnEnd.WALL, TurnEnd.CUT])
            if hat == "builder":
                topics = chance.choices(["piece.done", "LOOP_COMPLETE", "piece.ready", "nobody.takes"], [8, 1, 1, 1])
                events = tuple((topic, chance.randint(0, 9)) for topic in topics if chance.random() < 0.8)
                return Turned(events, end=end, files=chance.choice([0, 1]))
            if hat == "planner":
                return Turned(pieces(chance.randint(0, 6)), end=end)
            done = (("human.guidance.ack", ""), ("LOOP_COMPLETE", "")) if chance.random() < 0.3 else pieces(3)
            return Turned(done, end=end, files=1)

        stop = world.play(any_agent, most=50)
        waiting = [event.number for event in (*world.state.queue, *world.state.claims)]
        waiting += [job.event.number for job in world.state.wave.workers] if world.state.wave else []
        assert len(waiting) == len(set(waiting)), "an event waits twice"
        promised = world.topics.count("LOOP_COMPLETE")
        failed = len(rows(world, "wave.worker.failed"))
        unseen = world.state.events_published - len({*world.taken, *waiting})
        assert unseen <= promised + failed, "an event was lost"
        if stop and stop.outcome is Outcome.SUCCESS:
            assert not world.state.guidance and world.state.wave is None


def test_time_limit_of_a_wave_continues_after_a_resume() -> None:
    hats = (*HATS[:2], replace(HATS[2], gathers_within=35.0))
    world = stage(SETTINGS, hats=hats)
    world.play(agent, 2)
    world.tell(RunEnded(Outcome.PAUSED, "", Spent(), Limits()))
    world.now += 100_000.0
    world.state = world.rules.load({world.rules.context.state_path: world.documents[world.rules.context.state_path]})
    assert world.state.phase is HatsPhase.WAVE
    decision = world.rules.decide(world.state, world.now)
    assert isinstance(decision, Do)
    assert [one.wall for one in decision.work if isinstance(one, TurnRequest)] == [25.0, 25.0], "10 of 35 were used"
    world.play(agent, 3)
    assert world.state.wave and world.state.wave.deadline == world.now + 15.0
