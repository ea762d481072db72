"""Commits of a run on the user's own branch: one per iteration, of the files that it changed.

A commit is made in an index of its own, from HEAD's tree and the snapshot after the iteration, without hooks. Then the
entries of the committed files are updated in the user's index. Nothing else of it changes.
"""

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ralph.core.events import Commit, WorkCommitted
from ralph.core.text import count
from ralph.core.turns import FileStat
from ralph.git.command import Git, GitError, Repository, commit_tree, disk, list_own_paths, printable
from ralph.git.history import HEADS, contains, read_head
from ralph.git.snapshots import Snapshots
from ralph.git.tree_index import ABSENT, Delta, compare_trees, join_names, list_hidden_files
from ralph.git.user_changes import format_index_entries

RUN, ITERATION, SNAPSHOT = "Ralph-Run", "Ralph-Iteration", "Ralph-Snapshot"
"""The trailers that identify the commits of a run."""
_LOOKED_AT = 100
"""How many of the latest commits are searched for one that an earlier engine made."""
_LISTED = 50
"""How many files a message lists."""
_UNFINISHED = {
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
"""The empty tree by the length of object names: SHA-1 and SHA-256. Git knows it even if the repository has no such object."""


@dataclass(frozen=True)
class CommitResult:
    """The result of a commit; true if there is one."""

    sha: str | None = None
    """The commit, made now or earlier; None if there was nothing to commit, or a notice says why it was not possible."""
    notices: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.sha is not None


@dataclass(frozen=True)
class RemovedCommits:
    """The result of removing the commits of a run from its branch."""

    commits: tuple[str, ...] = ()
    """The removed commits, newest first."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class TurnSpan:
    """The commits that HEAD was at before and after a turn. Commit times are of no use: git records whole seconds."""

    turn: int
    start: str
    """Empty if there was no commit yet."""
    end: str = ""
    """Empty if Ralph was killed during the turn."""

    @property
    def is_known(self) -> bool:
        """Whether the journal has it. Journals of earlier versions do not."""
        return bool(self.start or self.end)

    def list_commits(self, git: Git) -> frozenset[str]:
        """The commits that were made between the two; up to now if the end is not known."""
        if not self.is_known or self.start == self.end:
            return frozenset()
        known = [f"^{self.start}"] if self.start else []
        listed = git.run("rev-list", self.end or "HEAD", *known, "--", ok=(0, 128))
        return frozenset(listed.text.split()) if listed.code == 0 else frozenset()

    def describe(self) -> str:
        return f"during turn {self.turn}" if self.end else f"during or after turn {self.turn}"


@dataclass(frozen=True)
class _Commit:
    """A commit of the user's branch."""

    sha: str
    subject: str
    trailers: Mapping[str, str]

    def has(self, trailers: Mapping[str, str]) -> bool:
        return all(self.trailers.get(key) == value for key, value in trailers.items())


def list_uncommitted_files(repository: Repository) -> list[str]:
    """The tracked files with uncommitted changes. Commits of a run would mix with them."""
    if repository.private:
        return []
    status = ("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=all")
    others = [f":(top,exclude,literal){path}" for path in list_own_paths(repository.top, repository.top)]
    return [line[3:] for line in repository.git.run(*status, "--", ":/", *others).names]


@dataclass(frozen=True)
class Committer:
    """Commits the work of one run."""

    snapshots: Snapshots
    run: str

    def commit(self, decision: Commit) -> WorkCommitted:
        """Commit what changed since the last commit of the run. A second call with the same decision finds that commit."""
        before, after = self._last_committed() or decision.snapshot, decision.snapshot
        trailers = {RUN: self.run, ITERATION: str(decision.iteration)}
        # What the user changed while the run was stopped is not the run's to commit.
        before = self.snapshots.with_own_user_changes(before)
        message = f"{decision.message.strip()}\n\n{_list_changes(self.snapshots.files(before, after))}"
        done = commit_work(self.snapshots, before, after, message, trailers)
        return WorkCommitted(decision.key, done.sha or "", "; ".join(done.notices))

    def _last_committed(self) -> str | None:
        """The snapshot that the latest commit of the run was made of; without a commit, the snapshot before the run."""
        git, latest = self.snapshots.repository.git, self.snapshots.latest()
        if not git.resolve_commit():
            return self.snapshots.base()
        ours = next((commit for commit in _log(git, ["HEAD"]) if commit.has({RUN: self.run})), None)
        snapshot = ours.trailers.get(SNAPSHOT) if ours else None
        if snapshot and latest and contains(git, latest, snapshot):
            return snapshot
        return self.snapshots.base()


def commit_work(
    snapshots: Snapshots, before: str, after: str, message: str, trailers: Mapping[str, str]
) -> CommitResult:
    """Commit what changed between two snapshots to the branch of the user, once for the same trailers."""
    repository, git = snapshots.repository, snapshots.repository.git.with_options(*_CONFIG)
    if repository.private:
        return CommitResult(None, ("nothing was committed: there is no git repository",))
    if why_not := _reason_not_to_commit(repository, snapshots.refs().get("HEAD")):
        return CommitResult(None, (f"nothing was committed: {why_not}",))
    for _ in range(_REF_TRIES):
        branch, tip = read_head(git), git.resolve_commit()
        if tip and (found := next((commit for commit in _log(git, ["HEAD"]) if commit.has(trailers)), None)):
            if found.sha != tip:
                return CommitResult(found.sha)
            # An earlier engine may have been killed between the commit and the index.
            parent = git.resolve_commit(f"{tip}^") or _empty_tree(tip)
            return CommitResult(found.sha, _update_user_index(git, parent, tip))
        tree, notices = _build_tree(snapshots, git, tip, before=before, after=after)
        if tree is None:
            return CommitResult(None, notices)
        sha = _commit(git, tree, tip, message, {**trailers, SNAPSHOT: after})
        if _move_branch(git, branch, old=tip, new=sha, why="commit"):
            staged = _update_user_index(git, tip or _empty_tree(sha), sha, replace_staged=True)
            return CommitResult(sha, (*notices, *staged))
        time.sleep(_PAUSE)
    return CommitResult(None, (f"nothing was committed: another git process uses {branch}",))


def remove_commits(snapshots: Snapshots, run: str, turns: Sequence[TurnSpan] = ()) -> RemovedCommits:
    """Reset the branch to where it was before the run, if only Ralph has committed since."""
    repository, git, refs = snapshots.repository, snapshots.repository.git.with_options(*_CONFIG), snapshots.refs()
    branch = refs.get("HEAD", "")
    was = refs.get(branch) if branch.startswith(HEADS) else branch
    if repository.private or not branch or not (tip := git.resolve_commit()) or tip == was:
        return RemovedCommits()
    if read_head(git) != branch or not branch.startswith(HEADS):
        return RemovedCommits(
            (), ("Ralph does not change the history: HEAD is not on the branch that the run began on",)
        )
    if was and not contains(git, tip, was):
        return RemovedCommits(
            (), (f"Ralph does not change the history: it was rewritten, and {was[:12]} is no longer in it",)
        )
    since = _log(git, [tip, f"^{was}"] if was else [tip], most=None)
    if others := [commit for commit in since if not commit.has({RUN: run})]:
        return RemovedCommits((), _describe_others(git, others, turns, was or ""))
    # The index comes first. If a kill leaves the commits, the next attempt removes them.
    notices = _update_user_index(git, tip, was or _empty_tree(tip))
    if not _move_branch(git, branch, old=tip, new=was, why="take commits back"):
        return RemovedCommits((), (*notices, f"Ralph does not change the history: another git process uses {branch}"))
    return RemovedCommits(tuple(commit.sha for commit in since), notices)


def _describe_others(git: Git, commits: Sequence[_Commit], turns: Sequence[TurnSpan], was: str) -> tuple[str, ...]:
    """Why commits that Ralph did not make stay on the branch: who can have made them."""
    notices = ["the commits that Ralph did not make stay on the branch"]
    left = list(commits)
    for turn in turns:
        made = turn.list_commits(git)
        if during := [one for one in left if one.sha in made]:
            notices.append(f"made {turn.describe()}, by the agent or by you: {_name_commits(during)}")
            left = [one for one in left if one.sha not in made]
    if left and all(turn.is_known for turn in turns):
        notices.append(f"not made during a turn of the run: {_name_commits(left)}")
    elif left:
        notices.append(f"made by the agent or by you: {_name_commits(left)}")
    elif was:
        notices.append(
            f"if none of them is yours, `git reset {was[:12]}` removes them from the branch and changes no file"
        )
    return tuple(notices)


def _name_commits(commits: Sequence[_Commit]) -> str:
    return ", ".join(f"{commit.sha[:12]} {printable(commit.subject[:60])}" for commit in commits[:20])


def _list_changes(files: Sequence[FileStat]) -> str:
    rows = [f"+{file.added} -{file.removed} {printable(file.path)}" for file in files[:_LISTED]]
    if len(files) > _LISTED:
        rows.append(f"and {len(files) - _LISTED} more")
    return "\n".join(rows)


def _reason_not_to_commit(repository: Repository, began_on: str | None) -> str:
    """Why a commit would end up on the wrong branch or in the middle of something; empty if it would not."""
    head = read_head(repository.git)
    if not head.startswith(HEADS):
        return f"HEAD is detached at {head[:12]}; `git switch` to a branch"
    if began_on and head != began_on:
        was = began_on.removeprefix(HEADS)
        return f"HEAD is on {head.removeprefix(HEADS)}, and the run began on {was}; `git switch {was}` switches back"
    unfinished = find_unfinished(repository)
    return f"{unfinished} is in progress" if unfinished else ""


def find_unfinished(repository: Repository) -> str:
    """The merge, rebase or the like that is in progress in the work tree; empty if there is none."""
    for name, what in _UNFINISHED.items():
        if (repository.git_dir / name).exists():
            return what
    return ""


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


def _build_tree(
    snapshots: Snapshots, git: Git, tip: str, before: str, after: str
) -> tuple[str | None, tuple[str, ...]]:
    """HEAD's tree with what changed between two snapshots; None if it already has all of it."""
    changed = compare_trees(git, before, after)
    nested = sorted(path for path, delta in changed.items() if delta.nested)
    unseen = sorted(changed.keys() & list_hidden_files(git))
    notices = [f"{printable(path)} is a separate git repository: not committed" for path in nested]
    notices += [f"{printable(path)} is hidden from git (`git update-index`): not committed" for path in unseen]
    inside = {path: name for path in changed if (name := snapshots.find_submodule(path))}
    for name in sorted(set(inside.values())):
        notices.append(f"{printable(name)} is a submodule: its files are not committed")
    left = {*nested, *unseen, *inside, *filter(snapshots.is_by_product, changed)}
    taken = {path: delta for path, delta in changed.items() if path not in left}
    with disk(snapshots.repository.git_dir), tempfile.TemporaryDirectory() as aside:
        own = git.with_options("core.splitIndex=false", GIT_INDEX_FILE=f"{aside}/index")
        own.run("read-tree", *([tip] if tip else ["--empty"]))
        if snapshots.raw:
            _add_converted(snapshots, own, after, taken, Path(aside))
        else:
            own.run("update-index", "-z", "--index-info", stdin=format_index_entries(taken))
        tree = own.run("write-tree").text
    known = git.resolve_tree(tip) if tip else _empty_tree(tree)
    return (None if tree == known else tree), tuple(notices)


def _add_converted(snapshots: Snapshots, git: Git, sha: str, taken: Mapping[str, Delta], aside: Path) -> None:
    """Stage files by the user's own rules for line ends. Snapshots hold them as they are on disk."""
    top = aside / "tree"
    top.mkdir()
    snapshots.write_files(sha, [path for path, delta in taken.items() if delta.new != ABSENT], aside)
    there = Git(top, {**git.env, "GIT_WORK_TREE": str(top)}, ("core.safecrlf=false", *git.config))
    there.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=join_names(taken))


