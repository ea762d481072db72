"""The type and state of a loop, and the documents that hold the state.

`state.json` is the truth; `current-loop.json` has the same in the fields that other tools know. Both are bounded: every
iteration is also a line of `iterations.jsonl`, which has the older ones.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from ralph.core.checks import CheckStatus, Evidence
from ralph.core.codec import dump, former_name, from_plain, list_field_names, read_json, to_json, to_plain
from ralph.core.outcomes import Outcome
from ralph.core.turns import FileStat
from ralph.documents.reflection import ReflectedCheck
from ralph.documents.run_record import require_schema
from ralph.workflows.loop.progress import LoopProgress


class TaskType(StrEnum):
    """What kind of work a loop does; `--type` sets it; else it is guessed from the task."""

    TEST_FIX = "test-fix"
    BUG_FIX = "bug-fix"
    TYPES = "types"
    LINT = "lint"
    MIGRATION = "migration"
    REFACTOR = "refactor"
    COVERAGE = "coverage"
    GREENFIELD = "greenfield"
    GENERAL = "general"


@dataclass(frozen=True)
class TaskProfile:
    """What is usual for one type of task."""

    window: int
    """How many of the latest reflections are worth their place in the prompt."""
    usual: tuple[int, int] | None
    """Iterations that such work takes, from and to."""
    pattern: str
    """What a task of this type says, as a regular expression."""


PROFILES = {
    TaskType.COVERAGE: TaskProfile(
        5, (5, 20), r"\bcoverage\b|\b(add|write|more) (\w+ ){0,2}tests?\b(?! (runner|suite|harness|framework))"
    ),
    TaskType.LINT: TaskProfile(
        2,
        (2, 4),
        r"\blint\w*|\b(ruff|eslint|clippy|flake8|pylint|prettier|gofmt|rubocop)\b|\bformatting\b"
        r"|\bformat (the |all )?(code|files|sources)\b",
    ),
    TaskType.TYPES: TaskProfile(
        2,
        (3, 8),
        r"\btype[- ]?(error|check|hint|annotation)|\b(typescript|ts|compiler?|compilation) errors?\b"
        r"|\b(fix|add|missing) (\w+ ){0,2}types\b|\b(mypy|tsc|pyright)\b",
    ),
    TaskType.MIGRATION: TaskProfile(
        3,
        (5, 15),
        r"\bmigrat\w*|^(convert|port|upgrade|bump)\b|^(move|switch) (\w+ |from .+ )?to\b|^replace .+ (with|by)\b|\besm\b",
    ),
    TaskType.REFACTOR: TaskProfile(
        3,
        (3, 10),
        r"\brefactor\w*|^rename\b|^extract\b|^split\b|^simplify\b|\brestructur\w*|\bclean(ing)? ?up\b"
        r"|^remove (dead|unused|duplicated?)\b",
    ),
    TaskType.GREENFIELD: TaskProfile(
        5,
        (10, 30),
        r"\bscaffold\w*|\bfrom scratch\b|\bnew (project|app|service|library|tool)\b"
        r"|^(create|build|write|bootstrap) an? (\S+ ){0,3}(project|app|service|library|tool|website|game|server)\b",
    ),
    TaskType.TEST_FIX: TaskProfile(
        2,
        (2, 5),
        r"\b(fail|flak|broke)\w* (\w+ ){0,2}(tests?|specs?|suite|ci)\b|\b(tests?|suite|ci|build)\b.*\b(pass|green|fail)"
        r"|^fix .*\b(tests?|specs?|suite|ci)\b",
    ),
    TaskType.BUG_FIX: TaskProfile(
        2,
        None,
        r"^(repair|debug|resolve|correct)\b|\bfix\w*|\bbugs?\b|\bcrash\w*|\bleaks?\b|\bregressions?\b|\bbroken\b",
    ),
    TaskType.GENERAL: TaskProfile(5, None, r""),
}
"""In the order in which the patterns are tried; the last one fits every task."""
_FIXES = (TaskType.LINT, TaskType.TYPES, TaskType.TEST_FIX, TaskType.COVERAGE, TaskType.BUG_FIX)
"""What a task can be that begins with `Fix`, in order: `Fix the migration script` is no migration."""
_FIX = re.compile(r"(fix|repair|debug|resolve|correct)\b", re.IGNORECASE)
_FIX_ANYTHING = re.compile(r"\w+ (all |the |every |any |remaining |reported )*(errors?|warnings?|issues?|problems?)\W*")
"""Such a task does not say what is wrong; its criterion does."""
_BY_CRITERION = (TaskType.COVERAGE, TaskType.LINT, TaskType.TYPES)
"""What a criterion can say about a task. Nearly every criterion runs tests, so that word says nothing there."""


def guess_task_type(task: str, criterion: str) -> TaskType:
    """The type that the first line of a task suggests; if it suggests none, that of the criterion."""
    first = re.sub(r"(?i)^(#+|please)?\s*", "", task.strip().partition("\n")[0])
    is_fix = bool(_FIX.match(first))
    by_task = _find_type(first, _FIXES if is_fix else tuple(PROFILES))
    if by_task is TaskType.GENERAL or (is_fix and _FIX_ANYTHING.fullmatch(first.lower())):
        by_criterion = _find_type(criterion, _BY_CRITERION)
        return by_task if by_criterion is TaskType.GENERAL else by_criterion
    return by_task


def _find_type(text: str, types: tuple[TaskType, ...]) -> TaskType:
    """The first of some types whose pattern a text has."""
    for one in types:
        if re.search(PROFILES[one].pattern, text, re.IGNORECASE):
            return one
    return TaskType.GENERAL


def warn_if_few_iterations(type: TaskType, limit: int | None) -> str:
    """A note if the limit is below what such work usually takes."""
    usual = PROFILES[type].usual
    if usual is None or limit is None or limit >= usual[0]:
        return ""
    return f"tasks of type `{type}` usually take {usual[0]} to {usual[1]} iterations; the limit is {limit}"


SCHEMA = 1
_ITERATION = ("number", "action", "result", "learnings")
MAX_REMEMBERED_ITERATIONS = 10
"""How many past iterations the documents hold."""


class Phase(StrEnum):
    """Where in its cycle a loop is."""

    BASELINE = "baseline"
    ACT = "act"
    VERIFY = "verify"
    COMMIT = "commit"
    """Commit the iteration, if the user asked for commits."""
    JUDGE = "judge"
    """Let a turn with a fresh context look at the judge files that the run changed."""
    TRY_TESTS = "try-tests"
    """Run the tests that this turn wrote."""
    REFLECT = "reflect"
    """Run a reflector on the iteration, if the user asked for one."""
    DONE = "done"


class OnStuck(StrEnum):
    """What to do when a loop is stuck and another approach did not help."""

    STOP = "stop"
    ASK = "ask"
    CONTINUE = "continue"


@dataclass(frozen=True)
class Iteration:
    """One iteration, as later ones and the user see it."""

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
    checks: tuple[ReflectedCheck, ...] = ()
    blocking: tuple[str, ...] = field(default=(), metadata=former_name("gaming"))
    """What the guards found or a judge rejected, a sentence each: with it, the run cannot succeed."""
    hit_provider_limit: bool = field(default=False, metadata=former_name("is_cut_off"))
    """Whether the provider's limit ended its turn. It says nothing about whether the loop is stuck."""
    is_interrupted: bool = False
    """Whether its turn was interrupted. If the checks fail, the same iteration continues."""
    is_unproven: bool = False
    """Whether all checks pass, and Ralph could not prove the work."""
    what_failed: str = ""
    why: str = ""
    try_next: str = ""
    pivot: bool = False
    """Whether a fundamentally different approach was asked for."""
    used: tuple[int, ...] = ()
    """The iterations whose lessons the agent was given."""
    failing: tuple[str, ...] = ()
    """What failed after it, by name: tests if they are known, else checks; the first of them."""
    fixed: tuple[str, ...] = ()
    """What failed before it and passes after it."""
    broken: tuple[str, ...] = ()
    """What of `failing` passed before it."""


