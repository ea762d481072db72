"""The repository around a workspace, and what in its work tree is Ralph's own."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ralph.core.errors import RalphError
from ralph.git.command import Git, GitError, disk

OWN = (".ralph", ".aiwg/ralph", ".ralph-sessions")
"""The directories that Ralph keeps beside the user's files."""

RALPH = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ralph"), ("EMAIL", "ralph@localhost"))
}
"""Who commits where nobody else is named."""

_SIGNING = 30.0
"""Seconds that a signature may take: a program that waits for a passphrase is not waited for."""
_NO_REPOSITORY = ("not a git repository", "must be run in a work tree")


@dataclass(frozen=True)
class Repository:
    """A work tree and the repository that it belongs to."""

    top: Path
    git_dir: Path
    common: Path
    """Where refs, objects and `info/exclude` are; the git directory itself except in a linked worktree."""
    private: bool = False
    """Whether Ralph made it, where there was none."""

    @property
    def git(self) -> Git:
        """The git command on it, whatever repository an agent may have put around or into it."""
        return Git(self.top, {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.top)})


def repository(path: Path) -> Repository | None:
    """The repository around a directory, if there is one with a work tree."""
    try:
        found = Git(path).run("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
    except GitError as error:
        if any(reason in error.said for reason in _NO_REPOSITORY):
            return None
        raise
    top, git_dir, common = found.text.split("\n") if found.text.count("\n") == 2 else _one_by_one(path)
    return Repository(Path(top), Path(git_dir), Path(common))


def _one_by_one(path: Path) -> list[str]:
    """The same three, where a name has a line break in it."""
    what = ("--show-toplevel", "--git-dir", "--git-common-dir")
    return [
        Git(path).run("rev-parse", "--path-format=absolute", each).out.decode(errors="surrogateescape")[:-1]
        for each in what
    ]


def identity(git: Git) -> dict[str, str]:
    """Who commits for the user: they themselves where git knows them, else Ralph."""
    anonymous = git.adding("user.useConfigOnly=true").run("var", "GIT_COMMITTER_IDENT", ok=(0, 128)).code
    return RALPH if anonymous else {}


def wants_signatures(git: Git) -> bool:
    """Whether the user's own configuration says that commits are to be signed."""
    told = git.run("config", "--show-scope", "--bool", "--get-all", "commit.gpgSign", ok=(0, 1)).text.split("\n")
    values = [value for scope, _, value in (line.partition("\t") for line in told) if scope != "command"]
    return bool(values) and values[-1] == "true"


def commit_tree(git: Git, tree: str, parents: Sequence[str], message: str) -> str:
    """A commit for the user, signed where they want that and it can be done with nobody there to answer."""
    words = ("commit-tree", tree, *(word for parent in parents for word in ("-p", parent)))
    own, text = git.adding(**identity(git)), message.encode(errors="replace")
    if wants_signatures(git):
        try:
            return own.run(*words, "-S", stdin=text, timeout=_SIGNING).text
        except RalphError:
            pass  # landing looks whether it was signed
    return own.run(*words, stdin=text).text


def own_paths(top: Path, *places: Path) -> tuple[str, ...]:
    """Ralph's directories in the given places, relative to the top of the work tree."""
    inside = {place.relative_to(top) for place in places if place.is_relative_to(top)}
    return tuple(sorted((place / name).as_posix() for place in inside for name in OWN))


def hide(common: Path, paths: tuple[str, ...]) -> None:
    """Keep paths out of the user's `git status` by `info/exclude`, once, after what is there."""
    file = common / "info" / "exclude"
    with disk(file):
        old = file.read_bytes() if file.exists() else b""
        patterns = [os.fsencode("/" + re.sub(r"([\\*?\[])", r"\\\1", path) + "/") for path in paths]
        new = [pattern + b"\n" for pattern in patterns if pattern not in old.splitlines()]
        if not new:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as stream:
            stream.write((b"\n" if old and not old.endswith(b"\n") else b"") + b"".join(new))


def shown(path: str) -> str:
    """A file name as it can be printed, whatever bytes it has."""
    return "".join(part if part.isprintable() else repr(part.encode("utf-8", "surrogateescape"))[2:-1] for part in path)
