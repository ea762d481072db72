"""The counter-proof: tests and settings that were changed are put back, and the work is judged once more.

Reading cannot always tell a test that was weakened from one that was rewritten; running the old one can. Where the work also
passes the tests and settings as they were before the run, and does not look made for them, their change gained nothing: it is
told, and holds nothing up. Where a test that failed before still fails as it was, it was the test that was changed and not
the work that was done.
"""

import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ralph.core.checks import Check, Red, Verdict
from ralph.core.findings import Finding, Rule, Severity
from ralph.git.snapshots import Snapshots
from ralph.verify.guards.changes import FileChange
from ralph.verify.guards.commands import lines_of, steps
from ralph.verify.guards.scan import scan
from ralph.verify.judge_files import is_build_code, is_judge_file, is_test_path
from ralph.verify.runner import CheckRunner

REBUTTABLE = frozenset(
    (
        Rule.TEST_DELETED,
        Rule.TEST_SKIPPED,
        Rule.TEST_EMPTIED,
        Rule.ASSERTION_WEAKENED,
        Rule.CHECK_DISABLED,
        Rule.VERIFIER_EDITED,
        Rule.FEWER_TESTS,
    )
)
"""The rules about how the work is judged, not about the work itself."""
_ABOUT_TESTS = REBUTTABLE - {Rule.CHECK_DISABLED, Rule.VERIFIER_EDITED}
"""Rules that only a check that runs tests can rebut."""
MOST_FILES, MOST_TESTS, MOST_TOLD = 20_000, 400, 5
_PARENT = re.compile(r"(?<![^\s\"'=:/(<>|&;])\.\.(?![^\s\"'/):;|&<>])")
"""A path that leads out of the workspace, so that a copy of the workspace finds something else; `./...` of Go is none."""
_DEPENDENCIES = ("node_modules", ".venv", "venv", ".tox", "vendor", ".env")
_ADDED = " The work passes without that change too, so it only is told."


async def run_counterproof(
    findings: Sequence[Finding],
    changes: Sequence[FileChange],
    checks: Sequence[Check],
    *,
    runner: CheckRunner,
    snapshots: Snapshots,
    base: str,
    baseline: Verdict | None,
    may_change_tests: bool = False,
) -> list[Finding]:
    """Run the tests as they were before the run on the work; return the findings with what that shows."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if any(finding.rule not in REBUTTABLE or not is_judge_file(finding.path) for finding in errors):
        return list(findings)
    red = {test for result in (baseline.results if baseline else ()) for test in result.failing}
    is_test_changed = any(_is_changed_test(change) for change in changes)
    if not errors and (may_change_tests or not red or not is_test_changed):
        return list(findings)
    if any(str(runner.workspace) in check.command or _PARENT.search(check.command) for check in checks):
        return list(findings)
    if errors and (made_for_tests := _made_for_tests(changes, checks, snapshots, base)):
        return [*findings, *made_for_tests]
    goes_back = is_judge_file if errors else is_test_path
    back = {change.path for change in changes if goes_back(change.path)}
    with _as_before(back, runner, snapshots, base) as workspace:
        if workspace is None:
            return list(findings)
        verdict = await replace(runner, workspace=workspace).run("as-before", checks)
    if not verdict.failed and _as_many(baseline, verdict):
        # `rm -rf tests` passes every check that runs no test: such a check says nothing about tests.
        kept = () if _ran_tests(checks, verdict) else _ABOUT_TESTS
        return [_rebut(one) if one in errors and one.rule not in kept else one for one in findings]
    return list(findings) if errors else [*findings, *_still_red(verdict, red)]


def _rebut(finding: Finding) -> Finding:
    return replace(finding, severity=Severity.WARNING, sentence=finding.sentence + _ADDED)


def _ran_tests(checks: Sequence[Check], verdict: Verdict) -> bool:
    """Whether one of the checks ran tests: it counted them, or runs a tool that need not count them."""
    counted = any(result.tests and result.tests.ran for result in verdict.results)
    return counted or any(step.kind == "tests" for check in checks for step in steps(lines_of(check.command)))


async def find_changed_since_red(
    red: Red, checks: Sequence[Check], *, runner: CheckRunner, snapshots: Snapshots
) -> list[Finding]:
    """Tests that were seen to fail, were changed since, and still fail as they were."""
    latest = snapshots.latest() or red.tree
    back = {path for path in snapshots.changed(red.tree, latest) if is_test_path(path)}
    if not back:
        return []
    with _as_before(back, runner, snapshots, red.tree) as workspace:
        if workspace is None:
            return []
        verdict = await replace(runner, workspace=workspace).run("as-red", checks)
    return _still_red(verdict, red.tests, "was seen to fail")


def _still_red(verdict: Verdict, red: Collection[str], when: str = "failed before the run") -> list[Finding]:
    """Tests that failed and still do as they were; none where others fail too, which may have other causes."""
    failing = [test for result in verdict.failed for test in result.failing]
    if not failing or not set(failing) <= set(red):
        return []
    sentence = "{} {}, and as it was then it still does: the work has to pass it unchanged."
    return [Finding(Rule.VERIFIER_EDITED, test, 0, sentence.format(test, when)) for test in failing[:MOST_TOLD]]


def _is_changed_test(change: FileChange) -> bool:
    """Whether a test may have been changed; a test file that is new only adds to it, and settings may be the work."""
    return is_test_path(change.path) and (change.old is not None or is_build_code(change.path))


def _made_for_tests(
    changes: Sequence[FileChange], checks: Sequence[Check], snapshots: Snapshots, base: str
) -> list[Finding]:
    """What the guards find in the work alone, beside the tests as they were before the run."""
    tests = [path for path in snapshots.paths(base) if is_test_path(path)][:MOST_TESTS]
    texts = {path: data.decode(errors="replace") for path, data in snapshots.contents(base, tests).items()}
    work = [change for change in changes if not is_judge_file(change.path)]
    commands = [check.command for check in checks if check.command]
    return [one for one in scan(work, checks=commands, unchanged=texts) if one.severity is Severity.ERROR]


def _as_many(baseline: Verdict | None, verdict: Verdict) -> bool:
    """Whether at least as many tests ran as before the run."""
    before = {result.title: result.tests for result in baseline.results if result.tests} if baseline else {}
    pairs = [(before[now.title], now.tests) for now in verdict.results if now.title in before]
    return all(now is not None and now.ran >= old.ran for old, now in pairs)


@contextmanager
def _as_before(back: Collection[str], runner: CheckRunner, snapshots: Snapshots, base: str) -> Iterator[Path | None]:
    """A copy of the tree with some files as they were in the base; None if it would be too large."""
    latest = snapshots.latest()
    paths = set(snapshots.paths(latest)) if latest else set()
    if not base or latest is None or len(paths) > MOST_FILES:
        yield None
        return
    known = set(snapshots.paths(base))
    scratch = runner.run_dir / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir()
        snapshots.lay_out(latest, paths - set(back), scratch)
        snapshots.lay_out(base, known & set(back), scratch)
        _link_dependencies(snapshots.place.top, scratch / "tree", paths)
        yield scratch / "tree" / runner.workspace.resolve().relative_to(snapshots.place.top.resolve())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _link_dependencies(top: Path, copy: Path, tracked: set[str]) -> None:
    """What is installed beside the tracked files is used as it is."""
    for directory in {Path(), *(Path(path).parent for path in tracked)}:
        for name in _DEPENDENCIES:
            there, here = top / directory / name, copy / directory / name
            if there.exists() and not here.exists() and here.parent.is_dir():
                here.symlink_to(there.resolve())
