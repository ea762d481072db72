"""Commits of a run on the user's own branch: one per iteration, of the files that it changed.

A commit is made beside the user's index, from HEAD's tree and the snapshot after the iteration, without hooks. Afterwards
the index takes over the committed files, and nothing else of it changes.
"""

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ralph.core.events import Commit, WorkCommitted
from ralph.core.turns import FileStat
from ralph.git.command import Git, GitError, disk
from ralph.git.history import HEADS, contains, head_of
from ralph.git.index import hidden, joined
from ralph.git.repository import Repository, commit_tree, own_paths, shown
from ralph.git.restoring import ABSENT, Delta, deltas
from ralph.git.snapshots import Snapshots

RUN, ITERATION, SNAPSHOT = "Ralph-Run", "Ralph-Iteration", "Ralph-Snapshot"
"""The trailers by which the commits of a run are known."""
_LOOKED_AT = 100
"""How many of the latest commits are searched for one that was made already."""
_LISTED = 50
"""How many files a message lists."""
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}
_REF_TRIES, _PAUSE = 5, 0.1
_TRAILER = re.compile(r"^([A-Za-z-]+): (.*)$")
_CONFIG = ("i18n.commitEncoding=UTF-8", "i18n.logOutputEncoding=UTF-8")
_EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The tree with nothing in it, by the length of the names that a repository gives to objects."""


@dataclass(frozen=True)
class Committed:
    """What came of a commit; true where there is one."""

    sha: str | None = None
    """The commit, made now or found; None where nothing was left to commit, or a notice says why it cannot be."""
    notices: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.sha is not None


@dataclass(frozen=True)
class TakenOff:
    """What came of taking the commits of a run off its branch."""

    commits: tuple[str, ...] = ()
    """Those that were, newest first."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Commit:
    """A commit of the user's branch."""

    sha: str
    subject: str
    trailers: Mapping[str, str]

    def has(self, trailers: Mapping[str, str]) -> bool:
        return all(self.trailers.get(key) == value for key, value in trailers.items())


def clean_for_commit(place: Repository) -> list[str]:
    """The tracked files with changes that are not committed; commits of a run would mix with them."""
    if place.private:
        return []
    status = ("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=all")
    others = [f":(top,exclude,literal){path}" for path in own_paths(place.top, place.top)]
    return [line[3:] for line in place.git.run(*status, "--", ":/", *others).names]


@dataclass(frozen=True)
class Committer:
    """Commits the work of one run."""

    snapshots: Snapshots
    run: str

    def commit(self, decision: Commit) -> WorkCommitted:
        """Commit what was changed since the last commit of the run, once: asked again, it finds the one it made."""
        before, after = self._last_committed() or decision.snapshot, decision.snapshot
        trailers = {RUN: self.run, ITERATION: str(decision.iteration)}
        message = f"{decision.message.strip()}\n\n{_listing(self.snapshots.files(before, after))}"
        done = commit_work(self.snapshots, before, after, message, trailers)
        return WorkCommitted(decision.key, done.sha or "", "; ".join(done.notices))

    def _last_committed(self) -> str | None:
        """The snapshot of which the latest commit of the run was made; before the first, that from before the run."""
        git, latest = self.snapshots.place.git, self.snapshots.latest()
        ours = [commit for commit in _log(git, ["HEAD"]) if commit.has({RUN: self.run})] if git.commit() else []
        named = ours[0].trailers.get(SNAPSHOT) if ours else None
        return named if named and latest and contains(git, latest, named) else self.snapshots.base()


def commit_work(snapshots: Snapshots, before: str, after: str, message: str, trailers: Mapping[str, str]) -> Committed:
    """Commit what changed between two snapshots to the branch of the user, once for the same trailers."""
    place, git = snapshots.place, snapshots.place.git.adding(*_CONFIG)
    if place.private:
        return Committed(None, ("nothing was committed: there is no git repository",))
    if why_not := _why_not(place, snapshots.refs().get("HEAD")):
        return Committed(None, (f"nothing was committed: {why_not}",))
    for _ in range(_REF_TRIES):
        branch, tip = head_of(git), git.commit()
        if tip and (found := next((c for c in _log(git, ["HEAD"]) if c.has(trailers)), None)):
            return Committed(
                found.sha,
                _have_index_follow(git, git.commit(f"{tip}^") or _empty(tip), tip) if found.sha == tip else (),
            )
        tree, notices = _tree(snapshots, git, tip, before, after)
        if tree is None:
            return Committed(None, notices)
        sha = _commit(git, tree, tip, message, {**trailers, SNAPSHOT: after})
        if _move(git, branch, sha, tip, "commit"):
            return Committed(sha, (*notices, *_have_index_follow(git, tip or _empty(sha), sha, over=True)))
        time.sleep(_PAUSE)
    return Committed(None, (f"nothing was committed: another git keeps {branch} busy",))


