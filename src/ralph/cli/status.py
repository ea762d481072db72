"""`ralph status`: the runs of this project, those that need you first; or everything about one run."""

import shutil
import sys
import time
from typing import Any

import click

from ralph.app.views import RunList, open_view, read_run_list
from ralph.cli.console import json_option, one_line, open_project, print_result, run_argument
from ralph.cli.terminal import wrap_line
from ralph.core.events import NOT_ISOLATED
from ralph.core.text import count, shorten
from ralph.store.journal import advise_to_adopt
from ralph.view.rows import GROUPS, NeedKind, RunRow, Tier

_MAX_FAILED, _MAX_DONE = 10, 5
"""How many stopped and how many finished runs are shown without --all."""
_INDENT = " " * 20


@click.command("status")
@run_argument
@click.option("--all", "everything", is_flag=True, help="Show all runs.")
@json_option
def status(run: str | None, everything: bool, as_json: bool) -> int:
    """Show the runs of this project: first those that need you, then working, waiting and done runs. Or show one RUN."""
    project = open_project()
    if run:
        chosen = project.run(run)
        view = open_view(project, chosen)
        # The whole view is imported only if it is shown.
        from ralph.cli.render.run import view_lines
        from ralph.view.attention import row_of
        from ralph.view.json_form import to_json

        row = row_of(view)
        lines = [*_row_lines(row, indent="  ").splitlines(), *view_lines(view)]
        facts = {"runs": [_row_json(row)], "view": to_json(view)}
        return print_result(as_json, lines, command="status", root=str(project.root), **facts)
    runs = read_run_list(project)
    shown = runs.decode() if everything else _choose(runs)
    lines = _list_lines(shown)
    if not shown:
        todo = "Next:   ralph loop \"TASK\" --until '`COMMAND` passes' --agent-command PROGRAM"
        lines = [f"No runs in {project.root}.", todo]
    if len(shown) < len(runs.rows):
        lines.append(f"({len(runs.rows) - len(shown)} more: ralph status --all)")
    rows = [_row_json(row) for row in shown] if as_json else []
    return print_result(as_json, lines, command="status", root=str(project.root), runs=rows)


def _choose(runs: RunList) -> list[RunRow]:
    """The rows that are shown without --all: all but older stopped and finished runs."""
    failed = [row for row in runs.rows if row["attention"] == Tier.FAILED]
    recent = {row["id"] for row in sorted(failed, key=lambda row: row["since"])[-_MAX_FAILED:]}
    done = [row["id"] for row in runs.rows if row["group"] == "done"][:_MAX_DONE]
    is_old = {row["id"] for row in failed} - recent | {row["id"] for row in runs.rows if row["group"] == "done"} - {
        *done
    }
    return RunList(tuple(row for row in runs.rows if row["id"] not in is_old)).decode()


def _row_json(row: RunRow) -> dict[str, Any]:
    """A row as programs read it. `run` is the name that the id has in all other commands."""
    from ralph.view.json_form import to_full

    return {"run": row.id, **to_full(row)}


def _list_lines(rows: list[RunRow]) -> list[str]:
    lines: list[str] = []
    for group in dict.fromkeys(GROUPS.values()):
        members = [row for row in rows if row.group == group]
        if members:
            lines += [*([""] if lines else []), group.upper(), *map(_row_lines, members)]
    return lines


def _row_lines(row: RunRow, indent: str = _INDENT) -> str:
    """A run in one line, and below it what the user should know or do.

    On a terminal that is too narrow for the line, the task has a line of its own. Commands are not cut, so that they can be
    copied.
    """
    if row.problem:
        return f"{row.id}  unreadable: {row.problem}"
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    facts, task = _facts(row), shorten(" ".join(row.task.split()), 50)
    lines = [f"{facts}  {task}"]
    if width and len(lines[0]) > width:
        lines = [facts.rstrip(), f"{indent}{task}"]
    for detail in _details(row):
        parts = wrap_line(detail, max(20, width - len(indent))) if width else [detail]
        lines += [f"{indent}{part}" for part in parts]
    return "\n".join(lines)


def _facts(row: RunRow) -> str:
    """The id, the state, the progress, the cost and the age of a run, in columns."""
    progress = row.workflow
    if progress == "loop":
        progress = f"{row.iteration}/{row.max_iterations or '∞'}"
    return f"{row.id}  {row.state:<18} {progress:>7}  {_short_cost(row):>12}  {_age(row.at):<14}"


def _short_cost(row: RunRow) -> str:
    """The cost in the width of a column: `≥ $0.0200` if some turns have no price."""
    if row.spent.unpriced_turns and row.cost != "cost unknown":
        return f"≥ ${row.spent.cost:.4f}"
    return row.cost


def _age(at: float) -> str:
    if not at:
        return ""
    seconds = max(0.0, time.time() - at)
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return f"{count(int(seconds // size), unit)} ago"
    return "just now"


def _details(row: RunRow) -> list[str]:
    """The headline of a run, and what it needs."""
    lines = []
    if row.doubt:
        lines.append(f"NOT VERIFIED: {row.doubt}  ({advise_to_adopt(row.id)})")
    elif not any(need.kind is NeedKind.QUESTION for need in row.needs):
        lines.append(row.headline)
    lines += row.hand_overs[-1:]
    if row.sandbox.startswith(NOT_ISOLATED):
        # A run that is over can do no more harm, so the reason is left to its report.
        lines.append(one_line(row.sandbox) if row.alive else NOT_ISOLATED)
    if row.alive and row.doing and row.doing not in row.headline:
        lines.append(one_line(row.doing))
    if row.done_by:
        lines.append(f"run {row.done_by} has since done the same task")
    return [*lines, *row.reasons, *_need_lines(row)]


def _need_lines(row: RunRow) -> list[str]:
    """What the user has to do, with the command for it."""
    lines = []
    for need in row.needs:
        if need.kind is NeedKind.QUESTION:
            options = f" [{' | '.join(need.options)}]" if need.options else ""
            lines.append(f"QUESTION {need.id}: {one_line(need.text)}{options}  ({need.command})")
        elif need.kind is NeedKind.MISSING:
            lines.append(f"CHANGED: {need.text}")
        elif need.kind is NeedKind.CONFLICT:
            lines.append(f"CONFLICT: {one_line(need.text)}  ({need.command})")
        elif not row.done_by and not row.doubt:
            lines.append(f"Next: {need.command}" + (", or skip" if "skip" in need.options else ""))
    return lines
