"""The workspaces of a run: its own, and a worktree for each task that runs beside others.

A worktree starts from where the branch of the run stands, is furnished as the project wants it, and is known by what is
written of it in the run's directory: an engine that was killed finds it again, half made or whole.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ralph.core.checks import Check, CheckResult, CheckStatus, Red, Verdict
from ralph.core.stream import AgentEvent
from ralph.core.turns import Change, Turn, TurnEnd, TurnRequest, TurnResult
from ralph.documents.run_record import RunRecord
from ralph.engine.turn_outcome import ENDED_BY
from ralph.git import merging, saving, worktree
from ralph.git.command import Git
from ralph.git.history import contains
from ralph.git.merging import Brought
from ralph.git.repository import repository
from ralph.git.snapshots import Snapshots
from ralph.git.worktree import Removal, Worktree
from ralph.verify.runner import CheckRunner
from ralph.verify.verifier import Verifier
from ralph.workspace.local import LocalTurns
from ralph.workspace.turn_files import TurnFiles
from ralph.workspace.workspace_records import OWN, WorkspaceRecord, WorkspaceRecords
from ralph.workspace.worktree_setup import SetupError, WorktreeSetup, fenced

MERGED_DIFF, TASK_DIFF = "merged.diff", "task.diff"
"""Papers for whoever resolves a conflict: what was merged meanwhile, and what the task changed."""
_DIFF_CHARS = 200_000
LOOK = "look/"
"""Workspaces that begin so follow the branch of the run: nobody works in them."""


@dataclass
class Site:
    """One worktree, and who works in it."""

    tree: Worktree
    turns: LocalTurns
    verifier: Verifier
    noted: WorkspaceRecord


@dataclass
class Workspaces:
    """Runs turns and checks in the workspace that they are asked for in."""

    turns: LocalTurns
    """In the run's own workspace."""
    verifier: Verifier
    runner: CheckRunner
    record: RunRecord
    notes: WorkspaceRecords = field(init=False)
    worktree_setup: WorktreeSetup = field(init=False)
    _sites: dict[str, Site] = field(default_factory=dict)
    _opening: dict[str, asyncio.Lock] = field(default_factory=dict)
    _asked_to_end: dict[int, str] = field(default_factory=dict)
    """Turns that were, and why: while its workspace is made, a turn has no keeper yet that would hear it."""
    _own_ready: bool = False
    _scratch: Worktree | None = None
    _in_step: threading.Lock = field(default_factory=threading.Lock)
    """Held while the run's own worktree and the branch of the run are brought to the same."""

    def __post_init__(self) -> None:
        self.notes = WorkspaceRecords(self.turns.run_dir / "workspaces")
        self.worktree_setup = WorktreeSetup(self.turns.root, self.record.trees)

    @property
    def root(self) -> Path:
        """The root of the project."""
        return self.turns.root

    @property
    def apart(self) -> bool:
        """Whether tasks have worktrees of their own; without git there is one tree for all, one turn after the other."""
        return bool(self.record.branch)

    async def _furnish_own(self) -> None:
        """Make the worktree of the whole run ready, where it has one; an error where that cannot be done."""
        if self.record.workspace == "." or self._own_ready:
            return
        self._own_ready = True
        tree, noted = self._own()
        self.worktree_setup.copy_files(tree)
        ready = await self.worktree_setup.set_up(tree, self.runner, OWN, noted.ready)
        if ready != noted.ready:
            self.notes.write(OWN, replace(noted, ready=ready, size=self.worktree_setup.size(tree)))

    async def run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        """Run a turn where it belongs; in a worktree, what it did is committed to the branch of that."""
        name, label = turn.request.workspace, f"turn {turn.number} ({turn.request.role})"
        if not name:
            await self._furnish_own()
            return self._unbegun(turn) or await self.turns.run(turn, watch)
        if not self.apart:
            result = await self.turns.run(turn, watch)
            return replace(result, change=self.verifier.snapshots.take(label) if self.verifier.snapshots else None)
        began = time.time()
        try:
            site = await self.open(name, turn.request)
        except SetupError as error:
            return TurnResult(TurnEnd.FAILED, began, time.time(), error=str(error))
        if ended := self._unbegun(turn):
            return ended
        result = await site.turns.run(self._with_papers(turn, site), watch)
        if turn.request.reads_only:
            await asyncio.to_thread(self._thrown_away, site, turn.request.key)
            return result
        return replace(result, change=await asyncio.to_thread(self._saved, site, label))

    async def stop(self, turn: Turn, reason: str) -> None:
        """End a turn."""
        self._asked_to_end[turn.number] = reason
        await self.turns.stop(turn, reason)

    def _unbegun(self, turn: Turn) -> TurnResult | None:
        """The end of a turn that was asked to end before it began."""
        if turn.number not in self._asked_to_end or self.turns.has_begun(turn):
            return None
        end, now = ENDED_BY[self._asked_to_end[turn.number]], time.time()
        return TurnResult(end, now, now, error="it was ended before it began")

    async def tell(self, turn: Turn, name: str, text: str) -> bool:
        """Leave words for the agent of a turn."""
        return await self.turns.tell(turn, name, text)

    async def check(self, key: str, checks: Sequence[Check], workspace: str = "", red: Red | None = None) -> Verdict:
        """Run checks where they belong."""
        if not workspace or not self.apart:
            await self._furnish_own()
            return await self.verifier.run(key, checks, red)
        try:
            site = await self.open(workspace)
        except SetupError as error:
            failed = CheckResult("the set-up commands pass", CheckStatus.FAILED, 0.0, reason=error.what)
            return Verdict((failed,))
        verdict = await site.verifier.run(key, checks, red)
        # Worktrees that are made later are compared with it.
        self.verifier.baseline = self.verifier.baseline or site.verifier.baseline
        return verdict

    async def open(self, name: str, request: TurnRequest | None = None) -> Site:
        """The worktree of that name, made and furnished where it is not yet; for a resolver, with what was merged."""
        async with self._opening.setdefault(name, asyncio.Lock()):
            site = self._sites.get(name)
            if site is None or not site.tree.path.is_dir():
                site = self._sites[name] = await asyncio.to_thread(self._made, name)
            if name.startswith(LOOK):
                await asyncio.to_thread(self._follow, site)
            await self._furnish(site)
            if request and request.brings_in and site.noted.brought_for != request.key:
                await asyncio.to_thread(self._bring_in, site, request.key)
            return site

    def save(self, site: Site, message: str) -> str:
        """Commit all that is in a worktree to its branch; the commit."""
        brought = site.noted.brought.commit if site.noted.brought else ""
        out = self.worktree_setup.paths(site.tree)
        known = (site.noted.base, site.noted.taken_in)
        return saving.save(site.tree, message, leaving_out=out, brought_in=brought, known=known)

    def settle(self, site: Site) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """See whether what was brought in is resolved, and commit it if so.

        Else the files that still conflict, and those in which the work of others would be taken back.
        """
        brought = site.noted.brought
        if brought is None:
            return (), ()
        if undecided := merging.undecided(site.tree, brought):
            return undecided, ()
        tree = saving.tree_of(site.tree, self.worktree_setup.paths(site.tree))
        if lost := merging.taken_back(site.tree, tree, brought):
            return (), lost
        self.save(site, f"ralph: {site.tree.name} with what was merged meanwhile")
        self._note(site, replace(site.noted, brought=None))
        return (), ()

    def close(self, name: str) -> Removal:
        """Remove a worktree whose work is on the branch of the run; otherwise it stays.

        What is not committed was written by checks, or by somebody after the last turn: it is kept under a ref.
        """
        self._sites.pop(name, None)
        place = repository(self.root)
        if place is None:
            return Removal("there is no git repository any more")
        tree = worktree.of_task(place, self.root, self.record.id, name)
        if tree.path.exists():
            saving.keep_aside(tree, self._left(name, "end"), self.worktree_setup.paths(tree))
            saving.put_back(tree, "HEAD")
        removal = worktree.remove(tree, self.record.branch)
        if removal:
            Git(self.root).run("update-ref", "-d", self._ref(name))
            self.notes.forget(name)
        return removal

    def tidy(self) -> None:
        """Remove the worktrees in which nobody has worked: that for merges, and those of people who only looked."""
        for tree in worktree.find_worktrees(self.root):
            if tree.run == self.record.id and tree.name.startswith(LOOK):
                self.close(tree.name)
            elif tree.run == self.record.id and tree.name == "merge":
                worktree.remove(tree)
                self._scratch = None

    async def scratch(self, onto: str) -> tuple[Worktree, CheckRunner]:
        """The worktree in which merges are tried, made where it is not yet, and who runs checks in it."""
        if self._scratch is None:
            self._scratch = await asyncio.to_thread(worktree.create_scratch, self.root, self.record.id, onto)
        return self._scratch, self._runner(self._scratch)

    def _runner(self, tree: Worktree) -> CheckRunner:
        """Who runs checks in a worktree."""
        return replace(self.runner, workspace=tree.workspace, environment=fenced(self.runner.environment, tree))

    def advance(self, onto: str, commit: str) -> str:
        """Move the branch of the run, and its own worktree with it where it has one; the snapshot of that."""
        with self._in_step:
            merging.advance(Git(self.root), self.record.branch, onto, commit)
            return self._take_over()

    def take_over(self) -> str:
        """Bring the run's own worktree to where the merges have come to; the snapshot of it."""
        with self._in_step:
            return self._take_over()

    def _take_over(self) -> str:
        if self.record.workspace == ".":
            return ""
        tree, noted = self._own()
        stand = merging.stand(Git(self.root), self.record.branch)
        if noted.taken_in != stand:
            saving.put_back(tree, stand)
            self.worktree_setup.copy_files(tree)
            self.notes.write(OWN, replace(noted, taken_in=stand))
        return self.verifier.snapshots.take("what was done side by side").snapshot if self.verifier.snapshots else ""

    def hand_over(self, message: str) -> None:
        """Commit what is in the run's own worktree, where it has one: others who work beside it begin with that.

        Where a kill came between a merge and this worktree, it takes that over first: it has nothing of its own then.
        """
        if self.record.workspace == ".":
            return
        with self._in_step:
            tree, noted = self._own()
            git, ref = Git(self.root), worktree.stand_ref(self.record.branch)
            stand = git.commit(ref)
            if stand and not (noted.taken_in and contains(git, noted.taken_in, stand)):
                self._take_over()
                return
            known = [one for one in (self.record.base, stand) if one]
            tip = saving.save(tree, message, leaving_out=self.worktree_setup.paths(tree), known=known)
            # WorkspaceRecord first: of a stand that is ahead of what is noted, a merge is what it has and the tree has not.
            self.notes.write(OWN, replace(noted, taken_in=tip))
            if tip != stand:
                git.run("update-ref", ref, tip, stand)

    def _own(self) -> tuple[Worktree, WorkspaceRecord]:
        """The run's own worktree, and what is written down of it."""
        tree = worktree.ensure_worktree(self.root, self.record.id)
        return tree, self.notes.read(OWN) or WorkspaceRecord(tree.branch, self.record.base)

    def _made(self, name: str) -> Site:
        noted = self.notes.read(name)
        if noted is None:
            self.hand_over(f"ralph: before work side by side\n\n{self.record.task}")
            start = merging.stand(Git(self.root), self.record.branch)
            noted = WorkspaceRecord(f"ralph/{self.record.id}/{name}", start)
            self.notes.write(name, noted)
        tree = worktree.create_for_task(self.root, self.record.id, name, noted.base)
        self.worktree_setup.copy_files(tree)
        home, but = self.notes.home(name), self.worktree_setup.paths(tree)
        snapshots = Snapshots.open(self.root, tree.workspace, self.record.id, home, ref=self._ref(name), but=but)
        if snapshots.latest() is None:
            snapshots.begin(noted.base)
        verifier = replace(self.verifier, runner=self._runner(tree), snapshots=snapshots, last=None, flaky=set())
        files, environment = TurnFiles(tree.workspace, self.turns.hidden), fenced(self.turns.environment, tree)
        turns = replace(self.turns, workspace=tree.workspace, files=files, environment=environment)
        return Site(tree, turns, verifier, noted)

    async def _furnish(self, site: Site) -> None:
        ready = await self.worktree_setup.set_up(site.tree, site.verifier.runner, site.tree.name, site.noted.ready)
        if ready != site.noted.ready:
            size = await asyncio.to_thread(self.worktree_setup.size, site.tree)
            self._note(site, replace(site.noted, ready=ready, size=size))

    def _bring_in(self, site: Site, key: str) -> None:
        """Merge the branch of the run into a worktree, where the conflicts are left to be resolved.

        Where an earlier resolver left some, the next one goes on from there; where it took back what others did, it is
        all done again, and what it left is kept under a ref.
        """
        brought = site.noted.brought
        if brought and brought.merged and merging.undecided(site.tree, brought):
            self._note(site, replace(site.noted, brought_for=key))
            return
        if site.noted.brought:
            own, left = site.noted.brought.own, self._left(site.tree.name, key)
            saving.keep_aside(site.tree, left, self.worktree_setup.paths(site.tree), since=own)
            saving.put_back(site.tree, own)
            self.worktree_setup.copy_files(site.tree)
            self._note(site, replace(site.noted, brought=None))
        own = self.save(site, f"ralph: {site.tree.name} before what was merged meanwhile")
        commit = merging.stand(Git(self.root), self.record.branch)
        # Written down before the tree changes: of a merge that a kill leaves in the middle, nothing may be saved.
        self._note(site, replace(site.noted, brought=Brought(commit, own), taken_in=commit))
        brought = merging.bring_in(site.tree, commit, self.worktree_setup.paths(site.tree))
        if site.verifier.snapshots:
            # From here on the work of the task is what differs from the branch of the run.
            site.verifier.snapshots.begin(commit)
        self._note(site, replace(site.noted, brought=brought, brought_for=key))

    def _with_papers(self, turn: Turn, site: Site) -> Turn:
        """The turn of a resolver with both sides in its inbox."""
        brought = site.noted.brought
        if not turn.request.brings_in or brought is None:
            return turn
        git = Git(self.root)
        base = git.run("merge-base", brought.own, brought.commit).text
        sides = {MERGED_DIFF: (base, brought.commit), TASK_DIFF: (base, brought.own)}
        papers = {
            name: git.run("diff", "--no-color", "--no-ext-diff", old, new).out.decode(errors="replace")[:_DIFF_CHARS]
            for name, (old, new) in sides.items()
        }
        request = replace(turn.request, inbox={**papers, **turn.request.inbox})
        return replace(turn, request=request)

    def _saved(self, site: Site, label: str) -> Change | None:
        """Record what a turn left in a worktree: for the guards as a snapshot, for everybody else on its branch."""
        if not site.tree.path.is_dir():
            # The agent removed it: it is as it was last saved.
            worktree.create_for_task(self.root, self.record.id, site.tree.name, site.noted.base)
            self.worktree_setup.copy_files(site.tree)
        change = site.verifier.snapshots.take(label) if site.verifier.snapshots else None
        if site.noted.brought:
            self.settle(site)
        else:
            self.save(site, f"ralph: {site.tree.name}, {label}")
        return change

    def _thrown_away(self, site: Site, key: str) -> None:
        """Take back what somebody changed who was only to look; it is kept under a ref."""
        saving.keep_aside(site.tree, self._left(site.tree.name, key), self.worktree_setup.paths(site.tree))
        saving.put_back(site.tree, "HEAD")
        self.worktree_setup.copy_files(site.tree)

    def _follow(self, site: Site) -> None:
        """Bring a worktree in which people only look to where the branch of the run stands."""
        tip = merging.tip(Git(self.root), self.record.branch)
        if Git(site.tree.path).commit() != tip:
            saving.put_back(site.tree, tip)
            self.worktree_setup.copy_files(site.tree)
        if site.verifier.snapshots:
            site.verifier.snapshots.take("the branch of the run")

    def _note(self, site: Site, noted: WorkspaceRecord) -> None:
        self.notes.write(site.tree.name, noted)
        site.noted = noted

    def _left(self, name: str, when: str) -> str:
        """The ref for what was in a worktree and on no branch."""
        return f"refs/ralph-left/{self.record.id}/{name}/{re.sub(r'[^A-Za-z0-9_-]', '-', when)}"

    def _ref(self, name: str) -> str:
        return f"refs/ralph-work/{self.record.id}/{name}"
