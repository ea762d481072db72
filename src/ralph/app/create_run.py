"""A new run: its id, the ground it works on, and the record of what it is started with."""

import contextlib
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from ralph.core.errors import RalphError, StateError, UsageError
from ralph.documents.run_record import RunRecord, TreeSettings
from ralph.git import worktree
from ralph.git.command import Git
from ralph.git.repository import OWN
from ralph.store.runs import Project, RunDir
from ralph.workspace.lander import branch_now


class Ground(StrEnum):
    """Where a run works."""

    HERE = "here"
    """In the user's own tree."""
    WORKTREE = "worktree"
    """In a worktree of its own."""
    BRANCH = "branch"
    """Its tasks in a worktree each; their work comes together on a branch."""


def create_run(
    project: Project, record: RunRecord, ground: Ground = Ground.HERE, *, plain_id: bool = False
) -> tuple[RunDir, tuple[str, ...]]:
    """Claim an id, make a branch or a worktree where one is asked for, and write down what the run is started with.

    A record that has an id already is of a session that others began: its run gets the same.
    """
    refuse_links(project.root)
    run = project.claim_id(record.id) if record.id else project.claim(datetime.now(), plain=plain_id)
    record = replace(record, id=run.id)
    notices: tuple[str, ...] = ()
    try:
        if ground is Ground.BRANCH and not worktree.can_have_worktrees(project.root):
            ground, notices = Ground.HERE, ("one turn at a time: worktrees need a git repository with a commit",)
        if ground is not Ground.HERE:
            _refuse_tracked(project.root, record.trees)
            record = replace(record, onto=branch_now(project.root))
        if ground is Ground.WORKTREE:
            tree = worktree.ensure_worktree(project.root, run.id)
            notices = tree.notices
            base = Git(tree.path).commit()
            workspace = str(tree.workspace.relative_to(project.root))
            record = replace(record, workspace=workspace, branch=tree.branch, base=base)
        elif ground is Ground.BRANCH:
            branch, base, notices = worktree.create_branch(project.root, run.id)
            record = replace(record, branch=branch, base=base)
        project.create(run, record)
    except BaseException as error:
        discard(project, run, error)
        raise
    return run, notices


def discard(project: Project, run: RunDir, error: BaseException) -> None:
    """Take back a run that did not come to begin, with its worktree, in which nobody has worked; it cannot be resumed."""
    with contextlib.suppress(RalphError):
        for tree in worktree.find_worktrees(project.root):
            if tree.run == run.id:
                worktree.remove(tree)
        worktree.forget(project.root, run.id)
    project.remove(run)
    if isinstance(error, RalphError):
        error.todo = error.todo.replace("`ralph resume`", "start again")


def _refuse_tracked(root: Path, trees: TreeSettings) -> None:
    """What git tracks is in every worktree already; copied in again, changes to it would be lost."""
    for setting, names in (("copy", trees.copy), ("share", trees.share)):
        for name in names:
            if Git(root).adding(GIT_LITERAL_PATHSPECS="1").run("ls-files", "-z", "--", name).out:
                todo = f"take it out of `workspace.{setting}`: tracked files are in every worktree"
                raise UsageError(f"{name} is tracked by git", where="ralph.yml", todo=todo)


def refuse_links(root: Path) -> None:
    """State that is written through a link would be written somewhere else."""
    for own in OWN:
        place = root / own
        if not place.resolve().is_relative_to(root.resolve()):
            raise StateError("a symbolic link leads out of the project", where=str(place), todo="remove the link")
