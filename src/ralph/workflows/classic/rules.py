"""The rules of a classic session: what happens next, by its files alone.

Events change the documents; `_route` then follows what they tell until there is something to wait for. The engine alone
writes markers, and every edge is a legal one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ralph.core.checks import Check, Verdict
from ralph.core.events import (
    Changes,
    ChecksEnded,
    Decision,
    Do,
    DocumentEdited,
    Event,
    RunChecks,
    RunEnded,
    Stop,
    TurnEnded,
)
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.classic import papers, tasks
from ralph.documents.classic.layout import Flat
from ralph.documents.classic.names import is_planning
from ralph.documents.classic.progress import new_progress
from ralph.documents.classic.repair import PLANNING, repair
from ralph.documents.session import questions, reports
from ralph.documents.session.markers import Marker
from ralph.documents.session.review import Assessment
from ralph.documents.session.timestamps import render as stamp
from ralph.workflows.classic import prompting
from ralph.workflows.classic.state import MOST_REVIEWS, ClassicState, Flow, State, flow_json, read_flow
from ralph.workflows.session.state import Roles
from ralph.workflows.session.working import told as told_of

BASELINE = "baseline"
_QUOTED = 4000


@dataclass(frozen=True)
class Classic:
    """One classic session: its request, its checks, and who works on it."""

    id: str
    request: str
    layout: Flat
    checks: tuple[Check, ...]
    """What must pass before it is complete."""
    compiled: Callable[[str], tuple[Check, ...]]
    """The checks that a criterion of a task compiles to; none where it is for a reviewer to judge."""
    roles: Roles

    @property
    def flow_path(self) -> str:
        """Where the engine keeps what it saw itself."""
        return f".ralph/runs/{self.id}/flow.json"

    def load(self, documents: Mapping[str, str]) -> ClassicState:
        """The session that the documents describe, in whatever way they are written; what is missing is put in."""
        flow = read_flow(documents.get(self.flow_path, "{}"), self.flow_path)
        texts = {path: text for path, text in documents.items() if path != self.flow_path}
        mended, _ = repair(self.layout, texts)
        # What was seen before is a claim now: the tree may have changed since.
        known = Flow(baseline=flow.baseline)
        return ClassicState(self.layout, {**texts, **mended}, texts, known, flow.outcome)

    def decide(self, state: ClassicState, now: float) -> Decision:
        """What should be under way."""
        if state.flow.outcome:
            return Stop(Outcome.PAUSED if state.flow.paused else Outcome.BLOCKED, state.flow.outcome)
        if self.checks and not state.flow.baseline:
            return Do((RunChecks(BASELINE, self.checks),))
        match state.state:
            case State.INITIALIZING:
                return Do((prompting.planning(self.roles, self.request, state, PLANNING[0]),))
            case State.PLANNING:
                return Do((prompting.planning(self.roles, self.request, state, state.steps()[0]),))
            case State.EXECUTING:
                return self._execution(state)
            case State.REVIEWING:
                return self._review(state, state.first(Marker.PENDING))
            case State.COMPLETE:
                return self._completion(state)

    def accept(self, state: ClassicState, event: Event, now: float) -> Changes[ClassicState]:
        """What follows from an event: the next state, and the documents that tell of it."""
        after = self._route(self._follow(state, event, now), now)
        written = {path: text for path, text in after.texts.items() if after.saved.get(path) != text}
        if after.flow != state.flow:
            written[self.flow_path] = flow_json(after.flow)
        notices = self._put_back(state, event)
        return Changes(replace(after, saved=after.texts), written, notices=notices)

    def criteria(self, state: ClassicState, task: str) -> tuple[Check, ...]:
        """The checks that the criteria of a task compile to."""
        known = state.tasks[task].criteria if task in state.tasks else ()
        return tuple(dict.fromkeys(check for criterion in known for check in self.compiled(criterion)))

    # What should be under way

    def _execution(self, state: ClassicState) -> Decision:
        task = state.first(Marker.WIP)
        if task:
            return Do((prompting.execute(self.roles, self.request, state, task, self.criteria(state, task)),))
        if fault := state.fault():
            return Stop(Outcome.BLOCKED, f"the tasks cannot be put in order: {fault}; correct {self.layout.tasks}")
        failed = [id for id in state.tasks if state.marker(id) is Marker.FAILED]
        blocked = [f"{id} (by {by})" for id, by in state.blocked().items()]
        told = [f"failed: {', '.join(failed)}"] if failed else []
        told += [f"blocked: {', '.join(blocked)}"] if blocked else []
        return Stop(Outcome.AWAITING_FEEDBACK, "; ".join(told) or "no task can be started")

    def _review(self, state: ClassicState, task: str) -> Decision:
        """Own checks first: what they saw fail, no reviewer is asked about."""
        criteria, key = self.criteria(state, task), f"check:{task}-{state.attempt(task)}"
        if criteria and state.flow.key != key:
            return Do((RunChecks(key, criteria),))
        return Do((prompting.review(self.roles, self.request, state, task),))

    def _completion(self, state: ClassicState) -> Decision:
        """Complete is what a review found so, of all that is there, and the checks say so too."""
        judged = state.judged
        number = judged.number if judged else max((one.number for one in state.reviews), default=0) + 1
        if self.checks and state.flow.key != f"session-{number}":
            return Do((RunChecks(f"session-{number}", self.checks),))
        if judged is None and state.rounds < MOST_REVIEWS:
            return Do((prompting.session_review(self.roles, self.request, state, number),))
        if judged and judged.complete and (state.flow.passed or not self.checks):
            return Stop(
                Outcome.SUCCESS, f"the session is complete: {len(state.tasks)} tasks, {self.layout.review(number)}"
            )
        failing = bool(self.checks) and not state.flow.passed
        why = "the checks of the session do not pass" if failing else f"review {number} found gaps that are left to you"
        return Stop(Outcome.AWAITING_FEEDBACK, why if judged else f"{MOST_REVIEWS} reviews found gaps each time")

    # What follows from each event

    def _follow(self, state: ClassicState, event: Event, now: float) -> ClassicState:
        match event:
            case TurnEnded(key=key, result=result):
                return self._turned(state, key, result, now)
            case ChecksEnded(key=key, verdict=verdict):
                return self._checked(state, key, verdict, now)
            case DocumentEdited(path=path, content=content):
                return self._edited(state, path, content)
            case RunEnded(outcome=Outcome.ABORTED) if task := state.first(Marker.WIP):
                return state.marked(task, Marker.TODO, f"Aborted by signal: {stamp(now)}{_since(state, task)}")
            case _:
                return state

    def _turned(self, state: ClassicState, key: str, result: TurnResult, now: float) -> ClassicState:
        """After a turn; where somebody who only reads has changed the tree, what was checked before says nothing of it."""
        kind, _, rest = key.partition(":")
        after = self._answered(state, kind, rest, result, now)
        is_changed = result.change is not None and result.change.files > 0
        return after.checked("", "", passed=False) if is_changed and kind != "execute" else after

    def _answered(self, state: ClassicState, kind: str, rest: str, result: TurnResult, now: float) -> ClassicState:
        """By whom the turn was, and what it handed over."""
        answer, task = result.answer or {}, rest.rpartition("-")[0]
        good = result.end is TurnEnd.FINISHED and bool(answer)
        if good and answer.get("status") == "paused":
            return _stuck(state, f"{rest} was paused", result, paused=True)
        if kind == "plan":
            done = good and answer.get("status") == "completed"
            step = rest.partition(".")[0]
            return self._planned(state, step, result, now) if done else _stuck(state, step, result)
        if kind == "execute":
            return self._executed(state, task, result, now) if state.marker(task) is Marker.WIP else state
        if not good or answer.get("status") != "completed":
            return _stuck(state, f"the review of {rest}", result)
        if rest.startswith("session-"):
            return self._judged(state, int(rest.removeprefix("session-")), result)
        if state.marker(task) is not Marker.PENDING:
            return state
        part = result.papers.get("review.md") or str(answer.get("feedback") or "")
        return self._reviewed(state, task, part, qualified=answer.get("verdict") == "Qualified")

    def _planned(self, state: ClassicState, step: str, result: TurnResult, now: float) -> ClassicState:
        """After a step of planning: what it handed over is filed, and the step is done."""
        layout, handed = self.layout, result.papers
        if step == "plan-init":
            for path, name in ((layout.plan, "plan.md"), (layout.instructions, "instructions.md")):
                if name in handed and not (name == "instructions.md" and state.instructions in state.texts):
                    state = state.with_text(path, handed[name])
            if layout.progress not in state.texts:
                state = state.with_text(layout.tasks, tasks.new_tasks())
                state = state.with_text(layout.progress, new_progress((), PLANNING).text)
        elif step.endswith(("brainstorm", "research")):
            text = handed.get("plan.questions.md", "")
            state = state.with_text(layout.questions, papers.asked_on(state.texts.get(layout.questions, ""), text))
        else:
            if step.startswith(prompting.UPDATE):
                number = int(step.removeprefix(prompting.UPDATE))
                state = state.with_text(layout.old_plan(number), state.texts.get(layout.plan, ""))
                state = state.with_text(layout.plan, handed["plan.md"])
                state = _reopened(state)
            state = _with_tasks(state, handed.get("tasks.md", ""))
            if fault := state.fault():
                return replace(state, flow=replace(state.flow, outcome=f"the tasks cannot be put in order: {fault}"))
        state = state.marked(step, Marker.DONE, stamp(now))
        return self._asked(state, step) if step.endswith("research") else state

    def _asked(self, state: ClassicState, step: str) -> ClassicState:
        """After research: where a question that matters is open, another cycle of both steps."""
        texts = [state.texts[path] for path in self.layout.questions_in(state.texts)]
        if papers.cycles(texts) >= state.guardrails.max_cycles:
            return state
        if not any(questions.parse(text).open_high for text in texts):
            return state
        for name in (step.replace("research", "brainstorm"), step):
            state = state.marked(name, Marker.TODO, "another cycle") if name in state.progress.items else state
        return state

    def _executed(self, state: ClassicState, task: str, result: TurnResult, now: float) -> ClassicState:
        """After an executor: to be reviewed, or failed; either way there is a report."""
        attempt, answer = state.attempt(task), result.answer or {}
        body = result.papers.get("report.md") or result.text
        state = state.with_text(self.layout.report(task, attempt), papers.report(task, attempt, body))
        met = answer.get("status") == "completed" and answer.get("success_criteria_met")
        if result.end is TurnEnd.FINISHED and met:
            return state.marked(task, Marker.PENDING, f"Attempt {attempt}: {stamp(now)}{_since(state, task)}")
        late = result.end is TurnEnd.WALL
        why = "; ".join(map(str, answer.get("blockers") or ())) or result.error
        why = why or ("it ran out of time" if late else "its criteria are not met")
        part = f"### Review Summary\nThe attempt came to nothing, and no reviewer was asked: {why}"
        return self._failed(self._reviewed(state, task, part, qualified=False, attempt=attempt), task, attempt, now)

    def _checked(self, state: ClassicState, key: str, verdict: Verdict, now: float) -> ClassicState:
        """After checks of the engine's own: what they saw fail, nobody can pass."""
        if key == BASELINE:
            return replace(state, flow=replace(state.flow, baseline=True))
        told = told_of(verdict)
        state = state.checked(key, told or "all pass", passed=verdict.passed)
        task = key.removeprefix("check:").rpartition("-")[0]
        if key.startswith("session-") or verdict.passed or state.marker(task) is not Marker.PENDING:
            return state
        summary = "The engine ran the checks that the success criteria name. They do not hold; no reviewer was asked."
        part = f"### Review Summary\n{summary}\n\n```\n{told[:_QUOTED]}\n```"
        return self._reviewed(state, task, part, qualified=False)

    def _reviewed(
        self, state: ClassicState, task: str, part: str, *, qualified: bool, attempt: int | None = None
    ) -> ClassicState:
        """The report with the review in it; the verdict at its end is the one that counts."""
        path = self.layout.report(task, attempt or state.attempt(task))
        verdict = reports.Verdict.QUALIFIED if qualified else reports.Verdict.FAILED
        text = f"{part.rstrip()}\n\n**Status**: {verdict}\n"
        return state.with_text(path, reports.with_review(state.texts.get(path, ""), text))

    def _failed(self, state: ClassicState, task: str, attempt: int, now: float) -> ClassicState:
        """A task that failed is to be done again, until it was tried often enough."""
        begins = state.progress.items[task].begins_at
        again = attempt - begins + 1 < state.guardrails.rework_attempts
        note = f"Attempt {attempt} failed: {stamp(now)}{_since(state, task)}"
        return state.marked(task, Marker.TODO if again else Marker.FAILED, note)

    def _judged(self, state: ClassicState, number: int, result: TurnResult) -> ClassicState:
        """After a review of the whole: it is complete, or gaps become tasks, or a person has to say."""
        answer = result.answer or {}
        good = answer.get("assessment") == Assessment.COMPLETE and (state.flow.passed or not self.checks)
        body = result.papers.get("review.md") or f"# Session Review {number}\n\n{answer.get('summary', '')}"
        text = papers.session_review(
            number, body, Assessment.COMPLETE if good else Assessment.GAPS, state.progress.items
        )
        state = state.with_text(self.layout.review(number), text)
        gaps = result.papers.get("tasks.md", "")
        if good or state.rounds >= MOST_REVIEWS:
            return state
        after = _with_tasks(state, gaps)
        return state if after.fault() else after

    def _edited(self, state: ClassicState, path: str, content: str) -> ClassicState:
        """Take in what people may change while it runs: instructions, updates, files of their own. The rest is put back."""
        if state.texts.get(path) == content:
            return state
        saved = {**state.saved, path: content}
        texts = state.texts if self.layout.is_engines(path) else {**state.texts, path: content}
        return replace(state, saved=saved, texts=texts)

    def _put_back(self, state: ClassicState, event: Event) -> tuple[str, ...]:
        """What a person should know of an edit that is not taken."""
        if not isinstance(event, DocumentEdited) or not self.layout.is_engines(event.path):
            return ()
        if state.texts.get(event.path) == event.content or state.saved.get(event.path) == event.content:
            return ()
        done = "it was put back" if event.path in state.texts else "it is not taken in"
        return (f"{event.path} was changed while the session is under way; {done}",)

    # Where it goes from there

    def _route(self, state: ClassicState, now: float) -> ClassicState:
        """Follow what the files tell until there is something to wait for."""
        while (after := self._routed(state, now)) is not state:
            state = after
        return state

    def _routed(self, state: ClassicState, now: float) -> ClassicState:
        wip = state.first(Marker.WIP)
        if state.state is not State.INITIALIZING and not wip and (new := self._new_updates(state)):
            listed = state.progress.with_items([(step, Marker.TODO, "") for step in new])
            return state.with_text(self.layout.progress, listed.text)
        if state.state is State.PLANNING:
            return self._recovered(state, state.steps()[0])
        if state.state is State.REVIEWING:
            return self._settled(state, state.first(Marker.PENDING), now)
        if state.state is not State.EXECUTING or state.fault():
            return state
        if wip:
            known = list(state.reports(wip).values())
            left = bool(known) and known[-1].verdict is None and bool(known[-1].part1)
            return state.marked(wip, Marker.PENDING, f"Attempt {known[-1].attempt}, recovered") if left else state
        task = state.ready()
        if not task:
            return state
        if not (state.tasks[task].title or state.tasks[task].objective):
            return state.marked(task, Marker.FAILED, "Task definition missing")
        attempt = state.attempt(task)
        return state.marked(task, Marker.WIP, f"Attempt {attempt}, started: {stamp(now)}{_since(state, task)}")

    def _recovered(self, state: ClassicState, step: str) -> ClassicState:
        """A step of planning that needs no turn: the plan is there already, or nobody knows the step."""
        if step == PLANNING[0] and state.texts.get(self.layout.plan, "").strip():
            return state.marked(step, Marker.DONE, "recovered")
        known = step in PLANNING or step.startswith(prompting.UPDATE) or step.endswith(("brainstorm", "research"))
        return state if known else state.marked(step, Marker.CANCELLED, "not a step that can be done")

    def _settled(self, state: ClassicState, task: str, now: float) -> ClassicState:
        """A task whose report has a verdict: done, where the engine's own checks agree, or to be done again."""
        attempt = state.attempt(task)
        report = state.reports(task).get(attempt)
        if report is None or report.verdict is None:
            return state
        if report.verdict is reports.Verdict.FAILED:
            return self._failed(state, task, attempt, now)
        if self.criteria(state, task) and state.flow.key != f"check:{task}-{attempt}":
            return state
        return state.marked(task, Marker.DONE, f"qualified: {stamp(now)}")

    def _new_updates(self, state: ClassicState) -> list[str]:
        """What a person asked for that is not listed as a step yet."""
        steps = [f"{prompting.UPDATE}{number}" for number in self.layout.updates_in(state.texts)]
        return [step for step in steps if step not in state.progress.items]


