"""The picture of a preset: valid, whole, and readable."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from playing_hats import hat
from test_hats_check import BROKEN, WHOLE, model_of

from ralph.core.limits import Limits
from ralph.documents.hats.definition import HatsSettings
from ralph.documents.hats.preset import Preset
from ralph.workflows.hats.drawing import DONE, START, Graph, build_graph, lay_out, render_mermaid, render_text
from ralph.workflows.hats.preset_checks import check_preset
from ralph.workflows.hats.preset_model import Model

TEXTS = {**WHOLE, **{path.stem: path.read_text() for path in BROKEN}}
NODE = re.compile(r'    n\d+(?:\["[^"`]+"\]|\(\["[^"`]+"\]\))')
EDGE = re.compile(r'    n\d+ -\.?->\|"[^"`<>]+"\| n\d+')
STYLE = re.compile(r"    (?:classDef \w+ [\w:#,-]+|class n\d+(?:,n\d+)* \w+)")


def graph(text: str) -> Graph:
    model, _ = model_of(text)
    return build_graph(model, check_preset(model.preset, model.settings, Limits(iterations=100)))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_preset_is_drawn_whole(text: str) -> None:
    drawn = graph(text)
    ids = {node.id for node in drawn.nodes}
    assert {edge.source for edge in drawn.edges} | {edge.target for edge in drawn.edges} <= ids | {"ralph"}
    shown = render_text(drawn)
    assert max(map(len, shown.splitlines())) <= 100
    for node in drawn.nodes:
        assert all(f" {line[:20]}" in shown for line in node.lines)
    head, *lines = render_mermaid(drawn).splitlines()
    assert head == "flowchart TD"
    assert [one for one in lines if not (NODE.fullmatch(one) or EDGE.fullmatch(one) or STYLE.fullmatch(one))] == []


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_nothing_covers_anything_else(text: str) -> None:
    """Boxes are below each other, and no two lines that are not for the same node share a place."""
    layout = lay_out(graph(text))
    boxes = sorted(layout.boxes.values(), key=lambda box: box.top)
    assert all(one.top + one.height <= other.top for one, other in pairwise(boxes))
    ports = [(path.row, path.down) for path in layout.paths] + [(lane.arrives, lane.down) for lane in layout.lanes]
    assert len(ports) == len(set(ports))
    rows = [(lane.column, row) for lane in layout.lanes for row in range(lane.first, lane.last + 1)]
    assert len(rows) == len(set(rows))
    for path in layout.paths:
        box = layout.boxes[path.edge.source]
        assert path.lane > box.right + len(path.label) if path.down else path.lane < box.left - len(path.label)


def test_as_it_looks_in_the_terminal() -> None:
    hats = (
        hat("builder", "work.start review.rejected", "review.ready", default_publishes="review.ready"),
        hat("critic", "review.ready", "review.rejected LOOP_COMPLETE", max_activations=3),
    )
    settings = HatsSettings(hats, starting_event="work.start", required=("review.ready",))
    assert render_text(build_graph(Model(Preset(), settings), [])) == PICTURE


PICTURE = """\
                    ╭────────────────────╮
                    │ start              │─ work.start ────╮
                    ╰────────────────────╯                 │
                    ╭────────────────────╮                 │
╭──────────────────▶│ builder            │◀────────────────╯
│                   │                    │┄ review.ready ┄┄╮
│                   ╰────────────────────╯                 │
│                   ╭────────────────────╮                 │
╰─ review.rejected ─│ critic             │◀────────────────╯
                    │ 3 turns at most    │─ LOOP_COMPLETE ─╮
                    ╰────────────────────╯                 │
                    ╭────────────────────╮                 │
                    │ done               │◀────────────────╯
                    │ after review.ready │
                    ╰────────────────────╯
"""


def test_names_that_would_be_markup_are_escaped() -> None:
    drawn = graph(WHOLE["pipeline"])
    nasty = 'end"] --> x <b>&`#`'
    drawn = Graph(
        tuple(replace(node, lines=(nasty,)) for node in drawn.nodes),
        tuple(replace(edge, label=nasty) for edge in drawn.edges),
    )
    assert all(NODE.fullmatch(one) or EDGE.fullmatch(one) for one in render_mermaid(drawn).splitlines()[1:])


def test_gates_defaults_and_findings_are_at_their_nodes() -> None:
    drawn = graph(TEXTS["unhandled-typo"])
    nodes = {node.id: node for node in drawn.nodes}
    assert nodes["critic"].lines == ("critic", "✗ no-path", "! unreachable-hat")
    assert nodes[START].lines == ("start",)
    done = {node.id: node for node in graph(TEXTS["claims"]).nodes}[DONE]
    assert done.lines == ("done", "after build.done", "the checks pass")
    assert ("build.done [checked]", False) in {(edge.label, edge.dashed) for edge in graph(TEXTS["claims"]).edges}
    dashed = {edge.label for edge in graph(TEXTS["default-loop"]).edges if edge.dashed}
    assert dashed == {"review.ready", "review.rejected"}
    assert not any(edge.dashed for edge in graph(TEXTS["default-promise"]).edges if edge.target == DONE)


def test_ten_hats_fit_into_the_terminal() -> None:
    hats = "\n".join(
        f"  hat{n}: {{description: x, triggers: [topic.number{n}, again.from{n}],"
        f" publishes: [topic.number{n + 1}, again.from{max(0, n - 3)}, LOOP_COMPLETE]}}"
        for n in range(10)
    )
    shown = render_text(graph(f"event_loop: {{starting_event: topic.number0}}\nhats:\n{hats}\n"))
    assert max(map(len, shown.splitlines())) <= 100
    assert all(f"hat{n}" in shown for n in range(10))
