"""What the roles of a classic session hand back, and what must hold of the documents that go with it."""

from functools import partial

from pydantic import BaseModel

from ralph.documents.classic import tasks
from ralph.documents.session import plan
from ralph.documents.session.answers import (
    ExecutorAnswer,
    Faults,
    PlanningAnswer,
    ReviewerAnswer,
    SessionReviewAnswer,
    needs,
)

CONTRACTS: dict[str, type[BaseModel]] = {
    "classic.planner.INITIALIZE": PlanningAnswer,
    "classic.planner.TASK_BREAKDOWN": PlanningAnswer,
    "classic.planner.UPDATE": PlanningAnswer,
    "classic.questioner.brainstorm": PlanningAnswer,
    "classic.questioner.research": PlanningAnswer,
    "classic.executor": ExecutorAnswer,
    "classic.reviewer.TASK_REVIEW": ReviewerAnswer,
    "classic.reviewer.SESSION_REVIEW": SessionReviewAnswer,
}
"""The form of an answer, by role and mode."""


_needs = partial(needs, plan=plan.problems, tasks=tasks.problems)
FAULTS: dict[str, Faults] = {
    "classic.planner.INITIALIZE": _needs("plan.md"),
    "classic.planner.TASK_BREAKDOWN": _needs("tasks.md"),
    "classic.planner.UPDATE": _needs("plan.md", may=("tasks.md",)),
    "classic.questioner.brainstorm": _needs("plan.questions.md"),
    "classic.questioner.research": _needs("plan.questions.md"),
    "classic.reviewer.SESSION_REVIEW": _needs(may=("tasks.md",)),
}
"""What must hold of the documents, by role and mode."""
