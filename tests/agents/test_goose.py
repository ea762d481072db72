"""The adapter of Goose: how it is started, and what its real streams come to."""

from pathlib import Path
from typing import Any

import pytest
from playing import Line, billed, lines_of, played, refuse_success, signed_in, texts

from ralph.agents import goose
from ralph.agents.adapter import Call
from ralph.agents.goose import Goose
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure

NOW = 1794811850.0
HERE = Call(Path("/repo"))
COMPLETE = {"type": "complete", "input_tokens": 1000, "output_tokens": 50}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded."""
    monkeypatch.setattr(goose, "time", lambda: NOW)


def message(text: str, *, marked: bool) -> dict[str, Any]:
    """What is said by the model, or by Goose itself."""
    mark = {"inference": {"provider": "openai", "requestedModel": "gpt-5"}} if marked else {}
    content = [{"type": "text", "text": text}]
    return {"type": "message", "message": {"role": "assistant", "content": content, "metadata": mark}}


def test_the_command() -> None:
    call = Call(Path("/repo"), "gpt-5", ("--debug",), 1.5, 30, "20261116_1")
    assert Goose("/opt/goose").command(call) == (
        *("/opt/goose", "run", "-i", "-", "--with-builtin", "developer", "--output-format", "stream-json"),
        *("--model", "gpt-5", "--max-turns", "30", "--resume", "--session-id", "20261116_1", "--debug"),
    )
    assert not {"--model", "--max-turns", "--resume"} & set(Goose().command(HERE))
    assert Goose().environment(HERE)["GOOSE_MODE"] == "auto"


@pytest.mark.parametrize("stream", ["goose", "goose-failing-tool"])
def test_a_turn_that_went_well(stream: str) -> None:
    events, account = played(Goose(), stream)
    assert account.finished and account.failure is None and not account.error
    assert (account.session, account.usage.input_tokens, account.usage.output_tokens) == ("20261116_1", 2000, 100)
    assert len(texts(events, EventKind.RESULT)) == 1 and events[-1].kind is EventKind.RESULT


def test_texts_and_tools_are_read() -> None:
    events, account = played(Goose(), "goose")
    assert texts(events, EventKind.TEXT) == ["Go.", "Done."] and account.text == "Done."
    assert (texts(events, EventKind.TOOL), texts(events, EventKind.TOOL_RESULT)) == (["shell: echo a"], ["a"])
    assert billed(account.usage) == Usage(2000, 100, 0.0036)
    [failed] = [event for event in played(Goose(), "goose-failing-tool")[0] if event.kind is EventKind.TOOL_RESULT]
    assert failed.is_error and "exited with code 3" in failed.text


def test_a_conversation_gone_on_with_counts_only_what_is_new() -> None:
    usage = played(Goose(), "goose-resumed", before=Usage(2000, 100, 0.0036))[1].usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (2000, 100, pytest.approx(0.0036))


@pytest.mark.parametrize(
    ("stream", "failure", "said"),
    [
        ("goose-limited", Failure.LIMIT, "Please try again in 60s"),
        ("goose-signed-out", Failure.ACCESS, "401 Unauthorized"),
        ("goose-credits-signed-out", Failure.ACCESS, "out of credits"),
        ("goose-unset-signed-out", Failure.ACCESS, "No provider configured. Run 'goose configure' first."),
        ("goose-overloaded", Failure.OVERLOAD, "500 Internal Server Error"),
        ("goose-cut-overloaded", Failure.OVERLOAD, "Stream decode error"),
        ("goose-turns", Failure.AGENT, "its own turn limit"),
    ],
)
def test_a_turn_that_failed_and_why(stream: str, failure: Failure, said: str) -> None:
    error = refuse_success(Goose(), stream, failure, said)
    assert "Please re" not in error.partition(said)[2], "advice for people at a prompt"


def test_when_a_limit_is_over() -> None:
    assert played(Goose(), "goose-limited")[1].resets_at == NOW + 60


OWN = "Ran into this error: Server error: boom.\n\nPlease retry if you think this is a transient or recoverable error."


@pytest.mark.parametrize(
    ("told", "finished"),
    [
        ([message(OWN, marked=True)], True),
        ([message(OWN, marked=False)], False),
        ([message("I've reached the maximum number of actions I can do.", marked=False)], False),
        ([message("Go.", marked=True), message("Something that nobody knows.", marked=False)], False),
        ([message("Go.", marked=True), message(OWN, marked=False), message("Done.", marked=True)], True),
        ([message("The log says: " + OWN, marked=False)], True),
        ([message("Done.", marked=False)], True),
    ],
    ids=["the model's", "its own", "its limit", "unknown", "overcome", "quoted", "without marks"],
)
def test_an_error_is_what_goose_says_itself_and_last(told: list[Line], finished: bool) -> None:
    assert played(Goose(), [*told, COMPLETE])[1].finished is finished


def test_text_in_pieces_is_reported_in_lines() -> None:
    told = [message(piece, marked=True) for piece in ("One li", "ne.\nTwo", " lines.")]
    events, account = played(Goose(), [*told, COMPLETE])
    assert texts(events, EventKind.TEXT) == ["One line.", "Two lines."] and account.text == "One line.\nTwo lines."


def test_a_price_that_goose_does_not_know() -> None:
    done = message("Done.", marked=True)
    assert billed(played(Goose(), [done, COMPLETE])[1].usage) == Usage(1000, 50, 0.00175)
    assert played(Goose(prices={"gpt-5": (1000.0, 0.0, 0.0)}), [done, COMPLETE])[1].usage.cost == 1.0
    assert played(Goose(), [message("Done.", marked=False), COMPLETE], "mock")[1].usage.cost is None


def test_no_conversation_to_continue_with() -> None:
    account = played(Goose(), [b"", b"  error: Cannot resume session 20260101_99 - no such session exists"])[1]
    assert account.failure is Failure.AGENT and "Cannot resume" in account.error and not account.session


def test_no_success_without_the_last_line() -> None:
    assert not played(Goose(), lines_of("goose")[:-1])[1].finished


@pytest.mark.parametrize(
    ("environment", "file", "told"),
    [
        ({}, "", False),
        ({"OPENAI_API_KEY": "sk"}, "", False),
        ({"GOOSE_PROVIDER": "openai", "OPENAI_API_KEY": "sk"}, "", True),
        ({"GOOSE_PROVIDER": "openai"}, "", None),
        ({}, ".config/goose/config.yaml", None),
    ],
)
def test_sign_in(environment: dict[str, str], file: str, told: bool | None, tmp_path: Path) -> None:
    assert signed_in(Goose(), environment, file, tmp_path) is told
