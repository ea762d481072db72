"""The state of a loop, and the documents that hold it.

`state.json` is the truth; `current-loop.json` has the same in the fields that people's tools know. Both are bounded: every
iteration is also a line of `iterations.jsonl`, where the older ones can be found.
"""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from ralph.core.checks import CheckStatus
from ralph.core.codec import dump, from_plain, read_json, to_json, to_plain
from ralph.core.outcomes import Outcome
from ralph.documents.reflection import JudgedCheck
from ralph.documents.run_record import require_schema
from ralph.workflows.loop.kinds import TaskType
from ralph.workflows.loop.progress import Progress

SCHEMA = 1
_ITERATION = ("number", "action", "result", "learnings")
REMEMBERED = 10
"""How many past iterations the documents hold."""


class Phase(StrEnum):
    """Where in its cycle a loop is."""

    BASELINE = "baseline"
    ACT = "act"
    VERIFY = "verify"
    COMMIT = "commit"
    """Commit the iteration, where that was asked for."""
    REFLECT = "reflect"
    """Have a reflector say what the iteration teaches, where that was asked for."""
    DONE = "done"


class OnStuck(StrEnum):
    """What to do when a loop is stuck and another approach did not help."""

    STOP = "stop"
    ASK = "ask"
    CONTINUE = "continue"


@dataclass(frozen=True)
class Iteration:
    """One iteration, as later ones and people see it."""

    number: int
    action: str
    result: str
    learnings: str = ""
    passed: bool = False
    seconds: float = 0.0
    cost: float | None = None
    files: int = 0
    added: int = 0
    removed: int = 0
    role: str = ""
    snapshot: str = ""
    score: float = 0.0
    checks: tuple[JudgedCheck, ...] = ()
    gaming: tuple[str, ...] = ()
    """What the guards found, a sentence each."""
    what_failed: str = ""
    why: str = ""
    try_next: str = ""
    pivot: bool = False
    """Whether a fundamentally different approach was asked for."""
    used: tuple[int, ...] = ()
    """The iterations whose lessons the agent was given."""

    @property
    def failing(self) -> set[str]:
        """The checks that did not pass."""
        return {check.title for check in self.checks if check.status != CheckStatus.PASSED}


@dataclass(frozen=True)
class Best:
    """The best iteration so far, by what the checks measured."""

    number: int
    snapshot: str
    score: float
    result: str
    passed: bool = False


@dataclass(frozen=True)
class LoopState:
    """All that the rules of a loop need to know."""

    task: str
    phase: Phase = Phase.BASELINE
    iteration: int = 0
    """The iteration under way; 0 is the baseline."""
    iterations: tuple[Iteration, ...] = ()
    pending: Iteration | None = None
    """The iteration whose turn has ended and whose checks have not."""
    ahead: tuple[Phase, ...] = ()
    """The phases that follow this one, where that is settled already."""
    baseline: tuple[CheckStatus, ...] = ()
    """How each check came out before the first turn."""
    red: tuple[str, ...] = ()
    """The tests that failed before the first turn, as far as they are known."""
    failing: tuple[str, ...] = ()
    """The checks that did not pass the last time."""
    failure: str = ""
    """What the checks said last, as the next prompt quotes it."""
    verification: str = ""
    """What the checks said last, in full, as the report shows it."""
    agent_error: str = ""
    """Why the last turn failed for good, after all its retries."""
    unverified: int = 0
    """Iterations in a row whose checks could not be run."""
    best: Best | None = None
    progress: Progress = field(default_factory=Progress)
    pivot: bool = False
    """Whether another approach is asked for; it is until there is progress."""
    rescope: str = ""
    """What a person asks for instead of the task, as the agent understood it."""
    outcome: Outcome | None = None
    reason: str = ""
    ended: bool = False
    """Whether the run itself has ended with that outcome."""
    ends: int = 0
    """How often it has ended, resumes included."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Keys of `state.json` that are not Ralph's; they are kept."""


@dataclass(frozen=True)
class Fixed:
    """What does not change in a loop."""

    loop: str
    criterion: str
    most: int | None
    started_at: float
    timeout: float | None
    type: TaskType = TaskType.GENERAL
    scope: tuple[str, ...] = ()
    """The paths that may be changed, as patterns; empty where all may."""
    on_stuck: OnStuck = OnStuck.STOP
    reflector: bool = False
    """Whether a turn of its own reflects on every failed iteration."""
    commit: bool = False
    """Whether every iteration is committed."""
    recalled: tuple[str, ...] = ()
    """What loops before this one learned about tasks like it."""


def state_json(state: LoopState, fixed: Fixed) -> str:
    """The text of `state.json`."""
    own = to_plain(replace(state, extra={}, iterations=(), task=""))
    own.pop("task"), own.pop("extra")
    return _dump({"schema": SCHEMA, "loopId": fixed.loop, **_seed_fields(state, fixed), **own, **state.extra})


def current_loop_json(state: LoopState, fixed: Fixed) -> str:
    """The text of `current-loop.json`: exactly the fields that tools of others know."""
    if state.pending:
        # The turn has ended and its checks have not: a pause can come between the two.
        waiting = replace(state.pending, result="not verified yet")
        state = replace(state, iterations=(*state.iterations, waiting))
    fields = _seed_fields(state, fixed)
    fields["iterations"] = [{key: i[key] for key in _ITERATION} for i in fields["iterations"]]
    return _dump(fields)


def log_line(iteration: Iteration) -> str:
    """An iteration as a line of `iterations.jsonl`."""
    return to_json(iteration)


def read_state(text: str, where: str, fixed: Fixed) -> LoopState:
    """The state in a `state.json`, edited by hand or not."""
    data = require_schema(read_json(text, where, "correct the file, then `ralph resume`"), SCHEMA, where)
    state = from_plain(LoopState, {key: value for key, value in data.items() if key != "extra"}, where)
    known = {"schema", "loopId", *_seed_fields(state, fixed), *LoopState.__dataclass_fields__}
    return replace(state, extra={key: value for key, value in data.items() if key not in known})


def _seed_fields(state: LoopState, fixed: Fixed) -> dict[str, Any]:
    last = state.iterations[-1] if state.iterations else None
    minutes = None if fixed.timeout is None else round(fixed.timeout / 60, 2)
    return {
        "active": state.phase is not Phase.DONE and not state.ended,
        "task": state.task,
        "completion": fixed.criterion,
        "maxIterations": fixed.most,
        "currentIteration": last.number if last and state.ended else state.iteration,
        "startTime": datetime.fromtimestamp(fixed.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "timeoutMinutes": int(minutes) if minutes and minutes.is_integer() else minutes,
        "iterations": [{"learnings": i.learnings, **to_plain(i)} for i in state.iterations],
        "lastResult": last.result if last else state.failure.splitlines()[0] if state.failure else "",
        "learnings": last.learnings if last else "",
    }


def _dump(data: dict[str, Any]) -> str:
    """JSON that reads well and diffs well: a line for each key, and for each item of a list."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_value(value)}" for key, value in data.items()) + "\n}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {dump(item)}" for item in value) + "\n  ]"
    return dump(value)
