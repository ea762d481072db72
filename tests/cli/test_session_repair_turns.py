"""Documents that cannot be used: the agent is told everything that is wrong, at once and without a wait."""

import re
import shlex
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from test_loop import Done, Project, project  # noqa: F401 - the fixture

AGENT = Path(__file__).with_name("literal_agent.py")
FAULTS = (
    "- tasks/task-1.md: line 11: the section `## Files` names no file",
    "- task-1 depends on task-9, which does not exist",
    "- the tasks wait for each other: task-1 -> task-2 -> task-1",
)


def start(project: Project, wrong: int) -> Done:  # noqa: F811
    script = project.home / "wrong"
    script.write_text(str(wrong))
    project.extra["SCRIPT"] = str(script)
    command = shlex.join([sys.executable, "-I", str(AGENT)])
    return project.ralph("session", "new", "Build an exporter", "--agent-command", command, "--yes")


def prompts(project: Project) -> list[str]:  # noqa: F811
    return [path.read_text() for path in sorted((project.root / ".ralph" / "runs").glob("*/turns/*/prompt.md"))]


def test_planner_that_only_copies_its_prompt_completes_a_session(project: Project) -> None:  # noqa: F811
    done = start(project, wrong=0)
    assert done.code == 0, done.said
    [tasks] = (project.root / ".ralph-sessions").glob("*/tasks")
    assert sorted(path.name for path in tasks.glob("*.md")) == ["task-1.md", "task-2.md"]
    assert not any("MODE: research" in prompt for prompt in prompts(project)), "there was nothing to answer"


@pytest.mark.slow
def test_wrong_documents_are_repaired_with_the_form_and_all_faults_then_quoted(project: Project) -> None:  # noqa: F811
    done = start(project, wrong=4)
    assert done.code == 0, done.said
    first, repair, second, repair_again, third = (one for one in prompts(project) if "MODE: TASK_BREAKDOWN" in one)
    assert not any(fault in first for fault in FAULTS)
    for prompt in (repair, second, repair_again, third):
        assert all(fault in prompt for fault in FAULTS), prompt
        assert "# Task: task-1" in re.split("# What to hand over|# The format", prompt)[1], "the form is there"
    assert "## TASK_BREAKDOWN" in second and "## TASK_BREAKDOWN" not in repair
    started = [one for one in project.journal("turn.started") if one["key"] == "plan:plan-breakdown@1"]
    first_at, last_at = (datetime.fromisoformat(started[index]["at"]) for index in (0, -1))
    assert last_at - first_at < timedelta(seconds=25), "nothing waits for a better document"
