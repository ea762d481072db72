"""Build the kernel of a run with everything that it acts through: files, git, agents, checks and the clock."""

import asyncio
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.agents import registry
from ralph.agents.adapter import Adapter
from ralph.app.resume import with_user_changes
from ralph.app.sandbox import VARIABLE as SANDBOX_VARIABLE
from ralph.app.sandbox import describe_sandbox, list_sandbox_notices, open_sandbox
from ralph.app.views import find_changes_of_others
from ralph.app.workflows import find_workflow_kind, list_roles
from ralph.core.checks import Verdict
from ralph.core.entries import Record, RunStarted, SnapshotTaken
from ralph.core.errors import RalphError, StateError
from ralph.core.events import ChecksEnded, TurnEnded
from ralph.core.ids import BASELINE, SESSION_WORKFLOWS, WorkKey
from ralph.core.limits import Limits
from ralph.core.redaction import find_secrets
from ralph.documents import run_record
from ralph.documents.run_record import AgentSelection, RunRecord
from ralph.engine.follow_up import AgentChain
from ralph.engine.kernel import Kernel, StartOptions
from ralph.engine.ledger import Ledger, find_records_to_replay
from ralph.engine.ports import Observer, Ports
from ralph.git import worktree
from ralph.git.command import exclude_paths, find_repository, list_own_paths
from ralph.git.commits import Committer
from ralph.git.history import UserRefs
from ralph.git.snapshots import Snapshots
from ralph.store import settings
from ralph.store.documents import Documents, describe_changed_state, digest, find_changed_state
from ralph.store.journal import advise_to_adopt
from ralph.store.rejected_trees import open_rejected_trees
from ralph.store.runs import Project, RunDir
from ralph.supervisor.client import KeeperClient
from ralph.supervisor.sandbox import Sandbox
from ralph.verify.clean_room import CleanRoomSettings
from ralph.verify.runner import CheckRunner, check_environment
from ralph.verify.verifier import VerdictSettings, Verifier
from ralph.workspace.cluster_client import ClusterClient
from ralph.workspace.isolation import Isolation
from ralph.workspace.local import LocalTurns
from ralph.workspace.merger import Lander, Merger
from ralph.workspace.ray import RayTurns
from ralph.workspace.slots import Slots, slots_path
from ralph.workspace.turn_files import TurnFiles
from ralph.workspace.workspaces import Workspaces
from ralph.workspace.worktree_setup import WorktreeSetup, explain_no_room, with_git_ceiling

_CLUSTER_SLOTS = 1000


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
    *,
    keeper: KeeperClient,
    cluster: ClusterClient | None,
    observer: Observer,
    notices: tuple[str, ...],
    granted: Limits | None = None,
    resumes: bool = False,
) -> Kernel[Any]:
    """Read what is on disk, refuse what was changed behind the engine's back, and give the kernel its ports."""
    root = project.root
    kind = find_workflow_kind(record.workflow)

    documents, records = Documents.open(root, run.path)
    documents.watched = kind.watched(record, root)
    documents.sees_deletions = kind.sees_deletions
    repairs = (*_rebuild_changed_state(run, record, documents, records), *kind.repair(root, record, time.time()))
    ledger = Ledger.of(record.limits, records)
    ledger.signals.required_roles, ledger.signals.roles = kind.required_roles, list_roles(record)
    frozen = compute_frozen_hashes(record)
    _refuse_changed(run, ledger, frozen)
    record = with_user_changes(record, ledger)

    work_tree = _open_work_tree(project, run, record)
    _refuse_lost_base(run, records, work_tree.snapshots)
    user_refs = _open_user_refs(run, work_tree, ledger)
    sandbox = open_sandbox(record.sandbox, work_tree.environment, record.agents)
    agents = {label: registry.make_adapter(spec, record.prices) for label, spec in record.agents.by_label.items()}
    warnings = _prepare_tree(root, work_tree, agents, sandbox)
    workspaces = _build_workspaces(
        project,
        run,
        record,
        keeper=keeper,
        cluster=cluster,
        agents=agents,
        work_tree=work_tree,
        records=records,
        sandbox=sandbox,
    )
    workspaces.verifier.user_refs = user_refs

    limits = granted or ledger.limits
    start = StartOptions(
        started_entry=_describe_start(run, records, frozen, sandbox),
        agents=_build_agent_chain(record.agents),
        limits=limits,
        records_to_replay=find_records_to_replay(records),
        notices=tuple(notice for notice in (*notices, *repairs, *warnings) if notice),
        user_resumes=resumes,
        message_template=settings.load_prompt("steering", root),
        may_reopen_aborted=resumes and record.workflow in SESSION_WORKFLOWS,
        later_changes=find_changes_of_others(project, run, since_last_turn=True) if resumes else {},
    )
    ports = _build_ports(
        root, run, record, documents=documents, observer=observer, work_tree=work_tree, workspaces=workspaces
    )
    return Kernel(kind.workflow(record, root, limits), ports, ledger, start)


