"""Every error that the user may see.

RalphError                 what happened, where, and what to do next; carries an outcome, and so an exit code
├── UsageError             the command, its options or the configuration are wrong (exit 2)
│   └── NoCommandError     a check is named by a common phrase, and the repository shows no command for it
├── StateError             a file that Ralph keeps is corrupt, hostile, too large or from another version (exit 2)
├── SnapshotsLostError     what a run has to be compared with was removed (exit 5)
├── LockedError            another engine holds the run or the work tree (exit 10)
├── StorageError           the disk is full or read-only: the run pauses (exit 7)
└── AgentUnavailableError  the agent program cannot be started (exit 6)
"""

from ralph.core.outcomes import Outcome


class RalphError(Exception):
    """An error written for the user: what happened, where, and what to do next."""

    outcome = Outcome.INTERNAL_ERROR

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.todo = todo

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends with this error."""
        return self.outcome.exit_code

    def __str__(self) -> str:
        where = f"\n  where: {self.where}" if self.where else ""
        todo = f"\n  next:  {self.todo}" if self.todo else ""
        return f"{self.what}{where}{todo}"


class UsageError(RalphError):
    """The command, its options or the configuration are wrong."""

    outcome = Outcome.USAGE


class NoCommandError(UsageError):
    """A check is named by a common phrase, and the repository shows no command for it."""


class StateError(RalphError):
    """A file that Ralph keeps cannot be used as it is."""

    outcome = Outcome.USAGE

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        super().__init__(what, where=where, todo=todo or GIVE_UP_FILE)


GIVE_UP_FILE = "restore the file from a backup, or remove the run with `ralph clean RUN`"


class SnapshotsLostError(RalphError):
    """What a run has to be compared with was removed, so no verdict about it can hold."""

    outcome = Outcome.UNVERIFIABLE


class LockedError(RalphError):
    """Another engine holds the run or the work tree."""

    outcome = Outcome.LOCKED


class StorageError(RalphError):
    """The disk is full or read-only; nothing was half-written."""

    outcome = Outcome.PAUSED


class AgentUnavailableError(RalphError):
    """The agent program cannot be started."""

    outcome = Outcome.AGENT_UNAVAILABLE
