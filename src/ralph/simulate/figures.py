"""What many simulated runs come to: how many were completed, what they took, why others were not, and which to look at."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from ralph.simulate.play import Played

Z = 1.96
"""For a confidence of 95%."""
SHARES = {"median": 0.5, "90%": 0.9, "99%": 0.99, "most": 1.0}
TAKEN: dict[str, Callable[[Played], float]] = {
    "turns": lambda run: run.spent.turns,
    "tokens": lambda run: run.spent.tokens,
    "money": lambda run: run.spent.cost,
    "hours": lambda run: run.hours,
}
"""What runs take, each by its name."""
REASONS = 5
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Figures:
    """The figures of all runs of an experiment."""

    runs: Sequence[Played]

    @property
    def counted(self) -> list[Played]:
        """The runs that count: what a person aborted says nothing."""
        return [run for run in self.runs if not run.taken_back]

    @property
    def share(self) -> float:
        """How many of those were completed, from 0 to 1."""
        return sum(run.completed for run in self.counted) / max(1, len(self.counted))

    @property
    def between(self) -> tuple[float, float]:
        """The share that can be expected of any number of runs, with a confidence of 95% (Wilson)."""
        number, share = max(1, len(self.counted)), self.share
        middle, spread = share + Z * Z / (2 * number), Z * sqrt(share * (1 - share) / number + Z * Z / (4 * number**2))
        whole = 1 + Z * Z / number
        return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)

    @property
    def false(self) -> list[Played]:
        """The runs that ended as a success and are none."""
        return [run for run in self.runs if run.succeeded and not run.true]

    def taken(self, name: str) -> list[float]:
        """What each run took, the least first."""
        return sorted(TAKEN[name](run) for run in self.runs)

    def quantiles(self, name: str) -> dict[str, float]:
        """What so many of the runs took at most."""
        amounts = self.taken(name)
        return {label: amounts[min(len(amounts) - 1, int(share * len(amounts)))] for label, share in SHARES.items()}

    @property
    def outcomes(self) -> list[tuple[str, int, str]]:
        """How the runs ended, how many did so, and the reason that most of them had."""
        found = Counter(run.outcome for run in self.runs)
        reasons = {
            name: Counter(run.reason.splitlines()[0] for run in self.runs if run.outcome == name and run.reason)
            for name in found
        }
        return [
            (name, number, next(iter(reasons[name].most_common(1)), ("", 0))[0]) for name, number in found.most_common()
        ]

    @property
    def in_the_way(self) -> list[tuple[str, int]]:
        """What the engine told of most in runs that were not completed, and in how many of them."""
        lost = [run for run in self.counted if not run.completed]
        kinds: dict[str, list[str]] = {}
        for run in lost:
            for kind, text in {_NUMBER.sub("0", text): text for text in run.refused}.items():
                kinds.setdefault(kind, []).append(text)
        return sorted(((texts[0], len(texts)) for texts in kinds.values()), key=lambda one: -one[1])[:REASONS]

    @property
    def roles(self) -> dict[str, float]:
        """Turns of each role in a run, on average."""
        total = Counter[str]()
        for run in self.runs:
            total.update(run.roles)
        return {role: number / len(self.runs) for role, number in total.most_common()}

    @property
    def worst(self) -> dict[str, int]:
        """The seeds of the runs to look at, by what is remarkable about them."""
        found = {"longest": _seed(self.runs, "hours"), "dearest": _seed(self.runs, "money")}
        found["most turns"] = _seed(self.runs, "turns")
        lost = {run.outcome: run.seed for run in reversed(self.counted) if not run.succeeded}
        found |= {f"ended as {outcome}": seed for outcome, seed in lost.items()}
        if self.false:
            found["false success"] = self.false[0].seed
        return found

    def plain(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "runs": len(self.runs),
            "completed": self.share,
            "between": self.between,
            "false_successes": len(self.false),
            "aborted_by_a_person": len(self.runs) - len(self.counted),
            "takes": {name: self.quantiles(name) for name in TAKEN},
            "outcomes": [{"outcome": o, "runs": n, "reason": reason} for o, n, reason in self.outcomes],
            "in_the_way": [{"notice": text, "runs": number} for text, number in self.in_the_way],
            "turns_by_role": self.roles,
            "worst": self.worst,
        }


def _seed(runs: Sequence[Played], name: str) -> int:
    return max(runs, key=TAKEN[name]).seed
