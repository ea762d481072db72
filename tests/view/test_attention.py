"""Which runs need the user first, and the one sentence about each: rules as tables."""

import re
from dataclasses import replace

import pytest
from test_fold import empty_view

from ralph.core.checks import CheckResult, CheckStatus, FailureSet, Finding, HistoryChange, Rule, Verdict
from ralph.core.entries import (
    ChecksStarted,
    Entry,
    HistoryChanged,
    MergeStarted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RunStarted,
    SignalReceived,
)
from ralph.core.events import (
    ChecksEnded,
    Landed,
    MergeEnded,
    MergeResult,
    RunEnded,
    SignalAccepted,
    TaskChanged,
    TaskState,
    TurnEnded,
    TurnStarted,
)
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.signals import Question, Signal, SignalType
from ralph.core.turns import AgentEvent, EventKind, TurnEnd, TurnResult
from ralph.view.attention import Present, assess
from ralph.view.fold import fold_all, fold_event
from ralph.view.json_form import to_json
from ralph.view.labels import shorten_agent
from ralph.view.model import NeedKind, RunView, Tier
from ralph.view.rows import order_key

START = RunStarted(pid=1, version="1", run="r", frozen={})
TURN = TurnStarted(1, "iteration-1", "implementer", attempt=1, agent="scripted", is_iteration=True)
QUESTION = QuestionAsked(
    Question("q1", "Which database?", ("sqlite", "postgres"), asked_at=1000.0, timeout=600.0, role="implementer")
)
STEER = SignalAccepted(Signal("s1", SignalType.STEER, "use httpx"))
LONG_AGO, NOW = 1000.0, 1100.0


def ended(outcome: Outcome, reason: str = "because") -> RunEnded:
    return RunEnded(outcome, reason, Spent(iterations=2), Limits())


def turn_ended(end: TurnEnd = TurnEnd.LIMITED, **facts: object) -> TurnEnded:
    result = TurnResult(end, 1000.0, 1001.0)
    return TurnEnded("iteration-1", 1, "implementer", 1, result, **facts)  # type: ignore[arg-type]


def verdict(*statuses: CheckStatus, digest: str = "", failing: tuple[str, ...] = ()) -> Verdict:
    results = [
        CheckResult(
            title=f"`check-{number}` passes",
            status=status,
            seconds=1.0,
            command=f"check-{number}",
            failing=failing,
            failures=FailureSet(1.0, digest) if digest else None,
        )
        for number, status in enumerate(statuses, 1)
    ]
    return Verdict(tuple(results))


def view_of(
    *entries: Entry,
    alive: bool = True,
    now: float = NOW,
    branch: str = "",
    limits: Limits | None = None,
    workflow: str = "session",
) -> RunView:
    records = [Record(number, LONG_AGO, entry) for number, entry in enumerate(entries, 1)]
    empty = empty_view()
    empty = replace(empty, run=replace(empty.run, branch=branch), workflow=workflow, allowed=limits or empty.allowed)
    facts = fold_all(empty, records)
    return assess(facts, Present(now=now, alive=alive, missing=facts.missing))


PASS, FAIL = CheckStatus.PASSED, CheckStatus.FAILED
CONFLICT = MergeEnded("merge-task-1-1-1", "task-1/1", MergeResult.CONFLICT, branch="ralph/r/task-1/1", files=("a.py",))
TASK_FAILED = TaskChanged("task-1", "Parser", TaskState.FAILED)


@pytest.mark.parametrize("outcome", [Outcome.LIMIT_ITERATIONS, Outcome.AWAITING_GUIDANCE, Outcome.UNPROVEN])
def test_work_that_only_the_guards_hold_up_can_be_accepted(outcome: Outcome) -> None:
    finding = Finding(Rule.OUT_OF_SCOPE, "notes.txt", 1, "the run may not change this file")
    passes, fails = verdict(PASS), verdict(PASS, FAIL)
    held = _view_of_loop(replace(passes, findings=(finding,)), outcome)
    assert (held.needs[0].options, held.needs[0].findings) == (
        ("accept",),
        ("`notes.txt:1`: the run may not change this file",),
    )
    failed = _view_of_loop(replace(fails, findings=(finding,)), outcome)
    assert failed.needs[0].findings == ()


