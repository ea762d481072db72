"""The rules of the loop, by enumeration: every phase with every event, and what must hold for all of them."""

import json
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Check, CheckResult, CheckStatus, Evidence, Grade, Verdict
from ralph.core.errors import StateError, UsageError
from ralph.core.events import (
    ChecksEnded,
    Do,
    DocumentEdited,
    Event,
    RunChecks,
    RunEnded,
    SignalAccepted,
    Stop,
    TurnEnded,
)
from ralph.core.limits import Limits, Spent, Usage, describe_cost
from ralph.core.outcomes import Outcome
from ralph.core.signals import Signal, SignalType
from ralph.core.turns import Change, TurnEnd, TurnRequest, TurnResult
from ralph.workflows.loop import HOME
from ralph.workflows.loop.prompt import NAMES
from ralph.workflows.loop.report import format_duration, render_failures
from ralph.workflows.loop.rules import Loop
from ralph.workflows.loop.state import Iteration, LoopParameters, LoopState, Phase, read_state, render_state

# Written out: a test that imports what it checks cannot fail.
REMEMBERED = 10
QUOTED = 6000

NOW = 1_800_000_000.0
SETTINGS = LoopParameters("261115-093000-k3x9", "`make` passes", 10, NOW, 3600.0)
PROMPTS = {name: (resources.files("ralph.prompts") / f"{name}.md").read_text() for name in NAMES}
LOOP = Loop("fix it", (Check("make"), Check("lint")), PROMPTS, SETTINGS)


def verdict(*statuses: CheckStatus, output: str = "said this") -> Verdict:
    commands = [check.command for check in LOOP.checks]
    results = [
        CheckResult(f"`{command}` passes", status, 0.1, 1, f"it is {status}", output, command=command)
        for command, status in zip(commands, statuses, strict=False)
    ]
    return Verdict(tuple(results))


PASSED = verdict(CheckStatus.PASSED, CheckStatus.PASSED)
FAILED = verdict(CheckStatus.PASSED, CheckStatus.FAILED)
NOT_FOUND = verdict(CheckStatus.FAILED, CheckStatus.NOT_FOUND)
UNRUNNABLE = verdict(CheckStatus.COULD_NOT_RUN, CheckStatus.FAILED)
EMPTY = Verdict(())


def turn(end: TurnEnd = TurnEnd.FINISHED, **values: Any) -> TurnEnded:
    return TurnEnded("iteration-2", 3, "implementer", 1, TurnResult(end, NOW, NOW + 2.0, **values))


def checks(result: Verdict) -> ChecksEnded:
    return ChecksEnded("iteration-2", result)


def ended(outcome: Outcome) -> RunEnded:
    return RunEnded(outcome, "because", Spent(), Limits())


PAST = (Iteration(1, "tried A", "failed", "A is not enough"),)
STATES = {
    "baseline": LoopState("fix it"),
    "first act": LoopState("fix it", Phase.ACT, 1),
    "act": LoopState("fix it", Phase.ACT, 2, PAST, check_results="$ make\n(failed)\nboom"),
    "verify": LoopState("fix it", Phase.VERIFY, 2, PAST, unverified_iteration=Iteration(2, "tried B", "")),
    "verify after a failed turn": LoopState(
        "fix it", Phase.VERIFY, 2, PAST, unverified_iteration=Iteration(2, "tried B", ""), agent_error="exit code 1"
    ),
    "verify, unrunnable twice": LoopState(
        "fix it", Phase.VERIFY, 2, PAST, unverified_iteration=Iteration(2, "B", ""), unrunnable_iterations=2
    ),
    "verify again": LoopState("fix it", Phase.VERIFY, 2, PAST),
    "succeeded": LoopState("fix it", Phase.DONE, 2, PAST, outcome=Outcome.SUCCESS, reason="all checks pass"),
    "failed": LoopState("fix it", Phase.DONE, 2, PAST, outcome=Outcome.FAILED, reason="again and again"),
}
EVENTS: dict[str, Event] = {
    **{f"turn {end}": turn(end) for end in TurnEnd},
    "turn with an answer": turn(answer={"summary": "did B", "learned": "B works", "next": "C"}),
    "passed": checks(PASSED),
    "failed": checks(FAILED),
    "not found": checks(NOT_FOUND),
    "unrunnable": checks(UNRUNNABLE),
    "no checks": checks(EMPTY),
    **{f"signal {kind}": SignalAccepted(Signal("a.yaml", kind)) for kind in SignalType},
    "an edit of a report": DocumentEdited(f"{HOME}/completion-x.md", "notes"),
    "an edit of the state": DocumentEdited(LOOP.state_path, render_state(LoopState("do it well"), SETTINGS)),
    "a broken edit": DocumentEdited(LOOP.state_path, "{"),
    **{f"end {outcome}": ended(outcome) for outcome in Outcome},
}
EVERY_PHASE = pytest.mark.parametrize("state", STATES.values(), ids=list(STATES))


