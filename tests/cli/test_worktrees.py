"""Several runs in one repository: worktrees, landing, the queue, and what is done with them from the command line."""

from pathlib import Path

import pytest
from test_loop import NEVER_DONE, SUCCEEDS, Project, project  # noqa: F401 - the fixture

HAT = """
event_loop: {starting_event: work.start}
hats:
  w: {triggers: [work.start], publishes: [LOOP_COMPLETE], instructions: x}
"""
MAKES = "cat > /dev/null; echo {0} > {0}.txt"


def make(project: Project, name: str, *args: str) -> str:  # noqa: F811
    """A loop in a worktree that makes a file; its run."""
    before = set(project.runs)
    done = project.work(MAKES.format(name), "--worktree", *args, until=f"`test -f {name}.txt`")
    assert done.code == 0, done.said
    [run] = set(project.runs) - before
    return run.name


def head(project: Project) -> str:  # noqa: F811
    return project.git("rev-parse", "HEAD").strip()


class TestLanding:
    def test_by_default_the_work_stays_on_its_branch_and_nothing_of_yours_moves(self, project: Project) -> None:  # noqa: F811
        before = head(project)
        done = project.work(MAKES.format("a"), "--worktree", until="`test -f a.txt`")
        branch = f"ralph/{project.run.name}/run"
        said = f"on the branch {branch}; `git merge {branch}` merges it"
        assert done.out.count(said) == 1, done.out
        assert said in project.ralph("logs").out
        assert (head(project), (project.root / "a.txt").exists()) == (before, False)
        assert project.git("show", f"{branch}:a.txt") == "a\n"

    def test_ff_moves_your_branch_and_your_tree(self, project: Project) -> None:  # noqa: F811
        done = project.play(SUCCEEDS, "--worktree", "--land", "ff")
        assert "Work:   on main" in done.out, done.said
        assert "Trees:  1 in .ralph/worktrees; `ralph worktrees` lists them" in done.out
        assert (project.root / "done.txt").read_text() == "done\n"
        assert project.git("status", "--porcelain") == ""
        [landed] = project.journal("work.landed")
        assert (landed["moved"], landed["branch"]) == (True, "main")

    def test_uncommitted_changes_leave_the_work_on_its_branch_with_advice(self, project: Project) -> None:  # noqa: F811
        (project.root / "README").write_text("in the middle of something\n")
        before = head(project)
        done = project.play(SUCCEEDS, "--worktree", "--land", "ff")
        assert done.code == 0
        assert f"`git merge ralph/{project.run.name}/run`" in done.out
        assert "1 file in your tree has uncommitted changes" in done.out
        assert (head(project), (project.root / "README").read_text()) == (before, "in the middle of something\n")

    def test_hooks_that_the_agent_planted_do_not_run_and_stop_the_landing(self, project: Project) -> None:  # noqa: F811
        hooks, mark = project.root / ".git" / "hooks", project.home / "started"
        agent = project.agent(
            f'mkdir -p "{hooks}"; printf "#!/bin/sh\\ntouch {mark}\\n" >"{hooks}/post-merge"; chmod +x "{hooks}/post-merge"\n'
            f'git config filter.evil.clean "touch {mark}; cat"; echo "* filter=evil" >.gitattributes; echo 1 >done.txt'
        )
        start = ("loop", "the task", "--until", "`test -f done.txt`", "--agent-command", agent)
        done = project.ralph(*start, "--worktree", "--land", "ff", "--yes")
        assert done.code == 0
        assert "the git setting filter.evil.clean is new" in done.out
        assert "the file hooks/post-merge is new" in done.out
        (project.root / ".git" / "hooks" / "post-merge").unlink()
        assert not mark.exists() and not (project.root / "done.txt").exists()
        asked = project.ralph(*start)
        assert asked.code == 2
        assert f"git setting filter.evil.clean\n    touch {mark}; cat" in asked.err
        project.git("config", "--unset", "filter.evil.clean")
        assert project.ralph("land", project.run.name).code == 0
        assert (project.root / "done.txt").exists() and not mark.exists()

    def test_a_run_that_failed_is_never_landed(self, project: Project) -> None:  # noqa: F811
        before = head(project)
        done = project.play(NEVER_DONE, "--worktree", "--land", "ff", "--max-iterations", "1")
        assert (done.code, head(project)) == (3, before)
        refused = project.ralph("land", project.run.name)
        assert refused.code == 2
        assert "has not succeeded" in refused.err and f"git merge ralph/{project.run.name}/run" in refused.err

    def test_push_sends_the_branch_and_moves_nothing(self, project: Project) -> None:  # noqa: F811
        remote = project.home / "remote.git"
        project.git("init", "-q", "--bare", str(remote))
        project.git("remote", "add", "origin", str(remote))
        before = head(project)
        done = project.play(SUCCEEDS, "--worktree", "--land", "push")
        assert f"on origin/ralph/{project.run.name}/run" in done.out, done.said
        assert head(project) == before
        assert "refs/heads/ralph/" in project.git("ls-remote", str(remote))

    def test_push_without_a_remote_says_so(self, project: Project) -> None:  # noqa: F811
        done = project.play(SUCCEEDS, "--worktree", "--land", "push")
        assert (done.code, "no remote repository" in done.out) == (0, True), done.said

    @pytest.mark.slow
    def test_diff_works_after_the_worktree_is_pruned(self, project: Project) -> None:  # noqa: F811
        project.play(SUCCEEDS, "--worktree", "--land", "ff")
        assert "removed" in project.ralph("worktrees", "--prune").out
        assert "+done" in project.ralph("diff").out
        undone = project.ralph("undo")
        assert (undone.code, f"the worktree of run {project.run.name} was removed" in undone.err) == (2, True)
        assert f"`ralph diff {project.run.name}` shows" in undone.err
        assert project.git("status", "--porcelain") == ""

    def test_a_run_that_cannot_begin_leaves_no_branch_behind(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text("notify: [nonsense]\n")
        assert project.play(SUCCEEDS, "--worktree").code == 2
        assert project.git("branch", "--list", "ralph/*") == "" and not project.runs
        assert "worktrees" not in project.git("worktree", "list")

    def test_land_needs_a_worktree(self, project: Project) -> None:  # noqa: F811
        done = project.play(SUCCEEDS, "--land", "ff")
        assert (done.code, "--worktree" in done.err) == (2, True)


class TestLandAfterwards:
    def test_a_branch_that_moved_is_merged_with_the_checks_of_the_run(self, project: Project) -> None:  # noqa: F811
        first, second = make(project, "a"), make(project, "b", "--land", "branch")
        assert project.ralph("land", first).code == 0
        done = project.ralph("land", second)
        assert done.code == 0, done.said
        assert {"a.txt", "b.txt"} <= {path.name for path in project.root.iterdir()}
        assert project.git("log", "-1", "--format=%s").strip() == f"Merge ralph/{second}/run"
        assert project.ralph("land", "--queue").out == "Nothing waits to be merged.\n"
        rows = project.ralph("land", "--queue", "--all", "--json").json["queue"]
        assert [row["state"] for row in rows] == ["landed", "landed"]

    def test_a_conflict_is_named_and_changes_nothing(self, project: Project) -> None:  # noqa: F811
        run = make(project, "a")
        (project.root / "a.txt").symlink_to("/nowhere")
        project.git("add", "a.txt")
        project.git("commit", "-q", "-m", "the same name")
        before = head(project)
        done = project.ralph("land", run)
        assert (done.code, head(project)) == (9, before), done.said
        assert "conflicts with your branch in a.txt" in done.err
        assert not list((project.root / ".ralph" / "worktrees").glob("*.merge"))

    def test_a_red_merge_shows_the_check_and_changes_nothing(self, project: Project) -> None:  # noqa: F811
        script = "cat > /dev/null; echo 1 > one.txt"
        done = project.work(script, "--worktree", until="`test -f one.txt && test ! -f two.txt`")
        assert done.code == 0, done.said
        (project.root / "two.txt").write_text("2\n")
        project.git("add", "two.txt")
        project.git("commit", "-q", "-m", "two")
        before = head(project)
        landed = project.ralph("land")
        assert (landed.code, head(project)) == (9, before)
        assert "FAIL" in landed.out and "the checks fail on the merged tree" in landed.out
        assert project.git("status", "--porcelain") == ""
        assert not list((project.root / ".ralph" / "worktrees").glob("*.merge"))

    @pytest.mark.slow
    def test_each_land_lands_one_run_and_a_manual_merge_counts(self, project: Project) -> None:  # noqa: F811
        runs = [make(project, name) for name in "abc"]
        project.git("merge", "-q", "--no-edit", f"ralph/{runs[2]}/run")
        assert [project.ralph("land", "--json").json["run"] for _ in range(2)] == [runs[1], runs[0]]
        assert {"a.txt", "b.txt", "c.txt"} <= {path.name for path in project.root.iterdir()}
        assert project.ralph("land").code == 2
        assert project.ralph("land", "--queue").out == "Nothing waits to be merged.\n"

    def test_queue_names_the_command_that_lands_a_run(self, project: Project) -> None:  # noqa: F811
        (project.root / "README").write_text("in the middle of something\n")
        run = make(project, "a", "--land", "ff")
        project.git("commit", "-q", "-a", "-m", "done with it")
        assert f"`ralph land {run}` merges it" in project.ralph("land", "--queue").out
        assert project.ralph("land").code == 0

    @pytest.mark.slow
    def test_from_no_branch_it_says_so(self, project: Project) -> None:  # noqa: F811
        project.git("checkout", "-q", "--detach")
        done = project.play(SUCCEEDS, "--worktree", "--land", "ff")
        assert "HEAD was on no branch when the run began: the work stays" in done.out, done.said

    def test_hats_without_checks_are_merged_as_they_are(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(HAT)
        agent = "cat > /dev/null; echo w > w.txt; ralph emit LOOP_COMPLETE done"
        words = ("--worktree", "--yes", "--agent-command", f"sh -c '{agent}'")
        done = project.ralph("run", "-p", "do it", *words)
        assert done.code == 0, done.said
        project.git("commit", "-q", "--allow-empty", "-m", "moved")
        assert project.ralph("land").code == 0
        assert (project.root / "w.txt").exists()

    def test_nothing_to_land(self, project: Project) -> None:  # noqa: F811
        done = project.ralph("land")
        assert (done.code, "no run here is waiting to land" in done.err) == (2, True)
        assert project.play(SUCCEEDS).code == 0
        done = project.ralph("land", project.run.name)
        assert (done.code, "worked in your own tree" in done.err) == (2, True)


class TestWorktreeSetup:
    def test_copies_links_and_set_up_commands(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(
            "workspace:\n  setup: [echo ready > .ready]\n  copy: [.env, conf/local.ini]\n  share: [cache]\n"
        )
        (project.root / ".env").write_text("KEY=1\n")
        (project.root / "conf").mkdir()
        (project.root / "conf" / "local.ini").write_text("x\n")
        (project.root / ".git" / "info" / "exclude").write_text(".ready\n")
        script = "cat > /dev/null; cat .env conf/local.ini .ready > done.txt; echo hit > cache/entry"
        done = project.work(script, "--worktree")
        assert done.code == 0, done.said
        branch = f"ralph/{project.run.name}/run"
        assert project.git("show", f"{branch}:done.txt") == "KEY=1\nx\nready\n"
        assert (project.root / "cache" / "entry").read_text() == "hit\n"
        assert project.git("ls-tree", "-r", "--name-only", branch).split() == ["README", "done.txt"]

    @pytest.mark.parametrize("name", ["/etc/passwd", "../secret", ""])
    def test_only_what_is_in_the_project(self, project: Project, name: str) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text(f"workspace:\n  copy: ['{name}']\n")
        done = project.play(SUCCEEDS, "--worktree")
        assert (done.code, "workspace.copy" in done.err) == (2, True), done.said

    def test_tracked_files_are_not_copied_into_worktrees(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text("workspace:\n  copy: [README]\n")
        done = project.play(SUCCEEDS, "--worktree")
        assert (done.code, "README is tracked by git" in done.err) == (2, True)
        assert project.runs == []

    def test_a_set_up_that_fails_ends_the_run_before_an_agent_is_paid(self, project: Project) -> None:  # noqa: F811
        (project.root / "ralph.yml").write_text("workspace:\n  setup: ['echo no network >&2; exit 7']\n")
        done = project.play(SUCCEEDS, "--worktree")
        assert done.code == 9, done.said
        assert "exit code 7" in done.err and "no network" in done.err
        assert project.journal("turn.started") == []

    @pytest.mark.slow
    def test_setup_command_that_fails_for_a_session_is_tried_twice_without_a_wait(self, project: Project) -> None:  # noqa: F811
        tried = project.home / "tried"
        fixed = project.home / "fixed"
        setup = f"test -e {fixed} && exit; echo >> {tried}; echo no network >&2; exit 7"
        (project.root / "ralph.yml").write_text(f"workspace:\n  setup: ['{setup}']\n")
        agent = project.agent("echo started")
        done = project.ralph("session", "new", "Build it", "--agent-command", agent, "--yes")
        assert (done.code, done.out.count("no network") > 0) == (9, True), done.said
        assert "until it passes, then resume; if the command is wrong, correct `workspace.setup`" in done.out
        assert ": blocked" in done.out
        assert len(tried.read_text()) == 2
        first, second = (entry["result"] for entry in project.journal("turn.ended"))
        assert second["started_at"] - first["ended_at"] < 30, "a broken command is no outage"
        assert not list(project.run.glob("turns/*/stdout")), "no agent was paid"
        fixed.touch()
        again = project.ralph("session", "resume", "--yes")
        assert list(project.run.glob("turns/*/stdout")), again.said


class TestWorktrees:
    def test_list_and_prune(self, project: Project) -> None:  # noqa: F811
        merged, kept = make(project, "a", "--land", "ff"), make(project, "b")
        rows = {row["run"]: row for row in project.ralph("worktrees", "--json").json["worktrees"]}
        assert (rows[merged]["state"], rows[kept]["state"]) == ("merged", "kept")
        done = project.ralph("worktrees", "--prune")
        assert f"git merge ralph/{kept}/run" in done.out
        left = [path.name for path in (project.root / ".ralph" / "worktrees").iterdir()]
        assert left == [kept]
        assert project.git("branch", "--list", f"ralph/{merged}/*") == ""
        assert (project.root / ".ralph" / "worktrees" / kept / "b.txt").exists()

    def test_prune_keeps_uncommitted_work(self, project: Project) -> None:  # noqa: F811
        run = make(project, "a", "--land", "ff")
        tree = project.root / ".ralph" / "worktrees" / run
        (tree / "notes").write_text("mine\n")
        done = project.ralph("worktrees", "--prune")
        assert "1 uncommitted change " in done.out
        assert (tree / "notes").exists()

    @pytest.mark.slow
    def test_clean_removes_worktrees_and_refs_and_names_what_stays(self, project: Project) -> None:  # noqa: F811
        merged, kept = make(project, "a", "--land", "ff"), make(project, "b")
        assert project.ralph("worktrees", "--prune").code == 0
        done = project.ralph("clean", merged)
        assert (done.code, "Kept" in done.out) == (0, False), done.said
        done = project.ralph("clean", kept)
        assert f"ralph/{kept}/run" in done.out
        refs = project.git("for-each-ref", "--format=%(refname)").split()
        assert refs == ["refs/heads/main", f"refs/heads/ralph/{kept}/run"]


def test_the_queue_of_a_project_without_runs(project: Project) -> None:  # noqa: F811
    assert project.ralph("land", "--queue").out == "Nothing waits to be merged.\n"
    assert "No worktrees" in project.ralph("worktrees").out
    assert not Path(project.root / ".ralph" / "worktrees").exists()
