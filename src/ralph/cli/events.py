"""`ralph logs --events`: what agents published."""

import time
from collections.abc import Iterator
from pathlib import Path

import click

from ralph.cli.console import here, json_option, note_old_name, one_line
from ralph.core.errors import UsageError
from ralph.documents.agent.events import Event, matches, parse
from ralph.documents.agent.json_text import dumps
from ralph.store.runs import Project, RunDir

POLL = 0.2


@click.command("events", hidden=True)
@click.option("--run", "wanted", help="The run (the latest one).")
@click.option("--topic", "pattern", default="*", help="Only these: a topic, or a pattern such as build.*.")
@click.option("--last", type=click.IntRange(min=1), help="Only the last so many.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@json_option
def command(wanted: str | None, pattern: str, last: int | None, follow: bool, as_json: bool) -> int:
    """The old name of `ralph logs --events`."""
    note_old_name("events", "logs --events")
    return show_events(wanted, pattern, last, follow=follow, as_json=as_json)


def show_events(wanted: str | None, pattern: str, last: int | None, *, follow: bool, as_json: bool) -> int:
    """Print the events of a run, the oldest first, for users or as JSON Lines."""
    project = here()
    runs = project.runs()
    if not wanted and not runs:
        raise UsageError("there is no run yet", where=str(project.root), todo="start one with `ralph loop`")
    run = project.run(wanted) if wanted else runs[-1]
    event = None
    for event in _latest(_events(project, run, follow=follow), pattern, last):
        click.echo(dumps(event.row) if as_json else _line(event))
    if event is None and not as_json:
        what = "Nothing" if pattern == "*" else f"Nothing that matches {pattern}"
        click.echo(f"{what} was published in run {run.id}; `ralph logs {run.id}` shows what happened.")
    return 0


def _latest(events: Iterator[list[Event]], pattern: str, last: int | None) -> Iterator[Event]:
    """Those of the pattern: the last ones of those that are there, and all that come."""
    for number, batch in enumerate(events):
        fitting = [event for event in batch if matches(pattern, event.topic)]
        yield from fitting[-last:] if last and number == 0 else fitting


def _events(project: Project, run: RunDir, *, follow: bool) -> Iterator[list[Event]]:
    """What is there now, then, when following, what comes until the run has ended."""
    read: dict[Path, int] = {}
    while True:
        ending = not follow or not run.alive
        batch: list[Event] = []
        for path in _files(project, run):
            with path.open("rb") as file:
                file.seek(read.get(path, 0))
                events, broken, size = parse(file.read())
            read[path] = read.get(path, 0) + size
            batch += events
            for _, why, line in broken:
                click.echo(f"{path} has a line that is no event ({why}): {line[:120]}", err=True)
        yield batch
        if ending:
            return
        time.sleep(POLL)


def _files(project: Project, run: RunDir) -> list[Path]:
    """The events of the whole run where its workflow routes them, else those that each turn left."""
    if run.record().workflow == "hats":
        routed = project.root / ".ralph" / f"events-{run.id}.jsonl"
        return [routed] if routed.is_file() else []
    return sorted((run.path / "turns").glob("*/outbox/events.jsonl"))


def _line(event: Event) -> str:
    source = one_line(event.row.get("hat") or event.row.get("source") or "")
    return f"{one_line(event.ts)[11:19] or '-':<8}  {event.topic:<24} {f'[{source}] ' if source else ''}{one_line(event.text)}"
