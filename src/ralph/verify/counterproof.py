"""The counter-proof: changed tests and settings are put back as they were, and the checks run once more on the work.

Reading cannot always tell a test that was weakened from one that was rewritten; running the old one can. If the work also
passes the tests and settings as they were before the run, and does not look made for them, their change gained nothing: it
becomes a warning. If a test that failed before still fails as it was, the test was changed and the work was not done.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from ralph.core.checks import (
    Check,
    CheckResult,
    CheckStatus,
    Evidence,
    FailingTests,
    Finding,
    Grade,
    NamedTests,
    Rule,
    Severity,
    Verdict,
)
from ralph.core.text import count
from ralph.git.snapshots import Snapshots
from ralph.verify.changed_files import is_build_code, is_collected, is_judge_file, is_test_path
from ralph.verify.clean_room import CleanRoom, RoomError
from ralph.verify.emptied_code import empty_functions
from ralph.verify.guards import FileChange, scan
from ralph.verify.guards.commands import find_steps, split_commands
from ralph.verify.judge_parts import holds_inline_tests, is_mixed, restore_judge_part
from ralph.verify.results import find_missing_tests
from ralph.verify.runner import CheckRunner, read_output
from ralph.verify.summaries import read_go_packages

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
MAX_TESTS = 400
"""Test files that are read."""
_NAME_PARTS = re.compile(r"::| > | › |[/()\[\]]")
_SHORT_NAME = 3
"""A shorter part of a name says nothing about where the test is."""
MAX_EMPTIED = 2000
"""Files whose functions are emptied."""
MAX_NAMED = 5
"""Tests or packages that a message names."""
_ASKS_FOR_COVERAGE = re.compile(
    r"fail[-_]under|check-coverage|--cov(?:erage)?\b|\bcoverage (?:report|xml|json|lcov)\b"
    r"|\bgo (?:test .*-cover|tool cover)|\bcargo (?:llvm-cov|tarpaulin)"
)
_SHELL_WORD = re.compile(r"&&|\|\||[;|&\n()]|[^\s;|&()]+")
_ENDS_PATH = re.compile(r"[\s\"'=:<>,`]")
_SEPARATORS = frozenset(("&&", "||", ";", "|", "&", "\n"))
_IS_EXPANDED = re.compile(r"[$~*?`]|^-$")
_REBUTTED = " The work passes without that change too, so this is only a warning."


@dataclass(frozen=True)
class NoticedTests:
    """What new tests make of code that does nothing."""

    tests: tuple[str, ...]
    silent: tuple[str, ...]
    """Those that still pass with it."""


@dataclass(frozen=True)
class Counterproof:
    """Runs the checks of a run on copies of its work."""

    runner: CheckRunner
    snapshots: Snapshots
    base: str
    """The snapshot before the run."""
    baseline: Verdict | None
    """What the checks said there."""
    room: CleanRoom
    may_change_tests: bool = False
    may_change: Callable[[str], bool] = lambda path: False
    """Whether the user let the run change a judge file. Such a file is not put back."""

    async def review(
        self, findings: Sequence[Finding], changes: Sequence[FileChange], checks: Sequence[Check]
    ) -> list[Finding]:
        """The findings with what the tests as they were before the run show of the work."""
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        changes = [change for change in changes if not self.may_change(change.path)]
        if errors:
            return await self._review_errors(findings, errors, changes, checks)
        failed_before = self._find_failed_tests(checks)
        if not failed_before or self.may_change_tests or not any(map(_is_changed_test, changes)):
            return list(findings)
        return await self._review_changed_tests(findings, failed_before, changes, checks)

    async def _review_errors(
        self,
        findings: Sequence[Finding],
        errors: Sequence[Finding],
        changes: Sequence[FileChange],
        checks: Sequence[Check],
    ) -> list[Finding]:
        """The findings without errors that the judge files as they were before the run rebut."""
        if not all(finding.rule in REBUTTABLE and is_judge_file(finding.path) for finding in errors):
            return list(findings)
        more = self._find_tied_to_place(checks) or self._find_made_for_tests(changes, checks)
        if more:
            return [*findings, *more]
        back = {change.path for change in changes if is_judge_file(change.path)}
        try:
            verdict = await self._run_with(back, self.base, "as-before", checks)
        except RoomError as error:
            return [*findings, *_report_not_run_apart(checks, f"no clean checkout could be created: {error}")]
        if verdict.not_passed or not self._ran_as_many(verdict):
            return list(findings)
        return _rebut_errors(findings, checks, verdict)

    async def _review_changed_tests(
        self,
        findings: Sequence[Finding],
        failed_before: Mapping[str, CheckResult],
        changes: Sequence[FileChange],
        checks: Sequence[Check],
    ) -> list[Finding]:
        """The findings, and what the changed tests say in their original form if some failed before the run."""
        if tied := self._find_tied_to_place(checks):
            return [*findings, *tied]
        back = {change.path for change in changes if is_test_path(change.path)}
        try:
            verdict = await self._run_with(back, self.base, "as-before", checks)
        except RoomError as error:
            return [*findings, *_report_not_run_apart(checks, f"no clean checkout could be created: {error}")]
        if not verdict.not_passed and self._ran_as_many(verdict):
            return list(findings)
        found = _judge_original_tests(verdict, failed_before)
        if any(finding.path in failed_before for finding in found):
            found = await self._judge_red_files(found, changes, failed_before, checks)
        if self.room.settings.is_on:
            # The room tries all judge files as they were, and leaves it to a judge if the work fails with them.
            found = [_warn_of_check(finding, failed_before) for finding in found]
        return [*findings, *found]

    async def _judge_red_files(
        self,
        unproven: Sequence[Finding],
        changes: Sequence[FileChange],
        failed_before: Mapping[str, CheckResult],
        checks: Sequence[Check],
    ) -> list[Finding]:
        """The findings about original tests that cannot run; warnings if all that failed before pass as they were.

        A renamed function keeps other tests from running in their original form. Then only files with tests that failed count.
        """
        failed_tests = [test for result in failed_before.values() for test in result.failing]
        if not failed_tests:
            return list(unproven)
        changed = [change for change in changes if is_test_path(change.path)]
        back = {
            change.path for change in changed if not is_collected(change.path) or _names_test(change.old, failed_tests)
        }
        try:
            verdict = await self._run_with(back, self.base, "as-failed-before", checks) if back else None
        except RoomError:
            return list(unproven)
        if verdict is not None and verdict.not_passed:
            return list(unproven)
        return [replace(finding, severity=Severity.WARNING) for finding in unproven]

    async def grade_changed_judge_files(
        self, evidence: Evidence, back: Sequence[str], checks: Sequence[Check]
    ) -> Evidence:
        """The grade of work that changed judge files: proven if it also passes with all of them as they were."""
        if unsplit := self._find_unsplit(back):
            why = f"the tests in {unsplit[0]} cannot be told apart from its code (`pip install 'ralph-engine[inline-tests]'`)"
            return leave_to_judge(evidence, back, why)
        try:
            verdict = await self._run_with(back, self.base, "judge-files-as-before", checks)
        except RoomError as error:
            why = f"no clean checkout could be created: {error}"
            return leave_to_judge(evidence, back, why)
        if not verdict.not_passed and self._ran_as_many(verdict):
            reason = (
                "The checks also pass in a clean checkout, even with tests and settings as they were before the run."
            )
            return replace(evidence, reason=reason, restored=tuple(back))
        why = "fewer tests run with them"
        if verdict.not_passed:
            failed = verdict.not_passed[0]
            why = f"`{failed.command or failed.title}` fails with them: {failed.reason}"
        return leave_to_judge(evidence, back, why)

    def rests_on_new_tests(self, verdict: Verdict, checks: Sequence[Check]) -> bool:
        """Whether the checks cannot pass without new tests: there were none before, or they raise the coverage."""
        return self._has_only_new_tests(verdict) or measures_coverage(checks)

    async def grade_new_tests(self, verdict: Verdict, added: Sequence[str], checks: Sequence[Check]) -> Evidence:
        """The grade of work that rests on new tests: code that is wrong shows what they prove.

        If that shows nothing, only a judge can tell.
        """
        evidence = verdict.evidence or Evidence(Grade.PROVEN, "")
        is_first = self._has_only_new_tests(verdict)
        reason = "The run wrote the tests that its work passes."
        noticed = None if is_first else await self._try_new_tests(added, checks)
        if noticed is not None and not noticed.silent:
            reason = (
                f"The checks also pass in a clean checkout, and each of {count(len(noticed.tests), 'new test')} fails if the "
                "functions of the project do nothing."
            )
            return replace(evidence, grade=Grade.JUDGED, reason=reason)
        if noticed is not None:
            named = ", ".join(noticed.silent[:MAX_NAMED])
            reason = f"{reason} These also pass if the functions of the project do nothing: {named}."
        return replace(evidence, grade=Grade.UNPROVEN, reason=reason, to_judge=tuple(added))

    async def _try_new_tests(self, added: Sequence[str], checks: Sequence[Check]) -> NoticedTests | None:
        """Which new tests notice that functions do nothing; None if that cannot be told.

        The code is as it was before the run, with only the new tests in it.
        """
        latest = self.snapshots.latest()
        before = _join_names(self.baseline.results) if self.baseline else None
        if latest is None or before is None:
            return None
        files = [path for path in self.snapshots.paths(self.base) if not is_judge_file(path)][:MAX_EMPTIED]
        texts = {
            path: data.decode(errors="replace") for path, data in self.snapshots.contents(self.base, files).items()
        }
        try:
            plain = await self.room.run("new-tests", checks, self.base, back=added, base=latest)
            named = _join_names(plain.results)
            new = set(named.passed) - set(before.ran) if named and not plain.not_passed else set()
            if not new:
                return None
            noticing: set[str] = set()
            variants = list(empty_functions(texts))
            for number, variant in enumerate(variants, 1):
                key = f"new-tests-emptied-{number}"
                emptied = await self.room.run(key, checks, self.base, back=added, base=latest, texts=variant)
                found = _join_names(emptied.results)
                if found is None or new - set(found.ran):
                    # The project could not even be loaded, so the tests say nothing.
                    return None
                noticing |= new & set(found.failed)
        except RoomError:
            return None
        return NoticedTests(tuple(sorted(new)), tuple(sorted(new - noticing))) if variants else None

    def _has_only_new_tests(self, verdict: Verdict) -> bool:
        """Whether tests ran now and none ran before the run."""
        before = {result.title: _count_loaded(result) for result in self.baseline.results} if self.baseline else {}
        ran_now = [result for result in verdict.results if result.tests and result.tests.ran]
        return bool(ran_now) and not any(before.get(result.title) for result in ran_now)

    async def find_changed_since_failure(self, seen_failing: FailingTests, checks: Sequence[Check]) -> list[Finding]:
        """Tests that were seen to fail, were changed since, and still fail as they were."""
        latest = self.snapshots.latest() or seen_failing.snapshot
        changed = self.snapshots.read_changed(seen_failing.snapshot, latest)
        back = {path for path in changed if is_test_path(path) and not self.may_change(path)}
        if back and (tied := self._find_tied_to_place(checks)):
            return tied
        if not back:
            return []
        try:
            verdict = await self._run_with(back, seen_failing.snapshot, "as-seen-failing", checks)
        except RoomError as error:
            return _report_not_run_apart(checks, f"no clean checkout could be created: {error}")
        failing = [test for result in verdict.not_passed for test in result.failing]
        return _report_still_failing(failing, seen_failing.tests, "was seen to fail")

    async def require_go_tests(self, verdict: Verdict, checks: Sequence[Check]) -> Verdict:
        """Run passing Go tests once more with `-v`: only then does Go say which tests ran.

        Without it, `go test` prints `ok` for a package whose tests never started, for example because an `init` or `TestMain`
        calls `os.Exit(0)`. A package may only be silent if it also was before the run.
        """
        results = [
            await self._require_go_tests(check, result) for check, result in zip(checks, verdict.results, strict=True)
        ]
        return replace(verdict, results=tuple(results))

    async def _require_go_tests(self, check: Check, result: CheckResult) -> CheckResult:
        if result.tests is not None or not read_go_packages(result.output):
            return result
        verbose = _make_verbose(check)
        again = await self.runner.run_one("go-tests", verbose)
        if again.status is CheckStatus.FAILED:
            return replace(again, title=result.title, command=result.command)
        if not again.passed:
            return result
        silent = [package for package, has_run in self._read_packages(again).items() if not has_run]
        if silent:
            before = await self._run_base(verbose)
            silent = [package for package in silent if before.get(package, True)]
        if not silent:
            return replace(result, tests=again.tests)
        reason = (
            f"no test of {', '.join(silent[:MAX_NAMED])} ran, and `go test` says ok anyway: "
            "look for os.Exit in init or TestMain, or for a test flag that the code sets"
        )
        return replace(result, status=CheckStatus.COULD_NOT_RUN, reason=reason)

    async def _run_base(self, verbose: Check) -> dict[str, bool]:
        """The Go packages of the tree before the run, and whether they ran tests. One that did not build is not there."""
        everything = {*self.snapshots.paths(self.base), *self.snapshots.paths(self.snapshots.latest() or self.base)}
        try:
            verdict = await self._run_with(everything, self.base, "go-base", [verbose])
        except RoomError:
            return {}
        return self._read_packages(verdict.results[0])

    def _read_packages(self, result: CheckResult) -> dict[str, bool]:
        return read_go_packages(read_output(self.runner.run_dir / result.log)) if result.log else {}

    def _find_failed_tests(self, checks: Sequence[Check]) -> dict[str, CheckResult]:
        """The checks that ran tests before the run and failed, by title."""
        known = {result.title: result for result in self.baseline.not_passed} if self.baseline else {}
        return {
            check.title: known[check.title]
            for check in checks
            if check.title in known and is_about_tests(check, known[check.title])
        }

    def _find_tied_to_place(self, checks: Sequence[Check]) -> list[Finding]:
        """A warning for each check that judges what is at a fixed place, and not a copy of the tree."""
        if self.room.is_mounted:
            return []
        workspace, top = self.runner.workspace, self.snapshots.repository.top
        absolute = [check for check in checks if str(workspace) in check.command]
        leaving = [check for check in checks if check not in absolute and leaves_tree(check.command, workspace, top)]
        return [
            *_report_not_run_apart(absolute, "it names the directory of the work by its full path"),
            *_report_not_run_apart(leaving, "it may use files outside the tree (`..`)"),
        ]

    def _find_made_for_tests(self, changes: Sequence[FileChange], checks: Sequence[Check]) -> list[Finding]:
        """What the guards find in the work alone, beside the tests as they were before the run."""
        tests = [path for path in self.snapshots.paths(self.base) if is_test_path(path)][:MAX_TESTS]
        contents = self.snapshots.contents(self.base, tests)
        texts = {path: data.decode(errors="replace") for path, data in contents.items()}
        work = [change for change in changes if not is_judge_file(change.path)]
        commands = [check.command for check in checks if check.command]
        found = scan(work, checks=commands, unchanged=texts)
        return [finding for finding in found if finding.severity is Severity.ERROR]

    def _ran_as_many(self, verdict: Verdict) -> bool:
        """Whether every check ran at least as many tests as before the run."""
        known = {result.title: result for result in self.baseline.results} if self.baseline else {}
        pairs = [(result, known[result.title]) for result in verdict.results if result.title in known]
        return all(before.tests is None or _ran_as_many(result, before) for result, before in pairs)

    async def _run_with(self, back: Collection[str], tree: str, key: str, checks: Sequence[Check]) -> Verdict:
        """Run the checks on the work with some files as they were in a tree; raises RoomError."""
        latest = self.snapshots.latest()
        if not tree or latest is None:
            raise RoomError("there is no snapshot")
        # A runner that stops at the first failure would hide the failures after it.
        complete = [replace(check, command=drop_fail_fast(check.command)) for check in checks]
        parts = self._restore_parts(back, tree, latest)
        whole = set(back) - parts.keys()
        verdict = await self.room.run(key, complete, latest, back=whole, base=tree, texts=parts)
        named = [
            replace(result, title=check.title, command=check.command)
            for check, result in zip(checks, verdict.results, strict=True)
        ]
        return replace(verdict, results=tuple(named))

    def _restore_parts(self, back: Collection[str], tree: str, latest: str) -> dict[str, str]:
        """The texts of files that are put back in part: the rest of them is the work."""
        restored = {change.path: restore_judge_part(change) for change in self._read_mixed(back, tree, latest)}
        return {path: text for path, text in restored.items() if text is not None}

    def _find_unsplit(self, back: Collection[str]) -> list[str]:
        """The files with tests beside their code that nothing here can tell apart."""
        mixed = self._read_mixed(back, self.base, self.snapshots.latest() or self.base)
        return [change.path for change in mixed if holds_inline_tests(change) and restore_judge_part(change) is None]

    def _read_mixed(self, paths: Collection[str], tree: str, latest: str) -> list[FileChange]:
        """The changes of files of which only a part decides what passes."""
        mixed = [path for path in paths if not is_judge_file(path) or is_mixed(path)]
        old, new = self.snapshots.contents(tree, mixed), self.snapshots.contents(latest, mixed)
        return [
            FileChange(path, old[path].decode(errors="replace"), new[path].decode(errors="replace"))
            for path in mixed
            if path in old and path in new
        ]


def _join_names(results: Sequence[CheckResult]) -> NamedTests | None:
    """The tests of all checks together; None if no check names its tests."""
    named = [result.named for result in results if result.named]
    if not named:
        return None
    passed = tuple(test for one in named for test in one.passed)
    return NamedTests(passed, tuple(test for one in named for test in one.failed))


def leave_to_judge(evidence: Evidence, changed: Sequence[str], why: str) -> Evidence:
    """The evidence of work that passes only with the judge files that the run changed."""
    reason = f"Tests and settings as they were before the run do not confirm the work: {why}."
    return replace(evidence, grade=Grade.UNPROVEN, reason=reason, restored=tuple(changed), to_judge=tuple(changed))


def _count_loaded(result: CheckResult) -> int:
    """How many tests ran. unittest counts a file that it cannot load, or that is not there, as a test that failed."""
    if result.tests is None:
        return 0
    return max(0, result.tests.ran - sum("_FailedTest" in test for test in result.failing))


def measures_coverage(checks: Sequence[Check]) -> bool:
    """Whether a check asks how much of the code the tests run."""
    return any(
        (check.measure and check.measure.metric == "coverage") or _ASKS_FOR_COVERAGE.search(check.command)
        for check in checks
    )


def leaves_tree(command: str, workspace: Path, top: Path) -> bool:
    """Whether a path with `..` in a command leads out of the tree, or to a place that only a shell can tell."""
    tree = top.resolve()
    here: Path | None = workspace.resolve()
    outer: list[Path | None] = []
    words: list[str] = []
    for word in [*_SHELL_WORD.findall(command), ";"]:
        if any(".." in path.split("/") and not _is_inside(here, path, tree) for path in _ENDS_PATH.split(word)):
            return True
        if word not in _SEPARATORS and word not in ("(", ")"):
            words.append(word)
            continue
        here = _change_directory(here, words)
        words = []
        if word == "(":
            outer.append(here)
        elif word == ")" and outer:
            here = outer.pop()
    return False


def _is_inside(here: Path | None, path: str, tree: Path) -> bool:
    """Whether a path stays inside the tree on its whole way: the copy of the tree has another name."""
    if here is None or path.startswith("/") or _IS_EXPANDED.search(path):
        return False
    places = accumulate(path.split("/"), lambda place, part: (place / part).resolve(), initial=here)
    return all(place.is_relative_to(tree) for place in places)


def _change_directory(here: Path | None, words: Sequence[str]) -> Path | None:
    """The directory after a command; None if only a shell can tell."""
    if not words or words[0] not in ("cd", "pushd", "popd"):
        return here
    operands = [word.strip("\"'") for word in words[1:] if word != "--"]
    if here is None or words[0] != "cd" or len(operands) != 1 or _IS_EXPANDED.search(operands[0]):
        return None
    return (here / operands[0]).resolve()


def _report_not_run_apart(checks: Sequence[Check], why: str) -> list[Finding]:
    sentence = "The original tests could not be run apart from the changed ones with `{}`: {}. Read the changed tests yourself."
    return [
        Finding(
            rule=Rule.VERIFIER_EDITED,
            path=check.title,
            line=0,
            sentence=sentence.format(check.command, why),
            severity=Severity.WARNING,
        )
        for check in checks
        if check.command
    ]


def _rebut_errors(findings: Sequence[Finding], checks: Sequence[Check], verdict: Verdict) -> list[Finding]:
    """The findings with errors turned into warnings, as far as these checks can rebut them."""
    # `rm -rf tests` passes every check that runs no test: such a check says nothing about tests.
    standing = frozenset() if _ran_tests(checks, verdict) else _ABOUT_TESTS
    reviewed = []
    for finding in findings:
        if finding.severity is Severity.ERROR and finding.rule not in standing:
            finding = replace(finding, severity=Severity.WARNING, sentence=finding.sentence + _REBUTTED)
        reviewed.append(finding)
    return reviewed


def _ran_tests(checks: Sequence[Check], verdict: Verdict) -> bool:
    """Whether one of the checks ran tests: it counted them, or runs a tool that need not count them."""
    if any(result.tests and result.tests.ran for result in verdict.results):
        return True
    return any(step.kind == "tests" for check in checks for step in find_steps(split_commands(check.command)))


def is_about_tests(check: Check, before: CheckResult) -> bool:
    """Whether a check failed because of tests, as far as that is known: it counted or named some, or runs nothing else."""
    if before.tests or before.failing:
        return True
    steps = list(find_steps(split_commands(check.command)))
    return bool(steps) and all(step.kind == "tests" for step in steps)


def _judge_original_tests(verdict: Verdict, failed_before: Mapping[str, CheckResult]) -> list[Finding]:
    """What the work does to the tests as they were, for every check that failed before the run.

    A test that failed before and still does is an error, whatever else fails: other failures are easy to provoke. Tests that
    do not run any more prove nothing. Tests that passed before and fail now may be what the task is about: a warning.
    """
    found: list[Finding] = []
    for result in verdict.results:
        before = failed_before.get(result.title)
        if before is not None:
            found += _judge_original(result, before)
    return found


def _judge_original(result: CheckResult, before: CheckResult) -> list[Finding]:
    still = _report_still_failing(result.failing, before.failing, "failed before the run")
    if still:
        return still
    ran_as_many = _ran_as_many(result, before)
    if result.passed and ran_as_many:
        return []
    if not ran_as_many or (result.failing and not before.failing):
        return [_report_unproven(result, before)]
    sentence = "{} passed before the run, and its original version fails now: say why it had to change."
    return [
        Finding(rule=Rule.VERIFIER_EDITED, path=test, line=0, sentence=sentence.format(test), severity=Severity.WARNING)
        for test in result.failing[:MAX_NAMED]
    ]


def _warn_of_check(finding: Finding, checks: Collection[str]) -> Finding:
    """The finding; one about a whole check, and not about a test, only warns."""
    return replace(finding, severity=Severity.WARNING) if finding.path in checks else finding


def _names_test(text: str | None, names: Sequence[str]) -> bool:
    """Whether a text has one of the tests, going by a part of its name."""
    parts = {part.strip() for name in names for part in _NAME_PARTS.split(name)}
    return text is not None and any(part in text for part in parts if len(part) > _SHORT_NAME)


def _ran_as_many(result: CheckResult, before: CheckResult) -> bool:
    """Whether a check ran the same tests as before, or as many. One that counts no tests did if it passes."""
    if before.named and result.named:
        return not find_missing_tests(before.named, result.named)
    if before.tests is None:
        return result.passed or bool(result.failing)
    return result.tests is not None and result.tests.ran >= before.tests.ran - before.tests.repeated


def _report_unproven(result: CheckResult, before: CheckResult) -> Finding:
    """The error for a check that says nothing about the tests as they were before the run."""
    if result.failing:
        why = f"{', '.join(result.failing[:MAX_NAMED])} fails"
    elif result.tests and before.tests:
        why = f"{count(result.tests.ran, 'test')} ran, and {before.tests.ran} before the run"
    else:
        why = result.reason or "it counts no tests"
    sentence = (
        f"With the tests as they were before the run, `{result.command}` does not show that the work is done: {why}. "
        "Does the work keep what they use? Were they wrong?"
    )
    return Finding(Rule.VERIFIER_EDITED, result.title, 0, sentence)


def _report_still_failing(failing: Sequence[str], before: Collection[str], when: str) -> list[Finding]:
    """An error for every test that failed and still does as it was."""
    still = [test for test in failing if test in before]
    sentence = "{} {}, and its original version still fails: the work must pass it unchanged. Or was the test wrong?"
    return [Finding(Rule.VERIFIER_EDITED, test, 0, sentence.format(test, when)) for test in still[:MAX_NAMED]]


_FAIL_FAST = re.compile(
    r"(?<!\S)(?:-x|--exitfirst|--maxfail[= ]\S+|--?failfast|--bail(?:[= ]\d+)?|-ff|--fail-fast)(?!\S)"
)
"""Options with which runners stop at the first failure. `-ff` is Maven's."""
_RUNNER = re.compile(r"\b(?:pytest|py\.test|unittest|go test|jest|vitest|mocha|mvnw?|nextest run|rspec|phpunit)\b")
_CARGO_TEST = re.compile(r"\bcargo (?:\+\S+ )?test\b(?!.*--no-fail-fast)")
_MAVEN = re.compile(r"(?<![\w/.-])(?:\./)?mvnw?(?=\s)(?!.*(?:\s-fae|\s-fn|--fail-(?:at-end|never)))")


def drop_fail_fast(command: str) -> str:
    """A command that runs all tests, whatever fails: `cargo test` and Maven stop early unless they are told not to."""
    if _RUNNER.search(command):
        command = re.sub(r" {2,}", " ", _FAIL_FAST.sub("", command)).strip()
    command = _CARGO_TEST.sub(lambda found: f"{found[0]} --no-fail-fast", command)
    return _MAVEN.sub(lambda found: f"{found[0]} -fae", command)


def _is_changed_test(change: FileChange) -> bool:
    """Whether a test may have been changed. A new test file only adds to it, and settings may be the work."""
    return is_test_path(change.path) and (change.old is not None or is_build_code(change.path))


def _make_verbose(check: Check) -> Check:
    """The check with `-v` for every `go test` in it, also in scripts and recipes, which see GOFLAGS."""
    command = re.sub(r"\bgo test\b(?! -v\b)", "go test -v", check.command)
    return Check(f'GOFLAGS="$(go env GOFLAGS) -v"; export GOFLAGS\n{command}', check.timeout)
