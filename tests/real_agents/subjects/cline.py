"""Cline."""

import json
from pathlib import Path

from install import Package
from subject import (
    KEY,
    NO_REASONING_COUNT,
    NO_SUB_AGENTS,
    NO_THOUGHTS,
    NO_TODO_LIST,
    Environment,
    Subject,
    no_live_messages,
)


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    directory = home / ".cline" / "data" / "settings"
    directory.mkdir(parents=True)
    settings = {"provider": "openai-compatible", "apiKey": KEY, "model": "gpt-5", "baseUrl": f"{url}/v1"}
    provider = {"settings": settings, "updatedAt": "2026-11-15T00:00:00.000Z", "tokenSource": "manual"}
    providers = {"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}}
    (directory / "providers.json").write_text(json.dumps({**providers, "providers": {"openai-compatible": provider}}))
    return {}


SUBJECT = Subject(
    Package("cline", "cline", "3.0.65"),
    set_up,
    api="chat",
    key="",  # it is in a file
    sign_in=("cline auth",),
    cost=0.00525,
    must_cost=True,
    limit_of_plan=False,
    # It makes six tries of a request, which take 62 seconds, and waits out what ends within a minute of one of them.
    limit_lasts=94,
    failing_seconds=180,
    resumes=False,
    cannot={
        **NO_THOUGHTS,
        **NO_TODO_LIST,
        **NO_REASONING_COUNT,
        **NO_SUB_AGENTS,
        **no_live_messages("with JSON output it ignores --hooks-dir, and runs hooks only from the user's home or tree"),
    },
)
