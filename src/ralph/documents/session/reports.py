"""`reports/<task>-report[-r<N>].md`: PART 1 is the executor's, PART 2 the reviewer's; the last PART 2 counts."""

import re
from dataclasses import dataclass
from enum import StrEnum

from ralph.documents.plain_yaml import lines_of
from ralph.documents.session.markdown import Page, Section, contained
from ralph.documents.session.values import first_of, number_of
from ralph.documents.session.yaml_lines import front_values

PART_1 = "## PART 1: IMPLEMENTATION REPORT"
PART_2 = "## PART 2: REVIEW REPORT"
STUB = "*(To be appended by the reviewer)*"
_PART = re.compile(r"part ([12])\b.*")
_TITLE = re.compile(r"task report ([\w.-]+).*")
_STATUS = re.compile(
    r"\s*(?:[-*+]\s+)?(?:\*\*|__)(?:status|verdict)(?::(?:\*\*|__)|(?:\*\*|__)\s*:)(.*)", re.IGNORECASE
)
_EMPTY = re.compile(r"[\s-]*(?:\*?\(to be appended[^)]*\)\*?)?[\s-]*(?:\[leave[^\]]*\])?[\s-]*", re.IGNORECASE)
_GOOD = r"(?<!not )(?<!not-)\b(?:qualified|pass(?:ed|_with_notes)?)\b"
_BAD = r"\b(?:fail(?:ed)?|rejected|unqualified|disqualified|not[ _-](?:qualified|pass(?:ed)?))\b"


class Verdict(StrEnum):
    """What the reviewer made of an attempt."""

    QUALIFIED = "Qualified"
    FAILED = "Failed"

    @classmethod
    def read(cls, text: str) -> "Verdict | None":
        """The verdict in any of the words in use; None where there is none."""
        return first_of(text, ((_GOOD, cls.QUALIFIED), (_BAD, cls.FAILED)))


@dataclass(frozen=True)
class Report:
    """What was done in an attempt, and what came of it."""

    iteration: int
    part1: str
    verdict: Verdict | None = None


def report_name(task: str, attempt: int) -> str:
    """The name of the file; the first attempt has no number."""
    return f"{task}-report.md" if attempt <= 1 else f"{task}-report-r{attempt}.md"


def attempt_of(name: str, task: str) -> int | None:
    """The attempt that a file reports on; None where it is no report on that task."""
    pattern = rf"(?:tasks\.)?{re.escape(task)}-report(?:-r(\d{{1,9}}))?\.md"
    match = re.fullmatch(pattern, name.rpartition("/")[2])
    return max(1, int(match[1] or 1)) if match else None


def parse(text: str) -> Report:
    """The report in a file, as far as it can be read."""
    page = Page(text)
    last, verdict = _part(page, "2"), None
    if last and not _EMPTY.fullmatch(last.text):
        for line in page.prose[last.start + 1 : last.end]:
            if match := _STATUS.fullmatch(line):
                verdict = Verdict.read(match[1]) or verdict
    return Report(number_of(front_values(page).get("iteration")) or 1, _first_part(page), verdict)


def compose(task: str, iteration: int, attempt: int, created_at: str, body: str) -> str:
    """The file as an attempt leaves it."""
    front = {"task_id": task, "iteration": iteration, "attempt": attempt, "created_at": created_at}
    return f"---\n{lines_of(front)}---\n\n{laid_out(f'# Task Report: {task} [Attempt {attempt}]', body)}"


def compose_classic(task: str, attempt: int, body: str) -> str:
    """The same in the classic layout, without front matter."""
    return laid_out(f"# Task Report: {task}" + (f" [Rework #{attempt}]" if attempt > 1 else ""), body)


def laid_out(title: str, body: str) -> str:
    """What the executor wrote as PART 1, and room for the review; a PART 2 of its own is none, and is left out."""
    part1 = contained(_first_part(Page(body))) or "The executor left no report."
    return f"{title}\n\n{PART_1}\n\n{part1}\n\n---\n{PART_2}\n{STUB}\n"


def with_review(text: str, part2: str) -> str:
    """The report with a review in the place of the stub, or after all that there is."""
    review = Page(part2)
    own = _part(review, "2")
    words = contained(own.text if own else "\n".join(review.lines[review.body :])).split("\n")
    page = Page(text)
    last = _part(page, "2")
    if last and _EMPTY.fullmatch(last.text):
        return page.replaced(last.start, last.end, [PART_2, "", *words])
    before = [word for word in (page.open_fence, "---" if text.strip() else "") if word]
    return page.appended([*before, PART_2, "", *words])


def minimal(task: str, iteration: int, attempt: int, created_at: str, reason: str) -> str:
    """The report on an attempt that left none, and failed for that reason."""
    body = f"### Blockers\n\n{reason}"
    review = f"### Recommendation\n\n**Status**: {Verdict.FAILED}\n**Reasoning**: {' '.join(reason.split())}"
    return with_review(compose(task, iteration, attempt, created_at, body), review)


def _part(page: Page, number: str) -> Section | None:
    """The last section of that part."""
    found = [
        one for one in page.sections if one.level <= 2 and (match := _PART.fullmatch(one.name)) and match[1] == number
    ]
    return found[-1] if found else None


def _first_part(page: Page) -> str:
    """What the executor wrote: PART 1, or all of it where it has no parts; the rule before PART 2 is none of it."""
    start = next((one for one in page.sections if one.level <= 2 and one.name.startswith("part 1")), None)
    title = next((one for one in page.sections if one.level == 1 and _TITLE.fullmatch(one.name)), None)
    begin = start.start + 1 if start else title.start + 1 if title else page.body
    ends = [
        one.start for one in page.sections if one.level <= 2 and one.name.startswith("part 2") and one.start >= begin
    ]
    return re.sub(r"\n-{3,}\s*\Z", "", "\n".join(page.lines[begin : ends[0] if ends else None])).strip()
