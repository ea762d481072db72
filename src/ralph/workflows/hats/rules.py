"""The rules of hats: the first event of the queue decides who has the turn; done is what passes every gate.

What follows from whom is beside this: `turning`, `waves`, `judging`; then it goes `onward`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import assert_never

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
from ralph.documents.agent import decisions
from ralph.documents.agent.events import line
from ralph.workflows.hats.judging import judged
from ralph.workflows.hats.onward import onward
from ralph.workflows.hats.prompting import DECISIONS
from ralph.workflows.hats.queueing import resume
from ralph.workflows.hats.report import report
from ralph.workflows.hats.state import (
    REMEMBERED,
    START,
    Guidance,
    HatsState,
    Phase,
    Published,
    read_state,
    reopened,
    state_json,
)
from ralph.workflows.hats.terms import Terms
from ralph.workflows.hats.turning import from_outside, turned
from ralph.workflows.hats.waves import accepted, at_rest, works
from ralph.workflows.merging import Queue, queue_json, queue_path

_AT_REST = "all is done; the run waits for more: `ralph emit TOPIC ...`, `ralph steer ...`, or `ralph abort`"
_GUIDING = ("RESUME", "STEER")
"""Signals whose words a hat has to acknowledge."""


@dataclass(frozen=True)
class Hats(Terms):
    """One run of hats."""

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
            case Phase.ACT if now < state.not_before:
                return Do(())
            case Phase.ACT:
                key = f"iteration-{state.iteration}"
                return Do((self.request(state, self.taker(state, state.event), key, now),))
            case Phase.WAVE:
                return Do(works(self, state, now))
            case Phase.COMMIT:
                number = state.iteration - 1
                message = f"ralph: checkpoint after turn {number}\n\n{' '.join(state.objective.split())[:200]}\n"
                return Do((Commit(f"checkpoint-{number}", number, state.snapshot, message),))
            case Phase.VERIFY:
                red = None if any(self.is_red(claim.topic) for claim in state.claims) else state.red
                return Do((RunChecks(f"claim-{state.iteration - 1}", self.checks, red=red),))
            case Phase.REST:
                return Do(())
            case Phase.DONE:
                return Stop(state.outcome or Outcome.FAILED, state.reason)
            case _:
                assert_never(state.phase)

    def accept(self, state: HatsState, event: Event, now: float) -> Changes[HatsState]:
        """What follows from an event, and the documents that tell of it."""
        match event:
            case TurnEnded() | Merged() if state.wave and state.phase in (Phase.WAVE, Phase.DONE):
                return self._of_wave(state, event, now)
            case TurnEnded():
                after = turned(self, state, event, now)
                return self._changes(state, after, now, tuple(n for n in after.notes if n not in state.notes))
            case ChecksEnded(verdict=verdict):
                return self._changes(state, judged(self, state, verdict, now), now)
            case WorkCommitted():
                return self._changes(state, self._woken(_committed(state), now), now)
            case SignalTaken(signal=signal) if signal.type in _GUIDING and signal.message:
                after = replace(state, guidance=(*state.guidance, Guidance(signal.message, now)), not_before=0.0)
                told = "a person said something: see what it asks for, and who does it"
                after = resume(self, after, told) if state.rests else after
                return self._changes(state, self._woken(after, now), now)
            case DocumentEdited(path=self.state_path):
                return self._changes(state, state, now)
            case DocumentEdited(path=self.emitted_path, content=content):
                after, in_vain = from_outside(self, state, content)
                return self._changes(state, self._woken(after, now), now, in_vain)
            case DocumentEdited(path=path, content=content):
                return Changes(replace(state, texts={**state.texts, path: content}, moved=True))
            case RunEnded(outcome=outcome, reason=reason):
                wave = at_rest(state.wave, now) if state.wave else None
                after = replace(state, outcome=outcome, reason=reason, ended=True, ends=state.ends + 1, wave=wave)
                changes = self._changes(state, after, now)
                place = f".ralph/runs/{self.run}/completion-{after.ends}.md"
                text = report(self.run, self.settings, after, event, self.tasks(after))
                return replace(changes, documents={**changes.documents, place: text})
            case SignalTaken() | Merged() | Landed():
                return Changes(state)
            case _:
                assert_never(event)

    def _woken(self, state: HatsState, now: float) -> HatsState:
        """A run that rested goes on where there is something to do."""
        return onward(self, state, now) if state.phase is Phase.REST and state.queue else state

    def _of_wave(self, state: HatsState, event: Event, now: float) -> Changes[HatsState]:
        """After something in a wave; where it is over, it goes on, and decisions that got the same number get their own."""
        after = accepted(self, state, event, now)
        over = after.wave is None
        after = onward(self, after, now) if over else after
        changes = self._changes(state, after, now, _told(state, after))
        listed = state.texts.get(DECISIONS, "")
        if not over or (settled := decisions.settled(listed)).strip() == listed.strip():
            return changes
        texts = {**changes.state.texts, DECISIONS: settled}
        documents = {**changes.documents, DECISIONS: settled}
        return replace(changes, state=replace(changes.state, texts=texts), documents=documents)

    def _changes(
        self, before: HatsState, after: HatsState, now: float, notices: tuple[str, ...] = ()
    ) -> Changes[HatsState]:
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
                **({"wave_id": str(one.wave)} if one.wave else {}),
            ).decode()
            for one in (*first, *new)
        )
        aside = Aside(self._merging(before, after), {self.events_path: rows} if rows else {})
        if after.rests and not before.rests:
            notices = (*notices, _AT_REST)
        after = replace(after, recent=after.recent[-REMEMBERED:])
        return Changes(after, {self.state_path: state_json(after)}, aside, notices)

    def _merging(self, before: HatsState, after: HatsState) -> dict[str, str]:
        """What waits to be merged, for those who look."""
        old, new = (state.wave.merging if state.wave else Queue() for state in (before, after))
        return {queue_path(self.run): queue_json(new)} if old != new else {}


def _committed(state: HatsState) -> HatsState:
    """After a checkpoint, on to what it came before."""
    if state.phase is not Phase.COMMIT:
        return state
    state = replace(state, committed=state.snapshot, checkpoint=state.iteration - 1)
    return replace(state, phase=state.ahead[0], ahead=state.ahead[1:]) if state.ahead else state


def _told(before: HatsState, after: HatsState) -> tuple[str, ...]:
    """What a person should know of those in a wave of whom something was refused, or nothing came."""
    if not (before.wave and after.wave):
        return ()
    known = {job.event.number: (*job.notes, job.failed) for job in before.wave.jobs}
    return tuple(
        f"{after.wave.hat}, `{job.event.topic}` {job.event.number}: {note}"
        for job in after.wave.jobs
        for note in (*job.notes, job.failed)
        if note and note not in known[job.event.number]
    )
