"""The journal of a run as lines that the user reads."""

from dataclasses import dataclass
from typing import ClassVar

from ralph.cli.console import clock_time, one_line
from ralph.core.checks import CheckResult, Verdict
from ralph.core.entries import (
    AgentsChanged,
    ChecksStarted,
    HistoryChanged,
    LimitExtended,
    MergeStarted,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RunAdopted,
    RunStarted,
    SignalHeard,
    SignalRefused,
    SnapshotTaken,
    TurnStarted,
)
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Landed,
    Merged,
    MergeEnd,
    RunEnded,
    SignalTaken,
    TurnEnded,
    WorkCommitted,
)
from ralph.core.limits import ways_to_go_on
from ralph.core.turns import TurnEnd
from ralph.workflows.loop.report import changes_text, cost, duration
from ralph.workflows.loop.verdicts import how

RULE, DOUBLE = "─" * 60, "═" * 60


@dataclass
class Renderer:
    """Renders the records of one run, in order."""

    noun: ClassVar[str] = "run"
    run: str
    agent: str = ""
    """The agent that was told last: it is named again only where another takes over."""

    def lines(self, record: Record) -> list[str]:
        """A record as the lines that a person reads; none where it is of no interest."""
        match record.entry:
            case RunStarted(resumed=resumed):
                return [f"{self.noun} {self.run} {'goes on' if resumed else 'starts'}"]
            case RunAdopted(reason=reason, claimed=claimed):
                return [f"run {self.run} was adopted ({reason}); what was claimed before is in {claimed}"]
            case HistoryChanged(turn=turn, change=change):
                lines = [f"turn {turn}: {sentence}" for sentence in change.commits]
                return [*lines, *(f"MISSING: {sentence}" for sentence in change.missing)] or [
                    "nothing is missing any more"
                ]
            case AgentsChanged(label=label):
                return [f"from here on {label} does the turns"]
            case LimitExtended(reason=reason):
                return [f"the limit was extended: {reason}"]
            case TurnStarted() as entry:
                who = f"{entry.role} ({entry.agent})" if entry.agent != self.agent else entry.role
                self.agent = entry.agent
                asked = "asked for a better answer" if entry.repair else self.about(entry.key)
                return [f"turn {entry.turn}: {who}, {asked}{words_line(entry)}"]
            case TurnEnded() as entry:
                return turn_ended_lines(entry)
            case ChecksStarted(key=key, checks=checks):
                return [f"checking {self.about(key)}: {' AND '.join(checks)}"]
            case ChecksEnded(verdict=verdict):
                return checked_lines(verdict)
            case MergeStarted(workspace=workspace):
                return [f"merging {workspace}"]
            case Merged() as entry:
                return merged_lines(entry)
            case Landed(moved=moved, notice=notice) as entry:
                return [f"landed {entry.commit[:10]} on {entry.branch}" if moved else notice]
            case SignalTaken() | SignalHeard() | SignalRefused() | QuestionAsked() | QuestionAnswered() as entry:
                return said_lines(entry)
            case DocumentEdited(path=path):
                return [f"{path} was taken in"]
            case Notice(text=text):
                return [f"note: {text}"]
            case SnapshotTaken() | RunEnded() | WorkCommitted():
                return []

    def about(self, key: str) -> str:
        """What a turn or a check is for, in words."""
        return key

    def closing(self, ended: RunEnded, report: str) -> list[str]:
        """The banner at the end: what happened, where the evidence is, and what to type next."""
        facts = [f"{ended.spent.turns} turns", f"{duration(ended.spent.active_seconds)} active"]
        facts.append(f"cost {cost(ended.spent)}")
        lines = [DOUBLE, f"{self.noun.title()} {self.run}: {ended.outcome.replace('-', ' ')}", DOUBLE, "", ended.reason]
        return [*lines, f"Spent:  {', '.join(facts)}", f"Next:   {self.then(ended)}", DOUBLE]

    def then(self, ended: RunEnded) -> str:
        """What to type next."""
        if ways := ways_to_go_on(ended.outcome, ended.limits, ended.spent):
            return f"ralph resume {self.run} {ways[0].option}   ({ways[0].grants})"
        return f"ralph {'resume' if ended.outcome.resumable else 'diff'} {self.run}"


