"""Where the parts are put together: a run is created, and driven by a kernel with the real world around it."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.agents import registry
from ralph.agents.keeper_client import Keeper
from ralph.core.checks import Verdict
from ralph.core.entries import Record, RunStarted, SnapshotTaken
from ralph.core.errors import LockedError, RalphError, StateError, UsageError
from ralph.core.events import ChecksEnded, Landed, Stop
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.redaction import secrets_in
from ralph.core.signals import Signal, SignalType
from ralph.core.stream import AgentEvent
from ralph.core.turns import Turn
from ralph.documents import run_record
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.run_record import Crew, RunRecord, TreeSettings
from ralph.engine.kernel import Kernel, Start
from ralph.engine.ledger import Ledger
from ralph.engine.ports import Observer, Workflow
from ralph.engine.roster import Roster
from ralph.engine.under_way import World
from ralph.git import merging, worktree
from ralph.git.command import Git, GitError
from ralph.git.commits import Committer
from ralph.git.history import contains
from ralph.git.repository import OWN, hide, own_paths, repository
from ralph.git.snapshots import Snapshots
from ralph.memory.keeping import LoopMemory
from ralph.notify import Notifier, Service, services_for
from ralph.pool.desk import Desk
from ralph.pool.lander import Lander, branch_now, fast_forwarded
from ralph.pool.local import LocalTurns
from ralph.pool.merge_queue import MergeQueue
from ralph.pool.slots import Slots, usual_place
from ralph.pool.workspaces import Checks, Workspaces, fenced, furniture_of, room_for
from ralph.sessions import SESSION_KINDS, classic_workflow, mend, session_workflow, watched
from ralph.store import locks, prompts
from ralph.store.documents import Documents, digest
from ralph.store.runs import Project, RunDir
from ralph.store.settings import load_config
from ralph.verify.runner import CheckRunner, check_environment
from ralph.verify.verifier import BASELINE, Rules, Verifier
from ralph.workflows.hats.rules import Hats
from ralph.workflows.loop.kinds import TaskType
from ralph.workflows.loop.prompting import NAMES
from ralph.workflows.loop.rules import Loop
from ralph.workflows.loop.state import Fixed, OnStuck


class SystemClock:
    """The real time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        await asyncio.sleep(seconds)


class Ground(StrEnum):
    """Where a run works."""

    HERE = "here"
    """In the user's own tree."""
    WORKTREE = "worktree"
    """In a worktree of its own."""
    BRANCH = "branch"
    """Its tasks in a worktree each; their work comes together on a branch."""


def create_run(
    project: Project, record: RunRecord, ground: Ground = Ground.HERE, *, plain_id: bool = False
) -> tuple[RunDir, tuple[str, ...]]:
    """Claim an id, make a branch or a worktree where one is asked for, and write down what the run is started with.

    A record that has an id already is of a session that others began: its run gets the same.
    """
    _refuse_links(project.root)
    run = project.claim_id(record.id) if record.id else project.claim(datetime.now(), plain=plain_id)
    record = replace(record, id=run.id)
    notices: tuple[str, ...] = ()
    try:
        if ground is Ground.BRANCH and not worktree.possible(project.root):
            ground, notices = Ground.HERE, ("one turn at a time: worktrees need a git repository with a commit",)
        if ground is not Ground.HERE:
            _refuse_tracked(project.root, record.trees)
            record = replace(record, onto=branch_now(project.root))
        if ground is Ground.WORKTREE:
            tree = worktree.create(project.root, run.id)
            notices = tree.notices
            base = Git(tree.path).run("rev-parse", "HEAD").text
            workspace = str(tree.workspace.relative_to(project.root))
            record = replace(record, workspace=workspace, branch=tree.branch, base=base)
        elif ground is Ground.BRANCH:
            branch, base, notices = worktree.create_branch(project.root, run.id)
            record = replace(record, branch=branch, base=base)
        project.create(run, record)
    except BaseException:
        project.remove(run)
        raise
    return run, notices


def _refuse_tracked(root: Path, trees: TreeSettings) -> None:
    """What git tracks is in every worktree already; as furniture, changes to it would be lost."""
    for setting, names in (("copy", trees.copy), ("share", trees.share)):
        for name in names:
            if Git(root).adding(GIT_LITERAL_PATHSPECS="1").run("ls-files", "-z", "--", name).out:
                todo = f"take it out of `workspace.{setting}`: tracked files are in every worktree"
                raise UsageError(f"{name} is tracked by git", where="ralph.yml", todo=todo)