def _view_of_loop(found: Verdict, outcome: Outcome) -> RunView:
    return view_of(START, ChecksEnded("iteration-1", found), ended(outcome), alive=False, workflow="loop")


@pytest.mark.parametrize(
    ("entries", "alive", "tier", "state"),
    [
        ((), False, Tier.WAITING, "new"),
        ((START,), True, Tier.WORKING, "running"),
        ((START, TURN), True, Tier.WORKING, "running"),
        ((START, TURN), False, Tier.FAILED, "interrupted"),
        ((START, TURN, QUESTION), True, Tier.ASKS, "running"),
        ((START, TURN, QUESTION), False, Tier.FAILED, "interrupted"),
        ((START, TURN, QUESTION, QuestionAnswered("q1", "sqlite", "person")), True, Tier.WORKING, "running"),
        ((START, ended(Outcome.AWAITING_APPROVAL)), False, Tier.ASKS, "awaiting-approval"),
        ((START, ended(Outcome.AWAITING_FEEDBACK)), False, Tier.ASKS, "awaiting-feedback"),
        ((START, ended(Outcome.AWAITING_GUIDANCE)), False, Tier.ASKS, "awaiting-guidance"),
        ((START, ended(Outcome.STUCK)), False, Tier.FAILED, "stuck"),
        ((START, ended(Outcome.FAILED)), False, Tier.FAILED, "failed"),
        ((START, ended(Outcome.BLOCKED)), False, Tier.FAILED, "blocked"),
        ((START, ended(Outcome.UNVERIFIABLE)), False, Tier.FAILED, "unverifiable"),
        ((START, ended(Outcome.LIMIT_COST)), False, Tier.FAILED, "limit-cost"),
        ((START, ended(Outcome.INTERRUPTED)), False, Tier.FAILED, "interrupted"),
        ((START, ended(Outcome.PAUSED)), False, Tier.WAITING, "paused"),
        ((START, ended(Outcome.ABORTED)), False, Tier.DONE, "aborted"),
        ((START, ended(Outcome.SUCCESS)), False, Tier.DONE, "success"),
        ((START, ended(Outcome.NOTHING_TO_DO)), False, Tier.DONE, "nothing-to-do"),
        ((START, ended(Outcome.STUCK), START), True, Tier.WORKING, "running"),
        ((START, TURN, turn_ended(retry_at=2000.0)), True, Tier.WAITING, "waiting"),
        ((START, TURN, turn_ended(retry_at=1050.0)), True, Tier.WORKING, "running"),
        ((START, CONFLICT), True, Tier.WORKING, "running"),
        ((START, CONFLICT, TASK_FAILED), True, Tier.FAILED, "running"),
        ((START, CONFLICT, replace(TASK_FAILED, state=TaskState.DONE)), True, Tier.WORKING, "running"),
        ((START, TURN, STEER), True, Tier.WATCH, "running"),
        ((START, TURN, STEER, SignalReceived("s1", 1, "implementer", "hook")), True, Tier.WORKING, "running"),
    ],
)
def test_the_tier_follows_from_the_facts(entries: tuple[Entry, ...], alive: bool, tier: Tier, state: str) -> None:
    view = view_of(*entries, alive=alive)
    assert (view.attention, view.state) == (tier, state)


def test_work_on_a_branch_of_the_run_waits_to_be_landed() -> None:
    done = (START, ended(Outcome.SUCCESS))
    assert view_of(*done, alive=False, branch="ralph/r").attention is Tier.UNLANDED
    assert view_of(*done, alive=False, branch="ralph/r").next == "ralph land 261117-093000-k3x9"
    landed = Landed("abc", "main", moved=True)
    assert view_of(*done, landed, alive=False, branch="ralph/r").attention is Tier.DONE


def test_missing_work_of_the_user_needs_attention_though_the_run_succeeded() -> None:
    lost = HistoryChanged(1, HistoryChange(missing=("branch topic was deleted: git branch topic abc",)))
    success = replace(ended(Outcome.SUCCESS), missing=lost.change.missing)
    view = view_of(START, lost, success, alive=False)
    assert view.attention is Tier.FAILED
    assert [need.kind for need in view.needs] == [NeedKind.MISSING]
    assert "git branch topic abc" in view.needs[0].text