def take_off(snapshots: Snapshots, run: str) -> TakenOff:
    """Set the branch back to where it stood before the run, if all that came since are commits of the run."""
    place, git, refs = snapshots.place, snapshots.place.git.adding(*_CONFIG), snapshots.refs()
    branch = refs.get("HEAD", "")
    was = refs.get(branch) if branch.startswith(HEADS) else branch
    if place.private or not branch or not (tip := git.commit()) or tip == was:
        return TakenOff()
    if head_of(git) != branch or not branch.startswith(HEADS):
        return TakenOff((), ("the history is left as it is: HEAD is not on the branch that the run began on",))
    if was and not contains(git, tip, was):
        return TakenOff((), (f"the history is left as it is: it was rewritten, and {was[:12]} is no longer in it",))
    since = _log(git, [tip, *([f"^{was}"] if was else [])], most=None)
    if others := [commit for commit in since if not commit.has({RUN: run})]:
        listed = ", ".join(f"{commit.sha[:12]} {shown(commit.subject[:60])}" for commit in others[:20])
        return TakenOff((), (f"the history is left as it is: it has commits that are not the run's: {listed}",))
    # The index first: a kill in between leaves commits, by which the next attempt knows what is still to be done.
    notices = _have_index_follow(git, tip, was or _empty(tip))
    if not _move(git, branch, was, tip, "take commits back"):
        return TakenOff((), (*notices, f"the history is left as it is: another git keeps {branch} busy"))
    return TakenOff(tuple(commit.sha for commit in since), notices)


def _listing(files: Sequence[FileStat]) -> str:
    """What changed, as a message tells it."""
    rows = [f"+{file.added} -{file.removed} {shown(file.path)}" for file in files[:_LISTED]]
    return "\n".join([*rows, f"and {len(files) - _LISTED} more"] if len(files) > _LISTED else rows)


def _why_not(place: Repository, began_on: str | None) -> str:
    """Why a commit would go to a wrong place."""
    head = head_of(place.git)
    if not head.startswith(HEADS):
        return f"HEAD is detached at {head[:12]}; `git switch` to a branch"
    if began_on and head != began_on:
        was = began_on.removeprefix(HEADS)
        return f"HEAD is on {head.removeprefix(HEADS)}, and the run began on {was}; `git switch {was}` goes back"
    return f"{busy} is under way" if (busy := under_way(place)) else ""


def under_way(place: Repository) -> str:
    """What a person has begun in the work tree and not ended; empty where it is nothing."""
    return next((what for name, what in _UNDER_WAY.items() if (place.git_dir / name).exists()), "")


def _log(git: Git, which: list[str], most: int | None = _LOOKED_AT) -> list[_Commit]:
    """Commits with their trailers, newest first."""
    form = "--format=%x00%H%n%s%n%(trailers:only,unfold)"
    limit = () if most is None else (f"--max-count={most}",)
    listed = git.run("rev-list", *limit, form, *which, "--").out.decode(errors="replace").split("\0")[1:]
    return [_read_commit(chunk) for chunk in listed]


def _read_commit(chunk: str) -> _Commit:
    sha, subject, *rest = chunk.split("\n")
    found = (_TRAILER.match(line) for line in rest)
    return _Commit(sha, subject, {match[1]: match[2] for match in found if match})


