"""Would the tests notice? Change the code in small ways, one at a time, and run the tests that cover the changed line.

python bench/mutants.py --seed 1 --count 40 --at-least 92 workflows/session verify engine

1. Run the tests once with coverage and record which test runs which line (cached by a hash of sources and tests).
2. Choose COUNT changes at random, seeded, among all changes in the given packages.
3. Apply each to a copy of the package and run the covering tests, the quickest first, until one fails.

A change that no test notices is printed as a diff. If it cannot change behavior, list it in bench/mutants_equivalent.toml
with a reason; it then counts neither way.
"""

import argparse
import ast
import difflib
import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from coverage.numbits import numbits_to_nums, nums_to_numbits

HERE = Path(__file__).resolve().parent.parent
SOURCE = HERE / "src" / "ralph"
EQUIVALENT = HERE / "bench" / "mutants_equivalent.toml"
CACHE = HERE / ".cache" / "mutants"
TEST_PATHS = ("tests/workflows", "tests/verify", "tests/engine", "tests/documents", "tests/workspace", "tests/cli")
MOST_TESTS = 150
"""How many covering tests are tried for one mutant, the ones that cover the fewest lines first."""
SECONDS = 240
"""A mutant whose tests take longer is counted as noticed: it loops."""


@dataclass(frozen=True)
class Mutant:
    """One small change: where it is, and the source line before and after."""

    file: str
    line: int
    function: str
    kind: str
    before: str
    after: str
    text: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.before, self.after


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
        self.hit: tuple[int, str, str] | None = None
        self._functions: list[str] = []

    def _take(self, node: ast.AST, kind: str) -> bool:
        if not self._functions:  # constants and decorators of a module are not behavior of a function
            return False
        self.seen += 1
        if self.seen != self.wanted:
            return False
        self.hit = (node.lineno, ".".join(self._functions), kind)  # type: ignore[attr-defined]
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


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def count_mutants(source: str) -> int:
    """How many changes are possible in a source text."""
    counter = Mutator(wanted=-2)
    counter.visit(ast.parse(source))
    return counter.seen + 1


def make_mutant(file: Path, number: int) -> Mutant:
    """The change with this number in a file."""
    source = file.read_text()
    mutator = Mutator(number)
    tree = ast.fix_missing_locations(mutator.visit(ast.parse(source)))
    assert mutator.hit is not None
    line, function, kind = mutator.hit
    text = ast.unparse(tree)
    plain = ast.unparse(ast.parse(source)).splitlines()
    changed = [row for row in difflib.ndiff(plain, text.splitlines()) if row[:2] in {"- ", "+ "}]
    return Mutant(
        file=str(file.relative_to(SOURCE)),
        line=line,
        function=function,
        kind=kind,
        before=" ".join(row[2:].strip() for row in changed if row.startswith("- ")),
        after=" ".join(row[2:].strip() for row in changed if row.startswith("+ ")),
        text=text,
    )


def choose(packages: list[str], count: int, seed: int) -> list[Mutant]:
    """A random sample of all changes that are possible in the packages."""
    files = sorted(file for package in packages for file in source_files(package))
    numbers = [(file, number) for file in files for number in range(count_mutants(file.read_text()))]
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


def coverage_map(test_paths: tuple[str, ...]) -> Path:
    """The coverage database with one context per test, made once for this state of sources and tests."""
    state = hashlib.sha256()
    for place in (SOURCE, HERE / "tests"):
        for file in sorted(place.rglob("*.py")):
            state.update(file.read_bytes())
    data = CACHE / f"coverage-{state.hexdigest()[:16]}"
    if data.exists():
        return data
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    print("Recording which test runs which line (once for this state of the code) ...", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "loadgroup", "-m", "not slow"]
    command += ["--cov=ralph", "--cov-context=test", "--cov-report=", *test_paths]
    done = subprocess.run(command, cwd=HERE, env={**os.environ, "COVERAGE_FILE": f"{data}.new"}, check=False)
    if done.returncode:
        raise SystemExit("The tests fail without any change: run make test first.")
    Path(f"{data}.new").rename(data)
    return data


