"""Fewer tests than before: what no reading of the tests can explain away."""

import re
from collections.abc import Sequence

from ralph.core.checks import Verdict
from ralph.core.findings import Finding, Rule, Severity
from ralph.verify.guards.changes import FileChange
from ralph.verify.judge_files import is_test_path

_DECLARES = re.compile(
    r"^\s*(?:async )?def test|\b(?:it|test|specify)(?:\.\w+)*\s*\(|^func (?:Test|Fuzz|Example)\w*\("
    r"|@(?:Parameterized)?Test\b|#\[(?:\w+::)?test",
    re.MULTILINE,
)


def fewer_tests(before: Verdict | None, now: Verdict, changes: Sequence[FileChange]) -> list[Finding]:
    """A finding for every check that ran fewer tests than before the run.

    Where the changed test files hold fewer tests themselves, reading them judges better than counting does: then it only warns.
    """
    if before is None:
        return []
    tests = [change for change in changes if is_test_path(change.path)]
    explained = sum(map(_declared, (c.new for c in tests))) < sum(map(_declared, (c.old for c in tests)))
    known = {result.title: result for result in before.results}
    pairs = [(known[new.title], new) for new in now.results if new.title in known]
    return [
        Finding(
            Rule.FEWER_TESTS,
            new.title,
            0,
            f"{new.tests.ran} tests ran, and {old.tests.ran} before the run: some are not run any more.",
            Severity.WARNING if explained else Severity.ERROR,
        )
        for old, new in pairs
        if old.tests and new.tests and new.tests.ran < old.tests.ran
    ]


def _declared(text: str | None) -> int:
    return len(_DECLARES.findall(text or ""))
