"""An agent that plays every role of a classic session, by what its prompt says; what goes wrong is in a file of its home."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

PLAN = """# Plan

## Goal & Success Criteria
{goal}

- `test -f a.txt` passes

## Target Files/Artifacts
- a.txt
"""
TASK = """- {id}: Make {file}
    - **Type**: Sequential
    - **Files**: {file}
    - **Objective**: {file} is there
    - **Success Criteria**:
        - `test -s {file}` passes
        - It reads well
    - **Inherits From**: {inherits}
"""
FILES = {"task-1": "a.txt", "task-2": "b.txt", "task-3": "c.txt", "task-4": "d.txt"}


def task(id: str, inherits: str = "None") -> str:
    return TASK.format(id=id, file=FILES[id], inherits=inherits)


def main() -> None:
    prompt = sys.stdin.read()
    keys = dict(re.findall(r"^([A-Z_]+): (.*)$", prompt.partition("# This turn\n")[2].split("\n\n")[0], re.MULTILINE))
    role, mode, id = os.environ["RALPH_ROLE"], keys.get("MODE", ""), keys.get("TASK_ID", "")
    script = json.loads(pathlib.Path(os.environ["SCRIPT"]).read_text())
    inbox, out = (pathlib.Path(os.environ[name]) for name in ("RALPH_INBOX", "RALPH_OUTBOX"))
    answer: dict[str, object] = {"status": "completed", "summary": f"{role} {mode}"}

    def put(name: str, text: str) -> None:
        (out / name).write_text(text)

    def once(what: str) -> bool:
        """Whether something that happens once is still to happen."""
        place = pathlib.Path(os.environ["SCRIPT"] + f".{what}")
        if what not in script.get("once", []) or place.exists():
            return False
        place.write_text("")
        return True

    if mode == "INITIALIZE":
        put("plan.md", PLAN.format(goal="Two files and then some"))
    elif mode == "UPDATE":
        put("plan.md", PLAN.format(goal=(inbox / "update.md").read_text().split("- ")[1].splitlines()[0]))
        also = task(script["also"], "task-1").replace("is there", "is there, and says why") if "also" in script else ""
        put("tasks.md", task("task-4", "task-1 to 2") + also)
    elif role == "questioner":
        old = inbox / "plan.questions.md"
        asked = "### Question 1\n- **ID**: Q-TECH-001\n- **Priority**: High\n- **Status**: Unanswered\n"
        told = (
            "- **Status**: Answered\n- **Answer**: yes\n"
            if mode == "research"
            else f"## Cycle {keys['CYCLE']}\n\n{asked}"
        )
        put("plan.questions.md", (old.read_text() if old.exists() else "# Questions\n\n") + told)
    elif mode == "TASK_BREAKDOWN":
        put("tasks.md", task("task-1") + task("task-2", "task-1"))
    elif role == "executor":
        with open(os.environ["SCRIPT"] + ".attempts", "a") as log:
            log.write(f"{id} {os.environ['RALPH_TASK']} {keys['ATTEMPT_NUMBER']} {os.environ['RALPH_ATTEMPT']}\n")
        time.sleep(float(script.get("slow", 0)))
        while not pathlib.Path(script.get("until", "/")).exists():
            time.sleep(0.02)
        if once(f"scribble-{id}"):
            home = next(path for path in pathlib.Path(".ralph-sessions").iterdir() if path.is_dir())
            (home / "progress.md").write_text("- [x] task-1 (Completed)\n- [x] task-2 (Completed)\n")
            (home / "progress.review1.md").write_text("## Overall Assessment\nComplete\n")
        if not once(f"lazy-{id}") and id not in script.get("never", []):
            inherited = [path.read_text() for path in sorted((inbox / "inherited").glob("*.md"))]
            words = [re.findall(r"The word is (\w+)", text)[0] for text in inherited]
            pathlib.Path(FILES[id]).write_text(" ".join([*words, id]) + "\n")
        subprocess.run(script.get("do", {}).get(id, "true"), shell=True, check=True)
        put("report.md", f"### Summary of Changes\nThe word is w{id[-1]}{keys['ATTEMPT_NUMBER']}.\n")
        answer["success_criteria_met"] = True
    elif mode == "TASK_REVIEW":
        while not pathlib.Path(script.get("until_review", "/")).exists():
            time.sleep(0.02)
        bad = once(f"reject-{id}")
        put("review.md", "### Review Summary\nSeen.\n")
        answer |= {"verdict": "Failed" if bad else "Qualified", "feedback": "It does not read well." if bad else ""}
        if once(f"block-{id}"):
            answer = {"status": "blocked", "blockers": ["there is no database"]}
    elif mode == "SESSION_REVIEW":
        while not pathlib.Path(script.get("until_session_review", "/")).exists():
            time.sleep(0.02)
        if "- STEER, " in prompt and once("scope"):
            put("result.json", json.dumps({"status": "blocked", "blockers": ["STEER scope change: make d.txt too"]}))
            return
        gap = once("gap")
        put(
            "review.md",
            "# Session Review\n\n## Overall Assessment\n"
            + ("Gaps Identified\n\n## Gaps\n- **ISS-M-001**: nothing sums up the files\n" if gap else "Complete\n"),
        )
        answer |= {"assessment": "Gaps Identified" if gap else "Complete", "files": script.get("files", [])}
        if gap:
            put("tasks.md", task("task-3", "task-2"))
    put("result.json", json.dumps(answer))
    print(f"{role} {mode}")


if __name__ == "__main__":
    main()
