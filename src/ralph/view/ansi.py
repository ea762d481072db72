"""The colors in the output of programs, as names of styles. Everything else that commands a terminal is left out."""

import re

from ralph.core.text import clean_text, show_directions

_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
_RESET, _BOLD, _DIM, _NORMAL, _DEFAULT = 0, 1, 2, 22, 39
_EXTENDED = {38: True, 48: False}
"""The codes of a color of 256 or of millions, and whether it is that of the text."""


def split_colors(text: str) -> list[tuple[str, str]]:
    """The parts of a text, each with its style: `bold`, `dim` and `c0` to `c7`, separated by spaces; empty for none."""
    parts: list[tuple[str, str]] = []
    color, weight = "", ""
    # Line ends of a terminal, and progress bars that write over their own line: only what is seen at last stays.
    text = re.sub(r"[^\r\n]*\r(?!\n)", "", text.replace("\r\n", "\n"))
    for at, piece in enumerate(_STYLE.split(text)):
        if at % 2:
            color, weight = _apply(piece, color, weight)
        elif shown := show_directions(clean_text(piece)):
            parts.append((" ".join(filter(None, (weight, color))), shown))
    return parts


def _apply(codes: str, color: str, weight: str) -> tuple[str, str]:
    """The color and weight after a sequence of codes. Colors of the background are left out."""
    numbers = [int(code or 0) for code in codes.split(";")]
    while numbers:
        code = numbers.pop(0)
        if code == _RESET:
            color = weight = ""
        elif code in (_BOLD, _DIM):
            weight = "bold" if code == _BOLD else "dim"
        elif code == _NORMAL:
            weight = ""
        elif code == _DEFAULT:
            color = ""
        elif 30 <= code <= 37 or 90 <= code <= 97:
            color = f"c{code % 10}"
        elif code in _EXTENDED:
            found = _read_extended(numbers)
            color = found if _EXTENDED[code] else color
    return color, weight


def _read_extended(numbers: list[int]) -> str:
    """The color of 256, if it is one of the first 16. The numbers that describe the color are removed."""
    kind = numbers.pop(0) if numbers else 0
    values = [numbers.pop(0) for _ in range({5: 1, 2: 3}.get(kind, 0)) if numbers]
    return f"c{values[0] % 8}" if kind == 5 and values and values[0] < 16 else ""
