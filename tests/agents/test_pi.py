"""The adapter of pi: how it is started, and what its real streams come to."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from playing import billed, lines_of, played, refuse_success, texts

from ralph.agents import live_messages, stream_lines
from ralph.agents.adapter import Call
from ralph.agents.pi import Pi
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure

NOW = 1794811860.0
EXIT = {"type": "exit", "code": 0}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded."""
    monkeypatch.setattr(stream_lines, "time", lambda: NOW)


def answer(reason: str, error: str = "", **usage: Any) -> dict[str, Any]:
    """What a model answered, and why it stopped."""
    expected = {"stopReason": reason, "model": "gpt-5", "usage": usage, **({"errorMessage": error} if error else {})}
    return {"type": "message_end", "message": {"role": "assistant", "content": [], **expected}}


def test_the_command() -> None:
    call = Call(Path("/repo"), "openai/gpt-5", ("--thinking", "high"), 1.5, 30, "abc")
    words = Pi("/opt/pi").command(call)
    assert words[:5] == (sys.executable, "-P", "-m", "ralph.agents.wrap_program", "filter-output")
    assert words[words.index("--") + 1 :] == (
        *("/opt/pi", "-p", "--mode", "json", "--model", "openai/gpt-5", "--session", "abc"),
        *("-e", str(Path(live_messages.__file__).with_name("plugins") / "pi.ts"), "--thinking", "high"),
    )


@pytest.mark.parametrize(
    ("stream", "cost"), [("pi", 0.0026), ("pi-resumed", 0.0026), ("pi-failing-tool", 0.0035), ("pi-retried", 0.0035)]
)
def test_a_turn_that_went_well(stream: str, cost: float) -> None:
    events, account = played(Pi(), stream)
    assert account.finished and account.failure is None and not account.error
    assert (account.session, account.usage.input_tokens, account.usage.output_tokens) == ("id-1", 2000, 100)
    assert account.usage.cost == pytest.approx(cost)
    assert len(texts(events, EventKind.RESULT)) == 1 and events[-1].kind is EventKind.RESULT


def test_texts_and_tools_are_read() -> None:
    events, account = played(Pi(), "pi")
    assert texts(events, EventKind.TEXT) == ["Go.", "Done."] and account.text == "Done."
    assert (texts(events, EventKind.TOOL), texts(events, EventKind.TOOL_RESULT)) == (["bash: echo a"], ["a"])
    [failed] = [event for event in played(Pi(), "pi-failing-tool")[0] if event.kind is EventKind.TOOL_RESULT]
    assert failed.is_error and "exited with code 3" in failed.text


def test_retry_is_not_an_error() -> None:
    events, _ = played(Pi(), "pi-retried")
    assert texts(events, EventKind.RETRY) == ["try 1 of 3: terminated"] and not texts(events, EventKind.ERROR)


@pytest.mark.parametrize(
    ("stream", "failure", "said"),
    [
        ("pi-limited", Failure.LIMIT, "Please try again in 60s"),
        ("pi-signed-out", Failure.ACCESS, "401"),
        ("pi-overloaded", Failure.OVERLOAD, "500"),
    ],
)
def test_a_turn_that_failed_and_why(stream: str, failure: Failure, said: str) -> None:
    refuse_success(Pi(), stream, failure, said)


def test_when_a_limit_is_over() -> None:
    assert played(Pi(), "pi-limited")[1].resets_at == pytest.approx(1794811918.673)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        ("401 Incorrect API key provided: sk-x", Failure.ACCESS),
        ('529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', Failure.OVERLOAD),
        ("429 slow down", Failure.LIMIT),
        ("Connection error.", Failure.OVERLOAD),
        ("5000 words are too many", Failure.AGENT),
        ("", Failure.AGENT),
    ],
)
def test_errors_begin_with_the_status(error: str, failure: Failure) -> None:
    account = played(Pi(), [answer("error", error), EXIT])[1]
    assert account.failure is failure and account.error and not account.finished


@pytest.mark.parametrize("reason", ["aborted", "length"])
def test_incomplete_answer_is_not_a_success(reason: str) -> None:
    account = played(Pi(), [answer(reason), EXIT])[1]
    assert account.failure is Failure.AGENT and account.error and not account.finished


@pytest.mark.parametrize(
    ("last", "code"), [("stop", 1), ("stop", 143), ("stop", None), ("stop", False), ("toolUse", 0), ("", 0)]
)
def test_the_last_answer_and_the_exit_make_a_success_together(last: str, code: object) -> None:
    assert not played(Pi(), [answer("stop"), answer(last), {"type": "exit", "code": code}])[1].finished
    assert played(Pi(), [answer("stop"), EXIT])[1].finished


def test_missing_cost_is_not_a_price() -> None:
    usage = {"input": 600, "cacheRead": 400, "output": 50, "cost": {"total": 0}}
    assert billed(played(Pi(), [answer("stop", **usage)])[1].usage) == Usage(1000, 50, 0.0013)
    assert played(Pi(prices={"gpt-5": (0.0, 0.0, 20_000.0)}), [answer("stop", **usage)])[1].usage.cost == 1.0
    nobodys = {"type": "message_end", "message": {"role": "assistant", "model": "mock-model", "usage": usage}}
    assert billed(played(Pi(), [nobodys])[1].usage) == Usage(1000, 50, unpriced="mock-model")


def test_no_success_without_the_last_line() -> None:
    account = played(Pi(), lines_of("pi")[:-1])[1]
    assert not account.finished and account.usage.tokens == 2100, "what was used counts all the same"


OWN = {"providers": {"mine": {"apiKey": "MY_KEY"}, "local": {"baseUrl": "http://x"}}}


@pytest.mark.parametrize(
    ("environment", "files", "expected"),
    [
        ({}, {}, False),
        ({"OPENROUTER_API_KEY": "sk"}, {}, True),
        ({}, {"auth.json": {}}, False),
        ({}, {"auth.json": {"anthropic": {"type": "oauth", "refresh": "r"}}}, True),
        ({}, {"auth.json": {"anthropic": {"type": "api_key", "key": ""}}}, False),
        (
            {},
            {"settings.json": {"defaultProvider": "mine"}, "models.json": OWN, "auth.json": {"mine": {"key": "k"}}},
            True,
        ),
        ({"OPENAI_API_KEY": "sk"}, {"settings.json": {"defaultProvider": "anthropic"}}, True),
        ({}, {"settings.json": {"defaultProvider": "anthropic"}}, False),
        ({}, {"models.json": OWN}, None),
        ({}, {"settings.json": {"defaultProvider": "mine"}, "models.json": OWN}, False),
        ({"MY_KEY": "sk"}, {"settings.json": {"defaultProvider": "mine"}, "models.json": OWN}, True),
        ({}, {"settings.json": {"defaultProvider": "local"}, "models.json": OWN}, None),
    ],
)
def test_sign_in(environment: dict[str, str], files: dict[str, object], expected: bool | None, tmp_path: Path) -> None:
    directory = tmp_path / ".pi" / "agent"
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    known, how = Pi().sign_in(environment, tmp_path)
    assert known is expected and how and "sk" not in how.split()
