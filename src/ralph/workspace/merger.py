"""Merges the work of a worktree onto the branch of the run, if the checks pass on the merged tree.

The queue of what waits is in `workflows/merge_rules.py`. The kernel asks for one merge at a time. If it asks again because an
engine was killed, the merger finds the first merge. The branch of the run moves in one step, and only to a tree on which the
checks passed.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ralph.core.checks import Verdict
from ralph.core.errors import RalphError
from ralph.core.events import Landed, Merge, MergeEnded, MergeResult, Promote
from ralph.documents.run_record import RunRecord
from ralph.documents.session import knowledge
from ralph.git import merge
from ralph.git import worktree as git_worktree
from ralph.git.command import Git
from ralph.git.history import HEADS, contains
from ralph.git.merge import Candidate, read_branch_tip, repair_branch
from ralph.store import locks
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.workspace.workspaces import OpenWorktree, Workspaces
from ralph.workspace.worktree_setup import SetupError

TASK_TRAILER = "Ralph-Task"
"""The trailer that identifies the merge of a task."""


def write_promoted(tree: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    """Write knowledge files into a tree, merged with those that are there; return a description of each conflict."""
    conflicts: list[str] = []
    by_directory: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        directory, _, name = path.rpartition("/")
        by_directory.setdefault(directory, {})[name] = text
    for directory, sources in sorted(by_directory.items()):
        home = tree / directory
        home.mkdir(parents=True, exist_ok=True)
        targets = {path.name: to_text(read_limited(path)) for path in home.glob("*.md") if path.is_file()}
        merged = knowledge.merge_knowledge(sources, targets)
        for name, text in merged.files.items():
            write_atomic(home / name, to_bytes(text))
        conflicts += merged.conflicts
    return tuple(conflicts)


@dataclass
class Merger:
    """Merges the worktrees of one run."""

    workspaces: Workspaces
    base: str
    """The commit that the branch of the run began at."""
    _scratch_ready_at: str = ""
    """The commit on which the scratch worktree was last set up."""
    _closing: "list[asyncio.Task[None]]" = field(default_factory=list)

    async def merge(self, request: Merge) -> MergeEnded:
        """Merge a worktree, once. It is then removed in the background."""
        if not self.workspaces.has_worktrees:
            return await self._check_in_place(request)
        left_ref = await asyncio.to_thread(merge.repair_branch, self._git, self.workspaces.record.branch)
        merged = await self._find_merge(request) or await self._merge_worktree(request)
        if left_ref:
            notice = f"another process moved the branch of the run: Ralph restored it, and kept the other commits as {left_ref}"
            merged = replace(merged, notice=f"{merged.notice}; {notice}" if merged.notice else notice)
        if merged.is_merged:
            self._closing.append(asyncio.create_task(self._close(request.worktree)))
        return merged

    async def promote(self, request: Promote) -> MergeEnded:
        """Write documents into a worktree, merged with those that are there, and merge that."""
        merge_request = Merge(request.key, request.worktree, request.message)
        if self.workspaces.has_worktrees and await self._find_merge(merge_request):
            return await self.merge(merge_request)
        worktree = await self.workspaces.open(request.worktree) if self.workspaces.has_worktrees else None
        tree = worktree.tree.workspace if worktree else self.workspaces.root
        conflicts = await asyncio.to_thread(write_promoted, tree, request.files)
        if worktree:
            await asyncio.to_thread(self.workspaces.save, worktree, request.message)
        return replace(await self.merge(merge_request), notice="; ".join(conflicts))

    async def finish(self) -> None:
        """Wait until merged worktrees are removed, including those that a killed engine left."""
        await asyncio.gather(*self._closing)
        self._closing.clear()
        for name in self.workspaces.records.names() if self.workspaces.has_worktrees else ():
            if await self._find_merge_commit(name):
                await self._close(name)

    async def _close(self, worktree: str) -> None:
        """Remove a worktree; one that cannot be removed stays, and `ralph worktrees` says why."""
        with contextlib.suppress(RalphError, OSError):
            await asyncio.to_thread(self.workspaces.close, worktree)

    async def _check_in_place(self, request: Merge) -> MergeEnded:
        """Without worktrees, the work is already in the one tree. The checks still have to pass."""
        merged = MergeEnded(request.key, request.worktree, MergeResult.MERGED)
        if not request.checks:
            return merged
        verdict = await self.workspaces.runner.run(f"merge-{request.key}", request.checks)
        return replace(merged, end=MergeResult.MERGED if verdict.passed else MergeResult.CHECKS_FAILED, verdict=verdict)

    async def _find_merge(self, request: Merge) -> MergeEnded | None:
        """The merge that an earlier engine made before it was killed; None if there is none."""
        commit = await self._find_merge_commit(request.worktree)
        if not commit:
            return None
        branch = f"ralph/{self.workspaces.record.id}/{request.worktree}"
        snapshot = await asyncio.to_thread(self.workspaces.update_run_worktree)
        return MergeEnded(
            key=request.key,
            worktree=request.worktree,
            end=MergeResult.MERGED,
            branch=branch,
            commit=commit,
            snapshot=snapshot,
        )

    async def _find_merge_commit(self, worktree: str) -> str:
        """The merge of a worktree; empty if it is not merged."""
        position = await self._read_position()
        return await asyncio.to_thread(merge.find_merge, self._git, self.base, position, TASK_TRAILER, worktree)

    async def _read_position(self) -> str:
        return await asyncio.to_thread(merge.read_position, self._git, self.workspaces.record.branch)

    async def _merge_worktree(self, request: Merge) -> MergeEnded:
        branch = f"ralph/{self.workspaces.record.id}/{request.worktree}"
        end_merge = partial(MergeEnded, request.key, request.worktree, branch=branch)
        try:
            worktree = await self.workspaces.open(request.worktree)
        except SetupError as error:
            return end_merge(end=MergeResult.CHECKS_FAILED, notice=error.what)
        undecided, lost = await asyncio.to_thread(self.workspaces.finish_resolution, worktree)
        if undecided:
            return end_merge(end=MergeResult.CONFLICT, files=undecided)
        if lost:
            return end_merge(end=MergeResult.REVERTS, files=lost)
        work = await asyncio.to_thread(merge.read_branch_tip, self._git, branch)
        onto = await self._read_position()
        if work == worktree.record.base:
            return end_merge(end=MergeResult.NOTHING, commit=onto)
        return await self._try_merge(request, worktree, onto, work)

    async def _try_merge(self, request: Merge, worktree: OpenWorktree, onto: str, work: str) -> MergeEnded:
        """Try the merge in the scratch worktree; only a tree on which the checks pass moves the branch of the run."""
        scratch, runner = await self.workspaces.open_scratch(onto)
        text = f"{request.message.strip() or 'a task'}\n\n{TASK_TRAILER}: {request.worktree}\n"
        candidate: Candidate = await asyncio.to_thread(merge.try_merge, scratch, onto, work, text, worktree.tree)
        end_merge = partial(MergeEnded, request.key, request.worktree, branch=worktree.record.branch)
        fail_merge = partial(end_merge, commit=onto, others_merged=onto != worktree.record.run_branch_at)
        if not candidate.commit:
            return fail_merge(end=MergeResult.CONFLICT, files=candidate.conflicts)
        verdict: Verdict | None = None
        if request.checks:
            try:
                await asyncio.to_thread(self.workspaces.worktree_setup.copy_files, scratch)
                setup = self.workspaces.worktree_setup
                self._scratch_ready_at = await setup.set_up(scratch, runner, "merge", self._scratch_ready_at)
            except SetupError as error:
                return fail_merge(end=MergeResult.CHECKS_FAILED, notice=error.what)
            # The guards judged the work in its own worktree. Here only the checks run, on the merged tree.
            verdict = await runner.run(f"merge-{request.key}", request.checks)
            if not verdict.passed:
                return fail_merge(end=MergeResult.CHECKS_FAILED, verdict=verdict)
        snapshot = await asyncio.to_thread(self.workspaces.advance, onto, candidate.commit)
        return end_merge(end=MergeResult.MERGED, commit=candidate.commit, verdict=verdict, snapshot=snapshot)

    @property
    def _git(self) -> Git:
        return Git(self.workspaces.root)


@dataclass(frozen=True)
class Lander:
    """Lands the branch of one run."""

    root: Path
    record: RunRecord
    merger: Merger

    async def land(self, *, succeeded: bool) -> Landed | None:
        """Land the branch of the run as the user wants it. Without success, the work stays on the branch."""
        await self.merger.finish()
        if succeeded:
            with contextlib.suppress(RalphError):
                await asyncio.to_thread(self.merger.workspaces.remove_unused)
        return await asyncio.to_thread(self._land, succeeded)

    def _land(self, succeeded: bool) -> Landed | None:
        record, git = self.record, Git(self.root)
        if record.workspace != ".":
            self.merger.workspaces.commit_run_worktree(f"ralph: {record.task}")
        else:
            repair_branch(git, record.branch)
        commit = read_branch_tip(git, record.branch)
        lands = succeeded and record.land != "branch"
        base = git.resolve_commit(record.onto or "HEAD")
        if commit == record.base or (not lands and base and contains(git, base, commit)):
            return None
        if not lands:
            return merge.report_unlanded(commit, record.branch)
        if record.land == "push":
            return merge.push(self.root, record.branch, commit, record.onto)
        if not record.onto:
            return merge.report_unlanded(commit, record.branch, "HEAD was on no branch when the run began")
        return fast_forward_user_branch(self.root, record.id, record.branch, commit, record.onto)


def fast_forward_user_branch(root: Path, run: str, branch: str, commit: str, onto: str) -> Landed:
    """Move the user's branch and their tree to a commit, while no other run works in that tree."""
    taken = locks.acquire(root / ".ralph" / "tree.lock", {"run": run})
    if not isinstance(taken, locks.Lock):
        return merge.report_unlanded(commit, branch, f"run {taken.get('run', 'another')} works in your tree")
    try:
        with contextlib.suppress(RalphError):
            git_worktree.give_submodules_to_user(root, run, commit)
        return merge.fast_forward(root, branch, commit, onto)
    finally:
        taken.release()


def read_current_branch(root: Path) -> str:
    """The full name of the user's current branch; empty if HEAD is detached."""
    head = Git(root).run("symbolic-ref", "-q", "HEAD", ok=(0, 1, 128)).text
    return head if head.startswith(HEADS) else ""
