"""The counter-proof: the checks run on a copy of the work with tests and settings as they were."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ralph.core.checks import (
    Check,
    CheckResult,
    CheckStatus,
    Counts,
    Evidence,
    FailingTests,
    Finding,
    Grade,
    Measure,
    NamedTests,
    Rule,
    Severity,
    Verdict,
)
from ralph.git.snapshots import Snapshots
from ralph.supervisor.sandbox import OFF, Sandbox
from ralph.verify.changed_files import FileChange, is_judge_file
from ralph.verify.clean_room import CleanRoom, CleanRoomSettings
from ralph.verify.counterproof import Counterproof, _judge_original_tests, drop_fail_fast, leaves_tree
from ralph.workspace.isolation import Isolation

GO_CHECK = Check("go test ./...")
PYTEST = Check("pytest -q")
SCRIPT = Check("./check.sh")


@dataclass(frozen=True)
class FakeRunner:
    """Answers the checks, and notes the files of the copy in which they would have run."""

    run_dir: Path
    workspace: Path
    answers: dict[str, Verdict]
    seen: dict[str, dict[str, str]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    async def run(self, key: str, checks: Sequence[Check]) -> Verdict:
        files = [path.relative_to(self.workspace) for path in self.workspace.rglob("*") if path.is_file()]
        named = [file for file in files if file.parts[0] not in (".git", ".ralph")]
        self.seen[key] = {str(file): (self.workspace / file).read_text() for file in named}
        self.commands[key] = [check.command for check in checks]
        return self.answers[key]

    async def run_one(self, key: str, check: Check) -> CheckResult:
        return (await self.run(key, [check])).results[0]


class Tree:
    """A repository before the run and now."""

    def __init__(self, root: Path, before: dict[str, str], now: dict[str, str | None]) -> None:
        self.root = root
        self.run_dir = root / ".ralph" / "runs" / "261115-093000-aaaa"
        self.run_dir.mkdir(parents=True)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        (root / ".git" / "info" / "exclude").write_text(".ralph\nnode_modules\n")
        self.snapshots = Snapshots.open(root, root, "261115-093000-aaaa", self.run_dir)
        self.write(before)
        self.snapshots.take("before")
        self.base = self.snapshots.base() or ""
        self.write(now)
        self.snapshots.take("now")

    def write(self, files: Mapping[str, str | None]) -> None:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_text(content)

    def changes(self) -> list[FileChange]:
        changed = self.snapshots.read_changed(self.base, self.snapshots.latest() or "")
        texts = {path: [data and data.decode() for data in pair] for path, pair in changed.items()}
        return [FileChange(path, old, new) for path, (old, new) in texts.items()]

    def counterproof(self, answers: dict[str, Verdict], baseline: Verdict | None = None, **more: Any) -> Counterproof:
        runner: Any = FakeRunner(self.run_dir, self.root, answers)
        isolation = Isolation(sandbox=Sandbox(OFF), root=self.root, run_dir=self.run_dir, top=self.root)
        room = CleanRoom(
            runner=runner,
            snapshots=self.snapshots,
            isolation=isolation,
            settings=CleanRoomSettings(is_on=False),
            is_mounted=False,
        )
        return Counterproof(
            runner=runner, snapshots=self.snapshots, base=self.base, baseline=baseline, room=room, **more
        )


TEST = "from app import f\n\n\ndef test_f():\n    assert f() == {}\n"
BEFORE = {"app.py": "def f():\n    return 1\n", "tests/test_app.py": TEST.format(1), "setup.cfg": "[mypy]\n"}
NOW: dict[str, str | None] = {
    "app.py": "def f():\n    return 1 + 0\n",
    "tests/test_app.py": TEST.format("f()"),
    "setup.cfg": "[mypy]\nstrict = true\n",
    "new.py": "n\n",
}
WEAKENED = Finding(Rule.ASSERTION_WEAKENED, "tests/test_app.py", 4, "It asks for less.")
DISABLED = Finding(Rule.CHECK_DISABLED, "setup.cfg", 1, "It leaves more out.")
SWALLOWED = Finding(Rule.ERROR_SWALLOWED, "app.py", 1, "It swallows the error.")
REBUTTED = " The work passes without that change too, so this is only a warning."


def result(
    check: Check = PYTEST, status: CheckStatus = CheckStatus.PASSED, tests: Counts | None = None, **more: Any
) -> Verdict:
    return Verdict((CheckResult(check.title, status, 0.1, command=check.command, tests=tests, **more),))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "project"
    root.mkdir()
    return Tree(root, BEFORE, NOW)


def review(counterproof: Counterproof, tree: Tree, findings: list[Finding], check: Check = PYTEST) -> list[Finding]:
    return asyncio.run(counterproof.review(findings, tree.changes(), [check]))


def seen(counterproof: Counterproof) -> dict[str, dict[str, str]]:
    runner: Any = counterproof.runner
    return dict(runner.seen)


class TestReview:
    def test_an_error_is_a_warning_if_the_work_passes_the_tests_and_settings_as_they_were(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": result(tests=Counts(1))}, result(tests=Counts(1)))
        found = review(proof, tree, [WEAKENED, DISABLED])
        assert [(one.severity, one.sentence) for one in found] == [
            (Severity.WARNING, WEAKENED.sentence + REBUTTED),
            (Severity.WARNING, DISABLED.sentence + REBUTTED),
        ]
        copy = seen(proof)["as-before"]
        assert copy["tests/test_app.py"] == BEFORE["tests/test_app.py"]
        assert copy["setup.cfg"] == BEFORE["setup.cfg"]
        assert copy["app.py"] == NOW["app.py"]
        assert copy["new.py"] == "n\n"
        assert not (tree.run_dir / "scratch").exists()

    def test_warnings_stay_as_they_are(self, tree: Tree) -> None:
        warning = replace(DISABLED, severity=Severity.WARNING)
        proof = tree.counterproof({"as-before": result(tests=Counts(1))})
        assert review(proof, tree, [WEAKENED, warning])[1] == warning

    @pytest.mark.parametrize(
        "now", [result(status=CheckStatus.FAILED, tests=Counts(0, 1)), result(tests=Counts(3)), result(tests=None)]
    )
    def test_an_error_stands_if_the_checks_fail_or_run_fewer_tests(self, tree: Tree, now: Verdict) -> None:
        proof = tree.counterproof({"as-before": now}, result(tests=Counts(4)))
        assert review(proof, tree, [WEAKENED]) == [WEAKENED]

    def test_an_error_stands_if_other_tests_run_than_before(self, tree: Tree) -> None:
        def named(*passed: str) -> Verdict:
            verdict = result(tests=Counts(len(passed)))
            return replace(verdict, results=(replace(verdict.results[0], named=NamedTests(passed)),))

        proof = tree.counterproof({"as-before": named("t.py::a", "t.py::c")}, named("t.py::a", "t.py::b"))
        assert review(proof, tree, [WEAKENED]) == [WEAKENED]
        proof = tree.counterproof({"as-before": named("t.py::a", "t.py::b")}, named("t.py::a", "t.py::b"))
        assert review(proof, tree, [WEAKENED])[0].severity is Severity.WARNING

    def test_tests_that_may_have_been_counted_twice_are_not_missed(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": result(tests=Counts(3))}, result(tests=Counts(4, repeated=1)))
        assert review(proof, tree, [WEAKENED])[0].severity is Severity.WARNING

    def test_an_error_in_the_work_itself_is_not_rebutted(self, tree: Tree) -> None:
        proof = tree.counterproof({})
        assert review(proof, tree, [WEAKENED, SWALLOWED]) == [WEAKENED, SWALLOWED]
        assert review(proof, tree, [replace(WEAKENED, path="app.py")]) == [replace(WEAKENED, path="app.py")]
        assert seen(proof) == {}

    def test_a_check_that_runs_no_tests_rebuts_nothing_about_tests(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": result(SCRIPT)})
        found = review(proof, tree, [WEAKENED, DISABLED], SCRIPT)
        assert [one.severity for one in found] == [Severity.ERROR, Severity.WARNING]

    def test_a_tool_that_tests_need_not_count_them(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": result()})
        assert review(proof, tree, [WEAKENED])[0].severity is Severity.WARNING

    def test_a_check_that_counts_no_tests_and_runs_no_known_tool_rebuts_nothing(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": result(SCRIPT, tests=Counts(0))})
        assert review(proof, tree, [WEAKENED], SCRIPT)[0].severity is Severity.ERROR

    def test_a_check_that_counts_tests_rebuts_an_error_about_tests_whatever_it_runs(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": result(SCRIPT, tests=Counts(2))})
        assert review(proof, tree, [WEAKENED], SCRIPT)[0].severity is Severity.WARNING

    def test_work_that_is_made_for_the_old_tests_is_not_rebutted(self, tmp_path: Path) -> None:
        root = tmp_path / "fitted"
        root.mkdir()
        stub, test = (
            "def roman(n):\n    raise NotImplementedError\n",
            "def test_roman():\n    assert roman(1994) == 'MCMXCIV'\n",
        )
        answer = "def roman(n):\n    if n == 1994:\n        return 'MCMXCIV'\n    return ''\n"
        before = {"roman.py": stub, "tests/test_roman.py": test}
        now: dict[str, str | None] = {"roman.py": answer, "tests/test_roman.py": "x = 1\n"}
        fitted = Tree(root, before, now)
        proof = fitted.counterproof({})
        deleted = Finding(Rule.TEST_DELETED, "tests/test_roman.py", 1, "It was deleted.")
        found = review(proof, fitted, [deleted])
        assert [one.rule for one in found] == [Rule.TEST_DELETED, Rule.RESULT_HARDCODED]
        assert seen(proof) == {}

    def test_a_check_at_a_fixed_place_cannot_run_on_a_copy(self, tree: Tree) -> None:
        proof = tree.counterproof({})
        fixed = Check(f"pytest {tree.root}/tests")
        (_, warning) = review(proof, tree, [WEAKENED], fixed)
        assert warning == Finding(
            Rule.VERIFIER_EDITED,
            fixed.title,
            0,
            f"The original tests could not be run apart from the changed ones with `{fixed.command}`: "
            "it names the directory of the work by its full path. Read the changed tests yourself.",
            Severity.WARNING,
        )
        (_, warning) = review(proof, tree, [WEAKENED], Check("sh ../check.sh"))
        assert "it may use files outside the tree (`..`)" in warning.sentence
        assert seen(proof) == {}

    def test_a_large_tree_is_not_copied(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ralph.verify.clean_room.MAX_FILES", 3)
        (_, warning) = review(tree.counterproof({}), tree, [WEAKENED])
        assert "no clean checkout could be created: the tree has more than 3 files" in warning.sentence
        monkeypatch.setattr("ralph.verify.clean_room.MAX_FILES", 4)
        assert len(review(tree.counterproof({"as-before": result()}), tree, [WEAKENED])) == 1

    def test_dependencies_beside_the_files_are_used_as_they_are(self, tree: Tree) -> None:
        tree.write({"node_modules/left/index.js": "left\n", "pkg/a.js": "a\n", "pkg/node_modules/right.js": "right\n"})
        tree.snapshots.take("more")
        proof = tree.counterproof({"as-before": result()})
        room = proof.room._make_tree(tree.snapshots.latest() or "", (), "", False)
        assert (room.tree / "node_modules" / "left" / "index.js").read_text() == "left\n"
        assert (room.tree / "pkg" / "node_modules" / "right.js").read_text() == "right\n"
        assert not (room.tree / ".venv").exists()


class TestRedTests:
    BASELINE = result(status=CheckStatus.FAILED, tests=Counts(0, 1), failing=("test_f",))
    STILL = result(status=CheckStatus.FAILED, failing=("test_f",))

    def test_a_changed_test_that_failed_must_pass_as_it_was(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": self.STILL}, self.BASELINE)
        (found,) = review(proof, tree, [])
        assert (found.rule, found.path, found.severity) == (Rule.VERIFIER_EDITED, "test_f", Severity.ERROR)
        assert found.sentence.startswith("test_f failed before the run, and its original version still fails")
        copy = seen(proof)["as-before"]
        assert copy["tests/test_app.py"] == BEFORE["tests/test_app.py"]
        assert copy["setup.cfg"] == NOW["setup.cfg"], "settings may be the work"

    def test_original_tests_are_not_run_if_the_user_lets_tests_change(self, tree: Tree) -> None:
        proof = tree.counterproof({}, self.BASELINE, may_change_tests=True)
        assert review(proof, tree, []) == []
        assert seen(proof) == {}

    def test_files_that_the_user_lets_change_are_not_put_back(self, tree: Tree) -> None:
        proof = tree.counterproof({}, self.BASELINE, may_change=lambda path: path.startswith("tests/"))
        assert review(proof, tree, []) == []
        assert seen(proof) == {}

    def test_a_check_that_failed_without_names_is_asked_too(self, tree: Tree) -> None:
        """A test that does not compile yet has no name."""
        unnamed = result(status=CheckStatus.FAILED)
        (found,) = review(tree.counterproof({"as-before": self.STILL}, unnamed), tree, [])
        assert "does not show that the work is done: test_f fails" in found.sentence
        assert found.severity is Severity.ERROR

    def test_a_check_without_names_is_left_to_the_clean_room(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": self.STILL}, result(status=CheckStatus.FAILED))
        proof.room.settings = CleanRoomSettings(is_on=True)
        (found,) = review(proof, tree, [])
        assert found.severity is Severity.WARNING

    def test_only_the_files_of_red_tests_count_if_others_cannot_run_any_more(self, tmp_path: Path) -> None:
        """A function was renamed, and a test of it with it. The red tests are as they were, or pass as they were."""
        other = "from names import {}\n\n\ndef test_name():\n    assert {}() == 1\n"
        before = {**BEFORE, "tests/test_names.py": other.format("first", "first")}
        now = {
            **NOW,
            "tests/test_app.py": BEFORE["tests/test_app.py"],
            "tests/test_names.py": other.format("one", "one"),
        }
        root = tmp_path / "renamed"
        root.mkdir()
        renamed = Tree(root, before, now)
        baseline = result(status=CheckStatus.FAILED, tests=Counts(1, 1), failing=("tests/test_app.py::test_f",))
        fewer = result(status=CheckStatus.FAILED, tests=Counts(1, 1), failing=("tests/test_names.py",))
        fewer = replace(fewer, results=(replace(fewer.results[0], tests=Counts(0, 1)),))
        proof = renamed.counterproof({"as-before": fewer}, baseline)
        assert [one.severity for one in review(proof, renamed, [])] == [Severity.WARNING]
        assert list(seen(proof)) == ["as-before"], "no changed file has a red test"
        renamed.write({"tests/test_app.py": TEST.format("1") + "\n\ndef test_more():\n    pass\n"})
        renamed.snapshots.take("more tests")
        proof = renamed.counterproof({"as-before": fewer, "as-failed-before": result(tests=Counts(2))}, baseline)
        assert [one.severity for one in review(proof, renamed, [])] == [Severity.WARNING]
        copy = seen(proof)["as-failed-before"]
        assert copy["tests/test_app.py"] == BEFORE["tests/test_app.py"]
        assert "import one" in copy["tests/test_names.py"]
        proof = renamed.counterproof({"as-before": fewer, "as-failed-before": fewer}, baseline)
        assert [one.severity for one in review(proof, renamed, [])] == [Severity.ERROR]

    def test_a_linter_that_failed_says_nothing_about_tests(self, tree: Tree) -> None:
        lint = Check("ruff check")
        proof = tree.counterproof({}, result(lint, status=CheckStatus.FAILED))
        assert review(proof, tree, [], lint) == []

    def test_original_tests_are_not_run_if_none_failed_or_changed(self, tree: Tree) -> None:
        assert review(tree.counterproof({}, result(tests=Counts(1))), tree, []) == []
        assert review(tree.counterproof({}), tree, []) == []
        proof = tree.counterproof({}, self.BASELINE)
        untouched = [change for change in tree.changes() if change.path == "app.py"]
        assert asyncio.run(proof.review([], untouched, [PYTEST])) == []
        added = [FileChange("tests/test_new.py", None, "x = 1\n")]
        assert asyncio.run(proof.review([], added, [PYTEST])) == []
        assert seen(proof) == {}

    def test_a_new_conftest_may_change_every_test(self, tree: Tree) -> None:
        proof = tree.counterproof({"as-before": self.STILL}, self.BASELINE)
        added = [FileChange("tests/conftest.py", None, "x = 1\n")]
        assert len(asyncio.run(proof.review([], added, [PYTEST]))) == 1

    def test_at_most_five_tests_are_named(self, tree: Tree) -> None:
        names = tuple(f"test_{number}" for number in range(7))
        red = result(status=CheckStatus.FAILED, failing=names)
        assert len(review(tree.counterproof({"as-before": red}, red), tree, [])) == 5

    def test_a_test_that_was_seen_to_fail_must_pass_as_it_was_then(self, tree: Tree) -> None:
        red = FailingTests(tree.base, ("test_f",))
        proof = tree.counterproof({"as-seen-failing": self.STILL})
        (found,) = asyncio.run(proof.find_changed_since_failure(red, [PYTEST]))
        assert found.sentence.startswith("test_f was seen to fail")
        assert seen(proof)["as-seen-failing"]["tests/test_app.py"] == BEFORE["tests/test_app.py"]
        (tied,) = asyncio.run(proof.find_changed_since_failure(red, [Check("cd .. && make")]))
        assert tied.severity is Severity.WARNING

    def test_unchanged_tests_need_no_second_run(self, tree: Tree) -> None:
        proof = tree.counterproof({})
        red = FailingTests(tree.snapshots.latest() or "", ("test_f",))
        assert asyncio.run(proof.find_changed_since_failure(red, [Check("cd .. && make")])) == []
        assert seen(proof) == {}


COVERAGE = Check("pytest -q --cov", measure=Measure("coverage", ">=", 90.0))
FEWER_ERRORS = Check("pytest -q", measure=Measure("errors", "<=", 3.0))
NEW_TEST = "tests/test_new.py::test_g"


class TestNewTests:
    """The grade of work that raises the coverage with tests of its own."""

    def grade(self, tree: Tree, answers: dict[str, Verdict], check: Check = COVERAGE) -> Evidence:
        before = named_tests(passed=("tests/test_app.py::test_f",))
        counterproof = tree.counterproof(answers, before)
        now = named_tests(passed=("tests/test_app.py::test_f", NEW_TEST))
        grade = asyncio.run(counterproof.grade_new_tests(now, ["tests/test_new.py"], [check]))
        self.seen = seen(counterproof)
        return grade

    def test_tests_that_fail_if_functions_do_nothing_are_evidence(self, tree: Tree) -> None:
        tree.write({"tests/test_new.py": "def test_g(): ...\n"})
        tree.snapshots.take("new")
        answers = {"new-tests": named_tests(passed=(NEW_TEST,))}
        answers["new-tests-emptied-1"] = named_tests(passed=(NEW_TEST,))
        answers["new-tests-emptied-2"] = named_tests(failed=(NEW_TEST,))
        evidence = self.grade(tree, answers)
        assert (evidence.grade, "each of 1 new test fails" in evidence.reason) == (Grade.JUDGED, True)
        original, emptied = self.seen["new-tests"], self.seen["new-tests-emptied-1"]
        assert original["app.py"] == BEFORE["app.py"] != emptied["app.py"]
        assert original["tests/test_new.py"] == emptied["tests/test_new.py"]

    def test_tests_that_pass_anyway_are_left_to_a_judge(self, tree: Tree) -> None:
        passed = named_tests(passed=(NEW_TEST,))
        answers = dict.fromkeys(("new-tests", "new-tests-emptied-1", "new-tests-emptied-2"), passed)
        evidence = self.grade(tree, answers)
        assert (evidence.grade, evidence.to_judge) == (Grade.UNPROVEN, ("tests/test_new.py",))
        assert evidence.reason.endswith(f"These also pass if the functions of the project do nothing: {NEW_TEST}.")

    def test_tests_that_do_not_run_without_the_functions_say_nothing(self, tree: Tree) -> None:
        answers = {"new-tests": named_tests(passed=(NEW_TEST,)), "new-tests-emptied-1": named_tests()}
        evidence = self.grade(tree, answers)
        assert (evidence.grade, evidence.reason) == (Grade.UNPROVEN, "The run wrote the tests that its work passes.")

    @pytest.mark.parametrize(("check", "rests"), [(COVERAGE, True), (FEWER_ERRORS, False), (Check("make test"), False)])
    def test_only_coverage_rests_on_new_tests_beside_old_ones(self, tree: Tree, check: Check, rests: bool) -> None:
        counterproof = tree.counterproof({}, named_tests(passed=("tests/test_app.py::test_f",)))
        now = named_tests(passed=("tests/test_app.py::test_f", NEW_TEST))
        assert counterproof.rests_on_new_tests(now, [check]) == rests
        assert tree.counterproof({}, named_tests()).rests_on_new_tests(now, [check])


def named_tests(passed: tuple[str, ...] = (), failed: tuple[str, ...] = ()) -> Verdict:
    status = CheckStatus.FAILED if failed else CheckStatus.PASSED
    return result(COVERAGE, status, Counts(len(passed), len(failed)), named=NamedTests(passed, failed))


class TestGoTests:
    """`go test` without -v says `ok` for a package whose tests never started."""

    QUIET = "ok  \tshop/a\t0.01s\nok  \tshop/b\t0.01s\n"
    ALL_RAN = "=== RUN   TestA\n--- PASS: TestA (0.00s)\nok  \tshop/a\t0.01s\n=== RUN   TestB\nok  \tshop/b\t0.01s\n"
    B_SILENT = "=== RUN   TestA\nok  \tshop/a\t0.01s\nok  \tshop/b\t0.01s\n"

    def require(
        self, tree: Tree, again: str, base: str = "", status: CheckStatus = CheckStatus.PASSED, **more: Any
    ) -> tuple[CheckResult, Counterproof]:
        (tree.run_dir / "again.log").write_text(again)
        (tree.run_dir / "base.log").write_text(base)
        answers = {
            "go-tests": result(GO_CHECK, status, Counts(2), log="again.log", reason="why"),
            "go-base": result(GO_CHECK, log="base.log"),
        }
        proof = tree.counterproof(answers)
        quiet = result(GO_CHECK, **{"output": self.QUIET, **more})
        return asyncio.run(proof.require_go_tests(quiet, [GO_CHECK])).results[0], proof

    def test_tests_that_ran_are_counted(self, tree: Tree) -> None:
        found, proof = self.require(tree, self.ALL_RAN)
        assert (found.status, found.tests) == (CheckStatus.PASSED, Counts(2))
        assert list(seen(proof)) == ["go-tests"]
        runner: Any = proof.runner
        assert runner.commands["go-tests"] == ['GOFLAGS="$(go env GOFLAGS) -v"; export GOFLAGS\ngo test -v ./...']

    def test_a_package_that_ran_tests_before_must_run_some_now(self, tree: Tree) -> None:
        found, proof = self.require(tree, self.B_SILENT, base=self.ALL_RAN)
        assert found.status is CheckStatus.COULD_NOT_RUN
        assert found.reason.startswith("no test of shop/b ran, and `go test` says ok anyway")
        assert seen(proof)["go-base"]["app.py"] == BEFORE["app.py"]
        assert "new.py" not in seen(proof)["go-base"]

    def test_a_package_that_never_ran_tests_may_be_silent(self, tree: Tree) -> None:
        found, _ = self.require(tree, self.B_SILENT, base=self.B_SILENT)
        assert (found.status, found.tests) == (CheckStatus.PASSED, Counts(2))

    def test_a_new_package_must_run_its_tests(self, tree: Tree) -> None:
        found, _ = self.require(tree, self.B_SILENT, base="=== RUN   TestA\nok  \tshop/a\t0.01s\n")
        assert found.status is CheckStatus.COULD_NOT_RUN

    def test_a_failure_of_the_second_run_counts(self, tree: Tree) -> None:
        found, _ = self.require(tree, self.ALL_RAN, status=CheckStatus.FAILED)
        assert (found.status, found.reason, found.title) == (CheckStatus.FAILED, "why", GO_CHECK.title)

    def test_if_the_second_run_says_nothing_the_first_counts(self, tree: Tree) -> None:
        found, _ = self.require(tree, self.B_SILENT, status=CheckStatus.COULD_NOT_RUN)
        assert (found.status, found.tests) == (CheckStatus.PASSED, None)

    @pytest.mark.parametrize("more", [{"tests": Counts(2)}, {"output": "Ran 2 tests\n"}])
    def test_other_checks_run_once(self, tree: Tree, more: dict[str, Any]) -> None:
        found, proof = self.require(tree, self.ALL_RAN, **more)
        assert found.passed
        assert seen(proof) == {}

    def test_at_most_five_packages_are_named(self, tree: Tree) -> None:
        packages = "".join(f"ok  \tshop/p{number}\t0.01s\n" for number in range(7))
        found, _ = self.require(tree, packages)
        assert "shop/p0, shop/p1, shop/p2, shop/p3, shop/p4 ran" in found.reason


JUDGES = [
    *("tests/test_a.py", "src/a.test.ts", "pkg/a_test.go", "src/test/java/ATest.java", "spec/a_spec.rb", "conftest.py"),
    *("Makefile", "package.json", "pyproject.toml", "setup.cfg", "pytest.ini", "tsconfig.json", "vitest.config.ts"),
    *("Cargo.toml", "pom.xml", "build.gradle", "go.mod", ".eslintrc.json", ".coveragerc", ".github/workflows/ci.yml"),
    *("check.sh", "tests/fixtures/data.json", ".travis.yml", ".pre-commit-config.yaml", ".golangci.yml", ".flake8"),
    *(
        "Jenkinsfile",
        "biome.jsonc",
        "pyrightconfig.json",
        ".rubocop.yml",
        "phpunit.xml",
        "azure-pipelines.yml",
        "codecov.yml",
    ),
]
WORK = [
    *("src/main.c", "lib/a.rb", "app/models/user.php", "a.py", "src/index.ts", "cmd/main.go", "src/lib.rs", "App.java"),
    *("data/prices.json", "templates/mail.html", "README.md", "schema.sql", "Main.hs", "lib/a.ex"),
]


@pytest.mark.parametrize("path", JUDGES)
def test_tests_and_settings_judge(path: str) -> None:
    assert is_judge_file(path)


@pytest.mark.parametrize("path", WORK)
def test_source_files_are_not_judge_files(path: str) -> None:
    assert not is_judge_file(path)


def checked(*failing: str, ran: int | None = None, command: str = "pytest -q") -> CheckResult:
    """A failed check that names these tests."""
    tests = None if ran is None else Counts(ran - len(failing), len(failing))
    return CheckResult(
        PYTEST.title, CheckStatus.FAILED, 0.1, failing=failing, tests=tests, command=command, reason="exit code 2"
    )


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        pytest.param(checked("a", ran=3), checked("a", ran=3), {"a": Severity.ERROR}, id="still red"),
        pytest.param(checked("a", ran=3), checked("a", "c", ran=3), {"a": Severity.ERROR}, id="another fails too"),
        pytest.param(checked("a", ran=3), checked("c", ran=3), {"c": Severity.WARNING}, id="only another fails"),
        pytest.param(checked("a", ran=3), checked("c", ran=2), {PYTEST.title: Severity.ERROR}, id="fewer run"),
        pytest.param(checked("a", ran=3), checked(), {PYTEST.title: Severity.ERROR}, id="none run"),
        pytest.param(checked(), checked(), {PYTEST.title: Severity.ERROR}, id="none ran before"),
        pytest.param(checked(), checked("c"), {PYTEST.title: Severity.ERROR}, id="it was not known what fails"),
    ],
)
def test_tests_that_were_red_must_pass_as_they_were_whatever_else_fails(
    before: CheckResult, now: CheckResult, found: dict[str, Severity]
) -> None:
    """Another failure is easy to provoke: renaming a function that other tests use is enough."""
    findings = _judge_original_tests(Verdict((now,)), {before.title: before})
    assert {finding.path: finding.severity for finding in findings} == found
    assert all(finding.rule is Rule.VERIFIER_EDITED for finding in findings)


def test_original_tests_that_all_run_and_pass_cause_no_finding() -> None:
    passes = CheckResult(PYTEST.title, CheckStatus.PASSED, 0.1, tests=Counts(3))
    assert _judge_original_tests(Verdict((passes,)), {PYTEST.title: checked("a", ran=3)}) == []
    fewer = replace(passes, tests=Counts(2), command="pytest -q")
    (found,) = _judge_original_tests(Verdict((fewer,)), {PYTEST.title: checked("a", ran=3)})
    assert "2 tests ran, and 3 before the run" in found.sentence


@pytest.mark.parametrize(
    ("command", "complete"),
    [
        ("cargo test", "cargo test --no-fail-fast"),
        ("cargo +nightly test --workspace -- -q", "cargo +nightly test --no-fail-fast --workspace -- -q"),
        ("cargo test --no-fail-fast", "cargo test --no-fail-fast"),
        ("pytest -x -q", "pytest -q"),
        ("python3 -m pytest --maxfail=1 tests", "python3 -m pytest tests"),
        ("go test -failfast ./...", "go test ./..."),
        ("npx jest --bail", "npx jest"),
        ("mvn -B test", "mvn -fae -B test"),
        ("./mvnw -q test -fae", "./mvnw -q test -fae"),
        ("mvn -f app/pom.xml test", "mvn -fae -f app/pom.xml test"),
        ("make test", "make test"),
        ("sh -x check.sh", "sh -x check.sh"),
        ("cat mvn.txt", "cat mvn.txt"),
    ],
)
def test_runners_that_stop_at_the_first_failure_run_to_the_end(command: str, complete: str) -> None:
    assert drop_fail_fast(command) == complete


@pytest.mark.parametrize(
    ("command", "leaves"),
    [
        ("go test ./...", False),
        ("go test ./... && go vet ./...", False),
        ("git diff main...HEAD", False),
        ("seq 1..3", False),
        ("cd .. && make", True),
        ("../check.sh", True),
        ("pytest --rootdir=../other", True),
        ("sh a/../../b.sh", True),
        ("cd ..", True),
        ("cd src && python3 -m unittest discover -s ../tests", False),
        ("cd src; PYTHONPATH=../lib:. python3 -m unittest discover -s '../tests'", False),
        ("cd src && python3 -m unittest discover -s ../../tests", True),
        ("PYTHONPATH=.:../lib python3 -m unittest", True),
        ("python3 -m unittest discover -s src/../tests", False),
        ("cd b && go test ../...", False),
        ("go test ../...", True),
        ("(cd src && make) && sh ../x.sh", True),
        ("cd src && (cd .. && make)", False),
        ("cd src && make | tee ../log", False),
        ("cd $DIR && sh ../x.sh", True),
        ("sh $DIR/../x.sh", True),
        ("cd && sh ../x.sh", True),
        ("cd link && sh ../x.sh", True),
        ("cd /tmp && cat ../etc/hosts", True),
    ],
)
def test_command_with_a_path_out_of_the_tree_is_recognized(tmp_path: Path, command: str, leaves: bool) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(tmp_path)
    assert leaves_tree(command, tree, tree) is leaves


def test_the_tree_may_begin_above_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    assert not leaves_tree("cd .. && make", tmp_path / "app", tmp_path)
    assert leaves_tree("cd ../.. && make", tmp_path / "app", tmp_path)
