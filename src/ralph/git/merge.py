"""Merging the work of tasks onto the branch of their run, and landing that branch.

A merge is tried in a scratch worktree. If it conflicts, the branch of the run is merged into the task's own worktree, to be
resolved there. It counts as resolved if no conflict marker is left and no work of other tasks was reverted. At the end of the
run, its branch is landed: fast-forwarded or pushed, as the user wants.

The content of a worktree is saved as a commit on its branch, whatever an agent did to the index or to HEAD.
"""

import contextlib
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ralph.core.errors import RalphError
from ralph.core.events import Landed
from ralph.core.text import count
from ralph.git.command import (
    Git,
    GitError,
    Repository,
    commit_tree,
    committer_identity,
    disk,
    find_repository,
    list_own_paths,
    printable,
    wants_signatures,
)
from ralph.git.commits import find_unfinished, list_uncommitted_files
from ralph.git.history import HEADS, contains, read_head
from ralph.git.programs import describe_changes_since_start, find_hooks_in_tree
from ralph.git.tree_index import ABSENT, NESTED, clear_hidden_marks, compare_trees, join_names, stage
from ralph.git.worktree import Worktree, claim_worktree, fill_submodules, list_submodules, open_worktree, position_ref

_CONFIG = ("merge.conflictStyle=diff3", "rerere.enabled=false", "merge.autoStash=false", "merge.verifySignatures=false")
_MERGE = ("merge", "--quiet", "--no-ff", "--no-commit", "--no-edit")
_MARKERS = r"^(<<<<<<<|[|]{7}|>>>>>>>) "


@dataclass(frozen=True)
class Candidate:
    """What a merge gives: a commit, or the files that conflict."""

    commit: str = ""
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnresolvedMerge:
    """A commit of the run's branch that was merged into a workspace, to be resolved there."""

    commit: str
    own: str
    """The tip of the workspace's branch before."""
    merged: str = ""
    """The tree as git merged it, with conflict markers; empty while git is merging."""
    conflicts: tuple[str, ...] = ()


def read_branch_tip(git: Git, branch: str) -> str:
    """Where a branch stands."""
    return git.run("rev-parse", "--verify", f"{HEADS}{branch}^{{commit}}").text


def read_position(git: Git, branch: str) -> str:
    """The commit of the last merge of a run. It is the tip of its branch, unless an agent has moved the branch."""
    return git.resolve_commit(position_ref(branch)) or read_branch_tip(git, branch)


def repair_branch(git: Git, branch: str) -> str:
    """Reset the branch of a run to the last merge, if something moved it; return the ref that holds what was on it."""
    tip = git.resolve_commit(HEADS + branch)
    position = read_position(git, branch)
    if tip == position:
        return ""
    left_ref = f"refs/ralph-left/{branch.removeprefix('ralph/')}/{tip[:12]}" if tip else ""
    if left_ref:
        git.run("update-ref", left_ref, tip)
    git.run("update-ref", "-m", "ralph: repair", HEADS + branch, position, tip)
    return left_ref


def advance_branch(git: Git, branch: str, old: str, new: str) -> None:
    """Move a branch of the run from a known commit to a new one, and record the new position."""
    both = f"update {HEADS}{branch} {new} {old}\nupdate {position_ref(branch)} {new}\n"
    git.run("update-ref", "-m", "ralph: merge", "--stdin", stdin=both.encode())


def find_merge(git: Git, since: str, until: str, key: str, value: str) -> str:
    """The merge between two commits whose message has a trailer; empty if there is none."""
    form = f"--format=%H %(trailers:key={key},valueonly,separator=%x2C)"
    listed = git.run("rev-list", "--first-parent", "--no-commit-header", form, f"{since}..{until}").text.split("\n")
    for line in listed:
        sha, _, named = line.partition(" ")
        if named == value:
            return sha
    return ""


