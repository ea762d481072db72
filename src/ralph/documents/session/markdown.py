"""Markdown as users and agents write it, by line: front matter, sections, bullets, fields and tables.

Headings count where a reader sees them: not in code, not in comments. Lines keep their own endings, and a change replaces
whole lines, so what was not changed stays as it was, byte for byte. The files are read at every step and may have ten
thousand lines; this takes a hundredth of the time that a parser of all of Markdown takes.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import dedent

BOM = "\ufeff"
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r"((?:[ \t>]|[-*+] )*)(`{3,}|~{3,})([^`]*)")
_FRONT = re.compile(r"\s*[\"'\w][^:]*:(?:\s.*)?")
_BULLET = re.compile(r"([ \t]*)(?:[-*+]|\d{1,4}[.)])[ \t]+(?:\[(.?)\][ \t]+)?(.*)")
_BOLD_FIELD = re.compile(r"\s*(?:[-*+]\s+)?(?:\*\*|__)([^*_:][^*:]{0,40}?)\s*(?::(?:\*\*|__)|(?:\*\*|__)\s*:)\s*(.*)")
_PLAIN_FIELD = re.compile(r"\s*[-*+]\s+`?([A-Za-z][\w ()/.-]{0,40}?)`?\s*:(?:\s+(.*))?")
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Section:
    """What stands below a heading, up to the next of its level or above."""

    title: str
    level: int
    start: int
    """The index of the line with the heading."""
    end: int
    path: tuple[str, ...]
    """Its name and those of the sections around it, from the outside."""
    lines: tuple[str, ...]
    own: tuple[str, ...]
    """Its lines up to the next heading of any level, without code and comments."""

    @property
    def name(self) -> str:
        """The title as titles are compared."""
        return self.path[-1]

    @property
    def text(self) -> str:
        """What it says."""
        return "\n".join(self.lines).strip()


@dataclass(frozen=True)
class Bullet:
    """An item of a list: its first line, the state of its box if it has one, and the lines below it."""

    text: str
    checked: bool | None = None
    inner: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """All that it says."""
        return "\n".join((self.text, *dedent("\n".join(self.inner)).split("\n"))).strip() if self.inner else self.text


def split_lines(text: str) -> list[str]:
    """The lines with their ends. Only a newline ends a line, unlike in `str.splitlines`."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


class Page:
    """A text by its lines."""

    def __init__(self, text: str) -> None:
        self._bom = BOM if text.startswith(BOM) else ""
        self._raw = split_lines(text.removeprefix(BOM))
        self.newline = "\r\n" if self._raw and self._raw[0].endswith("\r\n") else "\n"
        self.lines = [line.rstrip("\r\n") for line in self._raw]
        self.front, self.front_start, self.body = self._front_matter()
        self._open, self._open_line = "", 0

    def section(self, *names: str) -> Section | None:
        """The last section of one of these names that says something, else the last of them."""
        found = [section for section in self.sections if section.name in names]
        return next((one for one in reversed(found) if one.text), found[-1] if found else None)

    def says(self, *names: str) -> str:
        """The text of that section; empty if there is none."""
        section = self.section(*names)
        return section.text if section else ""

    def replace_lines(self, start: int, end: int, lines: Sequence[str]) -> str:
        """The text with other lines in the place of these; they end as lines of this text do."""
        new = [line + self.newline for line in lines]
        before, after = self._raw[:start], self._raw[end:]
        if not after and self._raw and not self._raw[-1].endswith("\n"):
            if end == start and new:
                before[-1] += self.newline
            elif new:
                new[-1] = lines[-1]
        return self._bom + "".join((*before, *new, *after))

    def with_front(self, front: str) -> str:
        """The text with other lines in its front matter."""
        return self._bom + "".join((*self._raw[: self.front_start], front, *self._raw[self.body - 1 :]))

    def insert_lines(self, at: int, lines: Sequence[str]) -> str:
        """The text with further lines before that one, between empty ones."""
        gap = [""] if at and self.lines[at - 1].strip() else []
        return self.replace_lines(at, at, [*gap, *lines, *([""] if at < len(self.lines) else [])])

    def append_lines(self, lines: Sequence[str]) -> str:
        """The text with further lines at its end, after an empty one."""
        return self.insert_lines(len(self.lines), lines)

    def _front_matter(self) -> tuple[str, int, int]:
        start = next((i for i, line in enumerate(self.lines) if line.strip()), 0)
        if not self.lines or self.lines[start].rstrip() != "---":
            return "", 0, 0
        for index in range(start + 1, len(self.lines)):
            if self.lines[index].rstrip() in ("---", "..."):
                inside = [line for line in self.lines[start + 1 : index] if line.strip()]
                first = next((line for line in inside if not line.lstrip().startswith("#")), "")
                if inside and not _FRONT.fullmatch(first):
                    break
                return "".join(self._raw[start + 1 : index]), start + 1, index + 1
        return "", 0, 0

    @cached_property
    def prose(self) -> list[str]:
        """The lines, with those of front matter, code and comments left empty."""
        prose = [""] * self.body
        fence, most, comment, opened = "", 0, False, 0
        for number, line in enumerate(self.lines[self.body :], self.body):
            shown = ""
            if comment:
                comment = "-->" not in line
            elif fence:
                end = line.lstrip(" \t>")
                if len(line) - len(end) <= most and end.startswith(fence) and not end.strip().strip(fence[0]):
                    fence = ""
            elif match := _FENCE.fullmatch(line):
                fence, most, opened = match[2], len(match[1]) + 3, number
            elif line.lstrip(" ").startswith("<!--"):
                comment, opened = "-->" not in line, number
            else:
                shown = line
            prose.append(shown)
        self._open, self._open_line = fence or ("-->" if comment else ""), opened
        return prose

    @cached_property
    def sections(self) -> list[Section]:
        """All sections, in the order of their headings."""
        heads = [(i, len(m[1]), m[2] or "") for i, line in enumerate(self.prose) if (m := _HEADING.fullmatch(line))]
        heads.append((len(self.lines), 0, ""))
        found: list[Section] = []
        around: list[tuple[int, str]] = []
        for number, (start, level, title) in enumerate(heads[:-1], 1):
            end = next(index for index, other, _ in heads[number:] if other <= level)
            around = [*(one for one in around if one[0] < level), (level, name_of(title))]
            own = tuple(self.prose[start + 1 : heads[number][0]])
            path = tuple(name for _, name in around)
            section = Section(
                title=title.strip(),
                level=level,
                start=start,
                end=end,
                path=path,
                lines=tuple(self.lines[start + 1 : end]),
                own=own,
            )
            found.append(section)
        return found

    @property
    def open_fence(self) -> str:
        """What closes the code or the comment in which the text ends."""
        return self._open if self.prose else ""

    @property
    def open_line(self) -> int:
        """Where that code or comment begins."""
        return self._open_line if self.prose else 0


