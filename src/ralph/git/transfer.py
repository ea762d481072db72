"""The content of a work tree on another machine, and the way back: bundles of git objects, without a server.

The machine that runs the turn has a mirror of the repository, which only grows, and a tree for the turn whose objects are in
the mirror. What is sent is one commit with everything that git would carry. What comes back is a commit on top of it.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ralph.core.errors import RalphError, UsageError
from ralph.core.outcomes import Outcome
from ralph.git.command import RALPH_IDENTITY, Git, Repository, disk, find_repository, list_own_paths
from ralph.git.history import HEADS, contains, read_head
from ralph.git.tree_index import clear_hidden_marks, compare_trees, stage

_OFFERED = 500
"""How many of the latest commits are offered, to find what the other machine has already."""
_NAMED = 20
_IDENTITY = ("user.name", "user.email")
_SECONDS = 3600.0


class TransferError(RalphError):
    """What a turn changed on another machine could not be brought into the work tree."""

    outcome = Outcome.FAILED


def require_sendable(path: Path) -> Repository:
    """The repository around a directory, if its content can be sent to another machine."""
    repository = find_repository(path)
    if repository is None or not repository.git.resolve_commit():
        todo = "`git init` and commit first, or run without a cluster: `--pool local`"
        raise UsageError("turns on a cluster need a git repository with a commit", where=str(path), todo=todo)
    if repository.git.run("rev-parse", "--is-shallow-repository").text == "true":
        todo = "`git fetch --unshallow`, or run without a cluster: `--pool local`"
        raise UsageError("a shallow clone cannot be sent to a cluster", where=str(path), todo=todo)
    return repository


@contextmanager
def stage_content(repository: Repository, leaving_out: Sequence[str]) -> Iterator[tuple[Git, str]]:
    """Everything in a work tree that git would carry, as an index of Ralph's own and as a tree."""
    with disk(repository.git_dir), tempfile.TemporaryDirectory(dir=repository.git_dir) as aside:
        file = Path(aside) / "index"
        if (repository.git_dir / "index").exists():
            shutil.copy2(repository.git_dir / "index", file)
        git = repository.git.with_options("core.splitIndex=false", GIT_INDEX_FILE=str(file))
        clear_hidden_marks(git)
        stage(git, tuple(leaving_out))
        yield git, git.run("write-tree").text


def commit_content(repository: Repository, leaving_out: Sequence[str], parent: str, message: str) -> str:
    """The content of a work tree as a commit on top of another; that one itself if nothing differs."""
    with stage_content(repository, leaving_out) as (git, tree):
        if tree == git.resolve_tree(parent):
            return parent
        return git.with_options(**RALPH_IDENTITY).run("commit-tree", tree, "-p", parent, "-m", message).text


def list_offered(git: Git, commit: str) -> list[str]:
    """The commits of which the other machine may have some."""
    return git.run("rev-list", f"--max-count={_OFFERED}", commit).text.split()


def find_known(git: Git, offered: Sequence[str]) -> list[str]:
    """The first of these commits that this repository has."""
    lines = git.run("cat-file", "--batch-check", stdin="\n".join(offered).encode()).text.splitlines()
    known = [line.split()[0] for line in lines if line.split()[1] == "commit"]
    return known[:_NAMED]


def write_bundle(git: Git, file: Path, ref: str, commit: str, known: Sequence[str]) -> bool:
    """Write the objects of a commit that the other side lacks into a file; False if it lacks none."""
    if commit in known:
        return False
    git.run("update-ref", ref, commit)
    git.run("bundle", "create", "--quiet", str(file), ref, *(f"^{one}" for one in known), timeout=_SECONDS)
    return True


