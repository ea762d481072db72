"""The flat files of classic sessions, as people and agents really wrote them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph.documents.session import answers
from ralph.documents.session import task_list as tasks
from ralph.documents.session.layout import ClassicLayout, is_classic
from ralph.documents.session.plan import count_cycles, merge_questions
from ralph.documents.session.progress import CLASSIC, Marker, parse_progress
from ralph.documents.session.repair import repair
from ralph.documents.session.reports import Assessment, ClassicReview, compose_classic_review, parse_classic_review
from ralph.documents.session.tasks import parse_ids

AT = "2026-02-12T10:00:00+07:00"
BULLETS = """\
# Task List

## Legend
- [ ] Not Started
- [x] Completed

## Planning Tasks
- plan-init: Set up

## Implementation Tasks

- task-1: Set up the project
    - **Type**: Sequential
    - **Files**: `package.json`, src/index.ts
    - **Objective**: A build that runs
    - **Success Criteria**: `npm run build` passes; the page is blank
    - **Inherits From**: None
- task-2: Fetch the weather
    - **Type**: Parallelizable (depends on task-1)
    - **Files**: src/weather.ts (new)
    - **Success Criteria**:
        - [ ] `sh -c "a; b"` passes
        - task-1: its build still runs
    - **Inherits From**: task-1
- task-3: Show it
    - **Inherits From**: task-1 to 2

A word at the end.
"""
NUMBERED = """\
# Task List

1.  **Task 1**: Create the file
    With a second line.
2.  **Task 2**: Fill it

Some closing words.
"""
HEADINGS = """\
# Tasks

## Phase A
### task-1: Hello
**Type**: Parallelizable
**Files**:
- a.py
- b.py
**Success Criteria**:
- it works

### Task 2 - World
- **Description**: It turns
- **Depends On**: Task 1
"""
GRAPH = """\
# Tasks
- task-1: One
- task-2: Two
- task-3: Three

## Dependency Graph
```
task-1: []
task-2: [task-1]
task-3: [task-1, task-2]
```

## Parallel Groups
- **Wave 1**: [task-1] - first
- **Wave 2**: [task-2]

## Knowledge Inheritance Rules
- task-2, 3 inherit from task-1
- **task-3**: task-2
"""


def test_bullets_with_their_fields() -> None:
    found = tasks.parse_task_list(BULLETS)
    assert list(found) == ["plan-init", "task-1", "task-2", "task-3"]
    one, two = found["task-1"], found["task-2"]
    assert (one.title, one.files, one.objective) == (
        "Set up the project",
        ("package.json", "src/index.ts"),
        "A build that runs",
    )
    assert one.criteria == ("`npm run build` passes", "the page is blank")
    assert two.criteria == ('`sh -c "a; b"` passes', "task-1: its build still runs")
    assert (two.type, two.depends_on, two.inherits, two.files) == (
        "Parallelizable",
        ("task-1",),
        ("task-1",),
        ("src/weather.ts",),
    )
    assert found["task-3"].needs == ("task-1", "task-2")


def test_numbers_headings_and_lists_without_ids() -> None:
    found = tasks.parse_task_list(NUMBERED)
    assert [(one.id, one.title) for one in found.values()] == [("task-1", "Create the file"), ("task-2", "Fill it")]
    assert "second line" in found["task-1"].objective
    found = tasks.parse_task_list(HEADINGS)
    assert [(one.id, one.title) for one in found.values()] == [("task-1", "Hello"), ("task-2", "World")]
    assert (found["task-1"].files, found["task-1"].criteria) == (("a.py", "b.py"), ("it works",))
    assert (found["task-2"].objective, found["task-2"].needs) == ("It turns", ("task-1",))
    assert list(tasks.parse_task_list("# Task List\n1. Make it\n2. Break it\n")) == ["task-1", "task-2"]


def test_graphs_and_rules_of_inheritance_count() -> None:
    found = tasks.parse_task_list(GRAPH)
    assert list(found) == ["task-1", "task-2", "task-3"]
    assert found["task-2"].inherits == ("task-1",)
    assert (found["task-3"].depends_on, found["task-3"].inherits) == (("task-1", "task-2"), ("task-1", "task-2"))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("None", ""),
        ("task-1, task-2", "1 2"),
        ("task-2, 3", "2 3"),
        ("task-4 to 8", "4 5 6 7 8"),
        ("`task-1` – `task-3` and task-9", "1 2 3 9"),
        ("Tasks 1-3", "1 2 3"),
        ("Task 1, Task 2", "1 2"),
        ("[task-1] (all 3 of its interfaces)", "1"),
        ("task-2.1 through task-2.3", "2.1 2.3"),
        ("task-3 for the 2 constants", "3"),
    ],
)
def test_ids_in_lists_and_ranges(text: str, ids: str) -> None:
    assert parse_ids(text) == tuple(f"task-{id}" for id in ids.split())


def test_tasks_are_put_in_and_everything_else_stays() -> None:
    more = "- task-2: Fetch it otherwise\n    - **Success Criteria**: ok\n- task-4: New\n\n## Parallel Groups\n- x\n"
    assert tasks.merge_tasks(BULLETS, "- task-3: Hide it\n", ("task-3",)).endswith(
        "- task-3: Hide it\n\nA word at the end.\n"
    )
    text = tasks.merge_tasks(BULLETS, more, ("task-2",))
    assert "Fetch it otherwise" in text and "Fetch the weather" not in text
    assert list(tasks.parse_task_list(text)) == ["plan-init", "task-1", "task-2", "task-3", "task-4"]
    assert "A word at the end." in text and "## Parallel Groups" in text
    assert tasks.merge_tasks(BULLETS, "- task-1: Another\n", ()) == BULLETS, "what was begun is not defined anew"
    for old in (NUMBERED, HEADINGS, GRAPH, tasks.render_new_task_list(), ""):
        new = tasks.merge_tasks(old, "- task-9: New\n", ())
        assert "task-9" in tasks.parse_task_list(new)
        lines = [line for line in old.splitlines() if line]
        assert [line for line in new.splitlines() if line in lines] == lines
    again = tasks.parse_task_list(tasks.render_task_list_entry(tasks.parse_task_list(BULLETS)["task-2"]))["task-2"]
    assert (again.criteria, again.needs, again.files) == (
        tasks.parse_task_list(BULLETS)["task-2"].criteria,
        ("task-1",),
        ("src/weather.ts",),
    )


WORDS = """\
# Execution Progress

