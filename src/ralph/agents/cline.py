"""Cline: how it is started and what its stream says. Measured with 3.0.65."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Abilities, Call
from ralph.agents.lines import (
    TEXT_CHARS,
    Complaints,
    Data,
    Meter,
    brief,
    count,
    failure_of,
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

_OPENING = "Do what is asked for here."
"""It reads standard input only where it has a prompt of several words already, and adds what it reads to that."""
_OWN_ENDS = {
    "aborted": "it was aborted",
    "max_iterations": "it reached its own limit of turns",
    "mistake_limit": "it made too many mistakes in a row",
}


class Cline(Adapter):
    """Cline. It resumes a conversation only for a person at a terminal."""

    name = "cline"
    install = "npm install -g cline"
    advice = "run `cline auth`, or set CLINE_API_KEY"
    abilities = Abilities(commands=True, tokens=True, cost=True)
    keys = ("CLINE_API_KEY",)
    settings = ("CLINE_DATA_DIR", ".cline/data")

    def command(self, call: Call) -> tuple[str, ...]:
        """Every tool approved, whatever the user's settings say; the prompt from a pipe: short files are passed over."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.piped", self.program),
            *("--json", "--act", "--auto-approve", "true"),
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
            providers = inner(parse(place.read_bytes()), "providers")
        except OSError:
            return told
        signed = any({"apiKey", "auth"} & set(inner(one, "settings")) for one in providers.values())
        return (True, str(place)) if signed and told[0] is False else told


@dataclass
class ClineReader:
    """Reads one turn of Cline."""

    prices: Prices
    model: str
    meter: Meter = field(default_factory=Meter)
    complaints: Complaints = field(default_factory=Complaints)
    refused: bool = False
    """Whether its provider did not accept who it is."""
    asked_at: float | None = None
    """When it first asked what it asks now: an error after many tries has the words of the first."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        data = parse(line)
        match data.get("type"):
            case "agent_event":
                return list(self._event(inner(data, "event"), word(data, "ts")))
            case "run_result":
                return list(self._result(data))
        return []

    def _event(self, event: Data, moment_told: str) -> Iterator[AgentEvent]:
        match event.get("type"), event.get("contentType"):
            case "iteration_start", _:
                self.asked_at = moment({"timestamp": moment_told})
            case "content_start", "tool":
                yield AgentEvent(Kind.TOOL, _used(event))
            case "content_end", "text":
                if text := prose(word(event, "text")):
                    yield AgentEvent(Kind.TEXT, text)
            case "content_end", "tool":
                results = objects(event, "output") or [inner(event, "output")]
                error = word(event, "error") or next((word(one, "error") for one in results if word(one, "error")), "")
                failed = bool(error) or any(one.get("success") is False for one in results)
                text = "\n".join(said(one.get("result")) for one in results) or said(event.get("output"))
                yield AgentEvent(Kind.TOOL_RESULT, brief(error or text), is_error=failed)
            case "usage", _:
                # What it costs is told at the end: some providers have no prices there, and the model is named then.
                yield from self.meter.rise(count(event, "totalInputTokens"), count(event, "totalOutputTokens"))
            case "notice", _:
                if word(event, "reason").endswith(("_retry", "_recovery")):
                    yield AgentEvent(Kind.RETRY, brief(word(event, "message")))
            case "error", _:
                error = word(inner(event, "error"), "message") or "an error"
                if event.get("recoverable") is True:
                    yield AgentEvent(Kind.RETRY, brief(error))
                else:
                    self.refused = word(event, "errorClass") == "auth"
                    yield from self._complain(error)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end. An error has the words of the provider, without its status."""
        yield from self._total(inner(data, "usage"), word(inner(data, "model"), "id") or self.model)
        reason, text = word(data, "finishReason"), word(data, "text")
        if reason == "completed":
            yield well_done(text)
            return
        own = _OWN_ENDS.get(reason)
        error = f"{own} ({brief(text)})" if own and text else own or text or "it failed"
        kind = Failure.AGENT if own else self._kind(error)
        yield from self._complain(error, kind)
        yield gone_wrong(error, kind)

    def _complain(self, error: str, kind: Failure | None = None) -> Iterator[AgentEvent]:
        yield from self.complaints.about(error, self.asked_at or moment({}), kind or self._kind(error))

    def _kind(self, error: str) -> Failure:
        return Failure.ACCESS if self.refused else failure_of(error[:TEXT_CHARS])

    def _total(self, usage: Data, model: str) -> Iterator[AgentEvent]:
        """Tokens and money of the whole turn; no money is told where a provider has no prices."""
        spoken, heard = count(usage, "inputTokens"), count(usage, "outputTokens")
        priced = cost_of(model, spoken, count(usage, "cacheReadTokens"), heard, self.prices)
        yield from self.meter.rise(spoken, heard, money(usage, "totalCost") or priced)


def _used(event: Data) -> str:
    """A tool and what it is given, its commands as one."""
    given = event.get("input")
    commands = given.get("commands") if isinstance(given, dict) else None
    if isinstance(commands, list):
        given = {"command": "; ".join(one if isinstance(one, str) else word(inner(one), "command") for one in commands)}
    return tool_text(word(event, "toolName"), given)
