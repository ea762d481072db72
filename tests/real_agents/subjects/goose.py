"""Goose."""

from pathlib import Path

from install import Package
from subject import KEY, Environment, Subject, deaf


def furnish(home: Path, url: str, tries: int | None) -> Environment:
    """It always makes four tries; it can only be told not to wait between them."""
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
    Package("goose", "@aaif/goose-binary-linux-x64", "1.52.0", within="@aaif/goose-binary-linux-x64/bin"),
    furnish,
    api="chat",
    key="OPENAI_API_KEY",
    sign_in=("goose configure",),
    cost=0.0072,
    must_cost=True,
    limit_of_plan=False,
    storm_minutes=0.05,
    cannot=deaf("its model is not told what a hook says after a tool; by ACP it hears"),
)
