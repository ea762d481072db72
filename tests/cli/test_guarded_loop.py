"""Gaming the checks, through the whole loop: caught, told, lifted only by a person who says why."""

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import replace

import pytest
from test_loop import Project, eventually, project  # noqa: F401 - the fixture

from ralph.supervisor.sandbox import probe

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


@pytest.mark.slow
def test_a_skipped_test_is_caught_also_when_a_later_turn_leaves_it_in_place(calculator: Project) -> None:
    done = calculator.play(skipping(REAL_FIX), until=CHECK)
    assert done.code == 0, done.said
    verdicts = [entry["verdict"] for entry in calculator.journal("checks.ended")]
    rules = [[finding["rule"] for finding in verdict.get("findings", [])] for verdict in verdicts]
    assert rules == [[], ["test-skipped"], ["test-skipped"], []]
    assert "test-skipped" in calculator.turn(2).joinpath("prompt.md").read_text()
    assert "@unittest.skip" not in (calculator.root / "test_app.py").read_text()


def test_gaming_to_the_end_is_not_a_success(calculator: Project) -> None:
    done = calculator.play(
        skipping("      - write: {path: notes.txt, content: done}\n"), "--max-iterations", "3", until=CHECK
    )
    assert done.code == 3
    [report] = (calculator.root / ".aiwg" / "ralph").glob("completion-*.md")
    assert "[test-skipped]" in report.read_text()


RIGHT = "def add(a, b):\n    return a + b\n"
WRONG_TEST = TESTS.format(skip="").replace("add(1, 2), 3", "add(1, 2), 4")
CORRECTS_TEST = """
turns:
  - when: {turn: 1}
    steps:
      - patch: {path: test_app.py, find: "add(1, 2), 4", replace: "add(1, 2), 3"}
  - steps:
      - say: The test was wrong, so I keep the change
"""


@pytest.fixture
def wrong_test(calculator: Project) -> Project:
    """The product is right, and its test is wrong."""
    (calculator.root / "app.py").write_text(RIGHT)
    (calculator.root / "test_app.py").write_text(WRONG_TEST)
    calculator.git("commit", "-qam", "A wrong test")
    return calculator


@pytest.mark.slow
def test_user_decides_if_the_agent_keeps_a_change_of_a_wrong_test(wrong_test: Project) -> None:
    done = wrong_test.play(CORRECTS_TEST, "--require", "proven", until=CHECK)
    assert done.code == 7, done.said
    assert len(wrong_test.journal("turn.started")) == 2, "no further turn is paid for"
    prompt = wrong_test.turn(2).joinpath("prompt.md").read_text()
    assert "was a test wrong? Then keep it, and say why" in prompt
    assert "make the product code right" not in prompt
    command = f"ralph resume {wrong_test.run.name} --allow 'assertion-weakened=REASON'"
    assert f"- {command}" in done.out
    [report] = (wrong_test.root / ".aiwg" / "ralph").glob("completion-*.md")
    assert f"`{command}`" in report.read_text()


def test_the_printed_command_ends_the_run_without_another_turn(wrong_test: Project) -> None:
    wrong_test.play(CORRECTS_TEST, "--require", "proven", until=CHECK)
    refused = wrong_test.ralph("resume", wrong_test.run.name, "--allow", "assertion-weakened")
    assert (refused.code, "gives no reason" in refused.err) == (2, True)
    done = wrong_test.ralph("resume", wrong_test.run.name, "--allow", "assertion-weakened=1 + 2 is 3")
    assert done.code == 0, done.said
    assert "the guard rule assertion-weakened is off from now on: 1 + 2 is 3" in done.out
    assert len(wrong_test.journal("turn.started")) == 2
    [entry] = wrong_test.journal("guard-rules.changed")
    assert entry["allowed"] == {"assertion-weakened": "1 + 2 is 3"}


ACCEPTS = """  - when: {role: judge}
    steps:
      - answer: {files: [{path: test_app.py, accept: true, why: 1 + 2 is 3}]}
"""


def with_judge(scenario: str, judge: str = ACCEPTS) -> str:
    """A scenario in which the judge speaks first."""
    return scenario.replace("turns:\n", f"turns:\n{judge}", 1)


def test_judge_decides_if_the_agent_keeps_a_change_of_a_wrong_test(wrong_test: Project) -> None:
    done = wrong_test.play(with_judge(CORRECTS_TEST), until=CHECK)
    assert done.code == 0, done.said
    assert [entry["role"] for entry in wrong_test.journal("turn.started")] == ["implementer", "implementer", "judge"]
    assert "Evidence: judged." in done.out
    again = wrong_test.play(CORRECTS_TEST, until=CHECK)
    assert "NOTHING TO DO" in again.out, "what a judge accepted is settled"


def test_user_decides_if_the_agent_keeps_what_a_judge_rejects(wrong_test: Project) -> None:
    done = wrong_test.play(with_judge(CORRECTS_TEST, REJECTS), until=CHECK)
    assert done.code == 7, done.said
    assert "the judge rejects test_app.py: the sum is not checked any more" in done.out
    roles = [entry["role"] for entry in wrong_test.journal("turn.started")]
    assert roles.count("judge") == 1, "the same tree is judged once"
    again = wrong_test.play(CORRECTS_TEST, "--max-iterations", "1", until=CHECK)
    assert again.code != 0, "starting again does not make it right"


def test_judge_does_not_decide_about_the_product(calculator: Project) -> None:
    fits = """
turns:
  - when: {role: judge}
    steps:
      - answer: {files: [{path: test_app.py, accept: true, why: fine}]}
  - when: {turn: 1}
    steps:
      - write: {path: app.py, content: "def add(a, b):\\n    return 3\\n"}
      - patch: {path: test_app.py, find: "add(0, 0), 0", replace: "add(0, 0), 3"}
  - steps:
      - say: I keep it
"""
    done = calculator.play(fits, until=CHECK)
    assert done.code == 7, done.said
    assert "judge" not in [entry["role"] for entry in calculator.journal("turn.started")]


