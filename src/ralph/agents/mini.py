"""mini-swe-agent: how it is started and what it prints. Measured with 2.4.6."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ralph.agents import failures
from ralph.agents.adapter import Abilities, Adapter, Call
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import Data, describe_tool, limit_text
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, EventKind, Failure

_PLUGINS = Path(__file__).with_name("plugins")
_OWN_ENDS = {
    "LimitsExceeded": "it reached its own cost or step limit",
    "TimeExceeded": "it reached its own time limit",
    "RepeatedFormatError": "its model did not answer in the required format",
}


class Mini(Adapter):
    """mini-swe-agent, with the models of many providers. Our agent class makes it print JSON (`plugins/ralph_mini.py`)."""

    name = "mini"
    install = "python -m pip install mini-swe-agent mcp"
    advice = (
        "run `mini-extra config setup`, or name a model and set the key of its provider, for example OPENAI_API_KEY"
    )
    abilities = Abilities(hooks=True, tokens=True, names_model=True, cost=True, budget=True, step_limit=True)
    keys = failures.LITELLM_KEYS
    settings = ("MSWEA_GLOBAL_CONFIG_DIR", ".config/mini-swe-agent")
    credentials = (".env",)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """With the key for the provider of its model."""
        return super().sign_in(failures.keep_needed_keys(environment, environment.get("MSWEA_MODEL_NAME", "")), home)

    def command(self, call: Call) -> tuple[str, ...]:
        """Our agent class asks nothing and reads the task from standard input. Its trajectory goes to its own files."""
        return (
            self.program,
            *("--agent-class", "ralph_mini.JsonAgent", "-t", "see standard input"),
            *("-o", str(call.own_files / "mini.traj.json")),
            *(("-m", call.model) if call.model else ()),
            *(("-l", f"{max(call.budget, 0.000001):.6f}") if call.budget is not None else ()),
            *call.arguments,
        )

    def find_own_directory(self, call: Call) -> Path | None:
        """For the trajectory."""
        return call.own_files

    def environment(self, call: Call) -> Mapping[str, str]:
        """The path of our class, no questions, and few retries. A model without a price does not end the turn."""
        paths = [str(_PLUGINS), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            "PYTHONPATH": os.pathsep.join(paths),
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_COST_TRACKING": os.environ.get("MSWEA_COST_TRACKING", "ignore_errors"),
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": os.environ.get("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "4"),
            "TYPER_STANDARD_TRACEBACK": "1",
            **({"RALPH_MINI_STEPS": str(call.most_steps)} if call.most_steps is not None else {}),
        }

    def can_receive_messages(self, call: Call) -> bool:
        """Through our agent class."""
        return True

    def reader(self, call: Call, before: Usage) -> "MiniReader":
        """Each message reports what it used."""
        return MiniReader(self.prices)

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Without a model it exits at once, with advice to run `mini-extra config`."""
        failure = super().failure(code, stderr)
        if failure and "mini-extra config" in stderr:
            return Failure.ACCESS, failure[1]
        return failure


class MiniReader(StreamReader):
    """Reads one turn of mini-swe-agent. Each line is one message of the conversation."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line. Without a price, mini reports a cost of 0."""
        message, usage = data.inner("mini"), data.inner("mini", "usage")
        self.model = message.text("model") or self.model
        cached = usage.inner("prompt_tokens_details").count("cached_tokens")
        tokens = usage.count("prompt_tokens"), cached, usage.count("completion_tokens")
        if any(tokens):
            reasoning = usage.inner("completion_tokens_details").count("reasoning_tokens")
            yield from self.add_usage(*tokens, message.money("cost"), reasoning=reasoning)
        match message.get("role"):
            case "assistant":
                if text := limit_text(message.content_text("content")):
                    self.buffer.last_message = ""
                    yield from self.say(text)
                for action in message.objects("actions"):
                    yield AgentEvent(EventKind.TOOL, describe_tool("bash", {"command": action.text("command")}))
            case "tool":
                failed = message.get("returncode") != 0
                yield from self.finish_tool("", message.text("exception_info", "raw_output"), failed=failed)
            case "user" if message.text("interrupt_type") == "FormatError":
                yield from self.retry(message.content_text("content"))
            case "exit":
                yield from self._end(message.text("exit_status"), message.content_text("content"))

    def _end(self, status: str, text: str) -> Iterator[AgentEvent]:
        """The end. The status is `Submitted`, or the name of the exception that stopped it."""
        if status == "Submitted":
            return self.succeed(text)
        if status in _OWN_ENDS:
            return self.fail(_OWN_ENDS[status], Failure.AGENT)
        return self.fail(text or status, failures.classify_litellm_failure(text or status, status))