def try_merge(scratch: Worktree, onto: str, work: str, message: str, beside: Worktree | None = None) -> Candidate:
    """Merge a commit onto another in the scratch worktree, which then holds the merged tree.

    Submodules come from the worktree in which the work was done.
    """
    git = claim_worktree(scratch).git.with_options(*_CONFIG)
    # A check may have switched to a branch of the user. `--no-deref` leaves that branch alone.
    git.run("update-ref", "--no-deref", "HEAD", onto)
    git.run("reset", "--quiet", "--hard")
    git.run("clean", "--quiet", "-d", "--force")
    if conflicts := _merge(git, work):
        git.run("reset", "--quiet", "--hard")
        return Candidate(conflicts=conflicts)
    commit = commit_tree(git, git.run("write-tree").text, [onto, work], message)
    git.run("reset", "--quiet", "--hard", commit)
    if beside:
        fill_submodules(Git(beside.path), Git(scratch.path))
    return Candidate(commit)


def merge_into_worktree(tree: Worktree, commit: str, leaving_out: Sequence[str]) -> UnresolvedMerge:
    """Merge a commit into a worktree whose work is saved. The result stays uncommitted, with its conflicts."""
    git = claim_worktree(tree).git.with_options(*_CONFIG)
    own, conflicts = read_branch_tip(git, tree.branch), _merge(git, commit)
    return UnresolvedMerge(commit, own, write_tree(tree, leaving_out), conflicts)


def find_undecided(tree: Worktree, unresolved: UnresolvedMerge) -> tuple[str, ...]:
    """The files with conflict markers, and the conflicting files without markers that were not resolved."""
    conflicts = unresolved.conflicts
    if not conflicts:
        return ()
    git = open_worktree(tree).git.with_options(GIT_LITERAL_PATHSPECS="1")
    # `git grep` in a tree prints `TREE:PATH`.
    listed = git.run("grep", "-lzE", _MARKERS, unresolved.merged, "--", *conflicts, ok=(0, 1)).names
    had_markers = {name.partition(":")[2] for name in listed}
    has_markers: set[str] = set()
    if had_markers:
        has_markers.update(git.run("grep", "--no-index", "-lzE", _MARKERS, "--", *had_markers, ok=(0, 1)).names)
    unmerged = {line.partition("\t")[2] for line in git.run("ls-files", "-u", "-z").names}
    return tuple(path for path in conflicts if path in has_markers or (path not in had_markers and path in unmerged))


def find_reverted(tree: Worktree, work: str, unresolved: UnresolvedMerge) -> tuple[str, ...]:
    """The files that other tasks changed and that are again as this task had them, although git merged them differently.

    In a conflict, the resolver may choose this side, even if that deletes the file. That counts only if the merge was not
    aborted: after `git merge --abort` nothing has been decided.
    """
    repository = open_worktree(tree)
    git = repository.git
    is_merging = (repository.git_dir / "MERGE_HEAD").exists() or contains(git, "HEAD", unresolved.commit)
    base = git.run("merge-base", unresolved.own, unresolved.commit).text
    others, changed = compare_trees(git, base, unresolved.commit), compare_trees(git, unresolved.own, work)
    differs = compare_trees(git, unresolved.merged if is_merging else unresolved.commit, work)
    decided = {path for path in unresolved.conflicts if is_merging and path in differs and differs[path].new == ABSENT}
    return tuple(sorted(others.keys() & differs.keys() - changed.keys() - decided))


def _merge(git: Git, commit: str) -> tuple[str, ...]:
    """Merge into the tree without a commit; return the files that conflict."""
    try:
        git.with_options(**committer_identity(git)).run(*_MERGE, commit)
    except GitError:
        conflicts = git.run("diff", "--name-only", "--diff-filter=U", "-z").names
        if not conflicts:
            raise
        return tuple(dict.fromkeys(conflicts))
    return ()


_SECONDS = 600.0
"""How long hooks of the user or a server may take."""
_UNSIGNED = "your commits must be signed, and Ralph could not sign these"


