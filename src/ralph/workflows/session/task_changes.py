"""Which tasks of a session changed their state after an event, for the feed of the run."""

from collections.abc import Iterator

from ralph.core.events import TaskChanged, TaskState
from ralph.documents.session.metadata import Status
from ralph.documents.session.progress import BY_USER, Marker
from ralph.workflows.session.execution import MAX_REPLANS
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


def find_changes_while_stopped(before: SessionState, after: SessionState) -> tuple[TaskChanged, ...]:
    """What became of tasks while no engine ran: definitions that are gone, what that blocks, and what the user cancelled.

    Also the tasks that are done: an engine that was killed may not have said so any more.
    """
    if after.fault:
        return ()
    after = after.with_current_graph()
    found = [
        one
        for one in find_task_changes(before, after)
        if after.tasks[one.task].is_missing or one.state is TaskState.BLOCKED
    ]
    for name in after.tasks:
        item = after.progress.items.get(name)
        if item and item.marker is Marker.CANCELLED and BY_USER in item.note:
            found.append(_build_change(before, after, name, TaskState.CANCELLED, item.note))
        elif item and item.marker is Marker.DONE:
            found.append(_build_change(before, after, name, TaskState.DONE, ""))
    return tuple(found)


def _find_states(before: SessionState, after: SessionState) -> Iterator[tuple[str, TaskState, str]]:
    """Each task that changed its state or its definition, with the new state and the reason."""
    told: set[str] = set()
    for name in _find_touched(before, after):
        task = after.tasks[name]
        if name not in before.tasks:
            yield name, TaskState.PLANNED, f"after {', '.join(task.needs)}" if task.needs else ""
        elif found := _find_rescoped(before, after, name) or _find_state(before, after, name):
            yield name, *found
            told.add(name)
    for name in _find_redefined(before, after):
        if name not in told and after.marker(name) is Marker.TODO:
            yield name, TaskState.PLANNED, "changed by the planner"
    blocked = after.blocked_tasks
    blocked_before = before.blocked_tasks if before.tasks and not before.fault else {}
    for name in after.sort_tasks(blocked.keys() - blocked_before.keys()):
        if name in before.tasks:
            yield name, TaskState.BLOCKED, f"by {blocked[name]}"
    for name in after.sort_tasks(blocked_before.keys() - blocked.keys()):
        if name in after.tasks and after.marker(name) is Marker.TODO:
            yield name, TaskState.PLANNED, "no longer blocked"


def _find_rescoped(before: SessionState, after: SessionState, name: str) -> tuple[TaskState, str] | None:
    """The new state of a task for which the user asked for something else, or that was planned again for that reason."""
    old, new = before.flow_of(name), after.flow_of(name)
    if new.rescoped and not old.rescoped:
        if new.replans > MAX_REPLANS:
            return TaskState.FAILED, f"not done: {new.why}"
        return TaskState.RETRY, f"{new.why}; a planner changes the task"
    if old.rescoped and not new.rescoped:
        return TaskState.PLANNED, _describe_reopening(before, after, name)
    return None


def _describe_reopening(before: SessionState, after: SessionState, name: str) -> str:
    """What happened to a failed task that is to do again: a planner changed it, or left it as it was."""
    return "planned again" if before.tasks[name] != after.tasks[name] else "to be tried again, as it was defined"


def _find_state(before: SessionState, after: SessionState, name: str) -> tuple[TaskState, str] | None:
    """The new state of a task and the reason; None if it stays as it was."""
    was, marker, step, flow = before.marker(name), after.marker(name), before.flow_of(name).step, after.flow_of(name)
    note = after.progress.items[name].note if name in after.progress.items else ""
    if marker is Marker.FAILED and after.tasks[name].is_missing:
        return (TaskState.FAILED, note) if was is not marker else None
    if step is not Step.REST and _has_failed(before, after, name):
        is_next_asked_for = marker is Marker.TODO or flow.attempt > before.flow_of(name).attempt
        # Work that could not be merged stays on its branch until the user decides: no attempt follows by itself.
        is_over = after.metadata.status == Status.ABORTED
        will_retry = not is_over and (after.is_retryable(name) or (is_next_asked_for and not flow.rescoped))
        # The output of checks that passed follows that of the first that failed.
        why = flow.why.partition("\n$ ")[0]
        return TaskState.RETRY if will_retry else TaskState.FAILED, f"{_FAILED_AT[step]}: {why}"
    if step is Step.REVIEW and flow.step is Step.MERGE:
        return TaskState.QUALIFIED, ""
    if was is Marker.FAILED and marker is Marker.TODO:
        return TaskState.PLANNED, _describe_reopening(before, after, name)
    if marker is not was and marker in _AT_MARKER:
        return _AT_MARKER[marker], note if marker is not Marker.DONE else ""
    return None


def _has_failed(before: SessionState, after: SessionState, name: str) -> bool:
    """Whether an attempt failed: the task is at rest again, or the next attempt began at once."""
    old, new = before.flow_of(name), after.flow_of(name)
    is_at_rest = new.step is Step.REST and after.marker(name) in (Marker.TODO, Marker.FAILED)
    return is_at_rest or new.attempt > old.attempt


def _find_touched(before: SessionState, after: SessionState) -> list[str]:
    """The tasks whose line or flow is not the same object: comparing all by value would cost more with every task."""
    flows, items = before.flow.tasks, before.progress.items
    touched = [
        name
        for name in after.tasks
        if flows.get(name) is not after.flow.tasks.get(name) or items.get(name) is not after.progress.items.get(name)
    ]
    return after.sort_tasks(touched)


def _find_redefined(before: SessionState, after: SessionState) -> list[str]:
    """The tasks that a planner defined in another way. Only a planner's turn leads to new definitions."""
    if before.tasks is after.tasks:
        return []
    return [name for name, task in after.tasks.items() if name in before.tasks and before.tasks[name] != task]


def _build_change(before: SessionState, after: SessionState, name: str, state: TaskState, reason: str) -> TaskChanged:
    wave = next((number for number, names in enumerate(after.graph.waves, 1) if name in names), 0)
    task = after.tasks[name]
    return TaskChanged(
        task=name,
        title=task.title or task.objective,
        state=state,
        reason=reason,
        attempt=before.flow_of(name).attempts_in_iteration if name in before.tasks else 0,
        most_attempts=after.limits.rework_attempts,
        wave=wave,
        needs=tuple(task.needs),
    )
