"""Submodules in worktrees: filled without a server, kept where there is work in them, merged and landed as they are."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from repos import git, tree, write
from runs import BRANCH, Run

from ralph.git import merge, worktree
from ralph.git.command import Git
from ralph.git.worktree import Worktree, list_submodules
from ralph.workspace.merger import fast_forward_user_branch

LOCAL = ("-c", "protocol.file.allow=always")
PLACE = "libs/a b"


def repository_at(path: Path, files: dict[str, str]) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    write(path, dict(files))
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a submodule that has one of its own; their servers are gone once the user has copies."""
    place = tmp_path_factory.mktemp("template")
    inner = repository_at(place / "server-inner", {"inner.txt": "i\n"})
    server = repository_at(place / "server", {"lib.txt": "l\n"})
    git(server, *LOCAL, "submodule", "--quiet", "add", str(inner), "deep")
    git(server, "commit", "-q", "-m", "deep")
    root = repository_at(place / "repo", {"a.txt": "one\ntwo\n", "src/b.py": "b = 1\n"})
    for setting in ("user.name=Ada", "user.email=ada@example.org"):
        git(root, "config", *setting.split("="))
    git(root, *LOCAL, "submodule", "--quiet", "add", "--name", "the lib", str(server), PLACE)
    git(root, "commit", "-q", "-m", "with a submodule")
    git(root, *LOCAL, "submodule", "--quiet", "update", "--init", "--recursive")
    # As it is after a pull: the commit is ahead of the branches in the user's copy.
    write(server, {"lib.txt": "newer\n"})
    git(server, "commit", "-q", "-a", "-m", "newer")
    git(root / PLACE, *LOCAL, "pull", "-q", "--recurse-submodules=no", "origin", "main")
    git(root / PLACE, "checkout", "-q", "--detach")
    git(root / PLACE, "branch", "-q", "-f", "main", "HEAD~1")
    git(root / PLACE, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    git(root, "commit", "-q", "-a", "-m", "newer lib")
    server.rename(place / "unplugged")
    return root


@pytest.fixture
def deep(template: Path, tmp_path: Path) -> Run:
    shutil.copytree(template, tmp_path / "repo", symlinks=True)
    return Run.begin(tmp_path / "repo")


@pytest.fixture
def run(deep: Run) -> Run:
    """Without the submodule of the submodule."""
    git(deep.root / PLACE, "submodule", "--quiet", "deinit", "-f", "deep")
    return deep


def commit_in(tree: Worktree, text: str) -> str:
    write(tree.path / PLACE, {"lib.txt": text})
    git(tree.path / PLACE, "commit", "-q", "-a", "-m", text)
    return git(tree.path / PLACE, "rev-parse", "HEAD")


def test_a_worktree_has_the_submodules_that_the_user_has(deep: Run, template: Path) -> None:
    run = deep
    settings = (run.root / ".git/config").read_text()
    mine = run.task("mine", {"work.txt": "w\n"})
    assert (mine.path / PLACE / "lib.txt").read_text() == "newer\n"
    assert (mine.path / PLACE / "deep/inner.txt").read_text() == "i\n"
    assert git(mine.path / PLACE, "remote", "get-url", "origin") == str(template.with_name("server")), (
        "where it really comes from"
    )
    assert list_submodules(Git(mine.path)) == [("the lib", PLACE)]
    assert git(run.root, "diff", "--name-only", "main", mine.branch) == "work.txt"
    run.merge(mine)
    write(mine.path / PLACE / "deep", {"inner.txt": "changed"})
    assert "work in the submodule" in worktree.remove(mine, BRANCH).why_not
    write(mine.path / PLACE / "deep", {"inner.txt": "i\n"})
    assert worktree.remove(mine, BRANCH), "a commit that the user has is no work"
    assert not mine.path.exists()
    assert (run.root / ".git/config").read_text() == settings
    assert git(run.root, "status", "--porcelain") == ""


def test_many_worktrees_at_once_all_get_theirs(run: Run) -> None:
    with ThreadPoolExecutor(4) as threads:
        trees = list(threads.map(run.task, [f"t{number}" for number in range(6)]))
    assert [(tree.path / PLACE / "lib.txt").exists() for tree in trees] == [True] * 6


def test_submodule_that_is_not_checked_out_is_left_alone(run: Run) -> None:
    git(run.root, "submodule", "--quiet", "deinit", "-f", PLACE)
    mine = run.task("mine")
    assert list((mine.path / PLACE).iterdir()) == []
    assert worktree.remove(mine, BRANCH)
    (run.root / ".gitmodules").unlink()
    git(run.root, "rm", "-q", "-r", "--cached", PLACE)
    git(run.root, "commit", "-q", "-a", "-m", "without")
    assert list_submodules(Git(run.root)) == []


def test_work_in_a_submodule_is_never_deleted(run: Run) -> None:
    changes = {
        "a file": lambda tree: write(tree.path / PLACE, {"new.txt": "n"}),
        "a commit": lambda tree: commit_in(tree, "committed\n"),
        "a commit on a branch": lambda tree: (
            git(tree.path / PLACE, "switch", "-q", "-c", "mine"),
            commit_in(tree, "branched\n"),
            git(tree.path / PLACE, "switch", "-q", "--detach", "HEAD~1"),
        ),
    }
    for number, (what, change) in enumerate(changes.items(), 1):
        mine = worktree.create_for_task(run.root, "run", f"mine/{number}", "main")
        change(mine)
        merge.save_worktree(mine, "saved", known=(run.tip,))
        merge.reset_worktree(mine, "HEAD")
        assert worktree.remove(mine, mine.branch).why_not == f"work in the submodule {PLACE} of {mine.path}", what
        assert mine.path.exists()


def test_a_newer_commit_of_a_submodule_is_merged_and_checked_as_it_is(run: Run) -> None:
    """Only the worktree of the task has that commit: the checks must not see the older one in its place."""
    mine = run.task("mine")
    newest = commit_in(mine, "newest\n")
    run.save(mine)
    run.merge(run.task("other", {"other.txt": "o\n"}))
    run.merge(mine)
    scratch = run.scratch
    assert scratch
    assert (scratch.path / PLACE / "lib.txt").read_text() == "newest\n"
    assert git(run.root, "rev-parse", f"{BRANCH}:{PLACE}") == newest
    run.merge(run.task("third", {"third.txt": "3\n"}))
    assert (scratch.path / PLACE / "lib.txt").read_text() == "newest\n"
    assert "work in the submodule" in worktree.remove(mine, BRANCH).why_not


def test_two_tasks_that_move_a_submodule_conflict_until_it_is_resolved(run: Run) -> None:
    mine, other = run.task("mine"), run.task("other")
    commit_in(mine, "mine\n"), commit_in(other, "other\n")
    run.save(mine), run.save(other)
    run.merge(other)
    assert run.attempt(mine).conflicts == (PLACE,)


def test_landing_leaves_the_work_of_the_user_in_a_submodule_alone(run: Run) -> None:
    write(run.root / PLACE, {"lib.txt": "edited by the user\n"})
    mine = run.task("mine", {"work.txt": "w\n"})
    newest = commit_in(mine, "newest\n")
    run.save(mine)
    commit = run.merge(mine)
    landed = fast_forward_user_branch(run.root, mine.run, BRANCH, commit, "refs/heads/main")
    assert landed.moved, landed.notice
    assert (run.root / PLACE / "lib.txt").read_text() == "edited by the user\n"
    assert (run.root / "work.txt").exists()
    assert worktree.remove(mine, BRANCH), "their copy has what was committed in the submodule"
    git(run.root / PLACE, "checkout", "-q", "lib.txt")
    git(run.root, "submodule", "--quiet", "update", "--no-fetch")
    assert git(run.root / PLACE, "rev-parse", "HEAD") == newest


def test_a_submodule_that_an_agent_adds_is_part_of_its_work(run: Run) -> None:
    extra = repository_at(run.root.parent / "extra", {"x.txt": "x\n"})
    mine = run.task("mine")
    git(mine.path, *LOCAL, "submodule", "--quiet", "add", str(extra), "extra")
    run.save(mine)
    run.merge(mine)
    assert git(run.root, "ls-tree", BRANCH, "extra").startswith("160000")
    assert run.scratch and tree(run.scratch.path)["extra/x.txt"] == b"x\n"
