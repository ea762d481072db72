"""The prompts of a loop: every role, first and further iterations, with and without findings, lessons and messages."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from golden import NOW, NOWHERE, Case, after_steer, inbox_of, with_messages

from ralph.core.checks import (
    Check,
    CheckResult,
    CheckStatus,
    Counts,
    Evidence,
    FailureSet,
    Finding,
    Grade,
    Rule,
    Severity,
    Verdict,
)
from ralph.core.events import ChecksEnded, Do, TurnEnded
from ralph.core.prompt import build_prompt, fill_parts
from ralph.core.signals import SignalType
from ralph.core.turns import OUTBOX, Change, EarlierTurn, FileStat, TurnEnd, TurnRequest, TurnResult
from ralph.documents.answers import build_repair_prompt, describe_earlier_turns, with_rejection
from ralph.documents.signals import POLL_FOR_MESSAGES
from ralph.store.settings import load_prompt
from ralph.workflows.loop.prompt import NAMES
from ralph.workflows.loop.rules import Loop
from ralph.workflows.loop.state import LoopParameters, OnStuck, TaskType
from ralph.workspace.local import describe_directory

RUN = "261115-093000-k3x9"
FIXED = LoopParameters(RUN, "tests pass AND no lint errors", 10, NOW, 3600.0, TaskType.TEST_FIX)
CHECKS = (Check("pytest -q"), Check("ruff check"))
TASK = "Fix the prices of the cart. They are wrong if a line has a count."
PATHS = frozenset({OUTBOX})
FRAME = frozenset(
    {"loop-actor", "rules", "where-you-are", "your-answer", "loop-reflector", "loop-judge", "how-to-judge"}
)
FIRST = """\
FF.                                                                      [100%]
=================================== FAILURES ===================================
________________________________ test_total ____________________________________
>       assert total([Line("tea", 2, 300)]) == 600
E       assert 300 == 600
test_cart.py:12: AssertionError
________________________________ test_discount _________________________________
>       assert total([Line("tea", 1, 300)], percent=10) == 270
E       assert 300 == 270
test_cart.py:19: AssertionError
=========================== short test summary info ============================
FAILED test_cart.py::test_total - assert 300 == 600
FAILED test_cart.py::test_discount - assert 300 == 270
2 failed, 1 passed in 0.02s"""
SECOND = """\
F..                                                                      [100%]
________________________________ test_discount _________________________________
E       assert 300 == 270
test_cart.py:19: AssertionError
FAILED test_cart.py::test_discount - assert 300 == 270
1 failed, 2 passed in 0.02s"""
LONG = "E   NameError: name 'Line' is not defined (cart.py:3)\n... 5990 lines left out\n212 errors in 3.10s"
ROUND = "Round half up, as the shop does."


class Driver:
    """Drives the rules of a loop with fixed answers."""

    def __init__(self, recalls: tuple[str, ...] = (), task: str = TASK, **fixed: Any) -> None:
        templates = {name: load_prompt(name, NOWHERE) for name in NAMES}
        self.rules = Loop(task, CHECKS, templates, replace(FIXED, **fixed), recall=lambda query, failing: recalls)
        self.state = self.rules.load({})

    def check(self, verdict: Verdict) -> "Driver":
        self.state = self.rules.accept(self.state, ChecksEnded("checks", verdict), NOW).state
        return self

    def turn(self, *stats: FileStat, **answer: str) -> "Driver":
        change = Change(f"sha-{self.state.iteration}", len(stats), 4, 1, stats=stats)
        result = TurnResult(TurnEnd.FINISHED, NOW, NOW + 60, answer=answer or None, change=change)
        self.state = self.rules.accept(self.state, TurnEnded("turn", 1, "implementer", 1, result), NOW).state
        return self

    def judge(self, files: list[dict[str, object]]) -> "Driver":
        result = TurnResult(TurnEnd.FINISHED, NOW, NOW + 60, answer={"files": files})
        self.state = self.rules.accept(self.state, TurnEnded("judgment-1", 2, "judge", 1, result), NOW).state
        return self

    def request(self) -> TurnRequest:
        decision = self.rules.decide(self.state, NOW)
        assert isinstance(decision, Do)
        (work,) = decision.work
        assert isinstance(work, TurnRequest)
        return work


def pytest_failed(output: str, *failing: str, left_out: int = 0) -> CheckResult:
    return CheckResult(
        title="`pytest -q` passes",
        status=CheckStatus.FAILED,
        seconds=0.1,
        code=1,
        reason=f"exit code 1, {len(failing)} of 3 tests fail" if failing else "exit code 1",
        output=output,
        log="checks/iteration-1-1/stdout",
        command="pytest -q",
        tests=Counts(3 - len(failing), len(failing)),
        failing=failing,
        failures=FailureSet(len(failing) or None, output[:12]),
        left_out=left_out,
    )


PYTEST_PASSED = CheckResult("`pytest -q` passes", CheckStatus.PASSED, 0.1, 0, command="pytest -q")
RUFF_PASSED = CheckResult("`ruff check` passes", CheckStatus.PASSED, 0.1, 0, command="ruff check")
RUFF_FAILED = replace(
    RUFF_PASSED,
    status=CheckStatus.FAILED,
    code=1,
    reason="exit code 1",
    output="cart.py:3:1: F401 `os` imported but unused",
)
TOTAL, DISCOUNT = "test_cart.py::test_total", "test_cart.py::test_discount"
BASELINE = Verdict((pytest_failed(FIRST, TOTAL, DISCOUNT), RUFF_PASSED))
BETTER = Verdict((pytest_failed(SECOND, DISCOUNT), RUFF_PASSED))
GAMED = Verdict(
    (PYTEST_PASSED, RUFF_PASSED),
    (
        Finding(Rule.TEST_SKIPPED, "test_cart.py", 17, "test_discount is skipped."),
        Finding(Rule.RESULT_HARDCODED, "cart.py", 8, "total() returns 270 if percent is 10.", Severity.WARNING),
    ),
)
ONE_SKIPPED = SECOND.replace("F..", "Fs.").replace("2 passed", "1 passed, 1 skipped")
STILL_FAILING = Verdict(
    (replace(pytest_failed(ONE_SKIPPED, DISCOUNT), reason="exit code 1, 1 of 2 tests fails"), RUFF_PASSED),
    (Finding(Rule.TEST_SKIPPED, "test_cart.py", 9, "test_total is skipped.", Severity.WARNING),),
)
UNRUNNABLE = Verdict(
    (
        CheckResult(
            "`pytest -q` passes",
            CheckStatus.COULD_NOT_RUN,
            600.0,
            reason="still running after 600 s",
            command="pytest -q",
        ),
        RUFF_PASSED,
    )
)
CART = FileStat("cart.py", 4, 1)
TESTS = FileStat("test_cart.py", 1, 0)
FIX = {
    "summary": "Multiplied the price by the count.",
    "learned": "total() does not know percent",
    "next": "look at the discount",
}


def stuck(iterations: int, **fixed: Any) -> Driver:
    run = Driver(on_stuck=OnStuck.CONTINUE, **fixed).check(BASELINE)
    run.turn(CART, **FIX).check(BETTER)
    for number in range(iterations):
        said = ("Rounded the discount down.", "Took the discount from the total.")[number % 2]
        run.turn(CART, summary=said, learned="the discount is not applied").check(BETTER)
    return run


def further(**fixed: Any) -> Driver:
    return Driver(**fixed).check(BASELINE).turn(CART, **FIX).check(BETTER)


CHANGED_TESTS = Verdict(
    (CheckResult("`pytest -q` passes", CheckStatus.PASSED, 0.1, 0, command="pytest -q"), RUFF_PASSED),
    snapshot="sha-1",
    evidence=Evidence(Grade.UNPROVEN, "The run changed its tests.", to_judge=("test_cart.py", "pytest.ini")),
)


SITUATIONS: dict[str, Callable[[], Driver]] = {
    "first-iteration": lambda: Driver().check(BASELINE),
    "first-iteration-long-output": lambda: Driver().check(Verdict((pytest_failed(LONG, left_out=5990), RUFF_PASSED))),
    "first-iteration-recalled": lambda: Driver(
        recalls=(
            "(2 days ago, solved) Fix the totals; failed: test_total; what worked then: Read the count as a number.",
        )
    ).check(BASELINE),
    "first-iteration-scope": lambda: Driver(scope=("src/**", "*.md")).check(BASELINE),
    "first-iteration-may-change": lambda: Driver(may_change=("test_cart.py",)).check(BASELINE),
    "first-iteration-coverage": lambda: Driver(type=TaskType.COVERAGE).check(BASELINE),
    "further-iteration": further,
    "further-iteration-coverage": lambda: further(type=TaskType.COVERAGE),
    "further-iteration-regressed": lambda: (
        further().turn(CART, summary="Applied the discount.").check(Verdict((pytest_failed(FIRST, TOTAL), RUFF_FAILED)))
    ),
    "further-iteration-findings": lambda: further().turn(CART, TESTS, summary="Skipped the test.").check(GAMED),
    "further-iteration-early-findings": lambda: (
        further().turn(CART, TESTS, summary="Skipped test_total.").check(STILL_FAILING)
    ),
    "further-iteration-unrunnable": lambda: further().turn(CART, summary="Used a generator.").check(UNRUNNABLE),
    "debugger": lambda: stuck(2),
    "another-approach": lambda: stuck(4),
    "further-iteration-not-answered": lambda: further().turn(CART).check(BETTER),
    "first-iteration-long-line": lambda: Driver().check(
        Verdict((pytest_failed(f"error: expected {'x' * 6000}, got y", left_out=1), RUFF_PASSED))
    ),
    "first-iteration-long-task": lambda: Driver(
        task="# Rules\n" + "Every price is a whole number of cents.\n" * 1000
    ).check(BASELINE),
    "last-iteration": lambda: further(max_iterations=2),
    "reflector-long-output": lambda: (
        Driver(reflector=True).check(BASELINE).turn(CART, **FIX).check(Verdict((pytest_failed(LONG, left_out=5990),)))
    ),
    "reflector": lambda: Driver(reflector=True).check(BASELINE).turn(CART, **FIX).check(BETTER),
    "judge": lambda: Driver().check(BASELINE).turn(CART, **FIX).check(CHANGED_TESTS),
    "further-iteration-after-judge": lambda: SITUATIONS["judge"]().judge(REJECTION),
}
REJECTION = [
    {"path": "test_cart.py", "accept": False, "why": "line 12 no longer checks the total"},
    {"path": "pytest.ini", "accept": True, "why": "it only names the directory of the tests"},
]


STEERED = (
    "first-iteration",
    "further-iteration-findings",
    "debugger",
    "another-approach",
    "last-iteration",
    "reflector",
)


def cases() -> Iterator[Case]:
    for name, situation in SITUATIONS.items():
        request = situation().request()
        yield Case(f"loop/{name}", request.prompt, inbox_of(request), PATHS, FRAME)
    request = further().request()
    told = {
        "steered": with_messages(request, (SignalType.STEER, ROUND), (SignalType.INFO, "CI is red.")),
        "steered-earlier": with_messages(request, in_force=(ROUND,)),
        "resumed": with_messages(request, (SignalType.RESUME, "Look at percent first.")),
    }
    told["continued"] = after_steer(request, ROUND, FileStat("cart.py", 6, 2), FileStat("money.py", 12, 0))
    told["failed-before"] = request.prompt.with_parts(
        describe_earlier_turns((EarlierTurn(7, TurnEnd.INTERRUPTED, Change("sha", 1, stats=(CART,))),), request)
    )
    told["without-hooks"] = request.prompt.with_parts(POLL_FOR_MESSAGES)
    told["in-a-directory"] = request.prompt.with_parts(describe_directory("packages/cart"))
    for name, prompt in told.items():
        yield Case(f"loop/further-iteration-{name}", prompt, inbox_of(request), PATHS, FRAME)
    for name in STEERED:
        request = SITUATIONS[name]().request()
        prompt = with_messages(request, (SignalType.STEER, ROUND))
        yield Case(f"loop/{name}-steered", prompt, inbox_of(request), PATHS, FRAME)
    yield from _repairs()
    resumed = build_prompt(fill_parts("continue", load_prompt("continue", NOWHERE), {"outbox": OUTBOX}))
    yield Case("turn/continue", resumed, frozenset(), PATHS, frozenset({"continue"}))


def _repairs() -> Iterator[Case]:
    """Turns that only repair an answer, and one that does the work again after that."""
    template = load_prompt("repair", NOWHERE)
    request, faults = further().request(), ("result.json: the field `summary` is missing",)
    yield Case("loop/repair", build_repair_prompt(template, request, faults), inbox_of(request), PATHS, FRAME)
    again = with_rejection(request.prompt, faults)
    yield Case("loop/further-iteration-after-repair", again, inbox_of(request), PATHS, FRAME)
    reflector = SITUATIONS["reflector"]().request()
    prompt = build_repair_prompt(template, reflector, ("result.json: the field `next` is missing",))
    yield Case("loop/reflector-repair", prompt, inbox_of(reflector), PATHS, FRAME)