def fast_forward(root: Path, branch: str, commit: str, onto: str) -> Landed:
    """Move the user's branch and tree to a commit, if that is a fast-forward and nothing of theirs is in the way."""
    repository = find_repository(root)
    if repository is None:
        return Landed(commit, branch, notice="the git repository no longer exists")
    git, merge = repository.git, f"git merge {branch}"
    head = read_head(git)
    if head != onto:
        was, now = onto.removeprefix(HEADS), head.removeprefix(HEADS)
        back = f"git switch {shlex.quote(was)} && {merge}"
        return report_unlanded(commit, branch, f"HEAD is on {now[:40]}, and was on {was}", command=back)
    tip = git.resolve_commit()
    name = onto.removeprefix(HEADS)
    if contains(git, tip, commit):
        return Landed(commit, name, moved=True)
    if not contains(git, commit, tip):
        land = f"ralph land {branch.split('/')[1]}"
        why = f"{name} has moved since the run began"
        return report_unlanded(commit, branch, why, command=land, effect="merges it and runs the checks")
    # First, because every other answer names a git command, which would start what an agent planted.
    if refused := _refuse_other_programs(git, tip, commit, branch, by_hand=merge):
        return refused
    if busy := find_unfinished(repository):
        return report_unlanded(commit, branch, f"{busy} is in progress", command=merge)
    if dirty := list_uncommitted_files(repository):
        why = f"{count(len(dirty), 'file')} in your tree {'has' if len(dirty) == 1 else 'have'} uncommitted changes"
        then = "merges it once they are committed or stashed"
        return report_unlanded(commit, branch, why, command=merge, effect=then)
    if wants_signatures(git) and _has_unsigned(git, tip, commit):
        return report_unlanded(commit, branch, _UNSIGNED, command=f"{merge} --no-ff -S")
    try:
        # Without `--no-overwrite-ignore`, git overwrites ignored files of the user.
        how = ("--ff-only", "--quiet", "--no-autostash", "--no-overwrite-ignore")
        Git(repository.top, plain=True).run("merge", *how, commit, timeout=_SECONDS)
    except RalphError as error:
        if not contains(git, git.resolve_commit(), commit):
            # If a hook of the user rejects the update, git has already written the files: restore those, and no others.
            with contextlib.suppress(RalphError):
                if git.run("write-tree").text == git.resolve_tree(commit):
                    git.run("read-tree", "-m", "-u", commit, tip)
            return report_unlanded(commit, branch, _describe_error(error), command=merge)
    return Landed(commit, name, moved=True)


def push(root: Path, branch: str, commit: str, onto: str) -> Landed:
    """Push the branch of the run to the remote that the user's branch is pushed to. No branch of the user moves."""
    repository = find_repository(root)
    git = repository.git if repository else Git(root)
    ours = onto.removeprefix(HEADS)
    settings = (f"branch.{ours}.pushRemote", "remote.pushDefault", f"branch.{ours}.remote")
    named = (git.run("config", "--get", setting, ok=(0, 1)).text for setting in settings)
    remotes = git.run("remote").text.split()
    remote = next((one for one in named if one not in ("", ".")), "")
    remote = remote or ("origin" if "origin" in remotes else next(iter(remotes), ""))
    by_hand, effect = f"git push {shlex.quote(remote) if remote else 'REMOTE'} {branch}", "pushes it"
    if not remote:
        return report_unlanded(
            commit, branch, "there is no remote repository to push to", command=by_hand, effect=effect
        )
    if refused := _refuse_other_programs(git, onto or "HEAD", commit, branch, by_hand=by_hand, effect=effect):
        return refused
    if wants_signatures(git) and _has_unsigned(git, onto or "HEAD", commit):
        return report_unlanded(commit, branch, _UNSIGNED, command=by_hand, effect=effect)
    try:
        Git(root, plain=True).run("push", "--quiet", remote, f"{commit}:{HEADS}{branch}", timeout=_SECONDS)
    except RalphError as error:
        return report_unlanded(commit, branch, _describe_error(error), command=by_hand, effect=effect)
    return Landed(commit, f"{remote}/{branch}", moved=True)


