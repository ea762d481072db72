"""What test runners print: counts and names of tests, however hostile the output is."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Counts
from ralph.verify.measures import read_metric, strip_terminal_codes
from ralph.verify.summaries import (
    count_junit,
    count_tests,
    find_failing_tests,
    find_failure_line,
    has_lasting_summary,
    was_retried,
)

METRICS = ("coverage", "tests", "failures", "skipped", "errors", "warnings")
NODE = "# tests 6\n# suites 0\n# pass 3\n# fail 1\n# cancelled 0\n# skipped 1\n# todo 1\n# duration_ms 52.1"
MAVEN = """[INFO] Running a.ATest
[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 0.1 s <<< FAILURE! - in a.ATest
[INFO] Results:
[INFO]
[ERROR] Tests run: 5, Failures: 1, Errors: 1, Skipped: 1
[INFO]
"""
GO_V = """=== RUN   TestA
=== RUN   TestA/x
--- PASS: TestA (0.00s)
    --- PASS: TestA/x (0.00s)
=== RUN   TestB
--- FAIL: TestB (0.00s)
--- SKIP: TestC (0.00s)
FAIL
"""
GO_JSON = """{"Time":"t","Action":"run","Package":"p","Test":"TestA"}
{"Time":"t","Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\\n"}
{"Time":"t","Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Time":"t","Action":"fail","Package":"p","Test":"TestB","Elapsed":0}
{"Time":"t","Action":"fail","Package":"p","Elapsed":0.1}
"""
CAPTURED = """
=================================== FAILURES ===================================
----------------------------- Captured stdout call -----------------------------
=========================== short test summary info ============================
12 passed in 0.1s
=========================== short test summary info ============================
FAILED test_a.py::test_a - assert 0
1 failed, 4 passed in 0.03s
"""
CARGO = """test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""
GTEST = """[==========] 5 tests from 2 test suites ran. (12 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Sum.Later
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] Sum.Adds
[  FAILED  ] Sums/0.Adds, where TypeParam = int

 2 FAILED TESTS
"""
CTEST = """    Start 1: sum
1/3 Test #1: sum ..............................   Passed    0.00 sec
67% tests passed, 1 tests failed out of 3

Total Test time (real) =   0.02 sec

The following tests FAILED:
\t  2 - product (Failed)
Errors while running CTest
"""
XCTEST = """Test Suite 'All tests' started at 2026-01-01 10:00:00.000
Test Suite 'SumTests' started at 2026-01-01 10:00:00.000
Test Case 'SumTests.testAdds' started at 2026-01-01 10:00:00.000
Test Case 'SumTests.testAdds' failed (0.001 seconds)
Test Suite 'SumTests' failed at 2026-01-01 10:00:00.002
\t Executed 4 tests, with 1 test skipped and 1 failure (0 unexpected) in 0.002 (0.002) seconds
Test Suite 'All tests' failed at 2026-01-01 10:00:00.002
\t Executed 4 tests, with 1 test skipped and 1 failure (0 unexpected) in 0.002 (0.003) seconds
"""
SWIFT_TESTING = """✘ Test adds() failed after 0.001 seconds with 1 issue.
✘ Test run with 3 tests in 1 suite failed after 0.001 seconds with 1 issue.
"""
GO_QUOTES = """=== RUN   TestReader
    reader_test.go:9: --- FAIL: TestInner (0.00s)
        --- FAIL: TestOther (0.00s)
--- FAIL: TestThird (0.00s)
--- PASS: TestReader (0.00s)
PASS
ok  \texample.org/x\t0.002s
"""
JUNIT = (
    '<testsuites><testsuite name="a" errors="1" failures="1" skipped="1" tests="6" time="0.1"></testsuite></testsuites>'
)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("37 passed in 0.12s", Counts(37)),
        ("3 failed, 37 passed in 0.12s", Counts(37, 3)),
        (
            "=== 1 failed, 2 passed, 3 skipped, 4 xfailed, 5 xpassed, 6 warnings, 7 errors in 61.0s (0:01:01) ===",
            Counts(7, 8, 7),
        ),
        ("==== no tests ran in 0.01s ====", Counts()),
        ("5 deselected in 0.01s", None),
        ("2 passed, 3 subtests passed in 0.01s", Counts(2)),
        ("1 passed in 0.1s\n2 failed, 1 passed in 0.1s", Counts(2, 2)),
        ("Ran 12 tests in 0.003s\n\nOK", Counts(12)),
        ("Ran 12 tests in 0.003s\n\nOK (skipped=2)", Counts(10, 0, 2)),
        ("Ran 12 tests in 0.003s\n\nFAILED (failures=1, errors=2, skipped=1, expected failures=3)", Counts(5, 3, 4)),
        ("Ran 0 tests in 0.000s\n\nNO TESTS RAN", Counts()),
        ("Test Suites: 1 failed, 1 total\nTests:       1 failed, 2 skipped, 3 passed, 6 total", Counts(3, 1, 2)),
        ("Tests:       2 failed, 2 total", Counts(0, 2)),
        (" Test Files  1 failed (1)\n      Tests  1 failed | 3 passed | 1 skipped (5)", Counts(3, 1, 1)),
        ("      Tests  3 passed (3)", Counts(3)),
        ("  12 passing (30ms)\n  2 pending\n  1 failing\n\n  1) x", Counts(12, 1, 2)),
        (NODE, Counts(3, 1, 2)),
        (NODE.replace("#", "ℹ"), Counts(3, 1, 2)),
        ("TAP version 13\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no\n1..3", Counts(1, 1, 1)),
        ("ok  \tpkg\t0.1s", None),
        (GO_V, Counts(2, 1, 1)),
        ("--- FAIL: TestB (0.00s)\nFAIL\nFAIL\tp\t0.1s", None),
        (GO_JSON, Counts(1, 1)),
        (CARGO, Counts(7, 2, 1)),
        ("     Summary [   0.1s] 5 tests run: 4 passed, 1 failed, 2 skipped", Counts(4, 1, 2)),
        (MAVEN, Counts(2, 2, 1)),
        ("10 tests completed, 2 failed, 1 skipped", Counts(7, 2, 1)),
        ("10 examples, 2 failures, 1 pending", Counts(7, 2, 1)),
        ("10 runs, 20 assertions, 1 failures, 1 errors, 2 skips", Counts(6, 2, 2)),
        ("1 doctest, 5 tests, 1 failure, 1 skipped", Counts(4, 1, 1)),
        ("OK (5 tests, 9 assertions)", Counts(5)),
        ("Tests: 5, Assertions: 9, Errors: 1, Failures: 1, Skipped: 1.", Counts(2, 2, 1)),
        ("Failed!  - Failed:     1, Passed:     4, Skipped:     2, Total:     7, Duration: 5 ms", Counts(4, 1, 2)),
        ("ok | 5 passed (3 steps) | 0 failed (10ms)", Counts(5)),
        (" 3 pass\n 1 fail\n 7 expect() calls\nRan 4 tests across 1 files.", Counts(3, 1)),
        ("  1 failed\n    [chromium] › a\n  1 flaky\n  3 passed (5.0s)", Counts(4, 1)),
        (JUNIT, Counts(3, 2, 1)),
        ("3 passed in 0.1s\nTests:       1 failed, 1 total\n", Counts(3, 1)),
        (GTEST, Counts(2, 2, 1)),
        ("[  PASSED  ] 3 tests.", Counts(3)),
        (CTEST, Counts(2, 1)),
        (GTEST + CTEST, Counts(2, 1)),
        ("100% tests passed, 0 tests failed out of 3", Counts(3)),
        (XCTEST, Counts(2, 1, 1)),
        (SWIFT_TESTING, Counts(2, 1)),
        ("✔ Test run with 3 tests passed after 0.001 seconds.", Counts(3)),
        ("app-1  | 2 failed, 3 passed in 1.00s", Counts(3, 2)),
        ("web:test: Tests:       1 failed, 2 passed, 3 total", Counts(2, 1)),
        ("py311: 2 failed, 3 passed in 1.00s", Counts(3, 2)),
        ("app-1  | 2 failed, 3 passed in 1.00s\n4 passed in 0.1s", Counts(4)),
        (GO_QUOTES, Counts(1)),
        ("added 42 packages in 3s", None),
        ("Found 3 errors in 2 files", None),
        ("all good", None),
        (CAPTURED, Counts(4, 1)),
        (CAPTURED + CAPTURED, Counts(4, 1)),
        ("", None),
    ],
)
def test_tests_are_counted(output: str, expected: Counts | None) -> None:
    assert count_tests(output) == expected


