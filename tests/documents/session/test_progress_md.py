"""`progress.md`: read as people and agents wrote it, changed line by line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import StateError
from ralph.documents.session.progress import (
    Marker,
    ProgressItem,
    find_progress_problems,
    is_legal_change,
    parse_progress,
    read_marker,
    render_new_progress,
)

STEPS = ("plan-init", "plan-brainstorm", "plan-research", "plan-breakdown")
NEW = """# Progress

## Legend
- `[ ]` Not started
- `[/]` In progress
- `[P]` Pending review
- `[x]` Completed
- `[F]` Failed
- `[C]` Cancelled

## Planning Progress (Iteration 1)
- [ ] plan-init
- [ ] plan-brainstorm
- [ ] plan-research
- [ ] plan-breakdown

## Implementation Progress (Iteration 1)
[To be filled]

## Iterations
| Iteration | Status | Tasks | Feedbacks |
|-----------|--------|-------|-----------|
| 1 | Planning | 0/0 | N/A |
"""
REAL = """\ufeff# Progress\r
\r
## Legend\r
- [ ] Not started\r
- [x] Completed, [/] [P] [F] [C]\r
\r
## Planning Progress (Iteration 1)\r
* [X] **plan-init** (completed: 2026-02-10T16:39+0700)\r
\r
## Implementation Progress (Iteration 1)\r
### Wave 1\r
- [x] task-1: Build the parser (Attempt 1, Iteration 1, qualified: 2026-02-10T17:00:00Z)\r
- [F] task-2 (Attempt 1, Iteration 1, failed: 2026-02-10T17:00:00Z (timeout))\r
```\r
- [x] task-3\r
```\r
  - [/] `task-critique-1-2` (Attempt 2, Iteration 1, started: 2026-02-10T17:05:00+07:00)\r
