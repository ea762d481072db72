"""A linked worktree for a run that leaves the user's own tree alone."""

from dataclasses import dataclass
from pathlib import Path

from ralph.core.errors import UsageError
from ralph.git.command import Git, GitError, disk
from ralph.git.index import stage
from ralph.git.repository import hide, identity, own_paths, repository


@dataclass(frozen=True)
class Worktree:
    """A linked worktree in which one run works on a branch of its own."""

    root: Path
    path: Path
    workspace: Path
    """What `root` is in the main tree: the worktree itself, or the same subdirectory of it."""
    branch: str
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Removal:
    """Whether a worktree was removed, and if not, why; true when it was."""

    why_not: str = ""

    def __bool__(self) -> bool:
        return not self.why_not


def create(root: Path, run: str) -> Worktree:
    """The worktree of a run at `.ralph/worktrees/<run>`: a new one from HEAD, or the one it already has."""
    root = root.resolve()
    place, git = repository(root), Git(root)
    if place is None:
        todo = "`git init` and commit first, or run without `--worktree`"
        raise UsageError("a worktree needs a git repository", where=str(root), todo=todo)
    if git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", ok=(0, 1)).code:
        todo = "make a first commit, or run without `--worktree`"
        raise UsageError("a worktree needs a commit to start from", where=str(root), todo=todo)
    hide(place.common, own_paths(place.top, root))
    path, branch = root / ".ralph" / "worktrees" / run, f"ralph/{run}/run"
    notices: tuple[str, ...] = ()
    if not _usable(git, path):
        _add(git, path, branch)
        dirty = _uncommitted(git)
        notices = (f"{dirty} uncommitted change(s) in {place.top} are not in the worktree",) if dirty else ()
    return Worktree(root, path, path / root.relative_to(place.top), branch, notices)


def _usable(git: Git, path: Path) -> bool:
    """Whether the worktree is there and whole; what a kill left of its making is cleared away."""
    records = git.run("worktree", "list", "--porcelain").text.split("\n\n")
    lines = next((record.split("\n") for record in records if record.startswith(f"worktree {path}\n")), [])
    if lines and (not path.exists() or "locked initializing" in lines):
        git.run("worktree", "remove", "--force", "--force", str(path))
        return False
    if path.exists() and not (lines and (path / ".git").exists()):
        todo = f"`git worktree repair {path}` if the project was moved, else move that directory away"
        raise UsageError("a directory is where the worktree belongs", where=str(path), todo=todo)
    return bool(lines)


def _add(git: Git, path: Path, branch: str) -> None:
    known = git.run("show-ref", "--verify", "--quiet", f"refs/heads/{branch}", ok=(0, 1)).code == 0
    what = (str(path), branch) if known else ("-b", branch, str(path), "HEAD")
    git.run("worktree", "add", "--quiet", *what, timeout=3600)


def _uncommitted(git: Git) -> int:
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
    return len(git.run(*status).names)


def commit_all(worktree: Worktree, message: str) -> str | None:
    """Commit everything in the worktree, so that nothing is lost with it; None if all is committed."""
    git, place = Git(worktree.path), repository(worktree.path)
    if place is None or place.top != worktree.path:
        todo = "`git worktree list` shows those left"
        raise UsageError("the worktree is gone", where=str(worktree.path), todo=todo)
    with disk(place.git_dir):
        # The agents that had this worktree to themselves have ended: a lock is one that a kill left.
        (place.git_dir / "index.lock").unlink(missing_ok=True)
    stage(git)
    if git.run("diff-index", "--cached", "--quiet", "HEAD", ok=(0, 1)).code == 0:
        return None
    # Hooks are for work that claims to be right; this saves work as it is, with nobody there to answer.
    commit = ("commit", "--quiet", "--no-verify", "--cleanup=whitespace", "--file=-")
    text = f"{message.rstrip()}\n\nRalph-Run: {worktree.path.name}\n"
    git.adding(**identity(git)).run(*commit, stdin=text.encode(errors="replace"))
    return git.run("rev-parse", "HEAD").text


def remove(worktree: Worktree) -> Removal:
    """Remove a worktree and its branch, unless that would lose work."""
    main, ref = Git(worktree.root), f"refs/heads/{worktree.branch}"
    branch = main.run("for-each-ref", "--format=%(objectname)", ref).text.split()
    tips = list(branch)
    if worktree.path.exists():
        git = Git(worktree.path)
        if dirty := _uncommitted(git):
            return Removal(f"{dirty} uncommitted change(s) in {worktree.path}")
        tips.append(git.run("rev-parse", "HEAD").text)
    ahead = int(main.run("rev-list", "--count", *tips, "--not", "HEAD").text)
    if ahead:
        tip = worktree.branch if tips[-1] in branch else tips[-1]
        return Removal(f"{ahead} commit(s) are not merged: `git merge {tip}`, or delete them by hand")
    try:
        main.run("worktree", "remove", str(worktree.path), ok=(0,) if worktree.path.exists() else (0, 128))
    except GitError as error:
        return Removal(error.what)
    main.run("update-ref", "-d", ref, *branch)
    return Removal()
