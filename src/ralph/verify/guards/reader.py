"""Source text as units, by one walk over its tokens."""

from collections import Counter
from dataclasses import dataclass

from ralph.core.patterns import regex
from ralph.verify.guards.changes import is_collected, language_of
from ralph.verify.guards.lexer import is_word, lex, partners, words
from ralph.verify.guards.syntax import bindings, stop_at
from ralph.verify.guards.units import Source, Unit
from ralph.verify.judge_files import is_test_path

_DEFINES = words("def func fn fun function")
_SCOPES = words("class mod impl trait interface object enum")
_CONTROL = words("if for while switch catch return with function do else new await synchronized match super this")
_NO_METHOD = words(". new => = ( ,")
_CALLS = regex(r"[xf]?(it|test|specify|describe|context|suite)$")
_GROUPS = regex(r"[xf]?(describe|context|suite)$")
_TESTS = {
    "python": regex(r"def test"),
    "go": regex(r"func (Test|Benchmark|Fuzz)([A-Z_0-9]\w*|) \( \w+ \* testing|func Example"),
    "rust": regex(r"# \[ (\w+ :: )?(test|rstest|test_case|quickcheck|proptest|wasm_bindgen_test)\b"),
    "java": regex(r"@ (org \. \w+ \. )*(Test|ParameterizedTest|RepeatedTest|TestFactory|Property|Theory)\b|void test"),
}
_TEST_HANDLE = regex(r"\btesting \. (T|TB|B|F)\b")
"""What only the helpers of tests are given."""


