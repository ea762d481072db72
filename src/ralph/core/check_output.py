"""What a check printed: excerpts for prompts and reports, and what two outputs of the same failure have in common.

Compilers put the cause first, test runners put the summary last, and what says most may stand in between. So an excerpt has the
beginning, the end, and the lines that look like errors, and it says how many lines are missing.
"""

import re
from collections.abc import Iterable, Sequence

from ralph.core.text import regex

LONGEST_LINE = 300
"""Characters of a line that are looked at and quoted."""
_LINE_HEAD, _LINE_TAIL = 180, 80
"""Of a longer line its beginning and its end are quoted, with a mark between them; all of it is below `LONGEST_LINE`."""
_COMPLAINT_CHARS = 100
_CUT_LINE = regex(r"\[\.\.\. \d+ characters left out \.\.\.\]")
_HEAD_SHARE, _TAIL_SHARE = 0.25, 0.4
"""How much of an excerpt its beginning and its end may take; lines that look like errors take the rest."""
_GAP_NOTE = len("... 1000000 lines left out\n")
"""The room for a note on lines that are left out."""
_LEFT_OUT = regex(r"\.\.\. (\d+) lines? left out")
_STRONG = regex(
    r"^E\s+\S|\b\w*(?:Error|Exception|Panic)\b[:(]|\berror(?:\[\w+\]|\s+TS\d+)?:|^\S+:\d+(?::\d+)?:\s"
    r"|\bpanicked at|^[A-Z]{1,5}\d{2,5}\s"
    r"|(?i:\bassert\w* .*(?:==|!=|failed))"
)
_WEAK = regex(
    r"(?i)\b(?:err\b|error|fail|assert|exception|expected|received|panic|undefined|cannot|not ok|not found|missing)|[✕✗×]"
    r"|(?-i:\b[A-Z]{1,4}\d{3,5}\b)"  # the code of a rule, such as E501
)
_SAYS_NOTHING = regex(
    r"(?i)^[=\-_*#\s]*(?:failures?|errors?|short test summary info|traceback \(.*|failed|fail|ok|"
    r".*\b\d+ (?:failed|passed|errors?|warnings?)\b.*|found \d+ errors?\.?"
    r"|(?:took|finished|done|ran|elapsed|duration|time)\b.{0,20}?\d+(?:\.\d+)?\s*(?:ms|s|sec\w*|min\w*)\.?)[=\-_*#:\s]*$"
    r"|^[=\-_*#|^~\s]+$|^>\s"
)
_PATHS = regex(r"(?:[\w.@+~-]*/)+")


def find_error_lines(output: str, most: int) -> list[str]:
    """The lines of an output that say what is wrong; its last ones if none stands out."""
    short = (_shorten_line(line.strip()) for line in output.splitlines())
    lines = [line for line in short if line and not _SAYS_NOTHING.match(line) and not _LEFT_OUT.fullmatch(line)]
    strong = [line for line in lines if _STRONG.search(line)]
    weak = [line for line in lines if _is_weak(line)]
    return list(dict.fromkeys([*strong, *weak]))[:most] or lines[-most:]


def find_complaint(output: str) -> str:
    """The line of an output that says first what is wrong, cut to what fits a line of a screen; empty if there is none."""
    lines = find_error_lines(output, 1)
    if not lines:
        return ""
    text = " ".join(lines[0].split())
    return text if len(text) <= _COMPLAINT_CHARS else text[: _COMPLAINT_CHARS - 1] + "…"


def excerpt_output(output: str, room: int) -> tuple[str, int]:
    """An output cut to the given number of characters, and how many of its lines are left out or cut.

    An excerpt has at least the first and the last line, even if there is no room for them.
    """
    lines = output.strip("\n").rstrip().splitlines()
    if len(output) <= room and all(len(line) <= LONGEST_LINE for line in lines):
        missing = sum(map(_count_lines, lines)) - sum(not _LEFT_OUT.fullmatch(line) for line in lines)
        return "\n".join(lines), missing + sum(map(_is_cut, lines))
    shown = [_shorten_line(line) for line in lines]
    chosen = set(_take(range(len(shown)), shown, int(room * _HEAD_SHARE)))
    chosen |= set(_take(range(len(shown) - 1, -1, -1), shown, int(room * _TAIL_SHARE)))
    left = room - sum(len(shown[number]) + 1 for number in chosen) - _GAP_NOTE
    others = [number for number in range(len(shown)) if number not in chosen]
    strong = [number for number in others if _STRONG.search(shown[number])]
    left = _add_lines(strong, shown, chosen, left)
    if chosen.issuperset(strong):
        _add_lines((number for number in others if _is_weak(shown[number])), shown, chosen, left)
    return _with_gaps(shown, chosen)


def fence(text: str) -> str:
    """A text in a code fence that nothing in it can close."""
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}\n{text}\n{marks}"


