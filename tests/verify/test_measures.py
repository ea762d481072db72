"""Numbers in what real tools print."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Counts
from ralph.verify.measures import (
    METRICS,
    count_junit,
    count_tests,
    failing_tests,
    failure_without_count,
    has_lasting_summary,
    measured,
    pattern,
    plain,
    was_retried,
)

COVERAGE_PY = """
Name                 Stmts   Miss  Cover
----------------------------------------
src/a.py                10      5    50%
----------------------------------------
TOTAL                   80     10    88%
"""
ISTANBUL = """
----------|---------|----------|---------|---------|-------------------
File      | % Stmts | % Branch | % Funcs | % Lines | Uncovered Line #s
----------|---------|----------|---------|---------|-------------------
All files |   87.5  |    50    |   66.66 |   88.88 |
 a.js     |   87.5  |    50    |   66.66 |   88.88 | 3-4
----------|---------|----------|---------|---------|-------------------
"""
SUMMARY = """
=============================== Coverage summary ===============================
Statements   : 81.25% ( 13/16 )
Branches     : 50% ( 1/2 )
Functions    : 75% ( 3/4 )
Lines        : 80.5% ( 12/15 )
================================================================================
"""
GO_FUNC = """ok  \texample.com/a\t0.003s\tcoverage: 50.0% of statements
ok  \texample.com/b\t0.003s\tcoverage: 100.0% of statements
example.com/a/a.go:3:\tAdd\t\t50.0%
total:\t\t\t(statements)\t75.0%
"""
LLVM = """
Filename  Regions  Missed Regions  Cover  Functions  Missed Functions  Executed  Lines  Missed Lines  Cover
lib.rs         22               5  77.27%         5                 1    80.00%     40            6  85.00%
TOTAL          22               5  77.27%         5                 1    80.00%     40            6  85.00%
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (COVERAGE_PY, 88),
        ("TOTAL    80   10   20    4    87.50%\n", 87.5),
        ("TOTAL 80 10 88%\nRequired test coverage of 80.0% reached. Total coverage: 87.50%\n", 87.5),
        ("FAIL Required test coverage of 90% not reached. Total coverage: 87.50%", 87.5),
        (ISTANBUL, 88.88),
        (ISTANBUL + ISTANBUL.replace("88.88", "12.5"), 12.5),
        ("All files | 87.5 |", 87.5),
        ("All files      |     100 |      100 |     100 |     100 |                   ", 100),
        ("All files |  50.0 |  75.0 |", 75),
        ("All files | Unknown% | Unknown% | Unknown% | Unknown% |", None),
        (SUMMARY, 80.5),
        ("ok  \tx\t0.1s\tcoverage: 87.5% of statements\nok  \ty\t0.1s\tcoverage: 12.0% of statements", 12),
        (GO_FUNC, 75),
        ("|| Tested/Total Lines:\n|| src/lib.rs: 7/8\n|| \n87.50% coverage, 7/8 lines covered, +0.00% change", 87.5),
        (LLVM, 85),
        ("  Classes: 50.00% (1/2)\n  Lines:   87.50% (70/80)\n", 87.5),
        ("Line Coverage: 87.5% (7 / 8)", 87.5),
        ("Coverage report generated for RSpec to /x/coverage. 7 / 8 LOC (87.5%) covered.", 87.5),
        ("| Total   | 87.5% | 50%  | 66% |", 87.5),
        ("lines......: 87.5% (7 of 8 lines)", 87.5),
        ("coverage is 91%", None),
        ("SUBTOTAL 1 1 12%", None),
        ("# all files | 87.50 |   100.00 |   66.67 |", 87.5),
        ("", None),
    ],
)
def test_coverage_is_read_from_the_summaries_of_tools(output: str, expected: float | None) -> None:
    assert measured("coverage", output) == expected