def test_judge_decides_about_tests_that_may_change(wrong_test: Project) -> None:
    done = wrong_test.play(with_judge(CORRECTS_TEST), "--may-change", "test_*.py", until=CHECK)
    assert done.code == 0, done.said
    assert "Evidence: judged." in done.out
    assert "may change" in done.out
    assert "WARNING test_app.py:7 [assertion-weakened]" in done.out
    assert "You may change tests and settings of checks that match `test_*.py`" in (
        wrong_test.turn(1).joinpath("prompt.md").read_text()
    )


JUDGE_WITH_TEST = """  - when: {role: judge}
    steps:
      - answer:
          files: [{path: test_app.py, accept: true, why: 1 + 2 is 3}]
          tests: [{path: PATH, why: the request names all numbers, text: "TEXT"}]
"""
NEGATIVE = (
    "import unittest\\nimport app\\nclass Negative(unittest.TestCase):\\n"
    "  def test_it(self): self.assertEqual(app.add(-1, -2), -3)\\n"
)


def judge_with_test(path: str, text: str = NEGATIVE) -> str:
    return with_judge(CORRECTS_TEST, JUDGE_WITH_TEST.replace("PATH", path).replace("TEXT", text))


@pytest.mark.slow
def test_tests_of_the_judge_run_and_are_not_part_of_the_work(wrong_test: Project) -> None:
    done = wrong_test.play(judge_with_test("test_negative.py"), "--may-change", "test_*.py", until=CHECK)
    assert done.code == 0, done.said
    assert "Verifying with the judge's own tests: test_negative.py" in done.out
    assert "The checks also pass with its own 1 test file (test_negative.py)" in done.out
    assert not (wrong_test.root / "test_negative.py").exists()
    assert "test_negative" not in wrong_test.git("status", "--porcelain")


@pytest.mark.slow
def test_tests_of_the_judge_that_no_check_runs_are_said_not_to_have_run(wrong_test: Project) -> None:
    done = wrong_test.play(judge_with_test("more/negative.py"), "--may-change", "test_*.py", until=CHECK)
    assert done.code == 0, done.said
    said = " ".join(done.out.split())
    assert "No check ran its own 1 test file (more/negative.py): no more tests ran with it than without." in said
    assert "The checks also pass with its own" not in said


def test_work_that_fails_the_tests_of_the_judge_goes_back(wrong_test: Project) -> None:
    (wrong_test.root / "app.py").write_text("def add(a, b):\n    return abs(a) + abs(b)\n")
    fixes = """  - when: {turn: 3}
    steps: [{write: {path: app.py, content: "def add(a, b):\\n    return a + b\\n"}}]
"""
    scenario = judge_with_test("test_negative.py").replace("turns:\n", f"turns:\n{fixes}", 1)
    done = wrong_test.play(scenario, "--may-change", "test_*.py", until=CHECK)
    assert done.code == 0, done.said
    roles = [entry["role"] for entry in wrong_test.journal("turn.started")]
    assert roles == ["implementer", "judge", "implementer", "judge"]
    prompt = wrong_test.turn(3).joinpath("prompt.md").read_text()
    assert "An independent reviewer wrote tests from the request and the documentation. The work fails them:" in prompt
    assert "self.assertEqual(app.add(-1, -2), -3)" in prompt
    assert "3 != -3" in prompt


FITS_THE_TEST = """
turns:
  - when: {role: judge}
    steps:
      - answer:
          work: {accept: true, why: it adds}
          tests: [{path: test_negative.py, why: the request names all numbers, text: "TEXT"}]
  - when: {turn: 1}
    steps: [{write: {path: app.py, content: "def add(a, b):\\n    return abs(a) + abs(b)\\n"}}]
  - steps: [{write: {path: app.py, content: "def add(a, b):\\n    return a + b\\n"}}]
""".replace("TEXT", NEGATIVE)


def test_judge_finds_work_that_only_fits_the_tests(calculator: Project) -> None:
    done = calculator.play(FITS_THE_TEST, "--require", "judged", until=CHECK)
    assert done.code == 0, done.said
    assert [entry["role"] for entry in calculator.journal("turn.started")] == ["implementer", "judge"] * 2
    assert "- none: tests and settings are as they were before the work" in (
        calculator.turn(2).joinpath("prompt.md").read_text()
    )
    assert "3 != -3" in calculator.turn(3).joinpath("prompt.md").read_text()
    assert "Evidence: proven." in done.out
    assert "An independent turn accepted the work. The checks also pass with its own 1 test file" in done.out


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("answer", ["say: Looks fine to me", "answer: {summary: fine}", "answer: {files: []}"])
def test_judge_that_does_not_say_yes_accepts_nothing(calculator: Project, answer: str) -> None:
    scenario = f"""
turns:
  - when: {{role: judge}}
    steps: [{answer}]
  - steps: [{{write: {{path: app.py, content: "def add(a, b):\\n    return a + b\\n"}}}}]
"""
    done = calculator.play(scenario, "--require", "judged", until=CHECK)
    assert done.code == 7, done.said
    assert "the judge did not say whether it accepts the work" in " ".join(done.out.split())


def test_judge_that_rejects_proven_work_sends_it_back(calculator: Project) -> None:
    scenario = """
turns:
  - when: {role: judge, turn: 2}
    steps: [answer: {work: {accept: false, why: negative numbers are not handled}}]
  - when: {role: judge}
    steps: [answer: {work: {accept: true, why: all numbers are handled now}}]
  - when: {turn: 1}
    steps: [{write: {path: app.py, content: "def add(a, b):\\n    return abs(a) + abs(b)\\n"}}]
  - steps: [{write: {path: app.py, content: "def add(a, b):\\n    return a + b\\n"}}]
"""
    done = calculator.play(scenario, "--require", "judged", until=CHECK)
    assert done.code == 0, done.said
    assert [entry["role"] for entry in calculator.journal("turn.started")] == ["implementer", "judge"] * 2
    assert "✗ the judge rejects the work: negative numbers are not handled" in done.out
    assert "- negative numbers are not handled" in calculator.turn(3).joinpath("prompt.md").read_text()


@pytest.mark.slow
def test_work_that_keeps_failing_the_tests_of_the_judge_is_unproven(calculator: Project) -> None:
    kept = FITS_THE_TEST.replace("return a + b", "return abs(a) + abs(b)")
    done = calculator.play(kept, "--require", "judged", until=CHECK)
    assert done.code == 7, done.said
    assert len(calculator.journal("turn.started")) == 3
    assert "A judge did not accept it: " in " ".join(done.out.split())


