"""Codex."""

from pathlib import Path
from typing import Any

from install import Package
from subject import KEY, NO_IMAGES, NO_SUB_AGENTS, NO_TODO_LIST, Environment, Raw, Subject


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    directory = home / ".codex"
    directory.mkdir(parents=True)
    retries = "" if tries is None else f"request_max_retries = {tries - 1}\nstream_max_retries = {tries - 1}\n"
    (directory / "config.toml").write_text(f"""\
model = "gpt-5"
model_provider = "mock"
check_for_update_on_startup = false

[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
{retries}
[features]
plugins = false

[analytics]
enabled = false
""")
    return {"CODEX_HOME": str(directory), "OPENAI_API_KEY": KEY}


def tokens(end: dict[str, Any]) -> tuple[int, int, int]:
    used = end["usage"]
    return used["input_tokens"], used["cached_input_tokens"], used["output_tokens"]


COMMAND = ("codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox")
SUBJECT = Subject(
    Package("codex", "@openai/codex", "0.169.0"),
    set_up,
    api="responses",
    key="OPENAI_API_KEY",
    sign_in=("codex login",),
    cost=0.00525,
    max_tries=6,
    limit_seconds=130,  # it names only the minute
    cannot={**NO_IMAGES, **NO_SUB_AGENTS, **NO_TODO_LIST},
    raw=Raw(
        COMMAND,
        lambda session: (*COMMAND, "resume", session),
        "thread_id",
        lambda end: end["type"] == "turn.completed",
        tokens,
        recovers_from={"broken": False},
        limit="try again at",
    ),
)
