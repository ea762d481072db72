"""The rules of sessions, driven by roles that do anything: thousands of sessions without a process."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from ralph.core.checks import Check, CheckResult, CheckStatus, Verdict
from ralph.core.events import (
    ChecksEnded,
    Do,
    DocumentEdited,
    Event,
    Merge,
    MergeEnded,
    MergeResult,
    Promote,
    RunChecks,
    RunEnded,
    Stop,
    TurnEnded,
    TurnStarted,
    Work,
)
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.documents import answers
from ralph.documents.session import metadata, progress
from ralph.documents.session.layout import Layout
from ralph.documents.session.metadata import State, Status
from ralph.documents.session.progress import Marker, is_legal_change
from ralph.workflows.session.rules import Session, rebuild_flow
from ralph.workflows.session.state import Roles, SessionSettings, SessionState

PLAN = "# Plan\n\n## Goal\nDo it\n\n## Success Criteria\n- it is done\n\n## Target Files\n\n## Context\n\n## Approach\n"
ANY_TASK = """\
---
id: {id}
iteration: {iteration}
type: {type}
created_at: 2026-11-16T07:00:00Z
updated_at: 2026-11-16T07:00:00Z
---
# Task: {id}

## Title
Make {id}

## Files
- {file}

## Objective
make it

## Success Criteria
- [ ] {criterion}

## Dependencies
depends_on: [{needed}]
inherited_by: []

