"""What is checked before a run starts: limits that cannot hold are refused, and what may surprise the user is said."""

from collections.abc import Iterator
from pathlib import Path

from ralph.agents import registry
from ralph.app.run_options import settings_without_effect
from ralph.app.workflows import ROLES, roles_of
from ralph.core.errors import UsageError
from ralph.core.limits import Limits
from ralph.documents.config import Config
from ralph.documents.run_record import RunRecord
from ralph.store.runs import Project
from ralph.workflows.loop.kinds import TaskType, too_few


def start_notices(project: Project, config: Config, record: RunRecord) -> Iterator[str]:
    """Refuse limits that cannot hold, and say what the user may not expect of this run."""
    yield from cost_notices(project, record, record.limits)
    limits, loop = record.limits, record.loop
    if record.workflow == "loop" and (note := too_few(TaskType(loop.type), limits.iterations)):
        yield note
    if loop.recalled:
        yield f"lessons of earlier loops are in the prompt: {len(loop.recalled)} (--no-recall leaves them out)"
    if project.root != Path.cwd():
        yield f"agent and checks work in {project.root}, the root of the project"
    for rule, reason in record.allowed.items():
        yield f"the rule {rule} is lifted: {reason}"
    known_roles = {*roles_of(record), *(role for roles in ROLES.values() for role in roles)}
    yield from settings_without_effect(config, record.workflow, tuple(sorted(known_roles)))
    for label, spec in record.crew.everyone.items():
        can = registry.make(spec).abilities
        if limits.tokens and not can.tokens:
            reports = "may not report" if spec.kind == "acp" else "does not report"
            yield f"{label} {reports} tokens: --max-tokens cannot hold"
        if spec.model and not can.model:
            yield f"{label} cannot be told which model to use"
        if spec.without_tools and not can.tool_limits:
            yield f"{label} cannot be kept from using {', '.join(spec.without_tools)}"
        if record.most_steps and not can.step_limit:
            yield f"{label} has no limit of steps: max_steps does not hold for it"


def cost_notices(project: Project, record: RunRecord, limits: Limits) -> Iterator[str]:
    """Refuse a limit on cost that an agent keeps from holding, unless the user allows that; then say so."""
    if limits.cost is None:
        return
    workspace = project.workspace(record)
    for label, spec in record.crew.everyone.items():
        unknown = registry.unknown_cost(spec, record.prices, workspace)
        if unknown and not limits.allow_unpriced:
            what = f"the cost limit of ${limits.cost:g} cannot hold: {unknown.why}"
            raise UsageError(what, where=label, todo=f"{unknown.cure}, or give --allow-unpriced")
        if unknown:
            yield f"cost unknown: {unknown.why}; the limit of ${limits.cost:g} does not hold for {label}"
