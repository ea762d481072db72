"""The rules of classic sessions, driven by roles that do anything: many sessions without a process."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_session_rules import turn_starts, with_settings

from ralph.core.checks import Check, CheckResult, CheckStatus, Verdict
from ralph.core.events import (
    ChecksEnded,
    Do,
    DocumentEdited,
    Event,
    RunChecks,
    RunEnded,
    Stop,
    TaskState,
    TurnEnded,
    TurnStarted,
    Work,
)
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.turns import Change, TurnEnd, TurnRequest, TurnResult
from ralph.documents import answers
from ralph.documents.session.layout import ClassicLayout
from ralph.documents.session.progress import Marker, is_legal_change
from ralph.documents.session.reports import ReviewVerdict as Judgement
from ralph.documents.session.reports import parse_report
from ralph.workflows.session.iterations import count_review_rounds, reviews
from ralph.workflows.session.rules import Session
from ralph.workflows.session.state import Roles, SessionSettings, SessionState, Step

# Written out: a test that imports what it checks cannot fail.
MAX_REVIEWS = 3

ID = "261116-093000"
HOME = f".ralph-sessions/{ID}"
NOW = 1_800_000_000.0
ROLES = Roles({name: f"# {name}\n" for name in ("planner", "questioner", "executor", "reviewer", "classic")}, "")
PLAN = "# Plan\n\n## Goal & Success Criteria\nDo it\n\n- it is done\n"
EDGES = {
    ("INITIALIZING", "PLANNING"),
    ("PLANNING", "EXECUTING"),
    ("EXECUTING", "REVIEWING"),
    ("REVIEWING", "EXECUTING"),
    ("EXECUTING", "COMPLETE"),
    ("REVIEWING", "COMPLETE"),  # the last task is done, and EXECUTING is passed in the same step
    ("COMPLETE", "EXECUTING"),
    ("COMPLETE", "PLANNING"),
    ("EXECUTING", "PLANNING"),
    ("REVIEWING", "PLANNING"),
}


def commands(text: str) -> tuple[Check, ...]:
    return (Check(text.split("`")[1]),) if text.startswith("`") else ()


def where(state: SessionState) -> str:
    """The state as a classic session shows it."""
    return state.layout.state_names.get(state.state, state.state)


def own(state: SessionState) -> dict[str, str]:
    """The documents of the session itself."""
    return {path: text for path, text in state.texts.items() if path.startswith(HOME)}


def first(state: SessionState, marker: Marker) -> str:
    return next((id for id in state.tasks if state.marker(id) is marker), "")


def rules(*checks: str) -> Session:
    compiled = tuple(Check(one) for one in checks)
    return Session(SessionSettings(ID, "Build it", ClassicLayout.of(ID), compiled, commands, ROLES))


def entry(number: int, inherits: str = "None", criterion: str = "") -> str:
    criterion = criterion or f"`check {number}` passes"
    return (
        f"- task-{number}: Make {number}\n    - **Files**: {number}.txt\n    - **Objective**: make it\n"
        f"    - **Success Criteria**:\n        - {criterion}\n    - **Inherits From**: {inherits}\n"
    )


class Driver:
    """An engine that does one thing after the other; what is asked for happens, with any result."""

    def __init__(self, workflow: Session, chance: random.Random, *, kill: bool = False, lose: bool = False) -> None:
        self.rules, self.chance, self.kill, self.lose = workflow, chance, kill, lose
        self.documents: dict[str, str] = {}
        self.state: SessionState = workflow.load({})
        self.now, self.turns, self.cuts = NOW, 0, False
        self.keys: list[str] = []
        self.tree = 0
        """Which tree there is: whoever changes it makes another."""
        self.passed: dict[str, int] = {}
        """The tree on which checks passed last, by their key."""
        self.requests: list[TurnRequest] = []
        self.changed_tasks: list[tuple[str, TaskState]] = []

    def run(self, most: int = 500) -> Stop:
        for _ in range(most):
            decision = self.rules.decide(self.state, self.now)
            if isinstance(decision, Stop):
                return decision
            [work] = decision.work
            self.start(decision.work)
            self.take(self.answer(work))
        raise AssertionError("the session does not come to an end")

    def start(self, works: tuple[Work, ...]) -> None:
        for started in turn_starts(self.state, works):
            self.take(started)

    def take(self, event: Event) -> None:
        self.now += 1
        before = self.state
        transition = self.rules.accept(before, event, self.now)
        assert transition.state == self.rules.accept(before, event, self.now).state
        self.documents.update(transition.documents)
        self.changed_tasks += [(one.task, one.state) for one in transition.tasks]
        self.state = transition.state
        self.see(before)
        if self.kill and self.chance.random() < 0.3:
            self.die()

    def die(self) -> None:
        """The engine dies; `lose` takes its own directory with it."""
        if self.lose:
            self.documents = {path: text for path, text in self.documents.items() if path.startswith(".ralph-sessions")}
        self.tree += self.chance.random() < 0.3  # a person may change something meanwhile
        state = self.rules.load(self.documents)
        assert own(state) == own(self.state)
        assert where(state) == where(self.state)
        flow = self.state.flow
        self.state = state.with_flow(
            stop_reason=flow.stop_reason, is_pause=flow.is_pause, run_has_ended=flow.run_has_ended
        )

    def see(self, before: SessionState) -> None:
        after = self.state
        for id in before.tasks:
            old, new = before.marker(id), after.marker(id)
            again = (old, new) in ((Marker.PENDING, Marker.WIP), (Marker.FAILED, Marker.WIP), (Marker.WIP, Marker.WIP))
            assert is_legal_change(old, new, retries_as_todo=True) or again, (id, old, new)
            if new is Marker.WIP and old is not Marker.WIP:
                assert all(after.marker(one) is Marker.DONE for one in after.tasks[id].needs)
            if new is Marker.DONE and old is not Marker.DONE:
                key = f"check:{id}-{before.attempt(id)}"
                assert self.passed.get(key) == self.tree, "what is done was seen to hold, on this very tree"
            assert after.attempt(id) >= before.attempt(id) - (new is Marker.PENDING)
        assert sum(after.marker(id) in (Marker.WIP, Marker.PENDING) for id in after.tasks) <= 1, "one task at a time"
        for path, text in before.texts.items():
            if "-report" in path:
                assert after.texts[path].startswith(text.split("## PART 2")[0]), path
            if ".review" in path:
                assert after.texts[path] == text
        moved = (where(before), where(after))
        assert moved[0] == moved[1] or moved in EDGES, moved
        assert self.documents.get(f"{HOME}/progress.md", "") == after.texts.get(f"{HOME}/progress.md", "")

    def answer(self, work: Work) -> Event:
        self.keys.append(work.key)
        if isinstance(work, RunChecks):
            passes = self.chance.random() < 0.75
            status = CheckStatus.PASSED if passes else CheckStatus.FAILED
            found = tuple(CheckResult(check.title, status, 0.1, command=check.command) for check in work.checks)
            self.passed[work.key] = self.tree if passes else -1
            return ChecksEnded(work.key, Verdict(found))
        assert isinstance(work, TurnRequest)
        self.turns += 1
        self.requests.append(work)
        return TurnEnded(work.key, self.turns, work.role, 1, self.turn(work))

    def turn(self, work: TurnRequest) -> TurnResult:
        change = Change("s", 1) if work.role == "executor" or self.chance.random() < 0.2 else None
        self.tree += change is not None
        result = TurnResult(TurnEnd.FINISHED, self.now, self.now + 1, change=change)
        if self.cuts and self.chance.random() < 0.05:
            return replace(result, end=self.chance.choice((TurnEnd.CUT, TurnEnd.UNAVAILABLE, TurnEnd.INTERRUPTED)))
        if work.role == "executor" and self.chance.random() < 0.1:
            return replace(result, end=self.chance.choice((TurnEnd.WALL, TurnEnd.FAILED)), error="boom")
        answer, documents = self.content(work)
        fixed, errors = answers.parse_answer(work.answer_schema, json.dumps(answer))
        assert fixed is not None and not errors, errors
        assert answers.find_answer_faults(work.answer_schema, fixed, documents, work.inbox) == ()
        return replace(result, answer=fixed, documents=documents)

    def content(self, work: TurnRequest) -> tuple[dict[str, Any], Mapping[str, str]]:
        mode = work.prompt.text.split("MODE: ")[1].split("\n")[0] if "MODE: " in work.prompt.text else ""
        done: dict[str, Any] = {"status": "completed", "summary": "done"}
        last = len(self.state.tasks)
        if mode == "INITIALIZE":
            return done, {"plan.md": PLAN}
        if work.role == "questioner":
            cycle = work.prompt.text.split("CYCLE: ")[1].split("\n")[0]
            status = self.chance.choice(("Answered", "Unanswered", ""))
            old = work.inbox.get("plan.questions.md", "")
            if mode == "research":
                told = self.chance.choice(("Answered", "Research Needed"))
                return done, {"plan.questions.md": old.replace("Unanswered", told)}
            if not status:
                return {**done, "no_questions": True}, {}
            asked = f"### Question 1\n- **ID**: Q-TECH-{cycle}\n- **Priority**: High\n- **Status**: {status}\n"
            return done, {"plan.questions.md": f"{old}\n## Cycle {cycle}\n\n{asked}"}
        if mode in ("TASK_BREAKDOWN", "UPDATE"):
            more = range(last + 1, last + 1 + self.chance.randint(1, 4))
            text = "".join(entry(n, self.chance.choice(("None", f"task-{n - 1}")) if n > 1 else "None") for n in more)
            return done, {"tasks.md": text, **({"plan.md": PLAN} if mode == "UPDATE" else {})}
        if work.role == "executor":
            met = self.chance.random() < 0.8
            told = {"success_criteria_met": met, "status": "completed" if met else "failed"}
            return {**done, **told}, {"report.md": "### R\n" + "## PART 2\n**Status**: Qualified\n" * (not met)}
        if mode == "TASK_REVIEW":
            verdict = self.chance.choice(("Qualified", "Qualified", "Failed"))
            return {**done, "verdict": verdict}, {"review.md": "### S\n"}
        good = self.chance.random() < 0.4
        gaps = {} if good or self.chance.random() < 0.2 else {"tasks.md": entry(last + 1, f"task-1 to {last}")}
        told = {"assessment": "Complete" if good else "Gaps Identified"}
        return {**done, **told}, {"review.md": "# Session Review\n", **gaps}


def seeds(most: int, quick: int) -> list[Any]:
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, most))]


@pytest.mark.more_are_slow(8)
@pytest.mark.parametrize("seed", seeds(400, 20))
def test_whatever_the_roles_do_it_ends_and_every_edge_is_legal(seed: int) -> None:
    workflow = rules("all") if seed % 3 else rules()
    driver = Driver(workflow, random.Random(seed), kill=seed % 2 == 0, lose=seed % 4 == 0)
    driver.cuts = seed % 5 == 0
    stop = driver.run()
    state = driver.state
    assert stop.outcome in (Outcome.SUCCESS, Outcome.AWAITING_FEEDBACK)
    if stop.outcome is Outcome.SUCCESS:
        assert where(state) == "COMPLETE"
        assert all(state.marker(id) is Marker.DONE for id in state.tasks)
    for id in state.tasks:
        found = state.reports(id)
        assert list(found) == list(range(1, len(found) + 1)), "no number is left out or used twice"
        assert len(found) <= state.limits.rework_attempts
        if state.marker(id) is Marker.DONE:
            assert found[max(found)].verdict is Judgement.QUALIFIED
    assert len(reviews(state)) <= MAX_REVIEWS
    last = f"review:session-{MAX_REVIEWS}"
    if last in driver.keys:
        assert not [key for key in driver.keys[driver.keys.index(last) :] if key.startswith("execute")]
    if stop.outcome is Outcome.SUCCESS and workflow.settings.checks:
        assert driver.passed[f"session-{reviews(state)[-1].number}"] == driver.tree


@pytest.mark.parametrize("seed", seeds(100, 5))
def test_new_requirements_are_planned_and_done(seed: int) -> None:
    driver = Driver(rules(), random.Random(seed), kill=True, lose=seed % 2 == 0)
    driver.run()
    before = len(driver.state.tasks)
    path = f"{HOME}/plan.update1.md"
    driver.documents[path] = "And a fifth one.\n"
    driver.take(DocumentEdited(path, driver.documents[path]))
    assert where(driver.state) == "PLANNING"
    driver.run()
    assert len(driver.state.tasks) > before
    assert driver.keys.count("plan:plan-update-1") == 1
    assert driver.documents[f"{HOME}/plan.iteration-1.md"] == PLAN
    driver.take(DocumentEdited(path, driver.documents[path]))
    assert driver.state.marker("plan-update-1") is Marker.DONE, "the same requirement counts once"


@pytest.mark.parametrize("seed", seeds(6, 2))
def test_killed_anywhere_it_comes_to_the_same_end(seed: int) -> None:
    """Roles that answer by what they are asked alone, so that only the engine's death can make a difference."""

    class Steady(Driver):
        def answer(self, work: Work) -> Event:
            self.chance.seed(f"{seed} {work.key}")
            return super().answer(work)

    ends = []
    for kill, lose in ((False, False), (True, False), (True, True)):
        death = random.Random(seed)
        driver = Steady(rules("all"), random.Random(seed))
        driver.kill = False
        for _ in range(500):
            decision = driver.rules.decide(driver.state, driver.now)
            if isinstance(decision, Stop):
                break
            driver.start(decision.work)
            driver.take(driver.answer(decision.work[0]))
            driver.lose = lose
            if kill and death.random() < 0.4:
                driver.die()
        tasks = {id: (driver.state.marker(id), driver.state.attempt(id)) for id in driver.state.tasks}
        ends.append((decision, tasks, sorted(own(driver.state))))
    assert ends[0] == ends[1] == ends[2]


