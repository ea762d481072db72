"""The rules of hats, one by one, and by thousands of random agents."""

import json
import random
from dataclasses import replace

import pytest
from playing_hats import CHECK, CODE_ASSIST, EVIDENT, HATS, RUN, Stage, Turned, hat, lines, stage, task
from test_session_rules import seeds

from ralph.core.events import DocumentEdited, RunEnded
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.prompt import measure_parts
from ralph.core.turns import TurnEnd
from ralph.documents.hats.definition import COORDINATOR, USER, HatsSettings, MemoryUse, Topic
from ralph.workflows.hats.events import find_gate_blockers, read_events
from ralph.workflows.hats.routing import find_receiver
from ralph.workflows.hats.state import MEMORIES, TASKS, QueuedEvent, TurnChange

PASSING = {
    "planner": "tasks.ready",
    "builder": "review.ready",
    "critic": "review.passed",
    "finalizer": "LOOP_COMPLETE",
}


def dutiful(world: Stage, hat: str) -> Turned:
    return Turned(((PASSING.get(hat, "queue.advance"), "go on"),), files=hat == "builder")


def passed(world: Stage, topic: str) -> bool:
    return not find_gate_blockers(replace(world.rules.context.settings, required=(topic,)), world.state.gates, ())


def mute(world: Stage, hat: str) -> Turned:
    return Turned()


class TestRouting:
    @pytest.mark.parametrize(
        ("topic", "taker"),
        [
            ("build.done", "exact"),
            ("build.other", "pattern"),
            ("deploy.done", "tail"),
            ("build.done.twice", "all"),
            ("anything", "all"),
            ("task.resume", COORDINATOR),
        ],
    )
    def test_the_best_trigger_takes_an_event(self, topic: str, taker: str) -> None:
        hats = (
            hat("all", "*", ""),
            hat("tail", "*.done", ""),
            hat("pattern", "build.*", ""),
            hat("exact", "build.done", ""),
        )
        assert find_receiver(HatsSettings(hats), QueuedEvent(1, topic)) == taker

    def test_event_without_a_receiver_goes_to_the_coordinator(self) -> None:
        assert find_receiver(CODE_ASSIST, QueuedEvent(1, "build.blocked")) == COORDINATOR
        assert find_receiver(CODE_ASSIST, QueuedEvent(1, "build.blocked", target="critic")) == "critic"

    def test_one_hat_a_turn_and_the_oldest_event_first(self) -> None:
        def agent(world: Stage, hat: str) -> Turned:
            if hat == "planner":
                return Turned((("tasks.ready", "a"), ("tasks.ready", "b"), ("build.blocked", "c")))
            return Turned((("review.rejected", "again"),))

        world = stage()
        world.play(agent, 5)
        assert world.turns == [
            ("planner", "build.start"),
            ("builder", "tasks.ready"),
            ("builder", "tasks.ready"),
            (COORDINATOR, "build.blocked"),
            ("builder", "review.rejected"),
        ]
        assert world.taken == sorted(world.taken)


