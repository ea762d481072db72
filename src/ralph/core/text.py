"""Small helpers for text: counts with their noun, clean text, and patterns that are compiled late."""

import re
from typing import Any, AnyStr, cast


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 run`, `2 runs`. Give the plural if it is not the noun with an s."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {plural or noun + 's'}"


def count_are(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun and verb: `1 run is`, `2 runs are`."""
    return f"{count(number, noun, plural)} {'is' if number == 1 else 'are'}"


_CONTROL = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


_SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]{0,200}(?:\x07|\x1b\\|\x9c)")
"""What sets a color, moves the cursor, or sets the title of a terminal."""


def format_dollars(cost: float) -> str:
    """An amount of money, also if it is a small part of a cent."""
    return f"${cost:.4f}" if cost else "$0"


def remove_controls(text: str) -> str:
    """Text without half characters and control characters. All else stays, so nothing in it is hidden from the user."""
    return text.encode(errors="replace").decode().translate(_CONTROL)


def clean_text(text: str) -> str:
    """Text as every file and terminal can hold it: no half characters, nothing that commands a terminal."""
    return remove_controls(_SEQUENCE.sub("", text))


_DIRECTIONS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
"""Characters that show a text in another order than it is written in."""
_SHOWN_DIRECTIONS = {code: f"⟨U+{code:04X}⟩" for code in _DIRECTIONS}
_FOR_TERMINALS = {code: None for code in (*_CONTROL, *_DIRECTIONS) if code != ord("\r")}


def clean_for_terminal(text: str) -> str:
    """Text that does nothing to a terminal but show itself: no colors, control characters or changes of direction."""
    clean = _SEQUENCE.sub("", text).encode(errors="replace").decode().translate(_FOR_TERMINALS)
    return re.sub(r"\r(?!\n)", "", clean)


def show_directions(text: str) -> str:
    """The text with a visible mark for each character that would show it in another order than it is written in."""
    return text.translate(_SHOWN_DIRECTIONS)


def shorten(text: str, most: int) -> str:
    """The beginning of a text, in at most `most` characters, cut at a space if one is near the end."""
    if len(text) <= most:
        return text
    start = text[: most - 1]
    at_space = start.rpartition(" ")[0].rstrip()
    return (at_space if len(at_space) > most // 2 else start) + "…"


class _LatePattern:
    """Compiles its pattern when an attribute of it is asked for, and then has that attribute itself."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Build a pattern like `re.compile`, but compile it on first use: there are hundreds, and a run needs few of them."""
    return cast(re.Pattern[AnyStr], _LatePattern(text, flags))
