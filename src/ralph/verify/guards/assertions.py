"""Assertions: the claims of a function, the values that they are about, and whether one is as strong as another."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ralph.core.text import regex
from ralph.verify.guards.claims import RANK, Claim, ClaimKind, find_kind, read_condition, read_named, read_number
from ralph.verify.guards.tokens import (
    Pairs,
    Token,
    Tokens,
    find_bindings,
    find_branches,
    find_handlers,
    find_stop,
    read_branch,
    split,
    strip_brackets,
    substitute_names,
)

_LONGEST_TEXT = 200
"""Characters of an assertion that are quoted."""
_LONGEST_HEAD = 25
"""Tokens before a block in which the function is named that it belongs to."""
_LITERAL = regex(r'"((?:[^"\\]|\\.)*)"|(?<![\w.#])(\d[\w.]*(?:[eE]-\d+)?)')
_NUMBER = regex(r"\d+(\.\d+)?([eE]-?\d+)?")
_BETWEEN = regex(r"[,|;=\s]+")
_POSITION = regex(r"(?<=[\w)\]]) \[ \d+ \]|\. (?:get|at|nth) \( \d+ \)")
_FIXED = regex(r'"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b|\b\d[\w.]*(?:[eE]-\d+)?')

Key = tuple[ClaimKind, frozenset[str], str, float, str]


@dataclass(frozen=True)
class Assertion:
    """One claim in its place."""

    kind: ClaimKind
    sides: tuple[str, ...]
    line: int
    text: str
    detail: str = ""
    tolerance: float = 0.0
    was_real: bool = False
    """For a trivial claim: it compares something with itself, or was made true by an `or True`."""
    doubt: str = ""
    """Why it may not be reached: it is in a branch without another, or after a return."""
    via: str = ""
    """The helper that makes it."""

    @property
    def rank(self) -> int:
        return RANK[self.kind]

    @property
    def is_real(self) -> bool:
        return self.kind is not ClaimKind.TRIVIAL or self.was_real

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
        return frozenset(literal for side in (*self.sides, self.detail) for literal in find_literals(side))

    @property
    def values(self) -> frozenset[str]:
        """The literals that are not only positions."""
        sides = (_POSITION.sub("", side) for side in self.sides)
        return frozenset(literal for side in (*sides, self.detail) for literal in find_literals(side))

    @property
    def inputs(self) -> frozenset[str]:
        """The literals, and whether nothing is given."""
        return self.values | {word for side in self.sides for word in side.split() if word == "null"}

    @property
    def expected(self) -> frozenset[str]:
        """The literals on the side that is nothing but a literal."""
        return frozenset(literal for side in self.sides if is_literal(side) for literal in find_literals(side))

    @property
    def names(self) -> frozenset[str]:
        """The functions and variables that it is about."""
        return frozenset(word for side in self.sides for word in re.findall(r"[^\W\d]\w{2,}", _FIXED.sub("", side)))


def find_literals(text: str) -> Iterator[str]:
    """The literals in a canonical text, without quotes, numbers in one form."""
    for quoted, number in _LITERAL.findall(text):
        yield f"{float(number):g}" if _NUMBER.fullmatch(number) else number or quoted


def find_all_literals(text: str) -> frozenset[str]:
    """The literals of a text, and the pieces of strings that hold several (`@CsvSource({"1, 2"})`)."""
    found = set(find_literals(text))
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


_TRUTH = {
    "true": frozenset(("Boolean . TRUE", "true", "True")),
    "false": frozenset(("Boolean . FALSE", "false", "False")),
}


def is_as_strong(claim: Assertion, now: Assertion) -> bool:
    """Whether the second claim fails whenever the first does, judging by their kinds."""
    if now.doubt and not claim.doubt:
        return False
    if claim.kind is now.kind:
        return _is_as_strong_of_its_kind(claim, now)
    if now.rank >= claim.rank or claim.kind is ClaimKind.CUSTOM:
        return True
    if now.kind is ClaimKind.BOOL and _TRUTH.get(now.detail, frozenset()) & set(claim.sides):
        return True
    if {claim.kind, now.kind} == {ClaimKind.EQUAL, ClaimKind.PATTERN}:
        return True
    if now.kind is ClaimKind.APPROX:
        return now.tolerance <= _CLOSE_ENOUGH
    if now.kind in (ClaimKind.RAISES, ClaimKind.CUSTOM) and claim.literals and claim.literals <= now.literals:
        return True
    if claim.kind is not ClaimKind.EQUAL:
        return False
    if now.kind is ClaimKind.CALLED:
        return "once" in now.text and bool(re.search(r"call_count|called", claim.text))
    asks_for_nothing = now.detail == "false" or bool(_NOTHING.search(now.text))
    return now.kind is ClaimKind.BOOL and asks_for_nothing and bool(_EMPTY & set(claim.sides))


def _is_as_strong_of_its_kind(claim: Assertion, now: Assertion) -> bool:
    if claim.kind is ClaimKind.EQUAL:
        is_only_measure = is_measure(now) and not is_measure(claim)
        return not (is_only_measure and has_same_subject(now, claim, deep=True))
    if claim.kind is ClaimKind.APPROX:
        return now.tolerance <= max(claim.tolerance * 2, _FINE)
    if claim.kind is ClaimKind.RAISES:
        if now.detail.islower():  # a variable: what it holds is not known
            return True
        types, messages = split_errors(claim.errors)
        now_types, _ = split_errors(now.errors)
        if types < now_types and types:
            return False
        asked = messages if now_types and now_types < types else claim.errors
        return all(error in now.errors or error.strip('"') in now.text for error in asked)
    if claim.kind is ClaimKind.BOOL:
        return claim.detail == now.detail
    if claim.kind is ClaimKind.ORDER:
        return not is_bound_eased(claim, now)
    return True


def split_errors(errors: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The types among some errors, of which one is enough, and the messages, of which each is asked for."""
    messages = frozenset(error for error in errors if error[0] == '"')
    return errors - messages, messages


