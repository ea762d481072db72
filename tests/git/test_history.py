"""What an agent does to branches, tags, the stash and HEAD is found, and what is only work is not."""

import shlex
from pathlib import Path

import pytest
from repos import RUN, git, opened, write

from ralph.core.checks import Finding, Rule, Severity
from ralph.git import history, worktree
from ralph.git.command import find_repository
from ralph.git.snapshots import Snapshots


def commit(root: Path, message: str = "more", **files: str) -> str:
    write(root, dict(files) or {"a.txt": f"{message}\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", message)
    return git(root, "rev-parse", "HEAD")


def shell(root: Path, finding: Finding) -> None:
    """Do what the sentence says brings it back."""
    command = finding.sentence.split("`")[1]
    assert command.startswith("git ")

    git(root, *shlex.split(command)[1:])


@pytest.fixture
def begun(repo: Path) -> Snapshots:
    """A run that has begun in a repository with some history."""
    commit(repo, "second")
    git(repo, "branch", "feature")
    git(repo, "tag", "v1")
    git(repo, "tag", "-a", "-m", "annotated", "v2")
    snapshots = opened(repo)
    snapshots.take("before the run")
    return snapshots


def found(snapshots: Snapshots) -> list[tuple[str, Severity]]:
    findings = snapshots.history()
    assert all((finding.rule, finding.line) == (Rule.HISTORY_REWRITTEN, 0) for finding in findings)
    return [(finding.path, finding.severity) for finding in findings]


class TestWork:
    def test_unchanged_history_has_no_findings(self, begun: Snapshots) -> None:
        assert begun.history() == []

    def test_new_commits_branches_tags_and_snapshots_are_fine(self, begun: Snapshots, repo: Path) -> None:
        commit(repo, "work")
        git(repo, "branch", "new")
        git(repo, "tag", "v3")
        git(repo, "commit", "-q", "--amend", "-m", "a commit of this run may be amended")
        git(repo, "merge", "-q", "--no-ff", "-m", "merged", "feature")
        begun.take("turn 1")
        git(repo, "pack-refs", "--all")
        assert begun.history() == []

    def test_a_record_survives_a_restart_and_runs_without_one_have_no_findings(
        self,
        begun: Snapshots,
        repo: Path,
    ) -> None:
        git(repo, "branch", "-D", "feature")
        assert found(opened(repo)) == [("feature", Severity.ERROR)]
        base = git(repo, "commit-tree", "HEAD^{tree}", "-m", "before the run")
        git(repo, "update-ref", f"refs/ralph/{RUN}", base)
        assert opened(repo).history() == []

    def test_branches_of_runs_are_not_looked_at(self, repo: Path) -> None:
        git(repo, "branch", "ralph/261115-000000-aaaa/task/1")
        snapshots = opened(repo)
        snapshots.take("before the run")
        assert "ralph" not in "".join(snapshots.refs())
        git(repo, "branch", "-D", "ralph/261115-000000-aaaa/task/1")
        assert snapshots.history() == []

    def test_a_repository_without_commits(self, tmp_path: Path) -> None:
        root = tmp_path / "unborn"
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        snapshots = opened(root)
        snapshots.take("before the run")
        assert dict(snapshots.refs()) == {"HEAD": "refs/heads/main"}
        commit(root, "first", x="x")
        assert snapshots.history() == []
        git(root, "switch", "-q", "-c", "other")
        assert found(snapshots) == [("HEAD", Severity.WARNING)]

    def test_without_a_repository_there_is_nothing_to_compare(self, tmp_path: Path) -> None:
        root = tmp_path / "plain"
        write(root, {"x": "x"})
        snapshots = opened(root)
        snapshots.take("before the run")
        git(root, "init", "-q")
        commit(root, "the agent's own")
        assert (dict(snapshots.refs()), snapshots.history()) == ({}, [])


class TestBranches:
    @pytest.mark.parametrize(
        "how", [("reset", "-q", "--hard", "HEAD~1"), ("commit", "-q", "--amend", "-m", "mine now")]
    )
    def test_a_branch_that_lost_commits_is_an_error_that_says_the_way_back(
        self,
        begun: Snapshots,
        repo: Path,
        how: tuple[str, ...],
    ) -> None:
        before = git(repo, "rev-parse", "main")
        git(repo, *how)
        write(repo, {"a.txt": "uncommitted\n"})
        [finding] = begun.history()
        assert (finding.path, finding.severity) == ("main", Severity.ERROR)
        shell(repo, finding)
        assert git(repo, "rev-parse", "main") == before
        assert (repo / "a.txt").read_text() == "uncommitted\n"
        assert begun.history() == []

    def test_a_rebased_branch_that_is_not_checked_out(self, begun: Snapshots, repo: Path) -> None:
        before = git(repo, "rev-parse", "feature")
        git(repo, "branch", "-f", "feature", "HEAD~1")
        [finding] = begun.history()
        assert (finding.path, finding.severity) == ("feature", Severity.ERROR)
        shell(repo, finding)
        assert git(repo, "rev-parse", "feature") == before

    def test_a_deleted_branch(self, begun: Snapshots, repo: Path) -> None:
        git(repo, "branch", "-D", "feature")
        git(repo, "pack-refs", "--all")
        [finding] = begun.history()
        assert (finding.path, finding.severity) == ("feature", Severity.ERROR)
        shell(repo, finding)
        assert begun.history() == []

    def test_a_replaced_commit_does_not_hide_a_reset(self, begun: Snapshots, repo: Path) -> None:
        was = git(repo, "rev-parse", "main")
        git(repo, "reset", "-q", "--hard", "HEAD~1")
        now = commit(repo, "looks the same")
        faked = git(repo, "commit-tree", "HEAD^{tree}", "-p", was, "-m", "fake")
        git(repo, "replace", now, faked)
        assert found(begun) == [("main", Severity.ERROR)]
        git(repo, "reflog", "expire", "--expire=now", "--all")
        git(repo, "branch", "-D", "feature")
        git(repo, "tag", "-d", "v1", "v2")
        git(repo, "replace", "-d", now)
        git(repo, "prune", "--expire=now")
        assert [path for path, _ in found(begun)] == ["main", "feature", "v1", "v2"], "its objects may even be gone"

    def test_odd_names(self, repo: Path) -> None:
        names = ["it's;rm", "ünï/\u2003cödé", "$(touch)", "a\u2028b"]
        for name in names:
            git(repo, "branch", "--", name)
        snapshots = opened(repo)
        snapshots.take("before the run")
        assert opened(repo).history() == []
        for name in names:
            git(repo, "branch", "-D", "--", name)
        findings = opened(repo).history()
        assert sorted(finding.path for finding in findings) == sorted(names)
        for finding in findings:
            shell(repo, finding)
        assert opened(repo).history() == []

    def test_a_limited_number_of_refs_is_recorded_including_the_current_branch(
        self,
        repo: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(history, "MAX_RECORDED_REFS", 3)
        for number in range(9):
            git(repo, "tag", f"t{number}")
        write(repo, {"a.txt": "stashed\n"})
        git(repo, "stash")
        snapshots = opened(repo)
        snapshots.take("before the run")
        assert list(snapshots.refs()) == ["HEAD", "stash@{0}", "refs/heads/main"]
        git(repo, "tag", "-d", "t8")
        assert snapshots.history() == []


class TestTagsAndHead:
    @pytest.mark.parametrize("tag", ["v1", "v2"])
    @pytest.mark.parametrize("how", [("tag", "-d"), ("tag", "-f")])
    def test_tags_that_move_or_go(self, begun: Snapshots, repo: Path, tag: str, how: tuple[str, ...]) -> None:
        commit(repo, "work")
        git(repo, *how, tag)
        [finding] = begun.history()
        assert (finding.path, finding.severity) == (tag, Severity.ERROR)
        shell(repo, finding)
        assert begun.history() == []

    def test_head_on_another_branch_is_a_warning(self, begun: Snapshots, repo: Path) -> None:
        git(repo, "switch", "-q", "-c", "mine")
        [finding] = begun.history()
        assert (finding.path, finding.severity) == ("HEAD", Severity.WARNING)
        shell(repo, finding)
        assert begun.history() == []
        git(repo, "switch", "-q", "--detach")
        assert found(begun) == [("HEAD", Severity.WARNING)]

    def test_a_detached_head(self, repo: Path) -> None:
        commit(repo, "second")
        git(repo, "switch", "-q", "--detach")
        snapshots = opened(repo)
        snapshots.take("before the run")
        assert snapshots.refs()["HEAD"] == git(repo, "rev-parse", "HEAD")
        commit(repo, "work on no branch")
        assert snapshots.history() == []
        git(repo, "reset", "-q", "--hard", "HEAD~2")
        [finding] = snapshots.history()
        assert (finding.path, finding.severity) == ("HEAD", Severity.ERROR)
        shell(repo, finding)
        assert snapshots.history() == []
        git(repo, "switch", "-q", "main")
        assert found(snapshots) == [("HEAD", Severity.WARNING)]


class TestStash:
    def test_work_that_was_stashed_away(self, begun: Snapshots, repo: Path) -> None:
        write(repo, {"a.txt": "half done\n"})
        git(repo, "stash")
        [finding] = begun.history()
        assert (finding.path, finding.severity) == ("stash@{0}", Severity.ERROR)
        assert "WIP on main" in finding.sentence
        shell(repo, finding)
        assert (begun.history(), (repo / "a.txt").read_text()) == ([], "half done\n")

    def test_a_stash_of_the_user_that_was_dropped_or_popped(self, repo: Path) -> None:
        for text in ("one\n", "two\n"):
            write(repo, {"a.txt": text})
            git(repo, "stash")
        snapshots = opened(repo)
        snapshots.take("before the run")
        sha = git(repo, "rev-parse", "stash@{1}")
        git(repo, "stash", "drop", "stash@{1}")
        write(repo, {"a.txt": "three\n"})
        git(repo, "stash")
        new, dropped = snapshots.history()
        assert (new.path, dropped.path, dropped.severity) == ("stash@{0}", "stash@{1}", Severity.ERROR)
        assert sha in dropped.sentence
        shell(repo, new)
        shell(repo, dropped)
        assert snapshots.history() == []
        git(repo, "stash", "clear")
        assert len(snapshots.history()) == 2


class TestPushes:
    @pytest.fixture
    def remote(self, repo: Path, tmp_path: Path) -> Path:
        path = tmp_path / "remote.git"
        git(repo, "init", "-q", "--bare", str(path))
        git(repo, "remote", "add", "origin", str(path))
        git(repo, "push", "-q", "-u", "origin", "main")
        git(repo, "remote", "set-head", "origin", "main")
        return path

    def test_pushes_are_reported(self, repo: Path, remote: Path) -> None:
        snapshots = opened(repo)
        snapshots.take("before the run")
        assert snapshots.history() == []
        commit(repo, "work")
        assert snapshots.history() == []
        git(repo, "push", "-q", "origin", "main", "main:refs/heads/other")
        assert found(snapshots) == [("origin/main", Severity.WARNING), ("origin/other", Severity.WARNING)]
        git(repo, "pack-refs", "--all")
        assert len(snapshots.history()) == 2

    def test_fetch_is_not_a_push_and_does_not_hide_one(self, repo: Path, remote: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        git(tmp_path, "clone", "-q", str(remote), str(other))
        snapshots = opened(repo)
        snapshots.take("before the run")
        commit(other, "by somebody else")
        git(other, "push", "-q")
        git(repo, "fetch", "-q")
        assert snapshots.history() == []
        git(repo, "merge", "-q", "--ff-only", "origin/main")
        commit(repo, "work")
        git(repo, "push", "-q")
        git(other, "pull", "-q", "--ff-only")
        commit(other, "and again")
        git(other, "push", "-q")
        git(repo, "fetch", "-q")
        assert found(snapshots) == [("origin/main", Severity.WARNING)]
        git(repo, "config", "core.logAllRefUpdates", "false")
        (repo / ".git/logs/refs/remotes/origin/main").unlink()
        assert snapshots.history() == []


class TestWorktrees:
    def test_a_run_in_a_worktree_of_its_own(self, repo: Path) -> None:
        commit(repo, "second")
        git(repo, "branch", "feature")
        made = worktree.ensure_worktree(repo, RUN)
        snapshots = opened(repo, made.path)
        snapshots.take("before the run")
        assert snapshots.refs()["HEAD"] == f"refs/heads/ralph/{RUN}/run"
        commit(made.path, "work")
        commit(repo, "the user goes on")
        assert snapshots.history() == []
        git(made.path, "reset", "-q", "--hard", "HEAD~2")
        git(made.path, "branch", "-D", "feature")
        assert found(snapshots) == [(f"ralph/{RUN}/run", Severity.ERROR), ("feature", Severity.ERROR)]

    def test_work_of_the_user_in_another_worktree_is_only_a_warning(self, repo: Path) -> None:
        commit(repo, "second")
        made = worktree.ensure_worktree(repo, RUN)
        snapshots = opened(repo, made.path)
        snapshots.take("before the run")
        git(repo, "commit", "-q", "--amend", "-m", "reworded")
        write(repo, {"a.txt": "later\n"})
        git(repo, "stash")
        assert found(snapshots) == [("main", Severity.WARNING), ("stash@{0}", Severity.WARNING)]
        for finding in snapshots.history():
            assert str(repo) in finding.sentence
        write(made.path, {"a.txt": "hidden\n"})
        git(made.path, "stash")
        assert found(snapshots)[1:] == [("stash@{0}", Severity.ERROR), ("stash@{1}", Severity.WARNING)]

    def test_a_worktree_of_a_bare_repository(self, repo: Path, tmp_path: Path) -> None:
        git(tmp_path, "clone", "-q", "--bare", str(repo), str(tmp_path / "bare.git"))
        linked = tmp_path / "linked"
        git(tmp_path / "bare.git", "worktree", "add", "-q", str(linked), "main")
        git(linked, "branch", "feature")
        snapshots = opened(linked)
        snapshots.take("before the run")
        commit(linked, "work")
        assert snapshots.history() == []
        git(linked, "branch", "-D", "feature")
        assert found(snapshots) == [("feature", Severity.ERROR)]


def test_reading_the_refs_takes_few_git_commands(begun: Snapshots, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ralph.git.command import Git, Output

    run, seen = Git.run, []

    def counted(self: Git, *args: str, **options: object) -> Output:
        seen.append(args[0])
        return run(self, *args, **options)  # type: ignore[arg-type]

    commit(repo, "work")
    place = find_repository(repo)
    assert place is not None
    monkeypatch.setattr(Git, "run", counted)
    history.record_refs(place)
    assert len(seen) <= 3
    begun.refs()
    seen.clear()
    assert begun.history() == []
    assert len(seen) <= 4
