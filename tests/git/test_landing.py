"""Landing: by fast-forward alone, as the user would do it, and not at all where something of theirs is in the way."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from repos import RUN, git, start_run_here, tree, write

from ralph.core.events import Landed
from ralph.git import merge, worktree
from ralph.git.worktree import Worktree
from ralph.store import locks
from ralph.workspace.merger import fast_forward_user_branch

MAIN = "refs/heads/main"
BRANCH = f"ralph/{RUN}/run"


@pytest.fixture
def work(repo: Path) -> Worktree:
    """Work that is done, on the branch of the run."""
    git(repo, "config", "user.name", "Ada")
    git(repo, "config", "user.email", "ada@example.org")
    made = worktree.ensure_worktree(repo, RUN)
    write(made.path, {"a.txt": "one\ntwo\nthree\n", "new/file.txt": "new\n"})
    merge.save_worktree(made, "the work")
    return made


def land(work: Worktree) -> Landed:
    return merge.fast_forward(work.root, BRANCH, git(work.root, "rev-parse", BRANCH), MAIN)


def state(root: Path) -> tuple[object, ...]:
    """All that is the user's: files, the index, HEAD, branches, the stash."""
    refs = git(
        root, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads/main", "refs/stash", "refs/heads/side"
    )
    return tree(root), git(root, "ls-files", "--stage"), (root / ".git/HEAD").read_text(), refs


def hook(root: Path, name: str, script: str) -> None:
    path = root / ".git" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_branch_and_the_tree_move_together_and_once(repo: Path, work: Worktree) -> None:
    (repo / "untracked.txt").write_text("theirs")
    git(repo, "stash", "push", "-q", "-u", "--", "untracked.txt")
    (repo / "x.log").write_text("ignored")
    for _ in range(2):
        landed = land(work)
        assert landed == Landed(git(repo, "rev-parse", BRANCH), "main", moved=True)
        assert git(repo, "rev-parse", "main") == landed.commit
        assert git(repo, "status", "--porcelain") == ""
        assert (repo / "new/file.txt").read_text() == "new\n"
    assert (repo / "x.log").exists()
    assert git(repo, "stash", "list").count("\n") == 0, "their stash is as it was"


def _merge_in_progress(root: Path) -> None:
    git(root, "branch", "side", "HEAD")
    tip = git(root, "commit-tree", "-p", "HEAD", "-m", "side", "HEAD^{tree}")
    git(root, "update-ref", "refs/heads/side", tip)
    git(root, "merge", "-q", "--no-ff", "--no-commit", "side")


def _rebase_in_progress(root: Path) -> None:
    environment = {**os.environ, "GIT_SEQUENCE_EDITOR": "sed -i 1ibreak"}
    git(root, "commit", "-q", "--allow-empty", "-m", "mine")
    subprocess.run(["git", "rebase", "-q", "-i", "HEAD~1"], cwd=root, env=environment, capture_output=True, check=True)


