"""Keys of session work: the journal's strings stay what they were, and come back as the same values."""

import pytest

from ralph.workflows.session.keys import Kind, WorkKey

KEYS = {
    "baseline": WorkKey(Kind.BASELINE),
    "plan:plan-init": WorkKey(Kind.PLAN, step="plan-init"),
    "plan:plan-init@1": WorkKey(Kind.PLAN, step="plan-init", iteration=1),
    "plan:plan-research.2": WorkKey(Kind.PLAN, step="plan-research", cycle=2),
    "plan:plan-research@1.2.": WorkKey(Kind.PLAN, step="plan-research", iteration=1, cycle=2),
    "plan:plan-brainstorm@1.2.risks": WorkKey(
        Kind.PLAN, step="plan-brainstorm", iteration=1, cycle=2, category="risks"
    ),
    "plan:plan-update-3": WorkKey(Kind.PLAN, step="plan-update-3"),
    "execute:task-1-2": WorkKey(Kind.EXECUTE, task="task-1", attempt=2),
    "check:task-1.3-2": WorkKey(Kind.CHECK, task="task-1.3", attempt=2),
    "review:task-critique-1-2-1": WorkKey(Kind.REVIEW, task="task-critique-1-2", attempt=1),
    "split:task-4-1": WorkKey(Kind.SPLIT, task="task-4", attempt=1),
    "session-2": WorkKey(Kind.SESSION_CHECK, iteration=2),
    "session-1.0": WorkKey(Kind.SESSION_CHECK, iteration=1, cycle=0),
    "review:session-2": WorkKey(Kind.SESSION_REVIEW, iteration=2),
    "review:session-1.0": WorkKey(Kind.SESSION_REVIEW, iteration=1, cycle=0),
    "critique:1.1": WorkKey(Kind.CRITIQUE, iteration=1, cycle=1),
    "extract:1": WorkKey(Kind.EXTRACT, iteration=1),
    "promote-2": WorkKey(Kind.PROMOTE, iteration=2),
}


@pytest.mark.parametrize("text", KEYS)
def test_key_and_its_string_are_the_same(text: str) -> None:
    assert WorkKey.parse(text) == KEYS[text]
    assert str(KEYS[text]) == text


@pytest.mark.parametrize("text", ["merge:task-1", "resolve:task-1-1", "", "plan:", "execute:task"])
def test_other_work_has_no_session_key(text: str) -> None:
    assert WorkKey.parse(text) is None
