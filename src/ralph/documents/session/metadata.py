"""`metadata.yaml` of a session and of an iteration: where it is, and how far it came.

`version` counts the changes of the file. Unknown keys, comments and the order of lines survive.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from ralph.core.errors import StateError
from ralph.documents.session.values import (
    Reader,
    choice,
    count,
    flag,
    mapping,
    moment,
    optional,
    read_all,
    text_of,
    word,
    words_of,
)
from ralph.documents.session.yaml_lines import CORRECT, Exactly, YamlLines, told

T = TypeVar("T", "Metadata", "IterationMetadata")
SCHEMA = "ralph-v2"
STATES = (
    "INITIALIZING",
    "PLANNING",
    "REPLANNING",
    "BATCHING",
    "EXECUTING_BATCH",
    "REVIEWING_BATCH",
    "SESSION_REVIEW",
    "SESSION_CRITIQUE_REPLAN",
    "SESSION_CRITIQUE_REPLAN",
    "KNOWLEDGE_EXTRACTION",
    "KNOWLEDGE_APPROVAL",
    "COMPLETE",
)
_STATE_WORDS = {
    "ITERATION_REVIEW": "SESSION_REVIEW",
    "ITERATION_CRITIQUE_REPLAN": "SESSION_CRITIQUE_REPLAN",
    "CURATE": "KNOWLEDGE_APPROVAL",
}
"""What later releases call the same states."""
STATUSES = ("in_progress", "completed", "awaiting_feedback", "blocked", "aborted")


@dataclass(frozen=True)
class Metadata:
    """What is known of a session."""

    session_id: str
    created_at: str
    updated_at: str
    version: int = 1
    status: str = "in_progress"
    iteration: int = 1
    state: str = "PLANNING"
    previous_state: str = ""
    current_wave: int | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    pending: int = 0
    cancelled: int = 0
    processed: Mapping[str, str] = field(default_factory=dict)
    """The batches of feedback that were taken in, with the hash of what they said."""
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The tasks that were split, with those they were split into."""
    request: str = ""
    """What the session was asked for."""
    paused: bool = False
    critique_cycle: int = 0
    """How often the session was reviewed and sent back by itself in this iteration."""


@dataclass(frozen=True)
class IterationMetadata:
    """What is known of an iteration."""

    iteration: int
    started_at: str
    planning_complete: bool = False
    planning_completed_at: str = ""
    completed_at: str = ""
    tasks_defined: int = 0
    planning_tasks: Mapping[str, str] = field(default_factory=dict)
    """The planning steps that are over, with what came of each."""
    version: int = 1


def parse(text: str, where: str = "metadata.yaml") -> Metadata:
    """The metadata of a session, or one error that names every fault."""
    return _parse(text, where, Metadata, _SESSION)


def render(metadata: Metadata, old: str = "") -> str:
    """The file's text; with the old one, only what is different changes."""
    return _render(metadata, old, _SESSION, {"schema": SCHEMA})


def problems(text: str) -> list[str]:
    """What is wrong with the metadata of a session, a sentence each."""
    return _problems(text, _SESSION)


def parse_iteration(text: str, where: str = "iterations/N/metadata.yaml") -> IterationMetadata:
    """The metadata of an iteration, or one error that names every fault."""
    return _parse(text, where, IterationMetadata, _ITERATION)


def render_iteration(metadata: IterationMetadata, old: str = "") -> str:
    """The file's text; with the old one, only what is different changes."""
    return _render(metadata, old, _ITERATION, {})


def iteration_problems(text: str) -> list[str]:
    """What is wrong with the metadata of an iteration, a sentence each."""
    return _problems(text, _ITERATION)


def readable(text: str) -> dict[str, Any]:
    """The values of a session's metadata that can be read, by field, whatever is wrong with the others."""
    try:
        return read_all(YamlLines(text, ""), _SESSION)[0]
    except StateError:
        return {}


