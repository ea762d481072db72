"""Claude Code: how it is started and what its stream says. Measured with 2.1.197 and 2.1.325."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, PLAN, READ_ONLY, Abilities, Call
from ralph.agents.failures import failure_of
from ralph.agents.hook_config import hooks
from ralph.agents.reader import StreamReader, well_done
from ralph.agents.stream_lines import TEXT_CHARS, Data, brief, tool_text
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

_TOOLS = {"sub-agents": ("Task", "Agent", "Workflow")}
_CHANGES = ("Edit", "Write", "NotebookEdit", "Bash")
_EVENTS = ("PostToolUse", "PostToolUseFailure", "Stop")
_OWN_LIMITS = {
    "error_max_turns": "it reached its own limit of turns",
    "error_max_budget_usd": "it reached its own limit of money",
}
_STOPPED = {
    "max_tokens": "its model reached the limit of tokens of one answer: the answer is cut off",
    "refusal": "its model refused to go on",
    "model_context_window_exceeded": "the conversation no longer fits into the context of its model",
}
"""Why a turn ended that is told as a success, by the reason for which its model stopped."""
_ERRORS = {
    "authentication_failed": Failure.ACCESS,
    "billing_error": Failure.ACCESS,
    "model_not_found": Failure.ACCESS,
    "rate_limit": Failure.LIMIT,
    "overloaded": Failure.OVERLOAD,
    "server_error": Failure.OVERLOAD,
    "connection_failed": Failure.OVERLOAD,
}
_MODES = {
    FULL_AUTO: ("--dangerously-skip-permissions",),
    EDITS: ("--permission-mode", "acceptEdits"),
    # Without anybody to ask, it refuses what its default mode would ask about; what the user allowed in its
    # settings stays allowed, so its tools for changes are taken away as well (see `command`).
    READ_ONLY: ("--permission-mode", "default"),
    PLAN: ("--permission-mode", "plan"),
}


class Claude(Adapter):
    """Claude Code of Anthropic. It tells the cost itself."""

    name = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    advice = "run `claude` and type /login, or set ANTHROPIC_API_KEY"
    abilities = Abilities(
        resume=True, session=True, hooks=True, tokens=True, cost=True, budget=True, step_limit=True, tool_limits=True
    )
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    services = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
    settings = ("CLAUDE_CONFIG_DIR", ".claude")
    credentials = (".credentials.json",)
    permission_modes = _MODES
    permission_options = ("--permission-mode", "--dangerously-skip-permissions", "--permission-prompt-tool")
    hook_words = ("--settings", json.dumps({"hooks": hooks("claude", _EVENTS)}))

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode. The list of tools comes first: it would swallow a word that follows it."""
        tools = [tool for name in call.without_tools for tool in _TOOLS.get(name, (name,))]
        if call.permissions == READ_ONLY and not self.chooses_mode(call.arguments):
            tools += _CHANGES
        return (
            self.program,
            "-p",
            *(("--disallowedTools", *tools) if tools else ()),
            *("--output-format", "stream-json", "--verbose", *self.permission_words(call)),
            *(("--model", call.model) if call.model else ()),
            *(("--max-budget-usd", f"{max(call.budget, 0.000001):.6f}") if call.budget is not None else ()),
            *(("--max-turns", str(call.most_steps)) if call.most_steps is not None else ()),
            *(("--resume", call.session) if call.session else ()),
            *(self.hook_words if self.hears(call) else ()),
            *call.arguments,
        )

    def hears(self, call: Call) -> bool:
        """By hooks beside those of the user, unless the user's arguments are in their place."""
        return not {"--settings", "--bare"} & {word.partition("=")[0] for word in call.arguments}

    def environment(self, call: Call) -> Mapping[str, str]:
        """No updates, no side traffic; root must say that it knows what it does, or is refused."""
        quiet = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # It would try a key that is refused for three minutes; what is worth waiting for, the engine waits for.
            "CLAUDE_CODE_MAX_RETRIES": os.environ.get("CLAUDE_CODE_MAX_RETRIES", "3"),
        }
        return {**quiet, "IS_SANDBOX": "1"} if os.getuid() == 0 else quiet

    def reader(self, call: Call, before: Usage) -> "ClaudeReader":
        """Who reads a turn; its stream tells all that is needed."""
        return ClaudeReader()

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A key, a token, or the file that /login writes; on a Mac that is in the keychain, which is not opened."""
        told = super().sign_in(environment, home)
        if told[0] is False and (home / "Library" / "Keychains").is_dir():
            return None, "the keychain is not looked at"
        return told


@dataclass
class ClaudeReader(StreamReader):
    """Reads one turn of Claude Code."""

    messages: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Tokens in and out by message: a message comes in several lines, each with the same usage."""
    told: Usage = field(default_factory=Usage)
    """What the results so far told."""
    denied: set[str] = field(default_factory=set)

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells."""
        yield from self.begin(data.word("session_id"))
        match data.get("type"), data.get("subtype"):
            case "assistant", _:
                yield from self._assistant(data)
            case "user", _:
                for block in data.inner("message").objects("content"):
                    if block.word("type") == "tool_result":
                        failed = block.get("is_error") is True
                        yield from self.used(block.word("tool_use_id"), block.said("content"), failed=failed)
            case "system", "api_retry":
                tries, status = (
                    f"try {data.count('attempt')} of {data.count('max_retries')}",
                    data.number("error_status"),
                )
                why = data.word("error") or "an error"
                yield from self.retry(f"{tries}: {why}" + (f" ({status:.0f})" if status else ""))
            case "system", "permission_denied":
                yield from self._denial(data)
            case "rate_limit_event", _:
                yield from self._limit(data.inner("rate_limit_info"))
            case "result", _:
                yield from self._result(data)

    def _assistant(self, data: Data) -> Iterator[AgentEvent]:
        message = data.inner("message")
        if data.word("error") or message.word("model") == "<synthetic>":
            text = message.said("content") or data.word("error")
            info = data.inner("api_error_params", "rate_limit_info")
            yield from self.complain(text, self._kind(data, text), info.number("resetsAt"))
            return
        for block in message.objects("content"):
            kind, is_sub_agent = block.word("type"), bool(data.get("parent_tool_use_id"))
            if kind == "text" and not is_sub_agent:
                yield from self.say(block.word("text"))
            elif kind == "thinking" and not is_sub_agent:
                yield from self.think(block.word("thinking"))
            elif kind in ("tool_use", "server_tool_use"):
                name, given = block.word("name"), block.get("input")
                yield from self.use(block.word("id"), name, given, is_sub_agent=is_sub_agent)
        yield from self._message_usage(message.word("id"), message.inner("usage"))

    def _message_usage(self, key: str, usage: Data) -> Iterator[AgentEvent]:
        seen, told = self.messages.get(key, (0, 0)), self.meter.told
        most = max(seen[0], self._spoken(usage)), max(seen[1], usage.count("output_tokens"))
        self.messages[key] = most
        yield from self.meter.rise(told.input_tokens + most[0] - seen[0], told.output_tokens + most[1] - seen[1])

    def _denial(self, data: Data) -> Iterator[AgentEvent]:
        """A denial is told when it happens, by newer versions, and again at the end."""
        key, given = data.word("tool_use_id"), data.get("tool_input")
        used = self.tools.get(key) or tool_text(data.word("tool_name"), given or data.word("message"))
        if (key or used) not in self.denied:
            self.denied.add(key or used)
            yield AgentEvent(Kind.DENIED, used)

    def _limit(self, info: Data) -> Iterator[AgentEvent]:
        if info.word("status") == "rejected" and info.get("isUsingOverage") is not True:
            which = brief(info.word("rateLimitType").replace("_", "-")) or "usage"
            text = f"the {which} limit of its provider is reached"
            yield from self.complain(text, Failure.LIMIT, info.number("resetsAt"))

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end: `is_error` says how, whatever `subtype` says; older versions told their own limits by it alone."""
        yield from self._total(data)
        for denial in data.objects("permission_denials"):
            yield from self._denial(denial)
        way = data.word("subtype")
        if data.get("is_error") is False and not way.startswith("error"):
            if why := _STOPPED.get(data.word("stop_reason")):
                yield from self.warn(why)
            yield well_done(data.word("result"))
            return
        errors = data.said("errors") if isinstance(data.get("errors"), list) else ""
        text = data.word("result") or errors or data.inner("error").word("message") or way
        if way in _OWN_LIMITS:
            yield from self.fail(f"{_OWN_LIMITS[way]} ({brief(text)})", Failure.AGENT)
        else:
            yield from self.fail(text, self._kind(data, text))

    def _kind(self, data: Data, text: str) -> Failure:
        named = _ERRORS.get(data.word("error")) or _ERRORS.get(data.word("api_error"))
        return named or failure_of(text[:TEXT_CHARS], data.number("api_error_status"))

    def _total(self, data: Data) -> Iterator[AgentEvent]:
        """What is missing to the totals of this process.

        After a resume, newer versions tell those of the whole conversation in `modelUsage` and `total_cost_usd`.
        """
        own = "model_usage_since_last_result"
        is_own = isinstance(data.get(own), dict)
        by_model = data.inner(own if is_own else "modelUsage")
        models, names = [Data.of(one) for one in by_model.values()], ", ".join(by_model) or self.model
        cached = sum(one.count("cacheReadInputTokens") for one in models)
        spoken = sum(one.count("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens") for one in models)
        heard = sum(one.count("outputTokens") for one in models)
        if is_own:
            cost = sum(one.money("costUSD") or 0.0 for one in models)
            self.told += Usage(spoken, heard, cost, cached_tokens=cached)
            told = self.told
            yield from self.meter.rise(
                told.input_tokens, told.output_tokens, told.cost, cached=told.cached_tokens, model=names
            )
            return
        if not models:
            usage = data.inner("usage")
            spoken, heard = self._spoken(usage), usage.count("output_tokens")
            cached = usage.count("cache_read_input_tokens")
        yield from self.meter.rise(spoken, heard, self._cost(data), cached=cached, model=names)

    def _spoken(self, usage: Data) -> int:
        """Tokens in, those of a cache included."""
        return usage.count("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

    def _cost(self, data: Data) -> float | None:
        """What a result says that all of it cost."""
        return data.money("total_cost_usd")