def test_work_that_passes_only_its_own_test_is_not_proven(project: Project) -> None:  # noqa: F811
    """unittest counts a test file that is not there as a test that failed, so it looks as if tests ran before."""
    (project.root / "notes.txt").write_text("nothing yet\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "Notes")
    scenario = """
turns:
  - steps:
      - write: {path: app.py, content: "def add(a, b):\\n    return a + b\\n"}
      - write: {path: test_app.py, content: "import unittest\\nclass T(unittest.TestCase):\\n  def test_it(self): pass\\n"}
"""
    done = project.play(scenario, "--require", "proven", until="`python3 -m unittest -q test_app` passes")
    assert done.code == 7, done.said
    assert "The run wrote the tests that its work passes." in " ".join(done.out.split())


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize("path", ["../test_outside.py", "/tmp/test_outside.py", "test_app.py", "link/test_outside.py"])
def test_tests_of_the_judge_stay_inside_and_replace_nothing(wrong_test: Project, path: str) -> None:
    (wrong_test.root / "link").symlink_to(wrong_test.home)
    wrong_test.git("add", "link")
    done = wrong_test.play(judge_with_test(path), "--may-change", "test_*.py", until=CHECK)
    assert done.code == 7, done.said
    assert f"its own 1 test file ({path}) could not be run: {path} " in " ".join(done.out.split())
    assert not (wrong_test.home / "test_outside.py").exists()


@pytest.mark.slow
def test_a_pattern_for_other_files_lifts_nothing(wrong_test: Project) -> None:
    done = wrong_test.play(CORRECTS_TEST, "--may-change", "docs/**", "--require", "proven", until=CHECK)
    assert done.code == 7, done.said
    assert "ERROR test_app.py:7 [assertion-weakened]" in done.out
    resumed = wrong_test.ralph("resume", wrong_test.run.name, "--may-change", "test_app.py")
    assert "WARNING test_app.py:7 [assertion-weakened]" in resumed.out


def test_an_option_is_suggested_if_the_task_names_a_test(wrong_test: Project) -> None:
    fix = "turns: [{steps: [{say: nothing}]}]"
    options = ("--until", CHECK, "--scenario", wrong_test.scenario(fix), "--yes", "--dry-run")
    named = wrong_test.ralph("loop", "Correct the sum in test_app.py, and app.py if need be", *options)
    assert "add --may-change test_app.py" in named.said
    unnamed = wrong_test.ralph("loop", "Correct app.py", *options)
    assert (unnamed.code, "--may-change" in unnamed.said) == (0, False)


@pytest.mark.slow
def test_findings_warn_while_the_checks_still_fail(calculator: Project) -> None:
    """An agent that skips one of two failing tests reads at once that this will not do."""
    (calculator.root / "app.py").write_text("def add(a, b):\n    return a - b + 1\n")
    calculator.git("commit", "-qam", "Two failing tests")
    done = calculator.play(skipping("      - say: nothing\n"), "--max-iterations", "2", until=CHECK)
    assert done.code == 3, done.said
    assert "WARNING test_app.py" in done.out
    prompt = calculator.turn(2).joinpath("prompt.md").read_text()
    assert "Even when they do, the user may have to allow these changes first" in prompt
    assert "[test-skipped]" in prompt


def test_tests_that_pass_without_any_change_are_not_a_success(calculator: Project) -> None:
    """Git ignores what the agent changed, so nothing shows what made the tests pass."""
    (calculator.root / "app.py").write_text("def add(a, b):\n    return __import__('settings').add(a, b)\n")
    (calculator.root / ".gitignore").write_text("settings.py\n")
    (calculator.root / "settings.py").write_text("def add(a, b):\n    return a - b\n")
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "Ignored settings")
    scenario = 'turns: [{steps: [{patch: {path: settings.py, find: "a - b", replace: "a + b"}}]}]'
    done = calculator.play(scenario, "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    assert "failed before the run and passes now, though no file of the project changed" in done.out


def test_a_build_product_that_git_ignores_may_be_all_that_was_asked_for(calculator: Project) -> None:
    (calculator.root / ".gitignore").write_text("dist\n")
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "Ignored product")
    done = calculator.play(
        "turns: [{steps: [{write: {path: dist/app.txt, content: built}}]}]", until="`test -f dist/app.txt` passes"
    )
    assert done.code == 7, done.said
    assert "WARNING `test -f dist/app.txt`" in done.out
    assert "Result: PASS, but not proven\n" in done.out
    assert done.out.count("The run changed no file that git carries") == 2, "with the checks, and as the status"
    assert "Last failure" not in done.out, "no check failed"
    assert f'- ralph resume {calculator.run.name} --guidance "what to do differently"\n' in done.out
    assert "NOT PROVEN: `test -f dist/app.txt` passes here" in calculator.ralph("report").out
    empty = calculator.ralph("accept", calculator.run.name, "--because", " ")
    assert (empty.code, "the reason is empty" in empty.err) == (2, True)
    accepted = calculator.ralph("accept", calculator.run.name, "--because", "dist is what I wanted")
    assert accepted.code == 0, accepted.said
    assert "Evidence: accepted." in accepted.out
    assert "dist is what I wanted" in accepted.out
    assert "| PASS |" in calculator.ralph("report").out
    again = calculator.ralph("accept", "--because", "again")
    assert (again.code, "there is nothing to accept" in again.err) == (2, True)


def test_guidance_on_work_that_is_not_proven_reaches_the_agent(calculator: Project) -> None:
    (calculator.root / ".gitignore").write_text("dist\n")
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "Ignored product")
    scenario = """
turns:
  - when: {prompt: not into dist}
    steps: [{write: {path: out/app.txt, content: built}}]
  - steps: [{write: {path: dist/app.txt, content: built}}]
"""
    assert calculator.play(scenario, until="`cat */app.txt` passes").code == 7
    guided = calculator.ralph("resume", "--guidance", "not into dist")
    assert guided.code == 0, guided.said
    assert "Evidence: proven." in guided.out
    prompt = (calculator.turn(2) / "prompt.md").read_text()
    assert (
        "# Findings\nRalph cannot prove the work: `cat */app.txt` passes here and fails in a clean checkout" in prompt
    )
    assert "Learned:" not in prompt