## Notes
"""

ID = "261116-093000"
TASK = ANY_TASK.replace("{iteration}", "1").replace("{criterion}", "`check {id}` passes")
NOW = 1_800_000_000.0
ROLES = Roles(
    {
        name: f"# {name}\n\n## {mode}\nDo it.\n"
        for name, mode in (("planner", "INITIALIZE"), ("questioner", "brainstorm"))
    }
    | {name: f"# {name}\n" for name in ("executor", "reviewer", "librarian")}
    | {"forms": ""},
    "{{why}}{{task}}{{inbox}}{{details}}{{checks}}",
)


def commands(text: str) -> tuple[Check, ...]:
    return (Check(text.split("`")[1]),) if text.startswith("`") else ()


def session(checks: tuple[str, ...] = (), *, by_waves: bool = False) -> Session:
    compiled = tuple(Check(one) for one in checks)
    return Session(SessionSettings(ID, "Build it", Layout.of(ID), compiled, commands, ROLES, NOW, by_waves))


def with_settings(rules: Session, **changes: Any) -> Session:
    """The same rules with other settings."""
    return replace(rules, settings=replace(rules.settings, **changes))


def tasks(chance: random.Random, numbers: range, iteration: int = 1, known: Iterable[str] = ()) -> dict[str, str]:
    """Task files with dependencies on earlier ones."""
    found = {}
    for number in numbers:
        earlier = [*known, *(f"task-{one}" for one in range(numbers.start, number))]
        needed = chance.sample(earlier, min(len(earlier), chance.choice((0, 0, 1, 2))))
        kind = chance.choice(("Parallelizable", "Parallelizable", "Sequential"))
        file = f"src/{chance.randint(1, 6)}.py"
        text = TASK.format(id=f"task-{number}", type=kind, file=file, needed=", ".join(needed))
        found[f"tasks/task-{number}.md"] = text.replace("iteration: 1", f"iteration: {iteration}")
    return found


def turn_starts(state: SessionState, works: tuple[Work, ...]) -> list[TurnStarted]:
    """What an engine journals when it starts the turns that were asked for."""
    found = []
    for work in works:
        if isinstance(work, TurnRequest) and work.role == "executor" and not state.flow_of(work.task).started:
            found.append(TurnStarted(turn=1, key=work.key, role=work.role, attempt=1, agent="a"))
    return found


class Driver:
    """An engine that does everything at once: what is asked for happens, in any order and with any result."""

    def __init__(self, rules: Session, chance: random.Random, *, kill: bool = False) -> None:
        self.rules, self.chance, self.kill = rules, chance, kill
        self.documents: dict[str, str] = {}
        self.state: SessionState = rules.load({})
        self.turns = 0
        self.now = NOW
        self.keys: list[str] = []
        self.merged: list[str] = []

    def run(self, most: int = 400) -> Stop:
        for _ in range(most):
            decision = self.rules.decide(self.state, self.now)
            if isinstance(decision, Stop):
                return decision
            assert decision.work, f"nothing to do in {self.state.state}"
            names = [work.key for work in decision.work]
            assert len(names) == len(set(names)), names
            self.assert_no_shared_files(decision.work)
            self.start(decision.work)
            self.take(self.answer(self.chance.choice(decision.work)))
        raise AssertionError("the session does not come to an end")

    def start(self, works: tuple[Work, ...]) -> None:
        for started in turn_starts(self.state, works):
            self.take(started)

    def assert_no_shared_files(self, works: tuple[Work, ...]) -> None:
        """Those who run side by side never work on the same files, and nobody beside one who has to be alone."""
        names = [work.task for work in works if isinstance(work, TurnRequest) and work.role == "executor"]
        files = [file for name in names for file in self.state.tasks[name].files]
        assert len(files) == len(set(files)), names
        assert len(names) <= self.state.limits.max_executors
        if any(self.state.tasks[name].type == "Sequential" for name in names):
            assert len(names) == 1

    def take(self, event: Event) -> None:
        self.now += 1
        before = self.state
        transition = self.rules.accept(before, event, self.now)
        again = self.rules.accept(before, event, self.now)
        assert transition == again, "the same event has the same consequences"
        self.documents.update(transition.documents)
        self.state = transition.state
        self.see(before)
        if self.kill and self.chance.random() < 0.2:
            loaded = self.rules.load(self.documents)
            assert loaded.progress.text == self.state.progress.text
            assert loaded.flow == self.state.flow
            assert loaded.metadata == self.state.metadata
            self.state = loaded

    def see(self, before: SessionState) -> None:
        """Only legal edges, reports never overwritten, attempts only grow, progress and task files name the same tasks."""
        for name in self.state.tasks:
            old, new = before.marker(name), self.state.marker(name)
            again = old is Marker.FAILED and new is Marker.WIP
            assert old is new or again or is_legal_change(old, new) or (old, new) == (Marker.PENDING, Marker.WIP), (
                name,
                old,
                new,
            )
            assert self.state.attempt(name) >= before.attempt(name)
        for path, text in before.texts.items():
            if "/reports/" in path:
                assert self.state.texts[path].startswith(text.split("## PART 2")[0][:200]), path
        assert progress.find_progress_problems(self.state.progress.text) == []
        assert metadata.find_metadata_problems(self.documents[self.rules.settings.layout.metadata]) == []
        listed = {item.id for item in self.state.progress.items.values() if not item.is_planning}
        assert listed == set(self.state.tasks)

    def answer(self, work: Work) -> Event:
        self.keys.append(work.key)
        match work:
            case RunChecks(key=key, checks=checks):
                return ChecksEnded(key, self.verdict(checks))
            case Merge(key=key, worktree=workspace):
                end = self.chance.choice(
                    (MergeResult.MERGED, MergeResult.MERGED, MergeResult.CONFLICT, MergeResult.CHECKS_FAILED)
                )
                if end is MergeResult.MERGED:
                    self.merged.append(workspace)
                return MergeEnded(
                    key, workspace, end, f"ralph/{ID}/{workspace}", "abc", others_merged=self.chance.random() < 0.3
                )
            case Promote(key=key, worktree=workspace):
                return MergeEnded(key, workspace, MergeResult.MERGED)
            case TurnRequest():
                self.turns += 1
                return TurnEnded(work.key, self.turns, work.role, 1, self.turn(work))
            case _:
                raise AssertionError(work)

    def verdict(self, checks: tuple[Check, ...]) -> Verdict:
        passes = self.chance.random() < 0.7
        status = CheckStatus.PASSED if passes else CheckStatus.FAILED
        return Verdict(tuple(CheckResult(check.title, status, 0.1, command=check.command) for check in checks))

    def asked_open_questions(self, iteration: int) -> bool:
        path = self.rules.settings.layout.questions(iteration, "feedback-driven")
        return "no questions" not in self.state.progress.text and path in self.documents

    def turn(self, work: TurnRequest) -> TurnResult:
        result = TurnResult(TurnEnd.FINISHED, self.now, self.now + 1)
        if work.role == "resolver":
            return result
        roll = self.chance.random()
        if work.role == "executor" and roll < 0.1:
            return replace(result, end=self.chance.choice((TurnEnd.WALL, TurnEnd.FAILED)), error="boom")
        answer, documents = self.content(work)
        fixed, errors = answers.parse_answer(work.answer_schema, _json(answer))
        assert fixed is not None and not errors, errors
        assert answers.find_answer_faults(work.answer_schema, fixed, documents, work.inbox) == ()
        return replace(result, answer=fixed, documents=documents)

    def content(self, work: TurnRequest) -> tuple[dict[str, Any], Mapping[str, str]]:
        mode = work.prompt.text.split("MODE: ")[1].split("\n")[0] if "MODE: " in work.prompt.text else ""
        number = self.state.metadata.iteration
        done: dict[str, Any] = {"status": "completed", "summary": "done"}
        if mode in ("INITIALIZE", "UPDATE"):
            return done, {"plan.md": PLAN}
        if mode == "TASK_BREAKDOWN":
            return done, tasks(self.chance, range(1, self.chance.randint(2, 8)))
        if mode == "CRITIQUE_BREAKDOWN":
            cycle = self.state.metadata.critique_cycle
            text = TASK.format(id=f"task-critique-{cycle}-1", type="Parallelizable", file="src/new.py", needed="")
            return done, {f"tasks/task-critique-{cycle}-1.md": text} if self.chance.random() < 0.7 else {}
        if mode == "REBREAKDOWN":
            first = 20 * number
            known = self.state.tasks
            return done, tasks(
                self.chance, range(first, first + 2), number, known
            ) if self.chance.random() < 0.5 else {}
        if mode == "REBREAKDOWN_TASK":
            parent = work.prompt.text.split("TASK_ID: ")[1].split("\n")[0]
            text = TASK.replace("{type}", "Parallelizable").replace("{file}", "src/new.py")
            needed = {n: self.chance.choice(("", parent, f"{parent}.{n - 1}", *self.state.tasks)) for n in (2, 3)}
            return done, {
                f"tasks/{parent}.{n}.md": text.format(id=f"{parent}.{n}", needed=needed.get(n, "")) for n in (1, 2, 3)
            }
        if mode == "research":
            told = self.chance.choice(("Answered", "Research Needed"))
            asked = {name: text for name, text in work.inbox.items() if name.startswith("questions/")}
            return done, {name: text.replace("Unanswered", told) for name, text in asked.items()}
        if work.role == "questioner":
            status = self.chance.choice(("Answered", "Unanswered", ""))
            if not status:
                return {**done, "no_questions": True}, {}
            text = f"## Cycle 1\n\n### Question 1\n- **ID**: Q-TECH-001\n- **Priority**: High\n- **Status**: {status}\n"
            return done, {work.outputs[0].replace("*", "technical"): text}
        if work.role == "executor":
            met = self.chance.random() < 0.8
            return {**done, "success_criteria_met": met, "status": "completed" if met else "failed"}, {
                "report.md": "### R\n"
            }
        if mode == "TASK_REVIEW":
            return {**done, "verdict": self.chance.choice(("Qualified", "Qualified", "Failed"))}, {
                "review.md": "### S\n"
            }
        if mode == "EXTRACT":
            return done, {"knowledge/how-to/x.md": "# X\n\n## Y\nz\n"} if self.chance.random() < 0.5 else {}
        assessment = self.chance.choice(("Complete", "Gaps Identified"))
        return {**done, "assessment": assessment}, {"review.md": "# Session Review - Iteration 1\n"}


def _json(data: Mapping[str, Any]) -> str:
    import json

    return json.dumps(data)


def seeds(most: int, quick: int) -> list[Any]:
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, most))]


@pytest.mark.more_are_slow(8)
@pytest.mark.parametrize("seed", seeds(300, 20))
def test_whatever_the_roles_do_a_session_ends_and_every_edge_is_legal(seed: int) -> None:
    chance = random.Random(seed)
    driver = Driver(session(("all",) if seed % 3 else (), by_waves=seed % 2 == 0), chance, kill=seed % 4 == 0)
    stop = driver.run()
    assert stop.outcome in (Outcome.SUCCESS, Outcome.AWAITING_FEEDBACK, Outcome.BLOCKED)
    assert driver.state.state is State.COMPLETE or stop.outcome is Outcome.BLOCKED
    open = {name for name in driver.state.tasks if driver.state.marker(name) is Marker.TODO}
    assert stop.outcome is Outcome.BLOCKED or open <= driver.state.graph.blocked.keys(), "what waits says for what"
    done = [name for name in driver.state.tasks if driver.state.marker(name) is Marker.DONE]
    assert sorted({name.rpartition("/")[0].replace("_", ".") for name in driver.merged}) == sorted(done)
    if stop.outcome is Outcome.SUCCESS:
        over = (Marker.DONE, Marker.CANCELLED)
        assert all(driver.state.marker(name) in over for name in driver.state.tasks)


@pytest.mark.more_are_slow(2)
@pytest.mark.parametrize("seed", seeds(80, 6))
def test_feedback_begins_another_iteration_with_planning(seed: int) -> None:
    driver = Driver(session(), random.Random(seed), kill=True)
    assert driver.run().outcome is not Outcome.BLOCKED
    path = driver.rules.settings.layout.feedback(2, "20261116-100000")
    driver.documents[path] = "---\niteration: 2\n---\n# Feedback\n\n## Critical Issues\n- [ ] **ISS-001**: no\n"
    driver.take(DocumentEdited(path, driver.documents[path]))
    assert (driver.state.state, driver.state.metadata.iteration) == (State.REPLANNING, 2)
    before = len(driver.keys)
    driver.run()
    roles = [key.split(":")[1].split("@")[0] for key in driver.keys[before:] if key.startswith("plan:")]
    steps = list(dict.fromkeys(roles))
    # Without questions, nobody is asked to answer any.
    assert steps[:2] == ["plan-rebrainstorm", "plan-reresearch"] or not driver.asked_open_questions(2)
    assert [step for step in steps if step != "plan-reresearch"] == [
        "plan-rebrainstorm",
        "plan-update",
        "plan-rebreakdown",
    ]
    assert driver.rules.settings.layout.plan_copy(1) in driver.documents
    driver.take(DocumentEdited(path, driver.documents[path]))
    assert driver.state.metadata.iteration == 2, "the same feedback counts once"


def test_a_resumed_session_is_in_progress_again_when_a_merge_is_its_first_result() -> None:
    driver = Driver(session(), random.Random(2))
    while True:
        decision = driver.rules.decide(driver.state, driver.now)
        assert isinstance(decision, Do)
        driver.start(decision.work)
        merge = next((work for work in decision.work if isinstance(work, Merge)), None)
        review = next(
            (work for work in decision.work if isinstance(work, TurnRequest) and work.role == "reviewer"), None
        )
        if merge and review:
            break
        driver.take(driver.answer(next((work for work in decision.work if work is not merge), decision.work[0])))
    no_verdict = {"status": "blocked", "blockers": ["boom"]}
    blocked = TurnResult(TurnEnd.FINISHED, driver.now, driver.now + 1, answer=no_verdict)
    driver.take(TurnEnded(review.key, 99, review.role, 1, blocked))
    driver.take(RunEnded(Outcome.BLOCKED, "boom", Spent(), Limits()))
    assert driver.state.metadata.status is Status.BLOCKED
    driver.state = driver.rules.load(driver.documents)
    driver.take(MergeEnded(merge.key, merge.worktree, MergeResult.MERGED, "ralph/x", "abc"))
    assert (driver.state.metadata.status, driver.state.flow.stop_reason) == (Status.IN_PROGRESS, "")


def test_a_rebuilt_flow_knows_that_a_part_of_a_split_task_was_merged() -> None:
    merge = MergeEnded("merge-task-4_1-1-1", "task-4_1/1", MergeResult.MERGED, "ralph/x", "abc")
    assert rebuild_flow([merge]).finished == ("task-4.1",)
