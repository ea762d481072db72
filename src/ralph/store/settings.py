"""Reading `ralph.yml`, and the consent that a person gave for a project."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ralph.core.errors import StateError
from ralph.store.files import read_limited, write_atomic

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
    return agent in _consents(root)


def give_consent(root: Path, agent: str) -> None:
    """Remember that they did."""
    path = _path(root)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, json.dumps({"schema": 1, "agents": sorted({*_consents(root), agent})}).encode())


def _consents(root: Path) -> list[str]:
    try:
        data = json.loads(read_limited(_path(root), 65536))
    except (OSError, ValueError, StateError, RecursionError):
        return []
    agents = data.get("agents") if isinstance(data, dict) else None
    return [str(agent) for agent in agents] if isinstance(agents, list) else []


def _path(root: Path) -> Path:
    return root / ".ralph" / "consent.json"
