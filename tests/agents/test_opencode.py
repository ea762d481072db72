"""The adapter of OpenCode: how it is started, and what its real streams come to."""

import json
from pathlib import Path
from typing import Any

import pytest
from playing import billed, lines_of, played, refuse_success, signed_in, texts

from ralph.agents import stream_lines
from ralph.agents.adapter import Call
from ralph.agents.opencode import OpenCode
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure

NOW = 1794812700.0
HERE = Call(Path("/repo"))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded, and no permissions of this machine's user."""
    monkeypatch.setattr(stream_lines, "time", lambda: NOW)
    monkeypatch.delenv("OPENCODE_PERMISSION", raising=False)


def step(reason: str = "stop", cost: float = 0.0, **tokens: Any) -> dict[str, Any]:
    """The end of a step."""
    return {"type": "step_finish", "sessionID": "s", "part": {"reason": reason, "cost": cost, "tokens": tokens}}


def test_the_command() -> None:
    call = Call(Path("/repo"), "openai/gpt-5", ("--variant", "high"), 1.5, 30, "ses_1")
    assert OpenCode("/opt/opencode").command(call) == (
        *("/opt/opencode", "run", "--format", "json", "--thinking", "--auto", "--dir", "/repo"),
        *("--model", "openai/gpt-5", "--session", "ses_1", "--variant", "high"),
    )
    assert OpenCode().command(HERE)[-1] == "--title=", "no model is asked for a title"


def test_permissions_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(Path("/repo"), without_tools=("sub-agents", "webfetch"))
    denied = {"task": "deny", "webfetch": "deny"}
    assert OpenCode().environment(HERE) == {}
    assert json.loads(OpenCode().environment(call)["OPENCODE_PERMISSION"]) == denied
    monkeypatch.setenv("OPENCODE_PERMISSION", '{"bash": {"rm *": "deny"}, "task": "allow"}')
    told = json.loads(OpenCode().environment(call)["OPENCODE_PERMISSION"])
    assert told == {"bash": {"rm *": "deny"}, **denied}
    assert OpenCode().environment(HERE) == {}


@pytest.mark.parametrize(
    ("stream", "used"),
    [
        ("opencode", Usage(3000, 150, 0.0039)),
        ("opencode-failing-tool", Usage(2000, 100, 0.0035)),
        ("opencode-denied", Usage(2000, 100, 0.0035)),
        ("opencode-resumed", Usage(2000, 100, 0.0035)),
        ("opencode-retried", Usage(1000, 50, 0.00175)),
    ],
)
def test_a_turn_that_went_well_and_what_it_used(stream: str, used: Usage) -> None:
    _, account = played(OpenCode(), stream)
    assert account.finished and account.failure is None and not account.error
    assert (account.usage.input_tokens, account.usage.output_tokens) == (used.input_tokens, used.output_tokens)
    assert account.usage.cost == pytest.approx(used.cost)
    assert (account.session, account.text) == ("id-1", "Done.")


def test_texts_and_tools_are_read() -> None:
    events, _ = played(OpenCode(), "opencode")
    assert texts(events, EventKind.TEXT) == ["I write hello.txt.", "I run a command.", "Done."]
    assert texts(events, EventKind.TOOL)[1] == "bash: echo a" and "/repo/hello.txt" in texts(events, EventKind.TOOL)[0]
    assert texts(events, EventKind.TOOL_RESULT) == ["Wrote file successfully.", "a"]
    [failed] = [
        event for event in played(OpenCode(), "opencode-failing-tool")[0] if event.kind is EventKind.TOOL_RESULT
    ]
    assert failed.is_error and "No such file" in failed.text
    assert played(OpenCode(), "opencode-denied")[1].denied == ["bash: cat nothing.txt"]


@pytest.mark.parametrize(
    ("stream", "failure", "said"),
    [
        ("opencode-limited", Failure.LIMIT, "The usage limit has been reached"),
        ("opencode-signed-out", Failure.ACCESS, "mock error 401"),
        ("opencode-keyless-signed-out", Failure.ACCESS, "OpenAI API key is missing"),
        ("opencode-overloaded", Failure.OVERLOAD, "mock error 500"),
        ("opencode-unreachable-overloaded", Failure.OVERLOAD, "Unable to connect"),
        ("opencode-unknown-failed", Failure.AGENT, "Unexpected server error"),
        ("opencode-failed", Failure.AGENT, "mock error 400"),
    ],
)
def test_a_turn_that_failed_and_why(stream: str, failure: Failure, said: str) -> None:
    refuse_success(OpenCode(), stream, failure, said)


