"""Aider."""

from pathlib import Path

from install import PythonPackage
from subject import (
    KEY,
    NO_CACHE_COUNT,
    NO_IMAGE_TOOL,
    NO_REASONING_COUNT,
    NO_SUB_AGENTS,
    NO_THOUGHTS,
    NO_TODO_LIST,
    Environment,
    Subject,
    no_live_messages,
)


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    if tries is not None:
        # It makes nine tries itself, and its client three of each.
        client = "- name: aider/extra_params\n  extra_params: {max_retries: 0}\n"
        (home / ".aider.model.settings.yml").write_text(client)
    return {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": KEY, "AIDER_MODEL": "openai/gpt-5"}


SUBJECT = Subject(
    PythonPackage("aider", "aider-chat", "0.86.2"),
    set_up,
    api="chat",
    key="OPENAI_API_KEY",
    sign_in=("OPENAI_API_KEY",),
    cost=0.00175,  # of one answer: it asks once a turn
    limit_of_plan=False,
    limit_lasts=72,  # its tries take 64 seconds
    failing_seconds=240,
    idle_minutes=1,
    has_no_tools=True,
    cannot={
        "test_an_event_is_published_from_inside_a_hat": "it runs no commands; it publishes in its last message",
        "test_an_abort_leaves_no_process_of_a_tool_behind": "it runs no commands",
        "test_an_agent_is_adopted_after_its_engine_was_killed": "it runs no commands, and this test needs one",
        "test_tools_are_in_the_log": "it runs no commands",
        "test_failed_tools_are_marked_in_the_log": "it runs no commands",
        **NO_THOUGHTS,
        **NO_IMAGE_TOOL,
        **NO_TODO_LIST,
        **NO_CACHE_COUNT,
        **NO_REASONING_COUNT,
        **NO_SUB_AGENTS,
        **no_live_messages("it has no hooks, and calls its model only once per turn"),
    },
)
