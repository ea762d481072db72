"""Running checks of every type with real processes and files, and what is said of them."""

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ralph.core.checks import Check, CheckResult, CheckStatus, Counts, Measure
from ralph.supervisor.client import JobExit, KeeperClient
from ralph.verify.measures import read_measure
from ralph.verify.runner import (
    CheckRunner,
    check_environment,
    find_citation_fault,
    judge,
    look_at_file,
    read_output,
    runs_several_commands,
)

PASSED, FAILED = CheckStatus.PASSED, CheckStatus.FAILED
COULD_NOT_RUN, NOT_FOUND = CheckStatus.COULD_NOT_RUN, CheckStatus.NOT_FOUND


@dataclass(frozen=True)
class Stage:
    """A run directory and a workspace."""

    root: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def run(self, *checks: Check) -> list[CheckResult]:
        async def engine() -> list[CheckResult]:
            keeper = KeeperClient(self.root / "run")
            runner = CheckRunner(
                self.root / "run", "000000-000000", self.workspace, keeper, check_environment(os.environ)
            )
            try:
                return list((await runner.run("1", checks)).results)
            finally:
                await keeper.close()

        return asyncio.run(asyncio.wait_for(engine(), 300))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    (tmp_path / "run").mkdir()
    (tmp_path / "workspace").mkdir()
    return Stage(tmp_path)


def coverage(command: str, target: float = 80) -> Check:
    return Check(command, measure=Measure("coverage", ">=", target, "%"))


def test_every_check_runs_and_every_result_is_complete(stage: Stage) -> None:
    (stage.workspace / "notes").write_text("done\n")
    passes, counts, silent, measured, there = stage.run(
        Check("echo '37 passed in 0.12s'"),
        Check("echo '3 failed, 37 passed in 0.12s'; exit 1"),
        Check("echo a; echo b; echo c", silent=True),
        coverage("echo 'TOTAL 10 2 72%'"),
        Check(path="notes", pattern="^done$"),
    )
    assert passes == CheckResult(
        "`echo '37 passed in 0.12s'` passes",
        PASSED,
        passes.seconds,
        0,
        "",
        "37 passed in 0.12s",
        "checks/1-1/stdout",
        "echo '37 passed in 0.12s'",
        tests=Counts(37),
    )
    assert (counts.status, counts.reason, counts.tests) == (FAILED, "exit code 1, 3 of 40 tests fail", Counts(37, 3))
    assert counts.score == pytest.approx(0.99 * 37 / 40)
    assert (silent.status, silent.reason) == (FAILED, "it printed 'a' and 2 more lines")
    assert (measured.status, measured.reason, measured.value) == (FAILED, "coverage is 72%, must be >= 80%", 72)
    assert measured.nearness == pytest.approx(1 / 1.1)
    assert there == CheckResult("notes contains /^done$/", PASSED, 0.0)


def test_missing_or_slow_command_could_not_run(stage: Stage) -> None:
    missing, measured, slow = stage.run(
        Check("surely-not-installed -q"), coverage("surely-not-installed"), Check("sleep 30", timeout=0.2)
    )
    assert missing.status is measured.status is NOT_FOUND
    assert "surely-not-installed is not installed" in missing.reason
    assert (slow.status, slow.reason) == (COULD_NOT_RUN, "still running after 0.2 s")


def test_a_report_that_the_command_wrote_is_counted(stage: Stage) -> None:
    xml = '<testsuite tests="5" failures="1" errors="0" skipped="1">'
    write = f"printf '%s' '{xml}' > out.xml; exit 1; "
    (stage.workspace / "old.xml").write_text(xml)
    os.utime(stage.workspace / "old.xml", (1, 1))
    (stage.root / "outside.xml").write_text(xml)
    (stage.workspace / "link.xml").symlink_to("../outside.xml")
    wrote, old, link, missing = stage.run(
        Check(f"{write}pytest --junitxml=out.xml"),
        Check("exit 1; pytest --junit-xml old.xml"),
        Check("exit 1; pytest --junitxml=link.xml"),
        Check("exit 1; pytest --junitxml=gone.xml"),
    )
    assert (wrote.tests, wrote.reason) == (Counts(3, 1, 1), "exit code 1, 1 of 4 tests fails")
    assert old.tests is link.tests is missing.tests is None


