"""The rules of the loop: baseline, then act, verify and learn, until the checks pass or a limit is reached."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from ralph.core.checks import Check, CheckStatus, Verdict
from ralph.core.errors import StateError
from ralph.core.events import (
    Changes,
    ChecksEnded,
    Commit,
    Decision,
    Do,
    DocumentEdited,
    Event,
    Landed,
    Merged,
    RunChecks,
    RunEnded,
    SideFiles,
    SignalTaken,
    Stop,
    TurnEnded,
    WorkCommitted,
)
from ralph.core.outcomes import Outcome
from ralph.core.signals import Stage, scope_change
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.core.work_keys import BASELINE, WorkKey, WorkKind
from ralph.workflows.loop import HOME
from ralph.workflows.loop.kinds import KINDS
from ralph.workflows.loop.learning import Lesson, distilled, judged_checks, reflection_of, remembered, with_lesson
from ralph.workflows.loop.prompting import Prompts, actor_prompt, commit_message, reflector_prompt, role_for
from ralph.workflows.loop.report import completion_report, report_path
from ralph.workflows.loop.state import (
    REMEMBERED,
    Best,
    Fixed,
    Iteration,
    LoopState,
    OnStuck,
    Phase,
    current_loop_json,
    log_line,
    read_state,
    state_json,
)
from ralph.workflows.loop.verdicts import failure_text, name, verdict_summary, verification_text

GIVE_UP_UNVERIFIED = 3
"""Iterations in a row whose checks could not be run, before the run ends as unverifiable."""
MOST_RED = 500
"""How many tests that failed before the run are remembered by name."""


@dataclass(frozen=True)
class Loop:
    """One task and its checks."""

    task: str
    checks: tuple[Check, ...]
    prompts: Prompts
    fixed: Fixed

    @property
    def home(self) -> str:
        """Where the documents of this loop are."""
        return f"{HOME}/loops/{self.fixed.loop}"

    @property
    def state_path(self) -> str:
        """Where the truth of this loop is."""
        return f"{self.home}/state.json"

    def load(self, documents: Mapping[str, str]) -> LoopState:
        text = documents.get(self.state_path)
        if text is None:
            return LoopState(self.task)
        return reopened(read_state(text, self.state_path, self.fixed))

    def decide(self, state: LoopState, now: float) -> Decision:
        """Verify when something was done, act when it was not enough."""
        return replace(self._decided(state), stage=Stage(state.iteration))

    def _decided(self, state: LoopState) -> Decision:
        match state.phase:
            case Phase.BASELINE:
                return Do((RunChecks(str(BASELINE), self.checks),))
            case Phase.ACT:
                return Do((self._turn(state),))
            case Phase.VERIFY:
                return Do((RunChecks(_iteration_key(state), self.checks),))
            case Phase.COMMIT:
                last = state.iterations[-1]
                message = commit_message(state.task, last)
                return Do(
                    (Commit(str(WorkKey(WorkKind.COMMIT, number=last.number)), last.number, last.snapshot, message),)
                )
            case Phase.REFLECT:
                prompt, closing = reflector_prompt(self.prompts, state)
                key = str(WorkKey(WorkKind.REFLECTION, number=state.iterations[-1].number))
                return Do((TurnRequest(key, "reflector", prompt, closing=closing, contract="loop.reflector"),))
            case Phase.DONE:
                return Stop(state.outcome or Outcome.FAILED, state.reason)
            case _:
                assert_never(state.phase)

    def accept(self, state: LoopState, event: Event, now: float) -> Changes[LoopState]:
        """What follows from an event: the next state, and the documents that tell of it."""
        after = self.follow(state, event)
        match event:
            case TurnEnded() if state.phase is Phase.REFLECT:
                return self._taught(after, now)
            case ChecksEnded() if state.phase is Phase.BASELINE or state.pending is None:
                return self._changes(after)
            case ChecksEnded():
                reflects = Phase.REFLECT in (after.phase, *after.ahead)
                changes = self._changes(after) if reflects else self._taught(after, now)
                lines = {f"{self.home}/iterations.jsonl": log_line(after.iterations[-1])}
                return replace(changes, aside=replace(changes.aside, lines=lines))
            case DocumentEdited(path=self.state_path) | WorkCommitted():
                return self._changes(after)
            case RunEnded():
                report = completion_report(after, self.fixed, event, self.checks)
                place = report_path(HOME, now, self.fixed.loop, after.ends)
                changes = self._changes(after)
                return replace(changes, documents={**changes.documents, place: report})
            case _:
                return Changes(after)

    def follow(self, state: LoopState, event: Event) -> LoopState:
        match event:
            case TurnEnded(result=result) if state.phase is Phase.REFLECT:
                return _forward(_reflected(state, result))
            case TurnEnded(result=result, role=role):
                return self._acted(state, result, role)
            case ChecksEnded(verdict=verdict) if state.phase is Phase.BASELINE:
                return _baselined(state, verdict)
            case ChecksEnded(verdict=verdict):
                return self._verified(state, verdict)
            case WorkCommitted():
                return _forward(state) if state.phase is Phase.COMMIT else state
            case DocumentEdited(path=path, content=content):
                return self._edited(state, path, content)
            case RunEnded():
                return _ended(state, event)
            case SignalTaken() | Merged() | Landed():
                return state
            case _:
                assert_never(event)

    def _turn(self, state: LoopState) -> TurnRequest:
        lessons = remembered(state, KINDS[self.fixed.type].window)
        prompt, closing = actor_prompt(self.prompts, self.fixed, self.checks, state, lessons)
        role = role_for(state, self.fixed)
        key = _iteration_key(state)
        return TurnRequest(
            key, role, prompt, closing=closing, counts=True, contract="loop.actor", failures=_since_best(state)
        )

    def _changes(self, state: LoopState) -> Changes[LoopState]:
        documents = {self.state_path: state_json(state, self.fixed)}
        copies = {f"{HOME}/current-loop.json": current_loop_json(state, self.fixed)}
        return Changes(state, documents, SideFiles(copies))

    def _taught(self, state: LoopState, now: float) -> Changes[LoopState]:
        """The same with the reflection on the last iteration, where there is something to learn from it."""
        changes = self._changes(state)
        last = state.iterations[-1]
        if not last.passed and not last.learnings:
            return changes
        path = f"{HOME}/reflections/loops/{self.fixed.loop}/iteration-{last.number}.yaml"
        copies = {**changes.aside.copies, path: reflection_of(state, self.fixed, now)}
        return replace(changes, aside=SideFiles(copies))

    def _edited(self, state: LoopState, path: str, content: str) -> LoopState:
        """Take in what a person may change: the task and the notes. Phase, counters and verdicts stay the engine's.

        What cannot be read is not taken in; the store keeps a copy of it.
        """
        if path != self.state_path:
            return state
        try:
            edited = read_state(content, path, self.fixed)
        except StateError:
            return state
        notes = {iteration.number: iteration.learnings for iteration in edited.iterations}
        iterations = tuple(
            replace(iteration, learnings=notes.get(iteration.number, iteration.learnings))
            for iteration in state.iterations
        )
        return replace(state, task=edited.task, iterations=iterations, extra=edited.extra)

    def _acted(self, state: LoopState, result: TurnResult, role: str) -> LoopState:
        """After a turn, however it ended: what the tree is worth is for the checks to say."""
        answer = result.answer or {}
        action = str(answer.get("summary") or _last_words(result.text) or result.error or "no word from the agent")
        if result.warnings:
            action = f"{action} (warning: {'; '.join(result.warnings)[:300]})"
        change = result.change
        pending = Iteration(
            state.iteration,
            action,
            result="",
            seconds=round(result.seconds, 1),
            cost=result.usage.cost,
            files=change.files if change else 0,
            added=change.added if change else 0,
            removed=change.removed if change else 0,
            role=role,
            snapshot=change.snapshot if change else "",
            why=str(answer.get("learned") or ""),
            try_next=str(answer.get("next") or ""),
            pivot=state.pivot,
            used=tuple(i.number for i in remembered(state, KINDS[self.fixed.type].window)),
        )
        failed = result.end in (TurnEnd.FAILED, TurnEnd.IDLE, TurnEnd.INTERRUPTED)
        error = (result.error or str(result.end)) if failed else ""
        rescope = scope_change(answer)
        return replace(state, phase=Phase.VERIFY, pending=pending, agent_error=error, rescope=rescope)

    def _verified(self, state: LoopState, verdict: Verdict) -> LoopState:
        """After the checks: success, another iteration, or an end for lack of anything to stand on."""
        judged = _judged(state, verdict) if state.pending else None
        state = replace(
            _told(state, verdict),
            iterations=(*state.iterations, judged)[-REMEMBERED:] if judged else state.iterations,
            pending=None,
            best=_best(state.best, judged),
            unverified=state.unverified + 1 if verdict.unrunnable else 0,
        )
        then = self._next(state, verdict, follows_turn=judged is not None)
        if judged is None:
            return then
        commits = self.fixed.commit and judged.snapshot and judged.files
        reflects = self.fixed.reflector and judged.learnings and then.phase is Phase.ACT
        between = [phase for phase, wanted in ((Phase.COMMIT, commits), (Phase.REFLECT, reflects)) if wanted]
        return _forward(replace(then, ahead=(*between, then.phase)))

    def _next(self, state: LoopState, verdict: Verdict, *, follows_turn: bool) -> LoopState:
        if state.rescope:
            return _done(state, Outcome.AWAITING_GUIDANCE, f"{state.rescope}; say what the task is now")
        if verdict.passed:
            return _done(state, Outcome.SUCCESS, "all checks pass")
        if state.agent_error:
            return _done(state, Outcome.FAILED, f"the agent failed again and again: {state.agent_error}")
        if state.unverified >= GIVE_UP_UNVERIFIED:
            return _done(state, Outcome.UNVERIFIABLE, f"the checks could not be run {state.unverified} times in a row")
        state = replace(state, phase=Phase.ACT, iteration=state.iteration + 1)
        if verdict.unrunnable or not follows_turn:
            return state
        return self._watch_progress(state, verdict)

    def _watch_progress(self, state: LoopState, verdict: Verdict) -> LoopState:
        """Ask a loop that is stuck for another approach; if that does not help, do what `--on-stuck` says."""
        progress = state.progress.after(verdict, state.iteration)
        state = replace(state, progress=progress)
        if not progress.is_stuck:
            return replace(state, pivot=False)
        if not state.pivot or self.fixed.on_stuck is OnStuck.CONTINUE:
            return replace(state, pivot=True)
        outcome = Outcome.AWAITING_GUIDANCE if self.fixed.on_stuck is OnStuck.ASK else Outcome.STUCK
        why = f"{progress.stalled} iterations in a row without progress, the last with another approach"
        return _done(state, outcome, why)


def reopened(state: LoopState) -> LoopState:
    """Where a loop goes on: in its phase, or, where it had given up, with a new iteration.

    A document that says the work is done is only a document: the checks are run again.
    """
    if state.phase is Phase.DONE and state.outcome and state.outcome.succeeded:
        return replace(state, phase=Phase.VERIFY if state.iterations else Phase.BASELINE, outcome=None, ended=False)
    if not state.ended:
        return state
    done = state.phase is Phase.DONE
    state = replace(state, outcome=None, reason="", agent_error="", rescope="", ended=False)
    if not done:
        return state
    phase = Phase.ACT if state.iterations else Phase.BASELINE
    number = state.iterations[-1].number + 1 if state.iterations else 0
    return replace(
        state, phase=phase, iteration=number, unverified=0, progress=replace(state.progress, stalled=0), pivot=False
    )


def _baselined(state: LoopState, verdict: Verdict) -> LoopState:
    """Before the first turn: already done, impossible to verify, or something to do."""
    red = tuple(test for result in verdict.results for test in result.failing)[:MOST_RED]
    statuses = tuple(result.status for result in verdict.results)
    state = replace(_told(state, verdict), baseline=statuses, red=red, progress=state.progress.after(verdict, 0))
    if verdict.passed:
        return _done(state, Outcome.NOTHING_TO_DO, "the checks pass already; no turn was started")
    missing = next((r for r in verdict.results if r.status is CheckStatus.NOT_FOUND), None)
    if missing:
        return _done(state, Outcome.UNVERIFIABLE, f"{name(missing)} cannot be run: {missing.reason}")
    return replace(state, phase=Phase.ACT, iteration=1)


def _told(state: LoopState, verdict: Verdict) -> LoopState:
    return replace(
        state,
        failing=tuple(result.title for result in verdict.failed),
        failure=failure_text(verdict, state.baseline, state.red),
        verification=verification_text(verdict, state.baseline),
    )


def _judged(state: LoopState, verdict: Verdict) -> Iteration:
    """The iteration with its verdict and what it teaches; a check that could not run teaches nothing."""
    pending = state.pending or Iteration(state.iteration, "", "")
    judged = replace(
        pending,
        result=verdict_summary(verdict),
        passed=verdict.passed,
        score=round(verdict.score, 4),
        checks=judged_checks(verdict, state.baseline),
        gaming=tuple(finding.sentence for finding in verdict.gamed),
    )
    if verdict.passed:
        return replace(judged, learnings=Lesson("", judged.why, "").text)
    if verdict.unrunnable:
        return replace(judged, why="", try_next="")
    return with_lesson(judged, distilled(judged, verdict, state))


def _best(best: Best | None, judged: Iteration | None) -> Best | None:
    """The better of two iterations; the earlier one where they are equal."""
    if judged is None or not judged.snapshot or not judged.score:
        return best
    if best and (best.passed, best.score) >= (judged.passed, judged.score):
        return best
    return Best(judged.number, judged.snapshot, judged.score, judged.result, judged.passed)


def _reflected(state: LoopState, result: TurnResult) -> LoopState:
    """What a reflector made of the last iteration; without an answer, what was distilled by rule stays."""
    answer = result.answer
    if not answer:
        return state
    last = state.iterations[-1]
    lesson = Lesson(last.what_failed, str(answer.get("why") or last.why), str(answer.get("next") or last.try_next))
    return replace(state, iterations=(*state.iterations[:-1], with_lesson(last, lesson)))


def _since_best(state: LoopState) -> int:
    """How many iterations have come and gone since the best one."""
    return max(0, state.iteration - 1 - (state.best.number if state.best else 0))


def _ended(state: LoopState, event: RunEnded) -> LoopState:
    """Where the loop itself was not done, it keeps its phase, so that it can go on."""
    phase = state.phase if event.outcome.resumable else Phase.DONE
    return replace(state, phase=phase, outcome=event.outcome, reason=event.reason, ended=True, ends=state.ends + 1)


def _forward(state: LoopState) -> LoopState:
    """On to the next phase that is settled already."""
    return replace(state, phase=state.ahead[0], ahead=state.ahead[1:]) if state.ahead else state


def _done(state: LoopState, outcome: Outcome, reason: str) -> LoopState:
    return replace(state, phase=Phase.DONE, outcome=outcome, reason=reason)


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _iteration_key(state: LoopState) -> str:
    """The key of the turn of this iteration, and of its checks."""
    return str(WorkKey(WorkKind.ITERATION, number=state.iteration))
