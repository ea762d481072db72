"""Would the tests notice? Change the code in small ways, one at a time, and run the tests that cover the changed line.

python bench/mutants.py --seed 1 --count 40 --at-least 92 workflows/session verify engine

1. Choose COUNT changes at random, seeded, among all changes in the given packages.
2. Run the tests of these packages once with coverage and record which test runs which line, and how long it takes.
   The record of each directory of tests stays in .mutants-cache until sources or these tests change.
3. Apply each change to a copy of the package and run the tests that cover its line, the quickest first, until one fails.

A change that no test notices is printed. If it cannot change behavior, list it in bench/mutants_equivalent.toml
with a reason; it then counts neither way.
"""

import argparse
import ast
import contextlib
import difflib
import hashlib
import json
import math
import os
import py_compile
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from coverage.numbits import numbits_to_nums

HERE = Path(__file__).resolve().parent.parent
SOURCE = HERE / "src" / "ralph"
EQUIVALENT = HERE / "bench" / "mutants_equivalent.toml"
CACHE = HERE / ".mutants-cache"
MORE_TESTS = {"verify": ("tests/guards",)}
"""Directories of tests beside `tests/PACKAGE` that are about a package."""
MAX_SECONDS = 90.0
"""How much test time is spent on one mutant, by what the tests took when they were recorded."""
LEAST_PATIENCE = 60.0
"""Seconds that the tests of one mutant always get; a mutant whose tests take much longer than recorded loops."""
UNSTEADY = 1.0
"""A test that takes longer than this many seconds may fail under load: it has to fail twice to count."""
FEWEST_TESTS = 200
"""How many tests are tried however long they take: a record that was made on a busy machine overstates it."""
QUICK_TESTS = 4000
"""How many tests at most are run for one mutant."""


@dataclass(frozen=True)
class Mutant:
    """One small change: where it is, and the source line before and after."""

    file: str
    line: int
    statement: range
    """The lines of the statement that has the change, without the statements inside it."""
    function: str
    kind: str
    before: str
    after: str
    text: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.before, self.after

    @property
    def package(self) -> str:
        return str(Path(self.file).parent)

    def __str__(self) -> str:
        place = f"src/ralph/{self.file}:{self.line} {self.function} ({self.kind})"
        return f"{place}\n  - {self.before}\n  + {self.after}"


COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv}


class Mutator(ast.NodeTransformer):
    """Applies the change number `wanted` to a tree, and counts the changes that are possible."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.seen = -1
        self.hit: tuple[int, range, str, str] | None = None
        self.functions: list[str] = []
        """The function of each change that is possible."""
        self._functions: list[str] = []
        self._statement = range(0)

    def visit(self, node: ast.AST) -> ast.AST:
        outer = self._statement
        if isinstance(node, ast.stmt):
            self._statement = lines_of_statement(node)
        try:
            return super().visit(node)  # type: ignore[no-any-return]
        finally:
            self._statement = outer

    def _take(self, node: ast.AST, kind: str) -> bool:
        if not self._functions:  # constants and decorators of a module are not behavior of a function
            return False
        self.seen += 1
        self.functions.append(".".join(self._functions))
        if self.seen != self.wanted:
            return False
        self.hit = (node.lineno, self._statement, self.functions[-1], kind)  # type: ignore[attr-defined]
        return True

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._functions.append(node.name)
        node.body = [self.visit(statement) for statement in node.body]
        self._functions.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(statement)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        swapped = COMPARE.get(type(node.ops[0]))
        if swapped and self._take(node, "comparison"):
            node.ops[0] = swapped()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self._take(node, "and/or"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self._take(node, "not removed"):
            return node.operand
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        swapped = ARITHMETIC.get(type(node.op))
        if swapped and not is_text(node.left) and not is_text(node.right) and self._take(node, "arithmetic"):
            node.op = swapped()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool) and self._take(node, "constant"):
            return ast.copy_location(ast.Constant(not node.value), node)
        if type(node.value) is int and self._take(node, "constant"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if self._take(node, "condition always true"):
            node.test = ast.copy_location(ast.Constant(True), node.test)
        elif self._take(node, "condition always false"):
            node.test = ast.copy_location(ast.Constant(False), node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if self._take(node, "branches swapped"):
            node.body, node.orelse = node.orelse, node.body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
        plain = plain and not (isinstance(node.func, ast.Name) and node.func.id in {"min", "max"})
        if len(node.args) == 2 and plain and self._take(node, "arguments swapped"):
            node.args.reverse()
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Call | ast.Await) and self._take(node, "statement removed"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # what a message says is compared by golden files, not here


def lines_of_statement(statement: ast.stmt) -> range:
    """The lines of a statement; of one with a body those before its body."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    first = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return range(statement.lineno, max(first, statement.lineno + 1))


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def functions_of_mutants(source: str) -> list[str]:
    """The function of each change that is possible in a source text."""
    counter = Mutator(wanted=-2)
    counter.visit(ast.parse(source))
    return counter.functions


