"""Task files, where they are, and moments in them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import StateError, UsageError
from ralph.documents.session.layout import Layout
from ralph.documents.session.tasks import (
    Task,
    find_task_problems,
    parse_iteration,
    parse_task,
    parse_task_id,
    render_task,
)
from ralph.documents.session.values import parse_timestamp, render_timestamp

SEED = """---
id: task-1
iteration: 1
type: Sequential  # Sequential | Parallelizable
created_at: 2026-02-07T10:00:00Z
updated_at: 2026-02-07T10:00:00Z
---

# Task: task-1

## Title
Create the parser

## Files
- src/parser.py
- `docs/how to.md` - what it does
- ./tests/test_parser.py (new)
- src/a b.py — both
- src/c.py, `src/d.py`

## Objective
Create a parser.

```
## Title
not this
```

## Grounded In
- Q-TECH-001 (example)
- ISS-C-002, REQ-003

Minimum: 2 unique refs.

## Success Criteria
- [ ] `pytest -q` passes
- [x] It parses
  all of it

## Dependencies
depends_on: [task-0, 'task-0.1']  # what it needs
inherited_by: [task-2]  # who needs it

## Notes
Be quick.
"""


class TestTasks:
    def test_task_file_of_the_specification_is_read(self) -> None:
        task = parse_task(SEED)
        assert task == Task(
            id="task-1",
            title="Create the parser",
            files=("src/parser.py", "docs/how to.md", "tests/test_parser.py", "src/a b.py", "src/c.py", "src/d.py"),
            objective="Create a parser.\n\n```\n## Title\nnot this\n```",
            grounded_in=("Q-TECH-001", "ISS-C-002", "REQ-003"),
            criteria=("`pytest -q` passes", "It parses\nall of it"),
            depends_on=("task-0", "task-0.1"),
            notes="Be quick.",
            inherited_by=("task-2",),
        )
        assert find_task_problems(SEED) == []
        assert parse_task(render_task(task, "2026-02-07T10:00:00Z")) == task

    def test_windows_and_a_byte_order_mark_make_no_difference(self) -> None:
        assert parse_task("\ufeff" + SEED.replace("\n", "\r\n")) == parse_task(SEED)

    @pytest.mark.parametrize(
        ("body", "found"),
        [
            ("depends_on: []", ()),
            ("depends_on: None", ()),
            ("depends_on: n/a", ()),
            ("depends_on: task-1, task-2.1", ("task-1", "task-2.1")),
            ("- **depends_on**: [`task-1`]", ("task-1",)),
            ("**Depends on:** task-1 (the parser) and task-2", ("task-1", "task-2")),
            ("depends_on:\n- task-1\n- task-2 # both\n\n- other", ("task-1", "task-2")),
            ("depends_on:\n  - task-1\ninherited_by:\n  - task-9", ("task-1",)),
            ("depends_on: [build_all, task-critique-1-2]", ("build_all", "task-critique-1-2")),
            ("no word of it", ()),
        ],
    )
    def test_dependencies_in_the_body(self, body: str, found: tuple[str, ...]) -> None:
        assert parse_task(f"# Task: task-5\n\n## Dependencies\n{body}\n").depends_on == found

    def test_dependencies_in_front_matter_and_body_are_one(self) -> None:
        text = "---\nid: task-3\ndepends_on:\n  - task-1\n---\n# Task: task-3\ndepends_on: [task-2, task-1]\n"
        assert parse_task(text).depends_on == ("task-1", "task-2")
        assert parse_task("---\nid: task-3\ndepends_on: task-1\nwave: 2\ntype: Parallelizable\n---\n") == Task(
            "task-3", depends_on=("task-1",), wave=2, type="Parallelizable"
        )

    def test_the_heading_may_be_all_there_is(self) -> None:
        task = parse_task("# Task: task-7 - Write the docs\n\n## Acceptance criteria:\n1. they exist\n")
        assert (task.id, task.title, task.criteria) == ("task-7", "Write the docs", ("they exist",))
        assert (parse_iteration("---\niteration: 3\n---\n"), parse_iteration("x")) == (3, 1)

    def test_faults_name_their_line(self) -> None:
        bad = (
            SEED.replace("type: Sequ", "type: Odd")
            .replace("iteration: 1", "iteration: x")
            .replace("# Task: task-1", "# Task: task-2")
        )
        bad = (
            bad.replace("src/parser.py", "../parser.py")
            .replace("[task-0,", "[task-1,")
            .replace("Create the parser", "")
        )
        assert find_task_problems(bad) == [
            "line 2: the id is task-1, and the heading says task-2",
            "line 3: `iteration` must be a whole number from 1",
            "line 4: `type` must be Sequential or Parallelizable, and is Oddential",
            "line 11: the section `## Title` is empty",
            "line 14: ../parser.py is not a path inside the project",
            "line 40: the task depends on itself",
        ]
        assert (
            find_task_problems("# Task: task-1\n")[0]
            == "line 1: the front matter with `id`, `iteration` and `type` is missing"
        )
        assert find_task_problems("---\nid: [\n---\n")[0].startswith("line 3: not readable as YAML")
        assert find_task_problems("nothing") == ["line 1: the task has no id"]
        assert find_task_problems("---\nid: ../x\n---\n") == ["line 1: '../x' cannot be the id of a task"]

    @pytest.mark.parametrize("id", ["task-1", "task-2.1", "task-critique-1-2", "build_all", "7", "A.b-c"])
    def test_ids_that_pass(self, id: str) -> None:
        assert parse_task_id(id) == id

    @pytest.mark.parametrize(
        "id",
        [
            "",
            "..",
            "a/b",
            "a\\b",
            "../a",
            "a b",
            "-a",
            ".a",
            "a.",
            "a-",
            "a..b",
            "é",
            "a\n",
            "x.lock",
            "a" * 101,
            "a:b",
            "a~1",
            "@{",
        ],
    )
    def test_ids_that_do_not(self, id: str) -> None:
        with pytest.raises(StateError):
            parse_task_id(id)

    @settings(max_examples=100, deadline=None)
    @given(
        st.builds(
            Task,
            id=st.sampled_from(["task-1", "task-critique-1-2"]),
            iteration=st.integers(1, 50),
            type=st.sampled_from(["Sequential", "Parallelizable"]),
            title=st.sampled_from(["", "A title", "Fix #3: `x` | y"]),
            files=st.lists(st.sampled_from(["a.py", "a b/c.md", "x (1).txt"]), unique=True, max_size=3).map(tuple),
            objective=st.sampled_from(["", "Do it.", "Do\n\n### this\n- and that", "```\n# code\n```"]),
            grounded_in=st.lists(st.sampled_from(["Q-TECH-001", "ISS-002"]), unique=True).map(tuple),
            criteria=st.lists(st.sampled_from(["It works", "a\n- b\n- c", "`x` prints\nnothing"]), max_size=3).map(
                tuple
            ),
            depends_on=st.lists(st.sampled_from(["task-2", "task-2.1", "b"]), unique=True).map(tuple),
            notes=st.sampled_from(["", "n", "a\n\nb"]),
            wave=st.none() | st.integers(1, 9),
            inherited_by=st.lists(st.sampled_from(["task-8"]), unique=True).map(tuple),
        )
    )
    def test_whatever_is_in_a_task_comes_back(self, task: Task) -> None:
        assert parse_task(render_task(task, "2026-02-07T10:00:00Z")) == task

    @settings(max_examples=150, deadline=None)
    @given(
        st.builds(
            Task,
            id=st.just("task-1"),
            objective=st.text(max_size=60),
            notes=st.text(max_size=60),
            title=st.text(max_size=30),
        )
    )
    def test_no_words_break_out_of_their_section(self, task: Task) -> None:
        found = parse_task(render_task(task, "2026-02-07T10:00:00Z"))
        assert (found.id, found.criteria, found.files) == ("task-1", (), ())

    @settings(max_examples=150, deadline=None)
    @given(
        st.lists(st.sampled_from([*SEED.split("\n"), "- ", "id: x", "## Dependencies", "depends_on:"])).map("\n".join)
        | st.text()
    )
    def test_no_text_is_too_odd(self, text: str) -> None:
        assert all(one.startswith("line ") for one in find_task_problems(text))


class TestLayout:
    def test_the_layout_of_the_seed(self) -> None:
        layout = Layout.of("260210-163900")
        at = ".ralph-sessions/260210-163900"
        assert layout == Layout(at, nested=False)
        assert (layout.plan(2), layout.plan_copy(1), layout.progress(2)) == (
            f"{at}/plan.md",
            f"{at}/plan.iteration-1.md",
            f"{at}/progress.md",
        )
        assert (layout.metadata, layout.iteration_metadata(2)) == (
            f"{at}/metadata.yaml",
            f"{at}/iterations/2/metadata.yaml",
        )
        assert (layout.task(1, "task-1"), layout.old_task(2, "task-1")) == (
            f"{at}/tasks/task-1.md",
            f"{at}/tasks/.history/task-1.i2.md",
        )
        assert layout.report(1, "task-1", 1) == f"{at}/reports/task-1-report.md"
        assert layout.report(1, "task-1", 2) == f"{at}/reports/task-1-report-r2.md"
        assert layout.questions(1, "technical") == f"{at}/questions/technical.md"
        assert layout.questions(2, "feedback-driven") == f"{at}/iterations/2/questions/feedback-driven.md"
        assert layout.feedback(2, "20260211-101500") == f"{at}/iterations/2/feedbacks/20260211-101500/feedbacks.md"
        assert (layout.delta(2), layout.review(1)) == (
            f"{at}/iterations/2/replanning/delta.md",
            f"{at}/iterations/1/review.md",
        )
        assert layout.knowledge(1, "how-to", "v2.0 guide.md") == f"{at}/iterations/1/knowledge/how-to/v2.0 guide.md"
        assert layout.instructions == f"{at}.instructions.md"
        assert layout.knowledge_target("reference", "a.md") == ".docs/reference/a.md"
        assert layout.session_id == "260210-163900"

    def test_the_nested_layout(self) -> None:
        at = ".ralph-sessions/260210-163900"
        layout = Layout.of("260210-163900", [f"{at}/metadata.yaml", f"{at}/iterations/1/progress.md"])
        assert layout.nested
        assert (layout.plan(2), layout.plan_copy(1)) == (f"{at}/iterations/2/plan.md", f"{at}/iterations/1/plan.md")
        assert layout.task(2, "task-1") == f"{at}/iterations/2/tasks/task-1.md"
        assert layout.report(2, "task-1", 3) == f"{at}/iterations/2/reports/task-1-report-r3.md"
        assert layout.questions(2, "risks") == f"{at}/iterations/2/questions/risks.md"

    def test_layout_is_recognized_by_the_files(self) -> None:
        at = ".ralph-sessions/260210-163900"
        flat = [f"{at}/iterations/1/metadata.yaml", f"{at}/iterations/1/review.md", f"{at}/tasks/task-1.md"]
        assert not Layout.of("260210-163900", flat).nested
        assert not Layout.of("260210-163900", [*flat, f"{at}/iterations/1/plan.md"]).nested
        assert not Layout.of("260210-163900", [".ralph-sessions/260210-999999/iterations/1/plan.md"]).nested
        assert Layout.of("260210-163900", [f"{at}/iterations/1/tasks/task-1.md"]).nested

    def test_files_are_found(self) -> None:
        layout = Layout.of("260210-163900")
        at = layout.root
        paths = [
            f"{at}/tasks/task-10.md",
            f"{at}/tasks/task-2.md",
            f"{at}/tasks/.history/task-2.i2.md",
            f"{at}/tasks/-x.md",
        ]
        paths += [
            layout.feedback(3, "20260212-101500"),
            layout.feedback(3, "20260211-101500"),
            f"{at}/iterations/3/feedbacks/b/app.log",
        ]
        paths += [
            layout.review(1),
            layout.iteration_metadata(2),
            layout.knowledge(1, "how-to", "a.md"),
            f"{at}/iterations/x/review.md",
        ]
        assert layout.tasks_in(paths, 1) == ["task-2", "task-10"]
        assert layout.batches_in(paths, 3) == ["20260211-101500", "20260212-101500"]
        assert layout.iterations_in(paths) == [1, 2]
        assert layout.knowledge_in(paths, 1) == [("how-to", "a.md")]

    @pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a..b", "x" * 121, "a\nb"])
    def test_no_name_leads_out_of_the_session(self, name: str) -> None:
        layout = Layout.of("260210-163900")
        for path in (lambda: layout.questions(1, name), lambda: layout.feedback(2, name), lambda: layout.task(1, name)):
            with pytest.raises(StateError):
                path()
        with pytest.raises(UsageError, match="is not a session id"):
            Layout.of(name)


class TestMoments:
    @pytest.mark.parametrize(
        ("text", "utc"),
        [
            ("2026-02-10T16:39:00Z", "2026-02-10T16:39:00Z"),
            ("2026-02-10T16:39:00+0700", "2026-02-10T09:39:00Z"),
            ("2026-02-10T16:39:00+07:00", "2026-02-10T09:39:00Z"),
            ("2026-02-10T16:39:00-03", "2026-02-10T19:39:00Z"),
            ("2026-02-10T16:39:00.1234567+07:00", "2026-02-10T09:39:00Z"),
            ("2026-02-10t10:00z", "2026-02-10T10:00:00Z"),
            ("2026-02-10 16:39 UTC+7", "2026-02-10T09:39:00Z"),
            ("2026-02-10T16:39:00", "2026-02-10T16:39:00Z"),
            ("'2026-02-10'", "2026-02-10T00:00:00Z"),
            ("20260210-163900", "2026-02-10T16:39:00Z"),
            ("260210-163900", "2026-02-10T16:39:00Z"),
            ("260210-163900-k3x9", "2026-02-10T16:39:00Z"),
            ("20260210-163900+0700", "2026-02-10T09:39:00Z"),
        ],
    )
    def test_every_way_to_report_one_is_understood(self, text: str, utc: str) -> None:
        at = parse_timestamp(text)
        assert at is not None
        assert render_timestamp(at.astimezone(UTC)) == utc

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "soon",
            "2026-13-01",
            "2026-02-10T25:00Z",
            "0001-01-01T00:00+23:59",
            "999999-999999",
            "2026-02-10T10:00+99:00",
        ],
    )
    def test_invalid_timestamp_is_none(self, text: str) -> None:
        assert parse_timestamp(text) is None

    def test_timestamps_are_written_with_their_offset(self) -> None:
        at = datetime(2026, 2, 10, 16, 39, 0, 5, tzinfo=timezone(timedelta(hours=7)))
        assert render_timestamp(at) == "2026-02-10T16:39:00+07:00"
        assert render_timestamp(0) == "1970-01-01T00:00:00Z"
        assert render_timestamp(at.replace(tzinfo=None)) == "2026-02-10T16:39:00Z"

    @given(st.text(max_size=30))
    def test_no_text_is_too_odd(self, text: str) -> None:
        parse_timestamp(text)

    @given(
        st.from_regex(
            r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T[01]\d:[0-5]\d(:[0-5]\d)?([+-]0\d:?00|Z)?", fullmatch=True
        )
    )
    def test_timestamps_survive_a_round_trip(self, text: str) -> None:
        at = parse_timestamp(text)
        assert at is not None
        assert parse_timestamp(render_timestamp(at)) == at.replace(microsecond=0)
