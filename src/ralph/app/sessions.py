"""Sessions: their rules and documents, how they are repaired, planned and continued, and the feedback of the user."""

import itertools
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from ralph.app.run_options import (
    RunOptions,
    build_agent_selection,
    build_record,
    check_seconds,
    refuse_judge,
    refuse_landing,
)
from ralph.app.start import NewRun, WorkLocation, check_start
from ralph.app.trust import find_consent_to_resume, refuse_without_consent
from ralph.app.views import open_view
from ralph.app.workflows import WorkflowKind
from ralph.core.entries import Record
from ralph.core.errors import LockedError, RalphError, StateError, UsageError
from ralph.core.events import Stop
from ralph.core.ids import SESSION_WORKFLOWS, is_run_id, is_start_of_run_id, parse_session_id
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal
from ralph.documents.config import Config
from ralph.documents.run_record import AgentSelection, LoopRunSettings, RunRecord, SessionRunSettings
from ralph.documents.session import HOME, plan
from ralph.documents.session.layout import FEEDBACK, ClassicLayout, Layout, is_classic
from ralph.documents.session.metadata import State, read_valid_fields
from ralph.documents.session.plan import (
    complete_feedback,
    complete_update,
    list_issue_ids,
    render_feedback_form,
    renumber_issues,
)
from ralph.documents.session.repair import PLANNING, UPDATE, Repaired, repair
from ralph.documents.session.values import parse_timestamp, render_timestamp
from ralph.store import settings
from ralph.store.documents import Documents, digest, find_changed_state, hash_documents
from ralph.store.files import read_limited, stat_signature, to_bytes, to_text, write_atomic
from ralph.store.journal import read_records
from ralph.store.runs import Project, RunDir
from ralph.store.settings import load_config
from ralph.verify.criterion import compile_criterion, compile_named_commands
from ralph.verify.verifier import hash_inputs
from ralph.workflows.merge_rules import Queue, queue_path, render_queue
from ralph.workflows.session.iterations import (
    describe_stage,
    find_new_feedback,
    list_misplaced_feedback,
    waits_for_approval,
)
from ralph.workflows.session.planning import find_next_step
from ralph.workflows.session.rules import Session, rebuild_flow
from ralph.workflows.session.state import Roles, SessionSettings, SessionState, render_flow
from ralph.workspace.turn_files import COPY_LIMIT

ROLES = ("planner", "questioner", "executor", "reviewer", "librarian", "classic", "forms", "classic-forms")


def build_session_workflow(record: RunRecord, root: Path, limits: Limits | None = None) -> Session:
    """The rules of a session, in the layout that it has."""
    texts, foreign = _read_roles(root, ROLES)
    session_settings = SessionSettings(
        id=record.id,
        request=record.task,
        layout=find_layout(record, root),
        checks=record.checks,
        compile_criterion=lambda text: compile_named_commands(text, record.check_seconds, root),
        roles=Roles(texts, settings.load_prompt("resolver", root), record.session.skills, foreign),
        created_at=record.created_at,
        by_waves=record.session.by_waves,
        knowledge=_find_knowledge(root),
        requires_proof=record.require == "proven",
        has_worktrees=bool(record.branch),
        turn_seconds=record.turn_limits.wall if record.turn_limits.is_wall_set else math.inf,
    )
    return Session(session_settings)


def _find_knowledge(root: Path) -> tuple[str, ...]:
    """The paths of what earlier sessions learned."""
    return tuple(sorted(path.relative_to(root).as_posix() for path in root.glob(".docs/*/*.md")))


def find_layout(record: RunRecord, root: Path) -> Layout:
    """Where the files of a session are."""
    if record.workflow == "classic":
        return ClassicLayout.of(record.id)
    home = root / HOME / record.id
    paths = [path.relative_to(root).as_posix() for path in home.rglob("*.md")] if home.is_dir() else []
    return Layout.of(record.id, paths)


def _read_roles(root: Path, names: tuple[str, ...]) -> tuple[dict[str, str], frozenset[str]]:
    """The texts of the roles, and the names of those that the project replaced."""
    found = {name: settings.load_role(name, root) for name in names}
    return {name: text for name, (text, _) in found.items()}, frozenset(n for n, (_, other) in found.items() if other)


