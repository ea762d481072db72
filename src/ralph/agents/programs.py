"""Programs that speak to people, or in Ralph's own form: any command, and the scripted agent."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ralph.agents.adapter import Adapter
from ralph.agents.agent import Abilities, Call, Reader
from ralph.agents.stream_lines import Data, brief, parse
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind, clean_text

_FAR = 4102444800.0
"""The year 2100: nobody's limit ends later, and no calendar has to show it."""


class Program(Adapter):
    """Any program as the agent: the prompt on standard input, text on standard output, exit 0 when it is done."""

    advice = ""
    abilities = Abilities(model=False)
    announces_end = False

    def __init__(self, name: str, words: tuple[str, ...]) -> None:
        self.name, self.words = name, words
        super().__init__(words[0])

    def command(self, call: Call) -> tuple[str, ...]:
        """The words themselves."""
        return (*self.words, *call.arguments)

    def reader(self, call: Call, before: Usage) -> Reader:
        """Every line is text."""
        return PlainText()

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Nothing is known of a program's exit codes."""
        return None

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """Nothing is known of that either."""
        return None, ""


class Scripted(Program):
    """The agent that plays a scenario."""

    abilities = Abilities(hooks=True, tokens=True, cost=True, model=False)
    announces_end = True

    def reader(self, call: Call, before: Usage) -> Reader:
        """Events in Ralph's own form."""
        return EventLines()

    def hears(self, call: Call) -> bool:
        """After each step."""
        return True


class PlainText:
    """The output of a program that speaks to people: every line is text."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The line as text."""
        text = clean_text(line.decode(errors="replace")).strip()
        return [AgentEvent(Kind.TEXT, text)] if text else []


class EventLines:
    """The output of programs of ours: one event a line, in Ralph's own form. What is no event is passed over."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The event in a line."""
        try:
            return [_event(parse(line))]
        except ValueError:
            return []


def _event(data: Data) -> AgentEvent:
    kind, failure = Kind(data.word("type")), data.word("failure")
    if kind is Kind.HEARD:
        raise ValueError("what was heard is known by the files of the words alone")
    if kind is Kind.USAGE:
        return AgentEvent(
            kind,
            usage=Usage(
                input_tokens=data.count("input_tokens"),
                output_tokens=data.count("output_tokens"),
                cost=data.number("cost"),
                cached_tokens=data.count("cached_tokens"),
                reasoning_tokens=data.count("reasoning_tokens"),
                model=brief(data.word("model")),
            ),
        )
    resets_at = data.number("resets_at")
    return AgentEvent(
        kind,
        clean_text(data.word("text", "message", "name")),
        resets_at=resets_at if resets_at is not None and resets_at < _FAR else None,
        is_error=bool(data.get("is_error")),
        session=clean_text(data.word("session")),
        failure=Failure(failure) if failure else None,
    )


def event_line(event: AgentEvent, **more: object) -> bytes:
    """An event as `EventLines` reads it, and what else its reader knows of."""
    usage = {"input_tokens": event.usage.input_tokens, "output_tokens": event.usage.output_tokens}
    cost = {} if event.usage.cost is None else {"cost": event.usage.cost}
    names = ("text", "session", "failure", "resets_at", "is_error")
    told = {name: value for name in names if (value := getattr(event, name))}
    content = {**usage, **cost} if event.kind is Kind.USAGE else told
    return json.dumps({"type": event.kind, **content, **more}, ensure_ascii=False).encode(errors="replace") + b"\n"
