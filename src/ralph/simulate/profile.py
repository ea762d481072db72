"""Profiles: how an agent behaves, what it spends, and what befalls a run; chances are between 0 and 1."""

import random
from collections.abc import Mapping
from importlib import resources
from math import log
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ralph.core.errors import UsageError
from ralph.core.turns import TurnEnd
from ralph.documents.config import read_yaml, validated

Chance = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0, le=1e12)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Publishes(_Section):
    """What a turn says, by weight."""

    fitting: Amount = 97.8
    """What it sees calls for, in the form that is asked for."""
    any: Amount = 0.2
    """One of the topics, or answers, that it may give, whatever it sees."""
    forbidden: Amount = 0
    """What is not its own to say, or not in the form that is asked for."""
    broken: Amount = 0
    """What cannot be read."""
    nothing: Amount = 2

    @model_validator(mode="after")
    def _some(self) -> "Publishes":
        if not sum(self.weights):
            raise ValueError("one of the weights must be above 0")
        return self

    @property
    def weights(self) -> tuple[float, ...]:
        """All of them, in their order."""
        return self.fitting, self.any, self.forbidden, self.broken, self.nothing


class Breaks(_Section):
    """How often a turn comes to nothing."""

    fails: Chance = 0.02
    """Its program crashes."""
    hangs: Chance = 0.003
    """It says nothing any more, until it is ended."""
    limited: Chance = 0.01
    """It runs into a limit of its provider."""
    overloaded: Chance = 0.01
    unavailable: Chance = 0
    """It cannot be started: the run ends."""
    limit_minutes: Amount = 60
    """How long a limit of a provider lasts at most."""

    def chosen(self, chance: random.Random) -> TurnEnd | None:
        """How a turn breaks; None where it does not."""
        at = chance.random()
        ends = (TurnEnd.FAILED, TurnEnd.IDLE, TurnEnd.LIMITED, TurnEnd.OVERLOADED, TurnEnd.UNAVAILABLE)
        shares = (self.fails, self.hangs, self.limited, self.overloaded, self.unavailable)
        for end, share in zip(ends, shares, strict=True):
            at -= share
            if at < 0:
                return end
        return None


class Spends(_Section):
    """What a turn takes: half of all turns take less than this."""

    input_tokens: Amount = 120_000
    """Beside its prompt: what it reads, again and again."""
    output_tokens: Amount = 5_000
    seconds: Amount = 240
    check_seconds: Amount = 20
    spread: Annotated[float, Field(ge=0, le=3)] = 0.6
    """How far turns differ: at 0.6 one in ten takes more than twice as much."""
    input_price: Amount = 0.75
    """US dollars for a million tokens, what the provider had in its cache included."""
    output_price: Amount = 15.0

    def drawn(self, chance: random.Random, median: float) -> float:
        """One of these amounts."""
        return chance.lognormvariate(log(median), self.spread) if median else 0.0


class Befalls(_Section):
    """What befalls a run from outside, by chance in every turn."""

    crash: Chance = 0.01
    """The engine is killed, or the machine goes down, or it is asked to go; it is started again later."""
    pause: Chance = 0.003
    """A person pauses the run, and goes on later."""
    steer: Chance = 0.01
    inform: Chance = 0.005
    abort: Chance = 0.0005


class Profile(_Section):
    """One kind of agent."""

    about: str = ""
    acts: Chance = 0.98
    """That a turn that has something to make changes anything."""
    right: Chance = 0.85
    """That what it makes is right."""
    notices: Chance = 0.9
    """That one who judges sees that something is wrong."""
    doubts: Chance = 0.05
    """That one who judges refuses what is right."""
    lies: Chance = 0
    """That it says that work is done although it knows better, or did not look."""
    loops: Chance = 0
    """That it sends the work back, whatever it sees."""
    heeds: Chance = 0.98
    """That it acknowledges what a person said."""
    tidy: Chance = 0.98
    """That it closes the task that it has finished."""
    pieces: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(le=1000)]] = (1, 4)
    """How many pieces there are to make: from, to."""
    conflicts: Chance = 0.05
    """That what was made beside other work cannot be merged as it is."""
    publishes: Publishes = Publishes()
    breaks: Breaks = Breaks()
    spends: Spends = Spends()
    befalls: Befalls = Befalls()

    @model_validator(mode="after")
    def _ordered(self) -> "Profile":
        if self.pieces[0] > self.pieces[1]:
            raise ValueError("`pieces` are from fewer to more")
        return self


def shipped() -> Mapping[str, str]:
    """The texts of the profiles that Ralph brings along, by name."""
    place = resources.files("ralph.simulate") / "profiles"
    files = sorted((file for file in place.iterdir() if file.name.endswith(".yml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yml"): file.read_text() for file in files}


def named(name: str) -> Profile:
    """A profile that Ralph brings along."""
    texts = shipped()
    if name not in texts:
        raise UsageError(
            f"there is no agent {name!r} to simulate", todo=f"there are {', '.join(texts)}; or give --profile FILE"
        )
    return parse(texts[name], f"{name}.yml")


def parse(text: str, where: str) -> Profile:
    """The profile in a file; what it does not set is as with a competent agent."""
    data = read_yaml(text, where)
    return validated(Profile, data, where, dict(data), manual="docs/simulate.md")