@EVERY_PHASE
class TestEveryPhaseWithEveryEvent:
    def test_only_passing_checks_make_a_success(self, state: LoopState) -> None:
        for name, event in EVENTS.items():
            after = LOOP.accept(state, event, NOW).state
            was = state.outcome is not None and state.outcome.succeeded
            told = isinstance(event, RunEnded) and event.outcome.succeeded
            now = after.phase is Phase.DONE and after.outcome is not None and after.outcome.succeeded
            assert not now or was or told or event == checks(PASSED), name

    def test_no_iteration_is_forgotten_or_counted_back(self, state: LoopState) -> None:
        for name, event in EVENTS.items():
            after = LOOP.accept(state, event, NOW).state
            numbers = [iteration.number for iteration in after.iterations]
            assert after.iteration >= state.iteration, name
            assert numbers[: len(state.iterations)] == [iteration.number for iteration in state.iterations], name

    def test_written_state_is_read_back(self, state: LoopState) -> None:
        for name, event in EVENTS.items():
            transition = LOOP.accept(state, event, NOW)
            if LOOP.state_path in transition.documents:
                read = read_state(transition.documents[LOOP.state_path], "state.json", SETTINGS)
                assert read == transition.state, name
            for path, text in {**transition.documents, **transition.side_files.copies}.items():
                assert path.startswith(f"{HOME}/"), name
                assert text.endswith("\n"), name

    def test_there_is_always_a_decision(self, state: LoopState) -> None:
        for name, event in EVENTS.items():
            after = LOOP.accept(state, event, NOW).state
            decision = LOOP.decide(after, NOW)
            assert isinstance(decision, Do | Stop), name
            assert isinstance(decision, Stop) == (after.phase is Phase.DONE), name

    def test_signals_and_edits_of_other_documents_change_nothing(self, state: LoopState) -> None:
        others = {
            name: event
            for name, event in EVENTS.items()
            if isinstance(event, SignalAccepted)
            or (isinstance(event, DocumentEdited) and event.path != LOOP.state_path)
        }
        assert len({type(event) for event in others.values()}) == 2
        for name, event in others.items():
            transition = LOOP.accept(state, event, NOW)
            assert (transition.state, dict(transition.documents)) == (state, {}), name

    def test_the_same_event_has_the_same_consequences(self, state: LoopState) -> None:
        for name, event in EVENTS.items():
            assert LOOP.accept(state, event, NOW) == LOOP.accept(state, event, NOW), name


