"""What a turn published: whole, valid, permitted events out of its file and its last words; what is refused, and why."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ralph.documents.agent import events, publishing
from ralph.documents.agent.publishing import ACKNOWLEDGED
from ralph.documents.hats.definition import HatsSettings

EVENTS = "events.jsonl"
MOST = 50
"""Events that are taken from one turn."""
_TOLD = 5
"""Lines that are no events, and are told of one by one; the last is among them: it says where a file was too large."""
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
    completes: NewEvent | None = None
    cancels: NewEvent | None = None
    acknowledged: bool = False
    refused: tuple[str, ...] = ()
    """Sentences for the next turn."""

    @property
    def published(self) -> bool:
        """Whether anything was that counts."""
        return bool(self.events or self.completes or self.cancels)


def read_events(settings: HatsSettings, who: str, file: str, text: str) -> TurnEvents:
    """What counts of what a hat, the coordinator or the user published, in its order."""
    said, refused = _read(file, text, settings.completion)
    if len(said) > MOST:
        refused.append(f"{len(said) - MOST} of {len(said)} events were not taken: at most {MOST} a turn")
    taken: list[NewEvent] = []
    completes = cancels = None
    acknowledged = False
    rules = settings.publishing(who)
    for one in dict.fromkeys(said[:MOST]):
        if fault := fault_of(settings, rules, one):
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
    return TurnEvents(tuple(taken), completes, cancels, acknowledged, tuple(refused))


def fault_of(settings: HatsSettings, rules: Mapping[str, object], said: NewEvent) -> str:
    """Why an event may not be published under these rules; empty if it may."""
    if said.target and said.target not in {one.id for one in settings.hats}:
        return f"`{said.topic}` is for the hat {said.target}, which does not exist"
    return publishing.fault_of(rules, said.topic, said.payload)


def _read(file: str, text: str, promise: str) -> tuple[list[NewEvent], list[str]]:
    """The events in a file and in a message, and the lines that are none."""
    data = file.encode(errors="replace")
    found, broken, length = events.parse(data)
    if rest := data[length:].strip():
        # Its writer is gone: a line without an end counts where it is whole all the same.
        more, partial, _ = events.parse(rest + b"\n")
        found, broken = [*found, *more], [*broken, *partial]
    shown = broken if len(broken) <= _TOLD else [*broken[: _TOLD - 1], broken[-1]]
    refused = [f"a line of the events file is no event ({why}): {line[:120]}" for _, why, line in shown]
    if left := len(broken) - len(shown):
        refused.append(f"{left} more lines of it are none either")
    said = [_shorten(event.topic, event.text, str(event.row.get("target") or "")) for event in found]
    spoken = _FENCED.sub("", text)
    for topic, target, payload in _TAG.findall(spoken):
        if fault := events.fault_of_topic(topic.strip()):
            refused.append(f"an <event> tag is not taken: {fault}")
        else:
            said.append(_shorten(topic.strip(), payload.strip(), target))
    if promise not in {one.topic for one in said} and next(_lines(spoken), "") == promise:
        said.append(NewEvent(promise))
    return said, refused


def _shorten(topic: str, payload: str, target: str) -> NewEvent:
    more = f"… ({len(payload) - events.PAYLOAD_LIMIT} more characters)" if len(payload) > events.PAYLOAD_LIMIT else ""
    return NewEvent(topic, payload[: events.PAYLOAD_LIMIT] + more, target)


def _lines(text: str) -> Iterator[str]:
    """The lines that say something, the last first."""
    return (line.strip() for line in reversed(text.splitlines()) if line.strip())
