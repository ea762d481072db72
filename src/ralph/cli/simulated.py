"""What is simulated: hats by a preset, a loop, a session, or a run that is there already."""

from dataclasses import replace
from typing import Any

from ralph.app.hats import hats_workflow
from ralph.app.loops import loop_workflow
from ralph.app.sessions import session_workflow
from ralph.cli.console import positive
from ralph.cli.hats_checked import shown
from ralph.cli.limits import run_limits, with_limits
from ralph.cli.sessions_here import Found, sessions
from ralph.core.checks import Check
from ralph.core.errors import UsageError
from ralph.core.ids import is_run_id
from ralph.core.limits import Limits
from ralph.documents.config import Config
from ralph.documents.hats.reading import settings
from ralph.documents.hats.source import Source
from ralph.documents.run_record import Crew, LoopSettings, RunRecord
from ralph.simulate.clock import EPOCH
from ralph.simulate.hats import HatsGame
from ralph.simulate.loop import LoopGame
from ralph.simulate.parts import Parts
from ralph.simulate.play import Plan
from ralph.simulate.profile import Profile
from ralph.simulate.session import SessionGame
from ralph.store.presets import load_preset
from ralph.store.runs import Project
from ralph.store.settings import load_config

BARE = RunRecord("000101-000000", "", "Do what is asked for", "", (), Crew(()), EPOCH)
"""A run of which nothing is known yet."""
_OWN = {
    "hats": ("given", "checks", "max_iterations"),
    "loop": ("checks", "max_iterations", "on_stuck", "reflector"),
    "session": ("checks", "parallel"),
}
"""Options that only some workflows have."""
_NAMES = {"given": "-c", "checks": "--check"}


def plan_for(project: Project, target: str, profile: Profile, options: dict[str, Any]) -> Plan:
    """The runs that are meant."""
    found = next((one for one in sessions(project) if target and one.id == target), None)
    if found or target == "session":
        _refuse_others("session", options)
        return _session(project, found, profile, options)
    known = project.run(target).record() if is_run_id(target) else None
    if target == "loop" or (known and known.workflow == "loop"):
        _refuse_others("loop", options)
        return _loop(project, known, profile, options)
    _refuse_others("hats", options)
    return _hats(project, known, target, profile, options)


def _refuse_others(workflow: str, options: dict[str, Any]) -> None:
    """An option that means nothing for this workflow is an error, not ignored."""
    strange = {name for names in _OWN.values() for name in names}.difference(_OWN[workflow])
    if given := [_NAMES.get(name, f"--{name.replace('_', '-')}") for name in sorted(strange) if options[name]]:
        raise UsageError(f"{', '.join(given)} is not for {workflow}", todo="leave it out, or name another target")


def _checks(options: dict[str, Any], usual: tuple[Check, ...]) -> tuple[Check, ...]:
    return tuple(Check(text) for text in options["checks"]) or usual


def _limits(usual: Limits, options: dict[str, Any]) -> Limits:
    """The usual limits, with what options say."""
    minutes = positive("--timeout", options["timeout"], None)
    return replace(
        usual,
        iterations=positive("--max-iterations", options["max_iterations"], usual.iterations),
        active_seconds=usual.active_seconds if minutes is None else minutes * 60,
        tokens=positive("--max-tokens", options["max_tokens"], usual.tokens),
        cost=positive("--max-cost", options["max_cost"], usual.cost),
        deadline=None,
    )


def _configured(config: Config) -> Limits:
    return run_limits(config, None, None, None, None, None)


def _hats(project: Project, known: RunRecord | None, target: str, profile: Profile, options: dict[str, Any]) -> Plan:
    if known and known.hats:
        record, limits, name = replace(known, checks=_checks(options, known.checks)), known.limits, ""
    else:
        loaded = load_preset(project.root, options["given"], target or None)
        checks = _checks(options, tuple(Check(text) for text in loaded.preset.event_loop.checks))
        source = Source("rough description", "simulated", f"{loaded.preset.core.specs_dir}implementation/simulated/")
        record = replace(BARE, hats=settings(loaded.preset, source, checks=bool(checks)), checks=checks)
        limits = _configured(with_limits(loaded.preset, loaded.config))
        name = shown(loaded.files[-1]) if loaded.files else "no preset"
    rules = hats_workflow(record, project.root)
    # A run that would wait for more when all is done ends there: nobody comes by in a simulation.
    rules = replace(rules, settings=replace(rules.settings, persistent=False))
    parts = Parts(rules.settings)
    slots = max((hat.concurrency for hat in rules.settings.hats), default=1)
    unchecked = "" if rules.checks else "; no checks, so the engine believes the hats (--check)"
    told = f"{parts.about or 'the coordinator does all of it'}{unchecked}"
    return Plan(
        lambda how, chance: HatsGame(rules, parts, how, chance),
        profile,
        _limits(limits, options),
        slots=slots,
        about=told,
        name=name,
    )


def _loop(project: Project, known: RunRecord | None, profile: Profile, options: dict[str, Any]) -> Plan:
    config = load_config(project.root)
    own = known.loop if known else LoopSettings(on_stuck=config.loop.on_stuck, reflector=config.loop.reflector)
    own = replace(own, on_stuck=options["on_stuck"] or own.on_stuck, reflector=options["reflector"] or own.reflector)
    record = replace(known or BARE, checks=_checks(options, known.checks if known else (Check("check"),)), loop=own)
    limits = _limits(known.limits if known else _configured(config), options)
    rules = loop_workflow(record, project.root, limits)
    return Plan(lambda how, chance: LoopGame(rules, how, chance), profile, limits)


def _session(project: Project, found: Found | None, profile: Profile, options: dict[str, Any]) -> Plan:
    """A session from its beginning, or from where the documents of one are."""
    if found and found.is_classic:
        raise UsageError(f"session {found.id} is a classic one: these are not simulated", todo="name another target")
    record = found.record if found else BARE
    record = replace(record, checks=_checks(options, record.checks))
    config = load_config(project.root).limits
    usual = record.limits if found and found.run else Limits(None, None, None, config.tokens, config.cost)
    rules, texts = session_workflow(record, project.root), found.mended() if found else {}
    return Plan(
        lambda how, chance: SessionGame(rules, how, chance),
        profile,
        _limits(usual, options),
        texts,
        {} if found and found.run else texts,
        positive("--parallel", options["parallel"], record.slots.run) or 1,
    )
