"""The state of a session: its settings, its documents, and the facts that the engine stores in `flow.json`."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ralph.core.checks import Check, Evidence
from ralph.core.codec import former_name, from_json, to_json
from ralph.core.errors import RalphError, StateError
from ralph.core.events import TaskChanged
from ralph.core.turns import TurnResult
from ralph.documents.session.layout import Layout
from ralph.documents.session.markdown import Page
from ralph.documents.session.metadata import IterationMetadata, Metadata, State
from ralph.documents.session.plan import SessionLimits
from ralph.documents.session.progress import FINAL_MARKERS, Marker, Progress, is_legal_change
from ralph.documents.session.reports import Report, parse_report
from ralph.documents.session.tasks import Task, is_planning, make_natural_key, parse_task_id
from ralph.workflows.merge_rules import Queue
from ralph.workflows.session.task_graph import Condition, TaskGraph


class Step(StrEnum):
    """What is done with a task now."""

    REST = "rest"
    EXECUTE = "execute"
    CHECK = "check"
    REVIEW = "review"
    MERGE = "merge"
    SPLIT = "split"
    REPLAN = "replan"


@dataclass(frozen=True)
class TaskFlow:
    """What the engine stores about a task besides its marker. It is removed when the task is done."""

    step: Step = Step.REST
    attempt: int = 0
    """The attempt in progress, or the last; it names the report and the worktree."""
    attempts_in_iteration: int = field(default=0, metadata=former_name("tries"))
    """How many of the attempts were in this iteration."""
    timeouts: int = 0
    review_failure: str = ""
    """Why the last attempt has no review, although its reviewer was tried again: it ran out of time, or failed."""
    why: str = ""
    """Why the last attempt failed."""
    check_results: str = field(default="", metadata=former_name("checked"))
    """The results of the checks of its criteria, for the reviewer."""
    branch: str = ""
    """The branch with its work, if that could not be merged."""
    started: bool = False
    """Whether a turn for this attempt has started. Until then the task waits, and its marker stays as it was."""
    waits_for_resume: bool = field(default=False, metadata=former_name("held"))
    """Whether it waits until the run is resumed."""
    rescoped: bool = False
    """Whether the user asked for another task instead. It waits until it is planned again."""
    replans: int = 0
    """How often a planner changed it in this iteration for that reason."""
    reviewing: bool = False
    """Whether a reviewer of this attempt is at work, in a shared tree. An engine that takes over asks for the same turn."""
    checks_again: bool = False
    """Whether its checks run again after the review, because the tree may have changed while no engine ran."""


@dataclass(frozen=True)
class Flow:
    """What the engine stores besides the documents of the session."""

    tasks: Mapping[str, TaskFlow] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    cycle: int = 1
    """The cycle of questions and answers."""
    categories_asked: tuple[str, ...] = field(default=(), metadata=former_name("asked"))
    """The categories that were asked about in it."""
    has_baseline: bool = field(default=False, metadata=former_name("baseline"))
    """Whether the checks of the session were run before it began."""
    passed_before: tuple[str, ...] = field(default=(), metadata=former_name("held"))
    """The titles of the checks that passed then. They must pass after every merge."""
    failed_before: Mapping[str, str] = field(default_factory=dict)
    """Why the others did not pass then, by title, in a phrase."""
    check_results: str = field(default="", metadata=former_name("checked"))
    """The results of the checks of the session; empty before they ran."""
    failed_checks: tuple[str, ...] = ()
    """Those that did not pass, by command or title."""
    session_checks_passed: bool = field(default=False, metadata=former_name("passed"))
    """Whether these checks passed."""
    evidence: Evidence | None = None
    """What supports that; None if the checks fail, or if nothing could be compared."""
    findings: tuple[str, ...] = ()
    """What keeps the work from counting although these checks pass, each in one sentence."""
    checked_snapshot: str = ""
    """The snapshot on which they ran."""
    checked_after_ends: int = 0
    """How often a run of the session had ended when they ran."""
    judged_snapshot: str = ""
    """The last snapshot whose changed tests and settings the reviewer of the session accepted."""
    review_accepted: bool = False
    """Whether the reviewer accepted the whole, and only a proof is missing."""
    approved: bool = False
    """Whether the user approved what was learned."""
    approved_items: tuple[str, ...] = field(default=(), metadata=former_name("items"))
    """The items of it that the user approved; empty for all."""
    approval_message: str = field(default="", metadata=former_name("wish"))
    """What the user said with the approval. A librarian follows it before anything is kept."""
    approval_asked_at: float = field(default=0.0, metadata=former_name("asked_at"))
    """Since when what was learned waits for the user."""
    undecided: bool = False
    """Whether the time for an approval is over, and the user has not decided. An approval still keeps what was learned."""
    stop_reason: str = field(default="", metadata=former_name("stop"))
    """Why the session cannot continue; empty if it can."""
    is_pause: bool = field(default=False, metadata=former_name("paused"))
    """Whether it stopped for a pause."""
    run_has_ended: bool = field(default=False, metadata=former_name("rested"))
    """Whether the run has ended since it stopped. A resumed run tries again."""
    replans: int = 0
    """How often a planner began again because the user asked for something else, since planning was last complete."""
    ends: int = 0
    """How often a run of the session has ended. Each end has a report."""
    reviewing: bool = False
    """Whether a reviewer of the whole session is at work, in a shared tree."""
    checks_again: bool = False
    """Whether the checks of the session run again after that review."""
    finished: tuple[str, ...] | None = None
    """The tasks that the engine itself finished. None if it does not know: others, or an older version, began the session."""
    completed_iteration: int | None = field(default=None, metadata=former_name("completed"))
    """The last iteration that a reviewer of the whole accepted; 0 if none did. None if the engine does not know."""
    reviewed_iteration: int = field(default=0, metadata=former_name("reviewed"))
    """The last iteration that ended with a review of the whole, whatever the result was."""
    unfinished: tuple[str, ...] = ()
    """The tasks that were neither done nor cancelled when that iteration ended."""
    learned_iteration: int = field(default=0, metadata=former_name("learned"))
    """The last iteration of which a librarian has written down what was learned, if no work followed in it."""
    schema: int = 1

    @property
    def to_judge(self) -> tuple[str, ...]:
        """The changed tests and settings that the reviewer of the session has to judge."""
        return self.evidence.to_judge if self.evidence and self.session_checks_passed else ()

    @property
    def lacks_proof(self) -> bool:
        """Whether the checks of the session pass, and the work does not count all the same."""
        if not self.check_results or self.failed_checks:
            return False
        return not self.session_checks_passed or bool(self.to_judge)

    @property
    def why_not_proven(self) -> str:
        """Why the work does not count although the checks of the session pass."""
        return " ".join(self.findings) or (self.evidence.reason if self.evidence else "")

    @property
    def is_stopped(self) -> bool:
        """Whether no new work may start."""
        return bool(self.stop_reason) and not self.run_has_ended


@dataclass(frozen=True)
class SessionState:
    """A session as its documents describe it."""

    layout: Layout
    metadata: Metadata
    iteration: IterationMetadata
    progress: Progress
    tasks: Mapping[str, Task]
    texts: Mapping[str, str]
    """The text of every document of the session, by path."""
    limits: SessionLimits
    flow: Flow = field(default_factory=Flow)
    written: Mapping[str, str] = field(default_factory=dict)
    """The documents that changed since the last commit."""
    notices: tuple[str, ...] = ()
    """Notices for the user since then."""
    unreported: tuple[TaskChanged, ...] = ()
    """How tasks stood when the state was loaded. The feed of the run gets what it does not have with the next event."""
    last_graph: TaskGraph | None = field(default=None, compare=False, repr=False)
    """The graph before the tasks in `touched` changed; None if it has to be built."""
    touched: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def state(self) -> State:
        return self.metadata.state

    def marker(self, task: str) -> Marker:
        """The marker of a task or a planning step; a task that is not listed is to do."""
        item = self.progress.items.get(task)
        return item.marker if item else Marker.TODO

    def flow_of(self, task: str) -> TaskFlow:
        """What the engine stores about a task."""
        return self.flow.tasks.get(task, _AT_REST)

    def attempt(self, task: str) -> int:
        """The last attempt at a task, by what the engine knows and by its line; or by its reports, if they are the state."""
        if self.layout.is_classic:
            found = self.layout.reports_in(self.texts, self.metadata.iteration, task)
            return max(self.flow_of(task).attempt, max(found, default=0))
        item = self.progress.items.get(task)
        return max(self.flow_of(task).attempt, (item.attempt or 0) if item else 0)

    def reports(self, task: str) -> dict[int, Report]:
        """The reports on a task, by attempt."""
        found = self.layout.reports_in(self.texts, self.metadata.iteration, task)
        return {attempt: parse_report(self.texts[path]) for attempt, path in found.items()}

    def sort_tasks(self, names: Iterable[str]) -> list[str]:
        """The tasks in the order in which the user reads them: that of the list, or by number."""
        if not self.layout.is_classic:
            return sorted(names, key=make_natural_key)
        chosen = set(names)
        return [name for name in self.tasks if name in chosen]

    @property
    def blocked_tasks(self) -> dict[str, str]:
        """The tasks that can never start, each with the task that keeps it from that. The user did not cancel them."""
        causes = self.graph.blocked
        return {name: cause for name, cause in causes.items() if self.marker(name) is not Marker.CANCELLED}

    @property
    def has_work_left(self) -> bool:
        """Whether a task is neither done nor cancelled."""
        return any(self.marker(name) not in FINAL_MARKERS for name in self.tasks)

    @property
    def fault(self) -> str:
        """Why the dependencies of the tasks are invalid; empty if they are valid."""
        try:
            _ = self.graph
        except RalphError as error:
            return error.what
        return ""

    def condition(self, task: str) -> Condition:
        """The condition of a task in the graph."""
        marker = self.marker(task)
        if self.metadata.replaced.get(task):
            return Condition.SPLIT
        if marker is Marker.DONE:
            return Condition.DONE
        if marker in (Marker.WIP, Marker.PENDING) or self.flow_of(task).step is not Step.REST:
            return Condition.ACTIVE
        dead = marker is Marker.CANCELLED or (marker is Marker.FAILED and not self.is_retryable(task))
        return Condition.DEAD if dead else Condition.WAITS

    def is_retryable(self, task: str) -> bool:
        """Whether a task that failed is tried again by itself."""
        flow = self.flow_of(task)
        waits = bool(flow.branch) or flow.rescoped
        is_defined = task in self.tasks and not self.tasks[task].is_missing
        return (
            not self.layout.retries_as_todo
            and is_defined
            and not waits
            and flow.attempts_in_iteration < self.limits.rework_attempts
        )

    @property
    def graph(self) -> TaskGraph:
        """The graph of the tasks as they are now. Raises an error if their dependencies are invalid."""
        known = self.last_graph
        if known and known.tasks is self.tasks:
            if not self.touched:
                return known
            updated = known.update({name: (self.marker(name), self.condition(name)) for name in self.touched})
            if updated:
                return updated
        built = TaskGraph(self.tasks, self.metadata.replaced)
        updated = built.update({name: (self.marker(name), self.condition(name)) for name in self.tasks})
        return updated or built

    def with_current_graph(self) -> "SessionState":
        """The same state with its graph stored, so that later graphs are updated from it. Raises errors like `graph`."""
        return replace(self, last_graph=self.graph, touched=frozenset())

    def with_marker(self, task: str, marker: Marker, note: str = "") -> "SessionState":
        """The state with another marker. Raises an error if the change is not legal."""
        old = self.marker(task)
        if not is_planning(task) and not is_legal_change(old, marker, retries_as_todo=self.layout.retries_as_todo):
            raise StateError(f"{task} cannot go from [{old}] to [{marker}]", where="progress.md")
        return replace(self, progress=self.progress.with_item(task, marker, note), touched=self.touched | {task})

    def with_annotation(
        self, task: str, marker: Marker, what: str, at: str = "", why: str = "", attempt: int = 0
    ) -> "SessionState":
        """The state with another marker, and a note. `what` names the annotation of the layout that becomes the note."""
        flow = self.flow_of(task)
        since = flow.attempt - flow.attempts_in_iteration + 1
        note = self.layout.annotations[what].format(
            attempt=attempt or max(1, flow.attempt),
            iteration=self.metadata.iteration,
            at=at,
            why=f", {why}" if why else "",
            since=f", from Attempt {since}" if flow.attempts_in_iteration and since > 1 else "",
        )
        return self.with_marker(task, marker, note)

    def with_task_flow(self, task: str, **changes: Any) -> "SessionState":
        """The state with changes to the flow of a task."""
        tasks = {**self.flow.tasks, task: replace(self.flow_of(task), **changes)}
        return replace(self, flow=replace(self.flow, tasks=tasks), touched=self.touched | {task})

    def without_task_flow(self, task: str) -> "SessionState":
        """The state without the flow of a task."""
        tasks = {name: flow for name, flow in self.flow.tasks.items() if name != task}
        return replace(self, flow=replace(self.flow, tasks=tasks), touched=self.touched | {task})

    def with_finished_task(self, task: str, at: str) -> "SessionState":
        """The state in which the engine has finished a task."""
        state = self.with_annotation(task, Marker.DONE, "qualified", at).without_task_flow(task)
        if state.flow.finished is None or task in state.flow.finished:
            return state
        return state.with_flow(finished=(*state.flow.finished, task))

    def with_flow(self, **changes: Any) -> "SessionState":
        """The state with changes to the flow."""
        return replace(self, flow=replace(self.flow, **changes))

    def with_metadata(self, **changes: Any) -> "SessionState":
        return replace(self, metadata=replace(self.metadata, **changes))

    def with_texts(self, texts: Mapping[str, str]) -> "SessionState":
        """The state with new or changed documents, which will be written."""
        new = {path: text for path, text in texts.items() if self.texts.get(path) != text}
        if not new:
            return self
        return replace(self, texts={**self.texts, **new}, written={**self.written, **new})

    def with_notice(self, notice: str) -> "SessionState":
        """The state with a notice for the user."""
        return replace(self, notices=(*self.notices, notice))

    def with_stop(self, why: str, *, is_pause: bool = False) -> "SessionState":
        """The state that starts no new work, for this reason. Work that is in progress ends normally."""
        return self.with_flow(stop_reason=why, is_pause=is_pause, run_has_ended=False)

    def with_state(self, state: State) -> "SessionState":
        return self if self.state is state else self.with_metadata(state=state, previous_state=self.state)


@dataclass(frozen=True)
class Roles:
    """The texts of the roles by name, with a section for each mode, and other parts of prompts."""

    texts: Mapping[str, str]
    resolver: str
    skills: tuple[str, ...] = ()
    """Directories with skills that agents may use."""
    foreign: frozenset[str] = frozenset()
    """Roles whose text comes from other tools, for agents that edit the files of a session themselves."""

    def whole(self, role: str) -> str:
        """The whole text of a role."""
        return without_front_matter(self.texts[role]).strip()

    def opening(self, role: str) -> str:
        """The part of a role's text that applies to all modes."""
        page = Page(self.whole(role))
        starts = [section.start for section in page.sections if section.level == 2]
        return "\n".join(page.lines[: starts[0] if starts else None]).strip()

    def section(self, role: str, title: str) -> str:
        """The section of a text with that title, such as what a role does in a mode; empty if there is none."""
        page = Page(self.whole(role)) if role in self.texts else Page("")
        sections = [section for section in page.sections if section.level == 2]
        ends = [*(section.start for section in sections[1:]), len(page.lines)]
        for section, end in zip(sections, ends, strict=False):
            if section.title == title:
                return "\n".join(page.lines[section.start : end]).strip()
        return ""


