"""`tasks.jsonl`: the queue that agents share, one task a line; of two lines with the same id the last one holds."""

from ralph.documents.agent.events import dump_json, load_json

OPEN, IN_PROGRESS, CLOSED, FAILED = STATUSES = ("open", "in_progress", "closed", "failed")
PRIORITIES = range(1, 6)


class _Text:
    """A key of a task that holds text; empty if it does not."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get__(self, task: "AgentTask", kind: object = None) -> str:
        value = task.row.get(self.key)
        return value if isinstance(value, str) else ""


class AgentTask:
    """One task; what Ralph does not know in its line stays there."""

    __slots__ = ("line", "row")
    id = _Text("id")
    """`task-<seconds>-<four hex digits>`."""
    title = _Text("title")
    description = _Text("description")
    """What has to hold when it is done."""
    key = _Text("key")
    """A name by which its creator finds it again."""
    status = _Text("status")
    """One of `STATUSES`; others are of later versions, and neither ready nor over."""
    run = _Text("loop_id")
    """The run that it belongs to; empty if it was made outside of one."""
    created, started, closed = _Text("created"), _Text("started"), _Text("closed")

    def __init__(self, row: dict[str, object], line: str = "") -> None:
        self.row = row
        """What it says; it is changed through `change`."""
        self.line = line
        """Its line in the file; empty if that has to be written anew."""

    def __repr__(self) -> str:
        return f"Task({self.row})"

    @property
    def priority(self) -> int:
        """From 1, the first, to 5."""
        value = self.row.get("priority")
        return value if isinstance(value, int) else 3

    @property
    def blocked_by(self) -> tuple[str, ...]:
        """The ids or keys of the tasks that have to be closed before it."""
        value = self.row.get("blocked_by")
        if not isinstance(value, list):
            return ()
        return tuple(item for item in value if isinstance(item, str))

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do about it."""
        return self.status in (CLOSED, FAILED)

    def become(self, status: str, at: str) -> None:
        """Change its status."""
        self.change(status=status)
        if status == IN_PROGRESS and not self.started:
            self.change(started=at)
        if self.is_over:
            self.change(closed=at)
        else:
            self.row.pop("closed", None)

    def change(self, **fields: object) -> None:
        """Set fields."""
        self.row.update(fields)
        self.line = ""


class AgentTasks:
    """All tasks of a project, in the order in which they were made."""

    def __init__(self) -> None:
        self.by_id: dict[str, AgentTask] = {}
        self.broken: list[tuple[int, str, str]] = []
        """The lines that are not tasks: number, what is wrong, and the line."""

    @classmethod
    def parse(cls, data: bytes) -> "AgentTasks":
        """The tasks in a file; a line that is broken stops nothing."""
        tasks = cls()
        for number, line in enumerate(data.decode(errors="surrogateescape").split("\n"), 1):
            if line.strip():
                try:
                    task = _read(line)
                except ValueError as error:
                    tasks.broken.append((number, str(error), line))
                else:
                    tasks.by_id[task.id] = task
        return tasks

    def render(self) -> bytes:
        """The file: one line for each task; broken lines are not in it."""
        lines = [task.line or dump_json(task.row) for task in self.by_id.values()]
        return "".join(line + "\n" for line in lines).encode(errors="backslashreplace")

    @property
    def all(self) -> list[AgentTask]:
        """Every task."""
        return list(self.by_id.values())

    def find(self, name: str, run: str = "") -> AgentTask | None:
        """The task with that id, or else with that key: in that run, or outside of any in the latest one that has it."""
        if name in self.by_id:
            return self.by_id[name]
        named = [task for task in self.by_id.values() if task.key == name]
        return next((task for task in named if task.run == run), named[-1] if named and not run else None)

    def find_by_key(self, key: str, run: str) -> AgentTask | None:
        """The task that has that key in that run: tasks of earlier runs do not count."""
        return next((task for task in self.by_id.values() if task.key == key and task.run == run), None)

    def waits_for(self, task: AgentTask) -> tuple[str, ...]:
        """Those of its blockers that are not closed, or not known."""
        found = {name: self.find(name, task.run) for name in task.blocked_by}
        return tuple(name for name, other in found.items() if other is None or other.status != CLOSED)

    def ready(self, run: str = "") -> list[AgentTask]:
        """What can be started now: open, nothing before it, the most urgent first; of one run, or of all."""
        found = [task for task in self.by_id.values() if task.status == OPEN and (not run or task.run == run)]
        return sorted((task for task in found if not self.waits_for(task)), key=lambda task: task.priority)

    def list_unfinished(self, run: str = "") -> list[AgentTask]:
        """What is neither closed nor failed; of one run, or of all."""
        return [task for task in self.by_id.values() if not task.is_over and (not run or task.run == run)]

    def circle(self, task: AgentTask) -> list[str]:
        """The path through its blockers that leads back to it; empty if there is none."""
        paths, seen = [[task.id]], set()
        while paths:
            path = paths.pop()
            for name in self.by_id[path[-1]].blocked_by:
                other = self.find(name, task.run)
                if other is task:
                    return [*path, task.id]
                if other and other.id not in seen:
                    seen.add(other.id)
                    paths.append([*path, other.id])
        return []


def _read(line: str) -> AgentTask:
    row = load_json(line)
    if not isinstance(row, dict):
        raise ValueError("it is not an object")
    task = AgentTask(row, line)
    if not task.id or not task.status:
        raise ValueError("it has no id or no status")
    return task


def render_new_task(
    id: str, title: str, at: str, *, description: str, key: str, priority: int, blocked_by: list[str], run: str
) -> dict[str, object]:
    """The line of a new task; what is empty is left out."""
    row = {
        "id": id,
        "title": title,
        "description": description,
        "key": key,
        "status": OPEN,
        "priority": priority,
        "blocked_by": blocked_by,
        "loop_id": run,
        "created": at,
    }
    return {name: value for name, value in row.items() if value or name == "blocked_by"}
