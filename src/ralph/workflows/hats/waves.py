"""Waves: workers of one hat handle several events in parallel, each in its own worktree, and their work is merged.

The events that they publish join the queue when all workers have ended, in the order of the events that they handled, so
the result does not depend on their speed. A worker that fails or cannot be merged is reported. The others continue.
"""

from dataclasses import replace

from ralph.core.events import Event, MergeEnded, MergeResult, TurnEnded, Work
from ralph.core.ids import WorkKey, WorkKind, name_wave_worktree
from ralph.core.outcomes import Outcome
from ralph.core.text import count
from ralph.core.turns import TurnEnd, TurnRequest
from ralph.documents.agent.events import topic_matches
from ralph.documents.hats.definition import COORDINATOR, Hat
from ralph.workflows.hats.events import NewEvent, TurnEvents, find_task_id, read_turn_events
from ralph.workflows.hats.routing import (
    MAX_REFUSALS,
    HatsContext,
    cancel_run,
    describe_silence,
    end_run,
    find_receiver,
    note_abandoned_events,
    publish,
)
from ralph.workflows.hats.state import TASK_RESUME, HatsPhase, HatsState, QueuedEvent, Wave, WaveWorker, WorkerStep
from ralph.workflows.merge_rules import MERGE_FAILURES, SettledMerge

FAILED = "wave.worker.failed"
"""Published for a worker of a wave that failed: its turn, or the merge of its work."""
_MIN_SECONDS = 1.0
ANSWERED, LISTED, _MAX_LISTED = 400, 120, 8
"""Characters of the event that an answer quotes, characters of each event of a list, and events that it has at most."""


def form_wave(context: HatsContext, state: HatsState, now: float) -> HatsState | None:
    """The state with a wave of all events that wait for the next hat; None if only one waits, or the hat takes one at a time."""
    hat = context.settings.hat(find_receiver(context.settings, state.event, state.exhausted))
    if hat is None or hat.concurrency < 2:
        return None
    events = [event for event in state.queue if find_receiver(context.settings, event, state.exhausted) == hat.id]
    if hat.max_activations is not None:
        events = events[: hat.max_activations - state.activations.get(hat.id, 0)]
    if len(events) < 2:
        return None
    first = events[0].wave or events[0].number
    workers = tuple(WaveWorker(replace(event, wave=event.wave or first), notes=state.notes) for event in events)
    seconds = _compute_wave_seconds(context, hat)
    wave = Wave(hat.id, workers, deadline=now + seconds if seconds else 0.0)
    state = state.with_task_trees(find_task_id(event.payload) for event in events)
    return replace(state, phase=HatsPhase.WAVE, wave=wave, queue=tuple(e for e in state.queue if e not in events))


def list_wave_work(context: HatsContext, state: HatsState, now: float) -> tuple[Work, ...]:
    """The work of a wave: merges, resolvers, and as many turns as the hat may have at once."""
    wave, hat = _get_wave_and_hat(context, state)
    claiming = {
        _name_task(wave, worker)
        for worker in wave.workers
        if any(context.claims_success(new_event.topic) for new_event in worker.said)
    }
    merges = wave.merging.list_work(lambda task: context.checks if task in claiming else (), context.resolver)
    if now < state.not_before:
        return merges
    return *merges, *(
        _request_wave_turn(context, state, wave, hat, worker, now) for worker in _choose_workers(wave, hat)
    )


def accept_in_wave(context: HatsContext, state: HatsState, event: Event, now: float) -> HatsState:
    """Accept a turn or a merge of the wave. After the last one, the published events are in the queue."""
    wave, hat = _get_wave_and_hat(context, state)
    merging, settled = wave.merging.accept(event)
    if merging is not wave.merging:
        state = replace(state, wave=replace(wave, merging=merging))
    if isinstance(event, MergeEnded):
        state = replace(state, snapshot=event.snapshot or state.snapshot)
    if settled:
        state = _finish_merge(state, settled)
    elif isinstance(event, TurnEnded):
        state = _accept_wave_turn(context, state, event, now)
    return _end_wave(context, state, hat) if state.wave and state.wave.is_over and not state.outcome else state


def suspend_wave(wave: Wave, now: float) -> Wave:
    """The wave when its run ends: the rest of its time is stored for when the run continues."""
    return replace(wave, deadline=0.0, seconds_left=max(_MIN_SECONDS, wave.deadline - now)) if wave.deadline else wave


def _request_wave_turn(
    context: HatsContext, state: HatsState, wave: Wave, hat: Hat, worker: WaveWorker, now: float
) -> TurnRequest:
    others = [one.event for one in wave.workers if one is not worker]
    listed = "; ".join(_name_event(event) for event in others[:_MAX_LISTED])
    more = f"; and {len(others) - _MAX_LISTED} more" if len(others) > _MAX_LISTED else ""
    parallel_note = (
        f"At the same time, your hat works on other events, each in its own copy of the tree: {listed}{more}."
        " Do only what your event asks for. All work is merged at the end."
    )
    worker_state = replace(state, queue=(worker.event,), events_in_turn=1, notes=(*worker.notes, parallel_note))
    left = max(_MIN_SECONDS, wave.deadline - now) if wave.deadline else wave.seconds_left
    request = context.request_turn(
        worker_state, hat.id, str(_make_key(worker)), now, min(filter(None, (left, hat.wall)), default=None)
    )
    return replace(request, task=_name_task(wave, worker), worktree=_name_worktree(wave, worker))


