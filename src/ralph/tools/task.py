"""`ralph tools task`: the queue of work."""

import sys
from collections.abc import Callable

from ralph.documents.agent.json_text import dumps
from ralph.documents.agent.tasks import CLOSED, FAILED, IN_PROGRESS, OPEN, PRIORITIES, STATUSES, Task, Tasks, new_row
from ralph.tools import place
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

ABOUT = "The queue of work that the agents of a project share. A task is named by its id or its key."
FILE = "tasks.jsonl"
SHORT_TITLE = 60


def _read(given: "dict[str, Any]") -> Tasks:
    """The tasks as they are; lines that are none are named."""
    path = place.shared(given, FILE)
    tasks = Tasks.parse(place.read(path))
    for number, why, _ in tasks.broken:
        print(f"ralph: {path}, line {number} is no task and is passed over: {why}", file=sys.stderr)
    return tasks


def _change(given: "dict[str, Any]", by: Callable[[Tasks], Task]) -> Task:
    """Change tasks, with no other change between; lines that are none are moved to a file of their own."""
    path = place.shared(given, FILE)
    changed: list[Task] = []
    broken: list[tuple[int, str, str]] = []

    def change(data: bytes) -> bytes:
        tasks = Tasks.parse(data)
        changed[:], broken[:] = [by(tasks)], tasks.broken
        if broken:
            place.append(
                f"{path}.broken", "".join(line + "\n" for _, _, line in broken).encode(errors="surrogateescape")
            )
        return tasks.render()

    place.change(path, change)
    for number, why, _ in broken:
        print(f"ralph: {path}, line {number} was no task and is now in {FILE}.broken: {why}", file=sys.stderr)
    return changed[0]


def _find(tasks: Tasks, given: "dict[str, Any]") -> Task:
    if task := tasks.find(given["id"], place.run_id(given)):
        return task
    where = place.shared(given, FILE)
    raise ToolError(f"Task {given['id']} not found", "`ralph tools task list --all` shows them", where=where, code=1)


def _new(tasks: Tasks, given: "dict[str, Any]", run: str) -> Task:
    title = given.get("title", "").strip() or given.get("description", "").strip().partition("\n")[0][:100]
    if not title:
        raise ToolError("the task has no title", 'give it in quotes: "Add the flag, with tests"')
    id = place.new_id("task")
    while id in tasks.by_id:
        id = place.new_id("task")
    about, key = given.get("description", ""), given.get("key", "")
    priority = given.get("priority", 3)
    task = Task(new_row(id, title, place.now(), description=about, key=key, priority=priority, blocked_by=[], run=run))
    tasks.by_id[id] = task
    return task


def _blocked(tasks: Tasks, task: Task, given: "dict[str, Any]") -> Task:
    """A task with the blockers that were given; those that can never be closed are refused."""
    ids = []
    for name in (part.strip() for part in given.get("blocked_by", "").split(",") if part.strip()):
        blocker = tasks.find(name, task.run)
        if not blocker:
            raise ToolError(f"there is no task {name} to be blocked by", "make that one first, then name its id or key")
        ids.append(blocker.id)
    if ids:
        task.change(blocked_by=list(dict.fromkeys(ids)))
    if circle := tasks.circle(task):
        raise ToolError(f"these tasks would wait for each other: {' -> '.join(circle)}", "leave one of them out")
    return task


def _add(given: "dict[str, Any]") -> int:
    run = place.run_id(given)
    return _show_change("Created", _change(given, lambda tasks: _blocked(tasks, _new(tasks, given, run), given)), given)


def _ensure(given: "dict[str, Any]") -> int:
    run, verb = place.run_id(given), ["Ensured"]

    def ensure(tasks: Tasks) -> Task:
        task = tasks.keyed(given["key"], run)
        verb[0] = "Reused" if task else "Ensured"
        if not task:
            return _blocked(tasks, _new(tasks, given, run), given)
        new: dict[str, object] = {name: given[name] for name in ("title", "description") if given.get(name, "").strip()}
        task.change(**new, **({"priority": given["priority"]} if "priority" in given else {}))
        return _blocked(tasks, task, given)

    task = _change(given, ensure)
    return _show_change(verb[0], task, given)


def _show_change(verb: str, task: Task, given: "dict[str, Any]") -> int:
    lines = [f"{verb} task {task.id}", f"  Title: {task.title}"]
    lines += [f"  Key: {task.key}"] if task.key else []
    lines += [f"  Priority: {task.priority}"]
    lines += [f"  Status: {task.status}"] if task.status != OPEN else []
    lines += [f"  Blocked by: {', '.join(task.blocked_by)}"] if task.blocked_by else []
    return _say(task, given, "\n".join(lines), None)


def _say(task: Task, given: "dict[str, Any]", text: str, indent: int | None) -> int:
    by_format = {"table": text, "json": dumps(task.row, indent), "quiet": task.id}
    return say(by_format[given["format"]])


