"""What the readers of the agents share: one reads the lines of one turn, and remembers what it has read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import time

from ralph.agents.failures import end_of_limit, failure_of, sensible
from ralph.agents.prices import Prices, cost_of
from ralph.agents.stream_lines import TEXT_CHARS, Data, brief, moment, parse, prose, tool_text, unwrapped
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind


@dataclass
class Meter:
    """Turns running totals into what was used since the last time."""

    told: Usage = field(default_factory=Usage)

    def rise(
        self,
        spoken: int,
        heard: int,
        cost: float | None = None,
        unpriced: str | None = None,
        *,
        cached: int = 0,
        reasoning: int = 0,
        model: str = "",
    ) -> Iterator[AgentEvent]:
        """What was used more than was told of, if anything; `unpriced` is the model that has no known price."""
        before = self.told
        more = Usage(
            input_tokens=max(0, spoken - before.input_tokens),
            output_tokens=max(0, heard - before.output_tokens),
            cost=None if cost is None else max(0.0, cost - (before.cost or 0.0)),
            unpriced=unpriced,
            cached_tokens=max(0, min(cached, spoken) - before.cached_tokens),
            reasoning_tokens=max(0, min(reasoning, heard) - before.reasoning_tokens),
            model=brief(model),
        )
        if more.cached_tokens or more.reasoning_tokens or more.tokens or more.cost is not None:
            self.told = before + more
            yield AgentEvent(Kind.USAGE, usage=more)


@dataclass
class Complaints:
    """Tells of a failure once, however often an agent comes back to it."""

    last: Failure | None = None

    def about(self, error: str, now: float, kind: Failure, resets_at: float | None = None) -> Iterator[AgentEvent]:
        """The event for an error, where it is a new one."""
        if kind is self.last:
            return
        self.last, text = kind, prose(unwrapped(error[:TEXT_CHARS]))
        if kind is Failure.LIMIT:
            resets_at = sensible(resets_at, now) or end_of_limit(error[:TEXT_CHARS], now)
            yield AgentEvent(Kind.LIMIT, text, resets_at=resets_at, failure=kind)
        else:
            yield AgentEvent(Kind.ERROR, text, is_error=True, failure=kind)


@dataclass
class Speech:
    """What an agent says in pieces that end anywhere: it is told in whole lines, and the last words are kept."""

    half: str = ""
    """A line that has not ended yet."""
    last_words: str = ""
    """What it said since it last used a tool."""

    def hear(self, piece: str) -> Iterator[AgentEvent]:
        """The lines that a piece ends."""
        self.half += piece
        whole, newline, rest = self.half.rpartition("\n")
        if newline or len(self.half) > TEXT_CHARS:
            self.half = whole or self.half
            yield from self.end()
            self.half = rest if newline else ""

    def end(self) -> Iterator[AgentEvent]:
        """The rest: nothing more belongs to it."""
        text, self.half = prose(self.half), ""
        if text:
            self.last_words = f"{self.last_words}\n{text}".strip()[-TEXT_CHARS:]
            yield AgentEvent(Kind.TEXT, text)


def gone_wrong(error: str, kind: Failure) -> AgentEvent:
    """The end of a turn that failed."""
    return AgentEvent(Kind.RESULT, prose(unwrapped(error[:TEXT_CHARS])), is_error=True, failure=kind)


def well_done(text: str) -> AgentEvent:
    """The end of a turn that went well."""
    return AgentEvent(Kind.RESULT, prose(text))


@dataclass
class StreamReader:
    """Reads one turn of an agent that prints JSON: each derives what its lines tell (`events`) from what is here."""

    prices: Prices = field(default_factory=dict)
    model: str = ""
    session: str = ""
    """The conversation, once it was told."""
    meter: Meter = field(default_factory=Meter)
    tools: dict[str, str] = field(default_factory=dict)
    """The tools in use, by id."""
    speech: Speech = field(default_factory=Speech)
    complaints: Complaints = field(default_factory=Complaints)
    now: float = field(default_factory=time)
    """When the line was written."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells; nothing where it is no event. It must not raise, whatever the line holds."""
        data = parse(line)
        self.now = moment(data)
        return list(self.events(data))

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What an object tells, which may be an empty one."""
        raise NotImplementedError

    def begin(self, session: str) -> Iterator[AgentEvent]:
        """The conversation that it is in, told once."""
        if (session := brief(session)) and session != self.session:
            self.session = session
            yield AgentEvent(Kind.SESSION, session=session)

    def say(self, text: str) -> Iterator[AgentEvent]:
        """A whole message."""
        self.speech.half += text
        return self.speech.end()

    def think(self, text: str) -> Iterator[AgentEvent]:
        """What it thinks; empty or encrypted thoughts are not told."""
        if text := prose(text):
            yield AgentEvent(Kind.THINKING, text)

    def warn(self, text: str) -> Iterator[AgentEvent]:
        """Something that the user should know, and that is no error."""
        if text := brief(text):
            yield AgentEvent(Kind.WARNING, text)

    def use(self, key: str, name: str, given: object, *, is_sub_agent: bool = False) -> Iterator[AgentEvent]:
        """It uses a tool; what it said before that are not its last words."""
        if not is_sub_agent:
            self.speech.last_words = ""
        self.tools[key] = tool_text(name, given)
        yield AgentEvent(Kind.TOOL, self.tools[key], is_sub_agent=is_sub_agent)

    def used(self, key: str, text: str, *, failed: bool, denied: bool = False) -> Iterator[AgentEvent]:
        """What came of a tool."""
        used = self.tools.pop(key, "a tool")
        if denied:
            yield AgentEvent(Kind.DENIED, used)
        yield AgentEvent(Kind.TOOL_RESULT, brief(text), is_error=failed)

    def spend(
        self, spoken: int, cached: int, heard: int, cost: float | None = None, *, reasoning: int = 0
    ) -> Iterator[AgentEvent]:
        """What one answer used; what it cost is reckoned where no cost is told, or nothing."""
        cost = cost or cost_of(self.model, spoken, cached, heard, self.prices)
        if spoken or heard or cost:
            unpriced = self.model if cost is None else None
            used = Usage(
                input_tokens=spoken,
                output_tokens=heard,
                cost=cost,
                unpriced=unpriced,
                cached_tokens=min(cached, spoken),
                reasoning_tokens=min(reasoning, heard),
                model=brief(self.model),
            )
            yield AgentEvent(Kind.USAGE, usage=used)

    def total(
        self, by_model: dict[str, tuple[int, int, int]], cost: float | None = None, *, reasoning: int = 0
    ) -> Iterator[AgentEvent]:
        """What all of it used so far, by model, as tokens in, cached ones among them, and out."""
        spoken, cached, heard = (sum(tokens) for tokens in zip(*by_model.values(), strict=True))
        costs = [cost_of(model, *tokens, self.prices) for model, tokens in by_model.items()]
        known = [one for one in costs if one is not None]
        earlier = self.meter.told
        told = len(known) == len(costs) and (earlier.cost is not None or not earlier.tokens)
        reckoned = sum(known) if told and cost is None else cost
        unpriced = next((model for model, one in zip(by_model, costs, strict=True) if one is None), None)
        yield from self.meter.rise(
            spoken,
            heard,
            reckoned,
            unpriced if reckoned is None else None,
            cached=cached,
            reasoning=reasoning,
            model=", ".join(name for name in by_model if name),
        )

    def retry(self, text: str) -> Iterator[AgentEvent]:
        """It tries something again by itself."""
        yield AgentEvent(Kind.RETRY, brief(text))

    def complain(self, error: str, kind: Failure | None = None, resets_at: float | None = None) -> Iterator[AgentEvent]:
        """An error; whether it is the end is not known yet."""
        return self.complaints.about(error, self.now, kind or failure_of(error[:TEXT_CHARS]), resets_at)

    def done(self, text: str = "") -> Iterator[AgentEvent]:
        """The end of a turn that went well."""
        yield well_done(text or self.speech.last_words)

    def fail(self, error: str, kind: Failure | None = None, resets_at: float | None = None) -> Iterator[AgentEvent]:
        """The end of a turn that failed, with what is not told yet of why."""
        error = error or "it failed"
        kind = kind or failure_of(error[:TEXT_CHARS])
        yield from self.complain(error, kind, resets_at)
        yield gone_wrong(error, kind)