def make_mutant(file: Path, number: int) -> Mutant:
    """The change with this number in a file."""
    source = file.read_text()
    mutator = Mutator(number)
    tree = ast.fix_missing_locations(mutator.visit(ast.parse(source)))
    assert mutator.hit is not None
    line, statement, function, kind = mutator.hit
    text = ast.unparse(tree)
    plain = ast.unparse(ast.parse(source)).splitlines()
    changed = [row for row in difflib.ndiff(plain, text.splitlines()) if row[:2] in {"- ", "+ "}]
    return Mutant(
        file=str(file.relative_to(SOURCE)),
        line=line,
        statement=statement,
        function=function,
        kind=kind,
        before=" ".join(row[2:].strip() for row in changed if row.startswith("- ")),
        after=" ".join(row[2:].strip() for row in changed if row.startswith("+ ")),
        text=text,
    )


def choose(packages: list[str], count: int, seed: str) -> list[Mutant]:
    """A random sample of all changes that are possible in the packages."""
    files = sorted(file for package in packages for file in source_files(package))
    numbers = [(file, n) for file in files for n in range(len(functions_of_mutants(file.read_text())))]
    random.Random(seed).shuffle(numbers)
    chosen: list[Mutant] = []
    for file, number in numbers:
        if len(chosen) == count:
            break
        mutant = make_mutant(file, number)
        if mutant.before != mutant.after:
            chosen.append(mutant)
    return chosen


def source_files(package: str) -> list[Path]:
    place = SOURCE / package
    if not place.exists():
        raise SystemExit(f"There is no package src/ralph/{package}.")
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


