"""Reports: the executor's part, the reviewer's, and which verdict counts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.documents.session.reports import (
    STUB,
    ReviewVerdict,
    append_review,
    compose_failed_report,
    compose_report,
    parse_attempt,
    parse_report,
    report_name,
)

AT = "2026-02-10T16:39:00Z"
REAL = """---
task_id: task-2
iteration: 1
attempt: 2
created_at: 2026-02-10T16:39:00+0700
---

# Task Report: task-2 [Attempt 2]

---
## PART 1: IMPLEMENTATION REPORT

### Success Criteria Status
| Criterion | Status | Evidence |
|-----------|--------|----------|
| It works | ✅ Met | seen |

```markdown
## PART 2: REVIEW REPORT
**Status**: Qualified
```

---
## PART 2: REVIEW REPORT
*(To be appended by Ralph-v2-Reviewer)*

[Leave empty]

---
## PART 2: REVIEW REPORT
*(Appended by Ralph-v2-Reviewer)*

### Review Summary
- **Status**: looks Qualified

### Recommendation
**Status**: ❌ Failed
**Reasoning**: no tests
"""


class TestNames:
    def test_the_first_attempt_has_no_number(self) -> None:
        assert (report_name("task-1", 1), report_name("task-1", 3)) == ("task-1-report.md", "task-1-report-r3.md")

    @pytest.mark.parametrize(
        ("name", "attempt"),
        [
            ("task-1-report.md", 1),
            ("x/task-1-report-r1.md", 1),
            ("task-1-report-r12.md", 12),
            ("tasks.task-1-report-r2.md", 2),
            ("task-1-report-r2.md.bak", None),
            ("task-1-report-rx.md", None),
            ("task-11-report.md", None),
            ("task-1.1-report.md", None),
        ],
    )
    def test_report_name_contains_the_attempt(self, name: str, attempt: int | None) -> None:
        assert parse_attempt(name, "task-1") == attempt


class TestReading:
    def test_the_last_part_2_and_the_last_status_in_it_count(self) -> None:
        report = parse_report(REAL)
        assert (report.iteration, report.verdict) == (1, ReviewVerdict.FAILED)
        assert report.part1.startswith("### Success Criteria Status") and report.part1.endswith(
            "**Status**: Qualified\n```"
        )
        assert parse_report("\ufeff" + REAL.replace("\n", "\r\n").rstrip()) == report

    def test_stub_is_not_a_review(self) -> None:
        report = parse_report(REAL[: REAL.index("---\n## PART 2: REVIEW REPORT\n*(Appended")])
        assert report.verdict is None

    @pytest.mark.parametrize(
        ("words", "verdict"),
        [
            ("Qualified", ReviewVerdict.QUALIFIED),
            ("**qualified**", ReviewVerdict.QUALIFIED),
            ("✅ PASS", ReviewVerdict.QUALIFIED),
            ("PASS_WITH_NOTES", ReviewVerdict.QUALIFIED),
            ("Passed.", ReviewVerdict.QUALIFIED),
            ("FAIL", ReviewVerdict.FAILED),
            ("Not Qualified", ReviewVerdict.FAILED),
            ("Unqualified", ReviewVerdict.FAILED),
            ("Qualified | Failed", None),
            ("", None),
            ("Passive", None),
            ("Failed: 3 of 4 passed", ReviewVerdict.FAILED),
            ("Qualified, nothing failed", ReviewVerdict.QUALIFIED),
            ("not passed", ReviewVerdict.FAILED),
        ],
    )
    def test_verdicts_in_all_their_words(self, words: str, verdict: ReviewVerdict | None) -> None:
        assert ReviewVerdict.read(words) is verdict
        assert parse_report(f"## PART 2: REVIEW REPORT\n- **Status:** {words}\n").verdict is verdict

    def test_an_old_report_without_front_matter(self) -> None:
        assert parse_report("# Task Report: task-3 [Rework #2]\n\n## PART 1\ndone\n").part1 == "done"
        assert parse_report("words").part1 == "words"


class TestWriting:
    def test_a_report_and_its_review(self) -> None:
        text = compose_report("task-1", 2, 1, AT, "### Summary of Changes\nall of it\n")
        assert text == (
            f"---\ntask_id: task-1\niteration: 2\nattempt: 1\ncreated_at: {AT}\n---\n\n# Task Report: task-1 [Attempt 1]\n\n"
            f"## PART 1: IMPLEMENTATION REPORT\n\n### Summary of Changes\nall of it\n\n---\n## PART 2: REVIEW REPORT\n{STUB}\n"
        )
        assert parse_report(text).verdict is None
        good = append_review(text, "---\n## PART 2: REVIEW REPORT\n*(Appended)*\n\n**Status**: Qualified\n")
        assert good == text.replace(STUB, "\n*(Appended)*\n\n**Status**: Qualified")
        bad = append_review(good, "**Status**: Failed")
        assert bad == good + "\n---\n## PART 2: REVIEW REPORT\n\n**Status**: Failed\n"
        assert parse_report(good).verdict == "Qualified"
        assert parse_report(bad).verdict == "Failed"
        assert parse_report(bad).part1 == parse_report(text).part1

    def test_complete_report_of_the_executor_becomes_its_first_part(self) -> None:
        assert parse_report(compose_report("task-2", 1, 2, AT, REAL)).part1 == parse_report(REAL).part1
        assert parse_report(compose_report("task-2", 1, 2, AT, "# Task Report: task-2\n\nmine")).part1 == "mine"
        assert "left no report" in compose_report("task-2", 1, 2, AT, " \n")

    def test_no_hat_reviews_its_own_work(self) -> None:
        text = compose_report(
            "task-1", 1, 1, AT, "done\n\n## PART 2: REVIEW REPORT\n**Status**: Qualified\n\n```\nnever closed"
        )
        assert parse_report(text).verdict is None
        assert parse_report(append_review(text, "**Status**: Failed")).verdict is ReviewVerdict.FAILED

    def test_a_report_on_nothing(self) -> None:
        report = parse_report(compose_failed_report("task-1", 1, 3, AT, "timed out after\n60 minutes"))
        assert (report.verdict, "timed out" in report.part1) == (ReviewVerdict.FAILED, True)

    @settings(max_examples=200, deadline=None)
    @given(
        st.lists(st.sampled_from([*REAL.split("\n"), "~~~", "<!--", "x"]), max_size=14).map("\n".join)
        | st.text(max_size=50)
    )
    def test_whatever_the_executor_wrote_the_review_counts(self, body: str) -> None:
        text = compose_report("task-1", 1, 1, AT, body)
        assert parse_report(text).verdict is None
        assert parse_report(append_review(text, "fine\n\n**Status**: Qualified")).verdict is ReviewVerdict.QUALIFIED
        assert parse_report(append_review(body, "**Status**: Failed")).verdict is ReviewVerdict.FAILED
        assert parse_report(append_review(text, "x")).part1 == parse_report(text).part1