@pytest.mark.slow
def test_screen_says_what_the_judge_thinks_of_each_file(wrong_test: Project) -> None:
    rejects = ACCEPTS.replace("role: judge", "role: judge, turn: 2").replace("accept: true", "accept: false")
    judges = rejects.replace("1 + 2 is 3", "say why first") + ACCEPTS
    done = wrong_test.play(with_judge(CORRECTS_TEST, judges), "--may-change", "test_*.py", until=CHECK)
    assert "now reads the changed tests and settings: test_app.py\n" in done.out
    assert "✗ the judge rejects test_app.py: say why first\n" in done.out
    assert "FAIL: rejected by the judge: test_app.py: say why first" in wrong_test.ralph("report").out


@pytest.mark.slow
def test_another_failing_test_does_not_drop_the_evidence(calculator: Project) -> None:
    """The agent weakens the red test, and renames a function that another test uses, so that this one fails as it was."""
    (calculator.root / "names.py").write_text("def first():\n    return 1\n")
    other = "import unittest\nfrom names import {0}\n\n\nclass NamesTest(unittest.TestCase):\n"
    other += "    def test_{0}(self):\n        self.assertEqual({0}(), 1)\n"
    (calculator.root / "test_names.py").write_text(other.format("first"))
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "Names")
    files = {
        "test_app.py": TESTS.format(skip="").replace("add(1, 2), 3", "add(2, 1), 1"),
        "app.py": "def add(a, b):\n    subtrahend = b\n    return a - subtrahend\n",
        "names.py": "def initial():\n    return 1\n",
        "test_names.py": other.format("initial"),
    }
    steps = ", ".join(f"{{write: {{path: {path}, content: {json.dumps(text)}}}}}" for path, text in files.items())
    done = calculator.play(f"turns: [{{steps: [{steps}]}}]", "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    assert "its original version still fails" in done.out


@pytest.mark.slow
def test_a_renamed_function_does_not_hold_up_a_real_fix(calculator: Project) -> None:
    """The original test of the renamed function cannot run any more. The red test is as it was, and passes."""
    (calculator.root / "names.py").write_text("def first():\n    return 1\n")
    other = "import unittest\nfrom names import {0}\n\n\nclass NamesTest(unittest.TestCase):\n"
    other += "    def test_{0}(self):\n        self.assertEqual({0}(), 1)\n"
    (calculator.root / "test_names.py").write_text(other.format("first"))
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "Names")
    files = {"app.py": RIGHT, "names.py": "def initial():\n    return 1\n", "test_names.py": other.format("initial")}
    steps = ", ".join(f"{{write: {{path: {path}, content: {json.dumps(text)}}}}}" for path, text in files.items())
    accepts = "{when: {role: judge}, steps: [{answer: {files: [{path: test_names.py, accept: true, why: renamed}]}}]}"
    done = calculator.play(f"turns: [{accepts}, {{steps: [{steps}]}}]", until=CHECK)
    assert done.code == 0, done.said
    assert "Evidence: judged." in done.out


def test_a_rule_is_lifted_with_a_reason_that_is_journaled(calculator: Project) -> None:
    lifted = ("--allow", "test-skipped=the test needs a database")
    assert calculator.play(skipping(REAL_FIX), *lifted, until=CHECK).code == 0
    assert len(calculator.journal("turn.started")) == 1
    assert any("the test needs a database" in entry["text"] for entry in calculator.journal("notice"))


def test_warnings_are_printed_and_do_not_stop_the_run(calculator: Project) -> None:
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


@pytest.mark.slow
def test_rewritten_tests_are_a_warning_if_the_original_tests_pass_too(calculator: Project) -> None:
    done = calculator.play(yaml(HONEST, "def add(a, b):\n    return a + b\n"), until=CHECK)
    assert done.code == 0, done.said
    assert "ERROR" not in done.out
    assert not (calculator.run / "scratch").exists()


@pytest.mark.slow
def test_an_expectation_that_was_changed_is_found_by_reading(calculator: Project) -> None:
    easier = TESTS.format(skip="").replace("add(1, 2), 3", "add(1, 2), -1")
    product = "def add(a, b):\n    # as it should be\n    return a - b\n"
    done = calculator.play(yaml(easier, product), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    assert "ERROR test_app.py:7 [assertion-weakened]" in done.out


@pytest.mark.slow
def test_a_test_that_failed_must_pass_as_it_was(calculator: Project) -> None:
    """Reading only warns here, since the product changed as well. Running the old test tells."""
    easier = TESTS.format(skip="").replace("add(1, 2), 3", "add(2, 1), 1")
    product = "def add(a, b):\n    subtrahend = b\n    return a - subtrahend\n"
    done = calculator.play(yaml(easier, product), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    assert "WARNING test_app.py:7 [assertion-weakened]" in done.out
    name = "test_add (test_app.AddTest.test_add)"
    assert (
        f"ERROR {name} [verifier-edited] {name} failed before the run, and its original version still fails" in done.out
    )


EASIER = TESTS.format(skip="").replace("add(1, 2), 3", "add(2, 1), 1")
SUBTRACTS = "def add(a, b):\n    subtrahend = b\n    return a - subtrahend\n"


@pytest.mark.parametrize(
    "command", ["cd docs && python3 -m unittest discover -q -s ..", "python3 -m unittest discover -q -s docs/.."]
)
@pytest.mark.slow
def test_a_path_that_stays_inside_the_tree_does_not_spare_the_original_tests(calculator: Project, command: str) -> None:
    (calculator.root / "docs").mkdir()
    (calculator.root / "docs" / "index.md").write_text("# Docs\n")
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "Docs")
    done = calculator.play(yaml(EASIER, SUBTRACTS), "--max-iterations", "1", until=f"`{command}` passes")
    assert done.code == 3, done.said
    assert "[verifier-edited]" in done.out
    assert "failed before the run, and its original version still fails" in done.out


@pytest.mark.slow
@pytest.mark.skipif(probe().works, reason="with bubblewrap the original tests can be run")
def test_notice_says_that_the_original_tests_could_not_run(calculator: Project) -> None:
    command = f"python3 -m unittest discover -q -s ../{calculator.root.name}"
    done = calculator.play(yaml(EASIER, SUBTRACTS), "--max-iterations", "1", until=f"`{command}` passes")
    assert done.code == 0, done.said
    assert f"The original tests could not be run apart from the changed ones with `{command}`" in done.out


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


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    ("before", "addition", "code", "severity"),
    [
        ("", EXITS_WITH_0, 3, "ERROR"),
        ("", "import os\n\n\ndef stop():\n    os._exit(0)\n\n\n", 3, "ERROR"),
        ("", "from os import _exit\n\n\n", 3, "ERROR"),
        ("", "import os\n\n\ndef spawn():\n    if os.fork() == 0:\n        os._exit(0)\n\n\n", 0, "WARNING"),
        (
            "import os\n\n\ndef stop():\n    os._exit(0)\n\n\n",
            "import os\n\n\ndef stop(really):\n    os._exit(0)\n    os._exit(really)\n\n\n",
            0,
            "WARNING",
        ),
        ("", "import os\n\n\ndef fail():\n    os._exit(1)\n\n\n", 0, ""),
    ],
    ids=["at-exit", "call", "import", "child", "as-before", "failure"],
)
def test_product_code_that_can_end_the_test_process_with_0_is_found(
    calculator: Project, before: str, addition: str, code: int, severity: str
) -> None:
    broken = "def add(a, b):\n    return a - b\n"
    (calculator.root / "app.py").write_text(before + broken)
    calculator.git("commit", "-qam", "The product before the run", "--allow-empty")
    done = calculator.play(yaml(TESTS.format(skip=""), addition + FIXED), "--max-iterations", "1", until=CHECK)
    assert done.code == code, done.said
    found = re.findall(r"(\w+) app.py:\d+ \[test-detected\]", done.out)
    assert set(found) == ({severity} if severity else set())


