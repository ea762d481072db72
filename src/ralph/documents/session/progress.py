"""`progress.md`: the markers of planning steps and tasks. It alone says what is done.

The two layouts write it differently: `STANDARD` has sections for each iteration and a table of iterations, `CLASSIC` has one
section for planning and one for tasks, and a word for every marker. The marker counts, not the word.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ralph.core.errors import StateError
from ralph.documents.session.markdown import BOM, Page, Section, bare, name_of, one_line, parse_cells, row, split_lines
from ralph.documents.session.tasks import ID, STATUS, is_planning, normalize_id


class Marker(StrEnum):
    """Where a task or a planning step is; the value is what stands between the brackets."""

    TODO = " "
    WIP = "/"
    PENDING = "P"
    DONE = "x"
    FAILED = "F"
    CANCELLED = "C"


MARKER_MEANINGS = {
    Marker.TODO: "Not started",
    Marker.WIP: "In progress",
    Marker.PENDING: "Pending review",
    Marker.DONE: "Completed",
    Marker.FAILED: "Failed",
    Marker.CANCELLED: "Cancelled",
}
_NEXT_MARKERS = {
    # A task whose file is missing fails before it began.
    Marker.TODO: {Marker.WIP, Marker.CANCELLED, Marker.FAILED},
    # Time out, abort and criteria that are not met fail without a review; what is split is cancelled.
    Marker.WIP: {Marker.PENDING, Marker.FAILED, Marker.CANCELLED},
    Marker.PENDING: {Marker.DONE, Marker.FAILED},
    Marker.FAILED: {Marker.TODO, Marker.CANCELLED},
}
FINAL_MARKERS = (Marker.DONE, Marker.CANCELLED)
_MARKERS_BY_TEXT = {marker.value.casefold(): marker for marker in Marker}


def is_legal_change(old: Marker, new: Marker, *, retries_as_todo: bool = False) -> bool:
    """Whether a line may go from one marker to another; to stay is always legal.

    `retries_as_todo`: a task that failed and has attempts left goes back to not started at once.
    """
    if retries_as_todo and new is Marker.TODO and old in (Marker.WIP, Marker.PENDING):
        return True
    return old is new or new in _NEXT_MARKERS.get(old, ())


def count_markers(markers: Mapping[Marker, int]) -> dict[str, Any]:
    """How many tasks there are, by result."""
    done, failed, gone = (markers.get(one, 0) for one in (Marker.DONE, Marker.FAILED, Marker.CANCELLED))
    total = sum(markers.values())
    pending = total - done - failed - gone
    return {"total": total, "completed": done, "failed": failed, "pending": pending, "cancelled": gone}


def read_marker(text: str) -> Marker | None:
    """The marker between brackets, in either case; None if it is invalid."""
    return _MARKERS_BY_TEXT.get(text.casefold() or " ")


PLACEHOLDER = "[To be filled]"
NO_NEW_TASKS = "[No new tasks]"
"""What stands in the section of an iteration that adds no task. Earlier tasks stay in the section where they began."""
MISSING = "Task definition missing"
"""The note of a task that failed because it has no definition."""
DELETED = "deleted by the user"
"""The note of a task whose line and definition are both gone."""
CANCELLED = "cancelled by the user"
"""The note of a task that the user marked as cancelled."""
BY_USER = "by the user"
"""What the note of a task says that the user cancelled or deleted."""
_LEAD = r"(?P<lead>\s*(?:[-*+]|\d{1,4}[.)])\s+)"
_LIST = re.compile(r".*\bprogress\b.*|tasks\b.*")
_KNOWN_ID = re.compile(r"(?:plan|task)-.+")
_PLACEHOLDER = re.compile(r"\W*(?:to be filled|no new tasks).*", re.IGNORECASE)
_FROM = re.compile(r"\bfrom attempt (\d{1,6})", re.IGNORECASE)
_ATTEMPT = re.compile(r"\battempt\s+#?(\d{1,6})", re.IGNORECASE)
_ITERATION = re.compile(r".*\(iteration (\d{1,6})\b.*")
_TITLE = re.compile(r"(planning|implementation) progress \(iteration \d+\)")


@dataclass(frozen=True)
class Style:
    """How a layout writes the file."""

    line: re.Pattern[str]
    """A line with an item: `lead`, `box`, `gap`, `id` and `rest`."""
    skipped: re.Pattern[str]
    """The sections without items."""
    words: Mapping[Marker, str] = field(default_factory=dict)
    """The word behind each marker."""

    def note(self, marker: Marker, note: str) -> str:
        """What is written in the parentheses of a line."""
        return ", ".join(part for part in (self.words.get(marker, ""), _note(note)) if part)

    def marker(self, box: str | None, note: str) -> Marker | None:
        """The marker of a line. A line without a box may have a word instead; an invalid marker counts as not started."""
        if box is not None:
            return read_marker(box) or Marker.TODO
        said = STATUS.search(note)
        return _MARKERS_BY_WORD.get(said[0].casefold().replace("-", " ")) if said else None


STANDARD = Style(
    re.compile(
        rf"{_LEAD}\[(?P<box>.?)\](?P<gap>\s+(?:\*\*|__|`)?)(?P<id>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9_])?)(?![\w/])(?P<rest>.*)",
        re.ASCII,
    ),
    re.compile(r"legend|iterations|live signals|current state"),
)
CLASSIC = Style(
    re.compile(
        rf"{_LEAD}(?:\[(?P<box>.?)\])?(?P<gap>\s*(?:\*\*|__|`)?)(?P<id>{ID})(?P<rest>(?:\*\*|__|`)?(?![\w/]).*)",
        re.IGNORECASE,
    ),
    re.compile(r"legend|notes"),
    {
        Marker.TODO: "Not Started",
        Marker.WIP: "In Progress",
        Marker.PENDING: "Review Pending",
        Marker.DONE: "Completed",
        Marker.FAILED: "Failed",
        Marker.CANCELLED: "Cancelled",
    },
)
_MARKERS_BY_WORD = {word.casefold(): marker for marker, word in CLASSIC.words.items()}
_MARKERS_BY_WORD |= {
    "todo": Marker.TODO,
    "pending review": Marker.PENDING,
    "complete": Marker.DONE,
    "done": Marker.DONE,
}


@dataclass(frozen=True)
class ProgressItem:
    """A planning step or a task, and where it is."""

    id: str
    marker: Marker
    note: str = ""
    """What stands in parentheses behind it."""
    section: str = ""
    """The title of the section in which its last line is."""
    description: str = ""
    """What else its line says."""

    @property
    def is_planning(self) -> bool:
        """Whether it is a step of planning, and no task."""
        return is_planning(self.id)

    @property
    def begins_at(self) -> int:
        """The attempt from which on its attempts are counted."""
        match = _FROM.search(self.note)
        return int(match[1]) if match else 1

    @property
    def attempt(self) -> int | None:
        """The attempt that its note names."""
        match = _ATTEMPT.search(self.note)
        return int(match[1]) if match else None

    @property
    def iteration(self) -> int | None:
        """The iteration of its section."""
        match = _ITERATION.fullmatch(self.section.casefold())
        return int(match[1]) if match else None


@dataclass(frozen=True)
class InvalidMarker:
    """A line whose marker is none of the six."""

    index: int
    id: str
    box: str
    """What stands between the brackets."""


@dataclass(frozen=True)
class Progress:
    """The file, as `parse_progress` reads it.

    A method that changes something returns another value, in which only the changed lines of the text are different.
    """

    text: str
    style: Style
    items: Mapping[str, ProgressItem]
    """The items by id. If an item has several lines, the last one counts."""
    line_indexes: Mapping[str, int]
    """The index of the last line of every item."""
    invalid_markers: tuple[InvalidMarker, ...] = ()

    def items_by_line(self) -> Iterator[tuple[int, ProgressItem]]:
        """Every line that has an item, with its index. Only the last one of an item counts."""
        for index, _, item in _find_items(Page(self.text), self.style):
            yield index, item

    def with_item(self, id: str, marker: Marker, note: str = "") -> "Progress":
        """Set the marker and the note in the last line of an item."""
        if id not in self.items:
            raise StateError(
                f"there is no line for {id}", where="progress.md", todo="add it to the section of its iteration"
            )
        # A long session sets thousands of markers. No line moves, so nothing has to be parsed again.
        mark = BOM if self.text.startswith(BOM) else ""
        raw = split_lines(self.text.removeprefix(BOM))
        index = self.line_indexes[id]
        old = raw[index].rstrip("\r\n")
        line, item = self._change_line(old, self.items[id], marker, note)
        raw[index] = line + raw[index][len(old) :]
        invalid = tuple(one for one in self.invalid_markers if one.index != index)
        return replace(self, text=mark + "".join(raw), items={**self.items, id: item}, invalid_markers=invalid)

    def _change_line(self, line: str, item: ProgressItem, marker: Marker, note: str) -> tuple[str, ProgressItem]:
        match = self.style.line.fullmatch(line)
        assert match is not None
        description, old_note = split_note(match["rest"])
        if self.style.words and old_note and not STATUS.search(old_note):
            description = f"{description} ({old_note})"
        clean = self.style.note(marker, note)
        if not clean:
            # Without a note, parentheses at the end of the description would be read as one.
            while split_note(description)[0] != description:
                description = split_note(description)[0]
        new = f"{match['lead']}[{marker}]{match['gap'] or ' '}{match['id']}{description}"
        if clean:
            new += f" ({clean})"
        return new, replace(item, marker=marker, note=clean, description=_clean_description(description))

    def with_section(self, title: str, items: Iterable[tuple[str, Marker, str]]) -> "Progress":
        """Put items into a section. If there is none, it is added before `## Iterations`."""
        title = title.lstrip("# ")
        page = Page(self.text)
        section = _find_last_section(page, title)
        if section is None:
            lines = [f"## {title}", *([self._line(*item) for item in items] or [PLACEHOLDER])]
            before = _find_last_section(page, "Iterations")
            return self._with_text(page.insert_lines(before.start, lines) if before else page.append_lines(lines))
        progress, added = self, []
        for id, marker, note in items:
            if section.start < self.line_indexes.get(id, -1) < section.end:
                progress = progress.with_item(id, marker, note)
            else:
                added.append(self._line(id, marker, note))
        return progress._with_lines(section, added) if added else progress

    def with_filled_section(self, title: str) -> "Progress":
        """Say in a section that still waits for its tasks that it has none."""
        page = Page(self.text)
        section = _find_last_section(page, title)
        for index in range(section.start + 1, section.end) if section else ():
            if page.lines[index].strip() == PLACEHOLDER:
                return self._with_text(page.replace_lines(index, index + 1, [NO_NEW_TASKS]))
        return self

    def with_items(self, items: Iterable[tuple[str, Marker, str]]) -> "Progress":
        """Add lines behind those of their kind, or in a section of their own."""
        missing = [item for item in items if item[0] not in self.items]
        planning = [self._line(*item) for item in missing if is_planning(item[0])]
        tasks = [self._line(*item) for item in missing if not is_planning(item[0])]
        progress = self
        if planning:
            progress = progress._with_lines_of(PLANNING, planning, planning=True)
        if tasks:
            progress = progress._with_lines_of(IMPLEMENTATION, tasks, planning=False)
        return progress

    def with_iteration_row(self, iteration: int, status: str, tasks: str, feedbacks: str) -> "Progress":
        """Set the row of an iteration in the table of iterations."""
        page = Page(self.text)
        new = row(iteration, status, tasks, feedbacks)
        section = _find_last_section(page, "Iterations")
        if section is None:
            return self._with_text(page.append_lines(["## Iterations", *_TABLE, new]))
        last = section.start
        for index in range(section.start + 1, section.end):
            found = parse_cells(page.lines[index])
            if found and found[0] == str(iteration):
                is_same = found == [one_line(cell) for cell in (str(iteration), status, tasks, feedbacks)]
                return self if is_same else self._with_text(page.replace_lines(index, index + 1, [new]))
            if page.lines[index].strip().startswith("|"):
                last = index
        lines = [new] if last > section.start else [*_TABLE, new]
        return self._with_text(page.replace_lines(last + 1, last + 1, lines))

    def _with_text(self, text: str) -> "Progress":
        return parse_progress(text, self.style)

    def _line(self, id: str, marker: Marker, note: str) -> str:
        clean = self.style.note(marker, note)
        return f"- [{marker}] {id}" + (f" ({clean})" if clean else "")

    def _with_lines(self, section: Section, lines: Sequence[str]) -> "Progress":
        """Add lines after the last item of a section, or in the place of its placeholder."""
        page = Page(self.text)
        inside = range(section.start + 1, section.end)
        last = max((index for index in inside if self.style.line.fullmatch(page.prose[index])), default=-1)
        for index in inside:
            if last < 0 and _PLACEHOLDER.fullmatch(page.lines[index]):
                return self._with_text(page.replace_lines(index, index + 1, lines))
        at = (section.start if last < 0 else last) + 1
        return self._with_text(page.replace_lines(at, at, lines))

    def _with_lines_of(self, title: str, lines: Sequence[str], *, planning: bool) -> "Progress":
        """Add lines after the last one of their kind, in the section for it, or in a new one."""
        page = Page(self.text)
        same_kind = [index for id, index in self.line_indexes.items() if is_planning(id) is planning]
        if same_kind:
            at = max(same_kind) + 1
            return self._with_text(page.replace_lines(at, at, lines))
        other_titles = () if planning else ("execution progress", "tasks")
        section = page.section(title.casefold(), *other_titles)
        if section:
            return self._with_text(page.replace_lines(section.start + 1, section.start + 1, lines))
        closing = [page.open_fence] if page.open_fence else []
        return self._with_text(page.append_lines([*closing, f"## {title}", *lines]))


def is_list_title(name: str) -> bool:
    """Whether a section of this name lists steps or tasks."""
    return bool(_LIST.fullmatch(name))


def is_usual_id(id: str) -> bool:
    """Whether an id looks like that of a step or a task."""
    return bool(_KNOWN_ID.fullmatch(id))


def is_placeholder(line: str) -> bool:
    """Whether a line holds the place of tasks that are not known yet."""
    return bool(_PLACEHOLDER.fullmatch(line))


def parse_progress(text: str, style: Style = STANDARD) -> Progress:
    """Read the file."""
    items: dict[str, ProgressItem] = {}
    line_indexes: dict[str, int] = {}
    invalid = []
    for index, box, item in _find_items(Page(text), style):
        # The last line of an item counts, and decides where it comes in the order.
        items.pop(item.id, None)
        line_indexes.pop(item.id, None)
        items[item.id] = item
        line_indexes[item.id] = index
        if box is not None and read_marker(box) is None:
            invalid.append(InvalidMarker(index, item.id, box))
    return Progress(text, style, items, line_indexes, invalid_markers=tuple(invalid))


def _find_last_section(page: Page, title: str) -> Section | None:
    found = [section for section in page.sections if section.name == name_of(title)]
    return found[-1] if found else None


_TABLE = (row("Iteration", "Status", "Tasks", "Feedbacks"), "|-----------|--------|-------|-----------|")


PLANNING, IMPLEMENTATION = "Planning Progress", "Implementation Progress"


def planning_title(iteration: int) -> str:
    """The section of the planning steps."""
    return f"{PLANNING} (Iteration {iteration})"


def implementation_title(iteration: int) -> str:
    """The section of the tasks."""
    return f"{IMPLEMENTATION} (Iteration {iteration})"


def render_new_progress(iteration: int, planning: Sequence[str]) -> Progress:
    """The file as an iteration begins, with these planning steps."""
    lines = [
        "# Progress",
        "",
        "## Legend",
        *map(_meaning, Marker),
        "",
        f"## {planning_title(iteration)}",
        *(f"- [{Marker.TODO}] {step}" for step in planning),
        "",
        f"## {implementation_title(iteration)}",
        PLACEHOLDER,
        "",
        "## Iterations",
        *_TABLE,
        row(iteration, "Planning" if iteration == 1 else "Replanning", "0/0", "N/A"),
    ]
    return parse_progress("\n".join(lines) + "\n")


def render_new_classic_progress(done: Iterable[str], planning: Iterable[str]) -> Progress:
    """The file as a classic session begins, with these planning steps, some of them done."""
    over = set(done)
    empty = parse_progress(f"# Progress Tracking\n\n## {PLANNING}\n\n## {IMPLEMENTATION}\n", CLASSIC)
    return empty.with_items([(step, Marker.DONE if step in over else Marker.TODO, "") for step in planning])


def find_progress_problems(text: str) -> list[str]:
    """What is wrong with the file, a sentence each."""
    page = Page(text)
    found = [] if _is_headed(page) else ["line 1: the heading `# Progress` is missing"]
    if missing := _not_in_legend(page):
        legend, words = page.section("legend"), ", ".join(f"[{marker}]" for marker in missing)
        found.append(f"line {legend.start + 1 if legend else 1}: the section `## Legend` lacks {words}")
    titles = {match[1] for section in page.sections if (match := _TITLE.fullmatch(section.name))}
    for kind in ("planning", "implementation"):
        if kind not in titles:
            found.append(f"line 1: the section `## {kind.title()} Progress (Iteration N)` is missing")
    for one in parse_progress(text).invalid_markers:
        found.append(f"line {one.index + 1}: {one.id} has the marker [{one.box}], which is not a marker")
    return found


def repair_progress(text: str) -> tuple[Progress, list[str]]:
    """The file with a heading, a whole legend and no marker that is none, and what was done to it."""
    text, done = remove_invalid_markers(text, parse_progress(text).invalid_markers)
    page = Page(text)
    if missing := _not_in_legend(page):
        legend = page.section("legend")
        if legend:
            end = legend.start + 1 + len("\n".join(legend.lines).rstrip().split("\n"))
            text = page.replace_lines(end, end, [_meaning(marker) for marker in missing])
        else:
            lines = ["## Legend", *map(_meaning, Marker)]
            text = page.insert_lines(
                next((one.start for one in page.sections if one.level == 2), len(page.lines)), lines
            )
        done.append("the legend was completed")
    page = Page(text)
    if not _is_headed(page):
        text = page.insert_lines(page.body, ["# Progress"])
        done.append("the heading was added")
    return parse_progress(text), done


def remove_invalid_markers(text: str, invalid: Iterable[InvalidMarker]) -> tuple[str, list[str]]:
    """Replace invalid markers by `[ ]`, and say what was done."""
    done = []
    for one in invalid:
        page = Page(text)
        line = page.lines[one.index].replace(f"[{one.box}]", f"[{Marker.TODO}]", 1)
        text = page.replace_lines(one.index, one.index + 1, [line])
        done.append(f"the marker of {one.id} was invalid, and counts as not started")
    return text, done


def _is_headed(page: Page) -> bool:
    return any(section.level == 1 and section.name.startswith("progress") for section in page.sections)


def _not_in_legend(page: Page) -> list[Marker]:
    text = page.says("legend")
    return [marker for marker in Marker if f"[{marker}]" not in text]


def _meaning(marker: Marker) -> str:
    return f"- `[{marker}]` {MARKER_MEANINGS[marker]}"


def _find_items(page: Page, style: Style) -> Iterator[tuple[int, str | None, ProgressItem]]:
    """The index, the box and the item of every line that has an item."""
    starts = {section.start: section for section in page.sections}
    title, is_list, is_skipped = "", False, False
    for index, line in enumerate(page.prose):
        section = starts.get(index)
        if section:
            is_skipped = bool(style.skipped.fullmatch(section.name))
            if section.level <= 2:
                title, is_list = section.title, bool(_LIST.fullmatch(section.name))
            continue
        if is_skipped or ("[" not in line and not style.words):
            continue
        match = style.line.fullmatch(line)
        if not match or not (style.words or is_list or _KNOWN_ID.fullmatch(match["id"])):
            continue
        description, note = split_note(match["rest"])
        marker = style.marker(match["box"], note)
        if marker is not None:
            item = ProgressItem(
                id=normalize_id(match["id"]),
                marker=marker,
                note=note,
                section=title,
                description=_clean_description(description),
            )
            yield index, match["box"], item


def _clean_description(text: str) -> str:
    return bare(text.strip(" :—–-*_`"))


def split_note(rest: str) -> tuple[str, str]:
    """Split what follows an id: its description, and the note in parentheses at the end."""
    text, depth = rest.rstrip(), 0
    if text.endswith(")"):
        for index in range(len(text) - 1, -1, -1):
            depth += (text[index] == ")") - (text[index] == "(")
            if depth == 0:
                return text[:index].rstrip(), text[index + 1 : -1].strip()
    return text, ""


def _note(text: str) -> str:
    """A note that stays on its line and within its parentheses."""
    text, depth = one_line(text), 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            break
    return text if depth == 0 else text.replace("(", "[").replace(")", "]")