class Record:
    """Which tests run a line and how long they take, as recorded by one run of some tests."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.seconds: dict[str, float] = json.loads((place / "seconds.json").read_text())
        self._names: dict[str, str] = json.loads((place / "names.json").read_text())

    @cached_property
    def _lines(self) -> dict[str, list[tuple[str, frozenset[int]]]]:
        """For every source file the tests that run it, each with the lines that it runs."""
        found: dict[str, list[tuple[str, frozenset[int]]]] = {}
        with contextlib.closing(sqlite3.connect(self.place / "coverage")) as database:
            files = dict(database.execute("select id, path from file"))
            contexts = dict(database.execute("select id, context from context"))
            rows = database.execute("select file_id, context_id, numbits from line_bits")
            for file_id, context_id, bits in rows:
                test = self._names.get(_test_of_context(contexts[context_id]))
                if test and files[file_id].startswith(f"{SOURCE}/"):
                    name = str(Path(files[file_id]).relative_to(SOURCE))
                    found.setdefault(name, []).append((test, frozenset(numbits_to_nums(bits))))
        return found

    def _old_line(self, file: str, line: int) -> int:
        """Where a line was when the tests were recorded; 0 if it was not there."""
        before = self.place / "ralph" / file
        if not before.exists():
            return 0
        old, new = before.read_text().splitlines(), (SOURCE / file).read_text().splitlines()
        if old == new:
            return line
        for start, start_now, size in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            if start_now < line <= start_now + size:
                return start + line - start_now
        return 0

    def tests(self, mutant: Mutant) -> set[str]:
        """The tests that run the line of a mutant, or the first line of its statement that any test runs.

        Python runs no code on some lines: the first line of `if (` and a condition below has none.
        """
        for line in (mutant.line, *mutant.statement):
            old = self._old_line(mutant.file, line)
            if covering := {test for test, lines in self._lines.get(mutant.file, ()) if old in lines}:
                return covering
        return set()


class Records:
    """The records of all parts of the tests."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records
        self.seconds = {test: seconds for record in records for test, seconds in record.seconds.items()}

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that run the line of a mutant, the quickest first."""
        covering = set().union(*(record.tests(mutant) for record in self._records))
        return sorted(covering, key=lambda test: (self.seconds[test], test))


def _test_of_context(context: str) -> str:
    """The test that a coverage context names: `test|run` in the test process, `test (call)` in its children."""
    for ending in ("|setup", "|run", "|teardown", " (setup)", " (call)", " (teardown)"):
        context = context.removesuffix(ending)
    return context


CONFIG = """\
[run]
branch = False
parallel = True
patch = subprocess
# Programs that a test starts record under the name of that test.
context = ${PYTEST_CURRENT_TEST-}
include = %s
"""


def hash_files(*places: Path) -> str:
    state = hashlib.sha256()
    for place in places:
        for file in sorted(file for file in place.rglob("*") if file.is_file() and "__pycache__" not in file.parts):
            state.update(f"{file.relative_to(HERE)}\0".encode())
            state.update(file.read_bytes())
    return state.hexdigest()[:16]


def choose_tests(mutants: list[Mutant]) -> list[str]:
    """The directories of tests that are about the packages of some mutants."""
    found: list[str] = []
    for package in sorted({mutant.file.partition("/")[0] for mutant in mutants}):
        found += [name for name in (f"tests/{package}", *MORE_TESTS.get(package, ())) if (HERE / name).is_dir()]
    return found


def record_tests(tests: str, *, jobs: int, keeps: bool) -> Record:
    """Which test runs which line: recorded once for this state of the sources and of these tests."""
    name = tests.replace("/", "-")
    place = CACHE / f"{name}-{hash_files(SOURCE, HERE / tests)}"
    if (place / "seconds.json").exists():
        return Record(place)
    earlier = [found.parent for found in CACHE.glob(f"{name}-*/seconds.json")]
    if keeps and earlier:
        return Record(earlier[0])
    print(f"Recording which test of {tests} runs which line (once for this state of the code) ...", flush=True)
    started = time.monotonic()
    for old in CACHE.glob(f"{name}-*"):
        shutil.rmtree(old)
    place.mkdir(parents=True)
    config = place / "coveragerc"
    config.write_text(CONFIG % (SOURCE / "*"))
    shutil.copytree(SOURCE, place / "ralph", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "--dist", "loadgroup", "-m", "not slow"]
    command += ["--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report=", "-p", "mutants_plugin"]
    environment = {
        **os.environ,
        "COVERAGE_FILE": str(place / "coverage"),
        "PYTHONPATH": os.pathsep.join((str(HERE / "src"), str(HERE / "bench"))),
        "MUTANTS_RECORD": str(place),
    }
    done = subprocess.run([*command, tests], cwd=HERE, env=environment, check=False)
    if done.returncode not in {0, 1}:  # 1: some tests failed
        raise SystemExit(f"The tests in {tests} cannot be run: run make test first.")
    names: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for file in place.glob("tests-*.json"):
        for name_in_run, test, duration, has_failed in json.loads(file.read_text()):
            if has_failed:
                # It would "notice" every mutant. `make test` reports it if it does not fail by chance.
                print(f"{test} fails without any change, and is not used.")
            else:
                names[name_in_run], seconds[test] = test, duration
    (place / "names.json").write_text(json.dumps(names))
    (place / "seconds.json").write_text(json.dumps(seconds))
    print(f"Recorded {len(seconds)} tests in {time.monotonic() - started:.0f} s", flush=True)
    return Record(place)


class Result(StrEnum):
    NOTICED = "noticed"
    TIMED_OUT = "noticed by a timeout"
    MISSED = "missed"
    UNCOVERED = "covered by no test"
    EQUIVALENT = "equivalent"


@dataclass(frozen=True)
class Tried:
    """The result of one mutant."""

    mutant: Mutant
    result: Result
    by: str = ""
    """The test that noticed it, or how many tests did not."""


def try_mutant(mutant: Mutant, record: Records) -> Tried:
    """Run the tests that cover the line of a mutant until one fails."""
    covering = record.tests(mutant)
    if not covering:
        return Tried(mutant, Result.UNCOVERED)
    tests: list[str] = []
    spent = 0.0
    for test in covering[:QUICK_TESTS]:
        spent += record.seconds[test]
        if len(tests) >= FEWEST_TESTS and spent > MAX_SECONDS:
            break
        tests.append(test)
    with tempfile.TemporaryDirectory(prefix="ralph-mutant-", dir=memory(), ignore_cleanup_errors=True) as name:
        place = Path(name)
        copy = place / "src" / "ralph"
        shutil.copytree(SOURCE, copy)  # with its compiled modules: most tests start programs
        (copy / mutant.file).write_text(mutant.text)
        py_compile.compile(str(copy / mutant.file), doraise=True)
        end, failed = run_tests(place, tests, LEAST_PATIENCE + 6 * spent)
        if failed and record.seconds.get(failed, 0.0) > UNSTEADY:
            end, failed = run_tests(
                place, [failed, *(test for test in tests if test != failed)], LEAST_PATIENCE + 6 * spent
            )
    if end is None:
        return Tried(mutant, Result.TIMED_OUT)
    if end == 0:
        return Tried(mutant, Result.MISSED, f"{len(tests)} of {len(covering)} covering tests ran")
    return Tried(mutant, Result.NOTICED, failed or "a test module that cannot be imported")


def memory() -> str | None:
    """A directory in memory, if there is one: most tests wait for a disk and for nothing else."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 3 << 30 else None