class TestCompletion:
    def test_the_whole_way(self) -> None:
        world = stage(checks=CHECK, works=True)
        stop = world.play(dutiful)
        assert stop and stop.outcome is Outcome.SUCCESS
        assert [who for who, _ in world.turns] == ["planner", "builder", "critic", "finalizer"]
        assert world.topics == ["build.start", "tasks.ready", "review.ready", "review.passed", "LOOP_COMPLETE"]

    def test_completion_counts_on_the_last_allowed_turn(self) -> None:
        """The limit keeps the fifth turn from starting; the fourth one's word is still heard and judged."""
        world = stage(checks=CHECK, works=True)
        stop = world.play(dutiful, most=4)
        assert stop and stop.outcome is Outcome.SUCCESS

    @pytest.mark.parametrize("saying", [{"events": (("LOOP_COMPLETE", ""),)}, {"text": "All done.\n\nLOOP_COMPLETE\n"}])
    def test_only_hats_that_list_the_promise_may_keep_it(self, saying: dict) -> None:
        world = stage(required=())
        world.play(lambda world, hat: Turned(**saying), 1)
        assert world.state.outcome is None
        assert "`LOOP_COMPLETE` counts only from finalizer" in world.state.notes[0]

    @pytest.mark.parametrize(
        ("text", "done"),
        [
            ("LOOP_COMPLETE", True),
            ("Done.\n  LOOP_COMPLETE  \n\n", True),
            ("I will say LOOP_COMPLETE when I am done", False),
            ("LOOP_COMPLETE\nis what I will say later", False),
            ("Not yet\n```\nLOOP_COMPLETE\n```", False),
            ('<event topic="LOOP_COMPLETE">done</event>', True),
        ],
    )
    def test_as_the_last_line(self, text: str, done: bool) -> None:
        world = stage(HatsSettings())
        world.play(lambda world, hat: Turned(text=text), 1)
        assert (world.state.outcome is Outcome.SUCCESS) is done

    def test_required_events_count_only_if_they_took_effect_in_this_run(self) -> None:
        """The critic says nothing: `review.passed` comes by default, and satisfies nobody."""
        hats = tuple(replace(one, default_publishes="review.passed") if one.id == "critic" else one for one in HATS)
        world = stage(hats=hats)
        world.play(lambda world, hat: Turned() if hat == "critic" else dutiful(world, hat), 4)
        assert world.turns[-1] == ("finalizer", "review.passed")
        assert world.state.outcome is None
        assert world.state.notes == (
            "`LOOP_COMPLETE` was refused: critic has not published `review.passed` in this run",
        )

    def test_a_default_never_completes(self) -> None:
        hats = tuple(replace(one, default_publishes="LOOP_COMPLETE") if one.id == "finalizer" else one for one in HATS)
        world = stage(hats=hats)
        world.play(lambda world, hat: Turned() if hat == "finalizer" else dutiful(world, hat), 5)
        assert world.turns[-2:] == [("finalizer", "review.passed"), (COORDINATOR, "task.resume")]

    def test_open_tasks_of_this_run_keep_it_from_being_done_those_of_others_do_not(self) -> None:
        left = task("task-1") + task("task-2", "closed") + task("task-3", run="261111-000000-aaaa")

        def agent(world: Stage, hat: str) -> Turned:
            return replace(dutiful(world, hat), tasks=left)

        world = stage()
        world.play(agent, 4)
        assert world.state.notes == ("`LOOP_COMPLETE` was refused: 1 task is not closed: task-1 (task-1)",)
        left = left.replace('"open"', '"closed"')
        stop = world.play(agent, 5)
        assert stop and stop.outcome is Outcome.SUCCESS, "the finalizer has its event again, and is told why"
        assert world.turns[-1] == ("finalizer", "review.passed")

    def test_a_turn_must_acknowledge_the_messages_of_the_user_that_it_got(self) -> None:
        world = stage()
        world.play(dutiful, 3)
        world.says("In capitals, please")
        world.play(dutiful, 4)
        assert "the message from the user is not acknowledged" in world.state.notes[0]

        def acknowledges(world: Stage, hat: str) -> Turned:
            assert "The user sent you a message (below)" in world.page
            world.now += 1
            world.says("And one thing more")
            return Turned((("human.guidance.ack", ""), ("LOOP_COMPLETE", "")))

        world.play(acknowledges, 5)
        assert [one.text for one in world.state.guidance] == ["And one thing more"]
        assert world.state.outcome is None

    def test_only_the_hat_that_a_message_is_for_reads_of_it_and_can_acknowledge_it(self) -> None:
        world = stage()
        world.says("Use tabs", target="critic")

        def acknowledges(world: Stage, hat: str) -> Turned:
            assert ("The user sent you a message (below)" in world.page) == (hat == "critic")
            world.now += 1
            turned = dutiful(world, hat)
            return Turned((("human.guidance.ack", ""), *turned.events))

        world.play(acknowledges, 2)
        assert [hat for hat, _ in world.turns][-1] != "critic" and world.state.guidance
        assert (
            "the message from the user to critic is not acknowledged"
            in world.rules.context.find_completion_blockers(world.state)[-1]
        )
        world.play(acknowledges, 3)
        assert world.turns[-1][0] == "critic" and not world.state.guidance

    def test_the_checks_have_the_last_word_and_the_hat_gets_theirs(self) -> None:
        world = stage(checks=CHECK)
        world.play(dutiful, 6)
        assert [who for who, _ in world.turns] == [
            "planner",
            "builder",
            "critic",
            "finalizer",
            "finalizer",
            "finalizer",
        ]
        assert world.checked == 3 and "they do not pass" in world.page
        world.works = True
        assert world.play(dutiful, 20)

    def test_message_during_the_checks_delays_completion(self) -> None:
        world = stage(checks=CHECK, works=True)
        world.play(dutiful, 3)
        world.during_checks = lambda: world.says("One thing more")
        world.play(dutiful, 4)
        assert world.checked == 1 and world.state.outcome is None
        assert "the message from the user is not acknowledged" in world.state.notes[0]

    def test_a_hat_learns_of_failed_checks_and_of_new_blockers_at_once(self) -> None:
        world = stage(checks=CHECK, works=False)
        world.play(dutiful, 3)
        world.during_checks = lambda: world.says("and this")
        world.play(dutiful, 4)
        assert "the message from the user is not acknowledged" in world.state.notes[0]
        assert "the engine ran the checks, and they do not pass" in world.state.notes[1]

    def test_after_three_refusals_the_coordinator_sees_to_it(self) -> None:
        world = stage(checks=CHECK)
        world.play(dutiful, 7)
        assert world.turns[-1] == (COORDINATOR, "task.resume")

    def test_a_claim_that_the_checks_bear_out_resets_the_count_of_refusals(self) -> None:
        world = stage(checks=CHECK, works=True, topics=EVIDENT)
        world.play(dutiful, 1)

        def refuse() -> None:
            world.state = replace(world.state, refusals=2)

        world.during_checks = refuse

        def builds(world: Stage, hat: str) -> Turned:
            return Turned((("build.done", "it works"),))

        world.play(builds, 2)
        assert world.checked == 1 and world.turns[-1][0] == "builder"
        assert world.state.refusals == 0

    def test_coordinator_prompt_says_what_blocks_completion(self) -> None:
        world = stage()
        world.play(dutiful, 3)
        world.says("In capitals, please")
        world.play(dutiful, 6)

        def coordinator(world: Stage, hat: str) -> Turned:
            assert world.page.count("the message from the user is not acknowledged") == 1
            return Turned((("human.guidance.ack", ""),))

        world.play(coordinator, 7)
        assert not world.state.guidance
        world.says("In red, too")
        world.play(mute, 8)
        assert "the run cannot end yet: the message from the user is not acknowledged" in world.page
        world.play(lambda world, hat: Turned((("human.guidance.ack", ""),)), 9)
        world.play(mute, 10)
        assert world.turns[-2:] == [(COORDINATOR, "task.resume")] * 2
        assert "acknowledged" not in world.page.partition("<notes>")[2]

    def test_completion_before_other_events_is_refused(self) -> None:
        taken = read_events(CODE_ASSIST, "finalizer", lines(("LOOP_COMPLETE", ""), ("queue.advance", "")), "")
        assert taken.completion is None and "was not the last event" in taken.refused[0]

    def test_a_cancellation_ends_the_run_for_good(self) -> None:
        world = stage(cancellation="GIVE_UP")
        stop = world.play(lambda world, hat: Turned((("GIVE_UP", "no such API"),)), 1)
        assert stop and (stop.outcome, stop.reason) == (Outcome.ABORTED, "cancelled by planner: no such API")


