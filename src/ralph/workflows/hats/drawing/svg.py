"""The picture for a browser: the same places as in the terminal, drawn with lines."""

from xml.sax.saxutils import escape

from ralph.documents.hats.definition import COORDINATOR
from ralph.workflows.hats.checking.finding import Severity
from ralph.workflows.hats.drawing.graph import Graph, Node
from ralph.workflows.hats.drawing.layout import Box, Lane, Way, laid_out

WIDE, HIGH, MARGIN, ROUND = 8.0, 24.0, 16.0, 8.0
"""Pixels of a column and of a row, around the picture, and of a corner."""
_STYLE = """
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }
  .name { font-weight: bold } .fact { fill: #59636e } .bad { fill: #cf222e } .poor { fill: #9a6700 }
  .box { fill: #f6f8fa; stroke: #59636e; stroke-width: 1.4 } .end { fill: #dafbe1; stroke: #1a7f37 }
  .error { stroke: #cf222e; stroke-width: 2.4 } .warning { stroke: #bf8700; stroke-width: 2.4 }
  .way { fill: none; stroke: #57606a; stroke-width: 1.4 } .dashed { stroke-dasharray: 5 4 }
  .under { fill: #ffffff }
"""


def svg(graph: Graph, title: str) -> str:
    """One SVG file."""
    layout = laid_out(graph)
    width, height = _x(layout.width) + MARGIN, _y(layout.height) + MARGIN
    lanes = {(lane.column, lane.down, lane.target): lane for lane in layout.lanes}
    ways = [_way(way, layout.boxes[way.edge.source], lanes[way.lane, way.down, way.edge.target]) for way in layout.ways]
    arrivals = [_arrival(lane, layout.boxes[lane.target]) for lane in layout.lanes]
    labels = [_label(way, layout.boxes[way.edge.source]) for way in layout.ways]
    boxes = [_box(box) for box in layout.boxes.values()]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        f' viewBox="0 0 {width:g} {height:g}" role="img">\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#57606a"/></marker></defs>\n'
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>\n'
    )
    return head + "\n".join((*ways, *arrivals, *labels, *boxes)) + "\n</svg>\n"


def _x(column: float) -> float:
    return MARGIN + column * WIDE


def _y(row: float) -> float:
    return MARGIN + (row + 0.5) * HIGH


def _way(way: Way, box: Box, lane: Lane) -> str:
    """From the side of a box to its lane, and along that to where the lane arrives."""
    side = _x(box.right + 1) if way.down else _x(box.left)
    x, y, end = _x(way.lane), _y(way.row), _y(lane.arrives)
    bend = ROUND if way.down else -ROUND
    turn = ROUND if end > y else -ROUND
    path = f"M{side:g} {y:g} H{x - bend:g} Q{x:g} {y:g} {x:g} {y + turn:g} V{end - turn:g}"
    return f'<path class="way{" dashed" if way.edge.dashed else ""}" d="{path}"/>'


def _arrival(lane: Lane, box: Box) -> str:
    """From a lane into the box that it is for, with a tip."""
    x, y, side = _x(lane.column), _y(lane.arrives), _x(box.right + 1) if lane.down else _x(box.left)
    bend = ROUND if lane.down else -ROUND
    starts = [row for row in (lane.first, lane.last) if row != lane.arrives]
    turns = (
        f"M{x:g} {y + (ROUND if row > lane.arrives else -ROUND):g} Q{x:g} {y:g} {x - bend:g} {y:g}" for row in starts
    )
    tip = f'<path class="way" marker-end="url(#tip)" d="M{x - bend:g} {y:g} H{side:g}"/>'
    return "".join(f'<path class="way" d="{turn}"/>' for turn in turns) + tip


def _label(way: Way, box: Box) -> str:
    width = (len(way.label) + 1) * WIDE
    x = _x(box.right + 2) if way.down else _x(box.left - 1) - width
    under = f'<rect class="under" x="{x:g}" y="{_y(way.row) - 8:g}" width="{width:g}" height="16"/>'
    at = f'x="{x + width / 2:g}" y="{_y(way.row) + 4:g}"'
    return f'{under}<text {at} text-anchor="middle">{escape(way.label)}</text>'


def _box(box: Box) -> str:
    x, y = _x(box.left), _y(box.top)
    width, height = box.width * WIDE, (box.height - 1) * HIGH
    bent = ROUND if box.node.is_hat or box.node.id == COORDINATOR else HIGH
    parts = [
        f'<rect class="{_kind(box.node)}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{bent:g}"/>'
    ]
    for number, line in enumerate(box.node.lines):
        kind = "bad" if line.startswith("✗") else "poor" if line.startswith("!") else "fact" if number else "name"
        at = f'x="{x + width / 2:g}" y="{_y(box.top + 1 + number) + 4:g}"'
        parts.append(f'<text class="{kind}" {at} text-anchor="middle">{escape(line)}</text>')
    return "\n".join(parts)


def _kind(node: Node) -> str:
    found = "" if node.severity is None else " error" if node.severity is Severity.ERROR else " warning"
    return ("box" if node.is_hat or node.id == COORDINATOR else "box end") + found
