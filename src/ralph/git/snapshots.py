"""Snapshots of the work tree: a chain of commits that one ref per run keeps (`snapshot_ref`).

A snapshot holds the whole work tree around the workspace, because an agent may change anything in it, and the files of
submodules. Ignored files and Ralph's own are left out. Files are restored as they were. If `.gitattributes` defines how a
file is stored (line ends, LFS, encryption), git stores and restores it by that rule.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ralph.core.checks import Finding
from ralph.core.errors import SnapshotsLostError, UsageError
from ralph.core.turns import CHECKED, Change, FileStat
from ralph.git import history
from ralph.git.command import (
    RALPH_IDENTITY,
    Git,
    GitError,
    Repository,
    disk,
    exclude_paths,
    find_repository,
    identify_repository,
    list_own_paths,
    printable,
)
from ralph.git.output_files import list_output_files
from ralph.git.planted_programs import (
    describe_planted_programs,
    find_planted_programs,
    load_found_programs,
    save_found_programs,
)
from ralph.git.snapshot_ref import LatestSnapshot, SnapshotRef
from ralph.git.submodules import (
    IndexWithSubmodules,
    describe_moved,
    find_covered_submodules,
    format_record,
    parse_record,
    read_positions,
)
from ralph.git.tree_index import ABSENT, Delta, PrivateIndex, Restorer, compare_trees, join_names
from ralph.git.user_changes import UserChanges, apply_user_changes, find_user_changes, merge_edit, separate_user_changes

NAMED, COUNTED = 5, 30
"""How many of the files that a turn changed are named, and listed with their numbers of lines."""
_TRAILER = re.compile(r"^Ralph-(Restores|Position|By): ([0-9a-z]+)$", re.M)
_USER = "user"
STOPPED = "when the run stopped"
"""The label of a snapshot of what checks wrote after the last turn."""
_CONFIG = (
    *("core.safecrlf=false", "core.splitIndex=false", "core.logAllRefUpdates=false"),
    # Settings of the repository with which git overlooks changed files.
    *("core.checkStat=default", "core.trustctime=true", "core.ignoreStat=false", "core.untrackedCache=false"),
)
_LINE_END = {"true": "crlf", "yes": "crlf", "on": "crlf", "1": "crlf", "input": "lf"}


@dataclass(frozen=True)
class SnapshotEntry:
    """One snapshot of a run."""

    number: int
    sha: str
    label: str
    restores: str | None
    """The snapshot that was restored, if this one records a restore or an undo."""
    position: str
    """The step that the tree is at: this one, unless it is an undo, or nothing of it is to be undone."""
    by_user: bool = False
    """Whether it has what the user changed while the run was stopped."""


@dataclass(frozen=True)
class Restored:
    """The result of a restore."""

    snapshot: str
    before: str
    """The snapshot with everything as it was just before."""
    files: tuple[str, ...] = ()
    """The files that were written or deleted."""
    deleted: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Files with changes of the user, which stay. If the run changed them too, its lines are gone."""
    shared: tuple[str, ...] = ()
    """Files that both the run and the user changed, in the same lines. They are as the user left them."""


@dataclass(frozen=True)
class Undone:
    """The result of an undo."""

    undone: SnapshotEntry
    restored: Restored
    is_last: bool = False
    """Whether no earlier step of the run is left to undo."""


def format_diff(git: Git, old: str, new: str, *, stat: bool, ignores_space: bool = False) -> str:
    """What changed between two trees, as a patch or a summary of it."""
    form = ["--stat" if stat else "--patch", *(["--ignore-all-space"] if ignores_space else [])]
    # Without this setting, git writes every letter that is not ASCII as octal numbers.
    readable = ("-c", "core.quotePath=false")
    return git.run(*readable, "diff-tree", "-r", "-M", *form, "--color=never", old, new).out.decode(errors="replace")


