"""The rules of a session: what happens next, by its documents alone.

Events change the state; `_route` then goes on until there is something to wait for. Every edge between markers is a
legal one. What follows from whom is beside this: `planning`, `working`, `closing`, `editing`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ralph.core.checks import Check, Verdict
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
from ralph.documents.session import metadata, progress, tasks
from ralph.documents.session.metadata import IterationMetadata, Metadata, State, Status
from ralph.documents.session.repair import PLANNING
from ralph.documents.session.tasks import Task, valid_task_id
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.merging import queue_json, queue_path, read_queue
from ralph.workflows.session import closing, editing, planning, prompting, working
from ralph.workflows.session.state import LOOK, Flow, SessionState, SessionTerms, Step, flow_json, read_flow, workspace

BASELINE = "baseline"


@dataclass(frozen=True)
class Session(SessionTerms):
    """One session: its request, its checks, and how it is worked on."""

    def load(self, documents: Mapping[str, str]) -> SessionState:
        """The session that the documents describe; a new one where there are none."""
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
        listed = progress.Progress(documents.get(self.layout.progress(number), ""))
        limits = planning.guardrails_of(self, documents)
        state = SessionState(data, own, listed, self._tasks(documents, number, listed), documents, limits, flow)
        return editing.taken_up(self, state)

    def decide(self, state: SessionState, now: float) -> Decision:
        """What should be under way; where the session cannot go on, what is under way is waited for."""
        return replace(self._decided(state), stage=closing.stage(state))

    def _decided(self, state: SessionState) -> Decision:
        if self.checks and not state.flow.baseline:
            return Do((RunChecks(BASELINE, self.checks, LOOK),))
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
        if written or after.metadata != state.metadata:
            after = self._revised(after, now)
            where = self.layout.metadata
            written[where] = metadata.render(after.metadata, state.texts.get(where, ""))
        notices = after.notices
        after = replace(after, texts={**after.texts, **written} if written else after.texts, written={}, notices=())
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
                return self._checked(state, key, verdict, now)
            case DocumentEdited(path=path, content=content):
                return closing.with_late_feedback(self, editing.edited(self, state, path, content))
            case Merged(key=key) if key.startswith("promote-"):
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
        """After a turn: by whom it was, and what it handed over."""
        kind, _, rest = event.key.partition(":")
        result, task = event.result, rest.rpartition("-")[0]
        status = (result.answer or {}).get("status") if result.end is TurnEnd.FINISHED else None
        of_task = task in state.tasks
        if result.end in (TurnEnd.CUT, TurnEnd.UNAVAILABLE):
            # It says nothing of the work: the same is asked for again when the run goes on.
            return state
        asked = scope_change(result.answer) if kind != "execute" else ""
        if status == "paused" or asked:
            why = asked and f'{asked}; say what is wanted: ralph resume {self.id} --guidance "..."'
            state = state.with_task(task, held=True) if of_task else state
            return state.stopped(
                f"the {event.role} paused: {why or _why(result) or 'no reason was given'}", paused=True
            )
        match kind:
            case "plan" | "review" if not of_task and status != "completed":
                why = _why(result) or f"the turn ended as {result.end}"
                answered = result.end is TurnEnd.FINISHED
                todo = "ask for less, or change the instructions" if answered else "see `ralph logs --output`, mend it"
                return state.stopped(f"{why}; {todo}, and resume")
            case "plan":
                step, _, place = rest.partition("@")
                return planning.planned(self, state, f"{step}:{place.split('.', 2)[-1]}", result, now)
            case "review" if not of_task:
                return closing.judged(self, state, result, now)
            case "critique":
                return closing.criticised(self, state, result if status == "completed" else None, now)
            case "extract":
                return closing.extracted(self, state, result, now)
            case "execute" if of_task:
                return working.executed(self, state, task, result, now)
            case "review":
                return working.reviewed(self, state, task, result, now)
            case "split" if of_task:
                return working.split(self, state, task, result, now)
            case _:
                return state

    def _checked(self, state: SessionState, key: str, verdict: Verdict, now: float) -> SessionState:
        if key == BASELINE:
            held = tuple(result.title for result in verdict.results if result.passed)
            return state.with_flow(baseline=True, held=held)
        if key.startswith("session-"):
            return state.with_flow(checked=working.told(verdict) or "all pass", passed=verdict.passed)
        return working.checked(self, state, key.removeprefix("check:").rpartition("-")[0], verdict, now)

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
        match state.state:
            case State.INITIALIZING if planning.next_step(state) != PLANNING[0]:
                return state.to(State.PLANNING)
            case State.PLANNING | State.REPLANNING if not planning.next_step(state):
                own = replace(state.iteration, planning_complete=True, planning_completed_at=stamp(now))
                state = replace(state, iteration=own)
                state = working.reopened(self, state) if state.state is State.REPLANNING else state
                return closing.with_row(self, state, "Executing").to(State.BATCHING)
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return working.scheduled(self, state, now)
            case State.COMPLETE | State.KNOWLEDGE_APPROVAL if found := closing.new_feedback(self, state):
                return closing.replanning(self, state, found, now)
            case State.COMPLETE | State.KNOWLEDGE_APPROVAL if working.is_open(state):
                return state.with_metadata(status=Status.IN_PROGRESS).to(State.BATCHING)
            case _:
                return state

    # What should be under way

    def _wanted(self, state: SessionState) -> Decision:
        match state.state:
            case State.INITIALIZING | State.PLANNING | State.REPLANNING:
                return Do(self._planning(state))
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return Do(self._batch(state))
            case State.SESSION_REVIEW if self.checks and not state.flow.checked:
                key = f"session-{state.metadata.iteration}.{state.metadata.critique_cycle}"
                return Do((RunChecks(key, self.checks, LOOK),))
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

    def _planning(self, state: SessionState) -> tuple[Work, ...]:
        step = planning.next_step(state)
        if step != "plan-brainstorm":
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
                works.append(RunChecks(f"check:{name}-{flow.attempt}", checks, workspace(state, name)))
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
        data = Metadata(self.id, at, at, state=State.INITIALIZING, request=self.request)
        limits = planning.guardrails_of(self, documents)
        listed = progress.new_progress(1, PLANNING)
        return SessionState(data, IterationMetadata(1, at), listed, {}, dict(documents), limits)

    def _tasks(self, documents: Mapping[str, str], number: int, listed: progress.Progress) -> dict[str, Task]:
        """Every task that has a file, and every task that is only listed, so that none is forgotten."""
        paths = {name: self.layout.task(number, name) for name in self.layout.tasks_in(documents, number)}
        defined = {name: tasks.parse(documents[path], path) for name, path in paths.items()}
        names = [item.id for item in listed.items.values() if not item.is_planning and item.id not in defined]
        missing = {name: Task(valid_task_id(name), iteration=number, is_missing=True) for name in names}
        return {**defined, **missing}

    def _documents(self, before: SessionState, after: SessionState) -> dict[str, str]:
        """The documents that differ, but for the metadata."""
        written, number = dict(after.written), after.metadata.iteration
        listed, where = self.layout.progress(number), self.layout.iteration_metadata(number)
        if before.texts.get(listed) != after.progress.text:
            written[listed] = after.progress.text
        if after.iteration != before.iteration or where not in before.texts:
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


def _why(result: TurnResult) -> str:
    return "; ".join(map(str, (result.answer or {}).get("blockers") or ())) or result.error