def list_watched_patterns(record: RunRecord, root: Path) -> tuple[str, ...]:
    """The files that users may put beside the documents of a session, as patterns."""
    home = f"{HOME}/{record.id}"
    return f"{home}/**/*.md", f"{home}/**/metadata.yaml", f"{home}.instructions.md"


def read_session_texts(root: Path, record: RunRecord) -> dict[str, str]:
    """The documents of a session, by path."""
    home = f"{HOME}/{record.id}"
    own = (
        f".ralph/runs/{record.id}/flow.json",
        queue_path(record.id),
        f"{home}/state/*.yaml",
        f"{home}/*/*/state.yaml",
    )
    paths: set[Path] = set()
    for pattern in (*list_watched_patterns(record, root), *own):
        paths.update(root.glob(pattern))
    files = [path for path in sorted(paths) if path.is_file()]
    return {path.relative_to(root).as_posix(): to_text(read_limited(path)) for path in files}


def repair_documents(
    root: Path, record: RunRecord, now: float, *, removes_stray_lines: bool = False
) -> tuple[str, ...]:
    """Repair the documents that the user may edit from the others. Returns what was done.

    A copy of each changed file stays beside it.
    """
    rules, texts = build_session_workflow(record, root), read_session_texts(root, record)
    layout = rules.settings.layout
    if not any(path.startswith(f"{layout.root}/") for path in texts):
        return ()
    records = _read_journal(root, record)
    repaired = _plan_repair(root, record, texts, records, now, removes_stray_lines=removes_stray_lines)
    for path, text in repaired.documents.items():
        _keep_beside(root / path, text, now)
        write_atomic(root / path, to_bytes(text))
    done = list(repaired.done)
    if records:
        done += _move_misplaced_feedback(root, record)
        done += _renumber_new_feedback(root, record, now)
    return tuple(done)


def _move_misplaced_feedback(root: Path, record: RunRecord) -> Iterator[str]:
    """Move feedback for iterations that are over to where Ralph reads it, with what is attached."""
    rules = build_session_workflow(record, root)
    state = rules.load(read_session_texts(root, record))
    for source, target in list_misplaced_feedback(rules.settings, state).items():
        place = (root / target).parent
        if place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        (root / source).parent.rename(place)
        yield f"{source}: that iteration is over, so your feedback was moved to {target}"


def _renumber_new_feedback(root: Path, record: RunRecord, now: float) -> Iterator[str]:
    """Give issues that the user numbered by hand ids that no earlier feedback of the session has."""
    rules = build_session_workflow(record, root)
    layout, state = rules.settings.layout, rules.load(read_session_texts(root, record))
    if layout.is_classic:
        return
    number = state.metadata.iteration + 1
    new = [layout.feedback(number, batch) for batch in find_new_feedback(rules.settings, state)]
    earlier = [text for path, text in state.texts.items() if path.endswith(f"/{FEEDBACK}") and path not in new]
    taken = {id for text in earlier for id in list_issue_ids(text)}
    for path in new:
        text, new_ids = renumber_issues(state.texts[path], taken)
        taken.update(list_issue_ids(text))
        if new_ids:
            _keep_beside(root / path, text, now)
            write_atomic(root / path, to_bytes(text))
            named = ", ".join(f"{old} is {id} now" for old, id in new_ids.items())
            yield f"{path}: {named}, because earlier feedback has an issue of that id"


def _read_journal(root: Path, record: RunRecord) -> list[Record]:
    """The records by which the next engine recovers its state and the documents. The view has neither."""
    journal = root / ".ralph" / "runs" / record.id / "journal.jsonl"
    return read_records(journal) if journal.exists() else []


def _plan_repair(
    root: Path,
    record: RunRecord,
    texts: Mapping[str, str],
    records: Iterable[Record],
    now: float,
    *,
    removes_stray_lines: bool = False,
) -> Repaired:
    """How the documents of a session have to be, by what its run knows."""
    # The id is a local time. If the run began at another time than that, in any zone, others began the session.
    records = tuple(records)
    at = parse_timestamp(record.id)
    is_own = at is not None and abs(at.timestamp() - record.created_at) < 26 * 3600
    restored = _read_copies_of_deleted(root, record, texts, records)
    repaired = repair(
        find_layout(record, root),
        {**texts, **restored},
        render_timestamp(now),
        {path for one in records for path in one.documents},
        record.task,
        created_at=render_timestamp(record.created_at) if is_own else "",
        finished=rebuild_flow(one.entry for one in records).finished or (),
        removes_stray_lines=removes_stray_lines,
    )
    names = [path.removeprefix(f"{HOME}/{record.id}/") for path in restored]
    done = [f"{name}: it was deleted, so Ralph restored its own copy" for name in names]
    return replace(repaired, documents={**restored, **repaired.documents}, done=(*done, *repaired.done))


