"""A workflow for tests: a graph of tasks, each done in a worktree of its own, checked, and merged through the queue."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ralph.core.checks import Check
from ralph.core.codec import from_plain, to_plain
from ralph.core.events import ChecksEnded, Decision, Do, Event, RunChecks, Stop, Transition, TurnEnded, Work
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.prompt import Prompt
from ralph.core.turns import TurnEnd, TurnRequest
from ralph.documents.run_record import RunRecord
from ralph.documents.session.tasks import make_natural_key
from ralph.store import settings
from ralph.workflows.merge_rules import Queue, queue_path, read_queue, render_queue

MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Task:
    """One task and where it is: waiting, working, checking, merging, merged or failed."""

    depends_on: tuple[str, ...] = ()
    phase: str = "waiting"
    attempt: int = 1
    branch: str = ""


@dataclass(frozen=True)
class State:
    tasks: Mapping[str, Task]
    queue: Queue = field(default_factory=Queue)

    def to(self, name: str, **changes: Any) -> "State":
        return replace(self, tasks={**self.tasks, name: replace(self.tasks[name], **changes)})


@dataclass(frozen=True)
class Graph:
    """The rules: a task starts when all that it depends on is merged."""

    depends_on: Mapping[str, tuple[str, ...]]
    checks: tuple[Check, ...]
    path: str
    queue_path: str
    resolver: str

    def load(self, documents: Mapping[str, str]) -> State:
        if self.path in documents:
            state = from_plain(State, json.loads(documents[self.path]), self.path)
            return replace(state, queue=read_queue(documents[self.queue_path], self.queue_path))
        return State({name: Task(needed) for name, needed in self.depends_on.items()})

    def decide(self, state: State, now: float) -> Decision:
        done = {name for name, task in state.tasks.items() if task.phase == "merged"}
        works: list[Work] = list(state.queue.list_work(lambda _: self.checks, self.resolver))
        for name in sorted(state.tasks, key=make_natural_key):
            task = state.tasks[name]
            place = f"{name}/{task.attempt}"
            if task.phase in ("waiting", "working") and done.issuperset(task.depends_on):
                prompt = Prompt.of(f"do {name}\n")
                works.append(
                    TurnRequest(f"task-{name}-{task.attempt}", "executor", prompt, task=name, worktree=place, retries=0)
                )
            elif task.phase == "checking":
                works.append(RunChecks(f"check-{name}-{task.attempt}", self.checks, place))
        if works:
            return Do(tuple(works))
        left = [name for name in state.tasks if name not in done]
        return Stop(Outcome.FAILED, f"not done: {left}") if left else Stop(Outcome.SUCCESS, "all is merged")

    def accept(self, state: State, event: Event, now: float) -> Transition[State]:
        queue, settled = state.queue.accept(event)
        after = replace(state, queue=queue)
        if settled:
            after = after.to(
                settled.task, phase="merged" if settled.is_merged else "failed", branch=settled.merge.branch
            )
        elif isinstance(event, TurnEnded) and event.key.startswith("task-"):
            name = event.key.split("-")[1]
            after = after.to(name, phase="checking") if event.result.end is TurnEnd.FINISHED else _again(after, name)
        elif isinstance(event, ChecksEnded) and event.key.startswith("check-"):
            name = event.key.split("-")[1]
            if event.verdict.passed:
                queue = after.queue.add(name, f"{name}/{after.tasks[name].attempt}", f"task {name}", f"do {name}")
                after = replace(after.to(name, phase="merging"), queue=queue)
            else:
                after = _again(after, name)
        if after == state:
            return Transition(state)
        tasks = json.dumps(to_plain(replace(after, queue=Queue()))) + "\n"
        return Transition(after, {self.path: tasks, self.queue_path: render_queue(after.queue)})


def _again(state: State, name: str) -> State:
    task = state.tasks[name]
    if task.attempt >= MAX_ATTEMPTS:
        return state.to(name, phase="failed")
    return state.to(name, phase="waiting", attempt=task.attempt + 1)


def workflow(record: RunRecord, root: Path, limits: Limits) -> Graph:
    """As the engine makes it of a run: the task of the record is the graph."""
    depends_on = {name: tuple(needed) for name, needed in json.loads(record.task).items()}
    path = f".ralph/runs/{record.id}/graph.json"
    return Graph(depends_on, record.checks, path, queue_path(record.id), settings.load_prompt("resolver", root))