class TestTheCycle:
    @pytest.mark.parametrize(
        ("result", "phase", "outcome"),
        [
            (PASSED, Phase.DONE, Outcome.NOTHING_TO_DO),
            (FAILED, Phase.ACT, None),
            (UNRUNNABLE, Phase.ACT, None),
            (NOT_FOUND, Phase.DONE, Outcome.UNVERIFIABLE),
            (EMPTY, Phase.ACT, None),
        ],
        ids=["passed", "failed", "unrunnable", "not found", "no checks"],
    )
    def test_the_baseline(self, result: Verdict, phase: Phase, outcome: Outcome | None) -> None:
        after = LOOP.accept(STATES["baseline"], checks(result), NOW).state
        assert (after.phase, after.outcome) == (phase, outcome)
        assert after.iteration == (1 if phase is Phase.ACT else 0)

    @pytest.mark.parametrize("end", TurnEnd)
    def test_after_a_turn_comes_a_verification_however_it_ended(self, end: TurnEnd) -> None:
        change = Change("b" * 40, files=1)
        after = LOOP.accept(STATES["act"], turn(end, error="boom", change=change), NOW).state
        assert (after.phase, after.iteration) == (Phase.VERIFY, 2)
        assert bool(after.agent_error) == (end in (TurnEnd.FAILED, TurnEnd.IDLE, TurnEnd.INTERRUPTED))
        assert LOOP.decide(after, NOW) == Do((RunChecks("iteration-2", LOOP.checks, is_final=True),))

    def test_an_agent_that_could_not_start_uses_up_no_iteration(self) -> None:
        assert LOOP.accept(STATES["act"], turn(TurnEnd.UNAVAILABLE), NOW).state == STATES["act"]

    @pytest.mark.parametrize(
        ("state", "result", "phase", "outcome"),
        [
            ("verify", PASSED, Phase.DONE, Outcome.SUCCESS),
            ("verify", FAILED, Phase.ACT, None),
            ("verify", UNRUNNABLE, Phase.ACT, None),
            ("verify", EMPTY, Phase.ACT, None),
            ("verify after a failed turn", PASSED, Phase.DONE, Outcome.SUCCESS),
            ("verify after a failed turn", FAILED, Phase.DONE, Outcome.FAILED),
            ("verify, unrunnable twice", UNRUNNABLE, Phase.DONE, Outcome.UNVERIFIABLE),
            ("verify, unrunnable twice", NOT_FOUND, Phase.DONE, Outcome.UNVERIFIABLE),
            ("verify, unrunnable twice", FAILED, Phase.ACT, None),
            ("verify, unrunnable twice", PASSED, Phase.DONE, Outcome.SUCCESS),
            ("verify again", PASSED, Phase.DONE, Outcome.SUCCESS),
        ],
    )
    def test_the_verification(self, state: str, result: Verdict, phase: Phase, outcome: Outcome | None) -> None:
        after = LOOP.accept(STATES[state], checks(result), NOW).state
        assert (after.phase, after.outcome) == (phase, outcome)
        assert after.iteration == (3 if phase is Phase.ACT else 2)

    def test_judge_may_follow_any_number_of_failed_turns(self) -> None:
        state = replace(STATES["verify after a failed turn"], failed_turns=5)
        unproven = replace(PASSED, evidence=Evidence(Grade.UNPROVEN, "why", to_judge=("test_a.py",)), snapshot="abc")
        judged = LOOP.accept(state, checks(unproven), NOW)
        assert (judged.state.phase, judged.notices) == (Phase.JUDGE, ())
        rejected = {"files": [{"path": "test_a.py", "accept": False, "why": "it checks nothing"}]}
        sent_back = LOOP.accept(judged.state, turn(answer=rejected), NOW).state
        assert sent_back.phase is Phase.ACT
        assert isinstance(LOOP.decide(sent_back, NOW), Do)

    def test_checks_that_can_be_run_again_start_the_count_anew(self) -> None:
        state = STATES["verify, unrunnable twice"]
        assert LOOP.accept(state, checks(FAILED), NOW).state.unrunnable_iterations == 0

    def test_iteration_records_the_work_and_its_result(self) -> None:
        result = turn(
            answer={"summary": "did B", "learned": "B works", "next": "C"},
            usage=Usage(1, 2, 0.5),
            change=Change("abc", files=3, added=10, removed=4),
        )
        state = LOOP.accept(STATES["act"], result, NOW).state
        last = LOOP.accept(state, checks(FAILED), NOW).state.iterations[-1]
        assert (last.number, last.action, last.seconds, last.cost) == (2, "did B", 2.0, 0.5)
        assert (last.files, last.added, last.removed, last.passed) == (3, 10, 4, False)
        assert "B works" in last.learnings
        assert "C" in last.learnings
        assert "`lint` failed" in last.result

    @pytest.mark.parametrize(
        ("values", "action"),
        [
            ({"text": "first\n\n  the end \n"}, "the end"),
            ({"error": "exit code 1"}, "exit code 1"),
            ({}, "the agent reported nothing"),
            ({"text": "x" * 1000}, "x" * 300),
        ],
    )
    def test_without_an_answer_the_last_words_count(self, values: dict[str, Any], action: str) -> None:
        pending = LOOP.accept(STATES["act"], turn(**values), NOW).state.unverified_iteration
        assert pending is not None
        assert pending.action == action

    @pytest.mark.parametrize("outcome", Outcome)
    def test_a_run_that_can_continue_keeps_its_phase(self, outcome: Outcome) -> None:
        transition = LOOP.accept(STATES["act"], ended(outcome), NOW)
        assert transition.state.phase is (Phase.ACT if outcome.resumable else Phase.DONE)
        assert transition.state.outcome is outcome
        (report,) = [text for path, text in transition.documents.items() if "completion-" in path]
        assert str(outcome) in report

    @settings(deadline=None, max_examples=60)
    @given(st.lists(st.sampled_from([FAILED, UNRUNNABLE, PASSED]), max_size=30))
    def test_a_whole_run_stays_small_and_ends_where_the_checks_say(self, results: list[Verdict]) -> None:
        state = LOOP.accept(STATES["baseline"], checks(FAILED), NOW).state
        for number, result in enumerate(results, 1):
            if state.phase is Phase.DONE:
                break
            assert (state.phase, state.iteration) == (Phase.ACT, number)
            state = LOOP.accept(state, turn(text="x" * 5000), NOW).state
            state = LOOP.accept(state, checks(result), NOW).state
            assert len(state.iterations) <= REMEMBERED
            assert (state.outcome is Outcome.SUCCESS) == result.passed