class TestIntake:
    def test_a_hat_may_not_publish_what_is_not_its_own_where_scope_is_enforced(self) -> None:
        world = stage(enforce_scope=True)
        world.play(lambda world, hat: Turned((("review.passed", "skip the review"),)), 3)
        assert [who for who, _ in world.turns] == ["planner"] * 3
        assert not world.state.gates and "`review.passed` counts only from critic" in world.state.notes[0]

    @pytest.mark.parametrize(
        ("payload", "whole"),
        [
            ({"task_id": "t", "task_key": "k"}, True),
            ({"task_id": "t", "task_key": ""}, False),
            ({"task_id": "t"}, False),
            ("task_id: t-1, task_key=k", True),
            ("the task_id is missing", False),
            ("", False),
        ],
    )
    def test_a_payload_must_have_what_its_topic_requires(self, payload: object, whole: bool) -> None:
        settings = replace(CODE_ASSIST, topics={"tasks.ready": Topic(requires=("task_id", "task_key"))})
        taken = read_events(settings, "planner", lines(("tasks.ready", payload)), "")
        assert (len(taken.events), len(taken.refused)) == ((1, 0) if whole else (0, 1))

    def test_refused_event_beside_an_accepted_one_is_reported_to_the_next_hat(self) -> None:
        world = stage(enforce_scope=True)
        world.play(lambda world, hat: Turned((("tasks.ready", "go"), ("review.passed", "already"))), 1)
        world.play(mute, 2)
        assert world.turns[-1][0] == "builder"
        assert "- an event of planner was refused: `review.passed` counts only from critic" in world.page

    def test_broken_lines_are_reported_and_complete_ones_accepted(self) -> None:
        good = lines(("tasks.ready", "one"), ("tasks.ready", "two"))
        raw = 'not json\n{"payload": 1}\n' + good + '{"topic": "tasks.re'
        taken = read_events(CODE_ASSIST, "planner", raw, "")
        assert [said.payload for said in taken.events] == ["one", "two"]
        assert len(taken.refused) == 3
        assert read_events(CODE_ASSIST, "planner", good.rstrip("\n"), "").events == taken.events, (
            "whole, though without an end"
        )

    def test_last_broken_line_and_their_number_are_reported(self) -> None:
        taken = read_events(CODE_ASSIST, "planner", "".join(f"no {n}\n" for n in range(9)), "")
        assert [told[-4:] for told in taken.refused[:-1]] == ["no 0", "no 1", "no 2", "no 3", "no 8"]
        assert taken.refused[-1] == "4 more lines are not events"

    @pytest.mark.parametrize("cut", range(0, 170, 7))
    def test_complete_lines_before_any_cut_are_read(self, cut: int) -> None:
        raw = lines(("tasks.ready", "é one"), ("tasks.ready", "two"))
        taken = read_events(CODE_ASSIST, "planner", raw[:cut], "")
        whole = raw[:cut].count("\n") + (raw[:cut].endswith("}"))
        assert len(taken.events) == whole

    def test_tags_in_the_last_words_count_once(self) -> None:
        text = 'So: <event topic="tasks.ready" target="critic">go</event>\n```\n<event topic="x.y">no</event>\n```'
        taken = read_events(CODE_ASSIST, "planner", "", text)
        assert [(said.topic, said.payload, said.target) for said in taken.events] == [("tasks.ready", "go", "critic")]
        again = read_events(
            CODE_ASSIST, "planner", lines(("tasks.ready", "go")), '<event topic="tasks.ready">go</event>'
        )
        assert len(again.events) == 1

    @pytest.mark.parametrize("topic", ["human.guidance", "human.interact", "human.response"])
    def test_nobody_publishes_topics_of_the_user(self, topic: str) -> None:
        for publisher in ("planner", USER):
            taken = read_events(CODE_ASSIST, publisher, lines((topic, "do it")), "")
            assert not taken.events and len(taken.refused) == 1
            assert "only the user" not in taken.refused[0]

    def test_events_that_no_hat_receives_are_reported_to_the_user(self) -> None:
        world = stage(topics={"tasks.ready": Topic(requires=("task_id",))})
        told = lines(("tasks.ready", "no id"), ("LOOP_COMPLETE", ""), ("tasks.ready", "task_id: 7"))
        transition = world.rules.accept(
            world.state, DocumentEdited(world.rules.context.user_events_path, told), world.now
        )
        assert [event.payload for event in transition.state.queue[1:]] == ["task_id: 7"]
        assert transition.notices[0] == "event refused: `tasks.ready` lacks task_id in its payload"
        assert "`LOOP_COMPLETE`" in transition.notices[1]

    def test_a_flood_of_events_is_cut(self) -> None:
        taken = read_events(CODE_ASSIST, "planner", lines(*(("tasks.ready", n) for n in range(80))), "")
        assert len(taken.events) == 50 and "30 of 80" in taken.refused[0]

    def test_an_event_of_the_user_joins_the_queue_once(self) -> None:
        world = stage()
        path = world.rules.context.user_events_path
        one = lines(("review.ready", "by hand"), ("review.passed", ""), ("LOOP_COMPLETE", ""))
        world.tell(DocumentEdited(path, one + '{"topic": "half'))
        world.tell(DocumentEdited(path, one + lines(("build.blocked", "look"))))
        assert [(e.topic, e.source) for e in world.state.queue[1:]] == [
            ("review.ready", "user"),
            ("build.blocked", "user"),
        ]
        assert world.state.outcome is None, "only hats keep promises"
        world.play(dutiful, 3)
        assert [who for who, _ in world.turns][:2] == ["planner", "critic"]

    @pytest.mark.parametrize(("works", "topic"), [(True, "build.done"), (False, "build.blocked")])
    def test_the_checks_must_confirm_an_event_of_the_user_that_needs_evidence(self, works: bool, topic: str) -> None:
        world = stage(checks=CHECK, works=works, topics=EVIDENT)
        world.tell(DocumentEdited(world.rules.context.user_events_path, lines(("build.done", "by hand"))))
        assert [event.topic for event in world.state.queue] == ["build.start"]
        world.play(dutiful, 1)
        assert world.checked == 1
        assert [event.topic for event in world.state.queue] == ["tasks.ready", topic]


