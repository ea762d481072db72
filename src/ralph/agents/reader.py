"""What the stream readers of all agents share. One reader reads the lines of one turn, and remembers what it has read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import time

from ralph.agents.failures import classify_failure, find_limit_end, plausible_reset
from ralph.agents.prices import Prices, cost_of
from ralph.agents.stream_lines import (
    IMAGE_NOTICE,
    TEXT_CHARS,
    Data,
    describe_tool,
    limit_text,
    one_line,
    parse_line,
    read_timestamp,
    unwrap_error,
)
from ralph.core.limits import Quota, Usage
from ralph.core.turns import IMAGE, AgentEvent, EventKind, Failure

_MAX_SHARE = 10.0
"""A subscription can be overdrawn, but a share above this was misread."""


@dataclass
class Meter:
    """Turns running totals into what was used since the last report."""

    total: Usage = field(default_factory=Usage)
    """The total that was reported last."""

    def add_total(
        self,
        input_tokens: int,
        output_tokens: int,
        cost: float | None = None,
        unpriced: str | None = None,
        *,
        cached: int = 0,
        reasoning: int = 0,
        model: str = "",
    ) -> Iterator[AgentEvent]:
        """Yield the usage event for a new total, if it is higher than the last.

        `unpriced` names a model without a known price.
        """
        before = self.total
        used = Usage(
            input_tokens=max(0, input_tokens - before.input_tokens),
            output_tokens=max(0, output_tokens - before.output_tokens),
            cost=None if cost is None else max(0.0, cost - (before.cost or 0.0)),
            unpriced=unpriced,
            cached_tokens=max(0, min(cached, input_tokens) - before.cached_tokens),
            reasoning_tokens=max(0, min(reasoning, output_tokens) - before.reasoning_tokens),
            model=one_line(model),
        )
        is_new_model = bool(before.tokens) and not before.model and bool(used.model)
        if is_new_model or used.cached_tokens or used.reasoning_tokens or used.tokens or used.cost is not None:
            self.total = before + used
            yield AgentEvent(EventKind.USAGE, usage=used)


@dataclass
class ErrorReporter:
    """Reports a failure once, even if the agent repeats it."""

    last: Failure | None = None

    def report(self, error: str, now: float, kind: Failure, resets_at: float | None = None) -> Iterator[AgentEvent]:
        """Yield the event for an error, if its class differs from the last one's."""
        if kind is self.last:
            return
        self.last = kind
        text = limit_text(unwrap_error(error[:TEXT_CHARS]))
        if kind is Failure.LIMIT:
            resets_at = plausible_reset(resets_at, now) or find_limit_end(error[:TEXT_CHARS], now)
            yield AgentEvent(EventKind.LIMIT, text, resets_at=resets_at, failure=kind)
        else:
            yield AgentEvent(EventKind.ERROR, text, is_error=True, failure=kind)


@dataclass
class MessageBuffer:
    """Joins pieces of an agent's messages into whole lines, and remembers its last message."""

    unfinished: str = ""
    """A line that has not ended yet."""
    last_message: str = ""
    """The agent's text since it last used a tool."""

    def add(self, piece: str) -> Iterator[AgentEvent]:
        """Add a piece, and yield the lines that are complete now."""
        self.unfinished += piece
        whole, newline, rest = self.unfinished.rpartition("\n")
        if newline or len(self.unfinished) > TEXT_CHARS:
            self.unfinished = whole or self.unfinished
            yield from self.flush()
            self.unfinished = rest if newline else ""

    def flush(self) -> Iterator[AgentEvent]:
        """Yield the rest: the message is over."""
        text, self.unfinished = limit_text(self.unfinished), ""
        if text:
            self.last_message = f"{self.last_message}\n{text}".strip()[-TEXT_CHARS:]
            yield AgentEvent(EventKind.TEXT, text)


def failed_result(error: str, kind: Failure) -> AgentEvent:
    """The end of a turn that failed."""
    return AgentEvent(EventKind.RESULT, limit_text(unwrap_error(error[:TEXT_CHARS])), is_error=True, failure=kind)


def success_result(text: str) -> AgentEvent:
    """The end of a turn that succeeded."""
    return AgentEvent(EventKind.RESULT, limit_text(text))


