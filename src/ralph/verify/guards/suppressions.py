"""Comments and attributes that tell a linter, a type checker or coverage to look away."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import finding
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.units import Source

_DIRECTIVE = re.compile(
    r"(?:^\s*|[#*/]\s*|\s{2,})(?P<what>(?:ruff: |flake8: )?noqa\b|type:\s*ignore|mypy:\s*(?:ignore|disable|allow)[\w-]*|pragma:\s*no\s*(?:cover|branch)|pylint:\s*disable|"
    r"pyright:\s*(?:ignore|basic)|pyre-ignore|nosec\b|eslint-disable(?:-next-line|-line)?|oxlint-disable[\w-]*|@ts-ignore|@ts-nocheck|@ts-expect-error|"
    r"tslint:disable[\w:-]*|biome-ignore\b|deno-lint-ignore[\w-]*|nolint\b|lint:ignore\b|NOSONAR\b|NOLINT\w*|(?:istanbul|c8|v8) ignore|"
    r"CHECKSTYLE:OFF|noinspection\b|coverage:ignore\w*|shellcheck disable)(?P<rest>[^\n]*)"
)
_UNNAMED = re.compile(
    r"pragma|@ts-ignore|@ts-nocheck|NOSONAR|ignore (next|if|else|file|start)|(istanbul|c8|v8) ignore|CHECKSTYLE|coverage"
)
_CODE = re.compile(r"\s*[:=\[(]?\s*([@\w][\w@./:-]*(?:\s*,\s*[@\w][\w@./:-]*)*)[\])]?")
_ATTRIBUTE = re.compile(
    r"@ SuppressWarnings \( (?P<java>[^)]*) \)|@ SuppressFBWarnings\b|# !? ?\[ (?:allow|expect) \( (?P<rust>[^\]]*) \]"
)
_PLAIN = re.compile(r"TYPE_CHECKING|__main__|abstractmethod|NotImplementedError|@overload|^\s*\.\.\.")


@dataclass(frozen=True)
class Suppression:
    """One such place."""

    what: str
    line: int
    text: str
    reasoned: bool
    """It names the rule and says why."""


def suppression_findings(work: Comparison) -> Iterator[Finding]:
    """Places that are new; a line that was moved is not."""
    back = {new: old for old, new in work.renames.items()}
    before = {source.path: list(_suppressions(source)) for source in work.old}
    moved = Counter(place.text for places in before.values() for place in places)
    for source in work.new:
        known = Counter(place.what for place in before.get(back.get(source.path, source.path), ()))
        fresh = []
        for place in _suppressions(source):
            if moved[place.text] > 0:
                moved[place.text] -= 1
                known[place.what] -= 1
            else:
                fresh.append(place)
        for place in fresh:
            known[place.what] -= 1
            if known[place.what] < 0:
                how = "with a reason" if place.reasoned else "without naming both a rule and a reason"
                sentence = f"`{place.what}` turns a check off in {source.path} {how}."
                yield finding(Rule.CHECK_DISABLED, source.path, place.line, sentence, place.text, warn=place.reasoned)


def _suppressions(source: Source) -> Iterator[Suppression]:
    lines = ["", *(line.strip() for line in source.text.splitlines()), ""]
    comments = [(line, text) for line, text in source.comments if line < len(lines)]
    said = {
        line + 1
        for line, text in comments
        if not _DIRECTIVE.search(text) and len(text.split()) > 2 and lines[line][:1] in "#/*"
    }
    for line, text in comments:
        for match in _DIRECTIVE.finditer(re.sub(r"^(#|//|/\*+|\")!?", "", text)):
            what, rest = match["what"], match["rest"]
            code = None if _UNNAMED.search(what) or re.match(r"\s+(-|#|//)", rest) else _CODE.match(rest)
            reason = len(re.sub(r"[^\w ]", "", rest[code.end() if code else 0 :]).split()) > 1 or line in said
            if what == "@ts-expect-error":
                reasoned = len(rest.split()) > 1
            else:
                reasoned = bool(code and reason) or bool("no" in what and _PLAIN.search(lines[line]))
            yield Suppression(f"{what} {code[1]}" if code else what, line, lines[line], reasoned)
    for unit in source.everything:
        for match in _ATTRIBUTE.finditer(unit.text):
            line = unit.line_of(match.start())
            beside = re.search(r"(//|/\*)\s*\S+ \S+", lines[line]) or 'reason = "' in match[0] or line in said
            yield Suppression(match[0].replace(" ", ""), line, lines[line], bool(beside))
