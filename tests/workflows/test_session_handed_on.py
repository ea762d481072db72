"""What one turn of a session leaves for the next: feedback, checks, knowledge, earlier plans, and the figures of an iteration."""

import random
from typing import Any

import pytest
from test_classic_rules import HOME
from test_classic_rules import Driver as ClassicDriver
from test_classic_rules import rules as classic_rules
from test_session_cases import PLAN, TASKS, Steady, failing, feedback, stop_of
from test_session_rules import session

from ralph.core.events import DocumentEdited, SignalAccepted
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.documents.session import metadata
from ralph.documents.session.metadata import State
from ralph.documents.session.values import render_timestamp as stamp

LEARNED = "# Build\n\n## How\nRun `make`.\n"
OPEN_QUESTION = "### Question {n}\n- **ID**: Q-TECH-00{n}\n- **Priority**: High\n- **Status**: Unanswered\n"
COMPLETED = {"status": "completed"}
FAILED_REVIEW = {
    "answer": {"status": "completed", "verdict": "Failed", "feedback": "The help text is missing."},
    "documents": {"review.md": "### Review Summary\nNo help text.\n"},
}


def plan_with(instructions: str) -> dict[str, Any]:
    """A plan whose instructions have these limits."""
    documents = {"plan.md": PLAN, "instructions.md": f"---\n{instructions}\n---\n"}
    return {"answer": COMPLETED, "documents": documents}


def request(driver: Steady, key: str) -> TurnRequest:
    [found] = [one for one in driver.asked if one.key == key]
    return found


class TestKnowledge:
    def waiting(self) -> Steady:
        driver = Steady(
            session(),
            plan_plan_init_1=plan_with("knowledge: {approval: signal}"),
            extract_1={"answer": COMPLETED, "documents": {"knowledge/how-to/build.md": LEARNED}},
            extract_2={"answer": COMPLETED, "documents": {}},
        ).until(State.KNOWLEDGE_APPROVAL)
        feedback(driver, 2)
        return driver

    def test_undecided_knowledge_is_carried_whole_and_says_where_it_is_from(self) -> None:
        driver = self.waiting()
        layout = driver.rules.settings.layout
        before = driver.documents[layout.knowledge(1, "how-to", "build.md")]
        carried = driver.documents[layout.knowledge(2, "how-to", "build.md")]
        assert carried.endswith(LEARNED)
        assert carried == before.replace("\n---\n", "\ncarried_from: 1\n---\n", 1)

    def test_the_next_librarian_finds_it_and_the_user_can_still_keep_it(self) -> None:
        driver = self.waiting().until(State.KNOWLEDGE_APPROVAL)
        assert LEARNED in request(driver, "extract:2").inbox["knowledge/how-to/build.md"]
        assert "learned (1 file in" in stop_of(driver).reason
        driver.take(SignalAccepted(Signal("a", SignalType.APPROVE)))
        decision = driver.rules.decide(driver.state, driver.now)
        [work] = getattr(decision, "work", ())
        assert list(work.files) == [".docs/how-to/build.md"] and LEARNED in work.files[".docs/how-to/build.md"]

    def test_knowledge_that_was_kept_is_not_carried_over(self) -> None:
        driver = Steady(
            session(), extract_1={"answer": COMPLETED, "documents": {"knowledge/how-to/build.md": LEARNED}}
        ).until(State.COMPLETE)
        feedback(driver, 2)
        assert driver.rules.settings.layout.knowledge(2, "how-to", "build.md") not in driver.documents


