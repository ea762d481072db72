"""What is in a worktree, as commits: saved to its branch, kept aside, or put back; whatever an agent did to the index."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ralph.git.command import Git, disk
from ralph.git.history import HEADS, contains
from ralph.git.index import joined, see_all, stage
from ralph.git.repository import Repository, commit_tree, own_paths
from ralph.git.restoring import NESTED
from ralph.git.submodules import submodules
from ralph.git.worktree import Worktree, claimed, whole

_UNFINISHED = ("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "AUTO_MERGE", "SQUASH_MSG")
"""What a merge that was left in the middle leaves in the directory of a worktree."""


def save(
    tree: Worktree, message: str, *, leaving_out: Sequence[str] = (), brought_in: str = "", known: Sequence[str] = ()
) -> str:
    """Commit everything in a worktree to its branch, whatever an agent did to HEAD; the tip of the branch afterwards.

    `brought_in` is a commit that was merged into the tree: it becomes a parent. `known` is where the branch began, and
    what else of others it has taken in: on a history that is not that, nothing is built.
    """
    place = claimed(tree)
    git, ref = place.git, HEADS + tree.branch
    head, there = git.commit(), git.commit(ref)
    tip = head if not there or (head and contains(git, head, there)) else there
    if any(known[:1]) and not _is_own(git, tree, tip, [one for one in (*known, brought_in) if one]):
        if tip:
            git.run("update-ref", f"refs/ralph-left/{tree.branch.removeprefix('ralph/')}/{tip[:12]}", tip)
        tip = known[0]
    parents = [one for one in (tip, brought_in) if one]
    if brought_in and tip and contains(git, tip, brought_in):
        parents = [tip]
    with _staged(tree, place, leaving_out) as (made, index):
        if len(parents) > 1 or not tip or made != git.tree(tip):
            tip = commit_tree(git, made, parents, f"{message.rstrip()}\n\nRalph-Run: {tree.run}\n")
        if tip != there:
            git.run("update-ref", "-m", "ralph: save", ref, tip, there)
        git.run("symbolic-ref", "HEAD", ref)
        # Not read anew from the commit: it would not know which files a sparse checkout leaves out.
        index.replace(place.git_dir / "index")
    with disk(place.git_dir):
        for name in _UNFINISHED:
            (place.git_dir / name).unlink(missing_ok=True)
        for name in ("rebase-merge", "rebase-apply", "sequencer"):
            shutil.rmtree(place.git_dir / name, ignore_errors=True)
    return tip


def _is_own(git: Git, tree: Worktree, tip: str, known: Sequence[str]) -> bool:
    """Whether a history goes on from what is known with commits of its own alone.

    An agent may have taken over the history of others, and not their files: what they did would be taken back.
    """
    if not tip or not contains(git, tip, known[0]):
        return False
    new = ("rev-list", "--count", tip, "--not", *known)
    others = (f"--exclude={HEADS}{tree.branch}", f"--glob={HEADS}ralph/{tree.run}/*")
    return git.run(*new).text == git.run(*new, *others).text


def keep_aside(tree: Worktree, ref: str, leaving_out: Sequence[str] = (), since: str = "") -> None:
    """Keep under a ref what is in a worktree and not on its branch, and what came onto that since a commit."""
    git, left = whole(tree).git, tree_of(tree, leaving_out)
    tip, before = git.commit(HEADS + tree.branch), git.commit(ref)
    if left != git.tree(tip):
        parents = [tip, *([before] if before else [])]
        git.run("update-ref", ref, commit_tree(git, left, parents, f"ralph: left in {tree.name}\n"))
    elif since and not contains(git, since, tip):
        git.run("update-ref", ref, tip)


def put_back(tree: Worktree, commit: str) -> None:
    """Make a worktree and its branch what a commit has, and nothing else; what was there is kept aside before."""
    git = claimed(tree).git
    git.run("symbolic-ref", "HEAD", HEADS + tree.branch)
    git.run("reset", "--quiet", "--hard", commit)
    git.run("clean", "--quiet", "-d", "--force")


def tree_of(tree: Worktree, leaving_out: Sequence[str] = ()) -> str:
    """All that is in a worktree, as a tree."""
    with _staged(tree, whole(tree), leaving_out) as (made, _):
        return made


@contextmanager
def _staged(tree: Worktree, place: Repository, leaving_out: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """All that is in a worktree, as a tree and as an index of our own: the one there is the agent's."""
    with disk(place.git_dir), tempfile.TemporaryDirectory(dir=place.git_dir) as aside:
        file = Path(aside) / "index"
        if (place.git_dir / "index").exists():
            shutil.copy2(place.git_dir / "index", file)
        own = place.git.adding("core.splitIndex=false", GIT_INDEX_FILE=str(file))
        see_all(own)
        stage(own, (*own_paths(place.top, tree.root, tree.workspace), *leaving_out))
        if leaving_out:
            quiet = ("-r", "--quiet", "--cached", "--sparse", "--ignore-unmatch")
            own.adding(GIT_LITERAL_PATHSPECS="1").run("rm", *quiet, "--", *leaving_out)
        if made := _nested(own):
            _leave_out_nested(own, tree, made)
        yield own.run("write-tree").text, file


def _leave_out_nested(git: Git, tree: Worktree, nested: set[str]) -> None:
    """Leave out repositories that an agent made: only their commit would be in the tree, and none of their files."""
    known = {path for _, path in submodules(git)} | _nested(Git(tree.root))
    if made := nested - known:
        git.run("update-index", "--force-remove", "-z", "--stdin", stdin=joined(made))


def _nested(git: Git) -> set[str]:
    """The repositories in an index."""
    listed = (line.partition("	") for line in git.run("ls-files", "--stage", "--full-name", "-z", "--", ":/").names)
    return {path for marks, _, path in listed if marks.startswith(NESTED)}
