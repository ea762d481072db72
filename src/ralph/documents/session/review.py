"""`review.md`: what the review of an iteration came to, and the issues that it found."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ralph.documents.session.issues import Issue, Severity, issues_in
from ralph.documents.session.markdown import Page, fields
from ralph.documents.session.values import first_of, number_of, text_of
from ralph.documents.session.yaml_lines import front_values


class Assessment(StrEnum):
    """What the review came to."""

    COMPLETE = "Complete"
    GAPS = "Gaps Identified"
    INCOMPLETE = "Incomplete"

    @classmethod
    def read(cls, text: str) -> "Assessment | None":
        """The assessment in any of the words in use; None where there is none."""
        return first_of(text, _WORDS)


_WORDS = (
    (r"(?<!not )\b(?:complete|stable)\b", Assessment.COMPLETE),
    (r"\b(?:gaps? identified|needs feedback|follow-up suggested)\b", Assessment.GAPS),
    (r"\b(?:incomplete|not complete|needs rework)\b", Assessment.INCOMPLETE),
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
        listed = fields(page.prose)
        assessment = Assessment.read(listed.get("overall assessment") or listed.get("assessment") or "")
    return Review(assessment, number_of(front.get("iteration")) or _iteration(page), issues_in(page))


def problems(text: str) -> list[str]:
    """What is wrong with a review, a sentence each."""
    words = ", ".join(Assessment)
    return [] if parse(text).assessment else [f"line 1: the review has no overall assessment ({words})"]


def _iteration(page: Page) -> int:
    found = (re.fullmatch(r".*\biteration (\d{1,6})\b.*", one.name) for one in page.sections if one.level == 1)
    return next((int(match[1]) for match in found if match), 1)
