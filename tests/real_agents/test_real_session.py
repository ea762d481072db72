"""A whole session with the real Claude Code: every role is a turn of the program, against a model that is scripted."""

import json

import pytest
from place import Place
from script import Step, run, say

pytestmark = [pytest.mark.real_agents, pytest.mark.needs_agents("claude")]
OUTBOX = ".ralph/turn/outbox"
PLAN = "# Plan\n\n## Goal\nTwo files\n\n## Success Criteria\n- both are there\n\n## Target Files\n\n## Context\n\n## Approach\n"
INSTRUCTIONS = "---\nplanning:\n  max_cycles: 1\n  categories: [technical]\n---\n# Instructions\nKeep it small.\n"
QUESTIONS = "---\ncategory: technical\niteration: 1\ncycle: 1\n---\n# Questions: Technical (Iteration 1, Cycle 1)\n"
TASK = """\
---
id: {id}
iteration: 1
type: Parallelizable
created_at: 2026-11-16T07:00:00Z
updated_at: 2026-11-16T07:00:00Z
---
# Task: {id}

## Title
Make {file}

## Files
- {file}

## Objective
{file} is there.

## Success Criteria
- [ ] `test -f {file}` passes

## Dependencies
depends_on: [{needed}]
inherited_by: []

## Notes
"""


def put(path: str, text: str) -> str:
    return f"mkdir -p $(dirname {path}) && cat > {path} <<'MOCK'\n{text}\nMOCK"


def turn(papers: dict[str, str], *commands: str, **answer: object) -> tuple[Step, ...]:
    """What the model says in one turn: the work, what is handed over, and that it is done."""
    written = [put(f"{OUTBOX}/{name}", text) for name, text in papers.items()]
    result = put(f"{OUTBOX}/result.json", json.dumps({"status": "completed", "summary": "done", **answer}))
    return (run("\n".join([*commands, *written, result])), say("Done."))


SESSION = (
    *turn({"plan.md": PLAN, "instructions.md": INSTRUCTIONS}),
    *turn({"questions/technical.md": QUESTIONS}),
    *turn({"questions/technical.md": QUESTIONS}),
    *turn(
        {
            "tasks/task-1.md": TASK.format(id="task-1", file="one.txt", needed=""),
            "tasks/task-2.md": TASK.format(id="task-2", file="two.txt", needed="task-1"),
        }
    ),
    *turn({"report.md": "### Objective Recap\nmade one.txt"}, "echo 1 > one.txt", success_criteria_met=True),
    *turn({"review.md": "### Review Summary\ngood"}, "echo scribble > scribble.txt", verdict="Qualified"),
    *turn({"report.md": "### Objective Recap\nnothing yet"}, success_criteria_met=True),
    *turn({"report.md": "### Objective Recap\nmade two.txt"}, "cat one.txt > two.txt", success_criteria_met=True),
    *turn({"review.md": "### Review Summary\ngood"}, verdict="Qualified"),
    *turn({"review.md": "# Session Review - Iteration 1\n\n## Overall Assessment\nComplete"}, assessment="Complete"),
    *turn({}),
)
"""Every turn of the session in its order; task-2 is claimed to be done once before it is."""


def test_a_session_runs_through_all_its_roles(bench: Place) -> None:
    bench.furnish("claude")
    bench.model.play(*SESSION)
    done = bench.ralph(
        *("session", "new", "Make two files", "--agent", "claude", "--check", "`test -f two.txt`", "--parallel", "1"),
        *("--yes",),
        timeout=240,
    )
    assert done.code == 0, done.said
    assert (bench.root / "two.txt").read_text() == "1\n"
    assert not (bench.root / "scribble.txt").exists()
    [home] = [path for path in (bench.root / ".ralph-sessions").iterdir() if path.is_dir()]
    text = (home / "progress.md").read_text()
    assert "- [x] task-1 (Attempt 1" in text and "- [x] task-2 (Attempt 2" in text
    assert set(bench.ends()) == {"finished"}
    roles = [entry["role"] for entry in bench.journal("turn.started")]
    assert roles == [
        *("planner", "questioner", "questioner", "planner", "executor", "reviewer"),
        *("executor", "executor", "reviewer", "reviewer", "librarian"),
    ]
    assert "MODE: INITIALIZE" in bench.model.requests[0].said
