"""The one place where commands print. It imports little, because every command needs it."""

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any

import click

from ralph.core.text import clean_for_terminal


def print_text(text: str = "", *, err: bool = False, wraps: bool = True, newline: bool = True) -> None:
    """Print a text. Every command prints here, because the text may contain words of agents, checks and repositories.

    On a terminal, lines wrap at words. `wraps=False` is for text that has a form of its own, such as a patch.
    """
    stream = sys.stderr if err else sys.stdout
    shown = clean_for_terminal(text)
    if wraps and stream.isatty():
        width = shutil.get_terminal_size().columns
        shown = "\n".join(part for line in shown.split("\n") for part in wrap_line(line, width))
    click.echo(shown, err=err, nl=newline)


_LINE_START = re.compile(r"\s*(?:\d+ )?(?:[|>~✓✗-] |! (?:\w+: )?|(?:where|next): +|Next: +)")
"""What stands before the text of a line: spaces, and a symbol or a label."""
_UNIT = re.compile(
    r"(?:(?<=^- )|(?<=Next: )|(?<=   ))(?:ralph|git) .+?(?=   |$)"  # a command to type
    r"|\((?:ralph|git) [^()]*\)\S*"
    r"|(?<=^  where: )/.+"  # a path
    r"|[(\"']*`[^`\n]+`\S*"  # a command in a sentence
    r"|\S+"
)
"""What is not cut when a line is wrapped, so that the user can copy it."""


def wrap_line(line: str, width: int) -> list[str]:
    """A line in parts that fit a width, cut at spaces. Later parts are indented below the text of the first.

    A command or a path that is too long stays whole: the terminal wraps it, and it can still be copied.
    """
    if _measure(line) <= width:
        return [line]
    if set(line) in ({"─"}, {"═"}):
        return [line[:width]]
    start = _LINE_START.match(line)
    indent = " " * (start.end() if start else len(line) - len(line.lstrip()) + 2)
    parts, part = [], ""
    for space, unit in _split_units(line.expandtabs(4), width - len(indent)):
        if len(part) > len(indent) and _measure(part + space + unit) > width:
            parts.append(part)
            part = indent + unit
        else:
            part += space + unit
    return [*parts, part]


def _split_units(line: str, width: int) -> Iterator[tuple[str, str]]:
    """The units of a line, each with the space before it. A unit that does not fit is split, except what the user types."""
    end = 0
    for found in _UNIT.finditer(line):
        space, unit, end = line[end : found.start()], found[0], found.end()
        if _measure(unit) <= width or unit.lstrip("(\"'`").startswith(("ralph ", "git ", "/")):
            yield space, unit
            continue
        for word in unit.split():
            for part in _split_word(word, width):
                yield space, part
                space = ""
            space = " "


def _split_word(word: str, width: int) -> list[str]:
    """A word of a script without spaces, in parts that fit a width. Other words stay whole."""
    if word.isascii() or _measure(word) <= width:
        return [word]
    parts = [""]
    for letter in word:
        if _measure(parts[-1] + letter) > width:
            parts.append("")
        parts[-1] += letter
    return parts


def _measure(text: str) -> int:
    """The columns that a text takes. Characters of East Asian scripts take two, and accents none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def print_patch(text: str) -> None:
    """Print a patch or its summary, with colors on a terminal. Git's own colors would come with those of the files."""
    shown = clean_for_terminal(text).removesuffix("\n")
    has_color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines = map(_color_line, shown.split("\n")) if has_color else [shown]
    click.echo("\n".join(lines))


def _color_line(line: str) -> str:
    if line.startswith(("+++ ", "--- ", "diff --git ")):
        return click.style(line, bold=True)
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return click.style(line, fg=colors[line[0]]) if line[:1] in colors else line


def print_json(**data: Any) -> None:
    """One versioned JSON object on standard output."""
    print_json_line({"schema": 1, **data})


def print_json_line(data: object) -> None:
    """A value as one line of JSON. What could command a terminal is escaped, so nothing is lost."""
    text = json.dumps(data, ensure_ascii=False, default=str)
    click.echo(_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


_ESCAPED = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON need not escape and a terminal may act on."""
