"""Events that real agents publish from inside a hat, whatever their shells do to PATH and whatever they may do."""

import json
from pathlib import Path

import pytest
from agent_project import AgentProject
from script import put, run, run_as_told, say
from subject import SUBJECTS

from ralph.agents.adapter import Call
from ralph.agents.registry import make_adapter
from ralph.documents.run_record import AgentSpec

pytestmark = pytest.mark.real_agents
PRESET = """\
event_loop: {starting_event: go.on}
hats:
  first: {triggers: [go.on], publishes: [work.done]}
  last: {triggers: [work.done], publishes: [LOOP_COMPLETE]}
"""
ASKED = ("run", "-p", "Say when you are done", "--yes", "--max-iterations", "4")


def published(project: AgentProject) -> list[tuple[str, str]]:
    """The topics and payloads of all events but the first."""
    [path] = (project.root / ".ralph").glob("events-*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [(one["topic"], one["payload"]) for one in events[1:]]


def test_an_event_is_published_from_inside_a_hat(project: AgentProject, agent: str) -> None:
    # Qwen Code refuses commands that start with a variable: its prompts have the path, whatever PATH is.
    named = "/bin/ralph" if "qwen" in agent else '"$RALPH_BIN"'
    project.set_up(agent)
    project.write("ralph.yml", PRESET)
    project.model.play(
        *(run_as_told('emit work.done "as the prompt says"'), say("Done.")),
        *(run('ralph emit LOOP_COMPLETE "by its name"'), say("Done.")),
    )
    done = project.ralph(*ASKED, *SUBJECTS[agent].options, timeout=120)
    assert done.code == 0, done.output
    assert [entry["role"] for entry in project.journal("turn.started")] == ["first", "last"]
    assert f"{named} emit" in project.model.requests[0].user_text
    assert published(project) == [("work.done", "as the prompt says"), ("LOOP_COMPLETE", "by its name")]


@pytest.mark.parametrize("level", ["edits", "read-only", "plan"])
def test_a_hat_publishes_whatever_its_agent_may_do(project: AgentProject, agent: str, level: str) -> None:
    """With the command if the agent allows just that one, else in its last message; or the run does not start."""
    subject = SUBJECTS[agent]
    project.set_up(agent)
    named = f"acp: {subject.agent_options[1]}" if subject.agent_options else f"agent: {agent}"
    project.write("ralph.yml", f"agents: [{{{named}, permissions: {level}}}]\n{PRESET}")
    # A tool that is refused ends a turn of Qwen Code by ACP.
    work = () if agent == "acp-qwen" else (put("hello.txt", "hello\n"), run("sh -c 'echo bad > forbidden.txt'"))
    if can_run_ralph(agent, level):
        ends = [(run_as_told(f"emit {topic} told"), say("Done.")) for topic in ("work.done", "LOOP_COMPLETE")]
    else:
        ends = [(say(f'Done. <event topic="{topic}">told</event>'),) for topic in ("work.done", "LOOP_COMPLETE")]
    project.model.play(*work, *ends[0], *ends[1])
    done = project.ralph(*ASKED, timeout=120)
    if f"has no mode for `permissions: {level}`" in done.output:
        assert (done.code in (2, 6), project.model.requests) == (True, [])
        return
    assert done.code == 0, done.output
    assert published(project) == [("work.done", "told"), ("LOOP_COMPLETE", "told")]
    has_sandbox = "codex" in agent
    assert not (project.root / "forbidden.txt").exists() or (has_sandbox and level == "edits")
    assert not (project.root / "hello.txt").exists() or level == "edits"


def can_run_ralph(agent: str, level: str) -> bool:
    command = SUBJECTS[agent].agent_options[1:]
    spec = AgentSpec("acp", tuple(command[0].split())) if command else AgentSpec(agent)
    return make_adapter(spec).can_run_ralph(Call(Path(), permissions=level))