def read_file(git: Git, commit: str, path: str) -> bytes | None:
    """The content of a file in a commit; None if it is not there."""
    found = git.run("cat-file", "blob", f"{commit}:{path}", ok=(0, 128))
    return None if found.code else found.out


class Snapshots:
    """The snapshots of one run. To take or restore one, hold the run's lock; reading needs no lock."""

    def __init__(
        self,
        git: Git,
        repository: Repository,
        index: PrivateIndex,
        workspace: Path,
        ref: SnapshotRef,
        known: LatestSnapshot | None,
        planted_file: Path,
    ) -> None:
        self.repository = repository
        self._git, self._index, self._ref = git, index, ref
        self._planted_file = planted_file
        """What of the tree could start programs when the run started."""
        self._restorer = Restorer(git, repository, index, workspace)
        self._latest: str | None = known.commit if known else None
        self._tree: str | None = known.tree if known else None
        self._base: str | None = None
        self._refs: Mapping[str, str] | None = None
        self._by_products: frozenset[str] | None = None
        self._user_base: tuple[str, str, tuple[str, frozenset[str]]] | None = None
        """The latest snapshot, an earlier one, and that one with the user's changes up to the latest."""
        self._user_has_changed: bool | None = None
        self.submodules: tuple[str, ...] = ()
        """The submodules whose files are in the snapshots."""

    @classmethod
    def open(
        cls,
        root: Path,
        workspace: Path,
        run: str,
        home: Path,
        *,
        ref: str = "",
        excluding: Sequence[str] = (),
        with_submodules: bool = False,
        by_engine: bool = False,
    ) -> "Snapshots":
        """The snapshots of a run, in the repository around the workspace or in a private one under `root`.

        They are under one ref, and leave out the paths in `excluding`. The first one decides whether they have the files of
        submodules: `with_submodules` is for new runs. `by_engine` says that the engine of the run opens them.
        """
        root, workspace, ref = root.resolve(), workspace.resolve(), ref or f"refs/ralph/{run}"
        repository = _choose_repository(root, workspace, ref)
        own = list_own_paths(repository.top, root, workspace)
        exclude_paths(repository.common, own)
        with disk(home):
            home.mkdir(parents=True, exist_ok=True)
        # With `git replace`, an agent could make git read another object instead of ours.
        git = repository.git.with_options(*_CONFIG, GIT_NO_REPLACE_OBJECTS="1", **RALPH_IDENTITY)
        end = _LINE_END.get(git.run("config", "--get", "core.autocrlf", ok=(0, 1)).text.lower())
        if end:
            # Store bytes as they are on disk. Files with a `text` attribute still get the line ends of the user's settings.
            git = git.with_options("core.autocrlf=false", f"core.eol={end}")
        left_out, file, raw = (*own, *excluding), home.resolve() / "snapshot.index", end is not None
        outputs = list_output_files(repository.top, home, records=by_engine)
        keeper = SnapshotRef(git, ref, repository.common / "objects")
        known = keeper.read()
        covered = find_covered_submodules(
            git, repository, known.commit if known else "", with_submodules=with_submodules
        )
        index = PrivateIndex(git, repository, left_out, file, raw=raw, outputs=outputs)
        if covered:
            index = IndexWithSubmodules(git, repository, left_out, file, raw=raw, outputs=outputs, submodules=covered)
        snapshots = cls(
            git=git,
            repository=repository,
            index=index,
            workspace=workspace,
            ref=keeper,
            known=known,
            planted_file=home.resolve() / "starts-programs.json",
        )
        snapshots.submodules = covered
        return snapshots

    def identify_repository(self) -> str:
        """What the repository and its copies have in common."""
        return identify_repository(self.repository)

    @property
    def notices(self) -> tuple[str, ...]:
        """What the snapshots so far do not hold, and what of the changes can start programs later."""
        return tuple(self._index.notices)

    def _warn_about_programs(self, *, is_first: bool) -> None:
        """Notices about what makes git, an editor, a shell, CI or Ralph start something later, outside the sandbox."""
        git = self._index.git
        now = find_planted_programs(git, self._index.own)
        if is_first:
            save_found_programs(self._planted_file, now)
        else:
            texts = describe_planted_programs(git, load_found_programs(self._planted_file), now)
            self._index.notices.update(dict.fromkeys(texts))

    def list_planted_programs(self) -> list[str]:
        """What is new or changed since the first snapshot and starts programs later, one sentence each."""
        now = find_planted_programs(self._index.git, self._index.own)
        return describe_planted_programs(self._index.git, load_found_programs(self._planted_file), now)

    def take(self, label: str) -> Change:
        """Snapshot the tree. An unchanged tree costs one git command and adds nothing."""
        is_first = self._latest is None
        change = self._take(label)
        self._warn_about_programs(is_first=is_first)
        return change

    def take_after_checks(self) -> None:
        """Record what checks wrote after the last turn, so that it does not count as the user's when the run continues."""
        self._take(STOPPED, position=self._position())

    def take_user_changes(self) -> Change:
        """Record what the user changed while the run was stopped: no undo or restore takes that back."""
        return self._take("changed by the user", position=self._position(), by=_USER)

    def bring_back(self, known: Iterable[str], first: str) -> None:
        """Continue, after the ref was deleted, from the first of these snapshots that is still there and follows `first`."""
        for sha in known:
            if self.has(sha) and history.contains(self._git, sha, first):
                self._ref.rebuild(sha)
                self._latest, self._tree = sha, self._git.resolve_tree(sha)
                return

    def begin(self, commit: str) -> None:
        """Start over, with the tree of a commit as the first snapshot."""
        self._ref.delete()
        self._index.drop()
        self._latest = self._tree = self._base = self._refs = None
        self._commit(self._git.resolve_tree(commit), "before the task")
        self._warn_about_programs(is_first=True)

    def base(self) -> str | None:
        """The first snapshot of the run."""
        if self._base is None and self._latest:
            self._base = self._git.run("rev-list", "--max-parents=0", self._latest).text
        return self._base

    def latest(self) -> str | None:
        """The last snapshot of the run."""
        return self._latest

    def find_latest_of(self, run: str) -> str:
        """The last snapshot of another run in this repository; empty if there is none."""
        known = SnapshotRef(self._git, f"refs/ralph/{run}", self.repository.common / "objects").read()
        return known.commit if known else ""

    def tree_now(self) -> str:
        """The work tree as it is now, without recording it."""
        return self._index.tree_aside(self._latest)

    def has(self, sha: str) -> bool:
        """Whether a snapshot, perhaps of another run, is still there."""
        return bool(self._git.resolve_commit(sha))

    def log(self) -> list[SnapshotEntry]:
        """All snapshots of the run, oldest first."""
        if not self._latest:
            return []
        listed = self._git.run("rev-list", "--reverse", "--format=%x00%H%n%B", self._latest)
        chunks = listed.out.decode(errors="replace").split("\0")[1:]
        return [_parse_entry(number, chunk) for number, chunk in enumerate(chunks)]

    def diff(self, old: str, new: str | None = None, *, stat: bool = False, ignores_space: bool = False) -> str:
        """What changed between two snapshots, or since one, as a patch or a summary of it."""
        return format_diff(self._git, old, new or self.tree_now(), stat=stat, ignores_space=ignores_space)

    def read_file(self, commit: str, path: str) -> bytes | None:
        """The content of a file in a snapshot; None if it is not there."""
        return read_file(self._git, commit, path)

    def read_changed(self, old: str, new: str) -> dict[str, tuple[bytes | None, bytes | None]]:
        """The files that differ between two snapshots, with their content in both; None if the file is absent."""
        differing = {path: delta for path, delta in compare_trees(self._git, old, new).items() if not delta.nested}
        before = {delta.old_object for delta in differing.values() if delta.old != ABSENT}
        after = {delta.new_object for delta in differing.values() if delta.new != ABSENT}
        found = self._objects(sorted(before | after))
        return {path: (found.get(delta.old_object), found.get(delta.new_object)) for path, delta in differing.items()}

    def files(self, old: str, new: str) -> list[FileStat]:
        """How much of each file changed between two snapshots; one that was moved counts under its new name."""
        counted = self._git.run("diff-tree", "-r", "-z", "-M", "--numstat", old, new)
        fields = iter(os.fsdecode(field) for field in counted.out.split(b"\0"))
        return [_parse_file_stat(field, fields) for field in fields if field]

    def changed_files(self) -> list[FileStat]:
        """How much of each file the run has changed up to the last snapshot, without what checks write."""
        if not self._latest or not self.has(self._latest):
            return []
        files = self.files(self.base_with_user_changes(), self._latest)
        return [file for file in files if not self.is_by_product(file.path)]

    def is_by_product(self, path: str) -> bool:
        """Whether the checks themselves write a file: they did, or made its directory, before the first turn."""
        if self._by_products is None:
            self._by_products = self._find_by_products()
        parents = (str(parent) for parent in PurePosixPath(path).parents)
        return path in self._by_products or not self._by_products.isdisjoint(parents)

    def _find_by_products(self) -> frozenset[str]:
        """The files that the checks wrote before the first turn, and the directories that they made."""
        first = self.log()[:2]
        if len(first) < 2 or first[1].label != CHECKED:
            return frozenset()
        written = compare_trees(self._git, first[0].sha, first[1].sha)
        if not written:
            return frozenset()
        known: set[PurePosixPath] = set()
        for name in self.paths(first[0].sha):
            known.update(PurePosixPath(name).parents)
        found = set(written)
        for name in written:
            found.update(str(parent) for parent in PurePosixPath(name).parents if parent not in known)
        return frozenset(found - {"."})

    def paths(self, sha: str) -> list[str]:
        """Every file of a snapshot."""
        return self._git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", sha).names

    def contents(self, sha: str, paths: Iterable[str]) -> dict[str, bytes]:
        """What is in files of a snapshot."""
        named = {f"{sha}:{path}": path for path in paths if "\n" not in path}
        return {named[name]: data for name, data in self._objects(named).items()}

    def write_files(self, sha: str, paths: Iterable[str], directory: Path) -> None:
        """Write files of a snapshot into another directory, with the bytes that they had in the work tree."""
        git = self._git.with_options(GIT_INDEX_FILE=str(directory / ".index"))
        git.run("read-tree", sha)
        git.run("checkout-index", "-z", "--stdin", f"--prefix={directory / 'tree'}/", stdin=join_names(paths))

    @property
    def raw(self) -> bool:
        """Whether line ends are stored as they are on disk, although the user's git would convert them."""
        return self._index.raw

    def refs(self) -> Mapping[str, str]:
        """Where HEAD, the refs and the stash were before the run; empty if that was not recorded."""
        if self._refs is None and (base := self.base()):
            self._refs = history.parse_record(self._git.run("cat-file", "commit", base).text)
        return self._refs or {}

    def history(self) -> list[Finding]:
        """What of HEAD, the refs and the stash from before the run is lost."""
        return history.find_losses(self.repository, self.refs())

    def base_with_user_changes(self) -> str:
        """The tree that the run's changes are compared with: the first snapshot, with what the user changed since."""
        base = self.base()
        return self.with_user_changes(base) if base else ""

    def with_user_changes(self, sha: str) -> str:
        """The tree of a snapshot from before the run, with what the user changed during the run."""
        return self._separate_user_changes(sha)[0]

    def list_mixed_files(self) -> tuple[str, ...]:
        """The files in which the lines of the run and of the user cannot be told apart."""
        base = self.base()
        return tuple(sorted(self._separate_user_changes(base)[1])) if base else ()

    def _separate_user_changes(self, sha: str) -> tuple[str, frozenset[str]]:
        """See `separate_user_changes`. A snapshot without changes of the user is returned as it is."""
        latest, base = self._latest, self.base()
        if latest is None or base is None:
            return sha, frozenset()
        if self._user_base is None or self._user_base[:2] != (latest, sha):
            found = separate_user_changes(self._git, sha, self.find_user_changes(base))
            self._user_base = (latest, sha, found)
        return self._user_base[2]

    def with_own_user_changes(self, sha: str) -> str:
        """A snapshot with what the user changed since, except in files that the run had changed before."""
        changes = self.find_user_changes(sha)
        return apply_user_changes(self._git, sha, changes.without(changes.shared))

    def find_user_changes(self, since: str) -> UserChanges:
        """What the user changed while the run was stopped after a snapshot, without what checks write."""
        if not self._has_user_changes():
            return UserChanges()
        entries = self.log()
        start = next((entry.number for entry in entries if entry.sha == since), None)
        if start is None:
            return UserChanges()
        changes = find_user_changes(self._git, since, entries[start:])
        return changes.without([path for path in changes.versions if self.is_by_product(path)])

    def _has_user_changes(self) -> bool:
        """Whether any snapshot has changes of the user. Known after one look, so that a long run costs no more."""
        if self._user_has_changed is None:
            marked = ("--max-count=1", f"--grep=^Ralph-By: {_USER}$")
            self._user_has_changed = bool(self._latest and self._git.run("rev-list", *marked, self._latest).text)
        return self._user_has_changed

    def _position(self) -> str:
        """The step that the tree is at, by the last snapshot."""
        if not self._latest:
            return ""
        noted: dict[str, str] = dict(_TRAILER.findall(self._git.run("cat-file", "commit", self._latest).text))
        return noted.get("Position", self._latest)

    def undo(self, *, force: bool = False, by_user: bool = True) -> Undone:
        """Undo the latest turn or restore that is not undone yet, and nothing that the user did since.

        `by_user` says that the user made what no snapshot has yet, and not a turn that was killed.
        """
        entries = self.log()
        step = next((entry for entry in entries if entry.sha == entries[-1].position), None)
        if step is None or step.number == 0:
            todo = "`ralph diff` shows what differs from the state before the run"
            raise UsageError("nothing to undo: no change of the run is left", todo=todo)
        target = entries[step.number - 1]
        before = self._take("before undo", position=step.sha, by=_USER if by_user else "").snapshot
        wanted, differs = compare_trees(self._git, step.sha, target.sha), compare_trees(self._git, before, target.sha)
        writes = {path: delta for path, delta in differs.items() if path in wanted}
        edited = {} if force else compare_trees(self._git, step.sha, before)
        merged = self._undo_around_edits(wanted, {path: edited[path] for path in writes if path in edited})
        writes.update(merged)
        self._restorer.refuse_to_lose(writes, edited.keys() - merged.keys(), force=force)
        restored = self._write(
            apply_user_changes(self._git, target.sha, UserChanges(merged)),
            before,
            writes,
            label=f"undo: {step.label}",
            restores=target.sha,
            position=target.position,
        )
        restored = replace(restored, kept=tuple(sorted(merged)))
        return Undone(step, restored, is_last=target.position == entries[0].sha)

    def _undo_around_edits(self, undo: Mapping[str, Delta], edited: Mapping[str, Delta]) -> dict[str, Delta]:
        """The edited files without what a step changed and with all edits, as far as their lines do not overlap."""
        merged = {}
        for path, edit in edited.items():
            if ABSENT in (edit.old, edit.new, undo[path].new) or edit.nested or undo[path].nested:
                continue
            content, is_clean = merge_edit(self._git, edit.new_object, undo[path])
            if is_clean:
                merged[path] = Delta(edit.new, edit.new, edit.new_object, content)
        return merged

    def restore(self, sha: str, label: str, *, force: bool = False, by_user: bool = True) -> Restored:
        """Make the tree equal to a snapshot, without what the user changed since. The tree before it is recorded first.

        With `force`, these files are as in the snapshot, too. `by_user` as in `undo`.
        """
        before = self._take(f"before {label}", position=self._position(), by=_USER if by_user else "").snapshot
        changes = UserChanges() if force else self.find_user_changes(sha)
        tree, mixed = separate_user_changes(self._git, sha, changes, keeps_mixed=True)
        writes = compare_trees(self._git, before, tree)
        if writes:
            self._restorer.refuse_to_lose(writes, (), force=True)
            done = self._write(tree, before, writes, label=label, restores=sha)
        else:
            done = Restored(before, before, notices=self._describe_moved_submodules(sha))
        yours = compare_trees(self._git, sha, tree).keys()
        kept, shared = sorted(yours - mixed), sorted(yours & mixed)
        return replace(done, kept=tuple(kept), shared=tuple(shared))

    def find_submodule(self, path: str) -> str:
        """The outermost submodule with files in the snapshots that a path is in; empty if it is in none."""
        return next((one for one in self.submodules if path.startswith(f"{one}/")), "")

    def drop(self) -> None:
        """Forget the run's snapshots. Git frees the space at its next garbage collection."""
        self._ref.delete()
        self._index.drop()
        self._latest = self._tree = self._base = self._refs = None
        if self.repository.private:
            self._git.run("gc", "--quiet", "--prune=1.day.ago")

    def _take(self, label: str, **trailers: str) -> Change:
        self._ref.ensure_commits()
        tree = self._index.tree(self._latest)
        if not self._latest or tree != self._tree:
            return self._commit(tree, label, **trailers)
        # Looking for the file is cheap. If it is missing, git may have packed the ref.
        if (
            not (self.repository.common / self._ref.name).exists()
            and not self._git.run("for-each-ref", self._ref.name).out
        ):
            self._remove_lock()
            with self._detect_lost_snapshots():
                self._ref.write_again()
        return Change(self._latest)

    def _commit(self, tree: str, label: str, **trailers: str) -> Change:
        subject = "".join(char if char.isprintable() else " " for char in label).strip() or "snapshot"
        notes = "".join(f"Ralph-{key.title()}: {value}\n" for key, value in trailers.items() if value)
        if not self._latest:
            notes += history.format_record(history.record_refs(self.repository))
        if self.submodules:
            notes += format_record(read_positions(self.repository.top, self.submodules))
        self._remove_lock()
        with self._detect_lost_snapshots():
            sha = self._ref.append(tree, f"{subject}\n\n{notes}")
        if trailers.get("by"):
            self._user_has_changed = True
        before, self._latest, self._tree = self._tree, sha, tree
        return Change(sha) if before in (None, tree) else self._count_change(sha)

    def _remove_lock(self) -> None:
        """Remove the lock of the ref. A killed git left it: no other engine works on this run."""
        with disk(self.repository.common):
            (self.repository.common / f"{self._ref.name}.lock").unlink(missing_ok=True)

    @contextmanager
    def _detect_lost_snapshots(self) -> Iterator[None]:
        """Raise `SnapshotsLostError` if git fails because the latest snapshot is no longer in the repository."""
        try:
            yield
        except GitError as error:
            if not self._latest or self.has(self._latest):
                raise
            raise SnapshotsLostError(
                "the snapshots of this run were removed from the repository, so its changes can no longer be compared",
                where=self._ref.name,
                todo="look at the changes yourself with `git status` and `git diff`, then start a new run",
            ) from error

    def _write(
        self, tree: str, before: str, writes: Mapping[str, Delta], *, label: str, restores: str, position: str = ""
    ) -> Restored:
        """Restore paths as a tree has them, and record that. `restores` is the snapshot that the tree is made of."""
        changed, notices = self._restorer.write(tree, writes)
        notices += self._describe_moved_submodules(restores)
        change = self._commit(self._index.tree(self._latest), label, restores=restores, position=position)
        deleted = tuple(path for path in changed if writes[path].new == ABSENT)
        return Restored(snapshot=change.snapshot, before=before, files=changed, deleted=deleted, notices=notices)

    def _describe_moved_submodules(self, sha: str) -> tuple[str, ...]:
        """The submodules that are at another commit than in a snapshot. Ralph restores files, and no history."""
        if not self.submodules:
            return ()
        return describe_moved(self.repository.top, parse_record(self._git.run("cat-file", "commit", sha).text))

    def _objects(self, names: Iterable[str]) -> dict[str, bytes]:
        """The content of objects, by the names in the request. Objects that do not exist are left out."""
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

    def _count_change(self, sha: str) -> Change:
        counts = self._count_files(f"{sha}^", sha)
        shown = tuple(counts.values())[:COUNTED]
        base = self.base()
        since_start = self._count_files(base, sha) if base else counts
        return Change(
            sha,
            files=len(counts),
            added=sum(stat.added for stat in counts.values()),
            removed=sum(stat.removed for stat in counts.values()),
            names=tuple(stat.path for stat in shown[:NAMED]),
            stats=shown,
            since_start=tuple(since_start[path] for path in tuple(counts)[:COUNTED] if path in since_start),
        )

    def _count_files(self, before: str, after: str) -> dict[str, FileStat]:
        """How much of each file two snapshots differ in, by path."""
        counted = self._git.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", before, after).names
        found: dict[str, FileStat] = {}
        for line in counted:
            added, removed, path = line.split("\t", 2)
            found[path] = FileStat(printable(path), _count(added), _count(removed))
        return found