def test_an_abort_leaves_nothing_that_looks_as_if_it_were_in_progress() -> None:
    driver = Driver(rules(), random.Random(3))
    while not (task := first(driver.state, Marker.WIP)):
        decision = driver.rules.decide(driver.state, driver.now)
        assert isinstance(decision, Do)
        driver.start(decision.work)
        if not first(driver.state, Marker.WIP):
            driver.take(driver.answer(decision.work[0]))
    driver.take(RunEnded(Outcome.ABORTED, "", Spent(), Limits()))
    assert driver.state.marker(task) is Marker.FAILED
    assert not first(driver.state, Marker.WIP), "no other task begins either"
    assert f"- [F] {task} (Failed, Aborted by signal: " in driver.documents[f"{HOME}/progress.md"]


MARKERS = st.sampled_from(list(Marker))


@given(st.lists(MARKERS, max_size=4), st.lists(MARKERS, max_size=5))
def test_the_state_follows_from_the_markers_in_the_order_of_the_rules(
    planning: list[Marker], work: list[Marker]
) -> None:
    lines = [f"- [{marker}] plan-{n}\n" for n, marker in enumerate(planning)]
    lines += [f"- [{marker}] task-{n}\n" for n, marker in enumerate(work)]
    files = {"plan.md": PLAN, "tasks.md": "".join(entry(n) for n in range(len(work))), "progress.md": "".join(lines)}
    state = where(rules().load({f"{HOME}/{name}": text for name, text in files.items()}))
    over = (Marker.DONE, Marker.CANCELLED)
    if Marker.PENDING in work:
        assert state == "REVIEWING"
    elif any(marker not in over for marker in planning) or not lines:
        assert state == "PLANNING"
    elif all(marker in over for marker in work):
        assert state == "COMPLETE"
    else:
        assert state == "EXECUTING"


