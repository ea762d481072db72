"""When a loop is stuck: by the number of failures in each iteration, and by whether they are new."""

import pytest

from ralph.core import checks
from ralph.core.checks import Check, CheckResult, CheckStatus, FailureSet, Verdict
from ralph.verify.measures import mark_unstable_figures, read_failure_set
from ralph.workflows.loop.progress import LoopProgress


def verdict(count: float | None, digest: str, tree: str, *, is_reported: bool = False) -> Verdict:
    failures = FailureSet(count, digest, is_reported)
    result = CheckResult(
        "`ruff check` passes", CheckStatus.FAILED, 0.1, code=1, output="too many errors", failures=failures
    )
    return Verdict((result,), snapshot=tree)


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


@pytest.mark.parametrize(
    ("counts", "digests", "stuck"),
    [
        ([1.0, 2, 3, 4, 5], NEW[:5], [3, 4]),
        ([1.0, 20, 19, 18, 17, 16], NEW[:6], []),
        ([1.0, 20, 25, 24, 30, 29], NEW[:6], []),
        ([5.0, 6, 7, 6, 7, 8, 9], NEW[:7], [6]),
        ([4.0, 4, 4, 4, 4], NEW[:5], []),
    ],
    ids=[
        "one more each time",
        "a syntax error is fixed, and the others show",
        "up, and down in between",
        "up three times in a row",
        "other errors each time",
    ],
)
def test_more_reported_failures_are_no_progress(counts: list[float], digests: list[str], stuck: list[int]) -> None:
    progress = LoopProgress()
    found = []
    for number, (count, digest) in enumerate(zip(counts, digests, strict=True)):
        progress = progress.after(verdict(count, digest, f"tree {number}", is_reported=True), number)
        if progress.is_stuck:
            found.append(number)
    assert found == stuck


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
        progress = progress.after(Verdict((result,), snapshot=f"tree {number}"), number)
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


def raised(line: int, source: str, error: str) -> str:
    """What Python prints for an exception."""
    return f'Traceback (most recent call last):\n  File "r.py", line {line}, in <module>\n    {source}\n{error}\n'


def list_lines(form: str, most: int, end: str = "") -> list[str]:
    """What a check prints that lists lines, in iterations each of which leaves one line less."""
    return ["".join(form.format(n) for n in range(1, left + 1)) + end for left in range(most, 0, -1)]


@pytest.mark.parametrize(
    ("outputs", "stuck"),
    [
        (list_lines("{}:x = 1  # TODO\n", 9), []),
        (list_lines("a.py line {}: leftover todo\n", 9), []),
        (list_lines("Makefile:{}:\techo  # TODO\n", 9), []),
        (list_lines("{}:x = 1  # TODO\n", 9, "check failed\n"), []),
        (list_lines("{}:x = 1  # TODO\n", 9, "Error: lines are left\n"), []),
        (list_lines("{}:x = 1  # TODO\n", 9)[:1] * 4, [3]),
        (list_lines("{}:x = 1  # TODO\n", 9)[3::-1], [3]),
        (list_lines("10:00:0{} waiting\n", 5), [3, 4]),
        (list_lines("cannot connect to port 400{}\n", 5), [3, 4]),
        (list_lines("cannot connect, attempt {}, after {}.5 s\n".replace("{}", "{0}"), 5), [3, 4]),
        (list_lines("no object at 0x7f00ab1{}\n", 5), [3, 4]),
        (list_lines("[####      ] 4{}%\n", 5, "no\n"), [3, 4]),
        (list_lines("line 7 is missing, {} ms\n", 5), [3, 4]),
    ],
    ids=[
        "grep -n",
        "places in words",
        "files without an extension",
        "places and a complaint",
        "places and an error",
        "the same places",
        "more places",
        "times",
        "ports",
        "attempts",
        "addresses",
        "a progress bar",
        "the same place several times",
    ],
)
def test_fewer_places_are_progress_and_less_noise_is_not(outputs: list[str], stuck: list[int]) -> None:
    assert find_stuck(outputs) == stuck


