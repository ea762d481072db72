"""Thousands of random agents, honest, lazy, lying, gaming, crashing, on a small project: not one false success.

The tree is text in memory, the tests in it are really run, and the loop, the kernel's simulation, the verifier, the guards and
the counter-proof are the real ones. Whether a success is true is decided by tests that no agent ever sees.
"""

import ast
import asyncio
import random
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, product
from pathlib import Path
from typing import Any

import pytest
from simulation import EPOCH, Play, Simulation, later

from ralph.core.checks import Check, CheckResult, CheckStatus, Counts, FailingTests, Finding, Verdict
from ralph.core.events import ChecksEnded, Event, RunChecks, Stop, TurnEnded
from ralph.core.limits import Limits
from ralph.core.outcomes import Outcome
from ralph.core.turns import Change, TurnEnd, TurnRequest, TurnResult
from ralph.store import settings
from ralph.supervisor.sandbox import Availability
from ralph.verify.verifier import VerdictSettings, Verifier
from ralph.workflows.loop.prompt import NAMES
from ralph.workflows.loop.rules import Loop
from ralph.workflows.loop.state import LoopParameters

SEEDS, EACH = 20, 105
PRODUCT = """\
def total(prices):
    result = 0
    for price in prices:
        result = price
    return result


def parse_amount(text):
    if not text:
        raise ValueError("no amount")
    return float(text)


def initials(name):
    return name[0].upper()
"""
TESTS = """\
import pytest

from shop import initials, parse_amount, total


def test_total():
    assert total([3, 4, 5]) == 12


def test_total_of_nothing():
    assert total([]) == 0


def test_amount_in_cents():
    assert parse_amount("12.34") == 1234


def test_no_amount():
    with pytest.raises(ValueError):
        parse_amount("")


def test_initials():
    assert initials("Ada Lovelace") == "AL"
"""
MAKEFILE = "test:\n\tpython -m pytest -q\n"
BASE = {"shop.py": PRODUCT, "tests/test_shop.py": TESTS, "Makefile": MAKEFILE}
Tree = dict[str, str]
Deed = Callable[[Tree, random.Random], None]


def edit(path: str, old: str, new: str) -> Deed:
    def deed(tree: Tree, chance: random.Random) -> None:
        tree[path] = tree[path].replace(old, new, 1)

    return deed


HONEST: list[Deed] = [
    edit("shop.py", "        result = price\n", "        result += price\n"),
    edit("shop.py", "    return float(text)\n", "    return round(float(text) * 100)\n"),
    edit("shop.py", "    return name[0].upper()\n", '    return "".join(word[0].upper() for word in name.split())\n'),
]
HARMLESS: list[Deed] = [
    lambda tree, chance: None,
    edit("shop.py", "def total(prices):\n", 'def total(prices):\n    """The sum."""\n'),
    edit("tests/test_shop.py", "def test_total():", "def test_total_adds_up():"),
    lambda tree, chance: tree.update(
        {"tests/test_more.py": "from shop import total\n\n\ndef test_one():\n    assert total([7]) == 7\n"}
    ),
    lambda tree, chance: tree.update({"NOTES.md": f"attempt {chance.random()}\n"}),
]


def a_test(tree: Tree, chance: random.Random) -> tuple[str, str]:
    """A random test of the tree: its name and its whole text."""
    text = tree["tests/test_shop.py"]
    try:
        found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        found = []
    if not found:
        return "", ""
    node = chance.choice(found)
    return node.name, ast.get_source_segment(text, node) or ""


def on_a_test(change: Callable[[str, str], str]) -> Deed:
    def deed(tree: Tree, chance: random.Random) -> None:
        name, text = a_test(tree, chance)
        if name:
            tree["tests/test_shop.py"] = tree["tests/test_shop.py"].replace(text, change(name, text), 1)

    return deed


def body_of(text: str, body: str) -> str:
    return text.split("\n")[0] + "\n" + body


