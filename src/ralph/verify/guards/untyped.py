"""Types that gave way to `any`, by which a type checker has nothing left to say."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ralph.core.findings import Finding, Rule
from ralph.verify.guards.changes import finding, gained, is_build_file
from ralph.verify.guards.comparison import Comparison
from ralph.verify.guards.units import Unit

_TYPED = re.compile(r"(?<!\.d)\.([cm]?tsx?|pyi?)$")
_PLACES = {
    "js": re.compile(
        r"(?P<cast>\bas any\b|\bas unknown as\b|(?<=[=(,:] )< any >)|\w+ [!?]? ?(?P<whole>: any)\b(?! [(:.])|[<,|] (?P<part>any) [>,|\[]"
    ),
    "python": re.compile(
        r'(?P<cast>\bcast \( (?:\w+ \. )?"?Any\b)|(?<!\* )\b\w+ (?P<whole>: (?:\w+ \. )?Any)\b(?! [\[.])|(?P<result>-> (?:\w+ \. )?Any)\b'
    ),
}
_CAUGHT = re.compile(r"catch \( \w+ $")


@dataclass(frozen=True)
class _Place:
    """One `any`."""

    unit: Unit
    text: str
    position: int
    kind: str
    """A `cast`, the `whole` type of a name, a `part` of one, or the `result` of a function."""

    def replaces(self, before: Unit) -> bool:
        """Whether a type was told there, or could be told, before."""
        if self.unit.language != "python":
            return True
        return (
            "->" in before.head_text if self.kind == "result" else bool(_told(self.text.split()[0]).search(before.text))
        )


def _told(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(name)} [:=]")


def untyped_findings(work: Comparison) -> Iterator[Finding]:
    """Files with places that are new, where there are more of them than before, all in all."""
    was, now = ([place for unit in units for place in _places(unit)] for units in (work.stale, work.fresh))
    found: dict[str, list[_Place]] = {}
    for place in gained(was, now, lambda place: place.text) if len(now) > len(was) else ():
        found.setdefault(place.unit.path, []).append(place)
    for path, places in found.items():
        first = next((place for place in places if _silences(work, place)), places[0])
        line = first.unit.line_of(first.position)
        others = f" and {len(places) - 1} more" if len(places) > 1 else ""
        sentence = f"`{first.text}`{others} in {path}: a type checker has nothing to say about `any`."
        warn = not _silences(work, first)
        yield finding(Rule.CHECK_DISABLED, path, line, sentence, work.excerpt(path, line), warn=warn)


def _silences(work: Comparison, place: _Place) -> bool:
    """Whether a checker runs, and would have had something to say: of code that is new, Python's may be honestly `Any`."""
    before = work.source_before(place.unit.path)
    was_typed = before is None or bool(_TYPED.search(before.path))
    origin = work.origin.get(place.unit)
    is_bent = place.kind == "cast" or (place.kind == "whole" and place.unit.language == "js")
    return "types" in work.kinds and was_typed and (is_bent or (origin is not None and place.replaces(origin)))


def _places(unit: Unit) -> Iterator[_Place]:
    pattern = _PLACES.get(unit.language)
    if pattern is None or unit.in_tests or is_build_file(unit.path) or not _TYPED.search(unit.path):
        return
    for match in pattern.finditer(unit.text):
        if not _CAUGHT.search(unit.text[: match.start(match.lastgroup or 0)]):
            yield _Place(unit, match[0], match.start(), match.lastgroup or "")