def _read_copies_of_deleted(
    root: Path, record: RunRecord, texts: Mapping[str, str], records: Iterable[Record]
) -> dict[str, str]:
    """The documents that the user deleted, by path, as the engine last wrote them. The journal proves that a copy is that."""
    rules = build_session_workflow(record, root)
    found = {}
    for path, expected in hash_documents(records).items():
        copy = root / rules.settings.copy_path(path)
        if not texts.get(path, "").strip() and copy.is_file():
            data = read_limited(copy)
            if digest(data) == expected:
                found[path] = to_text(data)
    return found


def rebuild_session_state(record: RunRecord, records: Iterable[Record]) -> dict[str, str]:
    """The engine's own state of a session as far as the journal contains it. The markers say the rest."""
    flow = rebuild_flow(one.entry for one in records)
    return {f".ralph/runs/{record.id}/flow.json": render_flow(flow), queue_path(record.id): render_queue(Queue())}


def _keep_beside(place: Path, text: str, now: float) -> None:
    """Keep a copy of what is about to change. A link is refused, because Ralph never writes one."""
    if place.is_symlink():
        raise StateError("a document is a symbolic link", where=str(place), todo="remove the link")
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and to_text(read_limited(place)) != text:
        shutil.copy2(place, place.with_name(f"{place.name}.{datetime.fromtimestamp(now):%Y%m%d-%H%M%S}.bak"))


SESSION = WorkflowKind(
    build_session_workflow,
    list_watched_patterns,
    sees_deletions=True,
    repair=repair_documents,
    rebuild_state=rebuild_session_state,
    required_roles=("planner", "questioner", "executor", "reviewer"),
)
CLASSIC = WorkflowKind(
    build_session_workflow,
    list_watched_patterns,
    sees_deletions=True,
    repair=repair_documents,
    rebuild_state=rebuild_session_state,
)


