"""Whether a loop gets anywhere: the failures of each check, counted and compared with all that this run has seen."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ralph.core.checks import CheckResult, Verdict

STUCK = 3
"""Iterations in a row without progress after which a loop is stuck."""
MOST_SEEN = 200
"""Failure sets and trees that are remembered; the oldest give way."""

Counts = tuple[float | None, ...]


@dataclass(frozen=True)
class Progress:
    """What the checks have counted since before the run."""

    lowest: Counts = ()
    """The fewest failures of each check so far, or how near its number came; None where nobody could tell."""
    seen: tuple[str, ...] = ()
    """The failure sets so far, and the trees that were judged."""
    stalled: int = 0
    """Iterations in a row without progress."""
    failures: Counts = ()
    """How many failures there were: before the run, now, and at best; empty where some cannot be counted."""

    def after(self, verdict: Verdict, iteration: int) -> "Progress":
        """With one more verdict. A lower count is progress, and so is a failure set that this run has not seen.

        A tree that was judged before cannot have new failures: what differs then is noise.
        """
        # Work that gamed the checks makes their numbers worthless.
        counts = () if verdict.gamed else tuple(map(_count, verdict.results))
        known = self.lowest or counts
        is_lower = any(
            new is not None and old is not None and new < old for new, old in zip(counts, known, strict=False)
        )
        failure, tree = _short(_failure_set(verdict, iteration)), _short(f"tree {verdict.tree}")
        is_new = failure not in self.seen and (not verdict.tree or tree not in self.seen)
        added = [failure, tree] if verdict.tree else [failure]
        return replace(
            self,
            lowest=_lower(known, counts),
            seen=tuple(dict.fromkeys((*self.seen, *added)))[-MOST_SEEN:],
            stalled=0 if is_lower or is_new else self.stalled + 1,
            failures=self._counted(verdict),
        )

    @property
    def is_stuck(self) -> bool:
        """Whether it is time for another approach."""
        return self.stalled >= STUCK

    def _counted(self, verdict: Verdict) -> Counts:
        whole = [_count(result) for result in verdict.results if result.nearness is None]
        if not whole or verdict.gamed or None in whole:
            return self.failures
        now = sum(count or 0.0 for count in whole)
        first, _, best = self.failures or (now, now, now)
        return (first, now, min(now, best if best is not None else now))


def _count(result: CheckResult) -> float | None:
    if result.passed:
        return 0.0
    return result.failures.count if result.failures else None


def _lower(known: Sequence[float | None], counts: Sequence[float | None]) -> Counts:
    """The lower of each two counts, as far as they are known."""
    pairs = zip(known, counts, strict=False)
    return tuple(min((n for n in pair if n is not None), default=None) for pair in pairs) or tuple(known)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]


def _failure_set(verdict: Verdict, iteration: int) -> str:
    """A name for all that fails.

    A check that fails without a word is the same failure only on the same tree; if no tree is known, it never is.
    """
    failed = [(result.title, result.failures.digest if result.failures else "") for result in verdict.failed]
    silent = verdict.tree or f"iteration {iteration}"
    findings = [f"{finding.rule} {finding.path}" for finding in verdict.gamed]
    return "; ".join([*(f"{title} {digest or silent}" for title, digest in failed), *findings])
