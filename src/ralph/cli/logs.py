"""`ralph logs`: what happened in a run, and the events that its agents published."""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ralph.app.run_log import POLL_SECONDS, AgentLog, RoutedEvents, follow_lines
from ralph.app.runs import find_latest_run
from ralph.cli.console import clock_time, json_option, note_old_name, one_line, open_project, run_argument
from ralph.cli.render.journal import Renderer, renderer_for
from ralph.cli.terminal import print_json, print_text
from ralph.core.codec import parse_time
from ralph.core.errors import StateError, UsageError
from ralph.core.events import RunEnded
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.outcomes import Outcome
from ralph.core.text import count, shorten
from ralph.core.turns import EventKind
from ralph.documents.agent.events import EventLine, parse_events, topic_matches
from ralph.documents.hats.definition import show_role
from ralph.store.journal import advise_to_adopt, build_record
from ralph.store.runs import Project, RunDir


@click.command("logs")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Follow the run until it ends.")
@click.option("--tools", is_flag=True, help="Also show the agents' thoughts, and the tools that they used.")
@click.option("--output", is_flag=True, help="Also show the last output of agents and checks.")
@click.option("--events", is_flag=True, help="Show only the events that agents published.")
@click.option("--topic", help="With --events: only this topic, or a pattern such as 'build.*'.")
@click.option("--last", type=click.IntRange(min=1), help="With --events: only the last N.", metavar="N")
@json_option
def logs(
    run: str | None,
    follow: bool,
    tools: bool,
    output: bool,
    events: bool,
    topic: str | None,
    last: int | None,
    as_json: bool,
) -> int:
    """Show what happened in RUN. Default: the latest run. With --json, one JSON object per line."""
    if events:
        if tools or output:
            raise UsageError("--events shows only events", todo="omit --tools and --output")
        return _show_events(run, topic or "*", last, follow=follow, as_json=as_json)
    if topic or last:
        raise UsageError("--topic and --last work only with --events", todo="add --events")
    project = open_project()
    chosen = find_latest_run(project, run)
    record = chosen.record()
    renderer = renderer_for(project, record, record.limits, from_the_start=True)
    agents, is_parallel = AgentLog(chosen), record.workflow in SESSION_WORKFLOWS
    screen = _LogScreen()
    for batch in follow_lines(chosen, follow=follow):
        for line in batch:
            if as_json:
                print_json(**line)
                continue
            if (tools or follow) and line.get("type") == "turn.ended":
                _print_all(_event_lines(agents.read_turn(line.get("turn")), renderer, is_parallel=is_parallel), screen)
            _print(line, renderer, screen)
        if follow and not as_json:
            _print_all(_event_lines(agents.read_all(), renderer, is_parallel=is_parallel), screen)
    if output and not as_json:
        _print_outputs(chosen)
    if not as_json and not chosen.alive and (doubt := chosen.find_doubt()):
        print_text(f"\nNOT VERIFIED: {doubt}. {advise_to_adopt(chosen.id)}")
    return 0


class _LogScreen:
    """Prints lines with their time. On a terminal, they have colors and wrap at words."""

    def __init__(self) -> None:
        self._console: Any = None
        if sys.stdout.isatty():
            from rich.console import Console

            self._console = Console(highlight=False, markup=False)

    def print(self, text: str, at: float | None = None) -> None:
        """Print a text. It may have several lines, of which the first has the time."""
        start = f"{clock_time(at) if at is not None else '':<10}"
        if self._console is None or not text:
            print_text(f"{start}{text}" if text else "", wraps=False)
            return
        from ralph.cli.render.live import style_lines

        for part in style_lines(text, self._console.width - len(start)):
            self._console.print(start, part, sep="", end="\n", soft_wrap=True)
            start = " " * len(start)


def _print_all(lines: Iterable[str], screen: _LogScreen) -> None:
    for line in lines:
        screen.print(line)


def _event_lines(
    events: Iterable[tuple[int, dict[str, Any]]], renderer: Renderer, *, is_parallel: bool
) -> Iterator[str]:
    """What agents say and do, as lines. If turns run in parallel, each line begins with the number of its turn."""
    for turn, event in events:
        if event.get("kind") == EventKind.PROGRESS:
            continue  # its line comes from the file in which all agents report
        kind, text, is_error = str(event.get("kind")), str(event.get("text", "")), bool(event.get("is_error"))
        prefix = f"{turn} " if is_parallel else ""
        who = "sub-agent " if event.get("is_sub_agent") else ""
        if line := renderer.agent_line(turn, kind, text, is_error=is_error, prefix=prefix + who):
            yield line