class TestLoading:
    def test_without_a_document_the_loop_begins(self) -> None:
        assert LOOP.load({}) == LoopState("fix it")

    @pytest.mark.parametrize("name", ["baseline", "first act", "act", "verify", "verify after a failed turn", "failed"])
    def test_state_after_a_crash_continues_as_it_was(self, name: str) -> None:
        text = render_state(STATES[name], SETTINGS)
        assert LOOP.load({LOOP.state_path: text}) == STATES[name]

    @pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome.resumable])
    @pytest.mark.parametrize("name", ["baseline", "act", "verify"])
    def test_a_resumed_run_continues_in_its_phase(self, name: str, outcome: Outcome) -> None:
        text = LOOP.accept(STATES[name], ended(outcome), NOW).documents[LOOP.state_path]
        after = LOOP.load({LOOP.state_path: text})
        assert (after.phase, after.iteration, after.outcome) == (STATES[name].phase, STATES[name].iteration, None)
        assert after.reason == ""

    def test_a_resumed_run_that_had_given_up_begins_a_new_iteration(self) -> None:
        text = LOOP.accept(STATES["failed"], ended(Outcome.FAILED), NOW).documents[LOOP.state_path]
        after = LOOP.load({LOOP.state_path: text})
        assert (after.phase, after.iteration, after.agent_error) == (Phase.ACT, 2, "")

    @pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.NOTHING_TO_DO])
    @pytest.mark.parametrize("iterations", [(), PAST])
    @pytest.mark.parametrize("is_ended", [False, True])
    def test_a_document_that_claims_success_is_verified(
        self, outcome: Outcome, iterations: tuple[Iteration, ...], is_ended: bool
    ) -> None:
        claim = LoopState("fix it", Phase.DONE, 2, iterations, outcome=outcome, reason="trust me", ended=is_ended)
        after = LOOP.load({LOOP.state_path: render_state(claim, SETTINGS)})
        decision = LOOP.decide(after, NOW)
        assert isinstance(decision, Do) and isinstance(decision.work[0], RunChecks)

    def test_keys_of_others_are_kept(self) -> None:
        text = json.dumps({**json.loads(render_state(STATES["act"], SETTINGS)), "mine": {"a": [1]}, "zzz": None})
        after = LOOP.load({LOOP.state_path: text})
        written = json.loads(LOOP.accept(after, checks(FAILED), NOW).documents[LOOP.state_path])
        assert (written["mine"], written["zzz"]) == ({"a": [1]}, None)

    def test_the_seed_fields_are_there_for_tools_of_others(self) -> None:
        transition = LOOP.accept(STATES["verify"], checks(FAILED), NOW)
        copy = json.loads({**transition.documents, **transition.side_files.copies}[f"{HOME}/current-loop.json"])
        assert {name: copy[name] for name in ("active", "task", "maxIterations", "currentIteration")} == {
            "active": True,
            "task": "fix it",
            "maxIterations": 10,
            "currentIteration": 3,
        }
        assert {"completion", "startTime", "timeoutMinutes", "iterations", "lastResult", "learnings"} <= set(copy)

    @pytest.mark.parametrize(
        "text",
        ["", "null", "[]", "{}", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "task": 7}', "[" * 5000],
        ids=lambda text: text[:24] or "empty",
    )
    def test_unknown_state_is_refused_by_name(self, text: str) -> None:
        with pytest.raises(StateError) as caught:
            LOOP.load({LOOP.state_path: text})
        assert "state.json" in caught.value.where

    def test_the_document_reads_well(self) -> None:
        text = render_state(STATES["act"], SETTINGS)
        assert len(text.splitlines()) >= 10
        assert max(len(line) for line in text.splitlines()) < 300