@dataclass(frozen=True)
class UserSession:
    """A session, by its directory. It has no run if others began it, or if its run is lost."""

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
        """Whether its run ended and cannot be resumed."""
        return self._outcome is not None and not self._outcome.resumable

    @property
    def _outcome(self) -> Outcome | None:
        return self.run.outcome() if self.run else None

    @cached_property
    def record(self) -> RunRecord:
        """How it was started; for a session of another tool, what its files say about that."""
        if self.run:
            return self.run.record()
        paths = [path.relative_to(self.project.root).as_posix() for path in self.home.rglob("*") if path.is_file()]
        kind = "classic" if is_classic(self.id, paths, _read(self.home / "progress.md")) else "session"
        at = parse_timestamp(self.id)
        request, _ = self._found_request
        begun = at.timestamp() if at else 0.0
        return RunRecord(
            id=self.id,
            workflow=kind,
            task=request or f"What the plan of session {self.id} asks for",
            criterion="",
            checks=(),
            agents=AgentSelection(()),
            created_at=begun,
        )

    @cached_property
    def _found_request(self) -> tuple[str, str]:
        """What the user asked for by the files of the session, and the file that says it. The goal of a plan comes last."""
        name = f"{self.id}.instructions.md"
        plans = (self.home / "plan.md", *sorted(self.home.glob("iterations/*/plan.md"), reverse=True))
        metadata = self.home / "metadata.yaml"
        found = [(metadata, str(read_valid_fields(_read(metadata)).get("request", "")))]
        found += [(path, plan.find_request(_read(path))) for path in (self.home.with_name(name), self.home / name)]
        found += [(path, plan.parse_plan(_read(path)).goal) for path in plans]
        for path, request in found:
            if request.strip():
                return request.strip(), path.relative_to(self.project.root).as_posix()
        return "", ""

    @property
    def request_notice(self) -> str:
        """Which file the request comes from, if the run of the session is lost or others began it; else empty."""
        _, path = self._found_request if self.run is None else ("", "")
        if not path:
            return ""
        source = f"is the goal in {path}" if path.endswith("plan.md") else f"comes from {path}"
        return f"the request {source}, because Ralph has no run of this session"

    def texts(self) -> dict[str, str]:
        """The documents, as they are between two commits of an engine that works on them."""
        for _ in range(50):
            before, found = self._read_commit_marks(), read_session_texts(self.project.root, self.record)
            if not self.alive or (before and before == self._read_commit_marks()):
                break
            time.sleep(0.02)
        return found

    def _read_commit_marks(self) -> tuple[int, ...] | None:
        """What is another after every commit; nothing while one is made."""
        here = self.run.path if self.run else self.home
        return None if (here / "commit.json").exists() else stat_signature(here / "journal.jsonl")

    def state(self) -> SessionState:
        """A session as its documents describe it now."""
        return build_session_workflow(self.record, self.project.root).load(self.read_repaired_texts())

    @property
    def alive(self) -> bool:
        """Whether an engine works on it now."""
        return bool(self.run and self.run.alive)

    @property
    def is_aborted(self) -> bool:
        """Whether it was aborted, and the user has not said since how to continue.

        Feedback that waited when the user aborted does not count: the abort was the user's last word.
        """
        if self.run is None or self._outcome is not Outcome.ABORTED:
            return False
        return not open_view(self.project, self.run).has_feedback

    @property
    def has_feedback(self) -> bool:
        """Whether the user gave feedback that no planner has received yet."""
        if self.is_classic:
            return find_next_step(self.state()).startswith(UPDATE)
        rules, state = build_session_workflow(self.record, self.project.root), self.state()
        return bool(find_new_feedback(rules.settings, state) or list_misplaced_feedback(rules.settings, state))

    def read_repaired_texts(self) -> dict[str, str]:
        """The documents of a session; those of others are read as a repair would put them right."""
        texts, root, record = self.texts(), self.project.root, self.record
        layout = find_layout(record, root)
        if self.run is None and not self.is_classic:
            return {**texts, **repair(layout, texts, render_timestamp(time.time()), request=record.task).documents}
        own = [layout.metadata] if not self.is_classic else []
        own += [layout.progress(1)] if not layout.nested else []
        if self.run is None or self.alive or all(path in texts for path in own):
            return texts
        # The next engine repairs them. Until then they are shown as they will be.
        records = _read_journal(root, record)
        repaired = _plan_repair(root, record, texts, records, time.time()).documents if records else {}
        return {**texts, **repaired}


def list_sessions(project: Project) -> list[UserSession]:
    """All of them, the latest last."""
    sessions: list[UserSession] = []
    known: set[str] = set()
    for run in project.runs():
        if not (run.path / "run.json").exists():
            continue
        known.add(run.id)
        if run.record().workflow in SESSION_WORKFLOWS:
            sessions.append(UserSession(project, run.id, run))
    home = project.root / HOME
    for path in home.iterdir() if home.is_dir() else ():
        # An empty directory is no session.
        if path.is_dir() and is_run_id(path.name) and path.name not in known and any(path.iterdir()):
            sessions.append(UserSession(project, path.name, None))
    return sorted(sessions, key=lambda session: _drop_century(session.id))


def _drop_century(id: str) -> str:
    """An id with a year of two digits. Ids of older versions have years of four digits, and would not sort with others."""
    return id[2:] if id.index("-") > 6 else id


def find_session(project: Project, session: str | None) -> UserSession:
    """The session that is meant: the named one, or the latest that is open, or the latest."""
    found = list_sessions(project)
    if session:
        named = [one for one in found if one.id == session] or [one for one in found if one.id.startswith(session)]
        if len(named) == 1:
            return named[0]
        if named:
            raise UsageError(f"several sessions begin with {session}", where=", ".join(one.id for one in named))
        parse_session_id(session)
        raise UsageError(f"there is no session {session}", where=str(project.root / HOME), todo="`ralph session list`")
    if found:
        return [*found, *(one for one in found if one.run and not one.is_over)][-1]
    raise UsageError("there is no session here", where=str(project.root), todo='start one: ralph session new "..."')


def _open_for_request(project: Project, request: str) -> Iterator[UserSession]:
    """The sessions for a request that are not over."""
    for one in reversed(list_sessions(project)):
        if one.run and one.record.task.strip() == request.strip() and not one.is_over:
            yield one


