"""Which tasks of a session can start: what they depend on is merged, and nobody else works on the same files."""

from collections.abc import Iterable, Mapping

from ralph.core.graphs import heights, natural, waves
from ralph.documents.session.markers import Marker
from ralph.documents.session.tasks import TaskFile
from ralph.workflows.session.state import SessionState, Step

_ACTIVE = (Marker.WIP, Marker.PENDING)


def satisfied(state: SessionState, task: str) -> bool:
    """Whether what a dependant needs of a task is there: it is done, or what it was split into is."""
    children = state.metadata.replaced.get(task, ())
    if children:
        return all(satisfied(state, child) for child in children)
    return state.marker(task) is Marker.DONE


def dead(state: SessionState, task: str) -> bool:
    """Whether a task will not be done in this iteration: it failed for good, or was cancelled and replaced by nothing."""
    children = state.metadata.replaced.get(task, ())
    if children:
        return any(dead(state, child) for child in children)
    marker = state.marker(task)
    return marker is Marker.CANCELLED or (marker is Marker.FAILED and not retryable(state, task))


def retryable(state: SessionState, task: str) -> bool:
    """Whether a task that failed is tried again by itself."""
    flow = state.of(task)
    exists = task in state.tasks
    return exists and not flow.branch and flow.tries < state.guardrails.rework_attempts


def blocked_by(state: SessionState, task: str) -> str:
    """The dead task that keeps another from ever starting; empty where there is none."""
    seen: set[str] = set()
    ahead = list(state.tasks[task].depends_on) if task in state.tasks else []
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        if dead(state, one):
            return one
        ahead += state.tasks[one].depends_on if one in state.tasks else ()
    return ""


def ready(state: SessionState, *, by_waves: bool, most: int) -> list[str]:
    """The tasks that can start now, at most so many: first those on which most others stand, else in natural order."""
    active = [name for name in state.tasks if _is_active(state, name)]
    room = most - sum(state.of(name).step is Step.EXECUTE for name in active)
    taken = {file for name in active for file in state.tasks[name].files}
    alone = any(_is_sequential(state, name) for name in active)
    allowed = set(current_wave(state)[1]) if by_waves else None
    chosen: list[str] = []
    high = heights(tuple((name, task.depends_on) for name, task in state.tasks.items()))
    for name in sorted(state.tasks, key=lambda name: (-high[name], natural(name))):
        if room <= len(chosen) or alone:
            break
        if allowed is not None and name not in allowed:
            continue
        task = state.tasks[name]
        if not _may_start(state, task) or taken.intersection(task.files):
            continue
        if _is_sequential(state, name) and (active or chosen):
            continue
        chosen.append(name)
        taken.update(task.files)
        alone = _is_sequential(state, name)
    return chosen


def current_wave(state: SessionState) -> tuple[int | None, list[str]]:
    """The lowest wave with a task that is not over, by its number, and its tasks."""
    for number, names in enumerate(wave_list(state.tasks), 1):
        if any(not _is_over(state, name) for name in names):
            return number, names
    return None, []


def wave_list(tasks: Mapping[str, TaskFile]) -> list[list[str]]:
    """The waves: levels of the tasks by what they depend on."""
    return waves({name: task.depends_on for name, task in tasks.items()}, "tasks/")


def counts(state: SessionState) -> dict[str, int]:
    """How many tasks there are, by what came of them."""
    markers = [state.marker(name) for name in state.tasks]
    done, failed, gone = (markers.count(one) for one in (Marker.DONE, Marker.FAILED, Marker.CANCELLED))
    return {
        "total": len(markers),
        "completed": done,
        "failed": failed,
        "pending": len(markers) - done - failed - gone,
        "cancelled": gone,
    }


def dependants(tasks: Iterable[TaskFile], task: str) -> list[str]:
    """The tasks that depend on one directly."""
    return [one.id for one in tasks if task in one.depends_on]


def _is_active(state: SessionState, name: str) -> bool:
    return state.marker(name) in _ACTIVE or state.of(name).step is not Step.REST


def _is_over(state: SessionState, name: str) -> bool:
    return satisfied(state, name) or dead(state, name) or bool(blocked_by(state, name))


def _may_start(state: SessionState, task: TaskFile) -> bool:
    marker = state.marker(task.id)
    if state.of(task.id).step is not Step.REST or task.id in state.metadata.replaced:
        return False
    if marker is not Marker.TODO and not (marker is Marker.FAILED and retryable(state, task.id)):
        return False
    return all(satisfied(state, needed) for needed in task.depends_on)


def _is_sequential(state: SessionState, name: str) -> bool:
    return state.tasks[name].type.lower() == "sequential"
