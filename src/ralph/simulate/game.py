"""What a game is: work with a hidden truth, and agents who go about it, in some workflow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ralph.core.checks import Check, Verdict
from ralph.core.events import Merge, Merged, Promote
from ralph.core.turns import Turn
from ralph.engine.ports import Workflow


@dataclass(frozen=True)
class Deed:
    """What an agent has made of a turn when it ends by itself."""

    told: str
    """What it did, in words."""
    files: int = 0
    text: str = ""
    answer: Mapping[str, Any] | None = None
    errors: tuple[str, ...] = ()
    """What is wrong with its answer."""
    papers: Mapping[str, str] = field(default_factory=dict)
    edits: Mapping[str, str] = field(default_factory=dict)
    """Files that agents share, by path."""


class Game(Protocol):
    """What the work is, how far it really is, and how agents go about it in some workflow."""

    @property
    def rules(self) -> Workflow[Any]:
        """The rules that the engine runs."""
        ...

    @property
    def true(self) -> bool:
        """Whether all of the work is really done."""
        ...

    @property
    def remarks(self) -> Iterable[str]:
        """What was remarkable, beside what the engine tells of."""
        ...

    def deed(self, turn: Turn, state: Any) -> Deed:
        """What an agent makes of a turn."""
        ...

    def verdict(self, key: str, checks: Sequence[Check], workspace: str, state: Any) -> Verdict:
        """What the checks say: the truth."""
        ...

    def merged(self, work: Merge | Promote) -> Merged:
        """What comes of a merge."""
        ...
