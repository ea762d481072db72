"""A turn: one agent process started with one prompt; what the agent reports while it works, and its result."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from ralph.core.codec import former_name
from ralph.core.limits import Quota, Usage
from ralph.core.prompt import Prompt
from ralph.core.values import value

INBOX, OUTBOX = ".ralph/turn/inbox", ".ralph/turn/outbox"
"""Where a turn finds its files and hands them back, in its workspace."""


class TurnEnd(StrEnum):
    """How a turn ended."""

    FINISHED = "finished"
    """The agent said it had finished and exited with 0. It says nothing about the work."""
    FAILED = "failed"
    """The agent crashed, exited with an error or reported one."""
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
    """Ended because the run ended. Its work continues when the run is resumed."""
    UNAVAILABLE = "unavailable"
    """The agent program could not be started at all, is not signed in, or was given a setting that it refuses."""
    INTERRUPTED = "interrupted"
    """Its keeper died with it, or the engine received a signal. Only the tree that it left is known."""
    STEERED = "steered"
    """Ended to take a message from the user into account. The work continues in another turn."""


@value
class TurnRequest:
    """What a workflow asks of an agent."""

    key: str
    """Names the work, not the process: asking again for a key in progress or done starts nothing."""
    role: str
    prompt: Prompt
    """The prompt, without the messages of the user."""
    is_iteration: bool = False
    """Whether it counts against the limit on iterations."""
    answer_schema: str = ""
    """The name of the schema that `result.json` must match; empty if the turn writes none."""
    answer_required: bool = False
    """Whether a turn without a valid `result.json` has failed."""
    turns_without_progress: int = 0
    """How many turns in a row brought no progress. After `escalate_after` of them, another agent takes over."""
    task_attempt: int = 0
    """The attempt at its task; 0 if the work is not an attempt at a task."""
    task: str = ""
    """The task whose worktree it uses; empty for planners, also if they change one task."""
    worktree: str = ""
    """The worktree in which it runs, as `<task>/<attempt>`, or `look/<n>` without a task; empty for the run's own tree."""
    reads_only: bool = False
    """Whether its changes are discarded afterwards."""
    merges_run_branch: bool = False
    """Whether the run's branch is merged into the worktree first, conflicts and all."""
    inbox: Mapping[str, str] = field(default_factory=dict)
    """Files to put into the inbox, by name. A name can contain directories."""
    wall: float | None = None
    """Seconds that it may take; None for what every turn of the run may."""
    retries: int | None = None
    """How often it is tried again after it failed; None for all waits in `RETRY_WAITS`."""
    retries_timeouts: bool = False
    """Whether it is tried again after it ran longer than it may, too."""
    outputs: tuple[str, ...] = ()
    """The documents that are accepted from the outbox besides `result.json`, as patterns. Nothing else is accepted."""
    accepts_failed_documents: bool = False
    """Whether what it handed over counts though the turn failed, so that it is not tried again."""
    verifies_failed_changes: bool = False
    """Whether a turn that failed after it changed files is not tried again: the workflow verifies what it changed."""
    delay: float = 0.0
    """Seconds to wait before the first attempt, because earlier turns failed."""
    copied_files: Mapping[str, str] = field(default_factory=dict)
    """Files of the project that are copied into the inbox, and directories whose files are, by name there."""
    drafts: Mapping[str, str] = field(default_factory=dict)
    """Documents to put into the outbox before the turn, for the agent to change."""
    draft_outputs: tuple[tuple[str, str], ...] = ()
    """Which drafts it may change or add to, as patterns, and as what they are handed over."""
    gate_blockers: Mapping[str, str] = field(default_factory=dict, metadata=former_name("promise_blockers"))
    """The required topics of a run of hats that do not let it complete yet, and why."""
    is_withdrawn: bool = False
    """Whether only an earlier engine asked for it. If its agent runs, it is adopted; it is never started."""

    @property
    def is_actor(self) -> bool:
        """Whether its role does the work itself, so that signals to `actor` or `executor` are for it.

        In a loop and a run of hats, these are the turns that count as iterations. A session has the role `executor`.
        """
        return self.is_iteration


CHECKED = "the checks before any turn"
"""The label of the snapshot that shows what the checks themselves write."""


@value
class FileStat:
    """How much of a file was changed."""

    path: str
    added: int = 0
    removed: int = 0


@value
class Change:
    """What a turn changed in the tree, by its snapshot."""

    snapshot: str
    """The commit that holds the tree as the turn left it."""
    files: int = 0
    added: int = 0
    removed: int = 0
    names: tuple[str, ...] = ()
    """The first of the files."""
    stats: tuple[FileStat, ...] = ()
    """The same files with how much of each was changed."""
    since_start: tuple[FileStat, ...] | None = None
    """The same files with how they differ now from the start of the run; those that do not differ are left out."""


