"""What the tests know of one agent program: how it is had, set up and recognised. One module each in `subjects`."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import subjects
from install import Package

KEY = "mock-key-of-nobody"
Environment = dict[str, str]
Stream = list[dict[str, Any]]


@dataclass(frozen=True)
class Raw:
    """How it is called without Ralph, to try the bench itself."""

    words: Sequence[str]
    """The command line that does everything without asking, and streams; the prompt comes on standard input."""
    resume: Callable[[str], Sequence[str]]
    """The command line that goes on with a conversation."""
    session: str
    """The key of the conversation's id in its stream."""
    ended_well: Callable[[dict[str, Any]], bool]
    """Whether the last line of its stream tells of success."""
    tokens: Callable[[dict[str, Any]], tuple[int, int, int]]
    """What the last line tells of all that was sent, what of it was cached, and what was answered."""
    overcomes: Mapping[str, bool] = field(default_factory=dict)
    """The faults of the model that it does not overcome by itself."""
    codes: Mapping[int, int] = field(default_factory=dict)
    """Exit codes other than 1, by the status of the model's answers."""
    limit: str = ""
    """What it says of a limit."""


@dataclass(frozen=True)
class Subject:
    """An agent program under test."""

    package: Package
    furnish: Callable[[Path, str, int | None], Environment]
    """Writes its files into a home directory, for the address of the model and the tries it may make of a request
    (its own default where None); returns its environment."""
    api: str
    """The wire format in which it asks its model."""
    key: str
    """The variable that holds the key."""
    sign_in: Sequence[str]
    """What a person is told where the key is refused: any of these words."""
    cost: float | None = None
    """Of 3000 tokens in and 150 out, where the receipt tells it."""
    must_cost: bool = False
    """Whether the receipt always tells it."""
    limit_of_plan: bool = True
    """Whether it knows limits of a plan; else those of requests a minute."""
    limit_seconds: float = 10
    """At most so long after the end of a limit is the next try."""
    raw: Raw | None = None

    @property
    def name(self) -> str:
        return self.package.name


def _all() -> dict[str, Subject]:
    names = [module.name for module in pkgutil.iter_modules(subjects.__path__)]
    found: list[Subject] = [importlib.import_module(f"subjects.{name}").SUBJECT for name in names]
    return {one.name: one for one in found}


SUBJECTS = _all()
