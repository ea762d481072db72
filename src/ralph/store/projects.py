"""The projects in which this user has used Ralph, so that one page can show the runs of all of them.

Each project is one small file in the user's state directory that holds its path. A project that was moved or deleted drops out.
"""

import hashlib
import os
from pathlib import Path

from ralph.core.errors import RalphError
from ralph.store.files import read_limited, to_bytes, to_text, write_atomic
from ralph.store.runs import Project
from ralph.store.user_state import ensure_state_directory, state_directory

_KEY_DIGITS = 10
_PATH_LIMIT = 16 * 1024


def name_project(root: Path) -> str:
    """The short name of a project in links: it stays the same for a path."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:_KEY_DIGITS]


def register_project(root: Path) -> None:
    """Remember a project. Nothing depends on it but the list of projects, so a state directory that is full is no error."""
    path = _directory() / name_project(root)
    if path.exists():
        return
    try:
        ensure_state_directory()
        path.parent.mkdir(exist_ok=True, mode=0o700)
        write_atomic(path, to_bytes(f"{root}\n"), mode=0o600, durable=False)
    except (RalphError, OSError):
        return


def list_registered_projects() -> list[Project]:
    """The projects that still have runs, by path."""
    found = []
    try:
        names = sorted(entry.name for entry in os.scandir(_directory()))
    except OSError:
        return []
    for name in names:
        try:
            root = Path(to_text(read_limited(_directory() / name, _PATH_LIMIT)).rstrip("\n"))
        except (RalphError, OSError):
            continue
        if name_project(root) == name and (root / ".ralph" / "runs").is_dir():
            found.append(Project(root))
    return sorted(found, key=lambda project: str(project.root))


def _directory() -> Path:
    return state_directory() / "projects"
