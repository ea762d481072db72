"""Worktrees of runs: made once, salvaged, and removed only when nothing is lost."""

import subprocess
from pathlib import Path

import pytest

from ralph.core.errors import UsageError
from ralph.git.merge import save_worktree
from ralph.git.worktree import Worktree, ensure_worktree, remove

RUN = "261115-093000-k3x9"


def git(cwd: Path, *args: str) -> str:
    identity = ("-c", "user.name=User", "-c", "user.email=user@example.org")
    done = subprocess.run(["git", *identity, *args], cwd=cwd, capture_output=True, check=True, text=True)
    return done.stdout.rstrip("\n")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "sub").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "a.txt").write_text("one\n")
    (root / "sub" / "b.txt").write_text("b\n")
    (root / ".gitignore").write_text("*.log\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


def committed(worktree: Worktree, name: str = "new") -> str:
    (worktree.path / name).write_text("work\n")
    return save_worktree(worktree, "the run ended")


def test_a_worktree_starts_from_head_and_is_reused(repo: Path) -> None:
    made = ensure_worktree(repo, RUN)
    assert made.path == repo / ".ralph" / "worktrees" / RUN
    assert made.workspace == made.path
    assert git(made.path, "symbolic-ref", "HEAD") == f"refs/heads/ralph/{RUN}/run"
    assert made.notices == ()
    assert git(repo, "status", "--porcelain") == ""
    (made.path / "half-done").write_text("x")
    assert ensure_worktree(repo, RUN) == made
    assert (made.path / "half-done").exists()


def test_uncommitted_changes_of_the_main_tree_are_reported(repo: Path) -> None:
    git(repo, "config", "status.showUntrackedFiles", "no")
    (repo / "a.txt").write_text("changed\n")
    (repo / "new").write_text("x")
    made = ensure_worktree(repo, RUN)
    assert made.notices == (f"2 uncommitted changes are not in the worktree: see `git status` in {repo}",)
    assert (made.path / "a.txt").read_text() == "one\n"
    assert (repo / "a.txt").read_text() == "changed\n"


def test_a_subdirectory_keeps_its_place_in_the_worktree(repo: Path) -> None:
    made = ensure_worktree(repo / "sub", RUN)
    assert made.path == repo / "sub" / ".ralph" / "worktrees" / RUN
    assert made.workspace == made.path / "sub"
    assert (made.workspace / "b.txt").exists()
    assert git(repo, "status", "--porcelain") == ""


def test_without_a_repository_or_a_commit_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a git repository") as plain:
        ensure_worktree(tmp_path, RUN)
    assert "git init" in plain.value.todo
    git(tmp_path, "init", "-q")
    with pytest.raises(UsageError, match="needs a commit") as unborn:
        ensure_worktree(tmp_path, RUN)
    assert "first commit" in unborn.value.todo


def test_a_worktree_whose_directory_is_gone_comes_back_with_its_branch(repo: Path) -> None:
    made = ensure_worktree(repo, RUN)
    sha = committed(made)
    git(repo, "worktree", "move", str(made.path), str(repo.parent / "elsewhere"))
    git(repo, "worktree", "remove", str(repo.parent / "elsewhere"))
    assert git(ensure_worktree(repo, RUN).path, "rev-parse", "HEAD") == sha
    for file in sorted(made.path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    made.path.rmdir()
    assert git(ensure_worktree(repo, RUN).path, "rev-parse", "HEAD") == sha


def test_a_worktree_that_a_kill_left_half_made_is_made_again(repo: Path) -> None:
    made = ensure_worktree(repo, RUN)
    (repo / ".git" / "worktrees" / RUN / "locked").write_text("initializing")
    (made.path / "a.txt").unlink()
    assert (ensure_worktree(repo, RUN).path / "a.txt").exists()
    assert git(made.path, "status", "--porcelain") == ""


def test_a_directory_in_the_way_is_not_touched(repo: Path) -> None:
    path = repo / ".ralph" / "worktrees" / RUN
    path.mkdir(parents=True)
    (path / "mine").write_text("x")
    with pytest.raises(UsageError, match="at the path of the worktree"):
        ensure_worktree(repo, RUN)
    assert (path / "mine").exists()


def test_save_takes_everything_but_what_is_ignored(repo: Path) -> None:
    made = ensure_worktree(repo, RUN)
    assert save_worktree(made, "nothing") == git(repo, "rev-parse", "main")
    (made.path / "a.txt").unlink()
    (made.path / "x.log").write_text("ignored")
    (made.path / ".ralph" / "turn").mkdir(parents=True)
    (made.path / ".ralph" / "turn" / "inbox").write_text("ours")
    (repo / ".git" / "worktrees" / RUN / "index.lock").write_bytes(b"")
    sha = committed(made)
    assert sha == git(repo, "rev-parse", f"ralph/{RUN}/run")
    assert git(repo, "show", "--format=%an <%ae> %s", "--name-status", str(sha)).split("\n") == [
        "Ralph <ralph@localhost> the run ended",
        "",
        "D\ta.txt",
        "A\tnew",
    ]
    assert save_worktree(made, "again") == sha
    assert git(repo, "log", "--format=%s", "main") == "first"


def test_save_is_the_users_and_asks_no_hook(repo: Path) -> None:
    git(repo, "config", "user.name", "Ada")
    git(repo, "config", "user.email", "ada@example.org")
    git(repo, "config", "commit.gpgSign", "true")
    for name in ("pre-commit", "commit-msg", "prepare-commit-msg", "post-checkout"):
        hook = repo / ".git" / "hooks" / name
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    made = ensure_worktree(repo, RUN)
    (made.path / "new").write_text("x")
    sha = save_worktree(made, "# title\n\nbody\n")
    assert git(repo, "show", "-s", "--format=%an <%ae>%n%B", str(sha)) == (
        f"Ada <ada@example.org>\n# title\n\nbody\n\nRalph-Run: {RUN}"
    )


def test_save_saves_a_merge_that_was_left_in_conflict(repo: Path) -> None:
    made = ensure_worktree(repo, RUN)
    (repo / "a.txt").write_text("main\n")
    git(repo, "commit", "-q", "-a", "-m", "main moved")
    (made.path / "a.txt").write_text("run\n")
    save_worktree(made, "run")
    with pytest.raises(subprocess.CalledProcessError):
        git(made.path, "merge", "main")
    sha = save_worktree(made, "as it was left")
    assert "<<<<<<<" in git(repo, "show", f"{sha}:a.txt")
    assert git(made.path, "status", "--porcelain") == ""


def test_save_in_a_worktree_that_is_gone(repo: Path) -> None:
    made = ensure_worktree(repo, RUN)
    git(repo, "worktree", "remove", str(made.path))
    made.path.mkdir()
    with pytest.raises(UsageError, match="the worktree is gone"):
        save_worktree(made, "x")


def test_remove_a_worktree_without_work(repo: Path) -> None:
    made = ensure_worktree(repo, RUN)
    (made.path / "x.log").write_text("ignored")
    assert remove(made)
    assert not made.path.exists()
    assert git(repo, "branch", "--format=%(refname:short)") == "main"
    assert remove(made)


def test_remove_keeps_uncommitted_and_unmerged_work(repo: Path) -> None:
    git(repo, "config", "status.showUntrackedFiles", "no")
    made = ensure_worktree(repo, RUN)
    (made.path / "new").write_text("x")
    refused = remove(made)
    assert not refused
    assert "1 uncommitted" in refused.why_not
    save_worktree(made, "work")
    refused = remove(made)
    assert not refused
    assert f"git merge ralph/{RUN}" in refused.why_not
    assert (made.path / "new").exists()
    git(repo, "merge", "-q", f"ralph/{RUN}/run")
    assert remove(made)
    assert (repo / "new").exists()
    assert git(repo, "branch", "--format=%(refname:short)") == "main"


def test_remove_keeps_commits_that_an_agent_made_off_the_branch(repo: Path) -> None:
    made = ensure_worktree(repo, RUN)
    git(made.path, "checkout", "-q", "--detach")
    (made.path / "new").write_text("work\n")
    git(made.path, "add", "new")
    git(made.path, "commit", "-q", "-m", "off the branch")
    sha = git(made.path, "rev-parse", "HEAD")
    refused = remove(made)
    assert not refused
    assert refused.why_not == (
        f"1 commit is not merged: `git merge {sha}` merges it, "
        f"`git worktree remove --force {made.path} && git branch -D {made.branch}` deletes it"
    )
    assert save_worktree(made, "x") == sha == git(repo, "rev-parse", made.branch), "saving brings them onto it"
    assert made.path.exists()
