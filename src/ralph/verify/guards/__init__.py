"""Guards: rules that find work which gamed the checks. `scan` asks all of them.

An error holds the work up; a warning does not. If honest work could look the same, a rule only warns. The rules do not
compare texts: they ask what replaces something that is gone. Honest work keeps a test's claims and their values, wherever
they move (`lost_claims`); the error or message of an input check (`weakened_product`); the kind, reach and exit code of a
command that checks (`commands`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ralph.core.checks import Finding, Severity
from ralph.verify.changed_files import FileChange

if TYPE_CHECKING:
    from ralph.verify.guards.comparison import Comparison

__all__ = ["FileChange", "scan"]


def scan(
    changes: Sequence[FileChange],
    *,
    checks: Sequence[str] = (),
    unchanged: Mapping[str, str] | None = None,
    failed_before: Sequence[str] = (),
) -> list[Finding]:
    """Find work that gamed the checks. Errors come first. `failed_before` are tests that failed before the run and pass now."""
    files = tuple(change for change in changes if change.old != change.new or change.renamed_from)
    if not files:
        return []
    # Imported here: they take longer to import than everything else, and many verdicts have no changes to compare.
    from ralph.verify.guards.comparison import Comparison

    same = {change.path: change.new for change in changes if change.new is not None and change.old == change.new}
    work = Comparison(files, tuple(checks), {**same, **(unchanged or {})}, tuple(failed_before))
    found = dict.fromkeys(finding for rule in _import_rules() for finding in rule(work))
    return sorted(found, key=lambda f: (f.severity is not Severity.ERROR, f.path, f.line, f.rule))


def _import_rules() -> "tuple[Callable[[Comparison], Iterator[Finding]], ...]":
    """The rules, in the order in which they are asked."""
    from ralph.verify.guards.fitted_to_tests import find_hardcoded_results, find_test_detection
    from ralph.verify.guards.loosened_checkers import (
        find_any_types,
        find_hiding_stubs,
        find_loosened_settings,
        find_suppressions,
    )
    from ralph.verify.guards.weakened_checks import find_weakened_checks
    from ralph.verify.guards.weakened_product import find_removed_validation, find_swallowed_errors
    from ralph.verify.guards.weakened_tests import find_weakened_cases, find_weakened_other_files

    return (
        find_weakened_cases,
        find_weakened_other_files,
        find_swallowed_errors,
        find_hardcoded_results,
        find_test_detection,
        find_removed_validation,
        find_suppressions,
        find_any_types,
        find_hiding_stubs,
        find_loosened_settings,
        find_weakened_checks,
    )
