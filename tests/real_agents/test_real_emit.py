"""Events that real agents publish from inside a hat: the command is found whatever their shells do to PATH."""

import json

import pytest
from agent_project import AgentProject
from script import run, say
from subject import SUBJECTS

pytestmark = pytest.mark.real_agents
PRESET = """\
event_loop: {starting_event: go.on}
hats:
  first: {triggers: [go.on], publishes: [work.done]}
  last: {triggers: [work.done], publishes: [LOOP_COMPLETE]}
"""


def test_an_event_is_published_from_inside_a_hat(project: AgentProject, agent: str) -> None:
    # Qwen Code refuses commands that start with a variable: its prompts have the path, whatever PATH is.
    named = "/bin/ralph" if "qwen" in agent else '"$RALPH_BIN"'
    called = ".ralph/runs/*/bin/ralph" if "qwen" in agent else named
    project.set_up(agent)
    project.write("ralph.yml", PRESET)
    project.model.play(
        *(run(f'{called} emit work.done "as the prompt says"'), say("Done.")),
        *(run('ralph emit LOOP_COMPLETE "by its name"'), say("Done.")),
    )
    done = project.ralph("run", "-p", "Say when you are done", *SUBJECTS[agent].options, "--yes", timeout=120)
    assert done.code == 0, done.output
    assert [entry["role"] for entry in project.journal("turn.started")] == ["first", "last"]
    assert f"{named} emit" in project.model.requests[0].user_text
    [path] = (project.root / ".ralph").glob("events-*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["topic"], one["payload"]) for one in events[1:]] == [
        ("work.done", "as the prompt says"),
        ("LOOP_COMPLETE", "by its name"),
    ]
