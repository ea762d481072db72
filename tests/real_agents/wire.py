"""What the wire formats of the providers share: requests, answers and errors."""

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
    """The reported usage of an answer."""

    input: int = 1000
    """All input tokens, including cached ones."""
    output: int = 50
    cached: int = 0
    reasoning: int = 0
    """Those of the output tokens that were thoughts."""


@dataclass(frozen=True)
class Offer:
    """A tool that the agent offers."""

    name: str
    schema: Json
    freeform: bool = False
    """Whether it takes text instead of an object."""


@dataclass(frozen=True)
class ToolCall:
    """A tool call of the model."""

    name: str
    arguments: Json | str
    """An object, or the text for a freeform tool."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:20])


@dataclass(frozen=True)
class Answer:
    """An answer of the model."""

    model: str
    text: str
    calls: Sequence[ToolCall] = ()
    tokens: Tokens = Tokens()
    thought: str = ""
    """What it thinks before it answers."""


@dataclass(frozen=True)
class Refusal:
    """An error of a provider, without its status."""

    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


class Wire(Protocol):
    """The wire format of a provider."""

    def offers(self, body: Json) -> list[Offer]:
        """The tools in a request."""
        ...

    def user_text(self, body: Json) -> str:
        """All user messages in a request."""
        ...

    def render(self, answer: Answer) -> Json:
        """An answer at once."""
        ...

    def events(self, answer: Answer) -> list[Event]:
        """An answer as a stream."""
        ...

    def refusal(self, status: int, message: str) -> Refusal:
        """An error."""
        ...

    def limit(self, resets_at: float, *, of_plan: bool) -> Refusal:
        """A limit (429) that ends at a time: of requests per minute, or of a plan."""
        ...

    def quota(self, used: float, resets_at: float) -> Mapping[str, str]:
        """The headers of an answer that say which share of a plan is used; none if the provider has no such headers."""
        ...

    def broken(self, message: str) -> Event:
        """The error event for an overload in the middle of a stream."""
        ...


def seconds_until(moment: float) -> int:
    """Rounded up, and at least 1."""
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
