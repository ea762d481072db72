"""Verdicts that hold: flaky checks, confirmation, scope, counts, inputs; and what the guards are given."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import (
    Check,
    CheckResult,
    CheckStatus,
    Counts,
    Finding,
    Measure,
    NamedTests,
    Rule,
    Severity,
    Verdict,
)
from ralph.git.command import Repository
from ralph.verify.changed_files import FileChange
from ralph.verify.clean_room import CleanRoomSettings
from ralph.verify.verifier import (
    VerdictSettings,
    Verifier,
    _raise_for_coverage,
    compile_glob,
    find_changed_inputs,
    find_fewer_tests,
    find_out_of_scope,
    hash_inputs,
)

P, F, U = CheckStatus.PASSED, CheckStatus.FAILED, CheckStatus.COULD_NOT_RUN
CHECK = Check("make")


class Runner:
    """Says what it was told to say, one run after the other."""

    workspace = run_dir = Path("/project")

    def __init__(self, statuses: Iterator[CheckStatus] | Sequence[CheckStatus]) -> None:
        self.statuses = iter(statuses)
        self.keys: list[str] = []

    async def run(self, key: str, checks: Sequence[Check]) -> Verdict:
        self.keys.append(key)
        return Verdict(tuple(self._result(check, next(self.statuses)) for check in checks))

    async def run_one(self, key: str, check: Check) -> CheckResult:
        return (await self.run(key, [check])).results[0]

    def _result(self, check: Check, status: CheckStatus) -> CheckResult:
        return CheckResult(check.title, status, 0.1, reason="" if status is P else "exit code 1", command=check.command)


class Snapshots:
    """A tree with a base, the latest state, and what changed between them."""

    repository = Repository(Path("/project"), Path("/project/.git"), Path("/project/.git"))

    def __init__(self, tree: str = "t1", changed: dict[str, tuple[bytes | None, bytes | None]] | None = None) -> None:
        self.tree, self._changed = tree, changed or {}
        self.found: list[Finding] = []

    def base(self) -> str:
        return "t0"

    def base_with_user_changes(self) -> str:
        return "t0"

    def with_user_changes(self, sha: str) -> str:
        return sha

    def latest(self) -> str:
        return self.tree

    def read_changed(self, old: str, new: str) -> dict[str, tuple[bytes | None, bytes | None]]:
        return self._changed

    def paths(self, sha: str) -> list[str]:
        return ["tests/test_same.py", *self._changed]

    def contents(self, sha: str, paths: Sequence[str]) -> dict[str, bytes]:
        return dict.fromkeys(paths, b"def test_same():\n    assert 1\n")

    def history(self) -> list[Finding]:
        return self.found

    def is_by_product(self, path: str) -> bool:
        return path == "report.xml"


def verifier(statuses: Sequence[CheckStatus], snapshots: Any = None, **rules: Any) -> Verifier:
    off = CleanRoomSettings(is_on=False)
    return Verifier(Runner(statuses), snapshots, VerdictSettings(clean_room=off, **rules))  # type: ignore[arg-type]


def verdict_of(checker: Verifier, key: str = "iteration-1") -> CheckResult:
    return asyncio.run(checker.run(key, [CHECK])).results[0]


class GoRunner(Runner):
    """Prints what `go test` prints without `-v`."""

    def _result(self, check: Check, status: CheckStatus) -> CheckResult:
        return replace(super()._result(check, status), output="ok  \tshop/a\t0.01s\n")


class TestGo:
    def test_go_tests_that_pass_run_once_more_and_that_result_counts(self) -> None:
        runner: Any = GoRunner([P, F])
        checker = Verifier(runner, Snapshots(), VerdictSettings(clean_room=CleanRoomSettings(is_on=False)))  # type: ignore[arg-type]
        assert verdict_of(checker).status is F
        assert runner.keys == ["iteration-1", "go-tests"]

    @pytest.mark.parametrize(("key", "status"), [("iteration-1", F), ("baseline", P)])
    def test_go_tests_that_fail_or_run_before_the_work_do_not_run_again(self, key: str, status: CheckStatus) -> None:
        runner: Any = GoRunner([status])
        checker = Verifier(runner, Snapshots(), VerdictSettings(clean_room=CleanRoomSettings(is_on=False)))  # type: ignore[arg-type]
        assert verdict_of(checker, key).status is status
        assert runner.keys == [key]


class TestFlaky:
    def test_a_result_that_flips_on_the_same_tree_is_run_again_and_must_hold(self) -> None:
        checker = verifier([F, P, P, P], Snapshots())
        assert verdict_of(checker).status is F
        second = verdict_of(checker)
        assert (second.status, second.flaky, second.runs) == (P, True, 3)

    def test_luck_is_not_enough(self) -> None:
        checker = verifier([F, P, P, F], Snapshots())
        verdict_of(checker)
        second = verdict_of(checker)
        assert (second.status, second.flaky) == (F, True)
        assert "runs on the same tree passed" in second.reason

    def test_check_that_passed_before_and_fails_now_is_run_again(self) -> None:
        checker = verifier([P, F, P, P], Snapshots())
        verdict_of(checker)
        assert verdict_of(checker).status is P

    def test_another_tree_is_another_matter(self) -> None:
        snapshots = Snapshots()
        checker = verifier([F, P], snapshots)
        verdict_of(checker)
        snapshots.tree = "t2"
        second = verdict_of(checker)
        assert (second.status, second.flaky, second.runs) == (P, False, 1)

    def test_once_flaky_it_is_doubted_for_the_rest_of_the_run(self) -> None:
        snapshots = Snapshots()
        checker = verifier([F, P, F, P, P, F], snapshots)
        verdict_of(checker)
        assert verdict_of(checker).status is F
        snapshots.tree = "t2"
        assert verdict_of(checker).status is F
        assert checker.flaky == {CHECK.title}

    def test_a_check_that_could_not_run_is_not_flaky(self) -> None:
        checker = verifier([U, P], Snapshots())
        verdict_of(checker)
        assert not verdict_of(checker).flaky

    @pytest.mark.parametrize(("statuses", "expected", "runs"), [([P, P, P], P, 3), ([P, P, F], F, 3), ([P, F], F, 2)])
    def test_confirm_asks_for_a_number_of_passes_in_a_row(
        self, statuses: list[CheckStatus], expected: CheckStatus, runs: int
    ) -> None:
        result = verdict_of(verifier(statuses, confirm=3))
        assert (result.status, result.runs, result.flaky) == (expected, runs, expected is F)

    @settings(max_examples=50)
    @given(st.lists(st.sampled_from([P, F, U]), min_size=60, max_size=60), st.integers(1, 4))
    def test_the_last_runs_decide(self, statuses: list[CheckStatus], confirm: int) -> None:
        """A pass means that the last runs all passed, as many as it takes; anything else is what the last run said."""
        said: list[CheckStatus] = []

        def tell() -> Iterator[CheckStatus]:
            for status in statuses:
                said.append(status)
                yield status

        checker = Verifier(Runner(tell()), Snapshots(), VerdictSettings(confirm=confirm))  # type: ignore[arg-type]
        for _ in range(8):
            before = len(said)
            result = verdict_of(checker)
            own = said[before:]
            assert result.status is own[-1]
            first, further = own[0], own[1:]
            wanted = max(confirm - (first is P), 2 if CHECK.title in checker.flaky else 0)
            enough = further == [P] * len(further) and (first is P or bool(further)) and len(further) >= wanted
            assert result.passed == enough
            assert result.runs == len(own)


CHANGED: dict[str, tuple[bytes | None, bytes | None]] = {
    "src/app.py": (b"x = 1\n", b"x = 2\n"),
    "docs/a.md": (b"a\n", b"b\n"),
    "logo.png": (b"\0", b"\0\0"),
    "report.xml": (None, b"<a/>\n"),
}


class TestFindings:
    def findings(self, snapshots: Any, statuses: Sequence[CheckStatus] = (P,), **rules: Any) -> tuple[Finding, ...]:
        return asyncio.run(verifier(statuses, snapshots, **rules).run("iteration-1", [CHECK])).findings

    def test_changes_outside_the_scope_are_found_binary_ones_too(self) -> None:
        found = self.findings(Snapshots(changed=CHANGED), scope=("src/**",))
        assert [(finding.rule, finding.path) for finding in found] == [
            (Rule.OUT_OF_SCOPE, "docs/a.md"),
            (Rule.OUT_OF_SCOPE, "logo.png"),
        ]

    def test_a_rule_that_was_lifted_is_silent(self) -> None:
        assert not self.findings(Snapshots(changed=CHANGED), scope=("src/**",), allowed={"out-of-scope": "docs too"})

    def test_changes_to_the_history_are_reported(self) -> None:
        snapshots = Snapshots(changed=CHANGED)
        snapshots.found = [Finding(Rule.HISTORY_REWRITTEN, "main", 0, "main was reset.")]
        assert self.findings(snapshots) == tuple(snapshots.found)

    def test_errors_are_warnings_while_the_checks_fail(self) -> None:
        found = self.findings(Snapshots(changed=CHANGED), statuses=(F,), scope=("src/**",))
        assert {finding.path for finding in found} == {"docs/a.md", "logo.png"}
        assert {finding.severity for finding in found} == {Severity.WARNING}

    def test_without_snapshots_the_checks_alone_count(self) -> None:
        assert asyncio.run(verifier([P]).run("iteration-1", [CHECK])).passed


class TestScope:
    @pytest.mark.parametrize(
        ("glob", "path", "fits"),
        [
            ("app/**", "app/a/b.py", True),
            ("app/**", "application/a.py", False),
            ("app", "app/a/b.py", True),
            ("app/", "app/a.py", True),
            ("./app/*.py", "app/a.py", True),
            ("app/*.py", "app/a/b.py", False),
            ("*.py", "deep/er/a.py", True),
            ("**/tests/**", "tests/a.py", True),
            ("**/tests/**", "x/y/tests/z/a.py", True),
            ("src/[ab].py", "src/a.py", True),
            ("src/[ab].py", "src/c.py", False),
            ("a?c.txt", "abc.txt", True),
            ("a+b(c).txt", "a+b(c).txt", True),
            ("app", "lib/app/x", True),
            ("src/app", "lib/src/app/x", False),
        ],
    )
    def test_patterns_mean_what_people_know_from_git(self, glob: str, path: str, fits: bool) -> None:
        assert bool(compile_glob(glob).fullmatch(path)) is fits

    def test_without_a_scope_everything_may_be_changed(self) -> None:
        assert find_out_of_scope((), ["a", "b"]) == []

    @settings(max_examples=100, deadline=None)
    @given(st.text(max_size=20), st.text(max_size=20))
    def test_any_pattern_can_be_read(self, glob: str, path: str) -> None:
        compile_glob(glob).fullmatch(path)


class TestCounts:
    def verdict(self, counts: Counts | None) -> Verdict:
        return Verdict((CheckResult("`pytest` passes", P, 1.0, tests=counts),))

    @pytest.mark.parametrize(
        ("before", "now", "rules"),
        [
            (Counts(10), Counts(10), []),
            (Counts(8, 2), Counts(10), []),
            (Counts(8, 2), Counts(12), []),
            (Counts(8, 2), Counts(9), [Severity.ERROR]),
            (Counts(8, 2), Counts(8, 0, 2), [Severity.ERROR]),
            (None, Counts(1), []),
            (Counts(10), None, []),
            (Counts(10, repeated=5), Counts(5), [Severity.WARNING]),
            (Counts(10, repeated=5), Counts(4), [Severity.ERROR]),
        ],
    )
    def test_fewer_tests_than_before_are_found(
        self, before: Counts | None, now: Counts | None, rules: list[Severity]
    ) -> None:
        found = find_fewer_tests(self.verdict(before), self.verdict(now), [])
        assert [finding.severity for finding in found] == rules

    def test_fewer_tests_only_warn_if_the_changed_files_declare_fewer(self) -> None:
        change = FileChange("tests/test_a.py", "def test_a(): ...\ndef test_b(): ...\n", "def test_ab(): ...\n")
        (found,) = find_fewer_tests(self.verdict(Counts(2)), self.verdict(Counts(1)), [change])
        assert found.severity is Severity.WARNING

    def test_a_test_that_another_one_replaces_is_found_by_its_name(self) -> None:
        before = self.by_name("tests/test_a.py::test_total", "tests/test_a.py::test_count[1]")
        now = self.by_name("tests/test_a.py::test_count[2]", "tests/test_new.py::test_nothing")
        product = FileChange("shop.py", "def total(): ...\n", "def total(): return 1\n")
        (found,) = find_fewer_tests(before, now, [product])
        assert (found.rule, found.severity) == (Rule.FEWER_TESTS, Severity.ERROR)
        assert found.sentence == (
            "1 test ran before the run and no longer runs, though nothing changed it: tests/test_a.py::test_total."
        )

    def test_renamed_test_is_not_a_lost_test(self) -> None:
        before, now = self.by_name("tests/test_a.py::test_total"), self.by_name("tests/test_a.py::test_sum")
        renamed = FileChange("tests/test_a.py", "def test_total(): ...\n", "def test_sum(): ...\n")
        assert find_fewer_tests(before, now, [renamed]) == []

    def by_name(self, *passed: str) -> Verdict:
        result = self.verdict(Counts(len(passed))).results[0]
        return Verdict((replace(result, named=NamedTests(passed)),))

    def test_another_check_is_not_compared(self) -> None:
        other = Verdict((CheckResult("`pytest tests/test_one.py` passes", P, 1.0, tests=Counts(1)),))
        assert find_fewer_tests(self.verdict(Counts(10)), other, []) == []

    def test_fewer_tests_need_a_baseline(self) -> None:
        assert find_fewer_tests(None, self.verdict(Counts(1)), []) == []


class TestInputs:
    @pytest.fixture
    def workspace(self, tmp_path: Path) -> Path:
        root = tmp_path / "work"
        (root / ".venv" / "bin").mkdir(parents=True)
        (root / ".venv" / "bin" / "pytest").write_text("#!/usr/bin/python\nimport pytest\n")
        (root / "check.sh").write_text("#!/bin/sh\nmake test\n")
        (root / "app.js").write_text("console.log(1)\n")
        (tmp_path / "verify.py").write_text("assert True\n")
        return root

    @pytest.mark.parametrize(
        ("command", "names"),
        [
            (".venv/bin/pytest -q", ["pytest"]),
            ("./check.sh && true", ["check.sh"]),
            ("bash check.sh", ["check.sh"]),
            ("node app.js", []),
            ("python ../verify.py", ["verify.py"]),
            ("ls 'unclosed", []),
            ("true", []),
        ],
    )
    def test_tools_and_scripts_are_known_by_their_hashes_and_what_is_built_is_not(
        self, workspace: Path, command: str, names: list[str]
    ) -> None:
        assert [Path(path).name for path in hash_inputs([Check(command)], workspace)] == names

    @pytest.mark.parametrize("spoil", [lambda p: p.write_text("#!/bin/sh\nexit 0\n"), lambda p: p.unlink()])
    def test_a_tool_that_is_not_what_it_was_is_found(self, workspace: Path, spoil: Callable[[Path], Any]) -> None:
        known = hash_inputs([Check(".venv/bin/pytest")], workspace)
        assert find_changed_inputs(known, []) == []
        spoil(workspace / ".venv" / "bin" / "pytest")
        (found,) = find_changed_inputs(known, [])
        assert (found.rule, found.line, found.severity) == (Rule.VERIFIER_EDITED, 1, Severity.ERROR)
        assert found.path.endswith("/.venv/bin/pytest")
        assert found.path in found.sentence

    def test_a_tool_of_the_same_size_is_found_if_it_says_something_else(self, workspace: Path) -> None:
        tool = workspace / ".venv" / "bin" / "pytest"
        tool.write_text("#!/bin/sh\nexit 1\n")
        known = hash_inputs([Check(".venv/bin/pytest")], workspace)
        tool.write_text("#!/bin/sh\nexit 0\n")
        assert len(find_changed_inputs(known, [])) == 1

    def test_a_tool_that_is_very_large_is_known_by_its_size(
        self, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ralph.verify.verifier.MAX_INPUT_BYTES", 17)
        tool = workspace / ".venv" / "bin" / "pytest"
        for text, is_changed in (("#!/bin/sh\nexit 0\n", True), ("#!/bin/sh\nexit 10\n", False)):
            tool.write_text(text)
            known = hash_inputs([Check(".venv/bin/pytest")], workspace)
            tool.write_text(text.replace("exit", "EXIT"))
            assert bool(find_changed_inputs(known, [])) is is_changed

    def test_changed_input_is_not_reported_if_the_guards_see_it(self, workspace: Path) -> None:
        known = hash_inputs([Check("./check.sh")], workspace)
        (workspace / "check.sh").write_text("exit 0\n")
        assert find_changed_inputs(known, ["check.sh"]) == []
        assert find_changed_inputs(known, ["other.sh"])


class TestSummaries:
    """A check that counted tests before the run must show that tests ran."""

    def judge(self, before: CheckResult, now: CheckResult) -> CheckResult:
        checker = verifier([])
        checker.baseline = Verdict((before,))
        return checker._require_tests(now)

    def result(self, tests: Counts | None, output: str = "", status: CheckStatus = P) -> CheckResult:
        return CheckResult(CHECK.title, status, 0.1, tests=tests, output=output)

    def test_a_summary_that_is_gone_shows_nothing(self) -> None:
        found = self.judge(self.result(Counts(3), "3 passed in 0.1s\n"), self.result(None))
        assert found.status is U
        assert found.reason.startswith("it printed a test summary before the run and prints none now")

    def test_a_runner_that_is_silent_if_all_tests_pass_may_be(self) -> None:
        assert self.judge(self.result(Counts(2, 1), "3 tests completed, 1 failed\n"), self.result(None)).status is P

    def test_no_tests_are_too_few(self) -> None:
        found = self.judge(self.result(Counts(3)), self.result(Counts(0)))
        assert (found.status, found.reason) == (U, "no tests ran, but 3 tests ran before the run")

    @pytest.mark.parametrize(
        ("before", "now"), [(Counts(0), Counts(0)), (None, None), (None, Counts(1)), (Counts(3), Counts(1))]
    )
    def test_otherwise_the_result_counts(self, before: Counts | None, now: Counts | None) -> None:
        result = self.result(now)
        assert self.judge(self.result(before), result) is result

    def test_a_failure_is_a_failure(self) -> None:
        failed = self.result(None, status=F)
        assert self.judge(self.result(Counts(3), "3 passed in 0.1s\n"), failed) is failed

    def test_another_check_says_nothing_about_this_one(self) -> None:
        other = CheckResult("`other` passes", P, 0.1, tests=Counts(3), output="3 passed in 0.1s\n")
        result = self.result(None)
        assert self.judge(other, result) is result


def test_tests_that_assert_nothing_are_errors_if_coverage_counts() -> None:
    empty = Finding(Rule.TEST_EMPTIED, "a", 1, "It is empty.", Severity.WARNING)
    other = Finding(Rule.TEST_SKIPPED, "a", 1, "It is skipped.", Severity.WARNING)
    coverage = Check("pytest --cov", measure=Measure("coverage", ">=", 80.0, "%"))
    assert _raise_for_coverage([other, empty], [CHECK]) == [other, empty]
    assert _raise_for_coverage([other, empty], [CHECK, coverage]) == [replace(empty, severity=Severity.ERROR), other]


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("src/[!ab].py", "src/c.py", True),
        ("src/[!ab].py", "src/a.py", False),
        ("src/[^ab].py", "src/a.py", False),
        ("src/[a-c].py", "src/b.py", True),
        ("src/[a-c].py", "src/-.py", False),
        ("src/[!].py", "src/!.py", True),
        ("src/[", "src/[", True),
        ("a/**", "a", False),
        ("**", "deep/a.py", True),
        ("/src", "src/a.py", True),
        ("/src", "lib/src/a.py", False),
        ("[z-a].py", "[z-a].py", True),
    ],
)
def test_sets_and_anchors_of_a_scope(glob: str, path: str, fits: bool) -> None:
    assert bool(compile_glob(glob).fullmatch(path)) is fits