class TestDefaults:
    def test_a_hat_that_published_nothing_has_its_default_with_what_it_was_about(self) -> None:
        world = stage()
        world.play(lambda world, hat: Turned() if hat == "builder" else Turned((("tasks.ready", "t-7"),)), 2)
        assert world.state.event.topic == "review.ready"
        assert (world.state.event.payload, world.state.event.by_engine) == ("t-7", True)
        world.play(dutiful, 3)
        assert "`review.ready` from builder, published for it because it published nothing" in world.page

    def test_a_hat_without_one_leaves_it_to_the_coordinator(self) -> None:
        world = stage(hats=(hat("lone", "build.start", "x.y"),))
        world.play(mute, 3)
        assert world.turns == [("lone", "build.start"), (COORDINATOR, "task.resume"), (COORDINATOR, "task.resume")]
        assert world.state.event.payload.count("It was about") == 1

    def test_evidence_is_what_the_engine_saw(self) -> None:
        hats = (hat("builder", "build.start build.blocked", "build.done"), hat("next", "build.done", "LOOP_COMPLETE"))

        def agent(world: Stage, hat: str) -> Turned:
            return Turned((("build.done", "tests: pass lint: pass"),))

        world = stage(checks=CHECK, hats=hats, topics=EVIDENT, required=("build.done",))
        world.play(agent, 2)
        assert world.turns[-1] == ("builder", "build.blocked") and not passed(world, "build.done")
        world.works = True
        world.play(agent, 4)
        assert world.turns[-1] == ("next", "build.done") and passed(world, "build.done")

    def test_a_default_needs_the_same_evidence_and_satisfies_no_gate(self) -> None:
        hats = (
            hat("builder", "build.start build.blocked", "build.done", default_publishes="build.done"),
            hat("next", "build.done", "LOOP_COMPLETE"),
        )
        world = stage(checks=CHECK, hats=hats, topics=EVIDENT, required=("build.done",), max_default_events=0)
        world.play(mute, 2)
        assert world.turns[-1] == ("builder", "build.blocked") and world.checked == 2
        world.works = True
        world.play(mute, 4)
        assert world.turns[-1] == ("next", "build.done") and not passed(world, "build.done")

    def test_red_counts_only_where_the_checks_fail(self) -> None:
        hats = (hat("tester", "build.start test.passes", "test.red"), hat("coder", "test.red", "LOOP_COMPLETE"))
        topics = {"test.red": Topic(evidence=True, otherwise="test.passes", expects_failure=True)}

        def agent(world: Stage, hat: str) -> Turned:
            return Turned((("test.red", "look") if hat == "tester" else ("LOOP_COMPLETE", ""),), files=1)

        world = stage(checks=CHECK, hats=hats, topics=topics, required=("test.red",))
        world.works = True
        world.play(agent, 2)
        assert world.turns[-1] == ("tester", "test.passes") and not passed(world, "test.red")
        assert "The checks pass. Write a test that fails first." in world.state.recent[-1].payload
        world.works = False
        world.play(agent, 3)
        assert passed(world, "test.red")
        world.works = True
        assert world.play(agent, 9).outcome is Outcome.SUCCESS
        assert world.turns[-1] == ("coder", "test.red")

    def test_checks_that_cannot_be_run_are_neither_red_nor_green(self) -> None:
        hats = (hat("tester", "build.start test.passes", "test.red"),)
        topics = {"test.red": Topic(evidence=True, otherwise="test.passes", expects_failure=True)}
        rules = stage(checks=CHECK, hats=hats, topics=topics, required=("test.red",))
        rules.works = None
        rules.play(lambda world, hat: Turned((("test.red", ""),), files=1), 2)
        assert rules.turns[-1] == ("tester", "test.passes") and not passed(rules, "test.red")


