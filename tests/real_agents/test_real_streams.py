"""What the user sees of a turn of the real agents: thoughts, tools, images, instructions, and the quota of a subscription."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, open_project
from script import Step, put, run, say, think, use
from subject import SUBJECTS
from wire import Tokens

pytestmark = pytest.mark.real_agents
TASK = "Create hello.txt, and say hello in it."
UNTIL = "`grep -q hello hello.txt`"
WORK = (put("hello.txt", "hello\n"), run("cat hello.txt"), say("All done."))
PLAN = {"CLAUDE_CODE_OAUTH_TOKEN": "mock", "ANTHROPIC_API_KEY": ""}
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""One pixel."""
TODOS = [{"content": "write it", "status": "completed"}, {"content": "read it", "status": "pending"}]


def loop(project: AgentProject, agent: str, *args: str, settings: str = "") -> str:
    if settings:
        project.write("ralph.yml", settings)
    done = project.ralph("loop", TASK, "--until", UNTIL, *SUBJECTS[agent].options, "--yes", *args)
    assert done.code == 0, done.output
    return done.out


def test_tools_are_in_the_log(project: AgentProject, agent: str) -> None:
    project.set_up(agent)
    project.model.play(put("hello.txt", "hello\n"), run("ls no-such-file"), say("All done."))
    loop(project, agent)
    shown = project.ralph("logs", "--tools").out
    assert "hello.txt" in shown and "no-such-file" in shown, shown
    events = read_events(project)
    assert any("no-such-file" in str(one.get("text")) for one in events if one["kind"] == "tool"), events
    assert any(one["kind"] == "tool-result" for one in events), events


def test_thoughts_are_in_the_log(project: AgentProject, agent: str) -> None:
    project.set_up(agent)
    project.model.play(
        replace(think("I wonder about xylophones.", "Now."), write=("hello.txt", "hello\n")), say("Done.")
    )
    loop(project, agent)
    assert "~ I wonder about xylophones." in project.ralph("logs", "--tools").out


@pytest.mark.parametrize(
    "reasoning", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in ("codex", "gemini")]
)
def test_reasoning_tokens_and_the_model_are_on_the_receipt(project: AgentProject, reasoning: str) -> None:
    project.set_up(reasoning)
    project.model.tokens = Tokens(1000, 50, reasoning=20)
    project.model.play(*WORK)
    loop(project, reasoning)
    receipt = project.ralph("cost", "--json").json
    assert (receipt["total"]["reasoning_tokens"] > 0, "unknown" in receipt["by_model"]) == (True, False), receipt


def read_events(project: AgentProject) -> list[dict[str, Any]]:
    [path] = project.run.glob("turns/00001-*/events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.needs_agents("opencode")
def test_a_todo_list_is_one_line_in_the_log(project: AgentProject) -> None:
    """Without a user at the terminal, most agents offer no tool for such a list to their model."""
    project.set_up("opencode")
    todos = [{**one, "priority": "high", "id": str(number)} for number, one in enumerate(TODOS)]
    project.model.play(put("hello.txt", "hello\n"), use(todowrite={"todos": todos}), say("Done."))
    loop(project, "opencode")
    assert "1 of 2 done: read it" in project.ralph("logs", "--tools").out, read_events(project)


def test_instructions_of_the_project_reach_its_model_once(project: AgentProject, agent: str) -> None:
    project.set_up(agent)
    project.write("AGENTS.md", "# Rules\n\nAlways say XYLOPHONE.\n")
    project.model.play(*WORK)
    shown = loop(project, agent, settings="instructions: [AGENTS.md]\n")
    assert project.model.requests[0].text.count("XYLOPHONE") == 1, shown
    passed_on = "XYLOPHONE" in (project.run / "turns" / "00001-implementer" / "prompt.md").read_text()
    assert ("get it in their prompts" in shown) is passed_on, shown


@pytest.mark.parametrize(
    "metered", [pytest.param(name, marks=pytest.mark.needs_agents(name)) for name in ("claude", "codex")]
)
def test_a_run_stops_at_its_share_of_a_subscription(project: AgentProject, metered: str) -> None:
    project.set_up(metered, **PLAN)
    steps: tuple[Step, ...] = (replace(say("Not yet."), quota=0.5), replace(say("Not yet."), quota=0.85))
    project.model.play(*steps, *WORK)
    project.write("ralph.yml", "limits: {quota: 80%}\n")
    command = ("loop", TASK, "--until", UNTIL, *SUBJECTS[metered].options, "--yes")
    done = project.ralph(*command)
    assert (done.code, len(project.model.requests)) == (3, 2), done.output
    assert "has used 85% of its 5" in done.output or "has used 85% of its five-hour" in done.output, done.output
    assert "--max-quota 100%" in done.output
    assert project.ralph("resume").code == 3, "before the reset, it stops again"
    assert len(project.model.requests) == 2
    assert project.ralph("resume", "--max-quota", "100%").code == 0


@pytest.mark.needs_agents("claude")
def test_images_and_sub_agents_are_in_the_log(tmp_path: Path) -> None:
    # Not with the fixture, which expects the prompt of the turn in every request: a sub-agent has its own.
    with open_project(tmp_path) as project:
        project.set_up("claude")
        picture = project.root / "dot.png"
        picture.write_bytes(base64.b64decode(PICTURE))
        project.model.play(
            use(read={"file_path": str(picture)}),
            use(agent={"description": "look", "prompt": "Look around", "subagent_type": "general-purpose"}),
            *(run("echo one"), run("echo two"), put("hello.txt", "hello\n"), say("Done.")),
        )
        loop(project, "claude")
        shown = project.ralph("logs", "--tools").out
        assert "< image" in shown and "sub-agent > " in shown, shown
