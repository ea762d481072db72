"""Reading `ralph.yml`, and the consent that a person gave for a project."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.core.codec import dump
from ralph.core.errors import StateError
from ralph.store.files import read_limited, storage, to_bytes, to_text, write_atomic

if TYPE_CHECKING:
    from ralph.documents.config import Config


def load_config(root: Path) -> "Config":
    """The project's settings; the defaults where it has none."""
    from ralph.documents import config

    path = root / "ralph.yml"
    try:
        text = read_limited(path, config.SIZE_LIMIT, follow=True).decode(errors="replace")
    except FileNotFoundError:
        return config.Config()
    return config.parse(text, str(path))


def has_consent(root: Path, agent: str) -> bool:
    """Whether somebody agreed that this agent acts here on its own."""
    return agent in _consents().get(str(root), [])


def give_consent(root: Path, agent: str) -> None:
    """Remember that they did, beside their own settings: a repository must not bring its own consent along."""
    consents = _consents()
    consents[str(root)] = sorted({*consents.get(str(root), []), agent})
    path = _path()
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_bytes(dump({"schema": 1, "projects": consents})))


def _consents() -> dict[str, list[str]]:
    try:
        data = json.loads(to_text(read_limited(_path(), 1024 * 1024)))
        return {str(root): [str(agent) for agent in agents] for root, agents in data["projects"].items()}
    except (OSError, ValueError, StateError, RecursionError, KeyError, TypeError, AttributeError):
        return {}


def _path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "ralph" / "consent.json"
