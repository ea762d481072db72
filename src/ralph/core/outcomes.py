"""Why a run ended: one enum, one exit code each."""

from enum import StrEnum


class Outcome(StrEnum):
    """Why a run, or a command, ended."""

    SUCCESS = "success"
    """The engine ran the checks and they passed."""
    NOTHING_TO_DO = "nothing-to-do"
    """The checks passed before any turn was started."""
    INTERNAL_ERROR = "internal-error"
    USAGE = "usage"
    LIMIT_ITERATIONS = "limit-iterations"
    LIMIT_TIME = "limit-time"
    LIMIT_DEADLINE = "limit-deadline"
    LIMIT_COST = "limit-cost"
    LIMIT_TOKENS = "limit-tokens"
    LIMIT_QUOTA = "limit-quota"
    """Every agent that could continue has used the share of its subscription that the run may use."""
    COST_UNKNOWN = "cost-unknown"
    """A limit on cost was set, and an agent used tokens whose price is not known (`--allow-unpriced`)."""
    STUCK = "stuck"
    """The same failure again and again, also after another approach was asked for."""
    AWAITING_GUIDANCE = "awaiting-guidance"
    """The loop waits for the user: it is stuck, or the user asked for another task."""
    AWAITING_FEEDBACK = "awaiting-feedback"
    """A session cannot continue until the user says how."""
    AWAITING_APPROVAL = "awaiting-approval"
    """A session waits for the user to approve or reject what it learned."""
    BLOCKED = "blocked"
    """A session cannot continue as it is planned."""
    UNPROVEN = "unproven"
    """All checks pass, and the clean room or the judge could not confirm it. The user decides."""
    UNVERIFIABLE = "unverifiable"
    """A check could not be run, so nothing can be said about the work."""
    AGENT_UNAVAILABLE = "agent-unavailable"
    PAUSED = "paused"
    ABORTED = "aborted"
    FAILED = "failed"
    """The agent failed again and again; the work is not done."""
    LOCKED = "locked"
    INTERRUPTED = "interrupted"
    """The engine received SIGTERM or SIGHUP; the run can be resumed."""

    @property
    def exit_code(self) -> int:
        """What the process says to its caller."""
        return EXIT_CODES[self]

    @property
    def succeeded(self) -> bool:
        """Whether the work is verified done."""
        return self.exit_code == 0

    @property
    def resumable(self) -> bool:
        """Whether `ralph resume` may continue from here."""
        return not self.succeeded and self is not Outcome.ABORTED

    @property
    def needs_turn(self) -> bool:
        """Whether a run that ended so continues only with another turn."""
        return self in (Outcome.STUCK, Outcome.AWAITING_GUIDANCE)


EXIT_CODES = {
    Outcome.SUCCESS: 0,
    Outcome.NOTHING_TO_DO: 0,
    Outcome.INTERNAL_ERROR: 1,
    Outcome.USAGE: 2,
    Outcome.LIMIT_ITERATIONS: 3,
    Outcome.LIMIT_TIME: 3,
    Outcome.LIMIT_DEADLINE: 3,
    Outcome.LIMIT_COST: 3,
    Outcome.LIMIT_TOKENS: 3,
    Outcome.LIMIT_QUOTA: 3,
    Outcome.COST_UNKNOWN: 3,
    Outcome.STUCK: 4,
    Outcome.UNVERIFIABLE: 5,
    Outcome.AGENT_UNAVAILABLE: 6,
    Outcome.AWAITING_GUIDANCE: 7,
    Outcome.AWAITING_FEEDBACK: 7,
    Outcome.AWAITING_APPROVAL: 7,
    Outcome.UNPROVEN: 7,
    Outcome.BLOCKED: 9,
    Outcome.PAUSED: 7,
    Outcome.ABORTED: 8,
    Outcome.FAILED: 9,
    Outcome.LOCKED: 10,
    Outcome.INTERRUPTED: 143,
}
"""The one table of exit codes. Ctrl-C in a command that is not a run exits with 130, as shells expect."""
