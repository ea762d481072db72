"""Claude Code."""

from pathlib import Path
from typing import Any

from install import Package
from subject import KEY, NO_REASONING_COUNT, NO_TODO_LIST, Environment, Raw, Subject


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    own = {"CLAUDE_CODE_MAX_RETRIES": str(tries - 1)} if tries else {}
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        **own,
    }


def tokens(end: dict[str, Any]) -> tuple[int, int, int]:
    [used] = end["modelUsage"].values()
    return used["inputTokens"] + used["cacheReadInputTokens"], used["cacheReadInputTokens"], used["outputTokens"]


COMMAND = ("claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
SUBJECT = Subject(
    # Its script links the native program, which is a separate package, over a stub.
    Package("claude", "@anthropic-ai/claude-code", "2.1.327", scripts=True),
    set_up,
    api="anthropic",
    key="ANTHROPIC_API_KEY",
    sign_in=("/login", "ANTHROPIC_API_KEY"),
    cost=0.015,
    counts_cut_answer=True,
    must_cost=True,
    cannot={**NO_TODO_LIST, **NO_REASONING_COUNT},
    raw=Raw(
        COMMAND,
        lambda session: (*COMMAND, "--resume", session),
        "session_id",
        lambda end: end["type"] == "result" and not end["is_error"],
        tokens,
        limit="hit your 5-hour limit · resets",
    ),
)
