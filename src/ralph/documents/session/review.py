"""`review.md`: what the review of an iteration came to, and how bad the issues are that it found."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ralph.documents.plain_yaml import lines_of
from ralph.documents.session.markdown import Page, Section, bullets, fields
from ralph.documents.session.values import first_of, text_of, words_of
from ralph.documents.session.yaml_lines import front_values

_ID = re.compile(r"\W*((?:ISS|Q)(?:-[A-Za-z]{1,4})?-\d{1,6})\b.*", re.DOTALL)
_LIST = re.compile(r".*\b(?:critical|major|minor|quality|issues?|gaps?)\b.*")
_NO_LIST = re.compile(
    r".*\b(?:requirements?|positive|artifacts?|assessment|summary|recommendations?|actions?|validation|context)\b.*"
)
_NONE = re.compile(
    r"\W*(?:(?:none|n/a|nothing|no (?:\w+ )?(?:issues?|gaps?))(?: (?:found|identified|known))?)?\W*", re.IGNORECASE
)
_UNFILLED = re.compile(r"\[[^\]]*\]|\.{3}|…")


class Assessment(StrEnum):
    """What the review came to."""

    COMPLETE = "Complete"
    GAPS = "Gaps Identified"
    INCOMPLETE = "Incomplete"


class Severity(StrEnum):
    """How bad an issue is."""

    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"


_ASSESSMENTS = (
    (r"(?<!not )\b(?:complete|stable)\b", Assessment.COMPLETE),
    (r"\b(?:gaps? identified|needs feedback|follow-up suggested)\b", Assessment.GAPS),
    (r"\b(?:incomplete|not complete|needs rework)\b", Assessment.INCOMPLETE),
)
_SEVERITIES = (
    (r"\b(?:critical|blocker|blocking|p0)\b", Severity.CRITICAL),
    (r"\b(?:major|high|medium|quality|gaps?|p1|p2)\b", Severity.MAJOR),
    (r"\b(?:minor|low|trivial|cosmetic|p3)\b", Severity.MINOR),
)
_LETTERS = {"C": Severity.CRITICAL, "M": Severity.MAJOR, "m": Severity.MINOR}
_THRESHOLDS = {"any": tuple(Severity), "major": (Severity.CRITICAL, Severity.MAJOR), "critical": (Severity.CRITICAL,)}


@dataclass(frozen=True)
class Review:
    """The review of an iteration."""

    assessment: Assessment | None = None
    issues: Mapping[str, Severity] = field(default_factory=dict)
    """How bad each issue is that was not resolved, by id."""

    def active(self, threshold: str = "any") -> list[str]:
        """The issues that count from that severity on: `any`, `major` or `critical`."""
        return [id for id, severity in self.issues.items() if severity in _THRESHOLDS[threshold]]


def parse(text: str) -> Review:
    """The review in a file, as far as it can be read."""
    page = Page(text)
    front = front_values(page)
    assessment = _assessed(text_of(front.get("overall_verdict") or front.get("assessment")))
    section = page.section("overall assessment", "assessment", "overall verdict")
    if not assessment and section:
        assessment = _assessed(next((line for line in section.own if line.strip()), ""))
    if not assessment:
        listed = fields(page.prose)
        assessment = _assessed(listed.get("overall assessment") or listed.get("assessment") or "")
    return Review(assessment, _issues(page))


def _assessed(text: str) -> Assessment | None:
    return first_of(text, _ASSESSMENTS)


def _issues(page: Page) -> dict[str, Severity]:
    """The open issues by id; those without one are numbered, and of two with the same id the last counts."""
    found: dict[str, Severity | None] = {}
    for section in page.sections:
        if not any(_NO_LIST.fullmatch(name) for name in section.path):
            for id, severity, resolved in _listed(section):
                found[id or f"issue-{len(found) + 1}"] = None if resolved else severity
    return {id: severity for id, severity in found.items() if severity}


def _listed(section: Section) -> Iterator[tuple[str, Severity, bool]]:
    """The id of every issue in a section, how bad it is, and whether it is resolved: a heading with fields, or bullets."""
    if heading := _ID.fullmatch(section.title):
        said = fields(section.own)
        resolved = said.get("status", "").casefold().startswith(("resolved", "fixed", "closed"))
        yield heading[1], _severity(heading[1], section, said), resolved
    elif any(_LIST.fullmatch(name) for name in section.path[1:] or section.path):
        for bullet in bullets(section.own):
            if not (_NONE.fullmatch(bullet.text) or _UNFILLED.fullmatch(bullet.text)):
                match = _ID.fullmatch(bullet.text)
                id = match[1] if match else ""
                yield id, _severity(id, section, fields(bullet.inner)), bool(bullet.checked)


def _severity(id: str, section: Section, said: dict[str, str]) -> Severity:
    letter = id.split("-")[1] if id.count("-") == 2 else ""
    told = first_of(said.get("severity", ""), _SEVERITIES) or _LETTERS.get(letter)
    nearest = (first_of(name, _SEVERITIES) for name in reversed(section.path))
    return told or next(filter(None, nearest), Severity.MAJOR)


@dataclass(frozen=True)
class Reviewed:
    """A review of the whole in the classic layout, where every review has a file of its own."""

    number: int
    complete: bool
    covers: tuple[str, ...] | None = None
    """The steps and tasks that there were; None where the review does not tell."""


def compose_classic(number: int, body: str, assessment: Assessment, covers: Iterable[str]) -> str:
    """The review as it is filed: with what the engine takes it for, and what there was to be reviewed."""
    page = Page(body)
    front = {"iteration": number, "assessment": str(assessment), "covers": list(covers)}
    text = "\n".join(page.lines[page.body :]).strip("\n")
    return f"---\n{lines_of(front)}---\n\n{text or f'# Session Review {number}'}\n"


def parse_classic(number: int, text: str) -> Reviewed:
    """A review of the whole by its text."""
    front = front_values(Page(text))
    covers = words_of(front["covers"]) if "covers" in front else None
    return Reviewed(number, parse(text).assessment is Assessment.COMPLETE, covers)
