"""Errors that are caught, or dropped, and never heard of again.

Silence where there was none counts most: an error that was raised, returned or told before and is not any more. In
code that is new, only a handler that takes every error and tells nobody is sure enough to be called wrong.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.findings import Finding, Rule
from ralph.core.patterns import regex
from ralph.verify.guards.changes import gained
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.lexer import is_word, words
from ralph.verify.guards.syntax import Block, branches, handlers
from ralph.verify.guards.units import Unit

_BROAD = words("Exception BaseException Throwable RuntimeException Error AssertionError AssertionFailedError")
_ABSENT = regex(
    r"FileNotFound|FileExists|KeyError|IndexError|ImportError|ModuleNotFound|StopIteration|ProcessLookup|Cancelled|Empty|BrokenPipe|"
    r"NotADirectory|KeyboardInterrupt|NoSuchFile|Interrupted|NotFound|NoSuchElement|ConnectionReset"
)
"""Errors that only say that something is not there, which may be an answer."""
_CONSTRUCTS = words(
    "list dict set tuple str int float Decimal ArrayList HashMap HashSet emptyList emptyMap emptySet empty of new default Map Set "
    "Ok Some Array Object String resolve Vec format return"
)
_SPEAKS = regex(r"\b(raise|throw|panic|exit|reject|fail)\b|= (False|false)\b|\+=|= \"[^\"]*(fail|err)")
_TELLS = regex(
    r"(?i)\b(raise|throw|panic|exit|reject|fail|\w*log\w*|warn\w*|error|exception|print\w*|report\w*|next)\b"
)
_ASSERTS = regex(r"\b(assert|expect|verify|should)")
_FAILS = regex(r"(?i)\bfail \(|\b(raise|throw)\b|pytest \. fail|assert (False|false)|Assert \. fail")
_NOTHING = r"(?:null|undefined|false|true|\[ \]|\( \{ \} \)|\"\"|\d+)"
_ARROW = r"(?:\( (?:\w+ )?\)|\w+) =>"
_DROPS = (
    ("drops every error", False, rf"process \. on \( \"(?:uncaughtException|unhandledRejection)\" , {_ARROW} \{{ \}} \)"
                                 r"|sys \. excepthook = lambda [^;]*: None|window \. onerror = \( \) => true"),
    ("drops the error of a promise", False, rf"\. catch \( (?:{_ARROW} \{{ \}}|function \( (?:\w+ )?\) \{{ \}}|noop|_ \. noop) \)"),
    ("suppresses every error", False, r"\bsuppress \( [^)]*\b(?:Exception|BaseException|AssertionError)\b[^)]*\)"),
    ("returns in `finally`, which drops errors", False, r"\bfinally \{ (?:[^{}]*; )?return\b[^{}]*\}"),
    ("answers the error of a promise with a default", True, rf"\. catch \( {_ARROW} (?:\{{ return ?(?:{_NOTHING}|\{{ \}})? ?\}}|{_NOTHING}) \)"),
    ("drops the error of a result", False, r"\bErr \( _?\w* \) => (?:\{ \}|\( \)) ?[,;}]|if let Err \( \w+ \) = [^{]* \{ \}"),
    ("drops the error of a result", True, r"\bErr \( _?\w* \) => (?:continue|return|break|(?:return )?(?:Ok \( [^;{}]*? \)|None|\d[\w.]*|\"[^\"]*\"|\w+ :: (?:new|default) \( \)|false|true)) ?[,;}]"
                                          r"|let Ok \( [^)]* \) = [^;{]* else \{ (?:return|continue)(?: Ok \( [^}]* \)| None| \d+)? \}"),
)  # fmt: skip
"""What drops errors in one expression, and whether a new function may do so with a warning."""
_DROPPED = regex(r"(?:^|[;{}] )(?:let )?(?:(\w+) , )?_ (?:: [\w <>]+ )?:?= ([^;{}]*)")
_RUST_HEEDS = regex(r"\) \?|\. (?:unwrap|expect) \(")
_UNWRAPS = regex(r"\. (unwrap_or_default|unwrap_or|unwrap_or_else|ok) \(")
_GO_SILENT = regex(r"|_ = \w+|return|return (.* , )?nil|continue|break")
_GO_TELLS = regex(r"(?:return|Fatal\w*|Print\w*|panic|append) [^;{}]*\berr\b")
_RECOVER = regex(r"(?:(\w+) := |_ = )?\brecover \( \)")


@dataclass(frozen=True)
class Swallow:
    """One place where an error may disappear."""

    key: str
    at: int
    """Where, in the text of its unit."""
    what: str
    in_new: bool | None = False
    """What it is in a function that is new: an error (False), worth a warning (True), nothing (None)."""
    in_old: bool = False
    """Whether it is only worth a warning where the function was there before."""


def swallow_findings(work: Comparison) -> Iterator[Finding]:
    """Places that are new, anywhere in the change; what was only moved is old."""
    was = ((unit, place) for unit in work.stale for place in _places(unit, None))
    now = ((unit, place) for unit in work.fresh for place in _places(unit, work.origin.get(unit)))
    for unit, place in gained(was, now, lambda found: found[1].key):
        warn = place.in_old if unit in work.origin else True if unit.in_tests else place.in_new
        if warn is not None:
            sentence, line = (
                f"{f'{unit.name} in ' if unit.name else ''}{unit.path} {place.what}.",
                unit.line_of(place.at),
            )
            yield work.found(Rule.ERROR_SWALLOWED, unit.path, line, sentence, warn=warn)


def _places(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    yield from _caught(unit, before)
    for what, in_new, pattern in _DROPS:
        yield from (Swallow(match[0], match.start(), what, in_new) for match in re.finditer(pattern, unit.text))
    if unit.language in ("go", "rust"):
        yield from _thrown_away(unit, before)
    if unit.language == "go":
        yield from _go(unit, before)
    hides = before is not None and len(_RUST_HEEDS.findall(unit.text)) < len(_RUST_HEEDS.findall(before.text))
    for match in _UNWRAPS.finditer(unit.text) if unit.language == "rust" else ():
        if match[1] == "unwrap_or_default" or hides:
            yield Swallow(match[0], match.start(), "puts a default in the place of an error", True, not hides)


def _caught(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    """Handlers that tell nobody."""
    told, tell = _told(before), _told(unit)
    for block in handlers(unit.tokens, unit.pairs):
        body, tried = " ".join(block.body), _tried(unit, block)
        named = re.sub(r"\. Error\b", "", " ".join(block.head)).split()
        types = {token for token in named if is_word(token) and token not in ("as", "final", "const")}
        key, at = " ".join((*block.head[:1], body)), unit.starts[block.index]
        what = f"drops {' '.join(block.head) or 'any error'} without a word"
        is_wide = not types or bool(types & _BROAD) or unit.language == "js"
        if unit.in_tests and is_wide and _ASSERTS.search(tried):
            if not _FAILS.search(f"{tried} {body}") and not _ASSERTS.search(body):
                yield Swallow(key, at, what)
            continue
        answers = re.fullmatch(r"return (False|false)", body) and re.search(r"return (True|true)", tried)
        if not _is_silent(block) or answers or (unit.in_tests and _FAILS.search(tried)):
            continue
        is_empty = not any(token in ("return", "=", "yield") for token in block.body)
        if told[_errors(block)] > tell[_errors(block)] or (is_wide and (is_empty or unit.language != "js")):
            yield Swallow(key, at, what)
        elif is_wide or (is_empty and not any(map(_ABSENT.search, types))):
            wraps = before is not None and _wraps(tried, before)
            yield Swallow(key, at, what, in_new=True, in_old=not wraps)


def _told(unit: Unit | None) -> Counter[frozenset[str]]:
    """How many handlers tell of which errors."""
    found = handlers(unit.tokens, unit.pairs) if unit else ()
    return Counter(_errors(block) for block in found if _TELLS.search(" ".join(block.body)))


def _errors(block: Block) -> frozenset[str]:
    return frozenset(token for token in block.head if token[0].isupper())


def _tried(unit: Unit, block: Block) -> str:
    """What was tried before a handler, and what stands after it in an `else`."""
    start = max((i for i in range(block.index) if unit.tokens[i] == "try"), default=block.index)
    after = unit.pairs.get(block.opener, block.opener) + 1
    otherwise = unit.tokens[after : after + 40] if unit.tokens[after : after + 1] == ("else",) else ()
    return " ".join((*unit.tokens[start : block.index], ";", *otherwise))


def _wraps(tried: str, before: Unit) -> bool:
    """Whether what is tried was there before, untried."""
    steps = (step.strip() for step in re.split(r" ?[;{}] ?", tried))
    return any(len(step.split()) > 2 and step in before.text for step in steps)


def _is_silent(block: Block) -> bool:
    """Whether a handler neither calls, nor throws, nor uses the error."""
    name = block.head[-1] if block.head and (len(block.head) == 1 or block.head[-1][0].islower()) else ""
    if _SPEAKS.search(" ".join(block.body)) or (name and name in block.body and name not in _BROAD):
        return False
    calls = re.findall(r"([^\W\d]\w*) \((?! \))|([^\W\d]\w*) \( \)", " ".join(block.body))
    made = {bare for _, bare in calls if bare[:1].isupper()}
    return {name for call in calls for name in call if name} <= _CONSTRUCTS | made


def _thrown_away(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    """`_ = f()` and `let _ = f()`; whether the function looked at the error of that call before."""
    for match in _DROPPED.finditer(unit.text, unit.starts[max(unit.body - 1, 0)]):
        call = re.escape(match[2].partition(" (")[0])
        heeded = rf"\b\w*[eE]rr :?= {call} \(|(?:return|NoError \( t ,) {call} \(|{call} \([^;]*\) (?:\?|\. (?:unwrap|expect) \()"
        was_heeded = before is not None and bool(call.strip()) and bool(re.search(heeded, before.text))
        is_error, is_rust = bool(re.fullmatch(r"err|\w+Err", match[2].strip())), unit.language == "rust"
        if is_rust or was_heeded or is_error:
            in_new = None if is_rust else False
            yield Swallow(match[0], match.start(2), "throws an error away with `_`", in_new, is_rust and not was_heeded)


def _go(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    was_told = before is not None and len(_GO_TELLS.findall(before.text)) > len(_GO_TELLS.findall(unit.text))
    for block in branches(unit.tokens, unit.pairs):
        head, body = " ".join(block.head), " ".join(block.body)
        if re.search(r"(err|\w+Err) != nil$", head) and _GO_SILENT.fullmatch(body):
            goes_on, what = body in ("continue", "break"), "goes on as if no error had come"
            is_answer, at = goes_on or body.startswith("return"), unit.starts[block.index]
            yield Swallow(f"{head} {body}", at, what, is_answer, goes_on and not was_told)
    for match in _RECOVER.finditer(unit.text):
        rest = unit.text[match.end() : match.end() + 300].split("} ( )")[0]
        used = match[1] and re.search(rf"\b{match[1]}\b(?! != nil)", rest)
        told = re.match(r" (==|\))", rest) or re.search(r"\b(panic|log|Log|err =|Error|print|Fatal)\w*|= true", rest)
        if not used and not told:
            yield Swallow(match[0], match.start(), "recovers from every panic and ignores it")
