"""Loading prompt templates: the project's own first, then the ones that Ralph ships."""

from importlib import resources
from pathlib import Path

from ralph.store.files import read_text

_SIZE_LIMIT = 256 * 1024


def load_role(name: str, root: Path) -> tuple[str, bool]:
    """The text of a role of sessions: the project's own from `.ralph/roles`, or the one that Ralph ships.

    A file such as `Ralph-v2-Planner.agent.md` is for agents that edit the files of a session: that is told beside.
    """
    home = root / ".ralph" / "roles"
    foreign = sorted(path for path in home.glob("*.agent.md") if _role_of(path) == name)
    if foreign and not (home / f"{name}.md").is_file():
        return _load(foreign[-1], ""), True
    return _load(home / f"{name}.md", f"roles/{name}.md"), False


def _role_of(path: Path) -> str:
    return path.name.removesuffix(".agent.md").rpartition("-")[2].casefold()


def load(name: str, root: Path) -> str:
    """The text of a prompt template."""
    return _load(root / ".ralph" / "prompts" / f"{name}.md", f"{name}.md")


def _load(override: Path, shipped: str) -> str:
    if override.is_file():
        return read_text(override, _SIZE_LIMIT, "the prompt", "correct it, or remove it")
    return (resources.files("ralph.prompts") / shipped).read_text()
