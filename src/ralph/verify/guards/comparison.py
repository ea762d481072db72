"""The tree before and the tree now, read once and paired for all rules."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ralph.verify.guards.changes import (
    LARGEST,
    FileChange,
    is_build_file,
    is_generated,
    is_ignored,
    is_test_path,
    language_of,
)  # fmt: skip
from ralph.verify.guards.reader import read
from ralph.verify.guards.units import Source, Unit, matched

Pair = tuple[Unit, Unit | None]


@dataclass(frozen=True)
class Comparison:
    """What changed, as the rules look at it."""

    files: tuple[FileChange, ...]
    checks: tuple[str, ...] = ()
    unchanged: Mapping[str, str] = field(default_factory=dict)
    """Files that did not change and help to judge: tests, scripts that the checks call."""

    @cached_property
    def renames(self) -> dict[str, str]:
        """The new path of every file that was moved, as git saw it."""
        return {change.renamed_from: change.path for change in self.files if change.renamed_from}

    @cached_property
    def old(self) -> list[Source]:
        return _sources((change.renamed_from or change.path, change.old) for change in self.files)

    @cached_property
    def new(self) -> list[Source]:
        return _sources((change.path, change.new) for change in self.files)

    @cached_property
    def lines(self) -> dict[str, list[str]]:
        """The text now, by lines, for excerpts."""
        return {change.path: change.new.splitlines() for change in self.files if change.new is not None}

    def excerpt(self, path: str, line: int) -> str:
        lines = self.lines.get(path, [])
        return lines[line - 1] if 0 < line <= len(lines) else ""

    @cached_property
    def test_pairs(self) -> list[Pair]:
        """Every test case that was, with the one that continues it."""
        old = [unit for source in self.old for unit in source.units if unit.is_test]
        new = [unit for source in self.new for unit in source.units if unit.is_test]
        return list(matched(old, new, self.renames))

    @cached_property
    def helper_pairs(self) -> list[Pair]:
        """Test code that is no case: helpers, fixtures."""
        old = [unit for source in self.old for unit in source.units if unit.in_tests and not unit.is_test]
        new = [unit for source in self.new for unit in source.units if unit.in_tests and not unit.is_test]
        return list(matched(old, new, self.renames))

    @cached_property
    def product_pairs(self) -> list[Pair]:
        """Functions of the product; only those that changed."""
        old = [unit for source in self.old for unit in source.everything if not unit.in_tests]
        new = [unit for source in self.new for unit in source.everything if not unit.in_tests]
        return list(matched(old, new, self.renames))

    @cached_property
    def _old_by_path(self) -> dict[str, Source]:
        return {self.renames.get(source.path, source.path): source for source in self.old}

    def source_before(self, path: str) -> Source | None:
        """What the file at a path of the new tree was."""
        return self._old_by_path.get(path)

    @cached_property
    def origin(self) -> dict[Unit, Unit]:
        """The old unit of each new one that continues one."""
        pairs = (*self.test_pairs, *self.helper_pairs, *self.product_pairs)
        found = {new: old for old, new in reversed(pairs) if new is not None}
        for source in self.new:
            if before := self.source_before(source.path):
                found[source.outside] = before.outside
        return found

    @cached_property
    def fresh(self) -> list[Unit]:
        """Units that are new or say something else than before."""
        units = (unit for source in self.new for unit in source.everything)
        return [unit for unit in units if (before := self.origin.get(unit)) is None or before.tokens != unit.tokens]

    @cached_property
    def stale(self) -> list[Unit]:
        """Units as they were, where they are gone or say something else now."""
        kept = {before for unit, before in self.origin.items() if before.tokens == unit.tokens}
        return [unit for source in self.old for unit in source.everything if unit not in kept]

    @cached_property
    def product_changed(self) -> bool:
        """Whether code changed that is neither a test nor configuration."""
        units = (unit for unit in (*self.fresh, *self.stale) if not unit.in_tests)
        known = any(not is_test_path(unit.path) and not is_build_file(unit.path) for unit in units)
        return known or any(
            language_of(change.path) is None and re.search(r"\.(c|cc|cpp|h|rb|php|cs|swift|scala|sql|vue|svelte|html|css)$", change.path)
            for change in self.files if change.old != change.new
        )  # fmt: skip

    @cached_property
    def gone(self) -> frozenset[str]:
        """Names that the product defined and no longer does."""
        return self._defined(self.old) - self._defined(self.new)

    def _defined(self, sources: Sequence[Source]) -> frozenset[str]:
        names: set[str] = set()
        for source in sources:
            if not is_test_path(source.path):
                names.update(unit.name for unit in source.units if not unit.in_tests and len(unit.name) > 2)
                names.update(re.findall(r"\b(?:class|struct|enum|interface|type) (\w+)", source.outside.text))
        return frozenset(names)


def _sources(texts: Iterable[tuple[str, str | None]]) -> list[Source]:
    found = (
        read(path, text)
        for path, text in texts
        if text is not None and len(text) <= LARGEST and not is_ignored(path) and not is_generated(path, text)
    )
    return [source for source in found if source is not None]