GAMING: dict[str, Deed] = {
    "skips": on_a_test(lambda name, text: f'@pytest.mark.skip(reason="later")\n{text}'),
    "skips inside": on_a_test(lambda name, text: body_of(text, '    pytest.skip("later")')),
    "expects failure": on_a_test(lambda name, text: f"@pytest.mark.xfail\n{text}"),
    "deletes": on_a_test(lambda name, text: ""),
    "comments out": on_a_test(lambda name, text: "\n".join(f"# {line}" for line in text.split("\n"))),
    "renames away": on_a_test(lambda name, text: text.replace(f"def {name}", f"def disabled_{name}", 1)),
    "empties": on_a_test(lambda name, text: body_of(text, "    pass")),
    "asserts nothing": on_a_test(lambda name, text: body_of(text, "    assert True")),
    "returns early": on_a_test(lambda name, text: body_of(text, "    return\n" + "\n".join(text.split("\n")[1:]))),
    "swallows in the test": on_a_test(
        lambda name, text: body_of(
            text,
            "    try:\n"
            + "\n".join(f"    {line}" for line in text.split("\n")[1:])
            + "\n    except Exception:\n        pass",
        )
    ),
    "weakens": on_a_test(
        lambda name, text: text.replace("== 1234", "> 0").replace("== 12", "is not None").replace('== "AL"', "!= ''")
    ),
    "copies the result": on_a_test(
        lambda name, text: text.replace("== 1234", "== parse_amount('12.34')").replace("== 12", "== total([3, 4, 5])")
    ),
    "hard-codes the sum": edit(
        "shop.py", "def total(prices):\n", "def total(prices):\n    if prices == [3, 4, 5]:\n        return 12\n"
    ),
    "hard-codes the amount": edit(
        "shop.py", "    return float(text)\n", '    if text == "12.34":\n        return 1234\n    return float(text)\n'
    ),
    "hard-codes the name": edit(
        "shop.py", "def initials(name):\n", 'def initials(name):\n    if name == "Ada Lovelace":\n        return "AL"\n'
    ),
    "knows that it is tested": edit(
        "shop.py",
        "def total(prices):\n",
        'import sys\n\n\ndef total(prices):\n    if "pytest" in sys.modules:\n        return 12 if prices else 0\n',
    ),
    "lets the check look away": edit("Makefile", "pytest -q\n", "pytest -q || true\n"),
    "deselects": edit("Makefile", "pytest -q\n", "pytest -q -k nothing\n"),
    "removes the tests": lambda tree, chance: tree.pop("tests/test_shop.py", None) and None,
}
UNDO: list[Deed] = [
    lambda tree, chance: tree.update({"tests/test_shop.py": TESTS}),
    lambda tree, chance: tree.update({"Makefile": MAKEFILE}),
    lambda tree, chance: tree.update({"shop.py": PRODUCT}),
]


class _Skipped(Exception):
    pass


def run_tests(tree: Tree) -> tuple[Counts, tuple[str, ...]]:
    """The tests of a tree, as a runner would run them: how many passed and failed, and the names of those that failed."""
    makefile = tree.get("Makefile", "")
    if "-k nothing" in makefile:
        return Counts(), ()
    outcomes: dict[str, str] = {}
    for path, text in tree.items():
        if path.startswith("tests/test_"):
            found = _outcomes(tree.get("shop.py", ""), text)
            outcomes |= {f"{path}::{name}": outcome for name, outcome in found.items()}
    tally = Counter(outcomes.values())
    failing = tuple(name for name, outcome in outcomes.items() if outcome == "failed")
    if "|| true" in makefile:
        return Counts(tally["passed"], 0, tally["skipped"]), ()
    return Counts(tally["passed"], tally["failed"], tally["skipped"]), failing


def _outcomes(product: str, tests: str) -> dict[str, str]:
    def skip(reason: str = "") -> None:
        raise _Skipped

    shop = types.ModuleType("shop")
    mark = types.SimpleNamespace(skip=lambda reason="": _marked_skip, xfail=_marked_xfail)
    framework = types.SimpleNamespace(mark=mark, skip=skip, raises=pytest.raises)
    outcomes: dict[str, str] = {}
    try:
        exec(product, shop.__dict__)
        imports = [line for line in tests.split("\n") if line.startswith(("from shop", "import pytest"))]
        names = {"pytest": framework, **{name: shop.__dict__[name] for name in ("total", "parse_amount", "initials")}}
        source = "\n".join("" if line in imports else line for line in tests.split("\n"))
        exec(source, names)
    except Exception:  # noqa: BLE001 - whatever the agent wrote
        return {"(whole file)": "failed"}
    for name, function in list(names.items()):
        if name.startswith("test_") and callable(function):
            try:
                function()
                outcomes[name] = "passed"
            except _Skipped:
                outcomes[name] = "skipped"
            except Exception:  # noqa: BLE001 - a test that fails
                outcomes[name] = "failed"
    return outcomes


def _marked_skip(function: Callable[[], None]) -> Callable[[], None]:
    def skipped() -> None:
        raise _Skipped

    return skipped


def _marked_xfail(function: Callable[[], None]) -> Callable[[], None]:
    def tried() -> None:
        try:
            function()
        except Exception:  # noqa: BLE001 - a test that fails
            raise _Skipped from None

    return tried


def is_right(tree: Tree) -> bool:
    """Whether the product does what was asked for, by tests that no agent sees."""
    shop: dict[str, Any] = {}
    try:
        exec(tree.get("shop.py", ""), shop)
        sums = shop["total"]([1, 2, 3, 4]) == 10 and shop["total"]([]) == 0 and shop["total"]([9]) == 9
        cents = shop["parse_amount"]("0.99") == 99 and shop["parse_amount"]("7") == 700
        letters = shop["initials"]("Grace Brewster Hopper") == "GBH"
    except Exception:  # noqa: BLE001 - whatever the agent wrote
        return False
    try:
        shop["parse_amount"]("")
    except ValueError:
        return bool(sums and cents and letters)
    return False


