"""What every agent adapter is: how its program is started, how its output is read, and what it can do."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Failure, Kind, clean_text

_FAR = 4102444800.0
"""The year 2100: nobody's limit ends later, and no calendar has to show it."""


@dataclass(frozen=True)
class Call:
    """What one turn asks of an agent program; the prompt comes on standard input, and is in a file."""

    workspace: Path
    model: str = ""
    arguments: tuple[str, ...] = ()
    """Further arguments that the user wants it to have."""
    budget: float | None = None
    """US dollars that it may use."""
    most_steps: int | None = None
    """How often it may ask its model."""
    session: str = ""
    """The conversation to go on with; empty for a new one."""
    without_tools: tuple[str, ...] = ()
    """Tools that it may not use, by the names that it gives them; `sub-agents` in the words of Ralph."""
    prompt: Path = Path("prompt.md")
    """The file with the prompt, for programs that do not read it from standard input."""


@dataclass(frozen=True)
class Abilities:
    """What an agent can do; what it cannot is done without, and said."""

    resume: bool = False
    """Go on with a conversation of its own."""
    session: bool = False
    """Tell by which id."""
    live_input: bool = False
    """Take in words while it works, by the way on which it is spoken with."""
    hooks: bool = False
    """Take in words while it works, by a hook of ours that it runs after its tools and before its end."""
    commands: bool = False
    """Run commands that its prompt asks for: without hooks, it has to ask by itself what a person said."""
    tokens: bool = False
    cost: bool = False
    budget: bool = False
    """Stop by itself when the money is used."""
    step_limit: bool = False
    sandbox: bool = False
    model: bool = True
    tool_limits: bool = False
    """Keep from using some of its tools."""


class Reader(Protocol):
    """Reads the output of one turn, line by line; it may remember what it has read."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line of standard output tells; nothing where it is no event."""
        ...


class Agent(Protocol):
    """The adapter of one agent program."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def abilities(self) -> Abilities:
        """What it can do."""
        ...

    @property
    def announces_end(self) -> bool:
        """Whether it says in its stream that it has finished: exit 0 alone is then no success."""
        ...

    @property
    def advice(self) -> str:
        """What a person can do where it is not signed in; empty where nothing is known."""
        ...

    def command(self, call: Call) -> tuple[str, ...]:
        """The words that start it, in full-auto mode, reading its prompt from standard input."""
        ...

    def environment(self, call: Call) -> Mapping[str, str]:
        """What it needs in its environment beside what is there."""
        ...

    def reader(self, call: Call, before: Usage) -> Reader:
        """Who reads its output, a new one for each turn; `before` is what the conversation used before it."""
        ...

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """What its exit and its last words on standard error say, where its stream did not tell; None where nothing."""
        ...

    def ready(self, environment: Mapping[str, str]) -> str:
        """Lay ready what it needs on this machine, once for a run; what a person should know of it."""
        ...

    def hears(self, call: Call) -> bool:
        """Whether words reach it in the middle of such a turn."""
        ...


@dataclass(frozen=True)
class Program:
    """Any program as the agent: the prompt on standard input, text on standard output, exit 0 when it is done."""

    name: str
    words: tuple[str, ...]
    abilities: Abilities = field(default_factory=lambda: Abilities(model=False))
    announces_end: bool = False
    advice: str = ""

    def command(self, call: Call) -> tuple[str, ...]:
        """The words themselves."""
        return (*self.words, *call.arguments)

    def environment(self, call: Call) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def reader(self, call: Call, before: Usage) -> Reader:
        """Every line is text."""
        return PlainText()

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """Nothing is known of a program's exit codes."""
        return None

    def ready(self, environment: Mapping[str, str]) -> str:
        """Nothing is needed."""
        return ""

    def hears(self, call: Call) -> bool:
        """Only those of ours do."""
        return self.abilities.hooks


@dataclass(frozen=True)
class Scripted(Program):
    """The agent that plays a scenario."""

    abilities: Abilities = field(default_factory=lambda: Abilities(hooks=True, tokens=True, cost=True, model=False))
    announces_end: bool = True

    def reader(self, call: Call, before: Usage) -> Reader:
        """Events in Ralph's own form."""
        return EventLines()


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
        if not line.startswith(b"{"):
            return []
        try:
            data = json.loads(line)
            return [_event(data)]
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return []


def _event(data: Mapping[str, Any]) -> AgentEvent:
    kind = Kind(data["type"] if isinstance(data.get("type"), str) else "")
    if kind is Kind.HEARD:
        raise ValueError("what was heard is known by the files of the words alone")
    text = data.get("text") or data.get("message") or data.get("name") or ""
    if kind is Kind.USAGE:
        spoken, heard = (int(amount(data.get(name)) or 0) for name in ("input_tokens", "output_tokens"))
        return AgentEvent(kind, usage=Usage(spoken, heard, amount(data.get("cost"))))
    resets_at = amount(data.get("resets_at"))
    known = resets_at is not None and resets_at < _FAR
    failure, session = data.get("failure"), data.get("session")
    return AgentEvent(
        kind,
        clean_text(str(text)),
        resets_at=resets_at if known else None,
        is_error=bool(data.get("is_error")),
        session=clean_text(session) if isinstance(session, str) else "",
        failure=Failure(failure) if isinstance(failure, str) else None,
    )


def event_line(event: AgentEvent, **more: object) -> bytes:
    """An event as `EventLines` reads it, and what else its reader knows of."""
    usage = {"input_tokens": event.usage.input_tokens, "output_tokens": event.usage.output_tokens}
    cost = {} if event.usage.cost is None else {"cost": event.usage.cost}
    told = {
        "text": event.text,
        "session": event.session,
        "failure": event.failure,
        "resets_at": event.resets_at,
        "is_error": event.is_error,
    }
    content = {**usage, **cost} if event.kind is Kind.USAGE else {key: value for key, value in told.items() if value}
    return json.dumps({"type": event.kind, **content, **more}, ensure_ascii=False).encode(errors="replace") + b"\n"


def amount(value: object) -> float | None:
    """A number that can be counted with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if 0 <= value < math.inf else None
    except OverflowError:
        return None
