"""`ralph abort --revert`: the tree as it was before the run, and nothing of anybody else's lost."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from test_loop import NEVER_DONE, RALPH, Project, eventually, fingerprint, make_project, plain, project  # noqa: F401

WORK = (
    "printf '%s\\n' \"$RALPH_TURN\" > README; echo made > made.txt; rm -f gone.txt; mv moved.txt 'new name.txt'; true"
)


def mess_up(project: Project) -> None:  # noqa: F811
    """What a person has in a tree: staged, unstaged, untracked and executable files."""
    for name in ("gone.txt", "moved.txt", "tool"):
        (project.root / name).write_text(f"{name}\n" * 9)
    (project.root / "tool").chmod(0o755)
    if (project.root / ".git").exists():
        project.git("add", "gone.txt", "tool")
    (project.root / "gone.txt").write_text("changed after it was staged\n")
    (project.root / "README").write_text("dirty\n")


def files(project: Project) -> dict[str, str]:  # noqa: F811
    """The user's files with content and mode, whenever they were written."""
    found = fingerprint(project.root)
    kept = {name: mark.split() for name, mark in found.items() if name.split("/")[0] not in (".git", ".ralph", ".aiwg")}
    return {name: f"{mark[0]} {mark[-1]}" for name, mark in kept.items()}


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("with_git", [True, False], ids=["git", "no-git"])
def test_run_that_reached_its_limit_is_aborted_and_reverted(tmp_path: Path, with_git: bool) -> None:
    for project in make_project(tmp_path, with_git=with_git):  # noqa: F402
        mess_up(project)
        start, index = files(project), project.git("ls-files", "-s") if with_git else ""
        assert project.work(WORK, "--max-iterations", "2").code == 3
        changed = files(project)
        assert changed != start
        done = project.ralph("abort", "--revert", "--yes")
        assert done.code == 0, done.said
        assert files(project) == start
        assert "README" in done.out and "ralph undo" in done.out
        assert project.journal("run.ended")[-1]["outcome"] == "aborted"
        assert not with_git or project.git("ls-files", "-s") == index
        assert project.ralph("undo").code == 0
        assert files(project) == changed


def test_report_says_that_the_run_was_reverted(project: Project) -> None:  # noqa: F811
    project.work(WORK, "--max-iterations", "1")
    name = project.run.name
    assert project.ralph("abort").code == 0
    report = project.ralph("report", name)
    assert "its work is still in the tree" in report.out and f"ralph abort {name} --revert" in report.out
    assert project.ralph("abort", name, "--revert", "--yes").code == 0
    report = project.ralph("report", name)
    assert "still in the tree" not in report.out and f"ralph abort {name} --revert" not in report.out
    assert "reverted it: all files that git does not ignore went back to their state before the run." in report.out
    assert f"Undo the revert with `ralph undo {name}`." in report.out
    assert "changed" not in report.err, "Ralph itself wrote the report again"


def test_every_screen_says_that_a_success_was_taken_back(project: Project) -> None:  # noqa: F811
    assert project.work("touch done.txt").code == 0
    name = project.run.name

    def look() -> tuple[str, str]:
        [row] = json.loads(project.ralph("status", "--json").out)["runs"]
        assert f"  {row['state']}  " in project.ralph("status").out
        assert row["headline"] in project.ralph("status").out
        return row["state"], row["grade"]

    assert look() == ("success", "proven")
    assert project.ralph("abort", name, "--revert", "--yes").code == 0
    assert look() == ("reverted", "")
    assert "Evidence" not in project.ralph("status", name).out
    said = "you reverted what the run changed: 1 file deleted"
    assert said in project.ralph("status").out
    report = project.ralph("report", name).out
    assert f"SINCE THEN, {said}.\n\n# Ralph loop: success\n\nThe run was reverted after that: see Next.\n" in report
    assert json.loads(project.ralph("report", "--json").out)["since"] == said
    assert project.ralph("undo").code == 0
    assert look() == ("success", "proven"), "the revert was undone"
    assert "SINCE THEN" not in project.ralph("report", name).out
    assert project.ralph("undo").code == 0
    assert look() == ("undone", "")


@pytest.mark.slow
def test_revert_leaves_a_report_that_the_user_edited(project: Project) -> None:  # noqa: F811
    project.work(WORK, "--max-iterations", "1")
    assert project.ralph("abort").code == 0
    path = max((project.root / ".aiwg/ralph").glob("completion-*.md"), key=lambda one: one.stat().st_mtime_ns)
    path.write_text(f"My notes.\n{path.read_text()}")
    edited = path.read_text()
    assert project.ralph("abort", "--revert", "--yes").code == 0
    assert path.read_text() == edited