def test_numbers_are_found_far_from_the_end_of_the_output(stage: Stage) -> None:
    noise = "head -c 1500000 /dev/zero | tr '\\0' x | fold -w 100"
    first, last = stage.run(
        coverage(f"echo 'TOTAL 10 1 90%'; {noise}"), Check(f"{noise}; echo; echo '3 passed in 0.1s'")
    )
    assert (first.status, first.value) == (PASSED, 90)
    assert last.tests == Counts(3)
    assert 3_000 < len(last.output) <= 6_000
    assert last.output.endswith("\n3 passed in 0.1s")
    assert last.left_out > 10_000


EXIT = JobExit("exit", 0.0, 1.0, 0)


def judged(check: Check, text: str, code: int = 0) -> tuple[CheckStatus, str]:
    value = read_measure(check.measure, text, None, code) if check.measure else None
    return judge(check, replace(EXIT, code=code), text, "/nonexistent", value=value)


def measure(metric: str, comparator: str, target: float, unit: str = "") -> Check:
    return Check("c", measure=Measure(metric, comparator, target, unit))


@pytest.mark.parametrize(
    ("check", "text", "code", "status", "reason"),
    [
        (Check("c"), "", 0, PASSED, ""),
        (Check("c"), "", 3, FAILED, "exit code 3"),
        (Check("c"), "sh: 1: c: not found", 127, NOT_FOUND, "c is not installed"),
        (Check("./c"), "sh: 1: ./c: not found", 127, FAILED, "exit code 127"),
        (Check("c", silent=True), " \n\n", 0, PASSED, ""),
        (Check("c", silent=True), "x", 0, FAILED, "it printed 'x'"),
        (Check("c", silent=True), "x\ny", 0, FAILED, "it printed 'x' and 1 more line"),
        (Check("c", silent=True), "", 1, FAILED, "exit code 1"),
        (Check("grep -rn TODO src", silent=True), "", 1, PASSED, ""),
        (Check("cd src && git grep TODO", silent=True), "", 1, PASSED, ""),
        (Check("git status | grep TODO", silent=True), "", 1, PASSED, ""),
        (Check("grep TODO src", silent=True), "", 2, FAILED, "exit code 2"),
        (Check("grep TODO src | make", silent=True), "", 1, FAILED, "exit code 1"),
        (Check("grep TODO src", silent=True), "a: TODO", 0, FAILED, "it printed 'a: TODO'"),
        (Check("grep TODO src"), "", 1, FAILED, "exit code 1"),
        (coverage("c"), "TOTAL 1 1 80%", 0, PASSED, ""),
        (coverage("c"), "TOTAL 1 1 80%", 1, FAILED, "exit code 1, though coverage is 80%"),
        (coverage("c"), "TOTAL 1 1 70%", 1, FAILED, "coverage is 70%, must be >= 80%; exit code 1"),
        (coverage("c"), "nothing", 0, FAILED, "it printed no number for coverage that Ralph can read"),
        (coverage("c"), "nothing", 2, FAILED, "that Ralph can read, exit code 2"),
        (measure("errors", "==", 0), "Found 3 errors", 1, FAILED, "errors is 3, must be == 0"),
        (measure("errors", "<=", 3), "Found 3 errors", 1, PASSED, ""),
        (measure("errors", "==", 0), "", 0, PASSED, ""),
        (measure("errors", "==", 0), "built in 3 s", 0, PASSED, ""),
        (measure("errors", "==", 0), "", 1, FAILED, "no number for errors"),
        (measure("errors", "==", 0), "some error", 0, FAILED, "no number for errors"),
        (measure("warnings", "<", 5), "Finished", 0, PASSED, ""),
        (measure(r"/p (\d+)/", "<", 5), "p 9\np 4", 1, PASSED, ""),
        (measure(r"/p (\d+)/", "<", 5, "%"), "p 9", 0, FAILED, "/p (\\d+)/ is 9%, must be < 5%"),
    ],
)
def test_exit_code_and_output_decide_the_status(
    check: Check, text: str, code: int, status: CheckStatus, reason: str
) -> None:
    found, why = judged(check, text, code)
    assert found is status
    assert reason in why
    assert bool(why) == (status is not PASSED)


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (None, "exit code 1"),
        (Counts(), "exit code 1, no tests ran"),
        (Counts(39, 1), "exit code 1, 1 of 40 tests fails"),
        (Counts(40), "exit code 1"),
    ],
)
def test_the_reason_has_the_counts(tests: Counts | None, reason: str) -> None:
    assert judge(Check("c"), replace(EXIT, code=1), "", None, tests=tests) == (FAILED, reason)


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (JobExit("wall", 0, 1), "still running after 600 s"),
        (JobExit("exec", 0, 1, error="no shell"), "no shell"),
        (JobExit("stopped", 0, 1), "stopped"),
        (JobExit("exit", 0, 1, signal=9), "killed by signal 9"),
    ],
)
def test_command_that_was_ended_could_not_run(ended: JobExit, reason: str) -> None:
    for check in (Check("c"), Check("c", silent=True), coverage("c")):
        assert judge(check, ended, "TOTAL 1 1 99%", None, value=99) == (COULD_NOT_RUN, reason)


