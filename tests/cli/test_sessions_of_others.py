"""Directories that others began, in every way of writing them: they open, tell the right state, and go on to their end."""

import json
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_loop import Project, eventually, project  # noqa: F401 - the fixture

pytestmark = pytest.mark.slow
"""Each plays a whole session with many turns."""

HERE = Path(__file__).parent
PLAN_1 = "# Plan\n\n## Goal & Success Criteria\nTwo files.\n\n- both are there\n\n## Target Files/Artifacts\n- a.txt\n"
REPORT = "# Task Report: {0}\n\n## PART 1: IMPLEMENTATION REPORT\nThe word is w{1}.\n\n## PART 2: REVIEW REPORT\n{2}\n"
BULLET = "- {0}: Make {1}\n    - **Success Criteria**: it is there\n    - **Inherits From**: {2}\n"
TASKS_1 = (
    "# Tasks\n\n## Implementation Tasks\n"
    + BULLET.format("task-1", "a", "None")
    + BULLET.format("task-2", "b", "task-1")
)
TRACKING = "# Progress Tracking\n\n"
QUICK = (
    "---\nplanning:\n  max_cycles: 1\n  categories: [technical]\nknowledge:\n  approval: skip\n---\n# Instructions\n"
)

FLAT: dict[str, tuple[str, dict[str, str], str]] = {
    "v0-bullets": (
        "20260119-103000",
        {
            "plan.md": "# Plan\n\nTwo files.\n",
            "tasks.md": "# Task List\n\n- task-1: Make a\n- task-2: Make b\n",
            "progress.md": "# Execution Progress\n\n- [x] task-1 (Completed)\n- [ ] task-2 (Not Started)\n",
        },
        "EXECUTING",
    ),
    "v0-numbers": (
        "20260120-103000",
        {
            "plan.md": "# Plan\n\nTwo files.\n",
            "tasks.md": "# Task List\n\n1.  **Task 1**: Make a\n2.  **Task 2**: Make b\n",
            "progress.md": "# Execution Progress\n\n- [x] **Task 1** (Completed)\n- [ ] **Task 2** (Not Started)\n",
        },
        "EXECUTING",
    ),
    "v1-questions": (
        "260131-103000",
        {
            "plan.md": PLAN_1,
            "plan.questions.md": "# Q&A\n\n## Q&A Cycles\n\n### Cycle 1\n\n1. **Why?**\n",
            "tasks.md": "# Tasks\n\n## Planning Tasks\n- plan-init: x\n- qa-brainstorm: x\n- qa-research: x\n",
            "progress.md": f"{TRACKING}## Planning Progress\n- [x] plan-init (Completed)\n- [x] qa-brainstorm (Completed)\n"
            "- [/] qa-research (In Progress)\n- [ ] plan-breakdown (Not Started)\n\n## Implementation Progress\n",
        },
        "PLANNING",
    ),
    "v1-pending": (
        "260201-103000",
        {
            "plan.md": PLAN_1,
            "tasks.md": TASKS_1,
            "progress.md": f"{TRACKING}## Implementation Progress\n- [P] task-1 (Completed)\n- [ ] task-2 (Not Started)\n",
            "tasks.task-1-report.md": REPORT.format("task-1", "11", ""),
        },
        "REVIEWING",
    ),
    "v1-batches": (
        "260206-103000",
        {
            "plan.md": PLAN_1,
            "plan.questions.technical.md": "## Cycle 1\n",
            "tasks.md": "# Tasks\n\n- task-1: Make a\n- task-2: Make b\n\n## Dependency Graph\n```\ntask-2: [task-1]\n```\n\n"
            "## Parallel Groups\n- **Wave 1**: [task-1] - first\n- **Wave 2**: [task-2] - then\n",
            "progress.md": f"{TRACKING}## Current Wave\nWave 1\n\n## Implementation Progress\n"
            "- [/] task-1 (In Progress)\n- [ ] task-2 (Not Started)\n",
            "260206-103000.instructions.md": "---\nconcurrency:\n  max_parallel_executors: 3\n---\n# Instructions\n",
        },
        "EXECUTING",
    ),
    "v1-no-progress": (
        "260202-103000",
        {
            "plan.md": PLAN_1,
            "tasks.md": TASKS_1,
            "tasks.task-1-report.md": REPORT.format("task-1", "11", "**Status**: Failed"),
        },
        "EXECUTING",
    ),
    "v1-done": (
        "260203-103000",
        {
            "plan.md": PLAN_1,
            "tasks.md": TASKS_1,
            "progress.md": "# Progress Tracking\n\n- [x] task-1 (Completed)\n- [x] task-2 (Completed)\n",
            "progress.review1.md": "# Review\n\n## Overall Assessment\n\u26a0\ufe0f Gaps Identified\n",
        },
        "COMPLETE",
    ),
}


