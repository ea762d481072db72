"""Agents in a loop: every turn works on one piece, and the checks say how many are left."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ralph.core.checks import Check, Counts, Verdict
from ralph.core.events import Merge, Merged, MergeEnd, Promote
from ralph.core.turns import Turn
from ralph.simulate.answers import answered, deed, kind_of
from ralph.simulate.game import Deed
from ralph.simulate.profile import Profile
from ralph.simulate.truth import Piece, Work, verdict_of
from ralph.workflows.loop.rules import Loop
from ralph.workflows.loop.state import LoopState


@dataclass
class LoopGame:
    """One run of a loop."""

    rules: Loop
    profile: Profile
    chance: random.Random
    remarks: tuple[str, ...] = ()
    work: Work = field(init=False)
    pieces: int = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = self.chance.randint(*self.profile.pieces)
        self.work = Work(self.pieces)

    @property
    def true(self) -> bool:
        """Whether all of the work is really done."""
        return self.work.is_done

    def deed(self, turn: Turn, state: LoopState) -> Deed:
        """Work on the next piece, and tell of it."""
        chance, profile, files = self.chance, self.profile, 0
        acts = not turn.repair and turn.request.role != "reflector" and chance.random() >= profile.loops
        if acts and chance.random() < profile.acts:
            self.work.make(chance.random() < profile.right)
            files = 1
            if self.work.piece is Piece.RIGHT:
                self.work.leave()
        says = "all of it is done" if chance.random() < profile.lies else self.work.told
        reflects = turn.request.contract == "loop.reflector"
        answer = {"why": says, "next": "the next piece"} if reflects else {"summary": says, "next": "the next piece"}
        given = answered(turn, kind_of(profile, chance), chance, answer, {**answer, "learned": "nothing"})
        return deed(self.work.told, files, given)

    def verdict(self, key: str, checks: Sequence[Check], workspace: str, state: LoopState) -> Verdict:
        """How many pieces are really left."""
        left = self.work.left
        verdict = verdict_of(checks, not left, f"FAILED: {left} of {self.pieces} pieces are missing")
        tests = Counts(self.pieces - left, left)
        return replace(verdict, results=tuple(replace(result, tests=tests) for result in verdict.results))

    def merged(self, work: Merge | Promote) -> Merged:
        """A loop merges nothing."""
        return Merged(work.key, work.workspace, MergeEnd.NOTHING)
