"""One whole session, as the README promises it. What else can happen in sessions is in `test_session.py`, with the slow tests."""

import re

from test_completion import complete
from test_loop import Project, project  # noqa: F401 - the fixture
from test_session import begin, home, shown


def test_a_session_from_the_request_to_the_branch_of_the_user(project: Project) -> None:  # noqa: F811
    done = begin(project, "--check", "`test -f d.txt`", lazy=["task-2/1"], rejected=["task-1"])
    assert done.code == 0, done.said
    assert "  wave 1: task-1 Make a.txt\n" in done.out
    again = "another attempt follows (2 of 3 in this iteration)"
    assert f"✗ task-1 Make a.txt: failed review: It does not read well; {again}" in done.out
    assert f"✗ task-2 Make b.txt: failed its checks: $ test -f b.txt (exit code 1); {again}" in done.out
    assert "executor, task-2 Make b.txt, attempt 2\n" in done.out
    assert "✓ task-4 Make d.txt: done" in done.out
    assert {"a.txt", "b.txt", "c.txt", "d.txt"} <= {path.name for path in project.root.iterdir()}
    assert not (project.root / "scribble.txt").exists(), "what a reviewer changes is thrown away"
    told = shown(project)
    assert (told["status"], told["current_state"], told["tasks_summary"]["completed"]) == ("completed", "COMPLETE", 4)
    reports = {path.name for path in (home(project) / "reports").iterdir()}
    assert {"task-1-report.md", "task-1-report-r2.md", "task-2-report.md", "task-2-report-r2.md"} <= reports
    assert "**Status**: Failed" in (home(project) / "reports" / "task-1-report.md").read_text()
    prompts = [path.read_text() for path in (project.root / ".ralph" / "runs").glob("*/turns/*-executor/prompt.md")]
    [branch] = re.findall(r"^PREVIOUS_BRANCH: (.+/task-1/1)$", "\n".join(prompts), re.MULTILINE)
    assert "a.txt" in project.git("show", "--stat", branch), "what the attempt before did is there to be taken over"
    assert "no reviewer was started" in (home(project) / "reports" / "task-2-report.md").read_text()
    text = (home(project) / "progress.md").read_text()
    assert "- [x] task-4 (Attempt 1, Iteration 1, qualified: " in text
    assert (project.root / ".docs" / "how-to" / "make-files.md").exists(), "what was learned is kept"
    assert project.git("status", "--porcelain") == ""
    starts = {entry["key"]: entry["at"] for entry in project.journal("turn.started")}
    merged = {
        entry["worktree"].split("/")[0]: entry["at"]
        for entry in project.journal("merge.ended")
        if entry["end"] == "merged"
    }
    assert starts["execute:task-3-1"] > max(merged["task-1"], merged["task-2"])
    assert "d.txt" in project.ralph("diff", "--stat").out, "what it did, though not in the tree of the user"
    [review] = [
        text
        for path in (project.root / ".ralph" / "runs").glob("*/turns/*-reviewer/prompt.md")
        if "MODE: SESSION_REVIEW" in (text := path.read_text())
    ]
    [run] = re.findall(r" diff (\S+)` shows what the session has changed so far", review)
    assert "d.txt" in project.ralph("diff", run).out, "the command that the reviewer of the session gets"
    turns = {entry["key"]: str(entry["turn"]) for entry in project.journal("turn.started")}
    rejected = project.ralph("diff", run, turns["execute:task-1-1"])
    assert (rejected.code, "+++ b/a.txt" in rejected.out, "b.txt" in rejected.out) == (0, True, False), rejected.said
    idle = project.ralph("diff", run, turns["plan:plan-init@1"])
    assert (idle.code, f"{turns['execute:task-1-1']} (execute:task-1-1)" in idle.err) == (2, True), idle.said
    merged_task = project.ralph("diff", run, "task-1")
    assert (merged_task.code, "+++ b/a.txt" in merged_task.out, "d.txt" in merged_task.out) == (0, True, False)
    no_task = project.ralph("diff", run, "task-9")
    assert (no_task.code, "these tasks did: task-1" in no_task.err) == (2, True), no_task.said
    checks = project.ralph("status", run).out
    assert "since attempt 2 of task-2" in checks and "check:task" not in checks, checks
    costs = [line for line in project.ralph("cost", run).out.splitlines() if line.startswith("turn ")]
    assert len({line.index(" in ") for line in costs}) == 1, costs
    assert complete(project, "ralph", "diff", run, "task-") == ["task-1", "task-2", "task-3", "task-4"]
    assert complete(project, "ralph", "steer", "--run", run, "--to", "exec") == ["executor"]
    (project.root / "mine.txt").write_text("mine\n")
    for words in (("abort", "--revert", "--yes"), ("undo",), ("restore", "base")):
        refused = project.ralph(*words)
        assert (refused.code, "not in your tree" in refused.err) == (2, True), refused.said
    assert (project.root / "mine.txt").exists() and (project.root / "d.txt").exists()
