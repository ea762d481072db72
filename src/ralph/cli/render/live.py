"""Watching a run while it works: one line for each event that matters, and on a terminal a status line below them."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from ralph.app.run_engine import Observer
from ralph.cli.render.journal import Renderer
from ralph.cli.render.status_line import StatusLine
from ralph.cli.terminal import wrap_line
from ralph.core.entries import Record
from ralph.core.events import Landed, RunEnded, TaskChanged
from ralph.core.text import clean_for_terminal
from ralph.core.turns import AgentEvent, Turn
from ralph.view.model import RunView

if TYPE_CHECKING:
    from rich.console import Console, ConsoleRenderable
    from rich.live import Live
    from rich.text import Text

_STYLES = (
    (re.compile(r"  PASS |✓ |Result: PASS|Status: SUCCESS|ended: success"), "green"),
    (re.compile(r"  FAIL |  \?\?\?\? |✗ |Result: FAIL|CHANGED: |  ERROR |Status: (?!SUCCESS)|ended: "), "red"),
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


def style_lines(text: str, width: int) -> "list[Text]":
    """A text in lines that fit a terminal, each with the color that says what it is about."""
    from rich.text import Text

    styled: list[Text] = []
    for line in clean_for_terminal(text).split("\n"):
        style = style_line(line).style
        styled += [Text(part, style=style) for part in wrap_line(line, width)]
    return styled


class PlainView(Observer):
    """One line for each event that matters."""

    def __init__(self, renderer: Renderer, facts: RunView, out: TextIO) -> None:
        self._renderer = renderer
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
            return  # the end of the screen says where the work is
        if isinstance(record.entry, RunEnded):
            self.ended = record.entry
            self.documents = list(record.documents)
        for line in self._renderer.lines(record):
            self._line(line)

    def on_agent_event(self, turn: Turn, event: AgentEvent) -> None:
        """Print what the agent says and which tools it uses."""
        prefix = f"{turn.number} " if turn.request.worktree else ""
        line = self._renderer.agent_line(turn.number, event.kind, event.text, is_error=event.is_error, prefix=prefix)
        if line:
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
            self._out.write(clean_for_terminal(line) + "\n")
            self._out.flush()
        except OSError:
            self._out = open(os.devnull, "w")  # noqa: SIM115 - the reader is gone; the run continues


class LiveView(PlainView):
    """The same lines, above one line that shows the current activity."""

    def __init__(self, renderer: Renderer, facts: RunView, out: TextIO) -> None:
        super().__init__(renderer, facts, out)
        from rich.console import Console

        self._status = StatusLine(facts)
        self._console = Console(file=out, highlight=False, markup=False)
        self._live = _make_live(self._console, self._now)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def on_record(self, record: Record) -> None:
        """Print what was journaled, and keep the last line true."""
        self._status.add_record(record)
        super().on_record(record)

    def on_agent_event(self, turn: Turn, event: AgentEvent) -> None:
        """Show the agent's text, and its current tool."""
        self._status.add_event(turn.number, event)
        super().on_agent_event(turn, event)

    def _line(self, line: str) -> None:
        try:
            for part in style_lines(line, self._console.width):
                # A long command stays on one line, so that it can be copied.
                self._console.print(part, soft_wrap=True)
        except OSError:
            self._console.file = open(os.devnull, "w")  # noqa: SIM115 - the terminal is gone; the run continues

    def _now(self) -> "Text":
        from rich.text import Text

        frame = _FRAMES[int(time.monotonic() * 10) % len(_FRAMES)]
        width = self._console.width - 1  # no terminal wraps a shorter line
        text = clean_for_terminal(self._status.text(width - len("⠋ ")))
        line = Text(f"{frame} {text}", no_wrap=True, end="")
        line.truncate(width, overflow="ellipsis")
        return line


def _make_live(console: "Console", render: "Callable[[], Text]") -> "Live":
    """What draws the status line below the lines that are printed, and draws it again as time passes.

    The cursor waits at the beginning of the status line, and everything from there on is erased before it is drawn again. So
    nothing of it stays if the window becomes smaller and the terminal wraps the line, or if it prints `^C` into it.
    """
    from rich.control import Control
    from rich.live import Live
    from rich.segment import ControlType, Segment

    to_start, erase = Control(ControlType.CARRIAGE_RETURN), Control()
    erase.segment = Segment("\r\x1b[J", None, [(ControlType.CARRIAGE_RETURN,)])

    class StatusLive(Live):
        def process_renderables(self, renderables: "list[ConsoleRenderable]") -> "list[ConsoleRenderable]":
            if not console.is_interactive:
                return renderables
            if not self.is_started:
                return [erase, *renderables]
            return [erase, *renderables, render(), to_start]

    return StatusLive(get_renderable=render, console=console, refresh_per_second=4, transient=True)


def view_for(renderer: Renderer, facts: RunView, *, as_json: bool) -> PlainView:
    """The view that fits where the output goes; with --json, standard output is left to the result."""
    out = sys.stderr if as_json else sys.stdout
    view = LiveView(renderer, facts, out) if out.isatty() else PlainView(renderer, facts, out)
    for task in facts.tasks:
        view.remember(TaskChanged(task.id, task.title, task.state, wave=task.wave))
    renderer.running.update(turn.number for turn in facts.running_turns)
    renderer.messages.update((signal.id, " ".join(signal.message.split())) for signal in facts.signals)
    return view