def _accept_wave_turn(context: HatsContext, state: HatsState, ended: TurnEnded, now: float) -> HatsState:
    """Accept the turn of a worker: its events wait for the end of the wave, and its work is merged."""
    wave, hat = _get_wave_and_hat(context, state)
    key = WorkKey.parse(ended.key)
    worker = next((one for one in wave.workers if one.step is WorkerStep.TURN and _make_key(one) == key), None)
    if worker is None:
        return state
    not_started = _choose_workers(wave, replace(hat, concurrency=len(wave.workers)))[hat.concurrency :]
    result = ended.result
    if wave.seconds_left:
        wave = replace(wave, deadline=result.started_at + wave.seconds_left, seconds_left=0.0)
        state = replace(state, wave=wave)
    turn_events = read_turn_events(context.settings, hat.id, result)
    state = state.after_turn(
        ended, acknowledged=turn_events.acknowledged, task=find_task_id(worker.event.payload), in_own_worktree=True
    )
    again = replace(worker, attempt=worker.attempt + 1, turn=ended.turn)
    if result.end in (TurnEnd.CUT, TurnEnd.UNAVAILABLE) and not turn_events.has_events:
        return _with_worker(state, again)
    if wave.deadline and now >= wave.deadline:
        for other in not_started:
            state = _with_worker(
                state, replace(other, step=WorkerStep.DONE, failed="the other workers used up the time of the wave")
            )
    if result.end is not TurnEnd.FINISHED and not turn_events.has_events:
        why = result.error or f"the turn ended as {result.end}"
        reason = f"{why}; what it did is on the branch ralph/{context.run}/{_name_worktree(wave, worker)}"
        return _with_worker(
            state, replace(worker, step=WorkerStep.DONE, turn=ended.turn, failed=reason, failed_turns=ended.attempt)
        )
    return _accept_worker_events(context, state, worker, ended, turn_events)


def _accept_worker_events(
    context: HatsContext, state: HatsState, worker: WaveWorker, ended: TurnEnded, turn_events: TurnEvents
) -> HatsState:
    """What follows from the events of a worker: the end of the run, another turn of it, or the merge of its work."""
    _, hat = _get_wave_and_hat(context, state)
    state = state.count_activation(hat.id)
    if turn_events.cancellation:
        return cancel_run(state, hat.id, turn_events.cancellation)
    refused = turn_events.refused
    if turn_events.completion:
        refused = (*refused, f"`{turn_events.completion.topic}` does not count if a worker of a wave publishes it")
    events = turn_events.events
    if refused and not events and worker.refusals < MAX_REFUSALS:
        again = replace(worker, attempt=worker.attempt + 1, turn=ended.turn)
        return _with_worker(state, replace(again, refusals=worker.refusals + 1, notes=refused))
    if ended.change is None:
        has_changes = bool(events)
    else:
        has_changes = bool(ended.change.files)
    state = _start_merge(state, worker, has_changes=has_changes)
    is_silent = not events
    if is_silent:
        topic = context.find_default_event(hat)
        if topic:
            events = (NewEvent(topic, worker.event.payload),)
        else:
            events = (NewEvent(TASK_RESUME, describe_silence((worker.event,), hat)),)
    return _with_worker(
        state,
        replace(
            worker,
            step=WorkerStep.MERGE,
            turn=ended.turn,
            said=events,
            by_engine=is_silent,
            abandoned=turn_events.abandoned,
        ),
    )


def _start_merge(state: HatsState, worker: WaveWorker, *, has_changes: bool) -> HatsState:
    assert state.wave
    wave, event = state.wave, worker.event
    title = " ".join(f"{wave.hat}: {event.topic} {event.payload}".split())[:100]
    merging = wave.merging.add(
        _name_task(wave, worker),
        _name_worktree(wave, worker),
        title,
        f"The event `{event.topic}` asked for it:\n{event.payload}",
    )
    return replace(state, wave=replace(wave, merging=merging, has_changes=wave.has_changes or has_changes))


def _finish_merge(state: HatsState, settled: SettledMerge) -> HatsState:
    """After the work of a worker was merged, or the merge was given up."""
    assert state.wave
    worker = next(one for one in state.wave.workers if _name_task(state.wave, one) == settled.task)
    merged, why = settled.merge, ""
    if not settled.is_merged:
        files = f" ({', '.join(merged.files[:5])})" if merged.files else ""
        reason = f"{MERGE_FAILURES[merged.end]}{files}"
        why = f"its work could not be merged, because {reason}; the work stays on the branch {merged.branch}"
    commit = merged.commit if merged.end is MergeResult.MERGED else ""
    if commit:
        changed = tuple(replace(one, commit=commit) if one.turn == worker.turn else one for one in state.changed)
        state = replace(state, changed=changed)
    return _with_worker(state, replace(worker, step=WorkerStep.DONE, failed=why, commit=commit))