def _refuse_other_programs(
    git: Git, tip: str, commit: str, branch: str, *, by_hand: str, effect: str = "merges it"
) -> Landed | None:
    """The result if git would run with other settings or hooks than before the run: an agent may have planted them."""
    if changes := describe_changes_since_start(git):
        more = f"; and {len(changes) - 5} more" if len(changes) > 5 else ""
        why = f"git would run with other settings or hooks than before the run ({'; '.join(changes[:5])}{more})"
        later = "lands it after you have undone these changes"
        return report_unlanded(commit, branch, why, command=f"ralph land {branch.split('/')[1]}", effect=later)
    hooks = find_hooks_in_tree(git)
    changed = [path for path in compare_trees(git, tip, commit) if path.split("/")[0] == hooks] if hooks else []
    if not changed:
        return None
    names = ", ".join(map(printable, changed[:5]))
    why = f"the work changes the hooks that git runs for you ({names}), so look at them first"
    return report_unlanded(commit, branch, why, command=by_hand, effect=effect)


def report_unlanded(commit: str, branch: str, why: str = "", *, command: str = "", effect: str = "merges it") -> Landed:
    """The result if the work stays on its branch: the reason, if it is not what the user wants, and the command to type."""
    stands = f"{why}: the work stays" if why else "the work is"
    return Landed(
        commit, branch, notice=f"{stands} on the branch {branch}; `{command or f'git merge {branch}'}` {effect}"
    )


def _describe_error(error: RalphError) -> str:
    """The output of git on one line, with the messages of hooks and servers, which contain the reason."""
    stderr = error.stderr if isinstance(error, GitError) else ""
    lines = (line.removeprefix("remote:").strip() for line in stderr.splitlines())
    message = "; ".join(line for line in lines if line).replace(":; ", ": ")[:400]
    return f"{error.what.partition(': ')[0]}: {message}" if message else error.what


def _has_unsigned(git: Git, since: str, commit: str) -> bool:
    """Whether a commit has no signature. Whether a signature is good is not checked: that needs a list of trusted keys."""
    new = git.run("rev-list", "--header", commit, "--not", since).out.rstrip(b"\0").split(b"\0")
    return any(b"\ngpgsig" not in raw.partition(b"\n\n")[0] for raw in new if raw)


