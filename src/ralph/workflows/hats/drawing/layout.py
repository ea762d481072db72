"""The layered layout of a graph as data: nodes below each other, ways down on the right, ways back on the left.

Every node has one lane a side, on which all that comes to it from there arrives.
"""

from dataclasses import dataclass

from ralph.workflows.hats.drawing.graph import Edge, Graph, Node

GAP = 2
"""Columns between two lanes."""


@dataclass(frozen=True)
class Box:
    """A node and its place; the first and last rows are its border."""

    node: Node
    top: int
    left: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """Its last column."""
        return self.left + self.width - 1


@dataclass(frozen=True)
class Way:
    """An edge from the side of its box to its lane."""

    edge: Edge
    row: int
    lane: int
    """The column of its lane."""
    label: str
    down: bool


@dataclass(frozen=True)
class Lane:
    """The column on which all comes to a node from one side, and the row in which it arrives."""

    target: str
    column: int
    arrives: int
    first: int
    last: int
    down: bool


@dataclass(frozen=True)
class Layout:
    """Everything in its place."""

    boxes: dict[str, Box]
    ways: tuple[Way, ...]
    lanes: tuple[Lane, ...]
    width: int
    height: int


def lay_out(graph: Graph, most: int | None = None) -> Layout:
    """Boxes, ways and lanes in rows and columns; labels are cut to fit into `most` columns."""
    longest = max((len(edge.label) for edge in graph.edges), default=0)
    layout = _lay_out(graph, longest)
    while most and layout.width > most and longest > 6:
        longest -= 1
        layout = _lay_out(graph, longest)
    return layout


def _lay_out(graph: Graph, longest: int) -> Layout:
    rank = {node.id: number for number, node in enumerate(graph.nodes)}
    down = {edge: rank[edge.target] > rank[edge.source] for edge in graph.edges}
    rows: dict[Edge, int] = {}
    tops, heights, arrivals = {}, {}, {}
    top = 0
    for node in graph.nodes:
        used = {True: 0, False: 0}
        for side in (True, False):
            if any(edge.target == node.id and down[edge] is side for edge in graph.edges):
                arrivals[node.id, side] = top + 1
                used[side] = 1
        for edge in (one for one in graph.edges if one.source == node.id):
            rows[edge] = top + 1 + used[down[edge]]
            used[down[edge]] += 1
        tops[node.id], heights[node.id] = top, 2 + max(len(node.lines), *used.values())
        top += heights[node.id]
    spans = {}
    for (target, side), row in arrivals.items():
        own = [rows[edge] for edge in graph.edges if edge.target == target and down[edge] is side] + [row]
        spans[target, side] = (min(own), max(own))
    lane_of, counts = _lanes(spans)
    width = min(28, max(len(line) for node in graph.nodes for line in node.lines) + 4)
    zones = {side: max(min(longest, len(e.label)) for e in graph.edges if down[e] is side) for side in down.values()}
    left = GAP * counts[False] + (zones[False] + 3 if False in zones else 0)
    boxes = {n.id: Box(n, tops[n.id], left, width, heights[n.id]) for n in graph.nodes}
    out = left + width + zones.get(True, 0) + 4
    columns = {key: out + GAP * lane if key[1] else GAP * (counts[False] - 1 - lane) for key, lane in lane_of.items()}
    ways = tuple(Way(e, rows[e], columns[e.target, down[e]], _cut(e.label, longest), down[e]) for e in graph.edges)
    lanes = tuple(
        Lane(target, columns[target, side], row, *spans[target, side], side) for (target, side), row in arrivals.items()
    )
    return Layout(boxes, ways, lanes, out + GAP * counts[True], top)


def _lanes(spans: dict[tuple[str, bool], tuple[int, int]]) -> tuple[dict[tuple[str, bool], int], dict[bool, int]]:
    """A lane for every span, the short ones next to the nodes; two that do not meet share one."""
    found: dict[tuple[str, bool], int] = {}
    taken: dict[bool, list[list[tuple[int, int]]]] = {True: [], False: []}
    for key, (first, last) in sorted(spans.items(), key=lambda one: one[1][1] - one[1][0]):
        lanes = taken[key[1]]
        free = next((n for n, lane in enumerate(lanes) if all(last < a or b < first for a, b in lane)), len(lanes))
        if free == len(lanes):
            lanes.append([])
        lanes[free].append((first, last))
        found[key] = free
    return found, {side: len(lanes) for side, lanes in taken.items()}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
