"""Assertions: the claims that a function makes, with their place and their local names resolved."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ralph.verify.guards.claims import RANK, Claim, Kind, condition, kind_of, named
from ralph.verify.guards.syntax import (
    Block,
    Pairs,
    Tokens,
    bindings,
    branch_at,
    resolved,
    split,
    statement_end,
    unwrapped,
)

_HINT = re.compile(
    r"(?i)assert|expect|check|verify|ensure|validate|must|should|require|raises|warns|fail|fatal|error|panic|^t$|^is$"
)
_SUBJECT = re.compile(r"(expect|Expect|assertThat\w*|expectTypeOf|then)$")
_CUSTOM = re.compile(r"(assert|check|verify|ensure|validate|must|expect|should|require)[A-Z_]\w*$|verify$")
_FAILING = re.compile(
    r"\b(?!e\b|\w*[eE]rr\b)\w+ \. (Error|Errorf|Fatal|Fatalf|Fail|FailNow|fail) \(|(^|[;{} ])(fail|panic) !? ?\(|raise AssertionError|throw new \w*Error \("
)
_EXPECTED = re.compile(r'expected = ([\w. ]+?)(?: \. class)? [,)]|should_panic(?: \( expected = ("[^"]*"))?')
_PROPERTIES = frozenset(["true", "false", "null", "undefined", "exist", "empty", "ok", "NaN"])
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"|(?<![\w.])(\d[\w.]*(?:[eE]-\d+)?)')
_FIXED = re.compile(r'"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b|\b\d[\w.]*(?:[eE]-\d+)?')

Key = tuple[Kind, frozenset[str], str, float]


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

    @property
    def rank(self) -> int:
        return RANK[self.kind]

    @property
    def is_real(self) -> bool:
        return self.kind is not Kind.TRIVIAL or self.was_real

    @property
    def key(self) -> Key:
        return self.kind, frozenset(self.sides), self.detail, self.tolerance

    @property
    def literals(self) -> frozenset[str]:
        return frozenset(literal for side in (*self.sides, self.detail) for literal in literals_in(side))

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
        yield f"{float(number):g}" if re.fullmatch(r"\d+(\.\d+)?([eE]-?\d+)?", number) else number or quoted


def all_literals(text: str) -> frozenset[str]:
    """The literals of a text, and the pieces of strings that hold several (`@CsvSource({"1, 2"})`)."""
    found = set(literals_in(text))
    pieces = {piece for literal in found for piece in re.split(r"[,|;=\s]+", literal) if piece}
    return frozenset(found | pieces | {f"{float(p):g}" for p in pieces if re.fullmatch(r"\d+(\.\d+)?", p)})


def is_literal(text: str) -> bool:
    """Whether a canonical text names no variable and calls nothing."""
    return not re.search(r"[^\W\d]", _FIXED.sub("", text))


def assertions_in(tokens: Tokens, lines: Sequence[int], pairs: Pairs, body: int) -> tuple[Assertion, ...]:
    """The claims of a function, in order."""
    if not any(map(_HINT.search, {*tokens})):
        return ()
    finder = _Finder(list(tokens), pairs, body)
    bound = bindings(finder.tokens)
    names: dict[str, Tokens] = {}
    scalars: dict[str, Tokens] = {}
    done = 0
    found = []
    for index, position, claim in finder.claims():
        while done < len(bound) and bound[done][0] < position:
            _, name, value = bound[done]
            names[name] = value
            scalars.pop(name, None)
            if len(value) == 1 and is_literal(value[0]):
                scalars[name] = value
            done += 1
        text = " ".join(finder.tokens[index : statement_end(finder.tokens, pairs, index)])[:200]
        found.append(_placed(claim, lines[index], text, names, scalars))
    return tuple(found)


def _placed(
    claim: Claim, line: int, text: str, names: Mapping[str, Tokens], scalars: Mapping[str, Tokens]
) -> Assertion:
    sides = tuple(_canonical(resolved(side, names)) for side in claim.sides)
    plain = [_canonical(resolved(side, scalars)) for side in claim.sides]
    kind, was_real = claim.kind, claim.detail == "loosened"
    same = len(sides) > 1 and sides[0] == sides[1] and (not is_literal(sides[0]) or plain[0] == plain[1])
    if same and kind in (Kind.EQUAL, Kind.APPROX):
        kind, was_real = Kind.TRIVIAL, not is_literal(sides[0])
    elif (
        kind is Kind.ORDER
        and claim.detail == ">="
        and plain[-1] == "0"
        and re.search(r"\b(len|length|size|count)\b", sides[0])
    ):
        kind, was_real = Kind.TRIVIAL, True
    elif kind not in (Kind.RAISES, Kind.FAILS, Kind.CUSTOM, Kind.PASSES) and any(plain) and all(map(is_literal, plain)):
        kind = Kind.TRIVIAL
    return Assertion(kind, sides, line, text, claim.detail, claim.tolerance, was_real)


def _canonical(tokens: Tokens) -> str:
    return " ".join(token for token in tokens if token not in ("await", "&", "mut")).removesuffix(" ;")


@dataclass(frozen=True)
class _Finder:
    tokens: list[str]
    pairs: Pairs
    body: int

    def claims(self) -> Iterator[tuple[int, int, Claim]]:
        """Claims with the token where each begins, and the one up to which names are bound."""
        if expected := _EXPECTED.search(" ".join(self.tokens[: self.body])):
            detail = expected[1] or expected[2] or ""
            yield 0, 0, Claim(Kind.RAISES if detail else Kind.FAILS, (), detail)
        for index in range(self.body, len(self.tokens) - 1):
            token, following = self.tokens[index], self.tokens[index + 1]
            found: list[Claim] = []
            position = index
            if token == "assert" and following not in (".", "=", ",", ")"):
                start = index + 1 + (following == "!")
                operand = unwrapped(self.tokens[start : statement_end(self.tokens, self.pairs, start)])
                found = condition(split(operand, ",")[0])
            elif token == "if" and (block := branch_at(self.tokens, self.pairs, index)):
                found, position = self._opposite(block), block.opener
            elif following == "(" and _SUBJECT.match(token):
                found = self._chain(index)
            elif following in ("(", "!") and (token[0].isalpha() or token[0] == "_"):
                found = self._call(index)
            yield from ((index, position, claim) for claim in found)

    def _opposite(self, block: Block) -> list[Claim]:
        """`if got != want { t.Errorf(...) }` claims the opposite of its condition."""
        return condition(split(block.head, ";")[-1], negated=True) if _FAILING.search(" ".join(block.body)) else []

    def _arguments(self, opener: int) -> list[Tokens]:
        inside = self.tokens[opener + 1 : self.pairs.get(opener, opener)]
        return [part for part in split(inside, ",") if part and part not in (["t"], ["s", ".", "T", "(", ")"])]

    def _at(self, index: int) -> str:
        return self.tokens[index] if index < len(self.tokens) else ""

    def _chain(self, index: int) -> list[Claim]:
        """`expect(subject).not.toBe(value)` and its relatives."""
        arguments = self._arguments(index + 1)
        if self._at(index) == "assertThat" and len(arguments) > 1:
            return _hamcrest(arguments[-2], arguments[-1])
        found: list[Claim] = []
        negated, throws = False, "Thrown" in self._at(index) or "Exception" in self._at(index)
        at = self.pairs.get(index + 1, index + 1) + 1
        while self._at(at) == ".":
            name, opener = self._at(at + 1), at + 2
            values = self._arguments(opener) if self._at(opener) == "(" else []
            negated ^= name in ("not", "NotTo", "ToNot")
            if name in ("To", "NotTo", "ToNot", "Should") and values:
                name, values = values[0][0], split(values[0][2:-1], ",")
            name = "throws" if throws and ("nstanceOf" in name or "hrownBy" in name) else name
            raising = kind_of(name) is Kind.RAISES and arguments and "OfType" not in self._at(index)
            subject = [[*arguments[0], ";"]] if raising else arguments[:1]
            if self._at(opener) == "(" or name in _PROPERTIES:
                found += named(name, [*subject, *values], negated)
            at = self.pairs.get(opener, opener) + 1 if self._at(opener) == "(" else opener
        known = [claim for claim in found if claim.kind is not Kind.CUSTOM]
        return known or found or named(self._at(index), arguments)

    def _call(self, index: int) -> list[Claim]:
        name, before = self._at(index), self.tokens[index - 1]
        opener = index + 1 + (self._at(index + 1) == "!")
        if self._at(opener) not in ("(", "["):
            return []
        base = self.tokens[index - 2] if before == "." else ""
        is_known = name.lower().lstrip("_").startswith(("assert", "debug_assert", "prop_assert")) or base in (
            "assert",
            "require",
            "Assert",
            "Assertions",
        )
        if not is_known and not (
            base in ("t", "pytest", "is") and kind_of(name) and name[0].islower() and name != "approx"
        ):
            starts = before in (";", "{", "}", ")", ".", "await", "=>", "?")
            return [Claim(Kind.CUSTOM, tuple(self._arguments(opener)), name)] if starts and _CUSTOM.match(name) else []
        operands = self._arguments(opener)
        closing = self.pairs.get(opener, opener)
        block = next((i for i in range(closing + 1, min(closing + 4, len(self.tokens))) if self.tokens[i] == "{"), None)
        if block is not None and kind_of(name) is Kind.RAISES and self._at(closing + 1) in ("{", "as"):
            operands = [*operands, [*self.tokens[block + 1 : self.pairs.get(block, block)], ";"]]
        if name.startswith("assert_") and kind_of(name) in (Kind.CALLED, Kind.CALLED_WITH):
            operands = [[base or "mock"], *operands]
        return named(name, operands)


def _hamcrest(subject: Tokens, matcher: Tokens) -> list[Claim]:
    negated = matcher[0] == "not"
    while len(matcher) > 3 and matcher[0] in ("is", "not") and matcher[1] == "(" and "(" in matcher[2:-1]:
        matcher = matcher[2:-1]
    return named(matcher[0], [subject, *split(matcher[2:-1], ",")], negated)
