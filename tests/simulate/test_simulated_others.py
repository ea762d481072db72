"""Simulated loops and sessions: they end, they count what is true, and nothing that agents do is a defect."""

from dataclasses import replace
from pathlib import Path

import pytest

from ralph.app.loops import loop_workflow
from ralph.app.sessions import session_workflow
from ralph.core.checks import Check
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.documents.run_record import Crew, LoopSettings, RunRecord
from ralph.simulate.figures import Figures
from ralph.simulate.loop import LoopGame
from ralph.simulate.play import Plan, play
from ralph.simulate.profile import Befalls, Profile, named, shipped
from ralph.simulate.session import SessionGame

RECORD = RunRecord("261116-093000", "", "Do it", "", (Check("all"),), Crew(()), 1_800_000_000.0)
RESTLESS = Befalls(crash=0.2, pause=0.05, steer=0.2, inform=0.1, abort=0.01)
OUTCOMES = {outcome.value for outcome in Outcome}


def loop(root: Path, profile: Profile, **settings: object) -> Plan:
    limits = Limits(10, 3600.0)
    record = replace(RECORD, loop=replace(LoopSettings(), **settings))  # type: ignore[arg-type] - any setting
    rules = loop_workflow(record, root, limits)
    return Plan(lambda how, chance: LoopGame(rules, how, chance), profile, limits)


def session(root: Path, profile: Profile, checks: tuple[Check, ...] = RECORD.checks) -> Plan:
    rules = session_workflow(replace(RECORD, checks=checks), root)
    return Plan(lambda how, chance: SessionGame(rules, how, chance), profile, Limits(None, None), slots=3)


def figures(plan: Plan, runs: int) -> Figures:
    return Figures([play(plan, seed) for seed in range(runs)])


def test_competent_agents_finish_and_lazy_ones_get_stuck(tmp_path: Path) -> None:
    assert figures(loop(tmp_path, named("competent")), 20).share > 0.9
    assert figures(session(tmp_path, named("competent")), 6).share > 0.5
    lazy = figures(loop(tmp_path, named("lazy")), 30)
    assert lazy.share < 0.5
    assert lazy.outcomes[0][:1] == ("stuck",)
    going_on = figures(loop(tmp_path, named("lazy"), on_stuck="continue"), 10)
    assert "stuck" not in {run.outcome for run in going_on.runs}


@pytest.mark.parametrize("name", sorted(shipped()))
def test_whatever_agents_do_a_run_ends_with_the_truth(name: str, tmp_path: Path) -> None:
    profile = named(name).model_copy(update={"befalls": RESTLESS})
    for plan in (loop(tmp_path, profile, reflector=True), session(tmp_path, profile)):
        found = figures(plan, 5)
        assert not found.false
        assert {run.outcome for run in found.runs} <= OUTCOMES


def test_a_session_without_checks_believes_reviewers_who_see_nothing(tmp_path: Path) -> None:
    blind = Profile(right=0.3, notices=0, doubts=0, pieces=(3, 3))
    rules = session(tmp_path, blind, checks=())
    assert not figures(rules, 4).false, "the criteria of tasks are checks too"
