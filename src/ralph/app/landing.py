"""Runs with a branch of their own: list what waits to be merged or landed, and land it."""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ralph.app.runs import record_action
from ralph.app.views import open_view
from ralph.core.checks import Verdict
from ralph.core.errors import RalphError, UsageError
from ralph.core.events import Landed
from ralph.core.redaction import find_secrets
from ralph.documents.run_record import RunRecord
from ralph.git import merge, worktree
from ralph.git.command import Git, GitError
from ralph.git.history import HEADS, contains
from ralph.store.documents import Documents
from ralph.store.files import read_limited, to_text
from ralph.store.runs import Project, RunDir
from ralph.supervisor.client import KeeperClient
from ralph.verify.runner import CheckRunner, check_environment
from ralph.view.model import MergeView
from ralph.workflows.merge_rules import queue_path, read_queue
from ralph.workspace.merger import fast_forward_user_branch, read_current_branch
from ralph.workspace.worktree_setup import WorktreeSetup


@dataclass(frozen=True)
class LandedRun:
    """The result of landing a run."""

    landed: Landed
    verdict: Verdict | None
    """What the checks said on the merged tree; None if nothing had to be merged or checked."""
    action: str
    """The id by which the view shows it."""


async def land_run(project: Project, run: RunDir, by: str = "") -> LandedRun:
    """Bring the work of a run onto the user's current branch.

    If that branch has moved, both are merged in a scratch worktree, and the checks must pass on the merged tree.
    """
    run.refuse_untrusted()
    record, outcome = run.record(), run.outcome()
    onto, name = read_current_branch(project.root), record.branch
    if not name:
        todo = f"there is nothing to land; `ralph diff {run.id}` shows its work"
        raise UsageError(f"run {run.id} worked in your own tree", todo=todo)
    if not (outcome and outcome.succeeded):
        state = outcome or "running"
        raise UsageError(f"run {run.id} has not succeeded ({state})", todo=f"`git merge {name}` merges it anyway")
    if not onto:
        raise UsageError("HEAD is detached", where=str(project.root), todo="`git switch` to the branch to land on")
    lock = run.lock()
    try:
        git = Git(project.root)
        commit, verdict = merge.read_branch_tip(git, name), None
        here = git.resolve_commit()
        if not (contains(git, commit, here) or contains(git, here, commit)):
            commit, verdict = await _merge_in_scratch(project, run, record, here, commit)
            if verdict is not None and not verdict.passed:
                notice = f"the checks fail on the merged tree: the work stays on the branch {name}"
                action = record_action(project, run, "land", f"did not land: {notice}", by)
                return LandedRun(Landed(commit, name, notice=notice), verdict, action)
        landed = await asyncio.to_thread(fast_forward_user_branch, project.root, run.id, name, commit, onto)
        landed = replace(landed, by=by)
        documents, _ = Documents.open(project.root, run.path)
        documents.commit(time.time(), landed, {})
        result = f"landed {landed.commit[:10]} on {landed.branch}" if landed.moved else f"did not land: {landed.notice}"
        return LandedRun(landed, verdict, record_action(project, run, "land", result, by))
    finally:
        lock.release()


async def _merge_in_scratch(
    project: Project, run: RunDir, record: RunRecord, here: str, work: str
) -> tuple[str, Verdict | None]:
    """Merge a run's work with the user's branch in a scratch worktree, and run the checks there."""
    scratch = await asyncio.to_thread(worktree.create_scratch, project.root, run.id, here)
    keeper = KeeperClient(run.path, lambda: -1)
    try:
        message = f"Merge {record.branch}\n\n{record.task}\n\nRalph-Run: {run.id}\n"
        candidate = await asyncio.to_thread(merge.try_merge, scratch, here, work, message)
        if not candidate.commit:
            files = ", ".join(candidate.conflicts[:10])
            raise GitError(
                f"the work of run {run.id} conflicts with your branch in {files}",
                where=record.branch,
                todo=f"`git merge {record.branch}` and resolve the conflict; nothing has changed yet",
            )
        if not record.checks:
            return candidate.commit, None
        environment, secrets = check_environment(os.environ), find_secrets(os.environ)
        runner = CheckRunner(
            run_dir=run.path,
            run_id=run.id,
            workspace=scratch.workspace / record.directory,
            keeper=keeper,
            environment=environment,
            secrets=secrets,
        )
        setup = WorktreeSetup(project.root, record.tree_settings)
        await asyncio.to_thread(setup.copy_files, scratch)
        await setup.set_up(scratch, runner, scratch.name, "")
        return candidate.commit, await runner.run("land", record.checks)
    finally:
        await keeper.close()
        await asyncio.to_thread(worktree.remove, scratch)


