"""The adapter of Qwen Code: how it is started, and what its real streams come to."""

import json
from pathlib import Path
from typing import Any

import pytest
from playing import lines_of, played, refuse_success, texts

from ralph.agents import stream_lines
from ralph.agents.adapter import Call
from ralph.agents.programs import Acp
from ralph.agents.qwen import Qwen
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure

NOW = 1794811850.0
HERE = Call(Path("/repo"))
FREE = {"input_tokens": 0, "output_tokens": 0}
PAID = {"input_tokens": 1000, "output_tokens": 50}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded."""
    monkeypatch.setattr(stream_lines, "time", lambda: NOW)


def turn(text: str, usage: dict[str, int]) -> list[bytes | dict[str, Any]]:
    """A turn of one answer."""
    answer = {"id": "m", "model": "gpt-5", "content": [{"type": "text", "text": text}], "usage": usage}
    result = {"type": "result", "subtype": "success", "is_error": False, "result": text, "usage": usage}
    return [{"type": "assistant", "message": answer}, result]


def test_the_command() -> None:
    call = Call(Path("/repo"), "qwen3-coder", ("--debug",), 1.5, 30, "abc", ("sub-agents", "web_fetch"))
    assert Qwen("/opt/qwen").command(call) == (
        *("/opt/qwen", "--exclude-tools", "agent", "web_fetch", "-o", "stream-json", "--yolo"),
        *("-m", "qwen3-coder", "--max-session-turns", "30", "--resume", "abc", "--debug"),
    )
    assert Qwen().command(HERE) == ("qwen", "-o", "stream-json", "--yolo")


@pytest.mark.parametrize(
    ("stream", "usage"),
    [("qwen", Usage(2000, 100, 0.0026)), ("qwen-prose", Usage(1000, 50, 0.00175))],
)
def test_a_turn_that_went_well(stream: str, usage: Usage) -> None:
    events, account = played(Qwen(), stream)
    assert account.finished and account.failure is None and not account.error
    assert (account.session, account.usage.input_tokens, account.usage.output_tokens) == (
        "id-1",
        usage.input_tokens,
        usage.output_tokens,
    )
    assert account.usage.cost == pytest.approx(usage.cost)
    assert len(texts(events, EventKind.RESULT)) == 1 and events[-1].kind is EventKind.RESULT


def test_texts_and_tools_are_read() -> None:
    events, account = played(Qwen(), "qwen")
    assert texts(events, EventKind.TEXT) == ["Go.", "Done."] and account.text == "Done."
    assert (texts(events, EventKind.TOOL), texts(events, EventKind.TOOL_RESULT)) == (
        ["run_shell_command: echo a"],
        ["a"],
    )


def test_a_conversation_gone_on_with_counts_only_what_is_new() -> None:
    usage = played(Qwen(), "qwen-resumed", before=Usage(2000, 100, 0.0026))[1].usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (2000, 100, pytest.approx(0.0026))


@pytest.mark.parametrize(
    ("stream", "failure", "said"),
    [
        ("qwen-limited", Failure.LIMIT, "Please try again in 119s"),
        ("qwen-signed-out", Failure.ACCESS, "API Error: 401"),
        ("qwen-unset-signed-out", Failure.ACCESS, "Missing API key"),
        ("qwen-overloaded", Failure.OVERLOAD, "API Error: 500"),
        ("qwen-cut-overloaded", Failure.OVERLOAD, "[API Error: terminated"),
    ],
)
def test_a_turn_that_failed_and_why(stream: str, failure: Failure, said: str) -> None:
    refuse_success(Qwen(), stream, failure, said)


def test_when_a_limit_is_over() -> None:
    assert played(Qwen(), "qwen-limited")[1].resets_at == NOW + 119


@pytest.mark.parametrize(
    ("text", "usage", "finished"),
    [
        ("[API Error: 401 x]", FREE, False),
        ("Half a sen[API Error: terminated]", FREE, False),
        ('[API Error: {"a": [1]}]\nPlease wait and try again later.', FREE, False),
        ("Qwen OAuth quota exceeded: come back tomorrow", FREE, False),
        ("[API Error: 401 x]", PAID, True),
        ("[API Error: 401 x] was in the log, and it is mended.", FREE, True),
        ("The log says [API Error: 401 x]\nIt is mended.\nAll is well.", FREE, True),
        ("Qwen OAuth quota exceeded: come back tomorrow", PAID, True),
        ("All done.", FREE, True),
    ],
)
def test_an_error_ends_an_answer_that_used_nothing(text: str, usage: dict[str, int], finished: bool) -> None:
    assert played(Qwen(), turn(text, usage))[1].finished is finished


def test_its_own_limit_is_an_exit_code() -> None:
    expected = Qwen().failure(53, "Reached max session turns for this session.")
    assert expected == (Failure.AGENT, "it reached its own turn limit")
    assert Qwen().failure(1, "Unknown argument: nonsense") == (Failure.ACCESS, "Unknown argument: nonsense")
    assert Qwen().failure(0, "") is None


def test_no_success_without_the_last_line() -> None:
    account = played(Qwen(), lines_of("qwen")[:-1])[1]
    assert not account.finished and account.usage == Usage(2000, 100), "what was used counts all the same"


OPENAI = {"OPENAI_API_KEY": "sk", "OPENAI_BASE_URL": "http://x", "OPENAI_MODEL": "m"}
PLAN = {"env": {"PLAN_KEY": "sk"}, "modelProviders": {"openai": [{"id": "q", "envKey": "PLAN_KEY"}]}}


@pytest.mark.parametrize(
    ("environment", "auth", "more", "expected"),
    [
        ({}, {}, {}, False),
        (OPENAI, {}, {}, True),
        ({"OPENAI_API_KEY": "sk"}, {}, {}, False),
        ({"OPENAI_API_KEY": "sk"}, {"selectedType": "openai"}, {}, True),
        ({}, {"selectedType": "openai"}, {}, False),
        ({}, {"selectedType": "openai", "apiKey": "sk"}, {}, True),
        ({}, {"selectedType": "openai"}, PLAN, True),
        (OPENAI, {"selectedType": "qwen-oauth"}, {}, False),
        ({"GEMINI_API_KEY": "sk"}, {}, {}, False),
        ({"DASHSCOPE_API_KEY": "sk"}, {}, {}, False),
        ({}, {"selectedType": "vertex-ai"}, {}, None),
    ],
)
def test_sign_in(
    environment: dict[str, str], auth: dict[str, str], more: dict[str, Any], expected: bool | None, tmp_path: Path
) -> None:
    path = tmp_path / ".qwen" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"security": {"auth": auth}, **more}))
    known, how = Qwen().sign_in(environment, tmp_path)
    assert known is expected and how and "sk" not in how.split()


def test_its_prompts_do_not_begin_a_command_with_a_variable() -> None:
    assert Qwen().refuses_variables and Acp("qwen --acp", ("qwen", "--acp")).refuses_variables
    assert not Acp("other", ("other",)).refuses_variables
