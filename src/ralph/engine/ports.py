"""What the kernel needs of the world, declared by the kernel itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from ralph.core.checks import Check, Red, Verdict
from ralph.core.entries import Entry, Record
from ralph.core.events import Changes, Commit, Decision, Event, Landed, Merge, Merged, Promote, SideFiles, WorkCommitted
from ralph.core.findings import HistoryChange
from ralph.core.questions import Question
from ralph.core.signals import Refused, Signal
from ralph.core.stream import AgentEvent
from ralph.core.turns import Change, FileStat, Turn, TurnResult

S = TypeVar("S")


class Workflow(Protocol[S]):
    """The rules that say what happens next: three pure functions."""

    def load(self, documents: Mapping[str, str]) -> S:
        """The state that the documents describe; the initial one where there are none."""

    def decide(self, state: S, now: float) -> Decision:
        """What should be under way in this state."""

    def accept(self, state: S, event: Event, now: float) -> Changes[S]:
        """What follows from an event."""


class Store(Protocol):
    """Journal and documents, changed together, and what shows them to others."""

    def commit(self, at: float, entry: Entry, changes: Mapping[str, str], aside: SideFiles | None = None) -> Record:
        """Journal an entry and write what follows from it, all or nothing."""

    def read(self) -> Mapping[str, str]:
        """The documents as they are now."""

    def edited(self) -> Iterable[tuple[str, str]]:
        """The documents that somebody else changed."""


class Turns(Protocol):
    """Where turns run."""

    async def run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        """Start a turn, or take over one that is under way or has ended, and return what came of it."""

    async def stop(self, turn: Turn, reason: str) -> None:
        """End a turn: its `run` returns soon after."""

    async def tell(self, turn: Turn, name: str, text: str) -> bool:
        """Leave words, once for each name, for an agent that works; False where it cannot hear before its turn is over."""


class Checker(Protocol):
    """Who runs the checks."""

    async def check(self, key: str, checks: Sequence[Check], workspace: str = "", red: Red | None = None) -> Verdict:
        """Run them all on the tree of a workspace as it is; what was seen to be red must be green unchanged."""


class Snapshots(Protocol):
    """Who records the tree."""

    @property
    def notices(self) -> Sequence[str]:
        """What could not be recorded, for a person to know."""

    def take(self, label: str) -> Change:
        """Record the tree as it is now, and what changed since the last time."""

    def changed_files(self) -> Sequence[FileStat]:
        """What differs from before the run."""

    def look_at_history(self) -> HistoryChange:
        """What became of the user's branches, tags and stash since before the run; new commits since the last look."""


class Committer(Protocol):
    """Who commits the work to the user's branch."""

    def commit(self, decision: Commit) -> WorkCommitted:
        """Commit what was changed since before the run, once: asked again, it finds the commit that it made."""


class Merger(Protocol):
    """Who merges what was done in workspaces."""

    async def merge(self, decision: Merge) -> Merged:
        """Merge a workspace onto the branch of the run, once: asked again, it finds the merge that it made."""

    async def promote(self, decision: Promote) -> Merged:
        """Bring documents onto the branch of the run, once."""


class Lander(Protocol):
    """Who brings the work of a run to the user."""

    async def land(self, *, succeeded: bool) -> Landed | None:
        """Land what is on the branch of the run, once; None where there is nothing to land."""


class Slots(Protocol):
    """Who may run beside whom: so many turns of a run, of an agent, on the machine."""

    @property
    def full(self) -> str:
        """Why there was no slot the last time, in words."""

    def take(self, key: str, agent: str, *, anyway: bool, makes_tree: bool) -> bool:
        """Take a slot for the turn of some work, and room for its worktree; `anyway` where it runs already."""

    def release(self, key: str) -> None:
        """Give it back."""


class Mailbox(Protocol):
    """Where people leave signals."""

    def peek(self) -> Sequence[Signal | Refused]:
        """The signals that wait, in the order in which they are to be taken, and files that were set aside."""

    def settle(self, signal: Signal, action: str, missed: tuple[str, ...] | None = None) -> None:
        """File a signal that was taken, with the roles that one to all did not reach."""

    def acknowledge(self, signal: Signal, role: str, facts: Mapping[str, object]) -> None:
        """Note that a role has taken a signal in."""


class Questions(Protocol):
    """Where turns ask the person something."""

    def look(self) -> Sequence[Question]:
        """The questions so far, with the answers that there are."""


class Clock(Protocol):
    """The time."""

    def now(self) -> float:
        """Seconds since the epoch."""

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""


class Observer:
    """Who looks on; what is left as it is here is of no interest."""

    def recorded(self, record: Record) -> None:
        """Something was journaled."""

    def told(self, turn: Turn, event: AgentEvent) -> None:
        """The agent of a running turn told something."""
