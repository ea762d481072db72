"""Merging the work of tasks onto the branch of their run: tried in a worktree of its own, out of everybody's way.

Where it does not merge, what is on the branch is brought into the task's own worktree, to be resolved there. Two things
are then looked at before it counts as resolved: that no mark of a conflict was left, and that nothing of what others
had merged was simply taken back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ralph.git.command import Git, GitError
from ralph.git.history import HEADS
from ralph.git.repository import commit_tree, identity
from ralph.git.restoring import deltas
from ralph.git.worktree import Worktree, tree_of

_CONFIG = ("merge.conflictStyle=diff3", "rerere.enabled=false", "merge.autoStash=false", "merge.verifySignatures=false")
_MERGE = ("merge", "--quiet", "--no-ff", "--no-commit", "--no-edit")
_MARKS = r"^(<<<<<<<|>>>>>>>) "


@dataclass(frozen=True)
class Candidate:
    """What a merge gives: a commit, or the files that conflict."""

    commit: str = ""
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Brought:
    """What was on the branch of the run, merged into a workspace to be resolved there."""

    commit: str
    own: str
    """The tip of the workspace's branch before."""
    merged: str = ""
    """The tree as git merged it, with the marks of conflicts; empty while it does."""
    conflicts: tuple[str, ...] = ()


def tip(git: Git, branch: str) -> str:
    """Where a branch stands."""
    return git.run("rev-parse", "--verify", f"{HEADS}{branch}^{{commit}}").text


def advance(git: Git, branch: str, old: str, new: str) -> None:
    """Move a branch of the run, from where it is known to stand."""
    git.run("update-ref", "-m", "ralph: merge", HEADS + branch, new, old)


def merge_of(git: Git, branch: str, since: str, trailer: str) -> str:
    """The commit on a branch whose message has a line, which is no pattern; empty where there is none."""
    which = ("--max-count=1", "--first-parent", "--format=%H", f"--grep=^{trailer}$")
    return git.run("log", *which, f"{since}..{HEADS}{branch}").text


def attempt(scratch: Worktree, onto: str, work: str, message: str) -> Candidate:
    """Merge a commit onto another in the scratch worktree, which then holds the merged tree."""
    git = Git(scratch.path, config=_CONFIG)
    git.run("reset", "--quiet", "--hard", onto)
    git.run("clean", "--quiet", "-d", "--force")
    if conflicts := _merge(git, work):
        git.run("reset", "--quiet", "--hard", onto)
        return Candidate(conflicts=conflicts)
    commit = commit_tree(git, git.run("write-tree").text, [onto, work], message)
    git.run("reset", "--quiet", "--hard", commit)
    return Candidate(commit)


def bring_in(tree: Worktree, commit: str, leaving_out: Sequence[str]) -> Brought:
    """Merge a commit into a worktree whose work is saved, and leave it there uncommitted, conflicts and all."""
    git = Git(tree.path, config=_CONFIG)
    own, conflicts = tip(git, tree.branch), _merge(git, commit)
    return Brought(commit, own, tree_of(tree, leaving_out), conflicts)


def undecided(tree: Worktree, brought: Brought) -> tuple[str, ...]:
    """The files in which marks of a conflict are left, and those without marks of which nobody said what holds."""
    git, asked = Git(tree.path).adding(GIT_LITERAL_PATHSPECS="1"), brought.conflicts
    if not asked:
        return ()
    marked = set(git.run("grep", "-lzE", _MARKS, brought.merged, "--", *asked, ok=(0, 1)).names)
    marked = {name.partition(":")[2] for name in marked}
    left = set(git.run("grep", "--no-index", "-lzE", _MARKS, "--", *marked, ok=(0, 1)).names) if marked else set()
    open_still = {line.partition("\t")[2] for line in git.run("ls-files", "-u", "-z").names}
    return tuple(path for path in asked if path in left or (path not in marked and path in open_still))


def taken_back(git: Git, work: str, brought: Brought) -> tuple[str, ...]:
    """The files that others changed and that are again as they were on this side, though git merged them otherwise."""
    base = git.run("merge-base", brought.own, brought.commit).text
    others, changed = deltas(git, base, brought.commit), deltas(git, brought.own, work)
    differs = deltas(git, brought.merged, work)
    return tuple(sorted(path for path in others if path not in changed and path in differs))


def _merge(git: Git, commit: str) -> tuple[str, ...]:
    """Merge into the tree without a commit; the files that conflict."""
    try:
        git.adding(**identity(git)).run(*_MERGE, commit)
    except GitError:
        conflicts = git.run("diff", "--name-only", "--diff-filter=U", "-z").names
        if not conflicts:
            raise
        return tuple(dict.fromkeys(conflicts))
    return ()
