"""What the guards are given: files before and now, and what their paths say about them."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ralph.core.findings import Finding, Rule, Severity
from ralph.core.patterns import regex
from ralph.verify.judge_files import is_test_path

LARGEST = 1_000_000
"""Longer texts are data, not work: they are not judged."""

_T = TypeVar("_T")
_LANGUAGES = {
    **dict.fromkeys(("py", "pyi"), "python"),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts"), "js"),
    **dict.fromkeys(("java", "kt"), "java"),
    "go": "go",
    "rs": "rust",
}
_VENDORED = regex(
    r"(^|/)(node_modules|vendor|vendored|third_party|dist|\.venv|venv|site-packages|target|__pycache__|\.git)/"
    r"|\.min\.\w+$|\.lock$|(^|/)(package-lock\.json|pnpm-lock\.yaml|go\.sum|npm-shrinkwrap\.json)$"
)
_GENERATED_PATH = regex(r"_pb2(_grpc)?\.pyi?$|\.pb\.go$|\.gen\.\w+$|\.g\.\w+$|(^|/)(__)?generated(__)?/")
_GENERATED_TEXT = regex(r"(?i)code generated|auto(matically )?-?generated|@generated|generated (by|from|with) .{0,60}|generated.{0,60}do not edit")  # fmt: skip
_COLLECTED = {
    "python": regex(r"(^|/)(test[^/]*|[^/]*_test)\.py$"),
    "js": regex(r"\.(test|spec|cy|e2e)\.[cm]?[jt]sx?$|(^|/)(__tests__|tests?|specs?|e2e)/[^.]*\.[cm]?[jt]sx?$"),
    "go": regex(r"_test\.go$"),
    "java": regex(r"(^|/)(Test[^/]*|[^/]*(Test|Tests|TestCase|IT|Spec))\.(java|kt)$"),
    "rust": regex(r"\.rs$"),
}
_PUT_AWAY = regex(r"(^|/)[._]?(disabled|skip(ped)?|attic|archived?|old|obsolete|quarantined?|bak|backup)[^/]*/", re.I)  # fmt: skip


@dataclass(frozen=True)
class FileChange:
    """One file in the tree before the run and in the tree now; None where it is absent. Binary files are not given."""

    path: str
    old: str | None
    new: str | None
    renamed_from: str | None = None


def language_of(path: str) -> str | None:
    """The language a file is written in, also where the name was given another ending (`test_x.py.bak`)."""
    parts = path.rsplit("/", 1)[-1].split(".")[1:]
    return next((_LANGUAGES[part] for part in reversed(parts) if part in _LANGUAGES), None)


def is_ignored(path: str) -> bool:
    """Code of others, build products and lock files."""
    return bool(_VENDORED.search(path))


def is_judged(path: str, text: str) -> bool:
    """Whether a person or an agent wrote the file; tests always count, for else one comment would hide them."""
    generated = _GENERATED_PATH.search(path) or _GENERATED_TEXT.search(text[:600])
    return len(text) <= LARGEST and not is_ignored(path) and (is_test_path(path) or not generated)


def is_collected(path: str) -> bool:
    """Whether a test runner would find tests in the file by its name."""
    pattern = _COLLECTED.get(language_of(path) or "")
    named_in_full = path.rsplit(".", 1)[-1] in _LANGUAGES
    return bool(pattern and named_in_full and pattern.search(path) and not _PUT_AWAY.search(path))


def finding(rule: Rule, path: str, line: int, sentence: str, excerpt: str = "", *, warn: bool = False) -> Finding:
    """A finding with its excerpt capped."""
    severity = Severity.WARNING if warn else Severity.ERROR
    return Finding(rule, path, max(line, 1), sentence, severity, " ".join(excerpt.split())[:160])


def gained(before: Iterable[_T], now: Iterable[_T], key: Callable[[_T], object] = lambda one: one) -> Iterator[_T]:
    """What is there now and was not before, or not as often."""
    known = Counter(map(key, before))
    for one in now:
        known[key(one)] -= 1
        if known[key(one)] < 0:
            yield one
