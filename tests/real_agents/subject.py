"""What the tests know about one agent program: how to install it, how to set it up, how it behaves. See `subjects`."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import subjects
from install import Package


def no_live_messages(reason: str) -> dict[str, str]:
    """The tests with messages during a turn, with the reason why they are not possible."""
    return dict.fromkeys(
        ("test_a_message_reaches_it_after_the_tool_that_it_uses", "test_a_message_reaches_it_before_it_ends"), reason
    )


NO_THOUGHTS = {"test_thoughts_are_in_the_log": "its output does not contain them"}
NO_IMAGES = {"test_images_are_in_the_log": "its output does not report them"}
NO_IMAGE_TOOL = {"test_images_are_in_the_log": "it has no tool for images"}
NO_TODO_LIST = {"test_todo_lists_are_in_the_log": "it offers its model no tool for them if it runs without a terminal"}
NO_SUB_AGENTS = {"test_sub_agents_are_in_the_log": "it offers its model no tool for them"}
NO_REASONING_COUNT = {"test_reasoning_tokens_are_on_the_receipt": "its output does not count them"}
NO_CACHE_COUNT = {"test_cached_tokens_are_on_the_receipt": "its output does not count them"}
HIDES_FAILURES = {"test_failed_tools_are_marked_in_the_log": "its output reports failed commands as successful"}
KEY = "mock-key"
Environment = dict[str, str]
Stream = list[dict[str, Any]]


@dataclass(frozen=True)
class Raw:
    """How to call it without Ralph, to test the scripted model itself."""

    command: Sequence[str]
    """The command that does everything without questions, and streams. The prompt comes on standard input."""
    resume: Callable[[str], Sequence[str]]
    """The command that continues a conversation."""
    session: str
    """The key of the conversation's id in its stream."""
    ended_well: Callable[[dict[str, Any]], bool]
    """Whether the last line of its stream reports a success."""
    tokens: Callable[[dict[str, Any]], tuple[int, int, int]]
    """The tokens in the last line: in, cached, and out."""
    recovers_from: Mapping[str, bool] = field(default_factory=dict)
    """Faults of the model that it does not recover from by itself."""
    codes: Mapping[int, int] = field(default_factory=dict)
    """Exit codes other than 1, by the status of the model's answers."""
    limit: str = ""
    """What it prints about a limit."""


@dataclass(frozen=True)
class Subject:
    """An agent program under test."""

    package: Package
    set_up: Callable[[Path, str, int | None], Environment]
    """Writes its files into a home directory, and returns its environment. Takes the home directory, the URL of the model,
    and how often it may try a request (None for its own default)."""
    api: str
    """The wire format in which it asks its model."""
    key: str
    """The variable that holds the key."""
    sign_in: Sequence[str]
    """What the user reads if the key is rejected: one of these texts."""
    cost: float | None = None
    """US dollars for 3000 tokens in and 150 out, if `ralph cost` shows them."""
    must_cost: bool = False
    """Whether `ralph cost` always shows the cost."""
    limit_of_plan: bool = True
    """Whether it knows limits of a plan. If not, the tests use those of requests per minute."""
    limit_lasts: float = 3
    """The seconds of a limit that is too long for it to wait out by itself, with one try."""
    limit_end: bool = True
    """Whether it reports when a limit ends. If not, Ralph tries again after five minutes."""
    waits_for_limits: bool = False
    """Whether it waits for the end of any limit by itself, without a word, if its provider names that end."""
    limit_seconds: float = 10
    """The next try comes at most this many seconds after the end of a limit."""
    retry_minutes: float = 0.15
    """It retries at least this many minutes if its model always fails and its retries are not limited."""
    max_tries: int = 3
    """How often it asks a model that always fails in one turn of Ralph, if the user set nothing."""
    failing_seconds: float = 90
    """Two turns end within this many seconds if its model always fails and its retries are limited."""
    idle_minutes: float = 0.15
    """The longest silence while it starts, in minutes, on a busy machine."""
    tokens: str = "all"
    """For which answers `ralph cost` shows tokens: `all`, the `last` of every turn, or `none`."""
    lost_answers: int = 0
    """For how many answers it can lose the tokens after a stream was cut."""
    side_answers: int = 0
    """How many answers to requests of its own, such as for a title, can be on the receipt of a conversation."""
    counts_cut_answer: bool = False
    """Whether it also reports what an answer used before its stream was cut."""
    resumes: bool = True
    """Whether it continues a conversation. If not, each turn is a new one."""
    has_no_tools: bool = False
    """Whether it has no tools, and reads the edits of a whole turn from one answer."""
    ending: str = ""
    """The command with which its model ends a turn, if a message does not end it."""
    raw: Raw | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    """The tests that are not possible with this program, each with the reason."""

    alias: str = ""
    """Its name in these tests, if that is not the name of its program."""
    agent_options: tuple[str, ...] = ()
    """The options of `ralph loop` that choose it, if its name does not."""

    @property
    def name(self) -> str:
        return self.alias or self.package.name

    @property
    def options(self) -> tuple[str, ...]:
        return self.agent_options or ("--agent", self.name)

    def request_count(self, steps: int, turns: int = 1) -> int:
        """How often it asks its model for a number of steps, in a number of turns."""
        return turns if self.has_no_tools else steps

    def expected_usages(self, answers: int, turns: int = 1) -> list[tuple[int, int]]:
        """The tokens that `ralph cost` can show for a number of answers with 1000 tokens in and 50 out."""
        counted = {"all": self.request_count(answers, turns), "last": turns, "none": 0}[self.tokens]
        return [(1000 * number, 50 * number) for number in range(counted, counted + self.side_answers + 1)]

    def expected_costs(self) -> list[float | None]:
        """The cost that `ralph cost` can show for three answers."""
        if self.cost is None or not self.must_cost:
            return [self.cost, None]
        return [self.cost * (3 + side) / 3 for side in range(self.side_answers + 1)]


def _load_subjects() -> dict[str, Subject]:
    names = [module.name for module in pkgutil.iter_modules(subjects.__path__)]
    modules = [importlib.import_module(f"subjects.{name}") for name in names]
    found: list[Subject] = [one for module in modules for one in getattr(module, "SUBJECTS", None) or [module.SUBJECT]]
    return {one.name: one for one in found}


SUBJECTS = _load_subjects()
