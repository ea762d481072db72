"""Linked worktrees that leave the user's own tree alone: one for a whole run, one for each of its tasks, one to merge in."""

import fcntl
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ralph.core.errors import UsageError
from ralph.git.command import Git, GitError, disk
from ralph.git.history import HEADS, PINS
from ralph.git.index import CACHES
from ralph.git.repository import Repository, hide, own_paths, repository
from ralph.git.submodules import changed_submodules, fill_submodules, hand_submodules_on

PLACE = ".ralph/worktrees"
_NAME = re.compile(r"(?!run/)[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[0-9]{1,6}")
"""`run` is what the branch of the run itself is called."""
_QUICK = ("checkout.workers=0", "checkout.thresholdForParallelism=200")


@dataclass(frozen=True)
class Worktree:
    """A linked worktree of Ralph's."""

    root: Path
    path: Path
    workspace: Path
    """What `root` is in the main tree: the worktree itself, or the same subdirectory of it."""
    branch: str
    """Its branch; empty where it is on none."""
    notices: tuple[str, ...] = ()

    @property
    def run(self) -> str:
        """The run that it belongs to."""
        return self.path.name.partition(".")[0]

    @property
    def name(self) -> str:
        """The task and the attempt, as `task/attempt`; empty for that of the whole run."""
        return self.path.name.partition(".")[2].replace(".", "/")


@dataclass(frozen=True)
class Removal:
    """Whether a worktree was removed, and if not, why; true when it was."""

    why_not: str = ""

    def __bool__(self) -> bool:
        return not self.why_not


def branch_of(run: str) -> str:
    """The branch on which the work of a run comes together."""
    return f"ralph/{run}/run"


def stand_ref(branch: str) -> str:
    """The note of where the merges of a run have come to: no agent comes by there, as one may by the branch."""
    return f"refs/ralph-work/{branch.removeprefix('ralph/')}"


def ensure_worktree(root: Path, run: str) -> Worktree:
    """The worktree of a run at `.ralph/worktrees/<run>`: a new one from HEAD, or the one it already has."""
    place = _place(root)
    git, path = Git(place.top), root.resolve() / PLACE / run
    fresh = _made(place, path, branch_of(run), "HEAD")
    dirty = _uncommitted(git) if fresh else 0
    notices = (f"{dirty} uncommitted change(s) in {place.top} are not in the worktree",) if dirty else ()
    return _worktree(place, root, path, branch_of(run), notices)


def can_have_worktrees(root: Path) -> bool:
    """Whether there can be worktrees at all: there is git, a repository, and a commit in it."""
    place = repository(root) if shutil.which("git") else None
    return place is not None and bool(Git(place.top).commit())


def create_branch(root: Path, run: str) -> tuple[str, str, tuple[str, ...]]:
    """The branch of a run whose tasks have worktrees: its name, where it begins, and what a person should know."""
    place, branch = _place(root), branch_of(run)
    git = Git(place.top)
    if not git.commit(HEADS + branch):
        git.run("update-ref", stand_ref(branch), "HEAD")
        git.run("update-ref", "-m", "ralph: begin", HEADS + branch, "HEAD", "")
    dirty = _uncommitted(git)
    notices = (f"{dirty} uncommitted change(s) in {place.top} are not part of the run",) if dirty else ()
    return branch, git.commit(HEADS + branch), notices


def create_for_task(root: Path, run: str, name: str, start: str) -> Worktree:
    """The worktree of one attempt at a task, `<task>/<attempt>`: a new one from a commit, or the one it already has."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a workspace", todo="use letters, digits, - and _, then /1")
    place = _place(root)
    tree = of_task(place, root, run, name)
    _made(place, tree.path, tree.branch, start)
    return tree


def of_task(place: Repository, root: Path, run: str, name: str) -> Worktree:
    """The worktree of one attempt at a task, whether it is there or not."""
    path = root.resolve() / PLACE / f"{run}.{name.replace('/', '.')}"
    return _worktree(place, root, path, f"ralph/{run}/{name}")


def create_scratch(root: Path, run: str, start: str) -> Worktree:
    """The worktree in which a run tries its merges, on no branch."""
    place, path = _place(root), root.resolve() / PLACE / f"{run}.merge"
    _made(place, path, "", start)
    return _worktree(place, root, path, "")


def find_worktrees(root: Path) -> list[Worktree]:
    """The worktrees of Ralph's in a project, as git knows them."""
    place, root = repository(root), root.resolve()
    if place is None:
        return []
    trees = []
    for record in Git(place.top).run("worktree", "list", "--porcelain").text.split("\n\n"):
        lines = dict(line.partition(" ")[::2] for line in record.split("\n"))
        path = Path(lines.get("worktree", ""))
        if path.parent == root / PLACE:
            run, _, name = path.name.partition(".")
            trees.append(_worktree(place, root, path, _branch_in(run, name)))
    return trees


