"""The part of the fold that follows signals: who received each, how, and with what effect."""

from collections.abc import Iterable

from ralph.core.entries import SignalRefused
from ralph.core.events import TurnEnded
from ralph.core.signals import Signal, SignalType
from ralph.core.values import copy_with
from ralph.view.model import MOST, ReceiptView, RunView, SignalView

MAX_RECEIPTS = 50


def take(view: RunView, signal: Signal, at: float) -> RunView:
    """The view after the run took a signal from the mailbox."""
    taken = SignalView(
        id=signal.id,
        name=signal.name,
        type=signal.type,
        state="accepted",
        at=at,
        message=signal.message,
        target=signal.target,
        now=signal.now,
        iteration=signal.iteration,
        is_message=signal.has_message_for_agents,
        by=signal.by,
    )
    return _add(view, taken)


def refuse(view: RunView, entry: SignalRefused, at: float) -> RunView:
    """The view after a file in the mailbox was set aside."""
    refused = SignalView(entry.name, entry.name, type=None, state="refused", at=at, reason=entry.reason)
    return _add(view, refused)


def _add(view: RunView, signal: SignalView) -> RunView:
    too_many = max(0, len(view.signals) + 1 - MOST)
    return copy_with(view, signals=(*view.signals[too_many:], signal), more_signals=view.more_signals + too_many)


def receive(view: RunView, ids: Iterable[str], role: str, turn: int, means: str, at: float) -> RunView:
    """The view after a turn received signals. Each turn receives each signal once."""
    wanted = set(ids)
    if not wanted:
        return view

    def update(one: SignalView) -> SignalView:
        if one.id not in wanted or one.state != "accepted" or any(receipt.turn == turn for receipt in one.receipts):
            return one
        receipt = ReceiptView(role=role, turn=turn, means=means, at=at)
        # The first receipt says how fast the message arrived. Of the others, the latest are of interest.
        receipts = (*one.receipts[:1], *one.receipts[1:][-MAX_RECEIPTS + 2 :], receipt)
        return copy_with(one, receipts=receipts)

    return copy_with(view, signals=tuple(map(update, view.signals)))


def respond(view: RunView, ended: TurnEnded) -> RunView:
    """The view after a turn said what it made of the messages that steered it."""
    steering = (ended.result.answer or {}).get("steering")
    if not isinstance(steering, dict):
        return view
    response, note = str(steering.get("response", "")), str(steering.get("note", ""))

    def update(one: SignalView) -> SignalView:
        if one.type is not SignalType.STEER or all(receipt.turn != ended.turn for receipt in one.receipts):
            return one
        receipts = tuple(
            copy_with(receipt, response=response, note=note) if receipt.turn == ended.turn else receipt
            for receipt in one.receipts
        )
        return copy_with(one, receipts=receipts)

    return copy_with(view, signals=tuple(map(update, view.signals)))
