"""`ralph status`: the runs of this project, those that need you first; or everything about one run."""

import time
from typing import Any

import click

from ralph.app.views import RunList, open_view, read_run_list
from ralph.cli.console import here, json_option, one_line, print_result
from ralph.core.checks import CheckStatus
from ralph.core.text import count
from ralph.store.journal import adopt_advice
from ralph.view.attention import row_of, span
from ralph.view.headline import describe_failure
from ralph.view.json_form import to_full, to_json
from ralph.view.model import GROUPS, CheckView, NeedKind, RunRow, RunView, Tier

_MOST_FAILED, _MOST_DONE = 10, 5
"""How many stopped and how many finished runs are shown without --all."""
_INDENT = " " * 20
_MARKS = {CheckStatus.PASSED: "PASS", CheckStatus.FAILED: "FAIL"}


@click.command("status")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Show all runs.")
@json_option
def status(run: str | None, everything: bool, as_json: bool) -> int:
    """Show the runs of this project: those that need you, then working, waiting and done ones. Or one RUN in detail."""
    project = here()
    if run:
        chosen = project.run(run)
        view = open_view(project, chosen)
        facts = {"runs": [_row_json(row_of(view))], "view": to_json(view)}
        return print_result(as_json, _view_lines(view), command="status", root=str(project.root), **facts)
    runs = read_run_list(project)
    shown = runs.decode() if everything else _choose(runs)
    lines = _list_lines(shown)
    if not shown:
        todo = "Next:   ralph loop \"TASK\" --until '`COMMAND` passes' --agent-command PROGRAM"
        lines = [f"No runs in {project.root}.", todo]
    if len(shown) < len(runs.rows):
        lines.append(f"({len(runs.rows) - len(shown)} more: ralph status --all)")
    rows = [_row_json(row) for row in shown]
    return print_result(as_json, lines, command="status", root=str(project.root), runs=rows)


def _choose(runs: RunList) -> list[RunRow]:
    """The rows that are shown without --all: all but older stopped and finished runs."""
    failed = [row for row in runs.rows if row["attention"] == Tier.FAILED]
    recent = {row["id"] for row in sorted(failed, key=lambda row: row["since"])[-_MOST_FAILED:]}
    done = [row["id"] for row in runs.rows if row["group"] == "done"][:_MOST_DONE]
    is_old = {row["id"] for row in failed} - recent | {row["id"] for row in runs.rows if row["group"] == "done"} - {
        *done
    }
    return RunList(tuple(row for row in runs.rows if row["id"] not in is_old)).decode()


def _row_json(row: RunRow) -> dict[str, Any]:
    """A row as programs read it. `run` is the name that the id has in all other commands."""
    return {"run": row.id, **to_full(row)}


def _list_lines(rows: list[RunRow]) -> list[str]:
    lines: list[str] = []
    for group in dict.fromkeys(GROUPS.values()):
        members = [row for row in rows if row.group == group]
        if members:
            lines += [*([""] if lines else []), group.upper(), *map(_row_lines, members)]
    return lines


def _row_lines(row: RunRow) -> str:
    """A run in one line, and below it what the user should know or do."""
    if row.problem:
        return f"{row.id}  unreadable: {row.problem}"
    return f"\n{_INDENT}".join([_head(row), *_details(row)])


def _head(row: RunRow) -> str:
    progress = row.workflow
    if progress == "loop":
        progress = f"{row.iteration}/{row.max_iterations or '∞'}"
    task = " ".join(row.task.split())[:50]
    return f"{row.id}  {row.state:<18} {progress:>7}  {_short_cost(row):>12}  {_age(row.at):<14}  {task}"


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
        lines.append(f"NOT VERIFIED: {row.doubt}  ({adopt_advice(row.id)})")
    elif not any(need.kind is NeedKind.QUESTION for need in row.needs):
        lines.append(row.headline)
    if row.alive and row.doing and row.doing not in row.headline:
        lines.append(one_line(row.doing))
    if row.done_by:
        lines.append(f"run {row.done_by} has done it since")
    return [*lines, *row.reasons, *_need_lines(row)]


