"""Reads the events of a turn from its file and its last message, refuses invalid ones, and updates the gates."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ralph.core.prompt import Place, PromptPart
from ralph.core.turns import TurnResult
from ralph.documents.agent.events import (
    ACKNOWLEDGED,
    PAYLOAD_LIMIT,
    REFUSED_EVENTS,
    REFUSED_EXIT,
    find_contradiction,
    find_family,
    find_publish_fault,
    find_topic_fault,
    parse_events,
    parse_refusals,
)
from ralph.documents.hats.definition import HatsSettings

EVENTS = "events.jsonl"
MAX_EVENTS_OF_TURN = 50
"""The most events that are accepted from one turn."""
_MAX_REPORTED_LINES = 5
"""Invalid lines that are reported one by one, the last included: if the file was cut off, that line says so."""
PUBLISH_IN_MESSAGE = PromptPart(
    name="publish-in-message",
    text=(
        "In this turn you may have no shell, or commands may be refused. Then publish at the end of your last message, outside"
        ' of code fences: `<event topic="TOPIC">PAYLOAD</event>`. The payload can be JSON. Put into it what you would'
        " have recorded with commands."
    ),
    purpose="How to publish without a command.",
    place=Place.ANSWER,
    heading="# If you cannot run commands",
)
"""For agents that run no commands, or not every command."""
_TAG = re.compile(r"<event\s+topic=\"([^\"]+)\"(?:\s+target=\"([^\"]*)\")?\s*>(.*?)</event>", re.DOTALL)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class NewEvent:
    """One event, as a turn wrote it."""

    topic: str
    payload: str = ""
    target: str = ""


@dataclass(frozen=True)
class TurnEvents:
    """What a turn published."""

    events: tuple[NewEvent, ...] = ()
    completion: NewEvent | None = None
    cancellation: NewEvent | None = None
    acknowledged: bool = False
    refused: tuple[str, ...] = ()
    """Sentences for the next turn."""
    abandoned: tuple[str, ...] = ()
    """Why `ralph emit` refused events of a hat that knew it, and ended without any event."""

    @property
    def has_events(self) -> bool:
        """Whether there is an event other than an acknowledgement."""
        return bool(self.events or self.completion or self.cancellation)


def read_turn_events(settings: HatsSettings, publisher: str, result: TurnResult) -> TurnEvents:
    """The events of a turn, and what `ralph emit` refused if there are none.

    If a script ended with the refused event, that event was refused like any other. Other agents read why, and ended anyway.
    """
    found = read_events(settings, publisher, result.documents.get(EVENTS, ""), result.text)
    if found.has_events:
        return found
    refusals = tuple(parse_refusals(result.documents.get(REFUSED_EVENTS, "")))
    if result.code == REFUSED_EXIT:
        return replace(found, refused=(*found.refused, *refusals))
    return replace(found, abandoned=refusals)


def read_events(settings: HatsSettings, publisher: str, events_text: str, message: str) -> TurnEvents:
    """The events that a hat, the coordinator or the user published, in their order.

    `events_text` is the content of an events file, `message` the last message of the agent.
    """
    new_events, refused = _parse_published(events_text, message, settings.completion)
    if len(new_events) > MAX_EVENTS_OF_TURN:
        ignored = len(new_events) - MAX_EVENTS_OF_TURN
        refused.append(
            f"{ignored} of {len(new_events)} events were ignored: a turn can publish at most {MAX_EVENTS_OF_TURN}"
        )
    accepted: list[NewEvent] = []
    completion = cancellation = None
    acknowledged = False
    rules = settings.list_publish_rules(publisher)
    for event in dict.fromkeys(new_events[:MAX_EVENTS_OF_TURN]):
        if fault := find_event_fault(settings, rules, event):
            refused.append(fault)
        elif event.topic == ACKNOWLEDGED:
            acknowledged = True
        elif event.topic == settings.completion:
            completion = event
        elif settings.cancellation and event.topic == settings.cancellation:
            cancellation = event
        else:
            accepted.append(event)
            if completion:
                refused.append(f"`{completion.topic}` was not the last event of the turn, so it does not count")
                completion = None
    if completion and (topic := find_contradiction(rules, (event.topic for event in accepted))):
        # Only the hat knows which of the two it meant, so it gets its event again.
        both = f"`{topic}` and `{completion.topic}` in one turn contradict each other"
        refused.append(f"{both}, so Ralph published nothing of that turn: decide, and publish one of them")
        accepted, completion = [], None
    return TurnEvents(
        events=tuple(accepted),
        completion=completion,
        cancellation=cancellation,
        acknowledged=acknowledged,
        refused=tuple(refused),
    )


def find_event_fault(settings: HatsSettings, rules: Mapping[str, object], event: NewEvent) -> str:
    """Why an event may not be published under these rules; empty if it may."""
    if event.target and event.target not in {one.id for one in settings.hats}:
        return f"`{event.topic}` is for the hat {event.target}, which does not exist"
    return find_publish_fault(rules, event.topic, event.payload)


def _parse_published(events_text: str, message: str, completion: str) -> tuple[list[NewEvent], list[str]]:
    """The events in an events file and in a message, and why others are invalid."""
    data = events_text.encode(errors="replace")
    found, broken, length = parse_events(data)
    if rest := data[length:].strip():
        # The agent has ended, so a last line without a line break counts if it is complete.
        more, partial, _ = parse_events(rest + b"\n")
        found, broken = [*found, *more], [*broken, *partial]
    shown = broken if len(broken) <= _MAX_REPORTED_LINES else [*broken[: _MAX_REPORTED_LINES - 1], broken[-1]]
    refused = [f"a line of the events file is not an event ({why}): {line[:120]}" for _, why, line in shown]
    if left := len(broken) - len(shown):
        refused.append(f"{left} more lines are not events")
    new_events = [_shorten(event.topic, event.text, str(event.row.get("target") or "")) for event in found]
    message_without_code = _FENCED.sub("", message)
    for topic, target, payload in _TAG.findall(message_without_code):
        if fault := find_topic_fault(topic.strip()):
            refused.append(f"an <event> tag is ignored: {fault}")
        else:
            new_events.append(_shorten(topic.strip(), payload.strip(), target))
    topics = {event.topic for event in new_events}
    if completion not in topics and _find_last_line(message_without_code) == completion:
        new_events.append(NewEvent(completion))
    return new_events, refused


def _shorten(topic: str, payload: str, target: str) -> NewEvent:
    more = f"… ({len(payload) - PAYLOAD_LIMIT} more characters)" if len(payload) > PAYLOAD_LIMIT else ""
    return NewEvent(topic, payload[:PAYLOAD_LIMIT] + more, target)


def _find_last_line(text: str) -> str:
    """The last line that is not blank; empty if there is none."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