def is_bound_eased(claim: Assertion, now: Assertion) -> bool:
    """Whether a bound was moved so that more fits; bounds of time depend on the machine."""
    if (
        {claim.kind, now.kind} != {ClaimKind.ORDER}
        or len(claim.sides) < 2
        or len(now.sides) < 2
        or _TIME.search(claim.text)
    ):
        return False
    if not claim.detail or claim.detail[0] != now.detail[:1]:
        return False
    was, bound = read_number(claim.sides[-1].split()), read_number(now.sides[-1].split())
    return was is not None and bound is not None and (bound < was if claim.detail[0] == ">" else bound > was)


def is_measure(claim: Assertion) -> bool:
    """Whether it is about the size or the type of something, and not about the thing."""
    return any(map(_MEASURE.search, claim.sides))


def has_same_subject(claim: Assertion, other: Assertion, *, deep: bool = False) -> bool:
    """Whether the other claim is about the same subject, or more of it. With `deep`, measures such as `len` are ignored."""
    subjects = [side for side in claim.sides if side and not is_literal(side)]
    if deep:
        subjects = [_MEASURE.sub("", side).removesuffix(" )") for side in subjects]
    return any(subject == side or f"{subject} " in f"{side} " for subject in subjects for side in other.sides)


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


def find_assertions(tokens: Sequence[Token], pairs: Pairs, body: int) -> tuple[Assertion, ...]:
    """The claims of a function, in order; those in a branch whose condition no claim checks are in doubt."""
    finder = _Finder(list(tokens), pairs, body)
    bound = find_bindings(finder.tokens)[::-1]
    names: dict[str, Tokens] = {}
    found: list[tuple[int, Assertion]] = []
    for index, position, claim in finder.find_claims():
        while bound and bound[-1][0] < position:
            _, name, value = bound.pop()
            names[name] = value
        text = " ".join(tokens[index : find_stop(tokens, pairs, index)])[:_LONGEST_TEXT]
        found.append((index, _place_claim(claim, tokens[index].line, text, names)))
    chosen_by_rows = _DRIVEN.search(" ".join(token for token in tokens if token[0] != '"'))
    if not found or chosen_by_rows:
        return tuple(claim for _, claim in found)
    return _mark_doubtful(found, list(finder.find_doubts()))


