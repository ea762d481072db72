"""Snapshots of the work tree: a chain of commits under one ref per run.

A snapshot holds the whole work tree around the workspace, for an agent may change anything in it, but
neither what is ignored nor what is Ralph's own. Files come back as they were. Where `.gitattributes` says
how a file is stored (line ends, LFS, encryption), git stores it so and brings it back by the same rule.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ralph.core.errors import UsageError
from ralph.core.findings import Finding, HistoryChange
from ralph.core.turns import CHECKED, Change, FileStat
from ralph.git import history
from ralph.git.command import Git, disk
from ralph.git.index import PrivateIndex, joined
from ralph.git.repository import RALPH, Repository, hide, own_paths, repository, shown
from ralph.git.restoring import ABSENT, Delta, Restorer, deltas

NAMED = 5
"""How many of the files that a turn changed are named."""
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


def diff_of(git: Git, old: str, new: str, *, stat: bool, color: bool) -> str:
    """What changed between two trees, as a patch or a summary of it."""
    form = ("--stat" if stat else "--patch", "--color=always" if color else "--color=never")
    return git.run("diff-tree", "-r", "-M", *form, old, new).out.decode(errors="replace")


class Snapshots:
    """The snapshots of one run; who takes or restores one holds the run's lock, anyone may read."""

    def __init__(
        self, git: Git, place: Repository, index: PrivateIndex, workspace: Path, ref: str, pins: str = ""
    ) -> None:
        self.place = place
        self._pins = pins
        """The run for which the user's refs are pinned; the snapshots of a task pin none."""
        self._git, self._index, self._ref = git, index, ref
        self._restorer = Restorer(git, place, index, workspace)
        known = git.run("for-each-ref", "--format=%(objectname) %(tree)", ref).text.split()
        self._latest: str | None = known[0] if known else None
        self._tree: str | None = known[1] if known else None
        self._base: str | None = None
        self._refs: Mapping[str, str] | None = None
        self._tips: Mapping[str, str] | None = None
        """Where the branches stood at the last look."""
        self._by_products: frozenset[str] | None = None

    @classmethod
    def open(
        cls, root: Path, workspace: Path, run: str, home: Path, *, ref: str = "", but: Sequence[str] = ()
    ) -> "Snapshots":
        """The snapshots of a run, in the repository around the workspace or in a private one under `root`.

        They are under a ref of their own, and hold everything but some paths of the work tree.
        """
        is_of_task = bool(ref)
        root, workspace, ref = root.resolve(), workspace.resolve(), ref or f"refs/ralph/{run}"
        place = _place(root, workspace, ref)
        own = own_paths(place.top, root, workspace)
        hide(place.common, own)
        with disk(home):
            home.mkdir(parents=True, exist_ok=True)
        # Nor may an agent put other objects in the place of ours (`git replace`).
        git = place.git.adding(*_CONFIG, GIT_NO_REPLACE_OBJECTS="1", **RALPH)
        end = _LINE_END.get(git.run("config", "--get", "core.autocrlf", ok=(0, 1)).text.lower())
        if end:
            # Bytes as they are; files with a `text` attribute get the line ends that they would have got.
            git = git.adding("core.autocrlf=false", f"core.eol={end}")
        index = PrivateIndex(git, place, (*own, *but), home.resolve() / "snapshot.index", raw=end is not None)
        return cls(git, place, index, workspace, ref, "" if is_of_task else run)

    @property
    def notices(self) -> tuple[str, ...]:
        """What is not in the snapshots taken so far, for a person to know."""
        return tuple(self._index.notices)

    def take(self, label: str) -> Change:
        """Snapshot the tree; one that did not change costs one git command and adds nothing."""
        return self._take(label)

    def begin(self, commit: str) -> None:
        """Begin anew, with the tree of a commit as what was there before."""
        self._git.run("update-ref", "-d", self._ref)
        self._index.drop()
        self._latest = self._tree = self._base = self._refs = None
        self._commit(self._git.tree(commit), "before the task")

    def base(self) -> str | None:
        """The first snapshot of the run."""
        if self._base is None and self._latest:
            self._base = self._git.run("rev-list", "--max-parents=0", self._latest).text
        return self._base

    def latest(self) -> str | None:
        """The last snapshot of the run."""
        return self._latest

    def has(self, sha: str) -> bool:
        """Whether a snapshot, perhaps of another run, is still there."""
        return bool(self._git.commit(sha))

    def log(self) -> list[Entry]:
        """All snapshots of the run, oldest first."""
        if not self._latest:
            return []
        listed = self._git.run("rev-list", "--reverse", "--format=%x00%H%n%B", self._latest)
        chunks = listed.out.decode(errors="replace").split("\0")[1:]
        return [_entry(number, chunk) for number, chunk in enumerate(chunks)]

    def diff(self, old: str, new: str | None = None, *, stat: bool = False, color: bool = False) -> str:
        """What changed between two snapshots, or since one, as a patch or a summary of it."""
        return diff_of(self._git, old, new or self._index.tree_aside(self._latest), stat=stat, color=color)

    def changed(self, old: str, new: str) -> dict[str, tuple[bytes | None, bytes | None]]:
        """The files that differ between two snapshots, each with what is in it in both; None where it is absent."""
        differing = {path: delta for path, delta in deltas(self._git, old, new).items() if not delta.nested}
        before = {delta.old_object for delta in differing.values() if delta.old != ABSENT}
        after = {delta.new_object for delta in differing.values() if delta.new != ABSENT}
        found = self._objects(sorted(before | after))
        return {path: (found.get(delta.old_object), found.get(delta.new_object)) for path, delta in differing.items()}

    def files(self, old: str, new: str) -> list[FileStat]:
        """How much of each file changed between two snapshots; one that was moved counts under its new name."""
        counted = self._git.run("diff-tree", "-r", "-z", "-M", "--numstat", old, new)
        fields = iter(os.fsdecode(field) for field in counted.out.split(b"\0"))
        return [_file_stat(field, fields) for field in fields if field]

    def changed_files(self) -> list[FileStat]:
        """How much of each file differs from before the run, by the last snapshot; what checks write does not count."""
        base = self.base()
        files = self.files(base, self._latest) if base and self._latest else []
        return [file for file in files if not self.is_by_product(file.path)]

    def is_by_product(self, path: str) -> bool:
        """Whether the checks themselves write a file: they did, or made its directory, before the first turn."""
        if self._by_products is None:
            first = self.log()[:2]
            written = deltas(self._git, first[0].sha, first[1].sha) if [e.label for e in first[1:]] == [CHECKED] else {}
            known = (
                {parent for name in self.paths(first[0].sha) for parent in PurePosixPath(name).parents}
                if written
                else set()
            )
            new = {str(p) for name in written for p in PurePosixPath(name).parents if p not in known}
            self._by_products = frozenset({*written, *new} - {"."})
        return bool(self._by_products) and any(
            str(p) in self._by_products for p in (path, *PurePosixPath(path).parents)
        )

    def paths(self, sha: str) -> list[str]:
        """Every file of a snapshot."""
        return self._git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", sha).names

    def contents(self, sha: str, paths: Iterable[str]) -> dict[str, bytes]:
        """What is in files of a snapshot."""
        named = {f"{sha}:{path}": path for path in paths if "\n" not in path}
        return {named[name]: data for name, data in self._objects(named).items()}

    def lay_out(self, sha: str, paths: Iterable[str], directory: Path) -> None:
        """Write files of a snapshot into another directory, with the bytes that they had in the work tree."""
        git = self._git.adding(GIT_INDEX_FILE=str(directory / ".index"))
        git.run("read-tree", sha)
        git.run("checkout-index", "-z", "--stdin", f"--prefix={directory / 'tree'}/", stdin=joined(paths))

    @property
    def raw(self) -> bool:
        """Whether line ends are kept as they are on disk, where the user's git would convert them."""
        return self._index.raw

    def refs(self) -> Mapping[str, str]:
        """Where HEAD, branches, tags and the stash stood before the run; empty where it was not recorded."""
        if self._refs is None and (base := self.base()):
            self._refs = history.read(self._git.run("cat-file", "commit", base).text)
        return self._refs or {}

    def history(self) -> list[Finding]:
        """What was done to branches, tags, the stash and HEAD since before the run."""
        return history.findings(self.place, self.refs())

    def look_at_history(self) -> HistoryChange:
        """What is not as it was before the run, and the commits that others made since the last look."""
        if self.place.private:
            return HistoryChange()
        now = history.Refs.of(self.place)
        missing = tuple(finding.sentence for finding in history.compare(now, self.refs()))
        commits = history.new_commits(now, self._tips) if self._tips is not None else ()
        self._tips = now.tips
        return HistoryChange(missing, commits)

    def undo(self, *, force: bool = False) -> Undone:
        """Take back the latest turn or restore not yet taken back, and nothing that a person did since."""
        entries = self.log()
        step = next((entry for entry in entries if entry.sha == entries[-1].position), None)
        if step is None or step.number == 0:
            todo = "`ralph diff` shows what differs from where the run began"
            raise UsageError("nothing to undo: the tree is where the run began", todo=todo)
        target = entries[step.number - 1]
        before = self._take("before undo", position=step.sha).snapshot
        wanted, differs = deltas(self._git, step.sha, target.sha), deltas(self._git, before, target.sha)
        writes = {path: delta for path, delta in differs.items() if path in wanted}
        edited = () if force else deltas(self._git, step.sha, before)
        self._restorer.refuse_to_lose(writes, edited, force=force)
        restored = self._write(target.sha, before, writes, f"undo: {step.label}", position=target.position)
        return Undone(step, restored)

    def restore(self, sha: str, label: str) -> Restored:
        """Make the tree equal to a snapshot, writing only what differs, after one of what is there."""
        entries = self.log()
        position = entries[-1].position if entries else ""
        before = self._take(f"before {label}", position=position).snapshot
        writes = deltas(self._git, before, sha)
        if not writes:
            return Restored(before, before)
        self._restorer.refuse_to_lose(writes, (), force=True)
        return self._write(sha, before, writes, label)

    def drop(self) -> None:
        """Forget the run's snapshots; git frees the space when it next cleans up."""
        self._git.run("update-ref", "-d", self._ref)
        history.unpin(self.place.git, self._pins)
        self._index.drop()
        self._latest = self._tree = self._base = self._refs = None
        if self.place.private:
            self._git.run("gc", "--quiet", "--prune=1.day.ago")

    def _take(self, label: str, **trailers: str) -> Change:
        tree = self._index.tree(self._latest)
        if self._latest and tree == self._tree:
            return Change(self._latest)
        return self._commit(tree, label, **trailers)

    def _commit(self, tree: str, label: str, **trailers: str) -> Change:
        subject = "".join(char if char.isprintable() else " " for char in label).strip() or "snapshot"
        notes = "".join(f"Ralph-{key.title()}: {value}\n" for key, value in trailers.items() if value)
        if not self._latest:
            refs = history.record(self.place)
            notes += history.write(refs)
            if self._pins:
                history.pin(self.place, self._pins, refs)
        parent = ("-p", self._latest) if self._latest else ()
        sha = self._git.run("commit-tree", tree, *parent, stdin=os.fsencode(f"{subject}\n\n{notes}")).text
        with disk(self.place.common):
            # A git that was killed left it: nobody else writes this ref.
            (self.place.common / f"{self._ref}.lock").unlink(missing_ok=True)
        self._git.run("update-ref", self._ref, sha, self._latest or "")
        before, self._latest, self._tree = self._tree, sha, tree
        return Change(sha) if before in (None, tree) else self._counted(sha)

    def _write(self, sha: str, before: str, writes: Mapping[str, Delta], label: str, position: str = "") -> Restored:
        """Bring paths back as a snapshot has them, and record it."""
        files, notices = self._restorer.write(sha, writes)
        change = self._commit(self._index.tree(self._latest), label, restores=sha, position=position)
        return Restored(change.snapshot, before, files, notices)

    def _objects(self, names: Iterable[str]) -> dict[str, bytes]:
        """What is in objects, by the names they are asked for."""
        asked = list(names)
        stdin = os.fsencode("".join(f"{name}\n" for name in asked))
        out = self._git.run("cat-file", "--batch", stdin=stdin).out if asked else b""
        found: dict[str, bytes] = {}
        at = 0
        for name in asked:
            header, at = out[at : out.index(b"\n", at)].split(), out.index(b"\n", at) + 1
            size = int(header[-1]) if header[-1].isdigit() else -1
            if size >= 0:
                found[name] = out[at : at + size]
                at += size + 1
        return found

    def _counted(self, sha: str) -> Change:
        counted = self._git.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", f"{sha}^", sha).names
        counts = [line.split("\t", 2) for line in counted]
        added, removed = (sum(int(one[side]) for one in counts if one[side] != "-") for side in (0, 1))
        names = tuple(shown(one[2]) for one in counts[:NAMED])
        return Change(sha, files=len(counts), added=added, removed=removed, names=names)


