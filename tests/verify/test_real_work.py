"""Verdicts on real trees: git keeps the snapshots, the checks are processes, the counter-proof runs the old tests."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ralph.core.checks import Check, CheckStatus, FailingTests, Verdict, find_failing_tests
from ralph.git.snapshots import Snapshots
from ralph.supervisor.client import KeeperClient
from ralph.verify.runner import CheckRunner, check_environment
from ralph.verify.verifier import VerdictSettings, Verifier

RUN = "261115-093000-k3x9"
TESTS = """import unittest
from app import add


class AddTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_zero(self):
        self.assertEqual(add(0, 0), 0)
"""
WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
CHECK = Check("python3 -B -m unittest -q")
Files = Mapping[str, str | None]


def write(root: Path, files: Files) -> None:
    for name, content in files.items():
        if content is None:
            (root / name).unlink()
        else:
            (root / name).write_text(content)


def judge(root: Path, *trees: Files, rules: VerdictSettings | None = None, red: bool = False) -> list[Verdict]:
    """The verdicts on one tree after the other; the first is the baseline."""

    async def engine() -> list[Verdict]:
        run_dir = root / ".ralph" / "runs" / RUN
        snapshots = Snapshots.open(root, root, RUN, run_dir)
        keeper = KeeperClient(run_dir)
        runner = CheckRunner(run_dir, RUN, root, keeper, check_environment(os.environ))
        verifier = Verifier(runner, snapshots, rules or VerdictSettings())
        verdicts: list[Verdict] = []
        seen: FailingTests | None = None
        try:
            for number, files in enumerate(trees):
                write(root, files)
                snapshots.take(f"tree {number}")
                key = f"iteration-{number}" if number else "baseline"
                verdicts.append(await verifier.run(key, [CHECK], seen))
                seen = find_failing_tests(verdicts[-1]) if red and number == 1 else seen
        finally:
            await keeper.close()
        return verdicts

    return asyncio.run(asyncio.wait_for(engine(), 120))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".ralph" / "runs" / RUN).mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".git" / "info" / "exclude").write_text(".ralph\n")
    return root


def describe(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(finding.rule, finding.severity, finding.path) for finding in verdict.findings]


START: Files = {"app.py": WRONG, "test_app.py": TESTS}
REWRITTEN = TESTS.replace("def test_add", "def test_sum").replace(
    "self.assertEqual(add(1, 2), 3)", "assert add(1, 2) == 3"
)
SKIPPED = TESTS.replace("    def test_add", "    @unittest.skip('later')\n    def test_add")
EASIER = TESTS.replace("add(1, 2), 3", "add(2, 1), 1")


def test_honest_work_passes_without_findings(root: Path) -> None:
    baseline, verdict = judge(root, START, {"app.py": RIGHT})
    assert baseline.results[0].failing == ("test_add (test_app.AddTest.test_add)",)
    assert verdict.passed
    assert verdict.findings == ()


def test_skipped_test_is_not_an_error_if_the_work_passes_its_original(root: Path) -> None:
    _, verdict = judge(root, START, {"app.py": RIGHT, "test_app.py": SKIPPED})
    assert describe(verdict) == [("test-skipped", "warning", "test_app.py")]
    assert "The work passes without that change too" in verdict.findings[0].sentence


def test_a_skipped_test_is_an_error_if_the_work_does_not_pass_it(root: Path) -> None:
    _, verdict = judge(root, START, {"test_app.py": SKIPPED})
    assert describe(verdict) == [("test-skipped", "error", "test_app.py")]
    assert not verdict.passed


def test_a_test_that_failed_and_was_changed_must_pass_as_it_was(root: Path) -> None:
    product = "def add(a, b):\n    other = b\n    return a - other\n"
    _, verdict = judge(root, START, {"app.py": product, "test_app.py": EASIER})
    name = "test_add (test_app.AddTest.test_add)"
    assert ("verifier-edited", "error", name) in describe(verdict)


def test_the_user_may_let_tests_change(root: Path) -> None:
    rules = VerdictSettings(allowed={"assertion-weakened": "the order was wrong"})
    product = "def add(a, b):\n    other = b\n    return a - other\n"
    _, verdict = judge(root, START, {"app.py": product, "test_app.py": EASIER}, rules=rules)
    assert verdict.findings == ()
    assert verdict.passed


def test_a_test_that_was_written_to_fail_must_pass_unchanged(root: Path) -> None:
    """The first iteration writes a failing test, and the second one changes it instead of the product."""
    new = (
        "import unittest\nfrom app import add\n\n\nclass New(unittest.TestCase):\n    def test_new(self):\n        {}\n"
    )
    failing, easier = (new.format(f"self.assertEqual(add(2, 2), {number})") for number in (4, 0))
    start = {"app.py": WRONG, "test_app.py": TESTS.replace("add(1, 2), 3", "add(3, 2), 1")}
    baseline, red, last = judge(root, start, {"test_new.py": failing}, {"test_new.py": easier}, red=True)
    assert baseline.passed
    assert red.results[0].status is CheckStatus.FAILED
    name = "test_new (test_new.New.test_new)"
    assert [finding.sentence for finding in last.blocking_findings] == [
        f"{name} was seen to fail, and its original version still fails: the work must pass it unchanged. "
        "Or was the test wrong?"
    ]


@pytest.mark.slow
def test_no_copy_of_the_work_is_left_behind(root: Path) -> None:
    judge(root, START, {"app.py": RIGHT, "test_app.py": REWRITTEN})
    assert not (root / ".ralph" / "runs" / RUN / "scratch").exists()
