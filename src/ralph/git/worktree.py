"""Linked worktrees that leave the user's own tree alone: one for a whole run, one for each task, one for merges.

Their submodules are cloned from the copies in another tree, without a server.
"""

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
from ralph.core.text import count, count_are
from ralph.git.command import Git, GitError, Repository, disk, exclude_paths, find_repository, list_own_paths
from ralph.git.history import HEADS, PINS
from ralph.git.tree_index import CACHES

WORKTREES = ".ralph/worktrees"
_NAME = re.compile(r"(?!run/)[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[0-9]{1,6}")
"""A task and an attempt. `run` is reserved: the branch of the run itself is called that."""
_QUICK = ("checkout.workers=0", "checkout.thresholdForParallelism=200")


@dataclass(frozen=True)
class Worktree:
    """A linked worktree of Ralph's."""

    root: Path
    path: Path
    workspace: Path
    """The directory in the worktree that `root` is in the main tree."""
    branch: str
    """Its branch; empty if it is on none."""
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
    """Whether a worktree was removed; true if it was."""

    why_not: str = ""

    def __bool__(self) -> bool:
        return not self.why_not


def run_branch(run: str) -> str:
    """The branch onto which the tasks of a run are merged."""
    return f"ralph/{run}/run"


def position_ref(branch: str) -> str:
    """The ref that records the last merge of a run. Agents move branches by accident, but not a ref outside of `refs/heads`."""
    return f"refs/ralph-work/{branch.removeprefix('ralph/')}"


def ensure_worktree(root: Path, run: str) -> Worktree:
    """The worktree of a run at `.ralph/worktrees/<run>`: a new one from HEAD, or the one it already has."""
    repository = _require_repository(root)
    git, path = Git(repository.top), root.resolve() / WORKTREES / run
    fresh = _make(repository, path, run_branch(run), "HEAD")
    dirty = _count_uncommitted(git) if fresh else 0
    notice = f"{count_are(dirty, 'uncommitted change')} not in the worktree: see `git status` in {repository.top}"
    return _build_worktree(repository, root, path, run_branch(run), notices=(notice,) if dirty else ())


def can_have_worktrees(root: Path) -> bool:
    """Whether there is git, a repository, and a commit in it."""
    repository = find_repository(root) if shutil.which("git") else None
    return repository is not None and bool(Git(repository.top).resolve_commit())


def create_branch(root: Path, run: str) -> tuple[str, str, tuple[str, ...]]:
    """Create the branch of a run whose tasks have worktrees; return its name, its first commit, and notices."""
    repository, branch = _require_repository(root), run_branch(run)
    git = Git(repository.top)
    if not git.resolve_commit(HEADS + branch):
        git.run("update-ref", position_ref(branch), "HEAD")
        git.run("update-ref", "-m", "ralph: begin", HEADS + branch, "HEAD", "")
    dirty = _count_uncommitted(git)
    notice = f"{count_are(dirty, 'uncommitted change')} not part of the run: see `git status` in {repository.top}"
    return branch, git.resolve_commit(HEADS + branch), (notice,) if dirty else ()


def create_for_task(root: Path, run: str, name: str, start: str) -> Worktree:
    """The worktree of one attempt at a task, `<task>/<attempt>`: a new one from a commit, or the one it already has."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a workspace", todo="use letters, digits, - and _, then /1")
    repository = _require_repository(root)
    tree = locate_task_worktree(repository, root, run, name)
    _make(repository, tree.path, tree.branch, start)
    return tree


def locate_task_worktree(repository: Repository, root: Path, run: str, name: str) -> Worktree:
    """The worktree of one attempt at a task, whether it exists or not."""
    path = root.resolve() / WORKTREES / f"{run}.{name.replace('/', '.')}"
    return _build_worktree(repository, root, path, f"ralph/{run}/{name}")


def create_scratch(root: Path, run: str, start: str) -> Worktree:
    """The scratch worktree for the merges of a run, with a detached HEAD."""
    repository, path = _require_repository(root), root.resolve() / WORKTREES / f"{run}.merge"
    _make(repository, path, "", start)
    return _build_worktree(repository, root, path, "")


def find_worktrees(root: Path) -> list[Worktree]:
    """The worktrees of Ralph in a project, from `git worktree list`."""
    repository, root = find_repository(root), root.resolve()
    if repository is None:
        return []
    trees = []
    for record in Git(repository.top).run("worktree", "list", "--porcelain").text.split("\n\n"):
        lines = dict(line.partition(" ")[::2] for line in record.split("\n"))
        path = Path(lines.get("worktree", ""))
        if path.parent == root / WORKTREES:
            run, _, name = path.name.partition(".")
            trees.append(_build_worktree(repository, root, path, _name_branch(run, name)))
    return trees


def _name_branch(run: str, name: str) -> str:
    """The branch of the worktree of that name; empty for the scratch worktree."""
    if name == "merge":
        return ""
    return f"ralph/{run}/{name.replace('.', '/')}" if name else run_branch(run)


def give_submodules_to_user(root: Path, run: str, commit: str) -> None:
    """Copy the submodule commits that a commit of a run names from its worktrees into the user's submodules."""
    for tree in find_worktrees(root):
        if tree.run == run and tree.path.exists():
            copy_submodule_commits(Git(tree.path), commit, Git(_find_top(tree)))