def _branch_in(run: str, name: str) -> str:
    """The branch of the worktree of that name; the one in which merges are tried has none."""
    if name == "merge":
        return ""
    return f"ralph/{run}/{name.replace('.', '/')}" if name else branch_of(run)


def hand_submodules_over(root: Path, run: str, commit: str) -> None:
    """Give the user's submodules what a commit of a run names, from the worktrees of the run that have it."""
    for tree in find_worktrees(root):
        if tree.run == run and tree.path.exists():
            hand_submodules_on(Git(tree.path), commit, Git(_top(tree)))


def removable(tree: Worktree, *into: str, leaving_out: Sequence[str] = ()) -> Removal:
    """Whether a worktree can be removed without losing work: all of it must be in HEAD, or in other branches."""
    main = Git(tree.root)
    tips = _tips(main, tree)
    branch = list(tips)
    if tree.path.exists():
        try:
            git = whole(tree).git
        except UsageError:
            return Removal(f"{tree.path} is no worktree any more: see what is in it, and delete it by hand")
        if tree.branch and (dirty := _uncommitted(git, leaving_out)):
            return Removal(f"{dirty} uncommitted change(s) in {tree.path}")
        if changed := changed_submodules(git, Git(_top(tree))):
            return Removal(f"work in the submodule {changed[0]} of {tree.path}")
        tips.append(git.commit())
    ahead = int(main.run("rev-list", "--count", *tips, "--not", "HEAD", *into).text) if tips and tree.branch else 0
    if not ahead:
        return Removal()
    tip = tree.branch if tips[-1] in branch else tips[-1]
    drop = [f"git worktree remove --force {shlex.quote(str(tree.path))}"] if tree.path.exists() else []
    drop += [f"git branch -D {tree.branch}"] if branch else []
    told = f"`git merge {tip}` takes them, `{' && '.join(drop)}` drops them"
    return Removal(f"{ahead} commit(s) are not merged: {told}")


def remove(tree: Worktree, *into: str, leaving_out: Sequence[str] = ()) -> Removal:
    """Remove a worktree and its branch, unless that would lose work."""
    main, removal = Git(tree.root), removable(tree, *into, leaving_out=leaving_out)
    if not removal:
        return removal
    branch = _tips(main, tree)
    try:
        if tree.path.exists():
            claimed(tree)
        if _is_known(tree):
            # What is left in it is ignored, was copied into it, or is in the branch.
            with _alone(main):
                main.run("worktree", "remove", "--force", str(tree.path), timeout=3600)
    except GitError as error:
        return Removal(error.what)
    if branch:
        main.run("update-ref", "-d", HEADS + tree.branch, *branch)
    return removal


def forget(root: Path, run: str) -> list[str]:
    """Delete the refs and branches of a run that is over; branches whose work is not in HEAD stay, and are named."""
    if not can_have_worktrees(root):
        return []
    git, kept = Git(root), []
    own = (
        f"refs/ralph/{run}",
        f"{PINS}{run}",
        f"refs/ralph-work/{run}",
        f"refs/ralph-left/{run}",
        f"{HEADS}ralph/{run}",
    )
    for line in git.run("for-each-ref", "--format=%(objectname) %(refname) %(worktreepath)", *own).text.splitlines():
        sha, ref, place = line.split(" ", 2)
        if ref.startswith(HEADS) and git.run("rev-list", "--max-count=1", sha, "--not", "HEAD").out:
            kept.append(f"the branch {ref.removeprefix(HEADS)}: it is not merged")
        elif not place:
            git.run("update-ref", "-d", ref, sha)
    return kept


def _top(tree: Worktree) -> Path:
    """What the worktree is of: the top of the main tree."""
    inside = tree.workspace.relative_to(tree.path)
    return Path(str(tree.root).removesuffix(str(inside))) if inside.parts else tree.root


def _tips(main: Git, tree: Worktree) -> list[str]:
    """Where the branch of a worktree stands, if it has one."""
    return main.run("for-each-ref", "--format=%(objectname)", HEADS + tree.branch).text.split() if tree.branch else []


