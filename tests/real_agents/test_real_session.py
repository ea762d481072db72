"""A whole session with the real Claude Code and a scripted model: every role is a turn of the program."""

import json

import pytest
from agent_project import AgentProject
from script import Step, run, say

pytestmark = [pytest.mark.real_agents, pytest.mark.quick_agents, pytest.mark.needs_agents("claude")]
OUTBOX = ".ralph/turn/outbox"
PLAN = "# Plan\n\n## Goal\nTwo files\n\n## Success Criteria\n- both are there\n\n## Target Files\n\n## Context\n\n## Approach\n"
INSTRUCTIONS = "---\nplanning:\n  max_cycles: 1\n  categories: [technical]\n---\n# Instructions\nKeep it small.\n"
QUESTIONS = """\
---
category: technical
iteration: 1
cycle: 1
---
# Questions: technical (Iteration 1, Cycle 1)

## Cycle 1

### Question 1
- **ID**: Q-TECH-001
- **Question**: What is in the files?
- **Priority**: Low
- **Status**: Unanswered
- **Impact**: It decides what the tasks write.
"""
ANSWERS = """\
## Answers (Cycle 1)

### Q-TECH-001
- **Answer**: A number.
- **Status**: Answered
"""
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


def turn(documents: dict[str, str], *commands: str, **answer: object) -> tuple[Step, ...]:
    """The steps of one turn: the work, the documents for the outbox, and the end."""
    written = [put(f"{OUTBOX}/{name}", text) for name, text in documents.items()]
    result = put(f"{OUTBOX}/result.json", json.dumps({"status": "completed", "summary": "done", **answer}))
    return (run("\n".join([*commands, *written, result])), say("Done."))


SESSION = (
    *turn({"plan.md": PLAN, "instructions.md": INSTRUCTIONS}),
    *turn({"questions/technical.md": QUESTIONS}),
    *turn({"questions/technical.md": QUESTIONS.replace("Unanswered", "Answered") + ANSWERS}),
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


def test_a_session_runs_through_all_its_roles(project: AgentProject) -> None:
    project.set_up("claude")
    project.model.play(*SESSION)
    done = project.ralph(
        *("session", "new", "Make two files", "--agent", "claude", "--check", "`test -f two.txt`", "--parallel", "1"),
        *("--yes",),
        timeout=240,
    )
    assert done.code == 0, done.output
    assert (project.root / "two.txt").read_text() == "1\n"
    assert not (project.root / "scribble.txt").exists()
    [home] = [path for path in (project.root / ".ralph-sessions").iterdir() if path.is_dir()]
    text = (home / "progress.md").read_text()
    assert "- [x] task-1 (Attempt 1" in text and "- [x] task-2 (Attempt 2" in text
    assert set(project.turn_ends()) == {"finished"}
    roles = [entry["role"] for entry in project.journal("turn.started")]
    assert roles == [
        *("planner", "questioner", "questioner", "planner", "executor", "reviewer"),
        *("executor", "executor", "reviewer", "reviewer", "librarian"),
    ]
    assert "MODE: INITIALIZE" in project.model.requests[0].user_text
