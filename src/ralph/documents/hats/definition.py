"""What a run of hats is started with: frozen in `run.json`, read without a validation library."""

from collections.abc import Mapping
from dataclasses import dataclass, field

COORDINATOR = "ralph"
"""The hat that takes events that no other is for."""


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

    def publishing(self, hat: Hat | None) -> dict[str, object]:
        """What a hat may publish, for `documents.agent.publishing`; no hat is the coordinator, who may publish all.

        Where some hats list a promise, it is theirs alone.
        """
        promised = {
            topic: [one.id for one in self.hats if topic in one.publishes]
            for topic in (self.completion, self.cancellation)
            if topic
        }
        others = {topic: ids for topic, ids in promised.items() if hat and ids and hat.id not in ids}
        own = list(hat.publishes) if hat and self.enforce_scope else None
        requires = {name: list(topic.requires) for name, topic in self.topics.items() if topic.requires}
        return {"own": own, "others": others, "requires": requires}