def _need_lines(row: RunRow | RunView) -> list[str]:
    """What the user has to do, with the command for it."""
    lines = []
    is_done = isinstance(row, RunRow) and bool(row.done_by)
    for need in row.needs:
        if need.kind is NeedKind.QUESTION:
            options = f" [{' | '.join(need.options)}]" if need.options else ""
            lines.append(f"QUESTION {need.id}: {one_line(need.text)}{options}  ({need.command})")
        elif need.kind is NeedKind.MISSING:
            lines.append(f"MISSING: {need.text}")
        elif need.kind is NeedKind.CONFLICT:
            lines.append(f"CONFLICT: {one_line(need.text)}  ({need.command})")
        elif not is_done and not row.doubt:
            lines.append(f"Next: {need.command}")
    return lines


def _view_lines(view: RunView) -> list[str]:
    """Everything that matters about one run."""
    row = row_of(view)
    lines = [_head(row), *(f"  {line}" for line in _details(row))]
    lines += _section("Checks", [_check_line(check) for check in view.checks])
    open_findings = [one.finding for one in view.findings if one.is_open]
    lines += _section("Findings", [f"{one.severity}: {one.place} [{one.rule}] {one.sentence}" for one in open_findings])
    lines += _section("Tasks", [f"{task.state:<10} {task.id}  {one_line(task.title)[:80]}" for task in view.tasks])
    lines += _section("Turns", _turn_lines(view))
    lines += _section("Signals", [_signal_line(view, number) for number in range(len(view.signals))][-5:])
    lines += _section(
        "Limits", [_limit_line(limit.name, limit.used, limit.limit, limit.share) for limit in view.limits]
    )
    if view.landed:
        lines += _section(
            "Landed", [f"{view.landed.commit[:10]} on {view.landed.branch}  {view.landed.notice}".rstrip()]
        )
    if view.reports:
        lines += _section("Report", [view.reports[-1].path])
    return [*lines, "", f"Next:   {view.next or f'ralph logs -f {view.run.id}'}"]


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []


def _check_line(check: CheckView) -> str:
    mark = "    " if check.status is None else _MARKS.get(check.status, "????")
    facts = [check.attribution.replace("-", " ")] if check.attribution else []
    facts += [f"since {check.since.key}"] if check.since and check.runs > 1 else []
    facts += ["flaky"] if check.flaky else []
    scope = f"{check.scope}: " if check.scope else ""
    text = f"{mark} {scope}{check.title}" + (f"  ({', '.join(facts)})" if facts else "")
    if check.status in (CheckStatus.PASSED, None):
        return text
    return f"{text}\n       {describe_failure(check)}"


def _turn_lines(view: RunView) -> list[str]:
    """The last turns."""
    lines = []
    for turn in view.turns[-5:]:
        state = "running" if turn.end is None else str(turn.end)
        said = turn.summary or turn.error
        if turn.activity and turn.activity.text:
            said = f"{turn.activity.kind}: {turn.activity.text}"
        lines.append(
            f"{turn.number:<4} {turn.role:<14} {turn.agent[:24]:<24} {state:<12} {one_line(said)[:80]}".rstrip()
        )
    earlier = len(view.turns) + view.more_turns - len(lines)
    return [f"({earlier} earlier: ralph logs {view.run.id})", *lines] if earlier else lines


def _signal_line(view: RunView, number: int) -> str:
    signal = view.signals[number]
    receipts = [f"{one.role}, turn {one.turn}, by {one.means}" for one in signal.receipts[:1]]
    effect = (
        receipts[0] if receipts else signal.reason or ("no turn has received it yet" if signal.has_words else "done")
    )
    return f"{signal.type or 'refused'}: {one_line(signal.message or signal.name)[:60]}  ({effect})"


def _limit_line(name: str, used: float, limit: float, share: float) -> str:
    if name in ("time", "deadline"):
        return f"{name:<11} {span(used)} of {span(limit)} ({share:.0%})"
    money = "$" if name == "cost" else ""
    return f"{name:<11} {money}{used:g} of {money}{limit:g} ({share:.0%})"
