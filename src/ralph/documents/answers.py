"""Answers of roles in `result.json`: their schemas, what is wrong with an answer, and the prompts to repair it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ralph.core.prompt import Place, Prompt, PromptPart, build_prompt, fill_parts
from ralph.core.text import clean_text
from ralph.core.turns import INBOX, OUTBOX, EarlierTurn, TurnEnd, TurnRequest, add_changes, list_changed_files
from ralph.documents.faults import explain_fault


class Steering(BaseModel):
    """The result of a STEER."""

    model_config = ConfigDict(extra="ignore", strict=True)

    response: Literal["restarted", "adjusted", "scope-change"] = Field(
        description="restarted: you redid work; adjusted: you included it; scope-change: it asks for a different task"
    )
    note: str = Field(default="", max_length=2000, description="what you did about it, in one sentence")


class Answer(BaseModel):
    """What all answers have in common."""

    model_config = ConfigDict(extra="ignore", strict=True)

    steering: Steering | None = Field(default=None, description="only if the user steered you: how you responded")


class LoopAnswer(Answer):
    """What the actor of a loop hands back. It informs the user and later turns, and decides nothing."""

    summary: str = Field(min_length=1, max_length=2000, description="what you did, in one or two sentences")
    learned: str = Field(default="", max_length=2000, description="what the next iteration should know")
    next: str = Field(default="", max_length=2000, description="what you would try next if the checks still fail")


class ReflectorAnswer(Answer):
    """What a reflector makes of an iteration that did not succeed."""

    why: str = Field(
        min_length=1, max_length=2000, description="why it failed: the root cause, in one or two sentences"
    )
    next: str = Field(min_length=1, max_length=2000, description="what to try next: one concrete action")


class JudgedFile(BaseModel):
    """What a judge makes of one changed test or settings file."""

    model_config = ConfigDict(extra="ignore")
    path: str = Field(min_length=1, max_length=1000, description="the file, as the list in the prompt names it")
    accept: bool = Field(description="whether the change is right")
    why: str = Field(min_length=1, max_length=2000, description="the reason, with the line that shows it")


class JudgedWork(BaseModel):
    """What a judge makes of the work as a whole."""

    model_config = ConfigDict(extra="ignore")
    accept: bool = Field(description="whether the work does what the request asks for")
    why: str = Field(min_length=1, max_length=2000, description="the reason, with the place that shows it")


class JudgeTest(BaseModel):
    """A test that a judge wrote from the request and the documentation."""

    model_config = ConfigDict(extra="ignore")
    path: str = Field(
        min_length=1, max_length=300, description="a new file, relative to the top of the project, that the checks find"
    )
    text: str = Field(min_length=1, max_length=20_000, description="the whole file")
    why: str = Field(
        min_length=1, max_length=1000, description="which sentence of the request or documentation it tests"
    )


class JudgeAnswer(BaseModel):
    """What a judge makes of the tests and settings that a run changed."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "examples": [
                {
                    "work": {"accept": True, "why": "shop/cart.py:20 rounds as the request says"},
                    "files": [
                        {
                            "path": "tests/test_cart.py",
                            "accept": False,
                            "why": "line 12 no longer checks the total, and the request does not change totals",
                        }
                    ],
                }
            ]
        },
    )
    work: JudgedWork | None = Field(
        default=None, description="the work as a whole; needed if the list of files is empty"
    )
    files: list[JudgedFile] = Field(default_factory=list, description="every file of the list in the prompt")
    tests: list[JudgeTest] = Field(
        default_factory=list, max_length=3, description="tests of your own, in new files; Ralph runs them"
    )

    @model_validator(mode="after")
    def _require_opinion(self) -> "JudgeAnswer":
        if self.work is None and not self.files:
            raise ValueError("say in `work` whether the work does what the request asks for")
        return self


