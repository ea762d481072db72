"""`ralph status`: the runs of this project."""

import time
from dataclasses import asdict
from typing import Any

import click

from ralph.app.runs import find_still_missing
from ralph.cli.console import clock_time, here, json_option, one_line, print_result
from ralph.core.codec import to_plain
from ralph.core.entries import ChecksStarted, TurnStarted
from ralph.core.errors import RalphError
from ralph.core.limits import describe_cost
from ralph.store.journal import adopt_advice, last_lines
from ralph.store.runs import Project, RunDir, TailSummary, time_ago


@click.command("status")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Show all runs.")
@json_option
def status(run: str | None, everything: bool, as_json: bool) -> int:
    """Show the last 10 runs of this project, the latest last, or one RUN."""
    project = here()
    runs = [project.run(run)] if run else project.runs()
    shown = runs if everything or run else runs[-10:]
    rows = [_describe(project, one) for one in shown]
    _mark_closed(rows)
    lines = [*map(_line, rows)]
    if not rows:
        todo = "Next:   ralph loop \"TASK\" --until '`COMMAND` passes' --agent-command PROGRAM"
        lines = [f"No runs in {project.root}.", todo]
    if len(shown) < len(runs):
        lines.append(f"({len(runs) - len(shown)} older: ralph status --all)")
    return print_result(as_json, lines, command="status", root=str(project.root), runs=rows)


def _describe(project: Project, run: RunDir) -> dict[str, Any]:
    """The state of a run at a glance. One that cannot be read is listed with what is wrong."""
    try:
        record = run.record()
    except RalphError as error:
        return {"run": run.id, "state": "unreadable", "problem": str(error)}
    summary = run.tail_summary()
    alive = run.alive
    return {
        "run": run.id,
        "workflow": record.workflow,
        "state": summary.state(alive=alive),
        "alive": alive,
        "task": record.task,
        "criterion": record.criterion,
        "agent": ", ".join(spec.label for spec in record.crew.chain),
        "workspace": record.workspace,
        "branch": record.branch,
        "max_iterations": (summary.limits or record.limits).iterations,
        "spent": to_plain(summary.spent),
        "cost": _cost(summary),
        "reason": summary.ended.reason if summary.ended else "",
        "missing": list(find_still_missing(project, run, record, summary)),
        "doubt": summary.doubt,
        "questions": [asdict(question) for question in run.questions.open(time.time())] if alive else [],
        "doing": _doing(run, summary) if alive else "",
        "at": summary.at,
    }


def _mark_closed(rows: list[dict[str, Any]]) -> None:
    """Add to stopped runs which later run did their task."""
    done: dict[tuple[str, str], str] = {}
    for row in reversed(rows):
        key = (row.get("workflow", ""), row.get("task", ""))
        if row["state"] in ("success", "nothing-to-do"):
            done.setdefault(key, row["run"])
        elif key in done and not row.get("alive") and row["state"] != "aborted":
            row["done_by"] = done[key]


def _doing(run: RunDir, summary: TailSummary) -> str:
    match summary.started:
        case TurnStarted(turn=turn, role=role):
            reports = [line for line in last_lines(run.path / "progress.jsonl") if line.get("turn") == turn]
            return f"turn {turn} ({role})" + (f": {one_line(reports[-1].get('message'))}" if reports else "")
        case ChecksStarted(checks=checks):
            return "checking " + " AND ".join(checks)
        case None if summary.waits_until is not None:
            return f"waits until {clock_time(summary.waits_until)[:5]}: {one_line(summary.waits_for)}"
        case None:
            return ""


def _cost(summary: TailSummary) -> str:
    """What a run cost. What a run that Ralph did not verify claims to have spent says nothing."""
    if summary.doubt or summary.spent.cost_is_unknown:
        return "cost unknown"
    return describe_cost(summary.spent) if summary.spent.turns else "-"


def _line(row: dict[str, Any]) -> str:
    """A run in one line, and below it what the user should know or do."""
    if "problem" in row:
        return f"{row['run']}  unreadable: {row['problem']}"
    progress = row["workflow"]
    if progress == "loop":
        progress = f"{row['spent'].get('iterations', 0)}/{row['max_iterations'] or '∞'}"
    age = time_ago(row["at"])
    task = " ".join(row["task"].split())[:50]
    head = f"{row['run']}  {row['state']:<18} {progress:>7}  {_short_cost(row):>12}  {age:<14}  {task}"
    return f"\n{'':20}".join([head, *_details(row)])


def _short_cost(row: dict[str, Any]) -> str:
    """The cost in the width of a column: `≥ $0.0200` if some turns have no price."""
    unpriced = row["spent"].get("unpriced_turns", 0)
    if unpriced and row["cost"] != "cost unknown":
        return f"≥ ${row['spent'].get('cost', 0):.4f}"
    return str(row["cost"])


def _details(row: dict[str, Any]) -> list[str]:
    lines = []
    if row["doubt"]:
        lines.append(f"NOT VERIFIED: {row['doubt']}  ({adopt_advice(row['run'])})")
    if row["doing"] or row["reason"]:
        lines.append(row["doing"] or row["reason"])
    if row.get("done_by"):
        lines.append(f"run {row['done_by']} has done it since")
    for question in row["questions"]:
        id = question["id"]
        lines.append(f'QUESTION {id}: {one_line(question["question"])}  (ralph answer {id} "...")')
    return [*lines, *(f"MISSING: {sentence}" for sentence in row["missing"])]
