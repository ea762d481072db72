"""Looking on while a run works: a live view on a terminal, plain lines elsewhere."""

import os
import sys
import time
from typing import Any, TextIO

from ralph.cli.render.journal import Renderer
from ralph.core.entries import ChecksStarted, Record, TurnStarted
from ralph.core.events import ChecksEnded, Landed, RunEnded, TurnEnded
from ralph.core.limits import Limits, Spent
from ralph.core.stream import AgentEvent, Kind
from ralph.core.turns import Turn
from ralph.engine.ports import Observer
from ralph.workflows.loop.report import duration


class PlainView(Observer):
    """One line for each thing that happens."""

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

    def recorded(self, record: Record) -> None:
        """Print what was journaled."""
        if isinstance(record.entry, Landed):
            self.landed = record.entry
        if isinstance(record.entry, RunEnded):
            self.ended = record.entry
            self.documents = list(record.documents)
        for line in self._renderer.lines(record):
            self._line(line)

    def told(self, turn: Turn, event: AgentEvent) -> None:
        """Print what the agent says."""
        if event.kind in (Kind.TEXT, Kind.LIMIT, Kind.ERROR) and event.text:
            who = f"{turn.number} " if turn.request.workspace else ""
            self._line(f"  {who}| {event.text.splitlines()[0][:200]}")

    def _line(self, line: str) -> None:
        try:
            self._out.write(line + "\n")
            self._out.flush()
        except OSError:
            self._out = open(os.devnull, "w")  # noqa: SIM115 - nobody reads any more; the run goes on


class LiveView(PlainView):
    """The same lines, above one that says what is going on right now."""

    def __init__(self, renderer: Renderer, limits: Limits, out: TextIO) -> None:
        super().__init__(renderer, limits, out)
        from rich.console import Console
        from rich.live import Live

        self._doing = "starting"
        self._since = time.time()
        self._until: float | None = None
        """When what is waited for is over."""
        self._spent = Spent()
        self._console = Console(file=out, highlight=False, markup=False)
        self._live: Any = Live(get_renderable=self._now, console=self._console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def recorded(self, record: Record) -> None:
        """Print what was journaled, and keep the last line true."""
        match record.entry:
            case TurnStarted(role=role, turn=turn):
                self._do(f"turn {turn}: {role} at work")
            case ChecksStarted(checks=checks):
                self._do("checking " + " AND ".join(checks))
            case TurnEnded(spent=spent, retry_at=at, retry_reason=why) if at is not None and at > time.time() + 1:
                self._spent = spent
                self._do(why, until=at)
            case TurnEnded(spent=spent) | ChecksEnded(spent=spent):
                self._spent = spent
                self._do("deciding")
        super().recorded(record)

    def told(self, turn: Turn, event: AgentEvent) -> None:
        """Show what the agent says, and what it tries."""
        if event.kind is Kind.TOOL and event.text:
            self._doing = f"turn {turn.number}: {event.text[:80]}"
        super().told(turn, event)

    def _line(self, line: str) -> None:
        try:
            self._console.print(line, soft_wrap=True)
        except OSError:
            self._console.file = open(os.devnull, "w")  # noqa: SIM115 - the terminal is gone; the run goes on

    def _do(self, what: str, until: float | None = None) -> None:
        self._doing, self._since, self._until = what, time.time(), until

    def _clock(self) -> str:
        if self._until is not None:
            return f"{duration(max(0.0, self._until - time.time()))} to go"
        return duration(time.time() - self._since)

    def _now(self) -> Any:
        from rich.spinner import Spinner

        most = self._limits.iterations
        facts = [
            f"iterations {self._spent.iterations}" + (f"/{most}" if most else ""),
            f"{self._doing} ({self._clock()})",
            f"{duration(self._spent.active_seconds)} active",
            cost_so_far(self._spent, self._limits),
        ]
        return Spinner("dots", " · ".join(facts))


def cost_so_far(spent: Spent, limits: Limits) -> str:
    """The money spent and its limit; what is not known is said."""
    may_be_unpriced = bool(spent.turns) or limits.allow_unpriced
    if may_be_unpriced and spent.unpriced_turns == spent.turns:
        return "cost unknown"
    known = f"${spent.cost:.4f}" + (f"/${limits.cost:g}" if limits.cost else "")
    return f"at least {known}" if spent.unpriced_turns else known


def view_for(renderer: Renderer, limits: Limits, *, as_json: bool) -> PlainView:
    """The view that fits where the output goes; with --json, standard output is left to the result."""
    out = sys.stderr if as_json else sys.stdout
    return LiveView(renderer, limits, out) if out.isatty() else PlainView(renderer, limits, out)