_LOOP_ANSWERS: Mapping[str, type[BaseModel]] = {
    "loop.actor": LoopAnswer,
    "loop.reflector": ReflectorAnswer,
    "loop.judge": JudgeAnswer,
}


def find_answer_model(schema: str) -> type[BaseModel]:
    """The model of an answer, by the name of its schema. Those of sessions are loaded when one of them is needed."""
    match schema.partition(".")[0]:
        case "session" | "classic":
            from ralph.documents.session.answers import ANSWERS as models
        case _:
            return _LOOP_ANSWERS[schema]
    return models[schema]


@cache
def render_schema(schema: str) -> str:
    """The JSON Schema of an answer, for the inbox."""
    return json.dumps(find_answer_model(schema).model_json_schema(), indent=2) + "\n"


@cache
def render_example(schema: str) -> str:
    """An example of an answer, in one line."""
    found = find_answer_model(schema).model_json_schema().get("examples") or [{}]
    return json.dumps(found[0])


@cache
def list_choices(schema: str) -> Mapping[str, tuple[str, ...]]:
    """The values that fields of an answer may have, by field, if they are a choice of words."""
    fields = find_answer_model(schema).model_json_schema()["properties"]
    choices: dict[str, tuple[str, ...]] = {}
    for name, about in fields.items():
        words = tuple(word for word in about.get("enum", ()) if word)
        if words:
            choices[name] = words
    return choices