class TestFiles:
    @pytest.mark.parametrize(
        ("path", "pattern", "status", "reason"),
        [
            ("a.md", "", PASSED, ""),
            ("a.md", "^two$", PASSED, ""),
            ("a.md", "three", FAILED, "a.md contains nothing that matches /three/"),
            ("gone", "", FAILED, "gone does not exist"),
            ("a.md/b", "", FAILED, "a.md/b does not exist"),
            ("folder", "", FAILED, "folder is not a regular file"),
            ("pipe", "x", FAILED, "pipe is not a regular file"),
            ("inner", "two", PASSED, ""),
            ("outer", "", FAILED, "outer leads out of the workspace"),
            ("outside/secret", "", FAILED, "outside/secret leads out of the workspace"),
            ("loop", "", FAILED, "loop "),
            ("x" * 300, "", COULD_NOT_RUN, "cannot be read"),
            ("binary", "caf", PASSED, ""),
        ],
    )
    def test_a_file_is_looked_at_without_leaving_the_workspace(
        self, stage: Stage, path: str, pattern: str, status: CheckStatus, reason: str
    ) -> None:
        work = stage.workspace
        (work / "a.md").write_text("one\ntwo\n")
        (work / "binary").write_bytes(b"\xff\x00caf\xe9")
        (work / "folder").mkdir()
        os.mkfifo(work / "pipe")
        (work / "inner").symlink_to("a.md")
        (stage.root / "secret").write_text("x")
        (work / "outer").symlink_to("../secret")
        (work / "outside").symlink_to("..")
        (work / "loop").symlink_to("loop")
        found, why = look_at_file(work, Check(path=path, pattern=pattern))
        assert found is status
        assert reason in why

    def test_a_workspace_behind_a_link_is_one(self, stage: Stage) -> None:
        (stage.workspace / "a").write_text("x")
        (stage.root / "alias").symlink_to("workspace")
        assert look_at_file(stage.root / "alias", Check(path="a"))[0] is PASSED


def test_colors_are_not_part_of_the_output(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"\x1b[32m3 passed\x1b[0m in 0.1s\r\n\xff")
    assert read_output(tmp_path / "stdout") == "3 passed in 0.1s\n\ufffd"
    assert read_output(tmp_path / "gone") == ""


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("ANTHROPIC_API_KEY", False),
        ("ANTHROPIC_AUTH_TOKEN", False),
        ("CLAUDE_CODE_OAUTH_TOKEN", False),
        ("OPENAI_API_KEY", False),
        ("OPENAI_API_KEY_2", False),
        ("AZURE_OPENAI_API_KEY", False),
        ("AWS_BEARER_TOKEN_BEDROCK", False),
        ("COPILOT_GITHUB_TOKEN", False),
        ("HF_TOKEN", False),
        ("TOGETHER_API_KEY", False),
        ("FIREWORKS_API_KEY", False),
        ("CEREBRAS_API_KEY", False),
        ("MOONSHOT_API_KEY", False),
        ("ZAI_API_KEY", False),
        ("KIMI_API_KEY", False),
        ("RALPH_TURN", False),
        ("GITHUB_TOKEN", True),
        ("GH_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("OPENAI_BASE_URL", True),
        ("OPENAI_MAX_TOKENS", True),
        ("DATABASE_URL", True),
        ("KEY", True),
    ],
)
def test_checks_do_not_see_the_keys_of_agents(name: str, kept: bool) -> None:
    assert (name in check_environment({name: "x"})) is kept