class TestQuestions:
    @pytest.mark.parametrize("most", [1, 2, 3])
    def test_open_questions_are_asked_again_only_as_often_as_the_limit_allows(self, most: int) -> None:
        class Unanswered(Steady):
            def turn(self, work: TurnRequest) -> TurnResult:
                result = super().turn(work)
                if work.role == "questioner":
                    documents = {"questions/technical.md": f"## Cycle 1\n\n{OPEN_QUESTION.format(n=1)}"}
                    return TurnResult(TurnEnd.FINISHED, self.now, self.now, answer=COMPLETED, documents=documents)
                return result

        limits = f"planning: {{max_cycles: {most}, categories: [technical]}}"
        driver = Unanswered(session(), plan_plan_init_1=plan_with(limits)).until(State.EXECUTING_BATCH)
        asked = [one.key for one in driver.asked if one.role == "questioner"]
        cycles = range(1, most + 1)
        assert asked == [
            key for n in cycles for key in (f"plan:plan-brainstorm@1.{n}.technical", f"plan:plan-research@1.{n}.")
        ]

    @pytest.mark.parametrize("most", [1, 2, 3])
    def test_the_limit_holds_in_the_classic_layout(self, most: int) -> None:
        class Unanswered(ClassicDriver):
            def content(self, work: TurnRequest) -> Any:
                if work.role != "questioner":
                    return super().content(work)
                cycle = work.prompt.text.split("CYCLE: ")[1].split("\n")[0]
                text = work.inbox.get("plan.questions.md", "")
                if "MODE: research" in work.prompt.text:
                    text = text.replace("Unanswered", "Research Needed")
                else:
                    text += f"\n## Cycle {cycle}\n\n{OPEN_QUESTION.format(n=cycle)}"
                return {"status": "completed", "summary": "asked"}, {"plan.questions.md": text}

        driver = Unanswered(classic_rules(), random.Random(1))
        driver.documents[f"{HOME}.instructions.md"] = f"- max_cycles: {most}\n"
        driver.state = driver.rules.load(driver.documents)
        driver.run()
        asked = [key for key in driver.keys if "brainstorm" in key]
        assert asked == [f"plan:plan-brainstorm.{n}" for n in range(1, most + 1)]

    def test_answered_questions_end_the_cycles(self) -> None:
        driver = Steady(session(), plan_plan_init_1=plan_with("planning: {max_cycles: 5}"))
        driver.until(State.EXECUTING_BATCH)
        assert {one.key.split(".")[1] for one in driver.asked if one.role == "questioner"} == {"1"}


class TestTheNextAttempt:
    def test_the_feedback_of_a_reviewer_reaches_the_next_executor(self) -> None:
        driver = Steady(session(), review_task_1_1=FAILED_REVIEW).until(State.COMPLETE)
        first, second = request(driver, "execute:task-1-1"), request(driver, "execute:task-1-2")
        assert not {"why-it-failed.md", "previous-report.md"} & first.inbox.keys()
        assert second.inbox["why-it-failed.md"] == "The help text is missing.\n"
        assert "No help text." in second.inbox["previous-report.md"]
        assert "PREVIOUS_BRANCH: ralph/261116-093000/task-1/1\n" in second.prompt.text

    def test_feedback_reaches_the_next_executor_in_the_classic_layout(self) -> None:
        class Strict(ClassicDriver):
            def content(self, work: TurnRequest) -> Any:
                answer, documents = super().content(work)
                if work.key == "review:task-1-1":
                    return {**answer, **FAILED_REVIEW["answer"]}, FAILED_REVIEW["documents"]
                return answer, documents

        driver = Strict(classic_rules(), _Fair())
        driver.run()
        [second] = [one for one in driver.requests if one.key == "execute:task-1-2"]
        assert "No help text." in second.inbox["previous-report.md"]

    def test_check_results_reach_the_next_executor(self) -> None:
        class Failing(Steady):
            def verdict(self, checks: Any) -> Any:
                self.chance = _High() if self.keys[-1] == "check:task-1-1" else _Fair()
                return super(Steady, self).verdict(checks)

        driver = Failing(session()).until(State.COMPLETE)
        assert "$ check task-1\n(" in request(driver, "execute:task-1-2").inbox["why-it-failed.md"]
        assert not [one for one in driver.asked if one.key == "review:task-1-1"], "nobody reviews what does not hold"

    def test_executors_know_the_commands_that_will_check_their_task(self) -> None:
        driver = Steady(session()).until(State.COMPLETE)
        for name in ("task-1", "task-2", "task-3"):
            assert request(driver, f"execute:{name}-1").inbox["checks.md"] == f"- `check {name}`\n"

    def test_criterion_for_a_reviewer_is_not_a_check(self) -> None:
        vague = {name: text.replace("`check task-1` passes", "it reads well") for name, text in TASKS.items()}
        driver = Steady(session(), plan_plan_breakdown_1={"answer": COMPLETED, "documents": vague}).until(
            State.COMPLETE
        )
        assert "checks.md" not in request(driver, "execute:task-1-1").inbox
        assert "check:task-1-1" not in driver.keys
        assert "checks.md" in request(driver, "execute:task-2-1").inbox

    def test_the_reviewer_sees_what_the_engine_saw(self) -> None:
        driver = Steady(session()).until(State.COMPLETE)
        assert "$ check task-1\n(passed)" in request(driver, "review:task-1-1").inbox["checks.md"]


class _Fair(random.Random):
    """Everything goes well."""

    def random(self) -> float:
        return 0.5

    def choice(self, options: Any) -> Any:
        return options[0]


class _High(_Fair):
    def random(self) -> float:
        return 0.99


