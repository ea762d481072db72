"""How the command line tells what happens in a session, and how it shows one."""

from dataclasses import dataclass
from typing import Any

from ralph.cli.words import DOUBLE, check_line, landed_lines, merged_lines, turn_ended_lines
from ralph.core.entries import (
    ChecksStarted,
    LimitExtended,
    MergeStarted,
    Notice,
    Record,
    RunStarted,
    SnapshotTaken,
    TurnStarted,
)
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Landed,
    Merged,
    RunEnded,
    SignalTaken,
    TurnEnded,
    WorkCommitted,
)
from ralph.documents.session import reports
from ralph.workflows.loop.report import cost, duration
from ralph.workflows.session.closing import counts
from ralph.workflows.session.state import SessionState, State, Status, Step, Terms


@dataclass
class SessionTeller:
    """Tells the records of one session, one after the other."""

    session: str

    def lines(self, record: Record) -> list[str]:
        """A record as the lines that a person reads; none where it is of no interest."""
        match record.entry:
            case RunStarted(run=run, resumed=resumed):
                return [f"session {run} {'goes on' if resumed else 'starts'}"]
            case LimitExtended(reason=reason):
                return [f"the limit was extended: {reason}"]
            case TurnStarted() as entry:
                what = "asked for a better answer" if entry.repair else f"{entry.role} ({entry.agent})"
                return [f"turn {entry.turn}: {what} for {entry.key}"]
            case TurnEnded() as entry:
                return turn_ended_lines(entry)
            case ChecksStarted(key=key, checks=checks):
                return [f"checking {key}: {' AND '.join(checks)}"]
            case ChecksEnded(verdict=verdict):
                found = [f"  {f.severity.upper()} {f.place} [{f.rule}] {f.sentence}" for f in verdict.findings]
                return [*map(check_line, verdict.results), *found]
            case MergeStarted(workspace=workspace):
                return [f"merging {workspace}"]
            case Merged() as entry:
                return merged_lines(entry)
            case Landed() as entry:
                return landed_lines(entry)
            case SignalTaken(signal=signal):
                return [f"signal {signal.type} taken" + (f": {signal.message}" if signal.message else "")]
            case DocumentEdited(path=path):
                return [f"{path} was taken in"]
            case Notice(text=text):
                return [f"note: {text}"]
            case SnapshotTaken() | RunEnded() | WorkCommitted():
                return []

    def closing(self, ended: RunEnded, report: str) -> list[str]:
        """The banner at the end: what happened, and what to type next."""
        spent = ended.spent
        lines = [DOUBLE, f"Session {self.session}: {ended.outcome}", DOUBLE, "", ended.reason]
        lines += [f"Turns: {spent.turns}, {duration(spent.active_seconds)} active, {cost(spent)}"]
        return [*lines, f"Next:   ralph session show {self.session}", DOUBLE]


MARKS = {" ": "[ ]", "/": "[/]", "P": "[P]", "x": "[x]", "F": "[F]", "C": "[C]"}


def shown(terms: Terms, state: SessionState, spent: str = "") -> list[str]:
    """A session at a glance: where it is, its waves with their markers, what it cost, and what happens next."""
    data = state.metadata
    lines = [
        f"Session {data.session_id}  {data.state}  {data.status}  iteration {data.iteration}",
        "",
        data.request.strip(),
        "",
    ]
    for name in (item.id for item in state.progress.items.values() if item.id.startswith("plan-")):
        lines.append(f"  {MARKS[state.marker(name).value]} {name}")
    for number, names in enumerate(state.board.waves, 1):
        lines.append(f"Wave {number}")
        lines += [f"  {MARKS[state.marker(name).value]} {name}  {_about(terms, state, name)}" for name in names]
    if gone := [item for item in state.progress.items.values() if not item.is_planning and item.id not in state.tasks]:
        lines += ["Without a file", *(f"  {MARKS[item.marker.value]} {item.id}  {item.note}" for item in gone)]
    return [*lines, "", *([f"Spent:  {spent}"] if spent else []), f"Next:   {next_action(state)}"]


def _about(terms: Terms, state: SessionState, name: str) -> str:
    flow, task = state.of(name), state.tasks[name]
    facts = [task.title or task.objective[:60]]
    facts += [f"attempt {state.attempt(name)}"] if state.attempt(name) else []
    facts += [flow.step.value] if flow.step is not Step.REST else []
    if verdict := reports.parse(terms.report(state, name)).verdict:
        facts.append(verdict.value)
    if by := state.board.blocked.get(name):
        facts.append(f"blocked by {by}")
    if flow.branch:
        facts.append(f"its work is on {flow.branch}")
    elif flow.why and state.marker(name).value == "F":
        facts.append(flow.why.splitlines()[0][:80])
    return " · ".join(fact for fact in facts if fact)


def contract(state: SessionState) -> dict[str, Any]:
    """The session in the form that other tools know."""
    data = state.metadata
    return {
        "status": data.status,
        "session_id": data.session_id,
        "iteration": data.iteration,
        "current_state": data.state,
        "current_wave": data.current_wave,
        "tasks_summary": counts(state),
        "next_action": next_action(state),
    }


def next_action(state: SessionState) -> str:
    """What happens next, or what a person should do."""
    run = state.metadata.session_id
    if state.flow.stop:
        return f"{'paused' if state.flow.paused else 'blocked'}: {state.flow.stop}; `ralph session resume {run}` tries again"
    if state.state is not State.COMPLETE:
        return f"`ralph session resume {run}` goes on ({state.state.value})"
    if state.metadata.status == Status.COMPLETED:
        return f"done; `ralph session feedback {run}` begins another iteration"
    return f"look at the result and give feedback: `ralph session feedback {run}`, then `ralph session resume {run}`"
