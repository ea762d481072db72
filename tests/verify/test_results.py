"""Tests by name, from real runners that are asked for reports, and from samples, written by hand, of the output of others."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ralph.core.checks import Check, CheckResult, CheckStatus, Counts, NamedTests
from ralph.supervisor.client import KeeperClient
from ralph.verify.results import find_missing_tests, find_own_name, read_named_tests, read_printed_tests
from ralph.verify.runner import CheckRunner, check_environment

PYTEST = f"{sys.executable} -m pytest -p no:cacheprovider"
PYTEST_FILE = """\
import pytest

class TestX:
    @pytest.mark.parametrize("value", [1, 2])
    def test_two(self, value):
        assert value == 1

@pytest.mark.skip
def test_skipped():
    pass
"""


def run_check(workspace: Path, command: str) -> CheckResult:
    """Run one check in a directory, as the engine does."""
    run = Path(tempfile.mkdtemp(dir=workspace.parent))

    async def engine() -> CheckResult:
        keeper = KeeperClient(run)
        runner = CheckRunner(run, workspace.parent.name, workspace, keeper, check_environment(os.environ))
        try:
            return (await runner.run("1", [Check(command)])).results[0]
        finally:
            await keeper.close()

    result = asyncio.run(asyncio.wait_for(engine(), 600))
    assert not list(run.glob("test-results/*")), "the reports are removed when they were read"
    return result


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_pytest_names_every_test_though_it_prints_only_failures(place: Path) -> None:
    write(place, {"tests/test_a.py": PYTEST_FILE})
    result = run_check(place, f"{PYTEST} -q")
    assert result.named == NamedTests(
        passed=("tests/test_a.py::TestX::test_two[1]",),
        failed=("tests/test_a.py::TestX::test_two[2]",),
        skipped=("tests/test_a.py::test_skipped",),
    )
    assert (result.status, result.failing) == (CheckStatus.FAILED, result.named.failed), (result.reason, result.status)
    assert "test-results" not in result.output


def test_pytest_names_a_file_that_it_cannot_collect(place: Path) -> None:
    write(place, {"tests/test_a.py": "import nothing_there\n"})
    result = run_check(place, f"{PYTEST} -q")
    assert result.failing == ("tests/test_a.py",), (result.reason, result.status)


def test_the_report_that_the_user_asks_for_is_read_and_stays(place: Path) -> None:
    write(place, {"tests/test_a.py": PYTEST_FILE})
    result = run_check(place, f"{PYTEST} -q --junitxml=mine.xml")
    assert result.named and result.named.counts == Counts(1, 1, 1)
    assert (place / "mine.xml").exists()


def test_a_runner_that_refuses_the_report_runs_without_it(place: Path) -> None:
    write(place, {"tests/test_a.py": "def test_a():\n    pass\n"})
    result = run_check(place, f"{PYTEST} -q -p no:junitxml")
    assert (result.status, result.tests, result.named) == (CheckStatus.PASSED, Counts(1), None)


@pytest.mark.slow
def test_two_runs_of_one_runner_have_no_names_if_one_report_covers_the_other(place: Path) -> None:
    write(place, {"tests/test_a.py": "def test_a():\n    pass\n", "tests/test_b.py": "def test_b():\n    pass\n"})
    result = run_check(place, f"{PYTEST} -q tests/test_a.py; {PYTEST} -q tests/test_b.py")
    assert (result.tests, result.named) == (Counts(2), None)


def test_verbose_unittest_names_its_tests(place: Path) -> None:
    body = (
        "import unittest\nclass A(unittest.TestCase):\n    def test_a(self): pass\n    def test_b(self): self.fail()\n"
    )
    write(place, {"test_a.py": body})
    result = run_check(place, f"{sys.executable} -m unittest -v")
    assert result.named == NamedTests(("test_a (test_a.A.test_a)",), ("test_b (test_a.A.test_b)",))


GO = {
    "go.mod": "module example.com/m\n\ngo 1.21\n",
    "a_test.go": (
        'package m\n\nimport "testing"\n\nfunc TestA(t *testing.T) {\n\tt.Run("x", func(t *testing.T) {})\n'
        '\tt.Run("y", func(t *testing.T) { t.Error("bad") })\n}\n\nfunc TestB(t *testing.T) { t.Log("quiet") }\n'
    ),
    "sub/b_test.go": 'package sub\n\nimport "testing"\n\nfunc TestA(t *testing.T) { t.Skip() }\n',
}


@pytest.mark.slow
@needs("go")
def test_go_names_its_tests_by_package_and_prints_what_it_always_prints(place: Path) -> None:
    write(place, GO)
    result = run_check(place, "go test ./...")
    assert result.named == NamedTests(
        passed=("example.com/m > TestA/x", "example.com/m > TestB"),
        failed=("example.com/m > TestA", "example.com/m > TestA/y"),
        skipped=("example.com/m/sub > TestA",),
    )
    assert result.code == 1
    for line in ("--- FAIL: TestA (", "    --- FAIL: TestA/y (", "        a_test.go:7: bad", "FAIL\texample.com/m\t"):
        assert f"\n{line}" in f"\n{result.output}"
    for text in ("quiet", "=== RUN", "{", "--- PASS"):
        assert text not in result.output


@pytest.mark.slow
@needs("go")
def test_verbose_go_and_other_commands_of_go_are_as_they_were(place: Path) -> None:
    write(place, {**GO, "m.go": "package m\n"})
    verbose = run_check(place, "go test -v -run TestB . && go list ./...")
    for line in ("=== RUN   TestB", "--- PASS: TestB (", "PASS", "example.com/m/sub"):
        assert f"\n{line}" in f"\n{verbose.output}"


@pytest.mark.slow
@needs("go")
def test_a_go_package_that_exits_before_its_tests_is_named(place: Path) -> None:
    main = 'package m\n\nimport (\n\t"os"\n\t"testing"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n'
    write(place, {**GO, "main_test.go": main, "empty/e.go": "package empty\n"})
    result = run_check(place, "go test ./...")
    assert result.code == 0
    assert result.named and result.named.silent == ("example.com/m",)


@needs("cargo")
@pytest.mark.slow
def test_cargo_names_tests_by_binary_and_doctests(place: Path) -> None:
    source = (
        "/// ```\n/// assert_eq!(rs::f(), 1);\n/// ```\npub fn f() -> u32 { 1 }\n"
        "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n    #[test]\n    #[ignore]\n    fn c() {}\n}\n"
    )
    manifest = '[package]\nname = "rs"\nversion = "0.1.0"\nedition = "2021"\n'
    other = "#[test]\nfn a() { assert_eq!(rs::f(), 2); }\n"
    write(place, {"Cargo.toml": manifest, "src/lib.rs": source, "tests/whole.rs": other})
    result = run_check(place, "cargo test --offline --no-fail-fast")
    assert result.named == NamedTests(
        passed=("rs tests::a", "rs doc src/lib.rs - f (line 1)"), failed=("whole a",), skipped=("rs tests::c",)
    )


@needs("node")
def test_node_names_tests_with_the_suites_around_them(place: Path) -> None:
    body = (
        'const { test, describe, it } = require("node:test");\nconst assert = require("node:assert");\n'
        'test("top", () => {});\ndescribe("s", () => { it("in", () => assert.equal(1, 2)); it.skip("sk", () => {}); });\n'
    )
    write(place, {"a.test.js": body})
    result = run_check(place, "node --test --test-reporter=tap")
    assert result.named == NamedTests(("top",), ("s > in",), ("s > sk",))


@needs("npm")
@pytest.mark.slow
@pytest.mark.xdist_group("npm-install")
def test_vitest_jest_and_mocha_name_their_tests_by_file(place: Path) -> None:
    suite = 'describe("suite", () => {{ it("one", () => {{}}); it("two", () => {{ {0} }}); it.skip("three", () => {{}}); }});\n'
    vitest = 'import { describe, expect, it } from "vitest";\n' + suite.format("expect(1).toBe(2)")
    mocha = 'const assert = require("assert");\n' + suite.format("assert.equal(1, 2)")
    write(
        place,
        {
            "package.json": json.dumps({"name": "x", "private": True}),
            "vitest/a.test.mjs": vitest,
            "jest/a.test.js": suite.format("expect(1).toBe(2)"),
            "mocha/a.js": mocha,
        },
    )
    wanted = ["vitest@3.2.4", "jest@29", "mocha@10"]
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0", *wanted]
    installed = subprocess.run(command, cwd=place, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"the packages cannot be installed: {installed.stderr[-200:]}")
    for runner, file, shell in (
        ("vitest", "vitest/a.test.mjs", "npx --no-install vitest run --dir vitest"),
        ("jest", "jest/a.test.js", "npx --no-install jest jest"),
        ("mocha", "mocha/a.js", "npx --no-install mocha mocha"),
    ):
        result = run_check(place, shell)
        named = NamedTests((f"{file} > suite > one",), (f"{file} > suite > two",), (f"{file} > suite > three",))
        assert (runner, result.named, result.code) == (runner, named, 1)
        assert "test-results" not in result.output


SUREFIRE = """\
<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="example.RomanTest" tests="3" errors="0" skipped="1" failures="1">
  <testcase name="adds" classname="example.RomanTest" time="0.02"/>
  <testcase name="subtracts" classname="example.RomanTest" time="0.01"><failure message="x" type="y">at</failure></testcase>
  <testcase name="ofLarge" classname="example.RomanTest" time="0"><skipped/></testcase>
