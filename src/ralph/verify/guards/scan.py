"""The guards: all rules, on all changes between the tree before the run and the tree now."""

from collections.abc import Mapping, Sequence

from ralph.core.findings import Finding, Severity
from ralph.verify.guards.cases import case_findings
from ralph.verify.guards.changes import FileChange
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.config import config_findings
from ralph.verify.guards.detected import detection_findings
from ralph.verify.guards.foreign import foreign_findings
from ralph.verify.guards.hardcoded import hardcoded_findings
from ralph.verify.guards.silenced import suppression_findings, untyped_findings
from ralph.verify.guards.swallowed import swallow_findings
from ralph.verify.guards.validation import validation_findings
from ralph.verify.guards.verifier import verifier_findings

_RULES = (
    case_findings,
    foreign_findings,
    swallow_findings,
    hardcoded_findings,
    detection_findings,
    validation_findings,
    suppression_findings,
    untyped_findings,
    config_findings,
    verifier_findings,
)


def scan(
    changes: Sequence[FileChange], *, checks: Sequence[str] = (), unchanged: Mapping[str, str] | None = None
) -> list[Finding]:
    """Find work that gamed the checks."""
    files = tuple(change for change in changes if change.old != change.new or change.renamed_from)
    same = {change.path: change.new for change in changes if change.new is not None and change.old == change.new}
    work = Comparison(files, tuple(checks), {**same, **(unchanged or {})})
    found = {finding: None for rule in _RULES for finding in rule(work)}
    return sorted(found, key=lambda f: (f.severity is not Severity.ERROR, f.path, f.line, f.rule))
