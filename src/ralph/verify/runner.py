"""Running checks: each in the keeper's care, without the agents' keys, its output kept as evidence."""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ralph.core.checks import Check, CheckResult, CheckStatus, Counts, Measure, Verdict
from ralph.core.errors import StateError
from ralph.store.files import open_regular
from ralph.supervisor.client import Exit, Job, Keeper, Lost, end
from ralph.supervisor.processes import CHECK_MARK, end_marked
from ralph.verify import citations, measures
from ralph.verify.failures import failure_set

OUTPUT_KEPT = 6000
"""How many characters of a check's output are quoted; the whole is in its log."""
HEAD_READ, TAIL_READ = 1024 * 1024, 3 * 1024 * 1024
"""How much of a check's output is searched for numbers; summaries stand at its end."""
FILE_READ = 4 * 1024 * 1024
"""How much of a file is searched, and of a test report."""
PATTERN_READ = 1024 * 1024
"""How many characters of output a user's regular expression is tried on: it may be a slow one."""
_AGENT_KEYS = re.compile(
    r"(?:ANTHROPIC|AZURE_OPENAI|OPENAI|CLAUDE|CODEX|GEMINI|GOOGLE_API|GOOGLE_GENAI|COPILOT|MISTRAL|GROQ|OPENROUTER|XAI|DEEPSEEK"
    r"|DASHSCOPE|QWEN|AMP|CURSOR|HF|HUGGINGFACE|HUGGING_FACE|HUGGINGFACEHUB|TOGETHER|TOGETHERAI|TOGETHER_AI|FIREWORKS|CEREBRAS|MOONSHOT"
    r"|KIMI|ZAI|Z_AI|ZHIPU|ZHIPUAI|MINIMAX|PERPLEXITY|COHERE|SAMBANOVA|NEBIUS|LITELLM|OPENCODE|FACTORY|AUGMENT|KILO|KILOCODE)_"
    r"(?:\w*_)?(?:KEYS?|TOKEN|SECRET)(?:_\w+)?|AWS_BEARER_TOKEN_BEDROCK"
)
"""Only what agents are paid with: GITHUB_TOKEN and cloud credentials stay, since tests may need them."""
_NOT_FOUND = re.compile(r"(\S+): (?:command )?not found$", re.MULTILINE)
_JUNIT = re.compile(r"--junit-?xml[= ]\s*[\"']?([^\s\"';|&]+)")
_SEARCHES = re.compile(r"(?:^|[|;&]\s*)(?:git\s+grep|(?:\S*/)?(?:[efz]?grep|rg|ag|ack))\s[^|;&]*$")
"""A command that ends in a search: it exits with 1 where it found nothing."""
_MUST_FAIL = re.compile(r"\s*!\s")
"""A command that must fail: its output may count failures when the check passes."""
_EXIT_COUNTS = ("coverage", "tests", "skipped")
"""Metrics that mean something only where the command itself passes; linters exit otherwise when they have found something."""