def parse_answer(schema: str, text: str) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The answer, or everything that is wrong with it."""
    try:
        answer = find_answer_model(schema).model_validate(_clean(json.loads(text))).model_dump(exclude_none=True)
    except ValidationError as error:
        return None, tuple(_describe_fault(fault) for fault in error.errors())
    except (ValueError, RecursionError) as error:
        return None, (f"result.json is not valid JSON: {error}",)
    return answer, ()


def find_answer_faults(
    schema: str, answer: Mapping[str, Any], documents: Mapping[str, str], inbox: Mapping[str, str]
) -> tuple[str, ...]:
    """What is wrong with an answer that matches its schema, or with its documents, for these files of the inbox."""
    match schema.partition(".")[0]:
        case "session" | "classic":
            from ralph.documents.session.answers import FAULTS as known
        case _:
            return ()
    look = known.get(schema)
    return look(answer, documents, inbox) if look else ()


def complete_answer(answer: Mapping[str, Any], documents: Mapping[str, str]) -> Mapping[str, Any]:
    """An answer with what only its documents say: the gaps that the review of a session names."""
    if not answer.get("assessment") or answer.get("gaps") or "review.md" not in documents:
        return answer
    from ralph.documents.session.reports import parse_review

    gaps = parse_review(documents["review.md"]).gaps
    return {**answer, "gaps": list(gaps)} if gaps else answer


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


def _describe_fault(fault: Any) -> str:
    """A fault of an answer, with its file: an agent gets it beside faults of other documents."""
    field = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"result.json: the field `{field}` is missing"
    why = explain_fault(fault, "be a JSON object")
    return f"result.json: `{field}`: {why}" if field else f"result.json: {why}"


ANSWER_IN_MESSAGE = PromptPart(
    name="answer-in-message",
    text=(
        "In this turn you can only read. So do not write `result.json`: end your last message with its content, in a block that"
        " begins with ```json. Do not write other files, even if you are asked to."
    ),
    purpose="How to answer without a file.",
    place=Place.ANSWER,
    heading="# You cannot write files",
)
"""For agents that can change no files."""
_REPAIR_KEEPS = ("keys", "task", "task-of-the-loop", "what-iteration-did", "check-results-after-it")
"""The parts of a prompt that a turn also gets if it only repairs an answer. It gets the form of the answer, too."""
_REPAIR_HEADINGS = {
    "task": "# The task of the previous turn",
    "task-of-the-loop": "# The task of the loop",
    "what-iteration-did": "# The iteration that the previous turn had to explain",
}
_FORMAT = (
    "# The format\nThe previous turn was asked for this. It shows what a correct answer looks like. Here, `you` means the"
    " previous turn: describe its work, not your repair. Keep the contents that are right: an example only shows the form."
)
_HANDED = f"The documents that it handed over are in `{OUTBOX}` again. Correct each fault there."
_REJECTED = (
    "The previous turn did this work, and what it handed over could not be used. Its documents are in the outbox again. Correct"
    " every one of these faults, or write the documents again:"
)


def build_repair_prompt(template: str, request: TurnRequest, errors: Sequence[str]) -> Prompt:
    """The prompt of a turn that only repairs the answer to a request.

    It says again what the turn was for and what it hands over: an agent may not remember it.
    """
    parts = request.prompt.parts
    answer = [part for part in parts if part.place is Place.ANSWER]
    form_text = "" if answer else f"It has to fit this JSON Schema:\n{render_schema(request.answer_schema)}"
    inbox = f"the files in `{INBOX}`"
    values = {
        "role": request.role,
        "errors": _list_errors(errors),
        "outbox": OUTBOX,
        "handed": _HANDED if request.outputs or request.drafts else "",
        "sources": inbox if request.reads_only else f"{inbox} and at `git diff`",
        "schema": form_text,
    }
    # What to repair comes first, so that the agent does not take the task below it for the work of this turn.
    context = [
        replace(part, place=Place.TURN, heading=_REPAIR_HEADINGS.get(part.name, part.heading))
        for part in parts
        if part.name in _REPAIR_KEEPS
    ]
    form = [replace(part, heading=_FORMAT) for part in answer]
    return build_prompt([*fill_parts("repair", template, values), *context, *form])


def with_rejection(prompt: Prompt, errors: Sequence[str]) -> Prompt:
    """The prompt of a turn that does the work again, because the answer to it could not be repaired."""
    if not errors:
        return prompt
    return prompt.with_parts(
        PromptPart(
            name="rejected",
            text=f"{_REJECTED}\n{_list_errors(errors)}",
            purpose="What was wrong with the previous answer.",
            place=Place.MESSAGES,
            heading="# Why the previous answer was not accepted",
        )
    )


def describe_earlier_turns(
    earlier: Sequence[EarlierTurn], request: TurnRequest, *, has_documents: bool = False
) -> PromptPart:
    """What a turn starts with if others worked on the same request before, for an agent that does not remember it.

    `has_documents` says whether the documents of the last one are in the outbox.
    """
    lines = [_describe_end(one) for one in earlier]
    change = add_changes(one.change for one in earlier)
    if change and change.files and not request.reads_only:
        whose = "Its" if len(earlier) == 1 else "Their"
        lines.append(f"{whose} changes are in the files. They belong to this run, not to the user:")
        lines += list_changed_files(change.stats)
    if has_documents:
        lines.append(
            f"What turn {earlier[-1].turn} handed over is in `{OUTBOX}` again. Change it if anything is not right."
        )
    lines.append("Do not start over: look at what is there, keep what is right, and do what is left.")
    if request.answer_schema:
        lines.append("Hand over everything that is asked for, including the part that was done before you.")
    else:
        lines.append("An event that was published there does not count. Publish one for all of the work.")
    return PromptPart(
        name="earlier-turns",
        text="\n".join(lines),
        purpose="What an earlier turn did for the same request.",
        heading="# Work that was done before you",
    )


def _describe_end(one: EarlierTurn) -> str:
    if one.end is TurnEnd.STEERED:
        return f"Turn {one.turn} worked on this, and ended before it read the newest message from the user."
    why = f" ({one.error})" if one.error else ""
    return f"Turn {one.turn} worked on this, and its answer does not count: it ended as {one.end}{why}."


def _list_errors(errors: Sequence[str]) -> str:
    return "\n".join(f"- {error}" for error in errors)
