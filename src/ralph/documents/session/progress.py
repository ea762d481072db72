"""`progress.md`: the markers of planning steps and tasks. It alone says what is done.

The two layouts write it differently: `STANDARD` has sections for each iteration and a table of iterations, `CLASSIC` has one
section for planning and one for tasks, and a word for every marker. The marker counts, not the word.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ralph.core.errors import StateError
from ralph.documents.session.markdown import Page, Section, bare, cells, name_of, one_line, row
from ralph.documents.session.markers import MEANING, Marker, read
from ralph.documents.session.task_names import ID, STATUS, is_planning, named

PLACEHOLDER = "[To be filled]"
MISSING = "Task definition missing"
"""The note of a task that failed because nothing defines it."""
_LEAD = r"(?P<lead>\s*(?:[-*+]|\d{1,4}[.)])\s+)"
_LIST = re.compile(r".*\bprogress\b.*|tasks\b.*")
_KNOWN_ID = re.compile(r"(?:plan|task)-.+")
_PLACEHOLDER = re.compile(r"\W*to be filled.*", re.IGNORECASE)
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
        """The marker of a line; who left the box out said it in words, and what is no marker counts as not started."""
        if box is not None:
            return read(box) or Marker.TODO
        said = STATUS.search(note)
        return _MARKERS.get(said[0].casefold().replace("-", " ")) if said else None


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
_MARKERS = {word.casefold(): marker for marker, word in CLASSIC.words.items()}
_MARKERS |= {"todo": Marker.TODO, "pending review": Marker.PENDING, "complete": Marker.DONE, "done": Marker.DONE}


@dataclass(frozen=True)
class Item:
    """A planning step or a task, and where it is."""

    id: str
    marker: Marker
    note: str = ""
    """What stands in parentheses behind it."""
    section: str = ""
    """The title of the section in which its last line is."""
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

    @property
    def attempt(self) -> int | None:
        """The attempt that its note tells of."""
        match = _ATTEMPT.search(self.note)
        return int(match[1]) if match else None

    @property
    def iteration(self) -> int | None:
        """The iteration of its section."""
        match = _ITERATION.fullmatch(self.section.casefold())
        return int(match[1]) if match else None


@dataclass(frozen=True)
class Progress:
    """The file; everything that changes it gives another, in which only the lines that changed are different."""

    text: str
    style: Style = STANDARD

    def with_item(self, id: str, marker: Marker, note: str = "") -> "Progress":
        """The same with another marker and note in the last line of an item."""
        if id not in self._lines:
            raise StateError(
                f"there is no line for {id}", where="progress.md", todo="add it to the section of its iteration"
            )
        index, item = self._lines[id], self.items[id]
        old = self._raw[index]
        shown = old.rstrip("\r\n")
        match = self.style.line.fullmatch(shown)
        assert match is not None
        words, said = split(match["rest"])
        if self.style.words and said and not STATUS.search(said):
            words = f"{words} ({said})"
        clean = self.style.note(marker, note)
        while not clean and (fewer := split(words)[0]) != words:
            words = fewer
        line = f"{match['lead']}[{marker}]{match['gap'] or ' '}{match['id']}{words}" + (f" ({clean})" if clean else "")
        raw = [*self._raw]
        raw[index] = line + old[len(shown) :]
        changed = Progress("".join(raw), self.style)
        # The lines stay where they are: what was found in them need not be looked for again.
        changed.__dict__["_raw"] = raw
        changed.__dict__["_lines"] = self._lines
        changed.__dict__["items"] = {**self.items, id: replace(item, marker=marker, note=clean, words=_words(words))}
        return changed

    def with_section(self, title: str, items: Iterable[tuple[str, Marker, str]]) -> "Progress":
        """The same with these items in a section, which is made before `## Iterations` where there is none."""
        title = title.lstrip("# ")
        section = self._section(title)
        if section is None:
            lines = [f"## {title}", *([self._line(*item) for item in items] or [PLACEHOLDER])]
            before = self._section("Iterations")
            return self._with(self._page.inserted(before.start, lines) if before else self._page.appended(lines))
        progress, fresh = self, []
        for id, marker, note in items:
            at = self._lines.get(id, -1)
            if section.start < at < section.end:
                progress = progress.with_item(id, marker, note)
            else:
                fresh.append(self._line(id, marker, note))
        return progress._with_lines(section, fresh) if fresh else progress

    def with_items(self, items: Iterable[tuple[str, Marker, str]]) -> "Progress":
        """The same with further lines: behind those of their kind, or in a section of their own."""
        progress = self
        for kind, title in ((True, PLANNING), (False, IMPLEMENTATION)):
            lines = [self._line(*item) for item in items if is_planning(item[0]) is kind and item[0] not in self.items]
            progress = progress._with_lines_of(kind, title, lines) if lines else progress
        return progress

    def with_iteration_row(self, iteration: int, status: str, tasks: str, feedbacks: str) -> "Progress":
        """The same with this row in the table of iterations."""
        new = row(iteration, status, tasks, feedbacks)
        section = self._section("Iterations")
        if section is None:
            return self._with(self._page.appended(["## Iterations", *_TABLE, new]))
        last = section.start
        for index in range(section.start + 1, section.end):
            found = cells(self._page.lines[index])
            if found and found[0] == str(iteration):
                same = found == [one_line(word) for word in (str(iteration), status, tasks, feedbacks)]
                return self if same else self._with(self._page.replaced(index, index + 1, [new]))
            last = index if self._page.lines[index].strip().startswith("|") else last
        lines = [new] if last > section.start else [*_TABLE, new]
        return self._with(self._page.replaced(last + 1, last + 1, lines))

    @cached_property
    def bad(self) -> list[tuple[int, str, str]]:
        """The lines whose marker is none: their index, the id, and what stands between the brackets."""
        found = _lines(self._page, self.style)
        return [(index, id, box) for index, id, _, box in found if box is not None and read(box) is None]

    def _with(self, text: str) -> "Progress":
        return Progress(text, self.style)

    def _line(self, id: str, marker: Marker, note: str) -> str:
        clean = self.style.note(marker, note)
        return f"- [{marker}] {id}" + (f" ({clean})" if clean else "")

    @cached_property
    def _page(self) -> Page:
        return Page(self.text)

    @cached_property
    def _raw(self) -> list[str]:
        """The lines as they are, with what ends them."""
        return self._page.raw

    @cached_property
    def _lines(self) -> dict[str, int]:
        """The last line of every item."""
        found: dict[str, int] = {}
        for index, id, _, _ in _lines(self._page, self.style):
            found.pop(id, None)
            found[id] = index
        return found

    @cached_property
    def items(self) -> dict[str, Item]:
        """The items by id; where one has several lines, the last counts."""
        found: dict[str, Item] = {}
        for _, id, item, _ in _lines(self._page, self.style):
            found.pop(id, None)
            found[id] = item
        return found

    def _section(self, title: str) -> Section | None:
        found = [section for section in self._page.sections if section.name == name_of(title)]
        return found[-1] if found else None

    def _with_lines(self, section: Section, lines: Sequence[str]) -> "Progress":
        """The same with further lines after the last item of a section, in the place of a placeholder."""
        page = self._page
        inside = range(section.start + 1, section.end)
        last = max((i for i in inside if self.style.line.fullmatch(page.prose[i])), default=-1)
        for index in inside:
            if last < 0 and _PLACEHOLDER.fullmatch(page.lines[index]):
                return self._with(page.replaced(index, index + 1, lines))
        at = (section.start if last < 0 else last) + 1
        return self._with(page.replaced(at, at, lines))

    def _with_lines_of(self, planning: bool, title: str, lines: Sequence[str]) -> "Progress":
        """The same with further lines after the last of their kind, in the section for it, or in a new one."""
        page = self._page
        same = [index for id, index in self._lines.items() if is_planning(id) is planning]
        if same:
            at = max(same) + 1
            return self._with(page.replaced(at, at, lines))
        section = page.section(title.casefold(), *(() if planning else ("execution progress", "tasks")))
        if section:
            return self._with(page.replaced(section.start + 1, section.start + 1, lines))
        return self._with(page.appended([*([page.open_fence] if page.open_fence else []), f"## {title}", *lines]))


_TABLE = (row("Iteration", "Status", "Tasks", "Feedbacks"), "|-----------|--------|-------|-----------|")


PLANNING, IMPLEMENTATION = "Planning Progress", "Implementation Progress"


def planning_title(iteration: int) -> str:
    """The section of the planning steps."""
    return f"{PLANNING} (Iteration {iteration})"


def implementation_title(iteration: int) -> str:
    """The section of the tasks."""
    return f"{IMPLEMENTATION} (Iteration {iteration})"


def new_progress(iteration: int, planning: Sequence[str]) -> Progress:
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
    return Progress("\n".join(lines) + "\n")


def new_classic_progress(done: Iterable[str], planning: Iterable[str]) -> Progress:
    """The file as a classic session begins, with these planning steps, some of them done."""
    over = set(done)
    empty = Progress(f"# Progress Tracking\n\n## {PLANNING}\n\n## {IMPLEMENTATION}\n", CLASSIC)
    return empty.with_items([(step, Marker.DONE if step in over else Marker.TODO, "") for step in planning])


def problems(text: str) -> list[str]:
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
    for index, id, box in Progress(text).bad:
        found.append(f"line {index + 1}: {id} has the marker [{box}], which is none")
    return found


def mended(text: str) -> tuple[Progress, list[str]]:
    """The file with a heading, a whole legend and no marker that is none, and what was done to it."""
    text, done = unmarked(text, Progress(text).bad)
    page = Page(text)
    if missing := _not_in_legend(page):
        legend = page.section("legend")
        if legend:
            end = legend.start + 1 + len("\n".join(legend.lines).rstrip().split("\n"))
            text = page.replaced(end, end, [_meaning(marker) for marker in missing])
        else:
            lines = ["## Legend", *map(_meaning, Marker)]
            text = page.inserted(next((one.start for one in page.sections if one.level == 2), len(page.lines)), lines)
        done.append("the legend was completed")
    page = Page(text)
    if not _is_headed(page):
        text = page.inserted(page.body, ["# Progress"])
        done.append("the heading was put in")
    return Progress(text), done


def unmarked(text: str, bad: Iterable[tuple[int, str, str]]) -> tuple[str, list[str]]:
    """The text without markers that are none, by line, id and what stands between the brackets; and what was done."""
    done = []
    for index, id, word in bad:
        page = Page(text)
        text = page.replaced(index, index + 1, [page.lines[index].replace(f"[{word}]", f"[{Marker.TODO}]", 1)])
        done.append(f"the marker of {id} was none, and counts as not started")
    return text, done


def _is_headed(page: Page) -> bool:
    return any(section.level == 1 and section.name.startswith("progress") for section in page.sections)


def _not_in_legend(page: Page) -> list[Marker]:
    text = page.says("legend")
    return [marker for marker in Marker if f"[{marker}]" not in text]


def _meaning(marker: Marker) -> str:
    return f"- `[{marker}]` {MEANING[marker]}"


def _lines(page: Page, style: Style) -> Iterator[tuple[int, str, Item, str | None]]:
    """The index, id, item and box of every line that has an item."""
    starts = {section.start: section for section in page.sections}
    title, is_list, is_skipped = "", False, False
    for index, line in enumerate(page.prose):
        if section := starts.get(index):
            is_skipped = bool(style.skipped.fullmatch(section.name))
            if section.level <= 2:
                title, is_list = section.title, bool(_LIST.fullmatch(section.name))
            continue
        match = style.line.fullmatch(line) if ("[" in line or style.words) and not is_skipped else None
        if match and (style.words or is_list or _KNOWN_ID.fullmatch(match["id"])):
            words, note = split(match["rest"])
            marker = style.marker(match["box"], note)
            if marker is not None:
                item = Item(named(match["id"]), marker, note, title, _words(words))
                yield index, item.id, item, match["box"]


def _words(text: str) -> str:
    return bare(text.strip(" :—–-*_`"))


def split(rest: str) -> tuple[str, str]:
    """What follows an id: its words, and the note in parentheses at the end."""
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
