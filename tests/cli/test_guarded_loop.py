"""Gaming the checks, through the whole loop: caught, told, lifted only by a person who says why."""

import json

import pytest
from test_loop import Project, project  # noqa: F401 - the fixture

TESTS = """import unittest
from app import add


class AddTest(unittest.TestCase):
{skip}    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_zero(self):
        self.assertEqual(add(0, 0), 0)
"""
SKIP = "    @unittest.skip('flaky')\n"
CHECK = "`python3 -m unittest -q` passes"


@pytest.fixture
def calculator(project: Project) -> Project:  # noqa: F811
    (project.root / "app.py").write_text("def add(a, b):\n    return a - b\n")
    (project.root / "test_app.py").write_text(TESTS.format(skip=""))
    project.git("add", "-A")
    project.git("commit", "-qm", "A calculator")
    return project


def skipping(last_steps: str) -> str:
    """The agent skips the failing test, then does something else, then what is given."""
    return f"""
turns:
  - when: {{turn: 1}}
    steps:
      - patch: {{path: test_app.py, find: "    def test_add", replace: "{SKIP.rstrip()}\\n    def test_add"}}
  - when: {{turn: 2}}
    steps:
      - write: {{path: notes.txt, content: "nothing to see here"}}
  - steps:
{last_steps}
"""


REAL_FIX = """      - patch: {path: test_app.py, find: "    @unittest.skip('flaky')\\n", replace: ""}
      - patch: {path: app.py, find: "a - b", replace: "a + b"}
"""


def test_a_skipped_test_is_caught_also_when_a_later_turn_leaves_it_in_place(calculator: Project) -> None:
    done = calculator.play(skipping(REAL_FIX), until=CHECK)
    assert done.code == 0, done.said
    verdicts = [entry["verdict"] for entry in calculator.journal("checks.ended")]
    rules = [[finding["rule"] for finding in verdict.get("findings", [])] for verdict in verdicts]
    assert rules == [[], ["test-skipped"], ["test-skipped"], []]
    assert "test-skipped" in calculator.turn(2).joinpath("prompt.md").read_text()
    assert "@unittest.skip" not in (calculator.root / "test_app.py").read_text()


def test_gaming_to_the_end_is_no_success(calculator: Project) -> None:
    done = calculator.play(skipping("      - say: I am done\n"), "--max-iterations", "3", until=CHECK)
    assert done.code == 3
    [report] = (calculator.root / ".aiwg" / "ralph").glob("completion-*.md")
    assert "[test-skipped]" in report.read_text()


def test_a_rule_is_lifted_with_a_reason_that_is_journaled(calculator: Project) -> None:
    lifted = ("--allow", "test-skipped=the test needs a database")
    assert calculator.play(skipping(REAL_FIX), *lifted, until=CHECK).code == 0
    assert len(calculator.journal("turn.started")) == 1
    assert any("the test needs a database" in entry["text"] for entry in calculator.journal("notice"))


def test_warnings_are_told_and_hold_nothing_up(calculator: Project) -> None:
    """What may be right is for a person to judge."""
    weaker = '{path: test_app.py, find: "self.assertEqual(add(0, 0), 0)", replace: "self.assertIsNotNone(add(0, 0))"}'
    fix = '{path: app.py, find: "a - b", replace: "a + b"}'
    done = calculator.play(f"turns: [{{steps: [{{patch: {weaker}}}, {{patch: {fix}}}]}}]", until=CHECK)
    assert done.code == 0, done.said
    assert "WARNING test_app.py" in done.out
    assert "[assertion-weakened]" in done.out


HONEST = """import unittest
from app import add


class AddTest(unittest.TestCase):
    def test_sums(self):
        for a, b, c in ((1, 2, 3), (0, 0, 0)):
            with self.subTest(a=a):
                self.assertTrue(add(a, b) == c)
"""


def test_tests_that_were_rewritten_are_only_told_where_the_work_passes_the_old_ones_too(calculator: Project) -> None:
    done = calculator.play(yaml(HONEST, "def add(a, b):\n    return a + b\n"), until=CHECK)
    assert done.code == 0, done.said
    assert "ERROR" not in done.out
    assert not (calculator.run / "scratch").exists()


