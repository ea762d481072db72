"""Submodules in worktrees: filled from the copies that the main tree has, without asking anybody's server."""

from pathlib import Path

from ralph.git.command import Git, GitError


def fill_submodules(main: Git, tree: Git) -> None:
    """Check out in a new worktree the submodules that are checked out in the main tree, at the commits that it names."""
    if not (tree.cwd / ".gitmodules").exists():
        return
    modules = Path(main.run("rev-parse", "--path-format=absolute", "--git-common-dir").text) / "modules"
    for name, path in _submodules(tree):
        source = modules / name
        if not (main.cwd / path / ".git").exists() or not source.is_dir():
            continue
        url = main.run("config", "--get", f"submodule.{name}.url", ok=(0, 1)).text
        local = tree.adding(f"submodule.{name}.url={source}", "protocol.file.allow=always")
        try:
            local.run("submodule", "--quiet", "update", "--init", "--", path, timeout=3600)
        except GitError:
            # Its commit is not in the main tree's copy: the set-up commands of the user may know where to get it.
            continue
        if url:
            Git(tree.cwd / path).run("remote", "set-url", "origin", url, ok=(0, 2, 128))


def changed_submodules(tree: Git) -> list[str]:
    """The submodules of a worktree in which there is work that would be lost with it: files, or commits of its own."""
    if not (tree.cwd / ".gitmodules").exists():
        return []
    return [path for _, path in _submodules(tree) if (tree.cwd / path / ".git").exists() and _has_work(tree.cwd / path)]


def _submodules(tree: Git) -> list[tuple[str, str]]:
    """The submodules by name and path."""
    listed = tree.run(
        "config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$", ok=(0, 1)
    ).names
    pairs = [entry.partition("\n")[::2] for entry in listed]
    return [(key.removeprefix("submodule.").removesuffix(".path"), path) for key, path in pairs]


def _has_work(path: Path) -> bool:
    git = Git(path)
    if git.run("status", "--porcelain", "-z", "--untracked-files=normal").out:
        return True
    return bool(git.run("rev-list", "--max-count=1", "HEAD", "--branches", "--not", "--remotes", "--tags").out)