def told(files: Mapping[str, str]) -> tuple[Session, SessionState]:
    workflow = rules()
    state = workflow.load({f"{HOME}/{name}": text for name, text in files.items()})
    return workflow, workflow.accept(state, DocumentEdited(f"{HOME}/plan.md", files.get("plan.md", "")), NOW).state


REPORT = "# Task Report: task-1\n\n## PART 1: IMPLEMENTATION REPORT\n{0}\n\n## PART 2: REVIEW REPORT\n{1}\n"


def test_interrupted_turn_does_not_use_up_an_attempt() -> None:
    workflow, state = told({"plan.md": PLAN, "tasks.md": entry(1), "progress.md": "- [/] task-1 (In Progress)\n"})
    for end in (TurnEnd.CUT, TurnEnd.UNAVAILABLE, TurnEnd.INTERRUPTED):
        ended = TurnEnded("execute:task-1-1", 1, "executor", 1, TurnResult(end, NOW, NOW))
        assert workflow.accept(state, ended, NOW).state == state


def test_requests_of_the_user_are_shown_before_they_are_accepted() -> None:
    files = {"plan.md": PLAN, "tasks.md": entry(1), "progress.md": "- [x] task-1\n", "plan.update1.md": "More\n"}
    documents = {f"{HOME}/{name}": text for name, text in files.items()}
    assert where(rules().load(documents)) == "PLANNING"
    documents[f"{HOME}/progress.md"] = "- [/] task-1\n"
    assert where(rules().load(documents)) == "EXECUTING", "what is in progress is finished first"


