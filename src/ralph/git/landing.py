"""Landing: the work of a run comes onto the user's branch by fast-forward alone, and only where nothing is in its way.

Git does it as the user would: with their hooks, filters and settings. Nothing of theirs is stashed, reset or cleaned.
"""

import contextlib
import shlex
from pathlib import Path

from ralph.core.errors import RalphError
from ralph.core.events import Landed
from ralph.git.command import Git, GitError
from ralph.git.commits import clean_for_commit, under_way
from ralph.git.history import HEADS, contains, head_of
from ralph.git.repository import repository, wants_signatures

_SECONDS = 600.0
_UNSIGNED = "your commits are to be signed, and these could not be"


def fast_forward(root: Path, branch: str, commit: str, onto: str) -> Landed:
    """Move the user's branch to a commit, with their tree, if they are on it, nothing is uncommitted and it is ahead."""
    place = repository(root)
    if place is None:
        return Landed(commit, branch, notice="there is no git repository any more")
    git, merge = place.git, f"git merge {branch}"
    head = head_of(git)
    if head != onto:
        was, now = onto.removeprefix(HEADS), head.removeprefix(HEADS)
        back = f"git switch {shlex.quote(was)} && {merge}"
        return stays(commit, branch, f"HEAD is on {now[:40]}, and was on {was}", back)
    tip = git.commit()
    name = onto.removeprefix(HEADS)
    if contains(git, tip, commit):
        return Landed(commit, name, moved=True)
    if not contains(git, commit, tip):
        land = f"ralph land {branch.split('/')[1]}"
        return stays(commit, branch, f"{name} has moved since the run began", land, "merges it and runs the checks")
    if busy := under_way(place):
        return stays(commit, branch, f"{busy} is under way", merge)
    if dirty := clean_for_commit(place):
        why, then = f"{len(dirty)} file(s) in your tree have uncommitted changes", "once they are committed or stashed"
        return stays(commit, branch, why, merge, f"brings it in {then}")
    if wants_signatures(git) and _unsigned(git, tip, commit):
        return stays(commit, branch, _UNSIGNED, f"{merge} --no-ff -S")
    try:
        # Without the last word, git would write over files of theirs that are ignored.
        how = ("--ff-only", "--quiet", "--no-autostash", "--no-overwrite-ignore")
        Git(place.top, plain=True).run("merge", *how, commit, timeout=_SECONDS)
    except RalphError as error:
        if not contains(git, git.commit(), commit):
            # Where a hook of theirs forbids the step, git has written the files already: those go back, no others.
            with contextlib.suppress(RalphError):
                if git.run("write-tree").text == git.tree(commit):
                    git.run("read-tree", "-m", "-u", commit, tip)
            return stays(commit, branch, _said(error), merge)
    return Landed(commit, name, moved=True)


def push(root: Path, branch: str, commit: str, onto: str) -> Landed:
    """Push the branch of the run to where the user's branch is pushed to; nothing of theirs is moved."""
    git = Git(root)
    ours = onto.removeprefix(HEADS)
    settings = (f"branch.{ours}.pushRemote", "remote.pushDefault", f"branch.{ours}.remote")
    named = (git.run("config", "--get", setting, ok=(0, 1)).text for setting in settings)
    remotes = git.run("remote").text.split()
    remote = next((one for one in named if one not in ("", ".")), "")
    remote = remote or ("origin" if "origin" in remotes else next(iter(remotes), ""))
    by_hand, does = f"git push {shlex.quote(remote) if remote else 'REMOTE'} {branch}", "pushes it"
    if not remote:
        return stays(commit, branch, "there is no remote repository to push to", by_hand, does)
    if wants_signatures(git) and _unsigned(git, onto or "HEAD", commit):
        return stays(commit, branch, _UNSIGNED, by_hand, does)
    try:
        Git(root, plain=True).run("push", "--quiet", remote, f"{commit}:{HEADS}{branch}", timeout=_SECONDS)
    except RalphError as error:
        return stays(commit, branch, _said(error), by_hand, does)
    return Landed(commit, f"{remote}/{branch}", moved=True)


def stays(commit: str, branch: str, why: str = "", command: str = "", does: str = "brings it in") -> Landed:
    """Work that stays on its branch, because that is wanted or for a reason, and the command to type."""
    stands = f"{why}: the work stays" if why else "the work is"
    return Landed(
        commit, branch, notice=f"{stands} on the branch {branch}; `{command or f'git merge {branch}'}` {does}"
    )


def _said(error: RalphError) -> str:
    """All that git said, with the words of hooks and servers: they are the reason."""
    lines = error.said.splitlines() if isinstance(error, GitError) else []
    said = "; ".join(filter(None, (line.removeprefix("remote:").strip() for line in lines))).replace(":; ", ": ")[:400]
    return f"{error.what.partition(': ')[0]}: {said}" if said else error.what


def _unsigned(git: Git, since: str, commit: str) -> bool:
    """Whether some commit has no signature; whether one is good cannot be told where nobody said whom to trust."""
    new = git.run("rev-list", "--header", commit, "--not", since).out.rstrip(b"\0").split(b"\0")
    return any(b"\ngpgsig" not in raw.partition(b"\n\n")[0] for raw in new if raw)
