"""The rules of a session: they decide from its documents what to do next.

`accept` updates the state after an event. `_advance_until_waiting` then advances it until the session has to wait for work.
A task only changes its marker in a legal way. `planning`, `execution` and `iterations` handle the turns; `reconcile` handles
edits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ralph.core.checks import Check, Verdict
from ralph.core.entries import Entry
from ralph.core.errors import StateError
from ralph.core.events import (
    ChecksEnded,
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
    TaskChanged,
    TaskState,
    Transition,
    TurnEnded,
    TurnStarted,
    Work,
)
from ralph.core.ids import READ_ONLY_WORKTREE
from ralph.core.outcomes import Outcome
from ralph.core.signals import DatedSignal, find_scope_change
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.session import metadata, progress
from ralph.documents.session.metadata import IterationMetadata, Metadata, State, Status
from ralph.documents.session.progress import Marker
from ralph.documents.session.repair import PLANNING, repair
from ralph.documents.session.tasks import make_natural_key
from ralph.documents.session.values import render_timestamp as stamp
from ralph.documents.signals import append_note
from ralph.workflows.merge_rules import find_merged_task, queue_path, read_queue, render_queue
from ralph.workflows.session import execution, iterations, planning, reconcile, turn_requests
from ralph.workflows.session.report import build_session_report
from ralph.workflows.session.state import (
    Flow,
    SessionSettings,
    SessionState,
    Step,
    describe_failure,
    name_task_worktree,
    read_flow,
    render_flow,
    with_listed_tasks,
)
from ralph.workflows.session.task_changes import find_changes_while_stopped, find_task_changes
from ralph.workflows.session.work_keys import OF_TASK, SessionKey, SessionWork

SESSION_BASELINE = SessionKey(SessionWork.BASELINE)
"""The same text as `BASELINE` of a loop, as a key of a session."""
MAX_REASON = 200
"""Characters of the reason why a check did not pass before the session began."""
_INCONCLUSIVE_ENDS = (TurnEnd.CUT, TurnEnd.UNAVAILABLE, TurnEnd.INTERRUPTED)
"""Ends of a turn that do not show whether the work is good. The turn is requested again when the run continues."""


@dataclass(frozen=True)
class Session:
    """The rules of one session."""

    settings: SessionSettings

    def load(self, documents: Mapping[str, str]) -> SessionState:
        """The session that the documents describe; a new one if there is no document."""
        if self.settings.layout.is_classic:
            return self._load_classic(documents)
        if self.settings.layout.metadata not in documents:
            return self._create_state(documents)
        data = metadata.parse_metadata(documents[self.settings.layout.metadata], self.settings.layout.metadata)
        number = data.iteration
        iteration = IterationMetadata(number, data.created_at)
        path = self.settings.layout.iteration_metadata(number)
        if path in documents:
            iteration = metadata.parse_iteration_metadata(documents[path], path)
        flow = Flow()
        if self.settings.flow_path in documents:
            flow = read_flow(documents[self.settings.flow_path], self.settings.flow_path)
        if queue_path(self.settings.id) in documents:
            flow = replace(
                flow, queue=read_queue(documents[queue_path(self.settings.id)], queue_path(self.settings.id))
            )
        state = SessionState(
            layout=self.settings.layout,
            metadata=data,
            iteration=iteration,
            progress=progress.parse_progress(documents.get(self.settings.layout.progress(number), "")),
            tasks={},
            texts=documents,
            limits=planning.read_session_limits(self.settings, documents),
            flow=flow,
        )
        state = reconcile.revert_unreviewed_end(self._reconcile(with_listed_tasks(state), flow))
        state = reconcile.review_again_without_cancelled_tasks(state)
        state = reconcile.check_again_without_proof(state)
        return self._mark_startable_tasks(state)

    def _load_classic(self, documents: Mapping[str, str]) -> SessionState:
        """The session that its files describe, even if other tools wrote them. Missing files are added."""
        texts = {path: text for path, text in documents.items() if path != self.settings.flow_path and text.strip()}
        stored = (
            {self.settings.flow_path: documents[self.settings.flow_path]}
            if self.settings.flow_path in documents
            else {}
        )
        known = _read_flow_if_possible(documents.get(self.settings.flow_path, "{}"), self.settings.flow_path)
        if not stored and self.settings.layout.progress(1) not in texts:
            # Nothing is marked as done yet, so the engine knows of every task that it finishes from now on.
            known = replace(known, finished=())
        # The tree may have changed since the checks ran, so their results do not count any more.
        flow = Flow(
            has_baseline=known.has_baseline,
            passed_before=known.passed_before,
            failed_before=known.failed_before,
            stop_reason=known.stop_reason,
            is_pause=known.is_pause,
            run_has_ended=True,
            replans=known.replans,
            ends=known.ends,
            judged_snapshot=known.judged_snapshot,
        )
        repaired = repair(self.settings.layout, texts, stamp(self.settings.created_at)).documents
        state = replace(
            self._create_state({**texts, **stored, **repaired}),
            flow=flow if known.stop_reason else replace(flow, run_has_ended=False),
        )
        path = self.settings.layout.progress(1)
        if path in state.texts:
            state = replace(
                state, progress=progress.parse_progress(state.texts[path], self.settings.layout.style), written=repaired
            )
        state = self._reconcile(planning.add_update_steps(with_listed_tasks(state)), known)
        return self._mark_startable_tasks(reconcile.continue_reviews(iterations.infer_metadata(state), known))

    def _reconcile(self, state: SessionState, known: Flow) -> SessionState:
        """The state in line with its markers. The feed of the run gets what changed while no engine ran."""
        after = reconcile.reconcile(self.settings, reconcile.revert_unfinished_tasks(self.settings, state, known))
        return replace(after, unreported=find_changes_while_stopped(state, after))

    def _mark_startable_tasks(self, state: SessionState) -> SessionState:
        """The state that also asks for tasks that only became possible by what the user changed while no engine ran."""
        if state.state not in (State.BATCHING, State.EXECUTING_BATCH, State.REVIEWING_BATCH):
            return state
        return execution.mark_startable_tasks(self.settings, state)

    def decide(self, state: SessionState, now: float) -> Decision:
        """The work that should be in progress. A session that cannot continue only finishes what it has begun."""
        return replace(self._decide_without_stage(state, now), stage=iterations.describe_stage(self.settings, state))

    def _decide_without_stage(self, state: SessionState, now: float) -> Decision:
        if self.settings.checks and not state.flow.has_baseline:
            return Do((RunChecks(str(SESSION_BASELINE), self.settings.checks, self._read_only_worktree),))
        if not state.flow.is_stopped:
            return self._decide_by_state(state, now)
        if work_items := self._list_task_work(state):
            return Do(work_items)
        return Stop(Outcome.PAUSED if state.flow.is_pause else Outcome.BLOCKED, state.flow.stop_reason)

    def accept(self, state: SessionState, event: Event, now: float) -> Transition[SessionState]:
        """The state after an event, and the documents that record it."""
        after = self._apply_event(state, event, now)
        # The end of a run and the start of a turn start no work. Neither does a signal that changes nothing in the session.
        if not isinstance(event, RunEnded | Landed | TurnStarted) and (
            after is not state or not isinstance(event, SignalAccepted)
        ):
            after = self._advance_until_waiting(after, now)
        if isinstance(event, SignalAccepted) and event.signal.is_guidance:
            notes = append_note(state.texts.get(self.settings.layout.notes, ""), DatedSignal(event.signal, now))
            after = after.with_texts({self.settings.layout.notes: notes})
        after = iterations.with_current_row(self.settings, state, planning.add_instructions(self.settings, after))
        if isinstance(event, RunEnded):
            after = after.with_flow(ends=after.flow.ends + 1)
            path = f".ralph/runs/{self.settings.id}/completion-{after.flow.ends}.md"
            after = after.with_texts({path: build_session_report(self.settings, after, event)})
        written = self._render_changed_documents(state, after)
        if not self.settings.layout.is_classic and self._needs_new_metadata(state, after, written, event):
            after = self._update_metadata(after, now)
            path = self.settings.layout.metadata
            written[path] = metadata.render_metadata(after.metadata, state.texts.get(path, ""))
        notices = after.notices
        filed = {path: text for path, text in written.items() if text}
        tasks = find_task_changes(state, after)
        texts = {**after.texts, **filed} if filed else after.texts
        after = replace(after, texts=texts, written={}, notices=(), unreported=())
        return Transition(
            state=after,
            documents=written,
            side_files=self._copy_own_documents(after, written),
            notices=notices,
            tasks=tasks,
            earlier_tasks=state.unreported,
        )

    # Apply events

    def _apply_event(self, state: SessionState, event: Event, now: float) -> SessionState:
        if isinstance(event, TurnEnded | ChecksEnded | MergeEnded) and state.flow.run_has_ended:
            # The run was resumed and works again: what stopped it is over.
            state = state.with_flow(stop_reason="", is_pause=False, run_has_ended=False)
            state = state.with_metadata(status=Status.IN_PROGRESS)
        queue, settled_merge = state.flow.queue.accept(event)
        if queue is not state.flow.queue:
            state = state.with_flow(queue=queue)
        if settled_merge:
            return execution.accept_merge(state, settled_merge, now)
        match event:
            case TurnStarted(key=key):
                return _accept_turn_start(state, SessionKey.parse(key), now)
            case TurnEnded():
                return self._accept_turn(state, event, now)
            case ChecksEnded(key=key, verdict=verdict):
                return self._accept_checks(state, SessionKey.parse(key), verdict, now)
            case DocumentEdited(path=path, content=content):
                return iterations.with_late_feedback(
                    self.settings, reconcile.accept_edit(self.settings, state, path, content)
                )
            case MergeEnded(key=key) if (work := SessionKey.parse(key)) and work.kind is SessionWork.PROMOTE:
                return state.with_flow(approved=False, approved_items=()).with_state(State.COMPLETE)
            case SignalAccepted(signal=signal):
                return iterations.accept_signal(self.settings, state, signal)
            case RunEnded():
                return self._accept_run_end(state, event, now)
            case _:
                return state

    def _accept_run_end(self, state: SessionState, ended: RunEnded, now: float) -> SessionState:
        if ended.outcome is Outcome.ABORTED:
            return iterations.mark_aborted(self.settings, state, now)
        if ended.outcome is Outcome.PAUSED:
            state = iterations.mark_paused(state, ended.reason)
        is_over = ended.outcome in (Outcome.SUCCESS, Outcome.AWAITING_FEEDBACK, Outcome.UNPROVEN)
        if is_over and state.state is State.KNOWLEDGE_APPROVAL:
            state = iterations.leave_knowledge_undecided(state)
        return _release_waiting_tasks(state)

    def _accept_turn(self, state: SessionState, event: TurnEnded, now: float) -> SessionState:
        """Accept the result of a turn. If a role that must only read changed the tree, the tree is checked again."""
        key = SessionKey.parse(event.key)
        if key is None:
            return state
        after = state
        if event.result.end not in _INCONCLUSIVE_ENDS and not _is_of_earlier_attempt(state, key):
            if self._plans_again(state, key, event.result):
                after = self._plan_again(state, key, event.result)
            elif self._asks_to_pause(key, event.result):
                after = self._pause_for_user(state, key, event)
            else:
                after = self._accept_answer(state, key, event.result, now)
        is_new_tree = (
            self.settings.layout.is_classic
            and key.kind is not SessionWork.EXECUTE
            and execution.has_changed_tree(event)
        )
        return execution.require_checks_again(self.settings, after) if is_new_tree else after

    def _plans_again(self, state: SessionState, key: SessionKey, result: TurnResult) -> bool:
        """Whether a turn without a task says that the user asked for something else, so that a planner begins again.

        Executors and reviewers of tasks say so about their task. If planning again does not help, the user has to say more.
        """
        is_for_session = key.kind in (SessionWork.PLAN, SessionWork.SESSION_REVIEW, SessionWork.CRITIQUE)
        may_plan = state.flow.replans < execution.MAX_REPLANS
        return is_for_session and may_plan and bool(find_scope_change(result.answer))

    def _plan_again(self, state: SessionState, key: SessionKey, result: TurnResult) -> SessionState:
        """The state in which a planner begins again with what the user asked for."""
        asked = find_scope_change(result.answer)
        after = state
        if key.kind is SessionWork.PLAN and key.step == planning.find_next_step(state):
            after = planning.begin_again(state, key.step, asked)
        elif key.kind in (SessionWork.SESSION_REVIEW, SessionWork.CRITIQUE):
            after = iterations.plan_new_scope(self.settings, state, asked)
        if after is state:
            # Planning began again since this turn was started, or nothing is left to plan.
            return state
        after = after.with_flow(replans=state.flow.replans + 1, reviewing=False, checks_again=False)
        return after.with_notice(f"{asked}; a planner plans again with what you said")

    def _asks_to_pause(self, key: SessionKey, result: TurnResult) -> bool:
        """Whether a turn cannot continue before the user says more."""
        is_paused = result.end is TurnEnd.FINISHED and (result.answer or {}).get("status") == "paused"
        return is_paused or bool(_find_scope_change_of_session(key, result))

    def _pause_for_user(self, state: SessionState, key: SessionKey, event: TurnEnded) -> SessionState:
        """The state that waits for the user."""
        asked = _find_scope_change_of_session(key, event.result)
        why = asked and f'{asked}; say what is wanted: ralph resume {self.settings.id} --guidance "..."'
        state = state.with_task_flow(key.task, waits_for_resume=True) if key.task in state.tasks else state
        return state.with_stop(
            f"the {event.role} paused: {why or describe_failure(event.result) or 'no reason was given'}", is_pause=True
        )

    def _accept_answer(self, state: SessionState, key: SessionKey, result: TurnResult, now: float) -> SessionState:
        """Accept what a turn handed over, by its role."""
        status = (result.answer or {}).get("status") if result.end is TurnEnd.FINISHED else None
        marker = state.marker(key.task) if key.task in state.tasks else None
        match key.kind:
            case SessionWork.PLAN | SessionWork.SESSION_REVIEW if status != "completed":
                return self._stop_after_failure(state, result)
            case SessionWork.PLAN if key.step != planning.find_next_step(state):
                # Planning began again since this turn was started.
                return state
            case SessionWork.PLAN:
                return planning.accept_turn(self.settings, state, key, result, now)
            case SessionWork.SESSION_REVIEW:
                return iterations.accept_session_review(self.settings, state, result, now)
            case SessionWork.CRITIQUE:
                return iterations.accept_critique(self.settings, state, result if status == "completed" else None, now)
            case SessionWork.EXTRACT:
                return iterations.accept_knowledge(self.settings, state, result, now)
            case SessionWork.SELECT:
                return iterations.accept_selection(self.settings, state, result)
            case SessionWork.EXECUTE if marker is not None and state.flow_of(key.task).step is Step.EXECUTE:
                state = execution.mark_started(state, key.task, now)
                return execution.accept_execution(self.settings, state, key.task, result, now)
            case SessionWork.REVIEW if marker is Marker.PENDING and self._can_use_review(state, key.task, result):
                return execution.accept_review(self.settings, state, key.task, result, now)
            case SessionWork.REPLAN if marker is not None:
                return planning.accept_replan(self.settings, state, key.task, result, now)
            case SessionWork.SPLIT if marker is not None:
                return execution.accept_split(self.settings, state, key.task, result, now)
            case _:
                return state

    def _stop_after_failure(self, state: SessionState, result: TurnResult) -> SessionState:
        """Stop after a failed turn without a task. It cannot be split, so the user has to make the request smaller."""
        why = describe_failure(result) or f"the turn ended as {result.end}"
        hint = "" if result.end is TurnEnd.FINISHED else "`ralph logs --output` shows why; "
        todo = f'reduce the scope: ralph resume {self.settings.id} --guidance "Only ..."'
        return state.with_stop(f"{why}; {hint}fix it and resume, or {todo}")

    def _can_use_review(self, state: SessionState, task: str, result: TurnResult) -> bool:
        """Whether the answer of a reviewer counts.

        A classic session that is resumed checks its tree again before it asks for a review. A reviewer that an earlier engine
        started may end before that. Ralph cannot read its answer, because nothing asks for it now: the task is reviewed again.
        """
        return bool(result.answer) or state.flow_of(task).step is Step.REVIEW

    def _accept_checks(self, state: SessionState, key: SessionKey | None, verdict: Verdict, now: float) -> SessionState:
        if key == SESSION_BASELINE:
            return replace(state, flow=_with_baseline(state.flow, verdict))
        if key and key.kind is SessionWork.SESSION_CHECK:
            return iterations.accept_session_checks(self.settings, state, verdict, now)
        is_current = key is not None and key.kind in OF_TASK and not _is_of_earlier_attempt(state, key)
        if key and is_current and state.marker(key.task) is Marker.PENDING:
            return execution.accept_checks(self.settings, state, key.task, verdict, now)
        return state

    # Advance the state

    def _advance_until_waiting(self, state: SessionState, now: float) -> SessionState:
        """Advance the state until the session has to wait for work."""
        # Each round enters another state, so there are at most as many rounds as states.
        for _ in range(len(State)):
            after = self._advance_state(state, now)
            if after.state is state.state:
                return after
            state = after
        return state

    def _advance_state(self, state: SessionState, now: float) -> SessionState:
        # Before the next task begins: an update of the user may change it.
        state = planning.add_update_steps(execution.finish_tasks_by_reports(self.settings, state, now))
        match state.state:
            case State.INITIALIZING if planning.find_next_step(state) != PLANNING[0]:
                return state.with_state(State.PLANNING)
            case State.PLANNING | State.REPLANNING:
                return self._finish_planning(planning.skip_steps(state), now)
            case State.COMPLETE | State.KNOWLEDGE_APPROVAL if found := iterations.find_new_feedback(
                self.settings, state
            ):
                return iterations.start_replanning(self.settings, state, found, now)
            case _ if self._waits_for_planning(state):
                return state.with_metadata(status=Status.IN_PROGRESS).with_state(State.PLANNING)
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return execution.advance_tasks(self.settings, state)
            case State.COMPLETE | State.KNOWLEDGE_APPROVAL if execution.has_open_work(state):
                return (
                    state.with_metadata(status=Status.IN_PROGRESS)
                    .with_flow(learned_iteration=0, undecided=False)
                    .with_state(State.BATCHING)
                )
            case _:
                return state

    def _finish_planning(self, state: SessionState, now: float) -> SessionState:
        """Continue with the tasks if no step of planning is left."""
        if planning.find_next_step(state):
            return state
        iteration = replace(state.iteration, planning_complete=True, planning_completed_at=stamp(now))
        filled = state.progress.with_filled_section(progress.implementation_title(iteration.iteration))
        state = replace(state, iteration=iteration, progress=filled).with_flow(replans=0)
        state = execution.reopen_failed_tasks(self.settings, state) if state.state is State.REPLANNING else state
        return planning.keep_plan_copy(self.settings, state).with_state(State.BATCHING)

    def _waits_for_planning(self, state: SessionState) -> bool:
        """Whether an update by the user has to be planned before other work starts."""
        if not self.settings.layout.is_classic or state.state is State.INITIALIZING:
            return False
        return bool(planning.find_next_step(state)) and not any(
            state.flow_of(name).step is not Step.REST for name in state.tasks
        )

    # Request work

    def _decide_by_state(self, state: SessionState, now: float) -> Decision:
        match state.state:
            case State.INITIALIZING | State.PLANNING | State.REPLANNING:
                return Do(self._request_planning_turns(state))
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return self._decide_tasks(state)
            case State.SESSION_REVIEW if self.settings.checks and not state.flow.check_results:
                return self._request_session_checks(state)
            case State.COMPLETE if self._must_check_again(state):
                return self._request_session_checks(state)
            case State.SESSION_REVIEW:
                return Do((turn_requests.request_session_review(self.settings, state),))
            case State.CRITIQUE:
                return Do((turn_requests.request_critique(self.settings, state),))
            case State.KNOWLEDGE_EXTRACTION:
                return Do((turn_requests.request_knowledge(self.settings, state),))
            case State.KNOWLEDGE_APPROVAL if state.flow.approved and state.flow.approval_message:
                return Do((turn_requests.request_selection(self.settings, state),))
            case State.KNOWLEDGE_APPROVAL:
                return iterations.decide_approval(self.settings, state, now)
            case State.COMPLETE:
                return iterations.decide_end(self.settings, state)

    def _must_check_again(self, state: SessionState) -> bool:
        """Whether checks are due although the iteration is over.

        The tree of a classic session may have changed, or the user may have accepted what could not be proven.
        """
        if not self.settings.checks or state.flow.check_results:
            return False
        return self.settings.layout.is_classic or state.flow.review_accepted

    def _request_session_checks(self, state: SessionState) -> Do:
        key = iterations.make_session_key(state, SessionWork.SESSION_CHECK)
        return Do((RunChecks(str(key), self.settings.checks, self._read_only_worktree, is_final=True),))

    def _decide_tasks(self, state: SessionState) -> Decision:
        if fault := state.fault:
            place = self.settings.layout.place_of_tasks(state.metadata.iteration)
            return Stop(Outcome.BLOCKED, f"the dependencies of the tasks are invalid: {fault}; correct {place}")
        if work_items := self._list_task_work(state):
            return Do(work_items)
        return Stop(Outcome.AWAITING_FEEDBACK, "; ".join(iterations.describe_unfinished(self.settings, state)))

    @property
    def _read_only_worktree(self) -> str:
        """The worktree of roles that only read."""
        return "" if self.settings.layout.is_classic else READ_ONLY_WORKTREE

    def _request_planning_turns(self, state: SessionState) -> tuple[Work, ...]:
        step = planning.find_next_step(state)
        if step != "plan-brainstorm" or self.settings.layout.is_classic:
            return (turn_requests.request_planning(self.settings, state, step),)
        return tuple(
            turn_requests.request_planning(self.settings, state, step, *one)
            for one in planning.list_categories_to_ask(state)
        )

    def _list_task_work(self, state: SessionState) -> tuple[Work, ...]:
        work_items: list[Work] = []
        work_items += state.flow.queue.list_work(
            lambda task: self._list_merge_checks(state, task), self.settings.roles.resolver
        )
        reviewers = state.limits.max_reviewers
        active = sorted(
            (name for name, flow in state.flow.tasks.items() if flow.step is not Step.REST), key=make_natural_key
        )
        # With waves, no review starts before all executors of the wave have ended.
        waits = self.settings.by_waves and any(state.flow_of(name).step is Step.EXECUTE for name in active)
        for name in active:
            flow = state.flow_of(name)
            if flow.waits_for_resume:
                continue
            if flow.step is Step.EXECUTE:
                work_items.append(turn_requests.request_execution(self.settings, state, name))
            elif flow.step is Step.CHECK:
                checks = self.settings.compile_task_checks(state.tasks[name])
                key = SessionKey(SessionWork.CHECK, task=name, attempt=flow.attempt)
                work_items.append(RunChecks(str(key), checks, name_task_worktree(state, name)))
            elif flow.step is Step.REVIEW and reviewers and not waits:
                work_items.append(turn_requests.request_review(self.settings, state, name))
                reviewers -= 1
            elif flow.step is Step.SPLIT:
                work_items.append(turn_requests.request_split(self.settings, state, name))
            elif flow.step is Step.REPLAN:
                work_items.append(turn_requests.request_replan(self.settings, state, name))
        return tuple(work_items)

    def _list_merge_checks(self, state: SessionState, task: str) -> tuple[Check, ...]:
        """The checks that must pass on the merged tree: those of the task, and those that passed before the session."""
        passed = tuple(check for check in self.settings.checks if check.title in state.flow.passed_before)
        return (
            *passed,
            *(check for check in self.settings.compile_task_checks(state.tasks[task]) if check not in passed),
        )

    # Documents

    def _create_state(self, documents: Mapping[str, str]) -> SessionState:
        at = stamp(self.settings.created_at)
        is_classic = self.settings.layout.is_classic
        return SessionState(
            layout=self.settings.layout,
            metadata=Metadata(self.settings.id, at, at, state=State.INITIALIZING, request=self.settings.request),
            iteration=IterationMetadata(1, at),
            progress=progress.render_new_classic_progress((), PLANNING)
            if is_classic
            else progress.render_new_progress(1, PLANNING),
            tasks={},
            texts=dict(documents),
            limits=planning.read_session_limits(self.settings, documents),
            flow=Flow(finished=(), completed_iteration=0),
        )

    def _render_changed_documents(self, before: SessionState, after: SessionState) -> dict[str, str]:
        """The documents that changed, except for the metadata of the session."""
        written, number = dict(after.written), after.metadata.iteration
        progress_path, metadata_path = (
            self.settings.layout.progress(number),
            self.settings.layout.iteration_metadata(number),
        )
        # A classic session has no state but its files, so nothing is written before there is a plan.
        is_begun = not self.settings.layout.is_classic or after.state is not State.INITIALIZING
        if is_begun and before.texts.get(progress_path) != after.progress.text:
            written[progress_path] = after.progress.text
        if not self.settings.layout.is_classic and (
            after.iteration != before.iteration or metadata_path not in before.texts
        ):
            text = before.texts.get(metadata_path, "")
            written[metadata_path] = metadata.render_iteration_metadata(after.iteration, text)
        # An engine that takes over must know from the first commit on that this one counts the finished tasks.
        is_flow_missing = after.flow.finished is not None and self.settings.flow_path not in before.texts
        if after.flow != before.flow or is_flow_missing:
            written[self.settings.flow_path] = render_flow(after.flow)
        if after.flow.queue != before.flow.queue:
            written[queue_path(self.settings.id)] = render_queue(after.flow.queue)
        return written

    def _copy_own_documents(self, state: SessionState, written: Mapping[str, str]) -> SideFiles:
        """Copies of the documents that say how far the session is. Other files cannot tell all of that if one is deleted."""
        number = state.metadata.iteration
        own = (
            self.settings.layout.metadata,
            self.settings.layout.progress(number),
            self.settings.layout.iteration_metadata(number),
        )
        return SideFiles(
            {self.settings.copy_path(path): text for path, text in written.items() if path in own and text}
        )

    def _needs_new_metadata(
        self, before: SessionState, after: SessionState, written: Mapping[str, str], event: Event
    ) -> bool:
        """Whether the metadata have to be written: with every change, except for the end of a run that changed nothing."""
        if not isinstance(event, RunEnded):
            return bool(written) or after.metadata != before.metadata
        path = self.settings.layout.metadata
        # Loading may have repaired what the user wrote, so the file counts.
        old = metadata.parse_metadata(before.texts[path], path) if path in before.texts else before.metadata
        new = self._update_metadata(after, 0).metadata
        is_same = replace(new, version=old.version, updated_at=old.updated_at) == old
        return not is_same or any(path.startswith(f"{self.settings.layout.root}/") for path in written)

    def _update_metadata(self, state: SessionState, now: float) -> SessionState:
        """The state with metadata that match it and the next version number."""
        blocked = state.flow.is_stopped and not state.flow.is_pause
        status = Status.BLOCKED if blocked else state.metadata.status
        data = {"version": state.metadata.version + 1, "updated_at": stamp(now), "status": status}
        return state.with_metadata(paused=state.flow.is_pause, **data, **iterations.count_tasks(state))


def _find_scope_change_of_session(key: SessionKey, result: TurnResult) -> str:
    """What the user asked for instead; empty for turns of a task. There a planner changes the task, and others continue."""
    if key.kind in (SessionWork.EXECUTE, SessionWork.REVIEW):
        return ""
    return find_scope_change(result.answer)


def _is_of_earlier_attempt(state: SessionState, key: SessionKey) -> bool:
    """Whether work belongs to an attempt that is over: the user reset the task while no engine ran, and a turn continued."""
    if key.kind not in OF_TASK or key.task not in state.flow.tasks:
        return False
    return key.attempt != state.flow_of(key.task).attempt


def rebuild_flow(entries: Iterable[Entry]) -> Flow:
    """What the journal says about the flow: the finished tasks, the baseline, and how often the run ended."""
    finished: list[str] = []
    flow = Flow()
    for entry in entries:
        match entry:
            case TaskChanged(task=task, state=task_state):
                finished = [name for name in finished if name != task]
                finished += [task] if task_state is TaskState.DONE else []
            case MergeEnded() if entry.is_merged and (task := find_merged_task(entry)):
                # The engine may have died before it journaled that the task is done.
                finished = [*(name for name in finished if name != task), task]
            case ChecksEnded(key=key, verdict=verdict) if SessionKey.parse(key) == SESSION_BASELINE:
                flow = _with_baseline(flow, verdict)
            case RunEnded():
                flow = replace(flow, ends=flow.ends + 1)
            case _:
                pass
    return replace(flow, finished=tuple(finished), completed_iteration=0)


def _with_baseline(flow: Flow, verdict: Verdict) -> Flow:
    passed = tuple(result.title for result in verdict.results if result.passed)
    failed = {result.title: " ".join(result.reason.split())[:MAX_REASON] for result in verdict.not_passed}
    return replace(flow, has_baseline=True, passed_before=passed, failed_before=failed)


def _accept_turn_start(state: SessionState, key: SessionKey | None, now: float) -> SessionState:
    """A task is in progress from the moment at which the turn of its executor starts."""
    if key is None:
        return state
    if key.kind is SessionWork.EXECUTE and key.task in state.tasks:
        return execution.mark_started(state, key.task, now)
    if not state.layout.is_classic:
        return state
    if key.kind is SessionWork.REVIEW and state.flow_of(key.task).step is Step.REVIEW:
        return state.with_task_flow(key.task, reviewing=True)
    return state.with_flow(reviewing=True) if key.kind is SessionWork.SESSION_REVIEW else state


def _release_waiting_tasks(state: SessionState) -> SessionState:
    """After a run: no reviewer is at work, and tasks that waited for the resume are tried again."""
    for name in [name for name, flow in state.flow.tasks.items() if flow.reviewing]:
        state = state.with_task_flow(name, reviewing=False)
    if state.flow.reviewing:
        state = state.with_flow(reviewing=False)
    for name in [name for name, flow in state.flow.tasks.items() if flow.waits_for_resume]:
        state = state.with_task_flow(name, waits_for_resume=False)
    return state.with_flow(run_has_ended=True) if state.flow.stop_reason else state


def _read_flow_if_possible(text: str, path: str) -> Flow:
    """The flow in a document; an empty one if it cannot be read."""
    try:
        return read_flow(text, path)
    except StateError:
        return Flow()
