"""Questions that a turn asks the person who watches."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One question, with its answer where there is one."""

    id: str
    question: str
    options: tuple[str, ...] = ()
    default: str = ""
    """What counts where nobody answers in time."""
    asked_at: float = 0.0
    timeout: float = 0.0
    """Seconds for which it waits."""
    turn: str = ""
    role: str = ""
    answer: str | None = None
    by: str = ""
    """Who answered: `person`, or `default` where nobody did."""

    def waits(self, now: float) -> bool:
        """Whether somebody still waits for the answer."""
        return self.answer is None and now < self.asked_at + self.timeout
