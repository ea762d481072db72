"""What the user sees of a turn of the real agents: thoughts, tools, images, instructions, and the quota of a subscription."""

import base64
import re
from dataclasses import dataclass, field, replace
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
TODOS = [
    {"id": "1", "content": "write it", "status": "completed", "priority": "high"},
    {"id": "2", "content": "read it", "status": "pending", "priority": "high"},
]
PLAIN_TODOS = [{"description": one["content"], "status": one["status"]} for one in TODOS]


def loop(project: AgentProject, agent: str, *args: str, settings: str = "") -> str:
    if settings:
        project.write("ralph.yml", settings)
    done = project.ralph("loop", TASK, "--until", UNTIL, *SUBJECTS[agent].options, "--yes", *args)
    assert done.code == 0, done.output
    return done.out


@dataclass(frozen=True)
class ObservedTurn:
    """What the user sees of one turn in which an agent did everything that it can."""

    log: str = ""
    receipt: dict[str, Any] = field(default_factory=dict)
    """What `ralph cost --json` prints."""
    error: str = ""


OBSERVED: dict[str, ObservedTurn] = {}
"""The turn of each agent: one run serves several tests."""


@pytest.fixture
def observed(agent: str, tmp_path: Path) -> ObservedTurn:
    if agent not in OBSERVED:
        try:
            OBSERVED[agent] = observe(agent, tmp_path)
        except BaseException as error:
            OBSERVED[agent] = ObservedTurn(error=str(error))
            raise
    if OBSERVED[agent].error:
        pytest.fail(f"the turn that these tests share failed: {OBSERVED[agent].error}")
    return OBSERVED[agent]


def observe(agent: str, directory: Path) -> ObservedTurn:
    # Not with the fixture `project`, which expects the prompt of the turn in every request: a sub-agent has its own.
    with open_project(directory) as project:
        project.set_up(agent)
        picture = project.root / "dot.png"
        picture.write_bytes(base64.b64decode(PICTURE))
        project.model.tokens = Tokens(input=1000, output=50, cached=400, reasoning=20)
        project.model.play(*steps_to_observe(agent, str(picture)))
        loop(project, agent)
        return ObservedTurn(project.ralph("logs", "--tools").out, project.ralph("cost", "--json").json)


def steps_to_observe(agent: str, picture: str) -> list[Step]:
    """A thought, a file, a command that fails, an image, a to-do list and a sub-agent, if the agent has the tools."""
    cannot = SUBJECTS[agent].cannot
    steps = [
        replace(think("I wonder about xylophones.", "Now."), write=("hello.txt", "hello\n")),
        run("ls no-such-file"),
    ]
    if "test_images_are_in_the_log" not in cannot:
        where = dict.fromkeys(("file_path", "filePath", "path", "source"), picture)
        files: dict[str, Any] = {"files": [{"path": picture}]}
        readers = dict.fromkeys(("read", "read_file", "view", "read_image", "view_image"), where)
        steps.append(use(**readers, read_files=files))
    if "test_todo_lists_are_in_the_log" not in cannot:
        steps.append(use(todowrite={"todos": TODOS}, write_todos={"todos": PLAIN_TODOS}))
    if "test_sub_agents_are_in_the_log" not in cannot:
        # It works at once, not in the background. Its own model asks for one command.
        kinds = {"agent_type": "general-purpose", "agent_name": "generalist"}
        kinds["subagent_type"] = "general" if "opencode" in agent else "general-purpose"
        look = {
            "description": "look",
            "prompt": "Look around",
            "instructions": "Look around",
            "name": "looker",
            **kinds,
        }
        now = {"run_in_background": False, "async": False, "mode": "sync"}
        steps += [use(**{name: {**look, **now} for name in ("agent", "task", "invoke_agent", "delegate")})]
        steps += [run("echo inner"), say("I looked.")]
    return [*steps, say("Done.")]


def test_tools_are_in_the_log(observed: ObservedTurn, agent: str) -> None:
    # `goose acp` cuts off a long path.
    assert re.search("> (.*hello.txt|write · /)", observed.log), observed.log
    assert re.search("> .*no-such-file", observed.log), observed.log


def test_failed_tools_are_marked_in_the_log(observed: ObservedTurn, agent: str) -> None:
    assert re.search("! failed: .*no-such-file", observed.log), observed.log


def test_thoughts_are_in_the_log(observed: ObservedTurn, agent: str) -> None:
    assert "~ I wonder about xylophones." in observed.log, observed.log


def test_images_are_in_the_log(observed: ObservedTurn, agent: str) -> None:
    assert "< image" in observed.log, observed.log


def test_todo_lists_are_in_the_log(observed: ObservedTurn, agent: str) -> None:
    assert "1 of 2 done: read it" in observed.log, observed.log


def test_sub_agents_are_in_the_log(observed: ObservedTurn, agent: str) -> None:
    assert re.search(r"> sub-agent \(\w+\): .*Look around", observed.log), observed.log


def test_cached_tokens_are_on_the_receipt(observed: ObservedTurn, agent: str) -> None:
    total, subject = observed.receipt["total"], SUBJECTS[agent]
    assert 0 < total["cached_tokens"] == total["input_tokens"] * 0.4, total
    if total["cost"] and subject.cost and subject.tokens == "all":
        assert total["cost"] < subject.cost * total["input_tokens"] / 3000, "cached tokens cost less"


def test_reasoning_tokens_are_on_the_receipt(observed: ObservedTurn, agent: str) -> None:
    total = observed.receipt["total"]
    assert 0 < total["reasoning_tokens"] == total["output_tokens"] * 0.4, total


def test_the_model_is_on_the_receipt(observed: ObservedTurn, agent: str) -> None:
    names = list(observed.receipt["by_model"])
    assert names and all(re.search("claude|gpt-|gemini|mock", name) for name in names), names


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
