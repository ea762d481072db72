"""Waves: one hat takes several events side by side, each in a workspace of its own, and what they did is merged.

What they publish is held back until all have ended, then joins the queue in the order of their events: it makes no
difference who was faster. Who fails, or cannot be merged, is told of, and keeps nobody else from going on.
"""

from dataclasses import replace

from ralph.core.events import Event, Merged, TurnEnded, Work
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd, TurnRequest
from ralph.core.work_keys import WorkKey, WorkKind
from ralph.documents.agent.events import matches
from ralph.documents.hats.definition import COORDINATOR, Hat
from ralph.workflows.hats.context import PATIENCE, HatsContext
from ralph.workflows.hats.events import EVENTS, NewEvent, read_events
from ralph.workflows.hats.queue import cancel_run, describe_silence, end_run, publish
from ralph.workflows.hats.state import RESUME, HatsState, Job, Phase, Step, Wave
from ralph.workflows.merging import Settled

FAILED = "wave.worker.failed"
"""Published for one of a wave of whom nothing came."""
_LEAST = 1.0


def form_wave(context: HatsContext, state: HatsState, now: float) -> HatsState | None:
    """The state with a wave of all events that wait for the next hat; None where it takes one at a time, or has but one."""
    hat = context.settings.hat(context.taker(state, state.event))
    if hat is None or hat.concurrency < 2:
        return None
    own = [event for event in state.queue if context.taker(state, event) == hat.id]
    if hat.max_activations is not None:
        own = own[: hat.max_activations - state.activations.get(hat.id, 0)]
    if len(own) < 2:
        return None
    first = own[0].wave or own[0].number
    jobs = tuple(Job(replace(event, wave=event.wave or first), notes=state.notes) for event in own)
    within = _wave_seconds(context, hat)
    wave = Wave(hat.id, jobs, deadline=now + within if within else 0.0)
    return replace(state, phase=Phase.WAVE, wave=wave, queue=tuple(e for e in state.queue if e not in own))


def wave_work(context: HatsContext, state: HatsState, now: float) -> tuple[Work, ...]:
    """What of a wave should be under way: as many turns as the hat takes at once, merges and resolvers."""
    wave, hat = _wave_and_hat(context, state)
    claiming = {_task(wave, job) for job in wave.jobs if any(context.claims_green(said.topic) for said in job.said)}
    merges = wave.merging.works(lambda task: context.checks if task in claiming else (), context.resolver)
    if now < state.not_before:
        return merges
    return *merges, *(_wave_turn(context, state, wave, hat, job, now) for job in _jobs_to_run(wave, hat))


def accept_in_wave(context: HatsContext, state: HatsState, event: Event, now: float) -> HatsState:
    """What follows from a turn or a merge of the wave; where it was the last, what they published is in the queue."""
    wave, hat = _wave_and_hat(context, state)
    merging, settled = wave.merging.accept(event)
    if merging is not wave.merging:
        state = replace(state, wave=replace(wave, merging=merging))
    if isinstance(event, Merged):
        state = replace(state, snapshot=event.snapshot or state.snapshot)
    if settled:
        state = _finish_merge(state, settled)
    elif isinstance(event, TurnEnded):
        state = _accept_wave_turn(context, state, event, now)
    return _end_wave(context, state, hat) if state.wave and state.wave.is_over and not state.outcome else state


def rest_wave(wave: Wave, now: float) -> Wave:
    """A wave whose run ends: its time goes on when the run does."""
    return replace(wave, deadline=0.0, left=max(_LEAST, wave.deadline - now)) if wave.deadline else wave


def _wave_turn(context: HatsContext, state: HatsState, wave: Wave, hat: Hat, job: Job, now: float) -> TurnRequest:
    others = len(wave.jobs) - 1
    beside = (
        f"{others} more of your hat work at the same time, each on an event of its own and in a copy of the tree."
        " Do only what yours asks for; it is all merged when you have ended."
    )
    page = replace(state, queue=(job.event,), taken=1, notes=(*job.notes, beside))
    left = max(_LEAST, wave.deadline - now) if wave.deadline else wave.left
    request = context.request(page, hat.id, str(_key(job)), now, min(filter(None, (left, hat.wall)), default=None))
    return replace(request, task=_task(wave, job), workspace=_workspace(wave, job))


