"""The two layouts of a session: where its files are, how they are written, and the few rules that differ.

`Layout` is the standard one: that of the first releases, and the later, nested one. `ClassicLayout` has flat files, which
are all the state there is.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ralph.core.errors import StateError
from ralph.core.ids import parse_session_id
from ralph.documents.session import HOME, task_list, tasks
from ralph.documents.session.progress import CLASSIC, STANDARD, Style
from ralph.documents.session.reports import parse_attempt, report_name
from ralph.documents.session.tasks import Task, is_planning, is_task_id, make_natural_key, parse_task_id

FEEDBACK = "feedbacks.md"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. +-]*")
_BATCH = re.compile(r"(?!.*\.\.)[^/.\x00-\x1f][^/\x00-\x1f]*")
"""Names that users may give a directory with feedback."""
_NESTED = re.compile(r"iterations/\d+/(?:plan\.md|progress\.md|tasks/.+)")
_OF_ITERATION = re.compile(r"feedback-driven|critique.*")
"""Questions that are about one iteration in either layout."""


_REVIEW = re.compile(r"progress\.review\[?(\d{0,6})\]?\.md")
_UPDATE = re.compile(r"plan\.update(\d{1,6})\.md")
_QUESTIONS = re.compile(r"plan\.questions(?:\.[\w-]+)?\.md")
_FLAT = re.compile(r"tasks\.md|tasks\..+-report(?:-r\d+)?\.md|plan\.questions.*\.md|progress\.review.*\.md")
_LATER = re.compile(r"metadata\.yaml|(?:tasks|reports|questions|iterations|signals|state)/.+")


@dataclass(frozen=True)
class Layout:
    """The paths of a session; `nested` if everything is below `iterations/<N>/`."""

    root: str
    nested: bool = False

    is_classic: ClassVar[bool] = False
    """Whether this is the classic layout. In it, the markers in progress.md say how far the session is, and all turns work in
    one tree, one task at a time. In the other, `metadata.yaml` says it, and the work of every task is merged."""
    retries_as_todo: ClassVar[bool] = False
    """Whether a task that failed and has attempts left is `[ ]`; else it is `[F]` until it begins again."""
    reviewer_adds_tasks: ClassVar[bool] = False
    """Whether the review of the whole writes the tasks for its gaps; else a planner does, and a librarian follows."""

    style: ClassVar[Style] = STANDARD
    """How `progress.md` is written."""
    annotations: ClassVar[Mapping[str, str]] = {
        "started": "Attempt {attempt}, Iteration {iteration}, started: {at}",
        "pending": "Attempt {attempt}, Iteration {iteration}, review-pending",
        "recovered": "Attempt {attempt}, Iteration {iteration}, recovered",
        "qualified": "Attempt {attempt}, Iteration {iteration}, qualified: {at}",
        "failed": "Attempt {attempt}, Iteration {iteration}, failed: {at}{why}",
        "aborted": "Attempt {attempt}, Iteration {iteration}, failed: {at}, Aborted by signal",
        "reset": "Iteration {iteration}, reset",
        "planned": "completed: {at}",
    }
    """What `progress.md` says behind a task or a planning step, by its result."""
    state_names: ClassVar[Mapping[str, str]] = {}
    """What the layout calls the states of a session, if they have other names there."""

    @property
    def session_id(self) -> str:
        return self.root.rpartition("/")[2]

    @property
    def instructions(self) -> str:
        """The instructions for all roles, beside the directory."""
        return f"{self.root}.instructions.md"

    @property
    def notes(self) -> str:
        """The guidance that the user gave while the session was in progress."""
        return f"{self.root}/notes.md"

    def instructions_in(self, paths: Iterable[str]) -> str:
        """Where the instructions are."""
        return self.instructions

    @classmethod
    def of(cls, session_id: str, paths: Iterable[str] = ()) -> "Layout":
        """The layout that the files of a session have; new ones get the first."""
        root = f"{HOME}/{parse_session_id(session_id)}"
        inside = [path.removeprefix(f"{root}/") for path in paths if path.startswith(f"{root}/")]
        is_flat = any(path in ("plan.md", "progress.md") or path.startswith("tasks/") for path in inside)
        return cls(root, not is_flat and any(_NESTED.fullmatch(path) for path in inside))

    @property
    def metadata(self) -> str:
        """What is known of the session."""
        return f"{self.root}/metadata.yaml"

    def plan(self, iteration: int) -> str:
        return f"{self._of(iteration)}/plan.md"

    def plan_copy(self, iteration: int) -> str:
        """The plan as it was in an iteration; nested, every iteration has its own."""
        return self.plan(iteration) if self.nested else f"{self.root}/plan.iteration-{iteration}.md"

    def progress(self, iteration: int) -> str:
        return f"{self._of(iteration)}/progress.md"

    def iteration_metadata(self, iteration: int) -> str:
        return f"{self._below(iteration)}/metadata.yaml"

    def tasks(self, iteration: int) -> str:
        return f"{self._of(iteration)}/tasks"

    def task(self, iteration: int, task: str) -> str:
        return f"{self.tasks(iteration)}/{parse_task_id(task)}.md"

    def old_task(self, iteration: int, task: str) -> str:
        """The definition of a task before that iteration changed it."""
        return f"{self.tasks(iteration)}/.history/{parse_task_id(task)}.i{iteration}.md"

    def reports(self, iteration: int) -> str:
        return f"{self._of(iteration)}/reports"

    def report(self, iteration: int, task: str, attempt: int) -> str:
        return f"{self.reports(iteration)}/{report_name(parse_task_id(task), attempt)}"

    def questions(self, iteration: int, category: str) -> str:
        home = self._below(iteration) if _OF_ITERATION.fullmatch(category) else self._of(iteration)
        return f"{home}/questions/{_name(category)}.md"

    def feedback(self, iteration: int, stamp: str) -> str:
        """The user's feedback on the iteration before."""
        return f"{self._below(iteration)}/feedbacks/{_name(stamp, _BATCH)}/{FEEDBACK}"

    def delta(self, iteration: int) -> str:
        """What changed in the plan, and why."""
        return f"{self._below(iteration)}/replanning/delta.md"

    def review(self, iteration: int) -> str:
        return f"{self._below(iteration)}/review.md"

    def knowledge(self, iteration: int, category: str, name: str) -> str:
        """Something learned that waits for approval."""
        return f"{self.knowledge_directory(iteration)}/{_name(category)}/{_name(name)}"

    def knowledge_directory(self, iteration: int) -> str:
        """Where everything is that was learned in an iteration."""
        return f"{self._below(iteration)}/knowledge"

    def knowledge_target(self, category: str, name: str) -> str:
        """The same where it stays, outside the session."""
        return f".docs/{_name(category)}/{_name(name)}"

    def tasks_in(self, paths: Iterable[str], iteration: int) -> list[str]:
        """The tasks that have a file, in natural order."""
        found = _inside(paths, self.tasks(iteration), r"([^/]+)\.md")
        return sorted(filter(is_task_id, found), key=make_natural_key)

    def batches_in(self, paths: Iterable[str], iteration: int) -> list[str]:
        """The batches of feedback for an iteration, oldest first."""
        found = _inside(paths, f"{self._below(iteration)}/feedbacks", r"([^/]{1,120})/feedbacks\.md")
        return sorted(filter(_BATCH.fullmatch, found))

    def knowledge_in(self, paths: Iterable[str], iteration: int) -> list[tuple[str, str]]:
        """The category and name of everything that waits for approval."""
        found = _inside(paths, self.knowledge_directory(iteration), r"([^/]+/[^/]+\.md)")
        return [(one.split("/")[0], one.split("/")[1]) for one in sorted(found)]

    def iterations_in(self, paths: Iterable[str]) -> list[int]:
        """The iterations that were begun; one for which there is only feedback was not."""
        found = _inside(paths, f"{self.root}/iterations", r"(\d{1,6})/(?!feedbacks/).+")
        return sorted({int(number) for number in found})

    def reports_in(self, paths: Iterable[str], iteration: int, task: str) -> dict[int, str]:
        """The reports on a task, by attempt, the first first."""
        home = f"{self.reports(iteration)}/"
        inside = (path for path in paths if path.startswith(home))
        return dict(sorted((attempt, path) for path in inside if (attempt := parse_attempt(path, task))))

    def updates_in(self, paths: Iterable[str]) -> dict[int, str]:
        """What the user asked for beside the batches of feedback, by number; only the classic layout has such files."""
        return {}

    def read_tasks(self, texts: Mapping[str, str], iteration: int) -> dict[str, Task]:
        """The tasks that are defined, by id. A file that is empty, or does not say what to do, defines none."""
        paths = {name: self.task(iteration, name) for name in self.tasks_in(texts, iteration)}
        found = {name: tasks.parse_task(texts[path], path) for name, path in paths.items() if texts[path].strip()}
        return {name: task for name, task in found.items() if task.title or task.objective or task.criteria}

    def definition(self, texts: Mapping[str, str], iteration: int, task: str) -> str:
        """The text that defines a task: the newest, if an iteration has its own; empty if there is none."""
        paths = (self.task(number, task) for number in range(iteration, 0, -1))
        return next((texts[path] for path in paths if path in texts), "")

    def place_of_task(self, iteration: int, task: str) -> str:
        """The file in which the user finds or restores the definition of a task."""
        return self.task(iteration, task)

    def place_of_tasks(self, iteration: int) -> str:
        """The directory or the file in which all of them are."""
        return self.tasks(iteration)

    def is_engines(self, path: str, iteration: int) -> bool:
        """Whether only the engine may write a file while the run is in progress, so that no agent can forge it."""
        own = (self.metadata, self.progress(iteration), self.iteration_metadata(iteration))
        return path in own or path.startswith((f"{self.tasks(iteration)}/", f"{self.reports(iteration)}/"))

    def _below(self, iteration: int) -> str:
        return f"{self.root}/iterations/{iteration}"

    def _of(self, iteration: int) -> str:
        return self._below(iteration) if self.nested else self.root


