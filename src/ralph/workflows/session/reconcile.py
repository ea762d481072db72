"""Reconcile edits of the documents: accept what the user may change, and restore what is the engine's."""

from dataclasses import replace

from ralph.core.errors import RalphError
from ralph.documents.session import progress
from ralph.documents.session.metadata import State, Status
from ralph.documents.session.progress import FINAL_MARKERS, Marker
from ralph.documents.session.reports import ReviewVerdict
from ralph.documents.session.tasks import Task
from ralph.workflows.merge_rules import Queue, queue_path
from ralph.workflows.session.execution import has_open_work, reopen_task, withdraw_attempt
from ralph.workflows.session.planning import read_session_limits
from ralph.workflows.session.state import Flow, SessionSettings, SessionState, Step, TaskFlow

_WITH = {
    Marker.WIP: (Step.EXECUTE, Step.SPLIT),
    Marker.PENDING: (Step.CHECK, Step.REVIEW, Step.MERGE),
    Marker.FAILED: (Step.REST, Step.REPLAN, Step.SPLIT),
}
"""The steps that go with a marker; with any other a task is at rest."""
_OVER = (State.KNOWLEDGE_EXTRACTION, State.KNOWLEDGE_APPROVAL, State.COMPLETE)
"""States after the review of the whole."""


def accept_edit(settings: SessionSettings, state: SessionState, path: str, content: str) -> SessionState:
    """A document was changed beside a run that is in progress."""
    if state.texts.get(path) == content:
        return state
    is_own = path in (settings.flow_path, queue_path(settings.id))
    if is_own or settings.layout.is_engines(path, state.metadata.iteration):
        return _accept_definition(settings, state, path, content) or _restore(state, path, content)
    state = replace(state, texts={**state.texts, path: content})
    if path != settings.layout.instructions_in(state.texts):
        return state
    try:
        return replace(state, limits=read_session_limits(settings, state.texts), last_graph=None)
    except RalphError as error:
        return state.with_notice(f"the instructions are ignored: {error.what}")


def _accept_definition(settings: SessionSettings, state: SessionState, path: str, content: str) -> SessionState | None:
    """The state after the file of a task that has not started was deleted, or is there again; None for all else.

    A task without its file fails, as it does if the file is missing when the session starts.
    """
    layout, number = settings.layout, state.metadata.iteration
    name = next((name for name in state.tasks if layout.task(number, name) == path), "")
    if layout.is_classic or not name:
        return None
    texts = {**state.texts, path: content}
    if state.tasks[name].is_missing and content.strip():
        try:
            tasks = layout.read_tasks({path: content}, number)
        except RalphError as error:
            return state.with_notice(f"{path} is ignored: {error.what}")
        state = replace(state, texts=texts, tasks={**state.tasks, name: tasks[name]})
        return reopen_task(settings, state, name) if state.marker(name) is Marker.FAILED else state
    is_started = state.flow_of(name).started or state.marker(name) not in (Marker.TODO, Marker.FAILED)
    if content.strip() or is_started or state.tasks[name].is_missing:
        return None
    gone = Task(name, iteration=number, is_missing=True)
    state = replace(state, texts=texts, tasks={**state.tasks, name: gone}).without_task_flow(name)
    state = state.with_marker(name, Marker.FAILED, progress.MISSING)
    return state.with_notice(f"{path} was deleted, so {name} fails: its definition is missing")


def _restore(state: SessionState, path: str, content: str) -> SessionState:
    """Restore a document that only the engine may write. The store keeps a copy of the edit."""
    if path in state.texts:
        back = replace(state, written={**state.written, path: state.texts[path]})
        how = "changed" if content.strip() else "deleted or emptied"
        return back.with_notice(f"{path} was {how} while the session is running; Ralph reverted the change")
    refused = state.with_notice(f"{path} is ignored while the session is running")
    if not state.layout.is_classic:
        return refused
    # The files are all the state there is: what stays there would count when the session is resumed.
    return replace(refused, written={**state.written, path: ""}) if content.strip() else state


