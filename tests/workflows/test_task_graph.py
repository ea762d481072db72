"""The graph of tasks, against rules that are simple enough to be read: what can start, what is blocked, which wave is on."""

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from ralph.core.errors import RalphError
from ralph.documents.session.progress import Marker
from ralph.documents.session.tasks import Task
from ralph.workflows.session.task_graph import Condition, TaskGraph

Conditions = Mapping[str, Condition]
MARKERS = {
    Condition.WAITS: Marker.TODO,
    Condition.ACTIVE: Marker.WIP,
    Condition.DONE: Marker.DONE,
    Condition.SPLIT: Marker.CANCELLED,
    Condition.DEAD: Marker.FAILED,
}


def task(name: str, *needed: str) -> Task:
    return Task(name, depends_on=needed)


def named(*tasks: Task) -> dict[str, Task]:
    return {one.id: one for one in tasks}


def follow(tasks: Mapping[str, Task], replaced: Mapping[str, tuple[str, ...]], conditions: Conditions) -> TaskGraph:
    """The graph after every task got its condition."""
    found = TaskGraph(tasks, replaced).update({name: (MARKERS[one], one) for name, one in conditions.items()})
    assert found is not None
    return found


class Plain:
    """The rules of the graph, written down without any thought of speed."""

    def __init__(
        self, tasks: Mapping[str, Task], replaced: Mapping[str, tuple[str, ...]], conditions: Conditions
    ) -> None:
        self.tasks, self.replaced, self.conditions = tasks, replaced, conditions

    def children(self, name: str) -> tuple[str, ...]:
        return self.replaced.get(name, ()) if self.conditions[name] is Condition.SPLIT else ()

    def is_met(self, name: str) -> bool:
        children = self.children(name)
        return self.conditions[name] is Condition.DONE or (bool(children) and all(map(self.is_met, children)))

    def is_dead(self, name: str) -> bool:
        return self.conditions[name] is Condition.DEAD or any(map(self.is_dead, self.children(name)))

    def blocked(self) -> set[str]:
        """Whatever depends on a dead task, on a part of one that was split, or on what is blocked itself."""
        parents = {child: parent for parent, children in self.replaced.items() for child in children}
        stopped = {name for name in self.tasks if self.is_dead(name)}
        found: set[str] = set()
        while True:
            names = {*stopped, *found}
            names |= {parents[name] for name in names if name in parents}
            more = {name for name, one in self.tasks.items() if names.intersection(one.needs)} - found
            if not more:
                return found
            found |= more

    def startable(self) -> set[str]:
        waits = {name for name in self.tasks if self.conditions[name] is Condition.WAITS}
        return {name for name in waits if all(map(self.is_met, self.tasks[name].needs))} - self.blocked()

    def wave(self, waves: list[list[str]]) -> int | None:
        blocked = self.blocked()
        for number, names in enumerate(waves, 1):
            for name in names:
                is_over = self.is_met(name) or self.is_dead(name) or name in blocked or bool(self.children(name))
                if not is_over:
                    return number
        return None


def random_tasks(chance: random.Random) -> tuple[dict[str, Task], dict[str, tuple[str, ...]]]:
    names = [f"task-{number}" for number in range(1, chance.randint(3, 9))]
    tasks = [
        task(name, *chance.sample(names[:index], min(index, chance.randint(0, 2)))) for index, name in enumerate(names)
    ]
    replaced = {}
    for name in chance.sample(names, chance.randint(0, 2)):
        children = (f"{name}.1", f"{name}.2")
        needed = next(one for one in tasks if one.id == name).depends_on
        tasks += [task(children[0], *needed), task(children[1], *needed)]
        replaced[name] = children
    return named(*tasks), replaced