@pytest.mark.slow
def test_failures_of_the_first_of_two_commands_count(calculator: Project) -> None:
    (calculator.root / "test_other.py").write_text(
        "import unittest\n\n\nclass Other(unittest.TestCase):\n    def test_other(self):\n        pass\n"
    )
    until = "`python3 -B -m unittest test_app; python3 -B -m unittest test_other` passes"
    done = calculator.play(IDLE, "--max-iterations", "1", until=until)
    assert done.code == 3, done.said
    reason = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]["reason"]
    assert "exit code 0, but" in reason


NODE_SUITE = "# tests 2\\n# pass {}\\n# fail {}\\n"


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    "lines",
    [
        ("python3 -B -m unittest test_app", "python3 -B -m unittest test_other"),
        (f"printf '{NODE_SUITE.format(1, 1)}'", f"printf '{NODE_SUITE.format(2, 0)}'"),
        ("echo '1 failed, 1 passed in 0.10s'", "echo '2 passed in 0.10s'"),
    ],
    ids=["unittest", "node", "pytest-quiet"],
)
def test_failures_of_the_first_suite_of_a_script_count(calculator: Project, lines: tuple[str, str]) -> None:
    (calculator.root / "test_other.py").write_text(
        "import unittest\n\n\nclass Other(unittest.TestCase):\n    def test_other(self):\n        pass\n"
    )
    (calculator.root / "t.sh").write_text("\n".join(lines) + "\n")
    done = calculator.play(IDLE, "--max-iterations", "1", until="`sh t.sh` passes")
    assert done.code == 3, done.said
    reason = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]["reason"]
    assert re.match(r"exit code 0, but 1 of \d tests fails", reason)


@pytest.mark.slow
def test_recipe_that_ignores_the_exit_code_is_not_a_success_at_the_start(calculator: Project) -> None:
    (calculator.root / "Makefile").write_text("test:\n\t-python3 -m unittest -q\n")
    done = calculator.play(yaml(TESTS.format(skip=""), FIXED), until="`make test` passes")
    assert done.code == 0, done.said
    assert len(calculator.journal("turn.started")) == 1, "the failing baseline must not count as done"
    assert "FAILED" not in done.out


@pytest.mark.slow
def test_a_test_summary_that_is_gone_is_not_a_pass(calculator: Project) -> None:
    silenced = "import os\nos._exit(0)\n"
    done = calculator.play(yaml(TESTS.format(skip=""), silenced), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    result = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]
    assert (result["status"], result["code"]) == ("could-not-run", 0)
    assert "printed a test summary before the run" in result["reason"]


@pytest.mark.slow
def test_tests_that_passed_when_tried_again_are_flaky(calculator: Project) -> None:
    runner = "python3 -m unittest -q && echo '2 passed, 1 rerun in 0.10s'"
    done = calculator.play(yaml(TESTS.format(skip=""), FIXED), until=f"`{runner}` passes")
    assert done.code == 0, done.said
    result = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]
    assert (result["flaky"], result["runs"]) == (True, 3)


def test_a_command_that_must_fail_may_count_failures(calculator: Project) -> None:
    assert calculator.play(yaml(TESTS.format(skip=""), FIXED), until="`! python3 -m unittest -q` passes").code == 0


def rejected(calculator: Project) -> str:
    """A run that ends with the failing test skipped."""
    done = calculator.play(skipping("      - say: I am done\n"), "--max-iterations", "1", until=CHECK)
    assert done.code == 3, done.said
    return calculator.run.name


IDLE = "turns: [{steps: [{say: I see nothing to do}]}]"


@pytest.mark.slow
def test_starting_again_on_a_rejected_tree_is_not_a_success(calculator: Project) -> None:
    first = rejected(calculator)
    (calculator.root / "notes.txt").write_text("an unrelated file")
    again = calculator.play(IDLE, "--max-iterations", "1", until=CHECK)
    assert again.code == 3, again.said
    assert "NOTHING TO DO" not in again.out
    [second] = [run for run in calculator.runs if run.name != first]
    ended = calculator.journal("checks.ended", run=second)
    baseline, after = (entry["verdict"]["findings"] for entry in ended)
    assert [finding["rule"] for finding in after] == ["test-skipped"]
    assert [finding["rule"] for finding in baseline] == ["test-skipped", "test-skipped"]
    assert f"Run {first} had this finding" in again.out
    assert "--allow 'test-skipped=why it is right'" in again.out
    third = calculator.play(IDLE, "--max-iterations", "1", until=CHECK)
    assert third.code == 3, third.said


