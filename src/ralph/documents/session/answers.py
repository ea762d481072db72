"""What the roles of a session hand back, and what must hold of the documents that go with it."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ralph.core.errors import RalphError
from ralph.core.graphs import waves
from ralph.documents.session import plan, task_list, tasks
from ralph.documents.steering import Answer

Papers = Mapping[str, str]
_TEXT = 4000


def _form(**example: Any) -> ConfigDict:
    return ConfigDict(extra="ignore", strict=True, json_schema_extra={"examples": [example]})


class _Answer(Answer):
    model_config = _form()

    summary: str = Field(default="", max_length=_TEXT, description="what you did or found, in a few sentences")
    blockers: list[str] = Field(default=[], description="what keeps you from it, where you are blocked or failed")


class PlanningAnswer(_Answer):
    """What a planner or a questioner hands back."""

    model_config = _form(status="completed", summary="the plan has four goals")

    status: Literal["completed", "blocked", "paused"] = Field(description="whether you did what your MODE says")
    critical_findings: list[str] = Field(default=[], description="what the plan does not know yet and should")


class ExecutorAnswer(_Answer):
    """What an executor hands back. It informs; the engine's own checks and the review decide."""

    model_config = _form(
        status="completed", success_criteria_met=True, files_modified=["src/cli.py"], summary="added --verbose"
    )

    status: Literal["completed", "failed", "blocked", "paused"] = Field(description="what came of the task")
    success_criteria_met: bool = Field(default=False, description="whether every success criterion holds")
    files_modified: list[str] = Field(default=[], description="the files that you changed")
    feedback_addressed: list[str] = Field(default=[], description="the ids of issues in the feedback that this settles")
    discovered_tasks: list[str] = Field(default=[], description="what else should be done, in a line each")


class _Judgement(_Answer):
    status: Literal["completed", "blocked", "paused"] = Field(
        default="completed", description="whether you could judge it"
    )
    verdict_in: ClassVar[str]

    @model_validator(mode="after")
    def _is_judged(self) -> "_Judgement":
        if self.status == "completed" and not getattr(self, self.verdict_in):
            raise ValueError(f"`{self.verdict_in}` is missing")
        return self


class ReviewerAnswer(_Judgement):
    """What the reviewer of a task hands back."""

    model_config = _form(status="completed", verdict="Failed", feedback="`--verbose` is not in --help")
    verdict_in = "verdict"

    verdict: Literal["Qualified", "Failed", ""] = Field(
        default="", description="Qualified only where every success criterion holds"
    )
    feedback: str = Field(default="", max_length=_TEXT, description="what exactly has to be different, where it failed")


class SessionReviewAnswer(_Judgement):
    """What the reviewer of the whole hands back."""

    model_config = _form(status="completed", assessment="Gaps Identified", goals_achieved="3/4", gaps=["no help text"])
    verdict_in = "assessment"

    assessment: Literal["Complete", "Gaps Identified", ""] = Field(
        default="", description="Complete only where every goal is reached"
    )
    goals_achieved: str = Field(default="", max_length=200, description="how many of how many, as X/Y")
    gaps: list[str] = Field(default=[], description="each gap, and what it would take")


PLANNER = ("INITIALIZE", "TASK_BREAKDOWN", "UPDATE", "REBREAKDOWN", "REBREAKDOWN_TASK", "CRITIQUE_BREAKDOWN")
QUESTIONER = ("brainstorm", "research", "feedback-analysis")
CONTRACTS: dict[str, type[BaseModel]] = {
    **{f"session.planner.{mode}": PlanningAnswer for mode in PLANNER},
    **{f"session.questioner.{mode}": PlanningAnswer for mode in QUESTIONER},
    "session.librarian.EXTRACT": PlanningAnswer,
    "session.executor": ExecutorAnswer,
    "session.reviewer": ReviewerAnswer,
    "session.review": SessionReviewAnswer,
    **{f"classic.planner.{mode}": PlanningAnswer for mode in ("INITIALIZE", "TASK_BREAKDOWN", "UPDATE")},
    **{f"classic.questioner.{mode}": PlanningAnswer for mode in ("brainstorm", "research")},
    "classic.executor": ExecutorAnswer,
    "classic.reviewer.TASK_REVIEW": ReviewerAnswer,
    "classic.reviewer.SESSION_REVIEW": SessionReviewAnswer,
}
"""The form of an answer, by role and mode."""


