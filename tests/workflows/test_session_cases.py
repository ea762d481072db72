"""Single cases of the rules of sessions: what blocks, what is put back, what is kept."""

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from test_session_rules import ID, NOW, PLAN, TASK, Driver, session

from ralph.core.checks import Check, CheckResult, CheckStatus, Evidence, Grade, Verdict
from ralph.core.events import ChecksEnded, Do, DocumentEdited, RunEnded, SignalAccepted, Stop, TurnEnded
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType, Stage
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.documents.session.metadata import State, parse_metadata
from ralph.documents.session.progress import Marker
from ralph.documents.session.reports import compose_report
from ralph.documents.session.values import render_timestamp as stamp
from ralph.workflows.session.rules import Session
from ralph.workflows.session.state import SessionState, Step

TASKS = {
    f"tasks/task-{n}.md": TASK.format(id=f"task-{n}", type="Parallelizable", file=f"{n}.py", needed=needed)
    for n, needed in ((1, ""), (2, ""), (3, "task-1"))
}


class Steady(Driver):
    """Does what is asked for, one after the other, and well, unless a case says otherwise."""

    def __init__(self, rules: Session, **says: dict[str, Any]) -> None:
        super().__init__(rules, random.Random(0))
        self.says = says
        self.asked: list[TurnRequest] = []

    def until(self, state: State) -> "Steady":
        for _ in range(200):
            if self.state.state is state:
                decision = self.rules.decide(self.state, self.now)
                self.start(decision.work if isinstance(decision, Do) else ())
                return self
            self.next()
        raise AssertionError(f"it does not come to {state}")

    def next(self, role: str = "") -> None:
        decision = self.rules.decide(self.state, self.now)
        assert isinstance(decision, Do), decision
        self.start(decision.work)
        work = next(one for one in decision.work if not role or getattr(one, "role", "") == role)
        self.take(self.answer(work))

    def verdict(self, checks: tuple[Check, ...]) -> Any:
        self.chance = _Low()
        return super().verdict(checks)

    def turn(self, work: TurnRequest) -> TurnResult:
        self.asked.append(work)
        self.chance = _Low()
        result = TurnResult(TurnEnd.FINISHED, self.now, self.now + 1)
        if said := self.says.get(work.key.replace(":", "_").replace("-", "_").replace("@", "_").replace(".", "_")):
            return replace(result, **said)
        if "MODE: TASK_BREAKDOWN" in work.prompt.text:
            return replace(result, answer={"status": "completed"}, documents=TASKS)
        if work.role == "executor":
            done = {"status": "completed", "success_criteria_met": True}
            return replace(result, answer=done, documents={"report.md": "### R\n"})
        if work.answer_schema == "session.reviewer":
            return replace(result, answer={"status": "completed", "verdict": "Qualified"})
        if work.answer_schema == "session.review":
            return replace(
                result, answer={"status": "completed", "assessment": "Complete"}, documents={"review.md": "x"}
            )
        answer, documents = self.content(work)
        return replace(result, answer=answer, documents=documents)

    def ended(self, outcome: Outcome) -> None:
        self.take(RunEnded(outcome, "", Spent(), Limits()))


class _Low(random.Random):
    def random(self) -> float:
        return 0.5

    def choice(self, options: Any) -> Any:
        return options[0]


def stop_of(driver: Driver) -> Stop:
    decision = driver.rules.decide(driver.state, driver.now)
    assert isinstance(decision, Stop), decision
    return decision


def test_a_session_runs_to_its_end() -> None:
    driver = Steady(session()).until(State.COMPLETE)
    assert stop_of(driver).outcome is Outcome.SUCCESS
    assert driver.state.iteration.planning_tasks == dict.fromkeys(
        ("plan-init", "plan-brainstorm", "plan-breakdown"), "completed"
    )
    assert driver.state.marker("plan-research") is Marker.CANCELLED, "no question was open"
    assert not driver.state.flow.tasks, "nothing is kept of what is done"


