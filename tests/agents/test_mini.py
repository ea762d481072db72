"""The adapter of mini-swe-agent: how it is started, and what its real streams come to."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playing import billed, played, refuse_success, signed_in, texts

from ralph.agents import stream_lines
from ralph.agents.adapter import Call
from ralph.agents.mini import Mini
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure

NOW = 1794812700.0
INSIDE = Path(Mini().environment(Call(Path()))["PYTHONPATH"].split(os.pathsep)[0])
STAND_IN = """
class Settings:
    step_limit = 0
class DefaultAgent:
    n_calls = 1
    def __init__(self, *args, **settings):
        self.config = Settings()
    def run(self, task="", **more):
        return task
    def add_messages(self, *messages):
        return list(messages)
"""
PROGRAM = """
import json, os
from ralph_mini import JsonAgent
agent = JsonAgent()
agent.add_messages(*json.loads(os.environ["MESSAGES"]))
print(json.dumps([agent.run("see standard input"), agent.config.step_limit, os.environ.get("PYTHONPATH")]))
"""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded."""
    monkeypatch.setattr(stream_lines, "time", lambda: NOW)


def told(role: str, content: str = "", **more: Any) -> dict[str, Any]:
    """A message of the conversation."""
    return {"mini": {"role": role, "content": content, **more}}


def test_the_command() -> None:
    call = Call(Path("/repo"), "openai/gpt-5", ("-c", "x.yaml"), 1.5, 30, prompt=Path("/runs/1/prompt.md"))
    assert Mini("/opt/mini").command(call) == (
        *("/opt/mini", "--agent-class", "ralph_mini.JsonAgent", "-t", "see standard input"),
        *("-o", "/runs/1/agent/mini.traj.json", "-m", "openai/gpt-5", "-l", "1.500000", "-c", "x.yaml"),
    )
    assert Mini().environment(call)["RALPH_MINI_STEPS"] == "30"


def test_budget_of_zero_is_still_a_limit() -> None:
    """It takes 0 for no limit."""
    words = Mini().command(Call(Path(), budget=0.0))
    assert float(words[words.index("-l") + 1]) > 0


def inside(tmp_path: Path, *messages: dict[str, Any], **variables: str) -> tuple[list[dict[str, Any]], list[Any]]:
    """What the class prints that runs inside of mini, and what becomes of it, with a stand-in for mini."""
    place = tmp_path / "minisweagent" / "agents"
    place.mkdir(parents=True)
    (place / "default.py").write_text(STAND_IN)
    (place.parent / "exceptions.py").write_text("class Submitted(Exception): ...\n")
    path = os.pathsep.join((str(INSIDE), str(tmp_path)))
    environment = {**os.environ, "PYTHONPATH": path, "MESSAGES": json.dumps(messages), **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input="the task", env=environment, capture_output=True, text=True, check=True
    )
    *printed, last = map(json.loads, done.stdout.splitlines())
    return printed, last


def test_inside_of_mini(tmp_path: Path) -> None:
    answer = {"usage": {"prompt_tokens": 7}, "model": "gpt-5", "choices": ["a secret"]}
    printed, (task, steps, path) = inside(
        tmp_path,
        {"role": "system", "content": "You are an agent."},
        {"role": "assistant", "content": "Go.", "extra": {"actions": [{"command": "ls"}], "response": answer}},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": ""}},
        RALPH_MINI_STEPS="7",
    )
    assert [one["mini"]["role"] for one in printed] == ["assistant", "exit"]
    assert printed[0]["mini"]["usage"] == {"prompt_tokens": 7} and "choices" not in printed[0]["mini"]
    assert (task, steps) == ("the task", 7), "the task is from standard input"
    assert path == str(tmp_path), "the commands of the agent have the path that the user has"


def test_a_turn_that_went_well() -> None:
    events, account = played(Mini(), "mini")
    assert account.finished and account.failure is None and not account.error
    assert (account.usage.input_tokens, account.usage.output_tokens) == (2000, 80)
    assert account.usage.cost == pytest.approx(0.00285)
    assert texts(events, EventKind.TEXT) == ["Go.", "Done."] and account.text == "Done."
    assert texts(events, EventKind.TOOL)[0] == "bash: echo a" and texts(events, EventKind.TOOL_RESULT) == ["a"]


@pytest.mark.parametrize(
    ("stream", "failure", "said"),
    [
        ("mini-signed-out", Failure.ACCESS, "mock error 401"),
        ("mini-limited", Failure.LIMIT, "Rate limit reached"),
        ("mini-overloaded", Failure.OVERLOAD, "mock error 500"),
        ("mini-turns", Failure.AGENT, "its own cost or step limit"),
    ],
)
def test_a_turn_that_failed(stream: str, failure: Failure, said: str) -> None:
    refuse_success(Mini(), stream, failure, said)


def test_when_a_limit_is_over() -> None:
    assert played(Mini(), "mini-limited")[1].resets_at == pytest.approx(NOW + 3600)


@pytest.mark.parametrize(
    ("status", "text", "failure"),
    [
        ("AuthenticationError", "litellm.AuthenticationError: Incorrect API key", Failure.ACCESS),
        ("RateLimitError", "no words", Failure.LIMIT),
        ("Timeout", "late", Failure.OVERLOAD),
        ("TimeExceeded", "TimeExceeded", Failure.AGENT),
        ("RepeatedFormatError", "RepeatedFormatError", Failure.AGENT),
        ("RuntimeError", "Global cost/call limit exceeded: $1.0000 / 7", Failure.AGENT),
        ("", "", Failure.AGENT),
    ],
)
def test_only_what_is_submitted_is_a_success(status: str, text: str, failure: Failure) -> None:
    account = played(Mini(), [told("exit", text, exit_status=status)])[1]
    assert not account.finished and account.failure is failure and account.error


def test_an_answer_in_a_wrong_form_is_paid_for_too() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    wrong = told("user", "No tool calls found.", interrupt_type="FormatError", usage=usage, model="gpt-5", cost=0.0)
    events, account = played(Mini(), [wrong, told("exit", "All is well.", exit_status="Submitted")])
    assert billed(account.usage) == Usage(10, 5, 0.0000625), "by the table, as a cost of nothing is none"
    assert texts(events, EventKind.RETRY) == ["No tool calls found."] and account.text == "All is well."


def test_a_command_that_fails() -> None:
    [event] = played(Mini(), [told("tool", "{}", raw_output="no such file\n", returncode=2)])[0]
    assert event.is_error and event.text == "no such file"


def test_without_a_model_it_ends_before_it_begins() -> None:
    error = "ValueError: No default model set. Please run `mini-extra config setup` to set one."
    failure = Mini().failure(1, f"Traceback (most recent call last):\n{error}\n")
    assert failure is not None and failure[0] is Failure.ACCESS


def test_sign_in(tmp_path: Path) -> None:
    assert signed_in(Mini(), {}, "", tmp_path) is False
    assert signed_in(Mini(), {"OPENAI_API_KEY": "sk"}, "", tmp_path) is True
    assert signed_in(Mini(), {}, ".config/mini-swe-agent/.env", tmp_path) is True
