"""The graph of a preset: its nodes and edges, a layered layout, and text: boxes for the terminal, Mermaid for pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ralph.core.checks import Severity
from ralph.core.text import count
from ralph.documents.agent.events import topic_matches
from ralph.documents.hats.definition import COORDINATOR, Hat
from ralph.workflows.hats.preset_model import Model, PresetFinding

START, DONE, CANCELLED = "<start>", "<done>", "<cancelled>"
"""Nodes that are not hats. No hat has such an id."""


@dataclass(frozen=True)
class Node:
    """A hat, or what a run begins and ends with."""

    id: str
    lines: tuple[str, ...]
    severity: Severity | None = None
    """The worst that was found about it."""

    @property
    def is_hat(self) -> bool:
        """Whether it is one of the preset's own."""
        return self.id not in (START, DONE, CANCELLED, COORDINATOR)


@dataclass(frozen=True)
class Edge:
    """A topic from one hat to another; dashed if no hat publishes it."""

    source: str
    target: str
    label: str
    dashed: bool = False


@dataclass(frozen=True)
class Graph:
    """The nodes in the order in which they come up, and the edges between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def build_graph(model: Model, findings: Sequence[PresetFinding]) -> Graph:
    """The whole workflow."""
    edges = tuple(dict.fromkeys((Edge(START, model.find_receiver(model.start), model.start), *_edges(model))))
    used = {one for edge in edges for one in (edge.source, edge.target)}
    order = [START]
    for at in order:
        order += dict.fromkeys(e.target for e in edges if e.source == at and e.target not in order)
    named = [hat.id for hat in model.settings.hats]
    ids = [START, *(one for one in order if one in named), *(one for one in named if one not in order)]
    ids += [one for one in (COORDINATOR, CANCELLED) if one in used]
    return Graph(tuple(_node(model, id, findings) for id in (*ids, DONE)), edges)


def _edges(model: Model) -> Iterator[Edge]:
    for hat in model.settings.hats:
        for topic in hat.publishes:
            meant = [one for one in model.list_published(hat) if topic_matches(topic, one)] if "*" in topic else [topic]
            for one in meant:
                yield Edge(hat.id, _target(model, one), _label(model, topic), one == model.default(hat.id))
                if other := model.substitute_for(one):
                    yield Edge(hat.id, _target(model, other), f"else {other}", dashed=True)
        default = hat.default_publishes
        if default and default not in hat.publishes and default not in model.promises:
            yield Edge(hat.id, _target(model, default), default, dashed=True)
        if hat.max_activations and model.find_receiver(f"{hat.id}.exhausted") != COORDINATOR:
            yield Edge(hat.id, _target(model, f"{hat.id}.exhausted"), f"{hat.id}.exhausted", dashed=True)
    if model.dispatched:
        given = {topic for hat in model.settings.hats for topic in (*hat.publishes, hat.default_publishes)}
        for topic in (one for one in model.triggers if not any(topic_matches(g, one) for g in given if g)):
            yield Edge(COORDINATOR, model.find_receiver(topic), topic)
    if not model.promised:
        yield Edge(COORDINATOR, DONE, model.settings.completion)


def _target(model: Model, topic: str) -> str:
    ends = {model.settings.cancellation: CANCELLED, model.settings.completion: DONE}
    return ends.get(topic) or model.find_receiver(topic)


def _label(model: Model, topic: str) -> str:
    return f"{topic} [checked]" if model.substitute_for(topic) else topic


def _node(model: Model, id: str, findings: Sequence[PresetFinding]) -> Node:
    hat = model.settings.hat(id)
    own = [one for one in findings if _shown_at(one) == id]
    lines = _hat_lines(hat) if hat else {START: ("start",), CANCELLED: ("cancelled",)}.get(id, ("coordinator",))
    if id == DONE:
        needs = [f"after {topic}" for topic in model.settings.required]
        lines = ("done", *needs, *(["the checks pass"] if model.preset.event_loop.checks else []))
    node = Node(id, lines)
    for one in sorted(own, key=lambda found: found.severity):
        node = replace(node, lines=(*node.lines, f"{'✗' if one.severity is Severity.ERROR else '!'} {one.code}"))
        node = replace(node, severity=node.severity or one.severity)
    return node


def _hat_lines(hat: Hat) -> tuple[str, ...]:
    facts = [f"{hat.concurrency} at once" if hat.concurrency > 1 else "", "gathers" if hat.gathers else ""]
    facts += [f"{count(hat.max_activations, 'turn')} at most" if hat.max_activations else ""]
    return hat.id, *(fact for fact in facts if fact)


def _shown_at(found: PresetFinding) -> str:
    """The node that a finding is about."""
    if found.hat:
        return found.hat
    if found.code.startswith("start"):
        return START
    return DONE if found.path[0] != "events" else ""


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
class EdgePath:
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
class GraphLayout:
    """Everything in its place."""

    boxes: dict[str, Box]
    paths: tuple[EdgePath, ...]
    lanes: tuple[Lane, ...]
    width: int
    height: int


def lay_out(graph: Graph, most: int | None = None) -> GraphLayout:
    """Boxes, paths and lanes in rows and columns; labels are cut to fit into `most` columns."""
    longest = max((len(edge.label) for edge in graph.edges), default=0)
    layout = _lay_out(graph, longest)
    while most and layout.width > most and longest > 6:
        longest -= 1
        layout = _lay_out(graph, longest)
    return layout


@dataclass(frozen=True)
class _Rows:
    """The rows of nodes and edges. A side is True for edges that go down, on the right, and False for those that go up."""

    tops: dict[str, int]
    heights: dict[str, int]
    leaving: dict[Edge, int]
    arriving: dict[tuple[str, bool], int]
    """By node and side."""
    height: int


def _lay_out(graph: Graph, longest: int) -> GraphLayout:
    """Boxes, paths and lanes in their places, with labels of at most `longest` characters."""
    rank = {node.id: number for number, node in enumerate(graph.nodes)}
    down = {edge: rank[edge.target] > rank[edge.source] for edge in graph.edges}
    rows = _place_rows(graph, down)
    spans: dict[tuple[str, bool], tuple[int, int]] = {}
    for (target, side), row in rows.arriving.items():
        used = [rows.leaving[edge] for edge in graph.edges if edge.target == target and down[edge] is side]
        spans[target, side] = (min(*used, row), max(*used, row))
    lane_of, counts = _lanes(spans)
    label_widths: dict[bool, int] = {}
    for edge, side in down.items():
        label_widths[side] = max(label_widths.get(side, 0), min(longest, len(edge.label)))
    left = GAP * counts[False]
    if False in label_widths:
        left += label_widths[False] + 3
    width = min(28, max(len(line) for node in graph.nodes for line in node.lines) + 4)
    right = left + width + label_widths.get(True, 0) + 4
    columns: dict[tuple[str, bool], int] = {}
    for (target, side), lane in lane_of.items():
        columns[target, side] = right + GAP * lane if side else GAP * (counts[False] - 1 - lane)
    boxes = {
        node.id: Box(node=node, top=rows.tops[node.id], left=left, width=width, height=rows.heights[node.id])
        for node in graph.nodes
    }
    paths = tuple(
        EdgePath(
            edge=edge,
            row=rows.leaving[edge],
            lane=columns[edge.target, side],
            label=_cut(edge.label, longest),
            down=side,
        )
        for edge, side in down.items()
    )
    lanes: list[Lane] = []
    for (target, side), row in rows.arriving.items():
        first, last = spans[target, side]
        column = columns[target, side]
        lanes.append(Lane(target=target, column=column, arrives=row, first=first, last=last, down=side))
    return GraphLayout(
        boxes=boxes, paths=paths, lanes=tuple(lanes), width=right + GAP * counts[True], height=rows.height
    )


def _place_rows(graph: Graph, down: dict[Edge, bool]) -> _Rows:
    """One box below the other. On each side, the first row is for what arrives, and the next ones for what leaves."""
    tops: dict[str, int] = {}
    heights: dict[str, int] = {}
    leaving: dict[Edge, int] = {}
    arriving: dict[tuple[str, bool], int] = {}
    top = 0
    for node in graph.nodes:
        used = {True: 0, False: 0}
        for side in (True, False):
            if any(edge.target == node.id and down[edge] is side for edge in graph.edges):
                arriving[node.id, side] = top + 1
                used[side] = 1
        for edge, side in down.items():
            if edge.source == node.id:
                leaving[edge] = top + 1 + used[side]
                used[side] += 1
        tops[node.id] = top
        heights[node.id] = 2 + max(len(node.lines), *used.values())
        top += heights[node.id]
    return _Rows(tops=tops, heights=heights, leaving=leaving, arriving=arriving, height=top)


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


COLUMNS = 100
_ESCAPES = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "`": "#96;", "&": "#amp;"}
_COLOURS = {
    Severity.ERROR: "stroke:#cf222e,stroke-width:3px",
    Severity.WARNING: "stroke:#bf8700,stroke-width:3px",
}


def render_text(graph: Graph, columns: int = COLUMNS) -> str:
    """Boxes and lines in at most `columns` columns; defaults and failed checks are dashed."""
    layout = lay_out(graph, columns)
    page = [[" "] * (layout.width + 1) for _ in range(layout.height)]
    for lane in layout.lanes:
        for row in range(lane.first, lane.last + 1):
            page[row][lane.column] = "│"
    for lane in layout.lanes:
        _arrival(page, lane, layout.boxes[lane.target])
    for path in layout.paths:
        _draw_path(page, path, layout)
    for box in layout.boxes.values():
        _box(page, box)
    return "\n".join("".join(row).rstrip() for row in page) + "\n"


def _put(page: list[list[str]], row: int, column: int, text: str) -> None:
    page[row][column : column + len(text)] = text


def _box(page: list[list[str]], box: Box) -> None:
    inner = box.width - 2
    _put(page, box.top, box.left, f"╭{'─' * inner}╮")
    for at in range(1, box.height - 1):
        line = box.node.lines[at - 1][: inner - 2] if at <= len(box.node.lines) else ""
        page[box.top + at][box.left + 1 : box.right] = f" {line}".ljust(inner)
        for column in (box.left, box.right):
            page[box.top + at][column] = "│"
    _put(page, box.top + box.height - 1, box.left, f"╰{'─' * inner}╯")


def _draw_path(page: list[list[str]], path: EdgePath, layout: GraphLayout) -> None:
    box = layout.boxes[path.edge.source]
    lane = next(one for one in layout.lanes if one.column == path.lane and one.first <= path.row <= one.last)
    first, last = (box.right + 1, path.lane - 1) if path.down else (path.lane + 1, box.left - 1)
    stroke = "┄" if path.edge.dashed else "─"
    line = (
        f"{stroke} {path.label} ".ljust(last - first + 1, stroke)
        if path.down
        else f" {path.label} {stroke}".rjust(last - first + 1, stroke)
    )
    _put(page, path.row, first, line)
    page[path.row][path.lane] = _corner(lane, path.row)


def _arrival(page: list[list[str]], lane: Lane, box: Box) -> None:
    first, last = (box.right + 1, lane.column - 1) if lane.down else (lane.column + 1, box.left - 1)
    line = "◀" + "─" * (last - first) if lane.down else "─" * (last - first) + "▶"
    _put(page, lane.arrives, first, line)
    page[lane.arrives][lane.column] = _corner(lane, lane.arrives)


def _corner(lane: Lane, row: int) -> str:
    """Where a line turns into its lane: at the top of it, at its foot, or between."""
    if lane.first == lane.last:
        return "─"
    if row == lane.first:
        return "╮" if lane.down else "╭"
    if row == lane.last:
        return "╯" if lane.down else "╰"
    return "┤" if lane.down else "├"


def render_mermaid(graph: Graph) -> str:
    """A Mermaid flowchart; ids are numbers, so that no name of a hat is a word of Mermaid."""
    ids = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    lines += [f"    {ids[node.id]}{_shape(node)}" for node in graph.nodes]
    for edge in graph.edges:
        arrow = "-.->" if edge.dashed else "-->"
        lines.append(f'    {ids[edge.source]} {arrow}|"{_safe(edge.label)}"| {ids[edge.target]}')
    for severity, style in _COLOURS.items():
        if some := [ids[node.id] for node in graph.nodes if node.severity is severity]:
            lines += [f"    classDef {severity.value} {style}", f"    class {','.join(some)} {severity.value}"]
    return "\n".join(lines) + "\n"


def _shape(node: Node) -> str:
    text = "<br/>".join(_safe(line) for line in node.lines)
    return f'["{text}"]' if node.is_hat else f'(["{text}"])'


def _safe(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)
