"""Qwen Code: how it is started and what its stream says, which has the format of Claude Code.

Measured with 0.15.10 and 0.24.4.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    add_hooks,
    build_hooks,
    cache_path,
    short_hash,
    write_if_changed,
)
from ralph.agents.claude import ClaudeReader
from ralph.agents.prices import cost_of
from ralph.agents.reader import Meter
from ralph.agents.stream_lines import TEXT_CHARS, Data, read_model, read_settings
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, Failure

_TOOLS = {"sub-agents": "agent"}
_EVENTS = ("PostToolUse", "PostToolUseFailure", "Stop")
_DEFAULTS = "QWEN_CODE_SYSTEM_DEFAULTS_PATH"
_OURS = {
    # Without it, a limit without an end is retried ten times in 40 minutes before the engine has a say.
    "model": {"generationConfig": {"maxRetries": 2, "retryInitialDelayMs": 2000, "retryMaxDelayMs": 20_000}},
    # With ACP, it asks its model after every turn what the user could type next.
    "ui": {"enableFollowupSuggestions": False},
}
"""Our settings beside the hooks. Settings of the user and of the machine win over them."""
_OWN_LIMIT = 53
"""Its exit code when it reaches its own limit of turns."""
_MARK = "[API Error: "
_ERROR = re.compile(r"\[API Error: .*\](?:\n[^\n]*)?|Qwen OAuth (?:quota exceeded|free tier).*", re.DOTALL)
_MODES = {
    FULL_AUTO: ("--yolo",),
    EDITS: ("--approval-mode", "auto-edit"),
    READ_ONLY: ("--approval-mode", "default"),
    PLAN: ("--approval-mode", "plan"),
}


_KEYS = {
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
"""The variable with the key for each way to sign in."""
_METHODS = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "gemini": ("GEMINI_API_KEY", "GEMINI_MODEL"),
    "vertex-ai": ("GOOGLE_API_KEY", "GOOGLE_MODEL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL"),
}
"""The variables that together choose a way to sign in. For `openai`, also OPENAI_MODEL or QWEN_MODEL."""


def _find_method(variables: Mapping[str, object]) -> str:
    """The way to sign in that variables choose; empty if they choose none."""
    for method, names in _METHODS.items():
        has_model = method != "openai" or variables.get("OPENAI_MODEL") or variables.get("QWEN_MODEL")
        if has_model and all(map(variables.get, names)):
            return method
    return ""


def _list_key_variables(providers: object) -> Iterator[str]:
    """The variables in which its own providers look for their keys (`envKey`)."""
    if isinstance(providers, dict):
        if name := Data(providers).text("envKey"):
            yield name
        providers = list(providers.values())
    if isinstance(providers, list):
        for one in providers:
            yield from _list_key_variables(one)


_OWN_LEVELS = {"auto-edit": EDITS, "plan": PLAN, "auto": ""}
"""The modes that its settings can choose. The mode `default` is that of users who chose none."""


class Qwen(Adapter):
    """Qwen Code, by Alibaba, with any model that has an API like OpenAI's."""

    name = "qwen"
    install = "npm install -g @qwen-code/qwen-code"
    advice = "run `qwen auth`, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL"
    abilities = Abilities(
        resume=True, session=True, hooks=True, tokens=True, names_model=True, step_limit=True, tool_limits=True
    )
    settings = ("QWEN_HOME", ".qwen")

    # It refuses a command that starts with a variable: "Could not identify command root to obtain permission".
    refuses_variables = True
    instruction_files = ("AGENTS.md", "QWEN.md")
    permission_modes = _MODES
    permission_options = ("--approval-mode", "--yolo", "-y")
    reading_arguments = ("--approval-mode=plan",)
    asking_arguments = ("--approval-mode=default",)

    def command(self, call: Call) -> tuple[str, ...]:
        """The list of tools comes before other options: it would swallow an argument that follows it."""
        tools = [_TOOLS.get(name, name) for name in call.without_tools]
        return (
            self.program,
            *(("--exclude-tools", *tools) if tools else ()),
            *("-o", "stream-json", *self.permission_arguments(call)),
            *(("-m", call.model) if call.model else ()),
            *(("--max-session-turns", str(call.most_steps)) if call.most_steps is not None else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """`model.name` in its settings, the project's first; else `OPENAI_MODEL` or `QWEN_MODEL`."""
        home = self.settings_home(environment)
        named = read_model(call.workspace / ".qwen" / "settings.json", home / "settings.json")
        return named or environment.get("OPENAI_MODEL", "") or environment.get("QWEN_MODEL", "")

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """By the method in its settings, else by the variables, as Qwen Code itself decides without a terminal.

        Its settings can hold the key, variables with keys, and providers that name such variables.
        """
        directory = self.settings_in(environment, home)
        settings = read_settings(directory / "settings.json")
        own = settings.inner("security", "auth")
        variables = {**settings.inner("env"), **environment}
        method = own.text("selectedType") or _find_method(variables)
        if not method:
            return False, self.advice
        if method == "qwen-oauth":
            return False, "run `qwen auth` and choose a provider: Qwen Code no longer accepts its own accounts"
        if method not in _KEYS:
            return None, f"it uses {method}; Ralph does not check the sign-in of that service"
        names = [_KEYS[method], *_list_key_variables(settings.get("modelProviders"))]
        for name in names:
            if variables.get(name):
                return True, name
        if own.text("apiKey"):
            return True, str(directory / "settings.json")
        if (directory / ".env").is_file():
            return None, f"set up in {directory / '.env'}; Ralph does not check the key"
        return False, f"set {_KEYS[method]}, or run `qwen auth`: it uses {method}, and has no key for it"

    def allows_tools(self, call: Call, environment: Mapping[str, str]) -> bool:
        """Also in its settings."""
        for path in self._list_settings(call, environment):
            settings = read_settings(path)
            if settings.inner("tools").get("allowed") or settings.inner("permissions").get("allow"):
                return True
        return super().allows_tools(call, environment)

    def _list_settings(self, call: Call, environment: Mapping[str, str]) -> list[Path]:
        """Its settings files, the project's first."""
        return [call.workspace / ".qwen" / "settings.json", self.settings_home(environment) / "settings.json"]

    def find_own_mode(self, call: Call, environment: Mapping[str, str]) -> OwnMode | None:
        """`tools.approvalMode`, the project's first."""
        for path in self._list_settings(call, environment):
            mode = read_settings(path).inner("tools").text("approvalMode")
            if mode in _OWN_LEVELS:
                return OwnMode(_OWN_LEVELS[mode], f"tools.approvalMode: {mode}", path)
            if mode == "default":
                return OwnMode("", "tools.approvalMode: default", path, CANNOT_ASK)
        return None

    def environment(self, call: Call) -> Mapping[str, str]:
        """One process instead of two, and our hooks beside those of the user."""
        return {"QWEN_CODE_NO_RELAUNCH": "true", **self.hook_environment}

    def install_hooks(self, environment: Mapping[str, str]) -> str:
        """Write them into its system defaults, the settings with the lowest priority, beside what the machine has there.

        The same file limits its retries, and switches off requests that nobody sees.
        """
        system = Path(environment.get("QWEN_CODE_SYSTEM_SETTINGS_PATH") or "/etc/qwen-code/settings.json")
        theirs = Path(environment.get(_DEFAULTS) or system.with_name("system-defaults.json"))
        try:
            defaults = json.loads(theirs.read_bytes()) if theirs.exists() else {}
            hooks = add_hooks(Data(defaults).inner("hooks"), build_hooks("qwen", _EVENTS, 10_000))
            text = json.dumps({**_merge(_OURS, defaults), "hooks": hooks})
        except (ValueError, TypeError) as error:
            return f"{theirs}: {error}"
        path = write_if_changed(cache_path(environment, f"qwen-{short_hash(text)}.json"), text)
        self.hook_environment = {_DEFAULTS: str(path)}
        return ""

    def reader(self, call: Call, before: Usage) -> "QwenReader":
        """The usage at the end is that of the whole conversation."""
        return QwenReader(self.prices, meter=Meter(before))

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Only the exit code shows that it reached its own limit."""
        if code == _OWN_LIMIT:
            return Failure.AGENT, "it reached its own turn limit"
        return super().failure(code, stderr)


@dataclass
class QwenReader(ClaudeReader):
    """Reads one turn of Qwen Code, which reports an error of its provider as an answer and a success."""

    is_last_without_usage: bool = True
    """Whether the last message used no tokens: it is not from the model, or not complete."""

    def _assistant(self, data: Data) -> Iterator[AgentEvent]:
        self.model = data.inner("message").text("model") or self.model
        return super()._assistant(data)

    def _message_usage(self, key: str, usage: Data) -> Iterator[AgentEvent]:
        self.is_last_without_usage = not usage.count("input_tokens", "output_tokens")
        return super()._message_usage(key, usage)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        error = ""
        if data.get("is_error") is False and self.is_last_without_usage:
            error = _find_provider_error(data.text("result"))
        if not error:
            yield from super()._result(data)
            return
        yield from self._report_result_usage(data)
        yield from self.fail(error)

    def _input_tokens(self, usage: Data) -> int:
        return usage.count("input_tokens")

    def _cost(self, data: Data) -> float | None:
        usage = data.inner("usage")
        cached, output_tokens = usage.count("cache_read_input_tokens"), usage.count("output_tokens")
        return cost_of(self.model, self._input_tokens(usage), cached, output_tokens, self.prices)


def _merge(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, object]:
    """Our settings with theirs over them, key by key."""
    merged = {**ours, **theirs}
    for key in ours.keys() & theirs.keys():
        one, other = ours[key], theirs[key]
        if isinstance(one, dict) and isinstance(other, dict):
            merged[key] = _merge(one, other)
    return merged


def _find_provider_error(text: str) -> str:
    """The error with which a provider ended an answer. It follows the model's text, and a line of advice can follow it."""
    last = text[max(0, text.rfind(_MARK)) :][:TEXT_CHARS]
    return last if _ERROR.fullmatch(last) else ""
