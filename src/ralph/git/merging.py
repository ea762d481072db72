"""Merging the work of tasks onto the branch of their run: tried in a worktree of its own, out of everybody's way.

Where it does not merge, what is on the branch is brought into the task's own worktree, to be resolved there. Two things
are then looked at before it counts as resolved: that no mark of a conflict was left, and that nothing of what others
had merged was simply taken back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ralph.git.command import Git, GitError
from ralph.git.history import HEADS, contains
from ralph.git.repository import commit_tree, identity
from ralph.git.restoring import ABSENT, deltas
from ralph.git.saving import tree_of
from ralph.git.submodules import fill_submodules
from ralph.git.worktree import Worktree, claimed, stand_ref, whole

_CONFIG = ("merge.conflictStyle=diff3", "rerere.enabled=false", "merge.autoStash=false", "merge.verifySignatures=false")
_MERGE = ("merge", "--quiet", "--no-ff", "--no-commit", "--no-edit")
_MARKS = r"^(<<<<<<<|[|]{7}|>>>>>>>) "


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


def stand(git: Git, branch: str) -> str:
    """Where the merges of a run have come to: its branch, unless somebody else has moved that."""
    return git.commit(stand_ref(branch)) or tip(git, branch)


def put_right(git: Git, branch: str) -> str:
    """Set the branch of a run to where its merges have come to; the ref under which is kept what was on it instead."""
    there = git.commit(HEADS + branch)
    known = stand(git, branch)
    if there == known:
        return ""
    kept = f"refs/ralph-left/{branch.removeprefix('ralph/')}/{there[:12]}" if there else ""
    if kept:
        git.run("update-ref", kept, there)
    git.run("update-ref", "-m", "ralph: put right", HEADS + branch, known, there)
    return kept


def advance(git: Git, branch: str, old: str, new: str) -> None:
    """Move a branch of the run, from where it is known to stand, and note where it stands."""
    both = f"update {HEADS}{branch} {new} {old}\nupdate {stand_ref(branch)} {new}\n"
    git.run("update-ref", "-m", "ralph: merge", "--stdin", stdin=both.encode())


def merge_of(git: Git, since: str, until: str, key: str, value: str) -> str:
    """The merge between two commits whose message has a trailer; empty where there is none."""
    form = f"--format=%H %(trailers:key={key},valueonly,separator=%x2C)"
    listed = git.run("rev-list", "--first-parent", "--no-commit-header", form, f"{since}..{until}").text.split("\n")
    return next((sha for sha, _, named in (line.partition(" ") for line in listed) if named == value), "")


def attempt(scratch: Worktree, onto: str, work: str, message: str, beside: Worktree | None = None) -> Candidate:
    """Merge a commit onto another in the scratch worktree, which then holds the merged tree.

    Submodules come from the worktree in which the work was done.
    """
    git = claimed(scratch).git.adding(*_CONFIG)
    # A check may have switched to a branch: that is not ours to move.
    git.run("update-ref", "--no-deref", "HEAD", onto)
    git.run("reset", "--quiet", "--hard")
    git.run("clean", "--quiet", "-d", "--force")
    if conflicts := _merge(git, work):
        git.run("reset", "--quiet", "--hard")
        return Candidate(conflicts=conflicts)
    commit = commit_tree(git, git.run("write-tree").text, [onto, work], message)
    git.run("reset", "--quiet", "--hard", commit)
    if beside:
        fill_submodules(Git(beside.path), Git(scratch.path))
    return Candidate(commit)


def bring_in(tree: Worktree, commit: str, leaving_out: Sequence[str]) -> Brought:
    """Merge a commit into a worktree whose work is saved, and leave it there uncommitted, conflicts and all."""
    git = claimed(tree).git.adding(*_CONFIG)
    own, conflicts = tip(git, tree.branch), _merge(git, commit)
    return Brought(commit, own, tree_of(tree, leaving_out), conflicts)


def undecided(tree: Worktree, brought: Brought) -> tuple[str, ...]:
    """The files in which marks of a conflict are left, and those without marks of which nobody said what holds."""
    git, asked = whole(tree).git.adding(GIT_LITERAL_PATHSPECS="1"), brought.conflicts
    if not asked:
        return ()
    marked = set(git.run("grep", "-lzE", _MARKS, brought.merged, "--", *asked, ok=(0, 1)).names)
    marked = {name.partition(":")[2] for name in marked}
    left = set(git.run("grep", "--no-index", "-lzE", _MARKS, "--", *marked, ok=(0, 1)).names) if marked else set()
    open_still = {line.partition("\t")[2] for line in git.run("ls-files", "-u", "-z").names}
    return tuple(path for path in asked if path in left or (path not in marked and path in open_still))


def taken_back(tree: Worktree, work: str, brought: Brought) -> tuple[str, ...]:
    """The files that others changed and that are again as they were on this side, though git merged them otherwise.

    Of a file that cannot have both sides, this one may hold, also where it deletes the file; but only as long as the
    merge was not given up: then nobody has decided anything.
    """
    place = whole(tree)
    git = place.git
    goes_on = (place.git_dir / "MERGE_HEAD").exists() or contains(git, "HEAD", brought.commit)
    base = git.run("merge-base", brought.own, brought.commit).text
    others, changed = deltas(git, base, brought.commit), deltas(git, brought.own, work)
    differs = deltas(git, brought.merged if goes_on else brought.commit, work)
    decided = {path for path in brought.conflicts if goes_on and path in differs and differs[path].new == ABSENT}
    return tuple(sorted(others.keys() & differs.keys() - changed.keys() - decided))


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
