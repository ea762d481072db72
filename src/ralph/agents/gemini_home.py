"""A home for Gemini CLI with our hooks in it, made of links to all that is in the user's.

There is no other place for hooks that is not in the user's tree, in the user's settings, or for root alone. As an extension
they are beside the user's own, and the user's settings stay the file that they are.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from ralph.agents.hook_config import hooks, lay, own_place, point, short_hash

_EVENTS = ("AfterTool", "AfterAgent")
_OURS = "ralph"


def make_home(environment: Mapping[str, str]) -> str:
    """Bring it up to date; empty where it is of no use, for the sandbox sees neither links nor hooks."""
    theirs = Path(environment.get("GEMINI_CLI_HOME") or environment.get("HOME") or Path.home())
    if _is_boxed(environment, theirs):
        return ""
    ours = json.dumps({"hooks": hooks("gemini", _EVENTS, 10_000)})
    home = own_place(environment, f"gemini-{short_hash(f'{theirs}{ours}')}")
    extension = home / ".gemini" / "extensions" / _OURS
    _mirror(theirs, home)
    lay(extension / "gemini-extension.json", json.dumps({"name": _OURS, "version": "1.0.0"}))
    lay(extension / ".gemini-extension-install.json", json.dumps({"source": str(extension), "type": "local"}))
    lay(extension / "hooks" / "hooks.json", ours)
    return str(home)


def _is_boxed(environment: Mapping[str, str], home: Path) -> bool:
    """Whether it may run in its sandbox, as far as can be told without reading its settings as it does."""
    settings = home / ".gemini" / "settings.json"
    return bool(environment.get("GEMINI_SANDBOX")) or (settings.exists() and b'"sandbox"' in settings.read_bytes())


def _mirror(theirs: Path, home: Path) -> None:
    """Link to all that it looks for in a home. Its conversations are in `tmp`, which must not be in ours alone."""
    real, own = theirs / ".gemini", home / ".gemini"
    for place in (real / "tmp", real / "history", own / "extensions"):
        place.mkdir(parents=True, exist_ok=True)
    wanted = {own / path.name: path for path in real.iterdir() if path.name != "extensions"}
    if (real / "extensions").is_dir():
        others = (path for path in (real / "extensions").iterdir() if path.name != _OURS)
        wanted |= {own / "extensions" / path.name: path for path in others}
    wanted |= {home / name: theirs / name for name in (".env", ".agents") if (theirs / name).exists()}
    for place in (home, own, own / "extensions"):
        for link in place.iterdir():
            if link.is_symlink() and link not in wanted:
                link.unlink(missing_ok=True)
    for link, target in wanted.items():
        point(link, target)