@dataclass(frozen=True)
class Best:
    """The best iteration so far, by what the checks measured."""

    number: int
    """0 if the state before the run was better than all iterations."""
    snapshot: str
    score: float
    result: str
    passed: bool = False


@dataclass(frozen=True)
class Attempt:
    """Something that was tried without progress."""

    action: str
    result: str
    iterations: tuple[int, ...]
    """The iterations that did the same."""


@dataclass(frozen=True)
class LoopState:
    """All that the rules of a loop need to know."""

    task: str
    phase: Phase = Phase.BASELINE
    iteration: int = 0
    """The iteration in progress; 0 is the baseline."""
    iterations: tuple[Iteration, ...] = ()
    unverified_iteration: Iteration | None = field(default=None, metadata=former_name("pending"))
    """The iteration whose turn has ended and whose checks have not."""
    next_phases: tuple[Phase, ...] = field(default=(), metadata=former_name("ahead"))
    """The phases that follow this one, if they are known already."""
    baseline: tuple[CheckStatus, ...] = ()
    """How each check came out before the first turn."""
    failed_before: tuple[str, ...] = field(default=(), metadata=former_name("red"))
    """The tests that failed before the first turn, as far as they are known."""
    failing: tuple[str, ...] = ()
    """What did not pass the last time, by name: tests if they are known, else checks."""
    fixed: tuple[str, ...] = ()
    """What failed before the last iteration, and passes since."""
    broken: tuple[str, ...] = ()
    """What of `failing` passed before the last iteration."""
    check_results: str = field(default="", metadata=former_name("failure"))
    """The results of the last checks, as the next prompt quotes them."""
    findings: str = ""
    """What the guards found last, as the next prompt quotes it."""
    blocking_rules: tuple[str, ...] = ()
    """The rules of the guards that prevent success: all checks pass, and only these findings are left."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """The outputs of checks that the prompt has no room for, by their names in the inbox."""
    changed: tuple[FileStat, ...] = ()
    """How the files that this run changed differ from its start; the latest files."""
    recalled: tuple[str, ...] = ()
    """What earlier runs learned about failures like those of the baseline."""
    tried: tuple[Attempt, ...] = ()
    """What was tried since the failures last became fewer."""
    verification: str = ""
    """What the checks said last, in full, as the report shows it."""
    agent_error: str = ""
    """Why the last turn failed."""
    failed_turns: int = 0
    """Turns in a row that failed. The loop continues only if the last one changed files."""
    unrunnable_iterations: int = field(default=0, metadata=former_name("unverified"))
    """Iterations in a row whose checks could not be run."""
    evidence: Evidence | None = None
    """What supports the last verdict; None if its checks fail."""
    snapshot_given_to_judge: str = field(default="", metadata=former_name("judged_snapshot"))
    """The tree that was last given to a judge; empty after one accepted it."""
    judge_tests: tuple[tuple[str, str], ...] = ()
    """The paths and texts of tests that the judge wrote, while they are tried."""
    tests_run_before_judge: int | None = field(default=None, metadata=former_name("judged_tests"))
    """How many tests the checks ran on the work that a judge looks at; None if they print no number."""
    best: Best | None = None
    progress: LoopProgress = field(default_factory=LoopProgress)
    pivot: bool = False
    """Whether another approach is asked for; it is until there is progress."""
    is_guided: bool = False
    """Whether the user gave guidance since the last turn of the agent."""
    rescope: str = ""
    """What the user asks for instead of the task, as the agent understood it."""
    outcome: Outcome | None = None
    reason: str = ""
    ended: bool = False
    """Whether the run itself has ended with that outcome."""
    ends: int = 0
    """How often it has ended, resumes included."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Keys of `state.json` that are not Ralph's; they stay."""


