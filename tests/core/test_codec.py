"""Dataclasses to JSON and back: what was written is read, and what is wrong is named."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Check, Verdict
from ralph.core.codec import from_plain, to_plain
from ralph.core.entries import ENTRY_TYPES, NAMES, MergeStarted
from ralph.core.errors import RalphError, StateError
from ralph.core.events import MergeEnded, TurnStarted
from ralph.core.signals import Signal
from ralph.core.turns import AgentEvent
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord, TreeSettings
from ralph.workflows.hats.state import HatsState, Wave, WaveWorker
from ralph.workflows.loop.state import LoopState
from ralph.workflows.merge_rules import Queue, QueuedMerge
from ralph.workflows.session.state import Flow, TaskFlow


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    name: str
    size: int = 0


@dataclass(frozen=True)
class Outer:
    count: int
    ratio: float = 0.5
    colour: Colour = Colour.RED
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    names: Mapping[str, int] = field(default_factory=dict)
    anything: Mapping[str, Any] | None = None
    flag: bool = False


outers = st.builds(
    Outer,
    count=st.integers(),
    ratio=st.floats(allow_nan=False),
    colour=st.sampled_from(Colour),
    inner=st.none() | st.builds(Inner, st.text(), st.integers()),
    many=st.lists(st.builds(Inner, st.text(), st.integers()), max_size=3).map(tuple),
    names=st.dictionaries(st.text(), st.integers(), max_size=3),
    anything=st.none() | st.dictionaries(st.text(), st.none() | st.integers() | st.lists(st.text()), max_size=3),
    flag=st.booleans(),
)


@settings(deadline=None)
@given(outers)
def test_values_survive_json(value: Outer) -> None:
    assert from_plain(Outer, json.loads(json.dumps(to_plain(value)))) == value


def test_defaults_are_left_out_and_made_up_for() -> None:
    assert to_plain(Outer(1)) in ({"count": 1}, {"count": 1, "names": {}})
    assert from_plain(Outer, {"count": 1}) == Outer(1)


def test_unknown_keys_are_ignored() -> None:
    assert from_plain(Outer, {"count": 1, "later": [1, 2]}) == Outer(1)


def test_a_whole_number_may_stand_for_a_fraction() -> None:
    assert from_plain(Outer, {"count": 1, "ratio": 2}).ratio == 2.0


@pytest.mark.parametrize(
    ("data", "where", "said"),
    [
        ({}, "", "'count' is missing"),
        ([], "here", "an object (Outer)"),
        ({"count": "1"}, "here.count", "a int"),
        ({"count": True}, "here.count", "a int"),
        ({"count": 1.0}, "here.count", "a int"),
        ({"count": None}, "here.count", "a int"),
        ({"count": 1, "ratio": "much"}, "here.ratio", "a float"),
        ({"count": 1, "ratio": True}, "here.ratio", "a float"),
        ({"count": 1, "colour": "green"}, "here.colour", "red, blue"),
        ({"count": 1, "colour": []}, "here.colour", "red, blue"),
        ({"count": 1, "inner": {"size": 3}}, "here.inner", "'name' is missing"),
        ({"count": 1, "inner": 7}, "here.inner", "an object (Inner)"),
        ({"count": 1, "many": {"a": 1}}, "here.many", "a list"),
        ({"count": 1, "many": [{"name": "a"}, {"name": 1}]}, "here.many[1].name", "a str"),
        ({"count": 1, "names": {"a": "b"}}, "here.names.a", "a int"),
        ({"count": 1, "names": []}, "here.names", "an object"),
    ],
)
def test_error_names_the_wrong_field(data: Any, where: str, said: str) -> None:
    with pytest.raises(StateError) as caught:
        from_plain(Outer, data, "here")
    assert said in caught.value.what
    assert caught.value.where == (where or "here")


def test_a_number_too_large_for_a_fraction_is_a_state_error() -> None:
    with pytest.raises(StateError):
        from_plain(Outer, {"count": 1, "ratio": 10**400})


def test_a_huge_wrong_value_is_not_quoted_whole() -> None:
    with pytest.raises(StateError) as caught:
        from_plain(Outer, {"count": "x" * 1_000_000})
    assert len(str(caught.value)) < 500


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=120)
@given(st.sampled_from([Outer, LoopState, RunRecord, Check, *NAMES.values()]), st.data())
def test_every_json_value_is_read_or_refused(kind: type[Any], data: st.DataObject) -> None:
    names = st.sampled_from(sorted(kind.__dataclass_fields__))
    value = data.draw(st.one_of(json_values, st.dictionaries(names, json_values)))
    try:
        read = from_plain(kind, value, "here")
    except RalphError:
        return
    assert isinstance(read, kind)


def test_a_journal_of_an_earlier_version_is_read_under_its_former_names() -> None:
    started = {"turn": 1, "key": "iteration-1", "role": "implementer", "attempt": 1, "agent": "claude"}
    read = from_plain(TurnStarted, {**started, "counts": True, "words": ["steer.yaml"]})
    assert (read.is_iteration, read.messages) == (True, ("steer.yaml",))
    assert to_plain(read) == {**started, "is_iteration": True, "messages": ["steer.yaml"]}
    assert ENTRY_TYPES["signal.taken"] is NAMES["signal.accepted"]
    assert ENTRY_TYPES["signal.heard"] is NAMES["signal.received"]


RECORD = {"id": "r", "workflow": "loop", "task": "x", "criterion": "", "checks": [], "created_at": 1.0}
AGENTS = to_plain(AgentSelection((AgentSpec("claude"),)))
TREES = to_plain(TreeSettings(setup=("make",)))


@pytest.mark.parametrize(
    ("kind", "former", "now"),
    [
        (Verdict, {"results": [], "tree": "abc"}, {"results": [], "snapshot": "abc"}),
        (Signal, {"name": "a", "type": "INFO", "key": "7-a"}, {"name": "a", "type": "INFO", "assigned_id": "7-a"}),
        (AgentEvent, {"kind": "received", "tool": "hook"}, {"kind": "received", "means": "hook"}),
        (MergeStarted, {"key": "merge-a-1-1", "workspace": "a/1"}, {"key": "merge-a-1-1", "worktree": "a/1"}),
        (
            QueuedMerge,
            {"task": "a", "workspace": "a/1", "title": "Add"},
            {"task": "a", "worktree": "a/1", "title": "Add"},
        ),
        (
            MergeEnded,
            {"key": "merge-a-1-1", "workspace": "a/1", "end": "conflict", "moved": True},
            {"key": "merge-a-1-1", "worktree": "a/1", "end": "conflict", "others_merged": True},
        ),
        (
            RunRecord,
            {**RECORD, "crew": AGENTS, "trees": TREES},
            {**RECORD, "agents": AGENTS, "tree_settings": TREES},
        ),
        (Queue, {"most_resolves": 3}, {"max_failed_resolutions": 3}),
        (
            TaskFlow,
            {"attempt": 3, "tries": 2, "checked": "all pass"},
            {"attempt": 3, "attempts_in_iteration": 2, "check_results": "all pass"},
        ),
        (
            Flow,
            {"stop": "paused by the user", "paused": True, "rested": True},
            {"stop_reason": "paused by the user", "is_pause": True, "run_has_ended": True},
        ),
        (
            Flow,
            {"asked": ["Scope"], "asked_at": 7.5, "checked": "all pass"},
            {"categories_asked": ["Scope"], "approval_asked_at": 7.5, "check_results": "all pass"},
        ),
        (
            Flow,
            {"baseline": True, "passed": True, "items": ["a"], "wish": "only a"},
            {
                "has_baseline": True,
                "session_checks_passed": True,
                "approved_items": ["a"],
                "approval_message": "only a",
            },
        ),
        (
            Flow,
            {"completed": 2, "reviewed": 3, "learned": 4},
            {"completed_iteration": 2, "reviewed_iteration": 3, "learned_iteration": 4},
        ),
        (Wave, {"hat": "builder", "jobs": []}, {"hat": "builder", "workers": []}),
        (
            WaveWorker,
            {"event": {"number": 3, "topic": "piece.ready", "default": True}, "default": True},
            {"event": {"number": 3, "topic": "piece.ready", "by_engine": True}, "by_engine": True},
        ),
        (
            HatsState,
            {"objective": "x", "turn": 4, "number": 9, "defaults": {"builder": 2}},
            {"objective": "x", "last_turn": 4, "events_published": 9, "default_turns_in_a_row": {"builder": 2}},
        ),
        (
            HatsState,
            {"objective": "x", "taken": 2, "red": {"tree": "abc", "tests": ["t"]}},
            {"objective": "x", "events_in_turn": 2, "seen_failing": {"snapshot": "abc", "tests": ["t"]}},
        ),
    ],
)
def test_renamed_fields_are_read_under_their_former_names(
    kind: type[Any], former: dict[str, Any], now: dict[str, Any]
) -> None:
    assert to_plain(from_plain(kind, former)) == {**to_plain(from_plain(kind, now)), **now}


def test_an_error_names_the_place_inside_lists_and_mappings() -> None:
    agents = {"chain": [{"kind": "claude"}, {"kind": 3}]}
    with pytest.raises(StateError) as caught:
        from_plain(
            RunRecord,
            {"id": "1", "workflow": "loop", "task": "", "criterion": "", "checks": [], "agents": agents},
            "run.json",
        )
    assert caught.value.where == "run.json.agents.chain[1].kind"
