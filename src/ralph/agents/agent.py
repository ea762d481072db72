"""What every agent adapter is: how its program is started, and how its output is read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind


class Reader(Protocol):
    """Reads one agent's output, line by line."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """What a line tells."""
        ...


@dataclass(frozen=True)
class Agent:
    """An agent program."""

    name: str
    command: Sequence[str]
    reader: Reader
    announces_end: bool
    """Whether it says in its stream that it has finished: exit 0 alone is then no success."""


class PlainText:
    """The output of a program that speaks to people: every line is text."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The line as text."""
        text = line.decode(errors="replace").strip()
        return [AgentEvent(Kind.TEXT, text)] if text else []


class EventLines:
    """The scripted agent's output: one event a line, in Ralph's own form. What is no event is passed over."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The event in a line."""
        if not line.startswith(b"{"):
            return []
        try:
            data = json.loads(line)
            return [_event(data)]
        except (ValueError, TypeError, AttributeError, RecursionError):
            return []


def _event(data: Mapping[str, Any]) -> AgentEvent:
    kind = Kind(data["type"] if isinstance(data.get("type"), str) else "")
    text = data.get("text") or data.get("message") or data.get("name") or ""
    if kind is Kind.USAGE:
        cost = data.get("cost")
        usage = Usage(
            max(0, int(data.get("input_tokens") or 0)),
            max(0, int(data.get("output_tokens") or 0)),
            None if cost is None else max(0.0, float(cost)),
        )
        return AgentEvent(kind, usage=usage)
    resets_at = data.get("resets_at")
    return AgentEvent(
        kind,
        str(text),
        resets_at=float(resets_at) if isinstance(resets_at, int | float) else None,
        is_error=bool(data.get("is_error")),
    )
