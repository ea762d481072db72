"""An agent that wears every hat of code-assist: it reads its page, calls the real tools, and builds a small program.

SCRIPT names a JSON file with what is out of the ordinary: `mute` (hats that publish nothing), `reject` (how often the critic
rejects), `rash` (the finalizer says done after the first task), `slow` (seconds before each turn's work), `silent` (no code).
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

CLI = """\
import sys


def main(words):
    loud = "--verbose" in words
    name = next((word for word in words if not word.startswith("-")), "world")
    print(f"hello {name}")
    if VERBOSE and loud:
        print(f"greeted {name}", file=sys.stderr)
    return 0


VERBOSE = False

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
TESTS = {
    "entry-point": "def test_greets(self):\n        self.assertEqual(cli.main([]), 0)\n",
    "name": 'def test_name(self):\n        self.assertEqual(cli.main(["ada"]), 0)\n',
    "verbose": "def test_verbose(self):\n        self.assertTrue(cli.VERBOSE)\n",
}
STEPS = {"01": ["entry-point", "name"], "02": ["verbose"]}


def ralph(*words: str) -> str:
    done = subprocess.run([os.environ["RALPH_BIN"], *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"ralph {' '.join(words)} exited with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def emit(topic: str, payload: object) -> None:
    ralph("emit", topic, "--json", json.dumps(payload))


def section(page: str, name: str) -> str:
    found = re.search(rf"^<{name}(?: [^>]*)?>\n(.*?)^</{name}>$", page, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def planner(page: str, topic: str) -> None:
    [place] = re.findall(r"documents in `([^`]+)`", section(page, "documents"))
    home = Path(place)
    name = home.name
    if topic == "build.start":
        (home / "logs").mkdir(parents=True, exist_ok=True)
        (home / "context.md").write_text("# Context\n\nA rough description.\n")
        (home / "plan.md").write_text("# Plan\n1. Step 1 - A command that greets\n2. Step 2 - --verbose\n")
        wave(home, name, "01")
    ready = json.loads(ralph("tools", "task", "ready", "--format", "json"))
    if not ready and "## Current Step\n01" in (home / "progress.md").read_text():
        wave(home, name, "02")
        ready = json.loads(ralph("tools", "task", "ready", "--format", "json"))
    emit("tasks.ready", {"task_id": ready[0]["id"], "task_key": ready[0]["key"]})


def wave(home: Path, name: str, step: str) -> None:
    keys = [f"code-assist:{name}:step-{step}:{slug}" for slug in STEPS[step]]
    for key in keys:
        ralph(
            "tools", "task", "ensure", f"Build {key.rpartition(':')[2]}", "--key", key, "--description", "with a test"
        )
    done = "- 01\n" if step == "02" else ""
    (home / "progress.md").write_text(
        f"# Progress\n\n## Current Step\n{step}\n\n## Active Wave\n{chr(10).join(keys)}\n\n"
        f"## Verification Notes\n\n## Completed Steps\n{done}"
    )


def builder(script: dict, given: dict) -> None:
    task = json.loads(ralph("tools", "task", "show", given["task_id"], "--format", "json"))
    assert task["key"] == given["task_key"], task
    ralph("tools", "task", "start", task["id"])
    slug = task["key"].rpartition(":")[2]
    program, tests = Path("cli.py"), Path("test_cli.py")
    if not script.get("silent"):
        text = program.read_text() if program.exists() else CLI
        program.write_text(text.replace("VERBOSE = False", "VERBOSE = True") if slug == "verbose" else text)
        before = (
            tests.read_text()
            if tests.exists()
            else "import unittest\n\nimport cli\n\n\nclass Tests(unittest.TestCase):"
        )
        if TESTS[slug] not in before:
            tests.write_text(f"{before}\n    {TESTS[slug]}")
        subprocess.run([sys.executable, "-m", "unittest", "-q"], check=True, capture_output=True)
    ralph("tools", "memory", "add", f"{slug} is in cli.py", "-t", "pattern", "--tags", "cli")
    ralph("tools", "interact", "progress", f"{slug} is built")
    emit("review.ready", given)


def critic(script: dict, given: dict) -> None:
    rejected = Path(os.environ["SCRIPT"]).with_name("rejected")
    times = int(rejected.read_text()) if rejected.exists() else 0
    if times < script.get("reject", 0):
        rejected.write_text(str(times + 1))
        emit("review.rejected", {**given, "why": "look again"})
        return
    ralph("tools", "decision", "add", "The output stays as it is", "--confidence", "70", "--alternatives", "JSON",
          "--reasoning", "nobody asked", "--reversibility", "easy")  # fmt: skip
    subprocess.run([sys.executable, "cli.py", "ada", "--verbose"], check=not script.get("silent"), capture_output=True)
    emit("review.passed", given)


def finalizer(script: dict, page: str, given: dict) -> None:
    if script.get("rash") and "was refused" not in section(page, "notes"):
        emit("LOOP_COMPLETE", "all done")
        return
    ralph("tools", "task", "close", given["task_id"])
    left = json.loads(ralph("tools", "task", "ready", "--format", "json"))
    [place] = re.findall(r"documents in `([^`]+)`", section(page, "documents"))
    if left or "## Current Step\n02" not in (Path(place) / "progress.md").read_text():
        emit("queue.advance", {"closed": given["task_id"]})
    else:
        print("Everything is there.")
        emit("LOOP_COMPLETE", "all steps are done")


def judge() -> None:
    """Accepts the tests that the builder wrote."""
    answer = {"files": [{"path": "test_cli.py", "accept": True, "why": "It tests what the objective asks for."}]}
    (Path(os.environ["RALPH_OUTBOX"]) / "result.json").write_text(json.dumps(answer))


def main() -> None:
    page = sys.stdin.read()
    script = json.loads(Path(os.environ["SCRIPT"]).read_text())
    hat = os.environ["RALPH_HAT"]
    with (Path(os.environ["SCRIPT"]).parent / "turns").open("a") as log:
        log.write(f"{hat} {os.environ['RALPH_TURN']}\n")
    time.sleep(script.get("slow", 0))
    if os.environ["RALPH_ROLE"] == "judge":
        judge()
        return
    event = section(page, "event-for-you")
    [topic] = re.findall(r"^`([^`]+)` from", event, re.MULTILINE)
    given = next((json.loads(line) for line in event.splitlines() if line.startswith("{")), {})
    print(f"I am {hat}, about {topic}.")
    if hat in script.get("mute", ()):
        return
    match hat:
        case "planner":
            planner(page, topic)
        case "builder":
            builder(script, given)
        case "critic":
            critic(script, given)
        case "finalizer":
            finalizer(script, page, given)


if __name__ == "__main__":
    main()