def loop_workflow(record: RunRecord, root: Path, limits: Limits | None = None) -> Loop:
    """The rules of a loop run, with the limits that hold now."""
    limits, asked = limits or record.limits, record.loop
    fixed = Fixed(
        record.id,
        record.criterion,
        limits.iterations,
        record.created_at,
        limits.active_seconds,
        TaskType(asked.type),
        asked.scope,
        OnStuck(asked.on_stuck),
        asked.reflector,
        asked.commit,
        asked.recalled,
    )
    return Loop(record.task, record.checks, {name: prompts.load(name, root) for name in NAMES}, fixed)


def hats_workflow(record: RunRecord, root: Path, limits: Limits | None = None) -> Hats:
    """The rules of a run of hats."""
    return Hats(record.id, record.task, record.hats or HatsSettings(), record.checks, prompts.load("hats", root))


WORKFLOWS: dict[str, Callable[[RunRecord, Path, Limits], Workflow[Any]]] = {
    "loop": loop_workflow,
    "session": session_workflow,
    "classic": classic_workflow,
    "hats": hats_workflow,
}
"""The rules of a run, by the name of its workflow."""


QUORUMS = {"session": ("planner", "questioner", "executor", "reviewer")}
"""The roles that must have what a person says to all before that is filed, by workflow; elsewhere one will do."""


@dataclass
class TreeLock:
    """The claim of a run on its work tree, handed on to the keeper so that it holds while agents live."""

    project: Project
    run: str
    path: Path
    held: locks.Lock | None = None
    notice: str = ""

    def take(self) -> int:
        """The lock's descriptor; -1 where a keeper of this very run still holds it."""
        if self.held:
            return self.held.descriptor
        deadline = time.monotonic() + 3.0
        while True:
            taken = locks.take(self.path, {"pid": os.getpid(), "run": self.run})
            if isinstance(taken, locks.Lock):
                self.held = taken
                before = str(taken.before.get("run", ""))
                if before and before != self.run and not self._is_leaving(before):
                    self.notice = f"took the work tree over from run {before}, whose engine is gone"
                return taken.descriptor
            holder = str(taken.get("run", ""))
            if holder == self.run:
                return -1
            if not self._is_leaving(holder) or time.monotonic() > deadline:
                raise LockedError(
                    f"run {holder} works in this tree" if holder else "another run works in this tree",
                    where=str(self.path),
                    todo="wait for it, `ralph abort` it, or give this run a tree of its own with --worktree",
                )
            time.sleep(0.02)

    def _is_leaving(self, holder: str) -> bool:
        try:
            return self.project.run(holder).outcome() is not None
        except (UsageError, StateError):
            return False

    def release(self) -> None:
        """Give the tree back; what an earlier engine of this run wrote into the lock is taken out as well."""
        if not self.held:
            with contextlib.suppress(RalphError):
                self.take()
        if self.held:
            self.held.release()
            self.held = None


async def drive(
    project: Project,
    run: RunDir,
    observer: Observer,
    notices: tuple[str, ...] = (),
    *,
    granted: Limits | None = None,
    resumes: bool = False,
) -> Stop:
    """Be the engine of a run until its next outcome; `granted` are limits that a person set anew.

    `resumes` says that a person asks it to go on: a pause is over then.
    """
    _refuse_links(project.root)
    record = run.record()
    notifier, silence = notifier_for(project, run, record)
    if record.workspace != ".":
        worktree.create(project.root, run.id)
    workspace = project.workspace(record)
    lock = run.lock()
    shared = record.branch and record.workspace == "."
    tree = TreeLock(project, run.id, (run.path if shared else workspace / ".ralph") / "tree.lock")
    try:
        tree.take()
        keeper = Keeper(run.path, tree.take)
        keeper.attach()
        try:
            memory = (LoopMemory(project.root, run.id),) if record.workflow == "loop" else ()
            watchers = Watchers((observer, *memory, notifier))
            kernel = build_kernel(
                project, run, record, keeper, watchers, (*notices, silence, tree.notice), granted, resumes=resumes
            )
            loop = asyncio.get_running_loop()
            notifier.notice = lambda text: loop.call_soon_threadsafe(kernel.notice, text)
            try:
                stop = await _with_signals(kernel)
            finally:
                await asyncio.to_thread(notifier.close)
            Desk(workspace, secrets_in(os.environ)).take_away(run.path)
        finally:
            await keeper.close()
        return stop
    finally:
        tree.release()
        lock.release()


