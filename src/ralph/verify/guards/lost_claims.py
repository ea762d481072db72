"""Claims that tests made before must still be made, by any test, as strongly and on the same values.

A refactoring moves claims: to another name, another file, a row of a table, a helper, a fixture. It keeps their values.
So the guards look for a missing claim by its values among the new claims. Only what no new claim covers is lost.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ralph.core.text import regex
from ralph.verify.changed_files import find_gained
from ralph.verify.guards.assertions import (
    Assertion,
    find_all_literals,
    has_same_subject,
    is_as_strong,
    is_bound_eased,
    is_measure,
    split_errors,
)
from ralph.verify.guards.claims import ClaimKind
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.tokens import find_bindings, substitute_names
from ralph.verify.guards.units import Unit, find_rows, measure_likeness

_KEYS: tuple[Callable[[Assertion], object], ...] = (
    lambda a: a.key,
    lambda a: (a.kind, a.detail, a.tolerance, a.doubt, a.literals) if a.literals else a.key,
    lambda a: (a.kind, a.detail, a.tolerance, a.doubt, a.expected) if a.expected else a.key,
    lambda a: (a.kind, a.callee) if a.kind is ClaimKind.PASSES else a.key,
)
"""When two claims are one: word by word, then with names changed, then with the same result expected."""

_LONG = 60
"""A longer token names nothing."""
_ENOUGH = 200
"""New claims that are looked at for one value or name."""
_MAX_TESTS = 200
"""Tests that one test without claims is compared with."""
_AKIN = 0.25
"""How much alike a test must be that was written in the place of another."""
RUNS_BEFORE = regex(r"autouse = True|@ Before\w*|\b(setUp\w*|setup_\w+|beforeEach|beforeAll|TestMain)\b")
"""Code that the test runner calls by itself."""

_SETS_UP = regex(rf"{RUNS_BEFORE.pattern}|\bfixture\b")

Loss = Literal["weakened", "changed", "input"]
"""What became of a claim that no new claim covers."""


@dataclass(frozen=True)
class _NewClaim:
    """A claim that is new, with the values of one example that it is tried on."""

    claim: Assertion
    values: frozenset[str]
    unit: Unit


class TestClaims:
    """The claims of the tests of one tree, with what helpers claim on their behalf written in their place."""

    def __init__(self, helpers: Sequence[Unit]) -> None:
        self.helpers = {unit.name: unit for unit in helpers if unit.name}
        self._claims: dict[tuple[Unit, int], list[Assertion]] = {}

    def find_claims(self, unit: Unit, depth: int = 2) -> list[Assertion]:
        if (unit, depth) not in self._claims:
            helped = list(self._find_helper_claims(unit, depth)) if depth else []
            spoken = {claim.via for claim in helped}
            self._claims[unit, depth] = [claim for claim in unit.assertions if claim.detail not in spoken] + helped
        return self._claims[unit, depth]

    def _find_helper_claims(self, unit: Unit, depth: int) -> Iterator[Assertion]:
        if not unit.calls & self.helpers.keys():
            return
        names = {name: value for _, name, value in find_bindings(unit.tokens)}
        for index in range(unit.body, len(unit.tokens) - 1):
            helper = self.helpers.get(unit.tokens[index])
            if helper is None or helper is unit or unit.tokens[index + 1] != "(":
                continue
            given = " ".join(substitute_names(unit.tokens[index + 2 : unit.pairs[index + 1]], names))
            for claim in self.find_claims(helper, depth - 1):
                yield replace(claim, sides=(given, *claim.sides), line=unit.tokens[index].line, via=helper.name)


def _find_used_helpers(helpers: Sequence[Unit], in_tests: Sequence[Unit]) -> list[Unit]:
    """The helpers that other code of the tests names, that have no name, or that run before tests."""
    named: Counter[str] = Counter()
    for unit in in_tests:
        named.update(token.strip('"') for token in {*unit.tokens} if len(token) < _LONG)
    return [unit for unit in helpers if named[unit.name] > 1 or not unit.name or RUNS_BEFORE.search(unit.head_text)]


class ClaimTracker:
    """The claims of both trees."""

    def __init__(self, work: Comparison) -> None:
        in_tests = [unit for source in work.new for unit in source.everything if unit.in_tests]
        helpers = [unit for unit in in_tests if not unit.is_test]
        self.work = work
        self.tests = [unit for unit in work.changed_units if unit.is_test]
        others: list[Unit] = []
        if self.tests:
            others = [unit for source in work.unchanged_tests for unit in source.units if not unit.is_test]
        self.old = TestClaims([*others, *(old for old, _ in work.helper_pairs)])
        self.new = TestClaims([*others, *helpers])
        used = _find_used_helpers(helpers, in_tests)
        self.prepared = frozenset(literal for unit in used for literal in unit.literals)
        """The literals of fixtures and helpers."""
        self.set_up = [unit for unit in helpers if unit.name and _SETS_UP.search(unit.head_text)]
        """Code that runs before tests: for all of a class or file, or for those that name the fixture."""
        self.tables = [find_all_literals(row) for unit in used for row in find_rows(unit)]
        """The rows of tables that are outside of tests."""

    @cached_property
    def _new_claims(self) -> dict[str, list[_NewClaim]]:
        """The claims that are new, by each of their values and names."""
        found: dict[str, list[_NewClaim]] = {}
        for unit in self.tests:
            examples = [find_all_literals(row) | {row} & {"null"} for row in find_rows(unit)]
            origin = self.work.origin.get(unit)
            had = self.old.find_claims(origin) if origin else []
            for claim in find_gained(had, self.new.find_claims(unit), _KEYS[0]):
                for example in examples or [claim.literals or unit.literals] if claim.rank else ():
                    new_claim = _NewClaim(claim, claim.literals | example, unit)
                    for key in {*new_claim.values, *(f"name {name}" for name in claim.names)}:
                        if len(same := found.setdefault(key, [])) < _ENOUGH:
                            same.append(new_claim)
        return found

    @cached_property
    def _bodies(self) -> set[tuple[str, tuple[str, ...]]]:
        tests = (unit for source in self.work.new for unit in source.units if unit.is_test)
        return {(unit.scope, unit.tokens[unit.body :]) for unit in tests}

    def is_answered(self, claim: Assertion, successor: Unit | None = None) -> bool:
        """Whether a new claim says as much about the same thing, or on the same values."""
        if not claim.rank:
            return False
        wanted = claim.values - self.prepared
        if not wanted:
            named = (new_claim.claim for name in claim.names for new_claim in self._new_claims.get(f"name {name}", ()))
            return any(is_as_strong(claim, other) for other in named)
        telling = len(wanted) > 1 or any(len(value) > 2 and not value.isdigit() for value in wanted)
        return any(
            wanted <= new_claim.values
            and is_as_strong(claim, new_claim.claim)
            and (telling or new_claim.unit is successor or claim.names & new_claim.claim.names)
            for new_claim in min((self._new_claims.get(value, []) for value in wanted), key=len)
        )

    def is_tried_elsewhere(self, claim: Assertion, old: Unit) -> bool:
        """Whether a new test expects the same error of what only this claim of its test tried, and not its siblings."""
        alike = [one for one in self.old.find_claims(old) if (one.kind, one.errors) == (ClaimKind.RAISES, claim.errors)]
        own = claim.inputs.difference(*(one.inputs for one in alike if one is not claim))
        candidates = self._new_claims.get(min(own), ()) if claim in alike and len(alike) > 1 and own else ()
        new = (new_claim for new_claim in candidates if new_claim.unit not in self.work.origin)
        return any(own <= new_claim.values and is_as_strong(claim, new_claim.claim) for new_claim in new)

    def _is_made_before(self, claim: Assertion, test: Unit) -> bool:
        """Whether the setup of a test makes the claim now."""
        for unit in self.set_up:
            is_fixture = "fixture" in unit.head_text and "autouse" not in unit.head_text
            is_run = unit.name in test.tokens if is_fixture else unit.path == test.path or unit.scope != test.scope
            claims = self.new.find_claims(unit) if is_run else ()
            if any(claim.text == one.text or key(claim) == key(one) for one in claims if one.rank for key in _KEYS[:2]):
                return True
        return False

    def is_fully_covered(self, old: Unit) -> bool:
        """Whether a test was merged into others, split, put into a table, or was there twice."""
        if (old.scope, old.tokens[old.body :]) in self._bodies:
            return True
        had = [claim for claim in self.old.find_claims(old) if claim.rank]
        if not had:
            return any(measure_likeness(old.words, unit.words) > 0.5 for unit in self.tests[:_MAX_TESTS])
        return all(map(self.is_answered, had))

    def is_rewritten(self, old: Unit) -> bool:
        """Whether the behaviour changed, and a new test beside says something else about the same, as strongly."""
        if not self.work.product_changed:
            return False
        strongest = max((claim.rank for claim in self.old.find_claims(old)), default=0)
        beside = (unit for unit in self.tests if unit.path == old.path and unit not in self.work.origin)
        return any(
            max((claim.rank for claim in self.new.find_claims(unit) if not claim.doubt), default=0) >= strongest - 1
            for unit in beside
            if measure_likeness(old.words, unit.words) > _AKIN
        )

    def has_grown(self, old: Unit, new: Unit) -> bool:
        """Whether a test claims more than before, all in all, of code that changed."""
        was, now = (sum(c.rank for c in claims) for claims in (self.old.find_claims(old), self.new.find_claims(new)))
        return self.work.product_changed and now > was

    def find_losses(self, old: Unit, new: Unit) -> Iterator[tuple[Loss, Assertion, Assertion | None]]:
        """What a test, or a helper, no longer claims, and what it claims in its place."""
        before, now = self.old.find_claims(old), self.new.find_claims(new)
        for key in _KEYS:
            before, now = list(find_gained(now, before, key)), list(find_gained(before, now, key))
        known = new.literals.union(self.prepared, new.tokens, *(claim.literals for claim in now))
        for claim in before:
            uncalled = claim.kind is ClaimKind.PASSES and claim.callee not in new.text
            if not claim.is_real or uncalled or self.is_answered(claim, new) or self.is_tried_elsewhere(claim, old):
                continue
            if self._is_made_before(claim, new):
                continue
            other = max(now, key=lambda other: _rate_relation(claim, other), default=None)
            if other is not None and _rate_relation(claim, other):
                loss = _classify_loss(claim, other, known)
                if loss is not None or not claim.literals:
                    now.remove(other)
                if loss is not None:
                    yield loss, claim, other
            elif not any(helper.kind is ClaimKind.CUSTOM for helper in now):
                yield "weakened", claim, None


def _rate_relation(claim: Assertion, other: Assertion) -> int:
    """How surely the other took the claim's place."""
    alike = 2 * (claim.kind is other.kind) + bool(claim.literals & other.literals)
    if has_same_subject(claim, other):
        return 16 + alike
    if names := claim.names & other.names:
        return 4 + min(len(names), 4) + alike
    errors = {claim.kind, other.kind} <= {ClaimKind.RAISES, ClaimKind.FAILS}
    return 4 * errors + (other.kind is ClaimKind.TRIVIAL)


