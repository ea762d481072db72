"""How the command line tells what happens in a loop: its journal as lines, a banner around an iteration and at the end."""

from dataclasses import dataclass

from ralph.cli.console import clock_time
from ralph.core.checks import CheckResult
from ralph.core.entries import (
    ChecksStarted,
    LimitExtended,
    MergeStarted,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RunStarted,
    SignalHeard,
    SignalRefused,
    SnapshotTaken,
    TurnStarted,
)
from ralph.core.events import (
    ChecksEnded,
    DocumentEdited,
    Event,
    Landed,
    Merged,
    MergeEnd,
    RunEnded,
    SignalTaken,
    TurnEnded,
    WorkCommitted,
)
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd
from ralph.workflows.loop.report import changes_text, cost, duration, totals
from ralph.workflows.loop.rules import HOME, Loop, reopened
from ralph.workflows.loop.state import LoopState, Phase
from ralph.workflows.loop.verdicts import how

RULE, DOUBLE = "─" * 60, "═" * 60
_LIMITS = {
    Outcome.LIMIT_ITERATIONS: "MAX_ITERATIONS",
    Outcome.LIMIT_TIME: "TIMEOUT",
    Outcome.LIMIT_DEADLINE: "DEADLINE",
    Outcome.LIMIT_COST: "MAX_COST",
    Outcome.LIMIT_TOKENS: "MAX_TOKENS",
}


@dataclass
class Teller:
    """Tells the records of one loop, one after the other; it follows the loop's state to know what was learned."""

    loop: Loop
    state: LoopState
    begun: str = ""
    """The iteration whose beginning was told last."""

    def lines(self, record: Record) -> list[str]:
        """A record as the lines that a person reads; none where it is of no interest."""
        entry, before = record.entry, self.state
        if isinstance(entry, RunStarted) and entry.resumed:
            self.state = reopened(before)
        elif isinstance(entry, Event) and not (isinstance(entry, TurnEnded) and entry.retry_at is not None):
            self.state = self.loop.follow(before, entry)
        match entry:
            case RunStarted(run=run, resumed=resumed):
                return [f"run {run} {'goes on' if resumed else 'starts'}"]
            case LimitExtended(reason=reason):
                return [f"the limit was extended: {reason}"]
            case TurnStarted():
                return self._turn_started(entry)
            case TurnEnded():
                return [*turn_ended_lines(entry), *(self._learned() if before.phase is Phase.REFLECT else ())]
            case ChecksStarted(key="baseline"):
                return ["baseline: checking before any turn"]
            case ChecksStarted(checks=checks):
                return ["", f"Verifying: {' AND '.join(checks)}"]
            case ChecksEnded():
                return self._checked(entry, baseline=before.phase is Phase.BASELINE)
            case WorkCommitted(commit=commit, notice=notice):
                said = [f"committed as {commit[:10]}"] if commit else []
                said += [f"note: {notice}"] if notice else []
                return [*said, *(() if self.state.phase is Phase.REFLECT else self._learned())]
            case SignalTaken() | SignalHeard() | SignalRefused() | QuestionAsked() | QuestionAnswered():
                return said_lines(entry)
            case DocumentEdited(path=path):
                return [f"{path} was edited by somebody else and taken in"]
            case Notice(text=text):
                return [f"note: {text}"]
            case MergeStarted(workspace=workspace):
                return [f"merging {workspace}"]
            case Merged():
                return merged_lines(entry)
            case Landed():
                return landed_lines(entry)
            case SnapshotTaken() | RunEnded():
                return []

    def _turn_started(self, entry: TurnStarted) -> list[str]:
        who = "asked for a better answer" if entry.repair else f"{entry.role} ({entry.agent})"
        line = f"turn {entry.turn}: {who}" + (f", attempt {entry.attempt}" if entry.attempt > 1 else "")
        line += words_line(entry)
        if not entry.counts or entry.key == self.begun:
            return ["", line]
        self.begun = entry.key
        most, past = self.loop.fixed.most, self.state.iterations
        head = f"Ralph Loop: Iteration {self.state.iteration}" + (f"/{most}" if most else "")
        lines = ["", RULE, head, RULE]
        if past and past[-1].learnings:
            lines += ["", f"Previous learnings: {past[-1].learnings}"]
        return [*lines, "", line]

    def _checked(self, entry: ChecksEnded, *, baseline: bool) -> list[str]:
        verdict = entry.verdict
        found = [f"  {f.severity.upper()} {f.place} [{f.rule}] {f.sentence}" for f in verdict.findings]
        lines = [*map(check_line, verdict.results), *found]
        if baseline:
            return lines
        result = "PASS" if verdict.passed else "COULD NOT RUN" if verdict.unrunnable else "FAIL"
        lines.append(f"Result: {result}")
        waits = {Phase.REFLECT, Phase.COMMIT}.intersection((self.state.phase, *self.state.ahead))
        return lines if waits else [*lines, *self._learned()]

    def _learned(self) -> list[str]:
        """What the last iteration teaches, and what follows."""
        state, lines = self.state, [""]
        last = state.iterations[-1] if state.iterations else None
        if last and not last.passed and last.learnings:
            lines += [f"Learning: {last.why or last.learnings}"]
            lines += [f"Next approach: {last.try_next}"] if last.try_next else []
        goes_on = Phase.ACT in (state.phase, *state.ahead)
        if goes_on and (self.loop.fixed.most is None or state.iteration <= self.loop.fixed.most):
            if state.pivot:
                lines.append(
                    "Stuck: the same failure again and again. A fundamentally different approach is asked for."
                )
            lines += ["", f"Continuing to iteration {state.iteration}..."]
        return [*lines, RULE]

    def closing(self, ended: RunEnded, report: str) -> list[str]:
        """The banner at the end of a run: what happened, where the evidence is, what to type next."""
        if ended.outcome.succeeded:
            return self._complete(ended, report)
        run, state, spent = self.loop.fixed.loop, self.state, ended.spent
        limit = _LIMITS.get(ended.outcome)
        last = state.iterations[-1] if state.iterations else None
        lessons = [f"- Iteration {i.number}: {i.learnings}" for i in state.iterations[-5:] if i.learnings]
        return [
            *(DOUBLE, f"Ralph Loop: {'LIMIT REACHED' if limit else _headline(ended.outcome)}", DOUBLE, ""),
            f"Task: {state.task}",
            f"Status: {limit or _headline(ended.outcome)} ({ended.reason})",
            f"Iterations completed: {spent.iterations}",
            f"Duration: {duration(spent.active_seconds)} · turns {spent.turns} · cost {cost(spent)}",
            *(("", "Last attempt:", last.action) if last else ()),
            *(("", "Last failure:", *state.failure.splitlines()[-12:]) if state.failure else ()),
            *(("", "Learnings accumulated:", *lessons) if lessons else ()),
            *(("", "Options:", *self._options(ended)) if ended.outcome.resumable else ()),
            *(("", f"Report: {report}") if report else ("",)),
            f"State saved to: {HOME}/current-loop.json",
            *(() if ended.outcome.resumable else (f"Next:   ralph diff {run}   (or: ralph abort {run} --revert)",)),
            DOUBLE,
        ]

    def _options(self, ended: RunEnded) -> list[str]:
        run, best = self.loop.fixed.loop, self.state.best
        most = 2 * (ended.limits.iterations or 10)
        last = self.state.iterations[-1].snapshot if self.state.iterations else ""
        options = {
            Outcome.LIMIT_ITERATIONS: f"- ralph resume {run} --max-iterations {most}",
            Outcome.AWAITING_GUIDANCE: f'- ralph resume {run} --guidance "what to do differently"',
            Outcome.STUCK: f'- ralph resume {run} --guidance "what to do differently"',
        }
        lines = [options[ended.outcome]] if ended.outcome in options else []
        lines += [f"- ralph resume {run}   (continue from here)"]
        if best and best.snapshot != last:
            lines.append(f"- ralph restore best {run}   (iteration {best.number} was the best: {best.result[:80]})")
        return [*lines, f"- ralph abort {run}   (--revert takes its changes back)", f"- ralph diff {run}"]

    def _complete(self, ended: RunEnded, report: str) -> list[str]:
        state, spent, total = self.state, ended.spent, totals(ended)
        return [
            *(DOUBLE, "Ralph Loop: COMPLETE", DOUBLE, ""),
            f"Task: {state.task}",
            f"Status: {'SUCCESS' if ended.outcome is Outcome.SUCCESS else _headline(ended.outcome)} ({ended.reason})",
            f"Iterations: {spent.iterations}",
            f"Duration: {duration(spent.active_seconds)}",
            *("", "Verification:", *state.verification.splitlines()[-12:], ""),
            "Summary:",
            f"- Files modified: {total.files}",
            f"- Total changes: +{total.added}, -{total.removed}",
            f"- Turns: {spent.turns}, cost {cost(spent)}",
            *(("", f"Report: {report}") if report else ("",)),
            f"Next:   ralph diff {self.loop.fixed.loop}",
            DOUBLE,
        ]


