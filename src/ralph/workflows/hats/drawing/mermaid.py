"""The picture as Mermaid, for Markdown pages."""

from ralph.workflows.hats.checking.finding import Severity
from ralph.workflows.hats.drawing.graph import Graph, Node

_ESCAPES = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "`": "#96;", "&": "#amp;"}
_COLOURS = {Severity.ERROR: "stroke:#cf222e,stroke-width:3px", Severity.WARNING: "stroke:#bf8700,stroke-width:3px"}


def mermaid(graph: Graph) -> str:
    """A flowchart; ids are numbers, so that no name of a hat is a word of Mermaid."""
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
