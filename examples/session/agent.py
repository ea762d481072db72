"""An agent without a model that plays every role of the session: what it hands over and writes is in `play/`, by role.

It knows what is asked of it as any agent does, by the `KEY: value` lines of its prompt. What a document claims to
have run, it really runs: `{{run COMMAND}}` becomes the command with what it printed, `{{output COMMAND}}` that alone.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

PLAY = Path(__file__).resolve().with_name("play")
FIRST_WAVE = {("task-1", "1"), ("task-2", "1")}
"""Attempts that start together. Each waits for the other, so that the walkthrough can quote both as in progress."""
TOO_LARGE = {"task-4"}
"""Tasks that this agent never finishes: it is still thinking when its minutes are over."""


def main() -> None:
    """Do one turn."""
    block = sys.stdin.read().partition("# This turn\n")[2].partition("\n\n")[0]
    keys = dict(re.findall(r"^([A-Z_]+): (.*)$", block, re.MULTILINE))
    role, inbox, outbox = os.environ["RALPH_ROLE"], Path(os.environ["RALPH_INBOX"]), Path(os.environ["RALPH_OUTBOX"])
    place = script(PLAY / role / Path(*turn_of(role, keys, inbox)))
    if role == "executor" and keys["TASK_ID"] in TOO_LARGE:
        print("Where do I begin?", flush=True)
        time.sleep(3600)
    if role == "executor" and (keys["TASK_ID"], keys["ATTEMPT_NUMBER"]) in FIRST_WAVE:
        wait_for(os.environ.get("EXAMPLE_BEGUN", ""))
    papers = {}
    if place.is_dir():
        if (place / "tree").is_dir():
            shutil.copytree(place / "tree", ".", dirs_exist_ok=True)
        papers = {path: with_outputs(path.read_text(), keys) for path in sorted(place.rglob("*.md"))}
    for path, text in papers.items():
        target = outbox / path.relative_to(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    answer = answer_of("\n".join(reversed(papers.values())))
    (outbox / "result.json").write_text(json.dumps(answer))
    print(answer["summary"])


def wait_for(path: str) -> None:
    """Wait until a file exists. Without a path, there is nothing to wait for."""
    while path and not Path(path).exists():
        time.sleep(0.02)


def turn_of(role: str, keys: dict[str, str], inbox: Path) -> tuple[str, ...]:
    """Where the script of a turn is: by task and attempt, by mode and category, or by mode and iteration."""
    if role == "executor":
        return keys["TASK_ID"], keys["ATTEMPT_NUMBER"]
    if keys["MODE"] == "TASK_REVIEW":
        attempt = re.search(r"^attempt: (\d+)$", (inbox / "report.md").read_text(), re.MULTILINE)
        return keys["TASK_ID"], attempt[1] if attempt else "1"
    if keys["MODE"] in ("SESSION_REVIEW", "EXTRACT"):
        return keys["MODE"], keys["ITERATION"]
    return keys["MODE"], keys.get("CATEGORY", "")


def script(place: Path) -> Path:
    """The script itself, or that of an earlier attempt where there is none of this one."""
    earlier = [
        path for path in place.parent.glob("[0-9]*") if place.name.isdigit() and int(path.name) < int(place.name)
    ]
    return place if place.is_dir() or not earlier else max(earlier, key=lambda path: int(path.name))


def with_outputs(text: str, keys: dict[str, str]) -> str:
    """A document with what the commands in it print, here and now; they know the keys of the prompt as variables."""

    def output(match: re.Match[str]) -> str:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        said = subprocess.run(["sh", "-c", match[2]], text=True, env={**os.environ, **keys}, **pipes).stdout
        return f"$ {match[2]}\n{said.rstrip()}" if match[1] == "run" else said.strip()

    return re.sub(r"\{\{(run|output) (.+?)\}\}", output, text)


def answer_of(text: str) -> dict[str, object]:
    """The answer that goes with the documents: their first sentence, and the verdict where they have one."""
    said = re.search(r"\*\*(?:Answer|Question)\*\*: (.+)", text) or re.search(
        r"^#.*\n(?:\n|#.*\n)*([^\n-].*)", text, re.M
    )
    summary = said[1] if said else "Nothing to hand over."
    answer: dict[str, object] = {"status": "completed", "success_criteria_met": True, "summary": summary}
    if verdict := re.search(r"^\*\*Status\*\*: (\w+)$", text, re.MULTILINE):
        answer["verdict"] = verdict[1]
    if assessment := re.search(r"^## Overall Assessment\n(.+)$", text, re.MULTILINE):
        answer["assessment"] = assessment[1]
    if feedback := re.search(r"^### Feedback for Next Attempt\n(.+?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL):
        answer["feedback"] = feedback[1].strip()
    return answer


if __name__ == "__main__":
    main()
