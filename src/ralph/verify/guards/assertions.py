"""Assertions: claims in their place, the values that they are about, and whether one is as strong as another."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.patterns import regex
from ralph.verify.guards.claims import RANK, Kind, number_in

_LITERAL = regex(r'"((?:[^"\\]|\\.)*)"|(?<![\w.#])(\d[\w.]*(?:[eE]-\d+)?)')
_NUMBER = regex(r"\d+(\.\d+)?([eE]-?\d+)?")
_BETWEEN = regex(r"[,|;=\s]+")
_POSITION = regex(r"(?<=[\w)\]]) \[ \d+ \]|\. (?:get|at|nth) \( \d+ \)")
_FIXED = regex(r'"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b|\b\d[\w.]*(?:[eE]-\d+)?')

Key = tuple[Kind, frozenset[str], str, float, str]


@dataclass(frozen=True)
class Assertion:
    """One claim in its place."""

    kind: Kind
    sides: tuple[str, ...]
    line: int
    text: str
    detail: str = ""
    tolerance: float = 0.0
    was_real: bool = False
    """For a trivial claim: it compares something with itself, or was made true by an `or True`."""
    doubt: str = ""
    """Why it may not be reached: it stands in a branch without another, or after a return."""
    via: str = ""
    """The helper that makes it."""

    @property
    def rank(self) -> int:
        return RANK[self.kind]

    @property
    def is_real(self) -> bool:
        return self.kind is not Kind.TRIVIAL or self.was_real

    @property
    def key(self) -> Key:
        return (self.kind, frozenset(self.sides), self.detail, self.tolerance, self.doubt)

    @property
    def callee(self) -> str:
        """The function that it asks first of all."""
        found = re.search(r"(\w+ \. )*[^\W\d]\w* \(", " ".join(self.sides))
        return found[0] if found else ""

    @property
    def errors(self) -> frozenset[str]:
        """The types and messages of errors that it names; variables tell nothing."""
        return frozenset(w for w in re.findall(r'"[^"]*"|\w+', self.detail) if w[0] == '"' or w[0].isupper())

    @property
    def literals(self) -> frozenset[str]:
        return frozenset(literal for side in (*self.sides, self.detail) for literal in literals_in(side))

    @property
    def values(self) -> frozenset[str]:
        """The literals that are no mere positions."""
        sides = (_POSITION.sub("", side) for side in self.sides)
        return frozenset(literal for side in (*sides, self.detail) for literal in literals_in(side))

    @property
    def inputs(self) -> frozenset[str]:
        """The literals, and whether nothing is given."""
        return self.values | {word for side in self.sides for word in side.split() if word == "null"}

    @property
    def expected(self) -> frozenset[str]:
        """The literals on the side that is nothing but a literal."""
        return frozenset(literal for side in self.sides if is_literal(side) for literal in literals_in(side))

    @property
    def names(self) -> frozenset[str]:
        """The functions and variables that it is about."""
        return frozenset(word for side in self.sides for word in re.findall(r"[^\W\d]\w{2,}", _FIXED.sub("", side)))


def literals_in(text: str) -> Iterator[str]:
    """The literals in a canonical text, without quotes, numbers in one form."""
    for quoted, number in _LITERAL.findall(text):
        yield f"{float(number):g}" if _NUMBER.fullmatch(number) else number or quoted


def all_literals(text: str) -> frozenset[str]:
    """The literals of a text, and the pieces of strings that hold several (`@CsvSource({"1, 2"})`)."""
    found = set(literals_in(text))
    pieces = {piece for literal in found for piece in _BETWEEN.split(literal) if piece}
    return frozenset(found | pieces | {f"{float(piece):g}" for piece in pieces if _NUMBER.fullmatch(piece)})


def is_literal(text: str) -> bool:
    """Whether a canonical text names no variable and calls nothing."""
    return not re.search(r"[^\W\d]", _FIXED.sub("", text))


_CLOSE_ENOUGH, _FINE = 0.01, 1e-5
"""A tolerance that may replace equality, and one below which libraries only differ in their defaults."""
_TIME = regex(r"(?i)time|elapsed|duration|latency|seconds|\bms\b|perf|clock|\bnow\b|deadline")
_MEASURE = regex(r"^(?:len|type|typeof|set|count|size) \( |^Object \. keys \( | \. (?:length|size|count|len)(?: \( \))?$")  # fmt: skip
_NOTHING = regex(r"(?i)is_?(empty|none|null|absent)")
_EMPTY = frozenset(("[ ]", "{ }", '""', "0", "( )", "null"))


def as_strong(claim: Assertion, now: Assertion) -> bool:
    """Whether the second would fail where the first would, as far as their kinds tell."""
    kinds = {claim.kind, now.kind}
    if kinds == {Kind.EQUAL} and is_measure(now) and not is_measure(claim) and same_subject(now, claim, deep=True):
        return False
    if now.doubt and not claim.doubt:
        return False
    if kinds == {Kind.APPROX}:
        return now.tolerance <= max(claim.tolerance * 2, _FINE)
    if kinds == {Kind.RAISES}:
        is_variable = now.detail.islower()
        return is_variable or all(error in now.errors or error.strip('"') in now.text for error in claim.errors)
    if kinds == {Kind.BOOL}:
        return claim.detail == now.detail
    if kinds == {Kind.ORDER}:
        return not bound_eased(claim, now)
    if now.rank >= claim.rank or claim.kind is Kind.CUSTOM or kinds == {Kind.EQUAL, Kind.PATTERN}:
        return True
    if now.kind is Kind.APPROX:
        return now.tolerance <= _CLOSE_ENOUGH
    if now.kind in (Kind.RAISES, Kind.CUSTOM) and claim.literals and claim.literals <= now.literals:
        return True
    if now.kind is Kind.CALLED and "once" in now.text and re.search(r"call_count|called", claim.text):
        return claim.kind is Kind.EQUAL
    was_nothing = claim.kind is Kind.EQUAL and bool(_EMPTY & set(claim.sides))
    is_nothing = now.kind is Kind.BOOL and (now.detail == "false" or bool(_NOTHING.search(now.text)))
    return was_nothing and is_nothing


def bound_eased(claim: Assertion, now: Assertion) -> bool:
    """Whether a bound was moved so that more fits; bounds of time depend on the machine."""
    if {claim.kind, now.kind} != {Kind.ORDER} or len(claim.sides) < 2 or len(now.sides) < 2 or _TIME.search(claim.text):
        return False
    if not claim.detail or claim.detail[0] != now.detail[:1]:
        return False
    was, bound = number_in(claim.sides[-1].split()), number_in(now.sides[-1].split())
    return was is not None and bound is not None and (bound < was if claim.detail[0] == ">" else bound > was)


def is_measure(claim: Assertion) -> bool:
    """Whether it is about the size or the type of something, and not about the thing."""
    return any(map(_MEASURE.search, claim.sides))


def same_subject(claim: Assertion, other: Assertion, *, deep: bool = False) -> bool:
    """Whether the other is about what the claim is about, or more of it; deep: when measures are taken off."""
    subjects = [side for side in claim.sides if side and not is_literal(side)]
    if deep:
        subjects = [_MEASURE.sub("", side).removesuffix(" )") for side in subjects]
    return any(subject == side or f"{subject} " in f"{side} " for subject in subjects for side in other.sides)
