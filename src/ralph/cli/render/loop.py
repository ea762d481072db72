"""How the command line shows a loop: a banner around every iteration and at the end."""

import re
from dataclasses import dataclass, field, replace

from ralph.cli.console import one_line
from ralph.cli.render.journal import DOUBLE, RULE, Renderer, checked_lines, received_line
from ralph.core.entries import ChecksStarted, LimitExtended, Record, RunStarted
from ralph.core.events import ChecksEnded, Event, RunEnded, TurnEnded, TurnStarted, WorkCommitted
from ralph.core.ids import BASELINE, WorkKey, WorkKind
from ralph.core.limits import Limits, Spent, describe_cost, list_options_to_continue, suggest_option_to_continue
from ralph.core.outcomes import Outcome
from ralph.core.text import count, shorten
from ralph.workflows.loop import HOME
from ralph.workflows.loop.report import (
    accept_command,
    add_up_changes,
    allow_command,
    format_duration,
    is_worth_restoring,
    list_lessons,
    name_best,
)
from ralph.workflows.loop.rules import Loop, reopen
from ralph.workflows.loop.state import LoopState, Phase

_LIMITS = {
    Outcome.LIMIT_ITERATIONS: "MAX_ITERATIONS",
    Outcome.LIMIT_TIME: "TIMEOUT",
    Outcome.LIMIT_DEADLINE: "DEADLINE",
    Outcome.LIMIT_COST: "MAX_COST",
    Outcome.LIMIT_TOKENS: "MAX_TOKENS",
    Outcome.LIMIT_QUOTA: "MAX_QUOTA",
}

_FENCE = re.compile(r"(?:`{3,}|~{3,})\w*")
_FAILURE_LINES = 12
"""How many lines of the last failure are shown."""
_LONG_WAIT = 10.0
"""Seconds of waiting that the duration mentions."""
_SHOWN = 5
"""How many past iterations, or attempts without progress, are listed."""


