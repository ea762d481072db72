"""Source text as units: functions, methods and test cases, and what stands outside of them."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from ralph.verify.guards.assertions import Assertion, all_literals, assertions_in
from ralph.verify.guards.changes import is_collected, is_test_path, language_of
from ralph.verify.guards.lexer import lex, partners

_DEFINES = frozenset(["def", "func", "fn", "fun", "function"])
_SCOPES = frozenset(["class", "mod", "impl", "trait", "interface", "object", "enum"])
_CONTROL = frozenset(
    [
        "if",
        "for",
        "while",
        "switch",
        "catch",
        "return",
        "with",
        "function",
        "do",
        "else",
        "new",
        "await",
        "synchronized",
        "match",
        "super",
        "this",
    ]
)
_CALLS = re.compile(r"[xf]?(it|test|specify|describe|context|suite)$|(bench|Deno)$")
_GROUPS = re.compile(r"[xf]?(describe|context|suite)$")
_RUST_TEST = re.compile(r"# \[ (\w+ :: )?(test|rstest|test_case|quickcheck|proptest|wasm_bindgen_test)\b")
_JAVA_TEST = re.compile(r"@ (org \. \w+ \. )*(Test|ParameterizedTest|RepeatedTest|TestFactory|Property|Theory)\b")
_GO_TEST = re.compile(r"(Test|Benchmark|Fuzz|Example)([A-Z_0-9]|$)")


@dataclass(frozen=True, eq=False)
class Unit:
    """One function or test case; with an empty name, everything outside of them."""

    path: str
    scope: str
    name: str
    tokens: tuple[str, ...]
    lines: tuple[int, ...]
    body: int
    """Where the body begins among the tokens; before it stand decorators and the signature."""
    is_test: bool = False
    collected: bool = False
    in_tests: bool = False
    """Test code in the wide sense: cases, their helpers and fixtures."""

    @property
    def line(self) -> int:
        return self.lines[0] if self.lines else 1

    @property
    def language(self) -> str:
        return language_of(self.path) or ""

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
        return partners(self.tokens)

    @cached_property
    def words(self) -> Counter[str]:
        """What it is about: its names and literals, without the common words."""
        return Counter(t for t in self.tokens[self.body :] if (t[0].isalnum() or t[0] in '"_') and t not in _COMMON)

    @cached_property
    def assertions(self) -> tuple[Assertion, ...]:
        return assertions_in(self.tokens, self.lines, self.pairs, self.body)

    @cached_property
    def literals(self) -> frozenset[str]:
        return all_literals(self.text)

    @cached_property
    def calls(self) -> frozenset[str]:
        follows = zip(self.tokens[self.body :], self.tokens[self.body + 1 :], strict=False)
        return frozenset(
            word for word, after in follows if after in ("(", "!") and (word[0].isalpha() or word[0] == "_")
        )

    @cached_property
    def starts(self) -> list[int]:
        """Where each token begins in `text`."""
        return [0, *accumulate(len(token) + 1 for token in self.tokens)]

    def line_of(self, position: int) -> int:
        """The line of a place in `text`."""
        return self.lines[min(bisect_right(self.starts, position) - 1, len(self.lines) - 1)] if self.lines else 1


_COMMON = frozenset(
    [
        "self",
        "this",
        "t",
        "assert",
        "expect",
        "it",
        "test",
        "func",
        "function",
        "def",
        "return",
        "const",
        "let",
        "var",
        "if",
        "else",
        "for",
        "in",
        "is",
        "not",
        "and",
        "or",
        "with",
        "as",
        "fn",
        "new",
        "public",
        "void",
        "true",
        "false",
        "True",
        "False",
        "None",
        "null",
        "nil",
        "assertEquals",
        "assertEqual",
        "assert_eq",
        "equal",
        "toBe",
        "toEqual",
        "pass",
    ]
)


@dataclass(frozen=True)
class Source:
    """One file as units; `outside` holds what no unit has."""

    path: str
    units: tuple[Unit, ...]
    outside: Unit
    comments: tuple[tuple[int, str], ...]
    text: str

    @property
    def everything(self) -> tuple[Unit, ...]:
        return (*self.units, self.outside)


def read(path: str, text: str) -> Source | None:
    """The units of a file; None for a language that the guards do not know."""
    language = language_of(path)
    if language is None:
        return None
    code = lex(text, language)
    return _Reader(path, language, code.tokens, code.lines).read(tuple(code.comments), text)


@dataclass(frozen=True)
class _Span:
    name: str
    body: int
    end: int
    is_scope: bool = False
    is_case: bool = False
    receiver: str = ""


class _Reader:
    """Walks the tokens of one file once, from unit to unit."""

    def __init__(self, path: str, language: str, tokens: list[str], lines: list[int]) -> None:
        self.path, self.language, self.tokens, self.lines = path, language, tokens, lines
        self.pairs = partners(tokens)
        self.scopes: list[tuple[str, int, bool]] = []

    def read(self, comments: tuple[tuple[int, str], ...], text: str) -> Source:
        units: list[Unit] = []
        outside: list[int] = []
        index = start = 0
        while index < len(self.tokens):
            while self.scopes and self.scopes[-1][1] <= index:
                self.scopes.pop()
            span = self._span(index)
            if span is not None and not span.is_scope:
                del outside[len(outside) - (index - start) :]
                units.append(self._unit(start, span))
                index = start = min(span.end + 1, len(self.tokens))
                continue
            if span is not None:
                hidden = self._hides(span.name, start, span.body)
                self.scopes.append((span.name, span.end, hidden))
            stop = self._past_annotation(index)
            outside.extend(range(index, stop))
            if stop == index + 1 and self.tokens[index] in (";", "{", "}"):
                decorates = self.language == "python" and self.tokens[start : start + 1] == ["@"]
                start = start if decorates and self.tokens[index] == ";" else stop
            index = stop
        kept = tuple(self.tokens[i] for i in outside), tuple(self.lines[i] for i in outside)
        in_tests = is_test_path(self.path)
        rest = Unit(self.path, "", "", *kept, 0, in_tests=in_tests, collected=is_collected(self.path))
        return Source(self.path, tuple(units), rest, comments, text)

    def _unit(self, start: int, span: _Span) -> Unit:
        stop = min(span.end + 1, len(self.tokens))
        tokens, lines = tuple(self.tokens[start:stop]), tuple(self.lines[start:stop])
        head = " ".join(tokens[: span.body - start])
        case = span.is_case or self._is_test(span.name, head)
        hidden = any(hides for _, _, hides in self.scopes)
        within = is_test_path(self.path) or case or any(name in ("tests", "test") for name, _, _ in self.scopes)
        scope = ".".join((*(name for name, _, _ in self.scopes), *filter(None, [span.receiver])))
        shown = is_collected(self.path) and not hidden
        return Unit(self.path, scope, span.name, tokens, lines, span.body - start, case, shown, within)

    def _is_test(self, name: str, head: str) -> bool:
        if self.language == "python":
            return name.startswith("test") and is_test_path(self.path)
        if self.language == "go":
            return bool(_GO_TEST.match(name)) and "testing ." in head + " testing ." * name.startswith("Example")
        if self.language == "rust":
            return bool(_RUST_TEST.search(head))
        return self.language == "java" and bool(
            _JAVA_TEST.search(head) or (name.startswith("test") and is_test_path(self.path))
        )

    def _hides(self, name: str, start: int, body: int) -> bool:
        """Whether a class keeps its tests from pytest by its name."""
        if self.language != "python" or self.tokens[body - 1 : body] == []:
            return False
        return not (name.startswith("Test") or "Test" in " ".join(self.tokens[start:body]).partition("(")[2])

    def _past_annotation(self, index: int) -> int:
        token, following = self.tokens[index], self.tokens[index + 1 : index + 2]
        if token == "#" and following in (["["], ["!"]):
            opener = index + 1 + (following == ["!"])
            return min(self.pairs.get(opener, opener) + 1, len(self.tokens))
        if token == "@" and self.language in ("java", "js") and following:
            stop = index + 2
            while self.tokens[stop : stop + 1] == ["."]:
                stop += 2
            return min(self.pairs.get(stop, stop - 1) + 1, len(self.tokens))
        return index + 1

    def _span(self, index: int) -> _Span | None:
        token = self.tokens[index]
        if not (token[0].isalpha() or token[0] in "_$"):
            return None
        before = self.tokens[index - 1] if index else ";"
        if token in _DEFINES:
            return self._defined(index)
        if token in _SCOPES and before not in (".", "="):
            return self._scope(index)
        if self.language == "js" and before not in (".", "function") and _CALLS.match(token):
            return self._called(index) or self._assigned(index)
        if self.language == "js" and (assigned := self._assigned(index)):
            return assigned
        if (
            self.language in ("js", "java")
            and token not in _CONTROL
            and before not in (".", "new", "=>", "=", "(", ",")
        ):
            return self._method(index)
        return None

    def _block(self, index: int) -> int | None:
        """The `{` of the body of a signature that begins at the index."""
        while index < len(self.tokens):
            token = self.tokens[index]
            if token == "{" and self.tokens[index - 1] not in ("struct", "interface"):
                return index
            if token in (";", "}", ")"):
                return None
            index = self.pairs.get(index, index) + 1
        return None

    def _defined(self, index: int) -> _Span | None:
        at = index + 1
        receiver = ""
        if self.tokens[at : at + 1] == ["("] and self.language == "go":
            words = [token for token in self.tokens[at : self.pairs.get(at, at)] if token[0].isalpha()]
            receiver = words[-1] if words else ""
            at = self.pairs.get(at, at) + 1
        at += self.tokens[at : at + 1] == ["*"]
        name = self.tokens[at] if at < len(self.tokens) else "("
        if not (name[0].isalpha() or name[0] in "_$`"):
            return None
        opener = self._block(at + 1)
        return None if opener is None else _Span(name, opener + 1, self.pairs.get(opener, opener), receiver=receiver)

    def _scope(self, index: int) -> _Span | None:
        opener = self._block(index + 1)
        if opener is None or opener - index > 60:
            return None
        names = [token for token in self.tokens[index + 1 : opener] if token[0].isalpha() or token[0] == "_"]
        name = " ".join(names) if self.tokens[index] == "impl" else names[0] if names else ""
        return _Span(name, opener, self.pairs.get(opener, opener), is_scope=True)

    def _called(self, index: int) -> _Span | None:
        """`it("...", ...)`, also with `.skip`, `.each(table)` and the like."""
        at, last = index + 1, None
        while at < len(self.tokens):
            if self.tokens[at] == ".":
                at += 2
            elif self.tokens[at] == "(" or self.tokens[at].startswith('"'):
                last = at if self.tokens[at] == "(" else last
                at = self.pairs.get(at, at) + 1
            else:
                break
        if last is None or not self.tokens[last + 1 : last + 2] or not self.tokens[last + 1].startswith('"'):
            return None
        is_scope = bool(_GROUPS.match(self.tokens[index]))
        return _Span(self.tokens[last + 1][1:-1], last + 1, self.pairs.get(last, last), is_scope, not is_scope)

    def _assigned(self, index: int) -> _Span | None:
        """`name = (...) => ...`, `name = function (...) {...}`, and the same after a colon."""
        at = index + 1
        if self.tokens[at : at + 1] not in (["="], [":"]):
            return None
        at += 1 + (self.tokens[at + 1 : at + 2] == ["async"])
        if self.tokens[at : at + 1] == ["function"]:
            opener = self._block(at + 1)
            return None if opener is None else _Span(self.tokens[index], opener + 1, self.pairs.get(opener, opener))
        at = self.pairs.get(at, at) + 1
        if self.tokens[at : at + 1] == [":"]:
            at = next((i for i in range(at, min(at + 30, len(self.tokens))) if self.tokens[i] in ("=>", ";", "{")), at)
        if self.tokens[at : at + 1] != ["=>"]:
            return None
        at += 1
        if self.tokens[at : at + 1] == ["{"]:
            return _Span(self.tokens[index], at + 1, self.pairs.get(at, at))
        stop = at
        while stop < len(self.tokens) and self.tokens[stop] not in (";", ",", "}", ")"):
            stop = self.pairs.get(stop, stop) + 1
        return _Span(self.tokens[index], at, stop - 1)

    def _method(self, index: int) -> _Span | None:
        opener = index + 1
        if self.tokens[opener : opener + 1] != ["("]:
            return None
        after = self.pairs.get(opener, opener) + 1
        if self.tokens[after : after + 1] in (["throws"], [":"], ["{"]):
            block = self._block(after)
            if block is not None and block - after < 40:
                return _Span(self.tokens[index], block + 1, self.pairs.get(block, block))
        return None


def likeness(one: Counter[str], other: Counter[str]) -> float:
    """How much two units are about the same, from 0 to 1."""
    union = sum((one | other).values())
    return sum((one & other).values()) / union if union else 0.0


def matched(
    old: Sequence[Unit], new: Sequence[Unit], renames: Mapping[str, str], least: float = 0.6
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
        yield unit, same or (here[min(seen[place], len(here) - 1)] if here else _alike(unit, holders, least))
        seen[place] += 1


def _alike(unit: Unit, holders: Mapping[str, list[Unit]], least: float) -> Unit | None:
    shared = (holder for word in unit.words if len(holder := holders.get(word, [])) <= 40)
    near = Counter(candidate for holder in shared for candidate in holder)
    candidates = [*holders.get(f"name {unit.name}", [])[:20], *(candidate for candidate, _ in near.most_common(8))]
    best, best_score = None, 0.0
    for candidate in candidates:
        score = likeness(unit.words, candidate.words)
        needed = 0.25 if candidate.name == unit.name else least
        if score >= needed and score + (candidate.name == unit.name) > best_score:
            best, best_score = candidate, score + (candidate.name == unit.name)
    return best
