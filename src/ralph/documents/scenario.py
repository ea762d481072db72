"""Scenarios: what the scripted agent does in each turn, as YAML that a person writes.

Every mapping of the format is a dataclass here and its keys are the fields; a step is called as its class is.
A value in the place of a mapping stands for its first required key: `run: make` means `run: {command: make}`.
"""

import re
from dataclasses import dataclass
from typing import Literal, NewType, TypeAlias, TypeVar

from ralph.core.limits import Usage

T = TypeVar("T")
Words = NewType("Words", str)
"""Text that is not empty."""
RelativePath = NewType("RelativePath", str)
"""A path below the workspace or the outbox: not absolute, without `..`."""
ExitCode = NewType("ExitCode", int)
SignalName = NewType("SignalName", str)
Stream: TypeAlias = Literal["stdout", "stderr"]
Otherwise: TypeAlias = Literal["fail", "finish"]

RESULT = RelativePath("result.json")
DEEPEST = 50
MOST_NODES = 100_000
"""How large a scenario may be with its aliases written out: a few lines can stand for billions of values."""


@dataclass(frozen=True)
class Say:
    """Say something; the last thing said is the text of the result."""

    text: str


@dataclass(frozen=True)
class Error:
    """Report an error, as agents do before they give up, and go on."""

    message: str


@dataclass(frozen=True)
class Write:
    """Write a file of the workspace, with the directories it needs."""

    path: RelativePath
    content: str


@dataclass(frozen=True)
class Patch:
    """Replace a text wherever it occurs in a file of the workspace."""

    path: RelativePath
    find: Words
    replace: str
    optional: bool = False
    """Go on when the file or the text is not there."""


@dataclass(frozen=True)
class Delete:
    """Delete a file or a directory of the workspace."""

    path: RelativePath
    optional: bool = False


@dataclass(frozen=True)
class Run:
    """Run a command by the shell, in the workspace."""

    command: Words
    check: bool = False
    """Fail when it exits with anything but 0."""


@dataclass(frozen=True)
class Outbox:
    """Hand back a document; answers are the document `result.json`."""

    path: RelativePath
    content: str


@dataclass(frozen=True)
class Emit:
    """Publish an event."""

    topic: Words
    payload: object = None
    """Any value that JSON can hold."""


@dataclass(frozen=True)
class RateLimit:
    """Run into the provider's limit: tell of it and exit with 1."""

    resets_in: float
    """Seconds from now."""
    message: str = "rate limit reached"


@dataclass(frozen=True)
class Sleep:
    """Do nothing for a while."""

    seconds: float


@dataclass(frozen=True)
class Listen:
    """Wait for words of a person, unless some came during the steps before; they are told as text."""

    seconds: float
    """How long it waits at most."""
    into: RelativePath | None = None
    """The file of the workspace to which the words are added."""


@dataclass(frozen=True)
class Hang:
    """Do nothing for ever."""


@dataclass(frozen=True)
class IgnoreTerm:
    """Ignore SIGTERM from here on."""


@dataclass(frozen=True)
class Orphan:
    """Leave a process behind whose parent is gone."""

    seconds: float
    """How long it lives."""
    setsid: bool = True
    """Whether it leaves the process group and session of the agent."""
    writes: RelativePath | None = None
    """The file that it writes when its time is over."""
    scrub_env: bool = False
    """Whether it starts with an empty environment, so without the mark of the turn."""
    hold_output: bool = False
    """Whether it keeps the agent's stdout and stderr open."""


@dataclass(frozen=True)
class Spew:
    """Print raw bytes that are no events, ending with a newline."""

    bytes: int
    line: int = 100
    """Bytes in each line; 0 is one line of it all."""
    stream: Stream = "stdout"
    invalid_utf8: bool = False


@dataclass(frozen=True)
class Crash:
    """Die by a signal."""

    signal: SignalName


@dataclass(frozen=True)
class Exit:
    """Exit at once, without a result."""

    code: ExitCode


@dataclass(frozen=True)
class Choose:
    """Play one of these by seeded chance."""

    options: tuple["Option", ...]


Deed: TypeAlias = Write | Patch | Delete | Run | Outbox | Emit
Trouble: TypeAlias = Sleep | Hang | IgnoreTerm | Orphan | Spew | Crash
Talk: TypeAlias = Say | Listen | Usage | RateLimit | Error | Exit | Choose
Action: TypeAlias = Deed | Talk | Trouble


@dataclass(frozen=True)
class Step:
    """One action and the line that asks for it."""

    action: Action
    line: int


@dataclass(frozen=True)
class Option:
    """One of the ways a turn may go."""

    steps: tuple[Step, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class Identity:
    """Which turn is played, and what was asked; a number that is not known is -1."""

    role: str = ""
    hat: str = ""
    task: str = ""
    attempt: int = -1
    turn: int = -1
    prompt: str = ""


@dataclass(frozen=True)
class When:
    """The turns that an entry is for; what is not given matches all."""

    role: tuple[str, ...] = ()
    hat: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    attempt: tuple[range, ...] = ()
    turn: tuple[range, ...] = ()
    prompt: re.Pattern[str] | None = None

    def matches(self, turn: Identity) -> bool:
        """Whether everything that is given matches."""
        words = ((self.role, turn.role), (self.hat, turn.hat), (self.task, turn.task))
        numbers = ((self.attempt, turn.attempt), (self.turn, turn.turn))
        return (
            all(not wanted or word in wanted for wanted, word in words)
            and all(not wanted or any(number in span for span in wanted) for wanted, number in numbers)
            and (self.prompt is None or self.prompt.search(turn.prompt) is not None)
        )


@dataclass(frozen=True)
class Entry:
    """What to do in the turns that match."""

    steps: tuple[Step, ...]
    when: When = When()


@dataclass(frozen=True)
class Scenario:
    """A whole scenario; the first entry that matches a turn is played."""

    turns: tuple[Entry, ...]
    seed: int = 0
    otherwise: Otherwise = "fail"

    def steps_for(self, turn: Identity) -> tuple[Step, ...] | None:
        """The steps of the first entry that matches, if any does."""
        return next((entry.steps for entry in self.turns if entry.when.matches(turn)), None)