def _list(given: "dict[str, Any]") -> int:
    tasks = _read(given).all
    if status := given.get("status"):
        tasks = [task for task in tasks if task.status == status]
    elif "all" not in given:
        tasks = [task for task in tasks if not task.is_over]
    if "days" in given:
        since = place.day(given["days"])
        tasks = [task for task in tasks if max(task.created, task.closed)[:10] >= since]
    ranks = {IN_PROGRESS: 0, OPEN: 1, CLOSED: 2, FAILED: 3}
    tasks.sort(key=lambda task: (ranks.get(task.status, 1), task.priority, task.created))
    return _table(tasks[: given.get("limit", len(tasks))], given, "No tasks found", with_status=True)


def _ready(given: "dict[str, Any]") -> int:
    run = "" if "all" in given else place.run_id(given)
    return _table(_read(given).ready(run), given, "No ready tasks", with_status=False)


def _table(tasks: list[Task], given: "dict[str, Any]", nothing: str, *, with_status: bool) -> int:
    if given["format"] == "json":
        return say(dumps([task.row for task in tasks], 2))
    if given["format"] == "quiet":
        return say("\n".join(task.id for task in tasks)) if tasks else 0
    if not tasks:
        return say(nothing)
    head, *rows = [
        _line(id, status if with_status else None, priority, title, key)
        for id, status, priority, title, key in [
            ("ID", "Status", "Priority", "Title", "Key"),
            *((task.id, task.status, str(task.priority), task.title, task.key or "-") for task in tasks),
        ]
    ]
    return say("\n".join([head, "-" * (131 if with_status else 115), *rows]))


def _line(id: str, status: str | None, priority: str, title: str, key: str) -> str:
    title = " ".join(title.split())
    title = title if len(title) <= SHORT_TITLE else title[: SHORT_TITLE - 1] + "…"
    return f"{id:<20} {'' if status is None else f'{status:<15} '}{priority:<8} {title:<60} {key:<24}".rstrip()


def _become(status: str, verb: str) -> "Callable[[dict[str, Any]], int]":
    def become(given: "dict[str, Any]") -> int:
        def change(tasks: Tasks) -> Task:
            task = _find(tasks, given)
            if task.status != status:
                task.become(status, place.now())
            return task

        task = _change(given, change)
        return _say(task, given, f"{verb} task: {task.id} - {task.title}", None)

    return become


def _show(given: "dict[str, Any]") -> int:
    task = _find(_read(given), given)
    times = [(name.capitalize(), task.row.get(name)) for name in ("created", "started", "closed")]
    lines = [("ID", task.id), ("Title", task.title), ("Description", task.description), ("Status", task.status)]
    lines += [("Priority", str(task.priority)), ("Key", task.key), ("Blocked by", ", ".join(task.blocked_by))]
    text = "\n".join(f"{name + ':':<12} {value}" for name, value in [*lines, *times] if value)
    return _say(task, given, text, 2)


_ID = Argument("id", help="The id or the key of the task.")
_DETAILS = (
    Argument("-p", "--priority", metavar="1-5", type=number_in(PRIORITIES), help="1 is the first. Default: 3."),
    Argument("-d", "--description", metavar="TEXT", help="What has to hold when it is done."),
    Argument("--blocked-by", metavar="ID,ID", help="The tasks that have to be closed before it, by id or key."),
    FORMAT,
)
COMMANDS = (
    Command("add", "Make a task.", _add, Argument("title", nargs="+", help="What to do."), *_DETAILS),
    Command(
        "ensure",
        "Make a task, or take the one that this run has under the same key; its status stays.",
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
        "The tasks that are not over.",
        _list,
        Argument("-s", "--status", type=choice, choices=STATUSES, help="Only those that have it."),
        Argument(
            "-d", "--days", metavar="N", type=number_in(COUNT), help="Only those made or closed in the last N days."
        ),
        Argument("-l", "--limit", metavar="N", type=number_in(COUNT), help="At most N."),
        Argument("-a", "--all", action="store_true", help="Also those that are closed or failed."),
        FORMAT,
    ),
    Command(
        "ready",
        "The tasks of this run that can be started now.",
        _ready,
        Argument("-a", "--all", action="store_true", help="Those of all runs."),
        FORMAT,
    ),
    Command("start", "Say that a task is being worked on.", _become(IN_PROGRESS, "Started"), _ID, FORMAT),
    Command("close", "Say that a task is done.", _become(CLOSED, "Closed"), _ID, FORMAT),
    Command("fail", "Say that a task cannot be done.", _become(FAILED, "Failed"), _ID, FORMAT),
    Command("reopen", "Take a task up again.", _become(OPEN, "Reopened"), _ID, FORMAT),
    Command("show", "One task with all that is known of it.", _show, _ID, FORMAT),
)


def run(words: list[str]) -> int:
    """Do what `ralph tools task WORDS...` says."""
    return run_group("ralph tools task", ABOUT, COMMANDS, words)