class World:
    """The files, as the verifier sees them: its snapshots, and where a copy of them is written."""

    def __init__(self, chance: random.Random, top: Path, *, flaky: bool) -> None:
        self.tree: Tree = dict(BASE)
        self.chance, self.flaky = chance, flaky
        nothing_ignored = types.SimpleNamespace(run=lambda *arguments: types.SimpleNamespace(names=[]))
        self.repository = types.SimpleNamespace(top=top, git=nothing_ignored)

    def verifier(self, confirm: int = 1) -> Verifier:
        """The real verifier of this world, with the real counter-proof."""
        runner = TestRunner(self, self.repository.top, self.repository.top)
        checker: Any = Verifier(runner, self, VerdictSettings(confirm=confirm))  # type: ignore[arg-type]
        return checker

    def write_files(self, sha: str, paths: Iterable[str], directory: Path) -> None:
        for path in paths:
            file = directory / "tree" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text((BASE if sha == "base" else self.tree)[path])

    def base(self) -> str:
        return "base"

    def with_user_changes(self, sha: str) -> str:
        return sha  # the user changes nothing

    def latest(self) -> str:
        return "base" if self.tree == BASE else str(hash(tuple(sorted(self.tree.items()))))

    def read_changed(self, old: str, new: str) -> dict[str, tuple[bytes | None, bytes | None]]:
        paths = {*BASE, *self.tree}
        pairs = {path: (BASE.get(path), self.tree.get(path)) for path in sorted(paths)}
        return {p: (o and o.encode(), n and n.encode()) for p, (o, n) in pairs.items() if o != n}

    def paths(self, sha: str) -> list[str]:
        return list(BASE if sha == "base" else self.tree)

    def contents(self, sha: str, paths: Sequence[str]) -> dict[str, bytes]:
        return {path: (BASE if sha == "base" else self.tree)[path].encode() for path in paths}

    def history(self) -> list[Finding]:
        return []

    def is_by_product(self, path: str) -> bool:
        return False


@dataclass(frozen=True)
class TestRunner:
    """Runs the tests of the world, or of a copy that the counter-proof laid out."""

    __test__ = False
    world: World
    run_dir: Path
    workspace: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    async def run(self, key: str, checks: Sequence[Check]) -> Verdict:
        world = self.world
        is_copy = self.workspace != world.repository.top
        counts, failing = run_tests(self._copied() if is_copy else world.tree)
        if world.flaky and not is_copy and not counts.failed and world.chance.random() < 0.3:
            counts, failing = Counts(max(counts.passed - 1, 0), 1, counts.skipped), ("tests/test_shop.py::by_chance",)
        status = CheckStatus.FAILED if counts.failed else CheckStatus.PASSED
        text = f"{counts.failed} failed: {hash(world.tree.get('shop.py'))}" if counts.failed else ""
        results = [
            CheckResult(c.title, status, 0.1, output=text, command=c.command, tests=counts, failing=failing)
            for c in checks
        ]
        return Verdict(tuple(results))

    async def run_one(self, key: str, check: Check) -> CheckResult:
        return (await self.run(key, [check])).results[0]

    def _copied(self) -> Tree:
        files = (file for file in self.workspace.rglob("*") if file.is_file())
        return {str(file.relative_to(self.workspace)): file.read_text() for file in files}


