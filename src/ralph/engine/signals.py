"""The signals of a run, folded from its journal: what the user said, which turns have it, and what they made of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from ralph.core.entries import Record, SignalReceived, SignalRefused
from ralph.core.events import SignalAccepted, TurnEnded, TurnStarted
from ralph.core.signals import DatedSignal, Signal, SignalType, normalize_target
from ralph.documents.guidance import Messages

IN_PROMPT = "prompt"
"""How a turn got a message that was in its prompt."""
MAX_FACTS = 3
"""The number of earlier INFO messages that a new conversation repeats."""


@dataclass
class Receipt:
    """A turn that got a signal, and what it made of it."""

    role: str
    turn: int
    means: str
    """How it got the signal: `prompt`, `hook`, `live`, `tool` or `turn`."""
    at: float
    response: str = ""
    note: str = ""


@dataclass
class AcceptedSignal:
    """A signal that the run took, and the turns that got it."""

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
    """A file in the mailbox that was set aside."""

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
        """Take one record into account."""
        match record.entry:
            case SignalAccepted(signal=signal):
                accepted = self.accepted[signal.id] = AcceptedSignal(signal, record.at)
                self.ids[signal.name, signal.stamp] = signal.id
                if signal.is_message:
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
        for one in self.list_steering(ended.turn):
            for receipt in one.receipts:
                if receipt.turn == ended.turn:
                    receipt.response, receipt.note = str(steering.get("response", "")), str(steering.get("note", ""))

    def list_steering(self, turn: int) -> list[AcceptedSignal]:
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

    def list_undelivered(self, role: str, *, is_actor: bool) -> list[Signal]:
        """The messages that a turn of that role has to get."""
        self._open = {id: one for id, one in self._open.items() if not self.is_delivered(one)}
        found = [one.signal for one in self._open.values() if role not in one.receipts_by_role]
        return [signal for signal in found if signal.is_for(role, is_actor=is_actor)]

    def is_delivered(self, one: AcceptedSignal) -> bool:
        """Whether a message has reached every role that must get it; without such roles, whether any turn has it."""
        return bool(one.receipts_by_role) and not self.find_missing_roles(one)

    def find_missing_roles(self, one: AcceptedSignal) -> tuple[str, ...]:
        """The roles that must get a message and have not. A message that any role may take names none."""
        if one.signal.target:
            return () if one.receipts_by_role else (one.signal.target,)
        reached = {normalize_target(role) for role in one.receipts_by_role}
        return tuple(role for role in self.required_roles if normalize_target(role) not in reached)

    def list_missed(self, since: float, role: str, *, is_actor: bool, received: Iterable[str]) -> tuple[str, ...]:
        """The STEER messages, by id, that arrived during a turn and that the turn did not receive."""
        known = set(received)
        late = list(takewhile(lambda one: one.at >= since, reversed(self.accepted.values())))
        signals = [one.signal for one in reversed(late) if one.signal.type is SignalType.STEER]
        return tuple(
            one.id for one in signals if one.is_message and one.id not in known and one.is_for(role, is_actor=is_actor)
        )

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
