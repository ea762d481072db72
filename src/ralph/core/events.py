"""What a workflow may decide, and what it may be told: two closed unions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ralph.core.checks import Check, Verdict
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal
from ralph.core.turns import FileStat, TurnRequest, TurnResult

S = TypeVar("S")


@dataclass(frozen=True)
class StartTurns:
    """These turns should be under way; those that already are stay as they are."""

    turns: tuple[TurnRequest, ...]


@dataclass(frozen=True)
class RunChecks:
    """These checks should be run on the tree as it is."""

    key: str
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Commit:
    """What was changed up to a snapshot should be committed to the branch of the workspace."""

    key: str
    iteration: int
    snapshot: str
    message: str


@dataclass(frozen=True)
class Stop:
    """The run is over, and why."""

    outcome: Outcome
    reason: str


Decision = StartTurns | RunChecks | Commit | Stop


@dataclass(frozen=True)
class TurnEnded:
    """A turn came to its end; where no `retry_at` is set, so did the work that was asked for by its key."""

    key: str
    turn: int
    role: str
    attempt: int
    result: TurnResult
    counts: bool = False
    """Whether it is an iteration, if it is the last turn for its work."""
    spent: Spent = field(default_factory=Spent)
    retry_at: float | None = None
    """When the work will be tried again; only the engine is concerned with such a turn."""
    retry_reason: str = ""
    repair: bool = False
    """Whether the next try only asks for a better answer."""


@dataclass(frozen=True)
class ChecksEnded:
    """The engine ran the checks."""

    key: str
    verdict: Verdict
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True)
class WorkCommitted:
    """The engine committed what was changed, or says why it did not."""

    key: str
    commit: str = ""
    notice: str = ""


@dataclass(frozen=True)
class SignalTaken:
    """A signal was taken from the mailbox."""

    signal: Signal


@dataclass(frozen=True)
class DocumentEdited:
    """Somebody other than the engine changed a document."""

    path: str
    content: str = ""
    """What is in it now; not journaled, for it may be large. A copy is kept beside the journal."""


@dataclass(frozen=True)
class RunEnded:
    """The run ends now: the last event, for the documents that tell of it."""

    outcome: Outcome
    reason: str
    spent: Spent
    limits: Limits
    files: tuple[FileStat, ...] = ()
    """The files that differ from before the run, as far as they are worth listing."""
    more_files: int = 0
    """How many others there are."""


Event = TurnEnded | ChecksEnded | WorkCommitted | SignalTaken | DocumentEdited | RunEnded


@dataclass(frozen=True)
class Aside:
    """What is written with documents and not tracked: nothing rests on it."""

    copies: Mapping[str, str] = field(default_factory=dict)
    """What shows the state to others, by path."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """Lines that are added to logs, by path."""


@dataclass(frozen=True)
class Changes(Generic[S]):
    """What follows from an event: the next state, and the documents to write."""

    state: S
    documents: Mapping[str, str] = field(default_factory=dict)
    """New content by path, relative to the root; written together or not at all."""
    aside: Aside = field(default_factory=Aside)
    """What goes along with them for others to read."""
