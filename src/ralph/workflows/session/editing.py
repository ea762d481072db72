"""What others did to the documents: what a person may change is taken in, what is the engine's is put back."""

from dataclasses import replace

from ralph.core.errors import RalphError
from ralph.documents.session import progress
from ralph.documents.session.markers import OVER, Marker
from ralph.workflows.merging import Queue
from ralph.workflows.session.planning import guardrails_of
from ralph.workflows.session.state import SessionState, Step
from ralph.workflows.session.terms import SessionTerms

_WITH = {Marker.WIP: (Step.EXECUTE, Step.SPLIT), Marker.PENDING: (Step.CHECK, Step.REVIEW, Step.MERGE)}
"""The steps that go with a marker; with any other a task is at rest."""


def edited(terms: SessionTerms, state: SessionState, path: str, content: str) -> SessionState:
    """A document was changed beside a run that is under way."""
    if state.texts.get(path) == content:
        return state
    if terms.layout.is_engines(path, state.metadata.iteration):
        return _put_back(state, path, content)
    state = replace(state, texts={**state.texts, path: content})
    if path != terms.layout.instructions_in(state.texts):
        return state
    try:
        return replace(state, guardrails=guardrails_of(terms, state.texts), stamp=None)
    except RalphError as error:
        return state.noting(f"the instructions are not taken: {error.what}")


def _put_back(state: SessionState, path: str, content: str) -> SessionState:
    """Refuse what somebody wrote in the place of a document of the engine; the store keeps a copy of it."""
    if path in state.texts:
        back = replace(state, written={**state.written, path: state.texts[path]})
        return back.noting(f"{path} was changed while the session is under way; it was put back")
    refused = state.noting(f"{path} is not taken in while the session is under way")
    if state.layout.has_metadata:
        return refused
    # The files are all the state there is: what stays there would count when the session is taken up again.
    return replace(refused, written={**state.written, path: ""}) if content.strip() else state


def taken_up(terms: SessionTerms, state: SessionState) -> SessionState:
    """The state with what the engine knows in line with the markers: a person may have changed them meanwhile."""
    number = state.metadata.iteration
    listed = state.progress.items
    if missing := [(name, Marker.TODO, "") for name in state.tasks if name not in listed]:
        state = replace(state, progress=_with_lines(state, number, missing))
    for name in [name for name, task in state.tasks.items() if task.is_missing]:
        if state.marker(name) in (Marker.TODO, Marker.WIP, Marker.PENDING):
            state = state.marked(name, Marker.FAILED, progress.MISSING)
        state = state.without_flow(name) if name in state.flow.tasks else state
    for name in [*state.flow.tasks, *(name for name in state.tasks if name not in state.flow.tasks)]:
        state = _in_line(terms, state, name) if terms.layout.has_metadata else _by_files(terms, state, name)
    merging = {name for name, flow in state.flow.tasks.items() if flow.step is Step.MERGE}
    queue = state.flow.queue
    if any(one.task not in merging for one in queue.waiting):
        waiting = tuple(one for one in queue.waiting if one.task in merging)
        state = state.with_flow(queue=Queue(waiting, queue.most_resolves))
    waiting_for = {one.task for one in state.flow.queue.waiting}
    for name in merging - waiting_for:
        state = state.with_task(name, step=Step.REVIEW)
    return state


def _with_lines(state: SessionState, number: int, lines: list[tuple[str, Marker, str]]) -> progress.Progress:
    if not state.layout.has_metadata:
        return state.progress.with_items(lines)
    return state.progress.with_section(progress.implementation_title(number), lines)


def _by_files(terms: SessionTerms, state: SessionState, name: str) -> SessionState:
    """What the engine knows of a task by its marker and its reports alone."""
    marker, found = state.marker(name), state.reports(name)
    last = max(found, default=0)
    step, attempt = Step.REST, last
    if marker is Marker.WIP:
        if last and found[last].verdict is None and found[last].part1:
            state = state.with_task(name, attempt=last).annotated(name, Marker.PENDING, "recovered")
            marker = Marker.PENDING
        else:
            step, attempt = Step.EXECUTE, last + 1
    if marker is Marker.PENDING:
        step, attempt = (Step.CHECK if terms.criteria(state.tasks[name]) else Step.REVIEW), max(1, last)
    if marker in OVER or not attempt:
        return state
    tries = max(0, attempt - state.progress.items[name].begins_at + 1)
    return state.with_task(name, step=step, attempt=attempt, tries=tries)


def _in_line(terms: SessionTerms, state: SessionState, name: str) -> SessionState:
    marker, flow = state.marker(name), state.of(name)
    steps = _WITH.get(marker, (Step.REST,))
    if marker is Marker.DONE:
        return state.without_flow(name) if name in state.flow.tasks else state
    if marker is Marker.TODO and flow.tries:
        return state.without_flow(name).with_task(name, why=flow.why, attempt=flow.attempt)
    if flow.step in steps:
        return state
    attempt = max(1, state.attempt(name)) if marker in _WITH else flow.attempt
    step, reported = steps[0], bool(terms.report(state, name, attempt)) if attempt else False
    if marker is Marker.WIP and reported:
        state = state.with_task(name, attempt=attempt).annotated(name, Marker.PENDING, "recovered")
        marker = Marker.PENDING
    if marker is Marker.PENDING:
        step = Step.CHECK if terms.criteria(state.tasks[name]) else Step.REVIEW
    return state.with_task(name, step=step, attempt=attempt, tries=max(1, flow.tries) if attempt else 0)
