"""The picture for the terminal."""

from ralph.workflows.hats.drawing.graph import Graph
from ralph.workflows.hats.drawing.layout import Box, Lane, Layout, Way, laid_out

COLUMNS = 100


def plain(graph: Graph, columns: int = COLUMNS) -> str:
    """Boxes and lines in so many columns; what comes without being said is dashed."""
    layout = laid_out(graph, columns)
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
