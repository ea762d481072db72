"""A kernel with the real world around it."""

import asyncio
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.agents import registry
from ralph.agents.adapter import Adapter
from ralph.app.change_agents import with_changed_crew
from ralph.app.workflows import SESSIONS, kind_of, roles_of
from ralph.core.checks import Verdict
from ralph.core.entries import Record, RunStarted, SnapshotTaken
from ralph.core.errors import RalphError, StateError
from ralph.core.events import ChecksEnded
from ralph.core.limits import Limits
from ralph.core.redaction import secrets_in
from ralph.core.work_keys import BASELINE, WorkKey
from ralph.documents import run_record
from ralph.documents.run_record import Crew, RunRecord
from ralph.engine.kernel import Kernel, Start
from ralph.engine.ledger import Ledger, since_documents
from ralph.engine.ports import Observer
from ralph.engine.turn_outcome import AgentChain
from ralph.engine.under_way import World
from ralph.git import worktree
from ralph.git.commits import Committer
from ralph.git.repository import hide, own_paths, repository
from ralph.git.snapshots import Snapshots
from ralph.store import prompts
from ralph.store.documents import Documents, digest
from ralph.store.held_trees import held_trees
from ralph.store.runs import Project, RunDir
from ralph.supervisor.client import Keeper
from ralph.verify.runner import CheckRunner, check_environment
from ralph.verify.verifier import Rules, Verifier
from ralph.workspace.lander import Lander
from ralph.workspace.local import LocalTurns
from ralph.workspace.merge_queue import MergeQueue
from ralph.workspace.slots import Slots, usual_place
from ralph.workspace.turn_files import TurnFiles
from ralph.workspace.workspace_records import room_for
from ralph.workspace.workspaces import Workspaces
from ralph.workspace.worktree_setup import WorktreeSetup, fenced


class SystemClock:
    """The real time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        await asyncio.sleep(seconds)


def build_kernel(
    project: Project,
    run: RunDir,
    record: RunRecord,
    keeper: Keeper,
    observer: Observer,
    notices: tuple[str, ...],
    granted: Limits | None = None,
    *,
    resumes: bool = False,
) -> Kernel[Any]:
    """A kernel with the real world around it."""
    root = project.root
    documents, records = Documents.open(root, run.path)
    kind = kind_of(record.workflow)
    documents.watched = kind.watched(record, root)
    notices += kind.mend(root, record, time.time())
    ledger = Ledger.of(record.limits, records)
    ledger.signals.quorum, ledger.signals.roles = kind.quorum, roles_of(record)
    frozen = frozen_hashes(record)
    _refuse_changed(run, ledger, frozen)
    record = with_changed_crew(record, ledger)
    own = worktree.ensure_worktree(root, run.id) if record.workspace != "." else None
    environment = fenced(os.environ, own) if own else dict(os.environ)
    agents = {label: registry.make(spec, record.prices) for label, spec in record.crew.everyone.items()}
    notices += tuple(agent.ready(environment) for agent in agents.values())
    copied_paths = WorktreeSetup(root, record.trees).paths(own) if own else ()
    workspace = project.workspace(record)
    snapshots = Snapshots.open(root, workspace, run.id, run.path, but=copied_paths) if record.snapshots else None
    _refuse_lost_base(run, records, snapshots)
    if snapshots is None:
        notices += (_hidden(root, workspace),)
    workspaces = _workspaces(project, run, record, keeper, agents, environment, snapshots, records)
    queue = MergeQueue(workspaces, record.base)
    commits = record.loop.commit or (record.hats and record.hats.checkpoint)
    world = World(
        store=documents,
        turns=workspaces,
        checker=workspaces,
        mailbox=run.mailbox,
        clock=SystemClock(),
        observer=observer,
        snapshots=snapshots,
        committer=Committer(snapshots, run.id) if snapshots and commits else None,
        merger=queue,
        slots=_slots(run, record, root),
        lander=Lander(root, record, queue) if record.branch else None,
        questions=run.questions,
    )
    limits = granted or ledger.extended_limits(record.limits)
    started = RunStarted(os.getpid(), __version__, run.id, frozen, resumed=_was_started(records))
    told, steering = tuple(filter(None, notices)), prompts.load("steering", root)
    unwritten, reopens = since_documents(records), resumes and record.workflow in SESSIONS
    start = Start(
        entry=started,
        agents=_agent_chain(record.crew),
        limits=limits,
        unwritten=unwritten,
        notices=told,
        resumes=resumes,
        steering=steering,
        reopens=reopens,
    )
    return Kernel(kind.workflow(record, root, limits), world, ledger, start)


def _workspaces(
    project: Project,
    run: RunDir,
    record: RunRecord,
    keeper: Keeper,
    agents: Mapping[str, Adapter],
    environment: Mapping[str, str],
    snapshots: Snapshots | None,
    records: list[Record],
) -> Workspaces:
    """Who runs turns and checks, in the run's own workspace and in others."""
    root, workspace, secrets = project.root, project.workspace(record), secrets_in(environment)
    texts = {name: prompts.load(name, root) for name in ("repair", "continue")}
    files = TurnFiles(workspace, secrets)
    turns = LocalTurns(
        run_dir=run.path,
        record=record,
        root=root,
        workspace=workspace,
        files=files,
        keeper=keeper,
        agents=agents,
        templates=texts,
        environment=environment,
        hidden=secrets,
    )
    runner = CheckRunner(
        run_dir=run.path,
        run_id=run.id,
        workspace=workspace,
        keeper=keeper,
        environment=check_environment(environment),
        secrets=secrets,
    )
    asked = record.loop
    rules = Rules(asked.confirm, asked.scope, asked.inputs, record.allowed)
    verifier = Verifier(runner, snapshots, rules, *_known_verdicts(records), held_trees=held_trees(root))
    return Workspaces(turns, verifier, runner, record)


