"""Assertions: claims in their place, and the values that they are about."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.verify.guards.claims import RANK, Kind

_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"|(?<![\w.#])(\d[\w.]*(?:[eE]-\d+)?)')
_NUMBER = re.compile(r"\d+(\.\d+)?([eE]-?\d+)?")
_BETWEEN = re.compile(r"[,|;=\s]+")
_POSITION = re.compile(r"(?<=[\w)\]]) \[ \d+ \]|\. (?:get|at|nth) \( \d+ \)")
_FIXED = re.compile(r'"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b|\b\d[\w.]*(?:[eE]-\d+)?')

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
    def is_variable(self) -> bool:
        """Whether the error that is expected comes from a table."""
        return self.kind is Kind.RAISES and self.detail.islower()

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
