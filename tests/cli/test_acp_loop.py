"""`ralph loop` with agents that speak the Agent Client Protocol, and the bridge alone."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_loop import RALPH, Project, project  # noqa: F401 - the fixture

pytest.importorskip("acp")
AGENT = Path(__file__).parent.parent / "agents" / "acp_agent.py"
UNTIL = "`test -f done.txt` passes"
WRITE = {"ask": ["fs/write_text_file", {"path": "done.txt", "content": "done\n"}]}
DONE = {
    "turn": [WRITE, {"update": {"sessionUpdate": "usage_update", "cost": {"amount": 0.25, "currency": "USD"}}}],
    "result": {"stopReason": "end_turn", "usage": {"inputTokens": 1000, "outputTokens": 50, "totalTokens": 1050}},
}
REFUSED = {"greeting": {"authMethods": [{"id": "x", "name": "Log in", "description": "Run `agent login`"}]}} | {
    "answers": {"session/new": {"error": {"code": -32000, "message": "Authentication required"}}}
}


def agent(play: dict[str, Any]) -> str:
    return shlex.join([sys.executable, str(AGENT), json.dumps(play)])


@pytest.fixture
def acp(project: Project) -> Project:  # noqa: F811
    project.extra = {"ACP_LOG": str(project.home / "log")}
    return project


def test_a_loop_ends_when_the_check_passes(acp: Project) -> None:
    done = acp.ralph("loop", "Say hello", "--until", UNTIL, "--yes", "--agent-acp", agent(DONE))
    assert done.code == 0, done.said
    [ended] = acp.journal("turn.ended")
    assert (ended["result"]["end"], ended["result"]["agent_session"]) == ("finished", "s-1")
    assert ended["result"]["usage"] == {"input_tokens": 1000, "output_tokens": 50, "cost": 0.25}


@pytest.mark.slow
def test_the_settings_name_one_and_a_conversation_continues(acp: Project) -> None:
    broken = {"ask": ["fs/write_text_file", {"path": ".ralph/turn/outbox/result.json", "content": "{}"}]}
    command = json.dumps(agent({**DONE, "turn": [WRITE, broken]}))
    (acp.root / "ralph.yml").write_text(f"agent:\n  acp: {command}\n  env: {{ACP_MORE: yes}}\n")
    acp.never_ask()
    assert acp.ralph("loop", "Say hello", "--until", UNTIL).code == 0
    methods = [json.loads(line).get("method") for line in (acp.home / "log").read_text().splitlines()]
    assert ("session/new" in methods, "session/load" in methods) == (True, True)


def test_agent_that_is_not_signed_in_ends_the_run_with_advice(acp: Project) -> None:
    done = acp.ralph("loop", "Say hello", "--until", UNTIL, "--yes", "--agent-acp", agent(REFUSED))
    assert done.code == 6
    assert "Log in (Run `agent login`)" in done.out


@pytest.mark.slow
def test_program_that_is_not_an_agent_ends_the_run_with_advice(acp: Project) -> None:
    done = acp.ralph("loop", "Say hello", "--until", UNTIL, "--yes", "--agent-acp", "true")
    assert done.code == 6
    assert "speaks the Agent Client Protocol" in done.out


def test_a_dry_run_shows_the_command(acp: Project) -> None:
    done = acp.ralph("loop", "Say hello", "--until", UNTIL, "--dry-run", "--agent-acp", "true --acp", "--model", "m1")
    assert "acp_bridge --model m1 -- true --acp < prompt" in done.out


@pytest.mark.slow
def test_the_bridge_can_be_called_alone(acp: Project) -> None:
    words = [RALPH, "acp-bridge", "--patience", "30", "--", sys.executable, AGENT, json.dumps(DONE)]
    environment = {"ACP_LOG": str(acp.home / "log"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(words, cwd=acp.root, env=environment, input=b"Say hello", capture_output=True, timeout=120)
    assert (done.returncode, (acp.root / "done.txt").exists()) == (0, True), done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["type"] == "result"


def test_bridge_command_is_hidden_and_has_a_help(acp: Project) -> None:
    assert "acp-bridge" not in acp.ralph("--help").out
    assert "--without-tool" in acp.ralph("acp-bridge", "--help").out
