"""Goose: how it is started and what its stream says. Measured with 1.52.0, and 0.20.2, which marks no messages."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time

from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Abilities, Call
from ralph.agents.lines import (
    TEXT_CHARS,
    Complaints,
    Data,
    Meter,
    brief,
    count,
    gone_wrong,
    inner,
    money,
    objects,
    parse,
    said,
    tool_text,
    well_done,
    word,
)
from ralph.agents.prices import cost_of
from ralph.agents.speech import Speech
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

_BANNER = re.compile(r"\s*\\____\)\s+(\w+) · ")
"""The line of its banner that names the conversation."""
_REFUSAL = re.compile(r"\s*error: (.+)")
"""What it says in the place of a banner."""
_FULL = "I've reached the maximum number of actions"
_OWN_WORDS = ("Ran into this error", "Network error: ", _FULL)


class Goose(Adapter):
    """Goose, with the model of whatever provider it is set up for. It tells the cost of the models that it knows."""

    name = "goose"
    install = "brew install block-goose-cli"
    advice = "run `goose configure`, or set GOOSE_PROVIDER, GOOSE_MODEL and the provider's key"
    abilities = Abilities(commands=True, resume=True, session=True, tokens=True, cost=True, step_limit=True)
    services = ("GOOSE_PROVIDER",)
    settings = ("XDG_CONFIG_HOME", ".config")
    credentials = ("goose/config.yaml",)

    def command(self, call: Call) -> tuple[str, ...]:
        """`run` with the prompt from standard input, and the tools for files and commands whatever its profile says."""
        return (
            self.program,
            *("run", "-i", "-", "--with-builtin", "developer", "--output-format", "stream-json"),
            *(("--model", call.model) if call.model else ()),
            *(("--max-turns", str(call.most_steps)) if call.most_steps is not None else ()),
            *(("--resume", "--session-id", call.session) if call.session else ()),
            *call.arguments,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """Every tool approved, and no question to the model for a name of the conversation, which nobody counts."""
        return {"GOOSE_MODE": "auto", "GOOSE_DISABLE_SESSION_NAMING": "true"}

    def reader(self, call: Call, before: Usage) -> "GooseReader":
        """Who reads a turn; the usage that is told at its end is that of the whole conversation."""
        return GooseReader(self.prices, call.model, Meter(before))

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A provider with its key; where it is set up by a file, its key is in the keyring, which is not opened."""
        key = f"{environment.get('GOOSE_PROVIDER', '').upper()}_API_KEY"
        if environment.get(key):
            return True, key
        known, how = super().sign_in(environment, home)
        return (None, f"set up in {how}: the key that it needs is not looked at") if known else (known, how)


@dataclass
class GooseReader:
    """Reads one turn of Goose. An error is a message like those of the model, but for a mark that theirs bear."""

    prices: Prices
    model: str
    meter: Meter
    complaints: Complaints = field(default_factory=Complaints)
    speech: Speech = field(default_factory=Speech)
    marked: bool = False
    """Whether the words of the model are marked: those without are then its own."""
    own_words: str = ""
    """What it said itself since the model last spoke: why it stops."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        data = parse(line)
        return list(self._events(data) if data else self._banner(line[:TEXT_CHARS].decode(errors="replace")))

    def _banner(self, line: str) -> Iterator[AgentEvent]:
        if found := _BANNER.match(line):
            yield AgentEvent(Kind.SESSION, session=brief(found[1]))
        elif found := _REFUSAL.match(line):
            needs_setup = re.search("configur|provider", found[1], re.IGNORECASE)
            yield from self.complaints.about(found[1], time(), Failure.ACCESS if needs_setup else None)

    def _events(self, data: Data) -> Iterator[AgentEvent]:
        match data.get("type"):
            case "message":
                yield from self._message(inner(data, "message"))
            case "error":
                yield from self._failed(word(data, "error") or "it failed")
            case "complete":
                yield from self.speech.end()
                yield from self._total(data)
                yield from self._failed(self.own_words) if self.own_words else [well_done(self.speech.last_words)]

    def _message(self, message: Data) -> Iterator[AgentEvent]:
        mark = inner(message, "metadata", "inference")
        if mark:
            self.marked, self.own_words, self.model = True, "", word(mark, "requestedModel") or self.model
        for part in objects(message, "content"):
            match word(part, "type"):
                case "text" if word(message, "role") == "assistant":
                    yield from self._text(word(part, "text"), is_own=self.marked and not mark)
                case "toolRequest":
                    yield from self.speech.end()
                    self.speech.last_words = ""
                    call = inner(part, "toolCall", "value")
                    yield AgentEvent(Kind.TOOL, tool_text(word(call, "name"), call.get("arguments")))
                case "toolResponse":
                    yield _result(inner(part, "toolResult"))
                case "error":
                    self.own_words = word(part, "message")
                case "systemNotification" if word(part, "notificationType") == "creditsExhausted":
                    self.own_words = f"out of credits: {word(part, 'msg')}"

    def _text(self, text: str, *, is_own: bool) -> Iterator[AgentEvent]:
        """Where no words of the model are marked, or none have come yet, its own are known by how they begin."""
        if is_own or (not self.marked and text.startswith(_OWN_WORDS)):
            self.own_words = text
        else:
            yield from self.speech.hear(text)

    def _failed(self, error: str) -> Iterator[AgentEvent]:
        """The end; what follows an empty line is advice for people at a prompt."""
        error, kind = error.partition("\n\n")[0] or error, None
        if error.startswith(_FULL):
            error, kind = f"it reached its own limit of turns ({brief(error)})", Failure.AGENT
        yield from self.complaints.about(error, time(), kind)
        yield gone_wrong(error, kind)

    def _total(self, data: Data) -> Iterator[AgentEvent]:
        spoken, heard = count(data, "input_tokens"), count(data, "output_tokens")
        cost = money(data, "cost_usd")
        if cost is None and spoken:
            cost = cost_of(self.model, spoken, count(data, "cache_read_input_tokens"), heard, self.prices)
        yield from self.meter.rise(spoken, heard, cost)


def _result(result: Data) -> AgentEvent:
    """What a tool gave; a tool that could not be used at all has an error instead."""
    value = inner(result, "value")
    text = said(value.get("content")) or word(result, "error")
    is_error = value.get("isError") is True or word(result, "status") == "error"
    return AgentEvent(Kind.TOOL_RESULT, brief(text), is_error=is_error)
