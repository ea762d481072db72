"""Failure sets: the same failure is known again, another one is told apart, and failures are counted as their tool does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.check_output import normalize_output
from ralph.core.checks import Check, FailureSet, Measure
from ralph.verify.measures import read_failure_set
from ralph.verify.summaries import count_tests

MYPY = """\
a.py:3: error: Incompatible return value type (got "int", expected "str")  [return-value]
a.py:4: error: Incompatible types in assignment (expression has type "str", variable has type "int")  [assignment]
a.py:5: error: Incompatible types in assignment (expression has type "str", variable has type "int")  [assignment]
Found 3 errors in 1 file (checked 1 source file)
"""
MYPY_SYNTAX = """\
b.py:1: error: Expected a parameter or the end of the parameter list  [syntax]
Found 1 error in 1 file (errors prevented further checking)
"""
RUFF = """\
F401 [*] `os` imported but unused
 --> a.py:1:8
  |
1 | import os, sys
  |        ^^
help: Remove unused import

F401 [*] `sys` imported but unused
 --> a.py:1:12

Found 2 errors.
[*] 2 fixable with `--fix`.
"""
TSC = """\
src/a.ts(1,7): error TS2322: Type 'string' is not assignable to type 'number'.
src/a.ts(2,7): error TS2322: Type 'string' is not assignable to type 'number'.
"""
ESLINT = """\

/home/me/app.js
  1:5  error  'x' is assigned a value but never used  no-unused-vars
  2:1  warning  Unexpected console statement  no-console

✖ 2 problems (1 error, 1 warning)
"""
GO = """\
--- FAIL: TestFormat (0.00s)
    roman_test.go:9: Format(4) = "IIII", want "IV"
    roman_test.go:9: Format(9) = "VIIII", want "IX"