@pytest.mark.parametrize("seed", range(150))
def test_graph_that_is_followed_step_by_step_agrees_with_the_plain_rules(seed: int) -> None:
    chance = random.Random(seed)
    tasks, replaced = random_tasks(chance)
    conditions = {name: Condition.SPLIT if name in replaced else Condition.WAITS for name in tasks}
    graph = follow(tasks, replaced, conditions)
    for _ in range(12):
        before = (set(graph.startable()), dict(graph.blocked), graph.wave, set(graph.active), Counter(graph.markers))
        chosen = chance.sample([name for name in tasks if name not in replaced], chance.randint(1, 2))
        changes = {name: chance.choice([one for one in Condition if one is not Condition.SPLIT]) for name in chosen}
        conditions |= changes
        after = graph.update({name: (MARKERS[one], one) for name, one in changes.items()})
        assert before == (
            set(graph.startable()),
            dict(graph.blocked),
            graph.wave,
            set(graph.active),
            Counter(graph.markers),
        ), "a graph does not change; there is another one afterwards"
        graph = after or follow(tasks, replaced, conditions)
        plain = Plain(tasks, replaced, conditions)
        assert set(graph.startable()) == plain.startable()
        assert graph.blocked.keys() == plain.blocked()
        assert all(plain.is_dead(name) for name in graph.blocked.values()), "it names a task that is dead"
        assert graph.wave == plain.wave([list(names) for names in graph.waves])
        assert graph.active == {name for name, one in conditions.items() if one is Condition.ACTIVE}
        expected = Counter(MARKERS[one] for one in conditions.values())
        assert {marker: count for marker, count in graph.markers.items() if count} == expected


def test_task_that_most_others_wait_for_starts_first_and_else_the_lowest_number() -> None:
    tasks = named(task("task-10"), task("task-2"), task("task-3"), task("task-4", "task-3"), task("task-5", "task-4"))
    graph = follow(tasks, {}, dict.fromkeys(tasks, Condition.WAITS))
    assert list(graph.startable()) == ["task-3", "task-2", "task-10"]


def test_waves_are_numbered_from_one_and_end_with_none() -> None:
    tasks = named(task("task-1"), task("task-2", "task-1"))
    waiting = dict.fromkeys(tasks, Condition.WAITS)
    graph = follow(tasks, {}, waiting)
    assert (graph.wave, graph.is_in_wave("task-1"), graph.is_in_wave("task-2")) == (1, True, False)
    graph = follow(tasks, {}, {**waiting, "task-1": Condition.DONE})
    assert (graph.wave, graph.is_in_wave("task-2")) == (2, True)
    assert follow(tasks, {}, dict.fromkeys(tasks, Condition.DONE)).wave is None


def test_parts_of_a_split_task_come_before_what_depends_on_it() -> None:
    parts = (task("task-1.1"), task("task-1.2", "task-1.1"))
    tasks = named(task("task-1"), task("task-2", "task-1"), *parts)
    replaced = {"task-1": ("task-1.1", "task-1.2")}
    graph = follow(tasks, replaced, {**dict.fromkeys(tasks, Condition.WAITS), "task-1": Condition.SPLIT})
    assert [sorted(names) for names in graph.waves] == [["task-1", "task-1.1"], ["task-1.2"], ["task-2"]]
    assert list(graph.startable()) == ["task-1.1"]
    done = graph.update(dict.fromkeys(replaced["task-1"], (Marker.DONE, Condition.DONE)))
    assert done is not None and list(done.startable()) == ["task-2"]


def test_split_with_missing_parts_is_not_a_split() -> None:
    tasks = named(task("task-1"), task("task-2", "task-1"), task("task-1.1"))
    graph = follow(
        tasks,
        {"task-1": ("task-1.1", "task-1.9")},
        {**dict.fromkeys(tasks, Condition.WAITS), "task-1.1": Condition.DONE},
    )
    assert [sorted(names) for names in graph.waves] == [["task-1", "task-1.1"], ["task-2"]]
    assert list(graph.startable()) == ["task-1"]


def test_graph_has_to_be_built_anew_if_a_task_that_was_over_is_open_again() -> None:
    tasks = named(task("task-1"), task("task-2", "task-1"))
    for over in (Condition.DONE, Condition.DEAD):
        graph = follow(tasks, {}, {"task-1": over, "task-2": Condition.WAITS})
        assert graph.update({"task-1": (Marker.TODO, Condition.WAITS)}) is None
        assert graph.update({"task-1": (MARKERS[over], over)}) is not None


def test_change_of_an_unknown_task_changes_nothing() -> None:
    tasks = named(task("task-1"))
    graph = follow(tasks, {}, {"task-1": Condition.WAITS})
    after = graph.update({"task-9": (Marker.WIP, Condition.ACTIVE)})
    assert after is not None and not after.active and list(after.startable()) == ["task-1"]


@pytest.mark.parametrize(("needed", "message"), [("task-2", "wait for each other"), ("task-9", "which does not exist")])
def test_tasks_that_cannot_be_put_in_order_are_named(needed: str, message: str) -> None:
    with pytest.raises(RalphError, match="task") as caught:
        TaskGraph(named(task("task-1", needed), task("task-2", "task-1")), {})
    assert message in caught.value.what