class TestLimits:
    def test_exhausted_hat_is_reported_once_and_others_continue(self) -> None:
        hats = tuple(replace(one, max_activations=2) if one.id == "builder" else one for one in HATS)
        world = stage(hats=hats)

        def agent(world: Stage, hat: str) -> Turned:
            if hat == COORDINATOR:
                return Turned((("tasks.ready", "try"),), files=1)
            return Turned((("review.rejected", "no"),) if hat == "critic" else ((PASSING[hat], ""),), files=1)

        world.play(agent, 9)
        assert [who for who, _ in world.turns].count("builder") == 2
        assert world.topics.count("builder.exhausted") == 1
        assert {topic for who, topic in world.turns if who == COORDINATOR} == {
            "review.rejected",
            "builder.exhausted",
            "tasks.ready",
        }

    def test_failures_in_a_row_end_the_run_and_the_event_is_kept(self) -> None:
        world = stage(max_failures=5)
        stop = world.play(lambda world, hat: Turned(end=TurnEnd.FAILED), 9)
        assert stop and stop.outcome is Outcome.FAILED and "5 times" in stop.reason
        assert world.turns == [("planner", "build.start")] and world.state.event.topic == "build.start"

    def test_a_provider_that_does_not_answer_counts_once_for_all_the_waiting(self) -> None:
        world = stage(max_failures=5)
        world.play(lambda world, hat: Turned(end=TurnEnd.OVERLOADED), 4)
        assert (world.state.failures, world.state.outcome) == (4, None)

    def test_a_turn_that_ran_too_long_is_tried_again_with_its_event(self) -> None:
        world = stage()
        world.play(lambda world, hat: Turned(end=TurnEnd.WALL) if len(world.turns) < 3 else dutiful(world, hat), 4)
        assert [who for who, _ in world.turns] == ["planner", "planner", "planner", "builder"]
        assert world.state.activations == {"planner": 1, "builder": 1}

    def test_events_of_an_interrupted_turn_count(self) -> None:
        world = stage()
        world.play(lambda world, hat: Turned((("tasks.ready", "x"),), end=TurnEnd.WALL), 2)
        assert world.turns[-1] == ("builder", "tasks.ready")

    def test_checkpoints_and_a_last_commit(self) -> None:
        world = stage(checkpoint=3, checks=CHECK, works=True)
        world.play(dutiful)
        assert world.commits == [3, 4]

    @pytest.mark.parametrize("checks", [(), CHECK])
    def test_run_that_stopped_before_its_last_commit_is_not_a_failure(self, checks: tuple) -> None:
        world = stage(checkpoint=9, checks=checks, works=True)

        def leave() -> None:
            world.during_commit = lambda: None
            world.tell(RunEnded(Outcome.PAUSED, "Paused by signal", Spent(), Limits()))
            world.state = world.rules.load(world.documents)

        world.during_commit = leave
        stop = world.play(dutiful)
        assert stop and stop.outcome is Outcome.SUCCESS
        assert world.checked == 2 * len(checks) and world.commits[-1] == len(world.turns)

    def test_a_cool_down_passes_before_the_next_turn_unless_the_user_sends_a_message(self) -> None:
        world = stage(cooldown=100.0)
        world.play(dutiful, 1)
        before = world.now
        world.play(dutiful, 2)
        assert world.now - before >= 100.0
        world.says("hurry")
        before = world.now
        world.play(dutiful, 3)
        assert world.now - before < 100.0