FAIL
FAIL\texample.org/roman\t0.002s
FAIL
"""
GO_BUILD = """\
# example.org/roman [example.org/roman.test]
./roman.go:5:2: undefined: x
FAIL\texample.org/roman [build failed]
FAIL
"""
GO_VET = "./a.go:5:2: x declared and not used\n./a.go:6:2: y declared and not used\n"
PYTEST = """\
F..F
=================================== FAILURES ===================================
E       assert 1 == 2
test_a.py:4: AssertionError
=========================== short test summary info ============================
FAILED test_a.py::test_one - assert 1 == 2
FAILED test_a.py::test_two - assert 3 == 2
2 failed, 2 passed in 0.02s
"""
COLLECTION = """\
ERROR test_a.py - SyntaxError: invalid syntax
!!!!!!!!!!!!!!!!!!!! Interrupted: 1 error during collection !!!!!!!!!!!!!!!!!!!!
1 error in 0.05s
"""
CARGO = (
    "error[E0308]: mismatched types\n --> src/lib.rs:3:5\nerror: could not compile `x` (lib) due to 1 previous error\n"
)


def failures(output: str, command: str = "make") -> FailureSet:
    return read_failure_set(Check(command), output, count_tests(output), None)


@pytest.mark.parametrize(
    ("output", "command", "count"),
    [
        (MYPY, "mypy a.py", 3),
        (MYPY_SYNTAX, "mypy b.py", None),
        (RUFF, "ruff check .", 2),
        (TSC, "tsc --noEmit", 2),
        ("src/a.ts(1,7): error TS1005: ';' expected.\n", "tsc --noEmit", None),
        (ESLINT, "eslint .", 2),
        (GO, "go test ./...", 1),
        (GO_BUILD, "go test ./...", None),
        (GO_VET, "go vet ./...", 2),
        (PYTEST, "pytest -q", 2),
        (COLLECTION, "pytest -q", None),
        ("no tests ran in 0.01s\n", "pytest -q", None),
        (CARGO, "cargo test", None),
        (CARGO, "cargo check", 1),
        ("the lamp is missing\nthe door is missing\nthe door is missing\n", "./look.sh", 3),
        ("hello\nworld\n", "./look.sh", None),
        ("", "./look.sh", None),
    ],
)
def test_failures_are_counted_unless_the_tool_stopped_early(output: str, command: str, count: float | None) -> None:
    assert failures(output, command).count == count


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("FAILED in 0.12s", "FAILED in 3.4s"),
        ("/tmp/a1/x.py:12: error", "/home/me/x.py:99: error"),
        ("at 0x7f00ab12 lost", "at 0x55aa00ff lost"),
        ("error: no 0b51d5cb-5a59-4bd2-9d3b-1a6cf0c1a2b3", "error: no 5b51d5cb-5a59-4bd2-9d3b-fa6cf0c1a2b3"),
        ("error: no file '/tmp/tmpab12cd_e'", "error: no file '/tmp/tmpzz99cd_e'"),
        ("2026-11-15T10:00:00Z error: boom", "2026-11-16T11:12:13.5Z error: boom"),
        ("Mon Nov 16 22:11:36 2026 error: boom", "Tue Dec 1 02:11:36 2026 error: boom"),
        ("b is missing\na is missing", "a is missing\nb is missing"),
        ("b\na", "a\nb"),
        ("error: it took 1m30s and 12.5MB", "error: it took 2m9s and 9.75MB"),
        ("error: 1,234 rows at 127.0.0.1:4000", "error: 99 rows at 127.0.0.1:51234"),
        ("[gw0] error: boom", "[gw3] error: boom"),
        ("../a/x.py:1: error", "./x.py:2: error"),
        (PYTEST, PYTEST.replace("0.02s", "7.31s").replace("test_a.py:4:", "test_a.py:9:")),
        (MYPY, "".join(reversed(MYPY.replace("a.py:3", "a.py:33").splitlines(keepends=True)))),
    ],
)
def test_the_same_failures_have_the_same_name(one: str, other: str) -> None:
    assert failures(one) == failures(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("assert a == b", "assert a == c"),
        (MYPY, MYPY.partition("\n")[2].replace("3 errors", "2 errors")),
        (GO, GO.replace('    roman_test.go:9: Format(9) = "VIIII", want "IX"\n', "")),
        (GO, GO.replace("TestFormat", "TestTens")),
        (PYTEST, PYTEST.replace("test_two", "test_three")),
        (TSC, TSC.partition("\n")[2]),
        ("mod0.py:1: error", "mod1.py:1: error"),
        ('File "/tmp/step1.py", line 1', 'File "/tmp/step2.py", line 1'),
        ("part-1.c:3:1: error: boom", "part-2.c:3:1: error: boom"),
        ("001_init.sql: syntax error", "002_init.sql: syntax error"),
        ("1.py:1: error", "2.py:1: error"),
        ("lib1/a.py:1: error", "lib2/a.py:1: error"),
        ("error: undefined: value1", "error: undefined: value2"),
        ("error in a.py::test_sum[1-2]", "error in a.py::test_sum[1-3]"),
        ("a.py:1:1: E501 too long", "a.py:1:1: E502 too long"),
    ],
)
def test_different_failures_have_different_names(one: str, other: str) -> None:
    assert failures(one).digest != failures(other).digest


def test_a_measured_number_counts_by_its_distance_and_not_by_its_name() -> None:
    check = Check("cov", measure=Measure("coverage", ">=", 80, "%"))
    near, far = (read_failure_set(check, f"TOTAL 10 2 {value}%", None, float(value)) for value in (75, 60))
    assert (near.count, far.count, near.digest) == (5, 20, far.digest)


def test_silence_has_no_name() -> None:
    assert failures("") == FailureSet(None, "")


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert failures(text) == failures(text)
    assert len(normalize_output(text)) <= 8 * len(text) + 8


GO_CAPPED = """# example.org/x
./a.go:3:6: undefined: one
./a.go:4:6: undefined: two
./a.go:4:6: too many errors
FAIL\texample.org/x [build failed]
"""


@pytest.mark.parametrize(
    "output",
    [
        GO_CAPPED,
        "a.c:3:1: error: one\ncompilation terminated due to -fmax-errors=1.\n",
        "a.c:3:1: error: one\nfatal error: too many errors emitted, stopping now [-ferror-limit=]\n",
        "FAILED t.py::test_a - assert 0\n!!!! stopping after 1 failures !!!!\n1 failed in 0.1s\n",
    ],
    ids=["go", "gcc", "clang", "pytest"],
)
def test_incomplete_output_has_neither_a_count_nor_a_failure_set(output: str) -> None:
    assert failures(output) == FailureSet(None, "")


def test_a_tool_that_says_how_many_it_left_out_is_believed() -> None:
    javac = "A.java:3: error: one\n100 errors\nonly showing the first 100 errors, of 125 total; use -Xmaxerrs\n"
    assert failures(javac).count == 125


def test_numbers_that_a_check_prints_are_read_if_their_lines_differ() -> None:
    assert sorted(read_numbers("still 7 of 9 pages to write\n3 chapters to go\n")) == [3.0, 7.0, 9.0]
    assert read_numbers("page 1\npage 2\n3 chapters to go\n") == [3.0], "a line that comes again is a list"


def test_output_with_many_numbers_is_a_table() -> None:
    words = [f"{chr(ord('a') + number) * 5} 7" for number in range(21)]
    assert read_numbers("\n".join(words[:20])) == [7.0] * 20
    assert read_numbers("\n".join(words)) == []


def read_numbers(output: str) -> list[float | None]:
    return list(failures(output).figures.values())
