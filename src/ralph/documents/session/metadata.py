"""`metadata.yaml` of a session and of an iteration: its place and its progress.

`version` counts the changes of the file. Unknown keys, comments and the order of lines survive.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Generic, TypeVar

from ralph.core.errors import StateError
from ralph.documents.session.values import (
    CORRECT,
    Reader,
    choice,
    count,
    describe_fault,
    flag,
    mapping,
    moment,
    optional,
    read_all,
    read_mapping,
    read_text,
    read_words,
    word,
)
from ralph.documents.yaml_codec import WholeMapping, edit

T = TypeVar("T", bound="Metadata | IterationMetadata")
SCHEMA = "ralph-v2"


class State(StrEnum):
    """Where a session is."""

    INITIALIZING = "INITIALIZING"
    PLANNING = "PLANNING"
    REPLANNING = "REPLANNING"
    BATCHING = "BATCHING"
    EXECUTING_BATCH = "EXECUTING_BATCH"
    REVIEWING_BATCH = "REVIEWING_BATCH"
    """Users and other tools know these three names. The engine treats all three as work on tasks."""
    SESSION_REVIEW = "SESSION_REVIEW"
    CRITIQUE = "SESSION_CRITIQUE_REPLAN"
    """Gaps that a review finds become tasks, without asking the user."""
    KNOWLEDGE_EXTRACTION = "KNOWLEDGE_EXTRACTION"
    KNOWLEDGE_APPROVAL = "KNOWLEDGE_APPROVAL"
    COMPLETE = "COMPLETE"


class Status(StrEnum):
    """The result of a session so far."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    AWAITING_FEEDBACK = "awaiting_feedback"
    BLOCKED = "blocked"
    ABORTED = "aborted"


_STATE_WORDS = {
    "ITERATION_REVIEW": State.SESSION_REVIEW,
    "ITERATION_CRITIQUE_REPLAN": State.CRITIQUE,
    "CURATE": State.KNOWLEDGE_APPROVAL,
}
"""What later releases call the same states."""


_ENDED = {Status.COMPLETED: "Complete", Status.AWAITING_FEEDBACK: "Awaiting feedback", Status.ABORTED: "Aborted"}
_UNDER_WAY = {
    State.BATCHING: "Executing",
    State.EXECUTING_BATCH: "Executing",
    State.REVIEWING_BATCH: "Reviewing",
    State.SESSION_REVIEW: "Session review",
    State.CRITIQUE: "Replanning",
}


def describe_iteration(state: State, status: Status) -> str:
    """What the table of iterations says about the current one."""
    return _UNDER_WAY.get(state) or _ENDED.get(status, "Executing")


@dataclass(frozen=True)
class Metadata:
    """What is known of a session."""

    session_id: str
    created_at: str
    updated_at: str
    version: int = 1
    status: str = Status.IN_PROGRESS
    iteration: int = 1
    state: State = State.PLANNING
    previous_state: str = ""
    current_wave: int = 0
    """The lowest wave with a task that is not finished; 0 before there are tasks."""
    total: int = 0
    completed: int = 0
    failed: int = 0
    pending: int = 0
    cancelled: int = 0
    processed: Mapping[str, str] = field(default_factory=dict)
    """The batches of feedback that were accepted, with the hash of their contents."""
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
    """The planning steps that are over, with the result of each."""
    version: int = 1


_REQUIRED = frozenset(
    {"version", "session_id", "created_at", "updated_at", "iteration", "started_at", "state"}
    | {"total", "completed", "failed", "pending"}
)
_ALWAYS = _REQUIRED | {"status", "current_wave", "cancelled", "planning_complete", "tasks_defined"}
_ALWAYS |= {"planning_completed_at", "completed_at"}


