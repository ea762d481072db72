"""pi: how it is started and what its stream says. Measured with 0.73.1."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Abilities, Call
from ralph.agents.lines import (
    TEXT_CHARS,
    Complaints,
    Data,
    brief,
    count,
    failure_of,
    gone_wrong,
    inner,
    moment,
    money,
    number,
    parse,
    prose,
    said,
    tool_text,
    well_done,
    word,
)
from ralph.agents.prices import cost_of
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind

_REPEATING = ("message_update", "tool_execution_update", "turn_end", "agent_end")
"""Events that hold what was told already: with every word of an answer, or once more at the end."""
_STATUS = re.compile(r"([45]\d\d)\b")
"""Of the model's answer: an error begins with it."""
_ENDS = {
    "aborted": "it was stopped",
    "length": "its answer was longer than its model may give",
}


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
    hook_words = ("-e", str(Path(__file__).with_name("inside_node") / "pi.ts"))

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode, which asks nothing, behind a sieve: it would print 30 MB for two answers of 20 kB."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.sieve"),
            *(f'{{"type":"{name}"' for name in _REPEATING),
            *("--", self.program, "-p", "--mode", "json"),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.session) if call.session else ()),
            *self.hook_words,
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "PiReader":
        """Who reads a turn; each message tells what it used."""
        return PiReader(self.prices)


@dataclass
class PiReader:
    """Reads one turn of pi."""

    prices: Prices
    last: Data = field(default_factory=dict)
    """The last message of the model: after an error, it may try once more."""
    complaints: Complaints = field(default_factory=Complaints)

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        return list(self._events(parse(line)))

    def _events(self, data: Data) -> Iterator[AgentEvent]:
        message = inner(data, "message")
        match data.get("type"):
            case "session":
                if session := brief(word(data, "id")):
                    yield AgentEvent(Kind.SESSION, session=session)
            case "message_end" if word(message, "role") == "assistant":
                yield from self._message(message)
            case "tool_execution_start":
                yield AgentEvent(Kind.TOOL, tool_text(word(data, "toolName"), data.get("args")))
            case "tool_execution_end":
                text = brief(said(inner(data, "result").get("content")))
                yield AgentEvent(Kind.TOOL_RESULT, text, is_error=data.get("isError") is True)
            case "auto_retry_start":
                tries = f"try {count(data, 'attempt')} of {count(data, 'maxAttempts')}"
                yield AgentEvent(Kind.RETRY, brief(f"{tries}: {word(data, 'errorMessage') or 'an error'}"))
            case "exit":
                yield from self._end(self.last, word(self.last, "stopReason"), number(data, "code"))

    def _message(self, message: Data) -> Iterator[AgentEvent]:
        self.last = message
        if text := prose(said(message.get("content"))):
            yield AgentEvent(Kind.TEXT, text)
        usage = inner(message, "usage")
        spoken, heard = count(usage, "input", "cacheRead", "cacheWrite"), count(usage, "output")
        if spoken or heard:
            # It tells a cost of nothing where it knows no price.
            cost = money(inner(usage, "cost"), "total")
            cost = cost or cost_of(word(message, "model"), spoken, count(usage, "cacheRead"), heard, self.prices)
            yield AgentEvent(Kind.USAGE, usage=Usage(spoken, heard, cost))

    def _end(self, message: Data, reason: str, code: float | None) -> Iterator[AgentEvent]:
        """The program has ended: its last message says how, for it ends with 0 in any case."""
        if reason == "stop" and code == 0:
            yield well_done(said(message.get("content")))
        elif reason in ("error", *_ENDS):
            error = word(message, "errorMessage") if reason == "error" else _ENDS[reason]
            status = _STATUS.match(error)
            kind = failure_of(error[:TEXT_CHARS], float(status[1]) if status else None)
            yield from self.complaints.about(error or "it failed", moment(message), kind)
            yield gone_wrong(error or "it failed", kind)