OBSTACLES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "an edited file": (
        lambda root: (root / "src/b.py").write_text("mine\n"),
        "1 file in your tree has uncommitted changes",
        f"`git merge {BRANCH}` merges it once they are committed or stashed",
    ),
    "a staged file": (
        lambda root: (write(root, {"s.txt": "s"}), git(root, "add", "s.txt")),
        "1 file in your tree has uncommitted changes",
        f"`git merge {BRANCH}`",
    ),
    "an untracked file": (
        lambda root: write(root, {"new/file.txt": "mine"}),
        "overwritten by merge: new/file.txt",
        "git merge",
    ),
    "an untracked file for a directory": (lambda root: write(root, {"new": "mine"}), "git merge` failed", "git merge"),
    "an ignored file": (
        lambda root: write(root, {".git/info/exclude": "new/\n.ralph/\n", "new/file.txt": "mine"}),
        "git merge` failed",
        "git merge",
    ),
    "an ignored directory": (
        lambda root: write(root, {".git/info/exclude": "new/\n.ralph/\n", "new/file.txt/deep": "mine"}),
        "git merge` failed",
        "git merge",
    ),
    "a hidden edit": (
        lambda root: (git(root, "update-index", "--assume-unchanged", "a.txt"), write(root, {"a.txt": "mine\n"})),
        "git merge` failed",
        "git merge",
    ),
    "a hidden edit by skip-worktree": (
        lambda root: (git(root, "update-index", "--skip-worktree", "a.txt"), write(root, {"a.txt": "mine\n"})),
        "git merge` failed",
        "git merge",
    ),
    "another branch": (
        lambda root: git(root, "switch", "-q", "-c", "it's$mine"),
        "HEAD is on it's$mine, and was on main",
        f"`git switch main && git merge {BRANCH}`",
    ),
    "a detached HEAD": (lambda root: git(root, "checkout", "-q", "--detach"), "HEAD is on ", "git switch main &&"),
    "commits on the branch": (
        lambda root: git(root, "commit", "-q", "--allow-empty", "-m", "mine"),
        "main has moved since the run began",
        f"`ralph land {RUN}` merges it and runs the checks",
    ),
    "a merge": (_merge_in_progress, "a merge is in progress", "git merge"),
    "a rebase": (_rebase_in_progress, "HEAD is on ", "git switch main"),
    "a lock": (lambda root: (root / ".git/index.lock").write_bytes(b""), "index.lock", "git merge"),
}