class TestPersistent:
    @pytest.mark.parametrize("checks", [(), CHECK])
    def test_a_run_that_has_done_all_waits_for_events_and_guidance(self, checks: tuple) -> None:
        world = stage(persistent=True, checks=checks, works=True, checkpoint=9)
        world.play(dutiful, 4)
        assert (world.state.phase, world.state.outcome, world.topics[-1]) == ("rest", None, "LOOP_COMPLETE")
        assert world.commits == [4]
        assert [told for told in world.notices if "the run waits for more" in told] == world.notices[-1:]
        world.tell(DocumentEdited(world.rules.context.user_events_path, lines(("queue.advance", "one more thing"))))
        world.play(dutiful, 8)
        assert [who for who, _ in world.turns][4:] == ["planner", "builder", "critic", "finalizer"]
        assert world.state.phase == "rest"
        world.says("and another")
        world.play(lambda world, hat: Turned((("human.guidance.ack", ""), ("queue.advance", ""))), 9)
        assert world.turns[-1] == (COORDINATOR, "task.resume")

    def test_the_checks_run_for_an_event_of_the_user_that_arrives_while_the_run_waits_or_completes(self) -> None:
        world = stage(persistent=True, checks=CHECK, works=True, topics=EVIDENT)
        world.play(dutiful, 4)
        path = world.rules.context.user_events_path
        world.tell(DocumentEdited(path, lines(("build.done", "one"))))
        world.play(dutiful, 4)
        assert (world.checked, world.state.event.topic) == (2, "build.done")
        world = stage(persistent=True, checks=CHECK, works=True, topics=EVIDENT)
        world.play(dutiful, 3)
        world.tell(DocumentEdited(path, lines(("build.done", "two"))))
        world.play(dutiful, 4)
        assert (world.checked, world.state.event.payload) == (2, "two")

    def test_required_events_are_required_for_each_piece_of_work(self) -> None:
        hats = tuple(replace(one, default_publishes="review.passed") if one.id == "critic" else one for one in HATS)
        world = stage(persistent=True, hats=hats)
        world.play(dutiful, 4)
        world.tell(DocumentEdited(world.rules.context.user_events_path, lines(("queue.advance", "one more thing"))))
        world.play(lambda world, hat: Turned() if hat == "critic" else dutiful(world, hat), 8)
        assert world.turns[-1] == ("finalizer", "review.passed")
        assert "critic has not published `review.passed`" in world.state.notes[0]

    def test_a_message_that_arrives_during_the_last_commit_is_received(self) -> None:
        world = stage(persistent=True, checkpoint=9)
        world.during_commit = lambda: world.says("and another")
        world.play(dutiful, 4)
        assert world.commits == [4]
        assert (world.state.phase, world.state.event.topic) == ("act", "task.resume")


class TestStale:
    def test_a_mute_ping_pong_is_stuck(self) -> None:
        world = stage(max_default_events=0)
        stop = world.play(mute)
        assert stop and stop.outcome is Outcome.STUCK and len(world.turns) == 8

    def test_three_default_events_of_a_hat_ask_the_user_whatever_others_did(self) -> None:
        world = stage()
        stop = world.play(lambda world, hat: mute(world, hat) if hat == "critic" else dutiful(world, hat))
        assert stop and stop.outcome is Outcome.AWAITING_GUIDANCE
        assert [who for who, _ in world.turns].count("critic") == 3
        assert world.state.event.topic == "review.rejected", "its event waits for the answer"

    def test_a_word_of_its_own_starts_the_count_again(self) -> None:
        def agent(world: Stage, hat: str) -> Turned:
            turns = [who for who, _ in world.turns].count("critic")
            if hat == "critic":
                return Turned() if turns % 3 else Turned((("review.rejected", "no"),))
            return dutiful(world, hat)

        world = stage()
        assert world.play(agent, 30) is None

    def test_a_talkative_one_too(self) -> None:
        """New words each time, and nothing done: what counts is the tree and the queue."""

        def agent(world: Stage, hat: str) -> Turned:
            topic = "review.rejected" if hat == "critic" else PASSING[hat]
            return Turned(((topic, f"attempt {len(world.turns)}"),))

        stop = stage().play(agent)
        assert stop and stop.outcome is Outcome.STUCK

    def test_many_tasks_in_a_healthy_run_are_not(self) -> None:
        """The same topics and payloads a hundred times over; each time a task is closed, or a file changed."""
        count = 60

        def agent(world: Stage, hat: str) -> Turned:
            done = sum(who == "finalizer" for who, _ in world.turns) - (hat == "finalizer")
            if hat == "planner":
                rows = "".join(task(f"task-{n}", "closed" if n < done else "open") for n in range(count))
                return Turned((("tasks.ready", "next"),), tasks=rows)
            if hat == "finalizer":
                rows = "".join(task(f"task-{n}", "closed" if n <= done else "open") for n in range(count))
                return Turned((("LOOP_COMPLETE" if done == count - 1 else "queue.advance", "next"),), tasks=rows)
            return Turned(((PASSING[hat], "same as ever"),))

        world = stage()
        stop = world.play(agent, most=1000)
        assert stop and stop.outcome is Outcome.SUCCESS, stop
        assert len(world.turns) == 4 * count

    def test_a_run_that_was_stuck_can_continue(self) -> None:
        world = stage()
        world.play(mute)
        ended = json.dumps({**json.loads(world.documents[world.rules.context.state_path]), "ended": True})
        state = world.rules.load({world.rules.context.state_path: ended})
        assert (state.phase, state.unchanged_turns, state.outcome) == ("act", 0, None)
        assert state.queue == world.state.queue


