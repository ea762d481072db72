"""The rules of hats: the first event of the queue decides who has the turn; done is what passes every gate.

`Hats` is the workflow. Below it is what follows from a turn, from the checks, and whose turn is next. Waves have a module of
their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import assert_never

from ralph.core.checks import Verdict, red_in
from ralph.core.events import (
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
    SideFiles,
    SignalTaken,
    Stop,
    TurnEnded,
    WorkCommitted,
)
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd
from ralph.core.work_keys import WorkKey, WorkKind
from ralph.documents.agent import decisions
from ralph.documents.agent.events import line
from ralph.documents.hats.definition import COORDINATOR, USER, Hat, Topic
from ralph.workflows.hats.context import PATIENCE, HatsContext
from ralph.workflows.hats.events import EVENTS, NewEvent, TurnEvents, read_events
from ralph.workflows.hats.gates import Gate
from ralph.workflows.hats.prompt import DECISIONS
from ralph.workflows.hats.queue import (
    ask_coordinator,
    cancel_run,
    end_run,
    gates_after,
    grant_claim,
    publish,
    publish_default,
    refuse_completion,
    send_back,
    wave_after,
)
from ralph.workflows.hats.report import build_report
from ralph.workflows.hats.state import (
    REMEMBERED,
    RESUME,
    START,
    Guidance,
    HatsState,
    Phase,
    QueuedEvent,
    read_state,
    reopen,
    state_json,
)
from ralph.workflows.hats.waves import accept_in_wave, form_wave, rest_wave, wave_work
from ralph.workflows.loop.verdicts import failure_text, verdict_summary, verification_text
from ralph.workflows.merging import Queue, queue_json, queue_path

_AT_REST = "all is done; the run waits for more: `ralph emit TOPIC ...`, `ralph steer ...`, or `ralph abort`"
_GUIDING = ("RESUME", "STEER")
"""Signals whose words a hat has to acknowledge."""
UNCHARGED = (TurnEnd.CUT, TurnEnd.UNAVAILABLE)
"""Ends that are nobody's failure."""


