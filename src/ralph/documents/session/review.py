"""`review.md`: what the review of an iteration came to, and the issues that it found."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ralph.documents.session.issues import Issue, Severity, issues_in
from ralph.documents.session.markdown import Page, fields
from ralph.documents.session.yaml_lines import front_values, number_of, text_of


class Assessment(StrEnum):
    """What the review came to."""

    COMPLETE = "Complete"
    GAPS = "Gaps Identified"
    INCOMPLETE = "Incomplete"

    @classmethod
    def read(cls, text: str) -> "Assessment | None":
        """The assessment in any of the words in use; None where there is none, or more than one."""
        found = {one for words, one in _WORDS if words.search(text)}
        return found.pop() if len(found) == 1 else None


_WORDS = (
    (re.compile(r"(?<!not )(?<!in)\b(?:complete|stable)\b", re.IGNORECASE), Assessment.COMPLETE),
    (re.compile(r"\b(?:gaps? identified|needs feedback|follow-up suggested)\b", re.IGNORECASE), Assessment.GAPS),
    (re.compile(r"\b(?:incomplete|not complete|needs rework)\b", re.IGNORECASE), Assessment.INCOMPLETE),
)
_THRESHOLDS = {
    "any": tuple(Severity),
    "major": (Severity.CRITICAL, Severity.MAJOR),
    "critical": (Severity.CRITICAL,),
}


@dataclass(frozen=True)
class Review:
    """The review of an iteration."""

    assessment: Assessment | None = None
    iteration: int = 1
    issues: Mapping[str, Issue] = field(default_factory=dict)

    def active(self, threshold: str = "any") -> list[Issue]:
        """The issues that count from that severity on: `any`, `major` or `critical`."""
        return [one for one in self.issues.values() if one.severity in _THRESHOLDS[threshold] and not one.resolved]


def parse(text: str) -> Review:
    """The review in a file, as far as it can be read."""
    page = Page(text)
    front = front_values(page)
    assessment = Assessment.read(text_of(front.get("overall_verdict") or front.get("assessment")))
    section = page.section("overall assessment", "assessment", "overall verdict")
    for line in section.own if section and not assessment else ():
        if line.strip():
            assessment = Assessment.read(line)
            break
    if not assessment:
        said = fields(page.prose)
        assessment = Assessment.read(said.get("overall assessment") or said.get("assessment") or "")
    return Review(assessment, number_of(front.get("iteration")) or _iteration(page), issues_in(page))


def problems(text: str) -> list[str]:
    """What is wrong with a review, a sentence each."""
    words = ", ".join(Assessment)
    return [] if parse(text).assessment else [f"line 1: the review has no overall assessment ({words})"]


def _iteration(page: Page) -> int:
    found = (re.fullmatch(r".*\biteration (\d{1,6})\b.*", one.name) for one in page.sections if one.level == 1)
    return next((int(match[1]) for match in found if match), 1)
