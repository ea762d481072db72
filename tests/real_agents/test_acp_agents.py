"""What is special about agents by the Agent Client Protocol: models, tools that are forbidden, and who cannot be used so."""

import json
import sys

import pytest
from place import Done, Place
from script import run, say
from subject import SUBJECTS

pytestmark = pytest.mark.real_agents
MODELS = {
    "acp-claude-agent": ("haiku", "claude-haiku"),
    "acp-codex": ("gpt-5.4-mini", "gpt-5.4-mini"),
    "acp-gemini": ("gemini-3-flash-preview", "gemini-3-flash-preview"),
    "acp-goose": ("gpt-4o", "gpt-4o"),
    "acp-opencode": ("mock/mock-model", "mock-model"),
    "acp-qwen": ("gpt-5", "gpt-5"),
}
"""A model as the agent calls it, and how the name begins by which it asks for it."""
REFUSED = {
    "acp-claude-agent": "execute",
    "acp-copilot": "execute",
    "acp-gemini": "execute",
    "acp-goose": "shell",
    "acp-qwen": "execute",
}
"""The tool for commands, by its kind or its name, of those that ask before they use it."""


def bridge(bench: Place, acp: str, *options: str) -> Done:
    command = SUBJECTS[acp].options[1].replace(" --allow-all-tools", "").split()
    return bench.finish(
        sys.executable, "-P", "-m", "ralph.agents.acp_bridge", *options, "--", *command, prompt="Go on."
    )


@pytest.mark.parametrize("acp", sorted(MODELS))
def test_the_model_that_is_asked_for_is_used(bench: Place, acp: str) -> None:
    bench.furnish(acp)
    bench.model.play(say("Done."))
    asked, used = MODELS[acp]
    done = bridge(bench, acp, "--model", asked)
    assert done.code == 0, done.said
    assert [one.model.startswith(used) for one in bench.model.requests] == [True]


@pytest.mark.parametrize("acp", ["acp-copilot"])
def test_where_none_can_be_chosen_that_is_said(bench: Place, acp: str) -> None:
    bench.furnish(acp)
    done = bridge(bench, acp, "--model", "gpt-5")
    assert (done.code, "lets nobody choose its model" in done.out) == (1, True)


@pytest.mark.needs_agents("cline")
def test_one_that_wants_a_sign_in_of_its_own_says_which(bench: Place) -> None:
    bench.furnish("cline")
    done = bench.ralph("loop", "Say hello.", "--until", "`test -f x`", "--yes", "--agent-acp", "cline --acp")
    assert (done.code, "Sign in with ClinePass" in done.out) == (6, True), done.said


@pytest.mark.parametrize("acp", sorted(REFUSED))
def test_a_tool_that_is_forbidden_is_refused_when_it_asks(bench: Place, acp: str) -> None:
    bench.furnish(acp)
    bench.model.play(run("echo x > ran.txt"), say("Done."))
    done = bridge(bench, acp, "--without-tool", REFUSED[acp])
    assert not (bench.root / "ran.txt").exists(), done.said
    assert [one["text"] for one in done.stream if one["type"] == "denied"], done.out


@pytest.mark.parametrize("acp", ["acp-opencode"])
def test_one_that_does_not_ask_fails(bench: Place, acp: str) -> None:
    bench.furnish(acp)
    bench.model.play(run("echo x > ran.txt"), say("Done."))
    done = bridge(bench, acp, "--without-tool", "execute")
    assert (done.code, "may not use" in done.stream[-1]["text"]) == (1, True), json.dumps(done.stream[-1])
