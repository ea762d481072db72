"""What the wire formats of the providers have in common: what is asked, what is answered, what is refused."""

import json
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]
Event = tuple[str, Json | str]
"""A server-sent event: its name, which may be empty, and its data."""


@dataclass(frozen=True)
class Tokens:
    """What an answer is said to have used."""

    input: int = 1000
    """Everything that was sent, what was cached included."""
    output: int = 50
    cached: int = 0


@dataclass(frozen=True)
class Offer:
    """A tool that the agent offers."""

    name: str
    schema: Json
    freeform: bool = False
    """Whether it takes text instead of an object."""


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model wants to be used."""

    name: str
    arguments: Json | str
    """An object, or the text for a freeform tool."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:20])


@dataclass(frozen=True)
class Answer:
    """What the model says."""

    model: str
    text: str
    calls: Sequence[ToolCall] = ()
    tokens: Tokens = Tokens()


@dataclass(frozen=True)
class Refusal:
    """What a provider answers instead, beside the status."""

    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


class Wire(Protocol):
    """The wire format of a provider."""

    def offers(self, body: Json) -> list[Offer]:
        """The tools in a request."""
        ...

    def said(self, body: Json) -> str:
        """What the user said in a request, from the first message to the last."""
        ...

    def whole(self, answer: Answer) -> Json:
        """An answer at once."""
        ...

    def events(self, answer: Answer) -> list[Event]:
        """An answer as a stream."""
        ...

    def refusal(self, status: int, message: str) -> Refusal:
        """An error."""
        ...

    def limit(self, resets_at: float, *, of_plan: bool) -> Refusal:
        """A limit that ends at a moment (429): of requests a minute, or of what a plan pays for."""
        ...

    def broken(self, message: str) -> Event:
        """The event that says in the middle of a stream that the provider is overloaded."""
        ...


def seconds_until(moment: float) -> int:
    """Never less than is left."""
    return max(1, math.ceil(moment - time.time()))


def new_id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:24]


def pieces(text: str, size: int = 40) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def flat(content: object) -> str:
    """The text of a message, which may be in parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)


def encode(event: Event) -> bytes:
    """An event as it goes over the wire."""
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return ((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode()
