"""Watching a run while it works: one line for each event that matters, and on a terminal a status line below them."""

import os
import re
import sys
import textwrap
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ralph.app.engine import Observer
from ralph.cli.render.journal import Renderer, agent_event_line
from ralph.core.codec import from_plain
from ralph.core.entries import ChecksStarted, Record, TurnStarted
from ralph.core.events import ChecksEnded, Landed, RunEnded, TaskChanged, TaskState, TurnEnded
from ralph.core.limits import Limits, Spent, Usage
from ralph.core.turns import AgentEvent, EventKind, Turn
from ralph.store.journal import read_raw
from ralph.workflows.loop.report import duration

if TYPE_CHECKING:
    from rich.text import Text

_ACTIVITY_CHARS, _LEAST_ACTIVITY_CHARS = 60, 20
_LINE_START = re.compile(r"\s*(?:\d+ )?(?:[|>~✓✗-] |! (?:\w+: )?)")
"""What stands before the text of a line: spaces and a symbol."""
_STYLES = (
    (re.compile(r"  PASS |✓ |Result: PASS|Status: SUCCESS"), "green"),
    (re.compile(r"  FAIL |  \?\?\?\? |✗ |Result: FAIL|MISSING|  ERROR |Status: (?!SUCCESS)"), "red"),
    (re.compile(r"note: |  warning: |  WARNING |  DENIED|QUESTION "), "yellow"),
    (re.compile(r"  (?:\d+ )?! "), "red"),
    (re.compile(r"  (?:\d+ )?[|>~] "), "dim"),
    (re.compile(r"turn \d+: |Ralph Loop: |Session \S+: |Run \S+: "), "bold"),
)
"""How lines are styled on a terminal, by how they begin."""
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""What turns before the status line."""


def style_line(line: str) -> "Text":
    """A line with the color that says what it is about. The symbols in it say the same without color."""
    from rich.text import Text

    for pattern, style in _STYLES:
        if pattern.match(line):
            return Text(line, style=style)
    return Text(line)


class PlainView(Observer):
    """One line for each event that matters."""

    def __init__(self, renderer: Renderer, limits: Limits, out: TextIO) -> None:
        self._renderer, self._limits = renderer, limits
        self._out = out
        self.ended: RunEnded | None = None
        self.landed: Landed | None = None
        self.documents: list[str] = []

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to undo."""

    def on_record(self, record: Record) -> None:
        """Print what was journaled."""
        if isinstance(record.entry, Landed):
            self.landed = record.entry
        if isinstance(record.entry, RunEnded):
            self.ended = record.entry
            self.documents = list(record.documents)
        for line in self._renderer.lines(record):
            self._line(line)

    def on_agent_event(self, turn: Turn, event: AgentEvent) -> None:
        """Print what the agent says and which tools it uses."""
        prefix = f"{turn.number} " if turn.request.workspace else ""
        if line := agent_event_line(event.kind, event.text, is_error=event.is_error, prefix=prefix):
            self._line(line)

    def remember(self, task: TaskChanged) -> None:
        """Take into account, without a line, where a task stood when the run was last at work."""
        self._renderer.lines(Record(0, 0.0, task))

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines that are not about an event, such as the banner at the end."""
        for line in lines:
            self._line(line)

    def _line(self, line: str) -> None:
        try:
            self._out.write(line + "\n")
            self._out.flush()
        except OSError:
            self._out = open(os.devnull, "w")  # noqa: SIM115 - the reader is gone; the run continues


@dataclass
class StatusLine:
    """What a run is doing now, folded from its journal."""

    renderer: Renderer
    limits: Limits
    spent: Spent = field(default_factory=Spent)
    doing: str = "starting"
    since: float = field(default_factory=time.time)
    until: float | None = None
    """When what is waited for is over."""
    tasks: dict[str, TaskChanged] = field(default_factory=dict)
    turns: dict[int, str] = field(default_factory=dict)
    """What the running turns are for, by number."""
    is_iterating: bool = False
    """Whether a turn is under way that will count as an iteration."""
    active_since: float | None = None
    """Since when something has run that is not in `spent` yet."""
    reported_cost: dict[int, float] = field(default_factory=dict)
    """What the running turns have cost so far, by number."""

    def apply(self, record: Record) -> None:
        """Take a record of the journal into account."""
        match record.entry:
            case TurnStarted(turn=turn, key=key, role=role, counts=counts):
                self.is_iterating = counts
                self.active_since = self.active_since or time.time()
                self.turns[turn] = self.renderer.name_task(key) or role
                self._do(f"turn {turn}: {role} at work")
            case ChecksStarted(checks=checks):
                self.active_since = self.active_since or time.time()
                self._do("checking " + " AND ".join(checks))
            case TurnEnded(turn=turn, spent=spent, retry_at=at, retry_reason=why):
                self.turns.pop(turn, None)
                self.reported_cost.pop(turn, None)
                self.is_iterating = self.is_iterating and at is not None
                self._account(spent)
                waits = at is not None and at > time.time() + 1
                self._do(why if waits else "deciding", until=at if waits else None)
            case ChecksEnded(spent=spent):
                self._account(spent)
                self._do("deciding")
            case TaskChanged(task=task):
                self.tasks[task] = record.entry

    def add_usage(self, turn: int, usage: Usage) -> None:
        """Take into account what a running turn reports to have cost."""
        if usage.cost is not None and turn in self.turns:
            self.reported_cost[turn] = self.reported_cost.get(turn, 0.0) + usage.cost

    def text(self, width: int = 0) -> str:
        """The facts in one line: how far it is, who works, what it cost, and how long it has taken.

        If `width` is given, the activity is cut, so that cost and time are visible.
        """
        under_way = time.time() - self.active_since if self.active_since else 0.0
        spent = replace(self.spent, cost=self.spent.cost + sum(self.reported_cost.values()))
        before = [*self._iteration(), *self._progress()]
        after = [cost_so_far(spent, self.limits), duration(self.spent.active_seconds + under_way)]
        room = width - len(" · ".join([*before, "", *after])) if width else _ACTIVITY_CHARS
        return " · ".join([*before, self._activity(max(room, _LEAST_ACTIVITY_CHARS)), *after])

    def _account(self, spent: Spent) -> None:
        """Take the counters of the journal, which contain what has ended. Turns that still run count from now on."""
        self.spent = spent
        self.active_since = time.time() if self.turns else None

    def _do(self, what: str, until: float | None = None) -> None:
        self.doing, self.since, self.until = what, time.time(), until

    def _iteration(self) -> Iterable[str]:
        """The iteration under way, or the last."""
        number, most = self.spent.iterations + self.is_iterating, self.limits.iterations
        if number:
            yield f"iteration {number}" + (f"/{most}" if most else "")

    def _progress(self) -> Iterable[str]:
        """How far the tasks are, if the workflow has tasks."""
        tasks = [task for task in self.tasks.values() if task.state is not TaskState.CANCELLED]
        if not tasks:
            return
        open_waves = [task.wave for task in tasks if task.state not in (TaskState.DONE, TaskState.FAILED) and task.wave]
        last = max(task.wave for task in tasks)
        if open_waves and last:
            yield f"wave {min(open_waves)}/{last}"
        yield f"{sum(task.state is TaskState.DONE for task in tasks)} of {len(tasks)} done"

    def _activity(self, room: int) -> str:
        """What is done now: the tasks, if turns run in parallel. It is kept short: cost and time follow it."""
        if len(self.turns) > 1 and self.until is None:
            return _shorten(", ".join(self.turns.values()), room - len(" running")) + " running"
        clock = f" ({self._clock()})"
        return _shorten(self.doing, min(room - len(clock), _ACTIVITY_CHARS)) + clock

    def _clock(self) -> str:
        if self.until is not None:
            return f"{duration(max(0.0, self.until - time.time()))} to go"
        return duration(time.time() - self.since)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def wrap_line(line: str, width: int) -> list[str]:
    """A line in parts of at most `width` characters, cut at spaces. Later parts are indented below the text of the first."""
    if len(line) <= width:
        return [line]
    start = _LINE_START.match(line)
    indent = " " * (start.end() if start else len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, tabsize=4
    )


class LiveView(PlainView):
    """The same lines, above one line that shows the current activity."""

    def __init__(self, renderer: Renderer, limits: Limits, out: TextIO) -> None:
        super().__init__(renderer, limits, out)
        from rich.console import Console
        from rich.live import Live

        self._status = StatusLine(renderer, limits)
        self._console = Console(file=out, highlight=False, markup=False)
        self._live: Any = Live(get_renderable=self._now, console=self._console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def remember(self, task: TaskChanged) -> None:
        """The same, also for the status line."""
        self._status.tasks[task.task] = task
        super().remember(task)

    def on_record(self, record: Record) -> None:
        """Print what was journaled, and keep the last line true."""
        self._status.apply(record)
        super().on_record(record)

    def on_agent_event(self, turn: Turn, event: AgentEvent) -> None:
        """Show the agent's text, and its current tool."""
        if event.kind is EventKind.USAGE and event.usage:
            self._status.add_usage(turn.number, event.usage)
        if event.kind is EventKind.TOOL and event.text:
            self._status.doing = f"turn {turn.number}: {event.text[:80]}"
        super().on_agent_event(turn, event)

    def _line(self, line: str) -> None:
        from rich.text import Text

        parts = wrap_line(line, self._console.width)
        styled = style_line(line)
        try:
            for part in parts:
                self._console.print(Text(part, style=styled.style))
        except OSError:
            self._console.file = open(os.devnull, "w")  # noqa: SIM115 - the terminal is gone; the run continues

    def _now(self) -> Any:
        from rich.text import Text

        frame = _FRAMES[int(time.monotonic() * 10) % len(_FRAMES)]
        text = self._status.text(self._console.width - len("⠋ "))
        return Text(f"{frame} {text}", no_wrap=True, overflow="ellipsis")


def cost_so_far(spent: Spent, limits: Limits) -> str:
    """The money spent, its limit, and whether some of it is unknown."""
    may_be_unpriced = bool(spent.turns) or limits.allow_unpriced
    if may_be_unpriced and spent.unpriced_turns == spent.turns:
        return "cost unknown"
    known = f"${spent.cost:.2f}" + (f" of ${limits.cost:g}" if limits.cost else "")
    return f"at least {known}" if spent.unpriced_turns else known


def view_for(renderer: Renderer, limits: Limits, journal: Path, *, as_json: bool) -> PlainView:
    """The view that fits where the output goes; with --json, standard output is left to the result."""
    out = sys.stderr if as_json else sys.stdout
    view = LiveView(renderer, limits, out) if out.isatty() else PlainView(renderer, limits, out)
    for _, line in read_raw(journal) if journal.exists() else ():
        if line.get("type") == "task.changed":
            view.remember(from_plain(TaskChanged, line))
    return view
