"""`plan.md` as far as the engine reads it."""

import re
from dataclasses import dataclass

from ralph.documents.session.markdown import Page, Section, bare, bullets

_LINE = re.compile(
    r"(?:[-*+]\s+)?[*_]*(Goal|Success Criteria|Target Files|Context|Approach)[*_]*\s*:[*_]*\s*(.*)", re.IGNORECASE
)
_UNFILLED = re.compile(r"\[[^\]]*\]|_?to be filled.*", re.IGNORECASE)


@dataclass(frozen=True)
class Plan:
    """What a plan is for."""

    goal: str = ""
    criteria: tuple[str, ...] = ()


def parse(text: str) -> Plan:
    """The plan in a file, in sections or in lines, as far as it can be read."""
    page = Page(text)
    goal, criteria = _find(page, "goal"), _find(page, "success criteria")
    if not (goal or criteria):
        return _of_lines(page)
    listed = [one for one in bullets(criteria.own if criteria else ()) if not _UNFILLED.fullmatch(one.text)]
    said = "\n".join(line for line in (goal.own if goal else ()) if line.strip())
    return Plan(said.strip(), tuple(one.whole for one in listed))


def problems(text: str) -> list[str]:
    """What the plan lacks, a sentence each."""
    plan = parse(text)
    found = (("goal", plan.goal), ("success criteria", plan.criteria))
    return [f"line 1: the plan has no {name}" for name, value in found if not value]


def _find(page: Page, name: str) -> Section | None:
    """The section of that name, or one whose title begins with it or has it as a part."""
    near = [section for section in page.sections if section.level == 2 and name in re.split(r" & |/", section.name)]
    return page.section(name) or (near[-1] if near else None)


def _of_lines(page: Page) -> Plan:
    """A plan of `Key: value` lines."""
    said: dict[str, list[str]] = {}
    key = ""
    for line in page.prose:
        match = _LINE.fullmatch(line)
        if match:
            key = match[1].casefold()
            said[key] = [match[2]] if match[2] else []
        elif key and line.strip():
            said[key].append(line)

    lines = said.get("success criteria", [])
    found = [one.text for one in bullets(lines)] or [part for line in lines for part in line.split(";")]
    criteria = tuple(word for one in found if (word := bare(one)) and not _UNFILLED.fullmatch(word))
    return Plan("\n".join(said.get("goal", [])).strip(), criteria)
