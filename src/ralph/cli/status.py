"""`ralph status`: the runs of this project."""

import time
from dataclasses import asdict
from typing import Any

import click

from ralph.cli.console import here, json_option, one_line, tell
from ralph.core.codec import to_plain
from ralph.core.entries import ChecksStarted, TurnStarted
from ralph.core.errors import RalphError
from ralph.store.journal import adopt_advice, last_lines
from ralph.store.runs import RunDir, TailSummary, time_ago


@click.command("status")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Also show runs that ended long ago.")
@json_option
def command(run: str | None, everything: bool, as_json: bool) -> int:
    """Show the runs of this project, the latest last; or one RUN."""
    project = here()
    runs = [project.run(run)] if run else project.runs()
    shown = runs if everything or run else runs[-10:]
    rows = [describe(one) for one in shown]
    _mark_closed(rows)
    lines = [*map(_line, rows)]
    if not rows:
        todo = "Next:   ralph loop \"TASK\" --until '`COMMAND` passes' --agent-command PROGRAM"
        lines = [f"No runs in {project.root}.", todo]
    lines += [f"({len(runs) - len(shown)} older: ralph status --all)"] if len(shown) < len(runs) else []
    return tell(as_json, lines, command="status", root=str(project.root), runs=rows)


def describe(run: RunDir) -> dict[str, Any]:
    """What can be said about a run at a glance; a broken one is listed, with what is wrong."""
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
        "reason": summary.ended.reason if summary.ended else "",
        "missing": list(summary.missing),
        "doubt": summary.doubt,
        "questions": [asdict(question) for question in run.questions.open(time.time())] if alive else [],
        "doing": _doing(run, summary) if alive else "",
        "at": summary.at,
    }


def _mark_closed(rows: list[dict[str, Any]]) -> None:
    """Say of runs that stopped which later run did their task."""
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
            said = [line for line in last_lines(run.path / "progress.jsonl") if line.get("turn") == turn]
            return f"turn {turn} ({role})" + (f": {one_line(said[-1].get('message'))}" if said else "")
        case ChecksStarted(checks=checks):
            return "checking " + " AND ".join(checks)
        case None:
            return ""


def _line(row: dict[str, Any]) -> str:
    if "problem" in row:
        return f"{row['run']}  unreadable: {row['problem']}"
    spent = row["spent"]
    counted = f"{spent.get('iterations', 0)}/{row['max_iterations'] or '∞'}"
    iterations = counted if row["workflow"] == "loop" else row["workflow"]
    money = spent.get("cost")
    cost = f"${money:.4f}" if isinstance(money, float) and money else "-"
    if spent.get("turns") and spent.get("unpriced_turns") == spent["turns"]:
        cost = "unknown"
    tail = row["doing"] or row["reason"]
    asked = [f'QUESTION {q["id"]}: {one_line(q["question"])}  (ralph answer {q["id"]} "...")' for q in row["questions"]]
    missing = [f"MISSING: {sentence}" for sentence in row["missing"]]
    doubt = f"NOT VERIFIED: {row['doubt']}  ({adopt_advice(row['run'])})" if row["doubt"] else ""
    later = f"run {row['done_by']} has done it since" if row.get("done_by") else ""
    tail = f"\n{'':20}".join(filter(None, [doubt, tail, later, *asked, *missing]))
    age = time_ago(row["at"])
    task = " ".join(row["task"].split())[:50]
    return f"{row['run']}  {row['state']:<18} {iterations:>7}  {cost:>9}  {age:<14}  {task}" + (
        f"\n{'':20}{tail}" if tail else ""
    )
