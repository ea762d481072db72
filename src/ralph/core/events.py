"""What a workflow may decide, and the events that it gets: two closed unions."""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Generic, TypeVar

from ralph.core.checks import Check, Evidence, FailingTests, Verdict
from ralph.core.codec import former_name
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, Stage
from ralph.core.turns import Change, EarlierTurn, FileStat, TurnEnd, TurnRequest, TurnResult, add_changes
from ralph.core.values import value

S = TypeVar("S")
MAX_HAND_OVERS = 20
"""Hand-overs that a run remembers, the latest ones."""


@value
class RunChecks:
    """These checks should be run on the tree as it is."""

    key: str
    checks: tuple[Check, ...]
    worktree: str = ""
    """The name of the worktree; empty for the run's own tree."""
    seen_failing: FailingTests | None = None
    """What was seen to fail before, and has to pass unchanged."""
    is_final: bool = False
    """Whether the work is done if they pass, so that a clean room has to confirm it."""
    added_tests: tuple[tuple[str, str], ...] = ()
    """Paths and texts of tests that are not in the tree. With them, the checks run in a clean checkout only."""


@value
class Commit:
    """What was changed up to a snapshot should be committed to the branch of the workspace."""

    key: str
    iteration: int
    snapshot: str
    message: str


@value
class Merge:
    """The work in a worktree should be merged onto the branch of the run, if the checks pass on the merged tree.

    Merges are made one at a time, in the order in which they were asked for.
    """

    key: str
    worktree: str
    message: str
    checks: tuple[Check, ...] = ()


@value
class Promote:
    """Approved knowledge should come onto the branch of the run, merged with its files (`documents/session/knowledge.py`)."""

    key: str
    worktree: str
    message: str
    files: Mapping[str, str]
    """By path from the root of the project."""


Work = TurnRequest | RunChecks | Commit | Merge | Promote
"""What can be in progress, each known by its key."""


@value
class Do:
    """This should be in progress; what already is stays as it is, and nothing is started twice."""

    work: tuple[Work, ...]
    stage: Stage = field(default_factory=Stage, compare=False)


@value
class Stop:
    """The run is over, and why."""

    outcome: Outcome
    reason: str
    stage: Stage = field(default_factory=Stage, compare=False)
    evidence: Evidence | None = None
    """What supports a success, or why it is none."""
    unfinished: tuple[str, ...] = ()
    """What a session left unfinished when it asks for an approval. The reason says it, too."""


Decision = Do | Stop


@value
class TurnStarted:
    """A turn is about to start; from here on its number is in use."""

    turn: int
    key: str
    role: str
    attempt: int
    agent: str
    reserved: float = 0.0
    """Money set aside for it while it runs."""
    is_repair: bool = field(default=False, metadata=former_name("repair"))
    """Whether it only has to answer again, in the form that was asked for."""
    is_iteration: bool = field(default=False, metadata=former_name("counts"))
    """Whether its work is an iteration."""
    messages: tuple[str, ...] = field(default=(), metadata=former_name("words"))
    """The ids of the signals whose messages are in its prompt."""
    head: str = ""
    """The commit that HEAD was at, if it works in the user's tree."""
    took_over_from: str = ""
    """The agent that would do the turn if it were available; empty if the agent of the turn is that agent."""
    took_over_because: str = ""
    """Why that agent is not available."""


@value
class HandOver:
    """Turns that one agent did for another, which was not available."""

    turn: int
    """The first of them."""
    role: str
    """The role of the first of them."""
    agent: str
    took_over_from: str
    because: str
    returned_in: int = 0
    """The turn in which the other agent worked again; 0 if it has not."""

    @property
    def text(self) -> str:
        """The hand-over in words."""
        back = f"; {self.took_over_from} worked again in turn {self.returned_in}" if self.returned_in else ""
        return f"turn {self.turn}: {self.agent} took over from {self.took_over_from} ({self.because}){back}"


