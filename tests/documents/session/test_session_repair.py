"""The state of a session put right from its files, by rule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.documents.session import metadata, progress
from ralph.documents.session.layout import Layout
from ralph.documents.session.metadata import Metadata
from ralph.documents.session.progress import Marker, Progress, parse_progress, render_new_progress
from ralph.documents.session.repair import PLANNING, REPLANNING, Repaired, infer_state, repair
from ralph.documents.session.reports import append_review, compose_report
from ralph.documents.session.tasks import Task, render_task

AT = "2026-02-12T10:00:00+07:00"
LAYOUT = Layout.of("260210-163900")


def marked(**markers: str) -> Progress:
    """Markers by id, with `_` for `-`."""
    lines = [(id.replace("_", "-"), Marker(marker), "") for id, marker in markers.items()]
    return parse_progress("# Progress\n").with_section("Implementation Progress (Iteration 1)", lines)


def session(iteration: int = 1) -> dict[str, str]:
    """A session in which nothing is wrong."""
    text = render_new_progress(1, PLANNING)
    for step in PLANNING:
        text = text.with_item(step, Marker.DONE, f"completed: {AT}")
    text = text.with_section(
        "Implementation Progress (Iteration 1)", [("task-1", Marker.DONE, ""), ("task-2", Marker.TODO, "")]
    )
    return {
        LAYOUT.metadata: metadata.render_metadata(
            Metadata("260210-163900", AT, AT, state="BATCHING", total=2, completed=1, pending=1)
        ),
        LAYOUT.progress(1): text.text,
        LAYOUT.plan(1): "## Goal\nMake it.\n",
        LAYOUT.task(1, "task-1"): render_task(Task("task-1"), AT),
        LAYOUT.task(1, "task-2"): render_task(Task("task-2", iteration=iteration), AT),
    }


def known(found: Repaired) -> Metadata:
    assert found.metadata is not None
    return found.metadata


class TestStates:
    @pytest.mark.parametrize(
        ("markers", "reviewed", "state"),
        [
            ({"plan_init": "x", "task_1": "P", "plan_rebrainstorm": " "}, False, "REVIEWING_BATCH"),
            ({"plan_rebrainstorm": "x", "plan_update": "/", "task_1": "F"}, True, "REPLANNING"),
            ({"plan_init": "x", "plan_research": " "}, False, "PLANNING"),
            ({"plan_init": "x", "task_1": "/"}, False, "BATCHING"),
            ({"task_1": "x", "task_2": " "}, True, "BATCHING"),
            ({"task_1": "F", "task_2": "C"}, False, "SESSION_REVIEW"),
            ({"task_1": "x", "plan_critique_1": "/"}, True, "SESSION_CRITIQUE_REPLAN"),
            ({"task_1": "x", "plan_knowledge_staging": " "}, True, "KNOWLEDGE_EXTRACTION"),
            ({"task_1": "x"}, True, "COMPLETE"),
        ],
    )
    def test_state_follows_from_the_markers(self, markers: dict[str, str], reviewed: bool, state: str) -> None:
        assert infer_state(marked(**markers), reviewed=reviewed) == state


class TestRepair:
    def test_valid_session_is_not_changed(self) -> None:
        files = session()
        found = repair(LAYOUT, files, AT)
        assert (found.done, found.documents) == ((), {})
        assert found.progress.text == files[LAYOUT.progress(1)]

    def test_a_lost_progress_is_rebuilt_from_tasks_and_reports(self) -> None:
        files = session()
        del files[LAYOUT.progress(1)]
        report = compose_report("task-1", 1, 1, AT, "done")
        files[LAYOUT.report(1, "task-1", 1)] = append_review(report, "**Status**: Failed")
        files[LAYOUT.report(1, "task-1", 2)] = append_review(
            compose_report("task-1", 1, 2, AT, "done"), "**Status**: Qualified"
        )
        files[LAYOUT.task(1, "task-10")] = render_task(Task("task-10"), AT)
        files[LAYOUT.report(1, "task-10", 1)] = append_review(report, "**Status**: Failed")
        found = repair(LAYOUT, files, AT)
        assert progress.find_progress_problems(found.progress.text) == []
        assert [(one.id, one.marker.name, one.note) for one in found.progress.items.values()] == [
            *((step, "DONE", "recovered") for step in PLANNING),
            ("task-1", "PENDING", "Attempt 2, Iteration 1, review-pending, recovered"),
            ("task-2", "TODO", ""),
            ("task-10", "FAILED", "Attempt 1, Iteration 1, failed, recovered"),
        ]
        assert found.done == (
            "progress.md: written anew",
            "progress.md: the planning steps of iteration 1 were added",
            "progress.md: lines for task-1, task-2, task-10 were added",
        )

    def test_repair_adds_only_missing_sections(self) -> None:
        files = session()
        good = files[LAYOUT.progress(1)]
        head, _, rest = good.partition("## Legend")
        files[LAYOUT.progress(1)] = "My words.\n\n## Planning" + rest.partition("## Planning")[2].replace(
            "- [ ] task-2", "- [?] task-2"
        )
        found = repair(LAYOUT, files, AT)
        assert found.progress.text == f"# Progress\n\nMy words.\n\n{good.removeprefix(head)}"
        assert found.done == (
            "progress.md: the marker of task-2 was invalid, and counts as not started",
            "progress.md: the legend was completed",
            "progress.md: the heading was added",
        )

    def test_a_short_legend_is_completed_and_lines_for_tasks_are_added(self) -> None:
        files = session()
        good = files[LAYOUT.progress(1)]
        files[LAYOUT.progress(1)] = (
            good.replace("- `[C]` Cancelled\n", "").replace("- [ ] task-2\n", "").replace("\n", "\r\n")
        )
        found = repair(LAYOUT, files, AT)
        assert found.progress.text == good.replace("\n", "\r\n")
        noted = good.replace("- `[F]` Failed\n- `[C]` Cancelled\n", "My own words.\n")
        mended = repair(LAYOUT, files | {LAYOUT.progress(1): noted}, AT).progress.text
        assert "My own words.\n- `[F]` Failed\n- `[C]` Cancelled\n\n## Planning" in mended

    def test_a_lost_metadata_is_rebuilt(self) -> None:
        files = session()
        del files[LAYOUT.metadata]
        assert known(repair(LAYOUT, files, AT)) == Metadata(
            "260210-163900",
            "2026-02-10T16:39:00Z",
            AT,
            state="BATCHING",
            total=2,
            completed=1,
            pending=1,
            request="Make it.",
        )

    def test_readable_fields_of_broken_metadata_are_kept(self) -> None:
        files = session()
        text = (
            files[LAYOUT.metadata]
            .replace("state: BATCHING", "state: DREAMING")
            .replace("version: 1", "version: 8 # count")
        )
        files[LAYOUT.metadata] = text.replace("  pending: 1\n", "") + "mine: kept\n"
        found = repair(LAYOUT, files, AT)
        assert (known(found).version, known(found).state, known(found).pending) == (9, "BATCHING", 1)
        text = found.documents[LAYOUT.metadata]
        assert "version: 9 # count\n" in text and "mine: kept\n" in text
        assert metadata.parse_metadata(text) == known(found)
        assert found.done == ("metadata.yaml: rebuilt from the files, in iteration 1 and state BATCHING",)

    def test_file_that_is_not_yaml_is_written_again(self) -> None:
        files = session() | {LAYOUT.metadata: "a: ["}
        assert metadata.find_metadata_problems(repair(LAYOUT, files, AT).documents[LAYOUT.metadata]) == []

    def test_later_iteration_is_recognized_by_its_files(self) -> None:
        files = session()
        del files[LAYOUT.metadata]
        files[LAYOUT.iteration_metadata(2)] = f"iteration: 2\nversion: 1\nstarted_at: {AT}\n"
        files[LAYOUT.feedback(2, "20260211-101500")] = "Faster!"
        files[LAYOUT.feedback(3, "20260212-101500")] = "Faster still!"
        found = repair(LAYOUT, files, AT)
        assert (known(found).iteration, known(found).state) == (2, "REPLANNING")
        assert list(known(found).processed) == ["20260211-101500"], "it began the iteration, and begins no other"
        assert [one.id for one in found.progress.items.values() if one.iteration == 2] == list(REPLANNING)
        files[LAYOUT.iteration_metadata(3)] = "x: 1\n"
        assert list(known(repair(LAYOUT, files, AT)).processed) == ["20260211-101500", "20260212-101500"]

    def test_end_follows_from_markers_and_review(self) -> None:
        files = session()
        del files[LAYOUT.metadata]
        files[LAYOUT.progress(1)] = files[LAYOUT.progress(1)].replace(
            "- [ ] task-2", "- [C] task-2 (split due to timeouts)\n- [x] task-2.1"
        )
        files[LAYOUT.review(1)] = "## Overall Assessment\n✅ Complete\n"
        found = known(repair(LAYOUT, files, AT))
        assert (found.state, found.status, found.replaced, found.cancelled) == (
            "COMPLETE",
            "completed",
            {"task-2": ("task-2.1",)},
            1,
        )
        files[LAYOUT.review(1)] = "## Overall Assessment\n⚠️ Gaps Identified\n"
        assert known(repair(LAYOUT, files, AT)).status == "awaiting_feedback"

    def test_the_nested_layout_is_repaired_in_its_place(self) -> None:
        layout = Layout("/".join((".ralph-sessions", "260210-163900")), nested=True)
        found = repair(layout, {layout.task(2, "task-1"): render_task(Task("task-1", iteration=2), AT)}, AT)
        assert known(found).iteration == 2
        assert found.progress.items["plan-rebreakdown"].marker is Marker.DONE
        assert "task-1" in found.progress.items

    @settings(max_examples=40, deadline=None)
    @given(st.data())
    def test_whatever_is_broken_both_files_are_right_afterwards_and_stay_so(self, data: st.DataObject) -> None:
        files = session()
        for path in (LAYOUT.metadata, LAYOUT.progress(1)):
            lines = files[path].split("\n")
            gone = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=len(lines)))
            files[path] = "\n".join(line for i, line in enumerate(lines) if i not in gone)
            if data.draw(st.booleans()):
                files[path] = data.draw(st.text(max_size=20)) + files[path]
        tidy = data.draw(st.booleans())
        found = repair(LAYOUT, files, AT, removes_stray_lines=tidy)
        assert progress.find_progress_problems(found.progress.text) == []
        fixed = files | dict(found.documents)
        assert metadata.parse_metadata(fixed[LAYOUT.metadata]) == known(found)
        assert {"task-1", "task-2"} <= found.progress.items.keys()
        assert repair(LAYOUT, fixed, AT, removes_stray_lines=tidy).done == ()