class TestPage:
    def test_the_parts_and_their_order(self) -> None:
        settings = replace(CODE_ASSIST, guardrails=("Be kind.", "Be brief."), documents="docs/x/")
        world = stage(settings)
        world.play(lambda world, hat: replace(dutiful(world, hat), tasks=task("task-1", key="a:step-01:b")), 2)
        names = [part.name for part in measure_parts(world.prompt)]
        assert names == ["frame", "guardrails", "objective", "documents", "hat", "ready-tasks", "event-for-you"]
        assert "1. Be kind.\n2. Be brief." in world.page
        assert "1 ready, 1 open, 0 closed\n- [ ] [P3] task-1 (task-1) — key: a:step-01:b" in world.page

    def test_prompt_begins_the_same_for_every_turn_of_a_hat(self) -> None:
        world, pages = stage(), []

        def agent(world: Stage, hat: str) -> Turned:
            pages.extend([world.page] if hat == "builder" else [])
            topic = "review.rejected" if hat == "critic" else PASSING[hat]
            return Turned(((topic, f"about {len(world.turns)}"),), files=1, tasks=task(f"task-{len(world.turns)}"))

        world.play(agent, 6)
        first, second = pages[0].split("<ready-tasks"), pages[1].split("<ready-tasks")
        assert first[0] == second[0] and first[1] != second[1]

    def test_tasks_of_two_steps_at_once_are_pointed_out(self) -> None:
        world = stage()
        rows = task("task-1", key="ca:x:step-01:a") + task("task-2", key="ca:x:step-02:b")
        world.play(lambda world, hat: replace(dutiful(world, hat), tasks=rows), 2)
        assert "Tasks of step-01, step-02 are open. Only the tasks of one step may be open at a time" in world.page

    def test_memories_are_filtered_and_kept_within_their_budget(self) -> None:
        text = "# Memories\n\n## Fixes\n\n" + "".join(
            f"### mem-{n}-aaaa\n> {'long ' * 100}{n}\n<!-- tags: cli | created: 2026-11-{n:02d} -->\n\n"
            for n in range(1, 20)
        )
        world = stage(memories=MemoryUse(budget=600, types=("fix",), tags=("cli",)))
        world.state = replace(world.state, texts={MEMORIES: text})
        world.play(dutiful, 1)
        counts = {part.name: part.tokens for part in measure_parts(world.prompt)}
        assert 300 < counts["memories"] < 650 and "mem-19-" in world.page and "mem-1-" not in world.page
        world = stage(memories=MemoryUse(types=("pattern",)))
        world.state = replace(world.state, texts={MEMORIES: text})
        world.play(dutiful, 1)
        assert "<memories" not in world.page

    def test_event_about_a_task_names_its_title(self) -> None:
        world = stage()
        world.play(lambda world, hat: replace(dutiful(world, hat), tasks=task("task-1")), 1)
        event = QueuedEvent(9, "tasks.ready", '{"task_id": "task-1"}', "planner")
        world.state = replace(world.state, queue=(event,))
        world.play(dutiful, 2)
        assert '{"task_id": "task-1"}\nTask task-1 (open): task-1\n' in world.page

    def test_receivers_and_what_a_default_does_not_stand_for_are_said(self) -> None:
        world = stage()
        world.play(dutiful, 3)
        assert "- `review.passed`: goes to finalizer\n- `review.rejected`: goes to builder" in world.page
        default = "`review.rejected` is published for you, with the payload of your event."
        asks = "After 3 such turns in a row, the run stops and asks the user."
        assert f"{default} {asks}" in world.page
        world = stage(replace(CODE_ASSIST, required=("review.passed", "review.rejected"), max_default_events=0))
        world.play(dutiful, 3)
        assert f"{default} Published like this, it does not count as the required event.\n" in world.page
        settings = replace(CODE_ASSIST, hats=(hat("builder", "build.start", "odd.event"),))
        world = stage(settings)
        world.play(lambda world, hat: Turned(), 1)
        assert "- `odd.event`: goes to the coordinator" in world.page

    def test_hat_prompt_says_how_to_see_changes_since_its_last_turn(self) -> None:
        world = stage()
        trees = {"critic": "a" * 40}
        changed = (TurnChange(3, "builder", 2, 5, 1),)
        world.state = replace(world.state, trees=trees, changed=changed, last_turns={"critic": 2}, snapshot="b" * 40)
        world.state = replace(world.state, queue=(QueuedEvent(9, "review.ready", "look", "builder"),))
        world.play(dutiful, 1)
        assert (
            "- turn 3 (builder): 2 files, +5 -1\nSee all changes since then with `git diff aaaaaaaaaaaa bbbbbbbbbbbb`."
            in world.page
        )

    def test_critic_that_reviews_again_reads_its_last_rejection(self) -> None:
        about, reason = {"task_id": "task-1"}, "greet.py:3 prints nothing without a name; see logs/review.txt"
        script = [
            ("tasks.ready", about),
            ("review.ready", about),
            ("review.rejected", {**about, "reason": reason}),
            ("review.ready", {**about, "reason": "done"}),
            ("review.passed", about),
        ]
        world = stage()
        world.play(lambda world, hat: Turned(events=(script[len(world.turns) - 1],), files=1), 3)
        assert "<your-last-event>" not in world.page, "the critic has published nothing yet"
        world.play(lambda world, hat: Turned(events=(script[len(world.turns) - 1],), files=1), 5)
        assert "In turn 3 you published `review.rejected`:" in world.page and reason in world.page

    def test_coordinator_prompt_says_what_a_payload_must_have(self) -> None:
        topics = {"review.ready": Topic(requires=("task_id", "task_key"))}
        world = stage(replace(CODE_ASSIST, topics=topics))
        world.play(lambda world, hat: Turned() if hat == COORDINATOR else Turned(events=(("odd.event", "?"),)), 2)
        assert "Receives `review.ready` (with task_id, task_key); publishes `review.passed`" in world.page

    def test_only_a_hat_that_may_ask_learns_how(self) -> None:
        asks = hat("builder", "build.start", "review.ready")
        for one, told in ((asks, True), (replace(asks, may_ask=False), False)):
            world = stage(replace(CODE_ASSIST, hats=(one,)))
            world.play(lambda world, hat: Turned(), 1)
            assert ("interact ask" in world.page) is told

    def test_same_memory_is_shown_once(self) -> None:
        text = "# Memories\n\n## Fixes\n\n" + "".join(
            f"### mem-{n}-aaaa\n> Use  tabs\n<!-- tags: cli | created: 2026-11-0{n} -->\n\n" for n in (3, 2, 1)
        )
        world = stage()
        world.state = replace(world.state, texts={MEMORIES: text})
        world.play(dutiful, 1)
        assert world.page.count("Use  tabs") == 1 and "mem-3-" in world.page

    def test_a_long_scratchpad_keeps_to_its_budget(self) -> None:
        world = stage()
        world.state = replace(world.state, texts={".ralph/agent/scratchpad.md": "word " * 20_000, TASKS: task("t")})
        world.play(dutiful, 1)
        counts = {part.name: part.tokens for part in measure_parts(world.prompt)}
        assert counts["scratchpad"] < 4100 and "characters are left out" in world.page
        assert sum(counts.values()) < 11_000