def _end_wave(context: HatsContext, state: HatsState, hat: Hat) -> HatsState:
    """End the wave: the events of all workers join the queue in order. If all failed too often, the run ends."""
    assert state.wave
    wave = state.wave
    failed = [worker for worker in wave.workers if worker.failed]
    has_changes = wave.has_changes or state.has_changes
    trees = {**state.trees, hat.id: state.snapshot} if state.snapshot else state.trees
    refusals = [why for worker in wave.workers for why in worker.abandoned]
    abandoned = note_abandoned_events(state, hat.id, list(dict.fromkeys(refusals)))
    state = replace(
        state,
        unchanged_turns=0 if has_changes else state.unchanged_turns + 1,
        has_changes=False,
        # The user reads them, and the hat that receives what the wave published.
        notes=abandoned.get(hat.id, ()),
        abandoned=abandoned,
        trees=trees,
    )
    if len(failed) == len(wave.workers):
        state = replace(state, failures=state.failures + max(1, *(worker.failed_turns for worker in failed)))
        if state.failures >= context.settings.max_failures:
            workers = tuple(WaveWorker(worker.event, attempt=worker.attempt + 1) for worker in wave.workers)
            state = replace(
                state,
                wave=replace(wave, workers=workers, deadline=0.0, seconds_left=_compute_wave_seconds(context, hat)),
            )
            number, turns = count(len(failed), "worker"), count(state.failures, "turn")
            why = f"all workers of a wave failed ({number}), {turns} in a row: {failed[0].failed}"
            return end_run(state, Outcome.FAILED, why)
    else:
        state = replace(state, failures=0)
    receiver = next((other.id for other in _find_gathering_hats(context, hat)), "")
    state = replace(state, wave=None, refusals=0)
    for worker in wave.workers:
        wave_number, turn = worker.event.wave, worker.turn
        if not worker.failed:
            by_default = worker.by_engine and worker.said[0].topic != TASK_RESUME
            state = state.count_default_turn(hat.id) if by_default else state.reset_default_turns(hat.id)
        if worker.failed:
            failure = NewEvent(
                FAILED, f"{worker.failed}\nIt was `{worker.event.topic}`:\n{worker.event.payload}", receiver
            )
            state = publish(context, state, failure, COORDINATOR, by_engine=True, turn=turn, wave=wave_number)
        for new_event in () if worker.failed else worker.said:
            publisher = COORDINATOR if new_event.topic == TASK_RESUME else hat.id
            claim = context.needs_evidence(new_event.topic)
            state = publish(
                context,
                state,
                new_event,
                publisher,
                by_engine=worker.by_engine,
                claim=claim,
                turn=turn,
                wave=wave_number,
                answers=_name_event(worker.event, ANSWERED),
                commit=worker.commit,
            )
    return state


def _name_event(event: QueuedEvent, most: int = LISTED) -> str:
    """An event in one line."""
    text = " ".join(f"`{event.topic}` {event.payload}".split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _find_gathering_hats(context: HatsContext, hat: Hat) -> list[Hat]:
    """The hats that wait for what a hat publishes."""
    found = []
    for other in context.settings.hats:
        triggers = other.triggers if other.gathers else ()
        if any(topic_matches(trigger, topic) for trigger in triggers for topic in hat.publishes):
            found.append(other)
    return found


def _compute_wave_seconds(context: HatsContext, hat: Hat) -> float:
    """The seconds that a wave of a hat has; 0 for any number."""
    return min((one.gathers_within for one in _find_gathering_hats(context, hat) if one.gathers_within), default=0.0)


def _get_wave_and_hat(context: HatsContext, state: HatsState) -> tuple[Wave, Hat]:
    assert state.wave
    hat = context.settings.hat(state.wave.hat)
    assert hat
    return state.wave, hat


def _choose_workers(wave: Wave, hat: Hat) -> tuple[WaveWorker, ...]:
    """The workers that have a turn now, as many as may run at once."""
    return tuple(worker for worker in wave.workers if worker.step is WorkerStep.TURN)[: hat.concurrency]


def _with_worker(state: HatsState, worker: WaveWorker) -> HatsState:
    assert state.wave
    workers = tuple(worker if one.event.number == worker.event.number else one for one in state.wave.workers)
    return replace(state, wave=replace(state.wave, workers=workers))


def _make_key(worker: WaveWorker) -> WorkKey:
    return WorkKey(WorkKind.WAVE, number=worker.event.number, attempt=worker.attempt)


def _name_task(wave: Wave, worker: WaveWorker) -> str:
    return f"{wave.hat}-{worker.event.number}"


def _name_worktree(wave: Wave, worker: WaveWorker) -> str:
    return name_wave_worktree(wave.hat, worker.event.number)
