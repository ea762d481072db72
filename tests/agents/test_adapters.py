"""The adapters of claude, codex and gemini: how they are started, and what their real streams come to."""

import json
import os
import random
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import billed

from ralph.agents import stream_lines
from ralph.agents.adapter import Adapter, Call, is_ralph_command
from ralph.agents.claude import Claude
from ralph.agents.codex import Codex
from ralph.agents.failures import classify_failure, find_limit_end
from ralph.agents.gemini import Gemini
from ralph.agents.opencode import OpenCode
from ralph.agents.programs import Acp
from ralph.agents.registry import get_adapter, make_adapter
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, EventKind, Failure
from ralph.documents.run_record import AgentSpec
from ralph.workspace.turn_files import OutputSummary

# Written out: a test that imports what it checks cannot fail.
TEXT_CHARS = 20000
TOOL_CHARS = 300

STREAMS = Path(__file__).with_name("streams")
NOW = 1794802400.0
"""When the streams were recorded: 16 November 2026, 04:13:20 UTC."""
AGENTS: dict[str, Adapter] = {"claude": Claude(), "codex": Codex(), "gemini": Gemini()}
ALL = sorted(path.stem for path in STREAMS.glob("*.jsonl") if path.stem.partition("-")[0] in AGENTS)
HERE = Call(Path("/repo"))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the day on which the streams were recorded."""
    monkeypatch.setattr(stream_lines, "time", lambda: NOW)


def agent_of(stream: str) -> Any:
    """The adapter of a stream."""
    return AGENTS[stream.partition("-")[0]]


def raw(stream: str) -> list[bytes]:
    """The lines of a recorded stream."""
    return (STREAMS / f"{stream}.jsonl").read_bytes().splitlines()


def played(agent: str, told: Iterable[bytes | dict[str, Any]], model: str = "", before: Usage | None = None) -> Any:
    """What a reader makes of lines: the events, and the account of them."""
    reader, account, events = agent_of(agent).reader(Call(Path(), model), before or Usage()), OutputSummary(), []
    for line in told:
        for event in reader.read(line if isinstance(line, bytes) else json.dumps(line).encode()):
            events.append(event)
            account.take(event)
    return events, account


def texts(events: Iterable[AgentEvent], kind: EventKind) -> list[str]:
    """The texts of the events of a kind."""
    return [event.text for event in events if event.kind is kind]


class TestCommand:
    """The words that start an agent."""

    def test_claude(self) -> None:
        call = Call(Path("/repo"), "opus", ("--append-system-prompt", "x"), 1.5, 30, "abc", ("sub-agents", "WebFetch"))
        assert Claude("/opt/claude").command(call) == (
            *("/opt/claude", "-p", "--disallowedTools", "Task", "Agent", "Workflow", "WebFetch"),
            *("--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
            *("--model", "opus", "--max-budget-usd", "1.500000", "--max-turns", "30", "--resume", "abc"),
            *Claude.hook_arguments,
            *("--append-system-prompt", "x"),
        )

    def test_codex(self) -> None:
        call = Call(Path("/repo"), "gpt-5", ("-c", "model_reasoning_effort=high"), 1.5, 30, "abc", ("sub-agents",))
        assert Codex().command(call) == (
            *("codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"),
            *("-c", "check_for_update_on_startup=false", "-c", "allow_login_shell=false"),
            *("-c", "features.multi_agent=false", "-c", 'approval_policy="never"', "-m", "gpt-5"),
            *("-c", "model_reasoning_effort=high", "resume", "abc", "-"),
        )

    def test_gemini(self) -> None:
        call = Call(Path("/repo"), "gemini-2.5-pro", ("--debug",), 1.5, 30, "abc")
        assert Gemini().command(call) == (
            *("gemini", "-o", "stream-json", "--yolo", "--skip-trust", "-m", "gemini-2.5-pro"),
            *("--resume", "abc", "--debug"),
        )

    def test_agents_that_check_commands_are_allowed_to_run_ralph(self) -> None:
        call = Call(Path("/repo"), permissions="edits", ralph="/my runs/bin/ralph")
        claude, gemini = Claude().command(call), Gemini().command(call)
        assert "Bash(ralph emit:*)" in claude and "Bash('/my runs/bin/ralph' tools:*)" in claude
        assert "run_shell_command('/my runs/bin/ralph' emit)" in gemini[gemini.index("--allowed-tools") + 1].split(",")
        rules = json.loads(OpenCode().environment(call)["OPENCODE_PERMISSION"])["bash"]
        assert (rules["*"], rules["ralph emit *"]) == ("deny", "allow")
        assert not any("Bash(" in word for word in Claude().command(Call(Path("/repo"))))

    @pytest.mark.parametrize("name", AGENTS)
    def test_nothing_is_said_that_was_not_asked_for(self, name: str) -> None:
        words = AGENTS[name].command(HERE)
        assert not {"--model", "-m", "--resume", "resume", "--max-turns", "--max-budget-usd"} & set(words)
        assert "" not in words

    @pytest.mark.parametrize(("uid", "said"), [(0, True), (1000, False)])
    def test_only_root_says_that_it_is_in_a_sandbox(
        self, uid: int, said: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "getuid", lambda: uid)
        assert ("IS_SANDBOX" in Claude().environment(HERE)) is said

    def test_gemini_is_one_process_and_hides_github_from_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SURFACE", raising=False)
        monkeypatch.setenv("GITHUB_SHA", "abc")
        assert Gemini().environment(HERE) == {"GEMINI_CLI_NO_RELAUNCH": "true", "GITHUB_SHA": ""}


class TestRealStreams:
    """What the recorded streams of the real programs come to."""

    @pytest.mark.parametrize(
        ("stream", "tokens", "cost"),
        [
            ("claude", (2000, 57), 0.00724),
            ("claude-older", (3000, 150), 0.018750000000000003),
            ("claude-resumed", (2000, 57), 0.00724),
            ("claude-retried", (3000, 150), 0.015),
            ("claude-denied", (3000, 150), 0.015),
            ("codex", (1500, 57), 0.0018825),
            ("codex-failing-tool", (2000, 100), 0.0035),
            ("codex-retried", (1000, 50), 0.00175),
            ("gemini", (1500, 80), 0.0021125),
            ("gemini-denied", (3000, 150), 0.00525),
        ],
    )
    def test_a_turn_that_went_well_and_what_it_used(self, stream: str, tokens: tuple[int, int], cost: float) -> None:
        events, account = played(stream, raw(stream), "gpt-5")
        assert account.finished and account.failure is None and not account.error
        assert billed(account.usage) == Usage(*tokens, cost)
        assert account.session == "id-1"
        assert len(texts(events, EventKind.RESULT)) == 1 and events[-1].kind is EventKind.RESULT

    @pytest.mark.parametrize("stream", ["claude", "codex", "gemini"])
    def test_texts_and_tools_are_read(self, stream: str) -> None:
        events, account = played(stream, raw(stream))
        assert texts(events, EventKind.TEXT) == ["Go.", "Done."]
        (used,) = texts(events, EventKind.TOOL)
        assert used.split(": ", 1)[0] in ("Bash", "shell", "run_shell_command") and "echo a" in used
        assert texts(events, EventKind.TOOL_RESULT) == ["a"]
        assert account.text == "Done."

    @pytest.mark.parametrize(
        ("stream", "failure", "said"),
        [
            ("claude-limited", Failure.LIMIT, "five-hour limit"),
            ("claude-signed-out", Failure.ACCESS, "Please run /login"),
            ("claude-overloaded", Failure.OVERLOAD, "529 Overloaded"),
            ("claude-turns", Failure.AGENT, "its own turn limit"),
            ("claude-budget", Failure.AGENT, "its own cost limit"),
            ("codex-limited", Failure.LIMIT, "hit your usage limit"),
            ("codex-signed-out", Failure.ACCESS, "401 Unauthorized"),
            ("codex-overloaded", Failure.OVERLOAD, "high demand"),
            ("gemini-limited", Failure.LIMIT, "exceeded your current quota"),
            ("gemini-signed-out", Failure.ACCESS, "invalid x-api-key"),
            ("gemini-overloaded", Failure.OVERLOAD, "boom"),
        ],
    )
    def test_a_turn_that_failed_and_why(self, stream: str, failure: Failure, said: str) -> None:
        events, account = played(stream, raw(stream))
        assert not account.finished and account.failure is failure and said in account.error
        told = [event for event in events if event.kind in (EventKind.LIMIT, EventKind.ERROR)]
        assert len(told) == 1, "a failure is told once"
        assert account.limited is (failure is Failure.LIMIT)
        assert events[-1].kind is EventKind.RESULT and events[-1].is_error and events[-1].failure is failure
        assert not texts(events, EventKind.TEXT) or stream in ("claude-turns", "claude-budget")

    def test_when_a_limit_is_over(self) -> None:
        assert played("claude", raw("claude-limited"))[1].resets_at == 1794809672
        assert played("gemini", raw("gemini-limited"))[1].resets_at == pytest.approx(NOW - 33.5, abs=3)
        local = datetime.fromtimestamp(played("codex", raw("codex-limited"))[1].resets_at)
        assert (local.hour, local.minute) == (5, 9)

    def test_money_that_stopped_claude_counts_though_its_usage_is_empty(self) -> None:
        assert billed(played("claude", raw("claude-budget"))[1].usage) == Usage(1000, 50, 0.005)

    @pytest.mark.parametrize("stream", ["claude-retried", "codex-retried"])
    def test_retry_is_not_an_error(self, stream: str) -> None:
        events, _ = played(stream, raw(stream))
        assert len(texts(events, EventKind.RETRY)) == 1 and not texts(events, EventKind.ERROR)

    def test_denials_come_with_the_command_once(self) -> None:
        assert played("claude", raw("claude-denied"))[1].denied == ["Write: /repo/hello.txt"]
        assert played("gemini", raw("gemini-denied"))[1].denied[1:] == ["bash: cat hello.txt && git status --short"]
        item = {"id": "i", "type": "command_execution", "command": "rm -rf x", "status": "declined"}
        assert played("codex", [{"type": "item.completed", "item": item}])[1].denied == ["shell: rm -rf x"]

    def test_a_conversation_gone_on_with_counts_only_what_is_new(self) -> None:
        """Codex tells the usage of the whole conversation."""
        before = Usage(3000, 150, 0.00525)
        usage = played("codex", raw("codex-resumed"), "gpt-5", before)[1].usage
        assert (usage.input_tokens, usage.output_tokens) == (1500, 57)
        assert usage.cost == pytest.approx(0.0018825)
        assert played("codex", raw("codex-resumed"), "gpt-5", Usage(3000, 150))[1].usage.cost is None

    def test_missing_price_is_not_a_cost(self) -> None:
        assert billed(played("codex", raw("codex"), "mock-model")[1].usage) == Usage(1500, 57, unpriced="mock-model")
        assert played("codex", raw("codex"))[1].usage.cost is None

    def test_the_users_price(self) -> None:
        reader = Gemini(prices={"gemini-2.5-pro": (1000.0, 1000.0, 0.0)}).reader(HERE, Usage())
        usage = [event.usage for line in raw("gemini") for event in reader.read(line) if event.kind is EventKind.USAGE]
        assert [billed(one) for one in usage] == [Usage(1500, 80, 1.5)]


class TestCutStreams:
    """Streams that end too early, or hold what is no event."""

    @pytest.mark.more_are_slow(10)
    @pytest.mark.parametrize("stream", ALL)
    def test_no_success_without_the_whole_last_line(self, stream: str) -> None:
        whole = b"\n".join(raw(stream))
        *_, last = raw(stream)
        for size in range(0, len(whole), 97):
            assert not played(stream, whole[:size].split(b"\n"))[1].finished
        for size in range(len(last)):
            assert not played(stream, [*raw(stream)[:-1], last[:size]])[1].finished

    def test_usage_before_the_cut_counts_once(self) -> None:
        usage = played("claude", raw("claude")[:-1])[1].usage
        assert billed(usage) == Usage(2000, 2, None)

    @given(st.integers(0, 2**32), st.sampled_from(ALL))
    @settings(max_examples=300, deadline=None)
    def test_malformed_lines_do_no_harm(self, seed: int, stream: str) -> None:
        chance = random.Random(seed)
        damaged = [piece for line in raw(stream) for piece in _damage(line, chance)]
        events, account = played(stream, damaged, "gpt-5")
        for event in events:
            assert event.usage.input_tokens >= 0 and event.usage.output_tokens >= 0
            assert event.usage.tokens < 10**13 and 0 <= (event.usage.cost or 0) < 10**9
            assert len(event.text) <= (TOOL_CHARS if event.kind in _SHORT else TEXT_CHARS)
            assert not set(event.text) & set(map(chr, (*range(9), 0x1B, 0x7F, 0xD800)))
            assert event.resets_at is None or abs(event.resets_at - NOW) < 100 * 86400
        if account.finished:
            assert any(_succeeds(line) for line in damaged)

    @given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
    @settings(max_examples=200)
    def test_garbage_yields_no_events(self, line: bytes) -> None:
        for name in AGENTS:
            assert not played(name, [line, line + b"}", b'{"type":' + line])[1].finished

    def test_numbers_that_cannot_be(self) -> None:
        for number in ("1e999", "-5", "NaN", "9" * 400, '"7"', "true", "[1]", "1e15"):
            usage = f'{{"input_tokens":{number},"output_tokens":{number}}}'
            line = f'{{"type":"turn.completed","usage":{usage}}}'.encode()
            assert played("codex", [line])[1].usage.tokens == 0
            line = f'{{"type":"result","is_error":false,"usage":{usage},"total_cost_usd":{number}}}'.encode()
            usage = played("claude", [line])[1].usage
            assert usage.tokens == 0 and not usage.cost

    def test_deep_and_huge_lines(self) -> None:
        for line in (b'{"a":' * 200_000, b'{"type":"assistant","message":{"content":"' + b"x" * 3_000_000 + b'"}}'):
            for name in AGENTS:
                assert played(name, [line])[0] == []


_SHORT = (EventKind.TOOL, EventKind.TOOL_RESULT, EventKind.DENIED, EventKind.RETRY)


def _succeeds(line: bytes) -> bool:
    """Whether a line is the whole word of a success."""
    try:
        data = json.loads(line)
    except ValueError:
        return False
    if not isinstance(data, dict):
        return False
    success = data.get("is_error") is False or data.get("status") == "success" or data.get("type") == "turn.completed"
    return data.get("type") in ("result", "turn.completed") and success


def _damage(line: bytes, chance: random.Random) -> list[bytes]:
    """A line cut, doubled, followed by garbage, or with other values in it; often as it was."""
    garbage = bytes(chance.randrange(256) for _ in range(chance.randrange(40)))
    match chance.randrange(8):
        case 0:
            return [line[: chance.randrange(len(line))]]
        case 1:
            return [line, line]
        case 2:
            return [garbage, line, b"{" + garbage]
        case 3 | 4 | 5:
            data = json.loads(line)
            for _ in range(chance.randrange(1, 4)):
                _change(data, chance)
            return [json.dumps(data).encode()]
        case _:
            return [line]


def _change(data: Any, chance: random.Random) -> None:
    """Change or drop one value, anywhere inside."""
    wrong: tuple[Any, ...] = (
        None,
        True,
        -1,
        7,
        10**400,
        1e308,
        float("nan"),
        "",
        "\x1b[31m\ud800" * 2000,
        [],
        [[]],
        {},
        {"a": [1]},
    )
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    if not keys:
        return
    key = chance.choice(keys)
    if isinstance(data[key], dict | list) and data[key] and chance.random() < 0.7:
        _change(data[key], chance)
    elif chance.random() < 0.3:
        del data[key]
    else:
        data[key] = chance.choice(wrong)


class TestClaude:
    """What only Claude's stream has."""

    def test_prose_about_limits_is_not_a_limit(self) -> None:
        text = "API Error: 429 rate limit reached, try again in 20s. Claude AI usage limit reached|1794809672"
        said = {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": text}]}}
        done = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": text}]}
        events, account = played("claude", [said, {"type": "user", "message": {"content": [done]}}])
        assert not account.limited and account.failure is None
        assert [event.kind for event in events] == [EventKind.TEXT, EventKind.TOOL_RESULT]

    def test_a_limit_with_extra_usage_or_a_warning_is_none(self) -> None:
        over: dict[str, Any] = {"status": "rejected", "resetsAt": NOW + 60, "isUsingOverage": True}
        for info in (over, {**over, "status": "allowed_warning", "isUsingOverage": False}):
            assert not played("claude", [{"type": "rate_limit_event", "rate_limit_info": info}])[1].limited

    def test_the_old_words_for_a_limit(self) -> None:
        result = {"type": "result", "is_error": True, "result": f"Claude AI usage limit reached|{NOW + 3600:.0f}"}
        account = played("claude", [result])[1]
        assert account.failure is Failure.LIMIT and account.resets_at == NOW + 3600

    @pytest.mark.parametrize("end", [{"is_error": None}, {}, {"is_error": False, "subtype": "error_max_turns"}])
    def test_only_a_plain_word_is_a_success(self, end: dict[str, Any]) -> None:
        assert not played("claude", [{"type": "result", "result": "ok", **end}])[1].finished

    def test_two_results_in_one_process_add_up(self) -> None:
        def end(tokens: int, cost: float) -> dict[str, Any]:
            own = {"m": {"inputTokens": tokens, "outputTokens": 1, "costUSD": cost}}
            return {"type": "result", "is_error": False, "model_usage_since_last_result": own, "total_cost_usd": 99}

        assert billed(played("claude", [end(10, 0.5), end(5, 0.25)])[1].usage) == Usage(15, 2, 0.75)

    def test_a_message_in_pieces_counts_once_and_sub_agents_do_not_speak(self) -> None:
        def piece(key: str, input_tokens: int, heard: int, parent: str | None = None) -> dict[str, Any]:
            usage = {"input_tokens": input_tokens, "output_tokens": heard, "cache_read_input_tokens": 100}
            message = {"id": key, "content": [{"type": "text", "text": key}], "usage": usage}
            return {"type": "assistant", "message": message, "parent_tool_use_id": parent}

        told = [piece("a", 10, 1), piece("a", 10, 5), piece("b", 7, 1, "toolu"), piece("a", 10, 5)]
        events, account = played("claude", told)
        assert billed(account.usage) == Usage(217, 6)
        assert texts(events, EventKind.TEXT) == ["a", "a", "a"]


class TestGemini:
    """What only Gemini's stream has."""

    def test_text_in_pieces_is_reported_in_lines(self) -> None:
        def piece(text: str) -> dict[str, Any]:
            return {"type": "message", "role": "assistant", "content": text, "delta": True}

        told = [piece("One li"), piece("ne.\nTwo"), piece(" lines."), {"type": "result", "status": "success"}]
        events, account = played("gemini", told)
        assert texts(events, EventKind.TEXT) == ["One line.", "Two lines."]
        assert account.text == "One line.\nTwo lines." and account.finished

    def test_its_own_limit_of_turns(self) -> None:
        error = {"type": "FatalTurnLimitedError", "message": "Reached max session turns for this session."}
        account = played("gemini", [{"type": "result", "status": "error", "error": error}])[1]
        assert account.failure is Failure.AGENT and "its own turn limit" in account.error

    @pytest.mark.parametrize(
        ("code", "failure"),
        [
            (145, Failure.ACCESS),
            (147, Failure.ACCESS),
            (173, Failure.LIMIT),
            (244, Failure.OVERLOAD),
            (247, Failure.OVERLOAD),
            (41, Failure.ACCESS),
            (53, Failure.AGENT),
        ],
    )
    def test_exit_codes(self, code: int, failure: Failure) -> None:
        told = Gemini().failure(code, "Warning: 256-color support not detected.\n")
        assert told is not None and told[0] is failure and told[1]
        assert Gemini().failure(1, "") is None and Gemini().failure(0, "Error: x y") is None


class TestFailures:
    """What error texts and standard error mean."""

    @pytest.mark.parametrize(
        ("text", "failure"),
        [
            ("unexpected status 401 Unauthorized: x, url: http://h/v1/responses", Failure.ACCESS),
            ("Invalid API key · Fix external API key", Failure.ACCESS),
            ("OAuth token has expired. Please run /login", Failure.ACCESS),
            ("The 'gpt-x' model is not supported when using Codex with a ChatGPT account.", Failure.ACCESS),
            ("Your credit balance is too low to access the API", Failure.ACCESS),
            ("Quota exceeded. Check your plan and billing details.", Failure.ACCESS),
            ("exceeded retry limit, last status: 429 Too Many Requests", Failure.LIMIT),
            ("You've hit your weekly limit · resets Nov 20, 5pm (UTC)", Failure.LIMIT),
            ('{"error":{"code":503,"message":"The model is overloaded","status":"UNAVAILABLE"}}', Failure.OVERLOAD),
            ("stream disconnected before completion: error decoding response body", Failure.OVERLOAD),
            ("API Error: Connection error (ECONNRESET)", Failure.OVERLOAD),
            ("request timed out", Failure.OVERLOAD),
            ("[API Error: terminated]", Failure.OVERLOAD),
            ("No conversation found with session ID: 1", Failure.AGENT),
            ("cannot read /home/me/rate-limit/quota/login.txt", Failure.AGENT),
            ("API Error: 400 bad request", Failure.AGENT),
        ],
    )
    def test_classes(self, text: str, failure: Failure) -> None:
        assert classify_failure(text) is failure

    @pytest.mark.parametrize(
        ("name", "stderr", "failure"),
        [
            ("claude", "--dangerously-skip-permissions cannot be used with root/sudo privileges", Failure.ACCESS),
            ("claude", "error: unknown option '--nonsense'", Failure.ACCESS),
            ("codex", "Reading prompt from stdin...\nNot logged in. Run codex login", Failure.ACCESS),
            ("codex", "error: unexpected argument '--x' found\n\nUsage: codex exec [OPTIONS]", Failure.ACCESS),
            ("codex", "Error: thread/resume failed: no rollout found for thread id 1", Failure.AGENT),
            ("gemini", "Unknown argument: nonsense\nUsage: gemini [options] [command]", Failure.ACCESS),
        ],
    )
    def test_standard_error(self, name: str, stderr: str, failure: Failure) -> None:
        told = AGENTS[name].failure(1, stderr)
        assert told is not None and told[0] is failure

    @pytest.mark.parametrize(
        ("stderr", "failure", "sentence"),
        [
            (
                'Error: approval_policy = "untrusted" is no longer supported; remove this setting\n\nStack backtrace:\n'
                + "".join(f"   {number}: <unknown>\n" for number in range(40)),
                Failure.ACCESS,
                'Error: approval_policy = "untrusted" is no longer supported; remove this setting',
            ),
            (
                "Error loading config.toml: unknown variant `x`, expected `never`\nin `approval_policy`\n\n",
                Failure.ACCESS,
                "Error loading config.toml: unknown variant `x`, expected `never` in `approval_policy`",
            ),
            (
                "Error loading config.toml:\n/h/config.toml:1:9: string values must be quoted\n  |\n1 | model = \n  |     ^\n",
                Failure.ACCESS,
                "Error loading config.toml: /h/config.toml:1:9: string values must be quoted",
            ),
            (
                "file:///a/b.js:3\n    throw error;\n    ^\n\nTypeError: x is not a function\n    at run (/a/b.js:3:1)\n"
                "    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)\n\nNode.js v20.20.2\n",
                Failure.AGENT,
                "TypeError: x is not a function",
            ),
            (
                'Traceback (most recent call last):\n  File "/a/b.py", line 3, in <module>\n    import mcp\n'
                "ModuleNotFoundError: No module named 'mcp'\n",
                Failure.AGENT,
                "ModuleNotFoundError: No module named 'mcp'",
            ),
        ],
    )
    def test_a_backtrace_is_not_the_reason(self, stderr: str, failure: Failure, sentence: str) -> None:
        assert Codex().failure(1, stderr) == (failure, sentence)

    @pytest.mark.parametrize("name", AGENTS)
    def test_noise_says_nothing(self, name: str) -> None:
        assert AGENTS[name].failure(1, "Reading prompt from stdin...\nWARNING: no /tmp/quota/limit\n\n") is None

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("Rate limit reached. Please try again in 20s.", 20),
            ("try again in 3 days 6 hours 57 minutes.", 3 * 86400 + 6 * 3600 + 57 * 60),
            ("Please retry in 1h2m3.5s", 3723.5),
            ("try again in 500ms", 0.5),
            ('{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}', 3600),
            ('"retryDelay": "27s"', 27),
            (f"usage limit reached|{NOW + 90:.0f}", 90),
            (f'"resets_at": {(NOW + 90) * 1000:.0f}', 90),
            ("resets 5pm (UTC)", 46000),
            ("resets 4am (UTC)", 86400 - 800),
            ("your limit will reset at 1pm (Europe/Berlin)", 28000),
            ("resets Nov 20, 5pm (UTC)", 4 * 86400 + 46000),
            ("try again at Nov 20th, 2026 17:00 (UTC)", 4 * 86400 + 46000),
            ("resets 5pm (Nowhere/Land)", None),
            ("try again at Aug 8th, 2030 12:30 PM", None),
            ("try again in 4000 days", None),
            ("try again later", None),
            ("resets 99:99 (UTC)", None),
            ("", None),
        ],
    )
    def test_when_a_limit_ends(self, text: str, seconds: float | None) -> None:
        told = find_limit_end(text, NOW)
        assert told is None if seconds is None else told == pytest.approx(NOW + seconds, abs=0.01)


