"""Claude Code: how it is started and what its stream says. Measured with 2.1.197 and 2.1.325."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import Abilities, Call
from ralph.agents.hearing import hooks
from ralph.agents.lines import (
    TEXT_CHARS,
    Complaints,
    Data,
    Meter,
    brief,
    count,
    failure_of,
    gone_wrong,
    inner,
    moment,
    money,
    number,
    objects,
    parse,
    prose,
    said,
    tool_text,
    well_done,
    word,
)
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

_TOOLS = {"sub-agents": ("Task", "Agent", "Workflow")}
_EVENTS = ("PostToolUse", "PostToolUseFailure", "Stop")
_OWN_LIMITS = {
    "error_max_turns": "it reached its own limit of turns",
    "error_max_budget_usd": "it reached its own limit of money",
}
_ERRORS = {
    "authentication_failed": Failure.ACCESS,
    "billing_error": Failure.ACCESS,
    "model_not_found": Failure.ACCESS,
    "rate_limit": Failure.LIMIT,
    "overloaded": Failure.OVERLOAD,
    "server_error": Failure.OVERLOAD,
    "connection_failed": Failure.OVERLOAD,
}


class Claude(Adapter):
    """Claude Code of Anthropic. It tells the cost itself."""

    name = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    advice = "run `claude` and type /login, or set ANTHROPIC_API_KEY"
    abilities = Abilities(
        resume=True,
        session=True,
        hooks=True,
        tokens=True,
        cost=True,
        budget=True,
        step_limit=True,
        tool_limits=True,
    )
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    services = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
    settings = ("CLAUDE_CONFIG_DIR", ".claude")
    credentials = (".credentials.json",)
    hook_words = ("--settings", json.dumps({"hooks": hooks("claude", _EVENTS)}))

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode with all permissions. The list of tools comes first: it would swallow a word that follows it."""
        tools = [tool for name in call.without_tools for tool in _TOOLS.get(name, (name,))]
        return (
            self.program,
            "-p",
            *(("--disallowedTools", *tools) if tools else ()),
            *("--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
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
class ClaudeReader:
    """Reads one turn of Claude Code."""

    session: str = ""
    meter: Meter = field(default_factory=Meter)
    complaints: Complaints = field(default_factory=Complaints)
    messages: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Tokens in and out by message: a message comes in several lines, each with the same usage."""
    done: Usage = field(default_factory=Usage)
    """What the results so far told."""
    tools: dict[str, str] = field(default_factory=dict)
    """The tools in use, by id."""
    denied: set[str] = field(default_factory=set)

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        data = parse(line)
        return [*self._session(data), *self._events(data)] if data else []

    def _session(self, data: Data) -> Iterator[AgentEvent]:
        session = brief(word(data, "session_id"))
        if session and session != self.session:
            self.session = session
            yield AgentEvent(Kind.SESSION, session=session)

    def _events(self, data: Data) -> Iterator[AgentEvent]:
        match data.get("type"), data.get("subtype"):
            case "assistant", _:
                yield from self._assistant(data)
            case "user", _:
                yield from self._results(data)
            case "system", "api_retry":
                why = word(data, "error") or "an error"
                tries = f"try {count(data, 'attempt')} of {count(data, 'max_retries')}"
                status = number(data, "error_status")
                yield AgentEvent(Kind.RETRY, brief(f"{tries}: {why}" + (f" ({status:.0f})" if status else "")))
            case "system", "permission_denied":
                yield from self._denial(data)
            case "rate_limit_event", _:
                yield from self._limit(data)
            case "result", _:
                yield from self._result(data)

    def _assistant(self, data: Data) -> Iterator[AgentEvent]:
        message = inner(data, "message")
        if word(data, "error") or word(message, "model") == "<synthetic>":
            text = said(message.get("content")) or word(data, "error")
            info = inner(data, "api_error_params", "rate_limit_info")
            yield from self.complaints.about(text, moment(data), self._kind(data, text), number(info, "resetsAt"))
            return
        for block in objects(message, "content"):
            kind, text = word(block, "type"), prose(word(block, "text"))
            if kind == "text" and text and not data.get("parent_tool_use_id"):
                yield AgentEvent(Kind.TEXT, text)
            elif kind in ("tool_use", "server_tool_use"):
                used = tool_text(word(block, "name"), block.get("input"))
                self.tools[word(block, "id")] = used
                yield AgentEvent(Kind.TOOL, used)
        yield from self._message_usage(word(message, "id"), inner(message, "usage"))

    def _message_usage(self, key: str, usage: Data) -> Iterator[AgentEvent]:
        spoken = self._spoken(usage)
        seen = self.messages.get(key, (0, 0))
        most = max(seen[0], spoken), max(seen[1], count(usage, "output_tokens"))
        self.messages[key] = most
        told = self.meter.told
        yield from self.meter.rise(
            told.input_tokens + most[0] - seen[0],
            told.output_tokens + most[1] - seen[1],
        )

    def _results(self, data: Data) -> Iterator[AgentEvent]:
        for block in objects(inner(data, "message"), "content"):
            if word(block, "type") == "tool_result":
                self.tools.pop(word(block, "tool_use_id"), None)
                text = brief(said(block.get("content")))
                yield AgentEvent(Kind.TOOL_RESULT, text, is_error=block.get("is_error") is True)

    def _denial(self, data: Data) -> Iterator[AgentEvent]:
        """A denial is told when it happens, by newer versions, and again at the end."""
        key, given = word(data, "tool_use_id"), data.get("tool_input")
        used = self.tools.get(key) or tool_text(word(data, "tool_name"), given or word(data, "message"))
        if (key or used) not in self.denied:
            self.denied.add(key or used)
            yield AgentEvent(Kind.DENIED, used)

    def _limit(self, data: Data) -> Iterator[AgentEvent]:
        info = inner(data, "rate_limit_info")
        if word(info, "status") == "rejected" and info.get("isUsingOverage") is not True:
            which = brief(word(info, "rateLimitType").replace("_", "-")) or "usage"
            text, now = f"the {which} limit of its provider is reached", moment(data)
            yield from self.complaints.about(text, now, Failure.LIMIT, number(info, "resetsAt"))

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end: `is_error` says how, whatever `subtype` says; older versions told their own limits by it alone."""
        yield from self._total(data)
        for denial in objects(data, "permission_denials"):
            yield from self._denial(denial)
        way = word(data, "subtype")
        if data.get("is_error") is False and not way.startswith("error"):
            yield well_done(word(data, "result"))
            return
        errors = data.get("errors")
        why = said(errors if isinstance(errors, list) else "") or word(inner(data, "error"), "message")
        text = word(data, "result") or why or way or "it failed"
        if way in _OWN_LIMITS:
            text, kind = f"{_OWN_LIMITS[way]} ({brief(text)})", Failure.AGENT
        else:
            kind = self._kind(data, text)
        yield from self.complaints.about(text, moment(data), kind)
        yield gone_wrong(text, kind)

    def _kind(self, data: Data, text: str) -> Failure:
        named = _ERRORS.get(word(data, "error")) or _ERRORS.get(word(data, "api_error"))
        return named or failure_of(text[:TEXT_CHARS], number(data, "api_error_status"))

    def _total(self, data: Data) -> Iterator[AgentEvent]:
        """What is missing to the totals of this process.

        After a resume, newer versions tell those of the whole conversation in `modelUsage` and `total_cost_usd`.
        """
        own = data.get("model_usage_since_last_result")
        models = objects({"all": list(inner(own if isinstance(own, dict) else data.get("modelUsage")).values())}, "all")
        spoken = sum(count(one, "inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens") for one in models)
        heard = sum(count(one, "outputTokens") for one in models)
        if isinstance(own, dict):
            self.done += Usage(spoken, heard, sum(money(one, "costUSD") or 0.0 for one in models))
            yield from self.meter.rise(self.done.input_tokens, self.done.output_tokens, self.done.cost)
            return
        if not models:
            usage = inner(data, "usage")
            spoken, heard = self._spoken(usage), count(usage, "output_tokens")
        yield from self.meter.rise(spoken, heard, self._cost(data))

    def _spoken(self, usage: Data) -> int:
        """Tokens in, those of a cache included."""
        return count(usage, "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

    def _cost(self, data: Data) -> float | None:
        """What a result says that all of it cost."""
        return money(data, "total_cost_usd")
