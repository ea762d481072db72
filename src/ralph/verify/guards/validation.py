"""Checks of inputs that the product made and no longer makes."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.assertions import literals_in
from ralph.verify.guards.changes import finding
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.lexer import words
from ralph.verify.guards.syntax import branches, split, statement_end
from ralph.verify.guards.units import Unit

_REFUSES = re.compile(
    r"\b(?:raise|throw new|throw) (?P<error>[\w. ]*\w)|return Err \( (?P<rust>[\w: ]*)|\b(?P<stop>panic|bail|abort)\b !? ?\("
    r"|return [^;]*?(?P<go>\bErr\w+|errors \. New|fmt \. Errorf|\w*[eE]rror\w*)"
    r"|return [^;]*\b(?P<status>4\d\d|\w*(?:[Ii]nvalid|[Ff]orbidden|[Uu]nauthori[sz]ed|[Dd]enied|BadRequest)\w*)"
)
_UNFINISHED = re.compile(
    r"(?i)NotImplemented|unimplemented|todo\b|not (yet )?(implemented|supported)|UnsupportedOperation"
)
_CHECKS = re.compile(
    r"_?(validate|check|verify|ensure|require|assert|authori[sz]e|authenticate|saniti[sz]e)([A-Z_]\w*)?$|raise_for_status$|requireNonNull$"
)
_DECORATES = re.compile(
    r"@ (?:\w+ \. )*(\w*(?:valid|require|permission|auth|csrf|NotNull|NotBlank|Min|Max|Secured|Roles)\w*)", re.I
)
_SCHEMA = re.compile(
    r"(?i)schema|valid|BaseModel|Field|constraint|\bz \.|Joi|yup|Positive|NotNull|Literal|Annotated|require|ensure|check|parse|guard"
)
_PREDICATE = re.compile(r"_?(is|has|can|valid|check|verify|allow|auth)")
_NEVER = re.compile(r"\b(False and|false &&|if False|if \( false|if false)")
_GRAMMAR = words("not is None len nil null undefined if in and or typeof self this")


@dataclass(frozen=True)
class Guard:
    """One check of an input: what it asks, and the error that refuses."""

    condition: str
    error: str
    line: int
    text: str
    unit: Unit

    @cached_property
    def names(self) -> frozenset[str]:
        """What it looks at: variables, and the keys of mappings."""
        return frozenset(re.findall(r"[^\W\d]\w*", self.condition)) - _GRAMMAR

    def resembles(self, other: "Guard") -> bool:
        """Whether another guard could be this one, rewritten or moved."""
        said = {literal for literal in literals_in(self.text) if len(literal) > 3}
        if said & set(literals_in(other.text)):
            return True
        return bool(self.names & other.names or not self.names) and (
            self.error == other.error or self.unit.name == other.unit.name
        )


def validation_findings(work: Comparison) -> Iterator[Finding]:
    """Guards that went and were taken up nowhere."""
    fresh = [unit for unit in work.fresh if not unit.in_tests]
    known = Counter((guard.condition, guard.error) for unit in work.stale for guard in _guards(unit))
    added = []
    for guard in (guard for unit in fresh for guard in _guards(unit) if not _NEVER.search(guard.text)):
        known[guard.condition, guard.error] -= 1
        if known[guard.condition, guard.error] < 0:
            added.append(guard)
    for old, new in work.product_pairs:
        if new is None or old.tokens == new.tokens:
            continue
        asked = Counter(guard.condition for guard in _guards(new) if not _NEVER.search(guard.text))
        for guard in _guards(old):
            asked[guard.condition] -= 1
            if (
                asked[guard.condition] < 0
                and not any(map(guard.resembles, added))
                and not _delegated(guard, new, fresh)
            ):
                sentence = f"{new.name or new.path} no longer checks `{guard.text[:100]}`."
                yield finding(
                    Rule.VALIDATION_REMOVED, new.path, new.line if new.name else guard.line, sentence, guard.text
                )


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
        if error and not _UNFINISHED.search(text) and not re.search(r"\b(err|\w+Err) != nil", text):
            yield from (
                Guard(" ".join(part), error, unit.lines[block.index], text, unit) for part in split(head, "or", "||")
            )
    given = {*unit.tokens[: unit.body]}
    for index in range(unit.body, len(unit.tokens) - 1):
        token, before, after = unit.tokens[index], unit.tokens[index - 1], unit.tokens[index + 1]
        if index > unit.body and before not in (";", "{", "}", ".", "await", "::"):
            continue
        if token == "assert" or (_CHECKS.match(token) and after in ("(", "!")):
            text = " ".join(unit.tokens[index : statement_end(unit.tokens, unit.pairs, index)])
            guard = Guard(text, token, unit.lines[index], text, unit)
            if token != "assert" or guard.names & given:
                yield guard


def _delegated(guard: Guard, new: Unit, fresh: list[Unit]) -> bool:
    """Whether a helper, a decorator, a type or a schema checks it now."""
    old = guard.unit
    if (
        guard.error != "false"
        and guard.error in new.text
        and new.text.count(guard.error) >= old.text.count(guard.error)
    ):
        return True
    callees = new.calls - old.calls
    if any(map(_SCHEMA.search, callees)):
        return True
    for unit in fresh:
        if unit.name and unit.name in callees and _REFUSES.search(unit.text):
            return True
        if not unit.name and unit.path == new.path and _SCHEMA.search(unit.text) and guard.names & {*unit.tokens}:
            return True
    gained = {*new.tokens[: new.body]} - {*old.tokens[: old.body]}
    typed = bool(re.search(r"\b(typeof|isinstance|instanceof)\b", guard.condition)) and bool(gained - {"(", ")"})
    return typed or any(_SCHEMA.search(token) or token[0].isupper() for token in gained if token[0].isalpha())
