"""`ralph export`: a run as one page for others."""

import sys

import click

from ralph.app.export import export_html, write_page
from ralph.app.runs import find_latest_run
from ralph.cli.console import json_option, open_project, print_result, run_argument
from ralph.core.errors import UsageError
from ralph.store.files import to_bytes


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
    if output == "-":
        if as_json:
            raise UsageError("-o - prints the page, so there is no place for JSON", todo="leave out --json or -o -")
        sys.stdout.buffer.write(to_bytes(export_html(project, chosen)))
        sys.stdout.buffer.flush()
        return 0
    page = write_page(project, chosen, output, force=force)
    lines = [f"Wrote {page.path} ({page.size // 1024 + 1} KB). It opens in any browser, without a network."]
    return print_result(as_json, lines, command="export", run=chosen.id, path=str(page.path), bytes=page.size)
