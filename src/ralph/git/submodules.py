"""Submodules in worktrees: filled from the copies that another tree has, without asking anybody's server."""

from pathlib import Path

from ralph.git.command import Git, GitError
from ralph.git.repository import repository

_LOCAL = "protocol.file.allow=always"


def fill_submodules(other: Git, tree: Git) -> None:
    """Check out in a worktree the submodules that are checked out in another tree, at the commits that it names."""
    for name, path in submodules(tree):
        source = _copy(other.cwd / path)
        if source is None:
            continue
        try:
            if (tree.cwd / path / ".git").exists():
                _fetch(tree, path, source)
            else:
                _clone(tree, name, path, source)
        except GitError:
            # Its commit is not in that copy: the set-up commands of the user may know where to get it.
            continue
        fill_submodules(Git(other.cwd / path), Git(tree.cwd / path))


def hand_submodules_on(tree: Git, commit: str, other: Git) -> None:
    """Give the copies of another tree the commits that one of ours names, which only a worktree may have.

    Nothing is checked out there; a ref keeps them.
    """
    for _, path in submodules(tree):
        source, target = _copy(tree.cwd / path), _copy(other.cwd / path)
        wanted = tree.run("rev-parse", "-q", "--verify", f"{commit}:{path}", ok=(0, 1, 128)).text
        if not (source and target and wanted and _has(source, wanted)):
            continue
        theirs = Git(other.cwd / path)
        if not _has(target, wanted):
            refs = f"{wanted}:refs/ralph-work/{wanted}"
            theirs.adding(_LOCAL).run("fetch", "--quiet", "--no-tags", str(source), refs, timeout=3600)
        hand_submodules_on(Git(tree.cwd / path), wanted, theirs)


def changed_submodules(tree: Git, other: Git) -> list[str]:
    """The submodules of a worktree with work that would be lost with it: files, or commits that another tree lacks."""
    changed = []
    for _, path in submodules(tree):
        own, theirs = tree.cwd / path, other.cwd / path
        if (own / ".git").exists() and (_has_work(Git(own), theirs) or changed_submodules(Git(own), Git(theirs))):
            changed.append(path)
    return changed


def submodules(tree: Git) -> list[tuple[str, str]]:
    """The submodules of a tree by name and path."""
    if not (tree.cwd / ".gitmodules").is_file():
        return []
    which = ("--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    pairs = [entry.partition("\n")[::2] for entry in tree.run("config", "-z", *which, ok=(0, 1)).names]
    return [(key.removeprefix("submodule.").removesuffix(".path"), path) for key, path in pairs]


def _copy(path: Path) -> Path | None:
    """The repository of a submodule that is checked out somewhere."""
    place = repository(path) if (path / ".git").exists() else None
    return place.git_dir if place and place.top == path.resolve() else None


def _clone(tree: Git, name: str, path: str, source: Path) -> None:
    url = tree.run("config", "--get", f"submodule.{name}.url", ok=(0, 1)).text
    local = tree.adding(f"submodule.{name}.url={source}", _LOCAL)
    local.run("submodule", "--quiet", "update", "--init", "--", path, timeout=3600)
    if url:
        Git(tree.cwd / path).run("remote", "set-url", "origin", url, ok=(0, 2, 128))


def _fetch(tree: Git, path: str, source: Path) -> None:
    """Bring a submodule that is there to the commit that the tree names."""
    own, wanted = Git(tree.cwd / path), tree.run("rev-parse", "-q", "--verify", f":{path}", ok=(0, 1, 128)).text
    if not wanted or own.commit() == wanted:
        return
    if own.run("cat-file", "-e", f"{wanted}^{{commit}}", ok=(0, 1, 128)).code:
        own.adding(_LOCAL).run("fetch", "--quiet", "--no-tags", str(source), wanted, timeout=3600)
    own.run("checkout", "--quiet", "--force", "--detach", wanted)


def _has_work(git: Git, other: Path) -> bool:
    if git.run("status", "--porcelain", "-z", "--untracked-files=normal").out:
        return True
    tips = git.run("for-each-ref", "--format=%(objectname)", "refs/heads").text.split()
    tips += git.commit().split()
    ours = [tip for tip in set(tips) if git.run("rev-list", "--max-count=1", tip, "--not", "--remotes", "--tags").out]
    source = _copy(other)
    return any(source is None or not _has(source, tip) for tip in ours)


def _has(source: Path, commit: str) -> bool:
    git = Git(source, {"GIT_DIR": str(source)})
    return git.run("cat-file", "-e", f"{commit}^{{commit}}", ok=(0, 1, 128)).code == 0
