"""Loading prompt templates: the project's own first, then the ones that Ralph ships."""

from importlib import resources
from pathlib import Path

from ralph.core.errors import UsageError
from ralph.store.files import read_limited

_SIZE_LIMIT = 256 * 1024


def load_role(name: str, root: Path) -> str:
    """The text of a role of sessions: the project's own from `.ralph/roles`, or the one that Ralph ships."""
    return _load(root / ".ralph" / "roles" / f"{name}.md", f"roles/{name}.md")


def load(name: str, root: Path) -> str:
    """The text of a prompt template."""
    return _load(root / ".ralph" / "prompts" / f"{name}.md", f"{name}.md")


def _load(override: Path, shipped: str) -> str:
    if override.is_file():
        try:
            return read_limited(override, _SIZE_LIMIT, follow=True).decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"the prompt is not UTF-8 text ({error})", where=str(override)) from error
    return (resources.files("ralph.prompts") / shipped).read_text()