@pytest.mark.parametrize(
    ("metric", "output", "expected"),
    [
        ("errors", "Found 3 errors in 2 files (checked 9 source files)", 3),
        ("errors", "Success: no issues found in 9 source files", 0),
        ("errors", "Found 3 errors.\n[*] 1 fixable with the `--fix` option.", 3),
        ("errors", "Found 5 errors (5 fixed, 0 remaining).", 0),
        ("errors", "All checks passed!", 0),
        ("errors", "✖ 5 problems (3 errors, 2 warnings)\n  1 error and 0 warnings potentially fixable", 3),
        ("warnings", "✖ 5 problems (3 errors, 2 warnings)\n  1 error and 0 warnings potentially fixable", 2),
        ("errors", "0 errors, 1 warning, 0 informations ", 0),
        ("errors", "src/a.ts(1,2): error TS2322: no\nsrc/b.ts(1,2): error TS2322: no", 2),
        ("errors", "error[E0308]: mismatched\nerror: could not compile `x` due to 4 previous errors", 4),
        ("warnings", "a.c:3:5: warning: unused\na.c:4:5: warning: unused\n", 2),
        ("warnings", "warning: `x` (lib) generated 3 warnings", 3),
        ("warnings", "3 passed, 2 warnings in 0.12s", 2),
        ("warnings", "Finished", None),
        ("errors", "something else", None),
        ("tests", "3 failed, 37 passed, 1 skipped in 1.23s", 37),
        ("failures", "3 failed, 37 passed, 1 skipped in 1.23s", 3),
        ("skipped", "3 failed, 37 passed, 1 skipped in 1.23s", 1),
        ("tests", "nothing", None),
        ("colour", "colour 3", None),
        (r"/score: (\d+\.?\d*)/", "score: 7\nscore: 8.5\nend", 8.5),
        (r"/^p99=(\S+)ms$/", "p99=1,204.5ms\n", 1204.5),
        (r"/x(-?\d+)/", "x-3", -3),
        (r"/x(\w+)/", "x5 xyz", 5),
        (r"/x(\d+)?/", "x", None),
        (r"/x(\S+)/", "x1e999 xnan xinf", None),
        (r"/score: (\d+)/", "no score", None),
        (r"/no group/", "no group", None),
        (r"/(/", "(", None),
        ("/", "/", None),
    ],
)
def test_other_metrics(metric: str, output: str, expected: float | None) -> None:
    assert measured(metric, output) == expected


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
        ("2 failed in 0.1s\n9 passed in 0.5s", 0),
        (f"{STARTS}\n2 failed in 0.1s\n{STARTS}\n9 passed in 0.5s", 2),
        (f"{STARTS}\n{STARTS}\n2 failed in 0.1s\n{STARTS}\n1 failed in 0.1s\n9 passed in 0.5s", 0),
        ("2 failed in 0.1s\nmake: [Makefile:2: test] Error 1 (ignored)\n9 passed in 0.5s", 2),
        ("make[1]: [Makefile:2: test] Error 1 (ignored)\n2 failed in 0.1s\n9 passed in 0.5s", 0),
        ("9 passed in 0.5s\n2 failed in 0.1s", 2),
        ("2 failed in 0.1s\nTests:       9 passed, 9 total", 2),
        ("Ran 2 tests in 0.1s\n\nFAILED (failures=1)\nRan 9 tests in 0.1s\n\nOK", 0),
        (CARGO, 2),
        (CARGO + "test result: ok. 3 passed; 0 failed; 0 ignored", 2),
        (NODE + "\n" + NODE.replace("fail 1", "fail 0"), 0),
        ("a log line says that 2 failed in the past", 0),
        ("the build has 2 failed, 3 passed in 0.1s", 0),
    ],
)
def test_last_summary_of_a_runner_decides_if_the_command_succeeded(output: str, failed: int) -> None:
    """An earlier one with failures may be what a test printed, unless it is known to be of the command itself."""
    counts = count_tests(output, succeeded=True)
    assert (counts.failed if counts else 0) == failed


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
    ],
)
def test_failures_that_are_told_without_a_count_are_found(output: str, expected: str) -> None:
    assert failure_without_count(output) == expected


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
    ],
)
def test_a_failing_test_has_one_name_in_every_run(output: str, names: tuple[str, ...]) -> None:
    assert failing_tests(output) == names


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


def test_colours_are_taken_out() -> None:
    assert plain("\x1b[32m3 passed\x1b[0m\r\n\x1b]8;;http://x\x1b\\link\x1b]8;;\x07") == "3 passed\nlink"


@pytest.mark.parametrize("text", ["(", "[[a]", "a{99999999999999999999}", "(?P<x", "*"])
def test_a_bad_regular_expression_says_why(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        pattern(text)


@settings(deadline=None)
@given(st.text(), st.sampled_from([*METRICS, "/(x)/", "/x/", "/(/", "other"]))
def test_no_output_makes_it_fail(output: str, metric: str) -> None:
    measured(metric, output)
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
    measured(metric, "".join(parts))
    assert (found := count_tests("".join(parts))) is None or min(found.passed, found.failed, found.skipped) >= 0


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
    ],
)
def test_long_outputs_take_time_in_proportion(unit: str) -> None:
    output = unit * (200_000 // len(unit))
    started = time.process_time()
    text = plain(output)
    count_tests(text)
    count_tests(text, succeeded=True)
    failing_tests(text)
    failure_without_count(text)
    was_retried(text)
    count_junit(output.encode())
    for metric in METRICS:
        measured(metric, text)
    assert time.process_time() - started < 3