_Keys = Mapping[str, tuple[str, Reader]]
_STATE = choice(STATES, _STATE_WORDS)
_SESSION: _Keys = {
    "version": ("version", count(0)),
    "session_id": ("session_id", word),
    "created_at": ("created_at", moment),
    "updated_at": ("updated_at", moment),
    "status": ("status", optional(choice(STATUSES), "in_progress")),
    "iteration": ("iteration", count(1)),
    "state": ("orchestrator.state", _STATE),
    "previous_state": ("orchestrator.previous_state", optional(_STATE, "")),
    "current_wave": ("orchestrator.current_wave", optional(count(0), None)),
    "paused": ("orchestrator.paused", optional(flag, False)),
    "total": ("tasks.total", count(0)),
    "completed": ("tasks.completed", count(0)),
    "failed": ("tasks.failed", count(0)),
    "pending": ("tasks.pending", count(0)),
    "cancelled": ("tasks.cancelled", count(0)),
    "replaced": ("tasks.replaced", optional(mapping(words_of), {})),
    "processed": ("feedback.processed", optional(mapping(text_of), {})),
    "critique_cycle": ("session_review.cycle", count(0)),
    "request": ("request", optional(word, "")),
}
_ITERATION: _Keys = {
    "version": ("version", count(0)),
    "iteration": ("iteration", count(1)),
    "started_at": ("started_at", moment),
    "planning_complete": ("planning_complete", optional(flag, False)),
    "planning_completed_at": ("planning_completed_at", optional(moment, "")),
    "completed_at": ("completed_at", optional(moment, "")),
    "tasks_defined": ("tasks_defined", count(0)),
    "planning_tasks": ("planning_tasks", optional(mapping(text_of), {})),
}
_REQUIRED = frozenset(
    {"version", "session_id", "created_at", "updated_at", "iteration", "started_at", "state"}
    | {"total", "completed", "failed", "pending"}
)
_ALWAYS = _REQUIRED | {"status", "current_wave", "cancelled", "planning_complete", "tasks_defined"}
_ALWAYS |= {"planning_completed_at", "completed_at"}


def _problems(text: str, keys: _Keys) -> list[str]:
    try:
        lines = YamlLines(text, "")
    except StateError as error:
        return [told(error)]
    values, faults = read_all(lines, keys)
    found = []
    if keys is _SESSION and lines.has("schema") and lines.get("schema") != SCHEMA:
        found.append(
            f"line {lines.line('schema')}: `schema` is {text_of(lines.get('schema'))[:40]}; this Ralph reads {SCHEMA}"
        )
    for name, (path, _) in keys.items():
        if name in faults:
            found.append(faults[name])
        elif name in _REQUIRED and name not in values:
            found.append(f"line {lines.line(path.partition('.')[0])}: the key `{path}` is missing")
    return found


def _parse(text: str, where: str, kind: type[T], keys: _Keys) -> T:
    lines = YamlLines(text, where)
    if faults := _problems(text, keys):
        raise StateError("\n".join(faults), where=where, todo=CORRECT)
    return kind(**read_all(lines, keys)[0])


def _render(metadata: Any, old: str, keys: _Keys, head: Mapping[str, Any]) -> str:
    lines = YamlLines(old, "metadata.yaml")
    before = read_all(lines, keys)[0]
    changes: dict[str, Any] = {}
    for one in fields(metadata):
        path, value = keys[one.name][0], getattr(metadata, one.name)
        if one.name in before:
            is_kept = before[one.name] == value
        else:
            default = one.default_factory() if one.default_factory is not MISSING else one.default
            is_kept = (
                not lines.has(path) and one.name not in (_REQUIRED if lines.data else _ALWAYS) and value == default
            )
        if not is_kept:
            changes[path] = _written(value, before.get(one.name))
    if lines.data:
        return lines.edited(changes)
    return lines.edited({**head, **{path: changes[path] for path, _ in keys.values() if path in changes}})


def _written(value: Any, before: Any) -> Any:
    """A value as the file has it: what is empty is null, and a mapping that lost keys takes the place of the old one."""
    if isinstance(value, Mapping):
        plain = {key: list(one) if isinstance(one, tuple) else one for key, one in value.items()}
        return plain if isinstance(before, dict) and before.keys() <= plain.keys() else Exactly(plain)
    return None if value == "" else value