@pytest.mark.parametrize(("status", "outcome"), [("blocked", Outcome.BLOCKED), ("paused", Outcome.PAUSED)])
def test_blocked_turn_is_asked_again_after_a_resume(status: str, outcome: Outcome) -> None:
    answer = {"status": status, "blockers": ["no database"]}
    driver = Steady(session(), plan_plan_init_1={"answer": answer})
    driver.next()
    stop = stop_of(driver)
    assert (stop.outcome, "no database" in stop.reason) == (outcome, True)
    driver.ended(outcome)
    assert driver.state.metadata.status == ("blocked" if status == "blocked" else "in_progress")
    driver.state = driver.rules.load(driver.documents)
    driver.says = {}
    driver.until(State.COMPLETE)
    assert driver.state.metadata.status == "completed"


BUILD_B = {"status": "blocked", "blockers": ["STEER scope change: build B instead"]}


@pytest.mark.parametrize(
    ("key", "then"),
    [
        ("plan:plan-init@1", "plan:plan-init@1"),
        ("plan:plan-brainstorm@1.1.technical", "plan:plan-init@1"),
        ("plan:plan-breakdown@1", "plan:plan-init@1"),
        ("review:session-1.0", "critique:1.1"),
    ],
)
def test_scope_change_during_planning_or_the_session_review_has_a_planner_plan_again(key: str, then: str) -> None:
    driver = Steady(session(), **{_name_case(key): {"answer": BUILD_B}})
    while key not in driver.keys:
        driver.next()
    driver.says = {}
    before = len(driver.keys)
    driver.until(State.COMPLETE)
    assert [one for one in driver.keys[before:] if one.startswith(("plan:plan-init", "critique"))][:1] == [then]
    assert driver.state.metadata.status == "completed"
    planner = next(one for one in driver.asked[::-1] if one.key == then)
    assert planner.role == "planner"
    if then.startswith("critique"):
        assert "build B instead" in planner.inbox["review.md"]


@pytest.mark.parametrize("key", ["plan:plan-init@1", "plan:plan-breakdown@1", "plan:plan-brainstorm@1.1.technical"])
def test_scope_change_that_planning_again_does_not_settle_is_for_the_user(key: str) -> None:
    driver = Steady(session(), **{_name_case(key): {"answer": BUILD_B}})
    while isinstance(driver.rules.decide(driver.state, driver.now), Do):
        driver.next()
    stop = stop_of(driver)
    assert (stop.outcome, "build B instead; say what is wanted: ralph resume" in stop.reason) == (Outcome.PAUSED, True)
    assert driver.keys.count(key) == 3
    driver.ended(Outcome.PAUSED)
    driver.says = {}
    driver.until(State.COMPLETE)


def test_scope_change_while_replanning_leads_to_an_update_of_the_plan() -> None:
    key = "plan:plan-rebrainstorm@2"
    driver = Steady(session(), **{_name_case(key): {"answer": BUILD_B}}).until(State.COMPLETE)
    path = driver.rules.settings.layout.feedback(2, "20261116-070000")
    driver.documents[path] = "---\niteration: 2\n---\n# Feedback\n\n- more\n"
    driver.take(DocumentEdited(path, driver.documents[path]))
    assert driver.state.state is State.REPLANNING
    driver.until(State.COMPLETE)
    later = driver.keys[driver.keys.index(key) :]
    assert later[:3] == [key, "plan:plan-update@2", "plan:plan-rebreakdown@2"]
    assert (
        "plan-rebrainstorm (the user asked for something else)"
        in driver.documents[driver.rules.settings.layout.progress(2)]
    )


def _name_case(key: str) -> str:
    """How a case of `Steady` names the work."""
    return re.sub(r"[:@.-]", "_", key)


@pytest.mark.parametrize("end", [TurnEnd.CUT, TurnEnd.UNAVAILABLE])
def test_a_turn_that_a_limit_cut_short_says_nothing_of_the_work(end: TurnEnd) -> None:
    driver = Steady(session(), execute_task_1_1={"end": end, "error": "the budget was used"})
    driver.until(State.EXECUTING_BATCH)
    driver.next("executor")
    assert (driver.state.marker("task-1"), driver.state.flow_of("task-1").step) == (Marker.WIP, Step.EXECUTE)
    driver.says = {}
    driver.until(State.COMPLETE)
    assert driver.state.attempt("task-1") == 1


