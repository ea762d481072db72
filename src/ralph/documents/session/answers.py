"""What the roles of a session hand back, and what must hold of the documents that go with it."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ralph.core.errors import StateError
from ralph.core.text import count
from ralph.documents.answers import Answer, JudgedFile
from ralph.documents.session import task_list, tasks
from ralph.documents.session.markdown import close_open_marks, find_hidden_problems
from ralph.documents.session.plan import PlanQuestion, find_plan_problems, parse_questions
from ralph.documents.session.progress import CLASSIC, STANDARD, Marker, Style, parse_progress
from ralph.documents.session.tasks import find_order_faults

Documents = Mapping[str, str]
_TEXT = 4000


def _answer_config(**example: Any) -> ConfigDict:
    return ConfigDict(extra="ignore", strict=True, json_schema_extra={"examples": [example]})


class _Answer(Answer):
    model_config = _answer_config()

    summary: str = Field(default="", max_length=_TEXT, description="what you did or found, in a few sentences")
    blockers: list[str] = Field(default=[], description="what keeps you from doing it, if you are blocked or failed")


class PlanningAnswer(_Answer):
    """What a planner or a questioner hands back."""

    model_config = _answer_config(status="completed", summary="the plan has four goals")

    status: Literal["completed", "blocked", "paused"] = Field(description="whether you did what your MODE says")
    critical_findings: list[str] = Field(default=[], description="important facts that the plan does not consider yet")


class QuestionerAnswer(PlanningAnswer):
    """What a questioner hands back."""

    model_config = _answer_config(
        status="completed", no_questions=False, summary="six questions; two could change the plan"
    )

    no_questions: bool = Field(
        default=False, description="true if there is nothing to ask; then you hand over no file of questions"
    )


class ExecutorAnswer(_Answer):
    """What an executor hands back. It informs; the engine's own checks and the review decide."""

    model_config = _answer_config(
        status="completed", success_criteria_met=True, files_modified=["src/cli.py"], summary="added --verbose"
    )

    status: Literal["completed", "failed", "blocked", "paused"] = Field(description="whether you completed the task")
    success_criteria_met: bool = Field(default=False, description="whether every success criterion holds")
    files_modified: list[str] = Field(default=[], description="the files that you changed, added or deleted")
    feedback_addressed: list[str] = Field(default=[], description="the ids of the feedback issues that you fixed")
    discovered_tasks: list[str] = Field(default=[], description="what else should be done, one line per task")


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

    model_config = _answer_config(status="completed", verdict="Failed", feedback="`--verbose` is not in --help")
    verdict_in = "verdict"

    verdict: Literal["Qualified", "Failed", ""] = Field(
        default="", description="Qualified only if every success criterion holds"
    )
    feedback: str = Field(default="", max_length=_TEXT, description="what exactly must change, if it failed")


class SessionReviewAnswer(_Judgement):
    """What the reviewer of the session hands back."""

    model_config = _answer_config(
        status="completed", assessment="Gaps Identified", goals_achieved="3/4", gaps=["no help text"]
    )
    verdict_in = "assessment"

    assessment: Literal["Complete", "Gaps Identified", ""] = Field(
        default="", description="Complete only if every goal is reached"
    )
    goals_achieved: str = Field(default="", max_length=200, description="how many of the goals are reached, as X/Y")
    gaps: list[str] = Field(default=[], description="each gap, and what would close it")
    files: list[JudgedFile] = Field(
        default=[], description="what you make of every file in `judge-files.md`, if it exists"
    )


PLANNER = ("INITIALIZE", "TASK_BREAKDOWN", "UPDATE", "REBREAKDOWN", "REBREAKDOWN_TASK", "CRITIQUE_BREAKDOWN")
QUESTIONER = ("brainstorm", "research", "feedback-analysis")
ANSWERS: dict[str, type[BaseModel]] = {
    **{f"session.planner.{mode}": PlanningAnswer for mode in PLANNER},
    **{f"session.questioner.{mode}": QuestionerAnswer for mode in QUESTIONER},
    "session.librarian.EXTRACT": PlanningAnswer,
    "session.librarian.PROMOTE": PlanningAnswer,
    "session.executor": ExecutorAnswer,
    "session.reviewer": ReviewerAnswer,
    "session.review": SessionReviewAnswer,
    **{f"classic.planner.{mode}": PlanningAnswer for mode in ("INITIALIZE", "TASK_BREAKDOWN", "UPDATE")},
    **{f"classic.questioner.{mode}": QuestionerAnswer for mode in ("brainstorm", "research")},
    "classic.executor": ExecutorAnswer,
    "classic.reviewer.TASK_REVIEW": ReviewerAnswer,
    "classic.reviewer.SESSION_REVIEW": SessionReviewAnswer,
}
"""The model of each answer, by the name of its schema."""


