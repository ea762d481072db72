"""What a journal holds: one line for everything that happened in a run, typed and chained by hashes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Landed,
    Merged,
    RunEnded,
    SignalTaken,
    TurnEnded,
    WorkCommitted,
)
from ralph.core.findings import HistoryChange
from ralph.core.limits import Limits
from ralph.core.questions import Question


@dataclass(frozen=True)
class RunStarted:
    """An engine took the run up, for the first time or again."""

    pid: int
    version: str
    run: str
    frozen: Mapping[str, str]
    """The hashes of what must not change while the run is under way: configuration, criterion, checks."""
    resumed: bool = False
    schema: int = 1


@dataclass(frozen=True)
class RunAdopted:
    """The user agreed to go on with a run that Ralph cannot know to be its own."""

    reason: str
    """Why it is not known to be."""
    claimed: str
    """Where what it claims is now: the directory beside the journal."""
    goes_on: bool
    """Whether it goes on from its journal; else it starts over on the files as they are."""


@dataclass(frozen=True)
class HistoryChanged:
    """A turn did something to the user's branches, tags or stash; or what was missing is back."""

    turn: int
    """The turn after which it was seen; 0 if the engine saw it before any."""
    change: HistoryChange


@dataclass(frozen=True)
class LimitExtended:
    """A resume after a limit granted that allowance once more."""

    limits: Limits
    reason: str


@dataclass(frozen=True)
class AgentsChanged:
    """The user resumed the run with other agents, or another model."""

    crew: str
    """Who does the turns from here on, as JSON, as `run.json` has it."""
    label: str
    """The first of them, as people are told."""


@dataclass(frozen=True)
class TurnStarted:
    """A turn is about to start; from here on its number is taken."""

    turn: int
    key: str
    role: str
    attempt: int
    agent: str
    reserved: float = 0.0
    """Money set aside for it while it runs."""
    repair: bool = False
    """Whether it only has to answer again, in the form that was asked for."""
    counts: bool = False
    """Whether its work is an iteration."""
    words: tuple[str, ...] = ()
    """What its prompt says of a person's words, by the ids of the signals."""


@dataclass(frozen=True)
class ChecksStarted:
    """The engine begins to run checks."""

    key: str
    checks: tuple[str, ...]


@dataclass(frozen=True)
class MergeStarted:
    """The engine begins to merge a workspace onto the branch of the run."""

    key: str
    workspace: str


@dataclass(frozen=True)
class SnapshotTaken:
    """The tree was recorded."""

    label: str
    snapshot: str


@dataclass(frozen=True)
class SignalHeard:
    """A turn took in what a person said while it ran."""

    id: str
    """Of the signal."""
    turn: int
    role: str
    means: str
    """`hook`, `live` or `tool`."""


@dataclass(frozen=True)
class SignalRefused:
    """A file in the mailbox was set aside: it is no signal, or it came too late."""

    name: str
    reason: str
    stamp: str = ""


@dataclass(frozen=True)
class QuestionAsked:
    """A turn asks the person something."""

    question: Question


@dataclass(frozen=True)
class QuestionAnswered:
    """A question was answered, or nobody did in time."""

    id: str
    answer: str
    by: str


@dataclass(frozen=True)
class Notice:
    """Something a person should know."""

    text: str


Entry = (
    RunStarted
    | RunAdopted
    | HistoryChanged
    | LimitExtended
    | AgentsChanged
    | TurnStarted
    | ChecksStarted
    | MergeStarted
    | SnapshotTaken
    | SignalHeard
    | SignalRefused
    | QuestionAsked
    | QuestionAnswered
    | Notice
    | TurnEnded
    | ChecksEnded
    | WorkCommitted
    | Merged
    | Landed
    | SignalTaken
    | DocumentEdited
    | RunEnded
)

NAMES: dict[str, type[Entry]] = {
    "run.started": RunStarted,
    "run.adopted": RunAdopted,
    "history.changed": HistoryChanged,
    "limit.extended": LimitExtended,
    "agents.changed": AgentsChanged,
    "turn.started": TurnStarted,
    "checks.started": ChecksStarted,
    "merge.started": MergeStarted,
    "snapshot.taken": SnapshotTaken,
    "notice": Notice,
    "turn.ended": TurnEnded,
    "checks.ended": ChecksEnded,
    "work.committed": WorkCommitted,
    "merge.ended": Merged,
    "work.landed": Landed,
    "signal.taken": SignalTaken,
    "signal.heard": SignalHeard,
    "signal.refused": SignalRefused,
    "question.asked": QuestionAsked,
    "question.answered": QuestionAnswered,
    "document.edited": DocumentEdited,
    "run.ended": RunEnded,
}
"""The name that each kind of entry has in the file."""


@dataclass(frozen=True)
class Record:
    """One line of the journal."""

    seq: int
    at: float
    entry: Entry
    documents: Mapping[str, str] = field(default_factory=dict)
    """The hash of every document that this entry wrote, by path."""
    seen: Mapping[str, str] = field(default_factory=dict)
    """The hash of every document that somebody else wrote and that was left as it is."""
