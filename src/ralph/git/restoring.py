"""Bringing files back as a snapshot has them, without running over what no snapshot holds."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ralph.core.errors import UsageError
from ralph.git.command import Git, disk
from ralph.git.index import PrivateIndex, joined
from ralph.git.repository import Repository, shown

ABSENT, NESTED = "000000", "160000"
"""The modes of a path that is not there, and of a repository inside of the work tree."""


@dataclass(frozen=True)
class Delta:
    """A path in two trees between which it differs: its modes, and what is in it."""

    old: str
    new: str
    old_object: str
    new_object: str

    @property
    def nested(self) -> bool:
        """Whether it is or was a repository of its own."""
        return NESTED in (self.old, self.new)


def deltas(git: Git, old: str, new: str) -> dict[str, Delta]:
    """The paths that differ between two trees."""
    listed = git.run("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", old, new).names
    pairs = zip(listed[::2], listed[1::2], strict=True)
    return {path: Delta(*fields[1:].split()[:4]) for fields, path in pairs}


@dataclass(frozen=True)
class Restorer:
    """Who writes to the work tree."""

    git: Git
    place: Repository
    index: PrivateIndex
    workspace: Path

    def refuse_to_lose(self, writes: Mapping[str, Delta], edited: Iterable[str], *, force: bool) -> None:
        """Refuse to run over what no snapshot holds, and without `force` over what a person edited."""
        new = {path for path, delta in writes.items() if delta.old == ABSENT}
        in_the_way = {file for path in new for file in _occupants(self.place.top, path)}
        in_the_way -= writes.keys() - new
        held = self.index.files() if in_the_way else set()
        if unheld := (in_the_way - held) | (writes.keys() & self.index.skipped):
            todo = "move them away, then try again"
            raise UsageError("files that are in no snapshot are in the way", where=_listing(unheld), todo=todo)
        if (edits := (in_the_way & held) | (writes.keys() & set(edited))) and not force:
            todo = "`--force` takes them back all the same; the last snapshot has them as they are now"
            raise UsageError("files were edited since", where=_listing(edits), todo=todo)

    def write(self, sha: str, writes: Mapping[str, Delta]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Bring paths back as a snapshot has them; those that were, and what is to be said of the others."""
        nested = {path for path, delta in writes.items() if delta.nested}
        back = [path for path, delta in writes.items() if delta.new != ABSENT and path not in nested]
        gone = [path for path, delta in writes.items() if delta.new == ABSENT and path not in nested]
        self._bring_back(sha, back)
        kept = self._ignored(gone) if any(_is_ignore_file(path) for path in back) else set()
        self._delete(path for path in gone if path not in kept)
        notices = [f"{shown(path)} is a git repository of its own: left as it is" for path in sorted(nested)]
        notices += [f"{shown(path)} is ignored in the restored tree: left as it is" for path in sorted(kept)]
        return tuple(path for path in writes if path not in nested | kept), tuple(notices)

    def _bring_back(self, sha: str, paths: list[str]) -> None:
        how = ("--worktree", "--ignore-skip-worktree-bits", "--pathspec-from-file=-", "--pathspec-file-nul")
        git = self.index.git.adding(GIT_LITERAL_PATHSPECS="1")
        if paths:
            git.run("restore", f"--source={sha}", *how, stdin=joined(paths))

    def _ignored(self, paths: Iterable[str]) -> set[str]:
        """Those that may have been there all along, unseen: a turn only changed which files are ignored."""
        check = ("check-ignore", "--no-index", "-z", "--stdin")
        return set(self.git.run(*check, stdin=joined(paths), ok=(0, 1)).names)

    def _delete(self, paths: Iterable[str]) -> None:
        # Not by `git restore`: it fails on a file whose directory has just become a file or a symlink.
        with disk(self.place.top):
            for path in paths:
                _delete(self.place.top, path, self.workspace)


def _is_ignore_file(path: str) -> bool:
    return PurePosixPath(path).name == ".gitignore"


def _listing(paths: Iterable[str], most: int = 20) -> str:
    names = sorted(map(shown, paths))
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _occupants(top: Path, path: str) -> Iterator[str]:
    """The files that stand where a path is to be written: on it, above it, or in a directory in its place."""
    here = top
    for part in PurePosixPath(path).parts:
        here = here / part
        if here.is_symlink() or not here.is_dir():
            if os.path.lexists(here):
                yield here.relative_to(top).as_posix()
            return
    for folder, folders, files in os.walk(here):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name).relative_to(top).as_posix() for name in (*files, *links))


def _delete(top: Path, path: str, workspace: Path) -> None:
    """Delete a file and the directories it leaves empty; never through a symlink, never the workspace."""
    file = top / path
    parents = file.parents[: len(PurePosixPath(path).parts) - 1]
    replaced = file.is_dir() and not file.is_symlink()
    if replaced or any(parent.is_symlink() or not parent.is_dir() for parent in parents):
        return
    file.unlink(missing_ok=True)
    for parent in parents:
        if parent == workspace or any(parent.iterdir()):
            return
        parent.rmdir()
