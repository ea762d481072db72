"""What each hat of a preset is for, by where its topics lead and what they are called."""

import re
from dataclasses import dataclass, replace
from functools import cached_property

from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings
from ralph.workflows.hats.routing import hat_for
from ralph.workflows.hats.state import Published

FAR = 1000
"""As far as it is from a topic that no hat takes to the end."""
_BAD = re.compile(
    r"reject|fail|invalid|refus|revis|rework|redo|retry|again|error|broken|missing|incomplete|unmet|gap|bug|"
    r"(?:^|[._-])(?:fix|no|not|needs?|changes)(?:$|[._-])"
)
"""Names of topics that say that what somebody made is wrong."""
_CANNOT = re.compile(r"block|stuck|unclear|impossible|wrong|question|cannot|help")
"""Names of topics that say that something cannot be made, because of what it was to be made of."""


@dataclass(frozen=True)
class Part:
    """What a hat is for, by where its topics lead."""

    forward: tuple[str, ...]
    """The topics that lead to the end, the shortest way first."""
    mends: tuple[str, ...]
    """Those that send the work back because something is wrong with it."""
    more: tuple[str, ...]
    """Those that begin the next piece of it."""
    judges: bool
    """Whether it looks at what others made, and sends it on or back."""
    completes: bool
    marks: bool = False
    """Whether it makes checks that fail until something is made, and nothing else."""


@dataclass(frozen=True)
class Parts:
    """The parts of all hats of a preset."""

    settings: HatsSettings

    def taker(self, topic: str) -> str:
        """Who takes a topic, by the rules."""
        return hat_for(self.settings, Published(0, topic))

    @cached_property
    def far(self) -> dict[str, int]:
        """How many turns it takes from each topic to the end, at least."""
        far = {self.settings.completion: 0}
        found = True
        while found:
            found = False
            for hat in self.settings.hats:
                nearest = min((far.get(topic, FAR) for topic in _topics(hat)), default=FAR) + 1
                for topic in (one for one in self.topics if self.taker(one) == hat.id):
                    if nearest < far.get(topic, FAR):
                        far[topic], found = nearest, True
        return far

    @cached_property
    def topics(self) -> list[str]:
        """Every topic that a hat publishes or takes by name."""
        named = (one for hat in self.settings.hats for one in (*hat.triggers, *hat.publishes, hat.default_publishes))
        return list(dict.fromkeys(one for one in (self.settings.starting_event, *named) if one and "*" not in one))

    @cached_property
    def of(self) -> dict[str, Part]:
        """The part of each hat, by its id; where none makes anything, all do."""
        parts = {hat.id: self._part(hat) for hat in self.settings.hats}
        idle = all(part.judges or part.marks for part in parts.values())
        return {id: replace(part, judges=part.judges and not idle) for id, part in parts.items()}

    @property
    def about(self) -> str:
        """What each hat is taken for, in words."""
        return ", ".join(
            f"{id} {'judges' if part.judges else 'marks' if part.marks else 'makes'}{' and completes' * part.completes}"
            for id, part in self.of.items()
        )

    @cached_property
    def begins_more(self) -> set[str]:
        """The topics that begin the next piece."""
        return {topic for part in self.of.values() for topic in part.more}

    @cached_property
    def to_make(self) -> list[str]:
        """The topics by which a coordinator brings those to work who make something, the best first."""
        made = {topic for hat in self.settings.hats for topic in hat.publishes}
        made |= {rule.otherwise for rule in self.settings.topics.values()}
        takers = {topic: self.of.get(self.taker(topic)) for topic in self.topics}
        able = [topic for topic, part in takers.items() if part and not part.judges]
        able = able or [topic for topic, part in takers.items() if part]
        return sorted(able, key=lambda topic: (topic in made, self.far.get(topic, FAR)))

    def topics_of(self, hat: Hat | None) -> list[str]:
        """What a hat may say, but that all is to be given up."""
        return [topic for topic in _topics(hat) if topic != self.settings.cancellation]

    def _part(self, hat: Hat) -> Part:
        topics = self.topics_of(hat)
        nearest = min((self.far.get(topic, FAR) for topic in topics), default=FAR)
        farther = [topic for topic in topics if self.far.get(topic, FAR) > nearest and hat.id in self._ahead(topic)]
        back = [topic for topic in farther if not _CANNOT.search(topic) and self._returns(topic, hat)]
        ways = [topic for topic in topics if topic not in back and self.far.get(topic, FAR) < FAR]
        forward = [topic for topic in ways if not _CANNOT.search(topic)] or ways or topics
        forward.sort(key=lambda topic: (bool(_BAD.search(topic)), self.far.get(topic, FAR)))
        rules = [self.settings.topics.get(topic) for topic in forward]
        return Part(
            tuple(forward),
            mends=tuple(topic for topic in back if _BAD.search(topic)),
            more=tuple(topic for topic in back if not _BAD.search(topic)),
            judges=any(self.taker(topic) not in (hat.id, COORDINATOR) for topic in back),
            completes=self.settings.completion in topics,
            marks=any(rule and rule.red for rule in rules),
        )

    def _returns(self, topic: str, hat: Hat) -> bool:
        """Whether the work has to come by a hat again: by its name, or because there is no other way to the end."""
        others = (self.settings.hat(id) for id in self._ahead(topic, but=hat.id))
        return bool(_BAD.search(topic)) or all(self.settings.completion not in _topics(other) for other in others)

    def _ahead(self, topic: str, but: str = "") -> set[str]:
        """The hats that may have a turn after a topic, where one has none."""
        seen, ahead = set[str](), [self.taker(topic)]
        while ahead:
            id = ahead.pop()
            if id not in seen and id not in (but, COORDINATOR):
                seen.add(id)
                ahead += [self.taker(one) for one in _topics(self.settings.hat(id))]
        return seen


def _topics(hat: Hat | None) -> list[str]:
    return [topic for topic in hat.publishes if "*" not in topic] if hat else []