def test_roles_of_others_work_on_a_copy_of_the_session() -> None:
    workflow = with_settings(rules(), roles=replace(ROLES, foreign=frozenset(("reviewer", "planner"))))
    files = {"plan.md": PLAN, "tasks.md": entry(1, criterion="x"), "progress.md": "- [P] task-1\n"}
    state = workflow.load({f"{HOME}/{name}": text for name, text in files.items()})
    [work] = workflow.decide(state, NOW).work  # type: ignore[union-attr]
    assert "SESSION_PATH: .ralph/turn/outbox/session/\n" in work.prompt.text
    assert work.drafts["session/progress.md"] == "- [P] task-1\n"
    assert work.draft_outputs == (("session/tasks.task-1-report.md", "review.md"),)
    [work] = workflow.decide(workflow.load({}), NOW).work  # type: ignore[union-attr]
    assert work.draft_outputs == (("session/plan.md", "plan.md"), ("session/tasks.md", "tasks.md"))


def test_an_executor_gets_the_latest_qualified_report_of_what_it_inherits_from() -> None:
    _, state = told(
        {
            "plan.md": PLAN,
            "tasks.md": entry(1) + entry(2) + entry(3, "task-1 to 2"),
            "progress.md": "- [x] task-1 (Completed)\n- [x] task-2 (Completed)\n- [ ] task-3 (Not Started)\n",
            "tasks.task-1-report.md": REPORT.format("first", "**Status**: Failed"),
            "tasks.task-1-report-r2.md": REPORT.format("second", "**Status**: Qualified"),
            "tasks.task-1-report-r3.md": REPORT.format("third", "**Status**: Failed"),
        }
    )
    assert state.flow_of("task-3").step is Step.EXECUTE
    work = rules().decide(state, NOW).work[0]  # type: ignore[union-attr]
    assert "second" in work.inbox["inherited/tasks.task-1-report.md"]
    assert "inherited/tasks.task-2-report.md" not in work.inbox
    assert "TASK_ID: task-3\nATTEMPT_NUMBER: 1\n" in work.prompt.text


