"""Starting a run: what options and settings say of any, and what a person should know of it."""

import difflib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ralph.agents import registry
from ralph.cli.console import positive
from ralph.cli.limits import run_limits, turn_limits
from ralph.cli.parallel import slot_limits, tree_settings
from ralph.core.errors import UsageError
from ralph.core.findings import Rule
from ralph.documents.config import Config
from ralph.documents.run_record import Crew, RunRecord
from ralph.store.runs import Project
from ralph.workflows.loop.kinds import TaskType, too_few

_LIMITS = ("max_iterations", "timeout", "deadline", "max_tokens", "max_cost")


def record_for(workflow: str, task: str, crew: Crew, config: Config, given: Mapping[str, Any]) -> RunRecord:
    """What a run is started with, whatever its workflow; that adds its own."""
    return RunRecord(
        id="",
        workflow=workflow,
        task=task,
        criterion="",
        checks=(),
        crew=crew,
        created_at=time.time(),
        limits=run_limits(config, *(given[name] for name in _LIMITS)),
        turn_limits=turn_limits(config, given["turn_timeout"], given["idle_timeout"]),
        check_seconds=check_seconds(config, given),
        snapshots=config.snapshots and not given["no_snapshots"],
        allowed=_lifted(given["allow"], given["because"]),
        push=config.push,
        most_steps=config.max_steps,
        prices=config.prices,
        land=given["land"] or config.land or "branch",
        slots=slot_limits(config.slots),
        trees=tree_settings(config.workspace),
    )


def check_seconds(config: Config, given: Mapping[str, Any]) -> float:
    """After which a check is ended."""
    return positive("--check-timeout", given["check_timeout"], config.check_timeout) or 0


def refuse_to_land(given: Mapping[str, Any], *, apart: bool) -> None:
    """Only a run on a branch of its own has something to land."""
    if given["land"] and not apart:
        raise UsageError("--land needs a branch to land", todo="give --worktree with it")


def notices_of(project: Project, record: RunRecord) -> Iterator[str]:
    """What a person may not expect."""
    limits, loop = record.limits, record.loop
    if record.workflow == "loop" and (note := too_few(TaskType(loop.type), limits.iterations)):
        yield note
    if loop.recalled:
        yield f"lessons of earlier loops are in the prompt: {len(loop.recalled)} (--no-recall leaves them out)"
    if project.root != Path.cwd():
        yield f"agent and checks work in {project.root}, the root of the project"
    for rule, reason in record.allowed.items():
        yield f"the rule {rule} is lifted: {reason}"
    for label, spec in record.crew.everyone.items():
        can = registry.make(spec).abilities
        if (limits.cost and not can.cost and not can.tokens) or (limits.tokens and not can.tokens):
            reports = "may report" if spec.kind == "acp" else "reports"
            yield f"{label} {reports} neither cost nor tokens: the limits on them cannot hold"
        if spec.model and not can.model:
            yield f"{label} cannot be told which model to use"
        if spec.without_tools and not can.tool_limits:
            yield f"{label} cannot be kept from using {', '.join(spec.without_tools)}"
        if record.most_steps and not can.step_limit:
            yield f"{label} has no limit of steps: max_steps does not hold for it"


def _lifted(rules: tuple[str, ...], because: str | None) -> dict[str, str]:
    """The rules that a person lifts, each with the reason."""
    known = [rule.value for rule in Rule]
    for rule in rules:
        if rule not in known:
            near = difflib.get_close_matches(rule, known, 1)
            raise UsageError(f"there is no rule {rule!r}", todo=f"known are {', '.join(near or known)}")
    if bool(rules) != bool(because and because.strip()):
        raise UsageError("--allow and --because go together", todo='write --allow RULE --because "the reason"')
    return dict.fromkeys(rules, because or "")