def reconcile(settings: SessionSettings, state: SessionState) -> SessionState:
    """The state with what the engine knows in line with the markers: the user may have changed them meanwhile."""
    number = state.metadata.iteration
    listed = state.progress.items
    if missing := [(name, Marker.TODO, "") for name in state.tasks if name not in listed]:
        state = replace(state, progress=_with_lines(state, number, missing))
    for name in [name for name, task in state.tasks.items() if task.is_missing]:
        if state.marker(name) in (Marker.TODO, Marker.WIP, Marker.PENDING):
            state = state.with_marker(name, Marker.FAILED, progress.MISSING)
        state = state.without_task_flow(name) if name in state.flow.tasks else state
    reconcile_task = _reconcile_by_flow if not settings.layout.is_classic else _reconcile_by_files
    for name in [*state.flow.tasks, *(name for name in state.tasks if name not in state.flow.tasks)]:
        state = reconcile_task(settings, state, name)
    merging = {name for name, flow in state.flow.tasks.items() if flow.step is Step.MERGE}
    queue = state.flow.queue
    if any(one.task not in merging for one in queue.waiting):
        waiting = tuple(one for one in queue.waiting if one.task in merging)
        state = state.with_flow(queue=Queue(waiting, queue.max_failed_resolutions))
    waiting_for = {one.task for one in state.flow.queue.waiting}
    for name in merging - waiting_for:
        state = state.with_task_flow(name, step=Step.REVIEW)
    return state


def revert_unfinished_tasks(settings: SessionSettings, state: SessionState, known: Flow) -> SessionState:
    """The state in which only tasks that the engine finished are done, whatever `progress.md` says.

    `known` is the flow that the engine stored. If it does not say which tasks are finished, the markers count.
    """
    if known.finished is None:
        return state
    marked = [name for name in state.tasks if state.marker(name) is Marker.DONE]
    finished = [name for name in known.finished if name in marked]
    for name in [name for name in marked if name not in known.finished]:
        state = _revert_task(settings, state, name, known.tasks.get(name, TaskFlow()))
    return state.with_flow(finished=tuple(finished))


def revert_unreviewed_end(state: SessionState) -> SessionState:
    """The state in which the session is not complete if only `metadata.yaml` says that it is."""
    data, known = state.metadata, state.flow.completed_iteration
    if data.state not in _OVER or data.status != Status.COMPLETED or known is None or known == data.iteration:
        return state
    if state.flow.reviewed_iteration == data.iteration and not has_open_work(state):
        state = state.with_metadata(status=Status.AWAITING_FEEDBACK)
        return state.with_notice(
            "metadata.yaml says that the session is complete, but its review did not accept it: it waits for feedback"
        )
    state = state.with_metadata(status=Status.IN_PROGRESS)
    # A review of the whole says nothing while tasks are left.
    state = state.with_state(State.BATCHING if has_open_work(state) else State.SESSION_REVIEW)
    return state.with_notice(
        "metadata.yaml says that the session is complete, but no reviewer accepted it: a reviewer reviews it now"
    )


def review_again_without_cancelled_tasks(state: SessionState) -> SessionState:
    """The state in which the whole is reviewed again if the user has cancelled every task that kept it from its end."""
    data, flow = state.metadata, state.flow
    if data.state not in _OVER or data.status != Status.AWAITING_FEEDBACK or flow.reviewed_iteration != data.iteration:
        return state
    if not flow.unfinished or state.has_work_left:
        return state
    state = state.with_metadata(status=Status.IN_PROGRESS).with_state(State.SESSION_REVIEW)
    state = state.with_flow(check_results="", failed_checks=(), session_checks_passed=False, unfinished=())
    return state.with_notice(
        f"no task is left to do without {', '.join(flow.unfinished)}, so a reviewer looks at the whole session again"
    )


def check_again_without_proof(state: SessionState) -> SessionState:
    """The state in which the checks of a session run again that only lacks a proof: the user may have accepted the work."""
    flow = state.flow
    if state.state is not State.COMPLETE or not flow.review_accepted or flow.ends == flow.checked_after_ends:
        return state
    return state.with_flow(check_results="", session_checks_passed=False)


def _revert_task(settings: SessionSettings, state: SessionState, name: str, flow: TaskFlow) -> SessionState:
    """The state in which a task has the marker that goes with its stored flow, with a notice for the user."""
    marker, note, what = Marker.TODO, "", "it still has to be done. Mark it [C] to leave it out."
    if children := state.metadata.replaced.get(name):
        marker, note = Marker.CANCELLED, state.progress.items[name].note
        what = f"it was split into {', '.join(children)}."
    elif flow.step is not Step.REST and (flow.started or flow.step is not Step.EXECUTE):
        marker = next(marker for marker, steps in _WITH.items() if flow.step in steps)
        note = state.progress.items[name].note
        what = "Ralph continues with it. Mark it [C] to leave it out."
    elif state.layout.is_classic and _is_qualified_by_report(state, name):
        # Another tool may have continued the session meanwhile. Its report counts as work, and not as a verdict.
        marker, what = Marker.PENDING, "it has a report, so Ralph checks and reviews it."
    accepted = "accepted" if settings.has_one_tree else "merged"
    # This is not a change of the task, so it need not be legal: the task never was done.
    listed = state.progress.with_item(name, marker, note)
    state = replace(state, progress=listed, touched=state.touched | {name})
    return state.with_notice(f"progress.md marks {name} as done, but Ralph has not {accepted} it: {what}")