def add_changes(changes: Iterable[Change | None]) -> Change | None:
    """What several turns changed, oldest first, added up; None if it is not known of any."""
    known = [change for change in changes if change]
    if not known:
        return None
    all_stats: list[FileStat] = []
    all_names: list[str] = []
    for change in known:
        all_stats += change.stats
        all_names += change.names
    stats = add_stats(all_stats)
    names = tuple(dict.fromkeys(all_names))
    since_start: tuple[FileStat, ...] | None = None
    if all(change.since_start is not None for change in known):
        since_start = ()
        for change in known:
            since_start = update_stats(since_start, change)
    return Change(
        snapshot=known[-1].snapshot,
        # A turn names only the first of many files, so what two turns have in common is not known of all of them.
        files=max(len(stats), len(names), *(change.files for change in known)),
        added=sum(change.added for change in known),
        removed=sum(change.removed for change in known),
        names=names,
        stats=stats,
        since_start=since_start,
    )


def update_stats(known: Iterable[FileStat], change: Change | None) -> tuple[FileStat, ...]:
    """How the files of a run differ from its start, after one more change. The file that was changed last is the last one."""
    if change is None:
        return tuple(known)
    if change.since_start is None:
        return add_stats((*known, *change.stats))
    touched = {stat.path for stat in change.stats}
    return (*(stat for stat in known if stat.path not in touched), *change.since_start)


def add_stats(stats: Iterable[FileStat]) -> tuple[FileStat, ...]:
    """The files with all that was changed in each; the file that was changed last is the last one."""
    known: dict[str, FileStat] = {}
    for stat in stats:
        before = known.pop(stat.path, FileStat(stat.path))
        known[stat.path] = FileStat(stat.path, before.added + stat.added, before.removed + stat.removed)
    return tuple(known.values())


MAX_FILES = 15
"""Changed files that a prompt lists."""


def list_changed_files(stats: Sequence[FileStat]) -> list[str]:
    """The changed files as lines of a prompt, the latest last."""
    shown = stats[-MAX_FILES:]
    lines = [f"- {stat.path} (+{stat.added} -{stat.removed})" for stat in shown]
    if len(stats) > len(shown):
        lines.insert(0, f"- {len(stats) - len(shown)} more files")
    return lines


@value
class EarlierTurn:
    """A turn that worked on the same request before another one, and did not settle it."""

    turn: int
    end: TurnEnd
    change: Change | None = None
    error: str = ""
    """Why its agent failed, so that the next turn does not fail in the same way."""


@value
class TurnResult:
    """The result of a turn."""

    end: TurnEnd
    started_at: float
    ended_at: float
    code: int | None = None
    """Exit code; None when it was ended by a signal or never reported."""
    signal: int | None = None
    usage: Usage = field(default_factory=Usage)
    text: str = ""
    """The agent's last message, capped."""
    error: str = ""
    """What went wrong, for the user and for the next prompt."""
    answer: Mapping[str, Any] | None = None
    """The validated answer: `result.json`, or the last JSON block of the final message."""
    answer_errors: tuple[str, ...] = ()
    resets_at: float | None = None
    """When the provider's limit ends, if the agent reported it."""
    survivors: int = 0
    """Processes that had to be ended after the agent itself was gone."""
    agent_session: str = field(default="", metadata=former_name("session"))
    """The agent's own name for the conversation, by which it can continue it."""
    denied: tuple[str, ...] = ()
    """What the agent was not allowed to do."""
    change: Change | None = None
    head: str = ""
    """The commit that HEAD was at when it ended, if it worked in the user's tree."""
    left: tuple[str, ...] = ()
    """What it left and Ralph ignores: drafts that are not its own, links, and what is too large or too many."""
    documents: Mapping[str, str] = field(default_factory=dict)
    """The documents that it handed over, by name; they are filed with the turn, and not journaled."""
    received: tuple[str, ...] = field(default=(), metadata=former_name("heard"))
    """The names of the messages from the user that it received while it ran."""
    is_own_end: bool = False
    """Of a turn that ended as `STEERED`: whether it ended by itself, and was not interrupted."""
    warnings: tuple[str, ...] = ()
    """What the user should know about how it went, in sentences."""
    quota: Quota | None = None
    """How much of the agent's subscription is used, if its provider reported it."""
    lacks_worktree: bool = False
    """Whether no agent was started, because its new worktree could not be set up."""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return max(0.0, self.ended_at - self.started_at)


