"""The keys of the work of a session: values with fields, and the strings by which the journal knows them."""

import re
from dataclasses import dataclass
from enum import StrEnum


class SessionWork(StrEnum):
    """What a turn, a check or a promotion is for."""

    BASELINE = "baseline"
    PLAN = "plan"
    EXECUTE = "execute"
    CHECK = "check"
    REVIEW = "review"
    SPLIT = "split"
    REPLAN = "replan"
    """A planner changes a task, because the user asked for something else."""
    SESSION_CHECK = "session-check"
    SESSION_REVIEW = "session-review"
    CRITIQUE = "critique"
    EXTRACT = "extract"
    SELECT = "select"
    """A librarian selects what to keep, by the message with which the user approved. The key in the journal is `curate:N`, and
    the mode of the turn is PROMOTE."""
    PROMOTE = "promote"
    """The engine merges what was selected, without a turn."""


OF_TASK = (SessionWork.EXECUTE, SessionWork.CHECK, SessionWork.REVIEW, SessionWork.SPLIT, SessionWork.REPLAN)
"""The kinds of work on one task."""
_PLAN = re.compile(
    r"plan:(?P<step>[^@.]+)(?:@(?P<iteration>\d+)(?:\.(?P<cycle>\d+)\.(?P<category>.*))?|\.(?P<flat>\d+))?"
)
_OF_TASK = re.compile(r"(?P<kind>execute|check|review|split|replan):(?P<task>.+)-(?P<attempt>\d+)")
_NUMBERED = {
    SessionWork.SESSION_REVIEW: re.compile(r"review:session-(\d+)(?:\.(\d+))?"),
    SessionWork.SESSION_CHECK: re.compile(r"session-(\d+)(?:\.(\d+))?"),
    SessionWork.CRITIQUE: re.compile(r"critique:(\d+)(?:\.(\d+))?"),
    SessionWork.EXTRACT: re.compile(r"extract:(\d+)()"),
    SessionWork.SELECT: re.compile(r"curate:(\d+)()"),
    SessionWork.PROMOTE: re.compile(r"promote-(\d+)()"),
}
_HEADS = {
    SessionWork.SESSION_REVIEW: "review:session-",
    SessionWork.SESSION_CHECK: "session-",
    SessionWork.CRITIQUE: "critique:",
    SessionWork.EXTRACT: "extract:",
    SessionWork.SELECT: "curate:",
    SessionWork.PROMOTE: "promote-",
}


@dataclass(frozen=True)
class SessionKey:
    """One piece of work of a session."""

    kind: SessionWork
    task: str = ""
    attempt: int = 0
    step: str = ""
    """The step of planning."""
    iteration: int = 0
    """The iteration; in the classic layout, the number of the review."""
    cycle: int | None = None
    """The cycle of questions, or of critique."""
    category: str = ""
    """The category of questions."""

    def __str__(self) -> str:
        """The key as the journal has it."""
        if self.kind is SessionWork.BASELINE:
            return "baseline"
        if self.kind in OF_TASK:
            return f"{self.kind}:{self.task}-{self.attempt}"
        if self.kind is not SessionWork.PLAN:
            return f"{_HEADS[self.kind]}{self.iteration}" + ("" if self.cycle is None else f".{self.cycle}")
        if not self.iteration:
            return f"plan:{self.step}" + ("" if self.cycle is None else f".{self.cycle}")
        return f"plan:{self.step}@{self.iteration}" + ("" if self.cycle is None else f".{self.cycle}.{self.category}")

    @classmethod
    def parse(cls, text: str) -> "SessionKey | None":
        """The key in a text; None if it is not a key of a session."""
        if text == "baseline":
            return cls(SessionWork.BASELINE)
        for kind, pattern in _NUMBERED.items():
            if match := pattern.fullmatch(text):
                return cls(kind, iteration=int(match[1]), cycle=int(match[2]) if match[2] else None)
        if match := _OF_TASK.fullmatch(text):
            return cls(SessionWork(match["kind"]), task=match["task"], attempt=int(match["attempt"]))
        if match := _PLAN.fullmatch(text):
            cycle = match["cycle"] or match["flat"]
            return cls(
                SessionWork.PLAN,
                step=match["step"],
                iteration=int(match["iteration"] or 0),
                cycle=int(cycle) if cycle else None,
                category=match["category"] or "",
            )
        return None
