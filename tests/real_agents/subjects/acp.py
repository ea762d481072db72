"""Agents by the Agent Client Protocol: the programs of others again, and two that speak for Claude Code and Codex."""

from dataclasses import replace

from install import Package
from subject import Subject, deaf

from subjects import claude, codex, copilot, gemini, goose, opencode, qwen


def speaking(subject: Subject, command: str, **facts: object) -> Subject:
    """An agent that is told of by its command; facts are what is other than with its own stream."""
    name = command.split()[0]
    own = {"called": f"acp-{name.removesuffix('-acp')}", "asked": ("--agent-acp", command), "raw": None, "cannot": {}}
    return replace(subject, **{**own, "idle_minutes": 0.5, **facts})


SUBJECTS = [
    speaking(
        gemini.SUBJECT,
        "gemini --acp",
        sign_in=("Gemini API key",),
        cost=None,
        cannot=deaf("a second prompt ends the first, and no hook runs after a tool; by its own stream it hears"),
    ),
    speaking(opencode.SUBJECT, "opencode acp", tokens="last", limit_end=False),
    speaking(
        copilot.SUBJECT,
        "copilot --acp --allow-all-tools",
        sign_in=("copilot login",),
        cost=None,
        must_cost=False,
        limit_end=False,
    ),
    speaking(goose.SUBJECT, "goose acp --with-builtin developer", tokens="last"),
    speaking(qwen.SUBJECT, "qwen --acp", cost=None, must_cost=False, limit_end=False),
    speaking(
        claude.SUBJECT,
        "claude-agent-acp",
        package=Package("claude-agent-acp", "@agentclientprotocol/claude-agent-acp", "0.49.0", tells_version=False),
        sign_in=("claude-agent-acp` works for you",),
        limit_seconds=130,  # it names only the minute
        loses=1,  # one time in six, of tokens alone: the money is right
    ),
    speaking(
        codex.SUBJECT,
        "codex-acp",
        package=Package("codex-acp", "@zed-industries/codex-acp", "0.16.0", tells_version=False),
        sign_in=("CODEX_API_KEY",),
        cannot={"test_a_limit_that_the_agent_waits_out_is_none_of_ours": "it tries nothing again that was limited"},
        cost=None,
        tokens="none",
    ),
]