def check_removable(tree: Worktree, *into: str, leaving_out: Sequence[str] = ()) -> Removal:
    """Whether a worktree can be removed without losing work: all of it must be in HEAD, or in other branches."""
    main = Git(tree.root)
    tips = _list_branch_tips(main, tree)
    branch = list(tips)
    if tree.path.exists():
        try:
            git = open_worktree(tree).git
        except UsageError:
            return Removal(f"{tree.path} is no longer a worktree: look at its files, and delete it yourself")
        if tree.branch and (dirty := _count_uncommitted(git, leaving_out)):
            return Removal(f"{count(dirty, 'uncommitted change')} in {tree.path}")
        if changed := find_changed_submodules(git, Git(_find_top(tree))):
            return Removal(f"work in the submodule {changed[0]} of {tree.path}")
        tips.append(git.resolve_commit())
    ahead = int(main.run("rev-list", "--count", *tips, "--not", "HEAD", *into).text) if tips and tree.branch else 0
    if not ahead:
        return Removal()
    tip = tree.branch if tips[-1] in branch else tips[-1]
    drop = [f"git worktree remove --force {shlex.quote(str(tree.path))}"] if tree.path.exists() else []
    drop += [f"git branch -D {tree.branch}"] if branch else []
    them = "it" if ahead == 1 else "them"
    return Removal(
        f"{count_are(ahead, 'commit')} not merged: `git merge {tip}` merges {them}, `{' && '.join(drop)}` deletes {them}"
    )


def remove(tree: Worktree, *into: str, leaving_out: Sequence[str] = ()) -> Removal:
    """Remove a worktree and its branch, unless that would lose work."""
    main, removal = Git(tree.root), check_removable(tree, *into, leaving_out=leaving_out)
    if not removal:
        return removal
    branch = _list_branch_tips(main, tree)
    try:
        if tree.path.exists():
            claim_worktree(tree)
        if _is_known(tree):
            # What is left in it is ignored, was copied into it, or is on the branch.
            with _worktree_lock(main):
                main.run("worktree", "remove", "--force", str(tree.path), timeout=3600)
    except GitError as error:
        return Removal(error.what)
    if branch:
        main.run("update-ref", "-d", HEADS + tree.branch, *branch)
    return removal


def delete_run_refs(root: Path, run: str) -> list[str]:
    """Delete the refs and branches of a run that is over. Return a notice for each branch that stays because it is not merged."""
    if not can_have_worktrees(root):
        return []
    git, notices = Git(root), []
    own = (
        f"refs/ralph/{run}",
        f"{PINS}{run}",
        f"refs/ralph-work/{run}",
        f"refs/ralph-left/{run}",
        f"{HEADS}ralph/{run}",
    )
    for line in git.run("for-each-ref", "--format=%(objectname) %(refname) %(worktreepath)", *own).text.splitlines():
        sha, ref, checked_out_in = line.split(" ", 2)
        if ref.startswith(HEADS) and git.run("rev-list", "--max-count=1", sha, "--not", "HEAD").out:
            notices.append(f"the branch {ref.removeprefix(HEADS)}: it is not merged")
        elif not checked_out_in:
            git.run("update-ref", "-d", ref, sha)
    return notices


def _find_top(tree: Worktree) -> Path:
    """The top of the main tree, of which this is a worktree."""
    inside = tree.workspace.relative_to(tree.path)
    return Path(str(tree.root).removesuffix(str(inside))) if inside.parts else tree.root


def _list_branch_tips(main: Git, tree: Worktree) -> list[str]:
    """The tip of the branch of a worktree, if it has one."""
    return main.run("for-each-ref", "--format=%(objectname)", HEADS + tree.branch).text.split() if tree.branch else []


