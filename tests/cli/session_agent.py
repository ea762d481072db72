"""An agent that plays every role of a session, by what its prompt says; what goes wrong is written in a file of its home."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

PLAN = """# Plan

## Goal
{goal}

## Success Criteria
- `test -f a.txt` passes

## Target Files
| File | Role | Changes Expected |
| --- | --- | --- |
| a.txt | result | new |

## Context
Nothing.

## Approach
Write the files.
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
- [ ] `test -f {file}` passes
- [ ] It reads well

## Dependencies
depends_on: [{needed}]
inherited_by: []

## Notes
"""
QUESTION = """---
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
FILES = {"task-1": "a.txt", "task-2": "b.txt", "task-3": "c.txt", "task-4": "d.txt", "task-5": "e.txt"}
NEEDS = {"task-3": "task-1, task-2", "task-4": "task-3"}


def edits_the_session(session: pathlib.Path, task: str) -> None:
    """An executor as others define it: it knows nothing but the files of the session, and marks its own work as done."""
    pathlib.Path(FILES[task]).write_text(f"{task}\n")
    report = session / "reports" / f"{task}-report.md"
    report.parent.mkdir(exist_ok=True)
    report.write_text(f"# Task Report: {task}\n\n## PART 1: IMPLEMENTATION REPORT\n### Summary of Changes\nBy hand.\n")
    progress = session / "progress.md"
    progress.write_text(progress.read_text().replace(f"[/] {task} ", f"[x] {task} "))
    print("```json\n" + json.dumps({"status": "completed", "success_criteria_met": True}) + "\n```")


def asks_for_another(script: dict[str, str], prompt: str) -> bool:
    """Whether the user asks for another task while one is reviewed. The words come in a later turn of the same work."""
    while not pathlib.Path(script.get("until_review", "/")).exists():
        time.sleep(0.02)
    is_planned_again = "z.txt" in (pathlib.Path(os.environ["RALPH_INBOX"]) / "task.md").read_text()
    return "STEER" in prompt and "z.txt" in prompt and not is_planned_again


def made_for_steer() -> bool:
    """Whether the file is there that the user asked for during the review of the session."""
    return pathlib.Path("e.txt").exists()


