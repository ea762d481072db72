"""What stays the same in two failures that are the same: their text without numbers, places, times and quoted values."""

import hashlib
import re

_NOISE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]"), ""),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
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


def fingerprint(text: str) -> str:
    """A short name for all texts that are the same once they are normalised, in whatever order their lines come."""
    lines = sorted(set(normalised(text).splitlines()))
    return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()[:12]
