"""Cline."""

import json
from pathlib import Path

from install import Package
from subject import KEY, Environment, Subject, deaf


def furnish(home: Path, url: str, tries: int | None) -> Environment:
    place = home / ".cline" / "data" / "settings"
    place.mkdir(parents=True)
    settings = {"provider": "openai-compatible", "apiKey": KEY, "model": "gpt-5", "baseUrl": f"{url}/v1"}
    provider = {"settings": settings, "updatedAt": "2026-11-15T00:00:00.000Z", "tokenSource": "manual"}
    providers = {"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}}
    (place / "providers.json").write_text(json.dumps({**providers, "providers": {"openai-compatible": provider}}))
    return {}


SUBJECT = Subject(
    Package("cline", "cline", "3.0.65"),
    furnish,
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
    cannot=deaf("it runs hooks only from the user's home or tree where it prints JSON, whatever --hooks-dir says"),
)
