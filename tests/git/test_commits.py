"""Commits of a run on the user's branch: exactly its files, once, and nothing of the user's lost."""

import random
import shutil
import threading
from pathlib import Path

import pytest
from kills import KilledProgram
from repos import RUN, git, opened, start_run_here, tree, write

from ralph.core.events import Commit
from ralph.git import commits, merge, worktree
from ralph.git.command import find_repository
from ralph.git.commits import CommitResult, Committer, commit_work, list_uncommitted_files, remove_commits
from ralph.git.snapshots import Snapshots


def begun(root: Path, workspace: Path | None = None) -> Snapshots:
    snapshots = opened(root, workspace)
    snapshots.take("before the run")
    return snapshots


def iteration(snapshots: Snapshots, number: int = 1, message: str = "") -> CommitResult:
    """Snapshot and commit, as the engine does after a turn."""
    before = snapshots.latest() or ""
    after = snapshots.take(f"turn {number}").snapshot
    trailers = {"Ralph-Run": RUN, "Ralph-Iteration": str(number)}
    return commit_work(snapshots, before, after, message or f"ralph: iteration {number} - work", trailers)


def shown(root: Path, sha: str | None = "HEAD") -> list[str]:
    """What a commit changed."""
    listed = git(root, "show", "--format=", "--name-status", "--no-renames", "-z", str(sha))
    fields = listed.split("\0")
    return [f"{kind} {path}" for kind, path in zip(fields[::2], fields[1::2], strict=False)]


def status(root: Path) -> list[str]:
    return [line for line in git(root, "status", "--porcelain", "-z", "--untracked-files=all").split("\0") if line]