class TestFiguresOfAnIteration:
    def on_disk(self, driver: Steady, number: int) -> metadata.IterationMetadata:
        return metadata.parse_iteration_metadata(
            driver.documents[driver.rules.settings.layout.iteration_metadata(number)]
        )

    def test_figures_follow_planning_step_by_step(self) -> None:
        driver = Steady(session())
        driver.next()
        first = self.on_disk(driver, 1)
        assert (first.planning_tasks, first.planning_complete, first.tasks_defined) == (
            {"plan-init": "completed"},
            False,
            0,
        )
        while driver.state.state is not State.EXECUTING_BATCH:
            driver.next()
        planned = self.on_disk(driver, 1)
        assert planned.planning_complete and planned.planning_completed_at == stamp(driver.now)
        assert (planned.tasks_defined, planned.completed_at) == (3, "")
        driver.until(State.KNOWLEDGE_EXTRACTION)
        over = self.on_disk(driver, 1)
        assert over.completed_at == stamp(driver.now)
        assert over.planning_completed_at == planned.planning_completed_at

    def test_the_next_iteration_has_its_own_and_the_first_keeps_its(self) -> None:
        driver = Steady(session())
        failing(driver, "task-2")
        driver.until(State.COMPLETE)
        first = self.on_disk(driver, 1)
        feedback(driver, 2)
        begun = self.on_disk(driver, 2)
        assert (begun.iteration, begun.started_at, begun.planning_complete) == (2, stamp(driver.now), False)
        driver.says = {}
        driver.until(State.COMPLETE)
        assert self.on_disk(driver, 1) == first
        assert self.on_disk(driver, 2).planning_complete
        assert self.on_disk(driver, 2).completed_at > first.completed_at

    def test_an_aborted_iteration_has_an_end(self) -> None:
        driver = Steady(session()).until(State.EXECUTING_BATCH)
        driver.ended(Outcome.ABORTED)
        assert self.on_disk(driver, 1).completed_at == stamp(driver.now)
        assert "Aborted" in driver.documents[driver.rules.settings.layout.progress(1)]

    def test_the_figures_of_the_session_follow_its_tasks(self) -> None:
        driver = Steady(session())
        failing(driver, "task-2")
        driver.until(State.COMPLETE)
        found = metadata.parse_metadata(driver.documents[driver.rules.settings.layout.metadata])
        assert (found.total, found.completed, found.failed, found.pending, found.cancelled) == (3, 2, 1, 0, 0)
        assert found.updated_at == stamp(driver.now)


class TestNotes:
    def line(self, driver: Steady, task: str) -> str:
        text = driver.documents[driver.rules.settings.layout.progress(driver.state.metadata.iteration)]
        [line] = [line for line in text.splitlines() if f"] {task} " in line or line.endswith(f"] {task}")]
        return line

    def test_a_note_names_the_attempt_and_the_iteration_each_by_its_own_number(self) -> None:
        driver = Steady(session())
        failing(driver, "task-2")
        driver.until(State.COMPLETE)
        assert "Attempt 3, Iteration 1, failed: " in self.line(driver, "task-2")
        feedback(driver, 2)
        driver.says = {}
        driver.until(State.EXECUTING_BATCH)
        assert f"Attempt 4, Iteration 2, started: {stamp(driver.now)}" in self.line(driver, "task-2")
        driver.until(State.COMPLETE)
        assert "Attempt 4, Iteration 2, qualified: " in self.line(driver, "task-2")
        report = driver.documents[driver.rules.settings.layout.report(2, "task-2", 4)]
        assert "attempt: 4\n" in report and "iteration: 2\n" in report

    def test_a_report_that_the_engine_writes_has_the_same_numbers(self) -> None:
        late = {"end": TurnEnd.WALL, "answer": None, "documents": {}}
        review = {"answer": {"status": "completed", "verdict": "Failed", "feedback": "no"}}
        driver = Steady(session(), review_task_2_1=review, execute_task_2_2=late).until(State.COMPLETE)
        report = driver.documents[driver.rules.settings.layout.report(1, "task-2", 2)]
        assert "attempt: 2\n" in report and "iteration: 1\n" in report
        assert "It ran out of time (60 minutes)" in report


