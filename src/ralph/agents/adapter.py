"""The agent programs of others: what their adapters have in common. One small module each defines the rest.

An adapter of a third party is a class like these, named by an entry point of the group `ralph.agents`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from ralph.agents.agent import FULL_AUTO, Abilities, Call, Reader
from ralph.agents.failures import failure_in
from ralph.agents.prices import Prices
from ralph.core.errors import StorageError
from ralph.core.limits import Usage
from ralph.core.stream import Failure
from ralph.documents.agent.program import PROGRAM


def model_in(arguments: Sequence[str]) -> str:
    """The model that the user's own arguments for an agent's program name: `--model NAME`, `-m NAME`, `--model=NAME`."""
    for word, following in pairwise((*arguments, "")):
        if word in ("-m", "--model"):
            return following
        if word.startswith("--model="):
            return word.removeprefix("--model=")
    return ""


class Adapter(ABC):
    """How one agent program is started, read and helped."""

    name: str
    """What people call it; also its program, where nothing else is said."""
    install: str
    """The command that installs it."""
    advice: str
    """What a person can do where it is not signed in."""
    abilities: Abilities = Abilities()
    announces_end: bool = True
    """Whether it says in its stream that it has finished: exit 0 alone is then no success."""
    keys: tuple[str, ...] = ()
    """Variables that hold a key for its model."""
    services: tuple[str, ...] = ()
    """Variables that switch to a service with a sign-in of its own."""
    settings: tuple[str, str] = ("", ".")
    """The variable that names its directory of settings, and where that is in the home directory by default."""
    credentials: tuple[str, ...] = ()
    """The files in it that are there once a person has signed in."""
    may_hold: tuple[str, ...] = ()
    """Files in it that may hold a key, and are not read."""
    ralph_command: str = PROGRAM
    """How its prompts name the `ralph` command, so that its shell finds it."""
    permission_modes: Mapping[str, tuple[str, ...]] = MappingProxyType({FULL_AUTO: ()})
    """Its own arguments for each level of permissions that it knows."""
    permission_options: tuple[str, ...] = ()
    """Its options that choose a mode: if the user passes one of them, none of ours is given."""
    hook_words: tuple[str, ...] = ()
    """The words by which it is told of hooks of ours, through which words of a person reach it; `ready` may find them."""
    hook_variables: Mapping[str, str] = MappingProxyType({})
    """The variables for the same."""

    def __init__(self, program: str = "", prices: Prices | None = None) -> None:
        self.program = program or self.name
        self.prices: Prices = prices or {}
        self.variables: Mapping[str, str] = {}
        """What the user's settings add to its environment."""

    def model_of(self, call: Call) -> str:
        """The model that a turn will use: as asked for, or as its own settings say; empty if neither tells."""
        return call.model or model_in(call.arguments) or self.configured_model(call, {**os.environ, **self.variables})

    def settings_home(self, environment: Mapping[str, str]) -> Path:
        """The directory with its own settings."""
        variable, usual = self.settings
        return Path(environment.get(variable) or Path(environment.get("HOME") or Path.home()) / usual)

    def configured_model(self, call: Call, environment: Mapping[str, str]) -> str:
        """The model that its own settings on this machine name; empty if none does."""
        return ""

    @abstractmethod
    def command(self, call: Call) -> tuple[str, ...]:
        """The words that start it, with `permission_words(call)`, and its prompt from standard input or from a file."""

    @abstractmethod
    def reader(self, call: Call, before: Usage) -> Reader:
        """Who reads its output, a new one for each turn; `before` is what the conversation used before it."""

    def permission_words(self, call: Call) -> tuple[str, ...]:
        """Its arguments for the permissions of a turn. A mode that the user passes wins over ours."""
        if self.chooses_mode(call.arguments):
            return ()
        return self.permission_modes[call.permissions]

    def chooses_mode(self, arguments: tuple[str, ...]) -> bool:
        """Whether arguments of the user choose its permission mode."""
        return any(word.partition("=")[0] in self.permission_options for word in arguments)

    def environment(self, call: Call) -> Mapping[str, str]:
        """What it needs in its environment beside what is there."""
        return {}

    def failure(self, code: int | None, stderr: str) -> tuple[Failure, str] | None:
        """What its exit and its last words on standard error say, where its stream did not tell; None where nothing."""
        return failure_in(stderr) if code else None

    def ready(self, environment: Mapping[str, str]) -> str:
        """Lay ready what it needs on this machine, once for a run; what a person should know of it."""
        try:
            why = self.lay_hooks(environment)
        except (OSError, StorageError, ValueError, TypeError) as error:
            why = str(error)
        return f"words for {self.name} wait until its turn is over: {why}" if why else ""

    def lay_hooks(self, environment: Mapping[str, str]) -> str:
        """Lay hooks of ours ready, where that takes more than words; why they cannot be had, empty where they can."""
        return ""

    def hears(self, call: Call) -> bool:
        """Whether words reach it in the middle of such a turn."""
        return self.abilities.live_input or bool(self.hook_words or self.hook_variables)

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """Whether it is signed in, as far as that can be told offline, and how, or what to run; None where it cannot."""
        if key := next((key for key in self.keys if environment.get(key)), ""):
            return True, key
        set_to = {one: environment.get(one, "").lower() for one in self.services}
        if switch := next((one for one, value in set_to.items() if value not in ("", "0", "false")), ""):
            return None, f"{switch} is set: what it needs to sign in is not looked at"
        variable, usual = self.settings
        place = Path(environment.get(variable) or home / usual)
        for name in (*self.credentials, *self.may_hold):
            if (place / name).is_file():
                unsure = f"set up in {place / name}: the key that it needs is not looked at"
                return (True, str(place / name)) if name in self.credentials else (None, unsure)
        return False, self.advice
