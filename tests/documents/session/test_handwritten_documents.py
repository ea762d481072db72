"""Questions, feedback, reviews, plans and instructions: what people and agents write, as far as the engine reads it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import StateError
from ralph.documents.session.plan import (
    Plan,
    PlanQuestion,
    PlanQuestions,
    SessionLimits,
    complete_feedback,
    find_plan_problems,
    hash_feedback,
    parse_instructions,
    parse_plan,
    parse_questions,
)
from ralph.documents.session.reports import Assessment, IssueSeverity, parse_review

QUESTIONS = """---
category: technical
iteration: 1
cycle: 1
---

# Questions: Technical (Iteration 1, Cycle 1)

## Cycle 1

### Question 1
- **ID**: Q-TECH-001
- **Question**: Which format
  is it?
- **Priority**: High
- **Status**: Unanswered
- **Impact**: all of it

### Question 2
- **ID**: Q-TECH-002
- **Question**: Who reads it?
- **Priority**: High | Medium | Low
- **Status**: Unanswered

### Q-FDB-003 (from ISS-001)
- Priority: high
- Status: Research Needed

## Answers (Cycle 1)

### Q-TECH-001
- **Answer**: YAML
- **Source**: the docs
- **Confidence**: High

## Cycle 1 Summary
- Questions Generated: 3

## Cycle 2

### Q-TECH-004
- **Question**: And then?
- **Priority**: High
- **Status**: Unanswered
"""
SHORT = """---
iteration: 2
timestamp: 2026-02-11T10:15:00+07:00
previous_iteration: 1
---

# Feedback Batch: 20260211-101500

## Critical Issues
- [ ] **ISS-001**: It crashes on start
  - Evidence: app.log, lines 45-60
  - Suggested Fix: check for None
- [x] **ISS-002**: It was slow
- The window is blue

## Quality Issues
- [ ] **Q-001**: No docs
- None

## New Requirements
- Feature X

## Artifacts Index
| File | Description |
|------|-------------|
| `app.log` | Server logs |
"""
LONG = """---
iteration: 2
author: me
---
# Feedback

## Executive Summary
- it is fine

## Critical Issues

### ISS-001: Crash on start
- **Severity**: Critical
- **Evidence**: app.log
- **Reproduction Steps**:
  1. start it
- **Suggested Fix**: check for None
  everywhere

### ISS-002: Slow
- **Severity**: Low

## Quality Issues
### Q-001: No docs

## New Requirements
### REQ-001: Dark mode
- **Priority**: High

## Positive Feedback
### POS-001: Nice
### ISS-009: praise is no issue

## Artifacts Index
| File | Description | Relevant Issues |
|------|-------------|-----------------|
| a.png | Screen | ISS-001 |
"""
REVIEW = """---
iteration: 2
overall_verdict: Needs Rework
---
# Review

## Issues Found

### Critical
- **ISS-C-001**: Data is lost
  - Evidence: log

### Major
- None identified.

### Minor
- **ISS-m-001**: A typo
- [ ] [to be filled]

## Quality Assessment
- The code is clean

