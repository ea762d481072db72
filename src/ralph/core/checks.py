"""Checks: what the engine itself looks at to judge the work, and their results."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import partial

from ralph.core.codec import former_name
from ralph.core.values import value


class Severity(StrEnum):
    """How much a finding weighs: an error keeps the work from being done, a warning is only reported."""

    ERROR = "error"
    WARNING = "warning"


class Rule(StrEnum):
    """The rules; `--allow RULE` lifts one."""

    TEST_DELETED = "test-deleted"
    TEST_SKIPPED = "test-skipped"
    TEST_EMPTIED = "test-emptied"
    ASSERTION_WEAKENED = "assertion-weakened"
    ERROR_SWALLOWED = "error-swallowed"
    RESULT_HARDCODED = "result-hardcoded"
    TEST_DETECTED = "test-detected"
    VALIDATION_REMOVED = "validation-removed"
    CHECK_DISABLED = "check-disabled"
    VERIFIER_EDITED = "verifier-edited"
    FEWER_TESTS = "fewer-tests"
    OUT_OF_SCOPE = "out-of-scope"
    HISTORY_REWRITTEN = "history-rewritten"
    CLEAN_ROOM = "clean-room"


@value
class HistoryChange:
    """What became of the user's branches, tags and stash during a run."""

    missing: tuple[str, ...] = ()
    """What is not as it was before the run, a sentence each, with the command that brings it back."""
    commits: tuple[str, ...] = ()
    """The commits that were made since the last look, a sentence for each branch."""
    places: tuple[str, ...] = ()
    """The branch, tag or stash entry that each sentence is about."""


@value
class Finding:
    """One place where the work gamed the checks."""

    rule: Rule
    path: str
    line: int
    """In the tree as it is now; if the line is gone, the place where it was."""
    sentence: str
    """What the user needs to know, in one sentence."""
    severity: Severity = Severity.ERROR
    excerpt: str = ""
    """The line itself, capped."""

    @property
    def place(self) -> str:
        """Where it is, as editors write it. Some findings are about a whole check or branch."""
        return f"{self.path}:{self.line}" if self.line else self.path


_COMPARES: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt
}  # fmt: skip


@value
class Measure:
    """A number that a command prints, and what it must be compared with."""

    metric: str
    """A metric that Ralph knows (`coverage`), or a regular expression between slashes whose first group is the number."""
    comparator: str
    """One of `>=`, `>`, `<=`, `<`, `==`."""
    target: float
    unit: str = ""
    """`%`, or nothing."""

    @property
    def title(self) -> str:
        """As users write it, without the command."""
        return f"{self.metric} {self.comparator} {self.target:g}{self.unit}"

    def holds(self, value: float) -> bool:
        """Whether a number is good enough."""
        compares = _COMPARES.get(self.comparator, partial(math.isclose, abs_tol=1e-9))
        return compares(value, self.target)

    def nearness(self, value: float) -> float:
        """How near a number comes: 1 if it is good enough, less the farther it is off."""
        if self.holds(value):
            return 1.0
        return 1.0 / (1.0 + abs(value - self.target) / max(abs(self.target), 1.0))


@value
class Check:
    """One thing that must hold: a command that exits with 0, or a file that is there.

    The other fields ask for more: that the command prints nothing, that a number in its output is good enough, that the file
    contains something.
    """

    command: str = ""
    """Run by the shell in the workspace, as its author wrote it; empty if the check only looks at a file."""
    timeout: float = 600.0
    silent: bool = False
    """Whether the command must also print nothing."""
    measure: Measure | None = None
    """The number in its output that counts instead of its exit code."""
    path: str = ""
    """The file that must exist, relative to the workspace."""
    pattern: str = ""
    """The regular expression that the file must contain."""
    cites: bool = False
    """Whether the file must cite lines, all of which exist."""

    @property
    def title(self) -> str:
        """What the check asks for, as users write it."""
        if self.path and self.cites:
            return f"{self.path} cites lines that exist"
        if self.path:
            return f"{self.path} contains /{self.pattern}/" if self.pattern else f"file {self.path} exists"
        if self.measure:
            measure = self.measure
            return f"{measure.metric} from `{self.command}` {measure.comparator} {measure.target:g}{measure.unit}"
        return f"`{self.command}` prints nothing" if self.silent else f"`{self.command}` passes"