def _with_tasks(state: ClassicState, handed: str) -> ClassicState:
    """The state with further tasks, defined and listed; those that nobody has begun may be defined anew."""
    layout = state.layout
    open_ones = [id for id in state.tasks if state.marker(id) is Marker.TODO]
    text = tasks.merged(state.texts.get(layout.tasks, ""), handed, open_ones)
    new = [id for id in tasks.parse(text) if not is_planning(id) and id not in state.progress.items]
    listed = state.progress.with_items([(id, Marker.TODO, "") for id in new])
    return state.with_text(layout.tasks, text).with_text(layout.progress, listed.text)


def _reopened(state: ClassicState) -> ClassicState:
    """What had failed for good may be tried again; its tries are counted anew."""
    for id in state.tasks:
        if state.marker(id) is Marker.FAILED:
            state = state.marked(id, Marker.TODO, f"from Attempt {state.attempt(id)}")
    return state


def _since(state: ClassicState, task: str) -> str:
    begins = state.progress.items[task].begins_at
    return f", from Attempt {begins}" if begins > 1 else ""


def _stuck(state: ClassicState, what: str, result: TurnResult, *, paused: bool = False) -> ClassicState:
    """The session cannot go on by itself; a resume tries again."""
    answer = result.answer or {}
    why = "; ".join(map(str, answer.get("blockers") or ())) or result.error or f"the turn ended as {result.end}"
    return replace(state, flow=replace(state.flow, outcome=f"{what}: {why}", paused=paused))