_UNFINISHED = ("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "AUTO_MERGE", "SQUASH_MSG")
"""What an unfinished merge leaves in the git directory of a worktree."""


def save_worktree(
    tree: Worktree, message: str, *, leaving_out: Sequence[str] = (), brought_in: str = "", known: Sequence[str] = ()
) -> str:
    """Commit everything in a worktree to its branch, whatever an agent did to HEAD; return the tip of the branch.

    `brought_in` is a commit that was merged into the tree: it becomes a parent. `known` is the commit that the branch began
    at, and those of others that were merged into it. If the history has more of others, the commit is based on the first.
    """
    repository = claim_worktree(tree)
    git, ref = repository.git, HEADS + tree.branch
    head, there = git.resolve_commit(), git.resolve_commit(ref)
    tip = head if not there or (head and contains(git, head, there)) else there
    if any(known[:1]) and not _is_own(git, tree, tip, [one for one in (*known, brought_in) if one]):
        if tip:
            git.run("update-ref", f"refs/ralph-left/{tree.branch.removeprefix('ralph/')}/{tip[:12]}", tip)
        tip = known[0]
    parents = [one for one in (tip, brought_in) if one]
    if brought_in and tip and contains(git, tip, brought_in):
        parents = [tip]
    with _stage_all(tree, repository, leaving_out) as (made, index):
        if len(parents) > 1 or not tip or made != git.resolve_tree(tip):
            tip = commit_tree(git, made, parents, f"{message.rstrip()}\n\nRalph-Run: {tree.run}\n")
        if tip != there:
            git.run("update-ref", "-m", "ralph: save", ref, tip, there)
        git.run("symbolic-ref", "HEAD", ref)
        # `read-tree` would lose the marks of the files that a sparse checkout leaves out.
        index.replace(repository.git_dir / "index")
    with disk(repository.git_dir):
        for name in _UNFINISHED:
            (repository.git_dir / name).unlink(missing_ok=True)
        for name in ("rebase-merge", "rebase-apply", "sequencer"):
            shutil.rmtree(repository.git_dir / name, ignore_errors=True)
    return tip


def _is_own(git: Git, tree: Worktree, tip: str, known: Sequence[str]) -> bool:
    """Whether a history continues from known commits with commits of this task alone.

    An agent may have merged other tasks without their files (`git merge -s ours`). That would revert their work.
    """
    if not tip or not contains(git, tip, known[0]):
        return False
    new = ("rev-list", "--count", tip, "--not", *known)
    others = (f"--exclude={HEADS}{tree.branch}", f"--glob={HEADS}ralph/{tree.run}/*")
    return git.run(*new).text == git.run(*new, *others).text


def keep_under_ref(tree: Worktree, ref: str, leaving_out: Sequence[str] = (), since: str = "") -> None:
    """Store under a ref what is in a worktree and not on its branch, or what came onto the branch since a commit."""
    git, left = open_worktree(tree).git, write_tree(tree, leaving_out)
    tip, before = git.resolve_commit(HEADS + tree.branch), git.resolve_commit(ref)
    if left != git.resolve_tree(tip):
        parents = [tip, *([before] if before else [])]
        git.run("update-ref", ref, commit_tree(git, left, parents, f"ralph: left in {tree.name}\n"))
    elif since and not contains(git, since, tip):
        git.run("update-ref", ref, tip)


def reset_worktree(tree: Worktree, commit: str) -> None:
    """Reset a worktree and its branch to a commit, and remove all other files. Call `keep_under_ref` first."""
    git = claim_worktree(tree).git
    git.run("symbolic-ref", "HEAD", HEADS + tree.branch)
    git.run("reset", "--quiet", "--hard", commit)
    git.run("clean", "--quiet", "-d", "--force")


def write_tree(tree: Worktree, leaving_out: Sequence[str] = ()) -> str:
    """Write everything in a worktree as a tree object."""
    with _stage_all(tree, open_worktree(tree), leaving_out) as (made, _):
        return made


@contextmanager
def _stage_all(tree: Worktree, repository: Repository, leaving_out: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Everything in a worktree, as a tree and as an index of Ralph's own: an agent may have changed the worktree's index."""
    with disk(repository.git_dir), tempfile.TemporaryDirectory(dir=repository.git_dir) as aside:
        file = Path(aside) / "index"
        if (repository.git_dir / "index").exists():
            shutil.copy2(repository.git_dir / "index", file)
        own = repository.git.with_options("core.splitIndex=false", GIT_INDEX_FILE=str(file))
        clear_hidden_marks(own)
        stage(own, (*list_own_paths(repository.top, tree.root, tree.workspace), *leaving_out))
        if leaving_out:
            quiet = ("-r", "--quiet", "--cached", "--sparse", "--ignore-unmatch")
            own.with_options(GIT_LITERAL_PATHSPECS="1").run("rm", *quiet, "--", *leaving_out)
        if made := _find_nested(own):
            _leave_out_nested(own, tree, made)
        yield own.run("write-tree").text, file


def _leave_out_nested(git: Git, tree: Worktree, nested: set[str]) -> None:
    """Leave out repositories that an agent made. The tree would name their commit and have none of their files."""
    known = {path for _, path in list_submodules(git)} | _find_nested(Git(tree.root))
    if made := nested - known:
        git.run("update-index", "--force-remove", "-z", "--stdin", stdin=join_names(made))


def _find_nested(git: Git) -> set[str]:
    """The paths of repositories and submodules in an index."""
    listed = (line.partition("	") for line in git.run("ls-files", "--stage", "--full-name", "-z", "--", ":/").names)
    return {path for marks, _, path in listed if marks.startswith(NESTED)}