Faults = Callable[[Mapping[str, Any], Papers, Papers], tuple[str, ...]]
"""What is wrong with an answer and its papers, by what lay in the inbox."""


def needs(*names: str, may: tuple[str, ...] = (), **problems: Callable[[str], list[str]]) -> Faults:
    """These documents must be there, and they and those that may be must be such as can be worked with.

    `problems` tells what is wrong with a document, by its name without the ending.
    """

    def look(answer: Mapping[str, Any], papers: Papers, inbox: Papers) -> tuple[str, ...]:
        if answer["status"] != "completed":
            return ()
        given = [name for name in (*names, *may) if papers.get(name, "").strip()]
        missing = [f"{name} is not in the outbox" for name in names if name not in given]
        known = [(name, problems[stem]) for name in given if (stem := name.removesuffix(".md")) in problems]
        return (*missing, *(f"{name}: {problem}" for name, of in known for problem in of(papers[name])))

    return look


def _task_faults(least: int) -> Faults:
    def look(answer: Mapping[str, Any], papers: Papers, inbox: Papers) -> tuple[str, ...]:
        if answer["status"] != "completed":
            return ()
        if len(papers) < least:
            return (f"there are {len(papers)} files in tasks/, and at least {least} are needed",)
        found = [f"{name}: {problem}" for name, text in papers.items() for problem in tasks.problems(text)]
        return tuple(found) or _order(papers, inbox)

    return look


def _order(papers: Papers, inbox: Papers) -> tuple[str, ...]:
    """What is wrong with the dependencies of the tasks that are handed over, beside those that are there already."""
    named = {name: tasks.parse(text, name) for name, text in papers.items()}
    wrong = [f"{name}: its id is {one.id}" for name, one in named.items() if name != f"tasks/{one.id}.md"]
    before = [tasks.parse(text, name) for name, text in inbox.items() if name.startswith("tasks/")]
    new, every = {one.id for one in named.values()}, {one.id: one for one in (*before, *named.values())}
    try:
        # For what an older task lacks, nobody who hands over others is to blame.
        waves({id: [o for o in one.depends_on if id in new or o in every] for id, one in every.items()})
    except RalphError as error:
        wrong.append(error.what)
    return tuple(wrong)


def _question_faults(answer: Mapping[str, Any], papers: Papers, inbox: Papers) -> tuple[str, ...]:
    if answer["status"] != "completed" or papers:
        return ()
    return ("there is no file in questions/ in the outbox",)


FAULTS: dict[str, Faults] = {
    "session.planner.INITIALIZE": needs("plan.md", plan=plan.problems),
    "session.planner.UPDATE": needs("plan.md", plan=plan.problems),
    "session.planner.TASK_BREAKDOWN": _task_faults(1),
    "session.planner.REBREAKDOWN": _task_faults(0),
    "session.planner.CRITIQUE_BREAKDOWN": _task_faults(0),
    "session.planner.REBREAKDOWN_TASK": _task_faults(2),
    **{f"session.questioner.{mode}": _question_faults for mode in QUESTIONER},
    "classic.planner.INITIALIZE": needs("plan.md", plan=plan.problems),
    "classic.planner.TASK_BREAKDOWN": needs("tasks.md", tasks=task_list.problems),
    "classic.planner.UPDATE": needs("plan.md", may=("tasks.md",), plan=plan.problems, tasks=task_list.problems),
    "classic.questioner.brainstorm": needs("plan.questions.md"),
    "classic.questioner.research": needs("plan.questions.md"),
    "classic.reviewer.SESSION_REVIEW": needs(may=("tasks.md",), tasks=task_list.problems),
}
"""What must hold of the documents, by role and mode."""
