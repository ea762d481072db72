"""`metadata.yaml` of sessions and iterations: engines, agents and people all write it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import StateError
from ralph.documents.session.metadata import (
    IterationMetadata,
    Metadata,
    State,
    find_iteration_problems,
    find_metadata_problems,
    parse_iteration_metadata,
    parse_metadata,
    read_valid_fields,
    render_iteration_metadata,
    render_metadata,
)

AT = "2026-02-10T16:39:00+07:00"
ONE = Metadata("260210-163900", AT, AT, request="Make it\nwork", processed={"20260211-101500": "ab12"})
SEED = """version: 1
session_id: 260210-163900
created_at: 2026-02-10T16:39:00+0700
updated_at: 2026-02-10T16:39:00.1234567+07:00
iteration: 1
orchestrator:
  state: PLANNING   # where
  current_wave: null
tasks:
  total: 0
  completed: 0
  failed: 0
  pending: 0

session_review: {cycle: 0, issue_severity_threshold: any, max_critique_cycles: null}
finalized_by: hook.stop
"""
texts = st.text(max_size=20)
counts = st.integers(0, 9999)
metadatas = st.builds(
    Metadata,
    session_id=st.just("260210-163900"),
    created_at=st.just(AT),
    updated_at=st.sampled_from([AT, "2026-02-10T10:00Z"]),
    version=counts,
    status=st.sampled_from(["in_progress", "aborted"]),
    iteration=st.integers(1, 99),
    state=st.sampled_from(tuple(State)),
    previous_state=st.sampled_from(["", *State]),
    current_wave=counts,
    total=counts,
    cancelled=counts,
    processed=st.dictionaries(
        st.sampled_from(["20260211-101500", "x y", "null", "1"]), st.sampled_from(["", "a b", "0f"]), max_size=3
    ),
    replaced=st.dictionaries(st.sampled_from(["task-1", "task-2"]), st.just(("task-1.1", "task-1.2")), max_size=2),
    request=texts.map(lambda text: text.encode("utf-8", "replace").decode().strip()),
    paused=st.booleans(),
    critique_cycle=counts,
)


class TestSessions:
    def test_a_new_file_reads_as_the_seed_lays_it_out(self) -> None:
        text = render_metadata(ONE)
        assert text == (
            f"schema: ralph-v2\nversion: 1\nsession_id: 260210-163900\ncreated_at: {AT}\nupdated_at: {AT}\nstatus: in_progress\n"
            "iteration: 1\norchestrator:\n  state: PLANNING\n  current_wave: 0\n"
            "tasks:\n  total: 0\n  completed: 0\n  failed: 0\n  pending: 0\n  cancelled: 0\n"
            "feedback:\n  processed:\n    20260211-101500: ab12\nrequest: |-\n  Make it\n  work\n"
        )
        assert parse_metadata(text) == ONE

    def test_metadata_of_other_tools_is_read_and_kept(self) -> None:
        found = parse_metadata(SEED)
        assert (found.status, found.iteration, found.updated_at) == (
            "in_progress",
            1,
            "2026-02-10T16:39:00.1234567+07:00",
        )
        assert render_metadata(found, SEED) == SEED
        later = replace(
            found, version=2, state="BATCHING", previous_state="PLANNING", current_wave=1, total=3, critique_cycle=1
        )
        assert render_metadata(replace(later, status="blocked"), SEED) == SEED.replace(
            "version: 1", "version: 2"
        ).replace("PLANNING", "BATCHING").replace(
            "current_wave: null", "current_wave: 1\n  previous_state: PLANNING"
        ).replace("total: 0", "total: 3").replace("cycle: 0", "cycle: 1").replace(
            "hook.stop\n", "hook.stop\nstatus: blocked\n"
        )

    def test_a_file_without_status_is_not_given_one_unasked(self) -> None:
        windows = "\ufeff" + SEED.replace("\n", "\r\n").rstrip()
        assert render_metadata(parse_metadata(windows), windows) == windows

    def test_later_words_and_older_forms_are_understood(self) -> None:
        text = SEED.replace("PLANNING", "iteration_review") + "feedback:\n  processed: [20260211-101500]\n"
        assert (parse_metadata(text).state, parse_metadata(text).processed) == (
            "SESSION_REVIEW",
            {"20260211-101500": ""},
        )
        assert render_metadata(parse_metadata(text), text) == text
        assert parse_metadata(SEED.replace("iteration: 1", 'iteration: "2"')).iteration == 2

    def test_every_fault_is_named_with_its_line(self) -> None:
        text = SEED.replace("PLANNING", "DREAMING").replace("iteration: 1", "iteration: 0").replace("  total: 0\n", "")
        text = text.replace("version: 1\n", "").replace("created_at: 2", "created_at: x2") + "status: odd\n"
        assert find_metadata_problems(text) == [
            "line 1: the key `version` is missing",
            "line 2: `created_at` must be a date and time such as 2026-02-10T16:39:00+07:00, and is x2026-02-10T16:39:00+0700",
            "line 15: `status` must be one of in_progress, completed, awaiting_feedback, blocked, aborted, and is odd",
            "line 4: `iteration` must be a whole number from 1, and is 0",
            f"line 6: `orchestrator.state` must be one of {', '.join(tuple(State))}, and is DREAMING",
            "line 8: the key `tasks.total` is missing",
        ]
        with pytest.raises(StateError) as error:
            parse_metadata(text, "x/metadata.yaml")
        assert (
            error.value.what.count("\n") == 5
            and error.value.where == "x/metadata.yaml"
            and "repair" in error.value.todo
        )

    def test_values_of_another_kind_are_faults(self) -> None:
        text = (
            render_metadata(ONE)
            .replace("|-\n  Make it\n  work", "[a]")
            .replace("  cancelled: 0", "  cancelled: 0\n  replaced: 7")
        )
        assert find_metadata_problems(text) == [
            "line 17: `tasks.replaced` must be a mapping, and is 7",
            "line 21: `request` must be a word, and is [a]",
        ]

    def test_another_schema_is_refused_by_name(self) -> None:
        assert find_metadata_problems("schema: ralph-v3\n" + SEED) == [
            "line 1: `schema` is ralph-v3; this Ralph reads ralph-v2"
        ]

    def test_valid_fields_are_read_beside_invalid_ones(self) -> None:
        assert read_valid_fields("iteration: 3\nstatus: odd\ntasks: 7\n") == {"iteration": 3}
        assert read_valid_fields("a: [") == {}
        assert find_metadata_problems("a: [")[0].startswith("line ")
        assert find_metadata_problems("") == find_metadata_problems("# nothing\n") != []

    @settings(max_examples=25, deadline=None)
    @given(metadatas, metadatas)
    def test_any_metadata_comes_back_from_a_new_file_and_from_a_changed_one(self, one: Metadata, two: Metadata) -> None:
        text = render_metadata(one)
        assert parse_metadata(text) == one
        assert render_metadata(one, text) == text
        assert parse_metadata(render_metadata(two, text)) == two
        old = SEED.replace("\n", "\r\n")
        changed = render_metadata(two, old)
        assert parse_metadata(changed) == two
        assert "finalized_by: hook.stop" in changed and "# where" in changed

    @settings(max_examples=80, deadline=None)
    @given(st.lists(st.sampled_from([*SEED.split("\n"), "tasks: 1", "- a", "version: {a: 1}", "x: ["])).map("\n".join))
    def test_no_text_is_too_odd(self, text: str) -> None:
        assert isinstance(read_valid_fields(text), dict)
        if not find_metadata_problems(text):
            assert render_metadata(parse_metadata(text), text) == text
        else:
            with pytest.raises(StateError):
                parse_metadata(text)


class TestIterations:
    def test_iteration_metadata_survives_a_round_trip(self) -> None:
        one = IterationMetadata(1, AT)
        assert render_iteration_metadata(one) == (
            f"version: 1\niteration: 1\nstarted_at: {AT}\nplanning_complete: false\nplanning_completed_at: null\n"
            "completed_at: null\ntasks_defined: 0\n"
        )
        assert parse_iteration_metadata(render_iteration_metadata(one)) == one
        two = replace(
            one,
            planning_complete=True,
            planning_completed_at=AT,
            planning_tasks={"plan-init": "completed"},
            tasks_defined=4,
        )
        text = render_iteration_metadata(two, render_iteration_metadata(one))
        assert parse_iteration_metadata(text) == two
        assert text.endswith("tasks_defined: 4\nplanning_tasks:\n  plan-init: completed\n")

    def test_a_short_one_stays_short(self) -> None:
        text = f"version: 1\niteration: 1\nstarted_at: {AT}\nplanning_complete: false\n"
        assert render_iteration_metadata(parse_iteration_metadata(text), text) == text
        assert find_iteration_problems("iteration: 1\nversion: 1\n") == ["line 1: the key `started_at` is missing"]