def turn_ended_lines(entry: TurnEnded) -> list[str]:
    result = entry.result
    how_it_ended = "was ended" if result.end in (TurnEnd.WALL, TurnEnd.IDLE) else result.end
    facts = [f"turn {entry.turn} {how_it_ended} after {duration(result.seconds)}"]
    if result.usage.cost is not None:
        facts.append(f"${result.usage.cost:.4f}")
    if result.survivors:
        facts.append(f"{result.survivors} left-over processes ended")
    lines = ["  " + " · ".join(facts)]
    if result.error and result.end not in (TurnEnd.STOPPED, TurnEnd.STEERED):
        lines.append(f"  {result.error}")
    lines += [f"  DENIED: {denied}" for denied in result.denied[:5]]
    lines += [f"  warning: {warning}" for warning in result.warnings]
    if result.left:
        more = f" and {len(result.left) - 8} more" if len(result.left) > 8 else ""
        lines.append(f"  not its own, or too much, and not taken: {', '.join(result.left[:8])}{more}")
    if entry.retry_at is not None and result.end is not TurnEnd.INTERRUPTED:
        lines.append(f"  next try at {clock_time(entry.retry_at)}: {entry.retry_reason}")
    if not entry.counts or entry.retry_at is not None:
        return lines
    change = result.change
    last_words = one_line(result.text.strip().rpartition("\n")[2])[:200]
    said = str((result.answer or {}).get("summary", "")) or last_words or "(it did not say)"
    lines += ["", "This iteration:", f"- Approach: {said}"]
    if not change:
        return lines
    more = f" and {change.files - len(change.names)} more" if change.files > len(change.names) else ""
    names = f" ({', '.join(change.names)}{more})" if change.names else ""
    return [*lines, f"- Changes: {changes_text(change)}{names}"]


def words_line(entry: TurnStarted) -> str:
    """What of a person's words a turn is told when it starts."""
    if not entry.words:
        return ""
    more = f" and {len(entry.words) - 5} others" if len(entry.words) > 5 else ""
    return f"\n  told in its prompt: {', '.join(entry.words[:5])}{more}"


def said_lines(entry: SignalTaken | SignalHeard | SignalRefused | QuestionAsked | QuestionAnswered) -> list[str]:
    """What a person said to a run, and what it asked the person."""
    match entry:
        case SignalTaken(signal=signal):
            whom = f" for {signal.target}" if signal.target else ""
            words = " ".join(signal.message.split())
            return [f"signal {signal.type}{whom} taken" + (f": {words}" if words else "")]
        case SignalHeard(id=name, turn=turn, role=role, means=means):
            return [f"  turn {turn} ({role}) heard {name} ({means})"]
        case SignalRefused(name=name, reason=reason):
            return [f"note: signal {name} was set aside: {reason}"]
        case QuestionAsked(question=asked):
            options = f" [{' | '.join(asked.options)}]" if asked.options else ""
            default = f", else {asked.default!r} counts" if asked.default else ""
            until = f"  until {clock_time(asked.asked_at + asked.timeout)}{default}"
            return [
                "",
                f"QUESTION {asked.id} ({asked.role}): {asked.question}{options}",
                f'{until}: ralph answer {asked.id} "..."',
            ]
        case QuestionAnswered(id=one, answer=answer, by=by):
            return [f"question {one} was answered by {by}: {answer}"]


def merged_lines(entry: Merged) -> list[str]:
    said = {
        MergeEnd.MERGED: f"merged {entry.workspace}" + (f" as {entry.commit[:10]}" if entry.commit else ""),
        MergeEnd.NOTHING: f"{entry.workspace} changed nothing: nothing to merge",
        MergeEnd.CONFLICT: f"{entry.workspace} conflicts with what was merged: {', '.join(entry.files[:5])}",
        MergeEnd.REVERTS: f"{entry.workspace} would take back what was merged: {', '.join(entry.files[:5])}",
        MergeEnd.RED: f"{entry.workspace} merges, and the checks fail on the merged tree",
    }
    checks = [check_line(result) for result in entry.verdict.results if not result.passed] if entry.verdict else []
    return ["  " + said[entry.end], *checks, *([f"note: {entry.notice}"] if entry.notice else [])]


def checked_lines(verdict: Verdict) -> list[str]:
    """What came of checks, and what the guards found."""
    found = [f"  {f.severity.upper()} {f.place} [{f.rule}] {f.sentence}" for f in verdict.findings]
    return [*map(check_line, verdict.results), *found]


def check_line(result: CheckResult) -> str:
    mark = "PASS" if result.passed else "FAIL" if result.status == "failed" else "????"
    said = how(result)
    return f"  {mark} {result.title}  {duration(result.seconds)}" + ("" if said == "passed" else f" ({said})")
