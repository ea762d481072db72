"""Numbers in what a check prints, and its failure set: what it complains about.

A loop compares failure sets to tell work that makes progress from work that does not. A set has the names of failing tests
and the lines that complain, without what differs between two runs on the same tree: line numbers, times, addresses, order.
Every pattern here is tried once per line and takes time in proportion to it, however large or hostile the output is.
"""

import hashlib
import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ralph.core.check_output import find_figures, normalize_output, remove_directories
from ralph.core.checks import Check, Counts, FailureSet, Measure
from ralph.core.text import regex
from ralph.verify.summaries import count_tests, find_failing_tests

COUNTED = {"tests": "passed", "failures": "failed", "skipped": "skipped"}
"""Metrics that are a count of tests."""
ZERO_IF_UNMENTIONED = {"failures": "fail", "errors": "error", "warnings": "warning"}
"""Metrics that are 0 if a command succeeds and its output does not have the word."""
_ANSI = regex(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][0-9A-B])")
_NUMBER = regex(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
_SHARE = r"(?<![\d.])(\d{1,3}(?:\.\d{1,9})?)"
_COVERAGE: tuple[tuple[re.Pattern[str], int], ...] = (
    (regex(rf"Total coverage: {_SHARE}%"), 0),
    (regex(rf"\ntotal:[ \t]+\(statements\)[ \t]+{_SHARE}%"), 0),
    (regex(r"\n(All files[^|\n]*\|[^\n]*)"), 3),
    (regex(rf"\n(?:#|ℹ) all files[ \t]*\|[ \t]*{_SHARE}"), 0),
    (regex(r"\n(TOTAL[ \t][^\n]*%[^\n]*)"), 2),
    (regex(rf"\n[ \t]*[Ll]ines[ \t.]*:[ \t]*{_SHARE}%"), 0),
    (regex(rf"coverage: {_SHARE}% of statements"), 0),
    (regex(rf"\n{_SHARE}% coverage, \d+/\d+ lines"), 0),
    (regex(rf"\n(?:Line Coverage: |[^\n(]*LOC \(){_SHARE}%"), 0),
    (regex(rf"\n\| Total[ \t]+\|[ \t]+{_SHARE}%"), 0),
)
"""Tools' own summaries, the most exact first; in a row with as many numbers, the column that has the lines."""
_CELL = regex(rf"{_SHARE}[ \t]*(?=[%|])")
_REMAINING = r"(?: \(\d{1,9} fixed, (\d{1,9}) remaining\))?"
_DIAGNOSED = {
    "errors": (
        regex(rf"\b(\d{{1,9}}|[Nn]o) (?:(?:previous |type |lint |fatal )?errors?|issues)\b{_REMAINING}"),
        regex(r"\n[^\n]*?\b[Ee]rror(?:\[\w{1,9}\]| TS\d{1,6})?:"),
        regex(r"All checks passed|[Nn]o problems"),
    ),
    "warnings": (
        regex(rf"\b(\d{{1,9}}|[Nn]o) (?:lint )?warnings?\b{_REMAINING}"),
        regex(r"\n[^\n]*?\b[Ww]arning(?:\[\w{1,9}\])?:"),
        regex(r"All checks passed|[Nn]o (?:issues|problems)"),
    ),
}
"""How a tool sums up what it found, how it names one finding, and how it says that there is none."""
LONGEST = 300
"""Characters of a line that are read."""
MAX_LINES = 20_000
"""Lines of output that are read; the last ones, since summaries stand at the end."""
_FRAME = re.compile(r"^\s*File \"(.+)\", line (\d+)")
"""A place in a traceback of Python; the source line is below it."""
MAX_FIGURES = 20
"""Numbers in an output that are compared. Output with more of them is a table or a log."""
_ERROR_LINE = re.compile(
    r"\w\.\w{1,6}(?::\d|\(\d+[,)]|:\[\d+,)"  # a.py:3, a.ts(3,5), A.java:[3,5]
    r"|^\s*File \".+\", line \d"
    r"|\b[Ee]rror(?:\[\w{1,9}\]| TS\d{1,6})?:"
    r"|^\s*\d+:\d+\s+(?:error|warning)\s"  # eslint
    r"|^[A-Z]{1,5}\d{2,5}\s"  # ruff
    r"|^E\s+\S"  # pytest
    r"|\bpanicked at\b"
)
_EXCEPTION = re.compile(r"^\s*(?:Uncaught )?(?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?::|$)")
"""The last line of a traceback."""
_COMPLAINT = re.compile(
    r"(?i)\b(?:error|fail|assert|exception|expected|received|panic|undefined|cannot|not ok|not found|missing)|[✕✗×]"
    r"|(?-i:\b[A-Z]{1,4}\d{3,5}\b)"  # the code of a rule, such as E501
)
_ROW = re.compile(r"^\s*[|│]|\b[A-Z]{1,4}\d{3,5}\b")
"""A row of a table, or the code of a rule, such as E501."""
_PLACE = regex(
    r"^\d{1,6}:(?!\d\d\b)"  # grep -n, but not a time of day
    r"|\b[Ll]ine \d{1,6}\b"
    r"|^(?!localhost:)(?=[^:\s]*[A-Za-z])[\w./@+~-]+:\d{1,6}:"  # Makefile:3:
)
"""The beginning of a line that lists a place in a file, or the name of that place in it."""
_SUMMARY_LINE = re.compile(r"(?i)\b\d+ (?:failed|passed|errors?|warnings?|problems?)\b")
_STOPPED_EARLY = (
    re.compile(r"errors? prevented further checking"),  # mypy after a syntax error
    re.compile(r"error TS1\d{3}:"),  # tsc reports syntax errors alone
    re.compile(r"\[(?:build|setup) failed\]"),  # go test
    re.compile(r"Interrupted: \d+ errors? during collection|no tests ran"),  # pytest
)
"""How tools say that they stopped before they had looked at everything: then their count says nothing."""
_CAPPED = re.compile(
    r"too many errors"  # go (ten for each package), clang
    r"|compilation terminated due to -fmax-errors"  # gcc
    r"|stopping after \d+ failures"  # pytest
)
"""How tools say that they did not print everything."""
_CAPPED_TOTAL = re.compile(r"only showing the first \d+ (?:errors|warnings), of (\d{1,9}) total")
"""The same, with how many there are: javac."""
_NOT_BUILT = re.compile(r"could not compile")
_RUNS_TESTS = re.compile(r"\b(?:test|nextest)\b")
_LONGEST_NUMBER = 100
"""Characters of a number that a user's regular expression found."""
PATTERN_READ = 1024 * 1024
"""How many characters of output a user's regular expression is tried on: it may be a slow one."""


def strip_terminal_codes(text: str) -> str:
    """Text without colours and other orders to a terminal."""
    return _ANSI.sub("", text).replace("\r\n", "\n")


def compile_pattern(text: str) -> re.Pattern[str]:
    """A regular expression of the user; a ValueError says what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(text, re.MULTILINE)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise ValueError(str(error)) from error


def read_metric(metric: str, output: str) -> float | None:
    """The number in plain output, or None if it has none.

    If tools print several, the worst counts: the lowest coverage (of lines, if it is given), the most errors or warnings.
    A regular expression takes its last match whose first group is a number. Go prints a coverage for each package and, with
    `go tool cover -func`, a total: the total is used if it is there.
    """
    if metric.startswith("/"):
        return _read_expression(metric[1:-1], output)
    if metric == "coverage":
        return _read_coverage(output)
    if metric in COUNTED:
        return read_test_metric(metric, count_tests(output))
    return _count_diagnostics(metric, output) if metric in _DIAGNOSED else None


def read_test_metric(metric: str, tests: Counts | None) -> float | None:
    """A metric that is a count of tests."""
    return None if tests is None else float(getattr(tests, COUNTED[metric]))


def _read_expression(expression: str, output: str) -> float | None:
    try:
        matches = [match[1] for match in compile_pattern(expression).finditer(output)]
    except (ValueError, IndexError):
        return None
    return next((number for text in reversed(matches) if (number := _parse_number(text)) is not None), None)


def _parse_number(text: str | None) -> float | None:
    if text is None or len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text.strip()):
        return None
    number = float(text.replace(",", ""))
    return number if math.isfinite(number) else None


def _read_coverage(output: str) -> float | None:
    for form, column in _COVERAGE:
        shares = [
            share for match in form.finditer("\n" + output) if (share := _read_cell(match[1], column)) is not None
        ]
        if shares:
            return min(shares)
    return None


def _read_cell(text: str, column: int) -> float | None:
    """The number in a summary: itself, or one of a row."""
    cells = [text] if column == 0 else _CELL.findall(text)
    if not cells:
        return None
    return float(cells[column] if len(cells) > column else cells[-1])


def _count_diagnostics(metric: str, output: str) -> float | None:
    summary, single, none = _DIAGNOSED[metric]
    totals = [match[2] or match[1] for match in summary.finditer(output)]
    if totals:
        return float(max(int(total) if total.isdecimal() else 0 for total in totals))
    if singles := sum(1 for _ in single.finditer("\n" + output)):
        return float(singles)
    return 0.0 if none.search(output) else None


def read_measure(measure: Measure, text: str, tests: Counts | None, code: int | None) -> float | None:
    """The number that is measured."""
    if measure.metric.startswith("/"):
        return read_metric(measure.metric, text[-PATTERN_READ:])
    counts = measure.metric in COUNTED
    value = read_test_metric(measure.metric, tests) if counts else read_metric(measure.metric, text)
    word = ZERO_IF_UNMENTIONED.get(measure.metric)
    return 0.0 if value is None and code == 0 and word and word not in text.lower() else value


@dataclass(frozen=True)
class _FailedOutput:
    """What a failed check printed, taken apart."""

    lines: list[str]
    test_names: Sequence[str]
    """The tests that failed, if the output names them."""
    has_failed_tests: bool
    errors: list[str]
    """The lines that report an error, without those that only sum up."""
    items: Counter[str]
    """The failing tests and the errors, without what differs between two runs on the same tree."""
    is_whole: bool
    """Whether the tool looked at everything. Otherwise the number of its complaints says nothing."""
    reported: float | None
    """How many failures the tool itself counts."""


def read_failure_set(check: Check, output: str, tests: Counts | None, value: float | None) -> FailureSet:
    """What a failed check complains about in plain output.

    If the tool says that it left something out, its output is the same however much of the rest was fixed. Then the set is
    empty, and a loop compares the trees instead.
    """
    failed = _take_apart(check, output, tests)
    if check.measure:
        distance = None if value is None else abs(value - check.measure.target)
        return FailureSet(distance, _digest(failed.items))
    if _CAPPED.search(output):
        return FailureSet(None, "")
    found = _read_errors(failed) if failed.items else _read_complaints(failed)
    if failed.reported:
        return found
    return replace(found, figures=_read_figures(failed.lines))


def _take_apart(check: Check, output: str, tests: Counts | None) -> _FailedOutput:
    lines = [line[:LONGEST] for line in output.splitlines()[-MAX_LINES:] if line.strip()]
    names = find_failing_tests(output)
    errors: list[str] = []
    for line in lines:
        # An exception that a named test raises is the failure of that test, and no other one.
        is_error = _ERROR_LINE.search(line) or (not names and _EXCEPTION.search(line))
        if is_error and not _SUMMARY_LINE.search(line):
            errors.append(line)
    is_whole = not _stopped_early(check.command, output)
    return _FailedOutput(
        lines=lines,
        test_names=names,
        has_failed_tests=bool(names or (tests and tests.failed)),
        errors=errors,
        items=Counter([*names, *normalize_output("\n".join(errors)).splitlines()]),
        is_whole=is_whole,
        reported=_count_failures(output, tests, len(names)) if is_whole else None,
    )


def _read_errors(failed: _FailedOutput) -> FailureSet:
    """The failure set of output with failing tests or lines that report errors."""
    errors = failed.errors
    # The frames of a traceback are one failure, however many there are.
    separate = [line for line in errors if not _FRAME.match(line)]
    count = failed.reported
    if not count and failed.is_whole and errors:
        count = len(separate or errors)
    digest = _digest({**failed.items, "failures": count or 0})
    is_reported = bool(failed.reported)
    # `Error: lines are left` below a list of these lines: the list tells how many there are.
    known = set(errors)
    listed = _count_places([line for line in failed.lines if line not in known])
    if listed and not failed.has_failed_tests and count == len(errors) == len(separate):
        count, is_reported = count + listed, False
    places = () if failed.test_names else _name_places(failed.lines)
    return FailureSet(count, digest, is_reported, places=places)


def _read_complaints(failed: _FailedOutput) -> FailureSet:
    """The failure set of output in which only words and places show what is wrong."""
    lines, count = failed.lines, failed.reported
    listed = [line for line in lines if _PLACE.search(line)]
    complaints = [line for line in lines if _COMPLAINT.search(remove_directories(line))]
    unplaced = [line for line in complaints if not _PLACE.search(line)]
    telling = [*unplaced, *listed] if complaints else lines
    distinct = set(normalize_output("\n".join(telling)).splitlines())
    if failed.is_whole and not count and (complaints or listed):
        count = _count_complaints(unplaced) + _count_places(listed)
    # The digest leaves out how many places there are: fewer are a lower count, and more are not a new failure.
    kinds = failed.reported or 1
    if failed.is_whole and complaints and not failed.reported:
        kinds = len(distinct)
    return FailureSet(count, _digest(dict.fromkeys(distinct, kinds)), bool(failed.reported))


def _count_complaints(lines: Sequence[str]) -> int:
    """How many failures these lines are. The same complaint once for each place is as many failures.

    Lines that differ only in their numbers are one, because the number can be that of an attempt or a port. In a table, and
    beside the code of a rule, it is that of a line.
    """
    rows = [line for line in lines if _ROW.search(line)]
    repeated = Counter(line for line in lines if not _ROW.search(line))
    most: dict[str, int] = {}
    for line, times in repeated.items():
        kind = normalize_output(line)
        most[kind] = max(times, most.get(kind, 0))
    return len(rows) + sum(most.values())


def _count_places(lines: Sequence[str]) -> int:
    """How many places these lines list. What is printed twice for the same place counts once, whatever the time is."""
    return len({(normalize_output(line), match[0]) for line in lines if (match := _PLACE.search(line))})


def _name_places(lines: Sequence[str]) -> tuple[str, ...]:
    """Names for the places in the tracebacks of an output: by their source lines, and by their line numbers."""
    sources: list[str] = []
    numbers: list[str] = []
    for line, below in itertools.pairwise([*lines, ""]):
        if frame := _FRAME.match(line):
            source = below.strip() if below[:1].isspace() and not _FRAME.match(below) else ""
            sources.append(f"{frame[1]} {source}")
            numbers.append(f"{frame[1]} {frame[2]}")
    if not sources:
        return ()
    return (f"source {_digest(Counter(sources))}", f"line {_digest(Counter(numbers))}")


def _read_figures(lines: Sequence[str]) -> dict[str, float | None]:
    """The numbers in the lines that occur once, by a name for the rest of the line and their place in it."""
    found: dict[str, float | None] = {}
    repeated: set[str] = set()
    for above, line in itertools.pairwise(["", *lines]):
        # The line below a frame of a traceback is source, which the work changes anyway.
        figures = () if _FRAME.match(above) else find_figures(line)
        if not figures:
            continue
        rest = normalize_output(line)
        names = [_digest(Counter([rest, f"number {position}"])) for position in range(len(figures))]
        repeated.update(name for name in names if name in found)
        found.update(zip(names, figures, strict=True))
        if len(found) > MAX_FIGURES:
            return {}
    return {name: figure for name, figure in found.items() if name not in repeated}


def mark_unstable_figures(failures: FailureSet, again: FailureSet | None) -> FailureSet:
    """A failure set whose numbers are None if they are others in a second run on the same files."""
    known = again.figures if again else {}
    figures = {name: value if known.get(name, value) == value else None for name, value in failures.figures.items()}
    return replace(failures, figures=figures)


def _count_failures(output: str, tests: Counts | None, named: int) -> float | None:
    """How many failures the tool itself counts; None if it does not say."""
    if total := _CAPPED_TOTAL.search(output):
        return float(total[1])
    if tests and tests.failed:
        return tests.failed
    if named:
        return named
    found = [read_metric(metric, output) or 0.0 for metric in ("errors", "warnings")]
    return sum(found) or None


def _stopped_early(command: str, output: str) -> bool:
    """Whether the tool stopped before it had seen everything."""
    if _NOT_BUILT.search(output) and _RUNS_TESTS.search(command):
        return True
    return any(sign.search(output) for sign in _STOPPED_EARLY)


def _digest(items: dict[str, float] | Counter[str]) -> str:
    """A short name for the set, in whatever order the lines came; empty if there is nothing in it."""
    if not items:
        return ""
    lines: Iterable[str] = (f"{number:g} {line}" for line, number in items.items())
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="replace")).hexdigest()[:12]
