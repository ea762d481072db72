"""Agents under hats: what an agent of a profile makes of a turn, and what that means for the work."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from ralph.core.checks import Check, Verdict
from ralph.core.events import Merge, Merged, MergeEnd, Promote
from ralph.core.turns import Turn
from ralph.documents.agent.publishing import ACKNOWLEDGED
from ralph.documents.hats.definition import Hat
from ralph.simulate.answers import kind_of
from ralph.simulate.game import Deed
from ralph.simulate.parts import Part, Parts
from ralph.simulate.profile import Profile
from ralph.simulate.truth import Work, verdict_of
from ralph.workflows.hats.intake import EVENTS
from ralph.workflows.hats.prompting import TASKS
from ralph.workflows.hats.rules import Hats
from ralph.workflows.hats.state import RESUME, START, HatsState


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
        kind, lines, topic = kind_of(self.profile, self.chance), "", ""
        if kind == "fitting":
            topic = self._fitting(hat, part, state)
        elif kind == "any":
            own = self.parts.topics_of(hat) if hat else self.parts.topics
            topic = self.chance.choice([*own, self.rules.settings.completion])
        elif kind == "forbidden":
            topic = self.chance.choice([*self.parts.topics, "human.guidance", "human.interact", "no.such.topic"])
        else:
            lines = self.chance.choice(_BROKEN) if kind == "broken" else ""
        if topic:
            self._publishing(topic, part)
            taker = self.rules.settings.hat(self.parts.taker(topic))
            side_by_side = self.chance.randint(1, taker.concurrency) if taker and kind == "fitting" else 1
            lines = "".join(self._line(topic, n, forbidden=kind == "forbidden") for n in range(side_by_side))
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

    def _line(self, topic: str, number: int = 0, *, forbidden: bool = False) -> str:
        rule = self.rules.settings.topics.get(topic)
        keys = () if forbidden or not rule else rule.requires
        row = {"topic": topic, "payload": dict.fromkeys(keys, f"{number}") or f"{number}", "ts": "2026-11-16T09:30:00Z"}
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
