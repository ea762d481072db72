"""What the engine needs to know of each workflow. Its rules are imported only when a run of it starts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralph.core.entries import Record
from ralph.core.errors import StateError
from ralph.core.limits import Limits
from ralph.documents.hats.definition import COORDINATOR, HatsSettings
from ralph.documents.run_record import RunRecord
from ralph.engine.ports import Observer, Workflow
from ralph.store import settings

if TYPE_CHECKING:
    from ralph.workflows.hats.rules import Hats
    from ralph.workflows.loop.rules import Loop


@dataclass(frozen=True)
class WorkflowKind:
    """A workflow, as the engine needs it."""

    workflow: Callable[[RunRecord, Path, Limits | None], Workflow[Any]]
    watched: Callable[[RunRecord, Path], tuple[str, ...]] = lambda record, root: ()
    """The files that users or agents may put beside the documents of a run, as patterns."""
    sees_deletions: bool = False
    """Whether its rules get an event when a document is deleted."""
    repair: Callable[[Path, RunRecord, float], tuple[str, ...]] = lambda root, record, now: ()
    """Repairs the documents before they are read. Returns what was done."""
    rebuild_state: Callable[[RunRecord, Iterable[Record]], Mapping[str, str]] = lambda record, records: {}
    """The documents with the engine's own state as far as the journal contains it, if something else changed them. Empty
    if the run cannot continue without them."""
    observers: Callable[[Path, str], tuple[Observer, ...]] = lambda root, run: ()
    """Observers of every run, for example the memory of loops."""
    required_roles: tuple[str, ...] = ()
    """The roles that must all receive a message to everyone before it is archived. If empty, one receiver is enough."""


def find_workflow_kind(workflow: str) -> WorkflowKind:
    """What the engine needs to know of a workflow. Its rules are imported only if they are used."""
    match workflow:
        case "session" | "classic":
            from ralph.app import sessions

            return sessions.SESSION if workflow == "session" else sessions.CLASSIC
        case "hats":
            return WorkflowKind(
                build_hats_workflow, lambda record, root: build_hats_workflow(record, root).context.watched
            )
        case "loop":
            from ralph.memory.learning import LoopMemory

            return WorkflowKind(build_loop_workflow, observers=lambda root, run: (LoopMemory(root, run),))
        case _:
            raise StateError(
                f"this version of Ralph has no workflow {workflow!r}",
                where="run.json",
                todo="use the version that started it",
            )


def build_hats_workflow(record: RunRecord, root: Path, limits: Limits | None = None) -> "Hats":
    """The rules of a run of hats."""
    from ralph.workflows.hats.routing import HatsContext
    from ralph.workflows.hats.rules import Hats

    hats = record.hats or HatsSettings()
    return Hats(
        HatsContext(
            record.id,
            record.task,
            hats,
            record.checks,
            frame=settings.load_prompt("hats", root),
            resolver=settings.load_prompt("resolver", root),
            judge=settings.load_prompt("loop-judge", root),
            has_judge=record.require != "proven",
            judges_all=record.require == "judged",
        )
    )


def build_loop_workflow(record: RunRecord, root: Path, limits: Limits | None = None) -> "Loop":
    """The rules of a loop run, with the limits that hold now."""
    from ralph.memory.recall import recall
    from ralph.workflows.loop.prompt import NAMES
    from ralph.workflows.loop.rules import Loop
    from ralph.workflows.loop.state import LoopParameters, OnStuck, TaskType

    limits, options = limits or record.limits, record.loop
    loop_settings = LoopParameters(
        run_id=record.id,
        criterion=record.criterion,
        max_iterations=limits.iterations,
        started_at=record.created_at,
        timeout=limits.active_seconds,
        type=TaskType(options.type),
        scope=options.scope,
        may_change=record.may_change,
        on_stuck=OnStuck(options.on_stuck),
        reflector=options.reflector,
        commit=options.commit,
        has_judge=record.require != "proven",
        judges_all=record.require == "judged",
    )

    def ask_memory(query: str, failing: Sequence[str]) -> tuple[str, ...]:
        if not options.recall:
            return ()
        return recall(root, query, exclude=record.id, failing=failing, task_type=options.type)

    templates = {name: settings.load_prompt(name, root) for name in NAMES}
    return Loop(record.task, record.checks, templates, loop_settings, recall=ask_memory)


ROLES = {
    "loop": ("implementer", "test-engineer", "debugger", "reflector", "judge"),
    "session": ("planner", "questioner", "executor", "reviewer", "librarian", "resolver"),
    "classic": ("planner", "questioner", "executor", "reviewer"),
}


def list_roles(record: RunRecord) -> tuple[str, ...]:
    """The roles that the turns of a run have."""
    if record.hats is None:
        return ROLES.get(record.workflow, ())
    hats = [hat.id for hat in record.hats.hats]
    return (*hats, COORDINATOR, "resolver", "judge")