def test_others_finish_where_one_pauses() -> None:
    driver = Steady(session(), execute_task_1_1={"answer": {"status": "paused", "blockers": ["told to stop"]}})
    driver.until(State.EXECUTING_BATCH)
    driver.next("executor")
    assert driver.state.flow_of("task-1").waits_for_resume
    while isinstance(driver.rules.decide(driver.state, driver.now), Do):
        driver.next()
    assert driver.state.marker("task-2") is Marker.DONE
    assert driver.state.flow_of("task-1").step is Step.EXECUTE
    assert stop_of(driver).outcome is Outcome.PAUSED
    driver.ended(Outcome.PAUSED)
    driver.says = {}
    driver.until(State.COMPLETE)
    assert driver.state.attempt("task-1") == 1, "a pause is no attempt"


def test_questions_of_several_categories_are_asked_at_once_each_in_a_tree_of_its_own() -> None:
    driver = Steady(session()).until(State.PLANNING)
    decision = driver.rules.decide(driver.state, NOW)
    assert isinstance(decision, Do)
    places = [work.worktree for work in decision.work if isinstance(work, TurnRequest)]
    assert places == ["look/1", "look/2", "look/3"]
    assert [work.key.rpartition(".")[2] for work in decision.work] == ["technical", "requirements", "constraints"]
    driver.take(driver.answer(decision.work[1]))
    decision = driver.rules.decide(driver.state, NOW)
    assert isinstance(decision, Do)
    assert [work.key.rpartition(".")[2] for work in decision.work] == ["technical", "constraints", "risks"]


def test_without_cycles_there_are_no_questions() -> None:
    documents = {"plan.md": PLAN, "instructions.md": "---\nplanning: {max_cycles: 0}\n---\n"}
    driver = Steady(session(), plan_plan_init_1={"answer": {"status": "completed"}, "documents": documents})
    driver.until(State.COMPLETE)
    assert not [one for one in driver.asked if one.role == "questioner"]
    assert driver.state.marker("plan-brainstorm") is Marker.CANCELLED


def test_earlier_questions_are_never_lost() -> None:
    first = "## Cycle 1\n\n### Question 1\n- **ID**: Q-TECH-001\n- **Priority**: High\n- **Status**: Unanswered\n"
    second = first.replace("001", "002").replace("Unanswered", "Answered")
    key = "plan_plan_brainstorm_1_1_technical"
    said = {"answer": {"status": "completed"}, "documents": {"questions/technical.md": first}}
    again = {"answer": {"status": "completed"}, "documents": {"questions/technical.md": second}}
    driver = Steady(session(), **{key: said, "plan_plan_research_1_1_": again})
    driver.until(State.EXECUTING_BATCH)
    text = driver.documents[driver.rules.settings.layout.questions(1, "technical")]
    assert "Q-TECH-001" in text and "Q-TECH-002" in text


def feedback(driver: Driver, number: int, stamp: str = "20261116-100000") -> None:
    path = driver.rules.settings.layout.feedback(number, stamp)
    driver.documents[path] = "# Feedback\n\n## Critical Issues\n- [ ] **ISS-001**: no\n"
    driver.take(DocumentEdited(path, driver.documents[path]))


def test_feedback_about_the_iteration_in_progress_reaches_its_roles_and_begins_no_other() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    feedback(driver, 1)
    driver.next("executor")
    request = driver.asked[-1]
    assert "feedbacks/20261116-100000/feedbacks.md" in request.inbox
    assert request.copied_files == {
        "feedbacks/20261116-100000": f".ralph-sessions/{ID}/iterations/1/feedbacks/20261116-100000"
    }
    assert "FEEDBACK_CONTEXT: .ralph/turn/inbox/feedbacks/" in request.prompt.text
    driver.until(State.COMPLETE)
    assert driver.state.metadata.iteration == 1


def failing(driver: Steady, task: str) -> None:
    for attempt in (1, 2, 3):
        driver.says[f"execute_{task.replace('-', '_')}_{attempt}"] = {
            "answer": {"status": "failed", "success_criteria_met": False, "blockers": ["too hard"]}
        }


def test_iteration_begins_when_its_feedback_is_accepted() -> None:
    driver = Steady(session(), review_session_1_0={"answer": {"status": "completed", "assessment": "Gaps Identified"}})
    driver.until(State.COMPLETE)
    path = driver.rules.settings.layout.feedback(2, "2026-11-16T16:30 by hand")
    driver.documents[path] = "# Feedback\n"
    driver.state = driver.rules.load(driver.documents)
    driver.ended(Outcome.AWAITING_FEEDBACK)
    assert driver.state.state is State.COMPLETE, "what is journaled already is only replayed"
    driver.take(DocumentEdited(path, driver.documents[path]))
    assert driver.state.state is State.REPLANNING
    assert driver.state.iteration.started_at == stamp(driver.now)
    assert driver.rules.settings.layout.iteration_metadata(2) in driver.documents


