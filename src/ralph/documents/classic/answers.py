"""What the roles of a classic session hand back, and what must hold of the documents that go with it."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from ralph.documents.classic import tasks
from ralph.documents.session import plan
from ralph.documents.session.answers import ExecutorAnswer, PlanningAnswer, ReviewerAnswer, SessionReviewAnswer

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


def _needs(*names: str, may: tuple[str, ...] = ()) -> Callable[[Mapping[str, Any], Mapping[str, str]], tuple[str, ...]]:
    """These documents must be there, and they and those that may be must be such as can be worked with."""

    def look(answer: Mapping[str, Any], papers: Mapping[str, str]) -> tuple[str, ...]:
        if answer["status"] != "completed":
            return ()
        missing = [f"{name} is not in the outbox" for name in names if not papers.get(name, "").strip()]
        given = {name: papers[name] for name in (*names, *may) if papers.get(name, "").strip()}
        wrong = [
            f"{name}: {problem}"
            for name, problems in _PROBLEMS.items()
            if name in given
            for problem in problems(given[name])
        ]
        return (*missing, *wrong)

    return look


_PROBLEMS: dict[str, Callable[[str], list[str]]] = {"plan.md": plan.problems, "tasks.md": tasks.problems}
FAULTS: dict[str, Callable[[Mapping[str, Any], Mapping[str, str]], tuple[str, ...]]] = {
    "classic.planner.INITIALIZE": _needs("plan.md"),
    "classic.planner.TASK_BREAKDOWN": _needs("tasks.md"),
    "classic.planner.UPDATE": _needs("plan.md", may=("tasks.md",)),
    "classic.questioner.brainstorm": _needs("plan.questions.md"),
    "classic.questioner.research": _needs("plan.questions.md"),
    "classic.reviewer.SESSION_REVIEW": _needs(may=("tasks.md",)),
}
"""What must hold of the documents, by role and mode."""
