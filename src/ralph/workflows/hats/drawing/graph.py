"""The graph of a preset: hats, the topics between them, the gates, and what is wrong where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ralph.documents.agent.events import matches
from ralph.documents.hats.definition import COORDINATOR, Hat
from ralph.workflows.hats.checking.findings import Finding, Severity
from ralph.workflows.hats.checking.model import Model

START, DONE, CANCELLED = "<start>", "<done>", "<cancelled>"
"""Nodes that are no hats; no hat has such an id."""


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
    """A topic on its way; dashed is what comes without being said."""

    source: str
    target: str
    label: str
    dashed: bool = False


@dataclass(frozen=True)
class Graph:
    """The nodes in the order in which they come up, and the edges between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def build_graph(model: Model, findings: Sequence[Finding]) -> Graph:
    """The whole workflow."""
    edges = tuple(dict.fromkeys((Edge(START, model.taker(model.start), model.start), *_edges(model))))
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
            meant = [one for one in model.listed(hat) if matches(topic, one)] if "*" in topic else [topic]
            for one in meant:
                yield Edge(hat.id, _target(model, one), _label(model, topic), one == model.default(hat.id))
                if other := model.refused(one):
                    yield Edge(hat.id, _target(model, other), f"else {other}", dashed=True)
        default = hat.default_publishes
        if default and default not in hat.publishes and default not in model.promises:
            yield Edge(hat.id, _target(model, default), default, dashed=True)
        if hat.max_activations and model.taker(f"{hat.id}.exhausted") != COORDINATOR:
            yield Edge(hat.id, _target(model, f"{hat.id}.exhausted"), f"{hat.id}.exhausted", dashed=True)
    if model.dispatched:
        given = {topic for hat in model.settings.hats for topic in (*hat.publishes, hat.default_publishes)}
        for topic in (one for one in model.triggers if not any(matches(g, one) for g in given if g)):
            yield Edge(COORDINATOR, model.taker(topic), topic)
    if not model.promised:
        yield Edge(COORDINATOR, DONE, model.settings.completion)


def _target(model: Model, topic: str) -> str:
    ends = {model.settings.cancellation: CANCELLED, model.settings.completion: DONE}
    return ends.get(topic) or model.taker(topic)


def _label(model: Model, topic: str) -> str:
    return f"{topic} [checked]" if model.refused(topic) else topic


def _node(model: Model, id: str, findings: Sequence[Finding]) -> Node:
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
    facts += [f"{hat.max_activations} turns at most" if hat.max_activations else ""]
    return hat.id, *(fact for fact in facts if fact)


def _shown_at(found: Finding) -> str:
    """The node that a finding is about."""
    if found.hat:
        return found.hat
    return START if found.code.startswith("start") else DONE if found.path[0] != "events" else ""
