"""What a journal holds: one line for everything that happened in a run, typed and chained by hashes."""

from collections.abc import Mapping
from dataclasses import field

from ralph.core.checks import HistoryChange
from ralph.core.codec import former_name
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Landed,
    MergeEnded,
    RunEnded,
    SignalAccepted,
    TaskChanged,
    TurnEnded,
    TurnStarted,
    WorkCommitted,
)
from ralph.core.limits import Limits
from ralph.core.signals import Question
from ralph.core.values import value


@value
class RunStarted:
    """An engine took the run up, for the first time or again."""

    pid: int
    version: str
    run: str
    frozen: Mapping[str, str]
    """The hashes of what must not change while the run is in progress: configuration, criterion, checks."""
    resumed: bool = False
    sandbox: str = ""
    """How agents and checks are isolated: the level, or `not isolated` with the reason."""
    schema: int = 1


@value
class RunAdopted:
    """The user agreed to continue a run that Ralph cannot know to be its own."""

    reason: str
    """Why it is not known to be."""
    claimed: str
    """The directory beside the journal that holds the parts that Ralph does not trust."""
    goes_on: bool
    """Whether it continues from its journal; else it starts over on the files as they are."""


@value
class RefsRecorded:
    """Where the user's branches, tags and stash stood before the run. No git command can delete this record."""

    refs: Mapping[str, str]
    """Names with the object that each stood for; HEAD and symbolic refs with the ref."""


@value
class HistoryChanged:
    """A turn did something to the user's branches, tags or stash; or what was missing is back."""

    turn: int
    """The turn after which it was seen; 0 if the engine saw it before any."""
    change: HistoryChange


@value
class LimitExtended:
    """A resume after a limit granted that allowance once more."""

    limits: Limits
    reason: str


@value
class AgentsChanged:
    """The user resumed the run with other agents, or another model."""

    agents: str = field(metadata=former_name("crew"))
    """Who does the turns from here on, as JSON, as `run.json` has it."""
    label: str
    """The first of them, as the user sees it."""


@value
class GuardRulesChanged:
    """The user resumed the run and let it do what the guards held it up for."""

    allowed: Mapping[str, str] = field(default_factory=dict)
    """Rules that are switched off from here on, with the reason."""
    may_change: tuple[str, ...] = ()
    """Patterns of judge files that may change from here on."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Snapshots that the user accepted although Ralph could not prove them, with who, when and why."""


@value
class ChecksStarted:
    """The engine begins to run checks."""

    key: str
    checks: tuple[str, ...]


@value
class MergeStarted:
    """The engine begins to merge a worktree onto the branch of the run."""

    key: str
    worktree: str = field(metadata=former_name("workspace"))


@value
class SnapshotTaken:
    """The tree was recorded."""

    label: str
    snapshot: str


@value
class SignalReceived:
    """A turn received a message from the user while it ran."""

    id: str
    """Of the signal."""
    turn: int
    role: str
    means: str
    """`hook`, `live` or `tool`."""


@value
class TurnPlaced:
    """A turn runs on a worker of a cluster. Journaled again by an engine that adopts the turn."""

    turn: int
    place: str
    """The name of the worker."""


@value
class SignalRefused:
    """A file in the mailbox was set aside: it is no valid signal, it is for an unknown role, or it came too late."""

    name: str
    reason: str
    stamp: str = ""


@value
class QuestionAsked:
    """A turn asks the user something."""

    question: Question


@value
class QuestionAnswered:
    """A question was answered, or its time was over."""

    id: str
    answer: str
    by: str


@value
class Notice:
    """A notice for the user."""

    text: str


@value
class ActionDone:
    """The user did something with a run that is not running: undid a turn, restored files, landed its work."""

    id: str
    """What the command returned, so that a program finds the result."""
    action: str
    """`undo`, `restore`, `revert` or `land`."""
    result: str
    by: str = ""
    """Who did it, if it was not the user at the command line."""


Entry = (
    RunStarted
    | RunAdopted
    | RefsRecorded
    | HistoryChanged
    | LimitExtended
    | AgentsChanged
    | GuardRulesChanged
    | TurnStarted
    | ChecksStarted
    | MergeStarted
    | SnapshotTaken
    | SignalReceived
    | TurnPlaced
    | SignalRefused
    | QuestionAsked
    | QuestionAnswered
    | Notice
    | ActionDone
    | TaskChanged
    | TurnEnded
    | ChecksEnded
    | WorkCommitted
    | MergeEnded
    | Landed
    | SignalAccepted
    | DocumentEdited
    | RunEnded
)

NAMES: dict[str, type[Entry]] = {
    "run.started": RunStarted,
    "run.adopted": RunAdopted,
    "refs.recorded": RefsRecorded,
    "history.changed": HistoryChanged,
    "limit.extended": LimitExtended,
    "agents.changed": AgentsChanged,
    "guard-rules.changed": GuardRulesChanged,
    "turn.started": TurnStarted,
    "checks.started": ChecksStarted,
    "merge.started": MergeStarted,
    "snapshot.taken": SnapshotTaken,
    "notice": Notice,
    "action.done": ActionDone,
    "task.changed": TaskChanged,
    "turn.ended": TurnEnded,
    "checks.ended": ChecksEnded,
    "work.committed": WorkCommitted,
    "merge.ended": MergeEnded,
    "work.landed": Landed,
    "signal.accepted": SignalAccepted,
    "signal.received": SignalReceived,
    "turn.placed": TurnPlaced,
    "signal.refused": SignalRefused,
    "question.asked": QuestionAsked,
    "question.answered": QuestionAnswered,
    "document.edited": DocumentEdited,
    "run.ended": RunEnded,
}
"""The name that each kind of entry has in the file."""
ENTRY_TYPES = {**NAMES, "signal.taken": SignalAccepted, "signal.heard": SignalReceived}
"""Every name in a journal with its kind of entry, with two names that journals of earlier versions have."""


@value
class Record:
    """One line of the journal."""

    seq: int
    at: float
    entry: Entry
    documents: Mapping[str, str] = field(default_factory=dict)
    """The hash of every document that this entry wrote, by path."""
    seen: Mapping[str, str] = field(default_factory=dict)
    """The hash of every document that the user or an agent changed and that Ralph left as it is."""
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The hashes of the lines that this entry added to logs for the user, by path."""
