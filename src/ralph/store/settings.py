"""Reading settings: the project's `ralph.yml`, and the user's own."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.store.files import read_limited

if TYPE_CHECKING:
    from ralph.documents.config import Config, UserSettings


def load_config(root: Path) -> "Config":
    """The project's settings; the defaults where it has none."""
    from ralph.documents import config

    path = root / "ralph.yml"
    try:
        text = read_limited(path, config.SIZE_LIMIT, follow=True).decode(errors="replace")
    except FileNotFoundError:
        return config.Config()
    return config.parse(text, str(path))


def user_settings_path() -> Path:
    """Where the user's own settings are."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "ralph" / "config.yml"


def load_user_settings() -> "UserSettings":
    """The user's own settings; the defaults if there are none."""
    from ralph.documents import config

    path = user_settings_path()
    try:
        text = read_limited(path, config.SIZE_LIMIT, follow=True).decode(errors="replace")
    except FileNotFoundError:
        return config.UserSettings()
    data = config.read_yaml(text, str(path))
    return config.validated(config.UserSettings, data, str(path), dict(data))