def run_tests(place: Path, tests: list[str], patience: float) -> tuple[int | None, str]:
    """The exit status of pytest, None after a timeout, and the test that failed."""
    (place / "tests").write_text("\n".join(tests))
    (place / "failed").unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(place / "src"), str(HERE / "bench"))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MUTANTS_TESTS": str(place / "tests"),
        "MUTANTS_FAILED": str(place / "failed"),
    }
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-p", "mutants_plugin", f"--basetemp={place / 'base'}", *files]
    with (place / "output").open("w") as output:
        child = subprocess.Popen(
            command, cwd=HERE, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status: int | None = child.wait(patience)
        except subprocess.TimeoutExpired:
            status = None
            end_group(child)
    failed = (place / "failed").read_text() if (place / "failed").exists() else ""
    if status not in {0, 1, 2, None}:  # 2: the change breaks the import of a test module
        raise SystemExit(f"pytest could not run: {(place / 'output').read_text()[-3000:]}")
    return status, failed


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End the tests of a mutant, politely first so that they end what they started."""
    for how, patience in ((signal.SIGINT, 10.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, how)
            child.wait(patience)


def load_equivalent() -> dict[tuple[str, str, str, str], str]:
    """The changes that cannot change behavior, with the reason."""
    rows = tomllib.loads(EQUIVALENT.read_text()).get("mutant", []) if EQUIVALENT.exists() else []
    return {(row["file"], row["function"], row["before"], row["after"]): row["reason"] for row in rows}


def find_stale(keys: set[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
    """The listed changes that are not possible any more: the code has moved on."""
    possible: set[tuple[str, str, str, str]] = set()
    for name in {key[0] for key in keys}:
        file, functions = SOURCE / name, {key[1] for key in keys if key[0] == name}
        if not file.exists():
            continue
        for number, function in enumerate(functions_of_mutants(file.read_text())):
            if function in functions:
                possible.add(make_mutant(file, number).key)
    return sorted(keys - possible)


def try_all(mutants: list[Mutant], record: Records, jobs: int, seconds: float) -> Iterator[Tried]:
    """The result of each mutant, as it becomes known. After these seconds, no further mutant is tried."""
    deadline = time.monotonic() + seconds

    def try_in_time(mutant: Mutant) -> Tried | None:
        return try_mutant(mutant, record) if time.monotonic() < deadline else None

    with ThreadPoolExecutor(jobs) as pool:
        for tried in pool.map(try_in_time, mutants):
            if tried:
                yield tried


def report(tried: list[Tried]) -> tuple[int, int]:
    """Print what was missed and the figures of each package; how many were noticed, and of how many."""
    print()
    for one in tried:
        if one.result in {Result.MISSED, Result.UNCOVERED}:
            print(f"{one.result}: {one.mutant}" + (f"\n  {one.by}" if one.by else ""))
    columns = list(Result)
    print("\npackage".ljust(32) + "  ".join(str(column) for column in columns))
    packages = sorted({one.mutant.package for one in tried})
    for package in [*packages, "all"]:
        tally = Counter(one.result for one in tried if package in {one.mutant.package, "all"})
        print(package.ljust(31) + "  ".join(str(tally[column]).rjust(len(str(column))) for column in columns))
    relevant = [one for one in tried if one.result is not Result.EQUIVALENT]
    noticed = sum(one.result in {Result.NOTICED, Result.TIMED_OUT} for one in relevant)
    share = 100.0 * noticed / len(relevant) if relevant else 100.0
    print(f"\n{noticed} of {len(relevant)} mutants that are not equivalent were noticed ({share:.0f} %)")
    return noticed, len(relevant)


def is_too_few(noticed: int, tried: int, percentage: float, chance: float) -> bool:
    """Whether fewer mutants were noticed than the tests have to notice.

    A small sample can have too many of the others by chance. If `chance` is above 0, it is too few only if a sample with so
    few is less likely than that, although the tests notice this percentage of all mutants.
    """
    share = percentage / 100.0
    if not chance:
        return noticed < share * tried
    likelihood = sum(math.comb(tried, k) * share**k * (1 - share) ** (tried - k) for k in range(noticed + 1))
    return likelihood < chance


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="packages or modules below src/ralph")
    parser.add_argument("--count", type=int, default=40, help="how many changes to try. Default: 40")
    parser.add_argument("--seed", default="1", help="which changes are chosen. Default: 1")
    parser.add_argument("--at-least", type=float, default=92.0, help="fail below this percentage. Default: 92")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once. Default: all cores")
    parser.add_argument(
        "--tests", nargs="+", help="tests to record. Default: those of the packages with a chosen change"
    )
    parser.add_argument(
        "--one-package", action="store_true", help="change only one of the packages; the seed says which"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        help="try no further change after this time, which includes the recording. Default: no limit",
    )
    parser.add_argument(
        "--chance",
        type=float,
        default=0.0,
        help="do not fail if so few can be noticed by chance, with at least this probability. Default: 0, always fail",
    )
    parser.add_argument(
        "--keep-record", action="store_true", help="use the last record although the code has changed: may miss more"
    )
    options = parser.parse_args()

    started = time.monotonic()
    equivalent = load_equivalent()
    for file, function, before, after in find_stale(set(equivalent)):
        print(f"not possible any more: {file} {function}: {before} -> {after}")
    packages = [random.Random(options.seed).choice(options.packages)] if options.one_package else options.packages
    chosen = choose(packages, options.count, options.seed)
    directories = options.tests or choose_tests(chosen)
    record = Records([record_tests(tests, jobs=options.jobs, keeps=options.keep_record) for tests in directories])
    print(f"Sample of {options.count} in {', '.join(packages)} with --seed {options.seed}", flush=True)
    tried = [Tried(mutant, Result.EQUIVALENT) for mutant in chosen if mutant.key in equivalent]
    relevant = [mutant for mutant in chosen if mutant.key not in equivalent]
    seconds_left = options.minutes * 60 - (time.monotonic() - started)
    for one in try_all(relevant, record, options.jobs, seconds_left):
        tried.append(one)
        print(f"{len(tried)}/{len(chosen)} {one.result}: {one.mutant.file}:{one.mutant.line} {one.by}", flush=True)
    noticed, counted = report(tried)
    return 1 if is_too_few(noticed, counted, options.at_least, options.chance) else 0


if __name__ == "__main__":
    sys.exit(main())
