"""Cursor CLI: how it is started and what its stream says, which is like that of Claude Code. By its documentation, unproven."""

from collections.abc import Iterator

from ralph.agents.adapter import Adapter
from ralph.agents.agent import FULL_AUTO, PLAN, READ_ONLY, Abilities, Call
from ralph.agents.claude import ClaudeReader
from ralph.agents.prices import Prices
from ralph.agents.stream_lines import Data, tool_text
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent

_MODES = {FULL_AUTO: ("--force",), READ_ONLY: ("--mode", "ask"), PLAN: ("--mode", "plan")}


class Cursor(Adapter):
    """The command line agent of Cursor. Where it fails, its stream may end without a word: standard error has it."""

    name = "cursor"
    install = "curl https://cursor.com/install -fsS | bash"
    advice = "run `cursor-agent login`, or set CURSOR_API_KEY"
    abilities = Abilities(commands=True, resume=True, session=True, tokens=True)
    keys = ("CURSOR_API_KEY",)
    settings = ("", ".config/cursor")
    credentials = ("auth.json",)

    permission_modes = _MODES
    permission_options = ("--force", "-f", "--yolo", "--mode", "--plan")

    def __init__(self, program: str = "", prices: Prices | None = None) -> None:
        super().__init__(program or "cursor-agent", prices)

    def command(self, call: Call) -> tuple[str, ...]:
        """Print mode with everything allowed; the prompt from standard input."""
        return (
            self.program,
            *("-p", *self.permission_words(call), "--output-format", "stream-json"),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "CursorReader":
        """Who reads a turn; the usage at its end is that of the turn."""
        return CursorReader(self.prices, call.model)


class CursorReader(ClaudeReader):
    """Reads one turn of Cursor CLI."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells."""
        if data.get("type") == "thinking":
            return self.think(data.word("text"))
        return self._tool(data) if data.get("type") == "tool_call" else super().events(data)

    def _tool(self, data: Data) -> Iterator[AgentEvent]:
        """A tool is named by the key of what it is given, as `shellToolCall`; MCP tools are functions."""
        call = data.inner("tool_call")
        name = next((key for key in call if key.endswith("ToolCall")), "")
        body = call.inner(name or "function")
        result, name = body.inner("result"), name.removesuffix("ToolCall") or body.word("name")
        given = body.get("args") or body.get("arguments") or result.inner("rejected")
        key = data.word("call_id")
        if data.get("subtype") == "started":
            yield from self.use(key, name, given)
        elif data.get("subtype") == "completed":
            self.tools[key] = tool_text(name, given)
            outcome = result.inner("success")
            text = outcome.word("stdout", "stderr", "content") or next(iter(result), "")
            failed = "success" not in result or bool(outcome.number("exitCode"))
            yield from self.used(key, text, failed=failed, denied="rejected" in result)

    def _result(self, data: Data) -> Iterator[AgentEvent]:
        """The end, whose text is all that was said in the turn: the last of it is its answer."""
        words = self.speech.last_words if data.get("is_error") is False else ""
        yield from super()._result(Data({**data, "result": words}) if words else data)

    def _total(self, data: Data) -> Iterator[AgentEvent]:
        usage = data.inner("usage")
        spoken = usage.count("inputTokens", "cacheReadTokens", "cacheWriteTokens")
        tokens = spoken, usage.count("cacheReadTokens"), usage.count("outputTokens")
        yield from self.total({self.model: tokens})