def _headline(outcome: Outcome) -> str:
    return outcome.upper().replace("-", " ")


def turn_ended_lines(entry: TurnEnded) -> list[str]:
    """How a turn ended."""
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
    if result.left:
        lines.append(f"  not its own, and not taken: {', '.join(result.left[:8])}")
    if entry.retry_at is not None and result.end is not TurnEnd.INTERRUPTED:
        lines.append(f"  next try at {clock_time(entry.retry_at)}: {entry.retry_reason}")
    if not entry.counts or entry.retry_at is not None:
        return lines
    change = result.change
    said = str((result.answer or {}).get("summary", "")) or "(it did not say)"
    lines += ["", "This iteration:", f"- Approach: {said}"]
    return [*lines, f"- Changes: {changes_text(change)}"] if change else lines


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
            return [f"signal {signal.type}{whom} taken" + (f": {signal.message}" if signal.message else "")]
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
    """What came of a merge."""
    said = {
        MergeEnd.MERGED: f"merged {entry.workspace} as {entry.commit[:10]}",
        MergeEnd.NOTHING: f"{entry.workspace} changed nothing: nothing to merge",
        MergeEnd.CONFLICT: f"{entry.workspace} conflicts with what was merged: {', '.join(entry.files[:5])}",
        MergeEnd.REVERTS: f"{entry.workspace} would take back what was merged: {', '.join(entry.files[:5])}",
        MergeEnd.RED: f"{entry.workspace} merges, and the checks fail on the merged tree",
    }
    checks = [check_line(result) for result in entry.verdict.results if not result.passed] if entry.verdict else []
    return ["  " + said[entry.end], *checks, *([f"note: {entry.notice}"] if entry.notice else [])]


def landed_lines(entry: Landed) -> list[str]:
    """Where the work of a run is."""
    return [f"landed {entry.commit[:10]} on {entry.branch}" if entry.moved else entry.notice]


def check_line(result: CheckResult) -> str:
    """What came of a check."""
    mark = "PASS" if result.passed else "FAIL" if result.status == "failed" else "????"
    said = how(result)
    return f"  {mark} {result.title}  {duration(result.seconds)}" + ("" if said == "passed" else f" ({said})")