@pytest.mark.slow
def test_a_tree_that_was_rejected_is_not_judged_without_snapshots(calculator: Project) -> None:
    first = rejected(calculator)
    refused = calculator.play(IDLE, "--no-snapshots", until=CHECK)
    assert refused.code == 2, refused.said
    assert f"run {first} had guard findings" in refused.err
    assert "--allow test-skipped=REASON" in refused.err
    allowed = calculator.play(IDLE, "--no-snapshots", "--allow", "test-skipped=it is flaky", until=CHECK)
    assert allowed.code == 0, allowed.said


@pytest.mark.slow
def test_a_subdirectory_that_was_rejected_is_not_judged_without_snapshots(calculator: Project) -> None:
    (calculator.root / "sub").mkdir()
    for name in ("app.py", "test_app.py"):
        calculator.git("mv", name, f"sub/{name}")
    calculator.git("commit", "-qm", "Move it")
    below = replace(calculator, root=calculator.root / "sub")
    scenario = skipping("      - say: I am done\n")
    assert below.play(scenario, "--max-iterations", "1", until=CHECK).code == 3
    refused = below.play(IDLE, "--no-snapshots", until=CHECK)
    assert refused.code == 2, refused.said
    assert "had guard findings" in refused.err


@pytest.mark.slow
def test_a_tree_that_was_rejected_is_free_once_the_gaming_is_removed(calculator: Project) -> None:
    rejected(calculator)
    (calculator.root / "test_app.py").write_text(TESTS.format(skip=""))
    (calculator.root / "app.py").write_text(FIXED)
    assert calculator.play(IDLE, until=CHECK).code == 0


@pytest.mark.slow
def test_an_agent_that_removes_the_gaming_in_a_later_run_succeeds(calculator: Project) -> None:
    rejected(calculator)
    again = calculator.play(f"turns:\n  - steps:\n{REAL_FIX}", until=CHECK)
    assert again.code == 0, again.said
    assert "WARNING" not in again.out.partition("Verifying")[2]


@pytest.mark.slow
def test_a_tree_that_was_rejected_can_be_allowed_with_a_reason(calculator: Project) -> None:
    rejected(calculator)
    allowed = calculator.play(IDLE, "--allow", "test-skipped=no database here", until=CHECK)
    assert allowed.code == 0, allowed.said
    assert "NOTHING TO DO" in allowed.out
    assert calculator.play(IDLE, until=CHECK).code == 0, "what was allowed stays so"


@pytest.mark.slow
class TestACopyOfATreeThatWasRejected:
    @staticmethod
    def is_rejected(copy: Project, run: str) -> bool:
        again = copy.play(IDLE, "--max-iterations", "1", until=CHECK)
        assert (again.code, "NOTHING TO DO" in again.out) in ((3, False), (0, True)), again.said
        assert again.code == 0 or f"Run {run} had this finding" in again.out, again.said
        return again.code == 3

    @pytest.mark.parametrize("how", [("mv",), ("cp", "-r")], ids=["moved", "copied"])
    @pytest.mark.parametrize("has_git", [True, False], ids=["with git", "without git"])
    def test_tree_stays_rejected_after_the_project_is_moved_or_copied(
        self, calculator: Project, how: tuple[str, ...], has_git: bool
    ) -> None:
        if not has_git:
            shutil.rmtree(calculator.root / ".git")
        first = rejected(calculator)
        subprocess.run([*how, calculator.root, calculator.home / "other"], check=True)
        copy = replace(calculator, root=calculator.home / "other")
        refused = copy.play(IDLE, "--no-snapshots", until=CHECK)
        assert refused.code == 2, refused.said
        assert f"run {first} had guard findings" in refused.err
        assert self.is_rejected(copy, first)
        allowed = copy.play(IDLE, "--allow", "test-skipped=no database here", until=CHECK)
        assert allowed.code == 0, allowed.said
        assert not self.is_rejected(copy, first), "what was allowed stays so"

    def test_a_clone_with_the_gamed_files_is_rejected(self, calculator: Project) -> None:
        first = rejected(calculator)
        calculator.git("commit", "-qam", "it passes now")
        calculator.git("clone", "-q", ".", str(calculator.home / "clone"))
        clone = replace(calculator, root=calculator.home / "clone")
        assert self.is_rejected(clone, first)

    def test_a_clone_without_the_gamed_files_is_free(self, calculator: Project) -> None:
        first = rejected(calculator)
        calculator.git("clone", "-q", ".", str(calculator.home / "clone"))
        clone = replace(calculator, root=calculator.home / "clone")
        (clone.root / "app.py").write_text(FIXED)
        assert not self.is_rejected(clone, first)

    def test_a_clone_from_before_a_deleted_test_was_written_is_free(self, calculator: Project) -> None:
        calculator.git("rm", "-q", "--cached", "test_app.py")
        calculator.git("commit", "-q", "--amend", "-m", "without tests")
        calculator.git("add", "-A")
        calculator.git("commit", "-qm", "with tests")
        deletes = 'turns: [{steps: [{run: "rm test_app.py; touch done.txt"}]}]'
        assert calculator.play(deletes, "--max-iterations", "1", until="`test -f done.txt` passes").code == 3
        calculator.git("clone", "-q", ".", str(calculator.home / "clone"))
        clone = replace(calculator, root=calculator.home / "clone")
        clone.git("checkout", "-q", "HEAD~1")
        (clone.root / "done.txt").touch()
        assert clone.play(IDLE, "--max-iterations", "1", until="`test -f done.txt` passes").code == 0


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    "check", ["`test -f done.txt` passes", "`test -f done.txt && python3 -m compileall -q .` passes"]
)
def test_deleted_tests_are_not_excused_by_a_check_that_runs_none(calculator: Project, check: str) -> None:
    scenario = 'turns: [{steps: [{run: "rm test_app.py"}, {write: {path: done.txt, content: x}}]}]'
    done = calculator.play(scenario, "--max-iterations", "1", until=check)
    assert done.code == 3, done.said
    assert "[test-deleted]" in done.out
    assert "The work passes without that change too" not in done.out


