"""Which tests ran, by name: asked from test runners without changing the user's command, or read from what they print.

A check runs with an environment that makes its test runners write a report into a directory of that one check, outside the
workspace. What they print stays as it is. `read_named_tests` turns the reports and the output into one value, `NamedTests`.

| runner | how |
| --- | --- |
| pytest | PYTEST_ADDOPTS asks for a JUnit report |
| vitest, jest, mocha | NODE_OPTIONS loads `reporters/node_hook.cjs` |
| go test | a `go` on the PATH runs `reporters/go_test.py` |
| Maven, Gradle | the reports that they write anyway, if they were written during the check |
| cargo test, nextest, node --test, unittest -v, dotnet | what they print, if it names every test |

A test has one name in every run and in every directory: without durations, addresses in memory and absolute paths.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ralph.core.checks import Counts, NamedTests
from ralph.core.text import regex

RESULTS = "test-results"
"""The directory in the run directory where each check has its own for reports."""
_REPORTERS = Path(__file__).with_name("reporters")
LARGEST = 64 * 1024 * 1024
"""Bytes of a report that is read."""
MAX_REPORTS = 20_000
"""Reports of Maven or Gradle that are read."""
_BUILD_REPORT = re.compile(
    r"/target/(?:surefire|failsafe)-reports/TEST-[^/]+\.xml$|/build/test-results/.*/TEST-[^/]+\.xml$"
)
_NOT_SEARCHED = frozenset((".git", "node_modules", ".venv", "venv", ".ralph", ".ralph-sessions", ".gradle", "src"))
_ADDRESS = regex(r"\b0x[0-9a-fA-F]{6,16}\b")
_USES_NODE = regex(r"\b(?:node|npm|npx|yarn|pnpm|vitest|jest|mocha|bun)\b")
_USES_GO = regex(r"\bgo\b")
_USES_JAVA = regex(r"\b(?:mvnw?|gradlew?)\b")
_JAVA_BUILDS = ("pom.xml", "build.gradle", "build.gradle.kts")
_VARIANT = regex(r"\[.*\Z|(?<= > )([^/ ]+)/.*\Z", re.DOTALL)
"""What follows the name of a test in the name of one of its variants: `test_x[1-a]`, `pkg > TestX/case`."""
_LAST_PART = regex(r"::|[.(]")


def request_reports(
    environment: Mapping[str, str], directory: Path, *, command: str, workspace: Path
) -> dict[str, str]:
    """The environment of a check in which test runners write reports into an empty directory."""
    asked = dict(environment)
    asked["PYTEST_ADDOPTS"] = _join(
        environment.get("PYTEST_ADDOPTS"),
        shlex.join([f"--junitxml={directory / 'pytest.xml'}", "-o", "junit_family=xunit1"]),
    )
    if _USES_NODE.search(command) or (workspace / "package.json").exists():
        asked["NODE_OPTIONS"] = _join(
            environment.get("NODE_OPTIONS"), f"--require {json.dumps(str(_REPORTERS / 'node_hook.cjs'))}"
        )
        asked["RALPH_TEST_RESULTS"] = str(directory)
    go = shutil.which("go", path=environment.get("PATH"))
    if go and (_USES_GO.search(command) or (workspace / "go.mod").exists()):
        asked["PATH"] = f"{_write_go(directory, go)}{os.pathsep}{environment.get('PATH', '')}"
    return asked


def _join(known: str | None, ours: str) -> str:
    return f"{known} {ours}" if known else ours


def _write_go(directory: Path, real: str) -> Path:
    """A directory with a `go` that reports tests. All other commands of Go are started as they are."""
    programs = directory / "bin"
    programs.mkdir()
    program = programs / "go"
    python, script = shlex.quote(sys.executable), shlex.quote(str(_REPORTERS / "go_test.py"))
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = test ] && [ -x {python} ]; then\n'
        f'  exec {python} -I -S {script} {shlex.quote(real)} {shlex.quote(str(directory))} "$@"\nfi\n'
        f'exec {shlex.quote(real)} "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return programs


def was_refused(output: str, directory: Path) -> bool:
    """Whether a runner stumbled over what Ralph asked it for. Then the check has to run without it."""
    return f"--junitxml={directory}" in output or "node_hook.cjs" in output


def read_named_tests(
    reports: Sequence[Path], workspace: Path, output: str, *, command: str, since: float, counts: Counts | None
) -> NamedTests | None:
    """The tests of a check by name; None if not all of them are known.

    `reports` were written for this check. `counts` is what the output sums up. If it has more tests than the reports, a report
    was written over by the next run of the same runner, and the names say too little.
    """
    tests = _Tests()
    for report in reports:
        if report.suffix in (".xml", ".json", ".jsonl") and report.stat().st_size <= LARGEST:
            _read_report(report, workspace, tests)
    if not tests.is_empty:
        return tests.make(counts)
    if _USES_JAVA.search(command) or any((workspace / name).exists() for name in _JAVA_BUILDS):
        for report in _find_build_reports(workspace, since):
            _read_build_report(report, tests)
    if tests.is_empty:
        for name, status in read_printed_tests(output):
            tests.add(name, status)
    return None if tests.is_empty else tests.make(counts)


class _Tests:
    """The tests that were read so far."""

    def __init__(self) -> None:
        self._statuses: dict[str, str] = {}
        self._silent: list[str] = []

    @property
    def is_empty(self) -> bool:
        return not self._statuses and not self._silent

    def add(self, name: str, status: str) -> None:
        """Add a test; if there are several of that name, they are numbered."""
        name = _ADDRESS.sub("0x", " ".join(name.split()))
        number, unique = 1, name
        while unique in self._statuses:
            number += 1
            unique = f"{name} #{number}"
        self._statuses[unique] = status

    def add_silent(self, part: str) -> None:
        self._silent.append(part)

    def make(self, counts: Counts | None) -> NamedTests | None:
        named = NamedTests(
            passed=self._select("passed"),
            failed=self._select("failed"),
            skipped=self._select("skipped"),
            silent=tuple(sorted(self._silent)),
        )
        if counts and (counts.ran - counts.repeated > len(named.ran) or counts.failed > len(named.failed)):
            return None
        return named

    def _select(self, status: str) -> tuple[str, ...]:
        return tuple(name for name, known in self._statuses.items() if known == status)


def _read_report(report: Path, workspace: Path, tests: _Tests) -> None:
    """Add the tests of one report that a runner wrote for this check."""
    try:
        data = report.read_bytes()
        if report.suffix == ".xml":
            for case in _read_cases(data):
                tests.add(_name_pytest(case), _read_status(case))
        elif report.suffix == ".jsonl":
            _read_go(data.decode(errors="replace").splitlines(), tests)
        else:
            for name, status in _read_node(json.loads(data), workspace):
                tests.add(name, status)
    except (OSError, ValueError, ElementTree.ParseError, AttributeError, TypeError, KeyError):
        # A report that was cut says nothing; then what the runner printed counts.
        return


def _read_cases(data: bytes) -> Iterator[ElementTree.Element]:
    if b"<!DOCTYPE" in data[:4096] or b"<!ENTITY" in data[:4096]:
        return
    yield from ElementTree.fromstring(data).iter("testcase")


def _read_status(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def _name_pytest(case: ElementTree.Element) -> str:
    """The node id of a test, as pytest prints it."""
    file, dotted, name = case.get("file", ""), case.get("classname", ""), case.get("name", "")
    if not dotted:
        # A file that could not be collected is in the report as one test, with the module as its name.
        return file or name.replace(".", "/") + ".py"
    if not file:
        return f"{dotted}::{name}"
    module = file.removesuffix(".py").replace("/", ".")
    classes = dotted.removeprefix(module).strip(".")
    return "::".join([file, *(classes.split(".") if classes else ()), name])


def _read_go(lines: Iterable[str], tests: _Tests) -> None:
    """The events of `go test -json`: a test without an end did not pass."""
    started: dict[tuple[str, str], str] = {}
    passed: list[str] = []
    for line in lines:
        event = json.loads(line)
        package, test, action = event.get("Package", ""), event.get("Test", ""), event.get("Action", "")
        if test and action == "run":
            started[package, test] = "failed"
        elif test and action in ("pass", "fail", "skip"):
            started[package, test] = {"pass": "passed", "fail": "failed", "skip": "skipped"}[action]
        elif action == "pass":
            passed.append(package)
    for (package, test), status in started.items():
        tests.add(f"{package} > {test}", status)
    busy = {package for package, _ in started}
    for package in passed:
        if package not in busy:
            tests.add_silent(package)


def _read_node(data: Mapping[str, Any], workspace: Path) -> Iterator[tuple[str, str]]:
    """The report of vitest, jest or mocha."""
    if "mocha" in data:
        for test in data["mocha"]:
            yield " > ".join([_shorten(test["file"], workspace), *test["title"]]), test["status"]
        return
    for suite in data.get("testResults", ()):
        file = _shorten(suite.get("name") or suite.get("testFilePath", ""), workspace)
        if not suite.get("assertionResults") and suite.get("status") == "failed":
            yield file, "failed"
        for test in suite.get("assertionResults", ()):
            status = str(test.get("status", ""))
            known = status if status in ("passed", "failed") else "skipped"
            yield " > ".join([file, *test.get("ancestorTitles", ()), str(test.get("title", ""))]), known


def _shorten(file: str, workspace: Path) -> str:
    for root in (workspace, workspace.resolve()):
        if file.startswith(f"{root}/"):
            return file.removeprefix(f"{root}/")
    return file


def _find_build_reports(workspace: Path, since: float) -> list[Path]:
    """The reports of Maven and Gradle that were written during the check.

    The time of the last change of a file cannot be set by a program, unlike the time of its last modification.
    """
    found: list[Path] = []
    for directory, names, files in os.walk(workspace):
        is_output = "/target" in directory or "/build" in directory
        names[:] = [name for name in names if name not in _NOT_SEARCHED or is_output]
        if not files or not is_output:
            continue
        for name in files:
            path = Path(directory, name)
            if _BUILD_REPORT.search(str(path)) and path.stat().st_ctime >= since - 1:
                found.append(path)
        if len(found) > MAX_REPORTS:
            return []
    return sorted(found)


def _read_build_report(report: Path, tests: _Tests) -> None:
    try:
        for case in _read_cases(report.read_bytes()):
            tests.add(f"{case.get('classname', '')}.{case.get('name', '')}", _read_status(case))
    except (OSError, ElementTree.ParseError):
        return


_CARGO_LINE = regex(
    r"\n[ \t]*(?:Running (?P<target>[^\n(]*)\((?:[^\n)]*/)?(?P<binary>[\w.-]+?)(?:-[0-9a-f]{16})?(?:\.exe)?\)"
    r"|Doc-tests (?P<doctests>[\w-]+)"
    r"|test (?P<test>[^\n]+?)(?: - should panic)? \.\.\. (?P<status>ok|FAILED|ignored)\b)"
)
_NEXTEST = regex(
    r"\n[ \t]*(?:TRY \d+ )?(?P<status>PASS|FAIL|LEAK|SKIP|ABORT|SIGSEGV|TIMEOUT) \[[^\]\n]*\] (?:\([^)\n]*\) )?(?P<test>\S+ \S+)"
)
_UNITTEST = regex(
    r"\n(?P<test>\w+ \([\w.]+\))(?:\n[^\n]*?)? \.\.\. (?P<status>ok|FAIL|ERROR|skipped|expected failure)\b"
)
_TAP_LINE = regex(
    r"\n(?P<indent>[ ]*)(?:(?P<status>ok|not ok) \d+(?: -)? (?P<test>[^\n]*)|# Subtest: (?P<opens>[^\n]*))"
)
_TAP_SUITE = regex(r"\n[ ]*type: 'suite'")
_DOTNET = regex(r"\n[ \t]*(?P<status>Passed|Failed|Skipped) (?P<test>\S[^\n]{0,300}?) \[(?:< )?[\d.,]{1,20} ?m?s\]")
_DURATION = regex(r"[ \t]+(?:# (?:SKIP|TODO)\b[^\n]*|\(\d[\d.]{0,20} ?m?s\))")
_STATUS = {
    **dict.fromkeys(("ok", "PASS", "LEAK", "Passed"), "passed"),
    **dict.fromkeys(("FAILED", "FAIL", "ERROR", "ABORT", "SIGSEGV", "TIMEOUT", "Failed", "not ok"), "failed"),
    **dict.fromkeys(("ignored", "skipped", "expected failure", "SKIP", "Skipped"), "skipped"),
}


def read_printed_tests(output: str) -> list[tuple[str, str]]:
    """The tests that a runner names while it runs them, each with its status, if it names all of them."""
    text = "\n" + output
    if "\ntest result: " in text:
        return list(_read_cargo(text))
    if "\n1.." in text and "# Subtest: " in text:
        return list(_read_node_tap(text))
    for pattern in (_NEXTEST, _UNITTEST, _DOTNET):
        found = [(match["test"], _STATUS[match["status"]]) for match in pattern.finditer(text)]
        if found:
            # A test that was tried again counts as it ended.
            return list(dict(found).items())
    return []


def _read_cargo(text: str) -> Iterator[tuple[str, str]]:
    binary = ""
    for match in _CARGO_LINE.finditer(text):
        if match["binary"]:
            binary = match["binary"]
        elif match["doctests"]:
            binary = f"{match['doctests']} doc"
        else:
            yield f"{binary} {match['test']}".strip(), _STATUS[match["status"]]


def _read_node_tap(text: str) -> Iterator[tuple[str, str]]:
    """The tests of `node --test`, which prints TAP with a level of indentation for each suite around a test."""
    open_suites: list[str] = []
    for match in _TAP_LINE.finditer(text):
        level = len(match["indent"]) // 4
        if match["opens"] is not None:
            open_suites = [*open_suites[:level], match["opens"]]
            continue
        name = _DURATION.sub("", match["test"]).strip()
        after = text[match.end() : match.end() + 400].partition("...")[0]
        is_suite = bool(_TAP_SUITE.search(after))
        path = [*open_suites[:level], name]
        open_suites = open_suites[:level]
        if is_suite:
            continue
        status = "skipped" if re.search(r"(?i)# (?:skip|todo)\b", match["test"]) else _STATUS[match["status"]]
        yield " > ".join(path), status


def find_missing_tests(before: NamedTests, now: NamedTests) -> list[str]:
    """The tests that ran before and do not run now. Variants of a test may come and go with the data that they are made from."""
    ran = {_strip_variant(name) for name in now.ran}
    return [name for name in before.ran if _strip_variant(name) not in ran]


def find_own_name(name: str) -> str:
    """The part of a test's name that is in its source: the function, or the title."""
    plain = _strip_variant(name).rstrip(")")
    if " > " in plain:
        return plain.rpartition(" > ")[2]
    return _LAST_PART.split(plain)[-1].strip()


def _strip_variant(name: str) -> str:
    return _VARIANT.sub(lambda found: found[1] or "", name)


def drop_report_lines(output: str, directory: Path) -> str:
    """The output without the lines in which a runner says where it wrote its report."""
    place = f"{RESULTS}/{directory.name}/"
    if place not in output:
        return output
    return "".join(line for line in output.splitlines(keepends=True) if place not in line)