def lay(project: Project, id: str, files: dict[str, str]) -> Path:  # noqa: F811
    home = project.root / ".ralph-sessions" / id
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (project.home / "script.json").write_text("{}")
    project.extra["SCRIPT"] = str(project.home / "script.json")
    return home


def agent(name: str) -> str:
    return shlex.join([sys.executable, "-I", str(HERE / name)])


def told(project: Project, id: str) -> dict[str, Any]:  # noqa: F811
    done = project.ralph("session", "show", id, "--json")
    assert done.code == 0, done.said
    return done.json


@pytest.mark.parametrize("name", FLAT)
def test_a_flat_directory_opens_and_continues(project: Project, name: str) -> None:  # noqa: F811
    id, files, state = FLAT[name]
    home = lay(project, id, files)
    assert (told(project, id)["current_state"], told(project, id)["session_id"]) == (state, id)
    assert id in project.ralph("session", "list").out
    assert {path.name: path.read_text() for path in home.iterdir()} == files, "to look at it changes nothing"
    done = project.ralph("session", "resume", id, "--agent-command", agent("classic_agent.py"), "--yes")
    assert done.code == 0, done.said
    assert (told(project, id)["status"], told(project, id)["tasks_summary"]["completed"]) == ("completed", 2)
    assert list(home.parent.rglob(f"{id}.instructions.md")), "every session has instructions"
    for path, text in files.items():
        if path != "progress.md":
            now = (home / path).read_text()
            kept = [line for line in text.splitlines() if line.strip()]
            assert [line for line in kept if line not in now.splitlines()] == [], path
    first = "# Progress Tracking" if "progress.md" not in files else files["progress.md"].splitlines()[0]
    assert (home / "progress.md").read_text().startswith(first)


def v2(**sections: str) -> str:
    legend = "".join(f"- `[{m}]` x\n" for m in " /PxFC")
    return f"# Progress\n\n## Legend\n{legend}\n" + "".join(
        f"## {title.replace('_', ' ')}\n{lines}\n" for title, lines in sections.items()
    )


PLANNED = (
    "- [x] plan-init (completed: 2026-02-10T10:00Z)\n- [x] plan-brainstorm\n- [x] plan-research\n- [x] plan-breakdown\n"
)
PLAN_2 = (
    "Goal: Two files.\nSuccess Criteria: both are there\nTarget Files: a.txt\nContext: none\nApproach: write them\n"
)
AT = "created_at: 2026-02-10T16:39:00+0700\nupdated_at: 2026-02-10T16:40:00+0700\n"
METADATA = f"version: 3\nsession_id: {{0}}\n{AT}iteration: {{1}}\n"
COUNTS = "tasks:\n  total: 2\n  completed: 1\n  failed: 0\n  pending: 1\n"


def task(number: int, file: str, needed: str = "", front: str = "") -> str:
    head = f"---\nid: task-{number}\niteration: 1\ntype: Sequential\n{front}---\n" if front != "none" else ""
    return (
        f"{head}# Task: task-{number}\n\n## Title\nMake {file}\n\n## Files\n- {file}\n\n## Objective\n{file} is there\n\n"
        f"## Success Criteria\n- [ ] it is there\n\n## Dependencies\ndepends_on: [{needed}] # before\n\n## Notes\n"
    )