@pytest.mark.parametrize(
    ("limits", "spent", "reason"),
    [
        (Limits(cost=1.0), Spent(cost=0.81), "81% of the cost limit is used"),
        (Limits(tokens=1000), Spent(input_tokens=900), "90% of the token limit is used"),
        (Limits(active_seconds=100.0), Spent(active_seconds=95.0), "95% of the time limit is used"),
        (Limits(cost=1.0), Spent(cost=0.8), ""),
        (Limits(iterations=10), Spent(iterations=10), ""),
    ],
)
def test_a_nearly_used_budget_deserves_a_look(limits: Limits, spent: Spent, reason: str) -> None:
    view = view_of(START, TURN, turn_ended(spent=spent), limits=limits)
    assert view.reasons == ((reason,) if reason else ())
    assert view.attention is (Tier.WATCH if reason else Tier.WORKING)


def test_a_silent_agent_deserves_a_look_until_it_reports_something() -> None:
    records = [Record(1, 1000.0, START), Record(2, 1000.0, TURN)]
    facts = fold_all(empty_view(), records)
    silent = assess(facts, Present(now=1200.0, alive=True))
    assert (silent.attention, silent.reasons) == (Tier.WATCH, ("turn 1 (implementer) has been silent for 3 min",))
    spoke = fold_event(facts, 1, AgentEvent(EventKind.TEXT, "reading"), at=1150.0)
    assert assess(spoke, Present(now=1200.0, alive=True)).attention is Tier.WORKING


def test_the_time_of_a_turn_in_progress_counts() -> None:
    facts = fold_all(empty_view(), [Record(1, 1000.0, START), Record(2, 1000.0, TURN)])
    used = {alive: assess(facts, Present(now=1600.0, alive=alive)).limits for alive in (True, False)}
    assert [one.used for one in used[True] if one.name == "time"] == [600.0]
    assert [one.used for one in used[False] if one.name == "time"] == [0.0], (
        "its engine is gone, since when is not known"
    )


def test_message_that_no_turn_received_is_named_after_a_minute() -> None:
    assert view_of(START, TURN, STEER, now=1059.0).attention is Tier.WORKING
    late = view_of(START, TURN, STEER, now=1061.0)
    assert late.attention is Tier.WATCH
    assert late.reasons[0].startswith("no turn has received your message of ")


def test_a_question_is_needed_with_its_text_choices_and_command() -> None:
    need = view_of(START, TURN, QUESTION).needs[0]
    assert (need.kind, need.text, need.options) == (NeedKind.QUESTION, "Which database?", ("sqlite", "postgres"))
    assert need.command == 'ralph answer q1 "..." --run 261117-093000-k3x9'
    assert need.until == 1600.0


def test_a_question_whose_time_is_over_is_not_open() -> None:
    assert view_of(START, TURN, QUESTION, now=1601.0).needs == ()


def test_a_conflict_is_needed_with_its_files_and_branch() -> None:
    need = view_of(START, CONFLICT, TASK_FAILED).needs[0]
    assert (need.kind, need.files, need.branch) == (NeedKind.CONFLICT, ("a.py",), "ralph/r/task-1/1")
    assert need.text == "task-1 has a merge conflict: a.py"


def test_a_conflict_of_a_follow_up_task_ends_when_the_task_is_done() -> None:
    conflict = replace(CONFLICT, key="merge-task-4_1-1-1", worktree="task-4_1/1")
    failed = replace(TASK_FAILED, task="task-4.1")
    assert view_of(START, failed, conflict).needs[0].text == "task-4.1 has a merge conflict: a.py"
    assert view_of(START, failed, conflict, replace(failed, state=TaskState.DONE)).needs == ()


def test_a_run_that_ended_on_a_limit_names_the_option_that_raises_it() -> None:
    view = view_of(START, replace(ended(Outcome.LIMIT_ITERATIONS), limits=Limits(iterations=2)), alive=False)
    assert view.next == "ralph resume 261117-093000-k3x9 --max-iterations 4"