def test_the_end_of_a_limit_is_in_the_answer_of_the_provider() -> None:
    assert played(OpenCode(), "opencode-limited")[1].resets_at == 1794813177
    body = {"statusCode": 429, "message": "Rate limit reached", "responseBody": '{"message": "try again in 20s"}'}
    told = [{"type": "error", "timestamp": (NOW - 5) * 1000, "error": {"name": "APIError", "data": body}}]
    assert played(OpenCode(), told)[1].resets_at == pytest.approx(NOW + 15)


@pytest.mark.parametrize("reason", ["tool-calls", "length", "content-filter", "unknown", "", None])
def test_only_a_step_that_stops_ends_a_turn(reason: Any) -> None:
    assert not played(OpenCode(), [step(reason, input=1)])[1].finished
    assert not played(OpenCode(), lines_of("opencode")[:-1])[1].finished


def test_an_error_without_words_has_a_name() -> None:
    account = played(OpenCode(), [{"type": "error", "error": {"name": "MessageAbortedError", "data": {}}}])[1]
    assert account.failure is Failure.AGENT and account.error == "MessageAbortedError"
    assert played(OpenCode(), [{"type": "error", "error": 7}])[1].error == "it failed"


def test_thoughts_and_what_was_cached_are_tokens() -> None:
    told = [step(cost=0.5, input=100, output=10, reasoning=5, cache={"read": 1000, "write": 200})]
    assert billed(played(OpenCode(), told)[1].usage) == Usage(1300, 15, 0.5)


def test_a_cost_of_nothing_is_one_that_is_not_known() -> None:
    told = [step(input=600, output=50, cache={"read": 400})]
    assert billed(played(OpenCode(), told)[1].usage) == Usage(1000, 50, None, unpriced="")
    assert billed(played(OpenCode(), told, "openai/gpt-5")[1].usage) == Usage(1000, 50, pytest.approx(0.0013))
    own = OpenCode(prices={"mock-model": (1000.0, 0.0, 0.0)})
    assert played(own, told, "mock/mock-model")[1].usage.cost == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("environment", "file", "told"),
    [
        ({}, "", None),
        ({"ANTHROPIC_API_KEY": "sk"}, "", True),
        ({"OPENCODE_CONFIG_CONTENT": "{}"}, "", None),
        ({}, ".local/share/opencode/auth.json", None),
        ({"OPENCODE_AUTH_CONTENT": '{"anthropic": {"key": "x"}}'}, "", True),
    ],
)
def test_sign_in(environment: dict[str, str], file: str, told: bool | None, tmp_path: Path) -> None:
    assert signed_in(OpenCode(), environment, file, tmp_path) is told


@pytest.mark.parametrize("name", ["config.json", "opencode.json", "opencode.jsonc"])
def test_a_provider_in_the_settings_may_need_no_sign_in(name: str, tmp_path: Path) -> None:
    settings = tmp_path / ".config" / "opencode" / name
    settings.parent.mkdir(parents=True)
    settings.write_text('{"$schema": "..."}')
    assert "free models" in OpenCode().sign_in({}, tmp_path)[1]
    settings.write_text('{"provider": {"ollama": {}}}')
    known, how = OpenCode().sign_in({}, tmp_path)
    assert (known, str(settings) in how) == (None, True)
    elsewhere = {"XDG_CONFIG_HOME": str(tmp_path / ".config")}
    known, how = OpenCode().sign_in(elsewhere, tmp_path / "missing")
    assert (known, str(settings) in how) == (None, True)
    assert OpenCode().sign_in({"OPENAI_API_KEY": "sk"}, tmp_path) == (True, "OPENAI_API_KEY")
    settings.write_text('{"model": "anthropic/claude-sonnet-4-5"}')
    known, how = OpenCode().sign_in({"OPENAI_API_KEY": "sk"}, tmp_path)
    assert (known, "set ANTHROPIC_API_KEY" in how) == (False, True), "the key of another provider does not help"
