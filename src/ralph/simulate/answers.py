"""How simulated agents answer where a contract asks for it: fitting, at random, in the wrong form, or not at all."""

import json
import random
from collections.abc import Mapping
from typing import Any

from ralph.core.turns import Turn
from ralph.documents import contracts
from ralph.simulate.game import Deed
from ralph.simulate.profile import Profile

KINDS = ("fitting", "any", "forbidden", "broken", "nothing")
_WRONG: tuple[dict[str, Any], ...] = (
    {},
    {"status": "splendid", "summary": 3},
    {"verdict": "Superb", "blockers": "none"},
    {"why": []},
)
_NO_JSON = ("{", "done!", '{"status": "completed"', "\x00", "[" * 2000)


def kind_of(profile: Profile, chance: random.Random) -> str:
    """What a turn says, by the weights of a profile."""
    return chance.choices(KINDS, profile.publishes.weights)[0]


def answered(
    turn: Turn,
    kind: str,
    chance: random.Random,
    fitting: Mapping[str, Any],
    other: Mapping[str, Any],
    papers: Mapping[str, str] | None = None,
) -> tuple[Mapping[str, Any] | None, tuple[str, ...], Mapping[str, str]]:
    """The answer as an engine would take it, what is wrong with it, and the papers; `other` is one that may be given too."""
    contract, papers = turn.request.contract, papers or {}
    match kind:
        case "nothing":
            required = turn.request.answer_required or bool(turn.repair)
            return None, ("there is no result.json",) if required else (), papers
        case "broken":
            text = chance.choice(_NO_JSON)
        case "forbidden":
            text, papers = json.dumps(chance.choice(_WRONG)), {}
        case _:
            text = json.dumps(chance.choice((fitting, other)) if kind == "any" else fitting)
    answer, errors = contracts.validate(contract, text)
    if answer is not None and not errors:
        errors = contracts.faults(contract, answer, papers, turn.request.inbox)
    return answer, errors, papers


def deed(told: str, files: int, given: tuple[Mapping[str, Any] | None, tuple[str, ...], Mapping[str, str]]) -> Deed:
    """What an agent made of a turn, with its answer."""
    answer, errors, papers = given
    said = f"; its answer is not taken: {errors[0][:60]}" if errors else "" if answer else "; no answer"
    return Deed(told + said, files, answer=answer, errors=errors, papers=papers)
