"""`ralph tools task`: the task queue that agents share."""

import sys
from collections.abc import Callable

from ralph.documents.agent.events import dump_json
from ralph.documents.agent.tasks import (
    CLOSED,
    FAILED,
    IN_PROGRESS,
    OPEN,
    PRIORITIES,
    STATUSES,
    AgentTask,
    AgentTasks,
    render_new_task,
)
from ralph.tools import files
from ralph.tools.arguments import (
    COUNT,
    FORMAT,
    Argument,
    Command,
    ToolError,
    choice,
    non_empty,
    number_in,
    run_group,
    say,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ABOUT = "The task queue that the agents of a project share. Name a task by its id or its key."
FILE = "tasks.jsonl"
SHORT_TITLE = 60


def _read(args: "dict[str, Any]") -> AgentTasks:
    """The tasks. Lines that are not tasks are reported."""
    path = files.find_shared_path(args, FILE)
    tasks = AgentTasks.parse(files.read(path))
    for number, why, _ in tasks.broken:
        print(f"ralph: {path}, line {number} is not a task and is ignored: {why}", file=sys.stderr)
    return tasks


def _change(args: "dict[str, Any]", by: Callable[[AgentTasks], AgentTask]) -> AgentTask:
    """Change tasks under the lock. Lines that are not tasks are moved to a file of their own."""
    path = files.find_shared_path(args, FILE)
    changed: list[AgentTask] = []
    broken: list[tuple[int, str, str]] = []

    def change(data: bytes) -> bytes:
        tasks = AgentTasks.parse(data)
        changed[:], broken[:] = [by(tasks)], tasks.broken
        if broken:
            files.append(
                f"{path}.broken", "".join(line + "\n" for _, _, line in broken).encode(errors="surrogateescape")
            )
        return tasks.render()

    files.change(path, change)
    for number, why, _ in broken:
        print(f"ralph: {path}, line {number} was not a task and is now in {FILE}.broken: {why}", file=sys.stderr)
    return changed[0]


def _find(tasks: AgentTasks, args: "dict[str, Any]") -> AgentTask:
    if task := tasks.find(args["id"], files.run_id(args)):
        return task
    where = files.find_shared_path(args, FILE)
    raise ToolError(
        f"Task {args['id']} not found", "`ralph tools task list --all` lists all tasks", where=where, code=1
    )


def _new(tasks: AgentTasks, args: "dict[str, Any]", run: str) -> AgentTask:
    title = args.get("title", "").strip() or args.get("description", "").strip().partition("\n")[0][:100]
    if not title:
        raise ToolError("the task has no title", 'give it in quotes: "Add the flag, with tests"')
    id = files.make_id("task")
    while id in tasks.by_id:
        id = files.make_id("task")
    about, key = args.get("description", ""), args.get("key", "")
    priority = args.get("priority", 3)
    task = AgentTask(
        render_new_task(id, title, files.now(), description=about, key=key, priority=priority, blocked_by=[], run=run)
    )
    tasks.by_id[id] = task
    return task


def _set_blockers(tasks: AgentTasks, task: AgentTask, args: "dict[str, Any]") -> AgentTask:
    """Set the blockers of a task. Tasks that would wait for each other are refused."""
    ids = []
    for name in (part.strip() for part in args.get("blocked_by", "").split(",") if part.strip()):
        blocker = tasks.find(name, task.run)
        if not blocker:
            raise ToolError(
                f"there is no task {name} that could block this one", "add that task first, then give its id or key"
            )
        ids.append(blocker.id)
    if ids:
        task.change(blocked_by=list(dict.fromkeys(ids)))
    if circle := tasks.circle(task):
        raise ToolError(f"these tasks would wait for each other: {' -> '.join(circle)}", "remove one of them")
    return task


def _add(args: "dict[str, Any]") -> int:
    run = files.run_id(args)
    return _show_change(
        "Created", _change(args, lambda tasks: _set_blockers(tasks, _new(tasks, args, run), args)), args
    )


def _ensure(args: "dict[str, Any]") -> int:
    run, verb = files.run_id(args), ["Ensured"]

    def ensure(tasks: AgentTasks) -> AgentTask:
        task = tasks.find_by_key(args["key"], run)
        verb[0] = "Reused" if task else "Ensured"
        if not task:
            return _set_blockers(tasks, _new(tasks, args, run), args)
        new: dict[str, object] = {name: args[name] for name in ("title", "description") if args.get(name, "").strip()}
        task.change(**new, **({"priority": args["priority"]} if "priority" in args else {}))
        return _set_blockers(tasks, task, args)

    task = _change(args, ensure)
    return _show_change(verb[0], task, args)


def _show_change(verb: str, task: AgentTask, args: "dict[str, Any]") -> int:
    lines = [f"{verb} task {task.id}", f"  Title: {task.title}"]
    lines += [f"  Key: {task.key}"] if task.key else []
    lines += [f"  Priority: {task.priority}"]
    lines += [f"  Status: {task.status}"] if task.status != OPEN else []
    lines += [f"  Blocked by: {', '.join(task.blocked_by)}"] if task.blocked_by else []
    return _say(task, args, "\n".join(lines), None)


def _say(task: AgentTask, args: "dict[str, Any]", text: str, indent: int | None) -> int:
    by_format = {"table": text, "json": dump_json(task.row, indent), "quiet": task.id}
    return say(by_format[args["format"]])


def _list(args: "dict[str, Any]") -> int:
    tasks = _read(args).all
    if status := args.get("status"):
        tasks = [task for task in tasks if task.status == status]
    elif "all" not in args:
        tasks = [task for task in tasks if not task.is_over]
    if "days" in args:
        since = files.day(args["days"])
        tasks = [task for task in tasks if max(task.created, task.closed)[:10] >= since]
    ranks = {IN_PROGRESS: 0, OPEN: 1, CLOSED: 2, FAILED: 3}
    tasks.sort(key=lambda task: (ranks.get(task.status, 1), task.priority, task.created))
    return _table(tasks[: args.get("limit", len(tasks))], args, "No tasks found", with_status=True)


def _ready(args: "dict[str, Any]") -> int:
    run = "" if "all" in args else files.run_id(args)
    return _table(_read(args).ready(run), args, "No ready tasks", with_status=False)


def _table(tasks: list[AgentTask], args: "dict[str, Any]", nothing: str, *, with_status: bool) -> int:
    if args["format"] == "json":
        return say(dump_json([task.row for task in tasks], 2))
    if args["format"] == "quiet":
        return say("\n".join(task.id for task in tasks)) if tasks else 0
    if not tasks:
        return say(nothing)
    lines = [_line("ID", "Status" if with_status else None, "Priority", "Title", "Key")]
    lines.append("-" * (131 if with_status else 115))
    for task in tasks:
        status = task.status if with_status else None
        lines.append(_line(task.id, status, str(task.priority), task.title, task.key or "-"))
    return say("\n".join(lines))


def _line(id: str, status: str | None, priority: str, title: str, key: str) -> str:
    title = " ".join(title.split())
    title = title if len(title) <= SHORT_TITLE else title[: SHORT_TITLE - 1] + "…"
    return f"{id:<20} {'' if status is None else f'{status:<15} '}{priority:<8} {title:<60} {key:<24}".rstrip()


def _become(status: str, verb: str) -> "Callable[[dict[str, Any]], int]":
    def become(args: "dict[str, Any]") -> int:
        def change(tasks: AgentTasks) -> AgentTask:
            task = _find(tasks, args)
            if task.status != status:
                task.become(status, files.now())
            return task

        task = _change(args, change)
        return _say(task, args, f"{verb} task: {task.id} - {task.title}", None)

    return become


def _show(args: "dict[str, Any]") -> int:
    task = _find(_read(args), args)
    times = [(name.capitalize(), task.row.get(name)) for name in ("created", "started", "closed")]
    lines = [("ID", task.id), ("Title", task.title), ("Description", task.description), ("Status", task.status)]
    lines += [("Priority", str(task.priority)), ("Key", task.key), ("Blocked by", ", ".join(task.blocked_by))]
    text = "\n".join(f"{name + ':':<12} {value}" for name, value in [*lines, *times] if value)
    return _say(task, args, text, 2)


_ID = Argument("id", help="The id or the key of the task.")
_DETAILS = (
    Argument("-p", "--priority", metavar="1-5", type=number_in(PRIORITIES), help="1 is the highest. Default: 3."),
    Argument("-d", "--description", metavar="TEXT", help="What must be true when it is done."),
    Argument("--blocked-by", metavar="ID,ID", help="The tasks that must be closed first, by id or key."),
    FORMAT,
)
COMMANDS = (
    Command("add", "Add a task.", _add, Argument("title", nargs="+", help="What to do."), *_DETAILS),
    Command(
        "ensure",
        "Add a task, or update the task of this run with the same key. Its status does not change.",
        _ensure,
        Argument("title", nargs="*", default="", help="What to do."),
        Argument(
            "--key",
            metavar="KEY",
            type=non_empty,
            required=True,
            help="A stable name, for example feature:step-01:parse.",
        ),
        *_DETAILS,
    ),
    Command(
        "list",
        "List the open tasks.",
        _list,
        Argument("-s", "--status", type=choice, choices=STATUSES, help="Only tasks with this status."),
        Argument(
            "-d", "--days", metavar="N", type=number_in(COUNT), help="Only tasks created or closed in the last N days."
        ),
        Argument("-l", "--limit", metavar="N", type=number_in(COUNT), help="At most N."),
        Argument("-a", "--all", action="store_true", help="Also tasks that are closed or failed."),
        FORMAT,
    ),
    Command(
        "ready",
        "List the tasks of this run that can be started now.",
        _ready,
        Argument("-a", "--all", action="store_true", help="The tasks of all runs."),
        FORMAT,
    ),
    Command("start", "Mark a task as started.", _become(IN_PROGRESS, "Started"), _ID, FORMAT),
    Command("close", "Mark a task as done.", _become(CLOSED, "Closed"), _ID, FORMAT),
    Command("fail", "Mark a task as failed.", _become(FAILED, "Failed"), _ID, FORMAT),
    Command("reopen", "Open a task again.", _become(OPEN, "Reopened"), _ID, FORMAT),
    Command("show", "Show everything about a task.", _show, _ID, FORMAT),
)


def list_open_tasks() -> "list[tuple[str, str]]":
    """The id and title of every task that is not over, for shells that complete ids."""
    return [(task.id, task.title) for task in _read({}).all if not task.is_over]


def run_task(words: list[str]) -> int:
    """Run `ralph tools task WORDS...`."""
    return run_group("ralph tools task", ABOUT, COMMANDS, words)


TOOLS = {"task": (run_task, COMMANDS)}
