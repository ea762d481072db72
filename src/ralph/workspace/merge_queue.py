"""The merge queue: what was done in a workspace comes onto the branch of the run if the checks pass on the merged tree.

The kernel asks for one merge at a time. Whatever is asked twice, because an engine was killed in between, finds what was
done the first time: the branch of the run moves in one step, and only to a tree that was seen to be right.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ralph.core.checks import Verdict
from ralph.core.errors import RalphError
from ralph.core.events import Merge, Merged, MergeEnd, Promote
from ralph.documents.session import knowledge
from ralph.git import merging
from ralph.git.command import Git
from ralph.git.merging import Candidate
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.workspace.workspaces import Site, Workspaces
from ralph.workspace.worktree_setup import SetupError

TASK = "Ralph-Task"
"""The trailer by which the merge of a task is known."""


def promoted(place: Path, files: Mapping[str, str]) -> tuple[str, ...]:
    """Write what was learned into a tree, directory by directory, merged with what is there; the conflicts, in words."""
    conflicts: list[str] = []
    for directory in sorted({path.rpartition("/")[0] for path in files}):
        sources = {
            path.rpartition("/")[2]: text for path, text in files.items() if path.rpartition("/")[0] == directory
        }
        home = place / directory
        home.mkdir(parents=True, exist_ok=True)
        targets = {path.name: to_text(read_limited(path)) for path in home.glob("*.md") if path.is_file()}
        merged = knowledge.merge(sources, targets)
        for name, text in merged.files.items():
            write_atomic(home / name, to_bytes(text))
        conflicts += merged.conflicts
    return tuple(conflicts)


@dataclass
class MergeQueue:
    """Merges the workspaces of one run."""

    workspaces: Workspaces
    base: str
    """The commit that the branch of the run began at."""
    _set_up: str = ""
    """The commit on which the scratch worktree was last set up."""
    _closing: "list[asyncio.Task[None]]" = field(default_factory=list)

    async def merge(self, decision: Merge) -> Merged:
        """Merge a workspace, once; what is merged needs its worktree no more, and nobody waits until that is gone."""
        if not self.workspaces.apart:
            return await self._in_place(decision)
        kept = await asyncio.to_thread(merging.put_right, self._git, self.workspaces.record.branch)
        merged = await self._found(decision) or await self._merged(decision)
        if kept:
            told = f"somebody else moved the branch of the run: it was put right, and what was on it is {kept}"
            merged = replace(merged, notice="; ".join(filter(None, (merged.notice, told))))
        if merged.is_in:
            self._closing.append(asyncio.create_task(self._close(decision.workspace)))
        return merged

    async def promote(self, decision: Promote) -> Merged:
        """Write documents into a workspace, merged with those that are there, and merge that."""
        merge = Merge(decision.key, decision.workspace, decision.message)
        if self.workspaces.apart and await self._found(merge):
            return await self.merge(merge)
        site = await self.workspaces.open(decision.workspace) if self.workspaces.apart else None
        place = site.tree.workspace if site else self.workspaces.root
        told = await asyncio.to_thread(promoted, place, decision.files)
        if site:
            await asyncio.to_thread(self.workspaces.save, site, decision.message)
        return replace(await self.merge(merge), notice="; ".join(told))

    async def finish(self) -> None:
        """Wait until the worktrees of what was merged are gone, also where an earlier engine did not live to see it."""
        await asyncio.gather(*self._closing)
        self._closing.clear()
        for name in self.workspaces.notes.names() if self.workspaces.apart else ():
            if await self._commit_of(name):
                await self._close(name)

    async def _close(self, workspace: str) -> None:
        """Remove a worktree; one that cannot be removed stays, and `ralph worktrees` says why."""
        with contextlib.suppress(RalphError, OSError):
            await asyncio.to_thread(self.workspaces.close, workspace)

    async def _in_place(self, decision: Merge) -> Merged:
        """Where all work in one tree, it is merged already; the checks have to pass all the same."""
        merged = Merged(decision.key, decision.workspace, MergeEnd.MERGED)
        if not decision.checks:
            return merged
        verdict = await self.workspaces.runner.run(f"merge-{decision.key}", decision.checks)
        return replace(merged, end=MergeEnd.MERGED if verdict.passed else MergeEnd.RED, verdict=verdict)

    async def _found(self, decision: Merge) -> Merged | None:
        """The merge that an earlier engine made and did not live to tell of."""
        commit = await self._commit_of(decision.workspace)
        if not commit:
            return None
        branch = f"ralph/{self.workspaces.record.id}/{decision.workspace}"
        snapshot = await asyncio.to_thread(self.workspaces.take_over)
        return Merged(decision.key, decision.workspace, MergeEnd.MERGED, branch, commit, snapshot=snapshot)

    async def _commit_of(self, workspace: str) -> str:
        """The merge of a workspace; empty where it is not merged."""
        stand = await self._stand()
        return await asyncio.to_thread(merging.merge_of, self._git, self.base, stand, TASK, workspace)

    async def _stand(self) -> str:
        return await asyncio.to_thread(merging.stand, self._git, self.workspaces.record.branch)

    async def _merged(self, decision: Merge) -> Merged:
        branch = f"ralph/{self.workspaces.record.id}/{decision.workspace}"
        nothing = Merged(decision.key, decision.workspace, MergeEnd.NOTHING, branch)
        try:
            site = await self.workspaces.open(decision.workspace)
        except SetupError as error:
            return replace(nothing, end=MergeEnd.RED, notice=error.what)
        undecided, lost = await asyncio.to_thread(self.workspaces.settle, site)
        if undecided:
            return replace(nothing, end=MergeEnd.CONFLICT, files=undecided)
        if lost:
            return replace(nothing, end=MergeEnd.REVERTS, files=lost)
        work, onto = await asyncio.to_thread(merging.tip, self._git, branch), await self._stand()
        if work == site.noted.base:
            return replace(nothing, commit=onto)
        return await self._tried(decision, site, onto, work)

    async def _tried(self, decision: Merge, site: Site, onto: str, work: str) -> Merged:
        """Try the merge in the scratch worktree; only a tree on which the checks pass moves the branch of the run."""
        scratch, runner = await self.workspaces.scratch(onto)
        text = f"{decision.message.strip() or 'a task'}\n\n{TASK}: {decision.workspace}\n"
        candidate: Candidate = await asyncio.to_thread(merging.attempt, scratch, onto, work, text, site.tree)
        moved = onto != site.noted.taken_in
        failed = Merged(decision.key, decision.workspace, MergeEnd.RED, site.noted.branch, onto, moved=moved)
        if not candidate.commit:
            return replace(failed, end=MergeEnd.CONFLICT, files=candidate.conflicts)
        verdict: Verdict | None = None
        if decision.checks:
            try:
                await asyncio.to_thread(self.workspaces.worktree_setup.copy_files, scratch)
                self._set_up = await self.workspaces.worktree_setup.set_up(scratch, runner, "merge", self._set_up)
            except SetupError as error:
                return replace(failed, notice=error.what)
            verdict = await runner.run(f"merge-{decision.key}", decision.checks)
            if not verdict.passed:
                return replace(failed, verdict=verdict)
        snapshot = await asyncio.to_thread(self.workspaces.advance, onto, candidate.commit)
        merged = replace(failed, end=MergeEnd.MERGED, commit=candidate.commit, verdict=verdict, moved=False)
        return replace(merged, snapshot=snapshot)

    @property
    def _git(self) -> Git:
        return Git(self.workspaces.root)