BOTH = {"tasks/task-1.md": task(1, "a.txt"), "tasks/task-2.md": task(2, "b.txt", "task-1")}
ITEMS = "- [x] task-1 (Attempt 1, Iteration 1, qualified: 2026-02-10T11:00:00Z)\n- [{0}] task-2{1}\n"
DONE_1 = REPORT.format("task-1", "11", "**Status**: Qualified")
LATER: dict[str, tuple[str, dict[str, str], str]] = {
    "1.0-state-files": (
        "260207-103000",
        {
            "plan.md": PLAN_2,
            "progress.md": v2(Planning_Progress=PLANNED, Implementation_Progress=ITEMS.format(" ", "")),
            "state/current.yaml": "state: BATCHING\niteration: 1\n",
            **BOTH,
            "reports/task-1-report.md": DONE_1,
        },
        "BATCHING",
    ),
    "1.5-current-state": (
        "260208-103000",
        {
            "plan.md": PLAN_2,
            "progress.md": v2(
                Current_State="- **state**: REVIEWING_BATCH\n- **iteration**: 1\n",
                **{"Planning Progress (Iteration 1)": PLANNED},
                **{
                    "Implementation Progress (Iteration 1)": ITEMS.format(
                        "P", " (Attempt 1, Iteration 1, review-pending)"
                    )
                },
            ),
            **BOTH,
            "reports/task-2-report.md": REPORT.format("task-2", "21", ""),
        },
        "REVIEWING_BATCH",
    ),
    "1.6-stale-state": (
        "260210-163900",
        {
            "plan.md": PLAN_2,
            "metadata.yaml": METADATA.format("260210-163900", 1)
            + "orchestrator:\n  state: PLANNING\n  current_wave: null\n"
            + COUNTS,
            "progress.md": v2(
                **{
                    "Planning Progress (Iteration 1)": PLANNED,
                    "Implementation Progress (Iteration 1)": ITEMS.format(" ", ""),
                }
            ),
            **BOTH,
        },
        "BATCHING",
    ),
    "1.x-other-keys": (
        "260211-103000",
        {
            "plan.md": PLAN_2,
            "metadata.yaml": "id: 260211-103000\ncurrent_state: EXECUTING_BATCH\ncurrent_iteration: 1\nowner: me # ours\n",
            "progress.md": v2(
                **{"Planning Progress (Iteration 1)": PLANNED},
                **{
                    "Implementation Progress (Iteration 1)": ITEMS.format(
                        "/", " (Attempt 1, Iteration 1, issues found)"
                    )
                },
            ),
            **BOTH,
        },
        "EXECUTING_BATCH",
    ),
    "1.x-nothing-but-tasks": (
        "260212-103000",
        {"plan.md": PLAN_2, **BOTH, "reports/task-1-report.md": DONE_1},
        "REVIEWING_BATCH",
    ),
    "1.x-no-front-matter": (
        "260213-103000",
        {
            "plan.md": PLAN_2,
            "progress.md": v2(
                **{"Planning Progress (Iteration 1)": PLANNED, "Tasks (Iteration 1)": ITEMS.format(" ", "")}
            ),
            "tasks/task-1.md": task(1, "a.txt", front="none"),
            "tasks/task-2.md": task(2, "b.txt", "task-1", front="none").replace("# Task: task-2\n", ""),
        },
        "BATCHING",
    ),
    "2.2-iterations": (
        "260215-103000",
        {
            "metadata.yaml": METADATA.format("260215-103000", 1)
            + "status: in_progress\norchestrator:\n  state: EXECUTING_BATCH\n  current_wave: 2\n"
            + COUNTS,
            "iterations/1/metadata.yaml": "version: 1\niteration: 1\nstarted_at: 2026-02-15T10:00:00Z\n",
            "iterations/1/plan.md": "# Plan — Iteration 1\n\n## Goal\nTwo files.\n\n## Success Criteria\n- [ ] SC-1: both\n",
            "iterations/1/progress.md": v2(
                **{
                    "Planning Progress (Iteration 1)": PLANNED,
                    "Implementation Progress (Iteration 1)": ITEMS.format(" ", ""),
                }
            ),
            "iterations/1/tasks/task-1.md": BOTH["tasks/task-1.md"],
            "iterations/1/tasks/task-2.md": BOTH["tasks/task-2.md"],
            "iterations/1/reports/task-1-report.md": DONE_1,
        },
        "EXECUTING_BATCH",
    ),
    "head-no-metadata": (
        "260309-103000",
        {
            "iterations/1/plan.md": "# Plan — Iteration 1\n\n## Goal\nTwo files.\n\n## Success Criteria\n- [ ] SC-1: both\n",
            "iterations/1/progress.md": v2(
                **{
                    "Planning Progress (Iteration 1)": PLANNED,
                    "Implementation Progress (Iteration 1)": ITEMS.format(" ", ""),
                },
                **{"Knowledge Progress (Iteration 1)": "- [ ] plan-knowledge-extraction\n"},
            ),
            "iterations/1/tasks/task-1.md": task(1, "a.txt", front="wave: 1\n"),
            "iterations/1/tasks/task-2.md": task(2, "b.txt", "task-1", front="wave: 2\n"),
            "iterations/1/tests/task-1/notes.txt": "kept\n",
        },
        "BATCHING",
    ),
}


FIRST = ("1.x-nothing-but-tasks", "2.2-iterations", "head-no-metadata")