def _read(path: Path) -> str:
    try:
        return to_text(read_limited(path))
    except (OSError, RalphError):
        return ""


@dataclass(frozen=True)
class SessionRequest:
    """What only a session is asked for."""

    request: str
    criteria: tuple[str, ...] = ()
    waves: bool = False
    classic: bool = False


def plan_session(project: Project, request: SessionRequest, options: RunOptions, *, even_if_open: bool) -> NewRun:
    """Check what a new session is asked for, and say what it would be."""
    if not request.request.strip():
        raise UsageError("the request is empty", todo='say what to build: ralph session new "Build ..."')
    known = next(_open_for_request(project, request.request), None)
    if known and not even_if_open:
        raise UsageError(
            f"session {known.id} for the same request is open",
            todo=f"`ralph session resume {known.id}`, or --new for another one",
        )
    return _plan_session(project, request, options, id="")


def plan_takeover(session: UserSession, request: SessionRequest, options: RunOptions) -> NewRun:
    """Plan to take up a session that others began, from its files."""
    session.state()
    damaged = session.project.root / ".ralph" / "runs" / session.id
    if damaged.exists():
        what = f"the run of session {session.id} no longer has a run.json, so it cannot continue"
        todo = f"`ralph clean {session.id}` removes what is left of it; then `ralph session resume {session.id}` starts a new run"
        raise UsageError(what, where=str(damaged), todo=todo)
    planned = _plan_session(session.project, request, options, id=session.id)
    return replace(planned, notices=(*planned.notices, *filter(None, [session.request_notice])))


def _plan_session(project: Project, request: SessionRequest, options: RunOptions, id: str) -> NewRun:
    config = load_config(project.settings_dir)
    record = _build_session_record(project, config, request, options, id)
    location = WorkLocation.BRANCH
    if request.classic:
        location = WorkLocation.WORKTREE if options.worktree else WorkLocation.HERE
    return NewRun(
        project=project,
        record=record,
        location=location,
        notices=(*check_start(project, config, record), *_list_check_notices(record)),
        criteria_typed=request.criteria,
        plain_id=True,
    )


def _list_check_notices(record: RunRecord) -> Iterator[str]:
    if not record.checks:
        yield "the session has no checks (--check): Ralph cannot verify the whole session, and relies on the reviewer"


def _build_session_record(
    project: Project, config: Config, request: SessionRequest, options: RunOptions, id: str
) -> RunRecord:
    """What a session is started with, by options and settings."""
    if options.judge:
        todo = "omit --judge; `roles: {reviewer: NAME}` in ralph.yml chooses its agent"
        raise UsageError("the judge of a session is its reviewer", todo=todo)
    refuse_judge(options, has_checks=bool(request.criteria), kind="session")
    if request.classic:
        if options.parallel or request.waves:
            raise UsageError("a classic session runs one task at a time", todo="omit --parallel and --waves")
        refuse_landing(options, on_own_branch=options.worktree)
    elif options.worktree:
        raise UsageError("each task of a session already has its own worktree", todo="omit --worktree")
    seconds = check_seconds(config, options)
    compiled = [compile_criterion(text, seconds, project.work_dir) for text in request.criteria]
    checks = tuple(itertools.chain.from_iterable(one.checks for one in compiled))
    directories = [project.settings_dir / os.path.expanduser(name) for name in config.session.skills]
    skills = tuple(str(directory) for directory in directories if directory.is_dir())
    return build_record(
        workflow="classic" if request.classic else "session",
        task=request.request,
        config=config,
        options=options,
        agents=build_agent_selection(project, config, options),
        id=id,
        criterion=" AND ".join(request.criteria),
        checks=checks,
        loop=LoopRunSettings(inputs=hash_inputs(checks, project.work_dir)),
        session=SessionRunSettings(by_waves=request.waves or config.session.waves, skills=skills),
        project=project,
    )


def refuse_aborted(session: UserSession) -> None:
    """Refuse to continue an aborted session, unless the user said since how to continue."""
    if session.is_aborted:
        todo = f'say how to continue with `ralph session update {session.id} "..."`, or start another session'
        raise UsageError(f"session {session.id} was aborted", todo=todo)


