"""What the journal says about turns, money, counters and signals: a fold over its records, the same live and on resume."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

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
    SignalReceived,
    SignalRefused,
    SnapshotTaken,
)
from ralph.core.events import (
    ChecksEnded,
    HandOver,
    MergeEnded,
    RunEnded,
    SignalAccepted,
    TaskChanged,
    TaskState,
    TurnEnded,
    TurnStarted,
    add_hand_over,
)
from ralph.core.limits import Limits, Quota, Spent
from ralph.core.outcomes import Outcome
from ralph.core.signals import CTRL_C, IN_PROMPT, DatedSignal, Signal, SignalType, normalize_target
from ralph.core.turns import Change, TurnEnd, TurnResult, add_changes
from ralph.documents.signals import Messages
from ralph.engine.follow_up import NEVER, PendingWork, find_unavailable_until

_REASON_CHARS = 160
"""So much of an error says why another agent took over."""
_REMEMBERED_COSTS = 5
MAX_FACTS = 3
"""The number of earlier INFO messages that a new conversation repeats."""


@dataclass
class Receipt:
    """A turn that got a signal, and what it made of it."""

    role: str
    turn: int
    means: str
    """How it received the signal: `prompt`, `hook`, `live`, `tool`, or `turn` if only the result of the turn names it."""
    at: float
    response: str = ""
    note: str = ""


@dataclass
class AcceptedSignal:
    """A signal that the run accepted, and the turns that received it."""

    signal: Signal
    at: float
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def receipts_by_role(self) -> dict[str, Receipt]:
        """The latest receipt of each role. The message of a pause is for the turn after it: only a prompt counts."""
        is_pause = self.signal.type is SignalType.PAUSE
        counted = (one for one in self.receipts if one.means == IN_PROMPT or not is_pause)
        return {one.role: one for one in counted}

    def describe_receipts(self) -> str:
        """Who has it, for the user."""
        return ", ".join(f"{role} (turn {one.turn}, {one.means})" for role, one in self.receipts_by_role.items())


@dataclass(frozen=True)
class RefusedSignal:
    """A file in the mailbox that was refused."""

    name: str
    reason: str
    at: float


@dataclass
class SignalLog:
    """All signals of a run, oldest first."""

    required_roles: tuple[str, ...] = ()
    """The roles that must receive a message to all roles. If empty, one turn of any role is enough."""
    roles: tuple[str, ...] = ()
    """All roles of the run, if they are known."""
    accepted: dict[str, AcceptedSignal] = field(default_factory=dict)
    """By id."""
    refused: list[RefusedSignal] = field(default_factory=list)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)
    """The id of every file that was acted on, by name and stamp; empty for one that was refused."""
    _known: set[tuple[str, int]] = field(default_factory=set)
    """Which turns have which signals, by id and turn."""
    _open: dict[str, AcceptedSignal] = field(default_factory=dict)
    """Messages that a required role has not received yet."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> "SignalLog":
        """The signals in a whole journal."""
        log = cls()
        for record in records:
            log.apply(record)
        return log

    def apply(self, record: Record) -> None:
        """Apply one record."""
        match record.entry:
            case SignalAccepted(signal=signal):
                accepted = self.accepted[signal.id] = AcceptedSignal(signal, record.at)
                self.ids[signal.name, signal.stamp] = signal.id
                if signal.has_message_for_agents:
                    self._open[signal.id] = accepted
            case SignalRefused(name=name, reason=reason, stamp=stamp):
                self.ids[name, stamp] = ""
                self.refused.append(RefusedSignal(name, reason, record.at))
            case TurnStarted(messages=ids, role=role, turn=turn):
                self._add_receipts(ids, role, turn, IN_PROMPT, record.at)
            case SignalReceived(id=one, role=role, turn=turn, means=means):
                self._add_receipts((one,), role, turn, means, record.at)
            case TurnEnded() as ended:
                self._add_receipts(ended.result.received, ended.role, ended.turn, "turn", record.at)
                self._record_response(ended)
            case _:
                pass

    def _add_receipts(self, ids: Iterable[str], role: str, turn: int, means: str, at: float) -> None:
        for one in ids:
            if (one, turn) in self._known:
                continue
            self._known.add((one, turn))
            if one in self.accepted:
                self.accepted[one].receipts.append(Receipt(role, turn, means, at))

    def _record_response(self, ended: TurnEnded) -> None:
        """Note what a turn made of the messages that steered it."""
        steering = (ended.result.answer or {}).get("steering")
        if not isinstance(steering, dict):
            return
        for one in self.list_steers_received_in(ended.turn):
            for receipt in one.receipts:
                if receipt.turn == ended.turn:
                    receipt.response, receipt.note = str(steering.get("response", "")), str(steering.get("note", ""))

    def list_steers_received_in(self, turn: int) -> list[AcceptedSignal]:
        """The messages that steered a turn."""
        found = []
        for one in self.accepted.values():
            turns = [receipt.turn for receipt in one.receipts]
            if one.signal.type is SignalType.STEER and turn in turns:
                found.append(one)
        return found

    def is_new_to_turn(self, id: str, turn: int) -> bool:
        """Whether the turn has not received this signal yet."""
        return id in self.accepted and (id, turn) not in self._known

    def list_owed_to(self, role: str, *, is_actor: bool) -> list[Signal]:
        """The messages that a turn of that role has to get."""
        self._open = {id: one for id, one in self._open.items() if not self.is_received_by_all(one)}
        found = [one.signal for one in self._open.values() if role not in one.receipts_by_role]
        return [signal for signal in found if signal.is_for(role, is_actor=is_actor)]

    def is_received_by_all(self, one: AcceptedSignal) -> bool:
        """Whether a message has reached every role that must get it; without such roles, whether any turn has it."""
        return bool(one.receipts_by_role) and not self.list_roles_without_receipt(one)

    def list_roles_without_receipt(self, one: AcceptedSignal) -> tuple[str, ...]:
        """The roles that must get a message and have not. A message that any role may take names none."""
        if one.signal.target:
            return () if one.receipts_by_role else (one.signal.target,)
        reached = {normalize_target(role) for role in one.receipts_by_role}
        return tuple(role for role in self.required_roles if normalize_target(role) not in reached)

    def list_steers_missed_by(
        self, since: float, role: str, *, is_actor: bool, received: Iterable[str]
    ) -> tuple[str, ...]:
        """The STEER messages, by id, that arrived during a turn and that the turn did not receive."""
        known = set(received)
        late = list(takewhile(lambda one: one.at >= since, reversed(self.accepted.values())))
        signals = [one.signal for one in reversed(late) if one.signal.type is SignalType.STEER]
        missed = [one for one in signals if one.has_message_for_agents and one.id not in known]
        return tuple(one.id for one in missed if one.is_for(role, is_actor=is_actor))

    def select_messages(
        self, role: str, *, is_actor: bool, new: Iterable[str], iteration: int | None, reminds: bool
    ) -> Messages:
        """The messages for a turn of a role: the new ones, by their ids, and all earlier ones that are in force.

        `reminds` adds the latest facts, for an agent that knows nothing of earlier turns.
        """
        ids = [one for one in dict.fromkeys(new) if one in self.accepted]
        known = set(ids)
        in_force: list[DatedSignal] = []
        facts: list[DatedSignal] = []
        for one in self.accepted.values():
            signal = one.signal
            if (
                signal.id in known
                or not signal.is_for(role, is_actor=is_actor)
                or signal.iteration not in (None, iteration)
            ):
                continue
            if signal.is_guidance:
                in_force.append(DatedSignal(signal, one.at))
            elif signal.type is SignalType.INFO and one.receipts:
                facts.append(DatedSignal(signal, one.at))
        new_messages = [DatedSignal(self.accepted[id].signal, self.accepted[id].at) for id in ids]
        return Messages(new=new_messages, in_force=in_force, facts=facts[-MAX_FACTS:] if reminds else ())


