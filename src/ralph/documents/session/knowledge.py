"""What a session learned: files by category, and how those of one place are merged into another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ralph.documents.session import timestamps
from ralph.documents.session.markdown import Page, Section
from ralph.documents.session.values import text_of
from ralph.documents.session.yaml_lines import front_values

CATEGORIES = ("tutorials", "how-to", "reference", "explanation")
_TIMES = ("updated_at", "extracted_at", "staged_at", "approved_at", "promoted_at", "created_at")


@dataclass(frozen=True)
class Merge:
    """What came of merging: the files to write, and what happened to each source."""

    files: Mapping[str, str] = field(default_factory=dict)
    done: Mapping[str, str] = field(default_factory=dict)
    """`copied`, `overwritten`, `skipped` or `merged into NAME`, by source."""
    conflicts: tuple[str, ...] = ()


def merge(sources: Mapping[str, str], targets: Mapping[str, str]) -> Merge:
    """The files of a category merged into those of another place; the newer wins, and nothing is lost unnamed.

    A file goes to the one of its name; else to one that already has more than half of its headings; else it is copied.
    """
    files: dict[str, str] = {}
    done: dict[str, str] = {}
    conflicts: list[str] = []
    for name, text in sources.items():
        there = {**targets, **files}
        if name in there:
            done[name], conflict = _same_name(name, text, there[name])
            conflicts += conflict
            if done[name] == "overwritten":
                files[name] = text
        elif other := _like(text, there):
            merged, found = _with_sections(there[other], text, f"{name} and {other}")
            files |= {other: merged} if merged != there[other] else {}
            done[name] = f"merged into {other}"
            conflicts += found
        else:
            files[name], done[name] = text, "copied"
    return Merge(files, done, tuple(conflicts))


def _same_name(name: str, source: str, target: str) -> tuple[str, list[str]]:
    if source == target:
        return "skipped", []
    newer = _is_newer(source, target)
    if newer is None:
        return "skipped", [f"{name}: both differ, and which is newer cannot be told; the old one was kept"]
    return ("overwritten" if newer else "skipped"), []


def _is_newer(source: str, target: str) -> bool | None:
    """Whether the source was worked on later; None where that cannot be told."""
    ours, theirs = _worked_on(source), _worked_on(target)
    return None if ours is None or theirs is None or ours == theirs else ours > theirs


def _worked_on(text: str) -> datetime | None:
    """When a file was last worked on, where its front matter tells."""
    front = front_values(Page(text))
    times = (timestamps.parse(text_of(front.get(key))) for key in _TIMES)
    return max((at for at in times if at), default=None)


def _headed(page: Page) -> dict[str, Section]:
    return {section.name: section for section in page.sections if section.level in (2, 3) and section.name}


def _like(text: str, targets: Mapping[str, str]) -> str:
    """The target that has the most of the source's headings, if those are more than half."""
    headings = _headed(Page(text)).keys()
    shared = {name: len(headings & _headed(Page(other)).keys()) for name, other in targets.items()}
    best = max(shared, key=lambda name: shared[name], default="")
    return best if best and shared[best] * 2 > len(headings) else ""


def _with_sections(target: str, source: str, both: str) -> tuple[str, list[str]]:
    """The target with the sections that only the source has; where both have one, the newer stays."""
    newer = _is_newer(source, target)
    conflicts = []
    page = Page(source)
    for name, section in _headed(page).items():
        there = _headed(Page(target))
        lines = "\n".join(page.lines[section.start : section.start + 1 + len(section.own)]).rstrip().split("\n")
        if name not in there:
            parent = next((there[one] for one in reversed(section.path[:-1]) if one in there), None)
            at = Page(target)
            target = at.inserted(parent.end, lines) if parent else at.appended(lines)
        elif _own(section) != _own(there[name]) and any(_own(section)):
            kept = (
                "the newer was taken" if newer else "the newer was kept" if newer is False else "the old one was kept"
            )
            conflicts.append(f"{both}: `{section.title}` differs; {kept}")
            if newer:
                old = there[name]
                target = Page(target).replaced(old.start, old.start + 1 + len(old.own), [*lines, ""])
    return target, conflicts


def _own(section: Section) -> list[str]:
    """What a section says itself, without the sections in it and empty lines around."""
    return "\n".join(section.lines[: len(section.own)]).strip("\n").split("\n")
