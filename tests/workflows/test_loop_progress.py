"""When a loop is stuck: by the number of failures in each iteration, and by whether they are new."""

import pytest

from ralph.core import checks
from ralph.core.checks import CheckResult, CheckStatus, FailureSet, Verdict
from ralph.workflows.loop.progress import LoopProgress


def verdict(count: float | None, digest: str, tree: str) -> Verdict:
    failures = FailureSet(count, digest)
    result = CheckResult("`ruff check` passes", CheckStatus.FAILED, 0.1, code=1, failures=failures)
    return Verdict((result,), tree=tree)


def play(counts: list[float | None], digests: list[str], trees: list[str] | None = None) -> list[int]:
    """The iterations after which the loop is stuck; the first verdict is the baseline."""
    progress = LoopProgress()
    stuck = []
    for number, (count, digest) in enumerate(zip(counts, digests, strict=True)):
        progress = progress.after(verdict(count, digest, trees[number] if trees else f"tree {number}"), number)
        if progress.is_stuck:
            stuck.append(number)
    return stuck


NEW = [f"set {number}" for number in range(40)]


@pytest.mark.parametrize(
    ("counts", "digests", "stuck"),
    [
        ([9.0, 8, 7, 6, 5, 4, 3, 2, 1], NEW[:9], []),
        ([9.0] * 4, ["a"] * 4, [3]),
        ([1.0] * 40, NEW, []),
        ([5.0, 6, 5, 6, 5, 6, 5, 6], NEW[:8], []),
        ([9.0, 30, 30, 29], ["a", "b", "b", "c"], []),
        ([9.0, 9, 9, 8, 9, 9, 9], ["a", "a", "a", "b", "a", "b", "a"], [6]),
        ([3.0] * 6, ["a", "b", "a", "b", "a", "b"], [4, 5]),
        ([None] * 12, NEW[:12], []),
        ([None] * 4, ["a"] * 4, [3]),
    ],
    ids=[
        "one less each time",
        "the same failures",
        "another failure each time, as of a tool that stops at the first",
        "up and down with new errors",
        "many at once, then fewer",
        "fewer just in time, and then nothing new",
        "back and forth",
        "nobody can count, new failures",
        "nobody can count, the same failures",
    ],
)
def test_a_loop_is_stuck(counts: list[float | None], digests: list[str], stuck: list[int]) -> None:
    assert play(counts, digests) == stuck


def test_more_passed_tests_than_ever_are_progress() -> None:
    progress, stalled = LoopProgress(), []
    for number, passed in enumerate([3, 4, 5, 5, 4, 6, 6, 6, 6]):
        result = CheckResult(
            title="`make test` passes",
            status=CheckStatus.FAILED,
            seconds=0.1,
            tests=checks.Counts(passed=passed, failed=1),
            failures=FailureSet(1, "the same"),
        )
        progress = progress.after(Verdict((result,), tree=f"tree {number}"), number)
        stalled.append(progress.stalled)
    assert stalled == [0, 0, 0, 1, 2, 0, 1, 2, 3]


def test_capped_output_is_compared_by_the_tree() -> None:
    """The tool printed the same ten errors each time; what else there is, it did not say."""
    assert play([None] * 6, [""] * 6) == []
    assert play([None] * 6, [""] * 6, ["a", "b", "a", "b", "a", "b"]) == [4, 5]


def test_a_resumed_loop_has_all_its_iterations_again() -> None:
    progress = LoopProgress()
    for number in range(4):
        progress = progress.after(verdict(1, "a", f"tree {number}"), number)
    assert progress.is_stuck
    progress = progress.restart()
    for number in range(4, 7):
        assert not progress.is_stuck
        progress = progress.after(verdict(1, "a", f"tree {number}"), number)
    assert progress.is_stuck
