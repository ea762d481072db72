"""Marks that keep a test from running or from failing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.verify.guards.claims import Kind
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
_PLATFORM = re.compile(r"sys \. platform|os \. name\b|version_info|platform \. system|GOOS|OnOs|OnJre|target_os|\b(?:unix|windows)\b|Short \(")  # fmt: skip
_NEVER = re.compile(r"(?i)skip|ignore|disabled|enabled=false|todo|pending|\b(xit|xtest|xdescribe|xcontext)\b")
_MUST_FAIL = re.compile(r"xfail(\((reason|strict|raises|run)=.*)?$|expectedFailure$")
_SOMETIMES = re.compile(r"(?i)if|unless|importor|only|collect|disabled\w|cfg")
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