def test_a_task_that_is_defined_anew_keeps_what_it_was() -> None:
    driver = Steady(session())
    failing(driver, "task-2")
    driver.until(State.COMPLETE)
    stop = stop_of(driver)
    assert (stop.outcome, stop.reason) == (Outcome.AWAITING_FEEDBACK, "failed: task-2")
    feedback(driver, 2)
    new = TASKS["tasks/task-2.md"].replace("make it", "make less of it")
    changed = {"tasks/task-2.md": new, "tasks/task-1.md": TASKS["tasks/task-1.md"].replace("make it", "no")}
    driver.says = {"plan_plan_rebreakdown_2": {"answer": {"status": "completed"}, "documents": changed}}
    driver.until(State.COMPLETE)
    layout = driver.rules.settings.layout
    assert driver.documents[layout.old_task(2, "task-2")] == TASKS["tasks/task-2.md"]
    assert driver.documents[layout.task(2, "task-2")] == new
    assert driver.documents[layout.task(2, "task-1")] == TASKS["tasks/task-1.md"], (
        "what is done stays as it was defined"
    )
    assert driver.state.attempt("task-2") == 4
    assert layout.report(2, "task-2", 4) in driver.documents


def test_task_that_depends_on_a_failed_task_is_blocked_and_named() -> None:
    driver = Steady(session())
    failing(driver, "task-1")
    driver.until(State.COMPLETE)
    assert stop_of(driver).reason == "failed: task-1; blocked: task-3 (by task-1)"


@pytest.mark.parametrize(
    ("threshold", "gaps", "outcome"),
    [
        ("any", "## Issues\n- ISS-m-1: a typo\n", Outcome.AWAITING_FEEDBACK),
        ("critical", "## Issues\n- ISS-m-1: a typo\n", Outcome.SUCCESS),
        ("critical", "## Issues\n- ISS-C-1: it does not start\n", Outcome.AWAITING_FEEDBACK),
        ("critical", "It does not even start.\n", Outcome.AWAITING_FEEDBACK),
    ],
)
def test_gaps_with_a_severity_below_the_threshold_do_not_count(threshold: str, gaps: str, outcome: Outcome) -> None:
    limits = f"---\nsession_review: {{issue_severity_threshold: {threshold}, max_critique_cycles: 0}}\n---\n"
    review = f"# Session Review\n\n## Overall Assessment\nGaps Identified\n\n{gaps}"
    driver = Steady(
        session(),
        plan_plan_init_1={"answer": {"status": "completed"}, "documents": {"plan.md": PLAN, "instructions.md": limits}},
        review_session_1_0={
            "answer": {"status": "completed", "assessment": "Gaps Identified"},
            "documents": {"review.md": review},
        },
    )
    driver.until(State.COMPLETE)
    assert stop_of(driver).outcome is outcome


def test_undecided_knowledge_carries_over_to_the_next_iteration() -> None:
    limits = "---\nknowledge: {approval: signal}\n---\n"
    learned = {"knowledge/how-to/x.md": "# X\n\n## Y\nz\n"}
    driver = Steady(
        session(),
        plan_plan_init_1={"answer": {"status": "completed"}, "documents": {"plan.md": PLAN, "instructions.md": limits}},
        extract_1={"answer": {"status": "completed"}, "documents": learned},
    )
    driver.until(State.KNOWLEDGE_APPROVAL)
    assert stop_of(driver).outcome is Outcome.AWAITING_APPROVAL
    feedback(driver, 2)
    assert driver.state.state is State.REPLANNING
    assert "carried_from: 1" in driver.documents[driver.rules.settings.layout.knowledge(2, "how-to", "x.md")]


def test_documents_of_the_engine_are_put_back_and_said() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    layout = driver.rules.settings.layout
    for path in (layout.progress(1), layout.metadata, layout.task(1, "task-1")):
        before = driver.documents[path]
        transition = driver.rules.accept(driver.state, DocumentEdited(path, "# mine now\n"), driver.now)
        driver.state = transition.state
        assert transition.notices and path in transition.notices[0]
        if path != layout.metadata:
            assert transition.documents[path] == before
    driver.until(State.COMPLETE)


