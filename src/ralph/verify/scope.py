"""`--scope`: which files a run may change, by patterns as people know them from git."""

import re
from collections.abc import Iterable, Sequence
from functools import cache

from ralph.core.findings import Finding, Rule

_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^]]+\]|.", re.DOTALL)
_MEANING = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def out_of_scope(scope: Sequence[str], paths: Iterable[str]) -> list[Finding]:
    """A finding for every file that was changed and may not be."""
    if not scope:
        return []
    allowed = ", ".join(scope)
    return [
        Finding(Rule.OUT_OF_SCOPE, path, 1, f"{path} was changed, and only {allowed} may be: take that change back.")
        for path in sorted(paths)
        if not any(pattern_for(glob).fullmatch(path) for glob in scope)
    ]


@cache
def pattern_for(glob: str) -> re.Pattern[str]:
    """A pattern as a regular expression: one without a slash matches at any depth, one that names a directory all below."""
    plain = glob.removeprefix("./").strip("/")
    anywhere = "" if "/" in glob.removeprefix("./").rstrip("/") else "(?:.*/)?"
    pattern = f"{anywhere}{''.join(map(_meaning, _TOKEN.findall(plain)))}(?:/.*)?"
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error:
        return re.compile(f"{anywhere}{re.escape(plain)}(?:/.*)?", re.DOTALL)


def _meaning(token: str) -> str:
    if token in _MEANING:
        return _MEANING[token]
    if token[0] != "[" or len(token) == 1:
        return re.escape(token)
    inner = token[1:-1]
    kind = "^" if inner[0] in "!^" and len(inner) > 1 else ""
    ranged = re.sub(r"(\w)\\-(\w)", r"\1-\2", re.escape(inner[len(kind) :]))
    return f"[{kind}{ranged}]"
