"""Findings: what a guard says about work that gamed the checks."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding weighs: an error keeps the work from being done, a warning is only told."""

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


@dataclass(frozen=True)
class HistoryChange:
    """What became of the user's branches, tags and stash during a run."""

    missing: tuple[str, ...] = ()
    """What is not as it was before the run, a sentence each, with the command that brings it back."""
    commits: tuple[str, ...] = ()
    """The commits that were made since the last look, a sentence for each branch."""


@dataclass(frozen=True)
class Finding:
    """One place where the work gamed the checks."""

    rule: Rule
    path: str
    line: int
    """In the tree as it is now; where the line is gone, the place where it was."""
    sentence: str
    """What a person needs to know, in one sentence."""
    severity: Severity = Severity.ERROR
    excerpt: str = ""
    """The line itself, capped."""

    @property
    def place(self) -> str:
        """Where it is, as people and editors write it; some findings are about a whole check or branch."""
        return f"{self.path}:{self.line}" if self.line else self.path