class TestPlanSnapshots:
    def test_a_snapshot_is_the_plan_as_it_was_before_the_update(self) -> None:
        driver = Steady(session())
        failing(driver, "task-2")
        driver.until(State.COMPLETE)
        layout = driver.rules.settings.layout
        first = driver.documents[layout.plan(1)]
        feedback(driver, 2)
        second = PLAN.replace("Do it", "Do less")
        driver.says = {
            "plan_plan_update_2": {"answer": COMPLETED, "documents": {"plan.md": second, "delta.md": "# D\n"}}
        }
        failing(driver, "task-2")
        driver.until(State.COMPLETE)
        assert driver.documents[layout.plan_copy(1)] == first == PLAN
        assert driver.documents[layout.plan(2)] == second
        assert driver.documents[layout.delta(2)] == "# D\n"

    def test_a_snapshot_that_is_gone_is_made_again_from_the_plan_before_the_update(self) -> None:
        driver = Steady(session())
        failing(driver, "task-2")
        driver.until(State.COMPLETE)
        feedback(driver, 2)
        path = driver.rules.settings.layout.plan_copy(1)
        del driver.documents[path]
        driver.state = driver.rules.load(driver.documents)
        second = PLAN.replace("Do it", "Do less")
        driver.says = {"plan_plan_update_2": {"answer": COMPLETED, "documents": {"plan.md": second}}}
        driver.until(State.COMPLETE)
        assert driver.documents[path] == PLAN != second

    def test_a_snapshot_that_is_there_is_never_overwritten(self) -> None:
        driver = Steady(session())
        failing(driver, "task-2")
        driver.until(State.COMPLETE)
        feedback(driver, 2)
        path = driver.rules.settings.layout.plan_copy(1)
        driver.documents[path] = "# As it was\n"
        driver.state = driver.rules.load(driver.documents)
        driver.says = {}
        driver.until(State.COMPLETE)
        assert driver.documents[path] == "# As it was\n"

    def test_every_update_of_a_classic_session_keeps_the_plan_before_it(self) -> None:
        class Planner(ClassicDriver):
            def content(self, work: TurnRequest) -> Any:
                answer, documents = super().content(work)
                if "plan.md" in documents:
                    return answer, {**documents, "plan.md": f"{documents['plan.md']}\nAs of {work.key}.\n"}
                return answer, documents

        driver = Planner(classic_rules(), _Fair())
        plans = []
        for number in (1, 2):
            driver.run()
            plans.append(driver.documents[f"{HOME}/plan.md"])
            driver.documents[f"{HOME}/plan.update{number}.md"] = f"# Update {number}\n\n- More.\n"
            path = f"{HOME}/plan.update{number}.md"
            driver.take(DocumentEdited(path, driver.documents[path]))
        driver.run()
        layout = driver.rules.settings.layout
        assert [driver.documents[layout.plan_copy(n)] for n in (1, 2)] == plans
        assert len({*plans, driver.documents[f"{HOME}/plan.md"]}) == 3


class TestWhatTheUserSays:
    def test_guidance_is_noted_with_its_message(self) -> None:
        driver = Steady(session()).until(State.EXECUTING_BATCH)
        driver.take(SignalAccepted(Signal("a", SignalType.STEER, "use httpx")))
        assert "use httpx" in driver.documents[driver.rules.settings.layout.notes]

    def test_a_task_that_the_user_redefined_fails_alone_and_is_not_tried_again(self) -> None:
        asked = {"status": "blocked", "blockers": ["STEER scope change: build B instead"]}
        driver = Steady(session(), execute_task_2_1={"answer": asked}).until(State.COMPLETE)
        assert [key for key in driver.keys if key.startswith("execute:task-2-")] == ["execute:task-2-1"]
        stop = stop_of(driver)
        assert stop.outcome is Outcome.AWAITING_FEEDBACK
        assert stop.reason.startswith("failed: task-2; ") and "build B instead" in stop.reason

    def test_a_pause_is_noted_at_what_is_in_progress_until_the_user_resumes(self) -> None:
        driver = Steady(session()).until(State.EXECUTING_BATCH)
        driver.ended(Outcome.PAUSED)
        path = driver.rules.settings.layout.progress(1)
        assert driver.documents[path].count("Paused by signal") == 2, "task-1 and task-2 were in progress"
        driver.take(SignalAccepted(Signal("a", SignalType.RESUME)))
        assert "Paused by signal" not in driver.documents[path]

    @pytest.mark.parametrize("name", ["build", "build.md", "how-to", "how-to/build.md"])
    def test_knowledge_is_kept_by_any_name_of_it(self, name: str) -> None:
        learned = {"knowledge/how-to/build.md": LEARNED, "knowledge/reference/api.md": LEARNED}
        driver = Steady(
            session(),
            plan_plan_init_1=plan_with("knowledge: {approval: signal}"),
            extract_1={"answer": COMPLETED, "documents": learned},
        ).until(State.KNOWLEDGE_APPROVAL)
        driver.take(SignalAccepted(Signal("a", SignalType.APPROVE, items=(name,))))
        [work] = getattr(driver.rules.decide(driver.state, driver.now), "work", ())
        assert list(work.files) == [".docs/how-to/build.md"]

    def test_every_role_finds_the_request(self) -> None:
        driver = Steady(session()).until(State.COMPLETE)
        assert {one.inbox["request.md"] for one in driver.asked} == {"Build it\n"}