STARTS = "============================= test session starts =============================="


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ("2 failed, 3 passed in 0.1s", 2),
        ("2 failed in 0.1s\n9 passed in 0.5s", 2),
        (f"{STARTS}\n2 failed in 0.1s\n{STARTS}\n9 passed in 0.5s", 2),
        (f"{STARTS}\n{STARTS}\n2 failed in 0.1s\n{STARTS}\n9 passed in 0.5s", 2),
        (f"{STARTS}\n{STARTS}\n2 failed in 0.1s\n{STARTS}\n1 failed in 0.1s\n9 passed in 0.5s", 0),
        (f"{STARTS}\n1 passed in 0.1s\n{STARTS}\n2 failed in 0.1s\n9 passed in 0.5s", 2),
        ("2 failed in 0.1s\nmake: [Makefile:2: test] Error 1 (ignored)\n9 passed in 0.5s", 2),
        ("make[1]: [Makefile:2: test] Error 1 (ignored)\n2 failed in 0.1s\n9 passed in 0.5s", 2),
        ("9 passed in 0.5s\n2 failed in 0.1s", 2),
        ("2 failed in 0.1s\nTests:       9 passed, 9 total", 2),
        ("Ran 2 tests in 0.1s\n\nFAILED (failures=1)\nRan 9 tests in 0.1s\n\nOK", 1),
        (CARGO, 2),
        (CARGO + "test result: ok. 3 passed; 0 failed; 0 ignored", 2),
        (NODE + "\n" + NODE.replace("fail 1", "fail 0"), 1),
        ("a log line says that 2 failed in the past", 0),
        ("the build has 2 failed, 3 passed in 0.1s", 0),
    ],
)
def test_every_summary_counts_if_the_command_succeeded(output: str, failed: int) -> None:
    """Except that of a session of pytest within another one, which the outer one judges."""
    counts = count_tests(output, succeeded=True)
    assert (counts.failed if counts else 0) == failed


