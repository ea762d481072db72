"""Tests only for agents that speak the Agent Client Protocol: models, forbidden tools, and unusable agents."""

import json
import sys

import pytest
from agent_project import AgentProject, CommandResult
from script import run, say
from subject import SUBJECTS

pytestmark = pytest.mark.real_agents
MODELS = {
    "acp-claude-agent": ("haiku", "claude-haiku"),
    "acp-codex": ("gpt-5.5", "gpt-5.5"),
    "acp-gemini": ("gemini-3-flash-preview", "gemini-3-flash-preview"),
    "acp-goose": ("gpt-4o", "gpt-4o"),
    "acp-opencode": ("mock/mock-model", "mock-model"),
    "acp-qwen": ("gpt-5", "gpt-5"),
}
"""The agent's name for a model, and the beginning of the name in its request."""
REFUSED = {
    "acp-claude-agent": "execute",
    "acp-copilot": "execute",
    "acp-gemini": "execute",
    "acp-goose": "shell",
    "acp-qwen": "execute",
}
"""The kind or name of the command tool, for agents that ask before they use it."""


def bridge(project: AgentProject, acp: str, *options: str) -> CommandResult:
    command = SUBJECTS[acp].options[1].replace(" --allow-all-tools", "").split()
    return project.finish(
        sys.executable, "-P", "-m", "ralph.agents.acp_bridge", *options, "--", *command, prompt="Continue."
    )


@pytest.mark.parametrize("acp", sorted(MODELS))
def test_the_model_that_is_asked_for_is_used(project: AgentProject, acp: str) -> None:
    project.set_up(acp)
    project.model.play(say("Done."))
    asked, used = MODELS[acp]
    done = bridge(project, acp, "--model", asked)
    assert done.code == 0, done.output
    assert [one.model.startswith(used) for one in project.model.requests] == [True]


@pytest.mark.parametrize("acp", ["acp-copilot"])
def test_an_agent_without_a_choice_of_models_says_so(project: AgentProject, acp: str) -> None:
    project.set_up(acp)
    done = bridge(project, acp, "--model", "gpt-5")
    assert (done.code, "model cannot be chosen through the protocol" in done.out) == (1, True)


@pytest.mark.needs_agents("cline")
def test_an_agent_with_its_own_sign_in_names_it(project: AgentProject) -> None:
    project.set_up("cline")
    done = project.ralph("loop", "Say hello.", "--until", "`test -f x`", "--yes", "--agent-acp", "cline --acp")
    assert (done.code, "Sign in with ClinePass" in done.out) == (6, True), done.output


@pytest.mark.parametrize("acp", sorted(REFUSED))
def test_a_tool_that_is_forbidden_is_refused_when_it_asks(project: AgentProject, acp: str) -> None:
    project.set_up(acp)
    project.model.play(run("echo x > ran.txt"), say("Done."))
    done = bridge(project, acp, "--without-tool", REFUSED[acp])
    assert not (project.root / "ran.txt").exists(), done.output
    assert [one["text"] for one in done.stream if one["type"] == "denied"], done.out


@pytest.mark.parametrize("acp", ["acp-opencode"])
def test_an_agent_that_uses_a_forbidden_tool_without_asking_fails(project: AgentProject, acp: str) -> None:
    project.set_up(acp)
    project.model.play(run("echo x > ran.txt"), say("Done."))
    done = bridge(project, acp, "--without-tool", "execute")
    assert (done.code, "may not use" in done.stream[-1]["text"]) == (1, True), json.dumps(done.stream[-1])