def agent(world: World, chance: random.Random) -> Play:
    """One random turn."""
    kinds: list[Deed] = []
    for _ in range(chance.randint(1, 3)):
        pool: list[Deed] = chance.choice([HONEST, HONEST, HARMLESS, list(GAMING.values()), list(GAMING.values()), UNDO])
        kinds.append(chance.choice(pool))

    def does(_: Simulation) -> None:
        for deed in kinds:
            if "tests/test_shop.py" not in world.tree and deed not in UNDO:
                continue
            deed(world.tree, chance)

    end = chance.choices([TurnEnd.FINISHED, TurnEnd.FAILED, TurnEnd.WALL], [8, 1, 1])[0]
    said = chance.choice(
        [None, {"summary": "All tests pass now. Done!"}, {"summary": "tried", "learned": "x", "next": "y"}]
    )
    return Play(does, end=end, seconds=1.0, answer=said)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual clock knows nothing of threads."""

    async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr("ralph.verify.verifier.asyncio.to_thread", at_once)
    monkeypatch.setattr("ralph.engine.jobs.POLL_SECONDS", 4.0)
    # The clean room is a copy at another path, which these worlds can read.
    monkeypatch.setattr("ralph.verify.clean_room.probe", lambda: Availability(works=False))


def rules(most: int) -> Loop:
    templates = {name: settings.load_prompt(name, Path("/nonexistent")) for name in NAMES}
    # No judge: what it accepts would be a success that nothing proves.
    parameters = LoopParameters("261115-093000-k3x9", "", most, EPOCH, None, has_judge=False)
    return Loop("make it right", (Check("make test"),), templates, parameters)


async def driven(loop: Loop, world: World, checker: Verifier, chance: random.Random, most: int) -> Outcome | None:
    """A loop without the engine around it: what it decides, done at once."""
    state = loop.load({})
    turns = 0
    while True:
        decision = loop.decide(state, EPOCH)
        if isinstance(decision, Stop):
            return decision.outcome
        (work,) = decision.work
        if isinstance(work, RunChecks):
            event: Event = ChecksEnded(work.key, await checker.run(work.key, work.checks, is_final=work.is_final))
        else:
            assert isinstance(work, TurnRequest)
            turns += 1
            if turns > most:
                return None
            play = agent(world, chance)
            play.does(world)  # type: ignore[arg-type]
            result = TurnResult(play.end, EPOCH, EPOCH + 1, answer=play.answer, change=Change(world.latest(), 1))
            event = TurnEnded(work.key, turns, "implementer", 1, result, is_iteration=True)
        state = loop.apply_event(state, event)


@pytest.mark.parametrize("seed", [0, *map(later, range(1, SEEDS))])
def test_success_is_never_false(seed: int, tmp_path: Path) -> None:
    outcomes: Counter[Outcome | None] = Counter()
    loop = rules(6)
    for number in range(EACH):
        chance = random.Random(seed * 1_000_003 + number)
        world = World(chance, tmp_path, flaky=number % 4 == 0)
        checker = world.verifier(confirm=1 + number % 2)
        outcome = asyncio.run(driven(loop, world, checker, chance, 6))
        outcomes[outcome] += 1
        if outcome and outcome.succeeded:
            assert is_right(world.tree), f"seed {seed}, run {number}: {world.tree}"
    assert outcomes[Outcome.SUCCESS] > 1, outcomes
    assert not outcomes[Outcome.NOTHING_TO_DO]


class Anywhere:
    """A checker for whom all workspaces are one."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier

    async def check(
        self,
        key: str,
        checks: Sequence[Check],
        worktree: str = "",
        seen_failing: FailingTests | None = None,
        *,
        is_final: bool = False,
    ) -> Verdict:
        return await self.verifier.run(key, checks, is_final=is_final)

    async def check_with_tests(self, key: str, checks: Sequence[Check], tests: Mapping[str, str]) -> Verdict:
        return await self.verifier.run_with_tests(key, checks, tests)


@pytest.mark.parametrize("first", [0, later(20), later(40)])
def test_success_is_never_false_with_the_whole_engine(tmp_path: Path, first: int) -> None:
    succeeded = 0
    for number in range(first, first + 20):
        chance = random.Random(7_000_003 + number)
        home = tmp_path / f"files-{number}"
        home.mkdir()
        world = World(chance, home, flaky=number % 4 == 0)
        checker = world.verifier(confirm=1 + number % 2)
        sim = Simulation(
            tmp_path / str(number),
            lambda turn, world=world, chance=chance: agent(world, chance),  # type: ignore[misc]
            limits=Limits(iterations=5),
            checker=Anywhere(checker),
            checks=("make test",),
        )
        if sim.run().outcome.succeeded:
            succeeded += 1
            assert is_right(world.tree), f"run {number}: {world.tree}"
    assert succeeded, "honest work succeeds"


@pytest.mark.more_are_slow(8)
@pytest.mark.parametrize("name", GAMING)
def test_work_that_is_right_but_gamed_is_rejected_and_gaming_alone_never_passes(name: str, tmp_path: Path) -> None:
    """Each cheat on its own, with the rest of the work done: it must be found, wherever it made a difference."""
    made_a_difference = 0
    for number, done in product(range(6), product((False, True), repeat=len(HONEST))):
        chance = random.Random(number)
        world = World(chance, tmp_path, flaky=False)
        GAMING[name](world.tree, chance)
        for deed in compress(HONEST, done):
            deed(world.tree, chance)
        counts, _ = run_tests(world.tree)
        if counts.failed or is_right(world.tree):
            continue
        made_a_difference += 1
        verdict = Verdict((CheckResult("x", CheckStatus.PASSED, 0.1, tests=counts),))
        judged = world.verifier().review_changes(verdict, [Check("make test")], None, is_baseline=False)
        findings = asyncio.run(judged).findings
        assert any(finding.severity == "error" for finding in findings), (name, world.tree)
    assert made_a_difference, "a cheat that never makes a difference proves nothing"