- [X] task-1 (Completed)
- [ ] **Task 2**: do it (see the plan)
* [p] `task-3` - show it (In Progress)
- task-4 (Review Pending)
- task-1 was the hardest of all
"""


def test_the_marker_counts_and_only_its_line_changes() -> None:
    listed = parse_progress(WORDS, CLASSIC)
    assert {id: item.marker.value for id, item in listed.items.items()} == {
        "task-1": "x",
        "task-2": " ",
        "task-3": "P",
        "task-4": "P",
    }
    assert listed.items["task-2"].description == "do it"
    changed = listed.with_item("task-2", Marker.WIP, "Attempt 1").with_item("task-2", Marker.PENDING).text
    assert "- [P] **Task 2**: do it (see the plan) (Review Pending)\n" in changed
    assert changed.replace("- [P] **Task 2**: do it (see the plan) (Review Pending)", "x") == WORDS.replace(
        "- [ ] **Task 2**: do it (see the plan)", "x"
    )
    more = listed.with_items([("task-5", Marker.TODO, ""), ("plan-update-1", Marker.TODO, "")])
    assert list(more.items) == ["task-1", "task-2", "task-3", "task-4", "task-5", "plan-update-1"]


LINE = st.sampled_from(
    [
        *(
            "- [ ] task-1 (Not Started)",
            "- [?] task-2",
            "# Progress Tracking",
            "## Legend",
            "```",
            "words",
            "",
            "- task-3",
        ),
        *(
            "1. [x] **Task 4**: x (y) (Completed)",
            "### Cycle 2",
            "- task-1: One",
            "    - **Inherits From**: task-2",
            "---",
        ),
    ]
)
PAGES = st.lists(LINE | st.text("ab1*-#[]x `:(\t\r", max_size=12), max_size=15).map("\n".join)


@given(PAGES)
def test_whatever_is_in_a_file_it_is_read_and_kept(text: str) -> None:
    listed = parse_progress(text, CLASSIC)
    for id in listed.items:
        assert listed.with_item(id, Marker.DONE).items[id].marker is Marker.DONE
        assert len(listed.with_item(id, Marker.DONE).text.splitlines()) == len(text.splitlines())
    known = tasks.parse_task_list(text)
    assert tasks.merge_tasks(text, "", known) == text
    new = tasks.merge_tasks(text, "- task-77: New\n", known)
    assert "task-77" in tasks.parse_task_list(new)
    home = ClassicLayout.of("261116-093000")
    files = {home.task_list: text, home.progress(1): text, home.plan(1): "# Plan\n"}
    changed = repair(home, files, AT).documents
    assert repair(home, {**files, **changed}, AT).documents == {}


def test_a_layout_is_known_by_its_files() -> None:
    root = ".ralph-sessions/20260119-103000"
    assert is_classic("20260119-103000", [f"{root}/plan.md", f"{root}/tasks.md", f"{root}/progress.md"])
    assert is_classic("20260119-103000", [f"{root}/tasks.task-1-report-r2.md"])
    assert is_classic("20260119-103000", [f"{root}/progress.md"], "# Progress Tracking\n")
    assert not is_classic("20260119-103000", [f"{root}/progress.md"], "## Planning Progress (Iteration 1)\n")
    assert not is_classic("20260119-103000", [f"{root}/tasks.md", f"{root}/metadata.yaml"])
    home = ClassicLayout.of("20260119-103000")
    assert list(home.reports_in([f"{root}/tasks.task-1-report{n}.md" for n in ("-r10", "", "-r2")], 1, "task-1")) == [
        1,
        2,
        10,
    ]
    assert list(home.reviews_in([f"{root}/progress.review{n}.md" for n in ("2", "", "[3]")])) == [1, 2, 3]


def test_questions_stay_and_cycles_are_counted_at_any_level() -> None:
    assert count_cycles(["## Cycle 1\n", "## Q&A Cycles\n\n### Cycle 3\n"]) == 3
    assert count_cycles([]) == 0
    old = "## Cycle 1\n\n### Question 1\n- **ID**: Q-TECH-001\n"
    assert merge_questions(old, old + "## Cycle 2\n") == old + "## Cycle 2\n"
    assert merge_questions(old, "## Cycle 2\n") == old + "\n## Cycle 2\n"


def test_a_review_says_what_it_covers() -> None:
    text = compose_classic_review(
        2, "# Session Review 2\n\nAll is well.\n", Assessment.COMPLETE, ["plan-init", "task-1"]
    )
    foreign = "# Session Review\n\n## Overall Assessment\n\u26a0\ufe0f Gaps Identified\n"
    assert [parse_classic_review(1, foreign), parse_classic_review(2, text)] == [
        ClassicReview(1, complete=False),
        ClassicReview(2, complete=True, covers=("plan-init", "task-1")),
    ]


def test_repair_rebuilds_a_lost_progress_file() -> None:
    home = ClassicLayout.of("261116-093000")
    report = "# Task Report: task-1\n\n## PART 1: IMPLEMENTATION REPORT\nDone\n\n## PART 2: REVIEW REPORT\n**Status**: Failed\n"
    files = {home.plan(1): "# Plan\n", home.task_list: BULLETS, home.report(1, "task-1", 2): report}
    found = repair(home, files, AT)
    listed = parse_progress(found.documents[home.progress(1)], CLASSIC)
    assert [(id, item.marker.value) for id, item in listed.items.items()] == [
        ("plan-init", "x"),
        *(("task-1", " "), ("task-2", " "), ("task-3", " ")),
    ]
    assert "Attempt 2 failed" in listed.items["task-1"].note and found.done
    files = {home.plan(1): "# Plan\n", home.progress(1): "- [x] task-1: Make it\n- [!] task-2: Break it\n"}
    found = repair(home, files, AT)
    assert "task-2 was invalid" in found.done[0]
    assert tasks.parse_task_list(found.documents[home.task_list])["task-2"].title == "Break it"


@pytest.mark.parametrize(
    ("mode", "handed", "told"),
    [
        ("planner.INITIALIZE", {}, "plan.md is not in the outbox"),
        ("planner.TASK_BREAKDOWN", {"tasks.md": "# Tasks\n"}, "there is no task"),
        ("planner.TASK_BREAKDOWN", {"tasks.md": "- task-1: x\n"}, "task-1: it has no success criteria"),
        ("planner.TASK_BREAKDOWN", {"tasks.md": "- task-1: x\n"}, "task-1: the field `**Files**` is missing"),
        ("planner.TASK_BREAKDOWN", {"tasks.md": "- task-1: x\n"}, "task-1: the field `**Inherits From**` is missing"),
        ("planner.UPDATE", {"plan.md": "## Goal\nx\n## Success Criteria\n- y\n"}, ""),
        (
            "reviewer.SESSION_REVIEW",
            {"tasks.md": "- task-1: x\n    - **Files**: ../x\n"},
            "not a path inside the project",
        ),
    ],
)
def test_documents_that_a_turn_hands_over_are_validated(mode: str, handed: dict[str, str], told: str) -> None:
    faults = answers.FAULTS[f"classic.{mode}"]({"status": "completed"}, handed, {})
    assert any(told in fault for fault in faults) if told else not faults
    assert not answers.FAULTS[f"classic.{mode}"]({"status": "blocked"}, handed, {})
