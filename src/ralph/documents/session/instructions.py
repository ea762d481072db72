"""`<session>.instructions.md`: the limits that a person or the planner set for a session, in front matter or as bullets."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ralph.core.errors import StateError
from ralph.documents.session.markdown import Page
from ralph.documents.session.values import Reader, choice, count, text_of, words_of
from ralph.documents.session.yaml_lines import front_matter

_BULLET = re.compile(r"\s*[-*+]\s+[*_`]*([A-Za-z][\w.]*)[*_`]*\s*:[*_`]*\s*(.*?)(?:\s+#.*)?")
_WORD = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True)
class Guardrails:
    """What a session may take, and how it goes."""

    max_cycles: int = 2
    max_retries: int | None = None
    """Tries after a turn that came to nothing; None where the whole ladder of delays is climbed."""
    task_wip_minutes: float = 60
    max_executors: int = 3
    max_reviewers: int = 3
    max_questioners: int = 3
    rework_attempts: int = 3
    """Attempts at a task in an iteration before it waits for a person."""
    categories: tuple[str, ...] = ("technical", "requirements", "constraints", "assumptions", "risks")
    approval: str = "auto"
    """`auto`, `signal` or `skip`: who says that what was learned is kept."""
    severity_threshold: str = "any"
    """`any`, `major` or `critical`: the issues of a review that count."""
    max_critique_cycles: int = 1
    """How often a review may send the session back by itself."""


def _minutes(value: Any) -> float:
    try:
        minutes = float(re.sub(r"\s*min(?:ute)?s?$", "", text_of(value)))
    except ValueError:
        minutes = 0
    if not 0 < minutes < 1e6:
        raise ValueError("a number of minutes")
    return minutes


def _names(value: Any) -> tuple[str, ...]:
    names = words_of(value)
    if not names or not all(_WORD.fullmatch(name) for name in names):
        raise ValueError("a list of words in small letters")
    return names


_KEYS: Mapping[str, tuple[str, Reader]] = {
    "planning.max_cycles": ("max_cycles", count(0)),
    "planning.categories": ("categories", _names),
    "retries.max_subagent_retries": ("max_retries", count(0)),
    "timeouts.task_wip_minutes": ("task_wip_minutes", _minutes),
    "concurrency.max_parallel_executors": ("max_executors", count(1)),
    "concurrency.max_parallel_reviewers": ("max_reviewers", count(1)),
    "concurrency.max_parallel_questioners": ("max_questioners", count(1)),
    "rework.max_attempts": ("rework_attempts", count(1)),
    "knowledge.approval": ("approval", choice(("auto", "signal", "skip"))),
    "session_review.issue_severity_threshold": ("severity_threshold", choice(("any", "major", "critical"))),
    "session_review.max_critique_cycles": ("max_critique_cycles", count(0)),
}
_PATHS = {key.rpartition(".")[2]: key for key in _KEYS} | {key: key for key in _KEYS}


def parse(text: str, where: str = "") -> Guardrails:
    """The limits in a file; what it does not set stays as usual, and one that cannot be read is an error."""
    found: dict[str, Any] = {}
    faults = []
    for line, key, value in _settings(text, where):
        name, read = _KEYS[key]
        if text_of(value) not in ("", "null", "~"):
            try:
                found[name] = read(value)
            except ValueError as error:
                faults.append(f"line {line}: `{key}` must be {error}, and is {text_of(value)[:40]}")
    if faults:
        raise StateError("\n".join(faults), where=where, todo="correct the file")
    return Guardrails(**found)


def _settings(text: str, where: str) -> Iterator[tuple[int, str, Any]]:
    """The line, path and value of every setting; those that count come last."""
    page = Page(text)
    front = front_matter(page, where)
    set_there = [path for path in _PATHS if front.has(path)]
    for number, line in enumerate(page.prose, 1):
        match = _BULLET.fullmatch(line)
        if match and match[1] in _PATHS and not any(_PATHS[path] == _PATHS[match[1]] for path in set_there):
            yield number, _PATHS[match[1]], match[2].strip("*`\"' ")
    for path in set_there:
        yield front.line(path), _PATHS[path], front.get(path)
