"""What tests are made of beside their claims: marks that keep them from running, tables that drive them, ways to fail."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ralph.core.patterns import regex
from ralph.verify.guards.claims import Kind
from ralph.verify.guards.syntax import stop_at
from ralph.verify.guards.units import Unit

_WAYS = {
    "python": r"@ (?:\w+ \. )*(?:skip|skipif|skipIf|skipUnless|xfail|expectedFailure)\b(?: \( .*?(?= ;))?"
    r"|\b(?:pytest|unittest) \. (?:skip|xfail|importorskip) \(|\bself \. skipTest \(|raise (?:\w+ \. )?SkipTest"
    r"|\bpytestmark = [^;]*\b(?:skip|skipif|xfail)\b[^;]*|__test__ = False|collect_ignore(?:_glob)? (?:= \[ [^\]]|\+=|\. \w+ \()",
    "js": r"\b(?:it|test|describe|context|suite|specify)(?: \. \w+)* \. (?:skip|only|todo|fixme|failing|fails|skipIf|runIf)\b"
    r"|(?<!\. )\b(?:xit|xtest|xdescribe|xcontext|fit|fdescribe)\b(?= [(.])|\bthis \. skip \(|\bpending \( |\bt \. skip \("
    r"|\{ (?:skip|todo|only) : (?:true|\")",
    "go": r"(?:if testing \. Short \( \) \{ |if runtime \. GOOS [^{]*\{ )?\b\w+ \. Skip(?:f|Now)? \(",
    "java": r"@ (?:Disabled\w*|Ignore|EnabledIf\w*|EnabledOn\w*)\b|enabled = false|\bassume(?:True|False|That|NotNull) \(",
    "rust": r"# \[ (?:ignore|cfg_attr \( [^\]]*ignore)[^\]]*|# \[ cfg \( (?!test \) \]|all \( test \) )[^\]]*\](?= (?:# \[ [^\]]*\] )*(?:mod tests?\b|(?:async )?fn))",
}
_PATTERNS = {language: regex(ways) for language, ways in _WAYS.items()}
_ENDS = regex(
    r"\b(?:sys|os|process|System|Runtime)(?: \. \w+ \( \))? \. (?:_?exit|Exit|halt|_exit) \( 0? ?\)|process :: exit \( 0"
    r"|\b(?:if|while) (?:\( )?(?:False|false|0)(?: \))? \{|\bif (?:\( )?(?:False and|false &&)"
)
_ONLY = regex(r"\. only\b|\b(?:fit|fdescribe)\b|only :")
_PLATFORM = regex(r"sys \. platform|os \. name\b|version_info|platform \. system|GOOS|OnOs|OnJre|target_os|\b(?:unix|windows)\b|Short \(")  # fmt: skip
_NEVER = regex(r"(?i)skip|ignore|disabled|enabled=false|todo|pending|\b(xit|xtest|xdescribe|xcontext)\b")
_MUST_FAIL = regex(r"xfail(\((reason|strict|raises|run)=.*)?$|expectedFailure$")
_SOMETIMES = regex(r"(?i)if|unless|importor|only|collect|disabled\w|cfg")
_ERRORS = (Kind.FAILS, Kind.RAISES)


@dataclass(frozen=True)
class Mark:
    """One such mark."""

    label: str
    line: int
    weak: bool = False
    """It holds on some platforms only, or on request."""
    hides_others: bool = False

    @property
    def key(self) -> str:
        """When two marks are one: every framework has its own word for a test that never runs, or that must fail."""
        if _MUST_FAIL.search(self.label):
            return "xfail"
        return "skip" if _NEVER.search(self.label) and not _SOMETIMES.search(self.label) else self.label


def marks(unit: Unit) -> list[Mark]:
    """The marks of a unit, its decorators included."""
    found = []
    for pattern in filter(None, (_PATTERNS.get(unit.language), _ENDS if unit.in_tests else None)):
        for match in pattern.finditer(unit.text):
            weak, hides_others = (bool(_PLATFORM.search(match[0])), bool(_ONLY.search(match[0])))
            found.append(Mark(match[0].replace(" ", ""), unit.line_of(match.start()), weak, hides_others))
    if "# [ should_panic" in unit.head_text and any(claim.kind not in _ERRORS for claim in unit.assertions):
        found.append(Mark("should_panic", unit.line))
    if unit.name == "TestMain" and "m . Run (" not in unit.text:
        found.append(Mark("TestMain without m.Run", unit.line))
    return found


def build_tags(comments: tuple[tuple[int, str], ...]) -> Iterator[Mark]:
    """Go's build constraints, which keep whole files out."""
    for line, text in comments:
        if tag := re.match(r"//(go:build| \+build) (.+)", text):
            weak = bool(re.fullmatch(r"!?(linux|darwin|windows|unix|amd64|arm64|cgo|[ |&!]|go1\.\d+)+", tag[2].strip()))
            yield Mark(text.strip(), line, weak)


