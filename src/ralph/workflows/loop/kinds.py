"""Kinds of tasks: how many past reflections a prompt carries, and how many iterations such work usually takes."""

import re
from dataclasses import dataclass
from enum import StrEnum


class TaskType(StrEnum):
    """What kind of work a loop does; `--type` says it, else the words of the task do."""

    TEST_FIX = "test-fix"
    TYPES = "types"
    LINT = "lint"
    MIGRATION = "migration"
    REFACTOR = "refactor"
    COVERAGE = "coverage"
    GREENFIELD = "greenfield"
    GENERAL = "general"


@dataclass(frozen=True)
class Kind:
    """What is usual for one type of task."""

    window: int
    """How many of the latest reflections are worth their place in the prompt."""
    usual: tuple[int, int] | None
    """Iterations that such work takes, from and to."""
    words: str
    """What a task of this type says, as a regular expression."""


KINDS = {
    TaskType.COVERAGE: Kind(5, (5, 20), r"\bcoverage\b|\b(add|write|more) (\w+ ){0,2}tests\b"),
    TaskType.LINT: Kind(
        2, (2, 4), r"\blint\w*\b|\bruff\b|\beslint\b|\bclippy\b|\bflake8\b|\bpylint\b|\bformat(ting)?\b"
    ),
    TaskType.TYPES: Kind(
        2, (3, 8), r"\btype (error|check)|\b(typescript|ts) errors?\b|\btypes?\b|\bmypy\b|\btsc\b|\bpyright\b"
    ),
    TaskType.MIGRATION: Kind(3, (5, 15), r"\bmigrat\w*|\bconvert\w*|\bport\b|\bupgrad\w*|\bmove \w+ to\b|\besm\b"),
    TaskType.REFACTOR: Kind(3, (3, 10), r"\brefactor\w*|\brenam\w*|\bextract\w*|\brestructur\w*|\bclean ?up\b"),
    TaskType.GREENFIELD: Kind(
        5, (10, 30), r"\bscaffold\w*|\bfrom scratch\b|\bnew (project|app|service|library|tool)\b"
    ),
    TaskType.TEST_FIX: Kind(2, (2, 5), r"\btests?\b|\bfix\w*|\bbugs?\b|\bfail\w*|\bbroken\b|\bgreen\b"),
    TaskType.GENERAL: Kind(5, None, r""),
}
"""In the order in which the words are looked for; the last one fits every task."""


def guess(task: str, criterion: str) -> TaskType:
    """The type that the words of a task speak of; if they say nothing, the criterion does.

    Nearly every criterion runs tests, so the word says nothing there.
    """
    for name, kind in KINDS.items():
        if kind.words and re.search(kind.words, task, re.IGNORECASE):
            return name
    for name, kind in KINDS.items():
        if kind.words and name is not TaskType.TEST_FIX and re.search(kind.words, criterion, re.IGNORECASE):
            return name
    return TaskType.GENERAL


def too_few(name: TaskType, most: int | None) -> str:
    """A note where the limit is below what such work usually takes."""
    usual = KINDS[name].usual
    if usual is None or most is None or most >= usual[0]:
        return ""
    return f"tasks of the type {name} usually take {usual[0]} to {usual[1]} iterations; the limit is {most}"