def _classify_loss(claim: Assertion, now: Assertion, known: frozenset[str]) -> Loss | None:
    """What the claim lost when the other took its place; None if nothing. `known` are values that the test still has."""
    is_same_kind = claim.kind is now.kind
    if is_same_kind and claim.kind is ClaimKind.BOOL and claim.detail != now.detail:
        return "changed"
    if is_same_kind and claim.kind is ClaimKind.RAISES and claim.errors != now.errors:
        return _classify_errors(claim.errors, now.errors)
    if not is_as_strong(claim, now) or is_bound_eased(claim, now):
        return "weakened"
    if not is_same_kind or claim.literals <= now.literals or (is_measure(claim) and not is_measure(now)):
        return None
    if not now.literals < claim.literals:
        return "input" if claim.expected == now.expected or not now.expected else "changed"
    if claim.literals <= known:
        return None
    expects_less = now.kind is ClaimKind.EQUAL and bool(now.expected) and now.expected < claim.expected
    return "weakened" if expects_less and has_same_subject(claim, now) else "changed"


def _classify_errors(was: frozenset[str], now: frozenset[str]) -> Loss | None:
    """One more type, or one message less, lets more pass. Fewer types and more messages let less pass."""
    types, messages = split_errors(was)
    now_types, now_messages = split_errors(now)
    if now_messages < messages or (types and not now_types) or (types and types < now_types):
        return "weakened"
    if now_messages >= messages and (not types or now_types <= types):
        return None
    return "changed"
