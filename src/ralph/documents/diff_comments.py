"""Comments on lines of a diff, as one message to the agents. The message can be read back, so that a page can show each
comment at its line with what became of it: the run itself keeps them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

HEADING = "Comments on the changes, by file and line:"
_ITEM = re.compile(r"^(\d+)\. `(.+)`, (line|removed line) (\d+)$")
_SIDES = {"line": "new", "removed line": "old"}
_SNIPPET_LINES, _LINE_CHARS = 12, 400


@dataclass(frozen=True)
class DiffComment:
    """What the user says about a line."""

    path: str
    line: int
    side: str
    """`new`, or `old` for a removed line."""
    snippet: str
    """The lines of the diff around it, as they were when the user wrote it."""
    text: str


def render_comments(comments: Sequence[DiffComment]) -> str:
    """All comments as one message."""
    parts = [HEADING]
    for number, one in enumerate(comments, 1):
        kind = "line" if one.side == "new" else "removed line"
        snippet = [f"   > {line[:_LINE_CHARS]}".rstrip() for line in one.snippet.splitlines()[:_SNIPPET_LINES]]
        text = [f"   {line}".rstrip() for line in _plain_lines(one.text)]
        parts.append("\n".join([f"{number}. `{one.path}`, {kind} {one.line}", *snippet, *text]))
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
    text: list[str] = []

    def finish() -> None:
        if head:
            comment = DiffComment(
                path=head[2],
                line=int(head[4]),
                side=_SIDES[head[3]],
                snippet="\n".join(snippet),
                text="\n".join(text).strip("\n"),
            )
            found.append(comment)

    for line in lines[1:]:
        match = _ITEM.match(line)
        if match and int(match[1]) == len(found) + (2 if head else 1):
            finish()
            head, snippet, text = match, [], []
        elif line.startswith("   >") and not text:
            snippet.append(line[5:])
        elif head:
            text.append(line[3:])
    finish()
    return found