def _tree(snapshots: Snapshots, git: Git, tip: str, before: str, after: str) -> tuple[str | None, tuple[str, ...]]:
    """HEAD's tree with what changed between two snapshots; None where it has all of it already."""
    changed = deltas(git, before, after)
    nested = sorted(path for path, delta in changed.items() if delta.nested)
    unseen = sorted(changed.keys() & hidden(git))
    notices = [f"{shown(path)} is a git repository of its own: not committed" for path in nested]
    notices += [f"{shown(path)} is hidden from git (`git update-index`): not committed" for path in unseen]
    left = {*nested, *unseen, *filter(snapshots.is_by_product, changed)}
    taken = {path: delta for path, delta in changed.items() if path not in left}
    with disk(snapshots.place.git_dir), tempfile.TemporaryDirectory() as aside:
        own = git.adding("core.splitIndex=false", GIT_INDEX_FILE=f"{aside}/index")
        own.run("read-tree", *([tip] if tip else ["--empty"]))
        if snapshots.raw:
            _add_laid_out(snapshots, own, after, taken, Path(aside))
        else:
            own.run("update-index", "-z", "--index-info", stdin=_entries(taken))
        tree = own.run("write-tree").text
    known = git.tree(tip) if tip else _empty(tree)
    return (None if tree == known else tree), tuple(notices)


def _add_laid_out(snapshots: Snapshots, git: Git, sha: str, taken: Mapping[str, Delta], aside: Path) -> None:
    """Take files in by the user's own rules for line ends, which snapshots leave alone."""
    top = aside / "tree"
    top.mkdir()
    snapshots.lay_out(sha, [path for path, delta in taken.items() if delta.new != ABSENT], aside)
    there = Git(top, {**git.env, "GIT_WORK_TREE": str(top)}, ("core.safecrlf=false", *git.config))
    there.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=joined(taken))


def _entries(changed: Mapping[str, Delta]) -> bytes:
    """Index entries as `update-index --index-info` reads them: all are taken out first, conflicts with them."""
    out = [f"0 {'0' * len(delta.new_object)}\t{path}" for path, delta in changed.items()]
    back = [f"{delta.new} {delta.new_object}\t{path}" for path, delta in changed.items() if delta.new != ABSENT]
    return joined([*out, *back])


def _commit(git: Git, tree: str, tip: str, message: str, trailers: Mapping[str, str]) -> str:
    notes = "".join(f"{key}: {' '.join(value.split())}\n" for key, value in trailers.items())
    return commit_tree(git, tree, [tip] if tip else [], f"{message.strip()}\n\n{notes}".replace("\0", ""))


def _move(git: Git, branch: str, sha: str | None, tip: str, why: str) -> bool:
    """Set a branch from one commit to another; false where it is somewhere else by now, or busy."""
    what = (branch, sha) if sha else ("-d", branch)
    try:
        git.run("update-ref", "-m", f"ralph: {why}", *what, tip or "")
    except GitError as error:
        if "cannot lock ref" in error.said:
            return False
        raise
    return True


def _have_index_follow(git: Git, old: str, new: str, *, over: bool = False) -> tuple[str, ...]:
    """Have the user's index go from one commit to another; what else is staged of a file stays, unless `over`."""
    changed = deltas(git, old, new)
    form = ("-z", "--raw", "--no-abbrev", "--no-renames", "--ita-invisible-in-index")
    listed = git.run("diff-index", "--cached", *form, old).names
    staged = {path: fields.split() for fields, path in zip(listed[::2], listed[1::2], strict=True)}
    others = {
        path: staged[path][3]
        for path, delta in changed.items()
        if path in staged and staged[path][1:4:2] != [delta.new, delta.new_object]
    }
    if over:
        took = "the committed version of {0} took the place of what was staged (`git cat-file -p {1}`)"
        notices = [took.format(shown(path), sha) for path, sha in others.items() if sha.strip("0")]
    else:
        changed = {path: delta for path, delta in changed.items() if path not in others}
        notices = [f"another version of {shown(path)} is staged: left so" for path in others]
    if changed and not _write_index(git, _entries(changed)):
        todo = "once it has ended, `git reset -- FILE` makes them clean"
        return (f"another git holds the index: `git status` will show {len(changed)} files as changed; {todo}",)
    return tuple(notices)


def _write_index(git: Git, entries: bytes) -> bool:
    """Change entries of the user's index; false where another git does not let go of it."""
    try:
        git.run("update-index", "-z", "--index-info", stdin=entries)
    except GitError as error:
        if "index.lock" in error.said:
            return False
        raise
    git.run("update-index", "-q", "--refresh", ok=(0, 1, 128))
    return True


def _empty(like: str) -> str:
    return _EMPTY_TREES[len(like)]
