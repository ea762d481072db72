"""Product code that knows the tests' answers instead of computing them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ralph.core.findings import Finding, Rule
from ralph.core.patterns import regex
from ralph.verify.guards.assertions import all_literals, is_literal, literals_in
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.lexer import is_word, words
from ralph.verify.guards.marks import rows
from ralph.verify.guards.syntax import Tokens, branches, split
from ralph.verify.guards.units import Unit
from ralph.verify.judge_files import is_build_code, is_test_path

_COMMON = frozenset(("0", "1", "2", "10", "100", "", " "))
_SMALL = frozenset(map(str, range(11)))
_WORDLIKE = regex(r"[A-Za-z_][A-Za-z_-]*$")
_WRAPPER = regex(r"\b(?:Ok|Some|Decimal|BigDecimal|new|vec|Arrays|asList|List|of|String|from|to_string|to_owned|into|Promise|resolve|int|string|float64|valueOf|"
                      r"unwrap|bool|Set|Map|Optional|tuple|list|set|i32|i64|u32|u64|f64)\b")  # fmt: skip
_MEASURE = regex(r"(?:len|size|count) \(|.*\. (?:length|size|len|count)\b")
_INPUT = regex(r"(?:\w+ \( )?[\w. ]+(?:\[ \w+ \][\w. ]*)?(?: \( \))?(?: \))?$|[(\[] [\w ,.]+ [)\]]$")
_CASE = regex(r"\bcase ([^:{}=>]+?) (?::|\{|->|=>) (?:return )?([^;{}]+?) (?=[;}])|([(\"\d][^{};=]*?) => (?:return )?([^,;{}]+?) (?=[,;}])")  # fmt: skip
_SCALAR = r'("[^"]*"|\d[\w.]*)'
_TERNARY = regex(rf"[\w.]+ ===? {_SCALAR} \? {_SCALAR} :|{_SCALAR} if [\w. ]+ == {_SCALAR} else")
_PUT = regex(r"\. (?:put|set|insert) \( ([^,();]+) , ([^,();]+) \)")
_IGNORED = words("self cls this mut ref final const readonly")
_SELF = words("self this")
_STUB = regex(r"(?i)not.?implemented|todo|unimplemented|unsupported")


@dataclass(frozen=True)
class Answer:
    """An input that is compared, and the literal that it gets."""

    given: str
    value: str
    line: int
    is_entry: bool = False
    """It stands in a table, not in a branch."""

    @property
    def asked(self) -> set[str]:
        return set(literals_in(self.given))

    @property
    def literals(self) -> set[str]:
        return self.asked | (set(literals_in(self.value)) - _COMMON)

    @property
    def is_plain(self) -> bool:
        """Whether it has only words and small numbers, as a table of the domain might."""
        given = all(_WORDLIKE.match(literal) for literal in self.asked)
        return given and all(_WORDLIKE.match(literal) or literal in _SMALL for literal in literals_in(self.value))

    @property
    def is_telling(self) -> bool:
        """Whether it is too special to be there by chance."""
        special = any(len(literal) > 3 and not _WORDLIKE.match(literal) for literal in self.asked)
        return bool(self.asked - _COMMON) and ((special and not self.is_entry) or bool(self.literals - self.asked))


class _Examples:
    """The inputs and results that tests name, or named before the run, one set of literals for each assertion and row."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self.units = [unit for unit in units if unit.in_tests]

    @cached_property
    def sets(self) -> dict[str, list[frozenset[str]]]:
        found: dict[str, list[frozenset[str]]] = {}
        for unit in self.units:
            named = [claim.literals for claim in unit.assertions] if unit.is_test else []
            for example in {*named, *(all_literals(row) for row in rows(unit))}:
                for literal in example:
                    found.setdefault(literal, []).append(example)
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(word for unit in self.units for word in unit.words)

    @cached_property
    def squeezed(self) -> frozenset[str]:
        """The longer literals, without what a normalisation would take away."""
        return frozenset(_squeezed(literal) for literal in self.sets if len(literal) > 7)

    def have(self, literals: set[str]) -> bool:
        """Whether one example names them all."""
        rarest = max(literals, key=len, default="")
        is_alike = len(rarest) > 7 and len(literals) == 1 and _squeezed(rarest) in self.squeezed
        return is_alike or any(literals <= example for example in self.sets.get(rarest, ()) if literals)


def _squeezed(literal: str) -> str:
    return re.sub(r"[\W_]", "", literal).lower()


def hardcoded_findings(work: Comparison) -> Iterator[Finding]:
    """Answers that the product has learned by heart; code that is new may be tested by what is new beside it."""
    units = [unit for source in (*work.new, *work.unchanged_tests) for unit in source.everything] + work.stale
    created = {unit for unit in work.fresh if unit not in work.origin}
    all_tests, old_tests = _Examples(units), _Examples(unit for unit in units if unit not in created)
    for unit in work.fresh:
        if unit.in_tests or is_test_path(unit.path) or is_build_code(unit.path):
            continue
        before = work.origin.get(unit)
        examples = all_tests if before is not None and unit.name else old_tests
        for line, sentence, warn in (*_learned(unit, before, examples), *_constant(unit, before, examples)):
            yield work.found(Rule.RESULT_HARDCODED, unit.path, line, sentence, warn=warn)


