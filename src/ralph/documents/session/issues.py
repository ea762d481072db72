"""Issues as feedback and reviews list them: a box with an id, or a heading with fields."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ralph.documents.session.markdown import Bullet, Page, Section, bare, bullets, fields, one_line
from ralph.documents.session.values import first_of

_ID = re.compile(r"\W*((?:ISS|Q)(?:-[A-Za-z]{1,4})?-\d{1,6})\b\W*(.*)", re.DOTALL)
_LIST = re.compile(r".*\b(?:critical|major|minor|quality|issues?|gaps?)\b.*")
_NO_LIST = re.compile(
    r".*\b(?:requirements?|positive|artifacts?|assessment|summary|recommendations?|actions?|validation|context)\b.*"
)
_NONE = re.compile(
    r"\W*(?:(?:none|n/a|nothing|no (?:\w+ )?(?:issues?|gaps?))(?: (?:found|identified|known))?)?\W*", re.IGNORECASE
)
_UNFILLED = re.compile(r"\[[^\]]*\]|\.{3}|…")


class Severity(StrEnum):
    """How bad an issue is."""

    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"

    @classmethod
    def read(cls, text: str) -> "Severity | None":
        """The severity in any of the words in use."""
        return first_of(text, _WORDS)


_WORDS = (
    (r"\b(?:critical|blocker|blocking|p0)\b", Severity.CRITICAL),
    (r"\b(?:major|high|medium|quality|gaps?|p1|p2)\b", Severity.MAJOR),
    (r"\b(?:minor|low|trivial|cosmetic|p3)\b", Severity.MINOR),
)
_LETTERS = {"C": Severity.CRITICAL, "M": Severity.MAJOR, "m": Severity.MINOR}


@dataclass(frozen=True)
class Issue:
    """Something that is wrong, and what could be done about it."""

    id: str
    title: str
    severity: Severity = Severity.MAJOR
    suggested_fix: str = ""
    evidence: str = ""
    resolved: bool = False


def issues_in(page: Page) -> dict[str, Issue]:
    """The issues of a page by id; those without one are numbered, and of two with the same id the last counts."""
    found: dict[str, Issue] = {}
    for section in page.sections:
        if any(_NO_LIST.fullmatch(name) for name in section.path):
            continue
        heading = _ID.fullmatch(section.title)
        for issue in [_of_heading(section, heading)] if heading else _of_list(section):
            name = issue.id or f"issue-{len(found) + 1}"
            found[name] = Issue(name, *(getattr(issue, field) for field in _REST))
    return found


_REST = ("title", "severity", "suggested_fix", "evidence", "resolved")


def says_nothing(text: str) -> bool:
    """Whether a text is none, such as `N/A`, or what a form had in its place."""
    return bool(_NONE.fullmatch(text) or _UNFILLED.fullmatch(text))


def _of_heading(section: Section, match: re.Match[str]) -> Issue:
    told = fields(section.own)
    title = match[2] or told.get("description", "") or next((line for line in section.own if line.strip()), "")
    resolved = told.get("status", "").casefold().startswith(("resolved", "fixed", "closed"))
    return _issue(match[1], title, section, told, resolved)


def _of_list(section: Section) -> Iterator[Issue]:
    """The items of a list of issues; elsewhere nothing is one."""
    if not any(_LIST.fullmatch(name) for name in section.path[1:] or section.path):
        return
    for bullet in bullets(section.own):
        if not says_nothing(bullet.text):
            yield _of_bullet(section, bullet)


def _of_bullet(section: Section, bullet: Bullet) -> Issue:
    match = _ID.fullmatch(bullet.text)
    id, title = (match[1], match[2]) if match else ("", bullet.text)
    return _issue(id, title, section, fields(bullet.inner), bool(bullet.checked))


def _issue(id: str, title: str, section: Section, told: dict[str, str], resolved: bool) -> Issue:
    letter = id.split("-")[1] if id.count("-") == 2 else ""
    nearest = (Severity.read(name) for name in reversed(section.path))
    severity = (
        Severity.read(told.get("severity", "")) or _LETTERS.get(letter) or next(filter(None, nearest), Severity.MAJOR)
    )
    fix = told.get("suggested fix") or told.get("remediation") or told.get("fix") or ""
    return Issue(id, one_line(bare(title)), severity, fix, told.get("evidence", ""), resolved)