def add_hand_over(known: tuple[HandOver, ...], started: TurnStarted) -> tuple[HandOver, ...]:
    """The latest hand-overs of a run after one more turn has started."""
    is_known = False
    after: list[HandOver] = []
    for one in known:
        if not one.returned_in:
            is_known = is_known or (one.agent, one.took_over_from) == (started.agent, started.took_over_from)
            if one.took_over_from == started.agent:
                one = replace(one, returned_in=started.turn)
        after.append(one)
    if started.took_over_from and not is_known:
        after.append(
            HandOver(
                turn=started.turn,
                role=started.role,
                agent=started.agent,
                took_over_from=started.took_over_from,
                because=started.took_over_because,
            )
        )
    return tuple(after[-MAX_HAND_OVERS:])


@value
class TurnEnded:
    """A turn ended. The work of its key ended with it if `settles_work`."""

    key: str
    turn: int
    role: str
    attempt: int
    result: TurnResult
    is_iteration: bool = field(default=False, metadata=former_name("counts"))
    """Whether it is an iteration, if it is the last turn for its work."""
    spent: Spent = field(default_factory=Spent)
    retry_at: float | None = None
    """When another turn for this work may start: a retry, a repair or a continuation. None if none follows."""
    retry_reason: str = ""
    repair_follows: bool = field(default=False, metadata=former_name("repair"))
    """Whether the next try only asks for a better answer."""
    missed_messages: tuple[str, ...] = field(default=(), metadata=former_name("unheard"))
    """The ids of signals that arrived while it ran and did not reach it. The next turn for this work gets them."""
    earlier: tuple[EarlierTurn, ...] = ()
    """The turns that worked on the same request before, oldest first."""

    @property
    def change(self) -> Change | None:
        """What it and the earlier turns for the same work changed."""
        return add_changes([*(one.change for one in self.earlier), self.result.change])

    @property
    def settles_work(self) -> bool:
        """Whether it settled its work; if not, another turn continues it, now or after a resume."""
        return self.retry_at is None and self.result.end is not TurnEnd.STOPPED


@value
class ChecksEnded:
    """The engine ran the checks."""

    key: str
    verdict: Verdict
    spent: Spent = field(default_factory=Spent)


@value
class WorkCommitted:
    """The engine committed what was changed, or says why it did not."""

    key: str
    commit: str = ""
    notice: str = ""


class MergeResult(StrEnum):
    """The result of a merge."""

    MERGED = "merged"
    """It is on the branch of the run, and the checks passed on the merged tree."""
    NOTHING = "nothing"
    """There was nothing to merge."""
    CONFLICT = "conflict"
    """The same lines were changed on both sides, or marks of a conflict were left in a file."""
    REVERTS = "reverts"
    """It would revert work that is already merged."""
    CHECKS_FAILED = "red"
    """It merges, and the checks do not pass on the merged tree."""


@value
class MergeEnded:
    """A merge was made, or could not be."""

    key: str
    worktree: str = field(metadata=former_name("workspace"))
    end: MergeResult
    branch: str = ""
    """The branch of the worktree, with all its work."""
    commit: str = ""
    """Where the branch of the run stands now."""
    files: tuple[str, ...] = ()
    """The files that conflict, or whose merged changes would be lost."""
    verdict: Verdict | None = None
    others_merged: bool = field(default=False, metadata=former_name("moved"))
    """Whether other work was merged since the run's branch was last merged into the worktree. Then the task is not at fault."""
    notice: str = ""
    snapshot: str = ""
    """The snapshot of the run's own tree with the change, if that tree has it too."""
    spent: Spent = field(default_factory=Spent)

    @property
    def is_merged(self) -> bool:
        """Whether all of the work is on the branch of the run."""
        return self.end in (MergeResult.MERGED, MergeResult.NOTHING)


@value
class Landed:
    """The work of the run came onto the user's branch, or stays on its own, and why."""

    commit: str
    """The work, on a branch of the run."""
    branch: str
    """Where it is now."""
    moved: bool = False
    """Whether the user's branch, or a remote one, was moved to it."""
    notice: str = ""
    """Why it was not, and what to type."""
    by: str = ""
    """Who landed it, if another interface than the command line did: `web:NAME`."""