RED_1 = ChecksEnded("iteration-1", verdict(PASS, FAIL, digest="d1", failing=("test_cart",)))
RED_2 = ChecksEnded("iteration-2", verdict(PASS, FAIL, digest="d1", failing=("test_cart",)))
OTHER = ChecksEnded("iteration-2", verdict(PASS, FAIL, digest="d2", failing=("test_total", "test_tax", "test_sum")))
SECOND = replace(TURN, turn=2, key="iteration-2")
BASELINE = ChecksEnded("baseline", verdict(FAIL, digest="d0"))
FINDING = Finding(Rule.TEST_SKIPPED, "test_a.py", 3, "test_cart is skipped now")
GAMED = ChecksEnded("iteration-1", replace(verdict(PASS, PASS), findings=(FINDING,)))


@pytest.mark.parametrize(
    ("entries", "alive", "headline"),
    [
        ((), False, "not started yet"),
        ((START,), True, "starting"),
        ((START, ChecksStarted("baseline", ("a", "b"))), True, "checking 2 conditions"),
        ((START, BASELINE, TURN), True, "iteration 1 of 10: turn 1 (implementer); `check-1` fails"),
        ((START, TURN, RED_1), True, "iteration 1 of 10: turn 1 (implementer); 1 of 2 checks pass; `check-2` fails in test_cart"),
        (
            (START, TURN, turn_ended(), RED_1, SECOND, replace(turn_ended(), turn=2), RED_2),
            True,
            "iteration 2 of 10; 1 of 2 checks pass; `check-2` fails in test_cart (same as iteration 1)",
        ),
        (
            (START, TURN, turn_ended(), RED_1, OTHER),
            True,
            "iteration 1 of 10; 1 of 2 checks pass; `check-2` fails in test_total, test_tax and 1 more",
        ),
        ((START, TURN, turn_ended(), GAMED), True,
         "iteration 1 of 10; all 2 checks pass, but 1 finding: `test_a.py:3`: test_cart is skipped now"),
        ((START, TURN, QUESTION), True, "implementer asks: Which database?"),
        ((START, TURN), False, "the engine stopped during turn 1 (implementer)"),
        ((START, RED_1, ended(Outcome.STUCK, "no progress")), False,
         "stuck: no progress; 1 of 2 checks pass; `check-2` fails in test_cart"),
        ((START, ChecksEnded("iteration-2", verdict(PASS, PASS)), ended(Outcome.SUCCESS)), False,
         "done: all 2 checks pass after 2 iterations"),
        ((START, ended(Outcome.SUCCESS)), False, "done, without checks after 2 iterations"),
        ((START, ended(Outcome.NOTHING_TO_DO)), False, "nothing to do: the checks passed before the first turn"),
        ((START, ended(Outcome.LIMIT_ITERATIONS, "the limit of 2 iterations was reached")), False,
         "the limit of 2 iterations was reached"),
        ((START, ended(Outcome.ABORTED, "aborted by the user")), False, "aborted by the user"),
        (
            (START, TaskChanged("task-1", "A", TaskState.DONE, wave=1), TaskChanged("task-2", "B", TaskState.PLANNED, wave=2)),
            True,
            "wave 2 of 2, 1 of 2 tasks done",
        ),
        ((START, MergeStarted("merge-task-1-1-1", "task-1/1")), True, "merging task-1"),
    ],
)  # fmt: skip
def test_the_headline_is_one_sentence_by_rule(entries: tuple[Entry, ...], alive: bool, headline: str) -> None:
    assert view_of(*entries, alive=alive).headline == headline


def test_a_waiting_run_says_until_when_and_why() -> None:
    limited = view_of(START, TURN, turn_ended(retry_at=2000.0, retry_reason="waiting for the provider's limit"))
    assert re.match(r"waits for the provider's limit until \d\d:\d\d; ", limited.headline)
    busy = view_of(START, TURN, turn_ended(TurnEnd.OVERLOADED, retry_at=2000.0, retry_reason="the model is busy"))
    assert re.match(r"waits until \d\d:\d\d: the model is busy; ", busy.headline)


