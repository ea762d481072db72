"""`feedbacks/<stamp>/feedbacks.md`: what a person says of an iteration, in the short form and in the long one."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ralph.core.errors import StateError
from ralph.documents.session.issues import Issue, issues_in, says_nothing
from ralph.documents.session.markdown import BOM, Page, bare, bullets, one_line, row, rows
from ralph.documents.session.values import number_of, text_of
from ralph.documents.session.yaml_lines import front_matter, front_values, lines_of, told


@dataclass(frozen=True)
class Feedback:
    """A batch of feedback."""

    iteration: int | None = None
    timestamp: str = ""
    previous_iteration: int | None = None
    issues: Mapping[str, Issue] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """The files beside it, with what each is."""
    notes: str = ""
    """What it says without a form, where it has none."""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing: a form that nobody filled in."""
        return not (self.issues or self.requirements or self.notes)


def parse(text: str) -> Feedback:
    """The feedback in a file, as far as it can be read."""
    page = Page(text)
    front = front_values(page)
    artifacts = page.section("artifacts index", "artifacts")
    table = [(bare(one[0]), one[1]) for one in rows(artifacts.lines if artifacts else ())[1:] if len(one) > 1]
    issues, requirements = issues_in(page), _requirements(page)
    return Feedback(
        iteration=number_of(front.get("iteration")),
        timestamp=text_of(front.get("timestamp")),
        previous_iteration=number_of(front.get("previous_iteration")),
        issues=issues,
        requirements=requirements,
        artifacts={file: about for file, about in table if file},
        notes="" if issues or requirements else _words(page),
    )


def problems(text: str) -> list[str]:
    """What is wrong with a batch, a sentence each."""
    page = Page(text)
    found = []
    try:
        front = front_matter(page, "")
        for key in ("iteration", "previous_iteration"):
            if front.has(key) and number_of(front.get(key)) is None:
                found.append(f"line {front.line(key)}: `{key}` must be a whole number")
    except StateError as error:
        found.append(told(error))
    if parse(text).is_empty:
        found.append("line 1: the feedback names no issue and no requirement")
    return found


def content_hash(text: str) -> str:
    """What tells whether a batch was changed; how its lines end and what follows the last says nothing."""
    plain = text.removeprefix(BOM).replace("\r\n", "\n").rstrip()
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def template(iteration: int, stamp: str, timestamp: str, artifacts: Iterable[str] = ()) -> str:
    """A form to fill in."""
    front = {"iteration": iteration, "timestamp": timestamp, "previous_iteration": iteration - 1}
    files = "\n".join((row("File", "Description"), "|------|-------------|", *(row(name, "") for name in artifacts)))
    return f"---\n{lines_of(front)}---\n\n# Feedback Batch: {stamp}\n{_FORM}\n## Artifacts Index\n{files}\n"


_FORM = """
## Critical Issues
<!-- What must be put right, one entry each:
- [ ] **ISS-001**: What is wrong
  - Evidence: app.log, lines 45-60
  - Suggested Fix: what could be done
-->

## Quality Issues
<!--
- [ ] **Q-001**: What could be better
-->

## New Requirements
<!--
- What is wanted beside
-->
"""


def _words(page: Page) -> str:
    """What a page says beside headings and tables."""
    heads = {section.start for section in page.sections}
    lines = (line for index, line in enumerate(page.prose) if index not in heads and not line.startswith("|"))
    return "\n".join(line for line in lines if not says_nothing(line)).strip()


def _requirements(page: Page) -> tuple[str, ...]:
    found = []
    for section in page.sections:
        if section.name.startswith("req-"):
            found.append(one_line(section.title))
        elif "requirements" in section.name and section.level == 2:
            found += [one_line(bullet.text) for bullet in bullets(section.own) if not says_nothing(bullet.text)]
    return tuple(found)
