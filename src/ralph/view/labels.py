"""The symbol, word and color of every state, for pages. A page has no list of states of its own: it shows what it finds here."""

from typing import Any

from ralph.core.checks import Attribution, CheckStatus, Grade, Rule
from ralph.core.events import NOT_ISOLATED, TaskState
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd
from ralph.documents.hats.definition import show_role
from ralph.view.model import NeedKind, RunRow, RunView, SignalView, TaskView, Tier

Label = tuple[str, str, str]
"""Symbol, word and color."""

_STATES: dict[str, Label] = {
    "new": ("wait", "Not started", "idle"),
    "running": ("work", "Working", "work"),
    "waiting": ("wait", "Waiting", "idle"),
    "interrupted": ("warn", "Interrupted", "fail"),
    Outcome.SUCCESS: ("pass", "Done", "pass"),
    "reverted": ("stop", "Reverted", "idle"),
    "undone": ("stop", "Undone", "idle"),
    "restored": ("stop", "Restored", "idle"),
    Outcome.NOTHING_TO_DO: ("pass", "Nothing to do", "idle"),
    Outcome.STUCK: ("stuck", "Stuck", "fail"),
    Outcome.AWAITING_GUIDANCE: ("ask", "Guidance", "need"),
    Outcome.AWAITING_FEEDBACK: ("ask", "Feedback", "need"),
    Outcome.AWAITING_APPROVAL: ("book", "Approval", "need"),
    Outcome.UNPROVEN: ("unproven", "Unproven", "need"),
    Outcome.UNVERIFIABLE: ("unproven", "Could not verify", "need"),
    Outcome.PAUSED: ("pause", "Paused", "idle"),
    Outcome.ABORTED: ("stop", "Aborted", "idle"),
    Outcome.BLOCKED: ("failo", "Blocked", "fail"),
    Outcome.AGENT_UNAVAILABLE: ("failo", "No agent", "fail"),
    Outcome.INTERRUPTED: ("warn", "Interrupted", "fail"),
    Outcome.COST_UNKNOWN: ("stuck", "Cost unknown", "fail"),
}
_LIMIT: Label = ("stuck", "Limit", "fail")
_FAILED: Label = ("failo", "Failed", "fail")
_NEEDS: dict[NeedKind, Label] = {
    NeedKind.QUESTION: ("ask", "Question", "need"),
    NeedKind.APPROVAL: ("book", "Approval", "need"),
    NeedKind.FEEDBACK: ("ask", "Feedback", "need"),
    NeedKind.GUIDANCE: ("ask", "Guidance", "need"),
    NeedKind.UNPROVEN: ("unproven", "Unproven", "need"),
    NeedKind.CONFLICT: ("conflict", "Conflict", "need"),
    NeedKind.MISSING: ("warn", "Lost work", "need"),
    NeedKind.RESUME: ("pause", "Stopped", "need"),
}
_GRADES: dict[Grade, Label] = {
    Grade.PROVEN: ("proven", "Proven", "pass"),
    Grade.JUDGED: ("judged", "Judged", "judge"),
    Grade.ACCEPTED: ("accept", "Accepted", "pass"),
    Grade.UNVERIFIED: ("none", "Unverified", "idle"),
    Grade.DISPROVEN: ("failo", "Disproven", "fail"),
    Grade.UNPROVEN: ("unproven", "Unproven", "need"),
}
CHECKS: dict[str, Label] = {
    CheckStatus.PASSED: ("check", "Passed", "pass"),
    CheckStatus.FAILED: ("fail", "Failed", "fail"),
    CheckStatus.NOT_FOUND: ("norun", "Could not run", "need"),
    CheckStatus.COULD_NOT_RUN: ("norun", "Could not run", "need"),
    "flaky": ("flaky", "Flaky", "need"),
    "": ("none", "Not run", "idle"),
}
_ATTRIBUTIONS = {
    Attribution.CLEAN: "passed before the run, too",
    Attribution.REGRESSED: "broken by this run",
    Attribution.FIXED: "fixed by this run",
    Attribution.BASELINE_BROKEN: "failed before the run, too",
}
_TASKS: dict[TaskState, Label] = {
    TaskState.PLANNED: ("[ ]", "open", "idle"),
    TaskState.RETRY: ("[ ]", "next attempt", "idle"),
    TaskState.QUALIFIED: ("[P]", "in review", "idle"),
    TaskState.DONE: ("[x]", "done", "pass"),
    TaskState.FAILED: ("[F]", "failed", "fail"),
    TaskState.BLOCKED: ("[ ]", "blocked", "fail"),
    TaskState.CANCELLED: ("[C]", "cancelled", "idle"),
}
_AT_WORK: Label = ("[/]", "at work", "work")
GROUPS = {
    "needs you": ("Needs you", "what stops a run comes first, then what has waited longest"),
    "working": ("Working", ""),
    "waiting": ("Waiting", "continue by themselves, or paused by you"),
    "done": ("Done", ""),
}
"""The title of each group, and a remark."""
LIMITS = {"iterations": "Iterations", "time": "Time", "cost": "Money", "tokens": "Tokens", "deadline": "Deadline"}
_MEANS = {
    "prompt": "in its prompt",
    "hook": "after a tool call",
    "live": "live",
    "tool": "when it asked for messages",
    "turn": "while it ran",
}


