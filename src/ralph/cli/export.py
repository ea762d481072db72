"""`ralph export`: a run as one page for others."""

import sys
from pathlib import Path

import click

from ralph.app.export import export_html
from ralph.app.runs import find_latest_run
from ralph.cli.console import json_option, open_project, print_result, run_argument
from ralph.core.errors import UsageError
from ralph.store.files import to_bytes, write_atomic


@click.command("export")
@run_argument
@click.option("--html", "as_html", is_flag=True, help="Write one HTML page. This is the only format.")
@click.option("-o", "--output", metavar="FILE", help="The file. - prints the page. Default: ralph-RUN.html.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
def export(run: str | None, as_html: bool, output: str | None, force: bool, as_json: bool) -> int:
    """Write RUN as one page: evidence, findings, diff, timeline and cost. Default: the latest run.

    The page needs no network, no script and no other file. It contains code, what the agents answered, and the output
    of checks: read it before you share it.
    """
    if not as_html:
        raise UsageError("there is no format", todo="add --html")
    project = open_project()
    chosen = find_latest_run(project, run)
    page = to_bytes(export_html(project, chosen))
    if output == "-":
        if as_json:
            raise UsageError("-o - prints the page, so there is no place for JSON", todo="leave out --json or -o -")
        sys.stdout.buffer.write(page)
        sys.stdout.buffer.flush()
        return 0
    place = Path(output or f"ralph-{chosen.id}.html")
    if place.is_dir():
        raise UsageError(f"{place} is a directory", todo=f"name a file in it: -o {place / f'ralph-{chosen.id}.html'}")
    if not place.parent.is_dir():
        raise UsageError(f"there is no directory {place.parent}", todo="create it, or name another file")
    if place.exists() and not force:
        raise UsageError(f"{place} exists already", todo="add --force to replace it, or name another file with -o")
    write_atomic(place, page)
    lines = [f"Wrote {place} ({len(page) // 1024 + 1} KB). It opens in any browser, without a network."]
    return print_result(as_json, lines, command="export", run=chosen.id, path=str(place), bytes=len(page))