@dataclass(frozen=True)
class SessionSettings:
    """What a session was started with."""

    id: str
    request: str
    layout: Layout
    checks: tuple[Check, ...]
    """What must pass before it is complete."""
    compile_criterion: Callable[[str], tuple[Check, ...]]
    """Returns the checks for a criterion of a task; none if a reviewer has to judge it."""
    roles: Roles
    created_at: float = 0.0
    by_waves: bool = False
    knowledge: tuple[str, ...] = ()
    """The files of `.docs/` with what earlier sessions learned."""
    requires_proof: bool = False
    """Whether no reviewer may accept changed tests and settings."""
    has_worktrees: bool = True
    """Whether each task has a worktree of its own. Without git, all turns work in the user's tree, one after the other."""
    turn_seconds: float = math.inf
    """What every turn may take, if the user set that."""

    @property
    def has_one_tree(self) -> bool:
        """Whether all turns work in one tree: in the classic layout, and without git."""
        return self.layout.is_classic or not self.has_worktrees

    @property
    def flow_path(self) -> str:
        """The path of the document with the flow."""
        return f".ralph/runs/{self.id}/flow.json"

    def limit_attempt(self, state: SessionState) -> float:
        """How many seconds an attempt at a task, or its review, may take: the shorter of both limits."""
        return min(state.limits.task_wip_minutes * 60, self.turn_seconds)

    def copy_path(self, path: str) -> str:
        """The path of the engine's copy of a document of the session."""
        return f".ralph/runs/{self.id}/copies/{path.removeprefix(self.layout.root + '/')}"

    def compile_checks(self, criteria: Iterable[str]) -> tuple[Check, ...]:
        """The checks that criteria compile to, each once."""
        return tuple(dict.fromkeys(check for criterion in criteria for check in self.compile_criterion(criterion)))

    def compile_task_checks(self, task: Task) -> tuple[Check, ...]:
        """The checks that the criteria of a task compile to."""
        return self.compile_checks(task.criteria)

    def report(self, state: SessionState, task: str, attempt: int = 0) -> str:
        """The report of an attempt at a task, the last one if none is named; empty if there is none."""
        number = attempt or state.attempt(task)
        return state.texts.get(self.layout.report(state.metadata.iteration, task, number), "") if number else ""


