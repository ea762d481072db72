"""The line below the output of a run on a terminal: how far the run is, what it does, what it cost and how long it took."""

import time
from collections.abc import Iterator
from dataclasses import replace

from ralph.core.entries import Record
from ralph.core.events import NOT_ISOLATED, TaskState
from ralph.core.limits import Limits, Spent
from ralph.core.turns import AgentEvent, EventKind
from ralph.documents.hats.definition import show_role
from ralph.view.attention import measure_open_seconds, waits_until
from ralph.view.fold import fold, fold_event, usage_of
from ralph.view.model import RunView, TurnView
from ralph.workflows.loop.report import format_duration

_ACTIVITY_CHARS, _LEAST_ACTIVITY_CHARS = 60, 20
_SHOWN_EVENTS = (EventKind.TOOL, EventKind.PROGRESS)
"""What an agent does now."""


class StatusLine:
    """Follows the view of a run while the engine works in this process."""

    def __init__(self, facts: RunView) -> None:
        self._facts = facts
        self._since = time.time()
        """Since when the run does what it does now."""

    def add_record(self, record: Record) -> None:
        """Take a record of the journal into account."""
        before, self._facts = _name_activity(self._facts), fold(self._facts, record)
        if _name_activity(self._facts) != before:
            self._since = time.time()

    def add_event(self, turn: int, event: AgentEvent) -> None:
        """Take into account what an agent reports."""
        if event.kind in (*_SHOWN_EVENTS, EventKind.TOOL_RESULT, EventKind.USAGE):
            self._facts = fold_event(self._facts, turn, event, time.time())

    def text(self, width: int = 0) -> str:
        """The facts in one line. If `width` is given, the rest is cut or left out, so that cost and time are visible."""
        facts, now = self._facts, time.time()
        before = [*_describe_iteration(facts), *_describe_tasks(facts)]
        if facts.sandbox.startswith(NOT_ISOLATED):
            before.insert(0, NOT_ISOLATED)
        after = [format_duration(facts.spent.active_seconds + measure_open_seconds(facts, now))]
        if cost := _describe_cost(facts):
            after.insert(0, cost)
        if not width:
            return " · ".join([*before, self._describe_activity(_ACTIVITY_CHARS, now), *after])
        room = width - len(" · ".join([*before, "", *after]))
        while before and room < _LEAST_ACTIVITY_CHARS:
            # The first is said elsewhere, too: the start of the run says that it is not isolated.
            room += len(f"{before.pop(0)} · ")
        parts = [*before, self._describe_activity(room, now), *after]
        return " · ".join(part for part in parts if part)

    def _describe_activity(self, room: int, now: float) -> str:
        """What is done now: the tasks, if turns run in parallel. It is kept short: cost and time follow it."""
        facts = self._facts
        if room < _LEAST_ACTIVITY_CHARS:
            return ""
        until = waits_until(facts, now + 1)
        running = facts.running_turns
        if until is not None:
            text, clock = facts.turns[-1].retry_reason, f" ({format_duration(max(0.0, until - now))} to go)"
        elif len(running) > 1:
            names = ", ".join(turn.task or show_role(turn.role) for turn in running)
            return _shorten(names, room - len(" running")) + " running"
        else:
            # Other turns and checks start and end beside a turn: its clock is its own.
            since = running[0].started_at if running else self._since
            text, clock = _name_activity(facts), f" ({format_duration(max(0.0, now - since))})"
            activity = running[0].activity if running else None
            # After its result, a tool has ended, and the agent thinks about it.
            if activity and activity.text and activity.kind in _SHOWN_EVENTS:
                text = f"{_name_turn(running[0])}: {activity.text[:80]}"
        return _shorten(text, min(room - len(clock), _ACTIVITY_CHARS)) + clock


def _name_activity(facts: RunView) -> str:
    """What is in progress."""
    running = facts.running_turns
    if running:
        return f"{_name_turn(running[-1])}: {show_role(running[-1].role)} at work"
    if facts.checking:
        return "checking " + " AND ".join(facts.checking[-1].titles)
    return "deciding" if facts.turns or facts.checks else "starting"


def _name_turn(turn: TurnView) -> str:
    """The task of a turn, or its number if it has none."""
    return turn.task or f"turn {turn.number}"


def _describe_iteration(facts: RunView) -> Iterator[str]:
    """The iteration in progress, or the last."""
    most = facts.allowed.iterations
    if facts.iteration:
        yield f"iteration {facts.iteration}" + (f"/{most}" if most else "")


def _describe_tasks(facts: RunView) -> Iterator[str]:
    """How far the tasks are, if the workflow has tasks."""
    tasks = [task for task in facts.tasks if task.state is not TaskState.CANCELLED]
    if not tasks:
        return
    open_waves = [task.wave for task in tasks if task.state not in (TaskState.DONE, TaskState.FAILED) and task.wave]
    last = max(task.wave for task in tasks)
    if open_waves and last:
        yield f"wave {min(open_waves)}/{last}"
    yield f"{sum(task.state is TaskState.DONE for task in tasks)} of {len(tasks)} done"


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def _describe_cost(facts: RunView) -> str:
    """The cost so far. Before the first report of an agent, there is only the limit; empty if there is none."""
    running, limits = usage_of(facts), facts.allowed
    if facts.spent.turns or running.cost is not None or limits.allow_unpriced:
        spent = replace(facts.spent, cost=facts.spent.cost + (running.cost or 0.0))
        return cost_so_far(spent, limits)
    if running.unpriced is not None:
        return "cost unknown"
    return f"limit ${limits.cost:g}" if limits.cost else ""


def cost_so_far(spent: Spent, limits: Limits) -> str:
    """The money spent, its limit, and whether some of it is unknown."""
    if spent.cost_is_unknown or (limits.allow_unpriced and not spent.turns):
        return "cost unknown"
    known = f"${spent.cost:.2f}" + (f" of ${limits.cost:g}" if limits.cost else "")
    return f"at least {known}" if spent.unpriced_turns else known
