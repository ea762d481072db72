"""Gemini CLI."""

import json
from pathlib import Path
from typing import Any

from install import Package
from subject import HIDES_FAILURES, KEY, NO_THOUGHTS, Environment, Raw, Subject


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    directory = home / ".gemini"
    directory.mkdir(parents=True)
    general = {"enableAutoUpdate": False, "enableAutoUpdateNotification": False}
    settings = {
        "general": general if tries is None else {**general, "maxAttempts": tries},
        "model": {"name": "gemini-2.5-pro"},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    (directory / "settings.json").write_text(json.dumps(settings))
    return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_NO_RELAUNCH": "true"}


def tokens(end: dict[str, Any]) -> tuple[int, int, int]:
    used = end["stats"]
    return used["input_tokens"], used["cached"], used["output_tokens"]


COMMAND = ("gemini", "-o", "stream-json", "--yolo", "--skip-trust", "-m", "gemini-2.5-pro")
SUBJECT = Subject(
    Package("gemini", "@google/gemini-cli", "0.61.0"),
    set_up,
    api="gemini",
    key="GEMINI_API_KEY",
    sign_in=("GEMINI_API_KEY",),
    cost=0.00525,
    limit_of_plan=False,
    cannot={**NO_THOUGHTS, **HIDES_FAILURES},
    raw=Raw(
        COMMAND,
        lambda session: (*COMMAND, "--resume", session),
        "session_id",
        lambda end: end["type"] == "result" and end["status"] == "success",
        tokens,
        recovers_from={"cut": False},
        codes={401: 145, 500: 244},
        limit="Please retry in 3s",
    ),
)
