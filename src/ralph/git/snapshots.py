"""Snapshots of the work tree: a chain of commits under one ref per run.

A snapshot holds the whole work tree around the workspace, for an agent may change anything in it, but
neither what is ignored nor what is Ralph's own. Files come back as they were. Where `.gitattributes` says
how a file is stored (line ends, LFS, encryption), git stores it so and brings it back by the same rule.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ralph.core.errors import UsageError
from ralph.core.turns import Change
from ralph.git.command import Git, disk
from ralph.git.index import PrivateIndex, joined
from ralph.git.repository import RALPH, Repository, hide, own_paths, repository, shown

_ABSENT, _NESTED = "000000", "160000"
_TRAILER = re.compile(r"^Ralph-(Restores|Position): ([0-9a-f]+)$", re.M)
_CONFIG = ("core.safecrlf=false", "core.splitIndex=false", "core.logAllRefUpdates=false")
_LINE_END = {"true": "crlf", "yes": "crlf", "on": "crlf", "1": "crlf", "input": "lf"}


@dataclass(frozen=True)
class Entry:
    """One snapshot of a run."""

    number: int
    sha: str
    label: str
    restores: str | None
    """The snapshot that was brought back, where this one records a restore or an undo."""
    position: str
    """The step at which the tree stood: this one, unless it is an undo or keeps edits made before one."""


@dataclass(frozen=True)
class Restored:
    """What a restore did."""

    snapshot: str
    before: str
    """The snapshot with everything as it was just before."""
    files: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Undone:
    """What an undo took back."""

    undone: Entry
    restored: Restored


@dataclass(frozen=True)
class _Delta:
    """The modes of a path in two trees between which it differs."""

    old: str
    new: str


class Snapshots:
    """The snapshots of one run; who takes or restores one holds the run's lock, anyone may read."""

    def __init__(self, git: Git, place: Repository, index: PrivateIndex, workspace: Path, ref: str) -> None:
        self._git, self._place, self._index, self._workspace, self._ref = git, place, index, workspace, ref
        known = git.run("for-each-ref", "--format=%(objectname) %(tree)", ref).text.split()
        self._latest: str | None = known[0] if known else None
        self._tree: str | None = known[1] if known else None
        self._base: str | None = None

    @classmethod
    def open(cls, root: Path, workspace: Path, run: str, home: Path) -> "Snapshots":
        """The snapshots of a run, in the repository around the workspace or in a private one under `root`."""
        root, workspace, ref = root.resolve(), workspace.resolve(), f"refs/ralph/{run}"
        place = _place(root, workspace, ref)
        own = own_paths(place.top, root, workspace)
        hide(place.common, own)
        with disk(home):
            home.mkdir(parents=True, exist_ok=True)
        where = {"GIT_DIR": str(place.git_dir), "GIT_WORK_TREE": str(place.top)}
        git = Git(place.top, {**where, **RALPH}, _CONFIG)
        end = _LINE_END.get(git.run("config", "--get", "core.autocrlf", ok=(0, 1)).text.lower())
        if end:
            # Bytes as they are; files with a `text` attribute get the line ends that they would have got.
            git = git.adding("core.autocrlf=false", f"core.eol={end}")
        index = PrivateIndex(git, place, own, home.resolve() / "snapshot.index", raw=end is not None)
        return cls(git, place, index, workspace, ref)

    @property
    def notices(self) -> tuple[str, ...]:
        """What is not in the snapshots taken so far, for a person to know."""
        return tuple(self._index.notices)

    def take(self, label: str) -> Change:
        """Snapshot the tree; one that did not change costs one git command and adds nothing."""
        return self._take(label)

    def base(self) -> str | None:
        """The first snapshot of the run."""
        if self._base is None and self._latest:
            self._base = self._git.run("rev-list", "--max-parents=0", self._latest).text
        return self._base

    def latest(self) -> str | None:
        """The last snapshot of the run."""
        return self._latest

    def log(self) -> list[Entry]:
        """All snapshots of the run, oldest first."""
        if not self._latest:
            return []
        listed = self._git.run("rev-list", "--reverse", "--format=%x00%H%n%B", self._latest)
        chunks = listed.out.decode(errors="replace").split("\0")[1:]
        return [_entry(number, chunk) for number, chunk in enumerate(chunks)]

    def diff(self, old: str, new: str | None = None, *, stat: bool = False, color: bool = False) -> str:
        """What changed between two snapshots, or since one, as a patch or a summary of it."""
        form = ("--stat" if stat else "--patch", "--color=always" if color else "--color=never")
        trees = (old, new or self._index.tree_aside(self._latest))
        return self._git.run("diff-tree", "-r", "-M", *form, *trees).out.decode(errors="replace")

    def changed(self, old: str, new: str) -> dict[str, tuple[bytes | None, bytes | None]]:
        """The files that differ between two snapshots, each with what is in it in both; None where it is absent."""
        deltas = {
            path: delta for path, delta in self._deltas(old, new).items() if _NESTED not in (delta.old, delta.new)
        }
        before = self.contents(old, [path for path, delta in deltas.items() if delta.old != _ABSENT])
        after = self.contents(new, [path for path, delta in deltas.items() if delta.new != _ABSENT])
        return {path: (before.get(path), after.get(path)) for path in deltas}

    def paths(self, sha: str) -> list[str]:
        """Every file of a snapshot."""
        return self._git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", sha).names

    def contents(self, sha: str, paths: Iterable[str]) -> dict[str, bytes]:
        """What is in files of a snapshot."""
        asked = [path for path in paths if "\n" not in path]
        objects = "".join(f"{sha}:{path}\n" for path in asked)
        out = self._git.run("cat-file", "--batch", stdin=os.fsencode(objects)).out if asked else b""
        found: dict[str, bytes] = {}
        at = 0
        for path in asked:
            header, at = out[at : out.index(b"\n", at)].split(), out.index(b"\n", at) + 1
            size = int(header[-1]) if header[-1].isdigit() else -1
            if size >= 0:
                found[path] = out[at : at + size]
                at += size + 1
        return found

    def undo(self, *, force: bool = False) -> Undone:
        """Take back the latest turn or restore not yet taken back, and nothing that a person did since."""
        entries = self.log()
        step = next((entry for entry in entries if entry.sha == entries[-1].position), None)
        if step is None or step.number == 0:
            todo = "`ralph diff` shows what differs from where the run began"
            raise UsageError("nothing to undo: the tree is where the run began", todo=todo)
        target = entries[step.number - 1]
        before = self._take("before undo", position=step.sha).snapshot
        wanted, differs = self._deltas(step.sha, target.sha), self._deltas(before, target.sha)
        writes = {path: delta for path, delta in differs.items() if path in wanted}
        edited = () if force else self._deltas(step.sha, before)
        self._refuse_to_lose(writes, edited, force=force)
        restored = self._write(target.sha, before, writes, f"undo: {step.label}", position=target.position)
        return Undone(step, restored)

    def restore(self, sha: str, label: str) -> Restored:
        """Make the tree equal to a snapshot, writing only what differs, after one of what is there."""
        entries = self.log()
        position = entries[-1].position if entries else ""
        before = self._take(f"before {label}", position=position).snapshot
        writes = self._deltas(before, sha)
        if not writes:
            return Restored(before, before)
        self._refuse_to_lose(writes, (), force=True)
        return self._write(sha, before, writes, label)

    def drop(self) -> None:
        """Forget the run's snapshots; git frees the space when it next cleans up."""
        self._git.run("update-ref", "-d", self._ref)
        self._index.drop()
        self._latest = self._tree = self._base = None
        if self._place.private:
            self._git.run("gc", "--quiet", "--prune=1.day.ago")

    def _take(self, label: str, **trailers: str) -> Change:
        tree = self._index.tree(self._latest)
        if self._latest and tree == self._tree:
            return Change(self._latest)
        return self._commit(tree, label, **trailers)

    def _commit(self, tree: str, label: str, **trailers: str) -> Change:
        subject = "".join(char if char.isprintable() else " " for char in label).strip() or "snapshot"
        notes = "".join(f"Ralph-{key.title()}: {value}\n" for key, value in trailers.items() if value)
        parent = ("-p", self._latest) if self._latest else ()
        sha = self._git.run("commit-tree", tree, *parent, stdin=f"{subject}\n\n{notes}".encode()).text
        with disk(self._place.common):
            # A git that was killed left it: nobody else writes this ref.
            (self._place.common / f"{self._ref}.lock").unlink(missing_ok=True)
        self._git.run("update-ref", self._ref, sha, self._latest or "")
        before, self._latest, self._tree = self._tree, sha, tree
        return Change(sha) if before in (None, tree) else self._counted(sha)

    def _counted(self, sha: str) -> Change:
        counted = self._git.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", f"{sha}^", sha).names
        counts = [line.split("\t", 2)[:2] for line in counted]
        added, removed = (sum(int(pair[side]) for pair in counts if pair[side] != "-") for side in (0, 1))
        return Change(sha, len(counts), added, removed)

    def _deltas(self, old: str, new: str) -> dict[str, _Delta]:
        listed = self._git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new).names
        pairs = zip(listed[::2], listed[1::2], strict=True)
        return {path: _Delta(*modes[1:].split()[:2]) for modes, path in pairs}

    def _refuse_to_lose(self, writes: Mapping[str, _Delta], edited: Iterable[str], *, force: bool) -> None:
        """Refuse to run over what no snapshot holds, and without `force` over what a person edited."""
        new = {path for path, delta in writes.items() if delta.old == _ABSENT}
        in_the_way = {file for path in new for file in _occupants(self._place.top, path)}
        in_the_way -= writes.keys() - new
        held = self._index.files() if in_the_way else set()
        if unheld := (in_the_way - held) | (writes.keys() & self._index.skipped):
            todo = "move them away, then try again"
            raise UsageError("files that are in no snapshot are in the way", where=_listing(unheld), todo=todo)
        if (edits := (in_the_way & held) | (writes.keys() & set(edited))) and not force:
            todo = "`--force` takes them back all the same; the last snapshot has them as they are now"
            raise UsageError("files were edited since", where=_listing(edits), todo=todo)

    def _write(self, sha: str, before: str, writes: Mapping[str, _Delta], label: str, position: str = "") -> Restored:
        """Bring paths back as a snapshot has them, and record it."""
        nested = {path for path, delta in writes.items() if _NESTED in (delta.old, delta.new)}
        back = [path for path, delta in writes.items() if delta.new != _ABSENT and path not in nested]
        gone = [path for path, delta in writes.items() if delta.new == _ABSENT and path not in nested]
        self._bring_back(sha, back)
        kept = self._ignored(gone) if any(_is_ignore_file(path) for path in back) else set()
        self._delete(path for path in gone if path not in kept)
        change = self._commit(self._index.tree(self._latest), label, restores=sha, position=position)
        notices = [f"{shown(path)} is a git repository of its own: left as it is" for path in sorted(nested)]
        notices += [f"{shown(path)} is ignored in the restored tree: left as it is" for path in sorted(kept)]
        files = tuple(path for path in writes if path not in nested | kept)
        return Restored(change.snapshot, before, files, tuple(notices))

    def _bring_back(self, sha: str, paths: list[str]) -> None:
        how = ("--worktree", "--ignore-skip-worktree-bits", "--pathspec-from-file=-", "--pathspec-file-nul")
        git = self._index.git.adding(GIT_LITERAL_PATHSPECS="1")
        if paths:
            git.run("restore", f"--source={sha}", *how, stdin=joined(paths))

    def _ignored(self, paths: Iterable[str]) -> set[str]:
        """Those that may have been there all along, unseen: a turn only changed which files are ignored."""
        check = ("check-ignore", "--no-index", "-z", "--stdin")
        return set(self._git.run(*check, stdin=joined(paths), ok=(0, 1)).names)

    def _delete(self, paths: Iterable[str]) -> None:
        # Not by `git restore`: it fails on a file whose directory has just become a file or a symlink.
        with disk(self._place.top):
            for path in paths:
                _delete(self._place.top, path, self._workspace)


def _place(root: Path, workspace: Path, ref: str) -> Repository:
    """Where a run has its snapshots: where it began them, though an agent has made a repository since."""
    private, around = root / ".ralph" / "git", repository(workspace)
    if around and not _has(private, ref) and not _is_ignored(around.top, workspace):
        return around
    Git(root).run("init", "--quiet", "--bare", "--template=", str(private))
    return Repository(workspace, private, private, private=True)


def _has(private: Path, ref: str) -> bool:
    if not (private / "HEAD").exists():
        return False
    return bool(Git(private, {"GIT_DIR": str(private)}).run("for-each-ref", ref, ok=(0, 128)).out)


def _is_ignored(top: Path, workspace: Path) -> bool:
    """Whether the repository around a workspace leaves it out, as that of a home directory does."""
    return top != workspace and Git(top).run("check-ignore", "-q", str(workspace), ok=(0, 1)).code == 0


def _is_ignore_file(path: str) -> bool:
    return PurePosixPath(path).name == ".gitignore"


def _entry(number: int, chunk: str) -> Entry:
    sha, label, rest = chunk.split("\n", 2)
    noted = dict(_TRAILER.findall(rest))
    return Entry(number, sha, label, noted.get("Restores"), noted.get("Position", sha))


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