@dataclass(frozen=True)
class _Form(Generic[T]):
    """How values of a kind are read from a file and written into it: the path and the reader of each, by field."""

    kind: type[T]
    keys: Mapping[str, tuple[str, Reader]]
    head: Mapping[str, str] = field(default_factory=dict)
    """What stands at the top of a new file, and must not say something else in an old one."""

    def problems(self, text: str) -> list[str]:
        """What is wrong with a file, a sentence each."""
        try:
            document = read_mapping(text, "")
        except StateError as error:
            return [describe_fault(error)]
        values, faults = read_all(document, self.keys)
        found = [
            f"line {document.line(key)}: `{key}` is {read_text(document.get(key))[:40]}; this Ralph reads {known}"
            for key, known in self.head.items()
            if document.has(key) and document.get(key) != known
        ]
        for name, (path, _) in self.keys.items():
            if name in faults:
                found.append(faults[name])
            elif name in _REQUIRED and name not in values:
                found.append(f"line {document.line(path.partition('.')[0])}: the key `{path}` is missing")
        return found

    def parse(self, text: str, where: str = "metadata.yaml") -> T:
        """What a file says, or one error that names every fault."""
        document = read_mapping(text, where)
        if faults := self.problems(text):
            raise StateError("\n".join(faults), where=where, todo=CORRECT)
        return self.kind(**read_all(document, self.keys)[0])

    def render(self, metadata: T, old: str = "") -> str:
        """The file's text; with the old one, only what is different changes."""
        document = read_mapping(old, "metadata.yaml")
        before = read_all(document, self.keys)[0]
        needed = _REQUIRED if document.data else _ALWAYS
        changes: dict[str, Any] = {} if document.data else dict(self.head)
        defaults = {
            one.name: one.default_factory() if callable(one.default_factory) else one.default
            for one in fields(metadata)
        }
        for name, (path, _) in self.keys.items():
            value = getattr(metadata, name)
            is_kept = not document.has(path) and name not in needed and value == defaults[name]
            if before[name] != value if name in before else not is_kept:
                changes[path] = _encode_value(value, before.get(name))
        return edit(old, changes)

    def readable(self, text: str) -> dict[str, Any]:
        """The values that can be read, by field, whatever is wrong with the others."""
        try:
            return read_all(read_mapping(text, ""), self.keys)[0]
        except StateError:
            return {}


def _encode_value(value: Any, before: Any) -> Any:
    """A value as the file has it: what is empty is null, and a mapping that lost keys takes the place of the old one."""
    if isinstance(value, Mapping):
        plain = {key: list(one) if isinstance(one, tuple) else one for key, one in value.items()}
        has_lost_keys = not isinstance(before, dict) or not before.keys() <= plain.keys()
        return WholeMapping(plain) if has_lost_keys else plain
    return None if value == "" else value


_STATE = choice(tuple(State), _STATE_WORDS)
_SESSION = _Form(
    Metadata,
    {
        "version": ("version", count(0)),
        "session_id": ("session_id", word),
        "created_at": ("created_at", moment),
        "updated_at": ("updated_at", moment),
        "status": ("status", optional(choice(tuple(Status)), Status.IN_PROGRESS)),
        "iteration": ("iteration", count(1)),
        "state": ("orchestrator.state", _STATE),
        "previous_state": ("orchestrator.previous_state", optional(_STATE, "")),
        "current_wave": ("orchestrator.current_wave", optional(count(0), 0)),
        "paused": ("orchestrator.paused", optional(flag, False)),
        "total": ("tasks.total", count(0)),
        "completed": ("tasks.completed", count(0)),
        "failed": ("tasks.failed", count(0)),
        "pending": ("tasks.pending", count(0)),
        "cancelled": ("tasks.cancelled", count(0)),
        "replaced": ("tasks.replaced", optional(mapping(read_words), {})),
        "processed": ("feedback.processed", optional(mapping(read_text), {})),
        "critique_cycle": ("session_review.cycle", count(0)),
        "request": ("request", optional(word, "")),
    },
    {"schema": SCHEMA},
)
_ITERATION = _Form(
    IterationMetadata,
    {
        "version": ("version", count(0)),
        "iteration": ("iteration", count(1)),
        "started_at": ("started_at", moment),
        "planning_complete": ("planning_complete", optional(flag, False)),
        "planning_completed_at": ("planning_completed_at", optional(moment, "")),
        "completed_at": ("completed_at", optional(moment, "")),
        "tasks_defined": ("tasks_defined", count(0)),
        "planning_tasks": ("planning_tasks", optional(mapping(read_text), {})),
    },
)
parse_metadata = _SESSION.parse
render_metadata = _SESSION.render
find_metadata_problems = _SESSION.problems
read_valid_fields = _SESSION.readable
parse_iteration_metadata = _ITERATION.parse
render_iteration_metadata = _ITERATION.render
find_iteration_problems = _ITERATION.problems
read_valid_iteration_fields = _ITERATION.readable
