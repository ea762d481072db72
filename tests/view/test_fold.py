"""The fold is pure and incremental: wherever a journal is cut and the view stored, the rest leads to the same view."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journals import journals

from ralph.core.checks import CheckResult, CheckStatus, Finding, Rule, Severity, Verdict
from ralph.core.codec import from_plain, to_plain
from ralph.core.entries import NAMES, Record, RunStarted
from ralph.core.events import ChecksEnded, RunEnded
from ralph.core.limits import Limits, Spent, Usage
from ralph.core.outcomes import Outcome
from ralph.core.turns import AgentEvent, EventKind, FileStat
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord
from ralph.view.attention import Present, assess, row_of
from ralph.view.fold import _STEPS, fold, fold_all, fold_event, new_view
from ralph.view.json_form import from_json, to_json
from ralph.view.model import GROUPS, RunView

SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


def empty_view() -> RunView:
    record = RunRecord(
        id="261117-093000-k3x9",
        workflow="session",
        task="Fix the cart",
        criterion="`pytest` passes",
        checks=(),
        agents=AgentSelection((AgentSpec("scripted"),)),
        created_at=1000.0,
    )
    return new_view(record, "/project")


def stored_and_read(view: RunView) -> RunView:
    return from_plain(RunView, json.loads(json.dumps(to_plain(view))))


def check_every_cut(records: list[Record]) -> None:
    whole = fold_all(empty_view(), records)
    prefix = empty_view()
    for cut in range(len(records) + 1):
        assert fold_all(stored_and_read(prefix), records[cut:]) == whole
        if cut < len(records):
            prefix = fold(prefix, records[cut])


def test_every_kind_of_entry_has_a_step() -> None:
    assert set(_STEPS) == set(NAMES.values())


@settings(max_examples=150, **SETTINGS)
@given(journals())
def test_a_journal_cut_anywhere_leads_to_the_same_view(records: list[Record]) -> None:
    check_every_cut(records)


@pytest.mark.slow
@settings(max_examples=1000, **SETTINGS)
@given(journals(most=30))
def test_a_thousand_journals_cut_anywhere_lead_to_the_same_view(records: list[Record]) -> None:
    check_every_cut(records)


@settings(max_examples=150, **SETTINGS)
@given(journals(), st.booleans(), st.floats(900, 9000))
def test_every_view_can_be_assessed_and_is_the_same_after_json(records: list[Record], alive: bool, now: float) -> None:
    view = assess(fold_all(empty_view(), records), Present(now=now, alive=alive))
    assert view.headline
    assert "\n" not in view.headline
    assert view.group == GROUPS[view.attention]
    assert from_json(json.loads(json.dumps(to_json(view)))) == view
    assert row_of(view).headline == view.headline


@settings(max_examples=50, **SETTINGS)
@given(journals())
def test_folding_changes_no_earlier_view(records: list[Record]) -> None:
    views = [empty_view()]
    for record in records:
        views.append(fold(views[-1], record))
    before = [json.dumps(to_plain(view)) for view in views]
    fold_all(views[0], records)
    assert [json.dumps(to_plain(view)) for view in views] == before


@settings(max_examples=50, **SETTINGS)
@given(journals(most=30))
def test_sums_by_role_agent_and_model_are_the_total(records: list[Record]) -> None:
    cost = fold_all(empty_view(), records).cost
    for groups in (cost.by_role, cost.by_agent, cost.by_model):
        assert sum(group.sums.turns for group in groups) == cost.total.turns
        assert sum(group.sums.input_tokens for group in groups) == cost.total.input_tokens
        known = [group.sums.cost for group in groups if group.sums.cost is not None]
        assert round(sum(known), 6) == round(cost.total.cost or 0.0, 6)


def test_events_of_an_agent_are_added_to_its_running_turn(start_turn: Callable[[int], Record]) -> None:
    view = fold(empty_view(), start_turn(1))
    view = fold_event(view, 1, AgentEvent(EventKind.TOOL, "Bash: pytest -q"), at=1005.0)
    view = fold_event(view, 1, AgentEvent(EventKind.USAGE, usage=Usage(10, 5, cost=0.2)), at=1006.0)
    view = fold_event(view, 9, AgentEvent(EventKind.TEXT, "of no known turn"), at=1007.0)
    activity = view.turns[0].activity
    assert activity is not None
    assert (activity.events, activity.tools, activity.kind, activity.text) == (2, 1, "tool", "Bash: pytest -q")
    assert (activity.at, activity.usage.cost) == (1006.0, 0.2)


def test_only_work_that_passes_without_a_proof_can_be_accepted() -> None:
    passed = CheckResult("`pytest` passes", CheckStatus.PASSED, 1.0)
    failed = CheckResult("`pytest` passes", CheckStatus.FAILED, 1.0)
    finding = Finding(Rule.TEST_SKIPPED, "test_a.py", 1, "it is skipped", severity=Severity.ERROR)
    verdicts = {
        "held up by a guard": Verdict((passed,), (finding,), snapshot="abc"),
        "failed": Verdict((failed,), (finding,), snapshot="abc"),
        "proven": Verdict((passed,), snapshot="abc"),
    }
    view, found = empty_view(), {}
    for seq, (name, verdict) in enumerate(verdicts.items(), start=1):
        view = fold(view, Record(seq, 1000.0, ChecksEnded("iteration-1", verdict, Spent())))
        found[name] = view.unproven_snapshot
    assert found == {"held up by a guard": "abc", "failed": "", "proven": ""}


def test_files_of_the_last_end_are_known_while_the_run_continues() -> None:
    end = RunEnded(Outcome.STUCK, "because", Spent(), Limits(), files=(FileStat("a.py", 1, 0),))
    view = fold(empty_view(), Record(1, 2000.0, end))
    view = fold(view, Record(2, 3000.0, RunStarted(1, "1", "r", {}, resumed=True)))
    assert (view.ended, view.changed_files, view.changed_at) == (None, ("a.py",), 2000.0)


def test_long_runs_list_their_newest_turns_and_add_up_all(start_turn: Callable[[int], Record]) -> None:
    view = empty_view()
    for number in range(1, 703):
        view = fold(view, start_turn(number))
    assert (len(view.turns), view.more_turns, view.turns[0].number) == (500, 202, 203)
