"""`questions/<category>.md`: what was asked in each cycle, and what was answered; later cycles are appended."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ralph.documents.session.markdown import Page, Section, bare, fields
from ralph.documents.session.values import first_of, number_of, text_of
from ralph.documents.session.yaml_lines import front_values

SKIPPED = "Cycle skipped due to max_cycles"
_ID = re.compile(r"\bQ(?:-[A-Za-z]{1,8})?-\d{1,6}\b")
_ISSUE = re.compile(r"\bISS(?:-[A-Za-z])?-\d{1,6}\b")
_CYCLE = re.compile(r".*\bcycle (\d{1,6})\b.*")
_TITLE = re.compile(r"questions (\w[\w-]*).*")


@dataclass(frozen=True)
class Question:
    """A question, and its answer if it has one."""

    id: str
    question: str = ""
    priority: str = "Medium"
    """High, Medium or Low."""
    status: str = "Unanswered"
    """Unanswered, Answered or Research Needed."""
    cycle: int = 1
    answer: str = ""
    source: str = ""
    confidence: str = ""
    issue: str = ""
    """The issue of the feedback that it is about."""

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered it."""
        return self.status != "Answered"


@dataclass(frozen=True)
class Questions:
    """The questions of a category."""

    category: str = ""
    iteration: int = 1
    cycle: int = 0
    """The highest cycle that there is; 0 before the first."""
    questions: Mapping[str, Question] = field(default_factory=dict)

    @property
    def open_high(self) -> list[Question]:
        """The open ones of high priority."""
        return [one for one in self.questions.values() if one.is_open and one.priority == "High"]


def parse(text: str) -> Questions:
    """The questions in a file, as far as they can be read."""
    page = Page(text)
    front = front_values(page)
    found: dict[str, Question] = {}
    cycle = 1
    highest = number_of(front.get("cycle")) or 0
    for section in page.sections:
        match = _CYCLE.fullmatch(section.name)
        if match:
            cycle = int(match[1])
            highest = max(highest, cycle)
        said = fields(section.own)
        id = _ID.search(section.title) or _ID.search(said.get("id", ""))
        if id or (section.name.startswith("question ") and said):
            name = id[0] if id else bare(said.get("id", "")) or section.title
            found[name] = _told(found.get(name, Question(name, cycle=cycle)), section, said)
    title = next((match[1] for one in page.sections if (match := _TITLE.fullmatch(one.name))), "")
    return Questions(
        text_of(front.get("category")) or title,
        number_of(front.get("iteration")) or 1,
        max(highest, bool(found)),
        found,
    )


def append_skipped(text: str, cycle: int) -> str:
    """The file with a word that a cycle was left out; once is enough."""
    page = Page(text)
    told = any(
        _CYCLE.fullmatch(one.name) and one.name.endswith(f"cycle {cycle}") and SKIPPED in one.text
        for one in page.sections
    )
    return text if told else page.appended([f"## Cycle {cycle}", "", SKIPPED])


def _told(question: Question, section: Section, said: dict[str, str]) -> Question:
    """A question with what a further section says of it: the question itself, or its answer."""
    answer = said.get("answer", "") or question.answer
    status = _status(said.get("status", ""))
    if status != "Research Needed" and said.get("answer"):
        status = "Answered"
    issue = _ISSUE.search(said.get("source issue", "")) or _ISSUE.search(section.title)
    return replace(
        question,
        question=said.get("question", "") or question.question,
        priority=_one_of(("High", "Medium", "Low"), said.get("priority", "")) or question.priority,
        status=status or question.status,
        answer=answer,
        source=said.get("source", "") or question.source,
        confidence=_one_of(("High", "Medium", "Low"), said.get("confidence", "")) or question.confidence,
        issue=issue[0] if issue else question.issue,
    )


def _status(text: str) -> str:
    return _one_of(("Unanswered", "Answered", "Research Needed"), text)


def _one_of(words: tuple[str, ...], text: str) -> str:
    """The word that a field holds; none in a form that nobody filled in."""
    return first_of(text, [(rf"\b{word}\b", word) for word in words]) or ""
