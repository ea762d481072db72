"""The reports on attempts, and the reviews of iterations.

`reports/<task>-report[-r<N>].md`: PART 1 is the executor's, PART 2 the reviewer's; the last PART 2 counts.
`review.md`: what the review of an iteration came to, and how bad the issues are that it found.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ralph.documents.session.markdown import Page, Section, contain_markdown, fields, parse_bullets
from ralph.documents.session.values import find_first, number_of, read_front_values, read_text, read_words
from ralph.documents.yaml_codec import dump

PART_1 = "## PART 1: IMPLEMENTATION REPORT"
PART_2 = "## PART 2: REVIEW REPORT"
STUB = "*(To be appended by the reviewer)*"
_PART = re.compile(r"part ([12])\b.*")
_REPORT_TITLE = re.compile(r"task report ([\w.-]+).*")
_VERDICT_LINE = re.compile(
    r"\s*(?:[-*+]\s+)?(?:\*\*|__)(?:status|verdict)(?::(?:\*\*|__)|(?:\*\*|__)\s*:)(.*)", re.IGNORECASE
)
_NO_REVIEW = re.compile(r"[\s-]*(?:\*?\(to be appended[^)]*\)\*?)?[\s-]*(?:\[leave[^\]]*\])?[\s-]*", re.IGNORECASE)
_GOOD = r"(?<!not )(?<!not-)\b(?:qualified|pass(?:ed|_with_notes)?)\b"
_BAD = r"\b(?:fail(?:ed)?|rejected|unqualified|disqualified|not[ _-](?:qualified|pass(?:ed)?))\b"


class ReviewVerdict(StrEnum):
    """What the reviewer made of an attempt."""

    QUALIFIED = "Qualified"
    FAILED = "Failed"

    @classmethod
    def read(cls, text: str) -> "ReviewVerdict | None":
        """The verdict in any of the words in use; None if there is none."""
        return find_first(text, ((_GOOD, cls.QUALIFIED), (_BAD, cls.FAILED)))


@dataclass(frozen=True)
class Report:
    """What was done in an attempt, and its result."""

    iteration: int
    part1: str
    verdict: ReviewVerdict | None = None


def report_name(task: str, attempt: int) -> str:
    """The name of the file; the first attempt has no number."""
    return f"{task}-report.md" if attempt <= 1 else f"{task}-report-r{attempt}.md"


def parse_attempt(name: str, task: str) -> int | None:
    """The attempt that a file reports on; None if it is no report on that task."""
    pattern = rf"(?:tasks\.)?{re.escape(task)}-report(?:-r(\d{{1,9}}))?\.md"
    match = re.fullmatch(pattern, name.rpartition("/")[2])
    return max(1, int(match[1] or 1)) if match else None


def parse_report(text: str) -> Report:
    """The report in a file, as far as it can be read."""
    page = Page(text)
    last, verdict = _find_part(page, "2"), None
    if last and not _NO_REVIEW.fullmatch(last.text):
        for line in page.prose[last.start + 1 : last.end]:
            if match := _VERDICT_LINE.fullmatch(line):
                verdict = ReviewVerdict.read(match[1]) or verdict
    return Report(number_of(read_front_values(page).get("iteration")) or 1, _find_executor_part(page), verdict)


def compose_report(task: str, iteration: int, attempt: int, created_at: str, body: str) -> str:
    """The file as an attempt leaves it."""
    front = {"task_id": task, "iteration": iteration, "attempt": attempt, "created_at": created_at}
    return f"---\n{dump(front)}---\n\n{lay_out_report(f'# Task Report: {task} [Attempt {attempt}]', body)}"


def compose_classic_report(task: str, attempt: int, body: str) -> str:
    """The same in the classic layout, without front matter."""
    return lay_out_report(f"# Task Report: {task}" + (f" [Rework #{attempt}]" if attempt > 1 else ""), body)


def lay_out_report(title: str, body: str) -> str:
    """What the executor wrote as PART 1, and room for the review; a PART 2 of its own is none, and is left out."""
    part1 = contain_markdown(_find_executor_part(Page(body))) or "The executor left no report."
    return f"{title}\n\n{PART_1}\n\n{part1}\n\n---\n{PART_2}\n{STUB}\n"


def append_review(text: str, part2: str) -> str:
    """The report with a review in the place of the stub, or after all that there is."""
    review = Page(part2)
    own = _find_part(review, "2")
    words = contain_markdown(own.text if own else "\n".join(review.lines[review.body :])).split("\n")
    page = Page(text)
    last = _find_part(page, "2")
    if last and _NO_REVIEW.fullmatch(last.text):
        return page.replace_lines(last.start, last.end, [PART_2, "", *words])
    before = [word for word in (page.open_fence, "---" if text.strip() else "") if word]
    return page.append_lines([*before, PART_2, "", *words])


def compose_failed_report(task: str, iteration: int, attempt: int, created_at: str, reason: str) -> str:
    """The report on an attempt that left none, and failed for that reason."""
    body = f"### Blockers\n\n{reason}"
    review = f"### Recommendation\n\n**Status**: {ReviewVerdict.FAILED}\n**Reasoning**: {' '.join(reason.split())}"
    return append_review(compose_report(task, iteration, attempt, created_at, body), review)


def _find_part(page: Page, number: str) -> Section | None:
    """The last section of that part."""
    found = [
        one for one in page.sections if one.level <= 2 and (match := _PART.fullmatch(one.name)) and match[1] == number
    ]
    return found[-1] if found else None


def _find_executor_part(page: Page) -> str:
    """What the executor wrote: PART 1, or everything if there are no parts, without the rule before PART 2."""
    parts = [section for section in page.sections if section.level <= 2]
    start = next((section for section in parts if section.name.startswith("part 1")), None)
    title = next((section for section in parts if section.level == 1 and _REPORT_TITLE.fullmatch(section.name)), None)
    before = start or title
    begin = before.start + 1 if before else page.body
    ends = [section.start for section in parts if section.name.startswith("part 2") and section.start >= begin]
    end = ends[0] if ends else len(page.lines)
    text = "\n".join(page.lines[begin:end])
    return re.sub(r"\n-{3,}\s*\Z", "", text).strip()


_ISSUE_ID = re.compile(r"\W*((?:ISS|Q)(?:-[A-Za-z]{1,4})?-\d{1,6})\b.*", re.DOTALL)
_ISSUE_LIST = re.compile(r".*\b(?:critical|major|minor|quality|issues?|gaps?)\b.*")
_NO_ISSUE_LIST = re.compile(
    r".*\b(?:requirements?|positive|artifacts?|assessment|summary|recommendations?|actions?|validation|context)\b.*"
)
_NO_ISSUE = re.compile(
    r"\W*(?:(?:none|n/a|nothing|no (?:\w+ )?(?:issues?|gaps?))(?: (?:found|identified|known))?)?\W*", re.IGNORECASE
)
_UNFILLED_ISSUE = re.compile(r"\[[^\]]*\]|\.{3}|…")


class Assessment(StrEnum):
    """What the review came to."""

    COMPLETE = "Complete"
    GAPS = "Gaps Identified"
    INCOMPLETE = "Incomplete"


class IssueSeverity(StrEnum):
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
    (r"\b(?:critical|blocker|blocking|p0)\b", IssueSeverity.CRITICAL),
    (r"\b(?:major|high|medium|quality|gaps?|p1|p2)\b", IssueSeverity.MAJOR),
    (r"\b(?:minor|low|trivial|cosmetic|p3)\b", IssueSeverity.MINOR),
)
_LETTERS = {"C": IssueSeverity.CRITICAL, "M": IssueSeverity.MAJOR, "m": IssueSeverity.MINOR}
_THRESHOLDS = {
    "any": tuple(IssueSeverity),
    "major": (IssueSeverity.CRITICAL, IssueSeverity.MAJOR),
    "critical": (IssueSeverity.CRITICAL,),
}


@dataclass(frozen=True)
class Review:
    """The review of an iteration."""

    assessment: Assessment | None = None
    issues: Mapping[str, IssueSeverity] = field(default_factory=dict)
    """How bad each unresolved issue is, by id."""
    gaps: tuple[str, ...] = ()
    """What each of these issues says, in one line."""

    def active(self, threshold: str = "any") -> list[str]:
        """The issues that count from that severity on: `any`, `major` or `critical`."""
        return [id for id, severity in self.issues.items() if severity in _THRESHOLDS[threshold]]


def parse_review(text: str) -> Review:
    """The review in a file, as far as it can be read."""
    page = Page(text)
    front = read_front_values(page)
    assessment = _parse_assessment(read_text(front.get("overall_verdict") or front.get("assessment")))
    section = page.section("overall assessment", "assessment", "overall verdict")
    if not assessment and section:
        assessment = _parse_assessment(next((line for line in section.own if line.strip()), ""))
    if not assessment:
        listed = fields(page.prose)
        assessment = _parse_assessment(listed.get("overall assessment") or listed.get("assessment") or "")
    issues = _find_issues(page)
    severities = {id: issue.severity for id, issue in issues.items()}
    return Review(assessment, severities, tuple(issue.text for issue in issues.values()))


def _parse_assessment(text: str) -> Assessment | None:
    return find_first(text, _ASSESSMENTS)


@dataclass(frozen=True)
class _Issue:
    """An issue in a review."""

    id: str
    severity: IssueSeverity
    text: str
    is_resolved: bool


def _find_issues(page: Page) -> dict[str, _Issue]:
    """The open issues by id; those without one are numbered, and of two with the same id the last counts."""
    found: dict[str, _Issue] = {}
    for section in page.sections:
        if not any(_NO_ISSUE_LIST.fullmatch(name) for name in section.path):
            for issue in _list_issues(section):
                found[issue.id or f"issue-{len(found) + 1}"] = issue
    return {id: issue for id, issue in found.items() if not issue.is_resolved}


def _list_issues(section: Section) -> Iterator[_Issue]:
    """The issues in a section: a heading with fields, or bullets."""
    if heading := _ISSUE_ID.fullmatch(section.title):
        said = fields(section.own)
        resolved = said.get("status", "").casefold().startswith(("resolved", "fixed", "closed"))
        severity = _read_severity(heading[1], section, said)
        yield _Issue(heading[1], severity, _one_line(section.title), resolved)
    elif any(_ISSUE_LIST.fullmatch(name) for name in section.path[1:] or section.path):
        for bullet in parse_bullets(section.own):
            if not (_NO_ISSUE.fullmatch(bullet.text) or _UNFILLED_ISSUE.fullmatch(bullet.text)):
                match = _ISSUE_ID.fullmatch(bullet.text)
                id = match[1] if match else ""
                severity = _read_severity(id, section, fields(bullet.inner))
                yield _Issue(id, severity, _one_line(bullet.text), bool(bullet.checked))


def _one_line(text: str) -> str:
    """The text of an issue without the marks of Markdown."""
    return " ".join(text.replace("**", "").split())


def _read_severity(id: str, section: Section, said: dict[str, str]) -> IssueSeverity:
    letter = id.split("-")[1] if id.count("-") == 2 else ""
    told = find_first(said.get("severity", ""), _SEVERITIES) or _LETTERS.get(letter)
    nearest = (find_first(name, _SEVERITIES) for name in reversed(section.path))
    return told or next(filter(None, nearest), IssueSeverity.MAJOR)


@dataclass(frozen=True)
class ClassicReview:
    """A review of the whole in the classic layout, in which every review has its own file."""

    number: int
    complete: bool
    covers: tuple[str, ...] | None = None
    """The steps and tasks that there were; None if the review does not tell."""


def compose_classic_review(number: int, body: str, assessment: Assessment, covers: Iterable[str]) -> str:
    """The review as it is filed: with what the engine takes it for, and what there was to be reviewed."""
    page = Page(body)
    front = {"iteration": number, "assessment": str(assessment), "covers": list(covers)}
    text = "\n".join(page.lines[page.body :]).strip("\n")
    return f"---\n{dump(front)}---\n\n{text or f'# Session Review {number}'}\n"


def parse_classic_review(number: int, text: str) -> ClassicReview:
    """A review of the whole by its text."""
    front = read_front_values(Page(text))
    covers = read_words(front["covers"]) if "covers" in front else None
    return ClassicReview(number, parse_review(text).assessment is Assessment.COMPLETE, covers)
