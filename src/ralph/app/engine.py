"""The engine of a run, from the locks that it takes to the outcome."""

import asyncio
import contextlib
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph.app.create_run import refuse_links
from ralph.app.kernel import build_kernel
from ralph.app.tree_lock import TreeLock
from ralph.app.workflows import kind_of
from ralph.core.entries import Record
from ralph.core.errors import RalphError
from ralph.core.events import Stop
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.redaction import secrets_in
from ralph.core.signals import Signal, SignalType
from ralph.core.stream import AgentEvent
from ralph.core.turns import Turn
from ralph.documents.run_record import RunRecord
from ralph.engine.kernel import Kernel
from ralph.engine.ports import Observer
from ralph.git import history, worktree
from ralph.git.repository import repository
from ralph.notify import Notifier, Service, services_for
from ralph.store import watch_directories
from ralph.store.runs import Project, RunDir
from ralph.store.settings import load_config
from ralph.supervisor.client import Keeper
from ralph.workspace.turn_files import TurnFiles

UNHURRIED = 1.0
"""Seconds between two looks around of an engine that is rung for when signals, questions or answers come."""


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
    refuse_links(project.root)
    record = run.record()
    run.refuse_claimed()
    notifier, silence = notifier_for(project, run, record)
    with contextlib.ExitStack() as held:
        held.callback(run.lock().release)
        if record.workspace != ".":
            worktree.ensure_worktree(project.root, run.id)
        workspace = project.workspace(record)
        place = run.path if record.on_branch else workspace / ".ralph"
        tree = TreeLock(project, run.id, place / "tree.lock")
        held.callback(tree.release)
        tree.take()
        keeper = Keeper(run.path, tree.take)
        keeper.attach()
        try:
            learners = kind_of(record.workflow).observers(project.root, run.id)
            watchers = Watchers((observer, *learners, notifier))
            kernel = build_kernel(
                project, run, record, keeper, watchers, (*notices, silence, tree.notice), granted, resumes=resumes
            )
            loop = asyncio.get_running_loop()
            notifier.notice = lambda text: loop.call_soon_threadsafe(kernel.notice, text)
            try:
                with watch_directories.watch(kernel.look, run.mailbox.inputs, run.questions.directory) as rings:
                    if rings:
                        kernel.look_every(UNHURRIED)
                    stop = await _with_signals(kernel)
            finally:
                await asyncio.to_thread(notifier.close)
            _let_go_of_refs(workspace, run)
            TurnFiles(workspace, secrets_in(os.environ)).remove(run.path)
        finally:
            await keeper.close()
            # Work that was cancelled may go on in a thread: nobody else may come into the tree before it has ended.
            await asyncio.get_running_loop().shutdown_default_executor()
        return stop


def _let_go_of_refs(workspace: Path, run: RunDir) -> None:
    """Let git collect what was pinned for a run that is over, unless something of the user's is missing."""
    ended = run.tail_summary().ended
    if not ended or ended.outcome.resumable or ended.missing or not shutil.which("git"):
        return
    if place := repository(workspace):
        history.unpin(place.git, run.id)


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


@dataclass(frozen=True)
class Watchers(Observer):
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


def abort_on_disk(project: Project, run: RunDir, observer: Observer, message: str) -> Outcome:
    """End a run that has no engine: its turn, if one still runs, and its documents, by the same rules."""
    run.refuse_claimed()
    run.mailbox.post(Signal("", SignalType.ABORT, message))
    return asyncio.run(drive(project, run, observer)).outcome