def _place(root: Path) -> Repository:
    root = root.resolve()
    place = repository(root)
    if place is None:
        todo = "go to where its files are, `git init` and commit first, or run without `--worktree`"
        raise UsageError("a worktree needs a git repository with its files", where=str(root), todo=todo)
    if not Git(place.top).commit():
        todo = "make a first commit, or run without `--worktree`"
        raise UsageError("a worktree needs a commit to start from", where=str(root), todo=todo)
    hide(place.common, own_paths(place.top, root))
    return place


def _worktree(place: Repository, root: Path, path: Path, branch: str, notices: tuple[str, ...] = ()) -> Worktree:
    root = root.resolve()
    return Worktree(root=root, path=path, workspace=path / root.relative_to(place.top), branch=branch, notices=notices)


def _made(place: Repository, path: Path, branch: str, start: str) -> bool:
    """Make a worktree where it is not there and whole; what a kill left of its making is cleared away."""
    git = Git(place.top)
    records = git.run("worktree", "list", "--porcelain").text.split("\n\n")
    lines = next((record.split("\n") for record in records if record.startswith(f"worktree {path}\n")), [])
    if lines and (not path.exists() or "locked initializing" in lines):
        with _alone(git):
            git.run("worktree", "remove", "--force", "--force", str(path))
        lines = []
    elif not lines and path.exists() and (not path.is_dir() or any(path.iterdir())):
        todo = f"`git worktree repair {path}` if the project was moved, else move that directory away"
        raise UsageError("a directory is where the worktree belongs", where=str(path), todo=todo)
    if lines:
        if notes := _notes(place.common, path):
            _mend(path, notes)
        return False
    if branch and not git.commit(HEADS + branch):
        git.run("branch", "--no-track", branch, start)
    what = (str(path), branch) if branch else ("--detach", str(path), start)
    # Locked until its files are there: of what a kill leaves, it is known that nobody has worked in it.
    with _alone(git):
        git.run("worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", "initializing", *what)
    own = Git(path)
    own.adding(*_QUICK).run("reset", "--quiet", "--hard", timeout=3600)
    fill_submodules(git, own)
    git.run("worktree", "unlock", str(path))
    return True


@contextmanager
def _alone(git: Git) -> Iterator[None]:
    """Git stumbles over worktrees that are half made or half gone: one is made or removed at a time, by all runs."""
    common = Path(git.run("rev-parse", "--path-format=absolute", "--git-common-dir").text)
    with disk(common), (common / "ralph-worktrees.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _uncommitted(git: Git, leaving_out: Sequence[str] = ()) -> int:
    others = [f":(top,exclude,glob)**/{name}" for name in CACHES]
    others += [f":(top,exclude,literal){path}" for path in leaving_out]
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all")
    return len(git.run(*status, "--", ":/", *others).names)


def whole(tree: Worktree) -> Repository:
    """A worktree by what git has written down of it: by its own `.git` one might come to the user's tree."""
    place = repository(tree.root)
    notes = _notes(place.common, tree.path) if place else None
    if place is None or notes is None or not tree.path.is_dir():
        raise UsageError("the worktree is gone", where=str(tree.path), todo="`git worktree list` shows those left")
    return Repository(tree.path, notes, place.common)


def claimed(tree: Worktree) -> Repository:
    """The same, to be changed: the agents that had it to themselves have ended, and a lock is one that a kill left."""
    place = whole(tree)
    _mend(tree.path, place.git_dir)
    with disk(place.git_dir):
        (place.git_dir / "index.lock").unlink(missing_ok=True)
    return place


def _is_known(tree: Worktree) -> bool:
    place = repository(tree.root)
    return place is not None and _notes(place.common, tree.path) is not None


def _notes(common: Path, path: Path) -> Path | None:
    """The directory in which git keeps what it knows of a worktree."""
    for file in (common / "worktrees").glob("*/gitdir"):
        try:
            leads = os.fsdecode(file.read_bytes()).rstrip("\n")
        except OSError:
            continue  # another one, that is just being removed
        if os.path.normpath(file.parent / leads) == str(path / ".git"):
            return file.parent
    return None


def _mend(path: Path, notes: Path) -> None:
    """Have a worktree lead to its repository again; what an agent put in the place of that goes aside."""
    file = path / ".git"
    with disk(path):
        if file.is_file() and not file.is_symlink():
            leads = os.fsdecode(file.read_bytes()).rstrip("\n").removeprefix("gitdir: ")
            if (path / leads).resolve() == notes.resolve():
                return
        if os.path.lexists(file):
            shutil.move(file, notes / f"found-{os.urandom(4).hex()}")
        file.write_bytes(os.fsencode(f"gitdir: {notes}\n"))