def _accept_wave_turn(context: HatsContext, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
    """After the turn of one of them: what it published is kept, and its work goes to be merged."""
    wave, hat = _wave_and_hat(context, state)
    key = WorkKey.parse(ended.key)
    job = next((one for one in wave.jobs if one.step is Step.TURN and _key(one) == key), None)
    if job is None:
        return state
    late = _jobs_to_run(wave, replace(hat, concurrency=len(wave.jobs)))[hat.concurrency :]
    result = ended.result
    if wave.left:
        wave = replace(wave, deadline=result.started_at + wave.left, left=0.0)
        state = replace(state, wave=wave)
    taken = read_events(context.settings, hat.id, result.papers.get(EVENTS, ""), result.text)
    state = state.after_turn(ended, acknowledged=taken.acknowledged)
    again = replace(job, attempt=job.attempt + 1, turn=ended.turn)
    if result.end in (TurnEnd.CUT, TurnEnd.UNAVAILABLE) and not taken.published:
        return _with_job(state, again)
    if wave.deadline and now >= wave.deadline:
        for other in late:
            state = _with_job(
                state, replace(other, step=Step.DONE, failed="the others took all the time that there was")
            )
    if result.end is not TurnEnd.FINISHED and not taken.published:
        why = result.error or f"the turn ended as {result.end}"
        told = f"{why}; what it did is on the branch ralph/{context.run}/{_workspace(wave, job)}"
        return _with_job(state, replace(job, step=Step.DONE, turn=ended.turn, failed=told, tries=ended.attempt))
    state = state.with_turn_of(hat.id)
    if taken.cancels:
        return cancel_run(state, hat.id, taken.cancels)
    refused = taken.refused
    if taken.completes:
        refused = (*refused, f"`{taken.completes.topic}` is not taken from one of several who work side by side")
    if refused and not taken.events and job.refusals < PATIENCE:
        return _with_job(state, replace(again, refusals=job.refusals + 1, notes=refused))
    files = bool(result.change and result.change.files)
    state = _start_merge(state, job, moved=files or (result.change is None and bool(taken.events)))
    said, by_default = taken.events, not taken.events
    if by_default:
        topic = context.default_of(hat)
        said = (NewEvent(topic, job.event.payload) if topic else NewEvent(RESUME, describe_silence((job.event,), hat)),)
    return _with_job(state, replace(job, step=Step.MERGE, turn=ended.turn, said=said, default=by_default))


def _start_merge(state: HatsState, job: Job, *, moved: bool) -> HatsState:
    assert state.wave
    wave, event = state.wave, job.event
    title = " ".join(f"{wave.hat}: {event.topic} {event.payload}".split())[:100]
    merging = wave.merging.add(_task(wave, job), _workspace(wave, job), title, f"`{event.topic}`:\n{event.payload}")
    return replace(state, wave=replace(wave, merging=merging, moved=wave.moved or moved))


def _finish_merge(state: HatsState, settled: Settled) -> HatsState:
    """After the merge of one of them, or where it was given up."""
    assert state.wave
    job = next(one for one in state.wave.jobs if _task(state.wave, one) == settled.task)
    merged, why = settled.merged, ""
    if not settled.is_in:
        files = f" in {', '.join(merged.files[:5])}" if merged.files else ""
        why = f"its work could not be merged ({merged.end}{files}); it stays on the branch {merged.branch}"
    return _with_job(state, replace(job, step=Step.DONE, failed=why))


def _end_wave(context: HatsContext, state: HatsState, hat: Hat) -> HatsState:
    """The wave is over: what came of each joins the queue, in their order; where nothing did, the run may give up."""
    assert state.wave
    wave = state.wave
    failed = [job for job in wave.jobs if job.failed]
    moved = wave.moved or state.moved
    state = replace(state, still=0 if moved else state.still + 1, moved=False, notes=())
    if len(failed) == len(wave.jobs):
        state = replace(state, failures=state.failures + max(1, *(job.tries for job in failed)))
        if state.failures >= context.settings.max_failures:
            jobs = tuple(Job(job.event, attempt=job.attempt + 1) for job in wave.jobs)
            state = replace(state, wave=replace(wave, jobs=jobs, deadline=0.0, left=_wave_seconds(context, hat)))
            why = f"all {len(failed)} of a wave failed, {state.failures} tries in a row: {failed[0].failed}"
            return end_run(state, Outcome.FAILED, why)
    else:
        state = replace(state, failures=0)
    told_to = next((other.id for other in _gathering_hats(context, hat)), "")
    state = replace(state, wave=None, refusals=0)
    for job in wave.jobs:
        of, turn = job.event.wave, job.turn
        if not job.failed:
            by_default = job.default and job.said[0].topic != RESUME
            state = state.with_default_of(hat.id) if by_default else state.with_word_of(hat.id)
        if job.failed:
            told = NewEvent(FAILED, f"{job.failed}\nIt was `{job.event.topic}`:\n{job.event.payload}", told_to)
            state = publish(context, state, told, COORDINATOR, default=True, turn=turn, wave=of)
        for said in () if job.failed else job.said:
            who = COORDINATOR if said.topic == RESUME else hat.id
            claim = context.claims(said.topic)
            state = publish(context, state, said, who, default=job.default, claim=claim, turn=turn, wave=of)
    return state


def _gathering_hats(context: HatsContext, hat: Hat) -> list[Hat]:
    """The hats that wait for what a hat publishes."""
    others = [other for other in context.settings.hats if other.gathers]
    return [one for one in others if any(matches(t, topic) for t in one.triggers for topic in hat.publishes)]


def _wave_seconds(context: HatsContext, hat: Hat) -> float:
    """The seconds that a wave of a hat has; 0 for any number."""
    return min((one.gathers_within for one in _gathering_hats(context, hat) if one.gathers_within), default=0.0)


def _wave_and_hat(context: HatsContext, state: HatsState) -> tuple[Wave, Hat]:
    assert state.wave
    hat = context.settings.hat(state.wave.hat)
    assert hat
    return state.wave, hat


def _jobs_to_run(wave: Wave, hat: Hat) -> tuple[Job, ...]:
    """Those whose turn it is, as many as may be at once."""
    return tuple(job for job in wave.jobs if job.step is Step.TURN)[: hat.concurrency]


def _with_job(state: HatsState, job: Job) -> HatsState:
    assert state.wave
    jobs = tuple(job if one.event.number == job.event.number else one for one in state.wave.jobs)
    return replace(state, wave=replace(state.wave, jobs=jobs))


def _key(job: Job) -> WorkKey:
    return WorkKey(WorkKind.WAVE, number=job.event.number, attempt=job.attempt)


def _task(wave: Wave, job: Job) -> str:
    return f"{wave.hat}-{job.event.number}"


def _workspace(wave: Wave, job: Job) -> str:
    return f"{_task(wave, job)}/1"
