"""The adapter of GitHub Copilot CLI: how it is started, and what its real streams come to."""

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playing import STREAMS, billed, lines_of, played, refuse_success, signed_in, texts

from ralph.agents import stream_lines
from ralph.agents.adapter import Call
from ralph.agents.copilot import Copilot
from ralph.core.limits import Usage
from ralph.core.turns import EventKind, Failure

NOW = 1794812400.0
HERE = Call(Path("/repo"), prompt=Path("/run/turn/prompt.md"))
USAGE = Path("agent/copilot-usage.json")
"""Where it reports what it used, from the directory of the turn."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded; what the turn used is in a file beside them."""
    monkeypatch.setattr(stream_lines, "time", lambda: NOW)
    monkeypatch.chdir(STREAMS)


def error(**data: Any) -> dict[str, Any]:
    """An error that it does not go on from."""
    return {"type": "session.error", "data": data}


def test_the_command() -> None:
    call = Call(Path("/repo"), "gpt-5", ("--effort", "high"), 1.5, 30, "abc", ("sub-agents", "web_fetch"), HERE.prompt)
    assert Copilot("/opt/copilot").command(call) == (
        *("/opt/copilot", "--output-format", "json", "--allow-all", "--no-ask-user"),
        *("--usage-output-file", "/run/turn/agent/copilot-usage.json"),
        "--excluded-tools=task,read_agent,list_agents,write_agent,web_fetch",
        *("--model", "gpt-5", "--resume=abc", "--effort", "high"),
    )


def test_a_new_conversation_has_an_id_from_the_start() -> None:
    *_, last = Copilot().command(HERE)
    session = last.removeprefix("--session-id=")
    assert str(UUID(session)) == session
    assert Copilot().command(HERE)[-1] == last, "it is the same for the engine that takes over"
    assert Copilot().command(Call(Path("/repo"), prompt=Path("/run/next/prompt.md")))[-1] != last
    reader = Copilot().reader(HERE, Usage())
    told = [event for line in lines_of("copilot")[:-1] for event in reader.read(line)]
    assert [event.session for event in told if event.kind is EventKind.SESSION] == [session]


@pytest.mark.parametrize(
    "stream", ["copilot", "copilot-failing-tool", "copilot-denied", "copilot-resumed", "copilot-retried"]
)
def test_a_turn_that_went_well(stream: str) -> None:
    _, account = played(Copilot(), stream)
    assert account.finished and account.failure is None and not account.error
    assert (account.session, account.text) == ("id-1", "Done.")


def test_texts_and_tools_are_read() -> None:
    events, _ = played(Copilot(), "copilot")
    assert texts(events, EventKind.TEXT) == ["I write hello.txt.", "I run a command.", "Done."]
    assert texts(events, EventKind.TOOL)[1] == "bash: echo a"
    assert texts(events, EventKind.TOOL_RESULT)[1] == "a <shellId: 1 completed with exit code 0>"
    [failed] = [event for event in played(Copilot(), "copilot-failing-tool")[0] if event.kind is EventKind.TOOL_RESULT]
    assert failed.is_error and "exit code 3" in failed.text
    assert played(Copilot(), "copilot-denied")[1].denied == ["bash: cat nothing.txt"]
    retries = texts(played(Copilot(), "copilot-retried")[0], EventKind.RETRY)
    assert retries == ["api_error: mock error 529"] * 2


def test_sub_agents_do_not_speak() -> None:
    said = {"content": "I look around.", "parentToolCallId": "call_1"}
    assert played(Copilot(), [{"type": "assistant.message", "data": said}])[0] == []


def test_usage_is_read_from_the_last_line() -> None:
    assert billed(played(Copilot(), "copilot")[1].usage) == Usage(3000, 150, pytest.approx(0.0039))
    assert played(Copilot(), lines_of("copilot")[:-1])[1].usage == Usage()
    own = Copilot(prices={"gpt-5": (1000.0, 1000.0, 0.0)})
    assert played(own, "copilot")[1].usage.cost == pytest.approx(3.0)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"modelMetrics": 7}', '{"modelMetrics": {}}', '{"modelMetrics": {"gpt-5": {"usage": 1}}}'],
)
def test_without_that_file_nothing_is_reported(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    USAGE.parent.mkdir()
    USAGE.write_text(content)
    _, account = played(Copilot(), "copilot")
    assert account.finished and account.usage.tokens == 0 and not account.usage.cost
    USAGE.unlink()
    assert played(Copilot(), "copilot")[1].usage == Usage()


def test_a_conversation_gone_on_with_counts_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / USAGE).parent.mkdir()
    shutil.copy(STREAMS / "copilot-usage-resumed.json", tmp_path / USAGE)
    monkeypatch.chdir(tmp_path)
    usage = played(Copilot(), "copilot-resumed", before=Usage(1000, 50, 0.00175))[1].usage
    assert billed(usage) == Usage(2000, 100, pytest.approx(0.0035))
    assert billed(played(Copilot(), "copilot-resumed", before=Usage(1000, 50))[1].usage) == Usage(
        2000, 100, unpriced=""
    )


