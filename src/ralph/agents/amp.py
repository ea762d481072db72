"""Amp: how it is started and what its stream says, which is like that of Claude Code. By its documentation, unproven."""

from collections.abc import Iterator

from ralph.agents.adapter import Adapter
from ralph.agents.agent import FULL_AUTO, Abilities, Call
from ralph.agents.claude import ClaudeReader
from ralph.agents.stream_lines import Data, brief
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind

_MODES = {FULL_AUTO: ("--dangerously-allow-all",)}


class Amp(Adapter):
    """Amp, which chooses its models itself: a model is one of its modes here, as `low`, `medium` or `high`."""

    name = "amp"
    install = "npm install -g @sourcegraph/amp"
    advice = "run `amp login`, or set AMP_API_KEY"
    abilities = Abilities(commands=True, resume=True, session=True, tokens=True)
    keys = ("AMP_API_KEY",)
    settings = ("", ".local/share/amp")
    credentials = ("secrets.json",)

    permission_modes = _MODES
    permission_options = ("--dangerously-allow-all",)

    def command(self, call: Call) -> tuple[str, ...]:
        """Execute mode with every tool allowed; the prompt from standard input. A conversation is a thread."""
        return (
            self.program,
            *(("threads", "continue", call.session) if call.session else ()),
            *("--execute", "--stream-json", *self.permission_words(call), "--no-ide"),
            *(("--mode", call.model) if call.model else ()),
            *call.arguments,
        )

    def model_of(self, call: Call) -> str:
        """It does not tell: what it is asked for is a mode."""
        return ""

    def reader(self, call: Call, before: Usage) -> "AmpReader":
        """Who reads a turn; each message tells what it used."""
        return AmpReader()

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Without a key it takes the prompt for the code by which a person signs in."""
        told = super().failure(code, stderr)
        return (Failure.ACCESS, told[1]) if told and "Login failed" in told[1] else told


class AmpReader(ClaudeReader):
    """Reads one turn of Amp."""

    def _message_usage(self, key: str, usage: Data) -> Iterator[AgentEvent]:
        """Messages may be without an id, and come once."""
        return super()._message_usage(key or f"number {len(self.messages)}", usage)

    def _spoken(self, usage: Data) -> int:
        """Tokens in: those of the cache are part of them already."""
        cached = usage.count("cache_read_input_tokens", "cache_creation_input_tokens")
        return max(usage.count("input_tokens"), cached)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end; an error is told in words of its own, and denials are words too."""
        denied = data.get("permission_denials")
        for used in denied if isinstance(denied, list) else ():
            if isinstance(used, str) and brief(used):
                yield AgentEvent(Kind.DENIED, brief(used))
        yield from super()._result(Data({**data, "result": data.word("result", "error")}))