class CheckStatus(StrEnum):
    """Failing and not being able to run are different things: only the first says something about the work."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_FOUND = "not-found"
    """Its program is not installed."""
    COULD_NOT_RUN = "could-not-run"


class Attribution(StrEnum):
    """What the work did to a check, against how it was before the work."""

    CLEAN = "clean"
    """It passed before, and still does."""
    REGRESSED = "regressed"
    """It passed before, and does not any more."""
    FIXED = "fixed"
    """It did not pass before, and does now."""
    BASELINE_BROKEN = "baseline-broken"
    """It did not pass before, and does not now."""


@value
class Counts:
    """How many tests a check ran, by what it printed."""

    passed: int = 0
    failed: int = 0
    """Failures and errors."""
    skipped: int = 0
    repeated: int = field(default=0, compare=False)
    """How many of them may be counted twice, because the same runner printed several summaries."""

    @property
    def ran(self) -> int:
        """Those that were not skipped."""
        return self.passed + self.failed


@value
class NamedTests:
    """The tests of a check by name. A test has one name, the same in every run and in every directory."""

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Failures and errors."""
    skipped: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    """Parts of the tests, such as packages of Go, that the runner calls passed though no test started there."""

    @property
    def ran(self) -> tuple[str, ...]:
        """Those that were not skipped."""
        return (*self.passed, *self.failed)

    @property
    def counts(self) -> Counts:
        return Counts(len(self.passed), len(self.failed), len(self.skipped))