def test_verdict_in_the_report_counts_and_a_failed_review_is_reworked() -> None:
    files = {"plan.md": PLAN, "tasks.md": entry(1, criterion="reads well"), "progress.md": "- [P] task-1\n"}
    workflow, state = told({**files, "tasks.task-1-report.md": REPORT.format("x", "**Status**: Qualified")})
    assert (state.marker("task-1"), where(state)) == (Marker.DONE, "COMPLETE")
    workflow, state = told({**files, "tasks.task-1-report-r4.md": REPORT.format("x", "**Status**: Failed")})
    assert state.marker("task-1") is Marker.FAILED, "it was tried often enough"
    assert workflow.decide(state, NOW) == Stop(Outcome.AWAITING_FEEDBACK, "failed: task-1")


def test_a_review_cannot_pass_what_the_engine_saw_fail() -> None:
    workflow = rules("all")
    files = {"plan.md": PLAN, "tasks.md": entry(1), "progress.md": "- [x] task-1\n"}
    state = workflow.load({f"{HOME}/{name}": text for name, text in files.items()})
    failed = CheckResult("all", CheckStatus.FAILED, 0.1)
    for key in ("baseline", "session-1"):
        state = workflow.accept(state, ChecksEnded(key, Verdict((failed,))), NOW).state
    answer = {"status": "completed", "assessment": "Complete"}
    documents = {"review.md": "# All is well\n", "tasks.md": entry(2)}
    result = TurnResult(TurnEnd.FINISHED, NOW, NOW, answer=answer, documents=documents)
    state = workflow.accept(state, TurnEnded("review:session-1", 1, "reviewer", 1, result), NOW).state
    assert (reviews(state)[-1].complete, where(state)) == (False, "EXECUTING")
    assert state.flow_of("task-2").step is Step.EXECUTE


