"""What the outputs of agents say beside tokens in and out: the model, cached tokens, and reasoning tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
from playing import played

from ralph.agents.adapter import Adapter, Call
from ralph.agents.aider import Aider
from ralph.agents.cline import Cline
from ralph.agents.mini import Mini
from ralph.agents.opencode import OpenCode
from ralph.agents.pi import Pi

TS = "2026-11-17T17:59:24.781Z"
MINI_USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 50,
    "completion_tokens_details": {"reasoning_tokens": 20},
    "prompt_tokens_details": {"cached_tokens": 400},
}


@pytest.mark.parametrize(
    ("adapter", "line", "found"),
    [
        (
            Pi(),
            {
                "type": "message_end",
                "message": {
                    "role": "assistant",
                    "model": "m",
                    "usage": {"input": 600, "output": 50, "cacheRead": 400, "reasoning": 20},
                },
            },
            ("m", 400, 20),
        ),
        (Mini(), {"mini": {"role": "assistant", "model": "m", "usage": MINI_USAGE}}, ("m", 400, 20)),
    ],
)
def test_model_and_special_tokens_are_reported(adapter: Adapter, line: dict[str, Any], found: tuple[Any, ...]) -> None:
    usage = played(adapter, [line])[1].usage
    assert (usage.model, usage.cached_tokens, usage.reasoning_tokens) == found


@pytest.mark.parametrize("model", ["gpt-5", "model-without-a-price"])
def test_cline_names_its_model_only_at_the_end(model: str) -> None:
    counts = {"totalInputTokens": 2000, "totalOutputTokens": 100, "totalCacheReadTokens": 800}
    used = {"ts": TS, "type": "agent_event", "event": {"type": "usage", **counts}}
    usage = {"inputTokens": 2000, "outputTokens": 100, "cacheReadTokens": 800, "totalCost": 0}
    end = {"type": "run_result", "finishReason": "completed", "usage": usage, "model": {"id": model}}
    total = played(Cline(), [used, end])[1].usage
    assert (total.input_tokens, total.cached_tokens, total.model) == (2000, 800, model)


@pytest.mark.parametrize("line", ["Model: openai/gpt-5 with diff edit format", "Main model: openai/gpt-5 with diff"])
def test_aider_prints_its_model(line: str) -> None:
    sent = {"event": "message_send", "properties": {"prompt_tokens": 10, "completion_tokens": 5}, "user_id": "u"}
    reader = Aider().reader(Call(Path("/repo")), played(Aider(), [])[1].usage)
    events = [*reader.read(line.encode()), *reader.read(json.dumps({**sent, "time": 1}).encode())]
    assert [event.usage.model for event in events if event.usage.tokens] == ["openai/gpt-5"]


def test_opencode_has_its_model_in_its_settings(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "work"
    settings, own = home / ".config" / "opencode" / "opencode.json", tmp_path / "own.json"
    environment = {"HOME": str(home)}
    agent, call = OpenCode(), Call(workspace)
    assert agent.configured_model(call, environment) == ""
    settings.parent.mkdir(parents=True)
    settings.write_text('{"model": "a/home"}')
    assert agent.configured_model(call, environment) == "a/home"
    own.write_text('{"model": "a/own"}')
    environment["OPENCODE_CONFIG"] = str(own)
    assert agent.configured_model(call, environment) == "a/own"
    workspace.mkdir()
    (workspace / "config.json").write_text('{"model": "not-of-opencode"}')
    (workspace / "opencode.jsonc").write_text('// my settings\n{"model": "a/work"}')
    assert agent.configured_model(call, environment) == "a/work"
    environment["OPENCODE_CONFIG_CONTENT"] = '{"model": "a/environment"}'
    assert agent.configured_model(call, environment) == "a/environment"


@pytest.mark.parametrize("arguments", [("--agent", "plan"), ("--agent=plan",)])
def test_plan_agent_of_opencode_does_not_run_with_auto(arguments: tuple[str, ...]) -> None:
    assert "--auto" not in OpenCode().command(Call(Path("/repo"), arguments=arguments))
    assert "--auto" in OpenCode().command(Call(Path("/repo"), arguments=("--agent", "build")))


def test_level_plan_of_opencode_takes_its_commands_away() -> None:
    environment = OpenCode().environment(Call(Path("/repo"), permissions="plan"))
    assert json.loads(environment["OPENCODE_PERMISSION"]) == {"bash": "deny"}
