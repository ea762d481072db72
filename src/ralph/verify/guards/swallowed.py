"""Errors that are caught, or dropped, and never heard of again."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import finding
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.syntax import Block, branches, handlers
from ralph.verify.guards.units import Unit

_BROAD = frozenset(
    ["Exception", "BaseException", "Throwable", "RuntimeException", "Error", "AssertionError", "AssertionFailedError"]
)
_ABSENT = re.compile(r"FileNotFound|FileExists|KeyError|IndexError|ImportError|ModuleNotFound|StopIteration|ProcessLookup|Cancelled|Empty|"
                     r"BrokenPipe|NotADirectory|KeyboardInterrupt|NoSuchFile|Interrupted|NotFound|NoSuchElement|ConnectionReset")  # fmt: skip
_CONSTANT_CALLS = frozenset(
    [
        "list",
        "dict",
        "set",
        "tuple",
        "str",
        "int",
        "float",
        "Decimal",
        "ArrayList",
        "HashMap",
        "HashSet",
        "emptyList",
        "emptyMap",
        "emptySet",
        "empty",
        "of",
        "new",
        "default",
        "Map",
        "Set",
        "Ok",
        "Some",
        "Array",
        "Object",
        "String",
        "resolve",
        "Vec",
        "format",
    ]
)
_SPEAKS = re.compile(r"\b(raise|throw|panic|exit|reject|fail)\b|= (False|false)\b|\+=|= \"[^\"]*(fail|err)")
_FAILS = re.compile(r"(?i)\bfail \(|pytest \. fail|assert (False|false)|Assert \. fail|raise AssertionError")
_GO_ERROR = re.compile(r"(err|\w+Err) != nil$")
_DROPPED = re.compile(r"(?:^|[;{}] )(?:let )?(?:(\w+) , )?_ (?:: [\w <>]+ )?:?= ([^;{}]*)")
_RUST_ARM = re.compile(
    r"\bErr \( (?:_|_?\w+) \) => (?:\{ \}|\( \)|continue|return|break|(?:return )?(?:Ok \( [^;{}]*? \)|None|\d[\w.]*|\"[^\"]*\"|\w+ :: (?:new|default) \( \)|false|true)) ?[,;}]"
)
_RUST_IF = re.compile(
    r"if let Err \( \w+ \) = [^{]* \{ \}|let Ok \( [^)]* \) = [^;{]* else \{ (?:return|continue)(?: Ok \( [^}]* \)| None| \d+)? \}"
)
_PROMISE = re.compile(
    r"\. catch \( (?:(?:\( (?:\w+ )?\)|\w+) => (?:\{ (?:return ?(?:null|undefined|false|\[ \]|\{ \}|\"\")?)? ?\}|null|undefined|false|true|\[ \]|\( \{ \} \)|\"\"|\d+)|function \( (?:\w+ )?\) \{ \}|noop|_ \. noop) \)"
)
_SUPPRESS = re.compile(r"\bsuppress \( [^)]*\b(?:Exception|BaseException|AssertionError)\b[^)]*\)")
_GLOBAL = re.compile(
    r"process \. on \( \"(?:uncaughtException|unhandledRejection)\" , (?:\( (?:\w+ )?\)|\w+) => \{ \} \)|sys \. excepthook = lambda [^;]*: None|window \. onerror = \( \) => true"
)
_RECOVER = re.compile(r"(?:\w+ := |_ = )?\brecover \( \)")
_FINALLY = re.compile(r"\bfinally \{ (?:[^{}]*; )?return\b[^{}]*\}")
_UNWRAPS = re.compile(r"\. (unwrap_or_default|unwrap_or|unwrap_or_else|ok) \(")


@dataclass(frozen=True)
class Swallow:
    """One place where an error may disappear."""

    key: str
    line: int
    sentence: str
    in_new_code: bool | None = False
    """What it is in a function that is new: an error (False), worth a warning (True), nothing (None)."""
    in_old_code: bool = False
    """Whether it is only worth a warning where the function was there before."""


def swallow_findings(work: Comparison) -> Iterator[Finding]:
    """Places that are new, anywhere in the change; what was only moved is old."""
    known = Counter(place.key for unit in work.stale for place in _places(unit, None))
    for unit in work.fresh:
        before = work.origin.get(unit)
        for place in _places(unit, before):
            known[place.key] -= 1
            warn = place.in_old_code if before is not None else True if unit.in_tests else place.in_new_code
            if known[place.key] < 0 and warn is not None:
                excerpt = work.excerpt(unit.path, place.line)
                yield finding(Rule.ERROR_SWALLOWED, unit.path, place.line, place.sentence, excerpt, warn=warn)


def _places(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    words = {*unit.tokens}
    if words & {"except", "catch", "finally", "suppress", "process", "excepthook", "onerror"}:
        yield from _caught(unit, before)
    if unit.language == "go":
        yield from _go(unit, before)
    elif unit.language == "rust":
        yield from _rust(unit, before)


def _caught(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    where = f"{unit.name} in {unit.path}" if unit.name else unit.path
    for block in handlers(unit.tokens, unit.pairs):
        attempt = _attempt(unit, block.index)
        answers = re.fullmatch(r"return (False|false)", " ".join(block.body)) and re.search(
            r"return (True|true)", attempt
        )
        if not _silent(block) or answers or (unit.in_tests and _FAILS.search(attempt)):
            continue
        types = {token for token in block.head if token[0].isalpha() and token not in ("as", "final", "const")}
        wide = not types or bool(types & _BROAD) or unit.language == "js"
        empty = not any(token in ("return", "=", "yield") for token in block.body)
        what = " ".join(block.head) or "any error"
        key, line = " ".join((*block.head[:1], *block.body)), unit.lines[block.index]
        place = Swallow(key, line, f"{where} drops {what} without a word.")
        around_old = before is not None and _wraps(attempt, before)
        if (wide and (empty or unit.language != "js")) or (unit.in_tests and re.search(r"\bassert", attempt)):
            yield place
        elif wide or (empty and not any(map(_ABSENT.search, types))):
            yield replace(place, in_new_code=True, in_old_code=not around_old)
    for pattern, sentence in (
        (_GLOBAL, "drops every error"), (_PROMISE, "drops the error of a promise"), (_SUPPRESS, "suppresses every error"), (_FINALLY, "returns in `finally`, which drops errors"),
    ):  # fmt: skip
        for match in pattern.finditer(unit.text):
            gives = pattern is _PROMISE and not re.search(r"\{ \}|noop", match[0])
            yield Swallow(match[0], unit.line_of(match.start()), f"{where} {sentence}.", in_new_code=gives)


def _attempt(unit: Unit, index: int) -> str:
    """What was tried before a handler, and what stands after it in an `else`."""
    start = max((i for i in range(index) if unit.tokens[i] == "try"), default=index)
    after = unit.pairs.get(next((i for i in range(index, len(unit.tokens)) if unit.tokens[i] == "{"), index), index)
    return (
        " ".join(unit.tokens[start:index])
        + " ; "
        + " ".join(unit.tokens[after + 1 : after + 40] if unit.tokens[after + 1 : after + 2] == ("else",) else ())
    )


def _wraps(attempt: str, before: Unit) -> bool:
    """Whether what is tried was there before, untried."""
    steps = (step.strip() for step in re.split(r" ?[;{}] ?", attempt))
    return any(len(step.split()) > 2 and step in before.text for step in steps)


def _silent(block: Block) -> bool:
    """Whether a handler tells nobody: no call, no throw, no use of the error."""
    text = " ".join(block.body)
    name = block.head[-1] if block.head and (len(block.head) == 1 or block.head[-1][0].islower()) else ""
    if _SPEAKS.search(text) or (name and name in block.body and name not in _BROAD):
        return False
    calls = {
        block.body[i - 1]
        for i, token in enumerate(block.body)
        if token in "([" and i and block.body[i - 1].isidentifier() and token == "("
    }
    return calls <= _CONSTANT_CALLS | {"return"}


def _go(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    for block in branches(unit.tokens, unit.pairs):
        if not _GO_ERROR.search(" ".join(block.head)):
            continue
        body = " ".join(block.body)
        if body == "" or re.fullmatch(r"_ = \w+|return|return (.* , )?nil", body):
            empty = not body.startswith("return")
            yield Swallow(
                f"{' '.join(block.head)} {body}",
                unit.lines[block.index],
                f"{unit.name} in {unit.path} goes on as if no error had come.",
                not empty,
            )
    for match in _DROPPED.finditer(unit.body_text):
        line = unit.lines[min(unit.body + unit.body_text.count(" ", 0, match.start(2)), len(unit.lines) - 1)]
        callee = match[2].partition(" (")[0]
        if re.fullmatch(r"err|\w+Err", match[2].strip()) or (before is not None and _was_heeded(callee, before)):
            yield Swallow(match[0], line, f"{unit.name} in {unit.path} throws an error away with `_`.")
    for match in _RECOVER.finditer(unit.text):
        rest = unit.text[match.end() : match.end() + 300].split("} ( )")[0]
        name = match[0].split()[0] if ":=" in match[0] else "recover"
        used = re.search(
            rf"\b{re.escape(name)}\b(?! != nil)|recover \( \) == nil|panic \( recover",
            match[0].partition(":=")[2] + rest,
        )
        if (
            not used
            and not re.match(r" (==|\))", rest)
            and not re.search(r"\b(panic|log|Log|err =|Error|print|Fatal)\w*|= true", rest)
        ):
            yield Swallow(
                match[0],
                unit.line_of(match.start()),
                f"{unit.name} in {unit.path} recovers from every panic and ignores it.",
            )


def _was_heeded(callee: str, before: Unit) -> bool:
    """Whether the function looked at the error of that call before."""
    heeded = rf"\b\w*[eE]rr :?= {re.escape(callee)} \(|(?:return|require \. NoError \( t ,) {re.escape(callee)} \(|{re.escape(callee)} \([^;]*\) (?:\?|\. (?:unwrap|expect) \()"
    return bool(callee.strip()) and bool(re.search(heeded, before.text))


def _rust(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    where = f"{unit.name} in {unit.path}"
    for match in (*_RUST_ARM.finditer(unit.text), *_RUST_IF.finditer(unit.text)):
        empty = match[0].endswith("{ }") or "=> { }" in match[0] or "=> ( )" in match[0]
        yield Swallow(match[0], unit.line_of(match.start()), f"{where} drops the error of a result.", not empty)
    for match in _DROPPED.finditer(unit.text):
        callee = match[2].partition(" (")[0]
        heeded = before is not None and _was_heeded(callee, before)
        yield Swallow(
            match[0], unit.line_of(match.start()), f"{where} throws a result away with `let _`.", None, not heeded
        )
    asked = len(re.findall(r"\) \?|\. (?:unwrap|expect) \(", before.text)) if before else 0
    asks = len(re.findall(r"\) \?|\. (?:unwrap|expect) \(", unit.text))
    for match in _UNWRAPS.finditer(unit.text):
        hides = before is not None and asks < asked
        if match[1] == "unwrap_or_default" or hides:
            yield Swallow(
                match[0],
                unit.line_of(match.start()),
                f"{where} puts a default in the place of an error.",
                True,
                not hides,
            )
