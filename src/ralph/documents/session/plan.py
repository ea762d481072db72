"""`plan.md` as far as the engine reads it, and `delta.md`, which tells what changed in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ralph.documents.session.markdown import Page, Section, bare, bullets, contained, one_line, rows
from ralph.documents.session.yaml_lines import lines_of

_LINE = re.compile(
    r"(?:[-*+]\s+)?[*_]*(Goal|Success Criteria|Target Files|Context|Approach)[*_]*\s*:[*_]*\s*(.*)", re.IGNORECASE
)
_UNFILLED = re.compile(r"\[[^\]]*\]|_?to be filled.*", re.IGNORECASE)


@dataclass(frozen=True)
class Plan:
    """What a plan is for."""

    goal: str = ""
    criteria: tuple[str, ...] = ()
    target_files: tuple[str, ...] = ()


def parse(text: str) -> Plan:
    """The plan in a file, in sections or in lines, as far as it can be read."""
    page = Page(text)
    goal, criteria, files = (_find(page, name) for name in ("goal", "success criteria", "target files"))
    if not (goal or criteria or files):
        return _of_lines(page)
    return Plan(
        goal="\n".join(line for line in (goal.own if goal else ()) if line.strip()).strip(),
        criteria=tuple(
            one.whole for one in bullets(criteria.own if criteria else ()) if not _UNFILLED.fullmatch(one.text)
        ),
        target_files=_files(files) if files else (),
    )


def problems(text: str) -> list[str]:
    """What the plan lacks, a sentence each."""
    plan = parse(text)
    found = (("goal", plan.goal), ("success criteria", plan.criteria))
    return [f"line 1: the plan has no {name}" for name, value in found if not value]


def delta(
    iteration: int,
    previous_plan: str,
    timestamp: str,
    *,
    summary: Sequence[str] = (),
    removed: Sequence[str] = (),
    added: Sequence[str] = (),
    modified: Sequence[str] = (),
    rationale: str = "",
) -> str:
    """The document that tells what feedback changed in the plan."""
    front = lines_of({"iteration": iteration, "previous_plan": previous_plan, "timestamp": timestamp})
    changes = "\n\n".join(
        f"### {title}\n{_list(lines)}"
        for title, lines in (("Removed", removed), ("Added", added), ("Modified", modified))
    )
    return (
        f"---\n{front}---\n\n# Plan Delta: Iteration {iteration}\n\n## Feedback Summary\n{_list(summary)}\n\n"
        f"## Changes from Previous Plan\n\n{changes}\n\n## Rationale\n{contained(rationale) or 'None given.'}\n"
    )


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {one_line(line)}" for line in lines) or "- None"


def _find(page: Page, name: str) -> Section | None:
    """The section of that name, or one whose title begins with it or has it as a part."""
    near = [section for section in page.sections if section.level == 2 and name in re.split(r" & |/", section.name)]
    return page.section(name) or (near[-1] if near else None)


def _files(section: Section) -> tuple[str, ...]:
    table = [bare(one[0]) for one in rows(section.own)[1:]]
    listed = [bare(re.split(r"\s+[-—–(]|:\s", one.text)[0]) for one in bullets(section.own)]
    return tuple(dict.fromkeys(one for one in (*table, *listed) if one and not _UNFILLED.fullmatch(one)))


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

    def listed(name: str, separator: str) -> tuple[str, ...]:
        lines = said.get(name, [])
        found = [one.text for one in bullets(lines)] or [part for line in lines for part in line.split(separator)]
        return tuple(word for one in found if (word := bare(one)) and not _UNFILLED.fullmatch(word))

    return Plan("\n".join(said.get("goal", [])).strip(), listed("success criteria", ";"), listed("target files", ","))
