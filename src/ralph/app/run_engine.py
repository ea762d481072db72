"""The engine of a run, from the locks that it takes to the outcome: in this process, or in the background."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ralph.app.build_kernel import build_kernel
from ralph.app.run_watch import ViewRecorder
from ralph.app.start import refuse_links
from ralph.app.traces import open_traces
from ralph.app.views import remember_row
from ralph.app.workflows import find_workflow_kind
from ralph.core.entries import Record
from ralph.core.errors import LockedError, RalphError, StateError, UsageError
from ralph.core.events import Stop
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.redaction import find_secrets
from ralph.core.signals import CTRL_C, Signal, SignalType
from ralph.core.turns import AgentEvent, Turn
from ralph.documents.run_record import RunRecord
from ralph.engine.kernel import Kernel
from ralph.engine.ports import Observer as Observer  # interfaces pass one to `run_engine`
from ralph.git import history, worktree
from ralph.git.command import find_repository
from ralph.notify import Notifier, Service, services_for
from ralph.store import locks
from ralph.store.files import stat_signature
from ralph.store.mailbox import watch_directories
from ralph.store.projects import register_project, run_address
from ralph.store.rejected_trees import open_rejected_trees
from ralph.store.runs import Project, RunDir
from ralph.store.settings import load_config
from ralph.supervisor.client import KeeperClient
from ralph.workspace.cluster_client import ClusterClient
from ralph.workspace.isolation import remove_caches
from ralph.workspace.local import remove_shared_link
from ralph.workspace.turn_files import TurnFiles

SLOW_POLL_SECONDS = 1.0
"""Seconds between two polls of an engine that is woken when signals, questions or answers arrive."""


async def run_engine(
    project: Project,
    run: RunDir,
    observer: Observer,
    notices: tuple[str, ...] = (),
    *,
    granted: Limits | None = None,
    resumes: bool = False,
) -> Stop:
    """Run the engine of a run until its next outcome.

    `granted` are limits that the user changed. `resumes` says that the user continues the run, which ends a pause.
    """
    refuse_links(project.root)
    record = run.record()
    run.refuse_untrusted()
    register_project(project.root)
    notifier, notifier_warning = build_notifier(project, run, record)
    with contextlib.ExitStack() as cleanup:
        traces = open_traces(record)
        if traces:
            cleanup.callback(traces.close)
        lock = run.lock()
        # Callbacks run in reverse order: the row is read when no engine works on the run any more.
        cleanup.callback(remember_row, project, run)
        cleanup.callback(lock.release)
        tree_lock = _open_tree_lock(project, run, record)
        cleanup.callback(tree_lock.release)
        tree_lock.acquire()
        keeper = KeeperClient(run.path, tree_lock.acquire)
        keeper.attach()
        cluster = ClusterClient(record.pool, run.path / "cluster.log") if record.pool.kind == "ray" else None
        try:
            workflow_observers = find_workflow_kind(record.workflow).observers(project.root, run.id)
            tracers = (traces,) if traces else ()
            others = (notifier, ViewRecorder(project, run), *tracers)
            watchers = CompositeObserver((observer, *workflow_observers, *others))
            kernel = build_kernel(
                project,
                run,
                record,
                keeper=keeper,
                cluster=cluster,
                observer=watchers,
                notices=(*notices, notifier_warning, tree_lock.notice),
                granted=granted,
                resumes=resumes,
            )
            stop = await _run_kernel(kernel, run, notifier)
            _clean_up(project, run, record, stop.outcome)
        finally:
            await keeper.close()
            if cluster:
                await cluster.close()
            # Cancelled work may continue in a thread. No other run may use the tree before it has ended.
            await asyncio.get_running_loop().shutdown_default_executor()
        return stop


def _clean_up(project: Project, run: RunDir, record: RunRecord, outcome: Outcome) -> None:
    """Remove what only a run in progress needs."""
    workspace = project.workspace(record)
    _unpin_refs(workspace, run)
    if outcome.succeeded:
        open_rejected_trees(project.root).forget_unjudged(run.id)
    TurnFiles(workspace, find_secrets(os.environ)).remove(run.path)
    with contextlib.suppress(OSError):
        # The sandbox made it, so that no agent can. It stays if there are sessions in it.
        (project.root / ".ralph-sessions").rmdir()
    if outcome is not Outcome.INTERRUPTED:  # its turn may still run
        remove_caches(run.path, is_over=not outcome.resumable)
    if workspace != project.tree(record):
        remove_shared_link(workspace)


async def _run_kernel(kernel: Kernel[Any], run: RunDir, notifier: Notifier) -> Stop:
    """Run the kernel, which is woken by signals and answers, and send the last notifications."""
    loop = asyncio.get_running_loop()
    notifier.notice = lambda text: loop.call_soon_threadsafe(kernel.notice, text)
    try:
        questions = run.questions
        watched = (run.mailbox.inputs, questions.directory, questions.answers)
        with watch_directories(kernel.wake, *watched) as is_watching:
            if is_watching:
                kernel.poll_every(SLOW_POLL_SECONDS)
            return await _run_with_os_signals(kernel)
    finally:
        await asyncio.to_thread(notifier.close)


def _unpin_refs(workspace: Path, run: RunDir) -> None:
    """Let git collect what was pinned for a run that is over, unless something of the user's is missing."""
    ended = run.read_tail_summary().ended
    if not ended or ended.outcome.resumable or ended.missing or not shutil.which("git"):
        return
    if repository := find_repository(workspace):
        history.unpin_objects(repository.git, run.id)


