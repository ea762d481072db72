"""Signals: messages from a person to a run that is under way."""

from dataclasses import dataclass
from enum import StrEnum


class SignalType(StrEnum):
    """What a signal asks for."""

    PAUSE = "PAUSE"
    """Finish the turn under way, start no other, and end with `paused`."""
    RESUME = "RESUME"
    """Take a pause back."""
    ABORT = "ABORT"
    """End the turn under way and the run; files are left as they are."""
    APPROVE = "APPROVE"
    """Keep what was learned."""
    SKIP = "SKIP"
    """Do not keep it."""

    @classmethod
    def named(cls, word: str) -> "SignalType":
        """The type by its name in any case; STOP is an old name of ABORT."""
        upper = word.strip().upper()
        return cls.ABORT if upper == "STOP" else cls(upper)


@dataclass(frozen=True)
class Signal:
    """One signal, as it was found in the mailbox."""

    name: str
    """The name of its file."""
    type: SignalType
    message: str = ""
    stamp: str = ""
    """What tells this file from a later one of the same name."""