_UNAVAILABLE = {
    TurnEnd.OVERLOADED: "its provider was overloaded",
    TurnEnd.LIMITED: "it reached a limit of its provider",
    TurnEnd.UNAVAILABLE: "it could not be used",
}


def _describe_unavailable(result: TurnResult) -> str:
    """Why the agent of such a turn cannot be used for a while. The error says why the user has to do something."""
    error = " ".join(result.error.split())[:_REASON_CHARS]
    if result.end is TurnEnd.UNAVAILABLE and error:
        return f"{_UNAVAILABLE[result.end]}: {error}"
    return _UNAVAILABLE[result.end]


@dataclass
class Ledger:
    """The counters of a run, as its journal accounts for them."""

    limits: Limits
    allowance: Limits | None = None
    """The limits with which the run was created. A resume grants the one that was reached once more."""
    spent: Spent = field(default_factory=Spent)
    last_turn_number: int = 0
    """The highest turn number taken."""
    pending: dict[str, PendingWork] = field(default_factory=dict)
    """The work that is not settled yet, by key."""
    paused: bool = False
    pause_message: str = ""
    """What the user said with the pause."""
    paused_by_ctrl_c: bool = False
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
    unavailable_because: dict[str, str] = field(default_factory=dict)
    """Why it cannot."""
    hand_overs: tuple[HandOver, ...] = ()
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
    task_states: dict[str, tuple[TaskState, str]] = field(default_factory=dict)
    """The last state of each task that was journaled, with its reason."""
    ended: RunEnded | None = None
    started: RunStarted | None = None
    """The first start of the run, with the hashes frozen then."""

    @classmethod
    def of(cls, limits: Limits, records: Iterable[Record]) -> "Ledger":
        """The ledger of a whole journal."""
        ledger = cls(limits, allowance=limits)
        for record in records:
            ledger.apply(record)
        return ledger

    def apply(self, record: Record) -> None:
        """Apply one record."""
        self.signals.apply(record)
        match record.entry:
            case RunStarted() as entry:
                self.started = self.started or entry
                self.ended = None
                self.unavailable = {label: until for label, until in self.unavailable.items() if until != NEVER}
                # Nobody knows when these are reset: the next turn reports them again.
                self.quotas = {label: quota for label, quota in self.quotas.items() if quota.resets_at}
            case LimitExtended() | AgentsChanged() | GuardRulesChanged() as entry:
                self._take_settings(entry)
            case TaskChanged(task=task, state=state, reason=reason):
                self.task_states[task] = state, reason
            case TurnStarted() as entry:
                self.pending.setdefault(entry.key, PendingWork()).note_turn_started(entry, record.at)
                self.last_turn_number = max(self.last_turn_number, entry.turn)
                self.hand_overs = add_hand_over(self.hand_overs, entry)
            case TurnEnded() as entry:
                self._end_turn(entry, record.at)
            case SnapshotTaken() | RefsRecorded() | HistoryChanged() as entry:
                self._take_history(entry)
            case ChecksEnded(spent=spent) | MergeEnded(spent=spent):
                self.spent = spent
                if isinstance(record.entry, ChecksEnded) and self.completes_interrupted_iteration(record.entry):
                    del self.pending[record.entry.key]
            case SignalAccepted(signal=signal):
                self._take_signal(signal)
            case QuestionAsked() | QuestionAnswered() as entry:
                self._take_question(entry)
            case RunEnded() as entry:
                self.ended, self.spent, self.abort_completed = entry, entry.spent, self.aborted is not None
            case _:
                pass

    def _take_settings(self, entry: LimitExtended | AgentsChanged | GuardRulesChanged) -> None:
        match entry:
            case LimitExtended(limits=limits):
                self.limits = limits
            case AgentsChanged(agents=agents):
                self.agents_json = agents
            case GuardRulesChanged(allowed=allowed, may_change=may_change, accepted=accepted):
                self.accepted = {**self.accepted, **accepted}
                self.allowed |= allowed
                self.may_change = tuple(dict.fromkeys((*self.may_change, *may_change)))

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
            self.paused_by_ctrl_c = self.paused and signal.name.startswith(CTRL_C)
        if signal.type is SignalType.PAUSE:
            for pending in self.pending.values():
                pending.to_pause = True
        if signal.type is SignalType.ABORT:
            self.aborted, self.abort_completed = signal, False
        elif signal.type is SignalType.RESUME and self.abort_completed:
            self.aborted = None

    def _end_turn(self, entry: TurnEnded, at: float) -> None:
        self.spent = entry.spent
        pending = self.pending.get(entry.key)
        until = find_unavailable_until(entry.result, pending, at) if pending else None
        if pending and until is not None:
            self.unavailable[pending.agent] = until
            self.unavailable_because[pending.agent] = _describe_unavailable(entry.result)
        if pending and entry.result.quota:
            self.quotas[pending.agent] = entry.result.quota
        if entry.result.usage.cost is not None:
            self.costs.setdefault(entry.role, deque(maxlen=_REMEMBERED_COSTS)).append(entry.result.usage.cost)
        if entry.settles_work:
            self.pending.pop(entry.key, None)
        else:
            self.pending.setdefault(entry.key, PendingWork()).note_turn_ended(entry)

    def completes_interrupted_iteration(self, ended: ChecksEnded) -> bool:
        """Whether the checks show that an interrupted turn had done its work."""
        pending = self.pending.get(ended.key)
        return pending is not None and pending.is_iteration and ended.verdict.passed_or_unproven

    def add_up_unsettled_changes(self) -> Change | None:
        """What turns changed whose work is not settled; None if they changed nothing."""
        change = add_changes([turn.change for pending in self.pending.values() for turn in pending.earlier])
        return change if change and change.files else None

    def list_unavailable(self, now: float) -> dict[str, float]:
        """Until when agents cannot be used, among them those that have used up their share of a quota."""
        found = dict(self.unavailable)
        for label, quota in self.quotas.items():
            if self.limits.is_over_quota(quota, now):
                found[label] = max(found.get(label, 0.0), quota.resets_at or NEVER)
        return found

    def explain_unavailable(self, agent: str, now: float) -> str:
        """Why an agent cannot be used."""
        quota = self.quotas.get(agent)
        if self.limits.is_over_quota(quota, now):
            return f"it has used {quota}; the limit is {self.limits.quota or 0:.0%}"
        return self.unavailable_because.get(agent, "")

    def estimate(self, role: str) -> float:
        """What the next turn of a role will cost, judged by the last ones."""
        seen = self.costs.get(role)
        return sum(seen) / len(seen) if seen else 0.0

    def count_iterations_in_progress(self, excluding: str) -> int:
        """Iterations that have begun and not been counted yet, except one."""
        return sum(pending.is_iteration for key, pending in self.pending.items() if key != excluding)

    @property
    def reserved(self) -> float:
        """The money set aside for turns that are in progress."""
        return sum(pending.open_turn.reserved for pending in self.pending.values() if pending.open_turn)

    def extend_limits(self, *, is_guided: bool = False) -> Limits:
        """The limits for a resume: the allowance that the run ended on is granted once more.

        Iterations are also granted if none is left and the run needs a turn: it was stuck, or the user gave guidance.
        """
        if self.ended is None:
            return self.limits
        reached = self.ended.outcome
        if self.limits.is_out_of_iterations(self.spent) and (is_guided or reached.needs_turn):
            reached = Outcome.LIMIT_ITERATIONS
        if not reached.value.startswith("limit-"):
            return self.limits
        return self.limits.extend(reached, self.spent, self.allowance or self.limits)

    def with_activity(self, seconds: float) -> Spent:
        """The counters after that much more active time."""
        return replace(self.spent, active_seconds=round(self.spent.active_seconds + seconds, 3))


def find_records_to_replay(records: list[Record]) -> tuple[Record, ...]:
    """The records after the last one that wrote documents."""
    last = max((i for i, record in enumerate(records) if record.documents), default=-1)
    return tuple(records[last + 1 :])
