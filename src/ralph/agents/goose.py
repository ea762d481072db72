"""Goose: how it is started and what its stream says. Measured with 1.52.0, and 0.20.2, which marks no messages."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time

from ralph.agents.adapter import Adapter
from ralph.agents.agent import Abilities, Call
from ralph.agents.reader import Meter, StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, brief, parse
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure

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
    abilities = Abilities(
        commands=True, resume=True, session=True, tokens=True, names_model=True, cost=True, step_limit=True
    )
    services = ("GOOSE_PROVIDER",)
    settings = ("XDG_CONFIG_HOME", ".config")
    may_hold = ("goose/config.yaml",)

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
        """Every tool approved, unless the user chose another mode.

        Its model is not asked for a name of the conversation: nobody would count that.
        """
        return {"GOOSE_MODE": os.environ.get("GOOSE_MODE") or "auto", "GOOSE_DISABLE_SESSION_NAMING": "true"}

    def reader(self, call: Call, before: Usage) -> "GooseReader":
        """Who reads a turn; the usage that is told at its end is that of the whole conversation."""
        return GooseReader(self.prices, call.model, meter=Meter(before))

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A provider with its key; where it is set up by a file, its key is in the keyring, which is not opened."""
        key = f"{environment.get('GOOSE_PROVIDER', '').upper()}_API_KEY"
        if environment.get(key):
            return True, key
        return super().sign_in(environment, home)


@dataclass
class GooseReader(StreamReader):
    """Reads one turn of Goose. An error is a message like those of the model, but for a mark that theirs bear."""

    marked: bool = False
    """Whether the words of the model are marked: those without are then its own."""
    own_words: str = ""
    """What it said itself since the model last spoke: why it stops."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        data = parse(line)
        self.now = time()
        return list(self.events(data) if data else self._banner(line[:TEXT_CHARS].decode(errors="replace")))

    def _banner(self, line: str) -> Iterator[AgentEvent]:
        if found := _BANNER.match(line):
            yield from self.begin(found[1])
        elif found := _REFUSAL.match(line):
            needs_setup = re.search("configur|provider", found[1], re.IGNORECASE)
            yield from self.complain(found[1], Failure.ACCESS if needs_setup else None)

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What an object tells."""
        match data.get("type"):
            case "message":
                yield from self._message(data.inner("message"))
            case "error":
                yield from self._failed(data.word("error") or "it failed")
            case "complete":
                yield from self.speech.end()
                tokens = data.count("input_tokens"), data.count("cache_read_input_tokens"), data.count("output_tokens")
                yield from self.total({self.model: tokens}, data.money("cost_usd"))
                yield from self._failed(self.own_words) if self.own_words else self.done()

    def _message(self, message: Data) -> Iterator[AgentEvent]:
        mark = message.inner("metadata", "inference")
        if mark:
            self.marked, self.own_words, self.model = True, "", mark.word("requestedModel") or self.model
        for part in message.objects("content"):
            match part.word("type"):
                case "text" if message.word("role") == "assistant":
                    yield from self._text(part.word("text"), is_own=self.marked and not mark)
                case "thinking" | "reasoning":
                    yield from self.think(part.word("thinking", "text"))
                case "toolRequest":
                    yield from self.speech.end()
                    call = part.inner("toolCall", "value")
                    yield from self.use("", call.word("name"), call.get("arguments"))
                case "toolResponse":
                    # A tool that could not be used at all has an error in the place of a value.
                    result, value = part.inner("toolResult"), part.inner("toolResult", "value")
                    failed = value.get("isError") is True or result.word("status") == "error"
                    yield from self.used("", value.said("content") or result.word("error"), failed=failed)
                case "error":
                    self.own_words = part.word("message")
                case "systemNotification" if part.word("notificationType") == "inlineMessage":
                    yield from self.warn(part.word("msg"))
                case "systemNotification" if part.word("notificationType") == "creditsExhausted":
                    self.own_words = f"out of credits: {part.word('msg')}"

    def _text(self, text: str, *, is_own: bool) -> Iterator[AgentEvent]:
        """Where no words of the model are marked, or none have come yet, its own are known by how they begin."""
        if is_own or (not self.marked and text.startswith(_OWN_WORDS)):
            self.own_words = text
        else:
            yield from self.speech.hear(text)

    def _failed(self, error: str) -> Iterator[AgentEvent]:
        """The end; what follows an empty line is advice for people at a prompt."""
        error = error.partition("\n\n")[0] or error
        if error.startswith(_FULL):
            return self.fail(f"it reached its own limit of turns ({brief(error)})", Failure.AGENT)
        return self.fail(error)
