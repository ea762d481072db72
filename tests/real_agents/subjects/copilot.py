"""GitHub Copilot CLI, with a provider of the user's own."""

from pathlib import Path

from install import Package
from subject import KEY, NO_TODO_LIST, Environment, Subject

PACKAGE = Package("copilot", "@github/copilot", "1.0.102")


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": "gpt-5",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        # It unpacks 240 MB: once beside the program, not in every home.
        "COPILOT_PKG_CACHE_HOME": str(PACKAGE.path / "unpacked"),
    }


SUBJECT = Subject(
    PACKAGE,
    set_up,
    api="chat",
    key="COPILOT_PROVIDER_API_KEY",
    sign_in=("/login",),
    cost=0.00525,
    must_cost=True,
    limit_lasts=70,  # it tries five times again, for a minute
    limit_seconds=20,
    idle_minutes=0.3,
    cannot=NO_TODO_LIST,
)
