"""What must hold for every prompt of a session. The whole texts are golden files of `tests/prompts`."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_session_parity import FAILED_REVIEW, PLAYS, Play, classic, play_standard, roles

from ralph.core.prompt import count_tokens
from ralph.core.turns import TurnRequest
from ralph.documents import contracts

GOLDEN = Path(__file__).parents[1] / "prompts" / "golden" / "session"
RECORDED = ("success", "rework", "gaps", "split", "feedback", "update")
BUDGET = 1600
"""Tokens that a prompt of these small sessions may take."""


def name_of(request: TurnRequest, keys: dict[str, str]) -> str:
    """What a prompt is called: role and mode, and what tells it from others of the same."""
    words = [request.role, keys.get("MODE", "")]
    if "ATTEMPT_NUMBER" in keys:
        words.append("first-attempt" if keys["ATTEMPT_NUMBER"] == "1" else "further-attempt")
    if request.role == "questioner" and keys.get("CATEGORY") == "feedback-driven":
        words.append("feedback-driven")
    elif any(name.startswith("feedbacks/") for name in request.inbox):
        words.append("with-feedback")
    if "previous-review.md" in request.inbox and keys.get("MODE") == "SESSION_REVIEW":
        words.append("again")
    return "-".join(word.lower() for word in words if word)


def keys_of(request: TurnRequest) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in request.prompt.text.split("\n\n")[0].splitlines())


def requests_of(layout: str) -> dict[str, TurnRequest]:
    """The turns of recorded sessions, one for each name; checks and knowledge of earlier sessions are there."""
    found: dict[str, TurnRequest] = {}
    for play in plays(layout):
        for request in play.requests:
            found.setdefault(name_of(request, keys_of(request)), request)
    return found


def plays(layout: str) -> Iterator[Play]:
    start = play_standard if layout == "standard" else classic
    rework = {"review:task-1-1": {"answer": FAILED_REVIEW}, "check:task-2-1": False}
    first = start(rework, "make test") if layout == "standard" else classic("make test", says=rework)
    first.rules = replace(first.rules, knowledge=(".docs/how-to/build.md",))
    yield first.run()
    for what in RECORDED:
        if f"{layout}-{what}" in PLAYS:
            yield PLAYS[f"{layout}-{what}"]()


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_prompts_are_the_golden_files(layout: str) -> None:
    for name, request in requests_of(layout).items():
        assert request.prompt.text == (GOLDEN / layout / f"{name}.md").read_text(), f"{name}: run `make prompts`"


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_prompts_are_whole(layout: str) -> None:
    requests = requests_of(layout)
    for name, request in requests.items():
        text = request.prompt.text
        fences = [line for line in text.splitlines() if line.startswith("```")]
        assert len(fences) % 2 == 0, name
        assert "{{" not in text, name
        assert count_tokens(text) < BUDGET, (name, count_tokens(text))
        sentences = [
            line for line in text.splitlines() if len(line) > 60 and not line.startswith(("- [", "{", "|", "    "))
        ]
        assert len(sentences) == len(set(sentences)), (name, "a sentence is there twice")
        for path in request.inbox:
            assert f"`{path.partition('/')[0]}" in text, (name, path)
        for pattern in request.outputs:
            assert pattern.partition("*")[0].rpartition("/")[2] in text.split("# What to hand over")[1], (name, pattern)
        assert text.index("# Your inbox") < text.index("# What to hand over")


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_examples_of_answers_fit_their_contract(layout: str) -> None:
    for name, request in requests_of(layout).items():
        [example] = re.findall(r"`result.json`:\n````\n(.*?)\n````", request.prompt.text, re.DOTALL)
        answer, errors = contracts.parse_answer(request.contract, example)
        assert answer is not None and not errors, (name, errors)
        assert json.loads(example).keys() <= answer.keys()


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_prompts_name_the_checks_and_what_may_be_answered(layout: str) -> None:
    for name, request in requests_of(layout).items():
        text = request.prompt.text
        if request.role in ("planner", "questioner", "executor", "reviewer") and "make test" in str(
            request.prompt.parts
        ):
            assert "- `make test` (passed before the session started)" in text, name
        for field, values in contracts.list_choices(request.contract).items():
            assert f"`{field}` is {' | '.join(values)}" in text, name
    planner = requests_of(layout)["planner-task_breakdown"]
    assert "make test" in planner.prompt.text
    assert ".docs/how-to/build.md" in planner.prompt.text


def test_every_mode_has_a_text_and_a_form() -> None:
    texts = roles()
    for contract in contracts_of_sessions():
        layout, role, mode = contract
        form = texts.section("forms" if layout == "session" else "classic-forms", f"{role} {mode}".strip())
        assert "`result.json`:" in form, contract
        if mode:
            assert texts.section(role, mode) or texts.section("classic", f"{role} {mode}"), contract


def contracts_of_sessions() -> Iterator[tuple[str, str, str]]:
    from ralph.documents.session.answers import CONTRACTS

    special = {"session.reviewer": ("reviewer", "TASK_REVIEW"), "session.review": ("reviewer", "SESSION_REVIEW")}
    for name in CONTRACTS:
        layout, role, mode = [*name.split("."), ""][:3]
        yield (layout, *special.get(name, (role, mode)))


def literal_documents(prompt: str) -> dict[str, str]:
    """What a program hands over that does nothing but copy the examples of its prompt."""
    asked = prompt.split("# What to hand over")[1]
    return dict(re.findall(r"^`([^`\n]+)`[^\n]*:\n````\n(.*?\n)````$", asked, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize(
    ("layout", "mode"),
    [
        ("standard", "planner-initialize"),
        ("standard", "planner-task_breakdown"),
        ("standard", "planner-rebreakdown_task"),
        ("standard", "planner-critique_breakdown"),
        ("standard", "questioner-brainstorm"),
        ("classic", "planner-initialize"),
        ("classic", "planner-task_breakdown"),
        ("classic", "questioner-brainstorm"),
        ("standard", "executor-first-attempt"),
        ("classic", "executor-first-attempt"),
        ("standard", "reviewer-task_review"),
        ("classic", "reviewer-session_review"),
    ],
)
def test_who_only_copies_the_examples_hands_over_valid_documents(layout: str, mode: str) -> None:
    request = requests_of(layout)[mode]
    documents = literal_documents(request.prompt.text)
    answer, errors = contracts.parse_answer(request.contract, documents.pop("result.json"))
    assert answer is not None and not errors
    if mode == "planner-rebreakdown_task":
        documents["tasks/task-1.2.md"] = documents["tasks/task-1.1.md"].replace("task-1.1", "task-1.2")
    assert documents, "the prompt shows no document"
    assert contracts.find_answer_faults(request.contract, answer, documents, request.inbox) == ()


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_literal_minded_planner_makes_tasks_with_files_criteria_and_dependencies(layout: str) -> None:
    start = play_standard() if layout == "standard" else classic()
    documents = literal_documents(requests_of(layout)["planner-task_breakdown"].prompt.text)
    del documents["result.json"]
    key = "plan:plan-breakdown@1" if layout == "standard" else "plan:plan-breakdown"
    start.says = {key: {"documents": documents}}
    tasks = start.run().state.tasks
    assert {name: task.needs for name, task in tasks.items()} == {"task-1": (), "task-2": ("task-1",)}
    assert all(task.files and task.criteria and task.objective for task in tasks.values())
