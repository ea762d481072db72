"""The adapter of Cursor CLI. Its streams are composed after its documentation: its service cannot be stood in for."""

from pathlib import Path
from typing import Any

import pytest
from playing import billed, lines_of, played, refuse_success, signed_in, texts

from ralph.agents.adapter import Call
from ralph.agents.claude import Cursor
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure


def tool(subtype: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """A line about a tool."""
    return {"type": "tool_call", "subtype": subtype, "call_id": "c", "tool_call": {name: body}, "session_id": "s"}


def test_the_command() -> None:
    call = Call(Path("/repo"), "gpt-5", ("--approve-mcps",), 1.5, 30, "abc")
    assert Cursor("/opt/agent").command(call) == (
        *("/opt/agent", "-p", "--force", "--output-format", "stream-json"),
        *("--model", "gpt-5", "--resume", "abc", "--approve-mcps"),
    )
    assert Cursor().program == "cursor-agent"


def test_a_turn_that_went_well() -> None:
    events, account = played(Cursor(), "cursor")
    assert account.finished and account.failure is None and not account.error
    assert account.session == "00000000-0000-4000-8000-000000000001"
    assert billed(account.usage) == Usage(1983 + 5957 + 60, 96, unpriced=""), "cached tokens are told apart"
    assert texts(events, EventKind.TEXT) == ["Go.", "Done."]
    assert account.text == "Done.", "its result holds all that was said"
    assert (texts(events, EventKind.TOOL), texts(events, EventKind.TOOL_RESULT)) == (["shell: echo a"], ["a"])


def test_result_without_usage_of_older_versions_is_read() -> None:
    end = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "session_id": "s"}
    account = played(Cursor(), [end])[1]
    assert account.finished and account.usage == Usage() and account.text == "Done."


def test_a_turn_that_failed() -> None:
    refuse_success(Cursor(), "cursor-failed", Failure.AGENT, "did not answer")


def test_failure_without_a_last_event_is_read_from_standard_error() -> None:
    assert not played(Cursor(), lines_of("cursor")[:-1])[1].finished
    for stderr, failure in {
        "Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY.": Failure.ACCESS,
        "Error: You've hit your usage limit": Failure.LIMIT,
        "S: [unavailable] Connection stalled": Failure.OVERLOAD,
    }.items():
        told = Cursor().failure(1, stderr)
        assert told is not None and told[0] is failure


@pytest.mark.parametrize(
    ("body", "texts_and_errors"),
    [
        ({"args": {"path": "a"}, "result": {"success": {"content": "hello"}}}, [("hello", False)]),
        ({"args": {"path": "a"}, "result": {"error": {"message": "x"}}}, [("error", True)]),
        ({"args": {"command": "false"}, "result": {"success": {"exitCode": 1, "stderr": "no"}}}, [("no", True)]),
        ({}, [("", True)]),
    ],
)
def test_results_of_tools_are_read(body: dict[str, Any], texts_and_errors: list[tuple[str, bool]]) -> None:
    events = played(Cursor(), [tool("completed", "readToolCall", body)])[0]
    assert [(one.text, one.is_error) for one in events if one.kind is EventKind.TOOL_RESULT] == texts_and_errors


def test_denial_is_reported_with_its_command() -> None:
    rejected = {"result": {"rejected": {"command": "rm -rf x", "reason": ""}}}
    assert played(Cursor(), [tool("completed", "shellToolCall", rejected)])[1].denied == ["shell: rm -rf x"]


def test_tools_of_servers_are_functions() -> None:
    events = played(Cursor(), [tool("started", "function", {"name": "jira", "arguments": '{"id": 7}'})])[0]
    assert [used.split(":")[0] for used in texts(events, EventKind.TOOL)] == ["jira"]


def test_sign_in(tmp_path: Path) -> None:
    assert signed_in(Cursor(), {}, "", tmp_path) is False
    assert signed_in(Cursor(), {"CURSOR_API_KEY": "sk"}, "", tmp_path) is True