def test_an_expectation_that_was_changed_is_found_by_reading(calculator: Project) -> None:
    easier = TESTS.format(skip="").replace("add(1, 2), 3", "add(1, 2), -1")
    product = "def add(a, b):\n    # as it should be\n    return a - b\n"
    done = calculator.play(yaml(easier, product), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    assert "ERROR test_app.py:7 [assertion-weakened]" in done.out


def test_a_test_that_failed_must_pass_as_it_was(calculator: Project) -> None:
    """Reading only warns here, since the product changed as well. Running the old test tells."""
    easier = TESTS.format(skip="").replace("add(1, 2), 3", "add(2, 1), 1")
    product = "def add(a, b):\n    subtrahend = b\n    return a - subtrahend\n"
    done = calculator.play(yaml(easier, product), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    assert "WARNING test_app.py:7 [assertion-weakened]" in done.out
    name = "test_add (test_app.AddTest.test_add)"
    assert f"ERROR {name} [verifier-edited] {name} failed before the run, and as it was then it still does" in done.out


def yaml(tests: str, product: str) -> str:
    """A scenario in which the agent writes the tests and the product anew."""
    steps = [{"write": {"path": path, "content": text}} for path, text in (("test_app.py", tests), ("app.py", product))]
    return json.dumps({"turns": [{"steps": steps}]})


FIXED = "def add(a, b):\n    return a + b\n"
EXITS_WITH_0 = "import atexit, os\natexit.register(os._exit, 0)\n\n\n"


def test_failures_in_the_summary_beat_exit_code_0(calculator: Project) -> None:
    """The product ends the test process with 0, while the summary counts a failure."""
    broken = "def add(a, b):\n    return a - b\n"
    done = calculator.play(yaml(TESTS.format(skip=""), EXITS_WITH_0 + broken), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    assert (
        "exit code 0, but 1 of 2 tests fails"
        in calculator.journal("checks.ended")[-1]["verdict"]["results"][0]["reason"]
    )


def test_failures_of_the_first_of_two_commands_count(calculator: Project) -> None:
    (calculator.root / "test_other.py").write_text(
        "import unittest\n\n\nclass Other(unittest.TestCase):\n    def test_other(self):\n        pass\n"
    )
    until = "`python3 -B -m unittest test_app; python3 -B -m unittest test_other` passes"
    done = calculator.play(IDLE, "--max-iterations", "1", until=until)
    assert done.code == 3, done.said
    reason = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]["reason"]
    assert "exit code 0, but" in reason


def test_a_recipe_that_ignores_the_exit_code_is_no_success_from_the_start(calculator: Project) -> None:
    (calculator.root / "Makefile").write_text("test:\n\t-python3 -m unittest -q\n")
    done = calculator.play(yaml(TESTS.format(skip=""), FIXED), until="`make test` passes")
    assert done.code == 0, done.said
    assert len(calculator.journal("turn.started")) == 1, "the failing baseline must not count as done"
    assert "FAILED" not in done.out


def test_a_test_summary_that_is_gone_is_not_a_pass(calculator: Project) -> None:
    silenced = "import os\nos._exit(0)\n"
    done = calculator.play(yaml(TESTS.format(skip=""), silenced), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    result = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]
    assert (result["status"], result["code"]) == ("could-not-run", 0)
    assert "printed a test summary before the run" in result["reason"]


def test_tests_that_passed_when_tried_again_are_flaky(calculator: Project) -> None:
    runner = "python3 -m unittest -q && echo '2 passed, 1 rerun in 0.10s'"
    done = calculator.play(yaml(TESTS.format(skip=""), FIXED), until=f"`{runner}` passes")
    assert done.code == 0, done.said
    result = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]
    assert (result["flaky"], result["runs"]) == (True, 3)


def test_a_command_that_must_fail_may_count_failures(calculator: Project) -> None:
    assert calculator.play(yaml(TESTS.format(skip=""), FIXED), until="`! python3 -m unittest -q` passes").code == 0


def held_up(calculator: Project) -> str:
    """A run that ends with the failing test skipped."""
    done = calculator.play(skipping("      - say: I am done\n"), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    return calculator.run.name


IDLE = "turns: [{steps: [{say: I see nothing to do}]}]"


def test_starting_again_on_a_tree_that_was_held_up_is_no_success(calculator: Project) -> None:
    first = held_up(calculator)
    (calculator.root / "notes.txt").write_text("an unrelated file")
    again = calculator.play(IDLE, "--max-iterations", "1", until=CHECK)
    assert again.code == 3, again.said
    assert "NOTHING TO DO" not in again.out
    ended = calculator.journal("checks.ended", run=calculator.runs[-1])
    baseline, after = (entry["verdict"]["findings"] for entry in ended)
    assert [finding["rule"] for finding in after] == ["test-skipped"]
    assert [finding["rule"] for finding in baseline] == ["test-skipped", "test-skipped"]
    assert f"Run {first} was held up for this" in again.out
    assert "--allow 'test-skipped=why it is right'" in again.out
    third = calculator.play(IDLE, "--max-iterations", "1", until=CHECK)
    assert third.code == 3, third.said


def test_a_tree_that_was_held_up_is_not_judged_without_snapshots(calculator: Project) -> None:
    first = held_up(calculator)
    refused = calculator.play(IDLE, "--no-snapshots", until=CHECK)
    assert refused.code == 2, refused.said
    assert f"run {first} was held up" in refused.err
    assert "--allow test-skipped=REASON" in refused.err
    allowed = calculator.play(IDLE, "--no-snapshots", "--allow", "test-skipped=it is flaky", until=CHECK)
    assert allowed.code == 0, allowed.said


def test_a_tree_that_was_held_up_is_free_once_the_gaming_is_removed(calculator: Project) -> None:
    held_up(calculator)
    (calculator.root / "test_app.py").write_text(TESTS.format(skip=""))
    (calculator.root / "app.py").write_text(FIXED)
    assert calculator.play(IDLE, until=CHECK).code == 0


def test_an_agent_that_removes_the_gaming_in_a_later_run_succeeds(calculator: Project) -> None:
    held_up(calculator)
    again = calculator.play(f"turns:\n  - steps:\n{REAL_FIX}", until=CHECK)
    assert again.code == 0, again.said
    assert "WARNING" not in again.out.partition("Verifying")[2]


def test_a_tree_that_was_held_up_can_be_allowed_with_a_reason(calculator: Project) -> None:
    held_up(calculator)
    allowed = calculator.play(IDLE, "--allow", "test-skipped=no database here", until=CHECK)
    assert allowed.code == 0, allowed.said
    assert "NOTHING TO DO" in allowed.out
    assert calculator.play(IDLE, until=CHECK).code == 0, "what was allowed stays so"


@pytest.mark.parametrize(
    "check", ["`test -f done.txt` passes", "`test -f done.txt && python3 -m compileall -q .` passes"]
)
def test_deleted_tests_are_not_excused_by_a_check_that_runs_none(calculator: Project, check: str) -> None:
    scenario = 'turns: [{steps: [{run: "rm test_app.py"}, {write: {path: done.txt, content: x}}]}]'
    done = calculator.play(scenario, "--max-iterations", "1", until=check)
    assert done.code == 3, done.said
    assert "[test-deleted]" in done.out
    assert "The work passes without that change too" not in done.out
