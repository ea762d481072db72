"""How the command line tells what happened in a run: journal records as lines, and the banner at its end."""

from typing import Any

from ralph.cli.console import clock_time
from ralph.core.entries import (
    ChecksStarted,
    LimitExtended,
    Notice,
    Record,
    RunStarted,
    SnapshotTaken,
    TurnStarted,
)
from ralph.core.events import ChecksEnded, DocumentEdited, RunEnded, SignalTaken, TurnEnded
from ralph.core.turns import TurnEnd
from ralph.workflows.loop.report import cost, duration


def narrate(record: Record, most: int | None) -> list[str]:
    """A record as the lines that a person reads; none where it is of no interest."""
    match record.entry:
        case RunStarted(run=run, resumed=resumed):
            return [f"run {run} {'goes on' if resumed else 'starts'}"]
        case LimitExtended(reason=reason):
            return [f"the limit was extended: {reason}"]
        case TurnStarted() as entry:
            kind = "asked for a better answer" if entry.repair else f"{entry.role} ({entry.agent})"
            again = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
            return ["", f"{_iteration(entry.key, most)}: turn {entry.turn}, {kind}{again}"]
        case TurnEnded() as entry:
            return _turn_ended(entry)
        case ChecksStarted(key=key) if key == "baseline":
            return ["baseline: checking before any turn"]
        case ChecksEnded(verdict=verdict):
            found = [f"  {f.severity.upper()} {f.path}:{f.line} [{f.rule}] {f.sentence}" for f in verdict.findings]
            return [*(line for result in verdict.results for line in _check(result)), *found]
        case SignalTaken(signal=signal):
            return [f"signal {signal.type} taken" + (f": {signal.message}" if signal.message else "")]
        case DocumentEdited(path=path):
            return [f"{path} was edited by somebody else and taken in"]
        case Notice(text=text):
            return [f"note: {text}"]
        case RunEnded():
            return []
        case ChecksStarted() | SnapshotTaken():
            return []


def closing(ended: RunEnded, run: str, report: str, verification: str = "") -> list[str]:
    """The banner at the end of a run: what happened, where the evidence is, what to type next."""
    head = "COMPLETE" if ended.outcome.succeeded else ended.outcome.upper().replace("-", " ")
    spent = ended.spent
    lines = [
        "═" * 60,
        f"Ralph loop: {head}",
        "═" * 60,
        f"{ended.reason}",
        f"Iterations {spent.iterations} · turns {spent.turns} · {duration(spent.active_seconds)} · cost {cost(spent)}",
    ]
    if verification and not ended.outcome.succeeded:
        lines += ["", *verification.strip().splitlines()[-12:]]
    lines += ["", f"Report: {report}"] if report else [""]
    if ended.outcome.succeeded:
        lines.append(f"Next:   ralph diff {run}")
    elif ended.outcome.resumable:
        lines.append(f"Next:   ralph resume {run}   (or: ralph abort {run}, ralph diff {run})")
    return lines


def _iteration(key: str, most: int | None) -> str:
    name, _, number = key.rpartition("-")
    return f"{name} {number}/{most}" if most and name == "iteration" else key.replace("-", " ")


def _turn_ended(entry: TurnEnded) -> list[str]:
    result = entry.result
    facts = [f"turn {entry.turn} {result.end} after {duration(result.seconds)}"]
    if result.change:
        facts.append(f"{result.change.files} files, +{result.change.added}, -{result.change.removed}")
    if result.usage.cost is not None:
        facts.append(f"${result.usage.cost:.4f}")
    if result.survivors:
        facts.append(f"{result.survivors} left-over processes ended")
    lines = ["  " + " · ".join(facts)]
    if result.error and result.end is not TurnEnd.STOPPED:
        lines.append(f"  {result.error}")
    if result.answer:
        lines.append(f"  says: {result.answer.get('summary', '')}")
    if entry.retry_at is not None and result.end is not TurnEnd.INTERRUPTED:
        lines.append(f"  next try at {clock_time(entry.retry_at)}: {entry.retry_reason}")
    return lines


def _check(result: Any) -> list[str]:
    passed = result.status == "passed"
    mark = "PASS" if passed else "FAIL" if result.status == "failed" else "????"
    why = "" if passed else f" ({result.reason})"
    return [f"  {mark} $ {result.command}  {duration(result.seconds)}{why}"]
