"""Stray lines in the documents that Ralph writes: what an editor, a merge or an agent left there by mistake.

Only `ralph session repair` removes them. Sections and text of the user stay.
"""

import re
from collections.abc import Collection, Iterator

from ralph.core.errors import StateError
from ralph.documents.session.markdown import Page, split_lines
from ralph.documents.session.progress import (
    Progress,
    ProgressItem,
    is_list_title,
    is_placeholder,
    is_usual_id,
    parse_progress,
)
from ralph.documents.session.values import read_mapping

_CONFLICT = re.compile(r"(?:<{7}|\|{7}|={7}|>{7})(?: .*)?")
_YAML_LINE = re.compile(r"\s*(?:#.*|-(?:\s.*)?|[^\s:#-][^:]*:(?:\s.*)?)?")
_LONGEST_QUOTE = 60


def remove_stray_progress_lines(
    progress: Progress, defined: Collection[str], planned: Collection[str] = ()
) -> tuple[Progress, list[str]]:
    """`progress.md` without its stray lines, and a sentence about each of them.

    `defined` are the tasks that exist, `planned` those that ever did, if that is known: the definition of a planned task may
    be gone, but a line about any other one was made up.
    """
    found = dict(_find_stray_progress_lines(progress, defined, planned))
    if not found:
        return progress, []
    return parse_progress(_remove_lines(progress.text, found), progress.style), _describe(progress.text, found)


def remove_conflict_marks(text: str) -> tuple[str, list[str]]:
    """A document without the marks of a merge that was left unresolved, and a sentence about each."""
    found = dict(_find_conflict_marks(Page(text)))
    return (_remove_lines(text, found), _describe(text, found)) if found else (text, [])


def remove_stray_yaml_lines(text: str) -> tuple[str, list[str]]:
    """A mapping without lines that cannot be part of one, and a sentence about each. One that can be read stays."""
    found = {
        index: "which is not YAML"
        for index, line in enumerate(split_lines(text))
        if not _YAML_LINE.fullmatch(line.rstrip()) or _CONFLICT.fullmatch(line.rstrip())
    }
    if _is_mapping(text) or not found:
        return text, []
    cleaned = _remove_lines(text, found)
    return (cleaned, _describe(text, found)) if _is_mapping(cleaned) else (text, [])


def _find_stray_progress_lines(
    progress: Progress, defined: Collection[str], planned: Collection[str]
) -> Iterator[tuple[int, str]]:
    """The index of each stray line, and what is wrong with it."""
    page = Page(progress.text)
    conflicts = dict(_find_conflict_marks(page))
    yield from conflicts.items()
    items = dict(progress.items_by_line())
    last = {(item.id, item.section): index for index, item in items.items()}
    for first, end, title in _list_ranges(page, items):
        belongs_to_item = False
        for index in range(first, end):
            line = page.prose[index]
            if index in conflicts or not line.strip():
                continue
            item = items.get(index)
            if item is None:
                belongs_to_item = belongs_to_item and line[0] in " \t"
                if not belongs_to_item and not is_placeholder(line) and not _is_table_row(line, title):
                    yield index, "which is about no step and no task"
                continue
            belongs_to_item = True
            if last[item.id, item.section] != index:
                yield index, f"because a later line is about {item.id} too"
            elif item.id not in defined and _is_made_up(item, planned):
                yield index, "which is about no step and no task"


def _is_made_up(item: ProgressItem, planned: Collection[str]) -> bool:
    """Whether a line is about a task that never existed."""
    is_unplanned = bool(planned) and not item.is_planning and item.id not in planned
    return is_unplanned or not is_usual_id(item.id)


def _list_ranges(page: Page, items: Collection[int]) -> Iterator[tuple[int, int, str]]:
    """The first line, the end and the name of each part of the file in which every line is about a step or a task.

    Text below the heading of the file stays, unless the list itself stands there. So does everything below a heading that
    Ralph does not write.
    """
    starts = [section.start for section in page.sections]
    for section in page.sections:
        first = section.start + 1
        end = min((start for start in starts if start > section.start), default=len(page.lines))
        is_list = section.level == 2 or any(first <= index < end for index in items)
        if section.level <= 2 and is_list and (is_list_title(section.name) or section.name == "iterations"):
            yield first, end, section.name


def _is_table_row(line: str, title: str) -> bool:
    return title == "iterations" and line.lstrip().startswith("|")


def _find_conflict_marks(page: Page) -> Iterator[tuple[int, str]]:
    # A line of `=======` alone underlines a heading.
    if any(line.startswith("<<<<<<< ") for line in page.lines):
        for index, line in enumerate(page.lines):
            if _CONFLICT.fullmatch(line):
                yield index, "which is the mark of a merge conflict"


def _is_mapping(text: str) -> bool:
    try:
        read_mapping(text, "")
    except StateError:
        return False
    return True


def _remove_lines(text: str, found: Collection[int]) -> str:
    # The mark at the beginning of a file is part of its first line.
    return "".join(line for index, line in enumerate(split_lines(text)) if index not in found)


def _describe(text: str, found: dict[int, str]) -> list[str]:
    lines = split_lines(text)
    return [f'removed line {index + 1}, {found[index]}: "{_quote(lines[index])}"' for index in sorted(found)]


def _quote(line: str) -> str:
    clean = line.strip()
    return clean if len(clean) <= _LONGEST_QUOTE else f"{clean[:_LONGEST_QUOTE]}..."
