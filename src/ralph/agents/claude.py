"""Claude Code: how it is started and what its stream says. Measured with 2.1.197 and 2.1.325.

Amp and Cursor CLI are here too, because their streams have the same format. Both follow their documentation, and were
never tested with the real program.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.adapter import (
    CANNOT_ASK,
    EDITS,
    FULL_AUTO,
    PLAN,
    READ_ONLY,
    Abilities,
    Adapter,
    Call,
    OwnMode,
    build_hooks,
    list_ralph_commands,
    option_values,
    options_in,
    read_version,
)
from ralph.agents.failures import classify_failure
from ralph.agents.prices import Prices
from ralph.agents.reader import StreamReader, success_result
from ralph.agents.stream_lines import TEXT_CHARS, Data, describe_tool, one_line, read_settings
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, EventKind, Failure

_READS_AGENTS_FILE = (2, 1, 325)
_TOOLS = {"sub-agents": ("Task", "Agent", "Workflow")}
_CHANGES = ("Edit", "Write", "NotebookEdit", "Bash")
_EVENTS = ("PostToolUse", "PostToolUseFailure", "Stop")
_OWN_LIMITS = {
    "error_max_turns": "it reached its own turn limit",
    "error_max_budget_usd": "it reached its own cost limit",
}
_STOPPED = {
    "max_tokens": "its model reached the token limit of one answer: the answer is cut off",
    "refusal": "its model refused to continue",
    "model_context_window_exceeded": "the conversation no longer fits into the context of its model",
}
"""Why a model stopped. Claude Code reports such a turn as a success."""
_ERRORS = {
    "authentication_failed": Failure.ACCESS,
    "billing_error": Failure.ACCESS,
    "model_not_found": Failure.ACCESS,
    "rate_limit": Failure.LIMIT,
    "overloaded": Failure.OVERLOAD,
    "server_error": Failure.OVERLOAD,
    "connection_failed": Failure.OVERLOAD,
}
_OWN_LEVELS = {"acceptEdits": EDITS, "plan": PLAN, "dontAsk": READ_ONLY, "auto": ""}
"""The modes that its settings can choose, beside those in which it asks."""
_ASKING_MODES = ("default", "manual")
_MANAGED = Path("/etc/claude-code/managed-settings.json")
_MODES = {
    FULL_AUTO: ("--dangerously-skip-permissions",),
    EDITS: ("--permission-mode", "acceptEdits"),
    # In print mode it refuses what its default mode would ask about. What the user allowed in its settings stays
    # allowed, so `command` also takes away its tools for changes.
    READ_ONLY: ("--permission-mode", "default"),
    PLAN: ("--permission-mode", "plan"),
}


class Claude(Adapter):
    """Claude Code, by Anthropic. It reports the cost itself."""

    name = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    advice = "run `claude` and type /login, or set ANTHROPIC_API_KEY"
    abilities = Abilities(
        resume=True,
        session=True,
        hooks=True,
        tokens=True,
        cost=True,
        quota=True,
        budget=True,
        step_limit=True,
        tool_limits=True,
    )
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    services = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
    settings = ("CLAUDE_CONFIG_DIR", ".claude")
    instruction_files = ("CLAUDE.md",)
    permission_modes = _MODES
    permission_options = ("--permission-mode", "--dangerously-skip-permissions", "--permission-prompt-tool")
    reading_arguments = ("--permission-mode=plan",)
    asking_arguments = tuple(f"--permission-mode={mode}" for mode in ("default", "manual", "dontAsk"))
    levels_with_ralph = (FULL_AUTO, EDITS, PLAN)
    hook_arguments = ("--settings", json.dumps({"hooks": build_hooks("claude", _EVENTS)}))

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode. The lists of tools come before other options: they would swallow an argument that follows them."""
        tools: list[str] = []
        allowed: list[str] = []
        for name in call.without_tools:
            tools += _TOOLS.get(name, (name,))
        if self.is_restricted(call):
            # Claude Code allows a command by such a rule only if it does nothing else: no `&&`, no `$(...)`.
            allowed = [f"Bash({command}:*)" for command in list_ralph_commands(call)]
        if call.permissions == READ_ONLY and not self.chooses_mode(call.arguments):
            tools += _CHANGES
        return (
            self.program,
            "-p",
            *(("--allowedTools", *allowed) if allowed else ()),
            *(("--disallowedTools", *tools) if tools else ()),
            *("--output-format", "stream-json", "--verbose", *self.permission_arguments(call)),
            *(("--model", call.model) if call.model else ()),
            *(("--max-budget-usd", f"{max(call.budget, 0.000001):.6f}") if call.budget is not None else ()),
            *(("--max-turns", str(call.most_steps)) if call.most_steps is not None else ()),
            *(("--resume", call.session) if call.session else ()),
            *(self.hook_arguments if self.can_receive_messages(call) else ()),
            *call.arguments,
        )

    def find_own_mode(self, call: Call, environment: Mapping[str, str]) -> OwnMode | None:
        """`permissions.defaultMode`: of the machine, of the file that the user passes, of the project, or of the user.

        With `disableBypassPermissionsMode`, it denies everything if it is started with every permission.
        """
        for path in self._list_settings(call, environment):
            permissions = read_settings(path).inner("permissions")
            mode = permissions.text("defaultMode")
            if mode in _ASKING_MODES:
                return OwnMode("", f"permissions.defaultMode: {mode}", path, CANNOT_ASK)
            if mode in _OWN_LEVELS:
                return OwnMode(_OWN_LEVELS[mode], f"permissions.defaultMode: {mode}", path)
            if permissions.text("disableBypassPermissionsMode") == "disable":
                return OwnMode(EDITS, "permissions.disableBypassPermissionsMode", path)
        return None

    def allows_tools(self, call: Call, environment: Mapping[str, str]) -> bool:
        """Also with rules in its settings."""
        files = self._list_settings(call, environment)
        has_rules = any(read_settings(path).inner("permissions").get("allow") for path in files)
        return has_rules or super().allows_tools(call, environment)

    def _list_settings(self, call: Call, environment: Mapping[str, str]) -> list[Path]:
        """Its settings files, the one that counts most first."""
        project = call.workspace / ".claude"
        passed = [call.workspace / file for file in option_values(call.arguments, "--settings")]
        own = self.settings_home(environment) / "settings.json"
        return [_MANAGED, *passed, project / "settings.local.json", project / "settings.json", own]

    def can_receive_messages(self, call: Call) -> bool:
        """Through hooks beside those of the user, unless the user's arguments replace our settings."""
        return options_in(call.arguments).isdisjoint(("--settings", "--bare"))

    def reads_instructions(self, name: str, workspace: Path) -> bool:
        """As any agent. Versions such as 2.1.325 read AGENTS.md if there is no CLAUDE.md; 2.1.197 does not."""
        if name == "AGENTS.md" and not (workspace / "CLAUDE.md").exists():
            version = read_version(self.program)
            return version is not None and version >= _READS_AGENTS_FILE
        return super().reads_instructions(name, workspace)

    def environment(self, call: Call) -> Mapping[str, str]:
        """No updates and no side traffic. As root, it refuses to skip permissions unless IS_SANDBOX is set."""
        quiet = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # By default it retries a rejected key for three minutes. The engine waits for what is worth waiting for.
            "CLAUDE_CODE_MAX_RETRIES": os.environ.get("CLAUDE_CODE_MAX_RETRIES", "3"),
        }
        if os.getuid() == 0:
            return {**quiet, "IS_SANDBOX": "1"}
        return quiet

    def reader(self, call: Call, before: Usage) -> "ClaudeReader":
        """Its stream reports everything that the reader needs."""
        return ClaudeReader()

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A key, a token, or what /login writes. On macOS, /login writes to the keychain, which Ralph does not open."""
        signed_in, detail = super().sign_in(environment, home)
        if signed_in is not False:
            return signed_in, detail
        directory = self.settings_in(environment, home)
        login, settings = directory / ".credentials.json", directory / "settings.json"
        # A key of the API that /login got is beside its settings, or in the directory that the variable names.
        state = Path(environment.get(self.settings[0]) or home) / ".claude.json"
        if _has_token(login):
            return True, str(login)
        if read_settings(settings).text("apiKeyHelper"):
            return None, f"`apiKeyHelper` in {settings}; Ralph does not run it"
        if any(map(read_settings(settings).inner("env").text, self.keys)):
            return True, str(settings)
        if read_settings(state).text("primaryApiKey"):
            return True, str(state)
        if (home / "Library" / "Keychains").is_dir():
            return None, "Ralph does not open the keychain"
        return False, f"{login} has no sign-in: {self.advice}" if login.exists() else self.advice


def _has_token(path: Path) -> bool:
    """Whether the file that /login writes has a token that may ask a model. Claude Code ignores others."""
    account = read_settings(path).inner("claudeAiOauth")
    scopes = account.get("scopes")
    return bool(account.text("accessToken")) and isinstance(scopes, list) and "user:inference" in scopes


@dataclass
class ClaudeReader(StreamReader):
    """Reads one turn of Claude Code."""

    messages: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Tokens in and out by message. A message comes in several lines, each with the same usage."""
    results_total: Usage = field(default_factory=Usage)
    """The sum of the usage in the results so far."""
    denied: set[str] = field(default_factory=set)

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line."""
        yield from self.start_session(data.text("session_id"))
        match data.get("type"), data.get("subtype"):
            case "assistant", _:
                yield from self._assistant(data)
            case "user", _:
                for block in data.inner("message").objects("content"):
                    if block.text("type") == "tool_result":
                        key, text = block.text("tool_use_id"), block.content_text("content")
                        yield from self.finish_tool(key, text, failed=block.get("is_error") is True)
            case "system", "api_retry":
                attempt = f"try {data.count('attempt')} of {data.count('max_retries')}"
                error = data.text("error") or "an error"
                if status := data.number("error_status"):
                    error = f"{error} ({status:.0f})"
                yield from self.retry(f"{attempt}: {error}")
            case "system", "permission_denied":
                yield from self._denial(data)
            case "rate_limit_event", _:
                yield from self._limit(data.inner("rate_limit_info"))
            case "result", _:
                yield from self._result(data)

    def _assistant(self, data: Data) -> Iterator[AgentEvent]:
        message = data.inner("message")
        if data.text("error") or message.text("model") == "<synthetic>":
            text = message.content_text("content") or data.text("error")
            info = data.inner("api_error_params", "rate_limit_info")
            yield from self.report_error(text, self._classify(data, text), info.number("resetsAt"))
            return
        is_sub_agent = bool(data.get("parent_tool_use_id"))
        for block in message.objects("content"):
            kind = block.text("type")
            if kind == "text" and not is_sub_agent:
                yield from self.say(block.text("text"))
            elif kind == "thinking" and not is_sub_agent:
                yield from self.think(block.text("thinking"))
            elif kind in ("tool_use", "server_tool_use"):
                yield from self.start_tool(
                    block.text("id"), block.text("name"), block.get("input"), is_sub_agent=is_sub_agent
                )
        yield from self._message_usage(message.text("id"), message.inner("usage"))

    def _message_usage(self, key: str, usage: Data) -> Iterator[AgentEvent]:
        """Add what this line reports beyond the earlier lines of the same message."""
        known_input, known_output = self.messages.get(key, (0, 0))
        input_tokens = max(known_input, self._input_tokens(usage))
        output_tokens = max(known_output, usage.count("output_tokens"))
        self.messages[key] = input_tokens, output_tokens
        total = self.meter.total
        yield from self.meter.add_total(
            total.input_tokens + input_tokens - known_input, total.output_tokens + output_tokens - known_output
        )

    def _denial(self, data: Data) -> Iterator[AgentEvent]:
        """Newer versions report a denial when it happens, and again at the end."""
        key, arguments = data.text("tool_use_id"), data.get("tool_input")
        tool = self.tools.get(key) or describe_tool(data.text("tool_name"), arguments or data.text("message"))
        if (key or tool) not in self.denied:
            self.denied.add(key or tool)
            yield AgentEvent(EventKind.DENIED, tool)

    def _limit(self, info: Data) -> Iterator[AgentEvent]:
        """A report about the limits of a subscription. Older versions name only the window that is used most."""
        by_window = info.inner("unifiedWindows") or {info.text("rateLimitType"): info}
        windows = []
        for name, value in by_window.items():
            window = Data.of(value)
            if (share := window.number("utilization")) is not None:
                windows.append((share, name, window.number("resetsAt")))
        yield from self.report_quota(windows)
        if info.text("status") == "rejected" and info.get("isUsingOverage") is not True:
            limit = one_line(info.text("rateLimitType").replace("_", "-")) or "usage"
            text = f"the {limit} limit of its provider is reached"
            yield from self.report_error(text, Failure.LIMIT, info.number("resetsAt"))

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end. `is_error` decides, not `subtype`; but older versions report their own limits only in `subtype`."""
        yield from self._report_result_usage(data)
        for denial in data.objects("permission_denials"):
            yield from self._denial(denial)
        subtype = data.text("subtype")
        if data.get("is_error") is False and not subtype.startswith("error"):
            if reason := _STOPPED.get(data.text("stop_reason")):
                yield from self.warn(reason)
            yield success_result(data.text("result"))
            return
        errors = data.content_text("errors") if isinstance(data.get("errors"), list) else ""
        text = data.text("result") or errors or data.inner("error").text("message") or subtype
        if subtype in _OWN_LIMITS:
            yield from self.fail(f"{_OWN_LIMITS[subtype]} ({one_line(text)})", Failure.AGENT)
        else:
            yield from self.fail(text, self._classify(data, text))

    def _classify(self, data: Data, text: str) -> Failure:
        named = _ERRORS.get(data.text("error")) or _ERRORS.get(data.text("api_error"))
        return named or classify_failure(text[:TEXT_CHARS], data.number("api_error_status"))

    def _report_result_usage(self, data: Data) -> Iterator[AgentEvent]:
        """Report the totals of this process.

        After a resume, `modelUsage` and `total_cost_usd` of newer versions count the whole conversation. Those versions
        also report what was used since the last result.
        """
        since_last = "model_usage_since_last_result"
        has_since_last = isinstance(data.get(since_last), dict)
        by_model = data.inner(since_last if has_since_last else "modelUsage")
        names = ", ".join(by_model) or self.model
        models = [Data.of(usage) for usage in by_model.values()]
        cached = sum(usage.count("cacheReadInputTokens") for usage in models)
        input_tokens = sum(
            usage.count("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens") for usage in models
        )
        output_tokens = sum(usage.count("outputTokens") for usage in models)
        if has_since_last:
            cost = sum(usage.money("costUSD") or 0.0 for usage in models)
            self.results_total += Usage(input_tokens, output_tokens, cost, cached_tokens=cached)
            total = self.results_total
            yield from self.meter.add_total(
                total.input_tokens, total.output_tokens, total.cost, cached=total.cached_tokens, model=names
            )
            return
        if not models:
            usage = data.inner("usage")
            input_tokens, output_tokens = self._input_tokens(usage), usage.count("output_tokens")
            cached = usage.count("cache_read_input_tokens")
        yield from self.meter.add_total(input_tokens, output_tokens, self._cost(data), cached=cached, model=names)

    def _input_tokens(self, usage: Data) -> int:
        """Tokens in, including those of the cache."""
        return usage.count("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

    def _cost(self, data: Data) -> float | None:
        """The total cost that a result reports."""
        return data.money("total_cost_usd")


_AMP_MODES = {FULL_AUTO: ("--dangerously-allow-all",)}


class Amp(Adapter):
    """Amp, which chooses its models itself. A model is one of its modes here: `low`, `medium` or `high`."""

    name = "amp"
    install = "npm install -g @ampcode/cli"
    advice = "run `amp login`, or set AMP_API_KEY"
    abilities = Abilities(resume=True, session=True, tokens=True)
    keys = ("AMP_API_KEY",)
    settings = ("", ".local/share/amp")
    credentials = ("secrets.json",)

    instruction_files = ("AGENTS.md",)
    permission_modes = _AMP_MODES
    permission_options = ("--dangerously-allow-all",)

    def command(self, call: Call) -> tuple[str, ...]:
        """Execute mode with every tool allowed, and thoughts in the output. Amp calls a conversation a thread."""
        return (
            self.program,
            *(("threads", "continue", call.session) if call.session else ()),
            *("--execute", "--stream-json-thinking", *self.permission_arguments(call), "--no-ide"),
            *(("--mode", call.model) if call.model else ()),
            *call.arguments,
        )

    def model_of(self, call: Call) -> str:
        """Unknown: `call.model` is a mode."""
        return ""

    def reader(self, call: Call, before: Usage) -> "AmpReader":
        """Each message reports what it used."""
        return AmpReader()

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Without a key, Amp reads the prompt as the code with which the user signs in."""
        failure = super().failure(code, stderr)
        if failure and "Login failed" in failure[1]:
            return Failure.ACCESS, failure[1]
        return failure


class AmpReader(ClaudeReader):
    """Reads one turn of Amp."""

    def _message_usage(self, key: str, usage: Data) -> Iterator[AgentEvent]:
        """A message can lack an id, and comes in one line."""
        return super()._message_usage(key or f"number {len(self.messages)}", usage)

    def _input_tokens(self, usage: Data) -> int:
        """Tokens in, which already include those of the cache."""
        cached = usage.count("cache_read_input_tokens", "cache_creation_input_tokens")
        return max(usage.count("input_tokens"), cached)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end. An error has its own key, and denials are plain texts."""
        denials = data.get("permission_denials")
        for tool in denials if isinstance(denials, list) else ():
            if isinstance(tool, str) and one_line(tool):
                yield AgentEvent(EventKind.DENIED, one_line(tool))
        yield from super()._result(Data({**data, "result": data.text("result", "error")}))


_CURSOR_MODES = {FULL_AUTO: ("--force",), READ_ONLY: ("--mode", "ask"), PLAN: ("--mode", "plan")}


class Cursor(Adapter):
    """The command line agent of Cursor. If it fails, its stream can end without an error, which is on standard error."""

    name = "cursor"
    install = "curl https://cursor.com/install -fsS | bash"
    advice = "run `cursor-agent login`, or set CURSOR_API_KEY"
    abilities = Abilities(resume=True, session=True, tokens=True)
    keys = ("CURSOR_API_KEY",)
    settings = ("", ".config/cursor")
    credentials = ("auth.json",)

    instruction_files = ("AGENTS.md", "CLAUDE.md")
    permission_modes = _CURSOR_MODES
    permission_options = ("--force", "-f", "--yolo", "--mode", "--plan")
    reading_arguments = ("--plan", "--mode=plan", "--mode=ask")

    def __init__(self, program: str = "", prices: Prices | None = None) -> None:
        super().__init__(program or "cursor-agent", prices)

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode with everything allowed."""
        return (
            self.program,
            *("-p", *self.permission_arguments(call), "--output-format", "stream-json"),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "CursorReader":
        """The usage at the end is that of the turn."""
        return CursorReader(self.prices, call.model)


class CursorReader(ClaudeReader):
    """Reads one turn of Cursor CLI."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line."""
        if data.get("type") == "thinking":
            return self.think(data.text("text"))
        if data.get("type") == "tool_call":
            return self._tool(data)
        return super().events(data)

    def _tool(self, data: Data) -> Iterator[AgentEvent]:
        """The key of a tool's input names the tool, as `shellToolCall`. MCP tools are under `function`."""
        call = data.inner("tool_call")
        name = next((key for key in call if key.endswith("ToolCall")), "")
        body = call.inner(name or "function")
        result, name = body.inner("result"), name.removesuffix("ToolCall") or body.text("name")
        arguments = body.get("args") or body.get("arguments") or result.inner("rejected")
        key = data.text("call_id")
        if data.get("subtype") == "started":
            yield from self.start_tool(key, name, arguments)
        elif data.get("subtype") == "completed":
            self.tools[key] = describe_tool(name, arguments)
            outcome = result.inner("success")
            text = outcome.text("stdout", "stderr", "content") or next(iter(result), "")
            failed = "success" not in result or bool(outcome.number("exitCode"))
            yield from self.finish_tool(key, text, failed=failed, denied="rejected" in result)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end. Its text is that of the whole turn, but the answer is only the last message."""
        answer = self.buffer.last_message if data.get("is_error") is False else ""
        yield from super()._result(Data({**data, "result": answer}) if answer else data)

    def _report_result_usage(self, data: Data) -> Iterator[AgentEvent]:
        usage = data.inner("usage")
        input_tokens = usage.count("inputTokens", "cacheReadTokens", "cacheWriteTokens")
        tokens = input_tokens, usage.count("cacheReadTokens"), usage.count("outputTokens")
        yield from self.report_total({self.model: tokens})
