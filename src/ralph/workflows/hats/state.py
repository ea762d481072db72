"""The state of a run of hats, and the document that holds it: the queue of events, the counters, the claim under way."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ralph.core.checks import Red
from ralph.core.codec import dump, from_plain, read_json, to_plain
from ralph.core.errors import StateError
from ralph.core.events import TurnEnded
from ralph.core.outcomes import Outcome
from ralph.documents.hats.definition import COORDINATOR
from ralph.workflows.hats.events import NewEvent
from ralph.workflows.hats.gates import Gate
from ralph.workflows.merging import Queue

SCHEMA = 1
REMEMBERED = 12
"""How many of the latest events the state holds for reports."""
START, RESUME = "task.start", "task.resume"
"""Topics of the engine, for the coordinator."""


class Phase(StrEnum):
    """What a run does."""

    ACT = "act"
    """The hat of the first event in the queue has its turn."""
    WAVE = "wave"
    """A hat takes several events side by side."""
    COMMIT = "commit"
    VERIFY = "verify"
    """The checks are run, because somebody claims that the work is good."""
    REST = "rest"
    """All is done, and more may come."""
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
    default: bool = False
    """Whether it was published for a hat that published nothing."""
    wave: int = 0
    """The wave that it came of, by the number of the first event of that; 0 for none."""


@dataclass(frozen=True)
class Guidance:
    """A message from the user, and when it came."""

    text: str
    at: float


class Step(StrEnum):
    """How far one of a wave is."""

    TURN = "turn"
    MERGE = "merge"
    """What it did comes onto the branch of the run."""
    DONE = "done"


@dataclass(frozen=True)
class Job:
    """One event of a wave, and what came of it."""

    event: QueuedEvent
    step: Step = Step.TURN
    attempt: int = 1
    turn: int = 0
    """The number of its last turn."""
    refusals: int = 0
    notes: tuple[str, ...] = ()
    said: tuple[NewEvent, ...] = ()
    """What it published: others learn of it when the whole wave is over."""
    default: bool = False
    """Whether that was published for it."""
    failed: str = ""
    """Why nothing came of it."""
    tries: int = 0


@dataclass(frozen=True)
class Wave:
    """Events that one hat takes side by side, each in a workspace of its own."""

    hat: str
    jobs: tuple[Job, ...]
    merging: Queue = field(default_factory=Queue)
    deadline: float = 0.0
    """When those that have not begun are not waited for any more; 0 for never."""
    left: float = 0.0
    """The seconds until then when the run ended, for when it goes on: the time that it rested is not the wave's fault."""
    moved: bool = False
    """Whether any of them changed a file."""

    @property
    def number(self) -> int:
        """What it is known by."""
        return self.jobs[0].event.number

    @property
    def is_over(self) -> bool:
        """Whether all that it began has ended."""
        return all(job.step is Step.DONE for job in self.jobs)


@dataclass(frozen=True)
class TurnChange:
    """What one turn changed."""

    turn: int
    hat: str
    files: int
    added: int = 0
    removed: int = 0


