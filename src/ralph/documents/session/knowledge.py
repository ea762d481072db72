"""What a session learned: files by category, and how those of one place are merged into another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ralph.documents.session.markdown import Page, Section
from ralph.documents.session.values import parse_timestamp, read_front_values, read_text

CATEGORIES = ("tutorials", "how-to", "reference", "explanation")
_CHOICES = {True: "the newer was taken", False: "the newer was kept", None: "the old one was kept"}
"""Which of two sections stays, by whether the source is newer; None if that is not known."""
_TIMES = ("updated_at", "extracted_at", "staged_at", "approved_at", "promoted_at", "created_at")


@dataclass(frozen=True)
class KnowledgeMerge:
    """The result of merging: the files to write, and what happened to each source."""

    files: Mapping[str, str] = field(default_factory=dict)
    done: Mapping[str, str] = field(default_factory=dict)
    """`copied`, `overwritten`, `skipped` or `merged into NAME`, by source."""
    conflicts: tuple[str, ...] = ()


def merge_knowledge(sources: Mapping[str, str], targets: Mapping[str, str]) -> KnowledgeMerge:
    """The files of a category merged into those of another place; the newer wins, and nothing is lost unnamed.

    A file goes to the one of its name; else to one that already has more than half of its headings; else it is copied.
    """
    files: dict[str, str] = {}
    done: dict[str, str] = {}
    conflicts: list[str] = []
    for name, text in sources.items():
        there = {**targets, **files}
        if name in there:
            done[name], conflict = _choose_version(name, text, there[name])
            conflicts += conflict
            if done[name] == "overwritten":
                files[name] = text
        elif other := _find_similar(text, there):
            merged, found = _merge_sections(there[other], text, f"{name} and {other}")
            files |= {other: merged} if merged != there[other] else {}
            done[name] = f"merged into {other}"
            conflicts += found
        else:
            files[name], done[name] = text, "copied"
    return KnowledgeMerge(files, done, tuple(conflicts))


def _choose_version(name: str, source: str, target: str) -> tuple[str, list[str]]:
    if source == target:
        return "skipped", []
    newer = _is_newer(source, target)
    if newer is None:
        return "skipped", [f"{name}: both differ, and Ralph cannot tell which is newer; the old one was kept"]
    return ("overwritten" if newer else "skipped"), []


def _is_newer(source: str, target: str) -> bool | None:
    """Whether the source was worked on later; None if that cannot be told."""
    ours, theirs = _last_change(source), _last_change(target)
    return None if ours is None or theirs is None or ours == theirs else ours > theirs


def _last_change(text: str) -> datetime | None:
    """When a file was last worked on, if its front matter says so."""
    front = read_front_values(Page(text))
    times = (parse_timestamp(read_text(front.get(key))) for key in _TIMES)
    return max((at for at in times if at), default=None)


def _sections_by_name(page: Page) -> dict[str, Section]:
    return {section.name: section for section in page.sections if section.level in (2, 3) and section.name}


def _find_similar(text: str, targets: Mapping[str, str]) -> str:
    """The target that has the most of the source's headings, if those are more than half."""
    headings = _sections_by_name(Page(text)).keys()
    shared = {name: len(headings & _sections_by_name(Page(other)).keys()) for name, other in targets.items()}
    best = max(shared, key=lambda name: shared[name], default="")
    return best if best and shared[best] * 2 > len(headings) else ""


def _merge_sections(target: str, source: str, both: str) -> tuple[str, list[str]]:
    """The target with the sections that only the source has; where both have one, the newer stays."""
    newer = _is_newer(source, target)
    conflicts = []
    page = Page(source)
    for name, section in _sections_by_name(page).items():
        there = _sections_by_name(Page(target))
        lines = "\n".join(page.lines[section.start : section.start + 1 + len(section.own)]).rstrip().split("\n")
        if name not in there:
            parent = next((there[one] for one in reversed(section.path[:-1]) if one in there), None)
            at = Page(target)
            target = at.insert_lines(parent.end, lines) if parent else at.append_lines(lines)
        elif _own_lines(section) != _own_lines(there[name]) and any(_own_lines(section)):
            conflicts.append(f"{both}: `{section.title}` differs; {_CHOICES[newer]}")
            if newer:
                old = there[name]
                target = Page(target).replace_lines(old.start, old.start + 1 + len(old.own), [*lines, ""])
    return target, conflicts


def _own_lines(section: Section) -> list[str]:
    """What a section says itself, without the sections in it and empty lines around."""
    return "\n".join(section.lines[: len(section.own)]).strip("\n").split("\n")
