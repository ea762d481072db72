"""The completion reports of runs, and the cost of each turn."""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralph.app.runs import find_latest_run
from ralph.app.views import open_view
from ralph.core.codec import format_time, from_plain, parse_json_object
from ralph.core.entries import Notice
from ralph.core.errors import RalphError, UsageError
from ralph.core.prompt import PartSize, count_tokens
from ralph.core.speakers import show_speaker
from ralph.store.documents import Documents, digest
from ralph.store.files import read_limited, to_text
from ralph.store.runs import Project, RunDir
from ralph.view.fold_cost import add_sums
from ralph.view.model import CostGroup, Sums, TurnView
from ralph.workflows.loop import HOME

_PROMPT_LIMIT, _TURN_LIMIT = 16 << 20, 1 << 20
_PATH = re.compile(rf"(?:{re.escape(HOME)}|\.ralph/runs/[\w-]+)/completion-[\w.+-]+\.md")
_DOCUMENTS = (".md", ".yaml", ".yml", ".json", ".jsonl", ".txt", ".log")
_MAX_DOCUMENTS = 2000
_REVERTED = "\n\nThe run was reverted after that: see Next."
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
    sandbox: str = ""
    """How the agents were isolated, as the journal has it."""
    hand_overs: tuple[str, ...] = ()
    """Which agents took over from others, and why, a sentence each."""
    since: str = ""
    """How the user changed the files of the run since it ended; empty if its work is as the run left it."""


def list_reports(project: Project, wanted: str | None = None) -> list[FiledReport]:
    """The reports of a run, or of all runs, oldest first: a run has one for every time that it ended."""
    runs = [project.run(wanted)] if wanted else project.runs()
    return [report for run in runs for report in _list_reports(project, run)]


def read_report(project: Project, wanted: str | None = None) -> ReportText:
    """The newest report of a run, or of the latest run that has one."""
    found = list_reports(project, wanted)
    if not found:
        raise _make_missing_report_error(project, [project.run(wanted)] if wanted else project.runs(), wanted)
    report = found[-1]
    data = read_limited(project.root / report.path)
    run = project.run(report.run)
    view = open_view(project, run)
    action = view.taken_back
    return ReportText(
        report,
        to_text(data),
        run.find_doubt(),
        is_changed=report.hash != digest(data),
        sandbox=run.read_tail_summary().sandbox,
        hand_overs=tuple(one.text for one in view.hand_overs),
        since=f"{show_speaker(action.by)} {action.result}" if action else "",
    )


def note_revert(project: Project, run: RunDir, text: str) -> None:
    """Say in the newest report of a run, below its title and in its last section, that the user reverted the run.

    A report that the user changed stays as it is.
    """
    reports = _list_reports(project, run)
    if not reports:
        return
    data = read_limited(project.root / reports[-1].path)
    before, heading, _ = to_text(data).rpartition("\n## Next\n\n")
    if not heading or digest(data) != reports[-1].hash:
        return
    title, _, rest = before.partition("\n")
    if _REVERTED.strip() not in rest:
        title += _REVERTED
    documents, _ = Documents.open(project.root, run.path)
    why = "reverted what the run changed (`ralph abort --revert`)"
    documents.commit(time.time(), Notice(why), {reports[-1].path: f"{title}\n{rest}{heading}{text}\n"})


def _list_reports(project: Project, run: RunDir) -> list[FiledReport]:
    try:
        reports = open_view(project, run).reports
    except (OSError, RalphError):
        return []
    return [
        FiledReport(run=run.id, outcome=one.outcome, at=format_time(one.at), path=one.path, hash=one.hash)
        for one in reports
        if _PATH.fullmatch(one.path) and (project.root / one.path).is_file()
    ]


