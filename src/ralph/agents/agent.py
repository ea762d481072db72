"""What a turn asks of an agent, what an agent can do, and who reads what it prints."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ralph.core.stream import AgentEvent

FULL_AUTO, EDITS, READ_ONLY, PLAN = PERMISSIONS = ("full-auto", "edits", "read-only", "plan")
"""Everything; change files but run no commands that need an approval; change nothing; make a plan and change nothing."""


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
    permissions: str = FULL_AUTO
    """What it may do without being asked: one of `PERMISSIONS`."""


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
    """Tell how many tokens it used."""
    cost: bool = False
    """Tell what they cost."""
    names_model: bool = False
    """Tell which model they are of, so that a cost can be reckoned."""
    budget: bool = False
    """Stop by itself when the money is used."""
    step_limit: bool = False
    sandbox: bool = False
    model: bool = True
    """Use the model that it is asked for."""
    tool_limits: bool = False
    """Keep from using some of its tools."""


class Reader(Protocol):
    """Reads the output of one turn, line by line; it may remember what it has read."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line of standard output tells; nothing where it is no event."""