@value
class SignalAccepted:
    """The run accepted a signal of the user, from the mailbox or from the terminal (Ctrl-C)."""

    signal: Signal


@value
class DocumentEdited:
    """The user or an agent changed a document of the engine."""

    path: str
    content: str = ""
    """What is in it now; not journaled, because it may be large. If Ralph overwrites it, a copy is kept in `edited/`."""


NOT_ISOLATED = "not isolated"
"""The prefix of the description of a sandbox that is off."""


@value
class RunEnded:
    """The run ends now. This is the last event, for the documents that report it."""

    outcome: Outcome
    reason: str
    spent: Spent
    limits: Limits
    files: tuple[FileStat, ...] = ()
    """The files that differ from before the run, as far as they are worth listing."""
    more_files: int = 0
    """How many others there are."""
    missing: tuple[str, ...] = ()
    """What of the user's branches, tags and stash is not as it was, with the commands that bring it back."""
    sandbox: str = ""
    """How agents and checks were isolated: the level, or `not isolated` with the reason."""
    agents: tuple[str, ...] = ()
    """The agents in their order, each with its model and its level of permissions if it has one."""
    hand_overs: tuple[HandOver, ...] = ()
    """The turns that agents did for others, which were not available."""
    evidence: Evidence | None = None
    """What supports a success, or why it is none; None if an older version of Ralph recorded the run."""
    allowance: Limits | None = None
    """The limits with which the run was created; None if an older version of Ralph recorded the run."""
    unverified_change: Change | None = None
    """What turns changed that were interrupted; None if there is no such change."""
    unfinished: tuple[str, ...] = ()
    """What a session left unfinished when it asks for an approval. The reason says it, too."""
    starts_programs: tuple[str, ...] = ()
    """What is new or changed in the tree and starts programs later, outside the sandbox."""

    @property
    def is_exposed(self) -> bool:
        """Whether the agents could change everything that the user can."""
        return self.sandbox.startswith(NOT_ISOLATED)


Event = (
    TurnStarted
    | TurnEnded
    | ChecksEnded
    | WorkCommitted
    | MergeEnded
    | Landed
    | SignalAccepted
    | DocumentEdited
    | RunEnded
)


@value
class SideFiles:
    """Files that are written with the documents. They are not synced, so Ralph never relies on them."""

    copies: Mapping[str, str] = field(default_factory=dict)
    """What shows the state to others, or restores a document that the user deleted, by path."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """Lines that are added to logs, by path."""


class TaskState(StrEnum):
    """Where a task of a workflow stands, for those who watch the run."""

    PLANNED = "planned"
    RETRY = "retry"
    """An attempt failed, and another follows."""
    QUALIFIED = "qualified"
    """Its reviewer accepts it; it waits to be merged."""
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    """A task that it depends on failed."""
    CANCELLED = "cancelled"


@value
class TaskChanged:
    """A task of a workflow changed its state."""

    task: str
    title: str
    state: TaskState
    reason: str = ""
    attempt: int = 0
    most_attempts: int = 0
    wave: int = 0
    """The wave in which it can start, from 1; 0 if it is in none."""
    needs: tuple[str, ...] = ()
    """The tasks that it depends on."""


@value
class Transition(Generic[S]):
    """What follows from an event: the next state, and the documents to write."""

    state: S
    documents: Mapping[str, str] = field(default_factory=dict)
    """New content by path, relative to the root; written together or not at all."""
    side_files: SideFiles = field(default_factory=SideFiles)
    """What goes along with them for others to read."""
    notices: tuple[str, ...] = ()
    """Notices for the user."""
    tasks: tuple[TaskChanged, ...] = ()
    """The tasks that changed their state."""
    earlier_tasks: tuple[TaskChanged, ...] = ()
    """How tasks stood when the state was loaded. They are journaled if the journal says something else of them."""