def _mark_doubtful(
    found: Sequence[tuple[int, Assertion]], places: Sequence[tuple[int, int, str, str]]
) -> tuple[Assertion, ...]:
    """The claims, each with the reason why it may not be reached, unless a claim that is reached checks that condition."""
    doubts = [[place[2:] for place in places if place[0] < index < place[1]] for index, _ in found]
    firm: list[str] = []
    for (_, claim), around in zip(found, doubts, strict=True):
        if not around:
            firm += filter(None, claim.sides)
    marked: list[Assertion] = []
    for (_, claim), around in zip(found, doubts, strict=True):
        reasons = [why for head, why in around if not any(side in head or head in side for side in firm)]
        marked.append(replace(claim, doubt=" ".join(reasons[-1:])))
    return tuple(marked)


def _asks_two_objects(one: Sequence[str], other: Sequence[str], names: Mapping[str, Tokens]) -> bool:
    """Whether both sides ask an object of their own, `a.size()` and `b.size()`: objects made alike do not stay alike."""
    differ = [index for index, (left, right) in enumerate(zip(one, other, strict=False)) if left != right]
    return len(one) == len(other) and any(
        one[index] in names and other[index] in names and list(one[index + 1 : index + 2]) == ["."] for index in differ
    )


def _place_claim(claim: Claim, line: int, text: str, names: Mapping[str, Tokens]) -> Assertion:
    used = {token: names[token] for side in claim.sides for token in side if token in names}
    scalars = {name: value for name, value in used.items() if len(value) == 1 and is_literal(value[0])}
    sides = tuple(_canonicalize(substitute_names(side, names)) for side in claim.sides)
    plain = [_canonicalize(substitute_names(side, scalars)) for side in claim.sides]
    kind, was_real = claim.kind, claim.detail == "loosened"
    has_no_bound = kind is ClaimKind.ORDER and claim.detail == ">=" and plain[-1] == "0" and _SIZE.search(sides[0])
    if has_no_bound or (kind in (ClaimKind.EQUAL, ClaimKind.APPROX) and _compares_same(claim, sides, plain, names)):
        kind, was_real = ClaimKind.TRIVIAL, not is_literal(sides[0])
    elif kind not in _ABOUT_CODE and any(plain) and all(map(is_literal, plain)):
        kind = ClaimKind.TRIVIAL
    return Assertion(
        kind=kind,
        sides=sides,
        line=line,
        text=text,
        detail=claim.detail,
        tolerance=claim.tolerance,
        was_real=was_real,
    )


_ABOUT_CODE = (ClaimKind.RAISES, ClaimKind.FAILS, ClaimKind.CUSTOM, ClaimKind.PASSES)
"""Claims about code that runs: they are not trivial although all that they name are literals."""


def _compares_same(claim: Claim, sides: Sequence[str], plain: Sequence[str], names: Mapping[str, Tokens]) -> bool:
    """Whether both sides are the same. Two variables with the same literal in them are not."""
    if len(sides) < 2 or sides[0] != sides[1]:
        return False
    if is_literal(sides[0]) and plain[0] != plain[1]:
        return False
    return not _asks_two_objects(claim.sides[0], claim.sides[1], names)


def _canonicalize(tokens: Tokens) -> str:
    text = " ".join(token for token in tokens if token not in ("await", "&", "mut")).removesuffix(" ;")
    return _ARITHMETIC.sub(_calculate, re.sub(r"\b(self|this) \. ", "", text))


def _calculate(found: re.Match[str]) -> str:
    """`2 * 119` and `238` are one."""
    left, right = float(found[1]), float(found[3])
    results = {"*": left * right, "+": left + right, "-": left - right}
    return f"{results[found[2]]:.12g}"