def find_hidden_problems(text: str, find: Callable[[str], list[str]]) -> list[str]:
    """What is wrong with a document, also with the part that code or a comment hides because it is never closed."""
    problems = find(text)
    shown, unclosed = close_open_marks(text)
    return [*unclosed, *find(shown)] if problems and unclosed else problems


def close_open_marks(text: str) -> tuple[str, list[str]]:
    """The text without each mark that opens code or a comment and is never closed, and a sentence about each."""
    unclosed = []
    page = Page(text)
    while page.open_fence:
        what, end = ("comment", "`-->`") if page.open_fence == "-->" else ("code fence", "a line with the same mark")
        unclosed.append(
            f"line {page.open_line + 1}: the {what} that opens here is never closed and hides everything below it; close it"
            f" with {end}"
        )
        text = page.replace_lines(page.open_line, page.open_line + 1, [""])
        page = Page(text)
    return text, unclosed


def name_of(title: str) -> str:
    """A title as titles are compared: small letters, no emphasis, no symbols."""
    return " ".join(re.sub(r"[^\w&/().,+-]", " ", title).casefold().split())


def parse_bullets(lines: Iterable[str]) -> list[Bullet]:
    """The items of the lists in these lines, with what is below each."""
    found: list[tuple[str, str | None, list[str]]] = []
    base, gap, is_open = 0, False, False
    for line in lines:
        if not line.strip():
            gap = True
            continue
        indent = len(line) - len(line.lstrip())
        match = _BULLET.fullmatch(line)
        if match and (not is_open or indent <= base):
            found.append((match[3].strip(), match[2], []))
            base, is_open = indent, True
        elif is_open and gap and indent <= base:
            is_open = False
        elif is_open:
            found[-1][2].append(line)
        gap = False
    bullets = []
    for text, box, inner in found:
        is_checked = None if box is None else box not in ("", " ")
        bullets.append(Bullet(text, is_checked, tuple(inner)))
    return bullets


def fields(lines: Iterable[str]) -> dict[str, str]:
    """The `- **Key**: value` lines by key in small letters; a value continues to the next empty line or key."""
    found: dict[str, str] = {}
    key = ""
    for line in lines:
        match = _BOLD_FIELD.fullmatch(line) or _PLAIN_FIELD.fullmatch(line)
        if match:
            key = match[1].strip().casefold()
            found[key] = (match[2] or "").strip()
        elif not line.strip():
            key = ""
        elif key:
            found[key] = f"{found[key]}\n{line.strip()}".strip()
    return found


def parse_cells(line: str) -> list[str] | None:
    """The cells of a table row; None if the line is not a row, or is the line below the head."""
    line = line.strip()
    if not line.startswith("|") or not line.strip("|-: \t"):
        return None
    parts = _CELL.split(line.removeprefix("|"))
    if line.endswith("|"):
        # Nothing comes after the last bar.
        parts = parts[:-1]
    return [part.strip().replace("\\|", "|") for part in parts]


def row(*values: object) -> str:
    return "| " + " | ".join(one_line(str(value)).replace("|", "\\|") for value in values) + " |"


def rows(lines: Iterable[str]) -> list[list[str]]:
    """The rows of the tables in these lines, heads included."""
    return [found for line in lines if (found := parse_cells(line))]


def one_line(text: str) -> str:
    return " ".join(text.split())


def bare(text: str) -> str:
    """A text without the marks of emphasis and code around it."""
    return text.strip().strip("*`_ ").strip()


def contain_markdown(text: str, level: int = 3) -> str:
    """A text that cannot break out of the section it is put into: no heading above that level, no code left open."""
    page = Page("text\n" + text.replace("\r\n", "\n").strip("\n"))
    lines = page.lines[:]
    for section in page.sections:
        if section.level < level:
            lines[section.start] = "#" * level + " " + section.title
    return "\n".join([*lines[1:], *([page.open_fence] if page.open_fence else [])]).strip("\n").rstrip()
