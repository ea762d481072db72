"""Delivers signals: from the mailbox into the journal, and on to the running turns that they are meant for.

The journal is the only record: a signal is written there before its file moves, and so is every turn that received it.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ralph.core.entries import Entry, Notice, Record, SignalReceived, SignalRefused
from ralph.core.events import Event, SignalAccepted, TurnEnded, TurnStarted
from ralph.core.outcomes import Outcome
from ralph.core.signals import (
    ASKED_FOR,
    INTERRUPTING,
    MESSAGE_ONLY_TYPES,
    InvalidSignalFile,
    Signal,
    SignalType,
    Stage,
    choose_target,
    is_known,
)
from ralph.core.text import clean_text
from ralph.core.turns import Turn
from ralph.documents.signals import render_message, render_pause
from ralph.engine.jobs import Jobs
from ralph.engine.ledger import Ledger
from ralph.engine.ports import Ports

_ACTIONS = {
    SignalType.PAUSE: "pausing after the current turn",
    SignalType.RESUME: "resumed",
    SignalType.ABORT: "aborting",
    SignalType.APPROVE: "approved",
    SignalType.SKIP: "skipped",
}
_MAX_ID_BYTES = 150


class SignalDelivery:
    """Accepts or refuses the signals of a run, and sends accepted ones to its running turns."""

    def __init__(
        self,
        ports: Ports,
        ledger: Ledger,
        jobs: Jobs,
        message_template: str,
        accept_event: Callable[[Event], None],
        journal: Callable[[Entry], None],
    ) -> None:
        self._ports, self._ledger, self._jobs, self._message_template = ports, ledger, jobs, message_template
        self._accept_event, self._journal = accept_event, journal

    async def process_mailbox(self, stage: Callable[[], Stage]) -> list[Signal]:
        """Accept the signals that can be accepted now, and archive those that are finished."""
        accepted: list[Signal] = []
        pending = self._ports.mailbox.read_inputs()
        replaced = _list_replaced_answers(
            one for one in pending if isinstance(one, Signal) and not self._find_wrong_items(one, stage)
        )
        for one in pending:
            if isinstance(one, InvalidSignalFile):
                self._refuse_invalid(one)
                continue
            found = replace(one, target=choose_target(one.target, self._ledger.signals.roles))
            if (found.name, found.stamp) in self._ledger.signals.ids:
                self._archive_if_done_with_file(found)
            elif reason := self._find_reason_to_refuse(found, stage):
                self._journal(SignalRefused(found.name, reason, found.stamp))
                self._move_refused(found, reason)
            elif found.name in replaced and not self._must_wait(found, stage):
                reason = "a later answer replaced it"
                self._journal(SignalRefused(found.name, reason, found.stamp))
                self._move_refused(found, reason)
            elif not self._must_wait(found, stage):
                accepted.append(await self.deliver(found))
                self._archive_if_done_with_file(found)
        return accepted

    async def deliver(self, signal: Signal) -> Signal:
        """Journal a signal, and send it to the running turns that it is meant for."""
        signal = self._with_own_id(signal)
        self._accept_event(SignalAccepted(signal))
        if signal.type is SignalType.PAUSE or signal.has_message_for_agents:
            for turn in self._jobs.running_turns:
                if signal.is_for(turn.request.role, is_actor=turn.request.is_actor):
                    await self._send(turn, signal)
        return signal

    async def send_to_adopted_turns(self) -> None:
        """Send adopted turns the messages that they did not get yet."""
        for turn in self._jobs.running_turns:
            pending = self._ledger.pending[turn.request.key]
            log, role, is_actor = self._ledger.signals, turn.request.role, turn.request.is_actor
            late = log.list_steers_missed_by(pending.opened_at, role, is_actor=is_actor, received=())
            ids = {*late, *(signal.id for signal in log.list_owed_to(role, is_actor=is_actor))}
            for id, one in list(log.accepted.items()):
                if id in ids and log.is_new_to_turn(id, turn.number):
                    await self._send(turn, replace(one.signal, now=False))

    def write_acks_for(self, record: Record) -> None:
        """Acknowledge the signals that, by this record, a turn has received or answered."""
        match record.entry:
            case TurnStarted(messages=ids, role=role):
                self._acknowledge(ids, role)
            case SignalReceived(id=one, role=role):
                self._acknowledge((one,), role)
            case TurnEnded(turn=turn, role=role, result=result):
                self._acknowledge(result.received, role)
                if (result.answer or {}).get("steering"):
                    self._acknowledge(
                        [one.signal.id for one in self._ledger.signals.list_steers_received_in(turn)], role
                    )
            case _:
                pass

    async def _send(self, turn: Turn, signal: Signal) -> None:
        """Bring a signal to a running turn: interrupt it if the user wants it now, else leave a message."""
        if signal.now and signal.type in INTERRUPTING:
            await self._ports.turns.stop(turn, "steered")
            return
        if signal.type is SignalType.PAUSE:
            text = render_pause(signal)
        else:
            writes_result = bool(turn.request.answer_schema)
            text = render_message(self._message_template, signal, writes_result=writes_result)
        await self._ports.turns.send_message(turn, signal.id, text)

    def _refuse_invalid(self, file: InvalidSignalFile) -> None:
        """Journal and reject a file that is not a valid signal. An earlier engine may have died between the two."""
        name = clean_text(file.name)
        if (name, file.stamp) not in self._ledger.signals.ids:
            self._journal(SignalRefused(name, file.reason, file.stamp))
        self._ports.mailbox.reject(file, file.reason)

    def _is_for_unknown_role(self, signal: Signal) -> bool:
        return signal.type is not SignalType.ABORT and not is_known(signal.target, self._ledger.signals.roles)

    def _move_refused(self, signal: Signal, reason: str) -> None:
        """Move a refused signal: one that came too late was valid, one for an unknown role never was."""
        if self._is_for_unknown_role(signal):
            self._ports.mailbox.reject(signal, reason)
        else:
            self._ports.mailbox.archive(signal, reason)

    def _find_reason_to_refuse(self, signal: Signal, stage: Callable[[], Stage]) -> str:
        """Why no turn will ever receive a signal; empty if one may."""
        if self._is_for_unknown_role(signal):
            roles = self._ledger.signals.roles
            return f"there is no role {signal.target!r} here; the roles are {', '.join(roles)}"
        if signal.type is SignalType.ABORT and stage().is_complete:
            return "everything is done already, so there is nothing to abort"
        if wrong := self._find_wrong_items(signal, stage):
            return wrong
        if signal.iteration is None or self._is_premature_answer(signal, stage):
            return ""
        iteration = stage().iteration
        if iteration is None or signal.iteration >= iteration:
            return ""
        return f"expired: it was for iteration {signal.iteration}, and this is iteration {iteration}"

    def _find_wrong_items(self, signal: Signal, stage: Callable[[], Stage]) -> str:
        """Why an answer that the run asks for names nothing that it can choose; empty if it does not, or cannot be told yet."""
        if not signal.items or self._is_premature_answer(signal, stage):
            return ""
        return stage().find_wrong_items(signal.items)

    def _must_wait(self, signal: Signal, stage: Callable[[], Stage]) -> bool:
        """Whether a signal stays in the mailbox for now: the run does not ask for it yet, or it is for a later iteration."""
        if self._is_premature_answer(signal, stage):
            return True
        if signal.iteration is None:
            return False
        iteration = stage().iteration
        return iteration is not None and signal.iteration > iteration

    def _is_premature_answer(self, signal: Signal, stage: Callable[[], Stage]) -> bool:
        """Whether a signal is an answer, such as APPROVE, that the run does not ask for at this stage."""
        return signal.type in ASKED_FOR and signal.type not in stage().asks_for

    def _with_own_id(self, signal: Signal) -> Signal:
        """The signal with a unique id that is short enough for the name of a file."""
        if signal.id not in self._ledger.signals.accepted and len(signal.name.encode()) <= _MAX_ID_BYTES:
            return signal
        return replace(signal, assigned_id=f"{signal.stamp}-{signal.name.encode()[-100:].decode(errors='ignore')}")

    def _archive_if_done_with_file(self, signal: Signal) -> None:
        """Move the file of a signal that was accepted or refused before.

        A message to all roles stays until every required role has received it, or any turn if no role is required.
        """
        log, mailbox = self._ledger.signals, self._ports.mailbox
        id = log.ids[signal.name, signal.stamp]
        if not id:
            # An earlier engine refused it, and died before it could archive it.
            reasons = [refused.reason for refused in log.refused if refused.name == signal.name]
            self._move_refused(signal, reasons[-1])
            return
        accepted = log.accepted.get(id)
        if accepted is None or signal.type not in MESSAGE_ONLY_TYPES:
            mailbox.archive(signal, _ACTIONS.get(signal.type, "received"))
        elif signal.target and not accepted.receipts_by_role:
            mailbox.archive(signal, f"waits for the next {signal.target}")
        elif signal.target:
            mailbox.archive(signal, f"received by {accepted.describe_receipts()}")
        elif log.is_received_by_all(accepted):
            mailbox.archive(signal, f"received by {accepted.describe_receipts()}", ())

    def archive_unreceived(self, outcome: Outcome) -> None:
        """Archive the messages to all roles at the end of a run, with the roles that did not get them.

        If the run can be resumed, they stay in the mailbox.
        """
        if outcome.resumable:
            return
        log = self._ledger.signals
        for signal in self._ports.mailbox.read_inputs():
            if not isinstance(signal, Signal) or not signal.has_message_for_agents:
                continue
            accepted = log.accepted.get(log.ids.get((signal.name, signal.stamp), ""))
            if accepted is None:
                continue
            missing: tuple[str, ...] | None = log.list_roles_without_receipt(accepted)
            if accepted.receipts_by_role:
                action = f"received by {accepted.describe_receipts()}"
            else:
                action = "the run was over before a turn could receive it"
                # Without names of roles, the file would say that it was delivered.
                missing = missing or None
            self._ports.mailbox.archive(signal, action, missing)
        late = [
            one.signal.name
            for one in log.accepted.values()
            if not one.receipts_by_role and one.signal.type in MESSAGE_ONLY_TYPES
        ]
        if late and outcome is not Outcome.ABORTED:
            self._journal(Notice(f"the run was over before a turn could receive {', '.join(late[:5])}"))

    def _acknowledge(self, ids: Iterable[str], role: str) -> None:
        for id in ids:
            accepted = self._ledger.signals.accepted.get(id)
            receipt = accepted.receipts_by_role.get(role) if accepted else None
            if accepted is None or receipt is None:
                continue
            facts: dict[str, object] = {"turn": receipt.turn, "means": receipt.means}
            if receipt.response:
                facts |= {"response": receipt.response, "note": receipt.note}
            self._ports.mailbox.acknowledge(accepted.signal, role, facts)
            if accepted.signal.target and accepted.signal.type in MESSAGE_ONLY_TYPES:
                # Its file was archived when the run accepted it, before any turn received it.
                first = min(one.at for one in accepted.receipts)
                self._ports.mailbox.record_receipt(
                    accepted.signal, f"received by {accepted.describe_receipts()}", first
                )


def _list_replaced_answers(pending: Iterable[Signal]) -> set[str]:
    """The names of answers, such as APPROVE, after which the user gave another one for the same iteration."""
    latest: dict[int | None, str] = {}
    replaced: set[str] = set()
    for one in pending:
        if one.type in ASKED_FOR:
            if one.iteration in latest:
                replaced.add(latest[one.iteration])
            latest[one.iteration] = one.name
    return replaced
