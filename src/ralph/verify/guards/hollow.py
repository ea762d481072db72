"""Tests that only call: nothing that they see could make them fail, short of a crash."""

import re
from collections.abc import Collection

from ralph.verify.guards.units import Unit

_NO_CASE = re.compile(r"TestMain$|(Benchmark|Example|Fuzz|bench_|test_bench)|.*[bB]enchmark")
_CLAIMS = re.compile(
    r"_?assert\w*|\w*assert(_\w+|!)?|\w*[eE]xpect\w*|raises\w*|warns|deprecated_call|verify\w*|should\w*|\w*[fF]ail\w*|[fF]atal\w*|Errorf?|panic|throws?|"
    r"raise|AssertionError|unreachable|_?(require|ensure|validate|check|must)([A-Z_]\w*)?|\w*[sS]napshot\w*|approve\w*|[tT]imeout|benchmark|compare\w*|(to|not)?[mM]atch\w*"
)
"""Words of assertions, of helpers that make them, and of results that a test expects by a mark."""
_IN = {
    "python": re.compile(r"given"),
    "rust": re.compile(r"unwrap\w*|\?|prop_\w+|pass|compile_fail"),
    "js": re.compile(r"(get|find)(All)?By\w+|cy|waitFor\w*|page|t"),
    "java": re.compile(r"andExpect\w*|doesNot\w+|then\w*|await\w*|StepVerifier"),
}
"""Words that fail by themselves, by language."""
_HANDED_ON = re.compile(r"([^\W\d]\w*) \( (?:t|tb|s \. T \( \)) [,)]")


def is_hollow(unit: Unit, helpers: Collection[str]) -> bool:
    """Whether a test without claims has no other way to fail either: Go's may hand themselves to helpers not known here."""
    if _NO_CASE.match(unit.name) or "# [ bench" in unit.head_text:
        return False
    own = _IN.get(unit.language)
    if any(_CLAIMS.fullmatch(token) or (own and own.fullmatch(token)) for token in {*unit.tokens} - {unit.name}):
        return False
    handed = _HANDED_ON.findall(unit.body_text) if unit.language == "go" else ()
    return all(name in helpers for name in handed)