LENGTHS = {"src/app.py": 10, "Makefile": 3}


def fault(text: str) -> str:
    return find_citation_fault(text, "out/report.md", LENGTHS.get)


@pytest.mark.parametrize(
    "text",
    [
        "See `src/app.py:10`.",
        "See `src/app.py:2-10` and `./Makefile:1`, served at `localhost:8080`, `127.0.0.1:80` and `http://x.org:443`.",
        "Intro\n### Major: it breaks\nat `src/app.py:1`\n### Minor: `Makefile:3` is odd\n",
        "```\n`gone.py:1`\n### no heading\n```\n`src/app.py:1`",
    ],
)
def test_lines_that_exist(text: str) -> None:
    assert fault(text) == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it cites no line"),
        ("`src/app.py:1`\n### One\nIt listens on `localhost:8080`.", "`### One` cites no line"),
        ("All is well, see src/app.py:3", "it cites no line"),
        ("`src/app.py:11`", "src/app.py:11: the file has 10 lines"),
        ("`src/app.py:0`", "src/app.py:0: the file has 10 lines"),
        ("`src/app.py:9-4`", "src/app.py:9-4: the file has 10 lines"),
        ("`src/gone.py:1` and `src/app.py:1`", "src/gone.py:1: there is no such file"),
        ("`../../etc/passwd:1`", "../../etc/passwd:1: there is no such file"),
        ("### Major: it breaks\nsomewhere\n### Minor: this\n`src/app.py:1`", "`### Major: it breaks` cites no line"),
        ("`out/report.md:1`", "it cites what is in out/ itself"),
        (" ".join(f"`gone{number}.py:1`" for number in range(7)), "and 2 more"),
    ],
)
def test_their_faults_are_reported(text: str, told: str) -> None:
    assert told in fault(text)


def test_a_report_at_the_top_proves_nothing_either() -> None:
    lengths = {**LENGTHS, "report.md": 9}
    assert find_citation_fault("See `./report.md:1`.", "report.md", lengths.get) == "it cites itself"
    assert find_citation_fault("See `Makefile:1`.", "report.md", lengths.get) == ""


def test_files_are_looked_at_in_the_workspace_alone(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "out").mkdir(parents=True)
    (tmp_path / "secret").write_text("one\n")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "app.py").write_text("one\ntwo\n")
    check = Check(path="out/report.md", cites=True)
    assert look_at_file(root, check) == (CheckStatus.FAILED, "out/report.md does not exist")
    report = root / "out" / "report.md"
    report.write_text("`app.py:2`")
    assert look_at_file(root, check) == (CheckStatus.PASSED, "")
    for text, told in (("`link:1`", "link:1: there is no such file"), ("`out:1`", "out:1: there is no such file")):
        report.write_text(text)
        assert look_at_file(root, check) == (CheckStatus.FAILED, f"out/report.md: {told}")


@pytest.mark.parametrize(
    ("command", "is_sequence"),
    [
        ("pytest; mypy", True),
        ("pytest || mypy", True),
        ("pytest\nmypy", True),
        ("pytest && mypy", False),
        ("pytest | tee log", False),
        ("pytest;", False),
        ("echo 'a; b'", False),
        ("echo 'open; b", False),
    ],
)
def test_a_shell_continues_after_a_failure_in_a_sequence(command: str, is_sequence: bool) -> None:
    assert runs_several_commands(command) is is_sequence


def test_files_of_an_earlier_check_are_removed(tmp_path: Path) -> None:
    keeper: Any = None
    runner = CheckRunner(tmp_path, "run", tmp_path, keeper, {})
    left = tmp_path / "checks" / "iteration-1-1"
    left.mkdir(parents=True)
    (left / "stdout").write_text("old\n")
    asyncio.run(runner._clear(left, "mark"))
    assert not left.exists()
    left.write_text("a file in its place\n")
    asyncio.run(runner._clear(left, "mark"))
    assert not left.exists()
