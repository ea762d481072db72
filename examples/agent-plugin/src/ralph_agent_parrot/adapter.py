"""Parrot: how it is started and what its stream says. Copy this module, and change it line by line.

Measure before you write: run your agent's program by hand in a scratch repository, with a task that succeeds and with
one that fails (no key, a limit, no network), and save what it prints. Then write here only what you saw.
"""

from collections.abc import Iterator

from ralph.agents.adapter import Abilities, Adapter, Call
from ralph.agents.reader import StreamReader
from ralph.agents.stream_lines import Data
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent


class Parrot(Adapter):
    """Parrot, which repeats its prompt."""

    name = "parrot"
    """The same as in the entry point. It is also the program, unless the user names another."""
    install = "pip install ralph-agent-parrot"
    advice = "run `parrot login`, or set PARROT_API_KEY"
    """What the user reads if it is not signed in."""
    abilities = Abilities(resume=True, session=True, tokens=True)
    """Only what is true: Ralph works without the rest, and tells the user."""
    announces_end = True
    """Its stream says that it has finished, so exit code 0 alone is not a success. Keep this if you can."""
    keys = ("PARROT_API_KEY",)
    settings = ("PARROT_HOME", ".parrot")
    credentials = ("login.json",)

    def command(self, call: Call) -> tuple[str, ...]:
        """No questions, and no options that the call does not ask for. The prompt comes on standard input.

        A program that reads its prompt from a file gets `call.prompt`. Never put its text on the command line.
        """
        return (
            self.program,
            "--json",
            # Empty here: parrot asks about nothing. Set `permission_modes` and `permission_options` if yours does.
            *self.permission_arguments(call),
            *(("--model", call.model) if call.model else ()),
            *(("--resume", call.session) if call.session else ()),
            *call.arguments,
        )

    def reader(self, call: Call, before: Usage) -> "ParrotReader":
        """A new one for each turn. `before` is for programs that report the usage of the whole conversation."""
        return ParrotReader()


class ParrotReader(StreamReader):
    """Reads one turn. It must not raise, whatever the line contains: `StreamReader` and `Data` help with that."""

    def events(self, data: Data) -> Iterator[AgentEvent]:
        """The events in a line; none if it is not an event."""
        match data.get("type"):
            case "hello":
                yield from self.start_session(data.text("session"))
            case "says":
                yield from self.say(data.text("text"))
            case "tool":
                yield from self.start_tool("", data.text("name"), data.get("input"))
            case "tool_result":
                yield from self.finish_tool("", data.text("text"), failed=data.get("ok") is not True)
            case "usage":
                # Its usage is a running total. The engine needs what was used since the last report.
                total = data.inner("total")
                yield from self.meter.add_total(total.count("input", "cached"), total.count("output"))
            case "end":
                # Only an explicit success is one.
                if data.get("ok") is True:
                    yield from self.succeed(data.text("text"))
                else:
                    yield from self.fail(data.text("error"))