def _is_qualified_by_report(state: SessionState, name: str) -> bool:
    found = state.reports(name)
    return bool(found) and found[max(found)].verdict is ReviewVerdict.QUALIFIED


def _with_lines(state: SessionState, number: int, lines: list[tuple[str, Marker, str]]) -> progress.Progress:
    if state.layout.is_classic:
        return state.progress.with_items(lines)
    return state.progress.with_section(progress.implementation_title(number), lines)


def _reconcile_by_files(settings: SessionSettings, state: SessionState, name: str) -> SessionState:
    """What the engine knows of a task by its marker and its reports alone."""
    marker, found = state.marker(name), state.reports(name)
    last = max(found, default=0)
    step, attempt = Step.REST, last
    if marker is Marker.WIP:
        if last and found[last].verdict is None and found[last].part1:
            state = state.with_task_flow(name, attempt=last).with_annotation(name, Marker.PENDING, "recovered")
            marker = Marker.PENDING
        else:
            step, attempt = Step.EXECUTE, last + 1
    if marker is Marker.PENDING:
        step, attempt = (Step.CHECK if settings.compile_task_checks(state.tasks[name]) else Step.REVIEW), max(1, last)
    if marker in FINAL_MARKERS or not attempt:
        return state
    attempts_in_iteration = max(0, attempt - state.progress.items[name].begins_at + 1)
    return state.with_task_flow(
        name, step=step, attempt=attempt, attempts_in_iteration=attempts_in_iteration, started=step is Step.EXECUTE
    )


def continue_reviews(state: SessionState, known: Flow) -> SessionState:
    """The state that asks again for the reviews that were in progress when an engine died, so that Ralph pays for one each.

    The reviewer has seen checks of the tree as it was. They run again after the review, before its verdict counts.
    """
    if known.reviewing and state.state is State.SESSION_REVIEW:
        state = state.with_flow(
            check_results=known.check_results,
            failed_checks=known.failed_checks,
            session_checks_passed=known.session_checks_passed,
            reviewing=True,
            checks_again=True,
        )
    for name, flow in known.tasks.items():
        here = state.flow_of(name)
        if flow.reviewing and here.step is Step.CHECK and here.attempt == flow.attempt:
            again = {"step": Step.REVIEW, "check_results": flow.check_results, "reviewing": True, "checks_again": True}
            state = state.with_task_flow(name, **again)
    return state


def _reconcile_by_flow(settings: SessionSettings, state: SessionState, name: str) -> SessionState:
    marker, flow = state.marker(name), state.flow_of(name)
    steps = _WITH.get(marker, (Step.REST,))
    if marker is Marker.DONE:
        return state.without_task_flow(name) if name in state.flow.tasks else state
    if flow.step is Step.EXECUTE and not flow.started and marker in (Marker.TODO, Marker.FAILED):
        return state if _are_needs_done(state, name) else withdraw_attempt(state, name)
    if marker is Marker.TODO and flow.attempts_in_iteration:
        # Only an attempt with a report has happened. Another number would skip the work of one that was interrupted.
        reported = max(state.reports(name), default=0)
        return state.without_task_flow(name).with_task_flow(name, why=flow.why, attempt=reported)
    if flow.step in steps:
        return state
    attempt = max(1, state.attempt(name)) if marker in _WITH else flow.attempt
    step, reported = steps[0], bool(settings.report(state, name, attempt)) if attempt else False
    if marker is Marker.WIP and reported:
        state = state.with_task_flow(name, attempt=attempt).with_annotation(name, Marker.PENDING, "recovered")
        marker = Marker.PENDING
    if marker is Marker.PENDING:
        step = Step.CHECK if settings.compile_task_checks(state.tasks[name]) else Step.REVIEW
    is_started = step is Step.EXECUTE
    attempts_in_iteration = max(1, flow.attempts_in_iteration) if attempt else 0
    return state.with_task_flow(
        name, step=step, attempt=attempt, attempts_in_iteration=attempts_in_iteration, started=is_started
    )


def _are_needs_done(state: SessionState, name: str) -> bool:
    """Whether everything that a task depends on is done: the user may have reset some of it meanwhile."""
    replaced = state.metadata.replaced
    needed = [one for need in state.tasks[name].needs for one in replaced.get(need, (need,))]
    return all(state.marker(one) is Marker.DONE for one in needed)