def _hidden(root: Path, workspace: Path) -> str:
    """Keep Ralph's directories out of the user's `git status`; where that cannot be, they are told."""
    place = repository(root) if shutil.which("git") else None
    try:
        if place:
            hide(place.common, own_paths(place.top, root, workspace))
    except RalphError as error:
        return f"git shows what Ralph keeps here as untracked files: {error.what}"
    return ""


def _slots(run: RunDir, record: RunRecord, root: Path) -> Slots:
    kinds = {label: spec.kind for label, spec in record.crew.everyone.items()}
    limits = record.slots if record.branch else replace(record.slots, run=1)

    def room() -> str:
        return room_for(root, record.trees.most_bytes)

    slots = Slots(run=run.id, run_lock=run.path / "lock", limits=limits, place=usual_place(), kinds=kinds, room=room)
    try:
        slots.leave()
    except (RalphError, OSError):
        # Where the user's own directories cannot be written, the limits hold for this run alone.
        slots = replace(slots, place=run.path / "slots.json")
    return slots


def _agent_chain(crew: Crew) -> AgentChain:
    """The crew by its labels, for the kernel."""
    roles = {role: tuple(spec.label for spec in order) for role, order in crew.roles.items()}
    helper = crew.escalation.label if crew.escalation else ""
    return AgentChain(tuple(spec.label for spec in crew.chain), roles, helper, crew.escalate_after)


def _known_verdicts(records: list[Record]) -> tuple[Verdict | None, Verdict | None, set[str]]:
    """The verdict before the first turn, the last one, and the checks that were seen to be flaky."""
    ended = [record.entry for record in records if isinstance(record.entry, ChecksEnded)]
    baseline = next((entry.verdict for entry in ended if WorkKey.parse(entry.key) == BASELINE), None)
    flaky = {result.title for entry in ended for result in entry.verdict.results if result.flaky}
    return baseline, ended[-1].verdict if ended else None, flaky


def frozen_hashes(record: RunRecord) -> dict[str, str]:
    """The hashes of what must not change while a run is under way."""
    return {
        "run.json": digest(run_record.render(record).encode()),
        "criterion": digest(record.criterion.encode()),
        "checks": digest("\n".join(check.title for check in record.checks).encode()),
    }


def _refuse_changed(run: RunDir, ledger: Ledger, frozen: dict[str, str]) -> None:
    if ledger.started is None:
        return
    changed = [name for name, value in frozen.items() if ledger.started.frozen.get(name) != value]
    if changed:
        raise StateError(
            f"what the run was started with has been changed since: {', '.join(changed)}",
            where=str(run.path / "run.json"),
            todo="undo that edit, or start a new run with the settings you want",
        )


def _refuse_lost_base(run: RunDir, records: list[Record], snapshots: Snapshots | None) -> None:
    """What was there before the run is what the guards compare with: without it no verdict would hold."""
    known = next((record.entry.snapshot for record in records if isinstance(record.entry, SnapshotTaken)), None)
    if known and snapshots and snapshots.base() != known and known not in (entry.sha for entry in snapshots.log()):
        raise StateError(
            "the snapshots of the run were changed or removed by somebody else",
            where=f"refs/ralph/{run.id}",
            todo=f"`git update-ref refs/ralph/{run.id} {known}` brings the first one back",
        )


def _was_started(records: list[Record]) -> bool:
    return any(isinstance(record.entry, RunStarted) for record in records)