@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in LATER]
)
def test_a_later_directory_opens_and_continues(project: Project, name: str) -> None:  # noqa: F811
    id, files, state = LATER[name]
    home = lay(project, id, files)
    (project.root / ".ralph-sessions" / f"{id}.instructions.md").write_text(QUICK)
    (project.root / "a.txt").write_text("1\n")
    (project.root / "b.txt").write_text("2\n")
    project.git("add", "a.txt", "b.txt")
    project.git("commit", "-qm", "what others did")
    assert (told(project, id)["current_state"], told(project, id)["session_id"]) == (state, id)
    found = {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert found == files, "to look at it changes nothing"
    done = project.ralph("session", "resume", id, "--agent-command", agent("session_agent.py"), "--yes")
    assert done.code == 0, done.said
    assert (told(project, id)["status"], told(project, id)["tasks_summary"]["completed"]) == ("completed", 2)
    for path, text in files.items():
        if "tasks/" in path or "tests/" in path:
            assert (home / path).read_text() == text
    if "owner" in files.get("metadata.yaml", ""):
        assert "owner: me # ours" in (home / "metadata.yaml").read_text()


def test_a_repair_keeps_what_was_there(project: Project) -> None:  # noqa: F811
    id, files, _ = FLAT["v1-pending"]
    home = lay(project, id, {**files, "progress.md": "# Progress\nMine.\n\n## Tasks\n- [?] task-1 (Completed)\nmine\n"})
    done = project.ralph("session", "repair", id, "--json").json
    assert done["done"] == [
        'progress.md: removed line 6, which is about no step and no task: "mine"',
        "progress.md: the marker of task-1 was invalid, and counts as not started",
        "progress.md: lines for task-2 were added",
        f"the request is the goal in .ralph-sessions/{id}/plan.md, because Ralph has no run of this session",
    ]
    text = (home / "progress.md").read_text()
    assert text == "# Progress\nMine.\n\n## Tasks\n- [ ] task-1 (Completed)\n- [ ] task-2 (Not Started)\n"
    [backup] = home.glob("progress.md.*.bak")
    assert "[?]" in backup.read_text()
    assert "progress.md" not in project.ralph("session", "repair", id).out


def test_unreadable_session_does_not_hide_the_others(project: Project) -> None:  # noqa: F811
    lay(project, "260201-103000", FLAT["v1-pending"][1])
    lay(project, "260202-103000", {"plan.md": PLAN_2, **BOTH, "tasks/task-3.md": "---\nid: [\n---\n"})
    listed = {row["session_id"]: row["status"] for row in project.ralph("session", "list", "--json").json["sessions"]}
    assert listed == {"260201-103000": "in_progress", "260202-103000": "unreadable"}
    done = project.ralph("session", "resume", "260202-103000", "--agent-command", "true", "--yes")
    assert (done.code, "task-3.md" in done.err) == (2, True), done.said
    assert not (project.root / ".ralph" / "runs" / "260202-103000").exists()


def test_unknown_session_and_changed_settings_are_refused(project: Project) -> None:  # noqa: F811
    done = project.ralph("session", "show", "260101-000000")
    assert (done.code, "there is no session 260101-000000" in done.err) == (2, True)
    assert project.ralph("session", "show", "../etc").code == 2
    id, files, _ = FLAT["v1-done"]
    lay(project, id, files)
    begun = project.ralph("session", "resume", id, "--agent-command", agent("classic_agent.py"), "--yes")
    assert begun.code == 0, begun.said
    again = project.ralph("session", "resume", id, "--check", "`true`")
    assert (again.code, "its own settings" in again.err) == (2, True)
    assert json.loads((project.root / ".ralph" / "runs" / id / "run.json").read_text())["workflow"] == "classic"


def test_sessions_of_one_id_in_two_projects_share_no_slot(project: Project) -> None:  # noqa: F811
    id, files, _ = FLAT["v0-bullets"]
    lay(project, id, files)
    other = replace(project, root=project.root.with_name("other"), extra=dict(project.extra))
    shutil.copytree(project.root, other.root)
    resume = ("session", "resume", id, "--agent-command", agent("classic_agent.py"), "--yes")
    gate, waits = project.home / "gate", project.home / "waits.json"
    waits.write_text(json.dumps({"until": str(gate)}))
    first = project.start(*resume, SCRIPT=str(waits))
    eventually(lambda: any(entry["role"] == "executor" for entry in project.journal("turn.started")))
    # Both have a slot for one turn, and the first one uses its own.
    done = other.real(*resume)
    assert done.code == 0, done.said
    gate.touch()
    first.communicate(timeout=120)
    assert first.returncode == 0
