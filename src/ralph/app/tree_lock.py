"""The claim of a run on its work tree."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from ralph.core.errors import LockedError, RalphError, StateError, UsageError
from ralph.store import locks
from ralph.store.runs import Project


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
        deadline = time.monotonic() + 10.0
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
                raise self._refusal(holder)
            time.sleep(0.02)

    def _refusal(self, holder: str) -> LockedError:
        todo = f"wait for it, `ralph abort {holder}`, or give this run a tree of its own with --worktree"
        what = f"run {holder or 'of another project'} works in this tree"
        with contextlib.suppress(UsageError, StateError):
            if not self.project.run(holder).alive:
                what = f"an agent of run {holder} is still at work in this tree, without an engine"
                todo = todo.replace("wait for it", f"`ralph resume {holder}` takes it over")
        return LockedError(what, where=str(self.path), todo=todo)

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
