"""Required events: who may pass them, and what makes a pass stale."""

from dataclasses import replace

import pytest
from playing_hats import CODE_ASSIST, hat

from ralph.documents.hats.definition import COORDINATOR, USER, HatsSettings
from ralph.workflows.hats.events import Gate, find_gate_blockers, find_task_id, update_gates


def gates_after(*words: str, settings: HatsSettings = CODE_ASSIST) -> dict[str, Gate]:
    """The gates after events, each written as `SOURCE TOPIC [TASK]`; `~SOURCE` for a default event."""
    gates: dict[str, Gate] = {}
    for word in words:
        source, topic, *task = word.split()
        payload = f"task_id: {task[0]}" if task else ""
        by_engine = source.startswith("~")
        gates = dict(update_gates(settings, gates, topic, payload, source=source.strip("~"), by_engine=by_engine))
    return gates


def reasons(*words: str, given_up: tuple[str, ...] = (), settings: HatsSettings = CODE_ASSIST) -> list[str]:
    return list(find_gate_blockers(settings, gates_after(*words, settings=settings), given_up).values())


@pytest.mark.parametrize(
    "words",
    [
        ["critic review.passed"],
        ["critic review.passed a", "critic review.passed b"],
        ["critic review.rejected a", "builder review.ready a", "critic review.passed a"],
        ["builder review.ready", "critic review.passed a"],
        ["critic review.rejected a", "critic review.passed"],
        ["critic review.passed a", "finalizer queue.advance", "planner tasks.ready b"],
    ],
)
def test_the_last_word_of_every_task_is_a_pass(words: list[str]) -> None:
    assert reasons(*words) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "critic has not published `review.passed`"),
        (["builder review.passed"], "critic has not published `review.passed`"),
        ([f"{COORDINATOR} review.passed"], "critic has not published `review.passed`"),
        ([f"{USER} review.passed"], "critic has not published `review.passed`"),
        (["~critic review.passed"], "critic has not published `review.passed`"),
        (["critic review.passed", "critic review.rejected"], "the latest event is `review.rejected`"),
        (["critic review.passed a", "critic review.rejected a"], "the latest event on a is `review.rejected`"),
        (["critic review.passed a", "~critic review.rejected a"], "the latest event on a is `review.rejected`"),
        (["critic review.passed a", "builder review.ready a"], "the latest event on a is `review.ready`"),
        (["critic review.rejected b", "critic review.passed a"], "the latest event on b is `review.rejected`"),
        (["critic review.passed a", "builder review.ready a", "~critic review.passed a"], "is `review.ready`"),
        (["critic review.rejected b", "builder review.odd", "critic review.passed a"], "on b is `review.rejected`"),
    ],
)
def test_a_gate_is_closed(words: list[str], reason: str) -> None:
    [told] = reasons(*words)
    assert reason in told


def test_a_task_that_was_given_up_needs_no_pass() -> None:
    words = ["critic review.rejected b", "critic review.passed a"]
    assert reasons(*words, given_up=("b",)) == []


def test_required_topics_of_one_family_do_not_make_each_other_stale() -> None:
    hats = (hat("tester", "go", "test.red test.wrong"), hat("coder", "test.red", "test.green"))
    settings = HatsSettings(hats, required=("test.red", "test.green"))
    assert reasons("tester test.red", "coder test.green", settings=settings) == []
    assert len(reasons("tester test.red", "coder test.green", "tester test.wrong", settings=settings)) == 2


def test_many_stale_tasks_are_counted() -> None:
    words = [f"critic review.rejected t-{number}" for number in range(9)]
    [told] = reasons("critic review.passed", *words)
    assert told.count("the latest event on") == 3 and "and 6 more" in told


def test_without_hats_the_one_agent_passes_its_gates() -> None:
    settings = HatsSettings(required=("tests.green",))
    assert reasons(f"{COORDINATOR} tests.green", settings=settings) == []


def test_a_pattern_owns_a_topic_only_if_no_hat_names_it() -> None:
    hats = (hat("any", "go", "review.*"), hat("critic", "review.ready", "review.passed"))
    settings = HatsSettings(hats, required=("review.passed",))
    assert settings.find_owners("review.passed") == ("critic",)
    assert replace(settings, hats=hats[:1]).find_owners("review.passed") == ("any",)


@pytest.mark.parametrize(
    ("payload", "task"),
    [
        ('{"task_id": "task-1-a2", "task_key": "k:step-01:x"}', "task-1-a2"),
        ("task_id: t-7, task_key=k", "t-7"),
        ("task_id=`t-7`.", "t-7"),
        ("my_task_id: no", ""),
        ("the task_id is missing", ""),
        ("", ""),
    ],
)
def test_the_task_of_a_payload(payload: str, task: str) -> None:
    assert find_task_id(payload) == task