def build_notifier(project: Project, run: RunDir, record: RunRecord) -> tuple[Notifier, str]:
    """The notifier of a run. If the settings are wrong, a new run is refused, and an older one gets a notice."""
    services: tuple[Service, ...] = ()
    notice = ""
    try:
        wanted = load_config(project.find_settings_dir(record.directory)).notify
        services = services_for(((one.url, one.events) for one in wanted), os.environ)
    except RalphError as error:
        if not (run.path / "journal.jsonl").exists():
            raise
        notice = f"Ralph sends no notifications: {error.what.splitlines()[0]}"
    find_page = partial(run_address, project.root, run.id)
    return Notifier(record.id, record.task, services, os.environ, find_page), notice


@dataclass(frozen=True)
class CompositeObserver(Observer):
    """All observers of a run as one."""

    observers: tuple[Observer, ...]

    def on_record(self, record: Record) -> None:
        """Something was journaled."""
        for observer in self.observers:
            observer.on_record(record)

    def on_agent_event(self, turn: Turn, event: AgentEvent) -> None:
        """The agent of a running turn reported something."""
        for observer in self.observers:
            observer.on_agent_event(turn, event)


async def _run_with_os_signals(kernel: Kernel[Any]) -> Stop:
    """Run the kernel with the process's signals.

    Ctrl-C pauses after the turn, a second one interrupts the turn, and SIGTERM and SIGHUP shut the engine down. The run can
    be resumed after each of them: only `ralph abort` is final.
    """
    loop = asyncio.get_running_loop()
    ctrl_c_count = 0

    def interrupt() -> None:
        nonlocal ctrl_c_count
        ctrl_c_count += 1
        kernel.post_directly(Signal(f"{CTRL_C}{os.getpid()}.{ctrl_c_count}", SignalType.PAUSE, now=ctrl_c_count > 1))

    loop.add_signal_handler(signal.SIGINT, interrupt)
    shutdown_signals = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    for number in shutdown_signals:
        loop.add_signal_handler(number, kernel.shut_down, f"the engine received {number.name}")
    try:
        return await kernel.run()
    finally:
        for number in (signal.SIGINT, *shutdown_signals):
            loop.remove_signal_handler(number)


def abort_on_disk(project: Project, run: RunDir, observer: Observer, signal: Signal) -> str:
    """End a run that has no engine: its turn, if one still runs, and its documents, by the same rules.

    Returns the name of the signal in the mailbox. If an ABORT waits there already, that one ends the run.
    """
    run.refuse_untrusted()
    waiting = [one for one in run.mailbox.list_waiting() if one.type is SignalType.ABORT]
    name = waiting[0].name if waiting else run.mailbox.post(signal).name
    asyncio.run(run_engine(project, run, observer))
    return name


