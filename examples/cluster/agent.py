"""An agent for the demonstration: it plays every role of a session with six tasks that do not depend on each other."""

import json
import os
import pathlib
import re
import sys
import time

PLAN = """# Plan

## Goal
Six files

## Success Criteria
- every file is there

## Target Files
| File | Role | Changes Expected |
| --- | --- | --- |
| task-1.txt | result | new |

## Context
Nothing.

## Approach
One task for each file.
"""
INSTRUCTIONS = """---
planning:
  max_cycles: 0
knowledge:
  approval: auto
---
# Instructions
"""
TASK = """---
id: {id}
iteration: 1
type: Parallelizable
created_at: 2026-11-16T07:00:00Z
updated_at: 2026-11-16T07:00:00Z
---
# Task: {id}

## Title
Make {id}.txt

## Files
- {id}.txt

## Objective
{id}.txt is there.

## Success Criteria
- [ ] `test -s {id}.txt` passes

## Dependencies
depends_on: []
inherited_by: []

## Notes
"""
OUTBOX = pathlib.Path(os.environ["RALPH_OUTBOX"])


def put(name: str, text: str) -> None:
    """Hand a document over."""
    (OUTBOX / name).parent.mkdir(parents=True, exist_ok=True)
    (OUTBOX / name).write_text(text)


def main() -> None:
    """Do what the prompt asks for."""
    prompt = sys.stdin.read()
    keys = dict(re.findall(r"^([A-Z_]+): (.*)$", prompt.partition("# This turn\n")[2].split("\n\n")[0], re.MULTILINE))
    role, mode, task = os.environ["RALPH_ROLE"], keys.get("MODE", ""), keys.get("TASK_ID", "")
    answer: dict[str, object] = {"status": "completed", "summary": f"{role} {mode} {task}".strip()}
    if role == "planner" and mode == "INITIALIZE":
        put("plan.md", PLAN)
        put("instructions.md", INSTRUCTIONS)
    elif role == "planner":
        for number in range(1, 7):
            put(f"tasks/task-{number}.md", TASK.format(id=f"task-{number}"))
    elif role == "executor":
        time.sleep(2)
        pathlib.Path(f"{task}.txt").write_text(f"{task}, made in {os.getcwd()}\n")
        put("report.md", f"### Objective Recap\n{task}\n")
        answer["success_criteria_met"] = True
    elif mode == "TASK_REVIEW":
        put("review.md", "### Review Summary\nIt is there.\n")
        answer |= {"verdict": "Qualified", "feedback": ""}
    elif role == "reviewer":
        put("review.md", "# Session Review\n\n## Overall Assessment\nComplete\n")
        answer["assessment"] = "Complete"
    put("result.json", json.dumps(answer))


if __name__ == "__main__":
    main()
