"""Run checks: commands under the keeper, without the agents' keys, with their output as evidence; and checks of files."""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ralph.core.check_output import excerpt_output
from ralph.core.checks import Check, CheckResult, CheckStatus, Counts, Measure, Verdict
from ralph.core.errors import StateError
from ralph.core.redaction import without_agent_keys
from ralph.core.text import count
from ralph.store.files import open_regular
from ralph.supervisor.client import JobExit, JobRequest, KeeperClient, KeeperLost, end
from ralph.supervisor.network_proxy import read_denied
from ralph.supervisor.processes import CHECK_MARK, end_marked
from ralph.verify import measures
from ralph.verify.results import RESULTS, drop_report_lines, read_named_tests, request_reports, was_refused
from ralph.verify.summaries import (
    MAX_NAMES,
    count_junit,
    count_tests,
    find_failing_tests,
    find_failure_line,
    was_retried,
)

OUTPUT_KEPT = 6000
"""How many characters of a check's output are quoted; the whole is in its log."""
HEAD_READ, TAIL_READ = 1024 * 1024, 3 * 1024 * 1024
"""How much of a check's output is searched for numbers; summaries stand at its end."""
_NOT_FOUND = re.compile(r"(\S+): (?:command )?not found$", re.MULTILINE)
_JUNIT = re.compile(r"--junit-?xml[= ]\s*[\"']?([^\s\"';|&]+)")
_SEARCHES = re.compile(r"(?:^|[|;&]\s*)(?:git\s+grep|(?:\S*/)?(?:[efz]?grep|rg|ag|ack))\s[^|;&]*$")
"""A command that ends in a search: it exits with 1 if it finds nothing."""
_MUST_FAIL = re.compile(r"\s*!\s")
"""A command that must fail: its output may count failures when the check passes."""
_EXIT_COUNTS = ("coverage", "tests", "skipped")
"""Metrics that mean something only if the command itself passes. Linters exit with another code if they find something."""
FILE_READ = 4 * 1024 * 1024
"""How much of a file is searched, and of a test report."""
_CITED = re.compile(r"`([^`\s:]+):(\d+)(?:-(\d+))?`")
_FINDING = re.compile(r"^### (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r"[\d.]+|localhost|.*//.*")
MAX_FAULTS = 5


@dataclass(frozen=True)
class CheckRunner:
    """Runs the checks of one run in its workspace."""

    run_dir: Path
    run_id: str
    workspace: Path
    keeper: KeeperClient
    environment: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    isolate: Callable[[JobRequest], JobRequest] = lambda job: job
    """Puts a check into the sandbox: it runs code that agents wrote."""
    files: Path | None = None
    """Where the files of the workspace are, if another directory is mounted over it for the checks."""

    async def run(self, key: str, checks: Sequence[Check]) -> Verdict:
        """Run them one after the other, all of them, so that the next prompt can name every failure."""
        results = [await self._run_one(key, number, check) for number, check in enumerate(checks, 1)]
        return Verdict(tuple(results))

    async def run_one(self, key: str, check: Check) -> CheckResult:
        """Run a single check."""
        return await self._run_one(key, 1, check)

    async def _run_one(self, key: str, number: int, check: Check) -> CheckResult:
        if check.path:
            status, reason = look_at_file(self.files or self.workspace, check)
            return CheckResult(check.title, status, 0.0, reason=reason)
        reports = self.run_dir / RESULTS / f"{key}-{number}"
        shutil.rmtree(reports, ignore_errors=True)
        reports.mkdir(parents=True, mode=0o700)
        try:
            environment = request_reports(self.environment, reports, command=check.command, workspace=self.workspace)
            result = await self._run_command(check, f"{key}-{number}", environment, reports)
            printed = read_output(self.run_dir / result.log) if result.status is CheckStatus.FAILED else ""
            if was_refused(printed, reports):
                result = await self._run_command(check, f"{key}-{number}", self.environment, reports)
        finally:
            shutil.rmtree(reports, ignore_errors=True)
        return result

    async def _run_command(self, check: Check, name: str, environment: Mapping[str, str], reports: Path) -> CheckResult:
        directory = self.run_dir / "checks" / name
        mark = f"{self.run_id}/{name}"
        await self._clear(directory, mark)
        job = JobRequest(
            directory,
            ("/bin/sh", "-c", check.command),
            {**environment, CHECK_MARK: mark},
            self.workspace,
            wall=check.timeout,
            grace=2.0,
            merge=True,
            durable=False,
            secrets=self.secrets,
        )
        try:
            ended = await self.keeper.run(self.isolate(job))
        except KeeperLost:
            end_marked(CHECK_MARK, mark)
            lost = "its keeper was killed"
            return CheckResult(check.title, CheckStatus.COULD_NOT_RUN, 0.0, reason=lost, command=check.command)
        except asyncio.CancelledError:
            await end(directory, "stopped")
            raise
        return self._make_result(check, ended, directory, reports)

    async def _clear(self, directory: Path, mark: str) -> None:
        """End and forget a run of the same check that an earlier engine left behind."""
        if directory.is_dir():
            await end(directory, "stopped")
            end_marked(CHECK_MARK, mark)
            shutil.rmtree(directory)
        elif os.path.lexists(directory):
            directory.unlink()

    def _make_result(self, check: Check, ended: JobExit, directory: Path, reports: Path) -> CheckResult:
        text = read_output(directory / "stdout") if ended.has_output("stdout") else ""
        text = drop_report_lines(text, reports)
        own_report = self._find_report(check.command, ended.started_at)
        reported = count_junit(read_start(own_report)) if own_report else None
        tests = reported or count_tests(
            text,
            command=check.command,
            succeeded=ended.code == 0,
            is_sequence=runs_several_commands(check.command),
        )
        written = [own_report] if own_report else sorted(reports.glob("*"))
        named = read_named_tests(
            written, self.workspace, text, command=check.command, since=ended.started_at, counts=tests
        )
        if tests is None and named:
            tests = named.counts
        value = measures.read_measure(check.measure, text, tests, ended.code) if check.measure else None
        status, reason = judge(check, ended, text, self.environment.get("PATH"), tests=tests, value=value)
        if reason and (denied := read_denied(str(directory))):
            reason += f"; the sandbox denied it {', '.join(denied)}. To allow it: ralph allow {' '.join(denied)}"
        near = check.measure.nearness(value) if check.measure and value is not None else None
        failed = status is CheckStatus.FAILED
        output, left_out = excerpt_output(text, OUTPUT_KEPT)
        # A failure set drops absolute directories. Those in the workspace distinguish files of the same name.
        relative = text.replace(f"{self.workspace}/", "")
        return CheckResult(
            title=check.title,
            status=status,
            seconds=round(ended.ended_at - ended.started_at, 3),
            code=ended.code,
            reason=reason,
            output=output,
            log=str((directory / "stdout").relative_to(self.run_dir)),
            command=check.command,
            value=value,
            nearness=None if near == 1.0 and status is not CheckStatus.PASSED else near,
            tests=tests,
            named=named,
            failing=(named.failed[:MAX_NAMES] if named else find_failing_tests(text)) if failed else (),
            failures=measures.read_failure_set(check, relative, tests, value) if failed else None,
            flaky=was_retried(text),
            left_out=left_out,
        )

    def _find_report(self, command: str, since: float) -> Path | None:
        """The JUnit report that a command had to write, if it did."""
        match = _JUNIT.search(command)
        try:
            path = resolve_inside(self.files or self.workspace, match[1]) if match else None
        except (OSError, OutsideError):
            return None
        return path if path and path.is_file() and path.stat().st_mtime >= since - 1 else None


def runs_several_commands(command: str) -> bool:
    """Whether a shell continues after one of the commands failed: with `;`, `||` or a new line between them."""
    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an open quote: the shell refuses it, too
        return False
    return any(word in (";", "||") for word in words[:-1])


def judge(
    check: Check,
    ended: JobExit,
    text: str,
    path: str | None,
    *,
    tests: Counts | None = None,
    value: float | None = None,
) -> tuple[CheckStatus, str]:
    """What an exit says: passed, failed, or that nothing can be said."""
    if ended.reason == "wall":
        return CheckStatus.COULD_NOT_RUN, f"still running after {check.timeout:g} s"
    if ended.reason != "exit":
        return CheckStatus.COULD_NOT_RUN, ended.error or ended.reason
    if ended.signal is not None:
        return CheckStatus.COULD_NOT_RUN, f"killed by signal {ended.signal}"
    if ended.code == 127 and (program := _find_missing_program(text[-OUTPUT_KEPT:], path)):
        return CheckStatus.NOT_FOUND, f"{program} is not installed (or not on the PATH)"
    exits = _explain_exit(check, ended.code, text, tests)
    if check.measure:
        fault = _explain_measure(check.measure, value, exits)
    elif check.silent:
        is_empty_search = ended.code == 1 and _SEARCHES.search(check.command) is not None
        fault = _describe_output(text) or ("" if is_empty_search else exits)
    else:
        fault = exits
    return (CheckStatus.FAILED, fault) if fault else (CheckStatus.PASSED, "")


def _explain_exit(check: Check, code: int | None, text: str, tests: Counts | None) -> str:
    """Why an exit is no success; empty if it is one. Numbers beat exit code 0, which a recipe or the product can fake."""
    if code:
        return f"exit code {code}{_describe_counts(tests)}"
    if _MUST_FAIL.match(check.command):
        return ""
    if tests and tests.failed:
        return f"exit code 0, but{_describe_counts(tests).removeprefix(',')}"
    line = find_failure_line(text)
    return f"exit code 0, but it printed {line!r}" if line else ""


def _describe_counts(tests: Counts | None) -> str:
    if tests is None:
        return ""
    if not tests.ran:
        return ", no tests ran"
    if not tests.failed:
        return ""
    verb = "fails" if tests.failed == 1 else "fail"
    return f", {tests.failed} of {count(tests.ran, 'test')} {verb}"


def _explain_measure(measure: Measure, value: float | None, exits: str) -> str:
    """Why a number is not good enough, in one phrase; empty if it is."""
    if value is None:
        found = f"it printed no number for {measure.metric} that Ralph can read"
        return f"{found}, {exits}" if exits else found
    is_now = f"{measure.metric} is {value:g}{measure.unit}"
    if not measure.holds(value):
        fault = f"{is_now}, must be {measure.comparator} {measure.target:g}{measure.unit}"
        return f"{fault}; {exits}" if exits and measure.metric in _EXIT_COUNTS else fault
    return f"{exits}, though {is_now}" if exits and measure.metric in _EXIT_COUNTS else ""


def _describe_output(text: str) -> str:
    """What a command printed that must print nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    first = lines[0] if len(lines[0]) <= 100 else lines[0][:97] + "..."
    more = len(lines) - 1
    if not more:
        return f"it printed {first!r}"
    return f"it printed {first!r} and {count(more, 'more line')}"


def _find_missing_program(output: str, path: str | None) -> str:
    """The program that the shell did not find; a file that is still to be made is not one."""
    named = _NOT_FOUND.findall(output)
    return named[-1] if named and "/" not in named[-1] and not shutil.which(named[-1], path=path) else ""


def check_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for checks: without the agents' keys, and without what marks a turn.

    Python checks leave no bytecode behind: it is trusted by second and size, and a turn may be quicker than that.
    """
    passed = without_agent_keys(environment)
    allowed = {name: value for name, value in passed.items() if not name.startswith("RALPH_")}
    return {"PYTHONDONTWRITEBYTECODE": "1", **allowed}


def read_output(path: Path) -> str:
    """What a check printed, as plain text: its start and its end if it is long."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(HEAD_READ + (TAIL_READ if size <= HEAD_READ + TAIL_READ else 0))
            if len(data) < size:
                file.seek(size - TAIL_READ)
                data += b"\n" + file.read(TAIL_READ)
    except FileNotFoundError:
        return ""
    return measures.strip_terminal_codes(data.decode(errors="replace"))


def look_at_file(workspace: Path, check: Check) -> tuple[CheckStatus, str]:
    """Whether a file is there and contains what it must; no process is needed for that."""
    try:
        text = read_start(resolve_inside(workspace, check.path)).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return CheckStatus.FAILED, f"{check.path} does not exist"
    except OutsideError:
        return CheckStatus.FAILED, f"{check.path} leads out of the workspace"
    except StateError:
        return CheckStatus.FAILED, f"{check.path} is not a regular file"
    except OSError as error:
        return CheckStatus.COULD_NOT_RUN, f"{check.path} cannot be read: {error.strerror}"
    if check.cites:
        fault = find_citation_fault(text, check.path, lambda path: _count_lines(workspace, path))
        return (CheckStatus.FAILED, f"{check.path}: {fault}") if fault else (CheckStatus.PASSED, "")
    if not check.pattern or measures.compile_pattern(check.pattern).search(text):
        return CheckStatus.PASSED, ""
    return CheckStatus.FAILED, f"{check.path} contains nothing that matches /{check.pattern}/"


def _count_lines(workspace: Path, path: str) -> int | None:
    """How many lines a file of the workspace has."""
    try:
        return len(read_start(resolve_inside(workspace, path)).splitlines())
    except (OSError, OutsideError, StateError, ValueError):
        return None


class OutsideError(Exception):
    """A path leads out of the workspace."""


def resolve_inside(workspace: Path, path: str) -> Path:
    """Where a path leads, links followed; raises OutsideError."""
    try:
        found = (workspace / path).resolve(strict=True)
    except RuntimeError as error:
        raise FileNotFoundError(path) from error
    if not found.is_relative_to(workspace.resolve()):
        raise OutsideError(path)
    return found


def read_start(path: Path) -> bytes:
    """The start of a file; a StateError if it is a directory, a pipe or a device."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read(FILE_READ)


def find_citation_fault(text: str, report: str, lines_of: Callable[[str], int | None]) -> str:
    """Why the citations of a report do not hold; empty if they do. Every `###` section must cite something.

    What is beside the report was written for it, and proves nothing; of one at the top, that is itself alone. `lines_of`
    says how many lines a file has; None if it cannot be read.
    """
    text = _FENCED.sub("", text)
    cited = _parse_citations(text)
    if not cited:
        return "it cites no line; write them in backticks: `src/app.py:12`"
    report = os.path.normpath(report)
    beside = os.path.dirname(report)
    within = {os.path.normpath(path) for path, _, _ in cited}
    if report in within or (beside and any(path.startswith(f"{beside}/") for path in within)):
        return f"it cites what is in {beside}/ itself" if beside else "it cites itself"
    known = {path: lines_of(os.path.normpath(path)) for path, _, _ in cited}
    faults = [fault for one in cited if (fault := _fault(*one, known[one[0]]))]
    parts = _FINDING.split(text)[1:]
    faults += [
        f"`### {title}` cites no line"
        for title, body in zip(parts[::2], parts[1::2], strict=True)
        if not _parse_citations(title + body)
    ]
    more = f", and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
    return "; ".join(faults[:MAX_FAULTS]) + more


def _parse_citations(text: str) -> list[tuple[str, int, int]]:
    """The lines that a text cites, each once; addresses with a port are none."""
    found = ((path, int(first), int(last or first)) for path, first, last in _CITED.findall(text))
    return [one for one in dict.fromkeys(found) if not _ADDRESS.fullmatch(one[0])]


def _fault(path: str, first: int, last: int, lines: int | None) -> str:
    where = f"{path}:{first}" + (f"-{last}" if last != first else "")
    if lines is None:
        return f"{where}: there is no such file"
    return "" if 1 <= first <= last <= lines else f"{where}: the file has {count(lines, 'line')}"