def test_instructions_that_cannot_be_read_are_said_and_the_old_ones_hold() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    bad = "---\nconcurrency: {max_parallel_executors: many}\n---\n"
    transition = driver.rules.accept(
        driver.state, DocumentEdited(driver.rules.settings.layout.instructions, bad), driver.now
    )
    assert transition.state.limits == driver.state.limits
    assert "max_parallel_executors" in transition.notices[0]


def loaded(driver: Driver, **texts: str) -> SessionState:
    return driver.rules.load({**driver.documents, **texts})


def test_markers_that_the_user_changed_while_it_was_stopped_count() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    path = driver.rules.settings.layout.progress(1)
    lines = driver.documents[path].split("\n")
    text = "\n".join("- [C] task-1" if "] task-1 " in line else line for line in lines)
    state = loaded(driver, **{path: text})
    assert state.flow_of("task-1").step is Step.REST
    assert state.graph.blocked == {"task-3": "task-1"}


def test_tasks_that_the_user_resets_after_the_end_are_done_again() -> None:
    failed = {"answer": {"status": "failed", "blockers": ["no database"]}}
    driver = Steady(session(), **{f"execute_task_1_{n}": failed for n in (1, 2, 3)}).until(State.COMPLETE)
    assert driver.state.marker("task-3") is Marker.TODO and stop_of(driver).outcome is Outcome.AWAITING_FEEDBACK
    driver.ended(Outcome.AWAITING_FEEDBACK)
    path = driver.rules.settings.layout.progress(1)
    driver.documents[path] = driver.documents[path].replace("- [F] task-1", "- [ ] task-1")
    driver.state, driver.says = driver.rules.load(driver.documents), {"execute_task_1_4": failed}
    driver.take(DocumentEdited(path, driver.documents[path]))
    assert driver.state.flow_of("task-1").step is Step.EXECUTE
    driver.until(State.COMPLETE)
    assert all(driver.state.marker(name) is Marker.DONE for name in driver.state.tasks), (
        "with as many attempts as at first"
    )
    assert stop_of(driver).outcome is Outcome.SUCCESS


def test_missing_engine_state_is_restored_from_markers_and_reports() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    del driver.documents[driver.rules.settings.flow_path]
    state = loaded(driver)
    assert (state.flow_of("task-1").step, state.flow_of("task-1").attempt) == (Step.EXECUTE, 1)
    report = compose_report("task-1", 1, 1, "2026-11-16T07:00:00Z", "### R\nDone.\n")
    state = loaded(driver, **{driver.rules.settings.layout.report(1, "task-1", 1): report})
    assert (state.marker("task-1"), state.flow_of("task-1").step) == (Marker.PENDING, Step.CHECK)


def test_a_task_without_a_file_has_failed_and_says_so() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    del driver.documents[driver.rules.settings.layout.task(1, "task-2")]
    state = loaded(driver)
    assert state.marker("task-2") is Marker.FAILED
    assert "Task definition missing" in state.progress.text


def test_roles_of_others_get_a_copy_of_the_session_and_own_their_part_of_it() -> None:
    rules = session()
    rules = replace(
        rules,
        settings=replace(
            rules.settings, roles=replace(rules.settings.roles, foreign=frozenset({"executor", "planner"}))
        ),
    )
    driver = Steady(rules).until(State.EXECUTING_BATCH)
    driver.next("executor")
    request = driver.asked[-1]
    assert "SESSION_PATH: .ralph/turn/outbox/session/" in request.prompt.text
    assert request.drafts["session/tasks/task-1.md"] == TASKS["tasks/task-1.md"]
    assert request.draft_outputs == (("session/reports/task-1-report.md", "report.md"),)
    planner = driver.asked[0]
    assert ("session/tasks/*.md", "tasks/") in planner.draft_outputs


def test_the_same_turn_twice_changes_nothing() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    decision = driver.rules.decide(driver.state, NOW)
    assert isinstance(decision, Do)
    event = driver.answer(decision.work[0])
    assert isinstance(event, TurnEnded)
    driver.take(event)
    once = driver.state
    assert driver.rules.accept(once, replace(event, key="execute:task-99-1"), NOW).state.progress == once.progress