</testsuite>
"""


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    ("build", "report"),
    [
        ("pom.xml", "target/surefire-reports/TEST-example.RomanTest.xml"),
        ("build.gradle.kts", "app/build/test-results/test/TEST-example.RomanTest.xml"),
    ],
)
def test_reports_of_maven_and_gradle_count_if_the_check_wrote_them(place: Path, build: str, report: str) -> None:
    write(place, {build: "", "wanted.xml": SUREFIRE})
    directory = Path(report).parent
    result = run_check(place, f"mkdir -p {directory} && cp wanted.xml {report}")
    named = NamedTests(("example.RomanTest.adds",), ("example.RomanTest.subtracts",), ("example.RomanTest.ofLarge",))
    assert result.named == named
    assert (result.status, result.reason) == (CheckStatus.FAILED, "exit code 0, but 1 of 2 tests fails")
    planted = time.time() + 1000
    os.utime(place / report, (planted, planted))
    time.sleep(1.5)
    assert run_check(place, "true").named is None


JEST = {
    "testResults": [
        {
            "name": "WORKSPACE/src/cart.test.js",
            "status": "failed",
            "assertionResults": [
                {"ancestorTitles": ["cart"], "title": "adds", "status": "passed"},
                {"ancestorTitles": [], "title": "removes", "status": "failed"},
                {"ancestorTitles": [], "title": "later", "status": "pending"},
            ],
        },
        {"testFilePath": "WORKSPACE/broken.test.js", "status": "failed", "assertionResults": []},
        {"name": "WORKSPACE/empty.test.js", "status": "passed", "assertionResults": []},
    ]
}
MOCHA = {"mocha": [{"file": "WORKSPACE/test/a.js", "title": ["cart", "adds"], "status": "passed"}]}


@pytest.mark.parametrize(
    ("report", "passed", "failed", "skipped"),
    [
        (
            JEST,
            ("src/cart.test.js > cart > adds",),
            ("src/cart.test.js > removes", "broken.test.js"),
            ("src/cart.test.js > later",),
        ),
        (MOCHA, ("test/a.js > cart > adds",), (), ()),
    ],
    ids=["jest", "mocha"],
)
def test_reports_of_node_runners_name_tests_by_file(
    tmp_path: Path, report: object, passed: tuple[str, ...], failed: tuple[str, ...], skipped: tuple[str, ...]
) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report).replace("WORKSPACE", str(tmp_path)))
    named = read_named_tests([path], tmp_path, "", command="npm test", since=0, counts=None)
    assert named == NamedTests(passed, failed, skipped)


def test_events_of_go_name_tests_and_silent_packages(tmp_path: Path) -> None:
    events = [
        ("m", "TestA", "run"),
        ("m", "TestA", "pass"),
        ("m", "TestB", "run"),
        ("m", "", "pass"),
        ("s", "", "pass"),
    ]
    lines = [json.dumps({"Package": package, "Test": test, "Action": action}) for package, test, action in events]
    path = tmp_path / "go.jsonl"
    path.write_text("\n".join(lines))
    named = read_named_tests([path], tmp_path, "", command="go test ./...", since=0, counts=None)
    assert named == NamedTests(passed=("m > TestA",), failed=("m > TestB",), silent=("s",))


def test_a_cut_report_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "pytest.xml").write_text(SUREFIRE[:200])
    (tmp_path / "jest-1.json").write_text('{"testResults": [')
    named = read_named_tests(
        sorted(tmp_path.iterdir()), tmp_path, "1 passed in 0.1s\n", command="pytest", since=0, counts=Counts(1)
    )
    assert named is None


def test_entities_in_a_report_are_not_expanded(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbb">]>' + SUREFIRE.partition("?>")[2]
    (tmp_path / "pytest.xml").write_text(bomb)
    named = read_named_tests([tmp_path / "pytest.xml"], tmp_path, "", command="pytest", since=0, counts=None)
    assert named is None


@pytest.mark.parametrize(
    ("sample", "tests"),
    [
        (
            "        PASS [   0.004s] shop::cart adds\n        FAIL [   0.104s] (2/2) shop::cart tests::total\n"
            "  TRY 1 FAIL [   0.1s] shop retried\n  TRY 2 PASS [   0.1s] shop retried\n",
            [("shop::cart adds", "passed"), ("shop::cart tests::total", "failed"), ("shop retried", "passed")],
        ),
        (
            "  Passed Shop.CartTests.Adds [3 ms]\n  Failed Shop.CartTests.Total(price: 2) [1 s]\n"
            "  Skipped Shop.CartTests.Later [< 1 ms]\n",
            [
                ("Shop.CartTests.Adds", "passed"),
                ("Shop.CartTests.Total(price: 2)", "failed"),
                ("Shop.CartTests.Later", "skipped"),
            ],
        ),
    ],
    ids=["nextest", "dotnet"],
)
def test_sample_output_of_runners_that_name_their_tests(sample: str, tests: list[tuple[str, str]]) -> None:
    assert read_printed_tests(sample) == tests


def test_a_variant_of_a_test_may_go_and_a_test_may_not() -> None:
    before = NamedTests(("a.py::test_x[1]", "a.py::test_x[2]", "m > TestA/one", "m > TestB", "a.py::C::test_y"))
    now = NamedTests(("a.py::test_x[3]", "m > TestA/two"))
    assert find_missing_tests(before, now) == ["m > TestB", "a.py::C::test_y"]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("tests/test_a.py::TestX::test_two[1-a.b]", "test_two"),
        ("example.com/m > TestA/x", "TestA"),
        ("rs tests::cart::adds", "adds"),
        ("src/a.test.ts > suite > reads 1.5 files", "reads 1.5 files"),
        ("example.RomanTest.adds", "adds"),
        ("test_a (tests.test_a.A.test_a)", "test_a"),
    ],
)
def test_the_own_name_of_a_test_stands_in_its_source(name: str, own: str) -> None:
    assert find_own_name(name) == own
