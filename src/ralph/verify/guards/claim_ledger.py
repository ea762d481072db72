"""The ledger: what tests claimed before must be claimed now, by whichever test, as strongly and on the same values.

A refactoring moves claims: to another name, another file, a row of a table, a helper, a fixture. It keeps their values,
so a claim that is gone is looked for by its values among the claims that are new. Only what nobody took over is a loss.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ralph.core.patterns import regex
from ralph.verify.guards.assertions import Assertion, all_literals, as_strong, bound_eased, is_measure, same_subject
from ralph.verify.guards.changes import gained
from ralph.verify.guards.claims import Kind
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.marks import rows
from ralph.verify.guards.syntax import bindings, resolved
from ralph.verify.guards.units import Unit, likeness

_KEYS: tuple[Callable[[Assertion], object], ...] = (
    lambda a: a.key,
    lambda a: (a.kind, a.detail, a.tolerance, a.doubt, a.literals) if a.literals else a.key,
    lambda a: (a.kind, a.detail, a.tolerance, a.doubt, a.expected) if a.expected else a.key,
    lambda a: (a.kind, a.callee) if a.kind is Kind.PASSES else a.key,
)
"""When two claims are one: word by word, then with names changed, then with the same result expected."""

_LONG = 60
"""A longer token names nothing."""
_ENOUGH = 200
"""Heirs that are looked at for one value or name."""
_AKIN = 0.25
"""How much alike a test must be that was written in the place of another."""
RUNS_BEFORE = regex(r"autouse = True|@ Before\w*|\b(setUp\w*|setup_\w+|beforeEach|beforeAll|TestMain)\b")
"""Code that the test runner calls by itself."""

Loss = Literal["weakened", "changed", "input"]
"""What became of a claim that nobody took over."""


@dataclass(frozen=True)
class _Heir:
    """A claim that is new, with the values of one example that it is tried on."""

    claim: Assertion
    values: frozenset[str]
    unit: Unit


class Book:
    """The claims of the tests of one tree, with what helpers claim on their behalf written in their place."""

    def __init__(self, helpers: Sequence[Unit]) -> None:
        self.helpers = {unit.name: unit for unit in helpers if unit.name}
        self._claims: dict[Unit, list[Assertion]] = {}

    def claims(self, unit: Unit, depth: int = 2) -> list[Assertion]:
        if unit not in self._claims:
            helped = list(self._helped(unit, depth)) if depth else []
            spoken = {claim.via for claim in helped}
            self._claims[unit] = [claim for claim in unit.assertions if claim.detail not in spoken] + helped
        return self._claims[unit]

    def _helped(self, unit: Unit, depth: int) -> Iterator[Assertion]:
        if not unit.calls & self.helpers.keys():
            return
        names = {name: value for _, name, value in bindings(unit.tokens)}
        for index in range(unit.body, len(unit.tokens) - 1):
            helper = self.helpers.get(unit.tokens[index])
            if helper is None or helper is unit or unit.tokens[index + 1] != "(":
                continue
            given = " ".join(resolved(unit.tokens[index + 2 : unit.pairs[index + 1]], names))
            for claim in self.claims(helper, depth - 1):
                yield replace(claim, sides=(given, *claim.sides), line=unit.tokens[index].line, via=helper.name)


class Ledger:
    """The claims of both trees."""

    def __init__(self, work: Comparison) -> None:
        helpers = [unit for source in work.new for unit in source.everything if unit.in_tests and not unit.is_test]
        self.work = work
        self.tests = [unit for unit in work.fresh if unit.is_test]
        others = [u for source in work.unchanged_tests for u in source.units if not u.is_test] if self.tests else []
        self.old = Book([*others, *(old for old, _ in work.helper_pairs)])
        self.new = Book([*others, *helpers])
        tests = (unit for source in work.new for unit in source.everything if unit.in_tests)
        named = Counter(token.strip('"') for unit in tests for token in {*unit.tokens} if len(token) < _LONG)
        used = [unit for unit in helpers if named[unit.name] > 1 or not unit.name or RUNS_BEFORE.search(unit.head_text)]
        self.prepared = frozenset(literal for unit in used for literal in unit.literals)
        """The literals of fixtures and helpers."""
        self.tables = [all_literals(row) for unit in used for row in rows(unit)]
        """The rows of tables that stand outside of tests."""

    @cached_property
    def _heirs(self) -> dict[str, list[_Heir]]:
        """The claims that are new, by each of their values and names."""
        found: dict[str, list[_Heir]] = {}
        for unit in self.tests:
            examples = [all_literals(row) | {row} & {"null"} for row in rows(unit)]
            origin = self.work.origin.get(unit)
            had = self.old.claims(origin) if origin else []
            for claim in gained(had, self.new.claims(unit), _KEYS[0]):
                for example in examples or [claim.literals or unit.literals] if claim.rank else ():
                    heir = _Heir(claim, claim.literals | example, unit)
                    for key in {*heir.values, *(f"name {name}" for name in claim.names)}:
                        if len(same := found.setdefault(key, [])) < _ENOUGH:
                            same.append(heir)
        return found

    @cached_property
    def _bodies(self) -> set[tuple[str, tuple[str, ...]]]:
        tests = (unit for source in self.work.new for unit in source.units if unit.is_test)
        return {(unit.scope, unit.tokens[unit.body :]) for unit in tests}

    def answered(self, claim: Assertion, successor: Unit | None = None) -> bool:
        """Whether a new claim says as much about the same thing, or on the same values."""
        wanted = claim.values - self.prepared
        if not claim.rank:
            return False
        if not wanted or any(wanted <= row for row in self.tables):
            named = (heir.claim for name in claim.names for heir in self._heirs.get(f"name {name}", ()))
            is_named = any(as_strong(claim, other) for other in named)
            if is_named or not wanted:
                return is_named
        telling = len(wanted) > 1 or any(len(value) > 2 and not value.isdigit() for value in wanted)
        return any(
            wanted <= heir.values
            and as_strong(claim, heir.claim)
            and (telling or heir.unit is successor or claim.names & heir.claim.names)
            for heir in min((self._heirs.get(value, []) for value in wanted), key=len)
        )

    def tried_elsewhere(self, claim: Assertion, old: Unit) -> bool:
        """Whether a new test expects the same error of what only this claim of its test tried, and not its siblings."""
        alike = [one for one in self.old.claims(old) if (one.kind, one.errors) == (Kind.RAISES, claim.errors)]
        own = claim.inputs.difference(*(one.inputs for one in alike if one is not claim))
        heirs = self._heirs.get(min(own), ()) if claim in alike and len(alike) > 1 and own else ()
        new = (heir for heir in heirs if heir.unit not in self.work.origin)
        return any(own <= heir.values and as_strong(claim, heir.claim) for heir in new)

    def took_all(self, old: Unit) -> bool:
        """Whether a test was merged into others, split, put into a table, or was there twice."""
        if (old.scope, old.tokens[old.body :]) in self._bodies:
            return True
        had = [claim for claim in self.old.claims(old) if claim.rank]
        if not had:
            return any(likeness(old.words, unit.words) > 0.5 for unit in self.tests[:200])
        return all(map(self.answered, had))

    def rewrote(self, old: Unit) -> bool:
        """Whether the behaviour changed, and a new test beside says something else about the same, as strongly."""
        if not self.work.product_changed:
            return False
        strongest = max((claim.rank for claim in self.old.claims(old)), default=0)
        beside = (unit for unit in self.tests if unit.path == old.path and unit not in self.work.origin)
        return any(
            max((claim.rank for claim in self.new.claims(unit) if not claim.doubt), default=0) >= strongest - 1
            for unit in beside
            if likeness(old.words, unit.words) > _AKIN
        )

    def grew(self, old: Unit, new: Unit) -> bool:
        """Whether a test claims more than before, all in all, of code that changed."""
        was, now = (sum(c.rank for c in claims) for claims in (self.old.claims(old), self.new.claims(new)))
        return self.work.product_changed and now > was

    def losses(self, old: Unit, new: Unit) -> Iterator[tuple[Loss, Assertion, Assertion | None]]:
        """What a test, or a helper, no longer claims, and what it claims in its place."""
        before, now = self.old.claims(old), self.new.claims(new)
        for key in _KEYS:
            before, now = list(gained(now, before, key)), list(gained(before, now, key))
        known = new.literals.union(self.prepared, new.tokens, *(claim.literals for claim in now))
        for claim in before:
            uncalled = claim.kind is Kind.PASSES and claim.callee not in new.text
            if not claim.is_real or uncalled or self.answered(claim, new) or self.tried_elsewhere(claim, old):
                continue
            other = max(now, key=lambda other: _relation(claim, other), default=None)
            if other is not None and _relation(claim, other):
                loss = _judged(claim, other, known)
                if loss is not None or not claim.literals:
                    now.remove(other)
                if loss is not None:
                    yield loss, claim, other
            elif not any(helper.kind is Kind.CUSTOM for helper in now):
                yield "weakened", claim, None


def _relation(claim: Assertion, other: Assertion) -> int:
    """How surely the other took the claim's place."""
    alike = 2 * (claim.kind is other.kind) + bool(claim.literals & other.literals)
    if same_subject(claim, other):
        return 16 + alike
    if names := claim.names & other.names:
        return 4 + min(len(names), 4) + alike
    errors = {claim.kind, other.kind} <= {Kind.RAISES, Kind.FAILS}
    return 4 * errors + (other.kind is Kind.TRIVIAL)


def _judged(claim: Assertion, now: Assertion, known: frozenset[str]) -> Loss | None:
    if claim.kind is now.kind is Kind.BOOL and claim.detail != now.detail:
        return "changed"
    if claim.kind is now.kind is Kind.RAISES and (was := claim.errors) != (errors := now.errors):
        widened = was < errors and not all(word[0] == '"' for word in errors - was)
        return "weakened" if errors < was or widened else None if was < errors else "changed"
    if not as_strong(claim, now) or bound_eased(claim, now):
        return "weakened"
    if claim.kind is not now.kind or claim.literals <= now.literals or (is_measure(claim) and not is_measure(now)):
        return None
    if now.literals < claim.literals:
        less = now.kind is Kind.EQUAL and now.expected and now.expected < claim.expected and same_subject(claim, now)
        return None if claim.literals <= known else "weakened" if less else "changed"
    return "input" if claim.expected == now.expected or not now.expected else "changed"
