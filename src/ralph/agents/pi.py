"""pi: how it is started and what its stream says. Measured with 0.73.1."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import EDITS, FULL_AUTO, READ_ONLY, Abilities, Call
from ralph.agents.failures import failure_of
from ralph.agents.reader import StreamReader, well_done
from ralph.agents.stream_lines import TEXT_CHARS, Data, moment
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent

_REPEATING = ("message_update", "tool_execution_update", "turn_end", "agent_end")
"""Events that hold what was told already: with every word of an answer, or once more at the end."""
_STATUS = re.compile(r"([45]\d\d)\b")
"""Of the model's answer: an error begins with it."""
_ENDS = {"aborted": "it was stopped", "length": "its answer was longer than its model may give"}
_MODES = {
    FULL_AUTO: (),
    EDITS: ("--tools", "read,grep,find,ls,edit,write"),
    READ_ONLY: ("--tools", "read,grep,find,ls"),
}
"""It asks about nothing: its tools are all that can be taken away."""


class Pi(Adapter):
    """The coding agent pi, with the models of many providers. It tells the cost of those whose price it knows."""

    name = "pi"
    install = "npm install -g @mariozechner/pi-coding-agent"
    advice = "run `pi` and type /login, or set the key of its provider, as ANTHROPIC_API_KEY or OPENAI_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, cost=True)
    keys = (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        *("DEEPSEEK_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "ZAI_API_KEY", "KIMI_API_KEY"),
        *("AZURE_OPENAI_API_KEY", "AI_GATEWAY_API_KEY", "OPENCODE_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"),
    )
    settings = ("PI_CODING_AGENT_DIR", ".pi/agent")
    credentials = ("auth.json",)
    hook_words = ("-e", str(Path(__file__).with_name("plugins") / "pi.ts"))

    permission_modes = _MODES
    permission_options = ("--tools", "-t", "--no-tools")

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode, which asks nothing, behind a sieve: it would print 30 MB for two answers of 20 kB."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.filter_output"),
            *(f'{{"type":"{name}"' for name in _REPEATING),
            *("--", self.program, "-p", "--mode", "json", *self.permission_words(call)),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.session) if call.session else ()),
            *self.hook_words,
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "PiReader":
        """Who reads a turn; each message tells what it used."""
        return PiReader(self.prices)


@dataclass
class PiReader(StreamReader):
    """Reads one turn of pi."""

    last: Data = field(default_factory=Data)
    """The last message of the model: after an error, it may try once more."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells."""
        message = data.inner("message")
        match data.get("type"):
            case "session":
                yield from self.begin(data.word("id"))
            case "message_end" if message.word("role") == "assistant":
                yield from self._message(message)
            case "tool_execution_start":
                yield from self.use("", data.word("toolName"), data.get("args"))
            case "tool_execution_end":
                yield from self.used("", data.inner("result").said("content"), failed=data.get("isError") is True)
            case "auto_retry_start":
                tries = f"try {data.count('attempt')} of {data.count('maxAttempts')}"
                yield from self.retry(f"{tries}: {data.word('errorMessage') or 'an error'}")
            case "exit":
                yield from self._end(self.last, self.last.word("stopReason"), data.number("code"))

    def _message(self, message: Data) -> Iterator[AgentEvent]:
        self.last, self.model, usage = message, message.word("model"), message.inner("usage")
        for block in message.objects("content"):
            yield from self.think(block.word("thinking"))
        yield from self.say(message.said("content"))
        tokens = usage.count("input", "cacheRead", "cacheWrite"), usage.count("cacheRead"), usage.count("output")
        # It tells a cost of nothing where it knows no price.
        yield from self.spend(*tokens, usage.inner("cost").money("total")) if any(tokens) else ()

    def _end(self, message: Data, reason: str, code: float | None) -> Iterator[AgentEvent]:
        """The program has ended: its last message says how, for it ends with 0 in any case."""
        self.now = moment(message)
        if reason == "stop" and code == 0:
            yield well_done(message.said("content"))
        elif reason in ("error", *_ENDS):
            error = message.word("errorMessage") if reason == "error" else _ENDS[reason]
            status = _STATUS.match(error)
            yield from self.fail(error, failure_of(error[:TEXT_CHARS], float(status[1]) if status else None))
