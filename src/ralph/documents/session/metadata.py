"""`metadata.yaml` of a session and of an iteration: where it is, and how far it came.

`version` counts the changes of the file. Unknown keys, comments and the order of lines survive.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from ralph.core.errors import StateError
from ralph.documents.session import timestamps
from ralph.documents.session.yaml_lines import CORRECT, Exactly, YamlLines, lines_of, number_of, text_of, words_of

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
    "KNOWLEDGE_EXTRACTION",
    "KNOWLEDGE_APPROVAL",
    "COMPLETE",
)
_STATE_WORDS = {"ITERATION_REVIEW": "SESSION_REVIEW", "CURATE": "KNOWLEDGE_APPROVAL"}
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
    return _problems(text, Metadata, _SESSION)


def parse_iteration(text: str, where: str = "iterations/N/metadata.yaml") -> IterationMetadata:
    """The metadata of an iteration, or one error that names every fault."""
    return _parse(text, where, IterationMetadata, _ITERATION)


def render_iteration(metadata: IterationMetadata, old: str = "") -> str:
    """The file's text; with the old one, only what is different changes."""
    return _render(metadata, old, _ITERATION, {})


def iteration_problems(text: str) -> list[str]:
    """What is wrong with the metadata of an iteration, a sentence each."""
    return _problems(text, IterationMetadata, _ITERATION)


def readable(text: str) -> dict[str, Any]:
    """The values of a session's metadata that can be read, by field, whatever is wrong with the others."""
    try:
        lines = YamlLines(text, "")
    except StateError:
        return {}
    return {name: value for name, value in _values(lines, _SESSION).items() if not isinstance(value, _Fault)}


class _Fault(str):
    """What is expected in the place of a value."""


def _text(value: Any) -> Any:
    return _Fault("a word") if isinstance(value, dict | list) or not text_of(value) else text_of(value)


def _optional(value: Any) -> Any:
    return _Fault("a word") if isinstance(value, dict | list) else text_of(value)


def _moment(value: Any) -> Any:
    return text_of(value) if timestamps.parse(text_of(value)) else _Fault("a moment, such as 2026-02-10T16:39:00+07:00")


def _any_moment(value: Any) -> Any:
    return _moment(value) if text_of(value) else ""


def _count(least: int) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        number = number_of(value)
        return _Fault(f"a whole number from {least}") if number is None or number < least else number

    return read


def _wave(value: Any) -> Any:
    return None if text_of(value) in ("", "null", "none") else _count(0)(value)


def _flag(value: Any) -> Any:
    known = {"true": True, "false": False, "yes": True, "no": False, "": False}
    return known.get(text_of(value).lower(), _Fault("true or false"))


def _state(value: Any) -> Any:
    word = text_of(value).upper()
    word = _STATE_WORDS.get(word, word)
    return word if word in STATES else _Fault(f"one of {', '.join(STATES)}")


def _any_state(value: Any) -> Any:
    return _state(value) if text_of(value) else ""


def _status(value: Any) -> Any:
    word = text_of(value).lower() or "in_progress"
    return word if word in STATUSES else _Fault(f"one of {', '.join(STATUSES)}")


def _texts(value: Any) -> Any:
    """A mapping to text; a list has no more to say than its keys."""
    if isinstance(value, list):
        return {text_of(key): "" for key in value}
    return {key: text_of(one) for key, one in value.items()} if isinstance(value, dict) else _nothing(value)


def _lists(value: Any) -> Any:
    return {key: words_of(one) for key, one in value.items()} if isinstance(value, dict) else _nothing(value)


def _nothing(value: Any) -> Any:
    return {} if value is None else _Fault("a mapping")


