"""Heirs: which tests took over what a test claimed that is gone or says less now."""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from ralph.verify.guards.assertions import Assertion, Key, all_literals
from ralph.verify.guards.claims import Kind
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.strength import Helpers, rows
from ralph.verify.guards.units import Unit, likeness

_NOBODY = frozenset(("new", "get", "self"))


class Heirs:
    """The tests that are new or say something new, and what they claim."""

    def __init__(self, work: Comparison) -> None:
        helpers = [unit for source in work.new for unit in source.everything if unit.in_tests and not unit.is_test]
        self.work = work
        self.old_helpers = Helpers([old for old, _ in work.helper_pairs])
        self.new_helpers = Helpers(helpers)
        self.tests = [unit for unit in work.fresh if unit.is_test]
        self.prepared = frozenset(literal for unit in helpers for literal in unit.literals)
        """The literals of fixtures and helpers."""

    def claims(self, unit: Unit) -> list[Assertion]:
        """What a test of the new tree claims, by itself or through helpers."""
        return [*unit.assertions, *self.new_helpers.claims(unit)]

    def old_claims(self, unit: Unit) -> list[Assertion]:
        """The same for the old tree."""
        return [*unit.assertions, *self.old_helpers.claims(unit)]

    @cached_property
    def _claimed(self) -> frozenset[Key]:
        return frozenset(claim.key for unit in self.tests for claim in self.claims(unit))

    @cached_property
    def _added(self) -> Counter[Key]:
        """What tests claim now and did not before."""
        stale = Counter(claim.key for unit in self.work.stale if unit.is_test for claim in unit.assertions)
        return Counter(claim.key for unit in self.tests for claim in unit.assertions) - stale

    @cached_property
    def _by_name(self) -> dict[str, list[Assertion]]:
        found: dict[str, list[Assertion]] = {}
        for claim in (claim for unit in self.tests for claim in unit.assertions):
            for name in claim.names - _NOBODY:
                found.setdefault(name, []).append(claim)
        return found

    @cached_property
    def _by_literal(self) -> dict[str, set[Unit]]:
        found: dict[str, set[Unit]] = {}
        for unit in self.tests:
            for literal in unit.literals:
                found.setdefault(literal, set()).add(unit)
        return found

    @cached_property
    def _bodies(self) -> set[tuple[str, tuple[str, ...]]]:
        tests = (unit for source in self.work.new for unit in source.units if unit.is_test)
        return {(unit.scope, unit.tokens[unit.body :]) for unit in tests}

    def naming(self, literals: Iterable[str]) -> set[Unit]:
        """Tests that name all of the literals."""
        found = [self._by_literal.get(literal, set()) for literal in literals]
        return set.intersection(*found) if found else set()

    def took(self, claim: Assertion) -> bool:
        """Whether a test claims exactly this that did not before."""
        return self._added[claim.key] > 0 and claim.kind is not Kind.TRIVIAL

    def took_all(self, old: Unit) -> bool:
        """Whether a test was merged into others, split, put into a table, or was there twice."""
        if (old.scope, old.tokens[old.body :]) in self._bodies:
            return True
        had = [claim for claim in self.old_claims(old) if claim.rank]
        if not had:
            return any(likeness(old.words, unit.words) > 0.5 for unit in self.tests[:200])
        return all(claim.key in self._claimed or self._took_over(claim) for claim in had)

    def _took_over(self, claim: Assertion) -> bool:
        """Whether a test claims as much about the same thing with the same values."""
        if not claim.literals:
            others = (
                other for name in claim.names for other in self._by_name.get(name, ()) if other.rank >= claim.rank
            )
            return any(other.kind is not claim.kind or other.detail == claim.detail for other in others)
        wanted = claim.literals - self.prepared or claim.literals
        for unit in self.naming(wanted):
            examples = [all_literals(row) for row in rows(unit)] or [unit.literals]
            tries_it = any(wanted <= example for example in examples) and claim.names & unit.words.keys()
            if tries_it and any(other.rank >= claim.rank for other in self.claims(unit)):
                return True
        return False