def notifier_for(project: Project, run: RunDir, record: RunRecord) -> tuple[Notifier, str]:
    """Who tells people that are away what happens in a run; where a run under way can have none, a notice says why."""
    services: tuple[Service, ...] = ()
    notice = ""
    try:
        wanted = load_config(project.root).notify
        services = services_for(((one.url, one.events) for one in wanted), os.environ)
    except RalphError as error:
        if not (run.path / "journal.jsonl").exists():
            raise
        notice = f"nobody is notified: {error.what.splitlines()[0]}"
    return Notifier(record.id, record.task, services, os.environ), notice


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
    root, workspace = project.root, project.workspace(record)
    documents, records = Documents.open(root, run.path)
    documents.watched = hats_workflow(record, root).watched if record.hats else watched(record)
    if record.workflow in SESSION_KINDS:
        notices = (*notices, *mend(root, record, time.time()))
    ledger = Ledger.of(record.limits, records)
    ledger.words.quorum = QUORUMS.get(record.workflow, ())
    frozen = frozen_hashes(record)
    _refuse_changed(run, ledger, frozen)
    own = worktree.create(root, run.id) if record.workspace != "." else None
    environment = fenced(os.environ, own) if own else dict(os.environ)
    secrets = secrets_in(environment)
    agents = {label: registry.make(spec, record.prices) for label, spec in record.crew.everyone.items()}
    notices += tuple(agent.ready(environment) for agent in agents.values())
    turns = LocalTurns(
        run.path,
        record,
        root,
        workspace,
        Desk(workspace, secrets),
        keeper,
        agents,
        {name: prompts.load(name, root) for name in ("repair", "continue")},
        environment,
        secrets,
    )
    runner = CheckRunner(run.path, run.id, workspace, keeper, check_environment(environment), secrets)
    furniture = furniture_of(own, record.trees) if own else ()
    snapshots = Snapshots.open(root, workspace, run.id, run.path, but=furniture) if record.snapshots else None
    _refuse_lost_base(run, records, snapshots)
    if snapshots is None and shutil.which("git") and (place := repository(root)):
        hide(place.common, own_paths(place.top, root, workspace))
    asked = record.loop
    rules = Rules(asked.confirm, asked.scope, asked.inputs, record.allowed)
    verifier = Verifier(runner, snapshots, rules, *_known_verdicts(records))
    workspaces = Workspaces(turns, verifier, runner, record)
    queue = MergeQueue(workspaces, record.base)
    world = World(
        documents,
        workspaces,
        Checks(workspaces),
        run.mailbox,
        SystemClock(),
        observer,
        snapshots,
        Committer(snapshots, run.id)
        if snapshots and (asked.commit or (record.hats and record.hats.checkpoint))
        else None,
        queue,
        _slots(run, record, root),
        Lander(root, record, queue) if record.branch else None,
        run.questions,
    )
    limits = granted or ledger.extended_limits(record.limits, time.time())
    started = RunStarted(os.getpid(), __version__, run.id, frozen, resumed=_was_started(records))
    unwritten = since_documents(records)
    told = tuple(n for n in notices if n)
    steering = prompts.load("steering", root)
    start = Start(started, _roster(record.crew), limits, unwritten, told, resumes, steering)
    return Kernel(WORKFLOWS[record.workflow](record, root, limits), world, ledger, start)


def _slots(run: RunDir, record: RunRecord, root: Path) -> Slots:
    kinds = {label: spec.kind for label, spec in record.crew.everyone.items()}
    limits = record.slots if record.branch else replace(record.slots, run=1)

    def room() -> str:
        return room_for(root, record.trees.most_bytes)

    slots = Slots(run.id, run.path / "lock", limits, usual_place(), kinds, room)
    try:
        slots.leave()
    except (RalphError, OSError):
        # Where the user's own directories cannot be written, the limits hold for this run alone.
        slots = replace(slots, place=run.path / "slots.json")
    return slots


def _roster(crew: Crew) -> Roster:
    """The crew by its labels, for the kernel."""
    roles = {role: tuple(spec.label for spec in order) for role, order in crew.roles.items()}
    helper = crew.escalation.label if crew.escalation else ""
    return Roster(tuple(spec.label for spec in crew.chain), roles, helper, crew.escalate_after)


def _known_verdicts(records: list[Record]) -> tuple[Verdict | None, Verdict | None, set[str]]:
    """The verdict before the first turn, the last one, and the checks that were seen to be flaky."""
    ended = [record.entry for record in records if isinstance(record.entry, ChecksEnded)]
    baseline = next((entry.verdict for entry in ended if entry.key == BASELINE), None)
    flaky = {result.title for entry in ended for result in entry.verdict.results if result.flaky}
    return baseline, ended[-1].verdict if ended else None, flaky


@dataclass(frozen=True)
class Watchers:
    """All who look on."""

    observers: tuple[Observer, ...]

    def recorded(self, record: Record) -> None:
        """Something was journaled."""
        for observer in self.observers:
            observer.recorded(record)

    def told(self, turn: Turn, event: AgentEvent) -> None:
        """The agent of a running turn told something."""
        for observer in self.observers:
            observer.told(turn, event)


def since_documents(records: list[Record]) -> tuple[Record, ...]:
    """The records after the last one that wrote documents."""
    last = max((i for i, record in enumerate(records) if record.documents), default=-1)
    return tuple(records[last + 1 :])


