"""An agent that hands over what its prompt shows as examples, and nothing else. The script says where it goes wrong."""

import json
import os
import pathlib
import re
import sys


def main() -> None:
    prompt = sys.stdin.read()
    keys = dict(re.findall(r"^([A-Z_]+): (.*)$", prompt.partition("# This turn\n")[2].split("\n\n")[0], re.MULTILINE))
    asked = re.split("# What to hand over|# The format", prompt)[1]
    documents = dict(re.findall(r"^`([^`\n]+)`[^\n]*:\n````\n(.*?\n)````$", asked, re.DOTALL | re.MULTILINE))
    mode = keys.get("MODE", "")
    if mode == "brainstorm":
        documents = {"result.json": json.dumps({"status": "completed", "no_questions": True})}
    elif mode == "TASK_BREAKDOWN" and is_wrong():
        text = documents["tasks/task-1.md"].replace("- src/cli.py\n- tests/test_cli.py\n", "")
        documents["tasks/task-1.md"] = text.replace("depends_on: []", "depends_on: [task-2, task-9]")
    elif mode == "TASK_REVIEW":
        documents["result.json"] = json.dumps({"status": "completed", "verdict": "Qualified"})
    elif mode == "SESSION_REVIEW":
        documents["result.json"] = json.dumps({"status": "completed", "assessment": "Complete"})
    for name, text in documents.items():
        place = pathlib.Path(os.environ["RALPH_OUTBOX"]) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        # No test of the example exists here.
        place.write_text(re.sub(r"`python -m pytest \S+ -q` passes", "It is there", text))


def is_wrong() -> bool:
    """Whether this breakdown is one of the first that go wrong."""
    place = pathlib.Path(os.environ["SCRIPT"])
    left = int(place.read_text())
    place.write_text(str(max(0, left - 1)))
    return left > 0


if __name__ == "__main__":
    main()