@dataclass(frozen=True)
class CheckRunner:
    """Runs the checks of one run in its workspace."""

    run_dir: Path
    run_id: str
    workspace: Path
    keeper: Keeper
    environment: Mapping[str, str]
    secrets: tuple[str, ...] = ()

    async def run(self, key: str, checks: Sequence[Check]) -> Verdict:
        """Run them one after the other, all of them, so that the next prompt can name every failure."""
        results = [await self._one(key, number, check) for number, check in enumerate(checks, 1)]
        return Verdict(tuple(results))

    async def _one(self, key: str, number: int, check: Check) -> CheckResult:
        if check.path:
            status, reason = look(self.workspace, check)
            return CheckResult(check.title, status, 0.0, reason=reason)
        directory = self.run_dir / "checks" / f"{key}-{number}"
        mark = f"{self.run_id}/{key}/{number}"
        await self._clear(directory, mark)
        job = Job(
            directory,
            ("/bin/sh", "-c", check.command),
            {**self.environment, CHECK_MARK: mark},
            self.workspace,
            wall=check.timeout,
            grace=2.0,
            merge=True,
            durable=False,
            secrets=self.secrets,
        )
        try:
            ended = await self.keeper.run(job)
        except Lost:
            end_marked(CHECK_MARK, mark)
            lost = "its keeper was killed"
            return CheckResult(check.title, CheckStatus.COULD_NOT_RUN, 0.0, reason=lost, command=check.command)
        except asyncio.CancelledError:
            await end(directory, "stopped")
            raise
        return self._result(check, ended, directory)

    async def _clear(self, directory: Path, mark: str) -> None:
        """End and forget a run of the same check that an engine before us did not see to its end."""
        if directory.is_dir():
            await end(directory, "stopped")
            end_marked(CHECK_MARK, mark)
            shutil.rmtree(directory)
        elif os.path.lexists(directory):
            directory.unlink()

    def _result(self, check: Check, ended: Exit, directory: Path) -> CheckResult:
        text = read_output(directory / "stdout") if ended.printed("stdout") else ""
        reported = self._reported(check.command, ended.started_at)
        # The exit code of `pytest a; pytest b` is that of the last command: failures of the first must count.
        is_sequence = runs_several_commands(check.command)
        tests = reported or measures.count_tests(text, succeeded=ended.code == 0 and not is_sequence)
        value = number(check.measure, text, tests, ended.code) if check.measure else None
        status, reason = judge(check, ended, text, self.environment.get("PATH"), tests=tests, value=value)
        near = check.measure.nearness(value) if check.measure and value is not None else None
        failed = status is CheckStatus.FAILED
        return CheckResult(
            check.title,
            status,
            round(ended.ended_at - ended.started_at, 3),
            ended.code,
            reason,
            text[-OUTPUT_KEPT:],
            str((directory / "stdout").relative_to(self.run_dir)),
            check.command,
            value,
            None if near == 1.0 and status is not CheckStatus.PASSED else near,
            tests,
            measures.failing_tests(text) if failed else (),
            failures=failure_set(check, text, tests, value) if failed else None,
            flaky=measures.was_retried(text),
        )

    def _reported(self, command: str, since: float) -> Counts | None:
        """The tests in the report that a command was told to write, where it did."""
        match = _JUNIT.search(command)
        try:
            path = inside(self.workspace, match[1]) if match else None
            if path is None or path.stat().st_mtime < since - 1:
                return None
            return measures.count_junit(read_start(path))
        except (OSError, Outside, StateError):
            return None


def look(workspace: Path, check: Check) -> tuple[CheckStatus, str]:
    """Whether a file is there and contains what it must; no process is needed for that."""
    try:
        text = read_start(inside(workspace, check.path)).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return CheckStatus.FAILED, f"{check.path} does not exist"
    except Outside:
        return CheckStatus.FAILED, f"{check.path} leads out of the workspace"
    except StateError:
        return CheckStatus.FAILED, f"{check.path} is not a regular file"
    except OSError as error:
        return CheckStatus.COULD_NOT_RUN, f"{check.path} cannot be read: {error.strerror}"
    if check.cites:
        fault = citations.fault_of(text, check.path, lambda path: _lines(workspace, path))
        return (CheckStatus.FAILED, f"{check.path}: {fault}") if fault else (CheckStatus.PASSED, "")
    if not check.pattern or measures.pattern(check.pattern).search(text):
        return CheckStatus.PASSED, ""
    return CheckStatus.FAILED, f"{check.path} contains nothing that matches /{check.pattern}/"


def _lines(workspace: Path, path: str) -> int | None:
    """How many lines a file of the workspace has."""
    try:
        return len(read_start(inside(workspace, path)).splitlines())
    except (OSError, Outside, StateError, ValueError):
        return None


class Outside(Exception):
    """A path leads out of the workspace."""


def inside(workspace: Path, path: str) -> Path:
    """Where a path leads, links followed; raises Outside."""
    try:
        found = (workspace / path).resolve(strict=True)
    except RuntimeError as error:
        raise FileNotFoundError(path) from error
    if not found.is_relative_to(workspace.resolve()):
        raise Outside(path)
    return found


