"""What a key of work says about it. Keys of sessions are parsed only for sessions, because commands have to start fast."""

from collections.abc import Iterable

from ralph.core.ids import SESSION_WORKFLOWS, WorkKey, WorkKind
from ralph.view.model import TaskView


def task_of(workflow: str, key: str, tasks: Iterable[TaskView] = ()) -> str:
    """The task that a turn or a check is for; empty for the whole run. `tasks` are those of the run so far."""
    if workflow not in SESSION_WORKFLOWS:
        return ""
    merge = WorkKey.parse(key)
    if merge and merge.kind is WorkKind.MERGE:
        return name_task(merge.worktree, tasks)
    from ralph.workflows.session.work_keys import OF_TASK, SessionKey

    work = SessionKey.parse(key)
    return work.task if work and work.kind in OF_TASK else ""


def iteration_of(workflow: str, key: str) -> int:
    """The iteration that a key names; 0 if it names none. Keys of a session also name attempts of a task."""
    work = WorkKey.parse(key)
    if work and work.kind is WorkKind.MERGE and workflow in SESSION_WORKFLOWS:
        return _split_worktree(work.worktree)[1]
    if work:
        return work.number
    if workflow not in SESSION_WORKFLOWS:
        return 0
    from ralph.workflows.session.work_keys import SessionKey

    session = SessionKey.parse(key)
    return session.iteration or session.attempt if session else 0


def name_task(worktree: str, tasks: Iterable[TaskView]) -> str:
    """The task of a session's worktree. The name of the worktree has no dots: `task-4_1/2` is of task-4.1."""
    name = _split_worktree(worktree)[0]
    return next((task.id for task in tasks if task.id.replace(".", "_") == name), name)


def _split_worktree(name: str) -> tuple[str, int]:
    """The task and the attempt in the name of a session's worktree, such as `task-2/1`."""
    task, _, attempt = name.rpartition("/")
    return task, int(attempt) if attempt.isdigit() else 0


def describe_work(workflow: str, key: str, tasks: Iterable[TaskView] = ()) -> str:
    """When something was checked: `before the run`, `in iteration 3`, `in attempt 2 of task-1`, `in the merge of task-1`."""
    work = WorkKey.parse(key)
    if work and work.kind is WorkKind.BASELINE:
        return "before the run"
    if work and work.kind is WorkKind.MERGE:
        return f"in the merge of {name_task(work.worktree, tasks)}"
    if work and work.kind is WorkKind.JUDGE_TESTS:
        return f"in iteration {work.number}, with the tests of the judge"
    number = iteration_of(workflow, key)
    if task := task_of(workflow, key, tasks):
        return f"in attempt {number} of {task}"
    return f"in iteration {number}" if number else f"in {key}"