def frozen_hashes(record: RunRecord) -> dict[str, str]:
    """The hashes of what must not change while a run is under way."""
    return {
        "run.json": digest(run_record.render(record).encode()),
        "criterion": digest(record.criterion.encode()),
        "checks": digest("\n".join(check.title for check in record.checks).encode()),
    }


def _refuse_links(root: Path) -> None:
    """State that is written through a link would be written somewhere else."""
    for own in OWN:
        place = root / own
        if not place.resolve().is_relative_to(root.resolve()):
            raise StateError("a symbolic link leads out of the project", where=str(place), todo="remove the link")


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


async def _with_signals(kernel: Kernel[Any]) -> Stop:
    """Run the kernel with the process's signals: Ctrl-C pauses, a second one aborts, TERM leaves."""
    loop = asyncio.get_running_loop()
    pressed = 0

    def interrupt() -> None:
        nonlocal pressed
        pressed += 1
        kind = SignalType.PAUSE if pressed == 1 else SignalType.ABORT
        kernel.ask(Signal(f"ctrl-c.{os.getpid()}.{pressed}", kind, "Ctrl-C"))

    loop.add_signal_handler(signal.SIGINT, interrupt)
    leaving = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    for number in leaving:
        loop.add_signal_handler(number, kernel.ask_leave, f"the engine was asked to go ({number.name})")
    try:
        return await kernel.run()
    finally:
        for number in (signal.SIGINT, *leaving):
            loop.remove_signal_handler(number)


async def land_run(project: Project, run: RunDir) -> tuple[Landed, Verdict | None]:
    """Bring the work of a run that is over onto the branch that the user is on; what came of the checks on the way.

    Where that branch has moved, the two are merged aside, and the checks must pass on the merged tree.
    """
    record, outcome = run.record(), run.outcome()
    onto, name = branch_now(project.root), record.branch
    if not name:
        raise UsageError(f"run {run.id} worked in your own tree", todo="there is nothing to land")
    if not (outcome and outcome.succeeded):
        told = outcome or "under way"
        raise UsageError(
            f"run {run.id} has not succeeded ({told})", todo=f"`git merge {name}` if you want it all the same"
        )
    if not onto:
        raise UsageError("HEAD is on no branch", where=str(project.root), todo="`git switch` to the branch you mean")
    lock = run.lock()
    try:
        git = Git(project.root)
        commit, verdict = merging.tip(git, name), None
        here = git.run("rev-parse", "HEAD").text
        if not (contains(git, commit, here) or contains(git, here, commit)):
            commit, verdict = await _merged_aside(project, run, record, here, commit)
            if verdict is not None and not verdict.passed:
                told = f"the checks do not pass on the merged tree: the work stays on the branch {name}"
                return Landed(commit, name, notice=told), verdict
        landed = await asyncio.to_thread(fast_forwarded, project.root, run.id, name, commit, onto)
        documents, _ = Documents.open(project.root, run.path)
        documents.commit(time.time(), landed, {})
        return landed, verdict
    finally:
        lock.release()


async def _merged_aside(
    project: Project, run: RunDir, record: RunRecord, here: str, work: str
) -> tuple[str, Verdict | None]:
    """The merge of a run's work with the user's branch, and what the checks say of it."""
    scratch = await asyncio.to_thread(worktree.create_scratch, project.root, run.id, here)
    message = f"Merge {record.branch}\n\n{record.task}\n\nRalph-Run: {run.id}\n"
    candidate = await asyncio.to_thread(merging.attempt, scratch, here, work, message)
    if not candidate.commit:
        files = ", ".join(candidate.conflicts[:10])
        raise GitError(
            f"the work of run {run.id} conflicts with your branch in {files}",
            where=record.branch,
            todo=f"`git merge {record.branch}` and resolve it; nothing was changed yet",
        )
    keeper = Keeper(run.path, lambda: -1)
    try:
        environment = dict(os.environ)
        workspace = scratch.workspace
        runner = CheckRunner(
            run.path, run.id, workspace, keeper, check_environment(environment), secrets_in(environment)
        )
        turns = LocalTurns(run.path, record, project.root, workspace, Desk(workspace, ()), keeper, {}, {}, environment)
        workspaces = Workspaces(turns, Verifier(runner, None, Rules()), runner, record)
        await workspaces.furnish(scratch, runner)
        return candidate.commit, await runner.run("land", record.checks)
    finally:
        await keeper.close()
        await asyncio.to_thread(worktree.remove, scratch)


def abort_on_disk(project: Project, run: RunDir, observer: Observer, message: str) -> Outcome:
    """End a run that has no engine: its turn, if one still runs, and its documents, by the same rules."""
    run.mailbox.post(Signal("", SignalType.ABORT, message))
    return asyncio.run(drive(project, run, observer)).outcome
