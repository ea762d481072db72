"""Whether a loop gets anywhere: the failures of each check, counted and compared with all that this run has seen."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ralph.core.checks import CheckResult, Verdict

STUCK = 3
"""Iterations in a row without progress after which a loop is stuck."""
MAX_SEEN = 400
"""Failure sets, places and trees that are remembered; the oldest give way."""

Counts = tuple[float | None, ...]


MAX_FIGURES = 100
"""Numbers in the output of checks that are followed; later ones are left out."""


@dataclass(frozen=True)
class Figure:
    """A number in the output of a check, as far as this run has seen it move."""

    name: str
    low: float
    high: float
    direction: int = 0
    """Which end it last went beyond: 1 or -1; 0 if it has not moved yet."""
    is_noise: bool = False
    """Whether it moves by itself."""

    def move(self, value: float) -> "Figure":
        """With the next value."""
        side = (value > self.high) - (value < self.low)
        if not side:
            return self
        return replace(self, low=min(self.low, value), high=max(self.high, value), direction=side)

    def has_advanced(self, before: "Figure") -> bool:
        """Whether it went further than ever in the direction in which it was going. Back and forth is no progress."""
        is_further = (self.low, self.high) != (before.low, before.high)
        return is_further and not self.is_noise and before.direction in (0, self.direction)


@dataclass(frozen=True)
class LoopProgress:
    """What the checks have counted since before the run."""

    lowest: Counts = ()
    """The fewest failures of each check so far, or how near its number came; None if it is unknown."""
    most_passed: Counts = ()
    """The most tests of each check that passed while the check failed; None if it is unknown."""
    seen: tuple[str, ...] = ()
    """The failure sets so far, and the trees that were judged."""
    stalled: int = 0
    """Iterations in a row without progress."""
    figures: tuple[Figure, ...] = ()
    """The numbers that checks print beside what they count."""
    last: Counts = ()
    """What each check counted the last time; None if it does not say how many failures there are."""
    failures: Counts = ()
    """How many failures there were: before the run, now, and at best; empty if some cannot be counted."""

    def after(self, verdict: Verdict, iteration: int) -> "LoopProgress":
        """With one more verdict. Progress is one of these: a lower count, more passed tests, a failure set that this run has
        not seen, an exception at a new place, or a number in the output that goes further in one direction than ever.

        More failures than the last time are no progress, however new they are. If they came up because something else was
        fixed, their number falls again in the next iterations.

        A tool that stops at the first failure always counts one, but what fails is new, or more tests pass before it. A tree
        that was judged before cannot have new failures: what differs then is noise.
        """
        # Work that gamed the checks makes their numbers worthless.
        results = () if verdict.blocking_findings else verdict.results
        lowest = _choose_better(min, self.lowest, tuple(map(_count, results)))
        most_passed = _choose_better(max, self.most_passed, tuple(map(_count_passed, results)))
        is_better = _differs(lowest, self.lowest) or _differs(most_passed, self.most_passed)
        failure, tree = _failure_set(verdict, iteration), _shorten(f"tree {verdict.snapshot}")
        places = [_shorten(f"{failure} {place}") for result in results for place in _find_places(result)]
        is_other_place = bool(places) and not any(place in self.seen for place in places)
        figures = self._move_figures(results)
        is_further = _have_advanced(figures, self.figures)
        is_new = _shorten(failure) not in self.seen or is_other_place or is_further
        is_new = is_new and (not verdict.snapshot or tree not in self.seen)
        last = tuple(map(_count_reported, results))
        is_new = is_new and not _has_risen(self.last, last)
        added = [_shorten(failure), *places, *([tree] if verdict.snapshot else [])]
        return replace(
            self,
            lowest=lowest,
            most_passed=most_passed,
            seen=tuple(dict.fromkeys((*self.seen, *added)))[-MAX_SEEN:],
            stalled=0 if is_better or is_new else self.stalled + 1,
            figures=figures,
            last=last,
            failures=self._count_failures(verdict),
        )

    def _move_figures(self, results: Sequence[CheckResult]) -> tuple[Figure, ...]:
        """The numbers seen before, with their present values, followed by new ones."""
        known = {figure.name: figure for figure in self.figures}
        for result in results:
            for name, value in result.failures.figures.items() if result.failures else ():
                name = _shorten(f"{result.title} {name}")
                if value is None:
                    known[name] = Figure(name, 0.0, 0.0, is_noise=True)
                elif name in known:
                    known[name] = known[name].move(value)
                else:
                    known[name] = Figure(name, value, value)
        return tuple(known.values())[:MAX_FIGURES]

    def is_further_than(self, earlier: "LoopProgress") -> bool:
        """Whether a number in the output went further than ever since."""
        return _have_advanced(self.figures, earlier.figures)

    def restart(self) -> "LoopProgress":
        """What a resumed loop continues with: what was seen stays known, and the iterations count anew."""
        return replace(self, stalled=0)

    @property
    def is_stuck(self) -> bool:
        """Whether it is time for another approach."""
        return self.stalled >= STUCK

    def _count_failures(self, verdict: Verdict) -> Counts:
        whole = [_count(result) for result in verdict.results if result.nearness is None]
        if not whole or verdict.blocking_findings or None in whole:
            return self.failures
        now = sum(count or 0.0 for count in whole)
        first, _, best = self.failures or (now, now, now)
        return (first, now, min(now, best if best is not None else now))


def _have_advanced(now: Sequence[Figure], before: Sequence[Figure]) -> bool:
    return any(new.has_advanced(old) for new, old in zip(now, before, strict=False))


def _count(result: CheckResult) -> float | None:
    if result.passed:
        return 0.0
    return result.failures.count if result.failures else None


def _count_reported(result: CheckResult) -> float | None:
    """What the check itself counts or measures. Lines that Ralph counted may be new because the check got further."""
    is_exact = result.value is not None or (result.failures and result.failures.is_reported)
    return _count(result) if result.passed or is_exact else None


def _has_risen(before: Counts, now: Counts) -> bool:
    """Whether the failures of some check became more, and those of no other check fewer."""
    pairs = [(old, new) for old, new in zip(before, now, strict=False) if old is not None and new is not None]
    return any(new > old for old, new in pairs) and not any(new < old for old, new in pairs)


def _count_passed(result: CheckResult) -> float | None:
    return float(result.tests.passed) if result.tests and not result.passed else None


def _find_places(result: CheckResult) -> tuple[str, ...]:
    return result.failures.places if result.failures else ()


def _choose_better(choose: Callable[[Iterable[float]], float], known: Counts, counts: Counts) -> Counts:
    """The better of each two numbers, as far as they are known."""
    better: list[float | None] = []
    for pair in zip_longest(known, counts):
        numbers = [number for number in pair if number is not None]
        better.append(choose(numbers) if numbers else None)
    return tuple(better)


def _differs(numbers: Counts, known: Counts) -> bool:
    """Whether a number that was known is another one now."""
    return any(old is not None and new != old for new, old in zip(numbers, known, strict=False))


def _shorten(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]


def _failure_set(verdict: Verdict, iteration: int) -> str:
    """A name for all that fails.

    A check that prints nothing always has the same failures: only another exit code or reason is something new. If the output
    cannot be compared, for example because the tool left something out, the tree counts instead.
    """
    tree = verdict.snapshot or f"iteration {iteration}"
    names = []
    for result in verdict.not_passed:
        digest = result.failures.digest if result.failures else ""
        without_digest = tree if result.output.strip() else f"{result.code} {result.reason}"
        names.append(f"{result.title} {digest or without_digest}")
    names += [f"{finding.rule} {finding.path}" for finding in verdict.blocking_findings]
    return "; ".join(names)
