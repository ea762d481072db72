"""pi."""

import json
from pathlib import Path

from install import NODE, Package
from subject import KEY, NO_SUB_AGENTS, NO_TODO_LIST, Environment, Subject


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    """It tries again itself, and so does the library with which it asks."""
    directory = home / ".pi" / "agent"
    directory.mkdir(parents=True)
    model = {
        "id": "mock-model",
        "contextWindow": 200000,
        "maxTokens": 8192,
        "cost": {"input": 1.25, "output": 10, "cacheRead": 0.125, "cacheWrite": 0},
    }
    provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "OPENAI_API_KEY", "models": [model]}
    (directory / "models.json").write_text(json.dumps({"providers": {"mock": provider}}))
    settings = {"defaultProvider": "mock", "defaultModel": "mock-model"}
    retry = {} if tries is None else {"retry": {"maxRetries": tries - 1, "provider": {"maxRetries": 0}}}
    (directory / "settings.json").write_text(json.dumps({**settings, **retry}))
    return {"OPENAI_API_KEY": KEY, "PI_OFFLINE": "1"}


SUBJECT = Subject(
    # 1.0 and later cannot be installed: they require pi-codemode, pi-mcp and pi-tui 1.x, which are not in the registry.
    Package("pi", "@earendil-works/pi-coding-agent", "0.87.1", node=NODE),
    set_up,
    api="chat",
    key="OPENAI_API_KEY",
    sign_in=("/login",),
    cost=0.00525,
    must_cost=True,
    limit_of_plan=False,
    cannot={**NO_TODO_LIST, **NO_SUB_AGENTS},
)
