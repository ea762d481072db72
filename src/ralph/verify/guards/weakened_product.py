"""Product code that protects less than before: it swallows errors, or no longer checks its inputs.

An error that was raised, returned or reported before and is not any more counts most. In new code, only a handler that
catches every error and reports none is certain enough to be an error. A check of an input that moves keeps its error or
its message. If neither appears in the new code, the check was removed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from functools import cached_property

from ralph.core.checks import Finding, Rule
from ralph.core.text import regex
from ralph.verify.changed_files import find_gained, make_finding
from ralph.verify.guards.assertions import find_literals
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.tokens import Block, find_branches, find_handlers, find_stop, is_word, split, word_set
from ralph.verify.guards.units import Unit

_BROAD = word_set("Exception BaseException Throwable RuntimeException Error AssertionError AssertionFailedError")
_ABSENT = regex(
    r"FileNotFound|FileExists|KeyError|IndexError|ImportError|ModuleNotFound|StopIteration|ProcessLookup|Cancelled|Empty|BrokenPipe|"
    r"NotADirectory|KeyboardInterrupt|NoSuchFile|Interrupted|NotFound|NoSuchElement|ConnectionReset"
)
"""Errors that only say that something is not there, which may be an answer."""
_CONSTRUCTS = word_set(
    "list dict set tuple str int float Decimal ArrayList HashMap HashSet emptyList emptyMap emptySet empty of new default Map Set "
    "Ok Some Array Object String resolve Vec format return"
)
_SPEAKS = regex(r"\b(raise|throw|panic|exit|reject|fail)\b|= (False|false)\b|\+=|= \"[^\"]*(fail|err)")
_REPORTS = regex(
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
_GO_REPORTS = regex(r"(?:return|Fatal\w*|Print\w*|panic|append) [^;{}]*\berr\b")
_LONGEST_ELSE, _LONGEST_DEFER = 40, 300
"""Tokens of an `else` after a handler, and characters after `recover()`, in which an error may be reported."""
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
    """Whether it is only worth a warning if the function was there before."""


def find_swallowed_errors(work: Comparison) -> Iterator[Finding]:
    """Places that are new, anywhere in the change; what was only moved is old."""
    was = ((unit, place) for unit in work.replaced_units for place in _find_places(unit, None))
    now = ((unit, place) for unit in work.changed_units for place in _find_places(unit, work.origin.get(unit)))
    for unit, place in find_gained(was, now, lambda found: found[1].key):
        if unit in work.origin:
            warn: bool | None = place.in_old
        else:
            warn = True if unit.in_tests else place.in_new
        if warn is not None:
            code = f"{unit.name} in {unit.path}" if unit.name else unit.path
            line = unit.line_of(place.at)
            yield work.report(Rule.ERROR_SWALLOWED, unit.path, line, f"{code} {place.what}.", warn=warn)


def _find_places(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    yield from _find_silent_handlers(unit, before)
    for what, in_new, pattern in _DROPS:
        yield from (Swallow(match[0], match.start(), what, in_new) for match in re.finditer(pattern, unit.text))
    if unit.language in ("go", "rust"):
        yield from _find_discarded(unit, before)
    if unit.language == "go":
        yield from _find_go_swallows(unit, before)
    hides = before is not None and len(_RUST_HEEDS.findall(unit.text)) < len(_RUST_HEEDS.findall(before.text))
    for match in _UNWRAPS.finditer(unit.text) if unit.language == "rust" else ():
        if match[1] == "unwrap_or_default" or hides:
            what = "replaces an error with a default"
            yield Swallow(match[0], match.start(), what, in_new=True, in_old=not hides)


def _find_silent_handlers(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    """Handlers that report nothing."""
    reported_before, reports = _count_reporting_handlers(before), _count_reporting_handlers(unit)
    for block in find_handlers(unit.tokens, unit.pairs):
        body, tried = " ".join(block.body), _read_tried(unit, block)
        types = _find_caught_types(block)
        is_wide = not types or bool(types & _BROAD) or unit.language == "js"
        swallow = Swallow(
            key=" ".join((*block.head[:1], body)),
            at=unit.starts[block.index],
            what=f"catches {' '.join(block.head) or 'any error'} and reports nothing",
        )
        if unit.in_tests and is_wide and _ASSERTS.search(tried):
            # An assertion that fails raises, so this handler makes the test pass whatever happens.
            if not _FAILS.search(f"{tried} {body}") and not _ASSERTS.search(body):
                yield swallow
            continue
        expects_error = unit.in_tests and _FAILS.search(tried)
        if expects_error or not _is_silent(block) or _answers_yes_or_no(tried, body):
            continue
        errors = _name_errors(block)
        is_empty = not {"return", "=", "yield"}.intersection(block.body)
        hides_all = is_wide and (is_empty or unit.language != "js")
        if reported_before[errors] > reports[errors] or hides_all:
            yield swallow
        elif is_wide or (is_empty and not any(map(_ABSENT.search, types))):
            wraps = before is not None and _wraps(tried, before)
            yield replace(swallow, in_new=True, in_old=not wraps)


def _find_caught_types(block: Block) -> set[str]:
    named = re.sub(r"\. Error\b", "", " ".join(block.head)).split()
    return {token for token in named if is_word(token) and token not in ("as", "final", "const")}


def _answers_yes_or_no(tried: str, body: str) -> bool:
    """Whether an error is the answer no, and its absence the answer yes."""
    return bool(re.fullmatch(r"return (False|false)", body) and re.search(r"return (True|true)", tried))


def _count_reporting_handlers(unit: Unit | None) -> Counter[frozenset[str]]:
    """How many handlers report which errors."""
    found = find_handlers(unit.tokens, unit.pairs) if unit else ()
    return Counter(_name_errors(block) for block in found if _REPORTS.search(" ".join(block.body)))


def _name_errors(block: Block) -> frozenset[str]:
    return frozenset(token for token in block.head if token[0].isupper())


def _read_tried(unit: Unit, block: Block) -> str:
    """What was tried before a handler, and what stands after it in an `else`."""
    start = max((i for i in range(block.index) if unit.tokens[i] == "try"), default=block.index)
    after = unit.pairs.get(block.opener, block.opener) + 1
    otherwise = unit.tokens[after : after + _LONGEST_ELSE] if unit.tokens[after : after + 1] == ("else",) else ()
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


CLEANS_UP = regex(
    r"(?:^|\. )(?:Close|Remove\w*|Stop|Shutdown|Kill|Wait|Unsetenv|Setenv|Chdir|Disconnect|Terminate|Flush|Sync|Rollback)$"
)
"""Calls with which Go tests clean up. An error there says nothing about what is tested."""


def _find_discarded(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    """`_ = f()` and `let _ = f()`; whether the function looked at the error of that call before."""
    for match in _DROPPED.finditer(unit.text, unit.starts[max(unit.body - 1, 0)]):
        if unit.in_tests and CLEANS_UP.search(match[2].partition(" (")[0]):
            continue
        call = re.escape(match[2].partition(" (")[0])
        checked = rf"\b\w*[eE]rr :?= {call} \(|(?:return|NoError \( t ,) {call} \(|{call} \([^;]*\) (?:\?|\. (?:unwrap|expect) \()"
        was_checked = before is not None and bool(call.strip()) and bool(re.search(checked, before.text))
        is_error, is_rust = bool(re.fullmatch(r"err|\w+Err", match[2].strip())), unit.language == "rust"
        if is_rust or was_checked or is_error:
            in_new = None if is_rust else False
            in_old = is_rust and not was_checked
            yield Swallow(match[0], match.start(2), "discards an error with `_`", in_new=in_new, in_old=in_old)


def _find_go_swallows(unit: Unit, before: Unit | None) -> Iterator[Swallow]:
    was_reported = before is not None and len(_GO_REPORTS.findall(before.text)) > len(_GO_REPORTS.findall(unit.text))
    for block in find_branches(unit.tokens, unit.pairs):
        head, body = " ".join(block.head), " ".join(block.body)
        if re.search(r"(err|\w+Err) != nil$", head) and _GO_SILENT.fullmatch(body):
            goes_on, what = body in ("continue", "break"), "ignores the error and continues"
            is_answer, at = goes_on or body.startswith("return"), unit.starts[block.index]
            in_old = goes_on and not was_reported
            yield Swallow(f"{head} {body}", at, what, in_new=is_answer, in_old=in_old)
    for match in _RECOVER.finditer(unit.text):
        rest = unit.text[match.end() : match.end() + _LONGEST_DEFER].split("} ( )")[0]
        used = match[1] and re.search(rf"\b{match[1]}\b(?! != nil)", rest)
        is_reported = re.match(r" (==|\))", rest) or re.search(
            r"\b(panic|log|Log|err =|Error|print|Fatal)\w*|= true", rest
        )
        if not used and not is_reported:
            yield Swallow(match[0], match.start(), "recovers from every panic and ignores it")


_REFUSES = regex(
    r"\b(?:raise|throw new|throw) (?P<error>[\w. ]*\w)|return Err \( (?P<rust>[\w: ]*)|\b(?P<stop>panic|bail|abort)\b !? ?\("
    r"|return [^;]*?(?P<go>\bErr\w+|errors \. New|fmt \. Errorf|\w*[eE]rror\w*)"
    r"|return [^;]*\b(?P<status>4\d\d|\w*(?:[Ii]nvalid|[Ff]orbidden|[Uu]nauthori[sz]ed|[Dd]enied|BadRequest)\w*)"
)
_NO_GUARD = regex(r"(?i:NotImplemented|unimplemented|todo\b|not (yet )?(implemented|supported)|UnsupportedOperation)|\b(err|\w+Err) != nil|"
                       r"\b(False and|false &&|if False|if \( false|if false)")  # fmt: skip
"""Code that is not written yet, passes an error on, or never holds."""
_CHECKS = regex(r"_?(validate|check|verify|ensure|require|assert|authori[sz]e|authenticate|saniti[sz]e)([A-Z_]\w*)?$|raise_for_status$|requireNonNull$")  # fmt: skip
_GUARDS = regex(r"(require|authenticate|authori[sz]e|verify|validate|ensure)[A-Z_]\w*$")
_DECORATES = regex(r"@ (?:\w+ \. )*(\w*(?:valid|require|permission|auth|csrf|NotNull|NotBlank|Min|Max|Secured|Roles)\w*)", re.I)  # fmt: skip
_CONSTRAINS = regex(
    r"(?<=\) )\. (?P<call>email|min|max|uuid|url|regex|int|positive|nonnegative|nonempty|length|strict|refine|datetime) \("
    r"|(?<=[(,{] )\"?(?P<key>gt|ge|lt|le|min_length|max_length|minLength|maxLength|minimum|maximum|max_digits|pattern)\"? [=:]"
    r"|@ (?P<mark>NotNull|NotBlank|NotEmpty|Min|Max|Size|Pattern|Email|Valid|Positive\w*|Digits|Past|Future)\b"
    r"|(?P<tag>(?:validate|binding):'[^']*')"
)
_SCHEMA = regex(r"(?i)schema|valid|BaseModel|BaseSettings|Field|constraint|\bz \.|Joi|yup|Positive|NotNull|Literal|Annotated|require|ensure|check|parse|guard")  # fmt: skip
_PREDICATE = regex(r"(?i)_?(is|has|can|valid|check|verify|allow|auth)")
_ERROR_GIVEN = regex(r"e|err|error|\w+Err(or)?")
_PLAIN_ERRORS = word_set("Exception Error ValueError TypeError RuntimeError false stop panic IllegalArgumentException")
_GRAMMAR = word_set("not is None len nil null undefined if in and or typeof self this")


@dataclass(frozen=True)
class InputCheck:
    """One check of an input: what it asks, and the error that refuses."""

    condition: str
    error: str
    line: int
    text: str
    unit: Unit
    field: frozenset[str] | None = None
    """For a constraint of a schema: the name of what it constrains."""

    @cached_property
    def names(self) -> frozenset[str]:
        """What it looks at: variables, and the keys of mappings."""
        return frozenset(re.findall(r"[^\W\d]\w*", self.condition)) - _GRAMMAR

    @cached_property
    def messages(self) -> list[frozenset[str]]:
        return [_split_words(literal) for literal in find_literals(self.text) if len(literal) > 3]

    def resembles(self, other: "InputCheck") -> bool:
        """Whether another check could be this one, rewritten or moved."""
        same = self.error == other.error or self.unit.name == other.unit.name
        return self.is_repeated_in(other.text) or (same and bool(self.names & other.names or not self.names))

    def is_repeated_in(self, text: str) -> bool:
        """Whether a text refuses with the same error, by its own name or by what it says."""
        own = self.error.split()[-1] if self.error and self.error.split()[-1] not in _PLAIN_ERRORS else ""
        if own[:1].isupper() and f" {own} " in f" {text} ":
            return True
        said = [_split_words(literal) for literal in find_literals(text)] if self.messages else []
        return any(len(message & other) >= 0.6 * len(message) for message in self.messages for other in said)


def _split_words(literal: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]+", re.sub(r"\{[^}]*\}|%\w", " ", literal))) or frozenset((literal,))


def find_removed_validation(work: Comparison) -> Iterator[Finding]:
    """Input checks that are gone and that nothing new makes."""
    fresh = [unit for unit in work.changed_units if not unit.in_tests]
    was = (check for unit in work.replaced_units for check in _find_input_checks(unit))
    now = (check for unit in fresh for check in _find_input_checks(unit))
    added = list(find_gained(was, now, lambda check: (check.condition, check.error)))
    created = [unit for unit in fresh if unit not in work.origin]
    for old, new in work.product_pairs:
        if new is None or old.tokens == new.tokens:
            continue
        for check in find_gained(_find_input_checks(new), _find_input_checks(old), lambda check: check.condition):
            is_made_elsewhere = any(check.is_repeated_in(unit.text) for unit in created)
            if not is_made_elsewhere and not _is_replaced(check, new, added, fresh):
                yield _report_removed_check(work, check, new)


def _is_replaced(check: InputCheck, new: Unit, added: list[InputCheck], fresh: list[Unit]) -> bool:
    """Whether a new check is like one that is gone, or something else makes it now."""
    if check.field is None:
        return any(map(check.resembles, added)) or _is_delegated(check, new, fresh)
    is_field_gone = not check.field <= {*new.tokens}
    return is_field_gone or any(one.field in (None, check.field) or one.error == check.error for one in added)


def _report_removed_check(work: Comparison, check: InputCheck, new: Unit) -> Finding:
    is_asked = bool(new.name) and any(new.name in test.tokens for test in work.red_tests)
    asked = " A test that failed before the run asks for that." if is_asked else ""
    sentence = f"{new.name or new.path} no longer checks `{check.text[:100]}`.{asked}"
    line = new.line if new.name else check.line
    return make_finding(Rule.VALIDATION_REMOVED, new.path, line, sentence, check.text, warn=is_asked)


def _find_input_checks(unit: Unit) -> Iterator[InputCheck]:
    """The checks of inputs in a unit: decorators, branches that refuse, constraints of schemas, calls that check."""
    for match in _DECORATES.finditer(unit.head_text if unit.name else ""):
        yield InputCheck(condition=match[0], error=match[1], line=unit.line_of(match.start()), text=match[0], unit=unit)
    for block in find_branches(unit.tokens, unit.pairs):
        yield from _find_refusals(unit, block)
    for match in _CONSTRAINS.finditer(unit.text):
        field = re.findall(r"([^\W\d]\w*) [:=]", unit.text[: match.start()])[-1:]
        text = " ".join((*field, match[0]))
        yield InputCheck(
            condition=text,
            error=match[0],
            line=unit.line_of(match.start()),
            text=text,
            unit=unit,
            field=frozenset(field),
        )
    yield from _find_checking_calls(unit)


def _find_refusals(unit: Unit, block: Block) -> Iterator[InputCheck]:
    """`if not name: raise ValueError(...)`, one for each part of the condition."""
    head, body = split(block.head, ";")[-1], " ".join(block.body)
    refusal = _REFUSES.search(body)
    error = ""
    if refusal:
        error = next(filter(None, refusal.groups()), "")
    elif _PREDICATE.match(unit.name) and re.fullmatch(r"return (False|false)", body):
        error = "false"
    text = f"if {' '.join(head)}: {body}"
    if not error or _NO_GUARD.search(text):
        return
    for part in map(" ".join, split(head, "or", "||")):
        if not _ERROR_GIVEN.fullmatch(part):
            yield InputCheck(condition=part, error=error, line=unit.tokens[block.index].line, text=text, unit=unit)


def _find_checking_calls(unit: Unit) -> Iterator[InputCheck]:
    """`validate(name)`, `assert name`, `requireAdmin`."""
    parameters = {*unit.tokens[: unit.body]}
    for index in range(unit.body, len(unit.tokens) - 1):
        token, before, after = unit.tokens[index], unit.tokens[index - 1], unit.tokens[index + 1]
        begins = index == unit.body or before in (";", "{", "}", ".", "await", "::")
        asks = token == "assert" or (_CHECKS.match(token) and after in ("(", "!"))
        if not (begins and asks) and not (_GUARDS.match(token) and after != "="):
            continue
        text = " ".join(unit.tokens[index : find_stop(unit.tokens, unit.pairs, index)]) if begins else token
        check = InputCheck(condition=text, error=token, line=unit.tokens[index].line, text=text, unit=unit)
        if token != "assert" or check.names & parameters:
            yield check


def _is_delegated(check: InputCheck, new: Unit, fresh: list[Unit]) -> bool:
    """Whether a helper, a decorator, a type or a schema checks it now."""
    old = check.unit
    if check.error != "false" and 0 < old.text.count(check.error) <= new.text.count(check.error):
        return True
    callees = new.calls - old.calls
    if any(map(_SCHEMA.search, callees)):
        return True
    if any(_refuses_for(check, new, unit, callees) for unit in fresh):
        return True
    added = {*new.tokens[: new.body]} - {*old.tokens[: old.body]}
    asks_for_type = re.search(r"\b(typeof|isinstance|instanceof)\b", check.condition) is not None
    if asks_for_type and added - {"(", ")"}:
        return True
    return any(_SCHEMA.search(token) or token[0].isupper() for token in added if token[0].isalpha())


def _refuses_for(check: InputCheck, new: Unit, unit: Unit, callees: Set[str]) -> bool:
    """Whether another unit refuses what a check refused: a helper that is called now, or a schema beside it."""
    if unit.name:
        return unit.name in callees and _REFUSES.search(unit.text) is not None
    is_near = unit.path == new.path or any(callee in unit.tokens for callee in callees)
    return is_near and _SCHEMA.search(unit.text) is not None and bool(check.names & {*unit.tokens})
