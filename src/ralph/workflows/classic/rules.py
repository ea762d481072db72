"""The rules of a classic session: what happens next, by its files alone.

Events change the documents; `_route` then follows what they tell until there is something to wait for. The engine alone
writes markers, and every edge is a legal one. What follows from whom is beside this: `planning`, `working`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ralph.core.codec import to_json
from ralph.core.events import (
    Changes,
    ChecksEnded,
    Decision,
    Do,
    DocumentEdited,
    Event,
    RunChecks,
    RunEnded,
    SignalTaken,
    Stop,
    TurnEnded,
)
from ralph.core.outcomes import Outcome
from ralph.core.signals import Received, scope_change
from ralph.core.turns import TurnEnd, TurnResult
from ralph.documents.guidance import append_note
from ralph.documents.session.markers import Marker
from ralph.documents.session.repair_classic import PLANNING, repair
from ralph.workflows.classic import planning, prompting, working
from ralph.workflows.classic.state import MOST_REVIEWS, ClassicState, ClassicTerms, Flow, State, read_flow

BASELINE = "baseline"
_CUT_OFF = (TurnEnd.CUT, TurnEnd.UNAVAILABLE, TurnEnd.INTERRUPTED)
"""Ends that say nothing of the work: it is still wanted."""


@dataclass(frozen=True)
class Classic(ClassicTerms):
    """One classic session: its request, its checks, and who works on it."""

    def load(self, documents: Mapping[str, str]) -> ClassicState:
        """The session that the documents describe, in whatever way they are written; what is missing is put in."""
        flow = read_flow(documents.get(self.flow_path, "{}"), self.flow_path)
        texts = {path: text for path, text in documents.items() if path != self.flow_path and text.strip()}
        mended, _ = repair(self.layout, texts)
        # What was seen before is a claim now: the tree may have changed since.
        known = Flow(baseline=flow.baseline)
        state = ClassicState(self.layout, {**texts, **mended}, texts, known, flow.outcome)
        return planning.with_updates(state)

    def decide(self, state: ClassicState, now: float) -> Decision:
        """What should be under way."""
        if state.flow.outcome:
            return Stop(Outcome.PAUSED if state.flow.paused else Outcome.BLOCKED, state.flow.outcome)
        if self.checks and not state.flow.baseline:
            return Do((RunChecks(BASELINE, self.checks),))
        match state.state:
            case State.INITIALIZING:
                return Do((prompting.planning(self, state, PLANNING[0]),))
            case State.PLANNING:
                return Do((prompting.planning(self, state, state.steps()[0]),))
            case State.EXECUTING:
                return self._execution(state)
            case State.REVIEWING:
                return self._review(state, state.first(Marker.PENDING))
            case State.COMPLETE:
                return self._completion(state)

    def accept(self, state: ClassicState, event: Event, now: float) -> Changes[ClassicState]:
        """What follows from an event: the next state, and the documents that tell of it."""
        after = self._follow(state, event, now)
        # At the end of a run nothing begins: what was aborted would look as if it were under way.
        after = after if isinstance(event, RunEnded) else self._route(after, now)
        written = {path: text for path, text in after.texts.items() if after.saved.get(path) != text}
        if after.flow != state.flow:
            written[self.flow_path] = to_json(after.flow)
        emptied, notices = self._not_taken(state, event)
        return Changes(replace(after, saved=after.texts), {**emptied, **written}, notices=notices)

    # What should be under way

    def _execution(self, state: ClassicState) -> Decision:
        task = state.first(Marker.WIP)
        if task:
            return Do((prompting.execute(self, state, task),))
        if fault := state.fault():
            return Stop(Outcome.BLOCKED, f"the tasks cannot be put in order: {fault}; correct {self.layout.tasks}")
        failed = [id for id in state.tasks if state.marker(id) is Marker.FAILED]
        blocked = [f"{id} (by {by})" for id, by in state.blocked().items()]
        told = [f"failed: {', '.join(failed)}"] if failed else []
        told += [f"blocked: {', '.join(blocked)}"] if blocked else []
        undefined = [id for id in failed if state.tasks[id].is_missing]
        told += [f"{id} has no definition: restore it in {self.layout.tasks}, or ask for it anew" for id in undefined]
        return Stop(Outcome.AWAITING_FEEDBACK, "; ".join(told) or "no task can be started")

    def _review(self, state: ClassicState, task: str) -> Decision:
        """Own checks first: what they saw fail, no reviewer is asked about."""
        criteria, key = self.criteria(state, task), f"check:{task}-{state.attempt(task)}"
        if criteria and state.flow.key != key:
            return Do((RunChecks(key, criteria),))
        return Do((prompting.review(self, state, task),))

    def _completion(self, state: ClassicState) -> Decision:
        """Complete is what a review found so, of all that is there, and the checks say so too."""
        judged = state.judged
        number = judged.number if judged else max((one.number for one in state.reviews), default=0) + 1
        if self.checks and state.flow.key != f"session-{number}":
            return Do((RunChecks(f"session-{number}", self.checks),))
        if judged is None and state.rounds < MOST_REVIEWS:
            return Do((prompting.session_review(self, state, number),))
        if judged and judged.complete and (state.flow.passed or not self.checks):
            told = f"the session is complete: {len(state.tasks)} tasks, {self.layout.review(number)}"
            return Stop(Outcome.SUCCESS, told)
        failing = bool(self.checks) and not state.flow.passed
        why = "the checks of the session do not pass" if failing else f"review {number} found gaps that are left to you"
        return Stop(Outcome.AWAITING_FEEDBACK, why if judged else f"{MOST_REVIEWS} reviews found gaps each time")

    # What follows from each event

    def _follow(self, state: ClassicState, event: Event, now: float) -> ClassicState:
        match event:
            case TurnEnded(key=key, result=result):
                return self._turned(state, key, result, now)
            case ChecksEnded(key=key) if key == BASELINE:
                return replace(state, flow=replace(state.flow, baseline=True))
            case ChecksEnded(key=key, verdict=verdict):
                return working.checked(state, key, verdict)
            case DocumentEdited(path=path, content=content):
                return self._edited(state, path, content)
            case SignalTaken(signal=signal) if signal.is_guidance:
                notes = append_note(state.texts.get(self.layout.notes, ""), Received(signal, now))
                return replace(state, texts={**state.texts, self.layout.notes: notes})
            case RunEnded(outcome=Outcome.ABORTED):
                return working.aborted(state, now)
            case _:
                return state

    def _turned(self, state: ClassicState, key: str, result: TurnResult, now: float) -> ClassicState:
        """After a turn; where somebody who only reads has changed the tree, what was checked before says nothing of it."""
        kind, _, rest = key.partition(":")
        after = state if result.end in _CUT_OFF else self._answered(state, kind, rest, result, now)
        is_changed = result.change is not None and result.change.files > 0
        return after.checked("", "", passed=False) if is_changed and kind != "execute" else after

    def _answered(self, state: ClassicState, kind: str, rest: str, result: TurnResult, now: float) -> ClassicState:
        """By whom the turn was, and what it handed over."""
        task, status = rest.rpartition("-")[0], (result.answer or {}).get("status")
        status = status if result.end is TurnEnd.FINISHED else None
        match kind:
            case _ if status == "paused":
                return _stuck(state, f"{rest} was paused", result, paused=True)
            case "execute" if asked := scope_change(result.answer):
                return _stuck(state, f"{task} waits to be defined anew ({asked})", result, paused=True)
            case "execute":
                return working.executed(state, task, result, now) if state.marker(task) is Marker.WIP else state
            case _ if status != "completed":
                what = rest if kind == "plan" else f"the review of {rest}"
                return _stuck(state, what, result, paused=bool(scope_change(result.answer)))
            case "plan":
                return planning.planned(state, rest.partition(".")[0], result, now)
            case _ if rest.startswith("session-"):
                return working.judged(self, state, int(rest.removeprefix("session-")), result)
            case _:
                return working.reviewed(state, task, result) if state.marker(task) is Marker.PENDING else state

    def _edited(self, state: ClassicState, path: str, content: str) -> ClassicState:
        """Take in what people may change while it runs: instructions, updates, files of their own. The rest is put back."""
        if state.texts.get(path) == content:
            return state
        saved = {**state.saved, path: content}
        texts = state.texts if self.layout.is_engines(path) else {**state.texts, path: content}
        return replace(state, saved=saved, texts=texts)

    def _not_taken(self, state: ClassicState, event: Event) -> tuple[dict[str, str], tuple[str, ...]]:
        """An edit that is not taken: a new file is emptied, so that it counts at no later time either; the store keeps a copy."""
        if not isinstance(event, DocumentEdited) or not self.layout.is_engines(event.path):
            return {}, ()
        if event.content in (state.texts.get(event.path), state.saved.get(event.path)) or not event.content.strip():
            return {}, ()
        told = f"{event.path} was changed while the session is under way"
        if event.path in state.texts:
            return {}, (f"{told}; it was put back",)
        return {event.path: ""}, (f"{told}; it is not taken in",)

    # Where it goes from there

    def _route(self, state: ClassicState, now: float) -> ClassicState:
        """Follow what the files tell until there is something to wait for."""
        while (after := self._routed(state, now)) is not state:
            state = after
        return state

    def _routed(self, state: ClassicState, now: float) -> ClassicState:
        after = planning.with_updates(state)
        after = working.fail_undefined_tasks(after)
        if after is not state:
            return after
        match state.state:
            case State.PLANNING:
                return planning.recovered(state, state.steps()[0])
            case State.REVIEWING:
                return working.settled(self, state, state.first(Marker.PENDING), now)
            case State.EXECUTING if not state.fault():
                return working.started(state, now)
            case _:
                return state


def _stuck(state: ClassicState, what: str, result: TurnResult, *, paused: bool = False) -> ClassicState:
    """The session cannot go on by itself; a resume tries again."""
    answer = result.answer or {}
    why = "; ".join(map(str, answer.get("blockers") or ())) or result.error or f"the turn ended as {result.end}"
    return replace(state, flow=replace(state.flow, outcome=f"{what}: {why}", paused=paused))
