"""What agents do to the worktree that they were given: their work is saved all the same, and nobody else's is lost."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from repos import RUN, git, tree, write
from runs import BRANCH, Run

from ralph.core.errors import UsageError
from ralph.git import merge, worktree
from ralph.git.command import Git
from ralph.git.worktree import Worktree

MISCHIEF = {
    "nothing": "true",
    "commits": "git add -A; git commit -qm mine",
    "commits-and-goes-on": "git add -A; git commit -qm mine; echo more > more.txt",
    "switches": "git switch -qc elsewhere; git add -A; git commit -qm mine",
    "detaches": "git add -A; git commit -qm mine; git checkout -q --detach; git commit -q --allow-empty -m again",
    "amends": "git add -A; git commit -qm mine; echo changed >> work.txt; git commit -qa --amend -m other",
    "orphan": "git switch -q --orphan fresh; echo work > work.txt; git add -A; git commit -qm root",
    "unborn": "git update-ref -d HEAD",
    "deletes-its-branch": "git add -A; git commit -qm mine; git checkout -q --detach; git branch -qD $BRANCH",
    "sits-on-the-branch-of-the-run": "git switch -q $RUN_BRANCH",
    "takes-the-history-of-others": "git add -A; git commit -qm mine; git reset -q --soft $RUN_BRANCH",
    "no-git": "rm .git",
    "own-repository": "rm .git; git init -q; git add -A; git -c user.name=x -c user.email=x commit -qm mine",
    "empty-git": "rm .git; mkdir .git",
    "no-index": "rm $(git rev-parse --git-dir)/index",
    "locked": "git add -A; touch $(git rev-parse --git-dir)/index.lock",
    "hides-by-assume-unchanged": "git update-index --assume-unchanged a.txt; echo hidden >> a.txt",
    "hides-by-skip-worktree": "git update-index --skip-worktree a.txt; echo hidden >> a.txt",
    "stashes": "git add -A; git stash -q; git stash apply -q",
    "rebases": "git add -A; git commit -qm mine; GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/' git rebase -qi HEAD~1",
    "stages-otherwise": "git add -A; echo changed > work.txt; git rm -q --cached a.txt",
}
"""What an agent does after its work, by name."""


@pytest.fixture
def run(repo: Path) -> Run:
    git(repo, "config", "user.name", "Agent")
    git(repo, "config", "user.email", "agent@example.org")
    return Run.begin(repo)


def test_whatever_agents_do_their_work_is_saved_and_that_of_others_stays(run: Run) -> None:
    trees = {name: run.task(name) for name in MISCHIEF}
    run.merge(run.task("first", {"first.txt": "1\n"}))
    disks = {}
    for name, mine in trees.items():
        write(mine.path, {"work.txt": f"{name}\n", f"of/{name}.txt": "work\n"})
        environment = {"PATH": "/usr/bin:/bin", "BRANCH": mine.branch, "RUN_BRANCH": BRANCH, "HOME": "/nonexistent"}
        subprocess.run(
            ["/bin/sh", "-ec", MISCHIEF[name]], cwd=mine.path, env=environment, check=True, capture_output=True
        )
        disks[name] = tree(mine.path)
    run.merge(run.task("second", {"second.txt": "2\n"}))
    main = git(run.root, "rev-parse", "main")
    for name, mine in trees.items():
        tip = run.save(mine)
        assert tree(mine.path) == disks[name], f"{name}: nothing in it is touched"
        status = git(mine.path, "status", "--porcelain=v2", "--branch").split("\n")
        assert status == [f"# branch.oid {tip}", f"# branch.head {mine.branch}"], f"{name}: nothing is left over"
        assert run.files(tip) == set(disks[name]), f"{name}: all of it is saved"
        assert git(run.root, "merge-base", tip, main) == main, name
    assert run.save(trees["no-git"]) == git(run.root, "rev-parse", trees["no-git"].branch), "it is saved once"
    assert "hidden" in run.text("a.txt", trees["hides-by-assume-unchanged"].branch)
    assert "hidden" in run.text("a.txt", trees["hides-by-skip-worktree"].branch)
    for name in ("sits-on-the-branch-of-the-run", "takes-the-history-of-others", "own-repository", "unborn"):
        candidate = run.attempt(trees[name])
        assert run.files(candidate.commit) >= {f"of/{name}.txt", "second.txt", "first.txt"}, name


def test_a_merge_of_others_that_an_agent_made_up_does_not_take_them_back(run: Run) -> None:
    mine, theirs = run.task("mine", {"mine.txt": "m\n"}), run.task("theirs", {"theirs.txt": "t\n"})
    run.merge(run.task("merged", {"merged.txt": "1\n"}))
    for branch in (BRANCH, theirs.branch):
        git(mine.path, "merge", "-q", "-s", "ours", "-m", "all is well", branch)
    run.save(mine)
    run.merge(mine)
    run.merge(theirs)
    assert run.files() >= {"mine.txt", "theirs.txt", "merged.txt"}


def test_files_copied_into_a_worktree_are_never_committed(run: Run) -> None:
    (run.root / "cache").mkdir()
    mine = run.task("mine")
    write(mine.path, {".env": "SECRET=1\n", "work.txt": "w\n"})
    (mine.path / "node modules").symlink_to(run.root / "cache")
    git(mine.path, "add", "-A")
    git(mine.path, "commit", "-q", "-m", "with everything")
    out = (".env", "node modules")
    run.save(mine, *out)
    run.merge(mine)
    assert run.files() == {".gitignore", "a.txt", "src/b.py", "work.txt"}
    assert (mine.path / ".env").exists()
    merge.keep_under_ref(mine, f"refs/ralph-left/{RUN}/x", out)
    assert git(run.root, "for-each-ref", "refs/ralph-left") == ""
    merge.reset_worktree(mine, "HEAD")
    assert worktree.remove(mine, BRANCH, leaving_out=out)
    assert (run.root / "cache").is_dir()


def test_a_sparse_checkout_stays_sparse_and_loses_nothing(run: Run) -> None:
    write(run.root, {"docs/big.md": "big\n", "docs/other.md": "o\n"})
    git(run.root, "add", "-A")
    git(run.root, "commit", "-q", "-m", "docs")
    git(run.root, "sparse-checkout", "set", "src")
    before = tree(run.root)
    sparse = Run.begin(run.root)
    for ref in (f"refs/heads/{BRANCH}", f"refs/ralph-work/{RUN}/run"):
        git(run.root, "update-ref", ref, "main")
    mine = sparse.task("mine", {"src/one.py": "1\n"})
    assert set(tree(mine.path)) == {*before, "src/one.py"}
    write(mine.path, {"src/two.py": "2\n"})
    run.save(mine)
    write(mine.path, {"docs/big.md": "bigger\n"})
    tip = run.save(mine)
    assert git(run.root, "diff", "--name-status", "main", tip).split("\n") == [
        "M\tdocs/big.md",
        "A\tsrc/one.py",
        "A\tsrc/two.py",
    ]
    run.merge(mine)
    assert sparse.files() == {
        ".gitignore",
        "a.txt",
        "src/b.py",
        "docs/big.md",
        "docs/other.md",
        "src/one.py",
        "src/two.py",
    }
    assert tree(run.root) == before


def test_a_project_below_the_top_and_in_a_worktree_of_the_user(repo: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "side", str(repo.parent / "side"))
    root = repo.parent / "side" / "src"
    run = Run.begin(root)
    mine = run.task("mine")
    assert mine.workspace == mine.path / "src"
    write(mine.workspace, {"new.py": "n\n", ".ralph/turn/inbox/x": "ours"})
    run.save(mine)
    run.merge(mine)
    assert run.files(BRANCH) == {"new.py", "b.py"} or "src/new.py" in git(repo, "ls-tree", "-r", "--name-only", BRANCH)
    assert worktree.remove(mine, BRANCH)
    assert git(repo, "status", "--porcelain") == git(repo.parent / "side", "status", "--porcelain") == ""
    assert git(repo, "rev-parse", "main", "side").split()[0] == git(repo, "rev-parse", "side")


class TestCleaningUp:
    def test_only_worktrees_of_ralph_are_pruned(self, run: Run) -> None:
        """A worktree of the user's may be on a disk that is not there just now."""
        away = run.root.parent / "away"
        git(run.root, "worktree", "add", "-q", "-b", "away", str(away))
        shutil.move(away, run.root.parent / "unplugged")
        mine = run.task("mine", {"x.txt": "x\n"})
        run.merge(mine)
        shutil.rmtree(mine.path)
        assert worktree.remove(mine, BRANCH)
        assert worktree.remove(mine, BRANCH), "once more"
        assert str(away) in git(run.root, "worktree", "list")
        assert git(run.root, "branch", "--list", mine.branch) == ""

    def test_a_worktree_that_the_user_locked_stays(self, run: Run) -> None:
        mine = run.task("mine")
        git(run.root, "worktree", "lock", "--reason", "I look at it", str(mine.path))
        assert "I look at it" in worktree.remove(mine, BRANCH).why_not or mine.path.exists()

    def test_a_branch_whose_worktree_stays_is_not_forgotten(self, run: Run) -> None:
        mine = run.task("mine", {"x.txt": "x\n"})
        other = run.task("other", {"y.txt": "y\n"})
        run.merge(mine)
        git(run.root, "merge", "-q", BRANCH)
        write(mine.path, {"later.txt": "by the user\n"})
        assert not worktree.remove(mine, BRANCH)
        kept = worktree.delete_run_refs(run.root, RUN)
        assert kept == [f"the branch {other.branch}: it is not merged"]
        assert git(mine.path, "status", "--porcelain") == "?? later.txt"
        assert git(run.root, "for-each-ref", "--format=%(refname)", "refs/ralph-work", "refs/ralph-left") == ""

    def test_nothing_is_deleted_if_a_worktree_is_gone_or_replaced(self, run: Run) -> None:
        mine = run.task("mine")
        (run.root / ".git/worktrees" / f"{RUN}.mine.1" / "gitdir").unlink()
        with pytest.raises(UsageError, match="the worktree is gone"):
            run.save(mine)
        assert "no longer a worktree" in worktree.remove(mine, BRANCH).why_not
        assert mine.path.exists()


