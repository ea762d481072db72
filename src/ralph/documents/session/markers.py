"""The six markers of `progress.md`, and the ways from one to another."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Marker(StrEnum):
    """Where a task or a planning step is; the value is what stands between the brackets."""

    TODO = " "
    WIP = "/"
    PENDING = "P"
    DONE = "x"
    FAILED = "F"
    CANCELLED = "C"


MEANING = {
    Marker.TODO: "Not started",
    Marker.WIP: "In progress",
    Marker.PENDING: "Pending review",
    Marker.DONE: "Completed",
    Marker.FAILED: "Failed",
    Marker.CANCELLED: "Cancelled",
}
_NEXT = {
    # A task whose file is missing fails before it began.
    Marker.TODO: {Marker.WIP, Marker.CANCELLED, Marker.FAILED},
    # Time out, abort and criteria that are not met fail without a review; what is split is cancelled.
    Marker.WIP: {Marker.PENDING, Marker.FAILED, Marker.CANCELLED},
    Marker.PENDING: {Marker.DONE, Marker.FAILED},
    Marker.FAILED: {Marker.TODO, Marker.CANCELLED},
}
OVER = (Marker.DONE, Marker.CANCELLED)
_READ = {marker.value.casefold(): marker for marker in Marker}


def legal(old: Marker, new: Marker, *, retries_as_todo: bool = False) -> bool:
    """Whether a line may go from one marker to another; to stay is always legal.

    `retries_as_todo`: a task that failed and has attempts left goes back to not started at once.
    """
    if retries_as_todo and new is Marker.TODO and old in (Marker.WIP, Marker.PENDING):
        return True
    return old is new or new in _NEXT.get(old, ())


def counts(markers: Mapping[Marker, int]) -> dict[str, Any]:
    """How many tasks there are, by what came of them."""
    done, failed, gone = (markers.get(one, 0) for one in (Marker.DONE, Marker.FAILED, Marker.CANCELLED))
    total = sum(markers.values())
    pending = total - done - failed - gone
    return {"total": total, "completed": done, "failed": failed, "pending": pending, "cancelled": gone}


def read(text: str) -> Marker | None:
    """The marker that somebody wrote between brackets, in either case; None for what is none."""
    return _READ.get(text.casefold() or " ")