_TURN_ENDS = {
    TurnEnd.LIMITED: "limit of the agent's provider",
    TurnEnd.IDLE: "silent for too long",
    TurnEnd.WALL: "time limit of a turn",
    TurnEnd.CUT: "limit of the run",
    TurnEnd.UNAVAILABLE: "could not start",
    TurnEnd.STEERED: "continues with your message",
}


def shorten_agent(agent: str, width: int) -> str:
    """An agent as tables show it: programs without their directories, a function of the user by its name."""
    words = agent.split()
    if "ralph.callable_agent" in words:
        short = f"{words[-1]}()"
    else:
        short = " ".join(word.rpartition("/")[2] if word.startswith("/") else word for word in words)
    return short if len(short) <= width else f"{short[: width - 1]}…"


def describe_end(end: TurnEnd) -> str:
    """How a turn ended, in words."""
    return _TURN_ENDS.get(end, str(end))


def label_state(row: RunView | RunRow) -> Label:
    """The state of a run."""
    if row.doubt and not row.alive:
        return "warn", "Claimed", "need"
    if row.needs and row.alive:
        return _NEEDS[row.needs[0].kind]
    if row.state == "running" and row.attention is Tier.WATCH:
        return "warn", "Watch", "need"
    if row.state == "running" and isinstance(row, RunView) and row.checking and not row.running_turns:
        return "work", "Verifying", "work"
    if row.attention is Tier.UNLANDED:
        return "land", "Not landed", "pass"
    if row.state.startswith("limit-"):
        return _LIMIT
    return _STATES.get(row.state, _FAILED)


def label_grade(view: RunView) -> Label:
    """The grade of a run. Nothing is green before the verdict, nor what a run only claims."""
    if view.doubt and not view.alive:
        return "warn", "Not verified", "need"
    if view.ended is None or view.alive:
        return "none", "No grade yet", "idle"
    if view.taken_back:
        return "none", "Changed since", "idle"
    if view.ended.evidence:
        return _GRADES[view.ended.evidence.grade]
    if any(one.is_open and one.finding.rule is Rule.CLEAN_ROOM for one in view.findings):
        return _GRADES[Grade.DISPROVEN]
    if not view.ended.outcome.succeeded:
        return "none", "No grade yet", "idle"
    if view.run_checks or view.run.checks:
        return "pass", "Checks passed", "pass"
    return "none", "No checks", "idle"


def label_sandbox(view: RunView | RunRow) -> Label | None:
    """What to say if nothing keeps the agents of a run away from the rest of the machine; None if something does."""
    return ("warn", "Not isolated", "need") if view.sandbox.startswith(NOT_ISOLATED) else None


def describe_attribution(attribution: Attribution | None) -> str:
    """What the run did to a check, in words; empty if that is not known."""
    return _ATTRIBUTIONS[attribution] if attribution else ""


def describe_task(task: TaskView) -> Label:
    """The marker, word and color of a task."""
    return _AT_WORK if task.turn else _TASKS[task.state]


def describe_row(row: RunRow, key: str, project: str) -> dict[str, Any]:
    """What a list adds to a row."""
    return {
        "key": key,
        "project_name": project,
        "label": label_row(row),
        "need_labels": [_NEEDS[need.kind] for need in row.needs],
    }


def label_row(row: RunRow) -> Label:
    """The state of a run in a list. Of work that is done, the list says how well it is supported."""
    if row.grade and row.attention is Tier.DONE and row.state == Outcome.SUCCESS and not row.doubt:
        return _GRADES[Grade(row.grade)]
    return label_state(row)


def describe_view(view: RunView, now: float) -> dict[str, Any]:
    """What a run's page adds to a view."""
    return {
        "label": label_state(view),
        "grade": label_grade(view),
        "sandbox": label_sandbox(view),
        "need_labels": [_NEEDS[need.kind] for need in view.needs],
        "checks": CHECKS,
        "attributions": {str(one): text for one, text in _ATTRIBUTIONS.items()},
        "tasks": {task.id: describe_task(task) for task in view.tasks},
        "limits": LIMITS,
        "turn_ends": {str(end): describe_end(end) for end in TurnEnd},
        "signals": {one.id: describe_signal(one, now) for one in view.signals},
    }


def describe_means(means: str) -> str:
    """How a turn received a message."""
    return _MEANS.get(means, means)


def describe_signal(signal: SignalView, now: float) -> list[tuple[str, str, str]]:
    """What became of a signal: symbol, color and sentence, one after the other."""
    if signal.state == "refused":
        return [("failo", "fail", f"Refused: {signal.reason}")]
    acks = []
    for receipt in signal.receipts:
        after = f" ({_span(receipt.at - signal.at)})" if receipt.at >= signal.at > 0 else ""
        how = describe_means(receipt.means)
        acks.append(("pass", "pass", f"Received by turn {receipt.turn} ({show_role(receipt.role)}), {how}{after}"))
        if receipt.response:
            note = f": {receipt.note}" if receipt.note else ""
            acks.append(("note", "idle", f"Its response: {receipt.response}{note}"))
    if acks:
        return acks
    if not signal.is_message and signal.state == "accepted":
        return [("pass", "pass", "Done")]
    age = max(0.0, now - signal.at) if signal.at else 0.0
    reason = f" {signal.reason[0].upper()}{signal.reason[1:]}." if signal.reason else ""
    return [("wait", "need" if age > 60 else "idle", f"Not received yet, {_span(age)}.{reason}")]


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
