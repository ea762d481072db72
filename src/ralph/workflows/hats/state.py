"""The state of a run of hats, the document that holds it, and the report at its end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ralph.core.checks import Evidence, FailingTests
from ralph.core.codec import dump, former_name, from_plain, read_json, to_plain
from ralph.core.errors import StateError
from ralph.core.events import RunEnded, TurnEnded
from ralph.core.limits import describe_cost
from ralph.core.outcomes import Outcome
from ralph.core.signals import is_meant
from ralph.documents.agent.notes import parse_decisions
from ralph.documents.agent.tasks import AgentTasks
from ralph.documents.hats.definition import COORDINATOR, HatsSettings, show_role
from ralph.workflows.hats.events import Gate, NewEvent
from ralph.workflows.loop.report import (
    accept_command,
    add_up_changes,
    describe_change,
    format_duration,
    render_agent_rows,
    render_evidence_row,
    render_missing_refs,
)
from ralph.workflows.merge_rules import Queue

SCHEMA = 1
SHARED = ".ralph/agent/"
TASKS, MEMORIES, DECISIONS = f"{SHARED}tasks.jsonl", f"{SHARED}memories.md", f"{SHARED}decisions.md"
"""The files that the agents of a project share."""
MAX_REMEMBERED_EVENTS = 12
"""How many of the latest events the state holds for reports."""
MAX_TASK_TREES = 50
"""How many tasks are remembered with the tree before their first turn."""
TASK_START, TASK_RESUME = "task.start", "task.resume"
"""Topics of the engine, for the coordinator."""


class HatsPhase(StrEnum):
    """What a run does now."""

    ACT = "act"
    """The hat of the first event in the queue has its turn."""
    WAVE = "wave"
    """A hat handles several events in parallel."""
    COMMIT = "commit"
    VERIFY = "verify"
    """The checks run, because a hat claims that the work is good."""
    JUDGE = "judge"
    """An independent turn reads the work, because tests or settings changed, or because the user wants it."""
    TRY_TESTS = "try-tests"
    """The checks run with the tests that the judge wrote."""
    REST = "rest"
    """The work is done, and the run waits for more."""
    DONE = "done"


@dataclass(frozen=True)
class QueuedEvent:
    """One event."""

    number: int
    topic: str
    payload: str = ""
    source: str = COORDINATOR
    turn: int = 0
    target: str = ""
    """The hat that it is for, whatever its topic."""
    by_engine: bool = field(default=False, metadata=former_name("default"))
    """Whether the engine published it: for a hat that published nothing, in place of a topic that the checks refute, to ask
    the coordinator (`task.resume`), or to report a hat without turns left or a worker that failed."""
    answers: str = field(default="", kw_only=True)
    """The event that it answers, if a worker of a wave published it."""
    commit: str = field(default="", kw_only=True)
    """The commit that merged the work of that worker."""
    instead_of: str = field(default="", kw_only=True)
    """The topic that its source published, and that the checks did not confirm."""
    wave: int = 0
    """The number of its wave, which is the number of the first event of the wave; 0 for none."""


@dataclass(frozen=True)
class HatGuidance:
    """A message from the user, with the time of its arrival."""

    text: str
    at: float
    target: str = ""
    """The hat that it is for; empty for all of them."""

    def is_for(self, hat: str) -> bool:
        """Whether a hat receives it."""
        return is_meant(self.target, hat, is_actor=True)


class WorkerStep(StrEnum):
    """What a worker of a wave does now."""

    TURN = "turn"
    MERGE = "merge"
    """Its work is merged into the branch of the run."""
    DONE = "done"


@dataclass(frozen=True)
class WaveWorker:
    """The work on one event of a wave, and its result."""

    event: QueuedEvent
    step: WorkerStep = WorkerStep.TURN
    attempt: int = 1
    turn: int = 0
    """The number of its last turn."""
    refusals: int = 0
    notes: tuple[str, ...] = ()
    said: tuple[NewEvent, ...] = ()
    """The events that it published. They join the queue when the wave is over."""
    by_engine: bool = field(default=False, metadata=former_name("default"))
    """Whether the engine published these events for it, because it published nothing."""
    failed: str = ""
    """Why it failed; empty if it did not."""
    commit: str = ""
    """The commit that merged its work."""
    failed_turns: int = field(default=0, metadata=former_name("tries"))
    """How many turns it had, if all of them failed."""
    abandoned: tuple[str, ...] = ()
    """Why its events were refused, if it knew it and ended without any event."""


@dataclass(frozen=True)
class Wave:
    """Events that one hat handles in parallel, each in its own worktree."""

    hat: str
    workers: tuple[WaveWorker, ...] = field(metadata=former_name("jobs"))
    merging: Queue = field(default_factory=Queue)
    deadline: float = 0.0
    """The time after which workers that have not started are given up; 0 for never."""
    seconds_left: float = field(default=0.0, metadata=former_name("left"))
    """The seconds until the deadline when the run ended. A resumed run gets them again."""
    has_changes: bool = field(default=False, metadata=former_name("moved"))
    """Whether a worker changed a file."""

    @property
    def number(self) -> int:
        """The number of its first event."""
        return self.workers[0].event.number

    @property
    def is_over(self) -> bool:
        """Whether all its workers have ended."""
        return all(worker.step is WorkerStep.DONE for worker in self.workers)


@dataclass(frozen=True)
class TurnChange:
    """What one turn changed."""

    turn: int
    hat: str
    files: int
    added: int = 0
    removed: int = 0
    task: str = ""
    """The `task_id` of its event."""
    commit: str = ""
    """The commit that merged it, for a turn in its own copy of the tree."""


@dataclass(frozen=True)
class HatsState:
    """The state of a run of hats."""

    objective: str
    phase: HatsPhase = HatsPhase.ACT
    next_phases: tuple[HatsPhase, ...] = field(default=(), metadata=former_name("ahead"))
    """The phases that follow this one."""
    iteration: int = 1
    """The hat turn in progress, or next."""
    last_turn: int = field(default=0, metadata=former_name("turn"))
    """The number of the last turn."""
    events_published: int = field(default=0, metadata=former_name("number"))
    """How many events there were so far; the number of the last one."""
    queue: tuple[QueuedEvent, ...] = ()
    """The events that wait for a turn, oldest first. The first one is in progress."""
    events_in_turn: int = field(default=1, metadata=former_name("taken"))
    """How many of the first events the turn in progress handles; a hat that gathers handles several."""
    wave: Wave | None = None
    """The wave in progress. Its events are not in the queue any more."""
    claims: tuple[QueuedEvent, ...] = ()
    """Events that wait for the checks to confirm them."""
    seen_failing: FailingTests | None = field(default=None, metadata=former_name("red"))
    """The tests that failed as a hat claimed, until they pass."""
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """The gate of each required topic."""
    changed: tuple[TurnChange, ...] = ()
    """The latest turns that changed files."""
    last_turns: Mapping[str, int] = field(default_factory=dict)
    """The number of each hat's last turn."""
    trees: Mapping[str, str] = field(default_factory=dict)
    """The snapshot of the tree as each hat's last turn left it."""
    task_trees: Mapping[str, str] = field(default_factory=dict)
    """The snapshot of the tree as it was before the first turn for each task, by its id; the latest tasks."""
    default_turns_in_a_row: Mapping[str, int] = field(default_factory=dict, metadata=former_name("defaults"))
    """How many turns in a row each hat ended in its default event."""
    activations: Mapping[str, int] = field(default_factory=dict)
    exhausted: tuple[str, ...] = ()
    """Hats that have had all their turns."""
    refusals: int = 0
    """Turns in a row whose events were refused."""
    notes: tuple[str, ...] = ()
    """Sentences for the next prompt: what was refused, and why. The user gets new ones as notices."""
    abandoned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Notes for the next turn of a hat: what was refused in its last turn, which then published nothing."""
    guidance: tuple[HatGuidance, ...] = ()
    """Messages from the user that no hat has acknowledged."""
    user_events_read: int = field(default=0, metadata=former_name("outside"))
    """The number of characters of `emitted.jsonl` that were read."""
    unchanged_turns: int = field(default=0, metadata=former_name("still"))
    """The number of turns in a row without a change to a file, a task or a memory."""
    has_changes: bool = field(default=False, metadata=former_name("moved"))
    """Whether tasks or memories changed since the last turn ended."""
    failures: int = 0
    """Tries in a row that failed."""
    snapshot: str = ""
    committed: str = ""
    """The snapshot that was committed last."""
    checkpoint: int = 0
    """The number of turns at the last commit."""
    verification: str = ""
    """The last result of the checks."""
    evidence: Evidence | None = None
    """What supports it; None if the checks failed."""
    snapshot_given_to_judge: str = ""
    """The last tree that a judge was asked about."""
    tests_run_before_judge: int | None = None
    judge_tests: tuple[tuple[str, str], ...] = ()
    """The tests that the judge wrote: paths and contents."""
    earlier_decisions: int = 0
    """Decisions that the project had recorded before this run."""
    not_before: float = 0.0
    recent: tuple[QueuedEvent, ...] = ()
    outcome: Outcome | None = None
    reason: str = ""
    ended: bool = False
    ends: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    """The files that agents share, by path; not part of the document."""

    @property
    def event(self) -> QueuedEvent:
        """The event in progress."""
        return self.queue[0]

    @property
    def events(self) -> tuple[QueuedEvent, ...]:
        """All events in progress: one, or several for a hat that gathers."""
        return self.queue[: self.events_in_turn]

    @property
    def rests(self) -> bool:
        """Whether the work is done and the run waits for more, or will after a commit."""
        return HatsPhase.REST in (self.phase, *self.next_phases)

    def after_turn(
        self, ended: TurnEnded, *, acknowledged: bool, task: str = "", in_own_worktree: bool = False
    ) -> "HatsState":
        """The state after a turn. A turn can only acknowledge messages to its hat that came before it started.

        `task` is the `task_id` of its event. The snapshot of a turn in its own worktree says nothing about the tree of
        the run.
        """
        unacknowledged = tuple(
            one
            for one in self.guidance
            if not acknowledged or one.at > ended.result.started_at or not one.is_for(ended.role)
        )
        turns = [(one.turn, one.change) for one in ended.earlier] + [(ended.turn, ended.result.change)]
        entries = [
            TurnChange(turn, ended.role, change.files, added=change.added, removed=change.removed, task=task)
            for turn, change in turns
            if change and change.files
        ]
        # Turns of a wave end in any order, and the state must not depend on it.
        changed = tuple(sorted((*self.changed, *entries), key=lambda one: one.turn))[-MAX_REMEMBERED_EVENTS:]
        change = ended.change
        return replace(
            self,
            iteration=self.iteration + 1,
            last_turn=ended.turn,
            guidance=unacknowledged,
            changed=changed,
            last_turns={**self.last_turns, ended.role: max(ended.turn, self.last_turns.get(ended.role, 0))},
            trees={**self.trees, ended.role: change.snapshot} if change and not in_own_worktree else self.trees,
        )

    def with_task_trees(self, tasks: Iterable[str]) -> "HatsState":
        """The state that knows the tree before the first turn for each of these tasks."""
        new = {task: self.snapshot for task in tasks if task and self.snapshot and task not in self.task_trees}
        if not new:
            return self
        return replace(self, task_trees=dict([*self.task_trees.items(), *new.items()][-MAX_TASK_TREES:]))

    def count_default_turn(self, hat: str) -> "HatsState":
        """The state after one more turn of a hat that ended in its default event."""
        turns = self.default_turns_in_a_row
        return replace(self, default_turns_in_a_row={**turns, hat: turns.get(hat, 0) + 1})

    def reset_default_turns(self, hat: str) -> "HatsState":
        """The state after a turn of a hat that published something itself."""
        turns = self.default_turns_in_a_row
        return replace(self, default_turns_in_a_row={**turns, hat: 0}) if turns.get(hat) else self

    def count_activation(self, hat: str) -> "HatsState":
        """The state after one more turn of a hat."""
        return replace(self, activations={**self.activations, hat: self.activations.get(hat, 0) + 1})


def state_file(run: str) -> str:
    """The path of the document with the state of a run."""
    return f".ralph/runs/{run}/hats.json"


def render_state(state: HatsState) -> str:
    """The text of the document: a line for each key."""
    fields = {"schema": SCHEMA, **to_plain(replace(state, texts={}))}
    return "{\n" + ",\n".join(f"  {dump(key)}: {dump(value)}" for key, value in fields.items()) + "\n}\n"


def read_state(text: str, where: str) -> HatsState:
    """The state in a document."""
    data = read_json(text, where, "restore the file")
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise StateError(f"the file is not of schema version {SCHEMA}", where=where)
    return from_plain(HatsState, data, where)


def reopen(state: HatsState, *, verifies: bool) -> HatsState:
    """The state of a resumed run. A run that gave up starts a new turn; a run that was done is verified again."""
    if state.phase is HatsPhase.DONE and state.outcome is Outcome.SUCCESS:
        if not verifies or not state.claims:
            return state
        return replace(state, phase=HatsPhase.VERIFY, outcome=None, reason="", ended=False)
    if not state.ended:
        return state
    if state.outcome is Outcome.UNPROVEN and verifies:
        # The user may have accepted the work.
        return replace(state, phase=HatsPhase.VERIFY, next_phases=(), outcome=None, reason="", ended=False)
    if HatsPhase.DONE in state.next_phases:
        # The run ended before its last commit. It runs the checks again; without checks it asks the hat again.
        next_phase, claims = (HatsPhase.VERIFY, state.claims) if verifies else (HatsPhase.ACT, ())
        return replace(state, phase=next_phase, next_phases=(), claims=claims, outcome=None, reason="", ended=False)
    state = replace(state, outcome=None, reason="", ended=False)
    next_phase = HatsPhase.WAVE if state.wave else HatsPhase.ACT
    return (
        replace(state, phase=next_phase, unchanged_turns=0, refusals=0, failures=0, default_turns_in_a_row={})
        if state.phase is HatsPhase.DONE
        else state
    )


def build_report(run: str, settings: HatsSettings, state: HatsState, ended: RunEnded, tasks: AgentTasks) -> str:
    """The report in Markdown."""
    spent = ended.spent
    rows = [
        ("Objective", state.objective),
        ("Run", run),
        ("Status", f"{ended.outcome}: {ended.reason}"),
        *render_evidence_row(ended),
        ("Turns", f"{spent.turns}, {spent.iterations} of {ended.limits.iterations or 'any number'} iterations"),
        ("By hat", ", ".join(f"{show_role(hat)} {count}" for hat, count in state.activations.items())),
        ("Duration", f"{format_duration(spent.active_seconds)} of active work"),
        ("Cost", describe_cost(spent)),
        ("Changes", describe_change(add_up_changes(ended))),
        ("Required events", ", ".join(f"{topic} {_gate(state.gates.get(topic))}" for topic in settings.required)),
        *render_agent_rows(ended),
    ]
    own = [task for task in tasks.by_id.values() if task.run == run]
    parts = [
        f"# Ralph run: {ended.outcome}",
        "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows if value),
        "## Verification\n\n" + (f"```\n{state.verification}\n```" if state.verification else "No check was run."),
        "## Tasks\n\n" + "\n".join(f"- {task.status}: {task.title} ({task.id})" for task in own) if own else "",
        _decisions(state),
        "## Last events\n\n"
        + "\n".join(f"- `{e.topic}` by {show_role(e.source)}: {_cell(e.payload)}" for e in state.recent),
        render_missing_refs(ended),
        "## Next\n\n" + _next(run, ended),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _decisions(state: HatsState) -> str:
    """The decisions that hats of this run recorded."""
    found = parse_decisions(state.texts.get(DECISIONS, ""))[state.earlier_decisions :]
    if not found:
        return ""
    lines = []
    for one in found:
        confidence = one.fields.get("confidence", "")
        sure = f" (confidence {confidence})" if confidence else ""
        why = one.fields.get("reasoning", "")
        lines.append(f"- {one.id}: {_cell(one.title)}{sure}" + (f"; {_cell(why)}" if why else ""))
    return "## Decisions\n\n" + "\n".join(lines)


def _gate(gate: Gate | None) -> str:
    if gate is None or not gate.passed:
        return "missing"
    return "stale" if gate.stale else "passed"


def _next(run: str, ended: RunEnded) -> str:
    if ended.outcome is Outcome.UNPROVEN:
        return (
            f"See the changes with `ralph diff {run}`. If they are right, accept them: `{accept_command(run)}`. "
            f'If not: `ralph resume {run} --guidance "..."`.'
        )
    if ended.outcome.resumable:
        return f'Continue with `ralph resume {run}` (add `--guidance "..."` for a hint), or end it with `ralph abort {run}`.'
    return f"See what changed with `ralph diff {run}`; undo it with `ralph undo {run}`."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:300]