@pytest.mark.parametrize(
    ("needed", "told"),
    [
        ("task-1", ""),
        ("task-3", "the tasks wait for each other"),
        ("task-99", "task-99, which does not exist"),
    ],
)
def test_parts_of_a_split_task_can_always_be_ordered(needed: str, told: str) -> None:
    parts = {
        f"tasks/task-1.{n}.md": TASK.format(id=f"task-1.{n}", type="Parallelizable", file=f"{n}.py", needed=needed)
        for n in (1, 2)
    }
    driver = Steady(
        session(by_waves=True),
        execute_task_1_1={"end": TurnEnd.FAILED, "error": "boom"},
        split_task_1_1={"answer": {"status": "completed"}, "documents": parts},
    ).until(State.COMPLETE)
    if told:
        [again] = [work for work in driver.asked if work.key == "execute:task-1-2"]
        assert told in again.inbox["why-it-failed.md"], "it is tried again as it was, and knows why"
        return
    assert driver.state.metadata.replaced == {"task-1": ("task-1.1", "task-1.2")}
    assert all(driver.state.marker(name) is Marker.DONE for name in ("task-1.1", "task-1.2", "task-3"))


def test_tasks_that_cannot_be_put_in_order_block_the_session_and_are_named() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    driver.ended(Outcome.PAUSED)
    path = driver.rules.settings.layout.task(1, "task-3")
    driver.documents[path] = TASKS["tasks/task-3.md"].replace("depends_on: [task-1]", "depends_on: [task-99]")
    state = driver.rules.load(driver.documents)
    state = driver.rules.accept(state, DocumentEdited(path, driver.documents[path]), driver.now).state
    stop = driver.rules.decide(state, driver.now)
    assert isinstance(stop, Stop) and stop.outcome is Outcome.BLOCKED
    assert "task-99, which does not exist; correct .ralph-sessions" in stop.reason


def test_complete_session_whose_tasks_cannot_be_put_in_order_any_more_stays_complete() -> None:
    driver = Steady(session()).until(State.COMPLETE)
    path = driver.rules.settings.layout.task(1, "task-3")
    driver.documents[path] = TASKS["tasks/task-3.md"].replace("depends_on: [task-1]", "depends_on: [task-99]")
    driver.state = driver.rules.load(driver.documents)
    driver.take(DocumentEdited(path, driver.documents[path]))
    assert driver.state.state is State.COMPLETE
    assert stop_of(driver).outcome is Outcome.SUCCESS


def test_report_of_an_attempt_that_failed_has_no_review() -> None:
    driver = Steady(session())
    failing(driver, "task-2")
    driver.until(State.COMPLETE)
    report = driver.documents[driver.rules.settings.layout.report(1, "task-2", 1)]
    assert "Review Summary" not in report and "**Status**" not in report


def test_message_of_the_user_begins_nothing_by_itself() -> None:
    """What the user put there while no engine ran counts when it is taken in, not because a message came before it."""
    driver = Steady(session()).until(State.COMPLETE)
    path = driver.rules.settings.layout.feedback(2, "20261116-100000")
    driver.documents[path] = "# Feedback\n"
    driver.state = driver.rules.load(driver.documents)
    driver.take(SignalAccepted(Signal("a", SignalType.INFO, "the deadline is Friday")))
    assert driver.state.state is State.COMPLETE


def test_task_that_lost_its_file_and_is_planned_again_has_one_line() -> None:
    driver = Steady(session())
    failing(driver, "task-2")
    driver.until(State.COMPLETE)
    del driver.documents[driver.rules.settings.layout.task(1, "task-2")]
    driver.state = driver.rules.load(driver.documents)
    feedback(driver, 2)
    driver.says = {"plan_plan_rebreakdown_2": {"answer": {"status": "completed"}, "documents": TASKS}}
    driver.until(State.COMPLETE)
    assert driver.state.marker("task-2") is Marker.DONE
    assert driver.documents[driver.rules.settings.layout.progress(2)].count("] task-2 ") == 1