def _commit(git: Git, tree: str, tip: str, message: str, trailers: Mapping[str, str]) -> str:
    notes = "".join(f"{key}: {' '.join(value.split())}\n" for key, value in trailers.items())
    return commit_tree(git, tree, [tip] if tip else [], f"{message.strip()}\n\n{notes}".replace("\0", ""))


def _move_branch(git: Git, branch: str, *, old: str, new: str | None, why: str) -> bool:
    """Move a branch from one commit to another, or delete it; False if it has moved or another git holds its lock."""
    what = (branch, new) if new else ("-d", branch)
    try:
        git.run("update-ref", "-m", f"ralph: {why}", *what, old or "")
    except GitError as error:
        if "cannot lock ref" in error.stderr:
            return False
        raise
    return True


def _update_user_index(git: Git, old: str, new: str, *, replace_staged: bool = False) -> tuple[str, ...]:
    """Update the user's index from one commit to another. What else is staged of a file stays, unless it is to be replaced."""
    changed = compare_trees(git, old, new)
    form = ("-z", "--raw", "--no-abbrev", "--no-renames", "--ita-invisible-in-index")
    listed = git.run("diff-index", "--cached", *form, old).names
    others: dict[str, str] = {}
    for fields, path in zip(listed[::2], listed[1::2], strict=True):
        _, mode, _, sha, _ = fields.split()
        if path in changed and (mode, sha) != (changed[path].new, changed[path].new_object):
            others[path] = sha
    if replace_staged:
        took = "the committed version of {0} replaced the staged one (`git cat-file -p {1}`)"
        # An object name of zeros: the user staged that the file is deleted.
        notices = [took.format(printable(path), sha) for path, sha in others.items() if sha.strip("0")]
    else:
        changed = {path: delta for path, delta in changed.items() if path not in others}
        notices = [f"another version of {printable(path)} is staged: not changed" for path in others]
    if changed and not _write_index(git, format_index_entries(changed)):
        todo = "once it has ended, `git reset -- FILE` makes them clean"
        return (
            f"another git process holds the index: `git status` will show {count(len(changed), 'file')} as changed; {todo}",
        )
    return tuple(notices)


def _write_index(git: Git, entries: bytes) -> bool:
    """Change entries of the user's index; False if another git holds its lock."""
    try:
        git.run("update-index", "-z", "--index-info", stdin=entries)
    except GitError as error:
        if "index.lock" in error.stderr:
            return False
        raise
    git.run("update-index", "-q", "--refresh", ok=(0, 1, 128))
    return True


def _empty_tree(like: str) -> str:
    return _EMPTY_TREES[len(like)]
