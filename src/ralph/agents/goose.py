"""Goose: how it is started and what its stream says. Measured with 1.52.0, and 0.20.2 (without marks on messages)."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time

from ralph.agents.adapter import PLAN, READ_ONLY, Abilities, Adapter, Call, OwnMode
from ralph.agents.reader import Meter, StreamReader
from ralph.agents.stream_lines import TEXT_CHARS, Data, one_line, parse_line
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, Failure

_BANNER = re.compile(r"\s*\\____\)\s+(\w+) · ")
"""The line of its banner that names the conversation."""
_REFUSAL = re.compile(r"\s*error: (.+)")
"""What it prints instead of a banner."""
_TURN_LIMIT = "I've reached the maximum number of actions"
_OWN_MESSAGES = ("Ran into this error", "Network error: ", _TURN_LIMIT)


_OWN_LEVELS = {"approve": READ_ONLY, "smart_approve": READ_ONLY, "chat": PLAN}
_MODE_SETTING = re.compile(rf"""^GOOSE_MODE: *["']?({"|".join(_OWN_LEVELS)})\b""", re.MULTILINE)


class Goose(Adapter):
    """Goose, with the model of the provider that the user configured. It reports the cost of the models that it knows."""

    name = "goose"
    install = "brew install block-goose-cli"
    advice = "run `goose configure`, or set GOOSE_PROVIDER, GOOSE_MODEL and the provider's key"
    abilities = Abilities(resume=True, session=True, tokens=True, names_model=True, cost=True, step_limit=True)
    services = ("GOOSE_PROVIDER",)
    instruction_files = ("AGENTS.md",)
    settings = ("XDG_CONFIG_HOME", ".config")
    may_hold = ("goose/config.yaml",)

    def command(self, call: Call) -> tuple[str, ...]:
        """`run` with the prompt from standard input, and with tools for files and commands whatever its profile says."""
        return (
            self.program,
            *("run", "-i", "-", "--with-builtin", "developer", "--output-format", "stream-json"),
            *(("--model", call.model) if call.model else ()),
            *(("--max-turns", str(call.most_steps)) if call.most_steps is not None else ()),
            *(("--resume", "--session-id", call.session) if call.session else ()),
            *call.arguments,
        )

    def chooses_mode(self, arguments: tuple[str, ...]) -> bool:
        """With a variable: it has no option for the mode."""
        return {**os.environ, **self.variables}.get("GOOSE_MODE", "auto") not in ("auto", "")

    def can_change_files(self, call: Call, environment: Mapping[str, str]) -> bool:
        """Unless a variable of the user chooses a mode in which it asks, or has no tools."""
        return environment.get("GOOSE_MODE") not in _OWN_LEVELS

    def find_own_mode(self, call: Call, environment: Mapping[str, str]) -> OwnMode | None:
        """`GOOSE_MODE` in its settings. In its other modes it asks before it uses a tool, or has no tools."""
        path = self.settings_home(environment) / "goose" / "config.yaml"
        with contextlib.suppress(OSError):
            if found := _MODE_SETTING.search(path.read_text(encoding="utf-8", errors="replace")):
                return OwnMode(_OWN_LEVELS[found[1]], f"GOOSE_MODE: {found[1]}", path)
        return None

    def environment(self, call: Call) -> Mapping[str, str]:
        """Every tool approved, unless the user chose another mode.

        Goose does not report the tokens with which its model names a conversation, so that is off.
        """
        return {"GOOSE_MODE": os.environ.get("GOOSE_MODE") or "auto", "GOOSE_DISABLE_SESSION_NAMING": "true"}

    def reader(self, call: Call, before: Usage) -> "GooseReader":
        """The usage at the end is that of the whole conversation."""
        return GooseReader(self.prices, call.model, meter=Meter(before))

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """A provider with its key. `goose configure` puts the key into the keyring, which Ralph does not open."""
        key = f"{environment.get('GOOSE_PROVIDER', '').upper()}_API_KEY"
        if environment.get(key):
            return True, key
        return super().sign_in(environment, home)


@dataclass
class GooseReader(StreamReader):
    """Reads one turn of Goose. An error looks like a message of the model, except that those are marked."""

    has_marks: bool = False
    """Whether messages of the model are marked. Messages without a mark are then Goose's own."""
    own_message: str = ""
    """The last message of Goose itself since the model's: why it stops."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The events in a line."""
        data = parse_line(line)
        self.now = time()
        return list(self.events(data) if data else self._banner(line[:TEXT_CHARS].decode(errors="replace")))

    def _banner(self, line: str) -> Iterator[AgentEvent]:
        if found := _BANNER.match(line):
            yield from self.start_session(found[1])
        elif found := _REFUSAL.match(line):
            needs_setup = re.search("configur|provider", found[1], re.IGNORECASE)
            yield from self.report_error(found[1], Failure.ACCESS if needs_setup else None)

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in one JSON object."""
        match data.get("type"):
            case "message":
                yield from self._message(data.inner("message"))
            case "error":
                yield from self._fail_turn(data.text("error") or "it failed")
            case "complete":
                yield from self.buffer.flush()
                tokens = data.count("input_tokens"), data.count("cache_read_input_tokens"), data.count("output_tokens")
                yield from self.report_total({self.model: tokens}, data.money("cost_usd"))
                if self.own_message:
                    yield from self._fail_turn(self.own_message)
                else:
                    yield from self.succeed()

    def _message(self, message: Data) -> Iterator[AgentEvent]:
        mark = message.inner("metadata", "inference")
        if mark:
            self.has_marks, self.own_message, self.model = True, "", mark.text("requestedModel") or self.model
        for part in message.objects("content"):
            match part.text("type"):
                case "text" if message.text("role") == "assistant":
                    yield from self._text(part.text("text"), is_own=self.has_marks and not mark)
                case "thinking" | "reasoning":
                    yield from self.think(part.text("thinking", "text"))
                case "toolRequest":
                    yield from self.buffer.flush()
                    call = part.inner("toolCall", "value")
                    yield from self.start_tool("", call.text("name"), call.get("arguments"))
                case "toolResponse":
                    # A tool that could not run has an error instead of a value.
                    result, value = part.inner("toolResult"), part.inner("toolResult", "value")
                    failed = value.get("isError") is True or result.text("status") == "error"
                    text = value.content_text("content") or result.text("error")
                    yield from self.finish_tool("", text, failed=failed)
                case "error":
                    self.own_message = part.text("message")
                case "systemNotification" if part.text("notificationType") == "inlineMessage":
                    yield from self.warn(part.text("msg"))
                case "systemNotification" if part.text("notificationType") == "creditsExhausted":
                    self.own_message = f"out of credits: {part.text('msg')}"

    def _text(self, text: str, *, is_own: bool) -> Iterator[AgentEvent]:
        """Without marks, or before the first, Goose's own messages are recognized by how they begin."""
        if is_own or (not self.has_marks and text.startswith(_OWN_MESSAGES)):
            self.own_message = text
        else:
            yield from self.buffer.add(text)

    def _fail_turn(self, error: str) -> Iterator[AgentEvent]:
        """The end. What follows an empty line is advice for a user at a terminal."""
        error = error.partition("\n\n")[0] or error
        if error.startswith(_TURN_LIMIT):
            return self.fail(f"it reached its own turn limit ({one_line(error)})", Failure.AGENT)
        return self.fail(error)
