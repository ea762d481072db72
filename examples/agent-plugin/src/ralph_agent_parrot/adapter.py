"""Parrot: how it is started and what its stream says. Copy this module, and change it line by line.

Measure before you write: run your agent's program by hand in a scratch repository, with a task that succeeds and with
one that fails (no key, a limit, no network), and keep what it prints. Then say here what you saw, and nothing else.
"""

from collections.abc import Iterator

from ralph.agents.adapter import Adapter
from ralph.agents.agent import Abilities, Call
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import Data
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent


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
        """No questions; what is not asked for is not mentioned. The prompt comes on standard input.

        A program that wants its prompt in a file gets `call.prompt`. Never put the text of it on the command line.
        """
        return (
            self.program,
            "--json",
            # Empty here: parrot asks about nothing. Set `permission_modes` and `permission_options` if yours does.
            *self.permission_words(call),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "ParrotReader":
        """A new one for each turn. `before` is for programs that tell the usage of the whole conversation."""
        return ParrotReader()


class ParrotReader(StreamReader):
    """Reads one turn. It must not raise, whatever the line holds: `StreamReader` and `Data` help with that."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """What a line tells; nothing where it is no event."""
        match data.get("type"):
            case "hello":
                yield from self.begin(data.word("session"))
            case "says":
                yield from self.say(data.word("text"))
            case "tool":
                yield from self.use("", data.word("name"), data.get("input"))
            case "tool_result":
                yield from self.used("", data.word("text"), failed=data.get("ok") is not True)
            case "usage":
                # Its usage is a running total; the engine wants to know what was used since the last time.
                total = data.inner("total")
                yield from self.meter.rise(total.count("input", "cached"), total.count("output"))
            case "end":
                # A success is what says so in plain words; anything else is none.
                yield from self.done(data.word("text")) if data.get("ok") is True else self.fail(data.word("error"))
