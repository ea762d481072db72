"""OpenCode."""

import json
from pathlib import Path

from install import Package
from subject import KEY, Environment, Subject


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    directory = home / ".config" / "opencode"
    directory.mkdir(parents=True)
    price = {"input": 1.25, "output": 10, "cache_read": 0.125}
    model = {"name": "mock", "cost": price, "limit": {"context": 400_000, "output": 8192}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "mock",
        "options": {"baseURL": f"{url}/v1", "apiKey": "{env:MOCK_API_KEY}"},
        "models": {"mock-model": model},
    }
    settings = {"model": "mock/mock-model", "provider": {"mock": provider}}
    (directory / "opencode.json").write_text(json.dumps(settings))
    # It asks the registry for the package that plugins import, unless that looks installed.
    (directory / "node_modules").mkdir()
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    (directory / "package-lock.json").write_text(json.dumps(lock))
    return {"MOCK_API_KEY": KEY, "OPENCODE_DISABLE_MODELS_FETCH": "1"}


SUBJECT = Subject(
    # Its script puts the native program, which is a separate package, in place of a stub.
    Package("opencode", "opencode-ai", "1.18.33", scripts=True),
    set_up,
    api="chat",
    key="MOCK_API_KEY",
    sign_in=("opencode auth login",),
    cost=0.00525,
    must_cost=True,
    limit_of_plan=False,
    limit_lasts=35,  # our plugin ends a turn that would wait for more than 30 seconds
    limit_seconds=20,
    failing_seconds=240,
    idle_minutes=0.6,
)