def find_run_to_land(project: Project) -> RunDir:
    """The latest run that succeeded on a branch of its own and is not on the user's."""
    git = Git(project.root)
    for run in reversed(project.runs()):
        outcome = run.outcome()
        branch = run.record().branch if outcome and outcome.succeeded else ""
        tip = git.resolve_commit(HEADS + branch) if branch else ""
        if tip and not contains(git, "HEAD", tip):
            return run
    raise UsageError(
        "no run here is waiting to land",
        where=str(project.root),
        todo="`ralph land --queue --all` lists all runs with a branch",
    )


@dataclass(frozen=True)
class QueueRow:
    """A task or a run whose work is to be merged or landed, or was."""

    run: str
    task: str
    state: str
    told: str
    done: bool = False


def list_queue(project: Project, wanted: str | None = None) -> list[QueueRow]:
    """The tasks of a run, or of all runs, that wait to be merged, and the runs that wait to be landed."""
    runs = [project.run(wanted)] if wanted else project.runs()
    return [row for run in runs for row in _list_rows(project, run)]


def _list_rows(project: Project, run: RunDir) -> Iterator[QueueRow]:
    try:
        if not run.record().branch:
            return
        view = open_view(project, run)
    except (RalphError, FileNotFoundError):
        return
    ended = {one.workspace: one for one in view.merges if one.end}
    in_progress = {one.workspace for one in view.merges if not one.end}
    waiting = _list_waiting_workspaces(project, run)
    for workspace, resolves in waiting.items():
        state = "waiting"
        if resolves:
            state = "resolving"
        elif view.alive and workspace in in_progress:
            state = "merging"
        before = ended.get(workspace)
        yield QueueRow(run.id, workspace, state, _describe_merge(before) if before else "")
    for workspace, merged in ended.items():
        if workspace not in waiting:
            state = "merged" if merged.is_merged else "failed"
            yield QueueRow(run.id, workspace, state, _describe_merge(merged), done=merged.is_merged)
    if landed := view.landed:
        done = landed.moved or contains(Git(project.root), "HEAD", landed.commit)
        state = "landed" if done else "to land"
        yield QueueRow(run.id, "the run", state, told=_describe_landing(run, landed, done), done=done)


def _list_waiting_workspaces(project: Project, run: RunDir) -> dict[str, bool]:
    """The workspaces that wait, and whether a resolver works on each."""
    path = queue_path(run.id)
    try:
        queue = read_queue(to_text(read_limited(project.root / path)), path)
    except (RalphError, FileNotFoundError):
        return {}
    return {one.worktree: one.resolving for one in queue.waiting}


def _describe_merge(merged: MergeView) -> str:
    if merged.is_merged:
        return f"as {merged.commit[:10]}"
    why = ", ".join(merged.files[:3]) or next(iter(merged.failed), "") or merged.notice
    return f"{merged.end}: {why}; its work is on {merged.branch}"


def _describe_landing(run: RunDir, landed: Landed, done: bool) -> str:
    if landed.moved:
        return f"on {landed.branch}"
    if done:
        return "on your branch"
    outcome = run.outcome()
    if outcome and outcome.succeeded:
        return f"on {landed.branch}; `ralph land {run.id}` merges it"
    return landed.notice
