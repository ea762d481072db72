"""Loops, as the engine runs them."""

from pathlib import Path

from ralph.app.workflows import Kind
from ralph.core.limits import Limits
from ralph.documents.run_record import RunRecord
from ralph.memory.keeping import LoopMemory
from ralph.store import prompts
from ralph.workflows.loop.kinds import TaskType
from ralph.workflows.loop.prompting import NAMES
from ralph.workflows.loop.rules import Loop
from ralph.workflows.loop.state import Fixed, OnStuck


def loop_workflow(record: RunRecord, root: Path, limits: Limits | None = None) -> Loop:
    """The rules of a loop run, with the limits that hold now."""
    limits, asked = limits or record.limits, record.loop
    fixed = Fixed(
        record.id,
        record.criterion,
        limits.iterations,
        record.created_at,
        limits.active_seconds,
        TaskType(asked.type),
        asked.scope,
        OnStuck(asked.on_stuck),
        asked.reflector,
        asked.commit,
        asked.recalled,
    )
    return Loop(record.task, record.checks, {name: prompts.load(name, root) for name in NAMES}, fixed)


LOOP = Kind(loop_workflow, observers=lambda root, run: (LoopMemory(root, run),))
