"""Numbers in what real tools print."""

import warnings

import pytest

from ralph.verify.measures import compile_pattern, read_metric, strip_terminal_codes

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
    assert read_metric("coverage", output) == expected


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
    assert read_metric(metric, output) == expected


def test_colors_are_removed() -> None:
    assert strip_terminal_codes("\x1b[32m3 passed\x1b[0m\r\n\x1b]8;;http://x\x1b\\link\x1b]8;;\x07") == "3 passed\nlink"


def test_a_regular_expression_that_python_only_warns_about_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="nested set"):
            compile_pattern("[[b]")


@pytest.mark.parametrize("text", ["(", "[[a]", "a{99999999999999999999}", "(?P<x", "*"])
def test_a_bad_regular_expression_says_why(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compile_pattern(text)
