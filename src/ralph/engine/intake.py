"""Signals on their way in: from the mailbox into the journal, and on to the turns that they are meant for.

The journal is the one ledger: what a person said is written there before its file moves, and so is who has it.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ralph.core.entries import Entry, Notice, Record, SignalHeard, SignalRefused, TurnStarted
from ralph.core.events import Event, SignalTaken, TurnEnded
from ralph.core.outcomes import Outcome
from ralph.core.signals import ASKED_FOR, Refused, Signal, SignalType, Stage, is_known
from ralph.core.turns import Turn
from ralph.documents.guidance import render_message, render_pause
from ralph.engine.ledger import Ledger
from ralph.engine.under_way import UnderWay, World

_ACTIONS = {
    SignalType.PAUSE: "pausing after the turn under way",
    SignalType.RESUME: "going on",
    SignalType.ABORT: "aborting",
    SignalType.APPROVE: "approved",
    SignalType.SKIP: "skipped",
}
_FOR_AGENTS = (SignalType.STEER, SignalType.INFO)
_LONGEST_ID = 150


class Intake:
    """Takes in what people leave for a run."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        under_way: UnderWay,
        template: str,
        commit: Callable[[Event], None],
        journal: Callable[[Entry], None],
    ) -> None:
        self._world, self._ledger, self._under_way, self._template = world, ledger, under_way, template
        self._commit, self._journal = commit, journal

    async def take(self, stage: Callable[[], Stage]) -> list[Signal]:
        """Take what waits and can be taken now, and file what is done with."""
        taken: list[Signal] = []
        for found in self._world.mailbox.peek():
            if isinstance(found, Refused):
                self._journal(SignalRefused(found.name, found.reason))
            elif (found.name, found.stamp) in self._ledger.signals.ids:
                self._file(found)
            elif not (waits := self._waits(found, stage)):
                taken.append(await self.heed(found))
                self._file(found)
            elif isinstance(waits, str):
                self._journal(SignalRefused(found.name, waits, found.stamp))
                self._world.mailbox.settle(found, waits)
        return taken

    async def heed(self, signal: Signal) -> Signal:
        """Journal a signal, and tell the turns that run and that it is meant for."""
        signal = self._named(signal)
        self._commit(SignalTaken(signal))
        if signal.type is SignalType.PAUSE or signal.has_words:
            for turn in self._under_way.running:
                if signal.is_for(turn.request.role, acts=turn.request.counts):
                    await self._reach(turn, signal)
        return signal

    async def tell_again(self) -> None:
        """Tell turns that were taken over what was said to them; what they have heard they are not told twice."""
        for turn in self._under_way.running:
            work = self._ledger.work[turn.request.key]
            log, role, acts = self._ledger.signals, turn.request.role, turn.request.counts
            late = log.unheard(work.opened_at, role, acts=acts, heard=())
            ids = {*late, *(signal.id for signal in log.waiting(role, acts=acts))}
            for id, one in list(log.taken.items()):
                if id in ids and log.is_news(id, turn.number):
                    await self._reach(turn, replace(one.signal, now=False))

    def noted(self, record: Record) -> None:
        """Acknowledge what the journal now says that a turn has."""
        match record.entry:
            case TurnStarted(words=ids, role=role):
                self._acknowledge(ids, role)
            case SignalHeard(id=one, role=role):
                self._acknowledge((one,), role)
            case TurnEnded(turn=turn, role=role, result=result):
                self._acknowledge(result.heard, role)
                if (result.answer or {}).get("steering"):
                    self._acknowledge([one.signal.id for one in self._ledger.signals.steered(turn)], role)
            case _:
                pass

    async def _reach(self, turn: Turn, signal: Signal) -> None:
        """Bring a signal to a turn that runs, by the best means that its agent has."""
        if signal.now and signal.type is not SignalType.INFO:
            await self._world.turns.stop(turn, "steered")
            return
        is_pause = signal.type is SignalType.PAUSE
        text = render_pause(signal) if is_pause else render_message(self._template, signal)
        await self._world.turns.tell(turn, signal.id, text)

    def _waits(self, signal: Signal, stage: Callable[[], Stage]) -> bool | str:
        """Whether a signal is left where it is for now; the reason where nobody will ever take it in."""
        roles = self._ledger.signals.roles
        if signal.type is not SignalType.ABORT and not is_known(signal.target, roles):
            return f"there is no role {signal.target!r} here; there are {', '.join(roles)}"
        if signal.type in ASKED_FOR and signal.type not in stage().wants:
            return True
        now = stage().iteration if signal.iteration is not None else None
        if signal.iteration is None or now is None or signal.iteration == now:
            return False
        late = f"expired: it was for iteration {signal.iteration}, and this is iteration {now}"
        return True if signal.iteration > now else late

    def _named(self, signal: Signal) -> Signal:
        """The signal with an id of its own, short enough for the name of a file."""
        if signal.id not in self._ledger.signals.taken and len(signal.name.encode()) <= _LONGEST_ID:
            return signal
        return replace(signal, key=f"{signal.stamp}-{signal.name.encode()[-100:].decode(errors='ignore')}")

    def _file(self, signal: Signal) -> None:
        """Move a signal that was taken out of the way; one to all stays until everybody has it."""
        log, mailbox = self._ledger.signals, self._world.mailbox
        id = log.ids[signal.name, signal.stamp]
        if not id:
            # An earlier engine refused it, and was gone before it could file it.
            reasons = [refused.reason for refused in log.refused if refused.name == signal.name]
            mailbox.settle(signal, reasons[-1])
            return
        taken = log.taken.get(id)
        if taken is None or signal.type not in _FOR_AGENTS:
            mailbox.settle(signal, _ACTIONS.get(signal.type, "taken in"))
        elif signal.target:
            by = f"taken in by {taken.describe_receipts()}" if taken.has else f"kept for the next {signal.target}"
            mailbox.settle(signal, by)
        elif not log.missing_roles(taken):
            mailbox.settle(signal, f"taken in by {taken.describe_receipts()}", ())

    def close(self, outcome: Outcome) -> None:
        """At the end: what was said to all is filed with whom it did not reach; where the run can go on, it waits."""
        if outcome.resumable:
            return
        log = self._ledger.signals
        for signal in [one for one in self._world.mailbox.peek() if isinstance(one, Signal)]:
            taken = log.taken.get(log.ids.get((signal.name, signal.stamp), ""))
            if taken and signal.has_words:
                by = "the run was over before a turn could take it in"
                by = f"taken in by {taken.describe_receipts()}" if taken.has else by
                self._world.mailbox.settle(signal, by, log.missing_roles(taken))
        late = [one.signal.name for one in log.taken.values() if not one.has and one.signal.type in _FOR_AGENTS]
        if late and outcome is not Outcome.ABORTED:
            self._journal(Notice(f"the run was over before a turn could take in {', '.join(late[:5])}"))

    def _acknowledge(self, ids: Iterable[str], role: str) -> None:
        for id in ids:
            taken = self._ledger.signals.taken.get(id)
            receipt = taken.has.get(role) if taken else None
            if taken is None or receipt is None:
                continue
            facts: dict[str, object] = {"turn": receipt.turn, "means": receipt.means}
            if receipt.response:
                facts |= {"response": receipt.response, "note": receipt.note}
            self._world.mailbox.acknowledge(taken.signal, role, facts)
