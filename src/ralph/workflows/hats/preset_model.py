"""A preset as a graph: who takes which topic, what each hat may publish, and what can follow from what.

Hats do what they list. The coordinator begins if no hat does. It continues if a hat publishes only topics that `events:`
describes and no hat receives. The engine lets it help out everywhere else, and no preset should count on that.
"""

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ralph.core.checks import Severity
from ralph.documents.agent.events import find_contradiction, find_topic_fault, topic_matches
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings
from ralph.documents.hats.preset import Preset
from ralph.documents.hats.reading import Path
from ralph.workflows.hats.events import Gate, NewEvent, find_event_fault, update_gates
from ralph.workflows.hats.routing import find_receiver
from ralph.workflows.hats.state import TASK_RESUME, TASK_START, QueuedEvent
from ralph.workflows.hats.waves import FAILED


@dataclass(frozen=True)
class PresetFinding:
    """One thing that is wrong."""

    code: str
    severity: Severity
    path: Path
    """The key that it is about."""
    what: str
    todo: str = ""
    hat: str = ""
    """The hat that a drawing shows it at."""


def make_error(code: str, path: Path, what: str, todo: str = "", hat: str = "") -> PresetFinding:
    """Something that keeps a run from being done."""
    return PresetFinding(code=code, severity=Severity.ERROR, path=path, what=what, todo=todo, hat=hat)


def make_warning(code: str, path: Path, what: str, todo: str = "", hat: str = "") -> PresetFinding:
    """Something that is not as it was meant."""
    return PresetFinding(code=code, severity=Severity.WARNING, path=path, what=what, todo=todo, hat=hat)


def find_nearest(word: str, known: Collection[str]) -> str:
    """The known word that was probably meant; empty if none is near."""
    found = difflib.get_close_matches(word, [one for one in known if one != word], 1, 0.8)
    return found[0] if found else ""


def suggest(word: str, known: Collection[str], otherwise: str) -> str:
    """What to do about an unknown word."""
    near = find_nearest(word, known)
    return f"did you mean `{near}`?" if near else otherwise


