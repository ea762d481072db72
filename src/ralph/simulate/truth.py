"""What is really the case: the pieces that the work consists of, and what those who work on them believe."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ralph.core.checks import Check, CheckResult, CheckStatus, Verdict


class Piece(StrEnum):
    """What the piece under way is worth."""

    NOT_MADE = "not made"
    WRONG = "wrong"
    RIGHT = "right"


@dataclass
class Work:
    """So many pieces, one under way at a time; a piece that was left wrong is still to be made."""

    left: int
    """Pieces that are really to be made, the one under way among them."""
    piece: Piece = Piece.NOT_MADE
    believed: int = 0
    """Pieces that are to be made, as those who work believe."""

    def __post_init__(self) -> None:
        self.believed = self.left

    @property
    def is_right(self) -> bool:
        """Whether the piece under way is, or there is none any more."""
        return self.piece is Piece.RIGHT or self.left == 0

    @property
    def is_done(self) -> bool:
        """Whether all of the work is really done."""
        return self.left - (self.piece is Piece.RIGHT) <= 0

    @property
    def nearly_done(self) -> bool:
        """Whether there seems to be nothing after the piece under way."""
        return self.believed <= 1

    @property
    def seems_done(self) -> bool:
        """Whether there seems to be nothing left at all."""
        return self.believed - (self.piece is Piece.RIGHT) <= 0

    @property
    def told(self) -> str:
        """How it stands, in words."""
        return f"the piece is {self.piece}, {self.left} left" if self.left else "all pieces are made"

    def make(self, right: bool) -> None:
        """Somebody works on the piece under way."""
        if self.left:
            self.piece = Piece.RIGHT if right else Piece.WRONG

    def leave(self) -> None:
        """The piece under way is believed to be done; the next one begins."""
        self.left -= self.piece is Piece.RIGHT
        self.believed = max(0, self.believed - 1)
        self.piece = Piece.NOT_MADE


def verdict_of(checks: Sequence[Check], holds: bool, told: str) -> Verdict:
    """What checks say that are always right."""
    status = CheckStatus.PASSED if holds else CheckStatus.FAILED
    reason = "" if holds else told
    results = (CheckResult(check.title, status, 1.0, 0, reason, told, command=check.command) for check in checks)
    return Verdict(tuple(results))