class Killed(BaseException):
    """The engine is gone."""


READS = frozenset(
    ("rev-parse", "ls-files", "rev-list", "merge-base", "for-each-ref", "config", "var", "cat-file", "status")
)


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Kills before so many commands that change something; below zero, never."""
    left, run = [-1], Git.run

    def burning(self: Git, *args: str, **more: object) -> object:
        if args[0] not in READS:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
        return run(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Git, "run", burning)
    yield left
    monkeypatch.undo()


def test_a_worktree_is_made_and_saved_whenever_the_engine_is_killed(run: Run, fuse: list[int]) -> None:
    """Before every command: the next engine ends where one that lived would have."""

    def work(name: str, number: int) -> Worktree:
        mine = worktree.create_for_task(run.root, RUN, f"{name}/{number}", "main")
        if not (mine.path / "work.txt").exists():
            write(mine.path, {"work.txt": "w\n", "a b": "c"})
        merge.save_worktree(mine, "saved", known=("main",))
        return mine

    mine, number = work("whole", 1), 0
    expected = git(run.root, "log", "--format=%T %s", mine.branch)
    while True:
        fuse[0] = number
        try:
            work("killed", number)
        except Killed:
            number += 1
        else:
            fuse[0] = -1
            break
        fuse[0] = -1
        again = work("killed", number - 1)
        assert git(run.root, "log", "--format=%T %s", again.branch) == expected, number
        assert git(again.path, "status", "--porcelain", "--branch") == f"## {again.branch}", number
    assert number >= 8