Faults = Callable[[Mapping[str, Any], Documents, Documents], tuple[str, ...]]
"""Finds what is wrong with an answer and its documents, given the files of the inbox."""


def require_documents(*names: str, may: tuple[str, ...] = (), **problems: Callable[[str], list[str]]) -> Faults:
    """Require these documents. They, and the optional ones in `may`, must have no problems.

    `problems` finds what is wrong with a document, by its name without the ending.
    """

    def look(answer: Mapping[str, Any], documents: Documents, inbox: Documents) -> tuple[str, ...]:
        if answer["status"] != "completed":
            return ()
        given = [name for name in (*names, *may) if documents.get(name, "").strip()]
        missing = [f"{name} is not in the outbox" for name in names if name not in given]
        known = [(name, problems[stem]) for name in given if (stem := name.removesuffix(".md")) in problems]
        return (*missing, *(f"{name}: {problem}" for name, of in known for problem in of(documents[name])))

    return look


def _task_faults(least: int) -> Faults:
    def look(answer: Mapping[str, Any], documents: Documents, inbox: Documents) -> tuple[str, ...]:
        if answer["status"] != "completed":
            return ()
        if len(documents) < least:
            verb = "is" if least == 1 else "are"
            return (f"tasks/ has {count(len(documents), 'file')}; at least {least} {verb} needed",)
        found: list[str] = []
        closed: dict[str, str] = {}
        for name, text in documents.items():
            found += [f"{name}: {problem}" for problem in _find_task_problems(text)]
            closed[name] = close_open_marks(text)[0]
        return (*found, *_find_order_faults(closed, inbox))

    return look


def _find_task_problems(text: str) -> list[str]:
    return find_hidden_problems(text, tasks.find_task_problems)


def _find_plan_problems(text: str) -> list[str]:
    return find_hidden_problems(text, find_plan_problems)


def _find_order_faults(documents: Documents, inbox: Documents) -> tuple[str, ...]:
    """What is wrong with the dependencies of the tasks that are handed over, beside those that are there already."""
    wrong: list[str] = []
    every: dict[str, tasks.Task] = {}
    new: set[str] = set()
    for name, text in inbox.items():
        if name.startswith("tasks/") and (task := _parse_task(text, name)):
            every[task.id] = task
    for name, text in documents.items():
        if task := _parse_task(text, name):
            every[task.id] = task
            new.add(task.id)
            if name != f"tasks/{task.id}.md":
                wrong.append(f"{name}: its id is {task.id}")
    needs: dict[str, list[str]] = {}
    for id, task in every.items():
        # A task that depends on itself is named before. Missing dependencies of older tasks are not a fault of this turn.
        others = [other for other in task.depends_on if other != id]
        needs[id] = [other for other in others if id in new or other in every]
    return (*wrong, *find_order_faults({**dict.fromkeys(_list_done_tasks(inbox, STANDARD), ()), **needs}))


def _list_done_tasks(inbox: Documents, style: Style) -> list[str]:
    """The tasks that are done. Others may depend on them, even if their definitions were lost."""
    items = parse_progress(inbox.get("progress.md", ""), style).items.values()
    return [item.id for item in items if item.marker is Marker.DONE and not item.is_planning]


def _parse_task(text: str, name: str) -> tasks.Task | None:
    """The task in a file; None if it cannot be read, which `find_task_problems` reports."""
    try:
        return tasks.parse_task(text, name)
    except StateError:
        return None


def _list_faults(*names: str, may: bool = False) -> Faults:
    """`tasks.md` must be there, unless it may be left out, and its tasks must fit each other and those of the inbox."""

    def look(answer: Mapping[str, Any], documents: Documents, inbox: Documents) -> tuple[str, ...]:
        known = {*task_list.parse_task_list(inbox.get("tasks.md", "")), *_list_done_tasks(inbox, CLASSIC)}
        required = names if may else (*names, "tasks.md")
        check = require_documents(
            *required,
            may=("tasks.md",) if may else (),
            plan=_find_plan_problems,
            tasks=partial(find_hidden_problems, find=partial(task_list.find_task_list_problems, known=known)),
        )
        return check(answer, documents, inbox)

    return look