@dataclass(frozen=True)
class ClassicLayout(Layout):
    """The paths of a classic session: flat in its directory."""

    is_classic: ClassVar[bool] = True
    retries_as_todo: ClassVar[bool] = True
    reviewer_adds_tasks: ClassVar[bool] = True
    style: ClassVar[Style] = CLASSIC
    annotations: ClassVar[Mapping[str, str]] = {
        "started": "Attempt {attempt}, started: {at}{since}",
        "pending": "Attempt {attempt}: {at}{since}",
        "recovered": "Attempt {attempt}, recovered",
        "qualified": "qualified: {at}",
        "failed": "Attempt {attempt} failed: {at}{since}",
        "aborted": "Aborted by signal: {at}{since}",
        "reset": "from Attempt {attempt}",
        "planned": "{at}",
    }
    state_names: ClassVar[Mapping[str, str]] = {
        "BATCHING": "EXECUTING",
        "EXECUTING_BATCH": "EXECUTING",
        "REVIEWING_BATCH": "REVIEWING",
        "SESSION_REVIEW": "COMPLETE",
    }

    @classmethod
    def of(cls, session_id: str, paths: Iterable[str] = ()) -> "ClassicLayout":
        """The paths of the session of that id."""
        return cls(f"{HOME}/{parse_session_id(session_id)}")

    @property
    def task_list(self) -> str:
        """All tasks, in the order in which they are done."""
        return f"{self.root}/tasks.md"

    @property
    def question_list(self) -> str:
        """What was asked and answered, cycle after cycle."""
        return f"{self.root}/plan.questions.md"

    def instructions_in(self, paths: Iterable[str]) -> str:
        """Where the instructions are; others put them inside the directory."""
        inner = f"{self.root}/{self.session_id}.instructions.md"
        return inner if self.instructions not in paths and inner in paths else self.instructions

    def report(self, iteration: int, task: str, attempt: int) -> str:
        return f"{self.root}/tasks.{report_name(parse_task_id(task), attempt)}"

    def review(self, iteration: int) -> str:
        """The review of that number: there is one file for each."""
        return f"{self.root}/progress.review{iteration}.md"

    def update(self, number: int) -> str:
        return f"{self.root}/plan.update{number}.md"

    def update_directory(self, number: int) -> str:
        """The directory of that update."""
        return f"{self.root}/plan.update{number}"

    def plan_copy(self, iteration: int) -> str:
        """The plan as it was before the update of that number."""
        return f"{self.root}/plan.iteration-{iteration}.md"

    def reports_in(self, paths: Iterable[str], iteration: int, task: str) -> dict[int, str]:
        found = {attempt: path for path in self._own(paths) if (attempt := parse_attempt(path, task))}
        return dict(sorted(found.items()))

    def reviews_in(self, paths: Iterable[str]) -> dict[int, str]:
        """The reviews of the whole, by number."""
        return self._find_numbered(paths, _REVIEW)

    def updates_in(self, paths: Iterable[str]) -> dict[int, str]:
        return self._find_numbered(paths, _UPDATE)

    def questions_in(self, paths: Iterable[str]) -> list[str]:
        """The files of questions; some keep one for each category."""
        return [path for path in self._own(paths) if _QUESTIONS.fullmatch(path.rpartition("/")[2])]

    def read_tasks(self, texts: Mapping[str, str], iteration: int) -> dict[str, Task]:
        found = task_list.parse_task_list(texts.get(self.task_list, ""))
        return {id: task for id, task in found.items() if not is_planning(id) and not task.is_missing}

    def definition(self, texts: Mapping[str, str], iteration: int, task: str) -> str:
        return task_list.find_definition(texts.get(self.task_list, ""), task)

    def place_of_task(self, iteration: int, task: str) -> str:
        return self.task_list

    def place_of_tasks(self, iteration: int) -> str:
        return self.task_list

    def is_engines(self, path: str, iteration: int) -> bool:
        name = path.rpartition("/")[2]
        is_known = name in ("plan.md", "progress.md") or bool(_FLAT.fullmatch(name))
        return is_known and path.rpartition("/")[0] == self.root

    def _own(self, paths: Iterable[str]) -> list[str]:
        return sorted(path for path in paths if path.rpartition("/")[0] == self.root)

    def _find_numbered(self, paths: Iterable[str], pattern: re.Pattern[str]) -> dict[int, str]:
        found = ((pattern.fullmatch(path.rpartition("/")[2]), path) for path in self._own(paths))
        return dict(sorted((int(match[1] or 1), path) for match, path in found if match))


def is_classic(session_id: str, paths: Iterable[str], progress: str = "") -> bool:
    """Whether the files of a session are those of a classic one; where its names do not tell, its progress does."""
    root = f"{HOME}/{session_id}/"
    inside = [path.removeprefix(root) for path in paths if path.startswith(root)]
    if any(_LATER.fullmatch(path) for path in inside):
        return False
    return any(_FLAT.fullmatch(path) for path in inside) or bool(progress and "(iteration" not in progress.casefold())


def _inside(paths: Iterable[str], home: str, pattern: str) -> list[str]:
    """What the pattern finds in the paths below a directory."""
    below = re.compile(pattern)
    inside = (path.removeprefix(f"{home}/") for path in paths if path.startswith(f"{home}/"))
    return [match[1] for path in inside if (match := below.fullmatch(path))]


def _name(text: str, known: re.Pattern[str] = _NAME) -> str:
    """A name that is used in a path, so nothing else may pass."""
    if not known.fullmatch(text) or ".." in text or len(text) > 120:
        raise StateError(f"{text[:80]!r} cannot be the name of a file", where=HOME, todo="use letters, digits, - _ .")
    return text