_NO_CASE = regex(r"TestMain$|(Benchmark|Example|Fuzz|bench_|test_bench)|.*[bB]enchmark")
_CLAIMS = regex(
    r"_?assert\w*|\w*assert(_\w+|!)?|\w*[eE]xpect\w*|raises\w*|warns|deprecated_call|verify\w*|should\w*|\w*[fF]ail\w*|[fF]atal\w*|Errorf?|panic|throws?|"
    r"raise|AssertionError|unreachable|_?(require|ensure|validate|check|must)([A-Z_]\w*)?|\w*[sS]napshot\w*|approve\w*|[tT]imeout|benchmark|compare\w*|(to|not)?[mM]atch\w*"
)
"""Words of assertions, of helpers that make them, and of results that a test expects by a mark."""
_IN = {
    "python": regex(r"given"),
    "rust": regex(r"unwrap\w*|\?|prop_\w+|pass|compile_fail"),
    "js": regex(r"(get|find)(All)?By\w+|cy|waitFor\w*|page|t"),
    "java": regex(r"andExpect\w*|doesNot\w+|then\w*|await\w*|StepVerifier"),
}
"""Words that fail by themselves, by language."""
_HANDED_ON = regex(r"([^\W\d]\w*) \( (?:t|tb|s \. T \( \)) [,)]")


def is_hollow(unit: Unit, helpers: Collection[str]) -> bool:
    """Whether a test without claims has no other way to fail either: Go's may hand themselves to helpers not known here."""
    if _NO_CASE.match(unit.name) or "# [ bench" in unit.head_text:
        return False
    own = _IN.get(unit.language)
    if any(_CLAIMS.fullmatch(token) or (own and own.fullmatch(token)) for token in {*unit.tokens} - {unit.name}):
        return False
    handed = _HANDED_ON.findall(unit.body_text) if unit.language == "go" else ()
    return all(name in helpers for name in handed)


_DRIVEN = regex(r"parametrize|\. each \(|Source \(|values")
_CASES = regex(r"# \[ (?:case|test_case)[^(]*\( (.*?) \) \]")
_NOTHING = regex(r"@ Null(AndEmpty)?Source\b")
_MAKES_ROW = regex(r"pytest|param|[aA]rguments")


def rows(unit: Unit) -> Counter[str]:
    """The rows of the tables that a unit holds, each in its canonical form."""
    found: Counter[str] = Counter(_CASES.findall(unit.head_text))
    found["null"] += bool(_NOTHING.search(unit.head_text))
    driven = bool(_DRIVEN.search(unit.head_text))
    for opener, closing in unit.pairs.items():
        parts = []
        at = opener + 1 if closing - opener > 3 else closing
        while at < closing:
            stop = min(stop_at(unit.tokens, unit.pairs, at, (",", ";", ")", "]", "}")), closing)
            parts += [unit.tokens[at:stop]] if stop > at else []
            at = stop + 1
        shapes, is_list = {_shape(part) for part in parts}, unit.tokens[opener] in "[{"
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


def _shape(part: Sequence[str]) -> str:
    """What a row looks like: its bracket, or a call that makes one."""
    if part[0] in "([{":
        return part[0]
    return "row" if part[-1] == ")" and _MAKES_ROW.match(part[0]) else ""
