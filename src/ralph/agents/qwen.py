"""Qwen Code: how it is started and what its stream says, which is like that of Claude Code. Measured with 0.15.10."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, PLAN, READ_ONLY, Abilities, Call
from ralph.agents.claude import ClaudeReader
from ralph.agents.hook_config import hooks, lay, own_place, short_hash, with_hooks
from ralph.agents.prices import cost_of
from ralph.agents.reader import Meter
from ralph.agents.stream_lines import TEXT_CHARS, Data, named_model
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure

_TOOLS = {"sub-agents": "agent"}
_EVENTS = ("PostToolUse", "PostToolUseFailure", "Stop")
_DEFAULTS = "QWEN_CODE_SYSTEM_DEFAULTS_PATH"
_OWN_LIMIT = 53
"""Its exit code when it has asked its model as often as it may."""
_MARK = "[API Error: "
_ERROR = re.compile(r"\[API Error: .*\](?:\n[^\n]*)?|Qwen OAuth (?:quota exceeded|free tier).*", re.DOTALL)
_MODES = {
    FULL_AUTO: ("--yolo",),
    EDITS: ("--approval-mode", "auto-edit"),
    READ_ONLY: ("--approval-mode", "default"),
    PLAN: ("--approval-mode", "plan"),
}


class Qwen(Adapter):
    """Qwen Code of Alibaba, with any model that speaks as OpenAI's do."""

    name = "qwen"
    install = "npm install -g @qwen-code/qwen-code"
    advice = "run `qwen auth`, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL"
    abilities = Abilities(
        resume=True, session=True, hooks=True, tokens=True, names_model=True, step_limit=True, tool_limits=True
    )
    keys = (
        *("OPENAI_API_KEY", "DASHSCOPE_API_KEY", "BAILIAN_CODING_PLAN_API_KEY", "BAILIAN_TOKEN_PLAN_API_KEY"),
        *("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    )
    settings = ("QWEN_HOME", ".qwen")
    credentials = ("oauth_creds.json",)
    may_hold = ("settings.json",)

    # It refuses a command that starts with a variable: "Could not identify command root to obtain permission".
    ralph_command = "ralph"
    permission_modes = _MODES
    permission_options = ("--approval-mode", "--yolo", "-y")

    def command(self, call: Call) -> tuple[str, ...]:
        """The prompt from standard input. The list of tools would swallow a word that follows it."""
        tools = [_TOOLS.get(name, name) for name in call.without_tools]
        return (
            self.program,
            *(("--exclude-tools", *tools) if tools else ()),
            *("-o", "stream-json", *self.permission_words(call)),
            *(("-m", call.model) if call.model else ()),
            *(("--max-session-turns", str(call.most_steps)) if call.most_steps is not None else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """`model.name` in its settings, those of the project first; else `OPENAI_MODEL`."""
        home = self.settings_home(environment)
        named = named_model(call.workspace / ".qwen" / "settings.json", home / "settings.json")
        return named or environment.get("OPENAI_MODEL", "") or environment.get("QWEN_MODEL", "")

    def environment(self, call: Call) -> Mapping[str, str]:
        """One process instead of two; our hooks beside those of the user."""
        return {"QWEN_CODE_NO_RELAUNCH": "true", **self.hook_variables}

    def lay_hooks(self, environment: Mapping[str, str]) -> str:
        """Lay them where the lowest of its settings are, with what the machine has there."""
        system = Path(environment.get("QWEN_CODE_SYSTEM_SETTINGS_PATH") or "/etc/qwen-code/settings.json")
        theirs = Path(environment.get(_DEFAULTS) or system.with_name("system-defaults.json"))
        try:
            found = json.loads(theirs.read_bytes()) if theirs.exists() else {}
            text = json.dumps(
                {**found, "hooks": with_hooks(Data(found).inner("hooks"), hooks("qwen", _EVENTS, 10_000))}
            )
        except (ValueError, TypeError) as error:
            return f"{theirs}: {error}"
        self.hook_variables = {_DEFAULTS: str(lay(own_place(environment, f"qwen-{short_hash(text)}.json"), text))}
        return ""

    def reader(self, call: Call, before: Usage) -> "QwenReader":
        """Who reads a turn; the usage that is told at its end is that of the whole conversation."""
        return QwenReader(self.prices, meter=Meter(before))

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Its own limit is told by its exit alone."""
        own = (Failure.AGENT, "it reached its own limit of turns")
        return own if code == _OWN_LIMIT else super().failure(code, stderr)


@dataclass
class QwenReader(ClaudeReader):
    """Reads one turn of Qwen Code. An error of the provider is told as an answer, and that all is well."""

    unheard: bool = True
    """Whether the last message used no tokens: the model has not said it, or not to its end."""

    def _assistant(self, data: Data) -> Iterator[AgentEvent]:
        self.model = data.inner("message").word("model") or self.model
        return super()._assistant(data)

    def _message_usage(self, key: str, usage: Data) -> Iterator[AgentEvent]:
        self.unheard = not usage.count("input_tokens", "output_tokens")
        return super()._message_usage(key, usage)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        error = _error_at_the_end(data.word("result")) if data.get("is_error") is False and self.unheard else ""
        if not error:
            yield from super()._result(data)
            return
        yield from self._total(data)
        yield from self.fail(error)

    def _spoken(self, usage: Data) -> int:
        return usage.count("input_tokens")

    def _cost(self, data: Data) -> float | None:
        usage = data.inner("usage")
        cached, heard = usage.count("cache_read_input_tokens"), usage.count("output_tokens")
        return cost_of(self.model, self._spoken(usage), cached, heard, self.prices)


def _error_at_the_end(text: str) -> str:
    """What a provider refused an answer with: it follows what the model had said, and a line of advice may follow it."""
    last = text[max(0, text.rfind(_MARK)) :][:TEXT_CHARS]
    return last if _ERROR.fullmatch(last) else ""