class TestEdits:
    def edit(self, state: LoopState, **values: Any) -> LoopState:
        text = json.dumps({**json.loads(render_state(state, SETTINGS)), **values})
        return LOOP.accept(state, DocumentEdited(LOOP.state_path, text), NOW).state

    def test_the_task_and_the_notes_are_a_persons_to_change(self) -> None:
        notes = [{"number": 1, "action": "x", "result": "y", "learnings": "look at B"}]
        after = self.edit(STATES["act"], task="do it well", iterations=notes, mine=1)
        assert (after.task, after.iterations[0].learnings, after.extra) == ("do it well", "look at B", {"mine": 1})
        assert (after.iterations[0].action, after.iterations[0].result) == ("tried A", "failed")

    def test_fields_of_an_earlier_version_are_read_and_not_kept_as_the_users_own(self) -> None:
        state = replace(
            STATES["act"],
            snapshot_given_to_judge="abc",
            unrunnable_iterations=2,
            unverified_iteration=Iteration(2, "B", "", hit_provider_limit=True),
        )
        data = json.loads(LOOP.accept(state, ended(Outcome.PAUSED), NOW).documents[LOOP.state_path])
        for new, former in (
            ("check_results", "failure"),
            ("snapshot_given_to_judge", "judged_snapshot"),
            ("unrunnable_iterations", "unverified"),
            ("unverified_iteration", "pending"),
        ):
            data[former] = data.pop(new)
        data["pending"]["is_cut_off"] = data["pending"].pop("hit_provider_limit")
        loaded = LOOP.load({LOOP.state_path: json.dumps(data)})
        assert (loaded.check_results, loaded.snapshot_given_to_judge, loaded.extra) == (state.check_results, "abc", {})
        assert (loaded.unrunnable_iterations, loaded.unverified_iteration) == (2, state.unverified_iteration)

    @pytest.mark.parametrize(
        "values",
        [
            {"phase": "done", "outcome": "success"},
            {"iteration": 99},
            {"iterations": []},
            {"unrunnable_iterations": 7},
            {"agent_error": "x"},
            {"ended": True},
            {"check_results": ""},
        ],
        ids=str,
    )
    def test_phase_counters_and_verdicts_stay_the_engines(self, values: dict[str, Any]) -> None:
        assert self.edit(STATES["act"], **values) == STATES["act"]


