"""What every agent adapter is: how its program is started, and how its output is read."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind, clean_text

_FAR = 4102444800.0
"""The year 2100: nobody's limit ends later, and no calendar has to show it."""


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
        text = clean_text(line.decode(errors="replace")).strip()
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
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return []


def _event(data: Mapping[str, Any]) -> AgentEvent:
    kind = Kind(data["type"] if isinstance(data.get("type"), str) else "")
    text = data.get("text") or data.get("message") or data.get("name") or ""
    if kind is Kind.USAGE:
        spoken, heard = (int(_amount(data.get(name)) or 0) for name in ("input_tokens", "output_tokens"))
        return AgentEvent(kind, usage=Usage(spoken, heard, _amount(data.get("cost"))))
    resets_at = _amount(data.get("resets_at"))
    known = resets_at is not None and resets_at < _FAR
    return AgentEvent(
        kind, clean_text(str(text)), resets_at=resets_at if known else None, is_error=bool(data.get("is_error"))
    )


def _amount(value: object) -> float | None:
    """A number that can be counted with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None