@pytest.mark.parametrize(
    ("outputs", "stuck"),
    [
        (
            [
                raised(3, 'int("x")', "ValueError: invalid literal for int() with base 10: 'x'"),
                raised(5, "1 / 0", "ZeroDivisionError: division by zero"),
                raised(7, 'd["k"]', "KeyError: 'k'"),
                raised(9, "open(name)", "FileNotFoundError: [Errno 2] No such file or directory: 'a'"),
                raised(12, "x.y", "AttributeError: 'int' object has no attribute 'y'"),
                raised(14, "sys.exit(f())", "TypeError: 'NoneType' object is not callable"),
            ],
            [],
        ),
        ([raised(n, f"assert roman({n}) == {n!r}", "AssertionError") for n in range(1, 7)], []),
        ([raised(3, f"call({n})", "ValueError: no") for n in range(1, 5)], [3]),
        ([raised(n, "call()", "ValueError: no") for n in range(1, 5)], [3]),
        ([f"{n} words left\n" for n in (9, 7, 5, 4, 3, 1)], []),
        ([f"score: {n}%\n" for n in (30, 45, 46, 60, 61, 70)], []),
        ([f"loss = {n}\nnot good enough\n" for n in (0.91, 0.85, 0.7, 0.5, 0.49)], []),
        ([f"{n} words left\n" for n in (9, 7, 8, 6, 7, 5)], []),
        ([f"{n} words left\n" for n in (7, 9, 5, 3, 1)], []),
        ([f"{n} words left\n" for n in (5, 7, 3, 9, 1)], [4]),
        (["7 words left\n"] * 4, [3]),
        ([f"attempt {n}: no\n" for n in range(1, 5)], [3]),
        ([f"no, after {n} seconds\n" for n in (1.1, 1.2, 1.5, 1.9)], [3]),
        ([f"no, took {n}\n" for n in (1.1, 1.2, 1.5, 1.9)], [3]),
        ([f"10:00:0{n} no\n" for n in range(1, 5)], [3]),
        ([f"2026-11-17T10:00:0{n} no\n" for n in range(1, 5)], [3]),
        ([f"[{1763370000 + n}] no\n" for n in range(1, 5)], [3]),
        ([f"no object at 0x7f00{n}\n" for n in range(1, 5)], [3]),
        ([f"pid {n}: no\n" for n in (400, 401, 402, 403)], [3]),
        ([f"cannot connect to 127.0.0.1:{n}\n" for n in (4000, 4001, 4002, 4003)], [3]),
        ([f"a.c:{n}:1: error: expected ';'\n" for n in range(1, 5)], [3]),
    ],
    ids=[
        "another exception each time",
        "the same exception at another place each time",
        "the failing line is edited",
        "lines are added above the failing one",
        "fewer left each time",
        "a higher score each time",
        "a number with a fraction",
        "two steps forward, one back",
        "worse first, then better",
        "back and forth, further each time",
        "the same number",
        "a counter of attempts",
        "seconds",
        "a duration without a unit",
        "a time of day",
        "a date",
        "a time stamp",
        "an address in memory",
        "a process id",
        "a port",
        "the same error further down",
    ],
)
def test_progress_is_read_from_what_a_check_prints(outputs: list[str], stuck: list[int]) -> None:
    assert find_stuck(outputs) == stuck


def find_stuck(outputs: list[str]) -> list[int]:
    """The iterations after which a loop is stuck whose check prints this."""
    progress, found = LoopProgress(), []
    for number, output in enumerate(outputs):
        failures = read_failure_set(Check("python3 r.py"), output, None, None)
        result = CheckResult("`python3 r.py` passes", CheckStatus.FAILED, 0.1, code=1, failures=failures)
        progress = progress.after(Verdict((result,), snapshot=f"tree {number}"), number)
        if progress.is_stuck:
            found.append(number)
    return found


def test_number_that_changes_without_a_change_is_not_progress() -> None:
    progress = LoopProgress()
    for number in range(4):
        failures = read_failure_set(Check("x"), f"{9 - number} words left\n", None, None)
        result = CheckResult("`x` passes", CheckStatus.FAILED, 0.1, code=1, failures=failures)
        progress = progress.after(Verdict((result,), snapshot="the same"), number)
    assert progress.is_stuck


def test_number_that_differed_before_the_first_turn_is_not_progress() -> None:
    def read(number: int) -> FailureSet:
        return read_failure_set(Check("x"), f"ticket {number} of the queue\n", None, None)

    progress = LoopProgress()
    for number in range(4):
        failures = mark_unstable_figures(read(1), read(2)) if number == 0 else read(number * 10)
        result = CheckResult("`x` passes", CheckStatus.FAILED, 0.1, code=1, failures=failures)
        progress = progress.after(Verdict((result,), snapshot=f"tree {number}"), number)
    assert progress.is_stuck
