"""Whether a test still claims what it claimed: its assertions before against its assertions now."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ralph.verify.guards.assertions import Assertion, is_literal
from ralph.verify.guards.claims import Kind, number_in
from ralph.verify.guards.units import Unit

_CLOSE_ENOUGH = 0.01
_TIME = re.compile(r"(?i)time|elapsed|duration|latency|seconds|\bms\b|perf|clock|\bnow\b|deadline")
_EMPTY = frozenset(("[ ]", "{ }", '""', "0", "( )", "null"))


class Loss(StrEnum):
    """What became of a claim."""

    REMOVED = "removed"
    WEAKENED = "weakened"
    CHANGED = "changed"
    INPUT = "input"


@dataclass(frozen=True)
class Weaker:
    """One claim that lost something."""

    loss: Loss
    before: Assertion
    now: Assertion | None = None


class Helpers:
    """Functions of the test code that assert on behalf of tests."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units: dict[str, Unit] = {unit.name: unit for unit in units}

    def claims(self, unit: Unit, names: frozenset[str] | None = None, depth: int = 2) -> list[Assertion]:
        """The claims of the helpers that a test calls."""
        found: list[Assertion] = []
        for name in sorted((unit.calls if names is None else names) & self._units.keys()):
            helper = self._units[name]
            if helper is not unit:
                found += helper.assertions
                found += self.claims(helper, depth=depth - 1) if depth else []
        return found


def losses(
    old: Unit,
    new: Unit,
    helped: tuple[Sequence[Assertion], Sequence[Assertion]],
    prepared: frozenset[str],
    kept: Callable[[Assertion], bool],
) -> Iterator[Weaker]:
    """What the test no longer claims.

    `helped` are the claims of helpers that it called only before, and only now; `prepared` the literals of fixtures;
    `kept` tells whether another test took a claim over.
    """
    helped_old, helped_new = helped
    before = [*old.assertions, *helped_old]
    now = [*new.assertions, *helped_new]
    before, now = _without_same(before, now, lambda a: a.key)
    before, now = _without_same(
        before, now, lambda a: (a.kind, a.detail, a.tolerance, a.literals) if a.literals else a.key
    )
    before, now = _without_same(
        before, now, lambda a: (a.kind, a.detail, a.tolerance, a.expected) if a.expected else a.key
    )
    before, now = _without_same(before, now, lambda a: (a.kind, _callee(a)) if a.kind is Kind.PASSES else a.key)
    known = new.literals.union(prepared, new.tokens, *(claim.literals for claim in helped_new))
    for claim in before:
        if not claim.is_real or kept(claim) or (claim.kind is Kind.PASSES and _callee(claim) not in new.text):
            continue
        if (claim.kind is Kind.CUSTOM and any(other.rank for other in now)) or _said_otherwise(claim, now):
            continue
        other = max(now, key=lambda other: _relation(claim, other), default=None)
        if other is not None and _relation(claim, other) > 0:
            loss = _judged(claim, other, known)
            if loss is Loss.WEAKENED and _spread(claim, now):
                continue
            now.remove(other) if loss is not None or not claim.literals else None
            if loss is not None:
                yield Weaker(loss, claim, other)
        elif not any(helper.kind is Kind.CUSTOM for helper in now) and not any(
            h.rank >= claim.rank for h in helped_new
        ):
            yield Weaker(Loss.REMOVED, claim)


def _callee(claim: Assertion) -> str:
    """The function that a claim asks first of all."""
    found = re.search(r"(\w+ \. )*[^\W\d]\w* \(", " ".join(claim.sides))
    return found[0] if found else ""


def _said_otherwise(claim: Assertion, now: Sequence[Assertion]) -> bool:
    """Whether a claim as strong, about something else, names the same values."""
    telling = len(claim.literals) > 1 or any(len(literal) > 2 and not literal.isdigit() for literal in claim.literals)
    return telling and any(
        other.rank >= claim.rank
        and claim.literals <= other.literals
        and not _same_subject(claim, other)
        and other.kind is not claim.kind
        for other in now
    )


def _without_same(
    before: list[Assertion], now: list[Assertion], key: Callable[[Assertion], object]
) -> tuple[list[Assertion], list[Assertion]]:
    """Both lists without what they share."""
    shared = Counter(map(key, before)) & Counter(map(key, now))
    result: list[list[Assertion]] = []
    for claims in (before, now):
        left = Counter(shared)
        rest = []
        for claim in claims:
            if left[key(claim)] > 0:
                left[key(claim)] -= 1
            else:
                rest.append(claim)
        result.append(rest)
    return result[0], result[1]


def _relation(claim: Assertion, other: Assertion) -> int:
    """How surely the other took the claim's place."""
    alike = 2 * (claim.kind is other.kind) + bool(claim.literals & other.literals)
    if _same_subject(claim, other):
        return 16 + alike
    if names := claim.names & other.names:
        return 4 + min(len(names), 4) + alike
    errors = {claim.kind, other.kind} <= {Kind.RAISES, Kind.FAILS}
    return 4 * errors + (other.kind is Kind.TRIVIAL)


