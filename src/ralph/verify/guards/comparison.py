"""The tree before and the tree now, read once and paired for all rules."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ralph.core.checks import Finding, Rule
from ralph.core.text import regex
from ralph.verify.changed_files import (
    LARGEST,
    FileChange,
    is_build_code,
    is_handwritten,
    is_ignored,
    is_test_path,
    make_finding,
)
from ralph.verify.guards.commands import CheckStep, CommandTree, find_steps
from ralph.verify.guards.units import SourceFile, Unit, match_units, read_source

Pair = tuple[Unit, Unit | None]

_TYPES = regex(r"\b(?:class|struct|enum|interface|type) (\w+)")
_COVERS = regex(r"(^|/)(pyproject\.toml|setup\.cfg|tox\.ini|pytest\.ini|\.coveragerc|package\.json|\w+\.config\.\w+)$")
_COVERAGE = regex(
    r"--cov|fail_under|--coverage|coverageThreshold|thresholds|-cover\b|tarpaulin|llvm-cov|jacoco|\bcoverage\b.*\brun\b"
)
"""How commands and settings say that coverage counts."""
_RUNS_MORE = regex(r"\b(tox|nox|mvnw?|gradlew?|pre-commit)\b")
"""Programs that run tests, and often other checkers too."""
_OTHER_CODE = regex(r"\.(c|cc|cpp|h|rb|php|cs|swift|scala|sql|vue|svelte|html|css)$")


@dataclass(frozen=True)
class Comparison:
    """What changed, as the rules look at it."""

    files: tuple[FileChange, ...]
    checks: tuple[str, ...] = ()
    unchanged: Mapping[str, str] = field(default_factory=dict)
    """Files that did not change and help to judge: tests, scripts that the checks call."""
    failed_before: tuple[str, ...] = ()
    """The names of tests that failed before the run and pass now."""

    @cached_property
    def renames(self) -> dict[str, str]:
        """The new path of every file that was moved, as git saw it."""
        return {change.renamed_from: change.path for change in self.files if change.renamed_from}

    @cached_property
    def texts_before(self) -> dict[str, str]:
        """All that is known of the tree before, vendored code left out."""
        return self._texts((change.renamed_from or change.path, change.old) for change in self.files)

    @cached_property
    def texts_now(self) -> dict[str, str]:
        """All that is known of the tree now, vendored code left out."""
        return self._texts((change.path, change.new) for change in self.files)

    @cached_property
    def tree_before(self) -> CommandTree:
        return CommandTree(self.texts_before)

    @cached_property
    def tree_now(self) -> CommandTree:
        return CommandTree(self.texts_now)

    def _texts(self, texts: Iterable[tuple[str, str | None]]) -> dict[str, str]:
        changed = {path: text for path, text in texts if text is not None and not is_ignored(path)}
        return {**self.unchanged, **changed}

    @cached_property
    def old(self) -> list[SourceFile]:
        return _read_sources((change.renamed_from or change.path, change.old) for change in self.files)

    @cached_property
    def new(self) -> list[SourceFile]:
        # A file that was written by hand does not become generated code by a comment.
        written = {c.path for c in self.files if c.old is not None and is_handwritten(c.renamed_from or c.path, c.old)}
        return _read_sources(((change.path, change.new) for change in self.files), written)

    @cached_property
    def unchanged_tests(self) -> list[SourceFile]:
        return _read_sources((path, text) for path, text in self.unchanged.items() if is_test_path(path))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of checks that the work is judged by."""
        found = {step.kind for step in self._steps}
        texts = [
            *(step.text for step in self._steps),
            *(self.texts_now[p] for p in self.texts_now if _COVERS.search(p)),
        ]
        if any(_COVERAGE.search(text) for text in texts):
            found.add("coverage")
        return frozenset(found)

    @cached_property
    def _steps(self) -> list[CheckStep]:
        return list(find_steps(self.tree_now.expand(self.checks)))

    def may_use(self, kind: str) -> bool:
        """Whether the checks use a checker of that kind: they run one, or something of which it is not known what it runs."""
        return not self.checks or kind in self.kinds or any(map(self._is_opaque, self.checks))

    def is_tool_the_check(self, kind: str) -> bool:
        """Whether the checks are known to run a checker of that kind."""
        return bool(self.checks) and kind in self.kinds

    def is_only_check(self, kind: str) -> bool:
        """Whether the checks run nothing but checkers of that kind: to pass it is all that the work is for."""
        return self.is_tool_the_check(kind) and not self.kinds - {kind, "format"}

    @cached_property
    def red_tests(self) -> list[Unit]:
        """The tests that failed before the run, pass now, and were not changed."""
        tests = [
            unit for source in self.unchanged_tests for unit in source.units if unit.is_test and len(unit.name) > 3
        ]
        return [unit for unit in tests if any(unit.name in name for name in self.failed_before)]

    def _is_opaque(self, command: str) -> bool:
        """Whether it is not known what a command runs."""
        run = list(find_steps(self.tree_now.expand([command])))
        return not run or any(not step.is_known or _RUNS_MORE.search(step.text) for step in run)

    def report(self, rule: Rule, path: str, line: int, sentence: str, *, warn: bool = False) -> Finding:
        """A finding that quotes its line."""
        text = "".join(self.texts_now.get(path, "").splitlines()[max(line - 1, 0) : line])
        return make_finding(rule, path, line, sentence, text, warn=warn)

    def _pair_units(self, belongs: Callable[[Unit], bool]) -> list[Pair]:
        old, new = ([u for s in sources for u in s.everything if belongs(u)] for sources in (self.old, self.new))
        return list(match_units(old, new, self.renames))

    @cached_property
    def test_pairs(self) -> list[Pair]:
        """Every test case that was, with the one that continues it."""
        return self._pair_units(lambda unit: unit.is_test)

    @cached_property
    def helper_pairs(self) -> list[Pair]:
        """Test code that is not a test case: helpers and fixtures."""
        return self._pair_units(lambda unit: unit.in_tests and not unit.is_test and bool(unit.name))

    @cached_property
    def product_pairs(self) -> list[Pair]:
        """Functions of the product."""
        return self._pair_units(lambda unit: not unit.in_tests)

    @cached_property
    def before(self) -> dict[str, SourceFile]:
        """What the file at a path of the new tree was."""
        return {self.renames.get(source.path, source.path): source for source in self.old}

    @cached_property
    def origin(self) -> dict[Unit, Unit]:
        """The old unit of each new one that continues one."""
        pairs = (*self.test_pairs, *self.helper_pairs, *self.product_pairs)
        found = {new: old for old, new in reversed(pairs) if new is not None}
        return found | {s.outside: self.before[s.path].outside for s in self.new if s.path in self.before}

    @cached_property
    def changed_units(self) -> list[Unit]:
        """Units that are new or say something else than before."""
        units = (unit for source in self.new for unit in source.everything)
        return [
            unit
            for unit in units
            if (before := self.origin.get(unit)) is None or before.expanded_tokens != unit.expanded_tokens
        ]

    @cached_property
    def replaced_units(self) -> list[Unit]:
        """Units as they were before, if they are gone or say something else now."""
        unchanged = {before for unit, before in self.origin.items() if before.expanded_tokens == unit.expanded_tokens}
        return [unit for source in self.old for unit in source.everything if unit not in unchanged]

    @cached_property
    def product_changed(self) -> bool:
        """Whether code changed that is neither a test nor configuration."""
        paths = [unit.path for unit in (*self.changed_units, *self.replaced_units) if not unit.in_tests]
        paths += [change.path for change in self.files if _OTHER_CODE.search(change.path)]
        return any(not is_test_path(path) and not is_build_code(path) for path in paths)

    @cached_property
    def removed_names(self) -> frozenset[str]:
        """Names that the product defined and no longer does."""
        return _find_defined(self.old) - _find_defined(self.new)


def _find_defined(sources: Sequence[SourceFile]) -> frozenset[str]:
    product = [source for source in sources if not is_test_path(source.path)]
    functions = {unit.name for source in product for unit in source.units if not unit.in_tests and len(unit.name) > 2}
    return frozenset(functions.union(*(_TYPES.findall(source.outside.text) for source in product)))


def _read_sources(texts: Iterable[tuple[str, str | None]], written: Collection[str] = ()) -> list[SourceFile]:
    """The sources that are written by hand: those known to be, and those that look so."""
    found = []
    for path, text in texts:
        if text is None or not (is_handwritten(path, text) or (path in written and len(text) <= LARGEST)):
            continue
        source = read_source(path, text)
        if source is not None:
            found.append(source)
    return found
