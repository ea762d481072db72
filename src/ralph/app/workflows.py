"""The kinds of runs: what the engine has to know of a workflow; each is loaded when a run of it is taken up."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph.core.errors import StateError
from ralph.core.limits import Limits
from ralph.documents.run_record import RunRecord
from ralph.engine.ports import Observer, Workflow

SESSIONS = ("session", "classic")
"""The workflows whose documents are in a directory of the session."""


@dataclass(frozen=True)
class Kind:
    """A workflow, as the engine takes it up."""

    workflow: Callable[[RunRecord, Path, Limits | None], Workflow[Any]]
    watched: Callable[[RunRecord, Path], tuple[str, ...]] = lambda record, root: ()
    """The files that people or agents may put beside the documents of a run, as patterns."""
    mend: Callable[[Path, RunRecord, float], tuple[str, ...]] = lambda root, record, now: ()
    """Puts the documents right before they are taken up, and says what was done."""
    observers: Callable[[Path, str], tuple[Observer, ...]] = lambda root, run: ()
    """Who looks on besides the person: learns from a run, for those that come."""
    quorum: tuple[str, ...] = ()
    """The roles that must have what a person says to all before that is filed; without any, one will do."""


def kind_of(workflow: str) -> Kind:
    """What the engine has to know of a workflow."""
    match workflow:
        case "session":
            from ralph.app.sessions import SESSION as kind
        case "classic":
            from ralph.app.sessions import CLASSIC as kind
        case "hats":
            from ralph.app.hats import HATS as kind
        case "loop":
            from ralph.app.loops import LOOP as kind
        case _:
            raise StateError(
                f"this version knows no workflow {workflow!r}", where="run.json", todo="use the version that began it"
            )
    return kind


ROLES = {
    "loop": ("implementer", "test-engineer", "debugger", "reflector"),
    "session": ("planner", "questioner", "executor", "reviewer", "librarian", "resolver"),
    "classic": ("planner", "questioner", "executor", "reviewer"),
}


def roles_of(record: RunRecord) -> tuple[str, ...]:
    """The roles that the turns of a run have."""
    hats = record.hats
    return (*(hat.id for hat in hats.hats), "resolver") if hats else ROLES.get(record.workflow, ())