def _require_repository(root: Path) -> Repository:
    root = root.resolve()
    repository = find_repository(root)
    if repository is None:
        todo = "go to the directory with its files, `git init` and commit first, or run without `--worktree`"
        raise UsageError("a worktree needs a git repository with its files", where=str(root), todo=todo)
    if not Git(repository.top).resolve_commit():
        todo = "make a first commit, or run without `--worktree`"
        raise UsageError("a worktree needs a commit to start from", where=str(root), todo=todo)
    exclude_paths(repository.common, list_own_paths(repository.top, root))
    return repository


def _build_worktree(
    repository: Repository, root: Path, path: Path, branch: str, notices: tuple[str, ...] = ()
) -> Worktree:
    root = root.resolve()
    return Worktree(
        root=root, path=path, workspace=path / root.relative_to(repository.top), branch=branch, notices=notices
    )


def _make(repository: Repository, path: Path, branch: str, start: str) -> bool:
    """Create a worktree if it is missing or a kill left it incomplete; return whether it is new."""
    git = Git(repository.top)
    records = git.run("worktree", "list", "--porcelain").text.split("\n\n")
    lines = next((record.split("\n") for record in records if record.startswith(f"worktree {path}\n")), [])
    if lines and (not path.exists() or "locked initializing" in lines):
        with _worktree_lock(git):
            git.run("worktree", "remove", "--force", "--force", str(path))
        lines = []
    elif not lines and path.exists() and (not path.is_dir() or any(path.iterdir())):
        todo = f"`git worktree repair {path}` if the project was moved; otherwise move that directory away"
        raise UsageError("another directory is at the path of the worktree", where=str(path), todo=todo)
    if lines:
        if notes := _find_git_directory(repository.common, path):
            _repair_link(path, notes)
        return False
    if branch and not git.resolve_commit(HEADS + branch):
        git.run("branch", "--no-track", branch, start)
    what = (str(path), branch) if branch else ("--detach", str(path), start)
    # Locked until its files are there: no turn has worked in a worktree that a kill leaves in this state.
    with _worktree_lock(git):
        git.run("worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", "initializing", *what)
    own = Git(path)
    own.with_options(*_QUICK).run("reset", "--quiet", "--hard", timeout=3600)
    fill_submodules(git, own)
    git.run("worktree", "unlock", str(path))
    return True


