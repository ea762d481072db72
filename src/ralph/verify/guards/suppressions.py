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
    lines = source.text.splitlines()

    def text_at(line: int) -> str:
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    spoken = {
        line
        for line, text in source.comments
        if not _DIRECTIVE.search(text) and len(text.split()) > 2 and text_at(line)[:1] in "#/*"
    }
    for line, text in source.comments:
        for match in _DIRECTIVE.finditer(re.sub(r"^(#|//|/\*+|\")!?", "", text)):
            code = _CODE.match(match["rest"])
            rest = match["rest"][code.end() :] if code and not _UNNAMED.search(match["what"]) else match["rest"]
            named = bool(code) and not _UNNAMED.search(match["what"]) and not re.match(r"\s+(-|#|//)", match["rest"])
            reason = len(re.sub(r"[^\w ]", "", rest).split()) > 1 or line - 1 in spoken
            if match["what"] == "@ts-expect-error":
                named, reason = True, len(match["rest"].split()) > 1
            excused = "no" in match["what"] and bool(_PLAIN.search(text_at(line)))
            yield Suppression(
                f"{match['what']}{code[1] if code and named else ''}",
                line,
                text_at(line),
                (named and reason) or excused,
            )
    for unit in source.everything:
        for match in _ATTRIBUTE.finditer(unit.text):
            line = unit.line_of(match.start())
            beside = re.search(r"(//|/\*)\s*\S+ \S+", text_at(line)) or 'reason = "' in match[0]
            yield Suppression(match[0].replace(" ", ""), line, text_at(line), bool(beside) or line - 1 in spoken)