@dataclass(frozen=True)
class Hats(HatsContext):
    """One run of hats."""

    def load(self, documents: Mapping[str, str]) -> HatsState:
        """The state that the documents describe; at first, the event that it all begins with."""
        texts = {path: text for path, text in documents.items() if not path.startswith(".ralph/runs/")}
        text = documents.get(self.state_path)
        if text is None:
            topic = self.settings.starting_event or START
            earlier = len(decisions.parse(texts.get(DECISIONS, "")))
            queue = (QueuedEvent(1, topic, self.objective),)
            state = HatsState(self.objective, number=1, queue=queue, earlier_decisions=earlier)
        else:
            state = reopen(read_state(text, self.state_path), verifies=bool(self.checks))
        return replace(state, texts=texts)

    def decide(self, state: HatsState, now: float) -> Decision:
        """The turn of whoever takes the first event, or what has to come before it."""
        match state.phase:
            case Phase.ACT if now < state.not_before:
                return Do(())
            case Phase.ACT:
                key = str(WorkKey(WorkKind.ITERATION, number=state.iteration))
                return Do((self.request(state, self.taker(state, state.event), key, now),))
            case Phase.WAVE:
                return Do(wave_work(self, state, now))
            case Phase.COMMIT:
                number = state.iteration - 1
                message = f"ralph: checkpoint after turn {number}\n\n{' '.join(state.objective.split())[:200]}\n"
                key = str(WorkKey(WorkKind.CHECKPOINT, number=number))
                return Do((Commit(key, number, state.snapshot, message),))
            case Phase.VERIFY:
                red = None if any(self.is_red(claim.topic) for claim in state.claims) else state.red
                key = str(WorkKey(WorkKind.CLAIM, number=state.iteration - 1))
                return Do((RunChecks(key, self.checks, red=red),))
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
                return self._accept_wave_event(state, event, now)
            case TurnEnded():
                after = accept_turn(self, state, event, now)
                return self._changes(state, after, now, tuple(n for n in after.notes if n not in state.notes))
            case ChecksEnded(verdict=verdict):
                return self._changes(state, accept_checks(self, state, verdict, now), now)
            case WorkCommitted():
                return self._changes(state, self._wake(_after_commit(state), now), now)
            case SignalTaken(signal=signal) if signal.type in _GUIDING and signal.message:
                after = replace(state, guidance=(*state.guidance, Guidance(signal.message, now)), not_before=0.0)
                told = "New guidance from the user. Decide which hat should act on it."
                after = ask_coordinator(self, after, told) if state.rests else after
                return self._changes(state, self._wake(after, now), now)
            case DocumentEdited(path=self.state_path):
                return self._changes(state, state, now)
            case DocumentEdited(path=self.emitted_path, content=content):
                after, in_vain = accept_user_events(self, state, content)
                return self._changes(state, self._wake(after, now), now, in_vain)
            case DocumentEdited(path=path, content=content):
                return Changes(replace(state, texts={**state.texts, path: content}, moved=True))
            case RunEnded(outcome=outcome, reason=reason):
                wave = rest_wave(state.wave, now) if state.wave else None
                after = replace(state, outcome=outcome, reason=reason, ended=True, ends=state.ends + 1, wave=wave)
                changes = self._changes(state, after, now)
                place = f".ralph/runs/{self.run}/completion-{after.ends}.md"
                text = build_report(self.run, self.settings, after, event, self.tasks(after))
                return replace(changes, documents={**changes.documents, place: text})
            case SignalTaken() | Merged() | Landed():
                return Changes(state)
            case _:
                assert_never(event)

    def _wake(self, state: HatsState, now: float) -> HatsState:
        """A run that rested goes on where there is something to do."""
        return move_on(self, state, now) if state.phase is Phase.REST and state.queue else state

    def _accept_wave_event(self, state: HatsState, event: Event, now: float) -> Changes[HatsState]:
        """After something in a wave; where it is over, it goes on, and decisions that got the same number get their own."""
        after = accept_in_wave(self, state, event, now)
        over = after.wave is None
        after = move_on(self, after, now) if over else after
        changes = self._changes(state, after, now, _wave_notices(state, after))
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
        aside = SideFiles(self._merging(before, after), {self.events_path: rows} if rows else {})
        if after.rests and not before.rests:
            notices = (*notices, _AT_REST)
        after = replace(after, recent=after.recent[-REMEMBERED:])
        return Changes(after, {self.state_path: state_json(after)}, aside, notices)

    def _merging(self, before: HatsState, after: HatsState) -> dict[str, str]:
        """What waits to be merged, for those who look."""
        old, new = (state.wave.merging if state.wave else Queue() for state in (before, after))
        return {queue_path(self.run): queue_json(new)} if old != new else {}


def _after_commit(state: HatsState) -> HatsState:
    """After a checkpoint, on to what it came before."""
    if state.phase is not Phase.COMMIT:
        return state
    state = replace(state, committed=state.snapshot, checkpoint=state.iteration - 1)
    return replace(state, phase=state.ahead[0], ahead=state.ahead[1:]) if state.ahead else state


def _wave_notices(before: HatsState, after: HatsState) -> tuple[str, ...]:
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