@dataclass(frozen=True)
class _Finder:
    tokens: list[str]
    pairs: Pairs
    body: int

    def find_claims(self) -> Iterator[tuple[int, int, Claim]]:
        """Claims with the token where each begins, and the one up to which names are bound."""
        if expected := _EXPECTED.search(" ".join(self.tokens[: self.body])):
            detail = expected[1] or expected[2] or ""
            yield (0, 0, Claim(ClaimKind.RAISES if detail else ClaimKind.FAILS, (self.tokens[self.body :],), detail))
        for index in range(self.body, len(self.tokens) - 1):
            token, following = self.tokens[index], self.tokens[index + 1]
            found: list[Claim] = []
            position = index
            if token == "assert" and following not in (".", "=", ",", ")"):
                found = self._read_assert(index)
            elif token == "if" and (block := read_branch(self.tokens, self.pairs, index)):
                position = block.opener
                if _FAILING.search(" ".join(block.body)):
                    found = read_condition(split(block.head, ";")[-1], negated=True)
            elif following == "(" and _SUBJECT.match(token):
                found = self._read_chain(index)
            elif following in ("(", "!") and (token[0].isalpha() or token[0] == "_"):
                found = self._read_call(index)
            for claim in found:
                yield index, position, claim

    def _read_assert(self, index: int) -> list[Claim]:
        """`assert condition, message`. A condition in brackets together with its message is a tuple, which is always true."""
        following = self.tokens[index + 1]
        start = index + 1 + (following == "!")
        whole = self.tokens[start : find_stop(self.tokens, self.pairs, start)]
        parts = split(strip_brackets(whole), ",")
        if following == "(" and len(parts) > 1 and len(split(whole, ",")) == 1:
            return [Claim(ClaimKind.TRIVIAL, (whole,), "loosened")]
        return read_condition(parts[0])

    def find_doubts(self) -> Iterator[tuple[int, int, str, str]]:
        """Where claims begin and end that may not be reached, on what condition, and because of what."""
        blocks = list(find_branches(self.tokens, self.pairs))
        for block in (*blocks, *find_handlers(self.tokens, self.pairs)):
            end = self.pairs.get(block.opener, block.opener)
            text = " ".join(self.tokens[block.index - 1 : end + 1])
            is_choice = "else" in (self.tokens[block.index - 1], self._at(end + 1))
            if block.index >= self.body and not is_choice and not _FAILING.search(text):
                yield block.opener, end, _canonicalize(block.head), "branch"
        for index in range(self.body, len(self.tokens) - 1):
            before, token, after = self.tokens[index - 1 : index + 2]
            if before == "." and token == "catch" and after == "(":
                yield index + 1, self.pairs.get(index + 1, index + 1), "catch", "branch"
            elif token == "return" and self._is_plain_return(index):
                heads = [b.head for b in blocks if b.opener < index < self.pairs.get(b.opener, 0)]
                yield index, len(self.tokens), _canonicalize(heads[-1]) if heads else "return", "return"

    def _is_plain_return(self, index: int) -> bool:
        """Whether a `return` gives nothing back, and ends the test and no function within."""
        around = [first for first, last in self.pairs.items() if first < index < last and self.tokens[first] == "{"]
        arrows = [first for first in around if self.tokens[first - 1] == "=>"]
        heads = [self.tokens[max(first - _LONGEST_HEAD, self.body) : first] for first in around]
        inner = any({"func", "function", "def"}.intersection(head) and "testing" not in head for head in heads)
        return len(arrows) < 2 and not inner and bool(_LEAVES.match(" ".join(self.tokens[index : index + 6])))

    def _read_arguments(self, opener: int) -> list[Tokens]:
        inside = self.tokens[opener + 1 : self.pairs.get(opener, opener)]
        return [part for part in split(inside, ",") if part and part not in (["t"], ["s", ".", "T", "(", ")"])]

    def _at(self, index: int) -> str:
        return self.tokens[index] if index < len(self.tokens) else ""

    def _read_chain_steps(self, index: int) -> Iterator[tuple[str, list[Tokens] | None]]:
        """The names that follow a call, with the arguments of those that are called."""
        at = self.pairs.get(index + 1, index + 1) + 1
        while self._at(at) == ".":
            is_call = self._at(at + 2) == "("
            yield self._at(at + 1), self._read_arguments(at + 2) if is_call else None
            at = self.pairs.get(at + 2, at + 2) + 1 if is_call else at + 2

    def _read_chain(self, index: int) -> list[Claim]:
        """`expect(subject).not.toBe(value)`, `Expect(subject).To(Equal(value))`, `assertThat(subject, is(value))`."""
        name, arguments, steps = self._at(index), self._read_arguments(index + 1), list(self._read_chain_steps(index))
        if thrown := _THROWN.match(name):
            chained = [value for _, values in steps for value in values or ()]
            return read_named("throws", [[thrown[1] or "new"], *arguments, *chained])
        if name == "assertThat" and len(arguments) > 1:
            arguments, steps = arguments[-2:], [("Should", arguments[-1:])]
        found = _read_steps(steps, arguments)
        known = [claim for claim in found if claim.kind is not ClaimKind.CUSTOM]
        if any(step == "rejects" for step, _ in steps):
            return [replace(c, kind=ClaimKind.RAISES, detail=c.detail or " ".join(c.sides[-1])) for c in known]
        return known or found or read_named(name, arguments)

    def _read_call(self, index: int) -> list[Claim]:
        name, before = self._at(index), self.tokens[index - 1]
        opener = index + 1 + (self._at(index + 1) == "!")
        if self._at(opener) not in ("(", "["):
            return []
        base = self.tokens[index - 2] if before == "." else ""
        kind = find_kind(name)
        operands = self._read_arguments(opener)
        if not _is_known_claim(name, base, kind):
            starts = before in (";", "{", "}", ")", ".", "await", "=>", "?")
            return [Claim(ClaimKind.CUSTOM, tuple(operands), name)] if starts and _CUSTOM.match(name) else []
        if kind is ClaimKind.RAISES:
            operands += self._read_block_after(self.pairs.get(opener, opener))
        if name.startswith("assert_") and kind in (ClaimKind.CALLED, ClaimKind.CALLED_WITH):
            operands = [[base or "mock"], *operands]
        return read_named(name, operands)

    def _read_block_after(self, closing: int) -> list[Tokens]:
        """The block of `with pytest.raises(Error) as caught {`, in which the error must occur."""
        if self._at(closing + 1) not in ("{", "as"):
            return []
        for index in range(closing + 1, min(closing + 4, len(self.tokens))):
            if self.tokens[index] == "{":
                return [[*self.tokens[index + 1 : self.pairs.get(index, index)], ";"]]
        return []


