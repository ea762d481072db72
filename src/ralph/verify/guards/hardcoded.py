"""Product code that knows the tests' answers instead of computing them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.assertions import all_literals, is_literal, literals_in
from ralph.verify.guards.changes import LARGEST, finding, is_build_file, is_test_path
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.strength import rows
from ralph.verify.guards.syntax import Tokens, branches, split
from ralph.verify.guards.units import Unit, read

_COMMON = frozenset(("0", "1", "2", "10", "100", "", " "))
_SMALL = frozenset(map(str, range(11)))
_WORDLIKE = re.compile(r"[A-Za-z_][A-Za-z_-]*$")
_WRAPPER = re.compile(r"\b(?:Ok|Some|Decimal|BigDecimal|new|vec|Arrays|asList|List|of|String|from|to_string|to_owned|into|Promise|resolve|int|string|float64|valueOf|"
                      r"unwrap|bool|Set|Map|Optional|tuple|list|set|i32|i64|u32|u64|f64)\b")  # fmt: skip
_INPUT = re.compile(r"(?:\w+ \( )?[\w. ]+(?: \( \))?(?: \))?$|[(\[] [\w ,.]+ [)\]]$")
_CASE = re.compile(
    r"\bcase ([^:{}=>]+?) (?::|\{|->|=>) (?:return )?([^;{}]+?) (?=[;}])|([(\"\d][^{};=]*?) => (?:return )?([^,;{}]+?) (?=[,;}])"
)
_TERNARY = re.compile(
    r"([\w.]+) ===? (\"[^\"]*\"|\d[\w.]*) \? (\"[^\"]*\"|\d[\w.]*) :|(\"[^\"]*\"|\d[\w.]*) if [\w. ]+ == (\"[^\"]*\"|\d[\w.]*) else"
)
_PUT = re.compile(r"\. (?:put|set|insert) \( ([^,();]+) , ([^,();]+) \)")
_STUB = re.compile(r"(?i)not.?implemented|todo|unimplemented|unsupported")
_TEST_DATA = re.compile(r'"[^"]*(?:^|(?<=["/.]))(?:tests?|__tests__|specs?|testdata|__snapshots__|__fixtures__)/[^"]*"|"[^"]*fixtures?/[^"]*expected[^"]*"|"[^"]*(?:test_\w+\.py|_test\.go|\.(?:test|spec)\.[jt]sx?|Test\.java)[^"]*"'
                        r'|\bfrom tests?(?: \. \w+)* import\b|Path \( "tests?" \)|/ "tests?" /|join \( [^)]*"tests?"')  # fmt: skip
_READS = re.compile(
    r"(?i)\b(open|read\w*|load\w*|import|require|include_str|include_bytes|import_module|get_?resource\w*|files)\b"
)


@dataclass(frozen=True)
class Answer:
    """An input that is compared, and the literal that it gets."""

    given: str
    value: str
    line: int


class _Examples:
    """The inputs and results that tests name, one set of literals for each assertion or table row."""

    def __init__(self, work: Comparison) -> None:
        self._work = work

    @cached_property
    def units(self) -> list[Unit]:
        others = (
            read(path, text)
            for path, text in self._work.unchanged.items()
            if is_test_path(path) and len(text) <= LARGEST
        )
        sources = [*self._work.new, *(source for source in others if source)]
        return [unit for source in sources for unit in source.everything if unit.in_tests]

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
    def called(self) -> frozenset[str]:
        return frozenset(word for unit in self.units for word in unit.words)

    def name(self, answer: Answer) -> bool:
        """Whether a test gives this input and expects this result."""
        wanted = set(literals_in(answer.given)) | (set(literals_in(answer.value)) - _COMMON)
        first = next(iter(sorted(wanted, key=len, reverse=True)), None)
        return first is not None and any(wanted <= example for example in self.sets.get(first, ()))


def hardcoded_findings(work: Comparison) -> Iterator[Finding]:
    """Answers that the product has learned by heart."""
    examples = _Examples(work)
    for unit in work.fresh:
        before = work.origin.get(unit)
        if not (unit.in_tests or is_test_path(unit.path) or is_build_file(unit.path)):
            yield from _learned(work, unit, before, examples)
            yield from _constant(unit, before, examples)
            for match in _TEST_DATA.finditer(unit.text):
                if _READS.search(unit.text) and (before is None or match[0] not in before.text):
                    line = unit.line_of(match.start())
                    sentence = f"{unit.name or unit.path} reads the tests' own data, {match[0][:60]}."
                    yield finding(Rule.RESULT_HARDCODED, unit.path, line, sentence, work.excerpt(unit.path, line))


def _learned(work: Comparison, unit: Unit, before: Unit | None, examples: _Examples) -> Iterator[Finding]:
    known = {(answer.given, answer.value) for answer in _answers(before)} if before else set()
    everything = list(_answers(unit))
    answers = [answer for answer in everything if (answer.given, answer.value) not in known]
    telling = [answer for answer in answers if set(literals_in(answer.given)) - _COMMON]
    hits = [answer for answer in telling if examples.name(answer)]
    if not hits or len(hits) < 0.75 * len(telling):
        return
    words = all(_WORDLIKE.match(literal) for answer in everything for literal in literals_in(answer.given))
    small = all(
        _WORDLIKE.match(value) or value in _SMALL for answer in everything for value in literals_in(answer.value)
    )
    table = words and small and (before is None or bool(known) or len(everything) > 1)
    sentence = f"{unit.name or unit.path} answers {hits[0].given[:40]} with {hits[0].value[:40]}, as the tests expect, without computing it."
    yield finding(
        Rule.RESULT_HARDCODED, unit.path, hits[0].line, sentence, work.excerpt(unit.path, hits[0].line), warn=table
    )


def _answers(unit: Unit) -> Iterator[Answer]:
    for block in branches(unit.tokens, unit.pairs):
        value = " ".join(block.body).removeprefix("return ")
        parts = [_compared(part) for part in split(block.head, "and", "&&")]
        given = [" ".join(side) for part in parts for side in part if _is_value(" ".join(side))]
        asked = [" ".join(side) for part in parts for side in part if not _is_value(" ".join(side))]
        if (
            value != " ".join(block.body)
            and _is_value(value)
            and given
            and all(map(_INPUT.match, asked))
            and all(len(p) == 2 for p in parts)
        ):
            yield Answer(" , ".join(given), value, unit.lines[block.index])
    text = unit.text
    for match in _CASE.finditer(text):
        yield from _pair(unit, match.start(), match[1] or match[3], match[2] or match[4])
    for match in _TERNARY.finditer(text):
        yield from _pair(unit, match.start(), match[2] or match[5], match[3] or match[4])
    for match in _PUT.finditer(text):
        yield from _pair(unit, match.start(), match[1], match[2])
    for opener, closing in unit.pairs.items():
        if (
            unit.tokens[opener] in "[("
            and 4 <= closing - opener < 12
            and unit.tokens[opener - 1 : opener] in (("[",), (",",))
        ):
            sides = split(unit.tokens[opener + 1 : closing], ",")
            if len(sides) == 2:
                yield from _pair(unit, unit.starts[opener], " ".join(sides[0]), " ".join(sides[1]))
        if unit.tokens[opener] == "{" and closing - opener > 3:
            for part in split(unit.tokens[opener + 1 : closing], ","):
                sides = split(part, ":")
                if len(sides) == 2 and all(sides) and sides[0][0][0] in '"([0123456789-':
                    yield from _pair(unit, unit.starts[opener], " ".join(sides[0]), " ".join(sides[1]))


def _compared(condition: Tokens) -> list[Tokens]:
    """The two sides of an equality."""
    if equals := re.fullmatch(r"(.+?) \. (?:equals|equalsIgnoreCase|eq) \( (.+) \)", " ".join(condition)):
        return [equals[1].split(" ") if equals[1][0] != '"' else [equals[1]], [equals[2]]]
    return split(condition, "==", "===", "is")


def _pair(unit: Unit, position: int, given: str, value: str) -> Iterator[Answer]:
    if _is_value(given) and _is_value(value):
        yield Answer(given, value, unit.line_of(position))


def _is_value(text: str) -> bool:
    plain = re.sub(r", nil$", "", text)
    return (
        bool(plain)
        and is_literal(re.sub(r"\b(True|False|None|nil|undefined)\b", "0", _WRAPPER.sub("", plain)))
        and bool(re.search(r"[\w\"]|\[ \]|\{ \}", plain))
    )


def _constant(unit: Unit, before: Unit | None, examples: _Examples) -> Iterator[Finding]:
    """A body that ignores its input and returns what tests expect."""
    body = unit.body_text.removesuffix("}").strip(" ;")
    parameters = _parameters(unit)
    if before is not None and {"self", "this"} & {*before.tokens[before.body :]}:
        parameters |= {"self", "this"}
    value = re.sub(r"^return\b ?", "", body)
    if unit.name in ("__eq__", "equals", "eq") and re.fullmatch(r"[Tt]rue", value):
        yield finding(
            Rule.RESULT_HARDCODED,
            unit.path,
            unit.line,
            f"{unit.name} in {unit.path} says that everything is equal.",
            body,
        )
        return
    if (
        not unit.name
        or not parameters
        or parameters & {*unit.tokens[unit.body :]}
        or not value
        or (body == value and unit.language in ("python", "go", "java"))
    ):
        return
    constants = set(literals_in(value)) - _COMMON
    computed = (
        before is not None
        and not _STUB.search(before.text)
        and bool((_parameters(before) | {"self", "this"}) & {*before.tokens[before.body :]})
    )
    plain = _is_value(value)
    if before is not None and not computed and not _STUB.search(before.text):
        return
    expected = bool(constants) and any(
        constants <= example for literal in constants for example in examples.sets.get(literal, ())
    )
    if unit.name in examples.called and ((computed and plain) or (expected and (plain or computed))):
        sentence = f"{unit.name} in {unit.path} ignores its input and returns {value[:60]}, a constant."
        yield finding(Rule.RESULT_HARDCODED, unit.path, unit.line, sentence, body)


def _parameters(unit: Unit) -> frozenset[str]:
    """The names that a function is given, itself aside."""
    head = unit.head_text
    inside = head[head.rfind(f"{unit.name} (") :] if f"{unit.name} (" in head else head
    return frozenset(
        re.findall(
            r"(?:^|[(,] |mut |\.\.\. |\* )([^\W\d]\w*)(?= [:,)=]| \w+ [,)]|[ \w.<>*\[\]]+[,)])",
            inside.partition("->")[0],
        )
    ) | frozenset(re.findall(r"([^\W\d]\w*) [,)]", inside.partition("->")[0])) - {
        "self",
        "cls",
        "this",
        unit.name,
        "int",
        "string",
        "str",
        "error",
        "number",
        "bool",
        "i32",
        "void",
    }
