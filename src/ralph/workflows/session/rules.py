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
from ralph.workflows.merge_rules import queue_path, read_queue, render_queue
from ralph.workflows.session import execution, iterations, planning, reconcile, turn_requests
from ralph.workflows.session.report import build_session_report
from ralph.workflows.session.state import (
    Flow,
    SessionSettings,
    SessionState,
    Step,
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
class Session(SessionSettings):
    """One session: its request, its checks, and how it is worked on."""

    def load(self, documents: Mapping[str, str]) -> SessionState:
        """The session that the documents describe; a new one if there is no document."""
        if self.layout.is_classic:
            return self._load_from_files(documents)
        if self.layout.metadata not in documents:
            return self._create_state(documents)
        data = metadata.parse_metadata(documents[self.layout.metadata], self.layout.metadata)
        number = data.iteration
        iteration = IterationMetadata(number, data.created_at)
        path = self.layout.iteration_metadata(number)
        if path in documents:
            iteration = metadata.parse_iteration_metadata(documents[path], path)
        flow = Flow()
        if self.flow_path in documents:
            flow = read_flow(documents[self.flow_path], self.flow_path)
        if queue_path(self.id) in documents:
            flow = replace(flow, queue=read_queue(documents[queue_path(self.id)], queue_path(self.id)))
        state = SessionState(
            layout=self.layout,
            metadata=data,
            iteration=iteration,
            progress=progress.parse_progress(documents.get(self.layout.progress(number), "")),
            tasks={},
            texts=documents,
            guardrails=planning.read_guardrails(self, documents),
            flow=flow,
        )
        state = reconcile.revert_unreviewed_end(self._reconcile(with_listed_tasks(state), flow))
        return self._request_startable_tasks(state)

    def _load_from_files(self, documents: Mapping[str, str]) -> SessionState:
        """The session that its files describe, even if other tools wrote them. Missing files are added."""
        texts = {path: text for path, text in documents.items() if path != self.flow_path and text.strip()}
        stored = {self.flow_path: documents[self.flow_path]} if self.flow_path in documents else {}
        known = _read_flow_if_possible(documents.get(self.flow_path, "{}"), self.flow_path)
        if not stored and self.layout.progress(1) not in texts:
            # Nothing is marked as done yet, so the engine knows of every task that it finishes from now on.
            known = replace(known, finished=())
        # The tree may have changed since the checks ran, so their results do not count any more.
        flow = Flow(
            baseline=known.baseline,
            passed_before=known.passed_before,
            failed_before=known.failed_before,
            stop_reason=known.stop_reason,
            is_pause=known.is_pause,
            run_has_ended=True,
            replans=known.replans,
            ends=known.ends,
        )
        repaired = repair(self.layout, texts, stamp(self.created_at)).documents
        state = replace(
            self._create_state({**texts, **stored, **repaired}),
            flow=flow if known.stop_reason else replace(flow, run_has_ended=False),
        )
        path = self.layout.progress(1)
        if path in state.texts:
            state = replace(
                state, progress=progress.parse_progress(state.texts[path], self.layout.style), written=repaired
            )
        state = self._reconcile(planning.add_update_steps(with_listed_tasks(state)), known)
        return self._request_startable_tasks(reconcile.continue_reviews(iterations.infer_metadata(state), known))

    def _reconcile(self, state: SessionState, known: Flow) -> SessionState:
        """The state in line with its markers. The feed of the run gets what changed while no engine ran."""
        after = reconcile.reconcile(self, reconcile.revert_unfinished_tasks(self, state, known))
        return replace(after, unreported=find_changes_while_stopped(state, after))

    def _request_startable_tasks(self, state: SessionState) -> SessionState:
        """The state that also asks for tasks that only became possible by what the user changed while no engine ran."""
        if state.state not in (State.BATCHING, State.EXECUTING_BATCH, State.REVIEWING_BATCH):
            return state
        return execution.request_startable_tasks(self, state)

    def decide(self, state: SessionState, now: float) -> Decision:
        """The work that should be in progress. A session that cannot continue only finishes what it has begun."""
        return replace(self._decide_step(state, now), stage=iterations.describe_stage(self, state))

    def _decide_step(self, state: SessionState, now: float) -> Decision:
        if self.checks and not state.flow.baseline:
            return Do((RunChecks(str(SESSION_BASELINE), self.checks, self._read_only_worktree),))
        if not state.flow.is_stopped:
            return self._decide_work(state, now)
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
            notes = append_note(state.texts.get(self.layout.notes, ""), DatedSignal(event.signal, now))
            after = after.with_texts({self.layout.notes: notes})
        after = iterations.with_current_row(self, state, planning.add_instructions(self, after))
        if isinstance(event, RunEnded):
            after = after.with_flow(ends=after.flow.ends + 1)
            path = f".ralph/runs/{self.id}/completion-{after.flow.ends}.md"
            after = after.with_texts({path: build_session_report(self, after, event)})
        written = self._render_changed_documents(state, after)
        if not self.layout.is_classic and self._needs_new_metadata(state, after, written, event):
            after = self._update_metadata(after, now)
            path = self.layout.metadata
            written[path] = metadata.render_metadata(after.metadata, state.texts.get(path, ""))
        notices = after.notices
        filed = {path: text for path, text in written.items() if text}
        tasks = (*state.unreported, *find_task_changes(state, after))
        texts = {**after.texts, **filed} if filed else after.texts
        after = replace(after, texts=texts, written={}, notices=(), unreported=())
        return Transition(after, written, notices=notices, tasks=tasks)

    # Apply events

    def _apply_event(self, state: SessionState, event: Event, now: float) -> SessionState:
        queue, settled = state.flow.queue.accept(event)
        if queue is not state.flow.queue:
            state = state.with_flow(queue=queue)
        if settled:
            return execution.accept_merge(state, settled, now)
        if isinstance(event, TurnEnded | ChecksEnded | MergeEnded) and state.flow.run_has_ended:
            state = state.with_flow(stop_reason="", is_pause=False, run_has_ended=False)
            state = state.with_metadata(status=Status.IN_PROGRESS)
        match event:
            case TurnStarted(key=key):
                return _accept_turn_start(state, SessionKey.parse(key), now)
            case TurnEnded():
                return self._accept_turn(state, event, now)
            case ChecksEnded(key=key, verdict=verdict):
                return self._accept_checks(state, SessionKey.parse(key), verdict, now)
            case DocumentEdited(path=path, content=content):
                return iterations.with_late_feedback(self, reconcile.accept_edit(self, state, path, content))
            case MergeEnded(key=key) if (work := SessionKey.parse(key)) and work.kind is SessionWork.PROMOTE:
                return state.with_flow(approved=False, items=()).with_state(State.COMPLETE)
            case SignalAccepted(signal=signal):
                return iterations.accept_signal(self, state, signal)
            case RunEnded():
                return self._accept_run_end(state, event, now)
            case _:
                return state

    def _accept_run_end(self, state: SessionState, ended: RunEnded, now: float) -> SessionState:
        if ended.outcome is Outcome.ABORTED:
            return iterations.mark_aborted(self, state, now)
        if ended.outcome is Outcome.PAUSED:
            state = iterations.mark_paused(state, ended.reason)
        return _release_waiting_tasks(state)

    def _accept_turn(self, state: SessionState, event: TurnEnded, now: float) -> SessionState:
        """Accept the result of a turn. If a role that must only read changed the tree, the tree is checked again."""
        key = SessionKey.parse(event.key)
        if key is None:
            return state
        after = state
        if event.result.end not in _INCONCLUSIVE_ENDS and not _is_of_earlier_attempt(state, key):
            after = (
                self._plan_again(state, key, event.result)
                or self._pause_for_user(state, key, event)
                or self._accept_answer(state, key, event.result, now)
            )
        is_new_tree = (
            self.layout.is_classic and key.kind is not SessionWork.EXECUTE and execution.has_changed_tree(event)
        )
        return execution.require_checks_again(self, after) if is_new_tree else after

    def _plan_again(self, state: SessionState, key: SessionKey, result: TurnResult) -> SessionState | None:
        """The state in which a planner follows the user who asked for something else; None if the turn does not say so.

        Executors and reviewers of tasks say so about their task. If planning again does not help, the user has to say more.
        """
        asked = find_scope_change(result.answer)
        if not asked or state.flow.replans >= execution.MAX_REPLANS:
            return None
        after = state
        if key.kind is SessionWork.PLAN and key.step == planning.find_next_step(state):
            after = planning.begin_again(state, key.step, asked)
        elif key.kind in (SessionWork.SESSION_REVIEW, SessionWork.CRITIQUE):
            after = iterations.plan_new_scope(self, state, asked)
        elif key.kind is not SessionWork.PLAN:
            return None
        if after is state:
            return state
        after = after.with_flow(replans=state.flow.replans + 1, reviewing=False, checks_again=False)
        return after.with_notice(f"{asked}; a planner plans again with what you said")

    def _pause_for_user(self, state: SessionState, key: SessionKey, event: TurnEnded) -> SessionState | None:
        """The state that waits for the user; None if the turn does not ask for that."""
        answer = event.result.answer or {}
        is_paused = event.result.end is TurnEnd.FINISHED and answer.get("status") == "paused"
        # If the user asks for another task while one is done or reviewed, a planner changes it. Parallel tasks continue.
        can_pause = key.kind not in (SessionWork.EXECUTE, SessionWork.REVIEW)
        asked = find_scope_change(event.result.answer) if can_pause else ""
        if not is_paused and not asked:
            return None
        why = asked and f'{asked}; say what is wanted: ralph resume {self.id} --guidance "..."'
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
                why = describe_failure(result) or f"the turn ended as {result.end}"
                # A turn without a task cannot be split, so the user has to make the request smaller.
                looks = "" if result.end is TurnEnd.FINISHED else "`ralph logs --output` shows why; "
                todo = f'reduce the scope: ralph resume {self.id} --guidance "Only ..."'
                return state.with_stop(f"{why}; {looks}fix it and resume, or {todo}")
            case SessionWork.PLAN if key.step != planning.find_next_step(state):
                # Planning began again since this turn was started.
                return state
            case SessionWork.PLAN:
                return planning.accept_turn(self, state, key, result, now)
            case SessionWork.SESSION_REVIEW:
                return iterations.accept_session_review(self, state, result, now)
            case SessionWork.CRITIQUE:
                return iterations.accept_critique(self, state, result if status == "completed" else None, now)
            case SessionWork.EXTRACT:
                return iterations.accept_knowledge(self, state, result, now)
            case SessionWork.CURATE:
                return iterations.accept_selection(self, state, result)
            case SessionWork.EXECUTE if marker and state.flow_of(key.task).step is Step.EXECUTE:
                state = execution.mark_started(state, key.task, now)
                return execution.accept_execution(self, state, key.task, result, now)
            case SessionWork.REVIEW if marker is Marker.PENDING and self._can_use_review(state, key.task, result):
                return execution.accept_review(self, state, key.task, result, now)
            case SessionWork.REPLAN if marker is not None:
                return planning.accept_replan(self, state, key.task, result, now)
            case SessionWork.SPLIT if marker is not None:
                return execution.accept_split(self, state, key.task, result, now)
            case _:
                return state

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
            failed = tuple(f"`{result.command}`" if result.command else result.title for result in verdict.failed)
            results = execution.describe_verdict(verdict) or "all pass"
            # The reviewer of the session is the judge of changed tests and settings.
            passed = verdict.passed or verdict.awaits_judge
            return state.with_flow(
                check_results=results, failed_checks=failed, passed=passed, evidence=verdict.evidence
            )
        is_current = key is not None and key.kind in OF_TASK and not _is_of_earlier_attempt(state, key)
        if key and is_current and state.marker(key.task) is Marker.PENDING:
            return execution.accept_checks(self, state, key.task, verdict, now)
        return state

    # Advance the state

    def _advance_until_waiting(self, state: SessionState, now: float) -> SessionState:
        """Advance the state until the session has to wait for work."""
        for _ in range(len(State)):
            after = self._advance_state(state, now)
            if after.state is state.state:
                return after
            state = after
        return state

    def _advance_state(self, state: SessionState, now: float) -> SessionState:
        state = planning.add_update_steps(state)
        match state.state:
            case State.INITIALIZING if planning.find_next_step(state) != PLANNING[0]:
                return state.with_state(State.PLANNING)
            case State.PLANNING | State.REPLANNING:
                return self._finish_planning(planning.skip_steps(state), now)
            case State.COMPLETE | State.KNOWLEDGE_APPROVAL if found := iterations.find_new_feedback(self, state):
                return iterations.start_replanning(self, state, found, now)
            case _ if self._waits_for_planning(state):
                return state.with_metadata(status=Status.IN_PROGRESS).with_state(State.PLANNING)
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return execution.advance_tasks(self, state, now)
            case State.COMPLETE | State.KNOWLEDGE_APPROVAL if execution.has_open_work(state):
                return state.with_metadata(status=Status.IN_PROGRESS).with_state(State.BATCHING)
            case _:
                return state

    def _finish_planning(self, state: SessionState, now: float) -> SessionState:
        """Continue with the tasks if no step of planning is left."""
        if planning.find_next_step(state):
            return state
        iteration = replace(state.iteration, planning_complete=True, planning_completed_at=stamp(now))
        filled = state.progress.with_filled_section(progress.implementation_title(iteration.iteration))
        state = replace(state, iteration=iteration, progress=filled).with_flow(replans=0)
        state = execution.reopen_failed_tasks(self, state) if state.state is State.REPLANNING else state
        return planning.keep_plan_copy(self, state).with_state(State.BATCHING)

    def _waits_for_planning(self, state: SessionState) -> bool:
        """Whether an update by the user has to be planned before other work starts."""
        if not self.layout.is_classic or state.state is State.INITIALIZING:
            return False
        return bool(planning.find_next_step(state)) and not any(
            state.flow_of(name).step is not Step.REST for name in state.tasks
        )

    # Request work

    def _decide_work(self, state: SessionState, now: float) -> Decision:
        match state.state:
            case State.INITIALIZING | State.PLANNING | State.REPLANNING:
                return Do(self._planning(state))
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return self._list_task_work_or_stop(state)
            case State.SESSION_REVIEW if self.checks and not state.flow.check_results:
                return self._request_session_checks(state)
            case State.COMPLETE if self.layout.is_classic and self.checks and not state.flow.check_results:
                # The tree has changed since the session was complete.
                return self._request_session_checks(state)
            case State.SESSION_REVIEW:
                return Do((turn_requests.request_session_review(self, state),))
            case State.CRITIQUE:
                return Do((turn_requests.request_critique(self, state),))
            case State.KNOWLEDGE_EXTRACTION:
                return Do((turn_requests.request_knowledge(self, state),))
            case State.KNOWLEDGE_APPROVAL if state.flow.approved and state.flow.wish:
                return Do((turn_requests.request_selection(self, state),))
            case State.KNOWLEDGE_APPROVAL:
                return iterations.decide_approval(self, state, now)
            case State.COMPLETE:
                return iterations.decide_end(self, state)

    def _request_session_checks(self, state: SessionState) -> Do:
        key = iterations.make_session_key(state, SessionWork.SESSION_CHECK)
        return Do((RunChecks(str(key), self.checks, self._read_only_worktree, is_final=True),))

    def _list_task_work_or_stop(self, state: SessionState) -> Decision:
        if fault := state.fault:
            place = self.layout.place_of_tasks(state.metadata.iteration)
            return Stop(Outcome.BLOCKED, f"the dependencies of the tasks are invalid: {fault}; correct {place}")
        if work_items := self._list_task_work(state):
            return Do(work_items)
        return Stop(Outcome.AWAITING_FEEDBACK, "; ".join(iterations.describe_unfinished(self, state)))

    @property
    def _read_only_worktree(self) -> str:
        """The worktree of roles that only read."""
        return "" if self.layout.is_classic else READ_ONLY_WORKTREE

    def _planning(self, state: SessionState) -> tuple[Work, ...]:
        step = planning.find_next_step(state)
        if step != "plan-brainstorm" or self.layout.is_classic:
            return (turn_requests.request_planning(self, state, step),)
        return tuple(
            turn_requests.request_planning(self, state, step, *one) for one in planning.list_categories_to_ask(state)
        )

    def _list_task_work(self, state: SessionState) -> tuple[Work, ...]:
        work_items: list[Work] = []
        work_items += state.flow.queue.list_work(lambda task: self._list_merge_checks(state, task), self.roles.resolver)
        reviewers = state.guardrails.max_reviewers
        active = sorted(
            (name for name, flow in state.flow.tasks.items() if flow.step is not Step.REST), key=make_natural_key
        )
        waits = self.by_waves and any(state.flow_of(name).step is Step.EXECUTE for name in active)
        for name in active:
            flow = state.flow_of(name)
            if flow.waits_for_resume:
                continue
            if flow.step is Step.EXECUTE:
                work_items.append(turn_requests.request_execution(self, state, name))
            elif flow.step is Step.CHECK:
                checks = self.compile_task_checks(state.tasks[name])
                key = SessionKey(SessionWork.CHECK, task=name, attempt=flow.attempt)
                work_items.append(RunChecks(str(key), checks, name_task_worktree(state, name)))
            elif flow.step is Step.REVIEW and reviewers and not waits:
                work_items.append(turn_requests.request_review(self, state, name))
                reviewers -= 1
            elif flow.step is Step.SPLIT:
                work_items.append(turn_requests.request_split(self, state, name))
            elif flow.step is Step.REPLAN:
                work_items.append(turn_requests.request_replan(self, state, name))
        return tuple(work_items)

    def _list_merge_checks(self, state: SessionState, task: str) -> tuple[Check, ...]:
        """The checks that must pass on the merged tree: those of the task, and those that passed before the session."""
        passed = tuple(check for check in self.checks if check.title in state.flow.passed_before)
        return (*passed, *(check for check in self.compile_task_checks(state.tasks[task]) if check not in passed))

    # Documents

    def _create_state(self, documents: Mapping[str, str]) -> SessionState:
        at = stamp(self.created_at)
        is_classic = self.layout.is_classic
        return SessionState(
            layout=self.layout,
            metadata=Metadata(self.id, at, at, state=State.INITIALIZING, request=self.request),
            iteration=IterationMetadata(1, at),
            progress=progress.render_new_classic_progress((), PLANNING)
            if is_classic
            else progress.render_new_progress(1, PLANNING),
            tasks={},
            texts=dict(documents),
            guardrails=planning.read_guardrails(self, documents),
            flow=Flow(finished=(), completed=0),
        )

    def _render_changed_documents(self, before: SessionState, after: SessionState) -> dict[str, str]:
        """The documents that changed, except for the metadata of the session."""
        written, number = dict(after.written), after.metadata.iteration
        progress_path, metadata_path = self.layout.progress(number), self.layout.iteration_metadata(number)
        # A classic session has no state but its files, so nothing is written before there is a plan.
        is_begun = not self.layout.is_classic or after.state is not State.INITIALIZING
        if is_begun and before.texts.get(progress_path) != after.progress.text:
            written[progress_path] = after.progress.text
        if not self.layout.is_classic and (after.iteration != before.iteration or metadata_path not in before.texts):
            text = before.texts.get(metadata_path, "")
            written[metadata_path] = metadata.render_iteration_metadata(after.iteration, text)
        # An engine that takes over must know from the first commit on that this one counts the finished tasks.
        is_flow_missing = after.flow.finished is not None and self.flow_path not in before.texts
        if after.flow != before.flow or is_flow_missing:
            written[self.flow_path] = render_flow(after.flow)
        if after.flow.queue != before.flow.queue:
            written[queue_path(self.id)] = render_queue(after.flow.queue)
        return written

    def _needs_new_metadata(
        self, before: SessionState, after: SessionState, written: Mapping[str, str], event: Event
    ) -> bool:
        """Whether the metadata have to be written: with every change, except for the end of a run that changed nothing."""
        if not isinstance(event, RunEnded):
            return bool(written) or after.metadata != before.metadata
        old, new = before.metadata, self._update_metadata(after, 0).metadata
        is_same = replace(new, version=old.version, updated_at=old.updated_at) == old
        return not is_same or any(path.startswith(f"{self.layout.root}/") for path in written)

    def _update_metadata(self, state: SessionState, now: float) -> SessionState:
        """The state with metadata that match it and the next version number."""
        blocked = state.flow.is_stopped and not state.flow.is_pause
        status = Status.BLOCKED if blocked else state.metadata.status
        data = {"version": state.metadata.version + 1, "updated_at": stamp(now), "status": status}
        return state.with_metadata(paused=state.flow.is_pause, **data, **iterations.count_tasks(state))


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
            case ChecksEnded(key=key, verdict=verdict) if SessionKey.parse(key) == SESSION_BASELINE:
                flow = _with_baseline(flow, verdict)
            case RunEnded():
                flow = replace(flow, ends=flow.ends + 1)
            case _:
                pass
    return replace(flow, finished=tuple(finished), completed=0)


def _with_baseline(flow: Flow, verdict: Verdict) -> Flow:
    passed = tuple(result.title for result in verdict.results if result.passed)
    failed = {result.title: " ".join(result.reason.split())[:MAX_REASON] for result in verdict.failed}
    return replace(flow, baseline=True, passed_before=passed, failed_before=failed)


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


def describe_failure(result: TurnResult) -> str:
    """Why a turn did not do its work: what blocked it, or its error."""
    return "; ".join(map(str, (result.answer or {}).get("blockers") or ())) or result.error