@dataclass
class LoopRenderer(Renderer):
    """Renders the records of one loop. It follows the loop's state to know what was learned."""

    loop: Loop = field(kw_only=True)
    state: LoopState = field(kw_only=True)
    begun: str = ""
    """The iteration whose banner was shown last."""
    started_at: float = 0.0
    """When the run started; 0 if that was another time."""
    ended_at: float = 0.0
    told: int = 0
    """The iteration whose lesson was shown last."""

    def entry_lines(self, record: Record) -> list[str]:
        entry, before = record.entry, self.state
        if isinstance(entry, LimitExtended):
            self._extend(entry.limits)
        self._note_time(record)
        if isinstance(entry, RunStarted) and entry.resumed:
            self.state = reopen(before)
        elif isinstance(entry, Event) and not (isinstance(entry, TurnEnded) and entry.retry_at is not None):
            self.state = self.loop.apply_event(before, entry)
        match entry:
            case TurnStarted():
                return self._turn_started(entry)
            case TurnEnded():
                return [*self.turn_ended_lines(entry), *self._render_conclusion(entry, before.phase)]
            case ChecksStarted(key=key) if WorkKey.parse(key) == BASELINE:
                return ["baseline: running the checks before the first turn"]
            case ChecksStarted():
                return ["", self._name_checks(entry)]
            case ChecksEnded():
                return self._render_checks(entry, baseline=before.phase is Phase.BASELINE)
            case WorkCommitted(commit=commit, notice=notice):
                lines = [f"committed as {commit[:10]}"] if commit else []
                if notice:
                    lines.append(f"note: {notice}")
                if self.state.phase is not Phase.REFLECT:
                    lines += self._render_lesson()
                return lines
            case _:
                return super().entry_lines(record)

    def _note_time(self, record: Record) -> None:
        if isinstance(record.entry, RunStarted):
            self.started_at = 0.0 if record.entry.resumed else record.at
        if isinstance(record.entry, RunEnded):
            self.ended_at = record.at

    def _name_checks(self, entry: ChecksStarted) -> str:
        work = WorkKey.parse(entry.key)
        if work and work.kind is WorkKind.JUDGE_TESTS:
            return f"Verifying with the judge's own tests: {', '.join(dict(self.state.judge_tests))}"
        return f"Verifying: {' AND '.join(entry.checks)}"

    def _render_conclusion(self, entry: TurnEnded, phase: Phase) -> list[str]:
        """The result of a turn that only reads: the lesson of a reflector, or the opinion of a judge."""
        if phase is Phase.REFLECT:
            return self._render_lesson()
        return _render_judgment(entry) if phase is Phase.JUDGE else []

    def _extend(self, limits: Limits) -> None:
        settings = replace(self.loop.settings, max_iterations=limits.iterations, timeout=limits.active_seconds)
        self.loop = replace(self.loop, settings=settings)

    def _turn_started(self, entry: TurnStarted) -> list[str]:
        role = "asked to correct its answer" if entry.is_repair else f"{entry.role} ({entry.agent})"
        line = f"turn {entry.turn}: {role}" + (f", attempt {entry.attempt}" if entry.attempt > 1 else "")
        line += received_line(self, entry)
        if not entry.is_iteration or entry.key == self.begun:
            return ["", line]
        self.begun = entry.key
        most, past = self.loop.settings.max_iterations, self.state.iterations
        head = f"Ralph Loop: Iteration {self.state.iteration}" + (f"/{most}" if most else "")
        lines = [*self._continuing(), "", RULE, head, RULE]
        if past and past[-1].learnings and past[-1].number != self.told:
            lines += ["", f"Previous learnings: {past[-1].learnings}"]
        return [*lines, "", line]

    def _render_checks(self, entry: ChecksEnded, *, baseline: bool) -> list[str]:
        verdict = entry.verdict
        lines = checked_lines(verdict)
        if baseline:
            return lines
        result = "PASS" if verdict.passed else "FAIL"
        if verdict.first_unrunnable and not verdict.passed:
            result = "COULD NOT RUN"
        is_unproven = verdict.is_unproven and not verdict.blocking_findings
        if is_unproven:
            result = "PASS, but not proven"
        lines.append(f"Result: {result}")
        if self.state.phase is Phase.JUDGE or Phase.JUDGE in self.state.next_phases:
            files = verdict.evidence.to_judge[:_SHOWN] if verdict.evidence else ()
            what = f"the changed tests and settings: {', '.join(files)}" if files else "the work"
            lines.append(f"A judge (a turn with a fresh context) now reads {what}")
        waits = {Phase.REFLECT, Phase.COMMIT}.intersection((self.state.phase, *self.state.next_phases))
        return lines if waits or verdict.passed or is_unproven else [*lines, *self._render_lesson()]

    def _render_lesson(self) -> list[str]:
        """What the last iteration taught, and what to try next."""
        state, lines = self.state, [""]
        last = state.iterations[-1] if state.iterations else None
        if not last or last.passed:
            return lines
        self.told = last.number
        if state.progress.stalled:
            lines.append(f"No progress in {count(state.progress.stalled, 'iteration')}.")
        # Without a reason, the learnings repeat what to try next.
        if learning := last.why or ("" if last.try_next else last.learnings):
            lines.append(f"Learning: {learning}")
        if last.try_next:
            lines.append(f"Next approach: {last.try_next}")
        return lines

    def _continuing(self) -> list[str]:
        """That the loop continues. It is printed with the next turn, because a limit may end the loop before that."""
        if not self.state.iterations:
            return []
        lines = [""]
        if self.state.pivot:
            stalled = self.state.progress.stalled
            lines.append(
                f"Stuck: {count(stalled, 'iteration')} without progress. Ralph asks the agent for a different approach."
            )
            tried = [f"- {one.action} -> {one.result}" for one in self.state.tried[-_SHOWN:]]
            lines += ["Tried so far:", *tried] if tried else []
        return [*lines, f"Continuing to iteration {self.state.iteration}..."]

    def closing(self, ended: RunEnded, report: str) -> list[str]:
        if ended.outcome.succeeded:
            return self._complete(ended, report)
        state, spent = self.state, ended.spent
        limit = _LIMITS.get(ended.outcome)
        last = state.unverified_iteration or (state.iterations[-1] if state.iterations else None)
        unverified = ""
        if state.unverified_iteration:
            unverified = " (not verified)"
            if ended.outcome.resumable:
                unverified = " (not verified yet; `ralph resume` verifies it first)"
        judged = f"iteration {state.iterations[-1].number}" if state.iterations else "before the run"
        lessons = list_lessons(state.iterations)
        if len(lessons) > _SHOWN:
            earlier = count(len(lessons) - _SHOWN, "earlier lesson")
            lessons = [f"({earlier}: ralph report {self.run})", *lessons[-_SHOWN:]]
        # The reason of an unproven run says what is missing. No check failed.
        has_failed = bool(state.check_results) and ended.outcome is not Outcome.UNPROVEN
        return [
            *(DOUBLE, f"Ralph Loop: {'LIMIT REACHED' if limit else _headline(ended.outcome)}", DOUBLE, ""),
            f"Task: {state.task}",
            f"Status: {limit or _headline(ended.outcome)} ({ended.reason})",
            f"Iterations completed: {self._count_completed(spent)}",
            f"Duration: {self._describe_duration(spent)} · turns {spent.turns} · cost {describe_cost(spent)}",
            *(("", "Last attempt:", last.action + unverified) if last else ()),
            *(("", f"Last failure ({judged}):", *_last_lines(state.check_results)) if has_failed else ()),
            *(("", "Findings that prevent success:", *last.blocking) if last and state.blocking_rules else ()),
            *(("", "Learnings accumulated:", *lessons) if lessons else ()),
            *(("", "Options:", *self._options(ended)) if ended.outcome.resumable else ()),
            *(("", f"Report: {self.locate(report)}") if report else ("",)),
            f"State saved to: {self.locate(f'{HOME}/current-loop.json')}",
            *(() if ended.outcome.resumable else (f"Next:   {self._after_the_end()}",)),
            DOUBLE,
        ]

    def _describe_duration(self, spent: Spent) -> str:
        """The active time, and the time on the clock if the run waited for long."""
        active, passed = spent.active_seconds, self.ended_at - self.started_at
        if not self.started_at or passed < active + _LONG_WAIT:
            return format_duration(active)
        return f"{format_duration(active)} of work, {format_duration(passed)} with waits"

    def _count_completed(self, spent: Spent) -> str:
        """The iterations with a verdict, and the last one if it waits for its verdict."""
        if not self.state.unverified_iteration:
            return str(spent.iterations)
        return f"{self.state.unverified_iteration.number - 1}, and 1 not verified"

    def _options(self, ended: RunEnded) -> list[str]:
        run, best = self.run, self.state.best
        ways = list_options_to_continue(ended.outcome, ended.limits, ended.spent, ended.allowance)
        lines = []
        if ended.outcome is Outcome.UNPROVEN:
            lines.append(f"- {accept_command(run)}   (if the changes are right)")
        if self.state.blocking_rules:
            lines.append(f"- {allow_command(run, self.state.blocking_rules)}   (if the changes are right)")
        lines += [f"- ralph resume {run} {way.option}   ({way.grants})" for way in ways]
        if ended.outcome in (Outcome.STUCK, Outcome.AWAITING_GUIDANCE, Outcome.UNPROVEN):
            lines.append(f'- ralph resume {run} --guidance "what to do differently"')
        if ended.outcome in (Outcome.STUCK, Outcome.AWAITING_GUIDANCE):
            lines.append(f"- ralph resume {run} --agent NAME   (another agent; use --model NAME for another model)")
        if not ways:
            lines.append(self._describe_resume(ended))
        if best and is_worth_restoring(best, self.state):
            lines.append(f"- ralph restore best {run}   ({name_best(best)}: {shorten(best.result, 80)})")
        if not self.has_snapshots:
            return [*lines, f"- ralph abort {run}   (keeps its changes)"]
        if not add_up_changes(ended).files and not self.state.unverified_iteration:
            return [*lines, f"- ralph abort {run}   (it changed no files)"]
        return [*lines, f"- ralph abort {run}   (add --revert to undo its changes)", f"- ralph diff {run}"]

    def _describe_resume(self, ended: RunEnded) -> str:
        """The command that continues a run that reached no limit."""
        more = suggest_option_to_continue(ended.outcome, ended.limits, ended.spent, ended.allowance)
        # A turn that waits for its verdict needs no further iteration.
        option = f" {more.option}" if more.option and not self.state.unverified_iteration else ""
        what = "continue from here"
        if ended.outcome in (Outcome.UNPROVEN, Outcome.UNVERIFIABLE):
            what = "run the checks again"
        if more.grants and ended.outcome.needs_turn:
            what += f", with {more.grants}"
        return f"- ralph resume {self.run}{option}   ({what})"

    def _after_the_end(self) -> str:
        if self.has_snapshots:
            return f"ralph diff {self.run}   (or: ralph abort {self.run} --revert)"
        return f"ralph report {self.run}"

    def _complete(self, ended: RunEnded, report: str) -> list[str]:
        state, spent, total = self.state, ended.spent, add_up_changes(ended)
        return [
            *(DOUBLE, "Ralph Loop: COMPLETE", DOUBLE, ""),
            f"Task: {state.task}",
            f"Status: {'SUCCESS' if ended.outcome is Outcome.SUCCESS else _headline(ended.outcome)} ({ended.reason})",
            f"Iterations: {spent.iterations}",
            f"Duration: {self._describe_duration(spent)}",
            *("", "Verification:", *state.verification.splitlines()[-12:], ""),
            "Summary:",
            f"- Files modified: {total.files}",
            f"- Total changes: +{total.added}, -{total.removed}",
            f"- Turns: {spent.turns}, cost {describe_cost(spent)}",
            *(("", f"Report: {self.locate(report)}") if report else ("",)),
            f"Next:   {self.then(ended)}",
            DOUBLE,
        ]


def _render_judgment(entry: TurnEnded) -> list[str]:
    """What the judge says of the work and of each file, a line each."""
    answer = entry.result.answer or {}
    work = answer.get("work")
    opinions = [{"path": "the work", **work}] if work else []
    lines = []
    for one in [*opinions, *answer.get("files", ())]:
        mark, verb = ("✓", "accepts") if one["accept"] else ("✗", "rejects")
        lines.append(f"{mark} the judge {verb} {one_line(one['path'])}: {one_line(one['why'])}")
    return lines


def _last_lines(failure: str) -> list[str]:
    """The end of what the checks said last. The text is made for prompts, so it has code fences."""
    lines = [line for line in failure.splitlines() if not _FENCE.fullmatch(line)]
    first = max(0, len(lines) - _FAILURE_LINES)
    heads = [number for number, line in enumerate(lines[:first]) if line.startswith("$ ")]
    # The command and its result, which stand before a long output, say which check it was.
    return [*lines[heads[-1] : heads[-1] + 2], "...", *lines[first:]] if heads else lines[first:]


def _headline(outcome: Outcome) -> str:
    return "COULD NOT VERIFY" if outcome is Outcome.UNVERIFIABLE else outcome.upper().replace("-", " ")
