"""What must hold for every prompt of a session. The whole texts are golden files of `tests/prompts`."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from test_session_parity import FAILED_REVIEW, HOME, PLAYS, Play, classic, play_standard, roles, with_instructions
from test_session_rules import with_settings

from ralph.core.check_output import excerpt_output
from ralph.core.checks import CheckResult, CheckStatus, Finding, Rule, Verdict
from ralph.core.events import MergeResult
from ralph.core.prompt import count_tokens
from ralph.core.signals import SignalType
from ralph.core.turns import TurnRequest
from ralph.documents import answers
from ralph.workflows.session.prompts import TURN

GOLDEN = Path(__file__).parents[1] / "prompts" / "golden" / "session"
RECORDED = ("success", "rework", "gaps", "split", "feedback", "update", "rescoped", "questions")
OUTPUT = "\n".join(
    [
        "src/app.ts(3,7): error TS2304: Cannot find name 'Invoice'.",
        *(f"  at step {number} of the build" for number in range(6000)),
        "Build stopped.",
    ]
)
"""What a check prints whose cause is its first line."""
BUDGET = 1600
"""Tokens that a prompt of these small sessions may take."""


def name_of(request: TurnRequest, keys: dict[str, str]) -> str:
    """What a prompt is called: role and mode, and what tells it from others of the same."""
    words = [request.role, keys.get("MODE", "")]
    if "ATTEMPT_NUMBER" in keys:
        words.append("first-attempt" if keys["ATTEMPT_NUMBER"] == "1" else "further-attempt")
        words.append(
            find_cause(
                request.prompt.text.partition(
                    "# Why the previous attempt failed\nThe engine or the reviewer said:\n```\n"
                )[2]
            )
        )
    if request.role == "questioner" and keys.get("CATEGORY") == "feedback-driven":
        words.append("feedback-driven")
    elif any(name.startswith("feedbacks/") for name in request.inbox):
        words.append("with-feedback")
    continued = {"SESSION_REVIEW": ("previous-review.md",), "brainstorm": request.outputs}
    if any(name in request.inbox for name in continued.get(keys.get("MODE", ""), ())):
        words.append("again")
    if "steer.md" in request.inbox:
        words.append("rescoped")
    return "-".join(word.lower() for word in words if word)


def find_cause(why: str) -> str:
    """What made the previous attempt fail, in a word; empty if it was the review."""
    if "it could not be merged" in why:
        return "not-merged"
    if "[test-skipped]" in why:
        return "findings"
    return "failed-checks" if why.startswith("$ ") else ""


def keys_of(request: TurnRequest) -> dict[str, str]:
    block = request.prompt.text.partition(f"{TURN}\n")[2].partition("\n\n")[0]
    return dict(line.split(": ", 1) for line in block.splitlines())


@cache
def requests_of(layout: str) -> dict[str, TurnRequest]:
    """The turns of recorded sessions, one for each name; checks and knowledge of earlier sessions are there.

    Playing them takes seconds, and every test reads the same turns.
    """
    found: dict[str, TurnRequest] = {}
    for play in plays(layout):
        for request in play.requests:
            # Its prompt is a golden file of the merge queue.
            if request.role != "resolver":
                found.setdefault(name_of(request, keys_of(request)), request)
    return found


def plays(layout: str) -> Iterator[Play]:
    yield play_failed_checks(layout)
    start = play_standard if layout == "standard" else classic
    rework = {"review:task-1-1": {"answer": FAILED_REVIEW}, "check:task-2-1": False}
    first = start(rework, "make test") if layout == "standard" else classic("make test", says=rework)
    first.rules = with_settings(first.rules, knowledge=(".docs/how-to/build.md",))
    yield first.run()
    for what in RECORDED:
        if f"{layout}-{what}" in PLAYS:
            yield PLAYS[f"{layout}-{what}"]()
    if layout == "standard":
        yield play_approval()
        yield play_failed_merge()


def play_failed_checks(layout: str) -> Play:
    """The check of the first task prints a lot, that of the second passes although a test is skipped."""
    output, left_out = excerpt_output(OUTPUT, 6000)
    command = "check task-1" if layout == "standard" else "check 1"
    failed = CheckResult(
        f"`{command}` passes",
        CheckStatus.FAILED,
        0.1,
        1,
        "exit code 1",
        output,
        command=command,
        left_out=left_out,
    )
    passed = replace(failed, status=CheckStatus.PASSED, code=0, reason="", output="", left_out=0)
    finding = Finding(Rule.TEST_SKIPPED, "test_cart.py", 17, "test_discount is skipped.")
    says = {"check:task-1-1": Verdict((failed,)), "check:task-2-1": Verdict((passed,), (finding,))}
    play = play_standard(says, "make test") if layout == "standard" else classic("make test", says=says)
    play.rules = with_settings(play.rules, knowledge=(".docs/how-to/build.md",))
    return play.run()


def play_failed_merge() -> Play:
    """The work of a task fails the checks of the session on the merged tree; the user says to go on."""
    play = play_standard({f"merge-task-2-1-{n}": MergeResult.CHECKS_FAILED for n in (1, 2, 3, 4)}, "all").run()
    play.edit(f"{HOME}/iterations/2/feedbacks/20261116-100000/feedbacks.md", "# Feedback\n\n- **ISS-001**: go on\n")
    return play.resume()


def play_approval() -> Play:
    """The user approves with a sentence on what to keep."""
    play = with_instructions(play_standard({}, "all"), "- approval: signal\n- max_cycles: 0\n").run()
    play.load()
    play.signal(SignalType.APPROVE, "Keep only what is about the build.")
    return play.run()


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
def test_every_file_of_the_inbox_is_listed_with_what_it_is(layout: str) -> None:
    for name, request in requests_of(layout).items():
        listed = request.prompt.text.partition("# Your inbox\n")[2].partition("\n\n")[0].splitlines()[1:]
        assert [line for line in listed if not re.match(r"- `[^`]+`: \w+ \w+", line)] == [], name


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_every_document_in_a_prompt_exists_or_is_handed_over(layout: str) -> None:
    for name, request in requests_of(layout).items():
        [role] = [part.text for part in request.prompt.parts if part.name == "role"]
        named = set(re.findall(r"`([\w.-]+(?:\.md|/))`", role))
        copied = {f"{path.partition('/')[0]}/" for path in (*request.inbox, *request.copied_files)}
        known = {*request.inbox, *copied, *(path.partition("*")[0] for path in request.outputs)}
        assert named <= known, (name, named - known)


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_constant_parts_come_before_parts_of_one_turn(layout: str) -> None:
    requests = requests_of(layout)
    first, further = (requests[f"executor-{which}-attempt"].prompt.text for which in ("first", "further"))
    assert first.partition(TURN)[0] == further.partition(TURN)[0]
    assert "make test" in first.partition(TURN)[0]


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_executor_gets_the_cause_that_the_check_printed_first(layout: str) -> None:
    prompt = requests_of(layout)["executor-further-attempt-failed-checks"].prompt.text
    why = prompt.partition("# Why the previous attempt failed\n")[2].partition("\n# ")[0]
    assert "src/app.ts(3,7): error TS2304: Cannot find name 'Invoice'.\n" in why
    assert re.search(r"^\.\.\. 59\d\d lines left out$", why, re.MULTILINE) and "\nBuild stopped.\n" in why
    assert "characters are left out" not in why


@pytest.mark.parametrize("layout", ["standard", "classic"])
def test_examples_of_answers_match_their_schema(layout: str) -> None:
    for name, request in requests_of(layout).items():
        [example] = re.findall(r"`result.json`:\n````\n(.*?)\n````", request.prompt.text, re.DOTALL)
        answer, errors = answers.parse_answer(request.answer_schema, example)
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
        for field, values in answers.list_choices(request.answer_schema).items():
            assert f"`{field}` is {' | '.join(values)}" in text, name
    planner = requests_of(layout)["planner-task_breakdown"]
    assert "make test" in planner.prompt.text
    assert ".docs/how-to/build.md" in planner.prompt.text


def test_every_mode_has_a_text_and_a_form() -> None:
    texts = roles()
    for schema in schemas_of_sessions():
        layout, role, mode = schema
        form = texts.section("forms" if layout == "session" else "classic-forms", f"{role} {mode}".strip())
        assert "`result.json`:" in form, schema
        if mode:
            assert texts.section(role, mode) or texts.section("classic", f"{role} {mode}"), schema


def schemas_of_sessions() -> Iterator[tuple[str, str, str]]:
    from ralph.documents.session.answers import ANSWERS

    special = {"session.reviewer": ("reviewer", "TASK_REVIEW"), "session.review": ("reviewer", "SESSION_REVIEW")}
    for name in ANSWERS:
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
def test_examples_in_prompts_are_valid_documents(layout: str, mode: str) -> None:
    request = requests_of(layout)[mode]
    documents = literal_documents(request.prompt.text)
    answer, errors = answers.parse_answer(request.answer_schema, documents.pop("result.json"))
    assert answer is not None and not errors
    if mode == "planner-rebreakdown_task":
        documents["tasks/task-1.2.md"] = documents["tasks/task-1.1.md"].replace("task-1.1", "task-1.2")
    assert documents, "the prompt shows no document"
    assert answers.find_answer_faults(request.answer_schema, answer, documents, request.inbox) == ()


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