@dataclass
class StreamReader:
    """Reads one turn of an agent that prints JSON lines. Subclasses define `events` with the methods below."""

    prices: Prices = field(default_factory=dict)
    model: str = ""
    session: str = ""
    """The id of the conversation, once the agent has reported it."""
    meter: Meter = field(default_factory=Meter)
    tools: dict[str, str] = field(default_factory=dict)
    """The tools in use, by id."""
    buffer: MessageBuffer = field(default_factory=MessageBuffer)
    errors: ErrorReporter = field(default_factory=ErrorReporter)
    now: float = field(default_factory=time)
    """When the current line was written."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The events in a line; none if it is not an event. It must not raise, whatever the line contains."""
        data = parse_line(line)
        self.now = read_timestamp(data)
        return list(self.events(data))

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in one JSON object, which can be empty."""
        raise NotImplementedError

    def start_session(self, session: str) -> Iterator[AgentEvent]:
        """Report the id of the conversation, once."""
        session = one_line(session)
        if session and session != self.session:
            self.session = session
            yield AgentEvent(EventKind.SESSION, session=session)

    def say(self, text: str) -> Iterator[AgentEvent]:
        """Report a whole message of the agent."""
        self.buffer.unfinished += text
        return self.buffer.flush()

    def think(self, text: str) -> Iterator[AgentEvent]:
        """Report a thought; empty and encrypted ones are left out."""
        if text := limit_text(text):
            yield AgentEvent(EventKind.THINKING, text)

    def warn(self, text: str) -> Iterator[AgentEvent]:
        """Report what the user should know and what is not an error."""
        if text := one_line(text):
            yield AgentEvent(EventKind.WARNING, text)

    def start_tool(self, key: str, name: str, arguments: object, *, is_sub_agent: bool = False) -> Iterator[AgentEvent]:
        """Report that a tool starts. Text before it is not the agent's last message."""
        if not is_sub_agent:
            self.buffer.last_message = ""
        self.tools[key] = describe_tool(name, arguments)
        yield AgentEvent(EventKind.TOOL, self.tools[key], is_sub_agent=is_sub_agent)

    def finish_tool(self, key: str, text: str, *, failed: bool, denied: bool = False) -> Iterator[AgentEvent]:
        """Report the result of a tool."""
        tool = self.tools.pop(key, "a tool")
        text = IMAGE if text.startswith(IMAGE_NOTICE) else text
        if denied:
            yield AgentEvent(EventKind.DENIED, tool)
        yield AgentEvent(EventKind.TOOL_RESULT, one_line(text), is_error=failed)

    def add_usage(
        self,
        input_tokens: int,
        cached: int,
        output_tokens: int,
        cost: float | None = None,
        *,
        reasoning: int = 0,
    ) -> Iterator[AgentEvent]:
        """Report what one answer used. A cost that is missing or zero is computed from the price table."""
        cost = cost or cost_of(self.model, input_tokens, cached, output_tokens, self.prices)
        if input_tokens or output_tokens or cost:
            used = Usage(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cost=cost,
                unpriced=self.model if cost is None else None,
                cached_tokens=min(cached, input_tokens),
                reasoning_tokens=min(reasoning, output_tokens),
                model=one_line(self.model),
            )
            yield AgentEvent(EventKind.USAGE, usage=used)

    def report_total(
        self, by_model: dict[str, tuple[int, int, int]], cost: float | None = None, *, reasoning: int = 0
    ) -> Iterator[AgentEvent]:
        """Report what the conversation used so far: by model, the tokens in, the cached ones among them, and out."""
        input_tokens, cached, output_tokens = (sum(tokens) for tokens in zip(*by_model.values(), strict=True))
        unpriced = None
        if cost is None:
            cost, unpriced = self._compute_cost(by_model)
        yield from self.meter.add_total(
            input_tokens,
            output_tokens,
            cost,
            unpriced,
            cached=cached,
            reasoning=reasoning,
            model=", ".join(name for name in by_model if name),
        )

    def _compute_cost(self, by_model: dict[str, tuple[int, int, int]]) -> tuple[float | None, str | None]:
        """The cost of a total, or None and the first model without a price."""
        total = 0.0
        for model, (input_tokens, cached, output_tokens) in by_model.items():
            cost = cost_of(model, input_tokens, cached, output_tokens, self.prices)
            if cost is None:
                return None, model
            total += cost
        before = self.meter.total
        # The cost of earlier turns is unknown: a total would charge them to this one.
        if before.cost is None and before.tokens:
            return None, None
        return total, None

    def report_quota(self, windows: Iterable[tuple[float, str, float | None]]) -> Iterator[AgentEvent]:
        """Report how much of a subscription is used: the share, name and end of each window, of which the fullest counts."""
        known = [(share, name, end) for share, name, end in windows if 0 <= share <= _MAX_SHARE]
        if known:
            share, name, end = max(known, key=lambda window: window[0])
            window = one_line(name.replace("_", "-"))
            quota = Quota(round(share, 4), window, plausible_reset(end, self.now))
            yield AgentEvent(EventKind.QUOTA, str(quota), quota=quota)

    def retry(self, text: str) -> Iterator[AgentEvent]:
        """Report that the agent tries something again by itself."""
        yield AgentEvent(EventKind.RETRY, one_line(text))

    def report_error(
        self, error: str, kind: Failure | None = None, resets_at: float | None = None
    ) -> Iterator[AgentEvent]:
        """Report an error that may or may not end the turn."""
        return self.errors.report(error, self.now, kind or classify_failure(error[:TEXT_CHARS]), resets_at)

    def succeed(self, text: str = "") -> Iterator[AgentEvent]:
        """Report the end of a turn that succeeded."""
        yield success_result(text or self.buffer.last_message)

    def fail(self, error: str, kind: Failure | None = None, resets_at: float | None = None) -> Iterator[AgentEvent]:
        """Report the end of a turn that failed, after its error if that was not reported yet."""
        error = error or "it failed"
        kind = kind or classify_failure(error[:TEXT_CHARS])
        yield from self.report_error(error, kind, resets_at)
        yield failed_result(error, kind)
