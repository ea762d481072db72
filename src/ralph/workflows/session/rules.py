"""The rules of a session: what happens next, by its documents alone.

Events change the state; `_route` then goes on until there is something to wait for. Every edge between markers is a
legal one. What follows from whom is beside this: `planning`, `working`, `closing`, `editing`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ralph.core.checks import Check, Verdict
from ralph.core.errors import StateError
from ralph.core.events import (
    Changes,
    ChecksEnded,
    Decision,
    Do,
    DocumentEdited,
    Event,
    Landed,
    Merged,
    RunChecks,
    RunEnded,
    SignalTaken,
    Stop,
    TurnEnded,
    Work,
)
from ralph.core.graphs import natural
from ralph.core.outcomes import Outcome
from ralph.core.signals import Received, scope_change
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.guidance import append_note
from ralph.documents.session import metadata, progress, repair_classic
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.markers import Marker
from ralph.documents.session.metadata import IterationMetadata, Metadata, State, Status
from ralph.documents.session.repair import PLANNING
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.merging import queue_json, queue_path, read_queue
from ralph.workflows.session import closing, editing, planning, planning_classic, prompting, working
from ralph.workflows.session.keys import OF_TASK, Kind, WorkKey
from ralph.workflows.session.state import LOOK, Flow, SessionState, Step, flow_json, read_flow, with_listed, workspace
from ralph.workflows.session.terms import SessionTerms

BASELINE = WorkKey(Kind.BASELINE)
_CUT_OFF = (TurnEnd.CUT, TurnEnd.UNAVAILABLE, TurnEnd.INTERRUPTED)
"""Ends that say nothing of the work: the same is asked for again when the run goes on."""


@dataclass(frozen=True)
class Session(SessionTerms):
    """One session: its request, its checks, and how it is worked on."""

    def load(self, documents: Mapping[str, str]) -> SessionState:
        """The session that the documents describe; a new one if there are none."""
        if not self.layout.has_metadata:
            return self._load_from_files(documents)
        if self.layout.metadata not in documents:
            return self._fresh(documents)
        data = metadata.parse(documents[self.layout.metadata], self.layout.metadata)
        number = data.iteration
        where = self.layout.iteration_metadata(number)
        begun = IterationMetadata(number, data.created_at)
        own = metadata.parse_iteration(documents[where], where) if where in documents else begun
        flow = read_flow(documents[self.flow_path], self.flow_path) if self.flow_path in documents else Flow()
        if queue_path(self.id) in documents:
            flow = replace(flow, queue=read_queue(documents[queue_path(self.id)], queue_path(self.id)))
        state = SessionState(
            layout=self.layout,
            metadata=data,
            iteration=own,
            progress=progress.Progress(documents.get(self.layout.progress(number), "")),
            tasks={},
            texts=documents,
            guardrails=planning.guardrails_of(self, documents),
            flow=flow,
        )
        return editing.taken_up(self, with_listed(state))

    def _load_from_files(self, documents: Mapping[str, str]) -> SessionState:
        """The session that its files tell of, in whatever way they are written; what is missing is put in."""
        texts = {path: text for path, text in documents.items() if path != self.flow_path and text.strip()}
        known = _read_flow_if_possible(documents.get(self.flow_path, "{}"), self.flow_path)
        # What was checked before is a claim now: the tree may have changed since.
        flow = Flow(baseline=known.baseline, held=known.held, stop=known.stop, paused=known.paused, rested=True)
        assert isinstance(self.layout, ClassicLayout)
        mended, _ = repair_classic.repair(self.layout, texts)
        state = replace(self._fresh({**texts, **mended}), flow=flow if known.stop else replace(flow, rested=False))
        path = self.layout.progress(1)
        if path in state.texts:
            state = replace(state, progress=progress.Progress(state.texts[path], self.layout.style), written=mended)
        state = editing.taken_up(self, planning_classic.with_updates(with_listed(state)))
        return closing.infer_metadata(state)

    def decide(self, state: SessionState, now: float) -> Decision:
        """What should be under way; where the session cannot go on, what is under way is waited for."""
        return replace(self._decided(state), stage=closing.stage(state))

    def _decided(self, state: SessionState) -> Decision:
        if self.checks and not state.flow.baseline:
            return Do((RunChecks(str(BASELINE), self.checks, self._look),))
        if not state.flow.stops:
            return self._wanted(state)
        if works := self._batch(state):
            return Do(works)
        return Stop(Outcome.PAUSED if state.flow.paused else Outcome.BLOCKED, state.flow.stop)

    def accept(self, state: SessionState, event: Event, now: float) -> Changes[SessionState]:
        """What follows from an event: the next state, and the documents that tell of it."""
        after = self._follow(state, event, now)
        # With the end of a run nothing begins, nor with words that change nothing here.
        if not isinstance(event, RunEnded | Landed) and (after is not state or not isinstance(event, SignalTaken)):
            after = self._route(after, now)
        if isinstance(event, SignalTaken) and event.signal.is_guidance:
            notes = append_note(state.texts.get(self.layout.notes, ""), Received(event.signal, now))
            after = after.with_texts({self.layout.notes: notes})
        written = self._documents(state, after)
        if self.layout.has_metadata and (written or after.metadata != state.metadata):
            after = self._revised(after, now)
            where = self.layout.metadata
            written[where] = metadata.render(after.metadata, state.texts.get(where, ""))
        notices = after.notices
        filed = {path: text for path, text in written.items() if text}
        after = replace(after, texts={**after.texts, **filed} if filed else after.texts, written={}, notices=())
        return Changes(after, written, notices=notices)

    # What follows from each event

    def _follow(self, state: SessionState, event: Event, now: float) -> SessionState:
        queue, settled = state.flow.queue.accept(event)
        if queue is not state.flow.queue:
            state = state.with_flow(queue=queue)
        if settled:
            return working.settled(state, settled, now)
        if isinstance(event, TurnEnded | ChecksEnded | Merged) and state.flow.rested:
            state = state.with_flow(stop="", paused=False, rested=False)
            state = state.with_metadata(status=Status.IN_PROGRESS)
        match event:
            case TurnEnded():
                return self._turned(state, event, now)
            case ChecksEnded(key=key, verdict=verdict):
                return self._checked(state, WorkKey.parse(key), verdict, now)
            case DocumentEdited(path=path, content=content):
                return closing.with_late_feedback(self, editing.edited(self, state, path, content))
            case Merged(key=key) if (work := WorkKey.parse(key)) and work.kind is Kind.PROMOTE:
                return state.with_flow(approved=False, items=()).to(State.COMPLETE)
            case SignalTaken(signal=signal):
                return closing.heard(self, state, signal)
            case RunEnded(outcome=Outcome.ABORTED):
                return closing.aborted(self, state, now)
            case RunEnded(outcome=Outcome.PAUSED, reason=reason):
                return _rested(closing.paused(state, reason))
            case RunEnded():
                return _rested(state)
            case _:
                return state

    def _turned(self, state: SessionState, event: TurnEnded, now: float) -> SessionState:
        """After a turn: what it handed over; if somebody who only reads changed the tree, it is checked again."""
        key = WorkKey.parse(event.key)
        if key is None:
            return state
        after = state
        if event.result.end not in _CUT_OFF:
            after = self._paused(state, key, event) or self._answered(state, key, event.result, now)
        is_new_tree = self.layout.shares_tree and key.kind is not Kind.EXECUTE and working.changed_tree(event.result)
        return working.recheck(self, after) if is_new_tree else after

    def _paused(self, state: SessionState, key: WorkKey, event: TurnEnded) -> SessionState | None:
        """The state that waits for the user, if the turn asks for that."""
        answer = event.result.answer or {}
        is_paused = event.result.end is TurnEnd.FINISHED and answer.get("status") == "paused"
        # An executor that was asked for another task fails alone, where others go on beside it.
        asks_here = key.kind is not Kind.EXECUTE or self.layout.shares_tree
        asked = scope_change(event.result.answer) if asks_here else ""
        if not is_paused and not asked:
            return None
        why = asked and f'{asked}; say what is wanted: ralph resume {self.id} --guidance "..."'
        state = state.with_task(key.task, held=True) if key.task in state.tasks else state
        return state.stopped(
            f"the {event.role} paused: {why or _why(event.result) or 'no reason was given'}", paused=True
        )

    def _answered(self, state: SessionState, key: WorkKey, result: TurnResult, now: float) -> SessionState:
        """By whom the turn was, and what it handed over."""
        status = (result.answer or {}).get("status") if result.end is TurnEnd.FINISHED else None
        marker = state.marker(key.task) if key.task in state.tasks else None
        match key.kind:
            case Kind.PLAN | Kind.SESSION_REVIEW if status != "completed":
                why = _why(result) or f"the turn ended as {result.end}"
                answered = result.end is TurnEnd.FINISHED
                todo = "ask for less, or change the instructions" if answered else "see `ralph logs --output`, mend it"
                return state.stopped(f"{why}; {todo}, and resume")
            case Kind.PLAN:
                return planning.planned(self, state, key, result, now)
            case Kind.SESSION_REVIEW:
                return closing.judged(self, state, result, now)
            case Kind.CRITIQUE:
                return closing.criticised(self, state, result if status == "completed" else None, now)
            case Kind.EXTRACT:
                return closing.extracted(self, state, result, now)
            case Kind.EXECUTE if marker is Marker.WIP:
                return working.executed(self, state, key.task, result, now)
            case Kind.REVIEW if marker is Marker.PENDING:
                return working.reviewed(self, state, key.task, result, now)
            case Kind.SPLIT if marker is not None:
                return working.split(self, state, key.task, result, now)
            case _:
                return state

    def _checked(self, state: SessionState, key: WorkKey | None, verdict: Verdict, now: float) -> SessionState:
        if key == BASELINE:
            held = tuple(result.title for result in verdict.results if result.passed)
            return state.with_flow(baseline=True, held=held)
        if key and key.kind is Kind.SESSION_CHECK:
            return state.with_flow(checked=working.told(verdict) or "all pass", passed=verdict.passed)
        if key and key.kind in OF_TASK and state.marker(key.task) is Marker.PENDING:
            return working.checked(self, state, key.task, verdict, now)
        return state

    # Where it goes from there

    def _route(self, state: SessionState, now: float) -> SessionState:
        """Go on until there is something to wait for."""
        for _ in range(len(State)):
            after = self._routed(state, now)
            if after.state is state.state:
                return after
            state = after
        return state

    def _routed(self, state: SessionState, now: float) -> SessionState:
        state = planning_classic.with_updates(state)
        match state.state:
            case State.INITIALIZING if planning.next_step(state) != PLANNING[0]:
                return state.to(State.PLANNING)
            case State.PLANNING | State.REPLANNING:
                return self._after_planning(planning_classic.skip_steps(state), now)
            case State.COMPLETE | State.KNOWLEDGE_APPROVAL if found := closing.new_feedback(self, state):
                return closing.replanning(self, state, found, now)
            case _ if self._waits_for_planning(state):
                return state.with_metadata(status=Status.IN_PROGRESS).to(State.PLANNING)
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return working.scheduled(self, state, now)
            case State.COMPLETE | State.KNOWLEDGE_APPROVAL if working.is_open(state):
                return state.with_metadata(status=Status.IN_PROGRESS).to(State.BATCHING)
            case _:
                return state

    def _after_planning(self, state: SessionState, now: float) -> SessionState:
        """On to the tasks, if no step of planning is left."""
        if planning.next_step(state):
            return state
        own = replace(state.iteration, planning_complete=True, planning_completed_at=stamp(now))
        state = replace(state, iteration=own)
        state = working.reopened(self, state) if state.state is State.REPLANNING else state
        return closing.with_row(self, state, "Executing").to(State.BATCHING)

    def _waits_for_planning(self, state: SessionState) -> bool:
        """Whether the user asked for something that is to be planned before anything else begins."""
        if self.layout.has_metadata or state.state is State.INITIALIZING:
            return False
        return bool(planning.next_step(state)) and not any(state.of(name).step is not Step.REST for name in state.tasks)

    # What should be under way

    def _wanted(self, state: SessionState) -> Decision:
        match state.state:
            case State.INITIALIZING | State.PLANNING | State.REPLANNING:
                return Do(self._planning(state))
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return self._batch_or_stop(state)
            case State.SESSION_REVIEW if self.checks and not state.flow.checked:
                return self._check_whole(state)
            case State.COMPLETE if self.layout.shares_tree and self.checks and not state.flow.checked:
                # Complete was said of another tree than the one that is there now.
                return self._check_whole(state)
            case State.SESSION_REVIEW:
                return Do((prompting.session_review(self, state),))
            case State.CRITIQUE:
                return Do((prompting.criticise(self, state),))
            case State.KNOWLEDGE_EXTRACTION:
                return Do((prompting.extract(self, state),))
            case State.KNOWLEDGE_APPROVAL:
                return closing.approval(self, state)
            case State.COMPLETE:
                return closing.over(self, state)

    def _check_whole(self, state: SessionState) -> Do:
        key = closing.key_of_whole(state, Kind.SESSION_CHECK)
        return Do((RunChecks(str(key), self.checks, self._look),))

    def _batch_or_stop(self, state: SessionState) -> Decision:
        if fault := state.fault:
            place = self.layout.place_of_tasks(state.metadata.iteration)
            return Stop(Outcome.BLOCKED, f"the tasks cannot be put in order: {fault}; correct {place}")
        if works := self._batch(state):
            return Do(works)
        return Stop(Outcome.AWAITING_FEEDBACK, "; ".join(closing.unfinished(self, state)))

    @property
    def _look(self) -> str:
        """Where who only looks finds what was done."""
        return "" if self.layout.shares_tree else LOOK

    def _planning(self, state: SessionState) -> tuple[Work, ...]:
        step = planning.next_step(state)
        if step != "plan-brainstorm" or not self.layout.has_metadata:
            return (prompting.planning(self, state, step),)
        return tuple(prompting.planning(self, state, step, *one) for one in planning.to_ask(state))

    def _batch(self, state: SessionState) -> tuple[Work, ...]:
        works: list[Work] = list(state.flow.queue.works(lambda task: self._on_merge(state, task), self.roles.resolver))
        reviewers = state.guardrails.max_reviewers
        active = sorted((name for name, flow in state.flow.tasks.items() if flow.step is not Step.REST), key=natural)
        waits = self.by_waves and any(state.of(name).step is Step.EXECUTE for name in active)
        for name in active:
            flow = state.of(name)
            if flow.held:
                continue
            if flow.step is Step.EXECUTE:
                works.append(prompting.execute(self, state, name))
            elif flow.step is Step.CHECK:
                checks = self.criteria(state.tasks[name])
                key = WorkKey(Kind.CHECK, task=name, attempt=flow.attempt)
                works.append(RunChecks(str(key), checks, workspace(state, name)))
            elif flow.step is Step.REVIEW and reviewers and not waits:
                works.append(prompting.review(self, state, name))
                reviewers -= 1
            elif flow.step is Step.SPLIT:
                works.append(prompting.split(self, state, name))
        return tuple(works)

    def _on_merge(self, state: SessionState, task: str) -> tuple[Check, ...]:
        """What must pass on the merged tree: the task's own criteria, and what passed before the session began."""
        held = tuple(check for check in self.checks if check.title in state.flow.held)
        return (*held, *(check for check in self.criteria(state.tasks[task]) if check not in held))

    # Documents

    def _fresh(self, documents: Mapping[str, str]) -> SessionState:
        at = stamp(self.created_at)
        is_classic = not self.layout.has_metadata
        return SessionState(
            layout=self.layout,
            metadata=Metadata(self.id, at, at, state=State.INITIALIZING, request=self.request),
            iteration=IterationMetadata(1, at),
            progress=progress.new_classic_progress((), PLANNING) if is_classic else progress.new_progress(1, PLANNING),
            tasks={},
            texts=dict(documents),
            guardrails=planning.guardrails_of(self, documents),
        )

    def _documents(self, before: SessionState, after: SessionState) -> dict[str, str]:
        """The documents that differ, but for the metadata."""
        written, number = dict(after.written), after.metadata.iteration
        listed, where = self.layout.progress(number), self.layout.iteration_metadata(number)
        # The files of a classic session tell its state: before there is a plan, there is none.
        is_begun = self.layout.has_metadata or after.state is not State.INITIALIZING
        if is_begun and before.texts.get(listed) != after.progress.text:
            written[listed] = after.progress.text
        if self.layout.has_metadata and (after.iteration != before.iteration or where not in before.texts):
            written[where] = metadata.render_iteration(after.iteration, before.texts.get(where, ""))
        if after.flow != before.flow:
            written[self.flow_path] = flow_json(after.flow)
        if after.flow.queue != before.flow.queue:
            written[queue_path(self.id)] = queue_json(after.flow.queue)
        return written

    def _revised(self, state: SessionState, now: float) -> SessionState:
        """The state with metadata that tell of it, a revision later."""
        blocked = state.flow.stops and not state.flow.paused
        status = Status.BLOCKED if blocked else state.metadata.status
        data = {"version": state.metadata.version + 1, "updated_at": stamp(now), "status": status}
        return state.with_metadata(paused=state.flow.paused, **data, **closing.counts(state))


def _rested(state: SessionState) -> SessionState:
    """After a run: what it could not go on with may be tried again."""
    for name in [name for name, flow in state.flow.tasks.items() if flow.held]:
        state = state.with_task(name, held=False)
    return state.with_flow(rested=True) if state.flow.stop else state


def _read_flow_if_possible(text: str, where: str) -> Flow:
    """The facts that the engine keeps; what cannot be read is found out again."""
    try:
        return read_flow(text, where)
    except StateError:
        return Flow()


def _why(result: TurnResult) -> str:
    return "; ".join(map(str, (result.answer or {}).get("blockers") or ())) or result.error
