"""Simulated runs of hats: what holds for good presets, and what shows in broken ones."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ralph.core.checks import Check
from ralph.core.entries import TurnStarted
from ralph.core.events import TurnEnded
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.documents.hats.definition import Hat, HatsSettings
from ralph.documents.hats.reading import settings
from ralph.documents.hats.source import Source
from ralph.simulate.figures import Figures
from ralph.simulate.hats import HatsGame
from ralph.simulate.parts import Parts
from ralph.simulate.play import Plan, play
from ralph.simulate.profile import Befalls, Breaks, Profile, Publishes, named, shipped
from ralph.store.presets import load_preset
from ralph.workflows.hats.rules import Hats

CHECKS = (Check("tests"),)
PING_PONG = HatsSettings(
    (
        Hat("ping", triggers=("ping.go",), publishes=("pong.go",), default_publishes="pong.go"),
        Hat("pong", triggers=("pong.go",), publishes=("ping.go", "LOOP_COMPLETE"), default_publishes="ping.go"),
    ),
    starting_event="ping.go",
)
WAVES = HatsSettings(
    (
        Hat("planner", triggers=("go",), publishes=("slice",)),
        Hat("maker", triggers=("slice",), publishes=("slice.made",), concurrency=3),
        Hat("gatherer", triggers=("slice.made",), publishes=("go", "LOOP_COMPLETE"), gathers=True),
    ),
    starting_event="go",
)
CALM = Befalls(crash=0, pause=0, steer=0, inform=0, abort=0)


@cache
def code_assist() -> HatsSettings:
    preset = load_preset(Path("/nowhere"), (), "builtin:code-assist").preset
    return settings(preset, Source("rough description", "it", "docs/it/"), checks=True)


def plan(hats: HatsSettings, profile: Profile, checks: tuple[Check, ...] = CHECKS, **limits: Any) -> Plan:
    rules, parts = Hats("261116-093000-simu", "Do it", hats, checks, "Frame."), Parts(hats)
    allowed = replace(Limits(100, 4 * 3600.0), **limits)
    return Plan(lambda how, chance: HatsGame(rules, parts, how, chance), profile, allowed, slots=3)


def figures(wanted: Plan, runs: int, first: int = 1) -> Figures:
    return Figures([play(wanted, seed) for seed in range(first, first + runs)])


def test_code_assist_is_completed_by_competent_agents_and_nobody_can_lie_past_its_checks() -> None:
    assert figures(plan(code_assist(), named("competent")), 60).share >= 0.99
    lying = figures(plan(code_assist(), named("lying")), 40)
    assert not lying.false
    assert lying.share < 0.5


def test_without_checks_lies_are_believed_and_counted_as_what_they_are() -> None:
    found = figures(plan(code_assist(), named("lying"), checks=()), 20)
    assert len(found.false) > 10
    assert found.worst["false success"] == found.false[0].seed


def test_two_hats_whose_defaults_feed_each_other_play_ping_pong_with_a_mute_agent() -> None:
    mute = named("mute").model_copy(
        update={"befalls": CALM, "breaks": Breaks(fails=0, hangs=0, limited=0, overloaded=0)}
    )
    run = play(plan(PING_PONG, mute, iterations=12), 1, keeps=True)
    assert run.outcome == Outcome.LIMIT_ITERATIONS
    roles = [record.entry.role for record in run.records if isinstance(record.entry, TurnStarted)]
    assert roles == ["ping", "pong"] * 6
    assert figures(plan(PING_PONG, named("competent")), 30).share > 0.9


def test_turns_that_are_too_few_for_rework_show_as_a_low_share_with_the_reason() -> None:
    hats = tuple(replace(hat, max_activations=2) if hat.id == "critic" else hat for hat in code_assist().hats)
    found = figures(plan(replace(code_assist(), hats=hats), named("competent"), active_seconds=7200.0), 40)
    assert found.share < 0.9
    assert any("critic.exhausted" in text for text, _ in found.in_the_way)


def test_a_required_event_that_the_way_passes_by_shows_in_what_was_refused() -> None:
    hats = (
        Hat("builder", triggers=("build.start", "build.rejected"), publishes=("build.ready",)),
        Hat("critic", triggers=("build.ready",), publishes=("build.passed", "build.rejected")),
        Hat("auditor", triggers=("audit.asked",), publishes=("audit.passed",)),
        Hat("finisher", triggers=("build.passed",), publishes=("LOOP_COMPLETE", "build.rejected")),
    )
    broken = HatsSettings(hats, starting_event="build.start", required=("audit.passed",))
    found = figures(plan(broken, named("competent"), iterations=20), 20)
    assert found.share == 0
    assert any("audit.passed was never published" in text for text, _ in found.in_the_way)


@pytest.mark.parametrize("name", sorted(shipped()))
@pytest.mark.parametrize(
    "hats",
    [
        WAVES,
        pytest.param(PING_PONG, marks=pytest.mark.slow),
        pytest.param(HatsSettings(enforce_scope=True, cancellation="LOOP_CANCEL"), marks=pytest.mark.slow),
    ],
)
def test_whatever_agents_do_a_run_ends_and_nothing_is_a_defect(name: str, hats: HatsSettings) -> None:
    restless = Befalls(crash=0.3, pause=0.1, steer=0.2, inform=0.1, abort=0.01)
    profile = named(name).model_copy(update={"befalls": restless})
    found = figures(plan(hats, profile, iterations=15), 12)
    assert not found.false
    assert {run.outcome for run in found.runs} <= {outcome.value for outcome in Outcome}


def test_a_replay_is_the_run_and_a_run_depends_on_its_seed_alone() -> None:
    wanted = plan(code_assist(), named("competent"))
    first = figures(wanted, 6).runs
    assert figures(wanted, 3, first=4).runs == first[3:]
    again = play(wanted, 5, keeps=True)
    assert replace(again, records=(), told={}) == first[4]
    assert again.records and again.told


def test_engines_that_are_killed_in_every_turn_lose_and_repeat_nothing() -> None:
    profile = Profile(befalls=Befalls(crash=1, pause=0.2, steer=0.3, inform=0.2, abort=0))
    for seed in range(12):
        run = play(plan(code_assist(), profile), seed, keeps=True)
        entries = [record.entry for record in run.records]
        started = [entry.turn for entry in entries if isinstance(entry, TurnStarted)]
        ended = [entry for entry in entries if isinstance(entry, TurnEnded)]
        assert run.engines > 2
        assert len(started) == len(set(started)) == len({entry.turn for entry in ended}) == len(ended)
        assert run.spent.cost == pytest.approx(sum(entry.result.usage.cost or 0 for entry in ended))


def test_the_limits_of_a_run_hold() -> None:
    mute = Profile(publishes=Publishes(fitting=0, any=0, nothing=1), befalls=CALM)
    cost = play(plan(PING_PONG, mute, cost=2.0, iterations=None), 1)
    tokens = play(plan(PING_PONG, mute, tokens=1_000_000, iterations=None), 1)
    time = play(plan(PING_PONG, mute, active_seconds=3600.0, iterations=None), 1)
    assert [run.outcome for run in (cost, tokens, time)] == ["limit-cost", "limit-tokens", "limit-time"]
    assert 2.0 <= cost.spent.cost < 3.0


def test_what_is_taken_side_by_side_is_simulated_so() -> None:
    found = figures(plan(WAVES, named("competent")), 15)
    assert found.share > 0.8
    assert found.roles["maker"] > 1.3 * found.roles["planner"]


def test_hats_are_taken_for_what_their_topics_say() -> None:
    parts = Parts(code_assist())
    assert parts.about == "planner makes, builder makes, critic judges, finalizer judges and completes"
    assert parts.of["finalizer"].more == ("queue.advance",)
    assert parts.of["finalizer"].mends == ("finalization.failed",)
    assert parts.to_make[0] == "build.start"
