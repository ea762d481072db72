"""Loading prompt templates: the project's own first, then the ones that Ralph ships."""

from importlib import resources
from pathlib import Path

from ralph.store.files import read_limited

_SIZE_LIMIT = 256 * 1024


def load(name: str, root: Path) -> str:
    """The text of a prompt template."""
    override = root / ".ralph" / "prompts" / f"{name}.md"
    if override.is_file():
        return read_limited(override, _SIZE_LIMIT).decode()
    return (resources.files("ralph.prompts") / f"{name}.md").read_text()