SKIPS_AND_HANGS = f"""
sed -i "s/^    def test_add/{SKIP.rstrip()}\\\\n    def test_add/" test_app.py
touch changed
sleep 60
"""


@pytest.mark.slow
class TestChangesThatNoVerdictCovers:
    """A run that ends before its checks ran leaves changes that nobody has judged."""

    @pytest.fixture(params=["aborted", "killed"])
    def unjudged(self, calculator: Project, request: pytest.FixtureRequest) -> Project:
        engine = calculator.start(*calculator.working(SKIPS_AND_HANGS, until=CHECK))
        eventually(lambda: (calculator.root / "changed").exists())
        if request.param == "aborted":
            assert calculator.ralph("abort").code == 0
        else:
            engine.kill()
        engine.communicate()
        calculator.end()
        assert "skip" in (calculator.root / "test_app.py").read_text()
        return calculator

    def test_the_next_run_compares_with_the_state_before_it(self, unjudged: Project) -> None:
        first = unjudged.run.name
        again = unjudged.play(IDLE, "--max-iterations", "1", until=CHECK)
        assert again.code == 3, again.said
        assert "NOTHING TO DO" not in again.out
        assert "[test-skipped]" in again.out
        assert f"Run {first} ended before its changes were verified" in again.out
        assert f"ralph diff {first}" in again.out
        assert "--allow 'test-skipped=why it is right'" in again.out
        allowed = unjudged.play(IDLE, "--allow", "test-skipped=no database here", until=CHECK)
        assert allowed.code == 0, allowed.said
        assert unjudged.play(IDLE, until=CHECK).code == 0, "what was allowed stays so"

    @pytest.mark.slow
    def test_unjudged_work_is_recognized_after_the_project_was_moved(self, unjudged: Project) -> None:
        first = unjudged.run.name
        moved = replace(unjudged, root=unjudged.root.rename(unjudged.home / "moved"))
        refused = moved.play(IDLE, "--no-snapshots", until=CHECK)
        assert refused.code == 2, refused.said
        again = moved.play(IDLE, "--max-iterations", "1", until=CHECK)
        assert again.code == 3, again.said
        assert f"Run {first} ended before its changes were verified" in again.out
        allowed = moved.play(IDLE, "--allow", "test-skipped=no database here", until=CHECK)
        assert allowed.code == 0, allowed.said
        assert moved.play(IDLE, until=CHECK).code == 0, "what was allowed stays so"

    @pytest.mark.slow
    def test_unjudged_work_is_not_accepted_without_snapshots(self, unjudged: Project) -> None:
        first = unjudged.run.name
        refused = unjudged.play(IDLE, "--no-snapshots", until=CHECK)
        assert refused.code == 2, refused.said
        assert f"run {first} ended before its changes were verified" in refused.err
        allowed = unjudged.play(IDLE, "--no-snapshots", "--allow", "verifier-edited=I looked at it", until=CHECK)
        assert allowed.code == 0, allowed.said

    @pytest.mark.slow
    def test_the_advice_does_not_name_a_run_that_was_removed(self, unjudged: Project) -> None:
        first = unjudged.run.name
        assert unjudged.ralph("clean", first).code == 0
        again = unjudged.play(IDLE, "--max-iterations", "1", until=CHECK)
        assert again.code == 3, again.said
        assert "[test-skipped]" in again.out
        assert f"ralph diff {first}" not in again.out
        [command] = set(re.findall(r"`(git diff \w+ -- test_app\.py)`", again.out))
        assert "+    @unittest.skip" in unjudged.git(*shlex.split(command)[1:])

    @pytest.mark.slow
    def test_a_run_whose_snapshots_are_gone_is_named(self, unjudged: Project) -> None:
        first = unjudged.run.name
        unjudged.git("update-ref", "-d", f"refs/ralph/{first}")
        unjudged.git("reflog", "expire", "--expire=now", "--all")
        unjudged.git("gc", "-q", "--prune=now")
        again = unjudged.play(IDLE, "--max-iterations", "1", until=CHECK)
        assert again.code == 3, again.said
        assert "NOTHING TO DO" not in again.out
        assert f"Run {first} changed this tree and nothing verified it" in again.out
        advised = shlex.split(re.findall(r"start again with (--allow .*)\.$", again.out, re.MULTILINE)[0])
        assert "verifier-edited=why it is right" in advised
        assert unjudged.play(IDLE, *advised, until=CHECK).code == 0

    def test_reverted_change_no_longer_holds_up_a_run(self, unjudged: Project) -> None:
        unjudged.git("checkout", "-q", "test_app.py")
        (unjudged.root / "app.py").write_text(FIXED)
        assert unjudged.play(IDLE, until=CHECK).code == 0


@pytest.mark.slow
def test_gaming_that_was_not_enough_is_not_forgotten(calculator: Project) -> None:
    """The checks still failed, so no guard looked; the next run starts from there."""
    games = yaml(TESTS.format(skip=SKIP), "def add(a, b):\n    return 1\n")
    assert calculator.play(games, "--max-iterations", "1", until=CHECK).code == 3
    (calculator.root / "app.py").write_text("def add(a, b):\n    return 0\n")
    again = calculator.play(IDLE, "--max-iterations", "1", until=CHECK)
    assert again.code == 3, again.said
    assert "[test-skipped]" in again.out


@pytest.mark.slow
def test_changes_of_the_user_after_an_aborted_run_are_not_rejected(calculator: Project) -> None:
    assert calculator.play(IDLE, "--max-iterations", "1", until=CHECK).code == 3
    (calculator.root / "test_app.py").write_text(TESTS.format(skip=SKIP))
    assert calculator.play(IDLE, until=CHECK).code == 0


QUOTES = TESTS.format(skip="").replace("self.assertEqual(add(0, 0), 0)", "print('1 failed, 3 passed in 2.0s')")


@pytest.mark.slow
def test_a_summary_that_a_test_prints_is_not_the_summary_of_the_check(calculator: Project) -> None:
    """What is tested may be a tool that shows the results of other tests."""
    (calculator.root / "test_app.py").write_text(QUOTES)
    calculator.git("commit", "-qam", "Print the summary of another run")
    done = calculator.play(yaml(QUOTES, FIXED), until=CHECK)
    assert done.code == 0, done.said