def test_a_check_knows_since_when_it_fails_and_what_the_work_did_to_it() -> None:
    broken = ChecksEnded("iteration-1", verdict(FAIL))
    fixed = ChecksEnded("iteration-2", verdict(PASS))
    view = view_of(START, ChecksEnded("baseline", verdict(PASS)), broken, replace(broken, key="iteration-2"))
    check = view.checks[0]
    assert (check.attribution, check.since and check.since.key, check.runs) == ("regressed", "iteration-1", 3)
    assert [point.iteration for point in check.history] == [0, 1, 2]
    assert view_of(START, BASELINE, fixed).checks[0].attribution == "fixed"


def test_a_finding_is_closed_when_the_checks_pass_without_it() -> None:
    clean = ChecksEnded("iteration-2", verdict(PASS, PASS))
    red = ChecksEnded("iteration-2", verdict(PASS, FAIL))
    assert [one.is_open for one in view_of(START, GAMED).findings] == [True]
    assert [one.is_open for one in view_of(START, GAMED, clean).findings] == [False]
    assert [one.is_open for one in view_of(START, GAMED, red).findings] == [True]
    assert [one.is_open for one in view_of(START, GAMED, clean, GAMED).findings] == [True]


def test_runs_are_listed_by_tier_and_then_by_how_long_they_wait() -> None:
    views = {
        "new failure": (Tier.FAILED, 200.0),
        "old failure": (Tier.FAILED, 100.0),
        "question": (Tier.ASKS, 300.0),
        "working": (Tier.WORKING, 1.0),
        "done long ago": (Tier.DONE, 1.0),
        "done just now": (Tier.DONE, 9.0),
    }
    rows = [
        {"id": name, "attention": tier, "since": since, "created_at": 0.0, "group": "done" if tier is Tier.DONE else ""}
        for name, (tier, since) in views.items()
    ]
    ordered = [row["id"] for row in sorted(rows, key=order_key)]
    assert ordered == ["question", "old failure", "new failure", "working", "done just now", "done long ago"]


def test_the_json_form_has_its_version_and_every_field() -> None:
    data = to_json(view_of(START, TURN))
    assert data["schema"] == 1
    assert data["turns"][0]["error"] == ""
    assert data["attention"] == 3


def test_running_session_that_waits_for_an_approval_needs_the_user() -> None:
    facts = replace(fold_all(empty_view(), [Record(1, LONG_AGO, START, {})]), workflow="session")
    view = assess(facts, Present(now=NOW, alive=True, asks_for_approval=True))
    assert view.attention is Tier.ASKS
    assert view.next == f"ralph session approve {view.run.id}"
    assert "approval" in view.headline
    assert assess(facts, Present(now=NOW, alive=True)).attention is Tier.WORKING


@pytest.mark.parametrize("outcome", [Outcome.AWAITING_FEEDBACK, Outcome.AWAITING_APPROVAL, Outcome.SUCCESS])
def test_session_with_feedback_is_to_be_resumed(outcome: Outcome) -> None:
    ended = Record(2, LONG_AGO + 1, RunEnded(outcome, "failed: task-5", Spent(), Limits()), {})
    facts = replace(fold_all(empty_view(), [Record(1, LONG_AGO, START, {}), ended]), workflow="session")
    before = assess(facts, Present(now=NOW, feedback_at=LONG_AGO))
    assert "session resume" not in before.next
    after = assess(facts, Present(now=NOW, feedback_at=LONG_AGO + 2))
    assert (after.attention, after.next) == (Tier.ASKS, f"ralph session resume {after.run.id}")
    assert "your feedback" in after.headline


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        ("claude (opus)", "claude (opus)"),
        ("/usr/bin/python3 -I /home/ann/agent.py", "python3 -I agent.py"),
        ("/venv/bin/python -P -m ralph.callable_agent /home/ann/my agents.py write_cart", "write_cart()"),
        ("sh -c 'a command that is longer than the column'", "sh -c 'a command that i…"),
    ],
)
def test_tables_show_agents_without_directories(agent: str, shown: str) -> None:
    assert shorten_agent(agent, 24) == shown
