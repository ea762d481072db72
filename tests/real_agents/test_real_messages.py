"""Messages of the user reach the real agents in the middle of a turn: the model's next request contains them."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from agent_project import RALPH, AgentProject, patience, wait_until
from script import Fault, Step, put, run, say
from subject import SUBJECTS

pytestmark = pytest.mark.real_agents
TASK = "Create hello.txt, and say hello in it."
MESSAGE = "Say it in Esperanto instead: SALUTON."
MARK = "SALUTON"


def run_turn(
    project: AgentProject, agent: str, steps: list[Step], is_ready: Any, after: Any = lambda: None
) -> list[dict[str, Any]]:
    """Run a turn, send a message when the agent is ready for it, and return what the driver printed."""
    project.model.play(*steps)
    driver = str(Path(__file__).with_name("one_turn.py"))
    command = (sys.executable, driver, *SUBJECTS[agent].options, "--task", TASK)
    with project.start(*command, stdin=subprocess.PIPE) as turn:
        wait_until(lambda: is_ready() or turn.poll() is not None)
        assert turn.stdin and turn.poll() is None, turn.communicate()
        turn.stdin.write(json.dumps({"name": "1.yaml", "text": MESSAGE}) + "\n")
        turn.stdin.flush()
        wait_until(lambda: list(project.root.glob(".ralph/runs/*/turns/*/messages/1.yaml*")), 10)
        deadline = time.monotonic() + 1
        while not received_files(project) and time.monotonic() < deadline:
            time.sleep(0.05)  # an agent without a hook after the tool receives it at once
        after()
        out, err = turn.communicate(timeout=patience(120))
    assert turn.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def received_files(project: AgentProject) -> list[Path]:
    return list(project.root.glob(".ralph/runs/*/turns/*/messages/*.received.*"))


def requests_with_message(project: AgentProject) -> list[bool]:
    """For each request to the model, whether it contains the message."""
    return [MARK in one.text for one in project.model.requests]


def assert_received(lines: list[dict[str, Any]]) -> None:
    *others, result = lines
    assert {"sent": True} in others, lines
    [event] = [line for line in others if "event" in line]
    assert (event["name"], result["received"], result["end"]) == ("1.yaml", ["1.yaml"], "finished"), lines


@pytest.mark.slow
@pytest.mark.quick_agents
def test_a_message_reaches_it_after_the_tool_that_it_uses(project: AgentProject, agent: str) -> None:
    project.set_up(agent)
    assert_received(send_during_tool(project, agent))


def send_during_tool(project: AgentProject, agent: str) -> list[dict[str, Any]]:
    """Send a message while the agent uses a tool, and return what the driver printed."""
    script = project.home / "wait.sh"  # gemini runs no command with a $(...) in it
    script.write_text("touch here; for i in $(seq 600); do test -e go && break; sleep 0.1; done")
    steps = [run(f"sh {script}"), put("hello.txt", "saluton\n"), say("All done.")]
    lines = run_turn(project, agent, steps, (project.root / "here").exists, (project.root / "go").touch)
    assert requests_with_message(project) == [False, True, True], lines
    assert (project.root / "hello.txt").read_text() == "saluton\n"
    left = project.git("status", "--porcelain").splitlines()
    assert left == ["?? .ralph/", "?? go", "?? hello.txt", "?? here"], "Ralph leaves nothing in the user's tree"
    return lines


def test_a_message_reaches_it_before_it_ends(project: AgentProject, agent: str) -> None:
    project.set_up(agent)
    sent = threading.Event()
    last = Step("All done.", fault=Fault.HANG, seconds=120, until=sent)
    steps = [put("hello.txt", "hello\n"), last, put("hello.txt", "saluton\n"), say("All done.")]
    assert_received(run_turn(project, agent, steps, lambda: len(project.model.requests) == 2, sent.set))
    assert requests_with_message(project) == [False, False, True, True]
    assert (project.root / "hello.txt").read_text() == "saluton\n"


USER_HOOKS = {
    "claude": (".claude/settings.json", "PostToolUse", "command"),
    "copilot": (".copilot/hooks/mine.json", "postToolUse", "bash"),
    "gemini": (".gemini/settings.json", "AfterTool", "command"),
    "qwen": (".qwen/settings.json", "PostToolUse", "command"),
}
"""Where the user's own hooks are, and how one is written."""


@pytest.mark.parametrize("hooked", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in USER_HOOKS])
def test_hooks_of_the_user_still_run(project: AgentProject, hooked: str) -> None:
    project.set_up(hooked)
    file, event, key = USER_HOOKS[hooked]
    settings, ran = project.home / file, project.home / "ran"
    hook = {"type": "command", key: f"touch {ran}"}
    entry = hook if hooked == "copilot" else {"matcher": "*", "hooks": [hook]}
    before = json.loads(settings.read_text()) if settings.exists() else {"version": 1} if hooked == "copilot" else {}
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({**before, "hooks": {event: [entry]}}))
    assert_received(send_during_tool(project, hooked))
    assert ran.exists()
    assert json.loads(settings.read_text())["hooks"] == {event: [entry]}


@pytest.mark.parametrize("steered_agent", ["claude", "codex", "gemini"])
def test_a_steer_from_the_command_line_reaches_a_loop_in_the_middle_of_a_turn(
    project: AgentProject, steered_agent: str
) -> None:
    project.set_up(steered_agent)
    script = project.home / "wait.sh"
    script.write_text("touch here; for i in $(seq 600); do test -e go && break; sleep 0.1; done")
    project.model.play(run(f"sh {script}"), put("hello.txt", "saluton\n"), say("All done."))
    until = "`grep -q saluton hello.txt` passes"
    with project.start(
        str(RALPH), *("loop", TASK, "--until", until, *SUBJECTS[steered_agent].options, "--yes")
    ) as loop:
        wait_until(lambda: (project.root / "here").exists() or loop.poll() is not None)
        steered = project.ralph("steer", MESSAGE)
        assert steered.code == 0, steered.output
        wait_until(lambda: list(project.root.glob(".ralph/runs/*/turns/*/messages/*")), 20)
        (project.root / "go").touch()
        out, err = loop.communicate(timeout=patience(120))
    assert loop.returncode == 0, (out, err)
    assert requests_with_message(project)[:2] == [False, True]
    [signal] = project.ralph("signals", "--json").json["signals"]
    [receipt] = signal["receipts"]
    assert (signal["type"], receipt["means"], receipt["turn"]) == ("STEER", "hook", 1), signal
