"""`ralph logs`: what happened in a run."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ralph.cli.console import clock_time, here, json_option, latest_run, one_line
from ralph.cli.render.choose import renderer_for
from ralph.cli.render.journal import Renderer
from ralph.core.codec import from_plain
from ralph.core.entries import NAMES, Record
from ralph.core.errors import StateError, UsageError
from ralph.core.events import RunEnded
from ralph.store.journal import moment, read_raw
from ralph.store.runs import RunDir


@click.command("logs")
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow the run until it ends.")
@click.option("--tools", is_flag=True, help="Also show what the agents thought and which tools they used.")
@click.option("--output", is_flag=True, help="Also show the last output of agents and checks.")
@click.option("--events", is_flag=True, help="Only the events that agents published.")
@click.option("--topic", help="With --events: only this topic, or a pattern such as 'build.*'.")
@click.option("--last", type=click.IntRange(min=1), help="With --events: only the last so many.")
@json_option
def command(
    run: str | None,
    follow: bool,
    tools: bool,
    output: bool,
    events: bool,
    topic: str | None,
    last: int | None,
    as_json: bool,
) -> int:
    """Show what happened in RUN, for users or as JSON Lines. Default: the latest run."""
    if events:
        from ralph.cli.events import show_events

        if tools or output:
            raise UsageError("--events shows nothing but events", todo="leave --tools and --output out")
        return show_events(run, topic or "*", last, follow=follow, as_json=as_json)
    if topic or last:
        raise UsageError("--topic and --last are for events", todo="give --events with them")
    project = here()
    chosen = latest_run(project, run)
    record = chosen.record()
    renderer = renderer_for(project, record, record.limits, from_the_start=True)
    for line in _lines(chosen, follow):
        if as_json:
            click.echo(json.dumps(line, ensure_ascii=False))
        else:
            if tools and line.get("type") == "turn.ended":
                _print_tools(chosen, line.get("turn"))
            _print(line, renderer)
    if output and not as_json:
        _print_outputs(chosen)
    return 0


def _lines(run: RunDir, follow: bool) -> Iterator[dict[str, Any]]:
    """The lines of the journal and of the feed; when following, those to come as well, until the run has ended."""
    read = {run.path / "journal.jsonl": 0, run.path / "progress.jsonl": 0}
    while True:
        ending = follow and not run.alive
        lines: list[dict[str, Any]] = []
        for path, offset in read.items():
            if path.exists():
                for behind, line in read_raw(path, offset):
                    read[path] = behind
                    lines.append(line)
        yield from sorted(lines, key=lambda line: str(line.get("at", ""))[:23])
        if not follow or ending:
            return
        time.sleep(0.1)


def _print(line: dict[str, Any], renderer: Renderer) -> None:
    try:
        at = moment(line["at"])
        if line["type"] == "turn.progress":
            click.echo(f"{clock_time(at)}  turn {line['turn']} ({line['role']}) says: {one_line(line['message'])}")
            return
        record = Record(line["seq"], at, from_plain(NAMES[line["type"]], line))
    except (KeyError, ValueError, TypeError, AttributeError, StateError):
        click.echo(f"?         a line that is not Ralph's: {str(line)[:120]}")
        return
    for text in renderer.lines(record):
        click.echo(f"{clock_time(at)}  {text}" if text else "")
    if isinstance(record.entry, RunEnded):
        click.echo(f"{clock_time(at)}  ended: {record.entry.outcome}, {record.entry.reason}")


_SHOWN = ("thinking", "tool", "tool-result", "denied", "retry", "warning")


def _print_tools(run: RunDir, turn: object) -> None:
    """Print what the agent of a turn did, one line each; of what came of its tools only failures."""
    for path in sorted((run.path / "turns").glob(f"{turn:05d}-*/events.jsonl") if isinstance(turn, int) else ()):
        for _, event in read_raw(path):
            kind, text = event.get("kind"), one_line(str(event.get("text", "")))
            if kind == "tool-result" and not event.get("is_error"):
                continue
            if kind in _SHOWN and text:
                shown = "failed" if kind == "tool-result" else kind
                who = "sub-agent " if event.get("is_sub_agent") else ""
                click.echo(f"            {who}{shown}: {text}")


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
        click.echo(f"\n--- {path.relative_to(base)}")
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8000))
            click.echo(file.read().decode(errors="replace"))
