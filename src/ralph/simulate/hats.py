"""Agents under hats: what each hat is for, by where its topics lead, and what an agent of a profile makes of its turn."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ralph.core.checks import Check, Verdict
from ralph.core.events import Merge, Merged, MergeEnd, Promote
from ralph.core.turns import Turn
from ralph.documents.agent.publishing import ACKNOWLEDGED
from ralph.documents.hats.definition import COORDINATOR, Hat, HatsSettings
from ralph.simulate.profile import Profile
from ralph.simulate.truth import Work, verdict_of
from ralph.simulate.world import Deed
from ralph.workflows.hats.intake import EVENTS
from ralph.workflows.hats.prompting import TASKS
from ralph.workflows.hats.routing import hat_for
from ralph.workflows.hats.rules import Hats
from ralph.workflows.hats.state import RESUME, START, HatsState, Published

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


@dataclass
class HatsGame:
    """One run of hats."""

    rules: Hats
    parts: Parts
    profile: Profile
    chance: random.Random
    work: Work = field(init=False)
    remarks: dict[str, None] = field(default_factory=dict)
    _tasks: str = ""
    _open: dict[str, str] = field(default_factory=dict)
    _made: int = 0
    _marked: bool = False
    """Whether checks fail for what is to be made."""
    _refused: bool = False
    """Whether somebody was told that the run is not done yet."""

    def __post_init__(self) -> None:
        several = any(part.more for part in self.parts.of.values()) or not self.parts.of
        self.work = Work(self.chance.randint(*self.profile.pieces) if several else 1)

    @property
    def true(self) -> bool:
        """Whether all of the work is really done."""
        return self.work.is_done

    def deed(self, turn: Turn, state: HatsState) -> Deed:
        """Work, judge, publish."""
        if turn.request.brings_in:
            return Deed("brings together what was made side by side", 1)
        hat = self.rules.settings.hat(turn.request.role)
        part = self.parts.of.get(turn.request.role) or self._alone()
        if hat is None and self.rules.settings.hats and state.event.topic not in (START, RESUME):
            self.remarks[f"`{state.event.topic}` came to the coordinator: no hat takes it, or not any more"] = None
        files = int(not part.judges and self.chance.random() < self.profile.acts)
        if files:
            self._make(part)
        kinds = ("fitting", "any", "forbidden", "broken", "nothing")
        [kind] = self.chance.choices(kinds, self.profile.publishes.weights)
        lines = ""
        topic = ""
        if kind == "fitting":
            topic = self._fitting(hat, part, state)
        elif kind == "any":
            topic = self.chance.choice([*(hat.publishes if hat else self.parts.topics), self.rules.settings.completion])
        elif kind == "forbidden":
            topic = self.chance.choice([*self.parts.topics, "human.guidance", "human.interact", "no.such.topic"])
        else:
            lines = self.chance.choice(_BROKEN) if kind == "broken" else ""
        if topic:
            self._publishing(topic, part)
            lines = self._line(topic, forbidden=kind == "forbidden")
        if state.guidance and self.chance.random() < self.profile.heeds:
            lines += self._line(ACKNOWLEDGED)
        edits = {TASKS: self._tasks} if self._tasks != state.texts.get(TASKS, "") else {}
        told = f"{self.work.told}; publishes {topic or ('what cannot be read' if lines else 'nothing')}"
        return Deed(told, files, papers={EVENTS: lines} if lines else {}, edits=edits)

    def verdict(self, key: str, checks: Sequence[Check], workspace: str, state: HatsState) -> Verdict:
        """Whether what is claimed is true: all of it, or the piece under way."""
        topics, rules = {claim.topic for claim in state.claims}, self.rules.settings.topics
        if self.rules.settings.completion in topics:
            holds = self.work.is_done
            self.work.believed = self.work.left
        elif any(rules[topic].red for topic in topics if topic in rules):
            holds = not self._marked
        else:
            holds = self.work.is_right
            if holds and topics & self.parts.begins_more:
                self.work.leave()
        return verdict_of(checks, holds, self.work.told)

    def merged(self, work: Merge | Promote) -> Merged:
        """What hats made side by side comes together, or does not at once."""
        end = MergeEnd.CONFLICT if self.chance.random() < self.profile.conflicts else MergeEnd.MERGED
        return Merged(work.key, work.workspace, end)

    def _alone(self) -> Part:
        """The part of the coordinator: where there are no hats it makes all of it."""
        done = self.rules.settings.completion
        if self.rules.settings.hats:
            return Part((*self.parts.to_make, done)[:1], (), (), True, True)
        return Part((done,), (), ("work.done",), False, True)

    def _make(self, part: Part) -> None:
        """Work on the piece under way, or mark what it has to come to."""
        right = self.chance.random() < self.profile.right
        if part.marks:
            self._marked = right
        else:
            self.work.make(right)
        if self.rules.settings.tasks and self.work.left and not self._open:
            self._made += 1
            self._row(f"task-{self._made}", "open")

    def _fitting(self, hat: Hat | None, part: Part, state: HatsState) -> str:
        """What the hat should publish, as far as this agent sees, and as honest as it is."""
        work, profile, chance = self.work, self.profile, self.chance
        back = (*part.mends, *part.more)
        if back and chance.random() < profile.loops:
            return chance.choice(back)
        lies = chance.random() < profile.lies
        missing = [topic for topic in self.rules.settings.required if topic not in state.seen]
        self._refused = self._refused or any("was refused" in note for note in state.notes)
        if not hat and self.rules.settings.hats and not lies and (missing or not work.seems_done):
            return part.forward[0]
        if part.completes and back and missing and not lies and self._refused:
            return back[0]
        seen_wrong = not work.is_right and chance.random() < profile.notices
        wrong = part.judges and hat and (seen_wrong if not work.is_right else chance.random() < profile.doubts)
        if wrong and not lies and back:
            return back[0]
        if (part.completes or part.more) and not lies and not work.nearly_done:
            return next(iter((*part.more, *part.mends)), "" if hat is None else part.forward[-1])
        if part.completes:
            return self.rules.settings.completion
        wanted = [topic for topic in missing if topic in part.forward]
        if missing and self._refused:
            return chance.choice(wanted or self.parts.topics_of(hat) or [""])
        return (*wanted, *part.forward, "")[0]

    def _publishing(self, topic: str, part: Part) -> None:
        """What saying so means for the pieces: the one under way is left for good, or looked at again."""
        if topic not in part.more and topic != self.rules.settings.completion:
            return
        rule = self.rules.settings.topics.get(topic)
        if topic in part.more and not (rule and rule.evidence and self.rules.checks):
            self.work.leave()
        if self.chance.random() < self.profile.tidy:
            for id in list(self._open):
                self._row(id, "closed")

    def _row(self, id: str, status: str) -> None:
        fields = {"id": id, "title": id, "status": status, "priority": 3, "blocked_by": [], "loop_id": self.rules.run}
        self._tasks += json.dumps(fields) + "\n"
        if status == "open":
            self._open[id] = status
        else:
            del self._open[id]

    def _line(self, topic: str, *, forbidden: bool = False) -> str:
        rule = self.rules.settings.topics.get(topic)
        keys = () if forbidden or not rule else rule.requires
        row = {"topic": topic, "payload": dict.fromkeys(keys, "1") or "so it is", "ts": "2026-11-16T09:30:00Z"}
        if forbidden and self.chance.random() < 0.2:
            row["target"] = "nobody"
        return json.dumps(row) + "\n"


_BROKEN = (
    '{"topic": ',
    "LOOP_COMPLETE\n",
    "\x00\xff\n",
    '{"topic": "a b"}\n{"payload": 3}\n',
    "[]\n[[[[[[\n",
    '"x"\n' * 80,
)


def _topics(hat: Hat | None) -> list[str]:
    return [topic for topic in hat.publishes if "*" not in topic] if hat else []
