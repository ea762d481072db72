"""The rules of hats: the first event of the queue decides which hat has the next turn.

`Hats` is the workflow. The functions below it accept turns and results of checks, and choose the next phase. The rules of
waves are in `waves`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import assert_never

from ralph.core.checks import Evidence, Grade, Verdict, find_failing_tests
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
from ralph.core.ids import WorkKey, WorkKind
from ralph.core.outcomes import Outcome
from ralph.core.text import count
from ralph.core.turns import TurnEnd
from ralph.documents.agent.events import render_event
from ralph.documents.agent.notes import parse_decisions, renumber_decisions
from ralph.documents.hats.definition import COORDINATOR, USER, Hat, Topic, show_role
from ralph.workflows.hats.events import (
    Gate,
    NewEvent,
    TurnEvents,
    find_task_id,
    read_events,
    read_turn_events,
    update_gates,
)
from ralph.workflows.hats.routing import (
    MAX_REFUSALS,
    HatsContext,
    ask_coordinator,
    cancel_run,
    confirm_claim,
    end_run,
    find_receiver,
    find_wave_of_new_events,
    note_abandoned_events,
    publish,
    publish_default,
    refuse_completion,
    send_back,
)
from ralph.workflows.hats.state import (
    DECISIONS,
    MAX_REMEMBERED_EVENTS,
    TASK_RESUME,
    TASK_START,
    HatGuidance,
    HatsPhase,
    HatsState,
    QueuedEvent,
    WaveWorker,
    build_report,
    read_state,
    render_state,
    reopen,
)
from ralph.workflows.hats.waves import accept_in_wave, form_wave, list_wave_work, suspend_wave
from ralph.workflows.judging import count_tests, mark_judged, read_judgment, read_trial
from ralph.workflows.loop.report import render_failures, render_verification, summarize_verdict
from ralph.workflows.merge_rules import Queue, queue_path, render_queue

_RESTING_NOTICE = (
    "everything is done; the run waits for more work: `ralph emit TOPIC ...`, `ralph steer ...`, or `ralph abort`"
)
NOT_COUNTED_AS_FAILURE = (TurnEnd.CUT, TurnEnd.UNAVAILABLE)
"""Ends that do not count as a failure of the agent."""


@dataclass(frozen=True)
class Hats:
    """The rules of one run of hats."""

    context: HatsContext

    def load(self, documents: Mapping[str, str]) -> HatsState:
        """The state that the documents describe. A new run has one event in its queue, the starting event."""
        texts = {path: text for path, text in documents.items() if not path.startswith(".ralph/runs/")}
        text = documents.get(self.context.state_path)
        if text is None:
            topic = self.context.settings.starting_event or TASK_START
            earlier = len(parse_decisions(texts.get(DECISIONS, "")))
            queue = (QueuedEvent(1, topic, self.context.objective),)
            state = HatsState(self.context.objective, events_published=1, queue=queue, earlier_decisions=earlier)
        else:
            state = reopen(read_state(text, self.context.state_path), verifies=bool(self.context.checks))
        return replace(state, texts=texts)

    def decide(self, state: HatsState, now: float) -> Decision:
        """The turn of the hat that receives the first event, or the work that has to come before it."""
        match state.phase:
            case HatsPhase.ACT if now < state.not_before:
                return Do(())
            case HatsPhase.ACT:
                key = str(WorkKey(WorkKind.ITERATION, number=state.iteration))
                hat = find_receiver(self.context.settings, state.event, state.exhausted)
                return Do((self.context.request_turn(state, hat, key, now),))
            case HatsPhase.WAVE:
                return Do(list_wave_work(self.context, state, now))
            case HatsPhase.COMMIT:
                number = state.iteration - 1
                message = f"ralph: checkpoint after turn {number}\n\n{' '.join(state.objective.split())[:200]}\n"
                key = str(WorkKey(WorkKind.CHECKPOINT, number=number))
                return Do((Commit(key, number, state.snapshot, message),))
            case HatsPhase.VERIFY:
                seen_failing = (
                    None
                    if any(self.context.expects_failure(claim.topic) for claim in state.claims)
                    else state.seen_failing
                )
                key = str(WorkKey(WorkKind.CLAIM, number=state.iteration - 1))
                # What claims that the checks pass must also hold in a clean checkout.
                is_final = any(not self.context.expects_failure(claim.topic) for claim in state.claims)
                return Do((RunChecks(key, self.context.checks, seen_failing=seen_failing, is_final=is_final),))
            case HatsPhase.JUDGE:
                return Do((self.context.request_judgment(state),))
            case HatsPhase.TRY_TESTS:
                key = str(WorkKey(WorkKind.JUDGE_TESTS, number=state.iteration - 1))
                return Do((RunChecks(key, self.context.checks, added_tests=state.judge_tests),))
            case HatsPhase.REST:
                return Do(())
            case HatsPhase.DONE:
                outcome = state.outcome or Outcome.FAILED
                # Checks of an earlier event say nothing about a run that ended for another reason.
                is_graded = outcome in (Outcome.SUCCESS, Outcome.UNPROVEN)
                return Stop(outcome, state.reason, evidence=state.evidence if is_graded else None)
            case _:
                assert_never(state.phase)

    def accept(self, state: HatsState, event: Event, now: float) -> Transition[HatsState]:
        """The state after an event, and the documents that record it."""
        match event:
            case TurnEnded() | MergeEnded() if state.wave and state.phase in (HatsPhase.WAVE, HatsPhase.DONE):
                return self._accept_wave_event(state, event, now)
            case TurnEnded() | ChecksEnded() if state.phase in (HatsPhase.JUDGE, HatsPhase.TRY_TESTS):
                return self._transition(state, _accept_judgment(self.context, state, event, now), now)
            case TurnEnded():
                after = accept_turn(self.context, state, event, now)
                return self._transition(state, after, now, tuple(n for n in after.notes if n not in state.notes))
            case ChecksEnded(verdict=verdict):
                return self._transition(state, accept_checks(self.context, state, verdict, now), now)
            case WorkCommitted():
                return self._transition(state, self._wake(_accept_commit(state), now), now)
            case SignalAccepted(signal=signal) if signal.is_guidance:
                after = replace(
                    state, guidance=(*state.guidance, HatGuidance(signal.message, now, signal.target)), not_before=0.0
                )
                message = "New guidance from the user. Decide which hat should act on it."
                after = ask_coordinator(self.context, after, message) if state.rests else after
                return self._transition(state, self._wake(after, now), now)
            case DocumentEdited(path=self.context.state_path):
                return self._transition(state, state, now)
            case DocumentEdited(path=self.context.user_events_path, content=content):
                after, refusals = accept_user_events(self.context, state, content)
                return self._transition(state, self._wake(after, now), now, refusals)
            case DocumentEdited(path=path, content=content):
                return Transition(replace(state, texts={**state.texts, path: content}, has_changes=True))
            case RunEnded(outcome=outcome, reason=reason):
                wave = suspend_wave(state.wave, now) if state.wave else None
                after = replace(state, outcome=outcome, reason=reason, ended=True, ends=state.ends + 1, wave=wave)
                transition = self._transition(state, after, now)
                path = f".ralph/runs/{self.context.run}/completion-{after.ends}.md"
                text = build_report(self.context.run, self.context.settings, after, event, self.context.tasks(after))
                return replace(transition, documents={**transition.documents, path: text})
            case TurnStarted() | SignalAccepted() | MergeEnded() | Landed():
                return Transition(state)
            case _:
                assert_never(event)

    def _wake(self, state: HatsState, now: float) -> HatsState:
        """Let a run that rested continue if there is an event in the queue, or one that waits for the checks."""
        has_work = bool(state.queue or state.claims)
        return advance(self.context, state, now) if state.phase is HatsPhase.REST and has_work else state

    def _accept_wave_event(self, state: HatsState, event: Event, now: float) -> Transition[HatsState]:
        """Accept an event of a wave. After the wave the run continues, and decisions with the same number get new numbers."""
        after = accept_in_wave(self.context, state, event, now)
        over = after.wave is None
        after = advance(self.context, after, now) if over else after
        transition = self._transition(state, after, now, _describe_wave_problems(state, after))
        listed = state.texts.get(DECISIONS, "")
        if not over or (settled := renumber_decisions(listed)).strip() == listed.strip():
            return transition
        texts = {**transition.state.texts, DECISIONS: settled}
        documents = {**transition.documents, DECISIONS: settled}
        return replace(transition, state=replace(transition.state, texts=texts), documents=documents)

    def _transition(
        self, before: HatsState, after: HatsState, now: float, notices: tuple[str, ...] = ()
    ) -> Transition[HatsState]:
        new = [event for event in after.recent if event.number > before.events_published]
        # The log gets the starting event with the result of the first turn, because nothing published it before.
        first = [before.event] if before.iteration == 1 and after.iteration > 1 else []
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        rows = "".join(_render_row(one, before.iteration, at) for one in (*first, *new))
        side_files = SideFiles(
            self._render_merge_queue(before, after), {self.context.events_path: rows} if rows else {}
        )
        if after.rests and not before.rests:
            notices = (*notices, _RESTING_NOTICE)
        after = replace(after, recent=after.recent[-MAX_REMEMBERED_EVENTS:])
        return Transition(after, {self.context.state_path: render_state(after)}, side_files, notices)

    def _render_merge_queue(self, before: HatsState, after: HatsState) -> dict[str, str]:
        """The document with the merge queue of the wave, if it changed."""
        old, new = (state.wave.merging if state.wave else Queue() for state in (before, after))
        return {queue_path(self.context.run): render_queue(new)} if old != new else {}


def _render_row(event: QueuedEvent, iteration: int, at: str) -> str:
    """The line of an event in the events file of the run."""
    more = {"wave_id": str(event.wave) if event.wave else "", "instead_of": event.instead_of}
    facts: dict[str, object] = {
        "iteration": iteration,
        "hat": event.source,
        "turn": event.turn,
        # Other tools know the key.
        "default": event.by_engine,
    }
    facts |= {key: value for key, value in more.items() if value}
    return render_event(event.topic, event.payload, at, **facts).decode()


def _accept_commit(state: HatsState) -> HatsState:
    """After a checkpoint: continue with the phase that it came before."""
    if state.phase is not HatsPhase.COMMIT:
        return state
    state = replace(state, committed=state.snapshot, checkpoint=state.iteration - 1)
    return replace(state, phase=state.next_phases[0], next_phases=state.next_phases[1:]) if state.next_phases else state


def _describe_wave_problems(before: HatsState, after: HatsState) -> tuple[str, ...]:
    """A notice for the user about each worker of a wave that failed or whose events were refused."""
    if not (before.wave and after.wave):
        return ()
    known = {worker.event.number: _list_problems(worker) for worker in before.wave.workers}
    return tuple(
        f"{after.wave.hat}, `{worker.event.topic}` {worker.event.number}: {problem}"
        for worker in after.wave.workers
        for problem in _list_problems(worker)
        if problem not in known[worker.event.number]
    )


def _list_problems(worker: WaveWorker) -> list[str]:
    refused = [f"an event was refused: {why}" for why in worker.abandoned]
    return [problem for problem in (*worker.notes, *refused, worker.failed) if problem]


def accept_turn(context: HatsContext, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
    """Accept the events of a turn, and record whether anything changed."""
    result, id = ended.result, ended.role
    hat = context.settings.hat(id)
    turn_events = read_turn_events(context.settings, id, result)
    change = ended.change
    has_changes = state.has_changes or bool(change and change.files) or (change is None and bool(turn_events.events))
    tasks = {find_task_id(event.payload) for event in state.events}
    state = state.with_task_trees(sorted(tasks))
    task = next(iter(tasks)) if len(tasks) == 1 else ""
    state = replace(
        state.after_turn(ended, acknowledged=turn_events.acknowledged, task=task),
        unchanged_turns=0 if has_changes else state.unchanged_turns + 1,
        has_changes=False,
        notes=turn_events.refused,
        abandoned=note_abandoned_events(state, id, turn_events.abandoned),
        snapshot=change.snapshot if change else state.snapshot,
        not_before=now + context.settings.cooldown,
    )
    if result.end is not TurnEnd.FINISHED and not turn_events.has_events:
        return _retry_or_fail(context, state, ended, now)
    state = replace(state.count_activation(id), failures=0)
    if turn_events.cancellation:
        return cancel_run(state, id, turn_events.cancellation)
    return advance(context, _accept_turn_events(context, state, hat, turn_events), now)


def accept_user_events(context: HatsContext, state: HatsState, text: str) -> tuple[HatsState, tuple[str, ...]]:
    """Publish events of the user, and return why others were refused. The checks must confirm those that need evidence.

    The user cannot publish the completion or cancellation topic.
    """
    complete_lines = text[: text.rfind("\n") + 1]
    turn_events = read_events(context.settings, USER, complete_lines[state.user_events_read :], "")
    for new_event in turn_events.events:
        state = publish(context, state, new_event, USER, claim=context.needs_evidence(new_event.topic))
    refused = tuple(f"event refused: {why}" for why in turn_events.refused)
    return replace(state, user_events_read=len(complete_lines)), refused


def _retry_or_fail(context: HatsContext, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
    """After a failed turn: its event stays first in the queue, until the limit of failures is reached."""
    result = ended.result
    failures = state.failures + (0 if result.end in NOT_COUNTED_AS_FAILURE else ended.attempt)
    why = result.error or f"the turn ended as {result.end}"
    state = replace(state, failures=failures, notes=(*state.notes, f"the turn before this one failed: {why}"))
    if failures >= context.settings.max_failures:
        return end_run(state, Outcome.FAILED, f"the agent failed {count(failures, 'time')} in a row: {why}")
    return advance(context, state, now)


def _accept_turn_events(context: HatsContext, state: HatsState, hat: Hat | None, turn_events: TurnEvents) -> HatsState:
    """The state after the events of a turn: publish them, complete the run, or continue after a turn without events."""
    if turn_events.completion:
        return _accept_completion(context, state, hat, turn_events, turn_events.completion)
    handled = state.events
    state = replace(_publish_events(context, state, hat, turn_events), events_in_turn=1)
    if turn_events.events:
        # Another hat has the next turn, so the notes name the hat whose events were refused.
        source = show_role(hat.id if hat else COORDINATOR)
        notes = tuple(f"an event of {source} was refused: {why}" for why in turn_events.refused)
        return replace(state, refusals=0, notes=notes)
    if turn_events.refused:
        return send_back(context, state, handled, list(turn_events.refused), hat)
    # The next turn is that of another hat, so the notes are for the user and for it.
    state = replace(state, notes=(*state.notes, *state.abandoned.get(hat.id if hat else COORDINATOR, ())))
    return publish_default(context, state, handled, hat)


def _publish_events(context: HatsContext, state: HatsState, hat: Hat | None, turn_events: TurnEvents) -> HatsState:
    """Remove the events that the turn handled from the queue, and publish its own. Some need evidence from the checks."""
    source = hat.id if hat else COORDINATOR
    wave = find_wave_of_new_events(state.events, hat)
    state = replace(state, queue=state.queue[state.events_in_turn :])
    if turn_events.events or turn_events.completion:
        state = state.reset_default_turns(source)
    for new_event in turn_events.events:
        claim = context.needs_evidence(new_event.topic)
        state = publish(context, state, new_event, source, claim=claim, wave=wave)
    return state


def _accept_completion(
    context: HatsContext, state: HatsState, hat: Hat | None, turn_events: TurnEvents, completion: NewEvent
) -> HatsState:
    """Complete the run if nothing prevents it and the checks confirm it.

    Until they do, the events that the turn handled stay first in the queue: if the completion is refused, the hat gets
    them again.
    """
    events = state.events
    state = _publish_events(context, state, hat, turn_events)
    state = replace(state, queue=(*events, *state.queue))
    if reasons := context.find_completion_blockers(state):
        return refuse_completion(context, state, reasons)
    state = publish(context, state, completion, hat.id if hat else COORDINATOR, claim=True)
    return state if context.checks else _complete_run(context, state)


def accept_checks(context: HatsContext, state: HatsState, verdict: Verdict, now: float) -> HatsState:
    """After the checks: complete the run, or confirm the claims and answer those that the checks refute."""
    if state.phase is not HatsPhase.VERIFY:
        return state
    completion = context.settings.completion
    state = replace(state, verification=render_verification(verdict, ()), evidence=verdict.evidence)
    completes = any(claim.topic == completion for claim in state.claims)
    blockers = context.find_completion_blockers(state) if completes else []
    if completes and not blockers and _needs_judge(context, verdict):
        return _await_judge(context, state, verdict)
    if completes and not blockers and verdict.passed:
        return advance(context, _complete_run(context, state), now)
    claims, state = state.claims, replace(state, claims=())
    for claim in claims:
        if claim.topic != completion:
            state = _accept_claim(context, state, claim, verdict)
    if not completes:
        return advance(context, state, now)
    if verdict.first_unrunnable and state.refusals >= MAX_REFUSALS:
        return end_run(state, Outcome.UNVERIFIABLE, summarize_verdict(verdict))
    failed_checks = ""
    if not verdict.passed:
        failed_checks = f"the engine ran the checks, and they do not pass:\n{render_failures(verdict, (), ())}"
    return advance(context, refuse_completion(context, state, blockers, failed_checks), now)


def _accept_claim(context: HatsContext, state: HatsState, claim: QueuedEvent, verdict: Verdict) -> HatsState:
    """Confirm a claim, or publish the topic that answers a claim that the checks refute."""
    rule = context.settings.topics[claim.topic]
    if _is_confirmed(rule, verdict):
        seen_failing = find_failing_tests(verdict) if rule.expects_failure else None
        return replace(confirm_claim(context, state, claim), seen_failing=seen_failing)
    result_text = f"The engine ran the checks, and they do not pass:\n{render_failures(verdict, (), ())}"
    if rule.expects_failure and verdict.passed:
        result_text = "The checks pass. Write a test that fails first."
    payload = f"{claim.payload}\n\n{result_text}".strip()
    return publish(
        context,
        state,
        NewEvent(rule.otherwise or TASK_RESUME, payload),
        claim.source,
        by_engine=True,
        turn=claim.turn,
        wave=claim.wave,
        answers=claim.answers,
        commit=claim.commit,
        instead_of=claim.topic,
    )


def _is_confirmed(rule: Topic, verdict: Verdict) -> bool:
    """Whether the result of the checks is the one that a topic claims: that they pass, or that they fail."""
    if rule.expects_failure:
        return bool(verdict.not_passed) and not verdict.first_unrunnable
    # Whether changed tests and settings are right is decided when the run completes.
    return verdict.passed or verdict.awaits_judge


def _needs_judge(context: HatsContext, verdict: Verdict) -> bool:
    """Whether only a judge can tell if the work is done, the user wants one, or the user wants a proof that is missing."""
    grade = verdict.evidence.grade if verdict.evidence else None
    is_wanted = context.judges_all and grade in (Grade.PROVEN, Grade.JUDGED)
    is_proof_missing = not context.has_judge and grade is Grade.JUDGED
    return verdict.awaits_judge or (verdict.passed and (is_wanted or is_proof_missing))


def _await_judge(context: HatsContext, state: HatsState, verdict: Verdict) -> HatsState:
    """Let a judge look at the work, unless one has already rejected the same tree. Else the user decides."""
    if context.has_judge and state.snapshot_given_to_judge != verdict.snapshot:
        return replace(
            state,
            phase=HatsPhase.JUDGE,
            snapshot_given_to_judge=verdict.snapshot,
            tests_run_before_judge=count_tests(verdict),
        )
    reason = _read_evidence(state).reason
    if context.has_judge:
        reason = f"{reason} A judge did not accept it, and nothing changed since."
    return end_run(state, Outcome.UNPROVEN, f"all checks pass, but the work is not proven: {reason}")


def _accept_judgment(context: HatsContext, state: HatsState, event: TurnEnded | ChecksEnded, now: float) -> HatsState:
    """What follows from a judge, or from the tests that it wrote."""
    if isinstance(event, TurnEnded):
        judgment = read_judgment(_read_evidence(state), event)
    else:
        judgment = read_trial(state.judge_tests, state.tests_run_before_judge, event.verdict)
    state = replace(state, judge_tests=())
    if judgment.problem:
        return end_run(state, Outcome.UNPROVEN, judgment.problem)
    if judgment.tests:
        return replace(state, phase=HatsPhase.TRY_TESTS, judge_tests=judgment.tests)
    if not judgment.reasons:
        judged = mark_judged(_read_evidence(state), judgment.said_of_tests)
        state = replace(state, evidence=judged, snapshot_given_to_judge="")
        return advance(context, _complete_run(context, state), now)
    claims, state = state.claims, replace(state, claims=())
    for claim in claims:
        if claim.topic != context.settings.completion:
            state = confirm_claim(context, state, claim)
    return advance(context, refuse_completion(context, state, [], "\n".join(judgment.findings)), now)


def _read_evidence(state: HatsState) -> Evidence:
    return state.evidence or Evidence(Grade.UNPROVEN, "")


def _describe_gates(context: HatsContext) -> str:
    """Which hats accepted the work, by the required events that only they can publish; empty if there are none."""
    accepted = []
    for topic in context.settings.required:
        owners = " or ".join(show_role(owner) for owner in context.settings.find_owners(topic))
        accepted.append(f"{owners} published `{topic}`")
    return " and ".join(accepted)


def _grade_without_checks(context: HatsContext) -> Evidence:
    """What supports the success of a run that has no checks."""
    gates = _describe_gates(context) or "its hats say that it is done"
    return Evidence(Grade.UNVERIFIED, f"The run has no checks. Ralph relies on its hats: {gates}.")


def _complete_run(context: HatsContext, state: HatsState) -> HatsState:
    """End the run with success; a persistent run rests until there is more to do."""
    completion = context.settings.completion
    if context.settings.persistent:
        queue = state.queue[state.events_in_turn :]
        # The next piece of work needs the required events again.
        gates: Mapping[str, Gate] = {}
        for event in queue:
            gates = update_gates(
                context.settings, gates, event.topic, event.payload, source=event.source, by_engine=event.by_engine
            )
        # Events of the user are about the next piece of work.
        claims = tuple(claim for claim in state.claims if claim.source == USER)
        state = replace(state, queue=queue, events_in_turn=1, claims=claims, gates=gates, refusals=0, unchanged_turns=0)
        return state if queue or claims else _commit_if_due(context, replace(state, phase=HatsPhase.REST), always=True)
    publisher = next((claim.source for claim in state.claims if claim.topic == completion), COORDINATOR)
    checked = "all checks pass"
    if not context.checks:
        checked = "no checks were given, so the engine verified nothing"
        state = replace(state, evidence=_grade_without_checks(context))
    return _commit_if_due(
        context, end_run(state, Outcome.SUCCESS, f"{completion} by {show_role(publisher)}; {checked}"), always=True
    )


def advance(context: HatsContext, state: HatsState, now: float) -> HatsState:
    """Enter the next phase: checks, a commit, a wave, a turn, or the end of a run that is stuck or needs an answer.

    A run that is over stays so. A run that rests waits until there is an event in the queue, or one that needs the checks.
    """
    if state.outcome or (state.rests and not state.queue and not state.claims):
        return state
    if state.claims:
        return _commit_if_due(context, replace(state, phase=HatsPhase.VERIFY))
    if silent := _describe_silent_hat(context, state):
        return end_run(state, Outcome.AWAITING_GUIDANCE, silent)
    state = state if state.queue else ask_coordinator(context, state, "the queue is empty: find out what is left to do")
    state = _skip_exhausted(context, _reorder_for_gathering(context, state))
    if state.unchanged_turns >= context.stuck_after:
        return end_run(
            state,
            Outcome.STUCK,
            f"nothing changed in {count(state.unchanged_turns, 'turn')}: no file, no task, no memory",
        )
    if state.unchanged_turns * 2 >= context.stuck_after:
        turns = count(state.unchanged_turns, "turn")
        note = f"Nothing has changed in the last {turns}. Change something, or report what blocks you."
        state = replace(state, notes=(*state.notes, note))
    return _commit_if_due(context, form_wave(context, state, now) or replace(state, phase=HatsPhase.ACT))


def _describe_silent_hat(context: HatsContext, state: HatsState) -> str:
    """The question to the user if a hat published only its default event in too many turns in a row; empty if none did."""
    most = context.settings.max_default_events
    for id, in_a_row in state.default_turns_in_a_row.items():
        hat = context.settings.hat(id)
        if hat and most and in_a_row >= most:
            default = f"`{hat.default_publishes}` by default"
            return f"{id} ended its last {count(in_a_row, 'turn')} without an event of its own ({default}): what should it do?"
    return ""


def _commit_if_due(context: HatsContext, state: HatsState, *, always: bool = False) -> HatsState:
    """The same state, with a commit before it if one is due."""
    every = context.settings.checkpoint
    due = every and (always or (state.iteration - 1) // every > state.checkpoint // every)
    if not due or not state.snapshot or state.snapshot == state.committed or state.phase is HatsPhase.COMMIT:
        return state
    return replace(state, phase=HatsPhase.COMMIT, next_phases=(state.phase,))


def _reorder_for_gathering(context: HatsContext, state: HatsState) -> HatsState:
    """Put the events of the next turn first. Events for a hat that gathers wait until their wave is complete."""
    gathering = {hat.id for hat in context.settings.hats if hat.gathers}
    if not gathering:
        return state
    receivers = {event.number: find_receiver(context.settings, event, state.exhausted) for event in state.queue}
    incomplete_waves = {event.wave for event in state.queue if event.wave and receivers[event.number] not in gathering}

    def can_start(event: QueuedEvent) -> bool:
        return receivers[event.number] not in gathering or event.wave not in incomplete_waves

    first = next(event for event in state.queue if can_start(event))
    receiver = receivers[first.number]
    next_events = [first]
    if receiver in gathering:
        next_events = [e for e in state.queue if receivers[e.number] == receiver and e.wave == first.wave]
    rest = [event for event in state.queue if event not in next_events]
    return replace(state, queue=(*next_events, *rest), events_in_turn=len(next_events))


def _skip_exhausted(context: HatsContext, state: HatsState) -> HatsState:
    """Report once that a hat has used all its turns, and send its events to other hats."""
    while True:
        hat = context.settings.hat(find_receiver(context.settings, state.event, state.exhausted))
        if hat is None or hat.max_activations is None or state.activations.get(hat.id, 0) < hat.max_activations:
            return state
        state = replace(state, exhausted=(*state.exhausted, hat.id))
        message = f"{hat.id} has had its {hat.max_activations} turns; `{state.event.topic}` goes to another hat"
        state = publish(context, state, NewEvent(f"{hat.id}.exhausted", message), COORDINATOR, by_engine=True)
        state = _reorder_for_gathering(context, replace(state, events_in_turn=1))
