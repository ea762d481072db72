"""Codex: how it is started and what its stream says. Measured with 0.166.0."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ralph.agents.adapter import Adapter, Prices
from ralph.agents.agent import Abilities, Call
from ralph.agents.codex_hooks import hook_settings, trust
from ralph.agents.hearing import unheard
from ralph.agents.lines import (
    Complaints,
    Data,
    Meter,
    brief,
    count,
    gone_wrong,
    inner,
    moment,
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
from ralph.core.stream import AgentEvent, Kind

_FEATURES = {"sub-agents": "multi_agent"}
_USES = ("command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call")


class Codex(Adapter):
    """Codex of OpenAI."""

    name = "codex"
    install = "npm install -g @openai/codex"
    advice = "run `codex login`, or set CODEX_API_KEY"
    abilities = Abilities(resume=True, session=True, hooks=True, tokens=True, sandbox=True, tool_limits=True)
    keys = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_API_KEY")
    settings = ("CODEX_HOME", ".codex")
    credentials = ("auth.json",)

    def command(self, call: Call) -> tuple[str, ...]:
        """`exec` with all permissions and the prompt from standard input. Tools are switched off as features."""
        without = [_FEATURES.get(name, name) for name in call.without_tools]
        return (
            self.program,
            *("exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"),
            *("-c", "check_for_update_on_startup=false"),
            *(part for name in without for part in ("-c", f"features.{name}=false")),
            *(("-m", call.model) if call.model else ()),
            *(self.hook_words if self.hears(call) else ()),
            *call.arguments,
            *(("resume", call.session) if call.session else ()),
            "-",
        )

    def ready(self, environment: Mapping[str, str]) -> str:
        """Find out how hooks of ours are trusted."""
        if told := trust(self.program, environment):
            self.hook_words = tuple(part for one in (*hook_settings(), told) for part in ("-c", one))
        return "" if told else unheard(self.name, "it does not tell how a hook is trusted (hooks/list)")

    def hears(self, call: Call) -> bool:
        """By hooks that it trusts, unless the user's arguments are in their place."""
        return super().hears(call) and not any(word.startswith("hooks.") for word in call.arguments)

    def reader(self, call: Call, before: Usage) -> "CodexReader":
        """Who reads a turn. The stream names no model, and its usage is that of the whole conversation.

        `before` is what the conversation had used before this turn, as its readers told.
        """
        return CodexReader(self.prices, call.model, Meter(before))


@dataclass
class CodexReader:
    """Reads one turn of Codex."""

    prices: Prices
    model: str
    meter: Meter
    complaints: Complaints = field(default_factory=Complaints)
    started: set[str] = field(default_factory=set)
    last_words: str = ""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        return list(self._events(parse(line)))

    def _events(self, data: Data) -> Iterator[AgentEvent]:
        item = inner(data, "item")
        match data.get("type"):
            case "thread.started":
                if session := brief(word(data, "thread_id")):
                    yield AgentEvent(Kind.SESSION, session=session)
            case "item.started":
                yield from self._use(item)
            case "item.completed":
                yield from self._item(item)
            case "turn.completed":
                yield from self._total(inner(data, "usage"))
                yield well_done(self.last_words)
            case "turn.failed":
                error = word(inner(data, "error"), "message") or "the turn failed"
                yield from self.complaints.about(error, moment(data))
                yield gone_wrong(error)
            case "error":
                error = word(data, "message")
                if error.startswith("Reconnecting"):
                    yield AgentEvent(Kind.RETRY, brief(error))
                elif error:
                    yield from self.complaints.about(error, moment(data))

    def _item(self, item: Data) -> Iterator[AgentEvent]:
        """Something that is done; an item that is an error is a warning, and nothing to tell."""
        kind, text = word(item, "type"), prose(word(item, "text"))
        if kind == "agent_message" and text:
            self.last_words = text
            yield AgentEvent(Kind.TEXT, text)
        elif kind in _USES:
            yield from self._use(item)
            self.started.discard(word(item, "id"))
            status = word(item, "status")
            if status == "declined":
                yield AgentEvent(Kind.DENIED, _used(item))
            output = word(item, "aggregated_output") or said(inner(item, "result").get("content"))
            output = output or word(inner(item, "error"), "message") or status
            yield AgentEvent(Kind.TOOL_RESULT, brief(output), is_error=status in ("failed", "declined"))

    def _use(self, item: Data) -> Iterator[AgentEvent]:
        key = word(item, "id")
        if word(item, "type") in _USES and key not in self.started:
            self.started.add(key)
            yield AgentEvent(Kind.TOOL, _used(item))

    def _total(self, usage: Data) -> Iterator[AgentEvent]:
        spoken, heard = count(usage, "input_tokens"), count(usage, "output_tokens")
        cost = cost_of(self.model, spoken, count(usage, "cached_input_tokens"), heard, self.prices)
        unknown = self.meter.told.tokens and self.meter.told.cost is None
        yield from self.meter.rise(spoken, heard, None if unknown else cost)


def _used(item: Data) -> str:
    """What an item does, in a line."""
    match word(item, "type"):
        case "command_execution":
            return tool_text("shell", {"command": word(item, "command")})
        case "file_change":
            return tool_text("edit", {"path": ", ".join(word(change, "path") for change in objects(item, "changes"))})
        case "mcp_tool_call":
            return tool_text(f"{word(item, 'server')}.{word(item, 'tool')}", item.get("arguments"))
        case kind:
            return tool_text(kind, {"query": word(item, "query") or word(item, "prompt")})
