"""Work keys: the text of a key stands for that key and for no other."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core.ids import BASELINE, WorkKey, WorkKind, name_planning_worktree

NUMBERS = st.integers(0, 10**6)
TASKS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (BASELINE, "baseline"),
        (WorkKey(WorkKind.ITERATION, number=3), "iteration-3"),
        (WorkKey(WorkKind.REFLECTION, number=3), "reflection-3"),
        (WorkKey(WorkKind.COMMIT, number=3), "commit-3"),
        (WorkKey(WorkKind.CHECKPOINT, number=3), "checkpoint-3"),
        (WorkKey(WorkKind.CLAIM, number=3), "claim-3"),
        (WorkKey(WorkKind.WAVE, number=7, attempt=2), "wave-7-2"),
        (WorkKey(WorkKind.MERGE, worktree="task-1/4", attempt=2), "merge-task-1-4-2"),
        (WorkKey(WorkKind.RESOLVE, worktree="task-1/4", attempt=2), "resolve-task-1-4-2"),
    ],
)
def test_the_text_of_each_kind(key: WorkKey, text: str) -> None:
    assert str(key) == text
    assert WorkKey.parse(text) == key


@given(st.sampled_from([WorkKind.MERGE, WorkKind.RESOLVE]), TASKS, NUMBERS, NUMBERS)
def test_a_workspace_survives_whatever_its_task_is_called(kind: WorkKind, task: str, number: int, attempt: int) -> None:
    key = WorkKey(kind, worktree=f"{task}/{number}", attempt=attempt)
    assert WorkKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "iteration-", "iteration-x", "baseline-1", "execute:task-1-1", "merge-1"])
def test_other_texts_are_not_session_keys(text: str) -> None:
    assert WorkKey.parse(text) is None


def test_tasks_that_are_planned_again_at_the_same_time_have_different_worktrees() -> None:
    names = {name_planning_worktree(f"task-{number}") for number in range(1, 60)}
    assert len(names) == 59
    assert all(re.fullmatch("look/[0-9]{6}", name) for name in names)
