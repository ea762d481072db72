"""`progress.md` of a classic session: a marker for every planning step and task. The marker counts, not the word behind it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ralph.core.errors import StateError
from ralph.documents.classic.names import ID, STATUS, is_planning, named
from ralph.documents.session.markdown import Page, bare, one_line
from ralph.documents.session.markers import Marker, read
from ralph.documents.session.progress import split

WORDS = {
    Marker.TODO: "Not Started",
    Marker.WIP: "In Progress",
    Marker.PENDING: "Review Pending",
    Marker.DONE: "Completed",
    Marker.FAILED: "Failed",
    Marker.CANCELLED: "Cancelled",
}
PLANNING, IMPLEMENTATION = "Planning Progress", "Implementation Progress"
_LINE = re.compile(
    rf"(\s*(?:[-*+]|\d{{1,4}}[.)])\s+)(?:\[(.?)\]\s*)?((?:\*\*|__|`)?)({ID})((?:\*\*|__|`)?)(?![\w/])(.*)",
    re.IGNORECASE,
)
_MARKERS = {word.casefold(): marker for marker, word in WORDS.items()}
_MARKERS |= {"todo": Marker.TODO, "pending review": Marker.PENDING, "complete": Marker.DONE, "done": Marker.DONE}
_FROM = re.compile(r"\bfrom attempt (\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True)
class Item:
    """A planning step or a task, and where it is."""

    id: str
    marker: Marker
    note: str = ""
    """What stands in parentheses behind it."""
    words: str = ""
    """What else its line says."""

    @property
    def is_planning(self) -> bool:
        """Whether it is a step of planning, and no task."""
        return is_planning(self.id)

    @property
    def begins_at(self) -> int:
        """The attempt from which on its tries are counted."""
        match = _FROM.search(self.note)
        return int(match[1]) if match else 1


@dataclass(frozen=True)
class Progress:
    """The file; what changes it gives another, in which only the lines that changed are different."""

    text: str

    @cached_property
    def items(self) -> Mapping[str, Item]:
        """The items by id; where one has several lines, the last counts."""
        found: dict[str, Item] = {}
        for index in self._lines.values():
            item = _item(self._page.prose[index])
            if item:
                found[item.id] = item
        return found

    def with_item(self, id: str, marker: Marker, note: str = "") -> "Progress":
        """The same with another marker in the line of an item, the word for it, and what else is to be noted."""
        if id not in self._lines:
            raise StateError(
                f"there is no line for {id}", where="progress.md", todo="`ralph session repair` puts it in"
            )
        index = self._lines[id]
        match = _LINE.fullmatch(self._page.lines[index])
        assert match is not None
        words, old = split(match[6])
        words = words if not old or STATUS.search(old) else f"{words} ({old})"
        line = f"{match[1]}[{marker}] {match[3]}{match[4]}{match[5]}{words} ({_note(marker, note)})"
        return Progress(self._page.replaced(index, index + 1, [line]))

    def with_items(self, items: Iterable[tuple[str, Marker, str]]) -> "Progress":
        """The same with further lines: behind those of their kind, or in a section of their own."""
        progress = self
        for kind, title in ((True, PLANNING), (False, IMPLEMENTATION)):
            lines = [_line(*item) for item in items if is_planning(item[0]) is kind and item[0] not in self.items]
            progress = progress._with_lines(kind, title, lines) if lines else progress
        return progress

    @cached_property
    def bad(self) -> list[tuple[int, str, str]]:
        """The lines whose marker is none: their index, the id, and what stands between the brackets."""
        found = []
        for id, index in self._lines.items():
            match = _LINE.fullmatch(self._page.prose[index])
            if match and match[2] is not None and read(match[2]) is None:
                found.append((index, id, match[2]))
        return found

    @cached_property
    def _page(self) -> Page:
        return Page(self.text)

    @cached_property
    def _lines(self) -> dict[str, int]:
        starts = {section.start: section for section in self._page.sections}
        found: dict[str, int] = {}
        skipped = False
        for index, line in enumerate(self._page.prose):
            if index in starts:
                skipped = starts[index].name in ("legend", "notes")
            elif not skipped and (item := _item(line)):
                found.pop(item.id, None)
                found[item.id] = index
        return found

    def _with_lines(self, planning: bool, title: str, lines: Sequence[str]) -> "Progress":
        page = self._page
        same = [index for id, index in self._lines.items() if is_planning(id) is planning]
        if same:
            at = max(same) + 1
            return Progress(page.replaced(at, at, lines))
        section = page.section(title.casefold(), *(() if planning else ("execution progress", "tasks")))
        if section:
            return Progress(page.replaced(section.start + 1, section.start + 1, lines))
        return Progress(page.appended([*([page.open_fence] if page.open_fence else []), f"## {title}", *lines]))


def new_progress(done: Iterable[str], planning: Iterable[str]) -> Progress:
    """The file as a session begins, with these planning steps, some of them done."""
    over = set(done)
    lines = [_line(step, Marker.DONE if step in over else Marker.TODO, "") for step in planning]
    head = ["# Progress Tracking", "", f"## {PLANNING}", *lines, "", f"## {IMPLEMENTATION}"]
    return Progress("\n".join(head) + "\n")


def _item(line: str) -> Item | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    words, note = split(match[6])
    said = STATUS.search(note)
    marker = read(match[2]) if match[2] is not None else None
    if match[2] is None:
        # Who left the box out said it in words; other lines about a task are none of it.
        marker = _MARKERS.get(said[0].casefold().replace("-", " ")) if said else None
        if marker is None:
            return None
    return Item(named(match[4]), marker or Marker.TODO, note, bare(words.strip(" :—–-")))


def _note(marker: Marker, note: str) -> str:
    clean = one_line(note).replace("(", "[").replace(")", "]")
    return f"{WORDS[marker]}, {clean}" if clean else WORDS[marker]


def _line(id: str, marker: Marker, note: str) -> str:
    return f"- [{marker}] {id} ({_note(marker, note)})"
