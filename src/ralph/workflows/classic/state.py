"""The state of a classic session: what its files tell, and nothing else that could not be found out again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from ralph.core.checks import Check
from ralph.core.codec import from_json
from ralph.core.errors import RalphError, StateError
from ralph.core.graphs import waves
from ralph.documents.session import instructions, reports, review, task_list
from ralph.documents.session.instructions import Guardrails
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.markers import OVER, Marker
from ralph.documents.session.progress import CLASSIC, Item, Progress
from ralph.documents.session.repair_classic import is_begun
from ralph.documents.session.reports import Report, Verdict
from ralph.documents.session.task_names import is_planning
from ralph.documents.session.tasks import Task
from ralph.workflows.session.state import Terms

MOST_REVIEWS = 3
"""Reviews of the whole, before a person has to say how it goes on."""
UPDATE = "plan-update-"
"""What the steps begin with that bring the plan in line with what a person asked for afterwards."""
_NEXT = {
    Marker.TODO: {Marker.WIP, Marker.FAILED},
    Marker.WIP: {Marker.PENDING, Marker.TODO, Marker.FAILED},
    Marker.PENDING: {Marker.DONE, Marker.TODO, Marker.FAILED},
    Marker.FAILED: {Marker.TODO},
}


class State(StrEnum):
    """Where a classic session is."""

    INITIALIZING = "INITIALIZING"
    PLANNING = "PLANNING"
    EXECUTING = "EXECUTING"
    REVIEWING = "REVIEWING"
    COMPLETE = "COMPLETE"


def inferred(items: Iterable[Item]) -> State:
    """The state that the markers tell of, by the first rule that holds."""
    all = list(items)
    work = [item.marker for item in all if not item.is_planning]
    if Marker.PENDING in work:
        return State.REVIEWING
    if any(item.marker not in OVER for item in all if item.is_planning):
        return State.PLANNING
    if Marker.TODO in work or Marker.WIP in work:
        return State.EXECUTING
    return State.COMPLETE if all and all_over(work) else State.EXECUTING


def all_over(markers: Iterable[Marker]) -> bool:
    """Whether nothing is left to do."""
    return all(marker in OVER for marker in markers)


def legal(old: Marker, new: Marker) -> bool:
    """Whether the line of a task may go from one marker to another; a classic task that failed is to be done again."""
    return old is new or new in _NEXT.get(old, ())


@dataclass(frozen=True)
class Flow:
    """What the engine keeps beside the documents; where it is lost, the checks are run again, and nothing else."""

    baseline: bool = False
    """Whether the checks of the session were run before it began."""
    key: str = ""
    """What was checked last, on the tree as it is."""
    checked: str = ""
    """What that gave, for the reviewer."""
    passed: bool = False
    outcome: str = ""
    """Why the session cannot go on, where it cannot."""
    paused: bool = False
    """Whether a role asked for that."""
    schema: int = 1


@dataclass(frozen=True)
class ClassicState:
    """A classic session as its files tell of it."""

    layout: ClassicLayout
    texts: Mapping[str, str]
    """Every document of the session, by path, as it should be."""
    saved: Mapping[str, str]
    """The same as it is on the disk."""
    flow: Flow = field(default_factory=Flow)
    was_blocked: str = ""
    """Why it could not go on when it was last worked on."""

    @cached_property
    def progress(self) -> Progress:
        return Progress(self.texts.get(self.layout.progress, ""), CLASSIC)

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The tasks by id, in the order of the file, without the planning steps."""
        known = task_list.parse(self.texts.get(self.layout.tasks, ""))
        return {id: known.get(id, Task(id, is_missing=True)) for id in self._work} | {
            id: task for id, task in known.items() if not is_planning(id)
        }

    @cached_property
    def guardrails(self) -> Guardrails:
        return instructions.parse(self.texts.get(self.instructions, ""), self.instructions)

    @property
    def instructions(self) -> str:
        """Where its instructions are."""
        inner = self.layout.inner_instructions
        return inner if self.layout.instructions not in self.texts and inner in self.texts else self.layout.instructions

    @property
    def state(self) -> State:
        return inferred(self.progress.items.values()) if is_begun(self.layout, self.texts) else State.INITIALIZING

    @property
    def _work(self) -> list[str]:
        return [item.id for item in self.progress.items.values() if not item.is_planning]

    def marker(self, id: str) -> Marker:
        """The marker of a task or a planning step; one that is not listed is not begun."""
        item = self.progress.items.get(id)
        return item.marker if item else Marker.TODO

    def first(self, marker: Marker) -> str:
        """The first task with that marker; empty where there is none."""
        return next((id for id in self._work if self.marker(id) is marker), "")

    def steps(self) -> list[str]:
        """The planning steps that are open, in their order."""
        return [item.id for item in self.progress.items.values() if item.is_planning and item.marker not in OVER]

    def reports(self, task: str) -> dict[int, Report]:
        """The reports on a task, by attempt."""
        found = self.layout.reports_in(self.texts, task)
        return {attempt: reports.parse(self.texts[path]) for attempt, path in found.items()}

    def attempt(self, task: str) -> int:
        """The attempt that is under way, or comes next: no number is used twice. With a report, it is that of the last."""
        last = max(self.layout.reports_in(self.texts, task), default=0)
        return max(1, last) if self.marker(task) is Marker.PENDING else last + 1

    def inherited(self, task: str) -> dict[str, str]:
        """The report of every task that one builds on: the latest that was qualified, else the latest."""
        found = {}
        for id in self.tasks[task].needs:
            known = self.reports(id)
            good = [attempt for attempt, report in known.items() if report.verdict is Verdict.QUALIFIED]
            if known:
                found[id] = self.texts[self.layout.reports_in(self.texts, id)[max(good or known)]]
        return found

    def ready(self) -> str:
        """The next task: the first that is not begun and whose needs are met; empty where there is none."""
        todo = (id for id in self._work if self.marker(id) is Marker.TODO)
        return next((id for id in todo if all_over(self.marker(one) for one in self.tasks[id].needs)), "")

    def blocked(self) -> dict[str, str]:
        """The tasks that can never start, with a failed one that keeps each from it."""
        found: dict[str, str] = {}
        for id in self._work:
            ahead, seen = [id], set()
            while ahead and id not in found:
                for one in self.tasks[ahead.pop()].needs:
                    if one not in seen and self.marker(one) is Marker.FAILED:
                        found[id] = one
                    elif one not in seen and one in self.tasks:
                        ahead.append(one)
                    seen.add(one)
        return {id: by for id, by in found.items() if self.marker(id) is Marker.TODO}

    def fault(self) -> str:
        """What is wrong with the order of the tasks; empty where nothing is."""
        try:
            waves({id: task.needs for id, task in self.tasks.items()}, self.layout.tasks)
        except RalphError as error:
            return error.what
        return ""

    @cached_property
    def reviews(self) -> list[review.Reviewed]:
        found = self.layout.reviews_in(self.texts)
        return [review.parse_classic(number, self.texts[path]) for number, path in found.items()]

    @property
    def judged(self) -> review.Reviewed | None:
        """The last review, where it is one of all that is there now; one that does not tell is believed if it is good."""
        last = self.reviews[-1] if self.reviews else None
        if last is None:
            return None
        covers = last.complete if last.covers is None else self.progress.items.keys() <= set(last.covers)
        return last if covers else None

    @property
    def rounds(self) -> int:
        """How many reviews there were since a person last asked for something."""
        asked = [id for id in self.progress.items if id.startswith(UPDATE)][-1:]
        return sum(not asked or (one.covers is not None and asked[0] in one.covers) for one in self.reviews)

    def marked(self, id: str, marker: Marker, note: str = "") -> "ClassicState":
        """The state with another marker; an edge that is not legal cannot be written."""
        old = self.marker(id)
        if not is_planning(id) and not legal(old, marker):
            raise StateError(f"{id} cannot go from [{old}] to [{marker}]", where=self.layout.progress)
        return self.with_text(self.layout.progress, self.progress.with_item(id, marker, note).text)

    def with_text(self, path: str, text: str) -> "ClassicState":
        """The state with another text of a document."""
        return replace(self, texts={**self.texts, path: text})

    def checked(self, key: str, told: str, *, passed: bool) -> "ClassicState":
        """The state after checks of the tree as it is."""
        return replace(self, flow=replace(self.flow, key=key, checked=told, passed=passed))


@dataclass(frozen=True)
class ClassicTerms(Terms[ClassicLayout]):
    """What a classic session was begun with."""

    def criteria(self, state: ClassicState, task: str) -> tuple[Check, ...]:
        """The checks that the criteria of a task compile to."""
        return self.checks_of(state.tasks[task].criteria if task in state.tasks else ())


def read_flow(text: str, where: str) -> Flow:
    """The facts that the engine keeps; what cannot be read is found out again."""
    try:
        return from_json(Flow, text, where)
    except StateError:
        return Flow()