## Next Actions
- ISS-C-001: put it right
"""


class TestQuestions:
    def test_questions_and_answers_are_brought_together(self) -> None:
        found = parse_questions(QUESTIONS)
        assert found.cycle == 2
        assert found.questions["Q-TECH-001"] == PlanQuestion("High", "Answered")
        assert found.questions["Q-TECH-002"].priority == "Medium"
        assert found.questions["Q-FDB-003"].status == "Research Needed"
        assert found.open_high == ["Q-FDB-003", "Q-TECH-004"]

    def test_an_answer_that_needs_research_leaves_the_question_open(self) -> None:
        text = (
            QUESTIONS
            + "\n## Answers (Cycle 2)\n### Q-TECH-004\n- **Answer**: nobody knows\n- **Status**: Research Needed\n"
        )
        assert "Q-TECH-004" in parse_questions(text).open_high
        assert "Q-TECH-004" not in parse_questions(text.replace("Research Needed\n", "Answered\n")).open_high

    def test_older_files(self) -> None:
        text = "# Q&A\n## Q&A Cycles\n### Cycle 3\n#### Question 1\n- **Question**: Why?\n- **Priority**: Low\n"
        assert parse_questions(text) == PlanQuestions(3, {"Question 1": PlanQuestion("Low")})
        assert parse_questions("").cycle == 0


class TestFeedback:
    def test_hash_differs_for_changes_but_not_for_line_endings(self) -> None:
        assert hash_feedback("\ufeffa\r\nb\r\n") == hash_feedback("a\nb")
        assert hash_feedback("a") != hash_feedback("b")
        assert len(hash_feedback("\ud800")) == 64


class TestReviews:
    @pytest.mark.parametrize(
        ("text", "assessment"),
        [
            ("## Overall Assessment\n✅ Complete\n", Assessment.COMPLETE),
            ("## Overall Assessment\n\n**⚠️ Gaps Identified**: two are not complete\n", Assessment.GAPS),
            ("## Overall Assessment\n\n**⚠️ Gaps Identified**\nNot complete.\n", Assessment.GAPS),
            ("## Overall Assessment: \n❌ Incomplete", Assessment.INCOMPLETE),
            ("## Overall Assessment\n✅ Complete | ⚠️ Gaps Identified | ❌ Incomplete\n", None),
            ("**Overall Assessment**: Complete", Assessment.COMPLETE),
            ("---\noverall_verdict: Needs Feedback\n---\n", Assessment.GAPS),
            ("---\noverall_verdict: Stable\n---\n", Assessment.COMPLETE),
            ("Everything is complete.", None),
        ],
    )
    def test_assessments_in_all_their_words(self, text: str, assessment: Assessment | None) -> None:
        assert parse_review(text).assessment is assessment

    def test_the_short_form_of_issues(self) -> None:
        expected = {"ISS-001": IssueSeverity.CRITICAL, "issue-3": IssueSeverity.CRITICAL, "Q-001": IssueSeverity.MAJOR}
        assert parse_review(SHORT).issues == expected
        assert parse_review("\ufeff" + SHORT.replace("\n", "\r\n")).issues == expected

    def test_the_long_form_of_issues(self) -> None:
        expected = {"ISS-001": IssueSeverity.CRITICAL, "ISS-002": IssueSeverity.MINOR, "Q-001": IssueSeverity.MAJOR}
        assert parse_review(LONG).issues == expected
        assert parse_review(LONG.replace("Severity**: Low", "Status**: Fixed")).issues.keys() == {"ISS-001", "Q-001"}

    def test_issues_by_severity(self) -> None:
        found = parse_review(REVIEW)
        assert found.assessment is Assessment.INCOMPLETE
        assert found.issues == {"ISS-C-001": IssueSeverity.CRITICAL, "ISS-m-001": IssueSeverity.MINOR}
        assert [len(found.active(threshold)) for threshold in ("any", "major", "critical")] == [2, 1, 1]

    def test_gaps_are_issues(self) -> None:
        text = "# Session Review - Iteration 3\n## Gaps Identified\n1. No tests\n   - **Remediation**: write some\n"
        assert parse_review(text).issues == {"issue-1": IssueSeverity.MAJOR}
        assert parse_review("## Gaps Identified\n- None\n").issues == {}


class TestPlans:
    def test_sections(self) -> None:
        text = (
            "# Plan — Iteration 1\n## Goal\nMake it.\n## Success Criteria\n- [ ] SC-1: it works\n- [ ] [Measurable]\n"
            "## Target Files\n| File | Role |\n|--|--|\n| `a.py` | x |\n- b.py - new\n"
        )
        assert parse_plan(text) == Plan("Make it.", ("SC-1: it works",))
        assert find_plan_problems(text) == []

    def test_lines(self) -> None:
        text = (
            "Goal: Make it\nwork\nSuccess Criteria: it works; it is fast\nTarget Files: a.py, `b.py`\nContext: none\n"
        )
        assert parse_plan(text) == Plan("Make it\nwork", ("it works", "it is fast"))
        assert parse_plan("Goal:\n- one\nSuccess Criteria:\n- a\n- b\n").criteria == ("a", "b")

    def test_an_older_one(self) -> None:
        found = parse_plan("## Goal & Success Criteria\nMake it.\n- it works\n## Target Files/Artifacts\n- a.py\n")
        assert found.criteria == ("it works",)
        assert find_plan_problems("words") == [
            "line 1: the plan has no goal",
            "line 1: the plan has no success criteria",
        ]


class TestInstructions:
    def test_empty_instructions_keep_the_defaults(self) -> None:
        assert parse_instructions("") == SessionLimits()
        assert (SessionLimits().max_cycles, SessionLimits().max_retries, SessionLimits().task_wip_minutes) == (
            2,
            None,
            60,
        )

    def test_front_matter_as_the_seed_has_it(self) -> None:
        text = """---
