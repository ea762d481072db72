"""What the user changed while a run was stopped, apart from what the run changed.

A snapshot of the user's changes is marked as such. To go back to an earlier snapshot, or to compare with it, Ralph first puts
these changes into it, so that they are neither undone nor counted as the run's.
"""

import itertools
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ralph.git.command import Git
from ralph.git.tree_index import ABSENT, Delta, compare_trees, join_names


class ChainedSnapshot(Protocol):
    """A snapshot, as far as it matters here."""

    @property
    def sha(self) -> str: ...

    @property
    def restores(self) -> str | None:
        """The snapshot that was restored, if this one records a restore or an undo."""

    @property
    def by_user(self) -> bool:
        """Whether it has what the user changed while the run was stopped."""


@dataclass(frozen=True)
class UserChanges:
    """The files that the user changed since a snapshot, as the user left them."""

    versions: Mapping[str, Delta] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    """Those that the run had changed before the user did: they have changes of both."""
    edits: Mapping[str, tuple[Delta, ...]] = field(default_factory=dict)
    """What the user did to each file, step by step."""

    def without(self, paths: Collection[str]) -> "UserChanges":
        """The changes to other files."""
        left = {path: delta for path, delta in self.versions.items() if path not in paths}
        return UserChanges(left, self.shared - set(paths), self.edits)


def find_user_changes(git: Git, start: str, steps: Sequence[ChainedSnapshot]) -> UserChanges:
    """The user's changes in the steps after a snapshot. `steps` begins with that snapshot."""
    versions: dict[str, Delta] = {}
    shared: set[str] = set()
    edits: dict[str, tuple[Delta, ...]] = {}
    known: dict[tuple[str, str, str], tuple[Delta, ...]] = {}
    """The user's edits up to each version that the user left."""
    for before, step in itertools.pairwise(steps):
        if step.by_user:
            changed = compare_trees(git, before.sha, step.sha)
            of_the_run = compare_trees(git, start, before.sha).keys()
            shared.update(path for path in changed if _is_shared(versions.get(path), changed[path], path in of_the_run))
            versions.update(changed)
            for path, delta in changed.items():
                edits[path] = (*edits.get(path, ()), delta)
                known[path, delta.new, delta.new_object] = edits[path]
        elif step.restores and known:
            # A restore or an undo gives up the user's version of a file, or brings it back.
            for path, delta in compare_trees(git, before.sha, step.sha).items():
                if (path, delta.new, delta.new_object) in known:
                    versions[path] = delta
                    edits[path] = known[path, delta.new, delta.new_object]
                elif path in edits and _has_only_edits(git, step.restores, path, edits[path], delta):
                    versions[path] = delta
                    shared.discard(path)
                else:
                    versions.pop(path, None)
                    edits.pop(path, None)
                    shared.discard(path)
    return UserChanges(versions, frozenset(shared), edits)


def _has_only_edits(git: Git, restored: str, path: str, edits: Sequence[Delta], now: Delta) -> bool:
    """Whether a restore left a file as in the restored snapshot, with the user's edits in it."""
    replayed, is_separate = _replay_edits(git, restored, path, edits)
    return is_separate and replayed is not None and replayed.new_object == now.new_object


def _is_shared(last: Delta | None, now: Delta, is_of_the_run: bool) -> bool:
    """Whether the run changed a file before the user did, or between two changes of the user."""
    if last is None:
        return is_of_the_run
    return (last.new, last.new_object) != (now.old, now.old_object)


def apply_user_changes(git: Git, tree: str, changes: UserChanges) -> str:
    """A tree with the user's changes in it."""
    if not changes.versions:
        return tree
    with tempfile.TemporaryDirectory() as aside:
        own = git.with_options("core.splitIndex=false", GIT_INDEX_FILE=f"{aside}/index")
        own.run("read-tree", tree)
        own.run("update-index", "--replace", "-z", "--index-info", stdin=format_index_entries(changes.versions))
        return own.run("write-tree").text


def separate_user_changes(
    git: Git, tree: str, changes: UserChanges, *, keeps_mixed: bool = False
) -> tuple[str, frozenset[str]]:
    """An earlier tree with only the user's changes since then in it, and the files in which that is not possible.

    A file that both changed gets the user's edits without the run's. If their lines overlap, it is as in the tree, so that a
    comparison with it shows the lines of both. With `keeps_mixed`, it is as the user left it.
    """
    versions = {path: delta for path, delta in changes.versions.items() if path not in changes.shared}
    mixed = set()
    for path in changes.shared & changes.versions.keys():
        if changes.versions[path].new == ABSENT:
            versions[path] = changes.versions[path]
            continue
        delta, is_separate = _replay_edits(git, tree, path, changes.edits.get(path, ()))
        if not is_separate:
            mixed.add(path)
        if not is_separate and keeps_mixed:
            versions[path] = changes.versions[path]
        elif delta is not None:
            versions[path] = delta
    return apply_user_changes(git, tree, UserChanges(versions)), frozenset(mixed)


def _replay_edits(git: Git, tree: str, path: str, edits: Sequence[Delta]) -> tuple[Delta | None, bool]:
    """A file of a tree with the user's edits, None if it stays as it is; and whether all edits are in it."""
    listed = git.run("ls-tree", "-z", "--full-tree", tree, "--", path).names
    if not listed:
        return None, False
    mode, _, start = listed[0].split("\t", 1)[0].split()
    current, is_separate = start, True
    for edit in edits:
        if edit.nested or ABSENT in (edit.old, edit.new):
            is_separate = False
            continue
        mode = edit.new if edit.new != edit.old else mode
        current, is_clean = merge_edit(git, current, edit)
        is_separate = is_separate and is_clean
    return Delta(mode, mode, start, current), is_separate


def merge_edit(git: Git, current: str, edit: Delta) -> tuple[str, bool]:
    """A file with one edit, as far as no other change is in the way; and whether that is all of the edit."""
    with tempfile.TemporaryDirectory() as aside:
        names = []
        for name, sha in (("current", current), ("before", edit.old_object), ("after", edit.new_object)):
            names.append(f"{aside}/{name}")
            Path(names[-1]).write_bytes(git.run("cat-file", "blob", sha).out)
        # The exit code is the number of conflicts, and 255 for binary files.
        conflicts = git.run("merge-file", "-p", "--quiet", *names, ok=tuple(range(256))).code
        if conflicts == 255:
            return current, False
        merged = git.run("merge-file", "-p", "--quiet", "--ours", *names).out
    return git.run("hash-object", "-w", "--stdin", stdin=merged).text, conflicts == 0


def format_index_entries(changed: Mapping[str, Delta]) -> bytes:
    """Index entries for `update-index --index-info`. Each path is removed first, which also removes conflict entries."""
    out = [f"0 {'0' * len(delta.new_object)}\t{path}" for path, delta in changed.items()]
    back = [f"{delta.new} {delta.new_object}\t{path}" for path, delta in changed.items() if delta.new != ABSENT]
    return join_names([*out, *back])
