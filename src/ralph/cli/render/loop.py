"""How the command line tells what happens in a loop: a banner around an iteration and at the end."""

from dataclasses import dataclass, field, replace

from ralph.cli.render.journal import DOUBLE, RULE, Renderer, checked_lines, turn_ended_lines, words_line
from ralph.core.entries import ChecksStarted, LimitExtended, Record, RunStarted, TurnStarted
from ralph.core.events import ChecksEnded, Event, RunEnded, TurnEnded, WorkCommitted
from ralph.core.limits import Limits, ways_to_go_on
from ralph.core.outcomes import Outcome
from ralph.core.work_keys import BASELINE, WorkKey
from ralph.workflows.loop import HOME
from ralph.workflows.loop.report import cost, duration, totals
from ralph.workflows.loop.rules import Loop, reopened
from ralph.workflows.loop.state import LoopState, Phase

_LIMITS = {
    Outcome.LIMIT_ITERATIONS: "MAX_ITERATIONS",
    Outcome.LIMIT_TIME: "TIMEOUT",
    Outcome.LIMIT_DEADLINE: "DEADLINE",
    Outcome.LIMIT_COST: "MAX_COST",
    Outcome.LIMIT_TOKENS: "MAX_TOKENS",
}


@dataclass
class LoopRenderer(Renderer):
    """Tells the records of one loop, one after the other; it follows the loop's state to know what was learned."""

    loop: Loop = field(kw_only=True)
    state: LoopState = field(kw_only=True)
    begun: str = ""
    """The iteration whose beginning was told last."""

    def lines(self, record: Record) -> list[str]:
        entry, before = record.entry, self.state
        if isinstance(entry, LimitExtended):
            self._extend(entry.limits)
        if isinstance(entry, RunStarted) and entry.resumed:
            self.state = reopened(before)
        elif isinstance(entry, Event) and not (isinstance(entry, TurnEnded) and entry.retry_at is not None):
            self.state = self.loop.follow(before, entry)
        match entry:
            case TurnStarted():
                return self._turn_started(entry)
            case TurnEnded():
                return [*turn_ended_lines(entry), *(self._learned() if before.phase is Phase.REFLECT else ())]
            case ChecksStarted(key=key) if WorkKey.parse(key) == BASELINE:
                return ["baseline: checking before any turn"]
            case ChecksStarted(checks=checks):
                return ["", f"Verifying: {' AND '.join(checks)}"]
            case ChecksEnded():
                return self._checked(entry, baseline=before.phase is Phase.BASELINE)
            case WorkCommitted(commit=commit, notice=notice):
                said = [f"committed as {commit[:10]}"] if commit else []
                said += [f"note: {notice}"] if notice else []
                return [*said, *(() if self.state.phase is Phase.REFLECT else self._learned())]
            case _:
                return super().lines(record)

    def _extend(self, limits: Limits) -> None:
        fixed = replace(self.loop.fixed, most=limits.iterations, timeout=limits.active_seconds)
        self.loop = replace(self.loop, fixed=fixed)

    def _turn_started(self, entry: TurnStarted) -> list[str]:
        who = "asked for a better answer" if entry.repair else f"{entry.role} ({entry.agent})"
        line = f"turn {entry.turn}: {who}" + (f", attempt {entry.attempt}" if entry.attempt > 1 else "")
        line += words_line(entry)
        if not entry.counts or entry.key == self.begun:
            return ["", line]
        self.begun = entry.key
        most, past = self.loop.fixed.most, self.state.iterations
        head = f"Ralph Loop: Iteration {self.state.iteration}" + (f"/{most}" if most else "")
        lines = [*self._continuing(), "", RULE, head, RULE]
        if past and past[-1].learnings:
            lines += ["", f"Previous learnings: {past[-1].learnings}"]
        return [*lines, "", line]

    def _checked(self, entry: ChecksEnded, *, baseline: bool) -> list[str]:
        verdict = entry.verdict
        lines = checked_lines(verdict)
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
        return lines

    def _continuing(self) -> list[str]:
        """That the loop goes on; said only when it does, since a limit may end it before the next turn."""
        if not self.state.iterations:
            return []
        lines = [""]
        if self.state.pivot:
            stalled = self.state.progress.stalled
            lines.append(f"Stuck: {stalled} iterations without progress. The agent is asked for another approach.")
        return [*lines, f"Continuing to iteration {self.state.iteration}..."]

    def closing(self, ended: RunEnded, report: str) -> list[str]:
        if ended.outcome.succeeded:
            return self._complete(ended, report)
        run, state, spent = self.run, self.state, ended.spent
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
        run, best = self.run, self.state.best
        last = self.state.iterations[-1].snapshot if self.state.iterations else ""
        ways = ways_to_go_on(ended.outcome, ended.limits, ended.spent)
        lines = [f"- ralph resume {run} {way.option}   ({way.grants})" for way in ways]
        if ended.outcome in (Outcome.STUCK, Outcome.AWAITING_GUIDANCE):
            lines.append(f'- ralph resume {run} --guidance "what to do differently"')
            lines.append(f"- ralph resume {run} --agent NAME   (another agent; or --model NAME, another model)")
        if not ways:
            lines.append(f"- ralph resume {run}   (continue from here)")
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
            f"Next:   ralph diff {self.run}",
            DOUBLE,
        ]


def _headline(outcome: Outcome) -> str:
    return outcome.upper().replace("-", " ")
