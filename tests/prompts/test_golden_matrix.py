"""No situation is without a golden file: the list of what has to be there comes from the code."""

from collections.abc import Iterator

import hats_cases
from golden import GOLDEN

from ralph.documents.session.answers import ANSWERS
from ralph.store.presets import list_shipped

MODES_OF = {"session.reviewer": "reviewer.TASK_REVIEW", "session.review": "reviewer.SESSION_REVIEW"}
"""The roles and modes of the answer schemas that are not named after them."""
WITH_FEEDBACK = (
    "executor-first-attempt",
    "executor-further-attempt",
    "librarian-extract",
    "planner-rebreakdown",
    "planner-update",
    "reviewer-session_review",
    "reviewer-task_review",
)
"""The turns of a session that also run after feedback. The questioner has a category of its own for it."""
ONLY_WITH_FEEDBACK = ("planner-rebreakdown", "planner-update", "questioner-feedback-analysis")
WITHOUT_GIT = (
    "planner-initialize",
    "questioner-brainstorm",
    "executor-first-attempt",
    "executor-further-attempt",
    "reviewer-task_review",
    "reviewer-session_review",
    "librarian-extract",
)
"""The turns of a standard session that works in the user's tree, because there are no worktrees without git."""
FURTHER_ATTEMPTS = ("", "-failed-checks", "-findings")
"""Why an executor tries again: the review, the checks, or the guards."""
LOOP = (
    "first-iteration",
    "further-iteration",
    "first-iteration-coverage",
    "further-iteration-coverage",
    "further-iteration-findings",
    "further-iteration-early-findings",
    "debugger",
    "another-approach",
    "last-iteration",
    "reflector",
    "judge",
    "further-iteration-after-judge",
)
HATS = (
    "alone",
    "builder",
    "builder-rejected",
    "builder-refused",
    "builder-continued",
    "builder-steered",
    "builder-without-checks",
    "builder-in-wave",
    "critic-first",
    "critic-further",
    "critic-gathers",
    "coder-refuted",
    "coordinator",
    "coordinator-further",
    "coordinator-nothing-new",
    "coordinator-steered",
)
"""The situations of a turn with a hat: each has parts in its prompt that others do not have."""
LOOP_STEERED = ("first-iteration", "further-iteration", "further-iteration-findings", "debugger", "another-approach")


def list_session_turns(layout: str) -> Iterator[str]:
    """The turns of a layout, as their golden files are called."""
    for schema in ANSWERS:
        name = MODES_OF.get(schema) or schema.partition(".")[2]
        if schema.partition(".")[0] != ("session" if layout == "standard" else "classic"):
            continue
        role, _, mode = name.lower().partition(".")
        if role == "executor":
            yield "executor-first-attempt"
            yield from (f"executor-further-attempt{cause}" for cause in FURTHER_ATTEMPTS)
        else:
            yield f"{role}-{mode}"
    if layout == "standard":
        yield from (f"{name}-with-feedback" for name in WITH_FEEDBACK)
        yield "questioner-research-feedback-driven"
        yield "questioner-feedback-analysis-feedback-driven"


def list_hats() -> Iterator[str]:
    """The hats of every preset that Ralph ships, and its coordinator."""
    for preset in list_shipped():
        yield f"{preset}-coordinator"
        for hat in hats_cases.load(preset).hats:
            yield from (f"{preset}-{hat.id}{situation}" for situation in ("", "-further", "-further-steered"))


def list_expected() -> Iterator[str]:
    for layout in ("standard", "classic"):
        for name in list_session_turns(layout):
            if layout == "standard" and name in ONLY_WITH_FEEDBACK:
                continue
            for situation in ("", "-steered", "-repair", "-after-repair"):
                yield f"session/{layout}/{name}{situation}"
    yield from (f"loop/{name}" for name in (*LOOP, "repair", "reflector-repair", "further-iteration-after-repair"))
    yield from (f"loop/{name}-steered" for name in LOOP_STEERED)
    yield from (f"session/standard/{name}-without-git" for name in WITHOUT_GIT)
    yield from (f"hats/{name}" for name in HATS)
    yield from (f"presets/{name}" for name in list_hats())
    yield from ("turn/resolver", "turn/continue")


def test_every_situation_has_a_golden_file() -> None:
    assert [name for name in list_expected() if not (GOLDEN / f"{name}.md").is_file()] == []
