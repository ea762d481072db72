"""Checks: commands that the engine itself runs, and what came of them."""

from dataclasses import dataclass
from enum import StrEnum

from ralph.core.findings import Finding, Severity


@dataclass(frozen=True)
class Check:
    """One command that must exit with 0."""

    command: str
    """Run by the shell in the workspace, as its author wrote it."""
    timeout: float = 600.0


class CheckStatus(StrEnum):
    """Failing and not being able to run are different things: only the first says something about the work."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_FOUND = "not-found"
    """Its program is not installed."""
    COULD_NOT_RUN = "could-not-run"


@dataclass(frozen=True)
class CheckResult:
    """What came of one check."""

    command: str
    status: CheckStatus
    seconds: float
    code: int | None = None
    reason: str = ""
    """Why it could not be run, or how it failed: one phrase."""
    output: str = ""
    """The end of what it printed, capped; the whole is in `log`."""
    log: str = ""
    """The file with its output, relative to the run directory."""


@dataclass(frozen=True)
class Verdict:
    """What the checks say of the work, together."""

    results: tuple[CheckResult, ...]
    findings: tuple[Finding, ...] = ()
    """What the guards found in the work, where the checks pass."""

    @property
    def passed(self) -> bool:
        """Whether every check passed and nobody gamed them; no checks is no proof."""
        return bool(self.results) and not self.failed and not self.gamed

    @property
    def gamed(self) -> tuple[Finding, ...]:
        """The findings that keep the work from being done."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def unrunnable(self) -> CheckResult | None:
        """The first check that could not be run."""
        unknown = (CheckStatus.COULD_NOT_RUN, CheckStatus.NOT_FOUND)
        return next((r for r in self.results if r.status in unknown), None)

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that did not pass."""
        return tuple(r for r in self.results if r.status is not CheckStatus.PASSED)