@pytest.mark.more_are_slow(6)
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_with_something_of_theirs_in_the_way_nothing_is_touched(
    repo: Path, work: Worktree, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.git.command._PAUSE", 0.001)
    monkeypatch.setattr("ralph.git.command._TRIES", 3)
    make, why, command = OBSTACLES[obstacle]
    make(repo)
    before = state(repo)
    landed = land(work)
    assert state(repo) == before
    assert not landed.moved
    assert landed.branch == BRANCH
    assert why in landed.notice
    assert f"the work stays on the branch {BRANCH}" in landed.notice
    assert command in landed.notice
    assert git(repo, "rev-parse", BRANCH) == landed.commit


def test_other_files_do_not_interfere(repo: Path, work: Worktree) -> None:
    write(repo, {"untracked.txt": "mine", "new/mine.txt": "mine", "x.log": "ignored"})
    git(repo, "worktree", "add", "-q", "-b", "side", str(repo.parent / "side"))
    (repo.parent / "side" / "a.txt").write_text("edited in another worktree\n")
    assert land(work).moved
    assert (repo / "new/mine.txt").read_text() == (repo / "untracked.txt").read_text() == "mine"
    assert (repo.parent / "side" / "a.txt").read_text() == "edited in another worktree\n"


def test_landing_does_not_wait_for_another_run_in_the_tree(repo: Path, work: Worktree) -> None:
    commit = git(repo, "rev-parse", BRANCH)
    held = locks.acquire(repo / ".ralph/tree.lock", {"run": "261115-000000-aaaa"})
    assert isinstance(held, locks.Lock)
    before = state(repo)
    landed = fast_forward_user_branch(repo, RUN, BRANCH, commit, MAIN)
    assert state(repo) == before
    assert (landed.moved, landed.branch) == (False, BRANCH)
    assert "run 261115-000000-aaaa works in your tree" in landed.notice
    assert f"`git merge {BRANCH}`" in landed.notice
    held.release()
    assert fast_forward_user_branch(repo, RUN, BRANCH, commit, MAIN).moved
    assert not locks.is_held(repo / ".ralph/tree.lock")


def test_hooks_of_the_user_run_when_their_branch_moves_and_for_nothing_else(repo: Path, work: Worktree) -> None:
    told = repo.parent / "told"
    for name in ("pre-commit", "commit-msg", "post-commit", "post-checkout", "post-merge", "pre-merge-commit"):
        hook(repo, name, f'echo {name} "$GIT_WORK_TREE" >> {told}')
    write(work.path, {"more.txt": "m\n"})
    merge.save_worktree(work, "more")
    assert not told.exists()
    assert land(work).moved
    assert told.read_text().split() == ["post-merge"]


def test_a_hook_that_forbids_it_or_breaks_afterwards(repo: Path, work: Worktree) -> None:
    hook(
        repo,
        "reference-transaction",
        '[ "$1" = prepared ] && grep -q refs/heads/main && echo main is mine >&2 && exit 1; exit 0',
    )
    (repo / "theirs.txt").write_text("untracked")
    before = state(repo)
    landed = land(work)
    assert (landed.moved, state(repo)) == (False, before), "the files that git had written already went back"
    assert landed.notice.startswith(
        "`git merge` failed: main is mine; fatal: ref updates aborted by hook: the work stays"
    )
    shutil.rmtree(repo / ".git/hooks")
    hook(repo, "post-merge", "exit 1")
    assert land(work).moved


def test_commit_of_the_user_during_landing_stays(
    repo: Path, work: Worktree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, own = shutil.which("git"), tmp_path / "bin" / "git"
    takes = f"{real} checkout -q {BRANCH} -- a.txt && {real} commit -qm mine"
    own.parent.mkdir()
    own.write_text(f'#!/bin/sh\ncase "$*" in *--ff-only*) {takes} ;; esac\nexec {real} "$@"\n')
    own.chmod(0o755)
    with monkeypatch.context() as meanwhile:
        meanwhile.setenv("PATH", f"{own.parent}{os.pathsep}{os.environ['PATH']}")
        assert not land(work).moved
    assert git(repo, "log", "-1", "--format=%s") == "mine"
    assert (git(repo, "status", "--porcelain"), (repo / "a.txt").read_text()) == ("", "one\ntwo\nthree\n")


def test_filters_and_line_ends_are_the_users(repo: Path, work: Worktree) -> None:
    git(repo, "config", "filter.swap.clean", "tr a-z A-Z")
    git(repo, "config", "filter.swap.smudge", "tr A-Z a-z")
    start_run_here(repo)
    write(
        work.path,
        {".gitattributes": "*.big filter=swap\n*.crlf text eol=crlf\n", "x.big": "large\n", "y.crlf": "1\r\n2\r\n"},
    )
    merge.save_worktree(work, "with filters")
    assert git(repo, "show", f"{BRANCH}:x.big") == "LARGE"
    assert git(repo, "show", f"{BRANCH}:y.crlf") == "1\n2"
    assert land(work).moved
    assert (repo / "x.big").read_text() == "large\n"
    assert (repo / "y.crlf").read_bytes() == b"1\r\n2\r\n"
    assert git(repo, "status", "--porcelain") == ""


def test_a_sparse_checkout_of_the_user_stays_sparse(repo: Path, work: Worktree) -> None:
    git(repo, "sparse-checkout", "set", "src")
    assert land(work).moved
    assert set(tree(repo)) == {".gitignore", "a.txt", "src/b.py"}
    assert git(repo, "status", "--porcelain") == ""


class TestSigning:
    @pytest.fixture
    def key(self, repo: Path) -> Path:
        """A key without a passphrase, with which commits are to be signed."""
        if not shutil.which("ssh-keygen"):
            pytest.skip("there is no ssh-keygen")
        key = repo.parent / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        for setting in ("gpg.format=ssh", f"user.signingKey={key}", "commit.gpgSign=true"):
            git(repo, "config", *setting.split("="))
        return key

    def test_commits_are_signed_if_no_answer_is_needed(self, key: Path, repo: Path) -> None:
        made = worktree.ensure_worktree(repo, RUN)
        write(made.path, {"new.txt": "n\n"})
        commit = merge.save_worktree(made, "signed")
        assert "gpgsig -----BEGIN SSH SIGNATURE-----" in git(repo, "cat-file", "commit", commit)
        landed = land(made)
        assert landed.moved, landed.notice
        write(repo.parent, {"trusted": f"ralph@localhost {key.with_suffix('.pub').read_text()}"})
        git(repo, "config", "gpg.ssh.allowedSignersFile", str(repo.parent / "trusted"))
        assert git(repo, "log", "-1", "--format=%G?") == "G"

    def test_unsigned_work_stays_on_its_branch(self, key: Path, repo: Path) -> None:
        made = worktree.ensure_worktree(repo, RUN)
        write(made.path, {"new.txt": "gpgsig in a file\n"})
        key.unlink()
        commit = merge.save_worktree(made, "not signed\n\ngpgsig is only a word here")
        before = state(repo)
        landed = land(made)
        assert (landed.moved, state(repo)) == (False, before)
        assert "must be signed" in landed.notice
        assert f"`git merge {BRANCH} --no-ff -S`" in landed.notice
        git(repo, "init", "-q", "--bare", str(repo.parent / "remote.git"))
        git(repo, "remote", "add", "origin", str(repo.parent / "remote.git"))
        assert not merge.push(repo, BRANCH, commit, MAIN).moved
        git(repo, "config", "commit.gpgSign", "false")
        assert land(made).moved


class TestPush:
    @pytest.fixture
    def remotes(self, repo: Path, work: Worktree) -> dict[str, Path]:
        found = {}
        for name in ("origin", "mine", "theirs"):
            found[name] = repo.parent / f"{name}.git"
            git(repo, "init", "-q", "--bare", str(found[name]))
            git(repo, "remote", "add", name, str(found[name]))
        return found

    def push(self, repo: Path) -> Landed:
        return merge.push(repo, BRANCH, git(repo, "rev-parse", BRANCH), MAIN)

    def test_push_goes_to_the_remote_of_the_users_branch(self, repo: Path, remotes: dict[str, Path]) -> None:
        before = state(repo)
        for setting, name in (
            ("", "origin"),
            ("branch.main.remote", "theirs"),
            ("remote.pushDefault", "mine"),
            ("branch.main.pushRemote", "origin"),
        ):
            if setting:
                git(repo, "config", setting, name)
            for _ in range(2):
                landed = self.push(repo)
                assert landed == Landed(git(repo, "rev-parse", BRANCH), f"{name}/{BRANCH}", moved=True), setting
            assert git(remotes[name], "rev-parse", BRANCH) == landed.commit
            git(remotes[name], "update-ref", "-d", f"refs/heads/{BRANCH}")
        assert state(repo) == before

    def test_their_hook_has_its_say(self, repo: Path, remotes: dict[str, Path]) -> None:
        hook(repo, "pre-push", "echo no >&2; exit 1")
        landed = self.push(repo)
        assert not landed.moved
        assert landed.notice.startswith("`git push` failed: no; error: failed to push some refs")
        assert landed.notice.endswith(f"`git push origin {BRANCH}` pushes it")
        assert git(remotes["origin"], "for-each-ref") == ""

    def test_push_does_not_overwrite_commits_of_others(self, repo: Path, remotes: dict[str, Path]) -> None:
        tip = git(repo, "commit-tree", "-m", "of others", "HEAD^{tree}")
        git(repo, "push", "-q", "origin", f"{tip}:refs/heads/{BRANCH}")
        landed = self.push(repo)
        assert not landed.moved
        assert git(remotes["origin"], "rev-parse", BRANCH) == tip

    def test_without_a_remote_it_stays(self, repo: Path, work: Worktree) -> None:
        landed = self.push(repo)
        assert not landed.moved
        assert "no remote repository" in landed.notice
        git(repo, "remote", "add", "origin", str(repo.parent / "nowhere.git"))
        assert not self.push(repo).moved


def test_on_a_branch_it_says_what_to_type(repo: Path, work: Worktree) -> None:
    commit = git(repo, "rev-parse", BRANCH)
    assert merge.report_unlanded(commit, BRANCH).notice.endswith(f"`git merge {BRANCH}` merges it")
    shutil.rmtree(repo / ".git")
    assert "the git repository no longer exists" in merge.fast_forward(repo, BRANCH, commit, MAIN).notice