def _same_subject(claim: Assertion, other: Assertion) -> bool:
    subjects = [side for side in claim.sides if side and not is_literal(side)]
    return any(subject == side or f"{subject} " in f"{side} " for subject in subjects for side in other.sides)


def _spread(claim: Assertion, now: Sequence[Assertion]) -> bool:
    """Whether several claims as strong say together what one said."""
    strong = [
        other
        for other in now
        if other.kind in (Kind.EQUAL, Kind.MEMBER) and other.rank >= claim.rank and claim.names & other.names
    ]
    said = frozenset(literal for other in strong for literal in other.literals)
    return len(strong) > 1 and bool(claim.literals) and claim.literals <= said


def _judged(claim: Assertion, now: Assertion, known: frozenset[str]) -> Loss | None:
    if claim.kind is not now.kind:
        return None if _as_strong(claim, now) else Loss.WEAKENED
    if now.kind is Kind.APPROX and now.tolerance > claim.tolerance * 1.001:
        return Loss.WEAKENED
    if now.kind is Kind.ORDER and _bound_eased(claim, now):
        return None if _TIME.search(claim.text) else Loss.WEAKENED
    if now.kind is Kind.RAISES and (was := _errors(claim)) != (errors := _errors(now)):
        return Loss.WEAKENED if errors < was else Loss.CHANGED
    if now.kind is Kind.BOOL and claim.detail != now.detail:
        return Loss.CHANGED
    if _echoes(claim, now):
        return Loss.WEAKENED
    if claim.literals == now.literals:
        return None
    if now.literals < claim.literals:
        less = now.kind is Kind.EQUAL and now.literals and _same_subject(claim, now)
        return None if claim.literals <= known else Loss.WEAKENED if less else Loss.CHANGED
    if not claim.literals - now.literals:
        return None
    return Loss.INPUT if claim.expected == now.expected or not now.expected else Loss.CHANGED


def _errors(claim: Assertion) -> set[str]:
    """The types and messages of errors that a claim names; variables tell nothing."""
    return {word for word in re.findall(r'"[^"]*"|\w+', claim.detail) if word[0] == '"' or word[0].isupper()}


def _as_strong(claim: Assertion, now: Assertion) -> bool:
    if now.rank >= claim.rank:
        return True
    if now.kind is Kind.APPROX:
        return now.tolerance <= _CLOSE_ENOUGH
    if {claim.kind, now.kind} == {Kind.EQUAL, Kind.PATTERN} or claim.kind is Kind.CUSTOM:
        return True
    if {claim.kind, now.kind} <= {Kind.BOOL, Kind.NOT_EQUAL, Kind.TYPE, Kind.MEMBER} and now.kind is Kind.BOOL:
        return claim.kind is Kind.BOOL
    return (
        claim.kind is Kind.EQUAL and now.kind is Kind.BOOL and bool(_EMPTY & set(claim.sides)) and now.detail == "false"
    )


def _bound_eased(claim: Assertion, now: Assertion) -> bool:
    if len(claim.sides) < 2 or len(now.sides) < 2 or not claim.detail or claim.detail[0] != now.detail[:1]:
        return False
    was, bound = number_in(claim.sides[1].split()), number_in(now.sides[1].split())
    return was is not None and bound is not None and (bound < was if claim.detail[0] == ">" else bound > was)


def _echoes(claim: Assertion, now: Assertion) -> bool:
    """A literal was expected; now the code under test is asked what to expect."""
    if (
        now.kind is not Kind.EQUAL
        or not any(map(is_literal, claim.sides))
        or len(now.sides) < 2
        or any(map(is_literal, now.sides))
    ):
        return False
    calls = [set(re.findall(r"([^\W\d]\w*) \(", side)) for side in now.sides[:2]]
    return bool(calls[0] & calls[1])


def rows(unit: Unit) -> Counter[str]:
    """The rows of the tables that drive a test, each in its canonical form."""
    found: Counter[str] = Counter(re.findall(r"# \[ (?:case|test_case)[^(]*\( (.*?) \) \]", unit.head_text))
    driven = re.search(r"parametrize|\. each \(|Source \(|values", unit.head_text)
    for opener, closing in unit.pairs.items():
        if unit.tokens[opener] not in "[{" or closing - opener < 4:
            continue
        parts = _parts(unit, opener, closing)
        in_head = bool(driven) and closing < unit.body and len(parts) > 1
        if len(parts) > 1 and (
            in_head or (len({_shape(part) for part in parts}) == 1 and _shape(parts[0]) in ("(", "[", "{"))
        ):
            found.update(" ".join(part) for part in parts)
    return found


def _parts(unit: Unit, opener: int, closing: int) -> list[Sequence[str]]:
    parts: list[Sequence[str]] = []
    start = at = opener + 1
    while at < closing:
        at = unit.pairs.get(at, at) + 1
        if at >= closing or unit.tokens[at] in (",", ";"):
            parts.append(unit.tokens[start : min(at, closing)])
            start = at = at + 1
    return [part for part in parts if part]


def _shape(part: Sequence[str]) -> str:
    return (
        part[0]
        if part[0] in "([{"
        else "("
        if part[-1] == ")" and re.match(r"pytest|param|Arguments|of|arguments", part[0])
        else "x"
    )
