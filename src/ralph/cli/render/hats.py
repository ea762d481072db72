"""How the command line tells what happens in a run of hats."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ralph.cli.render.journal import DOUBLE, Renderer, turn_ended_lines
from ralph.cli.render.session import SessionRenderer
from ralph.core.entries import Record, RunStarted, TurnStarted
from ralph.core.events import DocumentEdited, Merged, RunEnded, TurnEnded, WorkCommitted
from ralph.core.limits import ways_to_go_on
from ralph.documents.agent.events import Event, parse
from ralph.workflows.loop.report import changes_text, cost, duration, totals


@dataclass
class HatsRenderer(SessionRenderer):
    """Tells the records of one run, one after the other, with the events that its turns published."""

    events: Path = Path()
    """The file of its events."""
    read: int = 0
    """How much of the file of events was read."""
    by_turn: dict[object, list[Event]] = field(default_factory=dict)

    def lines(self, record: Record) -> list[str]:
        """A record as the lines that a person reads; none where it is of no interest."""
        match record.entry:
            case RunStarted(run=run, resumed=resumed):
                self._until(record.at)
                return [f"run {run} {'goes on' if resumed else 'starts'}"]
            case TurnStarted() as entry:
                again = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
                who = f"{entry.role} ({entry.agent})" if entry.agent != self.agent else entry.role
                self.agent = entry.agent
                return ["", f"turn {entry.turn}: {who}{again}"]
            case TurnEnded(result=result) as entry:
                lines = turn_ended_lines(replace(entry, counts=False))
                changed = [f"  changed {changes_text(result.change)}"] if result.change and result.change.files else []
                return [*lines, *changed, *(f"  -> {_told(event)}" for event in self._until(record.at))]
            case Merged():
                return [*super().lines(record), *(f"  -> {_told(event)}" for event in self._until(record.at))]
            case DocumentEdited():
                return []
            case WorkCommitted(commit=commit, notice=notice):
                return [*([f"checkpoint {commit[:10]}"] if commit else []), *([f"note: {notice}"] if notice else [])]
            case _:
                return super().lines(record)

    def _until(self, at: float) -> list[Event]:
        """What turns published until then, and was not told of yet."""
        self._read()
        now = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        untold = [event for turn, events in self.by_turn.items() if turn for event in events if event.ts <= now]
        self.by_turn = {t: left for t, events in self.by_turn.items() if (left := [e for e in events if e.ts > now])}
        return untold

    def _read(self) -> None:
        try:
            with self.events.open("rb") as file:
                file.seek(self.read)
                found, _, length = parse(file.read())
        except FileNotFoundError:
            return
        self.read += length
        for event in found:
            self.by_turn.setdefault(event.row.get("turn"), []).append(event)

    def closing(self, ended: RunEnded, report: str) -> list[str]:
        """The banner at the end: what happened, where the evidence is, and what to type next."""
        run, spent = self.run, ended.spent
        lines = [DOUBLE, f"Ralph run {run}: {ended.outcome.upper()}", DOUBLE, "", ended.reason]
        lines += [f"Turns: {spent.turns}, {duration(spent.active_seconds)} active, cost {cost(spent)}"]
        lines += [f"Changes: {changes_text(totals(ended))}", f"Events: .ralph/{self.events.name}", f"Report: {report}"]
        return [*lines, f"Next:   {self.then(ended)}", DOUBLE]

    def then(self, ended: RunEnded) -> str:
        is_limit = bool(ways_to_go_on(ended.outcome, ended.limits, ended.spent))
        more = '   (--guidance "...")' if ended.outcome.resumable and not is_limit else ""
        # A run of hats goes on with `ralph resume`, not with the commands of sessions.
        return Renderer.then(self, ended) + more


def _told(event: Event) -> str:
    why = " (by default)" if event.row.get("default") else ""
    return f"{event.topic}{why} {' '.join(event.text.split())[:120]}".rstrip()