TOPICS = sorted({topic for one in HATS for topic in one.publishes} | {"nonsense", "human.guidance.ack", "build.start"})


@pytest.mark.parametrize("seed", seeds(16, 2))
def test_random_agents_never_complete_what_is_not_done(seed: int) -> None:
    """Whatever hats publish, in whatever scope: success only through every gate, and no event lost or taken twice."""
    for number in range(20):
        chance = random.Random(f"{seed}/{number}")
        scope, checks = chance.random() < 0.5, CHECK if chance.random() < 0.7 else ()
        world = stage(
            checks=checks, enforce_scope=scope, checkpoint=chance.choice([0, 2]), max_failures=chance.choice([2, 9])
        )
        earnest: set[str] = set()

        def agent(
            world: Stage, hat: str, chance: random.Random = chance, earnest: set[str] = earnest, scope: bool = scope
        ) -> Turned:
            if chance.random() < 0.1:
                world.says("a word")
            world.works = chance.random() < 0.4
            own = next((one.publishes for one in HATS if one.id == hat), tuple(TOPICS))
            usual = chance.random() < 0.7
            chosen = chance.choices(own if usual else TOPICS, k=chance.choice([0, 1, 1, 1, 2]))
            if chance.random() < 0.3:
                chosen.append("human.guidance.ack")
            ends = [TurnEnd.FINISHED] * 8 + [TurnEnd.FAILED, TurnEnd.WALL]
            end = chance.choice(ends)
            rows = "".join(
                task(f"task-{n}", chance.choice(["open", "closed", "closed"])) for n in range(chance.choice([0, 1, 2]))
            )
            earnest |= {topic for topic in chosen if not scope or hat == COORDINATOR or topic in own}
            text = chance.choice(["", "", "LOOP_COMPLETE", '<event topic="review.passed">ok</event>'])
            if "<event" in text and (not scope or hat in (COORDINATOR, "critic")):
                earnest.add("review.passed")
            events = tuple((topic, chance.randint(0, 5)) for topic in chosen)
            return Turned(events, text=text, end=end, files=chance.choice([0, 1]), tasks=chance.choice([None, rows]))

        stop = world.play(agent, most=60)
        if stop and stop.outcome is Outcome.SUCCESS:
            assert "review.passed" in earnest
            assert world.works or not checks
            assert not world.state.guidance
            assert not world.rules.context.tasks(world.state).list_unfinished(RUN)
        numbered = {json.loads(line)["topic"] for line in world.log.splitlines()}
        assert numbered <= {*TOPICS, "task.resume"}
        pending = [event.number for event in (*world.state.queue, *world.state.claims)]
        assert len(pending) == len(set(pending)), "an event is in the queue twice"
        taken = set(world.taken)
        promised = sum(topic == "LOOP_COMPLETE" for topic in world.topics)
        assert len(taken | set(pending)) >= world.state.events_published - promised, "an event was lost"
