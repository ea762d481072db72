"""Questions, feedback, reviews, plans and instructions: what people and agents write, as far as the engine reads it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.errors import StateError
from ralph.documents.session import feedback, instructions, plan, questions, review
from ralph.documents.session.instructions import Guardrails
from ralph.documents.session.issues import Issue, Severity
from ralph.documents.session.review import Assessment

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
        found = questions.parse(QUESTIONS)
        assert (found.category, found.iteration, found.cycle) == ("technical", 1, 2)
        one = found.questions["Q-TECH-001"]
        assert (one.question, one.priority, one.status, one.answer, one.source, one.confidence, one.cycle) == (
            *("Which format\nis it?", "High", "Answered", "YAML", "the docs", "High", 1),
        )
        assert found.questions["Q-TECH-002"].priority == "Medium"
        assert (found.questions["Q-FDB-003"].issue, found.questions["Q-FDB-003"].status) == (
            "ISS-001",
            "Research Needed",
        )
        assert [(one.id, one.cycle) for one in found.open_high] == [("Q-FDB-003", 1), ("Q-TECH-004", 2)]

    def test_an_answer_that_needs_research_leaves_the_question_open(self) -> None:
        text = (
            QUESTIONS
            + "\n## Answers (Cycle 2)\n### Q-TECH-004\n- **Answer**: nobody knows\n- **Status**: Research Needed\n"
        )
        assert questions.parse(text).questions["Q-TECH-004"].is_open
        assert not questions.parse(text.replace("Research Needed\n", "Answered\n")).questions["Q-TECH-004"].is_open

    def test_older_files(self) -> None:
        text = "# Q&A\n## Q&A Cycles\n### Cycle 3\n#### Question 1\n- **Question**: Why?\n- **Priority**: Low\n"
        found = questions.parse(text)
        assert (found.cycle, list(found.questions), found.questions["Question 1"].cycle) == (3, ["Question 1"], 3)
        assert questions.parse("").cycle == 0

    def test_a_cycle_that_was_left_out_is_told_once(self) -> None:
        once = questions.append_skipped(QUESTIONS, 3)
        assert once == QUESTIONS + "\n## Cycle 3\n\nCycle skipped due to max_cycles\n"
        assert questions.append_skipped(once, 3) == once
        assert questions.parse(once).cycle == 3


class TestFeedback:
    def test_the_short_form(self) -> None:
        found = feedback.parse(SHORT)
        assert (found.iteration, found.previous_iteration, found.timestamp) == (2, 1, "2026-02-11T10:15:00+07:00")
        assert list(found.issues.values()) == [
            Issue("ISS-001", "It crashes on start", Severity.CRITICAL, "check for None", "app.log, lines 45-60"),
            Issue("ISS-002", "It was slow", Severity.CRITICAL, resolved=True),
            Issue("issue-3", "The window is blue", Severity.CRITICAL),
            Issue("Q-001", "No docs", Severity.MAJOR),
        ]
        assert (found.requirements, found.artifacts) == (("Feature X",), {"app.log": "Server logs"})
        assert feedback.problems(SHORT) == []
        assert feedback.parse("\ufeff" + SHORT.replace("\n", "\r\n")) == found

    def test_the_long_form(self) -> None:
        found = feedback.parse(LONG)
        assert [(one.id, one.title, one.severity) for one in found.issues.values()] == [
            ("ISS-001", "Crash on start", Severity.CRITICAL),
            ("ISS-002", "Slow", Severity.MINOR),
            ("Q-001", "No docs", Severity.MAJOR),
        ]
        assert found.issues["ISS-001"].suggested_fix == "check for None\neverywhere"
        assert (found.requirements, found.artifacts) == (("REQ-001: Dark mode",), {"a.png": "Screen"})

    def test_a_few_words_are_feedback_too(self) -> None:
        assert feedback.parse("# Feedback\nPlease make it faster.\n").notes == "Please make it faster."
        assert not feedback.problems("Please make it faster.")
        assert feedback.parse("## Please\n- make it faster\n\n## Critical Issues\n- None\n").notes == "- make it faster"

    def test_a_form_that_nobody_filled_in_says_nothing(self) -> None:
        form = feedback.template(2, "20260211-101500", "2026-02-11T10:15:00Z", ["app.log"])
        found = feedback.parse(form)
        assert (found.is_empty, found.iteration, found.previous_iteration, found.artifacts) == (
            True,
            2,
            1,
            {"app.log": ""},
        )
        assert feedback.problems(form) == ["line 1: the feedback names no issue and no requirement"]
        filled = form.replace("## Critical Issues\n", "## Critical Issues\n- [ ] **ISS-001**: Broken\n")
        assert list(feedback.parse(filled).issues) == ["ISS-001"]

    def test_faults_of_the_front_matter(self) -> None:
        assert feedback.problems(SHORT.replace("iteration: 2", "iteration: two")) == [
            "line 2: `iteration` must be a whole number"
        ]
        assert feedback.problems(SHORT.replace("iteration: 2", "iteration: [2"))[0].startswith("line ")

    def test_the_hash_tells_changes_and_not_line_ends(self) -> None:
        assert feedback.content_hash("\ufeffa\r\nb\r\n") == feedback.content_hash("a\nb")
        assert feedback.content_hash("a") != feedback.content_hash("b")
        assert len(feedback.content_hash("\ud800")) == 64


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
        assert review.parse(text).assessment is assessment
        assert bool(review.problems(text)) is (assessment is None)

    def test_issues_by_severity(self) -> None:
        found = review.parse(REVIEW)
        assert (found.assessment, found.iteration) == (Assessment.INCOMPLETE, 2)
        assert [(one.id, one.severity) for one in found.issues.values()] == [
            ("ISS-C-001", Severity.CRITICAL),
            ("ISS-m-001", Severity.MINOR),
        ]
        assert [len(found.active(threshold)) for threshold in ("any", "major", "critical")] == [2, 1, 1]

    def test_gaps_are_issues(self) -> None:
        text = "# Session Review - Iteration 3\n## Gaps Identified\n1. No tests\n   - **Remediation**: write some\n"
        found = review.parse(text)
        assert found.iteration == 3
        assert list(found.issues.values()) == [Issue("issue-1", "No tests", Severity.MAJOR, "write some")]
        assert review.parse("## Gaps Identified\n- None\n").issues == {}


class TestPlans:
    def test_sections(self) -> None:
        text = (
            "# Plan — Iteration 1\n## Goal\nMake it.\n## Success Criteria\n- [ ] SC-1: it works\n- [ ] [Measurable]\n"
            "## Target Files\n| File | Role |\n|--|--|\n| `a.py` | x |\n- b.py - new\n"
        )
        assert plan.parse(text) == plan.Plan("Make it.", ("SC-1: it works",), ("a.py", "b.py"))
        assert plan.problems(text) == []

    def test_lines(self) -> None:
        text = (
            "Goal: Make it\nwork\nSuccess Criteria: it works; it is fast\nTarget Files: a.py, `b.py`\nContext: none\n"
        )
        assert plan.parse(text) == plan.Plan("Make it\nwork", ("it works", "it is fast"), ("a.py", "b.py"))
        assert plan.parse("Goal:\n- one\nSuccess Criteria:\n- a\n- b\n").criteria == ("a", "b")

    def test_an_older_one(self) -> None:
        found = plan.parse("## Goal & Success Criteria\nMake it.\n- it works\n## Target Files/Artifacts\n- a.py\n")
        assert (found.criteria, found.target_files) == (("it works",), ("a.py",))
        assert plan.problems("words") == ["line 1: the plan has no goal", "line 1: the plan has no success criteria"]

    def test_a_delta(self) -> None:
        text = plan.delta(
            2,
            "plan.iteration-1.md",
            "2026-02-11T10:15:00Z",
            summary=["2 critical"],
            added=["docs\nand more"],
            rationale="# So",
        )
        assert "previous_plan: plan.iteration-1.md\n" in text
        assert "## Feedback Summary\n- 2 critical\n" in text
        assert "### Removed\n- None\n\n### Added\n- docs and more\n" in text
        assert text.endswith("## Rationale\n### So\n")


class TestInstructions:
    def test_nothing_leaves_everything_as_usual(self) -> None:
        assert instructions.parse("") == Guardrails()
        assert (Guardrails().max_cycles, Guardrails().max_retries, Guardrails().task_wip_minutes) == (2, None, 60)

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
        assert instructions.parse(text) == Guardrails(
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
        assert instructions.parse(text) == Guardrails(
            max_cycles=5,
            max_executors=2,
            max_questioners=4,
            rework_attempts=1,
            severity_threshold="major",
            task_wip_minutes=120,
        )
        assert instructions.parse(f"---\nplanning:\n  max_cycles: 1\n---\n{text}").max_cycles == 1

    def test_what_cannot_be_meant_is_an_error_with_its_line(self) -> None:
        text = "---\nplanning:\n  max_cycles: many\n---\n- max_parallel_executors: 0\n- approval: maybe\n- task_wip_minutes: -1\n"
        faults = [
            "line 5: `concurrency.max_parallel_executors` must be a whole number from 1, and is 0",
            "line 6: `knowledge.approval` must be one of auto, signal, skip, and is maybe",
            "line 7: `timeouts.task_wip_minutes` must be a number of minutes, and is -1",
            "line 3: `planning.max_cycles` must be a whole number from 0, and is many",
        ]
        assert instructions.problems(text) == faults
        with pytest.raises(StateError, match="must be one of auto"):
            instructions.parse(text, "x.instructions.md")
        assert instructions.problems("- task_wip_minutes: soon\n- categories: [A B]\n") == [
            "line 1: `timeouts.task_wip_minutes` must be a number of minutes, and is soon",
            "line 2: `planning.categories` must be a list of words in small letters, and is [A B]",
        ]
        assert instructions.problems("---\na: [\n---\n")[0].startswith("line ")


pieces = "\n".join((QUESTIONS, SHORT, LONG, REVIEW)).split("\n")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(pieces), max_size=20).map("\n".join) | st.text(max_size=80))
def test_no_text_is_too_odd(text: str) -> None:
    questions.parse(questions.append_skipped(text, 4))
    plan.parse(text)
    for codec in (feedback, review):
        codec.parse(text)
    for problems in (feedback.problems, review.problems, plan.problems, instructions.problems):
        assert all(one.startswith("line ") for one in problems(text))