def _learned(unit: Unit, before: Unit | None, examples: _Examples) -> Iterator[tuple[int, str, bool]]:
    """Inputs of tests that are compared with, and answered as the tests expect; a table of words may be of the domain."""
    known = {(answer.given, answer.value) for answer in _answers(before)} if before else set()
    answers = list(_answers(unit))
    telling = [a for a in answers if (a.given, a.value) not in known and a.is_telling]
    hits = [answer for answer in telling if examples.have(answer.literals)]
    share = 1 if any(answer.is_entry for answer in telling) else 0.75
    if hits and len(hits) >= share * len(telling):
        is_added = before is not None and not known
        is_branched = is_added and len(hits) == len(answers) and not any(answer.is_entry for answer in answers)
        is_table = not is_branched and (not is_added or len(answers) > 1) and all(answer.is_plain for answer in answers)
        given, value = hits[0].given[:40], hits[0].value[:40]
        sentence = f"{unit.name or unit.path} answers {given} with {value}, as the tests expect, without computing it."
        yield hits[0].line, sentence, is_table


def _answers(unit: Unit) -> Iterator[Answer]:
    """Everywhere that a literal is answered for a literal: branches, cases, ternaries, tables."""
    for block in branches(unit.tokens, unit.pairs):
        body = " ".join(block.body)
        parts = [[" ".join(side) for side in _compared(part)] for part in split(block.head, "and", "&&", "or", "||")]
        given = [side for part in parts for side in part if _is_value(side) and not any(map(_MEASURE.match, part))]
        inputs = (_INPUT.match(side) for part in parts for side in part if not _is_value(side))
        is_asked = given and all(inputs) and all(len(part) == 2 for part in parts)
        if is_asked and body.startswith("return ") and _is_value(body[7:]):
            each = given if {"or", "||"}.intersection(block.head) else [" , ".join(given)]
            yield from (Answer(one, body[7:], unit.tokens[block.index].line) for one in each)
    found: list[tuple[int, str, str, bool]] = []
    for pattern, order in ((_CASE, (1, 2, 3, 4)), (_TERNARY, (1, 2, 4, 3)), (_PUT, (1, 2, 1, 2))):
        for match in pattern.finditer(unit.text):
            first, second, third, fourth = (match[group] for group in order)
            found.append((match.start(), first or third, second or fourth, pattern is _PUT))
    for opener, closing in unit.pairs.items():
        inside, start = unit.tokens[opener + 1 : closing], unit.starts[opener]
        if unit.tokens[opener] == "{" and len(inside) > 2:
            entries = [split(part, ":") for part in split(inside, ",")]
        elif 2 < len(inside) < 11 and opener and unit.tokens[opener - 1] in ("[", ","):
            entries = [split(inside, ",")]
        else:
            continue
        pairs = (e for e in entries if len(e) == 2 and e[0] and e[0][0][0] in '"([0123456789-')
        found += [(start, " ".join(given), " ".join(value), True) for given, value in pairs]
    for at, given_text, value, is_entry in found:
        if _is_value(given_text) and _is_value(value):
            yield Answer(given_text, value, unit.line_of(at), is_entry)


def _compared(condition: Tokens) -> list[Tokens]:
    """The two sides of an equality."""
    if equals := re.fullmatch(r"(.+?) \. (?:equals|equalsIgnoreCase|eq) \( (.+) \)", " ".join(condition)):
        return [[equals[1]], [equals[2]]]
    return split(condition, "==", "===", "is")


def _is_value(text: str) -> bool:
    plain = re.sub(r"\b(True|False|None|nil|undefined)\b", "0", _WRAPPER.sub("", text.removesuffix(", nil")))
    return is_literal(plain) and bool(re.search(r"[\w\"]|\[ \]|\{ \}", plain))


def _constant(unit: Unit, before: Unit | None, examples: _Examples) -> Iterator[tuple[int, str, bool]]:
    """A body that ignores its input and returns what tests expect."""
    body = unit.body_text.removesuffix("}").strip(" ;")
    value = re.sub(r"^return\b ?", "", body)
    if unit.name in ("__eq__", "equals", "eq") and value in ("True", "true"):
        yield (unit.line, f"{unit.name} in {unit.path} says that everything is equal.", False)
    was_used = _given(before) & {*before.tokens[before.body :]} if before else frozenset()
    is_stub = before is None or bool(_STUB.search(before.text))
    ignores = not (_given(unit) & {*unit.tokens[unit.body :]}) and bool(_given(unit) - _SELF or was_used)
    returns = bool(value) and (body != value or unit.language in ("js", "rust"))
    if not unit.name or unit.name not in examples.names or not ignores or not returns or not (is_stub or was_used):
        return
    expected = examples.have(set(literals_in(value)) - _COMMON)
    if (_is_value(value) and (expected or not is_stub)) or (expected and not is_stub):
        yield (unit.line, f"{unit.name} in {unit.path} ignores its input and returns {value[:60]}, a constant.", False)


def _given(unit: Unit) -> frozenset[str]:
    """What a function is given: its parameters and itself."""
    head = unit.tokens[: unit.body]
    starts = [index for index, token in enumerate(head) if token == unit.name]
    opener = next((i for i in range(starts[-1], len(head)) if head[i] == "("), None) if starts else None
    parts = split(unit.tokens[opener + 1 : unit.pairs[opener]], ",") if opener is not None else []
    named = [[token for token in part if is_word(token) and token not in _IGNORED] for part in parts]
    return frozenset(part[-1 if unit.language == "java" else 0] for part in named if part) | _SELF