class TestThePrompt:
    def prompt(self, state: LoopState, loop: Loop = LOOP) -> str:
        decision = loop.decide(state, NOW)
        assert isinstance(decision, Do)
        (request,) = decision.work
        assert isinstance(request, TurnRequest)
        assert (request.is_iteration, request.key) == (True, f"iteration-{state.iteration}")
        return request.prompt.text

    def test_prompt_has_the_task_the_checks_the_failure_and_the_lessons(self) -> None:
        prompt = self.prompt(STATES["act"])
        for part in ("fix it", "`make`", "`lint`", "iteration 2 of 10", "boom", "A is not enough"):
            assert part in prompt

    def test_text_of_a_task_is_never_read_as_a_variable(self) -> None:
        assert "{{failure}} {{nonsense}}" in self.prompt(replace(STATES["act"], task="{{failure}} {{nonsense}}"))

    def test_an_unknown_variable_in_a_template_is_refused(self) -> None:
        with pytest.raises(UsageError, match="tusk"):
            self.prompt(STATES["act"], replace(LOOP, prompts={**PROMPTS, "loop-actor": "{{tusk}}"}))

    @settings(deadline=None, max_examples=50)
    @given(st.integers(1, 8), st.integers(0, 20_000))
    def test_the_quoted_failure_is_bounded_however_many_checks_fail(self, number: int, size: int) -> None:
        results = tuple(CheckResult("make", CheckStatus.FAILED, 0.1, 1, "", "x" * size) for _ in range(number))
        assert len(render_failures(Verdict(results))) <= QUOTED + 400 * number


class TestTheReport:
    def report(self, state: LoopState, outcome: Outcome = Outcome.SUCCESS) -> str:
        documents = LOOP.accept(state, ended(outcome), NOW).documents
        return next(text for path, text in documents.items() if "completion-" in path)

    def test_output_with_fences_of_its_own_stays_inside(self) -> None:
        state = LOOP.accept(STATES["verify"], checks(verdict(CheckStatus.PASSED, output="```\n# heading\n````\n")), NOW)
        report = self.report(state.state)
        assert "`````\n$ make" in report

    def test_pipes_and_lines_do_not_break_the_table(self) -> None:
        state = replace(STATES["act"], iterations=(Iteration(1, "a | b\nc", "x | y"),))
        (row,) = [line for line in self.report(state).splitlines() if line.startswith("| 1 |")]
        assert "a \\| b c" in row

    def test_report_says_what_to_type_next(self) -> None:
        assert "ralph diff" in self.report(STATES["act"])
        assert "ralph resume" in self.report(STATES["act"], Outcome.PAUSED)
        assert "ralph resume" not in self.report(STATES["act"], Outcome.ABORTED)

    @pytest.mark.parametrize(
        ("seconds", "said"), [(0.0, "0.0 s"), (59.94, "59.9 s"), (61.0, "1 min 1 s"), (3661.0, "1 h 1 min")]
    )
    def test_spans_of_time_are_said_as_people_do(self, seconds: float, said: str) -> None:
        assert format_duration(seconds) == said

    def test_money_is_said_honestly(self) -> None:
        assert describe_cost(Spent(turns=2, cost=0.5)) == "$0.5000"
        assert "unknown" in describe_cost(Spent(turns=2, unpriced_turns=2))
        assert "at least $0.5000" in describe_cost(Spent(turns=2, cost=0.5, unpriced_turns=1))
