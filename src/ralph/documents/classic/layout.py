"""Where the files of a classic session are: flat in its directory, its instructions beside it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ralph.core.ids import valid_run_id
from ralph.documents.session import HOME
from ralph.documents.session.layout import Home
from ralph.documents.session.reports import attempt_of, report_name
from ralph.documents.session.tasks import valid_task_id

_REVIEW = re.compile(r"progress\.review\[?(\d{0,6})\]?\.md")
_UPDATE = re.compile(r"plan\.update(\d{1,6})\.md")
_QUESTIONS = re.compile(r"plan\.questions(?:\.[\w-]+)?\.md")
_FLAT = re.compile(r"tasks\.md|tasks\..+-report(?:-r\d+)?\.md|plan\.questions.*\.md|progress\.review.*\.md")
_LATER = re.compile(r"metadata\.yaml|(?:tasks|reports|questions|iterations|signals|state)/.+")


@dataclass(frozen=True)
class Flat(Home):
    """The paths of a classic session."""

    @classmethod
    def of(cls, session_id: str) -> "Flat":
        """The paths of the session of that id."""
        return cls(f"{HOME}/{valid_run_id(session_id)}")

    @property
    def plan(self) -> str:
        """What is to be reached, and how."""
        return f"{self.root}/plan.md"

    @property
    def questions(self) -> str:
        """What was asked and answered, cycle after cycle."""
        return f"{self.root}/plan.questions.md"

    @property
    def tasks(self) -> str:
        return f"{self.root}/tasks.md"

    @property
    def progress(self) -> str:
        return f"{self.root}/progress.md"

    @property
    def inner_instructions(self) -> str:
        """The same where others put it inside."""
        return f"{self.root}/{self.session_id}.instructions.md"

    def report(self, task: str, attempt: int) -> str:
        return f"{self.root}/tasks.{report_name(valid_task_id(task), attempt)}"

    def review(self, number: int) -> str:
        return f"{self.root}/progress.review{number}.md"

    def update(self, number: int) -> str:
        return f"{self.root}/plan.update{number}.md"

    def attached(self, number: int) -> str:
        """The directory with what goes with that."""
        return f"{self.root}/plan.update{number}"

    def old_plan(self, number: int) -> str:
        """The plan as it was before that update."""
        return f"{self.root}/plan.iteration-{number}.md"

    def reports_in(self, paths: Iterable[str], task: str) -> dict[int, str]:
        """The reports on a task, by attempt, the first first."""
        found = {attempt: path for path in self._own(paths) if (attempt := attempt_of(path, task))}
        return dict(sorted(found.items()))

    def reviews_in(self, paths: Iterable[str]) -> dict[int, str]:
        """The reviews of the whole, by number."""
        return self._numbered(paths, _REVIEW)

    def updates_in(self, paths: Iterable[str]) -> dict[int, str]:
        """What a person asked for afterwards, by number."""
        return self._numbered(paths, _UPDATE)

    def questions_in(self, paths: Iterable[str]) -> list[str]:
        """The files of questions; some keep one for each category."""
        return [path for path in self._own(paths) if _QUESTIONS.fullmatch(path.rpartition("/")[2])]

    def is_engines(self, path: str) -> bool:
        """Whether a file is one that the engine alone writes."""
        name = path.rpartition("/")[2]
        return path.rpartition("/")[0] == self.root and (
            name in ("plan.md", "progress.md") or bool(_FLAT.fullmatch(name))
        )

    def _own(self, paths: Iterable[str]) -> list[str]:
        return sorted(path for path in paths if path.rpartition("/")[0] == self.root)

    def _numbered(self, paths: Iterable[str], pattern: re.Pattern[str]) -> dict[int, str]:
        found = ((pattern.fullmatch(path.rpartition("/")[2]), path) for path in self._own(paths))
        return dict(sorted((int(match[1] or 1), path) for match, path in found if match))


def is_classic(session_id: str, paths: Iterable[str], progress: str = "") -> bool:
    """Whether the files of a session are those of a classic one; where its names do not tell, its progress does."""
    root = f"{HOME}/{session_id}/"
    inside = [path.removeprefix(root) for path in paths if path.startswith(root)]
    if any(_LATER.fullmatch(path) for path in inside):
        return False
    return any(_FLAT.fullmatch(path) for path in inside) or bool(progress and "(iteration" not in progress.casefold())