@dataclass(frozen=True)
class Model:
    """The hats and topics of a preset, by the engine's own rules."""

    preset: Preset
    settings: HatsSettings

    @property
    def start(self) -> str:
        """The topic that a run begins with."""
        return self.settings.starting_event or TASK_START

    @property
    def promises(self) -> tuple[str, ...]:
        """The topics that end a run: completion, and cancellation if there is one."""
        return tuple(one for one in (self.settings.completion, self.settings.cancellation) if one)

    @cached_property
    def promised(self) -> bool:
        """Whether some hat lists the completion promise: it is then for such hats, else for the coordinator."""
        return bool(self.settings.find_owners(self.settings.completion))

    @property
    def unsayable(self) -> str:
        """Why no hat can ever make the completion promise; empty if one can."""
        word = self.settings.completion
        if word.startswith("human."):
            return "topics that begin with `human.` are reserved"
        return "no last line can match it" if word != word.strip() or "\n" in word else ""

    @cached_property
    def triggers(self) -> tuple[str, ...]:
        """One topic for every trigger: itself, or one that its pattern means."""
        published: list[str] = []
        patterns: list[str] = []
        for hat in self.settings.hats:
            published += [*hat.publishes, hat.default_publishes]
            patterns += hat.triggers
        known = [topic for topic in (*published, "any") if topic and "*" not in topic]
        found: list[str] = []
        for pattern in patterns:
            if "*" not in pattern:
                found.append(pattern)
                continue
            alike = [topic for topic in known if topic_matches(pattern, topic)]
            found.append(alike[0] if alike else pattern.replace("*", "any"))
        return tuple(dict.fromkeys(topic for topic in found if topic not in self.promises))

    def find_receiver(self, topic: str, exhausted: frozenset[str] = frozenset()) -> str:
        """The hat that takes a topic."""
        known = self._receivers
        if (topic, exhausted) not in known:
            known[topic, exhausted] = find_receiver(self.settings, QueuedEvent(0, topic), exhausted)
        return known[topic, exhausted]

    @cached_property
    def _receivers(self) -> dict[tuple[str, frozenset[str]], str]:
        return {}

    def is_allowed(self, hat: Hat | None, topic: str) -> bool:
        """Whether the engine takes a topic from a hat, with all that its payload must have."""
        rule = self.settings.topics.get(topic)
        payload = json.dumps(dict.fromkeys(rule.requires, "x")) if rule and rule.requires else ""
        rules = self._publish_rules[hat.id if hat else COORDINATOR]
        return not find_event_fault(self.settings, rules, NewEvent(topic, payload))

    @cached_property
    def _publish_rules(self) -> dict[str, dict[str, object]]:
        """What the hats and the coordinator may publish."""
        publishers = [COORDINATOR, *(hat.id for hat in self.settings.hats)]
        return {one: self.settings.list_publish_rules(one) for one in publishers}

    def contradicts_promise(self, who: str, topics: tuple[str, ...]) -> bool:
        """Whether the engine refuses the completion promise from a turn that also publishes these topics."""
        return bool(find_contradiction(self._publish_rules[who], topics))

    def list_published(self, hat: Hat) -> tuple[str, ...]:
        """The topics that a hat says it publishes, and that the engine takes from it; promises too."""
        return self._listed[hat.id]

    @cached_property
    def _listed(self) -> dict[str, tuple[str, ...]]:
        return {hat.id: tuple(dict.fromkeys(self._expand_topics(hat))) for hat in self.settings.hats}

    def _expand_topics(self, hat: Hat) -> Iterator[str]:
        for one in hat.publishes:
            for topic in (t for t in self.triggers if topic_matches(one, t)) if "*" in one else (one,):
                if not find_topic_fault(topic) and self.is_allowed(hat, topic):
                    yield topic

    def says(self, who: str, topic: str) -> tuple[str, ...]:
        """The topics that a turn may publish and that take effect, by the preset."""
        if who in self._listed:
            return self._listed[who]
        # The coordinator completes what no hat does, whatever the event is that it gets.
        completes = topic != TASK_RESUME and not self.promised and not self.unsayable
        promise = (self.settings.completion,) if completes else ()
        begins = topic in (TASK_START, self.start) and self.find_receiver(topic) == COORDINATOR
        if not begins and not self._is_for_coordinator(topic):
            return promise
        return (*(one for one in self.triggers if self.is_allowed(None, one)), *promise)

    def _is_for_coordinator(self, topic: str) -> bool:
        """Whether a topic is meant for the coordinator: it is described, and those who publish it publish nothing for hats."""
        if topic not in self.preset.events or topic == TASK_RESUME:
            return False
        some = [{*self.list_published(hat), hat.default_publishes} - {""} for hat in self.settings.hats]
        return all(self.find_receiver(one) == COORDINATOR for said in some if topic in said for one in said)

    def default(self, who: str) -> str:
        """What is published for a hat that published nothing."""
        hat = self.settings.hat(who)
        topic = hat.default_publishes if hat else ""
        return topic if topic and topic not in self.promises else TASK_RESUME

    def substitute_for(self, topic: str) -> str:
        """What is published where the checks do not bear a topic out; empty if they are not asked."""
        rule = self.settings.topics.get(topic)
        return (rule.otherwise or TASK_RESUME) if rule and rule.evidence else ""

    def find_passed(
        self, seen: frozenset[str], who: str, topics: tuple[str, ...], *, by_engine: bool = False
    ) -> frozenset[str]:
        """The required topics that hold after a turn: as the engine counts them, for a single task."""
        key = (seen, who, topics, by_engine)
        if key not in self._passed:
            gates: Mapping[str, Gate] = {topic: Gate(passed=True) for topic in seen}
            for topic in topics:
                gates = update_gates(self.settings, gates, topic, "", source=who, by_engine=by_engine)
            holds = (topic for topic, gate in gates.items() if gate.passed and not gate.stale)
            self._passed[key] = frozenset(holds)
        return self._passed[key]

    @cached_property
    def _passed(self) -> dict[tuple[frozenset[str], str, tuple[str, ...], bool], frozenset[str]]:
        return {}

    def follows(self, who: str, topic: str) -> set[str]:
        """The topics that can be in the queue after a turn."""
        said = [one for one in self.says(who, topic) if one not in self.promises]
        found = {*said, *(other for one in said if (other := self.substitute_for(one))), self.default(who)}
        hat = self.settings.hat(who)
        if hat and hat.max_activations:
            found.add(f"{who}.exhausted")
        if hat and hat.concurrency > 1:
            found.add(FAILED)
        return found

    def find_receivers(self, topic: str) -> Iterator[str]:
        """Who takes a topic: a hat, and after its last turn the next."""
        exhausted: frozenset[str] = frozenset()
        while True:
            yield (who := self.find_receiver(topic, exhausted))
            hat = self.settings.hat(who)
            if not hat or not hat.max_activations:
                return
            exhausted |= {who}

    @cached_property
    def reached(self) -> dict[str, tuple[str, ...]]:
        """Every topic that can come up, with those who take it."""
        found: dict[str, tuple[str, ...]] = {}
        left = [self.start]
        while left:
            if (topic := left.pop()) not in found:
                found[topic] = tuple(self.find_receivers(topic))
                left += (after for who in found[topic] for after in self.follows(who, topic))
        return found

    @cached_property
    def turns(self) -> tuple[tuple[str, str], ...]:
        """Every turn that there can be: who has it, and the topic."""
        return tuple((who, topic) for topic, receivers in self.reached.items() for who in receivers)

    @cached_property
    def dispatched(self) -> bool:
        """Whether the coordinator sends events to hats, as the preset has it."""
        return any(who == COORDINATOR and self.says(who, topic) for who, topic in self.turns)

    @cached_property
    def hats(self) -> frozenset[str]:
        """The hats that can have a turn."""
        return frozenset(who for who, _ in self.turns if who != COORDINATOR)

    @cached_property
    def earnest(self) -> frozenset[str]:
        """The topics that can be published and take effect."""
        return frozenset(said for who, topic in self.turns for said in self.says(who, topic))

    @property
    def completes(self) -> bool:
        """Whether hats can get to the promise and to all that is required before it; limits are not looked at."""
        return {self.settings.completion, *self.settings.required} <= self.earnest

    @cached_property
    def hopeful(self) -> frozenset[str]:
        """The topics from which the run can still end."""
        return self._find_topics_leading_to(self.promises)

    @cached_property
    def useful(self) -> frozenset[str]:
        """The topics that help on the way: they are required, or lead to such, or to the end."""
        return self._find_topics_leading_to((*self.promises, *self.settings.required)) | {*self.settings.required}

    def _find_topics_leading_to(self, ends: tuple[str, ...]) -> frozenset[str]:
        """The topics after which one of these can be published and take effect."""
        found = {topic for who, topic in self.turns if not {*self.says(who, topic)}.isdisjoint(ends)}
        while more := {topic for who, topic in self.turns if self.follows(who, topic) & found} - found:
            found |= more
        return frozenset(found)
