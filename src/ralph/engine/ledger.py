"""What the journal says about turns, money and counters: a fold over its records, the same live and on resume."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ralph.core.entries import (
    AgentsChanged,
    GuardRulesChanged,
    HistoryChanged,
    LimitExtended,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RefsRecorded,
    RunStarted,
    SnapshotTaken,
)
from ralph.core.events import ChecksEnded, MergeEnded, RunEnded, SignalAccepted, TurnEnded, TurnStarted
from ralph.core.limits import Limits, Quota, Spent
from ralph.core.signals import Signal, SignalType
from ralph.engine.follow_up import NEVER, PendingWork, find_unavailable_until
from ralph.engine.signals import SignalLog

_REMEMBERED_COSTS = 5


@dataclass
class Ledger:
    """The counters of a run, as its journal accounts for them."""

    limits: Limits
    spent: Spent = field(default_factory=Spent)
    last_turn_number: int = 0
    """The highest turn number taken."""
    work: dict[str, PendingWork] = field(default_factory=dict)
    paused: bool = False
    pause_message: str = ""
    """What the user said with the pause."""
    aborted: Signal | None = None
    abort_completed: bool = False
    """Whether the run has ended since it was aborted: only then can the user resume it."""
    signals: SignalLog = field(default_factory=SignalLog)
    asked: set[str] = field(default_factory=set)
    """Questions to the user."""
    answered: set[str] = field(default_factory=set)
    snapshots: int = 0
    refs: Mapping[str, str] | None = None
    """Where the user's branches, tags and stash stood before the run, if that was recorded."""
    missing: tuple[str, ...] = ()
    """What of the user's branches, tags and stash was missing at the last look."""
    unavailable: dict[str, float] = field(default_factory=dict)
    """Until when an agent cannot be used, by its label."""
    quotas: dict[str, Quota] = field(default_factory=dict)
    """How much of its subscription each agent has used, by its label, as far as its provider reported it."""
    costs: dict[str, deque[float]] = field(default_factory=dict)
    agents_json: str = ""
    """Who does the turns, as JSON, if the user changed that since the run was created."""
    allowed: dict[str, str] = field(default_factory=dict)
    """Guard rules that the user switched off since the run was created, with the reason."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Snapshots that the user accepted, with who, when and why."""
    may_change: tuple[str, ...] = ()
    """Patterns of judge files that the user let change since then."""
    ended: RunEnded | None = None
    started: RunStarted | None = None
    """The first start of the run, with the hashes frozen then."""

    @classmethod
    def of(cls, limits: Limits, records: Iterable[Record]) -> "Ledger":
        """The ledger of a whole journal."""
        ledger = cls(limits)
        for record in records:
            ledger.apply(record)
        return ledger

    def apply(self, record: Record) -> None:
        """Take one record into account."""
        self.signals.apply(record)
        match record.entry:
            case RunStarted() as entry:
                self.started = self.started or entry
                self.ended = None
                self.unavailable = {label: until for label, until in self.unavailable.items() if until != NEVER}
                # Nobody knows when these are reset: the next turn reports them again.
                self.quotas = {label: quota for label, quota in self.quotas.items() if quota.resets_at}
            case LimitExtended(limits=limits):
                self.limits = limits
            case AgentsChanged(agents=agents):
                self.agents_json = agents
            case GuardRulesChanged(allowed=allowed, may_change=may_change, accepted=accepted):
                self.accepted = {**self.accepted, **accepted}
                self.allowed |= allowed
                self.may_change = tuple(dict.fromkeys((*self.may_change, *may_change)))
            case TurnStarted() as entry:
                self.work.setdefault(entry.key, PendingWork()).note_turn_started(entry, record.at)
                self.last_turn_number = max(self.last_turn_number, entry.turn)
            case TurnEnded() as entry:
                self._end_turn(entry, record.at)
            case SnapshotTaken() | RefsRecorded() | HistoryChanged() as entry:
                self._take_history(entry)
            case ChecksEnded(spent=spent) | MergeEnded(spent=spent):
                self.spent = spent
            case SignalAccepted(signal=signal):
                self._take_signal(signal)
            case QuestionAsked() | QuestionAnswered() as entry:
                self._take_question(entry)
            case RunEnded() as entry:
                self.ended, self.spent, self.abort_completed = entry, entry.spent, self.aborted is not None
            case _:
                pass

    def _take_history(self, entry: SnapshotTaken | RefsRecorded | HistoryChanged) -> None:
        match entry:
            case SnapshotTaken():
                self.snapshots += 1
            case RefsRecorded(refs=refs):
                self.refs = refs
            case HistoryChanged(change=change):
                self.missing = change.missing

    def _take_question(self, entry: QuestionAsked | QuestionAnswered) -> None:
        if isinstance(entry, QuestionAsked):
            self.asked.add(entry.question.id)
        else:
            self.answered.add(entry.id)

    def _take_signal(self, signal: Signal) -> None:
        if signal.type in (SignalType.PAUSE, SignalType.RESUME):
            self.paused = signal.type is SignalType.PAUSE
            self.pause_message = signal.message.strip() if self.paused else ""
        if signal.type is SignalType.PAUSE:
            for work in self.work.values():
                work.to_pause = True
        if signal.type is SignalType.ABORT:
            self.aborted, self.abort_completed = signal, False
        elif signal.type is SignalType.RESUME and self.abort_completed:
            self.aborted = None

    def _end_turn(self, entry: TurnEnded, at: float) -> None:
        self.spent = entry.spent
        work = self.work.get(entry.key)
        until = find_unavailable_until(entry.result, work, at) if work else None
        if work and until is not None:
            self.unavailable[work.agent] = until
        if work and entry.result.quota:
            self.quotas[work.agent] = entry.result.quota
        if entry.result.usage.cost is not None:
            self.costs.setdefault(entry.role, deque(maxlen=_REMEMBERED_COSTS)).append(entry.result.usage.cost)
        if entry.settles_work:
            self.work.pop(entry.key, None)
        else:
            self.work.setdefault(entry.key, PendingWork()).note_turn_ended(entry)

    def list_unavailable(self, now: float) -> dict[str, float]:
        """Until when agents cannot be used, among them those that have used up their share of a quota."""
        found = dict(self.unavailable)
        for label, quota in self.quotas.items():
            if self.limits.is_over_quota(quota, now):
                found[label] = max(found.get(label, 0.0), quota.resets_at or NEVER)
        return found

    def estimate(self, role: str) -> float:
        """What the next turn of a role will cost, judged by the last ones."""
        seen = self.costs.get(role)
        return sum(seen) / len(seen) if seen else 0.0

    def count_iterations_in_progress(self, excluding: str) -> int:
        """Iterations that have begun and not been counted yet, except one."""
        return sum(work.is_iteration for key, work in self.work.items() if key != excluding)

    @property
    def reserved(self) -> float:
        """The money set aside for turns that are in progress."""
        return sum(work.open_turn.reserved for work in self.work.values() if work.open_turn)

    def extend_limits(self, granted: Limits) -> Limits:
        """The limits for a resume: the allowance that the run ended on is granted once more."""
        if self.ended is None or not self.ended.outcome.value.startswith("limit-"):
            return self.limits
        return self.limits.extend(self.ended.outcome, self.spent, granted)

    def with_activity(self, seconds: float) -> Spent:
        """The counters after that much more active time."""
        return replace(self.spent, active_seconds=round(self.spent.active_seconds + seconds, 3))


def find_records_to_replay(records: list[Record]) -> tuple[Record, ...]:
    """The records after the last one that wrote documents."""
    last = max((i for i, record in enumerate(records) if record.documents), default=-1)
    return tuple(records[last + 1 :])