def _shorten_line(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    left_out = len(line) - _LINE_HEAD - _LINE_TAIL
    return f"{line[:_LINE_HEAD]}[... {left_out} characters left out ...]{line[-_LINE_TAIL:]}"


def _is_cut(line: str) -> bool:
    return bool(_CUT_LINE.search(line))


def _take(numbers: Iterable[int], lines: Sequence[str], room: int) -> list[int]:
    """The first of these lines, as many as there is room for, and at least one."""
    taken: list[int] = []
    for number in numbers:
        room -= len(lines[number]) + 1
        if room < 0 and taken:
            break
        taken.append(number)
        if room < 0:
            break
    return taken


def _add_lines(numbers: Iterable[int], lines: Sequence[str], chosen: set[int], room: int) -> int:
    """Add the first of these lines to those chosen, as many as there is room for, and return the room that is left.

    A line that stands alone divides a gap, so it needs room for one more note.
    """
    for number in numbers:
        if number in chosen:
            continue
        neighbours = (number - 1 in chosen) + (number + 1 in chosen)
        room -= len(lines[number]) + 1 + _GAP_NOTE * (1 - neighbours)
        if room < 0:
            break
        chosen.add(number)
    return room


def _with_gaps(lines: Sequence[str], chosen: set[int]) -> tuple[str, int]:
    parts: list[str] = []
    missing = total = 0
    for number, line in enumerate(lines):
        if number in chosen and not _LEFT_OUT.fullmatch(line):
            if missing:
                parts.append(_describe_gap(missing))
            parts.append(line)
            missing = 0
            total += _is_cut(line)
        else:
            count = _count_lines(line)
            missing, total = missing + count, total + count
    if missing:
        parts.append(_describe_gap(missing))
    return "\n".join(parts), total


def _describe_gap(lines: int) -> str:
    return f"... {lines} line{'s' if lines != 1 else ''} left out"


def _count_lines(line: str) -> int:
    """How many lines of the output a line represents: a note about a gap represents the lines of the gap."""
    match = _LEFT_OUT.fullmatch(line)
    return int(match[1]) if match else 1


def _is_weak(line: str) -> bool:
    return bool(_WEAK.search(_PATHS.sub("", line)))


_NOISE: tuple[tuple[re.Pattern[str], str], ...] = (
    (regex(r"\x1b\[[0-9;?]*[ -/]*[@-~]"), ""),
    (regex(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (regex(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (?:\d+ )?[A-Z][a-z]{2} \d[\d :]*(?:[AP]M)?"), "<time>"),
    (regex(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (regex(r"\btmp[a-z0-9_]{8}\b"), "<tmp>"),
    (regex(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{7,64}\b(?<![a-f]{7})"), "<hex>"),
    (regex(r"(?<![\w.@+~/-])(?:[A-Za-z]:|~|(?:\.\./)*\.\.|\.)?/(?:[\w.@+~-]*/)*(?=[\w.@+~-])"), ""),
    (regex(r"\[gw\d+\]"), ""),  # the worker of pytest-xdist
    (regex(r"(?<![\w.])\d+(?:[.,]\d+)*\s*(?:ms|µs|us|ns|s|sec|seconds?|min|minutes?)\b"), "<time>"),
    (regex(r"[=_*~─═-]{3,}"), ""),
    (regex(r"[^\S\n]+"), " "),
)
_DIRECTORIES = regex(r"(?:[A-Za-z]:)?(?:[\w.@+~-]*/)+")
_WORD = regex(r"::\w+\[[^\]\n]{0,200}\]|[\w./@+~-]+")
"""A name, a path or a number, or a test with its parameters as pytest names it."""
_NAME = regex(r"[./@+~-]*[^\W\d]|::|.*(?:_|\.[^\W\d])", re.DOTALL)
"""How a word begins if it is a name: with a letter, or with a digit and then an underscore or a file extension."""
_NUMBER = regex(r"\d+(?:[.,]\d+)*")
_NUMBERS = regex(r"#(?:[.,]#)+")


def normalize_output(text: str) -> str:
    """Remove what differs from one run of a command to the next: numbers, times, addresses, absolute directories.

    Digits in the name of a file, a test or a variable stay: `step1.py` and `step2.py` are two files.
    """
    for pattern, instead in _NOISE:
        text = pattern.sub(instead, text)
    text = _NUMBERS.sub("#", _WORD.sub(_replace_number, text))
    return "\n".join(line for raw in text.splitlines() if (line := raw.strip()))


def remove_directories(text: str) -> str:
    """The text with the bare names of files, to compare what happened in different places."""
    return _DIRECTORIES.sub("", text)


def _replace_number(word: re.Match[str]) -> str:
    return word[0] if _NAME.match(word[0]) else _NUMBER.sub("#", word[0])


_NOT_MEASURED: tuple[re.Pattern[str], ...] = (
    regex(r"\b\d+(?:\.\d+){2,}(?::\d+)?"),  # an address or a version
    regex(r"\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"),  # a time of day
    regex(r"(?<=[\w>])(?::\d+)+|\(\d+,\s?\d+\)|:\[\d+,\d+\]|\bline \d+|^\s*\d+:\d+"),  # a place in a file
    regex(
        r"(?i)\b(?:attempts?|retry|retries|tr(?:y|ies)|runs?|pid|port|seed|build|worker|thread|session|request|job|took|elapsed|"
        r"duration|uptime)\b[\s#:=]*\d+(?:[.,]\d+)*"
    ),  # counters and clocks that move by themselves
)
"""What looks like a number and measures nothing."""
_SIGNED = regex(r"(?:(?<=^)-)?\d+(?:[.,]\d+)*")
_LONGEST_FIGURE = 9
"""Digits of a number that may measure something. Longer ones are identifiers and times."""


def find_figures(line: str) -> tuple[float, ...]:
    """The numbers in a line that may say how far the work is, in order, without times, places, counters and addresses."""
    for pattern, instead in _NOISE:
        line = pattern.sub(instead, line)
    for pattern in _NOT_MEASURED:
        line = pattern.sub("", line)
    found: list[float] = []
    for word in _WORD.findall(line):
        if _NAME.match(word):
            continue
        for text in _SIGNED.findall(word):
            digits = text.replace(",", "")
            if len(digits) <= _LONGEST_FIGURE and digits.count(".") < 2:
                found.append(float(digits))
    return tuple(found)
