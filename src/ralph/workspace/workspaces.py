"""The workspaces of a run: its own, and a worktree for each task that runs beside others.

A worktree starts from the tip of the run's branch and is set up by the settings of the project. A record in the run's
directory describes it, by which the next engine finds it after a kill.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ralph.core.checks import Check, CheckResult, CheckStatus, FailingTests, Verdict
from ralph.core.ids import READ_ONLY_PREFIX, READ_ONLY_WORKTREE
from ralph.core.turns import ENDED_BY, AgentEvent, Change, Turn, TurnEnd, TurnRequest, TurnResult
from ralph.documents.run_record import RunRecord
from ralph.git import merge
from ralph.git import worktree as git_worktree
from ralph.git.command import Git, find_repository
from ralph.git.history import contains
from ralph.git.merge import UnresolvedMerge
from ralph.git.snapshots import Snapshots
from ralph.git.worktree import Removal, Worktree
from ralph.verify.clean_room import find_ignored_record
from ralph.verify.runner import CheckRunner
from ralph.verify.verifier import Verifier
from ralph.workspace.local import LocalTurns
from ralph.workspace.turn_files import TurnFiles
from ralph.workspace.worktree_setup import (
    RUN_WORKTREE,
    SetupError,
    WorktreeRecord,
    WorktreeRecords,
    WorktreeSetup,
    with_git_ceiling,
)

MERGED_DIFF, TASK_DIFF = "merged.diff", "task.diff"
"""Documents for a turn that resolves a conflict: what was merged meanwhile, and what the task changed."""
_DIFF_CHARS = 200_000


@dataclass
class OpenWorktree:
    """A worktree, with what runs turns and checks in it."""

    tree: Worktree
    turns: LocalTurns
    verifier: Verifier
    record: WorktreeRecord


@dataclass
class Workspaces:
    """Runs turns and checks in the workspaces that they name."""

    turns: LocalTurns
    """In the run's own workspace."""
    verifier: Verifier
    runner: CheckRunner
    record: RunRecord
    records: WorktreeRecords = field(init=False)
    worktree_setup: WorktreeSetup = field(init=False)
    _worktrees: dict[str, OpenWorktree] = field(default_factory=dict)
    _opening: dict[str, asyncio.Lock] = field(default_factory=dict)
    _stop_reasons: dict[int, str] = field(default_factory=dict)
    """Why turns were stopped, by number: while its workspace is made, a turn has no keeper yet that could stop it."""
    _is_run_worktree_set_up: bool = False
    _setting_up: asyncio.Lock = field(default_factory=asyncio.Lock)
    _scratch: Worktree | None = None
    _own_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the run's own worktree and the branch of the run are synchronized."""

    def __post_init__(self) -> None:
        self.records = WorktreeRecords(self.turns.run_dir / "workspaces")
        self.worktree_setup = WorktreeSetup(self.turns.root, self.record.tree_settings)

    @property
    def root(self) -> Path:
        """The root of the project."""
        return self.turns.root

    @property
    def has_worktrees(self) -> bool:
        """Whether tasks have worktrees of their own. Without git, all turns work in one tree, one after the other."""
        return bool(self.record.branch)

    async def _set_up_run_worktree(self) -> None:
        """Set up the worktree of the whole run, if it has one."""
        if self.record.workspace == ".":
            return
        async with self._setting_up:
            if self._is_run_worktree_set_up:
                return
            tree, record = self._open_run_worktree()
            self.worktree_setup.copy_files(tree)
            ready = await self.worktree_setup.set_up(tree, self.runner, RUN_WORKTREE, record.ready)
            if ready != record.ready:
                self.records.write(RUN_WORKTREE, replace(record, ready=ready, size=self.worktree_setup.size(tree)))
            self._is_run_worktree_set_up = True

    async def run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        """Run a turn in its workspace. What it did in a worktree is committed to the branch of the worktree."""
        name, label = turn.request.worktree, f"turn {turn.number} ({turn.request.role})"
        if not name:
            await self._set_up_run_worktree()
            self.verifier.note_turn()
            return self._end_before_start(turn) or await self.turns.run(turn, watch)
        if not self.has_worktrees:
            self.verifier.note_turn()
            result = await self.turns.run(turn, watch)
            return replace(result, change=self.verifier.snapshots.take(label) if self.verifier.snapshots else None)
        began = time.time()
        try:
            worktree = await self.open(name, turn.request)
        except SetupError as error:
            is_new = error.in_new_worktree
            return TurnResult(TurnEnd.FAILED, began, time.time(), error=str(error), lacks_worktree=is_new)
        if ended := self._end_before_start(turn):
            return ended
        result = await worktree.turns.run(self._with_merge_documents(turn, worktree), watch)
        if turn.request.reads_only:
            await asyncio.to_thread(self._discard_changes, worktree, turn.request.key)
            return result
        return replace(result, change=await asyncio.to_thread(self._save_turn, worktree, label))

    async def stop(self, turn: Turn, reason: str) -> None:
        """End a turn, also one that has not begun yet."""
        self._stop_reasons[turn.number] = reason
        await self.turns.stop(turn, reason)

    def _end_before_start(self, turn: Turn) -> TurnResult | None:
        """The result of a turn that was stopped before it began; None if it was not."""
        if turn.number not in self._stop_reasons or self.turns.is_prepared(turn):
            return None
        end, now = ENDED_BY[self._stop_reasons[turn.number]], time.time()
        return TurnResult(end, now, now, error="it was ended before it started")

    async def send_message(self, turn: Turn, name: str, text: str) -> None:
        """Leave a message for the agent of a turn."""
        await self.turns.send_message(turn, name, text)

    async def check(
        self,
        key: str,
        checks: Sequence[Check],
        worktree: str = "",
        seen_failing: FailingTests | None = None,
        *,
        is_final: bool = False,
    ) -> Verdict:
        """Run checks in a worktree, or in the run's own tree."""
        if not worktree or not self.has_worktrees:
            await self._set_up_run_worktree()
            return await self.verifier.run(key, checks, seen_failing, is_final=is_final)
        try:
            opened = await self.open(worktree)
        except SetupError as error:
            failed = CheckResult("the setup commands pass", CheckStatus.FAILED, 0.0, reason=error.what)
            return Verdict((failed,))
        verdict = await opened.verifier.run(key, checks, seen_failing, is_final=is_final)
        # Worktrees that are made later are compared with it.
        self.verifier.baseline = self.verifier.baseline or opened.verifier.baseline
        return verdict

    async def check_with_tests(self, key: str, checks: Sequence[Check], tests: Mapping[str, str]) -> Verdict:
        """Run checks in a clean checkout of the run's own tree, with further tests in it."""
        return await self.verifier.run_with_tests(key, checks, tests)

    async def open(self, name: str, request: TurnRequest | None = None) -> OpenWorktree:
        """The worktree of that name, made and set up if necessary; for a resolver, with the run's branch merged in."""
        async with self._opening.setdefault(name, asyncio.Lock()):
            worktree = self._worktrees.get(name)
            if worktree is None or not worktree.tree.path.is_dir():
                worktree = self._worktrees[name] = await asyncio.to_thread(self._make_worktree, name)
            if name.startswith(READ_ONLY_PREFIX):
                await asyncio.to_thread(self._move_to_branch_tip, worktree)
            await self._set_up(worktree)
            await asyncio.to_thread(worktree.verifier.record_ignored)
            if request and request.merges_run_branch and worktree.record.merged_for != request.key:
                await asyncio.to_thread(self._merge_run_branch, worktree, request.key)
            return worktree

    def save(self, worktree: OpenWorktree, message: str) -> str:
        """Commit everything in a worktree to its branch; return the commit."""
        unresolved = worktree.record.unresolved_merge.commit if worktree.record.unresolved_merge else ""
        out = self.worktree_setup.paths(worktree.tree)
        known = (worktree.record.base, worktree.record.run_branch_at)
        return merge.save_worktree(worktree.tree, message, leaving_out=out, brought_in=unresolved, known=known)

    def finish_resolution(self, worktree: OpenWorktree) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Commit the merge that a resolver worked on, if it is resolved.

        If not, return the files that still conflict, and those in which the work of others would be reverted.
        """
        unresolved = worktree.record.unresolved_merge
        if unresolved is None:
            return (), ()
        if undecided := merge.find_undecided(worktree.tree, unresolved):
            return undecided, ()
        tree = merge.write_tree(worktree.tree, self.worktree_setup.paths(worktree.tree))
        if lost := merge.find_reverted(worktree.tree, tree, unresolved):
            return (), lost
        self.save(worktree, f"ralph: {worktree.tree.name} with what was merged meanwhile")
        self._write_record(worktree, replace(worktree.record, unresolved_merge=None))
        return (), ()

    def close(self, name: str) -> Removal:
        """Remove a worktree whose work is on the branch of the run; otherwise it stays.

        What is not committed was written by checks, or by the user after the last turn. It stays under a ref.
        """
        self._worktrees.pop(name, None)
        repository = find_repository(self.root)
        if repository is None:
            return Removal("the git repository no longer exists")
        tree = git_worktree.locate_task_worktree(repository, self.root, self.record.id, name)
        if tree.path.exists():
            merge.keep_under_ref(tree, self._name_leftover_ref(name, "end"), self.worktree_setup.paths(tree))
            merge.reset_worktree(tree, "HEAD")
        removal = git_worktree.remove(tree, self.record.branch)
        if removal:
            Git(self.root).run("update-ref", "-d", self._name_snapshot_ref(name))
            self.records.forget(name)
            find_ignored_record(self.turns.run_dir, name).unlink(missing_ok=True)
        return removal

    def remove_unused(self) -> None:
        """Remove the worktrees without work: the scratch worktree for merges, and those whose turns only read."""
        for tree in git_worktree.find_worktrees(self.root):
            if tree.run == self.record.id and tree.name.startswith(READ_ONLY_PREFIX):
                self.close(tree.name)
            elif tree.run == self.record.id and tree.name == "merge":
                git_worktree.remove(tree)
                self._scratch = None

    async def open_scratch(self, onto: str) -> tuple[Worktree, CheckRunner]:
        """The scratch worktree in which merges are tried, and the runner for checks in it."""
        if self._scratch is None:
            self._scratch = await asyncio.to_thread(git_worktree.create_scratch, self.root, self.record.id, onto)
        return self._scratch, self._make_runner(self._scratch)

    def _make_runner(self, tree: Worktree) -> CheckRunner:
        environment = with_git_ceiling(self.runner.environment, tree)
        runner = replace(self.runner, workspace=self._work_dir(tree), environment=environment)
        return (
            replace(runner, isolate=self.turns.isolation.move(tree.path).isolate_check)
            if self.turns.isolation
            else runner
        )

    def _work_dir(self, tree: Worktree) -> Path:
        """The directory of a worktree in which turns and checks run; git makes none without files."""
        path = tree.workspace / self.record.directory
        path.mkdir(parents=True, exist_ok=True)
        return path

    def advance(self, onto: str, commit: str) -> str:
        """Move the branch of the run, and the run's own worktree with it; return the snapshot of that worktree."""
        with self._own_lock:
            merge.advance_branch(Git(self.root), self.record.branch, onto, commit)
            return self._update_run_worktree()

    def update_run_worktree(self) -> str:
        """Update the run's own worktree to the last merge; return its snapshot."""
        with self._own_lock:
            return self._update_run_worktree()

    def _update_run_worktree(self) -> str:
        if self.record.workspace == ".":
            return ""
        tree, record = self._open_run_worktree()
        position = merge.read_position(Git(self.root), self.record.branch)
        if record.run_branch_at != position:
            merge.reset_worktree(tree, position)
            self.worktree_setup.copy_files(tree)
            self.records.write(RUN_WORKTREE, replace(record, run_branch_at=position))
        if self.verifier.snapshots is None:
            return ""
        return self.verifier.snapshots.take("what was done in parallel").snapshot

    def commit_run_worktree(self, message: str) -> None:
        """Commit what is in the run's own worktree, if it has one: new worktrees of tasks start from that.

        If an engine was killed between a merge and the update of this worktree, the update comes first. The worktree
        has nothing of its own then.
        """
        if self.record.workspace == ".":
            return
        with self._own_lock:
            tree, record = self._open_run_worktree()
            git, ref = Git(self.root), git_worktree.position_ref(self.record.branch)
            position = git.resolve_commit(ref)
            if position and not (record.run_branch_at and contains(git, record.run_branch_at, position)):
                self._update_run_worktree()
                return
            known = [one for one in (self.record.base, position) if one]
            tip = merge.save_worktree(tree, message, leaving_out=self.worktree_setup.paths(tree), known=known)
            # The record first: a position ahead of the record means a merge that this worktree does not have yet.
            self.records.write(RUN_WORKTREE, replace(record, run_branch_at=tip))
            if tip != position:
                git.run("update-ref", ref, tip, position)

    def _open_run_worktree(self) -> tuple[Worktree, WorktreeRecord]:
        """The run's own worktree, and its record."""
        tree = git_worktree.ensure_worktree(self.root, self.record.id)
        return tree, self.records.read(RUN_WORKTREE) or WorktreeRecord(tree.branch, self.record.base)

    def _make_worktree(self, name: str) -> OpenWorktree:
        record = self.records.read(name)
        if record is None:
            self.commit_run_worktree(f"ralph: before parallel work\n\n{self.record.task}")
            start = merge.read_position(Git(self.root), self.record.branch)
            record = WorktreeRecord(f"ralph/{self.record.id}/{name}", start)
            self.records.write(name, record)
        tree = git_worktree.create_for_task(self.root, self.record.id, name, record.base)
        self.worktree_setup.copy_files(tree)
        home, excluding = self.records.home(name), self.worktree_setup.paths(tree)
        snapshots = Snapshots.open(
            self.root,
            self._work_dir(tree),
            self.record.id,
            home,
            ref=self._name_snapshot_ref(name),
            excluding=excluding,
        )
        holds_whole = name == READ_ONLY_WORKTREE
        if snapshots.latest() is None:
            # What is merged is judged as a whole: everything since the run began is its work.
            snapshots.begin(self.record.base if holds_whole else record.base)
        rules = self.verifier.rules
        isolation = self.turns.isolation.move(tree.path) if self.turns.isolation else None
        verifier = replace(
            self.verifier,
            runner=self._make_runner(tree),
            snapshots=snapshots,
            rules=rules if holds_whole else rules.without_clean_room(),
            isolation=isolation,
            worktree=name,
            last=None,
            flaky=set(),
        )
        turns = replace(
            self.turns,
            workspace=self._work_dir(tree),
            files=TurnFiles(self._work_dir(tree), self.turns.hidden),
            environment=with_git_ceiling(self.turns.environment, tree),
            isolation=isolation,
        )
        return OpenWorktree(tree, turns, verifier, record)

    async def _set_up(self, worktree: OpenWorktree) -> None:
        ready = await self.worktree_setup.set_up(
            worktree.tree, worktree.verifier.runner, worktree.tree.name, worktree.record.ready
        )
        if ready != worktree.record.ready:
            size = await asyncio.to_thread(self.worktree_setup.size, worktree.tree)
            self._write_record(worktree, replace(worktree.record, ready=ready, size=size))

    def _merge_run_branch(self, worktree: OpenWorktree, key: str) -> None:
        """Merge the branch of the run into a worktree, and leave the conflicts there to be resolved.

        If an earlier resolver left conflicts, the next one continues from there. If it reverted the work of others,
        the merge is done again, and what it left stays under a ref.
        """
        unresolved = worktree.record.unresolved_merge
        if unresolved and unresolved.merged and merge.find_undecided(worktree.tree, unresolved):
            self._write_record(worktree, replace(worktree.record, merged_for=key))
            return
        if worktree.record.unresolved_merge:
            own, left = worktree.record.unresolved_merge.own, self._name_leftover_ref(worktree.tree.name, key)
            merge.keep_under_ref(worktree.tree, left, self.worktree_setup.paths(worktree.tree), since=own)
            merge.reset_worktree(worktree.tree, own)
            self.worktree_setup.copy_files(worktree.tree)
            self._write_record(worktree, replace(worktree.record, unresolved_merge=None))
        own = self.save(worktree, f"ralph: {worktree.tree.name} before what was merged meanwhile")
        commit = merge.read_position(Git(self.root), self.record.branch)
        # Recorded before the tree changes: a merge that a kill leaves half done must not be saved.
        self._write_record(
            worktree, replace(worktree.record, unresolved_merge=UnresolvedMerge(commit, own), run_branch_at=commit)
        )
        unresolved = merge.merge_into_worktree(worktree.tree, commit, self.worktree_setup.paths(worktree.tree))
        if worktree.verifier.snapshots:
            # From here on the work of the task is what differs from the branch of the run.
            worktree.verifier.snapshots.begin(commit)
        self._write_record(worktree, replace(worktree.record, unresolved_merge=unresolved, merged_for=key))

    def _with_merge_documents(self, turn: Turn, worktree: OpenWorktree) -> Turn:
        """The turn of a resolver with both sides in its inbox."""
        unresolved = worktree.record.unresolved_merge
        if not turn.request.merges_run_branch or unresolved is None:
            return turn
        git = Git(self.root)
        base = git.run("merge-base", unresolved.own, unresolved.commit).text
        sides = {MERGED_DIFF: (base, unresolved.commit), TASK_DIFF: (base, unresolved.own)}
        documents: dict[str, str] = {}
        for name, (old, new) in sides.items():
            diff = git.run("diff", "--no-color", "--no-ext-diff", "--no-textconv", old, new).out
            documents[name] = diff.decode(errors="replace")[:_DIFF_CHARS]
        request = replace(turn.request, inbox={**documents, **turn.request.inbox})
        return replace(turn, request=request)

    def _save_turn(self, worktree: OpenWorktree, label: str) -> Change | None:
        """Record what a turn left in a worktree: a snapshot for the guards, and a commit on its branch."""
        if not worktree.tree.path.is_dir():
            # The agent removed the worktree: it is made again as it was last saved.
            git_worktree.create_for_task(self.root, self.record.id, worktree.tree.name, worktree.record.base)
            self.worktree_setup.copy_files(worktree.tree)
        change = worktree.verifier.snapshots.take(label) if worktree.verifier.snapshots else None
        if worktree.record.unresolved_merge:
            self.finish_resolution(worktree)
        else:
            self.save(worktree, f"ralph: {worktree.tree.name}, {label}")
        return change

    def _discard_changes(self, worktree: OpenWorktree, key: str) -> None:
        """Revert the changes of a turn that may only read. They stay under a ref."""
        merge.keep_under_ref(
            worktree.tree, self._name_leftover_ref(worktree.tree.name, key), self.worktree_setup.paths(worktree.tree)
        )
        merge.reset_worktree(worktree.tree, "HEAD")
        self.worktree_setup.copy_files(worktree.tree)

    def _move_to_branch_tip(self, worktree: OpenWorktree) -> None:
        """Move a read-only worktree to the tip of the run's branch."""
        tip = merge.read_branch_tip(Git(self.root), self.record.branch)
        if Git(worktree.tree.path).resolve_commit() != tip:
            merge.reset_worktree(worktree.tree, tip)
            self.worktree_setup.copy_files(worktree.tree)
        if worktree.verifier.snapshots:
            worktree.verifier.snapshots.take("the branch of the run")

    def _write_record(self, worktree: OpenWorktree, record: WorktreeRecord) -> None:
        self.records.write(worktree.tree.name, record)
        worktree.record = record

    def _name_leftover_ref(self, name: str, when: str) -> str:
        """The ref for what was in a worktree and not on its branch."""
        return f"refs/ralph-left/{self.record.id}/{name}/{re.sub(r'[^A-Za-z0-9_-]', '-', when)}"

    def _name_snapshot_ref(self, name: str) -> str:
        return f"refs/ralph-work/{self.record.id}/{name}"
