"""What two outputs of the same failure have in common: their text without numbers, directories, times and addresses."""

import re

_NOISE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]"), ""),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (?:\d+ )?[A-Z][a-z]{2} \d[\d :]*(?:[AP]M)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\btmp[a-z0-9_]{8}\b"), "<tmp>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{7,64}\b(?<![a-f]{7})"), "<hex>"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.@+~-]*/)+(?=[\w.@+~-])"), ""),
    (re.compile(r"\d+(?:[.,]\d+)*\s*(?:ms|µs|us|ns|s|sec|seconds?|min|minutes?)\b"), "<time>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "#"),
    (re.compile(r"[=_*~─═-]{3,}"), ""),
    (re.compile(r"[^\S\n]+"), " "),
)


def normalised(text: str) -> str:
    """The text without what differs from one run of a command to the next."""
    for pattern, instead in _NOISE:
        text = pattern.sub(instead, text)
    return "\n".join(line for raw in text.splitlines() if (line := raw.strip()))
