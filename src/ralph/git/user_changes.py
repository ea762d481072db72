"""What the user changed while a run was stopped, apart from what the run changed.

A snapshot of the user's changes is marked as such. To go back to an earlier snapshot, or to compare with it, Ralph first puts
these changes into it, so that they are neither undone nor counted as the run's.
"""

import itertools
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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

    def without(self, paths: Collection[str]) -> "UserChanges":
        """The changes to other files."""
        left = {path: delta for path, delta in self.versions.items() if path not in paths}
        return UserChanges(left, self.shared - set(paths))


def find_user_changes(git: Git, start: str, steps: Sequence[ChainedSnapshot]) -> UserChanges:
    """The user's changes in the steps after a snapshot. `steps` begins with that snapshot."""
    versions: dict[str, Delta] = {}
    shared: set[str] = set()
    known: set[tuple[str, str, str]] = set()
    for before, step in itertools.pairwise(steps):
        if step.by_user:
            changed = compare_trees(git, before.sha, step.sha)
            of_the_run = compare_trees(git, start, before.sha).keys()
            shared.update(path for path in changed if _is_shared(versions.get(path), changed[path], path in of_the_run))
            versions.update(changed)
            known.update((path, delta.new, delta.new_object) for path, delta in changed.items())
        elif step.restores and known:
            # A restore or an undo gives up the user's version of a file, or brings it back.
            for path, delta in compare_trees(git, before.sha, step.sha).items():
                if (path, delta.new, delta.new_object) in known:
                    versions[path] = delta
                else:
                    versions.pop(path, None)
                    shared.discard(path)
    return UserChanges(versions, frozenset(shared))


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


def format_index_entries(changed: Mapping[str, Delta]) -> bytes:
    """Index entries for `update-index --index-info`. Each path is removed first, which also removes conflict entries."""
    out = [f"0 {'0' * len(delta.new_object)}\t{path}" for path, delta in changed.items()]
    back = [f"{delta.new} {delta.new_object}\t{path}" for path, delta in changed.items() if delta.new != ABSENT]
    return join_names([*out, *back])