@value
class Turn:
    """A turn with its number, as it is passed to the workspace that runs it."""

    number: int
    attempt: int
    request: TurnRequest
    budget: float | None = None
    """US dollars it may use, for agents that take a budget."""
    errors_to_repair: tuple[str, ...] = ()
    """What was wrong with the last answer, if this turn only has to repair it."""
    agent: str = ""
    """The label of the agent that does it."""
    agent_session: str = ""
    """The conversation to continue, if the agent can."""
    used_before: Usage = field(default_factory=Usage)
    """What that conversation has used already."""
    rejected: tuple[str, ...] = ()
    """What was wrong with the documents and the answer of the turn before, if this one does its work again."""
    continued_turn: int = 0
    """The turn that it continues, to repair its answer or after an interruption, with that turn's documents. 0 for none."""
    earlier: tuple[EarlierTurn, ...] = ()
    """The turns that worked on the same request before, oldest first."""
    guidance: str = ""
    """The part of its prompt with the user's messages."""
    is_new: bool = False
    """Whether it starts now. Then it has no directory yet, and one that is there is not Ralph's."""


IMAGE = "[image]"
"""The text of an event in the place of an image."""


class EventKind(StrEnum):
    """What kind of event an agent reports."""

    TEXT = "text"
    THINKING = "thinking"
    """What it thinks before it answers, if it reports that."""
    TOOL = "tool"
    """It uses a tool. Its to-do list counts as a tool."""
    TOOL_RESULT = "tool-result"
    USAGE = "usage"
    """Tokens and money since its last report."""
    QUOTA = "quota"
    """How much of its subscription is used."""
    SESSION = "session"
    """The conversation that it is in, by which it can be continued."""
    LIMIT = "limit"
    """It ran into a rate or usage limit of its provider."""
    RETRY = "retry"
    """It tries something again by itself."""
    DENIED = "denied"
    """It was not allowed to do something."""
    PLACED = "placed"
    """The turn runs on a worker of a cluster: `text` is its name."""
    RECEIVED = "received"
    """The agent received messages from the user during the turn: `text` names them, `means` says how."""
    PROGRESS = "progress"
    """The agent reported its progress with `ralph tools interact progress`."""
    WARNING = "warning"
    """Something that the user should know: it stopped itself, or its program warns of its settings."""
    ERROR = "error"
    RESULT = "result"
    """It has ended its turn; `is_error` says how."""


class Failure(StrEnum):
    """Why an agent failed: what follows depends on it."""

    LIMIT = "limit"
    """A rate or usage limit: wait for its end, or take another agent."""
    OVERLOAD = "overload"
    """The provider is overloaded, or the network is: try again later."""
    ACCESS = "access"
    """Not signed in, no key, or a wrong setting. Only the user can fix it."""
    AGENT = "agent"
    """Anything else."""


@value
class AgentEvent:
    """One event that an agent reports."""

    kind: EventKind
    text: str = ""
    """What it says; of a tool its name and what it is given, of a denial the command that was denied."""
    usage: Usage = field(default_factory=Usage)
    resets_at: float | None = None
    is_error: bool = False
    session: str = ""
    failure: Failure | None = None
    means: str = field(default="", metadata=former_name("tool"))
    """How the agent received a message: `hook`, `live` or `tool`."""
    quota: Quota | None = None
    is_sub_agent: bool = False
    """Whether a sub-agent reports it."""


ENDED_BY = {
    "idle": TurnEnd.IDLE,
    "wall": TurnEnd.WALL,
    "cut": TurnEnd.CUT,
    "stopped": TurnEnd.STOPPED,
    "interrupted": TurnEnd.INTERRUPTED,
    "steered": TurnEnd.STEERED,
    "exec": TurnEnd.UNAVAILABLE,
}
"""The end of a turn whose process did not exit by itself, by the supervisor's reason."""
_FAILURES = {
    Failure.LIMIT: TurnEnd.LIMITED,
    Failure.OVERLOAD: TurnEnd.OVERLOADED,
    Failure.ACCESS: TurnEnd.UNAVAILABLE,
    Failure.AGENT: TurnEnd.FAILED,
}


def classify_end(
    *, reason: str, code: int | None, said_finished: bool, announces_end: bool, failure: Failure | None
) -> TurnEnd:
    """How a turn ended: by what its agent said and by its exit code together, never by one of them alone.

    `reason` is the supervisor's; `announces_end` says that this agent says so when it has finished.
    """
    if reason in ENDED_BY:
        return ENDED_BY[reason]
    is_finished = said_finished or not (announces_end or failure)
    if code == 0 and is_finished:
        return TurnEnd.FINISHED
    return _FAILURES[failure or Failure.AGENT]
