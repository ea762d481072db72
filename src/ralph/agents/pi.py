"""pi: how it is started and what its stream says. Measured with 0.73.1 and 0.87.1."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.adapter import EDITS, FULL_AUTO, READ_ONLY, Abilities, Adapter, Call, has_key, option_values
from ralph.agents.failures import classify_failure
from ralph.agents.reader import StreamReader, success_result
from ralph.agents.stream_lines import TEXT_CHARS, Data, read_settings, read_timestamp
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent

_REPEATING = ("message_update", "tool_execution_update", "turn_end", "agent_end")
"""Events that repeat what was printed before: after every new word of an answer, or once more at the end."""
_STATUS = re.compile(r"([45]\d\d)\b")
"""The HTTP status of the model's answer. An error begins with it."""
_ENDS = {"aborted": "it was stopped", "length": "its answer was longer than its model allows"}
_MODES = {
    FULL_AUTO: (),
    EDITS: ("--tools", "read,grep,find,ls,edit,write"),
    READ_ONLY: ("--tools", "read,grep,find,ls"),
}
"""pi never asks. A level of permissions can only take tools away."""
_CHANGING_TOOLS = {"edit", "write", "bash"}


_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")
_KEYS = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY"),
    *("OPENROUTER_API_KEY", "DEEPSEEK_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "ZAI_API_KEY"),
    *("KIMI_API_KEY", "AZURE_OPENAI_API_KEY", "AI_GATEWAY_API_KEY", "OPENCODE_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"),
)
"""The variables in which it looks for the key of a provider."""


class Pi(Adapter):
    """The coding agent pi, with the models of many providers. It reports the cost of those whose price it knows."""

    name = "pi"
    install = "npm install -g @earendil-works/pi-coding-agent"
    advice = "run `pi` and type /login, or set the key of its provider, for example ANTHROPIC_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, cost=True)
    settings = ("PI_CODING_AGENT_DIR", ".pi/agent")
    hook_arguments = ("-e", str(Path(__file__).with_name("plugins") / "pi.ts"))

    instruction_files = ("AGENTS.md", "CLAUDE.md")
    permission_modes = _MODES
    permission_options = ("--tools", "-t", "--no-tools")

    def can_change_files(self, call: Call, environment: Mapping[str, str]) -> bool:
        """Unless the user's list of tools has none that can change something."""
        tools = option_values(call.arguments, "--tools", "-t")
        if "--no-tools" in call.arguments or (tools and not _CHANGING_TOOLS & set(tools[-1].split(","))):
            return False
        return super().can_change_files(call, environment)

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode asks nothing. Without the filter, pi prints 30 MB for two answers of 20 kB."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.wrap_program", "filter-output"),
            *(f'{{"type":"{name}"' for name in _REPEATING),
            *("--", self.program, "-p", "--mode", "json", *self.permission_arguments(call)),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.session) if call.session else ()),
            *self.hook_arguments,
            *call.arguments,
        )

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A key or an account of any provider: if its default provider has none, pi takes another that has one."""
        directory = self.settings_in(environment, home)
        logins = read_settings(directory / "auth.json")
        accounts = [name for name in logins if has_key(logins.inner(name))]
        own = read_settings(directory / "models.json").inner("providers")
        provider = read_settings(directory / "settings.json").text("defaultProvider")
        if provider in own and provider not in accounts:
            return self._check_own_provider(own.inner(provider), provider, environment)
        for name in _KEYS:
            if environment.get(name):
                return True, name
        if accounts:
            return True, str(directory / "auth.json")
        if own:
            return None, f"set up in {directory / 'models.json'}; Ralph does not check the key"
        return False, self.advice

    def _check_own_provider(self, provider: Data, name: str, environment: Mapping[str, str]) -> tuple[bool | None, str]:
        """A provider in its settings names the variable with its key, or has the key itself."""
        key = provider.text("apiKey")
        if environment.get(key):
            return True, key
        if provider.get("apiKey") == "":
            return False, f"its provider {name} has no key: {self.advice}"
        if key and _VARIABLE.fullmatch(key):
            return False, f"set {key}, which its provider {name} needs"
        return None, f"it uses its own provider {name}; Ralph does not check the key"

    def reader(self, call: Call, before: Usage) -> "PiReader":
        """Each message reports what it used."""
        return PiReader(self.prices)


@dataclass
class PiReader(StreamReader):
    """Reads one turn of pi."""

    last: Data = field(default_factory=Data)
    """The last message of the model. After an error, pi can try once more."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line."""
        message = data.inner("message")
        match data.get("type"):
            case "session":
                yield from self.start_session(data.text("id"))
            case "message_end" if message.text("role") == "assistant":
                yield from self._message(message)
            case "tool_execution_start":
                yield from self.start_tool("", data.text("toolName"), data.get("args"))
            case "tool_execution_end":
                yield from self.finish_tool(
                    "", data.inner("result").content_text("content"), failed=data.get("isError") is True
                )
            case "auto_retry_start":
                attempt = f"try {data.count('attempt')} of {data.count('maxAttempts')}"
                yield from self.retry(f"{attempt}: {data.text('errorMessage') or 'an error'}")
            case "exit":
                yield from self._end(self.last, self.last.text("stopReason"), data.number("code"))

    def _message(self, message: Data) -> Iterator[AgentEvent]:
        self.last, self.model, usage = message, message.text("model"), message.inner("usage")
        for block in message.objects("content"):
            yield from self.think(block.text("thinking"))
        yield from self.say(message.content_text("content"))
        tokens = usage.count("input", "cacheRead", "cacheWrite"), usage.count("cacheRead"), usage.count("output")
        if any(tokens):
            # Without a price, pi reports a cost of 0.
            cost = usage.inner("cost").money("total")
            yield from self.add_usage(*tokens, cost, reasoning=usage.count("reasoning"))

    def _end(self, message: Data, reason: str, code: float | None) -> Iterator[AgentEvent]:
        """The program has ended. Its last message says how: pi exits with 0 even after an error."""
        self.now = read_timestamp(message)
        if reason == "stop" and code == 0:
            yield success_result(message.content_text("content"))
        elif reason in ("error", *_ENDS):
            error = message.text("errorMessage") if reason == "error" else _ENDS[reason]
            status = _STATUS.match(error)
            yield from self.fail(error, classify_failure(error[:TEXT_CHARS], float(status[1]) if status else None))
