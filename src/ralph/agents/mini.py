"""mini-swe-agent: how it is started and what it tells. Measured with 2.4.6."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ralph.agents import litellm
from ralph.agents.adapter import Adapter
from ralph.agents.agent import Abilities, Call
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import Data, prose, tool_text
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

_INSIDE = Path(__file__).with_name("plugins")
_OWN_ENDS = {
    "LimitsExceeded": "it reached its own limit of money or of steps",
    "TimeExceeded": "it reached its own limit of time",
    "RepeatedFormatError": "its model did not answer in the form that it wants",
}


class Mini(Adapter):
    """mini-swe-agent, with the models of many providers. An agent class of ours has it print JSON (`plugins`)."""

    name = "mini"
    install = "python -m pip install mini-swe-agent mcp"
    advice = "run `mini-extra config setup`, or name a model and set the key of its provider, as OPENAI_API_KEY"
    abilities = Abilities(hooks=True, tokens=True, names_model=True, cost=True, budget=True, step_limit=True)
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


class MiniReader(StreamReader):
    """Reads one turn of mini-swe-agent: a line is one message of the conversation."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells. A cost of nothing is told where no price is known."""
        message, usage = data.inner("mini"), data.inner("mini", "usage")
        self.model = message.word("model") or self.model
        cached = usage.inner("prompt_tokens_details").count("cached_tokens")
        tokens = usage.count("prompt_tokens"), cached, usage.count("completion_tokens")
        yield from self.spend(*tokens, message.money("cost")) if any(tokens) else ()
        match message.get("role"):
            case "assistant":
                if text := prose(message.said("content")):
                    self.speech.last_words = ""
                    yield from self.say(text)
                for action in message.objects("actions"):
                    yield AgentEvent(Kind.TOOL, tool_text("bash", {"command": action.word("command")}))
            case "tool":
                failed = message.get("returncode") != 0
                yield from self.used("", message.word("exception_info", "raw_output"), failed=failed)
            case "user" if message.word("interrupt_type") == "FormatError":
                yield from self.retry(message.said("content"))
            case "exit":
                yield from self._end(message.word("exit_status"), message.said("content"))

    def _end(self, status: str, text: str) -> Iterator[AgentEvent]:
        """The end: submitted, or the name of what stopped it."""
        if status == "Submitted":
            return self.done(text)
        if status in _OWN_ENDS:
            return self.fail(_OWN_ENDS[status], Failure.AGENT)
        return self.fail(text or status, litellm.failure_named(text or status, status))
