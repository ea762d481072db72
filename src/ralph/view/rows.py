"""The rows of a list of runs, and their order.

Apart from the rest of the view, because `ralph status` with a thousand runs decodes only these.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any

from ralph.core.limits import Spent
from ralph.core.values import value

FORM = "8"
"""Changes with what a view or a row contains. Cached ones of another form are not used."""


class Tier(IntEnum):
    """How much a run needs the user, the most urgent first."""

    ASKS = 0
    """A question, an approval or feedback is open: the run cannot continue without the user."""
    FAILED = 1
    """It failed, is stuck, could not be verified, has a conflict, or stopped before it was done."""
    WATCH = 2
    """It works, and something deserves a look: a message that nobody received, a nearly used budget, a silent agent."""
    WORKING = 3
    WAITING = 4
    """It waits by itself (for a limit to reset, for a retry), or the user paused it."""
    UNLANDED = 5
    """It is done, and its work is on a branch of its own."""
    DONE = 6


GROUPS = {
    Tier.ASKS: "needs you",
    Tier.FAILED: "needs you",
    Tier.WATCH: "working",
    Tier.WORKING: "working",
    Tier.WAITING: "waiting",
    Tier.UNLANDED: "done",
    Tier.DONE: "done",
}
"""The heading under which every interface lists the runs of a tier."""


class NeedKind(StrEnum):
    """What the user has to do."""

    QUESTION = "question"
    APPROVAL = "approval"
    FEEDBACK = "feedback"
    GUIDANCE = "guidance"
    UNPROVEN = "unproven"
    CONFLICT = "conflict"
    MISSING = "missing"
    """A branch, tag or stash entry of the user is not as it was."""
    RESUME = "resume"
    """The run stopped before it was done."""


@value
class Need:
    """Something that the user has to decide or do, with the exact text and the command for it."""

    kind: NeedKind
    text: str
    command: str
    """What to type."""
    since: float
    id: str = ""
    """The id of the question, or the key of the merge."""
    options: tuple[str, ...] = ()
    default: str = ""
    until: float | None = None
    files: tuple[str, ...] = ()
    branch: str = ""
    findings: tuple[str, ...] = ()
    """What the guards found, if nothing else prevents success: the user decides whether it is right."""
    unfinished: tuple[str, ...] = ()
    """What a session left unfinished before it asks for an approval."""


@value
class RunRow:
    """A run in a list: what the inbox and `ralph status` show of it."""

    id: str
    project: str
    workflow: str
    task: str
    criterion: str
    state: str
    alive: bool
    attention: Tier
    group: str
    headline: str
    since: float
    seq: int
    at: float
    created_at: float
    agent: str
    workspace: str
    branch: str
    iteration: int
    max_iterations: int | None
    checks_passed: int
    checks_total: int
    spent: Spent
    cost_limit: float | None
    reason: str = ""
    """Why it ended, in the words of the engine."""
    doing: str = ""
    cost: str = ""
    """The money spent in words."""
    needs: tuple[Need, ...] = ()
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    hand_overs: tuple[str, ...] = ()
    """Which agents took over from others, and why, a sentence each."""
    sandbox: str = ""
    """How its agents are isolated: the level, or `not isolated` with the reason; empty if that was not recorded."""
    doubt: str = ""
    problem: str = ""
    """Why the run cannot be read; the other fields are then empty."""
    done_by: str = ""
    """A later run that did the same task."""
    grade: str = ""
    """How well the verdict at its end is supported; empty without one."""
    next: str = ""


def order_key(row: Mapping[str, Any]) -> tuple[int, float, float, str]:
    """The place of a row, as plain values, in a list: by tier, and in a tier by how long it has waited.

    Of what is done, the latest comes first.
    """
    sign = -1 if row["group"] == "done" else 1
    return row["attention"], sign * row["since"], sign * row["created_at"], row["id"]