_AT_REST = TaskFlow()


def describe_failure(result: TurnResult) -> str:
    """Why a turn did not do its work: what blocked it, or its error."""
    return "; ".join(map(str, (result.answer or {}).get("blockers") or ())) or result.error


def name_task_worktree(state: SessionState, task: str, attempt: int = 0) -> str:
    """The name of the worktree of an attempt, by default of the current one. Dots in the id are replaced."""
    if state.layout.is_classic:
        return ""
    return f"{task.replace('.', '_')}/{attempt or max(1, state.flow_of(task).attempt)}"


def with_listed_tasks(state: SessionState) -> SessionState:
    """The state with all tasks that are defined, and those that `progress.md` lists without a definition."""
    number = state.metadata.iteration
    defined = state.layout.read_tasks(state.texts, number)
    listed = [item.id for item in state.progress.items.values() if not item.is_planning]
    order = dict.fromkeys((*listed, *defined) if state.layout.is_classic else (*defined, *listed))
    missing = {name: Task(parse_task_id(name), iteration=number, is_missing=True) for name in listed}
    return replace(state, tasks={name: defined.get(name) or missing[name] for name in order})


def render_flow(flow: Flow) -> str:
    """The document with the flow. The queue has a document of its own."""
    return to_json(replace(flow, queue=Queue()))


def read_flow(text: str, path: str) -> Flow:
    return from_json(Flow, text, path, todo="restore the file, or `ralph session repair`")


def without_front_matter(text: str) -> str:
    """The text below the front matter, if it has any."""
    if not text.startswith("---\n"):
        return text
    _, _, rest = text[4:].partition("\n---\n")
    return rest