def read(path: str, text: str) -> Source | None:
    """The units of a file; None for a language that the guards do not know."""
    language = language_of(path)
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
        self.pairs = partners(self.tokens)
        self.in_tests, self.is_collected = is_test_path(path), is_collected(path)
        self.scopes: list[tuple[str, int, bool]] = []
        self.constants: dict[str, str] = {}

    def read(self) -> Source:
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
                self.scopes.append((span.name, span.end, self._hides(span.name, start, span.body)))
            stop = self._past_annotation(index)
            outside.extend(range(index, stop))
            if stop == index + 1 and self.tokens[index] in (";", "{", "}"):
                decorates = self.language == "python" and self._at(start) == "@" and self.tokens[index] == ";"
                start = start if decorates else stop
            index = stop
        self.constants.update(self._numbers({*outside}))
        tokens = tuple(self.tokens[at] for at in outside)
        rest = Unit(self.path, "", "", tokens, 0, False, self.is_collected, self.in_tests, self.constants)
        return Source(self.path, tuple(units), rest, tuple(self.comments), self.text)

    def _numbers(self, outside: set[int]) -> dict[str, str]:
        """The numbers of a test file that have a name, which is given but once."""
        bound = bindings(self.tokens) if self.in_tests else []
        times = Counter(name for _, name, _ in bound)
        single = ((name, value[0]) for at, name, value in bound if at in outside and times[name] == len(value) == 1)
        return {name: value for name, value in single if value[0].isdigit()}

    def _unit(self, start: int, span: _Span) -> Unit:
        names = [name for name, _, _ in self.scopes]
        tokens, head = tuple(self.tokens[start : span.end + 1]), " ".join(self.tokens[start : span.body])
        looks = self.language in _TESTS and bool(_TESTS[self.language].search(head))
        is_test = span.is_case or (looks and (self.in_tests or self.language == "rust"))
        helps = self.language == "go" and bool(_TEST_HANDLE.search(head))
        within = self.in_tests or is_test or helps or bool({"tests", "test"}.intersection(names))
        scope = ".".join(filter(None, (*names, span.receiver)))
        collected = self.is_collected and not any(hides for _, _, hides in self.scopes)
        body = span.body - start
        return Unit(self.path, scope, span.name, tokens, body, is_test, collected, within, self.constants)

    def _hides(self, name: str, start: int, body: int) -> bool:
        """Whether a class keeps its tests from pytest by its name."""
        bases = " ".join(self.tokens[start:body]).partition("(")[2]
        return self.language == "python" and not name.startswith("Test") and "Test" not in bases

    def _at(self, index: int) -> str:
        return self.tokens[index] if index < len(self.tokens) else ""

    def _past(self, index: int) -> int:
        """The token after the one at the index, or after the group that it opens."""
        return min(self.pairs.get(index, index) + 1, len(self.tokens))

    def _past_annotation(self, index: int) -> int:
        if self.tokens[index] == "#" and self._at(index + 1) in ("[", "!"):
            return self._past(index + 1 + (self._at(index + 1) == "!"))
        if self.tokens[index] == "@" and self.language in ("java", "js") and index + 1 < len(self.tokens):
            stop = index + 2
            while self._at(stop) == ".":
                stop += 2
            return self._past(stop) if self._at(stop) == "(" else min(stop, len(self.tokens))
        return index + 1

    def _span(self, index: int) -> _Span | None:
        token, before = self.tokens[index], self.tokens[index - 1] if index else ";"
        if not is_word(token):
            return None
        if token in _DEFINES:
            return self._defined(index)
        if token in _SCOPES and before not in (".", "="):
            return self._scope(index)
        if self.language == "js" and before not in (".", "function") and _CALLS.match(token):
            return self._called(index) or self._assigned(index)
        if self.language == "js" and (assigned := self._assigned(index)):
            return assigned
        is_method = self.language in ("js", "java") and token not in _CONTROL and before not in _NO_METHOD
        return self._method(index) if is_method else None

    def _block(self, index: int) -> int | None:
        """The `{` of the body of a signature that goes on at the index."""
        at = stop_at(self.tokens, self.pairs, index, ("{", ";", "}", ")"))
        while self._at(at) == "{" and self.tokens[at - 1] in ("struct", "interface"):
            at = stop_at(self.tokens, self.pairs, self._past(at), ("{", ";", "}", ")"))
        return at if self._at(at) == "{" else None

    def _function(self, name: str, index: int, receiver: str = "") -> _Span | None:
        opener = self._block(index)
        return None if opener is None else _Span(name, opener + 1, self.pairs[opener], receiver=receiver)

    def _defined(self, index: int) -> _Span | None:
        at, receiver = index + 1, ""
        if self._at(at) == "(" and self.language == "go":
            receiver = next((token for token in reversed(self.tokens[at : self._past(at)]) if is_word(token)), "")
            at = self._past(at)
        at += self._at(at) == "*"
        return self._function(self._at(at), at + 1, receiver) if is_word(self._at(at)) else None

    def _scope(self, index: int) -> _Span | None:
        opener = self._block(index + 1)
        if opener is None or opener - index > 60:
            return None
        names = [token for token in self.tokens[index + 1 : opener] if is_word(token)]
        name = " ".join(names if self.tokens[index] == "impl" else names[:1])
        return _Span(name, opener, self.pairs[opener], is_scope=True)

    def _called(self, index: int) -> _Span | None:
        """`it("...", ...)`, also with `.skip`, `.each(table)` and the like."""
        at, last = index + 1, len(self.tokens)
        while self._at(at) in (".", "(") or self._at(at).startswith('"'):
            last = at if self._at(at) == "(" else last
            at = at + 2 if self._at(at) == "." else self._past(at)
        if not self._at(last + 1).startswith('"'):
            return None
        is_scope = bool(_GROUPS.match(self.tokens[index]))
        return _Span(self._at(last + 1)[1:-1], last + 1, self.pairs[last], is_scope, not is_scope)

    def _assigned(self, index: int) -> _Span | None:
        """`name = (...) => ...`, `name = function (...) {...}`, and the same after a colon."""
        name, at = self.tokens[index], index + 2
        if self._at(index + 1) not in ("=", ":"):
            return None
        at += self._at(at) == "async"
        if self._at(at) == "function":
            return self._function(name, at + 1)
        at = self._past(at)
        if self._at(at) == ":":
            at = next((i for i in range(at, at + 30) if self._at(i) in ("=>", ";", "{", "")), at)
        if self._at(at) != "=>":
            return None
        if self._at(at + 1) == "{":
            return _Span(name, at + 2, self.pairs[at + 1])
        return _Span(name, at + 1, stop_at(self.tokens, self.pairs, at + 1, (";", ",", "}", ")")) - 1)

    def _method(self, index: int) -> _Span | None:
        after = self._past(index + 1)
        if self._at(index + 1) != "(" or self._at(after) not in ("throws", ":", "{"):
            return None
        span = self._function(self.tokens[index], after)
        return span if span is not None and span.body - after < 40 else None