@pytest.mark.parametrize(
    ("command", "failed"),
    [
        ("python3 -m unittest -q", 0),
        ("cd app && FAST=1 python3 -m unittest -q", 0),
        ("go test -v ./...", 0),
        ("pytest -q", 1),
        ("uv run pytest -q && python3 -m unittest", 1),
        ("make test", 1),
        ("python3 -m unittest -q | tee log", 1),
    ],
)
def test_only_summaries_of_the_runner_that_the_command_starts_count(command: str, failed: int) -> None:
    """The test of a tool prints what another runner said."""
    output = "1 failed, 3 passed in 2.0s\n.\nRan 9 tests in 0.1s\n\nOK"
    counts = count_tests(output, command=command, succeeded=True)
    assert (counts.failed if counts else 0) == failed


def test_failures_of_a_go_program_that_drops_its_result_count() -> None:
    output = GO_V + "ok  \tp\t0.1s\n"
    assert count_tests(output, succeeded=True) == Counts(2, 1, 1)
    assert count_tests(output.replace("FAIL\nok", "FAIL\nPASS\nok"), succeeded=True) == Counts(2, 1, 1)


@pytest.mark.parametrize(
    ("output", "is_sequence", "ran", "repeated"),
    [
        ("1 failed, 4 passed in 0.1s\n1 passed in 0.1s", False, 6, 1),
        ("3 passed in 0.1s\n3 passed in 0.1s", False, 6, 3),
        ("3 passed in 0.1s\n3 passed in 0.1s", True, 6, 0),
        (CARGO, False, 9, 0),
        ("3 passed in 0.1s\nRan 9 tests in 0.1s\n\nOK", False, 12, 0),
    ],
)
def test_summaries_of_one_runner_may_count_tests_twice(output: str, is_sequence: bool, ran: int, repeated: int) -> None:
    counts = count_tests(output, succeeded=True, is_sequence=is_sequence)
    assert counts is not None
    assert (counts.ran, counts.repeated) == (ran, repeated)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("--- FAIL: TestB (0.00s)\nFAIL\nFAIL\tp\t0.1s\nok  \tq\t0.1s", "FAIL p 0.1s"),
        ("FAIL\texample.org/a [build failed]\n", "FAIL example.org/a [build failed]"),
        (
            "Test Suites: 1 failed, 2 passed, 3 total\nTests:       3 passed, 3 total",
            "Test Suites: 1 failed, 2 passed, 3 total",
        ),
        (" Test Files  1 failed | 2 passed (3)\n      Tests  3 passed (3)", "Test Files 1 failed | 2 passed (3)"),
        ("ok  \tq\t0.1s\nTest Suites: 3 passed, 3 total", ""),
        ("it says FAIL\tp\t0.1s somewhere", ""),
        ("=== RUN   TestA\nFAIL\tinner\t0.1s\n--- PASS: TestA (0.00s)\nPASS\nok  \tp\t0.1s", ""),
        ("=== RUN   TestA\npanic: x\nexit status 2\nFAIL\tp\t0.1s", "FAIL p 0.1s"),
        (
            "  py311: FAIL code 1 (0.50=setup[0.10]+cmd[0.40] seconds)",
            "py311: FAIL code 1 (0.50=setup[0.10]+cmd[0.40] seconds)",
        ),
    ],
)
def test_failures_without_a_count_are_found(output: str, expected: str) -> None:
    assert find_failure_line(output) == expected


