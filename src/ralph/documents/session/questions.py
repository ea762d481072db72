"""`questions/<category>.md`: what was asked in each cycle, and what was answered; later cycles are appended."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ralph.documents.session.markdown import Page, bare, fields
from ralph.documents.session.values import first_of, number_of
from ralph.documents.session.yaml_lines import front_values

SKIPPED = "Cycle skipped due to max_cycles"
_ID = re.compile(r"\bQ(?:-[A-Za-z]{1,8})?-\d{1,6}\b")
_CYCLE = re.compile(r".*\bcycle (\d{1,6})\b.*")


@dataclass(frozen=True)
class Question:
    """How much a question matters, and whether it was answered."""

    priority: str = "Medium"
    """High, Medium or Low."""
    status: str = "Unanswered"
    """Unanswered, Answered or Research Needed."""


@dataclass(frozen=True)
class Questions:
    """The questions of a category."""

    cycle: int = 0
    """The highest cycle that there is; 0 before the first."""
    questions: Mapping[str, Question] = field(default_factory=dict)

    @property
    def open_high(self) -> list[str]:
        """The open ones of high priority."""
        return [id for id, one in self.questions.items() if one.status != "Answered" and one.priority == "High"]


def parse(text: str) -> Questions:
    """The questions in a file, as far as they can be read."""
    page = Page(text)
    found: dict[str, Question] = {}
    cycle = number_of(front_values(page).get("cycle")) or 0
    for section in page.sections:
        if match := _CYCLE.fullmatch(section.name):
            cycle = max(cycle, int(match[1]))
        said = fields(section.own)
        id = _ID.search(section.title) or _ID.search(said.get("id", ""))
        if id or (section.name.startswith("question ") and said):
            name = id[0] if id else bare(said.get("id", "")) or section.title
            found[name] = _told(found.get(name, Question()), said)
    return Questions(max(cycle, bool(found)), found)


def last_cycle(texts: Iterable[str]) -> int:
    """How many cycles of questions there were, in all files of them."""
    return max((parse(text).cycle for text in texts), default=0)


def with_earlier(old: str, new: str) -> str:
    """The questions after another turn: what was asked before stays, also where somebody left it out."""
    before, after = parse(old), parse(new)
    is_kept = after.cycle >= before.cycle and before.questions.keys() <= after.questions.keys()
    return new if is_kept or not old.strip() else f"{old.rstrip()}\n\n{new}"


def _told(question: Question, said: dict[str, str]) -> Question:
    """A question with what a further section says of it: the question itself, or its answer."""
    status = _one_of(("Unanswered", "Answered", "Research Needed"), said.get("status", ""))
    if status != "Research Needed" and said.get("answer"):
        status = "Answered"
    priority = _one_of(("High", "Medium", "Low"), said.get("priority", ""))
    return Question(priority or question.priority, status or question.status)


def _one_of(words: tuple[str, ...], text: str) -> str:
    """The word that a field holds; none in a form that nobody filled in."""
    return first_of(text, [(rf"\b{word}\b", word) for word in words]) or ""
