"""Marks that keep a test from running or from failing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
_PATTERNS = {language: re.compile(ways) for language, ways in _WAYS.items()}
_ENDS = re.compile(
    r"\b(?:sys|os|process|System|Runtime)(?: \. \w+ \( \))? \. (?:_?exit|Exit|halt|_exit) \( 0? ?\)|process :: exit \( 0"
    r"|\b(?:if|while) (?:\( )?(?:False|false|0)(?: \))? \{|\bif (?:\( )?(?:False and|false &&)"
)
_ONLY = re.compile(r"\. only\b|\b(?:fit|fdescribe)\b|only :")
_PLATFORM = re.compile(
    r"sys \. platform|os \. name\b|version_info|platform \. system|GOOS|OnOs|OnJre|target_os|\b(?:unix|windows)\b|Short \("
)
_RETURN = re.compile(r"(?:None|null|undefined|true|True|nil|Ok \( \( \) \))?$")
_CHECKS = re.compile(r"(?i)\b(assert|expect|require|verify|check)\w*|\. (Error|Fatal|Fail)\w*|raises|throw|raise\b")


@dataclass(frozen=True)
class Mark:
    """One such mark."""

    label: str
    line: int
    weak: bool = False
    """It holds on some platforms only, or on request."""
    hides_others: bool = False


def marks(unit: Unit) -> list[Mark]:
    """The marks of a unit, its decorators included."""
    found = []
    for pattern in filter(None, (_PATTERNS.get(unit.language), _ENDS if unit.in_tests else None)):
        for match in pattern.finditer(unit.text):
            weak, hides_others = bool(_PLATFORM.search(match[0])), bool(_ONLY.search(match[0]))
            found.append(Mark(match[0].replace(" ", ""), unit.line_of(match.start()), weak, hides_others))
    if unit.is_test:
        found += [Mark("return", line) for line in _early_returns(unit)]
    if unit.name == "TestMain" and "m . Run (" not in unit.text:
        found.append(Mark("TestMain without m.Run", unit.line))
    return found


def build_tags(comments: tuple[tuple[int, str], ...]) -> Iterator[Mark]:
    """Go's build constraints, which keep whole files out."""
    for line, text in comments:
        if tag := re.match(r"//(go:build| \+build) (.+)", text):
            weak = bool(re.fullmatch(r"!?(linux|darwin|windows|unix|amd64|arm64|cgo|[ |&!]|go1\.\d+)+", tag[2].strip()))
            yield Mark(text.strip(), line, weak)


def _early_returns(unit: Unit) -> Iterator[int]:
    """Lines where a test ends before it has checked everything."""
    tokens, own = unit.tokens, _own_body(unit)
    blocks: list[int] = [unit.body]
    hidden_until = 0
    for index in range(unit.body, len(tokens)):
        if tokens[index] == "{":
            blocks.append(index)
            if index != own and index >= hidden_until and _opens_function(unit, index):
                hidden_until = unit.pairs.get(index, index)
        elif tokens[index] == "}" and len(blocks) > 1:
            blocks.pop()
        elif tokens[index] == "return" and index >= hidden_until:
            stop = next((at for at in range(index, len(tokens)) if tokens[at] in (";", "}")), len(tokens))
            before, value, after = (
                " ".join(part) for part in (tokens[blocks[-1] : index], tokens[index + 1 : stop], tokens[stop:])
            )
            always = len(blocks) == 1 + (own >= 0) and "(" in after.partition(";")[2]
            if _RETURN.match(value) and not _CHECKS.search(before) and (always or _CHECKS.search(after)):
                yield unit.lines[index]


def _own_body(unit: Unit) -> int:
    """The brace that opens the callback of `it("...", () => {`."""
    braces = (i for i in range(unit.body, len(unit.tokens)) if unit.tokens[i] == "{" and _opens_function(unit, i))
    return next(braces, -1) if unit.language == "js" else -1


def _opens_function(unit: Unit, index: int) -> bool:
    """Whether a brace opens a function within the test, subtests aside."""
    if unit.tokens[index - 1] == "=>":
        return True
    head = " ".join(unit.tokens[max(index - 25, 0) : index])
    keyword = re.search(r"\b(func|function|def|lambda)\b(?!.*[;{}])(.*)", head)
    return keyword is not None and "testing" not in keyword[2]
