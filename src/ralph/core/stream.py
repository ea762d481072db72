"""What an agent tells while it works, in one form whatever the agent."""

from dataclasses import dataclass, field
from enum import StrEnum

from ralph.core.limits import Usage


class Kind(StrEnum):
    """The kinds of thing an agent tells."""

    TEXT = "text"
    THINKING = "thinking"
    """What it thinks before it answers, as far as it tells."""
    TOOL = "tool"
    """It uses a tool; its list of things to do is one as well."""
    TOOL_RESULT = "tool-result"
    USAGE = "usage"
    """Tokens and money since the last time it told."""
    SESSION = "session"
    """The conversation that it is in, by which it can be continued."""
    LIMIT = "limit"
    """It ran into a rate or usage limit of its provider."""
    RETRY = "retry"
    """It tries something again by itself."""
    DENIED = "denied"
    """It was not allowed to do something."""
    HEARD = "heard"
    """It has taken in words of a person while it worked: `text` names them, `tool` says by which means."""
    WARNING = "warning"
    """Something that the user should know: it stopped itself, or its program warns of its settings."""
    ERROR = "error"
    RESULT = "result"
    """It has ended its turn; `is_error` says how."""


class Failure(StrEnum):
    """Why an agent failed: what follows depends on it."""

    LIMIT = "limit"
    """A rate or usage limit: wait for its end, or take another agent."""
    OVERLOAD = "overload"
    """The provider is overloaded, or the network is: try again later."""
    ACCESS = "access"
    """Not signed in, no key, or a wrong setting: only a person can help."""
    AGENT = "agent"
    """Anything else."""


@dataclass(frozen=True)
class AgentEvent:
    """One thing an agent told."""

    kind: Kind
    text: str = ""
    """What it says; of a tool its name and what it is given, of a denial the command that was denied."""
    usage: Usage = field(default_factory=Usage)
    resets_at: float | None = None
    is_error: bool = False
    session: str = ""
    failure: Failure | None = None
    tool: str = ""
    """By which means words were taken in: `hook`, `live` or `tool`."""
    is_sub_agent: bool = False
    """Whether an agent tells it that this one started."""


_CONTROL = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def clean_text(text: str) -> str:
    """Text as every file and terminal can hold it: no half characters, nothing that commands a terminal."""
    return text.encode(errors="replace").decode().translate(_CONTROL)
