"""What is wrong with a preset, where, and what to do about it."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from ralph.documents.hats.places import Path


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """The run cannot be done as the preset has it: `ralph run` refuses it."""
    WARNING = "warning"
    """It costs turns, or does nothing; `ralph run` says so and goes on."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    code: str
    severity: Severity
    path: Path
    """The key that it is about."""
    what: str
    todo: str = ""
    hat: str = ""
    """The hat that a drawing shows it at."""


def error(code: str, path: Path, what: str, todo: str = "", hat: str = "") -> Finding:
    """Something that keeps a run from being done."""
    return Finding(code, Severity.ERROR, path, what, todo, hat)


def warning(code: str, path: Path, what: str, todo: str = "", hat: str = "") -> Finding:
    """Something that is not as it was meant."""
    return Finding(code, Severity.WARNING, path, what, todo, hat)


def nearest(word: str, known: Collection[str]) -> str:
    """The known word that was probably meant; empty where none is near."""
    found = difflib.get_close_matches(word, [one for one in known if one != word], 1, 0.8)
    return found[0] if found else ""


def meant(word: str, known: Collection[str], otherwise: str) -> str:
    """What to do about a word that nobody knows."""
    near = nearest(word, known)
    return f"did you mean `{near}`?" if near else otherwise