@pytest.mark.parametrize(
    ("output", "retried"),
    [
        ("3 passed, 1 rerun in 0.1s", True),
        ("Summary [ 0.1s] 5 tests run: 5 passed (1 slow, 2 flaky), 0 skipped", True),
        ("  1 flaky\n  3 passed (5.0s)", True),
        ("[WARNING] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0, Flakes: 1", True),
        (" ✓ src/a.test.ts > adds 5ms (retry x1)", True),
        ("3 passed in 0.1s", False),
        ("0 flaky, 3 passed", False),
        ("Tests run: 3, Failures: 0, Errors: 0, Skipped: 0, Flakes: 0", False),
    ],
)
def test_retries_in_the_output_are_noticed(output: str, retried: bool) -> None:
    assert was_retried(output) is retried


VITEST = """
 ❯ src/a.test.ts (2 tests | 1 failed) 7ms
   × sums > adds up 5ms
     → expected 3 to be 4
 FAIL  src/a.test.ts > sums > adds up
"""


@pytest.mark.parametrize(
    ("output", "names"),
    [
        (VITEST, ("src/a.test.ts > sums > adds up",)),
        (VITEST.replace("5ms", "12ms"), ("src/a.test.ts > sums > adds up",)),
        (" × src/a.test.ts > sums > adds up 7ms\n", ("src/a.test.ts > sums > adds up",)),
        (" × src/a.test.ts > sums > adds up 7ms (retry x2)\n", ("src/a.test.ts > sums > adds up",)),
        (
            "FAILED t.py::test_a[a b] - assert 0\nFAILED t.py::test_a[a c] - assert 0",
            ("t.py::test_a[a b]", "t.py::test_a[a c]"),
        ),
        ("ERROR t.py::test_b\n", ("t.py::test_b",)),
        ("FAIL: test_a (t.T.test_a)\nERROR: test_b (t.T.test_b)", ("test_a (t.T.test_a)", "test_b (t.T.test_b)")),
        ("--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/x (0.00s)", ("TestA", "TestA/x")),
        ("test a::b ... FAILED\ntest a::c - should panic ... FAILED", ("a::b", "a::c")),
        ("        FAIL [   0.005s] app tests::adds\n", ("app tests::adds",)),
        ("  ● sums › adds up\n", ("sums › adds up",)),
        ("[ERROR]   ATest.adds:12 expected: <3>\n[ERROR]   ATest.breaks » NullPointer", ("ATest.adds", "ATest.breaks")),
        ("ATest > adds() FAILED\n", ("ATest > adds()",)),
        ("not ok 2 - adds up # time=1.5ms\nnot ok 3 - later # TODO", ("adds up",)),
        ("✖ adds up (1.234ms)\n✖ adds up (1.4ms)", ("adds up",)),
        ("✖ 5 problems (3 errors, 2 warnings)", ()),
        ("(fail) sums > adds up [0.12ms]", ("sums > adds up",)),
        ("rspec ./spec/a_spec.rb:12 # Sum adds up", ("./spec/a_spec.rb # Sum adds up",)),
        ("1) Tests\\SumTest::testAdds\nFailed asserting", ("Tests\\SumTest::testAdds",)),
        ("  Failed App.Tests.Adds [5 ms]\n", ("App.Tests.Adds",)),
        (GTEST, ("Sum.Adds", "Sums/0.Adds")),
        (CTEST, ("product",)),
        (XCTEST, ("SumTests.testAdds",)),
        (SWIFT_TESTING, ("adds()",)),
        ("app-1  | FAILED t.py::test_a - assert 0\napp-1  | 1 failed in 0.1s", ("t.py::test_a",)),
        ("    a_test.go:3: --- FAIL: TestInner", ()),
    ],
)
def test_a_failing_test_has_one_name_in_every_run(output: str, names: tuple[str, ...]) -> None:
    assert find_failing_tests(output) == names