def accept_turn(context: HatsContext, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
    """After a turn: what it published is taken in, and what changed is noted."""
    result, id = ended.result, context.taker(state, state.event)
    hat = context.settings.hat(id)
    taken = read_events(context.settings, id, result.papers.get(EVENTS, ""), result.text)
    change = result.change
    moved = state.moved or bool(change and change.files) or (change is None and bool(taken.events))
    state = replace(
        state.after_turn(ended, acknowledged=taken.acknowledged),
        still=0 if moved else state.still + 1,
        moved=False,
        notes=taken.refused,
        snapshot=change.snapshot if change else state.snapshot,
        not_before=now + context.settings.cooldown,
    )
    if result.end is not TurnEnd.FINISHED and not taken.published:
        return _retry_or_fail(context, state, ended, now)
    state = replace(state.with_turn_of(id), failures=0)
    if taken.cancels:
        return cancel_run(state, id, taken.cancels)
    return move_on(context, _queue_events(context, state, hat, taken), now)


def accept_user_events(context: HatsContext, state: HatsState, text: str) -> tuple[HatsState, tuple[str, ...]]:
    """What people published joins the queue, and what they published in vain; only hats keep promises."""
    whole = text[: text.rfind("\n") + 1]
    taken = read_events(context.settings, USER, whole[state.outside :], "")
    for said in taken.events:
        state = publish(context, state, said, USER)
    return replace(state, outside=len(whole)), tuple(f"not taken: {why}" for why in taken.refused)


def _retry_or_fail(context: HatsContext, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
    """A turn that came to nothing: its event stays the next one, until it is too often."""
    result = ended.result
    failures = state.failures + (0 if result.end in UNCHARGED else ended.attempt)
    why = result.error or f"the turn ended as {result.end}"
    state = replace(state, failures=failures, notes=(*state.notes, f"the turn before this one failed: {why}"))
    if failures >= context.settings.max_failures:
        return end_run(state, Outcome.FAILED, f"the agent failed {failures} times in a row: {why}")
    return move_on(context, state, now)


def _queue_events(context: HatsContext, state: HatsState, hat: Hat | None, taken: TurnEvents) -> HatsState:
    """The events of a turn that ended well go into the queue; claims wait for the gates and the checks."""
    source = hat.id if hat else COORDINATOR
    events, state = state.events, replace(state, queue=state.queue[state.taken :])
    if taken.events or taken.completes:
        state = state.with_word_of(source)
    for said in taken.events:
        state = publish(context, state, said, source, claim=context.claims(said.topic), wave=wave_after(events, hat))
    if taken.completes:
        state = replace(state, queue=(*events, *state.queue))
        if reasons := context.gates(state):
            return refuse_completion(context, state, reasons)
        state = publish(context, state, taken.completes, source, claim=True)
        return state if context.checks else _complete_run(context, state)
    state = replace(state, taken=1)
    if taken.events:
        # The next turn is another's: it must not take what was refused for its own.
        return replace(state, refusals=0, notes=tuple(f"{source} published in vain: {why}" for why in taken.refused))
    if taken.refused:
        return send_back(context, state, events, list(taken.refused), hat)
    return publish_default(context, state, events, hat)


def accept_checks(context: HatsContext, state: HatsState, verdict: Verdict, now: float) -> HatsState:
    """After the checks: what was claimed holds, or is answered."""
    if state.phase is not Phase.VERIFY:
        return state
    completion = context.settings.completion
    state = replace(state, verification=verification_text(verdict, ()))
    completes = any(claim.topic == completion for claim in state.claims)
    reasons = context.gates(state) if completes else []
    if completes and verdict.passed and not reasons:
        return move_on(context, _complete_run(context, state), now)
    told = failure_text(verdict, (), ())
    claims, state = state.claims, replace(state, claims=())
    for claim in (c for c in claims if c.topic != completion):
        rule = context.settings.topics[claim.topic]
        if _is_confirmed(rule, verdict):
            state = replace(grant_claim(context, state, claim), red=red_in(verdict) if rule.red else None)
            continue
        saw = "pass, so nothing shows yet what is missing" if rule.red and verdict.passed else f"do not pass:\n{told}"
        payload = f"{claim.payload}\n\nThe engine ran the checks, and they {saw}".strip()
        answer = NewEvent(rule.otherwise or RESUME, payload)
        state = publish(context, state, answer, claim.source, default=True, turn=claim.turn, wave=claim.wave)
    if completes and verdict.unrunnable and state.refusals >= PATIENCE:
        return end_run(state, Outcome.UNVERIFIABLE, verdict_summary(verdict))
    if completes and not verdict.passed:
        reasons = [f"the engine ran the checks, and they do not pass:\n{told}"]
    return move_on(context, refuse_completion(context, state, reasons) if completes else state, now)


def _is_confirmed(rule: Topic, verdict: Verdict) -> bool:
    """Whether the checks say what a topic claims: that they pass, or that they fail."""
    return verdict.passed if not rule.red else bool(verdict.failed) and not verdict.unrunnable


def _complete_run(context: HatsContext, state: HatsState) -> HatsState:
    """All gates are passed: the run is over, or rests until there is more to do."""
    completion = context.settings.completion
    if context.settings.persistent:
        queue = state.queue[state.taken :]
        # What is required is required of the next piece of work as well.
        gates: Mapping[str, Gate] = {}
        for event in queue:
            gates = gates_after(context, gates, event)
        state = replace(state, queue=queue, taken=1, claims=(), gates=gates, refusals=0, still=0)
        return state if state.queue else _commit_if_due(context, replace(state, phase=Phase.REST), always=True)
    who = next((claim.source for claim in state.claims if claim.topic == completion), COORDINATOR)
    checked = "all checks pass" if context.checks else "no checks were given, so the engine verified nothing"
    return _commit_if_due(context, end_run(state, Outcome.SUCCESS, f"{completion} by {who}; {checked}"), always=True)


def move_on(context: HatsContext, state: HatsState, now: float) -> HatsState:
    """On to the next turn or wave; claims and commits that are due come first, and a run that is stuck ends.

    One that is over stays so, and one that rests does until there is something to do.
    """
    if state.outcome or (not state.queue and state.rests):
        return state
    if state.claims:
        return _commit_if_due(context, replace(state, phase=Phase.VERIFY))
    if silent := _silent_hat(context, state):
        return end_run(state, Outcome.AWAITING_GUIDANCE, silent)
    state = state if state.queue else ask_coordinator(context, state, "nobody has anything to do: see what is left")
    state = _skip_exhausted(context, _put_next_first(context, state))
    if state.still >= context.patience:
        return end_run(state, Outcome.STUCK, f"nothing changed in {state.still} turns: no file, no task, no memory")
    if state.still * 2 >= context.patience:
        told = f"Nothing has changed in the last {state.still} turns. Do something about it, or say what blocks you."
        state = replace(state, notes=(*state.notes, told))
    return _commit_if_due(context, form_wave(context, state, now) or replace(state, phase=Phase.ACT))


def _silent_hat(context: HatsContext, state: HatsState) -> str:
    """Why the user is asked: a hat ended in its default event too many times in a row, whatever others did meanwhile."""
    most = context.settings.max_default_events
    for id, count in state.defaults.items():
        hat = context.settings.hat(id)
        if hat and most and count >= most:
            default = f"`{hat.default_publishes}` by default"
            return f"{id} ended its last {count} turns without an event of its own ({default}): what should it do?"
    return ""


def _commit_if_due(context: HatsContext, state: HatsState, *, always: bool = False) -> HatsState:
    """The same state, reached by way of a commit where one is due."""
    every = context.settings.checkpoint
    due = every and (always or (state.iteration - 1) // every > state.checkpoint // every)
    if not due or not state.snapshot or state.snapshot == state.committed or state.phase is Phase.COMMIT:
        return state
    return replace(state, phase=Phase.COMMIT, ahead=(state.phase,))


def _put_next_first(context: HatsContext, state: HatsState) -> HatsState:
    """The events of the next turn come first: what a hat gathers waits until the rest of its wave has come to it."""
    gathering = {hat.id for hat in context.settings.hats if hat.gathers}
    if not gathering:
        return state
    takers = {event.number: context.taker(state, event) for event in state.queue}
    unready = {event.wave for event in state.queue if event.wave and takers[event.number] not in gathering}
    first = next(e for e in state.queue if takers[e.number] not in gathering or e.wave not in unready)
    who = takers[first.number]
    alike = [e for e in state.queue if takers[e.number] == who and e.wave == first.wave]
    chosen = alike if who in gathering else [first]
    rest = [event for event in state.queue if event not in chosen]
    return replace(state, queue=(*chosen, *rest), taken=len(chosen))


def _skip_exhausted(context: HatsContext, state: HatsState) -> HatsState:
    """A hat that has had all its turns is told of once; what it would take goes to others."""
    while (hat := context.settings.hat(context.taker(state, state.event))) and hat.max_activations is not None:
        if state.activations.get(hat.id, 0) < hat.max_activations:
            break
        state = replace(state, exhausted=(*state.exhausted, hat.id))
        told = f"{hat.id} has had its {hat.max_activations} turns; `{state.event.topic}` waits for somebody else"
        state = publish(context, state, NewEvent(f"{hat.id}.exhausted", told), COORDINATOR, default=True)
        state = _put_next_first(context, replace(state, taken=1))
    return state