def _place(root: Path, workspace: Path, ref: str) -> Repository:
    """Where a run has its snapshots: where it began them, though an agent has made a repository since."""
    private, around = root / ".ralph" / "git", repository(workspace)
    if around and not _has(private, ref) and not _is_ignored(around.top, workspace):
        return around
    with disk(private):
        # It may have come with a clone, and git starts programs that its settings name (filters, diff drivers).
        for name in ("config", "config.worktree", "commondir"):
            (private / name).unlink(missing_ok=True)
    Git(root).run("init", "--quiet", "--bare", "--template=", str(private))
    return Repository(workspace, private, private, private=True)


def _has(private: Path, ref: str) -> bool:
    if not (private / "HEAD").exists():
        return False
    return bool(Git(private, {"GIT_DIR": str(private)}).run("for-each-ref", ref, ok=(0, 128)).out)


def _is_ignored(top: Path, workspace: Path) -> bool:
    """Whether the repository around a workspace leaves it out, as that of a home directory does."""
    return top != workspace and Git(top).run("check-ignore", "-q", str(workspace), ok=(0, 1)).code == 0


def _entry(number: int, chunk: str) -> Entry:
    sha, label, rest = chunk.split("\n", 2)
    noted = dict(_TRAILER.findall(rest))
    return Entry(
        number=number, sha=sha, label=label, restores=noted.get("Restores"), position=noted.get("Position", sha)
    )


def _file_stat(field: str, fields: Iterator[str]) -> FileStat:
    """One file of `--numstat -z`; where it was moved, both names follow."""
    added, removed, path = field.split("\t", 2)
    if not path:
        _, path = next(fields), next(fields)
    return FileStat(path, *(int(count) if count.isdigit() else 0 for count in (added, removed)))
