"""The context of a run of hats, which hat receives an event, and how events enter the queue."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ralph.core.checks import Check, Evidence, Grade
from ralph.core.ids import WorkKey, WorkKind
from ralph.core.outcomes import Outcome
from ralph.core.text import count_are
from ralph.core.turns import TurnRequest
from ralph.documents.agent.events import REFUSED_EVENTS
from ralph.documents.agent.tasks import FAILED, AgentTasks
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings, show_role
from ralph.workflows.hats.events import EVENTS, NewEvent, find_gate_blockers, update_gates
from ralph.workflows.hats.prompt import build_hat_prompt, list_inbox, parse_tasks
from ralph.workflows.hats.state import (
    SHARED,
    TASK_RESUME,
    TASK_START,
    TASKS,
    HatsPhase,
    HatsState,
    QueuedEvent,
    state_file,
)
from ralph.workflows.loop.prompt import build_judge_prompt, list_task_inbox

MAX_ATTEMPTS = 5
"""The maximum number of turns for the same work."""
MAX_REFUSALS = 2
"""How often in a row a hat gets its events again after a refusal. Then other hats continue."""


@dataclass(frozen=True)
class HatsContext:
    """What a run of hats is started with."""

    run: str
    objective: str
    settings: HatsSettings
    checks: tuple[Check, ...]
    frame: str
    """The template of the part that all prompts share."""
    resolver: str = ""
    """The template of the prompt that resolves a conflict."""
    judge: str = ""
    """The template of the prompt of a judge."""
    has_judge: bool = True
    """Whether a judge may accept changed tests and settings. If not, only a proof counts."""
    judges_all: bool = False
    """Whether a judge also looks at work that is proven."""

    @property
    def state_path(self) -> str:
        """The path of the document with the state."""
        return state_file(self.run)

    @property
    def events_path(self) -> str:
        """The path of the log of events, for the user and other tools."""
        return f".ralph/events-{self.run}.jsonl"

    @property
    def user_events_path(self) -> str:
        """The file to which `ralph emit` adds the events of the user."""
        return f".ralph/runs/{self.run}/emitted.jsonl"

    @property
    def watched(self) -> tuple[str, ...]:
        """The files that agents share, as patterns."""
        return TASKS, f"{SHARED}*.md", self.user_events_path, *self.scratchpads

    @property
    def scratchpads(self) -> tuple[str, ...]:
        """The files in which hats keep notes for each other."""
        pads = (self.settings.scratchpad, *(hat.scratchpad for hat in self.settings.hats))
        return tuple(pad for pad in dict.fromkeys(pads) if pad)

    @property
    def stuck_after(self) -> int:
        """The number of turns in a row without any change after which a run is stuck: two for each hat, at least 4."""
        return max(4, 2 * len(self.settings.hats))

    def tasks(self, state: HatsState) -> AgentTasks:
        """The queue of tasks."""
        return parse_tasks(state.texts.get(TASKS, ""))

    def find_completion_blockers(self, state: HatsState) -> list[str]:
        """Why the run cannot complete yet, apart from the checks."""
        tasks = self.tasks(state)
        reasons = list(self.find_gate_blockers(state).values())
        for target in dict.fromkeys(one.target for one in state.guidance):
            whom = f" to {target}" if target else ""
            reasons.append(f"the message from the user{whom} is not acknowledged (`ralph emit human.guidance.ack`)")
        if self.settings.tasks and (left := tasks.list_unfinished(self.run)):
            named = ", ".join(f"{task.id} ({task.title[:60]})" for task in left[:5])
            reasons.append(f"{count_are(len(left), 'task')} not closed: {named}")
        return reasons

    def find_gate_blockers(self, state: HatsState) -> dict[str, str]:
        """The required topics that do not let the run complete yet, and why."""
        if not self.settings.required:
            return {}
        given_up = {task.id for task in self.tasks(state).by_id.values() if task.status == FAILED}
        return find_gate_blockers(self.settings, state.gates, given_up)

    def needs_evidence(self, topic: str) -> bool:
        """Whether the checks must confirm events of a topic."""
        rule = self.settings.topics.get(topic)
        return bool(rule and rule.evidence and self.checks)

    def claims_success(self, topic: str) -> bool:
        """Whether events of a topic claim that the checks pass."""
        return self.needs_evidence(topic) and not self.expects_failure(topic)

    def expects_failure(self, topic: str) -> bool:
        """Whether events of a topic claim that the checks fail."""
        rule = self.settings.topics.get(topic)
        return bool(rule and rule.expects_failure)

    def request_turn(self, state: HatsState, id: str, key: str, now: float, wall: float | None = None) -> TurnRequest:
        """A turn of a hat for the first events of the queue."""
        hat = self.settings.hat(id)
        blockers = () if hat else self.find_completion_blockers(state)
        prompt = build_hat_prompt(
            self.run, self.settings, self.checks, self.frame, state, hat=hat, now=now, blockers=blockers
        )
        attempts = min(MAX_ATTEMPTS, max(1, self.settings.max_failures - state.failures))
        wall = wall or (hat.wall if hat else None)
        return TurnRequest(
            key,
            id,
            prompt,
            is_iteration=True,
            wall=wall,
            retries=attempts - 1,
            inbox=list_inbox(state),
            outputs=(EVENTS, REFUSED_EVENTS),
            accepts_failed_documents=True,
            gate_blockers=self.find_gate_blockers(state),
        )

    def request_judgment(self, state: HatsState) -> TurnRequest:
        """A turn of a judge, which reads the work before the run completes."""
        evidence = state.evidence or Evidence(Grade.UNPROVEN, "")
        return TurnRequest(
            key=str(WorkKey(WorkKind.JUDGMENT, number=state.iteration - 1)),
            role="judge",
            prompt=build_judge_prompt(self.judge, self.run, self.objective, self.checks, evidence),
            answer_schema="loop.judge",
            answer_required=True,
            retries=0,
            inbox=list_task_inbox(self.objective),
        )

    def find_default_event(self, hat: Hat | None) -> str:
        """The default event of a hat; empty if it has none. The completion and cancellation topics are never a default."""
        topic = hat.default_publishes if hat else ""
        return "" if topic in (self.settings.completion, self.settings.cancellation) else topic


def find_receiver(settings: HatsSettings, event: QueuedEvent, exhausted: Collection[str] = ()) -> str:
    """The id of the hat that receives an event: exact triggers before patterns, in the order of the preset.

    Hats in `exhausted` have used up their turns and receive nothing.
    """
    if event.target:
        able = {hat.id for hat in settings.hats} - set(exhausted)
        return event.target if event.target in able else COORDINATOR
    if event.topic in (TASK_START, TASK_RESUME):
        return COORDINATOR
    return settings.find_hat_for(event.topic, exhausted)


def publish(
    context: HatsContext,
    state: HatsState,
    new_event: NewEvent,
    source: str,
    *,
    by_engine: bool = False,
    claim: bool = False,
    turn: int | None = None,
    wave: int = 0,
    answers: str = "",
    commit: str = "",
    instead_of: str = "",
) -> HatsState:
    """Add an event to the queue, or to the events that wait for the checks."""
    turn_number = state.last_turn if turn is None else turn
    event = QueuedEvent(
        number=state.events_published + 1,
        topic=new_event.topic,
        payload=new_event.payload,
        source=source,
        turn=turn_number,
        target=new_event.target,
        by_engine=by_engine,
        wave=wave,
        answers=answers,
        commit=commit,
        instead_of=instead_of,
    )
    state = replace(state, events_published=event.number, recent=(*state.recent, event))
    if claim:
        return replace(state, claims=(*state.claims, event))
    return _enqueue(context, state, event)


def _enqueue(context: HatsContext, state: HatsState, event: QueuedEvent) -> HatsState:
    """Add an event to the queue, and update the gates that it concerns."""
    gates = update_gates(
        context.settings, state.gates, event.topic, event.payload, source=event.source, by_engine=event.by_engine
    )
    return replace(state, queue=(*state.queue, event), gates=gates)


def confirm_claim(context: HatsContext, state: HatsState, claim: QueuedEvent) -> HatsState:
    """Add an event that the checks have confirmed to the queue."""
    return replace(_enqueue(context, state, claim), refusals=0)


def ask_coordinator(context: HatsContext, state: HatsState, why: str, wave: int = 0) -> HatsState:
    """Publish an event for the coordinator, with the reason."""
    return publish(context, state, NewEvent(TASK_RESUME, why), COORDINATOR, by_engine=True, wave=wave)


def end_run(state: HatsState, outcome: Outcome, reason: str) -> HatsState:
    """End the run."""
    return replace(state, phase=HatsPhase.DONE, next_phases=(), outcome=outcome, reason=reason)


def cancel_run(state: HatsState, hat: str, new_event: NewEvent) -> HatsState:
    """End the run because a hat cancelled it."""
    return end_run(
        state, Outcome.ABORTED, f"cancelled by {hat}" + (f": {new_event.payload[:300]}" if new_event.payload else "")
    )


def find_wave_of_new_events(events: tuple[QueuedEvent, ...], hat: Hat | None) -> int:
    """The number of the wave of the events that a turn publishes; 0 after a hat that gathers, which ends the wave."""
    return 0 if hat and hat.gathers else events[0].wave


def send_back(
    context: HatsContext,
    state: HatsState,
    events: tuple[QueuedEvent, ...],
    why: list[str],
    hat: Hat | None = None,
    message: str = "",
) -> HatsState:
    """Give the hat its events again, with the reasons. After too many refusals, other hats continue."""
    state = replace(state, notes=tuple(dict.fromkeys((*state.notes, *why))), refusals=state.refusals + 1)
    if state.refusals <= MAX_REFUSALS:
        return replace(state, queue=(*events, *state.queue))
    state = replace(state, refusals=0)
    if hat:
        return publish_default(context, state, events, hat)
    return ask_coordinator(context, state, message or "\n".join(why), find_wave_of_new_events(events, hat))


def publish_default(
    context: HatsContext, state: HatsState, events: tuple[QueuedEvent, ...], hat: Hat | None
) -> HatsState:
    """Publish the default event of a hat that published nothing. If it has none, ask the coordinator."""
    wave = find_wave_of_new_events(events, hat)
    if hat and (topic := context.find_default_event(hat)):
        new_event = NewEvent(topic, join_payloads(events))
        state = state.count_default_turn(hat.id)
        return publish(
            context, state, new_event, hat.id, by_engine=True, claim=context.needs_evidence(topic), wave=wave
        )
    return ask_coordinator(context, state, describe_silence(events, hat), wave)


def describe_silence(events: tuple[QueuedEvent, ...], hat: Hat | None) -> str:
    """The message to the coordinator if a hat published nothing."""
    if events[0].topic == TASK_RESUME:
        return events[0].payload
    publisher, payload = show_role(hat.id if hat else COORDINATOR), join_payloads(events)
    return f"{publisher} received `{events[0].topic}` and published nothing. It was about:\n{payload}"


def join_payloads(events: tuple[QueuedEvent, ...]) -> str:
    """The payloads of events as one text."""
    return "\n\n".join(event.payload for event in events)


def refuse_completion(
    context: HatsContext, state: HatsState, blockers: list[str], failed_checks: str = ""
) -> HatsState:
    """Give the hat that published the completion its events again with all reasons, or ask the coordinator."""
    events, state = state.events, replace(state, queue=state.queue[state.events_in_turn :])
    completion = f"`{context.settings.completion}`"
    # The coordinator's prompt lists the gates as they are when it has its turn.
    message = f"{completion} was refused several times: find out what prevents it" if blockers else ""
    reasons = [*blockers, failed_checks] if failed_checks else blockers
    return send_back(context, state, events, [f"{completion} was refused: {one}" for one in reasons], message=message)


def note_abandoned_events(state: HatsState, hat: str, refusals: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The notes for the next turn of each hat, after a turn of this one that published nothing but refused events."""
    notes = {name: lines for name, lines in state.abandoned.items() if name != hat}
    if refusals:
        notes[hat] = tuple(f"an event of {show_role(hat)} was refused: {why}" for why in refusals)
    return notes
