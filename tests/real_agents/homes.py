"""What makes an agent program talk to our model and to nobody else: its environment and the files in its home."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

KEY = "mock-key-of-nobody"
Environment = dict[str, str]


@dataclass(frozen=True)
class Home:
    """How an agent is set up, and how it is called without Ralph."""

    furnish: Callable[[Path, str, int | None], Environment]
    """Writes its files into a home directory, for the address of the model and the tries it may make of a request
    (its own default where None); returns its environment."""
    words: Sequence[str]
    """The command line that does everything without asking, and streams; the prompt comes on standard input."""
    resume: Callable[[str], Sequence[str]]
    """The command line that goes on with a conversation."""
    key: str
    """The variable that holds the key."""


def _claude(home: Path, url: str, tries: int | None) -> Environment:
    own = {"CLAUDE_CODE_MAX_RETRIES": str(tries - 1)} if tries else {}
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        **own,
    }


def _codex(home: Path, url: str, tries: int | None) -> Environment:
    place = home / ".codex"
    place.mkdir(parents=True)
    retries = "" if tries is None else f"request_max_retries = {tries - 1}\nstream_max_retries = {tries - 1}\n"
    (place / "config.toml").write_text(f"""\
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
    return {"CODEX_HOME": str(place), "OPENAI_API_KEY": KEY}


def _gemini(home: Path, url: str, tries: int | None) -> Environment:
    place = home / ".gemini"
    place.mkdir(parents=True)
    general = {"enableAutoUpdate": False, "enableAutoUpdateNotification": False}
    settings = {
        "general": general if tries is None else {**general, "maxAttempts": tries},
        "model": {"name": "gemini-2.5-pro"},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    (place / "settings.json").write_text(json.dumps(settings))
    return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_NO_RELAUNCH": "true"}


_CLAUDE = ("claude", "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
_CODEX = ("codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox")
_GEMINI = ("gemini", "-o", "stream-json", "--yolo", "--skip-trust", "-m", "gemini-2.5-pro")
HOMES = {
    "claude": Home(_claude, _CLAUDE, lambda session: (*_CLAUDE, "--resume", session), "ANTHROPIC_API_KEY"),
    "codex": Home(_codex, _CODEX, lambda session: (*_CODEX, "resume", session), "OPENAI_API_KEY"),
    "gemini": Home(_gemini, _GEMINI, lambda session: (*_GEMINI, "--resume", session), "GEMINI_API_KEY"),
}