def test_decision_says_which_iteration_it_is_and_whether_an_approval_is_asked_for() -> None:
    limits = "---\nknowledge: {approval: signal}\n---\n"
    learned = {"knowledge/how-to/x.md": "# X\n\n## Y\nz\n"}
    driver = Steady(
        session(),
        plan_plan_init_1={"answer": {"status": "completed"}, "documents": {"plan.md": PLAN, "instructions.md": limits}},
        extract_1={"answer": {"status": "completed"}, "documents": learned},
    )
    assert driver.rules.decide(driver.state, NOW).stage == Stage(1, frozenset())
    driver.until(State.KNOWLEDGE_APPROVAL)
    asked_for = frozenset({SignalType.APPROVE, SignalType.SKIP})
    stage = driver.rules.decide(driver.state, NOW).stage
    assert (replace(stage, choices={}), list(stage.choices)) == (Stage(1, asked_for), [".docs/how-to/x.md"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "- [C] task-2 (deleted by the user)",
            "the session is complete: 2 tasks; task-2 was not done: it was deleted while the session was stopped",
        ),
        ("- [C] task-2 (not needed)", "the session is complete: 2 tasks"),
        ("- [x] task-2", "the session is complete: 3 tasks; task-2 stays done, though its definition was deleted"),
    ],
)
def test_success_names_tasks_without_a_definition_that_the_user_deleted(line: str, reason: str) -> None:
    driver = Steady(session()).until(State.COMPLETE)
    path = driver.rules.settings.layout.progress(1)
    lines = driver.documents[path].split("\n")
    driver.documents[path] = "\n".join(line if "] task-2 " in old else old for old in lines)
    del driver.documents[driver.rules.settings.layout.task(1, "task-2")]
    driver.state = driver.rules.load(driver.documents)
    stop = stop_of(driver)
    assert (stop.outcome, stop.reason) == (Outcome.SUCCESS, reason)
    assert stop.evidence == Evidence(
        Grade.UNVERIFIED, "The session has no checks. A reviewer that did none of the tasks accepted the whole session."
    )


def test_reason_of_a_review_without_a_verdict_is_that_of_its_turn() -> None:
    said = {"answer": {"status": "blocked", "blockers": ["no access", "no time"]}}
    driver = Steady(session(), review_task_1_1=said).until(State.EXECUTING_BATCH)
    while isinstance(driver.rules.decide(driver.state, driver.now), Do):
        driver.next()
    assert stop_of(driver).reason == "the review of task-1 produced no usable result: no access; no time"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"end": TurnEnd.FAILED, "error": "exit code 3"}, "its reviewer failed in every try: exit code 3"),
        ({"end": TurnEnd.WALL}, "its review ran out of time in every try"),
        ({"end": TurnEnd.IDLE}, "its review ran out of time in every try"),
    ],
)
def test_task_whose_reviewer_gives_no_verdict_in_any_try_is_split(said: dict[str, Any], why: str) -> None:
    driver = Steady(session(), review_task_1_1=said).until(State.EXECUTING_BATCH)
    while driver.state.flow_of("task-1").step is not Step.SPLIT:
        driver.next()
    assert driver.state.flow_of("task-1").why == why
    assert not driver.state.flow.is_stopped


def test_abort_changes_nothing_in_a_session_that_is_complete() -> None:
    driver = Steady(session()).until(State.COMPLETE)
    before = dict(driver.documents)
    driver.ended(Outcome.ABORTED)
    assert driver.state.metadata.status == "completed"
    changed = {path for path, text in driver.documents.items() if before.get(path) != text and "sessions/" in path}
    assert changed <= {driver.rules.settings.layout.metadata}, "only the time of the last change"


def test_session_that_others_began_gets_instructions() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    path = driver.rules.settings.layout.instructions
    documents = {name: text for name, text in driver.documents.items() if name != path}
    state = driver.rules.load(documents)
    written = driver.rules.accept(state, SignalAccepted(Signal("a", SignalType.STEER, "use httpx")), NOW).documents
    assert "max_cycles" in written[path]


def test_metadata_count_the_tasks_as_progress_lists_them() -> None:
    asked = {"status": "completed", "success_criteria_met": False}
    failing = {f"execute_task_1_{attempt}": {"answer": asked} for attempt in (1, 2, 3)}
    driver = Steady(session(), **failing).until(State.COMPLETE)
    layout = driver.rules.settings.layout
    listed = driver.documents[layout.progress(1)]
    assert "[F] task-1" in listed and "[x] task-2" in listed and "[ ] task-3" in listed
    found = parse_metadata(driver.documents[layout.metadata], layout.metadata)
    assert (found.total, found.completed, found.failed, found.pending) == (3, 1, 1, 1)


