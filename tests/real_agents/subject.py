"""What the tests know of one agent program: how it is had, set up and recognised. One module each in `subjects`."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import subjects
from install import Package


def deaf(reason: str) -> dict[str, str]:
    """The tests with words while it works, with the reason why they cannot be."""
    return dict.fromkeys(
        ("test_words_reach_it_after_the_tool_that_it_uses", "test_words_reach_it_before_it_ends"), reason
    )


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
    limit_lasts: float = 3
    """So many seconds lasts a limit that it does not wait out by itself, with one try."""
    limit_end: bool = True
    """Whether it tells when a limit ends; else the next try is made five minutes later."""
    limit_seconds: float = 10
    """At most so long after the end of a limit is the next try."""
    storm_minutes: float = 0.15
    """So long it goes on trying, at least, where its model always fails and it may do as it likes."""
    failing_seconds: float = 90
    """Within so many seconds two turns end where its model always fails and it may make few tries."""
    idle_minutes: float = 0.15
    """So long it is silent at most while it starts, on a machine that has much to do."""
    tokens: str = "all"
    """Of which answers the receipt tells the tokens: of `all`, of the `last` of every turn, or of `none`."""
    loses: int = 0
    """Of so many answers it may forget the tokens where a stream was cut before."""
    resumes: bool = True
    """Whether it goes on with a conversation; else each turn is a new one."""
    in_words: bool = False
    """Whether it has no tools, and takes the edits of a whole turn from one answer."""
    ending: str = ""
    """The command by which its model ends a turn, where words alone do not end it."""
    raw: Raw | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    """The tests that cannot be with this program, each with the reason."""

    called: str = ""
    """Its name here, where that is not the name of its program."""
    asked: tuple[str, ...] = ()
    """The options that have `ralph loop` use it, where its name alone does not."""

    @property
    def name(self) -> str:
        return self.called or self.package.name

    @property
    def options(self) -> tuple[str, ...]:
        return self.asked or ("--agent", self.name)

    def asks(self, steps: int, turns: int = 1) -> int:
        """How often it asks its model for so many steps, in so many turns."""
        return turns if self.in_words else steps

    def used(self, answers: int, turns: int = 1) -> tuple[int, int]:
        """What the receipt tells of so many answers of 1000 tokens in and 50 out, in so many turns."""
        told = {"all": self.asks(answers, turns), "last": turns, "none": 0}[self.tokens]
        return 1000 * told, 50 * told


def _all() -> dict[str, Subject]:
    names = [module.name for module in pkgutil.iter_modules(subjects.__path__)]
    modules = [importlib.import_module(f"subjects.{name}") for name in names]
    found: list[Subject] = [one for module in modules for one in getattr(module, "SUBJECTS", None) or [module.SUBJECT]]
    return {one.name: one for one in found}


SUBJECTS = _all()
