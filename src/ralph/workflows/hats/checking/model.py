"""A preset as a graph: who takes which topic, what each hat may publish, and what can follow from what.

Hats do what they list. The coordinator begins where no hat does, and goes on where a hat publishes only what nobody takes and
`events:` describes; that it may help out everywhere else, the engine allows, and no preset should count on.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ralph.documents.agent.events import fault_of_topic, matches
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings
from ralph.documents.hats.preset import Preset
from ralph.workflows.hats.intake import Said, fault_of
from ralph.workflows.hats.routing import hat_for
from ralph.workflows.hats.state import RESUME, START, Published


@dataclass(frozen=True)
class Model:
    """The hats and topics of a preset, by the engine's own rules."""

    preset: Preset
    settings: HatsSettings

    @property
    def start(self) -> str:
        """The topic that a run begins with."""
        return self.settings.starting_event or START

    @property
    def promises(self) -> tuple[str, ...]:
        """The topics that end a run: completion, and cancellation where there is one."""
        return tuple(one for one in (self.settings.completion, self.settings.cancellation) if one)

    @cached_property
    def promised(self) -> bool:
        """Whether some hat lists the completion promise: it is then for such hats."""
        return any(self.settings.completion in hat.publishes for hat in self.settings.hats)

    @cached_property
    def triggers(self) -> tuple[str, ...]:
        """One topic for every trigger: itself, or one that its pattern means."""
        known = (*(topic for hat in self.settings.hats for topic in (*hat.publishes, hat.default_publishes)), "any")
        found = []
        for pattern in (trigger for hat in self.settings.hats for trigger in hat.triggers):
            usual = pattern.replace("*", "any")
            alike = (one for one in known if one and "*" not in one and matches(pattern, one))
            found.append(next(alike, usual) if "*" in pattern else pattern)
        return tuple(dict.fromkeys(one for one in found if one not in self.promises))

    def taker(self, topic: str, exhausted: frozenset[str] = frozenset()) -> str:
        """The hat that takes a topic."""
        return hat_for(self.settings, Published(0, topic), exhausted)

    def allowed(self, hat: Hat | None, topic: str) -> bool:
        """Whether the engine takes a topic from a hat, with all that its payload must have."""
        rule = self.settings.topics.get(topic)
        payload = json.dumps(dict.fromkeys(rule.requires, "x")) if rule and rule.requires else ""
        return not fault_of(self.settings, hat, Said(topic, payload))

    def listed(self, hat: Hat) -> tuple[str, ...]:
        """The topics that a hat says it publishes, and that the engine takes from it; promises too."""
        return self._listed[hat.id]

    @cached_property
    def _listed(self) -> dict[str, tuple[str, ...]]:
        return {hat.id: tuple(dict.fromkeys(self._expanded(hat))) for hat in self.settings.hats}

    def _expanded(self, hat: Hat) -> Iterator[str]:
        for one in hat.publishes:
            for topic in (t for t in self.triggers if matches(one, t)) if "*" in one else (one,):
                if not fault_of_topic(topic) and self.allowed(hat, topic):
                    yield topic
        # A promise that no hat lists may be kept by every hat that the engine takes it from.
        if not self.promised and self.allowed(hat, self.settings.completion):
            yield self.settings.completion

    def says(self, who: str, topic: str) -> tuple[str, ...]:
        """What may be published in earnest in a turn, as the preset has it."""
        if hat := self.settings.hat(who):
            return self.listed(hat)
        if topic not in (START, self.start) and not self._for_coordinator(topic):
            return ()
        return (*self.triggers, *(() if self.promised else self.promises[:1]))

    def _for_coordinator(self, topic: str) -> bool:
        """Whether a topic is meant for the coordinator: it is described, and those who publish it publish nothing for hats."""
        if topic not in self.preset.events or topic == RESUME:
            return False
        some = [{*self.listed(hat), hat.default_publishes} - {""} for hat in self.settings.hats]
        return all(self.taker(one) == COORDINATOR for said in some if topic in said for one in said)

    def default(self, who: str) -> str:
        """What is published for a hat that published nothing."""
        hat = self.settings.hat(who)
        topic = hat.default_publishes if hat else ""
        return topic if topic and topic not in self.promises else RESUME

    def refused(self, topic: str) -> str:
        """What is published where the checks do not bear a topic out; empty where they are not asked."""
        rule = self.settings.topics.get(topic)
        return (rule.otherwise or RESUME) if rule and rule.evidence else ""

    def follows(self, who: str, topic: str) -> set[str]:
        """The topics that can be in the queue after a turn."""
        said = [one for one in self.says(who, topic) if one not in self.promises]
        found = {*said, *(other for one in said if (other := self.refused(one))), self.default(who)}
        hat = self.settings.hat(who)
        if hat and hat.max_activations:
            found.add(f"{who}.exhausted")
        return found

    def ends(self, who: str, topic: str) -> bool:
        """Whether a turn can end the run."""
        return any(promise in self.says(who, topic) for promise in self.promises)

    @cached_property
    def reached(self) -> dict[str, str]:
        """Every topic that can come up, with the one who takes it."""
        found: dict[str, str] = {}
        left = [self.start]
        while left:
            topic = left.pop()
            if topic in found:
                continue
            found[topic] = who = self.taker(topic)
            left += self.follows(who, topic)
            if (hat := self.settings.hat(who)) and hat.max_activations:
                left += self.follows(self.taker(topic, frozenset((who,))), topic)
        return found

    @cached_property
    def dispatched(self) -> bool:
        """Whether the coordinator sends events to hats, as the preset has it."""
        return any(who == COORDINATOR and self.says(who, topic) for topic, who in self.reached.items())

    @cached_property
    def hats(self) -> frozenset[str]:
        """The hats that can have a turn."""
        seconds = {
            self.taker(topic, frozenset((who,)))
            for topic, who in self.reached.items()
            if (hat := self.settings.hat(who)) and hat.max_activations
        }
        return frozenset({*self.reached.values(), *seconds} - {COORDINATOR})

    @cached_property
    def earnest(self) -> frozenset[str]:
        """The topics that can be published in earnest."""
        return frozenset(said for topic, who in self.reached.items() for said in self.says(who, topic))

    @cached_property
    def hopeful(self) -> frozenset[str]:
        """The topics from which the run can still end."""
        found = {topic for topic, who in self.reached.items() if self.ends(who, topic)}
        grew = True
        while grew:
            more = {t for t, who in self.reached.items() if t not in found and self.follows(who, t) & found}
            found |= more
            grew = bool(more)
        return frozenset(found)
