"""Goose."""

from pathlib import Path

from install import Package
from subject import KEY, NO_REASONING_COUNT, NO_TODO_LIST, Environment, Subject, no_live_messages


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    """It always makes four tries; a setting can only skip the waits between them."""
    own = {} if tries is None else {"GOOSE_PROVIDER_SKIP_BACKOFF": "true"}
    return {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "gpt-4.1",
        "OPENAI_HOST": url,
        "OPENAI_API_KEY": KEY,
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_TELEMETRY_ENABLED": "false",
        **own,
    }


SUBJECT = Subject(
    Package("goose", "@aaif/goose-binary-linux-x64", "1.52.0", program_dir="@aaif/goose-binary-linux-x64/bin"),
    set_up,
    api="chat",
    key="OPENAI_API_KEY",
    sign_in=("goose configure",),
    cost=0.0072,
    must_cost=True,
    limit_of_plan=False,
    retry_minutes=0.05,
    cannot={
        **NO_TODO_LIST,
        **NO_REASONING_COUNT,
        **no_live_messages("its model does not see what a hook prints after a tool; through ACP it receives messages"),
    },
)