def read_bundle(git: Git, file: Path, ref: str) -> None:
    """Take the objects of a bundle into a repository. A ref keeps them."""
    git.run("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(file), f"+{ref}:{ref}", timeout=_SECONDS)


def open_mirror(path: Path) -> Git:
    """The git command on a mirror, which is created if it is missing."""
    if not path.exists():
        partial = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        with disk(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        Git(path.parent).run("init", "--quiet", "--bare", str(partial))
        with disk(path):
            try:
                partial.rename(path)
            except OSError:
                # Another turn made it in the meantime.
                shutil.rmtree(partial, ignore_errors=True)
    return Git(path, {"GIT_DIR": str(path)})


def read_identity(git: Git) -> dict[str, str]:
    """Who commits in a repository, by git's settings."""
    found = {name: git.run("config", "--get", name, ok=(0, 1)).text for name in _IDENTITY}
    return {name: text for name, text in found.items() if text}


def check_out(
    mirror: Path, tree: Path, prefix: str, commit: str, branch: str, identity: Mapping[str, str]
) -> Repository:
    """Make a tree whose files are those of a commit. Files that git ignores stay, such as what a setup command installed.

    Its git directory is made anew, because the agent of an earlier turn may have changed it.
    """
    with disk(tree):
        tree.mkdir(parents=True, exist_ok=True, mode=0o700)
        git_dir = tree / ".git"
        if git_dir.is_symlink() or git_dir.is_file():
            git_dir.unlink()
        elif git_dir.exists():
            shutil.rmtree(git_dir)
    Git(tree.parent).run("init", "--quiet", str(tree))
    with disk(tree):
        (git_dir / "objects" / "info").mkdir(exist_ok=True)
        (git_dir / "objects" / "info" / "alternates").write_text(f"{mirror / 'objects'}\n")
        own = "".join(f"/{name}/\n" for name in list_own_paths(tree, tree / prefix))
        (git_dir / "info" / "exclude").write_text(own)
    repository = Repository(tree, git_dir, git_dir)
    git = repository.git
    for name, text in {**identity, "gc.auto": "0"}.items():
        git.run("config", name, text)
    git.run("symbolic-ref", "HEAD", HEADS + branch)
    git.run("reset", "--quiet", "--hard", commit, timeout=_SECONDS)
    git.run("clean", "--quiet", "-d", "--force")
    return repository


def commit_result(repository: Repository, sent: str, leaving_out: Sequence[str], message: str) -> tuple[str, str]:
    """What a turn left in a tree, as a commit, and the last commit that its agent made itself (or the one sent)."""
    git = repository.git
    head = git.resolve_commit()
    made = head if head and contains(git, head, sent) else sent
    return commit_content(repository, leaving_out, made, message), made


def apply_result(repository: Repository, leaving_out: Sequence[str], sent: str, result: str) -> None:
    """Bring what a turn changed elsewhere into the work tree. What the user changed in the meantime stays.

    If both changed the same lines, nothing is written, and the error says so. Asked again, it writes nothing again.
    """
    with stage_content(repository, leaving_out) as (git, now):
        target = git.resolve_tree(result)
        if now == target:
            return
        if now != git.resolve_tree(sent):
            own = git.with_options(**RALPH_IDENTITY).run("commit-tree", now, "-p", sent, "-m", "ralph: now").text
            merged = git.run("merge-tree", "--write-tree", "--no-messages", "-z", own, result, ok=(0, 1))
            if merged.code:
                both = compare_trees(git, sent, now).keys() & compare_trees(git, sent, result).keys()
                names = ", ".join(sorted(both)[:5])
                raise TransferError(f"you and the turn changed the same lines ({names})", where=str(repository.top))
            target = merged.names[0]
        git.run("read-tree", "-m", "-u", now, target, timeout=_SECONDS)


def take_commits(repository: Repository, sent: str, made: str) -> None:
    """Move the branch of a task's worktree to the commits that the agent made elsewhere, if they continue it."""
    git, ref = repository.git, read_head(repository.git)
    if ref.startswith(f"{HEADS}ralph/") and made != sent and git.resolve_commit() == sent:
        git.run("update-ref", "-m", "ralph: commits of the turn", ref, made, sent)
