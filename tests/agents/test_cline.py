"""The adapter of Cline: how it is started, and what its real streams come to."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from playing import billed, played, refuse_success, signed_in, texts

from ralph.agents import stream_lines
from ralph.agents.adapter import Call
from ralph.agents.cline import Cline
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure

NOW = 1794812700.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded."""
    monkeypatch.setattr(stream_lines, "time", lambda: NOW)


def told(**event: Any) -> dict[str, Any]:
    """A line with an event of the agent."""
    return {"ts": "2026-11-16T07:00:00.000Z", "type": "agent_event", "event": event}


def ended(reason: str, text: str = "", **usage: Any) -> dict[str, Any]:
    """The last line."""
    return {"type": "run_result", "finishReason": reason, "text": text, "usage": usage, "model": {"id": "gpt-5"}}


def test_the_command() -> None:
    call = Call(Path("/repo"), "gpt-5", ("--thinking", "high"), 1.5, 30, "abc")
    words = Cline("/opt/cline").command(call)
    assert words[:6] == (sys.executable, "-P", "-m", "ralph.agents.wrap_program", "pipe-prompt", "/opt/cline")
    assert words[6:-1] == ("--json", "--act", "--auto-approve", "true", "-m", "gpt-5", "--thinking", "high")
    assert len(words[-1].split()) > 1, "a single word would be taken for a command"


def test_cline_works_without_its_daemon() -> None:
    assert Cline().environment(Call(Path()))["CLINE_SESSION_BACKEND_MODE"] == "local"


def test_a_turn_that_went_well() -> None:
    events, account = played(Cline(), "cline")
    assert account.finished and account.failure is None and not account.error
    assert (account.usage.input_tokens, account.usage.output_tokens) == (2000, 80)
    assert account.usage.cost == pytest.approx(0.00285), "by the table, as it tells none"
    assert texts(events, EventKind.TEXT) == ["Go.", "Done."] and account.text == "Done."
    assert (texts(events, EventKind.TOOL), texts(events, EventKind.TOOL_RESULT)) == (["run_commands: echo a"], ["a"])


def test_reported_cost_is_used() -> None:
    usage = played(Cline(), [ended("completed", "Done.", inputTokens=10, outputTokens=5, totalCost=0.25)])[1].usage
    assert billed(usage) == Usage(10, 5, 0.25)


@pytest.mark.parametrize(
    ("stream", "failure", "said"),
    [
        ("cline-signed-out", Failure.ACCESS, "mock error 401"),
        ("cline-limited", Failure.LIMIT, "Rate limit reached"),
        ("cline-overloaded", Failure.OVERLOAD, "mock error 500"),
    ],
)
def test_a_turn_that_failed(stream: str, failure: Failure, said: str) -> None:
    refuse_success(Cline(), stream, failure, said)


def test_a_limit_is_counted_from_the_first_try() -> None:
    """It tries for a minute, and then tells what it heard at first."""
    assert played(Cline(), "cline-limited")[1].resets_at == pytest.approx(1794812506 + 3600, abs=1)


def test_a_refused_key_is_known_whatever_the_provider_says() -> None:
    error = {"message": "Incorrect API key provided: x"}
    lines = [told(type="error", error=error, errorClass="auth", recoverable=False), ended("error", error["message"])]
    assert played(Cline(), lines)[1].failure is Failure.ACCESS


@pytest.mark.parametrize("reason", ["aborted", "max_iterations", "mistake_limit", "", "something new"])
def test_only_completed_is_a_success(reason: str) -> None:
    account = played(Cline(), [ended(reason, "too many requests to list")])[1]
    assert not account.finished and account.failure is not None
    assert reason not in ("aborted", "max_iterations", "mistake_limit") or account.failure is Failure.AGENT


def test_retried_request_is_not_an_error() -> None:
    lines = [
        told(type="error", error={"message": "overloaded"}, recoverable=True),
        told(type="notice", reason="provider_error_retry", message="retrying (attempt 1/3)"),
        told(type="notice", reason="auto_compaction", message="compacting"),
        ended("completed", "Done."),
    ]
    events, account = played(Cline(), lines)
    assert texts(events, EventKind.RETRY) == ["overloaded", "retrying (attempt 1/3)"]
    assert account.finished and account.failure is None


def test_tools_that_fail() -> None:
    output = [{"query": "false", "result": "", "error": "exit code 1", "success": False}]
    events, _ = played(Cline(), [told(type="content_end", contentType="tool", toolName="run_commands", output=output)])
    [result] = events
    assert result.is_error and result.text == "exit code 1"


@pytest.mark.parametrize(
    ("settings", "known"),
    [({"model": "x"}, False), ({"apiKey": "sk"}, True), ({"auth": {"accessToken": "sk"}}, True), (None, False)],
)
def test_sign_in(settings: dict[str, Any] | None, known: bool, tmp_path: Path) -> None:
    """The file of its providers is there after the first run, with a key or without."""
    place = tmp_path / ".cline" / "data" / "settings" / "providers.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"providers": {"one": {"settings": settings}}}) if settings else "no JSON")
    assert signed_in(Cline(), {}, "", tmp_path) is known


def test_sign_in_by_a_key(tmp_path: Path) -> None:
    assert signed_in(Cline(), {"CLINE_API_KEY": "sk"}, "", tmp_path) is True
    assert "cline auth" in Cline().sign_in({}, tmp_path)[1]