class TestCommitting:
    def test_iteration_becomes_one_commit_of_its_changes(self, repo: Path) -> None:
        git(repo, "config", "user.name", "Ada")
        git(repo, "config", "user.email", "ada@example.org")
        write(repo, {"notes.txt": "mine, untracked\n"})
        snapshots = begun(repo)
        write(repo, {"a.txt": "one\n", "new dir/ü\n.py": "x\n"})
        (repo / "src/b.py").unlink()
        done = iteration(snapshots, message="ralph: iteration 1 - Fix it\n\nRalph-Run: not this\n\nall checks pass")
        assert done == CommitResult(git(repo, "rev-parse", "main"))
        assert shown(repo) == ["M a.txt", "A new dir/ü\n.py", "D src/b.py"]
        assert status(repo) == ["?? notes.txt"]
        assert git(repo, "diff-files") == git(repo, "diff-index", "HEAD") == ""
        said = git(repo, "log", "-1", "--format=%an <%ae> %cn|%s|%(trailers:key=Ralph-Run,valueonly,separator=)")
        assert said == f"Ada <ada@example.org> Ada|ralph: iteration 1 - Fix it|{RUN}"
        assert git(repo, "reflog", "-1", "--format=%gs") == "ralph: commit"
        assert iteration(snapshots, 2) == CommitResult()

    def test_without_an_identity_it_is_ralphs(self, repo: Path) -> None:
        snapshots = begun(repo)
        write(repo, {"a.txt": "x\n"})
        assert iteration(snapshots)
        assert git(repo, "log", "-1", "--format=%an <%ae> %cn") == "Ralph <ralph@localhost> Ralph"

    def test_no_hook_is_run_and_nothing_is_signed(self, repo: Path) -> None:
        git(repo, "config", "commit.gpgSign", "true")
        names = ("pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change")
        for name in names:
            write(repo / ".git" / "hooks", {name: f"#!/bin/sh\ntouch {repo}/ran\nexit 1\n"})
            (repo / ".git" / "hooks" / name).chmod(0o755)
        snapshots = begun(repo)
        write(repo, {"a.txt": "x\n"})
        assert iteration(snapshots)
        assert not (repo / "ran").exists()

    def test_staged_changes_of_the_user_stay_staged(self, repo: Path) -> None:
        write(repo, {"mine.txt": "mine\n", "src/c.py": "c\n"})
        git(repo, "add", "src/c.py")
        git(repo, "commit", "-q", "-m", "c")
        snapshots = begun(repo)
        write(repo, {"mine.txt": "staged\n", "src/c.py": "staged\n", "a.txt": "turn\n"})
        git(repo, "add", "mine.txt", "src/c.py")
        git(repo, "rm", "-q", "--cached", "src/b.py")
        before = snapshots.latest() or ""
        write(repo, {"mine.txt": "mine\n", "src/c.py": "c\n"})
        after = snapshots.take("turn 1").snapshot
        done = commit_work(snapshots, before, after, "work", {"Ralph-Run": RUN})
        assert shown(repo) == ["M a.txt"]
        assert done.notices == ()
        assert git(repo, "show", ":mine.txt") == git(repo, "show", ":src/c.py") == "staged"
        assert status(repo) == ["AM mine.txt", "D  src/b.py", "MM src/c.py", "?? src/b.py"]

    def test_another_version_that_was_staged_of_a_committed_file_can_be_got_back(self, repo: Path) -> None:
        snapshots = begun(repo)
        write(repo, {"a.txt": "added half way\n", "b": "b\n", "n": "n\n"})
        git(repo, "add", "a.txt", "b")
        git(repo, "add", "-N", "n")
        write(repo, {"a.txt": "done\n"})
        done = iteration(snapshots)
        assert (status(repo), shown(repo)) == ([], ["M a.txt", "A b", "A n"])
        [notice] = done.notices
        assert git(repo, *notice.split("`")[1].split()[1:]) == "added half way"

    def test_commits_of_the_agent_stay_and_ours_adds_what_is_left(self, repo: Path) -> None:
        snapshots = begun(repo)
        write(repo, {"a.txt": "the agent's\n", "x": "x\n"})
        git(repo, "add", "a.txt")
        git(repo, "commit", "-q", "-m", "by the agent")
        assert iteration(snapshots)
        assert git(repo, "log", "--format=%s") == "ralph: iteration 1 - work\nby the agent\nfirst"
        assert (shown(repo), status(repo)) == (["A x"], [])
        write(repo, {"a.txt": "all of it\n"})
        git(repo, "commit", "-q", "-a", "-m", "by the agent again")
        assert iteration(snapshots, 2) == CommitResult()

    def test_files_become_directories_links_and_programs(self, repo: Path) -> None:
        write(repo, {"d/x": "x\n", "run": "#!/bin/sh\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "d")
        snapshots = begun(repo)
        shutil.rmtree(repo / "d")
        (repo / "d").symlink_to("src")
        (repo / "a.txt").unlink()
        write(repo, {"a.txt/in": "in\n"})
        (repo / "run").chmod(0o755)
        assert iteration(snapshots)
        assert sorted(shown(repo)) == ["A a.txt/in", "A d", "D a.txt", "D d/x", "M run"]
        assert status(repo) == []
        shutil.rmtree(repo / "a.txt")
        (repo / "d").unlink()
        write(repo, {"a.txt": "a\n", "d/x": "x\n"})
        assert iteration(snapshots, 2)
        assert status(repo) == []

    def test_a_repository_without_commits(self, tmp_path: Path) -> None:
        root = tmp_path / "unborn"
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        snapshots = begun(root)
        assert iteration(snapshots) == CommitResult()
        write(root, {"x": "x\n"})
        assert iteration(snapshots)
        assert (git(root, "log", "--format=%s", "main"), status(root)) == ("ralph: iteration 1 - work", [])
        assert len(remove_commits(snapshots, RUN).commits) == 1
        assert git(root, "for-each-ref", "refs/heads") == ""
        assert status(root) == ["?? x"]

    def test_submodules_and_repositories_inside_are_left_out(self, repo: Path, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q", "sub")
        git(tmp_path / "sub", "commit", "-q", "--allow-empty", "-m", "x")
        git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "sub"), "sub")
        git(repo, "commit", "-q", "-m", "a submodule")
        snapshots = begun(repo)
        git(repo / "sub", "commit", "-q", "--allow-empty", "-m", "y")
        (repo / "own").mkdir()
        git(repo / "own", "init", "-q")
        git(repo / "own", "commit", "-q", "--allow-empty", "-m", "z")
        write(repo, {"a.txt": "turn\n"})
        done = iteration(snapshots)
        assert shown(repo) == ["M a.txt"]
        assert [notice.split()[0] for notice in done.notices] == ["own", "sub"]

    def test_ralphs_own_and_hidden_files_are_left_out(self, repo: Path) -> None:
        write(repo, {".ralph/state": "1"})
        git(repo, "add", "-f", ".ralph/state")
        git(repo, "commit", "-q", "-m", "tracked by mistake")
        git(repo, "update-index", "--skip-worktree", "src/b.py")
        git(repo, "update-index", "--assume-unchanged", ".gitignore")
        write(repo, {"src/b.py": "my password\n"})
        snapshots = begun(repo)
        write(repo, {".ralph/state": "2", "src/b.py": "my password, and more\n", "a.txt": "x\n", ".gitignore": "\n"})
        done = iteration(snapshots)
        assert shown(repo) == ["M a.txt"]
        assert [notice.split()[0] for notice in done.notices] == [".gitignore", "src/b.py"]
        assert git(repo, "ls-files", "-v", "src/b.py", ".gitignore") == "h .gitignore\nS src/b.py"

    def test_a_branch_of_a_worktree(self, repo: Path) -> None:
        made = worktree.ensure_worktree(repo, RUN)
        snapshots = begun(repo, made.path)
        write(made.path, {"a.txt": "x\n"})
        done = iteration(snapshots)
        assert git(repo, "rev-parse", f"ralph/{RUN}/run") == done.sha
        assert (status(made.path), git(repo, "log", "--format=%s", "main")) == ([], "first")
        write(made.path, {"late": "x\n"})
        merge.save_worktree(made, "ralph: the task")
        assert len(remove_commits(snapshots, RUN).commits) == 2
        assert git(repo, "rev-parse", f"ralph/{RUN}/run") == git(repo, "rev-parse", "main")

    def test_a_subdirectory_as_the_workspace(self, repo: Path) -> None:
        sub = repo / "sub"
        write(sub, {"x": "x\n"})
        snapshots = begun(sub)
        write(repo, {"a.txt": "outside\n", "sub/x": "y\n"})
        assert iteration(snapshots)
        assert (shown(repo), status(repo)) == (["M a.txt", "A sub/x"], [])


class TestLineEnds:
    @pytest.mark.parametrize("setting", ["true", "input", "false"])
    def test_files_are_committed_by_the_users_rules(self, repo: Path, setting: str) -> None:
        write(repo, {"crlf-kept": "a\r\nb\r\n", ".gitattributes": "*.bat text eol=crlf\n*.up filter=upper\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "stored as it is")
        git(repo, "config", "core.autocrlf", setting)
        git(repo, "config", "core.safecrlf", "true")
        git(repo, "config", "filter.upper.clean", "tr a-z A-Z | sed 's/^/>/'")
        git(repo, "config", "filter.upper.smudge", "tr A-Z a-z | sed 's/^>//'")
        start_run_here(repo)
        snapshots = begun(repo)
        crlf = {"a.txt": "one\r\n2\r\n", "new.txt": "n\r\n", "crlf-kept": "a\r\nb\r\nc\r\n", "x.bat": "b\r\n"}
        write(repo, {**crlf, "x.up": "abc\n", "link/../bin": b"\0\r\n"})
        (repo / "to").symlink_to("a.txt")
        gone = repo / "src/b.py"
        gone.unlink()
        done = iteration(snapshots)
        assert done.notices == ()
        expected = "one\n2\n" if setting != "false" else "one\r\n2\r\n"
        raw = {name: git(repo, "cat-file", "blob", f"HEAD:{name}") + "\n" for name in (*crlf, "x.up")}
        assert raw["a.txt"] == expected
        assert raw["crlf-kept"] == "a\r\nb\r\nc\r\n"
        assert (raw["x.bat"], raw["x.up"]) == ("b\n", ">ABC\n")
        assert status(repo) == []
        assert "D src/b.py" in shown(repo) and "A to" in shown(repo)


class TestOnce:
    def test_commit_is_not_made_twice(self, repo: Path) -> None:
        snapshots = begun(repo)
        base = snapshots.latest() or ""
        write(repo, {"a.txt": "x\n"})
        first = iteration(snapshots)
        trailers = {"Ralph-Run": RUN, "Ralph-Iteration": "1"}
        assert commit_work(opened(repo), base, snapshots.latest() or "", "again", trailers) == first
        write(repo, {"mine": "x\n"})
        git(repo, "add", "mine")
        git(repo, "commit", "-q", "-m", "the user goes on")
        assert commit_work(opened(repo), base, snapshots.latest() or "", "again", trailers) == first
        assert git(repo, "rev-list", "--count", "HEAD") == "3"

    @pytest.mark.slow
    @pytest.mark.parametrize("is_after", [True, False], ids=["after", "before"])
    def test_a_kill_at_any_git_command_leaves_one_commit_and_a_clean_index(
        self, repo: Path, tmp_path: Path, is_after: bool
    ) -> None:
        write(repo, {"mine.txt": "mine\n"})
        git(repo, "add", "mine.txt")
        git(repo, "commit", "-q", "-m", "mine")
        snapshots = begun(repo)
        base = snapshots.latest() or ""
        write(repo, {"a.txt": "turn\n", "new": "x\n"})
        (repo / "src/b.py").unlink()
        sha = snapshots.take("turn 1").snapshot
        write(repo, {"mine.txt": "staged meanwhile\n"})
        git(repo, "add", "mine.txt")
        script = f"""
import sys
from pathlib import Path
from ralph.git.commits import commit_work
from ralph.git.snapshots import Snapshots
root = Path(sys.argv[1])
snapshots = Snapshots.open(root, root, {RUN!r}, root / ".ralph" / "runs" / {RUN!r})
commit_work(snapshots, {base!r}, {sha!r}, "work", {{"Ralph-Run": {RUN!r}, "Ralph-Iteration": "1"}})
"""
        copies = tmp_path / "copies"
        copies.mkdir()
        for copy in KilledProgram(script, copies, is_after).kill_copies(repo):
            assert (copy / "mine.txt").read_text() == "staged meanwhile\n"
            commit_work(opened(copy), base, sha, "work", {"Ralph-Run": RUN, "Ralph-Iteration": "1"})
            assert git(copy, "log", "--format=%s") == "work\nmine\nfirst"
            assert shown(copy) == ["M a.txt", "A new", "D src/b.py"]
            assert status(copy) == ["M  mine.txt"]

    def test_iterations_through_the_engines_port(self, repo: Path) -> None:
        snapshots = begun(repo)
        committer = Committer(snapshots, RUN)
        write(repo, {"a.txt": "first try\n", "b": "b\n"})
        one = snapshots.take("turn 1").snapshot
        done = committer.commit(Commit("commit-1", 1, one, "one"))
        assert (done.key, done.commit, done.notice) == ("commit-1", git(repo, "rev-parse", "HEAD"), "")
        assert committer.commit(Commit("commit-1", 1, one, "one")) == done
        write(repo, {"a.txt": "one\ntwo\n"})
        snapshots.take("turn 2, interrupted")
        write(repo, {"c": "c\n"})
        two = snapshots.take("turn 3").snapshot
        assert Committer(opened(repo), RUN).commit(Commit("commit-2", 2, two, "two")).commit
        assert (shown(repo), status(repo)) == (["M a.txt", "A c"], [])
        assert git(repo, "diff", "--name-only", "HEAD~2").split() == ["b", "c"]
        body = git(repo, "log", "-1", "--format=%B").strip().split("\n\n")
        assert body == ["two", "+2 -1 a.txt\n+1 -0 c", f"Ralph-Run: {RUN}\nRalph-Iteration: 2\nRalph-Snapshot: {two}"]

    def test_a_message_lists_a_limited_number_of_files(self, repo: Path) -> None:
        snapshots = begun(repo)
        write(repo, {f"f{number:02}": "x\n" for number in range(60)})
        Committer(snapshots, RUN).commit(Commit("commit-1", 1, snapshots.take("turn 1").snapshot, "many\n\0\udcff"))
        body = git(repo, "log", "-1", "--format=%B")
        assert "+1 -0 f49\nand 10 more\n" in body and "f50" not in body


class TestRefusing:
    def test_a_detached_head_and_another_branch(self, repo: Path) -> None:
        snapshots = begun(repo)
        write(repo, {"a.txt": "x\n"})
        git(repo, "switch", "-q", "-c", "other")
        done = iteration(snapshots)
        assert not done
        assert "HEAD is on other, and the run began on main" in done.notices[0]
        git(repo, "switch", "-q", "--detach")
        assert "detached" in iteration(snapshots, 2).notices[0]
        tips = git(repo, "for-each-ref", "--format=%(objectname)", "refs/heads").split()
        assert tips == [git(repo, "rev-parse", "HEAD")] * 2

    def test_a_merge_in_progress(self, repo: Path) -> None:
        snapshots = begun(repo)
        git(repo, "checkout", "-q", "-b", "side")
        git(repo, "commit", "-q", "--allow-empty", "-m", "side")
        git(repo, "checkout", "-q", "main")
        write(repo, {"a.txt": "x\n"})
        git(repo, "merge", "-q", "--no-ff", "--no-commit", "side")
        assert iteration(snapshots).notices == ("nothing was committed: a merge is in progress",)

    def test_without_a_repository(self, tmp_path: Path) -> None:
        root = tmp_path / "plain"
        write(root, {"x": "x"})
        snapshots = begun(root)
        write(root, {"x": "y"})
        assert "no git repository" in iteration(snapshots).notices[0]
        assert remove_commits(snapshots, RUN).commits == ()

    def test_an_index_that_a_git_of_the_user_holds_is_waited_for(self, repo: Path) -> None:
        snapshots = begun(repo)
        write(repo, {"a.txt": "x\n"})
        lock = repo / ".git" / "index.lock"
        lock.touch()
        timer = threading.Timer(0.4, lock.unlink)
        timer.start()
        assert iteration(snapshots).notices == ()
        timer.join()
        assert status(repo) == []

    def test_an_index_that_stays_held_is_left_alone(self, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ralph.git.command._PAUSE", 0.001)
        snapshots = begun(repo)
        write(repo, {"a.txt": "x\n"})
        index, lock = (repo / ".git" / "index").read_bytes(), repo / ".git" / "index.lock"
        lock.write_bytes(b"theirs")
        done = iteration(snapshots)
        assert done.sha == git(repo, "rev-parse", "main")
        assert "another git process holds the index" in done.notices[0]
        assert ((repo / ".git" / "index").read_bytes(), lock.read_bytes()) == (index, b"theirs")
        lock.unlink()
        git(repo, "reset", "-q", "--", "a.txt")
        assert status(repo) == []

    def test_a_branch_that_is_busy(self, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commits, "_PAUSE", 0.001)
        monkeypatch.setattr("ralph.git.command._TRIES", 1)
        snapshots = begun(repo)
        write(repo, {"a.txt": "x\n"})
        (repo / ".git/refs/heads/main.lock").touch()
        done = iteration(snapshots)
        assert (done.sha, "another git process uses" in done.notices[0]) == (None, True)

    def test_only_tracked_files_with_changes_keep_a_run_from_starting(self, repo: Path) -> None:
        place = find_repository(repo)
        assert place is not None
        write(repo, {"untracked": "x\n", ".ralph/x": "x\n"})
        assert list_uncommitted_files(place) == []
        git(repo, "add", "-f", ".ralph/x")
        assert list_uncommitted_files(place) == []
        write(repo, {"a.txt": "x\n", "ü \n": "x\n"})
        git(repo, "add", "ü \n")
        (repo / "src/b.py").unlink()
        assert sorted(list_uncommitted_files(place)) == ["a.txt", "src/b.py", "ü \n"]


class TestTakingOff:
    def test_commits_of_the_run_are_removed(self, repo: Path) -> None:
        write(repo, {"mine": "untracked\n"})
        base = git(repo, "rev-parse", "main")
        snapshots = begun(repo)
        start = tree(repo)
        for number in (1, 2, 3):
            write(repo, {"a.txt": f"{number}\n", "mine": f"{number}\n", f"n{number}": "n\n"})
            assert iteration(snapshots, number)
        write(repo, {"staged": "mine\n"})
        git(repo, "add", "staged")
        tip = git(repo, "rev-parse", "main")
        snapshots.restore(str(snapshots.base()), "revert")
        taken = remove_commits(snapshots, RUN)
        assert (len(taken.commits), taken.commits[0], taken.notices) == (3, tip, ())
        assert git(repo, "rev-parse", "HEAD", "main") == f"{base}\n{base}"
        assert tree(repo) == start | {"staged": b"mine\n"}, "the user's own file stays"
        assert status(repo) == ["A  staged", "?? mine"]
        assert git(repo, "reflog", "-1", "--format=%gs") == "ralph: take commits back"
        assert remove_commits(snapshots, RUN).commits == ()

    def test_commits_of_others_keep_the_history(self, repo: Path) -> None:
        snapshots = begun(repo)
        write(repo, {"a.txt": "1\n"})
        iteration(snapshots)
        write(repo, {"theirs": "1\n"})
        git(repo, "add", "theirs")
        git(repo, "commit", "-q", "-m", "by somebody else")
        write(repo, {"a.txt": "2\n"})
        iteration(snapshots, 2)
        tip = git(repo, "rev-parse", "main")
        taken = remove_commits(snapshots, RUN)
        assert taken.commits == ()
        assert "by somebody else" in taken.notices[1] and "iteration" not in taken.notices[1]
        assert git(repo, "rev-parse", "main") == tip

    def test_a_rewritten_history_or_another_branch_is_left(self, repo: Path) -> None:
        git(repo, "commit", "-q", "--allow-empty", "-m", "second")
        snapshots = begun(repo)
        git(repo, "commit", "-q", "--amend", "--allow-empty", "-m", "rewritten")
        assert "rewritten" in remove_commits(snapshots, RUN).notices[0]
        git(repo, "switch", "-q", "-c", "other")
        assert "not on the branch" in remove_commits(snapshots, RUN).notices[0]

    def test_a_detached_head_without_commits_is_not_reported(self, repo: Path) -> None:
        git(repo, "switch", "-q", "--detach")
        snapshots = begun(repo)
        assert remove_commits(snapshots, RUN).notices == ()


NAMES = ("a.txt", "src/b.py", "src/deep/c", "with space", "ünï.txt", "new\nline", "-dash", "d/e/f", 'q"uote')


def disorder(root: Path, rng: random.Random) -> None:
    """A few random things that a person or an agent may do to a tree."""
    for _ in range(rng.randrange(1, 7)):
        path = root / rng.choice(NAMES)
        match rng.randrange(6):
            case 0 | 1 if not path.is_dir() or path.is_symlink():
                with_parents(path)
                path.unlink(missing_ok=True)
                path.write_bytes(
                    rng.randbytes(rng.randrange(30)) if rng.random() < 0.3 else f"{rng.random()}\n".encode()
                )
            case 2 if path.is_file():
                path.unlink()
            case 3 if path.is_file() and not path.is_symlink():
                path.chmod(rng.choice((0o644, 0o755)))
            case 4 if path.is_file():
                target = root / f"moved {rng.randrange(3)}" / path.name
                with_parents(target)
                path.replace(target)
            case 5 if not path.exists():
                with_parents(path)
                path.unlink(missing_ok=True)
                path.symlink_to(rng.choice(("a.txt", "nowhere")))


def with_parents(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)


def modes(root: Path) -> dict[str, object]:
    return {name: (data, (root / name).lstat().st_mode & 0o111 != 0) for name, data in tree(root).items()}


@pytest.mark.more_are_slow(5)
@pytest.mark.parametrize("seed", range(12))
def test_a_revert_is_exact_whatever_was_there_and_whatever_was_done(repo: Path, seed: int) -> None:
    """The user's dirty, staged and untracked files come back as they were, and their index is never touched."""
    rng = random.Random(seed)
    disorder(repo, rng)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", "something")
    disorder(repo, rng)
    git(repo, "add", rng.choice(("-A", "-u")))
    disorder(repo, rng)
    staged, start = git(repo, "ls-files", "-s"), modes(repo)
    snapshots = begun(repo)
    for number in range(3):
        disorder(repo, rng)
        snapshots.take(f"turn {number}")
    disorder(repo, rng)
    last = modes(repo)
    restored = snapshots.restore(str(snapshots.base()), "revert", force=True)
    assert modes(repo) == start
    assert git(repo, "ls-files", "-s") == staged
    assert remove_commits(snapshots, RUN).commits == ()
    if restored.files:
        opened(repo).undo()
    assert modes(repo) == last


@pytest.mark.more_are_slow(3)
@pytest.mark.parametrize("seed", range(8))
def test_commits_of_random_work_are_complete_and_can_be_removed(repo: Path, seed: int) -> None:
    rng = random.Random(1000 + seed)
    write(repo, {"mine before": "untracked\n"})
    start, head = modes(repo), git(repo, "rev-parse", "HEAD")
    snapshots = begun(repo)
    for number in range(1, 5):
        disorder(repo, rng)
        if rng.random() < 0.3:
            git(repo, "add", "-A")
        iteration(snapshots, number)
        assert [line for line in status(repo) if line != "?? mine before"] in ([], ["A  mine before"])
    snapshots.restore(str(snapshots.base()), "revert")
    assert remove_commits(snapshots, RUN).notices == ()
    assert (git(repo, "rev-parse", "HEAD"), modes(repo)) == (head, start)
    assert status(repo) in (["?? mine before"], ["A  mine before"])