@contextmanager
def _worktree_lock(git: Git) -> Iterator[None]:
    """Let one process of all runs create or remove a worktree at a time: git fails if it finds an incomplete one."""
    common = Path(git.run("rev-parse", "--path-format=absolute", "--git-common-dir").text)
    with disk(common), (common / "ralph-worktrees.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _count_uncommitted(git: Git, leaving_out: Sequence[str] = ()) -> int:
    others = [f":(top,exclude,glob)**/{name}" for name in CACHES]
    others += [f":(top,exclude,literal){path}" for path in leaving_out]
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all")
    return len(git.run(*status, "--", ":/", *others).names)


def open_worktree(tree: Worktree) -> Repository:
    """The repository of a worktree, from the main git directory. An agent may have changed the worktree's own `.git` file."""
    repository = find_repository(tree.root)
    notes = _find_git_directory(repository.common, tree.path) if repository else None
    if repository is None or notes is None or not tree.path.is_dir():
        raise UsageError("the worktree is gone", where=str(tree.path), todo="`git worktree list` shows those left")
    return Repository(tree.path, notes, repository.common)


def claim_worktree(tree: Worktree) -> Repository:
    """The same, for changes. The agents that worked in it have ended, so a lock was left by a killed git."""
    repository = open_worktree(tree)
    _repair_link(tree.path, repository.git_dir)
    with disk(repository.git_dir):
        (repository.git_dir / "index.lock").unlink(missing_ok=True)
    return repository


def _is_known(tree: Worktree) -> bool:
    repository = find_repository(tree.root)
    return repository is not None and _find_git_directory(repository.common, tree.path) is not None


def _find_git_directory(common: Path, path: Path) -> Path | None:
    """The git directory of a worktree: `.git/worktrees/NAME` of the main repository."""
    for file in (common / "worktrees").glob("*/gitdir"):
        try:
            target = os.fsdecode(file.read_bytes()).rstrip("\n")
        except OSError:
            continue  # another process is removing this one
        if os.path.normpath(file.parent / target) == str(path / ".git"):
            return file.parent
    return None


def _repair_link(path: Path, notes: Path) -> None:
    """Repair the `.git` file of a worktree. What an agent put there instead is moved into the git directory."""
    file = path / ".git"
    with disk(path):
        if file.is_file() and not file.is_symlink():
            target = os.fsdecode(file.read_bytes()).rstrip("\n").removeprefix("gitdir: ")
            if (path / target).resolve() == notes.resolve():
                return
        if os.path.lexists(file):
            shutil.move(file, notes / f"found-{os.urandom(4).hex()}")
        file.write_bytes(os.fsencode(f"gitdir: {notes}\n"))


_LOCAL = "protocol.file.allow=always"


def fill_submodules(other: Git, tree: Git) -> None:
    """Check out the submodules that are checked out in another tree, at the commits that this tree names."""
    for name, path in list_submodules(tree):
        source = _find_submodule_repository(other.cwd / path)
        if source is None:
            continue
        try:
            if (tree.cwd / path / ".git").exists():
                _fetch(tree, path, source)
            else:
                _clone(tree, name, path, source)
        except GitError:
            # The copy lacks the commit. The setup commands of the user may fetch it.
            continue
        fill_submodules(Git(other.cwd / path), Git(tree.cwd / path))


def copy_submodule_commits(tree: Git, commit: str, other: Git) -> None:
    """Copy the submodule commits that a commit names into the submodules of another tree.

    Nothing is checked out there. A ref keeps them from garbage collection.
    """
    for _, path in list_submodules(tree):
        source, target = _find_submodule_repository(tree.cwd / path), _find_submodule_repository(other.cwd / path)
        wanted = tree.run("rev-parse", "-q", "--verify", f"{commit}:{path}", ok=(0, 1, 128)).text
        if not (source and target and wanted and _has(source, wanted)):
            continue
        theirs = Git(other.cwd / path)
        if not _has(target, wanted):
            refs = f"{wanted}:refs/ralph-work/{wanted}"
            theirs.with_options(_LOCAL).run("fetch", "--quiet", "--no-tags", str(source), refs, timeout=3600)
        copy_submodule_commits(Git(tree.cwd / path), wanted, theirs)


def find_changed_submodules(tree: Git, other: Git) -> list[str]:
    """The submodules of a worktree with uncommitted files, or commits that another tree lacks."""
    changed = []
    for _, path in list_submodules(tree):
        own, theirs = tree.cwd / path, other.cwd / path
        if (own / ".git").exists() and (_has_work(Git(own), theirs) or find_changed_submodules(Git(own), Git(theirs))):
            changed.append(path)
    return changed


def list_submodules(tree: Git) -> list[tuple[str, str]]:
    """The submodules of a tree by name and path."""
    if not (tree.cwd / ".gitmodules").is_file():
        return []
    which = ("--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    pairs = [entry.partition("\n")[::2] for entry in tree.run("config", "-z", *which, ok=(0, 1)).names]
    return [(key.removeprefix("submodule.").removesuffix(".path"), path) for key, path in pairs]


def _find_submodule_repository(path: Path) -> Path | None:
    """The git directory of a submodule, if it is checked out at a path."""
    repository = find_repository(path) if (path / ".git").exists() else None
    return repository.git_dir if repository and repository.top == path.resolve() else None


def _clone(tree: Git, name: str, path: str, source: Path) -> None:
    url = tree.run("config", "--get", f"submodule.{name}.url", ok=(0, 1)).text
    local = tree.with_options(f"submodule.{name}.url={source}", _LOCAL)
    local.run("submodule", "--quiet", "update", "--init", "--", path, timeout=3600)
    if url:
        Git(tree.cwd / path).run("remote", "set-url", "origin", url, ok=(0, 2, 128))


def _fetch(tree: Git, path: str, source: Path) -> None:
    """Update a submodule that is there to the commit that the tree names."""
    own, wanted = Git(tree.cwd / path), tree.run("rev-parse", "-q", "--verify", f":{path}", ok=(0, 1, 128)).text
    if not wanted or own.resolve_commit() == wanted:
        return
    if own.run("cat-file", "-e", f"{wanted}^{{commit}}", ok=(0, 1, 128)).code:
        own.with_options(_LOCAL).run("fetch", "--quiet", "--no-tags", str(source), wanted, timeout=3600)
    own.run("checkout", "--quiet", "--force", "--detach", wanted)


def _has_work(git: Git, other: Path) -> bool:
    if git.run("status", "--porcelain", "-z", "--untracked-files=normal").out:
        return True
    tips = git.run("for-each-ref", "--format=%(objectname)", "refs/heads").text.split()
    tips += git.resolve_commit().split()
    ours = [tip for tip in set(tips) if git.run("rev-list", "--max-count=1", tip, "--not", "--remotes", "--tags").out]
    source = _find_submodule_repository(other)
    return any(source is None or not _has(source, tip) for tip in ours)


def _has(source: Path, commit: str) -> bool:
    git = Git(source, {"GIT_DIR": str(source)})
    return git.run("cat-file", "-e", f"{commit}^{{commit}}", ok=(0, 1, 128)).code == 0
