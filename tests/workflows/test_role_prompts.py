"""The sections of the shipped role texts reach the agent whole."""

from pathlib import Path

import pytest

from ralph.store.prompts import load_role
from ralph.workflows.session.terms import Roles

LAST_SENTENCES = {
    ("planner", "INITIALIZE"): "conventions of the project, how to run its tests.",
    ("planner", "TASK_BREAKDOWN"): "The engine runs such commands itself.",
    ("planner", "UPDATE"): "what was removed, added and modified, and why.",
    ("planner", "REBREAKDOWN"): "Tasks that are done stay as they are.",
    ("planner", "REBREAKDOWN_TASK"): "Who depended on the old task will wait for all of them.",
    ("planner", "CRITIQUE_BREAKDOWN"): "hand over nothing, and say so.",
    ("questioner", "brainstorm"): "- **Impact**: what changes in the plan with the answer\n```",
    ("questioner", "research"): "Say in your answer what you found that the plan does not know.",
    ("questioner", "feedback-analysis"): "`- **Question Type**`.",
    ("executor", ""): "Do not commit: the engine does.",
    ("reviewer", "TASK_REVIEW"): "`Qualified` only where all criteria hold.",
    ("reviewer", "SESSION_REVIEW"): "otherwise `Gaps Identified`, with each gap and what it would take.",
    ("librarian", "EXTRACT"): "Where there is nothing, hand over nothing.",
    ("classic", "planner INITIALIZE"): "what everybody in this session has to heed.",
    ("classic", "planner TASK_BREAKDOWN"): "where that is possible at all: the engine runs such commands itself.",
    ("classic", "planner UPDATE"): "Tasks that are done stay as they are.",
    ("classic", "questioner brainstorm"): "Status (Unanswered) and Impact for each.",
    ("classic", "questioner research"): "with what you found that the plan does not know.",
    ("classic", "executor"): "Do not commit.",
    ("classic", "reviewer TASK_REVIEW"): "`Qualified` only where all criteria hold.",
    ("classic", "reviewer SESSION_REVIEW"): "A gap that only a person can\ndecide becomes no task.",
}


def roles(tmp_path: Path) -> Roles:
    names = {role for role, _ in LAST_SENTENCES}
    return Roles({name: load_role(name, tmp_path)[0] for name in names}, "")


@pytest.mark.parametrize(("role", "mode"), LAST_SENTENCES)
def test_section_of_a_mode_is_whole(tmp_path: Path, role: str, mode: str) -> None:
    section = roles(tmp_path).section(role, mode)
    assert section.endswith(LAST_SENTENCES[role, mode])
    fences = [line for line in section.splitlines() if line.startswith("```")]
    assert len(fences) % 2 == 0, section
    others = [other for one, other in LAST_SENTENCES if one == role and other not in ("", mode)]
    assert not [other for other in others if f"\n## {other}\n" in section], "a section of another mode came along"


def test_every_section_of_a_role_text_is_tested(tmp_path: Path) -> None:
    inside_examples = {"Title", "Files", "Objective", "Grounded In", "Success Criteria", "Dependencies", "Notes"}
    inside_examples |= {"Cycle 1", "When"}
    for role, text in roles(tmp_path).texts.items():
        titles = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")} - inside_examples
        assert titles == {mode for one, mode in LAST_SENTENCES if one == role and mode}
