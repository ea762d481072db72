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


def clean_text(text: str) -> str:
    """Text as every file and terminal can hold it: no half characters, nothing that commands a terminal."""
    return text.encode(errors="replace").decode().translate(_CONTROL)


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
