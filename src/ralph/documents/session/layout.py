"""Where the files of a session are, relative to the project: the layout of the first releases, and the later, nested one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ralph.core.errors import StateError
from ralph.core.graphs import natural
from ralph.core.ids import valid_run_id
from ralph.documents.session import HOME
from ralph.documents.session.reports import report_name
from ralph.documents.session.tasks import is_task_id, valid_task_id

FEEDBACK = "feedbacks.md"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. +-]*")
_BATCH = re.compile(r"(?!.*\.\.)[^/.\x00-\x1f][^/\x00-\x1f]*")
"""What people may call a directory with feedback."""
_NESTED = re.compile(r"iterations/\d+/(?:plan\.md|progress\.md|tasks/.+)")
_OF_ITERATION = re.compile(r"feedback-driven|critique.*")
"""Questions that are about one iteration in either layout."""


@dataclass(frozen=True)
class Home:
    """The directory of a session of either kind."""

    root: str

    @property
    def session_id(self) -> str:
        return self.root.rpartition("/")[2]

    @property
    def instructions(self) -> str:
        """What everybody has to heed, beside the directory."""
        return f"{self.root}.instructions.md"

    @property
    def notes(self) -> str:
        """The guidance that the user gave while the session was under way."""
        return f"{self.root}/notes.md"


@dataclass(frozen=True)
class Layout(Home):
    """The paths of a session; `nested` where everything is below `iterations/<N>/`."""

    nested: bool = False

    @classmethod
    def of(cls, session_id: str, paths: Iterable[str] = ()) -> "Layout":
        """The layout that the files of a session have; new ones get the first."""
        root = f"{HOME}/{valid_run_id(session_id)}"
        inside = [path.removeprefix(f"{root}/") for path in paths if path.startswith(f"{root}/")]
        is_flat = any(path in ("plan.md", "progress.md") or path.startswith("tasks/") for path in inside)
        return cls(root, not is_flat and any(_NESTED.fullmatch(path) for path in inside))

    @property
    def metadata(self) -> str:
        """What is known of the session."""
        return f"{self.root}/metadata.yaml"

    def plan(self, iteration: int) -> str:
        return f"{self._of(iteration)}/plan.md"

    def snapshot(self, iteration: int) -> str:
        """The plan as it was in an iteration; nested, every iteration has its own."""
        return self.plan(iteration) if self.nested else f"{self.root}/plan.iteration-{iteration}.md"

    def progress(self, iteration: int) -> str:
        return f"{self._of(iteration)}/progress.md"

    def iteration_metadata(self, iteration: int) -> str:
        return f"{self._below(iteration)}/metadata.yaml"

    def tasks(self, iteration: int) -> str:
        return f"{self._of(iteration)}/tasks"

    def task(self, iteration: int, task: str) -> str:
        return f"{self.tasks(iteration)}/{valid_task_id(task)}.md"

    def old_task(self, iteration: int, task: str) -> str:
        """The definition of a task before that iteration changed it."""
        return f"{self.tasks(iteration)}/.history/{valid_task_id(task)}.i{iteration}.md"

    def reports(self, iteration: int) -> str:
        return f"{self._of(iteration)}/reports"

    def report(self, iteration: int, task: str, attempt: int) -> str:
        return f"{self.reports(iteration)}/{report_name(valid_task_id(task), attempt)}"

    def questions(self, iteration: int, category: str) -> str:
        home = self._below(iteration) if _OF_ITERATION.fullmatch(category) else self._of(iteration)
        return f"{home}/questions/{_name(category)}.md"

    def feedback(self, iteration: int, stamp: str) -> str:
        """What a person said of the iteration before."""
        return f"{self._below(iteration)}/feedbacks/{_name(stamp, _BATCH)}/{FEEDBACK}"

    def delta(self, iteration: int) -> str:
        """What changed in the plan, and why."""
        return f"{self._below(iteration)}/replanning/delta.md"

    def review(self, iteration: int) -> str:
        return f"{self._below(iteration)}/review.md"

    def knowledge(self, iteration: int, category: str, name: str) -> str:
        """Something learned that waits for approval."""
        return f"{self._below(iteration)}/knowledge/{_name(category)}/{_name(name)}"

    def promoted(self, category: str, name: str) -> str:
        """The same where it stays, outside the session."""
        return f".docs/{_name(category)}/{_name(name)}"

    def tasks_in(self, paths: Iterable[str], iteration: int) -> list[str]:
        """The tasks that have a file, in natural order."""
        found = _inside(paths, self.tasks(iteration), r"([^/]+)\.md")
        return sorted(filter(is_task_id, found), key=natural)

    def batches_in(self, paths: Iterable[str], iteration: int) -> list[str]:
        """The batches of feedback for an iteration, oldest first."""
        found = _inside(paths, f"{self._below(iteration)}/feedbacks", r"([^/]{1,120})/feedbacks\.md")
        return sorted(filter(_BATCH.fullmatch, found))

    def knowledge_in(self, paths: Iterable[str], iteration: int) -> list[tuple[str, str]]:
        """The category and name of everything that waits for approval."""
        found = _inside(paths, f"{self._below(iteration)}/knowledge", r"([^/]+/[^/]+\.md)")
        return [(one.split("/")[0], one.split("/")[1]) for one in sorted(found)]

    def iterations_in(self, paths: Iterable[str]) -> list[int]:
        """The iterations that were begun; one for which there is only feedback was not."""
        found = _inside(paths, f"{self.root}/iterations", r"(\d{1,6})/(?!feedbacks/).+")
        return sorted({int(number) for number in found})

    def _below(self, iteration: int) -> str:
        return f"{self.root}/iterations/{iteration}"

    def _of(self, iteration: int) -> str:
        return self._below(iteration) if self.nested else self.root


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
