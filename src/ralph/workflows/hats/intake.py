"""What a turn published: whole, valid, permitted events out of its file and its last words; what is refused, and why."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.documents.agent import events
from ralph.documents.agent.quick_json import loads
from ralph.documents.hats.definition import Hat, HatsSettings

EVENTS = "events.jsonl"
MOST = 50
"""Events that are taken from one turn."""
ACKNOWLEDGED, ASK = "human.guidance.ack", "human.interact"
_TAG = re.compile(r"<event\s+topic=\"([^\"]+)\"(?:\s+target=\"([^\"]*)\")?\s*>(.*?)</event>", re.DOTALL)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Said:
    """One event, as a turn wrote it."""

    topic: str
    payload: str = ""
    target: str = ""


@dataclass(frozen=True)
class Intake:
    """What a turn published."""

    events: tuple[Said, ...] = ()
    completes: Said | None = None
    cancels: Said | None = None
    acknowledged: bool = False
    refused: tuple[str, ...] = ()
    """Sentences for the next turn."""

    @property
    def published(self) -> bool:
        """Whether anything was that counts."""
        return bool(self.events or self.completes or self.cancels)


def take_in(settings: HatsSettings, hat: Hat | None, file: str, text: str) -> Intake:
    """What counts of what a turn published, in its order."""
    said, refused = _read(file, text, settings.completion)
    if len(said) > MOST:
        refused.append(f"{len(said) - MOST} of {len(said)} events were not taken: at most {MOST} a turn")
    taken: list[Said] = []
    completes = cancels = None
    acknowledged = False
    for one in dict.fromkeys(said[:MOST]):
        if fault := fault_of(settings, hat, one):
            refused.append(fault)
        elif one.topic == ACKNOWLEDGED:
            acknowledged = True
        elif one.topic == settings.completion:
            completes = one
        elif settings.cancellation and one.topic == settings.cancellation:
            cancels = one
        else:
            taken.append(one)
            if completes:
                refused.append(f"`{completes.topic}` was not the last event of the turn, so it does not count")
                completes = None
    return Intake(tuple(taken), completes, cancels, acknowledged, tuple(refused))


def fault_of(settings: HatsSettings, hat: Hat | None, said: Said) -> str:
    """Why an event may not be published by a hat; empty where it may. No hat is the coordinator, who may publish all."""
    topic, name = said.topic, f"`{said.topic}`"
    if topic == ACKNOWLEDGED:
        return ""
    if topic == ASK:
        return f"{name} is not published: ask with `ralph tools interact ask`"
    if topic.startswith("human."):
        return f"{name} is a person's to say"
    promises = [one for one in (settings.completion, settings.cancellation) if one]
    if hat and topic in promises and not _may_promise(settings, hat, topic):
        return f"{name} is not yours to publish: it is for {', '.join(_promising(settings, topic))}"
    if hat and settings.enforce_scope and not any(events.matches(one, topic) for one in hat.publishes):
        return f"{name} is not yours to publish: your topics are {', '.join(hat.publishes) or 'none'}"
    if said.target and said.target not in {one.id for one in settings.hats}:
        return f"{name} is for the hat {said.target}, which does not exist"
    rule = settings.topics.get(topic)
    if rule and (missing := [key for key in rule.requires if not has_key(said.payload, key)]):
        return f"{name} lacks {', '.join(missing)} in its payload"
    return ""


def has_key(payload: str, key: str) -> bool:
    """Whether a payload, JSON or text, says something for a key."""
    try:
        data = loads(payload)
    except ValueError:
        data = None
    if isinstance(data, dict):
        return data.get(key) not in (None, "", [], {})
    return re.search(rf"(?<![\w-]){re.escape(key)}\s*[:=]\s*[\"'`]?\w", payload) is not None


def _may_promise(settings: HatsSettings, hat: Hat, topic: str) -> bool:
    """Where some hats list a promise, it is theirs alone."""
    return topic in hat.publishes or not _promising(settings, topic)


def _promising(settings: HatsSettings, topic: str) -> list[str]:
    return [hat.id for hat in settings.hats if topic in hat.publishes]


def _read(file: str, text: str, promise: str) -> tuple[list[Said], list[str]]:
    """The events in a file and in a message, and the lines that are none."""
    data = file.encode(errors="replace")
    found, broken, length = events.parse(data)
    if rest := data[length:].strip():
        # Its writer is gone: a line without an end counts where it is whole all the same.
        more, partial, _ = events.parse(rest + b"\n")
        found, broken = [*found, *more], [*broken, *partial]
    refused = [f"a line of the events file is no event ({why}): {line[:120]}" for _, why, line in broken[:5]]
    said = [_cut(event.topic, event.text, str(event.row.get("target") or "")) for event in found]
    spoken = _FENCED.sub("", text)
    for topic, target, payload in _TAG.findall(spoken):
        if fault := events.fault_of_topic(topic.strip()):
            refused.append(f"an <event> tag is not taken: {fault}")
        else:
            said.append(_cut(topic.strip(), payload.strip(), target))
    if promise not in {one.topic for one in said} and next(_lines(spoken), "") == promise:
        said.append(Said(promise))
    return said, refused


def _cut(topic: str, payload: str, target: str) -> Said:
    more = f"… ({len(payload) - events.PAYLOAD_LIMIT} more characters)" if len(payload) > events.PAYLOAD_LIMIT else ""
    return Said(topic, payload[: events.PAYLOAD_LIMIT] + more, target)


def _lines(text: str) -> Iterator[str]:
    """The lines that say something, the last first."""
    return (line.strip() for line in reversed(text.splitlines()) if line.strip())
