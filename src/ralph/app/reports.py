"""The completion reports of runs, and the cost of each turn."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ralph.core.entries import TurnStarted
from ralph.core.errors import RalphError, StateError, UsageError
from ralph.core.events import TurnEnded
from ralph.store.documents import digest
from ralph.store.files import read_limited, to_text
from ralph.store.journal import read_claimed, read_raw
from ralph.store.runs import Project, RunDir
from ralph.workflows.loop import HOME

_PATH = re.compile(rf"(?:{re.escape(HOME)}|\.ralph/runs/[\w-]+)/completion-[\w.+-]+\.md")
TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


@dataclass(frozen=True)
class FiledReport:
    """A completion report that is still there."""

    run: str
    outcome: str
    at: str
    path: str
    hash: str
    """What Ralph wrote."""


@dataclass(frozen=True)
class ReportText:
    """The text of a report, and whether it can be trusted."""

    report: FiledReport
    text: str
    doubt: str
    """Why the run is not known to be this user's own; empty if it is."""
    is_changed: bool
    """Whether something other than Ralph changed the text."""


def list_reports(project: Project, wanted: str | None = None) -> list[FiledReport]:
    """The reports of a run, or of all runs, oldest first: a run has one for every time that it ended."""
    runs = [project.run(wanted)] if wanted else project.runs()
    return [report for run in runs for report in _reports_of(project, run)]


def read_report(project: Project, wanted: str | None = None) -> ReportText:
    """The newest report of a run, or of the latest run that has one."""
    found = list_reports(project, wanted)
    if not found:
        raise _no_report(project, [project.run(wanted)] if wanted else project.runs(), wanted)
    report = found[-1]
    data = read_limited(project.root / report.path)
    doubt = project.run(report.run).find_doubt()
    return ReportText(report, to_text(data), doubt, is_changed=report.hash != digest(data))


def _reports_of(project: Project, run: RunDir) -> Iterator[FiledReport]:
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
                yield FiledReport(
                    run=run.id,
                    outcome=str(line.get("outcome")),
                    at=str(line.get("at")),
                    path=path,
                    hash=str(written),
                )


def _no_report(project: Project, runs: list[RunDir], wanted: str | None) -> UsageError:
    """The error for a missing report: why there is none, and what to do."""
    where = str(project.root / HOME)
    if not runs:
        return UsageError("there is no run yet", where=str(project.root), todo="start one with `ralph loop`")
    if wanted and runs[0].alive:
        todo = f"follow it with `ralph logs -f {runs[0].id}`"
        return UsageError(f"run {runs[0].id} is running: Ralph writes its report when it ends", where=where, todo=todo)
    what = f"run {runs[0].id} has no report" if wanted else "no run here has a report"
    todo = "Ralph writes a report when a run ends; `ralph status --all` shows the state of each run"
    return UsageError(what, where=where, todo=todo)


def receipt(run: RunDir) -> Iterator[dict[str, Any]]:
    """The turns of a run, what each was for and what it used; a journal that cannot be read has none."""
    agents: dict[int, str] = {}
    path = run.path / "journal.jsonl"
    try:
        records = read_claimed(path) if path.exists() else []
    except RalphError:
        return
    for entry in (record.entry for record in records):
        match entry:
            case TurnStarted(turn=turn, agent=agent):
                agents[turn] = agent
            case TurnEnded(turn=turn, key=key, role=role, result=result):
                used = result.usage
                cost = None if used.cost is None else round(used.cost, 6)
                facts = {"run": run.id, "turn": turn, "work": key, "role": role, "agent": agents.get(turn, "")}
                tokens = {name: getattr(used, name) for name in TOKENS}
                yield {**facts, "model": used.model, **tokens, "cost": cost}
