"""Keys of session work: the journal's strings stay what they were, and come back as the same values."""

import pytest

from ralph.workflows.session.work_keys import SessionKey, SessionWork

KEYS = {
    "baseline": SessionKey(SessionWork.BASELINE),
    "plan:plan-init": SessionKey(SessionWork.PLAN, step="plan-init"),
    "plan:plan-init@1": SessionKey(SessionWork.PLAN, step="plan-init", iteration=1),
    "plan:plan-research.2": SessionKey(SessionWork.PLAN, step="plan-research", cycle=2),
    "plan:plan-research@1.2.": SessionKey(SessionWork.PLAN, step="plan-research", iteration=1, cycle=2),
    "plan:plan-brainstorm@1.2.risks": SessionKey(
        SessionWork.PLAN, step="plan-brainstorm", iteration=1, cycle=2, category="risks"
    ),
    "plan:plan-update-3": SessionKey(SessionWork.PLAN, step="plan-update-3"),
    "execute:task-1-2": SessionKey(SessionWork.EXECUTE, task="task-1", attempt=2),
    "check:task-1.3-2": SessionKey(SessionWork.CHECK, task="task-1.3", attempt=2),
    "review:task-critique-1-2-1": SessionKey(SessionWork.REVIEW, task="task-critique-1-2", attempt=1),
    "split:task-4-1": SessionKey(SessionWork.SPLIT, task="task-4", attempt=1),
    "session-2": SessionKey(SessionWork.SESSION_CHECK, iteration=2),
    "session-1.0": SessionKey(SessionWork.SESSION_CHECK, iteration=1, cycle=0),
    "review:session-2": SessionKey(SessionWork.SESSION_REVIEW, iteration=2),
    "review:session-1.0": SessionKey(SessionWork.SESSION_REVIEW, iteration=1, cycle=0),
    "critique:1.1": SessionKey(SessionWork.CRITIQUE, iteration=1, cycle=1),
    "extract:1": SessionKey(SessionWork.EXTRACT, iteration=1),
    "promote-2": SessionKey(SessionWork.PROMOTE, iteration=2),
}


@pytest.mark.parametrize("text", KEYS)
def test_key_and_its_string_are_the_same(text: str) -> None:
    assert SessionKey.parse(text) == KEYS[text]
    assert str(KEYS[text]) == text


@pytest.mark.parametrize("text", ["merge:task-1", "resolve:task-1-1", "", "plan:", "execute:task"])
def test_other_work_has_no_session_key(text: str) -> None:
    assert SessionKey.parse(text) is None
