"""The state of a session: its documents, and what the engine keeps beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ralph.core.codec import from_json, to_json
from ralph.core.errors import RalphError, StateError
from ralph.documents.session import reports
from ralph.documents.session.instructions import Guardrails
from ralph.documents.session.layout import Layout
from ralph.documents.session.markers import OVER, Marker, legal
from ralph.documents.session.metadata import IterationMetadata, Metadata, State
from ralph.documents.session.progress import Progress
from ralph.documents.session.reports import Report
from ralph.documents.session.task_names import is_planning
from ralph.documents.session.tasks import Task, valid_task_id
from ralph.workflows.merging import Queue
from ralph.workflows.session.board import Board, Condition


class Step(StrEnum):
    """What is done with a task now."""

    REST = "rest"
    EXECUTE = "execute"
    CHECK = "check"
    REVIEW = "review"
    MERGE = "merge"
    SPLIT = "split"


LOOK = "look/1"
"""The workspace of those who only look: it follows the branch of the run."""


@dataclass(frozen=True)
class TaskFlow:
    """What the engine knows of a task beside its marker; nothing is kept of one that is done."""

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
    branch: str = ""
    """Where its work was left, if it could not be merged."""
    held: bool = False
    """Whether its work waits until the run is taken up again."""
    rescoped: bool = False
    """Whether a person asked for another task instead: it waits until it is planned again."""


@dataclass(frozen=True)
class Flow:
    """What the engine keeps beside the documents."""

    tasks: Mapping[str, TaskFlow] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    cycle: int = 1
    """The cycle of questions and answers."""
    asked: tuple[str, ...] = ()
    """The categories that were asked about in it."""
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
    items: tuple[str, ...] = ()
    """What of it, as the person named it; empty for all."""
    stop: str = ""
    """Why the session could not go on, where it could not."""
    paused: bool = False
    """Whether that is a pause."""
    rested: bool = False
    """Whether the run has ended since: a resume tries again."""
    schema: int = 1

    @property
    def stops(self) -> bool:
        """Whether nothing else may begin."""
        return bool(self.stop) and not self.rested


@dataclass
class Memo:
    """A board that was followed up to the state with this stamp; for any other state it is made anew."""

    board: Board | None = None
    stamp: object = None


@dataclass(frozen=True)
class SessionState:
    """A session as its documents tell of it."""

    layout: Layout
    metadata: Metadata
    iteration: IterationMetadata
    progress: Progress
    tasks: Mapping[str, Task]
    texts: Mapping[str, str]
    """The text of every document of the session, by path."""
    guardrails: Guardrails
    flow: Flow = field(default_factory=Flow)
    written: Mapping[str, str] = field(default_factory=dict)
    """The documents that changed since the last commit."""
    notices: tuple[str, ...] = ()
    """What a person should know of since then."""
    touched: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """The tasks that changed since the board was last looked at."""
    stamp: object = field(default=None, compare=False, repr=False)
    memo: Memo = field(default_factory=Memo, compare=False, repr=False)

    @property
    def state(self) -> State:
        return self.metadata.state

    def marker(self, task: str) -> Marker:
        """The marker of a task or a planning step; one that is not listed is not begun."""
        item = self.progress.items.get(task)
        return item.marker if item else Marker.TODO

    def of(self, task: str) -> TaskFlow:
        """What the engine knows of a task."""
        return self.flow.tasks.get(task, _AT_REST)

    def attempt(self, task: str) -> int:
        """The last attempt at a task, by what the engine knows and by its line; or by its reports, if they are the state."""
        if not self.layout.has_metadata:
            found = self.layout.reports_in(self.texts, self.metadata.iteration, task)
            return max(self.of(task).attempt, max(found, default=0))
        item = self.progress.items.get(task)
        return max(self.of(task).attempt, (item.attempt or 0) if item else 0)

    def reports(self, task: str) -> dict[int, Report]:
        """The reports on a task, by attempt."""
        found = self.layout.reports_in(self.texts, self.metadata.iteration, task)
        return {attempt: reports.parse(self.texts[path]) for attempt, path in found.items()}

    @property
    def has_work_left(self) -> bool:
        """Whether a task is neither done nor cancelled."""
        return any(self.marker(name) not in OVER for name in self.tasks)

    @property
    def fault(self) -> str:
        """Why the tasks cannot be put in order; empty if they can."""
        try:
            self.followed()
        except RalphError as error:
            return error.what
        return ""

    def condition(self, task: str) -> Condition:
        """What a task is to the others."""
        marker = self.marker(task)
        if self.metadata.replaced.get(task):
            return Condition.SPLIT
        if marker is Marker.DONE:
            return Condition.DONE
        if marker in (Marker.WIP, Marker.PENDING) or self.of(task).step is not Step.REST:
            return Condition.ACTIVE
        dead = marker is Marker.CANCELLED or (marker is Marker.FAILED and not self.retryable(task))
        return Condition.DEAD if dead else Condition.WAITS

    def retryable(self, task: str) -> bool:
        """Whether a task that failed is tried again by itself."""
        flow = self.of(task)
        waits = bool(flow.branch) or flow.rescoped
        is_defined = task in self.tasks and not self.tasks[task].is_missing
        return (
            not self.layout.retries_as_todo
            and is_defined
            and not waits
            and flow.tries < self.guardrails.rework_attempts
        )

    def followed(self) -> "SessionState":
        """The same with a board that is up to date."""
        board = self.memo.board if self.memo.stamp is self.stamp and self.stamp else None
        if board and board.tasks is self.tasks:
            if not self.touched:
                return self
            if not all(board.put(name, self.marker(name), self.condition(name)) for name in self.touched):
                board = None
        if not board or board.tasks is not self.tasks:
            board = Board(self.tasks, self.metadata.replaced)
            for name in self.tasks:
                board.put(name, self.marker(name), self.condition(name))
        self.memo.board, self.memo.stamp = board, object()
        return replace(self, stamp=self.memo.stamp, touched=frozenset())

    @property
    def board(self) -> Board:
        """Where every task stands; an error where they cannot be put in order."""
        if self.memo.board and self.memo.stamp is self.stamp and not self.touched:
            return self.memo.board
        found = self.followed().memo.board
        assert found is not None
        return found

    def marked(self, task: str, marker: Marker, note: str = "") -> "SessionState":
        """The state with another marker; an edge that is not legal cannot be written."""
        old = self.marker(task)
        if not is_planning(task) and not legal(old, marker, retries_as_todo=self.layout.retries_as_todo):
            raise StateError(f"{task} cannot go from [{old}] to [{marker}]", where="progress.md")
        return replace(self, progress=self.progress.with_item(task, marker, note), touched=self.touched | {task})

    def annotated(
        self, task: str, marker: Marker, what: str, at: str = "", why: str = "", attempt: int = 0
    ) -> "SessionState":
        """The state with another marker, and the note that the layout has for what came of a task or a step."""
        flow = self.of(task)
        since = flow.attempt - flow.tries + 1
        note = self.layout.annotations[what].format(
            attempt=attempt or max(1, flow.attempt),
            iteration=self.metadata.iteration,
            at=at,
            why=f", {why}" if why else "",
            since=f", from Attempt {since}" if flow.tries and since > 1 else "",
        )
        return self.marked(task, marker, note)

    def with_task(self, task: str, **changes: Any) -> "SessionState":
        """The state with other facts about a task."""
        tasks = {**self.flow.tasks, task: replace(self.of(task), **changes)}
        return replace(self, flow=replace(self.flow, tasks=tasks), touched=self.touched | {task})

    def without_flow(self, task: str) -> "SessionState":
        """The state of which the engine keeps nothing about a task."""
        tasks = {name: flow for name, flow in self.flow.tasks.items() if name != task}
        return replace(self, flow=replace(self.flow, tasks=tasks), touched=self.touched | {task})

    def with_flow(self, **changes: Any) -> "SessionState":
        """The state with other facts of the engine's."""
        return replace(self, flow=replace(self.flow, **changes))

    def with_metadata(self, **changes: Any) -> "SessionState":
        return replace(self, metadata=replace(self.metadata, **changes))

    def with_texts(self, texts: Mapping[str, str]) -> "SessionState":
        """The state with other documents, which are to be written."""
        new = {path: text for path, text in texts.items() if self.texts.get(path) != text}
        if not new:
            return self
        return replace(self, texts={**self.texts, **new}, written={**self.written, **new})

    def noting(self, notice: str) -> "SessionState":
        """The state with something to tell a person."""
        return replace(self, notices=(*self.notices, notice))

    def stopped(self, why: str, *, paused: bool = False) -> "SessionState":
        """The state that goes no further: what is under way ends, nothing else begins."""
        return self.with_flow(stop=why, paused=paused, rested=False)

    def to(self, state: State) -> "SessionState":
        return self if self.state is state else self.with_metadata(state=state, previous_state=self.state)


_AT_REST = TaskFlow()


def workspace(state: SessionState, task: str, attempt: int = 0) -> str:
    """Where a task is worked on in its attempt, or was in another; a dot in its id would not do in the name of a branch."""
    if state.layout.shares_tree:
        return ""
    return f"{task.replace('.', '_')}/{attempt or max(1, state.of(task).attempt)}"


def with_listed(state: SessionState) -> SessionState:
    """The state with every task that is defined, and every task that is only listed, so that none is forgotten."""
    number = state.metadata.iteration
    defined = state.layout.read_tasks(state.texts, number)
    listed = [item.id for item in state.progress.items.values() if not item.is_planning]
    order = dict.fromkeys((*listed, *defined) if state.layout.shares_tree else (*defined, *listed))
    missing = {name: Task(valid_task_id(name), iteration=number, is_missing=True) for name in listed}
    return replace(state, tasks={name: defined.get(name) or missing[name] for name in order})


def flow_json(flow: Flow) -> str:
    """The document in which the engine keeps its own facts; the queue has one of its own."""
    return to_json(replace(flow, queue=Queue()))


def read_flow(text: str, where: str) -> Flow:
    return from_json(Flow, text, where, todo="restore the file, or `ralph session repair`")
