"""Checks of inputs that the product made and no longer makes.

A check that moves takes its error or its message along: to a helper, a method, a type or a schema. One whose refusal
shows up nowhere in what is new, while the code that it protected goes on, was removed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ralph.core.findings import Finding, Rule
from ralph.core.patterns import regex
from ralph.verify.guards.assertions import literals_in
from ralph.verify.guards.changes import finding, gained
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.lexer import words
from ralph.verify.guards.syntax import branches, split, stop_at
from ralph.verify.guards.units import Unit

_REFUSES = regex(
    r"\b(?:raise|throw new|throw) (?P<error>[\w. ]*\w)|return Err \( (?P<rust>[\w: ]*)|\b(?P<stop>panic|bail|abort)\b !? ?\("
    r"|return [^;]*?(?P<go>\bErr\w+|errors \. New|fmt \. Errorf|\w*[eE]rror\w*)"
    r"|return [^;]*\b(?P<status>4\d\d|\w*(?:[Ii]nvalid|[Ff]orbidden|[Uu]nauthori[sz]ed|[Dd]enied|BadRequest)\w*)"
)
_NO_GUARD = regex(r"(?i:NotImplemented|unimplemented|todo\b|not (yet )?(implemented|supported)|UnsupportedOperation)|\b(err|\w+Err) != nil|"
                       r"\b(False and|false &&|if False|if \( false|if false)")  # fmt: skip
"""What is not there yet, hands on an error, or never holds."""
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
_PLAIN_ERRORS = words("Exception Error ValueError TypeError RuntimeError false stop panic IllegalArgumentException")
_GRAMMAR = words("not is None len nil null undefined if in and or typeof self this")


@dataclass(frozen=True)
class Guard:
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
        return [_words(literal) for literal in literals_in(self.text) if len(literal) > 3]

    def resembles(self, other: "Guard") -> bool:
        """Whether another guard could be this one, rewritten or moved."""
        same = self.error == other.error or self.unit.name == other.unit.name
        return self.is_told_by(other.text) or (same and bool(self.names & other.names or not self.names))

    def is_told_by(self, text: str) -> bool:
        """Whether a text refuses with the same error, by its own name or by what it says."""
        own = self.error.split()[-1] if self.error and self.error.split()[-1] not in _PLAIN_ERRORS else ""
        if own[:1].isupper() and f" {own} " in f" {text} ":
            return True
        said = [_words(literal) for literal in literals_in(text)] if self.messages else []
        return any(len(message & other) >= 0.6 * len(message) for message in self.messages for other in said)


def _words(literal: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]+", re.sub(r"\{[^}]*\}|%\w", " ", literal))) or frozenset((literal,))


def validation_findings(work: Comparison) -> Iterator[Finding]:
    """Guards that went and were taken up nowhere."""
    fresh = [unit for unit in work.fresh if not unit.in_tests]
    was, now = ((guard for unit in units for guard in _guards(unit)) for units in (work.stale, fresh))
    added = list(gained(was, now, lambda guard: (guard.condition, guard.error)))
    created = [unit for unit in fresh if unit not in work.origin]
    for old, new in work.product_pairs:
        if new is None or old.tokens == new.tokens:
            continue
        for guard in gained(_guards(new), _guards(old), lambda guard: guard.condition):
            taken = any(map(guard.resembles, added)) or _delegated(guard, new, fresh)
            if guard.field is not None:
                alike = any(one.field in (None, guard.field) or one.error == guard.error for one in added)
                taken = alike or not guard.field <= {*new.tokens}
            if not taken and not any(guard.is_told_by(unit.text) for unit in created):
                sentence = f"{new.name or new.path} no longer checks `{guard.text[:100]}`."
                line = new.line if new.name else guard.line
                yield finding(Rule.VALIDATION_REMOVED, new.path, line, sentence, guard.text)


def _guards(unit: Unit) -> Iterator[Guard]:
    """The checks of inputs in a unit."""
    for match in _DECORATES.finditer(unit.head_text if unit.name else ""):
        yield Guard(match[0], match[1], unit.line_of(match.start()), match[0], unit)
    for block in branches(unit.tokens, unit.pairs):
        head, body = split(block.head, ";")[-1], " ".join(block.body)
        refusal = _REFUSES.search(body)
        error = next(filter(None, refusal.groups()), "") if refusal else ""
        if not refusal and _PREDICATE.match(unit.name) and re.fullmatch(r"return (False|false)", body):
            error = "false"
        text = f"if {' '.join(head)}: {body}"
        for part in map(" ".join, split(head, "or", "||")) if error and not _NO_GUARD.search(text) else ():
            if not _ERROR_GIVEN.fullmatch(part):
                yield Guard(part, error, unit.tokens[block.index].line, text, unit)
    for match in _CONSTRAINS.finditer(unit.text):
        field = re.findall(r"([^\W\d]\w*) [:=]", unit.text[: match.start()])[-1:]
        text = " ".join((*field, match[0]))
        yield Guard(text, match[0], unit.line_of(match.start()), text, unit, frozenset(field))
    given = {*unit.tokens[: unit.body]}
    for index in range(unit.body, len(unit.tokens) - 1):
        token, before, after = (unit.tokens[index], unit.tokens[index - 1], unit.tokens[index + 1])
        begins = index == unit.body or before in (";", "{", "}", ".", "await", "::")
        asks = token == "assert" or (_CHECKS.match(token) and after in ("(", "!"))
        if (begins and asks) or (_GUARDS.match(token) and after != "="):
            text = " ".join(unit.tokens[index : stop_at(unit.tokens, unit.pairs, index)]) if begins else token
            guard = Guard(text, token, unit.tokens[index].line, text, unit)
            if token != "assert" or guard.names & given:
                yield guard


def _delegated(guard: Guard, new: Unit, fresh: list[Unit]) -> bool:
    """Whether a helper, a decorator, a type or a schema checks it now."""
    old = guard.unit
    if guard.error != "false" and 0 < old.text.count(guard.error) <= new.text.count(guard.error):
        return True
    callees = new.calls - old.calls
    if any(map(_SCHEMA.search, callees)):
        return True
    for unit in fresh:
        if unit.name and unit.name in callees and _REFUSES.search(unit.text):
            return True
        is_near = unit.path == new.path or any(callee in unit.tokens for callee in callees)
        if not unit.name and is_near and _SCHEMA.search(unit.text) and guard.names & {*unit.tokens}:
            return True
    gained = {*new.tokens[: new.body]} - {*old.tokens[: old.body]}
    typed = bool(re.search(r"\b(typeof|isinstance|instanceof)\b", guard.condition)) and bool(gained - {"(", ")"})
    return typed or any(_SCHEMA.search(token) or token[0].isupper() for token in gained if token[0].isalpha())