@dataclass(frozen=True)
class _WorkTree:
    """The tree that a run works in."""

    workspace: Path
    environment: Mapping[str, str]
    """The environment of its agents and checks."""
    snapshots: Snapshots | None


def _open_work_tree(project: Project, run: RunDir, record: RunRecord) -> _WorkTree:
    """Open the user's own tree, or the worktree of the run, which is created if it is gone."""
    environment: Mapping[str, str] = {name: value for name, value in os.environ.items() if name != SANDBOX_VARIABLE}
    copied_paths: Sequence[str] = ()
    if record.workspace != ".":
        own = worktree.ensure_worktree(project.root, run.id)
        environment = with_git_ceiling(environment, own)
        copied_paths = WorktreeSetup(project.root, record.tree_settings).paths(own)
    workspace = project.workspace(record)
    snapshots = None
    if record.snapshots:
        # The worktree of a run has its own copies of submodules, and its work leaves it by commits.
        with_submodules = record.workspace == "." and not record.on_branch
        snapshots = Snapshots.open(
            project.root,
            workspace,
            run.id,
            run.path,
            excluding=copied_paths,
            with_submodules=with_submodules,
            by_engine=True,
        )
    return _WorkTree(workspace, environment, snapshots)


def _prepare_tree(root: Path, work_tree: _WorkTree, agents: Mapping[str, Adapter], sandbox: Sandbox) -> list[str]:
    """Prepare the agents and the tree for a run. Returns what the user should know; some of it is empty."""
    warnings = [agent.prepare(work_tree.environment) for agent in agents.values()]
    if work_tree.snapshots is None:
        warnings.append(_hide_own_files(root, work_tree.workspace))
    if replaced := settings.list_overrides(root):
        warnings.append(f"this project replaces Ralph's prompts: {', '.join(replaced)}")
    return warnings + list_sandbox_notices(sandbox, settings.load_user_settings().sandbox)


def _build_workspaces(
    project: Project,
    run: RunDir,
    record: RunRecord,
    *,
    keeper: KeeperClient,
    cluster: ClusterClient | None,
    agents: Mapping[str, Adapter],
    work_tree: _WorkTree,
    records: list[Record],
    sandbox: Sandbox,
) -> Workspaces:
    """What runs turns and checks, in the run's own workspace and in others."""
    secrets = find_secrets(work_tree.environment)
    shared = tuple(project.root / name for name in record.tree_settings.share)
    isolation = Isolation(sandbox=sandbox, root=project.root, run_dir=run.path, top=project.root, shared=shared).move(
        project.tree(record)
    )
    turns = LocalTurns(
        run_dir=run.path,
        record=record,
        root=project.root,
        workspace=work_tree.workspace,
        files=TurnFiles(work_tree.workspace, secrets),
        keeper=keeper,
        agents=agents,
        templates={name: settings.load_prompt(name, project.root) for name in ("repair", "continue")},
        environment=work_tree.environment,
        hidden=secrets,
        isolation=isolation,
    )
    if cluster:
        turns = RayTurns(**{one.name: getattr(turns, one.name) for one in fields(turns)}, cluster=cluster)
    runner = CheckRunner(
        run_dir=run.path,
        run_id=run.id,
        workspace=work_tree.workspace,
        keeper=keeper,
        environment=check_environment(work_tree.environment),
        secrets=secrets,
        isolate=isolation.isolate_check,
    )
    loop = record.loop
    rules = VerdictSettings(
        confirm=loop.confirm,
        scope=loop.scope,
        inputs=loop.inputs,
        allowed=record.allowed,
        may_change=record.may_change,
        accepted=record.accepted,
        clean_room=CleanRoomSettings(
            is_on=record.clean_room,
            setup=record.room.setup,
            setup_seconds=record.room.setup_seconds,
            keep=record.room.keep,
            services=record.room.services,
        ),
        has_judge=record.require != "proven",
    )
    rejected_trees = open_rejected_trees(project.root)
    verifier = Verifier(
        runner,
        work_tree.snapshots,
        rules,
        *_find_known_verdicts(records),
        rejected_trees=rejected_trees,
        isolation=isolation,
    )
    return Workspaces(turns, verifier, runner, record)


