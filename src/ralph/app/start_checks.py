"""What is checked before a run starts: limits that cannot hold are refused, and what may surprise the user is said."""

from collections.abc import Iterator
from pathlib import Path

from ralph.agents import registry
from ralph.app.run_options import settings_without_effect
from ralph.app.workflows import ROLES, roles_of
from ralph.core.errors import RalphError, UsageError
from ralph.core.limits import Limits
from ralph.documents.config import Config
from ralph.documents.run_record import RunRecord
from ralph.store.files import read_limited
from ralph.store.held_trees import HeldTree, content_hash, held_trees
from ralph.store.runs import Project
from ralph.workflows.loop.kinds import TaskType, too_few


def start_notices(project: Project, config: Config, record: RunRecord) -> Iterator[str]:
    """Refuse limits that cannot hold, and say what the user may not expect of this run."""
    yield from cost_notices(project, record, record.limits)
    if not record.snapshots:
        refuse_held_tree(project, record)
        yield (
            "snapshots are off: changes cannot be undone or compared with the state before the run,"
            " and lost branches, tags or stash entries are not noticed"
        )
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


def refuse_held_tree(project: Project, record: RunRecord) -> None:
    """Refuse to judge a tree without snapshots that an earlier run was held up for: nothing could be compared."""
    workspace = project.workspace(record)
    for held in held_trees(project.root).all():
        rules = sorted({finding.rule for finding in held.findings} - record.allowed.keys())
        if rules and _has_held_file(workspace, held):
            allow = " ".join(f"--allow {rule}=REASON" for rule in rules)
            raise UsageError(
                f"run {held.run} was held up for what is still in this tree, and without snapshots nothing can be compared",
                where=", ".join(sorted(held.files)),
                todo=f"leave --no-snapshots out, undo the change, or give {allow}",
            )


def _has_held_file(workspace: Path, held: HeldTree) -> bool:
    """Whether a file is what it was when the run was held up for it."""
    for path, was in held.files.items():
        try:
            data: bytes | None = read_limited(workspace / path, follow=True)
        except (OSError, RalphError):
            data = None
        if content_hash(data) == was:
            return True
    return False


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
