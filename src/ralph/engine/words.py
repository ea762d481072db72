"""What people said to the agents of a run, and who has it: a part of the ledger, folded from the journal alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ralph.core.signals import Signal, SignalType, addressee
from ralph.documents.templates import fill

PROMPT = "prompt"
"""The means by which a turn has words from its beginning."""
STANDING = 3
"""How many of the words that were said before a new conversation is reminded of."""
BUDGET = 20_000
"""Characters of a person's words in one prompt; what does not fit waits for the next turn."""
REMINDED = 1000
"""Characters of each of the words that were said before."""


@dataclass
class Said:
    """One signal with words, and the roles that have them: by which turn, and by which means."""

    signal: Signal
    at: float
    has: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """Who has them, in words."""
        return ", ".join(f"{role} (turn {turn}, {means})" for role, (turn, means) in self.has.items())


@dataclass
class Words:
    """All that was said, the oldest first."""

    quorum: tuple[str, ...] = ()
    """The roles that must have what was said to all; where none is named, one will do."""
    roles: tuple[str, ...] = ()
    """All that the turns of the run have, where that is known."""
    said: dict[str, Said] = field(default_factory=dict)
    heard: set[tuple[str, int]] = field(default_factory=set)
    """What turns have, by id and turn."""
    _open: dict[str, Said] = field(default_factory=dict)

    def take(self, signal: Signal, at: float) -> None:
        """Somebody said something."""
        if signal.has_words:
            self.said[signal.id] = self._open[signal.id] = Said(signal, at)

    def give(self, ids: Iterable[str], role: str, turn: int, means: str) -> None:
        """A turn has words; those of a pause are only had by a turn whose prompt tells them: they are for after it."""
        for one in ids:
            if (one, turn) in self.heard:
                continue
            self.heard.add((one, turn))
            said = self.said.get(one)
            if said and (means == PROMPT or said.signal.type is not SignalType.PAUSE):
                said.has[role] = (turn, means)

    def waiting(self, role: str, *, acts: bool) -> list[Signal]:
        """What a turn of that role has to be told."""
        self._open = {one: said for one, said in self._open.items() if not self.is_had(said)}
        found = [said.signal for said in self._open.values() if role not in said.has]
        return [signal for signal in found if signal.is_for(role, acts=acts)]

    def missed(self, said: Said) -> tuple[str, ...]:
        """The roles that something was said to and that do not have it."""
        if said.signal.target:
            return () if said.has else (said.signal.target,)
        if not self.quorum:
            return () if said.has else ("anybody",)
        had = {addressee(role) for role in said.has}
        return tuple(role for role in self.quorum if addressee(role) not in had)

    def is_had(self, said: Said) -> bool:
        """Whether everybody who should has it."""
        return not self.missed(said)

    def unheard(self, since: float, role: str, *, acts: bool, heard: Iterable[str]) -> tuple[str, ...]:
        """How a turn was to be steered while it ran, and did not hear it."""
        known = set(heard)
        late = [said.signal for said in takewhile(lambda said: said.at >= since, reversed(self.said.values()))]
        steers = [signal for signal in reversed(late) if signal.type is SignalType.STEER]
        return tuple(one.id for one in steers if one.id not in known and one.is_for(role, acts=acts))

    def steered(self, role: str, turn: int) -> list[str]:
        """What a turn was steered by."""
        steers = (said for said in self.said.values() if said.signal.type is SignalType.STEER)
        return [said.signal.id for said in steers if role in said.has and said.has[role][0] == turn]

    def before(self, role: str, *, acts: bool, but: Sequence[Signal]) -> list[Signal]:
        """The last of what was said before, to this role among others."""
        new = {signal.id for signal in but}
        found: list[Signal] = []
        for said in reversed(self.said.values()):
            if len(found) == STANDING:
                break
            lasts = said.has and said.signal.type is not SignalType.PAUSE
            if lasts and said.signal.id not in new and said.signal.is_for(role, acts=acts):
                found.append(said.signal)
        return found[::-1]


def fitting(signals: Sequence[Signal]) -> list[Signal]:
    """As many as one prompt holds, the oldest first; one at least."""
    left = BUDGET
    found: list[Signal] = []
    for signal in signals:
        left -= len(signal.message)
        if found and left < 0:
            break
        found.append(signal)
    return found


def told(template: str, new: Sequence[Signal], before: Sequence[Signal] = ()) -> str:
    """What an agent is told of a person's words."""
    parts = []
    if before:
        listed = "\n".join(f"- {signal.message.strip()[:REMINDED]}" for signal in before)
        parts.append(f"# What the person said before\nIt still holds:\n{listed}\n")
    if new:
        words = "\n".join(f"- {signal.type}: {_indented(signal.message[:BUDGET])}" for signal in new)
        parts.append(fill("steering", template, {"words": words}))
    return "\n".join(parts)


def pause_told(signal: Signal) -> str:
    """What a turn that runs is told of a pause."""
    why = f" ({' '.join(signal.message.split())[:REMINDED]})" if signal.message.strip() else ""
    return (
        f"The person asks for a pause{why}. Finish the step that you are at, so that no file is left half-written;"
        " write your answer, with the status `paused` where it has one and the work is not done; and stop."
        " You will be asked to go on later."
    )


def _indented(text: str) -> str:
    return "\n  ".join(text.strip().splitlines())