def _question_faults(answer: Mapping[str, Any], documents: Documents, inbox: Documents) -> tuple[str, ...]:
    """Questions, or the word that there are none."""
    if answer["status"] != "completed" or documents or answer.get("no_questions"):
        return ()
    return ("no file of questions is in the outbox; if nothing is worth asking, answer `no_questions: true`",)


def _research_faults(answer: Mapping[str, Any], documents: Documents, inbox: Documents) -> tuple[str, ...]:
    """Every question that was open has an answer, or says what it would take to find one."""
    if answer["status"] != "completed":
        return ()
    after: dict[str, PlanQuestion] = {}
    for text in documents.values():
        after |= parse_questions(text).questions
    found = []
    for name, text in inbox.items():
        asked = parse_questions(text).unanswered if "questions" in name else []
        if left := [id for id in asked if id not in after or after[id].status == "Unanswered"]:
            found.append(f"{name}: there is no answer to {', '.join(left)}")
    return tuple(found)


def _review_faults(answer: Mapping[str, Any], documents: Documents, inbox: Documents) -> tuple[str, ...]:
    """A reviewer that fails an attempt must say what has to be different."""
    says_why = answer.get("feedback", "").strip() or documents.get("review.md", "").strip()
    if answer["status"] != "completed" or answer.get("verdict") != "Failed" or says_why:
        return ()
    return ("result.json: `feedback`: the verdict is Failed, so say what exactly has to be different",)


JUDGE_FILES = "judge-files.md"
"""The file of the inbox that lists the changed tests and settings that a reviewer of the session has to judge."""
_LISTED_FILE = re.compile(r"^- `(.+)`$", re.MULTILINE)


def render_judge_files(paths: Sequence[str]) -> str:
    """The file that asks a reviewer to judge changed tests and settings."""
    return "\n".join((_HOW_TO_JUDGE, *(f"- `{path}`" for path in paths), ""))


_HOW_TO_JUDGE = """# Tests and settings to judge
The session changed the files below. They decide what passes. For each file, find out whether the request needs the change, and
say so in `files` of `result.json`: {"path": "...", "accept": true or false, "why": "..."}.

Accept a change that the request asks for, or that follows from it. Accept a new test if it would fail on a wrong implementation.
Reject a change that only makes a check pass: a removed or skipped test, a weaker assertion, an expected value copied from wrong
output, a checker that is switched off or looks at fewer files. If you are not sure, reject it, and say what is missing.
A rejected change is a gap. Of a source file or a manifest, judge only the tests and settings in it.
"""


def _judgment_faults(answer: Mapping[str, Any], documents: Documents, inbox: Documents) -> tuple[str, ...]:
    """A reviewer of the session must judge every file that it is asked to judge."""
    if answer["status"] != "completed":
        return ()
    judged = {one["path"].removeprefix("./") for one in answer.get("files", ())}
    missing = [path for path in _LISTED_FILE.findall(inbox.get(JUDGE_FILES, "")) if path not in judged]
    if not missing:
        return ()
    return (f"result.json: `files`: say whether you accept {', '.join(missing)}, as {JUDGE_FILES} asks",)


def _classic_session_review_faults(
    answer: Mapping[str, Any], documents: Documents, inbox: Documents
) -> tuple[str, ...]:
    return (*_judgment_faults(answer, documents, inbox), *_list_faults(may=True)(answer, documents, inbox))


FAULTS: dict[str, Faults] = {
    "session.planner.INITIALIZE": require_documents("plan.md", plan=_find_plan_problems),
    "session.planner.UPDATE": require_documents("plan.md", plan=_find_plan_problems),
    "session.planner.TASK_BREAKDOWN": _task_faults(1),
    "session.planner.REBREAKDOWN": _task_faults(0),
    "session.planner.CRITIQUE_BREAKDOWN": _task_faults(0),
    "session.planner.REBREAKDOWN_TASK": _task_faults(2),
    "session.questioner.brainstorm": _question_faults,
    "session.questioner.feedback-analysis": _question_faults,
    "session.questioner.research": _research_faults,
    "session.reviewer": _review_faults,
    "classic.planner.INITIALIZE": require_documents("plan.md", plan=_find_plan_problems),
    "classic.planner.TASK_BREAKDOWN": _list_faults(),
    "classic.planner.UPDATE": _list_faults("plan.md", may=True),
    "classic.questioner.brainstorm": _question_faults,
    "classic.questioner.research": _research_faults,
    "classic.reviewer.TASK_REVIEW": _review_faults,
    "session.review": _judgment_faults,
    "classic.reviewer.SESSION_REVIEW": _classic_session_review_faults,
}
"""What must hold of the documents, by role and mode."""
