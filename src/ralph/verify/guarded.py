"""Verdicts that hold: checks that pass count only where the guards find that nobody gamed them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ralph.core.checks import Check, Verdict
from ralph.core.findings import Finding, Rule, Severity
from ralph.git.snapshots import Snapshots
from ralph.verify.guards.changes import FileChange, is_test_path
from ralph.verify.guards.scan import scan
from ralph.verify.runner import CheckRunner

BASELINE = "baseline"
"""The checks before the first turn: there is no work yet to be guarded."""
ENFORCED = frozenset(
    (
        Rule.TEST_SKIPPED,
        Rule.TEST_EMPTIED,
        Rule.ERROR_SWALLOWED,
        Rule.RESULT_HARDCODED,
        Rule.TEST_DETECTED,
        Rule.CHECK_DISABLED,
    )
)
"""The rules that stayed silent on every honest change they were tried on; the others only warn."""
MOST_TESTS = 400
"""Unchanged test files that are read, to see whether results were copied out of them."""


@dataclass(frozen=True)
class GuardedChecker:
    """Runs the checks, and where they pass, looks at all that was changed since before the run."""

    runner: CheckRunner
    snapshots: Snapshots
    allowed: Mapping[str, str]
    """Rules that a person lifted for this run, with the reason."""

    async def run(self, key: str, checks: Sequence[Check]) -> Verdict:
        """The verdict of the checks, with what the guards found."""
        verdict = await self.runner.run(key, checks)
        if key == BASELINE or not verdict.passed:
            return verdict
        findings = await asyncio.to_thread(self._findings, [check.command for check in checks])
        return replace(verdict, findings=tuple(f for f in findings if f.rule not in self.allowed))

    def _findings(self, commands: list[str]) -> list[Finding]:
        base, latest = self.snapshots.base(), self.snapshots.latest()
        if base is None or latest is None or base == latest:
            return []
        changed = self.snapshots.changed(base, latest)
        texts = {path: (_text(old), _text(new)) for path, (old, new) in changed.items()}
        changes = [FileChange(path, old, new) for path, (old, new) in texts.items() if (old, new) != (None, None)]
        tests = [path for path in self.snapshots.paths(latest) if path not in changed and is_test_path(path)][
            :MOST_TESTS
        ]
        found = self.snapshots.contents(latest, tests)
        unchanged = {path: text for path, data in found.items() if (text := _text(data)) is not None}
        return [weighed(finding, changes) for finding in scan(changes, checks=commands, unchanged=unchanged)]


def weighed(finding: Finding, changes: Sequence[FileChange]) -> Finding:
    """The finding as an error where its rule is sure enough to hold work up, as a warning elsewhere."""
    sure = finding.rule in ENFORCED or (finding.rule is Rule.TEST_DELETED and not _adds_tests(changes))
    return finding if sure else replace(finding, severity=Severity.WARNING)


def _adds_tests(changes: Sequence[FileChange]) -> bool:
    """Whether any test file got lines that it did not have: what is gone may have moved there."""
    tests = [change for change in changes if is_test_path(change.path) and change.new]
    return any(set((change.new or "").split("\n")) - set((change.old or "").split("\n")) for change in tests)


def _text(data: bytes | None) -> str | None:
    """A file as text; what is binary is not judged."""
    return None if data is None or b"\0" in data[:8192] else data.decode(errors="replace")
