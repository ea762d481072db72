"""The results of runs: `ralph report`, `ralph cost`, `ralph prompt` and `ralph export`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from ralph.app.export import export_html, write_page
from ralph.app.reports import FiledReport, list_reports, read_prompt, read_receipt, read_report
from ralph.app.runs import find_latest_run
from ralph.cli.console import json_option, open_project, print_result, run_argument
from ralph.cli.terminal import print_json, print_text
from ralph.core.codec import parse_time
from ralph.core.errors import UsageError
from ralph.core.events import NOT_ISOLATED
from ralph.core.prompt import count_tokens
from ralph.core.text import count, format_dollars
from ralph.documents.hats.definition import show_role
from ralph.store.files import to_bytes
from ralph.store.journal import advise_to_adopt
from ralph.view.labels import shorten_agent
from ralph.view.model import Sums


@click.command("report")
@run_argument
@click.option("--list", "listing", is_flag=True, help="List all reports.")
@json_option
def report(run: str | None, listing: bool, as_json: bool) -> int:
    """Show the latest completion report of RUN. Default: the latest run that has one."""
    project = open_project()
    if listing:
        reports = list_reports(project, run)
        lines = [f"{_date(one.at)}  {one.run}  {one.outcome:<18} {one.path}" for one in reports]
        rows = [_report_facts(one) for one in reports]
        return print_result(as_json, lines or ["No run here has a report yet."], command="report", reports=rows)
    found = read_report(project, run)
    filed, warning = found.report, []
    if found.doubt:
        warning.append(f"CLAIMED, not verified: {found.doubt}. {advise_to_adopt(filed.run)}\n")
    if found.is_changed:
        warning.append(f"CHANGED after the run: Ralph did not write this text. The run ended as {filed.outcome}.\n")
    if found.sandbox.startswith(NOT_ISOLATED):
        warning.append(f"{found.sandbox[0].upper()}{found.sandbox[1:]}\n")
    if found.since:
        warning.append(f"SINCE THEN, {found.since}.\n")
    lines = [*warning, found.text.rstrip(), f"\nReport: {filed.path}"]
    facts = {
        **_report_facts(filed),
        "doubt": found.doubt,
        "since": found.since,
        "hand_overs": list(found.hand_overs),
        "text": found.text,
    }
    return print_result(as_json, lines, command="report", **facts)


def _report_facts(report: FiledReport) -> dict[str, str]:
    facts = asdict(report)
    del facts["hash"]
    return facts


def _date(at: str) -> str:
    """When a run ended, in local time."""
    try:
        return datetime.fromtimestamp(parse_time(at)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return at


@click.command("cost")
@run_argument
@click.option("--all", "everything", is_flag=True, help="Add up all runs of this project.")
@json_option
def cost(run: str | None, everything: bool, as_json: bool) -> int:
    """Show what RUN cost, by turn, role, agent and model. Default: the latest run.

    Costs are what the agents report. If an agent reports tokens only, Ralph computes the cost from a table of prices
    (`prices:` in ralph.yml). If no price is known, the cost is shown as unknown.
    """
    project = open_project()
    runs = project.runs() if everything else [find_latest_run(project, run)]
    found = read_receipt(project, runs)
    by = {name: groups for name, groups in found.by.items() if everything or name != "run"}
    lines = [] if everything else _turn_lines(found.turns)
    if not everything and len(found.turns) < found.total.turns:
        lines.insert(0, f"({found.total.turns - len(found.turns)} earlier turns are in the sums only)")
    for name, groups in by.items():
        lines.append(f"\nby {name}")
        for key, sums in groups.items():
            label = show_role(key) if name == "role" else key
            lines.append(
                f"  {shorten_agent(label, 40):<42} {count(sums.turns, 'turn'):>11}  {_money(_sums_json(sums))}"
            )
    lines.append(f"\ntotal {'':<38} {count(found.total.turns, 'turn'):>11}  {_money(_sums_json(found.total))}")
    facts: dict[str, Any] = {"runs": [one.id for one in runs], "turns": found.turns, "total": _sums_json(found.total)}
    for name, groups in by.items():
        facts[f"by_{name}"] = {key: _sums_json(sums) for key, sums in groups.items()}
    return print_result(as_json, lines, command="cost", **facts)


def _turn_lines(turns: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each turn, in columns that are as wide as their longest entry."""
    cells = [
        (f"turn {one['turn']}", one["work"], show_role(one["role"]), shorten_agent(one["agent"], 24)) for one in turns
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row, one in zip(cells, turns, strict=True):
        padded = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([*padded, _money(one)]))
    return lines


def _sums_json(sums: Sums) -> dict[str, Any]:
    data = asdict(sums)
    return {**data, "cost": None if sums.cost is None else round(sums.cost, 6)}


def _money(sums: dict[str, Any]) -> str:
    tokens = f"{sums['input_tokens']:>9} in {sums['output_tokens']:>8} out"
    details = [f"{sums['cached_tokens']} cached"] if sums["cached_tokens"] else []
    details += [f"{sums['reasoning_tokens']} reasoning"] if sums["reasoning_tokens"] else []
    if details:
        tokens += f" ({', '.join(details)})"
    missing = sums.get("unpriced_turns", 0)
    if sums["cost"] is None or (missing and not sums["cost"]):
        return f"{tokens}  cost unknown"
    if missing:
        return f"{tokens}  at least {format_dollars(sums['cost'])} ({count(missing, 'turn')} without a price)"
    return f"{tokens}  {format_dollars(sums['cost'])}"


@click.command("prompt")
@run_argument
@click.option("--turn", type=int, help="The number of the turn. Default: the latest.")
@click.option("--parts", "--sections", "only", is_flag=True, help="Show only the parts and their tokens.")
@json_option
def prompt(run: str | None, turn: int | None, only: bool, as_json: bool) -> int:
    """Show the prompt of a turn of RUN as it was sent, with the tokens of each part. Default: the latest run.

    Four characters count as one token. A part with a budget never exceeds it; the prompt says what was left out.
    """
    found = read_prompt(open_project(), run, turn)
    if as_json:
        rows = [asdict(part) for part in found.parts]
        tokens = count_tokens(found.text)
        print_json(command="prompt", run=found.run, turn=found.turn, tokens=tokens, parts=rows, prompt=found.text)
        return 0
    if not only:
        print_text(found.text, wraps=False)
    print_text(f"Turn {found.turn} of {found.run}: about {count_tokens(found.text)} tokens")
    width = max(len(part.name) for part in found.parts)
    for part in found.parts:
        budget = f" of {part.budget}" if part.budget else ""
        print_text(f"  {part.name:<{width}}  {part.tokens:>6}{budget:<9}  {part.purpose}".rstrip())
    return 0


@click.command("export")
@run_argument
@click.option("--html", "as_html", is_flag=True, help="Write one HTML page. This is the only format.")
@click.option("-o", "--output", metavar="FILE", help="The file to write. `-` prints the page. Default: ralph-RUN.html.")
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
            raise UsageError("-o - and --json cannot be used together", todo="use only one of them")
        sys.stdout.buffer.write(to_bytes(export_html(project, chosen)))
        sys.stdout.buffer.flush()
        return 0
    page = write_page(project, chosen, output, force=force)
    lines = [f"Wrote {page.path} ({page.size // 1024 + 1} KB). It opens in any browser, without a network."]
    return print_result(as_json, lines, command="export", run=chosen.id, path=str(page.path), bytes=page.size)