@value
class FailureSet:
    """What a failed check complains about, to compare with what it complained about before."""

    count: float | None
    """How many failures there are, or how far the measured number is from its target; None if that is not known."""
    digest: str
    """A short name for the set; empty if the check printed nothing, or not everything."""
    is_reported: bool = False
    """Whether the check itself says how many there are. Otherwise Ralph counted lines."""
    places: tuple[str, ...] = ()
    """Names for where an exception was raised: by the source lines, and by their numbers. An edit of the line changes one, an
    edit above it the other; at another place both are new. Empty if the output has no traceback."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """The numbers in its output, by a name for the rest of their line. None: the number differed although nothing changed."""


@value
class CheckResult:
    """The result of one check."""

    title: str
    status: CheckStatus
    seconds: float
    code: int | None = None
    reason: str = ""
    """Why it could not be run, or how it failed: one phrase."""
    output: str = ""
    """What it printed: its beginning, its end and the lines that look like errors; the whole is in `log`."""
    log: str = ""
    """The file with its output, relative to the run directory."""
    command: str = ""
    value: float | None = None
    """The number that was measured."""
    nearness: float | None = None
    """How near that number comes to what was asked for, up to 1."""
    tests: Counts | None = None
    named: NamedTests | None = None
    """The tests by name, if all of them are known. Only the baseline of a run is recorded with them."""
    failing: tuple[str, ...] = ()
    """The names of tests that failed, as far as they are known."""
    failures: FailureSet | None = None
    """What it complains about, if it failed."""
    flaky: bool = False
    """Whether its result differed on the same tree."""
    runs: int = 1
    """How often it was run for this result."""
    left_out: int = 0
    """Lines of what it printed that are not in `output`."""

    @property
    def passed(self) -> bool:
        """Whether it holds."""
        return self.status is CheckStatus.PASSED

    @property
    def score(self) -> float:
        """How good this is, from 0 to 1, to compare iterations by."""
        if self.passed:
            return 1.0
        if self.status is not CheckStatus.FAILED:
            return 0.0
        if self.nearness is not None:
            return 0.99 * self.nearness
        if self.tests and self.tests.ran:
            return 0.99 * self.tests.passed / self.tests.ran
        if self.failures and self.failures.count:
            return 0.99 / (1.0 + self.failures.count)
        return 0.0


def attribution(*, before: bool, now: bool) -> Attribution:
    """What the work did to a check, by whether it passed before the work and passes now."""
    if before:
        return Attribution.CLEAN if now else Attribution.REGRESSED
    return Attribution.FIXED if now else Attribution.BASELINE_BROKEN


class Grade(StrEnum):
    """How well a success is supported, or why it is none."""

    PROVEN = "proven"
    """The checks pass in a clean room, also with the judge files as they were before the run."""
    JUDGED = "judged"
    """They pass there. Judge files had to change, and an independent turn accepted each change."""
    ACCEPTED = "accepted"
    """The user accepted what could not be proven."""
    UNVERIFIED = "unverified"
    """The run has no checks."""
    DISPROVEN = "disproven"
    """The checks pass in the workspace and fail in the clean room."""
    UNPROVEN = "unproven"
    """The clean room cannot tell."""


@value
class Evidence:
    """What supports a verdict."""

    grade: Grade
    reason: str
    """Why it has this grade, in one sentence."""
    compared: str = ""
    """What the clean room ran, in one sentence."""
    restored: tuple[str, ...] = ()
    """The judge files that the clean room had as they were before the run."""
    to_judge: tuple[str, ...] = ()
    """The judge files that a judge must read before the work counts as done."""

    @property
    def sentence(self) -> str:
        """The grade and its reason."""
        return f"{self.grade}. {self.reason}"


@value
class Rehearsal:
    """What the clean room did with the tree before the first turn."""

    problem: str = ""
    """Why it does not reproduce the baseline; empty if it does. If it does not, it can never disprove the work."""
    needs_setup: bool = False
    """Whether it reproduces the baseline only after the setup commands of the project."""


@value
class Verdict:
    """What the checks say of the work, together."""

    results: tuple[CheckResult, ...]
    findings: tuple[Finding, ...] = ()
    """What the guards found in the work. If checks fail, these are only warnings."""
    snapshot: str = field(default="", metadata=former_name("tree"))
    """The snapshot that was judged; empty if there are no snapshots."""
    evidence: Evidence | None = None
    """How well it is supported; None if the checks fail, or before the first turn."""
    rehearsal: Rehearsal | None = None
    """Of the verdict before the first turn: what the clean room made of the same tree."""

    @property
    def passed(self) -> bool:
        """Whether every check passed, none was gamed, and nothing is left to judge. Without checks there is no proof."""
        return bool(self.results) and not (self.not_passed or self.blocking_findings or self.is_unproven)

    @property
    def is_unproven(self) -> bool:
        """Whether all checks pass here and the clean room cannot tell if the work is done."""
        return self.evidence is not None and self.evidence.grade is Grade.UNPROVEN

    @property
    def passed_or_unproven(self) -> bool:
        """Whether every check passed and none was gamed. Something may be left to judge."""
        return self.passed or (self.is_unproven and not self.blocking_findings)

    @property
    def awaits_judge(self) -> bool:
        """Whether a judge can tell if the work is done: all checks pass, with judge files that the run changed."""
        return self.is_unproven and not self.blocking_findings and bool(self.evidence and self.evidence.to_judge)

    @property
    def blocking_findings(self) -> tuple[Finding, ...]:
        """The findings that prevent success: changed tests, files out of scope, a clean room that fails, lost branches."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def first_unrunnable(self) -> CheckResult | None:
        """The first check that could not be run."""
        unknown = (CheckStatus.COULD_NOT_RUN, CheckStatus.NOT_FOUND)
        return next((r for r in self.results if r.status in unknown), None)

    @property
    def not_passed(self) -> tuple[CheckResult, ...]:
        """The checks that failed, could not be run, or were not found."""
        return tuple(r for r in self.results if not r.passed)

    @property
    def score(self) -> float:
        """How good the work is, from 0 to 1; work that gamed the checks is worth nothing."""
        if self.blocking_findings or not self.results:
            return 0.0
        return mean([result.score for result in self.results])


@value
class FailingTests:
    """Tests that were seen to fail, as they had to, and the snapshot in which they did. They must pass as they were then."""

    snapshot: str = field(metadata=former_name("tree"))
    tests: tuple[str, ...]


def find_failing_tests(verdict: Verdict) -> FailingTests | None:
    """The tests that fail; None if the output names no tests, or if there is no snapshot."""
    tests: list[str] = []
    for result in verdict.not_passed:
        tests += result.failing
    return FailingTests(verdict.snapshot, tuple(tests)) if tests and verdict.snapshot else None


def mean(numbers: Sequence[float]) -> float:
    """The average."""
    return sum(numbers) / len(numbers)
