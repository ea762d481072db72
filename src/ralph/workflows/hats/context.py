"""What holds for a whole run of hats: its hats, checks and prompts, where its files are, and who takes an event."""

from collections.abc import Collection
from dataclasses import dataclass

from ralph.core.checks import Check
from ralph.core.turns import TurnRequest
from ralph.documents.agent.events import matches
from ralph.documents.agent.tasks import FAILED, Tasks
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings
from ralph.workflows.hats.events import EVENTS
from ralph.workflows.hats.gates import gate_reasons
from ralph.workflows.hats.prompt import SHARED, TASKS, build_prompt, parse_tasks
from ralph.workflows.hats.state import RESUME, START, HatsState, QueuedEvent, state_file

LADDER = 5
"""How often the engine tries a turn at most before its failure is final."""
PATIENCE = 2
"""How often in a row a hat is told what was refused, before others go on."""


@dataclass(frozen=True)
class HatsContext:
    """What a run of hats is started with."""

    run: str
    objective: str
    settings: HatsSettings
    checks: tuple[Check, ...]
    frame: str
    """The template of what every prompt says."""
    resolver: str = ""
    """The template of what those are told who resolve a conflict."""

    @property
    def state_path(self) -> str:
        """Where the truth of this run is."""
        return state_file(self.run)

    @property
    def events_path(self) -> str:
        """Where people and their tools read the events."""
        return f".ralph/events-{self.run}.jsonl"

    @property
    def emitted_path(self) -> str:
        """Where `ralph emit` puts what people publish from outside of a turn."""
        return f".ralph/runs/{self.run}/emitted.jsonl"

    @property
    def watched(self) -> tuple[str, ...]:
        """The files that agents share, as patterns."""
        return TASKS, f"{SHARED}*.md", self.emitted_path, *self.scratchpads

    @property
    def scratchpads(self) -> tuple[str, ...]:
        """Where hats keep notes for each other."""
        pads = (self.settings.scratchpad, *(hat.scratchpad for hat in self.settings.hats))
        return tuple(pad for pad in dict.fromkeys(pads) if pad)

    @property
    def patience(self) -> int:
        """Turns in a row without any change, after which a run is stuck: every hat had its turn twice."""
        return max(4, 2 * len(self.settings.hats))

    def tasks(self, state: HatsState) -> Tasks:
        """The queue of tasks."""
        return parse_tasks(state.texts.get(TASKS, ""))

    def gates(self, state: HatsState) -> list[str]:
        """Why the run is not done yet, by all that can be told without the checks."""
        tasks = self.tasks(state)
        given_up = {task.id for task in tasks.by_id.values() if task.status == FAILED}
        reasons = gate_reasons(self.settings, state.gates, given_up)
        if state.guidance:
            reasons.append("the message from the user is not acknowledged (`ralph emit human.guidance.ack`)")
        if self.settings.tasks and (left := tasks.unfinished(self.run)):
            named = ", ".join(f"{task.id} ({task.title[:60]})" for task in left[:5])
            reasons.append(f"{len(left)} tasks are not closed: {named}")
        return reasons

    def taker(self, state: HatsState, event: QueuedEvent) -> str:
        """Who takes an event."""
        return hat_for(self.settings, event, state.exhausted)

    def claims(self, topic: str) -> bool:
        """Whether events of a topic wait for what the checks say."""
        rule = self.settings.topics.get(topic)
        return bool(rule and rule.evidence and self.checks)

    def claims_green(self, topic: str) -> bool:
        """Whether they claim that the checks pass; some claim that they fail."""
        return self.claims(topic) and not self.is_red(topic)

    def is_red(self, topic: str) -> bool:
        """Whether events of a topic claim that the checks fail."""
        rule = self.settings.topics.get(topic)
        return bool(rule and rule.red)

    def request(self, state: HatsState, id: str, key: str, now: float, wall: float | None = None) -> TurnRequest:
        """A turn for a hat, about what is first in the queue."""
        hat = self.settings.hat(id)
        gates = () if hat else self.gates(state)
        prompt = build_prompt(self.run, self.settings, self.checks, self.frame, state, hat, now, gates)
        tries = min(LADDER, max(1, self.settings.max_failures - state.failures))
        wall = wall or (hat.wall if hat else None)
        return TurnRequest(
            key, id, prompt, counts=True, wall=wall, retries=tries - 1, hands_over=(EVENTS,), settles=True
        )

    def default_of(self, hat: Hat | None) -> str:
        """What is published for a hat that published nothing; a promise is never kept by default."""
        topic = hat.default_publishes if hat else ""
        return "" if topic in (self.settings.completion, self.settings.cancellation) else topic


def hat_for(settings: HatsSettings, event: QueuedEvent, exhausted: Collection[str] = ()) -> str:
    """The id of the hat that takes an event: exact triggers before patterns, in the order of the preset."""
    able = [hat for hat in settings.hats if hat.id not in exhausted]
    if event.target:
        return event.target if event.target in {hat.id for hat in able} else COORDINATOR
    if event.topic in (START, RESUME):
        return COORDINATOR
    found = [
        (_vagueness(pattern), number, hat.id)
        for number, hat in enumerate(able)
        for pattern in hat.triggers
        if matches(pattern, event.topic)
    ]
    return min(found)[2] if found else COORDINATOR


def _vagueness(pattern: str) -> int:
    return 1000 if pattern == "*" else pattern.split(".").count("*")
