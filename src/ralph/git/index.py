"""An index of the whole work tree that is Ralph's own, so that the user's is never touched."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ralph.git.command import Git, GitError, disk
from ralph.git.repository import Repository, shown
from ralph.store.files import signature

CACHES = (
    "__pycache__/**",
    ".pytest_cache/**",
    ".mypy_cache/**",
    ".ruff_cache/**",
    ".hypothesis/**",
    ".coverage",
    ".coverage.*",
)
"""What tools leave behind and nobody means to keep, also where no `.gitignore` says so."""
_SKIPPED = rb"error: unable to index file '(.*?)'"
_UNREADABLE = "{} cannot be read: not in snapshots"
_NESTED = "{} is a git repository of its own: its files are not in snapshots"
_UNSEEN = {
    _SKIPPED: _UNREADABLE,
    rb"warning: could not open directory '(.*?)/?': (?!No such file).*?": _UNREADABLE,
    rb"error: '(.*?)/?' does not have a commit checked out": _NESTED,
    rb"warning: adding embedded git repository: (.*?)": _NESTED,
}


@dataclass(frozen=True)
class Staged:
    """What came of staging everything."""

    skipped: frozenset[str]
    """Files that could not be read."""
    notices: tuple[str, ...]


class PrivateIndex:
    """What git needs to tell cheaply which files changed; a cache that can be built anew at any time."""

    def __init__(self, git: Git, place: Repository, own: tuple[str, ...], file: Path, *, raw: bool) -> None:
        self.git = git.adding(GIT_INDEX_FILE=str(file))
        self.notices: dict[str, None] = {}
        """What git could not take in, each said once."""
        self.skipped: frozenset[str] = frozenset()
        """The files that could not be read the last time."""
        self.raw = raw
        """Whether line ends are kept as they are on disk, where the user's git would convert them."""
        self._place, self._own, self._file = place, own, file
        self._claimed = False
        self._known: tuple[object, str] | None = None

    def tree(self, latest: str | None) -> str:
        """The work tree as it is now, as a git tree; `latest` is the snapshot to start from."""
        if not self._claimed:
            self._claim(latest)
        try:
            return self._stage()
        except GitError:
            # A power cut or a cleaning of objects may have spoilt it.
            self._seed(latest)
            return self._stage()

    def tree_aside(self, latest: str | None) -> str:
        """The same on a copy, so that a run under way is not disturbed."""
        with disk(self._file), tempfile.TemporaryDirectory(dir=self._file.parent) as aside:
            file = Path(aside) / "index"
            if self._file.exists():
                shutil.copy2(self._file, file)
            return PrivateIndex(self.git, self._place, self._own, file, raw=self.raw).tree(latest)

    def files(self) -> set[str]:
        """All that it holds."""
        return set(self.git.run("ls-files", "-z").names)

    def drop(self) -> None:
        """Delete it, and the lock that a killed git left."""
        with disk(self._file):
            self._file.unlink(missing_ok=True)
            self._lock().unlink(missing_ok=True)
        self._known, self._claimed = None, False

    def _lock(self) -> Path:
        return self._file.with_name(f"{self._file.name}.lock")

    def _claim(self, latest: str | None) -> None:
        with disk(self._file):
            self._lock().unlink(missing_ok=True)
        if not self._file.exists():
            self._seed(latest)
        self._claimed = True

    def _stage(self) -> str:
        staged = stage(self.git, self._own)
        self.skipped = staged.skipped
        self.notices.update(dict.fromkeys(staged.notices))
        # Git leaves an index alone that has nothing new, which saves asking for its tree.
        if self._known is None or self._known[0] != signature(self._file):
            tree = self.git.run("write-tree").text
            self._known = (signature(self._file), tree)
        return self._known[1]

    def _seed(self, latest: str | None) -> None:
        """Start from the last snapshot, or from the user's index, which spares reading every file."""
        self.drop()
        fresh, users = self._file.with_name(f"{self._file.name}.new"), self._place.git_dir / "index"
        git = self.git.adding(GIT_INDEX_FILE=str(fresh), GIT_LITERAL_PATHSPECS="1")
        with disk(fresh):
            fresh.unlink(missing_ok=True)
            # Files that git converted on their way in are read again, for the bytes that are on disk.
            if latest is None and not self.raw and users.exists():
                shutil.copy2(users, fresh)
        if fresh.exists():
            see_all(git)
        elif git.commit(latest or "HEAD"):
            git.run("read-tree", latest or "HEAD")
            if users.exists():
                self._stay_sparse(git)
        if fresh.exists():
            git.run("rm", "-r", "--quiet", "--cached", "--sparse", "--ignore-unmatch", "--", *self._own)
            with disk(fresh):
                fresh.replace(self._file)

    def _stay_sparse(self, git: Git) -> None:
        """Have what a sparse checkout leaves out of the tree not look deleted."""
        tagged = self._place.git.run("ls-files", "-v", "-z").names
        absent = {name[2:] for name in tagged if name[0] == "S" and not os.path.lexists(self._place.top / name[2:])}
        if absent and (known := absent.intersection(git.run("ls-files", "-z").names)):
            git.run("update-index", "--skip-worktree", "-z", "--stdin", stdin=joined(known))


def hidden(git: Git) -> list[str]:
    """The files whose changes somebody hides from git by a mark in the index."""
    return [name[2:] for name in git.run("ls-files", "-v", "-z").names if name[0] == "S" or name[0].islower()]


def see_all(git: Git) -> None:
    """Drop these marks."""
    present = joined(name for name in hidden(git) if os.path.lexists(git.cwd / name))
    for flag in ("--no-assume-unchanged", "--no-skip-worktree") if present else ():
        git.run("update-index", flag, "-z", "--stdin", stdin=present)


def stage(git: Git, leaving_out: tuple[str, ...] = ()) -> Staged:
    """Take the whole work tree into the index, but for some paths and what git cannot hold."""
    # Not left to `info/exclude`: a `.gitignore` may say otherwise, and tracked files heed neither.
    others = [f":(top,exclude,literal){path}" for path in leaving_out]
    others += [f":(top,exclude,glob)**/{name}" for name in CACHES]
    # Code 1: some path was ignored or could not be read; the others are staged.
    said = git.run("add", "--all", "--sparse", "--ignore-errors", "--", ":/", *others, ok=(0, 1)).err
    if b"failed to insert into database" in said:
        raise GitError("git cannot write to its object database", where=str(git.cwd), todo="make `.git` writable")
    notices = [text.format(shown(name)) for pattern, text in _UNSEEN.items() for name in _named(pattern, said)]
    return Staged(frozenset(_named(_SKIPPED, said)), tuple(notices))


def _named(pattern: bytes, said: bytes) -> list[str]:
    """The files that git said something of, one message a line; a name may have line ends itself."""
    return [os.fsdecode(name) for name in re.findall(rb"^" + pattern + rb"$", said, re.M | re.S)]


def joined(paths: Iterable[str]) -> bytes:
    """Paths as git reads them from its input."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)