@dataclass(frozen=True)
class LoopParameters:
    """What does not change in a loop."""

    run_id: str
    criterion: str
    max_iterations: int | None
    started_at: float
    timeout: float | None
    type: TaskType = TaskType.GENERAL
    scope: tuple[str, ...] = ()
    """The paths that may be changed, as patterns; empty where all may."""
    may_change: tuple[str, ...] = ()
    """Patterns of tests and settings that the user lets the run change."""
    on_stuck: OnStuck = OnStuck.STOP
    reflector: bool = False
    """Whether a turn of its own reflects on every failed iteration."""
    commit: bool = False
    """Whether every iteration is committed."""
    has_judge: bool = True
    """Whether a turn may judge changes to judge files. Otherwise the run must be proven without them."""
    judges_all: bool = False
    """Whether a judge also looks at work that is proven: its own tests can find what the project's tests do not."""


def render_state(state: LoopState, settings: LoopParameters) -> str:
    """The text of `state.json`."""
    own = to_plain(replace(state, extra={}, iterations=(), task=""))
    own.pop("task"), own.pop("extra")
    return _dump(
        {"schema": SCHEMA, "loopId": settings.run_id, **_collect_shared_fields(state, settings), **own, **state.extra}
    )


def render_current_loop(state: LoopState, settings: LoopParameters) -> str:
    """The text of `current-loop.json`: exactly the fields that tools of others know."""
    if state.unverified_iteration:
        # The turn has ended and its checks have not: a pause can come between the two.
        waiting = replace(state.unverified_iteration, result="not verified yet")
        state = replace(state, iterations=(*state.iterations, waiting))
    fields = _collect_shared_fields(state, settings)
    fields["iterations"] = [{key: i[key] for key in _ITERATION} for i in fields["iterations"]]
    return _dump(fields)


