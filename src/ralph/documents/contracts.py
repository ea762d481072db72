"""Contracts: the form in which a role must answer in `result.json`."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ralph.core.stream import clean_text
from ralph.documents.steering import Answer


class LoopAnswer(Answer):
    """What the actor of a loop hands back. It informs people and later turns; it decides nothing."""

    summary: str = Field(min_length=1, max_length=2000, description="what you did, in one or two sentences")
    learned: str = Field(default="", max_length=2000, description="what the next iteration should know")
    next: str = Field(default="", max_length=2000, description="what you would try next if the checks still fail")


class ReflectorAnswer(BaseModel):
    """What a reflector makes of an iteration that did not succeed."""

    model_config = ConfigDict(extra="ignore", strict=True)

    why: str = Field(
        min_length=1, max_length=2000, description="why it failed: the root cause, in one or two sentences"
    )
    next: str = Field(min_length=1, max_length=2000, description="what to try next: one concrete action")


LOOP: Mapping[str, type[BaseModel]] = {"loop.actor": LoopAnswer, "loop.reflector": ReflectorAnswer}


def form(contract: str) -> type[BaseModel]:
    """The form of an answer; those of a workflow are loaded when one of them is wanted."""
    match contract.partition(".")[0]:
        case "session" | "classic":
            from ralph.documents.session.answers import CONTRACTS as forms
        case _:
            return LOOP[contract]
    return forms[contract]


@cache
def schema(contract: str) -> str:
    """The contract as JSON Schema, for the inbox."""
    return json.dumps(form(contract).model_json_schema(), indent=2) + "\n"


@cache
def example(contract: str) -> str:
    """An answer that fulfils a contract, in one line."""
    found = form(contract).model_json_schema().get("examples") or [{}]
    return json.dumps(found[0])


def validate(contract: str, text: str) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The answer, or everything that is wrong with it."""
    try:
        answer = form(contract).model_validate(_clean(json.loads(text))).model_dump(exclude_none=True)
    except ValidationError as error:
        return None, tuple(_sentence(fault) for fault in error.errors())
    except (ValueError, RecursionError) as error:
        return None, (f"result.json is not valid JSON: {error}",)
    return answer, ()


def faults(
    contract: str, answer: Mapping[str, Any], papers: Mapping[str, str], inbox: Mapping[str, str]
) -> tuple[str, ...]:
    """What is wrong with an answer of the right form, or with the documents that go with it, by what lay in the inbox."""
    match contract.partition(".")[0]:
        case "session" | "classic":
            from ralph.documents.session.answers import FAULTS as known
        case _:
            return ()
    look = known.get(contract)
    return look(answer, papers, inbox) if look else ()


def _clean(value: Any) -> Any:
    """Text as every file and terminal can hold it: no half characters, no control characters."""
    match value:
        case str():
            return clean_text(value)
        case list():
            return [_clean(item) for item in value]
        case dict():
            return {key: _clean(item) for key, item in value.items()}
    return value


def _sentence(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"]) or "the answer"
    return f"{place}: {fault['msg']}"
