"""The rules of hats: the first event of the queue decides who has the turn; done is what passes every gate."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import assert_never

from ralph.core.checks import Check, Verdict
from ralph.core.events import (
    Aside,
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
    SignalTaken,
    Stop,
    TurnEnded,
    WorkCommitted,
)
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.documents.agent.events import line
from ralph.documents.agent.tasks import Tasks
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings
from ralph.workflows.hats.intake import EVENTS, Intake, Said, take_in
from ralph.workflows.hats.prompting import SHARED, TASKS, prompt_for, tasks_in
from ralph.workflows.hats.report import report
from ralph.workflows.hats.routing import hat_for
from ralph.workflows.hats.state import (
    REMEMBERED,
    RESUME,
    START,
    Guidance,
    HatsState,
    Phase,
    Published,
    path_of,
    read_state,
    state_json,
)
from ralph.workflows.loop.verdicts import failure_text, verdict_summary, verification_text

LADDER = 5
"""How often the engine tries a turn at most before its failure is final."""
PATIENCE = 2
"""How often in a row a hat is told what was refused, before others go on."""
PERSON = "person"
_GUIDING = ("RESUME", "STEER")
"""Signals whose words a hat has to acknowledge."""
CHARGED = (TurnEnd.FAILED, TurnEnd.IDLE, TurnEnd.INTERRUPTED, TurnEnd.OVERLOADED)


@dataclass(frozen=True)
class Hats:
    """One run of hats."""

    run: str
    objective: str
    settings: HatsSettings
    checks: tuple[Check, ...]
    frame: str
    """The template of what every prompt says."""

    @property
    def state_path(self) -> str:
        """Where the truth of this run is."""
        return path_of(self.run)

    @property
    def events_path(self) -> str:
        """Where people and their tools read the events."""
        return f".ralph/events-{self.run}.jsonl"

    @property
    def emitted_path(self) -> str:
        """Where `ralph emit` puts what people publish from outside of a turn."""
        return f".ralph/runs/{self.run}/emitted.jsonl"

    @property
    def watched(self) -> tuple[str, ...]:
        """The files that agents share, as patterns."""
        return TASKS, f"{SHARED}*.md", self.emitted_path, *self.scratchpads

    @property
    def scratchpads(self) -> tuple[str, ...]:
        """Where hats keep notes for each other."""
        pads = (self.settings.scratchpad, *(hat.scratchpad for hat in self.settings.hats))
        return tuple(pad for pad in dict.fromkeys(pads) if pad)

    @property
    def patience(self) -> int:
        """Turns in a row without any change, after which a run is stuck: every hat had its turn twice."""
        return max(4, 2 * len(self.settings.hats))

    def load(self, documents: Mapping[str, str]) -> HatsState:
        """The state that the documents describe; at first, the event that it all begins with."""
        texts = {path: text for path, text in documents.items() if not path.startswith(".ralph/runs/")}
        text = documents.get(self.state_path)
        if text is None:
            topic = self.settings.starting_event or START
            state = HatsState(self.objective, number=1, queue=(Published(1, topic, self.objective),))
        else:
            state = reopened(read_state(text, self.state_path), verifies=bool(self.checks))
        return replace(state, texts=texts)

    def decide(self, state: HatsState, now: float) -> Decision:
        """The turn of whoever takes the first event, or what has to come before it."""
        match state.phase:
            case Phase.ACT:
                return Do(() if now < state.not_before else (self._turn(state, now),))
            case Phase.COMMIT:
                number = state.iteration - 1
                message = f"ralph: checkpoint after turn {number}\n\n{' '.join(state.objective.split())[:200]}\n"
                return Do((Commit(f"checkpoint-{number}", number, state.snapshot, message),))
            case Phase.VERIFY:
                return Do((RunChecks(f"claim-{state.iteration - 1}", self.checks),))
            case Phase.DONE:
                return Stop(state.outcome or Outcome.FAILED, state.reason)
            case _:
                assert_never(state.phase)

    def accept(self, state: HatsState, event: Event, now: float) -> Changes[HatsState]:
        """What follows from an event, and the documents that tell of it."""
        match event:
            case TurnEnded():
                after = self._ended_turn(state, event, now)
                told = tuple(note for note in after.notes if note not in state.notes)
                return replace(self._changes(state, after, now), notices=told)
            case ChecksEnded(verdict=verdict):
                return self._changes(state, self._judged(state, verdict), now)
            case WorkCommitted():
                after = replace(state, committed=state.snapshot) if state.phase is Phase.COMMIT else state
                return self._changes(state, _forward(after), now)
            case SignalTaken(signal=signal) if signal.type in _GUIDING and signal.message:
                after = replace(state, guidance=(*state.guidance, Guidance(signal.message, now)), not_before=0.0)
                return self._changes(state, after, now)
            case DocumentEdited(path=self.state_path):
                return self._changes(state, state, now)
            case DocumentEdited(path=self.emitted_path, content=content):
                return self._changes(state, self._from_outside(state, content), now)
            case DocumentEdited(path=path, content=content):
                # What is replayed from the journal comes without content: the files were read again before that.
                text = content or state.texts.get(path, "")
                return Changes(replace(state, texts={**state.texts, path: text}, moved=True))
            case RunEnded(outcome=outcome, reason=reason):
                after = replace(state, outcome=outcome, reason=reason, ended=True, ends=state.ends + 1)
                changes = self._changes(state, after, now)
                place = f".ralph/runs/{self.run}/completion-{after.ends}.md"
                text = report(self.run, self.settings, after, event, self.tasks(after))
                return replace(changes, documents={**changes.documents, place: text})
            case SignalTaken() | Merged() | Landed():
                return Changes(state)
            case _:
                assert_never(event)

    def tasks(self, state: HatsState) -> Tasks:
        """The queue of tasks."""
        return tasks_in(state.texts.get(TASKS, ""))

    def gates(self, state: HatsState) -> list[str]:
        """Why the run is not done yet, by all that can be told without the checks."""
        reasons = []
        if missing := [topic for topic in self.settings.required if topic not in state.seen]:
            reasons.append(f"{', '.join(missing)} was never published in this run")
        if state.guidance:
            reasons.append("what a person said is not acknowledged (`ralph emit human.guidance.ack`)")
        if self.settings.tasks and (left := self.tasks(state).unfinished(self.run)):
            named = ", ".join(f"{task.id} ({task.title[:60]})" for task in left[:5])
            reasons.append(f"{len(left)} tasks are not closed: {named}")
        return reasons

    def _hat(self, state: HatsState) -> str:
        return hat_for(self.settings, state.event, state.exhausted)

    def _turn(self, state: HatsState, now: float) -> TurnRequest:
        id = self._hat(state)
        hat = self.settings.hat(id)
        prompt = prompt_for(self.run, self.settings, self.checks, self.frame, state, hat, now)
        tries = min(LADDER, max(1, self.settings.max_failures - state.failures))
        wall = hat.wall if hat else None
        key = f"iteration-{state.iteration}"
        return TurnRequest(key, id, prompt, counts=True, wall=wall, retries=tries - 1, hands_over=(EVENTS,))

    def _ended_turn(self, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
        """After a turn: what it published is taken in, and what changed is noted."""
        result, id = ended.result, self._hat(state)
        hat = self.settings.hat(id)
        taken = take_in(self.settings, hat, result.papers.get(EVENTS, ""), result.text)
        published = bool(taken.events or taken.completes or taken.cancels)
        change = result.change
        moved = state.moved or bool(change and change.files) or (change is None and bool(taken.events))
        state = replace(
            state,
            iteration=state.iteration + 1,
            turn=ended.turn,
            still=0 if moved else state.still + 1,
            moved=False,
            notes=taken.refused,
            guidance=tuple(g for g in state.guidance if not taken.acknowledged or g.at > result.started_at),
            snapshot=change.snapshot if change else state.snapshot,
            not_before=now + self.settings.cooldown,
        )
        if result.end is not TurnEnd.FINISHED and not published:
            return self._failed(state, result)
        counted = {**state.activations, id: state.activations.get(id, 0) + 1}
        state = replace(state, failures=0, activations=counted)
        if taken.cancels:
            why = f"cancelled by {id}" + (f": {taken.cancels.payload[:300]}" if taken.cancels.payload else "")
            return _done(state, Outcome.ABORTED, why)
        state = self._published(state, hat, taken)
        return state if state.outcome else self._next(state)

    def _from_outside(self, state: HatsState, text: str) -> HatsState:
        """What people published joins the queue; only hats keep promises."""
        whole = text[: text.rfind("\n") + 1]
        for said in take_in(self.settings, None, whole[state.outside :], "").events:
            state = _add(state, said, PERSON)
        return replace(state, outside=len(whole))

    def _failed(self, state: HatsState, result: TurnResult) -> HatsState:
        """A turn that came to nothing: its event stays the next one, until it is too often."""
        tries = min(LADDER, max(1, self.settings.max_failures - state.failures)) if result.end in CHARGED else 1
        failures = state.failures + (0 if result.end in (TurnEnd.CUT, TurnEnd.UNAVAILABLE) else tries)
        why = result.error or f"the turn ended as {result.end}"
        state = replace(state, failures=failures, notes=(*state.notes, f"the turn before this one failed: {why}"))
        if failures >= self.settings.max_failures:
            return _done(state, Outcome.FAILED, f"the agent failed {failures} times in a row: {why}")
        return self._next(state)

    def _published(self, state: HatsState, hat: Hat | None, taken: Intake) -> HatsState:
        """The events of a turn that ended well go into the queue; claims wait for the gates and the checks."""
        source = hat.id if hat else COORDINATOR
        event, state = state.event, replace(state, queue=state.queue[1:])
        for said in taken.events:
            rule = self.settings.topics.get(said.topic)
            state = _add(state, said, source, claim=bool(rule and rule.evidence and self.checks))
        if taken.completes:
            state = replace(state, queue=(event, *state.queue))
            if reasons := self.gates(state):
                return self._not_done(state, reasons)
            state = _add(state, taken.completes, source, claim=True)
            return state if self.checks else self._complete(state)
        if taken.events:
            return replace(state, refusals=0)
        if taken.refused:
            return self._refused(state, event, list(taken.refused), hat)
        return self._default(state, event, hat)

    def _refused(self, state: HatsState, event: Published, why: list[str], hat: Hat | None = None) -> HatsState:
        """The hat is told and has its event again; where that does not help, others go on."""
        state = replace(state, notes=tuple(dict.fromkeys((*state.notes, *why))), refusals=state.refusals + 1)
        if state.refusals <= PATIENCE:
            return replace(state, queue=(event, *state.queue))
        state = replace(state, refusals=0)
        return self._default(state, event, hat) if hat else _resume(state, "\n".join(why))

    def _default(self, state: HatsState, event: Published, hat: Hat | None) -> HatsState:
        """Where a hat published nothing, its default; a promise is never kept by default."""
        topic = hat.default_publishes if hat else ""
        promises = (self.settings.completion, self.settings.cancellation)
        if not topic or not hat or topic in promises:
            who = hat.id if hat else COORDINATOR
            told = f"{who} took `{event.topic}` and published nothing. It was about:\n{event.payload}"
            return _resume(state, event.payload if event.topic == RESUME else told)
        return _add(state, Said(topic, event.payload), hat.id, default=True)

    def _judged(self, state: HatsState, verdict: Verdict) -> HatsState:
        """After the checks: what was claimed holds, or is answered with what they said."""
        if state.phase is not Phase.VERIFY:
            return state
        state = replace(state, verification=verification_text(verdict, ()))
        completes = any(claim.topic == self.settings.completion for claim in state.claims)
        reasons = self.gates(state) if completes else []
        if verdict.passed and not reasons:
            return self._complete(state) if completes else self._next(_granted(state))
        if verdict.passed:
            return self._next(self._not_done(replace(state, claims=()), reasons))
        told = failure_text(verdict, (), ())
        for claim in (c for c in state.claims if c.topic != self.settings.completion):
            rule = self.settings.topics[claim.topic]
            payload = f"{claim.payload}\n\nThe engine ran the checks, and they do not pass:\n{told}".strip()
            answer = Said(rule.otherwise or RESUME, payload)
            state = _add(state, answer, claim.source, default=True)
        state = replace(state, claims=())
        if completes and verdict.unrunnable and state.refusals >= PATIENCE:
            return _done(state, Outcome.UNVERIFIABLE, verdict_summary(verdict))
        if completes:
            state = self._not_done(state, [f"the engine ran the checks, and they do not pass:\n{told}"])
        return self._next(state)

    def _not_done(self, state: HatsState, reasons: list[str]) -> HatsState:
        """The hat that claimed completion has its event again, or the coordinator sees to it."""
        event, state = state.event, replace(state, queue=state.queue[1:])
        return self._refused(state, event, [f"`{self.settings.completion}` was refused: {one}" for one in reasons])

    def _complete(self, state: HatsState) -> HatsState:
        """All gates are passed."""
        who = next((claim.source for claim in state.claims if claim.topic == self.settings.completion), COORDINATOR)
        checked = "all checks pass" if self.checks else "no checks were given, so the engine verified nothing"
        state = _done(state, Outcome.SUCCESS, f"{self.settings.completion} by {who}; {checked}")
        return self._committing(state, always=True)

    def _next(self, state: HatsState) -> HatsState:
        """On to the next turn, with what has to come before it."""
        if state.claims:
            return self._committing(replace(state, phase=Phase.VERIFY))
        state = self._relieved(state if state.queue else _resume(state, "nobody has anything to do: see what is left"))
        if state.still >= self.patience:
            why = f"nothing changed in {state.still} turns: no file, no task, no memory"
            return _done(state, Outcome.STUCK, why)
        if state.still * 2 >= self.patience:
            told = (
                f"Nothing has changed in the last {state.still} turns. Do something about it, or say what blocks you."
            )
            state = replace(state, notes=(*state.notes, told))
        return self._committing(replace(state, phase=Phase.ACT))

    def _relieved(self, state: HatsState) -> HatsState:
        """A hat that has had all its turns is told of once; what it would take goes to others."""
        while (hat := self.settings.hat(self._hat(state))) and hat.max_activations is not None:
            if state.activations.get(hat.id, 0) < hat.max_activations:
                break
            state = replace(state, exhausted=(*state.exhausted, hat.id))
            told = f"{hat.id} has had its {hat.max_activations} turns; `{state.event.topic}` waits for somebody else"
            state = _add(state, Said(f"{hat.id}.exhausted", told), COORDINATOR, default=True)
        return state

    def _committing(self, state: HatsState, *, always: bool = False) -> HatsState:
        """The same state, reached by way of a commit where one is due."""
        every = self.settings.checkpoint
        due = every and (always or (state.iteration - 1) % every == 0)
        if not due or not state.snapshot or state.snapshot == state.committed or state.phase is Phase.COMMIT:
            return state
        return replace(state, phase=Phase.COMMIT, ahead=(state.phase,))

    def _changes(self, before: HatsState, after: HatsState, now: float) -> Changes[HatsState]:
        new = [event for event in after.recent if event.number > before.number]
        first = [before.event] if before.iteration == 1 and after.iteration > 1 else []
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        rows = "".join(
            line(
                *(one.topic, one.payload, at),
                iteration=before.iteration,
                hat=one.source,
                turn=one.turn,
                default=one.default,
            ).decode()
            for one in (*first, *new)
        )
        lines = {self.events_path: rows} if rows else {}
        after = replace(after, recent=after.recent[-REMEMBERED:])
        return Changes(after, {self.state_path: state_json(after)}, Aside(lines=lines))


def reopened(state: HatsState, *, verifies: bool) -> HatsState:
    """Where a run goes on: one that had given up begins a new turn; a document that says done is verified again."""
    if state.phase is Phase.DONE and state.outcome is Outcome.SUCCESS:
        again = verifies and bool(state.claims)
        return replace(state, phase=Phase.VERIFY, outcome=None, reason="", ended=False) if again else state
    if not state.ended:
        return state
    state = replace(state, outcome=None, reason="", ended=False)
    return replace(state, phase=Phase.ACT, still=0, refusals=0, failures=0) if state.phase is Phase.DONE else state


def _add(state: HatsState, said: Said, source: str, *, default: bool = False, claim: bool = False) -> HatsState:
    """One more event, at the end of the queue, or among those that wait for the checks."""
    event = Published(state.number + 1, said.topic, said.payload, source, state.turn, said.target, default)
    state = replace(state, number=event.number, recent=(*state.recent, event))
    if claim:
        return replace(state, claims=(*state.claims, event))
    seen = state.seen if default or event.topic in state.seen else (*state.seen, event.topic)
    return replace(state, queue=(*state.queue, event), seen=seen)


def _granted(state: HatsState) -> HatsState:
    """The claims go into the queue: the checks bear them out."""
    seen = dict.fromkeys((*state.seen, *(claim.topic for claim in state.claims)))
    return replace(state, claims=(), queue=(*state.queue, *state.claims), seen=tuple(seen), refusals=0)


def _resume(state: HatsState, why: str) -> HatsState:
    """The coordinator sees to it."""
    return _add(state, Said(RESUME, why), COORDINATOR, default=True)


def _forward(state: HatsState) -> HatsState:
    return replace(state, phase=state.ahead[0], ahead=state.ahead[1:]) if state.ahead else state


def _done(state: HatsState, outcome: Outcome, reason: str) -> HatsState:
    return replace(state, phase=Phase.DONE, ahead=(), outcome=outcome, reason=reason)
