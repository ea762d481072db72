"""What a session was begun with: its request, its checks, its layout, and the texts of its roles."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ralph.core.checks import Check
from ralph.documents.session.layout import Layout
from ralph.documents.session.markdown import Page
from ralph.documents.session.tasks import Task
from ralph.workflows.session.state import SessionState


@dataclass(frozen=True)
class Roles:
    """The texts of the roles, by name, with a section for each mode; and what else prompts name."""

    texts: Mapping[str, str]
    resolver: str
    skills: tuple[str, ...] = ()
    """Directories with skills that agents may use."""
    foreign: frozenset[str] = frozenset()
    """Roles whose text somebody else wrote, for agents that edit the files of a session themselves."""

    def section(self, role: str, mode: str) -> str:
        """What a role is told in a mode: what holds in all of them, and what in this one."""
        text = _without_front_matter(self.texts[role]).strip()
        if role in self.foreign:
            return text
        page = Page(text)
        modes = [section for section in page.sections if section.level == 2]
        starts = [*(section.start for section in modes), len(page.lines)]
        head = "\n".join(page.lines[: starts[0]]).strip()
        for number, section in enumerate(modes):
            if section.title == mode:
                own = "\n".join(page.lines[section.start : starts[number + 1]]).strip()
                return f"{head}\n\n{own}"
        return head


@dataclass(frozen=True)
class SessionTerms:
    """What a session was begun with."""

    id: str
    request: str
    layout: Layout
    checks: tuple[Check, ...]
    """What must pass before it is complete."""
    compiled: Callable[[str], tuple[Check, ...]]
    """The checks that a criterion of a task compiles to; none where it is for a reviewer to judge."""
    roles: Roles
    created_at: float = 0.0
    by_waves: bool = False

    @property
    def flow_path(self) -> str:
        """Where the engine keeps its own facts."""
        return f".ralph/runs/{self.id}/flow.json"

    def checks_of(self, criteria: Iterable[str]) -> tuple[Check, ...]:
        """The checks that criteria compile to, each once."""
        return tuple(dict.fromkeys(check for criterion in criteria for check in self.compiled(criterion)))

    def criteria(self, task: Task) -> tuple[Check, ...]:
        """The checks that the criteria of a task compile to."""
        return self.checks_of(task.criteria)

    def report(self, state: SessionState, task: str, attempt: int = 0) -> str:
        """The report of an attempt at a task, the last one where none is named; empty where there is none."""
        number = attempt or state.attempt(task)
        return state.texts.get(self.layout.report(state.metadata.iteration, task, number), "") if number else ""


def _without_front_matter(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    _, _, rest = text[4:].partition("\n---\n")
    return rest
