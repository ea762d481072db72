"""The comments on lines of the diff: from the signals that brought them, and from feedback to a session."""

from collections.abc import Iterable

from ralph.core.values import copy_with
from ralph.documents.diff import DiffComment, parse_comments, parse_feedback_comments
from ralph.view.model import CommentView, ReceiptView, RunView, TurnView

BY_FEEDBACK = "feedback"
"""How a turn got comments that were part of feedback."""


def list_comments(view: RunView, feedback: Iterable[tuple[str, str, float]] = ()) -> tuple[CommentView, ...]:
    """All comments of a run. `feedback` has the path, the text and the time of each file of feedback."""
    found: list[CommentView] = []
    for signal in view.signals:
        for comment in parse_comments(signal.message):
            found.append(_show(view, comment, signal=signal.id, at=signal.at, receipts=signal.receipts))
    for path, text, at in feedback:
        comments = parse_feedback_comments(text)
        receipts = _find_receipts(view, at) if comments else ()
        for comment in comments:
            found.append(_show(view, comment, feedback=path, at=at, receipts=receipts))
    return tuple(found)


def turns_since_receipt(view: RunView, comment: CommentView) -> list[TurnView]:
    """The turns that ended and changed the file of a comment, from the first one that received it."""
    if not comment.receipts:
        return []
    first = min(receipt.turn for receipt in comment.receipts)
    return [turn for turn in view.turns if turn.number >= first and turn.end and comment.path in turn.names]


def _show(
    view: RunView,
    comment: DiffComment,
    *,
    signal: str = "",
    feedback: str = "",
    at: float,
    receipts: tuple[ReceiptView, ...],
) -> CommentView:
    shown = CommentView(
        signal=signal,
        feedback=feedback,
        path=comment.path,
        line=comment.line,
        last_line=comment.last_line,
        side=comment.side,
        snippet=comment.snippet,
        marks=comment.marks,
        text=comment.text,
        at=at,
        receipts=receipts,
    )
    turns = turns_since_receipt(view, shown)
    return copy_with(shown, file_changed_by=turns[0].number) if turns else shown


def _find_receipts(view: RunView, given_at: float) -> tuple[ReceiptView, ...]:
    """The first turn after the feedback: a session that continues begins with those who read it."""
    for turn in view.turns:
        if turn.started_at >= given_at:
            return (ReceiptView(role=turn.role, turn=turn.number, means=BY_FEEDBACK, at=turn.started_at),)
    return ()
