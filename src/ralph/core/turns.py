"""A turn: one agent process started with one prompt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ralph.core.limits import Usage

INBOX, OUTBOX = ".ralph/turn/inbox", ".ralph/turn/outbox"
"""Where a turn finds its files and hands them back, in its workspace."""


class TurnEnd(StrEnum):
    """How a turn ended."""

    FINISHED = "finished"
    """The agent said it had finished and exited with 0. It says nothing about the work."""
    FAILED = "failed"
    """The agent crashed, exited with an error or told of one."""
    LIMITED = "limited"
    """The agent ran into a rate or usage limit of its provider."""
    OVERLOADED = "overloaded"
    """The provider or the network did not answer as it should."""
    IDLE = "idle"
    """No output for longer than the idle limit; ended."""
    WALL = "wall"
    """Ran longer than a turn may; ended."""
    CUT = "cut"
    """Ended because a limit of the run was reached."""
    STOPPED = "stopped"
    """Ended because a person said so."""
    UNAVAILABLE = "unavailable"
    """The agent program could not be started at all, is not signed in, or was given a setting that it refuses."""
    INTERRUPTED = "interrupted"
    """Its keeper died with it, or the engine was told to go: nothing is known but the tree it left."""
    STEERED = "steered"
    """A person said something that it has to take into account: the work goes on in another turn."""


@dataclass(frozen=True)
class TurnRequest:
    """What a workflow asks of an agent."""

    key: str
    """Names the work, not the process: asking again for a key under way or done starts nothing."""
    role: str
    prompt: str
    closing: str = field(default="", kw_only=True)
    """The end of the prompt: what to hand over. Messages of the user come before it."""
    counts: bool = False
    """Whether this turn is an iteration."""
    contract: str = ""
    """The name of the contract that `result.json` must fulfil; empty where none is taken."""
    answer_required: bool = False
    """Whether a turn without a valid `result.json` has failed."""
    failures: int = 0
    """How often in a row this kind of work has come to nothing, for whoever picks the agent."""
    task: str = ""
    workspace: str = ""
    """The workspace in which it acts, as `<task>/<attempt>`; empty for the run's own."""
    reads_only: bool = False
    """Whether what it changes in its workspace is thrown away afterwards."""
    brings_in: bool = False
    """Whether what others have merged is brought into the workspace first, conflicts and all."""
    inbox: Mapping[str, str] = field(default_factory=dict)
    """Files to lay into the inbox, by name; a name may have directories in it."""
    wall: float | None = None
    """Seconds that it may take; None for what every turn of the run may."""
    retries: int | None = None
    """How often it is tried again after it failed; None for the whole ladder."""
    hands_over: tuple[str, ...] = ()
    """The documents that are taken from the outbox beside `result.json`, as patterns; nothing else is."""
    settles: bool = False
    """Whether what it handed over counts though the turn failed, so that it is not tried again."""
    lends: Mapping[str, str] = field(default_factory=dict)
    """Directories of the project whose files are laid into the inbox, by name there."""
    drafts: Mapping[str, str] = field(default_factory=dict)
    """Documents to lay into the outbox, for it to work on."""
    takes: tuple[tuple[str, str], ...] = ()
    """Which drafts it may change or add to, as patterns, and as what they are handed over."""

    @property
    def full_prompt(self) -> str:
        """The prompt without messages of the user."""
        return f"{self.prompt.rstrip()}\n\n{self.closing}" if self.closing else self.prompt


CHECKED = "the checks before any turn"
"""The label of the snapshot that shows what the checks themselves write."""


@dataclass(frozen=True)
class Change:
    """What a turn changed in the tree, by its snapshot."""

    snapshot: str
    """The commit that holds the tree as the turn left it."""
    files: int = 0
    added: int = 0
    removed: int = 0
    names: tuple[str, ...] = ()
    """The first of the files."""


@dataclass(frozen=True)
class FileStat:
    """How much of a file was changed."""

    path: str
    added: int = 0
    removed: int = 0


@dataclass(frozen=True)
class TurnResult:
    """What came of a turn."""

    end: TurnEnd
    started_at: float
    ended_at: float
    code: int | None = None
    """Exit code; None when it was ended by a signal or never reported."""
    signal: int | None = None
    usage: Usage = field(default_factory=Usage)
    text: str = ""
    """The agent's last words, capped."""
    error: str = ""
    """What went wrong, for people and for the next prompt."""
    answer: Mapping[str, Any] | None = None
    """The validated `result.json`."""
    answer_errors: tuple[str, ...] = ()
    resets_at: float | None = None
    """When the provider's limit is over, where the agent told."""
    survivors: int = 0
    """Processes that had to be ended after the agent itself was gone."""
    session: str = ""
    """The agent's own name for the conversation, by which it can go on with it."""
    denied: tuple[str, ...] = ()
    """What the agent was not allowed to do."""
    change: Change | None = None
    left: tuple[str, ...] = ()
    """What it left and is not taken: drafts that are not its own, links, and what is too large or too many."""
    papers: Mapping[str, str] = field(default_factory=dict)
    """The documents that it handed over, by name; they are filed with the turn, and not journaled."""
    heard: tuple[str, ...] = ()
    """What of a person's words it took in while it worked, by name."""
    warnings: tuple[str, ...] = ()
    """What the user should know about how it went, in sentences."""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return max(0.0, self.ended_at - self.started_at)


@dataclass(frozen=True)
class Turn:
    """A turn with its number: what is handed to whoever runs it."""

    number: int
    attempt: int
    request: TurnRequest
    budget: float | None = None
    """US dollars it may use, for agents that take a budget."""
    repair: tuple[str, ...] = ()
    """What was wrong with the last answer, where this turn only has to mend that."""
    agent: str = ""
    """The label of the agent that does it."""
    session: str = ""
    """The conversation to go on with, where the agent can."""
    before: Usage = field(default_factory=Usage)
    """What that conversation has used already."""
    mends: int = 0
    """The turn that it goes on with, to mend its answer or after an interruption, and whose papers it has; 0 for none."""
    guidance: str = ""
    """The part of its prompt with the user's messages."""
