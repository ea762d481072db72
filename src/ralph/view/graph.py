"""The graph of a run with the place of every node: tasks by wave, hats by their distance from the first event."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ralph.documents.agent.events import topic_matches
from ralph.documents.hats.definition import COORDINATOR, HatsSettings, show_role
from ralph.view.model import GraphEdge, GraphNode, RunGraph, RunView


def draw_graph(view: RunView, hats: RunGraph | None) -> RunGraph:
    """The graph of a run as it is now. `hats` has the hats of the run, if it has any."""
    if hats is not None:
        return _mark_hats(view, hats)
    return _draw_tasks(view) if view.tasks else RunGraph()


def _draw_tasks(view: RunView) -> RunGraph:
    counts = Counter(turn.task for turn in view.turns)
    nodes = [
        GraphNode(
            id=task.id,
            title=task.title,
            state="running" if task.turn else task.state.value,
            x=max(0, task.wave - 1),
            y=0,
            count=counts[task.id],
        )
        for task in view.tasks
    ]
    known = {task.id for task in view.tasks}
    edges = tuple(GraphEdge(need, task.id) for task in view.tasks for need in task.needs if need in known)
    return RunGraph("tasks", _place(nodes, edges), edges)


def draw_hats(settings: HatsSettings) -> RunGraph:
    """The hats of a run and the topics between them, before any turn."""
    names = [hat.id for hat in settings.hats]
    edges = [
        GraphEdge(source.id, target.id, topic)
        for source in settings.hats
        for topic in source.publishes
        for target in settings.hats
        if any(topic_matches(trigger, topic) for trigger in target.triggers)
    ]
    first = [
        hat.id
        for hat in settings.hats
        if settings.starting_event and any(topic_matches(trigger, settings.starting_event) for trigger in hat.triggers)
    ]
    label = settings.starting_event
    edges = [*(GraphEdge(COORDINATOR, name, label) for name in first), *edges]
    columns = _measure_distances([COORDINATOR, *names], edges)
    titles = {hat.id: hat.name or hat.id for hat in settings.hats}
    nodes = [
        GraphNode(id=name, title=titles.get(name, show_role(name)), state="unused", x=columns[name], y=0)
        for name in (COORDINATOR, *names)
    ]
    return RunGraph("hats", _place(nodes, tuple(edges)), tuple(edges))


def _measure_distances(names: list[str], edges: list[GraphEdge]) -> Mapping[str, int]:
    """How many topics away from the coordinator each hat is. Hats that no topic reaches come last."""
    distances = {names[0]: 0}
    reached = [names[0]]
    while reached:
        source = reached.pop(0)
        for edge in edges:
            if edge.source == source and edge.target not in distances:
                distances[edge.target] = distances[source] + 1
                reached.append(edge.target)
    last = max(distances.values()) + 1
    return {name: distances.get(name, last) for name in names}


def _mark_hats(view: RunView, graph: RunGraph) -> RunGraph:
    counts = Counter(turn.role for turn in view.turns)
    running = {turn.role for turn in view.running_turns}

    def mark(node: GraphNode) -> GraphNode:
        state = "used" if counts[node.id] else "unused"
        return replace(node, state="running" if node.id in running else state, count=counts[node.id])

    return replace(graph, nodes=tuple(map(mark, graph.nodes)))


def _place(nodes: list[GraphNode], edges: tuple[GraphEdge, ...]) -> tuple[GraphNode, ...]:
    """The nodes with their rows: in each column, ordered by the average row of what they depend on."""
    sources: dict[str, list[str]] = {}
    for edge in edges:
        sources.setdefault(edge.target, []).append(edge.source)
    rows: dict[str, int] = {}
    for column in sorted({node.x for node in nodes}):
        members = [node for node in nodes if node.x == column]

        def average_row(node: GraphNode) -> float:
            known = [rows[one] for one in sources.get(node.id, ()) if one in rows]
            return sum(known) / len(known) if known else len(rows)

        # Sorting is stable, so nodes with the same average stay in their order.
        for row, node in enumerate(sorted(members, key=average_row)):
            rows[node.id] = row
    return tuple(replace(node, y=rows[node.id]) for node in nodes)