def is_complete(session: UserSession) -> bool:
    """Whether a session is complete, and the user has neither asked for more since nor changed its documents."""
    run, record, root = session.run, session.record, session.project.root
    if run is None or run.outcome() is not Outcome.SUCCESS or session.has_feedback or run.mailbox.list_waiting():
        return False
    records, texts = _read_journal(root, record), read_session_texts(root, record)
    if _plan_repair(root, record, texts, records, time.time()).documents or find_changed_state(
        root, hash_documents(records)
    ):
        return False
    rules = build_session_workflow(record, root)
    decision = rules.decide(rules.load(texts), time.time())
    return isinstance(decision, Stop) and decision.outcome is Outcome.SUCCESS


def refuse_unread_guidance(session: UserSession, guidance: str) -> None:
    """Refuse guidance that no turn would receive, because the session only waits for feedback or an approval."""
    if not guidance:
        return
    rules, id = build_session_workflow(session.record, session.project.root), session.id
    decision = rules.decide(session.state(), time.time())
    if not isinstance(decision, Stop) or session.has_feedback:
        return
    todo = f'give it as feedback: ralph session feedback {id} "..."'
    if decision.outcome is Outcome.AWAITING_APPROVAL:
        todo = f'answer first: ralph session approve {id} --message "...", or ralph session skip {id}'
    raise UsageError(f"no turn of session {id} would receive your guidance: {decision.reason}", todo=todo)


@dataclass(frozen=True)
class Answered:
    """An answer to the question whether to keep what a session learned."""

    run: RunDir
    signal: str
    """Its name in the mailbox."""
    is_early: bool
    """Whether the session has not asked yet. The answer then waits in the mailbox."""


def answer_approval(session: UserSession, answer: Signal) -> Answered:
    """Approve or skip what a session learned, also before it asks."""
    run, state = session.run, session.state()
    if run is None or session.is_classic:
        _refuse_answer(session, "has no question about what it learned")
    is_early = not waits_for_approval(state)
    if is_early and state.state is State.COMPLETE:
        _refuse_answer(session, "does not wait for approval, and will not ask in this iteration")
    # The first planner can still write instructions that ask for an approval.
    is_planned = find_next_step(state) != PLANNING[0]
    if is_early and is_planned and state.limits.approval != "signal":
        what = {"auto": "keeps what it learns without asking", "skip": "keeps nothing of what it learns"}
        path = f"{HOME}/{session.id}.instructions.md"
        how = f"to be asked, write `knowledge.approval: signal` as a bullet into {path}"
        _refuse_answer(session, what[state.limits.approval], how)
    run.refuse_doubtful()
    rules = build_session_workflow(session.record, session.project.root)
    if wrong := "" if is_early else describe_stage(rules.settings, state).find_wrong_items(answer.items):
        raise UsageError(wrong.partition("; ")[0], todo=wrong.partition("; ")[2])
    refuse_without_consent(find_consent_to_resume(session.project, session.record))
    # An answer to a question that was not asked is for this iteration only: the next one learns other things.
    number = state.metadata.iteration if is_early else answer.iteration
    name = run.mailbox.post(replace(answer, iteration=number)).name
    return Answered(run, name, is_early)


def _refuse_answer(session: UserSession, reason: str, todo: str = "") -> NoReturn:
    todo = todo or f"`ralph session show {session.id}` shows its state"
    raise UsageError(f"session {session.id} {reason}", todo=todo)


def repair_session(session: UserSession) -> tuple[str, ...]:
    """Repair the documents of a session by what its other files say. Returns what was done."""
    if session.alive:
        raise LockedError(f"session {session.id} is running", todo=f"`ralph pause {session.id}` first")
    root, record, run, now = session.project.root, session.record, session.run, time.time()
    if run is None:
        done = repair_documents(root, record, now, removes_stray_lines=True)
        return (*done, session.request_notice) if done and session.request_notice else done
    lock = run.lock()
    try:
        # An engine that was killed may have written only some of the documents of its last commit: opening writes the others.
        documents, records = Documents.open(root, run.path)
        rebuilt = documents.rebuild_changed_state(now, rebuild_session_state(record, records))
        return (*rebuilt, *repair_documents(root, record, now, removes_stray_lines=True))
    finally:
        lock.release()