@dataclass(frozen=True)
class Detached:
    """An engine in the background."""

    pid: int
    log: Path


def start_detached(
    project: Project, run: RunDir, command: tuple[str, ...] = ("resume",), options: tuple[str, ...] = ()
) -> Detached:
    """Start an engine that outlives this process, and wait until it has started the run."""
    log, journal = run.path / "engine.log", run.path / "journal.jsonl"
    before = stat_signature(journal)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ralph", *command, run.id, "--json", *options],
            cwd=project.root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    deadline = time.monotonic() + 30
    while process.poll() is None and stat_signature(journal) == before and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.poll() is not None and stat_signature(journal) == before:
        raise _read_error(log)
    # A program that lives longer than the engine would otherwise keep it as a zombie.
    threading.Thread(target=process.wait, daemon=True).start()
    return Detached(process.pid, log)


def _read_error(log: Path) -> RalphError:
    """The error that a detached engine printed before it ended."""
    lines = log.read_text(errors="replace").strip().splitlines()
    try:
        printed = json.loads(lines[-1])["error"]
        error = RalphError(printed["what"], where=printed["where"], todo=printed["todo"])
        error.outcome = Outcome(printed["outcome"])
    except (ValueError, KeyError, TypeError, IndexError):
        return RalphError("the engine did not start in the background", where="; ".join(lines[-3:]))
    return error


@dataclass
class TreeLock:
    """The lock of a run on its work tree. The keeper inherits it, so that it holds while agents live."""

    project: Project
    run: str
    path: Path
    lock: locks.Lock | None = None
    notice: str = ""

    def acquire(self) -> int:
        """Acquire the lock, and return its descriptor; -1 if a keeper of this very run still holds it."""
        if self.lock:
            return self.lock.descriptor
        deadline = time.monotonic() + 10.0
        while True:
            taken = locks.acquire(self.path, {"pid": os.getpid(), "run": self.run})
            if isinstance(taken, locks.Lock):
                self.lock = taken
                before = str(taken.before.get("run", ""))
                if before and before != self.run and not self._has_ended(before):
                    self.notice = f"took over the work tree from run {before}, whose engine is gone"
                return taken.descriptor
            holder = str(taken.get("run", ""))
            if holder == self.run:
                return -1
            if not self._has_ended(holder) or time.monotonic() > deadline:
                raise self._refusal(holder)
            time.sleep(0.02)

    def _refusal(self, holder: str) -> LockedError:
        todo = f"wait for it, `ralph abort {holder}`, or give this run its own tree with --worktree"
        what = f"run {holder or 'of another project'} works in this tree"
        with contextlib.suppress(UsageError, StateError):
            if not self.project.run(holder).alive:
                what = f"an agent of run {holder} still works in this tree, but its engine is gone"
                todo = todo.replace("wait for it", f"`ralph resume {holder}` takes it over")
        return LockedError(what, where=str(self.path), todo=todo)

    def _has_ended(self, holder: str) -> bool:
        try:
            return self.project.run(holder).outcome() is not None
        except (UsageError, StateError):
            return False

    def release(self) -> None:
        """Release the tree, and clear what an earlier engine of this run wrote into the lock."""
        if not self.lock:
            with contextlib.suppress(RalphError):
                self.acquire()
        if self.lock:
            self.lock.release()
            self.lock = None


def _open_tree_lock(project: Project, run: RunDir, record: RunRecord) -> TreeLock:
    """The lock of the tree that a run works in. The tree and the workspace in it are created if they are missing."""
    if record.workspace != ".":
        worktree.ensure_worktree(project.root, run.id)
    project.workspace(record).mkdir(parents=True, exist_ok=True)
    lock_directory = run.path if record.on_branch else project.tree(record) / ".ralph"
    return TreeLock(project, run.id, lock_directory / "tree.lock")