def list_documents(project: Project, run: RunDir) -> list[Path]:
    """The documents of a run: its reports, what a loop keeps about it, and the files of its session. Links are left out."""
    root, home = project.root, project.root / HOME
    session = root / ".ralph-sessions"
    places = [home / "loops" / run.id, home / "reflections" / "loops" / run.id, session / run.id]
    found = [root / report.path for report in _list_reports(project, run)]
    found.append(session / f"{run.id}.instructions.md")
    for place in places:
        # A link in the place of a directory could lead anywhere.
        if place.is_dir() and place.resolve() == root.resolve() / place.relative_to(root):
            found += [Path(top) / name for top, _, names in os.walk(place) for name in names]
    kept = [path for path in found if path.suffix in _DOCUMENTS and path.is_file() and not path.is_symlink()]
    return sorted(kept)[:_MAX_DOCUMENTS]


def _make_missing_report_error(project: Project, runs: list[RunDir], wanted: str | None) -> UsageError:
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


@dataclass(frozen=True)
class CostReceipt:
    """What runs used: each turn, and the sums. Sums cover all turns, also those that are too many to list."""

    turns: tuple[dict[str, Any], ...]
    total: Sums
    by: dict[str, dict[str, Sums]]
    """Sums by role, agent, model and run."""


def read_receipt(project: Project, runs: Sequence[RunDir]) -> CostReceipt:
    """What these runs used. A run that cannot be read has used nothing."""
    turns: list[dict[str, Any]] = []
    total = Sums()
    by: dict[str, dict[str, Sums]] = {name: {} for name in ("role", "agent", "model", "run")}
    for run in runs:
        try:
            view = open_view(project, run)
        except (OSError, RalphError):
            continue
        cost = view.cost
        turns += [_turn_row(run, turn) for turn in view.turns if turn.end is not None]
        total = add_sums(total, cost.total)
        groups = {"role": cost.by_role, "agent": cost.by_agent, "model": cost.by_model}
        groups["run"] = (CostGroup(run.id, cost.total),) if cost.total.turns else ()
        for name, members in groups.items():
            for group in members:
                by[name][group.name] = add_sums(by[name].get(group.name, Sums()), group.sums)
    return CostReceipt(tuple(turns), total, by)


def _turn_row(run: RunDir, turn: TurnView) -> dict[str, Any]:
    used = turn.usage
    facts = {"run": run.id, "turn": turn.number, "work": turn.key, "role": turn.role, "agent": turn.agent}
    tokens = {name: getattr(used, name) for name in TOKENS}
    return {**facts, "model": used.model, **tokens, "cost": None if used.cost is None else round(used.cost, 6)}


@dataclass(frozen=True)
class TurnPrompt:
    """The prompt of a turn as it was sent, and what each part of it takes."""

    run: str
    turn: int
    text: str
    parts: tuple[PartSize, ...]


def read_prompt(project: Project, wanted: str | None, turn: int | None = None) -> TurnPrompt:
    """The prompt of a turn of a run. Default: the latest turn of the latest run."""
    run = project.run(wanted) if wanted else find_latest_run(project, None)
    found = {
        int(path.name[:5]): path for path in (run.path / "turns").glob("[0-9]*-*") if (path / "prompt.md").exists()
    }
    if not found or (turn is not None and turn not in found):
        known = f"{min(found)} to {max(found)}" if found else ""
        raise UsageError(
            f"run {run.id} has no turn {'' if turn is None else turn}".strip(),
            todo=f"its turns are {known}" if found else f"`ralph logs {run.id}` shows what happened",
        )
    number = max(found) if turn is None else turn
    text = to_text(read_limited(found[number] / "prompt.md", _PROMPT_LIMIT))
    return TurnPrompt(run.id, number, text, _read_parts(found[number]) or (PartSize("prompt", count_tokens(text)),))


def _read_parts(turn: Path) -> tuple[PartSize, ...]:
    """The parts that were stored with the turn; none if an older version of Ralph started it."""
    path = turn / "turn.json"
    about = parse_json_object(read_limited(path, _TURN_LIMIT)) if path.exists() else {}
    return from_plain(tuple[PartSize, ...], about.get("parts", []), f"{path}: parts")