- [x] docs_2.1\r
\r
## Notes of mine\r
- [ ] remember this\r
- [?] task-9\r
\r
## Tasks (Iteration 2)\r
- [ ] task-2 (Attempt 2, Iteration 2, reset: 2026-02-11)"""


class TestMarkers:
    def test_the_ways_between_markers_are_these_and_no_others(self) -> None:
        edges = {
            (Marker.TODO, Marker.WIP),
            (Marker.TODO, Marker.CANCELLED),
            (Marker.TODO, Marker.FAILED),
            (Marker.WIP, Marker.PENDING),
            (Marker.WIP, Marker.FAILED),
            (Marker.WIP, Marker.CANCELLED),
            (Marker.PENDING, Marker.DONE),
            (Marker.PENDING, Marker.FAILED),
            (Marker.FAILED, Marker.TODO),
            (Marker.FAILED, Marker.CANCELLED),
        }
        assert {(old, new) for old in Marker for new in Marker if is_legal_change(old, new) and old is not new} == edges
        assert all(is_legal_change(one, one) for one in Marker)

    def test_markers_are_read_in_either_case(self) -> None:
        assert [read_marker(word) for word in (" ", "", "X", "x", "f", "p", "/", "c", "?", "done")] == [
            *(Marker.TODO, Marker.TODO, Marker.DONE, Marker.DONE, Marker.FAILED, Marker.PENDING, Marker.WIP),
            *(Marker.CANCELLED, None, None),
        ]


class TestReading:
    def test_a_new_one_has_what_it_must_have(self) -> None:
        assert render_new_progress(1, STEPS).text == NEW
        assert find_progress_problems(NEW) == []
        assert list(render_new_progress(1, STEPS).items) == list(STEPS)
        assert "| 2 | Replanning | 0/0 | N/A |" in render_new_progress(2, ()).text

    def test_progress_written_by_users_and_agents_is_read(self) -> None:
        items = parse_progress(REAL).items
        assert [(item.id, item.marker.name, item.section) for item in items.values()] == [
            ("plan-init", "DONE", "Planning Progress (Iteration 1)"),
            ("task-1", "DONE", "Implementation Progress (Iteration 1)"),
            ("task-critique-1-2", "WIP", "Implementation Progress (Iteration 1)"),
            ("docs_2.1", "DONE", "Implementation Progress (Iteration 1)"),
            ("task-9", "TODO", "Notes of mine"),
            ("task-2", "TODO", "Tasks (Iteration 2)"),
        ]
        assert items["task-1"].note == "Attempt 1, Iteration 1, qualified: 2026-02-10T17:00:00Z"
        assert (items["task-2"].attempt, items["task-2"].iteration, items["docs_2.1"].attempt) == (2, 2, None)
        assert (items["plan-init"].is_planning, items["task-1"].is_planning) == (True, False)

    def test_faults_name_their_line(self) -> None:
        assert find_progress_problems(REAL) == ["line 22: task-9 has the marker [?], which is not a marker"]
        assert find_progress_problems("") == [
            "line 1: the heading `# Progress` is missing",
            "line 1: the section `## Legend` lacks [ ], [/], [P], [x], [F], [C]",
            "line 1: the section `## Planning Progress (Iteration N)` is missing",
            "line 1: the section `## Implementation Progress (Iteration N)` is missing",
        ]
        assert find_progress_problems(NEW.replace("- `[C]` Cancelled\n", "")) == [
            "line 3: the section `## Legend` lacks [C]"
        ]

    def test_an_item_that_is_not_there_is_none(self) -> None:
        assert "task-1" not in parse_progress(NEW).items
        with pytest.raises(StateError, match="no line for task-1"):
            parse_progress(NEW).with_item("task-1", Marker.DONE)


class TestChanging:
    def test_only_the_last_line_of_an_item_is_rewritten(self) -> None:
        new = parse_progress(REAL).with_item(
            "task-2", Marker.WIP, "Attempt 2, Iteration 2, started: 2026-02-11T10:00:00Z"
        )
        assert new.text == REAL.replace(
            "- [ ] task-2 (Attempt 2, Iteration 2, reset: 2026-02-11)",
            "- [/] task-2 (Attempt 2, Iteration 2, started: 2026-02-11T10:00:00Z)",
        )

    def test_bullet_emphasis_and_title_stay(self) -> None:
        new = parse_progress(REAL).with_item("task-1", Marker.FAILED, "again").with_item("plan-init", Marker.TODO)
        new = new.with_item("task-critique-1-2", Marker.PENDING, "Attempt 2, Iteration 1, review-pending")
        assert "\n- [F] task-1: Build the parser (again)\r\n" in new.text
        assert "\n* [ ] **plan-init**\r\n" in new.text
        assert "\n  - [P] `task-critique-1-2` (Attempt 2, Iteration 1, review-pending)\r\n" in new.text

    def test_a_line_without_a_note_has_none(self) -> None:
        new = parse_progress("## Tasks\n- [x] task-1 (a) (b)\n").with_item("task-1", Marker.TODO)
        assert (new.text, parse_progress(new.text).items) == ("## Tasks\n- [ ] task-1\n", new.items)

    def test_tasks_take_the_place_of_the_placeholder(self) -> None:
        title = "## Implementation Progress (Iteration 1)"
        one = parse_progress(NEW).with_section(
            title, [("task-1", Marker.TODO, ""), ("task-2", Marker.FAILED, "Task definition missing")]
        )
        assert one.text == NEW.replace("[To be filled]", "- [ ] task-1\n- [F] task-2 (Task definition missing)")
        two = one.with_section(title, [("task-3", Marker.TODO, ""), ("task-1", Marker.WIP, "")])
        assert two.text == one.text.replace("- [ ] task-1", "- [/] task-1").replace(
            "missing)", "missing)\n- [ ] task-3"
        )

    def test_a_new_section_comes_before_the_iterations(self) -> None:
        new = parse_progress(NEW).with_section("Planning Progress (Iteration 2)", [("plan-update", Marker.TODO, "")])
        assert new.text == NEW.replace(
            "## Iterations", "## Planning Progress (Iteration 2)\n- [ ] plan-update\n\n## Iterations"
        )
        assert "## B\n[To be filled]\n\n## Iterations" in parse_progress(NEW).with_section("B", []).text
        end = parse_progress("# Progress").with_section("X Progress", [("a", Marker.TODO, "")])
        assert end.text == "# Progress\n\n## X Progress\n- [ ] a\n"

    def test_an_empty_section_gets_its_lines_below_the_heading(self) -> None:
        assert (
            parse_progress("## Tasks\n\n## B\n").with_section("Tasks", [("a", Marker.TODO, "")]).text
            == "## Tasks\n- [ ] a\n\n## B\n"
        )

    def test_the_table_of_iterations(self) -> None:
        one = parse_progress(NEW).with_iteration_row(1, "Complete", "2/2", "N/A")
        assert one.text == NEW.replace("| 1 | Planning | 0/0 | N/A |", "| 1 | Complete | 2/2 | N/A |")
        two = one.with_iteration_row(2, "Replanning", "0/0", "20260211-101500")
        assert two.text == one.text + "| 2 | Replanning | 0/0 | 20260211-101500 |\n"
        assert two.with_iteration_row(2, "Replanning", "0/0", "20260211-101500") is two
        assert (
            parse_progress("# Progress\n")
            .with_iteration_row(1, "a", "b", "c")
            .text.endswith("|-----------|\n| 1 | a | b | c |\n")
        )
        assert parse_progress("## Iterations\n").with_iteration_row(1, "a", "b", "c").text.count("Status") == 1

    @settings(max_examples=150, deadline=None)
    @given(st.sampled_from(list(parse_progress(REAL).items)), st.sampled_from(Marker), st.text(max_size=30))
    def test_changed_item_is_read_back_with_any_note(self, id: str, marker: Marker, note: str) -> None:
        before = parse_progress(REAL)
        after = before.with_item(id, marker, note)
        again = parse_progress(after.text)
        assert again.items == after.items == {**before.items, id: after.items[id]}
        assert again.items[id].marker is marker
        assert len(again.text.split("\n")) == len(REAL.split("\n"))
        assert again.with_item(id, marker, again.items[id].note).text == after.text

    def test_an_item_by_itself(self) -> None:
        assert ProgressItem("task-1", Marker.WIP).iteration is None


lines = st.lists(
    st.sampled_from([*NEW.split("\n"), *REAL.split("\n"), "- [x]", "- [x] a b", "1. [P] t (", "| 1 |", "```"]),
    max_size=14,
)


@settings(max_examples=200, deadline=None)
@given(lines.map("\n".join) | st.text(max_size=80))
def test_no_text_is_too_odd(text: str) -> None:
    progress = parse_progress(text)
    assert progress.text == text
    assert all(isinstance(one, str) for one in find_progress_problems(text))
    for id, item in progress.items.items():
        assert progress.with_item(id, item.marker, item.note).items[id] == item
    more = progress.with_section("Implementation Progress (Iteration 7)", [("task-77", Marker.TODO, "x")])
    if not text.rstrip().endswith("`") and "```" not in text and "<!--" not in text:
        assert more.items["task-77"].note == "x"
    progress.with_iteration_row(3, "a", "b", "c")
