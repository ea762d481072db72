"""Checks that are told to look away: by comments and attributes, and by types that gave way to `any`.

A comment that names its rule and says why is only told; in tests, which bend types on purpose, the name is enough.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.findings import Finding, Rule
from ralph.core.patterns import regex
from ralph.verify.guards.changes import finding, gained
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.units import Source, Unit
from ralph.verify.judge_files import is_build_code, is_test_path

_DIRECTIVE = regex(
    r"(?:^\s*|[#*/]\s*|\s{2,})(?P<what>(?:ruff: |flake8: )?noqa\b|type:\s*ignore|mypy:\s*(?:ignore|disable|allow)[\w-]*|pragma:\s*no\s*(?:cover|branch)|pylint:\s*disable|"
    r"pyright:\s*(?:ignore|basic)|pyre-ignore|nosec\b|eslint-disable(?:-next-line|-line)?|oxlint-disable[\w-]*|@ts-ignore|@ts-nocheck|@ts-expect-error|"
    r"tslint:disable[\w:-]*|biome-ignore\b|deno-lint-ignore[\w-]*|nolint\b|lint:ignore\b|NOSONAR\b|NOLINT\w*|(?:istanbul|c8|v8) ignore|"
    r"CHECKSTYLE:OFF|noinspection\b|coverage:ignore\w*|shellcheck disable)(?P<rest>[^\n]*)"
)
_ABOUT_TYPES = regex(r"type:|mypy:|pyright:|pyre-|@ts-")
_ABOUT_COVERAGE = regex(r"pragma:\s*no|(istanbul|c8|v8) ignore|coverage:ignore")
_UNNAMED = regex(r"pragma|@ts-|NOSONAR|ignore (next|if|else|file|start)|(istanbul|c8|v8) ignore|CHECKSTYLE|coverage")  # fmt: skip
_WHOLE = regex(r"(ruff|flake8|mypy): ?|pyright: basic|eslint-disable$|ts-nocheck|tslint:disable$|ignore-file")
_CODE = regex(r"\s*[:=\[(]?\s*([@\w][\w@./:-]*(?:\s*,\s*[@\w][\w@./:-]*)*)[\])]?")
_ATTRIBUTE = regex(r"@ SuppressWarnings \( (?P<java>[^)]*) \)|@ SuppressFBWarnings\b|# !? ?\[ (?:allow|expect) \( (?P<rust>[^\]]*) \]")  # fmt: skip
_BROAD = regex(r'#!|"all"|clippy::all|warnings|unused\)|dead_code|clippy::(pedantic|correctness|suspicious)')
_PLAIN = regex(r"TYPE_CHECKING|__main__|abstractmethod|NotImplementedError|@overload|^\s*\.\.\.")


@dataclass(frozen=True)
class Suppression:
    """One such place."""

    path: str
    what: str
    line: int
    text: str
    is_narrow: bool
    """It names a rule, and holds for a line or a function."""
    reasoned: bool
    """It says why."""


def suppression_findings(work: Comparison) -> Iterator[Finding]:
    """Places that are new; a line that was moved is not."""
    was = [place for path, source in work.before.items() for place in _suppressions(source, path)]
    now = [place for source in work.new for place in _suppressions(source, source.path)]
    gone, fresh = (gained(*pair, lambda place: place.text) for pair in ((now, was), (was, now)))
    for place in gained(gone, fresh, lambda place: (place.path, place.what)):
        if not place.is_narrow:
            how = " without naming a rule, or for a whole file"
        elif not place.reasoned:
            how = " without a reason"
        else:
            how = ", with a reason"
        is_used = work.may_use(_checker(place.what))
        unused = "" if is_used else " The criterion does not use that checker."
        sentence = f"`{place.what}` turns a check off in {place.path}{how}.{unused}"
        warn = not is_used or (place.is_narrow and (place.reasoned or is_test_path(place.path)))
        yield finding(Rule.CHECK_DISABLED, place.path, place.line, sentence, place.text, warn=warn)


def _checker(directive: str) -> str:
    """The kind of checker that a directive speaks to."""
    if _ABOUT_TYPES.match(directive):
        return "types"
    return "coverage" if _ABOUT_COVERAGE.match(directive) else "lint"


def _suppressions(source: Source, path: str) -> Iterator[Suppression]:
    lines = ["", *(line.strip() for line in source.text.splitlines()), ""]
    comments = [(line, text) for line, text in source.comments if line < len(lines)]
    plain = (line for line, text in comments if not _DIRECTIVE.search(text) and len(text.split()) > 2)
    said = {line + 1 for line in plain if lines[line][:1] in "#/*"}
    for line, text in comments:
        for match in _DIRECTIVE.finditer(re.sub(r"^(#|//|/\*+|\")!?", "", text)):
            what, rest = match["what"], match["rest"]
            named = None if _UNNAMED.search(what) or re.match(r"\s+(-|#|//)", rest) else _CODE.match(rest)
            reason = len(re.sub(r"[^\w ]", "", rest[named.end() if named else 0 :]).split()) > 1 or line in said
            is_usual = what == "@ts-expect-error" or bool("no" in what and _PLAIN.search(lines[line]))
            narrow = (named is not None or is_usual) and not _WHOLE.search(what)
            full = f"{what} {named[1]}" if named else what
            yield Suppression(path, full, line, lines[line], narrow, reason or (is_usual and what[0] != "@"))
    for unit in source.everything:
        for match in _ATTRIBUTE.finditer(unit.text):
            line, what = unit.line_of(match.start()), match[0].replace(" ", "")
            beside = re.search(r"(//|/\*)\s*\S+ \S+", lines[line]) or 'reason = "' in match[0] or line in said
            yield Suppression(path, what, line, lines[line], not _BROAD.search(what), bool(beside))


_TYPED = regex(r"(?<!\.d)\.([cm]?tsx?|pyi?)$")
_ANYS = {
    "js": regex(
        r"(?P<cast>\bas any\b|\bas unknown as\b|(?<=[=(,:] )< any >)|\w+ [!?]? ?(?P<whole>: any)\b(?! [(:.])|[<,|] (?P<part>any) [>,|\[]"
    ),
    "python": regex(
        r'(?P<cast>\bcast \( (?:\w+ \. )?"?Any\b)|(?<!\* )\b\w+ (?P<whole>: (?:\w+ \. )?Any)\b(?! [\[.])|(?P<result>-> (?:\w+ \. )?Any)\b'
    ),
}
_CAUGHT = regex(r"catch \( \w+ $")


def untyped_findings(work: Comparison) -> Iterator[Finding]:
    """Files with an `any` that is new, where there are more of them than before, all in all."""
    was, now = ([(unit, match) for unit in units for match in _anys(unit)] for units in (work.stale, work.fresh))
    found: dict[str, list[tuple[Unit, re.Match[str]]]] = {}
    for place in gained(was, now, lambda place: place[1][0]) if len(now) > len(was) else ():
        found.setdefault(place[0].path, []).append(place)
    for path, places in found.items():
        silent = [place for place in places if _silences(work, *place)]
        unit, match = (silent or places)[0]
        others = f" and {len(places) - 1} more" if len(places) > 1 else ""
        sentence = f"`{match[0]}`{others} in {path}: a type checker has nothing to say about `any`."
        yield work.found(Rule.CHECK_DISABLED, path, unit.line_of(match.start()), sentence, warn=not silent)


def _silences(work: Comparison, unit: Unit, match: re.Match[str]) -> bool:
    """Whether a checker runs, and would have had something to say: of code that is new, Python's may be honestly `Any`."""
    before, origin, is_js = work.before.get(unit.path), work.origin.get(unit), unit.language == "js"
    was_typed = before is None or bool(_TYPED.search(before.path))
    told = rf"\b{re.escape(match[0].split()[0])} [:=]" if match.lastgroup != "result" else "->"
    was_told = origin is not None and (is_js or bool(re.search(told, origin.text)))
    is_bent = match.lastgroup == "cast" or (match.lastgroup == "whole" and is_js)
    return "types" in work.kinds and was_typed and (is_bent or was_told)


def _anys(unit: Unit) -> Iterator[re.Match[str]]:
    """A `cast`, the `whole` type of a name, a `part` of one, or the `result` of a function."""
    judged = not unit.in_tests and not is_build_code(unit.path) and _TYPED.search(unit.path)
    for match in _ANYS[unit.language].finditer(unit.text) if judged else ():
        if not _CAUGHT.search(unit.text[: match.start(match.lastgroup or 0)]):
            yield match
