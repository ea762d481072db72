"""Reports on tasks and reviews of the whole, as classic sessions have them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ralph.documents.plain_yaml import lines_of
from ralph.documents.session import reports, review
from ralph.documents.session.markdown import Page
from ralph.documents.session.questions import parse as parse_questions
from ralph.documents.session.review import Assessment
from ralph.documents.session.values import words_of
from ralph.documents.session.yaml_lines import front_values


def report(task: str, attempt: int, body: str) -> str:
    """The report as an attempt leaves it; no front matter."""
    title = f"# Task Report: {task}" + (f" [Rework #{attempt}]" if attempt > 1 else "")
    return reports.laid_out(title, body)


@dataclass(frozen=True)
class Reviewed:
    """A review of the whole."""

    number: int
    complete: bool
    covers: tuple[str, ...] | None = None
    """The steps and tasks that there were; None where the review does not tell."""


def session_review(number: int, body: str, assessment: Assessment, covers: Iterable[str]) -> str:
    """The review as it is filed: with what the engine takes it for, and what there was to be reviewed."""
    page = Page(body)
    front = {"iteration": number, "assessment": str(assessment), "covers": list(covers)}
    text = "\n".join(page.lines[page.body :]).strip("\n")
    return f"---\n{lines_of(front)}---\n\n{text or f'# Session Review {number}'}\n"


def read_reviews(found: Mapping[int, str]) -> list[Reviewed]:
    """The reviews by their texts, the first first."""
    all = []
    for number, text in sorted(found.items()):
        front = front_values(Page(text))
        covers = words_of(front["covers"]) if "covers" in front else None
        all.append(Reviewed(number, review.parse(text).assessment is Assessment.COMPLETE, covers))
    return all


def cycles(texts: Iterable[str]) -> int:
    """How many cycles of questions there were, in all files of them."""
    return max((parse_questions(text).cycle for text in texts), default=0)


def asked_on(old: str, new: str) -> str:
    """The questions after another turn: what was asked before stays, also where somebody left it out."""
    before, after = parse_questions(old), parse_questions(new)
    kept = after.cycle >= before.cycle and before.questions.keys() <= after.questions.keys()
    return new if kept or not old.strip() else f"{old.rstrip()}\n\n{new}"