def _count(field: str) -> int:
    """The number in a field of `--numstat`, which is `-` for binary files."""
    return int(field) if field != "-" else 0


def _choose_repository(root: Path, workspace: Path, ref: str) -> Repository:
    """The repository for the snapshots of a run: the one it began with, even if an agent has made another since."""
    private, around = root / ".ralph" / "git", find_repository(workspace)
    if around and not _has(private, ref) and not _is_ignored(around.top, workspace):
        return around
    with disk(private):
        # The directory may come from a clone, and git starts programs that its settings name (filters, diff drivers).
        for name in ("config", "config.worktree", "commondir"):
            (private / name).unlink(missing_ok=True)
    Git(root).run("init", "--quiet", "--bare", "--template=", str(private))
    return Repository(workspace, private, private, private=True)


def identify_project(root: Path, workspace: Path) -> str:
    """What the repository of a project and its copies have in common; empty if it has none."""
    private = root / ".ralph" / "git"
    return identify_repository(find_repository(workspace) or Repository(workspace, private, private, private=True))


def _has(private: Path, ref: str) -> bool:
    if not (private / "HEAD").exists():
        return False
    return bool(Git(private, {"GIT_DIR": str(private)}).run("for-each-ref", ref, ok=(0, 128)).out)


def _is_ignored(top: Path, workspace: Path) -> bool:
    """Whether the repository around a workspace ignores it, as a repository of dotfiles in a home directory does."""
    return top != workspace and Git(top).run("check-ignore", "-q", str(workspace), ok=(0, 1)).code == 0


def _parse_entry(number: int, chunk: str) -> SnapshotEntry:
    sha, label, rest = chunk.split("\n", 2)
    noted = dict(_TRAILER.findall(rest))
    return SnapshotEntry(
        number=number,
        sha=sha,
        label=label,
        restores=noted.get("Restores"),
        position=noted.get("Position", sha),
        by_user=noted.get("By") == _USER,
    )


def _parse_file_stat(field: str, fields: Iterator[str]) -> FileStat:
    """One file of `--numstat -z`. If it was moved, the path is empty and both names follow."""
    added, removed, path = field.split("\t", 2)
    if not path:
        _, path = next(fields), next(fields)
    return FileStat(path, *(int(count) if count.isdigit() else 0 for count in (added, removed)))
