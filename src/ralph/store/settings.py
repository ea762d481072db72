"""Settings, prompts and roles: the project's own files, the user's, and those that Ralph ships."""

import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.store.files import read_limited, read_text
from ralph.store.runs import SETTINGS

if TYPE_CHECKING:
    from ralph.documents.config import Config, UserSettings


def load_config(directory: Path) -> "Config":
    """The project's settings; the defaults if it has none."""
    from ralph.documents import config

    path = directory / SETTINGS
    try:
        text = read_limited(path, config.SIZE_LIMIT, follow=True).decode(errors="replace")
    except FileNotFoundError:
        return config.Config()
    return config.parse_config(text, str(path))


def user_settings_path() -> Path:
    """The file with the user's own settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "ralph" / "config.yml"


def load_user_settings() -> "UserSettings":
    """The user's own settings; the defaults if there are none."""
    from ralph.documents import config

    path = user_settings_path()
    try:
        text = read_limited(path, config.SIZE_LIMIT, follow=True).decode(errors="replace")
    except FileNotFoundError:
        return config.UserSettings()
    document = config.read_yaml(text, str(path))
    return config.validate_keys(config.UserSettings, dict(document.data), document, str(path))


_PROMPT_LIMIT = 256 * 1024


def load_role(name: str, root: Path) -> tuple[str, bool]:
    """The text of a role of sessions: the project's own from `.ralph/roles`, or the one that Ralph ships.

    The second value is whether the file is one such as `Ralph-v2-Planner.agent.md`, written for agents that edit session files.
    """
    home = root / ".ralph" / "roles"
    foreign = sorted(path for path in home.glob("*.agent.md") if _parse_role(path) == name)
    if foreign and not (home / f"{name}.md").is_file():
        return _load_text(foreign[-1], ""), True
    return _load_text(home / f"{name}.md", f"roles/{name}.md"), False


def list_overrides(root: Path) -> list[str]:
    """The files of a project that replace prompts and roles of Ralph, relative to the project."""
    found = [*root.glob(".ralph/prompts/*.md"), *root.glob(".ralph/roles/*.md")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def _parse_role(path: Path) -> str:
    return path.name.removesuffix(".agent.md").rpartition("-")[2].casefold()


def load_prompt(name: str, root: Path) -> str:
    """The text of a prompt template."""
    return _load_text(root / ".ralph" / "prompts" / f"{name}.md", f"{name}.md")


def _load_text(override: Path, shipped: str) -> str:
    # A directory, or a link that leads nowhere, is a mistake too: the user believes that the prompt is replaced.
    if os.path.lexists(override):
        return read_text(override, _PROMPT_LIMIT, "the prompt", "correct it, or remove it")
    return (resources.files("ralph.prompts") / shipped).read_text()