def test_the_last_review_that_finds_gaps_leaves_them_to_the_user() -> None:
    gaps = "---\nassessment: Gaps Identified\ncovers: [task-0]\n---\n"
    reviews = {f"progress.review{number}.md": gaps for number in range(1, MAX_REVIEWS)}
    workflow, state = told({"plan.md": PLAN, "tasks.md": entry(1), "progress.md": "- [x] task-1\n", **reviews})
    answer = {"status": "completed", "assessment": "Gaps Identified"}
    found = "# Review\n\n## Gaps\n- **ISS-M-001**: no help text\n- [x] closed\n- 2\n- 3\n- 4\n"
    documents = {"tasks.md": entry(2), "review.md": found}
    result = TurnResult(TurnEnd.FINISHED, NOW, NOW, answer=answer, documents=documents)
    state = workflow.accept(state, TurnEnded(f"review:session-{MAX_REVIEWS}", 1, "reviewer", 1, result), NOW).state
    assert "task-2" not in state.tasks
    decided = workflow.decide(state, NOW)
    assert isinstance(decided, Stop) and decided.outcome is Outcome.AWAITING_FEEDBACK
    said = "review 3 found gaps that are left to you: ISS-M-001: no help text; 2; 3; and 1 more ("
    assert decided.reason.startswith(said) and decided.reason.endswith("/progress.review3.md)"), decided.reason


def test_after_an_update_the_tries_of_what_failed_are_counted_anew() -> None:
    failed = {f"tasks.task-1-report{n}.md": REPORT.format("x", "**Status**: Failed") for n in ("", "-r2", "-r3")}
    files = {
        "plan.md": PLAN,
        "tasks.md": entry(1),
        "progress.md": "- [F] task-1 (Failed)\n",
        "plan.update1.md": "More\n",
    }
    workflow, state = told({**files, **failed})
    done = TurnResult(TurnEnd.FINISHED, NOW, NOW, answer={"status": "completed"}, documents={"plan.md": PLAN})
    state = workflow.accept(state, TurnEnded("plan:plan-update-1", 1, "planner", 1, done), NOW).state
    bad = replace(done, answer={"status": "failed", "success_criteria_met": False})
    for attempt, marker in ((4, Marker.TODO), (5, Marker.TODO), (6, Marker.FAILED)):
        assert "from Attempt 4" in state.progress.items["task-1"].note
        state = workflow.accept(state, TurnEnded(f"execute:task-1-{attempt}", 1, "executor", 1, bad), NOW).state
        assert state.marker("task-1") is marker


def test_unfinished_task_with_a_report_is_reviewed() -> None:
    files = {"plan.md": PLAN, "tasks.md": entry(1), "progress.md": "- [/] task-1 (In Progress)\n"}
    assert where(told(files)[1]) == "EXECUTING"
    assert where(told({**files, "tasks.task-1-report.md": REPORT.format("done", "")})[1]) == "REVIEWING"


def test_edits_of_the_engines_documents_are_reverted() -> None:
    workflow, state = told({"plan.md": PLAN, "tasks.md": entry(1), "progress.md": "- [ ] task-1 (Not Started)\n"})
    for name in ("progress.md", "tasks.md", "plan.md"):
        path = f"{HOME}/{name}"
        transition = workflow.accept(state, DocumentEdited(path, "- [x] task-1\n"), NOW)
        assert transition.documents == {path: state.texts[path]}
        assert transition.state.texts == state.texts
    forged = f"{HOME}/progress.review1.md"
    transition = workflow.accept(state, DocumentEdited(forged, "## Overall Assessment\nComplete\n"), NOW)
    assert forged not in transition.state.texts and transition.documents == {forged: ""}
    assert not reviews(workflow.load({**state.texts, **transition.documents})), "nor does it count after a restart"
    assert workflow.accept(transition.state, DocumentEdited(forged, ""), NOW).documents == {}


@pytest.mark.parametrize(
    ("text", "told_of"),
    [
        (entry(1, "task-9"), "task-9, which does not exist"),
        (entry(1, "task-2") + entry(2, "task-1"), "wait for each other"),
    ],
)
def test_an_order_that_cannot_be_is_named(text: str, told_of: str) -> None:
    workflow, state = told({"plan.md": PLAN, "tasks.md": text, "progress.md": ""})
    stop = workflow.decide(state, NOW)
    assert isinstance(stop, Stop) and stop.outcome is Outcome.BLOCKED and told_of in stop.reason


