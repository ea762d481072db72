"""Parrot: how it is started and what its stream says. Copy this module, and change it line by line.

Measure before you write: run your agent's program by hand in a scratch repository, with a task that succeeds and with
one that fails (no key, a limit, no network), and keep what it prints. Then say here what you saw, and nothing else.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ralph.agents.adapter import Adapter
from ralph.agents.agent import Abilities, Call
from ralph.agents.lines import (
    Complaints,
    Data,
    Meter,
    brief,
    count,
    gone_wrong,
    inner,
    moment,
    parse,
    prose,
    tool_text,
    well_done,
    word,
)
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind


class Parrot(Adapter):
    """Parrot, which says what it hears."""

    name = "parrot"
    """As in the entry point; also the program, where nothing else is said."""
    install = "pip install ralph-agent-parrot"
    advice = "run `parrot login`, or set PARROT_API_KEY"
    """What a person reads where it is not signed in."""
    abilities = Abilities(resume=True, session=True, tokens=True)
    """Only what is true: what it cannot do is done without, and told to the user."""
    announces_end = True
    """It says in its stream that it has finished: exit 0 alone is no success. Keep this wherever you can."""
    keys = ("PARROT_API_KEY",)
    settings = ("PARROT_HOME", ".parrot")
    credentials = ("login.json",)

    def command(self, call: Call) -> tuple[str, ...]:
        """All permissions, no questions; what is not asked for is not mentioned. The prompt comes on standard input.

        A program that wants its prompt in a file gets `call.prompt`. Never put the text of it on the command line.
        """
        return (
            self.program,
            "--json",
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "ParrotReader":
        """A new one for each turn. `before` is for programs that tell the usage of the whole conversation."""
        return ParrotReader()


@dataclass
class ParrotReader:
    """Reads one turn. It must not raise, whatever the line holds: the functions of `ralph.agents.lines` help with that."""

    meter: Meter = field(default_factory=Meter)
    """Its usage is a running total; the engine wants to know what was used since the last time."""
    complaints: Complaints = field(default_factory=Complaints)
    """Tells of a failure once, and finds its class and the end of a limit in the words of the error."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells; nothing where it is no event."""
        return list(self._events(parse(line)))

    def _events(self, data: Data) -> Iterator[AgentEvent]:
        match data.get("type"):
            case "hello":
                if session := brief(word(data, "session")):
                    yield AgentEvent(Kind.SESSION, session=session)
            case "says":
                if text := prose(word(data, "text")):
                    yield AgentEvent(Kind.TEXT, text)
            case "tool":
                yield AgentEvent(Kind.TOOL, tool_text(word(data, "name"), data.get("input")))
            case "tool_result":
                yield AgentEvent(Kind.TOOL_RESULT, brief(word(data, "text")), is_error=data.get("ok") is not True)
            case "usage":
                total = inner(data, "total")
                yield from self.meter.rise(count(total, "input", "cached"), count(total, "output"))
            case "end":
                yield from self._end(data)

    def _end(self, data: Data) -> Iterator[AgentEvent]:
        """A success is what says so in plain words; anything else is none."""
        if data.get("ok") is True:
            yield well_done(word(data, "text"))
            return
        error = word(data, "error") or "it failed"
        yield from self.complaints.about(error, moment(data))
        yield gone_wrong(error)
