"""Landing: the work of a run comes onto the user's branch by fast-forward alone, and only where nothing is in its way.

Git does it as the user would: with their hooks, filters and settings. Nothing of theirs is stashed, reset or cleaned.
"""

from pathlib import Path

from ralph.core.errors import RalphError
from ralph.core.events import Landed
from ralph.git.command import Git
from ralph.git.commits import clean_for_commit, under_way
from ralph.git.history import HEADS, contains, head_of
from ralph.git.repository import repository, wants_signatures

_SECONDS = 600.0


def fast_forward(root: Path, branch: str, commit: str, onto: str) -> Landed:
    """Move the user's branch to a commit, with their tree, if they are on it, nothing is uncommitted and it is ahead."""
    place = repository(root)
    if place is None:
        return Landed(commit, branch, notice="there is no git repository any more")
    git, merge = place.git, f"git merge {branch}"
    head = head_of(git)
    if head != onto:
        was, now = onto.removeprefix(HEADS), head.removeprefix(HEADS)
        return _stays(commit, branch, f"HEAD is on {now[:40]}, and was on {was}", f"git switch {was} && {merge}")
    tip = git.run("rev-parse", "HEAD").text
    name = onto.removeprefix(HEADS)
    if contains(git, tip, commit):
        return Landed(commit, name, moved=True)
    if not contains(git, commit, tip):
        land = f"ralph land {branch.split('/')[1]}"
        return _stays(commit, branch, f"{name} has moved since the run began", land, "merges it and runs the checks")
    if busy := under_way(place):
        return _stays(commit, branch, f"{busy} is under way", merge)
    if dirty := clean_for_commit(place):
        return _stays(commit, branch, f"{len(dirty)} file(s) in your tree have uncommitted changes", merge)
    if wants_signatures(git) and "N" in git.run("log", "--format=%G?", f"{tip}..{commit}").text.split():
        return _stays(commit, branch, "your commits are to be signed, and these could not be", f"{merge} --no-ff -S")
    try:
        _as_the_user(git).run("merge", "--ff-only", "--quiet", "--no-autostash", commit, timeout=_SECONDS)
    except RalphError as error:
        return _stays(commit, branch, error.what, merge)
    return Landed(commit, name, moved=True)


def push(root: Path, branch: str, commit: str, onto: str) -> Landed:
    """Push the branch of the run to where the user's branch is pushed to; nothing of theirs is moved."""
    git = Git(root)
    ours = onto.removeprefix(HEADS)
    remote = git.run("config", "--get", f"branch.{ours}.pushRemote", ok=(0, 1)).text
    remote = remote or git.run("config", "--get", f"branch.{ours}.remote", ok=(0, 1)).text
    remotes = git.run("remote").text.split()
    remote = remote or ("origin" if "origin" in remotes else next(iter(remotes), ""))
    if not remote or remote == ".":
        return _stays(commit, branch, "there is no remote repository to push to", f"git push REMOTE {branch}")
    try:
        _as_the_user(git).run("push", "--quiet", remote, f"{commit}:{HEADS}{branch}", timeout=_SECONDS)
    except RalphError as error:
        return _stays(commit, branch, error.what, f"git push {remote} {branch}")
    return Landed(commit, f"{remote}/{branch}", moved=True)


def stays(commit: str, branch: str) -> Landed:
    """Work that is wanted on its branch."""
    return Landed(commit, branch, notice=f"the work is on the branch {branch}; merge it with: git merge {branch}")


def _stays(commit: str, branch: str, why: str, command: str, does: str = "brings it in") -> Landed:
    return Landed(commit, branch, notice=f"{why}: the work stays on the branch {branch}; `{command}` {does}")


def _as_the_user(git: Git) -> Git:
    """Git with the user's own hooks and settings, where ours would keep them out."""
    return Git(git.cwd, git.env, git.config, plain=True)