@pytest.mark.slow
def test_abort_reverts_a_run_that_is_over(project: Project) -> None:  # noqa: F811
    start = files(project)
    project.work(WORK, "--max-iterations", "1")
    name = project.run.name
    assert project.ralph("abort").code == 0
    assert files(project) != start
    refused = project.ralph("abort", name)
    assert (refused.code, f"ralph abort {name} --revert" in refused.err) == (2, True)
    done = project.ralph("abort", name, "--revert", "--yes", "--json").json
    assert (done["outcome"], done["reverted"], set(done["files"])) == ("aborted", True, {"README", "made.txt"})
    assert files(project) == start
    again = project.ralph("abort", "--revert", "--yes", "--json").json
    assert again["run"] == name, "where all are over, the latest is meant"
    assert (again["files"], again["commits"], again["notices"]) == ([], [], [])


def test_a_living_engine_is_ended_first(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text("turn: {grace_seconds: 0.5}\n")
    start = files(project)
    engine = project.start(*project.working(f"{WORK}; touch here; sleep 300"))
    eventually(lambda: (project.root / "here").exists())
    done = project.ralph("abort", "--revert", "--yes")
    assert done.code == 0, done.said
    assert files(project) == start
    engine.communicate(timeout=120)
    assert engine.returncode == 8


@pytest.mark.slow
def test_without_an_engine_a_living_agent_is_ended_first(project: Project) -> None:  # noqa: F811
    (project.root / "ralph.yml").write_text("turn: {grace_seconds: 0.5}\n")
    start = files(project)
    engine = project.start(*project.working("touch here; while :; do date +%N > README; sleep 0.05; done"))
    eventually(lambda: (project.root / "here").exists())
    engine.kill()
    engine.wait()
    name = project.run.name
    locked = project.work("true")
    assert (locked.code, f"`ralph resume {name}` takes it over" in locked.err) == (10, True), locked.said
    done = project.ralph("abort", "--revert", "--yes")
    assert done.code == 0, done.said
    assert files(project) == start


def test_revert_without_a_terminal_changes_nothing(project: Project) -> None:  # noqa: F811
    project.work(WORK, "--max-iterations", "1")
    changed = files(project)
    done = project.real("abort", "--revert")
    assert (done.code, "--yes" in done.err, "before run" in done.err) == (2, True, True)
    assert project.journal("run.ended")[-1]["outcome"] == "limit-iterations", "it is not even aborted"
    assert files(project) == changed


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("answer", ["y", "n"])
def test_the_user_is_asked(project: Project, answer: str) -> None:  # noqa: F811
    start = files(project)
    project.work(WORK, "--max-iterations", "1")
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [str(RALPH), "abort", "--revert"]
    done = subprocess.run(
        command, cwd=project.root, env=project.environment, stdin=theirs, capture_output=True, timeout=120
    )
    os.close(ours)
    os.close(theirs)
    assert b"Go ahead?" in done.stderr
    assert done.returncode == (0 if answer == "y" else 130)
    assert (files(project) == start) is (answer == "y")


def test_without_snapshots_it_is_refused_before_anything_is_done(plain: Project) -> None:  # noqa: F811
    plain.play(NEVER_DONE, "--max-iterations", "1", "--no-snapshots")
    done = plain.ralph("abort", "--revert", "--yes")
    assert (done.code, "--no-snapshots" in done.err) == (2, True)
    assert plain.journal("run.ended")[-1]["outcome"] == "limit-iterations"


def test_commits_of_the_agent_stay_and_are_named(project: Project) -> None:  # noqa: F811
    start = files(project)
    commit = "git add -A; git -c user.name=A -c user.email=a@b commit -qm 'by the agent'"
    project.work(f"{WORK}; {commit}", "--max-iterations", "1")
    tip = project.git("rev-parse", "main")
    done = project.ralph("abort", "--revert", "--yes")
    assert files(project) == start
    assert "the commits that Ralph did not make stay on the branch" in done.out
    assert f"made during turn 1, by the agent or by you: {tip[:12]} by the agent" in done.out
    assert project.git("rev-parse", "main") == tip
    reset = re.search(r"if none of them is yours, `git (reset \w+)` removes them", done.out)
    assert reset, done.out
    project.git("add", "-A")
    (project.root / "late.txt").write_text("mine\n")
    project.git(*reset[1].split())
    assert project.git("log", "--format=%s") == "first\n"
    assert files(project) == start | {"late.txt": files(project)["late.txt"]}


@pytest.mark.slow
def test_a_commit_in_the_same_second_as_a_turn_is_not_called_the_agents(project: Project) -> None:  # noqa: F811
    project.work(WORK, "--max-iterations", "1")
    started = project.journal("turn.ended")[0]["result"]["started_at"]
    # Git records whole seconds, so this commit has the time at which the turn started.
    when = {"GIT_COMMITTER_DATE": f"{int(started)} +0000", "GIT_AUTHOR_DATE": f"{int(started)} +0000"}
    commit = ["git", "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "by me"]
    subprocess.run(commit, cwd=project.root, env=project.environment | when, check=True)
    done = project.ralph("abort", "--revert", "--yes")
    assert re.search(r"not made during a turn of the run: \w+ by me", done.out), done.out
    assert "made during turn" not in done.out and "git reset" not in done.out


def test_a_commit_between_two_turns_is_not_announced_as_the_agents(project: Project) -> None:  # noqa: F811
    # The check of the loop commits, as the user can while a check runs.
    commit = "git -c user.name=A -c user.email=a@b commit -q --allow-empty -m checked"
    project.work(WORK, "--max-iterations", "2", until=f"`{commit}; test -f done.txt`")
    assert [line["change"]["commits"] for line in project.journal("history.changed")] == []
    done = project.ralph("abort", "--revert", "--yes")
    assert re.search(r"not made during a turn of the run: \w+ checked", done.out), done.out


def test_commits_of_the_run_are_removed_from_its_branch(project: Project) -> None:  # noqa: F811
    (project.root / "notes.txt").write_text("untracked before the run\n")
    start, base = files(project), project.git("rev-parse", "main")
    assert project.work(f"{WORK}; echo more >> notes.txt", "--commit", "--max-iterations", "3").code in (3, 4)
    assert project.git("rev-list", "--count", "main") != "1\n"
    assert project.git("status", "--porcelain") == ""
    tip = project.git("rev-parse", "main").strip()
    done = project.ralph("abort", "--revert", "--yes")
    assert done.code == 0, done.said
    assert files(project) == start
    assert project.git("rev-parse", "main") == base
    assert project.git("status", "--porcelain") == "?? notes.txt\n"
    assert tip[:12] in done.out
    assert project.ralph("undo").code == 0
    project.git("reset", "-q", tip)
    assert project.git("status", "--porcelain") == "", "what is said to take it back does"


def test_a_worktree_of_the_run(project: Project) -> None:  # noqa: F811
    start, base = files(project), project.git("rev-parse", "main")
    project.work(WORK, "--worktree", "--max-iterations", "1")
    tree, branch = project.root / ".ralph" / "worktrees" / project.run.name, f"ralph/{project.run.name}/run"
    assert project.git("rev-parse", branch) != base
    done = project.ralph("abort", "--revert", "--yes")
    assert done.code == 0, done.said
    assert (tree / "README").read_text() == "first\n"
    assert project.git("rev-parse", branch) == base
    assert project.git("status", "--porcelain", cwd=tree) == ""
    assert files(project) == start


@pytest.mark.slow
def test_commands_in_the_worktree_of_a_run_mean_that_run(project: Project) -> None:  # noqa: F811
    project.work(WORK, "--max-iterations", "1")
    project.work("date +%N > README", "--worktree", "--max-iterations", "1")
    [tree] = (project.root / ".ralph" / "worktrees").iterdir()
    name = tree.name
    project.work("date +%N > README", "--max-iterations", "1")
    shown = project.ralph("status", "--json", cwd=tree)
    assert {row["run"] for row in shown.json["runs"]} == {run.name for run in project.runs}
    assert project.ralph("diff", "--json", cwd=tree).json["run"] == name
    done = project.ralph("abort", "--json", cwd=tree)
    assert (done.code, done.json["run"], done.json["outcome"]) == (0, name, "aborted"), done.said


def test_no_run_starts_in_the_worktree_of_another(project: Project) -> None:  # noqa: F811
    project.work("date +%N > README", "--worktree", "--max-iterations", "1")
    tree = project.root / ".ralph" / "worktrees" / project.run.name
    done = project.ralph(*project.working("true"), cwd=tree)
    assert done.code == 2
    assert f"this is the worktree of run {project.run.name}" in done.err
    assert f"cd {project.root}" in done.err
    assert len(project.runs) == 1
