"""A diff as git prints it, turned into files, hunks and numbered lines, and the user's comments on its lines.

Comments are one message to the agents. The message can be read back, so that a page can show each comment at its line with
what became of it: the run itself keeps them.
"""

import re
from collections.abc import Sequence
from typing import Any

from ralph.core.text import regex
from ralph.core.values import value


def parse_diff(text: str) -> list[dict[str, Any]]:
    """The files of a diff. Long files are cut, and say how many lines are left out."""
    files: list[dict[str, Any]] = []
    shown = 0
    old = new = 0
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            files.append(_new_file(line))
            continue
        if not files:
            continue
        file = files[-1]
        if match := _HUNK.match(line):
            old, new = int(match[1]), int(match[2])
            file["hunks"].append({"head": line.partition(" @@")[0] + " @@", "context": match[3].strip(), "lines": []})
            continue
        if not file["hunks"]:
            _read_header(file, line)
            continue
        sign = line[:1]
        if sign not in ("+", "-", " "):
            continue
        file["added"] += sign == "+"
        file["removed"] += sign == "-"
        if file["shown"] < LINES_PER_FILE and shown < LINES_IN_ALL:
            numbers = [old if sign != "+" else None, new if sign != "-" else None]
            file["hunks"][-1]["lines"].append([sign, *numbers, line[1 : CODE_CHARS + 1]])
            file["shown"] += 1
            shown += 1
        else:
            file["left_out"] += 1
        old += sign != "+"
        new += sign != "-"
    return files