CODEX_TOKENS = '{"tokens": {"id_token": "%s", "access_token": "x", "refresh_token": "y"}}'
CLAUDE_ACCOUNT = '{"claudeAiOauth": {"accessToken": "%s", "scopes": ["%s"]}}'
GEMINI_ACCOUNT = {".gemini/oauth_creds.json": '{"refresh_token": "r"}'}
GEMINI_AUTH = '{"security": {"auth": {"selectedType": "%s"}}}'


class TestSignIn:
    """Whether an agent is signed in, as far as can be expected offline."""

    @pytest.mark.parametrize(
        ("name", "environment", "file", "expected"),
        [
            ("claude", {}, "", False),
            ("claude", {"ANTHROPIC_API_KEY": ""}, "", False),
            ("claude", {"ANTHROPIC_API_KEY": "sk"}, "", True),
            ("claude", {"CLAUDE_CODE_OAUTH_TOKEN": "sk"}, "", True),
            ("claude", {"CLAUDE_CODE_USE_BEDROCK": "1"}, "", None),
            ("claude", {"CLAUDE_CODE_USE_BEDROCK": "0"}, "", False),
            ("claude", {}, ".claude/.credentials.json", False),
            ("codex", {}, "", False),
            ("codex", {"CODEX_API_KEY": "sk"}, "", True),
            ("codex", {}, ".codex/auth.json", False),
            ("gemini", {}, "", False),
            ("gemini", {"GEMINI_API_KEY": "sk"}, "", True),
            ("gemini", {"GOOGLE_API_KEY": "sk"}, "", False),
            ("gemini", {"GEMINI_API_KEY": "sk", "GOOGLE_GEMINI_BASE_URL": "http://x"}, "", False),
            ("gemini", {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "", False),
            ("gemini", {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": "sk"}, "", None),
            ("gemini", {"GOOGLE_GENAI_USE_GCA": "true"}, ".gemini/oauth_creds.json", False),
        ],
    )
    def test_keys_files_and_services(
        self, name: str, environment: dict[str, str], file: str, expected: bool | None, tmp_path: Path
    ) -> None:
        if file:
            (tmp_path / file).parent.mkdir()
            (tmp_path / file).touch()
        known, how = AGENTS[name].sign_in(environment, tmp_path)
        assert known is expected and how and "sk" not in how.split()

    @pytest.mark.parametrize(("name", "variable"), [("aider", "AIDER_MODEL"), ("mini", "MSWEA_MODEL_NAME")])
    def test_key_of_another_provider_does_not_count(self, name: str, variable: str, tmp_path: Path) -> None:
        for model, expected in (("openai/gpt-5", True), ("anthropic/claude-sonnet-4-5", False), ("sonnet", True)):
            known, _ = get_adapter(name).sign_in({variable: model, "OPENAI_API_KEY": "sk"}, tmp_path)
            assert known is expected, model

    @pytest.mark.parametrize(
        ("name", "files", "environment", "expected"),
        [
            ("claude", {".claude/.credentials.json": "{nope"}, {}, False),
            ("claude", {".claude/.credentials.json": CLAUDE_ACCOUNT % ("", "user:inference")}, {}, False),
            ("claude", {".claude/.credentials.json": CLAUDE_ACCOUNT % ("t", "user:profile")}, {}, False),
            ("claude", {".claude/.credentials.json": CLAUDE_ACCOUNT % ("t", "user:inference")}, {}, True),
            ("claude", {".claude.json": '{"primaryApiKey": "sk"}'}, {}, True),
            ("claude", {".claude/settings.json": '{"apiKeyHelper": "cat key"}'}, {}, None),
            ("claude", {".claude/settings.json": '{"env": {"ANTHROPIC_API_KEY": "sk"}}'}, {}, True),
            ("codex", {".codex/auth.json": "{nope"}, {}, False),
            ("codex", {".codex/auth.json": "{}"}, {}, False),
            ("codex", {".codex/auth.json": '{"OPENAI_API_KEY": "sk"}'}, {}, True),
            ("codex", {".codex/auth.json": CODEX_TOKENS % "a.b.c"}, {}, False),
            ("codex", {".codex/auth.json": CODEX_TOKENS % "e30.eyJhIjoxfQ.c"}, {}, True),
            ("gemini", {".gemini/settings.json": GEMINI_AUTH % "oauth-personal"}, {"GEMINI_API_KEY": "sk"}, False),
            ("gemini", {".gemini/settings.json": GEMINI_AUTH % "oauth-personal", **GEMINI_ACCOUNT}, {}, True),
            ("gemini", {".gemini/settings.json": GEMINI_AUTH % "gemini-api-key"}, {}, False),
            ("gemini", {".gemini/settings.json": GEMINI_AUTH % "gemini-api-key", ".gemini/.env": "x"}, {}, None),
            ("gemini", {".gemini/settings.json": GEMINI_AUTH % "gemini-api-key"}, {"GEMINI_API_KEY": "sk"}, True),
        ],
    )  # fmt: skip
    def test_the_method_in_its_settings_decides(
        self, name: str, files: dict[str, str], environment: dict[str, str], expected: bool | None, tmp_path: Path
    ) -> None:
        for file, text in files.items():
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text(text)
        known, how = AGENTS[name].sign_in(environment, tmp_path)
        assert known is expected and how and "sk" not in how.split()

    def test_missing_sign_in_names_the_command_to_run(self, tmp_path: Path) -> None:
        assert "/login" in Claude().sign_in({}, tmp_path)[1]
        assert "codex login" in Codex().sign_in({}, tmp_path)[1]
        assert all(agent.install.startswith("npm install -g ") for agent in AGENTS.values())


class TestCodexSignIn:
    def test_openai_key_alone_is_not_a_sign_in(self, tmp_path: Path) -> None:
        known, how = Codex().sign_in({"OPENAI_API_KEY": "k"}, tmp_path)
        assert (known, "codex login --with-api-key" in how) == (False, True)
        assert Codex().sign_in({"CODEX_API_KEY": "k"}, tmp_path) == (True, "CODEX_API_KEY")

    def test_a_provider_of_the_users_own_names_its_key(self, tmp_path: Path) -> None:
        config = tmp_path / ".codex" / "config.toml"
        config.parent.mkdir()
        config.write_text('model_provider = "mine"\n[model_providers.mine]\nenv_key = "MY_KEY"\n')
        assert Codex().sign_in({"MY_KEY": "k"}, tmp_path) == (True, "MY_KEY")
        known, how = Codex().sign_in({"CODEX_API_KEY": "k"}, tmp_path)
        assert (known, "set MY_KEY" in how) == (False, True)
        config.write_text('model_provider = "local"\n[model_providers.local]\nbase_url = "http://localhost"\n')
        assert Codex().sign_in({}, tmp_path)[0] is None


def told_by(agent: Adapter, *lines: dict[str, Any]) -> list[tuple[EventKind, str, bool]]:
    reader = agent.reader(Call(Path("/repo")), Usage())
    events = [event for line in lines for event in reader.read(json.dumps(line).encode())]
    return [(event.kind, event.text, event.is_sub_agent) for event in events if event.kind is not EventKind.USAGE]


class TestWhatPeopleWantToSee:
    def test_claude(self) -> None:
        todos = [{"content": "parse", "status": "completed"}, {"content": "test", "status": "pending"}]
        blocks = [
            {"type": "thinking", "thinking": "Where is it?"},
            {"type": "tool_use", "id": "1", "name": "TodoWrite", "input": {"todos": todos}},
        ]
        image = [{"type": "image", "source": {}}, {"type": "text", "text": "a page"}]
        inner = [{"type": "tool_use", "id": "2", "name": "Grep", "input": {"pattern": "x"}}]
        result = [{"type": "tool_result", "tool_use_id": "1", "content": image, "is_error": True}]
        assert told_by(
            Claude(),
            {"type": "assistant", "message": {"id": "m", "content": blocks}},
            {"type": "assistant", "message": {"id": "n", "content": inner}, "parent_tool_use_id": "1"},
            {"type": "user", "message": {"content": result}},
        ) == [
            (EventKind.THINKING, "Where is it?", False),
            (EventKind.TOOL, "TodoWrite: 1 of 2 done: test", False),
            (EventKind.TOOL, "Grep: x", True),
            (EventKind.TOOL_RESULT, "[image] a page", False),
        ]

    def test_codex(self) -> None:
        items = [{"text": "parse", "completed": True}, {"text": "test", "completed": False}]
        assert told_by(
            Codex(),
            {"type": "item.completed", "item": {"id": "0", "type": "error", "message": "No metadata for this model"}},
            {"type": "item.completed", "item": {"id": "1", "type": "reasoning", "text": "Where is it?"}},
            {"type": "item.started", "item": {"id": "2", "type": "todo_list", "items": items}},
            {"type": "item.started", "item": {"id": "3", "type": "collab_tool_call", "prompt": "review it"}},
            {
                "type": "item.completed",
                "item": {
                    "id": "4",
                    "type": "command_execution",
                    "command": "false",
                    "aggregated_output": "",
                    "exit_code": 1,
                    "status": "failed",
                },
            },
        ) == [
            (EventKind.WARNING, "No metadata for this model", False),
            (EventKind.THINKING, "Where is it?", False),
            (EventKind.TOOL, "todo: 1 of 2 done: test", False),
            (EventKind.TOOL, "collab_tool_call: review it", True),
            (EventKind.TOOL, "shell: false", False),
            (EventKind.TOOL_RESULT, "exit code 1", False),
        ]


@pytest.mark.parametrize(
    ("command", "is_ours"),
    [
        ("ralph emit work.done 'it works'", True),
        ("'/a b/ralph' emit work.done --json '{\"reason\": \"$x `y`; z\"}'", True),
        ('ralph tools task add "a title"', True),
        ("ralph loop x --agent-command 'rm -rf .'", False),
        ("ralph", False),
        ("ralph emit a && rm b", False),
        ("ralph emit a; rm b", False),
        ('ralph emit a "$(rm b)"', False),
        ("ralph emit a `rm b`", False),
        ("ralph emit a > b", False),
        ("ralph emit a\nrm b", False),
        ("ralph emit \"it's $(rm b)\" 'x'", False),
        ("PATH=/evil ralph emit a", False),
        ("/other/ralph emit a", False),
        ("ralph emit 'open", False),
        ("", False),
    ],
)
def test_only_a_plain_command_of_ralph_is_allowed(command: str, is_ours: bool) -> None:
    assert is_ralph_command(command, "/a b/ralph") is is_ours


MODES = [
    ("claude", ".claude/settings.local.json", '{"permissions": {"defaultMode": "plan"}} // mine', "plan"),
    ("claude", ".claude/settings.json", '{"permissions": {"disableBypassPermissionsMode": "disable"}}', "edits"),
    ("claude", ".claude/settings.json", '{"permissions": {"defaultMode": "default"}}', ""),
    ("claude", ".claude/settings.json", '{"permissions": [', None),
    ("codex", ".codex/config.toml", 'sandbox_mode = "read-only"', "read-only"),
    ("codex", ".codex/config.toml", 'profile = "p"\n[profiles.p]\nsandbox_mode = "workspace-write"', "edits"),
    ("codex", ".codex/config.toml", 'approval_policy = "on-request"', "edits"),
    ("codex", ".codex/config.toml", 'sandbox_mode = "danger-full-access"\napproval_policy = "on-request"', None),
    ("codex", ".codex/config.toml", 'default_permissions = ":read-only"', "read-only"),
    ("codex", ".codex/config.toml", 'approval_policy = "untrusted"', "edits"),
    ("gemini", ".gemini/settings.json", '{"general": {"defaultApprovalMode": "plan"}}', "plan"),
    ("gemini", ".gemini/settings.json", '{"general": {"defaultApprovalMode": "default"}}', ""),
    ("qwen", ".qwen/settings.json", '{"tools": {"approvalMode": "default"}}', ""),
    ("gemini", ".gemini/settings.json", '{"security": {"disableYoloMode": true}}', "edits"),
    ("qwen", ".qwen/settings.json", '{"tools": {"approvalMode": "auto-edit"}}', "edits"),
    ("opencode", "opencode.json", '{"permission": {"bash": "ask"}}', "edits"),
    ("opencode", "opencode.json", '{"permission": {"bash": {"git *": "allow", "*": "ask"}}}', "edits"),
    ("opencode", "opencode.json", '{"permission": "ask"}', "read-only"),
    ("opencode", "opencode.json", '{"permission": {"edit": "deny"}}', None),
    ("opencode", "opencode.json", '{"default_agent": "plan"}', "plan"),
]


@pytest.mark.parametrize(("agent", "file", "text", "level"), MODES)
def test_a_safer_mode_in_the_settings_of_the_agent_is_found(
    tmp_path: Path, agent: str, file: str, text: str, level: str | None
) -> None:
    """In the project, and in the user's home by the agent's own name for it."""
    path = tmp_path / "project" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    found = get_adapter(agent).find_own_mode(Call(tmp_path / "project"), {"HOME": str(tmp_path / "home")})
    assert (found.level if found else None) == level


@pytest.mark.parametrize(
    ("agent", "file", "text", "argument", "level"),
    [
        ("claude", "mine.json", '{"permissions": {"defaultMode": "plan"}}', "--settings=mine.json", "plan"),
        ("codex", ".codex/careful.config.toml", 'sandbox_mode = "read-only"', "--profile=careful", "read-only"),
        ("codex", ".codex/config.toml", '[profiles.careful]\nsandbox_mode = "read-only"', "-p=careful", "read-only"),
    ],
)
def test_a_safer_mode_in_settings_that_the_user_passes_is_found(
    tmp_path: Path, agent: str, file: str, text: str, argument: str, level: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    found = get_adapter(agent).find_own_mode(Call(tmp_path, arguments=(argument,)), {"HOME": str(tmp_path / "home")})
    assert found and (found.level, found.path) == (level, path)


@pytest.mark.parametrize(
    ("agent", "arguments", "variables", "can_change"),
    [
        ("claude", ("--permission-mode", "plan"), {}, False),
        ("claude", ("--permission-mode=acceptEdits",), {}, True),
        ("claude", ("--permission-mode=default",), {}, False),
        ("claude", ("--permission-mode=dontAsk", "--allowedTools", "Edit"), {}, True),
        ("codex", ("-c", 'sandbox_mode="read-only"'), {}, False),
        ("codex", ("-s", "workspace-write"), {}, True),
        ("gemini", ("--approval-mode=plan",), {}, False),
        ("gemini", ("--approval-mode", "default"), {}, False),
        ("gemini", ("--approval-mode", "default", "--allowed-tools=write_file"), {}, True),
        ("qwen", ("--approval-mode=default",), {}, False),
        ("opencode", ("--agent", "plan"), {}, False),
        ("copilot", ("--plan",), {}, False),
        ("pi", ("--tools=read,grep",), {}, False),
        ("pi", ("--tools", "read,bash"), {}, True),
        ("aider", ("--chat-mode", "ask"), {}, False),
        ("goose", (), {"GOOSE_MODE": "chat"}, False),
        ("goose", (), {"GOOSE_MODE": "auto"}, True),
    ],
)
def test_arguments_with_which_an_agent_changes_no_files(
    tmp_path: Path, agent: str, arguments: tuple[str, ...], variables: dict[str, str], can_change: bool
) -> None:
    environment = {"HOME": str(tmp_path), **variables}
    assert get_adapter(agent).can_change_files(Call(tmp_path, arguments=arguments), environment) is can_change


def test_tools_that_the_settings_of_an_agent_allow_can_change_files(tmp_path: Path) -> None:
    for agent, argument, file, text in (
        ("claude", "--permission-mode=default", ".claude/settings.json", '{"permissions": {"allow": ["Edit"]}}'),
        ("gemini", "--approval-mode=default", ".gemini/settings.json", '{"tools": {"allowed": ["write_file"]}}'),
        ("qwen", "--approval-mode=default", ".qwen/settings.json", '{"permissions": {"allow": ["Edit"]}}'),
    ):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
        call = Call(tmp_path / "project", arguments=(argument,))
        assert get_adapter(agent).can_change_files(call, {"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("home", "temporary", "chosen"),
    [
        ("/home/u/.codex", "", ""),
        ("/home/u/.codex", "/home/u/tmp", ""),
        ("/home/u/.codex", "/home/u", "/tmp"),
        ("/tmp/u/.codex", "", "/var/tmp"),
        ("/tmp/u/.codex", "/home/u/tmp", "/var/tmp"),
        ("/var/tmp/u/.codex", "", ""),
        ("/var/tmp/u/.codex", "/var/tmp", "/tmp"),
    ],
)
def test_home_of_codex_is_never_in_its_temporary_directory(
    home: str, temporary: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", home)
    monkeypatch.setenv("TMPDIR", temporary)
    for agent in (Codex(), Acp("codex-acp", ("codex-acp",))):
        assert agent.environment(HERE).get("TMPDIR", "") == chosen


def test_codex_keeps_its_sandbox_for_edits_if_only_a_policy_is_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    call = Call(tmp_path, arguments=("-c", 'approval_policy="on-request"'))
    command = Codex().command(call)
    assert ("workspace-write" in command, 'approval_policy="never"' in command) == (True, False)
    (tmp_path / "config.toml").write_text('sandbox_mode = "read-only"')
    assert "--sandbox" not in Codex().command(call)


@pytest.mark.parametrize(
    ("command", "variables", "can_change"),
    [
        (("gemini", "--acp", "--approval-mode=plan"), {}, False),
        (("codex-acp",), {"INITIAL_AGENT_MODE": "read-only"}, False),
        (("goose", "acp"), {"GOOSE_MODE": "chat"}, False),
        (("copilot", "--acp", "--plan"), {}, False),
        (("qwen", "--acp"), {}, True),
        (("unknown", "--acp"), {}, True),
    ],
)
def test_agents_through_acp_that_change_no_files(
    command: tuple[str, ...], variables: dict[str, str], can_change: bool
) -> None:
    assert Acp(" ".join(command), command).can_change_files(Call(Path()), variables) is can_change


def test_mode_in_the_variables_of_an_agent_through_acp_is_kept() -> None:
    spec = AgentSpec("acp", ("goose", "acp"), environment={"GOOSE_MODE": "approve"})
    assert "--keep-mode" in make_adapter(spec).command(HERE)


def test_the_mode_of_goose_is_found_in_its_settings(tmp_path: Path) -> None:
    path = tmp_path / ".config" / "goose" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("GOOSE_PROVIDER: openai\nGOOSE_MODE: approve\n")
    for agent in (get_adapter("goose"), Acp("goose acp", ("goose", "acp"))):
        found = agent.find_own_mode(Call(tmp_path), {"HOME": str(tmp_path)})
        assert found and (found.level, found.path) == ("read-only", path)


@pytest.mark.parametrize(
    ("config", "added"),
    [
        (
            'model_provider = "own"\n[model_providers.own]\nbase_url = "x"\n',
            ["own.request_max_retries=1", "own.stream_max_retries=2"],
        ),
        ('model_provider = "own"\n[model_providers.own]\nrequest_max_retries = 9\n', ["own.stream_max_retries=2"]),
        ('model_provider = "openai"\n', []),
        ("", []),
    ],
)  # fmt: skip
def test_retries_of_codex_are_limited_unless_the_user_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, added: list[str]
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(config)
    words = Codex().command(Call(tmp_path))
    assert [word.removeprefix("model_providers.") for word in words if "max_retries" in word] == added