_Keys = Mapping[str, tuple[str, Callable[[Any], Any]]]
_SESSION: _Keys = {
    "version": ("version", _count(0)),
    "session_id": ("session_id", _text),
    "created_at": ("created_at", _moment),
    "updated_at": ("updated_at", _moment),
    "status": ("status", _status),
    "iteration": ("iteration", _count(1)),
    "state": ("orchestrator.state", _state),
    "previous_state": ("orchestrator.previous_state", _any_state),
    "current_wave": ("orchestrator.current_wave", _wave),
    "paused": ("orchestrator.paused", _flag),
    "total": ("tasks.total", _count(0)),
    "completed": ("tasks.completed", _count(0)),
    "failed": ("tasks.failed", _count(0)),
    "pending": ("tasks.pending", _count(0)),
    "cancelled": ("tasks.cancelled", _count(0)),
    "replaced": ("tasks.replaced", _lists),
    "processed": ("feedback.processed", _texts),
    "critique_cycle": ("session_review.cycle", _count(0)),
    "request": ("request", _optional),
}
_ITERATION: _Keys = {
    "version": ("version", _count(0)),
    "iteration": ("iteration", _count(1)),
    "started_at": ("started_at", _moment),
    "planning_complete": ("planning_complete", _flag),
    "planning_completed_at": ("planning_completed_at", _any_moment),
    "completed_at": ("completed_at", _any_moment),
    "tasks_defined": ("tasks_defined", _count(0)),
    "planning_tasks": ("planning_tasks", _texts),
}
_REQUIRED = frozenset(
    {"version", "session_id", "created_at", "updated_at", "iteration", "started_at", "state"}
    | {"total", "completed", "failed", "pending"}
)
_ALWAYS = _REQUIRED | {"status", "current_wave", "cancelled", "planning_complete", "tasks_defined"}
_ALWAYS |= {"planning_completed_at", "completed_at"}


def _values(lines: YamlLines, keys: _Keys) -> dict[str, Any]:
    return {name: read(lines.get(path)) for name, (path, read) in keys.items() if lines.has(path)}


def _faults(lines: YamlLines, kind: type[Any], keys: _Keys) -> list[str]:
    found = []
    if lines.has("schema") and lines.get("schema") != SCHEMA and kind is Metadata:
        schema = text_of(lines.get("schema"))[:40]
        found.append(f"line {lines.line('schema')}: `schema` is {schema}; this Ralph reads {SCHEMA}")
    values = _values(lines, keys)
    for name, (path, _) in keys.items():
        if name not in values and name in _REQUIRED:
            found.append(f"line {lines.line(path.partition('.')[0])}: the key `{path}` is missing")
        elif isinstance(value := values.get(name), _Fault):
            got = text_of(lines.get(path))[:80]
            found.append(f"line {lines.line(path)}: `{path}` must be {value}, and is {got or 'empty'}")
    return found


def _problems(text: str, kind: type[Any], keys: _Keys) -> list[str]:
    try:
        return _faults(YamlLines(text, ""), kind, keys)
    except StateError as error:
        return [f"{error.where.lstrip(', ') or 'line 1'}: {error.what}"]


def _parse(text: str, where: str, kind: type[T], keys: _Keys) -> T:
    lines = YamlLines(text, where)
    if faults := _faults(lines, kind, keys):
        raise StateError("\n".join(faults), where=where, todo=CORRECT)
    return kind(**_values(lines, keys))


def _render(metadata: Any, old: str, keys: _Keys, head: Mapping[str, Any]) -> str:
    lines = YamlLines(old, "metadata.yaml")
    before = _values(lines, keys)
    changes: dict[str, Any] = {}
    for one in fields(metadata):
        path, value = keys[one.name][0], getattr(metadata, one.name)
        if one.name in before:
            if not isinstance(before[one.name], _Fault) and before[one.name] == value:
                continue
        elif one.name not in (_REQUIRED if lines.data else _ALWAYS) and value == _default(one):
            continue
        changes[path] = _written(one.name, value, before.get(one.name))
    if lines.data:
        return lines.edited(changes)
    nested: dict[str, Any] = dict(head)
    for path in (path for path, _ in keys.values() if path in changes):
        section, _, key = path.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[key] = changes[path]
    return old + ("\n" if old and not old.endswith("\n") else "") + lines_of(nested)


def _written(name: str, value: Any, before: Any) -> Any:
    """A value as the file has it: what is empty is null, and a mapping that lost keys takes the place of the old one."""
    if isinstance(value, Mapping):
        plain = {key: list(one) if isinstance(one, tuple) else one for key, one in value.items()}
        return plain if isinstance(before, dict) and before.keys() <= plain.keys() else Exactly(plain)
    return None if value == "" and name != "request" else value


def _default(one: Any) -> Any:
    return one.default if one.default is not MISSING else one.default_factory()