def _new_file(line: str) -> dict[str, Any]:
    path = line.removeprefix("diff --git ")
    half = path[: len(path) // 2]
    name = half.removeprefix("a/") if path == f"{half} {half.replace('a/', 'b/', 1)}" else path
    return {
        "path": name,
        "old_path": "",
        "status": "changed",
        "added": 0,
        "removed": 0,
        "binary": False,
        "hunks": [],
        "shown": 0,
        "left_out": 0,
    }


def _read_header(file: dict[str, Any], line: str) -> None:
    if line.startswith("+++ ") and line != "+++ /dev/null":
        file["path"] = _unquote(line[4:])
    elif line.startswith("--- ") and line != "--- /dev/null":
        file["old_path"] = _unquote(line[4:])
    elif line.startswith("new file"):
        file["status"] = "new"
    elif line.startswith("deleted file"):
        file["status"] = "deleted"
    elif line.startswith("rename to "):
        file["path"], file["status"] = line.removeprefix("rename to "), "renamed"
    elif line.startswith(("Binary files", "GIT binary patch")):
        file["binary"] = True
    if file["status"] == "deleted" and file["old_path"]:
        file["path"] = file["old_path"]


def _unquote(name: str) -> str:
    """A path as it is: git quotes names with special characters, and puts `a/` or `b/` before them."""
    name = name.split("\t")[0]
    if name.startswith('"') and name.endswith('"'):
        raw = name[1:-1].encode("latin-1", "replace").decode("unicode_escape", "replace")
        name = raw.encode("latin-1", "replace").decode("utf-8", "replace")
    return name[2:] if name[:2] in ("a/", "b/") else name


HEADING = "Comments on the changes, by file and line:"
_ITEM = regex(r"^(\d+)\. `(.+)`, (removed )?lines? (\d+)(?: to (\d+))?$")
_PLACE = regex(r"(.+):(\d{1,7})(?:-(\d{1,7}))?")
_PLACE_AND_TEXT = regex(r"(\S.*?:\d{1,7}(?:-\d{1,7})?):[ \t]+(\S.*)")
_SNIPPET_LINES, LINE_CHARS = 12, 400
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$")
LINES_PER_FILE, LINES_IN_ALL, CODE_CHARS = 2000, 12_000, 1000


@value
class DiffComment:
    """What the user says about a line."""

    path: str
    line: int
    side: str
    """`new`, or `old` for a removed line."""
    snippet: str
    """The lines of the diff around it, as they were when the user wrote it."""
    text: str
    last_line: int = 0
    """The last line that is meant, if it is not the only one; 0 for one line."""
    marks: tuple[int, ...] = ()
    """Which lines of the snippet are meant, counted from 0. The message marks them with `>>`."""

    @property
    def place(self) -> str:
        """Where it is, as the user types it: `path:3` or `path:3-5`."""
        return f"{self.path}:{self.line}" + (f"-{self.last_line}" if self.last_line else "")


def parse_place(word: str) -> tuple[str, int, int] | None:
    """The path, the line and the last line (0 for one line) of `path:3` or `path:3-5`; None for anything else."""
    match = _PLACE.fullmatch(word)
    if match is None:
        return None
    line, last = int(match[2]), int(match[3] or 0)
    return match[1], line, 0 if last == line else last


def parse_comment_list(text: str) -> list[tuple[str, str]]:
    """The places and texts of a list: `path:line: text`, one comment per line. Indented lines continue a comment.

    Empty lines and lines that begin with `#` are left out. Raises `ValueError` with the number of a line that is neither.
    """
    found: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in " \t" and found:
            place, before = found[-1]
            found[-1] = (place, f"{before}\n{line.strip()}")
            continue
        match = _PLACE_AND_TEXT.fullmatch(line.rstrip())
        if match is None:
            raise ValueError(number)
        found.append((match[1], match[2]))
    return found


def render_comments(comments: Sequence[DiffComment]) -> str:
    """All comments as one message."""
    parts = [HEADING]
    for number, one in enumerate(comments, 1):
        removed = "removed " if one.side == "old" else ""
        lines = f"lines {one.line} to {one.last_line}" if one.last_line else f"line {one.line}"
        quoted = enumerate(one.snippet.splitlines()[:_SNIPPET_LINES])
        snippet = [f"   >{'>' if at in one.marks else ' '}{line[:LINE_CHARS]}".rstrip() for at, line in quoted]
        text = [f"   {line}".rstrip() for line in _plain_lines(one.text)]
        parts.append("\n".join([f"{number}. `{one.path}`, {removed}{lines}", *snippet, *text]))
    return "\n\n".join(parts) + "\n"


def _plain_lines(text: str) -> list[str]:
    """The lines of a comment. One that begins like a quoted line is indented further, so that it is not read as one."""
    return [f" {line}" if line.startswith(">") else line for line in text.strip().splitlines()]


def parse_comments(message: str) -> list[DiffComment]:
    """The comments in a message; none if it is another message."""
    lines = message.splitlines()
    if not lines or lines[0] != HEADING:
        return []
    found: list[DiffComment] = []
    head: re.Match[str] | None = None
    snippet: list[str] = []
    marks: list[int] = []
    text: list[str] = []

    def finish() -> None:
        if head:
            comment = DiffComment(
                path=head[2],
                line=int(head[4]),
                side="old" if head[3] else "new",
                snippet="\n".join(snippet),
                text="\n".join(text).strip("\n"),
                last_line=int(head[5] or 0),
                marks=tuple(marks),
            )
            found.append(comment)

    for line in lines[1:]:
        match = _ITEM.match(line)
        if match and int(match[1]) == len(found) + (2 if head else 1):
            finish()
            head, snippet, marks, text = match, [], [], []
        elif line.startswith("   >") and not text:
            if line.startswith("   >>"):
                marks.append(len(snippet))
            snippet.append(line[5:])
        elif head:
            text.append(line[3:])
    finish()
    return found


def parse_feedback_comments(text: str) -> list[DiffComment]:
    """The comments in a file of feedback, in which they are one requirement in a list."""
    lines = text.splitlines()
    start = f"- {HEADING}"
    if start not in lines:
        return []
    block = [HEADING]
    for line in lines[lines.index(start) + 1 :]:
        if line and not line.startswith("  "):
            break
        block.append(line[2:])
    return parse_comments("\n".join(block).rstrip())
