"""Numbers in what commands print: the metrics that Ralph knows, regular expressions, and how many tests passed.

Every pattern here is tried once a line and takes time in proportion to it, however large or hostile the output is.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator

from ralph.core.checks import Counts
from ralph.core.patterns import regex

COUNTED = {"tests": "passed", "failures": "failed", "skipped": "skipped"}
"""Metrics that are a count of tests."""
METRICS = ("coverage", *COUNTED, "errors", "warnings")
"""What can be measured by name."""
ZERO_IF_UNMENTIONED = {"failures": "fail", "errors": "error", "warnings": "warning"}
"""Metrics that are 0 where a command succeeds and its output does not have the word."""

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

_WORDS = {
    **dict.fromkeys(("passed", "pass", "passing", "xpassed", "flaky"), "passed"),
    **dict.fromkeys(("failed", "fail", "failing", "failure", "failures", "error", "errors", "cancelled"), "failed"),
    **dict.fromkeys(("unexpected successes", "interrupted"), "failed"),
    **dict.fromkeys(("skipped", "skip", "skips", "pending", "ignored", "todo", "incomplete"), "skipped"),
    **dict.fromkeys(("xfailed", "expected failures"), "skipped"),
    **dict.fromkeys(("tests", "test", "total", "run", "runs", "ran", "examples", "example", "completed"), "total"),
    **dict.fromkeys(("doctest", "doctests"), "total"),
}
_NUMBER_FIRST = {
    "pytest": r"(?:=+ )?(?:(?:\d{1,7} (?:failed|(?:subtests )?passed|skipped|deselected|xfailed|xpassed|warnings?|errors?|rerun)"
    r"(?:, | in )){1,12}|no tests ran in )[\d.]+s",
    "jest": r"Tests:? +\d{1,7} (?:failed|passed|skipped|pending|todo)\b[^\n]*",  # and vitest
    "bun": r"\d{1,7} (?:pass|fail|skip)(?=\n|\Z)",
    "mocha": r"\d{1,7} (?:passing|passed|failing|failed|skipped|pending|todo|flaky|interrupted)"
    r"(?: \([\w.]+\))?(?=\n|\Z)",  # and playwright
    "cargo": r"test result: \w+\. \d[^\n]*",
    "nextest": r"Summary \[[^\]\n]*\] +\d{1,7} tests? run: [^\n]*",
    "deno": r"(?:ok|FAILED) \| \d[^\n]*",
    "gradle": r"\d{1,7} tests? completed[^\n]*",
    "rspec": r"\d{1,7} examples?, \d{1,7} failures?[^\n]*",
    "minitest": r"\d{1,7} runs, \d{1,7} assertions, [^\n]*",
    "mix": r"(?:\d{1,7} doctests?, )?\d{1,7} tests?, \d{1,7} failures?[^\n]*",
    "phpunit_ok": r"OK \(\d{1,7} tests?, \d{1,7} assertions?\)",
}
_WORD_FIRST = {
    "unittest": r"Ran \d{1,7} tests? in [\d.]+s\n+(?:OK|FAILED|NO TESTS RAN)[^\n]*",
    "node": r"(?:#|ℹ) (?:pass|fail|cancelled|skipped|todo) \d{1,7}(?=\n|\Z)",
    "surefire": r"Tests run: \d{1,7}, Failures: \d{1,7}, Errors: \d{1,7}, Skipped: \d{1,7}(?:, Flakes: \d{1,7})?[ \t]*(?=\n|\Z)",
    "phpunit": r"Tests: \d{1,7}, Assertions: [^\n]*",
    "dotnet": r"(?:Passed|Failed)! +- +Failed: +\d[^\n]*",
}
_BETWEEN = {
    "pytest_starts": r"=+ test session starts =+",
    "make_ignored": r"make(?:\[\d{1,5}\])?: \[[^\n]*\] Error \d{1,5} \(ignored\)",
}
"""Lines that tell whether two summaries are of one run or of two."""
_SUMMARY = regex(
    r"\n[ \t]*+(?:\[\w{1,9}\] )?(?:"
    + "|".join(f"(?P<{runner}>{form})" for runner, form in {**_NUMBER_FIRST, **_WORD_FIRST, **_BETWEEN}.items())
    + ")"
)
"""The summaries of test runners; the group that matches is the name of the runner."""
_PER_LINE = ("bun", "node")
"""Runners whose summary is one line for each kind of result, zeros included."""
_SEVERAL = ("mocha", "cargo", "gradle", "surefire", "dotnet")
"""Runners that print several summaries in one run (for each binary, module or project), or leave out what is zero."""
_FAILED_ELSEWHERE = regex(
    r"\n(?:FAIL\t[^\s]+(?:\t[\d.]+s| \[[\w ]+\])"  # go, for a package
    r"|Test Suites: +\d+ failed\b"  # jest
    r"|[ \t]*Test Files +\d+ failed\b)[^\n]*"  # vitest
)
"""How runners say that something failed without a count of tests: a package, or a file that could not be loaded."""
_RETRIED = regex(
    r"[ ,][1-9]\d{0,6} (?:rerun|flaky)\b"  # pytest-rerunfailures, nextest, playwright
    r"|, Flakes: [1-9]"  # surefire
    r"|\(retry x\d"  # vitest
    r"|\n[ \t]*(?:RETRY \d+: |TRY \d+ PASS\b|\(Attempt \d+ of \d+\)|RSpec::Retry: )"  # jest, nextest, cypress, rspec
)
_NUMBER_WORD = regex(r"\b(\d{1,7}) (?:tests? )?([A-Za-z]+)")
_WORD_NUMBER = regex(r"\b((?:expected |unexpected )?[A-Za-z]+)[:=]? *(\d{1,7})")
_CAPTURED = regex(r"\n=+ (?:FAILURES|ERRORS) =+\n")
_FAILED_TEST = regex(
    r"\n(?:FAILED|ERROR) (\S+::[^\n]+?)(?= - |\n|\Z)"  # pytest
    r"|\n(?:FAIL|ERROR): (\w+ \([\w.]+\))"  # unittest
    r"|\n[ \t]*--- FAIL: (\S+)"  # go
    r"|\ntest (\S+)(?: - should panic)? \.\.\. FAILED"  # cargo
    r"|\n[ \t]*(?:TRY \d+ )?FAIL \[[^\]\n]*\] (?:\([^)\n]*\) )?(\S+ \S+)"  # cargo nextest
    r"|\n[ \t]*● ([^\n]{1,200} › [^\n]{1,200})"  # jest
    r"|\n[ \t]*FAIL[ \t]+(\S[^\n]{0,200} > [^\n]{1,200})"  # vitest
    r"|\n\[ERROR\] +(\w+\.\w+)(?=:\d+|->| »)"  # surefire
    r"|\n(\w[\w.]* > [^\n]{1,200}) FAILED(?=\n|\Z)"  # gradle
    r"|\nnot ok \d+ -? ?([^\n]{1,200})"  # TAP
    r"|\n[ \t]*✖ (\S[^\n]{0,200}) \(\d[\d.]{0,20}m?s\)"  # node --test
    r"|\n[ \t]*(?:\(fail\)|✗) (\S[^\n]{0,200}) \[\d[\d.]{0,20}m?s\]"  # bun
    r"|\nrspec (\S+?(?::\d+|\[[\d:]+\]) # [^\n]{1,200})"  # rspec
    r"|\n[ \t]*\d+\) ([\w\\]+::\w[^\n]{0,200})"  # phpunit
    r"|\n[ \t]*Failed (\S[^\n]{0,200}) \[\d[\d.]{0,20} ?m?s\]"  # dotnet
)
_FAILED_IN_LIST = regex(r"\n[ \t]*×[ \t]+(\S[^\n]{0,200} > [^\n]{1,200})")
"""A test in vitest's list of what it runs. The list leaves out the file, which the line with FAIL has."""
_NO_PART_OF_NAME = regex(
    r"[ \t]+(?:\(retry x\d+\)|[(\[]?\d[\d.]{0,20} ?(?:ms|s)[)\]]?|# time=\S+|-- Time elapsed:.*)(?=[ \t]|\Z)|(?<=\.rb):\d+(?= # )"
)
"""How long a test took, or where it stands: it differs from run to run, and the name does not."""
_GO = regex(r"\n[ \t]*--- (PASS|FAIL|SKIP): ")
_GO_JSON = regex(r'\n\{[^\n]*"Action":"(pass|fail|skip)"[^\n]*')
_TAP = regex(r"\n(ok|not ok)\b([^\n]*)")
_TAP_EXCUSED = regex(r"(?i)# (?:skip|todo)\b")
_TAP_PLAN = regex(r"\n1\.\.\d")
_SUITE = regex(rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<testsuite\s([^<>]*)>|(</testsuite>)", re.DOTALL)
_COUNT = regex(rb"\b(tests|failures|errors|skipped|disabled)\s*=\s*[\"'](\d{1,9})[\"']")


def plain(text: str) -> str:
    """Text without colours and other orders to a terminal."""
    return _ANSI.sub("", text).replace("\r\n", "\n")


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression of the user; a ValueError says what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(text, re.MULTILINE)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise ValueError(str(error)) from error


def measured(metric: str, output: str) -> float | None:
    """The number in plain output, or None where it has none.

    Where tools print several, the worst counts: the lowest coverage (of lines, where it is told), the most errors or warnings.
    A regular expression takes its last match whose first group is a number. Go prints a coverage for each package and, with
    `go tool cover -func`, a total: the total is taken where it is there.
    """
    if metric.startswith("/"):
        return _matched(metric[1:-1], output)
    if metric == "coverage":
        return _coverage(output)
    if metric in COUNTED:
        return counted(metric, count_tests(output))
    return _diagnosed(metric, output) if metric in _DIAGNOSED else None


def counted(metric: str, tests: Counts | None) -> float | None:
    """A metric that is a count of tests."""
    return None if tests is None else float(getattr(tests, COUNTED[metric]))


def _matched(expression: str, output: str) -> float | None:
    try:
        matches = [match[1] for match in pattern(expression).finditer(output)]
    except (ValueError, IndexError):
        return None
    return next((number for text in reversed(matches) if (number := _number(text)) is not None), None)


def _number(text: str | None) -> float | None:
    if text is None or len(text) > 100 or not _NUMBER.fullmatch(text.strip()):
        return None
    number = float(text.replace(",", ""))
    return number if math.isfinite(number) else None


def _coverage(output: str) -> float | None:
    for form, column in _COVERAGE:
        shares = [share for match in form.finditer("\n" + output) if (share := _cell(match[1], column)) is not None]
        if shares:
            return min(shares)
    return None


def _cell(text: str, column: int) -> float | None:
    """The number in a summary: itself, or one of a row."""
    cells = [text] if column == 0 else _CELL.findall(text)
    return float(cells[column] if len(cells) > column else cells[-1]) if cells else None


def _diagnosed(metric: str, output: str) -> float | None:
    summary, single, none = _DIAGNOSED[metric]
    totals = [match[2] or match[1] for match in summary.finditer(output)]
    if totals:
        return float(max(int(total) if total.isdecimal() else 0 for total in totals))
    if singles := sum(1 for _ in single.finditer("\n" + output)):
        return float(singles)
    return 0.0 if none.search(output) else None


def count_tests(output: str, *, succeeded: bool = False) -> Counts | None:
    """How many tests passed, failed and were skipped, over all summaries that plain output has.

    If the command succeeded, a summary with failures may come from a test that prints what another runner said, or
    from a first try. So the last summary of a runner decides, unless an earlier one is known to be of the command itself.
    """
    text = _without_captured("\n" + output)
    tally = _read_summaries(text, succeeded=succeeded)
    if go := _statuses(text):
        tally.append(go)
    if not tally and _TAP_PLAN.search(text):
        tally.append(Counts(**Counter(_tap(match) for match in _TAP.finditer(text))))
    if not tally:
        return count_junit(output.encode(errors="replace")) if "<testsuite" in output else None
    return _sum(tally)


def _read_summaries(text: str, *, succeeded: bool) -> list[Counts]:
    """What the summaries in a text say; without failures that a later summary of the same runner replaces."""
    tally: list[Counts] = []
    replaceable: dict[tuple[str, str], int] = {}
    open_sessions = 0
    for match in _SUMMARY.finditer(text):
        runner = str(match.lastgroup)
        if runner == "pytest_starts":
            open_sessions += 1
        elif runner == "make_ignored":
            # Whatever failed before was part of the recipe, and only its exit code was dropped.
            replaceable.clear()
        elif (counts := _counts(match)) is not None:
            key = (runner, re.sub(r"\d+", "", match[0]) if runner in _PER_LINE else "")
            before = replaceable.pop(key, None)
            if succeeded and before is not None and tally[before].failed:
                tally[before] = Counts()
            ends_session = runner == "pytest" and open_sessions == 1
            open_sessions -= runner == "pytest" and open_sessions > 0
            if runner not in _SEVERAL and not ends_session:
                replaceable[key] = len(tally)
            tally.append(counts)
    return tally


def has_lasting_summary(output: str) -> bool:
    """Whether output has a summary that its runner also prints when all tests pass. Gradle prints none then."""
    for match in _SUMMARY.finditer("\n" + output):
        is_zero_left_out = match.lastgroup == "mocha" and "pass" not in match[0]
        if match.lastgroup not in ("gradle", *_BETWEEN) and not is_zero_left_out:
            return True
    return "\n=== RUN" in output


def failure_without_count(output: str) -> str:
    """The last line in which a runner says that something failed, but not how many tests."""
    lines = [match[0].strip() for match in _FAILED_ELSEWHERE.finditer("\n" + output)]
    return " ".join(lines[-1].split()) if lines else ""


def was_retried(output: str) -> bool:
    """Whether tests failed at first and passed when the runner tried them again."""
    return _RETRIED.search("\n" + output) is not None


def failing_tests(output: str, most: int = 200) -> tuple[str, ...]:
    """The names of the tests that failed, if plain output has them: one for each test, the same in every run."""
    text = _without_captured("\n" + output)
    named = [next(filter(None, match.groups())) for match in _FAILED_TEST.finditer(text)]
    if not named:
        named = [match[1] for match in _FAILED_IN_LIST.finditer(text)]
    names = (_NO_PART_OF_NAME.sub("", name).strip() for name in named if not _TAP_EXCUSED.search(name))
    return tuple(dict.fromkeys(names))[:most]


def _without_captured(text: str) -> str:
    """Pytest's output without what failing tests printed, which may be the summaries of other tests."""
    start, end = _CAPTURED.search(text), text.rfind("\n=", 0, text.rfind("= short test summary info ="))
    return text[: start.start()] + text[end:] if start and end > start.start() else text


def _sum(tally: list[Counts]) -> Counts:
    return Counts(sum(t.passed for t in tally), sum(t.failed for t in tally), sum(t.skipped for t in tally))


def _counts(match: re.Match[str]) -> Counts | None:
    """What one summary says; None where its numbers are not of tests."""
    if match.lastgroup in _WORD_FIRST:
        pairs = _WORD_NUMBER.findall(match[0])
    else:
        pairs = [(word, number) for number, word in _NUMBER_WORD.findall(match[0])]
    tally: Counter[str] = Counter()
    for word, number in pairs:
        if meaning := _WORDS.get(word.lower()):
            tally[meaning] += int(number)
    if not tally and "no tests" not in match[0].lower():
        return None
    rest = max(tally["total"] - tally["failed"] - tally["skipped"], 0)
    return Counts(tally.get("passed", rest), tally["failed"], tally["skipped"])


def _statuses(text: str) -> Counts | None:
    """The tests of Go, which has no summary: only with -v or -json does it name those that pass."""
    found: Counter[str] = Counter()
    if "\n=== RUN" in text:
        found.update(match[1].lower() for match in _GO.finditer(text))
    found.update(match[1] for match in _GO_JSON.finditer(text) if '"Test":' in match[0])
    return Counts(found["pass"], found["fail"], found["skip"]) if found else None


def _tap(match: re.Match[str]) -> str:
    directive = match[2].lower()
    if "# skip" in directive or "# todo" in directive:
        return "skipped"
    return "passed" if match[1] == "ok" else "failed"


def count_junit(xml: bytes) -> Counts | None:
    """The tests in a JUnit report, by the attributes of its outermost suites; nothing in it is expanded."""
    suites = list(_outermost(xml))
    return _sum(suites) if suites else None


def _outermost(xml: bytes) -> Iterator[Counts]:
    depth = 0
    for match in _SUITE.finditer(xml):
        if match[2]:
            depth = max(depth - 1, 0)
        elif match[1] is not None:
            counts = {name: int(number) for name, number in _COUNT.findall(match[1])}
            if depth == 0 and b"tests" in counts:
                failed = counts.get(b"failures", 0) + counts.get(b"errors", 0)
                skipped = counts.get(b"skipped", 0) + counts.get(b"disabled", 0)
                yield Counts(max(counts[b"tests"] - failed - skipped, 0), failed, skipped)
            depth += not match[1].endswith(b"/")