def find_unread_feedback(session: UserSession) -> list[str]:
    """A sentence for each directory with feedback that no role will read, because it lacks its text."""
    if session.is_classic:
        return []
    found = []
    for place in sorted(session.home.glob("iterations/*/feedbacks/*/")):
        if place.is_dir() and not (place / FEEDBACK).is_file():
            path = place.relative_to(session.project.root).as_posix()
            found.append(
                f"{path}/ has no {FEEDBACK}, so Ralph does not read it: write your feedback there, then resume"
            )
    return found


def choose_session_and_text(project: Project, words: tuple[str, ...], noun: str) -> tuple[UserSession, str]:
    """The session and the text, which the noun names, among the arguments of a command: `[SESSION] [TEXT]`."""
    session, text = None, ""
    if words and is_start_of_run_id(words[0]):
        session, *rest = words
    else:
        rest = list(words)
    if len(rest) > 1:
        raise UsageError(f"the {noun} is more than one argument", todo="put it in quotes")
    text = rest[0] if rest else ""
    return find_session(project, session), text


def refuse_attachments(attach: tuple[Path, ...], source: Path | None) -> None:
    """Refuse files that do not exist, that would replace each other, or that are too large for an inbox."""
    read = [source] if source and str(source) != "-" else []
    missing = [str(path) for path in (*attach, *read) if not path.is_file()]
    if missing:
        raise UsageError(f"there is no file {', '.join(missing)}", todo="give paths of files that exist")
    names = [path.name for path in attach]
    if double := next((name for name in names if names.count(name) > 1 or name == FEEDBACK), ""):
        raise UsageError(f"{double} would overwrite another file of that name", todo="rename it")
    if large := next((path.name for path in attach if path.stat().st_size > COPY_LIMIT), ""):
        what = f"{large} is larger than {COPY_LIMIT >> 20} MiB, the limit for attachments"
        raise UsageError(what, todo="attach only the part that matters")


@dataclass(frozen=True)
class FeedbackBatch:
    """Feedback of the user for the next iteration of a session, or an update of a classic one."""

    session: UserSession
    number: int
    stamp: str

    def template(self, attached: list[str]) -> str:
        """What the editor opens with."""
        if self.session.is_classic:
            return ""
        return render_feedback_form(self.number, self.stamp, render_timestamp(time.time()), attached)

    def requirement(self, wanted: str) -> str:
        """One new requirement in the form that it has there."""
        if self.session.is_classic:
            return self.complete(f"- {wanted}", [])
        heading = "## New Requirements\n"
        head, _, tail = self.template([]).partition(heading)
        return f"{head}{heading}- {wanted}\n\n{tail[tail.find('## ') :]}"

    def complete(self, text: str, attached: list[str]) -> str:
        """What the user wrote in any form, in the form in which it is stored."""
        if not self.session.is_classic:
            earlier = [text for path, text in self.session.texts().items() if path.endswith(f"/{FEEDBACK}")]
            return complete_feedback(text, self.number, self.stamp, render_timestamp(time.time()), attached, earlier)
        return complete_update(text, self.number, render_timestamp(time.time()), attached)

    def give(self, text: str, attach: tuple[Path, ...] = ()) -> None:
        """Write the feedback and its attachments. The text comes last, because the engine looks for it."""
        place = self.session.project.root / self.path
        beside = place.with_suffix("") if self.session.is_classic else place.parent
        for path in attach:
            beside.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, beside / path.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, to_bytes(text))

    @property
    def path(self) -> str:
        """Where it is written."""
        if self.session.is_classic:
            return ClassicLayout.of(self.session.id).update(self.number)
        return build_session_workflow(self.session.record, self.session.project.root).settings.layout.feedback(
            self.number, self.stamp
        )


def find_next_batch(session: UserSession) -> FeedbackBatch:
    """The next batch of feedback, or the next update."""
    now = datetime.now()
    if session.is_classic:
        known = ClassicLayout.of(session.id).updates_in(session.texts())
        return FeedbackBatch(session, max(known, default=0) + 1, _render_stamp(now))
    number = session.state().metadata.iteration + 1
    batch = FeedbackBatch(session, number, _render_stamp(now))
    while (session.project.root / batch.path).parent.exists():
        # The user gave other feedback in the same second.
        now += timedelta(seconds=1)
        batch = replace(batch, stamp=_render_stamp(now))
    return batch


def _render_stamp(at: datetime) -> str:
    """A time as the directories of feedback have it."""
    return at.strftime("%Y%m%d-%H%M%S")
