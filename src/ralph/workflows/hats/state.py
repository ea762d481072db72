"""The state of a run of hats, and the document that holds it: the queue of events, the counters, the claim under way."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ralph.core.codec import dump, from_plain, to_plain
from ralph.core.errors import StateError
from ralph.core.outcomes import Outcome
from ralph.documents.hats.definition import COORDINATOR

SCHEMA = 1
REMEMBERED = 12
"""How many of the latest events the state holds for reports."""
START, RESUME = "task.start", "task.resume"
"""Topics of the engine, for the coordinator."""


class Phase(StrEnum):
    """What a run does."""

    ACT = "act"
    """The hat of the first event in the queue has its turn."""
    COMMIT = "commit"
    VERIFY = "verify"
    """The checks are run, because somebody claims that the work is good."""
    DONE = "done"


@dataclass(frozen=True)
class Published:
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


@dataclass(frozen=True)
class Guidance:
    """What a person said, and when."""

    text: str
    at: float


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
    queue: tuple[Published, ...] = ()
    """What is to be taken, oldest first; the first is the one under way."""
    claims: tuple[Published, ...] = ()
    """Events that wait for what the checks say."""
    seen: tuple[str, ...] = ()
    """Topics that hats published in earnest in this run."""
    activations: Mapping[str, int] = field(default_factory=dict)
    exhausted: tuple[str, ...] = ()
    """Hats that have had all their turns."""
    refusals: int = 0
    """Turns in a row whose events were refused."""
    notes: tuple[str, ...] = ()
    """What was refused in the last turn, and why."""
    guidance: tuple[Guidance, ...] = ()
    """What a person said and no hat has acknowledged."""
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
    verification: str = ""
    """What the checks said last."""
    not_before: float = 0.0
    recent: tuple[Published, ...] = ()
    outcome: Outcome | None = None
    reason: str = ""
    ended: bool = False
    ends: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    """The files that agents share, by path; not part of the document."""

    @property
    def event(self) -> Published:
        """The event under way."""
        return self.queue[0]


def path_of(run: str) -> str:
    """Where the state of a run is."""
    return f".ralph/runs/{run}/hats.json"


def state_json(state: HatsState) -> str:
    """The text of the document: a line for each key."""
    fields = {"schema": SCHEMA, **to_plain(replace(state, texts={}))}
    return "{\n" + ",\n".join(f"  {dump(key)}: {dump(value)}" for key, value in fields.items()) + "\n}\n"


def read_state(text: str, where: str) -> HatsState:
    """The state in a document."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"not readable as JSON ({error})", where=where) from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise StateError(f"the file is not of schema version {SCHEMA}", where=where)
    return from_plain(HatsState, data, where)