def _build_ports(
    root: Path,
    run: RunDir,
    record: RunRecord,
    *,
    documents: Documents,
    observer: Observer,
    work_tree: _WorkTree,
    workspaces: Workspaces,
) -> Ports:
    """Everything that the kernel acts through."""
    merger = Merger(workspaces, record.base)
    return Ports(
        store=documents,
        turns=workspaces,
        checker=workspaces,
        mailbox=run.mailbox,
        clock=SystemClock(),
        observer=observer,
        snapshots=work_tree.snapshots,
        user_refs=workspaces.verifier.user_refs,
        committer=_build_committer(run, record, work_tree.snapshots),
        merger=merger,
        slots=_build_slots(run, record, root),
        lander=Lander(root, record, merger) if record.branch else None,
        questions=run.questions,
    )


def _build_committer(run: RunDir, record: RunRecord, snapshots: Snapshots | None) -> Committer | None:
    """What commits the work to the user's branch, if the user asked for that."""
    is_asked_for = record.loop.commit or (record.hats is not None and record.hats.checkpoint)
    return Committer(snapshots, run.id) if snapshots and is_asked_for else None


def _hide_own_files(root: Path, workspace: Path) -> str:
    """Keep Ralph's directories out of the user's `git status`. Returns a notice if that is not possible."""
    repository = find_repository(root) if shutil.which("git") else None
    try:
        if repository:
            exclude_paths(repository.common, list_own_paths(repository.top, root, workspace))
    except RalphError as error:
        return f"git lists what Ralph stores here as untracked files: {error.what}"
    return ""


def _build_slots(run: RunDir, record: RunRecord, root: Path) -> Slots:
    kinds = {label: spec.kind for label, spec in record.agents.by_label.items()}
    limits = record.slots if record.branch else replace(record.slots, run=1)
    if record.pool.kind == "ray":
        # The workers limit how many turns run on them. This machine only coordinates.
        limits = replace(limits, machine=limits.machine or _CLUSTER_SLOTS)

    def room() -> str:
        return explain_no_room(root, record.tree_settings.most_bytes)

    slots = Slots(run=run.id, run_lock=run.path / "lock", limits=limits, path=slots_path(), kinds=kinds, room=room)
    try:
        slots.release_all()
    except (RalphError, OSError):
        # If the user's own directories cannot be written, the limits hold for this run alone.
        slots = replace(slots, path=run.path / "slots.json")
    return slots


def _build_agent_chain(selection: AgentSelection) -> AgentChain:
    """The agents by their labels, in the order in which the kernel asks them."""
    roles = {role: tuple(spec.label for spec in order) for role, order in selection.roles.items()}
    return AgentChain(
        chain=tuple(spec.label for spec in selection.chain),
        roles=roles,
        escalation=selection.escalation.label if selection.escalation else "",
        escalate_after=selection.escalate_after,
    )


