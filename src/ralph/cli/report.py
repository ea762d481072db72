"""`ralph report`: the completion report of a run."""

import re
from collections.abc import Iterator
from datetime import datetime

import click

from ralph.cli.console import here, json_option, tell
from ralph.core.errors import StateError, UsageError
from ralph.store.documents import digest
from ralph.store.files import read_limited, to_text
from ralph.store.journal import adopt_advice, moment, read_raw
from ralph.store.runs import Project, RunDir
from ralph.workflows.loop import HOME

_PATH = re.compile(rf"(?:{re.escape(HOME)}|\.ralph/runs/[\w-]+)/completion-[\w.+-]+\.md")


@click.command("report")
@click.argument("run", required=False)
@click.option("--list", "listing", is_flag=True, help="List all reports.")
@json_option
def command(run: str | None, listing: bool, as_json: bool) -> int:
    """Print the newest completion report of RUN, or of the last run that has one."""
    project = here()
    runs = [project.run(run)] if run else project.runs()
    if listing:
        return _list([report for one in runs for report in reports_of(project, one)], as_json=as_json)
    report = next((report for one in reversed(runs) for report in reversed(list(reports_of(project, one)))), None)
    if report is None:
        raise _none(project, runs, run)
    data = read_limited(project.root / report["path"])
    text = to_text(data)
    doubt = project.run(report["run"]).find_doubt()
    warning = [f"CLAIMED, not verified: {doubt}. {adopt_advice(report['run'])}\n"] if doubt else []
    if report.pop("hash") != digest(data):
        warning.append(f"CHANGED after the run: Ralph did not write this text. The run ended as {report['outcome']}.\n")
    lines = [*warning, text.rstrip(), f"\nReport: {report['path']}"]
    return tell(as_json, lines, command="report", **report, doubt=doubt, text=text)


def reports_of(project: Project, run: RunDir) -> Iterator[dict[str, str]]:
    """The reports of a run that are still there, oldest first: it has one for every time that it ended."""
    try:
        lines = [line for _, line in read_raw(run.path / "journal.jsonl") if line.get("type") == "run.ended"]
    except (OSError, StateError):
        return
    for line in lines:
        documents = line.get("documents")
        if not isinstance(documents, dict):
            continue
        for path, written in documents.items():
            if _PATH.fullmatch(path) and (project.root / path).is_file():
                yield {
                    "run": run.id,
                    "outcome": str(line.get("outcome")),
                    "at": str(line.get("at")),
                    "path": path,
                    "hash": str(written),
                }


def _list(reports: list[dict[str, str]], *, as_json: bool) -> int:
    for one in reports:
        one.pop("hash")
    lines = [f"{_date(one['at'])}  {one['run']}  {one['outcome']:<18} {one['path']}" for one in reports]
    lines = lines or ["No run here has a report yet."]
    return tell(as_json, lines, command="report", reports=reports)


def _date(at: str) -> str:
    """When a run ended, in local time."""
    try:
        return datetime.fromtimestamp(moment(at)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return at


def _none(project: Project, runs: list[RunDir], wanted: str | None) -> UsageError:
    """Why there is nothing to print, and what to do about it."""
    where = str(project.root / HOME)
    if not runs:
        return UsageError("there is no run yet", where=str(project.root), todo="start one with `ralph loop`")
    if wanted and runs[0].alive:
        todo = f"follow it with `ralph logs -f {runs[0].id}`"
        return UsageError(f"run {runs[0].id} is under way: its report is written when it ends", where=where, todo=todo)
    what = f"run {runs[0].id} has no report" if wanted else "no run here has a report"
    todo = "a report is written when a run ends; `ralph status --all` shows how far each is"
    return UsageError(what, where=where, todo=todo)
