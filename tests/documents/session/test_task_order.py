"""Graphs of tasks: waves in natural order, and what is wrong with a graph named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.core.errors import UsageError
from ralph.documents.session.tasks import make_natural_key, order_waves


def test_numbers_count_as_numbers() -> None:
    names = ["task-10", "task-2", "task-1b", "task", "10", "9", "Task-1", "task-1", "task-01", ""]
    assert sorted(names, key=make_natural_key) == [
        "", "Task-1", "task", "task-1", "task-01", "task-1b", "task-2", "task-10", "9", "10",
    ]  # fmt: skip


@given(st.lists(st.text(max_size=8), max_size=6))
def test_any_name_can_be_ordered(names: list[str]) -> None:
    assert len(sorted([*names, "1²", "٣"], key=make_natural_key)) == len(names) + 2


def test_waves_are_as_early_as_they_can_be() -> None:
    graph = {"t10": ["t2"], "t2": [], "t1": (), "t3": {"t1", "t2"}, "t4": ["t3", "t1"]}
    assert order_waves(graph) == [["t1", "t2"], ["t3", "t10"], ["t4"]]
    assert order_waves({}) == []


@given(st.data())
def test_every_task_comes_once_and_after_all_it_depends_on(data: st.DataObject) -> None:
    names = [f"t{number}" for number in range(data.draw(st.integers(0, 12)))]
    graph = {name: data.draw(st.sets(st.sampled_from(names[:at]))) if at else set() for at, name in enumerate(names)}
    levels = order_waves(dict(data.draw(st.permutations(list(graph.items())))))
    at = {name: number for number, level in enumerate(levels) for name in level}
    assert sorted(name for level in levels for name in level) == sorted(names)
    for name, needed in graph.items():
        assert at[name] == max((at[other] + 1 for other in needed), default=0)
    assert all(level == sorted(level, key=make_natural_key) for level in levels)


def test_error_names_dependencies_that_do_not_exist() -> None:
    with pytest.raises(UsageError, match="b depends on x2, x10, which does not exist") as error:
        order_waves({"a": [], "b": ["x10", "a", "x2"]}, where="plan.md")
    assert error.value.where == "plan.md"


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({"a": ["a"]}, {"a -> a"}),
        ({"a": ["b"], "b": ["a"]}, {"a -> b -> a", "b -> a -> b"}),
        (
            {"z": [], "a": ["z", "b"], "b": ["c"], "c": ["a"]},
            {"a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"},
        ),
    ],
)
def test_a_cycle_is_named_in_the_direction_of_waiting(graph: dict[str, list[str]], cycle: set[str]) -> None:
    with pytest.raises(UsageError) as error:
        order_waves(graph)
    assert error.value.what.removeprefix("the tasks wait for each other: ") in cycle
