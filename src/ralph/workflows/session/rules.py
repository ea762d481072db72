"""The rules of a session: what happens next, by its documents alone.

Events change the state; `_route` then goes on until there is something to wait for. Only here are markers and states
written, and every edge is a legal one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ralph.core.checks import Check, Verdict
from ralph.core.errors import RalphError
from ralph.core.events import (
    Changes,
    ChecksEnded,
    Decision,
    Do,
    DocumentEdited,
    Event,
    Merged,
    Promote,
    RunChecks,
    RunEnded,
    SignalTaken,
    Stop,
    TurnEnded,
    Work,
)
from ralph.core.graphs import natural
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.session import feedback, instructions, knowledge, metadata, progress, questions, reports, tasks
from ralph.documents.session.instructions import Guardrails
from ralph.documents.session.layout import Layout
from ralph.documents.session.markers import Marker
from ralph.documents.session.metadata import IterationMetadata, Metadata
from ralph.documents.session.tasks import TaskFile
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.merging import queue_json, queue_path, read_queue
from ralph.workflows.session import prompting
from ralph.workflows.session.scheduling import blocked_by, counts, current_wave, ready
from ralph.workflows.session.state import (
    PLANNING,
    REPLANNING,
    Flow,
    SessionState,
    State,
    Status,
    Step,
    flow_json,
    read_flow,
)

BASELINE = "baseline"
LOOK = "look/1"
"""The workspace of those who only look: it follows the branch of the run."""
SPLIT_AFTER = 2
"""So many attempts that ran out of time, and a task is split."""
FEWEST_CHILDREN, MOST_CHILDREN = 2, 4
_QUOTED = 4000


@dataclass(frozen=True)
class Session:
    """One session: its request, its checks, and how it is worked on."""

    id: str
    request: str
    created_at: float
    layout: Layout
    checks: tuple[Check, ...]
    """What must pass before it is complete."""
    compiled: Callable[[str], tuple[Check, ...]]
    """The checks that a criterion of a task compiles to; none where it is for a reviewer to judge."""
    roles: prompting.Roles
    by_waves: bool = False

    @property
    def flow_path(self) -> str:
        """Where the engine keeps its own facts."""
        return f".ralph/runs/{self.id}/flow.json"

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
        known = self._tasks(documents, number)
        return SessionState(data, own, listed, known, documents, self._guardrails(documents), flow)

    def decide(self, state: SessionState, now: float) -> Decision:
        """What should be under way."""
        if state.flow.outcome:
            return Stop(Outcome.BLOCKED, state.flow.outcome)
        if self.checks and not state.flow.baseline:
            return Do((RunChecks(BASELINE, self.checks, LOOK),))
        match state.state:
            case State.INITIALIZING | State.PLANNING | State.REPLANNING:
                return Do((prompting.planning(self, state, self._next_step(state)),))
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
                return self._approval(state)
            case State.COMPLETE:
                return self._end(state)

    def accept(self, state: SessionState, event: Event, now: float) -> Changes[SessionState]:
        """What follows from an event: the next state, and the documents that tell of it."""
        after = self._route(self._follow(state, event, now), now)
        written = self._documents(state, after)
        if not written and after.metadata == state.metadata:
            return Changes(after)
        after = self._revised(after, now)
        where = self.layout.metadata
        written[where] = metadata.render(after.metadata, state.texts.get(where, ""))
        return Changes(replace(after, texts={**after.texts, **written}), written)

    # What follows from each event

    def _follow(self, state: SessionState, event: Event, now: float) -> SessionState:
        queue, settled = state.flow.queue.accept(event)
        state = state.with_flow(queue=queue)
        if settled and settled.is_in:
            return self._closed(state, settled.task, Marker.DONE, f"qualified: {stamp(now)}")
        if settled:
            why = f"it could not be merged ({settled.merged.end}); its work is on {settled.merged.branch}"
            state = state.with_task(settled.task, branch=settled.merged.branch)
            return self._closed(state, settled.task, Marker.FAILED, f"failed: {stamp(now)}", why)
        match event:
            case TurnEnded():
                return self._turned(state, event, now)
            case ChecksEnded(key=key, verdict=verdict):
                return self._checked(state, key, verdict, now)
            case DocumentEdited(path=path, content=content):
                return self._edited(state, path, content)
            case Merged(key=key) if key.startswith("promote-"):
                return state.with_flow(approved=False).to(State.COMPLETE)
            case SignalTaken(signal=signal) if state.state is State.KNOWLEDGE_APPROVAL:
                return _heard(state, signal)
            case RunEnded(outcome=Outcome.ABORTED):
                return _aborted(state, now)
            case _:
                return state

    def _turned(self, state: SessionState, event: TurnEnded, now: float) -> SessionState:
        """After a turn: by whom it was, and what it handed over."""
        kind, _, rest = event.key.partition(":")
        result = event.result
        good = result.end is TurnEnd.FINISHED and result.answer is not None
        status = str((result.answer or {}).get("status", ""))
        if kind == "plan":
            return self._planned(state, rest, result, now) if good and status == "completed" else _stuck(state, result)
        if kind == "review" and rest.startswith("session-"):
            return self._judged(state, result, now) if good else _stuck(state, result)
        if kind == "critique":
            return self._criticised(state, result if good and status == "completed" else None, now)
        if kind == "extract":
            return self._extracted(state, result, now)
        task = rest.rpartition("-")[0]
        match kind:
            case "execute":
                return self._executed(state, task, result, now)
            case "review":
                return self._reviewed(state, task, result, now)
            case "split":
                return self._split(state, task, result, now)
            case _:
                return state

    def _planned(self, state: SessionState, rest: str, result: TurnResult, now: float) -> SessionState:
        """After a step of planning: what it handed over is filed, and the step is done."""
        step = rest.split("@")[0]
        number = state.metadata.iteration
        texts = dict(state.texts)
        match step:
            case "plan-init":
                texts[self.layout.plan(number)] = result.papers["plan.md"]
                if text := result.papers.get("instructions.md"):
                    texts.setdefault(self.layout.instructions, text)
            case "plan-update":
                before, path = texts.get(self.layout.plan(number), ""), self.layout.snapshot(number - 1)
                texts.setdefault(path, before)
                texts[self.layout.plan(number)] = result.papers["plan.md"]
                if text := result.papers.get("delta.md"):
                    texts[self.layout.delta(number)] = text
            case "plan-breakdown" | "plan-rebreakdown":
                return self._broken_down(state, step, result, now)
            case _:
                for name, text in result.papers.items():
                    texts[self.layout.questions(number, name.removeprefix("questions/").removesuffix(".md"))] = text
                return self._asked(replace(state, texts=texts), step, now)
        state = replace(state, texts=texts, guardrails=self._guardrails(texts))
        return _done(state, step, now)

    def _asked(self, state: SessionState, step: str, now: float) -> SessionState:
        """After questions or answers: the next category, another cycle, or on."""
        categories, flow = state.guardrails.categories, state.flow
        if step == "plan-brainstorm" and flow.category + 1 < len(categories):
            return state.with_flow(category=flow.category + 1)
        state = _done(state, step, now).with_flow(category=0)
        if step != "plan-research" or flow.cycle >= state.guardrails.max_cycles:
            return state
        asked = [state.texts.get(self.layout.questions(state.metadata.iteration, one), "") for one in categories]
        if not any(questions.parse(text).open_high for text in asked if text):
            return state
        again = state.progress
        for name in ("plan-brainstorm", "plan-research"):
            again = again.with_item(name, Marker.TODO, f"cycle {flow.cycle + 1}")
        return replace(state, progress=again).with_flow(cycle=flow.cycle + 1)

    def _broken_down(self, state: SessionState, step: str, result: TurnResult, now: float) -> SessionState:
        """After a breakdown: the tasks are filed and listed; only those that failed may be changed."""
        number = state.metadata.iteration
        parsed = [(tasks.parse(text, name), text) for name, text in result.papers.items()]
        found = {one.id: (one, text) for one, text in parsed}
        texts, known, listed = dict(state.texts), dict(state.tasks), []
        for name in sorted(found, key=natural):
            task, text = found[name]
            if name in known and state.marker(name) not in (Marker.FAILED, Marker.TODO):
                continue
            texts[self.layout.task(number, name)] = text
            known[name] = task
            if name not in state.tasks:
                listed.append((name, Marker.TODO, ""))
        title = progress.implementation_title(number)
        after = replace(state, texts=texts, tasks=known, progress=state.progress.with_section(title, listed))
        try:
            current_wave(after)
        except RalphError as error:
            return state.with_flow(outcome=f"the tasks cannot be put in order: {error.what}")
        own = replace(after.iteration, tasks_defined=len(known))
        return _done(replace(after, iteration=own), step, now)

    def _executed(self, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
        """After an executor: to be checked, failed, or too large."""
        flow, answer = state.of(task), result.answer or {}
        if result.end is TurnEnd.WALL or (result.end is not TurnEnd.FINISHED and not answer):
            return self._came_to_nothing(state, task, result, now)
        body = result.papers.get("report.md") or result.text or "(the executor wrote no report)"
        state = self._filed(
            state, task, reports.compose(task, state.metadata.iteration, flow.attempt, stamp(now), body)
        )
        if answer.get("status") != "completed" or not answer.get("success_criteria_met"):
            why = "; ".join(map(str, answer.get("blockers") or ())) or result.error or "its criteria are not met"
            return self._closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", why)
        note = f"Attempt {flow.attempt}, Iteration {state.metadata.iteration}, review-pending"
        step = Step.CHECK if self.criteria(state.tasks[task]) else Step.REVIEW
        return state.marked(task, Marker.PENDING, note).with_task(task, step=step, checked="")

    def _came_to_nothing(self, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
        """After an executor that ran out of time, or failed again and again: a report, and smaller tasks where that helps."""
        flow = state.of(task)
        late = result.end is TurnEnd.WALL
        why = "it ran out of time" if late else result.error or "the agent failed again and again"
        text = reports.minimal(task, state.metadata.iteration, flow.attempt, stamp(now), why)
        state = self._filed(state, task, text).with_task(task, timeouts=flow.timeouts + late)
        is_child = any(task in children for children in state.metadata.replaced.values())
        if not is_child and (not late or flow.timeouts + 1 >= SPLIT_AFTER):
            return state.with_task(task, step=Step.SPLIT, why=why)
        return self._closed(state, task, Marker.FAILED, f"failed: {stamp(now)}, {why}", why)

    def _checked(self, state: SessionState, key: str, verdict: Verdict, now: float) -> SessionState:
        """After checks of the engine's own: what they saw fail, nobody can pass."""
        told = _told(verdict)
        if key == BASELINE:
            held = tuple(result.title for result in verdict.results if result.passed)
            return state.with_flow(baseline=True, held=held)
        if key.startswith("session-"):
            return state.with_flow(checked=told or "all pass", passed=verdict.passed)
        task = key.removeprefix("check:").rpartition("-")[0]
        if verdict.passed:
            return state.with_task(task, step=Step.REVIEW, checked=told)
        state = self._filed(state, task, reports.with_review(self._report(state, task), _engine_review(told)))
        return self._closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", told[:_QUOTED])

    def _reviewed(self, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
        """After a reviewer: to be merged, or failed."""
        answer = result.answer or {}
        if result.end is not TurnEnd.FINISHED or not answer:
            return state.with_flow(outcome=f"the review of {task} came to nothing: {result.error or result.end}")
        part = result.papers.get("review.md") or str(answer.get("feedback") or "")
        qualified = answer.get("verdict") == "Qualified"
        state = self._filed(state, task, reports.with_review(self._report(state, task), _judged_by(part, qualified)))
        if not qualified:
            why = str(answer.get("feedback") or "the reviewer did not qualify it")
            return self._closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", why)
        one = state.tasks[task]
        queue = state.flow.queue.add(
            task, workspace(state, task), f"{task}: {one.title or one.objective}"[:72], one.objective
        )
        return state.with_task(task, step=Step.MERGE).with_flow(queue=queue)

    def _split(self, state: SessionState, task: str, result: TurnResult, now: float) -> SessionState:
        """After a planner split a task: its children take its place, also for those that depend on it."""
        parsed = [tasks.parse(text, name) for name, text in sorted(result.papers.items())]
        new = [one for one in parsed if one.id not in state.tasks]
        why = state.of(task).why
        if result.end is not TurnEnd.FINISHED or not FEWEST_CHILDREN <= len(new) <= MOST_CHILDREN:
            return self._closed(state, task, Marker.FAILED, f"failed: {stamp(now)}", why)
        number, needed = state.metadata.iteration, state.tasks[task].depends_on
        texts, known = dict(state.texts), dict(state.tasks)
        for one in new:
            inherits = tuple(dict.fromkeys((*one.depends_on, *needed)))
            known[one.id] = replace(one, depends_on=inherits)
            texts[self.layout.task(number, one.id)] = tasks.render(known[one.id], stamp(now))
        names = tuple(one.id for one in new)
        title = progress.implementation_title(number)
        state = state.marked(task, Marker.CANCELLED, f"split due to timeouts: {', '.join(names)}")
        listed = state.progress.with_section(title, [(name, Marker.TODO, f"split from {task}") for name in names])
        state = replace(state, texts=texts, tasks=known, progress=listed).with_task(task, step=Step.REST)
        return state.with_metadata(replaced={**state.metadata.replaced, task: names})

    def _judged(self, state: SessionState, result: TurnResult, now: float) -> SessionState:
        """After the review of the whole: complete only where every task is, and the checks of the session pass."""
        answer, number = result.answer or {}, state.metadata.iteration
        texts = {**state.texts, self.layout.review(number): result.papers.get("review.md") or str(answer)}
        all_in = all(state.marker(name) in (Marker.DONE, Marker.CANCELLED) for name in state.tasks)
        complete = answer.get("assessment") == "Complete" and all_in and (state.flow.passed or not self.checks)
        cycle = state.metadata.critique_cycle
        if not complete and all_in and cycle < state.guardrails.max_critique_cycles:
            # Nothing failed, and yet it is not what was asked for: it is sent back once by itself before a person is.
            return replace(state, texts=texts).with_metadata(critique_cycle=cycle + 1).to(State.CRITIQUE)
        own = replace(state.iteration, completed_at=stamp(now))
        status = Status.COMPLETED if complete else Status.AWAITING_FEEDBACK
        done = counts(state)
        listed = state.progress.with_iteration_row(
            number,
            "Complete" if complete else "Awaiting feedback",
            f"{done['completed']}/{done['total']}",
            ", ".join(self.layout.batches_in(state.texts, number)) or "N/A",
        )
        state = replace(state, texts=texts, iteration=own, progress=listed).with_metadata(status=status.value)
        return state.to(State.COMPLETE if state.guardrails.approval == "skip" else State.KNOWLEDGE_EXTRACTION)

    def _criticised(self, state: SessionState, result: TurnResult | None, now: float) -> SessionState:
        """After the gaps of a review were made tasks: on with them; where none could be made, a person has to say."""
        cycle = state.metadata.critique_cycle
        if result is None or not result.papers:
            return state.with_metadata(status=Status.AWAITING_FEEDBACK.value).to(State.COMPLETE)
        step = f"plan-critique-{cycle}"
        title = f"## Critique Planning Progress (Iteration {state.metadata.iteration}, Cycle {cycle})"
        state = replace(state, progress=state.progress.with_section(title, [(step, Marker.TODO, "")]))
        return self._broken_down(state, step, result, now).to(State.BATCHING)

    def _extracted(self, state: SessionState, result: TurnResult, now: float) -> SessionState:
        """After a librarian: what was learned waits for approval; where nothing was, the session is over."""
        number = state.metadata.iteration
        texts = dict(state.texts)
        for name, text in result.papers.items():
            _, category, file = name.split("/")
            if category not in knowledge.CATEGORIES:
                continue
            facts = {
                "category": category,
                "source_session": self.id,
                "source_iteration": number,
                "staged_at": stamp(now),
            }
            texts[self.layout.knowledge(number, category, file)] = knowledge.with_values(text, name, facts)
        state = replace(state, texts=texts)
        return state.to(State.KNOWLEDGE_APPROVAL if self._staged(state) else State.COMPLETE)

    def _staged(self, state: SessionState) -> dict[str, str]:
        """What was learned in this iteration, by where it is to be kept."""
        number = state.metadata.iteration
        found = self.layout.knowledge_in(state.texts, number)
        return {
            self.layout.promoted(category, name): state.texts[self.layout.knowledge(number, category, name)]
            for category, name in found
        }

    def _approval(self, state: SessionState) -> Decision:
        number = state.metadata.iteration
        if state.guardrails.approval == "signal" and not state.flow.approved:
            return Stop(
                Outcome.AWAITING_APPROVAL,
                f"{len(self._staged(state))} things were learned; `ralph session approve {self.id}` keeps them, `skip` does not",
            )
        message = f"docs: what session {self.id} learned in iteration {number}"
        return Do((Promote(f"promote-{number}", f"knowledge/{number}", message, self._staged(state)),))

    def _edited(self, state: SessionState, path: str, content: str) -> SessionState:
        """Take in what a person changed: the instructions, and files that they put there. Markers stay the engine's."""
        texts = {**state.texts, path: content}
        return replace(state, texts=texts, guardrails=self._guardrails(texts))

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
            case State.INITIALIZING if state.marker("plan-init") is Marker.DONE:
                return state.to(State.PLANNING)
            case State.PLANNING | State.REPLANNING if not self._next_step(state):
                own = replace(state.iteration, planning_complete=True, planning_completed_at=stamp(now))
                return self._reopened(replace(state, iteration=own), now).to(State.BATCHING)
            case State.BATCHING | State.EXECUTING_BATCH | State.REVIEWING_BATCH:
                return self._scheduled(state, now)
            case State.COMPLETE if batches := self._new_feedback(state):
                return self._replanning(state, batches, now)
            case _:
                return state

    def _scheduled(self, state: SessionState, now: float) -> SessionState:
        """Begin what can begin, and say where that leaves the session."""
        number = state.metadata.iteration
        for name in ready(state, by_waves=self.by_waves, most=state.guardrails.max_executors):
            flow = state.of(name)
            attempt = reports.next_attempt(self._report_names(state), name)
            if state.marker(name) is Marker.FAILED:
                state = state.marked(name, Marker.TODO)
            note = f"Attempt {attempt}, Iteration {number}, started: {stamp(now)}"
            state = state.marked(name, Marker.WIP, note)
            state = state.with_task(name, step=Step.EXECUTE, attempt=attempt, tries=flow.tries + 1, started=now)
        wave, _ = current_wave(state)
        state = state.with_metadata(current_wave=wave)
        steps = {state.of(name).step for name in state.tasks}
        if Step.EXECUTE in steps or Step.SPLIT in steps:
            return state.to(State.EXECUTING_BATCH)
        if steps - {Step.REST} or state.flow.queue.waiting:
            return state.to(State.REVIEWING_BATCH)
        return state.with_flow(checked="", passed=False).to(State.SESSION_REVIEW)

    def _reopened(self, state: SessionState, now: float) -> SessionState:
        """After replanning, what had failed is to be done again."""
        if state.state is not State.REPLANNING:
            return state
        for name in sorted(state.tasks, key=natural):
            if state.marker(name) is Marker.FAILED:
                state = state.marked(name, Marker.TODO, f"Iteration {state.metadata.iteration}, reset")
                state = state.with_task(name, tries=0, timeouts=0, branch="", why=state.of(name).why)
        return state

    def _replanning(self, state: SessionState, batches: Mapping[str, str], now: float) -> SessionState:
        """A person gave feedback: the next iteration begins with planning."""
        number = state.metadata.iteration + 1
        stamps = ", ".join(sorted(batches))
        listed = state.progress.with_section(
            progress.planning_title(number), [(name, Marker.TODO, "") for name in REPLANNING]
        ).with_section(progress.implementation_title(number), [])
        listed = listed.with_iteration_row(number, "Replanning", "0/0", stamps)
        state = replace(state, progress=listed, iteration=IterationMetadata(number, stamp(now)))
        processed = {**state.metadata.processed, **batches}
        state = state.with_metadata(
            iteration=number, status=Status.IN_PROGRESS.value, processed=processed, critique_cycle=0
        )
        return state.with_flow(cycle=1, category=0, checked="", passed=False).to(State.REPLANNING)

    def _new_feedback(self, state: SessionState) -> dict[str, str]:
        """The batches of feedback for the next iteration that were not processed, with the hashes of their contents."""
        number = state.metadata.iteration + 1
        found = self.layout.batches_in(state.texts, number)
        hashes = {batch: feedback.content_hash(state.texts[self.layout.feedback(number, batch)]) for batch in found}
        return {batch: one for batch, one in hashes.items() if state.metadata.processed.get(batch) != one}

    # What should be under way

    def _next_step(self, state: SessionState) -> str:
        """The first step of planning that is not done."""
        steps = REPLANNING if state.state is State.REPLANNING else PLANNING
        return next((name for name in steps if state.marker(name) is not Marker.DONE), "")

    def _batch(self, state: SessionState) -> tuple[Work, ...]:
        works: list[Work] = list(state.flow.queue.works(lambda task: self._on_merge(state, task), self.roles.resolver))
        reviewers = state.guardrails.max_reviewers
        waits = self.by_waves and any(state.of(name).step is Step.EXECUTE for name in state.tasks)
        for name in sorted(state.flow.tasks, key=natural):
            flow = state.of(name)
            key = f"{name}-{flow.attempt}"
            if flow.step is Step.EXECUTE:
                works.append(prompting.execute(self, state, name))
            elif flow.step is Step.CHECK:
                works.append(RunChecks(f"check:{key}", self.criteria(state.tasks[name]), workspace(state, name)))
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

    def criteria(self, task: TaskFile) -> tuple[Check, ...]:
        """The checks that the criteria of a task compile to."""
        return tuple(dict.fromkeys(check for criterion in task.criteria for check in self.compiled(criterion)))

    def _end(self, state: SessionState) -> Stop:
        if state.metadata.status == Status.ABORTED:
            return Stop(Outcome.ABORTED, "the session was aborted")
        if state.metadata.status == Status.COMPLETED:
            return Stop(Outcome.SUCCESS, f"the session is complete: {counts(state)['completed']} tasks")
        failed = [name for name in state.tasks if state.marker(name) is Marker.FAILED]
        blocked = [f"{name} (by {by})" for name in state.tasks if (by := blocked_by(state, name))]
        told = [f"failed: {', '.join(failed)}"] if failed else []
        told += [f"blocked: {', '.join(blocked)}"] if blocked else []
        told += ["the checks of the session do not pass"] if self.checks and not state.flow.passed else []
        return Stop(Outcome.AWAITING_FEEDBACK, "; ".join(told) or "the review found gaps")

    # Documents

    def _fresh(self, documents: Mapping[str, str]) -> SessionState:
        at = stamp(self.created_at)
        data = Metadata(self.id, at, at, state=State.INITIALIZING.value, request=self.request)
        listed = progress.new_progress(1, PLANNING)
        own = IterationMetadata(1, at)
        return SessionState(data, own, listed, {}, dict(documents), self._guardrails(documents))

    def _tasks(self, documents: Mapping[str, str], number: int) -> dict[str, TaskFile]:
        paths = {name: self.layout.task(number, name) for name in self.layout.tasks_in(documents, number)}
        return {name: tasks.parse(documents[path], path) for name, path in paths.items()}

    def _report_names(self, state: SessionState) -> list[str]:
        home = self.layout.reports(state.metadata.iteration) + "/"
        return [path.removeprefix(home) for path in state.texts if path.startswith(home)]

    def latest_report(self, state: SessionState, task: str) -> str:
        """The report of the last attempt at a task; empty where there is none."""
        attempt = reports.next_attempt(self._report_names(state), task) - 1
        return state.texts.get(self.layout.report(state.metadata.iteration, task, attempt), "") if attempt else ""

    def _guardrails(self, documents: Mapping[str, str]) -> Guardrails:
        return instructions.parse(documents.get(self.layout.instructions, ""), self.layout.instructions)

    def _report(self, state: SessionState, task: str) -> str:
        return state.texts.get(self.layout.report(state.metadata.iteration, task, state.of(task).attempt), "")

    def _filed(self, state: SessionState, task: str, text: str) -> SessionState:
        path = self.layout.report(state.metadata.iteration, task, state.of(task).attempt)
        return replace(state, texts={**state.texts, path: text})

    def _closed(self, state: SessionState, task: str, marker: Marker, note: str, why: str = "") -> SessionState:
        """A task at rest, with the marker that says what came of it."""
        flow = state.of(task)
        head = f"Attempt {flow.attempt}, Iteration {state.metadata.iteration}, "
        return state.marked(task, marker, head + note).with_task(task, step=Step.REST, why=why)

    def _documents(self, before: SessionState, after: SessionState) -> dict[str, str]:
        """The documents that differ, but for the metadata."""
        written = {path: text for path, text in after.texts.items() if before.texts.get(path) != text}
        number = after.metadata.iteration
        if after.progress.text != before.progress.text or self.layout.progress(number) not in before.texts:
            written[self.layout.progress(number)] = after.progress.text
        if after.iteration != before.iteration or self.layout.iteration_metadata(number) not in before.texts:
            where = self.layout.iteration_metadata(number)
            written[where] = metadata.render_iteration(after.iteration, before.texts.get(where, ""))
        if after.flow != before.flow:
            written[self.flow_path] = flow_json(after.flow)
            written[queue_path(self.id)] = queue_json(after.flow.queue)
        return written

    def _revised(self, state: SessionState, now: float) -> SessionState:
        """The state with metadata that tell of it, a revision later."""
        done = counts(state)
        return state.with_metadata(version=state.metadata.version + 1, updated_at=stamp(now), **done)


def workspace(state: SessionState, task: str) -> str:
    """Where a task is worked on in its attempt; a dot in its id would not do in the name of a branch."""
    return f"{task.replace('.', '_')}/{max(1, state.of(task).attempt)}"


def _done(state: SessionState, step: str, now: float) -> SessionState:
    """A step of planning is done."""
    if state.marker(step) is Marker.TODO:
        state = state.marked(step, Marker.WIP)
    if state.marker(step) is Marker.WIP:
        state = state.marked(step, Marker.PENDING)
    return state.marked(step, Marker.DONE, f"completed: {stamp(now)}")


def _stuck(state: SessionState, result: TurnResult) -> SessionState:
    """Where there is no task to split, a person has to reduce the scope."""
    answer = result.answer or {}
    why = "; ".join(map(str, answer.get("blockers") or ())) or result.error or f"the turn ended as {result.end}"
    return state.with_flow(outcome=f"{why}; ask for less, or change the instructions, and resume")


def _aborted(state: SessionState, now: float) -> SessionState:
    """The checklist of an abort, all at once; no file is taken back."""
    for name in state.tasks:
        if state.marker(name) in (Marker.WIP, Marker.PENDING):
            state = state.marked(name, Marker.FAILED, f"failed: {stamp(now)}, Aborted by signal").with_task(
                name, step=Step.REST
            )
    own = replace(state.iteration, completed_at=stamp(now))
    return replace(state, iteration=own).with_metadata(status=Status.ABORTED.value).to(State.COMPLETE)


def _engine_review(told: str) -> str:
    """The second part of a report, where the engine itself saw the work fail."""
    summary = "The engine ran the checks that the success criteria name. They do not hold; no reviewer was asked."
    return _judged_by(f"### Review Summary\n{summary}\n\n```\n{told}\n```", qualified=False)


def _judged_by(part: str, qualified: bool) -> str:
    """A review that ends with the verdict that counts."""
    return f"{part.rstrip()}\n\n**Status**: {'Qualified' if qualified else 'Failed'}\n"


def _heard(state: SessionState, signal: Signal) -> SessionState:
    """A person said whether what was learned is kept."""
    if signal.type is SignalType.APPROVE:
        return state.with_flow(approved=True)
    return state.to(State.COMPLETE) if signal.type is SignalType.SKIP else state


def _told(verdict: Verdict) -> str:
    """What checks gave, for a reviewer and the next attempt."""
    lines = [
        f"$ {r.command or r.title}\n({'passed' if r.passed else r.reason})\n{'' if r.passed else r.output[-_QUOTED:].strip()}"
        for r in verdict.results
    ]
    found = [f"{f.place} [{f.rule}] {f.sentence}" for f in verdict.gamed]
    return "\n".join([*lines, *found]).strip()