@dataclass(frozen=True)
class HatsState:
    """All that the rules of hats need to know."""

    objective: str
    phase: Phase = Phase.ACT
    ahead: tuple[Phase, ...] = ()
    """The phases that follow this one."""
    iteration: int = 1
    """The hat turn under way, or next."""
    turn: int = 0
    """The number of the last turn."""
    number: int = 0
    """Events so far."""
    queue: tuple[QueuedEvent, ...] = ()
    """What is to be taken, oldest first; the first is the one under way."""
    taken: int = 1
    """How many of the first events the turn under way takes; a hat that gathers takes several."""
    wave: Wave | None = None
    """What is done side by side; its events are not in the queue any more."""
    claims: tuple[QueuedEvent, ...] = ()
    """Events that wait for what the checks say."""
    red: Red | None = None
    """What was seen to fail, as a hat claimed, until it is seen to pass."""
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """What was said about each required topic."""
    changed: tuple[TurnChange, ...] = ()
    """The latest turns that changed files."""
    last_turns: Mapping[str, int] = field(default_factory=dict)
    """The number of each hat's last turn."""
    defaults: Mapping[str, int] = field(default_factory=dict)
    """How many turns in a row each hat ended in its default event."""
    activations: Mapping[str, int] = field(default_factory=dict)
    exhausted: tuple[str, ...] = ()
    """Hats that have had all their turns."""
    refusals: int = 0
    """Turns in a row whose events were refused."""
    notes: tuple[str, ...] = ()
    """What was refused in the last turn, and why."""
    guidance: tuple[Guidance, ...] = ()
    """Messages from the user that no hat has acknowledged."""
    outside: int = 0
    """How much of what people published from outside was taken."""
    still: int = 0
    """Turns in a row in which nothing changed: no file, no task, no memory."""
    moved: bool = False
    """Whether tasks or memories changed since the last turn ended."""
    failures: int = 0
    """Tries in a row that failed."""
    snapshot: str = ""
    committed: str = ""
    """The snapshot that was committed last."""
    checkpoint: int = 0
    """The turns that there had been then."""
    verification: str = ""
    """What the checks said last."""
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
        """The event under way."""
        return self.queue[0]

    @property
    def events(self) -> tuple[QueuedEvent, ...]:
        """All events under way: one, but for a hat that gathers."""
        return self.queue[: self.taken]

    @property
    def rests(self) -> bool:
        """Whether all is done and it waits for more, or will when a commit is made."""
        return Phase.REST in (self.phase, *self.ahead)

    def after_turn(self, ended: TurnEnded, *, acknowledged: bool) -> "HatsState":
        """One turn more; a message is acknowledged by a turn that was told of it."""
        left = tuple(g for g in self.guidance if not acknowledged or g.at > ended.result.started_at)
        change, changed = ended.result.change, self.changed
        if change and change.files:
            entry = TurnChange(ended.turn, ended.role, change.files, added=change.added, removed=change.removed)
            # Turns of a wave end in any order, and the state must not depend on it.
            changed = tuple(sorted((*changed, entry), key=lambda one: one.turn))[-REMEMBERED:]
        return replace(
            self,
            iteration=self.iteration + 1,
            turn=ended.turn,
            guidance=left,
            changed=changed,
            last_turns={**self.last_turns, ended.role: max(ended.turn, self.last_turns.get(ended.role, 0))},
        )

    def with_default_of(self, hat: str) -> "HatsState":
        """One more turn of a hat that ended in its default event."""
        return replace(self, defaults={**self.defaults, hat: self.defaults.get(hat, 0) + 1})

    def with_word_of(self, hat: str) -> "HatsState":
        """A turn of a hat that published something itself."""
        return replace(self, defaults={**self.defaults, hat: 0}) if self.defaults.get(hat) else self

    def with_turn_of(self, hat: str) -> "HatsState":
        """One turn more of a hat."""
        return replace(self, activations={**self.activations, hat: self.activations.get(hat, 0) + 1})


def state_file(run: str) -> str:
    """Where the state of a run is."""
    return f".ralph/runs/{run}/hats.json"


def state_json(state: HatsState) -> str:
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
    """Where a run goes on: one that had given up begins a new turn; a document that says done is verified again."""
    if state.phase is Phase.DONE and state.outcome is Outcome.SUCCESS:
        again = verifies and bool(state.claims)
        return replace(state, phase=Phase.VERIFY, outcome=None, reason="", ended=False) if again else state
    if not state.ended:
        return state
    if Phase.DONE in state.ahead:
        # It was left before its last commit: what it claimed is looked at again, or asked for where nothing is checked.
        then, claims = (Phase.VERIFY, state.claims) if verifies else (Phase.ACT, ())
        return replace(state, phase=then, ahead=(), claims=claims, outcome=None, reason="", ended=False)
    state = replace(state, outcome=None, reason="", ended=False)
    then = Phase.WAVE if state.wave else Phase.ACT
    return (
        replace(state, phase=then, still=0, refusals=0, failures=0, defaults={}) if state.phase is Phase.DONE else state
    )
