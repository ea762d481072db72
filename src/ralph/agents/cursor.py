"""Cursor CLI: how it is started and what its stream says, which is like that of Claude Code. By its documentation, unproven."""

from collections.abc import Iterator
from dataclasses import dataclass

from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Abilities, Call
from ralph.agents.claude import ClaudeReader
from ralph.agents.lines import Data, brief, count, inner, number, prose, said, tool_text, word
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind


class Cursor(Adapter):
    """The command line agent of Cursor. Where it fails, its stream may end without a word: standard error has it."""

    name = "cursor"
    install = "curl https://cursor.com/install -fsS | bash"
    advice = "run `cursor-agent login`, or set CURSOR_API_KEY"
    abilities = Abilities(commands=True, resume=True, session=True, tokens=True)
    keys = ("CURSOR_API_KEY",)
    settings = ("", ".config/cursor")
    credentials = ("auth.json",)

    def __init__(self, program: str = "", prices: Prices | None = None) -> None:
        super().__init__(program or "cursor-agent", prices)

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode with everything allowed; the prompt from standard input."""
        return (
            self.program,
            *("-p", "--force", "--output-format", "stream-json"),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "CursorReader":
        """Who reads a turn; the usage at its end is that of the turn."""
        return CursorReader()


@dataclass
class CursorReader(ClaudeReader):
    """Reads one turn of Cursor CLI."""

    last_words: str = ""

    def _events(self, data: Data) -> Iterator[AgentEvent]:
        if data.get("type") == "tool_call":
            yield from self._tool(data)
        else:
            yield from super()._events(data)

    def _assistant(self, data: Data) -> Iterator[AgentEvent]:
        self.last_words = prose(said(inner(data, "message").get("content"))) or self.last_words
        return super()._assistant(data)

    def _tool(self, data: Data) -> Iterator[AgentEvent]:
        """A tool is named by the key of what it is given, as `shellToolCall`; MCP tools are functions."""
        call = inner(data, "tool_call")
        key = next((key for key in call if key.endswith("ToolCall")), "")
        body = inner(call, key) if key else inner(call, "function")
        result, key = inner(body, "result"), key.removesuffix("ToolCall") or word(body, "name")
        used = tool_text(key, body.get("args") or body.get("arguments") or inner(result, "rejected"))
        if data.get("subtype") == "started":
            yield AgentEvent(Kind.TOOL, used)
        elif data.get("subtype") == "completed":
            if "rejected" in result:
                yield AgentEvent(Kind.DENIED, used)
            outcome = inner(result, "success")
            text = word(outcome, "stdout") or word(outcome, "stderr") or word(outcome, "content")
            failed = "success" not in result or bool(number(outcome, "exitCode"))
            yield AgentEvent(Kind.TOOL_RESULT, brief(text or next(iter(result), "")), is_error=failed)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end, whose text is all that was said in the turn: the last of it is its answer."""
        going_well = data.get("is_error") is False
        yield from super()._result({**data, "result": self.last_words} if going_well and self.last_words else data)

    def _total(self, data: Data) -> Iterator[AgentEvent]:
        usage = inner(data, "usage")
        spoken = count(usage, "inputTokens", "cacheReadTokens", "cacheWriteTokens")
        yield from self.meter.rise(spoken, count(usage, "outputTokens"))
