"""Issues as feedback and reviews list them: a box with an id, or a heading with fields."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ralph.documents.session.markdown import Bullet, Page, Section, bare, bullets, fields, one_line

_ID = re.compile(r"\W*((?:ISS|Q)(?:-[A-Za-z]{1,4})?-\d{1,6})\b\W*(.*)", re.DOTALL)
_LIST = re.compile(r".*\b(?:critical|major|minor|quality|issues?|gaps?)\b.*")
_NO_LIST = re.compile(
    r".*\b(?:requirements?|positive|artifacts?|summary|recommendations?|actions?|validation|context)\b.*"
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
        return next((severity for words, severity in _WORDS if words.search(text)), None)


_WORDS = (
    (re.compile(r"\b(?:critical|blocker|blocking|p0)\b", re.IGNORECASE), Severity.CRITICAL),
    (re.compile(r"\b(?:major|high|medium|quality|gaps?|p1|p2)\b", re.IGNORECASE), Severity.MAJOR),
    (re.compile(r"\b(?:minor|low|trivial|cosmetic|p3)\b", re.IGNORECASE), Severity.MINOR),
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


def _of_heading(section: Section, match: re.Match[str]) -> Issue:
    said = fields(section.own)
    title = match[2] or said.get("description", "") or next((line for line in section.own if line.strip()), "")
    resolved = said.get("status", "").casefold().startswith(("resolved", "fixed", "closed"))
    return _issue(match[1], title, section, said, resolved)


def _of_list(section: Section) -> Iterator[Issue]:
    """The items of a list of issues; elsewhere nothing is one."""
    if not any(_LIST.fullmatch(name) for name in section.path[1:] or section.path):
        return
    for bullet in bullets(section.own):
        if not _NONE.fullmatch(bullet.text) and not _UNFILLED.fullmatch(bullet.text):
            yield _of_bullet(section, bullet)


def _of_bullet(section: Section, bullet: Bullet) -> Issue:
    match = _ID.fullmatch(bullet.text)
    id, title = (match[1], match[2]) if match else ("", bullet.text)
    return _issue(id, title, section, fields(bullet.inner), bool(bullet.checked))


def _issue(id: str, title: str, section: Section, said: dict[str, str], resolved: bool) -> Issue:
    letter = id.split("-")[1] if id.count("-") == 2 else ""
    nearest = (Severity.read(name) for name in reversed(section.path))
    severity = (
        Severity.read(said.get("severity", "")) or _LETTERS.get(letter) or next(filter(None, nearest), Severity.MAJOR)
    )
    fix = said.get("suggested fix") or said.get("remediation") or said.get("fix") or ""
    return Issue(id, one_line(bare(title)), severity, fix, said.get("evidence", ""), resolved)
