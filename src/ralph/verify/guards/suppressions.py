"""Comments and attributes that tell a linter, a type checker or coverage to look away.

One that names its rule and says why is only told; in tests, which bend types on purpose, the name is enough.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import finding, is_test_path
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.units import Source

_DIRECTIVE = re.compile(
    r"(?:^\s*|[#*/]\s*|\s{2,})(?P<what>(?:ruff: |flake8: )?noqa\b|type:\s*ignore|mypy:\s*(?:ignore|disable|allow)[\w-]*|pragma:\s*no\s*(?:cover|branch)|pylint:\s*disable|"
    r"pyright:\s*(?:ignore|basic)|pyre-ignore|nosec\b|eslint-disable(?:-next-line|-line)?|oxlint-disable[\w-]*|@ts-ignore|@ts-nocheck|@ts-expect-error|"
    r"tslint:disable[\w:-]*|biome-ignore\b|deno-lint-ignore[\w-]*|nolint\b|lint:ignore\b|NOSONAR\b|NOLINT\w*|(?:istanbul|c8|v8) ignore|"
    r"CHECKSTYLE:OFF|noinspection\b|coverage:ignore\w*|shellcheck disable)(?P<rest>[^\n]*)"
)
_UNNAMED = re.compile(r"pragma|@ts-|NOSONAR|ignore (next|if|else|file|start)|(istanbul|c8|v8) ignore|CHECKSTYLE|coverage")  # fmt: skip
_WHOLE = re.compile(r"(ruff|flake8|mypy): ?|pyright: basic|eslint-disable$|ts-nocheck|tslint:disable$|ignore-file")
_CODE = re.compile(r"\s*[:=\[(]?\s*([@\w][\w@./:-]*(?:\s*,\s*[@\w][\w@./:-]*)*)[\])]?")
_ATTRIBUTE = re.compile(r"@ SuppressWarnings \( (?P<java>[^)]*) \)|@ SuppressFBWarnings\b|# !? ?\[ (?:allow|expect) \( (?P<rust>[^\]]*) \]")  # fmt: skip
_BROAD = re.compile(r'#!|"all"|clippy::all|warnings|unused\)|dead_code|clippy::(pedantic|correctness|suspicious)')
_PLAIN = re.compile(r"TYPE_CHECKING|__main__|abstractmethod|NotImplementedError|@overload|^\s*\.\.\.")


@dataclass(frozen=True)
class Suppression:
    """One such place."""

    what: str
    line: int
    text: str
    is_narrow: bool
    """It names a rule, and holds for a line or a function."""
    reasoned: bool
    """It says why."""


def suppression_findings(work: Comparison) -> Iterator[Finding]:
    """Places that are new; a line that was moved is not."""
    before = {source.path: list(_suppressions(source)) for source in work.old}
    moved = Counter(place.text for places in before.values() for place in places)
    for source in work.new:
        old = work.source_before(source.path)
        known = Counter(place.what for place in before.get(old.path, ())) if old else Counter[str]()
        for place in sorted(_suppressions(source), key=lambda place: moved[place.text] == 0):
            is_moved = moved[place.text] > 0
            moved[place.text] -= is_moved
            known[place.what] -= 1
            if not is_moved and known[place.what] < 0:
                how = "with a reason" if place.reasoned else "without naming both a rule and a reason"
                sentence = f"`{place.what}` turns a check off in {source.path} {how}."
                warn = place.is_narrow and (place.reasoned or is_test_path(source.path))
                yield finding(Rule.CHECK_DISABLED, source.path, place.line, sentence, place.text, warn=warn)


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
            named = None if _UNNAMED.search(what) or re.match(r"\s+(-|#|//)", rest) else _CODE.match(rest)
            reason = len(re.sub(r"[^\w ]", "", rest[named.end() if named else 0 :]).split()) > 1 or line in said
            is_usual = what == "@ts-expect-error" or bool("no" in what and _PLAIN.search(lines[line]))
            narrow = (named is not None or is_usual) and not _WHOLE.search(what)
            full = f"{what} {named[1]}" if named else what
            yield Suppression(full, line, lines[line], narrow, reason or (is_usual and what[0] != "@"))
    for unit in source.everything:
        for match in _ATTRIBUTE.finditer(unit.text):
            line, what = unit.line_of(match.start()), match[0].replace(" ", "")
            beside = re.search(r"(//|/\*)\s*\S+ \S+", lines[line]) or 'reason = "' in match[0] or line in said
            yield Suppression(what, line, lines[line], not _BROAD.search(what), bool(beside))
