"""An agent that plays every role of a session with six tasks, in both layouts. Each turn waits as long as the test holds it.

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
CLASSIC_PLAN = """# Plan

## Goal & Success Criteria
Six files, version {version}

- `test -f verify.sh` passes

## Target Files/Artifacts
- task-1.txt
"""
CLASSIC_TASK = """- {id}: Make {file}
    - **Type**: Sequential
    - **Files**: {file}
    - **Objective**: {file} is there. {notes}
    - **Success Criteria**:
        - `sh verify.sh {id} {file}` passes
    - **Inherits From**: {needed}
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


def plan_classic(mode: str) -> None:
    def list_tasks(*ids: str, file: str = "", notes: str = "") -> str:
        return "".join(
            CLASSIC_TASK.format(id=id, file=file or f"{id}.txt", notes=notes, needed=NEEDS.get(id) or "None")
            for id in ids
        )

    if mode == "TASK_BREAKDOWN":
        put("tasks.md", list_tasks(*NEEDS))
        return
    said = (INBOX / "update.md").read_text() if mode == "UPDATE" else ""
    put("plan.md", CLASSIC_PLAN.format(version=len(said)))
    if "still wanted" in said:
        put("tasks.md", list_tasks("task-6"))
    elif "z.txt" in said:
        put("tasks.md", list_tasks("task-7", file="z.txt", notes="The user asked for z.txt."))
    elif said:
        put("tasks.md", list_tasks("task-5", notes="The port is 8080.") + list_tasks("task-7"))


def ask_classic(mode: str, keys: dict[str, str]) -> None:
    old = INBOX / "plan.questions.md"
    text = old.read_text() if old.exists() else "# Questions\n"
    asked = "### Question 1\n- **ID**: Q-TECH-001\n- **Priority**: Low\n- **Status**: Unanswered\n"
    is_research = mode == "research"
    put(
        "plan.questions.md",
        text.replace("Unanswered", "Answered") if is_research else f"{text}\n## Cycle {keys['CYCLE']}\n\n{asked}",
    )


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
    [file] = re.findall(r"^(?:## Files\n- |    - \*\*Files\*\*: )`?([^`\n]+)`?$", defined, re.MULTILINE)
    if task != "task-5" or "8080" in defined:
        pathlib.Path(file).write_text(f"{task} by attempt {keys['ATTEMPT_NUMBER']}\n")
    return {"success_criteria_met": True}


def review(task: str) -> dict[str, object]:
    is_first = os.environ["RALPH_ATTEMPT"] == "1"
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
    is_classic = os.environ.get("LAYOUT") == "classic"
    updates = re.findall(r"^# Update (\d+)$", "".join(one.read_text() for one in INBOX.glob("update.md")), re.MULTILINE)
    number = keys.get("ATTEMPT_NUMBER") or keys.get("ITERATION") or (updates[0] if updates else "1")
    wait_at_gate(".".join([role, task or mode, number]) + steered)
    answer: dict[str, object] = {"status": "completed", "summary": f"{role} {mode} {task}"}
    if role == "planner" and is_classic:
        plan_classic(mode)
    elif role == "planner":
        plan(mode, keys)
    elif role == "questioner" and is_classic:
        ask_classic(mode, keys)
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
