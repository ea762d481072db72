"""The work tree as a git tree, and back: an index of Ralph's own, and writing files as a snapshot has them.

The user's index is never touched, and no file is overwritten that no snapshot holds.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ralph.core.errors import UsageError
from ralph.git.command import GIT_TIMEOUT, Git, GitError, GitTimeoutError, Repository, disk, printable
from ralph.store.files import stat_signature

CACHES = (
    "__pycache__/**",
    ".pytest_cache/**",
    ".mypy_cache/**",
    ".ruff_cache/**",
    ".hypothesis/**",
    ".coverage",
    ".coverage.*",
    ".aider.tags.cache.*/**",
)
"""Caches of tools, which are left out even if no `.gitignore` names them."""
LARGE = 1 << 30
"""Files with more bytes are left out of snapshots: git would read and store them whole after every change."""
_SLOW = 30
"""Seconds after which staging stops once, to look for large files."""
_TOO_LARGE = "{} is larger than 1 GiB: not in snapshots, so Ralph cannot compare or restore it"
_SKIPPED = rb"error: unable to index file '(.*?)'"
_UNREADABLE = "{} cannot be read: not in snapshots"
_NESTED = "{} is a separate git repository: its files are not in snapshots"
_COMPLAINTS = {
    _SKIPPED: _UNREADABLE,
    rb"warning: could not open directory '(.*?)/?': (?!No such file).*?": _UNREADABLE,
    rb"error: '(.*?)/?' does not have a commit checked out": _NESTED,
    rb"warning: adding embedded git repository: (.*?)": _NESTED,
}


@dataclass(frozen=True)
class Staged:
    """The result of staging everything."""

    skipped: frozenset[str]
    """Files that could not be read."""
    notices: tuple[str, ...]


class PrivateIndex:
    """Ralph's own index, by which git finds changed files cheaply. It is a cache and can be rebuilt at any time."""

    def __init__(
        self,
        git: Git,
        repository: Repository,
        own: tuple[str, ...],
        file: Path,
        *,
        raw: bool,
        outputs: tuple[str, ...] = (),
    ) -> None:
        self.git = git.with_options(GIT_INDEX_FILE=str(file))
        self.notices: dict[str, None] = {}
        """What git could not stage, each reported once."""
        self.skipped: frozenset[str] = frozenset()
        """The files that could not be read the last time."""
        self.raw = raw
        """Whether line ends are stored as they are on disk, although the user's git would convert them."""
        self.own = own
        """Paths that are left out: Ralph's own, and those of the worktree's setup."""
        self._repository, self._file = repository, file
        self._outputs = outputs
        """Files that Ralph's output goes to. The index keeps them as it has them."""
        self._claimed = False
        self._known: tuple[object, str] | None = None
        self._large: frozenset[str] = frozenset()

    def tree(self, latest: str | None) -> str:
        """The work tree as it is now, as a git tree; `latest` is the snapshot to start from."""
        if not self._claimed:
            self._claim(latest)
        elif self._known is not None and self._known[0] != _sign(self._file):
            # Something else wrote it since. It could hide changes, so every file is read again.
            self._seed(latest)
        try:
            return self._stage()
        except GitError:
            # A power cut or a garbage collection may have damaged it.
            self._seed(latest)
            return self._stage()

    def tree_aside(self, latest: str | None) -> str:
        """The same on a copy, so that a run in progress is not disturbed."""
        with disk(self._file), tempfile.TemporaryDirectory(dir=self._file.parent) as aside:
            for cache in self._caches():
                if cache.exists():
                    shutil.copy2(cache, Path(aside) / cache.name)
            return self._at(Path(aside) / self._file.name).tree(latest)

    @property
    def whole(self) -> Git:
        """Git with an index that has all files of the snapshots."""
        return self.git

    def files(self) -> set[str]:
        """All that it holds."""
        return set(self.git.run("ls-files", "-z").names)

    def drop(self) -> None:
        """Delete it, and the lock that a killed git left."""
        with disk(self._file):
            self._file.unlink(missing_ok=True)
            self._lock().unlink(missing_ok=True)
        self._known, self._claimed = None, False

    def _at(self, file: Path) -> "PrivateIndex":
        """The same index in another file."""
        return PrivateIndex(self.git, self._repository, self.own, file, raw=self.raw, outputs=self._outputs)

    def _caches(self) -> list[Path]:
        """The files that save work if they are copied."""
        return [self._file]

    def _lock(self) -> Path:
        return self._file.with_name(f"{self._file.name}.lock")

    def _claim(self, latest: str | None) -> None:
        with disk(self._file):
            self._lock().unlink(missing_ok=True)
        try:
            is_usable = self._file.exists()
            if is_usable:
                clear_hidden_marks(self.git)
        except GitError:
            # A power cut may have damaged it.
            is_usable = False
        if not is_usable:
            self._seed(latest)
        self._claimed = True

    def _stage(self) -> str:
        self._large = self._keep_large(self._large)
        left_out = (*self.own, *self._outputs)
        try:
            staged = stage(self.git, (*left_out, *self._large), timeout=_SLOW)
        except GitTimeoutError:
            with disk(self._file):
                self._lock().unlink(missing_ok=True)
            self._large |= self._find_large_files()
            staged = stage(self.git, (*left_out, *self._large))
        self.skipped = staged.skipped | self._large
        self.notices.update(dict.fromkeys(staged.notices))
        self.notices.update(dict.fromkeys(_TOO_LARGE.format(printable(path)) for path in sorted(self._large)))
        # Git leaves an index alone that has nothing new, which saves asking for its tree.
        if self._known is None or self._known[0] != _sign(self._file):
            tree = self.git.run("write-tree").text
            self._known = (_sign(self._file), tree)
        return self._known[1]

    def _find_large_files(self) -> frozenset[str]:
        """The new and changed files that are too large. The index forgets what it knew of them."""
        listed = self.git.run("ls-files", "-z", "--others", "--modified", "--exclude-standard", "--", ":/").names
        large = self._keep_large(listed)
        if large:
            forget = ("update-index", "--force-remove", "-z", "--stdin")
            self.git.run(*forget, stdin=join_names(large))
        return large

    def _keep_large(self, paths: Iterable[str]) -> frozenset[str]:
        large = set()
        for path in paths:
            try:
                status = os.lstat(self._repository.top / path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_size > LARGE:
                large.add(path)
        return frozenset(large)

    def _seed(self, latest: str | None) -> None:
        """Start from the last snapshot, or from the user's index, which spares reading every file."""
        self.drop()
        fresh, users = self._file.with_name(f"{self._file.name}.new"), self._repository.git_dir / "index"
        git = self.git.with_options(GIT_INDEX_FILE=str(fresh), GIT_LITERAL_PATHSPECS="1")
        with disk(fresh):
            fresh.unlink(missing_ok=True)
            # Files that git converted on their way in are read again, for the bytes that are on disk.
            if latest is None and not self.raw and users.exists():
                shutil.copy2(users, fresh)
        if fresh.exists():
            clear_hidden_marks(git)
        elif git.resolve_commit(latest or "HEAD"):
            git.run("read-tree", latest or "HEAD")
            if users.exists():
                self._stay_sparse(git)
        if fresh.exists():
            git.run("rm", "-r", "--quiet", "--force", "--cached", "--sparse", "--ignore-unmatch", "--", *self.own)
            with disk(fresh):
                fresh.replace(self._file)

    def _stay_sparse(self, git: Git) -> None:
        """Mark the files that a sparse checkout leaves out, so that they do not look deleted."""
        tagged = self._repository.git.run("ls-files", "-v", "-z").names
        absent = {
            name[2:] for name in tagged if name[0] == "S" and not os.path.lexists(self._repository.top / name[2:])
        }
        if absent and (known := absent.intersection(git.run("ls-files", "-z").names)):
            git.run("update-index", "--skip-worktree", "-z", "--stdin", stdin=join_names(known))


def _sign(path: Path) -> tuple[object, ...]:
    """What changes if anything writes a file. A program can set the time of a file, but not the time of that (ctime)."""
    return (stat_signature(path), path.stat().st_ctime_ns) if path.exists() else ()


def list_hidden_files(git: Git) -> list[str]:
    """The files whose changes are hidden from git by `update-index --skip-worktree` or `--assume-unchanged`."""
    return [name[2:] for name in git.run("ls-files", "-v", "-z").names if name[0] == "S" or name[0].islower()]


def clear_hidden_marks(git: Git) -> None:
    """Remove these marks from files that are there."""
    present = join_names(name for name in list_hidden_files(git) if os.path.lexists(git.cwd / name))
    for flag in ("--no-assume-unchanged", "--no-skip-worktree") if present else ():
        git.run("update-index", flag, "-z", "--stdin", stdin=present)


def stage(git: Git, leaving_out: tuple[str, ...] = (), *, timeout: float = GIT_TIMEOUT) -> Staged:
    """Stage the whole work tree, without some paths and without what git cannot store."""
    # `info/exclude` is not enough: a `.gitignore` overrides it, and neither applies to tracked files.
    others = [f":(top,exclude,literal){path}" for path in leaving_out]
    others += [f":(top,exclude,glob)**/{name}" for name in CACHES]
    # Code 1: some path was ignored or could not be read; the others are staged.
    stderr = git.run("add", "--all", "--sparse", "--ignore-errors", "--", ":/", *others, ok=(0, 1), timeout=timeout).err
    if b"failed to insert into database" in stderr:
        raise GitError("git cannot write to its object database", where=str(git.cwd), todo="make `.git` writable")
    notices: list[str] = []
    for pattern, text in _COMPLAINTS.items():
        notices += [text.format(printable(name)) for name in _parse_names(pattern, stderr)]
    return Staged(frozenset(_parse_names(_SKIPPED, stderr)), tuple(notices))


def _parse_names(pattern: bytes, stderr: bytes) -> list[str]:
    """The files that git complains about, one message a line. A file name may contain line breaks."""
    return [os.fsdecode(name) for name in re.findall(rb"^" + pattern + rb"$", stderr, re.M | re.S)]


def join_names(paths: Iterable[str]) -> bytes:
    """Paths for the options `-z --stdin`."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


ABSENT, NESTED = "000000", "160000"
"""The modes that git prints for an absent path, and for a repository inside the work tree."""


@dataclass(frozen=True)
class Delta:
    """A path that differs between two trees: its modes and objects."""

    old: str
    new: str
    old_object: str
    new_object: str

    @property
    def nested(self) -> bool:
        """Whether it is or was a repository of its own."""
        return NESTED in (self.old, self.new)


def compare_trees(git: Git, old: str, new: str) -> dict[str, Delta]:
    """The paths that differ between two trees."""
    listed = git.run("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", old, new).names
    pairs = zip(listed[::2], listed[1::2], strict=True)
    return {path: Delta(*fields[1:].split()[:4]) for fields, path in pairs}


@dataclass(frozen=True)
class Restorer:
    """Writes files of a snapshot to the work tree."""

    git: Git
    repository: Repository
    index: PrivateIndex
    workspace: Path

    def refuse_to_lose(self, writes: Mapping[str, Delta], edited: Iterable[str], *, force: bool) -> None:
        """Refuse to overwrite what no snapshot holds, and without `force` what the user edited."""
        new = {path for path, delta in writes.items() if delta.old == ABSENT}
        in_the_way: set[str] = set()
        for path in new:
            in_the_way.update(_find_occupants(self.repository.top, path))
        in_the_way -= writes.keys() - new
        held = self.index.files() if in_the_way else set()
        if unheld := (in_the_way - held) | (writes.keys() & self.index.skipped):
            todo = "move them away, then try again"
            raise UsageError("files that are in no snapshot would be overwritten", where=_list_names(unheld), todo=todo)
        if (edits := (in_the_way & held) | (writes.keys() & set(edited))) and not force:
            todo = "`--force` overwrites them; the last snapshot has them as they are now"
            raise UsageError("files were edited since", where=_list_names(edits), todo=todo)

    def write(self, sha: str, writes: Mapping[str, Delta]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Restore paths as a snapshot has them; return the restored ones, and notices about the others."""
        nested = {path for path, delta in writes.items() if delta.nested}
        back = [path for path, delta in writes.items() if delta.new != ABSENT and path not in nested]
        gone = [path for path, delta in writes.items() if delta.new == ABSENT and path not in nested]
        self._restore(sha, back)
        ignored = self._find_ignored(gone) if any(_is_ignore_file(path) for path in back) else set()
        self._delete(path for path in gone if path not in ignored)
        notices = [f"{printable(path)} is a separate git repository: not changed" for path in sorted(nested)]
        notices += [f"{printable(path)} is ignored in the restored tree: not changed" for path in sorted(ignored)]
        return tuple(path for path in writes if path not in nested | ignored), tuple(notices)

    def _restore(self, sha: str, paths: list[str]) -> None:
        how = ("--worktree", "--ignore-skip-worktree-bits", "--pathspec-from-file=-", "--pathspec-file-nul")
        git = self.index.whole.with_options(GIT_LITERAL_PATHSPECS="1")
        if paths:
            git.run("restore", f"--source={sha}", *how, stdin=join_names(paths))

    def _find_ignored(self, paths: Iterable[str]) -> set[str]:
        """Files that may have been there before the turn: if it only changed `.gitignore`, they were ignored until then."""
        check = ("check-ignore", "--no-index", "-z", "--stdin")
        return set(self.git.run(*check, stdin=join_names(paths), ok=(0, 1)).names)

    def _delete(self, paths: Iterable[str]) -> None:
        # Not by `git restore`: it fails on a file whose directory has just become a file or a symlink.
        with disk(self.repository.top):
            for path in paths:
                _delete(self.repository.top, path, self.workspace)


def _is_ignore_file(path: str) -> bool:
    return PurePosixPath(path).name == ".gitignore"


def _list_names(paths: Iterable[str], most: int = 20) -> str:
    names = sorted(map(printable, paths))
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _find_occupants(top: Path, path: str) -> Iterator[str]:
    """The files that are in the way of a path: at the path itself, above it, or in a directory of that name."""
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
