"""What the kernel needs from outside, declared by the kernel itself. Adapters in other packages implement it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ralph.core.checks import Check, FailingTests, HistoryChange, Verdict
from ralph.core.entries import Entry, Record
from ralph.core.events import (
    Commit,
    Decision,
    Event,
    Landed,
    Merge,
    MergeEnded,
    Promote,
    SideFiles,
    Transition,
    WorkCommitted,
)
from ralph.core.signals import InvalidSignalFile, Question, Signal
from ralph.core.turns import AgentEvent, Change, FileStat, Turn, TurnResult

S = TypeVar("S")


class Workflow(Protocol[S]):
    """The rules that say what happens next. They are pure, except for `Loop.recall` and
    `SessionSettings.compile_task_checks`: these are passed in, and read files.
    """

    def load(self, documents: Mapping[str, str]) -> S:
        """The state that the documents describe; the initial state if there are none."""

    def decide(self, state: S, now: float) -> Decision:
        """What should be in progress in this state."""

    def accept(self, state: S, event: Event, now: float) -> Transition[S]:
        """What follows from an event."""


class StorePort(Protocol):
    """Journal and documents, which change together."""

    def commit(
        self, at: float, entry: Entry, changes: Mapping[str, str], side_files: SideFiles | None = None
    ) -> Record:
        """Journal an entry and write what follows from it, all or nothing."""

    def read(self) -> Mapping[str, str]:
        """The documents as they are now."""

    def find_edits(self) -> Iterable[tuple[str, str]]:
        """The documents that something other than the engine changed, with their new content."""


class TurnsPort(Protocol):
    """Runs turns."""

    async def run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        """Start a turn, or adopt one that is running or has ended, and return its result."""

    async def stop(self, turn: Turn, reason: str) -> None:
        """End a turn: its `run` returns soon after."""

    async def send_message(self, turn: Turn, name: str, text: str) -> None:
        """Leave a message for the agent of a turn, once for each name."""


class CheckerPort(Protocol):
    """Runs checks."""

    async def check(
        self,
        key: str,
        checks: Sequence[Check],
        worktree: str = "",
        seen_failing: FailingTests | None = None,
        *,
        is_final: bool = False,
    ) -> Verdict:
        """Run all checks in a worktree, or in the run's own tree. Tests in `seen_failing` must pass unchanged."""

    async def check_with_tests(self, key: str, checks: Sequence[Check], tests: Mapping[str, str]) -> Verdict:
        """Run all checks in a clean checkout of the run's own tree, with further tests in it."""


class SnapshotsPort(Protocol):
    """Records the tree."""

    @property
    def notices(self) -> Sequence[str]:
        """What could not be recorded, for the user."""

    def take(self, label: str) -> Change:
        """Record the tree as it is now, and what changed since the last snapshot."""

    def take_after_checks(self) -> None:
        """Record what the checks wrote after the last turn."""

    def take_user_changes(self) -> Change:
        """Record what the user changed while the run was stopped."""

    def changed_files(self) -> Sequence[FileStat]:
        """What the run changed."""

    def list_planted_programs(self) -> Sequence[str]:
        """What is new or changed since the run started and starts programs later, one sentence each."""


class UserRefsPort(Protocol):
    """The user's branches, tags and stash."""

    @property
    def before(self) -> Mapping[str, str] | None:
        """Where they stood before the run; None if it was not recorded yet."""

    @property
    def head(self) -> str:
        """The commit that HEAD was at, at the last look; empty if there was none."""

    def record_branch_tips(self) -> None:
        """Note where the branches stand before a turn."""

    def record(self) -> Mapping[str, str]:
        """Record where they stand, and keep what they name from being removed."""

    def find_ref_changes(self) -> HistoryChange:
        """What became of them since before the run; new commits since the last look."""


class CommitterPort(Protocol):
    """Commits the work to the branch of the run's tree: the user's, or with `--worktree` the run's own."""

    def commit(self, request: Commit) -> WorkCommitted:
        """Commit what changed since the last commit of the run. A second call with the same request finds that commit."""


class MergerPort(Protocol):
    """Merges what was done in workspaces."""

    async def merge(self, request: Merge) -> MergeEnded:
        """Merge a worktree onto the branch of the run, once: asked again, it finds the merge that it made."""

    async def promote(self, request: Promote) -> MergeEnded:
        """Bring documents onto the branch of the run, once."""


class LanderPort(Protocol):
    """Brings the work of a run to the user."""

    async def land(self, *, succeeded: bool) -> Landed | None:
        """Land what is on the branch of the run, once; None if there is nothing to land."""


class SlotsPort(Protocol):
    """Limits how many turns run at once: of a run, of an agent, on the machine."""

    @property
    def why_full(self) -> str:
        """Why there was no slot the last time, for the user."""

    def take(self, key: str, agent: str, *, is_running: bool, needs_worktree: bool) -> bool:
        """Take a slot for the turn of some work, and room for its worktree; `is_running` if it is running already."""

    def release(self, key: str) -> None:
        """Give the slot back."""


class MailboxPort(Protocol):
    """Where the user leaves signals."""

    def read_inputs(self) -> Sequence[Signal | InvalidSignalFile]:
        """The signals that wait, in the order in which to accept them, and files that are not valid signals."""

    def archive(self, signal: Signal, action: str, missed: tuple[str, ...] | None = None) -> None:
        """Archive a signal that was accepted, or refused because it came too late.

        `missed` names the roles that did not receive it, if it was for all.
        """

    def reject(self, signal: Signal | InvalidSignalFile, reason: str) -> None:
        """Move a refused file out of the mailbox: no turn will ever receive it."""

    def record_receipt(self, signal: Signal, action: str, at: float) -> None:
        """Write into the file of a signal when the role that it is for received it."""

    def acknowledge(self, signal: Signal, role: str, facts: Mapping[str, object]) -> None:
        """Write the ack of a signal: which role received it, in which turn, and how it responded."""


class QuestionsPort(Protocol):
    """Where turns ask the user something."""

    def read_all(self) -> Sequence[Question]:
        """The questions so far, with the answers that there are."""


class ClockPort(Protocol):
    """The time."""

    def now(self) -> float:
        """Seconds since the epoch."""

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""


class Observer:
    """Follows a run. A method that is not overridden does nothing."""

    def on_record(self, record: Record) -> None:
        """Called after something was journaled."""

    def on_agent_event(self, turn: Turn, event: AgentEvent) -> None:
        """Called for every event of the agent of a running turn."""


@dataclass(frozen=True)
class Ports:
    """Everything outside that the kernel acts through."""

    store: StorePort
    turns: TurnsPort
    checker: CheckerPort
    mailbox: MailboxPort
    clock: ClockPort
    observer: Observer
    snapshots: SnapshotsPort | None = None
    user_refs: UserRefsPort | None = None
    committer: CommitterPort | None = None
    merger: MergerPort | None = None
    slots: SlotsPort | None = None
    lander: LanderPort | None = None
    questions: QuestionsPort | None = None