def test_research_answers_the_cycle_that_was_asked_last() -> None:
    files = {"plan.md": PLAN, "plan.questions.md": "## Q&A Cycles\n\n### Cycle 1\n\n### Cycle 2\n"}
    files[f"{ID}.instructions.md"] = "- max_cycles: 3\n"
    open_ones = "- [x] plan-init\n- [{0}] plan-brainstorm\n- [ ] plan-research\n"
    for marker, words in (("x", "MODE: research\nCYCLE: 2\n"), (" ", "MODE: brainstorm\nCYCLE: 3\n")):
        workflow, state = told({**files, "progress.md": open_ones.format(marker)})
        assert words in workflow.decide(state, NOW).work[0].prompt.text  # type: ignore[union-attr]


def test_without_cycles_nothing_is_asked() -> None:
    files = {"plan.md": PLAN, "progress.md": "- [x] plan-init\n- [ ] plan-brainstorm\n- [ ] plan-research\n"}
    inner = {f"{ID}.instructions.md": "---\nplanning:\n  max_cycles: 0\n---\n"}
    _, state = told({**files, **inner})
    assert state.marker("plan-research") is Marker.DONE
    assert "max_cycles" in state.progress.items["plan-research"].note


def test_a_report_of_the_engine_can_be_read_again() -> None:
    driver = Driver(rules(), random.Random(1))
    driver.run()
    reports = [text for path, text in driver.documents.items() if "-report" in path]
    assert len(reports) >= len(driver.state.tasks)
    assert all(parse_report(text).verdict is not None for text in reports)


def test_tasks_begin_in_the_order_of_the_list() -> None:
    """The order of `progress.md` counts, not that of `tasks.md`, even if most tasks wait for a later one."""
    text = entry(1) + entry(2) + entry(3, "task-1") + entry(4, "task-3")
    progress = "".join(f"- [ ] task-{number}\n" for number in (2, 1, 3, 4))
    _, state = told({"plan.md": PLAN, "tasks.md": text, "progress.md": progress})
    assert [id for id in state.tasks if state.flow_of(id).step is Step.EXECUTE] == ["task-2"]


def test_reviews_are_counted_since_the_last_update() -> None:
    gaps = "---\nassessment: Gaps Identified\ncovers: [{0}]\n---\n"
    steps = "- [x] plan-update-1\n- [x] plan-update-2\n- [x] task-1\n"
    files = {
        "plan.md": PLAN,
        "tasks.md": entry(1),
        "progress.md": steps,
        "plan.update1.md": "a\n",
        "plan.update2.md": "b\n",
    }
    files["progress.review1.md"] = gaps.format("task-1, plan-update-1")
    files["progress.review2.md"] = gaps.format("task-1, plan-update-1, plan-update-2")
    assert count_review_rounds(rules().load({f"{HOME}/{name}": text for name, text in files.items()})) == 1


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({"progress.md": "- [ ] plan-init\n"}, "INITIALIZING"),
        ({"plan.md": PLAN, "progress.md": "- [ ] plan-init\n"}, "PLANNING"),
        ({"progress.md": "- [x] plan-init\n- [ ] plan-brainstorm\n"}, "PLANNING"),
    ],
)
def test_planning_has_begun_with_a_plan_or_after_its_first_step(files: dict[str, str], state: str) -> None:
    assert where(rules().load({f"{HOME}/{name}": text for name, text in files.items()})) == state


class _Sure(random.Random):
    def random(self) -> float:
        return 0.5

    def choice(self, options: Any) -> Any:
        return options[0]

    def randint(self, a: int, b: int) -> int:
        return a


def test_task_that_a_planner_changed_for_the_user_is_reported_as_done_in_the_end() -> None:
    class Steered(Driver):
        def turn(self, work: TurnRequest) -> TurnResult:
            if work.key != "execute:task-1-1":
                return super().turn(work)
            asked = {"status": "blocked", "blockers": ["STEER scope change: build B instead"]}
            return TurnResult(TurnEnd.FINISHED, self.now, self.now + 1, answer=asked)

    driver = Steered(rules(), _Sure())
    driver.run()
    states = [state for task, state in driver.changed_tasks if task == "task-1"]
    assert states == [TaskState.PLANNED, TaskState.RETRY, TaskState.PLANNED, TaskState.DONE]


