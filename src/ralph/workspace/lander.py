"""Bringing the work of a run to the user when it has succeeded, and saying where it is when it has not."""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

from ralph.core.errors import RalphError
from ralph.core.events import Landed
from ralph.documents.run_record import RunRecord
from ralph.git import landing, worktree
from ralph.git.command import Git
from ralph.git.history import HEADS, contains
from ralph.git.merging import put_right, tip
from ralph.store import locks
from ralph.workspace.merge_queue import MergeQueue


@dataclass(frozen=True)
class Lander:
    """Lands the branch of one run."""

    root: Path
    record: RunRecord
    queue: MergeQueue

    async def land(self, *, succeeded: bool) -> Landed | None:
        """Land what is on the branch of the run as the user wants it; what did not succeed stays there."""
        await self.queue.finish()
        if succeeded:
            with contextlib.suppress(RalphError):
                await asyncio.to_thread(self.queue.workspaces.tidy)
        return await asyncio.to_thread(self._land, succeeded)

    def _land(self, succeeded: bool) -> Landed | None:
        record, git = self.record, Git(self.root)
        if record.workspace != ".":
            self.queue.workspaces.hand_over(f"ralph: {record.task}")
        else:
            put_right(git, record.branch)
        commit = tip(git, record.branch)
        lands = succeeded and record.land != "branch"
        base = git.commit(record.onto or "HEAD")
        if commit == record.base or (not lands and base and contains(git, base, commit)):
            return None
        if not lands:
            return landing.stays(commit, record.branch)
        if record.land == "push":
            return landing.push(self.root, record.branch, commit, record.onto)
        if not record.onto:
            return landing.stays(commit, record.branch, "HEAD was on no branch when the run began")
        return fast_forwarded(self.root, record.id, record.branch, commit, record.onto)


def fast_forwarded(root: Path, run: str, branch: str, commit: str, onto: str) -> Landed:
    """Move the user's branch and their tree to a commit, while no other run works in that tree."""
    taken = locks.take(root / ".ralph" / "tree.lock", {"run": run})
    if not isinstance(taken, locks.Lock):
        return landing.stays(commit, branch, f"run {taken.get('run', 'another')} works in your tree")
    try:
        with contextlib.suppress(RalphError):
            worktree.hand_submodules_over(root, run, commit)
        return landing.fast_forward(root, branch, commit, onto)
    finally:
        taken.release()


def branch_now(root: Path) -> str:
    """The full name of the branch that the user is on; empty where they are on none."""
    head = Git(root).run("symbolic-ref", "-q", "HEAD", ok=(0, 1, 128)).text
    return head if head.startswith(HEADS) else ""