def main() -> None:
    prompt = sys.stdin.read()
    keys = dict(re.findall(r"^([A-Z_]+): (.*)$", prompt.partition("# This turn\n")[2].split("\n\n")[0], re.MULTILINE))
    role, mode, task = os.environ["RALPH_ROLE"], keys.get("MODE", ""), keys.get("TASK_ID", "")
    script = json.loads(pathlib.Path(os.environ["SCRIPT"]).read_text())
    out = pathlib.Path(os.environ["RALPH_OUTBOX"])

    def put(name: str, text: str) -> None:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)

    if task and role == "executor":
        with open(os.environ["SCRIPT"] + ".attempts", "a") as log:
            log.write(f"{task} {os.environ['RALPH_TASK']} {keys['ATTEMPT_NUMBER']} {os.environ['RALPH_ATTEMPT']}\n")
    if {mode, f"{mode} {task}", task if role == "executor" else ""} & set(script.get("crash", [])):
        sys.exit("I crashed")
    hangs_once = f"{mode} {task}" in script.get("hang_once", [])
    hung = pathlib.Path(os.environ["SCRIPT"] + ".hung")
    if {mode, f"{mode} {task}", task if role == "executor" else ""} & set(script.get("hang", [])) or (
        hangs_once and not hung.exists()
    ):
        hung.touch()
        time.sleep(600)
    answer = {"status": "completed", "summary": f"{role} {mode}"}
    if mode in script.get("blocked", []):
        put("result.json", json.dumps({"status": "blocked", "blockers": ["there is no database"]}))
        return
    if keys.get("SESSION_PATH", "").startswith(".ralph/turn/"):
        edits_the_session(pathlib.Path(keys["SESSION_PATH"]), task)
        return
    if mode in ("INITIALIZE", "UPDATE"):
        put("plan.md", PLAN.format(goal="Three files"))
        if text := script.get("instructions"):
            put("instructions.md", text)
        if mode == "UPDATE":
            put("delta.md", "# Delta\n\n## Feedback Summary\nOne issue.\n")
    elif role == "questioner":
        if mode == "feedback-analysis" and (logs := list(pathlib.Path(os.environ["RALPH_INBOX"]).rglob("*.log"))):
            answer["critical_findings"] = [logs[0].read_text()]
        if mode == "research":
            for asked in (pathlib.Path(os.environ["RALPH_INBOX"]) / "questions").glob("*.md"):
                put(f"questions/{asked.name}", asked.read_text().replace("Unanswered", "Answered"))
        else:
            name = keys["CATEGORY"]
            put(f"questions/{name}.md", QUESTION.format(name=name, iteration=keys["ITERATION"]))
    elif mode == "REBREAKDOWN" and "STEER" in keys:
        one = keys["FAILED_TASKS"]
        said = (pathlib.Path(os.environ["RALPH_INBOX"]) / "steer.md").read_text().replace("#", "")
        put(f"tasks/{one}.md", TASK.format(id=one, iteration=keys["ITERATION"], file="z.txt", needed="") + said)
        if also := script.get("also"):
            text = TASK.format(id=also, iteration=keys["ITERATION"], file="y.txt", needed=NEEDS[also])
            put(f"tasks/{also}.md", text)
    elif mode in ("TASK_BREAKDOWN", "REBREAKDOWN"):
        files, needs = FILES, NEEDS | script.get("needs", {})
        planned = ["task-1", "task-2", "task-3", "task-4"] if mode == "TASK_BREAKDOWN" else ["task-5"]
        if script.get("many") and mode == "TASK_BREAKDOWN":
            planned = [f"task-{number}" for number in range(1, 12)]
            files, needs = {one: f"{one}.txt" for one in planned}, dict.fromkeys(planned[1:], "task-1")
        for one in planned:
            text = TASK.format(id=one, iteration=keys["ITERATION"], file=files[one], needed=needs.get(one, ""))
            put(f"tasks/{one}.md", text)
    elif mode == "REBREAKDOWN_TASK":
        for number in (1, 2):
            one = f"{task}.{number}"
            put(f"tasks/{one}.md", TASK.format(id=one, iteration=1, file=f"part-{number}.txt", needed=""))
    elif role == "executor":
        if not script.get("large") or task in script["large"]:
            time.sleep(float(script.get("slow", 0)))
            while not pathlib.Path(script.get("until", "/")).exists():
                time.sleep(0.02)
        if f"{task}/{keys['ATTEMPT_NUMBER']}" not in script.get("lazy", []) and task not in script.get("never", []):
            defined = (pathlib.Path(os.environ["RALPH_INBOX"]) / "task.md").read_text()
            name = re.findall(r"^## Files\n- `?([^`\n]+)`?$", defined, re.MULTILINE)[0]
            pathlib.Path(name).write_text(f"{task}\n")
        subprocess.run(script.get("do", {}).get(task, "true"), shell=True, check=True)
        put("report.md", f"### Objective Recap\n{task}\n")
        answer["success_criteria_met"] = True
        is_planned_again = "z.txt" in (pathlib.Path(os.environ["RALPH_INBOX"]) / "task.md").read_text()
        is_asked = task == script.get("scope") and script.get("scope_in", role) == role
        if is_asked and "- STEER, " in prompt and not is_planned_again:
            answer |= {"status": "blocked", "success_criteria_met": False, "blockers": ["STEER scope change: z.txt"]}
    elif mode == "TASK_REVIEW" and task == script.get("scope") and asks_for_another(script, prompt):
        answer |= {"status": "blocked", "blockers": ["STEER scope change: z.txt"]}
    elif mode == "TASK_REVIEW":
        again = f"{task}/{keys['ATTEMPT' if 'ATTEMPT' in keys else 'ITERATION']}"
        bad = task in script.get("rejected", []) and not pathlib.Path(os.environ["SCRIPT"] + f".{task}").exists()
        if bad:
            pathlib.Path(os.environ["SCRIPT"] + f".{task}").write_text(again)
        pathlib.Path("scribble.txt").write_text("a reviewer changes nothing that counts\n")
        put("review.md", "### Review Summary\nSeen.\n")
        answer |= {"verdict": "Failed" if bad else "Qualified", "feedback": "It does not read well." if bad else ""}
    elif role == "librarian" and mode == "PROMOTE":
        said = (pathlib.Path(os.environ["RALPH_INBOX"]) / "approval.md").read_text()
        for found in (pathlib.Path(os.environ["RALPH_INBOX"]) / "knowledge").glob("*/*.md"):
            if found.stem in said:
                put(f"knowledge/{found.parent.name}/{found.name}", found.read_text())
    elif role == "librarian":
        for name in script.get("learned", []):
            put(f"knowledge/reference/{name}.md", f"---\ncategory: reference\n---\n# {name}\n\n## {name}\nIt is so.\n")
        put("knowledge/how-to/make-files.md", "---\ncategory: how-to\n---\n# Make files\n\n## How\nWrite them.\n")
    elif mode == "SESSION_REVIEW" and script.get("until_session_review") and not made_for_steer():
        while not pathlib.Path(script["until_session_review"]).exists():
            time.sleep(0.02)
        answer |= {"status": "blocked", "blockers": ["STEER scope change: make e.txt too"]}
    elif mode == "CRITIQUE_BREAKDOWN":
        asked = (pathlib.Path(os.environ["RALPH_INBOX"]) / "review.md").read_text().replace("#", "")
        put("tasks/task-5.md", TASK.format(id="task-5", iteration=keys["ITERATION"], file="e.txt", needed="") + asked)
    elif mode == "SESSION_REVIEW":
        put("review.md", "# Session Review - Iteration 1\n\n## Overall Assessment\nComplete\n")
        answer |= {"assessment": "Complete", "files": script.get("files", [])}
    put("result.json", json.dumps(answer))
    print(f"{role} {mode}")


if __name__ == "__main__":
    main()
