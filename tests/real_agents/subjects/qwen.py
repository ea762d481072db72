"""Qwen Code."""

import json
from pathlib import Path

from install import NODE, Package
from subject import KEY, NO_REASONING_COUNT, NO_TODO_LIST, Environment, Subject


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    """What it remembers of a conversation it asks the model for, beside the script: it is switched off."""
    directory = home / ".qwen"
    directory.mkdir(parents=True)
    model = {} if tries is None else {"generationConfig": {"maxRetries": tries - 1}}
    settings = {
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        "security": {"auth": {"selectedType": "openai"}},
        "model": model,
    }
    (directory / "settings.json").write_text(json.dumps(settings))
    return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "gpt-5"}


SUBJECT = Subject(
    Package("qwen", "@qwen-code/qwen-code", "0.24.4", node=NODE),
    set_up,
    api="chat",
    key="OPENAI_API_KEY",
    sign_in=("OPENAI_API_KEY",),
    cost=0.00525,
    must_cost=True,
    limit_of_plan=False,
    # It makes seven tries, whatever its settings say, and waits for the end of a limit before each if its provider names it.
    limit_lasts=12,
    waits_for_limits=True,
    max_tries=21,  # seven tries that no setting limits, with three requests each
    failing_seconds=260,
    idle_minutes=0.5,
    cannot={**NO_TODO_LIST, **NO_REASONING_COUNT},
)