def _print(line: dict[str, Any], renderer: Renderer, screen: _LogScreen) -> None:
    try:
        at = parse_time(line["at"])
        if line["type"] == "turn.progress":
            screen.print(f"turn {line['turn']} ({show_role(line['role'])}) reports: {one_line(line['message'])}", at)
            return
        record = build_record(line, "the journal")
    except (KeyError, ValueError, TypeError, AttributeError, StateError):
        print_text(f"?         not written by Ralph: {shorten(str(line), 120)}")
        return
    for text in renderer.lines(record):
        screen.print(text, at)
    if isinstance(record.entry, RunEnded):
        screen.print(f"ended: {record.entry.outcome}, {record.entry.reason}", at)
        # The reason of an unproven run is its evidence.
        if record.entry.evidence and record.entry.outcome is not Outcome.UNPROVEN:
            screen.print(f"evidence: {record.entry.evidence.sentence}", at)


def _print_outputs(run: RunDir) -> None:
    latest = (
        sorted((run.path / "turns").glob("*"))[-1:]
        + sorted((run.path / "checks").glob("*"), key=lambda p: p.stat().st_mtime)[-1:]
    )
    for directory in latest:
        for name in ("stdout", "stderr"):
            _print_tail(directory / name, run.path)


def _print_tail(path: Path, base: Path) -> None:
    if path.exists() and path.stat().st_size:
        print_text(f"\n--- {path.relative_to(base)}")
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8000))
            print_text(file.read().decode(errors="replace"), wraps=False)


@click.command("events", hidden=True)
@click.option("--run", "wanted", help="The run (the latest one).")
@click.option("--topic", "pattern", default="*", help="Only these: a topic, or a pattern such as build.*.")
@click.option("--last", type=click.IntRange(min=1), help="Only the last N.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run ends.")
@json_option
def events(wanted: str | None, pattern: str, last: int | None, follow: bool, as_json: bool) -> int:
    """The old name of `ralph logs --events`."""
    note_old_name("events", "logs --events")
    return _show_events(wanted, pattern, last, follow=follow, as_json=as_json)


def _show_events(wanted: str | None, pattern: str, last: int | None, *, follow: bool, as_json: bool) -> int:
    """Print the events of a run, the oldest first, for users or as JSON Lines."""
    project = open_project()
    run = find_latest_run(project, wanted)
    event = None
    for event in _matching(_events(project, run, follow=follow), pattern, last):
        if as_json:
            print_json(**event.row)
        else:
            print_text(_event_line(event))
    if event is None and not as_json:
        what = "No events" if pattern == "*" else f"No events match {pattern}"
        print_text(f"{what} in run {run.id}. `ralph logs {run.id}` shows what happened.")
    return 0


def _matching(events: Iterator[list[EventLine]], pattern: str, last: int | None) -> Iterator[EventLine]:
    """The events of the pattern: the last ones of those already published, and all later ones."""
    for number, batch in enumerate(events):
        fitting = [event for event in batch if topic_matches(pattern, event.topic)]
        yield from fitting[-last:] if last and number == 0 else fitting


def _events(project: Project, run: RunDir, *, follow: bool) -> Iterator[list[EventLine]]:
    """The events so far. With `follow`, also later ones, until the run ends."""
    routed = RoutedEvents(project, run)
    read: dict[Path, int] = {}
    while True:
        ending = not follow or not run.alive
        batch: list[EventLine] = []
        if run.record().workflow == "hats":
            batch, unknown = routed.read()
            if unknown:
                what = (
                    f"{count(unknown, 'line')} of {routed.path} left out: not in the journal, so not written by Ralph"
                )
                print_text(what, err=True)
        else:
            for path in sorted((run.path / "turns").glob("*/outbox/events.jsonl")):
                batch += _read_outbox(path, read)
        yield batch
        if ending:
            return
        time.sleep(POLL_SECONDS)


def _read_outbox(path: Path, read: dict[Path, int]) -> list[EventLine]:
    """The new events that a turn left."""
    with path.open("rb") as file:
        file.seek(read.get(path, 0))
        events, broken, size = parse_events(file.read())
    read[path] = read.get(path, 0) + size
    for _, why, line in broken:
        print_text(f"{path} has a line that is not an event ({why}): {shorten(line, 120)}", err=True)
    return events


def _event_line(event: EventLine) -> str:
    source = show_role(one_line(event.row.get("hat") or event.row.get("source") or ""))
    return f"{one_line(event.ts)[11:19] or '-':<8}  {event.topic:<24} {f'[{source}] ' if source else ''}{one_line(event.text)}"
