"""Agents that speak the Agent Client Protocol: known programs, and two bridges for Claude Code and Codex."""

from dataclasses import replace

from install import NODE, Package
from subject import (
    HIDES_FAILURES,
    NO_CACHE_COUNT,
    NO_IMAGES,
    NO_REASONING_COUNT,
    NO_SUB_AGENTS,
    NO_THOUGHTS,
    NO_TODO_LIST,
    Subject,
    no_live_messages,
)

from subjects import claude, codex, copilot, gemini, goose, opencode, qwen


def by_acp(subject: Subject, command: str, **facts: object) -> Subject:
    """The same agent by ACP, started with a command. `facts` are what differs."""
    name = command.split()[0]
    own = {
        "alias": f"acp-{name.removesuffix('-acp')}",
        "agent_options": ("--agent-acp", command),
        "raw": None,
        "cannot": {},
    }
    return replace(subject, **{**own, "idle_minutes": 0.5, **facts})


SUBJECTS = [
    by_acp(
        gemini.SUBJECT,
        "gemini --acp",
        sign_in=("Gemini API key",),
        cost=None,
        cannot={
            **NO_THOUGHTS,
            **HIDES_FAILURES,
            **NO_IMAGES,
            **NO_CACHE_COUNT,
            **NO_REASONING_COUNT,
            "test_todo_lists_are_in_the_log": "its messages contain only the number of items",
            "test_sub_agents_are_in_the_log": "it refuses to start one (`denied by policy`)",
            **no_live_messages(
                "a second prompt ends the first, and no hook runs after a tool; without ACP it receives messages"
            ),
        },
    ),
    by_acp(
        opencode.SUBJECT,
        "opencode acp",
        tokens="last",
        limit_of_plan=True,
        limit_lasts=90,
        limit_end=False,
        cannot=HIDES_FAILURES,
    ),
    by_acp(
        copilot.SUBJECT,
        "copilot --acp --allow-all-tools",
        sign_in=("copilot login",),
        limit_end=False,
        cannot={
            **HIDES_FAILURES,
            **NO_IMAGES,
            **NO_TODO_LIST,
            "test_sub_agents_are_in_the_log": "its messages do not name the tool",
        },
    ),
    by_acp(
        goose.SUBJECT,
        "goose acp --with-builtin developer",
        tokens="last",
        cannot={**NO_TODO_LIST, **NO_CACHE_COUNT, **NO_REASONING_COUNT},
    ),
    by_acp(qwen.SUBJECT, "qwen --acp", cannot={**NO_TODO_LIST, **NO_IMAGES}),
    by_acp(
        claude.SUBJECT,
        "claude-agent-acp",
        package=Package(
            *("claude-agent-acp", "@agentclientprotocol/claude-agent-acp", "0.100.0"), prints_version=False, node=NODE
        ),
        sign_in=("claude-agent-acp` works for you",),
        limit_seconds=130,  # it names only the minute
        lost_answers=1,  # one time in six, only tokens: the cost is right
        side_answers=1,  # the title of a conversation
        cannot={**NO_TODO_LIST, **NO_REASONING_COUNT},
    ),
    by_acp(
        codex.SUBJECT,
        "codex-acp",
        package=Package("codex-acp", "@agentclientprotocol/codex-acp", "2.6.0"),
        sign_in=("Use an API key to authenticate",),
        cannot={**NO_TODO_LIST, **NO_SUB_AGENTS},
    ),
]
