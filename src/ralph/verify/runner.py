"""Running checks: each in the keeper's care, without the agents' keys, its output kept as evidence."""

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ralph.agents.keeper_client import Exit, Job, Keeper, Lost, end
from ralph.agents.processes import CHECK_MARK, end_marked
from ralph.core.checks import Check, CheckResult, CheckStatus, Verdict

OUTPUT_KEPT = 6000
"""How many characters of a check's output are quoted; the whole is in its log."""
_AGENT_KEYS = re.compile(
    r"(ANTHROPIC|OPENAI|CODEX|GEMINI|GOOGLE_API|GOOGLE_GENAI|COPILOT|MISTRAL|GROQ|OPENROUTER|XAI|DEEPSEEK|DASHSCOPE|QWEN|AMP|CURSOR)_"
    r".*(KEY|TOKEN|SECRET)|CLAUDE_CODE_OAUTH_TOKEN"
)
_NOT_FOUND = re.compile(r"(\S+): (?:command )?not found$", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


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
            return CheckResult(check.command, CheckStatus.COULD_NOT_RUN, 0.0, reason="its keeper was killed")
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
        output = read_output(directory / "stdout") if ended.printed("stdout") else ""
        status, reason = judge(check, ended, output, self.environment.get("PATH"))
        seconds = round(ended.ended_at - ended.started_at, 3)
        log = str((directory / "stdout").relative_to(self.run_dir))
        return CheckResult(check.command, status, seconds, ended.code, reason, output, log)


def judge(check: Check, ended: Exit, output: str, path: str | None) -> tuple[CheckStatus, str]:
    """What an exit says: passed, failed, or that nothing can be said."""
    if ended.reason == "wall":
        return CheckStatus.COULD_NOT_RUN, f"still running after {check.timeout:g} s"
    if ended.reason != "exit":
        return CheckStatus.COULD_NOT_RUN, ended.error or ended.reason
    if ended.signal is not None:
        return CheckStatus.COULD_NOT_RUN, f"killed by signal {ended.signal}"
    if ended.code == 0:
        return CheckStatus.PASSED, ""
    if ended.code == 127 and (program := _missing_program(output, path)):
        return CheckStatus.NOT_FOUND, f"{program} is not installed (or not on the PATH)"
    return CheckStatus.FAILED, f"exit code {ended.code}"


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
        if not _AGENT_KEYS.match(name) and not name.startswith("RALPH_")
    }
    return {"PYTHONDONTWRITEBYTECODE": "1", **kept}


def read_output(path: Path) -> str:
    """The end of what a check printed, as plain text."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4 * OUTPUT_KEPT))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return _ANSI.sub("", text).replace("\r\n", "\n")[-OUTPUT_KEPT:]
