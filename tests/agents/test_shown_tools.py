"""What the readers of streams say about retries, images and sub-agents. The lines are from the real programs."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ralph.agents.cline import ClineReader
from ralph.agents.copilot import CopilotReader
from ralph.agents.gemini import GeminiReader
from ralph.agents.opencode import OpenCodeReader
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import describe_tool
from ralph.core.turns import IMAGE, AgentEvent, EventKind, Failure

NEXT = 1_794_925_700_000
"""The next try, in milliseconds, a minute after the line."""


def read(reader: StreamReader, *lines: Mapping[str, Any]) -> list[AgentEvent]:
    return [event for line in lines for event in reader.read(json.dumps(line).encode())]


def retry_line(message: str, attempt: int, *, ends: bool) -> dict[str, Any]:
    retry = {"attempt": attempt, "message": message, "next": NEXT, "ends": ends}
    return {"type": "retry", "timestamp": NEXT - 60_000, "sessionID": "s", "retry": retry}


ABORTED = {"type": "error", "sessionID": "s", "error": {"name": "MessageAbortedError", "data": {"message": "Aborted"}}}


def test_a_retry_inside_opencode_is_shown_with_its_wait() -> None:
    _, event = read(OpenCodeReader(), retry_line("Provider is overloaded", 1, ends=False))
    assert (event.kind, event.text) == (EventKind.RETRY, "Provider is overloaded: try 2 in 60 s")


@pytest.mark.parametrize(
    ("message", "kind", "resets_at"),
    [
        ("Too Many Requests", Failure.LIMIT, NEXT / 1000),
        ("Provider is overloaded", Failure.OVERLOAD, None),
        ("mock error 500", Failure.OVERLOAD, None),
    ],
)
def test_a_turn_of_opencode_that_our_plugin_ends_has_the_reason_of_its_retries(
    message: str, kind: Failure, resets_at: float | None
) -> None:
    _, why, result = read(OpenCodeReader(), retry_line(message, 3, ends=True), ABORTED)
    assert (why.failure, why.resets_at) == (kind, resets_at)
    assert (result.kind, result.is_error, result.failure) == (EventKind.RESULT, True, kind)


def test_images_that_agents_report_in_their_own_way_are_named() -> None:
    gemini = read(
        GeminiReader(),
        {"type": "tool_use", "tool_name": "read_file", "tool_id": "1", "parameters": {"file_path": "dot.png"}},
        {"type": "tool_result", "tool_id": "1", "status": "success", "output": "Read image file: dot.png"},
    )
    picture = {"type": "image", "data": "iVBORw0K", "mimeType": "image/png"}
    result = {"content": "Viewed image file successfully.", "binaryResultsForLlm": [picture]}
    copilot = read(
        CopilotReader(),
        {"type": "tool.execution_start", "data": {"toolCallId": "1", "toolName": "view"}},
        {"type": "tool.execution_complete", "data": {"toolCallId": "1", "success": True, "result": result}},
    )
    attached = [{"type": "file", "mime": "image/png", "url": "data:image/png;base64,iVBORw0K"}]
    state = {"status": "completed", "output": "Image read successfully", "attachments": attached}
    opencode = read(OpenCodeReader(), {"type": "tool_use", "part": {"tool": "read", "state": state}})
    assert [events[-1].text for events in (gemini, copilot, opencode)] == [IMAGE] * 3


def test_output_of_a_failed_command_of_cline_is_shown() -> None:
    printed = "[Command exited with code 127]\n\n[stderr]\nbash: ralph: command not found\n"
    result = {"query": "ralph emit", "result": printed, "error": "Command exited with code 127", "success": False}
    event = {"type": "content_end", "contentType": "tool", "toolName": "run_commands", "output": [result]}
    [shown] = read(ClineReader(), {"ts": "2026-11-17T14:21:47.913Z", "type": "agent_event", "event": event})
    assert shown.is_error and "ralph: command not found" in shown.text


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("Agent", {"prompt": "Look around"}, "sub-agent (Agent): Look around"),
        ("delegate", {"instructions": "Look around"}, "sub-agent (delegate): Look around"),
        ("write", {"content": "x", "filePath": "a.txt"}, "write: a.txt"),
        (
            "write_todos",
            {"todos": [{"description": "a", "status": "completed"}, {"description": "b", "status": "pending"}]},
            "write_todos: 1 of 2 done: b",
        ),
    ],
)
def test_tools_are_described_by_the_argument_that_says_most(name: str, arguments: object, shown: str) -> None:
    assert describe_tool(name, arguments) == shown