def test_costs_of_models_add_up_and_one_without_a_price_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    USAGE.parent.mkdir()
    one = {"usage": {"inputTokens": 1000, "outputTokens": 50, "cacheReadTokens": 400}}
    USAGE.write_text(json.dumps({"modelMetrics": {"gpt-5": one, "nobody-knows": one}}))
    assert billed(played(Copilot(), "copilot")[1].usage) == Usage(2000, 100, unpriced="nobody-knows")


@pytest.mark.parametrize(
    ("stream", "failure", "said"),
    [
        ("copilot-limited", Failure.LIMIT, "Please try again in 600s"),
        ("copilot-plan-limited", Failure.LIMIT, "The usage limit has been reached"),
        ("copilot-signed-out", Failure.ACCESS, "Check your COPILOT_PROVIDER_API_KEY"),
        ("copilot-overloaded", Failure.OVERLOAD, "mock error 500"),
        ("copilot-unreachable-overloaded", Failure.OVERLOAD, "Could not connect"),
        ("copilot-failed", Failure.AGENT, "mock error 400"),
    ],
)
def test_a_turn_that_failed_and_why(stream: str, failure: Failure, said: str) -> None:
    refuse_success(Copilot(), stream, failure, said)


def test_when_a_limit_is_over() -> None:
    near, plan = (played(Copilot(), stream)[1].resets_at for stream in ("copilot-limited", "copilot-plan-limited"))
    [asked_at] = [json.loads(line)["timestamp"] for line in lines_of("copilot-limited") if b'"session.error"' in line]
    assert near == pytest.approx(stream_lines.read_timestamp(stream_lines.Data(timestamp=asked_at)) + 600)
    resets_at = {json.loads(json.loads(line)["data"]["errorMessage"])["resets_at"] for line in failed_calls()}
    assert {plan} == resets_at, "it is only in what the provider said"


def failed_calls() -> list[bytes]:
    return [line for line in lines_of("copilot-plan-limited") if b'"model.call_failure"' in line]


@pytest.mark.parametrize(
    ("told", "failure"),
    [
        (
            error(errorType="quota", message="You've run out of your included AI credits.", statusCode=402),
            Failure.LIMIT,
        ),
        (error(errorType="policy", message="This model is disabled."), Failure.ACCESS),
        (error(errorType="context_limit", message="The connection is too long."), Failure.AGENT),
        (
            error(errorType="query", message="Model 'x' not found on provider (HTTP 404).", statusCode=404),
            Failure.ACCESS,
        ),
        (error(), Failure.AGENT),
    ],
)
def test_the_types_of_errors(told: dict[str, Any], failure: Failure) -> None:
    assert played(Copilot(), [told, {"type": "result", "exitCode": 1}])[1].failure is failure


@pytest.mark.parametrize("code", [1, -1, None, False, "0", [], 137])
def test_only_an_exit_of_0_is_a_success(code: Any) -> None:
    events, account = played(Copilot(), [{"type": "result", "exitCode": code}])
    assert not account.finished and account.failure is Failure.AGENT and events[-1].text == "it failed"


@pytest.mark.parametrize(
    ("stderr", "failure"),
    [
        ("• Start 'copilot' and run the '/login' command / • Run 'gh auth login' to authenticate", Failure.ACCESS),
        ("error: unexpected argument '--nonsense' found", Failure.ACCESS),
        ("Error: No session, task, or name matched '1'.", Failure.AGENT),
    ],
)
def test_standard_error(stderr: str, failure: Failure) -> None:
    told = Copilot().failure(1, stderr)
    assert told is not None and told[0] is failure


@pytest.mark.parametrize(
    ("environment", "file", "told"),
    [
        ({}, "", False),
        ({"GH_TOKEN": "sk"}, "", True),
        ({"COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:8080"}, "", True),
        ({}, ".copilot/config.json", False),
        ({}, ".config/gh/hosts.yml", None),
    ],
)
def test_sign_in(environment: dict[str, str], file: str, told: bool | None, tmp_path: Path) -> None:
    assert signed_in(Copilot(), environment, file, tmp_path) is told


def test_an_account_in_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    account = {"host": "https://github.com", "login": "me"}
    for content, told in (
        ('{"firstLaunchAt": "2026-11-16"}', False),
        (json.dumps({"loggedInUsers": []}), False),
        (json.dumps({"lastLoggedInUser": account, "loggedInUsers": [account]}), True),
    ):
        file.write_text(f"// This file is managed automatically.\n{content}\n")
        assert Copilot().sign_in({"COPILOT_HOME": str(tmp_path)}, tmp_path / "missing")[0] is told