def begun(**more: str) -> dict[str, str]:
    """The documents of a session that Ralph began, with task-1 in progress and other files as given."""
    workflow = rules()
    transition = workflow.accept(workflow.load({}), RunEnded(Outcome.PAUSED, "", Spent(), Limits()), NOW)
    files = {"plan.md": PLAN, "tasks.md": entry(1) + entry(2, "task-1"), "progress.md": "- [/] task-1\n- [ ] task-2\n"}
    files |= {name.replace("_", "."): text for name, text in more.items()}
    return {**transition.documents, **{f"{HOME}/{name}": text for name, text in files.items()}}


def test_task_that_the_user_marks_as_done_is_done_only_if_it_was_accepted() -> None:
    workflow, path = rules(), f"{HOME}/progress.md"
    documents = begun(progress_md="- [x] task-1\n- [x] task-2\n")
    state = workflow.load(documents)
    wanted = "progress.md marks {0} as done, but Ralph has not accepted it: it still has to be done. Mark it [C] to leave it out."
    assert state.notices == (wanted.format("task-1"), wanted.format("task-2"))
    assert state.flow_of("task-1").step is Step.EXECUTE and where(state) == "EXECUTING"
    transition = workflow.accept(state, DocumentEdited(f"{HOME}/plan.md", PLAN), NOW)
    assert "[x]" not in transition.documents[path] and transition.notices == state.notices


def test_task_in_progress_that_the_user_marks_as_done_continues() -> None:
    workflow, documents = rules(), begun()
    ended = RunEnded(Outcome.PAUSED, "", Spent(), Limits())
    documents |= workflow.accept(workflow.load(documents), ended, NOW).documents
    state = workflow.load(documents | {f"{HOME}/progress.md": "- [x] task-1\n- [ ] task-2\n"})
    assert (state.marker("task-1"), state.flow_of("task-1").step) == (Marker.WIP, Step.EXECUTE)
    assert "has not accepted it: Ralph continues with it." in state.notices[0]


def test_task_that_another_tool_finished_with_a_qualified_report_is_reviewed() -> None:
    files = {"tasks.task-1-report.md": REPORT.format("x", "**Status**: Qualified")}
    documents = begun(progress_md="- [x] task-1\n- [ ] task-2\n")
    state = rules().load(documents | {f"{HOME}/{name}": text for name, text in files.items()})
    assert (state.marker("task-1"), state.flow.finished) == (Marker.PENDING, ())
    assert "has not accepted it: it has a report, so Ralph checks and reviews it." in state.notices[0]


class Engine:
    """An engine that accepts events one after the other, and starts again from the documents."""

    def __init__(self, workflow: Session, documents: dict[str, str]) -> None:
        self.workflow, self.documents = workflow, documents
        self.state = workflow.load(documents)

    def take(self, event: Event) -> None:
        transition = self.workflow.accept(self.state, event, NOW)
        self.documents.update(transition.documents)
        self.state = transition.state

    def find_work(self) -> Work:
        decision = self.workflow.decide(self.state, NOW)
        assert isinstance(decision, Do)
        [work] = decision.work
        return work


def test_only_a_review_in_progress_is_asked_for_again_after_a_restart() -> None:
    documents = begun(progress_md="- [P] task-1\n- [ ] task-2\n")
    documents[f"{HOME}/tasks.task-1-report.md"] = REPORT.format("done", "")
    engine = Engine(rules(), documents)
    passed = Verdict((CheckResult("all", CheckStatus.PASSED, 0.1),))
    engine.take(ChecksEnded(engine.find_work().key, passed))
    review = engine.find_work()
    engine.take(TurnStarted(turn=1, key=review.key, role="reviewer", attempt=1, agent="a"))

    engine = Engine(rules(), documents)
    assert engine.find_work().key == review.key, "the checks that it has seen do not run before it"
    answer = {"status": "completed", "verdict": "Qualified"}
    result = TurnResult(TurnEnd.FINISHED, NOW, NOW, answer=answer, documents={"review.md": "### S\n"})
    engine.take(TurnEnded(review.key, 1, "reviewer", 1, result))
    checks = engine.find_work()
    assert isinstance(checks, RunChecks), "but they do before its verdict counts"

    assert Engine(rules(), documents).find_work() == checks, "the review has ended, and is paid for"
