"""Cline: how it is started and what its stream says. Measured with 3.0.65."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.adapter import FULL_AUTO, PLAN, Abilities, Adapter, Call
from ralph.agents.prices import cost_of
from ralph.agents.reader import StreamReader, success_result
from ralph.agents.stream_lines import Data, one_line, parse_line, read_timestamp
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, Failure

_OPENING = "Do what is asked for here."
"""Cline reads standard input only if its argument is a prompt of several words. It appends what it reads."""
_OWN_ENDS = {
    "aborted": "it was aborted",
    "max_iterations": "it reached its own turn limit",
    "mistake_limit": "it made too many mistakes in a row",
}
# Its mode `plan` alone runs commands whose text does not show that they write, such as `sh -c '...'`.
_MODES = {FULL_AUTO: ("--act", "--auto-approve", "true"), PLAN: ("--plan", "--auto-approve", "false")}


class Cline(Adapter):
    """Cline. It resumes a conversation only at a terminal."""

    name = "cline"
    install = "npm install -g cline"
    advice = "run `cline auth`, or set CLINE_API_KEY"
    abilities = Abilities(tokens=True, names_model=True, cost=True)
    keys = ("CLINE_API_KEY",)
    settings = ("CLINE_DATA_DIR", ".cline/data")

    instruction_files = ("AGENTS.md",)
    permission_modes = _MODES
    permission_options = ("--act", "-a", "--plan", "-p", "--auto-approve")
    reading_arguments = ("--plan", "-p")

    def command(self, call: Call) -> tuple[str, ...]:
        """Every tool approved, whatever the user's settings say. The prompt comes from a pipe: Cline ignores short files."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.wrap_program", "pipe-prompt", self.program),
            *("--json", *self.permission_arguments(call)),
            *(("-m", call.model) if call.model else ()),
            *call.arguments,
            _OPENING,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """No updates, and no hub: that is a daemon that would outlive the turn."""
        return {"CLINE_SESSION_BACKEND_MODE": "local", "CLINE_NO_AUTO_UPDATE": "1"}

    def reader(self, call: Call, before: Usage) -> "ClineReader":
        """The stream names the model at its end."""
        return ClineReader(self.prices, call.model)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A key in the environment, or in the file of its providers. That file also exists without a key."""
        signed_in, detail = super().sign_in(environment, home)
        path = self.settings_in(environment, home) / "settings" / "providers.json"
        try:
            providers = parse_line(path.read_bytes()).inner("providers")
        except OSError:
            return signed_in, detail
        for provider in providers.values():
            settings = Data.of(provider).inner("settings")
            if signed_in is False and ("apiKey" in settings or "auth" in settings):
                return True, str(path)
        return signed_in, detail


@dataclass
class ClineReader(StreamReader):
    """Reads one turn of Cline."""

    is_unauthorized: bool = False
    """Whether its provider rejected its key."""
    asked_at: float = 0.0
    """When it first sent the current request: after many requests, the error is still the text of the first."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line."""
        match data.get("type"):
            case "agent_event":
                yield from self._event(data.inner("event"), data.text("ts"))
            case "run_result":
                self.now = self.asked_at or self.now
                yield from self._result(data)

    def _event(self, event: Data, timestamp: str) -> Iterator[AgentEvent]:
        match event.get("type"), event.get("contentType"):
            case "iteration_start", _:
                self.asked_at = read_timestamp(Data(timestamp=timestamp))
            case "content_start", "tool":
                yield from self.start_tool("", event.text("toolName"), _read_input(event))
            case "content_end", "text":
                yield from self.say(event.text("text"))
            case "content_end", "tool":
                results = event.objects("output") or [event.inner("output")]
                errors = [event.text("error"), *(result.text("error") for result in results)]
                error = next(filter(None, errors), "")
                failed = bool(error) or any(result.get("success") is False for result in results)
                text = "\n".join(result.content_text("result") for result in results) or event.content_text("output")
                # The error is only the exit code. What the command printed is in the result.
                yield from self.finish_tool("", text or error, failed=failed)
            case "usage", _:
                # The cost comes at the end, with the model: Cline has no prices for some providers.
                yield from self.meter.add_total(
                    event.count("totalInputTokens"),
                    event.count("totalOutputTokens"),
                    cached=event.count("totalCacheReadTokens"),
                )
            case "notice", _:
                if event.text("reason").endswith(("_retry", "_recovery")):
                    yield from self.retry(event.text("message"))
            case "error", _:
                error = event.inner("error").text("message") or "an error"
                if event.get("recoverable") is True:
                    yield from self.retry(error)
                else:
                    self.is_unauthorized, self.now = event.text("errorClass") == "auth", self.asked_at or self.now
                    yield from self.report_error(error, Failure.ACCESS if self.is_unauthorized else None)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end. An error has the provider's message without its status. Without a price, Cline reports no cost."""
        usage, model = data.inner("usage"), data.inner("model").text("id") or self.model
        input_tokens, output_tokens = usage.count("inputTokens"), usage.count("outputTokens")
        cached = usage.count("cacheReadTokens")
        cost = usage.money("totalCost") or cost_of(model, input_tokens, cached, output_tokens, self.prices)
        yield from self.meter.add_total(input_tokens, output_tokens, cost, cached=cached, model=model)
        reason, text = data.text("finishReason"), data.text("text")
        if reason == "completed":
            yield success_result(text)
        elif end := _OWN_ENDS.get(reason):
            yield from self.fail(f"{end} ({one_line(text)})" if text else end, Failure.AGENT)
        else:
            yield from self.fail(text, Failure.ACCESS if self.is_unauthorized else None)


def _read_input(event: Data) -> object:
    """The input of a tool, with several commands as one."""
    arguments = event.get("input")
    commands = arguments.get("commands") if isinstance(arguments, dict) else None
    if not isinstance(commands, list):
        return arguments
    texts = [command if isinstance(command, str) else Data.of(command).text("command") for command in commands]
    return {"command": "; ".join(texts)}
