"""Checks of inputs that the product made and no longer makes."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.assertions import literals_in
from ralph.verify.guards.changes import finding
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.syntax import branches, split, statement_end
from ralph.verify.guards.units import Unit

_REFUSES = re.compile(
    r"\b(?:raise|throw|throw new)\b (?P<error>[\w. ]*\w)|return Err \( (?P<rust>[\w: ]*)|\b(?P<stop>panic|bail|abort|todo)\b !? ?\("
    r"|return [^;]*?(?P<go>\bErr\w+|errors \. New|fmt \. Errorf|\w*[eE]rror\w*)|return [^;]*\b(?P<status>4\d\d|\w*(?:[Ii]nvalid|[Ff]orbidden|[Uu]nauthori[sz]ed|[Dd]enied|BadRequest)\w*)"
)
_UNFINISHED = re.compile(
    r"(?i)NotImplemented|unimplemented|todo\b|not (yet )?(implemented|supported)|UnsupportedOperation"
)
_CHECKS = re.compile(
    r"_?(validate|check|verify|ensure|require|assert|authori[sz]e|authenticate|saniti[sz]e)([A-Z_]\w*)?$|raise_for_status$|requireNonNull$"
)
_GUARDING = re.compile(
    r"@ (?:\w+ \. )*(\w*(?:valid|require|permission|auth|csrf|NotNull|NotBlank|Min|Max|Secured|Roles)\w*)", re.I
)
_SCHEMA = re.compile(
    r"(?i)schema|valid|BaseModel|Field|constraint|\bz \.|Joi|yup|Positive|NotNull|Literal|Annotated|require|ensure|check|parse|guard"
)
_PREDICATE = re.compile(r"_?(is|has|can|valid|check|verify|allow|auth)")
_ALWAYS_OFF = re.compile(r"\b(False and|false &&|if False|if \( false)")


_GRAMMAR = frozenset(
    ["not", "is", "None", "len", "nil", "null", "undefined", "if", "in", "and", "or", "typeof", "self", "this"]
)


@dataclass(frozen=True)
class Guard:
    """One check of an input: the condition, and the error that refuses it."""

    condition: str
    error: str
    line: int
    text: str

    @property
    def names(self) -> frozenset[str]:
        """What it looks at: variables, and the keys of mappings."""
        return frozenset(re.findall(r"[^\W\d]\w*", self.condition)) - _GRAMMAR


def validation_findings(work: Comparison) -> Iterator[Finding]:
    """Guards that went and were taken up nowhere."""
    fresh = [unit for unit in work.fresh if not unit.in_tests]
    before = {unit.text for unit in work.stale}
    added = [guard for unit in fresh for guard in guards(unit)]
    for old, new in work.product_pairs:
        if new is None or old.tokens == new.tokens:
            continue
        for guard in _lost(old, new):
            if not _taken_up(guard, old, new, fresh, added, before):
                sentence = f"{new.name or new.path} no longer checks `{guard.text[:100]}`."
                yield finding(
                    Rule.VALIDATION_REMOVED, new.path, new.line if new.name else guard.line, sentence, guard.text
                )


def guards(unit: Unit) -> list[Guard]:
    """The checks of inputs in a unit."""
    found = [
        Guard("", match[1], unit.line_of(match.start()), match[0])
        for match in _GUARDING.finditer(unit.head_text if unit.name else "")
    ]
    for block in branches(unit.tokens, unit.pairs):
        body = " ".join(block.body)
        head = " ".join(split(block.head, ";")[-1])
        refusal = _REFUSES.search(body)
        error = next((value for value in refusal.groups() if value), "") if refusal else ""
        if not refusal and _PREDICATE.match(unit.name) and re.fullmatch(r"return (False|false)", body):
            error = "false"
        if error and not _UNFINISHED.search(f"{body} {error}") and not re.search(r"\b(err|\w+Err) != nil", head):
            line = unit.lines[block.index]
            found += [
                Guard(" ".join(part), error, line, f"if {head}: {body}") for part in split(block.head, "or", "||")
            ]
    for index in range(unit.body, len(unit.tokens) - 1):
        token, starts = (
            unit.tokens[index],
            index == unit.body or unit.tokens[index - 1] in (";", "{", "}", ".", "await", "::"),
        )
        if starts and (token == "assert" or (_CHECKS.match(token) and unit.tokens[index + 1] in ("(", "!"))):
            text = " ".join(unit.tokens[index : statement_end(unit.tokens, unit.pairs, index)])
            found.append(Guard(text, token, unit.lines[index], text))
    return found


def _lost(old: Unit, new: Unit) -> list[Guard]:
    """Guards that are gone, but for those whose condition was only rewritten."""
    now = guards(new)
    asked = {guard.condition for guard in now if guard.condition and not _ALWAYS_OFF.search(guard.text)}
    kept = Counter((guard.condition, guard.error) for guard in now)
    lost = [
        guard
        for guard in guards(old)
        if not _count_down(kept, (guard.condition, guard.error)) and guard.condition not in asked
    ]
    rewritten = [
        guard
        for guard in now
        if _count_down(kept, (guard.condition, guard.error)) and not _ALWAYS_OFF.search(guard.text)
    ]
    result = []
    for guard in lost:
        other = next(
            (o for o in rewritten if o.error == guard.error and (o.names & guard.names or not guard.names)), None
        )
        if other:
            rewritten.remove(other)
        else:
            result.append(guard)
    return result


def _count_down(counts: Counter[tuple[str, str]], key: tuple[str, str]) -> bool:
    counts[key] -= 1
    return counts[key] >= 0


def _taken_up(guard: Guard, old: Unit, new: Unit, fresh: list[Unit], added: list[Guard], before: set[str]) -> bool:
    """Whether a helper, a decorator or a schema checks it now."""
    said = {literal for literal in literals_in(guard.text) if len(literal) > 3}
    for other in added:
        same_error = other.error == guard.error and (other.error != "false")
        if (
            other.text != guard.text
            and same_error
            and (other.names & guard.names or said & set(literals_in(other.text)))
        ):
            return True
    callees = new.calls - old.calls
    for unit in fresh:
        if (
            unit is not new
            and unit.text not in before
            and (unit.name in callees or not unit.name)
            and unit.name != new.name
        ):
            if unit.name and (guards(unit) or _REFUSES.search(unit.text)):
                return True
            if (
                not unit.name
                and _SCHEMA.search(unit.text)
                and guard.names & {*unit.tokens}
                and unit.path == new.path
                and _grown(unit, old, before)
            ):
                return True
    if any(_SCHEMA.search(name) for name in callees) or (
        guard.error in new.text and guard.error in _unconditional(new)
    ):
        return True
    gained = {*new.tokens[: new.body]} - {*old.tokens[: old.body]}
    return any(_SCHEMA.search(token) or token[0].isupper() for token in gained if token[0].isalpha())


def _unconditional(unit: Unit) -> str:
    """Refusals that stand in handlers and other places than branches."""
    return (
        " ".join(match[0] for match in _REFUSES.finditer(unit.text))
        if re.search(r"\b(except|catch|else|match|case|\?)\b", unit.text)
        else ""
    )


def _grown(unit: Unit, old: Unit, before: set[str]) -> bool:
    return unit.text not in before