@pytest.mark.parametrize(
    ("output", "lasts"),
    [
        ("2 failed, 3 passed in 0.1s", True),
        ("=== RUN   TestA\n--- FAIL: TestA (0.00s)", True),
        ("10 tests completed, 2 failed", False),
        ("  2 failed\n", False),
        (f"{STARTS}\n", False),
        ("nothing", False),
    ],
)
def test_some_summaries_are_printed_only_if_tests_fail(output: str, lasts: bool) -> None:
    assert has_lasting_summary("\n" + output) is lasts


@pytest.mark.parametrize(
    ("xml", "expected"),
    [
        (JUNIT.encode(), Counts(3, 2, 1)),
        (b'<testsuite tests="2" failures="0"/><testsuite tests=\'3\' failures="1" disabled="1"/>', Counts(3, 1, 1)),
        (b'<testsuite tests="5" failures="1"><testsuite tests="5" failures="1"></testsuite></testsuite>', Counts(4, 1)),
        (
            b'<testsuite tests="1"><![CDATA[<testsuite tests="99">]]></testsuite><!-- <testsuite tests="9"> -->',
            Counts(1),
        ),
        (b'<testsuite name="x"/>', None),
        (b"<!DOCTYPE x [<!ENTITY a 'aaaa'>]><x>&a;</x>", None),
        (b"", None),
    ],
)
def test_junit_reports_are_counted(xml: bytes, expected: Counts | None) -> None:
    assert count_junit(xml) == expected


@settings(deadline=None)
@given(st.text(), st.sampled_from([*METRICS, "/(x)/", "/x/", "/(/", "other"]))
def test_no_output_makes_it_fail(output: str, metric: str) -> None:
    read_metric(metric, output)
    count_tests(output)
    count_junit(output.encode())


fragments = st.lists(
    st.sampled_from(
        [
            "TOTAL ",
            "12%",
            "7",
            " passed",
            ", ",
            " in ",
            "0.1s",
            "\n",
            "Counts: ",
            "Ran ",
            "--- PASS: ",
            "<testsuite ",
            '"Test":',
        ]
    )
)


@settings(deadline=None)
@given(fragments, st.text(max_size=40))
def test_no_metric_makes_it_fail(parts: list[str], metric: str) -> None:
    read_metric(metric, "".join(parts))
    assert (found := count_tests("".join(parts))) is None or min(found.passed, found.failed, found.skipped) >= 0


@pytest.mark.more_are_slow(12)
@pytest.mark.parametrize(
    "unit",
    [
        "1",
        " ",
        "\n",
        "TOTAL 1 ",
        "All files |",
        "1 passed, ",
        "1 failed in ",
        "\n1 tests ",
        "<testsuite ",
        "<![CDATA[",
        "\x1b]",
        "\x1b[0",
        "\nerror",
        "\n(",
        "\n{",
        "1 error ",
        "\n==== ",
        "\nRan 1 tests in 1s\n\n\n",
        "coverage: 1",
        "[",
        "0.",
        '"Action":"pass"',
        "\n✖ a ",
        "\nFailed a [1",
        "\n1) a::b",
        "\nmake: [",
        "\na > b ",
        "\na | ",
        "\na:b: ",
        "\npy: ",
        "\n[  FAILED  ] a.",
        "\n=== RUN a",
        "\n--- FAIL: a (0",
        "\nFAIL\ta\t0",
        "\nTest Suite 'All tests' a at ",
        "Executed 1 tests, with ",
        "\n✘ Test a ",
        "a=b ",
    ],
)
def test_long_outputs_take_time_in_proportion(unit: str) -> None:
    output = unit * (200_000 // len(unit))
    started = time.process_time()
    text = strip_terminal_codes(output)
    count_tests(text)
    count_tests(text, succeeded=True)
    has_lasting_summary(text)
    find_failing_tests(text)
    find_failure_line(text)
    was_retried(text)
    count_junit(output.encode())
    for metric in METRICS:
        read_metric(metric, text)
    assert time.process_time() - started < 3
