"""mini-swe-agent: how it is started and what it tells. Measured with 2.4.6."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents import litellm
from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Abilities, Call
from ralph.agents.lines import (
    Complaints,
    Data,
    brief,
    count,
    gone_wrong,
    inner,
    moment,
    money,
    objects,
    parse,
    prose,
    said,
    tool_text,
    well_done,
    word,
)
from ralph.agents.prices import cost_of
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

_INSIDE = Path(__file__).with_name("inside_mini")
_OWN_ENDS = {
    "LimitsExceeded": "it reached its own limit of money or of steps",
    "TimeExceeded": "it reached its own limit of time",
    "RepeatedFormatError": "its model did not answer in the form that it wants",
}


class Mini(Adapter):
    """mini-swe-agent, with the models of many providers. An agent class of ours has it print JSON (`inside_mini`)."""

    name = "mini"
    install = "python -m pip install mini-swe-agent mcp"
    advice = "run `mini-extra config setup`, or name a model and set the key of its provider, as OPENAI_API_KEY"
    abilities = Abilities(hooks=True, tokens=True, cost=True, budget=True, step_limit=True)
    keys = litellm.KEYS
    settings = ("MSWEA_GLOBAL_CONFIG_DIR", ".config/mini-swe-agent")
    credentials = (".env",)

    def command(self, call: Call) -> tuple[str, ...]:
        """The agent of ours, which asks nothing and takes the task from standard input; its record beside the prompt."""
        return (
            self.program,
            *("--agent-class", "ralph_mini.JsonAgent", "-t", "see standard input"),
            *("-o", str(call.prompt.with_name("mini.traj.json"))),
            *(("-m", call.model) if call.model else ()),
            *(("-l", f"{max(call.budget, 0.000001):.6f}") if call.budget is not None else ()),
            *call.arguments,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """Where our class is, for mini alone; no questions, few tries, and no end for want of a price."""
        ours = [str(_INSIDE), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            "PYTHONPATH": os.pathsep.join(ours),
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_COST_TRACKING": os.environ.get("MSWEA_COST_TRACKING", "ignore_errors"),
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": os.environ.get("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "4"),
            "TYPER_STANDARD_TRACEBACK": "1",
            **({"RALPH_MINI_STEPS": str(call.most_steps)} if call.most_steps is not None else {}),
        }

    def hears(self, call: Call) -> bool:
        """By our own class."""
        return True

    def reader(self, call: Call, before: Usage) -> "MiniReader":
        """Who reads a turn; each message tells what it used."""
        return MiniReader(self.prices)

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Without a model it ends before it begins."""
        told = super().failure(code, stderr)
        return (Failure.ACCESS, told[1]) if told and "mini-extra config" in stderr else told


@dataclass
class MiniReader:
    """Reads one turn of mini-swe-agent."""

    prices: Prices
    complaints: Complaints = field(default_factory=Complaints)
    last_words: str = ""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells: one message of the conversation."""
        return list(self._message(inner(parse(line), "mini")))

    def _message(self, message: Data) -> Iterator[AgentEvent]:
        yield from self._usage(message)
        match message.get("role"):
            case "assistant":
                if text := prose(said(message.get("content"))):
                    self.last_words = text
                    yield AgentEvent(Kind.TEXT, text)
                for action in objects(message, "actions"):
                    yield AgentEvent(Kind.TOOL, tool_text("bash", {"command": word(action, "command")}))
            case "tool":
                text = brief(word(message, "exception_info") or word(message, "raw_output"))
                yield AgentEvent(Kind.TOOL_RESULT, text, is_error=message.get("returncode") != 0)
            case "user" if word(message, "interrupt_type") == "FormatError":
                yield AgentEvent(Kind.RETRY, brief(said(message.get("content"))))
            case "exit":
                yield from self._end(word(message, "exit_status"), said(message.get("content")))

    def _usage(self, message: Data) -> Iterator[AgentEvent]:
        """Tokens of one answer. A cost of nothing is told where no price is known."""
        usage = inner(message, "usage")
        spoken, heard = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
        cached = count(inner(usage, "prompt_tokens_details"), "cached_tokens")
        cost = money(message, "cost") or cost_of(word(message, "model"), spoken, cached, heard, self.prices)
        if spoken or heard:
            yield AgentEvent(Kind.USAGE, usage=Usage(spoken, heard, cost))

    def _end(self, status: str, text: str) -> Iterator[AgentEvent]:
        """The end: submitted, or the name of what stopped it."""
        if status == "Submitted":
            yield well_done(text or self.last_words)
            return
        if status in _OWN_ENDS:
            error, kind = _OWN_ENDS[status], Failure.AGENT
        else:
            error = text or status or "it failed"
            kind = litellm.failure_named(error, status)
        yield from self.complaints.about(error, moment({}), kind)
        yield gone_wrong(error, kind)