def _is_known_claim(name: str, base: str, kind: ClaimKind | None) -> bool:
    """Whether a call is a claim of a known library: `assertEqual(...)`, `assert.equal(...)`, `t.is(...)`."""
    if base in _ASSERTERS or name.lower().lstrip("_").startswith(("assert", "debug_assert", "prop_assert")):
        return True
    return base in ("t", "pytest", "is") and kind is not None and name[0].islower() and name != "approx"


_NEGATIONS = ("not", "NotTo", "ToNot")
_MATCHERS = ("To", "NotTo", "ToNot", "Should")
"""Steps of a chain that are given a matcher."""


def _read_steps(steps: Sequence[tuple[str, list[Tokens] | None]], arguments: list[Tokens]) -> list[Claim]:
    """The claims of the steps that follow `expect(subject)`."""
    found: list[Claim] = []
    negated = False
    for name, values in steps:
        step = name
        negated ^= step in _NEGATIONS
        if step in _MATCHERS and values:
            matcher, is_turned = _unwrap_matcher(values[0])
            negated ^= is_turned
            step, values = matcher[0], split(matcher[2:-1], ",")
        if values is None and step not in _PROPERTIES:
            continue
        subject = arguments[:1]
        if subject and find_kind(step) is ClaimKind.RAISES:
            subject = [[*arguments[0], ";"]]
        found += read_named(step, [*subject, *(values or ())], negated)
    return found


def _unwrap_matcher(matcher: Tokens) -> tuple[Tokens, bool]:
    """The matcher inside of `is(...)` and `not(...)`, and whether these turn it around."""
    negated = False
    while matcher[0] in ("is", "not") and "(" in matcher[2:-1]:
        negated ^= matcher[0] == "not"
        matcher = matcher[2:-1]
    return matcher, negated
