"""What an agent tells in the updates of the Agent Client Protocol, as events of ours.

Messages are read as they come and not by the SDK's models: agents are ahead of its schema, and behind.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ralph.agents.reader import Meter, Speech
from ralph.agents.stream_lines import TEXT_CHARS, Data, brief, prose, todo_text, tool_text
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind

SUB_AGENTS = ("task", "agent", "subagent", "sub-agent", "delegate", "codebase_investigator")
_TELLING = ("command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "prompt")
_OUTPUTS = ("output", "stdout", "content", "formatted_output", "message")


@dataclass
class Tool:
    """One use of a tool, as far as it is known."""

    title: str = ""
    kind: str = ""
    names: set[str] = field(default_factory=set)
    """What it may be called by whoever forbids it, in lower case."""
    given: Data = field(default_factory=Data)
    told: bool = False
    denied: bool = False
    """Whether the agent asked before it used it, and was refused."""

    @property
    def text(self) -> str:
        """What it is and what it does: the part of its input that says most, else its title."""
        return tool_text(self.kind, {"command": self.deed or self.title}) if self.kind else self.title or "a tool"

    @property
    def deed(self) -> str:
        """The part of its input that says most; empty where none is known."""
        return self.given.word(*_TELLING)


@dataclass
class UpdateReader:
    """Turns the updates of one turn into events."""

    tell: Callable[..., None]
    """Takes an event, and what else is known of it."""
    forbidden: frozenset[str] = frozenset()
    """Tools that it may not use, in lower case."""
    history: bool = False
    """Whether what comes is the past of a conversation that is gone on with."""
    heard: int = 0
    """How many updates came."""
    speech: Speech = field(default_factory=Speech)
    meter: Meter = field(default_factory=Meter)
    whole_cost: bool = False
    """Whether what it tells first of money is that of the whole conversation, and its earlier part is not known here."""
    earlier: float = 0.0
    """US dollars that the conversation cost before this turn, where it told them."""
    tools: dict[str, Tool] = field(default_factory=dict)
    thought: str = ""
    """What it thinks, as far as it was not told yet."""
    message: str = ""
    """The message that it is in."""
    complaints: tuple[str, ...] = ()
    """How words of the agent itself begin that tell of an error."""
    complaint: str = ""
    """The last thing it said, where it is one of these."""
    trespass: str = ""
    """The forbidden tool that was used."""

    def update(self, update: Data) -> None:
        """One update of the session."""
        kind = update.word("sessionUpdate")
        self.heard += 1
        if kind == "usage_update":
            self._cost(update.inner("cost"))
        elif self.history:
            return
        elif kind == "agent_message_chunk":
            self._chunk(update)
        elif kind == "agent_thought_chunk":
            self.thought = (self.thought + update.said("content"))[:TEXT_CHARS]
            self.tell(None)
        elif kind in ("tool_call", "tool_call_update"):
            self._tool_call(update)
        elif kind == "plan":
            todo = todo_text(update.objects("entries"), "content", lambda one: one.word("status") == "completed")
            self.flush()
            self.tell(AgentEvent(Kind.TOOL, brief(f"todo: {todo}")))
        else:
            self.tell(None)

    def flush(self) -> None:
        """Tell what it has thought and said so far."""
        thought, self.thought = prose(self.thought), ""
        if thought:
            self.tell(AgentEvent(Kind.THINKING, thought))
        for event in self.speech.end():
            self.tell(event)

    def tool(self, call: Data) -> Tool:
        """The use of a tool, with what is newly known of it."""
        tool = self.tools.setdefault(call.word("toolCallId"), Tool())
        tool.title = brief(call.word("title")) or tool.title
        tool.kind = brief(call.word("kind")) or tool.kind
        tool.given = call.inner("rawInput") or tool.given
        names = (call.word("title"), call.word("title").split(" ")[0], call.word("kind"), *_names(call.get("_meta")))
        tool.names |= {name.lower().strip(":`") for name in names if name}
        return tool

    def use(self, tool: Tool) -> None:
        """Tell of the use of a tool, once."""
        if not tool.told:
            tool.told = True
            self.flush()
            self.speech.last_words = ""
            self.tell(AgentEvent(Kind.TOOL, tool.text))

    def may(self, tool: Tool) -> bool:
        """Whether it may be used."""
        return not tool.names & self.forbidden

    def total(self, results: Sequence[Data], model: str) -> None:
        """What the turn used in all, by the answers to its prompts.

        Money can be reckoned where none was told and it is known what was cached, which costs a tenth.
        """
        usages = [one.inner("usage") or one.inner("_meta", "quota", "token_count") for one in results]
        spoken, cached, heard = (sum(amounts) for amounts in zip(*map(_tokens, usages), strict=True))
        known = self.meter.told == Usage() and any(one.number("cachedReadTokens") is not None for one in usages)
        for event in self.meter.rise(spoken, heard):
            self.tell(event, **({"model": model, "cached_tokens": cached} if known else {}))

    def _chunk(self, update: Data) -> None:
        text, message = update.said("content"), update.word("messageId")
        complains = text.startswith(self.complaints)
        if message != self.message or complains or self.thought:
            self.flush()
        if text.strip():
            self.complaint = text if complains else ""
        self.message = message
        for event in self.speech.hear(text):
            self.tell(event)
        if used := update.inner("_meta", "usage"):
            spoken, _, heard = _tokens(used)
            before = self.meter.told
            for event in self.meter.rise(before.input_tokens + spoken, before.output_tokens + heard):
                self.tell(event)
        self.tell(None)

    def _tool_call(self, update: Data) -> None:
        tool, status = self.tool(update), update.word("status")
        if tool.deed or status in ("in_progress", "completed", "failed"):
            self.use(tool)
        if status in ("completed", "failed"):
            self.tools.pop(update.word("toolCallId"), None)
            self.tell(AgentEvent(Kind.TOOL_RESULT, brief(_output(update)), is_error=status == "failed"))
            if status == "completed" and not tool.denied and not self.may(tool):
                self.trespass = tool.text
        else:
            self.tell(None)

    def _cost(self, cost: Data) -> None:
        """The money of the conversation so far, where that is in US dollars."""
        total = cost.money("amount") if cost.word("currency") in ("USD", "") else None
        if total is not None and self.history:
            self.earlier, self.whole_cost = total, False
        elif total is not None and total - self.earlier > (self.meter.told.cost or 0.0):
            told = self.meter.told
            for event in self.meter.rise(told.input_tokens, told.output_tokens, total - self.earlier):
                self.tell(event, **({"whole_cost": True} if self.whole_cost else {}))
            self.whole_cost = False


def _names(meta: object, depth: int = 3) -> Iterator[str]:
    """The name that an agent gives to a tool in what it adds to the protocol."""
    if isinstance(meta, dict) and depth:
        yield Data(meta).word("toolName")
        for one in meta.values():
            yield from _names(one, depth - 1)


def _tokens(usage: Data) -> tuple[int, int, int]:
    """Tokens in, those of them that were cached, and out; some agents count the cached ones and thoughts apart."""
    spoken = usage.count("inputTokens", "input_tokens")
    heard = usage.count("outputTokens", "output_tokens")
    cached, thought = usage.count("cachedReadTokens", "cachedWriteTokens"), usage.count("thoughtTokens")
    apart = usage.count("totalTokens") - spoken - heard
    more = cached if apart >= cached else 0
    return spoken + more, usage.count("cachedReadTokens"), heard + (thought if apart - more >= thought else 0)


def _output(update: Data) -> str:
    """What a tool came to: its text, the files that it changed, or what it printed."""
    parts = [one.said("content") or one.word("path") for one in update.objects("content")]
    raw = update.get("rawOutput")
    text = "\n".join(part for part in parts if part)
    if text or isinstance(raw, str):
        return text or str(raw)
    return next((found for key in _OUTPUTS if (found := Data.of(raw).said(key))), "")
