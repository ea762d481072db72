"""The filter of the inbox: `state:stuck agent:codex project:shop cost>2 words`."""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

from ralph.core.errors import UsageError
from ralph.view.model import RunRow

_TERM = re.compile(r"(?P<name>[a-z]+)(?P<sign>[:<>])(?P<value>.+)", re.IGNORECASE)
_NUMBERS: dict[str, Callable[[RunRow], float]] = {
    "cost": lambda row: row.spent.cost,
    "iteration": lambda row: float(row.iteration),
    "turns": lambda row: float(row.spent.turns),
}
_TEXTS: dict[str, Callable[[RunRow, str], tuple[str, ...]]] = {
    "state": lambda row, project: (row.state, row.group),
    "agent": lambda row, project: (row.agent,),
    "project": lambda row, project: (project, row.project),
    "workflow": lambda row, project: (row.workflow,),
    "branch": lambda row, project: (row.branch,),
    "run": lambda row, project: (row.id,),
}


@dataclass(frozen=True)
class Filter:
    """The terms of a filter. All of them must hold."""

    terms: tuple[Callable[[RunRow, str], bool], ...]

    def accepts(self, row: RunRow, project: str) -> bool:
        """Whether a row is shown."""
        return all(term(row, project) for term in self.terms)


def parse_filter(text: str) -> Filter:
    """The filter that the user typed, or an error that names the word that is wrong."""
    return Filter(tuple(_parse_term(word) for word in text[:500].split()))


def _parse_term(word: str) -> Callable[[RunRow, str], bool]:
    match = _TERM.fullmatch(word)
    if not match:
        wanted = word.lower()
        return lambda row, project: wanted in f"{row.task} {row.headline} {row.id} {row.branch} {project}".lower()
    name, sign, value = match["name"].lower(), match["sign"], match["value"]
    if name in _NUMBERS and sign in "<>":
        try:
            limit = float(value.lstrip("$"))
        except ValueError:
            raise UsageError(f"{value[:40]!r} is not a number", where=word[:80], todo=f"write {name}>2") from None
        number = _NUMBERS[name]
        if sign == ">":
            return lambda row, project: number(row) > limit
        return lambda row, project: number(row) < limit
    if name in _TEXTS and sign == ":":
        read, wanted_any = _TEXTS[name], tuple(one.lower() for one in value.split(",") if one)
        return lambda row, project: any(wanted in text.lower() for text in read(row, project) for wanted in wanted_any)
    near = difflib.get_close_matches(name, (*_TEXTS, *_NUMBERS), 1)
    todo = f"did you mean {near[0]}?" if near else f"use {', '.join((*_TEXTS, *_NUMBERS))}"
    raise UsageError(f"unknown word {name!r} in the filter", where=word[:80], todo=todo)
