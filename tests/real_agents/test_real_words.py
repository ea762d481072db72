"""Words of a person reach the real agents in the middle of a turn: the model's next request has them."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from place import RALPH, Place, eventually
from script import Fault, Step, put, run, say
from subject import SUBJECTS

pytestmark = pytest.mark.real_agents
TASK = "Create hello.txt, and say hello in it."
WORDS = "Say it in Esperanto instead: SALUTON."
MARK = "SALUTON"


def told(bench: Place, agent: str, steps: list[Step], ready: Any, after: Any = lambda: None) -> list[dict[str, Any]]:
    """Have an agent do a turn, tell it something when it is ready for that, and hear what came of it."""
    bench.model.play(*steps)
    driver = str(Path(__file__).with_name("one_turn.py"))
    words = (sys.executable, driver, *SUBJECTS[agent].options, "--task", TASK)
    with bench.start(*words, stdin=subprocess.PIPE) as turn:
        eventually(lambda: ready() or turn.poll() is not None)
        assert turn.stdin and turn.poll() is None, turn.communicate()
        turn.stdin.write(json.dumps({"name": "1.yaml", "text": WORDS}) + "\n")
        turn.stdin.flush()
        eventually(lambda: list(bench.root.glob(".ralph/runs/*/turns/*/words/1.yaml*")), 10)
        deadline = time.monotonic() + 1
        while not heard(bench) and time.monotonic() < deadline:
            time.sleep(0.05)  # who is not told by a hook after the tool hears at once
        after()
        out, err = turn.communicate(timeout=120)
    assert turn.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def heard(bench: Place) -> list[Path]:
    return list(bench.root.glob(".ralph/runs/*/turns/*/words/*.heard.*"))


def carrying(bench: Place) -> list[bool]:
    """Which of the model's requests had the words."""
    return [MARK in one.text for one in bench.model.requests]


def check(said: list[dict[str, Any]]) -> None:
    *others, result = said
    assert {"told": True} in others, said
    [event] = [one for one in others if "event" in one]
    assert (event["name"], result["heard"], result["end"]) == ("1.yaml", ["1.yaml"], "finished"), said


@pytest.mark.quick_agents
def test_words_reach_it_after_the_tool_that_it_uses(bench: Place, agent: str) -> None:
    bench.furnish(agent)
    check(mid_turn(bench, agent))


def mid_turn(bench: Place, agent: str) -> list[dict[str, Any]]:
    """Tell an agent something while it uses a tool; what came of it."""
    script = bench.home / "wait.sh"  # gemini runs no command with a $(...) in it
    script.write_text("touch here; for i in $(seq 600); do test -e go && break; sleep 0.1; done")
    steps = [run(f"sh {script}"), put("hello.txt", "saluton\n"), say("All done.")]
    said = told(bench, agent, steps, (bench.root / "here").exists, (bench.root / "go").touch)
    assert carrying(bench) == [False, True, True], said
    assert (bench.root / "hello.txt").read_text() == "saluton\n"
    left = bench.git("status", "--porcelain").splitlines()
    assert left == ["?? .ralph/", "?? go", "?? hello.txt", "?? here"], "nothing of ours is in the user's tree"
    return said


def test_words_reach_it_before_it_ends(bench: Place, agent: str) -> None:
    bench.furnish(agent)
    last = Step("All done.", fault=Fault.HANG, seconds=3)
    steps = [put("hello.txt", "hello\n"), last, put("hello.txt", "saluton\n"), say("All done.")]
    check(told(bench, agent, steps, lambda: len(bench.model.requests) == 2))
    assert carrying(bench) == [False, False, True, True]
    assert (bench.root / "hello.txt").read_text() == "saluton\n"


MINE = {
    "claude": (".claude/settings.json", "PostToolUse", "command"),
    "copilot": (".copilot/hooks/mine.json", "postToolUse", "bash"),
    "gemini": (".gemini/settings.json", "AfterTool", "command"),
    "qwen": (".qwen/settings.json", "PostToolUse", "command"),
}
"""Where the user's own hooks are, and how one is written."""


@pytest.mark.parametrize("mine", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in MINE])
def test_hooks_of_the_user_run_as_ever(bench: Place, mine: str) -> None:
    bench.furnish(mine)
    file, event, key = MINE[mine]
    settings, ran = bench.home / file, bench.home / "ran"
    hook = {"type": "command", key: f"touch {ran}"}
    entry = hook if mine == "copilot" else {"matcher": "*", "hooks": [hook]}
    before = json.loads(settings.read_text()) if settings.exists() else {"version": 1} if mine == "copilot" else {}
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({**before, "hooks": {event: [entry]}}))
    check(mid_turn(bench, mine))
    assert ran.exists()
    assert json.loads(settings.read_text())["hooks"] == {event: [entry]}


@pytest.mark.parametrize("who", ["claude", "codex", "gemini"])
def test_a_steer_from_the_command_line_reaches_a_loop_in_the_middle_of_a_turn(bench: Place, who: str) -> None:
    bench.furnish(who)
    script = bench.home / "wait.sh"
    script.write_text("touch here; for i in $(seq 600); do test -e go && break; sleep 0.1; done")
    bench.model.play(run(f"sh {script}"), put("hello.txt", "saluton\n"), say("All done."))
    until = "`grep -q saluton hello.txt` passes"
    with bench.start(str(RALPH), *("loop", TASK, "--until", until, *SUBJECTS[who].options, "--yes")) as loop:
        eventually(lambda: (bench.root / "here").exists() or loop.poll() is not None)
        steered = bench.ralph("steer", WORDS)
        assert steered.code == 0, steered.said
        eventually(lambda: list(bench.root.glob(".ralph/runs/*/turns/*/words/*")), 20)
        (bench.root / "go").touch()
        out, err = loop.communicate(timeout=120)
    assert loop.returncode == 0, (out, err)
    assert carrying(bench)[:2] == [False, True]
    [told_of] = bench.ralph("signals", "--json").json["signals"]
    [taken] = told_of["taken_in"]
    assert (told_of["type"], taken["means"], taken["turn"]) == ("STEER", "hook", 1), told_of