applyTo: ".ralph-sessions/260210-163900/**"
concurrency:
  max_parallel_executors: 5
  max_parallel_reviewers: 1
planning: {max_cycles: 4, categories: [technical, risks]}
retries.max_subagent_retries: 1
timeouts:
  task_wip_minutes: 90
knowledge:
  approval: signal
max_critique_cycles: null
---
"""
        assert parse_instructions(text) == SessionLimits(
            max_cycles=4, max_retries=1, task_wip_minutes=90, max_executors=5, max_reviewers=1, approval="signal",
            categories=("technical", "risks"),
        )  # fmt: skip

    def test_bullets_as_later_releases_have_them(self) -> None:
        text = """# Session
## Concurrency
- max_parallel_executors: 2
# max_parallel_reviewers omitted
- max_parallel_questioners: 4
## Planning
- **max_cycles**: 5   # many
* `rework.max_attempts`: 1
- issue_severity_threshold: "major"
- max_critique_cycles: null
- task_wip_minutes: 120 minutes
```
- max_cycles: 9
```
- something: else
"""
        assert parse_instructions(text) == SessionLimits(
            max_cycles=5,
            max_executors=2,
            max_questioners=4,
            rework_attempts=1,
            severity_threshold="major",
            task_wip_minutes=120,
        )
        assert parse_instructions(f"---\nplanning:\n  max_cycles: 1\n---\n{text}").max_cycles == 1

    def test_invalid_instruction_is_an_error_with_its_line(self) -> None:
        text = "---\nplanning:\n  max_cycles: many\n---\n- max_parallel_executors: 0\n- approval: maybe\n- task_wip_minutes: -1\n"
        faults = [
            "line 5: `concurrency.max_parallel_executors` must be a whole number from 1, and is 0",
            "line 6: `knowledge.approval` must be one of auto, signal, skip, and is maybe",
            "line 7: `timeouts.task_wip_minutes` must be a number of minutes, and is -1",
            "line 3: `planning.max_cycles` must be a whole number from 0, and is many",
        ]
        assert _faults(text) == faults
        assert _faults("- task_wip_minutes: soon\n- categories: [A B]\n") == [
            "line 1: `timeouts.task_wip_minutes` must be a number of minutes, and is soon",
            "line 2: `planning.categories` must be a list of words in lower case, and is [A B]",
        ]
        with pytest.raises(StateError) as raised:
            parse_instructions("---\na: [\n---\n", "x.instructions.md")
        assert raised.value.where.startswith("x.instructions.md, line ")


def _faults(text: str) -> list[str]:
    with pytest.raises(StateError) as raised:
        parse_instructions(text, "x.instructions.md")
    return raised.value.what.split("\n")


pieces = "\n".join((QUESTIONS, SHORT, LONG, REVIEW)).split("\n")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(pieces), max_size=20).map("\n".join) | st.text(max_size=80))
def test_no_text_is_too_odd(text: str) -> None:
    parse_questions(text)
    parse_review(text)
    assert all(one.startswith("line ") for one in find_plan_problems(text))
    try:
        parse_instructions(text)
    except StateError as error:
        assert error.what


@pytest.mark.parametrize(
    "text",
    ["- a is wrong\n  see line 3\n- [ ] b is missing\n", "* a is wrong\n  see line 3\n* **ISS-007**: b is missing\n"],
)
def test_list_of_feedback_becomes_an_issue_for_each_item(text: str) -> None:
    stored = complete_feedback(text, 2, "20261117-010101", "2026-11-17T01:01:01Z")
    issues = stored.partition("## Critical Issues\n")[2].partition("\n\n")[0].splitlines()
    assert issues == ["- [ ] **ISS-001**: a is wrong", "    see line 3", "- [ ] **ISS-002**: b is missing"]
