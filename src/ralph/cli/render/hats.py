"""How the command line shows a run of hats."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ralph.cli.render.journal import DOUBLE, Renderer
from ralph.cli.render.session import SessionRenderer
from ralph.core.entries import ChecksStarted, Record, RunStarted
from ralph.core.events import DocumentEdited, MergeEnded, RunEnded, TurnEnded, TurnStarted, WorkCommitted
from ralph.core.limits import describe_cost, list_options_to_continue
from ralph.core.outcomes import Outcome
from ralph.core.text import shorten
from ralph.documents.agent.events import EventLine, parse_events
from ralph.documents.hats.definition import show_role
from ralph.workflows.loop.report import accept_command, add_up_changes, describe_change, format_duration


@dataclass
class HatsRenderer(SessionRenderer):
    """Renders the records of one run, with the events that its turns published."""

    events: Path = Path()
    """The file of its events."""
    read: int = 0
    """How many bytes of the file were read."""
    by_turn: dict[object, list[EventLine]] = field(default_factory=dict)

    def entry_lines(self, record: Record) -> list[str]:
        """The lines that the user reads for a record; none if it is of no interest."""
        match record.entry:
            case RunStarted(run=run, resumed=resumed):
                self._take_events_until(record.at)
                return [f"run {run} {'continues' if resumed else 'starts'}"]
            case TurnStarted() as entry:
                again = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
                role = show_role(entry.role)
                if entry.agent != self.agent:
                    role += f" ({entry.agent})"
                self.agent = entry.agent
                return ["", f"turn {entry.turn}: {role}{again}"]
            case ChecksStarted(checks=checks):
                return [f"running the checks: {' AND '.join(checks)}"]
            case TurnEnded(result=result) as entry:
                lines = self.turn_ended_lines(replace(entry, is_iteration=False))
                if result.change and result.change.files:
                    lines.append(f"  changed {describe_change(result.change)}")
                return [*lines, *self._event_lines(record.at)]
            case MergeEnded():
                return [*super().entry_lines(record), *self._event_lines(record.at)]
            case DocumentEdited():
                return []
            case WorkCommitted(commit=commit, notice=notice):
                lines = [f"checkpoint {commit[:10]}"] if commit else []
                if notice:
                    lines.append(f"note: {notice}")
                return lines
            case _:
                return super().entry_lines(record)

    def _event_lines(self, at: float) -> list[str]:
        return [f"  -> {_event_text(event)}" for event in self._take_events_until(at)]

    def _take_events_until(self, at: float) -> list[EventLine]:
        """The events that turns published until then and that were not shown yet."""
        self._read()
        now = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        taken: list[EventLine] = []
        for turn, events in self.by_turn.items():
            if turn:
                taken += [event for event in events if event.ts <= now]
            self.by_turn[turn] = [event for event in events if event.ts > now]
        return taken

    def _read(self) -> None:
        try:
            with self.events.open("rb") as file:
                file.seek(self.read)
                found, _, length = parse_events(file.read())
        except FileNotFoundError:
            return
        self.read += length
        for event in found:
            self.by_turn.setdefault(event.row.get("turn"), []).append(event)

    def closing(self, ended: RunEnded, report: str) -> list[str]:
        """The banner at the end: what happened, where the evidence is, and what to type next."""
        run, spent = self.run, ended.spent
        lines = [DOUBLE, f"Ralph run {run}: {ended.outcome.upper()}", DOUBLE, "", ended.reason]
        lines += [f"Turns: {spent.turns}, {format_duration(spent.active_seconds)} active, cost {describe_cost(spent)}"]
        lines += [
            f"Changes: {describe_change(add_up_changes(ended))}",
            f"Events: {self.locate(f'.ralph/{self.events.name}')}",
            f"Report: {self.locate(report)}",
        ]
        return [*lines, f"Next:   {self.then(ended)}", DOUBLE]

    def then(self, ended: RunEnded) -> str:
        if ended.outcome is Outcome.UNPROVEN:
            return f"ralph diff {self.run}, then {accept_command(self.run)}"
        is_limit = bool(list_options_to_continue(ended.outcome, ended.limits, ended.spent, ended.allowance))
        more = '   (--guidance "...")' if ended.outcome.resumable and not is_limit else ""
        # A run of hats continues with `ralph resume`, not with the commands of sessions.
        return Renderer.then(self, ended) + more


def _event_text(event: EventLine) -> str:
    why = " (by default)" if event.row.get("default") else ""
    if refuted := event.row.get("instead_of"):
        why = f" (the checks did not confirm {refuted})"
    return f"{event.topic}{why} {shorten(' '.join(event.text.split()), 120)}".rstrip()