def test_checks_of_a_task_that_is_done_change_nothing() -> None:
    driver = Steady(session()).until(State.SESSION_REVIEW)
    assert driver.state.marker("task-1") is Marker.DONE
    failed = Verdict((CheckResult("`check 1` passes", CheckStatus.FAILED, 0.1),))
    driver.take(ChecksEnded("check:task-1-1", failed))
    assert driver.state.marker("task-1") is Marker.DONE
    assert not driver.state.flow.tasks


def mark_as_done(driver: Driver, *names: str) -> None:
    """The engine is gone, and the user marks tasks as done before another engine loads the session."""
    path = driver.rules.settings.layout.progress(1)
    for name in names:
        driver.documents[path] = re.sub(rf"- \[.\] {name}\b", f"- [x] {name}", driver.documents[path])
    driver.state = driver.rules.load(driver.documents)


def test_task_that_the_user_marks_as_done_is_done_only_if_it_was_merged() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    mark_as_done(driver, "task-1", "task-3")
    assert driver.state.notices == (
        "progress.md marks task-1 as done, but Ralph has not merged it: Ralph continues with it."
        " Mark it [C] to leave it out.",
        "progress.md marks task-3 as done, but Ralph has not merged it: it still has to be done. Mark it [C] to leave it out.",
    )
    assert (driver.state.marker("task-1"), driver.state.marker("task-3")) == (Marker.WIP, Marker.TODO)
    driver.until(State.COMPLETE)
    assert {"execute:task-1-1", "execute:task-3-1"} <= {work.key for work in driver.asked}
    assert stop_of(driver).reason == "the session is complete: 3 tasks"
    mark_as_done(driver, "task-1", "task-2", "task-3")
    assert not driver.state.notices, "what was merged is done"


def test_task_that_the_user_reset_has_to_be_merged_again() -> None:
    driver = Steady(session()).until(State.COMPLETE)
    path = driver.rules.settings.layout.progress(1)
    driver.documents[path] = driver.documents[path].replace("- [x] task-2", "- [ ] task-2")
    assert driver.rules.load(driver.documents).flow.finished == ("task-1", "task-3")


def test_split_task_that_the_user_marks_as_done_stays_cancelled() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    driver.state = driver.state.with_metadata(replaced={"task-3": ("task-1", "task-2")})
    driver.ended(Outcome.PAUSED)
    mark_as_done(driver, "task-3")
    assert driver.state.marker("task-3") is Marker.CANCELLED
    assert driver.state.notices[-1].endswith("has not merged it: it was split into task-1, task-2.")


def test_markers_count_if_the_engine_does_not_know_what_it_finished() -> None:
    driver = Steady(session()).until(State.EXECUTING_BATCH)
    stored = driver.documents[driver.rules.settings.flow_path]
    assert '"finished": []' in stored
    driver.documents[driver.rules.settings.flow_path] = stored.replace('"finished": []', '"unknown": []')
    mark_as_done(driver, "task-3")
    assert driver.state.marker("task-3") is Marker.DONE and not driver.state.notices


@pytest.mark.parametrize("key", ["review:task-1-1", "execute:task-1-1", "split:task-1-1", "replan:task-1-1"])
def test_turn_of_an_earlier_attempt_changes_nothing(key: str) -> None:
    """The user can reset a task while its turn continues without an engine."""
    driver = Steady(session(), review_task_1_1={"answer": {"status": "completed", "verdict": "Failed"}})
    for _ in range(100):
        if driver.state.marker("task-1") is Marker.PENDING and driver.state.flow_of("task-1").attempt == 2:
            break
        driver.next()
    before = driver.state.flow_of("task-1"), driver.state.progress.text
    answer = {"status": "completed", "verdict": "Qualified", "success_criteria_met": True}
    late = TurnResult(TurnEnd.FINISHED, NOW, NOW + 1, answer=answer, documents={"report.md": "### R\n"})
    after = driver.rules.accept(driver.state, TurnEnded(key, 99, "reviewer", 1, late), NOW)
    assert (after.state.flow_of("task-1"), after.state.progress.text) == before
    assert after.notices == ()
