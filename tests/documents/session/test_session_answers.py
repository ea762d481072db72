"""What the roles of a session hand over is checked as a whole, and every fault is named at once."""

from typing import Any

import pytest

from ralph.documents.session import answers

DONE = {"status": "completed"}
TASK = """---
id: {id}
iteration: 1
type: Parallelizable
---
# Task: {id}

## Title
Do it

## Files
{files}

## Objective
It is there.

## Success Criteria
- [ ] `test -f a` passes

## Dependencies
{needs}
"""
ASKED = "## Cycle 1\n\n### Question 1\n- **ID**: Q-TECH-001\n- **Status**: Unanswered\n"


def task(id: str, needs: str = "depends_on: []", files: str = "- a.py") -> dict[str, str]:
    return {f"tasks/{id}.md": TASK.format(id=id, needs=needs, files=files)}


def faults(schema: str, documents: dict[str, str], inbox: dict[str, str] | None = None, **answer: Any) -> list[str]:
    return list(answers.FAULTS[schema]({**DONE, **answer}, documents, inbox or {}))


def test_tasks_in_a_valid_order_are_accepted() -> None:
    handed = task("task-1") | task("task-2", "depends_on: [task-1]") | task("task-3", "depends_on: [task-0]", "- None")
    assert faults("session.planner.TASK_BREAKDOWN", handed, task("task-0", "Dependencies: None")) == []


def test_missing_files_and_dependencies_are_named() -> None:
    found = faults("session.planner.TASK_BREAKDOWN", task("task-1", "", ""))
    assert [one.split(":")[0] for one in found] == ["tasks/task-1.md"] * 2
    assert "the section `## Files` names no file" in found[0]
    assert "does not say `depends_on: [...]`" in found[1]


def test_every_cycle_and_every_unknown_task_is_named_at_once() -> None:
    handed = {
        **task("task-1", "depends_on: [task-2, task-9]"),
        **task("task-2", "depends_on: [task-1]"),
        **task("task-3", "depends_on: [task-4]"),
        **task("task-4", "depends_on: [task-3, task-8]", ""),
        **task("task-5", "depends_on: [task-5]"),
    }
    found = "\n".join(faults("session.planner.TASK_BREAKDOWN", handed))
    for fault in (
        "tasks/task-4.md: line 11: the section `## Files` names no file",
        "task-1 depends on task-9, which does not exist",
        "task-4 depends on task-8, which does not exist",
        "task-1 -> task-2 -> task-1",
        "task-3 -> task-4 -> task-3",
        "the task depends on itself",
    ):
        assert fault in found or " -> ".join(reversed(fault.split(" -> "))) in found, found


def test_every_fault_of_a_list_of_tasks_is_named_at_once() -> None:
    handed = """
- task-1: One
    - **Files**: a.py
    - **Success Criteria**: it works
    - **Inherits From**: task-2, task-9
- task-2: Two
    - **Inherits From**: task-1
"""
    found = faults("classic.planner.TASK_BREAKDOWN", {"tasks.md": handed})
    assert found[:2] == [
        "tasks.md: task-2: it has no success criteria",
        "tasks.md: task-2: the field `**Files**` is missing; name the files that it changes, or `None`",
    ]
    assert "tasks.md: task-1 depends on task-9, which does not exist" in found
    assert any("wait for each other" in one for one in found)


@pytest.mark.parametrize(("mark", "what"), [("```python", "code fence"), ("<!-- draft", "comment")])
def test_open_fence_is_named_with_the_faults_that_it_hides(mark: str, what: str) -> None:
    [(name, text)] = task("task-1", "depends_on: [task-9]", "").items()
    found = faults("session.planner.TASK_BREAKDOWN", {name: text.replace("Do it", f"Do it\n\n{mark}\nx = 1")})
    assert found[0].startswith(f"{name}: line 11: the {what} that opens here is never closed")
    assert "the section `## Files` names no file" in found[1]
    assert found[2:] == ["task-1 depends on task-9, which does not exist"]


def test_open_fence_that_hides_nothing_is_not_a_fault() -> None:
    [(name, text)] = task("task-1").items()
    assert faults("session.planner.TASK_BREAKDOWN", {name: f"{text}\n## Notes\n```\nx = 1\n"}) == []


def test_open_fence_in_a_plan_or_a_list_of_tasks_is_named() -> None:
    [first] = faults("session.planner.INITIALIZE", {"plan.md": "## Goal\nx\n```\n\n## Success Criteria\n- y\n"})
    assert first.startswith("plan.md: line 3: the code fence that opens here is never closed")
    listed = "- task-1: One\n    - **Files**: a.py\n```\n- task-2: Two\n    - **Inherits From**: task-9\n"
    found = faults("classic.planner.TASK_BREAKDOWN", {"tasks.md": listed})
    assert found[0].startswith("tasks.md: line 3: the code fence")
    assert "tasks.md: task-2 depends on task-9, which does not exist" in found


def test_listed_tasks_may_build_on_those_that_are_there() -> None:
    handed = (
        "- task-2: Two\n    - **Files**: None\n    - **Success Criteria**: it works\n    - **Inherits From**: task-1\n"
    )
    assert (
        faults("classic.planner.UPDATE", {"plan.md": PLAN, "tasks.md": handed}, {"tasks.md": "- task-1: One\n"}) == []
    )


PLAN = "## Goal\nx\n\n## Success Criteria\n- y\n"


@pytest.mark.parametrize("layout", ["session", "classic"])
def test_questioner_may_say_that_there_is_nothing_to_ask(layout: str) -> None:
    assert "no_questions: true" in faults(f"{layout}.questioner.brainstorm", {})[0]
    assert faults(f"{layout}.questioner.brainstorm", {}, no_questions=True) == []


@pytest.mark.parametrize(("layout", "name"), [("session", "questions/technical.md"), ("classic", "plan.questions.md")])
def test_research_answers_every_open_question(layout: str, name: str) -> None:
    schema = f"{layout}.questioner.research"
    assert faults(schema, {name: ASKED}, {name: ASKED}) == [f"{name}: there is no answer to Q-TECH-001"]
    assert faults(schema, {}, {name: ASKED}) == [f"{name}: there is no answer to Q-TECH-001"]
    for status in ("Answered", "Research Needed"):
        assert faults(schema, {name: ASKED.replace("Unanswered", status)}, {name: ASKED}) == []


@pytest.mark.parametrize("schema", ["session.reviewer", "classic.reviewer.TASK_REVIEW"])
def test_reviewer_who_fails_an_attempt_says_why(schema: str) -> None:
    assert faults(schema, {}, verdict="Failed", feedback=" ") != []
    assert faults(schema, {}, verdict="Failed", feedback="--help does not list it") == []
    assert faults(schema, {"review.md": "It is missing."}, verdict="Failed") == []
    assert faults(schema, {}, verdict="Qualified") == []
