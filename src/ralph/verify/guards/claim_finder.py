"""Finding the claims that a function makes, with their local names resolved, and whether they are sure to be reached."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ralph.core.patterns import regex
from ralph.verify.guards.assertions import Assertion, is_literal
from ralph.verify.guards.claims import Claim, Kind, condition, kind_of, named
from ralph.verify.guards.lexer import Token
from ralph.verify.guards.syntax import (
    Pairs,
    Tokens,
    bindings,
    branch_at,
    branches,
    handlers,
    resolved,
    split,
    stop_at,
    unwrapped,
)

_SUBJECT = regex(r"(expect|Expect|assertThat\w*|expectTypeOf|then)$")
_THROWN = regex(r"assertThat(?:ThrownBy|ExceptionOfType|(\w+Exception))$")
_CUSTOM = regex(r"(assert|check|verify|ensure|validate|must|expect|should|require)[A-Z_]\w*$|verify$")
_FAILING = regex(r"\b(?!e\b|\w*[eE]rr\b)\w+ \. (Error|Errorf|Fatal|Fatalf|Fail|FailNow|fail) \(|(^|[;{} ])(fail|panic) !? ?\(|raise AssertionError|throw new \w*Error \(")  # fmt: skip
_EXPECTED = regex(r'expected = ([\w. ]+?)(?: \. class)? [,)]|should_panic(?: \( expected = ("[^"]*"))?')
_PROPERTIES = frozenset(["true", "false", "null", "undefined", "exist", "empty", "ok", "NaN"])
_LEAVES = regex(r"return (None |null |undefined |true |True |nil |Ok \( \( \) \) )?[;}]")
_ARITHMETIC = regex(r"^(\d+(?:\.\d+)?) ([-+*]) (\d+(?:\.\d+)?)$")
_SIZE = regex(r"\b(len|length|size|count)\b")
_ASSERTERS = ("assert", "require", "Assert", "Assertions")
_DRIVEN = regex(r"parametrize|\. each \(|Source\b|\bfor\b|forEach")


def assertions_in(tokens: Sequence[Token], pairs: Pairs, body: int) -> tuple[Assertion, ...]:
    """The claims of a function, in order; those are told that stand in a branch whose condition nobody claims."""
    finder = _Finder(list(tokens), pairs, body)
    bound = bindings(finder.tokens)[::-1]
    names: dict[str, Tokens] = {}
    found = []
    for index, position, claim in finder.claims():
        while bound and bound[-1][0] < position:
            _, name, value = bound.pop()
            names[name] = value
        text = " ".join(tokens[index : stop_at(tokens, pairs, index)])[:200]
        found.append((index, _placed(claim, tokens[index].line, text, names)))
    chosen_by_rows = _DRIVEN.search(" ".join(token for token in tokens if token[0] != '"'))
    places = list(finder.doubts()) if found and not chosen_by_rows else []
    inside = [[place[2:] for place in places if place[0] < index < place[1]] for index, _ in found]
    firm = [
        side for (_, claim), doubts in zip(found, inside, strict=True) if not doubts for side in claim.sides if side
    ]
    whys = [[why for head, why in doubts if not any(s in head or head in s for s in firm)] for doubts in inside]
    return tuple(replace(claim, doubt=" ".join(why[-1:])) for (_, claim), why in zip(found, whys, strict=True))


def _placed(claim: Claim, line: int, text: str, names: Mapping[str, Tokens]) -> Assertion:
    used = {token: names[token] for side in claim.sides for token in side if token in names}
    scalars = {name: value for name, value in used.items() if len(value) == 1 and is_literal(value[0])}
    sides = tuple(_canonical(resolved(side, names)) for side in claim.sides)
    plain = [_canonical(resolved(side, scalars)) for side in claim.sides]
    kind, was_real = claim.kind, claim.detail == "loosened"
    same = len(sides) > 1 and sides[0] == sides[1] and (not is_literal(sides[0]) or plain[0] == plain[1])
    no_bound = kind is Kind.ORDER and claim.detail == ">=" and plain[-1] == "0" and _SIZE.search(sides[0])
    if no_bound or (same and kind in (Kind.EQUAL, Kind.APPROX)):
        kind, was_real = Kind.TRIVIAL, not is_literal(sides[0])
    elif kind not in (Kind.RAISES, Kind.FAILS, Kind.CUSTOM, Kind.PASSES) and any(plain) and all(map(is_literal, plain)):
        kind = Kind.TRIVIAL
    return Assertion(kind, sides, line, text, claim.detail, claim.tolerance, was_real)


def _canonical(tokens: Tokens) -> str:
    text = " ".join(token for token in tokens if token not in ("await", "&", "mut")).removesuffix(" ;")
    return _ARITHMETIC.sub(_worked_out, re.sub(r"\b(self|this) \. ", "", text))


def _worked_out(found: re.Match[str]) -> str:
    """`2 * 119` and `238` are one."""
    left, right = float(found[1]), float(found[3])
    return f"{left * right if found[2] == '*' else left + right if found[2] == '+' else left - right:.12g}"


@dataclass(frozen=True)
class _Finder:
    tokens: list[str]
    pairs: Pairs
    body: int

    def claims(self) -> Iterator[tuple[int, int, Claim]]:
        """Claims with the token where each begins, and the one up to which names are bound."""
        if expected := _EXPECTED.search(" ".join(self.tokens[: self.body])):
            detail = expected[1] or expected[2] or ""
            yield (0, 0, Claim(Kind.RAISES if detail else Kind.FAILS, (self.tokens[self.body :],), detail))
        for index in range(self.body, len(self.tokens) - 1):
            token, following = self.tokens[index], self.tokens[index + 1]
            found: list[Claim] = []
            position = index
            if token == "assert" and following not in (".", "=", ",", ")"):
                start = index + 1 + (following == "!")
                whole = self.tokens[start : stop_at(self.tokens, self.pairs, start)]
                parts = split(unwrapped(whole), ",")
                is_tuple = following == "(" and len(parts) > 1 and len(split(whole, ",")) == 1
                found = [Claim(Kind.TRIVIAL, (whole,), "loosened")] if is_tuple else condition(parts[0])
            elif token == "if" and (block := branch_at(self.tokens, self.pairs, index)):
                fails, position = _FAILING.search(" ".join(block.body)), block.opener
                found = condition(split(block.head, ";")[-1], negated=True) if fails else []
            elif following == "(" and _SUBJECT.match(token):
                found = self._chain(index)
            elif following in ("(", "!") and (token[0].isalpha() or token[0] == "_"):
                found = self._call(index)
            yield from ((index, position, claim) for claim in found)

    def doubts(self) -> Iterator[tuple[int, int, str, str]]:
        """Where claims begin and end that may not be reached, on what condition, and because of what."""
        blocks = list(branches(self.tokens, self.pairs))
        for block in (*blocks, *handlers(self.tokens, self.pairs)):
            end = self.pairs.get(block.opener, block.opener)
            text = " ".join(self.tokens[block.index - 1 : end + 1])
            is_choice = "else" in (self.tokens[block.index - 1], self._at(end + 1))
            if block.index >= self.body and not is_choice and not _FAILING.search(text):
                yield block.opener, end, _canonical(block.head), "branch"
        for index in range(self.body, len(self.tokens) - 1):
            before, token, after = self.tokens[index - 1 : index + 2]
            if before == "." and token == "catch" and after == "(":
                yield index + 1, self.pairs.get(index + 1, index + 1), "catch", "branch"
            elif token == "return" and self._leaves(index):
                heads = [b.head for b in blocks if b.opener < index < self.pairs.get(b.opener, 0)]
                yield index, len(self.tokens), _canonical(heads[-1]) if heads else "return", "return"

    def _leaves(self, index: int) -> bool:
        """Whether a `return` gives nothing back, and ends the test and no function within."""
        around = [first for first, last in self.pairs.items() if first < index < last and self.tokens[first] == "{"]
        arrows = [first for first in around if self.tokens[first - 1] == "=>"]
        heads = [self.tokens[max(first - 25, self.body) : first] for first in around]
        inner = any({"func", "function", "def"}.intersection(head) and "testing" not in head for head in heads)
        return len(arrows) < 2 and not inner and bool(_LEAVES.match(" ".join(self.tokens[index : index + 6])))

    def _arguments(self, opener: int) -> list[Tokens]:
        inside = self.tokens[opener + 1 : self.pairs.get(opener, opener)]
        return [part for part in split(inside, ",") if part and part not in (["t"], ["s", ".", "T", "(", ")"])]

    def _at(self, index: int) -> str:
        return self.tokens[index] if index < len(self.tokens) else ""

    def _steps(self, index: int) -> Iterator[tuple[str, list[Tokens] | None]]:
        """The names that follow a call, with the arguments of those that are called."""
        at = self.pairs.get(index + 1, index + 1) + 1
        while self._at(at) == ".":
            is_call = self._at(at + 2) == "("
            yield self._at(at + 1), self._arguments(at + 2) if is_call else None
            at = self.pairs.get(at + 2, at + 2) + 1 if is_call else at + 2

    def _chain(self, index: int) -> list[Claim]:
        """`expect(subject).not.toBe(value)`, `Expect(subject).To(Equal(value))`, `assertThat(subject, is(value))`."""
        name, arguments, steps = self._at(index), self._arguments(index + 1), list(self._steps(index))
        if thrown := _THROWN.match(name):
            chained = [value for _, values in steps for value in values or ()]
            return named("throws", [[thrown[1] or "new"], *arguments, *chained])
        if name == "assertThat" and len(arguments) > 1:
            arguments, steps = arguments[-2:], [("Should", arguments[-1:])]
        found: list[Claim] = []
        negated = False
        for step, values in steps:
            negated ^= step in ("not", "NotTo", "ToNot")
            if step in ("To", "NotTo", "ToNot", "Should") and values:
                matcher = values[0]
                while matcher[0] in ("is", "not") and "(" in matcher[2:-1]:
                    negated ^= matcher[0] == "not"
                    matcher = matcher[2:-1]
                step, values = matcher[0], split(matcher[2:-1], ",")
            raising = kind_of(step) is Kind.RAISES and arguments
            subject = [[*arguments[0], ";"]] if raising else arguments[:1]
            if values is not None or step in _PROPERTIES:
                found += named(step, [*subject, *(values or ())], negated)
        known = [claim for claim in found if claim.kind is not Kind.CUSTOM]
        if any(step == "rejects" for step, _ in steps):
            return [replace(c, kind=Kind.RAISES, detail=c.detail or " ".join(c.sides[-1])) for c in known]
        return known or found or named(name, arguments)

    def _call(self, index: int) -> list[Claim]:
        name, before = self._at(index), self.tokens[index - 1]
        opener = index + 1 + (self._at(index + 1) == "!")
        if self._at(opener) not in ("(", "["):
            return []
        base, kind, operands = self.tokens[index - 2] if before == "." else "", kind_of(name), self._arguments(opener)
        is_known = name.lower().lstrip("_").startswith(("assert", "debug_assert", "prop_assert")) or base in _ASSERTERS
        if not is_known and not (base in ("t", "pytest", "is") and kind and name[0].islower() and name != "approx"):
            starts = before in (";", "{", "}", ")", ".", "await", "=>", "?")
            return [Claim(Kind.CUSTOM, tuple(operands), name)] if starts and _CUSTOM.match(name) else []
        closing = self.pairs.get(opener, opener)
        block = next((i for i in range(closing + 1, min(closing + 4, len(self.tokens))) if self.tokens[i] == "{"), None)
        if block is not None and kind is Kind.RAISES and self._at(closing + 1) in ("{", "as"):
            operands = [*operands, [*self.tokens[block + 1 : self.pairs.get(block, block)], ";"]]
        if name.startswith("assert_") and kind in (Kind.CALLED, Kind.CALLED_WITH):
            operands = [[base or "mock"], *operands]
        return named(name, operands)