class Coverage:
    """Which tests run a line, most specific first."""

    def __init__(self, data: Path) -> None:
        self._lines: dict[str, list[tuple[str, frozenset[int]]]] = {}
        self._breadth: dict[str, int] = {}
        with sqlite3.connect(data) as database:
            files = dict(database.execute("select id, path from file"))
            contexts = dict(database.execute("select id, context from context"))
            for file_id, context_id, bits in self._rows(database):
                test = contexts[context_id].partition("|")[0]
                if not test:
                    continue
                lines = frozenset(numbits_to_nums(bits))
                name = str(Path(files[file_id]).relative_to(SOURCE)) if files[file_id].startswith(str(SOURCE)) else ""
                self._lines.setdefault(name, []).append((test, lines))
                self._breadth[test] = self._breadth.get(test, 0) + len(lines)

    @staticmethod
    def _rows(database: sqlite3.Connection) -> Iterator[tuple[int, int, bytes]]:
        rows = list(database.execute("select file_id, context_id, numbits from line_bits"))
        if rows:
            yield from rows
            return
        # With branch coverage, arcs are recorded instead of lines.
        lines: dict[tuple[int, int], set[int]] = {}
        for file_id, context_id, start, end in database.execute("select file_id, context_id, fromno, tono from arc"):
            lines.setdefault((file_id, context_id), set()).update(line for line in (start, end) if line > 0)
        for (file_id, context_id), numbers in lines.items():
            yield file_id, context_id, nums_to_numbits(numbers)

    def tests(self, mutant: Mutant) -> list[str]:
        covering = {test for test, lines in self._lines.get(mutant.file, ()) if mutant.line in lines}
        return sorted(covering, key=lambda test: (self._breadth[test], test))[:MOST_TESTS]


def is_noticed(mutant: Mutant, tests: list[str]) -> bool:
    """Whether one of the tests fails with the change."""
    with tempfile.TemporaryDirectory(prefix="ralph-mutant-") as place:
        copy = Path(place) / "src" / "ralph"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / mutant.file).write_text(mutant.text)
        environment = {**os.environ, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", *tests]
        try:
            done = subprocess.run(
                command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return True
    if done.returncode not in {0, 1, 2}:  # 2: the change breaks the import of a test module
        raise SystemExit(f"pytest could not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def load_equivalent() -> set[tuple[str, str, str, str]]:
    if not EQUIVALENT.exists():
        return set()
    rows = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(row["file"], row["function"], row["before"], row["after"]) for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="packages or modules below src/ralph")
    parser.add_argument("--count", type=int, default=40, help="how many changes to try. Default: 40")
    parser.add_argument("--seed", type=int, default=1, help="which changes are chosen. Default: 1")
    parser.add_argument("--at-least", type=float, default=92.0, help="fail below this percentage. Default: 92")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once. Default: all cores")
    options = parser.parse_args()

    coverage = Coverage(coverage_map(TEST_PATHS))
    equivalent = load_equivalent()
    chosen = choose(options.packages, options.count, options.seed)
    relevant = [mutant for mutant in chosen if mutant.key not in equivalent]
    uncovered, tried = [], []
    for mutant in relevant:
        (tried if coverage.tests(mutant) else uncovered).append(mutant)

    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda mutant: is_noticed(mutant, coverage.tests(mutant)), tried))
    missed = [mutant for mutant, noticed in zip(tried, results, strict=True) if not noticed]
    for title, rows in (("not noticed", missed), ("not covered by any test", uncovered)):
        for mutant in rows:
            print(f"{title}: src/ralph/{mutant.file}:{mutant.line} {mutant.function} ({mutant.kind})")
            print(f"  - {mutant.before}\n  + {mutant.after}")
    share = 100.0 * sum(results) / len(relevant) if relevant else 100.0
    print(
        f"{sum(results)} of {len(relevant)} noticed ({share:.0f} %), {len(chosen) - len(relevant)} equivalent left out"
    )
    return 0 if share >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
