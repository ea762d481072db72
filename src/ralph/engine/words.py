"""What people said to the agents of a run, and who has it: a part of the ledger, folded from the journal alone."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from ralph.core.signals import Received, Signal, SignalType, addressee
from ralph.documents.guidance import Messages

PROMPT = "prompt"
"""The means by which a turn has words from its beginning."""
MOST_FACTS = 3
"""How many of the facts that the user told earlier an agent is reminded of."""


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

    def messages_for(
        self, role: str, *, acts: bool, new: Iterable[str], iteration: int | None, reminds: bool
    ) -> Messages:
        """The messages for a turn of a role: the new ones, by their ids, and all earlier ones that are in force.

        `reminds` adds the latest facts, for an agent that knows nothing of earlier turns.
        """
        ids = [one for one in dict.fromkeys(new) if one in self.said]
        known = set(ids)
        in_force: list[Received] = []
        facts: list[Received] = []
        for said in self.said.values():
            signal = said.signal
            if signal.id in known or not signal.is_for(role, acts=acts) or signal.iteration not in (None, iteration):
                continue
            if signal.is_guidance:
                in_force.append(Received(signal, said.at))
            elif said.has and signal.type is SignalType.INFO:
                facts.append(Received(signal, said.at))
        told = [Received(self.said[one].signal, self.said[one].at) for one in ids]
        return Messages(new=told, in_force=in_force, facts=facts[-MOST_FACTS:] if reminds else ())