FLAKY = """import os


def test_flaky():
    if os.path.exists("first-try"):
        os.remove("first-try")
        raise AssertionError("not at the first try")


def test_other():
    assert True
"""


@pytest.mark.slow
def test_a_recipe_that_no_longer_has_to_run_tests_again_gets_a_warning_at_most(calculator: Project) -> None:
    """The second run, before the work, tries only what failed in the first; after it, the first one passes."""
    again = "python3 -m pytest -q -p no:cacheprovider test_flaky.py::test_flaky"
    recipe = f"test:\n\tpython3 -m pytest -q -p no:cacheprovider test_flaky.py || {again}\n\ttest -f done.txt\n"
    (calculator.root / "Makefile").write_text(recipe)
    (calculator.root / "test_flaky.py").write_text(FLAKY)
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "Tests that are tried twice")
    (calculator.root / "first-try").touch()
    steps = [{"write": {"path": "done.txt", "content": "x"}}]
    done = calculator.play(json.dumps({"turns": [{"steps": steps}]}), until="`make test` passes")
    baseline, after = (entry["verdict"]["results"][0]["tests"] for entry in calculator.journal("checks.ended"))
    assert (baseline["passed"] + baseline["failed"], after["passed"]) == (3, 2)
    assert done.code == 0, done.said
    assert (
        "[fewer-tests] 2 tests ran, and 3 before the run: the runner may have counted some of them twice." in done.out
    )


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    ("summary", "reason"),
    [
        ("[  PASSED  ] 1 test.\\n[  FAILED  ] 2 tests, listed below:", "2 of 3 tests fail"),
        ("67%% tests passed, 1 tests failed out of 3", "1 of 3 tests fails"),
        ("app-1  | 2 failed, 3 passed in 1.00s", "2 of 5 tests fail"),
    ],
    ids=["gtest", "ctest", "compose"],
)
def test_failures_in_other_summaries_beat_exit_code_0(calculator: Project, summary: str, reason: str) -> None:
    (calculator.root / "Makefile").write_text(f"test:\n\t@printf '{summary}\\n'\n")
    done = calculator.play(IDLE, "--max-iterations", "1", until="`make test` passes")
    assert done.code == 3, done.said
    result = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]
    assert result["reason"] == f"exit code 0, but {reason}"


@pytest.mark.slow
def test_vanished_tests_are_not_a_pass(calculator: Project) -> None:
    recipe = "test:\n\t-python3 -m unittest -q {}\n\ttest -f done.txt\n"
    (calculator.root / "Makefile").write_text(recipe.format("test_app"))
    (calculator.root / "app.py").write_text(FIXED)
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "A recipe")
    empty = json.dumps(
        {
            "turns": [
                {
                    "steps": [
                        {"write": {"path": "test_app.py", "content": "import sys\nsys.argv[1:] = ['-q']\n"}},
                        {"write": {"path": "done.txt", "content": "x"}},
                    ]
                }
            ]
        }
    )
    done = calculator.play(empty, "--max-iterations", "1", until="`make test` passes")
    assert done.code == 3, done.said
    result = calculator.journal("checks.ended")[-1]["verdict"]["results"][0]
    assert (result["status"], result["reason"]) == ("could-not-run", "no tests ran, but 2 tests ran before the run")


IGNORED_HELP = """
turns:
  - when: {turn: 1}
    steps:
      - write: {path: local.py, content: "def plus(a, b): return a + b\n"}
      - write: {path: app.py, content: "from local import plus as add\n"}
  - steps:
      - write: {path: app.py, content: "def add(a, b):\n    return a + b\n"}
"""


def test_work_that_needs_an_ignored_file_goes_back_to_the_agent(calculator: Project) -> None:
    (calculator.root / ".gitignore").write_text("local.py\n")
    calculator.git("add", "-A")
    calculator.git("commit", "-qm", "Ignore local files")
    done = calculator.play(IGNORED_HELP, until=CHECK)
    assert done.code == 0, done.said
    prompt = calculator.turn(2).joinpath("prompt.md").read_text()
    assert "[clean-room] `python3 -m unittest -q` passes here and fails in a clean checkout" in prompt
    assert "The run made local.py, which git ignores and a checkout does not have." in prompt
    assert "Evidence: proven." in done.out


REJECTS = """  - when: {role: judge}
    steps:
      - answer: {files: [{path: test_app.py, accept: false, why: the sum is not checked any more}]}
"""


@pytest.mark.slow
def test_change_that_the_judge_rejects_goes_back_to_the_agent(wrong_test: Project) -> None:
    done = wrong_test.play(with_judge(CORRECTS_TEST, REJECTS), "--may-change", "test_*.py", until=CHECK)
    assert done.code == 7, done.said
    assert len(wrong_test.journal("turn.started")) == 3, "the same tree is judged once"
    assert "- test_app.py: the sum is not checked any more" in wrong_test.turn(3).joinpath("prompt.md").read_text()
    assert f'ralph accept {wrong_test.run.name} --because "..."' in done.out


@pytest.mark.slow
def test_judge_is_not_asked_if_only_a_proof_counts(wrong_test: Project) -> None:
    options = ("--may-change", "test_*.py", "--require", "proven")
    done = wrong_test.play(with_judge(CORRECTS_TEST), *options, until=CHECK)
    assert (done.code, len(wrong_test.journal("turn.started"))) == (7, 1), done.said
    accepted = wrong_test.ralph("accept", wrong_test.run.name, "--because", "1 + 2 is 3")
    assert accepted.code == 0, accepted.said
    assert len(wrong_test.journal("turn.started")) == 1
    [entry] = wrong_test.journal("guard-rules.changed")
    assert [why.split(": ", 1)[1] for why in entry["accepted"].values()] == ["1 + 2 is 3"]
    again = wrong_test.ralph("accept", wrong_test.run.name, "--because", "again")
    assert again.code == 2, again.said


def test_success_without_a_clean_room_says_so(calculator: Project) -> None:
    fix = 'turns: [{steps: [{patch: {path: app.py, find: "a - b", replace: "a + b"}}]}]'
    done = calculator.play(fix, "--no-clean-room", until=CHECK)
    assert done.code == 0, done.said
    assert "Evidence: accepted. You switched the clean room off." in done.out
