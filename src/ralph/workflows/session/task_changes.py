"""Which tasks of a session changed their state after an event, for the feed of the run."""

from collections.abc import Iterator

from ralph.core.events import TaskChanged, TaskState
from ralph.documents.session.progress import Marker
from ralph.workflows.session.state import SessionState, Step

_FAILED_AT = {
    Step.EXECUTE: "not done",
    Step.CHECK: "failed its checks",
    Step.REVIEW: "failed review",
    Step.MERGE: "not merged",
    Step.SPLIT: "not split",
    Step.REPLAN: "not planned again",
}
_AT_MARKER = {
    Marker.DONE: TaskState.DONE,
    Marker.FAILED: TaskState.FAILED,
    Marker.CANCELLED: TaskState.CANCELLED,
}


def find_task_changes(before: SessionState, after: SessionState) -> tuple[TaskChanged, ...]:
    """The tasks that were planned, judged, retried, finished or blocked between two states."""
    if after.fault or (before.progress is after.progress and before.flow.tasks is after.flow.tasks):
        return ()
    changes = [_build_change(before, after, *found) for found in _find_states(before, after)]
    return tuple(sorted(changes, key=lambda change: change.state is TaskState.PLANNED and change.wave))


def _find_states(before: SessionState, after: SessionState) -> Iterator[tuple[str, TaskState, str]]:
    """Each task that changed its state, with the new state and the reason."""
    blocked_before = before.graph.blocked if before.tasks and not before.fault else {}
    for name in _find_touched(before, after):
        task, marker, flow = after.tasks[name], after.marker(name), after.flow_of(name)
        if name not in before.tasks:
            yield name, TaskState.PLANNED, f"after {', '.join(task.needs)}" if task.needs else ""
            continue
        was, step = before.marker(name), before.flow_of(name).step
        if step is not Step.REST and _has_failed(before, after, name):
            will_retry = before.flow_of(name).tries < after.guardrails.rework_attempts
            # The output of checks that passed follows that of the first that failed.
            why = flow.why.partition("\n$ ")[0]
            yield name, TaskState.RETRY if will_retry else TaskState.FAILED, f"{_FAILED_AT[step]}: {why}"
        elif step is Step.REVIEW and flow.step is Step.MERGE:
            yield name, TaskState.QUALIFIED, ""
        elif marker is not was and marker in _AT_MARKER:
            yield name, _AT_MARKER[marker], after.progress.items[name].note if marker is not Marker.DONE else ""
    for name, dead in after.graph.blocked.items():
        if name not in blocked_before and name in before.tasks:
            yield name, TaskState.BLOCKED, f"by {dead}"


def _has_failed(before: SessionState, after: SessionState, name: str) -> bool:
    """Whether an attempt failed: the task is at rest again, or the next attempt began at once."""
    old, new = before.flow_of(name), after.flow_of(name)
    is_at_rest = new.step is Step.REST and after.marker(name) in (Marker.TODO, Marker.FAILED)
    return is_at_rest or new.attempt > old.attempt


def _find_touched(before: SessionState, after: SessionState) -> list[str]:
    """The tasks whose line or flow is not the same object: comparing all by value would cost more with every task."""
    flows, items = before.flow.tasks, before.progress.items
    return [
        name
        for name in after.tasks
        if flows.get(name) is not after.flow.tasks.get(name) or items.get(name) is not after.progress.items.get(name)
    ]


def _build_change(before: SessionState, after: SessionState, name: str, state: TaskState, reason: str) -> TaskChanged:
    wave = next((number for number, names in enumerate(after.graph.waves, 1) if name in names), 0)
    task = after.tasks[name]
    return TaskChanged(
        task=name,
        title=task.title or task.objective,
        state=state,
        reason=reason,
        attempt=before.flow_of(name).tries if name in before.tasks else 0,
        most_attempts=after.guardrails.rework_attempts,
        wave=wave,
        needs=tuple(task.needs),
    )
