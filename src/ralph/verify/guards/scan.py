"""The guards: all rules, on all changes between the tree before the run and the tree now."""

from collections.abc import Mapping, Sequence

from ralph.core.findings import Finding, Severity
from ralph.verify.guards.changes import FileChange


def scan(
    changes: Sequence[FileChange], *, checks: Sequence[str] = (), unchanged: Mapping[str, str] | None = None
) -> list[Finding]:
    """Find work that gamed the checks."""
    files = tuple(change for change in changes if change.old != change.new or change.renamed_from)
    if not files:
        return []
    # Imported here: a run whose checks fail never needs the rules, and they cost more than all else to import.
    from ralph.verify.guards.comparison import Comparison
    from ralph.verify.guards.rules import RULES

    same = {change.path: change.new for change in changes if change.new is not None and change.old == change.new}
    work = Comparison(files, tuple(checks), {**same, **(unchanged or {})})
    found = {finding: None for rule in RULES for finding in rule(work)}
    return sorted(found, key=lambda f: (f.severity is not Severity.ERROR, f.path, f.line, f.rule))
