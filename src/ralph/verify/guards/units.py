"""Units: functions, methods and test cases. How to read them from a file, and which new one continues which old one."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from ralph.core.text import regex
from ralph.verify.changed_files import detect_language, is_collected, is_test_path
from ralph.verify.guards.assertions import Assertion, find_all_literals, find_assertions
from ralph.verify.guards.tokens import (
    Token,
    find_bindings,
    find_stop,
    is_word,
    lex,
    make_token,
    match_brackets,
    word_set,
)

_COMMON = word_set(
    "self this t assert expect it test func function def return const let var if else for in is not and or with as fn new "
    "public void true false True False None null nil assertEquals assertEqual assert_eq equal toBe toEqual pass"
)
_COMMON_WORD = 40
"""If this many units have a word in common, the word says nothing about them."""
_MAX_NAMESAKES, _MAX_TWINS = 20, 8
"""Units that are compared with one that is gone: of the same name, and with the most words in common."""
_LONGEST_HEADER, _LONGEST_SIGNATURE, _LONGEST_TYPE = 60, 40, 30
"""Tokens of the header of a class, of a method's signature after its parameters, and of the type of a function."""
_NAMESAKE, _TWIN = 0.25, 0.6
"""How much alike units must be to be the same: with the same name, and with another."""


@dataclass(frozen=True, eq=False)
class Unit:
    """One function or test case; with an empty name, everything outside of them."""

    path: str
    scope: str
    name: str
    tokens: tuple[Token, ...]
    body: int
    """Where the body begins among the tokens; before it stand decorators and the signature."""
    is_test: bool = False
    collected: bool = False
    in_tests: bool = False
    """Test code in the wide sense: cases, their helpers and fixtures."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """The numbers that the file gives names to."""

    @property
    def line(self) -> int:
        return self.tokens[0].line if self.tokens else 1

    @property
    def language(self) -> str:
        return detect_language(self.path) or ""

    @cached_property
    def expanded_tokens(self) -> tuple[Token, ...]:
        """The tokens with named numbers written out."""
        named = self.constants
        return tuple(make_token(named.get(t, t), t.line) for t in self.tokens) if named else self.tokens

    @cached_property
    def text(self) -> str:
        """The tokens with one blank between them, for patterns."""
        return " ".join(self.tokens)

    @cached_property
    def head_text(self) -> str:
        return " ".join(self.tokens[: self.body])

    @cached_property
    def body_text(self) -> str:
        return " ".join(self.tokens[self.body :])

    @cached_property
    def pairs(self) -> dict[int, int]:
        return match_brackets(self.tokens)

    @cached_property
    def words(self) -> Counter[str]:
        """What it is about: its names and literals, without the common words."""
        return Counter(t for t in self.tokens[self.body :] if (t[0].isalnum() or t[0] in '"_') and t not in _COMMON)

    @cached_property
    def assertions(self) -> tuple[Assertion, ...]:
        return find_assertions(self.expanded_tokens, self.pairs, self.body)

    @cached_property
    def literals(self) -> frozenset[str]:
        return find_all_literals(self.text)

    @cached_property
    def calls(self) -> frozenset[str]:
        follows = zip(self.tokens[self.body :], self.tokens[self.body + 1 :], strict=False)
        return frozenset(word for word, after in follows if after in ("(", "!") and is_word(word))

    @cached_property
    def starts(self) -> list[int]:
        """Where each token begins in `text`."""
        return [0, *accumulate(len(token) + 1 for token in self.tokens)]

    def token_at(self, position: int) -> Token:
        """The token at a place in `text`."""
        return self.tokens[min(bisect_right(self.starts, position), len(self.tokens)) - 1]

    def line_of(self, position: int) -> int:
        """The line of a place in `text`."""
        return self.token_at(position).line if self.tokens else 1


@dataclass(frozen=True)
class SourceFile:
    """One file as units; `outside` holds what no unit has."""

    path: str
    units: tuple[Unit, ...]
    outside: Unit
    comments: tuple[tuple[int, str], ...]
    text: str

    @property
    def everything(self) -> tuple[Unit, ...]:
        return (*self.units, self.outside)


def measure_likeness(one: Counter[str], other: Counter[str]) -> float:
    """How much two units are about the same, from 0 to 1."""
    union = sum((one | other).values())
    return sum((one & other).values()) / union if union else 0.0


def match_units(
    old: Sequence[Unit], new: Sequence[Unit], renames: Mapping[str, str]
) -> Iterator[tuple[Unit, Unit | None]]:
    """Every old unit with the new one that continues it: by place and name, else a fresh one by name or likeness."""
    places: dict[tuple[str, str, str], list[Unit]] = {}
    for unit in new:
        places.setdefault((unit.path, unit.scope, unit.name), []).append(unit)
    taken = {(renames.get(unit.path, unit.path), unit.scope, unit.name) for unit in old}
    holders: dict[str, list[Unit]] = {}
    for unit in (unit for place, units in places.items() if place not in taken for unit in units):
        for word in {*unit.words, f"name {unit.name}"}:
            holders.setdefault(word, []).append(unit)
    seen: Counter[tuple[str, str, str]] = Counter()
    for unit in old:
        place = (renames.get(unit.path, unit.path), unit.scope, unit.name)
        here = places.get(place, [])
        same = next((candidate for candidate in here if candidate.tokens == unit.tokens), None)
        yield (unit, same or (here[min(seen[place], len(here) - 1)] if here else _find_alike(unit, holders)))
        seen[place] += 1


def _find_alike(unit: Unit, holders: Mapping[str, list[Unit]]) -> Unit | None:
    shared = (holder for word in unit.words if len(holder := holders.get(word, [])) <= _COMMON_WORD)
    near = Counter(candidate for holder in shared for candidate in holder)
    candidates = [
        *holders.get(f"name {unit.name}", [])[:_MAX_NAMESAKES],
        *(candidate for candidate, _ in near.most_common(_MAX_TWINS)),
    ]
    best, best_score = None, 0.0
    for candidate in candidates:
        score = measure_likeness(unit.words, candidate.words)
        is_namesake = candidate.name == unit.name
        if score >= (_NAMESAKE if is_namesake else _TWIN) and score + is_namesake > best_score:
            best, best_score = candidate, score + is_namesake
    return best


_DEFINES = word_set("def func fn fun function")
_SCOPES = word_set("class mod impl trait interface object enum")
_CONTROL = word_set("if for while switch catch return with function do else new await synchronized match super this")
_NO_METHOD = word_set(". new => = ( ,")
_CALLS = regex(r"[xf]?(it|test|specify|describe|context|suite)$")
_GROUPS = regex(r"[xf]?(describe|context|suite)$")
_TESTS = {
    "python": regex(r"def test"),
    "go": regex(r"func (Test|Benchmark|Fuzz)([A-Z_0-9]\w*|) \( \w+ \* testing|func Example"),
    "rust": regex(r"# \[ (\w+ :: )?(test|rstest|test_case|quickcheck|proptest|wasm_bindgen_test)\b"),
    "java": regex(r"@ (org \. \w+ \. )*(Test|ParameterizedTest|RepeatedTest|TestFactory|Property|Theory)\b|void test"),
}
_TEST_HANDLE = regex(r"\btesting \. (T|TB|B|F)\b")
"""The type of a parameter that only tests and their helpers have."""


def read_source(path: str, text: str) -> SourceFile | None:
    """The units of a file; None for a language that the guards do not know."""
    language = detect_language(path)
    return _Reader(path, language, text).read() if language else None


@dataclass(frozen=True)
class _Span:
    """A unit or a scope among the tokens of a file."""

    name: str
    body: int
    end: int
    is_scope: bool = False
    is_case: bool = False
    receiver: str = ""


class _Reader:
    def __init__(self, path: str, language: str, text: str) -> None:
        self.path, self.language, self.text = path, language, text
        self.tokens, self.comments = lex(text, language)
        self.pairs = match_brackets(self.tokens)
        self.in_tests, self.is_collected = is_test_path(path), is_collected(path)
        self.scopes: list[tuple[str, int, bool]] = []
        self.constants: dict[str, str] = {}

    def read(self) -> SourceFile:
        units: list[Unit] = []
        outside: list[int] = []
        index = start = 0
        while index < len(self.tokens):
            while self.scopes and self.scopes[-1][1] <= index:
                self.scopes.pop()
            span = self._read_span(index)
            if span is not None and not span.is_scope:
                del outside[len(outside) - (index - start) :]
                units.append(self._make_unit(start, span))
                index = start = min(span.end + 1, len(self.tokens))
                continue
            if span is not None:
                self.scopes.append((span.name, span.end, self._hides_tests(span.name, start, span.body)))
            stop = self._skip_annotation(index)
            outside.extend(range(index, stop))
            if stop == index + 1 and self.tokens[index] in (";", "{", "}"):
                decorates = self.language == "python" and self._at(start) == "@" and self.tokens[index] == ";"
                start = start if decorates else stop
            index = stop
        self.constants.update(self._find_named_numbers({*outside}))
        tokens = tuple(self.tokens[at] for at in outside)
        rest = Unit(
            path=self.path,
            scope="",
            name="",
            tokens=tokens,
            body=0,
            collected=self.is_collected,
            in_tests=self.in_tests,
            constants=self.constants,
        )
        return SourceFile(
            path=self.path, units=tuple(units), outside=rest, comments=tuple(self.comments), text=self.text
        )

    def _find_named_numbers(self, outside: set[int]) -> dict[str, str]:
        """The numbers of a test file that have a name, which is given but once."""
        bound = find_bindings(self.tokens) if self.in_tests else []
        times = Counter(name for _, name, _ in bound)
        single = ((name, value[0]) for at, name, value in bound if at in outside and times[name] == len(value) == 1)
        return {name: value for name, value in single if value[0].isdigit()}

    def _make_unit(self, start: int, span: _Span) -> Unit:
        names = [name for name, _, _ in self.scopes]
        tokens, head = tuple(self.tokens[start : span.end + 1]), " ".join(self.tokens[start : span.body])
        looks = self.language in _TESTS and bool(_TESTS[self.language].search(head))
        is_test = span.is_case or (looks and (self.in_tests or self.language == "rust"))
        helps = self.language == "go" and bool(_TEST_HANDLE.search(head))
        within = self.in_tests or is_test or helps or bool({"tests", "test"}.intersection(names))
        scope = ".".join(filter(None, (*names, span.receiver)))
        collected = self.is_collected and not any(hides for _, _, hides in self.scopes)
        return Unit(
            path=self.path,
            scope=scope,
            name=span.name,
            tokens=tokens,
            body=span.body - start,
            is_test=is_test,
            collected=collected,
            in_tests=within,
            constants=self.constants,
        )

    def _hides_tests(self, name: str, start: int, body: int) -> bool:
        """Whether a class keeps its tests from pytest by its name."""
        bases = " ".join(self.tokens[start:body]).partition("(")[2]
        return self.language == "python" and not name.startswith("Test") and "Test" not in bases

    def _at(self, index: int) -> str:
        return self.tokens[index] if index < len(self.tokens) else ""

    def _skip(self, index: int) -> int:
        """The token after the one at the index, or after the group that it opens."""
        return min(self.pairs.get(index, index) + 1, len(self.tokens))

    def _skip_annotation(self, index: int) -> int:
        if self.tokens[index] == "#" and self._at(index + 1) in ("[", "!"):
            return self._skip(index + 1 + (self._at(index + 1) == "!"))
        if self.tokens[index] == "@" and self.language in ("java", "js") and index + 1 < len(self.tokens):
            stop = index + 2
            while self._at(stop) == ".":
                stop += 2
            return self._skip(stop) if self._at(stop) == "(" else min(stop, len(self.tokens))
        return index + 1

    def _read_span(self, index: int) -> _Span | None:
        token, before = self.tokens[index], self.tokens[index - 1] if index else ";"
        if not is_word(token):
            return None
        if token in _DEFINES:
            return self._read_definition(index)
        if token in _SCOPES and before not in (".", "="):
            return self._read_scope(index)
        if self.language == "js" and before not in (".", "function") and _CALLS.match(token):
            return self._read_test_call(index) or self._read_assignment(index)
        if self.language == "js" and (assigned := self._read_assignment(index)):
            return assigned
        is_method = self.language in ("js", "java") and token not in _CONTROL and before not in _NO_METHOD
        return self._read_method(index) if is_method else None

    def _find_block(self, index: int) -> int | None:
        """The `{` of the body of a signature that continues at the index."""
        at = find_stop(self.tokens, self.pairs, index, ("{", ";", "}", ")"))
        while self._at(at) == "{" and self.tokens[at - 1] in ("struct", "interface"):
            at = find_stop(self.tokens, self.pairs, self._skip(at), ("{", ";", "}", ")"))
        return at if self._at(at) == "{" else None

    def _make_function(self, name: str, index: int, receiver: str = "") -> _Span | None:
        opener = self._find_block(index)
        return None if opener is None else _Span(name, opener + 1, self.pairs[opener], receiver=receiver)

    def _read_definition(self, index: int) -> _Span | None:
        at, receiver = index + 1, ""
        if self._at(at) == "(" and self.language == "go":
            receiver = next((token for token in reversed(self.tokens[at : self._skip(at)]) if is_word(token)), "")
            at = self._skip(at)
        at += self._at(at) == "*"
        return self._make_function(self._at(at), at + 1, receiver) if is_word(self._at(at)) else None

    def _read_scope(self, index: int) -> _Span | None:
        opener = self._find_block(index + 1)
        if opener is None or opener - index > _LONGEST_HEADER:
            return None
        names = [token for token in self.tokens[index + 1 : opener] if is_word(token)]
        name = " ".join(names if self.tokens[index] == "impl" else names[:1])
        return _Span(name, opener, self.pairs[opener], is_scope=True)

    def _read_test_call(self, index: int) -> _Span | None:
        """`it("...", ...)`, also with `.skip`, `.each(table)` and the like."""
        at, last = index + 1, len(self.tokens)
        while self._at(at) in (".", "(") or self._at(at).startswith('"'):
            last = at if self._at(at) == "(" else last
            at = at + 2 if self._at(at) == "." else self._skip(at)
        if not self._at(last + 1).startswith('"'):
            return None
        is_scope = bool(_GROUPS.match(self.tokens[index]))
        name = self._at(last + 1)[1:-1]
        return _Span(name, last + 1, self.pairs[last], is_scope=is_scope, is_case=not is_scope)

    def _read_assignment(self, index: int) -> _Span | None:
        """`name = (...) => ...`, `name = function (...) {...}`, and the same after a colon."""
        name, at = self.tokens[index], index + 2
        if self._at(index + 1) not in ("=", ":"):
            return None
        at += self._at(at) == "async"
        if self._at(at) == "function":
            return self._make_function(name, at + 1)
        at = self._skip(at)
        if self._at(at) == ":":
            at = next((i for i in range(at, at + _LONGEST_TYPE) if self._at(i) in ("=>", ";", "{", "")), at)
        if self._at(at) != "=>":
            return None
        if self._at(at + 1) == "{":
            return _Span(name, at + 2, self.pairs[at + 1])
        return _Span(name, at + 1, find_stop(self.tokens, self.pairs, at + 1, (";", ",", "}", ")")) - 1)

    def _read_method(self, index: int) -> _Span | None:
        after = self._skip(index + 1)
        if self._at(index + 1) != "(" or self._at(after) not in ("throws", ":", "{"):
            return None
        span = self._make_function(self.tokens[index], after)
        return span if span is not None and span.body - after < _LONGEST_SIGNATURE else None


_HAS_ROWS = regex(r"parametrize|\. each \(|Source \(|values")
_CASE_ATTRIBUTE = regex(r"# \[ (?:case|test_case)[^(]*\( (.*?) \) \]")
_NULL_ROW = regex(r"@ Null(AndEmpty)?Source\b")
_MAKES_ROW = regex(r"pytest|param|[aA]rguments")


def find_rows(unit: Unit) -> Counter[str]:
    """The rows of the tables that a unit holds, each in its canonical form."""
    found: Counter[str] = Counter(_CASE_ATTRIBUTE.findall(unit.head_text))
    if _NULL_ROW.search(unit.head_text):
        found["null"] += 1
    driven = bool(_HAS_ROWS.search(unit.head_text))
    for opener, closing in unit.pairs.items():
        parts = []
        at = opener + 1 if closing - opener > 3 else closing
        while at < closing:
            stop = min(find_stop(unit.tokens, unit.pairs, at, (",", ";", ")", "]", "}")), closing)
            parts += [unit.tokens[at:stop]] if stop > at else []
            at = stop + 1
        shapes, is_list = {_read_shape(part) for part in parts}, unit.tokens[opener] in "[{"
        is_table = len(shapes) == 1 and "" not in shapes and (is_list or "row" in shapes)
        if len(parts) > 1 and (
            is_table or (driven and is_list and closing < unit.body) or _is_map(unit, opener, closing)
        ):
            found.update(map(" ".join, parts))
    return found


def _is_map(unit: Unit, opener: int, closing: int) -> bool:
    """Whether a mapping is gone through, entry by entry."""
    start = opener
    if unit.tokens[opener - 1] == "}":
        start = next((first for first, last in unit.pairs.items() if last == opener - 1), opener)
    before, after = " ".join(unit.tokens[max(start - 8, 0) : start]), " ".join(unit.tokens[closing : closing + 3])
    is_struct = before.endswith("struct") and start == opener
    typed = re.search(r"map \[ \w+ \] [\w. \[\]*]+$|Object \. entries \($", before)
    return unit.tokens[opener] == "{" and not is_struct and (bool(typed) or after.startswith("} . items"))


def _read_shape(part: Sequence[str]) -> str:
    """What a row looks like: its bracket, or a call that makes one."""
    if part[0] in "([{":
        return part[0]
    return "row" if part[-1] == ")" and _MAKES_ROW.match(part[0]) else ""
