"""What test runners print: how many tests ran, passed, failed and were skipped, and the names of those that failed.

Every pattern here is tried once per line and takes time in proportion to it, however large or hostile the output is.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ralph.core.checks import Counts
from ralph.core.text import regex

MAX_NAMES = 200
"""Failing tests that are named."""
_WORDS = {
    **dict.fromkeys(("passed", "pass", "passing", "xpassed", "flaky"), "passed"),
    **dict.fromkeys(("failed", "fail", "failing", "failure", "failures", "error", "errors", "cancelled"), "failed"),
    **dict.fromkeys(("unexpected successes", "interrupted"), "failed"),
    **dict.fromkeys(("skipped", "skip", "skips", "pending", "ignored", "todo", "incomplete"), "skipped"),
    **dict.fromkeys(("xfailed", "expected failures"), "skipped"),
    **dict.fromkeys(("tests", "test", "total", "run", "runs", "ran", "examples", "example", "completed"), "total"),
    **dict.fromkeys(("doctest", "doctests"), "total"),
}


@dataclass(frozen=True)
class _Runner:
    """How one test runner sums up, and what is special about its summaries."""

    summary: str
    """The pattern of a summary, from the start of a line."""
    command: str = ""
    """The pattern of a command that starts nothing but this runner."""
    has_words_first: bool = False
    """`Failures: 2` instead of `2 failed`."""
    prints_several: bool = False
    """It prints a summary for each binary, module or project of one run, or leaves out what is zero."""
    prints_lines: bool = False
    """Its summary is one line for each kind of result, zeros included."""
    needs_failures: bool = False
    """It prints no summary if all tests pass."""


_RUNNERS = {
    "pytest": _Runner(
        r"(?:=+ )?(?:(?:\d{1,7} (?:failed|(?:subtests )?passed|skipped|deselected|xfailed|xpassed|warnings?|errors?|rerun)"
        r"(?:, | in )){1,12}|no tests ran in )[\d.]+s",
        command=r"pytest|py\.test",
    ),
    "jest": _Runner(  # and vitest
        r"Tests:? +\d{1,7} (?:failed|passed|skipped|pending|todo)\b[^\n]*", command="jest|vitest"
    ),
    "bun": _Runner(r"\d{1,7} (?:pass|fail|skip)(?=\n|\Z)", command="bun test", prints_lines=True),
    "mocha": _Runner(  # and playwright
        r"\d{1,7} (?:passing|passed|failing|failed|skipped|pending|todo|flaky|interrupted)(?: \([\w.]+\))?(?=\n|\Z)",
        command="mocha|playwright test",
        prints_several=True,
    ),
    "cargo": _Runner(r"test result: \w+\. \d[^\n]*", command="cargo test", prints_several=True),
    "nextest": _Runner(r"Summary \[[^\]\n]*\] +\d{1,7} tests? run: [^\n]*", command="cargo nextest"),
    "deno": _Runner(r"(?:ok|FAILED) \| \d[^\n]*", command="deno test"),
    "gradle": _Runner(r"\d{1,7} tests? completed[^\n]*", prints_several=True, needs_failures=True),
    "rspec": _Runner(r"\d{1,7} examples?, \d{1,7} failures?[^\n]*", command="rspec"),
    "minitest": _Runner(r"\d{1,7} runs, \d{1,7} assertions, [^\n]*"),
    "mix": _Runner(r"(?:\d{1,7} doctests?, )?\d{1,7} tests?, \d{1,7} failures?[^\n]*", command="mix test"),
    "phpunit_ok": _Runner(r"OK \(\d{1,7} tests?, \d{1,7} assertions?\)", command="phpunit"),
    "phpunit": _Runner(r"Tests: \d{1,7}, Assertions: [^\n]*", command="phpunit", has_words_first=True),
    "unittest": _Runner(
        r"Ran \d{1,7} tests? in [\d.]+s\n+(?:OK|FAILED|NO TESTS RAN)[^\n]*", command="unittest", has_words_first=True
    ),
    "node": _Runner(
        r"(?:#|ℹ) (?:pass|fail|cancelled|skipped|todo) \d{1,7}(?=\n|\Z)",
        command="node --test",
        has_words_first=True,
        prints_lines=True,
    ),
    "surefire": _Runner(
        r"Tests run: \d{1,7}, Failures: \d{1,7}, Errors: \d{1,7}, Skipped: \d{1,7}(?:, Flakes: \d{1,7})?[ \t]*(?=\n|\Z)",
        has_words_first=True,
        prints_several=True,
    ),
    "dotnet": _Runner(
        r"(?:Passed|Failed)! +- +Failed: +\d[^\n]*", command="dotnet test", has_words_first=True, prints_several=True
    ),
    "gtest": _Runner(r"\[  (?:PASSED |FAILED |SKIPPED) \] \d{1,7} tests?(?=[.,\n]|\Z)", prints_several=True),
    "ctest": _Runner(r"\d{1,3}% tests passed, \d{1,7} tests? failed out of \d{1,7}", command="ctest"),
    "xctest": _Runner(
        # Every suite prints such a line. The one of all tests has the sum.
        r"Test Suite '(?:All|Selected) tests' \w+ at [^\n]*\n[ \t]*Executed \d{1,7} tests?, with [^\n]*?\d{1,7} failures?",
        command="swift test",
    ),
    "swift_testing": _Runner(r"[✔✘✖] Test run with \d{1,7} tests?[^\n]*", command="swift test"),
}
_SESSION_STARTS = r"(?P<pytest_starts>=+ test session starts =+)"
"""The line that tells whether two summaries of pytest are of one run or of two."""
_FORMS = "|".join((*(f"(?P<{name}>{runner.summary})" for name, runner in _RUNNERS.items()), _SESSION_STARTS))
_SUMMARY = regex(rf"\n[ \t]*+(?:\[\w{{1,9}}\] )?(?:{_FORMS})")
"""The summaries of test runners; the group that matches is the name of the runner."""
_PREFIX = r"(?:[\w.-]{1,40} +\| ?|[\w@./-]{1,40}:[\w.-]{1,30}: |py[\w.-]{1,20}: )"
"""What compose (`app-1  | `), turbo (`web:test: `) and tox (`py311: `) print before a line of a runner."""
_PREFIXED_SUMMARY = regex(rf"\n{_PREFIX}[ \t]*+(?:{_FORMS})")
_PREFIX_OF_LINE = regex(rf"\n{_PREFIX}")
_JOINS_COMMANDS = regex(r"&&|\|\||[;|\n]")
_LAUNCHER = (
    r"\s*(?:[A-Za-z_]\w*=\S*\s+)*"
    r"(?:(?:uv|poetry|pipenv|pdm) run |npx (?:--no-install )?|(?:\S*/)?python[\d.]* (?:-\w )*-m )?"
)
_IS_NO_RUNNER = regex(r"\s*(?:cd\s+\S+|export\s.*|set\s+-\w+|(?:[A-Za-z_]\w*=\S*\s*)+|)\s*")
_FAILED_ELSEWHERE = regex(
    r"\n(?:Test Suites: +\d+ failed\b"  # jest
    r"|[ \t]*Test Files +\d+ failed\b"  # vitest
    r"|[ \t]*py[\w.-]{1,20}: FAIL code \d"  # tox
    r"|FAIL\t\S+ \[\w+ failed\])[^\n]*"  # go, for a package that does not build
)
"""How runners say that something failed without a count of tests: a package, or a file that could not be loaded."""
_FAILED_GO_PACKAGE = regex(r"\n(?P<before>[^\n]*)(?=\n(?P<package>FAIL\t\S+\t[\d.]{1,20}s))")
_ENDS_GO_PROGRAM = regex(r"(?:FAIL|exit status|signal:|panic:|coverage:|ok[ \t]|\?[ \t])")
"""What stands before the line of a failed package, if it is not a line that a test printed."""
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
    r"|\n[ \t]*--- FAIL: (\S+) \([\d.]{1,20}s\)(?=\n|\Z)"  # go
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
    r"|\n\[  FAILED  \] (\w[^\s,]*\.[^\s,]+)"  # gtest
    r"|\n[ \t]+\d+ - (\S+) \((?:Failed|Timeout|SEGFAULT|Child aborted|Subprocess aborted|Not Run)\)"  # ctest
    r"|\nTest Case '([^'\n]{1,200})' failed \("  # XCTest
    r"|\n[✘✖] Test (?!run with \d)(\S[^\n]{0,200}?) failed after "  # swift testing
    r"|\n[ \t]*Failed (\S[^\n]{0,200}) \[\d[\d.]{0,20} ?m?s\]"  # dotnet
)
_FAILED_IN_LIST = regex(r"\n[ \t]*×[ \t]+(\S[^\n]{0,200} > [^\n]{1,200})")
"""A test in vitest's list of what it runs. The list leaves out the file, which the line with FAIL has."""
_NO_PART_OF_NAME = regex(
    r"[ \t]+(?:\(retry x\d+\)|[(\[]?\d[\d.]{0,20} ?(?:ms|s)[)\]]?|# time=\S+|-- Time elapsed:.*)(?=[ \t]|\Z)|(?<=\.rb):\d+(?= # )"
)
"""How long a test took, or if it stands: it differs from run to run, and the name does not."""
_GO_LINE = regex(
    r"\n(?:=== RUN +(?P<started>\S+)|[ \t]*--- (?P<status>PASS|FAIL|SKIP): (?P<test>\S+) \([\d.]{1,20}s\)(?=\n|\Z)"
    r"|(?P<end>PASS|FAIL)(?=\n|\Z)|(?P<package>(?:ok|FAIL)[ \t]+\S+[ \t]+(?:[\d.]{1,20}s|\(cached\))))"
)
_GO_JSON = regex(r'\n\{[^\n]*"Action":"(pass|fail|skip)"[^\n]*')
_GO_PACKAGE = regex(
    r"\n(?:(?P<runs>=== RUN )|(?:ok|FAIL)[ \t]+(?P<package>\S+)[ \t]+(?:[\d.]{1,20}s|\(cached\))"
    r"|[?][ \t]+(?P<untested>\S+)|FAIL[ \t]+\S+ \[)"
)
"""A test that starts, and the line that ends what `go test` prints about a package."""
_TAP = regex(r"\n(ok|not ok)\b([^\n]*)")
_TAP_EXCUSED = regex(r"(?i)# (?:skip|todo)\b")
_TAP_PLAN = regex(r"\n1\.\.\d")
_SUITE = regex(rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<testsuite\s([^<>]*)>|(</testsuite>)", re.DOTALL)
_COUNT = regex(rb"\b(tests|failures|errors|skipped|disabled)\s*=\s*[\"'](\d{1,9})[\"']")


def count_tests(output: str, *, command: str = "", succeeded: bool = False, is_sequence: bool = False) -> Counts | None:
    """How many tests passed, failed and were skipped, over all summaries that plain output has.

    Every summary counts, not only the last one: a script that runs two suites exits with what the second one says. If the
    command starts known runners only, summaries of other runners are something that a test printed. If it succeeded, so are
    the sessions of pytest that started and ended within another one.
    """
    text = _drop_captured("\n" + _strip_prefixes(output))
    expected = _read_runners(command)
    tally = _read_summaries(text, succeeded=succeeded and not is_sequence, expected=expected)
    if go := _count_go(text):
        tally.append(("go", go))
    if not tally and _TAP_PLAN.search(text):
        tally.append(("tap", Counts(**Counter(_read_tap(match) for match in _TAP.finditer(text)))))
    if not tally:
        return count_junit(output.encode(errors="replace")) if "<testsuite" in output else None
    total = _add_up([counts for _, counts in tally])
    return total if is_sequence else replace(total, repeated=_count_repeated(tally))


def _strip_prefixes(output: str) -> str:
    """The output without what another tool prints before each line; lines of a runner without a prefix win."""
    text = "\n" + output
    if not _PREFIXED_SUMMARY.search(text) or _SUMMARY.search(text):
        return output
    return _PREFIX_OF_LINE.sub("\n", text).removeprefix("\n")


def _read_runners(command: str) -> frozenset[str]:
    """The runners that a command starts; empty if it may start others too, as `make test` may."""
    found: set[str] = set()
    for part in _JOINS_COMMANDS.split(command):
        started = {name for name, runner in _RUNNERS.items() if _starts_runner(part, runner.command)}
        if not started and "go test" in part:
            started = {"go"}
        if not started and not _IS_NO_RUNNER.fullmatch(part):
            return frozenset()
        found |= started
    return frozenset(found)


def _starts_runner(part: str, pattern: str) -> bool:
    return bool(pattern) and re.match(rf"{_LAUNCHER}(?:\S*/)?(?:{pattern})(?:\s|$)", part) is not None


def _read_summaries(text: str, *, succeeded: bool, expected: frozenset[str]) -> list[tuple[str, Counts]]:
    """What the summaries in a text say, each with its runner."""
    tally: list[tuple[str, Counts]] = []
    open_sessions = 0
    nested: list[int] = []
    for match in _SUMMARY.finditer(text):
        name = str(match.lastgroup)
        if name == "pytest_starts":
            open_sessions += 1
        elif (not expected or name in expected) and (counts := _read_counts(match)) is not None:
            if name == "pytest" and open_sessions > 1:
                nested.append(len(tally))
            elif name == "pytest" and open_sessions == 1:
                _pass_nested(tally, nested if succeeded else [])
                nested = []
            open_sessions -= name == "pytest" and open_sessions > 0
            tally.append((name, counts))
    if any(name == "ctest" for name, _ in tally):
        # A test of ctest is a program, which may be one of gtest: its own tests are in there.
        tally = [(name, counts) for name, counts in tally if name != "gtest"]
    return tally


def _pass_nested(tally: list[tuple[str, Counts]], nested: list[int]) -> None:
    """Count the tests of nested sessions as passed: whether they had to fail is for the outer session to say."""
    for index in nested:
        name, counts = tally[index]
        tally[index] = (name, Counts(counts.ran, 0, counts.skipped))


def _count_repeated(tally: list[tuple[str, Counts]]) -> int:
    """How many tests may be counted twice: all but those of the largest summary of a runner that prints one for each run."""
    sizes: dict[str, list[int]] = {}
    for name, counts in tally:
        runner = _RUNNERS.get(name)
        if runner and not runner.prints_several and not runner.prints_lines:
            sizes.setdefault(name, []).append(counts.ran)
    return sum(sum(ran) - max(ran) for ran in sizes.values())


def has_lasting_summary(output: str) -> bool:
    """Whether output has a summary that its runner also prints when all tests pass."""
    for match in _SUMMARY.finditer("\n" + _strip_prefixes(output)):
        name = str(match.lastgroup)
        is_zero_left_out = name == "mocha" and "pass" not in match[0]
        if name in _RUNNERS and not _RUNNERS[name].needs_failures and not is_zero_left_out:
            return True
    return "\n=== RUN" in output


def find_failure_line(output: str) -> str:
    """The last line in which a runner says that something failed, but not how many tests."""
    text = "\n" + output
    lines = [match[0] for match in _FAILED_ELSEWHERE.finditer(text)]
    is_verbose = "\n=== RUN" in text
    for match in _FAILED_GO_PACKAGE.finditer("\n" + text):
        # With -v, a test that passes may print such a line.
        if not is_verbose or _ENDS_GO_PROGRAM.match(match["before"]):
            lines.append(match["package"])
    return " ".join(lines[-1].split()) if lines else ""


def was_retried(output: str) -> bool:
    """Whether tests failed at first and passed when the runner tried them again."""
    return _RETRIED.search("\n" + output) is not None


def find_failing_tests(output: str, most: int = MAX_NAMES) -> tuple[str, ...]:
    """The names of the tests that failed, if plain output has them: one for each test, the same in every run."""
    text = _drop_captured("\n" + _strip_prefixes(output))
    named = [next(filter(None, match.groups())) for match in _FAILED_TEST.finditer(text)]
    if not named:
        named = [match[1] for match in _FAILED_IN_LIST.finditer(text)]
    names = (_NO_PART_OF_NAME.sub("", name).strip() for name in named if not _TAP_EXCUSED.search(name))
    return tuple(dict.fromkeys(names))[:most]


def _drop_captured(text: str) -> str:
    """Pytest's output without what failing tests printed, which may be the summaries of other tests."""
    start, end = _CAPTURED.search(text), text.rfind("\n=", 0, text.rfind("= short test summary info ="))
    return text[: start.start()] + text[end:] if start and end > start.start() else text


def _add_up(tally: list[Counts]) -> Counts:
    return Counts(sum(t.passed for t in tally), sum(t.failed for t in tally), sum(t.skipped for t in tally))


def _read_counts(match: re.Match[str]) -> Counts | None:
    """What one summary says; None if its numbers are not of tests."""
    name, text = str(match.lastgroup), match[0]
    if name in _READERS:
        return _READERS[name](text)
    if _RUNNERS[name].has_words_first:
        pairs = _WORD_NUMBER.findall(text)
    else:
        pairs = [(word, number) for number, word in _NUMBER_WORD.findall(text)]
    tally: Counter[str] = Counter()
    for word, number in pairs:
        if meaning := _WORDS.get(word.lower()):
            tally[meaning] += int(number)
    if not tally and "no tests" not in text.lower():
        return None
    rest = max(tally["total"] - tally["failed"] - tally["skipped"], 0)
    return Counts(tally.get("passed", rest), tally["failed"], tally["skipped"])


def _read_gtest(text: str) -> Counts:
    """`[  PASSED  ] 3 tests.`: a line for each kind of result."""
    number = int(re.findall(r"\d+", text)[-1])
    if "PASSED" in text:
        return Counts(number)
    return Counts(failed=number) if "FAILED" in text else Counts(skipped=number)


def _read_ctest(text: str) -> Counts:
    """`67% tests passed, 1 tests failed out of 3`."""
    failed, total = map(int, re.findall(r"\d+", text)[-2:])
    return Counts(max(total - failed, 0), failed)


def _read_xctest(text: str) -> Counts:
    """`Executed 3 tests, with 1 test skipped and 1 failure`."""
    numbers = [int(number) for number in re.findall(r"(\d+) (?:tests?|failures?)", text.partition("Executed")[2])]
    total, failed = numbers[0], numbers[-1]
    skipped = numbers[1] if len(numbers) > 2 else 0
    return Counts(max(total - failed - skipped, 0), failed, skipped)


def _read_swift_testing(text: str) -> Counts:
    """`Test run with 3 tests in 1 suite failed after 0.001 seconds with 1 issue.`: issues, not failing tests."""
    total = int(re.findall(r"with (\d+) test", text)[0])
    issues = re.findall(r"with (\d+) issue", text)
    failed = min(int(issues[0]), total) if issues and " failed " in text else 0
    return Counts(total - failed, failed)


_READERS: dict[str, Callable[[str], Counts]] = {
    "gtest": _read_gtest,
    "ctest": _read_ctest,
    "xctest": _read_xctest,
    "swift_testing": _read_swift_testing,
}


def _count_go(text: str) -> Counts | None:
    """The tests of Go, which has no summary: only with -v or -json does it name those that pass."""
    found: Counter[str] = Counter(match[1] for match in _GO_JSON.finditer(text) if '"Test":' in match[0])
    if "\n=== RUN" in text:
        found += _read_go_statuses(text)
    return Counts(found["pass"], found["fail"], found["skip"]) if found else None


def _read_go_statuses(text: str) -> Counter[str]:
    """The results of `go test -v`. A failure counts if that test was started and its package does not end in `PASS`."""
    found: Counter[str] = Counter()
    started: set[str] = set()
    failed = 0
    ends: set[str] = set()
    for match in _GO_LINE.finditer(text + "\nok end 0s"):
        if match["started"]:
            started.add(match["started"])
        elif match["status"] == "FAIL":
            failed += match["test"] in started
        elif match["status"]:
            found[match["status"].lower()] += 1
        elif match["end"]:
            ends.add(match["end"])
        else:
            found["fail"] += 0 if ends == {"PASS"} else failed
            started, failed, ends = set(), 0, set()
    return found


def read_go_packages(output: str) -> dict[str, bool]:
    """The packages that `go test` reports, and whether its output names a test that ran there: that needs `-v`."""
    found: dict[str, bool] = {}
    has_run = False
    for match in _GO_PACKAGE.finditer("\n" + output):
        if match["runs"]:
            has_run = True
            continue
        if package := match["package"] or match["untested"]:
            found[package] = has_run
        has_run = False
    return found


def _read_tap(match: re.Match[str]) -> str:
    directive = match[2].lower()
    if "# skip" in directive or "# todo" in directive:
        return "skipped"
    return "passed" if match[1] == "ok" else "failed"


def count_junit(xml: bytes) -> Counts | None:
    """The tests in a JUnit report, by the attributes of its outermost suites; nothing in it is expanded."""
    suites = list(_find_outermost_suites(xml))
    return _add_up(suites) if suites else None


def _find_outermost_suites(xml: bytes) -> Iterator[Counts]:
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