def render_log_line(iteration: Iteration) -> str:
    """An iteration as a line of `iterations.jsonl`."""
    return to_json(iteration)


def read_state(text: str, where: str, settings: LoopParameters) -> LoopState:
    """The state in a `state.json`, edited by hand or not."""
    data = require_schema(read_json(text, where, "correct the file, then `ralph resume`"), SCHEMA, where)
    state = from_plain(LoopState, {key: value for key, value in data.items() if key != "extra"}, where)
    known = {"schema", "loopId", *_collect_shared_fields(state, settings), *list_field_names(LoopState)}
    return replace(state, extra={key: value for key, value in data.items() if key not in known})


def _collect_shared_fields(state: LoopState, settings: LoopParameters) -> dict[str, Any]:
    last = state.iterations[-1] if state.iterations else None
    result = last.result if last else "".join(state.check_results.splitlines()[:1])
    minutes = None if settings.timeout is None else round(settings.timeout / 60, 2)
    return {
        "active": state.phase is not Phase.DONE and not state.ended,
        "task": state.task,
        "completion": settings.criterion,
        "maxIterations": settings.max_iterations,
        "currentIteration": last.number if last and state.ended else state.iteration,
        "startTime": datetime.fromtimestamp(settings.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "timeoutMinutes": int(minutes) if minutes and minutes.is_integer() else minutes,
        "iterations": [{"learnings": i.learnings, **to_plain(i)} for i in state.iterations],
        "lastResult": result,
        "learnings": last.learnings if last else "",
    }


def _dump(data: dict[str, Any]) -> str:
    """JSON that reads well and diffs well: a line for each key, and for each item of a list."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_value(value)}" for key, value in data.items()) + "\n}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {dump(item)}" for item in value) + "\n  ]"
    return dump(value)
