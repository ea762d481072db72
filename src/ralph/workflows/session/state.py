"""The state of a session: its documents, and what the engine keeps beside them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ralph.core.codec import dump, from_plain, to_plain
from ralph.core.errors import StateError
from ralph.documents.session.instructions import Guardrails
from ralph.documents.session.markers import Marker, legal
from ralph.documents.session.metadata import IterationMetadata, Metadata
from ralph.documents.session.progress import Progress
from ralph.documents.session.tasks import TaskFile
from ralph.workflows.merging import Queue


class State(StrEnum):
    """Where a session is."""

    INITIALIZING = "INITIALIZING"
    PLANNING = "PLANNING"
    REPLANNING = "REPLANNING"
    BATCHING = "BATCHING"
    EXECUTING_BATCH = "EXECUTING_BATCH"
    REVIEWING_BATCH = "REVIEWING_BATCH"
    SESSION_REVIEW = "SESSION_REVIEW"
    CRITIQUE = "SESSION_CRITIQUE_REPLAN"
    """What a review found missing is made tasks, without asking a person."""
    KNOWLEDGE_EXTRACTION = "KNOWLEDGE_EXTRACTION"
    KNOWLEDGE_APPROVAL = "KNOWLEDGE_APPROVAL"
    COMPLETE = "COMPLETE"


class Status(StrEnum):
    """What came of a session so far."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    AWAITING_FEEDBACK = "awaiting_feedback"
    BLOCKED = "blocked"
    ABORTED = "aborted"


class Step(StrEnum):
    """What is done with a task now."""

    REST = "rest"
    EXECUTE = "execute"
    CHECK = "check"
    REVIEW = "review"
    MERGE = "merge"
    SPLIT = "split"


PLANNING = ("plan-init", "plan-brainstorm", "plan-research", "plan-breakdown")
REPLANNING = ("plan-rebrainstorm", "plan-reresearch", "plan-update", "plan-rebreakdown")


@dataclass(frozen=True)
class TaskFlow:
    """What the engine knows of a task beside its marker."""

    step: Step = Step.REST
    attempt: int = 0
    """The attempt under way, or the last; it names the report and the workspace."""
    tries: int = 0
    """Attempts in this iteration."""
    timeouts: int = 0
    why: str = ""
    """Why the last attempt came to nothing."""
    checked: str = ""
    """What the engine's own checks of its criteria gave, for the reviewer."""
    started: float = 0.0
    branch: str = ""
    """Where its work was left, if it could not be merged."""


@dataclass(frozen=True)
class Flow:
    """What the engine keeps beside the documents."""

    tasks: Mapping[str, TaskFlow] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    cycle: int = 1
    """The cycle of questions and answers."""
    category: int = 0
    """Which of the categories is asked about."""
    baseline: bool = False
    """Whether the checks of the session were run before it began."""
    held: tuple[str, ...] = ()
    """Those that passed then: every merge must keep them so."""
    checked: str = ""
    """What the checks of the session gave; empty before they were run."""
    passed: bool = False
    """Whether they passed."""
    approved: bool = False
    """Whether a person said that what was learned is kept."""
    outcome: str = ""
    """Why the session cannot go on, where it cannot."""
    schema: int = 1


@dataclass(frozen=True)
class SessionState:
    """A session as its documents tell of it."""

    metadata: Metadata
    iteration: IterationMetadata
    progress: Progress
    tasks: Mapping[str, TaskFile]
    texts: Mapping[str, str]
    """The text of every document of the session, by path."""
    guardrails: Guardrails
    flow: Flow = field(default_factory=Flow)

    @property
    def state(self) -> State:
        """Where it is."""
        return State(self.metadata.state)

    def marker(self, task: str) -> Marker:
        """The marker of a task or a planning step; one that is not listed is not begun."""
        item = self.progress.items.get(task)
        return item.marker if item else Marker.TODO

    def of(self, task: str) -> TaskFlow:
        """What the engine knows of a task."""
        return self.flow.tasks.get(task, TaskFlow())

    def marked(self, task: str, marker: Marker, note: str = "") -> "SessionState":
        """The state with another marker; an edge that is not legal cannot be written."""
        old = self.marker(task)
        if old is not marker and not legal(old, marker):
            raise StateError(f"{task} cannot go from [{old}] to [{marker}]", where="progress.md")
        return replace(self, progress=self.progress.with_item(task, marker, note))

    def with_task(self, task: str, **changes: Any) -> "SessionState":
        """The state with other facts about a task."""
        tasks = {**self.flow.tasks, task: replace(self.of(task), **changes)}
        return replace(self, flow=replace(self.flow, tasks=tasks))

    def with_flow(self, **changes: Any) -> "SessionState":
        """The state with other facts of the engine's."""
        return replace(self, flow=replace(self.flow, **changes))

    def with_metadata(self, **changes: Any) -> "SessionState":
        """The state with other metadata."""
        return replace(self, metadata=replace(self.metadata, **changes))

    def to(self, state: State) -> "SessionState":
        """The same in another state."""
        return (
            self if self.state is state else self.with_metadata(state=state.value, previous_state=self.metadata.state)
        )


def flow_json(flow: Flow) -> str:
    """The document in which the engine keeps its own facts."""
    return dump(to_plain(replace(flow, queue=Queue()))) + "\n"


def read_flow(text: str, where: str) -> Flow:
    """The flow in a document; the queue has one of its own."""
    try:
        return from_plain(Flow, json.loads(text), where)
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"not readable as JSON ({error})", where=where, todo="restore the file, or `ralph session repair`"
        ) from error
