"""What an agent tells while it works, in one form whatever the agent."""

from dataclasses import dataclass, field
from enum import StrEnum

from ralph.core.limits import Usage


class Kind(StrEnum):
    """The kinds of thing an agent tells."""

    TEXT = "text"
    TOOL = "tool"
    USAGE = "usage"
    LIMIT = "limit"
    ERROR = "error"
    RESULT = "result"


@dataclass(frozen=True)
class AgentEvent:
    """One thing an agent told."""

    kind: Kind
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    resets_at: float | None = None
    is_error: bool = False
