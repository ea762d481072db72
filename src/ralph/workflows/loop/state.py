"""The state of a loop, and the documents that hold it.

`state.json` is the truth; `current-loop.json` has the same in the fields that people's tools know. Both are bounded:
what happened in older iterations is in the journal.
"""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from ralph.core.codec import dump, from_plain, to_plain
from ralph.core.errors import StateError
from ralph.core.outcomes import Outcome

SCHEMA = 1
REMEMBERED = 10
"""How many past iterations the documents hold."""


class Phase(StrEnum):
    """Where in its cycle a loop is."""

    BASELINE = "baseline"
    ACT = "act"
    VERIFY = "verify"
    DONE = "done"


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
    failure: str = ""
    """What the checks said last, as the next prompt quotes it."""
    verification: str = ""
    """What the checks said last, in full, as the report shows it."""
    agent_error: str = ""
    """Why the last turn failed for good, after all its retries."""
    unverified: int = 0
    """Iterations in a row whose checks could not be run."""
    outcome: Outcome | None = None
    reason: str = ""
    ended: bool = False
    """Whether the run itself has ended with that outcome."""
    ends: int = 0
    """How often it has ended, resumes included."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Keys of `state.json` that are not Ralph's; they are kept."""

    def learned(self, most: int = 5) -> list[Iteration]:
        """The latest iterations that taught something."""
        return [iteration for iteration in self.iterations if iteration.learnings][-most:]


@dataclass(frozen=True)
class Fixed:
    """What does not change in a loop, for the documents."""

    loop: str
    criterion: str
    most: int | None
    started_at: float
    timeout: float | None


def state_json(state: LoopState, fixed: Fixed) -> str:
    """The text of `state.json`."""
    own = to_plain(replace(state, extra={}, iterations=(), task=""))
    own.pop("task"), own.pop("extra")
    return _dump({"schema": SCHEMA, "loopId": fixed.loop, **_seed_fields(state, fixed), **own, **state.extra})


def current_loop_json(state: LoopState, fixed: Fixed) -> str:
    """The text of `current-loop.json`: exactly the fields that tools of others know."""
    return _dump(_seed_fields(state, fixed))


def read_state(text: str, where: str, fixed: Fixed) -> LoopState:
    """The state in a `state.json`, edited by hand or not."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"not readable as JSON ({error})", where=where, todo="correct the file, then `ralph resume`"
        ) from error
    if not isinstance(data, dict):
        raise StateError("the file holds no JSON object", where=where)
    if data.get("schema") != SCHEMA:
        raise StateError(
            f"the file has schema version {data.get('schema')!r}; this Ralph reads version {SCHEMA}",
            where=where,
            todo="use the version of ralph-engine that wrote it",
        )
    state = from_plain(LoopState, {key: value for key, value in data.items() if key != "extra"}, where)
    known = {"schema", "loopId", *_seed_fields(state, fixed), *LoopState.__dataclass_fields__}
    return replace(state, extra={key: value for key, value in data.items() if key not in known})


def _seed_fields(state: LoopState, fixed: Fixed) -> dict[str, Any]:
    last = state.iterations[-1] if state.iterations else None
    return {
        "active": state.phase is not Phase.DONE,
        "task": state.task,
        "completion": fixed.criterion,
        "maxIterations": fixed.most,
        "currentIteration": state.iteration,
        "startTime": datetime.fromtimestamp(fixed.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "timeoutMinutes": None if fixed.timeout is None else fixed.timeout / 60,
        "iterations": [to_plain(iteration) for iteration in state.iterations],
        "lastResult": last.result if last else state.failure.splitlines()[0] if state.failure else "",
        "learnings": last.learnings if last else "",
    }


def _dump(data: dict[str, Any]) -> str:
    """JSON that reads well and diffs well: a line for each key, and for each item of a list."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_value(value)}" for key, value in data.items()) + "\n}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_compact(item)}" for item in value) + "\n  ]"
    return _compact(value)


def _compact(value: object) -> str:
    return dump(value)
