"""Cline: how it is started and what its stream says. Measured with 3.0.65."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import FULL_AUTO, PLAN, Abilities, Call
from ralph.agents.prices import cost_of
from ralph.agents.reader import StreamReader, well_done
from ralph.agents.stream_lines import Data, brief, moment, parse
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure

_OPENING = "Do what is asked for here."
"""It reads standard input only where it has a prompt of several words already, and adds what it reads to that."""
_OWN_ENDS = {
    "aborted": "it was aborted",
    "max_iterations": "it reached its own limit of turns",
    "mistake_limit": "it made too many mistakes in a row",
}
_MODES = {FULL_AUTO: ("--act", "--auto-approve", "true"), PLAN: ("--plan",)}


class Cline(Adapter):
    """Cline. It resumes a conversation only for a person at a terminal."""

    name = "cline"
    install = "npm install -g cline"
    advice = "run `cline auth`, or set CLINE_API_KEY"
    abilities = Abilities(commands=True, tokens=True, names_model=True, cost=True)
    keys = ("CLINE_API_KEY",)
    settings = ("CLINE_DATA_DIR", ".cline/data")

    permission_modes = _MODES
    permission_options = ("--act", "-a", "--plan", "-p", "--auto-approve")

    def command(self, call: Call) -> tuple[str, ...]:
        """Every tool approved, whatever the user's settings say; the prompt from a pipe: short files are passed over."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.pipe_prompt", self.program),
            *("--json", *self.permission_words(call)),
            *(("-m", call.model) if call.model else ()),
            *call.arguments,
            _OPENING,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """No updates; and it works in this process: its hub is a daemon that would outlive the turn."""
        return {"CLINE_SESSION_BACKEND_MODE": "local", "CLINE_NO_AUTO_UPDATE": "1"}

    def reader(self, call: Call, before: Usage) -> "ClineReader":
        """Who reads a turn; the stream names the model at its end."""
        return ClineReader(self.prices, call.model)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A key, or one in the file of its providers, which is there without a key as well."""
        told = super().sign_in(environment, home)
        variable, usual = self.settings
        place = Path(environment.get(variable) or home / usual) / "settings" / "providers.json"
        try:
            providers = parse(place.read_bytes()).inner("providers")
        except OSError:
            return told
        signed = any({"apiKey", "auth"} & set(Data.of(one).inner("settings")) for one in providers.values())
        return (True, str(place)) if signed and told[0] is False else told


@dataclass
class ClineReader(StreamReader):
    """Reads one turn of Cline."""

    refused: bool = False
    """Whether its provider did not accept who it is."""
    asked_at: float = 0.0
    """When it first asked what it asks now: an error after many tries has the words of the first."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells."""
        match data.get("type"):
            case "agent_event":
                yield from self._event(data.inner("event"), data.word("ts"))
            case "run_result":
                self.now = self.asked_at or self.now
                yield from self._result(data)

    def _event(self, event: Data, moment_told: str) -> Iterator[AgentEvent]:
        match event.get("type"), event.get("contentType"):
            case "iteration_start", _:
                self.asked_at = moment(Data(timestamp=moment_told))
            case "content_start", "tool":
                yield from self.use("", event.word("toolName"), _given(event))
            case "content_end", "text":
                yield from self.say(event.word("text"))
            case "content_end", "tool":
                results = event.objects("output") or [event.inner("output")]
                error = event.word("error") or next((one.word("error") for one in results if one.word("error")), "")
                failed = bool(error) or any(one.get("success") is False for one in results)
                text = "\n".join(one.said("result") for one in results) or event.said("output")
                yield from self.used("", error or text, failed=failed)
            case "usage", _:
                # What it costs is told at the end: some providers have no prices there, and the model is named then.
                yield from self.meter.rise(event.count("totalInputTokens"), event.count("totalOutputTokens"))
            case "notice", _:
                if event.word("reason").endswith(("_retry", "_recovery")):
                    yield from self.retry(event.word("message"))
            case "error", _:
                error = event.inner("error").word("message") or "an error"
                if event.get("recoverable") is True:
                    yield from self.retry(error)
                else:
                    self.refused, self.now = event.word("errorClass") == "auth", self.asked_at or self.now
                    yield from self.complain(error, Failure.ACCESS if self.refused else None)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end. An error has the words of the provider, without its status; where it has no prices, no cost is told."""
        usage, model = data.inner("usage"), data.inner("model").word("id") or self.model
        spoken, heard = usage.count("inputTokens"), usage.count("outputTokens")
        priced = cost_of(model, spoken, usage.count("cacheReadTokens"), heard, self.prices)
        yield from self.meter.rise(spoken, heard, usage.money("totalCost") or priced)
        reason, text = data.word("finishReason"), data.word("text")
        if reason == "completed":
            yield well_done(text)
        elif own := _OWN_ENDS.get(reason):
            yield from self.fail(f"{own} ({brief(text)})" if text else own, Failure.AGENT)
        else:
            yield from self.fail(text, Failure.ACCESS if self.refused else None)


def _given(event: Data) -> object:
    """What a tool is given, its commands as one."""
    given = event.get("input")
    commands = given.get("commands") if isinstance(given, dict) else None
    if isinstance(commands, list):
        texts = (one if isinstance(one, str) else Data.of(one).word("command") for one in commands)
        return {"command": "; ".join(texts)}
    return given
