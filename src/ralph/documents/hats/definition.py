"""What a run of hats is started with: frozen in `run.json`, read without a validation library."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ralph.documents.agent.events import matches

COORDINATOR = "ralph"
"""The hat that takes events that no other is for."""
USER = "user"
"""The source of events that come from outside of any turn."""


@dataclass(frozen=True)
class Hat:
    """One hat: what it takes, what it does, what it may publish."""

    id: str
    name: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    instructions: str = ""
    default_publishes: str = ""
    """Published in its name where it published nothing itself."""
    max_activations: int | None = None
    wall: float | None = None
    """Seconds that a turn of it may take."""
    disallowed_tools: tuple[str, ...] = ()
    may_ask: bool = True
    """Whether it may put questions to a person."""
    scratchpad: str = ""
    """Its own scratchpad, where it is another than that of all."""
    concurrency: int = 1
    """How many of its events it takes side by side."""
    gathers: bool = False
    """Whether it waits until all of a wave have ended, and takes what came of it in one turn."""
    gathers_within: float = 0.0
    """Seconds that it waits for them; 0 for any time."""


@dataclass(frozen=True)
class Topic:
    """What is known of a topic, and what its events must hold."""

    description: str = ""
    on_trigger: str = ""
    on_publish: str = ""
    requires: tuple[str, ...] = ()
    """Keys that a payload must have."""
    evidence: bool = False
    """Whether it counts only where the checks of the run pass."""
    otherwise: str = ""
    """The topic that is published instead where they do not."""
    red: bool = False
    """Whether, the other way round, it counts only where the checks fail: what is missing must be seen first."""


@dataclass(frozen=True)
class MemoryUse:
    """What of the memories goes into prompts."""

    inject: bool = True
    budget: int = 2000
    """Tokens."""
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    recent: int = 0
    """Days; 0 for all."""


@dataclass(frozen=True)
class HatsSettings:
    """The hats of a run, and the rules of its events."""

    hats: tuple[Hat, ...] = ()
    topics: Mapping[str, Topic] = field(default_factory=dict)
    completion: str = "LOOP_COMPLETE"
    cancellation: str = ""
    starting_event: str = ""
    required: tuple[str, ...] = ()
    enforce_scope: bool = False
    persistent: bool = False
    """Whether a run that has done all waits for more, and ends only by a person or a limit."""
    guardrails: tuple[str, ...] = ()
    max_failures: int = 5
    cooldown: float = 0.0
    checkpoint: int = 0
    """Turns between two commits of the work; 0 for none."""
    max_default_events: int = 3
    """Turns of a hat in a row that end in its default event, after which the run asks the user; 0 for never."""
    tasks: bool = True
    memories: MemoryUse = field(default_factory=MemoryUse)
    scratchpad: str = ".ralph/agent/scratchpad.md"
    """Empty where there is none."""
    source: str = "rough description"
    """What the objective is: a directory of tasks, one task file, or a description."""
    documents: str = ""
    """The directory of the documents that the hats share."""

    @property
    def has_waves(self) -> bool:
        """Whether some hat works side by side with itself."""
        return any(hat.concurrency > 1 for hat in self.hats)

    def hat(self, name: str) -> Hat | None:
        """The hat of that id; None for the coordinator."""
        return next((hat for hat in self.hats if hat.id == name), None)

    def owners(self, topic: str) -> tuple[str, ...]:
        """The hats that list a topic in `publishes`; a pattern counts only if no hat names the topic itself."""
        named = tuple(hat.id for hat in self.hats if topic in hat.publishes)
        return named or tuple(hat.id for hat in self.hats if any(matches(one, topic) for one in hat.publishes))

    def gatekeepers(self, topic: str) -> tuple[str, ...] | None:
        """Whose word counts for a topic that a run depends on; None if everybody may publish it.

        A required topic and the promises belong to the hats that list them. The completion promise belongs to the
        coordinator if no hat lists it. The coordinator may always cancel, and without hats it does everything.
        """
        if not self.hats or topic not in (self.completion, self.cancellation, *self.required):
            return None
        owners = self.owners(topic)
        if topic == self.completion:
            return owners or (COORDINATOR,)
        if topic == self.cancellation:
            return (*owners, COORDINATOR) if owners else None
        return owners

    def publishing(self, who: str) -> dict[str, object]:
        """What a hat, the coordinator or the user may publish, for `documents.agent.publishing`."""
        hat = self.hat(who)
        gates = {}
        for topic in dict.fromkeys((self.completion, self.cancellation, *self.required)):
            keepers = self.gatekeepers(topic)
            if who == USER and topic in (self.completion, self.cancellation):
                keepers = keepers or (COORDINATOR,)
            if topic and keepers is not None and who not in keepers:
                gates[topic] = list(keepers)
        return {
            "own": list(hat.publishes) if hat else None,
            "strict": bool(hat) and self.enforce_scope,
            "gates": gates,
            "requires": {name: list(topic.requires) for name, topic in self.topics.items() if topic.requires},
        }