def read_start(path: Path) -> bytes:
    """The start of a file; a StateError where it is a directory, a pipe or a device."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read(FILE_READ)


def number(measure: Measure, text: str, tests: Counts | None, code: int | None) -> float | None:
    """The number that is measured."""
    if measure.metric.startswith("/"):
        return measures.measured(measure.metric, text[-PATTERN_READ:])
    counts = measure.metric in measures.COUNTED
    value = measures.counted(measure.metric, tests) if counts else measures.measured(measure.metric, text)
    word = measures.ZERO_IF_UNMENTIONED.get(measure.metric)
    return 0.0 if value is None and code == 0 and word and word not in text.lower() else value


def runs_several_commands(command: str) -> bool:
    """Whether a shell goes on after one of the commands failed: with `;`, `||` or a new line between them."""
    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an open quote: the shell refuses it, too
        return False
    return any(word in (";", "||") for word in words[:-1])


def judge(
    check: Check, ended: Exit, text: str, path: str | None, *, tests: Counts | None = None, value: float | None = None
) -> tuple[CheckStatus, str]:
    """What an exit says: passed, failed, or that nothing can be said."""
    if ended.reason == "wall":
        return CheckStatus.COULD_NOT_RUN, f"still running after {check.timeout:g} s"
    if ended.reason != "exit":
        return CheckStatus.COULD_NOT_RUN, ended.error or ended.reason
    if ended.signal is not None:
        return CheckStatus.COULD_NOT_RUN, f"killed by signal {ended.signal}"
    if ended.code == 127 and (program := _missing_program(text[-OUTPUT_KEPT:], path)):
        return CheckStatus.NOT_FOUND, f"{program} is not installed (or not on the PATH)"
    exits = f"exit code {ended.code}{_counts(tests)}" if ended.code else ""
    if ended.code == 0 and not _MUST_FAIL.match(check.command):
        exits = _failures_beside_exit_0(text, tests)
    if check.measure:
        fault = _unmeasured(check.measure, value, exits)
    elif check.silent:
        fault = _printed(text) or ("" if ended.code == 1 and _SEARCHES.search(check.command) else exits)
    else:
        fault = exits
    return (CheckStatus.FAILED, fault) if fault else (CheckStatus.PASSED, "")


def _failures_beside_exit_0(text: str, tests: Counts | None) -> str:
    """Why a command that exits with 0 failed all the same: numbers beat exit codes, which a recipe or the product can drop."""
    if tests and tests.failed:
        return f"exit code 0, but{_counts(tests).removeprefix(',')}"
    line = measures.failure_without_count(text)
    return f"exit code 0, but it printed {line!r}" if line else ""


def _counts(tests: Counts | None) -> str:
    if tests is None:
        return ""
    if not tests.ran:
        return ", no tests ran"
    return f", {tests.failed} of {tests.ran} tests {'fails' if tests.failed == 1 else 'fail'}" if tests.failed else ""


def _unmeasured(measure: Measure, value: float | None, exits: str) -> str:
    """Why a number is not good enough, in one phrase; empty where it is."""
    if value is None:
        found = f"it printed no number for {measure.metric} that Ralph can read"
        return f"{found}, {exits}" if exits else found
    is_now = f"{measure.metric} is {value:g}{measure.unit}"
    if not measure.holds(value):
        fault = f"{is_now}, must be {measure.comparator} {measure.target:g}{measure.unit}"
        return f"{fault}; {exits}" if exits and measure.metric in _EXIT_COUNTS else fault
    return f"{exits}, though {is_now}" if exits and measure.metric in _EXIT_COUNTS else ""


def _printed(text: str) -> str:
    """What was printed where nothing should have been."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    first = lines[0] if len(lines[0]) <= 100 else lines[0][:97] + "..."
    more = len(lines) - 1
    return f"it printed {first!r}" + (f" and {more} more line{'s' if more > 1 else ''}" if more else "")


def _missing_program(output: str, path: str | None) -> str:
    """The program that the shell did not find; a file that is still to be made is not one."""
    named = _NOT_FOUND.findall(output)
    return named[-1] if named and "/" not in named[-1] and not shutil.which(named[-1], path=path) else ""


def check_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for checks: without the agents' keys, and without what marks a turn.

    Python checks leave no bytecode behind: it is trusted by second and size, and a turn may be quicker than that.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if not _AGENT_KEYS.fullmatch(name) and not name.startswith("RALPH_")
    }
    return {"PYTHONDONTWRITEBYTECODE": "1", **kept}


def read_output(path: Path) -> str:
    """What a check printed, as plain text: its start and its end, where it is much."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(HEAD_READ + (TAIL_READ if size <= HEAD_READ + TAIL_READ else 0))
            if len(data) < size:
                file.seek(size - TAIL_READ)
                data += b"\n" + file.read(TAIL_READ)
    except FileNotFoundError:
        return ""
    return measures.plain(data.decode(errors="replace"))
