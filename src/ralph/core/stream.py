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


_CONTROL = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def clean_text(text: str) -> str:
    """Text as every file and terminal can hold it: no half characters, nothing that commands a terminal."""
    return text.encode(errors="replace").decode().translate(_CONTROL)