MAX_NAMED_TASKS = 3
"""Tasks that a reason names at most."""
_TASK_ID = re.compile(r"(?<![\w-])task_id[\"'`]?\s*[:=]\s*[\"'`]?(\w[\w.:-]*\w|\w)")


@dataclass(frozen=True)
class Gate:
    """Whether one required topic is fulfilled."""

    passed: bool = False
    """Whether a hat that owns it has published it."""
    stale: Mapping[str, str] = field(default_factory=dict)
    """The later topic of the same family that made it stale, by `task_id`; an empty id for events without one."""


def update_gates(
    settings: HatsSettings, gates: Mapping[str, Gate], topic: str, payload: str, *, source: str, by_engine: bool
) -> Mapping[str, Gate]:
    """The gates after one more event."""
    touched = [one for one in settings.required if find_family(one) == find_family(topic)]
    if not touched:
        return gates
    task = find_task_id(payload)
    after = dict(gates)
    for required in touched:
        gate = gates.get(required, Gate())
        if topic == required:
            allowed = settings.allowed_publishers(topic)
            if not by_engine and (allowed is None or source in allowed):
                after[required] = _pass_gate(gate, task)
        elif topic not in settings.required:
            after[required] = replace(gate, stale={**_without(gate.stale, ""), task: topic})
    return after


def find_gate_blockers(settings: HatsSettings, gates: Mapping[str, Gate], given_up: Collection[str]) -> dict[str, str]:
    """The required topics that do not let the run complete, and why. Tasks in `given_up` have failed and are not counted."""
    reasons = {}
    for topic in settings.required:
        gate = gates.get(topic, Gate())
        stale = {task: later for task, later in gate.stale.items() if task not in given_up}
        if not gate.passed:
            owners = " or ".join(settings.allowed_publishers(topic) or ())
            missing = f"{owners} has not published" if owners else "no hat has published"
            reasons[topic] = f"{missing} `{topic}` in this run"
        elif stale:
            latest = []
            for task, later in stale.items():
                about = f" on {task}" if task else ""
                latest.append(f"the latest event{about} is `{later}`")
            more = f" and {len(latest) - MAX_NAMED_TASKS} more" if len(latest) > MAX_NAMED_TASKS else ""
            reasons[topic] = f"{', '.join(latest[:MAX_NAMED_TASKS])}{more}, not `{topic}`"
    return reasons


def find_task_id(payload: str) -> str:
    """The `task_id` in a payload, JSON or text; empty if there is none."""
    found = _TASK_ID.search(payload)
    return found[1] if found else ""


def _pass_gate(gate: Gate, task: str) -> Gate:
    """The gate after its topic was published. Without a `task_id` the event is about all tasks.

    With an id it also replaces earlier events without one.
    """
    if not task:
        return Gate(passed=True)
    return Gate(passed=True, stale=_without(_without(gate.stale, task), ""))


def _without(topics: Mapping[str, str], task: str) -> dict[str, str]:
    return {one: topic for one, topic in topics.items() if one != task}
