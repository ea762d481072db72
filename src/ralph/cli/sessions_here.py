"""The sessions of a project: those that Ralph began, and those of others that lie in `.ralph-sessions`."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ralph.app.sessions import session_texts, session_workflow
from ralph.app.workflows import SESSIONS
from ralph.core.errors import RalphError, UsageError
from ralph.core.ids import is_run_id, valid_run_id
from ralph.core.outcomes import Outcome
from ralph.documents.run_record import Crew, RunRecord
from ralph.documents.session import HOME, plan, timestamps
from ralph.documents.session.layout import is_classic
from ralph.documents.session.repair import repair
from ralph.documents.session.timestamps import render
from ralph.store.files import read_limited, signature, to_text
from ralph.store.runs import Project, RunDir
from ralph.workflows.session.closing import new_feedback
from ralph.workflows.session.planning import next_step
from ralph.workflows.session.planning_classic import UPDATE
from ralph.workflows.session.state import SessionState


@dataclass(frozen=True)
class Found:
    """A session, by its directory; without a run where others began it, or where its run is lost."""

    project: Project
    id: str
    run: RunDir | None

    @property
    def home(self) -> Path:
        return self.project.root / HOME / self.id

    @property
    def is_classic(self) -> bool:
        """Whether its files lie flat."""
        return self.record.workflow == "classic"

    @property
    def is_over(self) -> bool:
        """Whether its run has come to an end that is one."""
        return self._outcome is not None and not self._outcome.resumable

    @property
    def _outcome(self) -> Outcome | None:
        return self.run.outcome() if self.run else None

    @cached_property
    def record(self) -> RunRecord:
        """What it was started with; for the session of others, what its files tell of that."""
        if self.run:
            return self.run.record()
        paths = [path.relative_to(self.project.root).as_posix() for path in self.home.rglob("*") if path.is_file()]
        kind = "classic" if is_classic(self.id, paths, _read(self.home / "progress.md")) else "session"
        at = timestamps.parse(self.id)
        plans = (self.home / "plan.md", *sorted(self.home.glob("iterations/*/plan.md"), reverse=True))
        goal = next((goal for path in plans if (goal := plan.parse(_read(path)).goal)), "")
        begun = at.timestamp() if at else 0.0
        return RunRecord(self.id, kind, goal or f"What the plan of session {self.id} asks for", "", (), Crew(()), begun)

    def texts(self) -> dict[str, str]:
        """The documents, as they are between two commits of an engine that works on them."""
        for _ in range(50):
            before, found = self._stand(), session_texts(self.project.root, self.record)
            if not self.alive or (before and before == self._stand()):
                break
            time.sleep(0.02)
        return found

    def _stand(self) -> tuple[int, ...] | None:
        """What is another after every commit; nothing while one is made."""
        here = self.run.path if self.run else self.home
        return None if (here / "commit.json").exists() else signature(here / "journal.jsonl")

    def state(self) -> SessionState:
        """A session as its documents tell of it now."""
        return session_workflow(self.record, self.project.root).load(self.mended())

    @property
    def alive(self) -> bool:
        """Whether an engine works on it now."""
        return bool(self.run and self.run.alive)

    @property
    def is_aborted(self) -> bool:
        """Whether it was aborted, and nobody has said since how it goes on."""
        return self._outcome is Outcome.ABORTED and not self._has_feedback

    @property
    def _has_feedback(self) -> bool:
        """Whether a person said something that nobody has taken in yet."""
        if self.is_classic:
            return next_step(self.state()).startswith(UPDATE)
        return bool(new_feedback(session_workflow(self.record, self.project.root), self.state()))

    def mended(self) -> dict[str, str]:
        """The documents of a session; those of others are read as a repair would put them right."""
        texts = self.texts()
        if self.run is None and not self.is_classic:
            layout = session_workflow(self.record, self.project.root).layout
            found = repair(layout, texts, render(time.time()))
            texts |= {
                layout.progress(found.metadata.iteration): found.progress.text,
                layout.metadata: found.metadata_text,
            }
        return texts


def sessions(project: Project) -> list[Found]:
    """All of them, the latest last."""
    known = {run.id: run for run in project.runs() if (run.path / "run.json").exists()}
    own = [Found(project, id, run) for id, run in known.items() if run.record().workflow in SESSIONS]
    home = project.root / HOME
    names = [path.name for path in home.iterdir() if path.is_dir()] if home.is_dir() else []
    others = [Found(project, name, None) for name in names if is_run_id(name) and name not in known]
    # Old ids have years of four digits.
    return sorted([*own, *others], key=lambda one: one.id[2 * (one.id.index("-") > 6) :])


def chosen(project: Project, session: str | None) -> Found:
    """The session that is meant: the named one, or the latest that is open, or the latest."""
    found = sessions(project)
    if session:
        named = [one for one in found if one.id == session] or [one for one in found if one.id.startswith(session)]
        if len(named) == 1:
            return named[0]
        if named:
            raise UsageError(f"several sessions begin with {session}", where=", ".join(one.id for one in named))
        valid_run_id(session)
        raise UsageError(f"there is no session {session}", where=str(project.root / HOME), todo="`ralph session list`")
    if found:
        return [*found, *(one for one in found if one.run and not one.is_over)][-1]
    raise UsageError("there is no session here", where=str(project.root), todo='begin one: ralph session new "..."')


def for_request(project: Project, request: str) -> Iterator[Found]:
    """The sessions for a request that are not over."""
    for one in reversed(sessions(project)):
        if one.run and one.record.task.strip() == request.strip() and not one.is_over:
            yield one


def _read(path: Path) -> str:
    try:
        return to_text(read_limited(path))
    except (OSError, RalphError):
        return ""
