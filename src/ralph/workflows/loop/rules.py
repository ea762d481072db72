"""The rules of the loop: baseline, then act, verify and learn, until the checks pass or a limit is reached."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from ralph.core.check_output import excerpt_output
from ralph.core.checks import Check, CheckStatus, Evidence, Grade, Verdict
from ralph.core.errors import StateError
from ralph.core.events import (
    ChecksEnded,
    Commit,
    Decision,
    Do,
    DocumentEdited,
    Event,
    Landed,
    MergeEnded,
    RunChecks,
    RunEnded,
    SideFiles,
    SignalAccepted,
    Stop,
    Transition,
    TurnEnded,
    TurnStarted,
    WorkCommitted,
)
from ralph.core.ids import BASELINE, WorkKey, WorkKind
from ralph.core.outcomes import Outcome
from ralph.core.signals import Stage, find_scope_change
from ralph.core.text import count
from ralph.core.turns import INBOX, Change, TurnEnd, TurnRequest, TurnResult, update_stats
from ralph.workflows.judging import Judgment, count_tests, mark_judged, read_judgment, read_trial
from ralph.workflows.loop import HOME
from ralph.workflows.loop.learning import (
    MAX_NAMES,
    Lesson,
    add_attempt,
    choose_lessons,
    derive_lesson,
    describe_changed_results,
    describe_failure,
    list_reflected_checks,
    render_reflection,
    with_lesson,
)
from ralph.workflows.loop.prompt import (
    Templates,
    build_actor_prompt,
    build_judge_prompt,
    build_reflector_prompt,
    choose_role,
    compose_commit_message,
    list_inbox,
)
from ralph.workflows.loop.report import (
    compute_quoted_share,
    list_failing_names,
    name_check,
    name_report_path,
    render_completion_report,
    render_findings,
    render_results,
    render_verification,
    summarize_verdict,
)
from ralph.workflows.loop.state import (
    MAX_REMEMBERED_ITERATIONS,
    PROFILES,
    Best,
    Iteration,
    LoopParameters,
    LoopState,
    OnStuck,
    Phase,
    read_state,
    render_current_loop,
    render_log_line,
    render_state,
)

FAILED_TURN_WAITS = (0.0, 0.0, 30.0, 60.0, 60.0)
"""Seconds before the next turn, by how many turns in a row failed. The fifth failure in a row ends the run."""
MAX_UNRUNNABLE_ITERATIONS = 3
"""Iterations in a row whose checks could not be run, before the run ends as unverifiable."""
MAX_FAILED_TESTS = 500
"""How many failing tests are remembered by name."""
MAX_CHANGED = 200
"""How many changed files are remembered."""


@dataclass(frozen=True)
class Loop:
    """One task and its checks."""

    task: str
    checks: tuple[Check, ...]
    prompts: Templates
    settings: LoopParameters
    recall: Callable[[str, Sequence[str]], tuple[str, ...]] = lambda query, failing: ()
    """Asks what earlier runs learned; it is called once, with what the baseline says and the tests that fail there."""

    @property
    def home(self) -> str:
        """Where the documents of this loop are."""
        return f"{HOME}/loops/{self.settings.run_id}"

    @property
    def state_path(self) -> str:
        """The path of `state.json`, which is authoritative."""
        return f"{self.home}/state.json"

    def load(self, documents: Mapping[str, str]) -> LoopState:
        text = documents.get(self.state_path)
        if text is None:
            return LoopState(self.task)
        return reopen(read_state(text, self.state_path, self.settings))

    def decide(self, state: LoopState, now: float) -> Decision:
        """The work of the current phase."""
        return replace(self._decide_phase(state), stage=Stage(state.iteration))

    def _decide_phase(self, state: LoopState) -> Decision:
        match state.phase:
            case Phase.BASELINE:
                return Do((RunChecks(str(BASELINE), self.checks),))
            case Phase.ACT:
                return Do((self._request_turn(state),))
            case Phase.VERIFY:
                return Do((RunChecks(_make_iteration_key(state), self.checks, is_final=True),))
            case Phase.COMMIT:
                last = state.iterations[-1]
                message = compose_commit_message(state.task, last)
                return Do(
                    (Commit(str(WorkKey(WorkKind.COMMIT, number=last.number)), last.number, last.snapshot, message),)
                )
            case Phase.REFLECT:
                prompt = build_reflector_prompt(self.prompts, self.settings, state)
                key = str(WorkKey(WorkKind.REFLECTION, number=state.iterations[-1].number))
                request = TurnRequest(
                    key,
                    "reflector",
                    prompt,
                    answer_schema="loop.reflector",
                    inbox=list_inbox(state),
                    copied_files=state.logs,
                )
                return Do((request,))
            case Phase.JUDGE:
                return Do((self._request_judgment(state),))
            case Phase.TRY_TESTS:
                key = str(WorkKey(WorkKind.JUDGE_TESTS, number=state.iteration))
                return Do((RunChecks(key, self.checks, added_tests=state.judge_tests),))
            case Phase.DONE:
                return Stop(state.outcome or Outcome.FAILED, state.reason, evidence=state.evidence)
            case _:
                assert_never(state.phase)

    def accept(self, state: LoopState, event: Event, now: float) -> Transition[LoopState]:
        """What follows from an event: the next state, and the documents that record it."""
        after = self.apply_event(state, event)
        # The baseline, the tests of a judge, and a verification after a resume complete no iteration.
        is_extra_check = state.unverified_iteration is None or state.unverified_iteration.number not in (
            one.number for one in after.iterations
        )
        match event:
            case TurnEnded() if state.phase is Phase.REFLECT:
                return self._build_transition_with_reflection(after, now)
            case TurnEnded() if state.phase is Phase.JUDGE:
                return self._transition(after)
            case ChecksEnded() if is_extra_check:
                transition = self._transition(after)
                known = len(after.recalled) if not state.recalled else 0
                them = "it" if known == 1 else "them"
                notice = (
                    f"the prompt contains {count(known, 'lesson')} from earlier loops (--no-recall leaves {them} out)"
                )
                return replace(transition, notices=(notice,)) if known else transition
            case ChecksEnded():
                reflects = Phase.REFLECT in (after.phase, *after.next_phases)
                transition = self._transition(after) if reflects else self._build_transition_with_reflection(after, now)
                lines = {f"{self.home}/iterations.jsonl": render_log_line(after.iterations[-1])}
                transition = replace(transition, side_files=replace(transition.side_files, lines=lines))
                return replace(transition, notices=(*transition.notices, *_describe_failed_turn(after)))
            case DocumentEdited(path=self.state_path) | WorkCommitted():
                return self._transition(after)
            case RunEnded():
                report = render_completion_report(after, self.settings, event, self.checks)
                place = name_report_path(HOME, now, self.settings.run_id, after.ends)
                transition = self._transition(after)
                return replace(transition, documents={**transition.documents, place: report})
            case _:
                return Transition(after)

    def apply_event(self, state: LoopState, event: Event) -> LoopState:
        match event:
            case TurnEnded(result=result) if state.phase is Phase.REFLECT:
                return _enter_next_phase(_accept_reflection(state, result))
            case TurnEnded() if state.phase is Phase.JUDGE:
                return _accept_judgment(state, read_judgment(_read_evidence(state), event))
            case TurnEnded():
                return self._accept_turn(state, event)
            case ChecksEnded(verdict=verdict) if state.phase is Phase.BASELINE:
                return self._accept_baseline(state, verdict)
            case ChecksEnded(verdict=verdict) if state.phase is Phase.TRY_TESTS:
                trial = read_trial(state.judge_tests, state.tests_run_before_judge, verdict)
                return _accept_judgment(state, trial)
            case ChecksEnded(verdict=verdict):
                return self._accept_verdict(state, verdict)
            case WorkCommitted():
                return _enter_next_phase(state) if state.phase is Phase.COMMIT else state
            case DocumentEdited(path=path, content=content):
                return self._accept_edit(state, path, content)
            case RunEnded():
                return _accept_run_end(state, event)
            case SignalAccepted(signal=signal):
                return replace(state, is_guided=True) if signal.is_guidance else state
            case TurnStarted() | MergeEnded() | Landed():
                return state
            case _:
                assert_never(event)

    def _request_turn(self, state: LoopState) -> TurnRequest:
        lessons = choose_lessons(state, PROFILES[self.settings.type].window)
        return TurnRequest(
            key=_make_iteration_key(state),
            role=choose_role(state, self.settings),
            prompt=build_actor_prompt(self.prompts, self.settings, self.checks, state, lessons),
            is_iteration=True,
            answer_schema="loop.actor",
            turns_without_progress=_count_since_best(state),
            verifies_failed_changes=True,
            delay=_find_wait(state),
            inbox=list_inbox(state),
            copied_files=state.logs,
        )

    def _request_judgment(self, state: LoopState) -> TurnRequest:
        return TurnRequest(
            key=str(WorkKey(WorkKind.JUDGMENT, number=state.iteration)),
            role="judge",
            prompt=build_judge_prompt(
                self.prompts["loop-judge"], self.settings.run_id, state.task, self.checks, _read_evidence(state)
            ),
            answer_schema="loop.judge",
            answer_required=True,
            retries=0,
            inbox=list_inbox(state),
        )

    def _transition(self, state: LoopState) -> Transition[LoopState]:
        documents = {self.state_path: render_state(state, self.settings)}
        copies = {f"{HOME}/current-loop.json": render_current_loop(state, self.settings)}
        return Transition(state, documents, SideFiles(copies))

    def _build_transition_with_reflection(self, state: LoopState, now: float) -> Transition[LoopState]:
        """The same with the reflection on the last iteration, if there is something to learn from it."""
        transition = self._transition(state)
        last = state.iterations[-1]
        if not last.passed and not last.what_failed:
            return transition
        path = f"{HOME}/reflections/loops/{self.settings.run_id}/iteration-{last.number}.yaml"
        copies = {**transition.side_files.copies, path: render_reflection(state, self.settings, now)}
        return replace(transition, side_files=SideFiles(copies))

    def _accept_edit(self, state: LoopState, path: str, content: str) -> LoopState:
        """Accept what the user may change: the task and the notes. Phase, counters and verdicts stay the engine's.

        An unreadable edit is ignored; the store keeps a copy of it.
        """
        if path != self.state_path:
            return state
        try:
            edited = read_state(content, path, self.settings)
        except StateError:
            return state
        notes = {iteration.number: iteration.learnings for iteration in edited.iterations}
        iterations = tuple(
            replace(iteration, learnings=notes.get(iteration.number, iteration.learnings))
            for iteration in state.iterations
        )
        return replace(state, task=edited.task, iterations=iterations, extra=edited.extra)

    def _accept_turn(self, state: LoopState, event: TurnEnded) -> LoopState:
        """After a turn, however it ended: verify. Only the checks decide whether its work is good."""
        result = event.result
        if result.end is TurnEnd.UNAVAILABLE and not (event.change and event.change.files):
            # The agent did not even start: the run ends with this, and a resumed run tries the same iteration again.
            return state
        answer = result.answer or {}
        # If the turn was cut short, that is the reason (`why` below) and not what it did.
        error = result.error if result.end not in (*_CUT_SHORT, TurnEnd.STOPPED) else ""
        action = str(answer.get("summary") or _find_last_line(result.text) or error or "the agent reported nothing")
        if result.warnings:
            action = f"{action} (warning: {'; '.join(result.warnings)[:300]})"
        change = event.change or Change("")
        iteration = Iteration(
            state.iteration,
            action,
            result="",
            seconds=round(result.seconds, 1),
            cost=result.usage.cost,
            files=change.files,
            added=change.added,
            removed=change.removed,
            role=event.role,
            snapshot=change.snapshot,
            why=str(answer.get("learned") or _CUT_SHORT.get(result.end, "")),
            try_next=str(answer.get("next") or ""),
            pivot=state.pivot,
            hit_provider_limit=result.end is TurnEnd.LIMITED,
            used=tuple(i.number for i in choose_lessons(state, PROFILES[self.settings.type].window)),
        )
        failed = result.end in (TurnEnd.FAILED, TurnEnd.IDLE, TurnEnd.INTERRUPTED)
        error = (result.error or str(result.end)) if failed else ""
        rescope = find_scope_change(answer)
        return replace(
            state,
            phase=Phase.VERIFY,
            unverified_iteration=iteration,
            agent_error=error,
            failed_turns=state.failed_turns + 1 if error else 0,
            is_guided=False,
            rescope=rescope,
            changed=update_stats(state.changed, event.change)[-MAX_CHANGED:],
        )

    def _accept_verdict(self, state: LoopState, verdict: Verdict) -> LoopState:
        """After the checks: complete the iteration, and enter what `_choose_next` chooses, after a commit or a reflection."""
        is_interrupted = state.unverified_iteration is not None and state.unverified_iteration.is_interrupted
        if is_interrupted and not verdict.passed_or_unproven:
            return self._continue_interrupted(state, verdict)
        state = self._with_verdict(state, verdict)
        completed = _complete_iteration(state, verdict) if state.unverified_iteration else None
        progress = state.progress.after(verdict, state.iteration)
        is_progress = not verdict.first_unrunnable and progress.stalled == 0
        is_further = is_progress and progress.is_further_than(state.progress)
        if completed:
            iterations = (*state.iterations, completed)[-MAX_REMEMBERED_ITERATIONS:]
        else:
            iterations = _confirm_last(state.iterations) if verdict.passed else state.iterations
        state = replace(
            state,
            iterations=iterations,
            unverified_iteration=None,
            best=_choose_best(state.best, completed, is_progress=is_progress, is_further=is_further),
            unrunnable_iterations=state.unrunnable_iterations + 1 if verdict.first_unrunnable else 0,
        )
        chosen = self._choose_next(state, verdict, follows_turn=completed is not None and not is_interrupted)
        if completed is None:
            return chosen
        phases = []
        if self.settings.commit and completed.snapshot and completed.files:
            phases.append(Phase.COMMIT)
        if self.settings.reflector and completed.what_failed and chosen.phase is Phase.ACT:
            phases.append(Phase.REFLECT)
        return _enter_next_phase(replace(chosen, next_phases=(*phases, chosen.phase)))

    def _continue_interrupted(self, state: LoopState, verdict: Verdict) -> LoopState:
        """Let the agent finish an interrupted turn, because its work does not pass the checks."""
        checked = self._with_verdict(state, verdict)
        return replace(
            checked,
            phase=Phase.ACT,
            unverified_iteration=None,
            failing=state.failing,
            fixed=state.fixed,
            broken=state.broken,
        )

    def _choose_next(self, state: LoopState, verdict: Verdict, *, follows_turn: bool) -> LoopState:
        """The end of the run, with its outcome, or another iteration."""
        if state.rescope:
            return _finish(state, Outcome.AWAITING_GUIDANCE, f"{state.rescope}; say what the task is now")
        if verdict.passed and state.is_guided and state.iterations and state.iterations[-1].is_interrupted:
            # The user interrupted the turn and said what to do: passing checks do not answer that.
            return replace(state, phase=Phase.ACT, iteration=state.iteration + 1)
        if verdict.passed:
            return self._finish_passed(state, verdict)
        if verdict.is_unproven and not verdict.blocking_findings:
            if state.is_guided and not follows_turn:
                return _follow_guidance(state, verdict)
            return self._await_judge(state, verdict)
        has_changed = bool(state.iterations) and state.iterations[-1].files > 0
        if follows_turn and not has_changed and self._has_kept_findings(state, verdict):
            rules = ", ".join(state.blocking_rules)
            why = f"all checks pass, and the agent keeps what the guards found ({rules}): decide whether it is right"
            return _finish(state, Outcome.AWAITING_GUIDANCE, why)
        if state.agent_error and (not has_changed or state.failed_turns >= len(FAILED_TURN_WAITS)):
            return _finish(state, Outcome.FAILED, f"the agent failed repeatedly: {state.agent_error}")
        if state.unrunnable_iterations >= MAX_UNRUNNABLE_ITERATIONS:
            return _finish(
                state,
                Outcome.UNVERIFIABLE,
                f"the checks could not be run {count(state.unrunnable_iterations, 'time')} in a row",
            )
        state = replace(state, phase=Phase.ACT, iteration=state.iteration + 1)
        if verdict.first_unrunnable or not follows_turn or state.agent_error:
            return state
        return self._decide_if_stuck(state, verdict)

    def _finish_passed(self, state: LoopState, verdict: Verdict) -> LoopState:
        """The end of a run whose checks pass, or a judge that has to look at its work first."""
        if self._is_judged_too(verdict):
            return self._await_judge(state, verdict)
        if self._is_proof_missing(verdict):
            why = f"all checks pass, but the work is not proven: {_say_why(verdict)}"
            return _finish(state, Outcome.UNPROVEN, why)
        return _finish(state, Outcome.SUCCESS, "all checks pass")

    def _is_judged_too(self, verdict: Verdict) -> bool:
        """Whether the user wants a judge to look at this work although it does not need one."""
        grades = (Grade.PROVEN, Grade.JUDGED)
        return self.settings.judges_all and verdict.evidence is not None and verdict.evidence.grade in grades

    def _is_proof_missing(self, verdict: Verdict) -> bool:
        """Whether the user wants a proof, and the work is only judged, by what new tests notice."""
        is_judged = verdict.evidence is not None and verdict.evidence.grade is Grade.JUDGED
        return is_judged and not self.settings.has_judge

    def _await_judge(self, state: LoopState, verdict: Verdict) -> LoopState:
        """Let a judge look at the work, unless one has already rejected the same tree. Else the user decides."""
        is_wanted = verdict.awaits_judge or self._is_judged_too(verdict)
        if is_wanted and self.settings.has_judge and state.snapshot_given_to_judge != verdict.snapshot:
            return replace(
                state,
                phase=Phase.JUDGE,
                snapshot_given_to_judge=verdict.snapshot,
                tests_run_before_judge=count_tests(verdict),
            )
        reason = _say_why(verdict)
        if state.snapshot_given_to_judge == verdict.snapshot and len(state.iterations) > 1:
            reason = f"{reason} A judge did not accept it: {'; '.join(state.iterations[-2].blocking)}"
        return _finish(state, Outcome.UNPROVEN, f"all checks pass, but the work is not proven: {reason}")

    def _has_kept_findings(self, state: LoopState, verdict: Verdict) -> bool:
        """Whether only findings are left, and an agent that read them changed nothing: only the user can decide."""
        has_read = len(state.iterations) > 1 and bool(state.iterations[-2].blocking)
        is_answer = has_read and not state.agent_error and self.settings.on_stuck is not OnStuck.CONTINUE
        return is_answer and bool(verdict.blocking_findings) and not verdict.not_passed

    def _decide_if_stuck(self, state: LoopState, verdict: Verdict) -> LoopState:
        """Ask a loop that is stuck for another approach; if that does not help, do what `--on-stuck` says."""
        progress = state.progress.after(verdict, state.iteration)
        if state.iterations[-1].hit_provider_limit and progress.stalled:
            return replace(state, progress=replace(progress, stalled=state.progress.stalled))
        is_fewer = progress.lowest != state.progress.lowest
        tried = () if is_fewer else add_attempt(state.tried, state.iterations[-1])
        state = replace(state, progress=progress, tried=tried)
        if not progress.is_stuck:
            return replace(state, pivot=False)
        if not state.pivot or self.settings.on_stuck is OnStuck.CONTINUE:
            return replace(state, pivot=True)
        outcome = Outcome.AWAITING_GUIDANCE if self.settings.on_stuck is OnStuck.ASK else Outcome.STUCK
        why = f"{count(progress.stalled, 'iteration')} in a row without progress, the last with a different approach"
        return _finish(state, outcome, f"{why}{_name_silent_check(verdict)}")

    def _accept_baseline(self, state: LoopState, verdict: Verdict) -> LoopState:
        """Before the first turn: already done, impossible to verify, or something to do."""
        state = self._with_verdict(state, verdict)
        statuses = tuple(result.status for result in verdict.results)
        failed_before = tuple(test for result in verdict.results for test in result.failing)[:MAX_FAILED_TESTS]
        state = replace(
            state,
            baseline=statuses,
            failed_before=failed_before,
            fixed=(),
            broken=(),
            best=_rate_baseline(verdict),
            progress=state.progress.after(verdict, 0),
        )
        if verdict.passed:
            return _finish(state, Outcome.NOTHING_TO_DO, "the checks pass already; no turn was started")
        missing = next((r for r in verdict.results if r.status is CheckStatus.NOT_FOUND), None)
        if missing:
            return _finish(state, Outcome.UNVERIFIABLE, f"{name_check(missing)} cannot be run: {missing.reason}")
        query = f"{state.task} {self.settings.criterion} {describe_failure(verdict)}"
        recalled = state.recalled or self.recall(query, failed_before)
        return replace(state, phase=Phase.ACT, iteration=1, recalled=recalled)

    def _with_verdict(self, state: LoopState, verdict: Verdict) -> LoopState:
        """The state with what the checks said, as the next prompt and the report quote it."""
        logs = {}
        paths = {}
        for number, result in enumerate(verdict.results, 1):
            if result.passed or not result.log:
                continue
            if result.left_out or excerpt_output(result.output, compute_quoted_share(verdict))[1]:
                inside = f"checks/{number}.txt"
                paths[result.title] = f"{INBOX}/{inside}"
                logs[inside] = f".ralph/runs/{self.settings.run_id}/{result.log}"
        state = replace(
            state,
            evidence=verdict.evidence,
            check_results=render_results(verdict, state.baseline, state.failed_before, paths),
            findings=render_findings(verdict),
            blocking_rules=tuple(sorted({str(finding.rule) for finding in verdict.blocking_findings})),
            logs=logs,
            verification=render_verification(verdict, state.baseline),
        )
        if verdict.first_unrunnable or verdict.blocking_findings:
            # What fails is not known, or a test passes only because it was skipped.
            return replace(state, fixed=(), broken=())
        now = list_failing_names(verdict)[:MAX_FAILED_TESTS]
        return replace(
            state,
            failing=now,
            fixed=tuple(one for one in state.failing if one not in set(now)),
            broken=tuple(one for one in now if one not in set(state.failing)),
        )


def _find_wait(state: LoopState) -> float:
    """Seconds before the next turn. A judge may send work back after more failed turns than there are waits."""
    return FAILED_TURN_WAITS[min(state.failed_turns, len(FAILED_TURN_WAITS) - 1)]


def _describe_failed_turn(state: LoopState) -> tuple[str, ...]:
    """What the user should know if a turn failed and the next one follows."""
    if not state.agent_error or Phase.ACT not in (state.phase, *state.next_phases):
        return ()
    wait = _find_wait(state)
    when = f"in {wait:g} s" if wait else "now"
    return (f"the turn failed, and what it changed does not pass the checks; the next turn starts {when}",)


def reopen(state: LoopState) -> LoopState:
    """The state in which a loop continues: in its phase or, if it had given up, with a new iteration.

    A document that says the work is done is only a document: the checks are run again.
    """
    if state.phase is Phase.DONE and state.outcome and state.outcome.succeeded:
        return replace(state, phase=Phase.VERIFY if state.iterations else Phase.BASELINE, outcome=None, ended=False)
    if not state.ended:
        return state
    done = state.phase is Phase.DONE
    state = replace(state, outcome=None, reason="", agent_error="", failed_turns=0, rescope="", ended=False)
    is_unproven = state.evidence is not None and state.evidence.grade is Grade.UNPROVEN
    if (state.blocking_rules or is_unproven) and state.iterations and state.phase in (Phase.ACT, Phase.DONE):
        # The user may have allowed what the guards rejected, or undone it: look before the agent is paid again.
        last = state.iterations[-1].number
        progress = state.progress.restart() if done else state.progress
        return replace(
            state, phase=Phase.VERIFY, iteration=last, unrunnable_iterations=0, progress=progress, pivot=False
        )
    if not done:
        return state
    phase = Phase.ACT if state.iterations else Phase.BASELINE
    number = state.iterations[-1].number + 1 if state.iterations else 0
    return replace(
        state, phase=phase, iteration=number, unrunnable_iterations=0, progress=state.progress.restart(), pivot=False
    )


def _name_silent_check(verdict: Verdict) -> str:
    """Which check shows no progress, whatever the agent does, because it prints nothing; empty if there is none."""
    silent = next((one for one in verdict.not_passed if one.command and not one.output.strip()), None)
    return f"; {name_check(silent)} prints nothing, so Ralph sees no progress until it passes" if silent else ""


def _complete_iteration(state: LoopState, verdict: Verdict) -> Iteration:
    """The iteration with its verdict and what it teaches; a check that could not run teaches nothing."""
    iteration = state.unverified_iteration or Iteration(state.iteration, "", "")
    completed = replace(
        iteration,
        result=summarize_verdict(verdict),
        passed=verdict.passed,
        is_unproven=verdict.is_unproven and not verdict.blocking_findings,
        score=round(verdict.score, 4),
        checks=list_reflected_checks(verdict, state.baseline),
        failing=state.failing[:MAX_NAMES],
        fixed=state.fixed[:MAX_NAMES],
        broken=state.broken[:MAX_NAMES],
        blocking=tuple(finding.sentence for finding in verdict.blocking_findings),
    )
    if completed.is_unproven and verdict.evidence:
        completed = replace(completed, result=verdict.evidence.reason)
    if completed.passed or completed.is_unproven:
        return replace(completed, learnings=Lesson("", completed.why, "").text)
    if verdict.first_unrunnable:
        return replace(completed, why="", try_next="")
    return with_lesson(completed, derive_lesson(completed, verdict, state))


def _confirm_last(iterations: tuple[Iteration, ...]) -> tuple[Iteration, ...]:
    """The iterations after a judge or the user accepted what the last one did."""
    return (*iterations[:-1], *(replace(one, passed=True, is_unproven=False) for one in iterations[-1:]))


def _rate_baseline(verdict: Verdict) -> Best | None:
    """The state before the run, as the best so far. If its checks count nothing, any progress is better."""
    score = round(verdict.score, 4)
    if not score or not verdict.snapshot or verdict.passed:
        return None
    return Best(0, verdict.snapshot, score, summarize_verdict(verdict))


def _choose_best(best: Best | None, completed: Iteration | None, *, is_progress: bool, is_further: bool) -> Best | None:
    """The better of two iterations, by their scores; the earlier one if they are equal and the later made no progress.

    If the checks count nothing, no iteration has a score. Then it is the last one that made progress. The state before the
    run may have a score all the same, for an error that is gone since: then a number that got better (`is_further`) decides.
    """
    if completed is None or not completed.snapshot or completed.blocking:
        return best
    if not completed.score:
        is_scored = best is not None and bool(best.score)
        is_better = is_further and best is not None and best.number == 0
        if not is_progress or (is_scored and not is_better):
            return best
    if completed.score and best:
        known, new = (best.passed, best.score), (completed.passed, completed.score)
        # Work that is as good as the state before the run stays.
        if known > new or (known == new and best.number and not is_progress):
            return best
    return Best(completed.number, completed.snapshot, completed.score, completed.result, completed.passed)


def _accept_reflection(state: LoopState, result: TurnResult) -> LoopState:
    """What a reflector made of the last iteration; without an answer, what was distilled by rule stays."""
    answer = result.answer
    if not answer:
        return state
    last = state.iterations[-1]
    lesson = Lesson(
        what_failed=last.what_failed,
        why=str(answer.get("why") or last.why),
        try_next=str(answer.get("next") or last.try_next),
        news=describe_changed_results(last.fixed, last.broken),
    )
    return replace(state, iterations=(*state.iterations[:-1], with_lesson(last, lesson)))


def _accept_judgment(state: LoopState, judgment: Judgment) -> LoopState:
    """What follows from a judge, or from the tests that it wrote."""
    state = replace(state, judge_tests=())
    if judgment.problem:
        return _finish(state, Outcome.UNPROVEN, judgment.problem)
    if judgment.reasons:
        return _send_back(state, judgment.what, judgment.reasons, judgment.findings)
    if judgment.tests:
        return replace(state, phase=Phase.TRY_TESTS, judge_tests=judgment.tests)
    judged = mark_judged(_read_evidence(state), judgment.said_of_tests)
    state = replace(state, evidence=judged, snapshot_given_to_judge="", iterations=_confirm_last(state.iterations))
    return _finish(state, Outcome.SUCCESS, "all checks pass")


def _read_evidence(state: LoopState) -> Evidence:
    return state.evidence or Evidence(Grade.UNPROVEN, "")


def _say_why(verdict: Verdict) -> str:
    """Why the work has its grade."""
    return verdict.evidence.reason if verdict.evidence else ""


def _send_back(state: LoopState, what: str, reasons: Sequence[str], findings: Sequence[str]) -> LoopState:
    """Another iteration, with what the judge found."""
    last = replace(
        state.iterations[-1],
        result=f"rejected by the judge: {'; '.join(reasons)}",
        blocking=tuple(reasons),
        passed=False,
        is_unproven=False,
    )
    lesson = Lesson(what_failed=f"{what}: {'; '.join(reasons)}", why=last.why, try_next=last.try_next)
    return replace(
        state,
        phase=Phase.ACT,
        iteration=state.iteration + 1,
        iterations=(*state.iterations[:-1], with_lesson(last, lesson)),
        check_results="All checks pass, but this does not count yet: see the findings.",
        findings="\n".join(findings),
        evidence=None,
    )


def _follow_guidance(state: LoopState, verdict: Verdict) -> LoopState:
    """Let the agent work again on what could not be proven, because the user said what to do instead of accepting it."""
    return replace(
        state,
        phase=Phase.ACT,
        iteration=state.iteration + 1,
        check_results="All checks pass, but this does not count yet: see the findings.",
        findings=f"Ralph cannot prove the work: {_say_why(verdict)}",
        evidence=None,
    )


def _count_since_best(state: LoopState) -> int:
    """How many iterations have come and gone since the best one."""
    return max(0, state.iteration - 1 - (state.best.number if state.best else 0))


def _accept_run_end(state: LoopState, event: RunEnded) -> LoopState:
    """If the loop was not done, it keeps its phase, so that it can continue.

    If a turn was interrupted and changed files, the checks come first: the work may be done.
    """
    phase = state.phase if event.outcome.resumable else Phase.DONE
    change = event.unverified_change
    if phase is Phase.ACT and change:
        phase = Phase.VERIFY
        iteration = Iteration(
            state.iteration,
            action="the turn was interrupted",
            result="",
            files=change.files,
            added=change.added,
            removed=change.removed,
            snapshot=change.snapshot,
            is_interrupted=True,
        )
        state = replace(state, unverified_iteration=iteration)
    return replace(state, phase=phase, outcome=event.outcome, reason=event.reason, ended=True, ends=state.ends + 1)


def _enter_next_phase(state: LoopState) -> LoopState:
    """Enter the next phase in `next_phases`."""
    return replace(state, phase=state.next_phases[0], next_phases=state.next_phases[1:]) if state.next_phases else state


def _finish(state: LoopState, outcome: Outcome, reason: str) -> LoopState:
    return replace(state, phase=Phase.DONE, outcome=outcome, reason=reason)


_CUT_SHORT = {
    TurnEnd.CUT: "a limit of the run ended the turn before the agent had finished",
    TurnEnd.WALL: "the turn reached its time limit before the agent had finished",
    TurnEnd.LIMITED: "the provider's limit ended the turn before the agent had finished",
}
"""Why the work of a turn is not complete, if the agent had no time to say anything."""


def _find_last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _make_iteration_key(state: LoopState) -> str:
    """The key of the turn of this iteration, and of its checks."""
    return str(WorkKey(WorkKind.ITERATION, number=state.iteration))
