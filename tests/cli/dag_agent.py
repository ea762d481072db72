"""An agent that plays every role of a session with six tasks. Each turn waits as long as the test holds it.

`$GATES/hold/NAME` holds the turn of that name, and `$GATES/at/NAME` says that it has begun.
"""

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
Iteration {iteration}.
"""
INSTRUCTIONS = """---
planning:
  max_cycles: 1
  categories: [technical]
knowledge:
  approval: signal
  approval_timeout_minutes: 60
---
# Instructions
"""
TASK = """---
id: {id}
iteration: {iteration}
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
- [ ] `sh verify.sh {id} {file}` passes

## Dependencies
depends_on: [{needed}]
inherited_by: []

## Notes
{notes}
"""
QUESTIONS = """---
category: {name}
iteration: {iteration}
cycle: 1
---
# Questions

## Cycle 1

### Question 1
- **ID**: Q-TECH-001
- **Question**: Where do the files go?
- **Priority**: Low
- **Status**: Unanswered
"""
NEEDS = {
    "task-1": "",
    "task-2": "",
    "task-3": "task-1, task-2",
    "task-4": "task-3",
    "task-5": "task-2",
    "task-6": "task-4, task-5",
}
INBOX, OUTBOX = pathlib.Path(os.environ["RALPH_INBOX"]), pathlib.Path(os.environ["RALPH_OUTBOX"])


def put(name: str, text: str) -> None:
    (OUTBOX / name).parent.mkdir(parents=True, exist_ok=True)
    (OUTBOX / name).write_text(text)


def put_task(id: str, iteration: str, file: str = "", notes: str = "") -> None:
    needed = NEEDS.get(id, "")
    put(
        f"tasks/{id}.md",
        TASK.format(id=id, iteration=iteration, file=file or f"{id}.txt", needed=needed, notes=notes),
    )


def wait_at_gate(name: str) -> None:
    gates = pathlib.Path(os.environ["GATES"])
    (gates / "at" / name).touch()
    while (gates / "hold" / name).exists():
        time.sleep(0.02)


def plan(mode: str, keys: dict[str, str]) -> None:
    iteration = keys["ITERATION"]
    if mode in ("INITIALIZE", "UPDATE"):
        put("plan.md", PLAN.format(iteration=iteration))
    if mode == "INITIALIZE":
        put("instructions.md", INSTRUCTIONS)
    elif mode == "UPDATE":
        put("delta.md", "# Delta\n\n## Feedback Summary\nOne issue.\n")
    elif mode == "TASK_BREAKDOWN":
        for id in NEEDS:
            put_task(id, iteration)
    elif "STEER" in keys:
        put_task(keys["FAILED_TASKS"], iteration, file="z.txt", notes=(INBOX / "steer.md").read_text().replace("#", ""))
    elif iteration == "2":
        put_task("task-5", iteration, notes="The port is 8080.")
        put_task("task-7", iteration)
    else:
        put_task("task-6", iteration)


def ask(mode: str, keys: dict[str, str]) -> None:
    if mode == "research":
        for asked in (INBOX / "questions").glob("*.md"):
            put(f"questions/{asked.name}", asked.read_text().replace("Unanswered", "Answered"))
    else:
        name = keys["CATEGORY"]
        put(f"questions/{name}.md", QUESTIONS.format(name=name, iteration=keys["ITERATION"]))


def execute(task: str, keys: dict[str, str], prompt: str) -> dict[str, object]:
    defined = (INBOX / "task.md").read_text()
    put("report.md", f"### Objective Recap\n{task}\n")
    if task == "task-7" and "- STEER, " in prompt and "z.txt" not in defined:
        return {"status": "blocked", "success_criteria_met": False, "blockers": ["STEER scope change: z.txt"]}
    [file] = re.findall(r"^## Files\n- `?([^`\n]+)`?$", defined, re.MULTILINE)
    if task != "task-5" or "8080" in defined:
        pathlib.Path(file).write_text(f"{task} by attempt {keys['ATTEMPT_NUMBER']}\n")
    return {"success_criteria_met": True}


def review(task: str) -> dict[str, object]:
    is_first = "attempt: 1\n" in (INBOX / "report.md").read_text()
    is_bad = task == "task-2" and is_first
    put("review.md", "### Review Summary\nSeen.\n")
    feedback = "It does not read well." if is_bad else ""
    return {"verdict": "Failed" if is_bad else "Qualified", "feedback": feedback}


def learn(mode: str, keys: dict[str, str]) -> None:
    if mode == "PROMOTE":
        said = (INBOX / "approval.md").read_text()
        for found in (INBOX / "knowledge").glob("*/*.md"):
            if found.stem in said:
                put(f"knowledge/{found.parent.name}/{found.name}", found.read_text())
        return
    for name in ("api", "style"):
        put(f"knowledge/reference/{name}.md", f"---\ncategory: reference\n---\n# {name}\n\n## {name}\nIt is so.\n")


def main() -> None:
    prompt = sys.stdin.read()
    keys = dict(re.findall(r"^([A-Z_]+): (.*)$", prompt.partition("# This turn\n")[2].split("\n\n")[0], re.MULTILINE))
    role, mode, task = os.environ["RALPH_ROLE"], keys.get("MODE", ""), keys.get("TASK_ID", "")
    steered = ".steer" if role == "planner" and "STEER" in keys else ""
    wait_at_gate(".".join([role, task or mode, keys.get("ATTEMPT_NUMBER", keys["ITERATION"])]) + steered)
    answer: dict[str, object] = {"status": "completed", "summary": f"{role} {mode} {task}"}
    if role == "planner":
        plan(mode, keys)
    elif role == "questioner":
        ask(mode, keys)
    elif role == "executor":
        answer |= execute(task, keys, prompt)
    elif mode == "TASK_REVIEW":
        answer |= review(task)
    elif role == "librarian":
        learn(mode, keys)
    else:
        failed = "[F] task" in (INBOX / "progress.md").read_text()
        answer["assessment"] = "Gaps Identified" if failed else "Complete"
        put("review.md", f"# Session Review\n\n## Overall Assessment\n{answer['assessment']}\n")
    put("result.json", json.dumps(answer))


if __name__ == "__main__":
    main()
