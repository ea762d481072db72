"""Events that real agents publish from inside a hat: the command is found whatever their shells do to PATH."""

import json

import pytest
from place import Place
from script import run, say
from subject import SUBJECTS

pytestmark = pytest.mark.real_agents
PRESET = """\
event_loop: {starting_event: go.on}
hats:
  first: {triggers: [go.on], publishes: [work.done]}
  last: {triggers: [work.done], publishes: [LOOP_COMPLETE]}
"""


def test_an_event_is_published_from_inside_a_hat(bench: Place, agent: str) -> None:
    named = "ralph" if "qwen" in agent else '"$RALPH_BIN"'
    bench.furnish(agent)
    bench.write("ralph.yml", PRESET)
    bench.model.play(
        *(run(f'{named} emit work.done "as the prompt says"'), say("Done.")),
        *(run('ralph emit LOOP_COMPLETE "by its name"'), say("Done.")),
    )
    done = bench.ralph("run", "-p", "Say when you are done", *SUBJECTS[agent].options, "--yes", timeout=120)
    assert done.code == 0, done.said
    assert [entry["role"] for entry in bench.journal("turn.started")] == ["first", "last"]
    assert f"{named} emit" in bench.model.requests[0].said
    [path] = (bench.root / ".ralph").glob("events-*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["topic"], one["payload"]) for one in events[1:]] == [
        ("work.done", "as the prompt says"),
        ("LOOP_COMPLETE", "by its name"),
    ]
