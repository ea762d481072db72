"""What a loop learns: lessons, windows, roles, streaks, the best iteration, and the documents that tell of them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Check, CheckResult, CheckStatus, Counts, Finding, Rule, Verdict
from ralph.core.events import (
    ChecksEnded,
    Commit,
    Decision,
    Do,
    RunChecks,
    RunEnded,
    TurnEnded,
    Work,
    WorkCommitted,
)
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.turns import Change, FileStat, TurnEnd, TurnRequest, TurnResult
from ralph.documents import reflection
from ralph.verify.measures import read_failure_set
from ralph.workflows.loop import HOME
from ralph.workflows.loop.prompt import NAMES
from ralph.workflows.loop.report import is_worth_restoring
from ralph.workflows.loop.rules import Loop, _choose_best
from ralph.workflows.loop.state import (
    PROFILES,
    Best,
    Iteration,
    LoopParameters,
    LoopState,
    OnStuck,
    Phase,
    TaskType,
    guess_task_type,
    warn_if_few_iterations,
)

# Written out: a test that imports what it checks cannot fail.
REMEMBERED = 10

NOW = 1_800_000_000.0
RUN = "261115-093000-k3x9"
PROMPTS = {name: (resources.files("ralph.prompts") / f"{name}.md").read_text() for name in NAMES}
LOUD = "E   AssertionError: assert 1 == 2\ntest_a.py:12: in test_sum"


def loop(**fixed: Any) -> Loop:
    known = LoopParameters(RUN, "`make` passes AND `lint` passes", 10, NOW, 3600.0)
    return Loop("fix it", (Check("make"), Check("lint")), PROMPTS, replace(known, **fixed))


def verdict(
    make: bool = False,
    lint: bool = True,
    output: str = LOUD,
    snapshot: str = "",
    failed: int | None = None,
    gamed: bool = False,
) -> Verdict:
    tests = None if failed is None else Counts(10 - failed, failed)
    results = tuple(
        CheckResult(
            f"`{name}` passes",
            CheckStatus.PASSED if passed else CheckStatus.FAILED,
            0.1,
            reason="" if passed else "exit code 1",
            output="" if passed else output,
            command=name,
            tests=tests if name == "make" else None,
            failures=None if passed else read_failure_set(Check(name), output, tests if name == "make" else None, None),
        )
        for name, passed in (("make", make), ("lint", lint))
    )
    findings = (Finding(Rule.TEST_SKIPPED, "test_a.py", 3, "test_sum is skipped."),) if gamed else ()
    return Verdict(results, findings, snapshot)


def only(decision: Decision) -> Work:
    """The one thing that should be in progress."""
    assert isinstance(decision, Do)
    (work,) = decision.work
    return work


class Run:
    """A loop that is driven by hand."""

    def __init__(self, rules: Loop, recalls: tuple[str, ...] = ()) -> None:
        self.asked = ""

        def recall(query: str, failing: Sequence[str]) -> tuple[str, ...]:
            self.asked = query
            return recalls

        self.rules = rules = replace(rules, recall=recall)
        self.state = rules.load({})
        self.documents: dict[str, str] = {}
        self.copies: dict[str, str] = {}
        self.log: list[str] = []
        self.prompts: list[str] = []
        self.roles: list[str] = []

    def take(self, event: Any) -> None:
        transition = self.rules.accept(self.state, event, NOW)
        self.state = transition.state
        self.documents.update(transition.documents)
        self.copies.update(transition.side_files.copies)
        self.log += transition.side_files.lines.values()

    def turn(self, changed: tuple[FileStat, ...] = (), end: TurnEnd = TurnEnd.FINISHED, **answer: str) -> None:
        request = only(self.rules.decide(self.state, NOW))
        assert isinstance(request, TurnRequest)
        self.request = request
        self.prompts.append(request.prompt.text)
        self.roles.append(request.role)
        change = Change(f"sha-{self.state.iteration}", 2, 5, 1, stats=changed)
        result = TurnResult(end, NOW, NOW + 3.0, answer=answer or None, change=change)
        self.take(TurnEnded(request.key, 1, request.role, 1, result, is_iteration=request.is_iteration))

    def check(self, result: Verdict) -> None:
        work = only(self.rules.decide(self.state, NOW))
        assert isinstance(work, RunChecks)
        self.take(ChecksEnded(work.key, result))

    def iterate(self, result: Verdict, **answer: str) -> None:
        self.turn(**answer)
        self.check(result)


def begun(recalls: tuple[str, ...] = (), **fixed: Any) -> Run:
    run = Run(loop(**fixed), recalls)
    run.check(verdict())
    return run


class TestKinds:
    @pytest.mark.parametrize(
        ("task", "kind"),
        [
            ("Fix all failing tests", TaskType.TEST_FIX),
            ("Make the tests pass", TaskType.TEST_FIX),
            ("Get CI green", TaskType.TEST_FIX),
            ("Fix the flaky login test", TaskType.TEST_FIX),
            ("Repair the broken test suite", TaskType.TEST_FIX),
            ("Fix the tests that fail after the upgrade to Node 22", TaskType.TEST_FIX),
            ("Fix TypeScript errors", TaskType.TYPES),
            ("Fix TypeScript type errors", TaskType.TYPES),
            ("Fix the mypy errors in src/", TaskType.TYPES),
            ("Add type hints to the cli module", TaskType.TYPES),
            ("Make `tsc --noEmit` pass", TaskType.TYPES),
            ("Fix the compile errors", TaskType.TYPES),
            ("Fix all lint errors", TaskType.LINT),
            ("Make ruff happy", TaskType.LINT),
            ("Clean up the eslint warnings", TaskType.LINT),
            ("Format the code with prettier", TaskType.LINT),
            ("Convert to ESM", TaskType.MIGRATION),
            ("Upgrade Django from 4.2 to 5.1", TaskType.MIGRATION),
            ("Port the scripts to Python 3", TaskType.MIGRATION),
            ("Move tests to pytest", TaskType.MIGRATION),
            ("Replace requests with httpx", TaskType.MIGRATION),
            ("Migrate the tests to pytest, so that all tests pass", TaskType.MIGRATION),
            ("Rename User to Account across the codebase", TaskType.REFACTOR),
            ("Extract the parser into its own module", TaskType.REFACTOR),
            ("Split cart.py into smaller modules", TaskType.REFACTOR),
            ("Please remove unused code", TaskType.REFACTOR),
            ("Add tests for coverage", TaskType.COVERAGE),
            ("Add a test for cart", TaskType.COVERAGE),
            ("Raise coverage of the parser to 80%", TaskType.COVERAGE),
            ("Write unit tests for the edge cases", TaskType.COVERAGE),
            ("Scaffold a new service", TaskType.GREENFIELD),
            ("Create a CLI tool that converts CSV to JSON", TaskType.GREENFIELD),
            ("Rewrite the importer from scratch", TaskType.GREENFIELD),
            ("Fix the memory leak", TaskType.BUG_FIX),
            ("Fix the crash when the input is empty", TaskType.BUG_FIX),
            ("Fix the migration script", TaskType.BUG_FIX),
            ("Fix the number format in invoices", TaskType.BUG_FIX),
            ("Fix the import error if the config has no port", TaskType.BUG_FIX),
            ("Debug the type of the id column", TaskType.BUG_FIX),
            ("Find out why the upload is broken", TaskType.BUG_FIX),
            ("Write docs for the test runner", TaskType.GENERAL),
            ("Add a type field to the response", TaskType.GENERAL),
            ("Add a --format option", TaskType.GENERAL),
            ("Make the thing nicer", TaskType.GENERAL),
        ],
    )
    def test_the_words_of_a_task_say_its_type(self, task: str, kind: TaskType) -> None:
        assert guess_task_type(task, "`make` passes") is kind
        assert guess_task_type(task, "`make test` passes") is kind, "nearly every criterion runs tests"

    @pytest.mark.parametrize(
        ("task", "criterion", "kind"),
        [
            ("Fix all errors", "`mypy .` passes", TaskType.TYPES),
            ("Fix the remaining problems.", "`ruff check .` passes", TaskType.LINT),
            ("Fix all errors", "`make` passes", TaskType.BUG_FIX),
            ("Fix the memory leak", "tests pass AND no lint errors", TaskType.BUG_FIX),
            ("Make it better", "coverage from `pytest --cov=app` >= 80%", TaskType.COVERAGE),
            ("Add a flag\n\nThen fix the lint errors.", "`make` passes", TaskType.GENERAL),
        ],
    )
    def test_criterion_says_the_type_if_the_task_does_not(self, task: str, criterion: str, kind: TaskType) -> None:
        assert guess_task_type(task, criterion) is kind

    def test_the_windows_are_those_of_the_method(self) -> None:
        assert all(
            PROFILES[kind].window <= 2 for kind in (TaskType.TEST_FIX, TaskType.BUG_FIX, TaskType.LINT, TaskType.TYPES)
        )
        assert all(PROFILES[kind].window == 3 for kind in (TaskType.REFACTOR, TaskType.MIGRATION))
        assert all(PROFILES[kind].window == 5 for kind in (TaskType.COVERAGE, TaskType.GREENFIELD, TaskType.GENERAL))

    def test_limit_below_the_usual_one_is_reported(self) -> None:
        assert "5 to 20" in warn_if_few_iterations(TaskType.COVERAGE, 4)
        assert (
            warn_if_few_iterations(TaskType.COVERAGE, 5)
            == warn_if_few_iterations(TaskType.COVERAGE, None)
            == warn_if_few_iterations(TaskType.GENERAL, 1)
            == ""
        )


class TestLessons:
    def test_lessons_say_what_failed_why_and_what_to_try(self) -> None:
        run = begun()
        run.iterate(verdict(), summary="tried A", learned="the sum starts at 1", next="start at 0")
        last = run.state.iterations[-1]
        assert "assert 1 == 2" in last.what_failed
        assert (last.why, last.try_next) == ("the sum starts at 1", "start at 0")
        assert last.learnings == "the sum starts at 1. Next to try: start at 0."

    def test_without_an_answer_there_is_no_reason_that_fits_every_failure(self) -> None:
        for result in (verdict(), verdict(output="AssertionError: expected 1"), verdict(output="SyntaxError: invalid")):
            run = begun()
            run.iterate(result)
            assert run.state.iterations[-1].why == "", result

    @pytest.mark.parametrize(
        ("result", "why", "next_"),
        [
            (verdict(make=True, gamed=True), "without the work", "test_a.py:3"),
        ],
    )
    def test_without_an_answer_lessons_come_from_the_failure(self, result: Verdict, why: str, next_: str) -> None:
        run = begun()
        run.iterate(result)
        last = run.state.iterations[-1]
        assert why in last.why or why in last.learnings
        assert next_ in last.try_next

    def test_lesson_names_checks_that_the_run_broke(self) -> None:
        run = begun()
        run.iterate(verdict(lint=False))
        assert "broke `lint`, which passed before" in run.state.iterations[-1].why
        assert "passed before this run" in run.state.check_results
        assert "(failed: exit code 1; passed before the run)" in run.state.verification
        assert "(failed: exit code 1; failed before the run, too)" in run.state.verification

    def test_checks_that_could_not_run_teach_nothing(self) -> None:
        run = begun()
        broken = CheckResult("`make` passes", CheckStatus.COULD_NOT_RUN, 1.0, reason="still running after 600 s")
        run.iterate(Verdict((broken,)), summary="x", learned="nonsense", next="nonsense")
        last = run.state.iterations[-1]
        assert (last.learnings, last.why, last.try_next) == ("", "", "")
        assert not any("reflections" in path for path in run.copies)
        assert run.state.progress.stalled == 0

    def test_the_prompt_has_as_many_as_the_type_deserves(self) -> None:
        for kind in TaskType:
            run = begun(type=kind)
            for number in range(1, 9):
                run.iterate(
                    verdict(output=f"error: {'abcdefghi'[number]}\n" * (9 - number)),
                    summary=f"try-{number}",
                    learned=f"lesson-{number}",
                )
            run.turn()
            told = [number for number in range(1, 9) if f"Why: lesson-{number}\n" in run.prompts[-1]]
            assert told == list(range(9 - PROFILES[kind].window, 9))
            assert run.state.unverified_iteration is not None
            assert run.state.unverified_iteration.used == tuple(told)

    def test_lesson_about_a_fixed_failure_is_not_shown(self) -> None:
        run = begun(type=TaskType.GENERAL)
        run.iterate(verdict(make=True, lint=False, output="error: a"), summary="lint it", learned="lesson-lint")
        run.iterate(verdict(output="error: b"), summary="make it", learned="lesson-make")
        run.turn()
        assert "lesson-make" in run.prompts[-1]
        assert "lesson-lint" not in run.prompts[-1]

    def test_prompt_stays_small_with_any_answers(self) -> None:
        run = begun(type=TaskType.GENERAL, on_stuck=OnStuck.CONTINUE, recalls=("r" * 400,) * 3)
        sizes = []
        for number in range(40):
            run.iterate(
                verdict(output=f"error {'ab'[number % 2]}\n" + "x" * 9000),
                summary="s" * 2000,
                learned="l" * 2000,
                next="n" * 2000,
            )
            sizes.append(len(run.prompts[-1]))
        assert max(sizes) < 16_000

    def test_lessons_of_other_loops_are_in_the_first_prompt(self) -> None:
        run = begun(recalls=("(2 days ago, solved) dates need a time zone",))
        assert "assert 1 == 2" in run.asked, "memory is asked with what fails"
        run.turn()
        assert "dates need a time zone" in run.prompts[-1]

    def test_prompt_names_the_scope(self) -> None:
        run = begun(scope=("src/**", "*.md"))
        run.turn()
        assert "`src/**`, `*.md`" in run.prompts[-1]


def failing_tests(*names: str, output: str = LOUD, left_out: int = 0) -> Verdict:
    failed = verdict(output=output).results[0]
    return Verdict((replace(failed, failing=names, left_out=left_out, log="checks/iteration-1-1/stdout"),))


class TestPrompt:
    def test_tests_that_newly_pass_or_fail_are_named(self) -> None:
        run = Run(loop())
        run.check(failing_tests("test_a", "test_b"))
        run.turn()
        assert "# Results that the previous iteration changed" not in run.prompts[-1]
        run.check(failing_tests("test_b", "test_c"))
        run.turn()
        news = run.prompts[-1].partition("# Results that the previous iteration changed\n")[2].partition("\n#")[0]
        assert news == "Now passes: test_a. Now fails: test_c.\n"

    def test_output_that_was_cut_is_in_the_inbox(self) -> None:
        run = Run(loop())
        run.check(failing_tests("test_a", output="error: cause\n... 5000 lines left out\nthe end", left_out=5000))
        run.turn()
        assert "error: cause\n... 5000 lines left out\nthe end" in run.prompts[-1]
        assert "The whole output is in `.ralph/turn/inbox/checks/1.txt`." in run.prompts[-1]
        assert run.request.copied_files == {"checks/1.txt": f".ralph/runs/{RUN}/checks/iteration-1-1/stdout"}

    def test_checks_that_pass_by_gaming_are_not_said_to_fail(self) -> None:
        run = begun()
        run.iterate(verdict(make=True, gamed=True))
        run.turn()
        assert "All checks pass, but this does not count yet: see the findings." in run.prompts[-1]
        assert "do not pass" not in run.prompts[-1]
        assert "- test_a.py:3 [test-skipped] test_sum is skipped." in run.prompts[-1]

    def test_files_that_the_run_changed_are_added_up(self) -> None:
        run = begun()
        run.turn(changed=(FileStat("a.py", 3, 1), FileStat("b.py", 1, 0)))
        run.check(verdict())
        run.turn(changed=(FileStat("a.py", 2, 2),))
        run.check(verdict(output="error: other"))
        run.turn()
        changed = run.prompts[-1].partition("# Changed by this run\n")[2]
        assert changed.startswith("- b.py (+1 -0)\n- a.py (+5 -3)\nSee these changes, without those of the user, with")

    def test_last_iteration_is_said_to_be_the_last(self) -> None:
        run = begun(max_iterations=2)
        run.iterate(verdict())
        assert "the final one" not in run.prompts[-1].partition("# Where you are")[2]
        run.turn()
        assert "This is iteration 2 of 2, the final one.\nLeave the files" in run.prompts[-1]

    def test_same_lesson_is_shown_once(self) -> None:
        run = begun(type=TaskType.GENERAL)
        for number in range(1, 3):
            run.iterate(verdict(output=f"error: {'abc'[number]}"), summary=f"try-{number}", learned="dates are local")
        run.turn()
        assert run.prompts[-1].count("dates are local") == 1
        assert "Did: try-2" in run.prompts[-1]

    def test_iteration_without_known_facts_is_listed_only_if_it_is_the_last(self) -> None:
        missing = CheckResult("file done.txt exists", CheckStatus.FAILED, 0.0, reason="there is no done.txt")
        run = Run(loop())
        for _ in range(3):
            run.check(Verdict((missing,)))
            run.turn()
        lessons = run.prompts[-1].partition("# Lessons")[2]
        assert "- Iteration 2" in lessons
        assert "- Iteration 1" not in lessons

    def test_pivot_lists_everything_that_was_tried_until_something_moves(self) -> None:
        run = begun(on_stuck=OnStuck.CONTINUE)
        same = verdict(snapshot="same")
        for number in range(1, 15):
            run.iterate(same, summary=f"try-{min(number, 13)}")
        run.turn()
        assert all(f": try-{number} ->" in run.prompts[-1] for number in range(1, 14))
        assert "- Iterations 13, 14: try-13 ->" in run.prompts[-1]
        assert "# Lessons" not in run.prompts[-1]
        run.check(verdict(output="error: something else"))
        run.turn()
        assert "# Another approach" not in run.prompts[-1]


class TestReflections:
    def test_every_iteration_leaves_one(self) -> None:
        run = begun(type=TaskType.TEST_FIX)
        run.iterate(verdict(failed=4), summary="tried A", learned="not A", next="B")
        run.iterate(verdict(make=True), summary="did B")
        texts = [run.copies[f"{HOME}/reflections/loops/{RUN}/iteration-{number}.yaml"] for number in (1, 2)]
        first, second = (reflection.parse(text, "x") for text in texts)
        assert (first.outcome, first.why, first.try_next, first.task_type) == ("failure", "not A", "B", "test-fix")
        assert (first.checks[0].tests_passed, first.checks[0].tests_failed) == (6, 4)
        assert (second.outcome, second.reward, second.used) == ("success", 1.0, (1,))
        assert second.reward_before == pytest.approx(first.reward)

    def test_a_reflector_has_the_last_word_on_it(self) -> None:
        run = begun(reflector=True)
        run.iterate(verdict(), summary="tried A", learned="the agent's view")
        assert run.state.phase is Phase.REFLECT
        assert not any("iteration-1.yaml" in path for path in run.copies)
        run.turn(why="the clock is not mocked", next="freeze the time")
        assert run.roles[-1] == "reflector"
        assert "tried A" in run.prompts[-1]
        assert run.state.phase is Phase.ACT
        assert run.state.iterations[-1].learnings == "the clock is not mocked. Next to try: freeze the time."
        assert "the clock is not mocked" in run.copies[f"{HOME}/reflections/loops/{RUN}/iteration-1.yaml"]
        run.turn()
        assert "freeze the time" in run.prompts[-1]

    def test_a_reflector_without_an_answer_changes_nothing(self) -> None:
        run = begun(reflector=True)
        run.iterate(verdict(), summary="tried A", learned="the agent's view")
        run.turn()
        assert (run.state.phase, run.state.iterations[-1].why) == (Phase.ACT, "the agent's view")

    def test_success_needs_no_reflector(self) -> None:
        run = begun(reflector=True)
        run.iterate(verdict(make=True))
        assert run.state.outcome is Outcome.SUCCESS


class TestRoles:
    def test_a_repeated_failure_calls_a_debugger(self) -> None:
        run = begun()
        run.iterate(verdict())
        run.iterate(verdict())
        run.turn()
        assert run.roles == ["implementer", "implementer", "debugger"]
        assert "You are a debugger" in run.prompts[-1]

    def test_tests_are_written_by_a_test_engineer(self) -> None:
        run = begun(type=TaskType.COVERAGE)
        run.turn()
        assert run.roles == ["test-engineer"]
        assert "You are a test engineer" in run.prompts[-1]


class TestStuck:
    def test_turns_that_the_providers_limit_ends_do_not_count(self) -> None:
        run = begun()
        for _ in range(8):
            run.turn(end=TurnEnd.LIMITED)
            run.check(verdict())
        assert run.state.outcome is None
        assert (run.state.progress.stalled, run.state.pivot, run.state.tried) == (0, False, ())
        for _ in range(4):
            run.iterate(verdict())
        assert run.state.outcome is Outcome.STUCK

    def repeat(self, run: Run, times: int) -> None:
        for number in range(times):
            run.iterate(verdict(output=LOUD.replace("12", str(number))), summary=f"the same thing {number}")

    def test_three_times_the_same_asks_for_another_approach(self) -> None:
        run = begun()
        self.repeat(run, 3)
        assert run.state.pivot
        run.turn()
        assert "fundamentally different" in run.prompts[-1]
        assert all(f"the same thing {number}" in run.prompts[-1] for number in range(3))
        run.check(verdict(output="another error"))
        assert run.state.iterations[-1].pivot
        assert not run.state.pivot

    @pytest.mark.parametrize(
        ("choice", "outcome"),
        [(OnStuck.STOP, Outcome.STUCK), (OnStuck.ASK, Outcome.AWAITING_GUIDANCE), (OnStuck.CONTINUE, None)],
    )
    def test_a_pivot_without_progress_does_what_was_asked_for(self, choice: OnStuck, outcome: Outcome | None) -> None:
        run = begun(on_stuck=choice)
        self.repeat(run, 4)
        assert run.state.outcome is outcome
        assert outcome is None or not outcome.succeeded
        if choice is OnStuck.CONTINUE:
            self.repeat(run, 30)
            assert run.state.phase is Phase.ACT
            assert "fundamentally different" in run.prompts[-1], "it is asked for until something moves"

    def test_number_that_gets_better_is_progress(self) -> None:
        run = Run(loop())
        run.check(verdict(failed=10))
        for failed in range(9, 0, -1):
            run.iterate(verdict(failed=failed))
            assert not run.state.pivot
            assert run.state.progress.stalled == 0
        assert run.state.progress.failures == (10, 1, 1)

    def test_a_number_that_goes_up_and_down_is_one(self) -> None:
        run = begun()
        for number in range(5):
            run.iterate(verdict(failed=5 + number % 2))
        assert run.state.outcome is Outcome.STUCK

    def test_new_failure_counts_as_progress(self) -> None:
        run = begun()
        for number in range(26):
            run.iterate(verdict(output=f"error in {chr(97 + number)}"))
            assert run.state.progress.stalled == 0

    def test_fewer_new_failures_are_progress(self) -> None:
        run = begun()
        for number in range(26):
            run.iterate(verdict(output=f"error: {chr(97 + number)}\n" * (27 - number)))
            assert run.state.progress.stalled == 0

    def test_failures_that_take_turns_are_a_standstill(self) -> None:
        run = begun()
        for number in range(6):
            run.iterate(verdict(output=f"error in {'ab'[number % 2]}"))
        assert run.state.outcome is Outcome.STUCK

    def test_new_words_on_a_tree_that_was_judged_before_are_noise(self) -> None:
        run = begun()
        for number in range(5):
            run.iterate(verdict(output=f"error: {'abcde'[number]}", snapshot="t"))
        assert run.state.outcome is Outcome.STUCK

    def test_gamed_checks_do_not_set_the_lowest_count(self) -> None:
        run = begun()
        run.iterate(verdict(make=True, gamed=True))
        assert run.state.progress.lowest[0] != 0
        run.iterate(verdict(failed=1))
        assert run.state.progress.stalled == 0

    @pytest.mark.parametrize("snapshots", [("t0", "t1", "t2", "t3", "t4"), ("t",) * 5, ("",) * 5])
    def test_check_that_prints_nothing_shows_no_progress(self, snapshots: tuple[str, ...]) -> None:
        """Whatever the agent changes, the set of failures is the same."""
        run = begun()
        for snapshot in snapshots:
            run.iterate(verdict(output="", snapshot=snapshot))
        assert run.state.outcome is Outcome.STUCK
        assert "`make` prints nothing, so Ralph sees no progress until it passes" in run.state.reason

    def test_resume_continues_with_what_the_user_says(self) -> None:
        run = begun()
        self.repeat(run, 4)
        run.take(RunEnded(Outcome.STUCK, run.state.reason, Spent(), Limits()))
        again = Run(run.rules)
        again.state = run.rules.load(run.documents)
        assert (again.state.phase, again.state.iteration, again.state.progress.stalled) == (Phase.ACT, 5, 0)


class TestTheBest:
    def test_best_iteration_has_the_fewest_failures_and_is_the_earliest_of_equals(self) -> None:
        run = begun()
        for failed in (5, 2, 2, 7):
            run.iterate(verdict(failed=failed, output=f"error: {'abcdefgh'[failed]}"))
        assert run.state.best is not None
        assert (run.state.best.number, run.state.best.snapshot) == (2, "sha-2")

    def test_work_that_gamed_the_checks_is_never_the_best(self) -> None:
        run = begun()
        run.iterate(verdict(make=True, gamed=True))
        assert run.state.best is None
        run.iterate(verdict(failed=9))
        assert run.state.best is not None
        assert run.state.best.number == 2

    def test_number_that_gets_better_counts_more_than_an_error_before_the_run(self) -> None:
        best = Best(0, "base", score=0.5, result="1 failure")
        better = Iteration(1, "", "", snapshot="sha-1", files=1)
        assert _choose_best(best, better, is_progress=True, is_further=True) != best
        assert _choose_best(best, better, is_progress=True, is_further=False) == best
        scored = replace(best, number=1)
        assert _choose_best(scored, better, is_progress=True, is_further=True) == scored

    def test_nothing_is_restored_if_no_iteration_was_completed(self) -> None:
        best = Best(0, "base", score=0.5, result="1 failure")
        assert not is_worth_restoring(best, LoopState("fix it", best=best))

    def test_verified_work_is_the_best(self) -> None:
        run = begun()
        run.iterate(verdict(failed=1))
        run.iterate(verdict(make=True))
        assert run.state.best is not None
        assert (run.state.best.number, run.state.best.passed) == (2, True)

    def test_the_report_says_how_to_bring_it_back(self) -> None:
        run = begun()
        for failed in (2, 7):
            run.iterate(verdict(failed=failed, output=f"error: {'abcdefgh'[failed]}"))
        best = run.state.best
        assert best and is_worth_restoring(best, run.state)
        assert not is_worth_restoring(replace(best, score=run.state.iterations[-1].score), run.state), "as good"
        files = (FileStat("src/a.py", 5, 1), FileStat("b | c.py", 1, 0))
        run.take(RunEnded(Outcome.LIMIT_ITERATIONS, "all used", Spent(iterations=2), Limits(), files, 3))
        (report,) = [text for path, text in run.documents.items() if "completion-" in path]
        assert f"ralph restore best {RUN}" in report
        assert "| src/a.py | 5 | 1 |" in report
        assert "b \\| c.py" in report
        assert "and 3 more" in report
        assert "5 files, +6, -1" in report


class TestCommitting:
    def test_every_iteration_that_changed_something_is_committed_whatever_the_verdict(self) -> None:
        run = begun(commit=True)
        run.iterate(verdict(), summary="added the parser")
        decision = only(run.rules.decide(run.state, NOW))
        assert isinstance(decision, Commit)
        assert (decision.iteration, decision.snapshot) == (1, "sha-1")
        assert decision.message.startswith("ralph: iteration 1 - added the parser\n\n")
        assert "`make` failed" in decision.message
        run.take(WorkCommitted(decision.key, "abc"))
        run.iterate(verdict(make=True), summary="done")
        assert run.state.phase is Phase.COMMIT
        assert run.state.outcome is Outcome.SUCCESS
        run.take(WorkCommitted("commit-2", "def"))
        assert run.state.phase is Phase.DONE

    def test_a_loop_that_was_left_before_the_commit_continues_with_it(self) -> None:
        run = begun(commit=True, reflector=True)
        run.iterate(verdict())
        state = run.rules.load(run.documents)
        assert isinstance(only(run.rules.decide(state, NOW)), Commit)
        after = run.rules.accept(state, WorkCommitted("commit-1", ""), NOW).state
        assert after.phase is Phase.REFLECT
        assert after.next_phases == (Phase.ACT,)


class TestDocuments:
    def test_others_find_exactly_the_fields_that_they_know(self) -> None:
        run = begun()
        for number in range(REMEMBERED + 3):
            run.iterate(
                verdict(output=f"error: {'abcdefghijklmnop'[number]}\n" * (20 - number)),
                summary=f"s{number}",
                learned=f"l{number}",
            )
        known = json.loads(run.copies[f"{HOME}/current-loop.json"])
        assert list(known) == [
            *("active", "task", "completion", "maxIterations", "currentIteration", "startTime", "timeoutMinutes"),
            *("iterations", "lastResult", "learnings"),
        ]
        assert len(known["iterations"]) == REMEMBERED
        assert all(list(one) == ["number", "action", "result", "learnings"] for one in known["iterations"])
        assert (known["currentIteration"], known["learnings"][:3]) == (REMEMBERED + 4, f"l{REMEMBERED + 2}"[:3])
        logged = [json.loads(line) for line in run.log]
        assert [one["number"] for one in logged] == list(range(1, REMEMBERED + 4))

    @settings(deadline=None, max_examples=60)
    @given(
        st.lists(
            st.tuples(
                st.booleans(), st.booleans(), st.booleans(), st.integers(0, 10), st.sampled_from(["", LOUD, "x"])
            ),
            max_size=25,
        ),
        st.booleans(),
        st.booleans(),
        st.sampled_from(list(OnStuck)),
    )
    def test_whatever_happens_only_a_clean_pass_is_success(
        self, verdicts: list[tuple[bool, bool, bool, int, str]], commit: bool, reflector: bool, choice: OnStuck
    ) -> None:
        run = begun(commit=commit, reflector=reflector, on_stuck=choice)
        for make, lint, gamed, failed, output in verdicts:
            result = verdict(make, lint, output, gamed=gamed, failed=failed)
            run.iterate(result, summary="s")
            while run.state.phase in (Phase.COMMIT, Phase.REFLECT):
                if run.state.phase is Phase.COMMIT:
                    run.take(WorkCommitted("commit", "x"))
                else:
                    run.turn(why="w", next="n")
            assert run.rules.load(run.documents).iterations == run.state.iterations
            assert (run.state.outcome is Outcome.SUCCESS) == (make and lint and not gamed)
            if run.state.phase is Phase.DONE:
                break

    def test_state_without_the_field_is_read(self) -> None:
        rules = loop()
        text = json.dumps({"schema": 1, "task": "old", "phase": "act", "iteration": 3})
        assert rules.load({rules.state_path: text}) == LoopState("old", Phase.ACT, 3)
