"""The prompts of sessions: every role and mode of both layouts, first and further attempts, with feedback and messages."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from golden import NOWHERE, Case, after_steer, inbox_of, with_messages

from ralph.core.check_output import fence
from ralph.core.checks import CheckResult, CheckStatus, Verdict
from ralph.core.signals import SignalType
from ralph.core.turns import OUTBOX, FileStat, TurnRequest
from ralph.documents.answers import build_repair_prompt, with_rejection
from ralph.documents.signals import POLL_FOR_MESSAGES
from ralph.store.settings import load_prompt

sys.path.insert(0, str(Path(__file__).parents[1] / "workflows"))
from test_session_parity import Play, classic, entry, play_standard, task
from test_session_prompts import keys_of, name_of, requests_of

PATHS = frozenset({OUTBOX, ".ralph-sessions"})
FRAME = frozenset({"role", "workspace", "answer"})
FAULTS = {
    "standard/planner-task_breakdown": (
        "tasks/task-2.md: `depends_on` names task-9, which does not exist",
        "tasks/task-3.md: there is no section Files",
    ),
    "classic/planner-task_breakdown": ("tasks.md: task-2 inherits from task-9, which does not exist",),
    **dict.fromkeys(
        ("standard/executor-first-attempt", "classic/executor-first-attempt"),
        ("result.json: the field `status` is missing", "report.md: there is no section Verification Results"),
    ),
    **dict.fromkeys(
        ("standard/reviewer-task_review", "classic/reviewer-task_review"),
        ("result.json: `verdict`: it must be `Qualified` or `Failed`, not `ok`",),
    ),
}
"""What can be wrong with the answers to some prompts."""
ANY_FAULT = ("result.json: the field `status` is missing",)
"""What can be wrong with every answer."""


def cases() -> Iterator[Case]:
    for layout in ("standard", "classic"):
        for name, request in requests_of(layout).items():
            yield _case(f"session/{layout}/{name}", request)
            yield _steered(f"session/{layout}/{name}-steered", request)
            if name in ("executor-first-attempt", "planner-task_breakdown"):
                yield _continued(f"session/{layout}/{name}-continued", request)
            errors = FAULTS.get(f"{layout}/{name}", ANY_FAULT)
            yield from _repaired(f"session/{layout}/{name}", request, errors)
    for name, request in _ask_without_git().items():
        yield _case(f"session/standard/{name}-without-git", request)


def _ask_without_git() -> dict[str, TurnRequest]:
    """The turns of a session without worktrees, whose check failed before it began."""
    failed = CheckResult("`make test` passes", CheckStatus.FAILED, 0.1, 2, "exit code 2, 3 of 9 tests fail")
    rejected = {"answer": {"status": "completed", "verdict": "Failed", "feedback": "It does not read well."}}
    play = play_standard({"baseline": Verdict((failed,)), "review:task-1-1": rejected}, "make test")
    play.rules = replace(play.rules, settings=replace(play.rules.settings, has_worktrees=False))
    found: dict[str, TurnRequest] = {}
    for request in play.run().requests:
        found.setdefault(name_of(request, keys_of(request)), request)
    return found


def _case(name: str, request: TurnRequest) -> Case:
    return Case(name, request.prompt, inbox_of(request), PATHS, FRAME)


def _steered(name: str, request: TurnRequest) -> Case:
    messages = ((SignalType.STEER, "Do not touch the tests."), (SignalType.INFO, "The deadline is Friday."))
    prompt = with_messages(request, *messages, in_force=("Use tabs.",))
    return Case(name, prompt, inbox_of(request), PATHS, FRAME)


def _continued(name: str, request: TurnRequest) -> Case:
    """The turn after one that ended before it read a message, for an agent that does not remember it."""
    changed = () if request.reads_only else (FileStat("src/cli.py", 14, 2),)
    prompt = after_steer(request, "Do not touch the tests.", *changed, has_documents=True)
    return Case(name, prompt, inbox_of(request), PATHS, FRAME)


def _repaired(name: str, request: TurnRequest, errors: tuple[str, ...]) -> Iterator[Case]:
    """The turn that only repairs an answer, and the next whole turn if that did not help."""
    repair = build_repair_prompt(load_prompt("repair", NOWHERE), request, errors)
    yield Case(f"{name}-repair", repair, inbox_of(request), PATHS, FRAME)
    again = with_rejection(request.prompt, errors).with_parts(POLL_FOR_MESSAGES)
    yield Case(f"{name}-after-repair", again, inbox_of(request), PATHS, FRAME)


def ask_hostile(layout: str, turn: tuple[str, str, str], text: str) -> TurnRequest:
    """The turn of a role, mode and attempt in a session in which everybody writes this text."""
    for request in play_hostile(layout, text).requests:
        keys = keys_of(request)
        if (request.role, keys.get("MODE", ""), keys.get("ATTEMPT_NUMBER", "")) == turn:
            return request
    raise AssertionError(f"there is no turn {turn}")


@cache
def play_hostile(layout: str, text: str) -> Play:
    """A session whose user, planner, executor and reviewer write the text wherever they can.

    One session has the turns of all roles, so it is played once for all of them.
    """
    task_text = define_task(layout, text[:2000])
    key, documents = (
        ("plan:plan-breakdown@1", {"tasks/task-1.md": task_text})
        if layout == "standard"
        else ("plan:plan-breakdown", {"tasks.md": task_text})
    )
    report = {"documents": {"report.md": f"### Summary of Changes\n{text}\n"}}
    failed = {"answer": {"status": "completed", "verdict": "Failed", "feedback": text[:2000]}}
    says = {key: {"documents": documents}, "execute:task-1-1": report, "review:task-1-1": failed}
    play = play_standard(says) if layout == "standard" else classic(says=says)
    play.rules = replace(play.rules, settings=replace(play.rules.settings, request=text))
    play.load()
    return play.run()


def define_task(layout: str, objective: str) -> str:
    """A task as a planner can write it: text with several lines is a code block in its objective."""
    if layout == "standard":
        return task("task-1").replace("make it", fence(objective))
    return entry(1).replace("make it", " ".join(objective.split()))
