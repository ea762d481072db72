"""How the command line shows a run of hats."""

from dataclasses import dataclass, field, replace
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
from ralph.store.documents import digest
from ralph.workflows.loop.report import accept_command, add_up_changes, describe_change, format_duration


@dataclass
class HatsRenderer(SessionRenderer):
    """Renders the records of one run, with the events that its turns published."""

    events: Path = Path()
    """The file of its events."""
    offset: int = 0
    """How many bytes of the file were read."""
    unclaimed: dict[str, bytes] = field(default_factory=dict)
    """Lines of the file that no record was seen for yet, by hash. Others may write into the file, too."""
    expected: list[str] = field(default_factory=list)
    """The hashes of lines that the engine wrote and that were not shown yet."""

    def entry_lines(self, record: Record) -> list[str]:
        """The lines that the user reads for a record; none if it is of no interest."""
        self.expected += record.lines.get(f".ralph/{self.events.name}", ())
        match record.entry:
            case RunStarted(run=run, resumed=resumed):
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
                return [*lines, *self._event_lines()]
            case MergeEnded():
                return [*super().entry_lines(record), *self._event_lines()]
            case DocumentEdited():
                return []
            case WorkCommitted(commit=commit, notice=notice):
                lines = [f"checkpoint {commit[:10]}"] if commit else []
                if notice:
                    lines.append(f"note: {notice}")
                return lines
            case _:
                return super().entry_lines(record)

    def _event_lines(self) -> list[str]:
        """The events that turns published and that were not shown yet."""
        self._read_events()
        written = [name for name in self.expected if name in self.unclaimed]
        self.expected = [name for name in self.expected if name not in self.unclaimed]
        events, _, _ = parse_events(b"".join(self.unclaimed.pop(name) for name in written))
        return [f"  -> {_event_text(event)}" for event in events if event.row.get("turn")]

    def _read_events(self) -> None:
        try:
            with self.events.open("rb") as file:
                file.seek(self.offset)
                lines = [line for line in file if line.endswith(b"\n")]
        except FileNotFoundError:
            return
        self.offset += sum(map(len, lines))
        self.unclaimed |= {digest(line): line for line in lines}

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