def _find_known_verdicts(records: list[Record]) -> tuple[Verdict | None, Verdict | None, set[str]]:
    """The verdict before the first turn, the last one, and the checks that were seen to be flaky."""
    ended = [record.entry for record in records if isinstance(record.entry, ChecksEnded)]
    baseline: Verdict | None = None
    flaky: set[str] = set()
    for entry in ended:
        if baseline is None and WorkKey.parse(entry.key) == BASELINE:
            baseline = entry.verdict
        flaky.update(result.title for result in entry.verdict.results if result.flaky)
    last = ended[-1].verdict if ended else None
    return baseline, last, flaky


def compute_frozen_hashes(record: RunRecord) -> dict[str, str]:
    """The hashes of what must not change while a run is in progress."""
    return {
        "run.json": digest(run_record.render_record(record).encode()),
        "criterion": digest(record.criterion.encode()),
        "checks": digest("\n".join(check.title for check in record.checks).encode()),
    }


def _refuse_changed(run: RunDir, ledger: Ledger, frozen: dict[str, str]) -> None:
    if ledger.started is None:
        return
    changed = [name for name, value in frozen.items() if ledger.started.frozen.get(name) != value]
    if changed:
        raise StateError(
            f"these settings of the run changed after it started: {', '.join(changed)}",
            where=str(run.path / "run.json"),
            todo="undo that edit, or start a new run with the settings you want",
        )


def _rebuild_changed_state(
    run: RunDir, record: RunRecord, documents: Documents, records: list[Record]
) -> tuple[str, ...]:
    """Rebuild the engine's own state if something else changed it while no engine ran, or refuse the run."""
    changed = find_changed_state(documents.root, documents.hashes)
    if not changed:
        return ()
    doubt = describe_changed_state(changed[0])
    rebuilt = find_workflow_kind(record.workflow).rebuild_state(record, records)
    if not rebuilt:
        raise StateError(
            f"run {run.id} cannot be trusted: {doubt}",
            where=str(documents.root / changed[0]),
            todo=advise_to_adopt(run.id),
        )
    return documents.rebuild_changed_state(time.time(), rebuilt)


def _open_user_refs(run: RunDir, work_tree: _WorkTree, ledger: Ledger) -> UserRefs | None:
    """The user's branches, tags and stash, if there is a repository around the workspace."""
    repository = find_repository(work_tree.workspace) if shutil.which("git") else None
    if repository is None:
        return None
    before = ledger.refs
    if before is None and work_tree.snapshots and ledger.snapshots:
        before = work_tree.snapshots.refs()  # an older version kept the record there alone
    return UserRefs(
        repository, run.id, before, submodules=work_tree.snapshots.submodules if work_tree.snapshots else ()
    )


def _refuse_lost_base(run: RunDir, records: list[Record], snapshots: Snapshots | None) -> None:
    """Refuse to continue without the first snapshot. The guards compare with it, so no verdict would hold."""
    journaled = [sha for record in records if (sha := _find_snapshot(record))]
    if not journaled or snapshots is None:
        return
    first = journaled[0]
    if snapshots.latest() is None:
        snapshots.bring_back(reversed(journaled), first)
    if snapshots.base() != first and first not in (entry.sha for entry in snapshots.log()):
        todo = f"`git update-ref refs/ralph/{run.id} {first}` restores the first one"
        if not snapshots.has(first):
            todo = "they cannot be restored; look at the changes with `git status` and `git diff`, then start a new run"
        raise StateError(
            "something other than Ralph changed or removed the snapshots of the run",
            where=f"refs/ralph/{run.id}",
            todo=todo,
        )


def _find_snapshot(record: Record) -> str:
    """The snapshot that a record names, of the run's own tree or of a task's; empty if it names none."""
    match record.entry:
        case SnapshotTaken(snapshot=snapshot):
            return snapshot
        case TurnEnded(result=result) if result.change:
            return result.change.snapshot
        case _:
            return ""


def _describe_start(run: RunDir, records: list[Record], frozen: dict[str, str], sandbox: Sandbox) -> RunStarted:
    """The first journal entry of this engine."""
    was_started = any(isinstance(record.entry, RunStarted) for record in records)
    return RunStarted(
        pid=os.getpid(),
        version=__version__,
        run=run.id,
        frozen=frozen,
        resumed=was_started,
        sandbox=describe_sandbox(sandbox),
    )
