"""The graph of a preset as text: boxes and lines for the terminal, Mermaid for Markdown pages."""

from ralph.workflows.hats.checking.findings import Severity
from ralph.workflows.hats.drawing.graph import Graph, Node
from ralph.workflows.hats.drawing.layout import Box, Lane, Layout, Way, lay_out

COLUMNS = 100
_ESCAPES = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "`": "#96;", "&": "#amp;"}
_COLOURS = {Severity.ERROR: "stroke:#cf222e,stroke-width:3px", Severity.WARNING: "stroke:#bf8700,stroke-width:3px"}


def render_text(graph: Graph, columns: int = COLUMNS) -> str:
    """Boxes and lines in at most `columns` columns; defaults and failed checks are dashed."""
    layout = lay_out(graph, columns)
    page = [[" "] * (layout.width + 1) for _ in range(layout.height)]
    for lane in layout.lanes:
        for row in range(lane.first, lane.last + 1):
            page[row][lane.column] = "│"
    for lane in layout.lanes:
        _arrival(page, lane, layout.boxes[lane.target])
    for way in layout.ways:
        _way(page, way, layout)
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


def _way(page: list[list[str]], way: Way, layout: Layout) -> None:
    box = layout.boxes[way.edge.source]
    lane = next(one for one in layout.lanes if one.column == way.lane and one.first <= way.row <= one.last)
    first, last = (box.right + 1, way.lane - 1) if way.down else (way.lane + 1, box.left - 1)
    stroke = "┄" if way.edge.dashed else "─"
    line = (
        f"{stroke} {way.label} ".ljust(last - first + 1, stroke)
        if way.down
        else f" {way.label} {stroke}".rjust(last - first + 1, stroke)
    )
    _put(page, way.row, first, line)
    page[way.row][way.lane] = _corner(lane, way.row)


def _arrival(page: list[list[str]], lane: Lane, box: Box) -> None:
    first, last = (box.right + 1, lane.column - 1) if lane.down else (lane.column + 1, box.left - 1)
    line = "◀" + "─" * (last - first) if lane.down else "─" * (last - first) + "▶"
    _put(page, lane.arrives, first, line)
    page[lane.arrives][lane.column] = _corner(lane, lane.arrives)


def _corner(lane: Lane, row: int) -> str:
    """Where a line turns into its lane: at the top of it, at its foot, or between."""
    if lane.first == lane.last:
        return "─"
    kind = 0 if row == lane.first else 2 if row == lane.last else 1
    return "╮┤╯"[kind] if lane.down else "╭├╰"[kind]


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
