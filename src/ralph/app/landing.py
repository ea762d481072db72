"""The work of a run that is over, brought onto the user's branch."""

import asyncio
import os
import time

from ralph.core.checks import Verdict
from ralph.core.errors import UsageError
from ralph.core.events import Landed
from ralph.core.redaction import secrets_in
from ralph.documents.run_record import RunRecord
from ralph.git import merging, worktree
from ralph.git.command import Git, GitError
from ralph.git.history import contains
from ralph.store.documents import Documents
from ralph.store.runs import Project, RunDir
from ralph.supervisor.client import Keeper
from ralph.verify.runner import CheckRunner, check_environment
from ralph.workspace.lander import branch_now, fast_forwarded
from ralph.workspace.worktree_setup import WorktreeSetup


async def land_run(project: Project, run: RunDir) -> tuple[Landed, Verdict | None]:
    """Bring the work of a run that is over onto the branch that the user is on; what came of the checks on the way.

    Where that branch has moved, the two are merged aside, and the checks must pass on the merged tree.
    """
    run.refuse_claimed()
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
        here = git.commit()
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
    keeper = Keeper(run.path, lambda: -1)
    try:
        message = f"Merge {record.branch}\n\n{record.task}\n\nRalph-Run: {run.id}\n"
        candidate = await asyncio.to_thread(merging.attempt, scratch, here, work, message)
        if not candidate.commit:
            files = ", ".join(candidate.conflicts[:10])
            raise GitError(
                f"the work of run {run.id} conflicts with your branch in {files}",
                where=record.branch,
                todo=f"`git merge {record.branch}` and resolve it; nothing was changed yet",
            )
        if not record.checks:
            return candidate.commit, None
        environment, secrets = check_environment(os.environ), secrets_in(os.environ)
        runner = CheckRunner(
            run_dir=run.path,
            run_id=run.id,
            workspace=scratch.workspace,
            keeper=keeper,
            environment=environment,
            secrets=secrets,
        )
        setup = WorktreeSetup(project.root, record.trees)
        await asyncio.to_thread(setup.copy_files, scratch)
        await setup.set_up(scratch, runner, scratch.name, "")
        return candidate.commit, await runner.run("land", record.checks)
    finally:
        await keeper.close()
        await asyncio.to_thread(worktree.remove, scratch)
